//! The loop, with the real client on an API server whose responses are given.

use std::convert::Infallible;

use http::Method;
use http_body_util::BodyExt as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::*;
use crate::host::Host;
use crate::host::lease::Claim;
use crate::observe::health::Health;
use crate::observe::metrics::Metrics;
use crate::written::LONGEST_LAG;

/// The code of a response that never arrives.
const HANGS: u16 = 0;

const ALL: &str = "/apis/test/v1/things";

const WAITS: Outcome = Outcome::RetryAfter(LONGEST_LAG);

type Write = Action<Value, Value>;
type Log = Arc<Mutex<Vec<String>>>;

/// One object, `a`, whose plan is given, on an API server whose responses are.
struct One<const CAN_GET: bool, const HAS_STATUS: bool = false> {
    work: Arc<Work<&'static str>>,
    known: Option<Version>,
    /// What is planned from the cache; from an object as it was read, nothing is.
    planned: Write,
    /// The requests, and what else is called.
    log: Log,
    /// The body of the last request.
    sent: Arc<Mutex<Value>>,
}

impl<const CAN_GET: bool, const HAS_STATUS: bool> One<CAN_GET, HAS_STATUS> {
    fn new(
        known: Option<&str>,
        planned: Write,
        respond: impl Fn(&Method) -> (u16, Value) + Send + Sync + 'static,
    ) -> Self {
        let (log, sent, respond) =
            (Log::default(), Arc::<Mutex<Value>>::default(), Arc::new(respond));
        let service = {
            let (log, sent) = (Arc::clone(&log), Arc::clone(&sent));
            tower::service_fn(move |request: http::Request<Body>| {
                let (log, sent, respond) =
                    (Arc::clone(&log), Arc::clone(&sent), Arc::clone(&respond));
                async move {
                    let (parts, body) = request.into_parts();
                    log.lock().push(format!("{} {}", parts.method, parts.uri.path()));
                    let body = body.collect().await.unwrap().to_bytes();
                    *sent.lock() = serde_json::from_slice(&body).unwrap_or_default();
                    let (code, response) = respond(&parts.method);
                    if code == HANGS {
                        return std::future::pending().await;
                    }
                    let response = Body::from(response.to_string().into_bytes());
                    Ok::<_, Infallible>(
                        http::Response::builder().status(code).body(response).unwrap(),
                    )
                }
            })
        };
        let client = Client::new(service, "default");
        let (health, metrics, clock) =
            (Health::default(), Metrics::new("0"), Arc::new(Timestamp::now));
        let about = Arc::new(|_: &_| ObjectReference::default());
        let host = Host::new(client, health, metrics, Claim::Always, clock, about);
        let work = Work::new(&Arc::new(host), "things", |key: &&str| (*key).into());
        let known = known.map(|known| version("one", known));
        Self { work, known, planned, log, sent }
    }

    /// After a write that has left this.
    fn after(self, left: Left) -> Self {
        self.work.written.set(&"a", left);
        self
    }

    async fn reconcile(&self) -> Outcome {
        reconcile(self, &"a").await
    }

    fn log(&self) -> Vec<String> {
        self.log.lock().clone()
    }
}

impl<const CAN_GET: bool, const HAS_STATUS: bool> Objects for One<CAN_GET, HAS_STATUS> {
    type Key = &'static str;
    type Create = Value;
    type Patch = Value;
    type Plan = ();

    const WORKERS: usize = 1;
    const CAN_GET: bool = CAN_GET;
    const HAS_STATUS: bool = HAS_STATUS;

    fn work(&self) -> &Arc<Work<&'static str>> {
        &self.work
    }

    fn target(&self, key: &&'static str) -> Target {
        let kind = ApiResource::from_gvk_with_plural(
            &GroupVersionKind::gvk("test", "v1", "Thing"),
            "things",
        );
        Target::of::<DynamicObject>("things", &kind, None, key)
    }

    fn known(&self, _: &&'static str) -> Option<Version> {
        self.known.clone()
    }

    fn plan(&self, _: &&'static str, read: Option<&Read>) -> Planned<Self> {
        let Some(read) = read else { return Planned::Write(self.planned.clone(), ()) };
        let version = read.object.as_deref().and_then(super::version).map(|it| it.resource_version);
        self.log.lock().push(format!("plan for {}", version.as_deref().unwrap_or("none")));
        Planned::Write(Action::Nothing, ())
    }

    fn settled(&self, _: &&'static str, (): ()) -> Outcome {
        Outcome::Done
    }

    fn refused(&self, _: &&'static str, (): &(), _: &WriteError) {}

    fn blocked(&self, _: &&'static str, verb: &'static str) {
        self.log.lock().push(format!("{verb} is blocked"));
    }
}

fn version(uid: &str, version: &str) -> Version {
    Version { uid: uid.into(), resource_version: version.into() }
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

fn left() -> Left {
    Left::Exists(version("one", "5"))
}

#[tokio::test(start_paused = true)]
async fn what_no_watch_shows_is_read_once_more_when_no_write_is_needed_and_forgotten() {
    let read = Left::Read(version("another", "5"));
    let one = One::<true>::new(None, Action::Nothing, or_object(failure(500, "InternalError")));
    let one = one.after(read);
    for requests in [1, 1] {
        assert_eq!(one.reconcile().await, Outcome::Done);
        let reads = one.log.lock().iter().filter(|it| it.starts_with("GET")).count();
        assert_eq!(reads, requests);
    }
}

/// Responds to a GET with an object of version 6, and to all else with this response.
fn or_object(response: (u16, Value)) -> impl Fn(&Method) -> (u16, Value) + Send + Sync {
    move |method| if method == Method::GET { (200, object("6")) } else { response.clone() }
}

#[tokio::test(start_paused = true)]
async fn a_delete_waits_for_no_watch_if_it_needs_no_version_or_the_one_that_the_last_write_left() {
    let gone = || Left::Gone("one".into());
    let by_uid = || Action::DeleteByUid("one".into());
    for (left, planned, preconditions) in [
        (left(), by_uid(), Some(json!({ "uid": "one" }))),
        (gone(), by_uid(), Some(json!({ "uid": "one" }))),
        (left(), delete(), Some(json!({ "uid": "one", "resourceVersion": "5" }))),
        (left(), Action::Delete(version("another", "4")), None),
        (gone(), delete(), None),
        (left(), patch(), None),
    ] {
        let what = format!("{planned:?} after {left:?}");
        let one = One::<false>::new(Some("4"), planned, |_| (200, json!({ "kind": "Status" })))
            .after(left);
        let outcome = one.reconcile().await;
        if let Some(preconditions) = preconditions {
            assert_eq!(one.log(), [format!("DELETE {ALL}/a")], "{what}");
            assert_eq!(one.sent.lock()["preconditions"], preconditions, "{what}");
        } else {
            assert_eq!((outcome, one.log()), (WAITS, vec![]), "{what}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_delete_that_is_planned_from_an_older_cache_never_takes_the_version_that_a_read_has_shown()
 {
    for later in [Duration::ZERO, LONGEST_LAG] {
        let one = One::<true>::new(Some("4"), delete(), or_object(failure(409, "Conflict")))
            .after(Left::Read(version("one", "6")));
        tokio::time::advance(later).await;
        assert_eq!(one.reconcile().await, WAITS);
        assert_eq!(one.log(), [format!("GET {ALL}/a"), "plan for 6".to_owned()]);
    }
}

/// What follows if the watch is late.
async fn late<const CAN_GET: bool>(response: (u16, Value)) -> (Outcome, Vec<String>) {
    let one = One::<CAN_GET>::new(Some("4"), patch(), move |_| response.clone()).after(left());
    assert_eq!((one.reconcile().await, one.log()), (WAITS, vec![]));
    tokio::time::advance(LONGEST_LAG).await;
    (one.reconcile().await, one.log())
}

#[tokio::test(start_paused = true)]
async fn an_object_is_read_when_its_watch_is_late_and_held_until_it_is_shown() {
    let (get, list) = (format!("GET {ALL}/a"), format!("GET {ALL}"));
    let read = |get: &str, version: &str| vec![get.to_owned(), format!("plan for {version}")];
    for (response, outcome, version) in [
        ((200, object("6")), WAITS, "6"),
        ((200, object("4")), Outcome::Done, "4"),
        (failure(404, "NotFound"), Outcome::Done, "none"),
    ] {
        assert_eq!(late::<true>(response).await, (outcome, read(&get, version)));
    }
    for (items, outcome, version) in
        [(json!([object("6")]), WAITS, "6"), (json!([]), Outcome::Done, "none")]
    {
        let response = (200, json!({ "metadata": {}, "items": items }));
        assert_eq!(late::<false>(response).await, (outcome, read(&list, version)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_read_that_hangs_ends_when_its_key_is_queued_again() {
    let one =
        Arc::new(One::<true>::new(Some("4"), patch(), |_| (HANGS, Value::Null)).after(left()));
    tokio::time::advance(LONGEST_LAG).await;
    let (stop, outcomes) = (CancellationToken::new(), Arc::<Mutex<Vec<Outcome>>>::default());
    let running = {
        let (one, stop, outcomes) = (Arc::clone(&one), stop.clone(), Arc::clone(&outcomes));
        move |key| {
            let (one, stop, outcomes) = (Arc::clone(&one), stop.clone(), Arc::clone(&outcomes));
            async move {
                if !outcomes.lock().is_empty() {
                    stop.cancel();
                    return Outcome::Done;
                }
                let outcome = reconcile(&*one, &key).await;
                outcomes.lock().push(outcome);
                outcome
            }
        }
    };
    one.work.add("a");
    let again = async {
        while one.log().is_empty() {
            tokio::task::yield_now().await;
        }
        one.work.add("a");
    };
    tokio::join!(one.work.run(1, stop, running), again);
    assert_eq!(
        (outcomes.lock().clone(), one.log()),
        (vec![Outcome::Held], vec![format!("GET {ALL}/a")])
    );
}

/// What follows from a write with this response; a read returns version 6.
async fn write_of<const HAS_STATUS: bool>(
    known: Option<&str>,
    planned: Write,
    response: (u16, Value),
) -> (Outcome, Vec<String>) {
    let one = One::<true, HAS_STATUS>::new(known, planned, or_object(response));
    (one.reconcile().await, one.log().split_off(1))
}

#[tokio::test(start_paused = true)]
async fn a_new_object_is_planned_at_once_if_it_has_a_status() {
    let response = || (201, object("6"));
    let planned = (WAITS, vec!["plan for 6".to_owned()]);
    assert_eq!(write_of::<true>(None, create(), response()).await, planned);
    assert_eq!(write_of::<false>(None, create(), response()).await, (WAITS, vec![]));
    assert_eq!(write_of::<true>(Some("4"), patch(), response()).await, (WAITS, vec![]));
}

#[tokio::test(start_paused = true)]
async fn a_write_that_meets_an_object_or_a_change_is_followed_by_one_read() {
    let read = (WAITS, vec![format!("GET {ALL}/a"), "plan for 6".to_owned()]);
    assert_eq!(write_of::<false>(None, create(), failure(409, "AlreadyExists")).await, read);
    assert_eq!(write_of::<false>(Some("4"), patch(), failure(409, "Conflict")).await, read);
    assert_eq!(write_of::<false>(Some("4"), delete(), failure(409, "Conflict")).await, read);
}

#[tokio::test(start_paused = true)]
async fn a_delete_that_a_finalizer_holds_is_planned_from_its_response_and_not_repeated() {
    let (known, is_held) = (Some("4"), |version| (200, held(version)));
    let planned = (WAITS, vec!["plan for 6".to_owned()]);
    assert_eq!(write_of::<false>(known, delete(), is_held("6")).await, planned);
    assert_eq!(write_of::<false>(known, delete(), is_held("4")).await, (Outcome::Refused, vec![]));
    let gone = (200, json!({ "kind": "Status" }));
    assert_eq!(write_of::<false>(known, delete(), gone).await, (WAITS, vec![]));
}

#[tokio::test(start_paused = true)]
async fn a_patch_that_leaves_the_version_as_it_was_is_refused() {
    let refused = (Outcome::Refused, vec!["patch is blocked".to_owned()]);
    for (version, expected) in [("4", refused), ("6", (WAITS, vec![]))] {
        assert_eq!(write_of::<false>(Some("4"), patch(), (200, object(version))).await, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_that_is_not_found_is_held_until_the_watch_shows_its_end() {
    let one = One::<true>::new(Some("4"), patch(), |_| failure(404, "NotFound"));
    assert_eq!(one.reconcile().await, Outcome::Retry);
    assert_eq!(one.reconcile().await, WAITS);
    one.work.written.ended(&"a", &"one".into());
    assert_eq!(one.reconcile().await, Outcome::Retry);
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_a_write_goes_on_if_it_is_refused_or_its_object_gone_or_not_to_be_read() {
    let (get, delete_) = (format!("GET {ALL}/a"), format!("DELETE {ALL}/a"));
    let blocked = || "delete is blocked".to_owned();
    let forbidden = || failure(403, "Forbidden");
    for (response, log) in [
        (forbidden(), vec![delete_.clone(), blocked()]),
        (failure(404, "NotFound"), vec![delete_.clone(), blocked()]),
        (failure(409, "Conflict"), vec![delete_, get, blocked()]),
        (failure(503, "ServiceUnavailable"), vec![]),
    ] {
        let what = response.1.to_string();
        let respond = move |method: &Method| {
            if method == Method::GET { forbidden() } else { response.clone() }
        };
        let one = One::<true>::new(Some("4"), delete(), respond);
        one.reconcile().await;
        if log.is_empty() {
            assert!(!one.log().contains(&blocked()), "{what}");
        } else {
            assert_eq!(one.log(), log, "{what}");
        }
    }
}
