//! The user server's account on each cluster: its token, and the CA of the cluster's API server, as the agent of OCM's
//! managed-serviceaccount reports them on the hub.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use http::HeaderValue;
use hub_api::names::ClusterName;
use hub_api::secret::{Secret, SecretBytes};
use hub_api::text::Text;
use hub_core::entry::Refusal;
use hub_core::finding::Subject;
use hub_core::fleet::Fleet;
use hub_core::own_identity::{Authorities, KeyDigest};
use hub_core::trust::BUNDLE_SIZE_LIMIT;
use hub_process::fleet_cache::FleetCache;
use hub_runtime::observe::report::Reporter;
use hub_runtime::watch::{ObjectKey, Unreadable};
use konnectivity::{Credentials, Dialer};
use parking_lot::Mutex;
use rustls::client::Resumption;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, TrustAnchor};
use rustls::{ClientConfig, RootCertStore};
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use crate::sessions::{Open, Sessions};
use crate::settings::ProxyServerSettings;

/// Limit of a token, in bytes.
const TOKEN_LIMIT: usize = 16 * 1024;

/// The account on a cluster.
#[derive(Clone)]
pub(crate) struct Account {
    /// `Bearer TOKEN`, which is never printed.
    pub(crate) authorization: HeaderValue,
    /// For HTTP/2.
    pub(crate) tls: Arc<ClientConfig>,
    /// For connections that switch protocols, which requires HTTP/1.1.
    pub(crate) upgradable_tls: Arc<ClientConfig>,
}

/// The accounts by cluster, of which clones share them. Follows the Secrets with the name of the account: the one in the
/// namespace of a cluster is for this cluster. Nothing is kept of others, which anyone may have created.
#[derive(Clone)]
pub(crate) struct Accounts {
    known: Arc<Mutex<Known>>,
    fleet: FleetCache,
    reporter: Reporter,
    /// The open requests, if clusters with a CA in common are refused.
    refuses_shared: Option<Sessions>,
}

#[derive(Default)]
struct Known {
    reported: HashMap<ClusterName, Reported>,
    authorities: Authorities,
    /// The namespaces of such Secrets that are not those of clusters.
    others: BTreeSet<ClusterName>,
}

struct Reported {
    ca: Vec<u8>,
    keys: BTreeSet<KeyDigest>,
    account: Account,
}

impl Accounts {
    pub(crate) fn new(
        fleet: FleetCache,
        reporter: Reporter,
        refuses_shared: Option<Sessions>,
    ) -> Self {
        Self { known: Arc::default(), fleet, reporter, refuses_shared }
    }

    /// A cluster has changed. Returns whether its Secret must be read again, since it came before its cluster.
    pub(crate) fn cluster_changed(&self, fleet: &Fleet, cluster: &ClusterName) -> bool {
        if is_cluster(fleet, cluster) {
            return self.known.lock().others.remove(cluster);
        }
        if self.known.lock().reported.contains_key(cluster) {
            self.set(cluster.clone(), None);
            self.known.lock().others.insert(cluster.clone());
        }
        false
    }

    /// The account on a cluster, if it is reported.
    pub(crate) fn get(&self, cluster: &ClusterName) -> Result<Account, Refusal> {
        let known = self.known.lock();
        let reported =
            known.reported.get(cluster).ok_or_else(|| Refusal::NoAccount(cluster.clone()))?;
        if self.refuses_shared.is_some() && known.authorities.shared_with(cluster).is_some() {
            return Err(Refusal::SharedAuthority(cluster.clone()));
        }
        Ok(reported.account.clone())
    }

    /// The watch shows the Secret of the account on a cluster, or that it does not exist any more.
    pub(crate) fn show(&self, key: &ObjectKey, secret: Option<Result<Secret, Unreadable>>) {
        let cluster = ClusterName::new(key.namespace.clone());
        // A Secret that cannot be read counts as missing: what is known may be out of date.
        let Some(Ok(secret)) = secret else {
            self.known.lock().others.remove(&cluster);
            return self.set(cluster, None);
        };
        // First, since the cluster may come meanwhile.
        self.known.lock().others.insert(cluster.clone());
        if !is_cluster(&self.fleet.read(), &cluster) {
            return;
        }
        self.known.lock().others.remove(&cluster);
        let reported = read(&secret, self.known.lock().reported.get(&cluster));
        if reported.is_none() {
            tracing::warn!(%cluster, "the Secret of the user server's account has no usable token and ca.crt");
        }
        self.set(cluster, reported);
    }

    fn set(&self, cluster: ClusterName, reported: Option<Reported>) {
        let mut known = self.known.lock();
        let keys = reported.as_ref().map(|reported| reported.keys.clone()).unwrap_or_default();
        let mut shared = BTreeSet::new();
        for changed in known.authorities.set(&cluster, keys) {
            let finding = known.authorities.finding(&changed);
            if finding.is_some() {
                shared.insert(changed.clone());
            }
            self.reporter.report(&Subject::Cluster(changed), None, finding.into_iter().collect());
        }
        if let Some(sessions) = self.refuses_shared.as_ref().filter(|_| !shared.is_empty()) {
            sessions.cut(Open::All, |_, cluster| {
                shared.contains(cluster).then(|| Refusal::SharedAuthority(cluster.clone()))
            });
        }
        match reported {
            Some(reported) => known.reported.insert(cluster, reported),
            None => known.reported.remove(&cluster),
        };
    }
}

/// Whether a cluster of this name is accepted, so that only its agent and administrators write in its namespace.
fn is_cluster(fleet: &Fleet, cluster: &ClusterName) -> bool {
    fleet.cluster(cluster).is_some_and(|cluster| cluster.accepted != Some(false))
}

fn value<'a>(secret: &'a Secret, key: &str) -> Option<&'a [u8]> {
    secret.data.as_ref()?.get(key).map(SecretBytes::expose)
}

/// Reads what an agent reports. If the CA has not changed, the TLS configuration stays the same, and so do the
/// connections that use it.
fn read(secret: &Secret, before: Option<&Reported>) -> Option<Reported> {
    let (token, ca) = (value(secret, "token")?, value(secret, "ca.crt")?);
    // An agent chooses them.
    if token.len() > TOKEN_LIMIT || ca.len() > BUNDLE_SIZE_LIMIT {
        return None;
    }
    let mut text = Zeroizing::new(b"Bearer ".to_vec());
    text.extend_from_slice(token);
    let mut authorization = HeaderValue::from_bytes(&text).ok()?;
    authorization.set_sensitive(true);
    if let Some(Reported { keys, account, .. }) = before.filter(|before| before.ca == ca) {
        let account = Account { authorization, ..account.clone() };
        return Some(Reported { ca: ca.to_vec(), keys: keys.clone(), account });
    }
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(CertificateDer::pem_slice_iter(ca).flatten());
    if roots.is_empty() {
        return None;
    }
    let key = |anchor: &TrustAnchor<'_>| Sha256::digest(&anchor.subject_public_key_info).into();
    let (keys, roots) = (roots.roots.iter().map(key).collect(), Arc::new(roots));
    let (tls, upgradable_tls) = (config(&roots, b"h2")?, config(&roots, b"http/1.1")?);
    Some(Reported {
        ca: ca.to_vec(),
        keys,
        account: Account { authorization, tls, upgradable_tls },
    })
}

fn config(roots: &Arc<RootCertStore>, protocol: &[u8]) -> Option<Arc<ClientConfig>> {
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .ok()?;
    let mut config = config.with_root_certificates(Arc::clone(roots)).with_no_client_auth();
    config.alpn_protocols = vec![protocol.to_vec()];
    // It has one server, and the default has room for 32.
    config.resumption = Resumption::in_memory_sessions(1);
    Some(Arc::new(config))
}

/// Follows the two Secrets that identify the user server and the proxy server to each other. Clones share what is known.
#[derive(Clone)]
pub(crate) struct ProxySecrets {
    dialer: Dialer,
    settings: ProxyServerSettings,
    /// By name.
    known: Arc<Mutex<HashMap<Text, Secret>>>,
}

impl ProxySecrets {
    pub(crate) fn new(dialer: Dialer, settings: ProxyServerSettings) -> Self {
        Self { dialer, settings, known: Arc::default() }
    }

    /// The watch shows a Secret, or that it does not exist any more or cannot be read.
    pub(crate) fn set(&self, name: &Text, secret: Option<Secret>) {
        let mut known = self.known.lock();
        match secret {
            Some(secret) => known.insert(name.clone(), secret),
            None => known.remove(name),
        };
        let entry = |name: &str, key| known.get(name).and_then(|secret| value(secret, key));
        let ProxyServerSettings { client_secret, ca_secret, .. } = &self.settings;
        if let Some(ca) = entry(ca_secret, "ca.crt")
            && let Some(chain) = entry(client_secret, "tls.crt")
            && let Some(key) = entry(client_secret, "tls.key")
        {
            // While only one of the two Secrets has been replaced, the last valid credentials stay.
            match Credentials::from_pem(ca, chain, key) {
                Ok(credentials) => self.dialer.set_credentials(credentials),
                Err(error) => tracing::warn!("credentials for the proxy server: {error}"),
            }
        }
    }
}
