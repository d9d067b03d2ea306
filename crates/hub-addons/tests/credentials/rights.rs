//! The syncer with permissions only for the Secrets that it needs, which another process without such permissions
//! grants.

use crate::support::shown::sees;
use crate::support::{Addons, Hub, SOON, USER, rights, world};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::{ListParams, PostParams};
use kube::{Api, Client};
use local_hub::ocm::ServiceAccountToken;
use local_hub::{LocalHub, eventually, ocm};
use serde_json::{Value, json};

/// The ServiceAccount of the syncer.
pub const SUBJECT: (&str, &str) = ("addons", "syncer");
pub const PROFILES: &str = "--feature-gates=ClusterProfileAccessProvider=false,ClusterProfileCredSyncer=false,\
                        ClusterProfileCredRights=true";

const SYNCER: &str = "--feature-gates=ClusterProfile=false,ClusterProfileAccessProvider=false";

/// A role that the syncer's ServiceAccount has or can receive.
async fn role(client: &Client, name: &str, rules: Value) {
    let role = json!({ "metadata": { "name": name }, "rules": rules });
    let role: ClusterRole = serde_json::from_value(role).unwrap();
    Api::<ClusterRole>::all(client.clone()).create(&PostParams::default(), &role).await.unwrap();
}

/// The objects of an installation: the two roles, one of them bound and without rules.
pub async fn install(hub: &Hub) {
    let verbs = ["create", "delete", "get", "list", "patch", "watch"];
    role(
        &hub.ocm,
        "hub-addons-copies",
        json!([{ "apiGroups": [""], "resources": ["secrets"], "verbs": verbs }]),
    )
    .await;
    role(&hub.ocm, "hub-addons-tokens", json!([])).await;
    let binding = ocm::Object::new(
        ("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding"),
        "clusterrolebindings",
        None,
        "tokens",
    )
    .field(
        "roleRef",
        json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "hub-addons-tokens" }),
    )
    .field("subjects", json!([{ "kind": "ServiceAccount", "namespace": SUBJECT.0, "name": SUBJECT.1 }]));
    binding.create(&hub.ocm).await.unwrap();
}

/// A cluster in a set with its name, with a token.
async fn cluster_with_token(client: &Client, name: &str, account: &str) {
    world::create(client, [ocm::cluster_set(name), ocm::ManagedCluster::named(name).in_set(name).into()])
        .await;
    ServiceAccountToken::of(name, account).synced().create(client).await.unwrap();
}

async fn has_copies(client: &Client, namespace: &str, names: &[&str]) {
    let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let ours = ListParams::default().labels("authentication.open-cluster-management.io/synced-from");
    eventually(&format!("{namespace} has the copies {names:?}"), SOON, async || {
        let mut found: Vec<String> =
            api.list(&ours).await.unwrap().into_iter().filter_map(|secret| secret.metadata.name).collect();
        found.sort();
        if found == names { Ok(()) } else { Err(format!("{found:?}")) }
    })
    .await;
}

async fn token_names(client: &Client) -> Vec<String> {
    let role = Api::<ClusterRole>::all(client.clone()).get("hub-addons-tokens").await.unwrap();
    let rules = role.rules.unwrap_or_default();
    assert!(rules.len() <= 1, "{rules:?}");
    // A rule without names applies to all Secrets.
    rules.into_iter().flat_map(|rule| rule.resource_names.unwrap_or(vec!["*".to_owned()])).collect()
}

async fn tokens_are(client: &Client, names: &[&str]) {
    eventually(&format!("the role names {names:?}"), SOON, async || token_names(client).await == names).await;
}

async fn is_allowed(client: &Client, namespace: &str) -> bool {
    match Api::<Secret>::namespaced(client.clone(), namespace).list(&ListParams::default()).await {
        Ok(_) => true,
        Err(kube::Error::Api(status)) if status.code == 403 => false,
        Err(error) => panic!("{error}"),
    }
}

/// A hub for the projector and the controller of the syncer's permissions.
pub async fn hub_with_permissions() -> Hub {
    let mut rules = rights::projector();
    rules.extend(rights::credential_rights());
    let hub = Hub::start(LocalHub::builder().without_controller_manager(), rules).await;
    install(&hub).await;
    hub
}

/// The same with the namespaces `team` and `other`, of which `team` is granted a cluster with a token.
async fn hub_with_a_grant() -> Hub {
    let hub = hub_with_permissions().await;
    world::create(&hub.ocm, [ocm::namespace("team"), ocm::namespace("other")]).await;
    cluster_with_token(&hub.ocm, "c1", "app").await;
    ocm::bound("team", "c1").create(&hub.ocm).await.unwrap();
    hub
}

/// The flag that names the syncer's ServiceAccount.
pub fn subject() -> String {
    format!("--credential-rights-subject={}/{}", SUBJECT.0, SUBJECT.1)
}

#[tokio::test]
async fn the_syncer_gets_permissions_where_a_set_is_bound_and_for_tokens_of_accounts_that_opt_in() {
    let hub = hub_with_a_grant().await;
    let account = hub.service_account(SUBJECT.0, SUBJECT.1).await.unwrap();
    hub.grant_service_account(SUBJECT.0, SUBJECT.1, rights::syncer_granted()).await.unwrap();

    let _profiles = Addons::beside(&hub, &[PROFILES, &subject()]).await;
    let granted = [SYNCER, "--credential-secret-access=granted", "--leader-elect=false"];
    let syncer = Addons::launch_with(&hub, "syncer", account.kubeconfig(), &granted).await;
    has_copies(&hub.ocm, "team", &["c1-app"]).await;
    tokens_are(&hub.ocm, &["app"]).await;

    // Another namespace, account and cluster each receive their permission and their copies.
    cluster_with_token(&hub.ocm, "c2", "web").await;
    ocm::bound("other", "c2").create(&hub.ocm).await.unwrap();
    has_copies(&hub.ocm, "other", &["c2-web"]).await;
    tokens_are(&hub.ocm, &["app", "web"]).await;
    ocm::bound("other", "c1").create(&hub.ocm).await.unwrap();
    has_copies(&hub.ocm, "other", &["c1-app", "c2-web"]).await;

    // Nothing else is accessible.
    let client = account.client().await.unwrap();
    for (namespace, allowed) in [("team", true), ("other", true), ("c1", false), ("kube-system", false)] {
        assert_eq!(is_allowed(&client, namespace).await, allowed, "{namespace}");
    }
    let everywhere = Api::<Secret>::all(client.clone()).list(&ListParams::default()).await;
    assert!(everywhere.is_err(), "every Secret of the hub is accessible");

    // A rotation, a manual change, the end of a grant.
    ServiceAccountToken::of("c1", "app").token(b"rotated").report(&hub.ocm).await.unwrap();
    for namespace in ["team", "other"] {
        let api: Api<Secret> = Api::namespaced(hub.ocm.clone(), namespace);
        eventually(&format!("{namespace} has the new token"), SOON, async || {
            api.get("c1-app").await.unwrap().data.unwrap()["token"].0 == b"rotated"
        })
        .await;
    }
    world::delete(&hub.ocm, &ocm::Object::new(("", "v1", "Secret"), "secrets", Some("team"), "c1-app")).await;
    has_copies(&hub.ocm, "team", &["c1-app"]).await;
    world::delete(&hub.ocm, &ocm::bound("team", "c1")).await;
    has_copies(&hub.ocm, "team", &[]).await;
    has_copies(&hub.ocm, "other", &["c1-app", "c2-web"]).await;
    world::merge(
        &hub.ocm,
        &ocm::managed_service_account("c2", "web"),
        &json!({ "metadata": { "labels": { ocm::SYNC_LABEL: null } } }),
    )
    .await;
    has_copies(&hub.ocm, "other", &["c1-app"]).await;
    tokens_are(&hub.ocm, &["app"]).await;

    // Changes while the syncer was stopped are processed.
    syncer.stop().await;
    ocm::bound("team", "c1").create(&hub.ocm).await.unwrap();
    world::delete(&hub.ocm, &ocm::bound("other", "c1")).await;
    sees(&hub.ocm, "other", &["c2"]).await;
    let syncer = Addons::launch_with(&hub, "syncer-again", account.kubeconfig(), &granted).await;
    has_copies(&hub.ocm, "team", &["c1-app"]).await;
    has_copies(&hub.ocm, "other", &[]).await;

    // Even where no binding is left. This hub has no garbage collector.
    syncer.stop().await;
    world::delete(&hub.ocm, &ocm::bound("team", "c1")).await;
    sees(&hub.ocm, "team", &[]).await;
    let _syncer = Addons::launch_with(&hub, "syncer-at-last", account.kubeconfig(), &granted).await;
    has_copies(&hub.ocm, "team", &[]).await;

    // The process that grants the permissions has requested no Secret itself.
    let requests = hub.audit().requests().await.unwrap().of_user(USER);
    assert_eq!(requests.count(|r| r.resource == "secrets"), 0, "{requests}");
}

/// The RoleBinding of a namespace.
pub fn permission(namespace: &str) -> ocm::Object {
    let gvk = ("rbac.authorization.k8s.io", "v1", "RoleBinding");
    ocm::Object::new(gvk, "rolebindings", Some(namespace), "hub-addons-copies")
}
