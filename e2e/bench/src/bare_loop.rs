//! The same writes as a cold start, issued by a loop that knows beforehand what to write: the speed that the hub
//! allows.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, ResourceExt as _};
use local_hub::{ocm, try_eventually};
use serde::Serialize;
use serde_json::json;

use crate::bench::Bench;
use crate::controllers::{HOME, everything, kubeconfig_through};
use crate::error::BenchError;
use crate::etcd::Etcd;
use crate::neighbour::Latency;
use crate::place::{BARE_LOOP, SENTINEL};
use crate::relay::Traffic;
use crate::view::profile;

/// As many requests at the same time as the controllers have workers for profiles.
const PARALLEL: usize = 16;

const NAME: &str = "bare-loop";
const PATIENCE: Duration = Duration::from_mins(10);

/// What the loop did.
#[derive(Clone, Debug, Serialize)]
pub struct BareLoop {
    /// How many writes it made.
    pub writes: usize,
    /// How long they took.
    pub seconds: f64,
    /// Its bytes on the wire.
    pub traffic: Traffic,
    /// What etcd did meanwhile.
    pub etcd: Etcd,
    /// How long the requests of another client took.
    pub neighbour: Latency,
}

/// A profile with its copies, as the controllers have written them.
struct Written {
    profile: DynamicObject,
    copies: Vec<Secret>,
}

/// Repeats every write of a cold start in namespaces of its own, and removes the results. No controller may run.
pub async fn run(bench: &Bench) -> Result<BareLoop, BenchError> {
    let (hub, relay, admin) = bench.hub();
    let written = read(admin).await?;
    let namespaces: Vec<String> = {
        let mut names: Vec<String> = written.iter().filter_map(|written| target(&written.profile)).collect();
        names.sort_unstable();
        names.dedup();
        names
    };
    ocm::create_all(admin, namespaces.iter().map(|namespace| ocm::namespace(namespace))).await?;
    hub.grant_service_account(HOME, NAME, everything()).await?;
    let client = client(&kubeconfig_through(hub, NAME, relay.address()).await?).await?;

    let etcd =
        || async { Etcd::read(&hub.etcd_socket()).await.map_err(BenchError::io("read etcd's counters")) };
    bench.neighbour().take();
    let (etcd_before, traffic, start) = (etcd().await?, relay.traffic(), Instant::now());
    let writes: Vec<usize> = futures::stream::iter(&written)
        .map(|written| write(&client, written))
        .buffer_unordered(PARALLEL)
        .try_collect()
        .await?;
    let result = BareLoop {
        writes: writes.into_iter().sum(),
        seconds: start.elapsed().as_secs_f64(),
        traffic: relay.traffic().since(traffic),
        etcd: etcd().await?.since(etcd_before),
        neighbour: bench.neighbour().take(),
    };
    for namespace in &namespaces {
        remove(admin, namespace).await?;
    }
    Ok(result)
}

async fn client(kubeconfig: &std::path::Path) -> Result<Client, BenchError> {
    let failed = |error: kube::config::KubeconfigError| {
        BenchError::io("use a kubeconfig")(std::io::Error::other(error))
    };
    let read = Kubeconfig::read_from(kubeconfig).map_err(failed)?;
    let config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await.map_err(failed)?;
    Client::try_from(config).map_err(BenchError::api("create a client"))
}

async fn read(client: &Client) -> Result<Vec<Written>, BenchError> {
    let profiles = profile("", "").api(client).list(&ListParams::default()).await;
    let secrets: Api<Secret> = Api::all(client.clone());
    let labelled = ListParams::default().labels("authentication.open-cluster-management.io/synced-from");
    let mut copies: BTreeMap<String, Vec<Secret>> = BTreeMap::new();
    for copy in secrets.list(&labelled).await.map_err(BenchError::api("list the copies"))? {
        let owner = copy.owner_references().first().map(|owner| owner.uid.clone()).unwrap_or_default();
        copies.entry(owner).or_default().push(copy);
    }
    let profiles = profiles.map_err(BenchError::api("list the profiles"))?.items;
    let with_copies = |profile: DynamicObject| {
        let copies = copies.remove(&profile.uid().unwrap_or_default()).unwrap_or_default();
        Written { profile, copies }
    };
    let is_counted = |profile: &DynamicObject| profile.namespace().as_deref() != Some(SENTINEL);
    Ok(profiles.into_iter().filter(is_counted).map(with_copies).collect())
}

fn target(profile: &DynamicObject) -> Option<String> {
    profile.namespace().map(|namespace| format!("{BARE_LOOP}{namespace}"))
}

/// Writes a profile, its status and its copies, and returns the number of writes.
async fn write(client: &Client, written: &Written) -> Result<usize, BenchError> {
    let (namespace, name) = (target(&written.profile).unwrap_or_default(), written.profile.name_any());
    let profiles = profile(&namespace, &name).api(client);
    let doing = |what: &str| BenchError::api(format!("{what} {namespace}/{name}"));
    let mut object = written.profile.clone();
    object.metadata = without_history(&written.profile.metadata);
    let status = object.data.as_object_mut().and_then(|data| data.remove("status")).unwrap_or_default();
    let created = profiles.create(&PostParams::default(), &object).await.map_err(doing("create"))?;
    let patch = Patch::Merge(json!({ "status": status }));
    profiles
        .patch_status(&name, &PatchParams::default(), &patch)
        .await
        .map_err(doing("write the status of"))?;
    let secrets: Api<Secret> = Api::namespaced(client.clone(), &namespace);
    for copy in &written.copies {
        let mut object = copy.clone();
        object.metadata = without_history(&copy.metadata);
        let mut owners = copy.metadata.owner_references.clone().unwrap_or_default();
        for owner in &mut owners {
            owner.uid = created.uid().unwrap_or_default();
        }
        object.metadata.owner_references = Some(owners);
        secrets.create(&PostParams::default(), &object).await.map_err(doing("create a copy for"))?;
    }
    Ok(2 + written.copies.len())
}

/// What a client sends of metadata.
fn without_history(metadata: &ObjectMeta) -> ObjectMeta {
    ObjectMeta {
        name: metadata.name.clone(),
        labels: metadata.labels.clone(),
        annotations: metadata.annotations.clone(),
        ..ObjectMeta::default()
    }
}

/// Deletes what the loop has written in a namespace, and returns when it is gone.
async fn remove(client: &Client, namespace: &str) -> Result<(), BenchError> {
    let profiles = profile(namespace, "").api(client);
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let (delete, all) = (DeleteParams::background(), ListParams::default());
    let failed = || BenchError::api(format!("empty the namespace {namespace}"));
    drop(secrets.delete_collection(&delete, &all).await.map_err(failed())?);
    drop(profiles.delete_collection(&delete, &all).await.map_err(failed())?);
    let one = ListParams::default().limit(1);
    let what = format!("{namespace} is empty");
    let empty = try_eventually(&what, PATIENCE, async || {
        let left = profiles.list(&one).await?.items.len() + secrets.list(&one).await?.items.len();
        Ok::<_, kube::Error>(left == 0)
    });
    empty.await.map_err(|timed_out| BenchError::NotConverged {
        scenario: NAME.to_owned(),
        timed_out,
        logs: String::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loop_sends_what_a_client_writes_and_nothing_that_the_server_adds() {
        let metadata = ObjectMeta {
            name: Some("one".to_owned()),
            namespace: Some("team".to_owned()),
            uid: Some("uid".to_owned()),
            resource_version: Some("7".to_owned()),
            labels: Some(BTreeMap::from([("a".to_owned(), "b".to_owned())])),
            ..ObjectMeta::default()
        };
        let sent = without_history(&metadata);
        assert_eq!((sent.name.as_deref(), sent.labels.map(|labels| labels.len())), (Some("one"), Some(1)));
        assert_eq!((sent.namespace, sent.uid, sent.resource_version), (None, None, None));
    }
}
