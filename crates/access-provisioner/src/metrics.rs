//! The metrics of access providers: the profiles that have our entry, the reasons why others lack it, and the published
//! server.

use std::collections::BTreeMap;

use hub_api::names::ProfileKey;
use hub_core::access::{Offer, ServerState, Withheld};
use hub_core::profile::ObservedProfile;
use hub_runtime::observe::metrics::metric;
use parking_lot::Mutex;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

const PUBLISHED: &str = "published";

type Labels<const N: usize> = [(&'static str, &'static str); N];

/// The metrics of every source of access providers. Clones count together.
#[derive(Clone, Default)]
pub struct EntryMetrics {
    access_providers: Family<Labels<2>, Gauge>,
    server_check: Family<Labels<2>, Gauge>,
    server_certificate_expiry: Family<Labels<1>, Gauge>,
    /// The earliest expiry of the published trust anchors, in seconds of Unix time.
    pub(crate) trust_anchor_expiry: Gauge,
}

impl EntryMetrics {
    /// Registers the metrics.
    pub fn register(registry: &mut Registry) -> Self {
        Self {
            access_providers: metric(
                registry,
                "access_providers",
                "Profiles, by source and state of our access provider: published, or the reason why not",
            ),
            server_check: metric(
                registry,
                "server_check",
                "1 for the result of the latest TLS handshake with the published server, by source and result: ok, \
                 old_certificate, wrong_name, untrusted, unreachable",
            ),
            server_certificate_expiry: metric(
                registry,
                "server_certificate_expiry_timestamp_seconds",
                "Expiry of the certificate that the published server presents, in Unix time, by source; 0 if it cannot be \
                 reached",
            ),
            trust_anchor_expiry: metric(
                registry,
                "trust_anchor_expiry_timestamp_seconds",
                "Earliest expiry of the published trust anchors, in Unix time; 0 if there is none",
            ),
        }
    }
}

/// The metrics of one source.
pub(crate) struct EntryGauges {
    source: &'static str,
    pub(crate) metrics: EntryMetrics,
    /// Why each profile lacks our entry, if it does.
    states: Mutex<BTreeMap<ProfileKey, Option<Withheld>>>,
    /// The latest result of a check of the published server.
    checked: Mutex<Option<ServerState>>,
}

impl EntryGauges {
    /// Initializes the series of the states of entries.
    pub(crate) fn new(source: &'static str, metrics: EntryMetrics) -> Self {
        let gauges = Self { source, metrics, states: Mutex::default(), checked: Mutex::default() };
        for state in [None].into_iter().chain(Withheld::ALL.iter().copied().map(Some)) {
            gauges.entries(state).set(0);
        }
        gauges
    }

    /// Initializes the series of the results of checks.
    pub(crate) fn declare_server(&self) {
        for state in ServerState::ALL {
            self.server(*state).set(0);
        }
        self.certificate_expiry().set(0);
    }

    /// Records the latest result of a check, if there is a server to check, and when the server's certificate expires.
    pub(crate) fn set_server(&self, state: Option<ServerState>, expires: Option<i64>) {
        if let Some(before) = std::mem::replace(&mut *self.checked.lock(), state) {
            self.server(before).set(0);
        }
        if let Some(state) = state {
            self.server(state).set(1);
        }
        self.certificate_expiry().set(expires.unwrap_or(0));
    }

    /// Records the decision for a profile; `None` if the profile is gone or not ours.
    pub(crate) fn set(&self, key: &ProfileKey, decided: Option<(&ObservedProfile, &Offer)>) {
        let now = decided.map(|(observed, offer)| match offer {
            Offer::Publish(entry) if observed.has_room_for(&entry.name) => None,
            Offer::Publish(_) => Some(Withheld::NoRoom),
            Offer::Withdraw(why) | Offer::Keep(why) => Some(*why),
        });
        let mut states = self.states.lock();
        let before = match now {
            Some(state) => states.insert(key.clone(), state),
            None => states.remove(key),
        };
        if before != now {
            for (state, difference) in [(before, -1), (now, 1)] {
                if let Some(state) = state {
                    self.entries(state).inc_by(difference);
                }
            }
        }
    }

    fn entries(&self, state: Option<Withheld>) -> Gauge {
        let labels =
            [("source", self.source), ("state", state.map_or(PUBLISHED, |why| why.into_str()))];
        self.metrics.access_providers.get_or_create_owned(&labels)
    }

    fn server(&self, state: ServerState) -> Gauge {
        let labels = [("source", self.source), ("result", state.into_str())];
        self.metrics.server_check.get_or_create_owned(&labels)
    }

    fn certificate_expiry(&self) -> Gauge {
        let labels = [("source", self.source)];
        self.metrics.server_certificate_expiry.get_or_create_owned(&labels)
    }
}

#[cfg(test)]
mod tests {
    use hub_api::cluster_profile::AccessProvider;
    use hub_runtime::observe::metrics::Metrics;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
    use serde_json::json;

    use super::*;

    /// As many entries of others as a profile can have.
    const MANY: usize = 64;

    #[test]
    fn a_profile_counts_by_the_decision_about_its_entry_until_that_changes() {
        let (metrics, of_entries) = Metrics::with("0", EntryMetrics::register);
        let gauges = EntryGauges::new("proxy", of_entries);
        let assert_shown = |counts: [(&str, u32); 4]| {
            let text = metrics.text();
            for (state, count) in counts {
                let line =
                    format!("access_providers{{source=\"proxy\",state=\"{state}\"}} {count}");
                assert!(text.lines().any(|it| it.ends_with(&line)), "{line} is missing in\n{text}");
            }
        };
        let observed = |others: usize| {
            let entries: Vec<_> =
                (0..others).map(|other| json!({ "name": format!("other-{other}") })).collect();
            let object = json!({ "status": { "accessProviders": entries } });
            ObservedProfile::read(&ObjectMeta::default(), &object)
        };
        let (free, full) = (observed(0), observed(MANY));
        let publish =
            Offer::Publish(Box::new(AccessProvider { name: "ours".to_owned(), cluster: None }));
        let keys = ["c1", "c2"]
            .map(|cluster| ProfileKey { namespace: "team".into(), cluster: cluster.into() });
        gauges.set(&keys[0], Some((&free, &publish)));
        gauges.set(&keys[1], Some((&full, &publish)));
        assert_shown([("published", 1), ("no_room", 1), ("no_addon", 0), ("no_endpoint", 0)]);
        for _ in 0..2 {
            gauges.set(&keys[0], Some((&free, &Offer::Withdraw(Withheld::NoAddon))));
            gauges.set(&keys[1], Some((&full, &Offer::Keep(Withheld::NoEndpoint))));
            assert_shown([("published", 0), ("no_room", 0), ("no_addon", 1), ("no_endpoint", 1)]);
        }
        gauges.set(&keys[0], None);
        assert_shown([("published", 0), ("no_room", 0), ("no_addon", 0), ("no_endpoint", 1)]);
    }

    #[test]
    fn the_latest_check_of_the_server_counts() {
        let (metrics, of_entries) = Metrics::with("0", EntryMetrics::register);
        let gauges = EntryGauges::new("proxy", of_entries);
        gauges.declare_server();
        gauges.set_server(Some(ServerState::Unreachable), None);
        gauges.set_server(Some(ServerState::Ok), Some(88));
        let text = metrics.text();
        for line in [
            "server_check{source=\"proxy\",result=\"ok\"} 1",
            "server_check{source=\"proxy\",result=\"unreachable\"} 0",
            "server_certificate_expiry_timestamp_seconds{source=\"proxy\"} 88",
        ] {
            let has = text.contains(&format!("\nhub_addons_{line}\n"));
            assert!(has, "{line} is missing in\n{text}");
        }
    }
}
