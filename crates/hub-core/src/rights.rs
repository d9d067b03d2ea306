//! The permissions of a credential syncer that may not access all Secrets: for tokens by the names of the accounts that
//! opt in, and for copies in the namespaces with a bound set.
//!
//! RBAC cannot limit a permission to a label. It can limit `list` and `watch` to a name (for requests with a field
//! selector on `metadata.name`), and any verb to a namespace
//! (<https://kubernetes.io/docs/reference/access-authn-authz/rbac/#referring-to-resources>). Both lists change as users
//! label accounts and bind sets.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use hub_api::labels::{self, MANAGED_BY};
use hub_api::names::{AccountName, Namespace};
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule, Role, RoleBinding, RoleRef, Subject};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use crate::action::Action;
use crate::consumer_access::AccessRules;
use crate::credential::index::Listed;
use crate::known::Known;
use crate::protected::ProtectedNamespaces;
use crate::version::Version;

/// For how long the syncer has to show that nothing is left to delete in a namespace before a permission there that it no
/// longer needs is withdrawn.
pub const GRACE: Duration = Duration::from_mins(5);

/// The label that distinguishes our RoleBindings from other objects of ours.
pub const COMPONENT: (&str, &str) = ("app.kubernetes.io/component", "credential-rights");

const RBAC: &str = "rbac.authorization.k8s.io";

/// Who receives the permissions, and through which roles.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PermissionSettings {
    /// The namespace of the syncer's ServiceAccount.
    pub namespace: Namespace,
    /// The name of the syncer's ServiceAccount.
    pub service_account: String,
    /// The ClusterRole for copies, bound in each namespace by a RoleBinding of the same name.
    pub copies_role: String,
    /// The ClusterRole for tokens, whose rule lists their names.
    pub tokens_role: String,
    /// The namespaces that receive no permission, even if a set is bound there.
    pub protected: ProtectedNamespaces,
    /// Whether an account without the annotation that names namespaces opts in to no copy, as in the settings of the
    /// syncer.
    pub require_namespaces: bool,
    /// What ClusterAccesses may ask for, as in the settings of consumer access; without it, applications get no Roles.
    pub access_rules: Option<AccessRules>,
}

impl PermissionSettings {
    /// The RoleBinding of a namespace. The role owns it by its uid, so it is garbage-collected with the role: otherwise
    /// it would bind a later role of the same name.
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

    /// Whether a RoleBinding has the role, subject, labels and owner of ours. Of one that cannot be read, the labels count.
    fn is_right(&self, observed: &ObservedRole, role_uid: &str) -> bool {
        let wanted = ObservedRole::from(self.binding(&Namespace::from(""), role_uid));
        // The API server defaults the API group of a ServiceAccount subject to the empty string.
        let bound = observed.bound.clone().map(|(role, subjects)| {
            (role, subjects.iter().map(without_empty_group).collect::<Vec<_>>())
        });
        observed.is_of(COMPONENT)
            && (bound.is_none() || bound == wanted.bound && observed.owners == wanted.owners)
    }

    /// Plans the next write to the RoleBinding of a namespace, according to whether the syncer should have the
    /// permission ([`Needs::has`]). `role_uid` is the uid of the role that it binds.
    ///
    /// A RoleBinding that differs is deleted and recreated, because `roleRef` is immutable
    /// (<https://kubernetes.io/docs/reference/access-authn-authz/rbac/#clusterrolebinding-example>). A RoleBinding with
    /// our labels that cannot be read is kept as long as the syncer should have the permission.
    ///
    /// # Errors
    ///
    /// The role does not exist.
    pub fn plan_binding(
        &self,
        namespace: &Namespace,
        has: bool,
        role_uid: &Known<String>,
        observed: Option<&ObservedRole>,
    ) -> Result<RightsAction, MissingRole> {
        // Where the syncer needs the permission, a RoleBinding of another owner with this name is replaced: otherwise
        // the syncer could not delete its copies there.
        let observed = observed.filter(|observed| observed.is_of(COMPONENT) || has);
        let role_uid = match (role_uid, observed) {
            (Known::Present(uid), _) => uid,
            (Known::Unknown, Some(observed)) if !has => {
                return Ok(RightsAction::DeleteByUid(observed.version.uid.clone()));
            }
            (Known::Absent, observed) if observed.is_some() || has => return Err(MissingRole),
            (Known::Absent | Known::Unknown, _) => return Ok(RightsAction::Nothing),
        };
        let Some(observed) = observed else {
            let create = || RightsAction::Create(Box::new(self.binding(namespace, role_uid)));
            return Ok(if has { create() } else { RightsAction::Nothing });
        };
        Ok(if !has || !self.is_right(observed, role_uid) {
            RightsAction::DeleteByUid(observed.version.uid.clone())
        } else {
            RightsAction::Nothing
        })
    }
}

/// A ClusterRole, a Role or a RoleBinding, as decisions read it.
#[derive(Debug, Clone, PartialEq)]
pub struct ObservedRole {
    pub version: Version,
    /// The component that it belongs to, by its labels, if these also name our manager.
    component: Option<String>,
    pub(crate) owners: Vec<OwnerReference>,
    /// The names in each are in order.
    pub rules: Vec<PolicyRule>,
    /// What a RoleBinding binds, and to whom; `None` if it cannot be read.
    pub(crate) bound: Option<(RoleRef, Vec<Subject>)>,
}

impl ObservedRole {
    /// What the metadata alone shows.
    #[must_use]
    pub fn of_metadata(metadata: &ObjectMeta) -> Self {
        let is_ours = labels::has(metadata, MANAGED_BY);
        let component = labels::get(metadata, COMPONENT.0).filter(|_| is_ours);
        Self {
            version: Version::of(metadata),
            component: component.map(str::to_owned),
            owners: metadata.owner_references.clone().unwrap_or_default(),
            rules: Vec::new(),
            bound: None,
        }
    }

    /// Whether it is one of ours of this component.
    #[must_use]
    pub fn is_of(&self, (_, component): (&str, &str)) -> bool {
        self.component.as_deref() == Some(component)
    }

    /// Whether a rule names an object.
    #[must_use]
    pub fn names(&self, name: &str) -> bool {
        let mut names = self.rules.iter().filter_map(|rule| rule.resource_names.as_ref());
        names.any(|names| names.binary_search_by(|it| it.as_str().cmp(name)).is_ok())
    }

    /// How many objects the rules name.
    #[must_use]
    pub fn count_names(&self) -> usize {
        self.rules.iter().filter_map(|rule| rule.resource_names.as_ref()).map(Vec::len).sum()
    }
}

impl From<ClusterRole> for ObservedRole {
    fn from(role: ClusterRole) -> Self {
        Self { rules: sorted(role.rules), ..Self::of_metadata(&role.metadata) }
    }
}

impl From<Role> for ObservedRole {
    fn from(role: Role) -> Self {
        Self { rules: sorted(role.rules), ..Self::of_metadata(&role.metadata) }
    }
}

impl From<RoleBinding> for ObservedRole {
    fn from(RoleBinding { metadata, role_ref, subjects }: RoleBinding) -> Self {
        let bound = Some((role_ref, subjects.unwrap_or_default()));
        Self { bound, ..Self::of_metadata(&metadata) }
    }
}

/// Annotation on the Lease of the syncer: the namespaces in which it has the permission and nothing left to delete,
/// separated by commas; [`EVERYWHERE`] if it needs no permission by RoleBindings.
pub const CLEARED_NAMESPACES: &str = "hub-addons/cleared-namespaces";

/// The maximum number of namespaces in the annotation. The others follow once the permissions in these are withdrawn.
const MAX_CLEARED: usize = 500;

/// The value of [`CLEARED_NAMESPACES`] of a syncer that may delete Secrets everywhere.
pub const EVERYWHERE: &str = "*";

/// The value of [`CLEARED_NAMESPACES`]; `None` without namespaces.
#[must_use]
pub fn cleared_namespaces(namespaces: impl Iterator<Item = Namespace>) -> Option<String> {
    let names: Vec<String> =
        namespaces.take(MAX_CLEARED).map(|namespace| namespace.to_string()).collect();
    (!names.is_empty()).then(|| names.join(","))
}

/// The namespaces in which the syncer has nothing left to delete, by [`CLEARED_NAMESPACES`] in the metadata of its Lease.
/// A syncer that does not set it has cleared nothing.
#[must_use]
pub fn cleared_by(lease: &ObjectMeta) -> Listed<Namespace> {
    match labels::annotation(lease, CLEARED_NAMESPACES) {
        Some(EVERYWHERE) => Listed::All,
        names => {
            let names = names.into_iter().flat_map(|names| names.split(','));
            Listed::Of(names.map(Namespace::from).collect())
        }
    }
}

/// The namespaces that need the permission, and those whose need has ended. For the latter, it counts for how long the
/// syncer has shown that it has nothing left to delete there.
///
/// It has no clock: the caller passes for how long the syncer has run ([`Self::advance`]).
#[derive(Debug, Default)]
pub struct Needs(BTreeMap<Namespace, PermissionNeed>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PermissionNeed {
    /// A cluster may be granted to the namespace.
    Now,
    /// The need has ended, and the syncer has not shown that it has nothing left to delete.
    Ended,
    /// The need has ended, and the syncer has shown for this long without interruption that it has nothing left to
    /// delete.
    Idle(Duration),
}

impl PermissionNeed {
    fn is_over(self) -> bool {
        matches!(self, Self::Idle(idle) if idle >= GRACE)
    }
}

impl Needs {
    /// Records that the syncer has run for this long since it was last observed, and that it has nothing left to delete
    /// in these namespaces. No other time counts: a syncer that does not run, cannot list the copies, or fails to
    /// delete one, still needs the permission. Returns the namespaces whose grace period is over.
    pub fn advance(&mut self, ran: Duration, cleared: &Listed<Namespace>) -> Vec<Namespace> {
        let mut over = Vec::new();
        for (namespace, need) in &mut self.0 {
            let before = *need;
            *need = match before {
                PermissionNeed::Now => PermissionNeed::Now,
                // Once its permission is being withdrawn, the syncer no longer lists the namespace as cleared.
                over if over.is_over() => over,
                _ if !cleared.has(namespace) => PermissionNeed::Ended,
                PermissionNeed::Ended => PermissionNeed::Idle(Duration::ZERO),
                PermissionNeed::Idle(idle) => PermissionNeed::Idle(idle.saturating_add(ran)),
            };
            if need.is_over() && !before.is_over() {
                over.push(namespace.clone());
            }
        }
        over
    }

    /// Forgets a namespace that is gone or being deleted, and its copies with it, unless the permission is needed now:
    /// no RoleBinding is then created in a new namespace of that name. Returns false if the permission is needed.
    pub fn end(&mut self, namespace: &Namespace) -> bool {
        let is_ended = self.0.get(namespace) != Some(&PermissionNeed::Now);
        if is_ended {
            self.0.remove(namespace);
        }
        is_ended
    }

    /// Records whether a namespace needs the permission now and whether its RoleBinding exists. Returns whether the
    /// syncer should have the permission there: the namespace needs it, or its grace period is not over.
    pub fn has(&mut self, namespace: &Namespace, is_needed: bool, exists: bool) -> bool {
        if is_needed {
            self.0.insert(namespace.clone(), PermissionNeed::Now);
            return true;
        }
        let need = match self.0.get(namespace) {
            Some(PermissionNeed::Now) => PermissionNeed::Ended,
            Some(need) => *need,
            None if exists => PermissionNeed::Ended,
            None => return false,
        };
        if need.is_over() && !exists {
            self.0.remove(namespace);
        } else {
            self.0.insert(namespace.clone(), need);
        }
        !need.is_over()
    }
}

/// The next write: it creates the RoleBinding of a namespace, or sets the rules of a role.
pub type RightsAction = Action<Box<RoleBinding>, Vec<PolicyRule>>;

/// The ClusterRole that is to be bound, or to have rules, does not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MissingRole;

/// Rules whose names are in order.
fn sorted(rules: Option<Vec<PolicyRule>>) -> Vec<PolicyRule> {
    let mut rules = rules.unwrap_or_default();
    for names in rules.iter_mut().filter_map(|rule| rule.resource_names.as_mut()) {
        names.sort_unstable();
    }
    rules
}

/// The names of objects in these rules.
pub(crate) fn each_name_in(rules: &[PolicyRule]) -> impl Iterator<Item = &str> {
    rules.iter().flat_map(|rule| rule.resource_names.iter().flatten()).map(String::as_str)
}

/// Plans the next write to the role for tokens. `names` are those of the accounts that opt in, and `None` until their
/// list is complete.
///
/// # Errors
///
/// The role does not exist.
pub fn plan_tokens(
    role: &Known<ObservedRole>,
    names: Option<&BTreeSet<AccountName>>,
) -> Result<RightsAction, MissingRole> {
    let role = match role {
        Known::Unknown => return Ok(RightsAction::Nothing),
        Known::Absent => return Err(MissingRole),
        Known::Present(role) => role,
    };
    Ok(match names.map(token_rules) {
        Some(rules) if rules != role.rules => RightsAction::Patch(role.version.clone(), rules),
        _ => RightsAction::Nothing,
    })
}

/// Whether a RoleBinding grants the syncer its permission for copies, as far as the syncer can see: it binds the role,
/// has our labels and is owned by the role. A RoleBinding with only the name may be a tenant's.
#[must_use]
pub fn gives_copies(observed: &RoleBinding, role: &str) -> bool {
    let is_role = |kind: &str, name: &str| kind == "ClusterRole" && name == role;
    let mut owners = observed.metadata.owner_references.iter().flatten();
    is_role(&observed.role_ref.kind, &observed.role_ref.name)
        && ObservedRole::of_metadata(&observed.metadata).is_of(COMPONENT)
        && owners.any(|owner| is_role(&owner.kind, &owner.name))
}

fn without_empty_group(subject: &Subject) -> Subject {
    let api_group = subject.api_group.clone().filter(|group| !group.is_empty());
    Subject { api_group, ..subject.clone() }
}

/// The rules of the role for tokens.
#[must_use]
pub fn token_rules(names: &BTreeSet<AccountName>) -> Vec<PolicyRule> {
    secret_rules(&["list", "watch"], names.iter().map(ToString::to_string).collect())
}

/// The rules for these Secrets. Without names there is no rule, since a rule without names applies to all Secrets.
pub(crate) fn secret_rules(verbs: &[&str], names: Vec<String>) -> Vec<PolicyRule> {
    if names.is_empty() {
        return Vec::new();
    }
    vec![PolicyRule {
        api_groups: Some(vec![String::new()]),
        resources: Some(vec!["secrets".to_owned()]),
        verbs: verbs.iter().map(ToString::to_string).collect(),
        resource_names: Some(names),
        ..PolicyRule::default()
    }]
}
