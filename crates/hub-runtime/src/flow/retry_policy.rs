//! What follows from a failed write: one table for all controllers.

use std::time::Duration;

use crate::error::{Category, WriteError};
use crate::queue::Outcome;

/// Longest delay of a delete that is refused or fails: the object should be gone, and the cause may end at any time.
const REFUSED_DELETE_WAIT: Duration = Duration::from_secs(5);
/// Delay after a 429 without a delay in its Status: what API Priority and Fairness
/// (<https://kubernetes.io/docs/concepts/cluster-administration/flow-control/>) sends in the `Retry-After` header, which
/// kube's errors do not contain.
const THROTTLED_WAIT: Duration = Duration::from_secs(1);

/// What follows from a failed write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextStep {
    /// No error: the plan was stale. Plan again.
    Replan,
    /// Nothing was sent, since the circuit breaker is open. The key keeps its position.
    Hold,
    /// The object is gone. Forget it, and plan again.
    Forget,
    /// The namespace is terminating or gone. Pause creates there.
    PauseNamespace,
    /// The hub does not serve the kind, or is about to stop. Pause writes of it.
    PauseKind,
    /// The API server refuses the write, and may until a person changes something. Report it.
    Report(Outcome),
    /// The write fails for a reason that may concern one namespace, resource and verb alone. Retry, and report it once it
    /// lasts.
    ReportIfLasting(Outcome),
    /// The API server or the connection fails. Log it, and retry.
    TryAgain(Outcome),
}

impl NextStep {
    /// The next step after an error.
    #[must_use]
    pub fn after(error: &WriteError) -> Self {
        let retry = |least: Option<Duration>| least.map_or(Outcome::Retry, Outcome::RetryNotBefore);
        match (error.verb, error.category) {
            (_, Category::NotLeader | Category::Conflict) => Self::Replan,
            (_, Category::Held) => Self::Hold,
            ("create", Category::NamespaceTerminating | Category::NamespaceNotFound) => Self::PauseNamespace,
            (_, Category::NotServed) => Self::PauseKind,
            // A create refers to nothing but its namespace; anything else that is missing stays missing for a while.
            ("create", Category::NotFound) => Self::Report(Outcome::Refused),
            (_, Category::NotFound | Category::NamespaceNotFound) => Self::Forget,
            ("delete", category) if is_refusal(category) => {
                Self::Report(Outcome::RetryAfter(REFUSED_DELETE_WAIT))
            }
            (_, category) if is_refusal(category) => Self::Report(Outcome::Refused),
            (_, Category::Throttled) => {
                Self::TryAgain(retry(Some(error.retry_after.unwrap_or(THROTTLED_WAIT))))
            }
            (_, Category::Unavailable) => Self::TryAgain(retry(error.retry_after)),
            ("delete", _) if error.retry_after.is_none() => {
                Self::ReportIfLasting(Outcome::RetryWithin(REFUSED_DELETE_WAIT))
            }
            _ => Self::ReportIfLasting(retry(error.retry_after)),
        }
    }
}

/// Whether the API server has understood the write and refuses it.
fn is_refusal(category: Category) -> bool {
    matches!(
        category,
        Category::Forbidden
            | Category::QuotaExceeded
            | Category::Denied
            | Category::Invalid
            | Category::Ineffective
            | Category::AlreadyExists
            | Category::NamespaceTerminating
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(verb: &'static str, category: Category) -> NextStep {
        NextStep::after(&WriteError::new(verb, "secrets", "ns/name", category, "text"))
    }

    #[test]
    fn every_category_of_every_verb_has_its_next_step() {
        use NextStep::{Forget, Hold, PauseKind, PauseNamespace, Replan, Report, ReportIfLasting, TryAgain};
        let rare = Report(Outcome::Refused);
        let soon = Report(Outcome::RetryAfter(REFUSED_DELETE_WAIT));
        let retry = TryAgain(Outcome::Retry);
        let lasting = ReportIfLasting(Outcome::Retry);
        let ends = ReportIfLasting(Outcome::RetryWithin(REFUSED_DELETE_WAIT));
        let slower = TryAgain(Outcome::RetryNotBefore(THROTTLED_WAIT));
        let table = [
            (Category::Conflict, [Replan; 3]),
            (Category::AlreadyExists, [rare, rare, soon]),
            (Category::NotFound, [rare, Forget, Forget]),
            (Category::NamespaceNotFound, [PauseNamespace, Forget, Forget]),
            (Category::NotServed, [PauseKind; 3]),
            (Category::NamespaceTerminating, [PauseNamespace, rare, soon]),
            (Category::Forbidden, [rare, rare, soon]),
            (Category::QuotaExceeded, [rare, rare, soon]),
            (Category::Denied, [rare, rare, soon]),
            (Category::Unauthorized, [lasting, lasting, ends]),
            (Category::Invalid, [rare, rare, soon]),
            (Category::Throttled, [slower; 3]),
            (Category::Timeout, [lasting, lasting, ends]),
            (Category::Unavailable, [retry; 3]),
            (Category::Internal, [lasting, lasting, ends]),
            (Category::NotLeader, [Replan; 3]),
            (Category::Held, [Hold; 3]),
            (Category::Ineffective, [rare, rare, soon]),
            (Category::Expired, [lasting, lasting, ends]),
            (Category::Other, [lasting, lasting, ends]),
        ];
        assert_eq!(table.map(|(category, _)| category), Category::ALL);
        for (category, steps) in table {
            let verbs = ["create", "patch", "delete"];
            assert_eq!(verbs.map(|verb| after(verb, category)), steps, "{category:?}");
        }
    }

    #[test]
    fn the_retry_after_of_the_api_server_is_honoured() {
        for category in [Category::Throttled, Category::Unavailable, Category::Timeout] {
            let mut error = WriteError::new("create", "secrets", "ns/name", category, "text");
            error.retry_after = Some(Duration::from_secs(7));
            let least = Outcome::RetryNotBefore(Duration::from_secs(7));
            let step = match category {
                Category::Timeout => NextStep::ReportIfLasting(least),
                _ => NextStep::TryAgain(least),
            };
            assert_eq!(NextStep::after(&error), step, "{category:?}");
        }
    }
}
