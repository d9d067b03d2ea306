//! Whether the controllers work, and whether OCM's own controllers write the same objects.

use std::collections::BTreeSet;

use hub_api::cluster_access::ClusterAccess;
use hub_api::labels;

use super::observed::{
    ARGUMENTS, CONSUMER_ACCESS, CONTROLLERS, Lease, LeaseState, OCM_GATES, Observed, OcmGate,
    PROJECTOR, PROVISIONER, SYNCER,
};
use super::{CheckResult, Code, Findings, Object, Status, Step};
use crate::access::DEFAULT_PROVIDER;

/// The controllers that have a pending write.
pub(super) fn needed(hub: &Observed, findings: &[CheckResult]) -> BTreeSet<&'static str> {
    let is_new = |access: &ClusterAccess| {
        let observed = access.status.as_ref().and_then(|status| status.observed_generation);
        observed != access.metadata.generation
    };
    let consumer_access = hub.accesses.values().any(is_new).then_some(CONSUMER_ACCESS);
    let needed = findings.iter().filter_map(|finding| match finding.code {
        Code::NoProfile | Code::ProfileOutdated => Some(PROJECTOR),
        Code::AccessOutdated => Some(PROVISIONER),
        Code::CredentialOutdated => Some(SYNCER),
        Code::NotWithdrawn if finding.step == Step::Credential => Some(SYNCER),
        _ => None,
    });
    needed.chain(consumer_access).collect()
}

/// The steps about the hub as a whole: one for each Lease. A controller without one is a problem if it has a pending
/// write.
pub(super) fn steps(hub: &Observed, needed: &BTreeSet<&'static str>, findings: &mut Findings) {
    if let Some(object) = &hub.unread_settings {
        findings.add(
            CheckResult::new(Step::Controllers, Code::NotReadable, object.clone())
                .field(ARGUMENTS, "")
                .message(
                    "the Deployments of the controllers cannot be read: settings that no flag names are taken for the \
                     defaults",
                )
                .fix("kubectl auth can-i list clusterrolebindings"),
        );
    }
    if CONTROLLERS.into_iter().all(|it| matches!(hub.leading(it), LeaseState::NoLease)) {
        none_leads(hub, needed, findings);
        return;
    }
    if hub.leases.is_none() {
        findings.add(
            CheckResult::new(
                Step::Controllers,
                Code::NotReadable,
                lease_object("hub-addons-*", None),
            )
            .field("spec.holderIdentity", "")
            .fix(format!("kubectl auth can-i list leases/hub-addons-{PROJECTOR} --all-namespaces")),
        );
    }
    let mut shown: Vec<&Lease> = Vec::new();
    // Without ClusterAccesses, consumer access need not be enabled.
    let concerned = |it: &&str| *it != CONSUMER_ACCESS || !hub.accesses.is_empty();
    for controller in CONTROLLERS.into_iter().filter(concerned) {
        match hub.leading(controller) {
            LeaseState::Unknown => {}
            LeaseState::NoLease => no_lease_step(controller, needed.contains(controller), findings),
            LeaseState::NotHeld(lease) | LeaseState::Held(lease) => {
                if !shown.contains(&lease) {
                    shown.push(lease);
                    lease_step(hub, lease, findings);
                }
            }
        }
    }
    gate_steps(hub, findings);
}

/// No controller has a Lease: they do not run, or run without leader election. The latter is assumed if a profile of
/// ours exists and no write is pending.
fn none_leads(hub: &Observed, needed: &BTreeSet<&'static str>, findings: &mut Findings) {
    let step = CheckResult::new(
        Step::Controllers,
        Code::ControllerNotFound,
        lease_object("hub-addons-*", None),
    )
    .field("metadata.name", "not found");
    let manager = hub.settings.manager.as_str();
    if needed.is_empty() && hub.profiles.values().any(|profile| profile.observed.manager == manager)
    {
        let message = "no controller has a Lease: they do not run, or run without leader election";
        findings.add(step.marked(Status::Info).message(message));
    } else {
        findings.add(step.fix(DEPLOYMENTS));
    }
}

pub(super) const DEPLOYMENTS: &str =
    "kubectl get deployments --all-namespaces --selector app.kubernetes.io/name=hub-addons";

fn lease_object(name: &str, namespace: Option<&str>) -> Object {
    Object { kind: "Lease", namespace: namespace.map(str::to_owned), name: name.to_owned() }
}

fn no_lease_step(controller: &str, is_needed: bool, findings: &mut Findings) {
    let step = CheckResult::new(
        Step::Controllers,
        Code::ControllerNotFound,
        lease_object("hub-addons-*", None),
    )
    .field("metadata.annotations[hub-addons/controllers]", controller);
    findings.add(if is_needed {
        step.message(format!("{controller} does not run: no Lease names it")).fix(DEPLOYMENTS)
    } else {
        step.marked(Status::Info)
            .message(format!("no Lease names {controller}: it does not run, and nothing needs it"))
    });
}

fn lease_step(hub: &Observed, lease: &Lease, findings: &mut Findings) {
    let mut controllers = CONTROLLERS.to_vec();
    controllers.retain(|it| hub.leases.as_ref().and_then(|leases| leases.get(*it)) == Some(lease));
    let controllers = controllers.join(", ");
    let step = |code| {
        CheckResult::new(Step::Controllers, code, lease_object(&lease.name, Some(&lease.namespace)))
    };
    if lease.is_held(hub.now) {
        findings.ok(|| {
            step(Code::ControllerLeads)
                .field("spec.holderIdentity", lease.holder.clone().unwrap_or_default())
                .message(format!("a process leads: {controllers}"))
        });
        if let Some(unreadable) = &lease.unreadable {
            findings.add(
                step(Code::KindUnreadable)
                    .field(format!("metadata.annotations[{}]", labels::UNREADABLE), unreadable)
                    .fix("kubectl get events --namespace default --field-selector reason=KindUnreadable"),
            );
        }
        return;
    }
    let value = match (&lease.holder, lease.renewed) {
        (Some(holder), Some(time)) => format!("{holder}, renewed {time:.0}"),
        (Some(holder), None) => format!("{holder}, never renewed"),
        (None, _) => "none".to_owned(),
    };
    let namespace = &lease.namespace;
    findings.add(
        step(Code::ControllerNotLeading)
            .field("spec.holderIdentity", value)
            .message(format!("no process leads, so no changes are written: {controllers}"))
            .fix(format!(
                "kubectl get pods --namespace {namespace} --selector app.kubernetes.io/name=hub-addons"
            )),
    );
}

/// Whether OCM's own controllers write the same objects as those of ours that run.
fn gate_steps(hub: &Observed, findings: &mut Findings) {
    for ocm in OCM_GATES {
        // With another provider name, each writes access providers of its own.
        let is_apart = ocm.controller == PROVISIONER && hub.access.provider() != DEFAULT_PROVIDER;
        if is_apart
            || matches!(hub.leading(ocm.controller), LeaseState::Unknown | LeaseState::NoLease)
        {
            continue;
        }
        let OcmGate { names, kind, object: name, field, .. } = ocm;
        let Some(enabling) = hub.ocm_gates.get(ocm.controller) else {
            let object = Object::cluster_scoped(kind, name);
            let verb = if kind == "Deployment" { "list" } else { "get" };
            let kinds = format!("{}s", kind.to_lowercase());
            findings.add(
                CheckResult::new(Step::Controllers, Code::NotReadable, object)
                    .field(field, names.join(" or "))
                    .fix(format!("kubectl auth can-i {verb} {kinds}/{name} --all-namespaces")),
            );
            continue;
        };
        for (object, gate) in enabling {
            let namespace =
                object.namespace.iter().map(|namespace| format!("--namespace {namespace} "));
            let namespace: String = namespace.collect();
            let fix =
                format!("kubectl {namespace}edit {} {}", object.kind.to_lowercase(), object.name);
            let finding = CheckResult::new(Step::Controllers, Code::OcmGateEnabled, object.clone());
            findings.add(finding.field(field, *gate).fix(fix));
        }
    }
}
