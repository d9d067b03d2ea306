//! Operations on the objects of the access of consumers: of agents and of cluster-permission, which report what they have
//! done, and of other clients.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{Index, ObjectTenant, Others, at};
use crate::consumers::{
    self, ACCESSES, ACCOUNTS, CLUSTER_PERMISSIONS, DECISIONS, KINDS, KUEUE_CLUSTERS, KUEUE_CONFIGS,
    MARKS, VARIANTS, WORKS, place,
};
use crate::hub::{CLUSTERS, condition};
use crate::model::{is_terminating, uid_of, without_nulls};
use crate::oracle::is_of_an_earlier;

/// Where agents of managed-serviceaccount are installed.
const AGENT_NAMESPACES: [&str; 2] = ["open-cluster-management-agent-addon", "agents"];

impl Others {
    /// Installs the agent of managed-serviceaccount on a cluster, as its addon shows, or removes it.
    pub(super) fn install(&self, cluster: &str, namespace: Option<Index>) {
        let (kind, name) = ("managedclusteraddons", "managed-serviceaccount");
        let Some(namespace) = namespace else { return self.ocm.delete(kind, cluster, name) };
        self.ocm.create(kind, cluster, name, &json!({ "spec": {} }));
        let status = json!({ "namespace": at(&AGENT_NAMESPACES, namespace) });
        self.agent.patch_status(kind, cluster, name, &status);
    }

    /// Applies or deletes the ClusterAccess of a variant. A user without the permission to bind its ClusterRoles also tries
    /// to create an object, and to change this one.
    pub(super) fn access(&self, variant: Index, is_applied: bool) {
        let (namespace, name, object) = consumers::object(usize::from(variant) % VARIANTS.len());
        if !is_applied {
            return self.tenant.delete(ACCESSES, namespace, name);
        }
        let created = without_nulls(&object);
        let permissions = json!([{ "clusterRole": "cluster-admin" }]);
        let beyond = json!({ "spec": { "identity": "Copy", "serviceAccountNames": ["app"], "permissions": permissions } });
        self.tenant.create(ACCESSES, namespace, name, &created);
        self.tenant.patch(ACCESSES, namespace, name, &object);
        self.unprivileged.create(ACCESSES, namespace, "beyond", &beyond);
        let permissions = json!({ "spec": { "permissions": permissions } });
        self.unprivileged.patch(ACCESSES, namespace, name, &permissions);
    }

    /// Sets or removes a finalizer of the ClusterAccess of a variant, which gives nothing while it holds the deletion.
    pub(super) fn hold_access(&self, variant: Index, is_held: bool) {
        let (namespace, name, _) = consumers::object(usize::from(variant) % VARIANTS.len());
        let finalizers = is_held.then_some(["example.com/hold"]);
        let patch = json!({ "metadata": { "finalizers": finalizers } });
        self.tenant.patch(ACCESSES, namespace, name, &patch);
    }

    /// One of the two decisions of the Placement of a namespace contains the clusters with these bits, or is deleted.
    pub(super) fn decide(&self, namespace: &str, clusters: u8) {
        let name = at(&["gpus-decision-1", "gpus-decision-2"], clusters / 8);
        if clusters.is_multiple_of(8) {
            return self.ocm.delete(DECISIONS, namespace, name);
        }
        let decided = CLUSTERS.iter().enumerate().filter(|(bit, _)| clusters >> bit & 1 == 1);
        let decisions: Vec<_> =
            decided.map(|(_, name)| json!({ "clusterName": name, "reason": "" })).collect();
        let labels = json!({ "cluster.open-cluster-management.io/placement": "gpus" });
        let object = json!({ "metadata": { "labels": labels }, "spec": {} });
        self.ocm.create(DECISIONS, namespace, name, &object);
        self.ocm.patch_status(DECISIONS, namespace, name, &json!({ "decisions": decisions }));
    }

    pub(super) fn object(&self, cluster: &str, account: &str, kind: Index, what: ObjectTenant) {
        use ObjectTenant as T;
        let plural = at(&KINDS, kind);
        let (namespace, name) = &place(plural, cluster, account);
        let patch = |patch: Value| self.tenant.patch(plural, namespace, name, &patch);
        match what {
            T::Create => {
                self.tenant.create(
                    plural,
                    namespace,
                    name,
                    &json!({ "spec": edited(plural, name) }),
                );
            }
            T::Delete => self.tenant.delete(plural, namespace, name),
            T::Edit => {
                let metadata = json!({ "annotations": { "note": "x" }, "labels": { "mine": "y" } });
                patch(json!({ "metadata": metadata, "spec": edited(plural, name) }));
            }
            T::Unmark => {
                let labels: Value =
                    MARKS.iter().map(|(mark, _)| ((*mark).to_owned(), Value::Null)).collect();
                patch(json!({ "metadata": { "labels": labels } }));
            }
            T::Hold => patch(json!({ "metadata": { "finalizers": ["example.com/hold"] } })),
            T::Release => patch(json!({ "metadata": { "finalizers": null } })),
            T::Fail => {
                if let Some(object) = self.agent.get(plural, namespace, name) {
                    self.apply(plural, &object, "False");
                }
            }
        }
    }

    /// Lets the agents and cluster-permission do all pending work: report the token of each account, and apply the
    /// permissions. What they have failed to apply stays. Returns whether there was any.
    pub fn agents(&self) -> bool {
        let (before, objects) = {
            let state = self.world.lock();
            let all = |plural| {
                state.server.objects_of(plural).cloned().map(move |object| (plural, object))
            };
            let objects = [ACCOUNTS, WORKS, CLUSTER_PERMISSIONS].into_iter().flat_map(all);
            (state.server.version(), objects.collect::<Vec<(&str, Arc<Value>)>>())
        };
        for (plural, object) in objects.iter().filter(|(_, object)| !is_terminating(object)) {
            if *plural == ACCOUNTS {
                self.report_if_needed(object);
            } else if applied(plural, object).is_none() {
                self.apply(plural, object, "True");
            }
        }
        self.world.lock().server.version() != before
    }

    fn report_if_needed(&self, account: &Value) {
        let text = |field: &str| account["metadata"][field].as_str().unwrap_or_default();
        let (cluster, name) = (text("namespace"), text("name"));
        let is_reported = self.agent.get("secrets", cluster, name).is_some_and(|token| {
            let of_cluster = self.agent.get("managedclusters", "", cluster);
            token["metadata"]["ownerReferences"][0]["uid"] == uid_of(account)
                && !of_cluster.is_some_and(|cluster| is_of_an_earlier(&token, account, &cluster))
        });
        if !is_reported {
            let version = self.world.lock().server.version();
            self.report(cluster, name, &version.to_string());
        }
    }

    fn apply(&self, plural: &str, object: &Value, status: &str) {
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
        let condition = |kind: &str| {
            let mut condition = condition(kind, status, "Simulated");
            condition["observedGeneration"] = object["metadata"]["generation"].clone();
            json!([condition])
        };
        let status = match plural {
            WORKS => json!({ "conditions": condition("Applied") }),
            CLUSTER_PERMISSIONS => {
                let bindings = |field: &str| {
                    let bindings = object["spec"][field].as_array().into_iter().flatten();
                    let applied = bindings.map(|binding| {
                        json!({
                            "name": binding["name"], "namespace": binding["namespace"],
                            "condition": condition("Applied"),
                        })
                    });
                    applied.collect::<Value>()
                };
                let applied = ["clusterRoleBindings", "roleBindings"]
                    .map(|list| (list.to_owned(), bindings(list)));
                json!({
                    "conditions": condition("AppliedRBACManifestWork"),
                    "resourceStatus": applied.into_iter().collect::<Value>(),
                })
            }
            _ => return,
        };
        self.agent.patch_status(plural, text("namespace"), text("name"), &status);
    }
}

/// Whether permissions are applied in their generation; `None` until that is reported.
fn applied(plural: &str, object: &Value) -> Option<bool> {
    let kind = if plural == WORKS { "Applied" } else { "AppliedRBACManifestWork" };
    let conditions = object["status"]["conditions"].as_array()?;
    let condition = conditions.iter().find(|condition| condition["type"] == kind)?;
    if condition["status"] == "False" {
        return Some(false);
    }
    (condition["observedGeneration"] == object["metadata"]["generation"]).then_some(true)
}

/// The spec that another client gives an object.
fn edited(plural: &str, name: &str) -> Value {
    let role = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin" });
    match plural {
        ACCOUNTS => json!({ "rotation": { "enabled": false, "validity": "1h0m0s" } }),
        WORKS => json!({
            "workload": { "manifests": [{ "kind": "ClusterRoleBinding", "metadata": { "name": name }, "roleRef": role }] },
            "deleteOption": { "propagationPolicy": "Orphan" },
        }),
        CLUSTER_PERMISSIONS => {
            json!({ "clusterRoleBindings": [{ "name": name, "roleRef": role }] })
        }
        KUEUE_CLUSTERS => {
            json!({ "clusterSource": { "clusterProfileRef": { "name": "elsewhere" } } })
        }
        KUEUE_CONFIGS => json!({ "clusters": ["elsewhere"] }),
        _ => Value::Null,
    }
}
