//! The provisioner beside cluster-proxy's own controller, which its feature gate `ClusterProfileAccessProvider` starts.
//!
//! Both publish an entry of the same name, and that controller's contains the serving certificate as well. It writes its
//! entry after every write of a profile, so the provisioner could replace it without end. Therefore the provisioner
//! stops once that controller has written its entry to a profile that lacked it: until the certificate or the
//! configuration changes, it leaves every entry that is exactly what the controller publishes, and replaces any other
//! as before.

use std::collections::BTreeSet;
use std::sync::Arc;

use hub_api::names::ProfileKey;

use super::{AccessIndex, AccessSource, AnchorPlace, DEFAULT_PROVIDER, Known, Offer, Withheld, entry};
use crate::note::{Note, Reason};
use crate::profile::ObservedProfile;
use crate::trust::{BUNDLE_SIZE_LIMIT, TrustAnchor, TrustBundle};

/// The Service of cluster-proxy's user server, and its port.
pub const USER_SERVER: (&str, u16) = ("cluster-proxy-addon-user", 9092);

/// What is known about cluster-proxy's own controller.
#[derive(Debug, Default)]
pub(super) struct Contest {
    /// The content of the serving Secret, which the controller publishes as a whole.
    served: Option<Served>,
    /// The profiles that have lacked its entry since the last change of the Secret or the configuration.
    without: BTreeSet<ProfileKey>,
    /// Whether one of them has its entry since.
    is_active: bool,
}

#[derive(Debug, PartialEq, Eq)]
struct Served {
    text: Arc<str>,
    certificates: Option<TrustBundle>,
}

impl Contest {
    /// Records a change of what the controller publishes.
    pub(super) fn restart(&mut self) {
        self.without.clear();
        self.is_active = false;
    }

    /// Whether the Secret contains a certificate, which has therefore not been replaced there.
    pub(super) fn serves(&self, anchor: &TrustAnchor) -> bool {
        let certificates = self.served.as_ref().and_then(|served| served.certificates.as_ref());
        certificates.is_some_and(|certificates| certificates.anchors().any(|it| it == anchor))
    }

    /// Records whether a profile has the controller's entry.
    fn observe(&mut self, key: &ProfileKey, is_theirs: bool) {
        if !is_theirs {
            self.without.insert(key.clone());
        } else if self.without.contains(key) {
            self.is_active = true;
        }
    }
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
        if self.contest.served != served {
            self.contest.served = served;
            self.contest.restart();
        }
    }

    /// Whether a profile has exactly the entry that cluster-proxy's own controller publishes; `None` if that is unknown,
    /// or if ours is the same.
    #[must_use]
    pub fn is_ocms(&self, key: &ProfileKey, observed: &ObservedProfile) -> Option<bool> {
        let (AccessSource::ClusterProxy { .. }, Known::Present(namespace)) =
            (&self.source, &self.configuration)
        else {
            return None;
        };
        let served = self.contest.served.as_ref().filter(|_| self.anchors.readable)?;
        if self.provider != DEFAULT_PROVIDER {
            return Some(false);
        }
        let (service, port) = USER_SERVER;
        // It uses the name of the profile as that of the cluster.
        let url = format!("https://{service}.{namespace}:{port}/{}", key.cluster);
        let theirs = entry(DEFAULT_PROVIDER, &key.cluster, url, &served.text);
        if matches!(self.offer(key, observed), Offer::Publish(ours) if *ours == theirs) {
            return None;
        }
        Some(observed.access_provider(DEFAULT_PROVIDER).as_ref() == Some(&theirs))
    }

    /// Decides our entry in one profile, `None` if the profile is gone or not ours. Unlike [`Self::offer`], it follows
    /// what the profile has had before.
    pub fn decide(&mut self, key: &ProfileKey, observed: Option<&ObservedProfile>) -> Option<Offer> {
        let Some(observed) = observed else {
            self.contest.without.remove(key);
            return None;
        };
        let is_theirs = self.is_ocms(key, observed);
        if let Some(is_theirs) = is_theirs {
            self.contest.observe(key, is_theirs);
        }
        if is_theirs == Some(true) && self.contest.is_active {
            return Some(Offer::Keep(Withheld::Contested));
        }
        Some(self.offer(key, observed))
    }

    /// The finding on cluster-proxy's own controller, while it undoes what the provisioner writes.
    #[must_use]
    pub fn contest_note(&self) -> Option<Note> {
        self.contest.is_active.then(|| {
            let message = format!(
                "cluster-proxy's own controller writes the access provider {DEFAULT_PROVIDER:?} of ClusterProfiles, \
                 too, and its entries are left as they are: disable the feature gate ClusterProfileAccessProvider of \
                 cluster-proxy, then restart the access provisioner"
            );
            Note::new(Reason::AccessProviderContested, message)
        })
    }
}
