//! The user server's account on each cluster: its token, and the CA of the cluster's API server, as the agent of OCM's
//! managed-serviceaccount reports them on the hub.

use std::collections::HashMap;
use std::sync::Arc;

use http::HeaderValue;
use hub_api::names::ClusterName;
use hub_api::secret::Secret;
use hub_core::trust::BUNDLE_SIZE_LIMIT;
use hub_runtime::watch::{ObjectKey, Sink, Unreadable};
use konnectivity::{Credentials, Dialer};
use parking_lot::Mutex;
use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use zeroize::Zeroizing;

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

/// The accounts by cluster. Clones share them.
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

    fn set(&self, cluster: ClusterName, secret: &Secret) {
        let mut accounts = self.0.lock();
        let before = accounts.get(&cluster);
        if let Some(reported) = read(secret, before) {
            accounts.insert(cluster, reported);
        } else {
            tracing::warn!(%cluster, "the Secret of the user server's account has no usable token and ca.crt");
            accounts.remove(&cluster);
        }
    }

    fn remove(&self, cluster: &ClusterName) {
        self.0.lock().remove(cluster);
    }
}

/// Reads what an agent reports. If the CA has not changed, the TLS configuration stays the same, and so do the
/// connections that use it.
fn read(secret: &Secret, before: Option<&Reported>) -> Option<Reported> {
    let value = |wanted: &str| {
        let mut entries = secret.entries().filter(|(key, _)| *key == wanted);
        entries.next().map(|(_, bytes)| bytes.expose())
    };
    let (token, ca) = (value("token")?, value("ca.crt")?);
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

/// Follows the Secrets with the name of the account: the one in the namespace of a cluster is for this cluster.
pub(crate) struct AccountSink(pub(crate) Accounts);

impl Sink<Secret> for AccountSink {
    fn apply(&mut self, key: &ObjectKey, object: Result<Secret, Unreadable>) {
        let cluster = ClusterName::new(key.namespace.clone());
        // A Secret that cannot be read counts as missing: what is known may be out of date.
        match object {
            Ok(secret) => self.0.set(cluster, &secret),
            Err(_) => self.0.remove(&cluster),
        }
    }

    fn delete(&mut self, key: &ObjectKey) {
        self.0.remove(&ClusterName::new(key.namespace.clone()));
    }
}

/// What identifies the user server and the proxy server to each other, which two Secrets contain.
#[derive(Clone)]
pub(crate) struct ProxyCredentials {
    dialer: Dialer,
    parts: Arc<Mutex<Parts>>,
}

#[derive(Default)]
struct Parts {
    client: Option<Secret>,
    ca: Option<Secret>,
}

impl ProxyCredentials {
    pub(crate) fn new(dialer: Dialer) -> Self {
        Self { dialer, parts: Arc::default() }
    }

    fn change(&self, change: impl FnOnce(&mut Parts)) {
        let mut parts = self.parts.lock();
        change(&mut parts);
        let value = |secret: &Option<Secret>, wanted: &str| {
            let mut entries = secret.iter().flat_map(Secret::entries).filter(|(key, _)| *key == wanted);
            entries.next().map(|(_, bytes)| bytes.clone())
        };
        let (chain, key) = (value(&parts.client, "tls.crt"), value(&parts.client, "tls.key"));
        let credentials = match (value(&parts.ca, "ca.crt"), chain, key) {
            (Some(ca), Some(chain), Some(key)) => {
                let read = Credentials::from_pem(ca.expose(), chain.expose(), key.expose());
                read.inspect_err(|error| tracing::warn!("credentials for the proxy server: {error}")).ok()
            }
            _ => None,
        };
        // While only one of the two Secrets has been replaced, the last valid credentials stay.
        if credentials.is_some() {
            self.dialer.set_credentials(credentials);
        }
    }
}

/// Follows one of the two Secrets.
pub(crate) struct ProxySecretSink {
    pub(crate) credentials: ProxyCredentials,
    pub(crate) is_ca: bool,
}

impl ProxySecretSink {
    fn set(&self, secret: Option<Secret>) {
        self.credentials.change(|parts| {
            if self.is_ca {
                parts.ca = secret;
            } else {
                parts.client = secret;
            }
        });
    }
}

impl Sink<Secret> for ProxySecretSink {
    fn apply(&mut self, _: &ObjectKey, object: Result<Secret, Unreadable>) {
        self.set(object.ok());
    }

    fn delete(&mut self, _: &ObjectKey) {
        self.set(None);
    }
}
