//! Access that a ClusterAccess declares: what is maintained for it, with which permissions, and what a process with these
//! permissions cannot do.

use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use local_hub::eventually;
use local_hub::ocm::{self, ManagedCluster, Object, ServiceAccountToken};
use serde_json::{Value, json};

use crate::support::chart::Attempt::{self, Create, Delete, Patch, PatchStatus};
use crate::support::chart::{
    held, helm, install, install_arguments, judged_as, labels, metadata, refused_writes, run,
    start, start_all, user,
};
use crate::support::credentials::{copied, copy, withdrawn};
use crate::support::kueue::{install_kueue, multi_kueue_cluster, multi_kueue_config};
use crate::support::placement::{decision, decisions, install_placement_decisions};
use crate::support::world::{self, get, merge, told};
use crate::support::{Hub, SOON, stop_all};

pub(crate) const ENABLED: [&str; 3] = [
    // Whoever plays Open Cluster Management here also edits what the policies protect.
    "policies.clusterManagers.users={ocm}",
    "consumerAccess.enabled=true",
    "consumerAccess.allowedClusterRoles={view,edit}",
];
pub(crate) const COMPONENT: &str = "consumers";
const AGENTS: &str = "open-cluster-management-agent-addon";
/// The finalizer that agents set on ManifestWorks.
const CLEANUP: &str = "cluster.open-cluster-management.io/manifest-work-cleanup";

pub(crate) fn account(cluster: &str, name: &str) -> Object {
    ocm::managed_service_account(cluster, name)
}

pub(crate) fn work(cluster: &str, account: &str) -> Object {
    world::object("ManifestWork", Some(cluster), &format!("hub-addons-consumer-{account}"))
}

/// The ClusterAccess of these tests.
fn declared() -> Object {
    let spec = json!({
        "identity": "Copy", "serviceAccountNames": ["app"],
        "permissions": [{ "clusterRole": "view" }, { "clusterRole": "edit", "namespaces": ["jobs"] }],
        "multiKueue": { "configs": [{ "name": "multikueue" }] },
    });
    ocm::cluster_access("team", "app", &spec)
}

pub(crate) async fn hub() -> Hub {
    let hub = Hub::plain().await;
    world::create(&hub.ocm, ["team", "other"].map(ocm::namespace)).await;
    ocm::cluster_set("s").create(&hub.ocm).await.unwrap();
    install_kueue(&hub).await;
    install(&hub, &ENABLED).await;
    declare(&hub, declared()).await;
    hub
}

/// Creates a ClusterAccess. The API server serves the kind a moment after the chart has installed it.
pub(crate) async fn declare(hub: &Hub, access: Object) {
    let create = async || access.create(&hub.ocm).await.map_err(|error| format!("{error:?}"));
    eventually(&format!("{access} exists"), SOON, create).await;
}

async fn joins(hub: &Hub, cluster: &str) {
    world::ensure_namespace(&hub.ocm, cluster).await;
    ManagedCluster::named(cluster).in_set("s").create(&hub.ocm).await.unwrap();
}

async fn equipped(hub: &Hub, cluster: &str) {
    world::exists(&hub.ocm, &account(cluster, "app")).await;
    world::exists(&hub.ocm, &work(cluster, "app")).await;
}

/// Waits until Kueue knows a cluster, and the MultiKueueConfig lists it.
async fn queued(hub: &Hub, cluster: &str) {
    world::exists(&hub.ocm, &multi_kueue_cluster(cluster)).await;
    world::becomes(&hub.ocm, &multi_kueue_config("multikueue"), "lists the cluster", |config| {
        config["spec"]["clusters"].as_array().unwrap().iter().any(|it| it == cluster)
    })
    .await;
}

/// Waits until all that was maintained on these clusters and for Kueue is gone.
async fn nothing_is_left(hub: &Hub, clusters: &[&str]) {
    for cluster in clusters {
        for object in [account(cluster, "app"), work(cluster, "app"), multi_kueue_cluster(cluster)]
        {
            world::gone(&hub.ocm, &object).await;
        }
    }
    world::gone(&hub.ocm, &multi_kueue_config("multikueue")).await;
}

#[tokio::test]
async fn a_declared_consumer_reads_its_token_on_each_granted_cluster_and_no_other_namespace_does() {
    let hub = hub().await;
    install_placement_decisions(&hub, "v1alpha1").await;
    let running = start_all(&hub, &["profiles", "credentials", COMPONENT]).await;
    joins(&hub, "c1").await;
    for namespace in ["team", "other"] {
        ocm::bound(namespace, "s").create(&hub.ocm).await.unwrap();
    }
    equipped(&hub, "c1").await;
    // The agent reports the token of the account.
    let token = ServiceAccountToken::of("c1", "app");
    token.report(&hub.ocm).await.unwrap();
    copied(&hub.ocm, "team", &token).await;
    let client = hub.service_account("team", "app").await.unwrap().client().await.unwrap();
    let secrets: Api<Secret> = Api::namespaced(client, "team");
    eventually("the application reads its copy", SOON, async || {
        secrets.get("c1-app").await.is_ok()
    })
    .await;
    // The account is limited to its consumer.
    assert_eq!(get(&hub.ocm, &copy("other", &token)).await, None);

    queued(&hub, "c1").await;
    let astray =
        json!({ "spec": { "clusterSource": { "clusterProfileRef": { "name": "other" } } } });
    merge(&hub.ocm, &multi_kueue_cluster("c1"), &astray).await;
    world::becomes(&hub.ocm, &multi_kueue_cluster("c1"), "refers to its own profile", |it| {
        it["spec"]["clusterSource"]["clusterProfileRef"]["name"] == "c1"
    })
    .await;
    // An edit by hand is undone, within what the policies allow.
    for object in [account("c1", "app"), work("c1", "app")] {
        merge(&hub.ocm, &object, &json!({ "metadata": { "labels": null } })).await;
        let marked = |it: &Value| it["metadata"]["labels"]["hub-addons/installation"] == "addons";
        world::becomes(&hub.ocm, &object, "has its labels again", marked).await;
    }

    // Neither an upgrade nor a restart writes anything.
    stop_all(running).await;
    install(&hub, &ENABLED).await;
    let mark = hub.audit().mark().await.unwrap();
    let running = start_all(&hub, &["profiles", "credentials", COMPONENT]).await;
    joins(&hub, "c2").await;
    equipped(&hub, "c2").await;
    queued(&hub, "c2").await;
    let writes = hub.audit().since(&mark).await.unwrap().of_user(&user(COMPONENT)).writes();
    let writes =
        writes.matching(|request| !["leases", "clusteraccesses"].contains(&&*request.resource));
    // The account, permissions, MultiKueueCluster and MultiKueueConfig.
    assert_eq!(writes.len(), 4, "{writes}");

    // The grant ends.
    world::delete(&hub.ocm, &ocm::bound("team", "s")).await;
    nothing_is_left(&hub, &["c1", "c2"]).await;
    withdrawn(&hub.ocm, "team", &token).await;
    // A finding, so that every permission has been used.
    account("c2", "app").create(&hub.ocm).await.unwrap();
    ocm::bound("team", "s").create(&hub.ocm).await.unwrap();
    told(&hub.ocm, &account("c2", "app"), "ForeignAccount").await;
    let clusters = json!({ "placementRef": { "name": "gpus" } });
    let spec = json!({ "identity": "Copy", "serviceAccountNames": ["app"], "clusters": clusters });
    let decision = decision("team", "gpus");
    world::create(&hub.ocm, [decision.clone(), ocm::cluster_access("team", "placed", &spec)]).await;
    world::merge_status(&hub.ocm, &decision, &decisions(&["c1"])).await;
    world::exists(&hub.ocm, &account("c1", "placed")).await;
    let refused = refused_writes(&hub, COMPONENT).await;
    assert!(refused.is_empty(), "{refused}");
    let secrets = hub.audit().requests().await.unwrap().of_user(&user(COMPONENT));
    assert_eq!(secrets.count(|request| request.resource == "secrets"), 0);
    stop_all(running).await;
}

#[tokio::test]
async fn what_is_no_longer_declared_is_withdrawn_and_nothing_disables_the_withdrawal() {
    let hub = hub().await;
    ocm::bound("team", "s").create(&hub.ocm).await.unwrap();
    joins(&hub, "c1").await;
    let process = start(&hub, COMPONENT).await;
    equipped(&hub, "c1").await;
    queued(&hub, "c1").await;
    let disabled = ["consumerAccess.enabled=false"];
    let refuses = async |words: &str| {
        let ended = run(helm(), Some(&hub), &install_arguments(&disabled)).await;
        assert!(ended.code != Some(0) && ended.stderr.contains(words), "{}", ended.stderr);
    };
    refuses("the ClusterAccess team/app exists: delete every ClusterAccess first").await;
    process.stop().await;
    world::delete(&hub.ocm, &declared()).await;
    refuses("the ManagedServiceAccount c1/app exists").await;

    let process = start(&hub, COMPONENT).await;
    nothing_is_left(&hub, &["c1"]).await;
    let refused_writes = refused_writes(&hub, COMPONENT).await;
    assert!(refused_writes.is_empty(), "{refused_writes}");
    process.stop().await;
    install(&hub, &disabled).await;
    let deployment = world::object("Deployment", Some("addons"), "hub-addons-consumers");
    assert_eq!(get(&hub.ocm, &deployment).await, None);
    // Labels that are set now would make the object ours as soon as consumer access is enabled.
    let words = "only consumer access may create";
    let cases = vec![
        (Create(our_account("app", |_| {})), words),
        (Create(our_work(|_| {})), words),
        (Create(account("default", "app")), ""),
    ];
    judged_as(&hub, "eve", cases).await;
}

/// An account as consumer access creates it.
fn our_account(name: &str, edit: impl FnOnce(&mut Value)) -> Object {
    our_account_on("default", name, edit)
}

pub(crate) fn our_account_on(cluster: &str, name: &str, edit: impl FnOnce(&mut Value)) -> Object {
    let mut body = json!({
        "metadata": {
            "name": name, "namespace": cluster, "labels": marks(),
            "annotations": { ocm::SYNC_NAMESPACES_ANNOTATION: "team" },
        },
        "spec": { "rotation": { "enabled": true, "validity": "8640h0m0s" } },
    });
    body["metadata"]["labels"][ocm::SYNC_LABEL] = json!("true");
    edit(&mut body);
    account(cluster, name)
        .field("metadata", body["metadata"].take())
        .field("spec", body["spec"].take())
}

pub(crate) fn marks() -> Value {
    json!({
        "app.kubernetes.io/managed-by": "hub-addons", "app.kubernetes.io/component": "consumer-access",
        "hub-addons/installation": "addons",
    })
}

fn binding(namespace: Option<&str>, role: &str) -> Value {
    let (name, account) = (format!("hub-addons:app:{role}"), world::account(AGENTS, "app"));
    let binding = world::binding(namespace, &name, ("ClusterRole", role), account);
    serde_json::to_value(binding.parse().unwrap()).unwrap()
}

/// The account as the owner of its permissions.
pub(crate) fn owner() -> Value {
    json!({
        "apiVersion": "authentication.open-cluster-management.io/v1beta1", "kind": "ManagedServiceAccount",
        "name": "app", "uid": "1",
    })
}

/// Permissions as consumer access creates them.
fn our_work(edit: impl FnOnce(&mut Value)) -> Object {
    our_work_on("default", edit)
}

pub(crate) fn our_work_on(cluster: &str, edit: impl FnOnce(&mut Value)) -> Object {
    let manifests = [binding(None, "view"), binding(Some("jobs"), "edit")];
    let mut body = json!({
        "metadata": {
            "name": "hub-addons-consumer-app", "namespace": cluster, "labels": marks(),
            "ownerReferences": [owner()],
        },
        "spec": { "workload": { "manifests": manifests } },
    });
    edit(&mut body);
    let name = body["metadata"]["name"].as_str().unwrap().to_owned();
    world::object("ManifestWork", Some(cluster), &name)
        .field("metadata", body["metadata"].take())
        .field("spec", body["spec"].take())
}

/// The same with this manifest.
fn applying(manifest: &Value) -> Attempt {
    Attempt::Create(our_work(|work| work["spec"]["workload"]["manifests"] = json!([manifest])))
}

/// A binding of a declared ClusterRole, edited.
fn bound(edit: impl FnOnce(&mut Value)) -> Attempt {
    let mut binding = binding(None, "view");
    edit(&mut binding);
    applying(&binding)
}

#[tokio::test]
async fn consumer_access_is_held_to_accounts_whose_tokens_go_to_one_unprotected_namespace_and_stay_there()
 {
    let hub = hub().await;
    let is_labelled = "must have its labels";
    let limited = "must be limited to one namespace";
    let rotation = "may only write the rotation";
    let own = "only change and delete ManagedServiceAccounts that it has created";
    let bare = "must not set owners and finalizers";
    let fresh = |edit: fn(&mut Value)| Create(our_account("app", edit));
    let to = |namespaces: &str| {
        Create(our_account("app", |it| {
            it["metadata"]["annotations"][ocm::SYNC_NAMESPACES_ANNOTATION] = json!(namespaces);
        }))
    };
    let owner = json!([{ "apiVersion": "v1", "kind": "Namespace", "name": "default", "uid": "1" }]);
    let kept = our_account("app", |it| it["metadata"]["ownerReferences"] = owner);
    let of_another = our_account("app", |it| {
        it["metadata"]["labels"]["hub-addons/installation"] = json!("elsewhere");
    });
    let (ours, foreign) = (our_account("app", |_| {}), account("team", "app"));
    let unmarked = our_account("manual", |it| it["metadata"]["labels"] = json!({}));
    world::create(&hub.ocm, [ours.clone(), foreign.clone(), unmarked.clone()]).await;
    let limit = json!({ ocm::SYNC_NAMESPACES_ANNOTATION: "team" });
    let elsewhere = json!({ ocm::SYNC_NAMESPACES_ANNOTATION: "other" });
    let moved = "copied to another namespace than before";
    let cases = vec![
        (Create(our_account_on("other", "app", |_| {})), ""),
        (fresh(|it| it["metadata"]["labels"] = json!({})), is_labelled),
        (Create(of_another), is_labelled),
        (fresh(|it| it["metadata"]["annotations"] = json!({})), limited),
        (to(""), limited),
        (to("team,other"), limited),
        (to("kube-system"), limited),
        (to("open-cluster-management-hub"), limited),
        (to("addons"), limited),
        (Create(our_account("cluster-proxy", |_| {})), "another component's ServiceAccount"),
        (fresh(|it| it["metadata"]["labels"]["reflect-to"] = json!("all")), "not its own"),
        (fresh(|it| it["spec"]["ttlSecondsAfterCreation"] = json!(1)), rotation),
        (Create(kept), bare),
        (fresh(|it| it["metadata"]["finalizers"] = json!([world::HOLD])), bare),
        (metadata(&ours, json!({ "annotations": null })), limited),
        (labels(&ours, Value::Null), is_labelled),
        (metadata(&foreign, json!({ "labels": marks(), "annotations": limit })), own),
        (Delete(foreign), own),
        (labels(&unmarked, marks()), ""),
        (metadata(&unmarked, json!({ "labels": marks(), "annotations": elsewhere })), moved),
        (metadata(&ours, json!({ "annotations": elsewhere })), moved),
        (Patch(ours.clone(), json!({ "spec": { "rotation": { "enabled": false } } })), ""),
        (Delete(ours), ""),
    ];
    judged_as(&hub, &user(COMPONENT), cases).await;
}

#[tokio::test]
async fn consumer_access_is_held_to_accounts_where_the_addon_of_the_cluster_shows_them() {
    let hub = hub().await;
    let addon = |cluster: &str| {
        let gvk = ("addon.open-cluster-management.io", "v1alpha1", "ManagedClusterAddOn");
        Object::new(gvk, "managedclusteraddons", Some(cluster), "managed-serviceaccount")
            .field("spec", json!({}))
    };
    for cluster in ["bare", "elsewhere"] {
        joins(&hub, cluster).await;
        addon(cluster).create(&hub.ocm).await.unwrap();
    }
    world::merge_status(&hub.ocm, &addon("elsewhere"), &json!({ "namespace": "agents" })).await;
    let in_namespace = |cluster: &str, namespace: &str| {
        Create(our_work_on(cluster, |work| {
            for manifest in work["spec"]["workload"]["manifests"].as_array_mut().unwrap() {
                manifest["subjects"][0]["namespace"] = json!(namespace);
            }
        }))
    };
    let words = "in the namespace of the addon managed-serviceaccount";
    let cases = vec![
        (in_namespace("bare", "agents"), words),
        (in_namespace("elsewhere", AGENTS), words),
        (in_namespace("elsewhere", "team"), words),
        (in_namespace("bare", AGENTS), ""),
        (in_namespace("elsewhere", "agents"), ""),
    ];
    judged_as(&hub, &user(COMPONENT), cases).await;
}

#[tokio::test]
async fn consumer_access_is_held_to_give_nothing_on_the_hub_itself_whatever_its_name_is() {
    let hub = hub().await;
    let system = get(&hub.ocm, &ocm::namespace("kube-system")).await.unwrap();
    let id = system["metadata"]["uid"].as_str().unwrap();
    let cluster = |name: &str| ManagedCluster::named(name).in_set("s");
    for (name, cluster) in [
        ("local-cluster", cluster("local-cluster")),
        ("labelled", cluster("labelled").label("local-cluster", "true")),
        ("claiming", cluster("claiming").claim("id.k8s.io", id)),
        ("openshift", cluster("openshift").claim("id.openshift.io", "the-hub")),
        ("another", cluster("another").claim("id.k8s.io", "another")),
    ] {
        world::ensure_namespace(&hub.ocm, name).await;
        cluster.create(&hub.ocm).await.unwrap();
    }
    // OpenShift's ID of the hub, which the chart reads.
    let gvk = ("config.openshift.io", "v1", "ClusterVersion");
    world::install_open_crd(&hub, gvk, "Cluster").await;
    let version = Object::new(gvk, "clusterversions", None, "version");
    version.field("spec", json!({ "clusterID": "the-hub" })).create(&hub.ocm).await.unwrap();
    install(&hub, &ENABLED).await;
    let given = |cluster: &&str, words: &'static str| {
        [our_account_on(cluster, "app", |_| {}), our_work_on(cluster, |_| {})]
            .map(|object| (Create(object), words))
    };
    let itself = ["local-cluster", "labelled", "claiming", "openshift"];
    let mut cases: Vec<_> = itself.iter().flat_map(|it| given(it, "the hub itself")).collect();
    cases.extend(given(&"another", ""));
    judged_as(&hub, &user(COMPONENT), cases).await;
}

#[tokio::test]
async fn consumer_access_is_held_to_bindings_of_allowed_cluster_roles_to_its_own_account() {
    let hub = hub().await;
    let names = "with the names of its accounts";
    let nothing_but = "must contain nothing but manifests";
    let kinds = "only RoleBindings and ClusterRoleBindings";
    let allowed_roles = "only bind the ClusterRoles in consumerAccess.allowedClusterRoles";
    let account = "only grant permissions to the account";
    let own = "only change and delete ManifestWorks that it has created";
    let owned = "must be owned by its account";
    let subjects = |subjects: &[Value]| bound(|it| it["subjects"] = json!(subjects));
    let subject = |kind: &str, name: &str, namespace: &str| {
        subjects(&[json!({ "kind": kind, "name": name, "namespace": namespace })])
    };
    let two = [world::account(AGENTS, "app"), json!({ "kind": "User", "name": "eve" })];
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": { "name": "hub-addons:app:view" }, "rules": [],
    });
    let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "a", "namespace": "b" } });
    let fresh = |edit: fn(&mut Value)| Create(our_work(edit));
    let ours = our_work(|_| {});
    let empty = json!({ "workload": { "manifests": [] } });
    let theirs = world::object("ManifestWork", Some("team"), "eve").field("spec", empty.clone());
    let bare = work("team", "app").field("spec", empty.clone());
    world::create(&hub.ocm, [ours.clone(), theirs.clone(), bare.clone()]).await;
    let cases = vec![
        (fresh(|it| it["metadata"]["name"] = json!("eve")), names),
        (fresh(|it| it["metadata"]["labels"] = json!({})), "must have its labels"),
        (fresh(|it| it["metadata"]["ownerReferences"] = json!([])), owned),
        (fresh(|it| it["metadata"]["finalizers"] = json!([world::HOLD])), owned),
        (
            fresh(|it| it["spec"]["deleteOption"]["propagationPolicy"] = json!("Orphan")),
            nothing_but,
        ),
        (fresh(|it| it["spec"]["manifestConfigs"] = json!([])), nothing_but),
        // Other manifests.
        (applying(&role), kinds),
        (applying(&secret), kinds),
        (bound(|it| it["rules"] = json!([])), kinds),
        (bound(|it| it["metadata"]["name"] = json!("cluster-admin")), kinds),
        (bound(|it| it["metadata"]["finalizers"] = json!([world::HOLD])), kinds),
        // Other permissions.
        (applying(&binding(None, "cluster-admin")), allowed_roles),
        (applying(&binding(Some("jobs"), "admin")), allowed_roles),
        (bound(|it| it["roleRef"]["kind"] = json!("Role")), allowed_roles),
        (bound(|it| it["roleRef"] = json!({})), allowed_roles),
        // Other subjects.
        (subject("User", "app", AGENTS), account),
        (subject("Group", "system:authenticated", AGENTS), account),
        (subject("ServiceAccount", "eve", AGENTS), account),
        (subject("ServiceAccount", "app", "default"), account),
        (subjects(&[]), account),
        (subjects(&two), account),
        // What others have made.
        (labels(&theirs, marks()), names),
        (Delete(theirs), own),
        (Create(our_work_on("other", |_| {})), ""),
        // The names of the permissions of consumers are reserved, so that nothing that is stripped from them remains.
        (metadata(&bare, json!({ "labels": marks(), "ownerReferences": [owner()] })), ""),
        (Delete(bare), ""),
        (Patch(ours.clone(), json!({ "spec": empty })), ""),
        (Delete(ours), ""),
    ];
    judged_as(&hub, &user(COMPONENT), cases).await;
}

#[tokio::test]
async fn no_other_user_marks_or_changes_what_consumer_access_maintains() {
    let hub = hub().await;
    let (ours, permissions) = (our_account("app", |_| {}), our_work(|_| {}));
    let kept = our_account("held", |it| it["metadata"]["finalizers"] = json!([world::HOLD]));
    let foreign = account("team", "app");
    let empty = json!({ "workload": { "manifests": [] } });
    let foreign_work =
        world::object("ManifestWork", Some("team"), "eve").field("spec", empty.clone());
    let all = [&ours, &permissions, &kept, &foreign, &foreign_work];
    world::create(&hub.ocm, all.map(Clone::clone)).await;
    let create = "only consumer access may create";
    let change = "only consumer access may set or remove its labels";
    let named = our_work(|it| it["metadata"]["name"] = json!("hub-addons-consumer-eve"));
    let validity = json!({ "spec": { "rotation": { "validity": "1h" } } });
    let mut cases = vec![
        (Create(our_account("eve", |_| {})), create),
        (Create(named), create),
        (Create(work("team", "app").field("spec", empty.clone())), create),
        (labels(&foreign, marks()), change),
        (labels(&foreign_work, marks()), change),
        (Patch(ours.clone(), validity.clone()), change),
        (Patch(permissions.clone(), json!({ "spec": empty })), change),
        (metadata(&permissions, json!({ "ownerReferences": [] })), change),
        (labels(&ours, json!({ ocm::SYNC_LABEL: null })), change),
        (metadata(&ours, json!({ "annotations": null })), change),
        (held(&ours), change),
        // Agents write the status, and finalizers of ManifestWorks; people, other labels and annotations; anybody may delete.
        (Patch(foreign, validity), ""),
        (labels(&foreign_work, json!({ "theirs": "1" })), ""),
        (Create(account("default", "mine")), ""),
        (metadata(&permissions, json!({ "finalizers": [CLEANUP] })), ""),
        // A cluster manager has set one.
        (metadata(&kept, json!({ "finalizers": null })), ""),
        (labels(&kept, json!({ "theirs": "1" })), ""),
    ];
    let more = json!({ "labels": { "theirs": "1" }, "annotations": { "theirs": "1" } });
    for object in [&ours, &permissions] {
        for label in marks().as_object().unwrap().keys() {
            cases.push((labels(object, json!({ (label.as_str()): null })), change));
        }
        cases.extend([
            (metadata(object, more.clone()), ""),
            (PatchStatus(object.clone(), json!({ "conditions": [] })), ""),
            (Delete(object.clone()), ""),
        ]);
    }
    judged_as(&hub, "eve", cases).await;
}
