//! `pluginInjection`: the policies that mount `cp-creds` into Pods that ask for it by annotation.

use std::fs;

use hub_api::labels::MOUNT_PLUGIN;
use kube::api::PostParams;
use local_hub::eventually;
use local_hub::ocm::{self, Object};
use serde_json::{Value, json};

use crate::support::chart::{Attempt, helm, install, install_arguments, judged, repository, run};
use crate::support::command::succeeded;
use crate::support::world;
use crate::support::{Hub, SOON};

const ANNOTATION: &str = MOUNT_PLUGIN;
const NAMESPACE: &str = "team";

/// A Pod that the standard `restricted` permits, with the containers `manager` and `sidecar` and a volume.
fn pod(name: &str) -> Object {
    let container = |name: &str| {
        json!({
            "name": name, "image": name, "volumeMounts": [{ "name": "own", "mountPath": "/own" }],
            "securityContext": { "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] } },
        })
    };
    let spec = json!({
        "containers": [container("manager"), container("sidecar")],
        "securityContext": { "runAsNonRoot": true, "seccompProfile": { "type": "RuntimeDefault" } },
        "volumes": [{ "name": "own", "emptyDir": {} }],
        "automountServiceAccountToken": false,
    });
    world::object("Pod", Some(NAMESPACE), name).field("spec", spec)
}

async fn hub(values: &[&str]) -> Hub {
    let hub = Hub::plain().await;
    let team = ocm::namespace(NAMESPACE).label("pod-security.kubernetes.io/enforce", "restricted");
    // No controller creates it here, and Pods need it.
    let account = world::object("ServiceAccount", Some(NAMESPACE), "default");
    world::create(&hub.ocm, [team, account]).await;
    install(&hub, values).await;
    hub
}

/// The directories where the containers `manager` and `sidecar` have the volume of the plugin.
fn mounts(pod: &Value) -> [Vec<&str>; 2] {
    [0, 1].map(|container| {
        let mounts = pod["spec"]["containers"][container]["volumeMounts"].as_array().unwrap();
        assert_eq!(mounts[0]["mountPath"], "/own", "its own volume stays the first: {pod}");
        let plugin = mounts.iter().filter(|mount| mount["name"] == "cp-creds");
        plugin
            .map(|mount| {
                assert_eq!(mount["readOnly"], true, "{mount}");
                mount["mountPath"].as_str().unwrap()
            })
            .collect()
    })
}

/// The Pod as the API server would create it, or why it refuses it.
async fn admitted(hub: &Hub, pod: Object) -> Result<Value, String> {
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    match pod.api(&hub.ocm).create(&dry_run, &pod.parse().unwrap()).await {
        Ok(pod) => Ok(serde_json::to_value(pod).unwrap()),
        Err(kube::Error::Api(status)) => Err(status.message.clone()),
        Err(error) => panic!("{error}"),
    }
}

/// Waits until the policies are effective.
async fn in_force(hub: &Hub) {
    let wrong = pod("wrong").annotation(ANNOTATION, "manager, gone,other");
    let words = "names no container of the Pod: gone, other";
    judged(&hub.ocm, vec![(Attempt::Create(wrong), words)]).await;
    eventually("a Pod gets the plugin", SOON, async || {
        let pod = admitted(hub, pod("right").annotation(ANNOTATION, "manager")).await?;
        if mounts(&pod)[0].is_empty() { Err(pod.to_string()) } else { Ok(()) }
    })
    .await;
}

#[tokio::test]
async fn a_pod_gets_the_plugin_in_the_containers_that_it_names() {
    let hub = hub(&["pluginInjection.enabled=true", "image.tag=0.1.0-dev.g1"]).await;
    in_force(&hub).await;
    for (name, named, [manager, sidecar]) in [
        ("one", "manager", [true, false]),
        ("both", "sidecar, manager", [true, true]),
        ("twice", "manager,manager", [true, false]),
    ] {
        let created = admitted(&hub, pod(name).annotation(ANNOTATION, named)).await.unwrap();
        let expected = |has: bool| if has { vec!["/plugins"] } else { Vec::new() };
        assert_eq!(mounts(&created), [expected(manager), expected(sidecar)], "{name}");
        let image = json!({ "reference": "registry.example.com/cp-creds:0.1.0-dev.g1", "pullPolicy": "IfNotPresent" });
        let volumes = created["spec"]["volumes"].as_array().unwrap();
        assert!(
            volumes.contains(&json!({ "name": "cp-creds", "image": image })),
            "{name}: {volumes:?}"
        );
    }
    // One that does not ask, and one that has such a volume already.
    let silent = admitted(&hub, pod("silent")).await.unwrap();
    assert_eq!(mounts(&silent), [Vec::<&str>::new(), Vec::new()]);
    let mut spec = silent["spec"].clone();
    spec["volumes"] =
        json!([{ "name": "own", "emptyDir": {} }, { "name": "cp-creds", "emptyDir": {} }]);
    let equipped = pod("equipped").field("spec", spec).annotation(ANNOTATION, "manager");
    let equipped = admitted(&hub, equipped).await.unwrap();
    assert_eq!(mounts(&equipped), [Vec::<&str>::new(), Vec::new()], "left as it is");
}

/// `hack/test.sh oldest` runs it on a hub without them.
#[tokio::test]
async fn where_a_hub_lacks_mutating_policies_the_chart_says_so_and_names_another_way() {
    let hub = Hub::plain().await;
    let apis = hub.ocm.list_api_group_resources("admissionregistration.k8s.io/v1").await.unwrap();
    let is_served =
        apis.resources.iter().any(|resource| resource.kind == "MutatingAdmissionPolicy");
    let ended =
        run(helm(), Some(&hub), &install_arguments(&["pluginInjection.enabled=true"])).await;
    if is_served {
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    } else {
        assert_ne!(ended.code, Some(0));
        let words =
            ["needs MutatingAdmissionPolicy", "pluginInjection.enabled=false", "docs/plugin.md"];
        assert!(words.iter().all(|word| ended.stderr.contains(word)), "{}", ended.stderr);
    }
}

/// Workloads of each kind get the plugin in the container that they name, and others stay as they are.
#[tokio::test]
async fn the_component_adds_the_plugin_to_the_workloads_that_ask_for_it() {
    let hub = Hub::plain().await;
    let workload = |kind: &str, name: &str, asks: Option<&str>| {
        let containers = json!([
            { "name": "sidecar", "image": "sidecar" },
            { "name": name, "image": name, "volumeMounts": [{ "name": "own", "mountPath": "/own" }] },
        ]);
        let annotations = asks.map(|container| json!({ MOUNT_PLUGIN: container }));
        json!({
            "apiVersion": "apps/v1", "kind": kind, "metadata": { "name": name, "annotations": annotations },
            "spec": { "template": { "spec": { "containers": containers, "volumes": [{ "name": "own", "emptyDir": {} }] } } },
        })
    };
    let objects = [
        workload("Deployment", "manager", Some("manager")),
        workload("Deployment", "argocd-server", Some("argocd-server")),
        workload(
            "StatefulSet",
            "argocd-application-controller",
            Some("argocd-application-controller"),
        ),
        workload("DaemonSet", "bystander", None),
    ];
    let directory = hub.directory().join("component");
    let component = directory.join("cp-creds");
    fs::create_dir_all(&component).unwrap();
    for file in fs::read_dir(repository().join("deploy/components/cp-creds")).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), component.join(file.file_name())).unwrap();
    }
    let rendered = objects.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n---\n");
    fs::write(directory.join("application.yaml"), rendered).unwrap();
    let guide = fs::read_to_string(repository().join("docs/plugin.md")).unwrap();
    let example =
        guide.split("```yaml\n").find(|block| block.contains("kind: Kustomization")).unwrap();
    fs::write(directory.join("kustomization.yaml"), example.split("```").next().unwrap()).unwrap();
    let kustomize = ["kustomize", directory.to_str().unwrap()];
    let shown = succeeded(hub.kubectl(&kustomize).await.unwrap());
    let shown: Vec<Value> = serde_saphyr::from_multiple(&shown).unwrap();
    let of = |name: &str| shown.iter().find(|object| object["metadata"]["name"] == name).unwrap();
    for object in &objects[..3] {
        let name = object["metadata"]["name"].as_str().unwrap();
        let found = of(name);
        assert_eq!(found["kind"], object["kind"]);
        let pod = &found["spec"]["template"]["spec"];
        let mounted = |name: &str| {
            let container =
                pod["containers"].as_array().unwrap().iter().find(|it| it["name"] == name);
            let mounts = container.unwrap()["volumeMounts"].as_array();
            mounts.is_some_and(|all| {
                all.iter()
                    .any(|mount| mount["mountPath"] == "/plugins" && mount["readOnly"] == true)
            })
        };
        assert_eq!((mounted("sidecar"), mounted(name)), (false, true), "{found}");
        let install = &pod["initContainers"][0];
        assert_eq!(install["command"], json!(["/cp-creds", "install", "/plugins"]));
        assert_eq!(install["image"], "docker.example/team/cp-creds:VERSION");
        assert_eq!(pod["volumes"].as_array().unwrap().len(), 2, "its own volume stays: {found}");
    }
    let before = objects[3].to_string().replace("\"annotations\":null,", "");
    assert_eq!(*of("bystander"), serde_json::from_str::<Value>(&before).unwrap());
}
