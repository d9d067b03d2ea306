//! An API server as a deterministic state machine over JSON: no client, no runtime, no clock of its own.
//!
//! One [`Server`] is etcd, the API server and the two controllers that the hub's behaviour rests on: the garbage
//! collector and the end of namespaces. Whoever drives it decides when these run ([`Server::collect`]) and what time
//! it is. A test compares it with a real API server, request by request (`tests/validation.rs`).

mod collect;
mod crd;
mod fields;
mod kind;
mod meta;
mod read;
mod schema;
mod selector;
mod status;
mod watch;
mod write;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

pub use kind::{Kind, Serving};
pub use meta::{is_terminating, name_of, uid_of, version_of};
pub use read::merge_patch;
pub use selector::Selector;
pub use status::Failure;
pub use watch::{Shape, WatchStart, Watching};

/// Where an object is: the index of its kind, its namespace (empty for a cluster-scoped one) and its name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The index of its kind in [`Server::kinds`].
    pub kind: usize,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// A request, as far as an API server looks at it.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// The HTTP method.
    pub method: String,
    /// The path.
    pub path: String,
    /// The query's parameters.
    pub query: BTreeMap<String, String>,
    /// The header `Accept`.
    pub accept: String,
    /// Who asks, for `managedFields`: the user agent up to its slash, unless the query names a `fieldManager`.
    pub agent: String,
    /// The body.
    pub body: Vec<u8>,
}

impl Request {
    /// A request without a body.
    #[must_use]
    pub fn new(method: &str, path_and_query: &str) -> Self {
        let (path, query) = path_and_query.split_once('?').unwrap_or((path_and_query, ""));
        let query = query.split('&').filter(|part| !part.is_empty()).map(|part| {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            (decoded(key), decoded(value))
        });
        Self {
            method: method.to_owned(),
            path: path.to_owned(),
            query: query.collect(),
            accept: "application/json".to_owned(),
            agent: "unknown".to_owned(),
            body: Vec::new(),
        }
    }

    /// The same with a body.
    #[must_use]
    pub fn with(mut self, body: &Value) -> Self {
        self.body = body.to_string().into_bytes();
        self
    }

    /// The same from somebody.
    #[must_use]
    pub fn by(mut self, agent: &str) -> Self {
        agent.clone_into(&mut self.agent);
        self
    }

    /// A parameter of the query, or an empty text.
    #[must_use]
    pub fn parameter(&self, name: &str) -> &str {
        self.query.get(name).map(String::as_str).unwrap_or_default()
    }

    /// Whether it asks for a change.
    #[must_use]
    pub fn is_write(&self) -> bool {
        self.method != "GET"
    }
}

/// Percent-decoded, as a query's part.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, left @ ..] = rest {
        rest = left;
        let hex = || u8::from_str_radix(std::str::from_utf8(left.get(..2)?).ok()?, 16).ok();
        match (first, hex()) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = &left[2..];
            }
            (b'+', _) => bytes.push(b' '),
            (byte, _) => bytes.push(*byte),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// What a request leads to.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// A response with an object.
    Object(u16, Value),
    /// An error.
    Failure(Failure),
    /// The beginning of a watch.
    Watch(WatchStart),
}

/// A change of one object.
#[derive(Debug, Clone)]
pub struct Change {
    /// The resourceVersion that the change got.
    pub version: u64,
    /// Which object.
    pub key: Key,
    /// The object before, if there was one.
    pub before: Option<Arc<Value>>,
    /// The object after, if there is one.
    pub after: Option<Arc<Value>>,
    /// Who asked for it.
    pub agent: String,
}

/// Everything that is stored at a moment, as a backup holds it.
#[derive(Debug, Clone)]
pub struct Backup {
    objects: BTreeMap<Key, Arc<Value>>,
    version: u64,
}

impl Backup {
    /// The resourceVersion that it goes back to.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }
}

/// A refusal of creates that is none of RBAC: a quota, a webhook, a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The plural of the kind.
    pub plural: String,
    /// The namespace; empty for every one.
    pub namespace: String,
    /// What the server says.
    pub why: String,
}

/// The server.
#[derive(Debug, Clone)]
pub struct Server {
    /// The kinds.
    pub kinds: Vec<Arc<Kind>>,
    /// Refusals that are in force.
    pub refusals: Vec<Refusal>,
    /// Seconds since the epoch, for timestamps.
    pub now: i64,
    /// The most objects in one page of a list, whatever a request allows; 0 for no such limit.
    pub page: usize,
    objects: BTreeMap<Key, Arc<Value>>,
    version: u64,
    changes: Vec<Change>,
    /// The version up to which the history is gone.
    compacted: u64,
    /// Lists that are read page by page, by their kind and the version that they show.
    pages: BTreeMap<(usize, u64), Arc<Vec<Arc<Value>>>>,
    uids: u64,
    /// Writes that were accepted and changed nothing, by who sent them: agent, method and path.
    pub idle_writes: Vec<(String, String)>,
}

impl Server {
    /// A server with nothing in it but the namespace `default`, and the kinds of these CRDs.
    #[must_use]
    pub fn new(crds: impl IntoIterator<Item = Value>) -> Self {
        let mut kinds = Kind::builtins();
        kinds.extend(crds.into_iter().filter_map(|crd| Kind::from_crd(&crd)));
        let mut server = Self {
            kinds: kinds.into_iter().map(Arc::new).collect(),
            page: 0,
            refusals: Vec::new(),
            now: 1_800_000_000,
            objects: BTreeMap::new(),
            version: 1000,
            changes: Vec::new(),
            compacted: 1000,
            pages: BTreeMap::new(),
            uids: 0,
            idle_writes: Vec::new(),
        };
        for kind in (0..server.kinds.len()).filter(|kind| server.kinds[*kind].custom).collect::<Vec<_>>() {
            server.define(kind);
        }
        let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "default" } });
        server.handle(&Request::new("POST", "/api/v1/namespaces").with(&namespace));
        server
    }

    /// Takes a request to its end.
    pub fn handle(&mut self, request: &Request) -> Answer {
        self.try_handle(request).unwrap_or_else(Answer::Failure)
    }

    fn try_handle(&mut self, request: &Request) -> Result<Answer, Failure> {
        let target = self.target(&request.path)?;
        let watches = ["true", "1"].contains(&request.parameter("watch"));
        match (request.method.as_str(), target.name.is_empty()) {
            ("GET", true) if watches => self.start_watch(&target, request),
            ("GET", true) => self.list(&target, request),
            ("GET", false) => self.get(&target, request),
            ("POST", true) => self.create(&target, request),
            ("PUT", false) => self.replace(&target, request),
            ("PATCH", false) => self.patch(&target, request),
            ("DELETE", false) => self.delete(&target, request),
            (method, _) => Err(Failure::method_not_allowed(format!("{method} is not modelled here"))),
        }
    }

    fn target(&self, path: &str) -> Result<Target, Failure> {
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        let (group, version, rest) = match &parts[..] {
            ["api", version, rest @ ..] => ("", *version, rest),
            ["apis", group, version, rest @ ..] => (*group, *version, rest),
            _ => return Err(Failure::no_such_path()),
        };
        let (namespace, rest) = match rest {
            ["namespaces", namespace, plural, rest @ ..] if !["status", "finalize"].contains(plural) => {
                (*namespace, [&[*plural], rest].concat())
            }
            rest => ("", rest.to_vec()),
        };
        let (plural, name, subresource) = match rest[..] {
            [plural] => (plural, "", ""),
            [plural, name] => (plural, name, ""),
            [plural, name, subresource] => (plural, name, subresource),
            _ => return Err(Failure::no_such_path()),
        };
        let is_it = |kind: &Kind| {
            kind.group == group
                && kind.plural == plural
                && kind.serving != Serving::Missing
                && kind.versions.contains_key(version)
        };
        let kind = self.kinds.iter().position(|kind| is_it(kind)).ok_or_else(Failure::no_such_path)?;
        let status = &self.kinds[kind].versions[version];
        let served =
            subresource.is_empty() || subresource == "status" && (status.status || !self.kinds[kind].custom);
        if !served || namespace.is_empty() && self.kinds[kind].namespaced && !name.is_empty() {
            return Err(Failure::no_such_path());
        }
        Ok(Target {
            kind,
            version: version.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            status: subresource == "status",
        })
    }

    /// The kind of this plural. The first one where two groups have it.
    #[must_use]
    pub fn kind_of(&self, plural: &str) -> Option<usize> {
        self.kinds.iter().position(|kind| kind.plural == plural)
    }

    /// Where an object of a plural is.
    #[must_use]
    pub fn key(&self, plural: &str, namespace: &str, name: &str) -> Option<Key> {
        let kind = self.kind_of(plural)?;
        Some(Key { kind, namespace: namespace.to_owned(), name: name.to_owned() })
    }

    /// An object.
    #[must_use]
    pub fn object(&self, plural: &str, namespace: &str, name: &str) -> Option<&Arc<Value>> {
        self.objects.get(&self.key(plural, namespace, name)?)
    }

    /// Every object of a plural, in order.
    pub fn objects_of(&self, plural: &str) -> impl Iterator<Item = &Arc<Value>> {
        let kind = self.kind_of(plural).unwrap_or(usize::MAX);
        self.objects_of_kind(kind).map(|(_, object)| object)
    }

    fn objects_of_kind(&self, kind: usize) -> impl Iterator<Item = (&Key, &Arc<Value>)> {
        let from = Key { kind, namespace: String::new(), name: String::new() };
        self.objects.range(from..).take_while(move |(key, _)| key.kind == kind)
    }

    /// The latest resourceVersion.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The changes later than a version, as far as the history goes back.
    #[must_use]
    pub fn changes_since(&self, version: u64) -> &[Change] {
        let from = self.changes.partition_point(|change| change.version <= version);
        &self.changes[from..]
    }

    /// Forgets the history: watches and lists that go on from before get a 410.
    pub fn compact(&mut self) {
        self.compacted = self.version;
        self.changes.clear();
        self.pages.clear();
    }

    /// Everything that is stored.
    #[must_use]
    pub fn backup(&self) -> Backup {
        Backup { objects: self.objects.clone(), version: self.version }
    }

    /// Goes back to a backup: resourceVersions go backwards, and are given out a second time. What etcd is restored for
    /// takes a new start of the API server, which remembers no history from before.
    pub fn restore(&mut self, backup: &Backup) {
        self.objects.clone_from(&backup.objects);
        self.version = backup.version;
        self.compact();
        // Which kinds are served follows the CRDs.
        for kind in (0..self.kinds.len()).filter(|kind| self.kinds[*kind].custom).collect::<Vec<_>>() {
            self.redefine(kind);
        }
    }

    /// Stores a change under a new version.
    fn commit(&mut self, key: Key, after: Option<Value>, agent: &str) -> Arc<Value> {
        self.version += 1;
        let version = self.version;
        let before = self.objects.remove(&key);
        let stored = after.map(|mut object| {
            object["metadata"]["resourceVersion"] = version.to_string().into();
            Arc::new(object)
        });
        if let Some(object) = &stored {
            self.objects.insert(key.clone(), Arc::clone(object));
        }
        let shown = stored.clone().or_else(|| {
            // What is deleted is last shown under the version of its end.
            let mut object = before.as_deref().cloned()?;
            object["metadata"]["resourceVersion"] = version.to_string().into();
            Some(Arc::new(object))
        });
        let shown = shown.unwrap_or_default();
        let before = if stored.is_some() { before } else { Some(Arc::clone(&shown)) };
        self.changes.push(Change { version, key, before, after: stored, agent: agent.to_owned() });
        shown
    }

    fn next_uid(&mut self) -> String {
        self.uids += 1;
        format!("00000000-0000-4000-8000-{:012x}", self.uids)
    }

    fn timestamp(&self) -> String {
        jiff::Timestamp::from_second(self.now).unwrap_or_default().to_string()
    }
}

/// What a path names.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    kind: usize,
    version: String,
    namespace: String,
    name: String,
    status: bool,
}

impl Target {
    fn key(&self) -> Key {
        Key { kind: self.kind, namespace: self.namespace.clone(), name: self.name.clone() }
    }
}
