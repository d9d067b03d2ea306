//! Which clusters have a certificate authority in common.
//!
//! The proxy server lets every agent register for every host. What keeps a request for one cluster from reaching the API
//! server of another is its certificate, which the CA of the cluster has to verify. Where two clusters have a CA in
//! common, either can receive the token of the user server's account on the other.

use std::collections::{BTreeSet, HashMap};

use hub_api::names::ClusterName;

use crate::finding::{Finding, Reason};

/// The digest of a CA's public key, by which it verifies certificates.
pub type KeyDigest = [u8; 32];

/// The CAs of all clusters.
#[derive(Debug, Default)]
pub struct Authorities {
    keys: HashMap<ClusterName, BTreeSet<KeyDigest>>,
    clusters: HashMap<KeyDigest, BTreeSet<ClusterName>>,
}

impl Authorities {
    /// Records the CAs of a cluster, none if it is gone. Returns the clusters whose [finding](Self::finding) may have
    /// changed.
    pub fn set(
        &mut self,
        cluster: &ClusterName,
        keys: BTreeSet<KeyDigest>,
    ) -> BTreeSet<ClusterName> {
        let before = self.keys.remove(cluster).unwrap_or_default();
        let mut changed = BTreeSet::from([cluster.clone()]);
        for key in before.symmetric_difference(&keys) {
            let clusters = self.clusters.entry(*key).or_default();
            let named = named_in_findings(clusters);
            if keys.contains(key) {
                clusters.insert(cluster.clone());
            } else {
                clusters.remove(cluster);
            }
            if named_in_findings(clusters) != named {
                changed.extend(clusters.iter().cloned());
            }
            if clusters.is_empty() {
                self.clusters.remove(key);
            }
        }
        if !keys.is_empty() {
            self.keys.insert(cluster.clone(), keys);
        }
        changed
    }

    /// Another cluster that has a CA of this one, if there is any.
    #[must_use]
    pub fn shared_with(&self, cluster: &ClusterName) -> Option<&ClusterName> {
        let keys = self.keys.get(cluster)?.iter();
        keys.filter_map(|key| self.clusters.get(key)?.iter().find(|other| *other != cluster)).min()
    }

    /// The finding on a cluster that has a CA in common with another one.
    #[must_use]
    pub fn finding(&self, cluster: &ClusterName) -> Option<Finding> {
        let other = self.shared_with(cluster)?;
        let message = format!(
            "its account for the user server has a CA that cluster {other} has as well: either cluster can receive requests for \
             the other one, with the token of that account"
        );
        Some(Finding::new(Reason::SharedAuthority, message))
    }
}

/// The clusters with a CA that the findings of the others name.
fn named_in_findings(clusters: &BTreeSet<ClusterName>) -> Vec<ClusterName> {
    clusters.iter().take(2).cloned().collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn clusters_with_a_ca_in_common_name_each_other_until_they_have_none() {
        let mut authorities = Authorities::default();
        let key = |number: u8| [number; 32];
        let (a, b) = ("a".into(), "b".into());
        authorities.set(&a, [key(1), key(2)].into());
        assert_eq!(authorities.finding(&a), None);
        assert_eq!(authorities.set(&b, [key(2), key(3)].into()), [a.clone(), b.clone()].into());
        assert_eq!(authorities.shared_with(&a), Some(&b));
        let finding = authorities.finding(&b).unwrap();
        assert!(
            finding.reason == Reason::SharedAuthority && finding.message.contains("cluster a ")
        );
        assert_eq!(authorities.set(&b, [key(3)].into()), [a.clone(), b.clone()].into());
        assert!(authorities.finding(&a).is_none() && authorities.finding(&b).is_none());
    }

    proptest! {
        #[test]
        fn every_finding_that_changes_is_announced(
            changes in prop::collection::vec(("[a-e]", prop::collection::btree_set(0_u8..4, 0..3)), 0..30),
        ) {
            let mut authorities = Authorities::default();
            let all = ["a", "b", "c", "d", "e"].map(ClusterName::from);
            for (cluster, keys) in changes {
                let before = all.clone().map(|it| authorities.finding(&it));
                let keys = keys.into_iter().map(|key| [key; 32]).collect();
                let changed = authorities.set(&cluster.as_str().into(), keys);
                for (it, before) in all.iter().zip(before) {
                    prop_assert!(changed.contains(it) || authorities.finding(it) == before, "{it}");
                }
            }
        }
    }
}
