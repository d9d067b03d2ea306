//! `docs`: the commands of a guide, run on a hub in the order of the guide.

use std::collections::BTreeSet;
use std::fs;

use local_hub::LocalHub;
use local_hub::ocm::{self, ManagedCluster, Object};
use serde_json::{Value, json};

use crate::support::chart::{helm, helm3, opaque, repository};
use crate::support::command::succeeded;
use crate::support::examples::CLUSTERS;
use crate::support::guides::{Reader, blocks, commands};
use crate::support::kueue::install_kueue;
use crate::support::{Hub, field, world};

/// The guides, as a reader follows them. Their commands are run in the root of the repository.
const GUIDES: [&str; 10] = [
    "README.md",
    "docs/install.md",
    "docs/multicluster-runtime.md",
    "docs/headlamp.md",
    "charts/hub-addons/README.md",
    "docs/gitops.md",
    "docs/own-identity.md",
    "docs/plugin.md",
    "docs/argo-cd.md",
    "docs/multikueue.md",
];

/// The line of the guide for the installation whose variables all guides use.
const VARIABLES: &str = "export REGISTRY=registry.example VERSION=$(hack/version.sh)";

/// Parts of commands that other tests run: `field::kueue`, `field::argocd`, `kubectl::guide`, `plugin_injection`,
/// `release`, `pods`, `scraping`, `upgrade`, the test of the addons below, and, with the values or the plugin that the
/// command names, `guides`. No test runs the charts of Headlamp, Kueue and Argo CD, which need a registry.
const ELSEWHERE: [&str; 27] = [
    "hack/demo.sh",
    "hack/test.sh",
    "kubectl clusterprofile explain",
    "helm repo add",
    "helm repo update ocm",
    "helm upgrade --install cluster-proxy ocm/",
    "helm upgrade --install managed-serviceaccount ocm/",
    "hack/image.sh",
    "skopeo copy ",
    "helm test hub-addons",
    "cargo run --package hub-addons -- crds",
    "--set monitoring.serviceMonitor",
    "--reset-then-reuse-values --wait",
    "deploy/hub-addons.yaml |",
    "helm push ",
    "kubectl --context cluster",
    "kubectl --context hub wait --for=condition=Complete",
    "kubectl --context hub get workloads",
    "kubectl --namespace kueue-system wait --for=condition=Ready clusteraccess/kueue-own",
    "wait --for=condition=Available deployments --all",
    "examples/argocd/application.yaml",
    "application/guestbook",
    "kubectl clusterprofile test fleet-operator/cluster1",
    "upgrade --install argocd-clusterprofile-controller",
    "kubectl kustomize .",
    "helm upgrade --install headlamp",
    "upgrade --install kueue oci://registry.k8s.io/kueue/charts/kueue",
];

/// The components of applications, which guides patch.
const COMPONENTS: [(&str, &str, &str, &str); 4] = [
    ("kueue-system", "Deployment", "kueue-controller-manager", "manager"),
    ("fleet-operator", "Deployment", "fleet-operator", "manager"),
    ("argocd", "Deployment", "argocd-server", "argocd-server"),
    ("argocd", "StatefulSet", "argocd-application-controller", "argocd-application-controller"),
];

fn component((namespace, kind, name, container): (&str, &str, &str, &str)) -> Object {
    world::workload(kind, namespace, name, &json!({ "name": container, "image": name }))
}

/// What a reader has before the first step: two clusters, and the applications.
async fn hub() -> Hub {
    let hub = Hub::plain().await;
    world::create(
        &hub.ocm,
        ["argocd", "kueue-system", "fleet-operator", "headlamp"].map(ocm::namespace),
    )
    .await;
    world::create(&hub.ocm, CLUSTERS.map(ocm::namespace)).await;
    let home = "open-cluster-management-addon";
    let certificate =
        opaque(home, "cluster-proxy-user-serving-cert").field("data", json!({ "tls.crt": "YQ==" }));
    world::create(&hub.ocm, [ocm::namespace(home), certificate]).await;
    for cluster in CLUSTERS {
        ManagedCluster::named(cluster).create(&hub.ocm).await.unwrap();
    }
    install_kueue(&hub).await;
    let admission_checks = ("kueue.x-k8s.io", "v1beta2", "AdmissionCheck");
    world::install_open_crd(&hub, admission_checks, "Cluster").await;
    hub
}

#[tokio::test]
async fn every_command_of_a_guide_runs_on_a_hub() {
    let hub = hub().await;
    let reader = Reader::of(&hub, &[helm()]);
    let install = blocks("docs/install.md").into_iter().flat_map(|block| commands(&block));
    assert!(
        install.filter(|command| command == VARIABLES).count() == 1,
        "the guides use other variables"
    );
    let context = "kubectl config rename-context \"$(kubectl config current-context)\" hub";
    succeeded(reader.runs(context).await);
    let mut elsewhere = BTreeSet::new();
    // The components that a guide gives the plugin.
    let mut mounted = BTreeSet::new();
    let mut ran = 0;
    for guide in GUIDES {
        let mut before = String::new();
        for block in blocks(guide) {
            if block.language == "sh" {
                // Guides have different patches for the same components.
                for object in COMPONENTS.map(component) {
                    if world::get(&hub.ocm, &object).await.is_some() {
                        world::delete(&hub.ocm, &object).await;
                    }
                    world::create(&hub.ocm, [object]).await;
                }
                let of_others =
                    |command: &str| ELSEWHERE.into_iter().find(|it| command.contains(it));
                let (others, own): (Vec<_>, Vec<_>) =
                    commands(&block).into_iter().partition(|command| of_others(command).is_some());
                elsewhere.extend(others.iter().filter_map(|command| of_others(command)));
                // The file that the block before shows.
                let patch = reader.directory().join("patch.yaml");
                fs::write(&patch, &before).unwrap();
                let own = own.join("\n").replace("PATCH.yaml", patch.to_str().unwrap());
                let output = reader.runs_in(repository(), &format!("{VARIABLES}\n{own}")).await;
                let error = String::from_utf8_lossy(&output.stderr);
                assert!(output.status.success(), "{guide}:\n{own}\n{error}");
                ran += own.lines().count();
                for patched in COMPONENTS {
                    let object = world::get(&hub.ocm, &component(patched)).await.unwrap();
                    let pod = &object["spec"]["template"]["spec"];
                    if pod["volumes"][0]["name"] == "cp-creds" {
                        mounted.insert(patched.2);
                        let installed =
                            pod["initContainers"][0]["image"].as_str().unwrap_or_default();
                        assert!(
                            !installed.ends_with(":VERSION"),
                            "{guide}: nobody pushes {installed}"
                        );
                    }
                }
            }
            before = block.text;
        }
    }
    assert_eq!(elsewhere, BTreeSet::from(ELSEWHERE), "a command is no longer in a guide");
    assert!(ran > 20, "{ran} commands");

    // Beside each other, the applications have the permissions of both guides, and the programs the image that was pushed.
    let guide = fs::read_to_string(repository().join("docs/multikueue.md")).unwrap();
    let flag = guide.split('`').find(|words| words.starts_with("--set ")).unwrap();
    let upgrade = "helm upgrade hub-addons charts/hub-addons --namespace hub-addons --reset-then-reuse-values";
    let example = "--values deploy/examples/multikueue/values.yaml";
    succeeded(reader.runs_in(repository(), &format!("{upgrade} {example} {flag}")).await);
    let values = "helm get values hub-addons --namespace hub-addons --output json";
    let values: Value = serde_json::from_str(&succeeded(reader.runs(values).await)).unwrap();
    let allowed = &values["consumerAccess"]["allowedClusterRoles"];
    assert_eq!(*allowed, json!(["multikueue", "argocd-manager-role"]));
    let tag = values["image"]["tag"].as_str().unwrap();
    assert!(tag.starts_with(env!("CARGO_PKG_VERSION")), "{values}");

    // The guide for multicluster-runtime leads to that for the plugin.
    let expected = COMPONENTS
        .map(|component| component.2)
        .into_iter()
        .filter(|name| *name != "fleet-operator");
    assert_eq!(mounted, expected.collect());
}

/// The charts are those in the Go modules of the releases that the guide names.
#[tokio::test]
async fn the_guide_installs_both_addons_in_its_order_with_either_helm() {
    let hub = LocalHub::builder().without_controller_manager().start().await.unwrap();
    field::install_ocm(&hub).await;
    let client = hub.client_as("ocm").await.unwrap();
    let names = ["cluster-proxy", "managed-serviceaccount"];
    let mut script = blocks("docs/install.md")
        .iter()
        .find_map(|block| block.text.contains("ocm/cluster-proxy").then(|| commands(block)))
        .unwrap();
    script.retain(|command| command.starts_with("helm upgrade "));
    for (name, command) in names.into_iter().zip(&mut script) {
        let module = field::source(name).await.display().to_string();
        let (_, version) = module.rsplit_once("@v").unwrap();
        let released = format!("ocm/{name} --version {version} ");
        assert!(command.contains(&released), "{command} installs another version than {version}");
        *command = command.replace(&released, &format!("{module}/charts/{name} "));
    }
    let [first, second] = script.try_into().unwrap();
    let home = "open-cluster-management-addon";
    let binding = ocm::binding(home, "global");
    let owner = async |client| {
        let shown = world::get(client, &binding).await?;
        let owner = shown["metadata"]["annotations"]["meta.helm.sh/release-name"].as_str()?;
        Some(owner.to_owned())
    };
    for (helm, without) in [(helm(), ""), (helm3(), " --server-side=false")] {
        let reader = Reader::of(&hub, &[helm]);
        let runs = async |command: &str| drop(succeeded(reader.runs(command).await));
        let first = first.replace(without, "");
        runs(&first).await;
        runs(&second).await;
        assert_eq!(owner(&client).await.as_deref(), Some(names[1]));
        // The binding is deleted with the second, and returns with the first.
        let uninstall = format!("helm uninstall --namespace {home}");
        runs(&format!("{uninstall} {}", names[1])).await;
        assert_eq!(owner(&client).await, None);
        runs(&first).await;
        assert_eq!(owner(&client).await.as_deref(), Some(names[0]));
        runs(&format!("{uninstall} {}", names[0])).await;
    }
}
