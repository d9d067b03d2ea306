//! Runs random schedules, and says how they went: see `hack/robustness.sh`.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "this is what it is for")]

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hub_api::crds::{Flavour, all, cluster_profile};
use hub_sim::schedule::Schedule;
use hub_sim::shrink;
use parking_lot::Mutex;
use serde_json::Value;

/// What is known of all runs.
#[derive(Default)]
struct Total {
    schedules: u64,
    operations: u64,
    counts: BTreeMap<&'static str, u64>,
    slowest: (Duration, u64),
    busiest: u64,
    failures: Vec<u64>,
}

fn main() -> ExitCode {
    let mut options = BTreeMap::from([
        ("--schedules", 10_000),
        ("--seed", 0),
        ("--threads", 2),
        ("--show", 0),
        ("--known", 0),
    ]);
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    for pair in arguments.chunks(2) {
        let known = options.iter_mut().find(|(name, _)| **name == pair[0]);
        if let (Some((_, value)), Some(number)) = (known, pair.get(1).and_then(|value| value.parse().ok())) {
            *value = number;
        } else {
            eprintln!("usage: hub-sim [--schedules N] [--seed S] [--threads N] [--show 1] [--known 1]");
            return ExitCode::from(2);
        }
    }
    let (first, count) = (options["--seed"], options["--schedules"]);
    let flavours = [crds(Flavour::Map), crds(Flavour::Atomic)];
    let known = options["--known"] > 0;
    if options["--show"] > 0 {
        return show(&Schedule::random(first, known), &flavours[flavour(first)]);
    }
    let (next, total, begin) = (AtomicU64::new(first), Mutex::new(Total::default()), Instant::now());
    std::thread::scope(|scope| {
        for _ in 0..options["--threads"].max(1) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + count || total.lock().failures.len() >= 5 {
                        break;
                    }
                    let schedule = Schedule::random(seed, known);
                    let crds = &flavours[flavour(seed)];
                    let outcome = std::panic::catch_unwind(|| schedule.run(crds));
                    let mut total = total.lock();
                    total.schedules += 1;
                    total.operations += schedule.operations.len() as u64;
                    match outcome {
                        Ok(outcome) => {
                            for (what, count) in outcome.counts {
                                *total.counts.entry(what).or_default() += count;
                            }
                            total.slowest = total.slowest.max((outcome.converged_after, seed));
                            total.busiest = total.busiest.max(outcome.busiest_minute);
                            if !outcome.violations.is_empty() {
                                total.failures.push(seed);
                            }
                        }
                        Err(_) => total.failures.push(seed),
                    }
                }
            });
        }
    });
    let total = total.into_inner();
    println!("schedules           {}", total.schedules);
    println!("operations          {}", total.operations);
    for (what, count) in &total.counts {
        println!("{what:<19} {count}");
    }
    println!("slowest convergence {:.1?} of the hub's time (seed {})", total.slowest.0, total.slowest.1);
    println!("busiest minute      {} requests", total.busiest);
    println!("took                {:.0?}", begin.elapsed());
    println!("failures            {}", total.failures.len());
    for seed in &total.failures {
        show(&Schedule::random(*seed, known), &flavours[flavour(*seed)]);
    }
    if total.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Every other seed has the other flavour of CRDs.
fn flavour(seed: u64) -> usize {
    usize::from(seed % 2 == 1)
}

fn crds(lists: Flavour) -> Arc<Vec<Value>> {
    let mut crds = all();
    crds.retain(|crd| crd.spec.names.plural != "clusterprofiles");
    crds.push(cluster_profile(lists));
    Arc::new(crds.iter().filter_map(|crd| serde_json::to_value(crd).ok()).collect())
}

/// Shows what a seed breaks, by the smallest schedule that does.
fn show(schedule: &Schedule, crds: &Arc<Vec<Value>>) -> ExitCode {
    let violations = shrink::run(schedule, crds);
    println!("\nseed {}: {}", schedule.seed, violations.first().map_or("nothing is broken", String::as_str));
    if violations.is_empty() {
        return ExitCode::SUCCESS;
    }
    let smallest = shrink::shrink(schedule, crds);
    println!("  in short: {smallest:?}");
    for violation in shrink::run(&smallest, crds) {
        println!("  {violation}");
    }
    ExitCode::FAILURE
}
