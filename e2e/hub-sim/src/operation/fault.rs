//! Faults between the processes and the API server, and in the API server.

use std::time::Duration;

use tokio::time::Instant;

use super::{Operation, Others, at};
use crate::hub::{CLUSTERS, NAMESPACES};
use crate::model::{Refusal, Server};
use crate::world::{CrashPoint, FailureMode, MORTAL, PartialFailure, State};

/// The permissions that can be missing, by method and plural.
pub(super) const PERMISSIONS: [(&str, &str); 16] = [
    ("POST", "clusterprofiles"),
    ("PATCH", "clusterprofiles"),
    ("DELETE", "clusterprofiles"),
    ("POST", "secrets"),
    ("DELETE", "secrets"),
    ("POST", "rolebindings"),
    ("PATCH", "managedserviceaccounts"),
    ("GET", "managedserviceaccounts"),
    ("POST", "managedserviceaccounts"),
    ("DELETE", "managedserviceaccounts"),
    ("POST", "manifestworks"),
    ("PATCH", "manifestworks"),
    ("DELETE", "manifestworks"),
    ("POST", "clusterpermissions"),
    ("GET", "clusterpermissions"),
    ("PATCH", "multikueueconfigs"),
];

/// What can fail in one namespace for a long time, by method and plural. The last ones concern consumers.
pub(super) const BREAKABLE: [(&str, &str); 14] = [
    ("POST", "clusterprofiles"),
    ("PATCH", "clusterprofiles"),
    ("DELETE", "clusterprofiles"),
    ("POST", "secrets"),
    ("PATCH", "secrets"),
    ("DELETE", "secrets"),
    ("POST", "rolebindings"),
    ("POST", "events"),
    ("PATCH", "managedserviceaccounts"),
    ("GET", "manifestworks"),
    ("GET", "clusterpermissions"),
    ("POST", "managedserviceaccounts"),
    ("POST", "manifestworks"),
    ("DELETE", "manifestworks"),
];
/// How many of them concern no consumer.
pub(super) const BREAKABLE_ALWAYS: u8 = 9;

/// The kinds that can become unreadable. The last one concerns consumers.
pub(super) const READ: [&str; 9] = [
    "managedclusters",
    "managedclustersets",
    "managedclustersetbindings",
    "clusterprofiles",
    "managedserviceaccounts",
    "secrets",
    "rolebindings",
    "clusterroles",
    "manifestworks",
];

/// Shortest time for which an API server is down while its etcd is restored: it must be stopped before and started
/// after that. Without such a pause, no client could tell the new history from the old one once it is as long.
const RESTORE: Duration = Duration::from_secs(6);

impl Others {
    pub(super) fn fault(&self, operation: Operation) {
        use Operation as O;
        match operation {
            O::Disconnect => self.world.disconnect(),
            O::Compact => {
                self.world.change(Server::compact);
                self.world.disconnect();
            }
            O::CompactBetweenPages => self.world.lock().network.compacts_between_pages = true,
            O::Stall(seconds) => {
                let until = Instant::now() + Duration::from_secs(seconds.into());
                self.world.lock().network.stalled_until = Some(until);
            }
            O::Slow(tenths) => self.world.lock().network.slowness = tenths_of_a_second(tenths),
            O::Lag(tenths) => self.world.lock().network.lag = Duration::from_millis(u64::from(tenths) * 100),
            O::Fail(fault, count) => self.world.lock().network.failing = Some((count.into(), fault)),
            O::Outage(tenths) => self.stop_server(tenths_of_a_second(tenths)),
            O::Backup => *self.backup.lock() = Some(self.world.lock().server.backup()),
            O::Restore(tenths) => self.restore(tenths),
            O::Forbid(index) => {
                let forbidden = at(&PERMISSIONS, index);
                self.world.lock().network.forbidden.push(forbidden);
            }
            O::Break(index, place, mode) => self.fail_partially(at(&BREAKABLE, index), place, mode),
            O::Unread(index, mode) => {
                let (plural, mut state) = (at(&READ, index), self.world.lock());
                state.network.unread.entry(plural).or_insert((mode, Instant::now()));
                state.monitor.is_account_refused |= plural == "managedserviceaccounts";
                state.disconnect();
            }
            O::Reread => self.world.lock().network.unread.clear(),
            O::Freeze(index) => {
                self.world.lock().network.frozen = Some((at(&READ, index), Instant::now()));
                self.world.change(|_| ());
            }
            O::Permit => self.world.lock().network.forbidden.clear(),
            O::ServeLater(served) => {
                self.world.change(|server| server.serve_version("clusterprofiles", "v1alpha2", served));
            }
            O::Refuse(namespace, refused) => self.world.change(|server| {
                server.refusals.clear();
                if refused {
                    server.refusals.push(Refusal {
                        plural: "secrets".to_owned(),
                        namespace: at(&NAMESPACES, namespace).to_owned(),
                        why: "exceeded quota: secrets, requested: secrets=1, used: secrets=5, limited: secrets=5".to_owned(),
                    });
                }
            }),
            O::RemoveCrd(index) => {
                let plural = at(&MORTAL, index);
                self.world.lock().monitor.removed_crds.insert(plural);
                self.world.change(|server| server.remove_crd(plural));
            }
            O::RestoreCrds => self.restore_crds(),
            O::Collect => self.world.change(|server| {
                server.collect();
            }),
            _ => {}
        }
    }

    fn fail_partially(
        &self,
        (method, plural): (&'static str, &'static str),
        place: u8,
        mode: FailureMode,
    ) {
        // A quota concerns creates alone, and lists are not admitted.
        let mode = match (method, mode) {
            ("GET", FailureMode::Denied | FailureMode::Quota) => FailureMode::Internal,
            ("POST", mode) => mode,
            (_, FailureMode::Quota) => FailureMode::Denied,
            (_, mode) => mode,
        };
        let namespace = match plural {
            _ if method == "GET" => None,
            "managedserviceaccounts" | "manifestworks" => Some(at(&CLUSTERS, place)),
            _ => Some(at(&NAMESPACES, place)),
        };
        self.world.lock().network.partial.push(PartialFailure { method, plural, namespace, mode });
        if method == "GET" {
            self.world.disconnect();
        }
    }

    fn stop_server(&self, time: Duration) {
        let mut state = self.world.lock();
        state.network.down_until = Some(Instant::now() + time);
        state.disconnect();
    }

    fn restore(&self, tenths: u8) {
        let Some(backup) = self.backup.lock().clone() else { return };
        let time = tenths_of_a_second(tenths).max(RESTORE);
        self.stop_server(time);
        self.reload_proxies(time);
        let mut state = self.world.lock();
        state.network.restoring_until = state.network.down_until;
        // Clients notice that the API server has stopped.
        state.network.stalled_until = None;
        let State { monitor, server, .. } = &mut *state;
        let unmarked = monitor.unmarked(server);
        monitor.rewound(server.changes_since(backup.version()));
        server.restore(&backup);
        monitor.marked_again(&unmarked, server);
        state.notify();
    }

    /// Ends all faults: no request is refused, lost or delayed any more, and every kind is served. Only the restart of
    /// an API server whose etcd was restored takes its time.
    pub fn end_faults(&self) {
        self.end_passing_faults();
        self.world.lock().network.partial.clear();
    }

    /// Ends all faults but the failures that concern some requests alone.
    pub fn end_passing_faults(&self) {
        {
            let mut state = self.world.lock();
            state.network.failing = None;
            state.network.slowness = Duration::ZERO;
            state.network.lag = Duration::ZERO;
            state.network.stalled_until = None;
            state.network.down_until = state.network.restoring_until;
            state.network.compacts_between_pages = false;
            state.network.forbidden.clear();
            state.network.unread.clear();
            state.network.frozen = None;
            state.server.refusals.clear();
        }
        self.restore_crds();
    }

    fn restore_crds(&self) {
        self.world.change(|server| {
            for plural in MORTAL {
                server.restore_crd(plural);
            }
        });
    }
}

fn tenths_of_a_second(tenths: u8) -> Duration {
    Duration::from_millis(u64::from(tenths) * 100)
}

/// The crash that an operation describes.
pub(crate) fn crash_point(after: u8, committed: bool) -> CrashPoint {
    CrashPoint { after: after.into(), committed }
}
