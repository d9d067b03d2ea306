//! Shared by the tests of connections to managed clusters.

use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::api::PostParams;
use kube::{Api, Client, Config};
use local_hub::{CrdSet, HubBuilder, LocalHub, ServingAuthority, Upstream, UserServer};
use serde_json::json;

pub const SOON: Duration = Duration::from_mins(2);

/// A hub without the namespace controller.
pub fn hub() -> HubBuilder {
    LocalHub::builder().without_controller_manager()
}

/// A managed cluster.
pub fn managed() -> HubBuilder {
    hub().crds(CrdSet::None)
}

/// Permissions for a resource of the core group.
pub fn may(verbs: &[&str], resource: &str) -> PolicyRule {
    PolicyRule {
        api_groups: Some(vec![String::new()]),
        resources: Some(vec![resource.to_owned()]),
        verbs: verbs.iter().map(ToString::to_string).collect(),
        ..PolicyRule::default()
    }
}

/// A user server, and the authority that its clients trust.
pub struct Proxy {
    pub server: UserServer,
    pub ca: String,
}

impl Proxy {
    pub fn to<const N: usize>(clusters: [(&str, Upstream); N]) -> Self {
        let authority = ServingAuthority::new("proxy").unwrap();
        let serving = authority.issue(["127.0.0.1"]).unwrap();
        let server = UserServer::start(&serving, "127.0.0.1:0".parse().unwrap(), clusters).unwrap();
        Self { server, ca: authority.ca_pem() }
    }

    /// A client of a cluster, through the proxy.
    pub fn client(&self, cluster: &str, token: &str) -> Client {
        let mut config = Config::new(self.server.url_of(cluster).parse().unwrap());
        config.root_cert = Some(vec![pem::parse(&self.ca).unwrap().into_contents()]);
        config.auth_info.token = Some(token.to_owned().into());
        config.default_retry = false;
        Client::try_from(config).unwrap()
    }

    /// A kubeconfig for a cluster through the proxy, with these credentials.
    pub fn kubeconfig(&self, directory: &Path, cluster: &str, user: &serde_json::Value) -> PathBuf {
        let path = directory.join(format!("through-the-proxy.{cluster}.kubeconfig"));
        let ca = k8s_openapi::ByteString(self.ca.clone().into_bytes());
        let server = self.server.url_of(cluster);
        let kubeconfig = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{ "name": "it", "cluster": { "server": server, "certificate-authority-data": ca } }],
            "users": [{ "name": "it", "user": user }],
            "contexts": [{ "name": "it", "context": { "cluster": "it", "user": "it" } }],
            "current-context": "it",
        });
        std::fs::write(&path, kubeconfig.to_string()).unwrap();
        path
    }
}

/// The user name that the API server authenticates a client as.
pub async fn name_of(client: &Client) -> Result<String, kube::Error> {
    let reviews: Api<SelfSubjectReview> = Api::all(client.clone());
    let answer = reviews.create(&PostParams::default(), &SelfSubjectReview::default()).await?;
    Ok(answer.status.unwrap().user_info.unwrap().username.unwrap())
}

/// The code of a response that is an error, if there was a response.
pub fn code<T>(answer: &Result<T, kube::Error>) -> Option<u16> {
    match answer {
        Err(kube::Error::Api(status)) => Some(status.code),
        _ => None,
    }
}
