//! Operations on ManagedServiceAccounts, and the tokens that agents report.

use serde_json::json;

use super::{Operation, Others, at};
use crate::hub::{ACCOUNTS, ASK_LABEL, CLUSTERS, SCOPE_ANNOTATION, TOKEN_LABEL};
use crate::model::uid_of;

impl Others {
    pub(super) fn account(&self, operation: Operation) {
        use Operation as O;
        let kind = "managedserviceaccounts";
        match operation {
            O::CreateAccount(cluster, account) => {
                let body = json!({
                    "metadata": { "labels": { ASK_LABEL: "true" } },
                    "spec": { "rotation": { "enabled": true, "validity": "24h0m0s" } },
                });
                let (cluster, account) = (at(&CLUSTERS, cluster), at(&ACCOUNTS, account));
                self.tenant.create(kind, cluster, account, &body);
            }
            O::DeleteAccount(cluster, account) => {
                self.tenant.delete(kind, at(&CLUSTERS, cluster), at(&ACCOUNTS, account));
            }
            O::Ask(cluster, account, asks) => {
                let patch =
                    json!({ "metadata": { "labels": { ASK_LABEL: asks.then_some("true") } } });
                self.tenant.patch(kind, at(&CLUSTERS, cluster), at(&ACCOUNTS, account), &patch);
            }
            O::Scope(cluster, account, variant) => {
                let scope = [None, Some("team"), Some("other"), Some("team,other"), Some("")]
                    [usize::from(variant) % 5];
                let patch = json!({ "metadata": { "annotations": { SCOPE_ANNOTATION: scope } } });
                self.tenant.patch(kind, at(&CLUSTERS, cluster), at(&ACCOUNTS, account), &patch);
            }
            O::Report(cluster, account, variant) => {
                self.report(
                    at(&CLUSTERS, cluster),
                    at(&ACCOUNTS, account),
                    &(variant % 4).to_string(),
                );
            }
            O::Unreport(cluster, account) => {
                self.agent.delete("secrets", at(&CLUSTERS, cluster), at(&ACCOUNTS, account));
            }
            _ => {}
        }
    }

    /// Reports a token of an account, whose text ends with `variant`.
    pub fn report(&self, cluster: &str, account: &str, variant: &str) {
        let Some(owner) = self.agent.get("managedserviceaccounts", cluster, account) else {
            return;
        };
        let body = json!({
            "metadata": {
                "labels": { TOKEN_LABEL: "true" },
                "ownerReferences": [{
                    "apiVersion": "authentication.open-cluster-management.io/v1beta1",
                    "kind": "ManagedServiceAccount", "name": account, "uid": uid_of(&owner),
                }],
            },
            "type": "Opaque",
            "stringData": { "token": format!("token-{cluster}-{account}-{variant}"), "ca.crt": "authority" },
        });
        self.agent.create("secrets", cluster, account, &body);
        self.agent.patch("secrets", cluster, account, &body);
    }
}
