//! Random operations of users and agents, from a seed, until the test ends them.

use std::collections::BTreeMap;
use std::time::Duration;

use kube::Client;
use kube::api::{DeleteParams, Patch, PatchParams};
use local_hub::ocm::{self, Object, SET_LABEL};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::stage::{self, cluster, joins, team, token};
use crate::support::credentials::{MANAGER, rotated};
use crate::support::world::{get, profile_of};

/// The number of clusters.
const CLUSTERS: usize = 8;
const TEAMS: [&str; 3] = ["red", "green", "blue"];

/// The pause between two operations.
const PAUSE: Duration = Duration::from_millis(100);

/// Random numbers from a seed (`SplitMix64`).
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    /// The random numbers of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A random number below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % end as u64).unwrap_or_default()
    }
}

/// Objects of other owners, which must never change.
#[derive(Debug, PartialEq)]
pub struct Bystanders(BTreeMap<String, Value>);

impl Bystanders {
    fn objects() -> [Object; 2] {
        [
            profile_of("another-manager", "red", "bystander").label("x-k8s.io/cluster-manager", MANAGER),
            Object::new(("", "v1", "Secret"), "secrets", Some("red"), "cluster-0-other")
                .field("stringData", json!({ "token": "of a tenant" })),
        ]
    }

    /// The current state of the objects.
    pub async fn now(client: &Client) -> Self {
        let mut all = BTreeMap::new();
        for object in Self::objects() {
            all.insert(object.to_string(), get(client, &object).await.unwrap_or_default());
        }
        Self(all)
    }
}

/// Creates the objects that exist before the operations.
pub async fn prepare(client: &Client) -> Bystanders {
    for name in TEAMS {
        team(client, name).await;
    }
    for number in 0..CLUSTERS {
        joins(client, &format!("cluster-{number}"), TEAMS[number % TEAMS.len()]).await;
    }
    for object in Bystanders::objects() {
        object.create(client).await.unwrap();
    }
    Bystanders::now(client).await
}

/// The running operations.
pub struct Load {
    end: oneshot::Sender<()>,
    task: JoinHandle<usize>,
}

impl Load {
    /// Starts the operations.
    pub fn begin(client: &Client, seed: u64) -> Self {
        let client = client.clone();
        let (end, mut ended) = oneshot::channel();
        let task = tokio::spawn(async move {
            let (mut random, mut operations) = (Random::new(seed), 0);
            while ended.try_recv() == Err(oneshot::error::TryRecvError::Empty) {
                operation(&client, &mut random, operations).await;
                operations += 1;
                tokio::time::sleep(PAUSE).await;
            }
            operations
        });
        Self { end, task }
    }

    /// Ends the operations. Returns their number.
    pub async fn end(self) -> usize {
        let _ = self.end.send(());
        self.task.await.unwrap()
    }
}

/// Performs one operation. During an outage of the API server, it has no effect.
async fn operation(client: &Client, random: &mut Random, round: usize) {
    let name = format!("cluster-{}", random.below(CLUSTERS));
    let team = TEAMS[random.below(TEAMS.len())];
    let status = |status: Value| (cluster(&name, team).into(), json!({ "status": status }));
    let merge = async |(object, patch): (Object, Value), is_status: bool| {
        let (api, params, patch) = (object.api(client), PatchParams::default(), Patch::Merge(patch));
        let _ = if is_status {
            api.patch_status(object.name(), &params, &patch).await
        } else {
            api.patch(object.name(), &params, &patch).await
        };
    };
    let delete = async |object: Object| {
        let _ = object.api(client).delete(object.name(), &DeleteParams::background()).await;
    };
    match random.below(12) {
        // Mostly operations that end and begin grants.
        0..=3 => {
            let set = [Some(team), None][random.below(4) / 3];
            let labels = json!({ "metadata": { "labels": { SET_LABEL: set } } });
            merge((cluster(&name, team).into(), labels), false).await;
        }
        4 | 5 => merge(status(json!({ "version": { "kubernetes": format!("v1.36.{round}") } })), true).await,
        6 | 7 => {
            let _ = rotated(&token(&name), round).report(client).await;
        }
        8 => delete(profile_of(MANAGER, team, &name)).await,
        9 => delete(Object::new(("", "v1", "Secret"), "secrets", Some(team), &format!("{name}-app"))).await,
        10 if random.below(3) == 0 => delete(ocm::bound(team, team)).await,
        10 => {
            let _ = ocm::bound(team, team).create(client).await;
        }
        _ => {
            let _ = stage::renews_certificate(client).await;
        }
    }
}
