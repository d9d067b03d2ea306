//! Whether the namespace is granted the cluster: binding, set and selector.

use std::collections::BTreeMap;

use hub_api::labels;
use hub_api::names::{ClusterName, ClusterSetName, Namespace};

use super::observed::Observed;
use super::{CheckResult, Code, Findings, Object, Pair, Status, Step};
use crate::fleet::{BoundSource, ObservedBinding, ObservedCluster};
use crate::grant::{self, Doubt, Grant, Refusal, Verdict};
use crate::selector::ClusterSelector;

const BINDING: &str = "ManagedClusterSetBinding";
const SET: &str = "ManagedClusterSet";
const CLUSTER: &str = "ManagedCluster";

/// The steps about the bindings of a namespace, for every cluster.
pub(super) fn namespace_steps(
    hub: &Observed,
    namespace: &Namespace,
    is_asked: bool,
    findings: &mut Findings,
) {
    if !hub.bindings_of.has(namespace) {
        findings.add(bindings_unread(namespace));
        return;
    }
    let bindings: Vec<_> = hub.fleet.bindings_in(namespace).collect();
    if bindings.is_empty() {
        // A namespace with profiles only is explained with its profiles.
        if is_asked {
            findings.add(no_binding(namespace, None));
        }
        return;
    }
    for (name, binding) in &bindings {
        let verdict = match grant::refusal(&hub.fleet, name, binding) {
            Some(Refusal::NoSuchSet) if !hub.knows_sets => continue,
            Some(refusal) => Verdict::Refused(refusal),
            None if binding.terms.is_err() => Verdict::Doubtful(Doubt::BindingUnreadable),
            None if hub.fleet.set(name).is_some_and(|set| set.selector.is_err()) => {
                Verdict::Doubtful(Doubt::SelectorUnusable)
            }
            None => continue,
        };
        let finding = judged(hub, namespace, name, binding, None, &verdict);
        findings.add(finding.in_namespace(namespace));
    }
    let may_see = |cluster: &ClusterName| grant::is_possible(&hub.fleet, namespace, cluster);
    let sees_none = hub.knows_clusters
        && hub.knows_sets
        && grant::is_bound(&hub.fleet, namespace)
        && !hub.fleet.cluster_names().any(may_see);
    if sees_none {
        let sets: Vec<_> = bindings.iter().map(|(name, _)| name.as_str()).collect();
        let sets = Object::cluster_scoped(SET, sets.join(","));
        let selectors =
            bindings.iter().filter_map(|(name, _)| hub.fleet.set(name)?.selector.as_ref().ok());
        let selectors: Vec<_> = selectors.map(ToString::to_string).collect();
        findings.add(
            CheckResult::new(Step::ClusterSet, Code::NothingSelected, sets)
                .in_namespace(namespace)
                .field("spec.clusterSelector", selectors.join("; "))
                .fix("kubectl get managedclusters --show-labels"),
        );
    }
}

impl Pair<'_> {
    /// Whether the cluster is granted to the namespace, as far as is known. Returns whether it may be.
    pub(super) fn grant_steps(&self, findings: &mut Findings) -> bool {
        let (hub, key) = (self.hub, self.key);
        if !hub.bindings_of.has(&key.namespace) {
            // For a namespace as a whole, this has already been reported.
            if self.is_asked {
                findings.add(bindings_unread(&key.namespace).about(key));
            }
            return true;
        }
        if hub.fleet.bindings_in(&key.namespace).next().is_none() {
            if self.is_asked {
                let cluster = hub.fleet.cluster(&key.cluster);
                findings.add(no_binding(&key.namespace, cluster).about(key));
                if hub.knows_clusters && cluster.is_none() {
                    findings.add(no_cluster(key.cluster.as_str()).about(key));
                }
            }
            return false;
        }
        if !hub.knows_clusters || !hub.knows_sets {
            return self.own_terms(findings);
        }
        let granted = grant::decide(&hub.fleet, key);
        let verdicts: Vec<_> = grant::verdicts(&hub.fleet, key).collect();
        if granted == Grant::Granted {
            for (name, _) in verdicts.iter().filter(|(_, verdict)| *verdict == Verdict::Granted) {
                self.granted_by(name, findings);
            }
            return true;
        }
        if !self.is_asked {
            // Reported once for the binding, for all clusters.
            if granted == Grant::Unknown {
                findings.worst = findings.worst.max(Status::Problem);
            }
            return granted != Grant::Refused;
        }
        if hub.fleet.cluster(&key.cluster).is_none() {
            findings.add(no_cluster(key.cluster.as_str()).about(key));
            return false;
        }
        // `verdicts` has one for each binding, in this order.
        for ((name, binding), (_, verdict)) in hub.fleet.bindings_in(&key.namespace).zip(&verdicts)
        {
            // If the grant is unknown, only unknown bindings count.
            if granted != Grant::Unknown || matches!(verdict, Verdict::Doubtful(_)) {
                let cluster = Some(&key.cluster);
                findings
                    .add(judged(hub, &key.namespace, name, binding, cluster, verdict).about(key));
            }
        }
        granted != Grant::Refused
    }

    /// The bindings' own state, if clusters or sets cannot be read.
    fn own_terms(&self, findings: &mut Findings) -> bool {
        let (hub, key) = (self.hub, self.key);
        let mut may_grant = false;
        for (name, binding) in hub.fleet.bindings_in(&key.namespace) {
            match grant::refusal(&hub.fleet, name, binding) {
                Some(refusal) if refusal != Refusal::NoSuchSet || hub.knows_sets => {
                    let verdict = Verdict::Refused(refusal);
                    if self.is_asked {
                        let finding = judged(hub, &key.namespace, name, binding, None, &verdict);
                        findings.add(finding.about(key));
                    }
                }
                _ => may_grant = true,
            }
        }
        if may_grant && self.is_asked {
            let kind = if hub.knows_sets { CLUSTER } else { SET };
            let name = if hub.knows_sets { key.cluster.as_str() } else { "*" };
            let object = Object::cluster_scoped(kind, name);
            findings.add(self.finding(Step::ClusterSet, Code::NotReadable, object));
        } else if may_grant {
            findings.worst = findings.worst.max(Status::Unknown);
        }
        may_grant
    }

    fn granted_by(&self, name: &ClusterSetName, findings: &mut Findings) {
        let (hub, key) = (self.hub, self.key);
        let step = |step, object| self.finding(step, Code::Grant(Verdict::Granted), object);
        let (field, value) = match hub.fleet.bound_source() {
            BoundSource::Status => ("status.conditions[Bound]", "True"),
            BoundSource::Computed => ("spec.clusterSet", name.as_str()),
        };
        findings.add(
            step(Step::Binding, Object::namespaced(BINDING, &key.namespace, name))
                .field(field, value)
                .message("the binding is in force"),
        );
        let selector = hub.fleet.set(name).and_then(|set| set.selector.as_ref().ok());
        let cluster = hub.fleet.cluster(&key.cluster);
        let value =
            selector.zip(cluster).map(|(selector, cluster)| compared(selector, name, cluster));
        findings.add(
            step(Step::ClusterSet, Object::cluster_scoped(SET, name))
                .field("spec.clusterSelector", value.unwrap_or_default())
                .message("the set selects the cluster"),
        );
    }
}

fn bindings_unread(namespace: &Namespace) -> CheckResult {
    CheckResult::new(Step::Binding, Code::NotReadable, Object::namespaced(BINDING, namespace, "*"))
        .in_namespace(namespace)
        .fix_by_can_list("managedclustersetbindings")
}

fn no_binding(namespace: &Namespace, cluster: Option<&ObservedCluster>) -> CheckResult {
    let set = cluster.and_then(ObservedCluster::exclusive_set).unwrap_or("SET");
    CheckResult::new(Step::Binding, Code::NoBinding, Object::namespaced(BINDING, namespace, "*"))
        .in_namespace(namespace)
        .field("metadata.name", "not found")
        .fix(bind(namespace, set))
}

fn no_cluster(cluster: &str) -> CheckResult {
    let code = Code::Grant(Verdict::Refused(Refusal::NoSuchCluster));
    CheckResult::new(Step::ClusterSet, code, Object::cluster_scoped(CLUSTER, cluster))
        .field("metadata.name", "not found")
        .fix("kubectl get managedclusters")
}

/// The command that binds a set in a namespace.
fn bind(namespace: &Namespace, set: &str) -> String {
    format!("clusteradm clusterset bind {set} --namespace {namespace}")
}

/// The selector of a set, and the labels of a cluster that it selects by.
fn compared(selector: &ClusterSelector, set: &ClusterSetName, cluster: &ObservedCluster) -> String {
    if selector.keys().next().is_none() {
        return selector.to_string();
    }
    let labels: BTreeMap<&str, &str> =
        selector.keys().filter_map(|key| Some((key, cluster.labels.get(key)?.as_str()))).collect();
    let shown: Vec<_> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let shown = if shown.is_empty() { "none of these labels".to_owned() } else { shown.join(",") };
    let wanted = match selector {
        ClusterSelector::Exclusive => format!("{}={set}", labels::EXCLUSIVE_CLUSTER_SET),
        other => other.to_string(),
    };
    format!("{wanted}; the cluster has {shown}")
}

/// The fact that a binding's refusal depends on.
fn judged(
    hub: &Observed,
    namespace: &Namespace,
    name: &ClusterSetName,
    binding: &ObservedBinding,
    cluster: Option<&ClusterName>,
    verdict: &Verdict,
) -> CheckResult {
    let step = |step, object| CheckResult::new(step, Code::Grant(verdict.clone()), object);
    let of_binding = || step(Step::Binding, Object::namespaced(BINDING, namespace, name));
    let of_set = || step(Step::ClusterSet, Object::cluster_scoped(SET, name));
    let of_cluster = || {
        let name = cluster.map(ClusterName::as_str).unwrap_or_default();
        step(Step::ClusterSet, Object::cluster_scoped(CLUSTER, name))
    };
    match verdict {
        Verdict::Granted => of_binding(),
        Verdict::Refused(Refusal::BindingNameMismatch) => {
            let named = binding
                .terms
                .as_ref()
                .map(|terms| terms.cluster_set.to_string())
                .unwrap_or_default();
            let fix = format!(
                "kubectl delete managedclustersetbinding {name} --namespace {namespace}; {}",
                bind(namespace, &named)
            );
            of_binding().field("spec.clusterSet", named).fix(fix)
        }
        Verdict::Refused(Refusal::NotBound) => of_binding()
            .field("status.conditions[Bound]", "not True")
            .message(
                "the binding is not Bound: OCM's registration controller writes that condition",
            )
            .fix_by_get(),
        Verdict::Refused(Refusal::NoSuchSet) => {
            of_set().field("metadata.name", "not found").fix("kubectl get managedclustersets")
        }
        Verdict::Refused(Refusal::NotSelected) => {
            let selector = hub.fleet.set(name).and_then(|set| set.selector.as_ref().ok());
            let observed = cluster.and_then(|cluster| Some((cluster, hub.fleet.cluster(cluster)?)));
            let Some((selector, (cluster, observed))) = selector.zip(observed) else {
                return of_set().fix_by_get();
            };
            let arguments = selector.labels_to_join(name.as_str(), &observed.labels);
            let finding =
                of_set().field("spec.clusterSelector", compared(selector, name, observed));
            if arguments.is_empty() {
                return finding.fix_by_get();
            }
            finding.fix(format!(
                "kubectl label --overwrite managedcluster {cluster} {}",
                arguments.join(" ")
            ))
        }
        Verdict::Refused(Refusal::NoSuchCluster) => {
            no_cluster(cluster.map(ClusterName::as_str).unwrap_or_default())
        }
        Verdict::Refused(Refusal::ClusterDeleting) => {
            of_cluster().field("metadata.deletionTimestamp", "set").fix_by_get()
        }
        Verdict::Refused(Refusal::ClusterNotAccepted) => {
            let name = cluster.map(ClusterName::as_str).unwrap_or_default();
            let accept = format!("clusteradm accept --clusters {name}");
            of_cluster().field("spec.hubAcceptsClient", "false").fix(accept)
        }
        Verdict::Doubtful(Doubt::ClusterUnreadable) => {
            of_cluster().field("spec.hubAcceptsClient", "not a boolean").fix_by_get()
        }
        Verdict::Doubtful(Doubt::BindingUnreadable) => {
            let error = binding.terms.as_ref().err().cloned().unwrap_or_default();
            of_binding().field("spec", error).fix_by_get()
        }
        Verdict::Doubtful(Doubt::SelectorUnusable) => {
            let error = hub.fleet.set(name).and_then(|set| set.selector.as_ref().err());
            let error = error.map(|error| error.message.clone());
            of_set().field("spec.clusterSelector", error.unwrap_or_default()).fix_by_get()
        }
    }
}
