//! Finds the smallest schedule that still fails, by delta debugging over its operations.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::process::Means;
use crate::schedule::{Hubs, Schedule, Setting};

/// How often a schedule that can fail is run. Processes handle what happens at the same moment in the order of their
/// hash maps, which differs from run to run.
const RUNS: usize = 4;

/// Removes everything from a schedule that its failure does not need.
#[must_use]
pub fn shrink(schedule: &Schedule, hubs: &Hubs) -> Schedule {
    let rule = |schedule: &Schedule| {
        let mut runs = (0..RUNS).map(|_| run(schedule, hubs));
        let violation = runs.find_map(|violations| violations.into_iter().next());
        violation.map(|violation| violation.split(':').next().unwrap_or_default().to_owned())
    };
    let Some(broken) = rule(schedule) else { return schedule.clone() };
    let mut smallest = schedule.clone();
    for simpler in SIMPLER {
        let candidate = Schedule { setting: simpler(smallest.setting), ..smallest.clone() };
        if rule(&candidate).as_ref() == Some(&broken) {
            smallest = candidate;
        }
    }
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

/// Simplifications of a setting, one part each.
const SIMPLER: [fn(Setting) -> Setting; 7] = [
    |setting| Setting { layout: Setting::PLAIN.layout, ..setting },
    |setting| Setting { profiles: Setting::PLAIN.profiles, ..setting },
    |setting| Setting { means: Means { granted: false, ..setting.means }, ..setting },
    |setting| Setting { means: Means { leases: false, ..setting.means }, ..setting },
    |setting| Setting { page: 0, ..setting },
    |setting| Setting { consumers: false, ..setting },
    |setting| Setting { user_server: false, ..setting },
];

/// Runs a schedule and returns its violations; a panic is one.
#[must_use]
pub fn run(schedule: &Schedule, hubs: &Hubs) -> Vec<String> {
    let outcome = catch_unwind(AssertUnwindSafe(|| schedule.run(hubs).violations));
    outcome.unwrap_or_else(|_| vec!["a panic".to_owned()])
}
