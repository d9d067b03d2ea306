//! The rendered chart, without a hub: its objects and permissions for each combination of gates, and where values
//! appear.
//!
//! `charts/hub-addons/tests/rendered.txt` and `deploy` contain the recorded renderings; `hack/render.sh` updates them.

use std::fmt::Write as _;
use std::path::Path;

use crate::support::chart::{NAMESPACE, RELEASE, chart, of_kind, render, rendered, repository};
use crate::support::command::hub_addons;
use crate::support::examples::documents;
use hub_api::crds::{self, Flavour};
use serde_json::{Value, json};

/// Set by `hack/render.sh`: files are written, and not compared.
const RECORD: &str = "RECORD";

/// What differs most, under the name that records use.
const VARIANTS: [(&str, &[&str]); 12] = [
    ("default", &[]),
    ("every gate", &["featureGates.clusterProfileDirectAccessProvider=true"]),
    (
        "rights to all Secrets, no policies",
        &["credentials.secretAccess=cluster", "policies.enabled=false"],
    ),
    (
        "the projector alone",
        &[
            "featureGates.clusterProfileAccessProvider=false",
            "featureGates.clusterProfileCredSyncer=false",
        ],
    ),
    (
        "the provisioner alone, of a proxy of one's own",
        &[
            "featureGates.clusterProfile=false",
            "featureGates.clusterProfileCredSyncer=false",
            "accessProvider.static.server=https://proxy.example/{cluster}",
            "accessProvider.static.ca=configmap/proxy/ca/ca.crt",
        ],
    ),
    (
        "the syncer alone",
        &["featureGates.clusterProfile=false", "featureGates.clusterProfileAccessProvider=false"],
    ),
    (
        "the user server",
        &[
            "userServer.enabled=true",
            "userServer.certificateSecret=user-server-tls",
            "userServer.ca=configmap/user-server-ca/ca.crt",
        ],
    ),
    (
        "declared access",
        &["consumerAccess.enabled=true", "consumerAccess.allowedClusterRoles={view,edit}"],
    ),
    (
        "declared access by ClusterPermissions",
        &["consumerAccess.enabled=true", "consumerAccess.permissions=ClusterPermission"],
    ),
    (
        "declared access of Argo CD and by own identities",
        &[
            "consumerAccess.enabled=true",
            "consumerAccess.argoCDNamespaces={argocd}",
            "userServer.enabled=true",
        ],
    ),
    ("the plugin by annotation", &["pluginInjection.enabled=true"]),
    (
        "one replica, no CRD",
        &[
            "replicaCount=1",
            "leaderElection=false",
            "networkPolicy.enabled=false",
            "crds.enabled=false",
        ],
    ),
];

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap()
}

/// Kind, namespace and name.
fn title(object: &Value) -> String {
    let kind = object["kind"].as_str().unwrap();
    match object["metadata"]["namespace"].as_str() {
        Some(namespace) => format!("{kind} {namespace}/{}", name(object)),
        None => format!("{kind} {}", name(object)),
    }
}

fn words(list: &Value) -> Vec<&str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

fn rules(object: &Value) -> &[Value] {
    object["rules"].as_array().map_or(&[], Vec::as_slice)
}

fn pod(deployment: &Value) -> &Value {
    &deployment["spec"]["template"]["spec"]
}

fn arguments(deployment: &Value) -> Vec<&str> {
    words(&pod(deployment)["containers"][0]["args"])
}

/// A file that is recorded.
fn recorded(path: &Path, text: &str) {
    if std::env::var_os(RECORD).is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let there = std::fs::read_to_string(path).unwrap_or_default();
    let differs = there.lines().zip(text.lines()).find(|(there, now)| there != now);
    assert!(
        there == text,
        "{} is not what is rendered now ({differs:?}): see hack/render.sh",
        path.display()
    );
}

#[tokio::test]
async fn objects_permissions_and_arguments_are_those_recorded() {
    let mut record = String::new();
    for (variant, values) in VARIANTS {
        writeln!(record, "# {variant}\n").unwrap();
        let mut objects = render(values).await;
        objects.sort_by_key(title);
        for object in objects {
            writeln!(record, "{}", title(&object)).unwrap();
            for rule in rules(&object) {
                let (verbs, names) =
                    (words(&rule["verbs"]).join(","), words(&rule["resourceNames"]).join(","));
                let resources = words(&rule["resources"]).join(",");
                let group = words(&rule["apiGroups"]).join(",");
                let names = if names.is_empty() { names } else { format!(" named {names}") };
                let group = if group.is_empty() { group } else { format!(".{group}") };
                writeln!(record, "  {verbs} {resources}{group}{names}").unwrap();
            }
            if object["kind"] == "Deployment" {
                for argument in arguments(&object) {
                    writeln!(record, "  {argument}").unwrap();
                }
            }
        }
        record.push('\n');
    }
    recorded(&chart().join("tests/rendered.txt"), &record);
}

#[tokio::test]
async fn plain_manifests_are_those_recorded() {
    let image = "image.registry=registry.example,image.tag=VERSION";
    let rendered = rendered(RELEASE, "hub-addons", &["crds.enabled=false", image]).await;
    // What is applied without helm is not helm's.
    let of_helm = ["app.kubernetes.io/managed-by: Helm", "helm.sh/chart: "];
    let plain =
        rendered.lines().filter(|line| !of_helm.iter().any(|of| line.trim_start().starts_with(of)));
    let mut text = concat!(
        "# Rendered from charts/hub-addons with its default values; hack/render.sh updates it.\n",
        "# registry.example and VERSION stand for what docs/install.md builds and pushes.\n",
        "---\napiVersion: v1\nkind: Namespace\nmetadata:\n  name: hub-addons\n  labels:\n",
        "    pod-security.kubernetes.io/enforce: restricted\n",
    )
    .to_owned();
    plain.for_each(|line| writeln!(text, "{line}").unwrap());
    recorded(&repository().join("deploy/hub-addons.yaml"), &text);
}

#[test]
fn the_crds_of_the_chart_are_those_of_the_program() {
    for flavour in Flavour::ALL {
        let crd = serde_saphyr::to_string(&crds::cluster_profile(flavour)).unwrap();
        recorded(&chart().join(format!("files/clusterprofile-{}.yaml", flavour.as_str())), &crd);
        if flavour == Flavour::default() {
            recorded(&repository().join("deploy/crd/clusterprofile.yaml"), &crd);
        }
    }
    let crd = serde_saphyr::to_string(&crds::cluster_access()).unwrap();
    recorded(&chart().join("files/clusteraccess.yaml"), &crd);
}

#[tokio::test]
async fn values_for_every_object_are_on_every_object() {
    let values = [
        "commonLabels.team=hub",
        "commonAnnotations.note=ours",
        "podLabels.pod=label",
        "podAnnotations.pod=annotation",
        "extraEnv[0].name=RUST_BACKTRACE",
        "extraEnv[0].value=full",
        "extraArgs={--kubeconfig=/hub/config}",
        "image.registry=registry.example:5000/",
        "image.digest=sha256:0123456789012345678901234567890123456789012345678901234567890123",
        "imagePullSecrets[0].name=pull",
        "priorityClassName=system-cluster-critical",
        "nodeSelector.disk=ssd",
        "tolerations[0].operator=Exists",
        "consumerAccess.enabled=true",
        "consumerAccess.argoCDNamespaces={argocd}",
    ];
    let objects = render(&values).await;
    for object in &objects {
        let metadata = &object["metadata"];
        assert_eq!(metadata["labels"]["team"], "hub", "{}", title(object));
        assert_eq!(
            metadata["labels"]["app.kubernetes.io/part-of"],
            "hub-addons",
            "{}",
            title(object)
        );
        assert_eq!(metadata["annotations"]["note"], "ours", "{}", title(object));
    }
    for deployment in of_kind(&objects, "Deployment") {
        let metadata = &deployment["spec"]["template"]["metadata"];
        assert_eq!(
            (&metadata["labels"]["pod"], &metadata["annotations"]["pod"]),
            (&"label".into(), &"annotation".into())
        );
        let (pod, container) = (pod(deployment), &pod(deployment)["containers"][0]);
        let digest = "0123456789".repeat(6) + "0123";
        assert_eq!(container["image"], format!("registry.example:5000/hub-addons@sha256:{digest}"));
        assert_eq!(container["env"][0]["name"], "RUST_BACKTRACE");
        assert_eq!(arguments(deployment).last(), Some(&"--kubeconfig=/hub/config"));
        assert_eq!(pod["imagePullSecrets"][0]["name"], "pull");
        assert_eq!(pod["priorityClassName"], "system-cluster-critical");
        assert_eq!(pod["nodeSelector"]["disk"], "ssd");
        assert_eq!(pod["tolerations"][0]["operator"], "Exists");
    }
}

/// The program accepts the arguments of the Deployments: it only fails because there is no hub.
#[tokio::test]
async fn the_program_takes_the_arguments_of_every_deployment() {
    let more: &[&str] = &[
        "computeBound=true",
        "propagateLabels={region,team.example.com/*}",
        "propagateClaims={id.k8s.io,*.example.com}",
        "credentials.requireSyncNamespaces=true",
        "accessProvider.name=mine",
        "accessProvider.caOverlap=0",
        "accessProvider.clusterProxy.requireAddon=false",
        "featureGates.clusterProfileDirectAccessProvider=true",
        "log.format=json",
        "log.level=hub_runtime=debug",
        "clusterManagerName=mine",
    ];
    for (variant, values) in VARIANTS.into_iter().chain([("other values", more)]) {
        for deployment in of_kind(&render(values).await, "Deployment") {
            let mut arguments = arguments(deployment);
            arguments.push("--kubeconfig=/nonexistent/hub");
            // Ports of this machine are not the program's own.
            arguments.retain(|argument| !argument.contains("bind-address"));
            arguments.extend(["--metrics-bind-address=0", "--health-probe-bind-address=0"]);
            let ended = hub_addons(&arguments, &[]).await;
            let complains = ended.stderr.contains("cannot use the kubeconfig");
            assert!(
                ended.code == Some(1) && complains,
                "{variant} {arguments:?}: {}",
                ended.stderr
            );
        }
    }
}

#[tokio::test]
async fn the_viewer_lists_no_object_that_can_contain_a_secret() {
    for values in [
        &["rbac.viewer.create=true"][..],
        &["rbac.viewer.create=true", "consumerAccess.enabled=true"],
    ] {
        let objects = render(values).await;
        let roles = of_kind(&objects, "ClusterRole");
        let role = roles.into_iter().find(|role| name(role) == "hub-addons-viewer").unwrap();
        for rule in role["rules"].as_array().unwrap() {
            let resources: Vec<_> =
                rule["resources"].as_array().unwrap().iter().map(Value::to_string).collect();
            let has = |resource: &str| resources.contains(&format!("{resource:?}"));
            let verbs = rule["verbs"].as_array().unwrap();
            assert!(
                verbs.iter().all(|verb| *verb == "get" || *verb == "list" || *verb == "watch"),
                "{rule}"
            );
            // ManifestWorks contain any object.
            let secret =
                ["secrets", "configmaps", "pods", "manifestworks", "*"].into_iter().any(has);
            assert!(!secret, "{rule}");
            // Deployments can contain secrets in their environment.
            assert!(!has("deployments") || rule["resourceNames"].is_array(), "{rule}");
        }
    }
}

#[tokio::test]
async fn values_for_one_object_are_on_that_object_only() {
    let values = [
        "replicaCount=3",
        "profiles.resources.limits.memory=1Gi",
        "credentials.resources.limits.memory=2Gi",
        "topologySpreadConstraints[0].topologyKey=rack",
        "networkPolicy.apiServerPorts={8443}",
        "networkPolicy.apiServerCidrs={10.0.0.0/8}",
        "networkPolicy.metricsFrom[0].podSelector.matchLabels.app=prometheus",
        "extraEnv[0].name=HTTPS_PROXY",
        "extraEnv[0].value=http://jane:7@proxy.example:3128/",
        "extraEnv[1].name=https_proxy",
        "extraEnv[1].value=socks5://proxy.example",
        "extraEnv[2].name=HTTPS_PROXY",
        "extraEnv[2].valueFrom.configMapKeyRef.name=proxy",
        "extraEnv[3].name=HTTPS_PROXY",
        "extraEnv[3].value=https://10.0.0.1/path",
        "extraEnv[4].name=HTTPS_PROXY",
        "extraEnv[4].value=proxy.example:8081/?x",
        "policies.validationActions={Warn,Audit}",
        "credentials.secretAccess=cluster",
        "credentials.protectedNamespaces={vault,kube-*}",
    ];
    let objects = render(&values).await;
    for (deployment, memory) in of_kind(&objects, "Deployment").into_iter().zip(["1Gi", "2Gi"]) {
        assert_eq!(deployment["spec"]["replicas"], 3);
        assert_eq!(pod(deployment)["containers"][0]["resources"]["limits"]["memory"], memory);
        assert_eq!(
            pod(deployment)["topologySpreadConstraints"],
            json!([{ "topologyKey": "rack" }])
        );
    }
    let policy = &of_kind(&objects, "NetworkPolicy")[0]["spec"];
    assert_eq!(
        policy["ingress"][0]["from"],
        json!([{ "podSelector": { "matchLabels": { "app": "prometheus" } } }])
    );
    let to_api_server = json!({
        "ports": [{ "protocol": "TCP", "port": 8443 }], "to": [{ "ipBlock": { "cidr": "10.0.0.0/8" } }],
    });
    let proxy = |port: u16| json!({ "ports": [{ "protocol": "TCP", "port": port }] });
    let egress = policy["egress"].as_array().unwrap();
    let proxies = [3128, 1080, 443, 8081].map(proxy);
    assert_eq!(egress[1], to_api_server);
    assert_eq!(egress[2..], proxies);
    for binding in of_kind(&objects, "ValidatingAdmissionPolicyBinding") {
        assert_eq!(binding["spec"]["validationActions"], json!(["Warn", "Audit"]));
    }
    let policies = serde_json::to_string(&of_kind(&objects, "ValidatingAdmissionPolicy")).unwrap();
    assert!(policies.contains(
        "'kube-node-lease', 'vault', 'addons'] || request.namespace.startsWith('kube-')"
    ));
}

#[tokio::test]
async fn the_replicas_of_the_user_server_are_its_own_or_those_of_an_autoscaler() {
    let autoscaler = &documents("user-server", "autoscaler.yaml")[0]["spec"];
    for (value, replicas) in [("4", json!(4)), ("autoscaled", Value::Null)] {
        let value = format!("userServer.replicaCount={value}");
        let objects = render(&["userServer.enabled=true", "replicaCount=1", &value]).await;
        let find = |kind: &str| {
            let all = of_kind(&objects, kind).into_iter();
            all.filter(|it| name(it) == autoscaler["scaleTargetRef"]["name"]).collect::<Vec<_>>()
        };
        assert_eq!(find("Deployment")[0]["spec"]["replicas"], replicas, "{value}");
        assert_eq!(find("PodDisruptionBudget").len(), 1, "{value}");
        assert_eq!(of_kind(&objects, "PodDisruptionBudget").len(), 1, "{value}");
    }
    let metric = &autoscaler["metrics"][0]["pods"]["metric"]["name"];
    assert!(
        std::fs::read_to_string(repository().join("docs/reference.md"))
            .unwrap()
            .contains(metric.as_str().unwrap())
    );
}

/// Names that people, and Open Cluster Management's own charts, may give releases.
#[tokio::test]
async fn names_are_our_own_and_fit_whatever_the_release_is_called() {
    for release in
        ["cluster-proxy", "managed-serviceaccount", "my-hub-addons", &"very-long-".repeat(6)[..53]]
    {
        let values = ["featureGates.clusterProfileDirectAccessProvider=true"];
        let objects: Vec<Value> =
            serde_saphyr::from_multiple(&rendered(release, NAMESPACE, &values).await).unwrap();
        for object in objects.iter().filter(|object| object["kind"] != "CustomResourceDefinition") {
            let (name, title) = (name(object), title(object));
            let fits = match object["kind"].as_str().unwrap() {
                "Deployment" | "Service" | "ServiceAccount" => 63,
                _ => 253,
            };
            assert!(name.len() <= fits, "{title} is too long");
            let labels = object["metadata"]["labels"].as_object().unwrap();
            assert!(labels.values().all(|value| value.as_str().unwrap().len() <= 63), "{title}");
            // Of a long name the beginning is left.
            let own = if release.starts_with("very") { "very-long-" } else { "hub-addons" };
            assert!(name.contains(own), "{title} could be another chart's");
        }
    }
}

#[test]
fn the_chart_is_of_the_programs_version() {
    let chart: Value =
        serde_saphyr::from_str(&std::fs::read_to_string(chart().join("Chart.yaml")).unwrap())
            .unwrap();
    assert_eq!(chart["appVersion"], env!("CARGO_PKG_VERSION"));
}
