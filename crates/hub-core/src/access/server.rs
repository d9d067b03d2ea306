//! The published server, as TLS handshakes show it: whether it answers, with a certificate that names it and that the
//! published anchors verify. What follows decides its host, and how long replaced anchors stay published.

use std::collections::BTreeSet;

use jiff::Timestamp;
use strum::{IntoStaticStr, VariantArray};

use super::{AccessIndex, AccessSource, USER_SERVER};
use crate::endpoint::ServerAddress;
use crate::finding::{Finding, Reason};
use crate::known::Known;
use crate::profile::ObservedProfile;
use crate::trust::{TrustAnchor, TrustBundle};

/// How many handshakes in a row have to meet the new certificate before replaced anchors are withdrawn: a Service chooses
/// one of several replicas, and one that still serves with the old certificate is missed once in a thousand times if
/// there are two, once in sixty if three.
const CONFIRMATIONS: u32 = 10;

/// How many checks in a row have to fail before that is a finding: a proxy that restarts fails one.
const FAILURES: u32 = 2;

/// The server that profiles publish.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishedServer {
    pub address: ServerAddress,
    /// The hosts that can be published, the preferred one first.
    pub hosts: Vec<String>,
    pub current: TrustBundle,
    /// The anchors that the current ones have replaced, and that are still published.
    pub replaced: BTreeSet<TrustAnchor>,
}

/// What a TLS handshake with the published server has shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sighting {
    /// No certificate, and why.
    Unreachable(String),
    Presented(Presented),
}

/// The certificate that a server presents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Presented {
    /// The anchors that verify it.
    pub verified_by: BTreeSet<TrustAnchor>,
    /// The hosts of [`PublishedServer::hosts`] that it names.
    pub names: Vec<String>,
    /// When it expires.
    pub expires: Timestamp,
    /// Why no anchor verifies it.
    pub refused: Option<String>,
}

/// The result of a check of the published server, as the end of a sentence about the server. The set is fixed, so each
/// can be a label of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr, VariantArray, thiserror::Error)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum ServerState {
    #[error("presents a certificate that names it and that the published trust anchors verify")]
    Ok,
    #[error("presents a certificate that only a replaced trust anchor verifies")]
    OldCertificate,
    #[error("presents a certificate that does not name it")]
    WrongName,
    #[error("presents a certificate that no published trust anchor verifies")]
    Untrusted,
    #[error("cannot be reached")]
    Unreachable,
}

impl ServerState {
    /// Every result, for metrics that start at zero.
    pub const ALL: &'static [Self] = Self::VARIANTS;
}

impl PublishedServer {
    /// The server that a profile publishes for a provider.
    #[must_use]
    pub fn of_profile(observed: &ObservedProfile, provider: &str) -> Option<Self> {
        let address = ServerAddress::of_url(&observed.access_provider(provider)?.cluster?.server)?;
        let current = super::published_anchors(observed, provider)?;
        Some(Self {
            hosts: vec![address.host.clone()],
            address,
            current,
            replaced: BTreeSet::new(),
        })
    }

    /// The result of a handshake, and details about it.
    #[must_use]
    pub fn judge(&self, sighting: &Sighting) -> (ServerState, String) {
        let presented = match sighting {
            Sighting::Unreachable(why) => return (ServerState::Unreachable, why.clone()),
            Sighting::Presented(presented) => presented,
        };
        let by_current =
            self.current.anchors().any(|anchor| presented.verified_by.contains(anchor));
        if by_current && presented.names.contains(&self.address.host) {
            (ServerState::Ok, String::new())
        } else if by_current {
            (ServerState::WrongName, format!("expected {}", self.address.host))
        } else if presented.verified_by.is_empty() {
            (ServerState::Untrusted, presented.refused.clone().unwrap_or_default())
        } else {
            (ServerState::OldCertificate, String::new())
        }
    }
}

/// What is known about the published server.
#[derive(Debug, Default)]
pub(super) struct Checks {
    /// The names in the certificate of the serving Secret, if that is read.
    pub serving_names: Option<Vec<String>>,
    /// The host that the server's verified certificate names.
    pub seen_host: Option<String>,
    /// The latest result, and the details of the first one in a row.
    last: Option<(ServerState, String)>,
    expires: Option<Timestamp>,
    failures: u32,
    confirmations: u32,
}

/// The ConfigMap with OpenShift's service CA, which issues certificates only for names that end in `.svc`.
const OPENSHIFT_CA: &str = "openshift-service-ca.crt";

impl Checks {
    /// Counts handshakes anew, since the anchors have changed.
    pub fn restart(&mut self) {
        (self.failures, self.confirmations) = (0, 0);
    }
}

impl AccessIndex {
    /// The hosts of cluster-proxy's user server that can be published. OCM's serving certificate names both.
    fn hosts(&self) -> Vec<String> {
        match (&self.source, &self.configuration) {
            (AccessSource::ClusterProxy { ca, .. }, Known::Present(namespace)) => {
                let short = format!("{}.{namespace}", USER_SERVER.0);
                let svc = format!("{short}.svc");
                let is_openshift = ca.as_ref().is_some_and(|ca| ca.name == OPENSHIFT_CA);
                if is_openshift { vec![svc] } else { vec![short, svc] }
            }
            _ => Vec::new(),
        }
    }

    /// The host to publish: the first one that the serving certificate names. If that is unknown, the host that is
    /// published now, else the first one.
    pub(super) fn host(&self, published: impl FnOnce() -> Option<String>) -> Option<String> {
        let hosts = self.hosts();
        let named = match &self.checks.serving_names {
            Some(names) => {
                hosts.iter().find(|host| names.iter().any(|name| names_host(name, host)))
            }
            None => hosts.iter().find(|host| self.checks.seen_host.as_ref() == Some(*host)),
        };
        if let Some(host) = named {
            return Some(host.clone());
        }
        published().filter(|published| hosts.contains(published)).or_else(|| hosts.first().cloned())
    }

    /// Records the names in the certificate of the serving Secret; returns whether they have changed.
    pub fn set_serving_names(
        &mut self,
        place: super::AnchorPlace,
        names: Option<Vec<String>>,
    ) -> bool {
        let changed = place == self.place && self.checks.serving_names != names;
        if changed {
            self.checks.serving_names = names;
        }
        changed
    }

    /// The server to check; `None` if each cluster has its own, or if the server or its anchors are unknown.
    #[must_use]
    pub fn server(&self) -> Option<PublishedServer> {
        let (address, hosts) = match &self.source {
            AccessSource::Static(template) | AccessSource::UserServer(template) => {
                let address = template.address()?;
                let hosts = vec![address.host.clone()];
                (address, hosts)
            }
            AccessSource::ClusterProxy { .. } => {
                (ServerAddress { host: self.host(|| None)?, port: USER_SERVER.1 }, self.hosts())
            }
        };
        let current = self.anchors.readable()?.clone();
        let replaced = self.anchors.replaced().cloned().collect();
        Some(PublishedServer { address, hosts, current, replaced })
    }

    /// Whether replaced anchors are published.
    #[must_use]
    pub fn is_overlapping(&self) -> bool {
        self.anchors.is_overlapping()
    }

    /// Records what a handshake with the server has shown; returns whether published entries change. Nothing changes if
    /// the server or its anchors have changed since.
    pub fn observe(&mut self, server: &PublishedServer, sighting: &Sighting) -> bool {
        if self.server().as_ref() != Some(server) {
            return false;
        }
        let mut changed = false;
        self.checks.expires = None;
        if let Sighting::Presented(presented) = sighting {
            self.checks.expires = Some(presented.expires);
            if !presented.verified_by.is_empty()
                && presented.names.first() != self.checks.seen_host.as_ref()
            {
                self.checks.seen_host = presented.names.first().cloned();
                changed = self.checks.serving_names.is_none();
            }
        }
        let address = self.server().map_or_else(|| server.address.clone(), |server| server.address);
        let (state, detail) = PublishedServer { address, ..server.clone() }.judge(sighting);
        match (state, sighting) {
            (ServerState::Ok, _) => self.checks.confirmations += 1,
            (ServerState::OldCertificate, Sighting::Presented(presented)) => {
                self.checks.confirmations = 0;
                self.anchors.observe(&presented.verified_by);
            }
            _ => self.checks.confirmations = 0,
        }
        let is_failure = !matches!(state, ServerState::Ok | ServerState::OldCertificate);
        self.checks.failures = if is_failure { self.checks.failures.saturating_add(1) } else { 0 };
        // Of several replicas, one that was not restarted serves the old certificate now and then.
        let is_in_doubt = state == ServerState::Ok
            && self.is_overlapping()
            && self.checks.confirmations < CONFIRMATIONS
            && self
                .checks
                .last
                .as_ref()
                .is_some_and(|(last, _)| *last == ServerState::OldCertificate);
        if !is_in_doubt && self.checks.last.as_ref().is_none_or(|(last, _)| *last != state) {
            self.checks.last = Some((state, detail));
        }
        if self.checks.confirmations >= CONFIRMATIONS && self.is_overlapping() {
            self.anchors.end_overlaps();
            changed = true;
        }
        changed
    }

    /// The latest result of a check, and when the server's certificate expires; `None` if there is nothing to check.
    #[must_use]
    pub fn checked(&self) -> Option<(ServerState, Option<Timestamp>)> {
        self.server()?;
        let (state, _) = self.checks.last.as_ref()?;
        Some((*state, self.checks.expires))
    }

    /// The finding on the published server: it fails repeatedly, or presents a certificate of replaced anchors after the
    /// overlap.
    #[must_use]
    pub fn server_finding(&self) -> Option<Finding> {
        let host = self.server()?.address.host;
        let (state, detail) = self.checks.last.as_ref()?;
        if *state == ServerState::OldCertificate && self.anchors.is_extended() {
            let restart = match (&self.source, &self.configuration) {
                (AccessSource::ClusterProxy { .. }, Known::Present(namespace)) => {
                    let service = USER_SERVER.0;
                    format!("kubectl --namespace {namespace} rollout restart deployment {service}")
                }
                _ => "restart it".to_owned(),
            };
            let message = format!(
                "the server {host} {}, which therefore stays published: {restart}",
                ServerState::OldCertificate
            );
            return Some(Finding::new(Reason::OldServerCertificate, message));
        }
        if self.checks.failures < FAILURES {
            return None;
        }
        let message = format!("the published server {host} {state}: {detail}");
        Some(Finding::new(Reason::ServerCheckFailed, message))
    }
}

/// Whether a name in a certificate is that of a host, or a wildcard for it.
fn names_host(name: &str, host: &str) -> bool {
    let wildcard = host.split_once('.').map(|(_, rest)| ("*.", rest));
    name.eq_ignore_ascii_case(host)
        || wildcard.is_some_and(|(star, rest)| {
            name.strip_prefix(star).is_some_and(|name| name.eq_ignore_ascii_case(rest))
        })
}
