//! The smallest schedule that still fails: delta debugging over its operations.

use std::sync::Arc;

use serde_json::Value;

use crate::schedule::Schedule;

/// Takes away whatever the failure does not need.
#[must_use]
pub fn shrink(schedule: &Schedule, crds: &Arc<Vec<Value>>) -> Schedule {
    let rule = |schedule: &Schedule| {
        let violations = run(schedule, crds);
        violations.first().map(|violation| violation.split(':').next().unwrap_or_default().to_owned())
    };
    let Some(broken) = rule(schedule) else { return schedule.clone() };
    let mut smallest = schedule.clone();
    let mut size = smallest.operations.len().div_ceil(2);
    while size > 0 {
        let mut begin = 0;
        while begin < smallest.operations.len() {
            let mut candidate = smallest.clone();
            let end = (begin + size).min(candidate.operations.len());
            candidate.operations.drain(begin..end);
            if rule(&candidate).as_ref() == Some(&broken) {
                smallest = candidate;
            } else {
                begin = end;
            }
        }
        size = if size == 1 { 0 } else { size.div_ceil(2) };
    }
    smallest
}

/// What a run breaks; a panic breaks something, too.
#[must_use]
pub fn run(schedule: &Schedule, crds: &Arc<Vec<Value>>) -> Vec<String> {
    let outcome = std::panic::catch_unwind(|| schedule.run(crds).violations);
    outcome.unwrap_or_else(|_| vec!["a panic".to_owned()])
}
