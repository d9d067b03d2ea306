//! What consumers should have on the clusters that their namespaces are granted.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hub_core::consumer_access::cluster_secret_name;
use serde_json::{Value, json};

use super::{accounts_of, asks, expect, is_open, is_serving_ended};
use crate::consumers::{
    ACCOUNTS, ALL_ACCOUNTS, Consumer, KUEUE_CLUSTERS, KUEUE_CONFIGS, MARKS, ROLE, WORKS, declared,
    permissions_name,
};
use crate::grant::granted;
use crate::hub::{ASK_LABEL, CLUSTERS, SCOPE_ANNOTATION};
use crate::model::{Server, is_terminating, uid_of};
use crate::monitor::{Monitor, is_marked, names_in_rules};

/// Where the agent creates the ServiceAccounts of ManagedServiceAccounts on a cluster, unless its addon shows another
/// namespace.
const AGENT_NAMESPACE: &str = "open-cluster-management-agent-addon";

fn agent_namespace(server: &Server, cluster: &str) -> String {
    let addon = server.object("managedclusteraddons", cluster, "managed-serviceaccount");
    let shown = addon.and_then(|addon| addon["status"]["namespace"].as_str());
    shown.unwrap_or(AGENT_NAMESPACE).to_owned()
}
const ACCOUNT_GROUP: &str = "authentication.open-cluster-management.io";

/// Whose an object is.
enum Owned<'a> {
    Absent,
    /// Of another owner, or of a process that has ended, and a client has removed its labels since: no process knows it.
    /// The chart's policy prevents that.
    Foreign {
        is_lost: bool,
    },
    Ours(&'a Value),
}

fn owned<'a>(
    server: &'a Server,
    monitor: &Monitor,
    plural: &str,
    namespace: &str,
    name: &str,
) -> Owned<'a> {
    match server.object(plural, namespace, name) {
        None => Owned::Absent,
        Some(object) if !monitor.made.contains_key(uid_of(object)) => {
            Owned::Foreign { is_lost: false }
        }
        Some(object) if is_lost(server, monitor, plural, object) => {
            Owned::Foreign { is_lost: true }
        }
        Some(object) => Owned::Ours(object),
    }
}

/// Whether an object of ours lacks what identifies it. While its creator lives, it recognizes an account also by the
/// namespace that it is limited to, and permissions by their name.
pub(super) fn is_lost(server: &Server, monitor: &Monitor, plural: &str, object: &Value) -> bool {
    let scope = object["metadata"]["annotations"][SCOPE_ANNOTATION].as_str();
    let is_recognized = match plural {
        ACCOUNTS => {
            let name = &object["metadata"]["name"];
            let is_it = |it: &Consumer| it.own || scope == Some(it.namespace);
            declared(server).iter().any(|it| name == it.account && is_it(it))
        }
        KUEUE_CLUSTERS | KUEUE_CONFIGS | "secrets" => false,
        _ => true,
    };
    monitor.disputed.contains(uid_of(object))
        || !is_marked(object) && (monitor.abandoned.contains(uid_of(object)) || !is_recognized)
}

pub(super) fn differences(server: &Server, monitor: &Monitor) -> Vec<String> {
    let mut wrong = Vec::new();
    if !monitor.has_consumers {
        return wrong;
    }
    let declared = declared(server);
    for cluster in CLUSTERS {
        for account in ALL_ACCOUNTS {
            let consumers: Vec<_> = declared.iter().filter(|it| it.account == account).collect();
            if let Err(why) = check_access(server, monitor, cluster, account, &consumers) {
                wrong.push(format!("access of {account} to {cluster}: {why}"));
            }
        }
    }
    if let Err(why) = check_kueue(server, monitor, &declared) {
        wrong.push(format!("Kueue's objects: {why}"));
    }
    for consumer in &declared {
        if !consumer.own
            && let Err(why) = check_role(server, consumer)
        {
            wrong.push(format!("Role {}/{ROLE}{}: {why}", consumer.namespace, consumer.account));
        }
        if consumer.argo_cd {
            wrong.extend(CLUSTERS.into_iter().filter_map(|cluster| {
                let why = check_cluster_secret(server, monitor, consumer, cluster).err()?;
                Some(format!("cluster Secret {}/{cluster}: {why}", consumer.namespace))
            }));
        }
    }
    wrong
}

/// The accounts of ours on clusters that are not granted to a consumer with that account.
pub(super) fn without_grant(server: &Server, monitor: &Monitor) -> Vec<String> {
    let mut found = Vec::new();
    if !monitor.has_consumers {
        return found;
    }
    let declared = declared(server);
    for (cluster, name) in
        CLUSTERS.into_iter().flat_map(|cluster| ALL_ACCOUNTS.map(|it| (cluster, it)))
    {
        let consumers: Vec<_> = declared.iter().filter(|it| it.account == name).collect();
        let account = owned(server, monitor, ACCOUNTS, cluster, name);
        if granted_to_any(server, &consumers, cluster) == Some(false)
            && matches!(account, Owned::Ours(account) if !is_terminating(account))
        {
            let is_bound = |it: &&Consumer| granted(server, it.namespace, cluster) != Some(false);
            let lacks = if consumers.iter().any(is_bound) { "decision" } else { "grant" };
            found.push(format!("account {cluster}/{name} exists without a {lacks}"));
        }
    }
    found
}

/// Whether a cluster is granted to one of these consumers: `None` if that is in doubt.
fn granted_to_any(server: &Server, consumers: &[&Consumer], cluster: &str) -> Option<bool> {
    let grants: Vec<_> = consumers.iter().map(|it| it.granted(server, cluster)).collect();
    let is_doubtful = grants.contains(&None);
    let is_granted = grants.contains(&Some(true));
    if is_granted || !is_doubtful { Some(is_granted) } else { None }
}

fn check_access(
    server: &Server,
    monitor: &Monitor,
    cluster: &str,
    name: &str,
    consumers: &[&Consumer],
) -> Result<(), String> {
    let (granted, consumer) = (granted_to_any(server, consumers, cluster), consumers.first());
    let account = owned(server, monitor, ACCOUNTS, cluster, name);
    let permissions = permissions_name(name);
    let must_end = |plural: &str| match owned(server, monitor, plural, cluster, &permissions) {
        Owned::Ours(object) if !is_terminating(object) => {
            Err(format!("permissions exist without an account: {object}"))
        }
        _ => Ok(()),
    };
    let nothing =
        || [WORKS, crate::consumers::CLUSTER_PERMISSIONS].into_iter().try_for_each(must_end);
    match (granted, account, consumer) {
        (None, ..) | (_, Owned::Foreign { is_lost: true }, _) => Ok(()),
        (Some(false), Owned::Ours(account), _) if !is_terminating(account) => {
            Err("an account exists without a grant".to_owned())
        }
        // Permissions of a consumer that is not declared are garbage-collected.
        (_, Owned::Ours(account), None) if is_terminating(account) => Ok(()),
        (Some(true), Owned::Ours(account), Some(_)) if is_terminating(account) => Ok(()),
        (Some(true), Owned::Absent, Some(_)) if is_serving_ended(server, ACCOUNTS) => Ok(()),
        (Some(true), Owned::Absent, Some(_)) => Err("the account is missing".to_owned()),
        (Some(true), Owned::Ours(account), Some(consumer)) => {
            check_account(account, consumer)?;
            check_permissions(server, monitor, cluster, account, consumer)
        }
        (Some(_), ..) => nothing(),
    }
}

/// The copies of the token of an account stay in the namespace of the consumer, and nobody copies that of an own identity.
fn check_account(account: &Value, consumer: &Consumer) -> Result<(), String> {
    let metadata = &account["metadata"];
    let (label, scope) =
        if consumer.own { (None, None) } else { (Some("true"), Some(consumer.namespace)) };
    expect(&metadata["labels"][ASK_LABEL], &json!(label), "label")?;
    expect(&metadata["annotations"][SCOPE_ANNOTATION], &json!(scope), "annotation")
}

fn check_permissions(
    server: &Server,
    monitor: &Monitor,
    cluster: &str,
    account: &Value,
    consumer: &Consumer,
) -> Result<(), String> {
    let (plural, name) = (monitor.permissions.plural(), permissions_name(consumer.account));
    let agents = agent_namespace(server, cluster);
    let check = |plural: &str, object: &Value| {
        expect(&object["metadata"]["ownerReferences"][0]["uid"], &uid_of(account).into(), "owner")?;
        // A property of `rules/own_consumers` says what those of own identities contain, and a fresh start shows what is
        // stale.
        if consumer.own {
            return Ok(());
        }
        let wanted = consumer
            .roles
            .iter()
            .map(|(role, namespace)| ((*role).to_owned(), (*namespace).to_owned()));
        let (wanted, bound) =
            (wanted.collect::<BTreeSet<_>>(), bound(plural, object, consumer, &agents));
        if bound.as_ref() == Some(&wanted) {
            Ok(())
        } else {
            Err(format!("{plural}: expected {wanted:?}, got {object}"))
        }
    };
    let is_there = match owned(server, monitor, plural, cluster, &name) {
        Owned::Absent if is_serving_ended(server, plural) => false,
        Owned::Absent => return Err("its permissions are missing".to_owned()),
        Owned::Ours(object) if !is_terminating(object) => {
            check(plural, object)?;
            true
        }
        Owned::Ours(_) | Owned::Foreign { .. } => false,
    };
    let other = monitor.permissions.other();
    match owned(server, monitor, other, cluster, &name) {
        Owned::Ours(object) if !is_terminating(object) && is_there => {
            Err(format!("its former permissions exist: {object}"))
        }
        Owned::Ours(object) if !is_terminating(object) => check(other, object),
        _ => Ok(()),
    }
}

/// The ClusterRoles that permissions bind to the account of a consumer, each with the namespace; `None` if they contain
/// anything else.
fn bound(
    plural: &str,
    object: &Value,
    consumer: &Consumer,
    agents: &str,
) -> Option<BTreeSet<(String, String)>> {
    let spec = &object["spec"];
    let (lists, known): (Vec<&Value>, &[&str]) = if plural == WORKS {
        (vec![&spec["workload"]["manifests"]], &["workload"])
    } else {
        (
            vec![&spec["clusterRoleBindings"], &spec["roleBindings"]],
            &["clusterRoleBindings", "roleBindings"],
        )
    };
    if spec.as_object()?.keys().any(|field| !known.contains(&field.as_str())) {
        return None;
    }
    let read = |binding: &Value| {
        let name = consumer.account;
        let (subjects, wanted, namespace) = if plural == WORKS {
            let wanted = json!([{ "kind": "ServiceAccount", "name": name, "namespace": agents }]);
            (&binding["subjects"], wanted, &binding["metadata"]["namespace"])
        } else {
            let wanted =
                json!({ "apiGroup": ACCOUNT_GROUP, "kind": "ManagedServiceAccount", "name": name });
            (&binding["subject"], wanted, &binding["namespace"])
        };
        let namespace = namespace.as_str().unwrap_or_default().to_owned();
        let is_bound = *subjects == wanted && binding["roleRef"]["kind"] == "ClusterRole";
        is_bound.then_some((binding["roleRef"]["name"].as_str()?.to_owned(), namespace))
    };
    lists.into_iter().flat_map(|list| list.as_array().into_iter().flatten()).map(read).collect()
}

/// The Role lists no copy that the consumer's account does not get, and none of the same name of another account.
fn check_role(server: &Server, consumer: &Consumer) -> Result<(), String> {
    let namespace = consumer.namespace;
    let name = format!("{ROLE}{}", consumer.account);
    let role = server.object("roles", namespace, &name).filter(|_| is_open(server, namespace));
    let gets = |cluster: &str, name: &str| {
        let account = server.object(ACCOUNTS, cluster, name);
        // An account of another owner is not that of the consumer.
        let counts = |account: &Value| {
            let mut labels = MARKS.iter().take(2);
            name != consumer.account
                || labels.all(|(key, value)| account["metadata"]["labels"][*key] == *value)
        };
        if account.is_some_and(|account| asks(account, namespace) && counts(account)) {
            granted(server, namespace, cluster)
        } else {
            Some(false)
        }
    };
    for listed in names_in_rules(role.map(|role| &**role)) {
        let is_refused =
            |(cluster, account)| gets(cluster, account) == Some(account != consumer.account);
        let is_own = accounts_of(listed).any(|(_, account)| account == consumer.account);
        if !is_own || accounts_of(listed).any(is_refused) {
            return Err(format!("{listed} is listed without a grant"));
        }
    }
    Ok(())
}

/// A cluster that is granted and that a MultiKueueConfig selects has a MultiKueueCluster, and no other cluster has one.
fn check_kueue(server: &Server, monitor: &Monitor, declared: &[Consumer]) -> Result<(), String> {
    for cluster in CLUSTERS {
        let selecting =
            declared.iter().filter(|it| it.kueue.iter().any(|list| list.selects(server, cluster)));
        let grants: Vec<_> = selecting.map(|it| it.granted(server, cluster)).collect();
        if grants.contains(&None) {
            return Ok(());
        }
        match (grants.contains(&Some(true)), owned(server, monitor, KUEUE_CLUSTERS, "", cluster)) {
            (true, Owned::Absent) if !is_serving_ended(server, KUEUE_CLUSTERS) => {
                return Err(format!("the MultiKueueCluster {cluster} is missing"));
            }
            (false, Owned::Ours(object)) if !is_terminating(object) => {
                return Err(format!("the MultiKueueCluster {cluster} exists without a grant"));
            }
            _ => {}
        }
    }
    Ok(())
}

/// A cluster Secret of Argo CD exists only where a grant exists, and contains no token.
fn check_cluster_secret(
    server: &Server,
    monitor: &Monitor,
    consumer: &Consumer,
    cluster: &str,
) -> Result<(), String> {
    let name = cluster_secret_name(&cluster.into());
    let Owned::Ours(secret) = owned(server, monitor, "secrets", consumer.namespace, &name) else {
        return Ok(());
    };
    if is_terminating(secret) {
        return Ok(());
    }
    if consumer.granted(server, cluster) == Some(false) {
        return Err("exists without a grant".to_owned());
    }
    let config = STANDARD.decode(secret["data"]["config"].as_str().unwrap_or_default());
    let config: Value = serde_json::from_slice(&config.unwrap_or_default()).unwrap_or_default();
    expect(&config["bearerToken"], &Value::Null, "token")
}
