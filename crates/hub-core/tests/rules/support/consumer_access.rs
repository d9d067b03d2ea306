//! The access of a consumer to a cluster on an API server, what is declared for it, and what may have been there before.

use std::collections::{BTreeMap, BTreeSet};

use hub_api::cluster_access::{ClusterAccess, ClusterAccessStatus};
use hub_api::names::{AccountKey, Namespace};
use hub_core::consumer_access::{
    AccessAction, AccessKind, AccessName, AccessPlan, AccessRules, AccessSettings, Consumers,
    DEFAULT_ACCOUNT_NAMESPACE, FoundObject, ObservedAccess, ObservedObject, Unread,
};
use hub_core::finding::Reason;
use hub_core::fleet::Fleet;
use hub_core::known::Known;
use hub_core::protected::ProtectedNamespaces;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{binding, deleting, doubting, exclusive, fleet, granting, member, with};

pub fn declared() -> Value {
    json!([{
        "namespace": "team", "name": "app",
        "permissions": [{ "clusterRole": "view" }, { "clusterRole": "edit", "namespaces": ["a", "b"] }],
        "rotation": { "validity": "720h" },
    }])
}

/// A ClusterAccess from its namespace, its name, the fields of its spec that matter, and the minute of its creation.
pub fn access(fields: &Value) -> (AccessName, ClusterAccess) {
    let defaults = json!({ "identity": "Copy", "serviceAccountNames": ["app"] });
    let text = |field: &str| fields[field].as_str().unwrap().to_owned();
    let (namespace, name) = (text("namespace"), text("name"));
    let metadata = json!({
        "namespace": namespace, "name": name, "uid": format!("uid of {namespace}/{name}"), "resourceVersion": "1",
        "generation": 3,
        "creationTimestamp": format!("2026-05-01T12:{:02}:00Z", fields["created"].as_u64().unwrap_or_default()),
    });
    let place = json!({ "namespace": null, "name": null, "created": null, "status": null, "metadata": null });
    let object = json!({
        "metadata": with(metadata, fields.get("metadata").unwrap_or(&json!({}))), "spec": with(with(defaults, fields), &place), "status": fields["status"],
    });
    let name = AccessName { namespace: namespace.as_str().into(), name };
    (name, serde_json::from_value(object).unwrap())
}

/// What these objects declare, where the account of the user server is `user-server`.
pub fn consumers_of(objects: &Value) -> Consumers {
    let rules = AccessRules {
        user_server: Some("user-server".into()),
        allowed_cluster_roles: ["view", "edit", "admin"].map(str::to_owned).into(),
        protected: ProtectedNamespaces::default(),
    };
    let mut consumers = Consumers::new(rules);
    consumers.set_read(true);
    for (name, object) in objects.as_array().unwrap().iter().map(access) {
        consumers.apply(&name, Ok(object));
    }
    consumers
}

pub fn settings_of(objects: &Value) -> AccessSettings {
    AccessSettings {
        consumers: consumers_of(objects),
        permissions: None,
        account_namespace: Some(DEFAULT_ACCOUNT_NAMESPACE.into()),
        protected: ProtectedNamespaces::default(),
        installation: "addons".into(),
        provider: "open-cluster-management".to_owned(),
        own_provider: "open-cluster-management-own-identity".to_owned(),
    }
}

pub fn settings() -> AccessSettings {
    settings_of(&declared())
}

/// The settings with a configured kind of permissions.
pub fn settings_by(kind: &str) -> AccessSettings {
    AccessSettings { permissions: Some(kind.parse().unwrap()), ..settings() }
}

pub fn key() -> AccountKey {
    AccountKey { cluster: "c1".into(), account: "app".into() }
}

pub fn granted() -> Fleet {
    granting(&["c1"])
}

pub fn refused() -> Fleet {
    fleet([member("c1", "prod"), exclusive("prod"), binding("other", "prod")])
}

pub fn doubtful() -> Fleet {
    doubting(&["c1"])
}

/// The objects on an API server, and what the controller has found.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct World {
    pub objects: BTreeMap<AccessKind, Value>,
    pub found: BTreeMap<AccessKind, FoundObject>,
    /// The writes that the API server refuses, as `delete Account`.
    pub refuses: BTreeSet<String>,
    /// The kinds that are not listed.
    pub unlisted: BTreeSet<AccessKind>,
    /// Where the agent of managed-serviceaccount runs on the cluster, as its addon shows.
    pub agent_namespace: Known<Namespace>,
    pub uids: u32,
    pub writes: Vec<String>,
}

/// The status that an object should have, counted anew.
pub fn status_of<'a>(
    settings: &AccessSettings,
    fleet: &Fleet,
    name: &AccessName,
    unread: Option<Unread>,
    observed: impl Fn(AccessKind, &AccountKey) -> Option<&'a FoundObject>,
    now: jiff::Timestamp,
) -> Option<ClusterAccessStatus> {
    let mut counted = BTreeMap::new();
    settings.count(fleet, name, None, unread.as_ref(), observed, &mut counted);
    settings.status(fleet, name, unread, &counted, now)
}

pub fn observe(object: &Value) -> ObservedObject {
    let metadata: ObjectMeta = serde_json::from_value(object["metadata"].clone()).unwrap();
    ObservedObject::read(&metadata, Some(object))
}

impl World {
    /// Why the application of the object `app` of a namespace is not ready: the reason and the message.
    pub fn lacking(
        &mut self,
        settings: &AccessSettings,
        fleet: &Fleet,
        namespace: &str,
    ) -> Option<(String, String)> {
        self.observed(settings);
        let name = AccessName { namespace: namespace.into(), name: "app".to_owned() };
        let observed = |kind: AccessKind, _: &AccountKey| self.found.get(&kind);
        let now = jiff::Timestamp::UNIX_EPOCH;
        let status = status_of(settings, fleet, &name, None, observed, now).unwrap();
        status.not_ready.into_iter().next().map(|it| (it.reason, it.message))
    }

    pub fn with(kind: AccessKind, object: Value) -> Self {
        let mut world = Self::default();
        world.objects.insert(kind, object);
        world
    }

    /// The controller sees what exists.
    pub fn observed(&mut self, settings: &AccessSettings) -> ObservedAccess {
        let mut before = std::mem::take(&mut self.found);
        for (kind, object) in self.objects.iter().filter(|(kind, _)| !self.unlisted.contains(kind))
        {
            let before = before.remove(kind);
            self.found.insert(*kind, FoundObject::seen(settings, before.as_ref(), observe(object)));
        }
        let (objects, unlisted) = (self.found.clone(), self.unlisted.clone());
        let agent_namespace = self.agent_namespace.clone();
        ObservedAccess { objects, unlisted, agent_namespace, ..ObservedAccess::default() }
    }

    /// Another user edits an object.
    pub fn edit(&mut self, kind: AccessKind, patch: &Value) {
        let object = self.objects.remove(&kind).unwrap();
        self.objects.insert(kind, with(object, patch));
    }

    pub fn plan_of(
        &mut self,
        settings: &AccessSettings,
        fleet: &Fleet,
        key: &AccountKey,
    ) -> AccessPlan {
        let observed = self.observed(settings);
        settings.plan(fleet, key, &observed)
    }

    /// Carries out what is planned until nothing is left, as an API server does; returns the last plan.
    pub fn settle(&mut self, settings: &AccessSettings, fleet: &Fleet) -> AccessPlan {
        self.settle_at(settings, fleet, &key())
    }

    /// The same for another account.
    pub fn settle_at(
        &mut self,
        settings: &AccessSettings,
        fleet: &Fleet,
        key: &AccountKey,
    ) -> AccessPlan {
        let mut passed = BTreeSet::new();
        for _ in 0..8 {
            let observed = ObservedAccess { passed: passed.clone(), ..self.observed(settings) };
            let plan = settings.plan(fleet, key, &observed);
            let Some((kind, action)) = plan.write else { return plan };
            let verb = action.verb().unwrap();
            let write = format!("{verb} {kind:?}");
            if self.refuses.contains(&write) {
                self.writes.push(write + ", refused");
                passed.insert((kind, verb));
                continue;
            }
            self.writes.push(write);
            self.execute(kind, action);
        }
        panic!("it does not settle: {:?}", self.writes);
    }

    fn execute(&mut self, kind: AccessKind, action: AccessAction) {
        self.uids += u32::from(matches!(action, AccessAction::Create(_)));
        let created = execute(&mut self.objects, &kind, &format!("new-{}", self.uids), action);
        self.found.extend(created.map(|it| (kind, it)));
    }

    pub fn writes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.writes)
    }
}

/// Carries out a write as an API server does, where a new object gets this uid. Returns what the controller knows of an
/// object that it has created.
pub fn execute<K: Ord + Clone>(
    objects: &mut BTreeMap<K, Value>,
    key: &K,
    uid: &str,
    action: AccessAction,
) -> Option<FoundObject> {
    match action {
        AccessAction::Nothing | AccessAction::PatchStatus(..) => panic!("{action:?}"),
        AccessAction::Create(object) => {
            let own = json!({ "metadata": { "uid": uid, "resourceVersion": "1" } });
            let object = with(object, &own);
            let found = FoundObject { object: observe(&object), is_ours: true };
            assert_eq!(objects.insert(key.clone(), object), None, "created over an object");
            return Some(found);
        }
        AccessAction::Patch(version, patch) => {
            let object = objects.remove(key).unwrap();
            assert_eq!(object["metadata"]["uid"], version.uid.to_string());
            assert_eq!(object["metadata"]["resourceVersion"], &*version.resource_version);
            let mut object = with(object, &patch);
            object["metadata"]["resourceVersion"] = json!("2");
            objects.insert(key.clone(), object);
        }
        AccessAction::Delete(_) | AccessAction::DeleteByUid(_) => {
            let object = objects.remove(key).unwrap();
            assert_eq!(object["metadata"]["uid"], action.uid().unwrap().to_string());
            if object["metadata"]["finalizers"].is_array() {
                objects.insert(key.clone(), deleting(object));
            }
        }
    }
    None
}

/// The access as it should be.
pub fn settled() -> World {
    settled_by(&settings())
}

pub fn settled_by(settings: &AccessSettings) -> World {
    let mut world = World::default();
    world.settle(settings, &granted());
    world.writes.clear();
    world
}

pub fn object_of(kind: AccessKind) -> Value {
    let settings = match kind {
        AccessKind::ClusterPermission => settings_by("ClusterPermission"),
        AccessKind::Account | AccessKind::ManifestWork => settings(),
    };
    settled_by(&settings).objects[&kind].clone()
}

pub fn foreign(kind: AccessKind) -> Value {
    json!({
        "metadata": { "name": kind.name(&key()), "namespace": "c1", "uid": "theirs", "resourceVersion": "7" },
        "spec": { "rotation": { "enabled": true, "validity": "1h" } },
    })
}

pub fn reasons(plan: &AccessPlan) -> Vec<Reason> {
    plan.findings.values().flatten().map(|note| note.reason).collect()
}

/// The past of an object: none, ours, edited, held, stripped of labels or of everything, going, or another owner's.
pub fn past(kind: AccessKind) -> impl Strategy<Value = (Option<Value>, bool)> {
    let right = object_of(kind);
    let edited = with(
        right.clone(),
        &json!({ "spec": { "deleteOption": {}, "rotation": null, "workload": null } }),
    );
    let held = with(right.clone(), &json!({ "metadata": { "finalizers": ["example.com/hold"] } }));
    let stripped = with(right.clone(), &json!({ "metadata": { "labels": null } }));
    let bare = with(
        stripped.clone(),
        &json!({ "metadata": { "annotations": null, "ownerReferences": null } }),
    );
    let going = deleting(right.clone());
    let objects = prop_oneof![
        Just(None),
        Just(Some(right)),
        Just(Some(edited)),
        Just(Some(held)),
        Just(Some(stripped)),
        Just(Some(bare)),
        Just(Some(going)),
        Just(Some(foreign(kind))),
    ];
    (objects, any::<bool>())
}

pub fn is_foreign(object: &Value) -> bool {
    object["metadata"]["uid"] == "theirs"
}
