//! Several concurrent writers of the same status: no write of any of them is lost.

use std::cell::Cell;

use crate::support::flavours::on_each_flavour;
use crate::support::proxy::{
    self, Authority, HOME, NAME, TEAM, hub, install, project, projected, provisioner, publishes,
    serving,
};
use crate::support::shown::provider;
use crate::support::{Hub, SOON, world};
use futures::future::{join, join_all};
use kube::api::{Patch, PatchParams};
use local_hub::{Flavour, eventually};
use serde_json::{Value, json};

on_each_flavour!(nothing_is_lost_between_three_writers);

/// Several, since a profile that has been written ten times in a row is written every two seconds.
const CLUSTERS: [&str; 5] = ["c1", "c2", "c3", "c4", "c5"];
/// How often each of the others writes each profile.
const ROUNDS: usize = 60;
/// The minimum number of changes of the trust anchors.
const CHANGES: usize = 9;

/// A writer of status that retries after a conflict.
async fn write(
    hub: &Hub,
    cluster: &str,
    under_version: bool,
    change: impl Fn(&Value) -> Value,
) -> Value {
    let object = projected(TEAM, cluster);
    let api = object.api(&hub.ocm);
    eventually("the status is written", SOON, async || {
        let current = world::get(&hub.ocm, &object).await.unwrap();
        let mut patch = json!({ "status": change(&current["status"]) });
        if under_version {
            patch["metadata"]["resourceVersion"] = current["metadata"]["resourceVersion"].clone();
        }
        match api.patch_status(cluster, &PatchParams::default(), &Patch::Merge(patch)).await {
            Ok(written) => Ok(Some(serde_json::to_value(written).unwrap())),
            Err(kube::Error::Api(status)) if status.code == 409 && under_version => Ok(None),
            Err(error) => Err(error),
        }
    })
    .await
}

/// Another provisioner: reads the list, sets its own entry, writes the list.
async fn rival(hub: &Hub, cluster: &str) {
    let mut last = Value::Null;
    for round in 0..ROUNDS {
        let next = json!({ "name": "rival", "cluster": {
            "server": format!("https://rival.example/{round}"), "disable-compression": round % 2 == 0,
        } });
        let written = write(hub, cluster, true, |status| {
            let mut entries = status["accessProviders"].as_array().cloned().unwrap_or_default();
            let at = entries.iter().position(|entry| entry["name"] == "rival");
            let before = at.map_or(Value::Null, |at| entries.remove(at));
            assert_eq!(before, last, "what it wrote last is still there");
            // Sometimes first, sometimes last.
            entries.insert(if round % 3 == 0 { 0 } else { entries.len() }, next.clone());
            json!({ "accessProviders": entries })
        })
        .await;
        assert!(!provider(&written, NAME).is_null(), "our entry is gone: {written:#}");
        last = next;
    }
}

/// The status that Open Cluster Management's own projector writes in a round.
fn of_projector(round: usize) -> Value {
    let text = |what: &str| format!("{what}{round}");
    let condition = |type_: &str| {
        json!({ "type": type_, "status": if round.is_multiple_of(2) { "True" } else { "False" },
            "reason": text("Round"), "message": text("round "), "lastTransitionTime": "2026-01-01T00:00:00Z" })
    };
    json!({
        "version": { "kubernetes": text("v1.36.") },
        "properties": [{ "name": "round", "value": text("") }, { "name": text("only"), "value": "now" }],
        "conditions": [condition("ControlPlaneHealthy"), condition("Joined")],
    })
}

/// The projector's part of a status.
fn projector_part(status: &Value) -> Value {
    json!({ "version": status["version"], "properties": status["properties"], "conditions": status["conditions"] })
}

/// Open Cluster Management's own projector: merge patches of its own fields, with or without a resourceVersion.
async fn other_projector(hub: &Hub, cluster: &str) {
    for round in 0..ROUNDS {
        let written = write(hub, cluster, round % 2 == 0, |status| {
            if round > 0 {
                assert_eq!(projector_part(status), of_projector(round - 1));
            }
            of_projector(round)
        })
        .await;
        assert!(!provider(&written, NAME).is_null(), "our entry is gone: {written:#}");
    }
}

/// Changes the proxy's authority each time our entries show the previous change, until the others are done.
async fn authorities<'a>(hub: &Hub, all: &'a [Authority], done: &Cell<bool>) -> &'a Authority {
    let mut current = &all[0];
    for (change, next) in all.iter().cycle().enumerate().skip(1) {
        if change > CHANGES && done.get() {
            break;
        }
        serving(HOME, &next.chain()).update(&hub.ocm).await.unwrap();
        join_all(CLUSTERS.map(async |cluster| publishes(hub, cluster, HOME, &[next]).await)).await;
        current = next;
    }
    current
}

async fn nothing_is_lost_between_three_writers(lists: Flavour) {
    let hub = hub(lists).await;
    let all: Vec<Authority> = ["a", "b", "c"].map(Authority::new).into();
    install(&hub, &all[0], &CLUSTERS).await;
    project(&hub, &CLUSTERS).await;
    let addons = provisioner(&hub, &["--ca-overlap=0"]).await;
    join_all(CLUSTERS.map(async |cluster| publishes(&hub, cluster, HOME, &[&all[0]]).await)).await;

    let done = Cell::new(false);
    let ((), last) = tokio::join!(
        async {
            join_all(
                CLUSTERS.map(|cluster| join(rival(&hub, cluster), other_projector(&hub, cluster))),
            )
            .await;
            done.set(true);
        },
        authorities(&hub, &all, &done),
    );
    for cluster in CLUSTERS {
        let shown = publishes(&hub, cluster, HOME, &[last]).await;
        assert_eq!(projector_part(&shown["status"]), of_projector(ROUNDS - 1));
        let rival = format!("https://rival.example/{}", ROUNDS - 1);
        assert_eq!(provider(&shown, "rival")["cluster"]["server"], rival);
        assert_eq!(shown["status"]["accessProviders"].as_array().unwrap().len(), 2, "{shown:#}");
    }
    let written = f64::from(u32::try_from(CHANGES * CLUSTERS.len()).unwrap());
    assert!(addons.metric(proxy::WRITTEN).await >= Some(written));
    addons.measures("hub_addons_findings_reported_total{reason=\"WriteRefused\"}", 0.0).await;
}
