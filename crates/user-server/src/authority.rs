//! The certificate authority of the user server, where no other one issues its serving certificate.
//!
//! A Secret in the namespace of the release keeps the authority, so that every replica issues from the same one, and a
//! ConfigMap publishes its certificates. The chart creates both without content, so that no permission to create is
//! needed. Serving certificates are issued in memory. An authority is published for longer than it issues: a successor
//! for at least a day before it issues, and its predecessor until it expires ([`state`]).

mod state;

use std::sync::Arc;
use std::time::Duration;

use hub_runtime::observe::health::Health;
use hub_runtime::observe::serving_certificate::{CertificateError, ServingCertificate};
use hub_runtime::write::error::summary;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::time::sleep;
use tracing::{info, warn};

use self::state::{Issued, State};

/// How often the authority is read.
const INTERVAL: Duration = Duration::from_mins(5);
/// The pause after a failure.
const PAUSE: Duration = Duration::from_secs(5);

/// The name of the readiness condition.
const CERTIFICATE: &str = "serving certificate";

/// The key in the ConfigMap.
const PUBLISHED: &str = "ca.crt";

/// Where the authority is kept, and what it issues for.
#[derive(Debug, Clone)]
pub struct AuthoritySettings {
    /// The namespace of the Secret and the ConfigMap.
    pub namespace: String,
    /// The name of both.
    pub name: String,
    /// The DNS names of the serving certificate.
    pub dns_names: Vec<String>,
    /// The protocols of the server (ALPN).
    pub protocols: &'static [&'static [u8]],
}

/// Maintains the authority, and the serving certificate that it issues.
pub struct Authority {
    client: Client,
    settings: AuthoritySettings,
    issued: Issued,
    /// The certificate to serve with.
    pub certificate: Arc<ServingCertificate>,
}

/// Why there is no authority for now.
#[derive(Debug, thiserror::Error)]
enum AuthorityError {
    #[error("cannot {verb} the {kind} {name}: {}", summary(source))]
    Request { verb: &'static str, kind: &'static str, name: String, source: kube::Error },
    #[error(transparent)]
    Certificate(#[from] CertificateError),
}

impl Authority {
    /// Reads or creates the authority, and issues the first certificate. Waits until that succeeds; until then, the
    /// process is not ready.
    pub async fn begin(client: &Client, health: &Health, settings: AuthoritySettings) -> Self {
        loop {
            match issue(client, &settings).await {
                Ok((issued, certificate)) => {
                    health.set_condition(CERTIFICATE, Ok(()));
                    return Self { client: client.clone(), settings, issued, certificate };
                }
                Err(error) => {
                    warn!("no serving certificate yet: {error}");
                    health.set_condition(CERTIFICATE, Err(error.to_string()));
                }
            }
            sleep(PAUSE).await;
        }
    }

    /// Renews what expires, for as long as it is polled. While the hub cannot be reached, the server goes on with the
    /// certificate that it has.
    pub async fn run(mut self) {
        loop {
            sleep(INTERVAL).await;
            while let Err(error) = self.renew().await {
                warn!("the serving certificate cannot be renewed: {error}");
                sleep(PAUSE).await;
            }
        }
    }

    async fn renew(&mut self) -> Result<(), AuthorityError> {
        let state = maintain(&self.client, &self.settings).await?;
        let now = Timestamp::now();
        if state.replaces(&self.issued, now) {
            let issued = state.issue(&self.settings.dns_names, now)?;
            self.certificate.replace(issued.chain(), issued.key())?;
            info!("renewed the serving certificate");
            self.issued = issued;
        }
        Ok(())
    }
}

/// Issues the first serving certificate.
async fn issue(
    client: &Client,
    settings: &AuthoritySettings,
) -> Result<(Issued, Arc<ServingCertificate>), AuthorityError> {
    let issued = maintain(client, settings).await?.issue(&settings.dns_names, Timestamp::now())?;
    let certificate = ServingCertificate::issued(issued.chain(), issued.key(), settings.protocols)?;
    Ok((issued, Arc::new(certificate)))
}

/// Reads the authority, renews it if that is due, and publishes its certificates.
async fn maintain(client: &Client, settings: &AuthoritySettings) -> Result<State, AuthorityError> {
    let AuthoritySettings { namespace, name, .. } = settings;
    let secrets = Api::<Secret>::namespaced(client.clone(), namespace);
    let config_maps = Api::<ConfigMap>::namespaced(client.clone(), namespace);
    let failed = |verb, kind| {
        move |source| AuthorityError::Request { verb, kind, name: name.clone(), source }
    };
    let params = PatchParams::default();
    let mut secret = secrets.get(name).await.map_err(failed("get", "Secret"))?;
    let now = Timestamp::now();
    let (mut state, is_renewed) =
        State::read(&secret.data.take().unwrap_or_default(), now).renewed(now)?;
    if is_renewed {
        // If another replica has renewed it meanwhile, this fails with a conflict, and the next attempt reads theirs.
        let patch =
            versioned(secret.metadata.resource_version.as_deref(), json!({ "data": state.data() }));
        secret = secrets
            .patch(name, &params, &Patch::Merge(patch))
            .await
            .map_err(failed("patch", "Secret"))?;
        info!("renewed the certificate authority");
        state = State::read(&secret.data.unwrap_or_default(), now);
    }
    let published = state.published(now);
    let config_map = config_maps.get(name).await.map_err(failed("get", "ConfigMap"))?;
    if config_map.data.as_ref().and_then(|data| data.get(PUBLISHED)) != Some(&published) {
        let content = json!({ "data": { PUBLISHED: published } });
        let patch = versioned(config_map.metadata.resource_version.as_deref(), content);
        config_maps
            .patch(name, &params, &Patch::Merge(patch))
            .await
            .map_err(failed("patch", "ConfigMap"))?;
        info!("published the certificate authority");
    }
    Ok(state)
}

/// A patch that applies only to this version of the object.
fn versioned(version: Option<&str>, mut patch: Value) -> Value {
    patch["metadata"]["resourceVersion"] = version.into();
    patch
}
