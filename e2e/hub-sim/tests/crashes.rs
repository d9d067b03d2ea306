//! Kills the process before and after every write of every scenario, and starts it again.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "clippy takes only functions marked as tests for tests"
)]

use hub_sim::operation::{ObjectTenant, Operation as O, ProfileTenant};
use hub_sim::schedule::{Hubs, Schedule, Setting, furnished};

/// What happens after the process has started on a hub with two clusters.
struct Scenario {
    name: &'static str,
    setting: Setting,
    /// What happens before the process can crash.
    before: Vec<O>,
    happens: Vec<O>,
}

fn scenarios() -> impl Iterator<Item = Scenario> {
    let plain = [
        ("a cold start", vec![]),
        (
            "a cluster joins",
            vec![O::CreateCluster(2), O::MoveCluster(2, Some(0)), O::Addon(2, true)],
        ),
        ("a cluster leaves", vec![O::LeaveCluster(0), O::RemoveCluster(0)]),
        (
            "two clusters swap their sets",
            vec![O::MoveCluster(0, Some(1)), O::MoveCluster(1, Some(0))],
        ),
        ("the proxy's authority changes", vec![O::Serve(0, Some(1))]),
        ("a token is rotated", vec![O::Report(0, 0, 1)]),
        (
            "a namespace is deleted and created again",
            vec![O::EndNamespace(0), O::Collect, O::CreateNamespace(0), O::Bind(0, 0)],
        ),
        ("a profile is deleted by hand", vec![O::Profile(0, 0, ProfileTenant::Delete)]),
        ("a grant ends", vec![O::Unbind(0, 0)]),
    ];
    let plain = plain.map(|(name, happens)| (name, Setting::PLAIN, vec![], happens));
    let running = || vec![O::Start(0), O::Wait(1000), O::Agents, O::Wait(1000)];
    let of_consumers = [
        ("a cold start with consumers", vec![], vec![O::Agents]),
        (
            "the cluster of a consumer leaves",
            running(),
            vec![O::LeaveCluster(0), O::RemoveCluster(0)],
        ),
        (
            "an account of a consumer is deleted by hand",
            running(),
            vec![O::Object(0, 0, 0, ObjectTenant::Delete), O::Collect, O::Agents],
        ),
        (
            "consumers declare the other kind of permissions",
            [running(), vec![O::Declare(1)]].concat(),
            vec![O::Agents],
        ),
    ];
    let setting = Setting { consumers: true, ..Setting::PLAIN };
    let of_consumers = of_consumers.map(|(name, before, happens)| (name, setting, before, happens));
    let all = plain.into_iter().chain(of_consumers);
    all.map(|(name, setting, before, happens)| Scenario { name, setting, before, happens })
}

fn schedule(scenario: &Scenario, crash: Option<O>) -> Schedule {
    let hub = furnished(2, scenario.setting.consumers).into_iter();
    let mut operations: Vec<_> = hub.map(|operation| (operation, 0)).collect();
    operations.extend(scenario.before.iter().map(|operation| (*operation, 0)));
    operations.push((O::Start(0), 0));
    operations.extend(crash.map(|crash| (crash, 0)));
    operations.push((O::Wait(1000), 0));
    for happens in &scenario.happens {
        // Starts the process again if it has died.
        operations.extend([(*happens, 20), (O::Start(0), 400)]);
    }
    Schedule { seed: 4, setting: scenario.setting, operations }
}

#[test]
fn a_process_that_dies_before_or_after_any_write_completes_the_work_after_a_restart() {
    let hubs = Hubs::default();
    let mut tried = 0;
    for scenario in scenarios() {
        let name = scenario.name;
        let outcome = schedule(&scenario, None).run(&hubs);
        assert_eq!(outcome.violations, [""; 0], "{name}");
        for after in 0.. {
            let mut crashes = 0;
            for (committed, counted) in
                [(false, "crashes before a write"), (true, "crashes after a write")]
            {
                let outcome =
                    schedule(&scenario, Some(O::CrashAtWrite(0, after, committed))).run(&hubs);
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
