//! The account whose token is used if the command names none: the only one of which the namespace has a copy. Reads the
//! metadata of the copies.

use std::collections::BTreeSet;

use hub_api::labels;
use hub_api::names::is_dns_subdomain;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use kube::api::ListParams;
use kube::core::PartialObjectMeta;

use crate::CommandError;
use crate::args::{ReachArgs, Target};
use crate::hub::{Hub, HubError};
use crate::requests;

/// Sets the account of the arguments, if they need one and have none.
pub(crate) async fn complete(
    hub: &Hub,
    target: &Target,
    reach: &mut ReachArgs,
) -> Result<(), CommandError> {
    if reach.account.is_some() || reach.own_token.is_some() {
        return Ok(());
    }
    let Some(copies) = copies(hub, Some(&target.namespace)).await? else {
        return Err(CommandError::Refused(format!(
            "you are not allowed to list Secrets in namespace {}: name the account with --account",
            target.namespace
        )));
    };
    reach.account = Some(only(target, &copies)?);
    Ok(())
}

/// A copy, with the cluster and the account that it records.
pub(crate) struct Copied {
    pub(crate) namespace: String,
    pub(crate) cluster: String,
    pub(crate) account: String,
}

/// The copies in a namespace, or with `None` in all, unless the user may not list them.
pub(crate) async fn copies(
    hub: &Hub,
    namespace: Option<&str>,
) -> Result<Option<Vec<Copied>>, HubError> {
    let secrets = hub.api::<Secret>(&(), namespace);
    let params = ListParams::default().labels(labels::SYNCED_FROM);
    let copied = |secret: &PartialObjectMeta<Secret>| {
        let annotation = |key: &str| secret.annotations().get(key).cloned();
        Some(Copied {
            namespace: secret.namespace().unwrap_or_default(),
            cluster: annotation(labels::SYNCED_CLUSTER)?,
            account: annotation(labels::SYNCED_ACCOUNT)?,
        })
    };
    let secrets = requests::list_metadata(&secrets, &params).await?;
    Ok(secrets.map(|secrets| secrets.iter().filter_map(copied).collect()))
}

/// The accounts of copies; with a cluster, those of its copies.
pub(crate) fn accounts_of<'a>(
    copies: &'a [Copied],
    cluster: Option<&str>,
) -> impl Iterator<Item = &'a str> {
    let copies =
        copies.iter().filter(move |copy| cluster.is_none_or(|cluster| cluster == copy.cluster));
    // Tenants can write these annotations.
    copies.map(|copy| copy.account.as_str()).filter(|account| is_dns_subdomain(account))
}

/// The only account among the copies.
fn only(target: &Target, copies: &[Copied]) -> Result<String, CommandError> {
    let accounts: BTreeSet<&str> = accounts_of(copies, target.cluster.as_deref()).collect();
    match &*Vec::from_iter(accounts) {
        [name] => Ok((*name).to_owned()),
        [] => Err(CommandError::Refused(format!(
            "there is no copy of a token for {target}; to find out why: kubectl clusterprofile explain {target}"
        ))),
        names => Err(CommandError::Refused(format!(
            "{target} has tokens of several accounts: choose one with --account ({})",
            names.join(", ")
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_account_is_optional_where_the_namespace_has_one_for_the_cluster() {
        let chosen = |cluster: Option<&str>, copies: &[(&str, &str)]| {
            let target =
                Target { namespace: "team".to_owned(), cluster: cluster.map(str::to_owned) };
            let copy = |&(cluster, account): &(&str, &str)| Copied {
                namespace: "team".to_owned(),
                cluster: cluster.to_owned(),
                account: account.to_owned(),
            };
            let copies: Vec<_> = copies.iter().map(copy).collect();
            only(&target, &copies).map_err(|error| error.to_string())
        };
        let both = [("berlin", "app"), ("paris", "app")];
        assert_eq!(chosen(None, &both), Ok("app".to_owned()));
        let mixed = [("berlin", "app"), ("paris", "other")];
        assert_eq!(chosen(Some("paris"), &mixed), Ok("other".to_owned()));
        let several = chosen(None, &mixed).unwrap_err();
        assert!(several.ends_with("(app, other)"), "{several}");
        let none = chosen(Some("tokyo"), &mixed).unwrap_err();
        assert!(none.ends_with("kubectl clusterprofile explain team/tokyo"), "{none}");
        chosen(None, &[("berlin", "--server=https://evil")]).unwrap_err();
    }
}
