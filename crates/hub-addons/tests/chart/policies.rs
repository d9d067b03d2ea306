//! The requests that the chart's admission policies deny, with which message, and those that they allow. Every request
//! is a dry run, by users with all permissions.

use std::collections::BTreeMap;

use crate::support::chart::Attempt::{Create, Delete, Patch, PatchStatus};
use crate::support::chart::{
    MASTERS, NAMESPACE, RELEASE, cluster_role, held, install, judged, judged_as, labels, metadata,
    opaque, role_binding, user,
};
use crate::support::credentials::{self, MANAGER, OF_ACCOUNT, OF_CLUSTER, OF_UID, SYNCED_FROM};
use crate::support::flavours::on_each_flavour;
use crate::support::proxy::entry;
use crate::support::world::{self, merge, merge_status, profile_of};
use crate::support::{Hub, SOON};
use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy;
use kube::Api;
use kube::api::{ListParams, PostParams};
use local_hub::ocm::{self, Object};
use local_hub::{Flavour, LocalHub, eventually};
use serde_json::{Value, json};

on_each_flavour!(the_writer_of_profiles_is_held_to_ours, no_other_user_claims_our_names);

const TOKEN_LABEL: &str = "authentication.open-cluster-management.io/is-managed-serviceaccount";
const COLLECTOR: &str = "system:serviceaccount:kube-system:generic-garbage-collector";
const NAMESPACES: &str = "system:serviceaccount:kube-system:namespace-controller";
const REGISTRATION: &str =
    "system:serviceaccount:open-cluster-management-hub:registration-controller-sa";
const LABEL: &str = "x-k8s.io/cluster-manager";

async fn installed(builder: local_hub::HubBuilder, values: &[&str]) -> Hub {
    let hub = Hub::start(builder, Vec::new()).await;
    ocm::namespace("proxy").create(&hub.ocm).await.unwrap();
    install(&hub, &[&["accessProvider.clusterProxy.namespace=proxy"], values].concat()).await;
    hub
}

fn lists(lists: Flavour) -> local_hub::HubBuilder {
    LocalHub::builder().without_controller_manager().flavour(lists)
}

const ONLY_OWN_KEYS: &str = "must not set labels and annotations that are not its own";

/// A profile of ours, made by this component, with a status that others have added to, and one of somebody else's.
async fn profiles(hub: &Hub, maker: &str) -> (Object, Object) {
    let (ours, theirs) =
        (credentials::profile("default", "c1"), profile_of("somebody", "default", "theirs"));
    theirs.create(&hub.ocm).await.unwrap();
    let maker = hub.client_like(&user(maker), MASTERS).await.unwrap();
    ours.create(&maker).await.unwrap();
    let status = json!({ "version": { "kubernetes": "v1" }, "conditions": [health()] });
    merge_status(&maker, &ours, &status).await;
    let added = json!({ "accessProviders": [provider("theirs", "https://theirs.example")] });
    merge_status(&hub.ocm, &ours, &added).await;
    (ours, theirs)
}

fn health() -> Value {
    condition("ControlPlaneHealthy")
}

fn condition(kind: &str) -> Value {
    json!({
        "type": kind, "status": "True", "reason": "Because", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    })
}

fn provider(name: &str, server: &str) -> Value {
    json!({ "name": name, "cluster": { "server": server } })
}

async fn the_writer_of_profiles_is_held_to_ours(flavour: Flavour) {
    let values = [
        "featureGates.clusterProfileDirectAccessProvider=true",
        "propagateLabels={region,team.example.com/*}",
    ];
    let hub = installed(lists(flavour), &values).await;
    let (ours, theirs) = profiles(&hub, "profiles").await;
    let foreign = provider("theirs", "https://theirs.example");
    let our = entry("https://cluster-proxy-addon-user.proxy:9092/c1", "c1");
    let direct = provider("open-cluster-management-direct", "https://c1.example");
    let new = || credentials::profile("default", "c2");
    let all =
        json!({ "version": { "kubernetes": "v2" }, "properties": [{ "name": "a", "value": "b" }] });
    let and_theirs = json!({ "conditions": [health(), condition("Theirs")] });
    let status = |status: Value| PatchStatus(ours.clone(), status);
    let publish = |entries: &[&Value]| status(json!({ "accessProviders": entries }));
    let deprecated = |entries: &[&Value]| status(json!({ "credentialProviders": entries }));
    let more = provider("more", "https://a.example");
    // Where its tokens would go instead. How a cluster is reached directly, it says itself.
    let lure = entry("https://eve.example", "c1");
    let mixed_up = entry("https://cluster-proxy-addon-user.proxy:9092/c1", "c2");
    let by_proxy = |entry: &Value| {
        let mut entry = entry.clone();
        entry["cluster"]["proxy-url"] = json!("https://eve.example");
        entry
    };
    let (proxied, direct_by_proxy) = (by_proxy(&our), by_proxy(&direct));
    let direct_elsewhere =
        provider("open-cluster-management-direct", "https://c1.elsewhere.example");
    let leads =
        "the access provider open-cluster-management must lead to the cluster of the profile";
    let leads_directly =
        "the access provider open-cluster-management-direct must lead to the cluster";
    let is_ours = "only write profiles of the cluster manager open-cluster-management";
    let is_labelled = "the labels of a profile must name its cluster manager";
    let only_providers = "of the access providers, this component may only write open-cluster-management, open-cluster-management-direct";
    let only_conditions =
        "of the conditions, this component may only write ControlPlaneHealthy, Joined";
    let others = "must not set annotations, finalizers and owners of a profile";
    let only_removes = "from credentialProviders, this component may only remove";
    // As a cluster manager published them before.
    let registration = hub.client_like(REGISTRATION, MASTERS).await.unwrap();
    merge_status(&registration, &ours, &json!({ "credentialProviders": [lure, foreign] })).await;
    let cases = vec![
        (Create(new()), ""),
        (Create(new().label("region", "eu")), ""),
        (Create(profile_of("somebody", "default", "c2")), is_ours),
        (Create(profile_of(MANAGER, "default", "c2")), is_labelled),
        (Create(new().label("open-cluster-management.io/cluster-name", "c1")), is_labelled),
        (Create(new().annotation("a", "b")), others),
        (labels(&ours, json!({ "region": "eu", "team.example.com/a": "b" })), ""),
        (labels(&ours, json!({ "regions": "eu" })), ONLY_OWN_KEYS),
        (Create(new().label("team.example", "a")), ONLY_OWN_KEYS),
        (Patch(ours.clone(), json!({ "spec": { "displayName": "another" } })), ""),
        (labels(&ours, json!({ LABEL: "somebody" })), is_labelled),
        (labels(&ours, json!({ LABEL: null })), is_labelled),
        (metadata(&ours, json!({ "annotations": { "a": "b" } })), others),
        (held(&ours), others),
        (labels(&theirs, json!({ "region": "eu" })), is_ours),
        (labels(&theirs, json!({ LABEL: MANAGER })), is_ours),
        (Delete(ours.clone()), ""),
        (Delete(theirs.clone()), is_ours),
        (status(all), ""),
        (status(json!({ "conditions": [condition("Joined")] })), ""),
        (status(and_theirs), only_conditions),
        (publish(&[&our, &foreign, &direct]), ""),
        (publish(&[&lure, &foreign, &direct]), leads),
        (publish(&[&mixed_up, &foreign, &direct]), leads),
        (publish(&[&proxied, &foreign, &direct]), leads),
        (publish(&[&our, &foreign, &direct_by_proxy]), leads_directly),
        (publish(&[&our, &foreign, &direct_elsewhere]), ""),
        (publish(&[&our]), only_providers),
        (status(json!({ "accessProviders": null })), only_providers),
        (publish(&[&foreign, &more]), only_providers),
        (publish(&[&provider("theirs", "https://b.example")]), only_providers),
        (PatchStatus(theirs, json!({ "version": { "kubernetes": "v2" } })), is_ours),
        // The field that upstream's library still reads.
        (deprecated(&[&foreign]), ""),
        (deprecated(&[&our, &foreign]), only_removes),
        (deprecated(&[&lure, &foreign, &more]), only_removes),
        (deprecated(&[&lure]), only_removes),
        (status(json!({ "credentialProviders": null })), only_removes),
    ];
    judged_as(&hub, &user("profiles"), cases).await;
    // Ours by its spec alone is not to be deleted.
    merge(&hub.ocm, &ours, &json!({ "metadata": { "labels": { LABEL: null } } })).await;
    let both = "only be deleted if label and spec name the cluster manager";
    judged_as(&hub, &user("profiles"), vec![(Delete(ours), both)]).await;
}

#[tokio::test]
async fn a_process_that_writes_a_part_of_profiles_is_held_to_it() {
    // The policies for others would refuse some of it as well.
    let exempt =
        format!("policies.clusterManagers.users={{{},{}}}", user("projector"), user("profiles"));
    let foreign = provider("theirs", "https://theirs.example");
    let our = entry("https://cluster-proxy-addon-user.proxy:9092/c1", "c1");
    let version = json!({ "version": { "kubernetes": "v2" } });
    let without = async |gate: &str| {
        let off = format!("featureGates.{gate}=false");
        let hub = installed(lists(Flavour::Atomic), &[&off, &exempt]).await;
        let (ours, _) = profiles(&hub, "projector").await;
        (hub, ours)
    };
    let (hub, ours) = without("clusterProfileAccessProvider").await;
    let others = "in the status, this component may only write version, properties, conditions";
    let entries = PatchStatus(ours.clone(), json!({ "accessProviders": [our, foreign] }));
    let cases = vec![(PatchStatus(ours, version.clone()), ""), (entries, others)];
    judged_as(&hub, &user("profiles"), cases).await;

    let (hub, ours) = without("clusterProfile").await;
    // The largest possible profile: its comparison must stay below the API server's cost limit for expressions.
    let much: Vec<_> =
        (0..700).map(|i| json!({ "name": format!("p{i}"), "value": "x".repeat(1024) })).collect();
    let projector = hub.client_like(&user("projector"), MASTERS).await.unwrap();
    merge_status(&projector, &ours, &json!({ "properties": much })).await;
    let mut large = our.clone();
    large["cluster"]["certificate-authority-data"] = json!("QUFB".repeat(64 * 1024 / 3));
    let only_status = "this component may only write the status of profiles";
    let only_entries = "in the status, this component may only write accessProviders";
    let cases = vec![
        (PatchStatus(ours.clone(), json!({ "accessProviders": [large, foreign] })), ""),
        (PatchStatus(ours.clone(), version), only_entries),
        (PatchStatus(ours.clone(), json!({ "conditions": null })), only_entries),
        (Create(credentials::profile("default", "c2")), only_status),
        (labels(&ours, json!({ "a": "b" })), only_status),
        (Delete(ours), only_status),
    ];
    judged_as(&hub, &user("profiles"), cases).await;
}

/// A Secret as the syncer creates it for an account of cluster `c1`, with edited metadata.
pub(crate) fn copy(namespace: &str, account: &str, edit: impl FnOnce(&mut Value)) -> Object {
    let name = format!("c1-{account}");
    let mut metadata = json!({
        "namespace": namespace,
        "name": name,
        "labels": { SYNCED_FROM: name },
        "annotations": { OF_CLUSTER: "c1", OF_ACCOUNT: account, OF_UID: "1" },
        "ownerReferences": [owner("ClusterProfile", "multicluster.x-k8s.io/v1alpha1", "c1")],
    });
    edit(&mut metadata);
    let data = json!({ "token": "YQ==", "ca.crt": "YQ==" });
    opaque(namespace, &name).field("metadata", metadata).field("data", data)
}

fn owner(kind: &str, version: &str, name: &str) -> Value {
    json!({ "apiVersion": version, "kind": kind, "name": name, "uid": "1", "controller": true })
}

#[tokio::test]
#[allow(clippy::too_many_lines, reason = "one table of what is tried")]
async fn the_syncer_is_held_to_its_own_kind_of_secret() {
    let values = ["credentials.secretAccess=cluster", "policies.clusterManagers.users={ocm}"];
    let hub = installed(lists(Flavour::Map), &values).await;
    let token = credentials::token("c1", "app");
    token.create(&hub.ocm).await.unwrap();
    let source = token.secret("");
    // A copy of the syncer, one with another type, and Secrets of others.
    let mine = copy("default", "app", |_| {});
    let syncer = hub.client_like(&user("credentials"), MASTERS).await.unwrap();
    let by_syncer = Some("hub-addons-credential-syncer".to_owned());
    let params = PostParams { field_manager: by_syncer, ..PostParams::default() };
    mine.api(&syncer).create(&params, &mine.parse().unwrap()).await.unwrap();
    let foreign = opaque("default", "foreign");
    let disguised = copy("default", "x", |_| {}).field("type", json!("example.com/other"));
    // As a backup restores it: the API server's record of who wrote it is lost. It has a label of its users.
    let restored = copy("default", "restored", |it| it["labels"]["team"] = json!("a"));
    // A token that its agent has marked as a copy, too.
    let marked = copy("default", "marked", |it| it["labels"][TOKEN_LABEL] = json!("true"));
    let stripped =
        opaque("default", "stripped").field("data", json!({ "token": "YQ==", "ca.crt": "YQ==" }));
    let secrets = [&foreign, &disguised, &restored, &marked, &stripped].map(Clone::clone);
    world::create(&hub.ocm, secrets).await;

    let is_own = "may only change and delete Secrets that are labelled as copies";
    let is_opaque = "may only write Secrets of type Opaque";
    let is_recorded =
        "name and label of a copy must be those of the cluster and the ManagedServiceAccount";
    let is_owned = "a copy must have one owner, the ClusterProfile of its cluster";
    let is_bare = "a copy must not contain data other than token and ca.crt";
    let no_token = "must not label a Secret as one in which an agent reports a token";
    let protected =
        "copies of tokens must not be created in kube-system, kube-public, kube-node-lease";
    let only_status = "only write the status of a ManagedServiceAccount";
    let one_condition = "only write the condition SyncedToClusterProfiles";
    let account = token.account();
    let said = world::get(&hub.ocm, &account).await.unwrap()["status"]["conditions"].clone();
    let and_condition = |kind: &str| {
        let mut conditions = said.as_array().unwrap().clone();
        conditions.push(condition(kind));
        PatchStatus(account.clone(), json!({ "conditions": conditions }))
    };
    let elsewhere = json!({ "name": "another", "lastRefreshTimestamp": "2026-01-01T00:00:00Z" });
    let fresh = |edit: fn(&mut Value)| copy("default", "b", edit);
    let owned = |owners: &[&Value]| {
        Create(copy("default", "b", |it| it["ownerReferences"] = json!(owners)))
    };
    let of_type = |edit: fn(&mut Value), kind: &str| Create(fresh(edit).field("type", json!(kind)));
    let long = |cluster: &str| {
        let label = format!("{cluster}-{}-0123456789", "b".repeat(49));
        Create(copy("default", &"b".repeat(100), |it| it["labels"][SYNCED_FROM] = json!(label)))
    };
    let profile = "multicluster.x-k8s.io/v1alpha1";
    let of_account: fn(&mut Value) =
        |it| it["annotations"]["kubernetes.io/service-account.name"] = json!("default");
    let namespace =
        json!({ "apiVersion": "v1", "kind": "Namespace", "name": "default", "uid": "1" });
    let data = |object: &Object, data: Value| Patch(object.clone(), json!({ "data": data }));
    let cases = vec![
        (Create(fresh(|_| {})), ""),
        (long("c1"), ""),
        (long("c2"), is_recorded),
        (Create(opaque("default", "c1-b")), is_recorded),
        (Create(fresh(|it| it["labels"][SYNCED_FROM] = json!("c1-c"))), is_recorded),
        (Create(fresh(|it| it["annotations"][OF_ACCOUNT] = json!("c"))), is_recorded),
        (owned(&[]), is_owned),
        (owned(&[&owner("ClusterProfile", profile, "c1"), &namespace]), is_owned),
        (owned(&[&owner("Namespace", "v1", "c1")]), is_owned),
        (owned(&[&owner("ClusterProfile", profile, "c2")]), is_owned),
        (owned(&[&owner("ClusterProfile", "example.com/v1", "c1")]), is_owned),
        (of_type(|_| {}, "example.com/other"), is_opaque),
        // The hub would put a token of that ServiceAccount into it.
        (of_type(of_account, "kubernetes.io/service-account-token"), is_opaque),
        (Create(fresh(|_| {}).field("data", json!({ "kubeconfig": "YQ==" }))), is_bare),
        (Create(fresh(|it| it["labels"][TOKEN_LABEL] = json!("true"))), no_token),
        (Create(fresh(|it| it["annotations"]["reflects"] = json!("true"))), ONLY_OWN_KEYS),
        (Create(copy("kube-system", "b", |_| {})), protected),
        (Create(copy("kube-public", "b", |_| {})), protected),
        (data(&mine, json!({ "token": "Yg==" })), ""),
        (data(&mine, json!({ "more": "Yg==" })), is_bare),
        (labels(&mine, json!({ SYNCED_FROM: "another" })), is_recorded),
        (labels(&mine, json!({ TOKEN_LABEL: "true" })), no_token),
        (labels(&mine, json!({ "team": "a" })), ONLY_OWN_KEYS),
        (metadata(&mine, json!({ "ownerReferences": null })), is_owned),
        (Delete(mine), ""),
        (data(&foreign, json!({ "token": "Yg==" })), is_own),
        (labels(&foreign, json!({ SYNCED_FROM: "foreign" })), is_own),
        (Delete(foreign), is_own),
        (data(&disguised, json!({ "token": "Yg==" })), is_opaque),
        (Delete(disguised), is_opaque),
        (data(&restored, json!({ "token": "Yg==" })), ""),
        (Delete(restored), ""),
        (Delete(marked), ""),
        // A copy without any metadata is recognized by its data.
        (Delete(stripped), ""),
        (data(&source, json!({ "token": "Yg==" })), is_own),
        (Delete(source), is_own),
        (and_condition("SyncedToClusterProfiles"), ""),
        (and_condition("Ours"), one_condition),
        (PatchStatus(account.clone(), json!({ "conditions": null })), one_condition),
        (
            PatchStatus(account.clone(), json!({ "tokenSecretRef": elsewhere })),
            "may only write conditions",
        ),
        (labels(&account, json!({ ocm::SYNC_LABEL: null })), only_status),
        (Create(ocm::managed_service_account("c1", "b")), only_status),
        (Delete(account), only_status),
    ];
    judged(&syncer, cases).await;
}

#[tokio::test]
async fn credential_rights_are_held_to_two_roles_and_one_subject() {
    let hub = installed(lists(Flavour::Map), &["policies.clusterManagers.users={ocm}"]).await;
    let (copies, tokens) =
        (format!("{RELEASE}-credentials-copies"), format!("{RELEASE}-credentials-tokens"));
    let labelled = |object: Object| {
        object
            .label("app.kubernetes.io/managed-by", "hub-addons")
            .label("app.kubernetes.io/component", "credential-rights")
    };
    let right = labelled(role_binding("default", &copies));
    let bound = |kind: &str, name: &str| {
        let role = json!({ "apiGroup": world::RBAC, "kind": kind, "name": name });
        Create(right.clone().field("roleRef", role))
    };
    let to = |subjects: &[Value]| Create(right.clone().field("subjects", json!(subjects)));
    let eve = || world::account("default", "eve");
    let (made, foreign) =
        (labelled(role_binding("made", &copies)), role_binding("foreign", &copies));
    let namespaces = ["made", "foreign"].map(ocm::namespace);
    world::create(&hub.ocm, namespaces).await;
    world::create(&hub.ocm, [made.clone(), foreign.clone()]).await;
    let unowned = json!({ "namespace": "default", "name": copies });
    let mut finalized = serde_json::to_value(right.parse().unwrap().metadata).unwrap();
    finalized["finalizers"] = json!([world::HOLD]);

    let by_name = "only write RoleBindings with the name hub-addons-credentials-copies";
    let is_collected = "must be owned by the ClusterRole hub-addons-credentials-copies";
    let is_labelled = "only create RoleBindings that have its labels";
    let one_role = "may only bind the ClusterRole hub-addons-credentials-copies";
    let one_subject =
        "may only bind its role to the credential syncer, addons/hub-addons-credentials";
    let protected = "permissions on Secrets must not be granted in kube-system";
    let none_changed = "may only create and delete RoleBindings";
    let only_rules = "only change the rules of the ClusterRole";
    let no_other = "may only change the ClusterRole hub-addons-credentials-tokens";
    let named_only = "may only grant list and watch on Secrets by name";
    let aggregated =
        json!({ "aggregationRule": { "clusterRoleSelectors": [{ "matchLabels": { "a": "b" } }] } });
    let tokens = cluster_role(&tokens);
    let role_owner =
        json!({ "apiVersion": "v1", "kind": "Namespace", "name": "default", "uid": "1" });
    let ruled = |rules: &[&Value]| Patch(tokens.clone(), json!({ "rules": rules }));
    let by = |resources: &[&str], verbs: &[&str], names: &[&str]| json!({ "apiGroups": [""], "resources": resources, "verbs": verbs, "resourceNames": names });
    let read = ["list", "watch"];
    let good = by(&["secrets"], &read, &["app"]);
    let everywhere = json!({ "nonResourceURLs": ["*"], "verbs": read });
    let cases = vec![
        (Create(right.clone()), ""),
        (Create(labelled(role_binding("default", "another"))), by_name),
        (Create(role_binding("default", &copies)), is_labelled),
        (Create(right.clone().label("argocd.argoproj.io/instance", "a")), ONLY_OWN_KEYS),
        (Create(labelled(right.clone().field("metadata", unowned))), is_collected),
        (Create(labelled(right.clone().field("metadata", finalized))), is_collected),
        (bound("ClusterRole", "cluster-admin"), one_role),
        (bound("Role", &copies), one_role),
        (to(&[eve()]), one_subject),
        (to(&[world::account("eve", "hub-addons-credentials")]), one_subject),
        (to(&[world::account(NAMESPACE, "hub-addons-credentials"), eve()]), one_subject),
        (to(&[]), one_subject),
        (to(&[world::subject("Group", "system:authenticated")]), one_subject),
        (Create(labelled(role_binding("kube-system", &copies))), protected),
        (labels(&made, json!({ "a": "b" })), none_changed),
        (Delete(made), ""),
        // It has taken the name.
        (Delete(foreign), ""),
        (ruled(&[&good]), ""),
        (ruled(&[]), ""),
        (ruled(&[&by(&["secrets"], &read, &[])]), named_only),
        (ruled(&[&by(&["secrets"], &read, &[""])]), named_only),
        (ruled(&[&by(&["secrets"], &["get"], &["app"])]), named_only),
        (ruled(&[&by(&["secrets"], &["*"], &["app"])]), named_only),
        (ruled(&[&by(&["secrets", "configmaps"], &read, &["app"])]), named_only),
        (ruled(&[&by(&["*"], &read, &["app"])]), named_only),
        (ruled(&[&good, &good]), named_only),
        (ruled(&[&everywhere]), named_only),
        (labels(&tokens, json!({ "a": "b" })), only_rules),
        (Patch(tokens.clone(), aggregated), only_rules),
        (held(&tokens), only_rules),
        (metadata(&tokens, json!({ "ownerReferences": [role_owner] })), only_rules),
        (Patch(cluster_role(&copies), json!({ "rules": null })), no_other),
        (Create(cluster_role("another")), no_other),
        (Delete(tokens.clone()), no_other),
    ];
    judged_as(&hub, &user("profiles"), cases).await;
}

#[tokio::test]
async fn no_other_user_creates_or_changes_a_synced_credential() {
    let hub = installed(lists(Flavour::Map), &["policies.clusterManagers.users={mallory}"]).await;
    let syncer = hub.client_like(&user("credentials"), MASTERS).await.unwrap();
    let mine = copy("default", "app", |_| {});
    mine.create(&syncer).await.unwrap();
    let theirs = opaque("default", "theirs").field("data", json!({ "token": "YQ==" }));
    theirs.create(&hub.ocm).await.unwrap();
    let creates = "only the credential syncer may create Secrets with the label";
    let changes = "only the credential syncer may change a copy of a token";
    let rotated = Patch(mine.clone(), json!({ "data": { "token": "Yg==" } }));
    let cases = vec![
        (Create(copy("default", "prepared", |_| {})), creates),
        (labels(&theirs, json!({ SYNCED_FROM: "theirs" })), changes),
        (labels(&mine, json!({ SYNCED_FROM: null })), changes),
        (labels(&mine, json!({ SYNCED_FROM: "another" })), changes),
        (metadata(&mine, json!({ "annotations": { OF_ACCOUNT: null } })), changes),
        (metadata(&mine, json!({ "annotations": { OF_UID: "2" } })), changes),
        (metadata(&mine, json!({ "ownerReferences": null })), changes),
        (held(&mine), changes),
        (rotated.clone(), changes),
        (Patch(mine.clone(), json!({ "data": { "more": "Yg==" } })), changes),
        (Patch(mine.clone(), json!({ "immutable": true })), changes),
        // Unrelated fields can be changed by any user whom RBAC permits.
        (metadata(&mine, json!({ "labels": { "a": "b" }, "annotations": { "a": "b" } })), ""),
        (Patch(theirs, json!({ "data": { "token": "Yg==" } })), ""),
        (Delete(mine.clone()), ""),
    ];
    judged_as(&hub, "eve", cases).await;
    let orphaned = metadata(&mine, json!({ "ownerReferences": null }));
    judged_as(&hub, COLLECTOR, vec![(orphaned, "")]).await;
    let restored = Create(copy("default", "restored", |_| {}));
    judged_as(&hub, "mallory", vec![(restored, "")]).await;
    judged(&syncer, vec![(rotated, "")]).await;
}

#[tokio::test]
async fn no_other_user_takes_the_name_of_the_permission_for_copies_or_changes_it() {
    let hub = installed(lists(Flavour::Map), &[]).await;
    let copies = format!("{RELEASE}-credentials-copies");
    let ours = role_binding("default", &copies)
        .label("app.kubernetes.io/managed-by", "hub-addons")
        .label("app.kubernetes.io/component", "credential-rights");
    let creator = hub.client_like(&user("profiles"), MASTERS).await.unwrap();
    ours.create(&creator).await.unwrap();
    let reserved = "only credential rights may create and change RoleBindings with the name";
    let cases = vec![
        (Create(role_binding("kube-public", &copies)), reserved),
        (labels(&ours, Value::Null), reserved),
        (Patch(ours.clone(), json!({ "subjects": null })), reserved),
        (Create(role_binding("default", "another")), ""),
        (Delete(ours.clone()), ""),
    ];
    judged_as(&hub, "eve", cases).await;
    judged_as(&hub, COLLECTOR, vec![(labels(&ours, Value::Null), "")]).await;
}

async fn no_other_user_claims_our_names(flavour: Flavour) {
    let values =
        ["policies.clusterManagers.users={mallory}", "policies.clusterManagers.groups={restorers}"];
    let hub = installed(lists(flavour), &values).await;
    let (ours, theirs) = profiles(&hub, "profiles").await;
    let foreign = provider("theirs", "https://theirs.example");
    let our = entry("https://cluster-proxy-addon-user.proxy:9092/c1", "c1");
    let profiles_user = hub.client_like(&user("profiles"), MASTERS).await.unwrap();
    merge_status(&profiles_user, &ours, &json!({ "accessProviders": [our, foreign] })).await;
    let lure = entry("https://eve.example", "c1");
    let marked = json!({ "annotations": { "a": "b" }, "finalizers": [world::HOLD] });
    let and_theirs = json!({ "conditions": [health(), condition("Theirs")] });
    let more = json!({ "accessProviders": [our, provider("more", "https://a.example")] });
    let deprecated_alone = json!({ "accessProviders": null, "credentialProviders": [lure] });
    let claims =
        "only the cluster manager open-cluster-management may create profiles that name it";
    let labelled = "only profiles whose spec names the cluster manager open-cluster-management may have its label";
    let changes =
        "only the cluster manager open-cluster-management may change the spec of its profiles";
    let publishes = "only hub-addons may publish the access provider open-cluster-management";
    let ours_new = || Create(credentials::profile("default", "c2"));
    let renamed = |it: &Object| Patch(it.clone(), json!({ "spec": { "displayName": "another" } }));
    let status = |it: &Object, status: Value| PatchStatus(it.clone(), status);
    let lures = || status(&ours, json!({ "accessProviders": [lure, foreign] }));
    let cases = vec![
        (ours_new(), claims),
        (Create(profile_of(MANAGER, "default", "c2")), claims),
        (Create(profile_of("somebody", "default", "c2").label(LABEL, MANAGER)), claims),
        (labels(&theirs, json!({ LABEL: MANAGER })), labelled),
        (renamed(&ours), changes),
        (lures(), publishes),
        (status(&theirs, json!({ "accessProviders": [lure] })), publishes),
        // Upstream's library reads the deprecated field where accessProviders lacks the name.
        (status(&theirs, json!({ "credentialProviders": [lure] })), publishes),
        (status(&ours, json!({ "credentialProviders": [lure, foreign] })), publishes),
        (status(&ours, deprecated_alone), publishes),
        (status(&theirs, json!({ "credentialProviders": [foreign] })), ""),
        // Unrelated objects can be changed by any user whom RBAC permits.
        (Create(profile_of("somebody", "default", "c2")), ""),
        (metadata(&ours, marked), ""),
        (labels(&ours, json!({ LABEL: null, "a": "b" })), ""),
        (renamed(&theirs), ""),
        (status(&ours, and_theirs), ""),
        (status(&ours, more), ""),
        (status(&ours, json!({ "accessProviders": null })), ""),
        (Delete(ours.clone()), ""),
    ];
    judged_as(&hub, "eve", cases).await;
    // The syncer is not a cluster manager, and neither is a user with only the permission.
    judged_as(&hub, &user("credentials"), vec![(ours_new(), claims)]).await;
    judged_as(&hub, NAMESPACES, vec![(Delete(ours.clone()), "")]).await;
    let orphaned = metadata(&ours, json!({ "ownerReferences": null }));
    judged_as(&hub, COLLECTOR, vec![(orphaned, "")]).await;
    // Cluster managers may.
    judged_as(&hub, REGISTRATION, vec![(ours_new(), ""), (renamed(&ours), "")]).await;
    judged_as(&hub, "mallory", vec![(ours_new(), ""), (lures(), "")]).await;
    let group = hub.client_like("trent", &["system:masters", "restorers"]).await.unwrap();
    judged(&group, vec![(ours_new(), "")]).await;
    // A label that was removed may be restored manually.
    merge(&hub.ocm, &ours, &json!({ "metadata": { "labels": { LABEL: null } } })).await;
    judged_as(&hub, "eve", vec![(labels(&ours, json!({ LABEL: MANAGER })), "")]).await;
}

#[tokio::test]
async fn no_other_user_claims_our_names_where_v1alpha2_alone_is_served() {
    let hub = installed(lists(Flavour::V1alpha2), &[]).await;
    hub.serve_versions(Flavour::V1alpha2, |version| version == "v1alpha2").await;
    let gvk = ("multicluster.x-k8s.io", "v1alpha2", "ClusterProfile");
    let claim = |manager: &str| {
        let spec = json!({ "clusterManager": { "name": manager } });
        Create(Object::new(gvk, "clusterprofiles", Some("default"), manager).field("spec", spec))
    };
    let claims =
        "only the cluster manager open-cluster-management may create profiles that name it";
    judged_as(&hub, "eve", vec![(claim(MANAGER), claims), (claim("somebody"), "")]).await;
}

/// The controller manager compiles every expression against the kinds that it is about, and says what does not fit.
#[tokio::test]
async fn no_expression_has_a_warning() {
    let direct = "featureGates.clusterProfileDirectAccessProvider=true";
    let access = "consumerAccess.enabled=true,consumerAccess.argoCDNamespaces={default},\
                  consumerAccess.permissions=ClusterPermission,consumerAccess.allowedClusterRoles={view}";
    let own = "userServer.enabled=true,userServer.proxyServer.namespace=proxy";
    let labels = "policies.protectClusterSets.enabled=true";
    let hub = installed(LocalHub::builder(), &[direct, access, own, labels]).await;
    let mut known = warnings(&hub).await;
    assert!(known.len() > 10, "{known:?}");
    known.retain(|_, warnings| !warnings.is_empty());
    assert!(known.is_empty(), "{known:#?}");

    // An expression with a mistake has a warning.
    let rule = json!({
        "apiGroups": ["multicluster.x-k8s.io"], "apiVersions": ["v1alpha1"], "operations": ["CREATE"],
        "resources": ["clusterprofiles"],
    });
    let spec = json!({
        "matchConstraints": { "resourceRules": [rule] },
        "validations": [{ "expression": "object.spec.clusterManager.nme == 'a'" }],
    });
    let wrong = world::object("ValidatingAdmissionPolicy", None, "wrong").field("spec", spec);
    wrong.create(&hub.ocm).await.unwrap();
    assert!(warnings(&hub).await["wrong"].contains("nme"));
}

/// The warnings of a hub's policies, once all have been checked.
async fn warnings(hub: &Hub) -> BTreeMap<String, String> {
    let api: Api<ValidatingAdmissionPolicy> = Api::all(hub.ocm.clone());
    eventually("every policy is checked", SOON, async || {
        let all = api.list(&ListParams::default()).await.unwrap().items;
        let each = all.into_iter().map(|policy| {
            let status = policy.status.unwrap_or_default();
            let checked = status.observed_generation == policy.metadata.generation;
            let warnings = status.type_checking.and_then(|checking| checking.expression_warnings);
            let warnings =
                warnings.iter().flatten().map(|it| format!("{}: {}", it.field_ref, it.warning));
            checked.then(|| (policy.metadata.name.unwrap_or_default(), warnings.collect()))
        });
        each.collect::<Option<BTreeMap<_, _>>>()
    })
    .await
}
