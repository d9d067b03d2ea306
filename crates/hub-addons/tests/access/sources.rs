//! Another source of trust: a ConfigMap that the administrator configures.

use crate::support::proxy::{
    self, Authority, HOME, has_written, install, project, publishes, requests_of, state,
};
use crate::support::{Addons, Hub, USER, rights, world};
use local_hub::LocalHub;
use serde_json::json;

#[tokio::test]
async fn cluster_proxy_is_trusted_by_a_config_map_without_a_permission_for_the_secret_with_its_key()
{
    let mut rules = rights::provisioner();
    rules.retain(|rule| rule.resources.as_ref().is_none_or(|it| it != &["secrets"]));
    rules.push(rights::rule("list,watch configmaps named front"));
    let hub = Hub::start(LocalHub::builder().without_controller_manager(), rules).await;
    let (a, b) = (Authority::new("a"), Authority::new("b"));
    install(&hub, &Authority::new("not read"), &["c1"]).await;
    let front = |text: &str| {
        world::object("ConfigMap", Some(HOME), "front").field("data", json!({ "ca.crt": text }))
    };
    front(&a.pem()).create(&hub.ocm).await.unwrap();
    project(&hub, &["c1"]).await;
    let mark = hub.audit().mark().await.unwrap();
    let arguments =
        [proxy::ALONE, "--access-provider-ca=configmap/proxy/front/ca.crt", "--ca-overlap=0"];
    let addons = Addons::start(&hub, &arguments).await;
    publishes(&hub, "c1", HOME, &[&a]).await;
    front(&b.pem()).update(&hub.ocm).await.unwrap();
    publishes(&hub, "c1", HOME, &[&b]).await;
    // Another namespace of the proxy changes the server, and the certificates stay where they are.
    proxy::configuration("elsewhere").update(&hub.ocm).await.unwrap();
    publishes(&hub, "c1", "elsewhere", &[&b]).await;
    has_written(&addons, 3).await;

    world::delete(&hub.ocm, &front("")).await;
    let note = world::told(&hub.ocm, &front(""), "NoTrustAnchor").await;
    assert!(note.contains("\"ca.crt\"") && note.contains("does not exist"), "{note}");
    addons.measures(&state("cluster_proxy", "no_trust_anchor"), 1.0).await;
    publishes(&hub, "c1", "elsewhere", &[&b]).await;
    front(&b.pem()).create(&hub.ocm).await.unwrap();
    addons.measures(&state("cluster_proxy", "published"), 1.0).await;
    has_written(&addons, 3).await;
    let requests = requests_of(USER, &hub.audit().since(&mark).await.unwrap());
    assert_eq!(requests.count(|request| request.code == 403), 0, "{requests}");
    assert_eq!(requests.count(|request| request.resource == "secrets"), 0, "{requests}");
}
