//! A proxy in front of a hub's API server that delays each request.
//!
//! It serves plain HTTP/1.1 on the loopback interface; its connections to the API server use TLS. Clients send no
//! credentials to such a server, so the proxy adds those of the user for whom it was started.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::header::AUTHORIZATION;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};

use crate::user_server::pass_on;
use crate::{HubError, LocalHub, ports};

/// The proxy. Dropping it ends it and all its connections.
#[derive(Debug)]
pub struct SlowProxy {
    kubeconfig: PathBuf,
    task: JoinHandle<()>,
}

impl SlowProxy {
    /// Starts a proxy in front of a hub for a user.
    #[allow(clippy::unused_async, reason = "a task can only be spawned inside a runtime, and this says so")]
    pub async fn start(hub: &LocalHub, user: &str, delay: Duration) -> Result<Self, HubError> {
        let failed = |source| HubError::io("listen for a proxy", source);
        let listener = ports::listen(Ipv4Addr::LOCALHOST.into())?;
        listener.set_nonblocking(true).map_err(failed)?;
        let server = format!("http://{}", listener.local_addr().map_err(failed)?);
        let kubeconfig = hub.access().write_kubeconfig_through(hub.directory(), user, &server)?;
        let listener = TcpListener::from_std(listener).map_err(failed)?;
        let (upstream, authorization) = (hub.upstream()?, hub.access().authorization(user)?);
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (upstream, authorization) = (upstream.clone(), authorization.clone());
                let service = service_fn(move |mut request: http::Request<hyper::body::Incoming>| {
                    request.headers_mut().insert(AUTHORIZATION, authorization.clone());
                    let (target, upstream) = (request.uri().clone(), upstream.clone());
                    async move {
                        tokio::time::sleep(delay).await;
                        pass_on(&upstream, target, request).await
                    }
                });
                connections.spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
        });
        Ok(Self { kubeconfig, task })
    }

    /// The kubeconfig with which the user connects through the proxy.
    #[must_use]
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }
}

impl Drop for SlowProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}
