//! Counts the profiles that have our entry, and the reasons why others lack it.

use std::collections::BTreeMap;

use hub_api::names::ProfileKey;
use hub_core::access::{Offer, Withheld};
use hub_core::profile::ObservedProfile;
use hub_runtime::observe::metrics::Metrics;
use parking_lot::Mutex;

const PUBLISHED: &str = "published";

/// Keeps the gauge of one source up to date.
pub(crate) struct EntryGauges {
    source: &'static str,
    metrics: Metrics,
    /// Why each profile lacks our entry, if it does.
    states: Mutex<BTreeMap<ProfileKey, Option<Withheld>>>,
}

impl EntryGauges {
    pub(crate) fn new(source: &'static str, metrics: Metrics) -> Self {
        let mut states = vec![PUBLISHED];
        states.extend(Withheld::ALL.iter().copied().map(Withheld::as_str));
        metrics.declare_access_provider(source, &states);
        Self { source, metrics, states: Mutex::default() }
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
            let name = |state: Option<Withheld>| state.map_or(PUBLISHED, Withheld::as_str);
            self.metrics.access_provider(self.source, before.map(name), now.map(name));
        }
    }
}

#[cfg(test)]
mod tests {
    use hub_api::cluster_profile::AccessProvider;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
    use serde_json::json;

    use super::*;

    /// As many entries of others as a profile can have.
    const MANY: usize = 64;

    #[test]
    fn a_profile_counts_by_the_decision_about_its_entry_until_that_changes() {
        let gauges = EntryGauges::new("proxy", Metrics::new("0"));
        let assert_shown = |counts: [(&str, u32); 4]| {
            let text = gauges.metrics.text();
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
}
