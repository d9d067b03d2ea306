//! WATCH: the events of the history that a watch shows.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::{Answer, Change, Failure, Request, Selector, Server, Serving, Target};

/// Whether the client requests whole objects or their metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Whole objects.
    Whole,
    /// `PartialObjectMetadata`.
    Metadata,
}

impl Shape {
    /// The shape that the header `Accept` requests.
    #[must_use]
    pub fn of(accept: &str) -> Self {
        if accept.contains("as=PartialObjectMetadata") { Self::Metadata } else { Self::Whole }
    }
}

/// An accepted watch.
#[derive(Debug, Clone, PartialEq)]
pub struct WatchStart {
    /// The objects that it follows.
    pub watching: Watching,
    /// The initial events.
    pub first: Vec<Value>,
    /// The number of seconds after which the server ends it.
    pub timeout: u64,
    /// Whether it ends after its initial events.
    pub ended: bool,
}

/// The objects that a watch follows, and the version that it has reached.
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
    /// The resourceVersion up to which it has shown all events.
    pub version: u64,
}

impl Server {
    pub(super) fn start_watch(
        &mut self,
        target: &Target,
        request: &Request,
    ) -> Result<Answer, Failure> {
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
        if from == 0 {
            watching.version = self.version;
            for (_, object) in self.objects_of_kind(target.kind) {
                if watching.selects(object) {
                    first.push(event("ADDED", self.shown(target, object, watching.shape)));
                }
            }
        } else if from < self.compacted {
            let message = format!("too old resource version: {from} ({})", self.compacted);
            first.push(event("ERROR", Failure::expired(message).status()));
            ended = true;
        }
        let timeout = request.parameter("timeoutSeconds").parse().unwrap_or(1800);
        Ok(Answer::Watch(WatchStart { watching, first, timeout, ended }))
    }

    /// The events since the last call; the watch is then up to date. `None` if the history that it continues from has
    /// been compacted.
    pub fn follow(&self, watching: &mut Watching) -> Option<Vec<Value>> {
        if watching.version < self.compacted {
            return None;
        }
        let since = self.changes_since(watching.version);
        let events = since.iter().filter_map(|change| self.event_of(watching, change)).collect();
        // A watch from a future version waits until the server reaches that version.
        watching.version = watching.version.max(self.version);
        Some(events)
    }

    /// Whether a watch ends because the CRD of its kind has changed or been deleted.
    pub(crate) fn is_over(&self, watching: &Watching) -> bool {
        let kind = &self.kinds[watching.kind];
        kind.serving == Serving::Missing || kind.revision != watching.revision
    }

    /// The bookmark that shows the version that a watch has reached, if the client requested bookmarks.
    pub(crate) fn bookmark_of(&self, watching: &Watching) -> Option<Value> {
        watching.bookmarks.then(|| self.bookmark(watching))
    }

    fn bookmark(&self, watching: &Watching) -> Value {
        let kind = &self.kinds[watching.kind];
        let metadata =
            json!({ "resourceVersion": watching.version.to_string(), "creationTimestamp": null });
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
        let selects = |object: &Option<Arc<Value>>| {
            object.as_ref().is_some_and(|object| watching.selects(object))
        };
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
    // Without `json!`, which copies its values.
    let mut event = Map::new();
    event.insert("type".to_owned(), name.into());
    event.insert("object".to_owned(), object);
    Value::Object(event)
}
