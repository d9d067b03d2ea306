//! The flags of `hub-addons run` by which controllers decide what they write.
//!
//! `explain` decides the same, by the arguments of their Deployments.
#![allow(
    clippy::doc_markdown,
    reason = "these comments are the text of --help, which shows backticks as they are"
)]

use clap::{ArgAction, Args};
use hub_api::names::ManagerName;
use hub_core::access;
use hub_core::claim_allow_list::ClaimAllowList;
use hub_core::credential::index::SyncSettings;
use hub_core::endpoint::ServerTemplate;
use hub_core::fleet::BoundSource;
use hub_core::label_allow_list::LabelAllowList;
use hub_core::project::ProjectionSettings;
use hub_core::protected::{self, ProtectedNamespaces};
use hub_core::trust::CaReference;

/// What controllers decide by.
#[derive(Debug, Args)]
#[group(skip)]
pub struct DecisionArgs {
    /// Name of the cluster manager in ClusterProfiles: only its profiles are changed
    #[arg(long, default_value = ManagerName::DEFAULT)]
    pub cluster_manager_name: ManagerName,

    /// Labels to copy from ManagedClusters to their ClusterProfiles, as KEY,PREFIX/*
    #[arg(long, default_value = "", hide_default_value = true)]
    pub propagate_labels: LabelAllowList,

    /// Cluster claims that ClusterProfiles show as properties, as NAME,*SUFFIX,PREFIX*,PREFIX*SUFFIX; by default all
    #[arg(long, default_value = "", hide_default_value = true)]
    pub propagate_claims: ClaimAllowList,

    /// On a hub without Open Cluster Management: treat a ManagedClusterSetBinding as bound if its set exists. No
    /// controller writes its condition `Bound` there
    #[arg(long, value_name = "BOOL", default_value = "false", default_missing_value = "true", num_args = 0..=1, require_equals = true, action = ArgAction::Set)]
    pub compute_bound: bool,

    /// Copy the token of a ManagedServiceAccount only to the namespaces in its annotation
    /// authentication.open-cluster-management.io/sync-to-namespaces. Without the annotation, it is copied to none
    #[arg(long, value_name = "BOOL", default_value = "false", default_missing_value = "true", num_args = 0..=1, require_equals = true, action = ArgAction::Set)]
    pub require_sync_namespaces: bool,

    /// Namespaces that receive neither credentials nor permissions, as NAME,PREFIX*; those of joined clusters are
    /// always included. This holds even if a set is bound there. Include the namespace of this program
    #[arg(long, value_name = "NAMESPACES", default_value = protected::DEFAULT)]
    pub protected_namespaces: ProtectedNamespaces,

    /// Copy tokens that were reported before their ManagedCluster was created, for a hub that was restored from a
    /// backup. Otherwise, they are treated as those of an earlier cluster of the same name
    #[arg(long, value_name = "BOOL", default_value = "false", default_missing_value = "true", num_args = 0..=1, require_equals = true, action = ArgAction::Set)]
    pub trust_restored_tokens: bool,

    /// What access providers publish.
    #[command(flatten)]
    pub provider: ProviderArgs,
}

/// What access providers publish.
#[derive(Debug, Args)]
#[group(skip)]
#[command(next_help_heading = "Access providers")]
pub struct ProviderArgs {
    /// Name of our entry in status.accessProviders, by which consumers select it
    #[arg(long, value_name = "NAME", value_parser = provider_name, default_value = access::DEFAULT_PROVIDER)]
    pub access_provider_name: String,

    /// Publish only for clusters with the ManagedClusterAddOn cluster-proxy
    #[arg(long, value_name = "BOOL", default_value = "true", default_missing_value = "true", num_args = 0..=1, require_equals = true, action = ArgAction::Set)]
    pub cluster_proxy_require_addon: bool,

    /// URL of a server of your own, with {cluster} in place of the cluster's name; by default cluster-proxy's user
    /// server
    #[arg(long, value_name = "URL")]
    pub access_provider_server: Option<ServerTemplate>,

    /// The server's CA certificates, as configmap/NAMESPACE/NAME/KEY or secret/NAMESPACE/NAME/KEY; by default the
    /// serving certificate of cluster-proxy's user server. Its Secret also contains its private key
    #[arg(long, value_name = "REFERENCE")]
    pub access_provider_ca: Option<CaReference>,
}

impl DecisionArgs {
    /// How to determine whether bindings are in effect.
    #[must_use]
    pub fn bound_source(&self) -> BoundSource {
        if self.compute_bound { BoundSource::Computed } else { BoundSource::Status }
    }

    /// The settings of the projector.
    #[must_use]
    pub fn projection(&self) -> ProjectionSettings {
        ProjectionSettings {
            manager: self.cluster_manager_name.clone(),
            propagated_labels: self.propagate_labels.clone(),
            propagated_claims: self.propagate_claims.clone(),
        }
    }

    /// The settings of the syncer.
    #[must_use]
    pub fn sync(&self) -> SyncSettings {
        SyncSettings {
            manager: self.cluster_manager_name.clone(),
            require_namespaces: self.require_sync_namespaces,
            protected: self.protected_namespaces.clone(),
            trust_restored: self.trust_restored_tokens,
        }
    }
}

/// Parses the name of an access provider, whose length v1alpha2 of ClusterProfile limits.
fn provider_name(text: &str) -> Result<String, String> {
    const MAX_LENGTH: usize = 253;
    match text.chars().count() {
        1..=MAX_LENGTH => Ok(text.to_owned()),
        length => Err(format!("must have 1 to {MAX_LENGTH} characters, got {length}")),
    }
}
