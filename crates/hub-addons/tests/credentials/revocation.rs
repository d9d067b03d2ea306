//! What causes the deletion of a copy, on a real hub: while the syncer runs and while it does not. Unrelated copies are
//! not changed.

use crate::support::credentials::{
    caught_up, copied, copy, hub, label, profile, scene, source, syncer, team, token, withdrawn,
};
use crate::support::world::{HOLD, becomes, create, delete, get, hold, let_go, merge, told};
use futures::future::join_all;
use kube::Client;
use local_hub::ocm::{self, ManagedCluster, Object, ServiceAccountToken};
use serde_json::{Value, json};

/// What can end a copy, one for each way in which the API server shows it: an object is edited, leaves the selection of
/// its watch, gets another status, is going, or is gone.
#[derive(Clone, Copy, Debug)]
enum Change {
    LabelRemoved,
    SourceUnlabelled,
    BindingUnbound,
    ClusterDeleting,
    BindingDeleted,
    ProfileDeleted,
}

use Change::{
    BindingDeleted, BindingUnbound, ClusterDeleting, LabelRemoved, ProfileDeleted, SourceUnlabelled,
};

const CHANGES: [Change; 6] = [
    LabelRemoved,
    SourceUnlabelled,
    BindingUnbound,
    ClusterDeleting,
    BindingDeleted,
    ProfileDeleted,
];

/// Two namespaces, two sets with the same two clusters, each bound in one of them, and an account in each cluster: four
/// copies, some of which a change deletes.
struct World {
    change: Change,
    namespaces: [String; 2],
    tokens: [ServiceAccountToken; 2],
}

fn set(name: &str, picked: &str) -> Object {
    ocm::selecting_cluster_set(name, &json!({ "matchLabels": { "picked": picked } }))
}

impl World {
    async fn create(client: &Client, change: Change) -> Self {
        let name = format!("{change:?}").to_lowercase();
        let namespaces = [format!("{name}-a"), format!("{name}-b")];
        let clusters = [format!("{name}-1"), format!("{name}-2")];
        let tokens = clusters.each_ref().map(|cluster| token(cluster, "app"));
        for namespace in &namespaces {
            create(client, [ocm::namespace(namespace), set(namespace, &name)]).await;
            create(client, [ocm::bound(namespace, namespace)]).await;
            ocm::create_all(client, clusters.iter().map(|it| profile(namespace, it)))
                .await
                .unwrap();
        }
        ocm::create_all(
            client,
            clusters.iter().map(|it| ManagedCluster::named(it).label("picked", &name)),
        )
        .await
        .unwrap();
        ocm::create_tokens(client, tokens.clone()).await.unwrap();
        Self { change, namespaces, tokens }
    }

    /// The copies by whether the change deletes them.
    fn copies(&self, goes: bool) -> Vec<(&str, &ServiceAccountToken)> {
        let concerns = |namespace: usize, cluster: usize| match self.change {
            ProfileDeleted => (namespace, cluster) == (0, 0),
            BindingDeleted | BindingUnbound => namespace == 0,
            _ => cluster == 0,
        };
        let all = [(0, 0), (0, 1), (1, 0), (1, 1)].into_iter();
        let chosen = all.filter(|(namespace, cluster)| concerns(*namespace, *cluster) == goes);
        chosen
            .map(|(namespace, cluster)| {
                (self.namespaces[namespace].as_str(), &self.tokens[cluster])
            })
            .collect()
    }

    /// The remaining copies.
    async fn rest(&self, client: &Client) -> Vec<Value> {
        join_all(
            self.copies(false)
                .into_iter()
                .map(|(namespace, token)| copied(client, namespace, token)),
        )
        .await
    }

    async fn are_there(&self, client: &Client) {
        for (namespace, token) in self.copies(true) {
            copied(client, namespace, token).await;
        }
    }

    async fn are_gone(&self, client: &Client) {
        for (namespace, token) in self.copies(true) {
            withdrawn(client, namespace, token).await;
        }
    }

    async fn make(&self, client: &Client) {
        let (namespace, token) = (&*self.namespaces[0], &self.tokens[0]);
        let account = token.account();
        let (cluster, binding) = (account.namespace().unwrap(), ocm::bound(namespace, namespace));
        match self.change {
            LabelRemoved => label(client, token, None).await,
            SourceUnlabelled => {
                merge(client, &source(token), &json!({ "metadata": { "labels": null } })).await;
            }
            BindingUnbound => ocm::unbound(namespace, namespace).update(client).await.unwrap(),
            ClusterDeleting => {
                let cluster: Object = ManagedCluster::named(cluster).into();
                hold(client, &cluster, HOLD).await;
                delete(client, &cluster).await;
            }
            BindingDeleted => delete(client, &binding).await,
            ProfileDeleted => delete(client, &profile(namespace, cluster)).await,
        }
    }
}

async fn worlds(client: &Client) -> Vec<World> {
    let worlds = join_all(CHANGES.map(|change| World::create(client, change))).await;
    for world in &worlds {
        world.are_there(client).await;
    }
    worlds
}

#[tokio::test]
async fn a_copy_is_deleted_when_a_precondition_ends() {
    let scene = scene().await;
    for world in worlds(&scene.ocm).await {
        let rest = world.rest(&scene.ocm).await;
        world.make(&scene.ocm).await;
        world.are_gone(&scene.ocm).await;
        assert_eq!(world.rest(&scene.ocm).await, rest, "{:?}", world.change);
    }
}

#[tokio::test]
async fn a_copy_is_deleted_at_the_start_if_a_precondition_ended_before() {
    let hub = hub().await;
    let addons = syncer(&hub, &[]).await;
    let worlds = worlds(&hub.ocm).await;
    let before = join_all(worlds.iter().map(|world| world.rest(&hub.ocm))).await;
    addons.stop().await;
    join_all(worlds.iter().map(|world| world.make(&hub.ocm))).await;
    let addons = syncer(&hub, &[]).await;
    for world in &worlds {
        world.are_gone(&hub.ocm).await;
    }
    caught_up(&hub.ocm, "later").await;
    assert_eq!(join_all(worlds.iter().map(|world| world.rest(&hub.ocm))).await, before);
    addons.stop().await;
}

#[tokio::test]
async fn a_copy_that_a_finalizer_holds_loses_its_token_at_least() {
    let scene = scene().await;
    team(&scene.ocm, "held", &["held-1"]).await;
    let token = token("held-1", "app");
    token.create(&scene.ocm).await.unwrap();
    copied(&scene.ocm, "held", &token).await;
    let copy = copy("held", &token);
    hold(&scene.ocm, &copy, HOLD).await;
    label(&scene.ocm, &token, None).await;
    becomes(&scene.ocm, &copy, "is empty", |it| it["data"].is_null()).await;
    told(&scene.ocm, &copy, "CopyTerminating").await;

    // One that is wanted again is still deleted, and not filled.
    label(&scene.ocm, &token, Some("true")).await;
    scene.caught_up().await;
    assert!(get(&scene.ocm, &copy).await.unwrap()["data"].is_null());
    let_go(&scene.ocm, &copy).await;
    copied(&scene.ocm, "held", &token).await;
}
