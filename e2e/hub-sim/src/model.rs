//! An API server as a deterministic state machine over JSON: no client, no runtime, no clock of its own.
//!
//! A [`Server`] stands for etcd, the API server and the two controllers that the hub depends on: the garbage collector
//! and the namespace controller. The caller decides when these run ([`Server::collect`]) and sets the time. A test
//! compares the model with a real API server, request by request (`tests/validation`).

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
pub(crate) use meta::{is_terminating, name_of, uid_of};
pub(crate) use read::without_nulls;
pub use selector::Selector;
pub use status::Failure;
pub use watch::{Shape, WatchStart, Watching};

/// The place of an object: the index of its kind, its namespace (empty for a cluster-scoped object) and its name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The index of its kind in [`Server::kinds`].
    pub kind: usize,
    pub namespace: String,
    pub name: String,
}

/// The parts of a request that the API server evaluates.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// The HTTP method.
    pub method: String,
    pub path: String,
    /// The query's parameters.
    pub query: BTreeMap<String, String>,
    /// The header `Accept`.
    pub accept: String,
    /// The client, for `managedFields`: the user agent up to its slash, unless the query names a `fieldManager`.
    pub agent: String,
    pub body: Vec<u8>,
}

impl Request {
    /// A request without a body.
    #[must_use]
    pub fn new(method: &str, path_and_query: &str) -> Self {
        let (path, query) = path_and_query.split_once('?').unwrap_or((path_and_query, ""));
        let query = form_urlencoded::parse(query.as_bytes()).into_owned();
        Self {
            method: method.to_owned(),
            path: path.to_owned(),
            query: query.collect(),
            accept: "application/json".to_owned(),
            agent: "unknown".to_owned(),
            body: Vec::new(),
        }
    }

    /// Adds a body to the request.
    #[must_use]
    pub fn with(mut self, body: &Value) -> Self {
        self.body = body.to_string().into_bytes();
        self
    }

    /// Sets the client of the request.
    #[must_use]
    pub fn by(mut self, agent: &str) -> Self {
        agent.clone_into(&mut self.agent);
        self
    }

    /// A parameter of the query, or an empty string.
    pub(crate) fn parameter(&self, name: &str) -> &str {
        self.query.get(name).map(String::as_str).unwrap_or_default()
    }

    /// Whether the request is a write.
    #[must_use]
    pub fn is_write(&self) -> bool {
        self.method != "GET"
    }
}

/// The client that may bind no ClusterRole.
pub const UNPRIVILEGED: &str = "kubectl-create";

/// The response to a request.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// A status code and an object.
    Object(u16, Value),
    /// An error.
    Failure(Failure),
    /// The start of a watch.
    Watch(WatchStart),
}

/// A change of one object.
#[derive(Debug, Clone)]
pub struct Change {
    /// The resourceVersion of the change.
    pub version: u64,
    /// The object that changed.
    pub key: Key,
    /// The object before the change, if it existed.
    pub before: Option<Arc<Value>>,
    /// The object after the change, if it still exists.
    pub after: Option<Arc<Value>>,
    /// The client that requested the change.
    pub agent: String,
}

/// Everything that the server stores at a moment, as in a backup of etcd.
#[derive(Debug, Clone)]
pub struct Backup {
    objects: BTreeMap<Key, Arc<Value>>,
    version: u64,
}

impl Backup {
    /// The resourceVersion of the backup.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }
}

/// A rule that refuses creates and does not come from RBAC: a quota, a webhook or a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The plural of the kind.
    pub plural: String,
    /// The namespace; empty for all namespaces.
    pub namespace: String,
    /// The message of the server.
    pub why: String,
}

#[derive(Debug, Clone)]
pub struct Server {
    pub kinds: Vec<Arc<Kind>>,
    /// The refusals in force.
    pub refusals: Vec<Refusal>,
    /// The plural and the namespace in which a webhook undoes every patch.
    pub undone: Option<(&'static str, &'static str)>,
    /// Seconds since the epoch, for timestamps.
    pub now: i64,
    /// The maximum number of objects in one page of a list, whatever limit a request names; 0 for no maximum.
    pub page: usize,
    objects: BTreeMap<Key, Arc<Value>>,
    version: u64,
    changes: Vec<Change>,
    /// The version up to which the history has been compacted.
    compacted: u64,
    /// The lists that clients read page by page, by their kind and the version that they show.
    pages: BTreeMap<(usize, u64), Arc<Vec<Arc<Value>>>>,
    uids: u64,
    /// Accepted writes that changed nothing: user agent, method and path.
    pub idle_writes: Vec<(String, String)>,
}

impl Server {
    /// A server that contains only the namespace `default`, and serves the kinds of these CRDs.
    #[must_use]
    pub fn new(crds: impl IntoIterator<Item = Value>) -> Self {
        let mut kinds = Kind::builtins();
        kinds.extend(crds.into_iter().filter_map(|crd| Kind::from_crd(&crd)));
        let mut server = Self {
            kinds: kinds.into_iter().map(Arc::new).collect(),
            page: 0,
            refusals: Vec::new(),
            undone: None,
            now: 1_800_000_000,
            objects: BTreeMap::new(),
            version: 1000,
            changes: Vec::new(),
            compacted: 1000,
            pages: BTreeMap::new(),
            uids: 0,
            idle_writes: Vec::new(),
        };
        for kind in server.custom_kinds() {
            server.define(kind);
        }
        let namespace = server.creation("namespaces", "", "default", &json!({}));
        server.handle(&namespace);
        server
    }

    /// The path of an object of a plural or, if the name is empty, of a list, whether or not the kind is served now.
    #[must_use]
    pub fn path(&self, plural: &str, namespace: &str, name: &str) -> String {
        let api = self.kind_of(plural).map(|kind| self.kinds[kind].first_api_version());
        let api = api.unwrap_or_default();
        let root = if api.contains('/') { "apis" } else { "api" };
        let namespace =
            if namespace.is_empty() { String::new() } else { format!("/namespaces/{namespace}") };
        let name = if name.is_empty() { String::new() } else { format!("/{name}") };
        format!("/{root}/{api}{namespace}/{plural}{name}")
    }

    /// A request that creates an object of a plural.
    #[must_use]
    pub fn creation(&self, plural: &str, namespace: &str, name: &str, object: &Value) -> Request {
        let mut object = object.clone();
        if let Some(kind) = self.kind_of(plural).map(|kind| &self.kinds[kind]) {
            object["apiVersion"] = kind.first_api_version().into();
            object["kind"] = kind.kind.as_str().into();
        }
        object["metadata"]["name"] = name.into();
        Request::new("POST", &self.path(plural, namespace, "")).with(&object)
    }

    /// Handles a request.
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
            (method, _) => {
                Err(Failure::method_not_allowed(format!("{method} is not modelled here")))
            }
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
            ["namespaces", namespace, plural, rest @ ..]
                if !["status", "finalize"].contains(plural) =>
            {
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
        let kind =
            self.kinds.iter().position(|kind| is_it(kind)).ok_or_else(Failure::no_such_path)?;
        let status = &self.kinds[kind].versions[version];
        let served = subresource.is_empty()
            || subresource == "status" && (status.status || !self.kinds[kind].custom);
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

    /// The kind with this plural; the first, if two groups have one.
    pub(crate) fn kind_of(&self, plural: &str) -> Option<usize> {
        self.kinds.iter().position(|kind| kind.plural == plural)
    }

    /// The key of an object of a plural.
    #[must_use]
    pub fn key(&self, plural: &str, namespace: &str, name: &str) -> Option<Key> {
        let kind = self.kind_of(plural)?;
        Some(Key { kind, namespace: namespace.to_owned(), name: name.to_owned() })
    }

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

    /// The changes after a version, as far as the history goes back.
    pub(crate) fn changes_since(&self, version: u64) -> &[Change] {
        let from = self.changes.partition_point(|change| change.version <= version);
        &self.changes[from..]
    }

    /// Compacts the history: watches and lists that continue from an earlier version get a 410.
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

    /// Restores a backup: resourceVersions go backwards, and the server assigns them a second time. A restore of etcd
    /// includes a restart of the API server, which remembers no earlier history.
    pub fn restore(&mut self, backup: &Backup) {
        self.objects.clone_from(&backup.objects);
        self.version = backup.version;
        self.compact();
        // The CRDs decide which kinds the server serves.
        for kind in self.custom_kinds() {
            self.redefine(kind);
        }
    }

    fn custom_kinds(&self) -> Vec<usize> {
        (0..self.kinds.len()).filter(|kind| self.kinds[*kind].custom).collect()
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
            // The last event of a deleted object shows it with the version of its deletion.
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

/// The target of a path.
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
