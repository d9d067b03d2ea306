//! What users and other controllers do to a hub's objects.

use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use kube::{Client, Resource as _, ResourceExt as _};
use local_hub::{LocalHub, eventually, ocm};
use serde_json::{Value, json};

use super::SOON;

type Gvk<'a> = (&'a str, &'a str, &'a str);

/// The group of roles and their bindings.
pub const RBAC: &str = "rbac.authorization.k8s.io";
/// A finalizer that no controller in a test removes.
pub const HOLD: &str = "example.com/hold";

/// An object of a kind of Kubernetes.
pub fn object(kind: &str, namespace: Option<&str>, name: &str) -> ocm::Object {
    let group = match kind {
        "Deployment" | "StatefulSet" => "apps",
        "Job" => "batch",
        "Lease" => "coordination.k8s.io",
        "CustomResourceDefinition" => "apiextensions.k8s.io",
        "NetworkPolicy" => "networking.k8s.io",
        "ValidatingAdmissionPolicy" => "admissionregistration.k8s.io",
        "TokenReview" => "authentication.k8s.io",
        "SubjectAccessReview" => "authorization.k8s.io",
        "ManifestWork" => "work.open-cluster-management.io",
        _ if kind.contains("Role") => RBAC,
        _ => "",
    };
    let plural = format!("{}s", kind.to_lowercase()).replace("policys", "policies");
    ocm::Object::new((group, "v1", kind), &plural, namespace, name)
}

/// A binding of a role of this kind to a subject.
pub fn binding(
    namespace: Option<&str>,
    name: &str,
    (kind, role): (&str, &str),
    subject: Value,
) -> ocm::Object {
    let binding = if namespace.is_some() { "RoleBinding" } else { "ClusterRoleBinding" };
    object(binding, namespace, name)
        .field("roleRef", json!({ "apiGroup": RBAC, "kind": kind, "name": role }))
        .field("subjects", Value::from(vec![subject]))
}

/// A Deployment, or another workload of this kind, whose Pods have this container.
pub fn workload(kind: &str, namespace: &str, name: &str, container: &Value) -> ocm::Object {
    let labels = json!({ "app": name });
    let template =
        json!({ "metadata": { "labels": labels }, "spec": { "containers": [container] } });
    object(kind, Some(namespace), name)
        .field("spec", json!({ "selector": { "matchLabels": labels }, "template": template }))
}

/// A user or a group as a subject.
pub fn subject(kind: &str, name: &str) -> Value {
    json!({ "apiGroup": RBAC, "kind": kind, "name": name })
}

/// A ServiceAccount as a subject.
pub fn account(namespace: &str, name: &str) -> Value {
    json!({ "kind": "ServiceAccount", "namespace": namespace, "name": name })
}

/// Creates objects in this order.
pub async fn create<const N: usize>(client: &Client, objects: [ocm::Object; N]) {
    for object in objects {
        object.create(client).await.unwrap();
    }
}

/// A namespace to which a set of its name is bound, with these clusters.
pub async fn grant(client: &Client, namespace: &str, clusters: &[&str]) {
    ensure_namespace(client, namespace).await;
    create(client, [ocm::cluster_set(namespace), ocm::bound(namespace, namespace)]).await;
    let clusters = clusters.iter().map(|name| ocm::ManagedCluster::named(name).in_set(namespace));
    ocm::create_all(client, clusters).await.unwrap();
}

/// Installs a CRD that accepts everything: its group, version and kind, and its scope.
pub async fn install_open_crd(hub: &LocalHub, (group, version, kind): Gvk<'_>, scope: &str) {
    let open = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    install_crd(hub, (group, version, kind), scope, &open).await;
}

/// Installs a CRD with this schema.
pub async fn install_crd(
    hub: &LocalHub,
    (group, version, kind): Gvk<'_>,
    scope: &str,
    schema: &Value,
) {
    let plural = format!("{}s", kind.to_lowercase());
    let crd = json!({
        "metadata": { "name": format!("{plural}.{group}") },
        "spec": {
            "group": group, "scope": scope, "names": { "kind": kind, "plural": plural },
            "versions": [{
                "name": version, "served": true, "storage": true, "subresources": { "status": {} },
                "schema": { "openAPIV3Schema": schema },
            }],
        },
    });
    hub.install_crd(&serde_json::from_value(crd).unwrap()).await.unwrap();
}

/// Creates a namespace if it does not exist.
pub async fn ensure_namespace(client: &Client, name: &str) {
    ensure(client, &ocm::namespace(name)).await;
}

/// Creates an object if it does not exist.
pub async fn ensure(client: &Client, object: &ocm::Object) {
    if get(client, object).await.is_none() {
        object.create(client).await.unwrap();
    }
}

/// A namespace for Pods that meet the restricted standard.
pub fn restricted(name: &str) -> ocm::Object {
    ocm::namespace(name).label("pod-security.kubernetes.io/enforce", "restricted")
}

/// A ClusterProfile as another manager would create it.
pub fn profile_of(manager: &str, namespace: &str, name: &str) -> ocm::Object {
    ocm::Object::new(
        ("multicluster.x-k8s.io", "v1alpha1", "ClusterProfile"),
        "clusterprofiles",
        Some(namespace),
        name,
    )
    .field("spec", json!({ "displayName": "by hand", "clusterManager": { "name": manager } }))
}

/// Merges a patch into an object.
pub async fn merge(client: &Client, object: &ocm::Object, patch: &Value) {
    let params = PatchParams::default();
    object.api(client).patch(object.name(), &params, &Patch::Merge(patch)).await.unwrap();
}

/// Merges a patch into an object's status.
pub async fn merge_status(client: &Client, object: &ocm::Object, patch: &Value) {
    let params = PatchParams::default();
    let patch = Patch::Merge(json!({ "status": patch }));
    object.api(client).patch_status(object.name(), &params, &patch).await.unwrap();
}

/// Adds a finalizer to an object, so that it remains when it is deleted.
pub async fn hold(client: &Client, object: &ocm::Object, finalizer: &str) {
    merge(client, object, &json!({ "metadata": { "finalizers": [finalizer] } })).await;
}

/// Removes every finalizer.
pub async fn let_go(client: &Client, object: &ocm::Object) {
    merge(client, object, &json!({ "metadata": { "finalizers": null } })).await;
}

/// Deletes an object, and returns when the deletion has been accepted.
pub async fn delete(client: &Client, object: &ocm::Object) {
    object.api(client).delete(object.name(), &DeleteParams::background()).await.unwrap();
}

/// The object on the API server, if it exists.
pub async fn get(client: &Client, object: &ocm::Object) -> Option<Value> {
    let found = object.api(client).get_opt(object.name()).await.unwrap();
    found.map(|found| serde_json::to_value(found).unwrap())
}

/// Waits until an object is as it should be, and returns it.
pub async fn becomes(
    client: &Client,
    object: &ocm::Object,
    what: &str,
    is: impl Fn(&Value) -> bool,
) -> Value {
    eventually(&format!("{object} {what}"), SOON, async || match get(client, object).await {
        Some(shown) if is(&shown) => Ok(Some(shown)),
        shown => Err(shown.map_or_else(|| "it does not exist".to_owned(), |it| it.to_string())),
    })
    .await
}

/// Waits until an object exists, and returns it.
pub async fn exists(client: &Client, object: &ocm::Object) -> Value {
    becomes(client, object, "exists", |_| true).await
}

/// Waits until an object is gone.
pub async fn gone(client: &Client, object: &ocm::Object) {
    eventually(&format!("{object} is gone"), SOON, async || get(client, object).await.is_none())
        .await;
}

/// The notes of the Events with this reason about an object, once for each publication: a repeated Event counts again.
/// Events about an object without a namespace are in `default`.
pub async fn events(client: &Client, about: &ocm::Object, reason: &str) -> Vec<String> {
    let api: Api<Event> = Api::namespaced(client.clone(), about.namespace().unwrap_or("default"));
    let list = api.list(&ListParams::default()).await.unwrap();
    let concerned = list.into_iter().filter(|event| {
        let regarding = event.regarding.as_ref().and_then(|regarding| regarding.name.as_deref());
        regarding == Some(about.name()) && event.reason.as_deref() == Some(reason)
    });
    concerned
        .flat_map(|event| {
            let count =
                event.series.as_ref().map_or(1, |series| usize::try_from(series.count).unwrap());
            assert!(event.meta().creation_timestamp.is_some(), "{}", event.name_any());
            vec![event.note.unwrap_or_default(); count]
        })
        .collect()
}

/// Waits for the first Event with this reason about an object, and returns its note.
pub async fn told(client: &Client, about: &ocm::Object, reason: &str) -> String {
    eventually(&format!("an Event on {about} with reason {reason}"), SOON, async || {
        events(client, about, reason).await.into_iter().next()
    })
    .await
}
