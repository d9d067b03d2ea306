//! The watches behind the entry: cluster-proxy's configuration and addons, and the trust anchors.

use std::sync::Arc;

use hub_api::managed_cluster_addon::ManagedClusterAddOn;
use hub_api::managed_proxy_configuration::ManagedProxyConfiguration;
use hub_api::names::{ClusterName, Namespace, is_dns_subdomain};
use hub_core::access::{AccessIndex, CLUSTER_PROXY, serving_certificate};
use hub_core::finding::{Finding, Reason};
use hub_core::known::Known;
use hub_core::trust::{CaKind, CaReference, TrustBundle, TrustError};
use hub_core::version::Uid;
use hub_runtime::host::Watches;
use hub_runtime::watch::{ObjectKey, One, Sink, Unreadable, Watch};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::core::PartialObjectMeta;

use crate::store::Store;

/// Watches the sources of cluster-proxy's entry. All of them are optional: an addon that is not installed must not
/// delay the other owners of profiles.
pub(crate) fn watch_cluster_proxy(
    store: &Arc<Store>,
    watches: &Watches,
    require_addon: bool,
    configured: Option<CaReference>,
) {
    let configuration = ConfigurationSink {
        store: Arc::clone(store),
        watches: watches.clone(),
        configured,
        followed: None,
    };
    watches.watch(
        Watch::all("managedproxyconfigurations").named(CLUSTER_PROXY).optional(),
        configuration,
    );
    if require_addon {
        let addons = AddonSink(Arc::clone(store));
        watches
            .watch(Watch::metadata("managedclusteraddons").named(CLUSTER_PROXY).optional(), addons);
    }
}

/// Watches the Secret or ConfigMap with the trust anchors, in place of the previous one.
pub(crate) fn watch_ca(store: &Arc<Store>, watches: &Watches, ca: &CaReference) {
    let namespace = ca.namespace.as_str();
    let watch = match ca.kind {
        CaKind::Secret => {
            let watch =
                Watch::<Secret>::all("secrets").in_namespace(namespace).named(&ca.name).optional();
            watches.watch_while_held(watch, certificate(store, ca))
        }
        CaKind::ConfigMap => {
            let watch = Watch::<ConfigMap>::all("configmaps")
                .in_namespace(namespace)
                .named(&ca.name)
                .optional();
            watches.watch_while_held(watch, certificate(store, ca))
        }
    };
    store.watch_anchors(Some(watch));
}

struct ConfigurationSink {
    store: Arc<Store>,
    watches: Watches,
    /// The location of the trust anchors, if it is not the serving certificate in the namespace of the proxy.
    configured: Option<CaReference>,
    /// The namespace of the proxy, and the Secret or ConfigMap that is watched.
    followed: Option<(Namespace, CaReference)>,
}

impl ConfigurationSink {
    /// Watches the trust anchors of the proxy in this namespace.
    fn follow(&mut self, namespace: Namespace) {
        if self.followed.as_ref().is_some_and(|(followed, _)| *followed == namespace) {
            return;
        }
        self.leave();
        self.store.set_configuration(Known::Present(namespace.clone()));
        let ca = self.configured.clone().unwrap_or_else(|| serving_certificate(&namespace));
        watch_ca(&self.store, &self.watches, &ca);
        self.followed = Some((namespace, ca));
    }

    /// Stops watching the trust anchors.
    fn leave(&mut self) {
        self.store.watch_anchors(None);
        if let Some((_, ca)) = self.followed.take() {
            self.store.reporter.report(&ca.subject(), None, Vec::new());
        }
    }

    fn absent(&mut self) {
        self.leave();
        self.store.set_configuration(Known::Absent);
        self.store.report_configuration(vec![Finding::new(
            Reason::NoProxyConfiguration,
            "it does not exist, so no access provider is published in ClusterProfiles",
        )]);
    }
}

impl Sink<ManagedProxyConfiguration> for ConfigurationSink {
    fn apply(&mut self, _: &ObjectKey, object: Result<ManagedProxyConfiguration, Unreadable>) {
        let namespace = object.map_err(|unreadable| unreadable.error).and_then(|object| {
            let namespace = object.spec.proxy_server.namespace();
            // It becomes part of the server's URL, and upstream's CRD accepts any text.
            if is_dns_subdomain(namespace) {
                Ok(Namespace::from(namespace))
            } else {
                Err(format!(
                    "spec.proxyServer.namespace is not a valid namespace name: {namespace:?}"
                ))
            }
        });
        match namespace {
            Ok(namespace) => {
                self.store.report_configuration(Vec::new());
                self.follow(namespace);
            }
            // Whether the proxy exists is unknown, so the last known state stays.
            Err(error) => {
                self.store.report_configuration(vec![Finding::new(
                    Reason::Unreadable,
                    format!("cannot be read, access providers are kept unchanged: {error}"),
                )]);
            }
        }
    }

    fn delete(&mut self, _: &ObjectKey) {
        self.absent();
    }

    fn none_listed(&mut self) {
        self.absent();
    }

    fn set_read(&mut self, is_read: bool) {
        self.store.set_read(AccessIndex::set_configuration_read, is_read);
    }

    /// Without its CRD, no configuration exists: the proxy is not installed, or not any more.
    fn not_served(&mut self) -> bool {
        self.store.set_read(AccessIndex::set_configuration_read, true);
        self.absent();
        true
    }
}

struct AddonSink(Arc<Store>);

impl Sink<PartialObjectMeta<ManagedClusterAddOn>> for AddonSink {
    fn apply(
        &mut self,
        key: &ObjectKey,
        _: Result<PartialObjectMeta<ManagedClusterAddOn>, Unreadable>,
    ) {
        self.0.set_addon(&ClusterName::new(key.namespace.clone()), true);
    }

    fn delete(&mut self, key: &ObjectKey) {
        self.0.set_addon(&ClusterName::new(key.namespace.clone()), false);
    }

    fn set_read(&mut self, is_read: bool) {
        self.0.set_read(AccessIndex::set_addons_read, is_read);
    }
}

/// Receives the Secret or ConfigMap with the trust anchors.
fn certificate<K: Holder>(store: &Arc<Store>, ca: &CaReference) -> impl Sink<K> + use<K> {
    let (store, place, subject) = (Arc::clone(store), store.place(), ca.subject());
    let key = ca.key.clone();
    One(move |holder: Known<Result<K, Unreadable>>| {
        let finding = |why: &str| {
            let message = format!(
                "no trust anchors in key {key:?}: {why}; access providers are kept unchanged, and no new one is published"
            );
            Finding::new(Reason::NoTrustAnchor, message)
        };
        let why = match holder {
            Known::Present(Ok(holder)) => {
                let (uid, text) = (holder.meta().uid.as_deref().map(Uid::from), holder.text(&key));
                let reading = text.map_or(Err(TrustError::NoCertificate), TrustBundle::from_pem);
                let found = reading.as_ref().err().map(|error| finding(&error.to_string()));
                store.set_anchors(place, text.unwrap_or_default(), reading);
                return store.report_anchors(&subject, uid.as_ref(), found);
            }
            // Without the error: that of a Secret may quote its data.
            Known::Present(Err(_)) | Known::Unknown => "it cannot be read",
            Known::Absent => "it does not exist",
        };
        store.anchors_unknown(place);
        store.report_anchors(&subject, None, Some(finding(why)));
    })
}

/// An object that can contain trust anchors.
trait Holder: kube::Resource + 'static {
    fn text(&self, key: &str) -> Option<&[u8]>;
}

impl Holder for Secret {
    fn text(&self, key: &str) -> Option<&[u8]> {
        self.data.as_ref()?.get(key).map(|text| text.0.as_slice())
    }
}

impl Holder for ConfigMap {
    fn text(&self, key: &str) -> Option<&[u8]> {
        self.data.as_ref()?.get(key).map(String::as_bytes)
    }
}
