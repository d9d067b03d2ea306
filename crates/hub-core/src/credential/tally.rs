//! What was planned last for each key, counted as it changes: metrics show it, and the report on an account is put
//! together from it without another plan.

use std::collections::{BTreeMap, BTreeSet};

use hub_api::names::{AccountKey, Namespace};
use jiff::Timestamp;

use crate::credential::state::State;
use crate::nested;

/// The states of all copies that are counted ([`State::is_counted`]).
#[derive(Debug, Default)]
pub struct Tally {
    by_account: BTreeMap<AccountKey, OfAccount>,
    /// The number of copies by the expiry of their token.
    expiries: BTreeMap<Timestamp, usize>,
    /// The accounts that name no namespaces and have several copies.
    unscoped: BTreeSet<AccountKey>,
}

/// What is counted of the copies with one name in a namespace.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Counted {
    pub(super) states: Box<[(AccountKey, State)]>,
    /// The expiry of the token there.
    pub(super) expires: Option<Timestamp>,
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
    /// Counts what is planned in a namespace now in place of what was; returns what has changed.
    pub(super) fn count(
        &mut self,
        namespace: &Namespace,
        before: &Counted,
        now: &Counted,
    ) -> Vec<Change> {
        let mut changes = Vec::new();
        for (these, those, begins) in [(before, now, false), (now, before, true)] {
            for (account, state) in these.states.iter().filter(|it| !those.states.contains(it)) {
                changes.push(Change { account: account.clone(), state: *state, begins });
            }
            if let Some(expiry) = these.expires {
                let count = self.expiries.entry(expiry).or_default();
                *count = if begins { *count + 1 } else { count.saturating_sub(1) };
                if *count == 0 {
                    self.expiries.remove(&expiry);
                }
            }
        }
        for change in &changes {
            self.count_for_account(namespace, change);
        }
        changes
    }

    fn count_for_account(
        &mut self,
        namespace: &Namespace,
        Change { account, state, begins }: &Change,
    ) {
        let counted = self.by_account.entry(account.clone()).or_default();
        match (*state, *begins) {
            (State::Synced, true) => counted.synced += 1,
            (State::Synced, false) => counted.synced = counted.synced.saturating_sub(1),
            (state, true) => {
                counted.troubles.entry(state).or_default().insert(namespace.clone());
            }
            (state, false) => {
                nested::remove_value(&mut counted.troubles, &state, namespace);
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

    /// Records whether an account names the namespaces that receive its token, or is gone. Returns how many accounts name
    /// none and have several copies.
    pub(super) fn set_scope(&mut self, account: &AccountKey, names_namespaces: bool) -> usize {
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
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tally, and what is planned in each namespace.
    #[derive(Debug, Default)]
    struct Planned(Tally, BTreeMap<Namespace, Counted>);

    impl Planned {
        fn set(
            &mut self,
            namespace: &str,
            states: &[(AccountKey, State)],
            expires: Option<i64>,
        ) -> Vec<Change> {
            let expires = expires.map(|second| Timestamp::from_second(second).unwrap());
            let now = Counted { states: states.into(), expires };
            let before = self.1.entry(namespace.into()).or_default();
            let changes = self.0.count(&namespace.into(), before, &now);
            *before = now;
            changes
        }
    }

    fn account(cluster: &str) -> AccountKey {
        AccountKey { cluster: cluster.into(), account: "app".into() }
    }

    /// The troubles of the account of `c`, with their namespaces.
    fn troubles(tally: &Tally) -> Vec<(State, Vec<&str>)> {
        let troubles = tally.troubles(&account("c")).into_iter().flatten();
        troubles.map(|(state, of)| (*state, of.iter().map(Namespace::as_str).collect())).collect()
    }

    #[test]
    fn a_copy_counts_by_its_state_until_that_changes() {
        let mut planned = Planned::default();
        for namespace in ["reds", "blues"] {
            planned.set(namespace, &[(account("c"), State::NoToken)], None);
        }
        assert_eq!(troubles(&planned.0), [(State::NoToken, vec!["blues", "reds"])]);
        for _ in 0..2 {
            planned.set("blues", &[(account("c"), State::Synced)], None);
            assert_eq!(troubles(&planned.0), [(State::NoToken, vec!["reds"])]);
        }
        for namespace in ["reds", "blues"] {
            planned.set(namespace, &[], None);
        }
        assert!(planned.0.by_account.is_empty(), "nothing is kept: {planned:?}");
    }

    #[test]
    fn a_change_is_what_begins_and_what_ends() {
        let mut planned = Planned::default();
        let mut set = |states: &[(&str, State)]| {
            let states: Vec<_> =
                states.iter().map(|(cluster, state)| (account(cluster), *state)).collect();
            let changes = planned.set("team", &states, None).into_iter();
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
        let mut planned = Planned::default();
        let synced = [(account("c"), State::Synced)];
        for (namespace, states, named, unscoped) in [
            ("blues", &synced[..], false, 0),
            ("reds", &synced, false, 1),
            ("reds", &synced, true, 0),
            ("reds", &synced, false, 1),
            ("blues", &[], false, 0),
            ("reds", &[], false, 0),
        ] {
            planned.set(namespace, states, None);
            assert_eq!(planned.0.set_scope(&account("c"), named), unscoped);
        }
        assert!(planned.0.by_account.is_empty());
    }

    #[test]
    fn the_earliest_expiry_is_that_of_the_copies_that_exist() {
        let mut planned = Planned::default();
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
            planned.set(namespace, states, expires);
            let is = planned.0.next_expiry().map(Timestamp::as_second);
            assert_eq!(is, next, "{namespace} {expires:?}");
        }
    }
}
