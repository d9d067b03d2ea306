//! Whether a managed cluster has applied a ManifestWork or a ClusterPermission, as its status reports.
//!
//! Few versions of cluster-permission report this for a ClusterPermission. Most set the condition
//! `AppliedRBACManifestWork` as soon as its ManifestWork is on the hub; later ones copy what the agent reports, without
//! the generation to which it applies. Only the list of applied bindings, `status.resourceStatus`, shows that the
//! cluster has each of them
//! (<https://github.com/open-cluster-management-io/cluster-permission/blob/main/controllers/clusterpermission_status_controller.go>).

use object_names::visible;
use serde_json::Value;

/// The condition of a ManifestWork.
const APPLIED: &str = "Applied";
/// The condition of a ClusterPermission.
const APPLIED_WORK: &str = "AppliedRBACManifestWork";
/// The condition of a ClusterPermission that cluster-permission rejects. It never becomes true again.
const VALIDATION: &str = "Validation";
/// The reason of the condition of a ClusterPermission whose cluster has not reported anything yet.
const NOT_REPORTED: &str = "ApplyRBACManifestWorkNotComplete";

/// The lists of bindings of a ClusterPermission, and where its status lists those that are applied.
const BINDINGS: [(&str, &str); 3] = [
    ("roleBindings", "roleBindings"),
    ("clusterRoleBinding", "clusterRoleBindings"),
    ("clusterRoleBindings", "clusterRoleBindings"),
];

/// What the status of a ManifestWork or a ClusterPermission reports.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Applied {
    /// Whether the cluster has applied it, in this generation.
    pub(crate) is_applied: bool,
    /// The message of a condition that reports that it is not applied.
    pub(crate) failure: Option<String>,
}

impl Applied {
    /// Reads the status of an object with this name and generation.
    pub(crate) fn read(name: &str, generation: Option<i64>, object: &Value) -> Self {
        let condition = |kind| condition(&object["status"]["conditions"], kind);
        let is_current = |it: &Value| {
            let about = it["observedGeneration"].as_i64();
            about.is_none_or(|about| generation.is_none_or(|generation| about >= generation))
        };
        let (work, permission) = (condition(APPLIED), condition(APPLIED_WORK));
        let is_true = |it: &Value| it["status"] == "True" && is_current(it);
        let is_applied = work.is_some_and(is_true)
            || (permission.is_some_and(is_true) && are_bindings_applied(name, object));
        let is_outdated = |validation: &Value| {
            let since = |it: &Value| it["lastTransitionTime"].as_str().map(str::to_owned);
            let is_later = |it: &Value| it["status"] == "True" && since(it) >= since(validation);
            is_applied || permission.is_some_and(is_later)
        };
        let validation = condition(VALIDATION).filter(|validation| !is_outdated(validation));
        let failure = [work, permission, validation]
            .into_iter()
            .flatten()
            .find(|it| it["status"] == "False" && it["reason"] != NOT_REPORTED);
        let failure = failure.map(|it| shortened(it["message"].as_str().unwrap_or_default()));
        Self { is_applied, failure }
    }
}

/// Whether a condition is true; if it is false, its message. `None` if there is none.
pub(crate) fn reported(object: &Value, kind: &str) -> Option<Result<(), String>> {
    let condition = condition(&object["status"]["conditions"], kind)?;
    let message = || shortened(condition["message"].as_str().unwrap_or_default());
    Some(if condition["status"] == "True" { Ok(()) } else { Err(message()) })
}

/// Every binding of a ClusterPermission.
pub(crate) fn bindings(permission: &Value) -> impl Iterator<Item = &Value> {
    BINDINGS.into_iter().flat_map(|(field, _)| entries(&permission["spec"][field]))
}

/// Whether the status of a ClusterPermission lists each of its bindings as applied.
fn are_bindings_applied(name: &str, permission: &Value) -> bool {
    let is_applied = |list: &str, binding: &Value| {
        // Without a name, a binding has that of the ClusterPermission.
        let name = binding["name"].as_str().unwrap_or(name);
        let namespace = &binding["namespace"];
        entries(&permission["status"]["resourceStatus"][list]).any(|entry| {
            let conditions =
                ["condition", "conditions"].map(|field| condition(&entry[field], APPLIED));
            entry["name"] == name
                && (namespace.is_null() || entry["namespace"] == *namespace)
                && conditions.into_iter().flatten().any(|it| it["status"] == "True")
        })
    };
    let all_of = |(field, list)| {
        entries(&permission["spec"][field]).all(|binding| is_applied(list, binding))
    };
    bindings(permission).next().is_some() && BINDINGS.into_iter().all(all_of)
}

/// The objects of a list, or the one object in its place.
fn entries(value: &Value) -> impl Iterator<Item = &Value> {
    let list = value.as_array().map_or_else(|| std::slice::from_ref(value), Vec::as_slice);
    list.iter().filter(|entry| entry.is_object())
}

fn condition<'a>(conditions: &'a Value, kind: &str) -> Option<&'a Value> {
    conditions.as_array()?.iter().find(|condition| condition["type"] == kind)
}

/// A message of the agent, shortened and in one line: the managed cluster chooses it, and must not flood logs and
/// Events.
fn shortened(message: &str) -> String {
    const MOST: usize = 256;
    visible(&message.chars().take(MOST).collect::<String>())
}
