//! Kills the process before and after every write of every scenario, and starts it again.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "clippy takes only functions marked as tests for tests"
)]

use hub_sim::operation::{Operation as O, ProfileTenant};
use hub_sim::schedule::{Hubs, Schedule, Setting};

/// The scenarios by name: what happens after the process has started on a hub with two clusters.
fn scenarios() -> Vec<(&'static str, Vec<O>)> {
    vec![
        ("a cold start", vec![]),
        ("a cluster joins", vec![O::CreateCluster(2), O::MoveCluster(2, Some(0)), O::Addon(2, true)]),
        ("a cluster leaves", vec![O::LeaveCluster(0), O::RemoveCluster(0)]),
        ("two clusters swap their sets", vec![O::MoveCluster(0, Some(1)), O::MoveCluster(1, Some(0))]),
        ("the proxy's authority changes", vec![O::Serve(0, Some(1))]),
        ("a token is rotated", vec![O::Report(0, 0, 1)]),
        (
            "a namespace is deleted and created again",
            vec![O::EndNamespace(0), O::Collect, O::CreateNamespace(0), O::Bind(0, 0)],
        ),
        ("a profile is deleted by hand", vec![O::Profile(0, 0, ProfileTenant::Delete)]),
        ("a grant ends", vec![O::Unbind(0, 0)]),
    ]
}

fn schedule(happens: &[O], crash: Option<O>) -> Schedule {
    let mut operations = vec![
        (O::CreateSet(0), 0),
        (O::CreateSet(1), 0),
        (O::Configure(Some(0)), 0),
        (O::Serve(0, Some(0)), 0),
        (O::Bind(0, 0), 0),
        (O::Bind(1, 1), 0),
    ];
    for cluster in 0..2 {
        let made = [
            O::CreateCluster(cluster),
            O::MoveCluster(cluster, Some(cluster)),
            O::Addon(cluster, true),
            O::CreateAccount(cluster, cluster),
            O::Report(cluster, cluster, 0),
        ];
        operations.extend(made.map(|operation| (operation, 0)));
    }
    operations.push((O::Start(0), 0));
    operations.extend(crash.map(|crash| (crash, 0)));
    operations.push((O::Wait(1000), 0));
    for happens in happens {
        // Starts the process again if it has died.
        operations.extend([(*happens, 20), (O::Start(0), 400)]);
    }
    Schedule { seed: 4, setting: Setting::PLAIN, operations }
}

#[test]
fn a_process_that_dies_before_or_after_any_write_completes_the_work_after_a_restart() {
    let hubs = Hubs::default();
    let mut tried = 0;
    for (name, happens) in scenarios() {
        let outcome = schedule(&happens, None).run(&hubs);
        assert_eq!(outcome.violations, [""; 0], "{name}");
        for after in 0.. {
            let mut crashes = 0;
            for (committed, counted) in [(false, "crashes before a write"), (true, "crashes after a write")] {
                let outcome = schedule(&happens, Some(O::CrashAtWrite(0, after, committed))).run(&hubs);
                assert_eq!(outcome.violations, [""; 0], "{name}: {counted}, {after} writes later");
                crashes += outcome.counts.get(counted).copied().unwrap_or(0);
            }
            // The scenario has no more writes.
            if crashes == 0 {
                break;
            }
            tried += crashes;
        }
    }
    assert!(tried > 100, "{tried} crashes");
    println!("{tried} crashes before or after a write, and the outputs converged after each");
}
