//! POST, PUT, PATCH and DELETE.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use super::fields::{self, Writer};
use super::meta::{self, is_held, is_terminating, name_of, uid_of, version_of};
use super::read::{is_same, merge_patch};
use super::watch::Shape;
use super::{Answer, Failure, Request, Server, Serving, Target, UNPRIVILEGED};
use crate::consumers::ACCESSES;

impl Server {
    pub(super) fn create(&mut self, target: &Target, request: &Request) -> Result<Answer, Failure> {
        let kind = Arc::clone(&self.kinds[target.kind]);
        if kind.namespaced && target.namespace.is_empty() {
            return Err(Failure::method_not_allowed(
                "the server does not allow this method on the requested resource",
            ));
        }
        if kind.serving == Serving::Terminating {
            return Err(Failure::method_not_allowed(
                "create not allowed while custom resource definition is terminating",
            ));
        }
        let mut object = self.decoded(target, &request.body)?;
        if kind.namespaced {
            object["metadata"]["namespace"] = target.namespace.as_str().into();
        }
        let prefix = object["metadata"]["generateName"].as_str().unwrap_or_default().to_owned();
        if name_of(&object).is_empty() && !prefix.is_empty() {
            object["metadata"]["name"] = format!("{prefix}{:05x}", self.version).into();
        }
        let (resource, name) = (kind.resource(), name_of(&object).to_owned());
        self.admit(target, &resource, &name)?;
        for field in
            ["resourceVersion", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"]
        {
            object["metadata"].as_object_mut().map(|metadata| metadata.remove(field));
        }
        let version = &kind.versions[&target.version];
        if version.status
            && let Some(fields) = object.as_object_mut()
        {
            fields.remove("status");
        }
        if kind.custom {
            object["metadata"]["generation"] = 1.into();
        } else {
            object["metadata"].as_object_mut().map(|metadata| metadata.remove("generation"));
        }
        self.complete(target, &mut object, None)?;
        self.authorize(target, request, None, &object)?;
        if kind.plural == "namespaces" {
            object["spec"] = json!({ "finalizers": ["kubernetes"] });
            object["status"] = json!({ "phase": "Active" });
            object["metadata"]["labels"]["kubernetes.io/metadata.name"] = name.as_str().into();
        }
        let key = super::Key { name: name.clone(), ..target.key() };
        if let Some(existing) = self.objects.get(&key) {
            return Err(Failure::already_exists(&resource, &name, is_terminating(existing)));
        }
        object["metadata"]["uid"] = self.next_uid().into();
        object["metadata"]["creationTimestamp"] = self.timestamp().into();
        self.note_writer(target, request, None, &mut object);
        let created = self.commit(key, Some(object), &request.agent);
        Ok(Answer::Object(201, self.shown(target, &created, Shape::of(&request.accept))))
    }

    /// The object of a body, whose kind must be the kind of the path.
    fn decoded(&self, target: &Target, body: &[u8]) -> Result<Value, Failure> {
        let kind = &self.kinds[target.kind];
        let object: Value = serde_json::from_slice(body)
            .map_err(|error| Failure::bad_request(format!("the body is not JSON: {error}")))?;
        let api_version = kind.api_version(&target.version);
        let fits = |field: &str, wanted: &str| {
            let found = object[field].as_str().unwrap_or_default();
            found == wanted || found.is_empty() && !kind.custom
        };
        if !fits("apiVersion", &api_version) || !fits("kind", &kind.kind) {
            return Err(Failure::bad_request(format!(
                "the object provided is unrecognized: expected {api_version}, Kind={}",
                kind.kind
            )));
        }
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
        if !namespace.is_empty() && namespace != target.namespace {
            return Err(Failure::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
        if kind.plural == "secrets" {
            complete_secret(&mut object.clone()).map_err(Failure::bad_request)?;
        }
        Ok(object)
    }

    /// Whether objects can be created in a namespace.
    fn admit(&self, target: &Target, resource: &str, name: &str) -> Result<(), Failure> {
        let namespace = target.namespace.as_str();
        if !namespace.is_empty() {
            let found = self.object("namespaces", "", namespace);
            let found = found.ok_or_else(|| Failure::not_found("namespaces", namespace))?;
            if is_terminating(found) {
                return Err(Failure::namespace_terminating(resource, name, namespace));
            }
        }
        let plural = &self.kinds[target.kind].plural;
        let refused = self.refusals.iter().find(|refusal| {
            refusal.plural == *plural
                && (refusal.namespace.is_empty() || refusal.namespace == namespace)
        });
        refused.map_or(Ok(()), |refusal| Err(Failure::forbidden(resource, name, &refusal.why)))
    }

    /// The chart's policy on authors of ClusterAccesses: nobody asks for ClusterRoles that they may not bind.
    fn authorize(
        &self,
        target: &Target,
        request: &Request,
        before: Option<&Value>,
        object: &Value,
    ) -> Result<(), Failure> {
        let kind = &self.kinds[target.kind];
        let permissions = |object: &Value| object["spec"]["permissions"].clone();
        let asked = permissions(object);
        let is_new = before.map_or(Value::Null, permissions) != asked;
        if kind.plural != ACCESSES || request.agent != UNPRIVILEGED || !is_new {
            return Ok(());
        }
        let why = "the author of a ClusterAccess must have the permission to bind its ClusterRoles";
        Err(Failure::forbidden(&kind.resource(), name_of(object), why))
    }

    pub(super) fn replace(
        &mut self,
        target: &Target,
        request: &Request,
    ) -> Result<Answer, Failure> {
        let object = self.decoded(target, &request.body)?;
        if name_of(&object) != target.name {
            return Err(Failure::bad_request(format!(
                "the name of the object ({}) does not match the name on the URL ({})",
                name_of(&object),
                target.name
            )));
        }
        let (kind, resource) = (&self.kinds[target.kind], self.kinds[target.kind].resource());
        let creates = ["rolebindings", "clusterroles", "leases"].contains(&kind.plural.as_str());
        if creates && !self.objects.contains_key(&target.key()) {
            if !uid_of(&object).is_empty() {
                return Err(Failure::precondition(
                    &resource,
                    &target.name,
                    "UID",
                    uid_of(&object),
                    "",
                ));
            }
            return self.create(target, request);
        }
        let before = Arc::clone(self.existing(target)?);
        if !uid_of(&object).is_empty() && uid_of(&object) != uid_of(&before) {
            let (wanted, found) = (uid_of(&object), uid_of(&before));
            return Err(Failure::precondition(&resource, &target.name, "UID", wanted, found));
        }
        if version_of(&object).is_empty() && kind.custom {
            let why = "Invalid value: 0: must be specified for an update".to_owned();
            let causes = [("metadata.resourceVersion".to_owned(), why)];
            return Err(Failure::invalid(&kind.kind, &target.name, &causes));
        }
        self.update(target, request, &before, object)
    }

    pub(super) fn patch(&mut self, target: &Target, request: &Request) -> Result<Answer, Failure> {
        let patch: Value = serde_json::from_slice(&request.body)
            .map_err(|error| Failure::bad_request(format!("the body is not JSON: {error}")))?;
        let before = Arc::clone(self.existing(target)?);
        if self.undone == Some((&self.kinds[target.kind].plural, &target.namespace)) {
            return Ok(Answer::Object(
                200,
                self.shown(target, &before, Shape::of(&request.accept)),
            ));
        }
        let mut object = Value::clone(&before);
        merge_patch(&mut object, &patch);
        self.update(target, request, &before, object)
    }

    /// Replaces the stored object by `object`, as far as the rules allow.
    fn update(
        &mut self,
        target: &Target,
        request: &Request,
        before: &Arc<Value>,
        mut object: Value,
    ) -> Result<Answer, Failure> {
        let kind = Arc::clone(&self.kinds[target.kind]);
        let resource = kind.resource();
        if !version_of(&object).is_empty() && version_of(&object) != version_of(before) {
            return Err(Failure::modified(&resource, &target.name));
        }
        object["apiVersion"] = before["apiVersion"].clone();
        object["kind"] = before["kind"].clone();
        for field in ["namespace", "uid", "creationTimestamp", "deletionTimestamp"] {
            if object["metadata"][field].as_str().is_none_or(str::is_empty) {
                keep(&mut object["metadata"], &before["metadata"], field);
            }
        }
        if object["metadata"]["managedFields"].as_array().is_none_or(Vec::is_empty) {
            keep(&mut object["metadata"], &before["metadata"], "managedFields");
        }
        for field in ["resourceVersion", "generation", "deletionGracePeriodSeconds"] {
            keep(&mut object["metadata"], &before["metadata"], field);
        }
        if target.status {
            let wanted = object;
            object = Value::clone(before);
            // Of the metadata only the version is checked: a uid of another object is not refused.
            keep(&mut object, &wanted, "status");
        } else if kind.versions[&target.version].status {
            keep(&mut object, before, "status");
        }
        self.complete(target, &mut object, Some(before))?;
        self.authorize(target, request, Some(before.as_ref()), &object)?;
        self.note_writer(target, request, Some(before), &mut object);
        if is_same(before, &object) {
            let path = format!("{} {}", request.method, request.path);
            self.idle_writes.push((request.agent.clone(), path));
            return Ok(Answer::Object(200, self.shown(target, before, Shape::of(&request.accept))));
        }
        if kind.custom && differs(before, &object, kind.versions[&target.version].status) {
            let generation = before["metadata"]["generation"].as_i64().unwrap_or(0);
            object["metadata"]["generation"] = (generation + 1).into();
        }
        let is_over = is_terminating(&object) && !is_held(&object);
        let shown = if is_over {
            // The last finalizer has been removed: the server deletes the object and returns its last state.
            self.commit(target.key(), None, &request.agent);
            Arc::new(object)
        } else {
            self.commit(target.key(), Some(object), &request.agent)
        };
        Ok(Answer::Object(200, self.shown(target, &shown, Shape::of(&request.accept))))
    }

    /// Brings an object into the form in which it is stored, or returns its errors.
    fn complete(
        &self,
        target: &Target,
        object: &mut Value,
        before: Option<&Arc<Value>>,
    ) -> Result<(), Failure> {
        let kind = &self.kinds[target.kind];
        meta::complete(object);
        let mut causes = meta::validate(object, before.map(|before| &**before));
        if let Some(schema) = &kind.versions[&target.version].schema {
            schema.complete(object);
            causes.extend(schema.validate(object, before.map(|before| &**before)));
        }
        match kind.plural.as_str() {
            "secrets" => {
                keep_only(object, &["data", "stringData", "type", "immutable"]);
                complete_secret(object).map_err(Failure::bad_request)?;
                if let Some(before) = before {
                    causes.extend(immutable_secret(before, object));
                }
            }
            "configmaps" => keep_only(object, &["data", "binaryData", "immutable"]),
            "rolebindings" => {
                keep_only(object, &["roleRef", "subjects"]);
                for subject in object["subjects"].as_array_mut().into_iter().flatten() {
                    if subject["kind"] != "ServiceAccount"
                        && subject["apiGroup"].as_str().is_none_or(str::is_empty)
                    {
                        subject["apiGroup"] = "rbac.authorization.k8s.io".into();
                    }
                }
                if before.is_some_and(|before| before["roleRef"] != object["roleRef"]) {
                    causes.push((
                        "roleRef".to_owned(),
                        "Invalid value: cannot change roleRef".to_owned(),
                    ));
                }
            }
            _ => {}
        }
        if causes.is_empty() {
            return Ok(());
        }
        let group_kind = if kind.group.is_empty() {
            kind.kind.clone()
        } else {
            format!("{}.{}", kind.kind, kind.group)
        };
        Err(Failure::invalid(&group_kind, name_of(object), &causes))
    }

    fn note_writer(
        &self,
        target: &Target,
        request: &Request,
        before: Option<&Arc<Value>>,
        object: &mut Value,
    ) {
        // Renewals of Leases are by far the most frequent writes, and no controller reads their field managers.
        if self.kinds[target.kind].plural == "leases" {
            return;
        }
        let manager = match request.parameter("fieldManager") {
            "" => request.agent.split('/').next().unwrap_or_default(),
            named => named,
        };
        let writer = Writer {
            manager,
            api_version: &self.kinds[target.kind].api_version(&target.version),
            status: target.status,
            time: &self.timestamp(),
        };
        fields::update(before.map(|before| &**before), object, &writer);
    }

    pub(super) fn delete(&mut self, target: &Target, request: &Request) -> Result<Answer, Failure> {
        let options: Value = if request.body.is_empty() {
            json!({})
        } else {
            serde_json::from_slice(&request.body)
                .map_err(|error| Failure::bad_request(error.to_string()))?
        };
        let object = Arc::clone(self.existing(target)?);
        let resource = self.kinds[target.kind].resource();
        for (name, field, found) in [
            ("UID", "uid", uid_of(&object)),
            ("ResourceVersion", "resourceVersion", version_of(&object)),
        ] {
            if let Some(wanted) =
                options["preconditions"][field].as_str().filter(|wanted| *wanted != found)
            {
                return Err(Failure::precondition(&resource, &target.name, name, wanted, found));
            }
        }
        let shape = Shape::of(&request.accept);
        if self.kinds[target.kind].plural == "namespaces" {
            let mut ending = Value::clone(&object);
            if !is_terminating(&ending) {
                ending["metadata"]["deletionTimestamp"] = self.timestamp().into();
                ending["status"]["phase"] = "Terminating".into();
                self.commit(target.key(), Some(ending), &request.agent);
            }
            return Ok(Answer::Object(200, self.shown(target, self.existing(target)?, shape)));
        }
        if is_held(&object) {
            self.remove(&target.key(), &request.agent);
            return Ok(Answer::Object(200, self.shown(target, self.existing(target)?, shape)));
        }
        self.remove(&target.key(), &request.agent);
        let (plural, group) = (&self.kinds[target.kind].plural, &self.kinds[target.kind].group);
        let mut details = json!({ "name": target.name, "kind": plural, "uid": uid_of(&object) });
        if !group.is_empty() {
            details["group"] = group.as_str().into();
        }
        let status = json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details });
        Ok(Answer::Object(200, status))
    }
}

/// Copies a field from another object, or removes it if that has none.
fn keep(object: &mut Value, from: &Value, field: &str) {
    let Some(fields) = object.as_object_mut() else { return };
    match from.get(field) {
        Some(value) => fields.insert(field.to_owned(), value.clone()),
        None => fields.remove(field),
    };
}

/// Drops the fields that built-in kinds do not have, as decoding does.
fn keep_only(object: &mut Value, known: &[&str]) {
    if let Some(fields) = object.as_object_mut() {
        fields.retain(|name, _| {
            ["apiVersion", "kind", "metadata"].contains(&name.as_str())
                || known.contains(&name.as_str())
        });
    }
}

/// Whether two states differ in the parts that `metadata.generation` counts.
fn differs(before: &Value, after: &Value, without_status: bool) -> bool {
    let counted = |object: &Value| {
        let fields = object.as_object().into_iter().flatten();
        let counted = fields
            .filter(|(name, _)| *name != "metadata" && !(without_status && *name == "status"));
        counted.map(|(name, value)| (name.clone(), value.clone())).collect::<Map<_, _>>()
    };
    counted(before) != counted(after)
}

fn complete_secret(secret: &mut Value) -> Result<(), String> {
    let Some(fields) = secret.as_object_mut() else { return Ok(()) };
    if let Some(Value::Object(texts)) = fields.remove("stringData") {
        let data = fields.entry("data").or_insert_with(|| json!({}));
        for (key, text) in texts {
            data[key] = STANDARD.encode(text.as_str().unwrap_or_default()).into();
        }
    }
    if fields.get("type").and_then(Value::as_str).is_none_or(str::is_empty) {
        fields.insert("type".to_owned(), "Opaque".into());
    }
    for (key, value) in fields.get("data").and_then(Value::as_object).into_iter().flatten() {
        if value.as_str().is_none_or(|text| STANDARD.decode(text).is_err()) {
            return Err(format!("illegal base64 data in {key}"));
        }
    }
    let is_empty = fields.get("data").is_some_and(|data| data.is_null() || data == &json!({}));
    if is_empty {
        fields.remove("data");
    }
    fields.retain(|_, value| !value.is_null());
    Ok(())
}

fn immutable_secret(before: &Value, after: &Value) -> Vec<(String, String)> {
    let mut causes = Vec::new();
    let fixed = || "Invalid value: field is immutable".to_owned();
    if before["type"] != after["type"] {
        causes.push(("type".to_owned(), fixed()));
    }
    if before["immutable"] == true {
        for field in ["data", "immutable"] {
            if before[field] != after[field] {
                causes.push((field.to_owned(), fixed()));
            }
        }
    }
    causes
}
