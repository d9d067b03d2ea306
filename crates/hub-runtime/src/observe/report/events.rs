//! The task that publishes Events.

use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use jiff::Timestamp;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::time::{Instant, sleep, timeout};
use tracing::debug;

use super::{Clock, Id, OpenFinding, Reporter};
use crate::flow::pace::Pace;
use crate::write::Writer;
use crate::write::error::{Category, summary};

/// How long Events wait before they check the claim again.
const CLAIM_WAIT: Duration = Duration::from_secs(1);
/// Interval between two Events on average: 120 a minute.
pub(super) const INTERVAL: Duration = Duration::from_millis(500);
/// How many Events may be published at once after a quiet time.
pub(super) const BURST: u32 = 64;
/// How many requests may be in flight: more than begin within [`PUBLISH_TIMEOUT`] at one per [`INTERVAL`].
const AT_ONCE: usize = 16;
/// Timeout for one Event.
const PUBLISH_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest `note` of an Event, in bytes: the API server's limit is 1 KiB.
const NOTE_MAX_LENGTH: usize = 1000;

/// Publishes Events, one object for each. kube's `Recorder` treats two findings with the same reason on one object as
/// one Event and keeps the first text.
pub(crate) struct Publisher {
    pub(crate) client: Client,
    pub(crate) reporter: Reporter,
    pub(crate) writer: Writer,
    pub(crate) clock: Clock,
}

impl Publisher {
    /// Publishes Events for as long as the process runs, while it leads and the breaker is closed.
    pub(crate) async fn run(self) {
        let controller = self.reporter.controller;
        let instance = hostname::get().ok().and_then(|name| name.into_string().ok());
        let instance = instance.unwrap_or_else(|| controller.to_owned());
        let mut pace = Pace::new(BURST, INTERVAL);
        let mut requests = FuturesUnordered::new();
        loop {
            let has_room = requests.len() < AT_ONCE;
            let id = tokio::select! {
                biased;
                Some(()) = requests.next() => continue,
                next = self.next(&pace), if has_room => next,
            };
            let event = {
                let mut findings = self.reporter.findings.lock();
                findings
                    .begin(id)
                    .map(|finding| event(finding, controller, &instance, (self.clock)()))
            };
            let Some(event) = event else { continue };
            pace.took(Instant::now());
            requests.push(self.publish(id, event));
        }
    }

    /// Waits until an Event may be sent, and returns its finding. Cancel safe.
    async fn next(&self, pace: &Pace) -> Id {
        loop {
            sleep(pace.wait(Instant::now())).await;
            self.writer.breaker.closed().await;
            let id = self.reporter.next().await;
            // The breaker may have opened during a long wait for a finding.
            if self.writer.breaker.is_open() {
                continue;
            }
            if self.writer.claim.is_valid() {
                return id;
            }
            sleep(CLAIM_WAIT).await;
        }
    }

    async fn publish(&self, id: Id, event: Event) {
        let namespace = event.metadata.namespace.as_deref().unwrap_or_default();
        let api: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        let result = match timeout(PUBLISH_TIMEOUT, api.create(&PostParams::default(), &event))
            .await
        {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => {
                debug!(reason = event.reason, error = summary(&error), "cannot publish an Event");
                Err(Category::of(&error))
            }
            Err(_) => Err(Category::Timeout),
        };
        self.reporter.metrics.event(if result.is_ok() { "published" } else { "failed" });
        self.reporter.findings.lock().ended(id, namespace, Instant::now(), result);
    }
}

pub(super) fn event(open: &OpenFinding, controller: &str, instance: &str, now: Timestamp) -> Event {
    let OpenFinding { about, finding, .. } = open;
    let about = about.as_ref().clone();
    let name = about.name.as_deref().unwrap_or(controller);
    Event {
        metadata: ObjectMeta {
            generate_name: Some(name_prefix(name)),
            namespace: Some(open.namespace().to_owned()),
            ..ObjectMeta::default()
        },
        event_time: Some(MicroTime(now)),
        type_: Some("Warning".to_owned()),
        reason: Some(finding.reason.into_str().to_owned()),
        note: Some(shortened(&finding.message)),
        action: Some("Reconcile".to_owned()),
        regarding: Some(about),
        reporting_controller: Some(controller.to_owned()),
        reporting_instance: Some(instance.to_owned()),
        ..Event::default()
    }
}

/// The `generateName` of an Event about an object. It ends with a dash, because the API server refuses one that ends
/// with a dot, as the names of client-go's Events would. Characters that only the names of some kinds may contain, such
/// as the colons of a Role's, are replaced.
pub(super) fn name_prefix(name: &str) -> String {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '.';
    let name: String = name.chars().map(|c| if allowed(c) { c } else { '-' }).collect();
    format!("{}-", name.trim_start_matches(['-', '.']))
}

pub(super) fn shortened(text: &str) -> String {
    if text.len() <= NOTE_MAX_LENGTH {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(NOTE_MAX_LENGTH);
    format!("{}…", &text[..end])
}
