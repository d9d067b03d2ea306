//! The outputs that the hub should have, computed from the inputs alone. This is a second implementation of the rules,
//! which shares no code with the first, so that an error in `hub-core` does not repeat here. It states the contents of
//! profiles and copies, the conditions of accounts, and who has which permission; everything else must be what a fresh
//! start would write.

mod consumer;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::certificates::{ONE, TWO};
use crate::grant::{granted, is_bound};
use crate::hub::{
    ACCOUNTS, ASK_LABEL, CLUSTER_NAME_LABEL, CLUSTERS, CONDITION_SYNCED, COPIES_ROLE, COPY_LABEL,
    EXCLUSIVE_LABEL, MANAGER, MANAGER_LABEL, NAMESPACES, SCOPE_ANNOTATION, SET_LABEL, TOKEN_LABEL,
    TOKENS_ROLE, gives_copies,
};
use crate::model::{Server, Serving, is_terminating, uid_of};
use crate::monitor::{Monitor, is_dressed_up, names_in_rules};

/// Whether new objects can be created in a namespace.
fn is_open(server: &Server, namespace: &str) -> bool {
    server.object("namespaces", "", namespace).is_some_and(|it| !is_terminating(it))
}

/// The differences between the outputs and what they should be, as sentences.
#[must_use]
pub fn differences(server: &Server, monitor: &Monitor) -> Vec<String> {
    let mut wrong = Vec::new();
    for namespace in NAMESPACES.into_iter().filter(|namespace| is_open(server, namespace)) {
        for cluster in CLUSTERS {
            if let Err(why) = check_profile(server, namespace, cluster) {
                wrong.push(format!("profile {namespace}/{cluster}: {why}"));
            }
        }
        for name in copy_names() {
            if let Err(why) = check_copy(server, monitor, namespace, &name) {
                wrong.push(format!("copy {namespace}/{name}: {why}"));
            }
        }
        if let Err(why) = check_role_binding(server, monitor, namespace) {
            wrong.push(format!("RoleBinding {namespace}/copies: {why}"));
        }
    }
    for cluster in CLUSTERS {
        for account in ACCOUNTS {
            if let Err(why) = check_condition(server, monitor, cluster, account) {
                wrong.push(format!("account {cluster}/{account}: {why}"));
            }
        }
    }
    if let Err(why) = check_tokens_role(server) {
        wrong.push(format!("ClusterRole tokens: {why}"));
    }
    wrong.extend(consumer::differences(server, monitor));
    wrong
}

fn check_profile(server: &Server, namespace: &str, cluster: &str) -> Result<(), String> {
    let profile = server.object("clusterprofiles", namespace, cluster);
    let Some(granted) = granted(server, namespace, cluster) else { return Ok(()) };
    let ends = is_serving_ended(server, "clusterprofiles");
    let Some(profile) = profile else {
        return if granted && !ends { Err("is missing".to_owned()) } else { Ok(()) };
    };
    let is_ours = profile["spec"]["clusterManager"]["name"] == MANAGER;
    if !is_ours || is_terminating(profile) {
        return Ok(());
    }
    if !granted {
        let labelled = profile["metadata"]["labels"][MANAGER_LABEL] == MANAGER;
        return if labelled { Err("exists without a grant".to_owned()) } else { Ok(()) };
    }
    let source =
        server.object("managedclusters", "", cluster).ok_or("its cluster does not exist")?;
    let label = |label: &str| &profile["metadata"]["labels"][label];
    let shown = json!({
        "labels": [label(MANAGER_LABEL), label(CLUSTER_NAME_LABEL), label(SET_LABEL)],
        "displayName": profile["spec"]["displayName"],
        "version": profile["status"]["version"]["kubernetes"],
        "healthy": condition(profile, "ControlPlaneHealthy")["status"],
        "joined": condition(profile, "Joined")["status"],
    });
    let status_of = |kind| condition(source, kind)["status"].as_str().unwrap_or("Unknown");
    let wanted = json!({
        "labels": [MANAGER, cluster, source["metadata"]["labels"][EXCLUSIVE_LABEL]],
        "displayName": cluster,
        "version": source["status"]["version"]["kubernetes"],
        "healthy": status_of("ManagedClusterConditionAvailable"),
        "joined": status_of("ManagedClusterJoined"),
    });
    expect(&shown, &wanted, "contents")?;
    let properties = profile["status"]["properties"].as_array().into_iter().flatten();
    let properties: BTreeMap<_, _> = properties
        .filter_map(|property| Some((property["name"].as_str()?, property["value"].as_str()?)))
        .collect();
    let mut claims = BTreeMap::new();
    for claim in source["status"]["clusterClaims"].as_array().into_iter().flatten() {
        let (name, value) = (
            claim["name"].as_str().unwrap_or_default(),
            claim["value"].as_str().unwrap_or_default(),
        );
        if !value.is_empty() {
            claims.entry(name).or_insert(value);
        }
    }
    if properties != claims {
        return Err(format!("properties: expected {claims:?}, got {properties:?}"));
    }
    check_entry(server, profile, cluster)
}

/// Whether a finalizer on one object keeps a deleted CRD, which then admits no other object.
fn is_serving_ended(server: &Server, plural: &str) -> bool {
    server.kind_of(plural).is_some_and(|kind| server.kinds[kind].serving == Serving::Terminating)
}

fn condition<'a>(object: &'a Value, kind: &str) -> &'a Value {
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().find(|condition| condition["type"] == kind).unwrap_or(&Value::Null)
}

fn check_entry(server: &Server, profile: &Value, cluster: &str) -> Result<(), String> {
    let entries = profile["status"]["accessProviders"].as_array().into_iter().flatten();
    let entry = entries.into_iter().find(|entry| entry["name"] == MANAGER).unwrap_or(&Value::Null);
    let configuration = server.object("managedproxyconfigurations", "", "cluster-proxy");
    let has_addon = server.object("managedclusteraddons", cluster, "cluster-proxy").is_some();
    let Some(configuration) = configuration.filter(|_| has_addon) else {
        return expect(entry, &Value::Null, "access provider");
    };
    let place = configuration["spec"]["proxyServer"]["namespace"].as_str().unwrap_or_default();
    // If the trust anchors cannot be read, those that are published stay.
    let Some(anchors) = anchors(server) else { return Ok(()) };
    let wanted = json!({ "name": MANAGER, "cluster": {
        "server": format!("https://cluster-proxy-addon-user.{place}:9092/{cluster}"),
        "certificate-authority-data": anchors,
        "extensions": [{ "name": "client.authentication.k8s.io/exec", "extension": { "clusterName": cluster } }],
    } });
    expect(entry, &wanted, "access provider")
}

/// The proxy's certificates, in base64, if they can be read.
fn anchors(server: &Server) -> Option<&str> {
    let configuration = server.object("managedproxyconfigurations", "", "cluster-proxy")?;
    let place = configuration["spec"]["proxyServer"]["namespace"].as_str()?;
    let serving = server.object("secrets", place, "cluster-proxy-user-serving-cert")?;
    let text = serving["data"]["tls.crt"].as_str()?;
    [ONE, TWO].iter().any(|it| STANDARD.encode(it) == text).then_some(text)
}

fn expect(found: &Value, wanted: &Value, what: &str) -> Result<(), String> {
    if found == wanted { Ok(()) } else { Err(format!("{what}: expected {wanted}, got {found}")) }
}

/// The possible names of copies.
fn copy_names() -> BTreeSet<String> {
    CLUSTERS
        .into_iter()
        .flat_map(|cluster| ACCOUNTS.map(|account| format!("{cluster}-{account}")))
        .collect()
}

/// The accounts whose copies have this name.
fn accounts_of(name: &str) -> impl Iterator<Item = (&'static str, &'static str)> {
    CLUSTERS
        .into_iter()
        .flat_map(|cluster| ACCOUNTS.map(|account| (cluster, account)))
        .filter(move |(cluster, account)| format!("{cluster}-{account}") == name)
}

/// Whether a namespace should have the token of an account; `None` if this cannot be decided.
pub(crate) fn offers(
    server: &Server,
    namespace: &str,
    cluster: &str,
    account: &str,
) -> Option<bool> {
    let asking =
        server.object("managedserviceaccounts", cluster, account).filter(|it| asks(it, namespace));
    let Some(asking) = asking else { return Some(false) };
    let is_source = |secret: &Value| {
        let owners = secret["metadata"]["ownerReferences"].as_array().into_iter().flatten();
        secret["metadata"]["labels"][TOKEN_LABEL] == "true"
            && secret["type"] == "Opaque"
            && owners.into_iter().any(|owner| owner["uid"] == uid_of(asking))
    };
    let is_offered = |secret: &Value| {
        let of_cluster = server.object("managedclusters", "", cluster);
        is_source(secret)
            && !of_cluster.is_some_and(|cluster| is_of_an_earlier(secret, asking, cluster))
    };
    if !server.object("secrets", cluster, account).is_some_and(|secret| is_offered(secret)) {
        return Some(false);
    }
    let profile =
        server.object("clusterprofiles", namespace, cluster).filter(|it| !is_terminating(it));
    if profile.is_none() {
        return Some(false);
    }
    granted(server, namespace, cluster)
}

/// Whether an account opts in to copies in a namespace.
fn asks(account: &Value, namespace: &str) -> bool {
    let scope = account["metadata"]["annotations"][SCOPE_ANNOTATION].as_str();
    account["metadata"]["labels"][ASK_LABEL] == "true"
        && !is_terminating(account)
        && scope.is_none_or(|scope| scope.split(',').any(|it| it.trim() == namespace))
}

/// Whether a token can belong to an earlier cluster of the same name: both the account and the latest write of the token
/// are older than the ManagedCluster. It is then not copied until the agent reports it again.
pub(crate) fn is_of_an_earlier(token: &Value, account: &Value, cluster: &Value) -> bool {
    let created =
        |object: &Value| object["metadata"]["creationTimestamp"].as_str().map(str::to_owned);
    let entries = token["metadata"]["managedFields"].as_array().into_iter().flatten();
    let of_data = entries.filter(|entry| entry["fieldsV1"]["f:data"].is_object());
    let written = of_data.filter_map(|entry| entry["time"].as_str().map(str::to_owned));
    let is_older =
        |time: Option<String>| time.zip(created(cluster)).is_some_and(|(time, made)| time < made);
    is_older(written.chain(created(token)).max()) && is_older(created(account))
}

fn check_copy(
    server: &Server,
    monitor: &Monitor,
    namespace: &str,
    name: &str,
) -> Result<(), String> {
    let offers: Vec<_> = accounts_of(name)
        .map(|(cluster, account)| (cluster, account, offers(server, namespace, cluster, account)))
        .collect();
    if offers.iter().any(|(_, _, offers)| offers.is_none()) {
        return Ok(());
    }
    let offered: Vec<_> =
        offers.into_iter().filter(|(_, _, offers)| *offers == Some(true)).collect();
    let found = server.object("secrets", namespace, name);
    if found.is_some_and(|secret| is_lost_copy(monitor, secret))
        || has_no_permission(server, monitor, namespace)
    {
        return Ok(());
    }
    let Some(copy) = found else {
        let foreign = offered.iter().all(|(cluster, ..)| is_foreign(server, namespace, cluster));
        return if offered.is_empty() || foreign { Ok(()) } else { Err("is missing".to_owned()) };
    };
    if !monitor.made.contains_key(uid_of(copy)) {
        let has_other_label =
            offered.iter().all(|(cluster, ..)| is_foreign(server, namespace, cluster));
        return if is_dressed_up(copy) && !has_other_label && !is_terminating(copy) {
            Err("is one that a tenant has forged".to_owned())
        } else {
            Ok(())
        };
    }
    if offered.is_empty() {
        let empty = copy["data"].as_object().is_none_or(serde_json::Map::is_empty);
        let over = is_terminating(copy) && (empty || copy["immutable"] == true);
        return if over { Ok(()) } else { Err("has a token without a grant".to_owned()) };
    }
    if is_terminating(copy) {
        return Ok(());
    }
    let matches = |cluster: &str, account: &str| {
        let source = server.object("secrets", cluster, account);
        let profile = server.object("clusterprofiles", namespace, cluster);
        source.is_some_and(|source| source["data"] == copy["data"])
            && profile.is_some_and(|profile| {
                copy["metadata"]["ownerReferences"][0]["uid"] == uid_of(profile)
            })
            && copy["metadata"]["labels"][COPY_LABEL] == name
    };
    if offered.iter().any(|(cluster, account, _)| matches(cluster, account)) {
        Ok(())
    } else {
        Err(format!("differs from the account's token: {copy}"))
    }
}

/// Checks the condition of an account: it reports a foreign Secret where the copy belongs, and is absent if every
/// namespace that is granted the cluster has the copy. Other reports are not checked.
fn check_condition(
    server: &Server,
    monitor: &Monitor,
    cluster: &str,
    account: &str,
) -> Result<(), String> {
    let Some(found) = server.object("managedserviceaccounts", cluster, account) else {
        return Ok(());
    };
    let name = format!("{cluster}-{account}");
    let shared = accounts_of(&name).count() > 1;
    let open = NAMESPACES.into_iter().filter(|namespace| is_open(server, namespace));
    let open = open.filter(|namespace| !has_no_permission(server, monitor, namespace));
    let visible: Vec<&str> =
        open.filter(|namespace| granted(server, namespace, cluster) != Some(false)).collect();
    let offered = |namespace: &&str| {
        offers(server, namespace, cluster, account) == Some(true)
            && !is_foreign(server, namespace, cluster)
    };
    let shown = condition(found, CONDITION_SYNCED);
    let copy = |namespace: &str| server.object("secrets", namespace, &name);
    let is_ours = |namespace: &str| {
        copy(namespace).is_some_and(|copy| {
            monitor.made.contains_key(uid_of(copy))
                && !is_lost_copy(monitor, copy)
                && !is_terminating(copy)
        })
    };
    let is_blocked = |namespace: &&str| {
        copy(namespace)
            .is_some_and(|copy| !monitor.made.contains_key(uid_of(copy)) && !is_dressed_up(copy))
    };
    let mut blocked =
        visible.iter().filter(|namespace| offered(namespace) && is_blocked(namespace));
    if let Some(namespace) = blocked.next().filter(|_| !shared) {
        return if shown["status"] == "False" {
            Ok(())
        } else {
            Err(format!(
                "has no condition, and a foreign Secret has the name of its copy in {namespace}"
            ))
        };
    }
    let is_everywhere = !visible.is_empty()
        && visible.iter().all(|namespace| offered(namespace) && is_ours(namespace));
    let narrowed = found["metadata"]["annotations"][SCOPE_ANNOTATION].is_string();
    // Where the syncer has no permission, whether the copy exists is unknown, and the condition says so. A namespace that
    // ends takes the permission first; the syncer then knows that the copy is gone by the end of the profile.
    let unknown = NAMESPACES.into_iter().any(|namespace| {
        has_no_permission(server, monitor, namespace)
            && granted(server, namespace, cluster) != Some(false)
            || !is_open(server, namespace)
                && server.object("clusterprofiles", namespace, cluster).is_some()
    });
    if is_everywhere && !shared && !narrowed && !unknown && !shown.is_null() {
        return Err(format!("has a condition, and none of its copies is missing: {shown}"));
    }
    Ok(())
}

/// The copies in a namespace that are missing or differ, and whose account has no condition that says so.
pub(crate) fn unreported(server: &Server, monitor: &Monitor, namespace: &str) -> Vec<String> {
    let mut found = Vec::new();
    for name in copy_names().iter().filter(|_| is_open(server, namespace)) {
        let Err(why) = check_copy(server, monitor, namespace, name) else { continue };
        let offering: Vec<_> = accounts_of(name)
            .filter(|(cluster, account)| offers(server, namespace, cluster, account) == Some(true))
            .filter_map(|(cluster, account)| {
                server.object("managedserviceaccounts", cluster, account)
            })
            .collect();
        let is_reported =
            |account: &&Arc<Value>| condition(account, CONDITION_SYNCED)["status"] == "False";
        if !offering.is_empty() && !offering.iter().any(is_reported) {
            found.push(format!("copy {namespace}/{name} {why}, and its account has no condition"));
        }
    }
    found
}

/// Whether a Secret is a copy that a tenant has stripped of its label and whose creator has ended: no watch shows it,
/// and no process knows its uid. The chart's policy prevents this.
fn is_lost_copy(monitor: &Monitor, secret: &Value) -> bool {
    monitor.abandoned.contains(uid_of(secret)) && secret["metadata"]["labels"][COPY_LABEL].is_null()
}

/// Whether a profile has the label of another manager: a missing copy is not created under it.
fn is_foreign(server: &Server, namespace: &str, cluster: &str) -> bool {
    let profile = server.object("clusterprofiles", namespace, cluster);
    profile.is_some_and(|profile| {
        let labelled = &profile["metadata"]["labels"][MANAGER_LABEL];
        // Nobody restores the labels of another manager's.
        profile["spec"]["clusterManager"]["name"] != MANAGER
            || labelled.as_str().is_some_and(|it| it != MANAGER)
    })
}

/// The namespaces of the profiles that have no label of a manager.
pub(crate) fn unlabelled_profiles(server: &Server) -> BTreeSet<String> {
    let profiles = server.objects_of("clusterprofiles");
    let unlabelled = profiles.filter(|it| it["metadata"]["labels"][MANAGER_LABEL].is_null());
    unlabelled.filter_map(|it| it["metadata"]["namespace"].as_str().map(str::to_owned)).collect()
}

/// Whether a tenant has removed the labels from the RoleBinding, which makes it the tenant's own, or has deleted it while
/// no process ran, and the grant has ended as well: then nothing shows that the permission is needed. The syncer works
/// without it, which affects only the tenant's own namespace.
fn has_no_permission(server: &Server, monitor: &Monitor, namespace: &str) -> bool {
    let is_deleted = monitor.permission_deleted.contains(namespace)
        && server.object("rolebindings", namespace, COPIES_ROLE).is_none();
    monitor.limited_secrets && (is_deleted || is_unlabelled(server, namespace))
}

fn is_unlabelled(server: &Server, namespace: &str) -> bool {
    let binding = server.object("rolebindings", namespace, COPIES_ROLE);
    binding.is_some_and(|binding| binding["metadata"]["labels"].is_null())
}

fn check_role_binding(server: &Server, monitor: &Monitor, namespace: &str) -> Result<(), String> {
    let is_needed = crate::hub::SETS.into_iter().any(|set| {
        let binding = server.object("managedclustersetbindings", namespace, set);
        binding.is_some_and(|binding| is_bound(binding))
            && server.object("managedclustersets", "", set).is_some()
    });
    match (server.object("rolebindings", namespace, COPIES_ROLE), is_needed) {
        // Where it is not needed, the name is the tenant's.
        (Some(_), false) if is_unlabelled(server, namespace) => Ok(()),
        (None, true) => Err("is missing".to_owned()),
        (Some(binding), true) if !gives_copies(binding) => {
            Err("does not grant the permission".to_owned())
        }
        (Some(_), false) if !monitor.two_leaders => {
            Err("exists without a ManagedClusterSetBinding".to_owned())
        }
        _ => Ok(()),
    }
}

fn check_tokens_role(server: &Server) -> Result<(), String> {
    // An account of a cluster that no namespace can see adds no name.
    let asks = |account: &Value| {
        let cluster = account["metadata"]["namespace"].as_str().unwrap_or_default();
        account["metadata"]["labels"][ASK_LABEL] == "true"
            && NAMESPACES.iter().any(|namespace| granted(server, namespace, cluster) != Some(false))
    };
    let asking: BTreeSet<&str> = server
        .objects_of("managedserviceaccounts")
        .filter(|account| asks(account))
        .filter_map(|account| account["metadata"]["name"].as_str())
        .collect();
    let role = server.object("clusterroles", "", TOKENS_ROLE).ok_or("is missing")?;
    let named = names_in_rules(Some(role));
    if named == asking { Ok(()) } else { Err(format!("expected {asking:?}, got {named:?}")) }
}

/// What must end within seconds when a grant ends and nothing fails: copies with a token, and accounts of consumers.
pub(crate) fn surplus(server: &Server, monitor: &Monitor) -> BTreeSet<String> {
    let copies = misplaced(server, monitor)
        .into_iter()
        .map(|it| format!("{it} has a token without a grant"));
    copies.chain(consumer::without_grant(server, monitor)).collect()
}

/// The copies with a token that no account of their name should have in that namespace.
fn misplaced(server: &Server, monitor: &Monitor) -> BTreeSet<String> {
    let holds = |secret: &Value| {
        secret["data"]["token"].is_string()
            && monitor.made.contains_key(uid_of(secret))
            && !is_lost_copy(monitor, secret)
    };
    let mut misplaced = BTreeSet::new();
    for namespace in NAMESPACES {
        for name in copy_names() {
            let there =
                server.object("secrets", namespace, &name).is_some_and(|secret| holds(secret));
            let nowhere = accounts_of(&name).all(|(cluster, account)| {
                offers(server, namespace, cluster, account) == Some(false)
            });
            if there
                && nowhere
                && is_open(server, namespace)
                && !has_no_permission(server, monitor, namespace)
            {
                misplaced.insert(format!("{namespace}/{name}"));
            }
        }
    }
    misplaced
}
