//! WATCH: what a watch shows of the history.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::{Answer, Change, Failure, Request, Selector, Server, Serving, Target};

/// Whether objects are asked for as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// As they are.
    Whole,
    /// As `PartialObjectMetadata`.
    Metadata,
}

impl Shape {
    /// What the header `Accept` asks for.
    #[must_use]
    pub fn of(accept: &str) -> Self {
        if accept.contains("as=PartialObjectMetadata") { Self::Metadata } else { Self::Whole }
    }
}

/// A watch that was accepted.
#[derive(Debug, Clone, PartialEq)]
pub struct WatchStart {
    /// What it follows.
    pub watching: Watching,
    /// The events that it begins with.
    pub first: Vec<Value>,
    /// After how many seconds the server ends it.
    pub timeout: u64,
    /// Whether it is over after its first events.
    pub ended: bool,
}

/// What a watch follows, and how far it has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Watching {
    /// The index of the kind.
    pub kind: usize,
    /// The revision of the kind's CRD.
    revision: u64,
    version_name: String,
    namespace: String,
    selector: Selector,
    shape: Shape,
    bookmarks: bool,
    /// The resourceVersion up to which it has shown everything.
    pub version: u64,
}

impl Server {
    pub(super) fn start_watch(&mut self, target: &Target, request: &Request) -> Result<Answer, Failure> {
        let selector = self.selector(target, request)?;
        let text = request.parameter("resourceVersion");
        let from = text.parse::<u64>().unwrap_or(0);
        let mut watching = Watching {
            kind: target.kind,
            revision: self.kinds[target.kind].revision,
            version_name: target.version.clone(),
            namespace: target.namespace.clone(),
            selector,
            shape: Shape::of(&request.accept),
            bookmarks: request.parameter("allowWatchBookmarks") == "true",
            version: from,
        };
        let (mut first, mut ended) = (Vec::new(), false);
        let initial = request.parameter("sendInitialEvents") == "true";
        if from == 0 || initial {
            watching.version = self.version;
            for (_, object) in self.objects_of_kind(target.kind) {
                if watching.selects(object) {
                    first.push(event("ADDED", self.shown(target, object, watching.shape)));
                }
            }
            if initial {
                let mut bookmark = self.bookmark(&watching);
                bookmark["object"]["metadata"]["annotations"] =
                    json!({ "k8s.io/initial-events-end": "true" });
                first.push(bookmark);
            }
        } else if from < self.compacted {
            let message = format!("too old resource version: {from} ({})", self.compacted);
            first.push(event("ERROR", Failure::expired(message).status()));
            ended = true;
        }
        let timeout = request.parameter("timeoutSeconds").parse().unwrap_or(1800);
        Ok(Answer::Watch(WatchStart { watching, first, timeout, ended }))
    }

    /// What has happened since, as a watch's events; the watch is then up to date. Nothing if the history that it
    /// goes on from is gone.
    pub fn follow(&self, watching: &mut Watching) -> Option<Vec<Value>> {
        if watching.version < self.compacted {
            return None;
        }
        let since = self.changes_since(watching.version);
        let events = since.iter().filter_map(|change| self.event_of(watching, change)).collect();
        // One that began in the future waits until the present is there.
        watching.version = watching.version.max(self.version);
        Some(events)
    }

    /// Whether a watch is over since the CRD of its kind has changed, or is gone.
    #[must_use]
    pub fn is_over(&self, watching: &Watching) -> bool {
        let kind = &self.kinds[watching.kind];
        kind.serving == Serving::Missing || kind.revision != watching.revision
    }

    /// The event by which a watch is told how far it has come, if it asked for such.
    #[must_use]
    pub fn bookmark_of(&self, watching: &Watching) -> Option<Value> {
        watching.bookmarks.then(|| self.bookmark(watching))
    }

    fn bookmark(&self, watching: &Watching) -> Value {
        let kind = &self.kinds[watching.kind];
        let metadata = json!({ "resourceVersion": watching.version.to_string(), "creationTimestamp": null });
        let object = if watching.shape == Shape::Metadata {
            json!({ "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata })
        } else {
            let api_version = kind.api_version(&watching.version_name);
            json!({ "kind": kind.kind, "apiVersion": api_version, "metadata": metadata })
        };
        event("BOOKMARK", object)
    }

    fn event_of(&self, watching: &Watching, change: &Change) -> Option<Value> {
        if change.key.kind != watching.kind {
            return None;
        }
        let selects =
            |object: &Option<Arc<Value>>| object.as_ref().is_some_and(|object| watching.selects(object));
        let (name, object) = match (selects(&change.before), selects(&change.after)) {
            (false, true) => ("ADDED", change.after.as_deref()?),
            (true, true) => ("MODIFIED", change.after.as_deref()?),
            (true, false) => ("DELETED", change.before.as_deref()?),
            (false, false) => return None,
        };
        let target = Target {
            kind: watching.kind,
            version: watching.version_name.clone(),
            namespace: String::new(),
            name: String::new(),
            status: false,
        };
        let mut shown = self.shown(&target, object, watching.shape);
        if name == "DELETED" {
            shown["metadata"]["resourceVersion"] = change.version.to_string().into();
        }
        Some(event(name, shown))
    }
}

impl Watching {
    fn selects(&self, object: &Value) -> bool {
        (self.namespace.is_empty() || object["metadata"]["namespace"] == self.namespace.as_str())
            && self.selector.selects(object)
    }
}

fn event(name: &str, object: Value) -> Value {
    // Not by `json!`, which copies what it is given.
    let mut event = Map::new();
    event.insert("type".to_owned(), name.into());
    event.insert("object".to_owned(), object);
    Value::Object(event)
}
