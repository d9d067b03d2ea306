//! From a managed cluster to a hub and back through the user server, with real API servers and tokens.

#![allow(clippy::unwrap_used, reason = "clippy takes only functions marked as tests for tests")]

#[allow(dead_code, reason = "shared")]
use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{DynamicObject, ListParams, PostParams};
use kube::{Api, Client};
use local_hub::{Agent, HubError, LocalHub, OCM, RunningKubectl, agent, eventually, ocm};
use serde_json::{Value, json};

use crate::support::{Proxy, SOON, code, hub, managed, may, name_of};

const HOUR: Duration = Duration::from_hours(1);

fn config_map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({ "metadata": { "name": name } })).unwrap()
}

/// A ManagedServiceAccount on the hub, and the token in its Secret.
async fn account_and_secret(client: &Client, cluster: &str, name: &str) -> (DynamicObject, Secret) {
    let account = ocm::managed_service_account(cluster, name).api(client).get(name).await.unwrap();
    let secrets: Api<Secret> = Api::namespaced(client.clone(), cluster);
    (account, secrets.get(name).await.unwrap())
}

fn condition<'a>(account: &'a DynamicObject, type_: &str) -> &'a Value {
    let conditions = account.data["status"]["conditions"].as_array().unwrap();
    conditions.iter().find(|condition| condition["type"] == type_).unwrap()
}

#[tokio::test]
async fn the_agent_reports_and_rotates_as_the_hub_expects_it() {
    let [hub, one] = LocalHub::start_many([hub(), managed()]).await.unwrap();
    let ocm = hub.client_as(OCM).await.unwrap();
    let agent = Agent::between("one", &hub, &one).await.unwrap();

    let missing = agent.report("my-app", HOUR).await.unwrap_err();
    assert!(matches!(missing, HubError::Api { .. }), "{missing:?}");
    ocm::namespace("one").create(&ocm).await.unwrap();
    ocm::managed_service_account("one", "my-app").label(ocm::SYNC_LABEL, "true").create(&ocm).await.unwrap();
    let short = agent.report("my-app", Duration::from_secs(599)).await.unwrap_err();
    assert!(format!("{short:?}").contains("10 minutes"), "{short:?}");

    let first = agent.report("my-app", HOUR).await.unwrap();
    let (account, secret) = account_and_secret(&ocm, "one", "my-app").await;
    let data = secret.data.clone().unwrap();
    assert_eq!(data.keys().collect::<Vec<_>>(), ["ca.crt", "token"]);
    assert!(data["token"].0 == first.token.expose().as_bytes());
    assert_eq!(data["ca.crt"].0, one.ca_pem().as_bytes());
    assert_eq!(secret.type_.as_deref(), Some("Opaque"));
    assert_eq!(secret.metadata.labels.unwrap()[ocm::TOKEN_LABEL], "true");
    let owners = secret.metadata.owner_references.unwrap();
    assert_eq!(owners.len(), 1);
    assert_eq!(
        (owners[0].api_version.as_str(), owners[0].kind.as_str(), owners[0].name.as_str()),
        ("authentication.open-cluster-management.io/v1beta1", "ManagedServiceAccount", "my-app")
    );
    assert_eq!((Some(&owners[0].uid), owners[0].controller), (account.metadata.uid.as_ref(), None));

    assert_eq!(account.metadata.labels.as_ref().unwrap()[ocm::SYNC_LABEL], "true");
    for type_ in ["SecretCreated", "TokenReported"] {
        assert_eq!(condition(&account, type_)["status"], "True");
    }
    let status = &account.data["status"];
    assert_eq!(status["tokenSecretRef"]["name"], "my-app");
    assert!(status["tokenSecretRef"]["lastRefreshTimestamp"].is_string());
    let expires: jiff::Timestamp = status["expirationTimestamp"].as_str().unwrap().parse().unwrap();
    assert_eq!(expires.as_second(), first.expires.as_second());

    // A second report is another token of the same account, in the same Secret.
    let second = agent.report("my-app", 2 * HOUR).await.unwrap();
    assert_ne!(first.token, second.token);
    let (rotated, secret_again) = account_and_secret(&ocm, "one", "my-app").await;
    assert!(secret_again.data.unwrap()["token"].0 == second.token.expose().as_bytes());
    assert_eq!(secret_again.metadata.uid, secret.metadata.uid);
    assert_eq!(condition(&rotated, "SecretCreated"), condition(&account, "SecretCreated"));
    assert_ne!(rotated.data["status"]["expirationTimestamp"], status["expirationTimestamp"]);

    // The next report replaces a modified Secret, including its owner's new uid.
    let other = ocm::token_secret("one", "my-app", "another-uid", b"garbage").label("foreign", "yes");
    other.update(&ocm).await.unwrap();
    agent.report("my-app", HOUR).await.unwrap();
    let (_, mended) = account_and_secret(&ocm, "one", "my-app").await;
    assert!(!mended.metadata.labels.unwrap().contains_key("foreign"));
    assert_eq!(Some(&mended.metadata.owner_references.unwrap()[0].uid), account.metadata.uid.as_ref());
}

#[tokio::test]
async fn a_reported_token_has_the_permissions_of_its_cluster_and_none_elsewhere() {
    let [hub, one] = LocalHub::start_many([hub(), managed()]).await.unwrap();
    let ocm = hub.client_as(OCM).await.unwrap();
    ocm::namespace("one").create(&ocm).await.unwrap();
    ocm::managed_service_account("one", "my-app").create(&ocm).await.unwrap();
    let agent = Agent::between("one", &hub, &one).await.unwrap();
    let old = agent.report("my-app", HOUR).await.unwrap().token;
    agent.report("my-app", HOUR).await.unwrap();
    let (_, secret) = account_and_secret(&ocm, "one", "my-app").await;
    let token = String::from_utf8(secret.data.unwrap()["token"].0.clone()).unwrap();

    // The hub is behind the same proxy, like another cluster.
    let proxy = Proxy::to([("one", one.upstream().unwrap()), ("hub", hub.upstream().unwrap())]);
    let client = proxy.client("one", &token);
    let name = format!("system:serviceaccount:{}:my-app", agent::NAMESPACE);
    for token in [old.expose(), token.as_str()] {
        assert_eq!(name_of(&proxy.client("one", token)).await.unwrap(), name);
    }
    for (cluster, token, expected) in
        [("hub", token.as_str(), 401), ("one", "made-up", 401), ("two", token.as_str(), 404)]
    {
        assert_eq!(code(&name_of(&proxy.client(cluster, token)).await), Some(expected), "{cluster}");
    }

    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    assert_eq!(code(&maps.list(&ListParams::default()).await), Some(403));
    one.grant_service_account(agent::NAMESPACE, "my-app", vec![may(&["list"], "configmaps")]).await.unwrap();
    maps.list(&ListParams::default()).await.unwrap();
    assert_eq!(code(&maps.create(&PostParams::default(), &config_map("mine")).await), Some(403));

    agent.delete_service_account("my-app").await.unwrap();
    agent.delete_service_account("my-app").await.unwrap();
    eventually("the token is refused", SOON, async || code(&name_of(&client).await) == Some(401)).await;

    // A recreated account is a new one: permissions refer to its name, but only a new token is valid.
    let token = agent.report("my-app", HOUR).await.unwrap().token;
    assert_eq!(code(&name_of(&client).await), Some(401));
    let maps: Api<ConfigMap> = Api::default_namespaced(proxy.client("one", token.expose()));
    maps.list(&ListParams::default()).await.unwrap();

    one.stop_api_server().await.unwrap();
    assert_eq!(code(&maps.list(&ListParams::default()).await), Some(502));
    one.start_api_server().await.unwrap();
    maps.list(&ListParams::default()).await.unwrap();
}

/// Waits for a line with exactly this text.
async fn line(watch: &mut RunningKubectl, wanted: &str) {
    watch.line(wanted, SOON, |line| line == wanted).await.unwrap();
}

#[tokio::test]
async fn kubectl_watches_through_the_proxy_with_what_its_plugin_says() {
    let one = managed().start().await.unwrap();
    let proxy = Proxy::to([("one", one.upstream().unwrap())]);
    let app = one.service_account("default", "app").await.unwrap();
    app.grant_in_namespace(vec![may(&["list", "watch"], "configmaps")]).await.unwrap();

    let plugin = json!({ "exec": {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "sh",
        "args": ["-c", r#"printf '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"%s"}}' "$(cat "$TOKEN_FILE")""#],
        "interactiveMode": "Never",
    }});
    let kubeconfig = proxy.kubeconfig(one.directory(), "one", &plugin);
    let token_file = one.directory().join("token");
    std::fs::write(&token_file, app.token().expose()).unwrap();
    let kubectl = one.kubectl_with(&kubeconfig).unwrap();
    // Without its variable the plugin has no token, and the API server rejects the request.
    let stranger = kubectl.run(&["get", "configmaps"]).await.unwrap();
    assert!(!stranger.status.success());

    let kubectl = kubectl.env("TOKEN_FILE", &token_file);
    let mut watch = kubectl.start(&["get", "configmaps", "--watch", "--output=name"]).await.unwrap();
    let maps: Api<ConfigMap> = Api::default_namespaced(one.client_as("admin").await.unwrap());
    for name in ["first", "second"] {
        maps.create(&PostParams::default(), &config_map(name)).await.unwrap();
        line(&mut watch, &format!("configmap/{name}")).await;
    }
    assert!(watch.lines().iter().filter(|line| *line == "configmap/first").count() == 1, "{watch:?}");

    // The watch ends with the API server, and the error of a waiting call tells why there is no further line.
    one.stop_api_server().await.unwrap();
    let down = kubectl.run(&["get", "configmaps"]).await.unwrap();
    assert!(String::from_utf8_lossy(&down.stderr).contains("cannot be reached"), "{down:?}");
    let nothing = watch.line("a third map", SOON, |line| line == "configmap/third").await;
    assert!(matches!(nothing, Err(HubError::Ended { program: "kubectl", .. })), "{nothing:?}");
    assert!(watch.exit_status().await.is_some());
}

#[tokio::test]
async fn a_service_account_has_in_its_namespace_the_permissions_granted_there() {
    let hub = managed().start().await.unwrap();
    let admin = hub.client_as("admin").await.unwrap();
    let app = hub.service_account("team", "app").await.unwrap();
    assert_eq!(app.user(), "system:serviceaccount:team:app");
    assert_eq!(name_of(&app.client().await.unwrap()).await.unwrap(), app.user());
    let maps: Api<ConfigMap> = Api::namespaced(app.client().await.unwrap(), app.namespace());
    assert_eq!(code(&maps.list(&ListParams::default()).await), Some(403));

    app.grant_in_namespace(vec![may(&["list", "watch"], "configmaps")]).await.unwrap();
    app.grant_in_namespace(vec![may(&["get"], "secrets")]).await.unwrap();
    maps.list(&ListParams::default()).await.unwrap();
    let elsewhere: Api<ConfigMap> = Api::default_namespaced(app.client().await.unwrap());
    assert_eq!(code(&elsewhere.list(&ListParams::default()).await), Some(403));

    // kubectl uses the account's namespace, and a second token does not invalidate the first.
    let again = hub.service_account("team", "app").await.unwrap();
    assert_eq!(app.kubeconfig(), again.kubeconfig());
    assert_ne!(app.token(), again.token());
    maps.list(&ListParams::default()).await.unwrap();
    let team: Api<ConfigMap> = Api::namespaced(admin, "team");
    team.create(&PostParams::default(), &config_map("ours")).await.unwrap();
    let kubectl = hub.kubectl_with(app.kubeconfig()).unwrap();
    let output = kubectl.run(&["get", "configmaps", "--output=name"]).await.unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "configmap/ours\n", "{output:?}");
    let output = kubectl.run(&["get", "configmaps", "--namespace=default"]).await.unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("Forbidden"), "{output:?}");

    let watch = kubectl.start(&["get", "configmaps", "--watch"]).await.unwrap();
    let process = format!("/proc/{}", watch.pid());
    assert!(std::path::Path::new(&process).exists());
    drop(watch);
    assert!(!std::path::Path::new(&process).exists());
}

#[tokio::test]
async fn hundreds_of_made_up_tokens_are_made_at_once() {
    let hub = hub().start().await.unwrap();
    let ocm = hub.client_as(OCM).await.unwrap();
    // Two in each cluster, whose namespace is created for the first of them.
    let names = ["app", "other"];
    let tokens = (0..100).flat_map(|cluster| {
        names.map(|name| ocm::ServiceAccountToken::of(&format!("cluster-{cluster:04}"), name).synced())
    });
    ocm::create_tokens(&ocm, tokens).await.unwrap();

    let secrets: Api<Secret> = Api::all(ocm.clone());
    let made = ListParams::default().labels(&format!("{}=true", ocm::TOKEN_LABEL));
    let secrets = secrets.list(&made).await.unwrap().items;
    let distinct: BTreeSet<_> =
        secrets.iter().map(|secret| &secret.data.as_ref().unwrap()["token"].0).collect();
    assert_eq!((secrets.len(), distinct.len()), (200, 200));

    // As the agent writes them, also for an account that reports later.
    let (account, secret) = account_and_secret(&ocm, "cluster-0042", "other").await;
    let owner = &secret.metadata.owner_references.as_ref().unwrap()[0];
    assert_eq!(Some(&owner.uid), account.metadata.uid.as_ref());
    assert_eq!(condition(&account, "TokenReported")["status"], "True");
    assert_eq!(account.data["status"]["tokenSecretRef"]["name"], "other");
    assert_eq!(account.data["status"]["expirationTimestamp"], "2100-01-01T00:00:00Z");
    let token = ocm::ServiceAccountToken::of("cluster-0000", "app")
        .token(b"rotated")
        .expires("2030-01-01T00:00:00Z".parse().unwrap());
    token.report(&ocm).await.unwrap();
    let (account, secret) = account_and_secret(&ocm, "cluster-0000", "app").await;
    assert_eq!(secret.data.unwrap()["token"].0, b"rotated");
    assert_eq!(account.data["status"]["expirationTimestamp"], "2030-01-01T00:00:00Z");
    assert_eq!(account.metadata.labels.unwrap()[ocm::SYNC_LABEL], "true");
}
