//! Whether applications of the namespace reach the cluster by their own identity.

use super::observed::NO_KUBE_API_PROXY;
use super::{CheckResult, Code, Object, Pair, Status, Step};
use crate::access::{OWN_IDENTITY_PROVIDER, Withheld};
use crate::consumer_access::AccessName;
use crate::known::Known;
use crate::own_identity;

impl Pair<'_> {
    /// Whether the profile shows the user server, for an object with the identity Own for which the cluster is ready.
    pub(super) fn own_identity_step(&self, access: &AccessName) -> CheckResult {
        let step = |code, object| self.finding(Step::OwnIdentity, code, object);
        if let Known::Present(deployment) = &self.hub.no_kube_api_proxy {
            let finding = step(Code::OwnIdentityUnsupported, deployment.clone());
            return finding.field("spec.template.spec.containers", NO_KUBE_API_PROXY).fix_by_get();
        }
        // The user server may be published by another name.
        let of_tokens = self.hub.access.provider();
        if self.profile().is_some_and(|it| it.observed.has_other_access_provider(of_tokens)) {
            let object = Object::namespaced("ClusterAccess", &access.namespace, &access.name);
            let names = self.hub.accesses[access].spec.service_account_names.join(", ");
            let accepted =
                step(Code::OwnIdentityAccepted, object).field("spec.serviceAccountNames", names);
            return match self.hub.no_kube_api_proxy {
                Known::Unknown => accepted.marked(Status::Unknown).fix(
                    "kubectl auth can-i list deployments/cluster-proxy-addon-manager --all-namespaces",
                ),
                _ => accepted,
            };
        }
        if own_identity::is_routable(&self.key.cluster) {
            let field = format!("status.accessProviders[{OWN_IDENTITY_PROVIDER}]");
            step(Code::OwnIdentityNotPublished, self.profile_object())
                .field(field, "missing")
                .fix_by_get()
        } else {
            step(Code::Withheld(Withheld::NameNotRoutable), self.profile_object()).fix_by_get()
        }
    }
}
