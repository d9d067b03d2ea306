//! What consumers should have on the clusters that their namespaces are granted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hub_core::consumer_access::cluster_secret_name;
use serde_json::{Value, json};

use super::{accounts_of, asks, expect, granted, is_open, is_serving_ended};
use crate::consumers::{
    ACCESSES, ACCOUNTS, ALL_ACCOUNTS, Consumer, KUEUE_CLUSTERS, KUEUE_CONFIGS, MARKS, ROLE,
    VALIDITY, WORKS, declared, permissions_name,
};
use crate::hub::{ASK_LABEL, CLUSTERS, MANAGER, MANAGER_LABEL, SCOPE_ANNOTATION};
use crate::model::{Server, is_terminating, uid_of};
use crate::monitor::{Monitor, is_marked};

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
    for object in server.objects_of(ACCESSES).filter(|_| monitor.disputed.is_empty()) {
        if let Err(why) = check_status(server, monitor, object, &declared) {
            wrong
                .push(format!("status of the ClusterAccess {}: {why}", object["metadata"]["name"]));
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

fn check_account(account: &Value, consumer: &Consumer) -> Result<(), String> {
    let metadata = &account["metadata"];
    expect(&is_marked(account).into(), &true.into(), "labels of our objects")?;
    if consumer.own {
        expect(&metadata["labels"][ASK_LABEL], &Value::Null, "label")?;
        expect(&metadata["annotations"][SCOPE_ANNOTATION], &Value::Null, "annotation")?;
    } else {
        expect(&metadata["labels"][ASK_LABEL], &json!("true"), "label")?;
        expect(
            &metadata["annotations"][SCOPE_ANNOTATION],
            &json!(consumer.namespace),
            "annotation",
        )?;
    }
    expect(
        &account["spec"],
        &json!({ "rotation": { "enabled": true, "validity": VALIDITY } }),
        "spec",
    )
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
        expect(&is_marked(object).into(), &true.into(), "labels of permissions")?;
        expect(&object["metadata"]["ownerReferences"][0]["uid"], &uid_of(account).into(), "owner")?;
        // A property of `rules/own_consumers` says what those of own identities contain, and a fresh start compares it.
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

/// A status counts the clusters that are granted and selected, and each of them that is ready has an account with a token.
fn check_status(
    server: &Server,
    monitor: &Monitor,
    object: &Value,
    declared: &[Consumer],
) -> Result<(), String> {
    let (metadata, status) = (&object["metadata"], &object["status"]);
    let is_it =
        |it: &&Consumer| metadata["namespace"] == it.namespace && metadata["name"] == it.account;
    if is_terminating(object)
        || !is_open(server, metadata["namespace"].as_str().unwrap_or_default())
    {
        return Ok(());
    }
    expect(&status["observedGeneration"], &metadata["generation"], "observedGeneration")?;
    let Some(consumer) = declared.iter().find(is_it) else {
        return expect(
            &status["clusters"],
            &Value::Null,
            "clusters of an object that gives nothing",
        );
    };
    let grants = CLUSTERS.map(|cluster| (cluster, consumer.granted(server, cluster)));
    if grants.iter().any(|(_, granted)| granted.is_none()) {
        return Ok(());
    }
    let selected: Vec<_> =
        grants.into_iter().filter(|(_, granted)| *granted == Some(true)).collect();
    expect(&status["clusters"]["selected"], &json!(selected.len()), "selected clusters")?;
    let lacking = status["notReady"].as_array().into_iter().flatten();
    let lacking: BTreeSet<_> = lacking.filter_map(|it| it["cluster"].as_str()).collect();
    for (cluster, _) in selected.into_iter().filter(|(cluster, _)| !lacking.contains(cluster)) {
        let account = owned(server, monitor, ACCOUNTS, cluster, consumer.account);
        let is_ready = matches!(account, Owned::Ours(it) if it["status"]["tokenSecretRef"]["name"].is_string());
        if !is_ready {
            return Err(format!("{cluster} is ready without a token: {status}"));
        }
    }
    Ok(())
}

/// The Role lists the copies of the consumer's account. If the namespace is granted a copy of the same name of another
/// account, it is not listed.
fn check_role(server: &Server, consumer: &Consumer) -> Result<(), String> {
    let namespace = consumer.namespace;
    if !is_open(server, namespace) {
        return Ok(());
    }
    let nothing = std::sync::Arc::new(Value::Null);
    let name = format!("{ROLE}{}", consumer.account);
    let role = server.object("roles", namespace, &name).unwrap_or(&nothing);
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
    let named = role["rules"].as_array().into_iter().flatten();
    let named = named.flat_map(|rule| rule["resourceNames"].as_array().into_iter().flatten());
    let named: BTreeSet<&str> = named.filter_map(Value::as_str).collect();
    for cluster in CLUSTERS {
        let name = format!("{cluster}-{}", consumer.account);
        let all = accounts_of(&name).map(|(cluster, account)| (account, gets(cluster, account)));
        let (own, rivals): (Vec<_>, Vec<_>) =
            all.partition(|(account, _)| *account == consumer.account);
        let is_wanted = match (own[0].1, rivals.first().and_then(|(_, gets)| *gets)) {
            (Some(own), Some(rival)) => own && !rival,
            (Some(own), None) if rivals.is_empty() => own,
            _ => continue,
        };
        if named.contains(name.as_str()) != is_wanted {
            return Err(format!("expected {name} to be listed: {is_wanted}, got {named:?}"));
        }
    }
    Ok(())
}

/// Each granted cluster that a MultiKueueConfig selects has a MultiKueueCluster, and each MultiKueueConfig lists those that
/// it selects and that no other owner has created.
fn check_kueue(server: &Server, monitor: &Monitor, declared: &[Consumer]) -> Result<(), String> {
    let mut wanted = BTreeSet::new();
    // Whether a process knows a MultiKueueCluster that was marked again as its own is open, and so is whether it lists it.
    let is_open = |cluster: &str| {
        let found = server.object(KUEUE_CLUSTERS, "", cluster);
        found.is_some_and(|object| monitor.disputed.contains(uid_of(object)))
    };
    for cluster in CLUSTERS {
        let found = owned(server, monitor, KUEUE_CLUSTERS, "", cluster);
        let grants =
            declared.iter().filter(|it| it.kueue.iter().any(|list| list.selects(server, cluster)));
        let grants: Vec<_> = grants.map(|it| it.granted(server, cluster)).collect();
        if grants.contains(&None) {
            return Ok(());
        }
        match (grants.contains(&Some(true)), found) {
            (true, Owned::Absent) if !is_serving_ended(server, KUEUE_CLUSTERS) => {
                return Err(format!("the MultiKueueCluster {cluster} is missing"));
            }
            (true, Owned::Ours(object)) => {
                wanted.insert(cluster);
                if !is_terminating(object) {
                    let found = &object["spec"]["clusterSource"]["clusterProfileRef"]["name"];
                    expect(found, &cluster.into(), "profile of a MultiKueueCluster")?;
                }
            }
            (true, Owned::Absent) => {
                wanted.insert(cluster);
            }
            (false, Owned::Ours(object)) if !is_terminating(object) => {
                return Err(format!("the MultiKueueCluster {cluster} exists without a grant"));
            }
            _ => {}
        }
    }
    let mut seen = BTreeSet::new();
    for (consumer, list) in
        declared.iter().flat_map(|it| it.kueue.iter().map(move |list| (it, list)))
    {
        // Of two objects that ask for one list, the older one has it.
        if !seen.insert(list.name) {
            continue;
        }
        let is_wanted = |cluster: &&str| {
            list.selects(server, cluster) && consumer.granted(server, cluster) == Some(true)
        };
        let wanted: BTreeSet<&str> = wanted.iter().copied().filter(is_wanted).collect();
        match owned(server, monitor, KUEUE_CONFIGS, "", list.name) {
            Owned::Absent if !wanted.is_empty() => {
                return Err(format!("the MultiKueueConfig {} is missing", list.name));
            }
            Owned::Ours(config) if !is_terminating(config) => {
                let listed = config["spec"]["clusters"].as_array().into_iter().flatten();
                let listed: BTreeSet<&str> =
                    listed.filter_map(Value::as_str).filter(|name| !is_open(name)).collect();
                if listed != wanted {
                    return Err(format!("expected {wanted:?}, got {config}"));
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// A granted cluster has the Secret of Argo CD that its profile describes, and it contains no token.
fn check_cluster_secret(
    server: &Server,
    monitor: &Monitor,
    consumer: &Consumer,
    cluster: &str,
) -> Result<(), String> {
    let name = cluster_secret_name(&cluster.into());
    let found = owned(server, monitor, "secrets", consumer.namespace, &name);
    let published = published(server, consumer.namespace, cluster);
    match (consumer.granted(server, cluster), found, published) {
        (Some(true), Owned::Absent, Some(_)) => Err("is missing".to_owned()),
        (Some(true), Owned::Ours(secret), Some((url, anchors))) if !is_terminating(secret) => {
            expect(&text(secret, "server").into(), &url.into(), "server")?;
            expect(&text(secret, "name").into(), &cluster.into(), "name")?;
            let config: Value = serde_json::from_str(&text(secret, "config")).unwrap_or_default();
            expect(&config["tlsClientConfig"]["caData"], &anchors.into(), "trust anchors")?;
            expect(&config["bearerToken"], &Value::Null, "token")
        }
        (Some(false), Owned::Ours(secret), _) if !is_terminating(secret) => {
            Err("exists without a grant".to_owned())
        }
        _ => Ok(()),
    }
}

/// The server and the trust anchors that the profile of a cluster publishes.
fn published(server: &Server, namespace: &str, cluster: &str) -> Option<(String, String)> {
    let profile = server.object("clusterprofiles", namespace, cluster)?;
    if profile["spec"]["clusterManager"]["name"] != MANAGER
        || profile["metadata"]["labels"][MANAGER_LABEL] != MANAGER
    {
        return None;
    }
    let mut entries = profile["status"]["accessProviders"].as_array()?.iter();
    let stanza = &entries.find(|entry| entry["name"] == MANAGER)?["cluster"];
    Some((
        stanza["server"].as_str()?.to_owned(),
        stanza["certificate-authority-data"].as_str()?.to_owned(),
    ))
}

/// A field of a Secret.
fn text(secret: &Value, key: &str) -> String {
    let decoded =
        STANDARD.decode(secret["data"][key].as_str().unwrap_or_default()).unwrap_or_default();
    String::from_utf8_lossy(&decoded).into_owned()
}

/// The outputs of consumer access, without what differs between any two runs.
pub(super) fn outputs(server: &Server, monitor: &Monitor, outputs: &mut BTreeMap<String, Value>) {
    let declared = declared(server);
    for consumer in declared.iter().filter(|_| monitor.has_consumers) {
        for cluster in CLUSTERS {
            if consumer.granted(server, cluster) != Some(true) {
                continue;
            }
            let sharers = declared.iter().filter(|it| it.account == consumer.account);
            if sharers.map(|it| it.granted(server, cluster)).any(|granted| granted.is_none()) {
                // What is there depends on what was there.
                continue;
            }
            let name = permissions_name(consumer.account);
            let Owned::Ours(account) = owned(server, monitor, ACCOUNTS, cluster, consumer.account)
            else {
                continue;
            };
            if is_terminating(account) {
                continue;
            }
            outputs
                .insert(format!("account {cluster}/{}", consumer.account), account["spec"].clone());
            let plural = monitor.permissions.plural();
            // Permissions that a finalizer keeps end with their account.
            if let Owned::Ours(object) = owned(server, monitor, plural, cluster, &name)
                && !is_terminating(object)
                && !object["metadata"]["finalizers"].is_array()
            {
                outputs.insert(format!("{plural} {cluster}/{name}"), object["spec"].clone());
            }
        }
    }
    let is_ours =
        |object: &&Arc<Value>| monitor.made.contains_key(uid_of(object)) && is_marked(object);
    for object in server.objects_of(KUEUE_CLUSTERS).filter(is_ours).filter(|it| !is_terminating(it))
    {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let is_wanted = |consumer: &Consumer| {
            consumer.granted(server, name) == Some(true)
                && consumer.kueue.iter().any(|list| list.selects(server, name))
        };
        if declared.iter().any(is_wanted) {
            outputs.insert(format!("MultiKueueCluster {name}"), object["spec"].clone());
        }
    }
}
