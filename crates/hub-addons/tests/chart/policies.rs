//! The requests that the chart's admission policies deny, with which message, and those that they allow. Every request
//! is a dry run, by users with all permissions.

use std::collections::BTreeMap;

use crate::support::chart::Attempt::{Create, Delete, Patch, PatchStatus};
use crate::support::chart::{
    Attempt, MASTERS, NAMESPACE, RELEASE, cluster_role, in_force, install, opaque, role_binding,
    user,
};
use crate::support::credentials::{self, MANAGER, OF_ACCOUNT, OF_CLUSTER, OF_UID, SYNCED_FROM};
use crate::support::flavours::on_each_flavour;
use crate::support::proxy::entry;
use crate::support::world::{merge, merge_status, profile_of};
use crate::support::{Hub, SOON, world};
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

/// Who tries what, and what of the refusal's words is expected; nothing where it is let through.
type Case = (&'static str, Attempt, Option<&'static str>);

async fn installed(builder: local_hub::HubBuilder, values: &[&str], policies: &[&str]) -> Hub {
    let hub = Hub::start(builder, Vec::new()).await;
    ocm::namespace("proxy").create(&hub.ocm).await.unwrap();
    install(&hub, &[&["accessProvider.clusterProxy.namespace=proxy"], values].concat()).await;
    in_force(&hub, policies).await;
    hub
}

fn lists(lists: Flavour) -> local_hub::HubBuilder {
    LocalHub::builder().without_controller_manager().flavour(lists)
}

/// Tries each case in the name of its user.
async fn judged(hub: &Hub, cases: Vec<Case>) {
    for (who, attempt, expected) in cases {
        let name =
            if ["profiles", "credentials"].contains(&who) { user(who) } else { who.to_owned() };
        let client = hub.client_like(&name, MASTERS).await.unwrap();
        let refusal = attempt.by(&client).await.err();
        let is_right = refusal.as_deref().map_or(expected.is_none(), |refusal| {
            let is_by_policy = refusal.contains("ValidatingAdmissionPolicy");
            is_by_policy && expected.is_some_and(|words| refusal.contains(words))
        });
        assert!(is_right, "{who} {attempt:?}: {refusal:?}, and not {expected:?}");
    }
}

/// The same in the name of one user.
async fn judged_as(hub: &Hub, who: &'static str, cases: Vec<(Attempt, Option<&'static str>)>) {
    let cases = cases.into_iter().map(|(attempt, expected)| (who, attempt, expected));
    judged(hub, cases.collect()).await;
}

const ONLY_OWN_KEYS: Option<&str> =
    Some("must not set labels and annotations that are not its own");

/// A profile of ours, with a status that others have added to, and one of somebody else's.
async fn profiles(hub: &Hub) -> (Object, Object) {
    let ours = credentials::profile("default", "c1");
    let maker = hub.client_like(&user("profiles"), MASTERS).await.unwrap();
    let maker = if ours.create(&maker).await.is_ok() {
        maker
    } else {
        let maker = hub.client_like(&user("projector"), MASTERS).await.unwrap();
        ours.create(&maker).await.unwrap();
        maker
    };
    merge_status(
        &maker,
        &ours,
        &json!({ "version": { "kubernetes": "v1" }, "conditions": [health()] }),
    )
    .await;
    let theirs = json!({ "accessProviders": [provider("theirs", "https://theirs.example")] });
    merge_status(&hub.ocm, &ours, &theirs).await;
    (ours, profile_of("somebody", "default", "theirs"))
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

fn labels(labels: &Value) -> Value {
    json!({ "metadata": { "labels": labels } })
}

async fn the_writer_of_profiles_is_held_to_ours(flavour: Flavour) {
    let hub = installed(
        lists(flavour),
        &[
            "featureGates.clusterProfileDirectAccessProvider=true",
            "propagateLabels={region,team.example.com/*}",
        ],
        &["profiles", "access-providers"],
    )
    .await;
    let (ours, theirs) = profiles(&hub).await;
    let foreign = provider("theirs", "https://theirs.example");
    let our = entry("https://cluster-proxy-addon-user.proxy:9092/c1", "c1");
    let direct = provider("open-cluster-management-direct", "https://c1.example");
    let mislabelled = credentials::profile("default", "c2")
        .label("open-cluster-management.io/cluster-name", "c1");
    let all =
        json!({ "version": { "kubernetes": "v2" }, "properties": [{ "name": "a", "value": "b" }] });
    let and_theirs = json!({ "conditions": [health(), condition("Theirs")] });
    let publish =
        |entries: &[&Value]| PatchStatus(ours.clone(), json!({ "accessProviders": entries }));
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
        Some("the access provider open-cluster-management must lead to the cluster of the profile");
    let leads_directly =
        Some("the access provider open-cluster-management-direct must lead to the cluster");
    let is_ours = Some("only write profiles of the cluster manager open-cluster-management");
    let is_labelled = Some("the labels of a profile must name its cluster manager");
    let only_providers = Some(
        "of the access providers, this component may only write open-cluster-management, open-cluster-management-direct",
    );
    let only_conditions =
        Some("of the conditions, this component may only write ControlPlaneHealthy, Joined");
    let others = Some("must not set annotations, finalizers and owners of a profile");
    let only_removes = Some("from credentialProviders, this component may only remove");
    let deprecated =
        |entries: &[&Value]| PatchStatus(ours.clone(), json!({ "credentialProviders": entries }));
    // As a cluster manager published them before.
    let registration = hub.client_like(REGISTRATION, MASTERS).await.unwrap();
    merge_status(&registration, &ours, &json!({ "credentialProviders": [lure, foreign] })).await;
    judged_as(
        &hub,
        "profiles",
        vec![
            (Create(credentials::profile("default", "c2")), None),
            (Create(credentials::profile("default", "c2").label("region", "eu")), None),
            (Create(profile_of("somebody", "default", "c2")), is_ours),
            (Create(profile_of(MANAGER, "default", "c2")), is_labelled),
            (Create(mislabelled), is_labelled),
            (Create(credentials::profile("default", "c2").annotation("a", "b")), others),
            (
                Patch(ours.clone(), labels(&json!({ "region": "eu", "team.example.com/a": "b" }))),
                None,
            ),
            (Patch(ours.clone(), labels(&json!({ "regions": "eu" }))), ONLY_OWN_KEYS),
            (
                Create(credentials::profile("default", "c2").label("team.example", "a")),
                ONLY_OWN_KEYS,
            ),
            (Patch(ours.clone(), json!({ "spec": { "displayName": "another" } })), None),
            (Patch(ours.clone(), labels(&json!({ LABEL: "somebody" }))), is_labelled),
            (Patch(ours.clone(), labels(&json!({ LABEL: null }))), is_labelled),
            (Patch(ours.clone(), json!({ "metadata": { "annotations": { "a": "b" } } })), others),
            (
                Patch(ours.clone(), json!({ "metadata": { "finalizers": ["example.com/hold"] } })),
                others,
            ),
            (Patch(theirs.clone(), labels(&json!({ "region": "eu" }))), is_ours),
            (Patch(theirs.clone(), labels(&json!({ LABEL: MANAGER }))), is_ours),
            (Delete(ours.clone()), None),
            (Delete(theirs.clone()), is_ours),
            (PatchStatus(ours.clone(), all), None),
            (PatchStatus(ours.clone(), json!({ "conditions": [condition("Joined")] })), None),
            (PatchStatus(ours.clone(), and_theirs), only_conditions),
            (publish(&[&our, &foreign, &direct]), None),
            (publish(&[&lure, &foreign, &direct]), leads),
            (publish(&[&mixed_up, &foreign, &direct]), leads),
            (publish(&[&proxied, &foreign, &direct]), leads),
            (publish(&[&our, &foreign, &direct_by_proxy]), leads_directly),
            (publish(&[&our, &foreign, &direct_elsewhere]), None),
            (publish(&[&our]), only_providers),
            (PatchStatus(ours.clone(), json!({ "accessProviders": null })), only_providers),
            (publish(&[&foreign, &more]), only_providers),
            (publish(&[&provider("theirs", "https://b.example")]), only_providers),
            (PatchStatus(theirs.clone(), json!({ "version": { "kubernetes": "v2" } })), is_ours),
            // The field that upstream's library still reads.
            (deprecated(&[&foreign]), None),
            (deprecated(&[&our, &foreign]), only_removes),
            (deprecated(&[&lure, &foreign, &more]), only_removes),
            (deprecated(&[&lure]), only_removes),
            (PatchStatus(ours.clone(), json!({ "credentialProviders": null })), only_removes),
        ],
    )
    .await;
    // Ours by its spec alone is not to be deleted.
    merge(&hub.ocm, &ours, &labels(&json!({ LABEL: null }))).await;
    let delete = (
        "profiles",
        Delete(ours),
        Some("only be deleted if label and spec name the cluster manager"),
    );
    judged(&hub, vec![delete]).await;
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
        let hub = installed(lists(Flavour::Atomic), &[&off, &exempt], &["profiles"]).await;
        let (ours, _) = profiles(&hub).await;
        (hub, ours)
    };
    let (hub, ours) = without("clusterProfileAccessProvider").await;
    let others =
        Some("in the status, this component may only write version, properties, conditions");
    let entries = PatchStatus(ours.clone(), json!({ "accessProviders": [our, foreign] }));
    let cases =
        vec![("profiles", PatchStatus(ours, version.clone()), None), ("profiles", entries, others)];
    judged(&hub, cases).await;

    let (hub, ours) = without("clusterProfile").await;
    // The largest possible profile: its comparison must stay below the API server's cost limit for expressions.
    let much: Vec<_> =
        (0..700).map(|i| json!({ "name": format!("p{i}"), "value": "x".repeat(1024) })).collect();
    let projector = hub.client_like(&user("projector"), MASTERS).await.unwrap();
    merge_status(&projector, &ours, &json!({ "properties": much })).await;
    let mut large = our.clone();
    large["cluster"]["certificate-authority-data"] = json!("QUFB".repeat(64 * 1024 / 3));
    let only_status = Some("this component may only write the status of profiles");
    let only_entries = Some("in the status, this component may only write accessProviders");
    let cases = vec![
        (PatchStatus(ours.clone(), json!({ "accessProviders": [large, foreign] })), None),
        (PatchStatus(ours.clone(), version), only_entries),
        (PatchStatus(ours.clone(), json!({ "conditions": null })), only_entries),
        (Create(credentials::profile("default", "c2")), only_status),
        (Patch(ours.clone(), labels(&json!({ "a": "b" }))), only_status),
        (Delete(ours), only_status),
    ];
    judged_as(&hub, "profiles", cases).await;
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
    let policies = ["credentials-secrets", "credentials-accounts", "access-providers"];
    let values = ["credentials.secretAccess=cluster", "policies.clusterManagers.users={ocm}"];
    let hub = installed(lists(Flavour::Map), &values, &policies).await;
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
    let restored = copy("default", "restored", |metadata| metadata["labels"]["team"] = json!("a"));
    // A token that its agent has marked as a copy, too.
    let marked =
        copy("default", "marked", |metadata| metadata["labels"][TOKEN_LABEL] = json!("true"));
    let stripped =
        opaque("default", "stripped").field("data", json!({ "token": "YQ==", "ca.crt": "YQ==" }));
    world::create(
        &hub.ocm,
        [&foreign, &disguised, &restored, &marked, &stripped].map(Clone::clone),
    )
    .await;

    let is_own = Some("may only change and delete Secrets that are labelled as copies");
    let is_opaque = Some("may only write Secrets of type Opaque");
    let is_recorded =
        Some("name and label of a copy must be those of the cluster and the ManagedServiceAccount");
    let is_owned = Some("a copy must have one owner, the ClusterProfile of its cluster");
    let is_bare = Some("a copy must not contain data other than token and ca.crt");
    let no_token = Some("must not label a Secret as one in which an agent reports a token");
    let reflected = |it: &mut Value| it["annotations"]["reflector/reflects"] = json!("true");
    let protected =
        Some("copies of tokens must not be created in kube-system, kube-public, kube-node-lease");
    let only_status = Some("only write the status of a ManagedServiceAccount");
    let one_condition = Some("only write the condition SyncedToClusterProfiles");
    let account = token.account();
    let said = world::get(&hub.ocm, &account).await.unwrap()["status"]["conditions"].clone();
    let and_condition = |kind: &str| {
        let mut conditions = said.as_array().unwrap().clone();
        conditions.push(condition(kind));
        json!({ "conditions": conditions })
    };
    let elsewhere = json!({ "name": "another", "lastRefreshTimestamp": "2026-01-01T00:00:00Z" });
    let fresh = |edit: &dyn Fn(&mut Value)| copy("default", "b", edit);
    let owned = |owner: Value| fresh(&|metadata| metadata["ownerReferences"] = json!([owner]));
    let long = |label: String| {
        copy("default", &"b".repeat(100), |metadata| metadata["labels"][SYNCED_FROM] = json!(label))
    };
    let profile = owner("ClusterProfile", "multicluster.x-k8s.io/v1alpha1", "c1");
    let of_account =
        |it: &mut Value| it["annotations"]["kubernetes.io/service-account.name"] = json!("default");
    let namespace =
        json!({ "apiVersion": "v1", "kind": "Namespace", "name": "default", "uid": "1" });
    judged_as(
        &hub,
        "credentials",
        vec![
            (Create(fresh(&|_| {})), None),
            (Create(long(format!("c1-{}-0123456789", "b".repeat(49)))), None),
            (Create(long(format!("c2-{}-0123456789", "b".repeat(49)))), is_recorded),
            (Create(opaque("default", "c1-b")), is_recorded),
            (
                Create(fresh(&|metadata| metadata["labels"][SYNCED_FROM] = json!("c1-c"))),
                is_recorded,
            ),
            (
                Create(fresh(&|metadata| metadata["annotations"][OF_ACCOUNT] = json!("c"))),
                is_recorded,
            ),
            (Create(fresh(&|metadata| metadata["ownerReferences"] = json!(null))), is_owned),
            (Create(fresh(&|it| it["ownerReferences"] = json!([profile, namespace]))), is_owned),
            (Create(owned(owner("Namespace", "v1", "c1"))), is_owned),
            (
                Create(owned(owner("ClusterProfile", "multicluster.x-k8s.io/v1alpha1", "c2"))),
                is_owned,
            ),
            (Create(owned(owner("ClusterProfile", "example.com/v1", "c1"))), is_owned),
            (Create(fresh(&|_| {}).field("type", json!("example.com/other"))), is_opaque),
            // The hub would put a token of that ServiceAccount into it.
            (
                Create(
                    fresh(&of_account).field("type", json!("kubernetes.io/service-account-token")),
                ),
                is_opaque,
            ),
            (Create(fresh(&|_| {}).field("data", json!({ "kubeconfig": "YQ==" }))), is_bare),
            (Create(fresh(&|metadata| metadata["labels"][TOKEN_LABEL] = json!("true"))), no_token),
            (Create(fresh(&reflected)), ONLY_OWN_KEYS),
            (Create(copy("kube-system", "b", |_| {})), protected),
            (Create(copy("kube-public", "b", |_| {})), protected),
            (Patch(mine.clone(), json!({ "data": { "token": "Yg==" } })), None),
            (Patch(mine.clone(), json!({ "data": { "more": "Yg==" } })), is_bare),
            (Patch(mine.clone(), labels(&json!({ SYNCED_FROM: "another" }))), is_recorded),
            (Patch(mine.clone(), labels(&json!({ TOKEN_LABEL: "true" }))), no_token),
            (Patch(mine.clone(), labels(&json!({ "team": "a" }))), ONLY_OWN_KEYS),
            (Patch(mine.clone(), json!({ "metadata": { "ownerReferences": null } })), is_owned),
            (Delete(mine), None),
            (Patch(foreign.clone(), json!({ "data": { "token": "Yg==" } })), is_own),
            (Patch(foreign.clone(), labels(&json!({ SYNCED_FROM: "foreign" }))), is_own),
            (Delete(foreign), is_own),
            (Patch(disguised.clone(), json!({ "data": { "token": "Yg==" } })), is_opaque),
            (Delete(disguised), is_opaque),
            (Patch(restored.clone(), json!({ "data": { "token": "Yg==" } })), None),
            (Delete(restored), None),
            (Delete(marked), None),
            // A copy without any metadata is recognized by its data.
            (Delete(stripped), None),
            (Patch(source.clone(), json!({ "data": { "token": "Yg==" } })), is_own),
            (Delete(source), is_own),
            (PatchStatus(account.clone(), and_condition("SyncedToClusterProfiles")), None),
            (PatchStatus(account.clone(), and_condition("Ours")), one_condition),
            (PatchStatus(account.clone(), json!({ "conditions": null })), one_condition),
            (
                PatchStatus(account.clone(), json!({ "tokenSecretRef": elsewhere })),
                Some("may only write conditions"),
            ),
            (Patch(account.clone(), labels(&json!({ ocm::SYNC_LABEL: null }))), only_status),
            (Create(ocm::managed_service_account("c1", "b")), only_status),
            (Delete(account), only_status),
        ],
    )
    .await;
}

#[tokio::test]
#[allow(clippy::too_many_lines, reason = "a table")]
async fn credential_rights_are_held_to_two_roles_and_one_subject() {
    let policies =
        ["profiles", "profiles-rolebindings", "profiles-clusterroles", "access-providers"];
    let values = ["policies.clusterManagers.users={ocm}"];
    let hub = installed(lists(Flavour::Map), &values, &policies).await;
    let (copies, tokens) =
        (format!("{RELEASE}-credentials-copies"), format!("{RELEASE}-credentials-tokens"));
    let labelled = |object: Object| {
        object
            .label("app.kubernetes.io/managed-by", "hub-addons")
            .label("app.kubernetes.io/component", "credential-rights")
    };
    let right = labelled(role_binding("default", &copies));
    let role = |name: &str| json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name });
    let subject = |namespace: &str, name: &str| json!({ "kind": "ServiceAccount", "namespace": namespace, "name": name });
    let of_namespace =
        json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": copies });
    let everybody = json!({
        "kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": "system:authenticated",
    });
    let to = |subjects: &[Value]| Create(right.clone().field("subjects", json!(subjects)));
    let syncer = subject(NAMESPACE, &format!("{RELEASE}-credentials"));
    ocm::namespace("made").create(&hub.ocm).await.unwrap();
    ocm::namespace("foreign").create(&hub.ocm).await.unwrap();
    let named = json!({ "namespace": "default", "name": copies });
    let unowned = role_binding("default", &copies).field("metadata", named);
    let mut metadata = serde_json::to_value(right.parse().unwrap().metadata).unwrap();
    metadata["finalizers"] = json!(["example.com/hold"]);
    let held = right.clone().field("metadata", metadata);
    let is_collected = Some("must be owned by the ClusterRole hub-addons-credentials-copies");
    let made = labelled(role_binding("made", &copies));
    let foreign = role_binding("foreign", &copies);
    world::create(&hub.ocm, [made.clone(), foreign.clone()]).await;

    let by_name = Some("only write RoleBindings with the name hub-addons-credentials-copies");
    let is_labelled = Some("only create RoleBindings that have its labels");
    let one_role = Some("may only bind the ClusterRole hub-addons-credentials-copies");
    let one_subject =
        Some("may only bind its role to the credential syncer, addons/hub-addons-credentials");
    let protected = Some("permissions on Secrets must not be granted in kube-system");
    let none_changed = Some("may only create and delete RoleBindings");
    let only_rules = Some("only change the rules of the ClusterRole");
    let no_other = Some("may only change the ClusterRole hub-addons-credentials-tokens");
    let aggregated =
        json!({ "aggregationRule": { "clusterRoleSelectors": [{ "matchLabels": { "a": "b" } }] } });
    let named_only = Some("may only grant list and watch on Secrets by name");
    let tokens_role = cluster_role(&tokens);
    let role_owner =
        json!({ "apiVersion": "v1", "kind": "Namespace", "name": "default", "uid": "1" });
    let ruled = |rule: Value| Patch(tokens_role.clone(), json!({ "rules": [rule] }));
    let by = |resources: &[&str], verbs: &[&str], names: &[&str]| json!({ "apiGroups": [""], "resources": resources, "verbs": verbs, "resourceNames": names });
    let good = by(&["secrets"], &["list", "watch"], &["app"]);
    judged_as(
        &hub,
        "profiles",
        vec![
            (Create(right.clone()), None),
            (Create(labelled(role_binding("default", "another"))), by_name),
            (Create(role_binding("default", &copies)), is_labelled),
            (Create(right.clone().label("argocd.argoproj.io/instance", "a")), ONLY_OWN_KEYS),
            (Create(labelled(unowned)), is_collected),
            (Create(labelled(held)), is_collected),
            (Create(right.clone().field("roleRef", role("cluster-admin"))), one_role),
            (Create(right.clone().field("roleRef", of_namespace)), one_role),
            (to(&[subject("default", "eve")]), one_subject),
            (to(&[subject("eve", "hub-addons-credentials")]), one_subject),
            (to(&[syncer, subject("default", "eve")]), one_subject),
            (to(&[]), one_subject),
            (to(&[everybody]), one_subject),
            (Create(labelled(role_binding("kube-system", &copies))), protected),
            (Patch(made.clone(), labels(&json!({ "a": "b" }))), none_changed),
            (Delete(made), None),
            // It has taken the name.
            (Delete(foreign), None),
            (ruled(good.clone()), None),
            (Patch(tokens_role.clone(), json!({ "rules": null })), None),
            (ruled(by(&["secrets"], &["list", "watch"], &[])), named_only),
            (ruled(by(&["secrets"], &["list", "watch"], &[""])), named_only),
            (ruled(by(&["secrets"], &["get"], &["app"])), named_only),
            (ruled(by(&["secrets"], &["*"], &["app"])), named_only),
            (ruled(by(&["secrets", "configmaps"], &["list", "watch"], &["app"])), named_only),
            (ruled(by(&["*"], &["list", "watch"], &["app"])), named_only),
            (Patch(tokens_role.clone(), json!({ "rules": [good, good] })), named_only),
            (ruled(json!({ "nonResourceURLs": ["*"], "verbs": ["list", "watch"] })), named_only),
            (Patch(tokens_role.clone(), labels(&json!({ "a": "b" }))), only_rules),
            (Patch(tokens_role.clone(), aggregated), only_rules),
            (
                Patch(
                    tokens_role.clone(),
                    json!({ "metadata": { "finalizers": ["example.com/hold"] } }),
                ),
                only_rules,
            ),
            (
                Patch(
                    tokens_role.clone(),
                    json!({ "metadata": { "ownerReferences": [role_owner] } }),
                ),
                only_rules,
            ),
            (Patch(cluster_role(&copies), json!({ "rules": null })), no_other),
            (Create(cluster_role("another")), no_other),
            (Delete(tokens_role.clone()), no_other),
        ],
    )
    .await;
}

#[tokio::test]
async fn no_other_user_creates_or_changes_a_synced_credential() {
    let values = ["policies.clusterManagers.users={mallory}"];
    let hub = installed(lists(Flavour::Map), &values, &["synced-credentials"]).await;
    let syncer = hub.client_like(&user("credentials"), MASTERS).await.unwrap();
    let mine = copy("default", "app", |_| {});
    mine.create(&syncer).await.unwrap();
    let theirs = opaque("default", "theirs").field("data", json!({ "token": "YQ==" }));
    theirs.create(&hub.ocm).await.unwrap();
    let creates = Some("only the credential syncer may create Secrets with the label");
    let changes = Some("only the credential syncer may change a copy of a token");
    let metadata = |patch: Value| Patch(mine.clone(), json!({ "metadata": patch }));
    judged(
        &hub,
        [
            (Create(copy("default", "prepared", |_| {})), creates),
            (Patch(theirs.clone(), labels(&json!({ SYNCED_FROM: "theirs" }))), changes),
            (metadata(json!({ "labels": { SYNCED_FROM: null } })), changes),
            (metadata(json!({ "labels": { SYNCED_FROM: "another" } })), changes),
            (metadata(json!({ "annotations": { OF_ACCOUNT: null } })), changes),
            (metadata(json!({ "annotations": { OF_UID: "2" } })), changes),
            (metadata(json!({ "ownerReferences": null })), changes),
            (metadata(json!({ "finalizers": ["example.com/hold"] })), changes),
            (Patch(mine.clone(), json!({ "data": { "token": "Yg==" } })), changes),
            (Patch(mine.clone(), json!({ "data": { "more": "Yg==" } })), changes),
            (Patch(mine.clone(), json!({ "immutable": true })), changes),
            // Unrelated fields can be changed by any user whom RBAC permits.
            (metadata(json!({ "labels": { "a": "b" }, "annotations": { "a": "b" } })), None),
            (Patch(theirs, json!({ "data": { "token": "Yg==" } })), None),
            (Delete(mine.clone()), None),
        ]
        .into_iter()
        .map(|(attempt, expected)| ("eve", attempt, expected))
        .chain([
            (COLLECTOR, metadata(json!({ "ownerReferences": null })), None),
            ("mallory", Create(copy("default", "restored", |_| {})), None),
            ("credentials", Patch(mine.clone(), json!({ "data": { "token": "Yg==" } })), None),
        ])
        .collect(),
    )
    .await;
}

#[tokio::test]
async fn no_other_user_takes_the_name_of_the_permission_for_copies_or_changes_it() {
    let hub = installed(lists(Flavour::Map), &[], &["copies-permission"]).await;
    let copies = format!("{RELEASE}-credentials-copies");
    let ours = role_binding("default", &copies)
        .label("app.kubernetes.io/managed-by", "hub-addons")
        .label("app.kubernetes.io/component", "credential-rights");
    let creator = hub.client_like(&user("profiles"), MASTERS).await.unwrap();
    ours.create(&creator).await.unwrap();
    let reserved = Some("only credential rights may create and change RoleBindings with the name");
    let unlabelled = Patch(ours.clone(), json!({ "metadata": { "labels": null } }));
    judged(
        &hub,
        vec![
            ("eve", Create(role_binding("kube-public", &copies)), reserved),
            ("eve", unlabelled.clone(), reserved),
            ("eve", Patch(ours.clone(), json!({ "subjects": null })), reserved),
            ("eve", Create(role_binding("default", "another")), None),
            ("eve", Delete(ours), None),
            (COLLECTOR, unlabelled, None),
        ],
    )
    .await;
}

async fn no_other_user_claims_our_names(flavour: Flavour) {
    let values =
        ["policies.clusterManagers.users={mallory}", "policies.clusterManagers.groups={restorers}"];
    let hub =
        installed(lists(flavour), &values, &["profiles", "manager-name", "access-providers"]).await;
    let (ours, theirs) = profiles(&hub).await;
    let foreign = provider("theirs", "https://theirs.example");
    let our = entry("https://cluster-proxy-addon-user.proxy:9092/c1", "c1");
    let profiles_user = hub.client_like(&user("profiles"), MASTERS).await.unwrap();
    merge_status(&profiles_user, &ours, &json!({ "accessProviders": [our, foreign] })).await;
    let lure = entry("https://eve.example", "c1");
    let marked =
        json!({ "metadata": { "annotations": { "a": "b" }, "finalizers": ["example.com/hold"] } });
    let orphaned = json!({ "metadata": { "ownerReferences": null } });
    let and_theirs = json!({ "conditions": [health(), condition("Theirs")] });
    let more = json!({ "accessProviders": [our, provider("more", "https://a.example")] });
    let deprecated_alone = json!({ "accessProviders": null, "credentialProviders": [lure] });
    let claims =
        Some("only the cluster manager open-cluster-management may create profiles that name it");
    let labelled = Some(
        "only profiles whose spec names the cluster manager open-cluster-management may have its label",
    );
    let changes = Some(
        "only the cluster manager open-cluster-management may change the spec of its profiles",
    );
    let publishes = Some("only hub-addons may publish the access provider open-cluster-management");
    judged(
        &hub,
        vec![
            ("eve", Create(credentials::profile("default", "c2")), claims),
            ("eve", Create(profile_of(MANAGER, "default", "c2")), claims),
            ("eve", Create(profile_of("somebody", "default", "c2").label(LABEL, MANAGER)), claims),
            ("eve", Patch(theirs.clone(), labels(&json!({ LABEL: MANAGER }))), labelled),
            ("eve", Patch(ours.clone(), json!({ "spec": { "displayName": "another" } })), changes),
            (
                "eve",
                PatchStatus(ours.clone(), json!({ "accessProviders": [lure, foreign] })),
                publishes,
            ),
            ("eve", PatchStatus(theirs.clone(), json!({ "accessProviders": [lure] })), publishes),
            // Upstream's library reads the deprecated field where accessProviders lacks the name.
            (
                "eve",
                PatchStatus(theirs.clone(), json!({ "credentialProviders": [lure] })),
                publishes,
            ),
            (
                "eve",
                PatchStatus(ours.clone(), json!({ "credentialProviders": [lure, foreign] })),
                publishes,
            ),
            ("eve", PatchStatus(ours.clone(), deprecated_alone), publishes),
            ("eve", PatchStatus(theirs.clone(), json!({ "credentialProviders": [foreign] })), None),
            // The syncer is not a cluster manager, and neither is a user with only the permission.
            ("credentials", Create(credentials::profile("default", "c2")), claims),
            // Unrelated objects can be changed by any user whom RBAC permits.
            ("eve", Create(profile_of("somebody", "default", "c2")), None),
            ("eve", Patch(ours.clone(), marked), None),
            ("eve", Patch(ours.clone(), labels(&json!({ LABEL: null, "a": "b" }))), None),
            ("eve", Patch(theirs.clone(), json!({ "spec": { "displayName": "another" } })), None),
            ("eve", PatchStatus(ours.clone(), and_theirs), None),
            ("eve", PatchStatus(ours.clone(), more), None),
            ("eve", PatchStatus(ours.clone(), json!({ "accessProviders": null })), None),
            ("eve", Delete(ours.clone()), None),
            (NAMESPACES, Delete(ours.clone()), None),
            (COLLECTOR, Patch(ours.clone(), orphaned), None),
            // Cluster managers may.
            (REGISTRATION, Create(credentials::profile("default", "c2")), None),
            (
                REGISTRATION,
                Patch(ours.clone(), json!({ "spec": { "displayName": "another" } })),
                None,
            ),
            ("mallory", Create(credentials::profile("default", "c2")), None),
            (
                "mallory",
                PatchStatus(ours.clone(), json!({ "accessProviders": [lure, foreign] })),
                None,
            ),
        ],
    )
    .await;
    let group = hub.client_like("trent", &["system:masters", "restorers"]).await.unwrap();
    assert_eq!(Create(credentials::profile("default", "c2")).by(&group).await, Ok(()));
    // A label that was removed may be restored manually.
    merge(&hub.ocm, &ours, &labels(&json!({ LABEL: null }))).await;
    judged(&hub, vec![("eve", Patch(ours, labels(&json!({ LABEL: MANAGER }))), None)]).await;
}

#[tokio::test]
async fn no_other_user_claims_our_names_where_v1alpha2_alone_is_served() {
    let hub = installed(lists(Flavour::V1alpha2), &[], &["manager-name"]).await;
    hub.serve_versions(Flavour::V1alpha2, |version| version == "v1alpha2").await;
    let gvk = ("multicluster.x-k8s.io", "v1alpha2", "ClusterProfile");
    let claim = |manager: &str| {
        let spec = json!({ "clusterManager": { "name": manager } });
        Object::new(gvk, "clusterprofiles", Some("default"), manager).field("spec", spec)
    };
    let claims =
        Some("only the cluster manager open-cluster-management may create profiles that name it");
    // The policy's own view of which versions there are follows.
    eventually("the policy is in force for v1alpha2", SOON, async || {
        let eve = hub.client_like("eve", MASTERS).await.unwrap();
        Create(claim(MANAGER)).by(&eve).await.is_err()
    })
    .await;
    judged(
        &hub,
        vec![("eve", Create(claim(MANAGER)), claims), ("eve", Create(claim("somebody")), None)],
    )
    .await;
}

/// The controller manager compiles every expression against the kinds that it is about, and says what does not fit.
#[tokio::test]
async fn no_expression_has_a_warning() {
    let direct = "featureGates.clusterProfileDirectAccessProvider=true";
    let access = "consumerAccess.enabled=true,consumerAccess.argoCDNamespaces={default},\
                  consumerAccess.permissions=ClusterPermission,consumerAccess.allowedClusterRoles={view}";
    let own = "userServer.enabled=true,userServer.proxyServer.namespace=proxy";
    let labels = "policies.protectClusterSets.enabled=true";
    let hub = installed(LocalHub::builder(), &[direct, access, own, labels], &[]).await;
    let mut known = warnings(&hub).await;
    assert!(known.len() > 10, "{known:?}");
    known.retain(|_, warnings| !warnings.is_empty());
    assert!(known.is_empty(), "{known:#?}");

    // An expression with a mistake has a warning.
    let gvk = ("admissionregistration.k8s.io", "v1", "ValidatingAdmissionPolicy");
    let rule = json!({
        "apiGroups": ["multicluster.x-k8s.io"], "apiVersions": ["v1alpha1"], "operations": ["CREATE"],
        "resources": ["clusterprofiles"],
    });
    let spec = json!({
        "matchConstraints": { "resourceRules": [rule] },
        "validations": [{ "expression": "object.spec.clusterManager.nme == 'a'" }],
    });
    let wrong = Object::new(gvk, "validatingadmissionpolicies", None, "wrong").field("spec", spec);
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
