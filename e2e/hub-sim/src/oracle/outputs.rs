//! The outputs of a run, to compare them with those of another run.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    accounts_of, anchors, consumer, granted, has_no_permission, is_foreign, is_lost_copy, offers,
};
use crate::hub::{CLUSTER_NAME_LABEL, MANAGER, MANAGER_LABEL, SET_LABEL};
use crate::model::{Server, is_terminating, uid_of};
use crate::monitor::Monitor;

/// The parts of the outputs that this project owns, without what differs between any two runs.
#[must_use]
pub fn outputs(server: &Server, monitor: &Monitor) -> BTreeMap<String, Value> {
    let mut outputs = BTreeMap::new();
    for profile in server.objects_of("clusterprofiles") {
        let (namespace, name) = (&profile["metadata"]["namespace"], &profile["metadata"]["name"]);
        let (namespace, name) =
            (namespace.as_str().unwrap_or_default(), name.as_str().unwrap_or_default());
        let ours = profile["spec"]["clusterManager"]["name"] == MANAGER;
        if ours && !is_terminating(profile) && granted(server, namespace, name) == Some(true) {
            let of = |list: &str, key: &str, ours: &[&str]| {
                let entries = profile["status"][list].as_array().into_iter().flatten();
                let ours = entries.filter(|entry| ours.iter().any(|name| entry[key] == *name));
                ours.map(|entry| (entry[key].to_string(), entry.clone()))
                    .collect::<BTreeMap<_, _>>()
            };
            // If trust anchors cannot be read, the published ones stay; these depend on the path.
            let ours: &[&str] = if anchors(server).is_some() { &[MANAGER] } else { &[] };
            let labels = [MANAGER_LABEL, CLUSTER_NAME_LABEL, SET_LABEL]
                .map(|key| profile["metadata"]["labels"][key].clone());
            let shown = json!({
                "labels": labels, "spec": profile["spec"], "version": profile["status"]["version"],
                "properties": profile["status"]["properties"],
                "conditions": of("conditions", "type", &["ControlPlaneHealthy", "Joined"]),
                "access": of("accessProviders", "name", ours),
            });
            outputs.insert(format!("profile {namespace}/{name}"), shown);
        }
    }
    let is_ours = |secret: &&Arc<Value>| {
        monitor.made.contains_key(uid_of(secret)) && !is_lost_copy(monitor, secret)
    };
    for secret in server.objects_of("secrets").filter(is_ours) {
        let (namespace, name) = (&secret["metadata"]["namespace"], &secret["metadata"]["name"]);
        // Of two accounts with one name, the first keeps the copy; which one is first depends on the path.
        let name = name.as_str().unwrap_or_default();
        let shared = accounts_of(name).count() > 1;
        // A copy also stays under a profile that another manager takes over, where none would be created.
        let namespace = namespace.as_str().unwrap_or_default();
        let foreign = accounts_of(name).any(|(cluster, _)| is_foreign(server, namespace, cluster));
        let mut offers =
            accounts_of(name).map(|(cluster, account)| offers(server, namespace, cluster, account));
        let own = has_no_permission(server, monitor, namespace);
        // A copy that a finalizer keeps ends with its profile.
        let held = secret["metadata"]["finalizers"].is_array();
        if !shared
            && !foreign
            && !own
            && !held
            && offers.any(|it| it == Some(true))
            && !is_terminating(secret)
        {
            // Of an account that a process has created, each run has another token.
            let is_ours = accounts_of(name).any(|(cluster, account)| {
                let account = server.object("managedserviceaccounts", cluster, account);
                account.is_some_and(|account| monitor.made.contains_key(uid_of(account)))
            });
            let data = if is_ours { Value::Null } else { secret["data"].clone() };
            outputs.insert(format!("copy {namespace}/{name}"), data);
        }
    }
    consumer::outputs(server, monitor, &mut outputs);
    outputs
}
