//! The accounts of declared consumers and their permissions, on the clusters that a binding grants to the consumer's
//! namespace and on no others.

#![allow(clippy::unwrap_used, reason = "clippy takes only functions marked as tests for tests")]

use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::Client;
use local_hub::ocm::{self, ManagedCluster, Object};
use local_hub::{HubBuilder, LocalHub, Requests, eventually};
use serde_json::{Value, json};

use crate::support::command::kubectl_clusterprofile;
use crate::support::placement::{decision, decisions, install_placement_decisions, sig_decision};
use crate::support::world::{self, get, merge, told};
use crate::support::{Addons, Hub, SOON, USER, rights};

const GATE: &str = "--feature-gates=ClusterProfile=false,ClusterProfileAccessProvider=false,\
                    ClusterProfileCredSyncer=false,ClusterProfileConsumers=true";
const IDLE: &str = "hub_addons_queue_depth{controller=\"consumer-access\"}";
const TEAM: &str = "team";

const PERMIT: &str = "--grant-permissions";

fn access(namespace: &str, name: &str) -> Object {
    let roles = json!([{ "clusterRole": "view" }, { "clusterRole": "edit", "namespaces": ["jobs"] }]);
    let spec = json!({ "identity": "Copy", "serviceAccountNames": ["app"], "permissions": roles });
    ocm::cluster_access(namespace, name, &spec)
}

fn account(cluster: &str) -> Object {
    ocm::managed_service_account(cluster, "app")
}

fn work(cluster: &str) -> Object {
    let gvk = ("work.open-cluster-management.io", "v1", "ManifestWork");
    Object::new(gvk, "manifestworks", Some(cluster), "hub-addons-consumer-app")
}

async fn cluster(client: &Client, name: &str, set: &str) {
    world::ensure_namespace(client, name).await;
    ManagedCluster::named(name).in_set(set).create(client).await.unwrap();
}

async fn hub_with(builder: HubBuilder) -> Hub {
    let hub = Hub::start(builder, rights::consumer_access(&["app"])).await;
    world::create(&hub.ocm, [ocm::namespace(TEAM), ocm::cluster_set("s"), ocm::cluster_set("other")]).await;
    world::create(&hub.ocm, [access(TEAM, "app")]).await;
    hub
}

async fn hub() -> Hub {
    hub_with(LocalHub::builder().without_controller_manager()).await
}

async fn start(hub: &Hub) -> Addons {
    Addons::beside(hub, &[GATE, PERMIT]).await
}

/// Waits until a cluster has the account and its permissions.
async fn equipped(client: &Client, cluster: &str) -> (Value, Value) {
    eventually(&format!("{cluster} has account and permissions"), SOON, async || {
        Some((get(client, &account(cluster)).await?, get(client, &work(cluster)).await?))
    })
    .await
}

/// Waits until a cluster has neither.
async fn bare(client: &Client, cluster: &str) {
    world::gone(client, &account(cluster)).await;
    world::gone(client, &work(cluster)).await;
}

/// The program's writes, except those for its Lease, Events and statuses.
fn writes(requests: &Requests) -> Requests {
    writes_of(requests, USER)
}

fn writes_of(requests: &Requests, user: &str) -> Requests {
    requests
        .of_user(user)
        .writes()
        .matching(|request| !["leases", "events", "clusteraccesses"].contains(&&*request.resource))
}

fn targets(requests: &Requests) -> Vec<String> {
    requests.iter().map(|it| format!("{} {} {}", it.verb, it.resource, it.namespace)).collect()
}

#[tokio::test]
async fn a_cluster_takes_two_writes_the_account_first_and_a_restart_none() {
    let hub = hub().await;
    for index in 0..20 {
        cluster(&hub.ocm, &format!("c{index}"), "s").await;
    }
    cluster(&hub.ocm, "elsewhere", "other").await;
    ocm::bound(TEAM, "s").create(&hub.ocm).await.unwrap();
    let mark = hub.audit().mark().await.unwrap();
    let addons = start(&hub).await;
    for index in 0..20 {
        equipped(&hub.ocm, &format!("c{index}")).await;
    }
    addons.measures(IDLE, 0.0).await;
    let cold = hub.audit().since(&mark).await.unwrap();
    assert_eq!(writes(&cold).len(), 40, "{cold}");
    assert_eq!(cold.of_user(USER).count(|request| request.verb == "get" && request.resource != "leases"), 0);
    assert_eq!(cold.of_user(USER).count(|request| request.resource == "secrets"), 0, "{cold}");

    let (shown, permissions) = equipped(&hub.ocm, "c7").await;
    let metadata = &shown["metadata"];
    assert_eq!(metadata["labels"][ocm::SYNC_LABEL], "true");
    assert_eq!(metadata["annotations"][ocm::SYNC_NAMESPACES_ANNOTATION], TEAM);
    assert_eq!(shown["spec"]["rotation"], json!({ "enabled": true, "validity": "8640h0m0s" }));
    assert_eq!(permissions["metadata"]["ownerReferences"][0]["uid"], metadata["uid"]);
    let manifests = permissions["spec"]["workload"]["manifests"].as_array().unwrap();
    let kinds: Vec<_> = manifests.iter().map(|it| it["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["ClusterRoleBinding", "RoleBinding"]);

    // A restart writes nothing, and a cluster that joins takes two writes.
    addons.stop().await;
    let mark = hub.audit().mark().await.unwrap();
    let addons = start(&hub).await;
    cluster(&hub.ocm, "later", "s").await;
    equipped(&hub.ocm, "later").await;
    addons.measures(IDLE, 0.0).await;
    let warm = writes(&hub.audit().since(&mark).await.unwrap());
    assert_eq!(targets(&warm), ["create managedserviceaccounts later", "create manifestworks later"]);
    assert_eq!(get(&hub.ocm, &account("elsewhere")).await, None);
}

#[tokio::test]
async fn a_cluster_that_leaves_loses_the_account_and_then_its_permissions() {
    let hub = hub().await;
    for name in ["c1", "c2", "c3"] {
        cluster(&hub.ocm, name, "s").await;
    }
    ocm::bound(TEAM, "s").create(&hub.ocm).await.unwrap();
    let addons = start(&hub).await;
    for name in ["c1", "c2", "c3"] {
        equipped(&hub.ocm, name).await;
    }
    let in_order = |cluster: &str| {
        [format!("delete managedserviceaccounts {cluster}"), format!("delete manifestworks {cluster}")]
    };

    // It moves to another set.
    let mark = hub.audit().mark().await.unwrap();
    ManagedCluster::named("c1").in_set("other").update(&hub.ocm).await.unwrap();
    bare(&hub.ocm, "c1").await;
    assert_eq!(targets(&writes(&hub.audit().since(&mark).await.unwrap())), in_order("c1"));
    // It is detached.
    let mark = hub.audit().mark().await.unwrap();
    world::delete(&hub.ocm, &ManagedCluster::named("c2").into()).await;
    bare(&hub.ocm, "c2").await;
    assert_eq!(targets(&writes(&hub.audit().since(&mark).await.unwrap())), in_order("c2"));
    // The binding ends, and comes again.
    let mark = hub.audit().mark().await.unwrap();
    world::delete(&hub.ocm, &ocm::bound(TEAM, "s")).await;
    bare(&hub.ocm, "c3").await;
    assert_eq!(targets(&writes(&hub.audit().since(&mark).await.unwrap())), in_order("c3"));
    ocm::bound(TEAM, "s").create(&hub.ocm).await.unwrap();
    equipped(&hub.ocm, "c3").await;

    // What ended while it did not run ends when it starts.
    addons.stop().await;
    world::delete(&hub.ocm, &ocm::bound(TEAM, "s")).await;
    let _addons = start(&hub).await;
    bare(&hub.ocm, "c3").await;
}

#[tokio::test]
async fn a_tenant_who_edits_bindings_gets_nothing_that_is_not_granted() {
    let hub = hub().await;
    cluster(&hub.ocm, "mine", "s").await;
    cluster(&hub.ocm, "secret", "other").await;
    ocm::bound(TEAM, "s").create(&hub.ocm).await.unwrap();
    let addons = start(&hub).await;
    equipped(&hub.ocm, "mine").await;
    // A binding that OCM does not declare bound, and the own one, which then names another set.
    ocm::unbound(TEAM, "other").create(&hub.ocm).await.unwrap();
    merge(&hub.ocm, &ocm::bound(TEAM, "s"), &json!({ "spec": { "clusterSet": "other" } })).await;
    bare(&hub.ocm, "mine").await;
    // A profile that somebody makes grants nothing either.
    world::profile_of("open-cluster-management", TEAM, "secret").create(&hub.ocm).await.unwrap();
    world::delete(&hub.ocm, &ocm::bound(TEAM, "s")).await;
    ocm::bound(TEAM, "s").create(&hub.ocm).await.unwrap();
    equipped(&hub.ocm, "mine").await;
    addons.measures(IDLE, 0.0).await;
    assert_eq!(get(&hub.ocm, &account("secret")).await, None);
    assert_eq!(get(&hub.ocm, &work("secret")).await, None);
}

#[tokio::test]
async fn objects_of_other_owners_are_reported_and_left_alone() {
    let hub = hub().await;
    for name in ["c1", "c2"] {
        cluster(&hub.ocm, name, "s").await;
    }
    let manifest =
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a", "namespace": "b" } });
    let theirs = work("c2").field("spec", json!({ "workload": { "manifests": [manifest] } }));
    world::create(&hub.ocm, [account("c1"), theirs]).await;
    let before = (get(&hub.ocm, &account("c1")).await, get(&hub.ocm, &work("c2")).await);
    ocm::bound(TEAM, "s").create(&hub.ocm).await.unwrap();
    let addons = start(&hub).await;
    let note = told(&hub.ocm, &account("c1"), "ForeignAccount").await;
    assert!(note.contains("namespace team"), "{note}");
    told(&hub.ocm, &work("c2"), "ForeignManifestWork").await;
    world::delete(&hub.ocm, &ocm::bound(TEAM, "s")).await;
    world::gone(&hub.ocm, &account("c2")).await;
    addons.measures(IDLE, 0.0).await;
    assert_eq!((get(&hub.ocm, &account("c1")).await, get(&hub.ocm, &work("c2")).await), before);
    assert_eq!(get(&hub.ocm, &work("c1")).await, None, "no permissions for an account of another owner");

    // When they are gone, ours take their place.
    ocm::bound(TEAM, "s").create(&hub.ocm).await.unwrap();
    world::delete(&hub.ocm, &account("c1")).await;
    world::delete(&hub.ocm, &work("c2")).await;
    for name in ["c1", "c2"] {
        let (_, permissions) = equipped(&hub.ocm, name).await;
        assert_eq!(permissions["metadata"]["labels"]["app.kubernetes.io/component"], "consumer-access");
    }
    for reason in ["ForeignAccount", "ForeignManifestWork"] {
        addons.measures(&format!("hub_addons_findings{{reason=\"{reason}\"}}"), 0.0).await;
    }
}

#[tokio::test]
async fn the_hub_itself_is_excluded_until_it_is_included() {
    let hub = hub().await;
    cluster(&hub.ocm, "c1", "s").await;
    world::ensure_namespace(&hub.ocm, "hub").await;
    let itself = ManagedCluster::named("hub").in_set("s").label("local-cluster", "true");
    itself.create(&hub.ocm).await.unwrap();
    ocm::bound(TEAM, "s").create(&hub.ocm).await.unwrap();
    let addons = start(&hub).await;
    equipped(&hub.ocm, "c1").await;
    let leaves_out_the_hub = async || {
        eventually("the status says that the hub is left out", SOON, async || {
            let shown = get(&hub.ocm, &access(TEAM, "app")).await.unwrap()["status"].to_string();
            if shown.contains("no access to the hub itself") { Ok(()) } else { Err(shown) }
        })
        .await;
        assert_eq!(get(&hub.ocm, &account("hub")).await, None);
    };
    leaves_out_the_hub().await;
    // Without the label, its ID is that of the hub.
    let system = get(&hub.ocm, &ocm::namespace("kube-system")).await.unwrap();
    let id = system["metadata"]["uid"].as_str().unwrap();
    itself.label("local-cluster", "false").claim("id.k8s.io", id).update(&hub.ocm).await.unwrap();
    cluster(&hub.ocm, "c2", "s").await;
    equipped(&hub.ocm, "c2").await;
    leaves_out_the_hub().await;
    addons.stop().await;

    let addons = Addons::beside(&hub, &[GATE, PERMIT, "--consumer-local-cluster"]).await;
    equipped(&hub.ocm, "hub").await;
    addons.stop().await;
    // What was created while it was included is withdrawn.
    let _addons = start(&hub).await;
    bare(&hub.ocm, "hub").await;
    equipped(&hub.ocm, "c1").await;
}

#[tokio::test]
async fn an_account_that_is_marked_later_is_neither_adopted_nor_deleted() {
    let hub = hub().await;
    cluster(&hub.ocm, "c1", "s").await;
    cluster(&hub.ocm, "c2", "s").await;
    account("c1").create(&hub.ocm).await.unwrap();
    ocm::bound(TEAM, "s").create(&hub.ocm).await.unwrap();
    let addons = start(&hub).await;
    told(&hub.ocm, &account("c1"), "ForeignAccount").await;
    // It gets everything that ours have.
    let (ours, _) = equipped(&hub.ocm, "c2").await;
    let (labels, annotations) = (&ours["metadata"]["labels"], &ours["metadata"]["annotations"]);
    let marked =
        json!({ "metadata": { "labels": labels, "annotations": annotations }, "spec": ours["spec"] });
    merge(&hub.ocm, &account("c1"), &marked).await;
    let theirs = get(&hub.ocm, &account("c1")).await;
    cluster(&hub.ocm, "c3", "s").await;
    equipped(&hub.ocm, "c3").await;
    assert_eq!(get(&hub.ocm, &work("c1")).await, None, "no permissions are bound to it");
    world::delete(&hub.ocm, &ocm::bound(TEAM, "s")).await;
    bare(&hub.ocm, "c2").await;
    bare(&hub.ocm, "c3").await;
    addons.measures(IDLE, 0.0).await;
    assert_eq!(get(&hub.ocm, &account("c1")).await, theirs);
}

#[tokio::test]
async fn an_edit_by_hand_is_undone_and_permissions_that_are_not_applied_are_reported() {
    let hub = hub().await;
    cluster(&hub.ocm, "c1", "s").await;
    ocm::bound(TEAM, "s").create(&hub.ocm).await.unwrap();
    let addons = start(&hub).await;
    let (right, permissions) = equipped(&hub.ocm, "c1").await;
    let restored = async |object: &Object, patch: Value, right: &Value| {
        merge(&hub.ocm, object, &patch).await;
        eventually(&format!("{patch} is undone"), SOON, async || {
            let now = get(&hub.ocm, object).await.unwrap();
            let same = now["spec"] == right["spec"]
                && now["metadata"]["labels"] == right["metadata"]["labels"]
                && now["metadata"]["annotations"] == right["metadata"]["annotations"];
            if same { Ok(()) } else { Err(now.to_string()) }
        })
        .await;
    };
    let everywhere = json!({ ocm::SYNC_NAMESPACES_ANNOTATION: null });
    restored(&account("c1"), json!({ "metadata": { "annotations": everywhere } }), &right).await;
    restored(&account("c1"), json!({ "metadata": { "labels": null } }), &right).await;
    restored(&account("c1"), json!({ "spec": { "ttlSecondsAfterCreation": 60 } }), &right).await;
    let empty = json!({ "spec": { "workload": { "manifests": [] } } });
    restored(&work("c1"), empty, &permissions).await;
    restored(&work("c1"), json!({ "metadata": { "labels": null } }), &permissions).await;
    world::delete(&hub.ocm, &work("c1")).await;
    equipped(&hub.ocm, "c1").await;

    let condition = |status: &str| {
        json!({ "conditions": [{
            "type": "Applied", "status": status, "reason": "AppliedManifestWorkFailed",
            "message": "clusterroles \"view\" not found", "lastTransitionTime": "2026-01-01T00:00:00Z",
        }] })
    };
    world::merge_status(&hub.ocm, &work("c1"), &condition("False")).await;
    let note = told(&hub.ocm, &work("c1"), "PermissionsNotApplied").await;
    assert!(note.contains("not found"), "{note}");
    world::merge_status(&hub.ocm, &work("c1"), &condition("True")).await;
    addons.measures("hub_addons_findings{reason=\"PermissionsNotApplied\"}", 0.0).await;
}

#[tokio::test]
async fn without_one_list_nothing_is_created_and_at_most_the_account_withdrawn() {
    const KINDS: [&str; 2] = ["managedserviceaccounts", "manifestworks"];
    let builder = LocalHub::builder().without_controller_manager();
    let hub = hub_with(KINDS.iter().fold(builder, |it, kind| it.user(format!("without-{kind}"), &[]))).await;
    cluster(&hub.ocm, "c1", "s").await;
    ocm::bound(TEAM, "s").create(&hub.ocm).await.unwrap();
    let addons = start(&hub).await;
    equipped(&hub.ocm, "c1").await;
    addons.stop().await;
    world::delete(&hub.ocm, &ocm::bound(TEAM, "s")).await;
    for resource in KINDS {
        let mut fewer = rights::consumer_access(&["app"]);
        for rule in fewer.iter_mut().filter(|rule| rule.resources.iter().flatten().any(|it| it == resource)) {
            rule.verbs.retain(|verb| verb != "list");
        }
        let fewer = fewer.into_iter().filter(|rule| !rule.verbs.is_empty()).collect();
        let user = format!("without-{resource}");
        hub.grant(&user, fewer).await.unwrap();
        let mark = hub.audit().mark().await.unwrap();
        let addons = Addons::launch(&hub, "without", &user, &[GATE, PERMIT]).await;
        addons.works().await;
        // The list is refused twice: everything that the first refusal could lead to has happened.
        eventually("the list is refused", SOON, async || {
            let requests = hub.audit().since(&mark).await.unwrap().of_user(&user);
            requests.count(|it| it.code == 403 && it.resource == resource && it.verb == "list") > 1
        })
        .await;
        // An account is withdrawn with its grant even while its permissions are unknown.
        let expected: &[&str] = if resource == "manifestworks" {
            world::gone(&hub.ocm, &account("c1")).await;
            &["delete managedserviceaccounts c1"]
        } else {
            &[]
        };
        let requests = hub.audit().since(&mark).await.unwrap();
        assert_eq!(targets(&writes_of(&requests, &user)), expected);
        addons.stop().await;
    }
    let _addons = start(&hub).await;
    bare(&hub.ocm, "c1").await;
}

#[tokio::test]
async fn an_account_that_may_not_be_deleted_loses_its_permissions_and_is_deleted_as_soon_as_it_may() {
    const KEEPER: &str = "keeper";
    let hub = hub_with(LocalHub::builder().without_controller_manager().user(KEEPER, &[])).await;
    cluster(&hub.ocm, "c1", "s").await;
    ocm::bound(TEAM, "s").create(&hub.ocm).await.unwrap();
    let accounts =
        |rule: &PolicyRule| rule.resources.iter().flatten().any(|it| it == "managedserviceaccounts");
    let mut fewer = rights::consumer_access(&["app"]);
    for rule in fewer.iter_mut().filter(|rule| accounts(rule)) {
        rule.verbs.retain(|verb| verb != "delete");
    }
    hub.grant(KEEPER, fewer).await.unwrap();
    let addons = Addons::launch(&hub, KEEPER, KEEPER, &[GATE, PERMIT]).await;
    equipped(&hub.ocm, "c1").await;
    world::delete(&hub.ocm, &ocm::bound(TEAM, "s")).await;
    world::gone(&hub.ocm, &work("c1")).await;
    let note = told(&hub.ocm, &account("c1"), "WriteRefused").await;
    assert!(note.contains("delete"), "{note}");
    assert!(get(&hub.ocm, &account("c1")).await.is_some());
    let hub_of = format!("--kubeconfig={}", hub.kubeconfig_for("admin").unwrap().display());
    let ended = kubectl_clusterprofile(&["explain", "team/c1", &hub_of, "-o", "json"]).await;
    assert!(ended.stdout.contains("AccountNotWithdrawn"), "{}{}", ended.stdout, ended.stderr);

    hub.grant(KEEPER, rights::consumer_access(&["app"])).await.unwrap();
    bare(&hub.ocm, "c1").await;
    addons.measures("hub_addons_findings{reason=\"WriteRefused\"}", 0.0).await;
}

#[tokio::test]
async fn an_account_is_deleted_as_soon_as_it_may_although_its_permissions_may_not() {
    const KEEPER: &str = "keeper";
    let hub = hub_with(LocalHub::builder().without_controller_manager().user(KEEPER, &[])).await;
    cluster(&hub.ocm, "c1", "s").await;
    ocm::bound(TEAM, "s").create(&hub.ocm).await.unwrap();
    let without_deletes = |resources: &[&str]| {
        let mut rules = rights::consumer_access(&["app"]);
        let concerned =
            |rule: &PolicyRule| rule.resources.iter().flatten().any(|it| resources.contains(&&**it));
        for rule in rules.iter_mut().filter(|rule| concerned(rule)) {
            rule.verbs.retain(|verb| verb != "delete");
        }
        rules
    };
    hub.grant(KEEPER, without_deletes(&["managedserviceaccounts", "manifestworks"])).await.unwrap();
    let addons = Addons::launch(&hub, KEEPER, KEEPER, &[GATE, PERMIT]).await;
    equipped(&hub.ocm, "c1").await;
    world::delete(&hub.ocm, &ocm::bound(TEAM, "s")).await;
    told(&hub.ocm, &account("c1"), "WriteRefused").await;
    told(&hub.ocm, &work("c1"), "WriteRefused").await;
    hub.grant(KEEPER, without_deletes(&["manifestworks"])).await.unwrap();
    world::gone(&hub.ocm, &account("c1")).await;
    assert!(get(&hub.ocm, &work("c1")).await.is_some());
    hub.grant(KEEPER, without_deletes(&[])).await.unwrap();
    bare(&hub.ocm, "c1").await;
    addons.measures("hub_addons_findings{reason=\"WriteRefused\"}", 0.0).await;
}

#[tokio::test]
async fn permissions_that_cannot_be_read_are_recreated() {
    let hub = hub().await;
    cluster(&hub.ocm, "c1", "s").await;
    ocm::bound(TEAM, "s").create(&hub.ocm).await.unwrap();
    let addons = start(&hub).await;
    let (account, permissions) = equipped(&hub.ocm, "c1").await;
    // A manifest of another user that nests so deep that it hides what the object contains.
    let deep = format!("{}1{}", r#"{"a":"#.repeat(150), "}".repeat(150));
    let manifest = format!(
        r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"a","namespace":"b"}},"data":{deep}}}"#
    );
    let patch = format!(r#"{{"spec":{{"workload":{{"manifests":[{manifest}]}}}}}}"#);
    let name = "hub-addons-consumer-app";
    let patch = ["patch", "manifestworks", name, "--namespace=c1", "--type=merge", "--patch", &patch];
    let output = hub.kubectl(&patch).await.unwrap();
    assert!(output.status.success(), "{output:?}");
    eventually("the permissions are those that are declared", SOON, async || {
        let work = work("c1").api(&hub.ocm).get(name).await.map_err(|error| error.to_string())?;
        if work.data["spec"] == permissions["spec"] { Ok(()) } else { Err(work.data.to_string()) }
    })
    .await;
    addons.measures(IDLE, 0.0).await;
    let (now, _) = equipped(&hub.ocm, "c1").await;
    assert_eq!(now, account, "the account is not affected");
}

#[tokio::test]
async fn an_object_that_was_deleted_while_nothing_ran_loses_its_accounts_and_then_their_permissions() {
    let hub = hub().await;
    cluster(&hub.ocm, "c1", "s").await;
    ocm::bound(TEAM, "s").create(&hub.ocm).await.unwrap();
    let addons = start(&hub).await;
    equipped(&hub.ocm, "c1").await;
    addons.stop().await;
    world::delete(&hub.ocm, &access(TEAM, "app")).await;
    let mark = hub.audit().mark().await.unwrap();
    let addons = start(&hub).await;
    bare(&hub.ocm, "c1").await;
    addons.measures(IDLE, 0.0).await;
    let writes = writes(&hub.audit().since(&mark).await.unwrap());
    assert_eq!(targets(&writes), ["delete managedserviceaccounts c1", "delete manifestworks c1"]);
    // Created again, it has everything again.
    world::create(&hub.ocm, [access(TEAM, "app")]).await;
    equipped(&hub.ocm, "c1").await;
}

#[tokio::test]
async fn a_namespace_that_goes_takes_the_object_and_the_access_with_it() {
    let hub = hub_with(LocalHub::builder()).await;
    cluster(&hub.ocm, "c1", "s").await;
    ocm::bound(TEAM, "s").create(&hub.ocm).await.unwrap();
    let _addons = start(&hub).await;
    equipped(&hub.ocm, "c1").await;
    world::delete(&hub.ocm, &ocm::namespace(TEAM)).await;
    bare(&hub.ocm, "c1").await;
    world::gone(&hub.ocm, &ocm::namespace(TEAM)).await;
}

/// Waits until a condition of an object has this status and reason, and returns the object.
async fn shows(client: &Client, access: &Object, kind: &str, expected: [&str; 2]) -> Value {
    eventually(&format!("{access} is {kind} {expected:?}"), SOON, async || {
        let shown = get(client, access).await.unwrap_or_default()["status"].clone();
        let conditions = shown["conditions"].as_array().cloned().unwrap_or_default();
        let found = conditions.iter().find(|it| it["type"] == kind).cloned().unwrap_or_default();
        if [&found["status"], &found["reason"]] == expected { Ok(()) } else { Err(shown.to_string()) }
    })
    .await;
    get(client, access).await.unwrap()
}

#[tokio::test]
async fn of_two_objects_that_ask_for_one_account_the_second_has_it_when_the_first_is_gone() {
    let hub = hub().await;
    cluster(&hub.ocm, "c1", "s").await;
    // If both are created in one second, the name decides.
    let second = access("zebra", "app");
    world::create(
        &hub.ocm,
        [ocm::namespace("zebra"), second.clone(), ocm::bound(TEAM, "s"), ocm::bound("zebra", "s")],
    )
    .await;
    let _addons = start(&hub).await;
    let (owner, _) = equipped(&hub.ocm, "c1").await;
    assert_eq!(owner["metadata"]["annotations"][ocm::SYNC_NAMESPACES_ANNOTATION], TEAM);
    let shown = shows(&hub.ocm, &second, "Accepted", ["False", "Conflict"]).await;
    assert!(shown["status"].to_string().contains("ClusterAccess team/app, which is older"), "{shown}");
    world::delete(&hub.ocm, &access(TEAM, "app")).await;
    shows(&hub.ocm, &second, "Accepted", ["True", "Accepted"]).await;
    eventually("the account is that of the second", SOON, async || {
        let shown = get(&hub.ocm, &account("c1")).await.unwrap_or_default();
        let of = &shown["metadata"]["annotations"][ocm::SYNC_NAMESPACES_ANNOTATION];
        if of == "zebra" { Ok(()) } else { Err(shown.to_string()) }
    })
    .await;
}

#[tokio::test]
async fn the_status_names_what_is_missing_until_every_cluster_is_ready() {
    let hub = hub().await;
    let object = access(TEAM, "app");
    let addons = start(&hub).await;
    shows(&hub.ocm, &object, "Ready", ["False", "NoCluster"]).await;
    for name in ["c1", "c2"] {
        cluster(&hub.ocm, name, "s").await;
    }
    ocm::bound(TEAM, "s").create(&hub.ocm).await.unwrap();
    let shown = shows(&hub.ocm, &object, "Ready", ["False", "ClustersNotReady"]).await;
    assert_eq!(
        shown["status"]["clusters"],
        json!({ "granted": 2, "selected": 2, "ready": 0, "notGranted": 0 })
    );
    let condition = json!({ "conditions": [{
        "type": "Applied", "status": "True", "reason": "Applied", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
    }] });
    for name in ["c1", "c2"] {
        equipped(&hub.ocm, name).await;
        let token =
            json!({ "tokenSecretRef": { "name": "app", "lastRefreshTimestamp": "2026-01-01T00:00:00Z" } });
        world::merge_status(&hub.ocm, &account(name), &token).await;
        world::merge_status(&hub.ocm, &work(name), &condition).await;
    }
    let shown = shows(&hub.ocm, &object, "Ready", ["True", "Ready"]).await;
    assert_eq!(shown["status"]["clusters"]["ready"], 2);
    assert_eq!(shown["status"].get("notReady"), None);
    addons.stop().await;
    // A restart writes no status.
    let mark = hub.audit().mark().await.unwrap();
    let addons = start(&hub).await;
    addons.measures("hub_addons_queue_depth{controller=\"consumer-access-status\"}", 0.0).await;
    let requests = hub.audit().since(&mark).await.unwrap().of_user(USER).writes();
    assert_eq!(requests.count(|it| it.resource == "clusteraccesses"), 0, "{requests}");
}

#[tokio::test]
async fn a_placement_narrows_the_grant_and_grants_nothing() {
    a_placement_narrows_the_grant("v1alpha1").await;
}

#[tokio::test]
async fn decisions_of_sig_multicluster_count_where_only_v1alpha2_is_served() {
    a_placement_narrows_the_grant("v1alpha2").await;
}

async fn a_placement_narrows_the_grant(sig_version: &'static str) {
    let hub = hub().await;
    install_placement_decisions(&hub, sig_version).await;
    for (name, set) in [("c1", "s"), ("c2", "s"), ("c3", "other")] {
        cluster(&hub.ocm, name, set).await;
    }
    ocm::bound(TEAM, "s").create(&hub.ocm).await.unwrap();
    let object = access(TEAM, "app");
    merge(&hub.ocm, &object, &json!({ "spec": { "clusters": { "placementRef": { "name": "gpus" } } } }))
        .await;
    let decision = decision(TEAM, "gpus");
    let decides = async |clusters: &[&str]| {
        world::merge_status(&hub.ocm, &decision, &decisions(clusters)).await;
    };
    world::create(&hub.ocm, [decision.clone()]).await;
    decides(&["c1", "c3"]).await;
    let addons = start(&hub).await;
    equipped(&hub.ocm, "c1").await;
    let counts = async |expected: Value| {
        eventually(&format!("the status counts {expected}"), SOON, async || {
            let shown = get(&hub.ocm, &object).await.unwrap()["status"]["clusters"].clone();
            if shown == expected { Ok(()) } else { Err(shown.to_string()) }
        })
        .await;
    };
    counts(json!({ "granted": 2, "selected": 1, "ready": 0, "notGranted": 1 })).await;
    decides(&["c2"]).await;
    bare(&hub.ocm, "c1").await;
    equipped(&hub.ocm, "c2").await;
    counts(json!({ "granted": 2, "selected": 1, "ready": 0, "notGranted": 0 })).await;
    // SIG Multicluster's kind refers to profiles, in this namespace unless it names another one.
    let profiles = json!([
        { "clusterProfileRef": { "name": "c1", "namespace": "elsewhere" } },
        { "clusterProfileRef": { "name": "c2" } },
    ]);
    let theirs = sig_decision(sig_version, TEAM, "gpus", &profiles);
    world::create(&hub.ocm, [theirs.clone()]).await;
    decides(&["c1", "c3"]).await;
    equipped(&hub.ocm, "c1").await;
    counts(json!({ "granted": 2, "selected": 2, "ready": 0, "notGranted": 1 })).await;
    world::delete(&hub.ocm, &decision).await;
    bare(&hub.ocm, "c1").await;
    equipped(&hub.ocm, "c2").await;
    world::delete(&hub.ocm, &theirs).await;
    bare(&hub.ocm, "c2").await;
    addons.measures(IDLE, 0.0).await;
    assert_eq!((get(&hub.ocm, &account("c1")).await, get(&hub.ocm, &account("c3")).await), (None, None));
}

#[tokio::test]
async fn the_schema_rejects_what_could_not_be_used_with_a_sentence() {
    let hub = hub().await;
    let valid = json!({ "identity": "Copy", "serviceAccountNames": ["app"] });
    for (patch, words) in [
        (json!({ "identity": "Other" }), "Unsupported value"),
        (json!({ "serviceAccountNames": [] }), "at least 1 items"),
        (json!({ "serviceAccountNames": ["a:b"] }), "should match"),
        (
            json!({ "identity": "Own", "managedServiceAccountName": "x" }),
            "Only an application with the identity Copy",
        ),
        (json!({ "identity": "Own", "rotation": {} }), "has a token to rotate."),
        (
            json!({ "argoCD": { "ownToken": "/x" } }),
            "Only an application with the identity Own has an ownToken.",
        ),
        (json!({ "rotation": { "validity": "9m" } }), "A token is valid for at least 10m."),
        (json!({ "rotation": { "validity": "PT24H" } }), "should match"),
        (json!({ "permissions": [{ "clusterRole": "a/b" }] }), "should match"),
        (json!({ "permissions": [{ "clusterRole": ".." }] }), "This is not a valid name of a ClusterRole."),
        (
            json!({ "permissions": [{ "clusterRole": "a" }, { "clusterRole": "a", "namespaces": ["b"] }] }),
            "Duplicate value",
        ),
        (json!({ "permissions": [{ "clusterRole": "a", "namespaces": ["*"] }] }), "should match"),
        (json!({ "multiKueue": { "configs": [] } }), "at least 1 items"),
    ] {
        let spec = extended(&valid, &patch);
        let error = cause(&ocm::cluster_access(TEAM, "odd", &spec).create(&hub.ocm).await.unwrap_err());
        assert!(error.contains(words), "{patch}: {error}");
    }
    let long = "a".repeat(64);
    let error = cause(&ocm::cluster_access(TEAM, &long, &valid).create(&hub.ocm).await.unwrap_err());
    assert!(error.contains("at most 63 characters."), "{error}");
    let refused = async |patch: Value, words: &str| {
        let object = access(TEAM, "app");
        let params = kube::api::PatchParams::default();
        let patched = object.api(&hub.ocm).patch("app", &params, &kube::api::Patch::Merge(&patch)).await;
        let error = patched.unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    };
    refused(json!({ "spec": { "identity": "Own" } }), "The identity cannot change").await;
    refused(
        json!({ "spec": { "managedServiceAccountName": "x" } }),
        "The managedServiceAccountName cannot change",
    )
    .await;
}

fn cause(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), cause)
}

fn extended(base: &Value, patch: &Value) -> Value {
    let mut spec = base.clone();
    spec.as_object_mut().unwrap().extend(patch.as_object().unwrap().clone());
    spec
}
