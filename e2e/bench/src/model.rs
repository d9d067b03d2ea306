//! What the hub should show, as a function of the fleet.

use std::collections::{BTreeMap, BTreeSet};

use clap::ValueEnum;

use crate::view::{Shown, ShownProfile};

/// A part of the controllers' work that can be absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// Access providers in profiles.
    Access,
    /// Copies of tokens.
    Credentials,
}

/// A cluster in a set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The name of its set.
    pub set: String,
    /// The status of its condition.
    pub available: &'static str,
    /// Its version of Kubernetes.
    pub version: &'static str,
    /// The hash of the token of each account.
    pub tokens: BTreeMap<String, u64>,
}

/// The inputs of the controllers that the scenarios change.
#[derive(Clone, Debug, Default)]
pub struct Model {
    /// The clusters by name.
    pub clusters: BTreeMap<String, Member>,
    /// The bound set of each namespace.
    pub bindings: BTreeMap<String, String>,
    /// The namespace of each ClusterAccess, by its name, which is also that of its account.
    pub consumers: BTreeMap<String, String>,
    /// The trust anchors that profiles publish, each as a hash.
    pub anchors: BTreeSet<u64>,
    /// What the controllers do not do.
    pub without: Vec<Part>,
}

impl Model {
    /// The first difference between the hub and what it should show.
    pub fn difference(&self, shown: &Shown) -> Option<String> {
        let (mut profiles, mut copies) = (0, 0);
        for (namespace, set) in &self.bindings {
            for (name, member) in self.clusters.iter().filter(|(_, member)| member.set == *set) {
                profiles += 1;
                let Some(profile) = shown.profiles.get(&(namespace.clone(), name.clone())) else {
                    let (has, of) = (shown.profiles.len(), self.profiles());
                    return Some(format!(
                        "profile {namespace}/{name} is missing; {has} of {of} exist"
                    ));
                };
                if let Some(wrong) = self.wrong_in(profile, member) {
                    return Some(format!("profile {namespace}/{name} has {wrong}"));
                }
                if self.without.contains(&Part::Credentials) {
                    continue;
                }
                for (account, token) in &member.tokens {
                    copies += 1;
                    let copy = format!("{name}-{account}");
                    match shown.copies.get(&(namespace.clone(), copy.clone())) {
                        None => return Some(format!("copy {namespace}/{copy} is missing")),
                        Some(held) if held != token => {
                            return Some(format!("copy {namespace}/{copy} has an earlier token"));
                        }
                        Some(_) => {}
                    }
                }
            }
        }
        for (name, namespace) in &self.consumers {
            copies += self.clusters.len();
            if !shown.ready.contains(&(namespace.clone(), name.clone())) {
                return Some(format!("the ClusterAccess {namespace}/{name} is not ready"));
            }
        }
        let has_no_more = |shown, wanted, what| {
            (shown != wanted).then(|| format!("{shown} {what} exist instead of {wanted}"))
        };
        has_no_more(shown.profiles.len(), profiles, "profiles").or_else(|| {
            let is_checked = !self.without.contains(&Part::Credentials);
            is_checked.then(|| has_no_more(shown.copies.len(), copies, "copies")).flatten()
        })
    }

    /// The number of profiles.
    fn profiles(&self) -> usize {
        let in_set =
            |set: &String| self.clusters.values().filter(|member| member.set == *set).count();
        self.bindings.values().map(in_set).sum()
    }

    fn wrong_in(&self, profile: &ShownProfile, member: &Member) -> Option<String> {
        let has_access = !self.without.contains(&Part::Access);
        if profile.healthy != member.available {
            Some(format!("ControlPlaneHealthy={:?}, not {:?}", profile.healthy, member.available))
        } else if profile.version != member.version {
            Some(format!("the version {:?}, not {:?}", profile.version, member.version))
        } else if profile.set != member.set {
            Some(format!("the set {:?}, not {:?}", profile.set, member.set))
        } else if has_access && profile.anchors != self.anchors {
            Some(format!(
                "{} trust anchors, or others than the {}",
                profile.anchors.len(),
                self.anchors.len()
            ))
        } else {
            None
        }
    }
}
