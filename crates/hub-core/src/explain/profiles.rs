//! Whether the profile is up to date and has an access provider.

use hub_api::cluster_profile::Cluster;
use hub_api::names::ProfileKey;

use super::controllers::DEPLOYMENTS;
use super::observed::{PROJECTOR, PROVISIONER, ShownProfile};
use super::{CheckResult, Code, Findings, Object, Pair, Status, Step};
use crate::access::{self, Offer, Withheld};
use crate::finding::{Finding, Reason};
use crate::grant::{self, Grant};
use crate::profile::{ProfileAction, plan};
use crate::project;
use crate::trust::{TrustAnchor, TrustBundle};

const PROFILE: &str = "ClusterProfile";
/// The label of the expiry of a published bundle, in the value of a fact.
const EXPIRES: &str = "expires";
/// What a fact adds about trust anchors on this curve.
const P521: &str =
    "; hub-addons and cp-creds cannot verify it, since a CA has a key on the curve P-521";

impl Pair<'_> {
    pub(super) fn profile_object(&self) -> Object {
        Object::namespaced(PROFILE, &self.key.namespace, &self.key.cluster)
    }

    fn cluster_object(&self) -> Object {
        Object::cluster_scoped("ManagedCluster", &self.key.cluster)
    }

    pub(super) fn profile(&self) -> Option<&ShownProfile> {
        self.hub.profiles.get(self.key)
    }

    /// Whether the profile is up to date. Returns whether it exists.
    pub(super) fn profile_steps(&self, findings: &mut Findings) -> bool {
        let (hub, key) = (self.hub, self.key);
        let step = |code| self.finding(Step::Profile, code, self.profile_object());
        let Some(profile) = self.profile() else {
            if !hub.profiles_of.has(&key.namespace) {
                let resource = "clusterprofiles.multicluster.x-k8s.io";
                findings.add(step(Code::NotReadable).fix_by_can_list(resource));
            } else if hub.knows_fleet(&key.namespace)
                && grant::decide(&hub.fleet, key) == Grant::Refused
            {
                // The reason has already been reported.
            } else {
                self.missing_profile(findings);
            }
            return false;
        };
        if hub.knows_fleet(&key.namespace) {
            // The projector's next write.
            let desired = project::desired(&hub.fleet, key, &hub.settings);
            let plan = plan(key, &hub.settings.manager, Some(&profile.observed), [desired]);
            let action = match &plan.action {
                ProfileAction::Nothing => None,
                ProfileAction::Create(_) => Some("missing"),
                ProfileAction::Patch(..) => Some("labels and displayName"),
                ProfileAction::PatchStatus(..) => Some("status"),
                ProfileAction::Delete(_) | ProfileAction::DeleteByUid(_) => {
                    Some("to be deleted: the cluster is not granted")
                }
            };
            if let Some(field) = action {
                let fix = self.controller_command(PROJECTOR);
                findings.add(step(Code::ProfileOutdated).field(field, "differs").fix(fix));
            }
            let shared = hub.member_ids.finding(key);
            for finding in plan.findings.iter().chain(&shared) {
                findings.add(self.noted(finding));
            }
        }
        if let Some(writer) = &profile.last_writer
            && hub.leads(PROJECTOR)
            && profile.observed.manager == hub.settings.manager.as_str()
        {
            let fix =
                format!("{} --show-managed-fields", self.profile_object().get_command("yaml"));
            let finding = step(Code::OtherWriter).field("metadata.managedFields", writer.as_str());
            findings.add(finding.fix(fix));
        }
        let manager = profile.observed.manager.as_str();
        findings.add(step(Code::ProfileUpToDate).field("spec.clusterManager.name", manager));
        true
    }

    fn missing_profile(&self, findings: &mut Findings) {
        let (hub, key) = (self.hub, self.key);
        let missing = self.finding(Step::Profile, Code::NoProfile, self.profile_object());
        let missing = missing.field("metadata.name", "not found");
        if !hub.knows_fleet(&key.namespace) {
            // The cluster may not be granted.
            findings.add(missing.marked(Status::Unknown));
            return;
        }
        let notes = hub
            .fleet
            .cluster(&key.cluster)
            .map(|cluster| project::cluster_findings(&key.cluster, cluster));
        let reasons = [Reason::NameTooLong, Reason::Unreadable];
        let finding = notes.into_iter().flatten().find(|finding| reasons.contains(&finding.reason));
        findings.add(match finding {
            Some(finding) => self
                .finding(Step::Profile, Code::Profile(finding.reason), self.cluster_object())
                .field("metadata.name", key.cluster.as_str())
                .message(finding.message)
                .fix_by_get(),
            None => missing.fix(self.controller_command(PROJECTOR)),
        });
    }

    fn noted(&self, finding: &Finding) -> CheckResult {
        let ProfileKey { namespace, cluster } = self.key;
        let noted = self
            .finding(Step::Profile, Code::Profile(finding.reason), self.profile_object())
            .field(
                "spec.clusterManager.name",
                self.profile().map_or("", |it| it.observed.manager.as_str()),
            )
            .message(format!("the profile {}", finding.message));
        match finding.reason {
            Reason::UnlabelledProfile => noted
                .fix(format!("kubectl delete clusterprofile {cluster} --namespace {namespace}")),
            _ => noted.fix_by_get(),
        }
    }

    /// The command that shows the logs of a controller.
    pub(super) fn controller_command(&self, controller: &str) -> String {
        match self.hub.lease(controller) {
            Some(lease) => format!(
                "kubectl logs --namespace {} --selector app.kubernetes.io/name=hub-addons --prefix",
                lease.namespace
            ),
            None => DEPLOYMENTS.to_owned(),
        }
    }

    /// Whether the profile has an access provider with valid trust anchors, which applications may not use.
    pub(super) fn access_step(&self, uses_no_tokens: bool) -> Option<CheckResult> {
        let (hub, key) = (self.hub, self.key);
        let profile =
            self.profile().filter(|it| access::is_ours(&it.observed, &hub.settings.manager))?;
        let observed = &profile.observed;
        let provider = hub.access.provider();
        let field = format!("status.accessProviders[{provider}]");
        let entry = observed.access_provider(provider).and_then(|entry| entry.cluster);
        let offer = hub.access.offer(key, observed);
        let step = |code| self.finding(Step::AccessProvider, code, self.profile_object());
        // A hub that runs the projector without the provisioner publishes no access providers.
        let is_off = hub.lease(PROVISIONER).is_none() && hub.leads(PROJECTOR);
        let configured =
            access::cluster_of(observed).ok().and_then(|it| hub.access.static_server(&it));
        match (&offer, &entry) {
            (_, None) if is_off && (!self.is_asked || uses_no_tokens) => return None,
            // The trust anchors of a configured server are not read.
            (Offer::Keep(Withheld::NoTrustAnchor), _)
                if configured.as_ref().is_some_and(|server| {
                    entry.as_ref().is_none_or(|entry| entry.server != *server)
                }) =>
            {
                return Some(self.outdated_access(&field, entry.as_ref()));
            }
            (Offer::Keep(why) | Offer::Withdraw(why), None) => {
                let mut finding = self.withheld(*why);
                if *why == Withheld::NoTrustAnchor && !hub.knows_anchors {
                    finding.mark = Status::Unknown;
                }
                return Some(finding);
            }
            (Offer::Publish(_), None) if !observed.has_room_for(provider) => {
                return Some(self.withheld(Withheld::NoRoom));
            }
            // Without cluster-proxy, the entry comes from a static source, which no object on the hub shows.
            (Offer::Keep(_) | Offer::Withdraw(Withheld::NoConfiguration), Some(_)) => {}
            (Offer::Publish(_) | Offer::Withdraw(_), _) => {
                let plan = plan(
                    key,
                    &hub.settings.manager,
                    Some(observed),
                    [offer.clone().into_desired(provider)],
                );
                if plan.action != ProfileAction::Nothing {
                    return Some(self.outdated_access(&field, entry.as_ref()));
                }
            }
        }
        let entry = entry?;
        let anchors = access::published_anchors(observed, provider);
        let expiry = anchors.as_ref().and_then(TrustBundle::first_expiry);
        if let Some(expiry) = expiry.filter(|expiry| *expiry <= hub.now) {
            let field = format!("{field}.cluster.certificate-authority-data");
            let finding =
                step(Code::TrustAnchorExpired).field(field, format!("{EXPIRES} {expiry:.0}"));
            return Some(finding.fix(self.controller_command(PROVISIONER)));
        }
        let expiry =
            expiry.map(|expiry| format!("; its CA {EXPIRES} {expiry:.0}")).unwrap_or_default();
        let is_on_p521 = anchors.iter().flat_map(TrustBundle::anchors).any(TrustAnchor::is_on_p521);
        let limit = if is_on_p521 { P521 } else { "" };
        let value = format!("{}{expiry}{limit}", entry.server);
        Some(step(Code::AccessPublished).field(format!("{field}.cluster.server"), value))
    }

    /// The entry differs from the provisioner's next write, by the flags that are known.
    fn outdated_access(&self, field: &str, entry: Option<&Cluster>) -> CheckResult {
        let value = entry.map_or("none", |entry| entry.server.as_str());
        let finding =
            self.finding(Step::AccessProvider, Code::AccessOutdated, self.profile_object());
        let fix = self.controller_command(PROVISIONER);
        let finding = finding.field(field, value).fix(fix);
        if self.hub.unread_settings.is_some() { finding.marked(Status::Unknown) } else { finding }
    }

    fn withheld(&self, why: Withheld) -> CheckResult {
        let ProfileKey { namespace, cluster } = self.key;
        let addon = || Object::namespaced("ManagedClusterAddOn", cluster, access::CLUSTER_PROXY);
        let (object, fix) = match why {
            Withheld::NoConfiguration | Withheld::ConfigurationUnknown => (
                Object::cluster_scoped("ManagedProxyConfiguration", access::CLUSTER_PROXY),
                "kubectl get managedproxyconfigurations".to_owned(),
            ),
            Withheld::NoAddon => (
                addon(),
                format!("clusteradm addon enable --names {} --clusters {cluster}", access::CLUSTER_PROXY),
            ),
            Withheld::AddonsUnknown => {
                (addon(), "kubectl auth can-i list managedclusteraddons --all-namespaces".to_owned())
            }
            Withheld::NoTrustAnchor if let Some(ca) = self.hub.access.configured_ca() => (
                Object::namespaced(ca.kind.into_str(), ca.namespace.as_str(), &ca.name),
                format!(
                    "kubectl describe {} --namespace {} {}",
                    ca.kind.into_str().to_lowercase(),
                    ca.namespace,
                    ca.name
                ),
            ),
            // Without its user server, which is off by default, cluster-proxy's chart creates no such Secret.
            Withheld::NoTrustAnchor => (
                Object::cluster_scoped("Secret", access::SERVING_CERT_SECRET),
                "helm upgrade cluster-proxy ocm/cluster-proxy --version VERSION \
                 --namespace open-cluster-management-addon --reset-then-reuse-values --set enableServiceProxy=true --set userServer.enabled=true"
                    .to_owned(),
            ),
            Withheld::InvalidClusterName
            | Withheld::NameNotRoutable
            | Withheld::NoCluster
            | Withheld::NoEndpoint => (self.cluster_object(), self.cluster_object().get_command("yaml")),
            Withheld::NoRoom => (
                self.profile_object(),
                format!("kubectl get clusterprofile --namespace {namespace} {cluster} --output yaml"),
            ),
        };
        self.finding(Step::AccessProvider, Code::Withheld(why), object)
            .field("metadata.name", "not found or not usable")
            .fix(fix)
    }
}
