//! Who sends a request: the hub reviews the token, and the result is cached for a short time.
//!
//! Anyone can send tokens, and each review costs the hub a request. What is not a token for the user server by its own
//! claims is refused without one: the claims are not verified, so they prove nothing, and can only exclude. What passes
//! takes a review from the budget of its peer, and a successor of a token that was valid (the kubelet replaces tokens
//! within the hour) from one of its own. Who may create tokens has as many valid ones as they like: the reviews of those
//! are limited for each namespace.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, Hash, RandomState};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared};
use hub_api::names::Namespace;
use hub_core::entry::{Caller, Refusal};
use hub_runtime::flow::pace::Pace;
use hub_runtime::observe::review::{UNKNOWN_TOKENS, review};
use jiff::Timestamp;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use kube::Client;
use parking_lot::Mutex;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use crate::connections::Peer;

/// How long a result counts.
const CACHED_FOR: Duration = Duration::from_secs(10);
/// How many results are cached.
const CACHED: usize = 10_000;
/// How long the subject of a valid token is known, in a full cache.
const KNOWN_FOR: Duration = Duration::from_hours(2);
/// How many subjects of valid tokens are known.
const SUBJECTS: usize = 10_000;
/// How many budgets peers share, by a hash that they cannot foresee: enough that few share one.
const BUDGETS: usize = 4096;
/// How many requests of the peers with one budget may wait for the reviews of tokens that are not known to be valid: each
/// can have sent as much as its window lets it. More for successors of valid tokens.
const WAITING: usize = 32;
const WAITING_OF_KNOWN: usize = 100;
/// How many bytes the requests may take that wait for a review: those with tokens of one namespace that were valid before,
/// those with other tokens, and all; and for which a namespace has room in any case.
const OF_VALID: usize = 4 << 20;
const OF_OTHERS: usize = 8 << 20;
const OF_ALL: usize = 24 << 20;
const LEAST: usize = 256 << 10;
/// How many valid tokens of one namespace are reviewed in a burst, and the interval after it. A token is reviewed every
/// ten seconds, so this is enough for 400.
const OF_NAMESPACE: Pace = Pace::new(200, Duration::from_millis(25));
/// How many reviews of tokens that are not known to be valid may be under way. More for successors of valid tokens: while
/// the hub is slow, a few peers take the others.
const PENDING: usize = 256;
const PENDING_OF_KNOWN: usize = 2 * PENDING;
/// How many tokens are reviewed whose subject is not known to be valid, in a burst, and the interval after it: of all peers
/// that send many, and as many of all that send few.
const OF_STRANGERS: Pace = Pace::new(1000, Duration::from_millis(10));
/// The tolerance for the clocks, which is that of an API server.
const LEEWAY: i64 = 60;

type Answer = Result<Arc<Caller>, Refusal>;

/// Reviews tokens, and caches the results by the SHA-256 digest of the token.
pub(crate) struct Reviews {
    client: Client,
    audience: String,
    known: Mutex<Known>,
}

struct Known {
    results: HashMap<[u8; 32], (Answer, Instant)>,
    /// The reviews under way: requests with the same token wait for one.
    pending: HashMap<[u8; 32], Shared<BoxFuture<'static, Answer>>>,
    /// For tokens that are not known to be valid: first those by the hash of the peer, then those by that of the peer and a
    /// known subject.
    budgets: Vec<Budget>,
    strangers: [Pace; 2],
    /// The bytes of the requests that wait for reviews, by the namespace of a token that was valid before.
    waiting: HashMap<Option<Namespace>, usize>,
    hasher: RandomState,
    /// For valid tokens.
    namespaces: HashMap<Namespace, Pace>,
    /// The hashes of peers with the subjects of their valid tokens, with the time of the last one.
    subjects: HashMap<u64, Instant>,
    /// Whether the last review failed.
    is_failing: bool,
}

struct Budget {
    reviews: Pace,
    waiting: usize,
}

/// What a token claims. Nothing of it is verified.
#[derive(Deserialize)]
struct Claims {
    aud: Audiences,
    exp: i64,
    #[serde(default)]
    sub: String,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Audiences {
    One(String),
    Several(Vec<String>),
}

/// A request that waits for a review.
struct Waiting<'a> {
    reviews: &'a Reviews,
    /// The budget in which it counts, unless its token was valid before.
    budget: Option<usize>,
    before: Option<Namespace>,
    bytes: usize,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut known = self.reviews.known.lock();
        if let Some(budget) = self.budget {
            known.budgets[budget].waiting -= 1;
        }
        if let Some(waiting) = known.waiting.get_mut(&self.before) {
            *waiting -= self.bytes;
            if *waiting == 0 {
                known.waiting.remove(&self.before);
            }
        }
    }
}

impl Known {
    fn hash(&self, value: impl Hash) -> u64 {
        self.hasher.hash_one(value)
    }

    /// The number of the budget for a token with this subject, how many requests may wait there, and how many reviews may be
    /// under way.
    fn budget(&self, peer: Peer, subject: &str) -> (usize, usize, usize) {
        let of_subject = self.hash((peer, subject));
        let is_known = self.subjects.contains_key(&of_subject);
        let index = |hash| usize::try_from(hash % BUDGETS as u64).unwrap_or_default();
        if is_known {
            (BUDGETS + index(of_subject), WAITING_OF_KNOWN, PENDING_OF_KNOWN)
        } else {
            (index(self.hash(peer)), WAITING, PENDING)
        }
    }

    /// Lets a request wait, if its peer or its namespace has not too many that do. Returns whether it may.
    fn wait(
        &mut self,
        before: Option<&Namespace>,
        budget: Option<(usize, usize)>,
        bytes: usize,
    ) -> bool {
        let with_it = self.waiting.get(&before.cloned()).copied().unwrap_or_default() + bytes;
        let is_room = match budget {
            Some((budget, most)) => self.budgets[budget].waiting < most && with_it <= OF_OTHERS,
            None => with_it <= OF_VALID,
        };
        let of_all = self.waiting.values().sum::<usize>() + bytes;
        if !is_room || (of_all > OF_ALL && (before.is_none() || with_it > LEAST)) {
            return false;
        }
        self.waiting.insert(before.cloned(), with_it);
        if let Some((budget, _)) = budget {
            self.budgets[budget].waiting += 1;
        }
        true
    }

    /// Takes a review of a token that is not known to be valid; returns whether one is left.
    fn take_unknown(&mut self, budget: usize, now: Instant) -> bool {
        let reviews = &mut self.budgets[budget].reviews;
        let is_rested = reviews.is_rested(now);
        reviews.take(now) && (budget >= BUDGETS || self.strangers[usize::from(is_rested)].take(now))
    }

    /// Takes a review of a valid token; returns whether its namespace has one left.
    fn take(&mut self, namespace: &Namespace, now: Instant) -> bool {
        let pace = self.namespaces.entry(namespace.clone());
        pace.or_insert(OF_NAMESPACE).take(now)
    }

    /// Makes room for a result: those of tokens that were not valid are dropped first.
    fn make_room(&mut self, now: Instant) {
        if self.results.len() >= CACHED {
            self.results.retain(|_, (answer, _)| answer.is_ok());
        }
        if self.results.len() >= CACHED {
            self.results.retain(|_, (_, until)| now < *until);
        }
        if self.subjects.len() >= SUBJECTS {
            self.subjects.retain(|_, seen| now.duration_since(*seen) < KNOWN_FOR);
        }
    }
}

impl Reviews {
    pub(crate) fn new(client: Client, audience: String) -> Arc<Self> {
        let known = Known {
            results: HashMap::new(),
            pending: HashMap::new(),
            budgets: (0..2 * BUDGETS)
                .map(|_| Budget { reviews: UNKNOWN_TOKENS, waiting: 0 })
                .collect(),
            strangers: [OF_STRANGERS; 2],
            waiting: HashMap::new(),
            hasher: RandomState::new(),
            subjects: HashMap::new(),
            namespaces: HashMap::new(),
            is_failing: false,
        };
        Arc::new(Self { client, audience, known: Mutex::new(known) })
    }

    /// The ServiceAccount that a token belongs to. The request that waits for it takes this many bytes.
    pub(crate) async fn caller(self: &Arc<Self>, token: &str, peer: Peer, bytes: usize) -> Answer {
        let digest: [u8; 32] = Sha256::digest(token).into();
        let (review, _waiting) = {
            let mut known = self.known.lock();
            let now = Instant::now();
            if let Some((answer, _)) = known.results.get(&digest).filter(|(_, until)| now < *until)
            {
                return answer.clone();
            }
            // A token that was valid before takes no review of its peer.
            let before = known.results.get(&digest).and_then(|(answer, _)| answer.as_ref().ok());
            let before = before.map(|caller| caller.namespace.clone());
            let claims = self.claims(token, Timestamp::now())?;
            let (budget, most, pending) = known.budget(peer, &claims.sub);
            let counted = before.is_none().then_some((budget, most));
            if !known.wait(before.as_ref(), counted, bytes) {
                return Err(Refusal::TooManyReviews);
            }
            let waiting = Waiting {
                reviews: self,
                budget: counted.map(|it| it.0),
                before: before.clone(),
                bytes,
            };
            let review = if let Some(review) = known.pending.get(&digest) {
                review.clone()
            } else {
                let is_left = match &before {
                    Some(namespace) => known.take(namespace, now),
                    None => known.pending.len() < pending && known.take_unknown(budget, now),
                };
                if !is_left {
                    // Its drop takes the lock.
                    drop(known);
                    return Err(Refusal::TooManyReviews);
                }
                let (this, token) = (Arc::clone(self), zeroize::Zeroizing::new(token.to_owned()));
                let budget = before.is_none().then_some(budget);
                // A task of its own, so that it completes even if the first request that waits for it is cancelled.
                let review = tokio::spawn(async move {
                    let answer = this.review(&token).await;
                    this.finished(digest, &answer, &claims, peer, budget);
                    answer
                });
                let review = review.map(|answer| answer.unwrap_or(Err(Refusal::ReviewUnknown)));
                let review = review.boxed().shared();
                known.pending.insert(digest, review.clone());
                review
            };
            (review, waiting)
        };
        review.await
    }

    /// The claims of a token that may be valid: one for the audience that has not expired.
    fn claims(&self, token: &str, now: Timestamp) -> Result<Claims, Refusal> {
        claims(token)
            .filter(|claims| claims.exp.saturating_add(LEEWAY) > now.as_second())
            .filter(|claims| match &claims.aud {
                Audiences::One(audience) => *audience == self.audience,
                Audiences::Several(audiences) => audiences.contains(&self.audience),
            })
            .ok_or_else(|| self.invalid())
    }

    fn invalid(&self) -> Refusal {
        Refusal::InvalidToken { audience: self.audience.clone() }
    }

    fn finished(
        &self,
        digest: [u8; 32],
        answer: &Answer,
        claims: &Claims,
        peer: Peer,
        budget: Option<usize>,
    ) {
        let mut known = self.known.lock();
        known.pending.remove(&digest);
        known.is_failing = matches!(answer, Err(Refusal::ReviewUnknown));
        let now = Instant::now();
        if let Some(budget) = budget {
            let is_returned = match answer {
                Ok(caller) => known.take(&caller.namespace, now),
                Err(_) => known.is_failing,
            };
            if is_returned {
                known.budgets[budget].reviews.give_back();
            }
        }
        if known.is_failing {
            return;
        }
        known.make_room(now);
        let cached_for = if answer.is_ok() {
            let left = claims.exp.saturating_sub(Timestamp::now().as_second());
            Duration::from_secs(left.try_into().unwrap_or_default()).min(CACHED_FOR)
        } else {
            CACHED_FOR
        };
        if known.results.len() < CACHED {
            known.results.insert(digest, (answer.clone(), now + cached_for));
        }
        let subject = known.hash((peer, claims.sub.as_str()));
        if answer.is_ok()
            && (known.subjects.len() < SUBJECTS || known.subjects.contains_key(&subject))
        {
            known.subjects.insert(subject, now);
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
        let spec = TokenReviewSpec {
            token: Some(token.to_owned()),
            audiences: Some(vec![self.audience.clone()]),
        };
        let reviewed = review(&self.client, &TokenReview { spec, ..TokenReview::default() }).await;
        let reviewed = reviewed.map_err(|cause| {
            tracing::warn!("cannot create a TokenReview: {cause}");
            Refusal::ReviewUnknown
        })?;
        let status = reviewed.status.unwrap_or_default();
        // An authenticator that does not know audiences leaves them out: its tokens are for the API server.
        let is_for_us =
            status.audiences.iter().flatten().any(|audience| *audience == self.audience);
        match status.user.and_then(|user| user.username) {
            Some(user) if status.authenticated == Some(true) && is_for_us => {
                Caller::of_user(&user).map(Arc::new)
            }
            _ => Err(self.invalid()),
        }
    }
}

/// What a JSON Web Token claims.
fn claims(token: &str) -> Option<Claims> {
    let [header, claims, signature] = token.split('.').collect::<Vec<_>>().try_into().ok()?;
    if header.is_empty() || signature.is_empty() {
        return None;
    }
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http_body_util::BodyExt as _;
    use kube::client::Body;
    use serde_json::{Value, json};

    use super::*;

    /// A token whose middle says for how long and for whom it is valid, and whose end says what the hub thinks of it.
    fn token(name: &str, seconds: i64) -> String {
        token_of("application", name, seconds)
    }

    fn token_of(subject: &str, name: &str, seconds: i64) -> String {
        let expiry = Timestamp::now().as_second() + seconds;
        let claims =
            json!({ "exp": expiry, "aud": ["other", "hub-addons"], "sub": subject }).to_string();
        format!("a.{}.{name}", URL_SAFE_NO_PAD.encode(claims))
    }

    fn peer(number: usize) -> Peer {
        let [.., high, low] = u32::try_from(number).unwrap().to_be_bytes();
        Peer::from(std::net::IpAddr::from([10, 0, high, low]))
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
                let name = review["spec"]["token"]
                    .as_str()
                    .unwrap()
                    .rsplit('.')
                    .next()
                    .unwrap()
                    .to_owned();
                let namespace = if name == "elsewhere" { "other" } else { "team" };
                let account =
                    json!({ "username": format!("system:serviceaccount:{namespace}:application") });
                review["status"] = match name.as_str() {
                    "valid" | "elsewhere" => {
                        json!({ "authenticated": true, "audiences": ["hub-addons"], "user": account })
                    }
                    "other" => {
                        json!({ "authenticated": true, "audiences": ["other"], "user": account })
                    }
                    "unaware" => json!({ "authenticated": true, "user": account }),
                    "person" => json!({
                        "authenticated": true, "audiences": ["hub-addons"], "user": { "username": "admin" },
                    }),
                    "hanging" => std::future::pending().await,
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
            let answer = reviews.caller(&token(name, 3600), peer(0), 0).await;
            assert_eq!(answer.err().map(|refusal| refusal.code()), code, "{name}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_result_counts_for_ten_seconds_and_never_beyond_the_expiry() {
        let (reviews, count) = reviews();
        let taken = || count.swap(0, Ordering::Relaxed);
        let long = token("valid", 3600);
        // Requests that arrive together wait for one review.
        let all =
            futures::future::join_all((0..32).map(|_| reviews.caller(&long, peer(0), 0))).await;
        assert!(all.iter().all(Result::is_ok));
        assert_eq!(taken(), 1);
        tokio::time::advance(Duration::from_secs(9)).await;
        assert!(reviews.caller(&long, peer(0), 0).await.is_ok());
        assert_eq!(taken(), 0);
        tokio::time::advance(Duration::from_secs(2)).await;
        assert!(reviews.caller(&long, peer(0), 0).await.is_ok());
        assert_eq!(taken(), 1);
        let short = token("valid", 4);
        assert!(reviews.caller(&short, peer(0), 0).await.is_ok());
        tokio::time::advance(Duration::from_secs(5)).await;
        let _ = reviews.caller(&short, peer(0), 0).await;
        assert_eq!(taken(), 2, "it has expired meanwhile");
        let outage = token("outage", 3600);
        for _ in 0..2 {
            assert!(reviews.caller(&outage, peer(0), 0).await.is_err());
        }
        assert_eq!(taken(), 2, "what is unknown is not cached");
        assert!(reviews.is_failing());
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_no_token_for_the_user_server_by_its_own_claims_costs_no_review() {
        let (reviews, count) = reviews();
        let encoded =
            |claims: &Value| format!("a.{}.valid", URL_SAFE_NO_PAD.encode(claims.to_string()));
        let later = Timestamp::now().as_second() + 3600;
        for token in [
            "random".to_owned(),
            "a.b.c".to_owned(),
            token("valid", 3600) + ".more",
            token("", 3600),
            token("valid", -3600),
            encoded(&json!({ "exp": later })),
            encoded(&json!({ "exp": later, "aud": "other" })),
            encoded(&json!({ "exp": later, "aud": ["hub-addons-2"] })),
            encoded(&json!({ "aud": "hub-addons" })),
        ] {
            let refused = reviews.caller(&token, peer(0), 0).await.unwrap_err();
            assert_eq!(refused.code(), 401, "{token}");
        }
        assert_eq!(count.load(Ordering::Relaxed), 0);
        assert!(
            reviews
                .caller(&encoded(&json!({ "exp": later, "aud": "hub-addons" })), peer(0), 0)
                .await
                .is_ok()
        );
    }

    /// Sends tokens that look like valid ones until no more are reviewed.
    async fn flood(reviews: &Arc<Reviews>, peer: Peer) {
        let mut number = 0;
        let mut more = async || {
            number += 1;
            reviews.caller(&token(&format!("invalid-{number}"), 3600), peer, 0).await
        };
        while !matches!(more().await, Err(Refusal::TooManyReviews)) {}
    }

    /// A peer that shares its budget with none of the first `hostile` ones.
    fn honest(reviews: &Reviews, hostile: usize) -> Peer {
        let known = reviews.known.lock();
        let budgets: Vec<_> = (0..hostile).map(|number| known.budget(peer(number), "").0).collect();
        (hostile..hostile + 1000)
            .map(peer)
            .find(|peer| !budgets.contains(&known.budget(*peer, "").0))
            .unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_of_tokens_keeps_out_no_other_peer_and_no_successor_of_a_valid_token() {
        const HOSTILE: usize = 50;
        let renewed = |name: &str| token_of("known", name, 3600);
        // The application has the address of the first hostile peer.
        let (reviews, _) = reviews();
        assert!(reviews.caller(&renewed("valid"), peer(0), 0).await.is_ok());
        let honest = honest(&reviews, HOSTILE);
        for number in 0..HOSTILE {
            flood(&reviews, peer(number)).await;
        }
        for number in 0..100 {
            let new = token_of(&format!("new-{number}"), "valid", 3600);
            assert!(reviews.caller(&new, honest, 0).await.is_ok());
            let successor = token_of("known", "valid", 3600 + number);
            assert!(reviews.caller(&successor, peer(0), 0).await.is_ok());
        }
        // Who pretends to be the application has no more reviews than anyone, and only from its address.
        for number in 0..1000 {
            let _ = reviews.caller(&renewed(&format!("invalid-{number}")), peer(1), 0).await;
        }
        assert!(reviews.caller(&token_of("known", "valid", 7200), peer(0), 0).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_namespace_with_many_valid_tokens_costs_few_reviews_and_takes_none_from_others() {
        let (reviews, count) = reviews();
        let mut refused = 0;
        // Each of them twice, when the first result does not count any more.
        for _ in 0..2 {
            for number in 0..1000 {
                let (of, peer) = (
                    token_of("application", "valid", 3600 + number),
                    peer(usize::try_from(number % 50).unwrap()),
                );
                refused += usize::from(reviews.caller(&of, peer, 0).await.is_err());
            }
            tokio::time::advance(CACHED_FOR).await;
        }
        let cost = count.load(Ordering::Relaxed);
        assert!(cost < 1500 && refused > 500, "{cost}, {refused}");
        assert!(reviews.caller(&token("elsewhere", 3600), peer(60), 0).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn few_requests_of_a_peer_wait_for_a_review() {
        const BYTES: usize = 10_000;
        let (reviews, _) = reviews();
        let hanging = token("hanging", 3600);
        let mut waiting: Vec<_> =
            (0..150).map(|_| Box::pin(reviews.caller(&hanging, peer(0), 0))).collect();
        let refused =
            waiting.iter_mut().filter_map(|waiting| waiting.as_mut().now_or_never()).count();
        assert_eq!(refused, 150 - WAITING);
        let valid = token("valid", 3600);
        assert!(reviews.caller(&valid, honest(&reviews, 1), 0).await.is_ok());
        drop(waiting);
        assert!(reviews.caller(&valid, peer(0), 0).await.is_ok());
        assert!(reviews.known.lock().budgets.iter().all(|budget| budget.waiting == 0));

        // Of a token that was valid, as many as have room.
        let claims = claims(&hanging).unwrap();
        let answer = reviews.caller(&valid, peer(0), 0).await;
        reviews.finished(Sha256::digest(&hanging).into(), &answer, &claims, peer(0), None);
        tokio::time::advance(CACHED_FOR).await;
        let mut waiting: Vec<_> =
            (0..1000).map(|_| Box::pin(reviews.caller(&hanging, peer(0), BYTES))).collect();
        let refused =
            waiting.iter_mut().filter_map(|waiting| waiting.as_mut().now_or_never()).count();
        assert_eq!(refused, 1000 - OF_VALID / BYTES);
        drop(waiting);
        assert!(reviews.known.lock().waiting.is_empty());

        // Of new tokens, also of many peers.
        let new: Vec<_> = (0..100).map(|number| token("hanging", 5000 + number)).collect();
        let many = (0..1000).map(|number| (&new[number % 100], peer(100 + number % 100)));
        let mut waiting: Vec<_> =
            many.map(|(new, peer)| Box::pin(reviews.caller(new, peer, BYTES))).collect();
        let refused =
            waiting.iter_mut().filter_map(|waiting| waiting.as_mut().now_or_never()).count();
        assert_eq!(refused, 1000 - OF_OTHERS / BYTES);
    }

    #[tokio::test(start_paused = true)]
    async fn peers_that_send_many_tokens_keep_out_no_peer_that_sends_its_first_one() {
        let (reviews, count) = reviews();
        for number in 0..500 {
            flood(&reviews, peer(number)).await;
        }
        let cost = count.load(Ordering::Relaxed);
        assert!(cost <= 2 * usize::try_from(OF_STRANGERS.burst).unwrap(), "{cost}");
        assert!(reviews.caller(&token("valid", 3600), honest(&reviews, 500), 0).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn while_the_hub_is_slow_peers_with_many_tokens_keep_out_no_successor_of_a_valid_token() {
        let (reviews, _) = reviews();
        assert!(reviews.caller(&token("valid", 3600), peer(0), 0).await.is_ok());
        for number in 1..100 {
            for other in 0..10 {
                let from = peer(usize::try_from(number).unwrap());
                let _ = reviews
                    .caller(&token("hanging", 5000 + 10 * number + other), from, 0)
                    .now_or_never();
            }
        }
        assert_eq!(reviews.known.lock().pending.len(), PENDING);
        assert!(reviews.caller(&token("valid", 7200), peer(0), 0).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_cache_drops_first_what_was_not_valid() {
        let (reviews, count) = reviews();
        let valid = token("valid", 3600);
        assert!(reviews.caller(&valid, peer(0), 0).await.is_ok());
        let invalid = claims(&token("invalid", 3600)).unwrap();
        for number in 0..2 * CACHED {
            let digest = Sha256::digest(number.to_string()).into();
            reviews.finished(digest, &Err(reviews.invalid()), &invalid, peer(1), None);
        }
        assert!(reviews.known.lock().results.len() <= CACHED);
        count.store(0, Ordering::Relaxed);
        assert!(reviews.caller(&valid, peer(0), 0).await.is_ok());
        assert_eq!(count.load(Ordering::Relaxed), 0);
    }
}
