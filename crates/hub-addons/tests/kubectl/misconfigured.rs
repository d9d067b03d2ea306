//! The output for a hub with problems.

use local_hub::{CrdSet, LocalHub, ocm};
use serde_json::{Value, json};

use super::plugin::{kubectl, run};
use crate::support::credentials::{profile, token};
use crate::support::rights::rule;
use crate::support::{Hub, world};

/// A hub without controllers, where `team` is granted `berlin`.
async fn hub() -> Hub {
    let hub = Hub::plain().await;
    world::grant(&hub.ocm, "team", &["berlin"]).await;
    ocm::namespace("berlin").create(&hub.ocm).await.unwrap();
    hub
}

/// A Deployment with a label of the release.
fn deployment(namespace: &str, name: &str, arguments: &[&str], variables: &Value) -> ocm::Object {
    let container = json!({ "name": "main", "image": "main", "args": arguments, "env": variables });
    world::workload("Deployment", namespace, name, &container)
        .label("app.kubernetes.io/name", "hub-addons")
        .label("app.kubernetes.io/part-of", "hub-addons")
}

/// What shows the namespace of a release: tenants cannot create it.
fn binding(namespace: &str) -> ocm::Object {
    let (name, role) = (format!("hub-addons-{namespace}"), ("ClusterRole", "view"));
    world::binding(None, &name, role, world::account(namespace, "hub-addons-profiles"))
        .label("app.kubernetes.io/part-of", "hub-addons")
}

#[tokio::test]
async fn a_proxy_without_the_names_of_its_clusters_carries_no_own_identity_and_a_tenants_deployment_does_not_count()
 {
    let hub = hub().await;
    let kubectl = kubectl(&hub, &hub.kubeconfig_for("admin").unwrap());
    profile("team", "berlin").create(&hub.ocm).await.unwrap();
    let spec = json!({ "identity": "Own", "serviceAccountNames": ["app"] });
    ocm::cluster_access("team", "app", &spec).create(&hub.ocm).await.unwrap();
    let is_unsupported = async || {
        let ended = run(&kubectl, &["explain", "team/berlin", "--output=json"]).await;
        ended.problems().contains(&"OwnIdentityUnsupported".to_owned())
    };
    let manager = |namespace| {
        let argument = "--enable-kube-api-proxy=false";
        deployment(namespace, "cluster-proxy-addon-manager", &[argument], &Value::Null)
    };
    manager("team").create(&hub.ocm).await.unwrap();
    assert!(!is_unsupported().await);
    let engine = "multicluster-engine";
    world::create(&hub.ocm, [ocm::namespace(engine), manager(engine)]).await;
    assert!(is_unsupported().await);
}

#[tokio::test]
async fn the_settings_are_those_with_which_the_controllers_run_and_never_a_tenants() {
    let hub = hub().await;
    let kubectl = kubectl(&hub, &hub.kubeconfig_for("admin").unwrap());
    let profile = world::profile_of("fleet", "team", "berlin")
        .label("x-k8s.io/cluster-manager", "fleet")
        .label("open-cluster-management.io/cluster-name", "berlin");
    profile.create(&hub.ocm).await.unwrap();
    token("berlin", "app").create(&hub.ocm).await.unwrap();
    let has = async |problem: &str, more: &[&str]| {
        let explain = ["explain", "team/berlin", "--output=json"];
        let ended = run(&kubectl, &[&explain, more].concat()).await;
        ended.problems().iter().any(|it| it == problem)
    };
    let is_foreign = async |more: &[&str]| has("ForeignProfile", more).await;
    let running = |namespace| {
        // One is of another version, and an argument counts before a variable.
        let arguments = ["run", "--compute-bound=perhaps", "--require-sync-namespaces=true"];
        let variables = json!([
            { "name": "HUB_ADDONS_CLUSTER_MANAGER_NAME", "value": "fleet" },
            { "name": "HUB_ADDONS_REQUIRE_SYNC_NAMESPACES", "value": "false" },
        ]);
        deployment(namespace, "hub-addons-addons", &arguments, &variables)
    };
    let default = "--cluster-manager-name=open-cluster-management";
    world::create(&hub.ocm, [ocm::namespace("addons"), binding("addons"), running("team")]).await;
    assert!(is_foreign(&[]).await);
    running("addons").create(&hub.ocm).await.unwrap();
    assert!(!is_foreign(&[]).await);
    assert!(is_foreign(&["--", default]).await);
    // The account names no namespace.
    assert!(has("NoAccount", &[]).await);
    assert!(!has("NoAccount", &["--", "--require-sync-namespaces=false"]).await);

    // Another installation, for another cluster manager.
    let arguments = ["run", default, "--require-sync-namespaces=true"];
    let second = deployment("second", "hub-addons-second", &arguments, &Value::Null);
    assert!(!has("NoAccount", &["--", default]).await);
    world::create(&hub.ocm, [ocm::namespace("second"), binding("second"), second]).await;
    assert!(has("NoAccount", &["--", default]).await);
    assert!(!is_foreign(&[]).await);

    // A viewer may get the Deployments alone, and not every binding of a release has one.
    binding("other").create(&hub.ocm).await.unwrap();
    let viewer = self::kubectl(&hub, &hub.kubeconfig_for("consumer").unwrap());
    let is_unread = async || {
        run(&viewer, &["explain", "team"]).await.stdout.contains("Deployment hub-addons-*")
    };
    let list = rule("list clusterrolebindings.rbac.authorization.k8s.io");
    hub.grant("consumer", vec![list]).await.unwrap();
    assert!(is_unread().await);
    let get = rule("get deployments.apps named hub-addons-addons");
    hub.grant("consumer", vec![get]).await.unwrap();
    local_hub::eventually("the settings are read", crate::support::SOON, async || {
        !is_unread().await
    })
    .await;
}

#[tokio::test]
async fn with_permissions_in_one_namespace_the_rest_is_a_question_mark() {
    let hub = hub().await;
    profile("team", "berlin").create(&hub.ocm).await.unwrap();
    let account = hub.service_account("team", "viewer").await.unwrap();
    let kubectl = kubectl(&hub, account.kubeconfig());
    // With no permissions at all.
    let ended = run(&kubectl, &["explain", "team/berlin", "--output=json"]).await;
    assert_eq!(ended.code, Some(3), "{ended:?}");
    assert!(ended.problems().is_empty(), "{ended:?}");
    let first = &ended.json()["findings"][0];
    assert_eq!(first["object"]["kind"], "Deployment", "the settings are not known: {ended:?}");

    let rules = vec![
        rule("list managedclustersetbindings.cluster.open-cluster-management.io"),
        rule("list clusterprofiles.multicluster.x-k8s.io"),
    ];
    account.grant_in_namespace(rules).await.unwrap();
    let marks =
        local_hub::eventually("the permissions are in force", crate::support::SOON, async || {
            let ended = run(&kubectl, &["explain", "team/berlin", "--output=json"]).await;
            let marks: Vec<(Value, Value)> = ended.json()["findings"]
                .as_array()
                .unwrap()
                .iter()
                .map(|finding| (finding["step"].clone(), finding["mark"].clone()))
                .collect();
            let has = |step: &str, mark: &str| marks.contains(&(json!(step), json!(mark)));
            if has("Profile", "ok") && has("ClusterSet", "unknown") && has("Controllers", "unknown")
            {
                Ok(Some((ended.code, marks)))
            } else {
                Err(format!("{marks:?}"))
            }
        })
        .await;
    // The output shows that the profile does not publish how to reach the cluster.
    assert!(marks.0 == Some(1) || marks.0 == Some(3), "{marks:?}");
    let listed = run(&kubectl, &["list", "team"]).await.succeeded();
    let row: Vec<_> = listed.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(row[..3], ["team", "berlin", "open-cluster-management"], "{listed}");
    assert_eq!(row[7], "?", "whether there are credentials is not known: {listed}");
}

#[tokio::test]
async fn what_cannot_be_carried_out_ends_with_status_2_and_one_line() {
    let hub =
        Hub::start(LocalHub::builder().crds(CrdSet::None).without_controller_manager(), Vec::new())
            .await;
    let kubectl = kubectl(&hub, &hub.kubeconfig_for("admin").unwrap());
    for (arguments, text) in [
        (&["list"][..], "does not serve ClusterProfiles"),
        (&["explain", "a/b/c"], "expected NAMESPACE/CLUSTER"),
        (&["explain", "Team"], "is not a valid namespace"),
        (&["explain", "--", "--compute-bound=perhaps"], "expected a flag of the controllers"),
        (&["list", "--context=gone"], "no hub to talk to"),
        (&["kubeconfig", "team", "--account=kueue"], "does not serve ClusterProfiles"),
    ] {
        let ended = run(&kubectl, arguments).await;
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{arguments:?}: {ended:?}");
        assert!(ended.stderr.contains(text), "{arguments:?}: {ended:?}");
    }
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let completion = run(&kubectl, &["completion", shell]).await.succeeded();
        assert!(completion.contains("explain") && completion.contains("kubeconfig"), "{shell}");
    }
}
