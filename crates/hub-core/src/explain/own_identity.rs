//! Whether applications of the namespace reach the cluster by their own identity.

use std::collections::BTreeSet;

use hub_api::names::{AccountKey, AccountName};

use super::credential::{ACCOUNT, CONDITION_REPORTED, agent_command, condition};
use super::observed::ShownProfile;
use super::permission::{AccountPermission, not_applied, not_applied_finding};
use super::{Code, Findings, Object, Pair, Status, Step};
use crate::access::DEFAULT_OWN_IDENTITY_PROVIDER;

impl Pair<'_> {
    /// The step of applications whose permissions consumer access maintains. Returns whether there are any: they need
    /// no copy of a token.
    pub(super) fn own_identity_steps(&self, findings: &mut Findings) -> bool {
        let (hub, key) = (self.hub, self.key);
        let of_cluster: Vec<_> = hub.permissions.get(&key.cluster).into_iter().flatten().collect();
        let name_of = |permission: &&AccountPermission| {
            let (namespace, name) = permission.service_account()?;
            (namespace == key.namespace.as_str()).then(|| name.to_owned())
        };
        let ours: Vec<_> = of_cluster.iter().copied().filter(|it| name_of(it).is_some()).collect();
        let Some(first) = ours.first() else { return false };
        let step = |mark, code, object| self.finding(Step::OwnIdentity, mark, code, object);
        let names: BTreeSet<_> = ours.iter().filter_map(name_of).collect();
        if let Some(permission) = not_applied(&ours) {
            findings.add(not_applied_finding(step(
                Status::Problem,
                Code::PermissionsNotApplied,
                permission.object.clone(),
            )));
            return true;
        }
        // The account that may act as them has its permission in the same object.
        let of_user_server =
            of_cluster.iter().find(|it| it.object == first.object && it.service_account().is_none());
        if let Some(permission) = of_user_server {
            let account = AccountName::from(permission.account.as_str());
            let key = AccountKey { cluster: key.cluster.clone(), account };
            let known = hub.credentials.account(&key);
            let is_reported =
                condition(known, CONDITION_REPORTED).is_some_and(|(status, ..)| status == "True");
            if !is_reported && hub.credentials.knows_accounts() {
                let object = Object::namespaced(ACCOUNT, &key.cluster, &key.account);
                findings.add(
                    step(Status::Problem, Code::UserServerHasNoToken, object)
                        .field(format!("status.conditions[{CONDITION_REPORTED}]"), "not True")
                        .fix(agent_command(&key)),
                );
                return true;
            }
        }
        // The user server may be published by another name.
        let of_tokens = hub.access.provider();
        let is_missing = |it: &ShownProfile| !it.observed.has_other_access_provider(of_tokens);
        let field = format!("status.accessProviders[{DEFAULT_OWN_IDENTITY_PROVIDER}]");
        match self.profile() {
            Some(profile) if is_missing(profile) => findings.add(
                step(Status::Problem, Code::OwnIdentityNotPublished, self.profile_object())
                    .field(field, "missing")
                    .fix(format!(
                        "kubectl get clusterprofile {} --namespace {} --output yaml",
                        key.cluster, key.namespace
                    )),
            ),
            _ => findings.ok(|| {
                step(Status::Ok, Code::OwnIdentityAccepted, first.object.clone())
                    .field("subjects", names.into_iter().collect::<Vec<_>>().join(", "))
            }),
        }
        true
    }
}
