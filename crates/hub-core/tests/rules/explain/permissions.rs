//! Which ServiceAccounts may read a copy, and which accounts an object on the hub gives permissions.

use hub_core::explain::observed::{AccountPermission, Rbac, Readers};
use hub_core::explain::{Status, Step, explain};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::scene::{Scene, one, parse};
use crate::support::condition;

const COPY: &str = "c1-kueue";

/// RBAC of the namespace `team`; null for what cannot be read.
struct Granted {
    roles: Value,
    role_bindings: Value,
    cluster_roles: Value,
    cluster_role_bindings: Value,
}

impl Granted {
    /// A RoleBinding to a Role with this rule.
    fn by(rule: &Value, subjects: &Value) -> Self {
        Self {
            roles: json!([role(rule)]),
            role_bindings: json!([binding("Role", subjects)]),
            cluster_roles: json!([]),
            cluster_role_bindings: json!([]),
        }
    }

    fn readers(&self) -> Readers {
        fn list<T: DeserializeOwned>(list: &Value) -> Option<Vec<T>> {
            list.as_array().map(|list| list.iter().cloned().map(parse).collect())
        }
        let (roles, role_bindings) = (list(&self.roles), list(&self.role_bindings));
        let (cluster_roles, cluster_role_bindings) =
            (list(&self.cluster_roles), list(&self.cluster_role_bindings));
        let rbac = Rbac {
            roles: roles.as_deref(),
            role_bindings: role_bindings.as_deref(),
            cluster_roles: cluster_roles.as_deref(),
            cluster_role_bindings: cluster_role_bindings.as_deref(),
        };
        Readers::of(&"team".into(), &rbac)
    }
}

fn role(rule: &Value) -> Value {
    json!({ "metadata": { "name": "reads" }, "rules": [rule] })
}

fn binding(kind: &str, subjects: &Value) -> Value {
    let reference =
        json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": "reads" });
    json!({ "metadata": { "name": "bound" }, "roleRef": reference, "subjects": subjects })
}

fn rule(group: &str, resource: &str, verb: &str, names: &[&str]) -> Value {
    json!({ "apiGroups": [group], "resources": [resource], "verbs": [verb], "resourceNames": names })
}

fn app() -> Value {
    json!([{ "kind": "ServiceAccount", "namespace": "team", "name": "app" }])
}

fn group(name: &str) -> Value {
    json!([{ "kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": name }])
}

/// The step about the application's permission: code, mark, object and value.
fn explained(readers: Readers) -> (String, Status, String, String) {
    let mut hub = Scene::in_order().observed();
    hub.readers.insert("team".into(), readers);
    let findings = explain(&hub, &one("team", "c1")).findings.into_iter();
    let mut steps = findings.filter(|finding| finding.step == Step::ConsumerPermission);
    let step = steps.next().unwrap();
    assert_eq!(steps.count(), 0);
    (step.code.as_str().to_owned(), step.mark, step.object.to_string(), step.value)
}

#[test]
fn a_copy_is_readable_by_who_may_get_secrets_of_its_name_in_the_namespace() {
    let get = |names: &[&str]| rule("", "secrets", "get", names);
    let user = json!([{ "kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "app" }]);
    let elsewhere = json!([{ "kind": "ServiceAccount", "namespace": "other", "name": "app" }]);
    // The rule, the subjects, and who may read the copy.
    for (rule, subjects, reader) in [
        (get(&[COPY]), app(), Some("ServiceAccount team/app")),
        (get(&["another", COPY]), app(), Some("ServiceAccount team/app")),
        (get(&[]), app(), Some("ServiceAccount team/app")),
        (rule("*", "*", "*", &[]), app(), Some("ServiceAccount team/app")),
        (get(&["another"]), app(), None),
        (rule("", "secrets", "list", &[COPY]), app(), None),
        (rule("", "configmaps", "get", &[COPY]), app(), None),
        (rule("apps", "secrets", "get", &[COPY]), app(), None),
        (get(&[COPY]), elsewhere, None),
        (get(&[COPY]), user, None),
        (get(&[COPY]), json!([]), None),
        (
            get(&[COPY]),
            group("system:serviceaccounts:team"),
            Some("Group system:serviceaccounts:team"),
        ),
        (get(&[COPY]), group("system:serviceaccounts"), Some("Group system:serviceaccounts")),
        (get(&[COPY]), group("system:authenticated"), Some("Group system:authenticated")),
        (get(&[COPY]), group("system:serviceaccounts:other"), None),
        (get(&[COPY]), group("system:masters"), None),
    ] {
        let readers = Granted::by(&rule, &subjects).readers();
        assert!(readers.is_complete);
        let accounts: Vec<_> =
            reader.iter().filter(|it| it.starts_with("ServiceAccount")).map(|_| "app").collect();
        assert_eq!(readers.service_accounts(COPY), accounts, "{rule} {subjects}");
        let expected = match reader {
            Some(reader) => ("ConsumerMayRead", Status::Ok, "RoleBinding team/bound", reader),
            None => ("NobodyMayRead", Status::Problem, "Secret team/c1-kueue", "no ServiceAccount"),
        };
        let (code, mark, object, value) = explained(readers);
        assert_eq!((&*code, mark, &*object, &*value), expected, "{rule} {subjects}");
    }
}

#[test]
fn roles_of_the_cluster_count_and_what_cannot_be_read_may_be_a_permission() {
    let get = rule("", "secrets", "get", &[COPY]);
    let may = |object: &'static str| ("ConsumerMayRead", Status::Ok, object);
    let (nobody, unknown) = (
        ("NobodyMayRead", Status::Problem, "Secret team/c1-kueue"),
        ("NotReadable", Status::Unknown, "RoleBinding team/*"),
    );
    let (role, none, unread) = (json!([role(&get)]), json!([]), Value::Null);
    let [to_role, to_cluster_role] =
        ["Role", "ClusterRole"].map(|kind| json!([binding(kind, &app())]));
    let to_another = json!([binding("Role", &group("g"))]);
    // Roles and their bindings in the namespace, those of the cluster, and what is explained.
    for (roles, role_bindings, cluster_roles, cluster_role_bindings, expected) in [
        (&none, &to_cluster_role, &role, &none, may("RoleBinding team/bound")),
        (&none, &none, &role, &to_cluster_role, may("ClusterRoleBinding bound")),
        // A Role and a ClusterRole of one name are two.
        (&role, &to_cluster_role, &none, &none, nobody),
        (&none, &to_role, &role, &none, nobody),
        (&unread, &to_role, &none, &none, unknown),
        (&none, &to_cluster_role, &unread, &none, unknown),
        (&none, &none, &unread, &to_cluster_role, unknown),
        (&none, &unread, &none, &none, unknown),
        (&none, &none, &none, &unread, unknown),
        // Whatever the role is, it is not bound here.
        (&unread, &to_another, &none, &none, nobody),
        (&none, &none, &none, &none, nobody),
        // One permission suffices.
        (&role, &to_role, &none, &unread, may("RoleBinding team/bound")),
    ] {
        let [roles, role_bindings, cluster_roles, cluster_role_bindings] =
            [roles, role_bindings, cluster_roles, cluster_role_bindings].map(Value::clone);
        let granted = Granted { roles, role_bindings, cluster_roles, cluster_role_bindings };
        let (code, mark, object, _) = explained(granted.readers());
        assert_eq!((&*code, mark, &*object), expected);
        assert_eq!(
            granted.readers().is_complete,
            expected != unknown && granted.cluster_role_bindings.is_array()
        );
    }
}

#[test]
fn an_account_has_the_roles_that_the_objects_of_its_cluster_bind_to_it() {
    let reference = |kind: &str, name: &str| json!({ "kind": kind, "name": name });
    let account =
        |name: &str| json!({ "kind": "ServiceAccount", "name": name, "namespace": "agents" });
    let managed = json!({ "kind": "ManagedServiceAccount", "name": "b" });
    let user = json!({ "kind": "User", "name": "u" });
    let metadata = json!({ "namespace": "c1", "name": "it" });
    let of = |permissions: Vec<AccountPermission>| -> Vec<(String, String, String, bool)> {
        let each = permissions.into_iter();
        each.map(|it| (it.object.to_string(), it.account, it.role, it.is_applied)).collect()
    };
    let expected = |kind: &str, roles: &[(&str, &str)], is_applied: bool| -> Vec<_> {
        let object = format!("{kind} c1/it");
        let each = roles.iter().map(|(account, role)| {
            (object.clone(), (*account).to_owned(), (*role).to_owned(), is_applied)
        });
        each.collect()
    };
    for (conditions, is_applied) in [
        (json!([condition("Available", "True", "R"), condition("Applied", "True", "R")]), true),
        (json!([condition("Available", "True", "R"), condition("Applied", "False", "R")]), false),
        (json!([condition("Available", "True", "R")]), false),
        (Value::Null, false),
    ] {
        let work = json!({
            "metadata": metadata, "status": { "conditions": conditions },
            "spec": { "workload": { "manifests": [
                { "kind": "ConfigMap", "subjects": [account("a")], "roleRef": reference("ClusterRole", "view") },
                { "kind": "RoleBinding", "subjects": [account("a"), user, account("b")], "roleRef": reference("Role", "r") },
                { "kind": "ClusterRoleBinding", "subjects": [account("a")], "roleRef": reference("ClusterRole", "view") },
                { "kind": "ClusterRoleBinding", "subjects": [account("c")] },
            ] } },
        });
        let roles = [("a", "Role r"), ("b", "Role r"), ("a", "ClusterRole view"), ("c", "")];
        assert_eq!(
            of(AccountPermission::of_manifest_work(&work)),
            expected("ManifestWork", &roles, is_applied)
        );
    }
    assert_eq!(AccountPermission::of_manifest_work(&json!({})), []);

    for (status, is_applied) in [("True", true), ("False", false)] {
        // Without a name, each binding has that of the ClusterPermission.
        let listed =
            json!([{ "name": metadata["name"], "condition": [condition("Applied", status, "R")] }]);
        let permission = json!({
            "metadata": metadata,
            "status": {
                "conditions": [condition("AppliedRBACManifestWork", status, "R")],
                "resourceStatus": { "clusterRoleBindings": listed, "roleBindings": listed },
            },
            "spec": {
                "clusterRoleBinding": { "subject": account("a"), "roleRef": reference("ClusterRole", "view") },
                "clusterRoleBindings": [{ "subjects": [managed, user], "roleRef": reference("ClusterRole", "edit") }],
                "roleBindings": [{ "subject": managed, "subjects": [account("a")], "roleRef": reference("Role", "r") }],
            },
        });
        let roles = [
            ("a", "Role r"),
            ("b", "Role r"),
            ("a", "ClusterRole view"),
            ("b", "ClusterRole edit"),
        ];
        let permissions = AccountPermission::of_cluster_permission(&permission);
        assert_eq!(of(permissions), expected("ClusterPermission", &roles, is_applied));
    }
    assert_eq!(AccountPermission::of_cluster_permission(&json!({ "spec": {} })), []);
}
