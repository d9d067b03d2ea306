//! Which rights the credential syncer has where it must not have them everywhere: to tokens by the names of the
//! accounts that ask for copies, and to copies in the namespaces that are bound.
//!
//! RBAC cannot limit a right to a label. It can limit `list` and `watch` to a name (for requests that select
//! `metadata.name`), and any verb to a namespace. Both lists change as people label accounts and bind sets.

use std::collections::{BTreeMap, BTreeSet};

use hub_api::names::{AccountName, Namespace};
use k8s_openapi::api::rbac::v1::{PolicyRule, RoleBinding, RoleRef, Subject};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

/// The label of the RoleBindings that are ours.
pub const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "hub-addons");
/// The label that tells them from others of the same manager.
pub const COMPONENT: (&str, &str) = ("app.kubernetes.io/component", "credential-rights");

const RBAC: &str = "rbac.authorization.k8s.io";

/// Who gets the rights, and by which roles.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PermissionSettings {
    /// The namespace of the syncer's ServiceAccount.
    pub namespace: Namespace,
    /// The name of the syncer's ServiceAccount.
    pub service_account: String,
    /// The ClusterRole that is bound in each namespace; the RoleBindings have its name, too.
    pub copies_role: String,
    /// The ClusterRole whose rule names the tokens.
    pub tokens_role: String,
}

impl PermissionSettings {
    /// The RoleBinding of a namespace. It goes with the role, which has this uid: without it it gives nothing, and
    /// whoever makes a role of that name later would give more than he knows.
    #[must_use]
    pub fn binding(&self, namespace: &Namespace, role_uid: &str) -> RoleBinding {
        let labels = [MANAGED_BY, COMPONENT].map(|(key, value)| (key.to_owned(), value.to_owned()));
        RoleBinding {
            metadata: ObjectMeta {
                name: Some(self.copies_role.clone()),
                namespace: Some(namespace.to_string()),
                labels: Some(BTreeMap::from(labels)),
                owner_references: Some(vec![OwnerReference {
                    api_version: format!("{RBAC}/v1"),
                    kind: "ClusterRole".to_owned(),
                    name: self.copies_role.clone(),
                    uid: role_uid.to_owned(),
                    ..OwnerReference::default()
                }]),
                ..ObjectMeta::default()
            },
            role_ref: RoleRef {
                api_group: RBAC.to_owned(),
                kind: "ClusterRole".to_owned(),
                name: self.copies_role.clone(),
            },
            subjects: Some(vec![Subject {
                kind: "ServiceAccount".to_owned(),
                name: self.service_account.clone(),
                namespace: Some(self.namespace.to_string()),
                api_group: None,
            }]),
        }
    }

    /// Whether a RoleBinding gives what ours would, to whom ours would, and goes with the role.
    #[must_use]
    pub fn is_right(&self, observed: &RoleBinding, role_uid: &str) -> bool {
        let wanted = self.binding(&Namespace::from(""), role_uid);
        // The API server fills in the group of a ServiceAccount, which is none.
        let subjects: Vec<_> = observed.subjects.iter().flatten().map(without_empty_group).collect();
        observed.role_ref == wanted.role_ref
            && Some(subjects) == wanted.subjects
            && observed.metadata.owner_references == wanted.metadata.owner_references
    }
}

fn without_empty_group(subject: &Subject) -> Subject {
    let api_group = subject.api_group.clone().filter(|group| !group.is_empty());
    Subject { api_group, ..subject.clone() }
}

/// The rules of the role that names the tokens. No name is no rule: a rule without names is one for all.
#[must_use]
pub fn token_rules(names: &BTreeSet<AccountName>) -> Vec<PolicyRule> {
    if names.is_empty() {
        return Vec::new();
    }
    let owned = |list: &[&str]| list.iter().map(ToString::to_string).collect::<Vec<_>>();
    vec![PolicyRule {
        api_groups: Some(owned(&[""])),
        resources: Some(owned(&["secrets"])),
        verbs: owned(&["list", "watch"]),
        resource_names: Some(names.iter().map(ToString::to_string).collect()),
        ..PolicyRule::default()
    }]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> PermissionSettings {
        PermissionSettings {
            namespace: "addons".into(),
            service_account: "syncer".to_owned(),
            copies_role: "copies".to_owned(),
            tokens_role: "tokens".to_owned(),
        }
    }

    #[test]
    fn no_account_is_no_right_and_not_every_right() {
        assert_eq!(token_rules(&BTreeSet::new()), []);
    }

    #[test]
    fn tokens_are_named_each() {
        let rules = token_rules(&["b".into(), "a".into()].into());
        assert_eq!(rules[0].resource_names, Some(vec!["a".to_owned(), "b".to_owned()]));
        assert_eq!(rules[0].verbs, ["list", "watch"]);
    }

    #[test]
    fn a_binding_to_somebody_else_or_to_another_role_is_not_right() {
        let right = settings().binding(&"team".into(), "1");
        assert!(settings().is_right(&right, "1"));
        // The role was made anew, and the garbage collector is about to take what hangs on the old one.
        assert!(!settings().is_right(&right, "2"));
        let mut more = right.clone();
        more.subjects.as_mut().unwrap().push(Subject { name: "eve".to_owned(), ..Subject::default() });
        let mut other = right.clone();
        other.role_ref.name = "cluster-admin".to_owned();
        let mut orphan = right.clone();
        orphan.metadata.owner_references = None;
        let mut nobody = right;
        nobody.subjects = None;
        for wrong in [more, other, orphan, nobody] {
            assert!(!settings().is_right(&wrong, "1"), "{wrong:?}");
        }
    }
}
