//! The parts of a profile: what the projector owns and what it must preserve.

use hub_api::labels;
use hub_core::project::ProjectionSettings;
use serde_json::map::Entry;
use serde_json::{Map, Value, json};

/// The projector's part of a profile, with sorted lists, without the member ID, which may stay.
pub fn of_ours(profile: &Value, settings: &ProjectionSettings) -> Value {
    let shown = profile["metadata"]["labels"].as_object().cloned().unwrap_or_default();
    let labels: Map<String, Value> = shown
        .into_iter()
        .filter(|(key, _)| is_our_label(key, settings) && key != labels::MEMBER_ID)
        .collect();
    let status = &profile["status"];
    json!({
        "labels": labels,
        "spec": [profile["spec"]["displayName"], profile["spec"]["clusterManager"]],
        "version": status["version"]["kubernetes"],
        "properties": sorted(entries(&status["properties"]).iter()),
        "conditions": sorted(entries(&status["conditions"]).iter().filter(|entry| is_our_condition(entry))),
    })
}

/// All the rest of a profile, but for what the API server counts; the same bytes for the same content.
pub fn of_others(profile: &Value, settings: &ProjectionSettings) -> String {
    let mut rest = profile.clone();
    let metadata = field(&mut rest, "metadata");
    metadata.retain(|key, _| !matches!(key.as_str(), "resourceVersion" | "deletionTimestamp"));
    object(metadata.entry("labels")).retain(|key, _| !is_our_label(key, settings));
    field(&mut rest, "spec").remove("displayName");
    let status = field(&mut rest, "status");
    status.remove("properties");
    object(status.entry("version")).remove("kubernetes");
    // A value that is not a list contains no entries.
    let kept: Vec<Value> = status.get("conditions").map(entries).unwrap_or_default().to_vec();
    let kept = kept.into_iter().filter(|entry| !is_our_condition(entry)).collect();
    status.insert("conditions".to_owned(), Value::Array(kept));
    rest.to_string()
}

/// Whether the spec of a profile names us.
pub fn has_our_spec(profile: &Value, settings: &ProjectionSettings) -> bool {
    profile["spec"]["clusterManager"]["name"] == settings.manager.as_str()
}

/// Whether the manager label of a profile names us.
pub fn has_our_label(profile: &Value, settings: &ProjectionSettings) -> bool {
    profile["metadata"]["labels"][labels::CLUSTER_MANAGER] == settings.manager.as_str()
}

/// Whether a profile is on its way out.
pub fn is_terminating(profile: &Value) -> bool {
    profile["metadata"]["deletionTimestamp"].is_string()
}

fn is_our_label(key: &str, settings: &ProjectionSettings) -> bool {
    [labels::CLUSTER_MANAGER, labels::CLUSTER_NAME, labels::CLUSTER_SET, labels::MEMBER_ID]
        .contains(&key)
        || settings.propagated_labels.allows(key)
}

fn is_our_condition(entry: &Value) -> bool {
    matches!(entry["type"].as_str(), Some("ControlPlaneHealthy" | "Joined"))
}

fn entries(list: &Value) -> &[Value] {
    list.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn sorted<'a>(entries: impl Iterator<Item = &'a Value>) -> Vec<&'a Value> {
    let mut entries: Vec<_> = entries.collect();
    entries.sort_by_cached_key(ToString::to_string);
    entries
}

fn field<'a>(parent: &'a mut Value, name: &str) -> &'a mut Map<String, Value> {
    object(parent.as_object_mut().unwrap().entry(name))
}

/// The object in a field; any other value counts as an empty object.
fn object(entry: Entry<'_>) -> &mut Map<String, Value> {
    let value = entry.or_insert(Value::Null);
    if !value.is_object() {
        *value = json!({});
    }
    value.as_object_mut().unwrap()
}
