//! Counts copies and the reasons why others are missing, and finds the earliest expiry.

use std::collections::{BTreeMap, HashSet};

use hub_api::names::{AccountKey, Namespace, SecretKey};
use hub_api::text::Text;
use hub_core::credential::secret_map::SecretMap;
use hub_core::credential::state::State;
use hub_core::fleet::Touched;
use hub_runtime::observe::metrics::Metrics;
use jiff::Timestamp;
use parking_lot::Mutex;

pub(crate) struct CopyGauges {
    metrics: Metrics,
    counted: Mutex<Counted>,
}

#[derive(Default)]
struct Counted {
    by_key: SecretMap<CountedCopy>,
    /// The number of copies by the expiry of their token.
    expiries: BTreeMap<Timestamp, usize>,
    /// The number of synced copies of each account.
    copies: BTreeMap<AccountKey, usize>,
    /// The accounts that name no namespaces and have several copies.
    unscoped: HashSet<AccountKey>,
}

#[derive(Default, PartialEq, Eq)]
struct CountedCopy {
    states: Box<[(AccountKey, State)]>,
    expires: Option<Timestamp>,
}

impl CopyGauges {
    pub(crate) fn new(metrics: Metrics) -> Self {
        metrics.declare_credentials(State::counted().map(State::as_str));
        Self { metrics, counted: Mutex::default() }
    }

    /// The keys with a state that a change of the fleet affects: a key without a Secret that is no longer wanted is
    /// known only here.
    pub(crate) fn concerned(&self, touched: &Touched) -> Vec<SecretKey> {
        let counted = self.counted.lock();
        match touched {
            Touched::Nothing => Vec::new(),
            Touched::Cluster(cluster) => counted.by_key.of_cluster(cluster).collect(),
            Touched::Namespaces(namespaces) => {
                let key = |namespace: &Namespace, name: &Text| SecretKey {
                    namespace: namespace.clone(),
                    name: name.clone(),
                };
                let names = |it| counted.by_key.in_namespace(it).map(move |(name, _)| key(it, name));
                namespaces.iter().flat_map(names).collect()
            }
        }
    }

    /// Records whether an account names the namespaces that receive its token, or is gone.
    pub(crate) fn set_scope(&self, account: &AccountKey, names_namespaces: bool) {
        let mut counted = self.counted.lock();
        let is_unscoped = !names_namespaces && counted.copies.get(account).is_some_and(|copies| *copies > 1);
        if is_unscoped {
            counted.unscoped.insert(account.clone());
        } else {
            counted.unscoped.remove(account);
        }
        self.metrics.credentials_unscoped(counted.unscoped.len());
    }

    /// Records the states of the copies with one name in a namespace; returns the accounts whose state has changed.
    pub(crate) fn set(
        &self,
        key: &SecretKey,
        states: &[(AccountKey, State)],
        expires: Option<Timestamp>,
    ) -> Vec<AccountKey> {
        let states = states.iter().filter(|(_, state)| state.is_counted()).cloned().collect();
        let now = CountedCopy { states, expires };
        let mut counted = self.counted.lock();
        let nothing = CountedCopy::default();
        if *counted.by_key.get(key).unwrap_or(&nothing) == now {
            return Vec::new();
        }
        let before = counted.by_key.remove(key).unwrap_or_default();
        for (copy, is_new) in [(&before, false), (&now, true)] {
            for (account, state) in &copy.states {
                self.metrics.credential(state.as_str(), if is_new { 1 } else { -1 });
                if *state == State::Synced {
                    count(&mut counted.copies, account, is_new);
                }
            }
            if let Some(expires) = &copy.expires {
                count(&mut counted.expiries, expires, is_new);
            }
        }
        self.metrics.next_token_expiry(counted.expiries.keys().next().copied());
        let differ = |one: &CountedCopy, other: &CountedCopy| {
            let new = one.states.iter().filter(|state| !other.states.contains(state));
            new.map(|(account, _)| account.clone()).collect::<Vec<_>>()
        };
        let mut changed = differ(&before, &now);
        changed.extend(differ(&now, &before));
        let is_kept = now != nothing;
        counted.by_key.change(key, |known| {
            *known = now;
            is_kept
        });
        changed
    }
}

/// Counts one copy more, or one less. What has no copies is not kept.
fn count<K: Clone + Ord>(copies: &mut BTreeMap<K, usize>, key: &K, is_new: bool) {
    let count = copies.entry(key.clone()).or_default();
    *count = if is_new { *count + 1 } else { count.saturating_sub(1) };
    if *count == 0 {
        copies.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gauges() -> CopyGauges {
        CopyGauges::new(Metrics::new("0"))
    }

    fn key(namespace: &str) -> SecretKey {
        SecretKey { namespace: namespace.into(), name: "c-app".into() }
    }

    fn account(cluster: &str) -> AccountKey {
        AccountKey { cluster: cluster.into(), account: "app".into() }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn assert_shown(gauges: &CopyGauges, line: &str) {
        let text = gauges.metrics.text();
        assert!(text.lines().any(|it| it.ends_with(line)), "{line} is missing in\n{text}");
    }

    #[test]
    fn a_copy_counts_by_its_state_until_that_changes() {
        let gauges = gauges();
        for namespace in ["blues", "reds"] {
            gauges.set(&key(namespace), &[(account("c"), State::NoToken)], None);
        }
        assert_shown(&gauges, "credentials{state=\"no_token\"} 2");
        for _ in 0..2 {
            gauges.set(&key("blues"), &[(account("c"), State::Synced)], None);
            assert_shown(&gauges, "credentials{state=\"no_token\"} 1");
            assert_shown(&gauges, "credentials{state=\"synced\"} 1");
        }
        gauges.set(&key("blues"), &[], None);
        assert_shown(&gauges, "credentials{state=\"synced\"} 0");
        assert_eq!(gauges.counted.lock().by_key.len(), 1, "nothing is kept of a copy without a state");
    }

    #[test]
    fn a_change_of_state_concerns_the_accounts_that_have_it_before_or_after() {
        let (gauges, key) = (gauges(), key("team"));
        let set = |states: &[(&str, State)]| {
            let states: Vec<_> = states.iter().map(|(cluster, state)| (account(cluster), *state)).collect();
            let changed = gauges.set(&key, &states, None);
            changed.iter().map(|account| account.cluster.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(set(&[("c", State::Synced), ("d", State::NameTaken)]), ["c", "d"]);
        assert_eq!(set(&[("c", State::Synced), ("d", State::NameTaken)]), [""; 0]);
        assert_eq!(set(&[("c", State::Synced), ("e", State::NameTaken)]), ["d", "e"]);
        assert_eq!(set(&[("c", State::NoToken)]), ["c", "e", "c"]);
        assert_eq!(set(&[]), ["c"]);
    }

    #[test]
    fn a_token_counts_as_unscoped_while_several_namespaces_receive_it_and_its_account_names_none() {
        let gauges = gauges();
        let synced = [(account("c"), State::Synced)];
        for (namespace, states, named, unscoped) in [
            ("blues", &synced[..], false, 0),
            ("reds", &synced, false, 1),
            ("reds", &synced, true, 0),
            ("reds", &synced, false, 1),
            ("blues", &[], false, 0),
            ("reds", &[], false, 0),
        ] {
            gauges.set(&key(namespace), states, None);
            gauges.set_scope(&account("c"), named);
            assert_shown(&gauges, &format!("credentials_unscoped {unscoped}"));
        }
        assert!(gauges.counted.lock().copies.is_empty());
    }

    #[test]
    fn the_earliest_expiry_is_that_of_the_copies_that_exist() {
        let gauges = gauges();
        let synced = [(account("c"), State::Synced)];
        gauges.set(&key("blues"), &synced, Some(at(100)));
        gauges.set(&key("reds"), &synced, Some(at(100)));
        gauges.set(&key("greens"), &synced, Some(at(200)));
        let expiries = || {
            let counted = gauges.counted.lock();
            counted.expiries.iter().map(|(at, copies)| (at.as_second(), *copies)).collect::<Vec<_>>()
        };
        assert_eq!(expiries(), [(100, 2), (200, 1)]);
        gauges.set(&key("blues"), &synced, Some(at(300)));
        assert_eq!(expiries(), [(100, 1), (200, 1), (300, 1)]);
        gauges.set(&key("reds"), &[], None);
        assert_eq!(expiries(), [(200, 1), (300, 1)]);
        gauges.set(&key("greens"), &synced, Some(at(400)));
        assert_eq!(expiries(), [(300, 1), (400, 1)]);
    }

    #[test]
    fn a_change_of_the_fleet_concerns_the_places_that_have_a_state() {
        let gauges = gauges();
        gauges.set(&key("blues"), &[(account("c"), State::NoProfile)], None);
        let of_d = SecretKey { namespace: "reds".into(), name: "d-app".into() };
        gauges.set(&of_d, &[(account("d"), State::NoProfile)], None);
        let namespaces = |name: &str| Touched::Namespaces([name.into()].into());
        for (touched, concerned) in [
            (Touched::Nothing, None),
            (Touched::Cluster("c".into()), Some(key("blues"))),
            (Touched::Cluster("other".into()), None),
            (namespaces("reds"), Some(of_d)),
            (namespaces("other"), None),
        ] {
            assert_eq!(gauges.concerned(&touched), concerned.into_iter().collect::<Vec<_>>());
        }
    }
}
