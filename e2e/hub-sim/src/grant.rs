//! Which clusters a namespace is granted: a second implementation, which shares no code with `hub-core`.

use serde_json::Value;

use crate::hub::{EXCLUSIVE_LABEL, SETS};
use crate::model::{Server, is_terminating};

/// Whether a namespace may see a cluster; `None` if a selector cannot be read.
#[must_use]
pub fn granted(server: &Server, namespace: &str, cluster: &str) -> Option<bool> {
    let Some(cluster) =
        server.object("managedclusters", "", cluster).filter(|it| !is_terminating(it))
    else {
        return Some(false);
    };
    if cluster["spec"]["hubAcceptsClient"] != true {
        return Some(false);
    }
    let mut unknown = false;
    for set in SETS {
        let Some(binding) = server.object("managedclustersetbindings", namespace, set) else {
            continue;
        };
        let Some(found) = server.object("managedclustersets", "", set) else { continue };
        if !is_bound(binding) || binding["spec"]["clusterSet"] != set {
            continue;
        }
        match picks(&found["spec"]["clusterSelector"], set, &cluster["metadata"]["labels"]) {
            Some(true) => return Some(true),
            Some(false) => {}
            None => unknown = true,
        }
    }
    if unknown { None } else { Some(false) }
}

/// Whether a binding is in force.
pub(crate) fn is_bound(binding: &Value) -> bool {
    let conditions = binding["status"]["conditions"].as_array().into_iter().flatten();
    conditions
        .into_iter()
        .any(|condition| condition["type"] == "Bound" && condition["status"] == "True")
}

/// Whether a set selects a cluster with these labels; `None` if its selector cannot be read.
fn picks(selector: &Value, set: &str, labels: &Value) -> Option<bool> {
    if selector["selectorType"] != "LabelSelector" {
        return Some(labels[EXCLUSIVE_LABEL] == set);
    }
    let by_labels = &selector["labelSelector"];
    if by_labels.is_null() {
        return Some(false);
    }
    let exact = by_labels["matchLabels"].as_object().into_iter().flatten();
    let mut picked = exact.into_iter().all(|(key, value)| labels[key] == *value);
    for expression in by_labels["matchExpressions"].as_array().into_iter().flatten() {
        let key = expression["key"].as_str().unwrap_or_default();
        match expression["operator"].as_str() {
            Some("Exists") => picked &= labels[key].is_string(),
            _ => return None,
        }
    }
    Some(picked)
}
