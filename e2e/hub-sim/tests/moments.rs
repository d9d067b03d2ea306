//! Moments that random schedules rarely meet, and effects that their oracle does not compare: step by step, with the
//! real controllers. Where the end alone matters, they are in `schedules.jsonl`.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "clippy takes only functions marked as tests for tests"
)]

use std::time::Duration;

use hub_core::entry::{Caller, Refusal};
use hub_sim::actor::Actor;
use hub_sim::consumers::Permissions;
use hub_sim::hub::{COPIES_ROLE, MANAGER};
use hub_sim::monitor::ProcessId;
use hub_sim::operation::{ObjectTenant, Operation as O, Others, ProfileTenant, SecretTenant};
use hub_sim::oracle;
use hub_sim::process::{Gates, Means, start};
use hub_sim::schedule::{Hubs, Setting, furnished};
use hub_sim::world::{FailureMode, Fault, World};
use serde_json::{Value, json};
use tokio::time::sleep;
use user_server::{Admission, Session};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_mins(1);

/// A hub on which two clusters are granted to a namespace each.
struct Stage {
    world: World,
    others: Others,
    means: Means,
}

impl Stage {
    fn new() -> Self {
        Self::with(Setting::PLAIN)
    }

    /// The first two variants of consumers exist.
    fn with_consumers() -> Self {
        let stage = Self::with(Setting { consumers: true, ..Setting::PLAIN });
        stage.world.lock().monitor.has_consumers = true;
        stage
    }

    fn with(setting: Setting) -> Self {
        let world = World::new(Hubs::default().of(&setting).unwrap(), 4);
        world.lock().monitor.limited_secrets = setting.means.granted;
        let stage = Self { others: Others::new(&world), world, means: setting.means };
        // The accounts are those of each test.
        stage.perform(furnished(2, true));
        stage
    }

    fn perform(&self, operations: impl IntoIterator<Item = O>) {
        operations.into_iter().for_each(|operation| self.others.perform(operation));
    }

    fn start(&self, gates: Gates) -> ProcessId {
        start(&self.world, gates, self.means)
    }

    /// The access providers of a profile.
    fn providers(&self, namespace: &str, cluster: &str) -> Value {
        let state = self.world.lock();
        let profile = state.server.object("clusterprofiles", namespace, cluster);
        profile.map(|profile| profile["status"]["accessProviders"].clone()).unwrap_or_default()
    }

    /// Whether an account has a condition that says why copies are missing.
    fn is_told_on_account(&self, cluster: &str, name: &str) -> bool {
        let state = self.world.lock();
        let account = state.server.object("managedserviceaccounts", cluster, name).unwrap();
        account["status"]["conditions"].as_array().is_some_and(|conditions| !conditions.is_empty())
    }

    /// How many Events with this reason have been published.
    fn told(&self, reason: &str) -> usize {
        let state = self.world.lock();
        state.server.objects_of("events").filter(|event| event["reason"] == reason).count()
    }

    fn exists(&self, plural: &str, namespace: &str, name: &str) -> bool {
        self.world.lock().server.object(plural, namespace, name).is_some()
    }

    /// How many requests of this method have reached the server whose path contains this.
    fn requests(&self, method: &str, path: &str) -> usize {
        let state = self.world.lock();
        let is_it = |line: &&String| line.contains(&format!(" {method} ")) && line.contains(path);
        state.monitor.trace.iter().filter(is_it).count()
    }

    fn assert_right(&self) {
        let state = self.world.lock();
        assert_eq!(oracle::differences(&state.server, &state.monitor), [""; 0]);
        assert_eq!(state.monitor.violations, [""; 0]);
    }
}

#[tokio::test(start_paused = true)]
async fn the_role_for_copies_is_bound_again_as_soon_as_it_exists_again() {
    let stage = Stage::new();
    stage.start(Gates::ALL);
    sleep(10 * SECOND).await;
    assert!(stage.exists("rolebindings", "team", COPIES_ROLE));
    let admin = Actor::new(&stage.world, "kubectl-delete");
    admin.delete("clusterroles", "", COPIES_ROLE);
    stage.perform([O::Collect]);
    assert!(
        !stage.exists("rolebindings", "team", COPIES_ROLE),
        "it is garbage-collected with its role"
    );
    // Attempts become rare.
    sleep(60 * MINUTE).await;
    admin.create("clusterroles", "", COPIES_ROLE, &json!({ "rules": [] }));
    sleep(SECOND).await;
    assert!(
        stage.exists("rolebindings", "team", COPIES_ROLE)
            && stage.exists("rolebindings", "other", COPIES_ROLE)
    );
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_is_repeated_is_reported_by_the_projector_alone() {
    for (gates, told) in [(Gates::PROJECTOR, 1), (Gates::CREDENTIALS, 0)] {
        let stage = Stage::new();
        let claims = ["1", "2"].map(|value| json!({ "name": "id", "value": value }));
        let status = json!({ "clusterClaims": claims });
        Actor::new(&stage.world, "agent").patch_status("managedclusters", "", "a", &status);
        stage.start(gates);
        sleep(MINUTE).await;
        assert_eq!(stage.told("ClaimSkipped"), told);
    }
}

#[tokio::test(start_paused = true)]
async fn cluster_permissions_that_the_hub_does_not_serve_are_reported_only_if_they_are_configured()
{
    for (kind, told) in [(Permissions::ClusterPermission, 1), (Permissions::Work, 0)] {
        let stage = Stage::with_consumers();
        stage.world.lock().monitor.permissions = kind;
        // The CRD of ClusterPermission.
        stage.perform([O::RemoveCrd(2), O::Collect]);
        stage.start(Gates { consumers: true, ..Gates::ALL });
        sleep(2 * MINUTE).await;
        assert_eq!(stage.told("KindUnreadable"), told, "{kind:?}");
    }
}

/// Opens a request from the namespace `team` to the cluster `a`.
fn ask(admission: &Admission) -> Result<Session, Refusal> {
    admission
        .open(&Caller { namespace: "team".into(), name: "application".to_owned() }, &"a".into())
}

#[tokio::test(start_paused = true)]
async fn open_requests_end_five_minutes_after_a_kind_that_grants_rest_on_has_become_unknown() {
    // The three kinds of the fleet.
    for kind in 0..3 {
        let stage = Stage::new();
        let server = stage.start(Gates::USER_SERVER);
        sleep(10 * SECOND).await;
        let admission = stage.world.lock().admissions[&server].clone();
        let request = ask(&admission).unwrap();
        stage.perform([O::Unread(kind, FailureMode::Denied)]);
        sleep(50 * SECOND).await;
        assert!(ask(&admission).is_ok(), "less than a minute old");
        sleep(20 * SECOND).await;
        assert!(matches!(ask(&admission), Err(Refusal::GrantUnknown(_))));
        sleep(4 * MINUTE + 40 * SECOND).await;
        assert!(!request.cut.is_cancelled());
        sleep(30 * SECOND).await;
        assert!(request.cut.is_cancelled(), "{kind}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_entry_is_withdrawn_when_the_crd_of_its_configuration_is_removed_whether_or_not_a_process_runs()
 {
    for runs in [true, false] {
        let stage = Stage::new();
        let first = stage.start(Gates::PROFILES);
        sleep(10 * SECOND).await;
        assert!(stage.providers("team", "a").is_array());
        if !runs {
            stage.world.kill(first);
        }
        stage.world.change(|server| server.remove_crd("managedproxyconfigurations"));
        if !runs {
            stage.start(Gates::PROFILES);
        }
        sleep(10 * SECOND).await;
        assert_eq!(
            (stage.told("NoProxyConfiguration"), stage.providers("team", "a")),
            (1, Value::Null)
        );
        stage.assert_right();
    }
}

#[tokio::test(start_paused = true)]
async fn a_role_binding_that_has_taken_the_name_of_ours_does_not_keep_a_copy() {
    // A syncer with limited permissions, in a process of its own, as the chart installs it.
    let means = Means { granted: true, leases: true };
    let stage = Stage::with(Setting { means, ..Setting::PLAIN });
    stage.perform([O::CreateAccount(0, 0)]);
    stage.start(Gates::PROFILES);
    stage.start(Gates::CREDENTIALS);
    sleep(10 * SECOND).await;
    stage.perform([O::Report(0, 0, 0)]);
    sleep(10 * SECOND).await;
    assert!(stage.exists("secrets", "team", "a-c"));
    let admin = Actor::new(&stage.world, "admin");
    let taken = json!({
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view" },
        "subjects": [],
    });
    admin.delete("rolebindings", "team", COPIES_ROLE);
    admin.create("rolebindings", "team", COPIES_ROLE, &taken);
    stage.perform([O::Ask(0, 0, false)]);
    sleep(20 * SECOND).await;
    assert!(!stage.exists("secrets", "team", "a-c"));
}

#[tokio::test(start_paused = true)]
async fn a_problem_is_told_on_the_account_when_it_has_lasted_and_its_end_at_once_each_time() {
    let stage = Stage::new();
    stage.start(Gates::ALL);
    sleep(10 * SECOND).await;
    stage.perform([O::CreateAccount(0, 0)]);
    for report in [0, 1] {
        sleep(2 * SECOND).await;
        assert!(!stage.is_told_on_account("a", "c"), "its token may be about to be reported");
        sleep(2 * SECOND).await;
        assert!(stage.is_told_on_account("a", "c"));
        stage.perform([O::Report(0, 0, report)]);
        sleep(SECOND).await;
        assert!(!stage.is_told_on_account("a", "c") && stage.exists("secrets", "team", "a-c"));
        stage.perform([O::Unreport(0, 0)]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_missing_profile_is_told_later_while_many_others_are_being_created_in_its_namespace() {
    // What a tenant does in another namespace delays nothing.
    for busy in [None, Some("other"), Some("team")] {
        let is_busy = busy == Some("team");
        let stage = Stage::new();
        stage.perform([O::CreateAccount(0, 0), O::Report(0, 0, 0), O::CreateAccount(0, 1)]);
        // No projector runs.
        stage.start(Gates::CREDENTIALS);
        let projector = Actor::new(&stage.world, "projector");
        let spec = json!({ "displayName": "x", "clusterManager": { "name": MANAGER } });
        for step in 0..120 {
            if let Some(namespace) = busy {
                let body = json!({ "spec": spec });
                projector.create("clusterprofiles", namespace, &format!("x{step}"), &body);
            }
            sleep(SECOND / 4).await;
        }
        assert_eq!(stage.is_told_on_account("a", "c"), !is_busy, "{busy:?}");
        assert!(stage.is_told_on_account("a", "b-c"), "no agent reports its token");
        sleep(20 * SECOND).await;
        assert!(stage.is_told_on_account("a", "c"));
    }
}

/// A copy beside a syncer only: no process restores its profile or the permission.
async fn a_copy_beside_an_admin() -> (Stage, Actor) {
    let means = Means { granted: true, leases: false };
    let stage = Stage::with(Setting { means, ..Setting::PLAIN });
    stage.perform([O::CreateAccount(0, 0)]);
    let rights = stage.start(Gates::RIGHTS);
    sleep(10 * SECOND).await;
    stage.world.kill(rights);
    stage.perform([O::Report(0, 0, 0), O::Profile(0, 0, ProfileTenant::CreateOurs)]);
    stage.start(Gates::CREDENTIALS);
    sleep(10 * SECOND).await;
    assert!(stage.exists("secrets", "team", "a-c"));
    let admin = Actor::new(&stage.world, "admin");
    (stage, admin)
}

const COPIES: &str = "/namespaces/team/secrets/";

#[tokio::test(start_paused = true)]
async fn a_copy_whose_profile_and_permission_are_gone_is_given_up_after_a_while_without_a_finding()
{
    let (stage, admin) = a_copy_beside_an_admin().await;
    admin.delete("rolebindings", "team", COPIES_ROLE);
    stage.perform([O::Profile(0, 0, ProfileTenant::Delete)]);
    sleep(2 * MINUTE).await;
    assert!(stage.requests("DELETE", COPIES) > 10, "the permission may return");
    sleep(8 * MINUTE).await;
    let before = stage.requests("DELETE", COPIES);
    sleep(30 * MINUTE).await;
    assert_eq!((stage.requests("DELETE", COPIES) - before, stage.told("WriteRefused")), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_copy_that_cannot_be_deleted_is_a_finding_while_its_profile_or_its_permission_exists() {
    let (stage, admin) = a_copy_beside_an_admin().await;
    admin.delete("rolebindings", "team", COPIES_ROLE);
    stage.perform([O::Unbind(0, 0)]);
    sleep(MINUTE).await;
    assert_eq!(stage.told("WriteRefused"), 1, "the profile exists");
    assert!(stage.requests("DELETE", COPIES) > 5);

    let (stage, _) = a_copy_beside_an_admin().await;
    stage.world.lock().network.forbidden.push(("DELETE", "secrets"));
    stage.perform([O::Profile(0, 0, ProfileTenant::Delete)]);
    sleep(MINUTE).await;
    assert_eq!(stage.told("WriteRefused"), 1, "the permission exists");
    stage.perform([O::Permit]);
    sleep(10 * SECOND).await;
    assert!(!stage.exists("secrets", "team", "a-c"));
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_is_deleted_before_its_copy_could_be_is_no_kind_that_cannot_be_read() {
    let (stage, admin) = a_copy_beside_an_admin().await;
    admin.delete("rolebindings", "team", COPIES_ROLE);
    stage.perform([O::Profile(0, 0, ProfileTenant::Delete)]);
    sleep(SECOND).await;
    admin.delete("secrets", "team", "a-c");
    sleep(SECOND).await;
    stage.perform([O::Disconnect]);
    sleep(4 * MINUTE).await;
    assert_eq!(stage.requests("POST", "/namespaces/default/events"), 0, "Events about kinds");
}

#[tokio::test(start_paused = true)]
async fn a_copy_that_no_watch_shows_and_a_webhook_keeps_counts_as_failed_when_its_grant_has_ended()
{
    let stage = Stage::new();
    let first = stage.start(Gates::ALL);
    stage.perform([O::CreateAccount(0, 0), O::Report(0, 0, 0)]);
    sleep(10 * SECOND).await;
    stage.world.kill(first);
    stage.perform([O::Secret(0, 0, 0, SecretTenant::Disown)]);
    stage.world.lock().network.forbidden.push(("DELETE", "secrets"));
    stage.start(Gates::ALL);
    sleep(MINUTE).await;
    stage.perform([O::Unbind(0, 0)]);
    let account = Actor::new(&stage.world, "user");
    let reason = || {
        let account = account.get("managedserviceaccounts", "a", "c").unwrap();
        account["status"]["conditions"][0]["reason"].clone()
    };
    sleep(MINUTE).await;
    for second in 0..120 {
        if second == 30 {
            stage.world.lock().network.forbidden.push(("GET", "secrets"));
        }
        sleep(SECOND).await;
        assert_eq!(reason(), "DeleteRefused", "{second}");
    }
    stage.perform([O::Permit]);
    sleep(MINUTE).await;
    assert_eq!((reason(), stage.exists("secrets", "team", "a-c")), (json!("NotGranted"), false));
}

#[tokio::test(start_paused = true)]
async fn a_copy_that_no_watch_shows_and_a_finalizer_holds_is_emptied_when_its_grant_ends() {
    let stage = Stage::new();
    let first = stage.start(Gates::ALL);
    stage.perform([O::CreateAccount(0, 0), O::Report(0, 0, 0)]);
    sleep(10 * SECOND).await;
    stage.world.kill(first);
    let tenant = |does| O::Secret(0, 0, 0, does);
    stage.perform([tenant(SecretTenant::Disown), tenant(SecretTenant::Hold)]);
    stage.start(Gates::ALL);
    sleep(MINUTE).await;
    let copy = || stage.world.lock().server.object("secrets", "team", "a-c").cloned().unwrap();
    assert!(copy()["data"]["token"].is_string(), "it is granted");
    stage.perform([O::Unbind(0, 0)]);
    sleep(10 * SECOND).await;
    assert!(copy()["data"]["token"].is_null(), "{}", copy());
}

#[tokio::test(start_paused = true)]
async fn a_patch_that_a_webhook_undoes_is_a_finding_and_is_not_repeated_without_end() {
    let edits = [
        (("secrets", "team"), O::Report(0, 0, 1)),
        (("clusterprofiles", "team"), O::Health(0, 3)),
        (("managedserviceaccounts", "a"), O::Object(0, 0, 0, ObjectTenant::Edit)),
        (("manifestworks", "a"), O::Object(0, 0, 1, ObjectTenant::Edit)),
        (("multikueueclusters", ""), O::Object(1, 1, 3, ObjectTenant::Edit)),
    ];
    for (kind, edit) in edits {
        let stage = Stage::with_consumers();
        stage.start(Gates { consumers: true, ..Gates::ALL });
        sleep(10 * SECOND).await;
        stage.perform([O::Agents]);
        sleep(10 * SECOND).await;
        stage.perform([edit]);
        stage.world.change(|server| server.undone = Some(kind));
        sleep(10 * MINUTE).await;
        let patches = stage.requests("PATCH", kind.0);
        assert!((1..=20).contains(&patches), "{patches} patches of {} in ten minutes", kind.0);
        assert_eq!(stage.told("WriteRefused"), 1, "{}", kind.0);
        stage.world.change(|server| server.undone = None);
        // Longer than the longest delay between two attempts.
        sleep(12 * MINUTE).await;
        stage.assert_right();
    }
}

#[tokio::test(start_paused = true)]
async fn a_role_of_a_consumer_that_another_client_undoes_is_written_every_two_seconds() {
    let stage = Stage::with_consumers();
    stage.start(Gates { consumers: true, ..Gates::ALL });
    sleep(10 * SECOND).await;
    let (admin, role) =
        (Actor::new(&stage.world, "admin"), "/namespaces/team/roles/hub-addons-cluster-access-c");
    let before = stage.requests("PATCH", role);
    for _ in 0..600 {
        admin.patch("roles", "team", "hub-addons-cluster-access-c", &json!({ "rules": [] }));
        sleep(SECOND / 10).await;
    }
    let patches = stage.requests("PATCH", role) - before;
    assert!((20..50).contains(&patches), "{patches} in a minute: it may revoke");
    // As long as the next one waits.
    sleep(MINUTE).await;
    stage.perform([O::Agents]);
    sleep(MINUTE).await;
    stage.assert_right();
}

#[tokio::test(start_paused = true)]
async fn a_token_that_changes_again_while_its_copy_is_patched_is_no_patch_without_effect() {
    // In some of these moments, the patch is on its way.
    for milliseconds in 0..20 {
        let stage = Stage::new();
        stage.perform([O::CreateAccount(0, 0), O::Report(0, 0, 0)]);
        stage.start(Gates::ALL);
        sleep(10 * SECOND).await;
        stage.perform([O::Report(0, 0, 1)]);
        sleep(Duration::from_millis(milliseconds)).await;
        stage.perform([O::Fail(Fault::Late, 1)]);
        sleep(SECOND / 20).await;
        stage.perform([O::Report(0, 0, 2)]);
        sleep(10 * SECOND).await;
        assert_eq!(stage.told("WriteRefused"), 0, "{milliseconds} ms");
        stage.assert_right();
    }
}

#[tokio::test(start_paused = true)]
async fn a_profile_that_is_read_as_another_client_deletes_it_is_created() {
    for milliseconds in 0..20 {
        let stage = Stage::new();
        let user = Actor::new(&stage.world, "user");
        stage.start(Gates::PROFILES);
        sleep(10 * SECOND).await;
        let ours = user.get("clusterprofiles", "team", "a").unwrap();
        stage.perform([O::Unbind(0, 0)]);
        sleep(10 * SECOND).await;
        // When the watch has just shown the binding, the user creates what the process is about to create.
        stage.perform([O::Lag(5), O::Bind(0, 0)]);
        sleep(Duration::from_millis(502)).await;
        let body =
            json!({ "metadata": { "labels": ours["metadata"]["labels"] }, "spec": ours["spec"] });
        user.create("clusterprofiles", "team", "a", &body);
        user.patch_status("clusterprofiles", "team", "a", &ours["status"]);
        sleep(Duration::from_millis(milliseconds)).await;
        stage.perform([O::Fail(Fault::Late, 1)]);
        sleep(SECOND / 20).await;
        user.delete("clusterprofiles", "team", "a");
        sleep(MINUTE).await;
        assert!(stage.exists("clusterprofiles", "team", "a"), "{milliseconds} ms");
        stage.assert_right();
    }
}

/// By its version, the Secret that blocked the copy is later than the copy.
#[tokio::test(start_paused = true)]
async fn a_copy_that_ends_unseen_after_a_restore_is_recreated_although_another_secret_blocked_it_before()
 {
    let stage = Stage::new();
    stage.perform([O::CreateAccount(0, 0), O::Report(0, 0, 0), O::Backup]);
    stage.perform((0..20).map(|health| O::Health(0, health)));
    stage.perform([O::Secret(0, 0, 0, SecretTenant::CreateForeign)]);
    stage.start(Gates::ALL);
    sleep(SECOND).await;
    stage.perform([O::Restore(60)]);
    while !stage.exists("secrets", "team", "a-c") {
        sleep(SECOND / 100).await;
    }
    sleep(SECOND / 10).await;
    // Its owner is the profile that is lost.
    stage.perform([O::Collect]);
    assert!(!stage.exists("secrets", "team", "a-c"));
    sleep(MINUTE).await;
    stage.assert_right();
}
