//! Turns lists and watches into one sequence of applies and deletes.

use std::collections::BTreeMap;

use super::decode::Decoded;
use super::{ObjectKey, Sink};

/// The objects that a watch has passed to its sink. An object missing from a complete list is deleted; an incomplete
/// list deletes nothing.
pub(super) struct History<K> {
    pub(super) sink: Box<dyn Sink<K>>,
    /// The known objects, each with the number of the list that last showed it, or of the last list before its latest
    /// event: after a complete list, those with an earlier number are deleted.
    known: BTreeMap<ObjectKey, u32>,
    /// The number of the last list that has begun.
    list: u32,
}

impl<K: 'static> History<K> {
    pub(super) fn new(sink: Box<dyn Sink<K>>) -> Self {
        Self { sink, known: BTreeMap::new(), list: 0 }
    }

    /// A list starts at its first page.
    pub(super) fn begin_list(&mut self) {
        self.list = self.list.wrapping_add(1);
    }

    /// The list is complete.
    pub(super) fn end_list(&mut self) {
        let Self { sink, known, list } = self;
        let (there, gone): (BTreeMap<_, _>, BTreeMap<_, _>) =
            std::mem::take(known).into_iter().partition(|(_, seen)| seen == list);
        for key in gone.keys() {
            sink.delete(key);
        }
        // Built at once, a map has no gaps.
        *known = there.into_iter().collect();
        sink.listed();
        if known.is_empty() {
            sink.none_listed();
        }
    }

    /// An item of a list, or an event, shows an object.
    pub(super) fn apply(&mut self, (key, object): Decoded<K>) {
        self.sink.apply(&key, object);
        self.known.insert(key, self.list);
    }

    /// An event shows that an object was deleted.
    pub(super) fn delete(&mut self, key: &ObjectKey) {
        self.known.remove(key);
        self.sink.delete(key);
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
            let shape = if object.is_ok() { "" } else { " unreadable" };
            self.0.lock().push(format!("apply {}/{}{shape}", key.namespace, key.name));
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
        let mut history = History::new(Box::new(recorder.clone()));
        let object = |name: &str| -> Decoded<ConfigMap> {
            let text = format!(r#"{{"metadata":{{"namespace":"ns","name":"{name}"}}}}"#);
            whole(text.as_bytes()).unwrap()
        };
        for step in steps {
            match step {
                Step::List(names) | Step::BrokenList(names) => {
                    history.begin_list();
                    for name in *names {
                        history.apply(object(name));
                    }
                    if matches!(step, Step::List(_)) {
                        history.end_list();
                    }
                }
                Step::Apply(name) => history.apply(object(name)),
                Step::Delete(name) => history.delete(&object(name).0),
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

    #[test]
    fn an_object_of_the_wrong_shape_is_there_and_unreadable() {
        let recorder = Recorder::default();
        let mut history = History::new(Box::new(recorder.clone()));
        history.begin_list();
        let text = br#"{"metadata":{"namespace":"ns","name":"a"},"data":7}"#;
        history.apply(whole(text).unwrap());
        history.end_list();
        assert_eq!(*recorder.0.lock(), ["apply ns/a unreadable", "listed"]);
    }
}
