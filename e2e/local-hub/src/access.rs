//! Access to a hub's API server as one of its users.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::Uri;
use k8s_openapi::ByteString;
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};

use crate::users::Users;
use crate::{HubError, ServingAuthority, random, users};

/// The API server's address and authority, and its users.
#[derive(Clone, Debug)]
pub(crate) struct Access {
    /// With the server's address and authority, and without credentials.
    config: Box<Config>,
    /// The authority as PEM.
    pub(crate) ca_pem: String,
    pub(crate) users: Users,
}

impl Access {
    /// That of a hub, whose port is set later.
    pub(crate) fn to_hub(authority: &ServingAuthority, users: Users) -> Self {
        let mut config = Config::new(Uri::from_static("https://127.0.0.1"));
        config.root_cert = Some(vec![authority.ca_der()]);
        Self { config: Box::new(config), ca_pem: authority.ca_pem(), users }
    }

    pub(crate) fn url(&self) -> String {
        self.config.cluster_url.to_string().trim_end_matches('/').to_owned()
    }

    pub(crate) fn port(&self) -> u16 {
        self.config.cluster_url.port_u16().unwrap_or(443)
    }

    pub(crate) fn set_port(&mut self, port: u16) -> Result<(), HubError> {
        let url = format!("https://127.0.0.1:{port}");
        self.config.cluster_url = url.parse().map_err(|source: http::uri::InvalidUri| {
            HubError::io(format!("use {url}"), std::io::Error::other(source))
        })?;
        Ok(())
    }

    /// A client as a program would have it.
    pub(crate) fn client(&self, user: &str) -> Result<Client, HubError> {
        connect(self.config(self.credentials(user)?))
    }

    /// The same with this token.
    pub(crate) fn client_with(&self, token: &str) -> Result<Client, HubError> {
        connect(self.config(bearer(token)))
    }

    /// A client for the hub's own requests, which return or fail soon.
    pub(crate) fn harness(&self) -> Result<Client, HubError> {
        connect(impatient(self.config(self.credentials(users::HARNESS)?)))
    }

    /// The same with the permissions of a user, but another name, for the audit log.
    pub(crate) fn harness_as(&self, user: &str) -> Result<Client, HubError> {
        let user = self.users.get(user)?;
        self.harness_like(&user.name, &user.groups)
    }

    /// The same for a user that the hub was not started with. The name of a ServiceAccount determines its groups.
    pub(crate) fn harness_like(&self, name: &str, groups: &[String]) -> Result<Client, HubError> {
        let impersonating = AuthInfo {
            impersonate: Some(name.to_owned()),
            impersonate_groups: Some(groups.to_vec()).filter(|groups| !groups.is_empty()),
            ..self.credentials(users::HARNESS)?
        };
        connect(impatient(self.config(impersonating)))
    }

    /// A user's credentials.
    pub(crate) fn credentials(&self, user: &str) -> Result<AuthInfo, HubError> {
        Ok(bearer(&self.users.get(user)?.token))
    }

    pub(crate) fn config(&self, credentials: AuthInfo) -> Config {
        let mut config = Config::clone(&self.config);
        config.auth_info = credentials;
        config
    }

    /// Writes the users' kubeconfigs into a directory.
    pub(crate) fn write_kubeconfigs(&self, directory: &Path) -> Result<(), HubError> {
        self.users.with_files().try_for_each(|user| {
            let kubeconfig = self.kubeconfig(&user.name, &self.credentials(&user.name)?, None);
            write_kubeconfig(&kubeconfig_path(directory, &user.name), &kubeconfig)
        })
    }

    /// Writes a kubeconfig for a ServiceAccount with this token, replacing an existing one.
    pub(crate) fn write_kubeconfig(
        &self,
        path: &Path,
        account: &str,
        token: &str,
        namespace: &str,
    ) -> Result<(), HubError> {
        write_kubeconfig(path, &self.kubeconfig(account, &bearer(token), Some(namespace)))
    }

    /// Self-contained, so that the file can be copied elsewhere.
    pub(crate) fn kubeconfig(
        &self,
        user: &str,
        credentials: &AuthInfo,
        namespace: Option<&str>,
    ) -> Value {
        let authority = ByteString(self.ca_pem.clone().into_bytes());
        let mut context = json!({ "cluster": "local-hub", "user": user });
        if let Some(namespace) = namespace {
            context["namespace"] = json!(namespace);
        }
        json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{
                "name": "local-hub",
                "cluster": { "server": self.url(), "certificate-authority-data": authority },
            }],
            "users": [{ "name": user, "user": credentials }],
            "contexts": [{ "name": "local-hub", "context": context }],
            "current-context": "local-hub",
        })
    }
}

fn bearer(token: &str) -> AuthInfo {
    AuthInfo { token: Some(token.to_owned().into()), ..AuthInfo::default() }
}

fn write_kubeconfig(path: &Path, kubeconfig: &Value) -> Result<(), HubError> {
    let failed = |source| HubError::io(format!("write {}", path.display()), source);
    let yaml = serde_saphyr::to_string(kubeconfig)
        .map_err(|error| failed(std::io::Error::other(error)))?;
    // An existing file keeps its mode and may be readable by others; a new file is private from the start.
    let draft = path.with_extension(format!("draft-{}", random::hex()?));
    write_private(&draft, &yaml)?;
    std::fs::rename(&draft, path).map_err(failed)
}

fn connect(config: Config) -> Result<Client, HubError> {
    Client::try_from(config).map_err(HubError::api("make a client"))
}

/// For single requests, which return or fail soon.
pub(crate) fn impatient(mut config: Config) -> Config {
    config.default_retry = false;
    config.read_timeout = Some(Duration::from_secs(10));
    config
}

/// The configuration of a kubeconfig's current context.
pub(crate) async fn config_from(path: &Path) -> Result<Config, HubError> {
    let wrong = |source: kube::config::KubeconfigError| {
        HubError::Failed(format!("cannot use the kubeconfig {}: {source}", path.display()))
    };
    let kubeconfig = Kubeconfig::read_from(path).map_err(wrong)?;
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .map_err(wrong)?;
    // The environment's proxy does not reach this machine's own address, and kube is built without proxy support here.
    config.proxy_url = None;
    Ok(config)
}

/// The path of a user's kubeconfig.
pub(crate) fn kubeconfig_path(directory: &Path, user: &str) -> PathBuf {
    directory.join(format!("{user}.kubeconfig"))
}

/// Writes a new file that only we may read.
pub(crate) fn write_private(path: &Path, contents: impl AsRef<[u8]>) -> Result<(), HubError> {
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .and_then(|mut file| file.write_all(contents.as_ref()))
        .map_err(|source| HubError::io(format!("write {}", path.display()), source))
}
