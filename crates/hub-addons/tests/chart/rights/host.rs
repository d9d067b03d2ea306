//! Every process: it leads, it begins when its lists are complete, and it reports findings.

use std::collections::BTreeSet;

use local_hub::ocm::{self, ServiceAccountToken};
use local_hub::{Flavour, eventually};
use serde_json::json;

use super::trial::{Trial, grant, shown};
use crate::support::SOON;
use crate::support::chart::{self, opaque};
use crate::support::credentials::{copied, copy, token};
use crate::support::proxy::{HOME, TEAM, configuration};
use crate::support::world::{self, events, get, merge, told};

const WORKING: &str = "all watches are synced";

/// The evidence that a process works: something that it does for a cluster of this trial.
struct Seen {
    token: Option<ServiceAccountToken>,
}

impl Seen {
    /// Creates work while no process runs.
    async fn of(t: &Trial) -> Self {
        let name = &t.name;
        if t.component == "rights" {
            t.binds(name).await;
        } else {
            t.joins(name).await;
        }
        let token = if t.component == "credentials" { Some(t.has_token(name).await) } else { None };
        Self { token }
    }

    async fn is_not_done(&self, t: &Trial) {
        let done = match t.component {
            "credentials" => t.copy(self.token.as_ref().unwrap()).await.is_some(),
            "access" => !t.entry(&t.name).await.is_null(),
            "rights" => get(&t.hub.ocm, &grant(&t.name)).await.is_some(),
            _ => get(&t.hub.ocm, &shown(&t.name)).await.is_some(),
        };
        assert!(!done, "without {} it works:\n{}", t.right, t.process().log());
    }

    async fn comes(&self, t: &Trial) {
        match t.component {
            "credentials" => drop(copied(&t.hub.ocm, TEAM, self.token.as_ref().unwrap()).await),
            "access" => t.has_entry(&t.name).await,
            "rights" => t.is_granted(&t.name).await,
            _ => t.has_profile(TEAM, &t.name).await,
        }
    }
}

/// A process cannot lead.
pub async fn leads(t: &mut Trial) {
    t.stop().await;
    if t.right.verb == "create" {
        // As if no process had led before.
        world::delete(&t.hub.ocm, &t.lease()).await;
    }
    let seen = Seen::of(t).await;
    t.take_before_start().await;
    t.process().logs("no leader", "cannot acquire the lease, retrying").await;
    t.is_refused().await;
    assert_eq!(t.process().lines_with(WORKING), 0, "{}", t.process().log());
    seen.is_not_done(t).await;
    t.give().await;
    t.process().works().await;
    seen.comes(t).await;
}

/// A process must list all objects of a kind before it begins; `watch` is the name of its watch.
pub async fn begins(t: &mut Trial, watch: &str) {
    t.stop().await;
    let seen = Seen::of(t).await;
    t.take_before_start().await;
    waits_for(t, watch).await;
    seen.is_not_done(t).await;
    t.give().await;
    t.process().works().await;
    seen.comes(t).await;
}

/// Waits until a process lacks only the list of one kind, and reports it.
pub async fn waits_for(t: &Trial, watch: &str) {
    t.is_refused().await;
    let process = t.process();
    process.logs("without a list", &format!("cannot watch {watch}, retrying")).await;
    eventually("it lacks one list", SOON, async || {
        let (code, text) = process.probe("/readyz").await;
        let lacks = text.lines().filter_map(|line| line.strip_prefix("[-] ")?.split_once(": "));
        let lacks: BTreeSet<_> = lacks.map(|(_, watch)| watch).collect();
        let one = lacks == BTreeSet::from([&*format!("{watch}: waiting for the first list")]);
        if code == 503 && one { Ok(()) } else { Err(text) }
    })
    .await;
    assert_eq!(process.lines_with(WORKING), 0, "{}", process.log());
}

/// A version of ClusterProfile that the hub starts to serve is used for later writes.
pub async fn follows_versions(t: &mut Trial) {
    t.take_and_restart().await;
    t.hub.serve(Flavour::V1alpha2).await;
    assert_eq!(uses(t).await, "v1alpha1", "without {}", t.right);
    t.give().await;
    eventually("the version that is served is used", SOON, async || uses(t).await == "v1alpha2").await;
    t.hub.serve(Flavour::Map).await;
    eventually("the version that is left is used", SOON, async || uses(t).await == "v1alpha1").await;
}

/// The version in which the process writes for a new cluster.
async fn uses(t: &Trial) -> String {
    let number = t.hub.audit().requests().await.unwrap().len();
    let name = format!("{}-{number}", t.name);
    t.joins(&name).await;
    if t.component == "credentials" {
        let token = t.has_token(&name).await;
        let copy = copied(&t.hub.ocm, TEAM, &token).await;
        let owner = copy["metadata"]["ownerReferences"][0]["apiVersion"].as_str().unwrap();
        return owner.rsplit('/').next().unwrap().to_owned();
    }
    let user = chart::user(t.component);
    eventually(&format!("{} writes about {name}", t.component), SOON, async || {
        let requests = t.hub.audit().requests().await.unwrap().of_user(&user).writes();
        let about = requests.matching(|request| {
            request.resource == "clusterprofiles" && request.uri.contains(&name) && request.code < 300
        });
        about.iter().last().and_then(|request| request.uri.split('/').nth(3).map(str::to_owned))
    })
    .await
}

/// Findings have no Event; which finding depends on the process.
pub async fn tells(t: &mut Trial) {
    const FAILED: &str = "hub_addons_events_total{result=\"failed\"}";
    t.take().await;
    let before = t.process().metric(FAILED).await.unwrap_or_default();
    let name = t.name.clone();
    let (about, reason) = goes_wrong(t, &name).await;
    t.process().measures_at_least(FAILED, before + 1.0).await;
    assert!(events(&t.hub.ocm, &about, reason).await.is_empty());
    t.give().await;
    mended(t, &name).await;
    // A failed Event is not sent again.
    let name = t.fresh();
    let (about, reason) = goes_wrong(t, &name).await;
    told(&t.hub.ocm, &about, reason).await;
    mended(t, &name).await;
}

async fn goes_wrong(t: &Trial, name: &str) -> (ocm::Object, &'static str) {
    match t.component {
        // A foreign Secret in place of a copy.
        "credentials" => {
            opaque(TEAM, &format!("{name}-app")).create(&t.hub.ocm).await.unwrap();
            t.joins(name).await;
            (copy(TEAM, &t.has_token(name).await), "ForeignSecret")
        }
        // The proxy's configuration is not valid.
        "access" => {
            let patch = json!({ "spec": { "proxyServer": { "namespace": "No Namespace" } } });
            merge(&t.hub.ocm, &configuration(HOME), &patch).await;
            (configuration(HOME), "Unreadable")
        }
        // The selector of a set is not valid.
        "rights" => {
            let nothing = json!({ "matchExpressions": [{ "key": "a", "operator": "About" }] });
            let set = ocm::selecting_cluster_set(name, &nothing);
            set.create(&t.hub.ocm).await.unwrap();
            (set, "InvalidSelector")
        }
        // A foreign profile in place of ours.
        _ => {
            let theirs = world::profile_of("somebody", TEAM, name);
            theirs.create(&t.hub.ocm).await.unwrap();
            t.joins(name).await;
            (theirs, "ForeignProfile")
        }
    }
}

async fn mended(t: &mut Trial, name: &str) {
    match t.component {
        "credentials" => {
            world::delete(&t.hub.ocm, &opaque(TEAM, &format!("{name}-app"))).await;
            copied(&t.hub.ocm, TEAM, &token(name, "app")).await;
        }
        "rights" => world::delete(&t.hub.ocm, &ocm::cluster_set(name)).await,
        "access" => {
            let patch = json!({ "spec": { "proxyServer": { "namespace": HOME } } });
            merge(&t.hub.ocm, &configuration(HOME), &patch).await;
            // It is resolved when the new one is published.
            t.later_publishes().await;
            let findings = "hub_addons_findings{reason=\"Unreadable\"}";
            t.process().measures(findings, 0.0).await;
        }
        _ => {
            world::delete(&t.hub.ocm, &shown(name)).await;
            t.has_profile(TEAM, name).await;
        }
    }
}
