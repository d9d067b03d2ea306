//! `docs`: every block of YAML in a guide is valid. Values render, a real API server accepts manifests and patches, and
//! the plugin accepts the arguments.

use std::fs;

use cp_creds::cli::{self, Command, Source};
use k8s_openapi::api::core::v1::{Container, Volume, VolumeMount};
use local_hub::ocm;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::support::chart::{REGISTRY, chart, helm, repository, run};
use crate::support::command::succeeded;
use crate::support::{Hub, field, guides, world};

const GUIDES: [&str; 8] = [
    "access.md",
    "argo-cd.md",
    "gitops.md",
    "headlamp.md",
    "multicluster-runtime.md",
    "multikueue.md",
    "own-identity.md",
    "plugin.md",
];

/// The Deployment that guides patch, and its namespace.
const DEPLOYMENT: (&str, &str) = ("kueue-system", "kueue-controller-manager");

fn deployment(namespace: &str, name: &str) -> ocm::Object {
    let container = json!({ "name": "manager", "image": name });
    world::workload("Deployment", namespace, name, &container)
}

/// A block of YAML: its first comment, if it begins with one, and its content.
struct Block {
    title: Option<String>,
    text: String,
    value: Value,
}

fn blocks(guide: &str) -> Vec<Block> {
    let blocks =
        guides::blocks(&format!("docs/{guide}")).into_iter().filter(|it| it.language == "yaml");
    let of_yaml = |block: guides::Block| {
        let text = block.text;
        let title = text.lines().next().and_then(|line| line.strip_prefix("# ")).map(str::to_owned);
        let value = serde_saphyr::from_str(&text)
            .unwrap_or_else(|error| panic!("{guide}: {error}\n{text}"));
        Block { title, text, value }
    };
    blocks.map(of_yaml).collect()
}

/// A value has the fields of a Kubernetes type, and no others.
fn strictly<T: DeserializeOwned + serde::Serialize>(value: &Value) {
    let typed: T = serde_json::from_value(value.clone()).unwrap();
    assert_eq!(serde_json::to_value(&typed).unwrap(), *value, "a field that is not known");
}

/// What a component's Pods get: containers, volumes and mounts that belong together.
fn plugin_in(part: &Value) {
    let list = |field: &str| part[field].as_array().cloned().unwrap_or_default();
    let (volumes, mounts) = (list("volumes"), list("volumeMounts"));
    assert!(!volumes.is_empty() && !mounts.is_empty(), "{part}");
    volumes.iter().for_each(strictly::<Volume>);
    mounts.iter().for_each(strictly::<VolumeMount>);
    let in_image = !volumes[0]["image"].is_null();
    assert_eq!(list("initContainers").is_empty(), in_image, "{part}");
    for container in list("initContainers") {
        strictly::<Container>(&container);
        let words = container["command"].as_array().unwrap()[1..]
            .iter()
            .map(|word| word.as_str().unwrap().into());
        assert_eq!(cli::parse(words).unwrap(), Command::Install("/plugins".into()));
        assert_eq!(container["volumeMounts"][0]["mountPath"], "/plugins");
    }
    assert_eq!(mounts[0]["mountPath"], "/plugins");
    assert_eq!(mounts[0]["name"], volumes[0]["name"]);
}

/// What a patch of a Deployment gives its Pods.
pub(crate) fn patch_in(patch: &Value) {
    let pod = &patch["spec"]["template"]["spec"];
    plugin_in(&json!({
        "initContainers": pod["initContainers"], "volumes": pod["volumes"],
        "volumeMounts": pod["containers"][0]["volumeMounts"],
    }));
}

/// The plugin accepts its arguments; returns what they ask for.
pub(crate) fn called(exec: &Value, cluster: Option<&str>) -> Source {
    let words = exec["args"].as_array().unwrap().iter().map(|word| word.as_str().unwrap());
    // As the ClusterProfile controller replaces it.
    let words = words.map(|word| word.replace("{{ .ClusterProfileName }}", "cluster1").into());
    let Command::Credential(arguments) = cli::parse(words).unwrap() else { panic!("{exec}") };
    assert_eq!(arguments.cluster.as_deref(), cluster);
    assert_eq!(exec["provideClusterInfo"] == true, cluster.is_none(), "who says which cluster?");
    assert_eq!(exec["command"], "/plugins/cp-creds");
    let version = exec["apiVersion"].as_str().unwrap_or_default();
    assert!(version.starts_with("client.authentication.k8s.io/v1"), "{exec}");
    arguments.source
}

/// The API server takes these fields of a ClusterAccess.
async fn declared(hub: &Hub, fields: &Value) {
    let mut spec = json!({ "identity": "Copy", "serviceAccountNames": ["app"] });
    spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    ocm::cluster_access("team", "part", &spec).create(&hub.ocm).await.unwrap();
}

#[tokio::test]
#[allow(clippy::too_many_lines, reason = "one arm for each kind of block")]
async fn every_block_of_a_guide_is_what_it_is_said_to_be() {
    let hub = Hub::plain().await;
    let namespaces = ["argocd", "kueue-system", "fleet-operator", "headlamp", "team", "cluster1"]
        .map(ocm::namespace);
    world::create(&hub.ocm, namespaces).await;
    world::create(&hub.ocm, [ocm::namespace(local_hub::field::HOME)]).await;
    field::install_ocm(&hub).await;
    let (namespace, name) = DEPLOYMENT;
    world::create(&hub.ocm, [deployment(namespace, name)]).await;
    let mut seen = Vec::new();
    for guide in GUIDES {
        for (index, Block { title, text, value }) in blocks(guide).into_iter().enumerate() {
            let file = hub.directory().join(format!("{guide}-{index}.yaml"));
            fs::write(&file, &text).unwrap();
            let file = file.to_str().unwrap().to_owned();
            let kind = title.unwrap_or_else(|| value["kind"].as_str().unwrap().to_owned());
            match &*kind {
                "values of the chart hub-addons" => rendered(&file).await,
                "Application" | "HelmRelease" => {
                    let values = value.pointer("/spec/source/helm/valuesObject");
                    let values = values.or_else(|| value.pointer("/spec/values")).unwrap();
                    fs::write(&file, values.to_string()).unwrap();
                    rendered(&file).await;
                    let revision = value.pointer("/spec/source/targetRevision");
                    assert!(revision.is_none_or(|it| *it == version()), "{guide}: {revision:?}");
                }
                "OCIRepository" => assert_eq!(value["spec"]["ref"]["tag"], version()),
                "part of a ClusterAccess" => declared(&hub, &value).await,
                "user of a kubeconfig" => drop(called(&value["exec"], None)),
                "values of the chart argo-cd" => {
                    for component in ["controller", "server"] {
                        plugin_in(&value[component]);
                    }
                }
                "values of the chart headlamp" => {
                    let inventory = &value["config"]["clusterInventory"];
                    assert_eq!(inventory["plugins"][0]["mountPath"], "/plugins");
                    called(&inventory["accessProvidersConfig"]["providers"][0]["execConfig"], None);
                }
                "Certificate" => {
                    let host = "hub-addons-user-server.hub-addons";
                    assert_eq!(value["spec"]["dnsNames"], json!([host, format!("{host}.svc")]));
                }
                patch if patch.starts_with("token for the Deployment ") => {
                    patched(&hub, patch, &file).await;
                    let pod = &value["spec"]["template"]["spec"];
                    let source = &pod["volumes"][0]["projected"]["sources"][0];
                    let token = &source["serviceAccountToken"];
                    assert_eq!([&token["audience"], &token["path"]], ["hub-addons", "token"]);
                    // The directory of the token file in the flags of the plugin.
                    let mounted = &pod["containers"][0]["volumeMounts"][0]["mountPath"];
                    assert_eq!(mounted, "/var/run/secrets/hub-addons");
                }
                patch if patch.starts_with("patch of the Deployment ") => {
                    patched(&hub, patch, &file).await;
                    patch_in(&value);
                }
                "ConfigMap"
                | "ClusterRole"
                | "ClusterAccess"
                | "AddOnDeploymentConfig"
                | "ManagedClusterAddOn"
                | "ManagedClusterSet"
                | "ManagedClusterSetBinding"
                | "ManagedServiceAccount" => {
                    let arguments =
                        ["apply", "--server-side", "--validate=strict", "--filename", &file];
                    succeeded(hub.kubectl(&arguments).await.unwrap());
                    if let Some(file) = value["data"]["providers.json"].as_str() {
                        let file: Value = serde_json::from_str(file).unwrap();
                        let argo_cd = (guide == "argo-cd.md").then_some("cluster1");
                        called(&file["providers"][0]["execConfig"], argo_cd);
                    }
                }
                // `plugin_injection` builds it.
                "Kustomization" if guide == "plugin.md" => {}
                "Kustomization" => kustomized(&hub, &text).await,
                "Configuration" => {
                    let provider = &value["multiKueue"]["clusterProfile"]["accessProviders"][0];
                    called(&provider["execConfig"], None);
                }
                other => panic!("{guide}: nothing says how {other} is tried"),
            }
            seen.push(kind);
        }
    }
    assert_eq!(seen.len(), 28, "{seen:?}");
}

/// The version under which the guide pushes the chart.
fn version() -> String {
    let chart = fs::read_to_string(chart().join("Chart.yaml")).unwrap();
    let chart: Value = serde_saphyr::from_str(&chart).unwrap();
    format!("{}-VERSION", chart["version"].as_str().unwrap())
}

/// The chart takes the values in a file.
async fn rendered(file: &str) {
    let chart = chart().display().to_string();
    run(helm(), None, &["template", "it", &chart, REGISTRY, "--values", file]).await.succeeded();
}

/// The API server accepts a patch of the Deployment.
async fn patched(hub: &Hub, title: &str, file: &str) {
    let (namespace, name) = DEPLOYMENT;
    assert!(title.ends_with(&format!(" {name}")), "{title}");
    let namespace = format!("--namespace={namespace}");
    let arguments =
        [&namespace, "patch", "deployment", name, "--patch-file", file, "--dry-run=server"];
    succeeded(hub.kubectl(&arguments).await.unwrap());
}

/// The component adds the plugin to Kueue's Deployment, and changes nothing else; so does the post-renderer.
async fn kustomized(hub: &Hub, kustomization: &str) {
    let directory = hub.directory().join("kustomized");
    let objects = ["kueue-controller-manager", "kueueviz"].map(|name| {
        serde_json::to_value(deployment("kueue-system", name).parse().unwrap()).unwrap()
    });
    let rendered = objects.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n---\n");
    let example = directory.join("multikueue");
    fs::create_dir_all(&example).unwrap();
    for file in ["kustomization.yaml", "plugin.yaml"] {
        fs::copy(repository().join("deploy/examples/multikueue").join(file), example.join(file))
            .unwrap();
    }
    fs::write(directory.join("rendered.yaml"), &rendered).unwrap();
    // What the guide installs is on the internet.
    let resource = kustomization.lines().find(|line| line.starts_with("  - https://")).unwrap();
    let kustomization = kustomization.replace(resource, "  - rendered.yaml");
    fs::write(directory.join("kustomization.yaml"), kustomization).unwrap();
    let kustomize = ["kustomize", directory.to_str().unwrap()];
    let component = succeeded(hub.kubectl(&kustomize).await.unwrap());
    let shown: Vec<Value> = serde_saphyr::from_multiple(&component).unwrap();
    let [manager, other] = &shown[..] else { panic!("{component}") };
    assert_eq!(*other, objects[1]);
    let pod = &manager["spec"]["template"]["spec"];
    assert_eq!(pod["containers"][0]["image"], "kueue-controller-manager");
    assert_eq!(pod["initContainers"][0]["image"], "docker.example/team/cp-creds:VERSION");
    patch_in(manager);

    // helm 4 runs it as a plugin.
    let templates = directory.join("chart/templates");
    fs::create_dir_all(&templates).unwrap();
    fs::write(templates.join("all.yaml"), rendered).unwrap();
    let chart = "apiVersion: v2\nname: kueue\nversion: 0.0.0\n";
    fs::write(directory.join("chart/Chart.yaml"), chart).unwrap();
    let reader = guides::Reader::of(hub, &[helm()]);
    let commands = format!(
        "export REGISTRY=docker.example/team VERSION=VERSION\n\
         helm plugin install deploy/examples/multikueue/post-renderer >&2\n\
         helm template kueue {} --post-renderer add-cp-creds",
        directory.join("chart").display()
    );
    let by_helm = succeeded(reader.runs_in(repository(), &commands).await);
    let by_helm: Vec<Value> = serde_saphyr::from_multiple(&by_helm).unwrap();
    assert_eq!(by_helm, shown);
}
