//! Turns lists and watches into one sequence of applies and deletes.

use std::collections::BTreeMap;
use std::time::Duration;

use super::decode::{self, Decode};
use super::error::Malformed;
use super::{ObjectKey, Sink};

/// A [`Sink`] that decodes the objects itself, so that the loop of a watch is compiled once and not for each kind.
pub(super) trait Undecoded: Send {
    /// Passes on the object in a text, and returns its key.
    fn apply(&mut self, text: &[u8]) -> Result<ObjectKey, Malformed>;
    fn delete(&mut self, key: &ObjectKey);
    fn listed(&mut self, is_empty: bool);
    fn unread(&mut self);
    fn failing(&mut self, since: Option<Duration>);
    fn refused(&mut self);
    fn not_served(&mut self) -> bool;
}

/// A sink, and how the objects of its kind are decoded.
pub(super) struct Decoding<K> {
    pub(super) decode: Decode<K>,
    pub(super) sink: Box<dyn Sink<K>>,
}

impl<K: 'static> Undecoded for Decoding<K> {
    fn apply(&mut self, text: &[u8]) -> Result<ObjectKey, Malformed> {
        let (key, object) = (self.decode)(text)?;
        self.sink.apply(&key, object);
        Ok(key)
    }

    fn delete(&mut self, key: &ObjectKey) {
        self.sink.delete(key);
    }

    fn listed(&mut self, is_empty: bool) {
        self.sink.listed();
        if is_empty {
            self.sink.none_listed();
        }
    }

    fn unread(&mut self) {
        self.sink.unread();
    }

    fn failing(&mut self, since: Option<Duration>) {
        self.sink.failing(since);
    }

    fn refused(&mut self) {
        self.sink.refused();
    }

    fn not_served(&mut self) -> bool {
        self.sink.not_served()
    }
}

/// The objects that a watch has passed to its sink. An object missing from a complete list is deleted; an incomplete
/// list deletes nothing.
pub(super) struct History {
    pub(super) sink: Box<dyn Undecoded>,
    /// The known objects, each with the number of the list that last showed it, or of the last list before its latest
    /// event: after a complete list, those with an earlier number are deleted.
    known: BTreeMap<ObjectKey, u32>,
    /// The number of the last list that has begun.
    list: u32,
}

impl History {
    pub(super) fn new(sink: Box<dyn Undecoded>) -> Self {
        Self { sink, known: BTreeMap::new(), list: 0 }
    }

    /// A list starts at its first page.
    pub(super) fn begin_list(&mut self) {
        self.list = self.list.wrapping_add(1);
    }

    /// The list is complete.
    pub(super) fn end_list(&mut self) {
        let Self { sink, known, list } = self;
        for (key, _) in known.extract_if(.., |_, seen| seen != list) {
            sink.delete(&key);
        }
        // Built at once, a map has no gaps.
        *known = std::mem::take(known).into_iter().collect();
        sink.listed(known.is_empty());
    }

    /// An item of a list, or an event, shows an object.
    pub(super) fn apply(&mut self, text: &[u8]) -> Result<(), Malformed> {
        self.known.insert(self.sink.apply(text)?, self.list);
        Ok(())
    }

    /// An event shows that an object was deleted.
    pub(super) fn delete(&mut self, text: &[u8]) -> Result<(), Malformed> {
        let key = decode::key(text)?;
        self.known.remove(&key);
        self.sink.delete(&key);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use k8s_openapi::api::core::v1::ConfigMap;
    use parking_lot::Mutex;

    use super::*;
    use crate::watch::Unreadable;
    use crate::watch::decode::whole;

    #[derive(Clone, Default)]
    struct Recorder(Arc<Mutex<Vec<String>>>);

    impl Sink<ConfigMap> for Recorder {
        fn apply(&mut self, key: &ObjectKey, object: Result<ConfigMap, Unreadable>) {
            assert!(object.is_ok(), "{key:?}");
            self.0.lock().push(format!("apply {}/{}", key.namespace, key.name));
        }
        fn delete(&mut self, key: &ObjectKey) {
            self.0.lock().push(format!("delete {}/{}", key.namespace, key.name));
        }
        fn listed(&mut self) {
            self.0.lock().push("listed".to_owned());
        }
        fn none_listed(&mut self) {
            self.0.lock().push("none".to_owned());
        }
    }

    enum Step {
        List(&'static [&'static str]),
        BrokenList(&'static [&'static str]),
        Apply(&'static str),
        Delete(&'static str),
    }

    fn history_of(steps: &[Step]) -> Vec<String> {
        let recorder = Recorder::default();
        let decoding = Decoding { decode: whole, sink: Box::new(recorder.clone()) };
        let mut history = History::new(Box::new(decoding));
        let object = |name: &str| format!(r#"{{"metadata":{{"namespace":"ns","name":"{name}"}}}}"#);
        for step in steps {
            match step {
                Step::List(names) | Step::BrokenList(names) => {
                    history.begin_list();
                    for name in *names {
                        history.apply(object(name).as_bytes()).unwrap();
                    }
                    if matches!(step, Step::List(_)) {
                        history.end_list();
                    }
                }
                Step::Apply(name) => history.apply(object(name).as_bytes()).unwrap(),
                Step::Delete(name) => history.delete(object(name).as_bytes()).unwrap(),
            }
        }
        recorder.0.lock().split_off(0)
    }

    #[test]
    fn what_a_new_list_no_longer_shows_is_deleted() {
        let seen = history_of(&[Step::List(&["a", "b"]), Step::Apply("c"), Step::List(&["b"])]);
        let (first, mut second) = (seen[..5].to_vec(), seen[5..7].to_vec());
        assert_eq!(first, ["apply ns/a", "apply ns/b", "listed", "apply ns/c", "apply ns/b"]);
        second.sort();
        assert_eq!(second, ["delete ns/a", "delete ns/c"]);
        assert_eq!(seen[7..], ["listed"]);
    }

    #[test]
    fn a_list_that_breaks_off_deletes_nothing() {
        let seen = history_of(&[
            Step::List(&["a", "b"]),
            Step::BrokenList(&["a"]),
            Step::BrokenList(&[]),
            Step::List(&["a", "b"]),
        ]);
        assert!(!seen.iter().any(|line| line.starts_with("delete")), "{seen:?}");
    }

    #[test]
    fn a_delete_is_passed_on_once() {
        let seen = history_of(&[Step::List(&["a"]), Step::Delete("a"), Step::List(&[])]);
        assert_eq!(seen, ["apply ns/a", "listed", "delete ns/a", "listed", "none"]);
    }

    #[test]
    fn a_list_without_objects_is_noticed_only_when_it_is_complete() {
        let seen = history_of(&[
            Step::BrokenList(&[]),
            Step::List(&["a"]),
            Step::List(&[]),
            Step::List(&[]),
        ]);
        assert_eq!(
            seen,
            ["apply ns/a", "listed", "delete ns/a", "listed", "none", "listed", "none"]
        );
    }
}
