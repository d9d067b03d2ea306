//! `kubeconfig`: the endpoints that ClusterProfiles publish, as a kubeconfig that runs the exec plugin. It contains no
//! secret.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hub_api::cluster_profile::{AccessProvider, Cluster};
use hub_api::names::is_dns_label;
use kube::ResourceExt as _;
use kube::api::{DynamicObject, ListParams};
use serde::Deserialize as _;
use serde_json::{Value, json};

use crate::args::{KubeconfigArgs, Output, Target, absolute};
use crate::hub::{Hub, HubError};
use crate::{CommandError, Conclusion, requests};

/// Prints a kubeconfig for the clusters that a namespace can see.
pub async fn kubeconfig(
    hub: &Hub,
    args: &KubeconfigArgs,
    out: &mut impl Write,
) -> Result<Conclusion, CommandError> {
    let mut entries = providers(hub, &args.target, args.reach.provider()).await?;
    let mut forwards = BTreeSet::new();
    for (_, cluster) in entries.iter_mut().filter(|_| args.port_forward) {
        forwards.insert(forward(cluster).ok_or_else(|| {
            CommandError::Refused(format!("{:?} is not a Service on the hub", cluster.server))
        })?);
    }
    let hub_kubeconfig = hub.kubeconfig_for_plugin(args.reach.hub_kubeconfig.as_ref())?;
    let config = config(hub_kubeconfig, args, &entries);
    // JSON has no comments.
    for forward in forwards.iter().filter(|_| args.output == Output::Yaml) {
        writeln!(out, "# Needs: {forward}")?;
    }
    args.output.print(&config, out)?;
    Ok(Conclusion::Fine)
}

/// The cluster stanzas that the profiles of a namespace publish, by the names of the profiles: at least one.
pub(crate) async fn providers(
    hub: &Hub,
    target: &Target,
    provider: &str,
) -> Result<Vec<(String, Cluster)>, CommandError> {
    let kind = requests::served_version(&hub.client).await?.resource();
    let api = hub.api::<DynamicObject>(&kind, Some(&target.namespace));
    let resource = format!("clusterprofiles in {}", target.namespace);
    let failed = |verb, source| HubError { verb, resource, source };
    let profiles = match &target.cluster {
        Some(cluster) => api
            .get_opt(cluster)
            .await
            .map_err(|source| failed("get", source))?
            .into_iter()
            .collect(),
        None => {
            api.list(&ListParams::default()).await.map_err(|source| failed("list", source))?.items
        }
    };
    let entries: Vec<_> = profiles
        .iter()
        .filter_map(|profile| {
            let providers = profile.data["status"]["accessProviders"].as_array()?;
            let entry = providers.iter().find(|entry| entry["name"] == provider)?;
            Some((profile.name_any(), AccessProvider::deserialize(entry).ok()?.cluster?))
        })
        .collect();
    if entries.is_empty() {
        return Err(CommandError::Refused(format!(
            "no ClusterProfile of {target} has the access provider {provider:?}; \
             to find out why: kubectl clusterprofile explain {target}"
        )));
    }
    Ok(entries)
}

/// Points a cluster stanza at this machine; returns the command that forwards the port from there.
fn forward(cluster: &mut Cluster) -> Option<String> {
    let uri: http::Uri = cluster.server.parse().ok()?;
    let (host, port) = (uri.host()?.to_owned(), uri.port_u16().unwrap_or(443));
    let mut labels = host.split('.');
    let (service, namespace) = (labels.next()?, labels.next()?);
    // SERVICE.NAMESPACE or SERVICE.NAMESPACE.svc, perhaps followed by the cluster's domain.
    if labels.next().is_some_and(|label| label != "svc") {
        return None;
    }
    // They become part of a command that people copy, and another user may have written them.
    if ![service, namespace].into_iter().all(is_dns_label) {
        return None;
    }
    let command =
        format!("kubectl port-forward --namespace {namespace} service/{service} {port}:{port}");
    cluster.server = format!("https://localhost:{port}{}", uri.path());
    cluster.tls_server_name.get_or_insert(host);
    // The way to the Service, which leads nowhere from this machine.
    cluster.proxy_url = None;
    Some(command)
}

fn config(
    hub_kubeconfig: Option<PathBuf>,
    args: &KubeconfigArgs,
    entries: &[(String, Cluster)],
) -> Value {
    let clusters: Vec<_> = entries
        .iter()
        .map(|(name, cluster)| json!({ "name": name, "cluster": stanza(cluster) }))
        .collect();
    let user = if args.reach.own_token.is_some() { "own-identity" } else { args.reach.account() };
    let contexts: Vec<_> = entries
        .iter()
        .map(|(name, _)| json!({ "name": name, "context": { "cluster": name, "user": user } }))
        .collect();
    let mut config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": clusters,
        "contexts": contexts,
        "users": [{ "name": user, "user": { "exec": exec(hub_kubeconfig, args) } }],
    });
    if let [(name, _)] = entries {
        config["current-context"] = name.as_str().into();
    }
    config
}

/// A cluster of a kubeconfig. Its certificates stay in base64, as the profile publishes them.
fn stanza(cluster: &Cluster) -> Value {
    let mut stanza = serde_json::to_value(cluster).unwrap_or_default();
    if let Some(ca) = &cluster.certificate_authority_data {
        stanza["certificate-authority-data"] = STANDARD.encode(&ca.0).into();
    }
    stanza
}

/// The user entry that runs the exec plugin. The plugin reads the copy of the token on the hub, so it needs the hub's
/// kubeconfig and not this one; or it returns the application's own token.
fn exec(hub_kubeconfig: Option<PathBuf>, args: &KubeconfigArgs) -> Value {
    let mut env = Vec::new();
    if args.reach.own_token.is_none() {
        env.push(json!({ "name": "NAMESPACE", "value": args.target.namespace }));
        let path = hub_kubeconfig.map(|path| absolute(&path).display().to_string());
        env.extend(path.map(|path| json!({ "name": "KUBECONFIG", "value": path })));
    }
    json!({
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": args.reach.plugin,
        "args": [args.reach.plugin_argument()],
        "env": env,
        "provideClusterInfo": true,
        "interactiveMode": "Never",
        "installHint": "cp-creds is the exec plugin of the hub addons for the ClusterProfile API",
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: KubeconfigArgs,
    }

    #[test]
    fn an_own_identity_needs_no_account_and_no_kubeconfig_of_the_hub() {
        let line = Line::parse_from(["it", "team/berlin", "--own-token=/run/token"]);
        assert_eq!(line.args.reach.provider(), "open-cluster-management-own-identity");
        let config = config(
            Some("/hub".into()),
            &line.args,
            &[("berlin".to_owned(), cluster("https://a:1/berlin"))],
        );
        let exec = &config["users"][0]["user"]["exec"];
        assert_eq!(exec["args"], json!(["--own-token=/run/token"]));
        assert_eq!(exec["env"], json!([]));
        assert_eq!(config["contexts"][0]["context"]["user"], config["users"][0]["name"]);
        let named = ["it", "team", "--own-token=/run/token", "--access-provider-name=mine"];
        assert_eq!(Line::parse_from(named).args.reach.provider(), "mine");
        assert!(Line::try_parse_from(["it", "team", "--own-token=t", "--account=a"]).is_err());
    }

    fn cluster(server: &str) -> Cluster {
        Cluster { server: server.to_owned(), ..Cluster::default() }
    }

    #[test]
    fn a_service_is_reached_through_a_forwarded_port_under_its_own_name() {
        for host in ["proxy.addons", "proxy.addons.svc", "proxy.addons.svc.cluster.local"] {
            let mut stanza = cluster(&format!("https://{host}:9092/berlin"));
            stanza.proxy_url = Some("https://proxy.example.com".to_owned());
            let command = "kubectl port-forward --namespace addons service/proxy 9092:9092";
            assert_eq!(forward(&mut stanza).as_deref(), Some(command));
            assert_eq!(stanza.server, "https://localhost:9092/berlin");
            assert_eq!(stanza.tls_server_name.as_deref(), Some(host));
            assert_eq!(stanza.proxy_url, None);
        }
    }

    #[test]
    fn what_is_not_a_service_of_the_hub_is_not_forwarded() {
        for server in [
            "https://proxy:9092/berlin",
            "https://proxy.example.com/berlin",
            "berlin",
            "https://x$(id).addons:9092/berlin",
            "https://proxy.a;id:9092/berlin",
            "https://proxy.a'b:9092/berlin",
        ] {
            assert_eq!(forward(&mut cluster(server)), None, "{server}");
        }
    }
}
