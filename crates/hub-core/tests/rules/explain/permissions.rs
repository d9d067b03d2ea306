//! Which accounts an object on the hub gives permissions.

use hub_core::explain::observed::AccountPermission;
use serde_json::{Value, json};

use crate::support::condition;

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
