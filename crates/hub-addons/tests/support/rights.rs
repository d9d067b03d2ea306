//! The permissions of the controllers, written as the chart's record of what it renders. The API server refuses
//! everything else.

use k8s_openapi::api::rbac::v1::PolicyRule;

/// For every controller: its Lease, and Events.
const HOST: [&str; 2] =
    ["create,get,update leases.coordination.k8s.io", "create events.events.k8s.io"];
pub const FLEET: &str = "list,watch managedclusters,managedclustersets,managedclustersetbindings.cluster.open-cluster-management.io";
const READ_PROFILES: &str = "list,watch clusterprofiles.multicluster.x-k8s.io";
const WRITE_STATUS: &str = "patch clusterprofiles/status.multicluster.x-k8s.io";
const SERVED: &str = "list,watch customresourcedefinitions.apiextensions.k8s.io named clusterprofiles.multicluster.x-k8s.io";
const ACCOUNTS: &str =
    "list,watch managedserviceaccounts.authentication.open-cluster-management.io";

/// A rule: verbs, resources with their group, and after `named` the names of objects.
pub fn rule(text: &str) -> PolicyRule {
    let list = |text: &str| text.split(',').map(str::to_owned).collect::<Vec<_>>();
    let (rule, names) =
        text.split_once(" named ").map_or((text, None), |(rule, names)| (rule, Some(list(names))));
    let (verbs, resources) = rule.split_once(' ').unwrap();
    let (resources, group) = resources.split_once('.').unwrap_or((resources, ""));
    PolicyRule {
        api_groups: Some(vec![group.to_owned()]),
        resources: Some(list(resources)),
        verbs: list(verbs),
        resource_names: names,
        ..PolicyRule::default()
    }
}

fn hosted(rules: &[&str]) -> Vec<PolicyRule> {
    HOST.iter().chain(rules).map(|text| rule(text)).collect()
}

/// For every controller.
pub fn host() -> Vec<PolicyRule> {
    hosted(&[])
}

/// A part of those of every controller that decides about grants.
pub fn bindings() -> Vec<PolicyRule> {
    vec![rule("list,watch managedclustersetbindings.cluster.open-cluster-management.io")]
}

pub fn projector() -> Vec<PolicyRule> {
    let write = "create,delete,list,patch,watch clusterprofiles.multicluster.x-k8s.io";
    hosted(&[FLEET, SERVED, write, WRITE_STATUS])
}

/// For the provisioner with the cluster-proxy source.
pub fn provisioner() -> Vec<PolicyRule> {
    hosted(&[
        SERVED,
        READ_PROFILES,
        WRITE_STATUS,
        "list,watch managedproxyconfigurations.proxy.open-cluster-management.io named cluster-proxy",
        "list,watch managedclusteraddons.addon.open-cluster-management.io named cluster-proxy",
        "list,watch secrets named cluster-proxy-user-serving-cert",
    ])
}

/// For projector and provisioner in one process.
pub fn both() -> Vec<PolicyRule> {
    [projector(), provisioner()].concat()
}

fn syncer_with(secrets: &str) -> Vec<PolicyRule> {
    let report = "patch managedserviceaccounts/status.authentication.open-cluster-management.io";
    hosted(&[FLEET, SERVED, READ_PROFILES, ACCOUNTS, report, secrets])
}

/// For the syncer, with permission for every Secret.
pub fn syncer() -> Vec<PolicyRule> {
    syncer_with("create,delete,get,list,patch,watch secrets")
}

/// For the syncer, besides the permissions for Secrets that it is granted.
pub fn syncer_granted() -> Vec<PolicyRule> {
    syncer_with("list,watch rolebindings.rbac.authorization.k8s.io named hub-addons-copies")
}

/// The names of the permissions of these accounts.
fn permissions_of(accounts: &[&str]) -> String {
    accounts
        .iter()
        .map(|account| format!("hub-addons-consumer-{account}"))
        .collect::<Vec<_>>()
        .join(",")
}

/// For the controller of the accounts of consumers and their permissions.
pub fn consumer_access(accounts: &[&str]) -> Vec<PolicyRule> {
    let works = "delete,list,patch,watch manifestworks.work.open-cluster-management.io";
    hosted(&[
        FLEET,
        "list,watch namespaces named kube-system",
        "list,watch managedclusteraddons.addon.open-cluster-management.io named managed-serviceaccount",
        "list,watch clusteraccesses.access.open-cluster-management.io",
        "patch clusteraccesses/status.access.open-cluster-management.io",
        "list,watch placementdecisions.cluster.open-cluster-management.io",
        "list,watch placementdecisions.multicluster.x-k8s.io",
        "create,delete,list,patch,watch managedserviceaccounts.authentication.open-cluster-management.io",
        "create manifestworks.work.open-cluster-management.io",
        &format!("{works} named {}", permissions_of(accounts)),
    ])
}

/// For the controller of the accounts of consumers, where these declare the kind of their permissions.
pub fn cluster_permissions(accounts: &[&str]) -> Vec<PolicyRule> {
    let kind = "clusterpermissions.rbac.open-cluster-management.io";
    let named = permissions_of(accounts);
    let rules = [format!("create {kind}"), format!("delete,list,patch,watch {kind} named {named}")];
    rules.iter().map(|text| rule(text)).collect()
}

/// For the controller of the accounts of consumers, where one declares a MultiKueueConfig.
pub fn kueue() -> Vec<PolicyRule> {
    vec![rule("create,delete,list,patch,watch multikueueclusters,multikueueconfigs.kueue.x-k8s.io")]
}
