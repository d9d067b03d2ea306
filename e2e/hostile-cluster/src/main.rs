//! `hostile-cluster`: registers clusters at a proxy server, one for each attack, for a bounded time.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, ValueEnum as _};
use futures::future::join_all;
use hostile_cluster::{Act, Cluster, Identity};
use tokio::time::{sleep, timeout};

/// Registers clusters at the proxy server, each named PREFIX-ACT.
#[derive(Debug, Parser)]
struct Arguments {
    /// Where agents reach the proxy server
    #[arg(long, value_name = "ADDRESS:PORT")]
    proxy_server: SocketAddr,

    /// The CA of the proxy server's certificate, which names that address
    #[arg(long, value_name = "FILE")]
    ca: PathBuf,

    /// The certificate of the API servers, for kubernetes.default.svc, and its key
    #[arg(long, value_name = "FILE")]
    certificate: PathBuf,

    #[arg(long, value_name = "FILE")]
    key: PathBuf,

    /// What the clusters do; by default, one of each but the honest one
    #[arg(long, value_name = "ACTS", value_delimiter = ',')]
    acts: Vec<Act>,

    #[arg(long, default_value = "hostile")]
    prefix: String,

    #[arg(long, default_value_t = 600)]
    seconds: u64,
}

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let arguments = Arguments::parse();
    let authority = std::fs::read(arguments.ca)?;
    let identity =
        Identity::from_pem(&std::fs::read(arguments.certificate)?, &std::fs::read(arguments.key)?)?;
    let acts = if arguments.acts.is_empty() { Act::hostile().collect() } else { arguments.acts };
    let clusters = acts.into_iter().map(async |act| {
        let name = act.to_possible_value().map(|value| format!("{}-{}", arguments.prefix, value.get_name()));
        let cluster = Cluster { name: name.unwrap_or_default(), act, identity: identity.clone() };
        loop {
            // It registers again when the proxy server has closed its connection.
            let _ = cluster.clone().run(arguments.proxy_server, &authority).await;
            sleep(Duration::from_millis(100)).await;
        }
    });
    let _ = timeout(Duration::from_secs(arguments.seconds), join_all::<_>(clusters)).await;
    Ok(())
}
