//! A hub on which an application reaches its cluster, and what can be wrong there.

use std::collections::BTreeMap;

use hub_api::names::Namespace;
use hub_core::access::{AccessIndex, AccessSource};
use hub_core::explain::observed::{Lease, Observed};
use hub_core::explain::{Explanation, Question, explain};
use hub_core::fleet::Fleet;
use hub_core::known::Known;
use hub_core::project::{self, ProjectionSettings};
use hub_core::trust::TrustBundle;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::support::api::{observe, settle};
use crate::support::credential::{World, account, token};
use crate::support::{NOON, binding, exclusive, fleet, key, member, with};

pub const RSA: &str = include_str!("../certificates/rsa-root.crt");
pub const P521: &str = include_str!("../certificates/p521-root.crt");
pub const EXPIRED: &str = include_str!("../certificates/expired-root.crt");
const CONTROLLERS: [&str; 3] = ["profile-projector", "access-provisioner", "credential-syncer"];

pub fn now() -> Timestamp {
    NOON.parse().unwrap()
}

/// What is done to what was observed.
type Edit = dyn Fn(&mut Observed);

/// A hub on which `team` reaches `c1`: its objects, and what is done to what was observed of them.
pub struct Scene {
    pub objects: Vec<Value>,
    pub profile: Value,
    pub ca: &'static str,
    pub edits: Vec<Box<Edit>>,
}

impl Scene {
    pub fn in_order() -> Self {
        let objects = vec![
            member("c1", "prod"),
            exclusive("prod"),
            binding("team", "prod"),
            account("c1", "kueue"),
            token("c1", "kueue"),
        ];
        Self { objects, profile: json!({}), ca: RSA, edits: Vec::new() }
    }

    /// With a merge patch in the objects of that kind.
    pub fn with(mut self, kind: &str, patch: &Value) -> Self {
        let edit =
            |object: Value| if object["kind"] == kind { with(object, patch) } else { object };
        self.objects = self.objects.into_iter().map(edit).collect();
        self
    }

    pub fn without(mut self, kind: &str) -> Self {
        self.objects.retain(|object| object["kind"] != kind);
        self
    }

    pub fn and(mut self, object: Value) -> Self {
        self.objects.push(object);
        self
    }

    pub fn map(mut self, kind: &str, change: fn(Value) -> Value) -> Self {
        let edit = |object: Value| if object["kind"] == kind { change(object) } else { object };
        self.objects = self.objects.into_iter().map(edit).collect();
        self
    }

    /// What somebody does to the profile, once it is as it should be.
    pub fn profile(mut self, patch: &Value) -> Self {
        self.profile = patch.clone();
        self
    }

    pub fn observing(mut self, edit: impl Fn(&mut Observed) + 'static) -> Self {
        self.edits.push(Box::new(edit));
        self
    }

    pub fn observed(&self) -> Observed {
        let is_of_fleet = |object: &&Value| {
            let kind = object["kind"].as_str().unwrap();
            kind.starts_with("ManagedCluster")
        };
        let fleet: Fleet = fleet(self.objects.iter().filter(is_of_fleet).cloned());
        let access = access(self.ca);
        let settings = ProjectionSettings::default();
        let pair = key("team", "c1");
        // As it would be on a hub where nothing is wrong.
        let whole = fleet_in_order();
        let desired = project::desired(&whole, &pair, &settings);
        let bare = settle(&pair, &settings.manager, None, std::slice::from_ref(&desired)).object;
        let offer = access.offer(&pair, &observe(bare.as_ref().unwrap()));
        let desired = [desired, offer.into_desired(access.provider())];
        let profile = settle(&pair, &settings.manager, bare, &desired).object.unwrap();
        let profile = with(with(profile, &json!({ "kind": "ClusterProfile" })), &self.profile);

        let mut world = World::of(self.objects.iter().cloned().chain([profile.clone()]));
        world.settle();
        let mut hub = Observed::new(now(), settings, fleet, access, world.index);
        (hub.knows_clusters, hub.knows_sets, hub.knows_anchors) = (true, true, true);
        hub.bindings_of.set(None, true);
        hub.profiles_of.set(None, true);
        let mut leases: BTreeMap<_, _> =
            CONTROLLERS.map(|name| (name.to_owned(), lease(Some("pod-1"), NOON))).into();
        leases.get_mut("credential-syncer").unwrap().name =
            "hub-addons-credential-syncer".to_owned();
        hub.leases = Some(leases);
        let metadata = serde_json::from_value(profile["metadata"].clone()).unwrap();
        hub.apply_profile(pair, &metadata, &profile);
        for edit in &self.edits {
            edit(&mut hub);
        }
        hub
    }

    pub fn explained(&self) -> Explanation {
        explain(&self.observed(), &one("team", "c1"))
    }
}

pub fn fleet_in_order() -> Fleet {
    fleet([member("c1", "prod"), exclusive("prod"), binding("team", "prod")])
}

/// Cluster-proxy with the trust anchors of its serving certificate.
pub fn cluster_proxy() -> AccessIndex {
    let source = AccessSource::ClusterProxy { require_addon: true, ca: None };
    AccessIndex::new("open-cluster-management", source, true)
}

pub fn access(ca: &str) -> AccessIndex {
    let mut access = cluster_proxy();
    access.set_configuration(Known::Present("proxy".into()));
    let anchors = TrustBundle::from_published(ca.as_bytes()).unwrap();
    access.set_anchors(access.place(), Ok(anchors));
    access.set_addon(&"c1".into(), true);
    access.set_addons_read(true);
    access
}

/// What decides access providers, without one of its parts.
pub fn access_without(addon: bool, configuration: Known<Namespace>) -> AccessIndex {
    let mut access = cluster_proxy();
    access.set_configuration(configuration);
    access.set_addon(&"c1".into(), addon);
    access.set_addons_read(true);
    access
}

pub fn lease(holder: Option<&str>, renewed: &str) -> Lease {
    Lease {
        namespace: "hub-addons".to_owned(),
        name: "hub-addons-profile-projector".to_owned(),
        holder: holder.map(str::to_owned),
        renewed: Some(renewed.parse().unwrap()),
        seconds: 15,
        unreadable: None,
    }
}

pub fn parse<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

pub fn one(namespace: &str, cluster: &str) -> Question {
    Question {
        namespaces: vec![namespace.into()],
        clusters: vec![cluster.into()],
        account: None,
        all: true,
    }
}

pub fn home() -> Known<Namespace> {
    Known::Present("proxy".into())
}
