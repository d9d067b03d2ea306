//! The chart on different hubs: on `OpenShift`, with Argo CD, which renders without access to the hub, where addons are
//! installed later, and where others manage permissions and ServiceAccounts.

use std::fs;

use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use local_hub::ocm::{self, Object};
use local_hub::{Flavour, LocalHub, eventually};
use serde_json::{Value, json};

use crate::support::chart::{
    Attempt, NAMESPACE, REGISTRY, RELEASE, chart, helm, install, judged_as, labels, of_kind,
    render, rendered, run, run_container, start_all, user,
};
use crate::support::command::Ended;
use crate::support::proxy::{self, Authority, NAME, TEAM};
use crate::support::shown::{profile, provider, sees};
use crate::support::world::{self, get, merge};
use crate::support::{Hub, SOON, stop_all};

const CRD: &str = "clusterprofiles.multicluster.x-k8s.io";
const OPENSHIFT: &str = "--api-versions=security.openshift.io/v1";

#[tokio::test]
async fn the_network_policy_permits_dns_where_hubs_have_it() {
    let dns = |policy: &Value| {
        let to = policy["spec"]["egress"][0]["to"].as_array().unwrap().iter();
        let networks = to.filter_map(|peer| Some(peer["ipBlock"]["cidr"].as_str()?.to_owned()));
        networks.collect::<Vec<_>>()
    };
    // NodeLocal DNSCache, and Cloud DNS on GKE.
    let usual = ["169.254.20.10/32", "169.254.169.254/32"];
    let rendered = render(&[]).await;
    let policies = of_kind(&rendered, "NetworkPolicy");
    let ours = policies.into_iter().find(|it| it["metadata"]["name"] == "hub-addons").unwrap();
    assert_eq!(dns(ours), usual);

    // NodeLocal DNSCache takes over the address of the Service.
    let hub = Hub::plain().await;
    let service = world::object("Service", Some("kube-system"), "kube-dns")
        .field("spec", json!({ "ports": [{ "port": 53, "protocol": "UDP" }] }));
    world::ensure_namespace(&hub.ocm, "kube-system").await;
    service.create(&hub.ocm).await.unwrap();
    let address =
        get(&hub.ocm, &service).await.unwrap()["spec"]["clusterIP"].as_str().unwrap().to_owned();
    install(&hub, &[]).await;
    let policy = world::object("NetworkPolicy", Some(NAMESPACE), "hub-addons");
    let policy = get(&hub.ocm, &policy).await.unwrap();
    assert_eq!(dns(&policy), [&usual[..], &[&format!("{address}/32")]].concat());
}

/// The Pods that Deployments make.
fn pods(objects: &[Value]) -> Vec<&Value> {
    of_kind(objects, "Deployment").into_iter().map(|it| &it["spec"]["template"]["spec"]).collect()
}

/// A Pod and its containers.
fn with_containers(pod: &Value) -> Vec<&Value> {
    let containers = ["containers", "initContainers"].map(|field| pod[field].as_array());
    std::iter::once(pod).chain(containers.into_iter().flatten().flatten()).collect()
}

/// The security contexts of Pods and of all their containers.
fn security_contexts(objects: &[Value]) -> Vec<&Value> {
    pods(objects).into_iter().flat_map(with_containers).map(|it| &it["securityContext"]).collect()
}

#[tokio::test]
async fn openshift_chooses_users_and_groups_itself_and_has_the_ca_of_advanced_cluster_management() {
    let acm = format!("--values={}", chart().join("values-acm.yaml").display());
    let chosen_here =
        "--set=containerSecurityContext.runAsUser=1,podSecurityContext.supplementalGroups={1}";
    for (arguments, adapts) in [
        (&[][..], false),
        (&[OPENSHIFT], true),
        (&[OPENSHIFT, "--set=openshift.adaptSecurityContexts=false"], false),
        (&["--set=openshift.adaptSecurityContexts=true"], true),
        (&[&acm], true),
        (&[OPENSHIFT, chosen_here], true),
    ] {
        let objects = render(arguments).await;
        let contexts = security_contexts(&objects);
        assert_eq!(contexts.len(), 5, "two Pods with three containers");
        let chosen = |context: &&Value| {
            ["runAsUser", "runAsGroup", "fsGroup", "supplementalGroups"]
                .iter()
                .any(|id| !context[id].is_null())
        };
        assert_eq!(contexts.iter().any(chosen), !adapts, "{arguments:?}: {contexts:?}");
        // What restricted-v2 and Pod Security ask for is there all the same.
        for pod in pods(&objects) {
            assert_eq!(pod["securityContext"]["runAsNonRoot"], true, "{arguments:?}");
        }
        for container in contexts.iter().filter(|context| !context["capabilities"].is_null()) {
            assert_eq!(container["allowPrivilegeEscalation"], false);
            assert_eq!(container["capabilities"]["drop"], json!(["ALL"]));
        }
    }
    let acm = render(&[&acm]).await;
    let rendered = serde_json::to_string(&acm).unwrap();
    for text in [
        "--access-provider-ca=configmap/multicluster-engine/openshift-service-ca.crt/service-ca.crt",
        "https://cluster-proxy-addon-user.multicluster-engine.svc:9092/",
    ] {
        assert!(rendered.contains(text), "{text}");
    }
    assert!(!rendered.contains("cluster-proxy-user-serving-cert"), "no right to the private key");
    let anchors = of_kind(&acm, "Role")
        .into_iter()
        .find(|it| it["metadata"]["namespace"] == "multicluster-engine");
    assert_eq!(anchors.unwrap()["rules"][0]["resourceNames"], json!(["openshift-service-ca.crt"]));
}

#[tokio::test]
async fn accounts_and_permissions_can_be_others_work() {
    let objects = render(&["--set=serviceAccount.create=false,serviceAccount.name=mine"]).await;
    assert!(of_kind(&objects, "ServiceAccount").is_empty());
    let run_as: Vec<_> =
        pods(&objects).iter().map(|pod| pod["serviceAccountName"].as_str().unwrap()).collect();
    assert_eq!(run_as, ["mine-profiles", "mine-credentials"]);
    let bound = ["ClusterRoleBinding", "RoleBinding"].map(|kind| of_kind(&objects, kind)).concat();
    for subject in bound.iter().flat_map(|binding| binding["subjects"].as_array().unwrap()) {
        assert!(run_as.contains(&subject["name"].as_str().unwrap()), "{subject}");
    }
    // Policies are about the accounts that there are, and the syncer's gets what it is given.
    let policies = serde_json::to_string(&of_kind(&objects, "ValidatingAdmissionPolicy")).unwrap();
    for account in run_as {
        let user = format!("'system:serviceaccount:{NAMESPACE}:{account}'");
        assert!(policies.contains(&user), "{account}");
    }
    assert!(!policies.contains(&format!("{NAMESPACE}:{RELEASE}-")), "{policies}");
    let arguments = serde_json::to_string(&pods(&objects)).unwrap();
    let subject = format!("--credential-rights-subject={NAMESPACE}/mine-credentials");
    assert!(arguments.contains(&subject));

    let objects = render(&["--set=rbac.create=false,metrics.secure.enabled=true"]).await;
    for kind in ["Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"] {
        assert!(of_kind(&objects, kind).is_empty(), "{kind}");
    }
}

/// YAML takes `1e5` for a number where it is not quoted.
#[tokio::test]
async fn a_name_may_look_like_a_number() {
    let hub = Hub::plain().await;
    let number = "1e5";
    world::create(&hub.ocm, [ocm::namespace(number)]).await;
    let values = json!({
        "featureGates": { "clusterProfileDirectAccessProvider": true },
        "clusterManagerName": number,
        "propagateLabels": [number],
        "accessProvider": {
            "name": number,
            "static": {
                "server": "https://proxy.example/{cluster}",
                "ca": format!("configmap/{number}/{number}/{number}"),
            },
        },
        "consumerAccess": {
            "enabled": true, "allowedClusterRoles": [number], "argoCDNamespaces": [number],
            "localClusters": [number], "accountNamespace": number,
        },
        "policies": {
            "clusterManagers": {
                "users": [number], "groups": [number],
                "serviceAccounts": [{ "namespace": number, "name": number }],
            },
        },
        "image": { "registry": number, "repository": number, "tag": number },
        "imagePullSecrets": [{ "name": number }],
        "metrics": { "secure": { "enabled": true, "certificateSecret": number } },
        "priorityClassName": number,
        "nodeSelector": { "n": number },
        "commonLabels": { "n": number },
        "commonAnnotations": { "n": number },
        "podLabels": { "p": number },
        "podAnnotations": { "p": number },
        "extraEnv": [{ "name": "N", "value": number }],
        "nameOverride": number,
    });
    let file = hub.directory().join("values.json");
    fs::write(&file, values.to_string()).unwrap();
    let (chart, file) = (chart().display().to_string(), format!("--values={}", file.display()));
    let install = ["install", number, &chart, "--namespace", number, REGISTRY, &file];
    run(helm(), Some(&hub.hub), &install).await.succeeded();
    let role = world::object("Role", Some(number), "1e5-consumers-argocd");
    assert!(get(&hub.ocm, &role).await.is_some());
}

fn crd() -> Object {
    world::object("CustomResourceDefinition", None, CRD)
}

/// Renders without a hub, as Argo CD does, and applies what is rendered.
async fn apply_rendered(hub: &Hub, arguments: &[&str]) {
    world::ensure_namespace(&hub.ocm, NAMESPACE).await;
    let file = hub.directory().join("rendered.yaml");
    fs::write(&file, rendered(RELEASE, NAMESPACE, arguments).await).unwrap();
    let output = hub.kubectl(&["apply", "--filename", file.to_str().unwrap()]).await.unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && errors.is_empty(), "{errors}");
}

/// Runs the init container of the Deployment that has one, as the ServiceAccount of its Pod.
async fn create_crd(hub: &Hub, component: &str) -> Ended {
    let api: Api<Deployment> = Api::namespaced(hub.ocm.clone(), NAMESPACE);
    let deployment = api.get(&format!("{RELEASE}-{component}")).await.unwrap();
    let pod = deployment.spec.unwrap().template.spec.unwrap();
    let [container] = &pod.init_containers.as_ref().unwrap()[..] else { panic!("{pod:?}") };
    assert_eq!(container.command.as_deref(), Some(&["/hub-addons".to_owned()][..]));
    run_container(hub, &pod, container).await
}

/// The same finds the CRD.
async fn finds_the_crd(hub: &Hub) {
    let ended = create_crd(hub, "profiles").await;
    let exists = format!("customresourcedefinition {CRD} exists\n");
    assert_eq!((ended.code, ended.stdout), (Some(0), exists));
}

/// The controllers work with what was applied.
async fn everything_works(hub: &Hub) {
    let running = start_all(hub, &["profiles", "credentials"]).await;
    world::grant(&hub.ocm, TEAM, &["c1"]).await;
    sees(&hub.ocm, TEAM, &["c1"]).await;
    stop_all(running).await;
}

async fn creates_the_crd(component: &str, values: &[&str]) -> Hub {
    let builder = LocalHub::builder().without_controller_manager().without_crds([CRD]);
    let hub = Hub::start(builder, Vec::new()).await;
    apply_rendered(&hub, values).await;
    assert!(get(&hub.ocm, &crd()).await.is_none(), "applied, it would change another's");
    eventually("it is created", SOON, async || {
        let ended = create_crd(&hub, component).await;
        if ended.stdout == format!("customresourcedefinition {CRD} created\n") {
            Ok(())
        } else {
            Err(format!("{ended:?}"))
        }
    })
    .await;
    hub
}

#[tokio::test]
async fn the_syncer_alone_creates_the_crd_where_there_is_none() {
    let values =
        ["--set=featureGates.clusterProfile=false,featureGates.clusterProfileAccessProvider=false"];
    creates_the_crd("credentials", &values).await;
}

#[tokio::test]
async fn what_is_rendered_without_a_hub_creates_the_crd_where_there_is_none() {
    let hub = creates_the_crd("profiles", &[]).await;
    // The next Pod finds it; and everything works with what was rendered.
    finds_the_crd(&hub).await;
    everything_works(&hub).await;
}

#[tokio::test]
async fn what_is_rendered_without_a_hub_leaves_a_crd_that_is_there_alone() {
    let builder = LocalHub::builder().without_controller_manager().flavour(Flavour::Atomic);
    let hub = Hub::start(builder, Vec::new()).await;
    let version =
        async || get(&hub.ocm, &crd()).await.unwrap()["metadata"]["resourceVersion"].clone();
    let before = version().await;
    for _ in 0..2 {
        apply_rendered(&hub, &[]).await;
        finds_the_crd(&hub).await;
    }
    assert_eq!(version().await, before);
    everything_works(&hub).await;

    // Whatever RBAC would let it do.
    let words = "may only create the CRD of ClusterProfile";
    let cases = [labels(&crd(), json!({ "changed": "true" })), Attempt::Delete(crd())];
    judged_as(&hub, &user("profiles"), cases.map(|attempt| (attempt, words)).into()).await;
}

#[tokio::test]
async fn what_needs_the_proxys_namespace_waits_until_it_is_there() {
    let named = "accessProvider.clusterProxy.namespace=proxy";
    for values in [&[][..], &[named]] {
        let hub = Hub::plain().await;
        let notes = install(&hub, values).await;
        assert_eq!(notes.contains("there is no namespace proxy"), !values.is_empty(), "{notes}");
        let running = start_all(&hub, &["profiles"]).await;
        world::grant(&hub.ocm, TEAM, &["c1"]).await;
        sees(&hub.ocm, TEAM, &["c1"]).await;
        let role = world::object("ClusterRole", None, "hub-addons-profiles");
        let rules = get(&hub.ocm, &role).await.unwrap()["rules"].clone();
        let mut fewer = rules.clone();
        fewer.as_array_mut().unwrap().retain(|rule| rule["resources"] != json!(["secrets"]));
        assert_eq!(fewer.as_array().unwrap().len() + 1, rules.as_array().unwrap().len());
        merge(&hub.ocm, &role, &json!({ "rules": fewer })).await;
        let refused = async || {
            let requests = hub.audit().requests().await.unwrap().of_user(&user("profiles"));
            requests.matching(|request| request.code == 403 && request.resource == "secrets")
        };
        proxy::install(&hub, &Authority::new("first"), &["c1"]).await;
        // The permission is missed, and nothing is published without.
        eventually("it is refused", SOON, async || !refused().await.is_empty()).await;
        let shown = get(&hub.ocm, &world::profile_of(NAME, TEAM, "c1")).await.unwrap();
        assert!(provider(&shown, NAME).is_null(), "{shown}");
        merge(&hub.ocm, &role, &json!({ "rules": rules })).await;
        profile(&hub.ocm, (TEAM, "c1"), "has its entry", |profile| {
            !provider(profile, NAME).is_null()
        })
        .await;
        stop_all(running).await;
    }
}
