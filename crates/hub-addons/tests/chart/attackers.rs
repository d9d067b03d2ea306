//! Three attackers who know the program, with the permissions that each really has, on a hub with the chart's policies: the
//! agent of a compromised cluster, a tenant who administers a bound namespace, and each of our own processes.
//!
//! RBAC denies what has no policy, so this states which of the two holds where. Every request is a dry run.

use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::api::PostParams;
use kube::{Api, Client};
use local_hub::eventually;
use local_hub::ocm::{self, ManagedCluster, Object};
use serde_json::{Value, json};

use crate::consumers::{self, ENABLED, our_account_on, our_work_on};
use crate::follow;
use crate::policies::copy;
use crate::support::chart::Attempt::{self, Create, Delete, Patch, PatchStatus};
use crate::support::chart::{MASTERS, NAMESPACE, RELEASE, install, opaque, role_binding, user};
use crate::support::credentials::{SYNCED_FROM, profile};
use crate::support::world::ensure_namespace;
use crate::support::{Hub, SOON};

pub(crate) const RBAC: &str = "rbac.authorization.k8s.io";
const ACCESS: &str = "access.open-cluster-management.io";
/// What RBAC says to a request for which there is no permission.
pub(crate) const NO_PERMISSION: &str = "forbidden: User";
const LABELS: &str = "policies.protectClusterSets.enabled=true";

/// A hub where `team` is granted `c1`, with an account, permissions, a profile and a copy as the chart's processes create
/// them. No process runs.
async fn hub() -> Hub {
    let hub = consumers::hub().await;
    install(&hub, &[&ENABLED[..], &[LABELS]].concat()).await;
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
    rules: Value,
    subject: Value,
) {
    let role =
        Object::new((RBAC, "v1", "ClusterRole"), "clusterroles", None, name).field("rules", rules);
    bind(hub, namespace, name, subject).await;
    role.create(&hub.ocm).await.unwrap();
}

pub(crate) async fn bind(hub: &Hub, namespace: Option<&str>, role: &str, subject: Value) {
    let (kind, plural) = match namespace {
        Some(_) => ("RoleBinding", "rolebindings"),
        None => ("ClusterRoleBinding", "clusterrolebindings"),
    };
    let name = format!("{}-{role}", subject["name"].as_str().unwrap()).replace(':', "-");
    Object::new((RBAC, "v1", kind), plural, namespace, &name)
        .field("roleRef", json!({ "apiGroup": RBAC, "kind": "ClusterRole", "name": role }))
        .field("subjects", json!([subject]))
        .create(&hub.ocm)
        .await
        .unwrap();
}

/// Each attempt is refused with these words, or allowed where there are none.
pub(crate) async fn attempts(client: &Client, cases: Vec<(Attempt, &str)>) {
    for (attempt, words) in cases {
        // A policy or a role that is new takes the API server a moment.
        eventually(&format!("{attempt:?} ends with {words:?}"), SOON, async || {
            match attempt.by(client).await {
                Ok(()) if words.is_empty() => Ok(()),
                Err(refusal) if !words.is_empty() && refusal.contains(words) => Ok(()),
                answer => Err(format!("{answer:?}")),
            }
        })
        .await;
    }
}

/// The permissions are those that Open Cluster Management gives its agents and managed-serviceaccount its own, with
/// `patch` where they have `update`, to which the same policies apply.
async fn agent(hub: &Hub) -> Client {
    let group =
        json!({ "apiGroup": RBAC, "kind": "Group", "name": "system:open-cluster-management:c1" });
    let rule = |group: &str, resources: &[&str], verbs: &[&str]| json!({ "apiGroups": [group], "resources": resources, "verbs": verbs });
    let itself = json!({
        "apiGroups": ["cluster.open-cluster-management.io"], "resources": ["managedclusters", "managedclusters/status"],
        "resourceNames": ["c1"], "verbs": ["get", "list", "update", "patch", "watch"],
    });
    permit(hub, None, "agent-of-c1", json!([itself]), group.clone()).await;
    let (_, namespace, name) = BY_TOKEN;
    let by_token = json!({ "kind": "ServiceAccount", "namespace": namespace, "name": name });
    bind(hub, None, "agent-of-c1", by_token).await;
    let read_and_change = ["get", "list", "watch", "update", "patch"];
    let in_namespace = json!([
        rule(
            "work.open-cluster-management.io",
            &["manifestworks", "manifestworks/status"],
            &read_and_change
        ),
        rule(
            "addon.open-cluster-management.io",
            &["managedclusteraddons/status"],
            &["patch", "update"]
        ),
        rule("events.k8s.io", &["events"], &["create"]),
        rule("", &["secrets"], &["get", "list", "watch", "create", "update"]),
        rule(
            "authentication.open-cluster-management.io",
            &["managedserviceaccounts", "managedserviceaccounts/status"],
            &["get", "list", "watch", "update", "patch", "delete"],
        ),
    ]);
    permit(hub, Some("c1"), "agents", in_namespace, group).await;
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
    let cluster = |name: &str| Object::from(ManagedCluster::named(name));
    let labels = |labels: Value| json!({ "metadata": { "labels": labels } });
    let (account, work) = (our_account_on("c1", "app", |_| {}), our_work_on("c1", |_| {}));
    let sets = "an agent may not change the labels of its ManagedCluster";
    let ours = "only consumer access may set or remove its labels";
    let others =
        json!({ "metadata": { "annotations": { ocm::SYNC_NAMESPACES_ANNOTATION: "other" } } });
    let (by_token, ..) = BY_TOKEN;
    let groups = ["system:serviceaccounts", "system:serviceaccounts:c1", "system:authenticated"];
    let cases = vec![
        (Patch(cluster("c1"), labels(json!({ "environment": "production" }))), sets),
        (Patch(cluster("c2"), labels(json!({ "environment": "production" }))), NO_PERMISSION),
        (Patch(cluster("c1"), labels(json!({ ocm::SET_LABEL: "default" }))), ""),
    ];
    attempts(&hub.client_like(by_token, &groups).await.unwrap(), cases).await;
    attempts(
        &agent,
        vec![
            // To join a set that selects by label, or to be taken for another cluster.
            (Patch(cluster("c1"), labels(json!({ "environment": "production" }))), sets),
            (Patch(cluster("c1"), labels(json!({ "local-cluster": "true" }))), sets),
            (Patch(cluster("c2"), labels(json!({ "environment": "production" }))), NO_PERMISSION),
            // Open Cluster Management's webhook adds the default set to what an agent writes, and guards the label.
            (Patch(cluster("c1"), labels(json!({ ocm::SET_LABEL: "default" }))), ""),
            (Patch(cluster("c1"), json!({ "spec": { "leaseDurationSeconds": 30 } })), ""),
            (
                PatchStatus(
                    cluster("c1"),
                    json!({ "clusterClaims": [{ "name": "a", "value": "b" }] }),
                ),
                "",
            ),
            // To keep an account whose grant ends, or to offer its token elsewhere.
            (Patch(account.clone(), labels(json!({ "app.kubernetes.io/managed-by": null }))), ours),
            (Patch(account.clone(), others), ours),
            (
                Patch(
                    account.clone(),
                    json!({ "metadata": { "finalizers": ["example.com/hold"] } }),
                ),
                ours,
            ),
            (
                Patch(
                    account.clone(),
                    json!({ "spec": { "rotation": { "validity": "9000h0m0s" } } }),
                ),
                ours,
            ),
            // Consumer access creates it again.
            (Delete(account), ""),
            (Create(our_account_on("c1", "more", |_| {})), NO_PERMISSION),
            (Patch(work, json!({ "spec": { "workload": { "manifests": [] } } })), ours),
            // To have a Secret taken for a copy, or one written elsewhere.
            (
                Create(opaque("c1", "fake").label(SYNCED_FROM, "fake")),
                "only the credential syncer may create Secrets",
            ),
            (Create(opaque("c1", "reported")), ""),
            (Create(opaque("team", "c1-app")), NO_PERMISSION),
            (Create(opaque("c2", "app")), NO_PERMISSION),
            (Create(profile("team", "c3")), NO_PERMISSION),
            (Create(role_binding("c1", "mine")), NO_PERMISSION),
            (Create(ocm::bound("c1", "s")), NO_PERMISSION),
        ],
    )
    .await;
}

#[tokio::test]
async fn a_tenant_who_administers_a_bound_namespace_gains_nothing_around_the_controllers() {
    let hub = hub().await;
    // What `edit` and `admin` aggregate; the controller that does so is not among those of this hub.
    let eve = json!({ "apiGroup": RBAC, "kind": "User", "name": "eve" });
    for role in ["view", "edit", "admin"] {
        bind(&hub, Some("team"), &format!("system:aggregate-to-{role}"), eve.clone()).await;
    }
    let eve = hub.client_like("eve", &["system:authenticated"]).await.unwrap();
    let to_eve = |name: &str, kind: &str, role: &str| {
        Object::new((RBAC, "v1", "RoleBinding"), "rolebindings", Some("team"), name)
            .field("roleRef", json!({ "apiGroup": RBAC, "kind": kind, "name": role }))
            .field("subjects", json!([{ "apiGroup": RBAC, "kind": "User", "name": "eve" }]))
    };
    let token = copy("team", "app", |_| {});
    let follows = "hub-addons-cluster-access-app";
    let copies = format!("{RELEASE}-credentials-copies");
    let reserved = "only credential rights may create and change RoleBindings with the name";
    let unchanged = "only the credential syncer may change a copy of a token";
    let mine = ocm::cluster_access(
        "team",
        "mine",
        &json!({ "identity": "Copy", "serviceAccountNames": ["app"] }),
    );
    let escalation = "attempting to grant RBAC permissions not currently held";
    attempts(
        &eve,
        vec![
            // To keep a token beyond its grant, or to put another one in its place.
            (
                Patch(token.clone(), json!({ "metadata": { "labels": { SYNCED_FROM: null } } })),
                unchanged,
            ),
            (Patch(token.clone(), json!({ "metadata": { "ownerReferences": null } })), unchanged),
            (
                Patch(token.clone(), json!({ "metadata": { "finalizers": ["example.com/hold"] } })),
                unchanged,
            ),
            (Patch(token.clone(), json!({ "data": { "token": "ZXZl" } })), unchanged),
            (Patch(token.clone(), json!({ "immutable": true })), unchanged),
            (
                Create(opaque("team", "fake").label(SYNCED_FROM, "fake")),
                "only the credential syncer may create Secrets",
            ),
            // The syncer creates it again, while it is granted.
            (Delete(token), ""),
            (Create(opaque("team", "own")), ""),
            // To keep the syncer from deleting copies.
            (Create(role_binding("team", &copies)), reserved),
            // To have the permissions that a consumer's Role is about to get, or those of our processes.
            (
                Create(to_eve("follow", "Role", follows)),
                "only credential rights may bind the Role of a ClusterAccess",
            ),
            (Create(to_eve("profiles", "ClusterRole", "hub-addons-profiles")), escalation),
            (Create(to_eve("consumers", "ClusterRole", "hub-addons-consumers")), escalation),
            // Who administers the namespace already reads its Secrets: this adds nothing.
            (Create(to_eve("copies", "ClusterRole", &copies)), ""),
            (Create(mine), NO_PERMISSION),
            // To lead consumers elsewhere, and to be granted clusters.
            (Create(profile("team", "c2")), NO_PERMISSION),
            (PatchStatus(profile("team", "c1"), json!({ "accessProviders": [] })), NO_PERMISSION),
            (Create(ocm::bound("team", "other")), NO_PERMISSION),
            (Create(our_account_on("c1", "more", |_| {})), NO_PERMISSION),
            (Create(opaque("c1", "app")), NO_PERMISSION),
        ],
    )
    .await;
}

/// What would lead one of our processes beyond what SECURITY.md says of it: verb, group, resource, namespace and name.
const BEYOND: &[(&str, &str, &str, &str, &str)] = &[
    ("list", "", "secrets", "", ""),
    ("get", "", "secrets", "kube-system", "bootstrap"),
    ("list", "", "secrets", NAMESPACE, ""),
    ("create", "", "secrets", "kube-system", ""),
    ("create", "", "pods", NAMESPACE, ""),
    ("create", "", "serviceaccounts/token", NAMESPACE, ""),
    ("impersonate", "", "users", "", "admin"),
    ("get", "", "nodes/proxy", "", ""),
    ("delete", "", "namespaces", "", "team"),
    ("patch", "apps", "deployments", NAMESPACE, "hub-addons-profiles"),
    ("create", RBAC, "clusterrolebindings", "", ""),
    ("create", RBAC, "clusterroles", "", ""),
    ("bind", RBAC, "clusterroles", "", "cluster-admin"),
    ("escalate", RBAC, "clusterroles", "", "view"),
    (
        "patch",
        "admissionregistration.k8s.io",
        "validatingadmissionpolicies",
        "",
        "hub-addons-profiles",
    ),
    (
        "delete",
        "admissionregistration.k8s.io",
        "validatingadmissionpolicybindings",
        "",
        "hub-addons-profiles",
    ),
    ("update", "certificates.k8s.io", "certificatesigningrequests/approval", "", ""),
    ("patch", "cluster.open-cluster-management.io", "managedclusters", "", "c1"),
    ("create", "cluster.open-cluster-management.io", "managedclustersetbindings", "team", ""),
    ("create", "cluster.open-cluster-management.io", "managedclustersets/bind", "", "s"),
    ("execute-as", "work.open-cluster-management.io", "manifestworks", "c1", ""),
    ("create", ACCESS, "clusteraccesses", "team", ""),
    ("patch", ACCESS, "clusteraccesses", "team", "app"),
    ("bind", ACCESS, "clusterroles", "", "view"),
];

#[tokio::test]
async fn no_process_has_a_permission_that_leads_beyond_its_task() {
    let hub = hub().await;
    let reviews: Api<SubjectAccessReview> = Api::all(hub.ocm.clone());
    let mut allowed = Vec::new();
    let review =
        async |component: &str,
               (verb, group, resource, namespace, name): (&str, &str, &str, &str, &str)| {
            let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
            let some = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
            let attributes = ResourceAttributes {
                verb: some(verb),
                group: some(group),
                resource: some(resource),
                subresource: some(subresource),
                namespace: some(namespace),
                name: some(name),
                ..ResourceAttributes::default()
            };
            let spec = SubjectAccessReviewSpec {
                user: Some(user(component)),
                resource_attributes: Some(attributes),
                ..SubjectAccessReviewSpec::default()
            };
            let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
            reviews.create(&PostParams::default(), &review).await.unwrap().status.unwrap().allowed
        };
    for component in ["profiles", "credentials", "consumers"] {
        // What each may: the review is about the right user.
        assert!(
            review(component, ("create", "events.k8s.io", "events", "team", "")).await,
            "{component}"
        );
        for beyond in BEYOND {
            if review(component, *beyond).await {
                allowed.push((component, beyond));
            }
        }
    }
    assert!(allowed.is_empty(), "{allowed:#?}");
}
