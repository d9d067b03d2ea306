//! The result of one scenario.

use std::collections::BTreeMap;

use crate::counts::Counts;
use crate::limit::Limit;
use crate::process::Usage;

/// What a scenario cost.
#[derive(Clone, Debug)]
pub struct Measurement {
    /// Its name.
    pub scenario: String,
    /// The controllers' requests by what they are for.
    pub counts: Counts,
    /// The least that the API allows.
    pub limit: Limit,
    /// The controllers' requests by verb and resource, with Leases and Events.
    pub requests: BTreeMap<String, usize>,
    /// The controllers' CPU time.
    pub cpu_seconds: f64,
    /// The memory and CPU time of all controllers since their start.
    pub usage: Usage,
    /// The time from the first change until the hub showed all of them.
    pub seconds: f64,
    /// The time from the first change until the hub showed a change that was made after all of them.
    pub seconds_to_next: f64,
}

/// The CPU time that processes have used since an earlier look, at which some of them may not have run yet.
pub fn cpu_since(before: &[(u32, Usage)], now: &[(u32, Usage)]) -> f64 {
    let used = |(pid, usage): &(u32, Usage)| {
        let earlier = before.iter().find(|(earlier, _)| earlier == pid);
        usage.cpu_seconds - earlier.map_or(0.0, |(_, usage)| usage.cpu_seconds)
    };
    now.iter().map(used).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_was_started_in_between_counts_from_its_start() {
        let usage = |cpu_seconds| Usage { cpu_seconds, ..Usage::default() };
        let (before, now) =
            ([(1, usage(2.0)), (2, usage(9.0))], [(1, usage(2.5)), (3, usage(0.25))]);
        assert!((cpu_since(&before, &now) - 0.75).abs() < 1e-9);
    }
}
