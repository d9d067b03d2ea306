//! The scenarios: what happens to the fleet, and the least number of requests that follows.

use clap::ValueEnum;

use crate::bench::Bench;
use crate::controllers::Settings;
use crate::counts::Counter;
use crate::error::BenchError;
use crate::fleet::{OTHER, SET};
use crate::limit::Limit;
use crate::measurement::Measurement;
use crate::model::Part;
use crate::progress::say;

/// Something that happens on a hub.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Scenario {
    /// The controllers stop and start again
    Restart,
    /// Nothing happens
    Idle,
    /// Every cluster renews its lease, and changes a field of its status that profiles do not show
    Heartbeats,
    /// Every cluster is lost, and comes back
    Availability,
    /// Clusters are lost one by one
    Losses,
    /// Clusters get a new version of Kubernetes one by one
    Versions,
    /// Clusters get a label that nothing reads one by one
    Labels,
    /// Clusters join the set one by one, and leave it
    Joins,
    /// A cluster moves to another set
    SetMove,
    /// Two clusters move to each other's sets; needs the scenario set-move before it
    SetSwap,
    /// The proxy's serving certificate is renewed by the same authority
    LeafRenewal,
    /// The proxy's authority is replaced, and later the overlap ends
    CaChange,
    /// The tokens of one cluster are rotated
    RotateOne,
    /// The tokens of all clusters are rotated
    RotateAll,
    /// The syncer's feature gate is off while a token is rotated, and on again
    Gate,
    /// A binding is deleted, and created again
    Binding,
    /// A namespace is deleted
    Namespace,
}

/// Runs the cold start and then scenarios, and adds a measurement of each step.
pub async fn run(
    bench: &mut Bench,
    scenarios: &[Scenario],
    done: &mut Vec<Measurement>,
) -> Result<(), BenchError> {
    let size = bench.options.size;
    let start = bench.begin("cold start").await?;
    bench.start(Settings::default()).await?;
    done.push(bench.finish("cold start", limits::cold_start(bench), start).await?);

    for scenario in
        Scenario::value_variants().iter().filter(|scenario| scenarios.contains(scenario))
    {
        let mut steps = Steps { bench, done };
        match scenario {
            Scenario::Restart => {
                steps.restart("restart", Settings::default(), Limit::nothing()).await?;
            }
            Scenario::Idle => steps.idle().await?,
            Scenario::Heartbeats => steps.heartbeats().await?,
            Scenario::Availability => steps.availability().await?,
            Scenario::Losses => steps.losses(size.one_by_one()).await?,
            Scenario::Versions => steps.versions(size.one_by_one()).await?,
            Scenario::Labels => steps.labels(size.one_by_one()).await?,
            Scenario::Joins => steps.joins(size.one_by_one()).await?,
            Scenario::SetMove => steps.set_move().await?,
            Scenario::SetSwap => steps.set_swap().await?,
            Scenario::LeafRenewal => steps.leaf_renewal().await?,
            Scenario::CaChange => steps.ca_change().await?,
            Scenario::RotateOne => steps.rotate("rotation of one token", 1).await?,
            Scenario::RotateAll => steps.rotate("rotation of all tokens", size.clusters).await?,
            Scenario::Gate => steps.gate().await?,
            Scenario::Binding => steps.binding().await?,
            Scenario::Namespace => steps.namespace().await?,
        }
    }
    bench.stop().await
}

struct Steps<'a> {
    bench: &'a mut Bench,
    done: &'a mut Vec<Measurement>,
}

impl Steps<'_> {
    async fn finish(
        &mut self,
        name: &str,
        limit: Limit,
        start: crate::bench::Start,
    ) -> Result<(), BenchError> {
        self.done.push(self.bench.finish(name, limit, start).await?);
        Ok(())
    }

    /// Stops the controllers, and starts them with these settings.
    async fn restart(
        &mut self,
        name: &str,
        settings: Settings,
        limit: Limit,
    ) -> Result<(), BenchError> {
        self.bench.stop().await?;
        let start = self.bench.begin(name).await?;
        self.bench.start(settings).await?;
        self.finish(name, limit, start).await
    }

    async fn idle(&mut self) -> Result<(), BenchError> {
        let start = self.bench.begin("idle").await?;
        tokio::time::sleep(self.bench.options.idle).await;
        self.finish("idle", Limit::nothing(), start).await
    }

    async fn heartbeats(&mut self) -> Result<(), BenchError> {
        let start = self.bench.begin("heartbeat storm").await?;
        self.bench.fleet.heartbeat().await?;
        self.finish("heartbeat storm", Limit::nothing(), start).await
    }

    async fn availability(&mut self) -> Result<(), BenchError> {
        for (name, status) in [("all clusters Unknown", "Unknown"), ("all clusters back", "True")] {
            let start = self.bench.begin(name).await?;
            let all: Vec<String> = self.bench.fleet.model.clusters.keys().cloned().collect();
            self.bench.fleet.report_availability(&all, status).await?;
            self.finish(name, limits::status_of_all(self.bench), start).await?;
        }
        Ok(())
    }

    /// One change after the other: its cost must not grow with the hub.
    async fn losses(&mut self, count: usize) -> Result<(), BenchError> {
        let names = self.bench.fleet.first(count);
        let (name, start) = ("lost one by one", self.bench.begin("lost one by one").await?);
        for name in &names {
            self.bench.fleet.report_availability(std::slice::from_ref(name), "Unknown").await?;
            self.bench.converge(name).await?;
        }
        self.finish(name, limits::status(names.len() * self.bench.options.size.namespaces), start)
            .await?;
        self.bench.fleet.report_availability(&names, "True").await?;
        self.bench.rest(name).await
    }

    /// The same with a change that every profile of the cluster shows, and nothing else.
    async fn versions(&mut self, count: usize) -> Result<(), BenchError> {
        let names = self.bench.fleet.first(count);
        let (name, start) = ("new versions", self.bench.begin("new versions").await?);
        for cluster in &names {
            self.bench.fleet.report_version(cluster, "v1.36.4").await?;
            self.bench.converge(name).await?;
        }
        self.finish(name, limits::status(count * self.bench.options.size.namespaces), start).await
    }

    /// What selects clusters by their labels has to look at each of these.
    async fn labels(&mut self, count: usize) -> Result<(), BenchError> {
        let names = self.bench.fleet.first(count);
        let start = self.bench.begin("labels").await?;
        for cluster in &names {
            self.bench.fleet.label(cluster).await?;
        }
        self.finish("labels", Limit::nothing(), start).await
    }

    async fn joins(&mut self, count: usize) -> Result<(), BenchError> {
        let names: Vec<String> = (0..count).map(|number| format!("joining-{number:02}")).collect();
        self.bench.fleet.create_clusters(&names).await?;
        self.bench.rest("joins").await?;
        let profiles = count * self.bench.options.size.namespaces;
        let (name, start) = ("joins one by one", self.bench.begin("joins one by one").await?);
        for name in &names {
            self.bench.fleet.join(std::slice::from_ref(name), SET).await?;
            self.bench.converge(name).await?;
        }
        // An account whose cluster no namespace is granted has a condition that says so, after some seconds; a slow hub
        // sets and removes it in one scenario.
        let conditions = count * limits::accounts(self.bench);
        let limit =
            limits::appear(self.bench, profiles).at_most(Counter::OtherWrites, 2 * conditions);
        self.finish(name, limit, start).await?;
        let (name, start) = ("the same leave", self.bench.begin("the same leave").await?);
        self.bench.fleet.join(&names, "").await?;
        let limit = Limit::nothing().at_most(Counter::OtherWrites, conditions);
        self.finish(name, limits::disappear(self.bench, limit, profiles), start).await?;
        self.bench.fleet.forget(&names).await?;
        self.bench.rest(name).await
    }

    /// Leaves one cluster in the other set.
    async fn set_move(&mut self) -> Result<(), BenchError> {
        let cluster = self.bench.fleet.first(1);
        let start = self.bench.begin("set move").await?;
        self.bench.fleet.join(&cluster, OTHER).await?;
        let appears = limits::appear(self.bench, 1);
        let limit = limits::disappear(self.bench, appears, self.bench.options.size.namespaces);
        self.finish("set move", limit, start).await
    }

    /// Leaves all clusters in the set of the fleet.
    async fn set_swap(&mut self) -> Result<(), BenchError> {
        let moved = self.bench.fleet.of_set(OTHER);
        let Some(moved) = moved.first() else {
            say("skipped: set-swap needs set-move before it");
            return Ok(());
        };
        let other = self.bench.fleet.first(1);
        let profiles = self.bench.options.size.namespaces + 1;
        let start = self.bench.begin("set swap").await?;
        self.bench.fleet.swap(moved, &other[0]).await?;
        let appear = limits::appear(self.bench, profiles);
        self.finish("set swap", limits::disappear(self.bench, appear, profiles), start).await?;
        self.bench.fleet.join(&other, SET).await?;
        self.bench.rest("set swap").await
    }

    async fn leaf_renewal(&mut self) -> Result<(), BenchError> {
        let start = self.bench.begin("leaf renewal").await?;
        self.bench.fleet.renew_leaf().await?;
        self.finish("leaf renewal", Limit::nothing(), start).await
    }

    async fn ca_change(&mut self) -> Result<(), BenchError> {
        if self.bench.options.without.contains(&Part::Access)
            || !self.bench.options.controllers.are_own()
        {
            say("skipped: the CA change needs a known overlap of trust anchors");
            return Ok(());
        }
        let start = self.bench.begin("CA change").await?;
        self.bench.fleet.replace_authority().await?;
        self.finish("CA change", limits::status_of_all(self.bench), start).await?;
        self.restart("restart in the overlap", Settings::default(), Limit::nothing()).await?;
        self.bench.fleet.end_overlap();
        let (limit, settings) =
            (limits::status_of_all(self.bench), Settings { overlap: "1s", ..Settings::default() });
        self.restart("end of the overlap", settings, limit).await
    }

    async fn rotate(&mut self, name: &str, clusters: usize) -> Result<(), BenchError> {
        if self.bench.options.without.contains(&Part::Credentials) {
            return Ok(());
        }
        let clusters = self.bench.fleet.first(clusters);
        let limit = limits::rotation(self.bench, clusters.len());
        let start = self.bench.begin(name).await?;
        self.bench.fleet.rotate(&clusters).await?;
        self.finish(name, limit, start).await
    }

    async fn gate(&mut self) -> Result<(), BenchError> {
        if !self.bench.options.controllers.are_own() {
            say("skipped: the feature gates of other controllers are not known");
            return Ok(());
        }
        let off = Settings { syncer: false, ..Settings::default() };
        self.bench.fleet.model.without.push(Part::Credentials);
        self.restart("gate off", off, Limit::nothing()).await?;
        let clusters = self.bench.fleet.first(1);
        self.bench.fleet.rotate(&clusters).await?;
        self.bench.fleet.model.without.pop();
        // A token is only written into a Secret that the same process has created, so that no tenant can prepare one to
        // capture it: the copy is replaced.
        let copies = self.bench.options.size.namespaces * self.bench.options.size.accounts;
        let limit = Limit::nothing()
            .exactly(Counter::CopyCreates, copies)
            .exactly(Counter::CopyDeletes, copies);
        self.restart("gate on, after a rotation", Settings::default(), limit).await
    }

    async fn binding(&mut self) -> Result<(), BenchError> {
        let (namespace, profiles) =
            (self.bench.fleet.namespace(), self.bench.options.size.clusters);
        let (name, start) = ("binding deleted", self.bench.begin("binding deleted").await?);
        self.bench.fleet.unbind(&namespace).await?;
        self.finish(name, limits::disappear(self.bench, Limit::nothing(), profiles), start).await?;
        let (name, start) = ("binding created", self.bench.begin("binding created").await?);
        self.bench.fleet.bind(&namespace, SET).await?;
        self.finish(name, limits::appear(self.bench, profiles), start).await
    }

    async fn namespace(&mut self) -> Result<(), BenchError> {
        let size = self.bench.options.size;
        let namespace = self.bench.fleet.namespace();
        let start = self.bench.begin("namespace deleted").await?;
        self.bench.fleet.delete_namespace(&namespace).await?;
        self.finish("namespace deleted", Limit::collected(size.clusters, size.accounts), start)
            .await
    }
}

/// The limits of the scenarios, for the parts that the controllers do.
mod limits {
    use super::{Bench, Counter, Limit, Part};

    pub fn accounts(bench: &Bench) -> usize {
        let has_copies = !bench.options.without.contains(&Part::Credentials);
        if has_copies { bench.options.size.accounts } else { 0 }
    }

    pub fn cold_start(bench: &Bench) -> Limit {
        let size = bench.options.size;
        let (copies, consumers) = (size.profiles() * accounts(bench), size.consumer_accounts());
        let limit =
            appear(bench, size.profiles()).exactly(Counter::CopyCreates, copies + consumers);
        // An account, its permissions and its condition; the permissions for copies and the status of each consumer, some
        // seconds apart.
        if consumers == 0 { limit } else { limit.at_most(Counter::OtherWrites, 4 * consumers) }
    }

    pub fn appear(bench: &Bench, profiles: usize) -> Limit {
        Limit::appear(profiles, accounts(bench))
    }

    pub fn disappear(bench: &Bench, limit: Limit, profiles: usize) -> Limit {
        limit.disappear(profiles, accounts(bench))
    }

    pub fn status_of_all(bench: &Bench) -> Limit {
        status(bench.options.size.profiles())
    }

    pub fn status(profiles: usize) -> Limit {
        Limit::nothing().exactly(Counter::StatusWrites, profiles)
    }

    pub fn rotation(bench: &Bench, clusters: usize) -> Limit {
        let copies = clusters * bench.options.size.namespaces * accounts(bench);
        Limit::nothing().exactly(Counter::CopyPatches, copies)
    }
}
