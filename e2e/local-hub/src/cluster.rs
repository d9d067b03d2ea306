//! Access to a cluster: that of a [`LocalHub`](crate::LocalHub), or any other.

use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::atomic::{AtomicUsize, Ordering};

use k8s_openapi::api::rbac::v1::PolicyRule;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;

use crate::access::{Access, kubeconfig_path};
use crate::grants::Grantee;
use crate::{HubError, crds, grants, users};

/// A cluster, its users, and a directory of ours.
#[derive(Debug)]
pub struct Cluster {
    pub(crate) access: Access,
    pub(crate) directory: PathBuf,
    bin: PathBuf,
    grants: AtomicUsize,
}

impl Cluster {
    pub(crate) fn new(access: Access, directory: PathBuf, bin: &Path) -> Self {
        Self { access, directory, bin: bin.to_owned(), grants: AtomicUsize::new(0) }
    }

    /// The API server's URL. It does not change during the life of the hub.
    #[must_use]
    pub fn url(&self) -> String {
        self.access.url()
    }

    /// The certificate of the API server's authority.
    #[must_use]
    pub fn ca_pem(&self) -> &str {
        &self.access.ca_pem
    }

    /// The directory: kubeconfigs, and that of a hub also logs and the audit log.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The directory of etcd, kube-apiserver, kube-controller-manager and kubectl.
    #[must_use]
    pub fn bin_dir(&self) -> &Path {
        &self.bin
    }

    /// A new client, with its own connections.
    ///
    /// `"admin"` has all permissions, and so has `"ocm"`, the user of Open Cluster Management's controllers, which is
    /// not exempt from priority and fairness. `"projector"`, `"provisioner"`, `"syncer"`, `"addons"`, `"consumer"` and
    /// additional users have what they are [granted](Self::grant).
    #[allow(
        clippy::unused_async,
        reason = "a client can only be made inside a runtime, and this says so"
    )]
    pub async fn client_as(&self, user: &str) -> Result<Client, HubError> {
        self.access.client(user)
    }

    /// A new client as any user with these groups: `system:masters` has all permissions.
    #[allow(
        clippy::unused_async,
        reason = "a client can only be made inside a runtime, and this says so"
    )]
    pub async fn client_like(&self, user: &str, groups: &[&str]) -> Result<Client, HubError> {
        self.access()
            .harness_like(user, &groups.iter().map(ToString::to_string).collect::<Vec<_>>())
    }

    /// A user's kubeconfig, in a file that only we can read.
    pub fn kubeconfig_for(&self, user: &str) -> Result<PathBuf, HubError> {
        self.access.users.get(user)?;
        Ok(kubeconfig_path(&self.directory, user))
    }

    /// Grants a user further permissions in all namespaces, and returns when they are effective.
    ///
    /// Returns the name of the `ClusterRole` and its binding.
    pub async fn grant(&self, user: &str, rules: Vec<PolicyRule>) -> Result<String, HubError> {
        let name = self.next_grant(user);
        let grantee = Grantee::user(user, self.access.harness_as(user)?);
        grants::grant(&self.access.harness()?, &grantee, None, &name, &rules).await?;
        Ok(name)
    }

    /// A unique name for another grant.
    pub(crate) fn next_grant(&self, who: &str) -> String {
        format!("local-hub:{who}-{}", self.grants.fetch_add(1, Ordering::Relaxed))
    }

    pub(crate) fn access(&self) -> &Access {
        &self.access
    }

    /// Runs kubectl as admin until it ends.
    pub async fn kubectl(&self, arguments: &[&str]) -> Result<Output, HubError> {
        let cache = self.directory.join("kubectl-cache");
        let kubectl = self.kubectl_with(&self.kubeconfig_for(users::ADMIN)?)?;
        kubectl.env("KUBECACHEDIR", cache).run(arguments).await
    }

    /// Installs a CRD, and returns when its resource is served.
    ///
    /// The garbage collector, and only that, may take 30 seconds more until it knows the kind.
    pub async fn install_crd(&self, crd: &CustomResourceDefinition) -> Result<(), HubError> {
        crds::install(&self.access.harness()?, std::slice::from_ref(crd)).await
    }
}
