//! `list`: the information that the printer columns of ClusterProfile cannot show: access providers, credentials and
//! the expiry of credentials.

use std::collections::BTreeMap;
use std::io::{self, Write};

use hub_api::labels;
use hub_core::consumer_access::AccessKind;
use hub_core::project::{CONTROL_PLANE_HEALTHY, JOINED};
use jiff::Timestamp;
use kube::ResourceExt as _;
use kube::api::{DynamicObject, ListParams};
use object_names::visible;
use serde::Serialize;
use serde_json::Value;

use crate::account::{Copied, copies};
use crate::args::ListArgs;
use crate::hub::{Hub, HubError};
use crate::requests;
use crate::{CommandError, Conclusion, table};

/// The text for an unknown value.
const UNKNOWN: &str = "?";
/// The text for no value.
const NONE: &str = "<none>";

const HEADS: [&str; 9] = [
    "NAMESPACE",
    "CLUSTER",
    "MANAGER",
    "VERSION",
    "HEALTHY",
    "JOINED",
    "ACCESS",
    "CREDENTIALS",
    "AGE",
];

/// A cluster that a namespace can see.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Row {
    namespace: String,
    name: String,
    manager: String,
    set: Option<String>,
    version: Option<String>,
    healthy: Option<String>,
    joined: Option<String>,
    access_providers: Vec<AccessRow>,
    /// `None` if the copies cannot be listed.
    credentials: Option<Vec<CredentialRow>>,
    created: Option<String>,
    #[serde(skip)]
    age: Option<i64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct AccessRow {
    name: String,
    server: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct CredentialRow {
    account: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires: Option<String>,
    #[serde(skip)]
    seconds: Option<i64>,
}

/// The credentials of clusters, as far as they can be read.
struct Credentials {
    now: Timestamp,
    /// The accounts with a copy, by namespace and cluster; `None` if copies cannot be listed.
    copies: Option<BTreeMap<(String, String), Vec<String>>>,
    /// When the tokens of accounts expire, by cluster and name.
    expiries: BTreeMap<(String, String), Timestamp>,
}

/// Lists the clusters of the namespaces in the arguments.
pub async fn list(
    hub: &Hub,
    args: &ListArgs,
    out: &mut impl Write,
) -> Result<Conclusion, CommandError> {
    let target = args.place.target(hub)?;
    let kind = requests::served_version(&hub.client).await?.resource();
    let namespace = (!args.all_namespaces).then_some(target.namespace.as_str());
    let name = target.cluster.map(|cluster| format!("metadata.name={cluster}"));
    let profiles = hub.api::<DynamicObject>(&kind, namespace);
    let credentials = Credentials::read(hub, namespace).await?;
    let params = ListParams { field_selector: name, ..ListParams::default() };
    let resource = "clusterprofiles.multicluster.x-k8s.io".to_owned();
    let found = profiles.list(&params).await;
    let found = found.map_err(|source| HubError { verb: "list", resource, source })?;
    let rows: Vec<_> = found.iter().map(|object| Row::read(object, &credentials)).collect();
    let items = serde_json::json!({ "items": rows });
    match args.output {
        Some(format) => format.print(&items, out)?,
        None if rows.is_empty() => {
            let place = namespace
                .map_or("any namespace".to_owned(), |namespace| format!("namespace {namespace}"));
            let target = namespace.unwrap_or_default();
            writeln!(
                io::stderr(),
                "No ClusterProfiles found in {place}. To find out why: kubectl clusterprofile explain {target}"
            )?;
        }
        None => {
            let mut all = vec![HEADS.map(str::to_owned).to_vec()];
            all.extend(rows.iter().map(Row::cells));
            table::print(&all, out)?;
        }
    }
    Ok(Conclusion::Fine)
}

impl Row {
    fn read(profile: &DynamicObject, credentials: &Credentials) -> Self {
        let (spec, status) = (&profile.data["spec"], &profile.data["status"]);
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let condition = |kind: &str| {
            let mut conditions = status["conditions"].as_array().into_iter().flatten();
            text(&conditions.find(|condition| condition["type"] == kind)?["status"])
        };
        let providers = status["accessProviders"].as_array().into_iter().flatten();
        let providers = providers.map(|provider| AccessRow {
            name: text(&provider["name"]).unwrap_or_default(),
            server: text(&provider["cluster"]["server"]).unwrap_or_default(),
        });
        let labels = profile.labels();
        let namespace = profile.namespace().unwrap_or_default();
        let cluster =
            labels.get(labels::CLUSTER_NAME).cloned().unwrap_or_else(|| profile.name_any());
        let created = profile.creation_timestamp().map(|time| time.0);
        Self {
            name: profile.name_any(),
            manager: text(&spec["clusterManager"]["name"]).unwrap_or_default(),
            set: labels.get(labels::CLUSTER_SET).cloned(),
            version: text(&status["version"]["kubernetes"]),
            healthy: condition(CONTROL_PLANE_HEALTHY),
            joined: condition(JOINED),
            access_providers: providers.collect(),
            credentials: credentials.of(&namespace, &cluster),
            created: created.map(|time| time.to_string()),
            age: created.map(|time| credentials.now.as_second() - time.as_second()),
            namespace,
        }
    }

    fn cells(&self) -> Vec<String> {
        let or_unknown =
            |value: &Option<String>| value.clone().unwrap_or_else(|| "Unknown".to_owned());
        let or_none =
            |list: Vec<String>| if list.is_empty() { NONE.to_owned() } else { list.join(",") };
        let names = self.access_providers.iter().map(|provider| provider.name.clone()).collect();
        let credentials = match &self.credentials {
            None => UNKNOWN.to_owned(),
            Some(credentials) => or_none(credentials.iter().map(CredentialRow::cell).collect()),
        };
        let cells = [
            self.namespace.clone(),
            self.name.clone(),
            self.manager.clone(),
            self.version.clone().unwrap_or_else(|| NONE.to_owned()),
            or_unknown(&self.healthy),
            or_unknown(&self.joined),
            or_none(names),
            credentials,
            self.age.map_or_else(|| UNKNOWN.to_owned(), table::span),
        ];
        cells.iter().map(|cell| visible(cell)).collect()
    }
}

impl CredentialRow {
    fn cell(&self) -> String {
        match self.seconds {
            Some(seconds) if seconds <= 0 => format!("{}(expired)", self.account),
            Some(seconds) => format!("{}({})", self.account, table::span(seconds)),
            None => self.account.clone(),
        }
    }
}

impl Credentials {
    /// Reads the metadata of copies, and the accounts: no token leaves the hub.
    async fn read(hub: &Hub, namespace: Option<&str>) -> Result<Self, HubError> {
        let accounts = hub.api::<DynamicObject>(&AccessKind::Account.api().resource(), None);
        let asking = format!("{}={}", labels::SYNC_TO_CLUSTER_PROFILE, labels::TRUE);
        let asking = ListParams::default().labels(&asking);
        let (now, found, accounts) = futures::try_join!(
            hub.now(),
            copies(hub, namespace),
            requests::list(&accounts, &asking)
        )?;
        let expiry = |account: DynamicObject| {
            let expires = account.data["status"]["expirationTimestamp"].as_str()?.parse().ok()?;
            Some(((account.namespace()?, account.name_any()), expires))
        };
        let copies = found.map(|found| {
            let mut by_pair: BTreeMap<_, Vec<_>> = BTreeMap::new();
            for Copied { namespace, cluster, account } in found {
                by_pair.entry((namespace, cluster)).or_default().push(account);
            }
            by_pair
        });
        let expiries = accounts.into_iter().flatten().filter_map(expiry).collect();
        Ok(Self { now, copies, expiries })
    }

    fn of(&self, namespace: &str, cluster: &str) -> Option<Vec<CredentialRow>> {
        let here = self.copies.as_ref()?.get(&(namespace.to_owned(), cluster.to_owned()));
        let credential = |account: &String| {
            let expires = self.expiries.get(&(cluster.to_owned(), account.clone()));
            CredentialRow {
                account: account.clone(),
                expires: expires.map(ToString::to_string),
                seconds: expires.map(|time| time.as_second() - self.now.as_second()),
            }
        };
        Some(here.into_iter().flatten().map(credential).collect())
    }
}
