//! Install, upgrade and uninstall by helm on a real hub: what is created, what stays, the notes, and what is refused
//! before anything is applied.

use std::collections::BTreeMap;

use crate::support::chart::{
    NAMESPACE, RELEASE, chart, helm, helm3, install, install_arguments, install_by, repository,
    role_binding, run, start_all,
};
use crate::support::credentials::{copied, token};
use crate::support::proxy::configuration;
use crate::support::shown::sees;
use crate::support::world::{self, get, merge};
use crate::support::{Hub, stop_all};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, DynamicObject, ListParams};
use kube::discovery::{Discovery, verbs};
use local_hub::LocalHub;
use local_hub::ocm::{self, Object};
use serde_json::{Value, json};

const CRD: &str = "clusterprofiles.multicluster.x-k8s.io";
const PROXY: &str = "accessProvider.clusterProxy.namespace=proxy";

async fn hub() -> Hub {
    let hub = Hub::plain().await;
    ocm::namespace("proxy").create(&hub.ocm).await.unwrap();
    hub
}

fn crd() -> Object {
    world::object("CustomResourceDefinition", None, CRD)
}

async fn version_of(hub: &Hub, object: &Object) -> Value {
    get(&hub.ocm, object).await.unwrap()["metadata"]["resourceVersion"].clone()
}

async fn uninstall(hub: &Hub) {
    let arguments = ["uninstall", RELEASE, "--namespace", NAMESPACE, "--wait"];
    run(helm(), Some(&hub.hub), &arguments).await.succeeded();
}

/// Tries to install, and returns why helm refuses.
async fn refused(hub: &Hub, values: &[&str]) -> String {
    let ended = run(helm(), Some(&hub.hub), &install_arguments(values)).await;
    assert_ne!(ended.code, Some(0), "{}", ended.stdout);
    assert_eq!(of_the_release(hub).await, BTreeMap::new(), "{}", ended.stderr);
    ended.stderr
}

/// All objects on the hub with the release's labels, as kind and names, without helm's own records.
async fn of_the_release(hub: &Hub) -> BTreeMap<String, Vec<String>> {
    let ours = ListParams::default().labels(&format!("app.kubernetes.io/instance={RELEASE}"));
    let mut found = BTreeMap::new();
    for group in Discovery::new(hub.ocm.clone()).run().await.unwrap().groups() {
        for (resource, capabilities) in group.recommended_resources() {
            if !capabilities.supports_operation(verbs::LIST) {
                continue;
            }
            let api: Api<DynamicObject> = Api::all_with(hub.ocm.clone(), &resource);
            let names: Vec<String> = api
                .list(&ours)
                .await
                .unwrap()
                .into_iter()
                .filter_map(|it| it.metadata.name)
                .collect();
            if !names.is_empty() {
                found.insert(resource.kind.clone(), names);
            }
        }
    }
    found
}

const ACCESS_CRD: &str = "clusteraccesses.access.open-cluster-management.io";

/// What `kubectl get` requests.
async fn printer_columns_are_shown(hub: &Hub) {
    let profiles = "multicluster.x-k8s.io/v1alpha1/clusterprofiles";
    let accesses = "access.open-cluster-management.io/v1alpha1/clusteraccesses";
    for (kind, columns) in [
        (profiles, &["Name", "Manager", "Set", "Version", "Healthy", "Age"][..]),
        (accesses, &["Name", "Identity", "Clusters", "Ready", "Age"]),
    ] {
        let request = http::Request::get(format!("/apis/{kind}"));
        let request = request.header("accept", "application/json;as=Table;g=meta.k8s.io;v=v1");
        let table: Value = hub.ocm.request(request.body(Vec::new()).unwrap()).await.unwrap();
        let shown = table["columnDefinitions"].as_array().unwrap().iter().map(|it| &it["name"]);
        assert_eq!(shown.collect::<Vec<_>>(), columns);
        if let Some(row) = table["rows"].as_array().and_then(|rows| rows.first()) {
            assert_eq!(row["cells"].as_array().unwrap()[..2], ["theirs", "somebody"]);
        }
    }
}

#[tokio::test]
async fn a_missing_crd_is_installed_and_stays_when_the_release_is_uninstalled() {
    let builder = LocalHub::builder().without_controller_manager().without_crds([CRD, ACCESS_CRD]);
    let hub = Hub::start(builder, Vec::new()).await;
    ocm::namespace("proxy").create(&hub.ocm).await.unwrap();
    // Kept, with its objects, also if the release no longer uses it.
    install(&hub, &[PROXY, "consumerAccess.enabled=true"]).await;
    install(&hub, &[PROXY]).await;
    let made = get(&hub.ocm, &crd()).await.unwrap();
    let lists = |crd: &Value| {
        let status =
            &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"];
        status["properties"]["accessProviders"]["x-kubernetes-list-type"].clone()
    };
    assert_eq!(lists(&made), "map");
    let theirs = world::profile_of("somebody", "default", "theirs");
    crate::support::chart::in_force(&hub).await;
    assert!(get(&hub.ocm, &theirs).await.is_some());
    printer_columns_are_shown(&hub).await;

    // An upgrade updates it, with either helm, as long as no other manager has written it.
    let atomic = [PROXY, "crds.clusterProfileLists=atomic"];
    install(&hub, &atomic).await;
    assert_eq!(lists(&get(&hub.ocm, &crd()).await.unwrap()), json!(null));
    install_by(helm3(), &hub, &[PROXY]).await;
    assert_eq!(lists(&get(&hub.ocm, &crd()).await.unwrap()), "map");

    uninstall(&hub).await;
    let left = of_the_release(&hub).await;
    let crds = [ACCESS_CRD, CRD].map(str::to_owned).to_vec();
    assert_eq!(left, BTreeMap::from([("CustomResourceDefinition".to_owned(), crds)]));
    assert!(get(&hub.ocm, &theirs).await.is_some(), "it took the profiles along");
    install(&hub, &[PROXY]).await;

    // Open Cluster Management takes it over.
    merge(&hub.ocm, &crd(), &json!({ "metadata": { "annotations": { "theirs": "1" } } })).await;
    let before = version_of(&hub, &crd()).await;
    install(&hub, &atomic).await;
    install_by(helm3(), &hub, &atomic).await;
    uninstall(&hub).await;
    assert_eq!(version_of(&hub, &crd()).await, before);
}

#[tokio::test]
async fn a_crd_that_is_there_is_left_alone() {
    let hub = hub().await;
    let before = version_of(&hub, &crd()).await;
    let refusal = refused(&hub, &[PROXY, "crds.enabled=true"]).await;
    assert!(refusal.contains(CRD), "{refusal}");
    for values in [&[PROXY][..], &[PROXY, "crds.enabled=false"], &[PROXY]] {
        install(&hub, values).await;
    }
    uninstall(&hub).await;
    assert_eq!(version_of(&hub, &crd()).await, before);
}

#[tokio::test]
async fn what_is_not_the_charts_stays_when_it_changes_and_when_it_goes() {
    let hub = hub().await;
    install(&hub, &[PROXY]).await;
    world::grant(&hub.ocm, "team", &["c1"]).await;
    let app = token("c1", "app");
    app.create(&hub.ocm).await.unwrap();
    let foreign = world::object("Secret", Some("team"), "foreign");
    foreign.create(&hub.ocm).await.unwrap();
    let running = start_all(&hub, &["profiles", "credentials"]).await;
    sees(&hub.ocm, "team", &["c1"]).await;
    copied(&hub.ocm, "team", &app).await;
    stop_all(running).await;

    let secrets: Api<Secret> = Api::all(hub.ocm.clone());
    let users = async || {
        let mut versions = Vec::new();
        let copy = crate::support::credentials::copy("team", &app);
        let source = crate::support::credentials::source(&app);
        let profile = crate::support::credentials::profile("team", "c1");
        let binding = ocm::bound("team", "team");
        let objects = [crd(), profile, binding, app.account(), source, copy, foreign.clone()];
        for object in objects {
            versions.push((object.to_string(), version_of(&hub, &object).await));
        }
        versions
    };
    let before = users().await;
    for values in [
        &[PROXY, "credentials.secretAccess=cluster"][..],
        &[PROXY, "policies.enabled=false", "credentials.secretAccess=cluster"],
        &[PROXY, "featureGates.clusterProfileCredSyncer=false"],
        &[PROXY],
    ] {
        install(&hub, values).await;
        assert_eq!(users().await, before, "{values:?}");
    }
    // The objects of a gate have been deleted and created again.
    let installed = of_the_release(&hub).await;
    assert_eq!(installed["Deployment"], ["hub-addons-credentials", "hub-addons-profiles"]);
    install(&hub, &[PROXY, "featureGates.clusterProfileCredSyncer=false"]).await;
    let without = of_the_release(&hub).await;
    let left = without.values().flatten().any(|name| name.contains("credential"));
    assert!(!left && installed != without, "{without:?}");
    uninstall(&hub).await;
    assert_eq!(users().await, before);
    assert_eq!(of_the_release(&hub).await, BTreeMap::new());
    let of_helm = ListParams::default().labels("owner=helm");
    assert!(secrets.list(&of_helm).await.unwrap().items.is_empty());
}

#[tokio::test]
async fn permissions_that_were_granted_are_deleted_with_the_release() {
    let hub = Hub::start(LocalHub::builder(), Vec::new()).await;
    ocm::namespace("proxy").create(&hub.ocm).await.unwrap();
    world::create(&hub.ocm, [ocm::cluster_set("s"), ocm::bound("default", "s")]).await;
    let binding = role_binding("default", "hub-addons-credentials-copies");
    for _ in 0..2 {
        install(&hub, &[PROXY]).await;
        let running = start_all(&hub, &["profiles"]).await;
        world::exists(&hub.ocm, &binding).await;
        stop_all(running).await;
        uninstall(&hub).await;
        world::gone(&hub.ocm, &binding).await;
    }
}

#[tokio::test]
async fn plain_manifests_can_be_applied_as_they_are() {
    let hub = hub().await;
    ocm::namespace("open-cluster-management-addon").create(&hub.ocm).await.unwrap();
    let manifests = repository().join("deploy/hub-addons.yaml").display().to_string();
    let output = hub.kubectl(&["apply", "--filename", &manifests]).await.unwrap();
    let lines = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && errors.is_empty(), "{errors}");
    let all = lines.lines().count();
    assert!(all > 20 && lines.lines().all(|line| line.ends_with(" created")), "{lines}");
}

/// A Deployment of OCM's, with an argument.
fn deployment(namespace: &str, name: &str, argument: &str) -> Object {
    let arguments = ["/it", "controller", argument];
    let container = json!({ "name": "it", "image": "it", "args": arguments });
    world::workload("Deployment", namespace, name, &container)
}

#[tokio::test]
#[allow(clippy::too_many_lines, reason = "a list of notes")]
async fn notes_warn_of_problems_on_the_hub() {
    let hub = hub().await;
    let (unbound, theirs) =
        ("there is no ManagedClusterSetBinding", "own gate ClusterProfile is on as well");
    // The charts of OCM's addons create this one, in a namespace that receives no credentials.
    let addons = "open-cluster-management-addon";
    let objects =
        [ocm::namespace(addons), ocm::cluster_set("global"), ocm::bound(addons, "global")];
    world::create(&hub.ocm, objects).await;
    let notes = install(&hub, &[PROXY]).await;
    assert!(notes.contains(unbound) && !notes.contains(theirs), "{notes}");
    assert!(notes.contains("rollout status deployment/hub-addons-credentials"), "{notes}");

    // The chart of a release links to its runbook.
    let of_chart = chart();
    for (url, is_told) in [("https://hub-addons.example/x", true), ("https://wiki.test/x", false)] {
        let url = format!(
            "--set=image.registry=r,monitoring.prometheusRule.enabled=true,monitoring.prometheusRule.runbookUrl={url}"
        );
        let arguments = ["install", "it", of_chart.to_str().unwrap(), "--dry-run=client", &url];
        let notes = run(helm(), None, &arguments).await.stdout;
        assert_eq!(notes.contains("link to a placeholder"), is_told, "{notes}");
    }

    world::create(&hub.ocm, [ocm::cluster_set("s"), ocm::bound("default", "s")]).await;
    ocm::namespace("open-cluster-management-hub").create(&hub.ocm).await.unwrap();
    let registration =
        |gates: &str| deployment("open-cluster-management-hub", "registration", gates);
    let off = registration("--feature-gates=ClusterProfile=false,MyClusterProfile=true");
    off.create(&hub.ocm).await.unwrap();
    let notes = install(&hub, &[PROXY]).await;
    assert!(!notes.contains("WARNING"), "{notes}");
    registration("--feature-gates=Other=true,ClusterProfile=true").update(&hub.ocm).await.unwrap();
    assert!(install(&hub, &[PROXY]).await.contains(theirs));
    world::delete(&hub.ocm, &off).await;

    // Tokens reach every granted namespace, of which there are now two.
    let mandatory = "set credentials.requireSyncNamespaces=true";
    assert!(!install(&hub, &[PROXY]).await.contains(mandatory));
    let (second, binding) = (ocm::namespace("second"), ocm::bound("second", "s"));
    world::create(&hub.ocm, [second, binding]).await;
    assert!(install(&hub, &[PROXY]).await.contains(mandatory));
    let notes = install(&hub, &[PROXY, "credentials.requireSyncNamespaces=true"]).await;
    assert!(!notes.contains(mandatory), "{notes}");

    // A Deployment of a tenant says nothing about the addons, whatever its name is.
    let on = "--feature-gates=ClusterProfile=true,ClusterProfileCredSyncer=true";
    let pretended = ["cluster-proxy-addon-manager", "managed-serviceaccount-addon-manager"]
        .map(|name| deployment("second", name, on));
    world::create(&hub.ocm, pretended.clone()).await;
    let notes = install(&hub, &[PROXY]).await;
    assert!(!notes.contains("WARNING"), "{notes}");
    // Helm's annotation of the addon shows where it is installed, and so does the configuration of cluster-proxy.
    let gvk = ("addon.open-cluster-management.io", "v1alpha1", "ClusterManagementAddOn");
    world::install_open_crd(&hub, gvk, "Cluster").await;
    let addon = Object::new(gvk, "clustermanagementaddons", None, "managed-serviceaccount")
        .annotation("meta.helm.sh/release-namespace", "second");
    addon.create(&hub.ocm).await.unwrap();
    let notes = install(&hub, &[PROXY]).await;
    assert_eq!(notes.matches("WARNING: the gate ").count(), 2, "{notes}");
    world::delete(&hub.ocm, &addon).await;
    for pretended in &pretended {
        world::delete(&hub.ocm, pretended).await;
    }
    configuration("default").create(&hub.ocm).await.unwrap();

    // Access providers lead to cluster-proxy's user server, which its chart does not install by default.
    let of_proxy = |name: &str| deployment("default", name, "--leader-elect");
    let (manager, server) = ("cluster-proxy-addon-manager", "cluster-proxy-addon-user");
    world::create(&hub.ocm, [of_proxy(manager)]).await;
    let without = "enableServiceProxy=true and\nuserServer.enabled=true";
    assert!(install(&hub, &[PROXY]).await.contains(without));
    world::create(&hub.ocm, [of_proxy(server)]).await;
    assert!(!install(&hub, &[PROXY]).await.contains(without));
    world::delete(&hub.ocm, &of_proxy(manager)).await;

    // The gates of OCM's addons.
    for (name, gate, on) in [
        ("cluster-proxy-addon-manager", "ClusterProfileAccessProvider", "T"),
        ("cluster-proxy-addon-manager", "ClusterProfile", "true"),
        ("managed-serviceaccount-addon-manager", "ClusterProfileCredSyncer", "1"),
        ("managed-serviceaccount-addon-manager", "ClusterProfile", "True"),
    ] {
        let with_gate = |value: &str| {
            deployment("default", name, &format!("--feature-gates=Other=true,{gate}={value}"))
        };
        let warning = format!("WARNING: the gate {gate} of ");
        with_gate("0").create(&hub.ocm).await.unwrap();
        let notes = install(&hub, &[PROXY]).await;
        assert!(!notes.contains("WARNING"), "{notes}");
        with_gate(on).update(&hub.ocm).await.unwrap();
        let notes = install(&hub, &[PROXY]).await;
        assert_eq!(notes.matches("WARNING").count(), 1, "{notes}");
        assert!(notes.contains(&warning), "{notes}");
        // Under another name, both write access providers of their own.
        let notes = install(&hub, &[PROXY, "accessProvider.name=other"]).await;
        let of_proxy = name == "cluster-proxy-addon-manager";
        assert_eq!(notes.contains(&warning), !of_proxy, "{notes}");
        assert!(!notes.contains("own gate ClusterProfile"), "{notes}");
        let ours = if of_proxy { "AccessProvider" } else { "CredSyncer" };
        let off = format!("featureGates.clusterProfile{ours}=false");
        let notes = install(&hub, &[PROXY, &off]).await;
        assert!(!notes.contains(&warning), "{notes}");
        world::delete(&hub.ocm, &with_gate(on)).await;
    }

    // The same with the operator's configuration.
    let gvk = ("operator.open-cluster-management.io", "v1", "ClusterManager");
    world::install_open_crd(&hub, gvk, "Cluster").await;
    let gates = json!({ "featureGates": [{ "feature": "ClusterProfile", "mode": "Enable" }] });
    let manager = Object::new(gvk, "clustermanagers", None, "cluster-manager")
        .field("spec", json!({ "registrationConfiguration": gates }));
    manager.create(&hub.ocm).await.unwrap();
    let notes = install(&hub, &[PROXY, "computeBound=true"]).await;
    assert!(notes.contains(theirs) && notes.contains("computeBound is on"), "{notes}");
    let unpinned = ["policies.enabled=false", "credentials.secretAccess=cluster"];
    let notes =
        install(&hub, &[&[PROXY, "featureGates.clusterProfile=false"], &unpinned[..]].concat())
            .await;
    assert!(!notes.contains(theirs) && notes.contains("the admission policies are off"), "{notes}");
}

#[tokio::test]
async fn a_namespace_that_is_missing_is_reported_before_anything_is_applied() {
    let hub = hub().await;
    for (values, words) in [
        (
            &[
                "accessProvider.static.server=https://proxy.example/{cluster}",
                "accessProvider.static.ca=configmap/nowhere/ca/ca.crt",
            ][..],
            "there is no namespace nowhere",
        ),
        (
            &[PROXY, "consumerAccess.enabled=true", "consumerAccess.argoCDNamespaces={nowhere}"],
            "the namespace nowhere in consumerAccess.argoCDNamespaces does not exist",
        ),
    ] {
        let refusal = refused(&hub, values).await;
        assert!(refusal.contains(words), "{values:?}: {refusal}");
    }
}
