//! Findings and their Events.

use std::sync::atomic::{AtomicUsize, Ordering};

use hub_core::finding::Reason;
use kube::Client;
use kube::client::Body;
use tokio::time::{sleep, timeout};

use super::events::*;
use super::*;
use crate::flow::pace::Pace;
use crate::host::lease::{Candidate, Claim, Election};
use crate::write::Writer;
use crate::write::error::WriteError;

fn reporter() -> Reporter {
    Reporter::new("controller", Metrics::new("0"), Arc::new(|_: &_| ObjectReference::default()))
}

/// The reason of the finding whose Event is due.
fn due(reporter: &Reporter, now: Instant) -> Option<(Id, &'static str)> {
    let findings = reporter.findings.lock();
    let id = findings.next(now).ok()?;
    Some((id, findings.by_id[&id].finding.reason.into_str()))
}

fn report(reporter: &Reporter, reason: Option<Reason>) {
    let subject = Subject::ClusterSet("prod".into());
    let findings = reason.map(|reason| Finding::new(reason, "broken")).into_iter().collect();
    reporter.report(&subject, Some(&"u1".into()), findings);
}

#[test]
fn a_finding_is_counted_once_and_its_event_repeated_until_it_is_over() {
    let (reporter, now) = (reporter(), Instant::now());
    report(&reporter, Some(Reason::InvalidSelector));
    report(&reporter, Some(Reason::InvalidSelector));
    let (id, reason) = due(&reporter, now).unwrap();
    assert_eq!(reason, "InvalidSelector");
    reporter.findings.lock().published(id, now);
    report(&reporter, Some(Reason::InvalidSelector));
    assert_eq!(due(&reporter, now + REPEAT_MIN / 2), None);
    // Before the first one expires.
    assert_eq!(due(&reporter, now + REPEAT_MIN * 2), Some((id, reason)));
    let shows = |series: &str| reporter.metrics.text().contains(series);
    assert!(shows("findings_reported_total{reason=\"InvalidSelector\"} 1"));
    report(&reporter, None);
    assert_eq!(due(&reporter, now + REPEAT_MIN * 2), None);
    assert!(shows("findings{reason=\"InvalidSelector\"} 0"));
    reporter.findings.lock().published(id, now);
    assert!(due(&reporter, now + REPEAT_MIN * 3).is_none(), "a resolved finding is not repeated");
    report(&reporter, Some(Reason::InvalidSelector));
    assert!(due(&reporter, now).is_some(), "a new finding starts again");
    reporter.forget(&Subject::ClusterSet("prod".into()));
    assert_eq!(due(&reporter, now), None, "so are the findings of an object that is gone");
    assert!(shows("findings{reason=\"InvalidSelector\"} 0"));
}

#[test]
fn two_controllers_report_about_the_same_object_without_replacing_the_findings_of_each_other() {
    let (one, now) = (reporter(), Instant::now());
    let other = one.of("other");
    let counts = |invalid: u8, skipped: u8| {
        let text = one.metrics.text();
        for (reason, count) in [("InvalidSelector", invalid), ("ClaimSkipped", skipped)] {
            let series = format!("findings{{reason=\"{reason}\"}} {count}\n");
            assert!(text.contains(&series), "{text}");
        }
    };
    report(&one, Some(Reason::InvalidSelector));
    report(&other, Some(Reason::ClaimSkipped));
    counts(1, 1);
    for reason in ["InvalidSelector", "ClaimSkipped"] {
        let (id, due) = due(&one, now).unwrap();
        assert_eq!(due, reason, "each has its Event");
        one.findings.lock().published(id, now);
    }
    report(&one, None);
    counts(0, 1);
    one.forget(&Subject::ClusterSet("prod".into()));
    counts(0, 1);
    report(&one, Some(Reason::ClaimSkipped));
    counts(0, 2);
    report(&other, None);
    counts(0, 1);
}

#[test]
fn an_event_that_is_refused_is_retried_for_as_long_as_its_finding_persists_and_ever_less_often() {
    let (reporter, mut now) = (reporter(), Instant::now());
    report(&reporter, Some(Reason::InvalidSelector));
    let mut waits = Vec::new();
    for _ in 0..20 {
        let (id, _) = due(&reporter, now).unwrap();
        reporter.findings.lock().refused(id, now);
        let next = reporter.findings.lock().next(now).unwrap_err().unwrap();
        waits.push(next - now);
        now = next;
    }
    assert!(waits[0] < REFUSED_MIN * 2 && waits[19] >= REFUSED_MAX, "{waits:?}");
}

#[test]
fn a_new_finding_goes_before_what_is_repeated() {
    let (reporter, now) = (reporter(), Instant::now());
    report(&reporter, Some(Reason::InvalidSelector));
    let (id, _) = due(&reporter, now).unwrap();
    reporter.findings.lock().published(id, now);
    let cluster = Subject::Cluster("c1".into());
    reporter.report(&cluster, None, vec![Finding::new(Reason::ClaimSkipped, "x")]);
    let later = now + REPEAT_MIN * 2;
    let (id, reason) = due(&reporter, later).unwrap();
    assert_eq!(reason, "ClaimSkipped");
    reporter.findings.lock().published(id, later);
    assert_eq!(due(&reporter, later).unwrap().1, "InvalidSelector");
}

/// A client that counts the Events that are accepted, which are all but those of namespaces where no request has a response.
fn client(accepted: &Arc<AtomicUsize>) -> Client {
    let accepted = Arc::clone(accepted);
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let hangs = request.uri().path().contains("/namespaces/hanging-");
        let accepted = Arc::clone(&accepted);
        async move {
            if hangs {
                std::future::pending::<()>().await;
            }
            accepted.fetch_add(1, Ordering::Relaxed);
            let created = Body::from(br#"{"metadata": {}, "eventTime": null}"#.to_vec());
            Ok::<_, std::convert::Infallible>(http::Response::new(created))
        }
    });
    Client::new(service, "default")
}

fn publisher(client: Client, reporter: &Reporter, writer: Writer) -> Publisher {
    let clock: Clock = Arc::new(|| Timestamp::UNIX_EPOCH);
    Publisher { client, reporter: reporter.clone(), writer, clock }
}

#[tokio::test(start_paused = true)]
async fn without_the_lease_no_event_is_published_and_none_is_lost() {
    let requests = Arc::new(AtomicUsize::new(0));
    let client = client(&requests);
    let candidate = Candidate {
        namespace: "addons".to_owned(),
        lease: "hub-addons".to_owned(),
        identity: "pod".to_owned(),
    };
    let metrics = Metrics::new("0");
    let election = Election::new(client.clone(), candidate, metrics.clone());
    let reporter = reporter();
    report(&reporter, Some(Reason::InvalidSelector));
    let publisher = publisher(client, &reporter, Writer::new(election.claim(), metrics));
    assert!(timeout(Duration::from_mins(10), publisher.run()).await.is_err());
    assert_eq!(requests.load(Ordering::Relaxed), 0);
    assert!(due(&reporter, Instant::now()).is_some());
}

#[tokio::test(start_paused = true)]
async fn an_event_waits_until_the_api_server_accepts_writes_again() {
    let requests = Arc::new(AtomicUsize::new(0));
    let writer = Writer::new(Claim::Always, Metrics::new("0"));
    let breaker = writer.breaker.clone();
    let failed = WriteError::new("create", "things", "name", Category::Unavailable, "text");
    breaker.observe(Instant::now(), Err(&failed));
    let reporter = reporter();
    report(&reporter, Some(Reason::InvalidSelector));
    let publisher = publisher(client(&requests), &reporter, writer);
    let publishing = tokio::spawn(publisher.run());
    tokio::time::sleep(Duration::from_mins(10)).await;
    assert_eq!(requests.load(Ordering::Relaxed), 0);
    breaker.observe(Instant::now(), Ok(()));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(requests.load(Ordering::Relaxed), 1);
    assert_eq!(due(&reporter, Instant::now()), None, "it is published");
    publishing.abort();
}

#[tokio::test(start_paused = true)]
async fn an_event_that_cannot_be_delivered_delays_no_event_of_another_namespace() {
    let accepted = Arc::default();
    let reporter = reporter();
    let report = |namespace: &str| {
        let subject = Subject::Binding(namespace.into(), "prod".into());
        reporter.report(&subject, None, vec![Finding::new(Reason::InvalidSelector, "broken")]);
    };
    let writer = Writer::new(Claim::Always, Metrics::new("0"));
    let publishing = tokio::spawn(publisher(client(&accepted), &reporter, writer).run());
    for n in 0..8 {
        report(&format!("hanging-{n}"));
    }
    for n in 0..30 {
        let begin = Instant::now();
        report(&format!("healthy-{n}"));
        while accepted.load(Ordering::Relaxed) <= n {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert!(begin.elapsed() <= INTERVAL, "{n}: {:?}", begin.elapsed());
        tokio::time::sleep(Duration::from_secs(4)).await;
    }
    publishing.abort();
}

#[test]
fn no_namespace_is_remembered_without_a_finding() {
    let (reporter, now) = (reporter(), Instant::now());
    report(&reporter, Some(Reason::InvalidSelector));
    let (id, _) = due(&reporter, now).unwrap();
    assert!(reporter.findings.lock().begin(id).is_some());
    assert_eq!(due(&reporter, now), None, "one Event of a namespace at a time");
    report(&reporter, None);
    reporter.findings.lock().ended(id, "default", now, Err(Category::Timeout));
    assert!(reporter.findings.lock().lanes.is_empty());
}

#[test]
fn an_event_without_a_result_delays_those_of_its_namespace_for_longer_each_time() {
    let (reporter, mut now) = (reporter(), Instant::now());
    report(&reporter, Some(Reason::InvalidSelector));
    let mut waits = Vec::new();
    for _ in 0..20 {
        let (id, _) = due(&reporter, now).unwrap();
        reporter.findings.lock().begin(id);
        reporter.findings.lock().ended(id, "default", now, Err(Category::Timeout));
        reporter.report(
            &Subject::Cluster("c1".into()),
            None,
            vec![Finding::new(Reason::ClaimSkipped, now.elapsed().as_secs().to_string())],
        );
        let next = reporter.findings.lock().next(now).unwrap_err().unwrap();
        waits.push(next - now);
        now = next;
    }
    assert!(waits[0] < UNSENT_MIN * 2 && waits[19] >= UNSENT_MAX, "{waits:?}");
}

#[tokio::test(start_paused = true)]
async fn events_have_a_rate_however_many_findings_there_are() {
    let begin = Instant::now();
    let mut pace = Pace::new(BURST, INTERVAL);
    for _ in 0..BURST {
        sleep(pace.wait(Instant::now())).await;
        pace.took(Instant::now());
    }
    assert_eq!(begin.elapsed(), Duration::ZERO);
    for _ in 0..120 {
        sleep(pace.wait(Instant::now())).await;
        pace.took(Instant::now());
    }
    assert!(begin.elapsed() >= Duration::from_secs(59), "{:?}", begin.elapsed());
}

#[test]
fn an_event_names_the_finding_its_object_and_this_process_where_kubectl_expects_it() {
    for (namespace, expected) in [(Some("app"), "app"), (None, "default")] {
        let about = ObjectReference {
            api_version: Some("cluster.open-cluster-management.io/v1".to_owned()),
            kind: Some("ManagedCluster".to_owned()),
            namespace: namespace.map(str::to_owned),
            name: Some("c1".to_owned()),
            uid: Some("u1".to_owned()),
            ..ObjectReference::default()
        };
        let finding = Finding::new(Reason::Unreadable, "x");
        let open =
            OpenFinding { about: Arc::new(about.clone()), finding, due: None, refused: None };
        let event = event(&open, "hub-addons", "pod", Timestamp::UNIX_EPOCH);
        assert_eq!(
            serde_json::to_value(event).unwrap(),
            serde_json::json!({
                "apiVersion": "events.k8s.io/v1",
                "kind": "Event",
                "metadata": { "generateName": "c1-", "namespace": expected },
                "type": "Warning",
                "reason": "Unreadable",
                "note": "x",
                "action": "Reconcile",
                "regarding": about,
                "eventTime": "1970-01-01T00:00:00.000000Z",
                "reportingController": "hub-addons",
                "reportingInstance": "pod",
            })
        );
    }
}

#[test]
fn an_event_has_a_valid_name_whatever_its_object_is_called() {
    for (name, prefix) in
        [("c1", "c1-"), ("a.b-c", "a.b-c-"), ("hub:cp:App", "hub-cp--pp-"), (":x", "x-")]
    {
        assert_eq!(name_prefix(name), prefix);
    }
}

#[test]
fn a_long_note_is_cut_at_a_character() {
    let text = shortened(&"ü".repeat(2000));
    assert!(text.len() < 1024 && text.ends_with('…'));
}
