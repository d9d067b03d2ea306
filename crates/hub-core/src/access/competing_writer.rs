//! How the provisioner coexists with cluster-proxy's own controller, which the feature gate `ClusterProfile` of
//! cluster-proxy (until 0.10 `ClusterProfileAccessProvider`) starts.
//!
//! Both publish an entry of the same name, and that controller's contains the serving certificate as well. It writes
//! its entry after every write of a profile, so the two could overwrite each other forever. Therefore the provisioner
//! stops once that controller has written its entry to a profile that lacked it: the provisioner leaves every entry
//! that is exactly what the controller publishes, as far as the source shows that, and replaces any other as before.
//!
//! The competition ends when the certificate or the configuration changes, or when the controller leaves the entry of
//! one profile that the provisioner replaces as a probe, so that both together write at most one profile per probe. The
//! owner of the index has a clock and begins probes ([`AccessIndex::probe_contest`]).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use hub_api::cluster_profile::AccessProvider;
use hub_api::managed_proxy_configuration::ProxyServer;
use hub_api::names::ProfileKey;

use super::{AccessIndex, AccessSource, AnchorPlace, DEFAULT_PROVIDER, Known, Offer, Withheld, entry};
use crate::finding::{Finding, Reason};
use crate::profile::ObservedProfile;
use crate::trust::{BUNDLE_SIZE_LIMIT, TrustAnchor, TrustBundle};

/// The Service of cluster-proxy's user server, and its port.
pub const USER_SERVER: (&str, u16) = ("cluster-proxy-addon-user", 9092);

/// The namespaces in which OCM and its distributions install cluster-proxy.
const NAMESPACES: [&str; 4] = [
    "open-cluster-management",
    "open-cluster-management-addon",
    ProxyServer::DEFAULT_NAMESPACE,
    "multicluster-engine",
];

/// What is known about cluster-proxy's own controller.
#[derive(Debug, Default)]
pub(super) struct CompetingWriter {
    /// The content of the serving Secret, which the controller publishes as a whole.
    served: Option<Served>,
    /// The profiles that have lacked its entry since the competition began or could have begun, each with its
    /// resourceVersion, if that is a number.
    without: BTreeMap<ProfileKey, Option<u64>>,
    /// Whether the controller has written its entry to one of them since.
    is_active: bool,
    /// The profiles whose entry the provisioner leaves to the controller.
    left: BTreeSet<ProfileKey>,
    /// The profile of the latest probe.
    probe: Option<ProfileKey>,
    /// Whether the entry of that profile has not been replaced yet.
    is_due: bool,
}

/// What follows from the result of a probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Probe {
    /// There is no competition.
    Needless,
    /// The entry of this profile is to be replaced.
    Begun(ProfileKey),
    /// The competition is over: every entry is to be replaced.
    Over,
}

#[derive(Debug, PartialEq, Eq)]
struct Served {
    text: Arc<str>,
    certificates: Option<TrustBundle>,
}

impl CompetingWriter {
    /// Forgets what the controller has written, since it publishes something else or no longer works.
    pub(super) fn restart(&mut self) {
        *self = Self { served: self.served.take(), ..Self::default() };
    }

    /// Whether the serving Secret contains this certificate, so that it has not been replaced.
    pub(super) fn serves(&self, anchor: &TrustAnchor) -> bool {
        let certificates = self.served.as_ref().and_then(|served| served.certificates.as_ref());
        certificates.is_some_and(|certificates| certificates.anchors().any(|it| it == anchor))
    }

    /// Records whether a profile has the controller's entry in this version; `is_theirs` is `None` if that is unknown.
    /// Returns whether the provisioner leaves the entry. An entry in an earlier version than the one that lacked it is
    /// not new: etcd was restored from a backup.
    fn observe(&mut self, key: &ProfileKey, is_theirs: Option<bool>, version: &str) -> bool {
        let version = version.parse().ok();
        if is_theirs == Some(false) {
            self.without.insert(key.clone(), version);
        } else if let Some(without) = self.without.remove(key) {
            let is_new = without.is_none() || version.is_none() || version > without;
            self.is_active |= is_theirs == Some(true) && is_new;
        }
        if !self.is_active || is_theirs != Some(true) {
            self.left.remove(key);
            return false;
        }
        // A probe is one write, whether it succeeds or not.
        if self.probe.as_ref() == Some(key) && std::mem::take(&mut self.is_due) {
            self.left.remove(key);
            return false;
        }
        self.left.insert(key.clone());
        true
    }

    fn probe(&mut self) -> Probe {
        if !self.is_active {
            return Probe::Needless;
        }
        let survives = self.probe.as_ref().is_some_and(|key| self.without.contains_key(key));
        // A different profile for each probe: the write of one may be refused.
        let after = self.probe.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let mut next = self.left.range((after, Bound::Unbounded)).chain(&self.left);
        let Some(key) = next.next().filter(|_| !survives).cloned() else {
            self.restart();
            return Probe::Over;
        };
        (self.probe, self.is_due) = (Some(key.clone()), true);
        Probe::Begun(key)
    }
}

/// The entry that cluster-proxy's own controller publishes: it uses the name of the profile as that of the cluster.
fn ocms(key: &ProfileKey, namespace: &str, certificates: &str) -> AccessProvider {
    let (service, port) = USER_SERVER;
    let url = format!("https://{service}.{namespace}:{port}/{}", key.cluster);
    entry(DEFAULT_PROVIDER, &key.cluster, url, certificates)
}

/// The entry that cluster-proxy's own controller would publish with the certificates of `present`, if `present` is
/// exactly that entry for one of these namespaces.
fn resembling(key: &ProfileKey, present: &AccessProvider, namespaces: &[&str]) -> Option<AccessProvider> {
    let certificates = &present.cluster.as_ref()?.certificate_authority_data.as_ref()?.0;
    let certificates = std::str::from_utf8(certificates).ok()?;
    let mut entries = namespaces.iter().map(|namespace| ocms(key, namespace, certificates));
    entries.find(|entry| entry == present)
}

impl AccessIndex {
    /// Records the whole content of the key at a location from which trust anchors are read.
    pub fn set_served(&mut self, place: AnchorPlace, content: &[u8]) {
        if place != self.place {
            return;
        }
        let text = std::str::from_utf8(content).ok().filter(|text| text.len() < BUNDLE_SIZE_LIMIT);
        let certificates = TrustBundle::from_published(content).ok();
        let served = text.map(|text| Served { text: text.into(), certificates });
        if self.competing_writer.served != served {
            self.competing_writer.served = served;
            self.competing_writer.restart();
        }
    }

    /// Whether a profile has the entry that cluster-proxy's own controller publishes; `None` if that is unknown, if our
    /// entry is the same, or if our provider has another name.
    ///
    /// If the serving Secret is not read, an entry with any certificates counts, but it must lead to cluster-proxy's
    /// Service in its namespace; with the source [`AccessSource::Static`], in one of the namespaces where OCM installs
    /// it. A tenant who can write the status of profiles could make the provisioner leave such an entry in the tenant's
    /// own namespace, but no other entry; the chart's admission policy prevents both.
    #[must_use]
    pub fn is_ocms(&self, key: &ProfileKey, observed: &ObservedProfile) -> Option<bool> {
        if self.provider != DEFAULT_PROVIDER {
            return None;
        }
        // Of several entries of the name, consumers use the last one.
        let present = observed.lone_access_provider(DEFAULT_PROVIDER);
        let theirs = match &self.source {
            AccessSource::ClusterProxy { ca, .. } => {
                let Known::Present(namespace) = &self.configuration else { return None };
                let namespace = namespace.as_str();
                if ca.is_some() {
                    present.as_ref().and_then(|present| resembling(key, present, &[namespace]))
                } else {
                    let served = self.competing_writer.served.as_ref().filter(|_| self.anchors.readable)?;
                    Some(ocms(key, namespace, &served.text))
                }
            }
            AccessSource::UserServer(_) => return None,
            AccessSource::Static(_) => {
                present.as_ref().and_then(|present| resembling(key, present, &NAMESPACES))
            }
        };
        let Some(theirs) = theirs else { return Some(false) };
        if matches!(self.offer(key, observed), Offer::Publish(ours) if *ours == theirs) {
            return None;
        }
        Some(present == Some(theirs))
    }

    /// Decides our entry in one profile, `None` if the profile is gone or not ours. Unlike [`Self::offer`], it takes
    /// into account which entries the profile had before.
    pub fn decide(&mut self, key: &ProfileKey, observed: Option<&ObservedProfile>) -> Option<Offer> {
        let Some(observed) = observed else {
            self.competing_writer.observe(key, None, "");
            return None;
        };
        let is_theirs = self.is_ocms(key, observed);
        if self.competing_writer.observe(key, is_theirs, &observed.version.resource_version) {
            return Some(Offer::Keep(Withheld::Contested));
        }
        Some(self.offer(key, observed))
    }

    /// Whether cluster-proxy's own controller undoes what the provisioner writes.
    #[must_use]
    pub fn is_contested(&self) -> bool {
        self.competing_writer.is_active
    }

    /// Concludes the previous probe, and begins the next one during a competition. Between two calls, the controller
    /// must have had time to write its entry again.
    pub fn probe_contest(&mut self) -> Probe {
        self.competing_writer.probe()
    }

    /// The finding on cluster-proxy's own controller, while it undoes what the provisioner writes.
    #[must_use]
    pub fn competing_writer_finding(&self) -> Option<Finding> {
        self.is_contested().then(|| {
            let message = format!(
                "cluster-proxy's own controller writes the access provider {DEFAULT_PROVIDER:?} of ClusterProfiles, \
                 too, and its entries are left as they are: disable the feature gate ClusterProfile of cluster-proxy \
                 (until 0.10 ClusterProfileAccessProvider); the access-provider provisioner replaces the entries within 20 minutes after that"
            );
            Finding::new(Reason::AccessProviderContested, message)
        })
    }
}
