//! `docs`: the commands of a guide, run on a hub in the order of the guide.

#![allow(clippy::unwrap_used, reason = "clippy takes only functions marked as tests for tests")]

use std::collections::BTreeSet;
use std::fs;

use local_hub::LocalHub;
use local_hub::ocm::{self, ManagedCluster, Object};
use serde_json::{Value, json};

use crate::support::chart::{NAMESPACE, helm, install, repository};
use crate::support::examples::CLUSTERS;
use crate::support::guides::{Reader, blocks, commands};
use crate::support::kueue::install_kueue;
use crate::support::{Hub, world};

/// The guides. Their commands are run in the root of the repository.
const GUIDES: [&str; 6] = [
    "docs/own-identity.md",
    "docs/plugin.md",
    "docs/argo-cd.md",
    "docs/headlamp.md",
    "docs/multicluster-runtime.md",
    "docs/multikueue.md",
];

/// The beginnings of commands that other tests run: `field::kueue`, `field::argocd`, `kubectl::guide`, `plugin_injection`, and, with the
/// values or the plugin that the command names, `guides`. Those that begin with `helm upgrade --install` need a registry.
const ELSEWHERE: [&str; 10] = [
    "kubectl --context cluster",
    "kubectl --namespace kueue-system wait --for=condition=Ready clusteraccess/kueue-own",
    "argocd cluster list",
    "kubectl clusterprofile explain fleet-operator/cluster1",
    "kubectl clusterprofile test fleet-operator/cluster1",
    "helm upgrade --install argocd-clusterprofile-controller",
    "kubectl kustomize .",
    "helm repo add headlamp",
    "helm upgrade --install headlamp",
    "helm upgrade --install kueue oci://registry.k8s.io/kueue/charts/kueue",
];

/// The components of applications, which guides patch.
const COMPONENTS: [(&str, &str, &str, &str); 4] = [
    ("kueue-system", "Deployment", "kueue-controller-manager", "manager"),
    ("fleet-operator", "Deployment", "fleet-operator", "manager"),
    ("argocd", "Deployment", "argocd-server", "argocd-server"),
    ("argocd", "StatefulSet", "argocd-application-controller", "argocd-application-controller"),
];

fn component((namespace, kind, name, container): (&str, &'static str, &str, &str)) -> Object {
    let plural = format!("{}s", kind.to_lowercase());
    let spec = json!({
        "selector": { "matchLabels": { "app": name } },
        "template": {
            "metadata": { "labels": { "app": name } },
            "spec": { "containers": [{ "name": container, "image": name }] },
        },
    });
    Object::new(("apps", "v1", kind), &plural, Some(namespace), name).field("spec", spec)
}

/// Kueue's kind that names a MultiKueueConfig.
fn admission_checks() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "admissionchecks.kueue.x-k8s.io" },
        "spec": {
            "group": "kueue.x-k8s.io", "scope": "Cluster",
            "names": { "kind": "AdmissionCheck", "plural": "admissionchecks" },
            "versions": [{ "name": "v1beta2", "served": true, "storage": true, "schema": { "openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true,
            } } }],
        },
    })
}

/// What a reader has before the first step: two clusters, the applications, and the release of the chart.
async fn hub() -> Hub {
    let hub = Hub::start(LocalHub::builder().without_controller_manager(), Vec::new()).await;
    world::create(&hub.ocm, ["argocd", "kueue-system", "fleet-operator", "headlamp"].map(ocm::namespace))
        .await;
    world::create(&hub.ocm, CLUSTERS.map(ocm::namespace)).await;
    for cluster in CLUSTERS {
        ManagedCluster::named(cluster).create(&hub.ocm).await.unwrap();
    }
    install_kueue(&hub).await;
    hub.install_crd(&serde_json::from_value(admission_checks()).unwrap()).await.unwrap();
    install(&hub, &["consumerAccess.enabled=true"]).await;
    hub
}

#[tokio::test]
async fn every_command_of_a_guide_runs_on_a_hub() {
    let hub = hub().await;
    let reader = Reader::of(&hub, &[helm()]);
    let mut elsewhere = BTreeSet::new();
    // The components that a guide gives the plugin.
    let mut mounted = BTreeSet::new();
    let mut ran = 0;
    for guide in GUIDES {
        // Guides have different patches for the same components.
        for object in COMPONENTS.map(component) {
            if world::get(&hub.ocm, &object).await.is_some() {
                world::delete(&hub.ocm, &object).await;
            }
            world::create(&hub.ocm, [object]).await;
        }
        let mut before = String::new();
        for block in blocks(guide) {
            if block.language == "sh" {
                let of_others = |command: &str| ELSEWHERE.into_iter().find(|it| command.starts_with(it));
                let (others, own): (Vec<_>, Vec<_>) =
                    commands(&block).into_iter().partition(|command| of_others(command).is_some());
                elsewhere.extend(others.iter().filter_map(|command| of_others(command)));
                // The file that the block before shows, and the release of this hub.
                let patch = reader.directory().join("patch.yaml");
                fs::write(&patch, &before).unwrap();
                let own = own.join("\n").replace("PATCH.yaml", patch.to_str().unwrap());
                let own = own.replace(" NAMESPACE ", &format!(" {NAMESPACE} "));
                let output = reader.runs_in(repository(), &own).await;
                let error = String::from_utf8_lossy(&output.stderr);
                assert!(output.status.success(), "{guide}:\n{own}\n{error}");
                ran += own.lines().count();
            }
            before = block.text;
        }
        for patched in COMPONENTS {
            let object = world::get(&hub.ocm, &component(patched)).await.unwrap();
            if object["spec"]["template"]["spec"]["volumes"][0]["name"] == "cp-creds" {
                mounted.insert(patched.2);
            }
        }
    }
    assert_eq!(elsewhere, BTreeSet::from(ELSEWHERE), "a command is no longer in a guide");
    assert!(ran > 20, "{ran} commands");

    // The guide for multicluster-runtime leads to that for the plugin.
    let expected =
        COMPONENTS.map(|component| component.2).into_iter().filter(|name| *name != "fleet-operator");
    assert_eq!(mounted, expected.collect());
}
