//! Attacks of clients, each of which goes on until it is dropped. Each first takes what it can, and then goes on at a rate
//! that leaves time on the processors for others: this is about what is held, not about who computes faster.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use futures::future::{join, join_all};
use futures::{StreamExt as _, stream};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use hyper::client::conn::http1::SendRequest;
use tokio::io::AsyncWriteExt as _;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::client::{Body, Client, endless};
use crate::hub::{forged, token};

/// The windows of a client that reads nothing but heads.
const NO_WINDOW: u32 = 0;
/// The default window of HTTP/2.
const WINDOW: u32 = 65_535;
/// As many requests as the server allows on a connection.
const STREAMS: usize = 100;
/// The time before what has failed is tried again.
const PAUSE: Duration = Duration::from_millis(100);

/// Connections with HTTP/2 whose requests have no token. Their clients read no body.
pub async fn refusals_without_window(client: Client, connections: usize) -> Infallible {
    let open = async |client: Client| {
        let (sender, connection) = client.http2(NO_WINDOW).await.ok()?;
        let request = || {
            let mut sender = sender.clone();
            async move {
                sender.send_request(Client::request("https://hub/one/version", "", None)).await
            }
        };
        let responses = join_all((0..STREAMS).map(|_| request())).await;
        Some((sender, connection, responses))
    };
    keep(connections, || open(client.clone())).await
}

/// Connections with HTTP/1.1 whose clients send requests without a token, and read nothing.
pub async fn pipelined(client: Client, connections: usize) -> Infallible {
    let open = async |client: Client| {
        let requests = "GET /one/version HTTP/1.1\r\nHost: hub\r\n\r\n".repeat(1000);
        let mut connection = client.raw().await.ok()?;
        // As many as are accepted.
        let _ = timeout(PAUSE, connection.write_all(requests.as_bytes())).await;
        Some(connection)
    };
    let client = client.with_small_buffer();
    keep(connections, || open(client.clone())).await
}

/// Connections whose clients do not even begin a handshake.
pub async fn silent(client: Client, connections: usize) -> Infallible {
    let open = async |client: Client| client.tcp().await.ok();
    keep(connections, || open(client.clone())).await
}

/// Keeps as many open, and then replaces the oldest again and again.
async fn keep<T, F: Future<Output = Option<T>>>(
    connections: usize,
    open: impl Fn() -> F,
) -> Infallible {
    let mut all = VecDeque::new();
    loop {
        if all.len() == connections {
            sleep(PAUSE).await;
            all.pop_front();
        }
        match open().await {
            Some(connection) => all.push_back(connection),
            None => sleep(PAUSE).await,
        }
    }
}

/// Tokens that look like those of a namespace, each another one, from several addresses.
pub async fn tokens(client: Client, namespace: &str, addresses: Vec<[u8; 4]>) -> Infallible {
    let mut number = 0;
    loop {
        for address in &addresses {
            sleep(PAUSE).await;
            let Ok((mut sender, _connection)) = client.from(*address).http2(WINDOW).await else {
                continue;
            };
            for _ in 0..STREAMS {
                number += 1;
                let token = match number % 2 {
                    0 => format!("random-{number}"),
                    _ => forged(namespace, number, "forged"),
                };
                let request = Client::request("https://hub/one/version", &token, None);
                let Ok(response) = sender.send_request(request).await else { break };
                let _ = response.into_body().collect().await;
            }
        }
    }
}

/// Requests of a tenant to two clusters, more than are admitted, whose responses it does not read: those that have no end,
/// and some while it uploads without an end, to where the cluster reads and to where it does not.
pub async fn unread_responses(client: Client, namespace: &str) -> Infallible {
    let token = token(namespace, 0);
    loop {
        let mut open = Vec::new();
        for (cluster, path, window) in ["one", "two"].into_iter().flat_map(|cluster| {
            [("sink", WINDOW), ("stuck", WINDOW), ("large", NO_WINDOW)]
                .map(|(path, window)| (cluster, path, window))
        }) {
            let Ok((sender, connection)) = client.http2(window).await else { continue };
            let request = || {
                let body = match path {
                    "sink" => Some(trickling()),
                    "stuck" => Some(endless()),
                    _ => None,
                };
                let mut sender = sender.clone();
                let request =
                    Client::request(&format!("https://hub/{cluster}/{path}"), &token, body);
                async move { timeout(PAUSE * 10, sender.send_request(request)).await }
            };
            let responses = join_all((0..STREAMS).map(|_| request())).await;
            open.push((sender.clone(), connection, responses));
        }
        sleep(PAUSE * 50).await;
        drop(open);
    }
}

/// Responses to a tenant with great windows, which stops to read its socket: what waits for it stays in the connection.
pub async fn unread_sockets(
    client: Client,
    namespace: &str,
    connections: usize,
    path: &str,
) -> Infallible {
    let token = token(namespace, 0);
    let client = client.with_small_buffer();
    loop {
        let mut open = Vec::new();
        for _ in 0..connections {
            let stop = CancellationToken::new();
            let Ok((sender, connection)) = client.http2_until(1 << 30, stop.clone()).await else {
                continue;
            };
            let request = || {
                let mut sender = sender.clone();
                let request = Client::request(&format!("https://hub/one/{path}"), &token, None);
                async move { timeout(PAUSE, sender.send_request(request)).await }
            };
            let stops = async {
                sleep(PAUSE / 10).await;
                stop.cancel();
            };
            let (responses, ()) = join(join_all((0..STREAMS).map(|_| request())), stops).await;
            open.push((sender.clone(), connection, responses));
            sleep(PAUSE).await;
        }
        sleep(PAUSE * 100).await;
        // hyper waits for the end of the connection.
        for (_, connection, _) in open {
            connection.abort();
        }
    }
}

/// Requests of a tenant to a hostile cluster, of which half are read, each for a while.
pub async fn hostile_cluster(client: Client, namespace: &str, cluster: String) -> Infallible {
    const REQUESTS: usize = 10;
    let token = token(namespace, 0);
    loop {
        let request = async |number| {
            let Ok((mut sender, _connection)) = client.http2(WINDOW).await else {
                return sleep(PAUSE).await;
            };
            let body = (number % 4 == 0).then(endless);
            let request = Client::request(&format!("https://hub/{cluster}/version"), &token, body);
            let _ = timeout(PAUSE * 20, async {
                let response = sender.send_request(request).await;
                if number % 2 == 0 {
                    let mut body = response?.into_body();
                    while let Some(Ok(_)) = body.frame().await {}
                } else {
                    std::future::pending::<()>().await;
                }
                Ok::<_, hyper::Error>(())
            })
            .await;
            sleep(PAUSE).await;
        };
        join_all((0..REQUESTS).map(request)).await;
    }
}

/// Connections of a tenant that have switched protocols, and on which it reads nothing of what arrives without an end.
pub async fn unread_upgrades(client: Client, namespace: &str, connections: usize) -> Infallible {
    let token = token(namespace, 0);
    let mut open = JoinSet::new();
    loop {
        if open.len() == connections {
            open.join_next().await;
        }
        let (client, token) = (client.clone(), token.clone());
        open.spawn(async move {
            let Ok(mut sender) = client.http1().await else { return };
            let Ok(_upgraded) = upgrade(&mut sender, "/one/flood", &token).await else { return };
            sleep(PAUSE * 100).await;
        });
        if open.len() == connections {
            sleep(PAUSE * 5).await;
        }
    }
}

/// A body that goes on and on, slowly.
fn trickling() -> Body {
    let parts = stream::repeat(Bytes::from_static(&[b'x'; 1000])).then(async |part| {
        sleep(PAUSE * 10).await;
        Ok(Frame::data(part))
    });
    StreamBody::new(parts).boxed_unsync()
}

/// Switches protocols.
pub async fn upgrade(
    sender: &mut SendRequest<Body>,
    path: &str,
    token: &str,
) -> hyper::Result<hyper::upgrade::Upgraded> {
    let mut request = Client::request(path, token, None);
    for (name, value) in [("connection", "upgrade"), ("upgrade", "test")] {
        request.headers_mut().insert(name, http::HeaderValue::from_static(value));
    }
    hyper::upgrade::on(sender.send_request(request).await?).await
}
