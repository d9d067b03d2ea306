//! Access that a ClusterAccess declares: what is maintained for it, with which permissions, and what a process with these
//! permissions cannot do.

use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use local_hub::ocm::{self, ManagedCluster, Object, ServiceAccountToken};
use local_hub::{LocalHub, eventually};
use serde_json::{Value, json};

use crate::support::chart::{
    Attempt, MASTERS, helm, install, install_arguments, refused_writes, run, start, start_all, user,
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
const ACCOUNTS: &str = "'hub-addons-consumers-accounts'";
const WORKS: &str = "'hub-addons-consumers-manifestworks'";
pub(crate) const OTHERS: &str = "'hub-addons-consumer-access'";

pub(crate) fn account(cluster: &str, name: &str) -> Object {
    ocm::managed_service_account(cluster, name)
}

pub(crate) fn work(cluster: &str, account: &str) -> Object {
    let gvk = ("work.open-cluster-management.io", "v1", "ManifestWork");
    Object::new(gvk, "manifestworks", Some(cluster), &format!("hub-addons-consumer-{account}"))
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
    let hub = Hub::start(LocalHub::builder().without_controller_manager(), Vec::new()).await;
    world::create(
        &hub.ocm,
        [ocm::namespace("team"), ocm::namespace("other"), ocm::cluster_set("s")],
    )
    .await;
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
    eventually(&format!("{cluster} has account and permissions"), SOON, async || {
        get(&hub.ocm, &account(cluster, "app")).await.is_some()
            && get(&hub.ocm, &work(cluster, "app")).await.is_some()
    })
    .await;
}

/// Whether the MultiKueueConfig lists a cluster.
async fn is_queued(hub: &Hub, cluster: &str) -> bool {
    let config = get(&hub.ocm, &multi_kueue_config("multikueue")).await.unwrap_or_default();
    config["spec"]["clusters"].as_array().is_some_and(|list| list.iter().any(|it| it == cluster))
}

async fn queued(hub: &Hub, cluster: &str) {
    eventually(&format!("{cluster} is listed for Kueue"), SOON, async || {
        get(&hub.ocm, &multi_kueue_cluster(cluster)).await.is_some()
            && is_queued(hub, cluster).await
    })
    .await;
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
    assert_eq!(
        get(&hub.ocm, &copy("other", &token)).await,
        None,
        "the account is limited to its consumer"
    );

    queued(&hub, "c1").await;
    let astray =
        json!({ "spec": { "clusterSource": { "clusterProfileRef": { "name": "other" } } } });
    merge(&hub.ocm, &multi_kueue_cluster("c1"), &astray).await;
    eventually("the MultiKueueCluster refers to its own profile", SOON, async || {
        let now = get(&hub.ocm, &multi_kueue_cluster("c1")).await.unwrap_or_default();
        now["spec"]["clusterSource"]["clusterProfileRef"]["name"] == "c1"
    })
    .await;
    // An edit by hand is undone, within what the policies allow.
    for object in [account("c1", "app"), work("c1", "app")] {
        merge(&hub.ocm, &object, &json!({ "metadata": { "labels": null } })).await;
        eventually(&format!("{object} has its labels again"), SOON, async || {
            let now = get(&hub.ocm, &object).await.unwrap_or_default();
            now["metadata"]["labels"]["app.kubernetes.io/component"] == "consumer-access"
        })
        .await;
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
    assert_eq!(
        writes.len(),
        4,
        "account, permissions, MultiKueueCluster and MultiKueueConfig: {writes}"
    );

    // The grant ends.
    world::delete(&hub.ocm, &ocm::bound("team", "s")).await;
    for cluster in ["c1", "c2"] {
        world::gone(&hub.ocm, &account(cluster, "app")).await;
        world::gone(&hub.ocm, &work(cluster, "app")).await;
        world::gone(&hub.ocm, &multi_kueue_cluster(cluster)).await;
    }
    world::gone(&hub.ocm, &multi_kueue_config("multikueue")).await;
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
    eventually("the cluster of the Placement has the account", SOON, async || {
        get(&hub.ocm, &account("c1", "placed")).await.is_some()
    })
    .await;
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
    world::gone(&hub.ocm, &account("c1", "app")).await;
    world::gone(&hub.ocm, &work("c1", "app")).await;
    world::gone(&hub.ocm, &multi_kueue_cluster("c1")).await;
    world::gone(&hub.ocm, &multi_kueue_config("multikueue")).await;
    let refused_writes = refused_writes(&hub, COMPONENT).await;
    assert!(refused_writes.is_empty(), "{refused_writes}");
    process.stop().await;
    install(&hub, &disabled).await;
    let gvk = ("apps", "v1", "Deployment");
    let deployment = Object::new(gvk, "deployments", Some("addons"), "hub-addons-consumers");
    assert_eq!(get(&hub.ocm, &deployment).await, None);
    // Labels that are set now would make the object ours as soon as consumer access is enabled.
    let words = "only consumer access may create";
    let forged =
        [our_account("app", |_| {}), our_work(|_| {})].map(|it| (Attempt::Create(it), words));
    refused(&hub, "eve", forged.into(), OTHERS).await;
    allowed(&hub, "eve", vec![Attempt::Create(account("default", "app"))]).await;
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

fn binding(kind: &str, namespace: Option<&str>, role: &str) -> Value {
    let mut metadata = json!({ "name": format!("hub-addons:app:{role}") });
    if let Some(namespace) = namespace {
        metadata["namespace"] = json!(namespace);
    }
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": metadata,
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role },
        "subjects": [{ "kind": "ServiceAccount", "name": "app", "namespace": AGENTS }],
    })
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
    let manifests =
        [binding("ClusterRoleBinding", None, "view"), binding("RoleBinding", Some("jobs"), "edit")];
    let mut body = json!({
        "metadata": {
            "name": "hub-addons-consumer-app", "namespace": cluster, "labels": marks(),
            "ownerReferences": [owner()],
        },
        "spec": { "workload": { "manifests": manifests } },
    });
    edit(&mut body);
    let name = body["metadata"]["name"].as_str().unwrap().to_owned();
    let gvk = ("work.open-cluster-management.io", "v1", "ManifestWork");
    Object::new(gvk, "manifestworks", Some(cluster), &name)
        .field("metadata", body["metadata"].take())
        .field("spec", body["spec"].take())
}

/// The same with this manifest.
fn applying(manifest: &Value) -> Attempt {
    Attempt::Create(our_work(|work| work["spec"]["workload"]["manifests"] = json!([manifest])))
}

/// A binding of a declared ClusterRole, edited.
fn bound(edit: impl FnOnce(&mut Value)) -> Attempt {
    let mut binding = binding("ClusterRoleBinding", None, "view");
    edit(&mut binding);
    applying(&binding)
}

pub(crate) async fn refused(hub: &Hub, who: &str, cases: Vec<(Attempt, &str)>, policy: &str) {
    let client = hub.client_like(who, MASTERS).await.unwrap();
    for (attempt, words) in cases {
        eventually(&format!("{attempt:?} is refused"), SOON, async || {
            let refusal = attempt.by(&client).await.err().unwrap_or_default();
            if refusal.contains(policy) && refusal.contains(words) { Ok(()) } else { Err(refusal) }
        })
        .await;
    }
}

pub(crate) async fn allowed(hub: &Hub, who: &str, attempts: Vec<Attempt>) {
    let client = hub.client_like(who, MASTERS).await.unwrap();
    for attempt in attempts {
        assert_eq!(attempt.by(&client).await, Ok(()), "{attempt:?}");
    }
}

#[tokio::test]
async fn consumer_access_is_held_to_accounts_whose_tokens_go_to_one_unprotected_namespace() {
    use Attempt::{Create, Delete, Patch};
    let hub = hub().await;
    let labels = "must have its labels";
    let limited = "must be limited to one namespace";
    let rotation = "may only write the rotation";
    let own = "only change and delete ManagedServiceAccounts that it has created";
    let bare = "must not set owners and finalizers";
    let annotated = |namespaces: &str| {
        our_account("app", |it| {
            it["metadata"]["annotations"][ocm::SYNC_NAMESPACES_ANNOTATION] = json!(namespaces);
        })
    };
    let owner = json!([{ "apiVersion": "v1", "kind": "Namespace", "name": "default", "uid": "1" }]);
    let ours = our_account("app", |_| {});
    let foreign = account("team", "app");
    let annotations = json!({ ocm::SYNC_NAMESPACES_ANNOTATION: "team" });
    let taken = json!({ "metadata": { "labels": marks(), "annotations": annotations } });
    allowed(&hub, &user(COMPONENT), vec![Create(ours.clone())]).await;
    world::create(&hub.ocm, [ours.clone(), foreign.clone()]).await;
    let fresh = |edit: fn(&mut Value)| Create(our_account("app", edit));
    let cases = vec![
        (fresh(|it| it["metadata"]["labels"] = json!({})), labels),
        (
            fresh(|it| it["metadata"]["labels"]["hub-addons/installation"] = json!("elsewhere")),
            labels,
        ),
        (fresh(|it| it["metadata"]["annotations"] = json!({})), limited),
        (Create(annotated("")), limited),
        (Create(annotated("team,other")), limited),
        (Create(annotated("kube-system")), limited),
        (Create(annotated("open-cluster-management-hub")), limited),
        (Create(annotated("addons")), limited),
        (Create(our_account("cluster-proxy", |_| {})), "another component's ServiceAccount"),
        (fresh(|it| it["metadata"]["labels"]["reflect-to"] = json!("all")), "not its own"),
        (fresh(|it| it["spec"]["ttlSecondsAfterCreation"] = json!(1)), rotation),
        (Create(our_account("app", |it| it["metadata"]["ownerReferences"] = owner)), bare),
        (fresh(|it| it["metadata"]["finalizers"] = json!(["example.com/hold"])), bare),
        (Patch(ours.clone(), json!({ "metadata": { "annotations": null } })), limited),
        (Patch(ours.clone(), json!({ "metadata": { "labels": null } })), labels),
        (Patch(foreign.clone(), taken), own),
        (Delete(foreign), own),
    ];
    refused(&hub, &user(COMPONENT), cases, ACCOUNTS).await;
    let rotates = json!({ "spec": { "rotation": { "enabled": false } } });
    allowed(&hub, &user(COMPONENT), vec![Patch(ours.clone(), rotates), Delete(ours)]).await;
}

#[tokio::test]
async fn consumer_access_is_held_to_accounts_where_the_addon_of_the_cluster_shows_them() {
    use Attempt::Create;
    let hub = hub().await;
    let gvk = ("addon.open-cluster-management.io", "v1alpha1", "ManagedClusterAddOn");
    let addon = |cluster: &str| {
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
    ];
    refused(&hub, &user(COMPONENT), cases, "'hub-addons-consumers-namespaces'").await;
    let attempts = vec![in_namespace("bare", AGENTS), in_namespace("elsewhere", "agents")];
    allowed(&hub, &user(COMPONENT), attempts).await;

    // The process follows the same.
    let _running = start_all(&hub, &["profiles", "credentials", COMPONENT]).await;
    ocm::bound("team", "s").create(&hub.ocm).await.unwrap();
    let subject = |cluster: &'static str, namespace: &'static str| {
        let hub = &hub;
        async move {
            eventually(&format!("the account of {cluster} is in {namespace}"), SOON, async || {
                let work = get(&hub.ocm, &work(cluster, "app")).await.unwrap_or_default();
                work["spec"]["workload"]["manifests"][0]["subjects"][0]["namespace"] == namespace
            })
            .await;
        }
    };
    subject("bare", AGENTS).await;
    subject("elsewhere", "agents").await;
    world::merge_status(&hub.ocm, &addon("bare"), &json!({ "namespace": "agents" })).await;
    subject("bare", "agents").await;
}

#[tokio::test]
async fn consumer_access_is_held_to_give_nothing_on_the_hub_itself_whatever_its_name_is() {
    use Attempt::Create;
    let hub = hub().await;
    let system = get(&hub.ocm, &ocm::namespace("kube-system")).await.unwrap();
    let cluster = |name: &str| ManagedCluster::named(name).in_set("s");
    for (name, cluster) in [
        ("local-cluster", cluster("local-cluster")),
        ("labelled", cluster("labelled").label("local-cluster", "true")),
        (
            "claiming",
            cluster("claiming").claim("id.k8s.io", system["metadata"]["uid"].as_str().unwrap()),
        ),
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
    for cluster in ["local-cluster", "labelled", "claiming", "openshift"] {
        for (object, policy) in [
            (our_account_on(cluster, "app", |_| {}), ACCOUNTS),
            (our_work_on(cluster, |_| {}), WORKS),
        ] {
            refused(&hub, &user(COMPONENT), vec![(Create(object), "the hub itself")], policy).await;
        }
    }
    let objects = vec![
        Create(our_account_on("another", "app", |_| {})),
        Create(our_work_on("another", |_| {})),
    ];
    allowed(&hub, &user(COMPONENT), objects).await;
}

#[tokio::test]
async fn consumer_access_is_held_to_bindings_of_allowed_cluster_roles_to_its_own_account() {
    use Attempt::{Create, Delete, Patch};
    let hub = hub().await;
    let names = "with the names of its accounts";
    let nothing_but = "must contain nothing but manifests";
    let kinds = "only RoleBindings and ClusterRoleBindings";
    let allowed_roles = "only bind the ClusterRoles in consumerAccess.allowedClusterRoles";
    let account = "only grant permissions to the account";
    let own = "only change and delete ManifestWorks that it has created";
    let owned = "must be owned by its account";
    let subject = |kind: &str, name: &str, namespace: &str| {
        let subject = json!([{ "kind": kind, "name": name, "namespace": namespace }]);
        bound(|it| it["subjects"] = subject)
    };
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": { "name": "hub-addons:app:view" }, "rules": [],
    });
    let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "a", "namespace": "b" } });
    let fresh = |edit: fn(&mut Value)| Create(our_work(edit));
    let cases = vec![
        (fresh(|it| it["metadata"]["name"] = json!("eve")), names),
        (fresh(|it| it["metadata"]["labels"] = json!({})), "must have its labels"),
        (fresh(|it| it["metadata"]["ownerReferences"] = json!([])), owned),
        (fresh(|it| it["metadata"]["finalizers"] = json!(["example.com/hold"])), owned),
        (
            fresh(|it| it["spec"]["deleteOption"] = json!({ "propagationPolicy": "Orphan" })),
            nothing_but,
        ),
        (fresh(|it| it["spec"]["manifestConfigs"] = json!([])), nothing_but),
        // Other manifests.
        (applying(&role), kinds),
        (applying(&secret), kinds),
        (bound(|it| it["rules"] = json!([])), kinds),
        (bound(|it| it["metadata"]["name"] = json!("cluster-admin")), kinds),
        (bound(|it| it["metadata"]["finalizers"] = json!(["example.com/hold"])), kinds),
        // Other permissions.
        (applying(&binding("ClusterRoleBinding", None, "cluster-admin")), allowed_roles),
        (applying(&binding("RoleBinding", Some("jobs"), "admin")), allowed_roles),
        (bound(|it| it["roleRef"]["kind"] = json!("Role")), allowed_roles),
        (bound(|it| it["roleRef"] = json!({})), allowed_roles),
        // Other subjects.
        (subject("User", "app", AGENTS), account),
        (subject("Group", "system:authenticated", AGENTS), account),
        (subject("ServiceAccount", "eve", AGENTS), account),
        (subject("ServiceAccount", "app", "default"), account),
        (bound(|it| it["subjects"] = json!([])), account),
        (
            bound(|it| {
                let eve = json!({ "kind": "User", "name": "eve" });
                it["subjects"].as_array_mut().unwrap().push(eve);
            }),
            account,
        ),
    ];
    refused(&hub, &user(COMPONENT), cases, WORKS).await;
    let ours = our_work(|_| {});
    allowed(&hub, &user(COMPONENT), vec![Create(ours.clone())]).await;
    let empty = json!({ "workload": { "manifests": [] } });
    let gvk = ("work.open-cluster-management.io", "v1", "ManifestWork");
    let theirs =
        Object::new(gvk, "manifestworks", Some("team"), "eve").field("spec", empty.clone());
    let bare = work("team", "app").field("spec", empty.clone());
    world::create(&hub.ocm, [ours.clone(), theirs.clone(), bare.clone()]).await;
    let marked = json!({ "metadata": { "labels": marks() } });
    let cases = vec![(Patch(theirs.clone(), marked), names), (Delete(theirs), own)];
    refused(&hub, &user(COMPONENT), cases, WORKS).await;
    // The names of the permissions of consumers are reserved, so that nothing that is stripped from them remains.
    let restored = json!({ "metadata": { "labels": marks(), "ownerReferences": [owner()] } });
    let attempts = vec![
        Patch(bare.clone(), restored),
        Delete(bare),
        Patch(ours.clone(), json!({ "spec": empty })),
        Delete(ours),
    ];
    allowed(&hub, &user(COMPONENT), attempts).await;
}

#[tokio::test]
async fn no_other_user_marks_or_changes_what_consumer_access_maintains() {
    use Attempt::{Create, Delete, Patch, PatchStatus};
    let hub = hub().await;
    let (ours, permissions) = (our_account("app", |_| {}), our_work(|_| {}));
    let held = our_account("held", |it| it["metadata"]["finalizers"] = json!(["example.com/hold"]));
    let gvk = ("work.open-cluster-management.io", "v1", "ManifestWork");
    let foreign = account("team", "app");
    let foreign_work = Object::new(gvk, "manifestworks", Some("team"), "eve")
        .field("spec", json!({ "workload": { "manifests": [] } }));
    let all = [&ours, &permissions, &held, &foreign, &foreign_work];
    world::create(&hub.ocm, all.map(Clone::clone)).await;
    let reserved = work("team", "app").field("spec", json!({ "workload": { "manifests": [] } }));
    let create = "only consumer access may create";
    let change = "only consumer access may set or remove its labels";
    let metadata = |patch: Value| json!({ "metadata": patch });
    let marked = metadata(json!({ "labels": marks() }));
    let mut cases = vec![
        (Create(our_account("eve", |_| {})), create),
        (Create(our_work(|it| it["metadata"]["name"] = json!("hub-addons-consumer-eve"))), create),
        (Create(reserved), create),
        (Patch(foreign.clone(), marked.clone()), change),
        (Patch(foreign_work.clone(), marked), change),
        (Patch(ours.clone(), json!({ "spec": { "rotation": { "validity": "1h" } } })), change),
        (
            Patch(permissions.clone(), json!({ "spec": { "workload": { "manifests": [] } } })),
            change,
        ),
        (Patch(permissions.clone(), metadata(json!({ "ownerReferences": [] }))), change),
        (Patch(ours.clone(), metadata(json!({ "labels": { ocm::SYNC_LABEL: null } }))), change),
        (Patch(ours.clone(), metadata(json!({ "annotations": null }))), change),
        (Patch(ours.clone(), metadata(json!({ "finalizers": ["example.com/hold"] }))), change),
    ];
    for label in marks().as_object().unwrap().keys() {
        for object in [&ours, &permissions] {
            let stripped = metadata(json!({ "labels": { (label.as_str()): null } }));
            cases.push((Patch(object.clone(), stripped), change));
        }
    }
    refused(&hub, "eve", cases, OTHERS).await;

    // Agents write the status, and finalizers of ManifestWorks; people, other labels and annotations; anybody may delete.
    let agents = metadata(json!({ "labels": { "theirs": "1" }, "annotations": { "theirs": "1" } }));
    let finalizers = json!(["cluster.open-cluster-management.io/manifest-work-cleanup"]);
    let mut attempts = vec![
        Patch(foreign.clone(), json!({ "spec": { "rotation": { "validity": "1h" } } })),
        Patch(foreign_work, metadata(json!({ "labels": { "theirs": "1" } }))),
        Create(account("default", "mine")),
        Patch(permissions.clone(), metadata(json!({ "finalizers": finalizers }))),
        // A cluster manager has set one.
        Patch(held.clone(), metadata(json!({ "finalizers": null }))),
        Patch(held, metadata(json!({ "labels": { "theirs": "1" } }))),
    ];
    for object in [ours, permissions] {
        attempts.extend([
            Patch(object.clone(), agents.clone()),
            PatchStatus(object.clone(), json!({ "conditions": [] })),
            Delete(object),
        ]);
    }
    allowed(&hub, "eve", attempts).await;
}
