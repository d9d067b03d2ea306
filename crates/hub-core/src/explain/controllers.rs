//! Whether the controllers work, and whether OCM's own controllers write the same objects.

use std::collections::BTreeSet;

use super::observed::{Leading, Observed};
use super::{Code, Finding, Findings, Mark, Object, Step};

/// The controller that writes ClusterProfiles.
pub(super) const PROJECTOR: &str = "profile-projector";
/// The controller that writes access providers.
pub(super) const PROVISIONER: &str = "access-provisioner";
/// The controller that copies tokens.
pub(super) const SYNCER: &str = "credential-syncer";

/// The object with OCM's feature gates.
const CLUSTER_MANAGER: &str = "cluster-manager";
/// The gate of OCM's own projector.
const OCM_GATE: &str = "ClusterProfile";

/// The controllers that have a pending write.
pub(super) fn needed(findings: &[Finding]) -> BTreeSet<&'static str> {
    let needed = findings.iter().filter_map(|finding| match finding.code {
        Code::NoProfile | Code::ProfileOutdated => Some(PROJECTOR),
        Code::AccessOutdated => Some(PROVISIONER),
        Code::CredentialOutdated => Some(SYNCER),
        _ => None,
    });
    needed.collect()
}

/// The steps about the hub as a whole. A controller without a Lease is a problem if it has a pending write.
pub(super) fn steps(hub: &Observed, needed: &BTreeSet<&'static str>, findings: &mut Findings) {
    for controller in [PROJECTOR, PROVISIONER, SYNCER] {
        let name = format!("hub-addons-{controller}");
        let object = |namespace: Option<&str>| Object {
            kind: "Lease",
            namespace: namespace.map(str::to_owned),
            name: name.clone(),
        };
        let step = |mark, code, namespace| Finding::new(Step::Controllers, mark, code, object(namespace));
        match hub.leading(controller) {
            Leading::Unknown => findings.add(
                step(Mark::Unknown, Code::NotReadable, None)
                    .field("spec.holderIdentity", "")
                    .fix(format!("kubectl auth can-i list leases/{name} --all-namespaces")),
            ),
            Leading::NoLease if needed.contains(controller) => findings.add(
                step(Mark::Problem, Code::ControllerNotFound, None).field("metadata.name", "not found").fix(
                    "kubectl get deployments --all-namespaces --selector app.kubernetes.io/name=hub-addons",
                ),
            ),
            Leading::NoLease => findings
                .ok(|| step(Mark::Ok, Code::ControllerNotFound, None).field("metadata.name", "not found")),
            Leading::Nobody(lease) | Leading::Expired(lease) => {
                let value = match (&lease.holder, lease.renewed) {
                    (Some(holder), Some(time)) => format!("{holder}, renewed {time:.0}"),
                    (Some(holder), None) => format!("{holder}, never renewed"),
                    (None, _) => "none".to_owned(),
                };
                let fix = format!(
                    "kubectl get pods --namespace {} --selector app.kubernetes.io/name=hub-addons",
                    lease.namespace
                );
                findings.add(
                    step(Mark::Problem, Code::ControllerNotLeading, Some(&lease.namespace))
                        .field("spec.holderIdentity", value)
                        .fix(fix),
                );
            }
            Leading::Leads(lease) => findings.ok(|| {
                step(Mark::Ok, Code::ControllerLeads, Some(&lease.namespace))
                    .field("spec.holderIdentity", lease.holder.clone().unwrap_or_default())
            }),
        }
    }
    let projects = !matches!(hub.leading(PROJECTOR), Leading::Unknown | Leading::NoLease);
    let is_enabled = hub.ocm_gates.as_ref().is_some_and(|gates| gates.iter().any(|gate| gate == OCM_GATE));
    if projects && is_enabled {
        findings.add(
            Finding::new(
                Step::Controllers,
                Mark::Problem,
                Code::OcmGateEnabled,
                Object::cluster_scoped("ClusterManager", CLUSTER_MANAGER),
            )
            .field("spec.registrationConfiguration.featureGates", format!("{OCM_GATE}: Enable"))
            .fix(format!("kubectl edit clustermanager {CLUSTER_MANAGER}")),
        );
    }
}
