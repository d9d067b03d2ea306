//! The permissions of the controllers. The API server refuses everything else.

use k8s_openapi::api::rbac::v1::PolicyRule;

const CLUSTER: &str = "cluster.open-cluster-management.io";
const PROFILE: &str = "multicluster.x-k8s.io";
const RBAC: &str = "rbac.authorization.k8s.io";
const WORK: &str = "work.open-cluster-management.io";
const ACCESS: &str = "access.open-cluster-management.io";
const ACCOUNT: &str = "authentication.open-cluster-management.io";

fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> PolicyRule {
    let owned = |list: &[&str]| list.iter().map(ToString::to_string).collect::<Vec<_>>();
    PolicyRule {
        api_groups: Some(vec![group.to_owned()]),
        resources: Some(owned(resources)),
        verbs: owned(verbs),
        ..PolicyRule::default()
    }
}

fn named(rule: PolicyRule, name: &str) -> PolicyRule {
    PolicyRule { resource_names: Some(vec![name.to_owned()]), ..rule }
}

/// To watch which version of ClusterProfile the hub serves.
pub fn served_versions() -> PolicyRule {
    let crds = rule("apiextensions.k8s.io", &["customresourcedefinitions"], &["list", "watch"]);
    named(crds, "clusterprofiles.multicluster.x-k8s.io")
}

/// For every controller: its Lease, and Events.
pub fn host() -> Vec<PolicyRule> {
    vec![
        rule("coordination.k8s.io", &["leases"], &["create", "get", "update"]),
        rule("events.k8s.io", &["events"], &["create"]),
    ]
}

/// A part of those of every controller that decides about grants.
pub fn bindings() -> Vec<PolicyRule> {
    vec![rule(CLUSTER, &["managedclustersetbindings"], &["list", "watch"])]
}

pub fn projector() -> Vec<PolicyRule> {
    let mut rules = host();
    rules.extend([
        rule(
            CLUSTER,
            &["managedclusters", "managedclustersets", "managedclustersetbindings"],
            &["list", "watch"],
        ),
        served_versions(),
        rule(PROFILE, &["clusterprofiles"], &["create", "delete", "list", "patch", "watch"]),
        rule(PROFILE, &["clusterprofiles/status"], &["patch"]),
    ]);
    rules
}

/// For the provisioner with the cluster-proxy source.
pub fn provisioner() -> Vec<PolicyRule> {
    let mut rules = host();
    rules.extend([
        served_versions(),
        rule(PROFILE, &["clusterprofiles"], &["list", "watch"]),
        rule(PROFILE, &["clusterprofiles/status"], &["patch"]),
        named(
            rule(
                "proxy.open-cluster-management.io",
                &["managedproxyconfigurations"],
                &["list", "watch"],
            ),
            "cluster-proxy",
        ),
        named(
            rule("addon.open-cluster-management.io", &["managedclusteraddons"], &["list", "watch"]),
            "cluster-proxy",
        ),
        named(rule("", &["secrets"], &["list", "watch"]), "cluster-proxy-user-serving-cert"),
    ]);
    rules
}

/// For the syncer, with permission for every Secret.
pub fn syncer() -> Vec<PolicyRule> {
    let mut rules = syncer_without_secrets();
    rules.push(rule("", &["secrets"], &["create", "delete", "get", "list", "patch", "watch"]));
    rules
}

pub fn syncer_without_secrets() -> Vec<PolicyRule> {
    let mut rules = host();
    rules.extend([
        rule(
            CLUSTER,
            &["managedclusters", "managedclustersets", "managedclustersetbindings"],
            &["list", "watch"],
        ),
        served_versions(),
        rule(PROFILE, &["clusterprofiles"], &["list", "watch"]),
        rule(ACCOUNT, &["managedserviceaccounts"], &["list", "watch"]),
        rule(ACCOUNT, &["managedserviceaccounts/status"], &["patch"]),
    ]);
    rules
}

/// For the syncer, besides the permissions for Secrets that it is granted.
pub fn syncer_granted() -> Vec<PolicyRule> {
    let mut rules = syncer_without_secrets();
    rules.push(named(rule(RBAC, &["rolebindings"], &["list", "watch"]), "hub-addons-copies"));
    rules
}

/// For the controller that grants the syncer its permissions.
pub fn credential_rights() -> Vec<PolicyRule> {
    let mut rules = host();
    rules.extend([
        rule(CLUSTER, &["managedclusters"], &["list", "watch"]),
        rule(CLUSTER, &["managedclustersets", "managedclustersetbindings"], &["list", "watch"]),
        rule(ACCOUNT, &["managedserviceaccounts"], &["list", "watch"]),
        rule(RBAC, &["rolebindings"], &["create"]),
        named(rule(RBAC, &["rolebindings"], &["delete", "list", "watch"]), "hub-addons-copies"),
        named(rule(RBAC, &["clusterroles"], &["bind", "list", "watch"]), "hub-addons-copies"),
        named(
            rule(RBAC, &["clusterroles"], &["escalate", "list", "patch", "watch"]),
            "hub-addons-tokens",
        ),
        named(
            rule("coordination.k8s.io", &["leases"], &["list", "watch"]),
            "hub-addons-credential-syncer",
        ),
    ]);
    rules
}

/// For projector and provisioner in one process.
pub fn both() -> Vec<PolicyRule> {
    let mut rules = projector();
    rules.extend(provisioner());
    rules
}

/// For the controller of the accounts of consumers and their permissions.
pub fn consumer_access(accounts: &[&str]) -> Vec<PolicyRule> {
    let works = accounts.iter().map(|account| format!("hub-addons-consumer-{account}")).collect();
    let mut rules = host();
    rules.extend([
        rule(
            CLUSTER,
            &["managedclusters", "managedclustersets", "managedclustersetbindings"],
            &["list", "watch"],
        ),
        named(rule("", &["namespaces"], &["list", "watch"]), "kube-system"),
        named(
            rule("addon.open-cluster-management.io", &["managedclusteraddons"], &["list", "watch"]),
            "managed-serviceaccount",
        ),
        rule(ACCESS, &["clusteraccesses"], &["list", "watch"]),
        rule(ACCESS, &["clusteraccesses/status"], &["patch"]),
        rule(CLUSTER, &["placementdecisions"], &["list", "watch"]),
        rule("multicluster.x-k8s.io", &["placementdecisions"], &["list", "watch"]),
        rule(ACCOUNT, &["managedserviceaccounts"], &["create", "delete", "list", "patch", "watch"]),
        rule(WORK, &["manifestworks"], &["create"]),
        PolicyRule {
            resource_names: Some(works),
            ..rule(WORK, &["manifestworks"], &["delete", "list", "patch", "watch"])
        },
    ]);
    rules
}

/// For the controller of the accounts of consumers, where these declare the kind of their permissions.
pub fn cluster_permissions(accounts: &[&str]) -> Vec<PolicyRule> {
    const GROUP: &str = "rbac.open-cluster-management.io";
    let names = accounts.iter().map(|account| format!("hub-addons-consumer-{account}")).collect();
    let verbs = ["delete", "list", "patch", "watch"];
    vec![
        rule(GROUP, &["clusterpermissions"], &["create"]),
        PolicyRule { resource_names: Some(names), ..rule(GROUP, &["clusterpermissions"], &verbs) },
    ]
}

/// For the controller of the accounts of consumers, where one declares a MultiKueueConfig.
pub fn kueue() -> Vec<PolicyRule> {
    let kinds = ["multikueueclusters", "multikueueconfigs"];
    vec![rule("kueue.x-k8s.io", &kinds, &["create", "delete", "list", "patch", "watch"])]
}
