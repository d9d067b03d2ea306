//! Applications with an identity of their own: what they are given, and what a process with the permissions of consumer
//! access cannot give to the user server.

use local_hub::ocm::{self, ManagedCluster, Object};
use serde_json::{Value, json};

use crate::cluster_permissions::without;
use crate::consumers::{COMPONENT, account, declare, marks, work};
use crate::support::Hub;
use crate::support::chart::Attempt::{self, Create, Delete};
use crate::support::chart::{install, judged_as, refused_writes, start, user};
use crate::support::cluster_permission::{cluster_permission, install_cluster_permission};
use crate::support::world::{self, get, merge};

const SERVER: &str = "hub-addons-user-server";
const OWN: [&str; 4] = [
    // Whoever plays Open Cluster Management here also edits what the policies protect.
    "policies.clusterManagers.users={ocm}",
    "userServer.enabled=true",
    "consumerAccess.enabled=true",
    "consumerAccess.allowedClusterRoles={view,edit}",
];
/// The same by ClusterPermissions.
const BY_PERMISSIONS: [&str; 1] = ["consumerAccess.permissions=ClusterPermission"];

async fn hub(more: &[&str]) -> Hub {
    let hub = Hub::plain().await;
    let namespaces = ["team", "other", "open-cluster-management-addon"].map(ocm::namespace);
    world::create(&hub.ocm, namespaces).await;
    ocm::cluster_set("s").create(&hub.ocm).await.unwrap();
    install_cluster_permission(&hub).await;
    install(&hub, &[&OWN[..], more].concat()).await;
    let in_jobs = json!({ "clusterRole": "edit", "namespaces": ["jobs"] });
    for (namespace, name, accounts, permissions) in [
        ("team", "kueue", json!(["manager"]), json!([{ "clusterRole": "view" }, in_jobs])),
        ("other", "argocd", json!(["server", "controller"]), json!([{ "clusterRole": "edit" }])),
    ] {
        let spec = json!({ "identity": "Own", "serviceAccountNames": accounts, "permissions": permissions });
        declare(&hub, ocm::cluster_access(namespace, name, &spec)).await;
    }
    hub
}

#[tokio::test]
async fn each_own_identity_has_its_part_of_the_permissions_while_its_namespace_is_granted() {
    for (more, permissions) in [
        (&[][..], work as fn(&str, &str) -> Object),
        (&BY_PERMISSIONS[..], cluster_permission as fn(&str, &str) -> Object),
    ] {
        let hub = hub(more).await;
        world::ensure_namespace(&hub.ocm, "c1").await;
        ManagedCluster::named("c1").in_set("s").create(&hub.ocm).await.unwrap();
        for namespace in ["team", "other"] {
            ocm::bound(namespace, "s").create(&hub.ocm).await.unwrap();
        }
        let process = start(&hub, COMPONENT).await;
        let (account, permissions) = (account("c1", SERVER), permissions("c1", SERVER));
        let names = async |what: &str, wanted: [bool; 2]| {
            let users = ["serviceaccount:team:manager", "serviceaccount:other:server"];
            world::becomes(&hub.ocm, &permissions, what, |it| {
                users.map(|user| it.to_string().contains(user)) == wanted
            })
            .await;
        };
        names("both applications have permissions", [true, true]).await;
        let shown = get(&hub.ocm, &account).await.unwrap();
        assert_eq!(
            shown["metadata"]["labels"][ocm::SYNC_LABEL],
            Value::Null,
            "its token is not copied"
        );
        // An edit by hand is undone, within what the policies allow.
        for object in [&account, &permissions] {
            merge(&hub.ocm, object, &json!({ "metadata": { "labels": null }, "spec": null })).await;
            world::becomes(&hub.ocm, object, "is as it was", |it| {
                it["metadata"]["labels"]["app.kubernetes.io/component"] == "consumer-access"
                    && it["spec"].as_object().is_some_and(|spec| !spec.is_empty())
            })
            .await;
        }
        world::delete(&hub.ocm, &ocm::bound("other", "s")).await;
        names("the one whose binding is gone has none", [true, false]).await;
        world::delete(&hub.ocm, &ocm::bound("team", "s")).await;
        world::gone(&hub.ocm, &account).await;
        world::gone(&hub.ocm, &permissions).await;
        let refused = refused_writes(&hub, COMPONENT).await;
        assert!(refused.is_empty(), "{refused}");
        process.stop().await;
    }
}

/// The account as the owner of its permissions.
fn owner() -> Value {
    json!([{
        "apiVersion": "authentication.open-cluster-management.io/v1beta1", "kind": "ManagedServiceAccount",
        "name": SERVER, "uid": "1",
    }])
}

fn user_of(namespace: &str, name: &str) -> Value {
    world::subject("User", &format!("cluster:hub:system:serviceaccount:{namespace}:{name}"))
}

fn rules(resource: &str, names: &[&str]) -> Value {
    json!([{ "apiGroups": [""], "resources": [resource], "resourceNames": names, "verbs": ["impersonate"] }])
}

fn role_ref(role: &str) -> Value {
    world::subject("ClusterRole", role)
}

/// The label by which RBAC adds the rules of a ClusterRole to those of `view`.
fn aggregated() -> Value {
    json!({ "rbac.authorization.k8s.io/aggregate-to-view": "true" })
}

/// The object with the permissions, of this spec.
fn permissions(object: Object, spec: &Value, edit: impl FnOnce(&mut Value)) -> Object {
    let mut body = json!({
        "metadata": {
            "name": object.name(), "namespace": "default", "labels": marks(), "ownerReferences": owner(),
        },
        "spec": spec,
    });
    edit(&mut body);
    object.field("metadata", body["metadata"].take()).field("spec", body["spec"].take())
}

/// The ManifestWork as consumer access creates it, with an edit of its binding, its ClusterRole and the binding of that.
fn ours(edit: impl FnOnce([&mut Value; 3])) -> Object {
    let impersonation = format!("hub-addons-impersonation:{SERVER}");
    let users = ["cluster:hub:system:serviceaccount:team:manager"];
    let groups = ["cluster:hub:system:serviceaccounts", "cluster:hub:system:serviceaccounts:team"];
    let server = world::account("open-cluster-management-agent-addon", SERVER);
    let rules = [rules("users", &users), rules("groups", &groups)].map(|rules| rules[0].clone());
    let bound = |name: &str, role: &str, subject: Value| {
        world::binding(None, name, ("ClusterRole", role), subject)
    };
    let manifests = [
        bound("hub-addons-own:kueue:view", "view", user_of("team", "manager")),
        world::object("ClusterRole", None, &impersonation).field("rules", json!(rules)),
        bound(&impersonation, &impersonation, server),
    ];
    let [mut binding, mut role, mut acts] =
        manifests.map(|it| serde_json::to_value(it.parse().unwrap()).unwrap());
    edit([&mut binding, &mut role, &mut acts]);
    let spec = json!({ "workload": { "manifests": [binding, role, acts] } });
    permissions(work("default", SERVER), &spec, |_| {})
}

const IMPERSONATES: &str = "may impersonate only ServiceAccounts of the hub";
const BINDS: &str = "only bind the ClusterRoles in consumerAccess.allowedClusterRoles";

#[tokio::test]
async fn the_user_server_is_given_no_other_user_and_no_other_role_by_manifest_works() {
    let hub = hub(&[]).await;
    let contains = "must contain only bindings, and the ClusterRole";
    let no_copies = "must not have the label and the annotation for copies";
    let create = |edit: fn([&mut Value; 3])| Create(ours(edit));
    let role = |edit: fn(&mut Value)| (Create(ours(|[_, it, _]| edit(it))), contains);
    let impersonates = |edit: fn(&mut Value)| {
        (Create(ours(|[_, role, _]| edit(&mut role["rules"][0]))), IMPERSONATES)
    };
    let ruled = |rules: Value| (Create(ours(|[_, role, _]| role["rules"] = rules)), IMPERSONATES);
    let binding = |edit: fn(&mut Value)| (Create(ours(|[it, ..]| edit(it))), BINDS);
    let acts = |edit: fn(&mut Value)| (Create(ours(|[.., it]| edit(it))), BINDS);
    let spec = |spec: Value, edit: fn(&mut Value)| {
        Create(permissions(work("default", SERVER), &spec, edit))
    };
    // The account: its token is copied nowhere.
    let server = |edit: fn(&mut Value)| {
        let mut metadata = json!({ "name": SERVER, "namespace": "default", "labels": marks() });
        edit(&mut metadata);
        let rotation = json!({ "rotation": { "enabled": true, "validity": "24h0m0s" } });
        Create(account("default", SERVER).field("metadata", metadata).field("spec", rotation))
    };
    let other = permissions(ours(|_| {}), &json!({}), |it| it["metadata"]["name"] = json!("other"));
    let existing =
        permissions(work("c9", SERVER), &json!({ "workload": { "manifests": [] } }), |it| {
            it["metadata"]["namespace"] = json!("c9");
        });
    world::create(&hub.ocm, [ocm::namespace("c9"), existing.clone()]).await;
    let cases = vec![
        impersonates(|it| it["resourceNames"] = json!([])),
        impersonates(|it| it["resourceNames"] = json!(["system:admin"])),
        impersonates(|it| {
            it["resourceNames"][0] = json!("cluster:hub:system:serviceaccount:kube-system:a");
        }),
        impersonates(|it| without(it, "resourceNames")),
        impersonates(|it| it["resources"] = json!(["groups"])),
        impersonates(|it| it["resources"] = json!(["*"])),
        impersonates(|it| it["verbs"] = json!(["*"])),
        ruled(rules("serviceaccounts", &["admin"])),
        ruled(rules("groups", &["system:masters"])),
        ruled(rules("groups", &["cluster:hub:system:serviceaccounts:kube-system"])),
        ruled(json!([{ "nonResourceURLs": ["*"], "verbs": ["impersonate"] }])),
        role(|it| it["metadata"]["name"] = json!("hub-addons-own:x")),
        role(|it| it["aggregationRule"] = json!({})),
        role(|it| it["kind"] = json!("Role")),
        role(|it| it["metadata"]["labels"] = aggregated()),
        role(|it| it["metadata"]["annotations"] = json!({ "a": "b" })),
        (create(|[binding, ..]| binding["metadata"]["labels"] = aggregated()), contains),
        (create(|[binding, ..]| binding["metadata"]["name"] = json!("cluster-admin")), contains),
        acts(|it| it["subjects"][0]["name"] = json!("default")),
        acts(|it| it["subjects"][0]["namespace"] = json!("kube-system")),
        acts(|it| it["roleRef"]["name"] = json!("cluster-admin")),
        binding(|it| it["roleRef"]["name"] = json!("cluster-admin")),
        binding(|it| it["roleRef"] = json!({})),
        binding(|it| it["subjects"] = json!([user_of("kube-system", "server")])),
        binding(|it| it["subjects"] = json!([user_of("team", "eve:admin")])),
        binding(|it| it["subjects"][0]["name"] = json!("admin")),
        binding(|it| it["subjects"] = json!([])),
        binding(|it| it["subjects"][0]["kind"] = json!("Group")),
        (spec(json!({ "executor": {} }), |_| {}), "nothing but manifests"),
        (
            spec(json!({}), |it| it["metadata"]["ownerReferences"] = json!([])),
            "must be owned by its account",
        ),
        (spec(json!({}), |it| it["metadata"]["labels"] = json!({})), "must have its labels"),
        (Create(other), "with the names of its accounts"),
        (server(|it| it["labels"][ocm::SYNC_LABEL] = json!("true")), no_copies),
        (
            server(|it| it["annotations"] = json!({ ocm::SYNC_NAMESPACES_ANNOTATION: "team" })),
            no_copies,
        ),
        (server(|_| {}), ""),
        (create(|_| {}), ""),
        (
            create(|[_, role, _]| {
                let of_ours = json!({ "app.kubernetes.io/managed-by": "hub-addons" });
                role["metadata"]["labels"] = of_ours;
            }),
            "",
        ),
        (Delete(existing), ""),
    ];
    judged_as(&hub, &user(COMPONENT), cases).await;
}

/// The ClusterPermission as consumer access creates it, with an edit of its spec.
fn by_permissions(edit: impl FnOnce(&mut Value)) -> Attempt {
    let server = json!({
        "apiGroup": "authentication.open-cluster-management.io", "kind": "ManagedServiceAccount",
        "name": SERVER,
    });
    let users = ["cluster:hub:system:serviceaccount:team:manager"];
    let binding = |role: &str| {
        json!({
            "name": format!("hub-addons-own-permission:kueue:{role}"), "roleRef": role_ref(role),
            "subjects": [user_of("team", "manager")],
        })
    };
    let mut in_jobs = binding("edit");
    in_jobs["namespace"] = json!("jobs");
    let mut spec = json!({
        "clusterRole": { "rules": rules("users", &users) },
        "clusterRoleBindings": [
            binding("view"),
            { "name": format!("hub-addons-permission-impersonation:{SERVER}"), "subject": server },
        ],
        "roleBindings": [in_jobs],
    });
    edit(&mut spec);
    Create(permissions(cluster_permission("default", SERVER), &spec, |_| {}))
}

#[tokio::test]
async fn the_user_server_is_given_no_other_user_and_no_other_role_by_cluster_permissions() {
    let hub = hub(&BY_PERMISSIONS).await;
    let nothing_but = "must contain nothing but bindings";
    let rule = |edit: fn(&mut Value)| {
        (by_permissions(|it| edit(&mut it["clusterRole"]["rules"][0])), IMPERSONATES)
    };
    let acts = |edit: fn(&mut Value)| {
        let words = "only the account of the user server may impersonate";
        (by_permissions(|it| edit(&mut it["clusterRoleBindings"][1])), words)
    };
    let binds = |edit: fn(&mut Value)| {
        (by_permissions(|it| edit(&mut it["clusterRoleBindings"][0])), BINDS)
    };
    let in_jobs =
        |edit: fn(&mut Value)| (by_permissions(|it| edit(&mut it["roleBindings"][0])), BINDS);
    let cases = vec![
        rule(|it| it["resourceNames"] = json!(["admin"])),
        rule(|it| it["resourceNames"] = json!([])),
        rule(|it| it["verbs"] = json!(["*"])),
        (by_permissions(|it| it["clusterRole"]["labels"] = aggregated()), nothing_but),
        acts(|it| it["subject"]["name"] = json!("other")),
        acts(|it| it["name"] = json!("cluster-admin")),
        acts(|it| it["subject"] = user_of("team", "manager")),
        acts(|it| it["subject"]["namespace"] = json!("default")),
        // With a roleRef, it binds that role.
        (by_permissions(|it| it["clusterRoleBindings"][1]["roleRef"] = role_ref("view")), BINDS),
        (by_permissions(|it| it["roleBindings"][0]["roleRef"] = Value::Null), BINDS),
        (
            by_permissions(|it| it["clusterRoleBinding"] = it["clusterRoleBindings"][1].clone()),
            nothing_but,
        ),
        binds(|it| it["roleRef"]["name"] = json!("cluster-admin")),
        binds(|it| it["subjects"][0] = user_of("kube-system", "eve")),
        binds(|it| it["subjects"][0]["namespace"] = json!("default")),
        binds(|it| it["subject"] = user_of("team", "manager")),
        in_jobs(|it| it["roleRef"]["more"] = json!("view")),
        in_jobs(|it| without(it, "namespace")),
        (by_permissions(|it| it["roles"] = json!([])), nothing_but),
        (by_permissions(|_| {}), ""),
    ];
    judged_as(&hub, &user(COMPONENT), cases).await;
}
