//! What was planned last for each key, counted as it changes: metrics show it, and the report on an account is put
//! together from it without another plan.

use std::collections::{BTreeMap, BTreeSet};

use hub_api::names::{AccountKey, Namespace, SecretKey};
use hub_api::text::Text;
use jiff::Timestamp;

use crate::credential::secret_map::SecretMap;
use crate::credential::state::State;
use crate::fleet::Touched;
use crate::nested;

/// The states of all copies that are counted ([`State::is_counted`]).
#[derive(Debug, Default)]
pub struct Tally {
    by_key: SecretMap<Counted>,
    by_account: BTreeMap<AccountKey, OfAccount>,
    /// The number of copies by the expiry of their token.
    expiries: BTreeMap<Timestamp, usize>,
    /// The accounts that name no namespaces and have several copies.
    unscoped: BTreeSet<AccountKey>,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Counted {
    states: Box<[(AccountKey, State)]>,
    expires: Option<Timestamp>,
}

#[derive(Debug, Default)]
struct OfAccount {
    synced: usize,
    troubles: Troubles,
}

/// The namespaces where an account has no copy that is up to date, by the state there.
pub type Troubles = BTreeMap<State, BTreeSet<Namespace>>;

/// A state that begins or ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    pub account: AccountKey,
    pub state: State,
    pub begins: bool,
}

impl Tally {
    /// Records the states of the copies with one name in a namespace; returns what has changed.
    pub fn set(
        &mut self,
        key: &SecretKey,
        states: &[(AccountKey, State)],
        expires: Option<Timestamp>,
    ) -> Vec<Change> {
        let states = states.iter().filter(|(_, state)| state.is_counted()).cloned().collect();
        let now = Counted { states, expires };
        let nothing = Counted::default();
        let before = self.by_key.get(key).unwrap_or(&nothing);
        if *before == now {
            return Vec::new();
        }
        let mut changes = Vec::new();
        for (these, those, begins) in [(before, &now, false), (&now, before, true)] {
            for (account, state) in these.states.iter().filter(|it| !those.states.contains(it)) {
                changes.push(Change { account: account.clone(), state: *state, begins });
            }
        }
        if let Some(expiry) = &before.expires {
            count(&mut self.expiries, expiry, false);
        }
        if let Some(expiry) = &expires {
            count(&mut self.expiries, expiry, true);
        }
        for change in &changes {
            self.count_for_account(key, change);
        }
        let is_kept = now != nothing;
        self.by_key.change(key, |known| {
            *known = now;
            is_kept
        });
        changes
    }

    fn count_for_account(&mut self, key: &SecretKey, Change { account, state, begins }: &Change) {
        let counted = self.by_account.entry(account.clone()).or_default();
        match (*state, *begins) {
            (State::Synced, true) => counted.synced += 1,
            (State::Synced, false) => counted.synced = counted.synced.saturating_sub(1),
            (state, true) => {
                counted.troubles.entry(state).or_default().insert(key.namespace.clone());
            }
            (state, false) => {
                nested::remove_value(&mut counted.troubles, &state, &key.namespace);
            }
        }
        if counted.synced == 0 && counted.troubles.is_empty() {
            self.by_account.remove(account);
        }
    }

    /// Where an account has no copy that is up to date, although it may have to have one.
    #[must_use]
    pub fn troubles(&self, account: &AccountKey) -> Option<&Troubles> {
        self.by_account.get(account).map(|counted| &counted.troubles)
    }

    /// Whether an account has a problem in a namespace that lasts while its copy waits for another plan, as a refusal does.
    /// A token, a profile or a list that was missing at the last plan may have come since.
    #[must_use]
    pub fn has_lasting(&self, account: &AccountKey, namespace: &Namespace) -> bool {
        let is_lasting = |state: &State| !state.is_missing() && *state != State::NoToken;
        let mut troubles = self.troubles(account).into_iter().flatten();
        troubles.any(|(state, of)| is_lasting(state) && of.contains(namespace))
    }

    /// Records whether an account names the namespaces that receive its token, or is gone. Returns how many accounts name
    /// none and have several copies.
    pub fn set_scope(&mut self, account: &AccountKey, names_namespaces: bool) -> usize {
        let has_several = self.by_account.get(account).is_some_and(|counted| counted.synced > 1);
        if !names_namespaces && has_several {
            self.unscoped.insert(account.clone());
        } else {
            self.unscoped.remove(account);
        }
        self.unscoped.len()
    }

    /// The earliest expiry of the token of a copy.
    #[must_use]
    pub fn next_expiry(&self) -> Option<Timestamp> {
        self.expiries.keys().next().copied()
    }

    /// The keys with a state that a change of the fleet affects: a key without a Secret that is no longer wanted is
    /// known only here.
    #[must_use]
    pub fn concerned(&self, touched: &Touched) -> Vec<SecretKey> {
        match touched {
            Touched::Nothing | Touched::Report(_) => Vec::new(),
            Touched::Cluster(cluster) => self.by_key.of_cluster(cluster).collect(),
            Touched::Namespaces(namespaces) => {
                let key = |namespace: &Namespace, name: &Text| SecretKey {
                    namespace: namespace.clone(),
                    name: name.clone(),
                };
                let names = |it| self.by_key.in_namespace(it).map(move |(name, _)| key(it, name));
                namespaces.iter().flat_map(names).collect()
            }
        }
    }
}

/// Counts one more, or one less. What is zero is not kept.
fn count<K: Clone + Ord>(counts: &mut BTreeMap<K, usize>, key: &K, is_new: bool) {
    let count = counts.entry(key.clone()).or_default();
    *count = if is_new { *count + 1 } else { count.saturating_sub(1) };
    if *count == 0 {
        counts.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(namespace: &str) -> SecretKey {
        SecretKey { namespace: namespace.into(), name: "c-app".into() }
    }

    fn account(cluster: &str) -> AccountKey {
        AccountKey { cluster: cluster.into(), account: "app".into() }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    /// The troubles of the account of `c`, with their namespaces.
    fn troubles(tally: &Tally) -> Vec<(State, Vec<&str>)> {
        let troubles = tally.troubles(&account("c")).into_iter().flatten();
        troubles.map(|(state, of)| (*state, of.iter().map(Namespace::as_str).collect())).collect()
    }

    #[test]
    fn a_copy_counts_by_its_state_until_that_changes() {
        let mut tally = Tally::default();
        for namespace in ["reds", "blues"] {
            tally.set(&key(namespace), &[(account("c"), State::NoToken)], None);
        }
        assert_eq!(troubles(&tally), [(State::NoToken, vec!["blues", "reds"])]);
        for _ in 0..2 {
            tally.set(&key("blues"), &[(account("c"), State::Synced)], None);
            assert_eq!(troubles(&tally), [(State::NoToken, vec!["reds"])]);
        }
        for namespace in ["reds", "blues"] {
            tally.set(&key(namespace), &[(account("c"), State::NotGranted)], None);
        }
        assert!(
            tally.by_key.is_empty() && tally.by_account.is_empty(),
            "nothing is kept: {tally:?}"
        );
    }

    #[test]
    fn a_problem_lasts_while_its_copy_waits_unless_something_was_missing() {
        for (state, lasts) in [
            (State::Synced, false),
            (State::NoProfile, false),
            (State::NoToken, false),
            (State::WriteRefused, true),
            (State::NameTaken, true),
        ] {
            let mut tally = Tally::default();
            tally.set(&key("blues"), &[(account("c"), state)], None);
            for (namespace, lasts) in [("blues", lasts), ("reds", false)] {
                let is_lasting = tally.has_lasting(&account("c"), &namespace.into());
                assert_eq!(is_lasting, lasts, "{state:?} in {namespace}");
            }
        }
    }

    #[test]
    fn a_change_is_what_begins_and_what_ends() {
        let mut tally = Tally::default();
        let mut set = |states: &[(&str, State)]| {
            let states: Vec<_> =
                states.iter().map(|(cluster, state)| (account(cluster), *state)).collect();
            let changes = tally.set(&key("team"), &states, None).into_iter();
            changes
                .map(|it| format!("{}{}", if it.begins { "+" } else { "-" }, it.account.cluster))
                .collect()
        };
        let expected: [(&[_], Vec<String>); 5] = [
            (&[("c", State::Synced), ("d", State::NameTaken)], vec!["+c".into(), "+d".into()]),
            (&[("c", State::Synced), ("d", State::NameTaken)], vec![]),
            (&[("c", State::Synced), ("e", State::NameTaken)], vec!["-d".into(), "+e".into()]),
            (&[("c", State::NoToken)], vec!["-c".into(), "-e".into(), "+c".into()]),
            (&[], vec!["-c".into()]),
        ];
        for (states, changed) in expected {
            let is: Vec<String> = set(states);
            assert_eq!(is, changed, "{states:?}");
        }
    }

    #[test]
    fn a_token_counts_as_unscoped_while_several_namespaces_receive_it_and_its_account_names_none() {
        let mut tally = Tally::default();
        let synced = [(account("c"), State::Synced)];
        for (namespace, states, named, unscoped) in [
            ("blues", &synced[..], false, 0),
            ("reds", &synced, false, 1),
            ("reds", &synced, true, 0),
            ("reds", &synced, false, 1),
            ("blues", &[], false, 0),
            ("reds", &[], false, 0),
        ] {
            tally.set(&key(namespace), states, None);
            assert_eq!(tally.set_scope(&account("c"), named), unscoped);
        }
        assert!(tally.by_account.is_empty());
    }

    #[test]
    fn the_earliest_expiry_is_that_of_the_copies_that_exist() {
        let mut tally = Tally::default();
        let synced = [(account("c"), State::Synced)];
        for (namespace, states, expires, next) in [
            ("blues", &synced[..], Some(100), Some(100)),
            ("reds", &synced, Some(100), Some(100)),
            ("greens", &synced, Some(200), Some(100)),
            ("blues", &synced, Some(300), Some(100)),
            ("reds", &[], None, Some(200)),
            ("greens", &synced, Some(400), Some(300)),
            ("greens", &[], None, Some(300)),
            ("blues", &[], None, None),
        ] {
            tally.set(&key(namespace), states, expires.map(at));
            assert_eq!(tally.next_expiry(), next.map(at), "{namespace} {expires:?}");
        }
    }

    #[test]
    fn a_change_of_the_fleet_concerns_the_places_that_have_a_state() {
        let mut tally = Tally::default();
        tally.set(&key("blues"), &[(account("c"), State::NoProfile)], None);
        let of_d = SecretKey { namespace: "reds".into(), name: "d-app".into() };
        tally.set(&of_d, &[(account("d"), State::NoProfile)], None);
        let namespaces = |name: &str| Touched::Namespaces([name.into()].into());
        for (touched, concerned) in [
            (Touched::Nothing, None),
            (Touched::Cluster("c".into()), Some(key("blues"))),
            (Touched::Cluster("other".into()), None),
            (namespaces("reds"), Some(of_d)),
            (namespaces("other"), None),
        ] {
            assert_eq!(tally.concerned(&touched), concerned.into_iter().collect::<Vec<_>>());
        }
    }
}
