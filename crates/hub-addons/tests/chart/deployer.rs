//! A deployer who is allowed what docs/gitops.md lists, and nothing else, installs, upgrades and uninstalls the chart.

use std::collections::BTreeSet;

use k8s_openapi::api::rbac::v1::PolicyRule;
use local_hub::ocm::{self, Object};
use serde_json::json;

use crate::support::chart::{NAMESPACE, helm, install_arguments, repository, run};
use crate::support::{Hub, world};
use crate::uninstall::uninstall;

/// What renders objects of every kind, in each namespace.
const EVERYTHING: [&str; 7] = [
    "accessProvider.clusterProxy.namespace=proxy",
    "consumerAccess.enabled=true",
    "consumerAccess.argoCDNamespaces={argocd}",
    "monitoring.prometheusRule.enabled=true",
    "monitoring.serviceMonitor.enabled=true",
    "pluginInjection.enabled=true",
    "userServer.enabled=true",
];

/// The rules that each item of the list in the document stands for.
fn listed() -> Vec<PolicyRule> {
    let guide = std::fs::read_to_string(repository().join("docs/gitops.md")).unwrap();
    let (_, list) = guide.split_once("## What the deployer must be allowed").unwrap();
    let rule = |item: &str| {
        // Kinds, in the plural or not; no resource has the name of another word in upper case.
        let words = item.split(|letter: char| !letter.is_alphanumeric());
        let kinds = words.filter(|word| word.starts_with(char::is_uppercase));
        let plural = |kind: &str| format!("{}s", kind.to_lowercase().trim_end_matches('s'));
        let resources: BTreeSet<_> = kinds.map(plural).collect();
        let is_named = |verb: &&str| item.contains(&format!("`{verb}`"));
        let mut verbs = Vec::from(["get", "list", "escalate", "bind"]);
        verbs.retain(is_named);
        if verbs.is_empty() {
            verbs.extend(["get", "list", "watch", "create", "update", "patch", "delete"]);
        }
        PolicyRule {
            api_groups: Some(vec!["*".to_owned()]),
            resources: Some(resources.into_iter().collect()),
            verbs: verbs.into_iter().map(str::to_owned).collect(),
            ..PolicyRule::default()
        }
    };
    list.split("\n- ").skip(1).map(rule).collect()
}

#[tokio::test]
async fn who_may_do_what_the_guide_lists_installs_upgrades_and_uninstalls_the_chart() {
    let hub = Hub::plain().await;
    for kind in ["PrometheusRule", "ServiceMonitor"] {
        world::install_open_crd(&hub, ("monitoring.coreos.com", "v1", kind), "Namespaced").await;
    }
    let deployer = hub.service_account(NAMESPACE, "deployer").await.unwrap();
    let [in_release, elsewhere, everywhere @ ..] = &listed()[..] else { panic!("no list") };
    for namespace in ["argocd", "proxy", "open-cluster-management-addon"] {
        ocm::namespace(namespace).create(&hub.ocm).await.unwrap();
        let group = "rbac.authorization.k8s.io";
        let object =
            |kind, plural| Object::new((group, "v1", kind), plural, Some(namespace), "deployer");
        let role = json!({ "apiGroup": group, "kind": "Role", "name": "deployer" });
        let subject =
            json!({ "kind": "ServiceAccount", "namespace": NAMESPACE, "name": "deployer" });
        let binding = object("RoleBinding", "rolebindings").field("roleRef", role);
        let role = object("Role", "roles").field("rules", json!([elsewhere]));
        world::create(&hub.ocm, [role, binding.field("subjects", json!([subject]))]).await;
    }
    deployer.grant_in_namespace(vec![in_release.clone()]).await.unwrap();
    hub.grant_service_account(NAMESPACE, "deployer", everywhere.to_vec()).await.unwrap();

    let by_deployer = format!("--kubeconfig={}", deployer.kubeconfig().display());
    for values in [&EVERYTHING[..], &EVERYTHING[..2]] {
        let mut arguments = install_arguments(values);
        arguments.extend([by_deployer.clone(), "--reset-values".to_owned()]);
        run(helm(), Some(&hub.hub), &arguments).await.succeeded();
    }
    uninstall(&hub, &[&by_deployer]).await.0.succeeded();
}
