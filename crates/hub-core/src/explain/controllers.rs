//! Whether the controllers work, and whether OCM's own controllers write the same objects.

use std::collections::BTreeSet;

use super::observed::{Leading, OCM_GATES, Observed, OcmGate, PROJECTOR, PROVISIONER, SYNCER};
use super::{Code, Finding, Findings, Mark, Object, Step};
use crate::access::DEFAULT_PROVIDER;

/// The controllers that have a pending write.
pub(super) fn needed(findings: &[Finding]) -> BTreeSet<&'static str> {
    let needed = findings.iter().filter_map(|finding| match finding.code {
        Code::NoProfile | Code::ProfileOutdated => Some(PROJECTOR),
        Code::AccessOutdated => Some(PROVISIONER),
        Code::CredentialOutdated | Code::CredentialNotWithdrawn => Some(SYNCER),
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
    for ocm in OCM_GATES {
        // Under another name, both write access providers of their own.
        let is_apart = ocm.controller == PROVISIONER && hub.access.provider() != DEFAULT_PROVIDER;
        if is_apart || matches!(hub.leading(ocm.controller), Leading::Unknown | Leading::NoLease) {
            continue;
        }
        let OcmGate { gate, kind, name, field, .. } = ocm;
        let Some(enabling) = hub.ocm_gates.get(gate) else {
            let object = Object::cluster_scoped(kind, name);
            let verb = if kind == "Deployment" { "list" } else { "get" };
            findings.add(
                Finding::new(Step::Controllers, Mark::Unknown, Code::NotReadable, object)
                    .field(field, gate)
                    .fix(format!(
                        "kubectl auth can-i {verb} {}s/{name} --all-namespaces",
                        kind.to_lowercase()
                    )),
            );
            continue;
        };
        for object in enabling {
            let namespace = object.namespace.iter().map(|namespace| format!("--namespace {namespace} "));
            let namespace: String = namespace.collect();
            let fix = format!("kubectl {namespace}edit {} {}", object.kind.to_lowercase(), object.name);
            findings.add(
                Finding::new(Step::Controllers, Mark::Problem, Code::OcmGateEnabled, object.clone())
                    .field(field, gate)
                    .fix(fix),
            );
        }
    }
}
