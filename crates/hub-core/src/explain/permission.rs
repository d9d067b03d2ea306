//! Which permissions the account has on its cluster, from what the hub shows: ManifestWorks and ClusterPermissions of the
//! cluster.

use hub_api::labels::MANAGED_BY;
use hub_api::names::AccountName;
use serde_json::Value;

use super::{Code, Findings, Object, Pair, Step};
use crate::consumer_access::COMPONENT;
use crate::consumer_access::applied::{Applied, bindings, id};
use crate::own_identity;

/// An object on the hub that grants an account permissions on its cluster, or the user of an application with an
/// identity of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccountPermission {
    pub object: Object,
    /// The name of the account, or of the [user](crate::own_identity::user).
    pub account: String,
    /// The role that it binds.
    pub role: String,
    /// The namespace on the cluster, unless it binds the role in the whole cluster or by a selector.
    pub namespace: Option<String>,
    /// Whether it is applied on the cluster.
    pub is_applied: bool,
    /// Whether the cluster reports that it is not applied.
    pub has_failed: bool,
    /// Whether consumer access maintains it, as its labels show.
    pub is_maintained: bool,
}

impl AccountPermission {
    /// The permissions in a ManifestWork: its RoleBindings and ClusterRoleBindings to ServiceAccounts and to users of
    /// the hub.
    #[must_use]
    pub fn of_manifest_work(work: &Value) -> Vec<Self> {
        let manifests = work["spec"]["workload"]["manifests"].as_array().into_iter().flatten();
        let bindings = manifests
            .filter(|it| it["kind"] == "RoleBinding" || it["kind"] == "ClusterRoleBinding");
        bindings
            .flat_map(|binding| {
                let subjects = binding["subjects"].as_array().into_iter().flatten();
                let accounts =
                    subjects.filter(|it| it["kind"] == "ServiceAccount" || is_hub_user(it));
                accounts.map(|account| {
                    Self::new("ManifestWork", work, account, binding, &binding["metadata"])
                })
            })
            .collect()
    }

    #[must_use]
    pub fn of_cluster_permission(permission: &Value) -> Vec<Self> {
        bindings(permission)
            .flat_map(|binding| {
                let several = binding["subjects"].as_array().into_iter().flatten();
                let subjects = several.chain(std::iter::once(&binding["subject"]));
                let kinds = ["ServiceAccount", "ManagedServiceAccount"];
                let accounts = subjects.filter(move |it| {
                    kinds.iter().any(|kind| it["kind"] == *kind) || is_hub_user(it)
                });
                accounts.map(|account| {
                    Self::new("ClusterPermission", permission, account, binding, binding)
                })
            })
            .collect()
    }

    /// `named` contains the name and the namespace of the binding.
    fn new(
        kind: &'static str,
        object: &Value,
        account: &Value,
        binding: &Value,
        named: &Value,
    ) -> Self {
        let metadata = &object["metadata"];
        let name = text(&metadata["name"]);
        let applied = Applied::read(&name, metadata["generation"].as_i64(), object);
        // A binding without a role binds that of its ClusterPermission, which has the name of the object.
        let role_name = binding["roleRef"].is_null().then_some((&*name, ""));
        let applied = applied.of(|part| part == id(&name, named) || Some(part) == role_name);
        Self {
            object: Object::namespaced(kind, text(&metadata["namespace"]), name),
            account: text(&account["name"]),
            role: role(&binding["roleRef"]),
            namespace: named["namespace"].as_str().map(str::to_owned),
            is_applied: applied.is_ok(),
            has_failed: matches!(applied, Err(Some(_))),
            is_maintained: is_maintained(object),
        }
    }

    /// The ServiceAccount of the hub that it is for: its namespace and its name.
    pub(super) fn service_account(&self) -> Option<(&str, &str)> {
        own_identity::service_account(&self.account)
    }

    /// Whether another object gives the same permission.
    fn is_same_as(&self, other: &Self) -> bool {
        (&self.account, &self.role, &self.namespace)
            == (&other.account, &other.role, &other.namespace)
    }
}

fn is_hub_user(subject: &Value) -> bool {
    subject["kind"] == "User"
        && subject["name"].as_str().is_some_and(|it| own_identity::service_account(it).is_some())
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn role(reference: &Value) -> String {
    format!("{} {}", text(&reference["kind"]), text(&reference["name"])).trim().to_owned()
}

fn is_maintained(object: &Value) -> bool {
    [MANAGED_BY, COMPONENT].iter().all(|(key, value)| object["metadata"]["labels"][*key] == *value)
}

impl Pair<'_> {
    /// Which permissions the account has on the cluster.
    pub(super) fn permission_step(&self, account: &AccountName, findings: &mut Findings) {
        let Some(permissions) = self.hub.permissions.get(&self.key.cluster) else { return };
        let step =
            |code, object| self.finding(Step::AccountPermission, code, object).of_account(account);
        let works = || Object::namespaced("ManifestWork", &self.key.cluster, "*");
        let test = || format!("kubectl clusterprofile test {} --account {account}", self.key);
        let of_account: Vec<_> = permissions
            .iter()
            .filter(|permission| permission.account == account.as_str())
            .collect();
        if let Some(permission) = not_applied(&of_account) {
            let finding = step(Code::PermissionsNotApplied, permission.object.clone());
            findings.add(finding.field("status.conditions", "not applied").fix_by_get());
        } else if let Some(permission) = of_account.iter().find(|permission| permission.is_applied)
        {
            findings.ok(|| {
                step(Code::PermissionsApplied, permission.object.clone())
                    .field("roleRef", permission.role.as_str())
                    .fix(test())
            });
        } else if self.hub.permissions_not_listed.contains(&self.key.cluster) {
            let resource = "manifestworks.work.open-cluster-management.io";
            findings.add(step(Code::NotReadable, works()).fix_by_can_list(resource));
        } else {
            findings.add(step(Code::PermissionsUnknown, works()).fix(test()));
        }
    }
}

/// The permission that is not applied on the cluster, if any. While one kind of permissions replaces the other, those
/// of the former count.
pub(super) fn not_applied<'a>(
    permissions: &[&'a AccountPermission],
) -> Option<&'a AccountPermission> {
    let (applied, waiting): (Vec<&AccountPermission>, Vec<_>) =
        permissions.iter().copied().partition(|permission| permission.is_applied);
    waiting.into_iter().find(|permission| {
        permission.has_failed || !applied.iter().any(|it| it.is_same_as(permission))
    })
}
