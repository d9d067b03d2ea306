//! Applications with an identity of their own: what they are given, and what a process with the permissions of consumer
//! access cannot give to the user server.

use local_hub::ocm::{self, ManagedCluster, Object};
use local_hub::{LocalHub, eventually};
use serde_json::{Value, json};

use crate::consumers::{COMPONENT, account, allowed, declare, marks, refused, work};
use crate::support::chart::{Attempt, install, refused_writes, start, user};
use crate::support::cluster_permission::{cluster_permission, install_cluster_permission};
use crate::support::world::{self, get, merge};
use crate::support::{Hub, SOON};

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
    let hub = Hub::start(LocalHub::builder().without_controller_manager(), Vec::new()).await;
    let namespaces = ["team", "other", "open-cluster-management-addon"].map(ocm::namespace);
    world::create(&hub.ocm, namespaces).await;
    ocm::cluster_set("s").create(&hub.ocm).await.unwrap();
    install_cluster_permission(&hub).await;
    install(&hub, &[&OWN[..], more].concat()).await;
    let own = |accounts: Value, permissions: Value| json!({ "identity": "Own", "serviceAccountNames": accounts, "permissions": permissions });
    let permissions =
        json!([{ "clusterRole": "view" }, { "clusterRole": "edit", "namespaces": ["jobs"] }]);
    declare(&hub, ocm::cluster_access("team", "kueue", &own(json!(["manager"]), permissions)))
        .await;
    let permissions = json!([{ "clusterRole": "edit" }]);
    declare(
        &hub,
        ocm::cluster_access("other", "argocd", &own(json!(["server", "controller"]), permissions)),
    )
    .await;
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
            eventually(what, SOON, async || {
                let text = get(&hub.ocm, &permissions).await?.to_string();
                let has = ["serviceaccount:team:manager", "serviceaccount:other:server"];
                (has.map(|user| text.contains(user)) == wanted).then_some(())
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
            eventually(&format!("{object} is as it was"), SOON, async || {
                let now = get(&hub.ocm, object).await.unwrap_or_default();
                now["metadata"]["labels"]["app.kubernetes.io/component"] == "consumer-access"
                    && now["spec"].as_object().is_some_and(|spec| !spec.is_empty())
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
    let name = format!("cluster:hub:system:serviceaccount:{namespace}:{name}");
    json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name })
}

fn rules(resource: &str, names: &[&str]) -> Value {
    json!([{ "apiGroups": [""], "resources": [resource], "resourceNames": names, "verbs": ["impersonate"] }])
}

fn role_ref(role: &str) -> Value {
    json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role })
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
    let manifest = |kind: &str, name: &str, more: Value| {
        let mut manifest = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": { "name": name },
        });
        manifest.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        manifest
    };
    let impersonation = format!("hub-addons-impersonation:{SERVER}");
    let users = ["cluster:hub:system:serviceaccount:team:manager"];
    let groups = ["cluster:hub:system:serviceaccounts", "cluster:hub:system:serviceaccounts:team"];
    let agents = "open-cluster-management-agent-addon";
    let server = json!([{ "kind": "ServiceAccount", "name": SERVER, "namespace": agents }]);
    let binding = json!({ "roleRef": role_ref("view"), "subjects": [user_of("team", "manager")] });
    let mut binding = manifest("ClusterRoleBinding", "hub-addons-own:kueue:view", binding);
    let rules = [rules("users", &users), rules("groups", &groups)].map(|rules| rules[0].clone());
    let mut role = manifest("ClusterRole", &impersonation, json!({ "rules": rules }));
    let acts = json!({ "roleRef": role_ref(&impersonation), "subjects": server });
    let mut acts = manifest("ClusterRoleBinding", &impersonation, acts);
    edit([&mut binding, &mut role, &mut acts]);
    let spec = json!({ "workload": { "manifests": [binding, role, acts] } });
    permissions(work("default", SERVER), &spec, |_| {})
}

#[tokio::test]
async fn the_user_server_is_given_no_other_user_and_no_other_role_by_manifest_works() {
    use Attempt::{Create, Delete};
    let hub = hub(&[]).await;
    let impersonates = "may impersonate only ServiceAccounts of the hub";
    let binds = "only bind the ClusterRoles in consumerAccess.allowedClusterRoles";
    let contains = "must contain only bindings, and the ClusterRole";
    let create = |edit: fn([&mut Value; 3])| Create(ours(edit));
    let role = |edit: fn(&mut Value)| Create(ours(|[_, role, _]| edit(&mut role["rules"])));
    let binding = |edit: fn(&mut Value)| Create(ours(|[binding, ..]| edit(binding)));
    let foreign = work("team", SERVER).field("spec", json!({ "workload": { "manifests": [] } }));
    world::create(&hub.ocm, [ocm::namespace("elsewhere")]).await;
    let cases = vec![
        (role(|it| it[0]["resourceNames"] = json!([])), impersonates),
        (role(|it| it[0]["resourceNames"] = json!(["system:admin"])), impersonates),
        (
            role(|it| {
                it[0]["resourceNames"] =
                    json!(["cluster:hub:system:serviceaccount:kube-system:admin"]);
            }),
            impersonates,
        ),
        (role(|it| drop(it[0].as_object_mut().unwrap().remove("resourceNames"))), impersonates),
        (role(|it| it[0]["resources"] = json!(["groups"])), impersonates),
        (role(|it| it[0]["resources"] = json!(["*"])), impersonates),
        (role(|it| it[0]["verbs"] = json!(["*"])), impersonates),
        (role(|it| *it = rules("serviceaccounts", &["admin"])), impersonates),
        (role(|it| *it = rules("groups", &["system:masters"])), impersonates),
        (
            role(|it| *it = rules("groups", &["cluster:hub:system:serviceaccounts:kube-system"])),
            impersonates,
        ),
        (
            role(|it| *it = json!([{ "nonResourceURLs": ["*"], "verbs": ["impersonate"] }])),
            impersonates,
        ),
        (create(|[_, role, _]| role["metadata"]["name"] = json!("hub-addons-own:x")), contains),
        (create(|[_, role, _]| role["aggregationRule"] = json!({})), contains),
        (create(|[_, role, _]| role["kind"] = json!("Role")), contains),
        (create(|[_, role, _]| role["metadata"]["labels"] = aggregated()), contains),
        (create(|[binding, ..]| binding["metadata"]["labels"] = aggregated()), contains),
        (create(|[_, role, _]| role["metadata"]["annotations"] = json!({ "a": "b" })), contains),
        (create(|[.., acts]| acts["subjects"][0]["name"] = json!("default")), binds),
        (create(|[.., acts]| acts["subjects"][0]["namespace"] = json!("kube-system")), binds),
        (create(|[.., acts]| acts["roleRef"]["name"] = json!("cluster-admin")), binds),
        (binding(|it| it["roleRef"]["name"] = json!("cluster-admin")), binds),
        (binding(|it| it["roleRef"] = json!({})), binds),
        (binding(|it| it["subjects"] = json!([user_of("kube-system", "server")])), binds),
        (binding(|it| it["subjects"] = json!([user_of("team", "eve:admin")])), binds),
        (binding(|it| it["subjects"][0]["name"] = json!("admin")), binds),
        (binding(|it| it["subjects"] = json!([])), binds),
        (binding(|it| it["subjects"][0]["kind"] = json!("Group")), binds),
        (binding(|it| it["metadata"]["name"] = json!("cluster-admin")), contains),
        (
            Create(permissions(work("default", SERVER), &json!({ "executor": {} }), |_| {})),
            "nothing but manifests",
        ),
        (
            Create(permissions(work("default", SERVER), &json!({}), |it| {
                it["metadata"]["ownerReferences"] = json!([]);
            })),
            "must be owned by its account",
        ),
        (
            Create(permissions(work("default", SERVER), &json!({}), |it| {
                it["metadata"]["labels"] = json!({});
            })),
            "must have its labels",
        ),
    ];
    refused(&hub, &user(COMPONENT), cases, "'hub-addons-consumers-own-manifestworks'").await;
    let works = "'hub-addons-consumers-manifestworks'";
    let other = permissions(ours(|_| {}), &json!({}), |it| it["metadata"]["name"] = json!("other"));
    refused(&hub, &user(COMPONENT), vec![(Create(other), "with the names of its accounts")], works)
        .await;
    let labelled = create(|[_, role, _]| {
        role["metadata"]["labels"] = json!({ "app.kubernetes.io/managed-by": "hub-addons" });
    });
    allowed(&hub, &user(COMPONENT), vec![create(|_| {}), labelled]).await;
    foreign.create(&hub.ocm).await.unwrap();
    let own = ours(|_| {});
    own.create(&hub.ocm).await.unwrap();
    allowed(&hub, &user(COMPONENT), vec![Delete(own)]).await;

    // The account: its token is copied nowhere.
    let server = |edit: fn(&mut Value)| {
        let mut metadata = json!({ "name": SERVER, "namespace": "default", "labels": marks() });
        edit(&mut metadata);
        let rotation = json!({ "rotation": { "enabled": true, "validity": "24h0m0s" } });
        account("default", SERVER).field("metadata", metadata).field("spec", rotation)
    };
    let accounts = "'hub-addons-consumers-accounts'";
    let asks = server(|it| it["labels"][ocm::SYNC_LABEL] = json!("true"));
    let limited =
        server(|it| it["annotations"] = json!({ ocm::SYNC_NAMESPACES_ANNOTATION: "team" }));
    let cases = vec![
        (Create(asks), "must not have the label and the annotation for copies"),
        (Create(limited), "must not have the label and the annotation for copies"),
    ];
    refused(&hub, &user(COMPONENT), cases, accounts).await;
    let plain = server(|_| {});
    allowed(&hub, &user(COMPONENT), vec![Create(plain)]).await;
}

#[tokio::test]
async fn the_user_server_is_given_no_other_user_and_no_other_role_by_cluster_permissions() {
    use Attempt::Create;
    let hub = hub(&BY_PERMISSIONS).await;
    let policy = "'hub-addons-consumers-own-clusterpermissions'";
    let impersonates = "may impersonate only ServiceAccounts of the hub";
    let binds = "only bind the ClusterRoles in consumerAccess.allowedClusterRoles";
    let acts = "only the account of the user server may impersonate";
    let of = |edit: fn(&mut Value)| {
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
    };
    let cases = vec![
        (of(|it| it["clusterRole"]["rules"] = rules("users", &["admin"])), impersonates),
        (of(|it| it["clusterRole"]["rules"][0]["resourceNames"] = json!([])), impersonates),
        (of(|it| it["clusterRole"]["rules"][0]["verbs"] = json!(["*"])), impersonates),
        (of(|it| it["clusterRole"]["labels"] = aggregated()), "must contain nothing but bindings"),
        (of(|it| it["clusterRoleBindings"][1]["subject"]["name"] = json!("other")), acts),
        (of(|it| it["clusterRoleBindings"][1]["subject"] = user_of("team", "manager")), acts),
        (of(|it| it["clusterRoleBindings"][1]["subject"]["namespace"] = json!("default")), acts),
        (of(|it| it["clusterRoleBindings"][1]["roleRef"] = role_ref("cluster-admin")), binds),
        (of(|it| it["clusterRoleBindings"][1]["roleRef"] = role_ref("view")), binds),
        (of(|it| it["roleBindings"][0]["roleRef"] = Value::Null), binds),
        (of(|it| it["clusterRoleBinding"] = it["clusterRoleBindings"][1].clone()), "nothing but"),
        (of(|it| it["clusterRoleBindings"][0]["roleRef"]["name"] = json!("cluster-admin")), binds),
        (
            of(|it| it["clusterRoleBindings"][0]["subjects"][0] = user_of("kube-system", "eve")),
            binds,
        ),
        (
            of(|it| it["clusterRoleBindings"][0]["subjects"][0]["namespace"] = json!("default")),
            binds,
        ),
        (of(|it| it["clusterRoleBindings"][0]["subject"] = user_of("team", "manager")), binds),
        (of(|it| it["roleBindings"][0]["roleRef"]["more"] = json!("view")), binds),
        (of(|it| it["roleBindings"][0]["namespace"] = Value::Null), binds),
        (of(|it| it["roles"] = json!([])), "must contain nothing but bindings"),
    ];
    refused(&hub, &user(COMPONENT), cases, policy).await;
    allowed(&hub, &user(COMPONENT), vec![of(|_| {})]).await;
}
