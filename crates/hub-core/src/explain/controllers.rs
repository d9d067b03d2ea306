//! Whether the controllers work.

use std::collections::BTreeSet;

use hub_api::cluster_access::ClusterAccess;
use hub_api::labels;

use super::observed::{
    CONSUMER_ACCESS, CONTROLLERS, Lease, Observed, PROJECTOR, PROVISIONER, SYNCER,
};
use super::{CheckResult, Code, Findings, Object, Status, Step};

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
                .field("spec.template.spec.containers[].args", "")
                .message(
                    "the Deployments of the controllers cannot be read: settings that no flag names are taken for the \
                     defaults",
                )
                .fix("kubectl auth can-i list clusterrolebindings"),
        );
    }
    let Some(leases) = &hub.leases else {
        findings.add(of_leases(Code::NotReadable).field("spec.holderIdentity", "").fix(format!(
            "kubectl auth can-i list leases/hub-addons-{PROJECTOR} --all-namespaces"
        )));
        return;
    };
    if !CONTROLLERS.iter().any(|it| leases.contains_key(*it)) {
        none_leads(hub, needed, findings);
        return;
    }
    let mut shown: Vec<&Lease> = Vec::new();
    // Without ClusterAccesses, consumer access need not be enabled.
    let concerned = |it: &&str| *it != CONSUMER_ACCESS || !hub.accesses.is_empty();
    for controller in CONTROLLERS.into_iter().filter(concerned) {
        match leases.get(controller) {
            None => no_lease_step(controller, needed.contains(controller), findings),
            Some(lease) if !shown.contains(&lease) => {
                shown.push(lease);
                lease_step(hub, lease, findings);
            }
            Some(_) => {}
        }
    }
}

/// No controller has a Lease: they do not run, or run without leader election. The latter is assumed if a profile of
/// ours exists and no write is pending.
fn none_leads(hub: &Observed, needed: &BTreeSet<&'static str>, findings: &mut Findings) {
    let step = of_leases(Code::ControllerNotFound).field("metadata.name", "not found");
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

fn of_leases(code: Code) -> CheckResult {
    CheckResult::new(Step::Controllers, code, Object::cluster_scoped("Lease", "hub-addons-*"))
}

fn no_lease_step(controller: &str, is_needed: bool, findings: &mut Findings) {
    let step = of_leases(Code::ControllerNotFound)
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
    controllers.retain(|it| hub.lease(it) == Some(lease));
    let controllers = controllers.join(", ");
    let step = |code| {
        let object = Object::namespaced("Lease", &lease.namespace, &lease.name);
        CheckResult::new(Step::Controllers, code, object)
    };
    if lease.is_held(hub.now) {
        findings.add(
            step(Code::ControllerLeads)
                .field("spec.holderIdentity", lease.holder.clone().unwrap_or_default())
                .message(format!("a process leads: {controllers}")),
        );
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
