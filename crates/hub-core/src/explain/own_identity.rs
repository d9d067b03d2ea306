//! Whether applications of the namespace reach the cluster by their own identity.

use std::collections::BTreeSet;

use hub_api::names::{AccountKey, AccountName};

use super::credential::{ACCOUNT, CONDITION_REPORTED, agent_command, condition};
use super::observed::{ARGUMENTS, NO_KUBE_API_PROXY};
use super::permission::{AccountPermission, not_applied};
use super::{CheckResult, Code, Object, Pair, Step};
use crate::access::{OWN_IDENTITY_PROVIDER, Withheld};
use crate::own_identity;

impl Pair<'_> {
    /// The step of applications whose permissions consumer access maintains, if there are any: they need no copy of a
    /// token.
    pub(super) fn own_identity_step(&self) -> Option<CheckResult> {
        let (hub, key) = (self.hub, self.key);
        let of_cluster: Vec<_> = hub.permissions.get(&key.cluster).into_iter().flatten().collect();
        let name_of = |permission: &&AccountPermission| {
            let (namespace, name) = permission.service_account()?;
            (namespace == key.namespace.as_str()).then(|| name.to_owned())
        };
        let ours: Vec<_> = of_cluster.iter().copied().filter(|it| name_of(it).is_some()).collect();
        let first = ours.first()?;
        let step = |code, object| self.finding(Step::OwnIdentity, code, object);
        if let Some(deployment) = &hub.no_kube_api_proxy {
            let finding = step(Code::OwnIdentityUnsupported, deployment.clone());
            return Some(finding.field(ARGUMENTS, NO_KUBE_API_PROXY).fix_by_get());
        }
        let names: BTreeSet<_> = ours.iter().filter_map(name_of).collect();
        // The account that may act as them has its permission in the same object.
        let of_user_server = of_cluster
            .iter()
            .filter(|it| it.service_account().is_none())
            .filter(|it| ours.iter().any(|own| own.object == it.object))
            .max_by_key(|it| it.is_applied);
        let needed: Vec<_> = ours.iter().chain(of_user_server).copied().collect();
        if let Some(permission) = not_applied(&needed) {
            let finding = step(Code::PermissionsNotApplied, permission.object.clone());
            return Some(finding.field("status.conditions", "not applied").fix_by_get());
        }
        if let Some(permission) = of_user_server {
            let account = AccountName::from(permission.account.as_str());
            let key = AccountKey { cluster: key.cluster.clone(), account };
            let known = hub.credentials.account(&key);
            let is_reported =
                condition(known, CONDITION_REPORTED).is_some_and(|(status, ..)| status == "True");
            if !is_reported && hub.credentials.knows_accounts() {
                let object = Object::namespaced(ACCOUNT, &key.cluster, &key.account);
                let field = format!("status.conditions[{CONDITION_REPORTED}]");
                let finding = step(Code::UserServerHasNoToken, object).field(field, "not True");
                return Some(finding.fix(agent_command(&key)));
            }
        }
        // The user server may be published by another name.
        let of_tokens = hub.access.provider();
        if self.profile().is_some_and(|it| !it.observed.has_other_access_provider(of_tokens)) {
            let field = format!("status.accessProviders[{OWN_IDENTITY_PROVIDER}]");
            if !own_identity::is_routable(&key.cluster) {
                return Some(
                    step(Code::Withheld(Withheld::NameNotRoutable), self.profile_object())
                        .fix_by_get(),
                );
            }
            let finding = step(Code::OwnIdentityNotPublished, self.profile_object());
            return Some(finding.field(field, "missing").fix_by_get());
        }
        let finding = step(Code::OwnIdentityAccepted, first.object.clone());
        Some(finding.field("subjects", Vec::from_iter(names).join(", ")))
    }
}
