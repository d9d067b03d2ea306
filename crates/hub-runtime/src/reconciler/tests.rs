//! The loop, with the real client on an API server whose responses are given.

use std::convert::Infallible;

use http::Method;
use http_body_util::BodyExt as _;
use jiff::Timestamp;
use kube::Client;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::*;
use crate::flow::write_limit::WriteLimit;
use crate::host::Host;
use crate::host::lease::Claim;
use crate::observe::health::Health;
use crate::observe::metrics::Metrics;

const NEVER: usize = 0;
const IF_LATE: usize = 1;
const IF_MET: usize = 2;

const ALL: &str = "/apis/test/v1/things";

const WAITS: Outcome = Outcome::RetryAfter(LONGEST_LAG);
const HELD: Outcome = Outcome::RetryAfter(UNSEEN);
const AT_ONCE: Outcome = Outcome::RetryAfter(Duration::ZERO);

type Write = Action<Value, Value>;
type Log = Arc<Mutex<Vec<String>>>;

/// One object, `a`, whose plan is given, on an API server whose responses are.
struct One<const READS: usize, const HAS_STATUS: bool = false> {
    work: Arc<Work<&'static str>>,
    known: Option<Version>,
    /// What is planned from the cache; from an object as it was read, nothing is.
    planned: Write,
    after: After,
    /// The requests, and what else is called.
    log: Log,
    /// The body of the last request.
    sent: Arc<Mutex<Value>>,
}

impl<const READS: usize, const HAS_STATUS: bool> One<READS, HAS_STATUS> {
    fn new(
        known: Option<&str>,
        planned: Write,
        respond: impl Fn(&Method) -> (u16, Value) + Send + Sync + 'static,
    ) -> Self {
        let (log, sent, respond) = (Log::default(), Arc::<Mutex<Value>>::default(), Arc::new(respond));
        let service = {
            let (log, sent) = (Arc::clone(&log), Arc::clone(&sent));
            tower::service_fn(move |request: http::Request<Body>| {
                let (log, sent, respond) = (Arc::clone(&log), Arc::clone(&sent), Arc::clone(&respond));
                async move {
                    let (parts, body) = request.into_parts();
                    log.lock().push(format!("{} {}", parts.method, parts.uri.path()));
                    let body = body.collect().await.unwrap().to_bytes();
                    *sent.lock() = serde_json::from_slice(&body).unwrap_or_default();
                    let (code, response) = respond(&parts.method);
                    let response = Body::from(response.to_string().into_bytes());
                    Ok::<_, Infallible>(http::Response::builder().status(code).body(response).unwrap())
                }
            })
        };
        let (client, limit) = (Client::new(service, "default"), WriteLimit::default());
        let (health, metrics, clock) = (Health::default(), Metrics::new("0"), Arc::new(Timestamp::now));
        let host = Arc::new(Host::new(client, health, metrics, Claim::Always, limit, clock));
        let known = known.map(|known| version("one", known));
        Self { work: Work::new(&host, "things"), known, planned, after: After::Watched, log, sent }
    }

    /// After a write with this effect.
    fn expecting(self, effect: Effect) -> Self {
        self.work.expectations().sent(&"a", self.known.as_ref(), effect, None, Instant::now());
        self
    }

    async fn reconcile(&self) -> Outcome {
        reconcile(self, &"a").await
    }

    fn log(&self) -> Vec<String> {
        self.log.lock().clone()
    }
}

impl<const READS: usize, const HAS_STATUS: bool> Objects for One<READS, HAS_STATUS> {
    type Key = &'static str;
    type Create = Value;
    type Patch = Value;
    type Plan = ();

    const WORKERS: usize = 1;
    const READS: Reads = [Reads::Never, Reads::IfLate, Reads::IfMet][READS];
    const HAS_STATUS: bool = HAS_STATUS;

    fn work(&self) -> &Arc<Work<&'static str>> {
        &self.work
    }

    fn target(&self, key: &&'static str) -> Target {
        let kind = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("test", "v1", "Thing"), "things");
        Target::of::<DynamicObject>("things", &kind, None, key)
    }

    fn known(&self, _: &&'static str) -> Option<Version> {
        self.known.clone()
    }

    fn plan(&self, _: &&'static str, read: Option<&Read>) -> Planned<Self> {
        let Some(read) = read else { return Planned::Write(self.planned.clone(), ()) };
        let version = read.object.as_deref().and_then(metadata).and_then(|it| it.resource_version);
        self.log.lock().push(format!("plan for {}", version.as_deref().unwrap_or("none")));
        Planned::Write(Action::Nothing, ())
    }

    fn settled(&self, _: &&'static str, (): ()) -> Outcome {
        Outcome::Done
    }

    fn refused(&self, _: &&'static str, (): &(), _: &WriteError) {}

    fn wrote(&self, _: &&'static str, (): &(), _: &Effect) -> After {
        self.after
    }
}

fn version(uid: &str, version: &str) -> Version {
    Version { uid: uid.to_owned(), resource_version: version.to_owned() }
}

fn object(version: &str) -> Value {
    json!({ "metadata": { "uid": "one", "resourceVersion": version } })
}

/// An object whose deletion a finalizer delays.
fn held(version: &str) -> Value {
    let mut object = object(version);
    object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    object
}

fn failure(code: u16, reason: &str) -> (u16, Value) {
    let details = json!({ "kind": "things", "name": "a" });
    (code, json!({ "kind": "Status", "code": code, "reason": reason, "details": details }))
}

fn create() -> Write {
    Action::Create(json!({ "spec": {} }))
}

fn patch() -> Write {
    Action::Patch(version("one", "4"), json!({ "spec": {} }))
}

fn delete() -> Write {
    Action::Delete(version("one", "4"))
}

#[tokio::test(start_paused = true)]
async fn a_delete_waits_for_no_watch_if_it_needs_no_version_or_the_one_that_the_last_write_left() {
    let exists = || Effect::Exists(version("one", "5"));
    let gone = || Effect::Gone("one".to_owned());
    let by_uid = || Action::DeleteByUid("one".to_owned());
    for (effect, planned, preconditions) in [
        (exists(), by_uid(), Some(json!({ "uid": "one" }))),
        (gone(), by_uid(), Some(json!({ "uid": "one" }))),
        (exists(), delete(), Some(json!({ "uid": "one", "resourceVersion": "5" }))),
        (exists(), Action::Delete(version("another", "4")), None),
        (gone(), delete(), None),
        (exists(), patch(), None),
    ] {
        let what = format!("{planned:?} after {effect:?}");
        let one = One::<IF_LATE>::new(Some("4"), planned, |_| (200, json!({ "kind": "Status" })));
        let one = one.expecting(effect);
        let outcome = one.reconcile().await;
        if let Some(preconditions) = preconditions {
            assert_eq!(one.log(), [format!("DELETE {ALL}/a")], "{what}");
            assert_eq!(one.sent.lock()["preconditions"], preconditions, "{what}");
        } else {
            assert_eq!((outcome, one.log()), (WAITS, vec![]), "{what}");
        }
    }
}

/// What follows if the watch has not shown a write within `longest`.
async fn late<const READS: usize>(longest: Duration, response: (u16, Value)) -> (Outcome, Vec<String>) {
    let one = One::<READS>::new(Some("4"), patch(), move |_| response.clone());
    let one = one.expecting(Effect::Exists(version("one", "5")));
    assert_eq!((one.reconcile().await, one.log()), (Outcome::RetryAfter(longest), vec![]));
    tokio::time::advance(longest).await;
    (one.reconcile().await, one.log())
}

#[tokio::test(start_paused = true)]
async fn an_object_is_read_when_its_watch_is_late_and_held_until_it_is_shown_or_written_without_a_read() {
    let (get, list) = (format!("GET {ALL}/a"), format!("GET {ALL}"));
    let read = |get: &str, version: &str| vec![get.to_owned(), format!("plan for {version}")];
    for (response, outcome, version) in [
        ((200, object("6")), HELD, "6"),
        ((200, object("4")), Outcome::Done, "4"),
        (failure(404, "NotFound"), Outcome::Done, "none"),
    ] {
        assert_eq!(late::<IF_MET>(LONGEST_LAG, response).await, (outcome, read(&get, version)));
    }
    for (items, outcome, version) in [(json!([object("6")]), HELD, "6"), (json!([]), Outcome::Done, "none")] {
        let response = (200, json!({ "metadata": {}, "items": items }));
        assert_eq!(late::<IF_LATE>(LONGEST_LAG, response).await, (outcome, read(&list, version)));
    }
    let written = (Outcome::RetryAfter(LONGEST_SILENCE), vec![format!("PATCH {ALL}/a")]);
    assert_eq!(late::<NEVER>(LONGEST_SILENCE, (200, object("6"))).await, written);
}

/// What follows from a write with this response; a read returns version 6.
async fn write_of<const READS: usize, const HAS_STATUS: bool>(
    known: Option<&str>,
    planned: Write,
    response: (u16, Value),
) -> (Outcome, Vec<String>) {
    let one = One::<READS, HAS_STATUS>::new(known, planned, move |method| {
        if method == Method::GET { (200, object("6")) } else { response.clone() }
    });
    (one.reconcile().await, one.log().split_off(1))
}

#[tokio::test(start_paused = true)]
async fn a_new_object_is_planned_at_once_if_it_has_a_status() {
    let response = || (201, object("6"));
    let planned = (HELD, vec!["plan for 6".to_owned()]);
    assert_eq!(write_of::<IF_LATE, true>(None, create(), response()).await, planned);
    assert_eq!(write_of::<IF_LATE, false>(None, create(), response()).await, (WAITS, vec![]));
    assert_eq!(write_of::<IF_LATE, true>(Some("4"), patch(), response()).await, (WAITS, vec![]));
}

#[tokio::test(start_paused = true)]
async fn a_create_whose_name_exists_is_followed_by_a_read_if_perhaps_no_watch_shows_the_object() {
    let exists = || failure(409, "AlreadyExists");
    let read = (HELD, vec![format!("GET {ALL}/a"), "plan for 6".to_owned()]);
    assert_eq!(write_of::<IF_MET, false>(None, create(), exists()).await, read);
    assert_eq!(write_of::<IF_LATE, false>(None, create(), exists()).await, (WAITS, vec![]));
    assert_eq!(write_of::<IF_MET, false>(None, create(), (201, object("6"))).await, (WAITS, vec![]));
}

#[tokio::test(start_paused = true)]
async fn a_delete_that_a_finalizer_holds_is_planned_from_its_response_or_not_repeated_at_once() {
    let (known, is_held) = (Some("4"), |version| (200, held(version)));
    let planned = (HELD, vec!["plan for 6".to_owned()]);
    assert_eq!(write_of::<IF_MET, false>(known, delete(), is_held("6")).await, planned);
    assert_eq!(write_of::<IF_LATE, false>(known, delete(), is_held("6")).await, (WAITS, vec![]));
    let unchanged = (Outcome::Refused, vec![]);
    assert_eq!(write_of::<IF_LATE, false>(known, delete(), is_held("4")).await, unchanged);
    assert_eq!(write_of::<IF_LATE, false>(known, patch(), is_held("4")).await, (AT_ONCE, vec![]));
    assert_eq!(write_of::<IF_MET, false>(known, patch(), is_held("6")).await, (WAITS, vec![]));
    let gone = (200, json!({ "kind": "Status" }));
    assert_eq!(write_of::<IF_MET, false>(known, delete(), gone).await, (WAITS, vec![]));
}

#[tokio::test(start_paused = true)]
async fn a_key_waits_only_for_what_its_watch_shows() {
    for (after, outcome) in [
        (After::Watched, WAITS),
        (After::Unwatched, AT_ONCE),
        (After::Outcome(Outcome::Refused), Outcome::Refused),
    ] {
        let one = One::<IF_LATE>::new(Some("4"), patch(), |_| (200, object("6")));
        let one = One { after, ..one };
        assert_eq!(one.reconcile().await, outcome, "{after:?}");
    }
}
