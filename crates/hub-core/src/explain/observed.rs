//! The objects of a hub that were read to explain it, and those that could not be read.

use std::collections::{BTreeMap, BTreeSet};

use hub_api::cluster_access::ClusterAccess;
use hub_api::names::{ClusterName, Namespace, ProfileKey};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use super::Object;
use crate::access::{self, AccessIndex, AnchorReader};
use crate::consumer_access::{AccessName, PlacementName};
use crate::credential::index::{self, CredentialIndex, Listed};
use crate::fleet::Fleet;
use crate::known::Known;
use crate::member_id::{FIELD_MANAGER, MemberIds};
use crate::profile::ObservedProfile;
use crate::project::ProjectionSettings;

/// The controller that writes ClusterProfiles.
pub(super) const PROJECTOR: &str = "profile-projector";
/// The controller that writes access providers.
pub(super) const PROVISIONER: &str = "access-provisioner";
/// The controller that copies tokens.
pub(super) const SYNCER: &str = "credential-syncer";
/// The controller that gives what ClusterAccesses ask for.
pub(super) const CONSUMER_ACCESS: &str = "consumer-access";
/// The controllers whose Leases are read.
pub const CONTROLLERS: [&str; 4] = [PROJECTOR, PROVISIONER, SYNCER, CONSUMER_ACCESS];

/// The state of a hub.
#[derive(Debug)]
pub struct Observed {
    /// When it was read, according to the hub's clock.
    pub now: Timestamp,
    /// The settings of profiles.
    pub settings: ProjectionSettings,
    /// What cannot be read of the controllers, so that the settings may not be theirs.
    pub unread_settings: Option<Object>,
    /// Its clusters, sets and bindings.
    pub fleet: Fleet,
    /// Whether every ManagedCluster is in the fleet.
    pub knows_clusters: bool,
    /// Whether every ManagedClusterSet is in the fleet.
    pub knows_sets: bool,
    /// The namespaces of which every ManagedClusterSetBinding is in the fleet.
    pub bindings_of: Listed<Namespace>,
    /// The namespaces of which every ClusterProfile is known.
    pub profiles_of: Listed<Namespace>,
    pub profiles: BTreeMap<ProfileKey, ShownProfile>,
    pub member_ids: MemberIds,
    /// The state that decides their access providers.
    pub access: AccessIndex,
    /// Whether the serving certificate of the proxy could be read.
    pub knows_anchors: bool,
    anchor_reader: AnchorReader,
    /// The state that decides the copies of tokens.
    pub credentials: CredentialIndex,
    /// The Leases by the names of the controllers of their processes; `None` if they cannot be read.
    pub leases: Option<BTreeMap<String, Lease>>,
    pub accesses: BTreeMap<AccessName, ClusterAccess>,
    /// The Deployment of cluster-proxy whose agents do not connect under the names of their clusters.
    pub no_kube_api_proxy: Known<Object>,
    /// The clusters that the Placements of these have decided for, where the decisions of every kind can be read.
    pub decisions: BTreeMap<PlacementName, BTreeSet<ClusterName>>,
}

/// The argument of cluster-proxy's manager by which agents do not connect under the names of their clusters.
pub const NO_KUBE_API_PROXY: &str = "--enable-kube-api-proxy=false";

impl Observed {
    #[must_use]
    pub fn new(
        now: Timestamp,
        settings: ProjectionSettings,
        fleet: Fleet,
        access: AccessIndex,
        credentials: CredentialIndex,
    ) -> Self {
        Self {
            now,
            settings,
            unread_settings: None,
            fleet,
            knows_clusters: false,
            knows_sets: false,
            bindings_of: Listed::default(),
            profiles_of: Listed::default(),
            profiles: BTreeMap::new(),
            member_ids: MemberIds::default(),
            access,
            knows_anchors: false,
            anchor_reader: AnchorReader::default(),
            credentials,
            leases: None,
            accesses: BTreeMap::new(),
            no_kube_api_proxy: Known::Absent,
            decisions: BTreeMap::new(),
        }
    }

    /// Records a ClusterProfile. Anchors that it publishes and the source lacks count as replaced, as for a controller
    /// that starts: apply trust anchors before profiles.
    pub fn apply_profile(&mut self, key: ProfileKey, metadata: &ObjectMeta, object: &Value) {
        let observed = ObservedProfile::read(metadata, object);
        if access::is_ours(&observed, &self.settings.manager)
            && self.access.current_anchors().is_some()
            && let Some(anchors) = self.anchor_reader.published(&observed, self.access.provider())
        {
            self.access.inherit(&key, anchors);
        }
        self.member_ids.set(&key, observed.member_id());
        let manager = object["spec"]["clusterManager"]["name"].as_str();
        self.credentials
            .apply_profile(key.clone(), index::ProfileMetadata::read(metadata, manager));
        let last_writer = last_writer(metadata);
        self.profiles.insert(key, ShownProfile { observed, last_writer });
    }

    /// Whether all clusters, sets and bindings are known that can grant a cluster to a namespace.
    pub(super) fn knows_fleet(&self, namespace: &Namespace) -> bool {
        self.knows_clusters && self.knows_sets && self.bindings_of.has(namespace)
    }

    /// The clusters of which a namespace has profiles.
    pub(super) fn clusters_in(&self, namespace: &Namespace) -> impl Iterator<Item = &ClusterName> {
        let first = ProfileKey { namespace: namespace.clone(), cluster: ClusterName::from("") };
        let profiles = self.profiles.range(first..).map(|(key, _)| key);
        profiles.take_while(move |key| key.namespace == *namespace).map(|key| &key.cluster)
    }
}

/// A ClusterProfile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownProfile {
    /// The fields that plans read.
    pub observed: ObservedProfile,
    /// The field manager of the last write to the projector's fields, if it is not this project's.
    pub last_writer: Option<String>,
}

/// The field manager of the last write to the projector's fields, if it is not this project's.
fn last_writer(metadata: &ObjectMeta) -> Option<String> {
    let projects = |fields: &Value| {
        let status = &fields["f:status"];
        let conditions = status["f:conditions"].as_object();
        let is_condition = |kind: &str| {
            conditions.is_some_and(|all| all.contains_key(&format!("k:{{\"type\":\"{kind}\"}}")))
        };
        fields["f:spec"].get("f:clusterManager").is_some()
            || status.get("f:version").is_some()
            || status.get("f:properties").is_some()
            || is_condition(crate::project::JOINED)
            || is_condition(crate::project::CONTROL_PLANE_HEALTHY)
    };
    let entries = metadata.managed_fields.iter().flatten();
    let writes =
        entries.filter(|entry| entry.fields_v1.as_ref().is_some_and(|fields| projects(&fields.0)));
    let last = writes.max_by_key(|entry| entry.time.as_ref().map(|time| time.0))?;
    last.manager.clone().filter(|manager| manager != FIELD_MANAGER)
}

/// The Lease of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    pub namespace: String,
    pub name: String,
    /// `spec.holderIdentity`, if a process holds it.
    pub holder: Option<String>,
    /// `spec.renewTime`.
    pub renewed: Option<Timestamp>,
    /// `spec.leaseDurationSeconds`.
    pub seconds: i64,
    /// The annotation [`UNREADABLE`](hub_api::labels::UNREADABLE).
    pub unreadable: Option<String>,
}

impl Lease {
    /// Whether a process holds it and renews it.
    pub(super) fn is_held(&self, now: Timestamp) -> bool {
        let is_fresh = |time: Timestamp| now.as_second() - time.as_second() <= self.seconds;
        self.holder.is_some() && self.renewed.is_some_and(is_fresh)
    }
}

impl Observed {
    /// The Lease of the process with the controller of this name, if one names it and can be read.
    pub(super) fn lease(&self, controller: &str) -> Option<&Lease> {
        self.leases.as_ref()?.get(controller)
    }

    pub(super) fn leads(&self, controller: &str) -> bool {
        self.lease(controller).is_some_and(|lease| lease.is_held(self.now))
    }
}
