//! An application and its clusters, with every controller in one process: what it can access, what it is refused, and
//! what revokes its access.

use crate::support::chain::{
    Application, CLUSTERS, LOST, UNAUTHORIZED, fails, in_one_process, lists, locked_out,
};
use crate::support::{SOON, guides, shown, world};
use local_hub::{eventually, ocm};
use serde_json::{Value, json};

const NAMESPACES: [&str; 2] = ["get", "namespaces"];
#[tokio::test]
async fn what_the_cluster_does_not_allow_is_forbidden_and_not_unauthorized() {
    let stage = in_one_process().await;
    let application = stage.bound_application("forbidden", &CLUSTERS).await;
    let kubectl = application.reaches("one").await;
    for refused in [&["get", "secrets"][..], &["delete", "namespace", "only-in-one"]] {
        let errors = fails(&kubectl, refused, "Forbidden").await;
        let user = "system:serviceaccount:open-cluster-management-agent-addon:forbidden-account";
        assert!(errors.contains(user), "{errors}");
    }
    // The token of one cluster is not valid on the other.
    let mut exec = application.exec();
    exec["args"].as_array_mut().unwrap().push(json!("--cluster-name=two"));
    let (mixed, _) = application.kubectl_by(&application.stanza("one").await, &exec);
    fails(&mixed, &NAMESPACES, UNAUTHORIZED).await;
}

#[tokio::test]
async fn a_rotated_token_is_taken_up_without_a_change_to_the_kubeconfig() {
    let stage = in_one_process().await;
    let application = stage.bound_application("rotates", &CLUSTERS).await;
    let (kubectl, kubeconfig) =
        application.kubectl_by(&application.stanza("one").await, &application.exec());
    lists(&kubectl, "one").await;
    let before = std::fs::read(&kubeconfig).unwrap();
    // The entry is used unchanged, as published.
    let stanza = application.stanza("one").await;
    let keys: Vec<_> = stanza.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["certificate-authority-data", "extensions", "server"], "{stanza:#}");
    assert_eq!(stanza["extensions"][0]["extension"], json!({ "clusterName": "one" }));

    // The old token ends with its ServiceAccount; the next one belongs to a new account of the same name.
    let agent = stage.agent("one").await;
    agent.delete_service_account(application.account()).await.unwrap();
    fails(&kubectl, &NAMESPACES, UNAUTHORIZED).await;
    stage.rotate("one", application.account()).await;
    lists(&kubectl, "one").await;
    assert_eq!(std::fs::read(&kubeconfig).unwrap(), before);
    let kubeconfig: Value = serde_json::from_slice(&before).unwrap();
    assert_eq!(kubeconfig["clusters"][0]["cluster"], stanza);
}

/// The plugin as the guide for Headlamp, which uses the library, configures it: with this account and server.
async fn headlamp(application: &Application) -> Value {
    let values = guides::blocks("docs/headlamp.md")
        .into_iter()
        .find(|it| it.text.contains("config:"))
        .unwrap();
    let values: Value = serde_saphyr::from_str(&values.text).unwrap();
    let exec = "/config/clusterInventory/accessProvidersConfig/providers/0/execConfig";
    let mut exec = values.pointer(exec).unwrap().clone();
    let stanza = application.stanza("one").await;
    let server = stanza["server"].as_str().unwrap().strip_suffix("one").unwrap();
    let args =
        exec["args"].to_string().replace("=headlamp", &format!("={}", application.account()));
    let args = args
        .replace("https://cluster-proxy-addon-user.open-cluster-management-addon:9092/", server);
    exec["args"] = serde_json::from_str(&args).unwrap();
    for field in ["command", "env"] {
        exec[field] = application.exec()[field].clone();
    }
    exec
}

#[tokio::test]
async fn the_library_of_cluster_inventory_api_reaches_what_is_granted_and_outlives_a_rotation() {
    let stage = in_one_process().await;
    let application = stage.bound_application("library", &CLUSTERS).await;
    let library = application.by_library(&headlamp(&application).await).await;
    library.reaches(&CLUSTERS).await;

    // It drops its cached token when a cluster rejects it; the other continues to work.
    let agent = stage.agent("one").await;
    agent.delete_service_account(application.account()).await.unwrap();
    eventually("the cluster refuses the old token", SOON, async || {
        let found = library.look().await;
        assert!(found["two"]["namespaces"].is_array(), "{found:#}");
        if found["one"]["error"] == "Unauthorized" { Ok(()) } else { Err(found.to_string()) }
    })
    .await;
    stage.rotate("one", application.account()).await;
    library.reaches(&CLUSTERS).await;

    // The profile of a cluster that its set no longer selects is deleted, and its cached token dropped.
    let picks = json!({ "matchExpressions": null, "matchLabels": { "name": "one" } });
    let set = ocm::cluster_set("library");
    let spec = json!({ "clusterSelector": { "labelSelector": picks } });
    world::merge(&stage.ocm, &set, &json!({ "spec": spec })).await;
    library.reaches(&["one"]).await;
}

#[tokio::test]
async fn an_application_whose_binding_is_deleted_is_locked_out_and_its_neighbour_is_not() {
    let stage = in_one_process().await;
    // One account for two namespaces.
    stage.account("shared", "leaves,stays").await;
    let leaves = stage.application("leaves", "shared").await;
    let stays = stage.application("stays", "shared").await;
    let binding = stage.bind("leaves", &CLUSTERS).await;
    stage.bind("stays", &CLUSTERS).await;
    let (kubectl, neighbour) = (leaves.reaches("one").await, stays.reaches("one").await);
    leaves.reaches("two").await;
    stays.reaches("two").await;

    locked_out(&stage, &leaves, &kubectl, &binding).await;
    lists(&neighbour, "one").await;
    assert_eq!(stage.copies("stays").await, ["one-shared", "two-shared"]);
}

#[tokio::test]
async fn an_application_needs_one_permission_on_the_hub_and_has_no_other() {
    let stage = in_one_process().await;
    let mine = stage.bound_application("mine", &CLUSTERS).await;
    let theirs = stage.bound_application("theirs", &CLUSTERS).await;
    mine.reaches("one").await;
    theirs.reaches("one").await;
    let kubectl = stage.chain.hub.kubectl_with(mine.access.kubeconfig()).unwrap();
    for copy in ["one-mine-account", "two-mine-account"] {
        let output = kubectl.run(&["get", "secret", copy, "--output=name"]).await.unwrap();
        assert!(output.status.success(), "{output:?}");
    }
    for refused in [
        &["get", "secrets"][..],
        &["get", "secrets", "--all-namespaces"],
        &["get", "secret", "one-theirs-account", "--namespace=theirs"],
        // The source of its own copy.
        &["get", "secret", "mine-account", "--namespace=one"],
        &["delete", "secret", "one-mine-account"],
        &["get", "clusterprofiles"],
    ] {
        fails(&kubectl, refused, "Forbidden").await;
    }
    // Each account's token is copied where its annotation says, although both clusters are granted to both namespaces.
    assert_eq!(stage.copies("mine").await, ["one-mine-account", "two-mine-account"]);
    assert_eq!(stage.copies("theirs").await, ["one-theirs-account", "two-theirs-account"]);

    // Neither the plugin nor kubectl can use another account.
    let mut exec = mine.exec();
    exec["args"] = json!(["--managed-serviceaccount=theirs-account", "--namespace=theirs"]);
    let (kubectl, _) = mine.kubectl_by(&mine.stanza("one").await, &exec);
    let errors = fails(&kubectl, &NAMESPACES, LOST).await;
    assert!(errors.contains("HTTP 403"), "{errors}");
}

#[tokio::test]
async fn flags_stand_in_for_a_caller_that_does_not_say_which_cluster() {
    let stage = in_one_process().await;
    let application = stage.bound_application("flags", &CLUSTERS).await;
    application.reaches("one").await;
    let mut exec = application.exec();
    exec["provideClusterInfo"] = json!(false);
    exec["apiVersion"] = json!("client.authentication.k8s.io/v1beta1");
    // Flags take precedence.
    exec["env"][2]["value"] = json!("elsewhere");
    let (kubectl, _) = application.kubectl_by(&application.stanza("one").await, &exec);
    let errors = fails(&kubectl, &NAMESPACES, "provideClusterInfo").await;
    assert!(!errors.contains(LOST), "{errors}");
    for cluster in CLUSTERS {
        let mut exec = exec.clone();
        let flags = [format!("--cluster-name={cluster}"), "--namespace=flags".to_owned()];
        exec["args"].as_array_mut().unwrap().extend(flags.map(Value::from));
        let (kubectl, _) = application.kubectl_by(&application.stanza(cluster).await, &exec);
        lists(&kubectl, cluster).await;
    }
}

#[tokio::test]
async fn an_application_that_is_bound_to_one_cluster_gets_no_further() {
    let stage = in_one_process().await;
    let both = stage.bound_application("wide", &CLUSTERS).await;
    both.reaches("two").await;
    // Its account exists on both clusters as well, and opts in to its namespace on both.
    let narrow = stage.bound_application("narrow", &["one"]).await;
    narrow.reaches("one").await;
    shown::sees(&stage.ocm, "narrow", &["one"]).await;
    assert_eq!(stage.copies("narrow").await, ["one-narrow-account"]);
    // Knowing the address of the other does not help.
    let (kubectl, _) = narrow.kubectl_by(&both.stanza("two").await, &narrow.exec());
    let errors = fails(&kubectl, &NAMESPACES, LOST).await;
    assert!(
        errors.contains("narrow/two-narrow-account") && errors.contains("HTTP 404"),
        "{errors}"
    );
}
