//! Every order in a small scope: one key, the writes of our process and of another client, their responses, the events
//! and lists of the watch, and a restored history. When everything has arrived, the cache shows the hub, and a key is
//! held only if its object ended unseen. Until then, no write is sent for a state that a response has ruled out.

use std::collections::{HashSet, VecDeque};

use super::*;

/// How often the object changes, the watch breaks off, and the history is restored.
const CHANGES: u8 = 3;
const BREAKS: u8 = 2;
const RESTORES: u8 = 1;

/// An object: its uid and version.
type Object = (u8, u8);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Verb {
    Create,
    Patch(Object),
    Delete(Object),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Response {
    Shows(Object),
    Deleted,
    NotFound,
    /// It exists, or has changed.
    Conflict,
}

/// A request of our process, and the response once the server has executed it.
type Request = (Verb, Option<Response>);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Watch {
    Broken,
    Listing { shows: Option<Object>, is_shown: bool },
    Watching,
}

/// The state after what has happened, so that two orders that lead to the same state are followed once.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct World {
    // The server.
    object: Option<Object>,
    version: u8,
    uids: u8,
    backup: (Option<Object>, u8),
    // The watch, with the events that it has not delivered: an object, and whether it was deleted.
    watch: Watch,
    events: VecDeque<(Object, bool)>,
    has_shown: bool,
    // The process.
    is_listed: bool,
    request: Option<Request>,
    left: Option<Left>,
    known: Option<Object>,
    /// What a response has shown of our last write: the object, and whether it was deleted.
    written: Option<(Object, bool)>,
    // What may still happen.
    changes: u8,
    breaks: u8,
    restores: u8,
}

fn version((uid, version): Object) -> Version {
    Version { uid: uid.to_string().as_str().into(), resource_version: version.to_string().into() }
}

impl World {
    fn new(object: Option<Object>) -> Self {
        Self {
            object,
            version: 1,
            uids: 1,
            backup: (object, 1),
            watch: Watch::Broken,
            events: VecDeque::new(),
            has_shown: false,
            is_listed: false,
            request: None,
            left: None,
            known: None,
            written: None,
            changes: CHANGES,
            breaks: BREAKS,
            restores: RESTORES,
        }
    }

    /// The server stores an object, or deletes it.
    fn commit(&mut self, object: Option<u8>) -> Object {
        self.changes -= 1;
        self.version += 1;
        let uid = object.or(self.object.map(|(uid, _)| uid)).unwrap();
        let changed = (uid, self.version);
        self.object = object.map(|_| changed);
        self.events.push_back((changed, object.is_none()));
        changed
    }

    fn execute(&mut self, verb: Verb) -> Response {
        match (verb, self.object) {
            (Verb::Create, None) => {
                self.uids += 1;
                Response::Shows(self.commit(Some(self.uids)))
            }
            (Verb::Patch(_) | Verb::Delete(_), None) => Response::NotFound,
            (Verb::Patch(of), Some(object)) if of == object => {
                Response::Shows(self.commit(Some(object.0)))
            }
            (Verb::Delete(of), Some(object)) if of == object => {
                self.commit(None);
                Response::Deleted
            }
            _ => Response::Conflict,
        }
    }

    fn send(&mut self, verb: Verb) {
        if let (Verb::Patch(known) | Verb::Delete(known), Some((written, was_deleted))) =
            (verb, self.written)
        {
            let is_ruled_out = known.0 == written.0 && (was_deleted || known.1 < written.1);
            // A restored history can have the same versions for other states.
            let is_restored = self.restores < RESTORES;
            assert!(
                !is_ruled_out || is_restored,
                "{verb:?} after a response that shows {written:?}: {self:?}"
            );
        }
        self.request = Some((verb, None));
    }

    fn respond(&mut self, verb: Verb, response: Response) {
        self.request = None;
        let left = match (verb, response) {
            (_, Response::Shows(object)) => {
                self.written = Some((object, false));
                Left::Exists(version(object))
            }
            (Verb::Delete(object), Response::Deleted) => {
                self.written = Some((object, true));
                Left::Gone(object.0.to_string().as_str().into())
            }
            (Verb::Patch(object) | Verb::Delete(object), Response::NotFound) => {
                Left::Gone(object.0.to_string().as_str().into())
            }
            _ => return,
        };
        self.change(|written| written.set(&(), left));
    }

    /// Changes what is known of our last write.
    fn change<T>(&mut self, change: impl FnOnce(&Written<()>) -> T) -> T {
        let written = Written::default();
        if let Some(left) = self.left.take() {
            written.set(&(), left);
        }
        let changed = change(&written);
        self.left = written.0.into_inner().remove(&()).map(|unseen| unseen.left);
        changed
    }

    fn shown(&mut self, object: Object) {
        self.has_shown = true;
        self.known = Some(object);
    }

    fn ended(&mut self) {
        self.has_shown = false;
        if let Some((uid, _)) = self.known.take() {
            self.change(|written| written.ended(&(), &uid.to_string().as_str().into()));
        }
        self.written = None;
    }

    /// Whether the key can be planned.
    fn is_ready(&self) -> bool {
        let known = self.known.map(version);
        self.clone().change(|written| written.unseen(&(), known.as_ref()).is_none())
    }

    /// Every world that can follow.
    fn next(&self) -> Vec<Self> {
        let mut next = Vec::new();
        let mut then = |change: &dyn Fn(&mut Self)| {
            let mut world = self.clone();
            change(&mut world);
            next.push(world);
        };
        if self.changes > 0 {
            match self.object {
                None => then(&|it| {
                    it.uids += 1;
                    it.commit(Some(it.uids));
                }),
                Some((uid, _)) => {
                    then(&|it| {
                        it.commit(Some(uid));
                    });
                    then(&|it| {
                        it.commit(None);
                    });
                }
            }
        }
        match self.request {
            None if self.is_listed && self.changes > 0 && self.is_ready() => match self.known {
                None => then(&|it| it.send(Verb::Create)),
                Some(known) => {
                    then(&|it| it.send(Verb::Patch(known)));
                    then(&|it| it.send(Verb::Delete(known)));
                }
            },
            None => {}
            Some((verb, None)) if self.changes > 0 => then(&|it| {
                let response = it.execute(verb);
                it.request = Some((verb, Some(response)));
            }),
            // No further changes are allowed: the request gets no response.
            Some((_, None)) => then(&|it| it.request = None),
            Some((verb, Some(response))) => then(&|it| it.respond(verb, response)),
        }
        match self.watch {
            Watch::Broken => then(&|it| {
                it.events.clear();
                it.watch = Watch::Listing { shows: it.object, is_shown: false };
            }),
            Watch::Listing { shows: Some(object), is_shown: false } => then(&|it| {
                it.watch = Watch::Listing { shows: Some(object), is_shown: true };
                it.shown(object);
            }),
            Watch::Listing { shows, .. } => then(&|it| {
                if shows.is_none() && it.has_shown {
                    it.ended();
                }
                (it.watch, it.is_listed) = (Watch::Watching, true);
            }),
            Watch::Watching if !self.events.is_empty() => then(&|it| match it.events.pop_front() {
                Some((_, true)) => it.ended(),
                Some((object, false)) => it.shown(object),
                None => {}
            }),
            Watch::Watching => {}
        }
        if self.watch != Watch::Broken && self.breaks > 0 {
            then(&|it| {
                it.breaks -= 1;
                it.watch = Watch::Broken;
            });
        }
        if self.restores > 0 {
            then(&|it| it.backup = (it.object, it.version));
            // The API server restarts: connections end.
            then(&|it| {
                it.restores -= 1;
                (it.object, it.version) = it.backup;
                (it.watch, it.written) = (Watch::Broken, None);
                it.request = None;
            });
        }
        next
    }

    /// Whether everything that has happened has arrived.
    fn is_quiet(&self) -> bool {
        self.request.is_none() && self.watch == Watch::Watching && self.events.is_empty()
    }
}

#[test]
fn whatever_the_order_the_cache_ends_as_the_hub_and_no_write_is_sent_for_a_state_that_is_ruled_out()
{
    let mut open = vec![World::new(None), World::new(Some((1, 1)))];
    let mut visited: HashSet<World> = HashSet::new();
    let mut quiet = 0;
    while let Some(world) = open.pop() {
        if !visited.insert(world.clone()) {
            continue;
        }
        if world.is_quiet() {
            quiet += 1;
            assert_eq!(world.known, world.object, "{world:?}");
            // After a time, it is planned from the cache, or read.
            let has_ended = world.known.is_none() || world.restores < RESTORES;
            assert!(world.is_ready() || has_ended, "{world:?}");
        }
        open.extend(world.next());
    }
    println!("{} states, {quiet} of them at rest", visited.len());
    assert!(quiet > 1000, "{quiet}");
}
