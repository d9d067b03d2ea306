//! etcd's own counters.

use std::path::Path;

use serde::Serialize;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

/// What etcd has done for the whole hub: for the controllers, for the creation of the fleet, and for the hub itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Etcd {
    /// Transactions that the API server requested; each of its writes is one.
    pub transactions: u64,
    /// Keys written.
    pub puts: u64,
    /// Keys deleted.
    pub deletes: u64,
}

impl Etcd {
    /// Reads the counters of the etcd that serves its clients on this socket.
    pub async fn read(socket: &Path) -> std::io::Result<Self> {
        let mut stream = UnixStream::connect(socket).await?;
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").await?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await?;
        parse(&text)
            .ok_or_else(|| std::io::Error::other("etcd reports no counters of transactions"))
    }

    /// What it has done since `earlier`.
    pub fn since(self, earlier: Self) -> Self {
        Self {
            transactions: self.transactions - earlier.transactions,
            puts: self.puts - earlier.puts,
            deletes: self.deletes - earlier.deletes,
        }
    }
}

fn parse(text: &str) -> Option<Etcd> {
    let total = |name: &str, label: &str| {
        let of_series = |line: &&str| line.starts_with(name) && line.contains(label);
        let values = text.lines().filter(of_series).map(|line| whole(line.rsplit_once(' ')?.1));
        values.sum::<Option<u64>>()
    };
    let transactions = total("grpc_server_handled_total{", "grpc_method=\"Txn\"")?;
    Some(Etcd {
        transactions,
        puts: total("etcd_mvcc_put_total ", "")?,
        deletes: total("etcd_mvcc_delete_total ", "")?,
    })
}

/// A whole number as Prometheus prints it: from a million on as `1.25e+06`.
fn whole(text: &str) -> Option<u64> {
    let (digits, exponent) = text.split_once("e+").unwrap_or((text, "0"));
    let (before, after) = digits.split_once('.').unwrap_or((digits, ""));
    let exponent: usize = exponent.parse().ok()?;
    format!("{before}{after:0<exponent$}").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_summed_over_their_labels() {
        let text = "\
# TYPE etcd_mvcc_put_total counter
etcd_mvcc_put_total 7
etcd_mvcc_delete_total 2
grpc_server_handled_total{grpc_code=\"OK\",grpc_method=\"Txn\",grpc_service=\"etcdserverpb.KV\"} 1.000009e+06
grpc_server_handled_total{grpc_code=\"Unknown\",grpc_method=\"Txn\",grpc_service=\"etcdserverpb.KV\"} 1
grpc_server_handled_total{grpc_code=\"OK\",grpc_method=\"Range\",grpc_service=\"etcdserverpb.KV\"} 50
";
        let now = parse(text).unwrap();
        assert_eq!(now, Etcd { transactions: 1_000_010, puts: 7, deletes: 2 });
        assert_eq!(
            now.since(Etcd { transactions: 10, puts: 7, deletes: 0 }).transactions,
            1_000_000
        );
    }

    #[test]
    fn large_counters_are_whole_numbers() {
        assert_eq!(whole("1.25e+06"), Some(1_250_000));
        assert_eq!(whole("2e+06"), Some(2_000_000));
        assert_eq!(whole("31"), Some(31));
        assert_eq!(whole("NaN"), None);
    }
}
