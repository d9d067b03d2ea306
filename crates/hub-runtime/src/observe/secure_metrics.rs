//! `/metrics` over TLS, for clients whose token the hub authenticates and authorizes.
//!
//! - **Reads** a certificate and its key from a directory, and reloads them when they change; without a directory it
//!   serves a self-signed certificate.
//! - **Creates** a `TokenReview` to authenticate the client and a `SubjectAccessReview` to check that it is permitted
//!   to `get` the path `/metrics`, as kubebuilder projects protect their metrics
//!   (<https://book.kubebuilder.io/reference/metrics.html>).
//! - **Guarantees** that it fails closed: without a token, without permission, or while the reviews fail, it serves
//!   nothing. A token is never logged, and only its SHA-256 digest is cached.

mod reviews;

use std::path::PathBuf;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use kube::Client;
use tokio_rustls::TlsAcceptor;

use self::reviews::{Answer, Reviews};
use crate::observe::health::{BindAddress, BindError, OPEN_METRICS};
use crate::observe::metrics::Metrics;
use crate::observe::serving;
use crate::observe::serving_certificate::{CertificateError, ServingCertificate};

/// The path that a client needs permission to get.
const PATH: &str = "/metrics";

/// Why metrics are not served.
#[derive(Debug, thiserror::Error)]
pub enum SecureMetricsError {
    /// The address cannot be bound.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// There is no usable certificate at startup.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
}

struct Served {
    metrics: Metrics,
    reviews: Reviews,
}

/// Serves the metrics until the process ends.
///
/// `certificates` is a directory with `tls.crt` and `tls.key`.
pub async fn serve_secure_metrics(
    address: &BindAddress,
    metrics: Metrics,
    client: Client,
    certificates: Option<PathBuf>,
) -> Result<(), SecureMetricsError> {
    let certificates = ServingCertificate::new(certificates, &[b"http/1.1"])?;
    let tcp = address.bind("metrics").await?;
    let counts = metrics.clone();
    let served = Arc::new(Served { metrics, reviews: Reviews::new(client) });
    let router = Router::new().route(PATH, get(respond)).with_state(served);
    let certificates = Arc::new(certificates);
    tokio::spawn(serving::serve("metrics", tcp, router, counts, move |stream| {
        let certificates = Arc::clone(&certificates);
        async move {
            // This reads files, which blocks.
            let config = tokio::task::spawn_blocking(move || certificates.config()).await?;
            TlsAcceptor::from(config).accept(stream).await
        }
    }));
    Ok(())
}

async fn respond(State(served): State<Arc<Served>>, headers: HeaderMap) -> Response {
    let token = headers
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.strip_prefix("Bearer "))
        .map(str::trim)
        .filter(|token| !token.is_empty());
    let Some(token) = token else {
        return (StatusCode::UNAUTHORIZED, "a bearer token is required\n").into_response();
    };
    match served.reviews.of(token).await {
        Answer::Allowed => {
            ([(header::CONTENT_TYPE, OPEN_METRICS)], served.metrics.text()).into_response()
        }
        Answer::Unauthenticated => {
            (StatusCode::UNAUTHORIZED, "the token is not valid\n").into_response()
        }
        Answer::Forbidden => {
            (StatusCode::FORBIDDEN, "no permission to get /metrics\n").into_response()
        }
        Answer::Busy => {
            (StatusCode::TOO_MANY_REQUESTS, "too many tokens that are not valid; try again\n")
                .into_response()
        }
        Answer::Unknown => {
            (StatusCode::SERVICE_UNAVAILABLE, "the hub cannot review the token\n").into_response()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http_body_util::BodyExt as _;
    use kube::client::Body;
    use serde_json::{Value, json};

    use super::*;

    /// A hub on which each token is the name of its user, except the token `expired`, and only the user `scraper` is
    /// permitted to get the metrics. It fails to review the token `outage`.
    async fn review(request: http::Request<Body>) -> Result<http::Response<Body>, Infallible> {
        let path = request.uri().path().to_owned();
        let body = request.into_body().collect().await.unwrap().to_bytes();
        let mut review: Value = serde_json::from_slice(&body).unwrap();
        let spec = &review["spec"];
        let status = if path == "/apis/authentication.k8s.io/v1/tokenreviews" {
            let token = spec["token"].as_str().unwrap();
            if token == "outage" {
                return Ok(http::Response::builder().status(503).body(Body::empty()).unwrap());
            }
            json!({ "authenticated": token != "expired" && !token.starts_with("invalid"), "user": { "username": token } })
        } else {
            let gets = json!({ "path": "/metrics", "verb": "get" });
            json!({ "allowed": spec["user"] == "scraper" && spec["nonResourceAttributes"] == gets })
        };
        review["status"] = status;
        Ok(http::Response::new(Body::from(review.to_string().into_bytes())))
    }

    #[tokio::test(start_paused = true)]
    async fn invalid_tokens_cost_few_reviews_and_take_none_from_a_known_scraper() {
        let reviewed = Arc::new(parking_lot::Mutex::new(0));
        let hub = {
            let reviewed = Arc::clone(&reviewed);
            tower::service_fn(move |request: http::Request<Body>| {
                *reviewed.lock() += u32::from(request.uri().path().ends_with("tokenreviews"));
                review(request)
            })
        };
        let reviews = Reviews::new(Client::new(hub, "default"));
        assert_eq!(reviews.of("scraper").await, Answer::Allowed);
        let count = || std::mem::take(&mut *reviewed.lock());
        count();
        // Ten seconds with a thousand invalid tokens in each.
        let mut busy = 0;
        for second in 0..10 {
            for number in 0..1000 {
                let answer = reviews.of(&format!("invalid {second} {number}")).await;
                busy += u32::from(answer == Answer::Busy);
            }
            tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        }
        let cost = count();
        assert!(
            (10..=60).contains(&cost) && busy + cost == 10_000,
            "{cost} reviews, {busy} refused"
        );
        // The scraper's permission has to be reviewed again, and is.
        tokio::time::sleep(std::time::Duration::from_mins(1)).await;
        let mut number = 0;
        while reviews.of(&format!("invalid more {number}")).await != Answer::Busy {
            number += 1;
        }
        assert_eq!(reviews.of("scraper").await, Answer::Allowed);
        // That took no review from the invalid tokens, and gives none back.
        assert_eq!(reviews.of("invalid at last").await, Answer::Busy);
    }

    #[tokio::test]
    async fn metrics_are_for_users_whom_the_hub_authenticates_and_permits() {
        let reviews = Reviews::new(Client::new(tower::service_fn(review), "default"));
        let served = Arc::new(Served { metrics: Metrics::new("0"), reviews });
        for (authorization, code) in [
            (None, 401),
            (Some("Basic scraper"), 401),
            (Some("Bearer "), 401),
            (Some("Bearer expired"), 401),
            (Some("Bearer stranger"), 403),
            (Some("Bearer outage"), 503),
            (Some("Bearer scraper"), 200),
        ] {
            let value = authorization.map(|value| (header::AUTHORIZATION, value.parse().unwrap()));
            let response = respond(State(Arc::clone(&served)), HeaderMap::from_iter(value)).await;
            assert_eq!(response.status().as_u16(), code, "{authorization:?}");
            let body = response.into_body().collect().await.unwrap().to_bytes();
            let text = String::from_utf8(body.to_vec()).unwrap();
            assert_eq!(text.contains("hub_addons_build_info"), code == 200, "{text}");
        }
    }
}
