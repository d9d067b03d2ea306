//! What the users of an account may do on its cluster, as a ManifestWork and as a ClusterPermission.
//!
//! A consumer whose grant is in doubt keeps what the existing objects give it, and gets nothing else.

use std::collections::{BTreeMap, BTreeSet};

use hub_api::labels::MANAGED_BY;
use hub_api::names::AccountName;
use serde_json::{Map, Value, json};

use super::consumers::Consumer;
use super::desired::{AccessSettings, Desired};
use super::kind::AccessKind;
use super::observed::ObservedObject;
use crate::own_identity;
use crate::version::Uid;

const RBAC: &str = "rbac.authorization.k8s.io";
const AUTHENTICATION: &str = "authentication.open-cluster-management.io";

/// The prefixes of the names of bindings: of accounts, and of own identities, whose consumers can have the names of
/// accounts.
const IN_WORK: [&str; 2] = ["hub-addons:", "hub-addons-own:"];
/// The same in a ClusterPermission. They differ from those in a ManifestWork: when one object replaces the other, the
/// agent must not remove the new bindings with the old object.
const IN_PERMISSION: [&str; 2] = ["hub-addons-permission:", "hub-addons-own-permission:"];

/// The permissions of the consumers that use an account.
pub(super) struct Permissions<'a> {
    pub(super) account: &'a AccountName,
    bindings: Vec<Binding<'a>>,
    /// The users and the groups that the account may impersonate.
    users: BTreeSet<String>,
    groups: BTreeSet<String>,
}

impl AccessSettings {
    /// An object of this kind with these permissions, owned by their account so that it is garbage-collected with it;
    /// `None` if it is a ManifestWork and the namespace of the account is unknown.
    pub(super) fn permissions(
        &self,
        kind: AccessKind,
        permissions: &Permissions<'_>,
        account_uid: &Uid,
        account_namespace: Option<&str>,
    ) -> Option<Desired> {
        let owner = json!({
            "apiVersion": format!("{AUTHENTICATION}/v1beta1"), "kind": "ManagedServiceAccount",
            "name": permissions.account.as_str(), "uid": account_uid,
        });
        let spec = match kind {
            AccessKind::ClusterPermission => permissions.cluster_permission(),
            AccessKind::Account | AccessKind::ManifestWork => {
                permissions.manifest_work(account_namespace?)
            }
        };
        Some(Desired {
            labels: self.labels(),
            annotations: BTreeMap::new(),
            owners: json!([owner]),
            spec,
        })
    }
}

/// A ClusterRole that is bound to a consumer.
struct Binding<'a> {
    /// What follows the prefix in its name.
    name: String,
    role: &'a str,
    /// The namespace, unless it is bound in the whole cluster.
    namespace: Option<&'a str>,
    /// The users that it is bound to; `None` if it is bound to the account.
    users: Option<Vec<String>>,
}

impl Binding<'_> {
    fn full_name(&self, [of_account, own]: [&str; 2]) -> String {
        format!("{}{}", if self.users.is_some() { own } else { of_account }, self.name)
    }
}

/// What existing objects give to own identities: the names and namespaces of bindings, and who may be impersonated.
#[derive(Default)]
pub(super) struct Given {
    bindings: BTreeSet<(String, String)>,
    impersonated: BTreeSet<String>,
}

impl Given {
    /// Reads an object with permissions of ours.
    pub(super) fn add(&mut self, kind: AccessKind, object: &ObservedObject) {
        for part in object.content.spec.iter().flat_map(|spec| parts(kind, spec)) {
            if let Some((name, namespace)) = binding(part)
                && let Some(name) = own_binding(name)
            {
                self.bindings.insert((name.to_owned(), namespace.to_owned()));
            }
            self.impersonated.extend(impersonated(part).map(str::to_owned));
        }
    }
}

/// What a consumer needs in an object with permissions. The objects of own identities contain those of many.
pub(super) struct Part {
    kind: AccessKind,
    /// How the names of its bindings begin; empty unless it has an identity of its own.
    prefixes: Vec<String>,
    /// The spec of an object with its permissions alone.
    spec: Map<String, Value>,
    /// The users that the account may impersonate for it.
    users: BTreeSet<String>,
}

impl Part {
    pub(super) fn new(consumer: &Consumer, kind: AccessKind) -> Self {
        let mut wanted = Permissions::new(&consumer.account);
        wanted.add(consumer);
        let spec = match kind {
            AccessKind::ClusterPermission => wanted.cluster_permission(),
            AccessKind::Account | AccessKind::ManifestWork => wanted.manifest_work(""),
        };
        let own = [IN_WORK[1], IN_PERMISSION[1]].into_iter().filter(|_| consumer.is_own());
        let prefixes = own.map(|own| format!("{own}{}:", own_name(consumer))).collect();
        Self { kind, prefixes, spec, users: wanted.users }
    }

    /// Whether an object contains exactly these bindings, with their users.
    pub(super) fn is_in(&self, object: &ObservedObject) -> bool {
        let Some(found) = &object.content.spec else { return false };
        let users = parts(self.kind, found).flat_map(impersonated);
        let users: BTreeSet<_> = users.filter(|user| self.users.contains(*user)).collect();
        self.bindings_in(found) == self.bindings_in(&self.spec) && users.len() == self.users.len()
    }

    /// The bindings of the consumer in a spec, by name and namespace; of an own identity, with the users.
    fn bindings_in<'a>(
        &self,
        spec: &'a Map<String, Value>,
    ) -> BTreeMap<(&'a str, &'a str), Option<&'a Value>> {
        let users = |part: &'a Value| part.get("subjects").filter(|_| !self.prefixes.is_empty());
        let bindings =
            parts(self.kind, spec).filter_map(move |part| Some((binding(part)?, users(part))));
        bindings.filter(|((name, _), _)| self.has(name)).collect()
    }

    /// Whether a binding is one of the consumer, by its name.
    fn has(&self, name: &str) -> bool {
        self.prefixes.is_empty() || self.prefixes.iter().any(|prefix| name.starts_with(prefix))
    }

    /// Whether the consumer needs the binding or the role with this name: all but the bindings of other own identities.
    pub(super) fn needs(&self, name: &str) -> bool {
        own_binding(name).is_none() || self.has(name)
    }
}

/// Who may be impersonated by a role.
fn impersonated(role: &Value) -> impl Iterator<Item = &str> {
    items(&role["rules"]).flat_map(|rule| items(&rule["resourceNames"])).filter_map(Value::as_str)
}

/// What follows the prefix in the name of a binding of an own identity.
fn own_binding(name: &str) -> Option<&str> {
    [IN_WORK[1], IN_PERMISSION[1]].iter().find_map(|own| name.strip_prefix(own))
}

/// The bindings and the roles in an object with permissions.
fn parts(kind: AccessKind, spec: &Map<String, Value>) -> impl Iterator<Item = &Value> {
    let field = |field| spec.get(field).unwrap_or(&Value::Null);
    let (lists, role) = if kind == AccessKind::ClusterPermission {
        (["clusterRoleBindings", "roleBindings"].map(field), field("clusterRole"))
    } else {
        ([&field("workload")["manifests"], &Value::Null], &Value::Null)
    };
    lists.into_iter().flat_map(items).chain([role])
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

/// The name and the namespace of a binding; `None` for a role.
fn binding(part: &Value) -> Option<(&str, &str)> {
    let metadata = part.get("metadata").unwrap_or(part);
    let is_role = part["kind"] == "ClusterRole";
    (!is_role)
        .then_some((metadata["name"].as_str()?, metadata["namespace"].as_str().unwrap_or_default()))
}

/// What the bindings of a consumer with an identity of its own are named after.
fn own_name(consumer: &Consumer) -> String {
    format!("{}:{}", consumer.namespace(), consumer.name.name)
}

impl<'a> Permissions<'a> {
    pub(super) fn new(account: &'a AccountName) -> Self {
        Self { account, bindings: Vec::new(), users: BTreeSet::new(), groups: BTreeSet::new() }
    }

    /// Whether they permit nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.bindings.is_empty() && self.users.is_empty()
    }

    /// Adds the permissions of a consumer.
    pub(super) fn add(&mut self, consumer: &'a Consumer) {
        self.add_if(consumer, |_| true, |_| true);
    }

    /// Adds the permissions that a consumer whose grant is in doubt already has.
    pub(super) fn keep(&mut self, consumer: &'a Consumer, given: &Given) {
        let is_bound = |binding: &Binding<'_>| {
            let namespace = binding.namespace.unwrap_or_default().to_owned();
            given.bindings.contains(&(binding.name.clone(), namespace))
        };
        self.add_if(consumer, is_bound, |name| given.impersonated.contains(name));
    }

    fn add_if(
        &mut self,
        consumer: &'a Consumer,
        is_bound: impl Fn(&Binding<'_>) -> bool,
        is_impersonated: impl Fn(&String) -> bool,
    ) {
        let (name, users) = if consumer.is_own() {
            let user = |account: &String| own_identity::user(consumer.namespace(), account);
            let users = consumer.spec.service_account_names.iter().map(user).collect::<Vec<_>>();
            (own_name(consumer), Some(users))
        } else {
            (consumer.account.to_string(), None)
        };
        for role in &consumer.spec.permissions {
            let in_namespaces = role.namespaces.iter().map(|namespace| Some(namespace.as_str()));
            let everywhere = role.namespaces.is_empty().then_some(None);
            let bindings = everywhere.into_iter().chain(in_namespaces).map(|namespace| Binding {
                name: format!("{name}:{}", role.cluster_role),
                role: &role.cluster_role,
                namespace,
                users: users.clone(),
            });
            self.bindings.extend(bindings.filter(&is_bound));
        }
        if let Some(users) = users {
            self.users.extend(users.into_iter().filter(&is_impersonated));
            let groups = own_identity::groups(consumer.namespace());
            self.groups.extend(groups.into_iter().filter(&is_impersonated));
        }
    }

    /// The spec of a ManifestWork; the account is in this namespace of the cluster.
    pub(super) fn manifest_work(&self, account_namespace: &str) -> Map<String, Value> {
        let account = json!([{
            "kind": "ServiceAccount", "name": self.account.as_str(), "namespace": account_namespace,
        }]);
        let manifest = |kind: &str, name: &str, namespace: Option<&str>| {
            let mut metadata = json!({ "name": name, "labels": { (MANAGED_BY.0): MANAGED_BY.1 } });
            if let Some(namespace) = namespace {
                metadata["namespace"] = namespace.into();
            }
            json!({ "apiVersion": format!("{RBAC}/v1"), "kind": kind, "metadata": metadata })
        };
        let bind = |name: &str, role: &str, namespace: Option<&str>, subjects: Value| {
            let kind = if namespace.is_some() { "RoleBinding" } else { "ClusterRoleBinding" };
            let mut binding = manifest(kind, name, namespace);
            binding["roleRef"] = role_ref(role);
            binding["subjects"] = subjects;
            binding
        };
        let mut manifests: Vec<Value> = Vec::new();
        for binding in &self.bindings {
            let subjects = binding.users.as_deref().map_or_else(|| account.clone(), subjects);
            let name = binding.full_name(IN_WORK);
            manifests.push(bind(&name, binding.role, binding.namespace, subjects));
        }
        if let Some(rules) = self.impersonation() {
            let name = format!("hub-addons-impersonation:{}", self.account);
            let mut role = manifest("ClusterRole", &name, None);
            role["rules"] = rules;
            manifests.extend([role, bind(&name, &name, None, account)]);
        }
        [("workload".to_owned(), json!({ "manifests": manifests }))].into_iter().collect()
    }

    /// The spec of a ClusterPermission.
    pub(super) fn cluster_permission(&self) -> Map<String, Value> {
        let account = json!({
            "apiGroup": AUTHENTICATION, "kind": "ManagedServiceAccount", "name": self.account.as_str(),
        });
        let mut spec = Map::new();
        let mut push = |field: &str, binding: Value| {
            let list = spec.entry(field).or_insert_with(|| json!([]));
            if let Some(list) = list.as_array_mut() {
                list.push(binding);
            }
        };
        for binding in &self.bindings {
            let mut object = json!({ "name": binding.full_name(IN_PERMISSION), "roleRef": role_ref(binding.role) });
            match &binding.users {
                Some(users) => object["subjects"] = subjects(users),
                None => object["subject"] = account.clone(),
            }
            let field = match binding.namespace {
                Some(namespace) => {
                    object["namespace"] = namespace.into();
                    "roleBindings"
                }
                None => "clusterRoleBindings",
            };
            push(field, object);
        }
        if let Some(rules) = self.impersonation() {
            let name = format!("hub-addons-permission-impersonation:{}", self.account);
            // Without a roleRef, it binds the ClusterRole of the ClusterPermission. cluster-permission ignores
            // clusterRoleBinding beside this list.
            push("clusterRoleBindings", json!({ "name": name, "subject": account }));
            spec.insert("clusterRole".to_owned(), json!({ "rules": rules }));
        }
        spec
    }

    /// The rules by which the account may act as these users, with their groups, and as no other.
    fn impersonation(&self) -> Option<Value> {
        let rule = |resource: &str, names: &BTreeSet<String>| json!({ "apiGroups": [""], "resources": [resource], "resourceNames": names, "verbs": ["impersonate"] });
        // A rule without resourceNames applies to all users or groups.
        let rules = [("users", &self.users), ("groups", &self.groups)]
            .into_iter()
            .filter(|(_, names)| !names.is_empty());
        let rules: Vec<Value> = rules.map(|(resource, names)| rule(resource, names)).collect();
        (!rules.is_empty()).then(|| json!(rules))
    }
}

fn role_ref(role: &str) -> Value {
    json!({ "apiGroup": RBAC, "kind": "ClusterRole", "name": role })
}

fn subjects(users: &[String]) -> Value {
    users.iter().map(|user| json!({ "apiGroup": RBAC, "kind": "User", "name": user })).collect()
}
