//! `request`: a ClusterAccess, by which an application asks for access to the clusters that its namespace is granted.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;

use hub_api::cluster_access::{
    ArgoCd, CLUSTER_ACCESSES, ClusterAccess, ClusterAccessSpec, Clusters, IdentityKind, MultiKueue,
    MultiKueueConfig, Permission, PlacementRef,
};
use kube::Api;
use kube::api::PostParams;

use crate::args::{DryRun, Identity, RequestArgs};
use crate::hub::{Hub, HubError};
use crate::{CommandError, Conclusion};

/// The most entries of each list: the schema rejects more.
const MOST: usize = 16;

pub(crate) async fn request(
    hub: &Hub,
    args: &RequestArgs,
    out: &mut impl Write,
) -> Result<Conclusion, CommandError> {
    let namespace = &hub.namespace;
    let access = wanted(args, namespace)?;
    if args.dry_run == DryRun::Client {
        return print(args, &access, out);
    }
    let api: Api<ClusterAccess> = Api::namespaced(hub.client.clone(), namespace);
    let name = access.metadata.name.as_deref().unwrap_or_default();
    let resource = format!("{CLUSTER_ACCESSES} {namespace}/{name}");
    let created = api.create(&PostParams::default(), &access).await;
    print(args, &created.map_err(|source| HubError { verb: "create", resource, source })?, out)
}

/// Prints the object, or that it is created.
pub(crate) fn print(
    args: &RequestArgs,
    access: &ClusterAccess,
    out: &mut impl Write,
) -> Result<Conclusion, CommandError> {
    if let Some(format) = args.output {
        format.print(access, out)?;
    } else {
        let name = access.metadata.name.as_deref().unwrap_or_default();
        let done = match args.dry_run {
            DryRun::None => "created",
            DryRun::Client => "created (dry run)",
        };
        writeln!(out, "clusteraccess.access.open-cluster-management.io/{name} {done}")?;
    }
    Ok(Conclusion::Fine)
}

/// The object that the arguments describe, which the schema accepts.
pub(crate) fn wanted(args: &RequestArgs, namespace: &str) -> Result<ClusterAccess, CommandError> {
    let mut roles: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for role in &args.cluster_role {
        let new: BTreeSet<&str> = role.namespaces.iter().map(String::as_str).collect();
        let known = roles.entry(&role.name).or_insert_with(|| new.clone());
        // Without namespaces, it is bound in the whole cluster.
        *known = if known.is_empty() || new.is_empty() { BTreeSet::new() } else { &*known | &new };
    }
    let owned = |names: &BTreeSet<&str>| names.iter().map(ToString::to_string).collect::<Vec<_>>();
    let name = args.name.as_deref().unwrap_or(namespace);
    let accounts: BTreeSet<_> = args.service_account.iter().map(String::as_str).collect();
    let accounts = if accounts.is_empty() { [name].into() } else { accounts };
    let configs: BTreeSet<_> = args.multi_kueue.iter().collect();
    let configs =
        configs.into_iter().map(|name| MultiKueueConfig { name: name.clone(), selector: None });
    let configs: Vec<_> = configs.collect();
    let spec = ClusterAccessSpec {
        identity: match args.identity {
            Identity::Own => IdentityKind::Own,
            Identity::Copy => IdentityKind::Copy,
        },
        service_account_names: owned(&accounts),
        clusters: Clusters {
            selector: args.selector.clone(),
            placement_ref: args.placement.clone().map(|name| PlacementRef { name }),
        },
        permissions: roles
            .iter()
            .map(|(name, namespaces)| Permission {
                cluster_role: (*name).to_owned(),
                namespaces: owned(namespaces),
            })
            .collect(),
        multi_kueue: (!configs.is_empty()).then_some(MultiKueue { configs }),
        argo_cd: args.argo_cd.then(ArgoCd::default),
        ..ClusterAccessSpec::default()
    };
    let kueue = spec.multi_kueue.as_ref().map_or(0, |kueue| kueue.configs.len());
    let expressions =
        args.selector.iter().flat_map(|selector| &selector.match_expressions).map(Vec::len);
    let most = [spec.service_account_names.len(), spec.permissions.len(), kueue]
        .into_iter()
        .chain(expressions)
        .max();
    let most_namespaces = spec.permissions.iter().map(|role| role.namespaces.len()).max();
    if most > Some(MOST) || most_namespaces > Some(4 * MOST) {
        let most = format!(
            "at most {MOST} of each are possible, and {} namespaces of a ClusterRole",
            4 * MOST
        );
        return Err(CommandError::Refused(most));
    }
    let mut access = ClusterAccess::new(name, spec);
    access.metadata.namespace = Some(namespace.to_owned());
    Ok(access)
}

#[cfg(test)]
mod tests {
    use clap::{Parser, error::ErrorKind};
    use serde_json::{Value, json};

    use super::*;

    #[derive(Debug, Parser)]
    struct Request {
        #[command(flatten)]
        args: RequestArgs,
    }

    fn spec(arguments: &str) -> Result<Value, ErrorKind> {
        let arguments = ["request"].into_iter().chain(arguments.split(' '));
        let args = Request::try_parse_from(arguments).map_err(|error| error.kind())?.args;
        let wanted = wanted(&args, "team").map_err(|_| ErrorKind::TooManyValues)?;
        Ok(json!(wanted.spec))
    }

    #[test]
    fn what_is_printed_is_what_the_schema_accepts() {
        let all = spec(
            "--service-account=b --service-account=a --service-account=b --cluster-role=system:a=y,x \
             --cluster-role=system:a=z,x --cluster-role=e=x --cluster-role=e --identity=own --placement=gpus \
             -l=a=b,c!=d,e,!f --multi-kueue=m --multi-kueue=m --argo-cd",
        );
        let expressions = json!([
            { "key": "a", "operator": "In", "values": ["b"] },
            { "key": "c", "operator": "NotIn", "values": ["d"] },
            { "key": "e", "operator": "Exists" },
            { "key": "f", "operator": "DoesNotExist" },
        ]);
        let expected = json!({
            "identity": "Own", "serviceAccountNames": ["a", "b"], "argoCD": {}, "multiKueue": { "configs": [{ "name": "m" }] },
            "clusters": { "selector": { "matchExpressions": expressions }, "placementRef": { "name": "gpus" } },
            "permissions": [{ "clusterRole": "e" }, { "clusterRole": "system:a", "namespaces": ["x", "y", "z"] }],
        });
        assert_eq!(all, Ok(expected));
        for (arguments, account) in [("app", "app"), ("--cluster-role=view", "team")] {
            assert_eq!(spec(arguments).unwrap()["serviceAccountNames"], json!([account]));
        }
        let many =
            (0..17).map(|index| format!(" --cluster-role=r{index}")).collect::<Vec<_>>().concat();
        for (arguments, expected) in [
            ("X_ --service-account=a".to_owned(), ErrorKind::ValueValidation),
            (format!("{} --service-account=a", "a".repeat(64)), ErrorKind::ValueValidation),
            ("--service-account=A".to_owned(), ErrorKind::ValueValidation),
            ("--service-account=a --cluster-role=a/b".to_owned(), ErrorKind::ValueValidation),
            ("--service-account=a --cluster-role=a=".to_owned(), ErrorKind::ValueValidation),
            ("--service-account=a --placement=A".to_owned(), ErrorKind::ValueValidation),
            ("--service-account=a --multi-kueue=A".to_owned(), ErrorKind::ValueValidation),
            ("--service-account=a --selector=a=b=c".to_owned(), ErrorKind::ValueValidation),
            ("--service-account=a --selector=a,".to_owned(), ErrorKind::ValueValidation),
            (format!("--service-account=a{many}"), ErrorKind::TooManyValues),
        ] {
            assert_eq!(spec(&arguments), Err(expected), "{arguments}");
        }
    }
}
