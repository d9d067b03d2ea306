//! Who sends a request: the hub reviews the token, and the result is cached for a short time.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared};
use hub_core::entry::{Caller, Refusal};
use hub_runtime::observe::review_budget::ReviewBudget;
use hub_runtime::write::error::summary;
use jiff::Timestamp;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use kube::api::PostParams;
use kube::{Api, Client};
use parking_lot::Mutex;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use tokio::time::{Instant, timeout};

/// Timeout of a review.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a result counts.
const CACHED_FOR: Duration = Duration::from_secs(10);
/// How many results are cached.
const CACHED: usize = 10_000;

type Answer = Result<Arc<Caller>, Refusal>;

/// Reviews tokens, and caches the results by the SHA-256 digest of the token.
pub(crate) struct Reviews {
    client: Client,
    audience: String,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    results: HashMap<[u8; 32], (Answer, Instant)>,
    /// The reviews under way: requests with the same token wait for one.
    pending: HashMap<[u8; 32], Shared<BoxFuture<'static, Answer>>>,
    budget: ReviewBudget,
    /// Whether the last review failed.
    is_failing: bool,
}

impl Reviews {
    pub(crate) fn new(client: Client, audience: String) -> Arc<Self> {
        Arc::new(Self { client, audience, known: Mutex::default() })
    }

    /// The ServiceAccount that a token belongs to.
    pub(crate) async fn caller(self: &Arc<Self>, token: &str) -> Answer {
        let digest: [u8; 32] = Sha256::digest(token).into();
        let review = {
            let mut known = self.known.lock();
            let now = Instant::now();
            if let Some((answer, _)) = known.results.get(&digest).filter(|(_, until)| now < *until) {
                return answer.clone();
            }
            if let Some(pending) = known.pending.get(&digest) {
                pending.clone()
            } else {
                // A token that was valid before is always reviewed.
                let was_valid = known.results.get(&digest).is_some_and(|(answer, _)| answer.is_ok());
                if !was_valid && !known.budget.take(now) {
                    return Err(Refusal::TooManyReviews);
                }
                let (this, token) = (Arc::clone(self), zeroize::Zeroizing::new(token.to_owned()));
                // A task of its own, so that it completes even if the first request that waits for it is cancelled.
                let review = tokio::spawn(async move {
                    let answer = this.review(&token).await;
                    this.finished(digest, &answer, expiry_of(&token), was_valid);
                    answer
                });
                let review = review.map(|answer| answer.unwrap_or(Err(Refusal::ReviewUnknown)));
                let review = review.boxed().shared();
                known.pending.insert(digest, review.clone());
                review
            }
        };
        review.await
    }

    fn finished(&self, digest: [u8; 32], answer: &Answer, expiry: Option<Timestamp>, was_valid: bool) {
        let mut known = self.known.lock();
        known.pending.remove(&digest);
        known.is_failing = matches!(answer, Err(Refusal::ReviewUnknown));
        if !was_valid && (answer.is_ok() || known.is_failing) {
            known.budget.give_back();
        }
        if known.is_failing {
            return;
        }
        let now = Instant::now();
        let left = expiry.and_then(|expiry| Duration::try_from(expiry.duration_since(Timestamp::now())).ok());
        // A token without an expiry that can be read is reviewed each time.
        let cached_for = if answer.is_ok() { left.unwrap_or_default().min(CACHED_FOR) } else { CACHED_FOR };
        if known.results.len() >= CACHED {
            known.results.retain(|_, (_, until)| now < *until);
        }
        // When the cache is full, only callers are added.
        if known.results.len() < CACHED || answer.is_ok() {
            known.results.insert(digest, (answer.clone(), now + cached_for));
        }
    }

    /// Whether the last review failed.
    pub(crate) fn is_failing(&self) -> bool {
        self.known.lock().is_failing
    }

    /// Has the hub review a token that is not valid. Returns whether the hub reviews tokens.
    pub(crate) async fn check(&self) -> bool {
        let answers = !matches!(self.review("none").await, Err(Refusal::ReviewUnknown));
        self.known.lock().is_failing = !answers;
        answers
    }

    async fn review(&self, token: &str) -> Answer {
        let spec =
            TokenReviewSpec { token: Some(token.to_owned()), audiences: Some(vec![self.audience.clone()]) };
        let review = TokenReview { spec, ..TokenReview::default() };
        let api = Api::<TokenReview>::all(self.client.clone());
        let result = match timeout(REVIEW_TIMEOUT, api.create(&PostParams::default(), &review)).await {
            Ok(Ok(reviewed)) => Ok(reviewed),
            Ok(Err(error)) => Err(summary(&error)),
            Err(_) => Err("timed out".to_owned()),
        };
        let reviewed = result.map_err(|cause| {
            tracing::warn!("cannot create a TokenReview: {cause}");
            Refusal::ReviewUnknown
        })?;
        let status = reviewed.status.unwrap_or_default();
        // An authenticator that does not know audiences leaves them out: its tokens are for the API server.
        let is_for_us = status.audiences.iter().flatten().any(|audience| *audience == self.audience);
        match status.user.and_then(|user| user.username) {
            Some(user) if status.authenticated == Some(true) && is_for_us => {
                Caller::of_user(&user).map(Arc::new)
            }
            _ => Err(Refusal::InvalidToken { audience: self.audience.clone() }),
        }
    }
}

/// When a token expires, according to its own claim `exp`.
fn expiry_of(token: &str) -> Option<Timestamp> {
    #[derive(Deserialize)]
    struct Claims {
        exp: i64,
    }
    let claims = URL_SAFE_NO_PAD.decode(token.split('.').nth(1)?).ok()?;
    Timestamp::from_second(serde_json::from_slice::<Claims>(&claims).ok()?.exp).ok()
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http_body_util::BodyExt as _;
    use kube::client::Body;
    use serde_json::{Value, json};

    use super::*;

    /// A token whose middle says when it expires, and whose end says what the hub thinks of it.
    fn token(name: &str, seconds: i64) -> String {
        let claims = json!({ "exp": Timestamp::now().as_second() + seconds }).to_string();
        format!("a.{}.{name}", URL_SAFE_NO_PAD.encode(claims))
    }

    /// A hub that counts its reviews.
    fn reviews() -> (Arc<Reviews>, Arc<AtomicUsize>) {
        let count = Arc::<AtomicUsize>::default();
        let counted = Arc::clone(&count);
        let hub = tower::service_fn(move |request: http::Request<Body>| {
            counted.fetch_add(1, Ordering::Relaxed);
            async move {
                let body = request.into_body().collect().await.unwrap().to_bytes();
                let mut review: Value = serde_json::from_slice(&body).unwrap();
                assert_eq!(review["spec"]["audiences"], json!(["hub-addons"]));
                let name = review["spec"]["token"].as_str().unwrap().rsplit('.').next().unwrap().to_owned();
                let account = json!({ "username": "system:serviceaccount:team:application" });
                review["status"] = match name.as_str() {
                    "valid" => json!({ "authenticated": true, "audiences": ["hub-addons"], "user": account }),
                    "other" => json!({ "authenticated": true, "audiences": ["other"], "user": account }),
                    "unaware" => json!({ "authenticated": true, "user": account }),
                    "person" => json!({
                        "authenticated": true, "audiences": ["hub-addons"], "user": { "username": "admin" },
                    }),
                    "outage" => {
                        let response = http::Response::builder().status(500).body(Body::empty());
                        return Ok::<_, Infallible>(response.unwrap());
                    }
                    _ => json!({ "authenticated": false, "user": {} }),
                };
                Ok(http::Response::new(Body::from(review.to_string().into_bytes())))
            }
        });
        (Reviews::new(Client::new(hub, "default"), "hub-addons".to_owned()), count)
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_service_account_with_a_token_for_the_audience_is_a_caller() {
        let (reviews, _) = reviews();
        for (name, code) in [
            ("valid", None),
            ("other", Some(401)),
            ("unaware", Some(401)),
            ("expired", Some(401)),
            ("person", Some(403)),
            ("outage", Some(503)),
        ] {
            let answer = reviews.caller(&token(name, 3600)).await;
            assert_eq!(answer.err().map(|refusal| refusal.code()), code, "{name}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_result_counts_for_ten_seconds_and_never_beyond_the_expiry() {
        let (reviews, count) = reviews();
        let taken = || count.swap(0, Ordering::Relaxed);
        let long = token("valid", 3600);
        // Requests that arrive together wait for one review.
        let all = futures::future::join_all((0..32).map(|_| reviews.caller(&long))).await;
        assert!(all.iter().all(Result::is_ok));
        assert_eq!(taken(), 1);
        tokio::time::advance(Duration::from_secs(9)).await;
        assert!(reviews.caller(&long).await.is_ok());
        assert_eq!(taken(), 0);
        tokio::time::advance(Duration::from_secs(2)).await;
        assert!(reviews.caller(&long).await.is_ok());
        assert_eq!(taken(), 1);
        let short = token("valid", 4);
        assert!(reviews.caller(&short).await.is_ok());
        tokio::time::advance(Duration::from_secs(5)).await;
        let _ = reviews.caller(&short).await;
        assert_eq!(taken(), 2, "it has expired meanwhile");
        let outage = token("outage", 3600);
        for _ in 0..2 {
            assert!(reviews.caller(&outage).await.is_err());
        }
        assert_eq!(taken(), 2, "what is unknown is not cached");
        assert!(reviews.is_failing());
    }

    #[tokio::test(start_paused = true)]
    async fn invalid_tokens_cost_few_reviews_and_take_none_from_a_caller() {
        let (reviews, count) = reviews();
        let valid = token("valid", 3600);
        assert!(reviews.caller(&valid).await.is_ok());
        for number in 0..1000 {
            let _ = reviews.caller(&format!("invalid-{number}")).await;
        }
        let cost = count.swap(0, Ordering::Relaxed);
        assert!(cost < 50, "{cost}");
        tokio::time::advance(Duration::from_secs(11)).await;
        while !matches!(reviews.caller(&format!("more-{}", fastrand())).await, Err(Refusal::TooManyReviews)) {
        }
        assert!(reviews.caller(&valid).await.is_ok());
    }

    fn fastrand() -> usize {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        NEXT.fetch_add(1, Ordering::Relaxed)
    }
}
