//! A client of the simulated API server that is not a controller of this project.

use serde_json::{Value, json};

use crate::model::{Answer, Request};
use crate::world::World;

/// A client that is not a controller of this project.
#[derive(Clone)]
pub struct Actor {
    world: World,
    name: &'static str,
}

impl Actor {
    /// A client with this name.
    #[must_use]
    pub fn new(world: &World, name: &'static str) -> Self {
        Self { world: world.clone(), name }
    }

    /// Creates an object, and sets its status, if it has one, by a second request. An existing object is left
    /// unchanged.
    pub fn create(&self, plural: &str, namespace: &str, name: &str, object: &Value) {
        let request = self.world.lock().server.creation(plural, namespace, name, object);
        if matches!(self.ask(&request), Answer::Object(..)) && object["status"].is_object() {
            self.patch_status(plural, namespace, name, &object["status"]);
        }
    }

    /// Merges a patch into an object.
    pub fn patch(&self, plural: &str, namespace: &str, name: &str, patch: &Value) {
        self.send(&Request::new("PATCH", &self.path(plural, namespace, name)).with(patch));
    }

    /// Merges a patch into the status of an object.
    pub fn patch_status(&self, plural: &str, namespace: &str, name: &str, status: &Value) {
        let path = format!("{}/status", self.path(plural, namespace, name));
        self.send(&Request::new("PATCH", &path).with(&json!({ "status": status })));
    }

    /// Deletes an object.
    pub fn delete(&self, plural: &str, namespace: &str, name: &str) {
        self.send(&Request::new("DELETE", &self.path(plural, namespace, name)));
    }

    /// Reads an object.
    #[must_use]
    pub fn get(&self, plural: &str, namespace: &str, name: &str) -> Option<Value> {
        self.world.lock().server.object(plural, namespace, name).map(|object| Value::clone(object))
    }

    /// Sends a request under the client's own name, unless the request already carries another.
    pub fn send(&self, request: &Request) {
        self.ask(request);
    }

    fn path(&self, plural: &str, namespace: &str, name: &str) -> String {
        self.world.lock().server.path(plural, namespace, name)
    }

    fn ask(&self, request: &Request) -> Answer {
        let request = request.clone();
        let request = if request.agent == "unknown" { request.by(self.name) } else { request };
        self.world.act(&request)
    }
}
