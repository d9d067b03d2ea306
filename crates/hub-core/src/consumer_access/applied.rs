//! Whether a managed cluster has applied the parts of a ManifestWork or a ClusterPermission, as its status reports.
//!
//! The work agent writes the condition `Applied` of a ManifestWork together with one for each manifest: if it is about
//! this generation, so are these
//! (<https://github.com/open-cluster-management-io/ocm/blob/main/pkg/work/spoke/controllers/manifestcontroller/manifestwork_reconciler.go>).
//!
//! Few versions of cluster-permission report this for a ClusterPermission. Most set the condition
//! `AppliedRBACManifestWork` as soon as its ManifestWork is on the hub; later ones copy what the agent reports, without
//! the generation to which it applies. Only the list of applied bindings, `status.resourceStatus`, shows that the
//! cluster has each of them
//! (<https://github.com/open-cluster-management-io/cluster-permission/blob/main/controllers/clusterpermission_status_controller.go>).
//! It has no generation either: until the next report, one about an earlier binding of the same name counts.

use std::collections::BTreeMap;

use hub_api::text::Text;
use object_names::visible;
use serde_json::Value;

/// The condition of a ManifestWork, and of each part.
const APPLIED: &str = "Applied";
/// The reason of the conditions of both kinds if the cluster has not applied every part.
const FAILED: &str = "AppliedManifestWorkFailed";
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

/// A name and a namespace, which is empty if there is none.
pub(crate) type Id<'a> = (&'a str, &'a str);

/// A part that is not applied, and the message about it.
type Lacking = ((String, String), Option<String>);

/// What the status of a ManifestWork or a ClusterPermission reports.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Applied {
    /// The name and the namespace of each part that the cluster has not applied, with its message about it, if there is
    /// one. `None` if the cluster has not reported this generation.
    lacking: Option<Box<[Lacking]>>,
    /// The message of a condition of the whole that reports that it is not applied.
    failure: Option<Box<str>>,
}

impl Applied {
    /// Reads the status of an object with this name and generation.
    pub(crate) fn read(name: &str, generation: Option<i64>, object: &Value) -> Self {
        let condition = |kind| condition(&object["status"]["conditions"], kind);
        let is_current = |it: &&Value| {
            let about = it["observedGeneration"].as_i64();
            about.is_none_or(|about| generation.is_none_or(|generation| about >= generation))
        };
        let (work, permission) = (condition(APPLIED), condition(APPLIED_WORK));
        let is_of_agent = |it: &&Value| it["status"] == "True" || it["reason"] == FAILED;
        let reported = |it: Option<_>| it.filter(is_current).filter(is_of_agent);
        let parts = match (reported(work), reported(permission)) {
            (Some(work), _) if work["status"] == "True" => Some(Vec::new()),
            (Some(_), _) => Some(manifests(name, object)),
            (None, Some(_)) => Some(bindings_and_role(name, object)),
            (None, None) => None,
        };
        let lacking = parts.map(|parts| -> Box<[Lacking]> {
            let lacks = |((name, namespace), report): (Id<'_>, Option<&Value>)| {
                let report = report.filter(is_current);
                let is_applied = report.is_some_and(|it| it["status"] == "True");
                let id = (name.to_owned(), namespace.to_owned());
                (!is_applied).then(|| (id, report.and_then(failure)))
            };
            parts.into_iter().filter_map(lacks).collect::<BTreeMap<_, _>>().into_iter().collect()
        });
        let is_applied = lacking.as_deref().is_some_and(<[_]>::is_empty);
        let is_outdated = |validation: &Value| {
            let since = |it: &Value| it["lastTransitionTime"].as_str().map(str::to_owned);
            let is_later = |it: &Value| it["status"] == "True" && since(it) >= since(validation);
            is_applied || permission.is_some_and(is_later)
        };
        let validation = condition(VALIDATION).filter(|validation| !is_outdated(validation));
        let conditions = [work, permission, validation].into_iter().flatten();
        let failure = conditions.filter(|it| it["reason"] != NOT_REPORTED).find_map(failure);
        Self { lacking, failure: failure.map(Box::from) }
    }

    /// Whether the cluster has applied the parts with such names and namespaces; if not, its message about it, if there
    /// is one.
    pub(crate) fn of(&self, is_part: impl Fn(Id<'_>) -> bool) -> Result<(), Option<&str>> {
        let failure = self.failure.as_deref();
        let Some(lacking) = &self.lacking else { return Err(failure) };
        let mut parts = lacking.iter().filter(|((name, namespace), _)| is_part((name, namespace)));
        parts.next().map_or(Ok(()), |(_, message)| Err(message.as_deref().or(failure)))
    }
}

/// Whether a condition is true; if it is false, its message. `None` if there is none.
pub(crate) fn reported(object: &Value, kind: &str) -> Option<Result<(), Text>> {
    let condition = condition(&object["status"]["conditions"], kind)?;
    Some(if condition["status"] == "True" { Ok(()) } else { Err(message(condition).into()) })
}

/// The manifests of a ManifestWork, and what its status reports about each.
fn manifests<'a>(name: &'a str, work: &'a Value) -> Vec<(Id<'a>, Option<&'a Value>)> {
    let reports = &work["status"]["resourceStatus"]["manifests"];
    let manifests = entries(&work["spec"]["workload"]["manifests"]).map(|manifest| {
        let id = id(name, &manifest["metadata"]);
        let is_about = |meta: &Value| meta["kind"] == manifest["kind"] && self::id("", meta) == id;
        let report = entries(reports).find(|report| is_about(&report["resourceMeta"]));
        (id, report.and_then(|report| condition(&report["conditions"], APPLIED)))
    });
    manifests.collect()
}

/// The bindings of a ClusterPermission and its ClusterRole, and what its status reports about each.
fn bindings_and_role<'a>(name: &'a str, permission: &'a Value) -> Vec<(Id<'a>, Option<&'a Value>)> {
    let reported = |(field, list): (&str, &str)| {
        let reports = &permission["status"]["resourceStatus"][list];
        entries(&permission["spec"][field]).map(move |part| {
            let id = id(name, part);
            // A binding in the namespaces of a selector names none.
            let is_about =
                |(name, namespace)| name == id.0 && (id.1.is_empty() || namespace == id.1);
            let report = entries(reports).find(|report| is_about(self::id("", report)));
            let mut conditions =
                report.into_iter().flat_map(|it| [&it["condition"], &it["conditions"]]);
            (id, conditions.find_map(|it| condition(it, APPLIED)))
        })
    };
    BINDINGS.into_iter().chain([("clusterRole", "clusterRoles")]).flat_map(reported).collect()
}

/// The name and the namespace of a part. Without a name, it has that of its object.
pub(crate) fn id<'a>(object_name: &'a str, part: &'a Value) -> Id<'a> {
    let namespace = part["namespace"].as_str().unwrap_or_default();
    (part["name"].as_str().unwrap_or(object_name), namespace)
}

/// The objects of a list, or the one object in its place.
fn entries(value: &Value) -> impl Iterator<Item = &Value> {
    let list = value.as_array().map_or_else(|| std::slice::from_ref(value), Vec::as_slice);
    list.iter().filter(|entry| entry.is_object())
}

fn condition<'a>(conditions: &'a Value, kind: &str) -> Option<&'a Value> {
    conditions.as_array()?.iter().find(|condition| condition["type"] == kind)
}

/// The message of a condition that is false.
fn failure(condition: &Value) -> Option<String> {
    (condition["status"] == "False").then(|| message(condition))
}

/// The message of a condition, shortened and in one line: the managed cluster chooses it, and must not flood logs and
/// Events.
fn message(condition: &Value) -> String {
    const MOST: usize = 256;
    let message = condition["message"].as_str().unwrap_or_default();
    visible(&message.chars().take(MOST).collect::<String>())
}
