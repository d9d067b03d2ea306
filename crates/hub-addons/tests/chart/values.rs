//! The chart's values: misspelt or contradictory ones are refused with an explanation before anything is applied.

use std::collections::BTreeMap;
use std::path::Path;

use crate::support::chart::{REGISTRY, chart, helm, helm3, rendered, run};
use crate::support::command::Ended;
use serde_json::{Value, json};

/// helm's error for values, from a command that must fail.
async fn refusal(helm: &Path, command: &[&str], values: &[&str]) -> String {
    let sets = values.iter().map(|value| format!("--set={value}"));
    let chart = chart().display().to_string();
    let arguments: Vec<String> = command
        .iter()
        .copied()
        .map(str::to_owned)
        .chain([chart, REGISTRY.to_owned()])
        .chain(sets)
        .collect();
    let Ended { code, stdout, stderr } = run(helm, None, &arguments).await;
    assert_ne!(code, Some(0), "{command:?} takes {values:?}");
    stdout + &stderr
}

#[tokio::test]
async fn every_command_suggests_the_right_name_for_a_misspelt_gate() {
    let direct = "write featureGates.clusterProfileDirectAccessProvider'";
    let commands: [&[&str]; 3] =
        [&["template", "it"], &["lint"], &["install", "it", "--dry-run=client"]];
    for (wrong, right) in [
        ("ClusterProfile", "write featureGates.clusterProfile'"),
        ("clusterProfiles", "write featureGates.clusterProfile'"),
        ("ClusterProfileAccessProvider", "write featureGates.clusterProfileAccessProvider'"),
        ("clusterProfileAccessProviders", "write featureGates.clusterProfileAccessProvider'"),
        ("ClusterProfileCredSyncer", "write featureGates.clusterProfileCredSyncer'"),
        ("clusterProfileCredsSyncer", "write featureGates.clusterProfileCredSyncer'"),
        ("clusterProfileCredentialSyncer", "write featureGates.clusterProfileCredSyncer'"),
        ("ClusterProfileDirectAccessProvider", direct),
        ("ClusterProfileCredRights", "write credentials.secretAccess: granted'"),
        ("clusterProfil", "no such gate; there are clusterProfile, clusterProfileAccessProvider"),
    ] {
        let value = format!("featureGates.{wrong}=true");
        // The dry run of helm 3 needs a hub.
        for (helm, commands) in [(helm(), &commands[..]), (helm3(), &commands[..2])] {
            for command in commands {
                let told = refusal(helm, command, &[&value]).await;
                let names_both = told.contains(wrong) && told.contains(right);
                assert!(names_both, "{command:?} {wrong}: {told}");
            }
        }
    }
}

/// Of the keys that the schema does not know, one: `the_schema_closes_every_object` is about the others.
#[tokio::test]
async fn unknown_keys_and_bad_values_are_refused() {
    for (value, words) in [
        ("replica=3", "'replica' not allowed"),
        ("featureGate.clusterProfile=true", "write featureGates'"),
        ("featureGates.clusterProfile=yes", "got string, want boolean"),
        ("clusterManagerName=a b", "/clusterManagerName"),
        ("clusterManagerName=", "/clusterManagerName"),
        ("computeBound=1", "/computeBound"),
        ("propagateLabels={*}", "/propagateLabels/0"),
        ("propagateClaims={a*b*}", "/propagateClaims/0"),
        ("resources.limits.memory=1GB", "/resources/limits/memory"),
        ("credentials.secretAccess=all", "'granted', 'cluster'"),
        ("accessProvider.caOverlap=10", "/accessProvider/caOverlap"),
        ("accessProvider.static.server=http://a/{cluster}", "/accessProvider/static/server"),
        ("accessProvider.static.ca=Secret/a/b/c", "/accessProvider/static/ca"),
        ("consumerAccess.permissions=Role", "'ManifestWork', 'ClusterPermission'"),
        ("crds.enabled=maybe", "/crds/enabled"),
        ("consumerAccess.enabled=maybe", "/consumerAccess/enabled"),
        ("crds.clusterProfileLists=set", "'map', 'atomic', 'v1alpha2'"),
        ("policies.validationActions={Refuse}", "'Deny', 'Warn', 'Audit'"),
        ("policies.validationActions={}", "/policies/validationActions"),
        ("policies.clusterManagers.users[0]=a'b", "/policies/clusterManagers/users/0"),
        ("policies.clusterManagers.serviceAccounts[0].name=a", "missing property 'namespace'"),
        ("credentials.protectedNamespaces={Kube}", "/credentials/protectedNamespaces/0"),
        ("image.digest=sha256:abc", "/image/digest"),
        ("image.pullPolicy=always", "'Always', 'IfNotPresent', 'Never'"),
        ("imagePullSecrets={A_b}", "/imagePullSecrets/0"),
        ("replicaCount=-1", "/replicaCount"),
        ("log.format=xml", "'text', 'json'"),
        ("podLabels.a=b c", "/podLabels/a"),
        ("extraArgs={debug}", "/extraArgs/0"),
        ("extraEnv[0].value=a", "missing property 'name'"),
        ("extraVolumes[0].emptyDir.a=b", "missing property 'name'"),
        ("networkPolicy.apiServerCidrs={10.0.0.1}", "/networkPolicy/apiServerCidrs/0"),
        ("nameOverride=A", "/nameOverride"),
        ("userServer.ca=configmap/a", "/userServer/ca"),
        (
            "containerSecurityContext.capabilities.drop=ALL",
            "/containerSecurityContext/capabilities/drop",
        ),
        ("openshift.adaptSecurityContexts=maybe", "/openshift/adaptSecurityContexts"),
        ("monitoring.prometheusRule.runbookUrl=wiki", "/monitoring/prometheusRule/runbookUrl"),
    ] {
        let told = refusal(helm(), &["template", "it"], &[value]).await;
        assert!(told.contains(words), "{value:?}: {told}");
    }
}

/// A template checks what only the combination of values shows.
#[tokio::test]
async fn values_that_contradict_each_other_are_explained() {
    let unguarded = "consumerAccess.enabled=true,policies.enabled=false,\
                     featureGates.clusterProfileCredSyncer=false";
    let and = |more| format!("{unguarded},consumerAccess.{more}");
    let roles = and("allowedClusterRoles={view}");
    let (reserved, argo_cd) = (and("reservedAccounts={agent}"), and("argoCDNamespaces={argocd}"));
    let tagged = format!("image.tag=v9,image.digest=sha256:{}", "0123456789abcdef".repeat(4));
    let cases = [
        (&*reserved, "nothing reserves an account"),
        ("policies.enabled=false", "credential rights needs policies.enabled"),
        ("policies.validationActions={Warn,Audit}", "credential rights needs policies.enabled"),
        ("consumerAccess.enabled=true,policies.enabled=false", "needs policies.enabled"),
        (&roles, "consumerAccess.permissionsWithoutPolicies=true"),
        (&argo_cd, "consumerAccess.permissionsWithoutPolicies=true"),
        (
            "consumerAccess.enabled=true,credentials.secretAccess=cluster",
            "consumerAccess.enabled needs credentials.secretAccess=granted",
        ),
        ("featureGates.clusterProfileConsumers=true", "write consumerAccess.enabled"),
        (
            "featureGates.clusterProfile=false,featureGates.clusterProfileAccessProvider=false,\
             featureGates.clusterProfileCredSyncer=false",
            "every feature gate is disabled",
        ),
        ("image.registry=", "set image.registry to its name"),
        (&tagged, "image.tag would have no effect beside image.digest"),
        ("leaderElection=false", "with leaderElection=false set replicaCount=1"),
        ("metrics.secure.certificateSecret=a", "metrics would be served without TLS"),
        ("extraArgs={--log-level=debug}", "extraArgs: the chart sets --log-level already"),
        ("extraVolumes[0].name=hub-access", "the volume hub-access exists already"),
        (
            "extraVolumeMounts[0].name=a,extraVolumeMounts[0].mountPath=/a",
            "which is not in extraVolumes",
        ),
        (
            "userServer.enabled=true,userServer.ca=secret/a/b",
            "without userServer.certificateSecret",
        ),
        // On Advanced Cluster Management.
        (
            "userServer.enabled=true,accessProvider.clusterProxy.namespace=multicluster-engine",
            "enableKubeApiProxy=false",
        ),
        (
            "accessProvider.static.server=https://a/{cluster}",
            "both accessProvider.static.server and",
        ),
        (
            "userServer.enabled=true,accessProvider.name=open-cluster-management-own-identity",
            "two access providers need two names",
        ),
        (
            "featureGates.clusterProfileDirectAccessProvider=true,\
             accessProvider.name=open-cluster-management-direct",
            "two access providers need two names",
        ),
        // As values were called before.
        ("replicas=3", "write replicaCount"),
        ("consumers.app.namespace=a", "create ClusterAccess objects"),
        ("consumers[0].namespace=a", "create ClusterAccess objects"),
    ];
    for (values, words) in cases {
        let told = refusal(helm(), &["template", "it"], &[values]).await;
        assert!(told.contains(words), "{values:?}: {told}");
    }
    // Without policies, no ClusterRole may be asked for, unless that is accepted.
    let accepted = format!("{roles},consumerAccess.permissionsWithoutPolicies=true");
    for (values, allowed) in [(unguarded, false), (&accepted, true)] {
        let rendered = rendered("it", "default", &[values]).await;
        assert_eq!(rendered.contains("--allowed-cluster-roles=view"), allowed, "{values:?}");
    }
    // Without the namespace, a hub with the multicluster engine shows itself.
    let engine = ["template", "it", "--api-versions=multicluster.openshift.io/v1"];
    let told = refusal(helm(), &engine, &["userServer.enabled=true"]).await;
    assert!(told.contains("enableKubeApiProxy=false"), "{told}");
}

/// Every level of the schema, except Kubernetes' own types, refuses unknown keys.
#[test]
fn the_schema_closes_every_object() {
    let schema = std::fs::read_to_string(chart().join("values.schema.json")).unwrap();
    let schema: Value = serde_json::from_str(&schema).unwrap();
    let mut open = Vec::new();
    walk(&schema, "", &mut |path, node| {
        if node["type"] == "object" && node["additionalProperties"].is_null() {
            open.push(path.to_owned());
        }
    });
    let of_kubernetes = [
        "/definitions/kubernetesObjects/items",
        "/properties/affinity",
        "/properties/extraEnv/items/properties/valueFrom",
        "/properties/extraObjects/items/anyOf",
        "/properties/extraVolumes/items",
        "/properties/global",
    ];
    assert_eq!(open, of_kubernetes);
}

fn walk(node: &Value, path: &str, visit: &mut dyn FnMut(&str, &Value)) {
    visit(path, node);
    match node {
        Value::Object(fields) => {
            fields.iter().for_each(|(key, it)| walk(it, &format!("{path}/{key}"), visit));
        }
        Value::Array(items) => items.iter().for_each(|it| walk(it, path, visit)),
        _ => {}
    }
}

/// What `helm upgrade --reuse-values` leaves out: values that are new in this version.
#[test]
fn a_value_that_an_earlier_version_lacks_is_missed_by_the_schema() {
    let read = |file: &str| std::fs::read_to_string(chart().join(file)).unwrap();
    let values: Value = serde_saphyr::from_str(&read("values.yaml")).unwrap();
    let schema: Value = serde_json::from_str(&read("values.schema.json")).unwrap();
    assert_eq!(schema["if"], required(&values, &schema));
    let text = schema["else"]["const"].as_str().unwrap();
    assert!(text.contains("--reset-then-reuse-values in place of --reuse-values"), "{text}");
}

/// The required keys of a section. What is empty can be left out, and so can what people set to null:
/// parts of Pods, and labels.
fn required(values: &Value, schema: &Value) -> Value {
    const NULLABLE: [&str; 3] = ["containerSecurityContext", "global", "podSecurityContext"];
    let is_empty = |value: &Value| value.is_null() || *value == json!([]) || *value == json!({});
    let (mut keys, mut sections) = (Vec::new(), serde_json::Map::new());
    let fields = values.as_object().unwrap().iter();
    let fields =
        fields.filter(|(key, value)| !NULLABLE.contains(&key.as_str()) && !is_empty(value));
    for (key, value) in fields.collect::<BTreeMap<_, _>>() {
        let described = &schema["properties"][key];
        if described["properties"].is_object() {
            let section = required(value, described);
            if section["required"] != json!([]) {
                sections.insert(key.clone(), section);
            }
        } else if value.is_object() {
            continue;
        }
        keys.push(key);
    }
    let mut section = json!({ "required": keys });
    if !sections.is_empty() {
        section["properties"] = sections.into();
    }
    section
}
