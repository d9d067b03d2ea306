//! Random schedules in every run of the tests, and the schedules that earlier runs have failed on. `hack/robustness.sh`
//! runs more of them with an optimised build.

#![allow(clippy::unwrap_used, reason = "clippy takes only functions marked as tests for tests")]

use hub_sim::operation::{ObjectTenant, Operation as O, ProfileTenant, RoleBindingTenant, SecretTenant};
use hub_sim::process::Means;
use hub_sim::schedule::{Hubs, Layout, Schedule, Setting};
use hub_sim::shrink;
use hub_sim::world::{FailureMode, Fault};

/// The number of random schedules in a run of the tests, which is not optimised.
const SCHEDULES: u64 = 60;

#[test]
fn the_hub_converges_after_every_random_schedule() {
    let hubs = Hubs::default();
    for seed in 0..SCHEDULES {
        let schedule = Schedule::random(seed);
        let violations = shrink::run(&schedule, &hubs);
        if !violations.is_empty() {
            let smallest = shrink::shrink(&schedule, &hubs);
            panic!("seed {seed}: {violations:#?}\nsmallest schedule: {smallest:?}");
        }
    }
}

#[test]
fn a_seed_replays_the_same_requests_in_the_same_order() {
    let hubs = Hubs::default();
    for seed in 0..20 {
        let run = || Schedule::random(seed).run(&hubs).trace;
        let (first, second) = (run(), run());
        let differs = first.iter().zip(&second).position(|(one, other)| one != other);
        let around =
            differs.map(|line| (&first[line.saturating_sub(5)..line + 12], &second[line..line + 12]));
        assert!(first == second, "seed {seed}, line {differs:?}: {around:#?}");
    }
}

/// Beyond those that every complete run replays: a delete that is refused in the moment in which its copy goes; watches that
/// did not notice that etcd had been restored; labels of profiles that cannot be restored; a list that shows the
/// predecessor of a copy that was created after the list began; a permission that is deleted while no process runs;
/// and permissions whose successors end with their CRD, which returns.
#[test]
fn the_seeds_that_long_runs_have_failed_on() {
    let hubs = Hubs::default();
    #[rustfmt::skip]
    let seeds = [
        54806, 78801, 25288, 110_297, 256_395, 86942, 403_433, 406_972, 2_004_695, 3_094_168, 20_219_205,
        30_109_732, 30_309_169, 40_061_408, 60_014_564, 60_082_484, 70_104_444, 70_184_454, 70_284_346,
        70_461_329, 70_956_359, 301_007_709, 312_002_245, 324_006_439,
        376_000_469, 384_001_929, 398_008_233,
    ];
    for seed in seeds {
        let violations = shrink::run(&Schedule::random(seed), &hubs);
        assert!(violations.is_empty(), "seed {seed}: {violations:#?}");
    }
}

/// Runs operations with a short pause after each.
fn run(setting: Setting, operations: &[O]) -> Vec<String> {
    let operations = operations.iter().map(|operation| (*operation, 300)).collect();
    shrink::run(&Schedule { seed: 4, setting, operations }, &Hubs::default())
}

#[test]
fn a_create_whose_response_is_lost_is_neither_repeated_nor_forgotten() {
    let operations = [
        O::Start(0),
        O::CreateSet(0),
        O::Bind(0, 0),
        O::CreateCluster(0),
        O::Fail(Fault::Lost, 3),
        O::MoveCluster(0, Some(0)),
    ];
    assert_eq!(run(Setting::PLAIN, &operations), [""; 0]);
}

#[test]
fn two_replicas_that_both_believe_that_they_lead_break_no_property() {
    let operations = [
        O::Start(0),
        O::Start(1),
        O::CreateSet(0),
        O::Bind(0, 0),
        O::CreateCluster(0),
        O::CreateAccount(0, 0),
        O::Report(0, 0, 1),
        O::MoveCluster(0, Some(0)),
        O::Report(0, 0, 2),
        O::MoveCluster(0, None),
    ];
    for layout in [Layout::One, Layout::Chart, Layout::Apart] {
        assert_eq!(run(Setting { layout, ..Setting::PLAIN }, &operations), [""; 0], "{layout:?}");
    }
}

#[test]
fn a_credential_that_is_stripped_before_its_create_is_acknowledged_is_replaced() {
    let operations = [
        O::Start(0),
        O::CreateSet(0),
        O::Bind(0, 0),
        O::CreateCluster(0),
        O::MoveCluster(0, Some(0)),
        O::CreateAccount(0, 0),
    ];
    let operations: Vec<_> = operations.map(|operation| (operation, 300)).into();
    // In some of these moments, the syncer has seen the token and sent the create, and the response is on its way.
    for milliseconds in 0..12 {
        let mut operations = operations.clone();
        operations
            .extend([(O::Report(0, 0, 0), milliseconds), (O::Secret(0, 0, 0, SecretTenant::Disown), 0)]);
        for seed in 0..4 {
            let schedule = Schedule { seed, setting: Setting::PLAIN, operations: operations.clone() };
            assert_eq!(shrink::run(&schedule, &Hubs::default()), [""; 0], "seed {seed}, {milliseconds} ms");
        }
    }
}

#[test]
fn a_copy_in_a_deleted_namespace_is_not_reported_as_impossible_to_delete() {
    let operations = [
        O::Start(0),
        O::CreateSet(0),
        O::CreateSet(1),
        O::Bind(0, 0),
        O::Bind(1, 1),
        O::CreateCluster(1),
        O::MoveCluster(1, Some(1)),
        O::CreateAccount(1, 1),
        O::Report(1, 1, 0),
        O::EndNamespace(1),
        O::MoveCluster(1, Some(0)),
    ];
    let means = Means { granted: true, leases: false };
    assert_eq!(run(Setting { means, ..Setting::PLAIN }, &operations), [""; 0]);
}

#[test]
fn a_foreign_secret_with_the_name_of_a_copy_is_reported_once_and_for_as_long_as_it_exists() {
    let operations = [
        O::Start(0),
        O::CreateSet(0),
        O::Bind(0, 0),
        O::CreateAccount(2, 0),
        O::Report(2, 0, 0),
        O::Secret(0, 2, 0, SecretTenant::CreateForeign),
        O::CreateCluster(2),
        O::MoveCluster(2, Some(0)),
    ];
    assert_eq!(run(Setting::PLAIN, &operations), [""; 0]);
}

/// Runs operations with these pauses, in milliseconds.
fn run_with_pauses(seed: u64, setting: Setting, operations: &[(O, u16)]) -> Vec<String> {
    shrink::run(&Schedule { seed, setting, operations: operations.to_vec() }, &Hubs::default())
}

#[test]
fn two_processes_that_undo_each_others_writes_send_a_bounded_number_of_requests() {
    // The second process starts while the CRD of ClusterProfile is being deleted: it sees no profile, and the first
    // still has its cache.
    let operations = [
        (O::CreateSet(0), 12),
        (O::CreateSet(1), 294),
        (O::Bind(0, 0), 76),
        (O::Bind(1, 1), 0),
        (O::CreateCluster(1), 0),
        (O::MoveCluster(1, Some(1)), 0),
        (O::Start(0), 3),
        (O::CreateAccount(1, 1), 2),
        (O::Report(1, 1, 0), 4),
        (O::CreateCluster(2), 0),
        (O::MoveCluster(2, Some(0)), 0),
        (O::CreateAccount(2, 0), 0),
        (O::Report(2, 0, 0), 0),
        (O::Start(1), 17),
        (O::RemoveCrd(0), 0),
        (O::Wait(3048), 40),
    ];
    let means = Means { granted: true, leases: false };
    let setting = Setting { layout: Layout::Apart, means, ..Setting::PLAIN };
    assert_eq!(run_with_pauses(473, setting, &operations), [""; 0]);
}

#[test]
fn a_restored_etcd_is_noticed_even_if_its_history_is_soon_as_long_as_before() {
    let operations = [
        (O::CreateSet(0), 1),
        (O::Bind(0, 0), 5),
        (O::CreateCluster(0), 153),
        (O::MoveCluster(0, Some(0)), 0),
        (O::Start(0), 2),
        (O::Backup, 2),
        (O::MoveCluster(0, None), 0),
        (O::Secret(0, 0, 1, SecretTenant::Forge), 2),
        (O::Restore(72), 0),
        (O::CreateCluster(1), 0),
    ];
    assert_eq!(run_with_pauses(1407, Setting::PLAIN, &operations), [""; 0]);
    let operations = [
        (O::CreateSet(1), 160),
        (O::Bind(1, 1), 2),
        (O::Start(0), 15),
        (O::CreateCluster(1), 0),
        (O::MoveCluster(1, Some(1)), 0),
        (O::Backup, 2),
        (O::Wait(3509), 88),
        (O::Restore(88), 5),
    ];
    assert_eq!(run_with_pauses(516, Setting::PLAIN, &operations), [""; 0]);
}

#[test]
fn the_permission_of_an_ended_grant_is_withdrawn_in_time_by_the_process_after_a_crash() {
    let operations = [
        (O::CreateSet(0), 0),
        (O::Bind(0, 0), 31),
        (O::Start(0), 1),
        (O::Report(1, 1, 0), 772),
        (O::CrashAtWrite(0, 0, true), 0),
        (O::Unbind(0, 0), 0),
        (O::Wait(1181), 147),
    ];
    let means = Means { granted: false, leases: true };
    assert_eq!(run_with_pauses(643, Setting { means, ..Setting::PLAIN }, &operations), [""; 0]);
}

#[test]
fn a_token_from_before_its_cluster_is_copied_when_the_agent_reports_it_again() {
    let before = [
        (O::CreateSet(0), 52),
        (O::Bind(0, 0), 82),
        (O::Start(0), 0),
        (O::CreateAccount(1, 1), 580),
        (O::Report(1, 1, 0), 1327),
        (O::CreateCluster(1), 20),
        (O::MoveCluster(1, Some(0)), 39),
    ];
    assert_eq!(run_with_pauses(1695, Setting::PLAIN, &before), [""; 0]);
    let again = [&before[..], &[(O::Wait(2000), 0), (O::Report(1, 1, 1), 0)]].concat();
    assert_eq!(run_with_pauses(1695, Setting::PLAIN, &again), [""; 0]);
}

#[test]
fn no_profile_is_created_while_a_held_one_keeps_the_deleted_crd() {
    let operations = [
        (O::CreateSet(0), 2),
        (O::Bind(0, 0), 0),
        (O::CreateCluster(0), 0),
        (O::MoveCluster(0, Some(0)), 200),
        (O::Start(0), 5),
        (O::CreateCluster(2), 32),
        (O::MoveCluster(2, Some(0)), 5),
        (O::Profile(0, 0, ProfileTenant::Hold), 1),
        (O::RemoveCrd(0), 551),
    ];
    assert_eq!(run_with_pauses(9371, Setting::PLAIN, &operations), [""; 0]);
}

#[test]
fn two_processes_agree_on_a_copy_that_ends_with_its_namespace() {
    let operations = [
        (O::Start(0), 1),
        (O::CreateSet(1), 899),
        (O::Bind(1, 1), 15),
        (O::CreateCluster(1), 0),
        (O::MoveCluster(1, Some(1)), 0),
        (O::CreateAccount(1, 1), 18),
        (O::Report(1, 1, 0), 0),
        (O::Forbid(2), 926),
        (O::Compact, 4),
        (O::Start(1), 153),
        (O::EndNamespace(1), 1),
    ];
    let means = Means { granted: true, leases: false };
    for _ in 0..3 {
        assert_eq!(run_with_pauses(1506, Setting { means, ..Setting::PLAIN }, &operations), [""; 0]);
    }
}

#[test]
fn two_processes_agree_on_a_copy_whose_permission_has_ended() {
    let operations = [
        (O::CreateSet(1), 0),
        (O::Bind(1, 1), 143),
        (O::Start(0), 780),
        (O::CreateCluster(1), 82),
        (O::MoveCluster(1, Some(1)), 1),
        (O::CreateAccount(1, 1), 6),
        (O::Report(1, 1, 0), 0),
        (O::Compact, 45),
        (O::Start(1), 1),
        (O::RoleBinding(1, RoleBindingTenant::Unlabel), 0),
    ];
    let means = Means { granted: true, leases: false };
    assert_eq!(run_with_pauses(4466, Setting { means, ..Setting::PLAIN }, &operations), [""; 0]);
}

#[test]
fn two_processes_agree_on_a_copy_whose_permission_has_ended_while_its_grant_is_unknown() {
    let operations = [
        (O::CreateSet(0), 0),
        (O::Bind(0, 0), 0),
        (O::Start(0), 137),
        (O::CreateCluster(0), 28),
        (O::MoveCluster(0, Some(0)), 17),
        (O::CreateAccount(0, 0), 181),
        (O::Report(0, 0, 0), 12),
        // The operator in the set's selector does not exist.
        (O::Select(0, 5), 2),
        (O::RoleBinding(0, RoleBindingTenant::Unlabel), 152),
        (O::Start(1), 51),
    ];
    let means = Means { granted: true, leases: false };
    assert_eq!(run_with_pauses(1_211_401, Setting { means, ..Setting::PLAIN }, &operations), [""; 0]);
}

#[test]
fn a_permission_that_a_restored_etcd_has_lost_is_created_again() {
    let operations = [
        (O::CreateSet(0), 638),
        (O::CreateSet(1), 18),
        (O::Bind(0, 0), 0),
        (O::Bind(1, 1), 5),
        (O::CreateCluster(0), 7),
        (O::Backup, 75),
        (O::MoveCluster(0, Some(0)), 980),
        (O::Start(0), 2),
        (O::CreateAccount(0, 0), 0),
        (O::Disconnect, 12),
        (O::Restore(63), 187),
    ];
    let setting = Setting { layout: Layout::Apart, ..Setting::PLAIN };
    assert_eq!(run_with_pauses(9621, setting, &operations), [""; 0]);
}

#[test]
fn an_api_server_that_takes_five_seconds_for_each_request_has_a_leader_that_stays() {
    let operations = [
        (O::CreateSet(0), 0),
        (O::Bind(0, 0), 0),
        (O::Slow(50), 0),
        (O::Start(0), 60_000),
        (O::Start(1), 60_000),
        (O::CreateCluster(0), 0),
        (O::MoveCluster(0, Some(0)), 60_000),
    ];
    let means = Means { granted: false, leases: true };
    let schedule =
        Schedule { seed: 4, setting: Setting { means, ..Setting::PLAIN }, operations: operations.to_vec() };
    let outcome = schedule.run(&Hubs::default());
    assert_eq!(outcome.violations, [""; 0]);
    assert!(!outcome.counts.contains_key("restarts"), "{:?}", outcome.counts);
}

#[test]
fn a_process_that_loses_its_lease_in_an_outage_starts_again_and_converges() {
    // Random schedules rarely last as long as a Lease.
    let operations = [
        (O::CreateSet(0), 0),
        (O::Bind(0, 0), 0),
        (O::Start(0), 3000),
        (O::Outage(250), 24_000),
        (O::CreateCluster(0), 0),
        (O::MoveCluster(0, Some(0)), 3000),
    ];
    let means = Means { granted: false, leases: true };
    let schedule =
        Schedule { seed: 4, setting: Setting { means, ..Setting::PLAIN }, operations: operations.to_vec() };
    let outcome = schedule.run(&Hubs::default());
    assert_eq!(outcome.violations, [""; 0]);
    assert!(outcome.counts.contains_key("restarts"), "{:?}", outcome.counts);
}

#[test]
fn a_condition_may_name_a_namespace_that_the_syncer_has_no_permission_to_read() {
    let operations = [
        (O::CreateSet(0), 789),
        (O::CreateSet(1), 128),
        (O::Bind(0, 0), 6),
        (O::Bind(1, 1), 112),
        (O::CreateCluster(2), 0),
        (O::MoveCluster(2, Some(0)), 889),
        (O::CreateAccount(2, 0), 877),
        (O::Start(0), 0),
        (O::Report(2, 0, 0), 10),
        (O::Fail(Fault::Refused, 1), 215),
        (O::RoleBinding(1, RoleBindingTenant::Unlabel), 681),
        (O::Bind(1, 0), 3),
    ];
    let means = Means { granted: true, leases: false };
    assert_eq!(run_with_pauses(17_005, Setting { means, ..Setting::PLAIN }, &operations), [""; 0]);
}

#[test]
fn an_object_of_a_consumer_that_is_deleted_before_its_create_is_acknowledged_is_created_again() {
    let permissions = [
        (O::CreateSet(0), 0),
        (O::CreateSet(1), 0),
        (O::Bind(0, 0), 0),
        (O::Bind(1, 1), 0),
        (O::CreateCluster(0), 75),
        (O::Start(0), 464),
        (O::MoveCluster(0, Some(0)), 0),
        (O::CreateCluster(1), 21),
        (O::MoveCluster(1, Some(1)), 1),
        (O::CreateCluster(2), 9),
        (O::Object(1, 1, 2, ObjectTenant::Delete), 8),
    ];
    let setting = Setting { consumers: true, ..Setting::PLAIN };
    let means = Means { granted: true, leases: false };
    assert_eq!(run_with_pauses(1419, Setting { means, ..setting }, &permissions), [""; 0]);
    let of_kueue = [
        (O::CreateSet(0), 0),
        (O::CreateSet(1), 0),
        (O::Bind(0, 0), 90),
        (O::Bind(1, 1), 12),
        (O::CreateCluster(0), 922),
        (O::MoveCluster(0, Some(0)), 40),
        (O::CreateCluster(1), 11),
        (O::MoveCluster(1, Some(1)), 0),
        (O::Start(0), 17),
        (O::Object(1, 1, 3, ObjectTenant::Delete), 0),
    ];
    assert_eq!(run_with_pauses(3234, Setting { layout: Layout::Apart, ..setting }, &of_kueue), [""; 0]);
}

#[test]
fn what_is_deleted_while_no_watch_shows_it_is_recreated_after_the_next_list() {
    let before = |cluster| {
        [
            O::CreateSet(0),
            O::CreateSet(1),
            O::Bind(0, 0),
            O::Bind(1, 1),
            O::CreateCluster(cluster),
            O::MoveCluster(cluster, Some(cluster)),
        ]
    };
    // Of consumers: the account, the two kinds of permissions, and Kueue's objects.
    for (cluster, account, kind) in [(0, 0, 0), (0, 0, 1), (1, 1, 2), (1, 1, 3), (1, 1, 4)] {
        let mut operations = vec![O::Start(0)];
        operations.extend(before(cluster));
        operations.extend([O::Wait(2000), O::Agents, O::Wait(2000), O::Stall(2)]);
        operations.extend([O::Object(cluster, account, kind, ObjectTenant::Delete), O::Collect, O::Compact]);
        assert_eq!(run(Setting { consumers: true, ..Setting::PLAIN }, &operations), [""; 0], "{kind}");
    }
    for granted in [false, true] {
        let mut operations = vec![O::Start(0)];
        operations.extend(before(0));
        operations.extend([O::CreateAccount(0, 0), O::Report(0, 0, 0), O::Wait(2000), O::Stall(2)]);
        operations.extend([O::Secret(0, 0, 0, SecretTenant::Delete), O::Compact]);
        let means = Means { granted, leases: false };
        assert_eq!(run(Setting { means, ..Setting::PLAIN }, &operations), [""; 0], "{granted}");
    }
}

#[test]
fn a_copy_that_is_stripped_while_its_creation_gets_no_response_is_replaced() {
    let operations = vec![
        (O::Start(0), 458),
        (O::CreateSet(0), 0),
        (O::Bind(0, 0), 93),
        (O::CreateCluster(1), 743),
        (O::CreateAccount(1, 1), 149),
        (O::Report(1, 1, 0), 768),
        // The cluster is granted.
        (O::Select(0, 1), 0),
        (O::Fail(Fault::Hung, 5), 85),
        (O::Secret(0, 1, 1, SecretTenant::Disown), 0),
        (O::Report(1, 1, 213), 0),
    ];
    for seed in 0..4 {
        let schedule = Schedule { seed, setting: Setting::PLAIN, operations: operations.clone() };
        assert_eq!(shrink::run(&schedule, &Hubs::default()), [""; 0], "seed {seed}");
    }
}

#[test]
fn an_account_whose_patch_hangs_while_its_grant_ends_is_deleted_before_its_permissions() {
    let operations = [
        (O::CreateSet(0), 5),
        (O::Bind(0, 0), 0),
        (O::CreateCluster(0), 764),
        (O::MoveCluster(0, Some(0)), 151),
        (O::Start(0), 60),
        (O::Break(8, 12, FailureMode::Timeout), 17),
        (O::Ask(0, 0, false), 0),
    ];
    let setting = Setting { consumers: true, ..Setting::PLAIN };
    assert_eq!(run_with_pauses(335_324, setting, &operations), [""; 0]);
}

/// An agent has changed the account since it was last read.
#[test]
fn an_account_that_cannot_be_read_is_deleted_before_its_permissions() {
    let setting = Setting { consumers: true, ..Setting::PLAIN };
    let no_reads = O::Forbid(7);
    let operations = [
        (O::CreateSet(0), 6),
        (O::Bind(0, 0), 0),
        (O::CreateCluster(0), 0),
        (O::Start(0), 68),
        (O::MoveCluster(0, Some(0)), 105),
        (no_reads, 2),
        (O::Wait(60_000), 15),
        (O::Wait(60_000), 1),
        (O::DeleteSet(0), 0),
        (O::Wait(10_000), 0),
    ];
    assert_eq!(run_with_pauses(384_001_929, setting, &operations), [""; 0]);
    // In the meantime, its permissions cannot be read either.
    let operations = [
        (O::CreateSet(1), 6),
        (O::Bind(1, 1), 8),
        (O::CreateCluster(1), 662),
        (O::Start(0), 0),
        (O::MoveCluster(1, Some(1)), 2),
        (O::Configure(Some(0)), 126),
        (no_reads, 29),
        (O::Break(9, 173, FailureMode::Internal), 0),
        (O::Wait(2926), 0),
        (O::LeaveCluster(1), 898),
    ];
    assert_eq!(run_with_pauses(376_000_469, setting, &operations), [""; 0]);
}

#[test]
fn two_leaders_who_dispute_an_object_dispute_its_status() {
    let operations = [
        (O::CreateSet(1), 20),
        (O::Bind(1, 1), 183),
        (O::CreateCluster(1), 0),
        (O::MoveCluster(1, Some(1)), 69),
        (O::Start(0), 0),
        (O::Compact, 128),
        (O::Start(1), 0),
        // The second sees the account without its marks first: to it, the account is another owner's.
        (O::Object(1, 1, 0, ObjectTenant::Unmark), 7),
    ];
    let setting = Setting { consumers: true, ..Setting::PLAIN };
    assert_eq!(run_with_pauses(324_006_439, setting, &operations), [""; 0]);
}

#[test]
fn an_object_that_a_restore_marks_again_belongs_to_another_owner_until_a_restart() {
    let operations = [
        (O::CreateSet(1), 0),
        (O::Start(0), 0),
        (O::Bind(1, 1), 0),
        (O::CreateCluster(0), 59),
        (O::CreateCluster(1), 0),
        (O::MoveCluster(1, Some(1)), 0),
        (O::Secret(1, 1, 1, SecretTenant::Delete), 11),
        (O::Backup, 160),
        (O::Object(1, 1, 4, ObjectTenant::Unmark), 1),
        (O::Declare(1), 0),
        (O::Break(6, 140, FailureMode::Denied), 14),
        (O::Restore(63), 0),
    ];
    let setting = Setting { consumers: true, ..Setting::PLAIN };
    assert_eq!(run_with_pauses(10_049_519, setting, &operations), [""; 0]);
    let operations = [
        (O::Bind(1, 1), 1),
        (O::CreateCluster(0), 618),
        (O::Start(0), 0),
        (O::CreateSet(1), 2),
        (O::MoveCluster(0, Some(1)), 72),
        (O::Backup, 0),
        (O::Object(0, 1, 3, ObjectTenant::Unmark), 7),
        (O::Restore(70), 1),
    ];
    assert_eq!(run_with_pauses(20_168_769, setting, &operations), [""; 0]);
}

#[test]
fn a_copy_under_a_profile_that_cannot_be_labelled_is_not_replaced() {
    let operations = [
        (O::CreateSet(1), 378),
        (O::Bind(1, 1), 0),
        (O::Start(0), 759),
        (O::CreateCluster(1), 7),
        (O::MoveCluster(1, Some(1)), 0),
        (O::CreateAccount(1, 1), 12),
        (O::Report(1, 1, 0), 685),
        (O::Fail(Fault::Throttled, 4), 3),
        (O::Secret(1, 1, 1, SecretTenant::Edit), 2),
        (O::Break(1, 57, FailureMode::Quota), 489),
        (O::Profile(1, 1, ProfileTenant::Strip), 0),
    ];
    assert_eq!(run_with_pauses(20_190_296, Setting::PLAIN, &operations), [""; 0]);
}
