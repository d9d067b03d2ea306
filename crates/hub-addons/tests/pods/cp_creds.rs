//! The plugin in an application's Pod: installed as in `deploy/examples`, with the token of the Pod's own
//! ServiceAccount, which may read the copies of its tokens and nothing else, on a hub with the chart.

use std::path::Path;
use std::time::Duration;

use crate::stage::Nodes;
use crate::support::chart::{self, NAMESPACE};
use crate::support::command::succeeded;
use crate::support::credentials::{copied, token};
use crate::support::examples::{CLUSTERS, directory, documents};
use crate::support::pods::{IMAGE, image, plugin_image};
use crate::support::proxy::NAME;
use crate::support::rights::rule;
use crate::support::shown::{profile, provider};
use crate::support::world;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use kube::api::{Api, LogParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt as _};
use local_hub::ocm::ServiceAccountToken;
use local_hub::{Cluster, eventually, ocm};
use serde_json::{Value, json};

/// The example, the application's namespace and ServiceAccount, and the account that it uses on its clusters.
const EXAMPLE: &str = "multikueue";
const APPLICATION: &str = "kueue-system";
const ACCOUNT: &str = "kueue-controller-manager";
const MSA: &str = "multikueue";
/// A namespace without a bound set, whose account has the permission all the same.
const UNBOUND: &str = "unbound";
/// Timeout for steps that start several Pods.
const PATIENCE: Duration = Duration::from_mins(4);

struct Example {
    client: Client,
    tokens: [ServiceAccountToken; 2],
    _hub: Nodes,
}

impl Example {
    /// A hub with the example's grant, and the chart. `None` if Pods cannot run.
    async fn start() -> Option<Self> {
        let (image, plugin) = (image().await?, plugin_image().await?);
        let patch = &documents(EXAMPLE, "plugin.yaml")[0]["spec"]["template"]["spec"];
        let called = patch["initContainers"][0]["image"].as_str().unwrap();
        let images: [(&str, &Path); 2] = [(IMAGE, &image), (called, &plugin)];
        let hub = Nodes::start(1, &images, |_, nodes| nodes).await;
        let client = hub.client_as("admin").await.unwrap();
        world::create(&client, [NAMESPACE, APPLICATION, UNBOUND].map(world::restricted)).await;
        for cluster in CLUSTERS {
            world::create(&client, [ocm::namespace(cluster)]).await;
            ocm::ManagedCluster::named(cluster)
                .label(EXAMPLE, "true")
                .create(&client)
                .await
                .unwrap();
        }
        let grant = directory(EXAMPLE).join("grant.yaml").display().to_string();
        let kubectl = hub.kubectl_with(&hub.kubeconfig_for("admin").unwrap()).unwrap();
        succeeded(kubectl.run(&["apply", "--filename", &grant]).await.unwrap());
        let tokens = CLUSTERS.map(|cluster| token(cluster, MSA));
        for token in &tokens {
            token.create(&client).await.unwrap();
        }
        install(&hub).await;
        for token in &tokens {
            copied(&client, APPLICATION, token).await;
        }
        Some(Self { client, tokens, _hub: hub })
    }

    /// The input that client-go passes to the plugin for a cluster, from its profile.
    async fn question(&self, cluster: &str) -> Value {
        let shown =
            profile(&self.client, (APPLICATION, cluster), "has an access provider", |profile| {
                !provider(profile, NAME).is_null()
            });
        let mut stanza = provider(&shown.await, NAME)["cluster"].clone();
        let extensions = stanza.as_object_mut().unwrap().remove("extensions").unwrap();
        assert_eq!(extensions[0]["name"], "client.authentication.k8s.io/exec");
        stanza["config"] = extensions[0]["extension"].clone();
        json!({
            "apiVersion": exec()["apiVersion"],
            "kind": "ExecCredential",
            "spec": { "cluster": stanza, "interactive": false },
        })
    }

    /// The template of an application's Pods, patched with the example's plugin installation; its program is the plugin
    /// itself, called for a cluster as in the example.
    async fn template(&self, namespace: &str, account: &str, question: &Value) -> Value {
        let exec = exec();
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), namespace);
        if accounts.get_opt(account).await.unwrap().is_none() {
            let account = object(json!({ "metadata": { "name": account } }));
            accounts.create(&PostParams::default(), &account).await.unwrap();
        }
        let patch = &documents(EXAMPLE, "plugin.yaml")[0];
        let pod = json!({
            "serviceAccountName": account,
            "securityContext": { "runAsNonRoot": true, "seccompProfile": { "type": "RuntimeDefault" } },
            "containers": [{
                "name": patch["spec"]["template"]["spec"]["containers"][0]["name"],
                // Any image would do; this one contains nothing else that could help.
                "image": patch["spec"]["template"]["spec"]["initContainers"][0]["image"],
                "command": [exec["command"]],
                "args": exec["args"],
                "env": [{ "name": "KUBERNETES_EXEC_INFO", "value": question.to_string() }],
                "securityContext": {
                    "allowPrivilegeEscalation": false,
                    "readOnlyRootFilesystem": true,
                    "capabilities": { "drop": ["ALL"] },
                },
            }],
        });
        let labels = json!({ "app": account });
        let deployment = json!({
            "metadata": { "generateName": "application-" },
            "spec": {
                "replicas": 0,
                "selector": { "matchLabels": labels },
                "template": { "metadata": { "labels": labels }, "spec": pod },
            },
        });
        let deployments: Api<Deployment> = Api::namespaced(self.client.clone(), namespace);
        let made = deployments.create(&PostParams::default(), &object(deployment)).await.unwrap();
        let params = PatchParams::default();
        // The patch of the example names the application's own Deployment.
        let patch = Patch::Strategic(json!({ "spec": patch["spec"] }));
        let patched = deployments.patch(&made.name_any(), &params, &patch).await.unwrap();
        serde_json::to_value(patched.spec.unwrap().template).unwrap()
    }

    /// Runs a Pod of a template once, and returns its result and output.
    async fn run(&self, namespace: &str, template: &Value) -> (String, String) {
        let mut template = template.clone();
        template["metadata"]["generateName"] = json!("application-");
        template["spec"]["restartPolicy"] = json!("Never");
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let pod = pods.create(&PostParams::default(), &object(template)).await.unwrap().name_any();
        let phase = eventually(&format!("{pod} ends"), PATIENCE, async || {
            let status =
                pods.get(&pod).await.map_err(|error| error.to_string())?.status.unwrap_or_default();
            match status.phase.as_deref() {
                Some(phase @ ("Succeeded" | "Failed")) => Ok(Some(phase.to_owned())),
                _ => Err(format!("{status:?}")),
            }
        })
        .await;
        (phase, pods.logs(&pod, &LogParams::default()).await.unwrap())
    }
}

/// Installs the chart with the values that this hub needs, and permits the application to read its copies. In one of the
/// namespaces, it has the permission without the grant.
async fn install(hub: &Cluster) {
    let arguments = chart::install_arguments(&[
        "image.tag=test,replicaCount=1,computeBound=true",
        "accessProvider.static.server=https://cluster-proxy-addon-user.open-cluster-management-addon:9092/{cluster}",
        // A certificate that every namespace has.
        &format!("accessProvider.static.ca=configmap/{APPLICATION}/kube-root-ca.crt/ca.crt"),
    ]);
    chart::run(chart::helm(), Some(hub), &arguments).await.succeeded();
    let client = hub.client_as("admin").await.unwrap();
    let copies = CLUSTERS.map(|cluster| format!("{cluster}-{MSA}")).join(",");
    let may_get = rule(&format!("get secrets named {copies}"));
    for namespace in [APPLICATION, UNBOUND] {
        let role = world::object("Role", Some(namespace), "copies");
        let subject = world::account(namespace, ACCOUNT);
        let binding = world::binding(Some(namespace), "copies", ("Role", "copies"), subject);
        world::create(&client, [role.field("rules", json!([may_get])), binding]).await;
    }
}

/// The call of the plugin in the example.
fn exec() -> Value {
    let configuration = documents(EXAMPLE, "configuration.yaml").remove(0);
    configuration["multiKueue"]["clusterProfile"]["accessProviders"][0]["execConfig"].clone()
}

fn object<K: serde::de::DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).unwrap()
}

/// The same without an initContainer: the volume is the image.
fn by_image_volume(template: &Value) -> Value {
    let mut template = template.clone();
    let spec = template["spec"].as_object_mut().unwrap();
    let install = spec.remove("initContainers").unwrap();
    let volume = &mut spec["volumes"][0];
    assert_eq!(volume["name"], "cp-creds");
    *volume = json!({ "name": "cp-creds", "image": { "reference": install[0]["image"] } });
    template
}

#[tokio::test]
async fn an_application_s_pod_gets_the_tokens_of_its_clusters_and_no_other_pod_does() {
    let Some(stage) = Example::start().await else { return };
    for (cluster, token) in CLUSTERS.iter().zip(&stage.tokens) {
        let installed = stage.template(APPLICATION, ACCOUNT, &stage.question(cluster).await).await;
        for template in [&installed, &by_image_volume(&installed)] {
            let (phase, said) = stage.run(APPLICATION, template).await;
            assert_eq!(phase, "Succeeded", "{said}");
            let answer: Value =
                serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"));
            assert_eq!(answer["kind"], "ExecCredential");
            assert_eq!(answer["apiVersion"], exec()["apiVersion"]);
            assert_eq!(answer["status"]["token"], String::from_utf8(token.token_bytes()).unwrap());
            assert!(
                answer["status"]["expirationTimestamp"].is_string(),
                "client-go requests a new token only after it"
            );
        }
    }

    // Another account in the namespace, and the same account where it has the permission and no set is bound.
    let question = stage.question(CLUSTERS[0]).await;
    for (namespace, account, why) in
        [(APPLICATION, "another", "HTTP 403"), (UNBOUND, ACCOUNT, "HTTP 404")]
    {
        let (phase, said) =
            stage.run(namespace, &stage.template(namespace, account, &question).await).await;
        assert_eq!(phase, "Failed", "{said}");
        let line =
            format!("failed to get synced credential secret {namespace}/{}-{MSA}", CLUSTERS[0]);
        assert!(said.lines().count() == 1 && said.contains(&line) && said.contains(why), "{said}");
    }
}
