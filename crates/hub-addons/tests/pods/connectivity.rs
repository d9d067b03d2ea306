//! `test --in-cluster`: the test in a Pod of the image, with the ServiceAccount and the permission of an application.

use std::process::{Output, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};
use local_hub::{Cluster, LocalHub, PodsBuilder, ServingAuthority, UserServer, eventually, ocm};
use serde_json::{Value, json};

use crate::stage::Nodes;
use crate::support::credentials::{OF_ACCOUNT, OF_CLUSTER, SYNCED_FROM};
use crate::support::pods::{IMAGE, image};
use crate::support::rights::rule;
use crate::support::world;

const NAMESPACE: &str = "trial";
const COPY: &str = "one-kueue";
/// The name of the user server's Service.
const USER_SERVER: &str = "cluster-proxy-addon-user.proxy.svc";

/// Runs the test with the copy until it ends.
async fn test(hub: &Cluster, more: &[&str]) -> Output {
    test_of(hub, &[&["--account=kueue"], more].concat()).await
}

/// Runs the test until it ends.
async fn test_of(hub: &Cluster, more: &[&str]) -> Output {
    let kubeconfig = hub.kubeconfig_for("admin").unwrap();
    tokio::process::Command::new(env!("CARGO_BIN_EXE_hub-addons"))
        .args(["test", "trial/one", "--in-cluster", "--output=json"])
        .arg(format!("--kubeconfig={}", kubeconfig.display()))
        .args(more)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .unwrap()
}

fn hops(output: &Output) -> Vec<Value> {
    let result: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {output:?}"));
    result["hops"].as_array().unwrap().clone()
}

/// The cluster is reached by the name of a Service, as the provisioner publishes the user server.
async fn reached_by_name(hub: &Cluster, profile: &ocm::Object, authority: &ServingAuthority) {
    let client = hub.client_as("admin").await.unwrap();
    let [service, namespace, _] = USER_SERVER.split('.').collect::<Vec<_>>()[..] else { panic!() };
    let of_kind = |gvk, plural| ocm::Object::new(gvk, plural, Some(namespace), service);
    let ports = json!([{ "name": "user", "port": 9092 }]);
    let endpoints = of_kind(("discovery.k8s.io", "v1", "EndpointSlice"), "endpointslices")
        .label("kubernetes.io/service-name", service)
        .field("addressType", json!("IPv4"))
        .field("ports", ports.clone())
        // Where Pods find the first host of the test.
        .field("endpoints", json!([{ "addresses": ["198.51.100.1"] }]));
    let service =
        of_kind(("", "v1", "Service"), "services").field("spec", json!({ "ports": ports }));
    world::create(&client, [ocm::namespace(namespace), service, endpoints]).await;
    let cluster = json!({
        "server": format!("https://{USER_SERVER}:9092/one"),
        "certificate-authority-data": STANDARD.encode(authority.ca_pem()),
        "extensions": [{ "name": "client.authentication.k8s.io/exec", "extension": { "clusterName": "one" } }],
    });
    let provider = json!([{ "name": "open-cluster-management", "cluster": cluster }]);
    world::merge_status(&client, profile, &json!({ "accessProviders": provider })).await;
    // kube-proxy follows the Service.
    let output =
        eventually("the Service leads to the user server", crate::support::SOON, async || {
            let output = test(hub, &[]).await;
            if output.status.success() { Ok(Some(output)) } else { Err(format!("{output:?}")) }
        })
        .await;
    let resolved = hops(&output)[1]["detail"].as_str().unwrap().to_owned();
    assert!(resolved.starts_with("10.0.0."), "{resolved}");
}

#[tokio::test]
#[allow(clippy::too_many_lines, reason = "one hub with a node for all of it")]
async fn a_test_in_a_pod_reaches_the_cluster_as_the_application_does() {
    let Some(image) = image().await else { return };
    let authority = ServingAuthority::new("user-server").unwrap();
    let mut server = None;
    let with_server = |hub: &LocalHub, nodes: PodsBuilder| {
        let serving = authority.issue([USER_SERVER]).unwrap();
        let any = "127.0.0.1:0".parse().unwrap();
        let started = UserServer::start(&serving, any, [("one", hub.upstream())]).unwrap();
        nodes.service("user-server.example", 9092, server.insert(started).address())
    };
    let hub = Nodes::start(1, &[(IMAGE, &image)], with_server).await;
    let client = hub.client_as("admin").await.unwrap();
    world::create(&client, [world::restricted(NAMESPACE)]).await;
    // The hub is the cluster, and its token that of a ServiceAccount. No controller is needed for that.
    let account = hub.service_account(NAMESPACE, "on-the-cluster").await.unwrap();
    let copy = ocm::Object::new(("", "v1", "Secret"), "secrets", Some(NAMESPACE), COPY)
        .label(SYNCED_FROM, COPY)
        .annotation(OF_CLUSTER, "one")
        .annotation(OF_ACCOUNT, "kueue")
        .field("data", json!({ "token": STANDARD.encode(account.token().expose()) }));
    let profile = world::profile_of("karmada", NAMESPACE, "one");
    world::create(&client, [copy, profile.clone()]).await;
    let cluster = json!({
        "server": "https://kubernetes.default.svc",
        "certificate-authority-data": STANDARD.encode(hub.ca_pem()),
        "extensions": [{ "name": "client.authentication.k8s.io/exec", "extension": { "clusterName": "one" } }],
    });
    let provider = json!([{ "name": "open-cluster-management", "cluster": cluster }]);
    world::merge_status(&client, &profile, &json!({ "accessProviders": provider })).await;
    // Where the image comes from.
    let pod = json!({ "metadata": { "labels": { "app": "a" } }, "spec": { "containers": [{ "name": "a", "image": IMAGE }] } });
    let installed =
        json!({ "replicas": 0, "selector": { "matchLabels": { "app": "a" } }, "template": pod });
    ocm::Object::new(("apps", "v1", "Deployment"), "deployments", Some(NAMESPACE), "installed")
        .label("app.kubernetes.io/part-of", "hub-addons")
        .field("spec", installed)
        .create(&client)
        .await
        .unwrap();
    let role =
        json!({ "kind": "ClusterRole", "name": "view", "apiGroup": "rbac.authorization.k8s.io" });
    let subject = json!({ "kind": "ServiceAccount", "namespace": NAMESPACE, "name": "installed" });
    let gvk = ("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding");
    ocm::Object::new(gvk, "clusterrolebindings", None, "installed")
        .label("app.kubernetes.io/part-of", "hub-addons")
        .field("roleRef", role)
        .field("subjects", json!([subject]))
        .create(&client)
        .await
        .unwrap();
    let application = hub.service_account(NAMESPACE, "application").await.unwrap();
    let reads = rule(&format!("get secrets named {COPY}"));
    application.grant_in_namespace(vec![reads]).await.unwrap();

    let output = test(&hub, &[]).await;
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let passed = hops(&output);
    let names: Vec<_> = passed.iter().map(|hop| hop["hop"].as_str().unwrap()).collect();
    assert_eq!(names[4..], ["credential", "request", "authentication", "response", "permissions"]);
    assert!(passed.iter().all(|hop| hop["mark"] == "ok"), "{passed:#?}");
    assert!(passed[7]["detail"].as_str().unwrap().starts_with("Kubernetes v1."), "{passed:#?}");
    assert!(
        !String::from_utf8_lossy(&output.stdout).contains(account.token().expose()),
        "a token is printed"
    );

    reached_by_name(&hub, &profile, &authority).await;
    let provider = json!([{ "name": "open-cluster-management", "cluster": cluster }]);
    world::merge_status(&client, &profile, &json!({ "accessProviders": provider })).await;

    // Another ServiceAccount, which may not read the copy.
    let output = test(&hub, &["--service-account=on-the-cluster"]).await;
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let last = hops(&output).pop().unwrap();
    assert_eq!(
        (&last["hop"], &last["mark"]),
        (&json!("credential"), &json!("problem")),
        "{last:#}"
    );
    assert!(last["detail"].as_str().unwrap().contains("HTTP 403"), "{last:#}");

    // By its own identity, the Pod has a token for the user server: the hub's own API server does not accept it.
    let both = ["open-cluster-management", "open-cluster-management-own-identity"]
        .map(|name| json!({ "name": name, "cluster": cluster }));
    world::merge_status(&client, &profile, &json!({ "accessProviders": both })).await;
    let own_token = ["--own-token=/var/run/secrets/hub-addons/token"];
    let output = test_of(&hub, &own_token).await;
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.code() == Some(2) && error.contains("with --service-account"),
        "{output:?}"
    );
    let output =
        test_of(&hub, &[&own_token[..], &["--service-account=application"]].concat()).await;
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let walked = hops(&output);
    let marks: Vec<_> = walked.iter().map(|hop| (&hop["hop"], &hop["mark"])).collect();
    let (ok, problem) = (&json!("ok"), &json!("problem"));
    assert!(marks.contains(&(&json!("credential"), ok)), "{walked:#?}");
    assert_eq!(marks.last(), Some(&(&json!("authentication"), problem)), "{walked:#?}");

    let output = test(&hub, &["--image=registry.example.com/no-such:image"]).await;
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("does not start: ErrImagePull"), "{error}");
    eventually("no Pod stays", crate::support::SOON, async || {
        let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
        pods.list(&ListParams::default()).await.unwrap().items.is_empty()
    })
    .await;
}
