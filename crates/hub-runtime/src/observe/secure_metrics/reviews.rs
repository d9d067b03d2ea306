//! Authenticates a token and authorizes its user by reviews on the hub.

use std::collections::HashMap;
use std::time::Duration;

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::Client;
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use super::PATH;
use crate::flow::pace::Pace;
use crate::observe::review::{UNKNOWN_TOKENS, review};

/// How long a permission is cached: longer than a scrape interval, short enough to revoke access soon.
const ALLOWED_FOR: Duration = Duration::from_mins(1);
/// How long a refusal is cached.
const REFUSED_FOR: Duration = Duration::from_secs(10);
/// How long an expired permission is kept in a full cache: its token is still reviewed, whatever the pace.
const KNOWN_FOR: Duration = Duration::from_hours(1);
/// How many tokens are cached: there are few scrapers, but anyone can send tokens.
const REMEMBERED: usize = 128;

/// The result of the reviews.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    /// The user is permitted to get the path.
    Allowed,
    /// The token is not valid.
    Unauthenticated,
    /// The user is not permitted to get the path.
    Forbidden,
    /// Too many tokens were not valid, so this one is not reviewed.
    Busy,
    /// The hub is unreachable, or refuses the reviews.
    Unknown,
}

/// Creates reviews, and caches their results for a short time.
pub(super) struct Reviews {
    client: Client,
    known: Mutex<ReviewCache>,
}

impl Reviews {
    pub(super) fn new(client: Client) -> Self {
        Self { client, known: Mutex::default() }
    }

    pub(super) async fn of(&self, token: &str) -> Answer {
        let digest: [u8; 32] = Sha256::digest(token).into();
        let now = Instant::now();
        let was_allowed = {
            let mut known = self.known.lock();
            if let Some(answer) = known.get(&digest, now) {
                return answer;
            }
            // A token that was permitted before is always reviewed.
            let was_allowed = matches!(known.results.get(&digest), Some((Answer::Allowed, _)));
            if !was_allowed && !known.pace.take(now) {
                return Answer::Busy;
            }
            was_allowed
        };
        let answer = self.ask(token).await.unwrap_or_else(|(resource, cause)| {
            tracing::warn!("cannot create {resource} for a metrics client: {cause}");
            Answer::Unknown
        });
        if !was_allowed && !matches!(answer, Answer::Unauthenticated | Answer::Unknown) {
            self.known.lock().pace.give_back();
        }
        self.known.lock().insert(digest, answer, Instant::now());
        answer
    }

    /// The answer, or the resource of the review that has failed, and the cause.
    async fn ask(&self, token: &str) -> Result<Answer, (&'static str, String)> {
        let spec = TokenReviewSpec { token: Some(token.to_owned()), audiences: None };
        let reviewed = review(&self.client, &TokenReview { spec, ..TokenReview::default() }).await;
        let reviewed = reviewed.map_err(|cause| ("tokenreviews", cause))?;
        let status = reviewed.status.unwrap_or_default();
        let Some(user) = status.user.filter(|_| status.authenticated == Some(true)) else {
            return Ok(Answer::Unauthenticated);
        };
        let reviewed = review(&self.client, &access_of(user)).await;
        let reviewed = reviewed.map_err(|cause| ("subjectaccessreviews", cause))?;
        let is_allowed = reviewed.status.is_some_and(|status| status.allowed);
        Ok(if is_allowed { Answer::Allowed } else { Answer::Forbidden })
    }
}

/// The review of whether a user is permitted to get the metrics.
fn access_of(user: UserInfo) -> SubjectAccessReview {
    let attributes =
        NonResourceAttributes { path: Some(PATH.to_owned()), verb: Some("get".to_owned()) };
    let spec = SubjectAccessReviewSpec {
        user: user.username,
        uid: user.uid,
        groups: user.groups,
        extra: user.extra,
        non_resource_attributes: Some(attributes),
        resource_attributes: None,
    };
    SubjectAccessReview { spec, ..SubjectAccessReview::default() }
}

struct ReviewCache {
    /// By the digest of the token, with their expiry.
    results: HashMap<[u8; 32], (Answer, Instant)>,
    pace: Pace,
}

impl Default for ReviewCache {
    fn default() -> Self {
        Self { results: HashMap::new(), pace: UNKNOWN_TOKENS }
    }
}

impl ReviewCache {
    fn get(&self, digest: &[u8; 32], now: Instant) -> Option<Answer> {
        self.results.get(digest).filter(|(_, until)| now < *until).map(|(answer, _)| *answer)
    }

    fn insert(&mut self, digest: [u8; 32], answer: Answer, now: Instant) {
        let period = match answer {
            Answer::Allowed => ALLOWED_FOR,
            Answer::Unauthenticated | Answer::Forbidden => REFUSED_FOR,
            Answer::Busy | Answer::Unknown => return,
        };
        if self.results.len() >= REMEMBERED {
            // An expired permission is kept, so that its token is reviewed again whatever the pace.
            let kept =
                |answer: Answer| if answer == Answer::Allowed { KNOWN_FOR } else { Duration::ZERO };
            self.results.retain(|_, (answer, until)| now < *until + kept(*answer));
        }
        // When the cache is full, only permissions are added.
        if self.results.len() < REMEMBERED || answer == Answer::Allowed {
            self.results.insert(digest, (answer, now + period));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_answer_counts_for_a_while_and_an_unknown_one_does_not() {
        let (mut known, now) = (ReviewCache::default(), Instant::now());
        for (name, answer) in [(1, Answer::Allowed), (2, Answer::Forbidden), (3, Answer::Unknown)] {
            known.insert([name; 32], answer, now);
        }
        let later = |seconds| {
            [1, 2, 3].map(|name| known.get(&[name; 32], now + Duration::from_secs(seconds)))
        };
        assert_eq!(later(0), [Some(Answer::Allowed), Some(Answer::Forbidden), None]);
        assert_eq!(later(10), [Some(Answer::Allowed), None, None]);
        assert_eq!(later(60), [None, None, None]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_of_tokens_takes_no_more_than_its_room() {
        let (mut known, now) = (ReviewCache::default(), Instant::now());
        for name in 0..=200 {
            known.insert([name; 32], Answer::Unauthenticated, now);
        }
        assert_eq!(known.results.len(), REMEMBERED);
        known.insert([255; 32], Answer::Allowed, now);
        assert_eq!(known.get(&[255; 32], now), Some(Answer::Allowed));
        known.insert([1; 32], Answer::Forbidden, now + REFUSED_FOR);
        assert_eq!(known.results.len(), 2);
    }
}
