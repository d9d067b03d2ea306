//! Argo CD's cluster Secrets exist for exactly the granted clusters of the consumer that asks for them, follow the
//! profile, and never contain a token.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hub_api::names::ProfileKey;
use hub_core::consumer_access::{
    AccessAction, AccessSettings, FoundObject, IntegrationPlan, ObservedObject, PROFILE_LABELS,
    PublishedCluster, cluster_in_secret,
};
use hub_core::finding::Reason;
use hub_core::fleet::Fleet;
use hub_core::profile::ObservedProfile;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

use crate::support::consumer_access::{doubtful, granted, refused, settings_of};
use crate::support::with;

fn settings() -> AccessSettings {
    settings_of(&json!([{ "namespace": "team", "name": "app", "argoCD": {} }]))
}

fn key() -> ProfileKey {
    ProfileKey { namespace: "team".into(), cluster: "c1".into() }
}

fn published(server: &str, ca: &str, labels: &Value) -> Option<PublishedCluster> {
    let provider = json!({
        "name": "open-cluster-management",
        "cluster": { "server": server, "certificate-authority-data": STANDARD.encode(ca) },
    });
    let metadata = ObjectMeta {
        name: Some("c1".to_owned()),
        labels: serde_json::from_value(labels.clone()).unwrap(),
        ..ObjectMeta::default()
    };
    let profile = json!({ "spec": {}, "status": { "accessProviders": [provider] } });
    PublishedCluster::read(&ObservedProfile::read(&metadata, &profile), "open-cluster-management")
}

fn usual() -> Option<PublishedCluster> {
    published("https://proxy:9092/c1/", "anchors", &json!({ "env": "prod" }))
}

fn read(object: &Value) -> ObservedObject {
    let metadata: ObjectMeta = serde_json::from_value(object["metadata"].clone()).unwrap();
    ObservedObject::read(&metadata, Some(&json!({ "spec": object["data"] })))
}

fn seen(object: &Value) -> FoundObject {
    FoundObject::seen(&settings(), None, read(object))
}

fn plan(
    fleet: &Fleet,
    found: Option<&Value>,
    published: Option<&PublishedCluster>,
) -> IntegrationPlan {
    settings().plan_cluster_secret(fleet, &key(), found.map(seen).as_ref(), published, None)
}

/// The Secret as it is created.
fn created() -> Value {
    let object = created_by(plan(&granted(), None, usual().as_ref()));
    with(object, &json!({ "metadata": { "uid": "one", "resourceVersion": "1" } }))
}

fn created_by(plan: IntegrationPlan) -> Value {
    let AccessAction::Create(object) = plan.action else { panic!("{plan:?}") };
    object
}

/// The Secret after what is planned for it where the cluster is granted and published like this.
fn patched(object: Value, published: Option<&PublishedCluster>) -> Value {
    let plan = plan(&granted(), Some(&object), published);
    let AccessAction::Patch(_, patch) = plan.action else { panic!("{plan:?}") };
    with(object, &patch)
}

fn fields(object: &Value) -> BTreeMap<String, String> {
    let decoded = |value: &Value| STANDARD.decode(value.as_str().unwrap()).unwrap();
    let text = |value: &Value| String::from_utf8(decoded(value)).unwrap();
    let data = object["data"].as_object().unwrap().iter();
    data.map(|(key, value)| (key.clone(), text(value))).collect()
}

#[test]
fn the_secret_tells_argo_cd_to_run_the_plugin_and_contains_no_token() {
    let object = created();
    assert_eq!(object["metadata"]["name"], "hub-addons-cluster-c1");
    let labels = &object["metadata"]["labels"];
    assert_eq!(labels["argocd.argoproj.io/secret-type"], "cluster");
    assert_eq!(labels["env"], "prod");
    assert_eq!(labels["app.kubernetes.io/component"], "consumer-access");
    let fields = fields(&object);
    assert_eq!(fields.keys().collect::<Vec<_>>(), ["config", "name", "server"]);
    // Argo CD compares it with the server of an Application.
    assert_eq!((&*fields["name"], &*fields["server"]), ("c1", "https://proxy:9092/c1"));
    let config: Value = serde_json::from_str(&fields["config"]).unwrap();
    assert_eq!(
        config,
        json!({
            "execProviderConfig": {
                "apiVersion": "client.authentication.k8s.io/v1beta1",
                "command": "/plugins/cp-creds",
                "args": ["--managed-serviceaccount=app", "--namespace=team", "--cluster-name=c1"],
            },
            "tlsClientConfig": { "caData": STANDARD.encode("anchors") },
        })
    );
}

#[test]
fn of_an_own_identity_the_plugin_returns_the_projected_token() {
    for (argo_cd, path) in [
        (json!({}), "/var/run/secrets/hub-addons/token"),
        (json!({ "ownToken": "/run/token" }), "/run/token"),
    ] {
        let settings = settings_of(&json!([{
            "namespace": "team", "identity": "Own", "name": "argocd", "serviceAccountNames": ["server"],
            "argoCD": argo_cd,
        }]));
        let consumer = settings.consumers.iter().next().unwrap();
        assert_eq!(settings.provider_of(consumer), settings.own_provider);
        let plan = settings.plan_cluster_secret(&granted(), &key(), None, usual().as_ref(), None);
        let object = created_by(plan);
        let config: Value = serde_json::from_str(&fields(&object)["config"]).unwrap();
        assert_eq!(config["execProviderConfig"]["args"], json!([format!("--own-token={path}")]));
    }
}

#[test]
fn the_grant_decides_whether_it_exists_and_a_doubt_changes_nothing() {
    let object = created();
    assert_eq!(plan(&granted(), Some(&object), usual().as_ref()).action, AccessAction::Nothing);
    let ended = plan(&refused(), Some(&object), usual().as_ref()).action;
    assert!(matches!(ended, AccessAction::Delete(version) if version.uid == "one".into()));
    for (fleet, found) in [(doubtful(), None), (refused(), None), (doubtful(), Some(&object))] {
        assert_eq!(plan(&fleet, found, usual().as_ref()).action, AccessAction::Nothing);
    }
    let without = settings_of(&json!([{ "namespace": "team", "name": "app" }]));
    let (found, published) = (seen(&object), usual());
    let plan =
        without.plan_cluster_secret(&granted(), &key(), Some(&found), published.as_ref(), None);
    assert!(matches!(plan.action, AccessAction::Delete(_)));
}

#[test]
fn without_an_access_provider_nothing_is_created_and_what_exists_stays() {
    // Without trust anchors, the system's would be used.
    assert_eq!(published("https://proxy", "", &json!({})), None);
    for found in [None, Some(&created())] {
        assert_eq!(plan(&granted(), found, None).action, AccessAction::Nothing);
    }
    assert!(matches!(plan(&refused(), Some(&created()), None).action, AccessAction::Delete(_)));
}

#[test]
fn it_follows_the_profile_and_keeps_what_users_of_argo_cd_add() {
    let users = json!({
        "metadata": { "labels": { "team": "mine" }, "annotations": { "note": "x" } },
        "data": { "namespaces": STANDARD.encode("apps"), "project": STANDARD.encode("p") },
    });
    let object = with(created(), &users);
    assert_eq!(plan(&granted(), Some(&object), usual().as_ref()).action, AccessAction::Nothing);

    let new = published("https://proxy:9092/c1", "new anchors", &json!({ "tier": "gpu" }));
    let patched = patched(object, new.as_ref());
    let labels = &patched["metadata"]["labels"];
    assert_eq!(labels["env"], Value::Null, "the profile has it no more");
    assert_eq!((&labels["tier"], &labels["team"]), (&json!("gpu"), &json!("mine")));
    assert_eq!(patched["metadata"]["annotations"][PROFILE_LABELS], "tier");
    let fields = fields(&patched);
    assert!(fields["config"].contains(&STANDARD.encode("new anchors")));
    assert_eq!((&*fields["namespaces"], &*fields["project"]), ("apps", "p"));
    assert_eq!(plan(&granted(), Some(&patched), new.as_ref()).action, AccessAction::Nothing);
}

#[test]
fn what_others_change_is_repaired_and_another_form_of_the_same_configuration_is_not() {
    let edit = |data: Value| with(created(), &json!({ "data": data }));
    let config: Value = serde_json::from_str(&fields(&created())["config"]).unwrap();
    let pretty = STANDARD.encode(serde_json::to_string_pretty(&config).unwrap());
    let same = edit(json!({ "config": pretty }));
    assert_eq!(plan(&granted(), Some(&same), usual().as_ref()).action, AccessAction::Nothing);
    let token = with(config, &json!({ "bearerToken": "secret" })).to_string();
    for data in [
        json!({ "server": STANDARD.encode("https://elsewhere") }),
        json!({ "config": STANDARD.encode(token) }),
        json!({ "name": null }),
        json!({ "server": "not base64" }),
    ] {
        assert_eq!(fields(&patched(edit(data), usual().as_ref())), fields(&created()));
    }
}

#[test]
fn a_label_of_a_profile_never_replaces_one_that_the_secret_is_recognized_by() {
    let labels = json!({
        "app.kubernetes.io/component": "mine", "argocd.argoproj.io/secret-type": "repository", "env": "prod",
    });
    let hostile = published("https://proxy:9092/c1", "anchors", &labels);
    let object = created_by(plan(&granted(), None, hostile.as_ref()));
    let shown = &object["metadata"]["labels"];
    assert_eq!(shown["app.kubernetes.io/component"], "consumer-access");
    assert_eq!(shown["argocd.argoproj.io/secret-type"], "cluster");
    assert_eq!(object["metadata"]["annotations"][PROFILE_LABELS], "env");
}

#[test]
fn a_secret_of_another_owner_is_reported_and_left_alone() {
    let labels = json!({ "hub-addons/installation": "elsewhere" });
    let theirs = with(created(), &json!({ "metadata": { "labels": labels } }));
    let planned = plan(&granted(), Some(&theirs), usual().as_ref());
    assert_eq!(planned.action, AccessAction::Nothing);
    let reasons: Vec<_> = planned.findings.iter().map(|note| note.reason).collect();
    assert_eq!(reasons, [Reason::ForeignClusterSecret]);
    assert_eq!(plan(&refused(), Some(&theirs), usual().as_ref()).action, AccessAction::Nothing);
}

#[test]
fn while_a_secret_of_another_owner_has_the_name_of_a_cluster_none_is_created_for_it_and_ours_stays()
{
    let published = usual();
    let ours = created();
    let plan = |fleet: &Fleet, found: Option<&Value>| {
        let (found, published) = (found.map(seen), published.as_ref());
        settings().plan_cluster_secret(fleet, &key(), found.as_ref(), published, Some("theirs"))
    };
    for found in [None, Some(&ours)] {
        let plan = plan(&granted(), found);
        assert_eq!(plan.action, AccessAction::Nothing);
        let [finding] = &plan.findings[..] else { panic!("{plan:?}") };
        assert_eq!(finding.reason, Reason::ForeignClusterSecret);
        let message = &finding.message;
        assert!(message.contains("Secret theirs") && message.contains("name c1"), "{message}");
    }
    let ended = plan(&refused(), Some(&ours));
    assert!(matches!(ended.action, AccessAction::Delete(_)) && ended.findings.is_empty());
}

#[test]
fn the_cluster_of_a_secret_is_its_field_name_as_argo_cd_reads_it() {
    assert_eq!(cluster_in_secret(&json!({ "name": STANDARD.encode("c1") })), Some("c1".into()));
    for data in [Value::Null, json!({ "name": "!" }), json!({ "server": STANDARD.encode("c1") })] {
        assert_eq!(cluster_in_secret(&data), None);
    }
}
