//! The operations and faults that must occur in a run of many schedules: a fault that is never generated tests nothing.

use std::collections::BTreeMap;

use strum::VariantArray as _;

use crate::monitor::Counts;
use crate::operation::Operation;
use crate::world::{FailureMode, Fault};

/// The counted effects of faults, in addition to each [`Fault`].
const EFFECTS: [&str; 26] = [
    "crashes before a write",
    "crashes after a write",
    "requests while the server was down",
    "rewound histories",
    "watch: connection lost",
    "watch: connection silent",
    "watch: late",
    "watch: history gone (410)",
    "watch: ended by its CRD",
    "watch: bookmark",
    "refused: quota",
    "refused: terminating namespace",
    "refused: missing permission",
    "refused: kind that is not served",
    "refused: kind that cannot be read",
    "requests while a kind could not be read",
    "refused: object that is gone",
    "refused: object that exists",
    "refused: object that has changed",
    "refused: expired page of a list",
    "consumers: accounts created",
    "consumers: accounts deleted",
    "consumers: permissions created",
    "consumers: permissions deleted",
    "consumers: objects of Kueue created",
    "consumers: cluster Secrets created",
];

/// The kinds of operations and effects that did not occur.
#[must_use]
pub fn missing(operations: &BTreeMap<String, u64>, counts: &Counts) -> Vec<String> {
    let kinds = Operation::kinds().into_iter().filter(|kind| !operations.contains_key(kind));
    let effects = EFFECTS
        .into_iter()
        .chain(Fault::VARIANTS.iter().map(|fault| fault.name()))
        .chain(FailureMode::VARIANTS.iter().map(|mode| mode.name()));
    kinds.chain(effects.filter(|effect| !counts.contains_key(*effect)).map(str::to_owned)).collect()
}
