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

const NO_PROJECTOR: &str = "featureGates.clusterProfile=false";
const NO_PROVISIONER: &str = "featureGates.clusterProfileAccessProvider=false";
const NO_SYNCER: &str = "featureGates.clusterProfileCredSyncer=false";
const ACCESS: &str = "consumerAccess.enabled=true";
const USER_SERVER: &str = "userServer.enabled=true";

/// What differs most, under the name that records use.
const VARIANTS: [(&str, &[&str]); 12] = [
    ("default", &[]),
    ("every gate", &["featureGates.clusterProfileDirectAccessProvider=true"]),
    (
        "rights to all Secrets, no policies",
        &["credentials.secretAccess=cluster", "policies.enabled=false"],
    ),
    ("the projector alone", &[NO_PROVISIONER, NO_SYNCER]),
    (
        "the provisioner alone, of a proxy of one's own",
        &[
            NO_PROJECTOR,
            NO_SYNCER,
            "accessProvider.static.server=https://proxy.example/{cluster}",
            "accessProvider.static.ca=configmap/proxy/ca/ca.crt",
        ],
    ),
    ("the syncer alone", &[NO_PROJECTOR, NO_PROVISIONER]),
    (
        "the user server",
        &[
            USER_SERVER,
            "userServer.certificateSecret=user-server-tls",
            "userServer.ca=configmap/user-server-ca/ca.crt",
        ],
    ),
    ("declared access", &[ACCESS, "consumerAccess.allowedClusterRoles={view,edit}"]),
    (
        "declared access by ClusterPermissions",
        &[ACCESS, "consumerAccess.permissions=ClusterPermission"],
    ),
    (
        "declared access of Argo CD and by own identities",
        &[ACCESS, "consumerAccess.argoCDNamespaces={argocd}", USER_SERVER],
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
fn the_crd_for_a_hub_without_helm_is_that_of_the_chart() {
    let crd = crds::cluster_profile(Flavour::default());
    recorded(&repository().join("deploy/crd/clusterprofile.yaml"), crd);
}

/// Where values for objects are expected: the kind, the place, and what is there in each object of the kind.
fn places() -> Vec<(&'static str, String, Value)> {
    let digest = "0123456789".repeat(6) + "0123";
    let image = format!("registry.example:5000/hub-addons@sha256:{digest}");
    let from = json!([{ "podSelector": { "matchLabels": { "app": "prometheus" } } }]);
    let api_server = json!({
        "ports": [{ "protocol": "TCP", "port": 8443 }], "to": [{ "ipBlock": { "cidr": "10.0.0.0/8" } }],
    });
    let proxies = [3128, 1080, 443, 8081]
        .map(|port| json!({ "ports": [{ "protocol": "TCP", "port": port }] }));
    let [first, second, third, fourth] = proxies;
    let dns = json!({ "options": [{ "name": "ndots", "value": "1" }] });
    let credentials = json!({ "name": "scraper", "key": "token" });
    let of_pods = [
        ("/imagePullSecrets/0/name", json!("pull")),
        ("/priorityClassName", json!("system-cluster-critical")),
        ("/nodeSelector/disk", json!("ssd")),
        ("/tolerations/0/operator", json!("Exists")),
        ("/topologySpreadConstraints", json!([{ "topologyKey": "rack" }])),
        ("/securityContext/fsGroupChangePolicy", json!("OnRootMismatch")),
        ("/dnsConfig", dns),
        ("/volumes/1/name", json!("metrics-certificate")),
        ("/volumes/2/name", json!("hub")),
        ("/containers/0/volumeMounts/2/mountPath", json!("/hub")),
        ("/containers/0/image", json!(image)),
        ("/containers/0/env/0/name", json!("RUST_BACKTRACE")),
    ];
    let others = [
        ("Deployment", "/metadata/annotations", json!({ "note": "ours" })),
        ("Deployment", "/spec/replicas", json!(3)),
        ("Deployment", "/spec/template/metadata/labels/pod", json!("label")),
        ("Deployment", "/spec/template/metadata/annotations/pod", json!("annotation")),
        ("NetworkPolicy", "/spec/ingress/0/from", from),
        ("NetworkPolicy", "/spec/egress/1", api_server),
        ("NetworkPolicy", "/spec/egress/2", first),
        ("NetworkPolicy", "/spec/egress/3", second),
        ("NetworkPolicy", "/spec/egress/4", third),
        ("NetworkPolicy", "/spec/egress/5", fourth),
        ("ServiceMonitor", "/metadata/namespace", json!("monitoring")),
        ("ServiceMonitor", "/spec/namespaceSelector", json!({ "matchNames": [NAMESPACE] })),
        ("ServiceMonitor", "/spec/endpoints/0/authorization/credentials", credentials),
        ("ServiceMonitor", "/spec/endpoints/0/scheme", json!("https")),
        (
            "ServiceMonitor",
            "/spec/endpoints/0/tlsConfig/serverName",
            json!("hub-addons.addons.svc"),
        ),
    ];
    let of_pods =
        of_pods.map(|(place, value)| ("Deployment", format!("/spec/template/spec{place}"), value));
    let others = others.map(|(kind, place, value)| (kind, place.to_owned(), value));
    of_pods.into_iter().chain(others).collect()
}

#[tokio::test]
async fn each_value_arrives_where_it_belongs() {
    let values = [
        "commonLabels.team=hub",
        "commonAnnotations.note=ours",
        "podLabels.pod=label",
        "podAnnotations.pod=annotation",
        "extraArgs={--kubeconfig=/hub/config}",
        "extraVolumes[0].name=hub,extraVolumes[0].secret.secretName=hub",
        "extraVolumeMounts[0].name=hub,extraVolumeMounts[0].mountPath=/hub",
        "extraEnv[0].name=RUST_BACKTRACE,extraEnv[0].value=full",
        "extraEnv[1].name=HTTPS_PROXY,extraEnv[1].value=http://jane:7@proxy.example:3128/",
        "extraEnv[2].name=https_proxy,extraEnv[2].value=socks5://proxy.example",
        "extraEnv[3].name=HTTPS_PROXY,extraEnv[3].valueFrom.configMapKeyRef.name=proxy",
        "extraEnv[4].name=HTTPS_PROXY,extraEnv[4].value=https://10.0.0.1/path",
        "extraEnv[5].name=HTTPS_PROXY,extraEnv[5].value=proxy.example:8081/?x",
        "image.registry=registry.example:5000/",
        "image.digest=sha256:0123456789012345678901234567890123456789012345678901234567890123",
        "imagePullSecrets[0].name=pull",
        "priorityClassName=system-cluster-critical",
        "nodeSelector.disk=ssd",
        "tolerations[0].operator=Exists",
        "topologySpreadConstraints[0].topologyKey=rack",
        "podSecurityContext.fsGroupChangePolicy=OnRootMismatch",
        "--set-string=dnsConfig.options[0].name=ndots,dnsConfig.options[0].value=1",
        "replicaCount=3",
        "profiles.resources.limits.memory=1Gi",
        "credentials.resources.limits.memory=2Gi",
        "networkPolicy.apiServerPorts={8443}",
        "networkPolicy.apiServerCidrs={10.0.0.0/8}",
        "networkPolicy.metricsFrom[0].podSelector.matchLabels.app=prometheus",
        "metrics.secure.enabled=true,metrics.secure.certificateSecret=serving",
        "monitoring.serviceMonitor.enabled=true,monitoring.prometheusRule.enabled=true",
        "monitoring.prometheusRule.runbookUrl=https://wiki.example/hub",
        "monitoring.serviceMonitor.namespace=monitoring",
        "monitoring.serviceMonitor.authorization.credentials.name=scraper",
        "monitoring.serviceMonitor.authorization.credentials.key=token",
        "monitoring.dashboard.enabled=true",
        "consumerAccess.enabled=true",
        "consumerAccess.argoCDNamespaces={argocd}",
    ];
    let objects = render(&values).await;
    for object in &objects {
        let metadata = &object["metadata"];
        assert_eq!(metadata["labels"]["team"], "hub", "{}", title(object));
        let part_of = &metadata["labels"]["app.kubernetes.io/part-of"];
        assert_eq!(part_of, "hub-addons", "{}", title(object));
        assert_eq!(metadata["annotations"]["note"], "ours", "{}", title(object));
    }
    for (kind, place, expected) in places() {
        let mut found = of_kind(&objects, kind);
        // Those of single connections have rules of their own.
        found.retain(|it| kind != "NetworkPolicy" || name(it) == RELEASE);
        assert!(!found.is_empty(), "{kind}");
        for object in found {
            assert_eq!(object.pointer(&place), Some(&expected), "{place} of {}", title(object));
        }
    }
    for deployment in of_kind(&objects, "Deployment") {
        let container = &pod(deployment)["containers"][0];
        assert_eq!(arguments(deployment).last(), Some(&"--kubeconfig=/hub/config"));
        let mounted = container["volumeMounts"][1]["mountPath"].as_str().unwrap();
        assert!(arguments(deployment).contains(&&*format!("--metrics-certificate={mounted}")));
        let limit = &container["resources"]["limits"]["memory"];
        let own = [("hub-addons-profiles", "1Gi"), ("hub-addons-credentials", "2Gi")];
        assert!(own.iter().all(|(of, memory)| name(deployment) != *of || limit == memory));
    }
    // OpenShift's user-workload monitoring refuses what names a file of Prometheus.
    let endpoint = of_kind(&objects, "ServiceMonitor")[0]["spec"]["endpoints"][0].to_string();
    assert!(!endpoint.contains("File"), "{endpoint}");
    let is_view = |it: &&&Value| {
        it["metadata"]["labels"]["rbac.authorization.k8s.io/aggregate-to-view"] == "true"
            && name(it).contains("clusterprofiles")
    };
    let roles = of_kind(&objects, "ClusterRole");
    let view = roles.iter().find(is_view).unwrap();
    let read = [
        ("multicluster.x-k8s.io", "clusterprofiles"),
        ("access.open-cluster-management.io", "clusteraccesses"),
    ];
    let read = read.map(|(group, resource)| {
        json!({ "apiGroups": [group], "resources": [resource], "verbs": ["get", "list", "watch"] })
    });
    assert_eq!(view["rules"], json!(read));

    // What is beside the release's own objects has its own labels; and what policies do and protect.
    let values = [
        "extraObjects[0].apiVersion=v1,extraObjects[0].kind=ConfigMap",
        "extraObjects[0].metadata.name=extra-{{ .Release.Name }}",
        "policies.validationActions={Warn,Audit}",
        "credentials.secretAccess=cluster",
        "credentials.protectedNamespaces={vault,kube-*}",
    ];
    let objects = render(&values).await;
    assert!(of_kind(&objects, "ConfigMap").iter().any(|it| name(it) == "extra-hub-addons"));
    for binding in of_kind(&objects, "ValidatingAdmissionPolicyBinding") {
        assert_eq!(binding["spec"]["validationActions"], json!(["Warn", "Audit"]));
    }
    let policies = serde_json::to_string(&of_kind(&objects, "ValidatingAdmissionPolicy")).unwrap();
    let protected =
        "'kube-node-lease', 'vault', 'addons'] || request.namespace.startsWith('kube-')";
    assert!(policies.contains(protected));
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
            let said = ended.stderr;
            assert!(ended.code == Some(1) && complains, "{variant} {arguments:?}: {said}");
        }
    }
}

#[tokio::test]
async fn the_viewer_lists_no_object_that_can_contain_a_secret() {
    for access in [ACCESS, "consumerAccess.enabled=false"] {
        let objects = render(&["rbac.viewer.create=true", access]).await;
        let roles = of_kind(&objects, "ClusterRole");
        let role = roles.into_iter().find(|role| name(role) == "hub-addons-viewer").unwrap();
        for rule in role["rules"].as_array().unwrap() {
            let resources: Vec<_> =
                rule["resources"].as_array().unwrap().iter().map(Value::to_string).collect();
            let has = |resource: &str| resources.contains(&format!("{resource:?}"));
            let reads = |verb: &Value| ["get", "list", "watch"].iter().any(|it| verb == it);
            assert!(rule["verbs"].as_array().unwrap().iter().all(reads), "{rule}");
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
    let reference = std::fs::read_to_string(repository().join("docs/reference.md")).unwrap();
    assert!(reference.contains(metric.as_str().unwrap()));
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
