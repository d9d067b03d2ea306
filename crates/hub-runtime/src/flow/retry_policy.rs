//! What follows from a failed write: one table for all controllers.

use std::time::Duration;

use crate::queue::Outcome;
use crate::write::error::{Category, WriteError};

/// Delay after a 429 without a delay in its Status: what API Priority and Fairness
/// (<https://kubernetes.io/docs/concepts/cluster-administration/flow-control/>) sends in the `Retry-After` header,
/// which kube's errors do not contain.
const THROTTLED_WAIT: Duration = Duration::from_secs(1);

/// What follows from a failed write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextStep {
    /// The plan was stale, or this process does not lead. Plan again.
    Replan,
    /// Nothing was sent, since the circuit breaker is open. The key is queued again with its priority.
    Hold,
    /// The object is gone. Forget it, and plan again.
    Forget,
    /// The API server accepted the write without effect, and may until a person changes something. Report it.
    Report,
    /// The write fails for a reason that may concern only its namespace, resource and verb. Retry it with the others of
    /// this group, and report it: a refusal at once, another failure once it lasts.
    JoinGroup,
    /// The API server or the connection fails. Log it, and retry.
    TryAgain(Outcome),
}

impl NextStep {
    /// The next step after an error.
    #[must_use]
    pub fn after(error: &WriteError) -> Self {
        match (error.verb, error.category) {
            (_, Category::NotLeader | Category::Conflict) => Self::Replan,
            (_, Category::Held) => Self::Hold,
            // Not for a create, which has no object yet: what it misses stays missing for a while.
            (verb, Category::NotFound | Category::NamespaceNotFound) if verb != "create" => {
                Self::Forget
            }
            (_, Category::Ineffective) => Self::Report,
            (_, Category::Throttled) => {
                Self::TryAgain(Outcome::RetryNotBefore(error.retry_after.unwrap_or(THROTTLED_WAIT)))
            }
            (_, Category::Unavailable) => {
                Self::TryAgain(error.retry_after.map_or(Outcome::Retry, Outcome::RetryNotBefore))
            }
            _ => Self::JoinGroup,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(verb: &'static str, category: Category) -> NextStep {
        NextStep::after(&WriteError::new(verb, "secrets", "ns/name", category, "text"))
    }

    #[test]
    fn every_category_of_every_verb_has_its_next_step() {
        use NextStep::{Forget, Hold, JoinGroup, Replan, Report, TryAgain};
        let slower = TryAgain(Outcome::RetryNotBefore(THROTTLED_WAIT));
        let table = [
            (Category::Conflict, [Replan; 3]),
            (Category::AlreadyExists, [JoinGroup; 3]),
            (Category::NotFound, [JoinGroup, Forget, Forget]),
            (Category::NamespaceNotFound, [JoinGroup, Forget, Forget]),
            (Category::NotServed, [JoinGroup; 3]),
            (Category::NamespaceTerminating, [JoinGroup; 3]),
            (Category::Forbidden, [JoinGroup; 3]),
            (Category::QuotaExceeded, [JoinGroup; 3]),
            (Category::Denied, [JoinGroup; 3]),
            (Category::Unauthorized, [JoinGroup; 3]),
            (Category::Invalid, [JoinGroup; 3]),
            (Category::Throttled, [slower; 3]),
            (Category::Timeout, [JoinGroup; 3]),
            (Category::Unavailable, [TryAgain(Outcome::Retry); 3]),
            (Category::Internal, [JoinGroup; 3]),
            (Category::NotLeader, [Replan; 3]),
            (Category::Held, [Hold; 3]),
            (Category::Ineffective, [Report; 3]),
            (Category::Expired, [JoinGroup; 3]),
            (Category::Other, [JoinGroup; 3]),
        ];
        assert_eq!(table.map(|(category, _)| category), Category::ALL);
        for (category, steps) in table {
            let verbs = ["create", "patch", "delete"];
            assert_eq!(verbs.map(|verb| after(verb, category)), steps, "{category:?}");
        }
    }

    #[test]
    fn the_retry_after_of_the_api_server_is_honoured() {
        for category in [Category::Throttled, Category::Unavailable] {
            let mut error = WriteError::new("create", "secrets", "ns/name", category, "text");
            error.retry_after = Some(Duration::from_secs(7));
            let least = Outcome::RetryNotBefore(Duration::from_secs(7));
            assert_eq!(NextStep::after(&error), NextStep::TryAgain(least), "{category:?}");
        }
    }
}
