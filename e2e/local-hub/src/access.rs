//! How to reach a hub's API server as one of its users.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::ByteString;
use kube::config::AuthInfo;
use kube::{Client, Config};
use serde_json::json;

use crate::certificates::Authority;
use crate::users::{User, Users};
use crate::{HubError, users};

/// Where the API server is, how it proves that it is the one, and who is known there.
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
        connect(self.config(self.users.get(user)?)?)
    }

    /// A client for the hub's own affairs: one request each, and an answer or an error soon.
    pub(crate) fn harness(&self) -> Result<Client, HubError> {
        connect(self.harness_config()?)
    }

    /// The same with the rights of a user, but not in his name: the audit log tells them apart.
    pub(crate) fn harness_as(&self, user: &str) -> Result<Client, HubError> {
        let user = self.users.get(user)?;
        let mut config = self.harness_config()?;
        config.auth_info.impersonate = Some(user.name.clone());
        config.auth_info.impersonate_groups = Some(user.groups.clone()).filter(|groups| !groups.is_empty());
        connect(config)
    }

    fn harness_config(&self) -> Result<Config, HubError> {
        let mut config = self.config(self.users.get(users::HARNESS)?)?;
        config.default_retry = false;
        config.read_timeout = Some(Duration::from_secs(10));
        Ok(config)
    }

    /// From nothing but what is known here: no proxy that the environment names, which would not reach this
    /// machine's own address.
    fn config(&self, user: &User) -> Result<Config, HubError> {
        let url = self.url();
        let address = url.parse().map_err(|source: http::uri::InvalidUri| {
            HubError::io(format!("use {url}"), std::io::Error::other(source))
        })?;
        let mut config = Config::new(address);
        config.root_cert = Some(vec![self.authority.der.clone()]);
        config.auth_info = AuthInfo { token: Some(user.token.clone().into()), ..AuthInfo::default() };
        Ok(config)
    }

    /// Writes the users' kubeconfigs into a directory.
    pub(crate) fn write_kubeconfigs(&self, directory: &Path) -> Result<(), HubError> {
        self.users.with_files().try_for_each(|user| {
            let path = kubeconfig_path(directory, &user.name);
            let yaml = serde_saphyr::to_string(&self.kubeconfig(user)).map_err(|error| {
                HubError::io(format!("write {}", path.display()), std::io::Error::other(error))
            })?;
            write_private(&path, &yaml)
        })
    }

    /// Everything is in it, so that the file can be copied elsewhere.
    fn kubeconfig(&self, user: &User) -> serde_json::Value {
        let authority = ByteString(self.authority.pem.clone().into_bytes());
        json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{
                "name": "local-hub",
                "cluster": { "server": self.url(), "certificate-authority-data": authority },
            }],
            "users": [{ "name": user.name, "user": { "token": user.token } }],
            "contexts": [{ "name": "local-hub", "context": { "cluster": "local-hub", "user": user.name } }],
            "current-context": "local-hub",
        })
    }
}

fn connect(config: Config) -> Result<Client, HubError> {
    Client::try_from(config).map_err(HubError::api("make a client"))
}

/// Where a user's kubeconfig is.
pub(crate) fn kubeconfig_path(directory: &Path, user: &str) -> PathBuf {
    directory.join(format!("{user}.kubeconfig"))
}

/// Writes a new file that only we may read.
pub(crate) fn write_private(path: &Path, contents: &str) -> Result<(), HubError> {
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .and_then(|mut file| file.write_all(contents.as_bytes()))
        .map_err(|source| HubError::io(format!("write {}", path.display()), source))
}
