//! Access to a hub's API server as one of its users.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::ByteString;
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::json;

use crate::certificates::Authority;
use crate::users::Users;
use crate::{HubError, random, users};

/// The API server's address and authority, and its users.
#[derive(Clone, Debug)]
pub(crate) struct Access {
    pub(crate) port: u16,
    pub(crate) authority: Authority,
    pub(crate) users: Users,
}

impl Access {
    pub(crate) fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    /// A client as a program would have it.
    pub(crate) fn client(&self, user: &str) -> Result<Client, HubError> {
        self.client_with(&self.users.get(user)?.token)
    }

    /// The same with this token.
    pub(crate) fn client_with(&self, token: &str) -> Result<Client, HubError> {
        connect(self.config(token)?)
    }

    /// A client for the hub's own requests, which return or fail soon.
    pub(crate) fn harness(&self) -> Result<Client, HubError> {
        connect(self.harness_config()?)
    }

    /// The same with the permissions of a user, but another name, for the audit log.
    pub(crate) fn harness_as(&self, user: &str) -> Result<Client, HubError> {
        let user = self.users.get(user)?;
        self.harness_like(&user.name, &user.groups)
    }

    /// The same for a user that the hub was not started with. The name of a ServiceAccount determines its groups.
    pub(crate) fn harness_like(&self, name: &str, groups: &[String]) -> Result<Client, HubError> {
        let mut config = self.harness_config()?;
        config.auth_info.impersonate = Some(name.to_owned());
        config.auth_info.impersonate_groups = Some(groups.to_vec()).filter(|groups| !groups.is_empty());
        connect(config)
    }

    fn harness_config(&self) -> Result<Config, HubError> {
        Ok(impatient(self.config(&self.users.get(users::HARNESS)?.token)?))
    }

    /// Built only from what is known here: without the environment's proxy, which would not reach this machine's own
    /// address.
    fn config(&self, token: &str) -> Result<Config, HubError> {
        let url = self.url();
        let address = url.parse().map_err(|source: http::uri::InvalidUri| {
            HubError::io(format!("use {url}"), std::io::Error::other(source))
        })?;
        let mut config = Config::new(address);
        config.root_cert = Some(vec![self.authority.der.clone()]);
        config.auth_info = AuthInfo { token: Some(token.to_owned().into()), ..AuthInfo::default() };
        Ok(config)
    }

    /// Writes the users' kubeconfigs into a directory.
    pub(crate) fn write_kubeconfigs(&self, directory: &Path) -> Result<(), HubError> {
        self.users.with_files().try_for_each(|user| {
            let path = kubeconfig_path(directory, &user.name);
            self.write_kubeconfig(&path, &user.name, &user.token, None)
        })
    }

    /// Writes a kubeconfig for a user with this token, replacing an existing one.
    pub(crate) fn write_kubeconfig(
        &self,
        path: &Path,
        user: &str,
        token: &str,
        namespace: Option<&str>,
    ) -> Result<(), HubError> {
        write_kubeconfig(path, &self.kubeconfig(user, token, namespace))
    }

    /// Writes a kubeconfig for a user who reaches the API server at another address, without TLS.
    pub(crate) fn write_kubeconfig_through(
        &self,
        directory: &Path,
        user: &str,
        server: &str,
    ) -> Result<PathBuf, HubError> {
        let path = directory.join(format!("{user}-{}.kubeconfig", random::hex()?));
        let mut kubeconfig = self.kubeconfig(user, &self.users.get(user)?.token, None);
        kubeconfig["clusters"][0]["cluster"] = json!({ "server": server });
        write_kubeconfig(&path, &kubeconfig)?;
        Ok(path)
    }

    /// Self-contained, so that the file can be copied elsewhere.
    pub(crate) fn kubeconfig(&self, user: &str, token: &str, namespace: Option<&str>) -> serde_json::Value {
        let authority = ByteString(self.authority.pem.clone().into_bytes());
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
            "users": [{ "name": user, "user": { "token": token } }],
            "contexts": [{ "name": "local-hub", "context": context }],
            "current-context": "local-hub",
        })
    }
}

fn write_kubeconfig(path: &Path, kubeconfig: &serde_json::Value) -> Result<(), HubError> {
    let failed = |source| HubError::io(format!("write {}", path.display()), source);
    let yaml = serde_saphyr::to_string(kubeconfig).map_err(|error| failed(std::io::Error::other(error)))?;
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
    let wrong = |source| HubError::Kubeconfig { path: path.display().to_string(), source: Box::new(source) };
    let kubeconfig = Kubeconfig::read_from(path).map_err(wrong)?;
    let mut config =
        Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.map_err(wrong)?;
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
