//! Runs random schedules and prints the results. See `hack/robustness.sh`.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "the results are its output")]

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hub_sim::coverage;
use hub_sim::monitor::Counts;
use hub_sim::schedule::{Hubs, Outcome, Schedule};
use hub_sim::shrink;
use mimalloc::MiMalloc;
use parking_lot::Mutex;

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// The number of failures after which a run ends.
const FAILURES: usize = 5;
/// The number of schedules from which on every operation and fault must have occurred.
const ENOUGH: u64 = 5_000;

/// The results of all runs.
#[derive(Default)]
struct Total {
    schedules: u64,
    operations: BTreeMap<String, u64>,
    counts: Counts,
    slowest: (Duration, u64),
    busiest: (u64, u64),
    failures: Vec<(u64, Vec<String>)>,
}

impl Total {
    fn add(&mut self, seed: u64, outcome: Option<Outcome>) {
        self.schedules += 1;
        let Some(outcome) = outcome else {
            return self.failures.push((seed, vec!["a panic".to_owned()]));
        };
        for (what, count) in outcome.operations {
            *self.operations.entry(what).or_default() += count;
        }
        for (what, count) in outcome.counts {
            *self.counts.entry(what).or_default() += count;
        }
        self.slowest = self.slowest.max((outcome.converged_after, seed));
        self.busiest = self.busiest.max((outcome.busiest_minute, seed));
        if !outcome.violations.is_empty() {
            // At once: a long run may be ended before its results.
            eprintln!("seed {seed} failed: {}", outcome.violations.join("\n  "));
            self.failures.push((seed, outcome.violations));
        }
    }

    fn print(&self, took: Duration) {
        let operations: u64 = self.operations.values().sum();
        println!("{:<40}{}", "schedules", self.schedules);
        println!("{:<40}{operations}", "operations");
        for (what, count) in &self.counts {
            println!("{what:<40}{count}");
        }
        println!("{:<40}{:.1?} (seed {})", "slowest convergence", self.slowest.0, self.slowest.1);
        println!(
            "{:<40}{} (seed {})",
            "requests of the busiest minute", self.busiest.0, self.busiest.1
        );
        let each: Vec<String> =
            self.operations.iter().map(|(what, count)| format!("{what} {count}")).collect();
        println!("operations by kind: {}", each.join(", "));
        println!("took {took:.0?}, {} schedules a second", self.schedules / took.as_secs().max(1));
        println!("{:<40}{}", "failures", self.failures.len());
    }
}

fn main() -> ExitCode {
    let mut options =
        BTreeMap::from([("--schedules", 10_000), ("--seed", 0), ("--threads", 2), ("--show", 0)]);
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    for pair in arguments.chunks(2) {
        let known = options.iter_mut().find(|(name, _)| **name == pair[0]);
        if let (Some((_, value)), Some(number)) =
            (known, pair.get(1).and_then(|value| value.parse().ok()))
        {
            *value = number;
        } else {
            eprintln!("usage: hub-sim [--schedules N] [--seed S] [--threads N] [--show 1]");
            return ExitCode::from(2);
        }
    }
    let (first, count) = (options["--seed"], options["--schedules"]);
    let hubs = Hubs::default();
    if options["--show"] > 0 {
        return show(&Schedule::random(first), &hubs);
    }
    let (next, total, begin) =
        (AtomicU64::new(first), Mutex::new(Total::default()), Instant::now());
    std::thread::scope(|scope| {
        for _ in 0..options["--threads"].max(1) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + count || total.lock().failures.len() >= FAILURES {
                        break;
                    }
                    let schedule = Schedule::random(seed);
                    let outcome = catch_unwind(AssertUnwindSafe(|| schedule.run(&hubs))).ok();
                    total.lock().add(seed, outcome);
                }
            });
        }
    });
    let total = total.into_inner();
    total.print(begin.elapsed());
    for (seed, violations) in &total.failures {
        println!("\nseed {seed}: {}", violations.join("\n  "));
        shorten(&Schedule::random(*seed), &hubs);
    }
    let missing = coverage::missing(&total.operations, &total.counts);
    let is_covered = missing.is_empty() || total.schedules < ENOUGH;
    if !missing.is_empty() {
        println!("never occurred: {}", missing.join(", "));
    }
    if total.failures.is_empty() && is_covered { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Prints every request of a schedule, the properties that it breaks, and the requests of the smallest that does.
fn show(schedule: &Schedule, hubs: &Hubs) -> ExitCode {
    println!("{schedule:?}");
    let outcome = schedule.run(hubs);
    println!("{}", outcome.trace.join("\n"));
    println!("converged after {:?}", outcome.converged_after);
    if outcome.violations.is_empty() {
        return ExitCode::SUCCESS;
    }
    println!("{}", outcome.violations.join("\n"));
    let smallest = shorten(schedule, hubs);
    println!("{}", smallest.run(hubs).trace.join("\n"));
    ExitCode::FAILURE
}

/// Prints the smallest schedule that breaks the same property.
fn shorten(schedule: &Schedule, hubs: &Hubs) -> Schedule {
    let smallest = shrink::shrink(schedule, hubs);
    println!("  smallest schedule: {}", serde_json::to_string(&smallest).unwrap_or_default());
    for violation in shrink::run(&smallest, hubs) {
        println!("  {violation}");
    }
    smallest
}
