//! Argo CD's cluster Secrets: one for each cluster of a consumer that asks for them, so that Argo CD needs no other
//! controller to find its clusters.
//!
//! - A Secret has the server and the trust anchors that the cluster's ClusterProfile publishes, and configures Argo CD
//!   to run `cp-creds` (`execProviderConfig`). It never contains a token
//!   (<https://argo-cd.readthedocs.io/en/stable/operator-manual/declarative-setup/#clusters>).
//! - It has the labels of the profile, by which an `ApplicationSet` selects. An annotation lists the copied labels, so
//!   that a label that the profile loses is removed here, too, and labels of Argo CD's users are kept.
//! - As for every object of a consumer, the grant decides whether the Secret exists. The profile decides its content:
//!   without our access provider in the profile, no Secret is created, and an existing one is kept.
//! - Argo CD stops where two Secrets have one cluster name
//!   (<https://github.com/argoproj/argo-cd/blob/v3.5.1/util/argo/argo.go>): while a Secret of another owner has the name
//!   of a cluster, none is created for it.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hub_api::names::{ClusterName, ProfileKey};
use serde_json::{Value, json};

use super::consumers::Consumer;
use super::desired::{AccessAction, AccessSettings, Desired, IntegrationPlan};
use super::kind::AccessKey;
use super::observed::{FoundObject, ObservedObject};
use crate::finding::{Finding, Reason};
use crate::fleet::Fleet;
use crate::grant::Grant;
use crate::profile::ObservedProfile;

/// The label by which Argo CD finds cluster Secrets, and its value.
pub const CLUSTER_SECRET: (&str, &str) = ("argocd.argoproj.io/secret-type", "cluster");

/// Annotation of a cluster Secret: the keys of the labels that are copied from the profile, separated by commas.
pub const PROFILE_LABELS: &str = "hub-addons/profile-labels";

/// Where the guides install `cp-creds`.
const DEFAULT_COMMAND: &str = "/plugins/cp-creds";
/// Where the guides mount the projected token.
const DEFAULT_OWN_TOKEN: &str = "/var/run/secrets/hub-addons/token";

/// The API version of the plugin in Argo CD's configuration: `cp-creds` prints the version that is requested, and Argo
/// CD supports v1, too.
const EXEC_API: &str = "client.authentication.k8s.io/v1beta1";

/// What a cluster's ClusterProfile says about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishedCluster {
    server: String,
    /// The trust anchors in base64.
    ca: String,
    labels: BTreeMap<String, String>,
}

impl PublishedCluster {
    /// Reads a profile; `None` if it is not ours or has no access provider of this name with a server and trust
    /// anchors.
    #[must_use]
    pub fn read(profile: &ObservedProfile, provider: &str) -> Option<Self> {
        let cluster = profile.lone_access_provider(provider)?.cluster?;
        let ca = cluster.certificate_authority_data.filter(|ca| !ca.0.is_empty())?;
        let labels = profile.labels.iter().map(|(key, value)| (key.to_owned(), value.to_owned()));
        Some(Self {
            // Argo CD finds the cluster of an Application by this exact text.
            server: cluster.server.trim_end_matches('/').to_owned(),
            ca: STANDARD.encode(ca.0),
            labels: labels.collect(),
        })
    }
}

impl AccessSettings {
    /// The access provider by which a consumer reaches its clusters.
    #[must_use]
    pub fn provider_of(&self, consumer: &Consumer) -> &str {
        if consumer.is_own() { &self.own_provider } else { &self.provider }
    }

    /// Whether a cluster should have a Secret in a namespace.
    #[must_use]
    pub fn argo_cd_grant(&self, fleet: &Fleet, key: &ProfileKey) -> Grant {
        match self.consumers.argo_cd(&key.namespace) {
            Some(consumer) => self.grant_to(fleet, consumer, &key.cluster),
            None => self.undeclared_grant(),
        }
    }

    /// Plans the next write to the Secret of a cluster. `rival` is a Secret of another owner for a cluster of this name.
    /// The caller must not call this before the Secrets and the profiles of the namespace are listed.
    #[must_use]
    pub fn plan_cluster_secret(
        &self,
        fleet: &Fleet,
        key: &ProfileKey,
        found: Option<&FoundObject>,
        published: Option<&PublishedCluster>,
        rival: Option<&str>,
    ) -> IntegrationPlan {
        let ours = found.filter(|found| self.is_ours(found)).map(|found| &found.object);
        let grant = self.argo_cd_grant(fleet, key);
        let mut findings = Vec::new();
        if found.is_some() && ours.is_none() && grant == Grant::Granted {
            findings.push(foreign_cluster_secret());
        }
        if let Some(rival) = rival.filter(|_| grant == Grant::Granted) {
            findings.push(rival_cluster_secret(&key.cluster, rival));
        }
        let desired = self.consumers.argo_cd(&key.namespace).zip(published);
        let desired = desired.map(|(consumer, published)| {
            self.cluster_secret(consumer, &key.cluster, published, ours)
        });
        let action = match (grant, ours, desired) {
            (Grant::Refused, Some(object), _) if !object.is_deleting => {
                AccessAction::Delete(object.version.clone())
            }
            (Grant::Granted, None, Some(desired)) if found.is_none() && rival.is_none() => {
                AccessAction::Create(desired.object(&AccessKey::ClusterSecret(key.clone())))
            }
            (Grant::Granted | Grant::Unknown, Some(object), Some(desired))
                if !object.is_deleting && !has(object, &desired) =>
            {
                let patch = json!({ "metadata": desired.metadata(), "data": desired.spec });
                AccessAction::Patch(object.version.clone(), patch)
            }
            _ => AccessAction::Nothing,
        };
        IntegrationPlan { action, findings }
    }

    /// What a Secret should contain. Other keys, labels and annotations are those of Argo CD's users.
    fn cluster_secret(
        &self,
        consumer: &Consumer,
        cluster: &ClusterName,
        published: &PublishedCluster,
        before: Option<&ObservedObject>,
    ) -> Desired {
        let mut labels = self.labels();
        labels.insert(CLUSTER_SECRET.0.to_owned(), CLUSTER_SECRET.1.into());
        // A label of the profile never replaces one by which the Secret is recognized.
        let copied: Vec<_> =
            published.labels.iter().filter(|(key, _)| !labels.contains_key(*key)).collect();
        let keys: Vec<&str> = copied.iter().map(|(key, _)| key.as_str()).collect();
        labels.extend(copied.iter().map(|(key, value)| ((*key).clone(), value.as_str().into())));
        let before = before.and_then(|object| object.content.annotations.get(PROFILE_LABELS));
        for ended in
            before.into_iter().flat_map(|keys| keys.split(',')).filter(|key| !key.is_empty())
        {
            labels.entry(ended.to_owned()).or_insert(Value::Null);
        }
        let plugin = consumer.spec.argo_cd.clone().unwrap_or_default();
        let command = plugin.command.as_deref().unwrap_or(DEFAULT_COMMAND);
        let arguments = if consumer.is_own() {
            vec![format!(
                "--own-token={}",
                plugin.own_token.as_deref().unwrap_or(DEFAULT_OWN_TOKEN)
            )]
        } else {
            // Before 3.5, Argo CD passes no cluster to the plugin.
            vec![
                format!("--managed-serviceaccount={}", consumer.account),
                format!("--namespace={}", consumer.namespace()),
                format!("--cluster-name={cluster}"),
            ]
        };
        let config = json!({
            "execProviderConfig": { "apiVersion": EXEC_API, "command": command, "args": arguments },
            "tlsClientConfig": { "caData": published.ca },
        })
        .to_string();
        let object = self.consumers.object(&consumer.name);
        let fields =
            [("name", cluster.as_str()), ("server", &*published.server), ("config", &*config)];
        Desired {
            labels,
            annotations: BTreeMap::from([(PROFILE_LABELS.to_owned(), keys.join(",").into())]),
            owners: consumer.name.owner(object.map(|object| &object.version.uid)),
            spec: fields
                .map(|(key, text)| (key.to_owned(), STANDARD.encode(text).into()))
                .into_iter()
                .collect(),
        }
    }
}

/// The finding on a Secret of another owner with the name of ours.
fn foreign_cluster_secret() -> Finding {
    let message = "belongs to another owner: it is not changed, and Argo CD does not get this cluster from hub-addons; \
                   rename or delete it";
    Finding::new(Reason::ForeignClusterSecret, message)
}

/// The finding on a Secret of another owner for the same cluster.
fn rival_cluster_secret(cluster: &ClusterName, rival: &str) -> Finding {
    let message = format!(
        "is not created, since the Secret {rival} of another owner also has the cluster name {cluster}, and Argo CD refuses \
         two clusters with one name: delete one of them"
    );
    Finding::new(Reason::ForeignClusterSecret, message)
}

/// The name of the cluster in a Secret, as Argo CD reads it.
#[must_use]
pub fn cluster_in_secret(data: &Value) -> Option<ClusterName> {
    let name = STANDARD.decode(data["name"].as_str()?).ok()?;
    Some(String::from_utf8(name).ok()?.as_str().into())
}

/// Whether a Secret is as desired. The configuration is compared as JSON, since Argo CD's own commands format it
/// differently.
fn has(object: &ObservedObject, desired: &Desired) -> bool {
    let json =
        |text: &Value| serde_json::from_slice::<Value>(&STANDARD.decode(text.as_str()?).ok()?).ok();
    let has_field = |(key, wanted): (&String, &Value)| {
        let found = object.content.spec.as_ref().and_then(|data| data.get(key));
        found == Some(wanted)
            || key == "config" && found.and_then(json).is_some_and(|it| Some(it) == json(wanted))
    };
    object.has_metadata(desired) && desired.spec.iter().all(has_field)
}
