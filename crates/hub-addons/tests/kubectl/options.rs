//! The options of kubectl, before and after the command, on a real hub.

use std::path::{Path, PathBuf};

use local_hub::{Kubectl, ocm};
use serde_json::{Value, json};

use super::plugin::{kubectl, run};
use crate::support::{Hub, world};

/// A hub where `team` is granted `berlin`, which has a profile with an access provider.
async fn hub() -> Hub {
    let hub = Hub::plain().await;
    world::grant(&hub.ocm, "team", &["berlin"]).await;
    let provider = json!({
        "name": "open-cluster-management", "cluster": { "server": "https://proxy.addons.svc:9092/berlin" },
    });
    let profile = world::profile_of("open-cluster-management", "team", "berlin")
        .status("accessProviders", json!([provider]));
    world::create(&hub.ocm, [ocm::namespace("berlin"), profile]).await;
    hub
}

/// A kubeconfig whose current context leads nowhere, with the context `right`.
fn kubeconfig(hub: &Hub) -> PathBuf {
    let admin = std::fs::read_to_string(hub.kubeconfig_for("admin").unwrap()).unwrap();
    let admin: Value = serde_saphyr::from_str(&admin).unwrap();
    let context = |name: &str, cluster: &str| json!({ "name": name, "context": { "cluster": cluster, "user": "admin", "namespace": "team" } });
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "nowhere",
        "clusters": [
            { "name": "hub", "cluster": admin["clusters"][0]["cluster"] },
            { "name": "nowhere", "cluster": { "server": "http://127.0.0.1:1" } },
        ],
        "contexts": [context("right", "hub"), context("nowhere", "nowhere")],
        "users": [{ "name": "admin", "user": admin["users"][0]["user"] }],
    });
    let file = hub.directory().join("several.kubeconfig");
    std::fs::write(&file, config.to_string()).unwrap();
    file
}

/// Runs a command with options before it, and with the same options after it: both end with this status, and print these
/// words.
async fn ends(kubectl: &Kubectl, options: &[&str], command: &[&str], code: i32, words: &str) {
    for arguments in [[options, command].concat(), [command, options].concat()] {
        let ended = run(kubectl, &arguments).await;
        assert_eq!(ended.code, Some(code), "{arguments:?}: {ended:?}");
        let text = format!("{}{}", ended.stdout, ended.stderr);
        assert!(text.contains(words), "{arguments:?}: no {words:?} in {text}");
    }
}

#[tokio::test]
async fn the_options_of_kubectl_are_honoured_before_and_after_the_command() {
    let hub = hub().await;
    let kubectl = kubectl(&hub, &kubeconfig(&hub));
    let list = &["list"][..];
    ends(&kubectl, &[], list, 2, "cannot").await;
    ends(&kubectl, &["--context=right"], list, 0, "berlin").await;
    ends(&kubectl, &["--context=wrong"], list, 2, "wrong").await;
    ends(&kubectl, &["--context=right", "--as=nobody"], list, 2, "\"nobody\" cannot list").await;
    let other = hub.kubeconfig_for("admin").unwrap();
    let other = format!("--kubeconfig={}", other.display());
    ends(&kubectl, &[&other, "--namespace=team"], list, 0, "berlin").await;
}

#[tokio::test]
async fn the_namespace_is_an_option_of_every_command_and_contradicts_none() {
    let hub = hub().await;
    let kubectl = kubectl(&hub, &hub.kubeconfig_for("admin").unwrap());
    let team = &["--namespace=team"][..];
    let account = "--account=app";
    ends(&kubectl, team, &["list"], 0, "berlin").await;
    ends(&kubectl, &["-n", "team"], &["list"], 0, "berlin").await;
    ends(&kubectl, &[], &["list", "team/berlin"], 0, "team").await;
    ends(&kubectl, &["-n", "team"], &["list", "berlin", "--output=json"], 0, "proxy.addons").await;
    ends(&kubectl, team, &["list", "paris"], 0, "No ClusterProfiles found").await;
    ends(&kubectl, &["-n", "other"], &["list", "team/berlin"], 2, "choose one").await;
    ends(&kubectl, team, &["explain", "--managed-cluster=berlin"], 1, "team/berlin").await;
    ends(&kubectl, team, &["explain", "berlin"], 1, "team/berlin").await;
    ends(&kubectl, team, &["explain", "other/berlin"], 2, "choose one").await;
    ends(&kubectl, &["--namespace=te/am"], &["list"], 2, "not a valid namespace").await;
    ends(&kubectl, team, &["kubeconfig", "berlin", account], 0, "proxy.addons.svc").await;
    ends(&kubectl, team, &["kubeconfig", "other/berlin", account], 2, "choose one").await;
    ends(&kubectl, team, &["test", "other/berlin", account], 2, "choose one").await;
    ends(&kubectl, team, &["test", "berlin", account], 1, "name resolution").await;
    ends(&kubectl, &[], &["test", "team", "berlin", account], 1, "name resolution").await;
    ends(&kubectl, team, &["test", "berlin"], 2, "no copy of a token").await;
}

#[tokio::test]
async fn the_exec_plugin_is_never_led_to_another_hub_than_the_command() {
    let hub = hub().await;
    let kubectl = kubectl(&hub, &kubeconfig(&hub));
    let command = ["kubeconfig", "team", "--account=app"];
    let jane =
        ["create", "clusterrolebinding", "jane", "--clusterrole=cluster-admin", "--user=jane"];
    kubectl.run(&[&jane[..], &["--context=right"]].concat()).await.unwrap();
    for options in [&["--context=right"][..], &["--context=right", "--as=jane"]] {
        ends(&kubectl, options, &command, 2, "name a kubeconfig for it with --hub-kubeconfig")
            .await;
        let own = Path::new("/hub.kubeconfig").display().to_string();
        let named = [options, &["--hub-kubeconfig", &own]].concat();
        ends(&kubectl, &[], &[&command[..], &named].concat(), 0, &own).await;
    }
    // The current context by its name.
    let admin = hub.kubeconfig_for("admin").unwrap();
    let config: Value = serde_saphyr::from_str(&std::fs::read_to_string(&admin).unwrap()).unwrap();
    let current = format!("--context={}", config["current-context"].as_str().unwrap());
    let file = format!("--kubeconfig={}", admin.display());
    ends(&kubectl, &[&file, &current], &command, 0, "KUBECONFIG").await;
}

#[tokio::test]
async fn a_cluster_access_is_printed_or_created() {
    let hub = hub().await;
    let kubectl = kubectl(&hub, &hub.kubeconfig_for("admin").unwrap());
    let request =
        ["request", "kueue", "--namespace=team", "--service-account=manager", "--placement=gpus"];
    let request = [&request[..], &["--cluster-role=edit", "--cluster-role=view"]].concat();
    let printed =
        run(&kubectl, &[&request[..], &["--dry-run=client", "--output=yaml"]].concat()).await;
    let printed: Value = serde_saphyr::from_str(&printed.stdout).unwrap();
    let spec = json!({
        "identity": "Copy", "serviceAccountNames": ["manager"], "clusters": { "placementRef": { "name": "gpus" } },
        "permissions": [{ "clusterRole": "edit" }, { "clusterRole": "view" }],
    });
    let object = ocm::cluster_access("team", "kueue", &spec);
    assert_eq!(printed["spec"], spec);
    // No hub is needed for that.
    let kubeconfig = ["--kubeconfig=/nowhere", "--dry-run=client", "--output=yaml"];
    let offline = run(&kubectl, &[&request[..], &kubeconfig].concat()).await;
    let offline: Value = serde_saphyr::from_str(&offline.stdout).unwrap();
    assert_eq!(offline, printed);
    assert_eq!(world::get(&hub.ocm, &object).await, None);
    let ended = run(&kubectl, &request).await;
    assert_eq!(
        ended.stdout, "clusteraccess.access.open-cluster-management.io/kueue created\n",
        "{ended:?}"
    );
    let created = world::get(&hub.ocm, &object).await.unwrap();
    assert_eq!(created["spec"]["serviceAccountNames"], spec["serviceAccountNames"]);
    // A second one of the name is refused; the namespace can come first.
    let again = ["request", "kueue", "--service-account=manager"];
    ends(&kubectl, &["--namespace=team"], &again, 2, "already exists").await;
}
