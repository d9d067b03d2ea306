//! How a cluster is reached: our entry of `status.accessProviders`, and whether to publish, withdraw or keep it.
//!
//! **Unknown is not empty**: if its source is known to be gone, the entry is withdrawn; if the source cannot be read,
//! the entry is kept unchanged.
//!
//! The proxy reloads its serving certificate some time after its Secret has changed, so for an overlap old and new
//! trust anchors are published together. This module decides *which* anchors; its owner, which has a clock and can
//! connect to the proxy, ends overlaps ([`AccessIndex::end_overlap`], [`AccessIndex::observe`]).

mod anchors;
mod server;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use hub_api::cluster_profile::{AccessProvider, Cluster, NamedExtension};
use hub_api::labels;
use hub_api::managed_cluster::ClientConfig;
use hub_api::names::{ClusterName, ManagerName, Namespace, ProfileKey, is_dns_subdomain};
use hub_api::text::Text;
use k8s_openapi::ByteString;
use serde_json::json;
use strum::{EnumMessage, IntoStaticStr, VariantArray};

use self::anchors::Anchors;
use self::server::Checks;
use crate::endpoint::{self, ServerAddress, ServerTemplate};
use crate::finding::{Finding, Reason};
use crate::fleet::{Fleet, ObservedCluster};
use crate::known::Known;
use crate::own_identity;
use crate::profile::{Desired, DesiredStatus, ObservedProfile};
use crate::status_text::StatusText;
use crate::trust::{CaKind, CaReference, TrustBundle, TrustError};

pub use self::anchors::{AnchorChange, Overlap, OverlapEnd};
pub use self::server::{Presented, PublishedServer, ServerState, Sighting};

/// The provider name that OCM uses and consumers configure.
pub const DEFAULT_PROVIDER: &str = "open-cluster-management";

/// The name of the provider for applications with an identity of their own.
pub const OWN_IDENTITY_PROVIDER: &str = "open-cluster-management-own-identity";

/// The extension in which client-go and cluster-inventory-api pass an exec plugin its per-cluster configuration (client
/// authentication API, `Cluster.config`).
pub const EXEC_EXTENSION: &str = "client.authentication.k8s.io/exec";

/// The name of the ManagedProxyConfiguration that cluster-proxy reads, and of its ManagedClusterAddOns.
pub const CLUSTER_PROXY: &str = "cluster-proxy";

/// The Service of cluster-proxy's user server, and its port.
pub const USER_SERVER: (&str, u16) = ("cluster-proxy-addon-user", 9092);

/// The name of the Secret with the serving certificate of cluster-proxy's user server.
pub const SERVING_CERT_SECRET: &str = "cluster-proxy-user-serving-cert";

/// The serving certificate of cluster-proxy's user server, in the namespace of the proxy.
#[must_use]
pub fn serving_certificate(namespace: &Namespace) -> CaReference {
    CaReference {
        kind: CaKind::Secret,
        namespace: namespace.clone(),
        name: SERVING_CERT_SECRET.to_owned(),
        key: "tls.crt".to_owned(),
    }
}

/// The source of the server and the trust anchors of our entry. The names are labels of metrics.
#[derive(Debug, Clone, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum AccessSource {
    /// OCM's cluster-proxy addon.
    ClusterProxy {
        /// Whether only clusters with the addon get the entry.
        require_addon: bool,
        /// The location of the trust anchors, if it is not the user server's serving certificate.
        ca: Option<CaReference>,
    },
    /// A proxy that the administrator configures.
    Static(ServerTemplate),
    /// Our user server, which reaches clusters through the tunnel of cluster-proxy.
    #[strum(serialize = "own_identity")]
    UserServer(ServerTemplate),
}

/// Why an entry is not published. The set is fixed, so each can be a label of a metric (`into_str`).
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    EnumMessage,
    IntoStaticStr,
    VariantArray,
    thiserror::Error,
)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum Withheld {
    #[error("the hub has no ManagedProxyConfiguration: cluster-proxy is not installed")]
    NoConfiguration,
    #[error("the configuration of cluster-proxy cannot be read")]
    ConfigurationUnknown,
    #[error("the cluster does not have the addon cluster-proxy")]
    NoAddon,
    #[error("the addons of the clusters cannot be read")]
    AddonsUnknown,
    #[error("the serving certificate of the proxy is missing, or cannot be read")]
    NoTrustAnchor,
    #[error("the cluster label of the profile is not a valid name")]
    InvalidClusterName,
    #[error(
        "the tunnel of cluster-proxy, which the user server uses, carries no requests to a cluster of this name: \
         on the cluster, a Service of the name leads to the API server, so the name must begin with a letter and \
         must not contain a dot"
    )]
    NameNotRoutable,
    #[error("the hub has no such ManagedCluster")]
    NoCluster,
    #[error("the cluster reports no usable endpoint")]
    NoEndpoint,
    #[error("other access providers fill the list of the profile")]
    NoRoom,
}

impl Withheld {
    /// Every reason, for metrics that start at zero.
    pub const ALL: &'static [Self] = Self::VARIANTS;
}

/// The decision about our entry in one profile.
#[derive(Debug, Clone, PartialEq)]
pub enum Offer {
    Publish(Box<AccessProvider>),
    Withdraw(Withheld),
    /// Keep the profile unchanged.
    Keep(Withheld),
}

impl Offer {
    /// The finding on the profile, if only the owner of the cluster can change what withholds the entry.
    #[must_use]
    pub fn finding(&self) -> Option<Finding> {
        let Self::Withdraw(why @ Withheld::NameNotRoutable) = self else { return None };
        let message = format!("no access provider for own identities: {why}");
        Some(Finding::new(Reason::ClusterNameNotRoutable, message))
    }

    /// The decision as the desired part of the profile's status, for this provider name.
    #[must_use]
    pub fn into_desired(self, provider: &str) -> Desired {
        match self {
            Self::Publish(entry) => desired_entry(provider, Some(*entry)),
            Self::Withdraw(_) => desired_entry(provider, None),
            Self::Keep(_) => Desired::default(),
        }
    }
}

/// The desired state of a profile: this entry of the provider, or with `None` no entry of its name.
#[must_use]
pub fn desired_entry(provider: &str, entry: Option<AccessProvider>) -> Desired {
    let access_providers = vec![(provider.to_owned(), entry)];
    Desired {
        status: DesiredStatus { access_providers, ..DesiredStatus::default() },
        ..Desired::default()
    }
}

/// Whether a profile gets our entry: its label, by which profiles are found, and its immutable spec both name our
/// manager.
#[must_use]
pub fn is_ours(observed: &ObservedProfile, manager: &ManagerName) -> bool {
    observed.is_labelled(manager) && observed.manager == manager.as_str()
}

/// The cluster that a profile represents, by its label, not by its name.
pub fn cluster_of(observed: &ObservedProfile) -> Result<ClusterName, Withheld> {
    let name = observed.labels.get(labels::CLUSTER_NAME).unwrap_or_default();
    if is_dns_subdomain(name) {
        Ok(ClusterName::from(name))
    } else {
        Err(Withheld::InvalidClusterName)
    }
}

/// Our entry for one cluster.
#[must_use]
pub fn entry(
    provider: &str,
    cluster: &ClusterName,
    server: String,
    ca_pem: &str,
) -> AccessProvider {
    AccessProvider {
        name: provider.to_owned(),
        cluster: Some(Cluster {
            server,
            certificate_authority_data: Some(ByteString(ca_pem.as_bytes().to_vec())),
            extensions: vec![NamedExtension {
                name: EXEC_EXTENSION.to_owned(),
                extension: json!({"clusterName": cluster.as_str()}),
            }],
            ..Cluster::default()
        }),
    }
}

/// The trust anchors that a profile publishes for a provider, if they can be read.
#[must_use]
pub fn published_anchors(observed: &ObservedProfile, provider: &str) -> Option<TrustBundle> {
    let entry = observed.access_provider(provider)?;
    let ca = entry.cluster?.certificate_authority_data?;
    TrustBundle::from_published(&ca.0).ok()
}

/// Reads the trust anchors of many profiles, which publish few different texts: each text is parsed once.
#[derive(Debug, Default)]
pub struct AnchorReader {
    parsed: HashMap<Text, Option<TrustBundle>>,
    /// The text in each status that was read, by provider: a cluster has the same status in every namespace.
    texts: HashMap<(String, StatusText), Option<Text>>,
}

impl AnchorReader {
    /// The trust anchors that a profile publishes for a provider, if they can be read.
    pub fn published(
        &mut self,
        observed: &ObservedProfile,
        provider: &str,
    ) -> Option<&TrustBundle> {
        let status = observed.shared_status()?;
        let read = || {
            let data = observed.access_provider(provider)?.cluster?.certificate_authority_data?;
            String::from_utf8(data.0).ok().map(Text::from)
        };
        let texts = self.texts.entry((provider.to_owned(), status.clone()));
        let text = texts.or_insert_with(read).as_ref()?;
        if !self.parsed.contains_key(text) {
            let bundle = TrustBundle::from_published(text.as_bytes()).ok();
            self.parsed.insert(text.clone(), bundle);
        }
        self.parsed[text].as_ref()
    }
}

/// The latest direct offer for each cluster, and the endpoints that it follows from: its profiles have the same one in
/// every namespace, so its certificates are parsed once.
#[derive(Debug, Default)]
pub struct DirectOffers(HashMap<ClusterName, (Arc<[ClientConfig]>, Offer)>);

impl DirectOffers {
    /// The entry with a cluster's own API server, or why there is none.
    pub fn get(
        &mut self,
        provider: &str,
        cluster: &ClusterName,
        endpoints: Arc<[ClientConfig]>,
    ) -> Offer {
        if let Some((of, offer)) = self.0.get(cluster)
            && *of == endpoints
        {
            return offer.clone();
        }
        let offer = offer_direct(provider, cluster, &endpoints);
        self.0.insert(cluster.clone(), (endpoints, offer.clone()));
        offer
    }

    /// The cluster has changed, or is gone.
    pub fn forget(&mut self, cluster: &ClusterName) {
        self.0.remove(cluster);
    }
}

/// The cluster and the API servers that its agent reports, or the offer that follows if they are unknown.
pub fn reported_endpoints(
    fleet: &Fleet,
    observed: &ObservedProfile,
) -> Result<(ClusterName, Arc<[ClientConfig]>), Offer> {
    let cluster = cluster_of(observed).map_err(Offer::Withdraw)?;
    if !fleet.knows_clusters() {
        return Err(Offer::Keep(Withheld::ConfigurationUnknown));
    }
    let known = fleet.cluster(&cluster).ok_or(Offer::Withdraw(Withheld::NoCluster))?;
    let state = known.state.as_ref().map_err(|_| Offer::Keep(Withheld::ConfigurationUnknown))?;
    Ok((cluster, Arc::clone(&state.endpoints)))
}

/// Decides the entry with a cluster's own API server: its first endpoint that may be published. An endpoint without a
/// CA bundle is not published, because clients would use the system's roots.
fn offer_direct(provider: &str, cluster: &ClusterName, endpoints: &[ClientConfig]) -> Offer {
    let usable = endpoints.iter().find_map(|endpoint| {
        let (url, bundle) = usable(endpoint).ok()?;
        // Consumers append paths that begin with a slash.
        let server = url.trim_end_matches('/').to_owned();
        Some(entry(provider, cluster, server, bundle.pem()))
    });
    usable.map_or(Offer::Withdraw(Withheld::NoEndpoint), |entry| Offer::Publish(Box::new(entry)))
}

/// The findings on a cluster's own endpoints that are not published.
#[must_use]
pub fn endpoint_findings(cluster: &ObservedCluster) -> Vec<Finding> {
    let endpoints = cluster.state.iter().flat_map(|state| state.endpoints.iter());
    endpoints
        .filter_map(|endpoint| {
            let why = usable(endpoint).err()?;
            let host = endpoint::shown(&endpoint.url);
            Some(Finding::new(
                Reason::EndpointRefused,
                format!(
                    "its endpoint {host:?} is not published as a direct access provider: {why}"
                ),
            ))
        })
        .collect()
}

/// The URL and the CA of an endpoint, or why it is not published.
fn usable(endpoint: &ClientConfig) -> Result<(String, TrustBundle), String> {
    let url = endpoint::check_remote(&endpoint.url).map_err(|error| error.to_string())?;
    let bundle = endpoint.ca_bundle.as_ref().ok_or("it has no caBundle")?;
    let bundle =
        TrustBundle::from_published(&bundle.0).map_err(|error| format!("caBundle: {error}"))?;
    Ok((url, bundle))
}

/// Identifies a location of the trust anchors, which changes with the proxy's configuration. Readings from an earlier
/// location are ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct AnchorPlace(u64);

/// The state that decides our entry in every profile.
#[derive(Debug)]
pub struct AccessIndex {
    provider: String,
    source: AccessSource,
    overlap: bool,
    /// The proxy's namespace.
    configuration: Known<Namespace>,
    /// The clusters with the addon.
    addons: BTreeSet<ClusterName>,
    /// Whether `addons` is complete.
    addons_listed: bool,
    /// False while the configuration, which was read before, cannot be read.
    configuration_read: bool,
    place: AnchorPlace,
    anchors: Anchors,
    checks: Checks,
    /// The certificates in the serving Secret.
    served: Option<TrustBundle>,
}

impl AccessIndex {
    /// An empty index, whose offers keep existing entries. `overlap`: whether replaced anchors stay published for a
    /// while.
    #[must_use]
    pub fn new(provider: impl Into<String>, source: AccessSource, overlap: bool) -> Self {
        Self {
            provider: provider.into(),
            source,
            overlap,
            configuration: Known::Unknown,
            addons: BTreeSet::new(),
            addons_listed: false,
            configuration_read: true,
            place: AnchorPlace(0),
            anchors: Anchors::default(),
            checks: Checks::default(),
            served: None,
        }
    }

    /// The name of our entry.
    #[must_use]
    pub fn provider(&self) -> &str {
        &self.provider
    }

    /// The location of cluster-proxy's trust anchors, if the administrator has configured it.
    #[must_use]
    pub fn configured_ca(&self) -> Option<&CaReference> {
        match &self.source {
            AccessSource::ClusterProxy { ca, .. } => ca.as_ref(),
            AccessSource::Static(_) | AccessSource::UserServer(_) => None,
        }
    }

    /// The server of a cluster, if the administrator has configured it.
    pub(crate) fn static_server(&self, cluster: &ClusterName) -> Option<String> {
        match &self.source {
            AccessSource::Static(template) | AccessSource::UserServer(template) => {
                Some(template.server(cluster))
            }
            AccessSource::ClusterProxy { .. } => None,
        }
    }

    /// The anchors of the latest valid reading.
    #[must_use]
    pub fn current_anchors(&self) -> Option<&TrustBundle> {
        self.anchors.current()
    }

    /// Records the proxy's namespace; returns whether anything changes. The anchors at the old location are not those
    /// of the new server, so nothing is published until those at the new location have been read.
    pub fn set_configuration(&mut self, configuration: Known<Namespace>) -> bool {
        let changed = self.configuration != configuration;
        if changed {
            self.configuration = configuration;
            self.place = AnchorPlace(self.place.0 + 1);
            self.anchors.set_unreadable();
            self.checks = Checks::default();
        }
        changed
    }

    /// The current location of the trust anchors.
    #[must_use]
    pub fn place(&self) -> AnchorPlace {
        self.place
    }

    /// Records whether addons can be read: then a cluster that is not listed does not have the addon. Until their next
    /// list, the entries of all clusters stay as they are. Returns whether that has changed.
    pub fn set_addons_read(&mut self, is_read: bool) -> bool {
        std::mem::replace(&mut self.addons_listed, is_read) != is_read
    }

    /// Records whether the configuration can be read; while it cannot, the entries of all clusters stay as they are.
    /// Returns whether that has changed.
    pub fn set_configuration_read(&mut self, is_read: bool) -> bool {
        std::mem::replace(&mut self.configuration_read, is_read) != is_read
    }

    /// Records whether a cluster has the addon; returns whether anything changes.
    pub fn set_addon(&mut self, cluster: &ClusterName, present: bool) -> bool {
        if present { self.addons.insert(cluster.clone()) } else { self.addons.remove(cluster) }
    }

    /// Records the whole content of the key at a location from which trust anchors are read.
    pub fn set_served(&mut self, place: AnchorPlace, content: &[u8]) {
        if place == self.place {
            self.served = TrustBundle::from_published(content).ok();
        }
    }

    /// Records a reading of the trust anchors at a location. An invalid one changes nothing that is published.
    pub fn set_anchors(
        &mut self,
        place: AnchorPlace,
        reading: Result<TrustBundle, TrustError>,
    ) -> AnchorChange {
        let Ok(new) = reading else { return self.anchors_unknown(place) };
        if place != self.place {
            return AnchorChange::None;
        }
        if self.anchors.current() != Some(&new) {
            self.checks.restart();
        }
        self.anchors.read(&new, self.overlap)
    }

    /// Records that the trust anchors at a location do not exist or cannot be read. Published entries are kept.
    pub fn anchors_unknown(&mut self, place: AnchorPlace) -> AnchorChange {
        if place == self.place && self.anchors.set_unreadable() {
            AnchorChange::Changed
        } else {
            AnchorChange::None
        }
    }

    /// Records the anchors that a profile publishes at startup. Those that the source lacks count as replaced just now;
    /// returns whether there are any, the first time. A certificate that is still in the serving Secret has not been replaced:
    /// cluster-proxy's own controller publishes the server's certificate, too.
    pub fn inherit(&mut self, key: &ProfileKey, published: &TrustBundle) -> bool {
        let any = self.overlap && self.anchors.inherit(key, published, self.served.as_ref());
        if any {
            self.checks.restart();
        }
        any
    }

    /// Ends an overlap, except for anchors with whose certificate the server was seen since it began.
    pub fn end_overlap(&mut self, overlap: Overlap) -> OverlapEnd {
        self.anchors.end_overlap(overlap)
    }

    /// Decides our entry in one profile.
    #[must_use]
    pub fn offer(&self, key: &ProfileKey, observed: &ObservedProfile) -> Offer {
        let cluster = match cluster_of(observed) {
            Ok(cluster) => cluster,
            Err(why) => return Offer::Withdraw(why),
        };
        let server = match &self.source {
            AccessSource::UserServer(_) if !own_identity::is_routable(&cluster) => {
                return Offer::Withdraw(Withheld::NameNotRoutable);
            }
            AccessSource::Static(template) | AccessSource::UserServer(template) => {
                template.server(&cluster)
            }
            AccessSource::ClusterProxy { require_addon, .. } => {
                if !self.configuration_read {
                    return Offer::Keep(Withheld::ConfigurationUnknown);
                }
                match &self.configuration {
                    Known::Present(_) => {}
                    Known::Absent => return Offer::Withdraw(Withheld::NoConfiguration),
                    Known::Unknown => return Offer::Keep(Withheld::ConfigurationUnknown),
                }
                if *require_addon && !self.addons_listed {
                    return Offer::Keep(Withheld::AddonsUnknown);
                }
                if *require_addon && !self.addons.contains(&cluster) {
                    return Offer::Withdraw(Withheld::NoAddon);
                }
                let published = || {
                    let entry = observed.access_provider(&self.provider)?;
                    Some(ServerAddress::of_url(&entry.cluster?.server)?.host)
                };
                format!(
                    "https://{}:{}/{cluster}",
                    self.host(published).unwrap_or_default(),
                    USER_SERVER.1
                )
            }
        };
        match self.anchors.published_to(key) {
            Some(pem) => Offer::Publish(Box::new(entry(&self.provider, &cluster, server, &pem))),
            None => Offer::Keep(Withheld::NoTrustAnchor),
        }
    }

    /// The finding on an overlap: old and new anchors together are too large, so that only the new ones are published,
    /// and clients that reach a server with the old certificate fail until it is replaced.
    #[must_use]
    pub fn overlap_finding(&self) -> Option<Finding> {
        let why = self.anchors.too_large()?;
        let message = format!(
            "replaced trust anchors are not published beside the new ones until their overlap ends: together, {why}"
        );
        Some(Finding::new(Reason::OverlapTooLarge, message))
    }
}
