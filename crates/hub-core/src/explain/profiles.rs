//! Whether the profile is up to date and has an access provider.

use hub_api::cluster_profile::Cluster;

use super::observed::{Leading, PROJECTOR, PROVISIONER, ShownProfile};
use super::{Code, Findings, Object, Pair, Status, Step};
use crate::access::{self, Offer, Withheld};
use crate::finding::{Finding, Reason};
use crate::grant::{self, Grant};
use crate::profile::{ProfileAction, ProfilePlan, plan};
use crate::project;

const PROFILE: &str = "ClusterProfile";
/// The label of the expiry of a published bundle, in the value of a fact.
const EXPIRES: &str = "expires";

impl Pair<'_> {
    pub(super) fn profile_object(&self) -> Object {
        Object::namespaced(PROFILE, &self.key.namespace, &self.key.cluster)
    }

    pub(super) fn profile(&self) -> Option<&ShownProfile> {
        self.hub.profiles.get(self.key)
    }

    /// The projector's next write, if its inputs are known.
    fn projection(&self) -> Option<ProfilePlan> {
        let (hub, key) = (self.hub, self.key);
        if !hub.knows_fleet(&key.namespace) {
            return None;
        }
        let desired = project::desired(&hub.fleet, key, &hub.settings);
        let observed = self.profile().map(|profile| &profile.observed);
        Some(plan(key, &hub.settings.manager, observed, [desired]))
    }

    /// Whether the profile is up to date. Returns whether it exists.
    pub(super) fn profile_steps(&self, findings: &mut Findings) -> bool {
        let (hub, key) = (self.hub, self.key);
        let step = |mark, code| self.finding(Step::Profile, mark, code, self.profile_object());
        let Some(profile) = self.profile() else {
            if !hub.profiles_of.has(&key.namespace) {
                findings.add(step(Status::Unknown, Code::NotReadable).fix(format!(
                    "kubectl auth can-i list clusterprofiles.multicluster.x-k8s.io --namespace {}",
                    key.namespace
                )));
            } else if hub.knows_fleet(&key.namespace) && grant::decide(&hub.fleet, key) == Grant::Refused {
                // The reason has already been reported.
            } else {
                self.missing_profile(findings);
            }
            return false;
        };
        if let Some(plan) = self.projection() {
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
                findings.add(
                    step(Status::Problem, Code::ProfileOutdated)
                        .field(field, "differs")
                        .fix(self.controller_command(PROJECTOR)),
                );
            }
            let shared = hub.member_ids.finding(key);
            for finding in plan.findings.iter().chain(&shared) {
                findings.add(self.noted(finding));
            }
        }
        if let Some(writer) = &profile.last_writer
            && matches!(hub.leading(PROJECTOR), Leading::Leads(_))
            && profile.observed.manager == hub.settings.manager.as_str()
        {
            findings.add(
                step(Status::Problem, Code::OtherWriter)
                    .field("metadata.managedFields", writer.as_str())
                    .fix(format!(
                        "kubectl get clusterprofile {} --namespace {} --output yaml --show-managed-fields",
                        key.cluster, key.namespace
                    )),
            );
        }
        findings.ok(|| {
            step(Status::Ok, Code::ProfileUpToDate)
                .field("spec.clusterManager.name", profile.observed.manager.as_str())
        });
        true
    }

    fn missing_profile(&self, findings: &mut Findings) {
        let (hub, key) = (self.hub, self.key);
        let step = |mark, code| self.finding(Step::Profile, mark, code, self.profile_object());
        if !hub.knows_fleet(&key.namespace) {
            // The cluster may not be granted.
            findings.add(step(Status::Unknown, Code::NoProfile).field("metadata.name", "not found"));
            return;
        }
        let notes =
            hub.fleet.cluster(&key.cluster).map(|cluster| project::cluster_findings(&key.cluster, cluster));
        let reasons = [Reason::NameTooLong, Reason::Unreadable];
        let finding = notes.into_iter().flatten().find(|finding| reasons.contains(&finding.reason));
        let cluster = || Object::cluster_scoped("ManagedCluster", &key.cluster);
        findings.add(match finding {
            Some(finding) => self
                .finding(Step::Profile, Status::Problem, Code::Profile(finding.reason), cluster())
                .field("metadata.name", key.cluster.as_str())
                .message(finding.message)
                .fix(format!("kubectl get managedcluster {} --output yaml", key.cluster)),
            None => step(Status::Problem, Code::NoProfile)
                .field("metadata.name", "not found")
                .fix(self.controller_command(PROJECTOR)),
        });
    }

    fn noted(&self, finding: &Finding) -> super::CheckResult {
        let key = self.key;
        let fix = match finding.reason {
            Reason::UnlabelledProfile => {
                format!("kubectl delete clusterprofile {} --namespace {}", key.cluster, key.namespace)
            }
            _ => format!(
                "kubectl get clusterprofile {} --namespace {} --output yaml",
                key.cluster, key.namespace
            ),
        };
        let code = Code::Profile(finding.reason);
        self.finding(Step::Profile, Status::Problem, code, self.profile_object())
            .field("spec.clusterManager.name", self.profile().map_or("", |it| it.observed.manager.as_str()))
            .message(format!("the profile {}", finding.message))
            .fix(fix)
    }

    /// The command that shows the logs of a controller.
    pub(super) fn controller_command(&self, controller: &str) -> String {
        match self.hub.leading(controller) {
            Leading::Leads(lease) | Leading::Nobody(lease) | Leading::Expired(lease) => format!(
                "kubectl logs --namespace {} --selector app.kubernetes.io/name=hub-addons --prefix",
                lease.namespace
            ),
            Leading::Unknown | Leading::NoLease => {
                "kubectl get deployments --all-namespaces --selector app.kubernetes.io/name=hub-addons"
                    .to_owned()
            }
        }
    }

    /// Whether the profile has an access provider with valid trust anchors.
    pub(super) fn access_steps(&self, findings: &mut Findings) {
        let (hub, key) = (self.hub, self.key);
        let Some(profile) = self.profile().filter(|it| access::is_ours(&it.observed, &hub.settings.manager))
        else {
            return;
        };
        let observed = &profile.observed;
        let provider = hub.access.provider();
        let field = format!("status.accessProviders[{provider}]");
        let entry = observed.access_provider(provider).and_then(|entry| entry.cluster);
        let offer = hub.access.offer(key, observed);
        let step = |mark, code| self.finding(Step::AccessProvider, mark, code, self.profile_object());
        // A hub that runs the projector without the provisioner publishes no access providers.
        let is_off = matches!(hub.leading(PROVISIONER), Leading::NoLease)
            && matches!(hub.leading(PROJECTOR), Leading::Leads(_));
        let configured = access::cluster_of(observed).ok().and_then(|it| hub.access.static_server(&it));
        if hub.access.is_ocms(key, observed) == Some(true)
            && matches!(hub.leading(PROVISIONER), Leading::Leads(_))
            && !hub.is_ocm_off(PROVISIONER)
        {
            findings.add(self.withheld(Withheld::Contested));
            return;
        }
        match (&offer, &entry) {
            // The trust anchors of a configured server are not read.
            (Offer::Keep(Withheld::NoTrustAnchor), _)
                if configured
                    .as_ref()
                    .is_some_and(|server| entry.as_ref().is_none_or(|entry| entry.server != *server)) =>
            {
                findings.add(self.outdated_access(&field, &offer, entry.as_ref()));
                return;
            }
            (Offer::Publish(_) | Offer::Withdraw(_), _) if is_off && entry.is_none() && !self.is_asked => {
                return;
            }
            (Offer::Keep(why) | Offer::Withdraw(why), None) => {
                let finding = self.withheld(*why);
                let is_doubtful = match why {
                    Withheld::ConfigurationUnknown | Withheld::AddonsUnknown => true,
                    Withheld::NoTrustAnchor => !hub.knows_anchors,
                    _ => false,
                };
                let mark = if is_doubtful { Status::Unknown } else { Status::Problem };
                findings.add(super::CheckResult { mark, ..finding });
                return;
            }
            (Offer::Publish(_), None) if !observed.has_room_for(provider) => {
                findings.add(self.withheld(Withheld::NoRoom));
                return;
            }
            // Without cluster-proxy, the entry comes from a static source, which no object on the hub shows.
            (Offer::Keep(_) | Offer::Withdraw(Withheld::NoConfiguration), Some(_)) => {}
            (Offer::Publish(_) | Offer::Withdraw(_), _) => {
                let plan =
                    plan(key, &hub.settings.manager, Some(observed), [offer.clone().into_desired(provider)]);
                if plan.action != ProfileAction::Nothing {
                    findings.add(self.outdated_access(&field, &offer, entry.as_ref()));
                    return;
                }
            }
        }
        let Some(entry) = entry else { return };
        let expiry = access::published_anchors(observed, provider).and_then(|anchors| anchors.first_expiry());
        if let Some(expiry) = expiry.filter(|expiry| *expiry <= hub.now) {
            findings.add(
                step(Status::Problem, Code::TrustAnchorExpired)
                    .field(
                        format!("{field}.cluster.certificate-authority-data"),
                        format!("{EXPIRES} {expiry:.0}"),
                    )
                    .fix(self.controller_command(PROVISIONER)),
            );
            return;
        }
        findings.ok(|| {
            let expiry = expiry.map(|expiry| format!("; its CA {EXPIRES} {expiry:.0}")).unwrap_or_default();
            let value = format!("{}{expiry}", entry.server);
            step(Status::Ok, Code::AccessPublished).field(format!("{field}.cluster.server"), value)
        });
    }

    /// The entry differs from the provisioner's next write. If the provisioner runs and the entry leads to another
    /// server, the provisioner probably has other settings than this command.
    fn outdated_access(&self, field: &str, offer: &Offer, entry: Option<&Cluster>) -> super::CheckResult {
        let value = entry.map_or("none", |entry| entry.server.as_str());
        let finding = |mark| {
            self.finding(Step::AccessProvider, mark, Code::AccessOutdated, self.profile_object())
                .field(field, value)
        };
        let is_ocms = self.profile().and_then(|it| self.hub.access.is_ocms(self.key, &it.observed));
        if is_ocms == Some(true) && matches!(self.hub.leading(PROVISIONER), Leading::Leads(_)) {
            return finding(Status::Problem)
                .message(
                    "cluster-proxy's own controller has written the access provider, and no longer has its feature gate \
                     on: the access-provider provisioner replaces the entry within 20 minutes",
                )
                .fix(self.controller_command(PROVISIONER));
        }
        let leads_elsewhere = entry.is_some_and(|entry| match offer {
            Offer::Publish(new) => new.cluster.as_ref().is_none_or(|new| new.server != entry.server),
            Offer::Withdraw(_) => true,
            Offer::Keep(_) => false,
        });
        let may_work = matches!(self.hub.leading(PROVISIONER), Leading::Leads(_) | Leading::Unknown);
        if leads_elsewhere && may_work {
            finding(Status::Unknown)
                .message(
                    "the access provider does not lead to cluster-proxy: if the access-provider provisioner has another source, \
                     state its server",
                )
                .fix(format!("kubectl clusterprofile explain {} --access-provider-server URL", self.key))
        } else {
            finding(Status::Problem).fix(self.controller_command(PROVISIONER))
        }
    }

    fn withheld(&self, why: Withheld) -> super::CheckResult {
        let cluster = &self.key.cluster;
        let configuration = || Object::cluster_scoped("ManagedProxyConfiguration", access::CLUSTER_PROXY);
        let (object, fix) = match why {
            Withheld::NoConfiguration | Withheld::ConfigurationUnknown => {
                (configuration(), "kubectl get managedproxyconfigurations".to_owned())
            }
            Withheld::NoAddon => (
                Object::namespaced("ManagedClusterAddOn", cluster, access::CLUSTER_PROXY),
                format!("clusteradm addon enable --names {} --clusters {cluster}", access::CLUSTER_PROXY),
            ),
            Withheld::AddonsUnknown => (
                Object::namespaced("ManagedClusterAddOn", cluster, access::CLUSTER_PROXY),
                "kubectl auth can-i list managedclusteraddons --all-namespaces".to_owned(),
            ),
            Withheld::NoTrustAnchor if let Some(ca) = self.hub.access.configured_ca() => (
                Object::namespaced(ca.kind.into_str(), ca.namespace.as_str(), &ca.name),
                format!("kubectl describe {} --namespace {} {}", ca.kind.into_str().to_lowercase(), ca.namespace, ca.name),
            ),
            // Without its user server, which is off by default, cluster-proxy's chart creates no such Secret.
            Withheld::NoTrustAnchor => (
                Object::cluster_scoped("Secret", access::SERVING_CERT_SECRET),
                "helm upgrade cluster-proxy ocm/cluster-proxy --namespace open-cluster-management-addon \
                 --reset-then-reuse-values --set enableServiceProxy=true --set userServer.enabled=true"
                    .to_owned(),
            ),
            Withheld::InvalidClusterName | Withheld::NoCluster | Withheld::NoEndpoint => (
                Object::cluster_scoped("ManagedCluster", cluster),
                format!("kubectl get managedcluster {cluster} --output yaml"),
            ),
            Withheld::Contested => (
                self.profile_object(),
                "kubectl get deployments --all-namespaces --field-selector metadata.name=cluster-proxy-addon-manager"
                    .to_owned(),
            ),
            Withheld::NoRoom => (
                self.profile_object(),
                format!(
                    "kubectl get clusterprofile --namespace {} {cluster} --output yaml",
                    self.key.namespace
                ),
            ),
        };
        let (field, value) = match why {
            Withheld::Contested => ("status.accessProviders", "the entry of cluster-proxy's own controller"),
            _ => ("metadata.name", "not found or not usable"),
        };
        self.finding(Step::AccessProvider, Status::Problem, Code::Withheld(why), object)
            .field(field, value)
            .fix(fix)
    }
}
