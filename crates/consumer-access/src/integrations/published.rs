//! What the ClusterProfiles in the namespace of a consumer publish, for its cluster Secrets.

use std::sync::Arc;

use hub_api::cluster_profile::ProfileVersion;
use hub_api::names::{Namespace, ProfileKey};
use hub_core::access::is_ours;
use hub_core::consumer_access::{IntegrationKey, PublishedCluster};
use hub_core::profile::ObservedProfile;
use hub_runtime::host::{HeldWatch, Watches};
use hub_runtime::watch::{ObjectKey, Sink, Unreadable, Watch};
use kube::api::DynamicObject;

use super::{IntegrationStore, watch_of_profiles};

pub(super) const PROFILES: &str = "clusterprofiles";

/// Receives the profiles of one namespace.
pub(super) struct PublishedSink {
    store: Arc<IntegrationStore>,
    namespace: Namespace,
    /// The name of the access provider.
    provider: String,
}

impl PublishedSink {
    /// Watches the profiles in a namespace, in v1alpha1.
    pub(super) fn watch(
        store: &Arc<IntegrationStore>,
        watches: &Watches,
        namespace: &Namespace,
        provider: &str,
    ) -> HeldWatch {
        let sink =
            Self { store: Arc::clone(store), namespace: namespace.clone(), provider: provider.to_owned() };
        let kind = ProfileVersion::V1alpha1.resource();
        watches.watch_while_held(Watch::dynamic(PROFILES, &kind, Some(namespace.as_str())).late(), sink)
    }

    fn set(&self, key: &ObjectKey, published: Option<PublishedCluster>) {
        let key = ProfileKey::from(key);
        let changed = {
            let published_now = &mut self.store.state.lock().published;
            let changed = published_now.get(&key) != published.as_ref();
            match published {
                Some(published) => published_now.insert(key.clone(), published),
                None => published_now.remove(&key),
            };
            changed
        };
        if changed {
            self.store.changed(IntegrationKey::ClusterSecret(key));
        }
    }
}

impl Sink<DynamicObject> for PublishedSink {
    fn apply(&mut self, key: &ObjectKey, object: Result<DynamicObject, Unreadable>) {
        // The last readable state of a profile stays in use.
        let Ok(profile) = object else { return };
        let observed = ObservedProfile::read(&profile.metadata, &profile.data);
        let published = is_ours(&observed, &self.store.manager)
            .then(|| PublishedCluster::read(&observed, &self.provider));
        self.set(key, published.flatten());
    }

    fn delete(&mut self, key: &ObjectKey) {
        self.set(key, None);
    }

    fn listed(&mut self) {
        self.store.listed(watch_of_profiles(&self.namespace));
    }

    fn unread(&mut self) {
        self.store.unread(&watch_of_profiles(&self.namespace));
    }
}
