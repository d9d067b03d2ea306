//! The user server's account on each cluster: its token, and the CA of the cluster's API server, as the agent of OCM's
//! managed-serviceaccount reports them on the hub.

use std::collections::HashMap;
use std::sync::Arc;

use http::HeaderValue;
use hub_api::names::ClusterName;
use hub_api::secret::{Secret, SecretBytes};
use hub_api::text::Text;
use hub_core::trust::BUNDLE_SIZE_LIMIT;
use hub_runtime::watch::{ObjectKey, Sink, Unreadable};
use konnectivity::{Credentials, Dialer};
use parking_lot::Mutex;
use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use zeroize::Zeroizing;

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
/// namespace of a cluster is for this cluster.
#[derive(Clone, Default)]
pub(crate) struct Accounts(Arc<Mutex<HashMap<ClusterName, Reported>>>);

struct Reported {
    ca: Vec<u8>,
    account: Account,
}

impl Accounts {
    /// The account on a cluster, if it is reported.
    pub(crate) fn get(&self, cluster: &ClusterName) -> Option<Account> {
        self.0.lock().get(cluster).map(|reported| reported.account.clone())
    }
}

impl Sink<Secret> for Accounts {
    fn apply(&mut self, key: &ObjectKey, object: Result<Secret, Unreadable>) {
        // A Secret that cannot be read counts as missing: what is known may be out of date.
        let Ok(secret) = object else { return self.delete(key) };
        let cluster = ClusterName::new(key.namespace.clone());
        let mut accounts = self.0.lock();
        if let Some(reported) = read(&secret, accounts.get(&cluster)) {
            accounts.insert(cluster, reported);
        } else {
            tracing::warn!(%cluster, "the Secret of the user server's account has no usable token and ca.crt");
            accounts.remove(&cluster);
        }
    }

    fn delete(&mut self, key: &ObjectKey) {
        self.0.lock().remove(&ClusterName::new(key.namespace.clone()));
    }
}

fn value<'a>(secret: &'a Secret, key: &str) -> Option<&'a [u8]> {
    secret.data.as_ref()?.get(key).map(SecretBytes::expose)
}

/// Reads what an agent reports. If the CA has not changed, the TLS configuration stays the same, and so do the
/// connections that use it.
fn read(secret: &Secret, before: Option<&Reported>) -> Option<Reported> {
    let (token, ca) = (value(secret, "token")?, value(secret, "ca.crt")?);
    // Whoever may create Secrets of this name, in any namespace, could fill the memory.
    if token.len() > TOKEN_LIMIT || ca.len() > BUNDLE_SIZE_LIMIT {
        return None;
    }
    let mut text = Zeroizing::new(b"Bearer ".to_vec());
    text.extend_from_slice(token);
    let mut authorization = HeaderValue::from_bytes(&text).ok()?;
    authorization.set_sensitive(true);
    let (tls, upgradable_tls) = match before.filter(|before| before.ca == ca) {
        Some(Reported { account, .. }) => (Arc::clone(&account.tls), Arc::clone(&account.upgradable_tls)),
        None => (config(ca, b"h2")?, config(ca, b"http/1.1")?),
    };
    Some(Reported { ca: ca.to_vec(), account: Account { authorization, tls, upgradable_tls } })
}

fn config(ca: &[u8], protocol: &[u8]) -> Option<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(CertificateDer::pem_slice_iter(ca).flatten());
    if roots.is_empty() {
        return None;
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .ok()?;
    let mut config = config.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![protocol.to_vec()];
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

    fn set(&self, name: &Text, secret: Option<Secret>) {
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

impl Sink<Secret> for ProxySecrets {
    fn apply(&mut self, key: &ObjectKey, object: Result<Secret, Unreadable>) {
        self.set(&key.name, object.ok());
    }

    fn delete(&mut self, key: &ObjectKey) {
        self.set(&key.name, None);
    }
}
