//! A hub on which applications reach their clusters: every step is in order, and the printed kubeconfig works.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use local_hub::{agent, eventually, ocm};
use serde_json::{Value, json};

use super::json::is_documented;
use super::plugin::{kubectl, run};
use crate::support::chain::{CLUSTERS, LOST, in_one_process, lists};
use crate::support::command::succeeded;
use crate::support::plugin::cp_creds;
use crate::support::{SOON, chart, world};

#[tokio::test]
async fn where_an_application_reaches_its_clusters_everything_is_in_order() {
    let stage = in_one_process().await;
    let application = stage.bound_application("explained", &CLUSTERS).await;
    application.reaches("one").await;
    application.reaches("two").await;
    let hub = &stage.chain.hub;
    let kubectl = kubectl(hub, &hub.kubeconfig_for("admin").unwrap());
    let ended = run(&kubectl, &["explain", "explained/one", "--output=json"]).await;
    assert!(ended.problems().is_empty(), "{ended:#?}");
    let explanation = ended.json();
    is_documented("JSON of explain", &explanation);
    let marks: Vec<(&str, &str)> = explanation["findings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|finding| (finding["step"].as_str().unwrap(), finding["mark"].as_str().unwrap()))
        .collect();
    for step in
        ["Binding", "ClusterSet", "Profile", "AccessProvider", "Account", "Token", "Credential"]
    {
        assert!(marks.contains(&(step, "ok")), "{step}: {marks:?}");
    }
    assert_eq!(ended.code, Some(0));
    let explained = run(&kubectl, &["explain", "explained"]).await.succeeded();
    assert_eq!(explained, "2 clusters in 1 namespace: 2 in order, 0 with problems\n");

    let ended = run(&kubectl, &["list", "--namespace=explained", "--output=json"]).await;
    is_documented("JSON of list", &ended.json());
    let items = ended.json()["items"].clone();
    let names: Vec<&Value> = items.as_array().unwrap().iter().map(|item| &item["name"]).collect();
    assert_eq!(names, CLUSTERS);
    assert_eq!(items[0]["credentials"][0]["account"], application.account(), "{items:#}");
    assert_eq!(items[0]["accessProviders"][0]["name"], "open-cluster-management");
}

#[tokio::test]
async fn the_kubeconfig_that_is_printed_reaches_the_cluster_and_holds_no_secret() {
    let stage = in_one_process().await;
    let application = stage.bound_application("configured", &CLUSTERS).await;
    application.reaches("one").await;
    let hub = &stage.chain.hub;
    let plugin = kubectl(hub, &hub.kubeconfig_for("admin").unwrap());
    let account = format!("--account={}", application.account());
    let creds = format!("--plugin={}", cp_creds().display());
    let of_application = format!("--hub-kubeconfig={}", application.access.kubeconfig().display());
    let arguments = ["kubeconfig", "configured", "one", &account, &creds, &of_application];
    let printed = run(&plugin, &arguments).await.succeeded();
    assert!(!printed.contains("token:") && !printed.contains("eyJ"), "{printed}");
    let file = hub.directory().join("printed.kubeconfig");
    std::fs::write(&file, printed).unwrap();
    let application_kubectl = hub.kubectl_with(&file).unwrap();
    lists(&application_kubectl, "one").await;
    // Every cluster has a context.
    let ended = run(&plugin, &["kubeconfig", "configured", &account, "--output=json"]).await;
    let contexts = ended.json()["contexts"].clone();
    let names: Vec<&Value> =
        contexts.as_array().unwrap().iter().map(|context| &context["name"]).collect();
    assert_eq!(names, CLUSTERS);
    // An IP address is not a Service whose port can be forwarded.
    eventually("the way through a forwarded port is refused", SOON, async || {
        let ended =
            run(&plugin, &["kubeconfig", "configured", "one", &account, "--port-forward"]).await;
        if ended.code == Some(2) && ended.stderr.contains("is not a Service") {
            Ok(())
        } else {
            Err(format!("{ended:?}"))
        }
    })
    .await;
}

#[tokio::test]
async fn the_charts_viewer_sees_everything_but_secrets_and_gets_the_same_answer() {
    let stage = in_one_process().await;
    let application = stage.bound_application("viewed", &CLUSTERS).await;
    application.reaches("one").await;
    application.reaches("two").await;
    let hub = &stage.chain.hub;
    let chart = chart::chart().display().to_string();
    let only = "--show-only=templates/rbac-viewer.yaml";
    let arguments =
        ["template", "it", &chart, chart::REGISTRY, "--set=rbac.viewer.create=true", only];
    let rendered = chart::run(chart::helm(), None, &arguments).await.succeeded();
    let file = hub.directory().join("viewer.yaml");
    std::fs::write(&file, rendered).unwrap();
    succeeded(hub.kubectl(&["apply", "--filename", file.to_str().unwrap()]).await.unwrap());
    let consumer = world::subject("User", "consumer");
    let role = ("ClusterRole", "it-hub-addons-viewer");
    let of_release = world::account("default", "it-hub-addons-profiles");
    let of_release = world::binding(None, "it-hub-addons-profiles", role, of_release)
        .label("app.kubernetes.io/part-of", "hub-addons");
    let bound = world::binding(None, "viewer", role, consumer);
    world::create(&stage.ocm, [bound, of_release]).await;
    let viewer = kubectl(hub, &hub.kubeconfig_for("consumer").unwrap());
    let spec = json!({ "identity": "Own", "serviceAccountNames": ["app"], "clusters": { "placementRef": { "name": "gpus" } } });
    let placed = ocm::cluster_access("viewed", "placed", &spec);
    placed.status("observedGeneration", json!(1)).create(&hub.ocm).await.unwrap();
    let ended = eventually("the viewer sees that everything is in order", SOON, async || {
        let ended = run(&viewer, &["explain", "viewed"]).await;
        if ended.code == Some(0) { Ok(Some(ended)) } else { Err(format!("{ended:?}")) }
    })
    .await;
    assert_eq!(ended.stdout, "2 clusters in 1 namespace: 2 in order, 0 with problems\n");
    let mark = hub.audit().mark().await.unwrap();
    run(&viewer, &["explain", "viewed"]).await;
    let requests = hub.audit().since(&mark).await.unwrap().of_user("consumer");
    let refused = requests.matching(|it| it.code == 403 && it.resource != "secrets");
    assert_eq!(refused.len(), 0, "{refused}");
    for verb in ["get", "list"] {
        assert!(requests.count(|it| it.resource == "deployments" && it.verb == verb) > 0, "{verb}");
    }
    run(&viewer, &["explain", "viewed/one"]).await.succeeded();
    let ended = run(&viewer, &["list", "viewed"]).await;
    let row: Vec<_> = ended.stdout.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(row[7], "?", "copies are Secrets: {ended:?}");
    // Nothing is permitted that is not shown. Who may list objects may also get them, as the printed commands do.
    let role: Value = serde_saphyr::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    let resources = role["rules"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|rule| rule["resources"].as_array().unwrap());
    let requests = hub.audit().since(&mark).await.unwrap().of_user("consumer");
    let unused: Vec<_> =
        resources.filter(|it| requests.count(|request| request.resource == **it) == 0).collect();
    assert!(unused.is_empty(), "{unused:?}");
}

#[tokio::test]
async fn every_hop_to_a_cluster_is_tested_and_the_first_that_fails_is_named() {
    let stage = in_one_process().await;
    let application = stage.bound_application("tried", &CLUSTERS).await;
    application.reaches("one").await;
    let hub = &stage.chain.hub;
    // The hub and its clusters have loopback addresses, for which no proxy is used.
    let kubectl = kubectl(hub, &hub.kubeconfig_for("admin").unwrap())
        .env("HTTPS_PROXY", "http://127.0.0.1:1");
    let creds = format!("--plugin={}", cp_creds().display());
    let of_application = format!("--hub-kubeconfig={}", application.access.kubeconfig().display());
    let test = async |target: &str, account: &str| {
        let account = format!("--account={account}");
        run(&kubectl, &["test", target, &account, &creds, &of_application, "--output=json"]).await
    };
    let ended = test("tried/one", application.account()).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    is_documented("JSON of test", &ended.json());
    let hops = ended.json()["hops"].as_array().unwrap().clone();
    let names: Vec<_> = hops.iter().map(|hop| hop["hop"].as_str().unwrap()).collect();
    let expected = [
        "endpoint",
        "name resolution",
        "TCP",
        "TLS",
        "credential",
        "request",
        "authentication",
        "response",
        "permissions",
    ];
    assert_eq!(names, expected);
    assert!(
        hops.iter().all(|hop| hop["mark"] == "ok" && hop["milliseconds"].is_u64()),
        "{hops:#?}"
    );
    assert!(hops[7]["detail"].as_str().unwrap().starts_with("Kubernetes v1."), "{hops:#?}");
    assert!(!ended.stdout.contains("eyJ"), "no token is printed: {}", ended.stdout);

    let last = async |target: &str, account: &str| {
        let ended = test(target, account).await;
        assert_eq!(ended.code, Some(1), "{ended:?}");
        let hop = ended.json()["hops"].as_array().unwrap().last().unwrap().clone();
        assert_eq!(hop["mark"], "problem");
        (hop["hop"].as_str().unwrap().to_owned(), hop["detail"].as_str().unwrap().to_owned())
    };
    let (hop, detail) = last("tried/one", "nobody").await;
    assert!(hop == "credential" && detail.contains(LOST), "{hop}: {detail}");

    // A ClusterRole that does not exist on the cluster, bound where a ClusterAccess asks for it.
    let asked = json!([{ "clusterRole": "no-such-role", "namespaces": ["kube-public"] }]);
    let spec = json!({ "identity": "Copy", "serviceAccountNames": ["app"], "permissions": asked });
    ocm::cluster_access("tried", "asks", &spec).create(&stage.ocm).await.unwrap();
    let account = world::account(agent::NAMESPACE, application.account());
    let role = ("ClusterRole", "no-such-role");
    let bound = world::binding(Some("kube-public"), "asked", role, account);
    bound.create(&stage.cluster("one").client_as("admin").await.unwrap()).await.unwrap();
    eventually("the cluster knows the binding", SOON, async || {
        test("tried/one", application.account()).await.code != Some(0)
    })
    .await;
    let (hop, detail) = last("tried/one", application.account()).await;
    assert!(
        hop == "permissions" && detail.ends_with("not exist on the cluster: no-such-role"),
        "{detail}"
    );

    // Profiles of another writer, in a namespace beside that of our profiles.
    ocm::namespace("forged").create(&stage.ocm).await.unwrap();
    let server = application.stanza("one").await["server"].clone();
    let authority = STANDARD.encode(hub.ca_pem());
    for (name, server, expected) in [
        ("one", server, "TLS"),
        ("two", json!("https://no-such-host.invalid/two"), "name resolution"),
        ("three", json!("https://0.0.0.0:1/three"), "TCP"),
    ] {
        let profile = world::profile_of("karmada", "forged", name);
        profile.create(&stage.ocm).await.unwrap();
        let cluster = json!({ "server": server, "certificate-authority-data": authority });
        let entry = json!([{ "name": "open-cluster-management", "cluster": cluster }]);
        world::merge_status(&stage.ocm, &profile, &json!({ "accessProviders": entry })).await;
        let (hop, detail) = last(&format!("forged/{name}"), application.account()).await;
        assert_eq!(hop, expected, "{detail}");
        assert!(hop != "TLS" || detail.contains("no published trust anchor verifies"), "{detail}");
        assert!(
            hop != "TCP" || detail.ends_with("through the proxy, unless NO_PROXY has 0.0.0.0"),
            "{detail}"
        );
    }
}
