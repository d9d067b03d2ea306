//! The hub that the commands read.

use std::path::PathBuf;

use jiff::Timestamp;
use kube::client::Body;
use kube::core::NamespaceScope;
use kube::{Api, Client, Resource};
use object_names::visible;

use crate::CommandError;

/// The hub and the user's access to it.
#[derive(Clone)]
pub struct Hub {
    /// A client with the permissions of the user.
    pub client: Client,
    /// The namespace for commands that name none: that of the option, else of the context.
    pub namespace: String,
    /// The namespace of the option `--namespace`.
    pub named: Option<String>,
    /// The kubeconfig of the client, if there is one.
    pub kubeconfig: Option<PathBuf>,
    /// Whether the client uses another context or identity than the kubeconfig's current context.
    pub differs_from_kubeconfig: bool,
}

/// Why a request to the hub failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {verb} {resource}: {}", describe(.source))]
pub struct HubError {
    pub verb: &'static str,
    /// The resource or object of the request.
    pub resource: String,
    pub source: kube::Error,
}

impl Hub {
    #[must_use]
    pub fn new(client: Client, kubeconfig: Option<PathBuf>) -> Self {
        // As in kubectl; with an empty namespace, requests would be for all.
        let namespace = Some(client.default_namespace()).filter(|namespace| !namespace.is_empty());
        let namespace = namespace.unwrap_or("default").to_owned();
        Self { client, namespace, named: None, kubeconfig, differs_from_kubeconfig: false }
    }

    /// The objects of a kind in a namespace, or with `None` in all.
    pub(crate) fn api<K>(&self, kind: &K::DynamicType, namespace: Option<&str>) -> Api<K>
    where
        K: Resource<Scope: NamespaceScope>,
    {
        let all = Api::all_with(self.client.clone(), kind);
        match namespace {
            Some(namespace) => all.constrain(namespace),
            None => all,
        }
    }

    /// The kubeconfig of the hub for the exec plugin, which uses its current context.
    pub(crate) fn kubeconfig_for_plugin(
        &self,
        chosen: Option<&PathBuf>,
    ) -> Result<Option<PathBuf>, CommandError> {
        if chosen.is_none() && self.differs_from_kubeconfig {
            let message = "the exec plugin uses the current context of a kubeconfig, and not --context and --as: \
                           name a kubeconfig for it with --hub-kubeconfig";
            return Err(CommandError::Refused(message.to_owned()));
        }
        Ok(chosen.or(self.kubeconfig.as_ref()).cloned())
    }

    /// The time according to the hub's clock, by which Leases are renewed; if the hub does not send it, that of this
    /// machine.
    pub(crate) async fn now(&self) -> Result<Timestamp, HubError> {
        let failed = |source| HubError { verb: "reach", resource: "the hub".to_owned(), source };
        let request = http::Request::get("/version").body(Body::empty());
        let request = request.map_err(|error| failed(kube::Error::HttpError(error)))?;
        let response = self.client.send(request).await.map_err(failed)?;
        let date = response.headers().get(http::header::DATE).and_then(|date| date.to_str().ok());
        let date = date.and_then(|date| jiff::fmt::rfc2822::parse(date).ok());
        Ok(date.map_or_else(Timestamp::now, |date| date.timestamp()))
    }
}

/// An error of the client in one line.
#[must_use]
pub fn describe(error: &kube::Error) -> String {
    let text = match error {
        kube::Error::Api(status) if status.code == 401 => {
            return "the hub rejects the credentials of the kubeconfig, which may have expired: log in again"
                .to_owned();
        }
        kube::Error::Api(status) if !status.message.is_empty() => return visible(&status.message),
        kube::Error::Api(status) => return format!("{} ({})", status.reason, status.code),
        error => server_check::explained(error),
    };
    visible(&text)
}
