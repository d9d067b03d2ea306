//! Three attackers who know the program, with the permissions that each really has, on a hub with the chart's policies: the
//! agent of a compromised cluster, a tenant who administers a bound namespace, and each of our own processes.
//!
//! RBAC denies what has no policy, so this states which of the two holds where. Every request is a dry run.

use kube::Client;
use kube::api::PostParams;
use local_hub::ocm::{self, ManagedCluster};
use serde_json::{Value, json};

use crate::consumers::{self, ENABLED, our_account_on, our_work_on};
use crate::follow;
use crate::policies::copy;
use crate::support::Hub;
use crate::support::chart::Attempt::{Create, Delete, Patch, PatchStatus};
use crate::support::chart::{
    MASTERS, RELEASE, held, install, judged, labels, metadata, opaque, role_binding, user,
};
use crate::support::credentials::{SYNCED_FROM, profile};
use crate::support::rights::rule;
use crate::support::world::{self, ensure_namespace, subject};

/// What RBAC says to a request for which there is no permission.
pub(crate) const NO_PERMISSION: &str = "forbidden: User";

/// A hub where `team` is granted `c1`, with an account, permissions, a profile and a copy as the chart's processes create
/// them. No process runs.
async fn hub() -> Hub {
    let hub = consumers::hub().await;
    install(&hub, &[&ENABLED[..], &["policies.protectClusterSets.enabled=true"]].concat()).await;
    for cluster in ["c1", "c2"] {
        ensure_namespace(&hub.ocm, cluster).await;
        ManagedCluster::named(cluster).in_set("s").create(&hub.ocm).await.unwrap();
    }
    ocm::bound("team", "s").create(&hub.ocm).await.unwrap();
    for (component, objects) in [
        ("consumers", vec![our_account_on("c1", "app", |_| {}), our_work_on("c1", |_| {})]),
        ("profiles", vec![profile("team", "c1"), follow::ours(&follow::role())]),
        ("credentials", vec![copy("team", "app", |_| {})]),
    ] {
        let client = hub.client_like(&user(component), MASTERS).await.unwrap();
        for object in objects {
            object.create(&client).await.unwrap();
        }
    }
    hub
}

/// Binds a role with these rules, in a namespace or, without one, on the whole hub.
pub(crate) async fn permit(
    hub: &Hub,
    namespace: Option<&str>,
    name: &str,
    rules: &[&str],
    subject: Value,
) {
    let rules: Vec<_> = rules.iter().map(|text| rule(text)).collect();
    let role = world::object("ClusterRole", None, name).field("rules", json!(rules));
    role.create(&hub.ocm).await.unwrap();
    bind(hub, namespace, name, subject).await;
}

pub(crate) async fn bind(hub: &Hub, namespace: Option<&str>, role: &str, subject: Value) {
    let name = format!("{}-{role}", subject["name"].as_str().unwrap()).replace(':', "-");
    let binding = world::binding(namespace, &name, ("ClusterRole", role), subject);
    binding.create(&hub.ocm).await.unwrap();
}

/// The permissions are those that Open Cluster Management gives its agents and managed-serviceaccount its own, with
/// `patch` where they have `update`, to which the same policies apply.
async fn agent(hub: &Hub) -> Client {
    let group = subject("Group", "system:open-cluster-management:c1");
    let itself = "get,list,update,patch,watch managedclusters,managedclusters/status.cluster.open-cluster-management.io named c1";
    permit(hub, None, "agent-of-c1", &[itself], group.clone()).await;
    let (_, namespace, name) = BY_TOKEN;
    bind(hub, None, "agent-of-c1", world::account(namespace, name)).await;
    let in_namespace = [
        "get,list,watch,update,patch manifestworks,manifestworks/status.work.open-cluster-management.io",
        "patch,update managedclusteraddons/status.addon.open-cluster-management.io",
        "create events.events.k8s.io",
        "get,list,watch,create,update secrets",
        "get,list,watch,update,patch,delete managedserviceaccounts,managedserviceaccounts/status.authentication.open-cluster-management.io",
    ];
    permit(hub, Some("c1"), "agents", &in_namespace, group).await;
    let groups = ["system:open-cluster-management:c1", "system:authenticated"];
    hub.client_like("system:open-cluster-management:c1:agent", &groups).await.unwrap()
}

/// An agent whose addon is registered with OCM's token driver.
const BY_TOKEN: (&str, &str, &str) =
    ("system:serviceaccount:c1:cluster-proxy-agent", "c1", "cluster-proxy-agent");

#[tokio::test]
async fn the_agent_of_a_compromised_cluster_gains_nothing_beyond_its_own_token() {
    let hub = hub().await;
    let agent = agent(&hub).await;
    let [c1, c2] = ["c1", "c2"].map(|name| ocm::Object::from(ManagedCluster::named(name)));
    let (account, work) = (our_account_on("c1", "app", |_| {}), our_work_on("c1", |_| {}));
    let sets = "an agent may not change the labels of its ManagedCluster";
    let ours = "only consumer access may set or remove its labels";
    let elsewhere = json!({ "annotations": { ocm::SYNC_NAMESPACES_ANNOTATION: "other" } });
    let claims = json!({ "clusterClaims": [{ "name": "a", "value": "b" }] });
    // To join a set that selects by label. Open Cluster Management's webhook adds the default set to what an agent writes, and
    // guards the label.
    let of_cluster = vec![
        (labels(&c1, json!({ "environment": "production" })), sets),
        (labels(&c2, json!({ "environment": "production" })), NO_PERMISSION),
        (labels(&c1, json!({ ocm::SET_LABEL: "default" })), ""),
    ];
    let (by_token, ..) = BY_TOKEN;
    let groups = ["system:serviceaccounts", "system:serviceaccounts:c1", "system:authenticated"];
    let by_token = hub.client_like(by_token, &groups).await.unwrap();
    judged(&by_token, of_cluster.clone()).await;
    judged(&agent, of_cluster).await;
    let cases = vec![
        // To be taken for another cluster.
        (labels(&c1, json!({ "local-cluster": "true" })), sets),
        (Patch(c1.clone(), json!({ "spec": { "leaseDurationSeconds": 30 } })), ""),
        (PatchStatus(c1, claims), ""),
        // To keep an account whose grant ends, or to offer its token elsewhere.
        (labels(&account, json!({ "app.kubernetes.io/managed-by": null })), ours),
        (metadata(&account, elsewhere), ours),
        (held(&account), ours),
        (
            Patch(account.clone(), json!({ "spec": { "rotation": { "validity": "9000h0m0s" } } })),
            ours,
        ),
        // Consumer access creates it again.
        (Delete(account), ""),
        (Create(our_account_on("c1", "more", |_| {})), NO_PERMISSION),
        (Patch(work, json!({ "spec": { "workload": { "manifests": [] } } })), ours),
        // To have a Secret taken for a copy, or one written elsewhere.
        (Create(opaque("c1", "fake").label(SYNCED_FROM, "fake")), FAKE),
        (Create(opaque("c1", "reported")), ""),
        (Create(opaque("team", "c1-app")), NO_PERMISSION),
        (Create(opaque("c2", "app")), NO_PERMISSION),
        (Create(profile("team", "c3")), NO_PERMISSION),
        (Create(role_binding("c1", "mine")), NO_PERMISSION),
        (Create(ocm::bound("c1", "s")), NO_PERMISSION),
    ];
    judged(&agent, cases).await;
}

const FAKE: &str = "only the credential syncer may create Secrets";

#[tokio::test]
async fn a_tenant_who_administers_a_bound_namespace_gains_nothing_around_the_controllers() {
    let hub = hub().await;
    let eve = || subject("User", "eve");
    // What `edit` and `admin` aggregate; the controller that does so is not among those of this hub.
    for role in ["view", "edit", "admin"] {
        bind(&hub, Some("team"), &format!("system:aggregate-to-{role}"), eve()).await;
    }
    let client = hub.client_like("eve", &["system:authenticated"]).await.unwrap();
    let bound = |name: &str, kind: &str, role: &str| {
        Create(world::binding(Some("team"), name, (kind, role), eve()))
    };
    let token = copy("team", "app", |_| {});
    let copies = format!("{RELEASE}-credentials-copies");
    let reserved = "only credential rights may create and change RoleBindings with the name";
    let follows = "only credential rights may bind the Role of a ClusterAccess";
    let unchanged = "only the credential syncer may change a copy of a token";
    let escalation = "attempting to grant RBAC permissions not currently held";
    let spec = json!({ "identity": "Copy", "serviceAccountNames": ["app"] });
    let cases = vec![
        // To keep a token beyond its grant, or to put another one in its place.
        (labels(&token, json!({ SYNCED_FROM: null })), unchanged),
        (metadata(&token, json!({ "ownerReferences": null })), unchanged),
        (held(&token), unchanged),
        (Patch(token.clone(), json!({ "data": { "token": "ZXZl" } })), unchanged),
        (Create(opaque("team", "fake").label(SYNCED_FROM, "fake")), FAKE),
        // The syncer creates it again, while it is granted.
        (Delete(token), ""),
        (Create(opaque("team", "own")), ""),
        // To keep the syncer from deleting copies.
        (Create(role_binding("team", &copies)), reserved),
        // To have the permissions that a consumer's Role is about to get, or those of our processes.
        (bound("follow", "Role", "hub-addons-cluster-access-app"), follows),
        (bound("profiles", "ClusterRole", "hub-addons-profiles"), escalation),
        (bound("consumers", "ClusterRole", "hub-addons-consumers"), escalation),
        // Who administers the namespace already reads its Secrets: this adds nothing.
        (bound("copies", "ClusterRole", &copies), ""),
        (Create(ocm::cluster_access("team", "mine", &spec)), NO_PERMISSION),
        // To lead consumers elsewhere, and to be granted clusters.
        (Create(profile("team", "c2")), NO_PERMISSION),
        (PatchStatus(profile("team", "c1"), json!({ "accessProviders": [] })), NO_PERMISSION),
        (Create(ocm::bound("team", "other")), NO_PERMISSION),
        (Create(our_account_on("c1", "more", |_| {})), NO_PERMISSION),
        (Create(opaque("c1", "app")), NO_PERMISSION),
    ];
    judged(&client, cases).await;
}

/// What would lead one of our processes beyond what SECURITY.md says of it: verb, resource with its group, and namespace and
/// name if there are any.
const BEYOND: &[&str] = &[
    "list secrets",
    "get secrets kube-system/bootstrap",
    "list secrets addons/",
    "create secrets kube-system/",
    "create pods addons/",
    "create serviceaccounts/token addons/",
    "impersonate users /admin",
    "get nodes/proxy",
    "delete namespaces /team",
    "patch deployments.apps addons/hub-addons-profiles",
    "create clusterrolebindings.rbac.authorization.k8s.io",
    "create clusterroles.rbac.authorization.k8s.io",
    "bind clusterroles.rbac.authorization.k8s.io /cluster-admin",
    "escalate clusterroles.rbac.authorization.k8s.io /view",
    "patch validatingadmissionpolicies.admissionregistration.k8s.io /hub-addons-profiles",
    "delete validatingadmissionpolicybindings.admissionregistration.k8s.io /hub-addons-profiles",
    "update certificatesigningrequests/approval.certificates.k8s.io",
    "patch managedclusters.cluster.open-cluster-management.io /c1",
    "create managedclustersetbindings.cluster.open-cluster-management.io team/",
    "create managedclustersets/bind.cluster.open-cluster-management.io /s",
    "execute-as manifestworks.work.open-cluster-management.io c1/",
    "create clusteraccesses.access.open-cluster-management.io team/",
    "patch clusteraccesses.access.open-cluster-management.io team/app",
    "bind clusterroles.access.open-cluster-management.io /view",
];

#[tokio::test]
async fn no_process_has_a_permission_that_leads_beyond_its_task() {
    let hub = hub().await;
    let review = async |component: &str, request: &str| {
        let mut words = request.split(' ');
        let (verb, resource) = (words.next().unwrap(), words.next().unwrap());
        let (namespace, name) = words.next().unwrap_or("/").split_once('/').unwrap();
        let (resource, group) = resource.split_once('.').unwrap_or((resource, ""));
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        let attributes = json!({
            "verb": verb, "group": group, "resource": resource, "subresource": subresource,
            "namespace": namespace, "name": name,
        });
        let spec = json!({ "user": user(component), "resourceAttributes": attributes });
        let review = world::object("SubjectAccessReview", None, "").field("spec", spec);
        let parsed = review.parse().unwrap();
        let reviewed = review.api(&hub.ocm).create(&PostParams::default(), &parsed).await;
        reviewed.unwrap().data["status"]["allowed"] == true
    };
    for component in ["profiles", "credentials", "consumers"] {
        // What each may: the review is about the right user.
        assert!(review(component, "create events.events.k8s.io team/").await, "{component}");
        for beyond in BEYOND {
            assert!(!review(component, beyond).await, "{component} may {beyond}");
        }
    }
}
