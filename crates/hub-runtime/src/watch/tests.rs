//! Tests of the watch loop, with the real client against a scripted API server.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use http::{Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::StreamBody;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::*;
use crate::observe::health::{Health, WatchId};
use crate::observe::metrics::Metrics;

/// The API server's behaviour for one request.
enum Script {
    /// Responds with this status and body.
    Respond(u16, String),
    /// Sends these events, and closes the stream after this time, or never.
    Events(Vec<String>, Option<Duration>),
    /// Responds with a part of a list, and breaks off.
    Break,
    /// Refuses the connection.
    Refuse,
    /// Never responds.
    Hang,
}

fn object(name: &str, version: u64) -> Value {
    json!({ "metadata": { "namespace": "ns", "name": name, "resourceVersion": version.to_string() } })
}

fn list(version: u64, names: &[&str]) -> Script {
    let items: Vec<Value> = names.iter().map(|name| object(name, version)).collect();
    let list = json!({ "items": items, "metadata": { "resourceVersion": version.to_string() } });
    Script::Respond(200, list.to_string())
}

fn status(code: u16, reason: &str) -> Value {
    json!({ "kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": "no", "metadata": {} })
}

fn event(kind: &str, object: &Value) -> String {
    format!(r#"{{"type":"{kind}","object":{object}}}"#)
}

fn bookmark(version: u64) -> String {
    let metadata = json!({ "resourceVersion": version.to_string() });
    event("BOOKMARK", &json!({ "kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata }))
}

fn lasting(events: Vec<String>) -> Script {
    Script::Events(events, None)
}

fn ending(events: Vec<String>, after: Duration) -> Script {
    Script::Events(events, Some(after))
}

/// The requests of a watch and its output.
type Log = Arc<Mutex<Vec<String>>>;

/// A watch of ConfigMaps.
struct World {
    log: Log,
    /// When each request of the script was made.
    times: Arc<Mutex<Vec<Instant>>>,
    health: Health,
}

impl Sink<ConfigMap> for Log {
    fn apply(&mut self, key: &ObjectKey, object: Result<ConfigMap, Unreadable>) {
        let shape = if object.is_ok() { "" } else { " unreadable" };
        self.lock().push(format!("apply {}{shape}", key.name));
    }

    fn delete(&mut self, key: &ObjectKey) {
        self.lock().push(format!("delete {}", key.name));
    }

    fn refused(&mut self) {
        self.lock().push("refused".to_owned());
    }

    fn unread(&mut self) {
        self.lock().push("unread".to_owned());
    }

    fn not_served(&mut self) -> bool {
        self.lock().push("not served".to_owned());
        false
    }
}

impl World {
    /// Runs a watch against these responses, one per request, followed by a quiet watch that never ends. Time is
    /// paused, so waiting takes no time.
    async fn of(script: impl IntoIterator<Item = Script>) -> Self {
        Self::beside(Lists::default(), script).await
    }

    /// The same beside other watches of the process.
    async fn beside(lists: Lists, script: impl IntoIterator<Item = Script>) -> Self {
        let log = Arc::new(Mutex::new(Vec::new()));
        let (health, id) = (Health::default(), ("controller", "configmaps"));
        let sync = health.expect_sync(id, Need::Required, &Metrics::new("test"));
        let script = Arc::new(Mutex::new(script.into_iter().collect::<VecDeque<_>>()));
        let (done, mut is_done) = tokio::sync::watch::channel(());
        let times = Arc::new(Mutex::new(Vec::new()));
        let (asked, asked_at) = (Arc::clone(&log), Arc::clone(&times));
        let service = tower::service_fn(move |request: Request<Body>| {
            let query = request.uri().query().unwrap_or_default();
            let value = |name: &str| {
                query
                    .split('&')
                    .find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
                    .map(str::to_owned)
            };
            let what = match (value("watch"), value("limit").as_deref(), value("continue")) {
                (Some(_), ..) => format!("watch from {}", value("resourceVersion").unwrap()),
                (None, Some("1"), _) => "probe".to_owned(),
                (None, _, Some(token)) => format!("list from {token}"),
                (None, Some("500"), None) => "list".to_owned(),
                (None, limit, None) => format!("list of {}", limit.unwrap_or("all")),
            };
            let next = script.lock().pop_front();
            if next.is_some() {
                asked.lock().push(what);
                asked_at.lock().push(Instant::now());
            } else {
                done.send_replace(());
            }
            async move {
                match next.unwrap_or(lasting(Vec::new())) {
                    Script::Hang => std::future::pending().await,
                    script => respond(script),
                }
            }
        });
        let client = Client::new(service, "default");
        let watch =
            Watch::all("configmaps").follow(client, sync, lists, Box::new(Arc::clone(&log)));
        let watch = tokio::spawn(watch);
        is_done.changed().await.unwrap();
        watch.abort();
        Self { log, times, health }
    }

    /// The waits before each request but the first.
    fn waits(&self) -> Vec<Duration> {
        self.times.lock().windows(2).map(|pair| pair[1] - pair[0]).collect()
    }

    fn log(&self) -> Vec<String> {
        self.log.lock().clone()
    }
}

/// The query and the accepted types of the requests of a watch without objects: a list, then a watch.
async fn requests<F: Future<Output = ()> + Send + 'static>(
    watch: impl FnOnce(Client, SyncState) -> F,
) -> Vec<(String, String)> {
    let requests = Arc::new(Mutex::new(Vec::new()));
    let asked = Arc::clone(&requests);
    let service = tower::service_fn(move |request: Request<Body>| {
        let query = request.uri().query().unwrap_or_default().to_owned();
        let script = if query.contains("watch=") { lasting(Vec::new()) } else { list(10, &[]) };
        let accepted = request.headers().get("accept").map_or("", |types| types.to_str().unwrap());
        asked.lock().push((query, accepted.to_owned()));
        ready(respond(script))
    });
    let id = ("controller", "configmaps");
    let sync = Health::default().expect_sync(id, Need::Required, &Metrics::new("test"));
    let watching = tokio::spawn(watch(Client::new(service, "default"), sync));
    tokio::time::sleep(Duration::from_secs(1)).await;
    watching.abort();
    requests.lock().clone()
}

#[tokio::test(start_paused = true)]
async fn every_request_of_a_watch_selects_the_same_objects() {
    let requests = requests(|client, sync| {
        let watch = Watch::<ConfigMap>::all("configmaps").named("one").labelled("a=b").paged(7);
        watch.follow(client, sync, Lists::default(), Box::new(Log::default()))
    })
    .await;
    assert_eq!(requests.len(), 2, "{requests:?}");
    for (query, accepted) in &requests {
        assert!(query.contains("fieldSelector=metadata.name%3Done"), "{query}");
        assert!(query.contains("labelSelector=a%3Db"), "{query}");
        assert!(!accepted.contains("PartialObjectMeta"), "{accepted}");
    }
    assert!(requests[0].0.contains("limit=7"), "{requests:?}");
    assert!(requests[1].0.contains("allowWatchBookmarks=true"), "{requests:?}");
}

#[tokio::test(start_paused = true)]
async fn a_watch_of_metadata_requests_nothing_else() {
    struct Metadata;
    impl Sink<PartialObjectMeta<ConfigMap>> for Metadata {
        fn apply(&mut self, _: &ObjectKey, _: Result<PartialObjectMeta<ConfigMap>, Unreadable>) {}
        fn delete(&mut self, _: &ObjectKey) {}
    }
    let requests = requests(|client, sync| {
        Watch::metadata("configmaps").follow(client, sync, Lists::default(), Box::new(Metadata))
    })
    .await;
    assert_eq!(requests.len(), 2, "{requests:?}");
    for (_, accepted) in &requests {
        assert!(accepted.contains("PartialObjectMeta"), "{accepted}");
    }
}

#[test]
fn a_process_waits_for_a_watch_unless_it_is_optional_or_late() {
    let watch = || Watch::<ConfigMap>::all("configmaps");
    let needs = [watch(), watch().optional(), watch().late()].map(|watch| watch.need);
    assert_eq!(needs, [Need::Required, Need::Optional, Need::Late]);
}

#[test]
fn versions_are_numbers_and_others_count_as_later() {
    for (version, than, newer) in [
        ("10", "9", true),
        ("9", "10", false),
        ("9", "9", false),
        ("a", "b", true),
        ("b", "a", true),
        ("a", "9", true),
        ("a", "a", false),
    ] {
        assert_eq!(is_newer(version, than), newer, "{version} and {than}");
    }
}

type ScriptedBody = StreamBody<BoxStream<'static, Result<Frame<Bytes>, std::io::Error>>>;

fn respond(script: Script) -> Result<Response<ScriptedBody>, std::io::Error> {
    let mut breaks = false;
    let (code, text, end) = match script {
        Script::Break => {
            breaks = true;
            (200, r#"{"items":["#.to_owned(), Some(Duration::ZERO))
        }
        Script::Respond(code, text) => (code, text, Some(Duration::ZERO)),
        Script::Events(events, end) => {
            let mut text = String::new();
            for event in events {
                writeln!(text, "{event}").unwrap();
            }
            (200, text, end)
        }
        Script::Refuse | Script::Hang => return Err(std::io::ErrorKind::ConnectionRefused.into()),
    };
    let text = stream::once(ready(Ok(Frame::data(Bytes::from(text)))));
    let end = stream::once(async move {
        match end {
            Some(after) => tokio::time::sleep(after).await,
            None => std::future::pending().await,
        }
    });
    let broken = move |()| ready(breaks.then(|| Err(std::io::ErrorKind::ConnectionReset.into())));
    let body = StreamBody::new(text.chain(end.filter_map(broken)).boxed());
    Ok(Response::builder().status(StatusCode::from_u16(code).unwrap()).body(body).unwrap())
}

/// A response with a Status.
fn failure(code: u16, reason: &str) -> Script {
    Script::Respond(code, status(code, reason).to_string())
}

fn forbidden() -> Script {
    failure(403, "Forbidden")
}

/// The response of an API server that does not serve the kind.
fn not_served() -> Script {
    Script::Respond(404, "404 page not found\n".to_owned())
}

/// A watch that says that its version is gone.
fn expired() -> Script {
    lasting(vec![event("ERROR", &status(410, "Expired"))])
}

/// A page of a list that has more.
fn page(name: &str) -> Script {
    let metadata = json!({ "resourceVersion": "10", "continue": "next" });
    Script::Respond(200, json!({ "items": [object(name, 10)], "metadata": metadata }).to_string())
}

/// The rule, the responses, and what is asked and shown.
type Row = (&'static str, Vec<Script>, &'static str);

/// How a watch goes on after its end.
fn ends() -> Vec<Row> {
    let early = || ending(vec![bookmark(15)], Duration::from_secs(1));
    let silent = || ending(vec![], WATCH_DURATION);
    let added = |name, version| lasting(vec![event("ADDED", &object(name, version))]);
    let last = || lasting(vec![event("DELETED", &object("a", 16))]);
    vec![
        (
            "at its timeout, it goes on from its last bookmark with one request",
            vec![list(10, &["a"]), ending(vec![bookmark(15)], WATCH_DURATION), last()],
            "list, apply a, watch from 10, watch from 15, delete a",
        ),
        (
            "where it ends early, it asks whether the history is still the same",
            vec![list(10, &[]), early(), list(15, &[]), added("b", 16)],
            "list, watch from 10, probe, watch from 15, apply b",
        ),
        (
            "where it is not ended, it asks the same",
            vec![list(10, &[]), lasting(vec![bookmark(15)]), list(15, &[]), added("b", 16)],
            "list, watch from 10, probe, watch from 15, apply b",
        ),
        (
            "without a sign of life, it asks the same",
            vec![list(10, &[]), silent(), list(7, &[]), list(7, &[])],
            "list, watch from 10, probe, list",
        ),
        (
            "where it fails, it asks the same",
            vec![
                list(10, &[]),
                lasting(vec![event("ERROR", &status(500, "InternalError"))]),
                list(10, &[]),
                lasting(vec![]),
            ],
            "list, watch from 10, probe, watch from 10",
        ),
        (
            "a history that was rewound is listed whatever the versions are",
            vec![list(10, &["a", "b"]), early(), list(14, &[]), list(9, &["b"]), added("c", 10)],
            "list, apply a, apply b, watch from 10, probe, list, apply b, delete a, watch from 9, apply c",
        ),
        (
            "after an outage everything is listed, since versions do not distinguish histories",
            vec![list(10, &["a"]), early(), Script::Refuse, Script::Refuse, list(100, &[])],
            "list, apply a, watch from 10, probe, list, list, delete a",
        ),
        (
            "after an interruption and a refusal everything is listed, since the API server has restarted",
            vec![list(10, &["a"]), early(), forbidden(), list(100, &[])],
            "list, apply a, watch from 10, probe, refused, list, delete a",
        ),
        (
            "an event that goes back in history leads to a list",
            vec![list(10, &[]), added("a", 9), list(9, &["a"])],
            "list, watch from 10, apply a, list, apply a",
        ),
        (
            "what was listed is unknown a minute later if the watch is never answered",
            vec![list(10, &["a"]), Script::Hang, list(100, &[])],
            "list, apply a, watch from 10, unread, list, delete a",
        ),
    ]
}

/// How a request is repeated that has failed.
fn failures() -> Vec<Row> {
    let too_many = || failure(429, "TooManyRequests");
    let gone = || failure(410, "Expired");
    // A watch that ends without a sign of life, and a history that was rewound.
    let rewound = || vec![ending(vec![], WATCH_DURATION), list(7, &[]), list(7, &[])];
    let with = |script: Vec<Script>, more| script.into_iter().chain(more).collect();
    let late = |cause: &str| {
        let mut late = status(504, "Timeout");
        late["details"] = json!({ "causes": [{ "reason": cause, "message": "no" }] });
        Script::Respond(504, late.to_string())
    };
    vec![
        (
            "an overloaded API server is not asked for another list",
            with(
                vec![list(10, &[]), ending(vec![bookmark(15)], WATCH_DURATION)],
                vec![too_many(), too_many(), lasting(vec![])],
            ),
            "list, watch from 10, watch from 15, watch from 15, watch from 15",
        ),
        (
            "a version that is gone leads to a list, and is not a missing kind",
            vec![list(11, &[]), expired(), list(12, &[]), gone(), list(13, &[])],
            "list, watch from 11, list, watch from 12, list",
        ),
        (
            "a list that expires between two pages is requested as a whole, the next one is not",
            with(vec![page("a"), gone(), list(20, &["b"])], rewound()),
            "list, apply a, list from next, list of all, apply b, delete a, watch from 20, probe, list, delete b",
        ),
        (
            "a page that does not arrive whole or in time is requested smaller",
            with(vec![failure(504, "Timeout"), Script::Break, list(10, &["a"])], rewound()),
            "list, list of 125, list of 31, apply a, watch from 10, probe, list of 62, delete a",
        ),
        (
            "a kind that is not served is listed again, and one that is refused is watched on",
            with(
                vec![list(10, &["a"]), not_served(), not_served()],
                vec![list(20, &[]), forbidden(), lasting(vec![])],
            ),
            "list, apply a, watch from 10, not served, list, not served, list, delete a, \
             watch from 20, refused, watch from 20",
        ),
        (
            "a version that is too large for the hub leads to a list",
            vec![list(10, &[]), late("ResourceVersionTooLarge"), list(10, &[])],
            "list, watch from 10, list",
        ),
        (
            "and another timeout does not",
            vec![list(10, &[]), late("Another"), list(10, &[])],
            "list, watch from 10, watch from 10",
        ),
    ]
}

#[tokio::test(start_paused = true)]
async fn after_an_end_or_a_failure_a_watch_misses_nothing_and_lists_only_if_it_could() {
    for (rule, script, seen) in ends().into_iter().chain(failures()) {
        let world = World::of(script).await;
        assert_eq!(world.log().join(", "), seen, "{rule}");
        world.health.all_synced().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_never_answered_is_given_up_after_a_minute() {
    let world = World::of([list(10, &["a"]), Script::Hang, list(100, &[])]).await;
    assert_eq!(world.waits(), [Duration::ZERO, Duration::from_mins(1)]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_ends_after_another_has_met_an_outage_lists() {
    let lists = Lists::default();
    let seen = lists.seen.clone();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(500)).await;
        seen.interrupt();
    });
    let script =
        [list(10, &["a"]), ending(vec![bookmark(15)], Duration::from_secs(1)), list(16, &[])];
    let world = World::beside(lists, script).await;
    assert_eq!(world.log(), ["list", "apply a", "watch from 10", "list", "delete a"]);
}

#[tokio::test(start_paused = true)]
async fn an_event_ends_an_outage() {
    let outage = (0..8).map(|_| Script::Refuse);
    let early = [list(10, &[]), ending(vec![bookmark(11)], Duration::from_secs(1)), list(11, &[])];
    let waits = World::of(outage.chain(early)).await.waits();
    assert!(waits[6] >= Duration::from_secs(5), "{waits:?}");
    assert!(waits[9] <= Duration::from_secs(3), "{waits:?}");
}

#[tokio::test(start_paused = true)]
async fn an_object_that_cannot_be_decoded_affects_no_other_in_lists_and_in_events() {
    let deep = format!("{}1{}", r#"{"a":"#.repeat(100_000), "}".repeat(100_000));
    let of = |name: &str| {
        let metadata = object(name, 10)["metadata"].to_string();
        format!(r#"{{"metadata":{metadata},"data":{deep}}}"#)
    };
    let items = [object("a", 1).to_string(), of("b"), object("c", 2).to_string()].join(",");
    let page = format!(r#"{{"metadata":{{"resourceVersion":"10"}},"items":[{items}]}}"#);
    let modified = format!(r#"{{"type":"MODIFIED","object":{}}}"#, of("a"));
    let world = World::of([
        Script::Respond(200, page),
        Script::Respond(200, format!("{modified}\n{}\n", event("ADDED", &object("d", 11)))),
        list(11, &["c"]),
    ])
    .await;
    let seen =
        "list, apply a, apply b unreadable, apply c, watch from 10, apply a unreadable, apply d";
    assert_eq!(world.log()[..7].join(", "), seen);
}

#[tokio::test(start_paused = true)]
async fn a_quiet_watch_forgets_an_outage_that_ended_long_ago() {
    let outage = (0..8).map(|_| Script::Refuse);
    let quiet = [list(10, &[]), ending(vec![], WATCH_DURATION), Script::Refuse, list(10, &[])];
    let waits = World::of(outage.chain(quiet)).await.waits();
    assert!(waits[6] >= Duration::from_secs(5), "{waits:?}");
    assert!(waits[10..].iter().all(|wait| *wait <= Duration::from_secs(1)), "{waits:?}");
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_ended_at_once_is_retried_before_etcd_can_have_been_restored_and_leads_to_lists()
 {
    let rounds = (0..20).flat_map(|_| [ending(vec![], Duration::ZERO), list(10, &[])]);
    let world = World::of([list(10, &[])].into_iter().chain(rounds)).await;
    let count = |what| world.log().iter().filter(|line| *line == what).count();
    assert_eq!((count("probe"), count("list"), count("unread")), (14, 7, 0));
    let longest = world.waits().into_iter().max().unwrap();
    assert!((Duration::from_secs(3)..Duration::from_secs(5)).contains(&longest), "{longest:?}");
}

/// Counts lists.
struct Listed(Arc<Mutex<usize>>);

impl Sink<ConfigMap> for Listed {
    fn apply(&mut self, _: &ObjectKey, _: Result<ConfigMap, Unreadable>) {}

    fn delete(&mut self, _: &ObjectKey) {}

    fn listed(&mut self) {
        *self.0.lock() += 1;
    }
}

#[tokio::test(start_paused = true)]
async fn hundreds_of_watches_list_a_few_at_a_time_and_all_of_them_in_the_end() {
    let (now, most) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let listed = Arc::new(Mutex::new(0));
    let (at_once, peak) = (Arc::clone(&now), Arc::clone(&most));
    let service = tower::service_fn(move |request: Request<Body>| {
        let is_list = !request.uri().query().unwrap_or_default().contains("watch=");
        let (at_once, peak) = (Arc::clone(&at_once), Arc::clone(&peak));
        async move {
            if !is_list {
                return respond(lasting(Vec::new()));
            }
            let now = at_once.fetch_add(1, Ordering::Relaxed) + 1;
            peak.fetch_max(now, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_secs(1)).await;
            at_once.fetch_sub(1, Ordering::Relaxed);
            respond(list(5, &[]))
        }
    });
    let client = Client::new(service, "default");
    let (lists, health, metrics) = (Lists::default(), Health::default(), Metrics::new("test"));
    let watches: Vec<_> = (0..500)
        .map(|_| {
            let sync = health.expect_sync(("controller", "configmaps"), Need::Late, &metrics);
            let sink = Box::new(Listed(Arc::clone(&listed)));
            tokio::spawn(Watch::all("configmaps").follow(client.clone(), sync, lists.clone(), sink))
        })
        .collect();
    while *listed.lock() < watches.len() {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let count = |number: &AtomicU32| number.load(Ordering::Relaxed);
    assert_eq!((count(&most), count(&now)), (32, 0));
    watches.iter().for_each(tokio::task::JoinHandle::abort);
}

/// Starts a watch against these responses, which may depend on whether the request is a watch.
fn start(
    watch: Watch<ConfigMap>,
    need: Need,
    sink: impl Sink<ConfigMap>,
    response: impl Fn(bool) -> Script + Send + Sync + 'static,
) -> (Lists, Metrics, Health) {
    let (lists, metrics, health) = (Lists::default(), Metrics::new("test"), Health::default());
    let service = tower::service_fn(move |request: Request<Body>| {
        let script = response(request.uri().query().unwrap_or_default().contains("watch="));
        async move {
            match script {
                Script::Hang => std::future::pending().await,
                script => respond(script),
            }
        }
    });
    let sync = health.expect_sync(("controller", "configmaps"), need, &metrics);
    let client = Client::new(service, "default");
    tokio::spawn(watch.follow(client, sync, lists.clone(), Box::new(sink)));
    (lists, metrics, health)
}

/// A watch whose requests fail from its tenth second on, for this long: its log, its metrics and its health.
fn interrupted_for(time: Duration, need: Need, failure: fn() -> Script) -> (Log, Metrics, Health) {
    let (begin, log) = (Instant::now() + Duration::from_secs(10), Log::default());
    let response = move |is_watch| match (Instant::now(), is_watch) {
        (now, _) if now >= begin && now < begin + time => failure(),
        (now, true) if now < begin => ending(vec![], begin - now),
        (_, true) => lasting(vec![bookmark(20)]),
        (now, false) => list(if now < begin { 10 } else { 20 }, &["a"]),
    };
    let (_, metrics, health) = start(Watch::all("configmaps"), need, Arc::clone(&log), response);
    (log, metrics, health)
}

#[tokio::test(start_paused = true)]
async fn what_a_watch_has_shown_is_unknown_when_its_kind_cannot_be_read_for_a_minute_and_until_the_next_list()
 {
    type Failure = fn() -> Script;
    let failures: [(&str, Failure); 6] = [
        ("forbidden", forbidden),
        ("not_served", not_served),
        ("internal", || failure(500, "InternalError")),
        ("other", || Script::Respond(200, "{}".to_owned())),
        ("unavailable", || Script::Refuse),
        ("timeout", || Script::Hang),
    ];
    for (category, failure) in failures {
        for need in [Need::Required, Need::Optional] {
            let begun = Instant::now();
            let (log, metrics, health) = interrupted_for(Duration::from_mins(3), need, failure);
            let at = |seconds| tokio::time::sleep_until(begun + Duration::from_secs(seconds));
            let seen = |line: &str| log.lock().iter().filter(|it| *it == line).count();
            let labels = "controller=\"controller\",resource=\"configmaps\"";
            let count = format!("hub_addons_unread_watches{{{labels}}}");
            let is_shown = |metric: &str| metrics.text().lines().any(|line| line == metric);
            at(69).await;
            assert_eq!((seen("unread"), seen("apply a")), (0, 1), "{category}");
            at(71).await;
            assert_eq!(seen("unread"), 1, "{category}");
            assert!(is_shown(&format!("{count} 1")), "{}", metrics.text());
            assert!(is_shown(&format!("hub_addons_watch_synced{{{labels}}} 0")));
            assert!(metrics.text().contains("hub_addons_unread_since_timestamp_seconds{"));
            let (is_ready, text) = health.ready();
            assert_eq!(is_ready, need == Need::Optional, "{category}");
            assert!(text.contains("configmaps: neither listed nor watched since"), "{text}");
            assert!(text.contains(&format!("({category})")), "{text}");
            // A request that hangs does so for a minute.
            at(270).await;
            assert_eq!((seen("unread"), seen("apply a")), (1, 2), "{category}");
            assert!(is_shown(&format!("{count} 0")) && health.ready().0, "{category}");
            assert!(is_shown(&format!("hub_addons_watch_synced{{{labels}}} 1")));
            assert!(!metrics.text().contains("hub_addons_unread_since_timestamp_seconds{"));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_shorter_interruption_and_a_quiet_watch_leave_everything_known() {
    let (log, _, health) = interrupted_for(Duration::from_secs(45), Need::Required, forbidden);
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert!(!log.lock().contains(&"unread".to_owned()) && health.ready().0);
}

#[tokio::test(start_paused = true)]
async fn an_optional_kind_that_was_never_served_is_reported_only_where_it_is_expected() {
    for is_expected in [false, true] {
        let watch = Watch::all("configmaps");
        let watch = if is_expected { watch.expected() } else { watch };
        let sink = Listed(Arc::default());
        let (_, metrics, _) = start(watch, Need::Optional, sink, |_| not_served());
        tokio::time::sleep(Duration::from_mins(5)).await;
        let is_reported = metrics.text().contains("hub_addons_unread_since_timestamp_seconds{");
        assert_eq!(is_reported, is_expected, "{}", metrics.text());
    }
}

#[tokio::test(start_paused = true)]
async fn every_watch_that_cannot_read_its_kind_is_named_also_a_late_one_until_it_ends() {
    let (lists, health, metrics) = (Lists::default(), Health::default(), Metrics::new("test"));
    let service = tower::service_fn(move |_: Request<Body>| ready(respond(forbidden())));
    let client = Client::new(service, "default");
    let start = |resource, namespace: Option<String>, need| {
        let id = WatchId::new("controller", resource, namespace.map(Text::from));
        let sync = health.expect_sync(id, need, &metrics);
        let (client, sink) = (client.clone(), Box::new(Listed(Arc::default())));
        tokio::spawn(Watch::<ConfigMap>::all(resource).follow(client, sync, lists.clone(), sink))
    };
    let _required = start("one", None, Need::Required);
    // Two that are not told apart count as one.
    let late = ["two", "two"].map(|resource| start(resource, None, Need::Late));
    assert_eq!(lists.unreadable(), None);
    tokio::time::sleep(Duration::from_secs(61)).await;
    let named = lists.unreadable().unwrap();
    let parts: Vec<_> = named.split("; ").collect();
    let [one, two] = parts[..] else { panic!("{named}") };
    assert!(one.starts_with("controller: one: neither listed nor watched since 20"), "{named}");
    assert!(two.starts_with("controller: two: ") && two.ends_with("(forbidden)"), "{named}");
    late.iter().for_each(tokio::task::JoinHandle::abort);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!lists.unreadable().unwrap().contains("two"));
    let namespaces = (0..40).map(|number| format!("namespace-{number}"));
    let many = namespaces.map(|namespace| start("three", Some(namespace), Need::Late));
    let many: Vec<_> = many.collect();
    tokio::time::sleep(Duration::from_secs(61)).await;
    // The size of annotations is limited.
    assert!(lists.unreadable().unwrap().ends_with("; and 21 others"));
    let since = "unread_since_timestamp_seconds{controller=\"controller\",resource=\"three\"}";
    let is_measured = || metrics.text().contains(since);
    many[1..].iter().for_each(tokio::task::JoinHandle::abort);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(is_measured(), "one of them is left");
    many[0].abort();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!is_measured());
}

/// A sink to which the absence of the kind shows that no object exists.
struct Installable(Log);

impl Sink<ConfigMap> for Installable {
    fn apply(&mut self, key: &ObjectKey, object: Result<ConfigMap, Unreadable>) {
        self.0.apply(key, object);
    }
    fn delete(&mut self, key: &ObjectKey) {
        Sink::<ConfigMap>::delete(&mut self.0, key);
    }
    fn unread(&mut self) {
        Sink::<ConfigMap>::unread(&mut self.0);
    }
    fn not_served(&mut self) -> bool {
        self.0.lock().push("not served".to_owned());
        true
    }
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_cannot_be_read_and_is_then_not_served_is_known_to_be_absent_until_it_is_served_again()
 {
    let (log, begun) = (Log::default(), Instant::now());
    let sink = Installable(Arc::clone(&log));
    let (lists, _, health) = start(Watch::all("configmaps"), Need::Optional, sink, move |_| {
        let is_absent = (120..600).contains(&begun.elapsed().as_secs());
        if is_absent { not_served() } else { failure(500, "InternalError") }
    });
    let at = |seconds| tokio::time::sleep_until(begun + Duration::from_secs(seconds));
    let last = || log.lock().last().cloned();
    at(119).await;
    assert_eq!((last().as_deref(), lists.unreadable().is_some()), (Some("unread"), true));
    at(599).await;
    assert_eq!((last().as_deref(), lists.unreadable()), (Some("not served"), None));
    assert!(health.ready().1.contains("configmaps: unavailable, working without it"));
    at(640).await;
    assert_eq!(last().as_deref(), Some("not served"), "less than a minute old");
    at(670).await;
    assert_eq!((last().as_deref(), lists.unreadable().is_some()), (Some("unread"), true));
}

#[tokio::test(start_paused = true)]
async fn a_late_watch_on_a_kind_that_need_not_be_installed_asks_for_it_once_a_minute() {
    let requests = Arc::new(AtomicU32::new(0));
    let (count, sink) = (Arc::clone(&requests), Installable(Arc::default()));
    start(Watch::all("configmaps"), Need::Late, sink, move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        not_served()
    });
    tokio::time::sleep(Duration::from_hours(1)).await;
    let requests = requests.load(Ordering::Relaxed);
    assert!((25..70).contains(&requests), "{requests}");
}

#[tokio::test(start_paused = true)]
async fn after_an_outage_the_lists_that_a_process_waits_for_come_before_those_of_late_watches() {
    let (begin, end) = (Duration::from_secs(30), Duration::from_secs(50));
    let start = Instant::now();
    let lists_after = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&lists_after);
    let service = tower::service_fn(move |request: Request<Body>| {
        let query = request.uri().query().unwrap_or_default().to_owned();
        let (now, seen) = (start.elapsed(), Arc::clone(&seen));
        async move {
            if (begin..end).contains(&now) {
                return respond(Script::Refuse);
            }
            if query.contains("watch=") {
                let left = (now < begin).then(|| begin.saturating_sub(now));
                return respond(Script::Events(vec![], left));
            }
            if now >= end {
                seen.lock().push(query.contains("late"));
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
            respond(list(5, &[]))
        }
    });
    let client = Client::new(service, "default");
    let (lists, health, metrics) = (Lists::default(), Health::default(), Metrics::new("test"));
    for number in 0..303 {
        let is_late = number < 300;
        let (need, labels) = if is_late { (Need::Late, "late") } else { (Need::Required, "first") };
        let sync = health.expect_sync(("controller", labels), need, &metrics);
        let watch = Watch::<ConfigMap>::all(labels).labelled(labels);
        tokio::spawn(watch.follow(
            client.clone(),
            sync,
            lists.clone(),
            Box::new(Listed(Arc::default())),
        ));
    }
    while lists_after.lock().len() < 303 {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(lists_after.lock()[..4], [false, false, false, true]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_refused_after_every_list_is_not_retried_hot() {
    let expired = || lasting(vec![event("ERROR", &status(410, "Expired"))]);
    let world = World::of((0..6).flat_map(|_| [list(10, &[]), expired()])).await;
    let waits = world.waits();
    assert!(waits[9] >= Duration::from_secs(3), "{waits:?}");
}
