//! The watches behind the entry: cluster-proxy's configuration and addons, and the certificates.

use std::sync::Arc;

use hub_api::managed_cluster_addon::ManagedClusterAddOn;
use hub_api::managed_proxy_configuration::ManagedProxyConfiguration;
use hub_api::names::{ClusterName, Namespace, is_dns_subdomain};
use hub_core::access::{AnchorPlace, CLUSTER_PROXY, Known, SERVING_CERT_KEY, SERVING_CERT_SECRET};
use hub_core::note::{Note, Reason, Subject};
use hub_core::trust::{TrustBundle, TrustError};
use hub_runtime::host::{HeldWatch, Host};
use hub_runtime::watch::{ObjectKey, Sink, Unreadable, Watch};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::core::PartialObjectMeta;

use crate::provisioner::Provisioner;
use crate::settings::{CaKind, CaReference};

/// Watches what cluster-proxy's entry is made of. All of it is optional: an addon that is not installed must
/// not hold up the other owners of profiles.
pub(crate) fn watch_cluster_proxy(provisioner: &Provisioner, host: &Arc<Host>, require_addon: bool) {
    let configuration =
        ConfigurationSink { provisioner: provisioner.clone(), host: Arc::clone(host), seen: false, ca: None };
    host.watch(Watch::all("managedproxyconfigurations").named(CLUSTER_PROXY).optional(), configuration);
    if require_addon {
        let addons = AddonSink { provisioner: provisioner.clone() };
        host.watch_metadata(Watch::all("managedclusteraddons").named(CLUSTER_PROXY).optional(), addons);
    }
}

/// Watches the one Secret or ConfigMap that holds the certificates.
pub(crate) fn watch_ca(provisioner: &Provisioner, host: &Host, ca: &CaReference) -> HeldWatch {
    let sink = CertificateSink {
        provisioner: provisioner.clone(),
        reporter: host.reporter.clone(),
        place: provisioner.index().place(),
        subject: ca.subject(),
        key: ca.key.clone(),
        seen: false,
    };
    let namespace = Some(ca.namespace.as_str());
    match ca.kind {
        CaKind::Secret => {
            host.watch_while_held::<Secret>(namespace, Watch::all("secrets").named(&ca.name).optional(), sink)
        }
        CaKind::ConfigMap => host.watch_while_held::<ConfigMap>(
            namespace,
            Watch::all("configmaps").named(&ca.name).optional(),
            sink,
        ),
    }
}

struct ConfigurationSink {
    provisioner: Provisioner,
    host: Arc<Host>,
    seen: bool,
    /// Where the certificates are looked for.
    ca: Option<CaReference>,
}

impl ConfigurationSink {
    /// Looks for the certificates where the proxy is now.
    fn follow(&mut self, namespace: Namespace) {
        let ca = CaReference {
            kind: CaKind::Secret,
            namespace: namespace.clone(),
            name: SERVING_CERT_SECRET.to_owned(),
            key: SERVING_CERT_KEY.to_owned(),
        };
        if self.ca.as_ref() == Some(&ca) {
            return;
        }
        self.leave();
        self.provisioner.change(|index| index.set_configuration(Known::Present(namespace)));
        self.provisioner.watch_anchors(Some(watch_ca(&self.provisioner, &self.host, &ca)));
        self.ca = Some(ca);
    }

    /// No longer looks for the certificates where the proxy was.
    fn leave(&mut self) {
        self.provisioner.watch_anchors(None);
        if let Some(ca) = self.ca.take() {
            self.host.reporter.forget(&ca.subject());
        }
    }

    fn absent(&mut self) {
        self.seen = false;
        self.leave();
        self.provisioner.change(|index| index.set_configuration(Known::Absent));
        self.report(vec![Note::new(
            Reason::NoProxyConfiguration,
            "there is none, so ClusterProfiles do not say how to reach their clusters",
        )]);
    }

    fn report(&self, notes: Vec<Note>) {
        let subject = Subject::ProxyConfiguration(CLUSTER_PROXY.to_owned());
        self.host.reporter.report(&subject, None, notes);
    }
}

impl Sink<ManagedProxyConfiguration> for ConfigurationSink {
    fn apply(&mut self, _: &ObjectKey, object: Result<ManagedProxyConfiguration, Unreadable>) {
        self.seen = true;
        let namespace = object.map_err(|unreadable| unreadable.error).and_then(|object| {
            let namespace = object.spec.proxy_server.namespace();
            // It becomes a part of the server's URL, and upstream's CRD takes any text.
            if is_dns_subdomain(namespace) {
                Ok(Namespace::from(namespace))
            } else {
                Err(format!("spec.proxyServer.namespace is no namespace: {namespace:?}"))
            }
        });
        match namespace {
            Ok(namespace) => {
                self.report(Vec::new());
                self.follow(namespace);
            }
            // Nothing is known of the proxy now. What was known is as good as it gets.
            Err(error) => {
                self.report(vec![Note::new(
                    Reason::Unreadable,
                    format!("cannot be read, what rests on it is kept as it is: {error}"),
                )]);
            }
        }
    }

    fn delete(&mut self, _: &ObjectKey) {
        self.absent();
    }

    fn listed(&mut self) {
        if !self.seen {
            self.absent();
        }
    }
}

struct AddonSink {
    provisioner: Provisioner,
}

impl AddonSink {
    fn set(&self, key: &ObjectKey, present: bool) {
        let cluster = ClusterName::new(Arc::clone(&key.namespace));
        if self.provisioner.index().set_addon(&cluster, present) {
            self.provisioner.enqueue_cluster(&cluster);
        }
    }
}

impl Sink<PartialObjectMeta<ManagedClusterAddOn>> for AddonSink {
    fn apply(&mut self, key: &ObjectKey, _: Result<PartialObjectMeta<ManagedClusterAddOn>, Unreadable>) {
        self.set(key, true);
    }

    fn delete(&mut self, key: &ObjectKey) {
        self.set(key, false);
    }

    fn listed(&mut self) {
        self.provisioner.change(hub_core::access::AccessIndex::addons_listed);
    }
}

struct CertificateSink {
    provisioner: Provisioner,
    reporter: hub_runtime::report::Reporter,
    place: AnchorPlace,
    subject: Subject,
    key: String,
    seen: bool,
}

impl CertificateSink {
    fn read(&self, uid: Option<&str>, text: Option<&[u8]>) {
        let reading = text.map_or(Err(TrustError::NoCertificate), TrustBundle::from_pem);
        let notes = reading.as_ref().err().map(|error| self.note(&error.to_string()));
        self.reporter.report(&self.subject, uid, notes.into_iter().collect());
        self.provisioner.set_anchors(self.place, reading);
    }

    fn unknown(&self, why: &str) {
        self.provisioner.anchors_unknown(self.place);
        self.reporter.report(&self.subject, None, vec![self.note(why)]);
    }

    fn note(&self, why: &str) -> Note {
        let message = format!(
            "no trust anchors in key {:?}: {why}; access providers are kept as they are, no new one is published",
            self.key
        );
        Note::new(Reason::NoTrustAnchor, message)
    }

    fn absent(&mut self) {
        self.seen = false;
        self.unknown("it does not exist");
    }
}

/// What certificates can be kept in.
trait Holder: kube::Resource {
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

impl<K: Holder> Sink<K> for CertificateSink {
    fn apply(&mut self, _: &ObjectKey, object: Result<K, Unreadable>) {
        self.seen = true;
        if let Ok(holder) = object {
            self.read(holder.meta().uid.as_deref(), holder.text(&self.key));
        } else {
            // Not with the error: that of a Secret may quote it.
            self.unknown("it cannot be read");
        }
    }

    fn delete(&mut self, _: &ObjectKey) {
        self.absent();
    }

    fn listed(&mut self) {
        if !self.seen {
            self.absent();
        }
    }
}
