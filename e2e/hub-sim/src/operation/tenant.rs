//! Operations of tenants and other controllers on profiles, and on Secrets where copies belong.

use serde_json::{Value, json};

use super::{Others, ProfileTenant, RoleBindingTenant, SecretTenant};
use crate::hub::{COPIES_ROLE, COPY_ANNOTATIONS, COPY_LABEL, MANAGER, MANAGER_LABEL, condition};

impl Others {
    pub(super) fn profile(&self, namespace: &str, cluster: &str, what: ProfileTenant) {
        use ProfileTenant as P;
        let kind = "clusterprofiles";
        let of = |manager: &str| json!({ "metadata": { "labels": { MANAGER_LABEL: manager } }, "spec": { "clusterManager": { "name": manager } } });
        let patch = |patch: Value| self.tenant.patch(kind, namespace, cluster, &patch);
        let entry =
            |name: &str| json!({ "name": name, "cluster": { "server": "https://elsewhere:443" } });
        match what {
            P::Delete => self.tenant.delete(kind, namespace, cluster),
            P::Strip => patch(json!({ "metadata": { "labels": null } })),
            P::Rename => patch(json!({ "spec": { "displayName": "renamed" } })),
            P::Annotate => {
                patch(
                    json!({ "metadata": { "annotations": { "note": "x" }, "labels": { "mine": "y" } } }),
                );
            }
            P::Hold => patch(json!({ "metadata": { "finalizers": ["example.com/hold"] } })),
            P::Release => patch(json!({ "metadata": { "finalizers": null } })),
            P::CreateOurs => {
                self.tenant.create(kind, namespace, cluster, &of(MANAGER));
            }
            P::CreateForeign => {
                self.tenant.create(kind, namespace, cluster, &of("someone"));
            }
            P::WipeStatus => {
                let status = json!({ "version": null, "properties": null, "conditions": null, "accessProviders": null });
                self.tenant.patch_status(kind, namespace, cluster, &status);
            }
            P::AddProvider | P::RemoveProvider | P::AddCondition | P::DisguiseProvider => {
                let Some(profile) = self.other.get(kind, namespace, cluster) else { return };
                let list =
                    |field: &str| profile["status"][field].as_array().cloned().unwrap_or_default();
                let with = |field: &str, key: &str, name: &str, more: Option<Value>| {
                    let mut list = list(field);
                    list.retain(|entry| entry[key] != name);
                    list.extend(more);
                    list
                };
                let status = match what {
                    P::AddProvider => {
                        json!({ "accessProviders": with("accessProviders", "name", "another", Some(entry("another"))) })
                    }
                    P::RemoveProvider => {
                        json!({ "accessProviders": with("accessProviders", "name", "another", None) })
                    }
                    P::DisguiseProvider => {
                        json!({ "accessProviders": with("accessProviders", "name", MANAGER, Some(entry(MANAGER))) })
                    }
                    _ => {
                        json!({ "conditions": with("conditions", "type", "Theirs", Some(condition("Theirs", "True", "Because"))) })
                    }
                };
                self.other.patch_status(kind, namespace, cluster, &status);
            }
        }
    }

    pub(super) fn secret(&self, namespace: &str, cluster: &str, account: &str, what: SecretTenant) {
        use SecretTenant as S;
        let (kind, name) = ("secrets", format!("{cluster}-{account}"));
        let patch = |patch: Value| self.tenant.patch(kind, namespace, &name, &patch);
        match what {
            S::Delete => self.tenant.delete(kind, namespace, &name),
            S::Edit => patch(json!({ "data": { "token": "ZWRpdGVk", "more": "eA==" } })),
            S::Unlabel => patch(json!({ "metadata": { "labels": { COPY_LABEL: null } } })),
            S::Hold => patch(json!({ "metadata": { "finalizers": ["example.com/hold"] } })),
            S::Release => patch(json!({ "metadata": { "finalizers": null } })),
            S::CreateForeign => {
                let body = json!({ "stringData": { "password": "mine" } });
                self.tenant.create(kind, namespace, &name, &body);
            }
            S::Disown => {
                let blank = json!({ "metadata": { "labels": null, "annotations": null, "ownerReferences": null, "managedFields": [{}] } });
                patch(blank);
            }
            S::Forge => {
                let [by_cluster, by_account, by_uid] = COPY_ANNOTATIONS;
                let body = json!({
                    "metadata": {
                        "labels": { COPY_LABEL: name },
                        "annotations": { by_cluster: cluster, by_account: account, by_uid: "x", "replicate": "everywhere" },
                    },
                    "stringData": { "mine": "x" },
                });
                let mut request = self.world.lock().server.creation(kind, namespace, &name, &body);
                request
                    .query
                    .insert("fieldManager".to_owned(), "hub-addons-credential-syncer".to_owned());
                self.tenant.send(&request);
            }
        }
    }

    pub(super) fn role_binding(&self, namespace: &str, what: RoleBindingTenant) {
        let kind = "rolebindings";
        match what {
            RoleBindingTenant::Delete => {
                self.tenant.delete(kind, namespace, COPIES_ROLE);
                self.world.lock().monitor.permission_deleted.insert(namespace.to_owned());
            }
            RoleBindingTenant::Redirect => {
                let subject =
                    json!({ "kind": "ServiceAccount", "name": "mine", "namespace": namespace });
                self.tenant.patch(kind, namespace, COPIES_ROLE, &json!({ "subjects": [subject] }));
            }
            RoleBindingTenant::Unlabel => {
                self.tenant.patch(
                    kind,
                    namespace,
                    COPIES_ROLE,
                    &json!({ "metadata": { "labels": null } }),
                );
            }
        }
    }
}
