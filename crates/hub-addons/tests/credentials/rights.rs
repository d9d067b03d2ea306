//! The syncer with permissions only for the Secrets that it needs, which another process without such permissions
//! grants.

use crate::support::credentials::{SYNCER, copied, token, withdrawn};
use crate::support::shown::sees;
use crate::support::{Addons, Hub, USER, rights, world};
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::PostParams;
use kube::{Api, Client};
use local_hub::{LocalHub, ocm};
use serde_json::{Value, json};

/// The ServiceAccount of the syncer.
pub const SUBJECT: (&str, &str) = ("addons", "hub-addons");
const PROFILES: &str = "--feature-gates=ClusterProfileAccessProvider=false,ClusterProfileCredSyncer=false,\
                        ClusterProfileCredRights=true";

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

#[tokio::test]
async fn what_changed_while_the_syncer_was_stopped_is_done_with_the_permissions_that_it_gets() {
    let rules = [rights::projector(), rights::credential_rights()].concat();
    let hub = Hub::start(LocalHub::builder().without_controller_manager(), rules).await;
    install(&hub).await;
    let account = hub.service_account(SUBJECT.0, SUBJECT.1).await.unwrap();
    hub.grant_service_account(SUBJECT.0, SUBJECT.1, rights::syncer_granted()).await.unwrap();
    world::create(
        &hub.ocm,
        [ocm::namespace("team"), ocm::namespace("other"), ocm::cluster_set("s")],
    )
    .await;
    ocm::ManagedCluster::named("c1").in_set("s").create(&hub.ocm).await.unwrap();
    let app = token("c1", "app");
    app.create(&hub.ocm).await.unwrap();
    ocm::bound("other", "s").create(&hub.ocm).await.unwrap();
    let subject = format!("--credential-rights-subject={}/{}", SUBJECT.0, SUBJECT.1);
    let _profiles = Addons::start(&hub, &[PROFILES, &subject]).await;
    let granted = [SYNCER, &subject, "--leader-elect=false"];
    let syncer = Addons::launch_with(&hub, "syncer", account.kubeconfig(), &granted).await;
    copied(&hub.ocm, "other", &app).await;

    syncer.stop().await;
    ocm::bound("team", "s").create(&hub.ocm).await.unwrap();
    world::delete(&hub.ocm, &ocm::bound("other", "s")).await;
    sees(&hub.ocm, "team", &["c1"]).await;
    sees(&hub.ocm, "other", &[]).await;
    let syncer = Addons::launch_with(&hub, "syncer-again", account.kubeconfig(), &granted).await;
    copied(&hub.ocm, "team", &app).await;
    withdrawn(&hub.ocm, "other", &app).await;

    // Even where no binding is left. This hub has no garbage collector.
    syncer.stop().await;
    world::delete(&hub.ocm, &ocm::bound("team", "s")).await;
    sees(&hub.ocm, "team", &[]).await;
    let _syncer = Addons::launch_with(&hub, "syncer-at-last", account.kubeconfig(), &granted).await;
    withdrawn(&hub.ocm, "team", &app).await;

    // The process that grants the permissions has requested no Secret itself.
    let requests = hub.audit().requests().await.unwrap().of_user(USER);
    assert_eq!(requests.count(|r| r.resource == "secrets"), 0, "{requests}");
}

/// The RoleBinding of a namespace.
pub fn permission(namespace: &str) -> ocm::Object {
    let gvk = ("rbac.authorization.k8s.io", "v1", "RoleBinding");
    ocm::Object::new(gvk, "rolebindings", Some(namespace), "hub-addons-copies")
}
