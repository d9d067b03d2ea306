//! A hub with a fleet and running controllers, and the measurement of one scenario.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use local_hub::field::install_crds_in;
use local_hub::{ADMIN, LocalHub, Mark, Requests, TimedOut, try_eventually};
use tokio::task::JoinSet;

use crate::agents;
use crate::controllers::{Controllers, Group, Settings, of_controllers};
use crate::counts::{Counter, Counts, by_verb};
use crate::error::BenchError;
use crate::fleet::Fleet;
use crate::limit::{Bound, Limit};
use crate::measurement::{Measurement, cpu_since};
use crate::model::Part;
use crate::process::Usage;
use crate::progress::say;
use crate::size::Size;
use crate::view::View;

/// The time between two looks at the controllers when they have converged: several scheduler ticks of CPU time.
const LOOK: Duration = Duration::from_millis(300);

/// The share of one CPU below which the controllers count as idle.
const IDLE: f64 = 0.2;

/// What is measured, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// The size of the fleet.
    pub size: Size,
    pub controllers: Controllers,
    /// What the controllers do not do.
    pub without: Vec<Part>,
    /// A directory of further CRDs.
    pub crds: Option<PathBuf>,
    /// How long the idle scenario lasts.
    pub idle: Duration,
    /// How long the controllers may take to converge.
    pub timeout: Duration,
}

/// Everything that runs. Fields are dropped in this order.
pub struct Bench {
    /// The fleet, which the scenarios change.
    pub fleet: Fleet,
    /// What is measured.
    pub options: Options,
    running: Option<Group>,
    _agents: JoinSet<()>,
    view: View,
    hub: LocalHub,
}

/// The state at the start of a scenario.
pub struct Start {
    mark: Mark,
    time: Instant,
    changes: usize,
    usage: Vec<(u32, Usage)>,
}

impl Bench {
    /// Starts a hub and creates the fleet. No controller runs yet.
    pub async fn prepare(options: Options) -> Result<Self, BenchError> {
        say("starting a hub");
        let hub = LocalHub::builder().start().await?;
        let admin = hub.client_as(ADMIN).await?;
        if let Some(directory) = &options.crds {
            install_crds_in(hub.directory(), directory, |_| true).await?;
        }
        Group::allow(&hub, options.controllers.commands(Settings::default()).len()).await?;
        let fleet = Fleet::create(admin.clone(), options.size, options.without.clone()).await?;
        let view = View::start(&admin).await?;
        Ok(Self { fleet, options, running: None, _agents: agents::start(&admin), view, hub })
    }

    /// Starts the controllers.
    pub async fn start(&mut self, settings: Settings) -> Result<(), BenchError> {
        let commands = self.options.controllers.commands(settings);
        self.running = Some(Group::start(&self.hub, &commands).await?);
        Ok(())
    }

    /// Stops the controllers.
    pub async fn stop(&mut self) -> Result<(), BenchError> {
        match self.running.take() {
            Some(running) => running.stop().await,
            None => Ok(()),
        }
    }

    /// Begins a measurement.
    pub async fn begin(&self, scenario: &str) -> Result<Start, BenchError> {
        say(&format!("scenario: {scenario}"));
        Ok(Start {
            mark: self.hub.audit().mark().await?,
            time: Instant::now(),
            changes: self.view.read(|shown| shown.changes),
            usage: self.usage()?,
        })
    }

    /// Waits until the controllers have converged and are idle, and returns what this took.
    pub async fn finish(
        &mut self,
        scenario: &str,
        limit: Limit,
        start: Start,
    ) -> Result<Measurement, BenchError> {
        self.converge(scenario).await?;
        let seconds = start.time.elapsed().as_secs_f64();
        let (requests, next) = self.settle(scenario, &start.mark).await?;
        let (changes, is_complete) = self.view.read(|shown| (shown.changes, shown.is_complete()));
        if !is_complete {
            return Err(BenchError::WatchInterrupted(scenario.to_owned()));
        }
        let usage = self.usage()?;
        Ok(Measurement {
            scenario: scenario.to_owned(),
            counts: Counts::of(&requests).with_changes(&requests, changes - start.changes),
            limit: self.with_reports_and_permissions(limit),
            requests: by_verb(&requests),
            cpu_seconds: cpu_since(&start.usage, &usage),
            usage: Usage::sum(usage.into_iter().map(|(_, usage)| usage)),
            seconds,
            seconds_to_next: (next - start.time).as_secs_f64(),
        })
    }

    /// Adds what an account writes whose cluster no namespace is granted, some seconds after a start, and what the syncer's
    /// permissions take: a RoleBinding in each bound namespace, and a rule for the names of tokens.
    fn with_reports_and_permissions(&self, limit: Limit) -> Limit {
        let Size { ungranted, accounts, namespaces, .. } = self.options.size;
        let reports = ungranted * accounts;
        let permissions = if self.options.controllers.are_granted() { namespaces + 3 } else { 0 };
        if reports + permissions == 0 || matches!(limit.of(Counter::OtherWrites), Bound::AtMost(_))
        {
            return limit;
        }
        limit.at_most(Counter::OtherWrites, reports + permissions)
    }

    /// Waits until the hub shows its fleet, and until the controllers are idle, without a measurement.
    pub async fn rest(&mut self, scenario: &str) -> Result<(), BenchError> {
        let mark = self.hub.audit().mark().await?;
        self.converge(scenario).await?;
        self.settle(scenario, &mark).await.map(drop)
    }

    /// Waits until the hub shows its fleet.
    pub async fn converge(&self, scenario: &str) -> Result<(), BenchError> {
        let model = &self.fleet.model;
        let converged =
            try_eventually("the hub shows its fleet", self.options.timeout, async || {
                if self.usage().is_err() {
                    // After the end of a program, waiting is of no use.
                    return Ok(());
                }
                self.view.read(|shown| model.difference(shown)).map_or(Ok(()), Err)
            });
        converged.await.map_err(|timed_out| self.not_converged(scenario, timed_out))?;
        self.usage().map(drop)
    }

    /// Changes the sentinel until its change is processed, no request came in between, and the controllers are idle;
    /// returns the requests since a mark, and when the first of these changes had been processed.
    ///
    /// Watches deliver events in order, so what was changed before the sentinel has been processed as well.
    async fn settle(
        &mut self,
        scenario: &str,
        mark: &Mark,
    ) -> Result<(Requests, Instant), BenchError> {
        let mut before: Option<(usize, f64, Instant)> = None;
        let mut first = None;
        let deadline = Instant::now() + self.options.timeout;
        loop {
            let (version, token) = self.fleet.change_sentinel().await?;
            let copies = self.has_copies();
            let processed = try_eventually(
                "the sentinel's change is processed",
                self.options.timeout,
                async || {
                    let is_processed = self.view.read(|shown| {
                        shown.sentinel_version == version
                            && (!copies || shown.sentinel_token == token)
                    });
                    // After the end of a program, waiting is of no use.
                    is_processed || self.usage().is_err()
                },
            );
            processed.await.map_err(|timed_out| self.not_converged(scenario, timed_out))?;
            let first = *first.get_or_insert_with(Instant::now);
            let requests = of_controllers(&self.hub.audit().since(mark).await?);
            let cpu = Usage::sum(self.usage()?.into_iter().map(|(_, usage)| usage)).cpu_seconds;
            let counted =
                Counts::of(&requests).writes() + requests.count(|request| request.verb == "list");
            let is_idle = before.is_some_and(|(counted_before, cpu_before, then)| {
                counted_before == counted && cpu - cpu_before < IDLE * then.elapsed().as_secs_f64()
            });
            if Instant::now() > deadline {
                say(&format!("{scenario}: the controllers do not become idle"));
                return Ok((requests, first));
            }
            if is_idle {
                return Ok((requests, first));
            }
            before = Some((counted, cpu, Instant::now()));
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Whether the sentinel's token is copied at present.
    fn has_copies(&self) -> bool {
        !self.fleet.model.without.contains(&Part::Credentials)
    }

    fn usage(&self) -> Result<Vec<(u32, Usage)>, BenchError> {
        self.running.as_ref().map_or_else(|| Ok(Vec::new()), Group::usage)
    }

    fn not_converged(&self, scenario: &str, timed_out: TimedOut) -> BenchError {
        let logs = self.running.as_ref().map(Group::logs).unwrap_or_default();
        BenchError::NotConverged { scenario: scenario.to_owned(), timed_out, logs }
    }
}
