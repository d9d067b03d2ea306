//! GET, LIST and merge patches.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::meta::name_of;
use super::watch::Shape;
use super::{Answer, Failure, Request, Selector, Server, Target};

/// Merges a patch into a document (RFC 7386), as the API server does: a value that replaces another loses the nulls of
/// all objects in it, also of those in lists.
pub fn merge_patch(document: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *document = without_nulls(patch);
        return;
    };
    if !document.is_object() {
        *document = Value::Object(Map::new());
    }
    let Some(fields) = document.as_object_mut() else { return };
    for (name, value) in patch {
        if value.is_null() {
            fields.remove(name);
        } else {
            merge_patch(fields.entry(name.clone()).or_insert(Value::Null), value);
        }
    }
}

/// A value without the nulls by which a patch removes fields.
pub(crate) fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.iter().filter(|(_, value)| !value.is_null());
            fields.map(|(name, value)| (name.clone(), without_nulls(value))).collect()
        }
        Value::Array(list) => list.iter().map(without_nulls).collect(),
        value => value.clone(),
    }
}

impl Server {
    pub(super) fn get(&self, target: &Target, request: &Request) -> Result<Answer, Failure> {
        let object = self.existing(target)?;
        Ok(Answer::Object(200, self.shown(target, object, Shape::of(&request.accept))))
    }

    pub(super) fn existing(&self, target: &Target) -> Result<&Arc<Value>, Failure> {
        let not_found = || Failure::not_found(&self.kinds[target.kind].resource(), &target.name);
        self.objects.get(&target.key()).ok_or_else(not_found)
    }

    /// An object in the version of the path.
    pub(super) fn shown(&self, target: &Target, object: &Value, shape: Shape) -> Value {
        let kind = &self.kinds[target.kind];
        if shape == Shape::Metadata {
            let mut shown =
                json!({ "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1" });
            shown["metadata"] = object["metadata"].clone();
            return shown;
        }
        let mut shown = object.clone();
        shown["apiVersion"] = kind.api_version(&target.version).into();
        shown["kind"] = kind.kind.as_str().into();
        shown
    }

    pub(super) fn list(&mut self, target: &Target, request: &Request) -> Result<Answer, Failure> {
        let selector = self.selector(target, request)?;
        let limit = match (request.parameter("limit").parse::<usize>().unwrap_or(0), self.page) {
            (0, _) => 0,
            (limit, 0) => limit,
            (limit, page) => limit.min(page),
        };
        let wanted = request.parameter("resourceVersion").parse::<u64>().unwrap_or(0);
        let token = request.parameter("continue");
        let (version, begin, all) = if token.is_empty() {
            if wanted > self.version {
                return Err(Failure::too_large_version(wanted, self.version));
            }
            let objects = self.objects_of_kind(target.kind).map(|(_, object)| Arc::clone(object));
            (self.version, 0, Arc::new(objects.collect()))
        } else {
            let malformed = || Failure::bad_request("continue key is not valid");
            let (version, begin) = token.split_once('.').ok_or_else(malformed)?;
            let version: u64 = version.parse().map_err(|_| malformed())?;
            let begin: usize = begin.parse().map_err(|_| malformed())?;
            let pages =
                self.pages.get(&(target.kind, version)).filter(|_| version >= self.compacted);
            let pages = pages.cloned().ok_or_else(|| {
                Failure::expired(
                    "The provided continue parameter is too old to display a consistent list result. You can \
                     start a new list without the continue parameter, or use the continue token in this response \
                     to retrieve the remainder of the results. Continuing with the provided token results in an \
                     inconsistent list - objects that were created, modified, or deleted between the time the \
                     first chunk was returned and now may show up in the list.",
                )
            })?;
            (version, begin, pages)
        };
        let (shape, kind) = (Shape::of(&request.accept), &self.kinds[target.kind]);
        let in_place = |object: &&Arc<Value>| {
            (target.namespace.is_empty()
                || object["metadata"]["namespace"] == target.namespace.as_str())
                && selector.selects(object)
        };
        let mut selected =
            all.iter().enumerate().skip(begin).filter(|(_, object)| in_place(object));
        let mut items = Vec::new();
        let mut next = None;
        for (_, object) in selected.by_ref() {
            items.push(self.listed(target, object, shape));
            if limit > 0 && items.len() == limit {
                next = selected.next().map(|(index, _)| index);
                break;
            }
        }
        let mut metadata = json!({ "resourceVersion": version.to_string() });
        if let Some(next) = next {
            metadata["continue"] = format!("{version}.{next}").into();
        } else if kind.custom && shape == Shape::Whole {
            metadata["continue"] = "".into();
        }
        let list = if shape == Shape::Metadata {
            json!({ "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1" })
        } else {
            json!({ "kind": format!("{}List", kind.kind), "apiVersion": kind.api_version(&target.version) })
        };
        let mut list = list;
        list["metadata"] = metadata;
        // Go encodes an empty list of metadata as null.
        list["items"] =
            if items.is_empty() && shape == Shape::Metadata { Value::Null } else { items.into() };
        if next.is_some() {
            self.pages.insert((target.kind, version), all);
        }
        Ok(Answer::Object(200, list))
    }

    /// Objects in lists of built-in kinds have no `kind` and `apiVersion`.
    fn listed(&self, target: &Target, object: &Value, shape: Shape) -> Value {
        let mut shown = self.shown(target, object, shape);
        if !self.kinds[target.kind].custom
            && shape == Shape::Whole
            && let Some(fields) = shown.as_object_mut()
        {
            fields.remove("kind");
            fields.remove("apiVersion");
        }
        shown
    }

    pub(super) fn selector(&self, target: &Target, request: &Request) -> Result<Selector, Failure> {
        if !target.namespace.is_empty() && !self.kinds[target.kind].namespaced {
            return Err(Failure::no_such_path());
        }
        Selector::parse(request.parameter("labelSelector"), request.parameter("fieldSelector"))
            .map_err(Failure::bad_request)
    }
}

/// Whether two objects differ in nothing but their version.
pub(super) fn is_same(one: &Value, other: &Value) -> bool {
    debug_assert_eq!(name_of(one), name_of(other));
    let (metadata, others) = (&one["metadata"], &other["metadata"]);
    let writers = match (metadata["managedFields"].as_array(), others["managedFields"].as_array()) {
        (Some(writers), Some(others)) => {
            let mut pairs = writers.iter().zip(others);
            writers.len() == others.len()
                && pairs.all(|(one, other)| is_same_but(&["time"], one, other))
        }
        (writers, others) => writers == others,
    };
    is_same_but(&["metadata"], one, other)
        && is_same_but(&["resourceVersion", "managedFields"], metadata, others)
        && writers
}

fn is_same_but(ignored: &[&str], one: &Value, other: &Value) -> bool {
    let (Some(fields), Some(others)) = (one.as_object(), other.as_object()) else {
        return one == other;
    };
    let matters = |(name, _): &(&String, &Value)| !ignored.contains(&name.as_str());
    fields.iter().filter(matters).eq(others.iter().filter(matters))
}
