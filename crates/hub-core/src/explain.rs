//! Why a namespace cannot see or reach a cluster: the decisions of the controllers about the state of a hub, as
//! steps in the order in which an application depends on them.
//!
//! | step | decision |
//! |---|---|
//! | [`Step::Controllers`] | who holds the Leases |
//! | [`Step::ClusterAccess`] | the status of each ClusterAccess of the namespace, and whether it selects the cluster |
//! | [`Step::Binding`], [`Step::ClusterSet`] | [`crate::grant`] |
//! | [`Step::Profile`] | [`crate::profile::plan`] of [`crate::project::desired`] |
//! | [`Step::AccessProvider`] | [`AccessIndex::offer`](crate::access::AccessIndex::offer) |
//! | [`Step::OwnIdentity`] | the access provider of the user server, where an object with the identity Own is ready |
//! | [`Step::Account`], [`Step::Token`], [`Step::Credential`] | [`crate::credential::plan`] |
//!
//! A step depends on a fact (object, field, value). The first step that fails names the command that fixes it; later
//! steps that depend on it are left out. A step whose objects could not be read is [`Status::Unknown`], never a problem
//! and never in order.

mod code;
mod controllers;
mod credential;
mod grants;
mod orphans;
mod own_identity;
mod profiles;

pub mod observed;

use std::collections::BTreeSet;
use std::fmt;

use hub_api::cluster_access::{
    ACCEPTED, CLUSTERS_NOT_READY, ClusterAccess, Clusters, IdentityKind, READY,
};
use hub_api::names::{AccountName, ClusterName, Namespace, ProfileKey};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::{Deserialize, Serialize};
use strum::{EnumMessage, IntoStaticStr, VariantArray};

pub use self::code::Code;
use self::observed::Observed;
use crate::consumer_access::AccessName;
use crate::grant::{self, Grant};
use crate::selector::ClusterSelector;

/// The result of a step, in the order of urgency.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, IntoStaticStr,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase", const_into_str)]
pub enum Status {
    /// Neither in order nor a problem.
    Info,
    /// In order.
    Ok,
    /// Unknown: an object that it depends on could not be read.
    Unknown,
    Problem,
}

impl Status {
    /// The sign for people.
    #[must_use]
    pub fn character(self) -> &'static str {
        match self {
            Self::Info => "-",
            Self::Ok => "✓",
            Self::Unknown => "?",
            Self::Problem => "✗",
        }
    }
}

/// The steps that an application depends on, in this order. The comments are the texts of `docs/reference.md`.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    EnumMessage,
    IntoStaticStr,
    VariantArray,
)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum Step {
    /// The ClusterAccesses of the namespace are accepted, and the cluster is ready for them.
    ClusterAccess,
    /// Processes hold the Leases of the controllers and can read every kind that they need.
    Controllers,
    /// A ManagedClusterSetBinding of the namespace is in force.
    Binding,
    /// Its ManagedClusterSet exists and selects the cluster.
    ClusterSet,
    /// The ClusterProfile shows the cluster.
    Profile,
    /// The profile publishes how to reach the cluster.
    AccessProvider,
    /// Applications reach the cluster by their own identity.
    OwnIdentity,
    /// A ManagedServiceAccount of the cluster opts in to copies in the namespace.
    Account,
    /// The agent has reported a usable token.
    Token,
    /// The copy of the token is up to date. `kubectl auth can-i` shows whether a ServiceAccount may read it.
    Credential,
}

impl Step {
    /// Every step, in order.
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// The name for people.
    #[must_use]
    pub fn title(self) -> String {
        self.into_str().replace('_', " ")
    }
}

/// The object that a finding depends on.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Object {
    pub kind: &'static str,
    /// Its namespace; `None` for a cluster-scoped object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    pub name: String,
}

impl Object {
    pub fn cluster_scoped(kind: &'static str, name: impl fmt::Display) -> Self {
        Self { kind, namespace: None, name: name.to_string() }
    }

    pub fn namespaced(
        kind: &'static str,
        namespace: impl fmt::Display,
        name: impl fmt::Display,
    ) -> Self {
        Self { kind, namespace: Some(namespace.to_string()), name: name.to_string() }
    }

    /// The command that prints it.
    fn get_command(&self, output: &str) -> String {
        let kind = self.kind.to_lowercase();
        let namespace = self.namespace.iter().map(|namespace| format!(" --namespace {namespace}"));
        format!(
            "kubectl get {kind} {}{} --output {output}",
            self.name,
            namespace.collect::<String>()
        )
    }
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{} {namespace}/{}", self.kind, self.name),
            None => write!(f, "{} {}", self.kind, self.name),
        }
    }
}

/// The result of one step for a namespace, cluster and account, if it is about these.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CheckResult {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// The ManagedServiceAccount that it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    pub step: Step,
    /// The result as a code, which is an API for scripts.
    pub code: Code,
    /// Whether it is in order.
    pub mark: Status,
    /// The object that it depends on.
    pub object: Object,
    /// The field of the object.
    pub field: String,
    /// The value of the field, or the value that it should have.
    pub value: String,
    /// A sentence for people.
    pub message: String,
    /// A command that fixes it or, if none can or need, shows more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

impl CheckResult {
    pub(crate) fn new(step: Step, code: Code, object: Object) -> Self {
        Self {
            namespace: None,
            cluster: None,
            account: None,
            step,
            message: code.to_string(),
            mark: code.mark(),
            code,
            object,
            field: String::new(),
            value: String::new(),
            fix: None,
        }
    }

    pub(crate) fn about(mut self, key: &ProfileKey) -> Self {
        self.cluster = Some(key.cluster.to_string());
        self.in_namespace(&key.namespace)
    }

    pub(crate) fn in_namespace(mut self, namespace: &Namespace) -> Self {
        self.namespace = Some(namespace.to_string());
        self
    }

    pub(crate) fn of_account(mut self, account: &AccountName) -> Self {
        self.account = Some(account.to_string());
        self
    }

    pub(crate) fn marked(mut self, mark: Status) -> Self {
        self.mark = mark;
        self
    }

    pub(crate) fn field(mut self, field: impl Into<String>, value: impl Into<String>) -> Self {
        self.field = field.into();
        self.value = value.into();
        self
    }

    pub(crate) fn message(mut self, message: impl Into<String>) -> Self {
        self.message = message.into();
        self
    }

    pub(crate) fn fix(mut self, command: impl Into<String>) -> Self {
        self.fix = Some(command.into());
        self
    }

    /// With the command that shows the object.
    pub(crate) fn fix_by_get(self) -> Self {
        let command = self.object.get_command("yaml");
        self.fix(command)
    }

    /// With the command that shows whether the user may list a resource in the namespace of the object.
    pub(crate) fn fix_by_can_list(self, resource: &str) -> Self {
        let namespace = self.object.namespace.as_deref().unwrap_or_default();
        let command = format!("kubectl auth can-i list {resource} --namespace {namespace}");
        self.fix(command)
    }
}

/// The pairs of a namespace and a cluster to explain.
#[derive(Debug, Clone, Default)]
pub struct Question {
    /// The namespaces; if none is given, each that has a binding or a profile.
    pub namespaces: Vec<Namespace>,
    /// The clusters, granted or not; if none is given, each that is granted or has a profile.
    pub clusters: Vec<ClusterName>,
    /// The account; if none is given, each that opts in to copies.
    pub account: Option<AccountName>,
    /// Whether steps that are in order are kept.
    pub all: bool,
}

/// The number of pairs of a namespace and a cluster by result.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    pub namespaces: usize,
    /// The pairs that are granted or named in the question.
    pub pairs: usize,
    /// The pairs of which every step is in order.
    pub ok: usize,
    /// The pairs without a problem of which a step is unknown.
    pub unknown: usize,
    /// The pairs of which a step is a problem.
    pub problem: usize,
}

/// The result of an explanation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Explanation {
    pub summary: Summary,
    /// The steps: those of the ClusterAccesses, those of the hub, then those of each namespace and cluster.
    pub findings: Vec<CheckResult>,
}

impl Explanation {
    /// The worst mark of all steps.
    #[must_use]
    pub fn mark(&self) -> Status {
        self.findings.iter().map(|finding| finding.mark).fold(Status::Ok, Status::max)
    }
}

/// Collects findings, of which a hub has tens of thousands that are in order.
#[derive(Debug)]
pub(crate) struct Findings {
    all: bool,
    list: Vec<CheckResult>,
    worst: Status,
}

impl Findings {
    /// Adds a finding; one that is in order only if such findings are kept.
    fn add(&mut self, finding: CheckResult) {
        self.worst = self.worst.max(finding.mark);
        if self.all || finding.mark > Status::Ok {
            self.list.push(finding);
        }
    }

    /// The worst mark since this was last called.
    fn take_worst(&mut self) -> Status {
        std::mem::replace(&mut self.worst, Status::Ok)
    }
}

/// Explains the observed state of a hub.
#[must_use]
pub fn explain(hub: &Observed, question: &Question) -> Explanation {
    let mut findings = Findings { all: question.all, list: Vec::new(), worst: Status::Ok };
    let namespaces = namespaces(hub, question);
    let mut summary = Summary { namespaces: namespaces.len(), ..Summary::default() };
    for namespace in &namespaces {
        explain_namespace(hub, question, namespace, &mut findings, &mut summary);
    }
    // The pending writes show which controllers should run.
    let needed = controllers::needed(hub, &findings.list);
    let steps = std::mem::take(&mut findings.list);
    controllers::steps(hub, &needed, &mut findings);
    findings.list.extend(steps);
    // What an application has declared comes before what all share.
    findings.list.sort_by_key(|finding| finding.step != Step::ClusterAccess);
    Explanation { summary, findings: findings.list }
}

fn namespaces(hub: &Observed, question: &Question) -> BTreeSet<Namespace> {
    if !question.namespaces.is_empty() {
        return question.namespaces.iter().cloned().collect();
    }
    let known = hub.fleet.namespaces().chain(hub.profiles.keys().map(|key| &key.namespace));
    known.cloned().chain(orphans::namespaces(hub)).collect()
}

fn explain_namespace(
    hub: &Observed,
    question: &Question,
    namespace: &Namespace,
    findings: &mut Findings,
    summary: &mut Summary,
) {
    let is_asked = !question.clusters.is_empty();
    if !is_asked {
        grants::namespace_steps(hub, namespace, !question.namespaces.is_empty(), findings);
        findings.take_worst();
    }
    let remains = orphans::clusters(hub, namespace);
    let clusters: BTreeSet<&ClusterName> = if is_asked {
        question.clusters.iter().collect()
    } else {
        hub.fleet.cluster_names().chain(hub.clusters_in(namespace)).chain(&remains).collect()
    };
    let key = |cluster: &ClusterName| cluster.in_namespace(namespace);
    let keys: Vec<ProfileKey> = clusters.into_iter().map(key).collect();
    let expects_accounts = credential::expected(hub, namespace, &keys);
    for key in &keys {
        let is_granted = grant::is_possible(&hub.fleet, namespace, &key.cluster);
        let has_remains = || hub.profiles.contains_key(key) || remains.contains(&key.cluster);
        if !is_granted && !is_asked && !has_remains() {
            continue;
        }
        summary.pairs += 1;
        let pair =
            Pair { hub, key, is_asked, account: question.account.as_ref(), expects_accounts };
        pair.steps(findings);
        match findings.take_worst() {
            Status::Info | Status::Ok => summary.ok += 1,
            Status::Unknown => summary.unknown += 1,
            Status::Problem => summary.problem += 1,
        }
    }
}

/// A namespace and a cluster.
pub(crate) struct Pair<'a> {
    hub: &'a Observed,
    key: &'a ProfileKey,
    /// Whether the question names exactly this pair.
    is_asked: bool,
    /// The account that the question names.
    account: Option<&'a AccountName>,
    /// Whether clusters of this namespace have accounts.
    expects_accounts: bool,
}

impl Pair<'_> {
    fn steps(&self, findings: &mut Findings) {
        let (own, uses_no_tokens) = self.cluster_access_steps(findings);
        let may_be_granted = self.grant_steps(findings);
        let has_profile = self.profile_steps(findings);
        if !may_be_granted {
            self.left_accounts(findings);
            self.left_copies(&BTreeSet::new(), findings);
        } else if has_profile {
            self.access_step(uses_no_tokens).into_iter().for_each(|finding| findings.add(finding));
            let is_unsupported = self.hub.no_kube_api_proxy.present().is_some();
            if let Some((access, _)) = own.iter().find(|(_, is_ready)| *is_ready || is_unsupported)
            {
                findings.add(self.own_identity_step(access));
            }
            self.credential_steps(!own.is_empty(), findings);
        }
    }

    /// What the ClusterAccesses of the namespace report about the cluster. Returns those with the identity Own that select
    /// it, each with whether the cluster is ready for it; and whether there are any, and all have that identity.
    fn cluster_access_steps(&self, findings: &mut Findings) -> (Vec<(&AccessName, bool)>, bool) {
        let (mut own, mut identities) = (Vec::new(), BTreeSet::new());
        for (name, access) in
            self.hub.accesses.iter().filter(|(name, _)| name.namespace == self.key.namespace)
        {
            let is_own = access.spec.identity == IdentityKind::Own;
            identities.insert(is_own);
            let Some(finding) = self.cluster_access_step(name, access) else { continue };
            let is_used = matches!(finding.code, Code::AccessReady | Code::AccessNotReady);
            if is_own && is_used {
                own.push((name, finding.code == Code::AccessReady));
            }
            findings.add(finding);
        }
        (own, identities == BTreeSet::from([true]))
    }

    /// What a ClusterAccess reports about the cluster, unless it is not about it.
    fn cluster_access_step(
        &self,
        name: &AccessName,
        access: &ClusterAccess,
    ) -> Option<CheckResult> {
        let status = access.status.clone().unwrap_or_default();
        let object = Object::namespaced("ClusterAccess", &name.namespace, &name.name);
        let condition =
            |kind: &str| status.conditions.iter().find(|condition| condition.type_ == kind);
        let step = |code| self.finding(Step::ClusterAccess, code, object.clone());
        if let Some(accepted) = condition(ACCEPTED).filter(|accepted| accepted.status != "True") {
            let value = format!("{}: {}", accepted.reason, accepted.message);
            let step = step(Code::AccessNotAccepted).field("status.conditions[Accepted]", value);
            return Some(step.fix_by_get());
        }
        let cluster = self.key.cluster.as_str();
        if let Some(lacks) = status.not_ready.iter().find(|it| it.cluster == cluster) {
            let value = format!("{}: {}", lacks.reason, lacks.message);
            return Some(step(Code::AccessNotReady).field("status.notReady", value).fix_by_get());
        }
        if let Some((field, value)) = self.leaves_out(&access.spec.clusters) {
            return Some(step(Code::AccessNotSelected).field(field, value));
        }
        if grant::decide(&self.hub.fleet, self.key) == Grant::Refused {
            return None;
        }
        // The first clusters that are not ready are listed, by name.
        let last = status.not_ready.last().filter(|_| status.more_not_ready.is_some());
        let is_of_others = last.is_none_or(|last| cluster < &*last.cluster);
        let ready = condition(READY);
        let lacks_nothing = |it: &Condition| {
            it.status == "True" || (it.reason == CLUSTERS_NOT_READY && is_of_others)
        };
        let step = match ready {
            Some(ready) if lacks_nothing(ready) => step(Code::AccessReady),
            Some(ready) if ready.status == "Unknown" => {
                step(Code::AccessNotReady).marked(Status::Unknown).fix_by_get()
            }
            _ => step(Code::AccessNotReady).fix_by_get(),
        };
        let value = ready.map(|it| format!("{}: {}", it.reason, it.message));
        let value = value.unwrap_or_else(|| "none: does consumer access run?".to_owned());
        Some(step.field("status.conditions[Ready]", value))
    }

    /// The field of a ClusterAccess that leaves out the cluster, which is granted, and its value.
    fn leaves_out(&self, clusters: &Clusters) -> Option<(&'static str, String)> {
        let cluster = self.hub.fleet.cluster(&self.key.cluster)?;
        if grant::decide(&self.hub.fleet, self.key) != Grant::Granted {
            return None;
        }
        if self.hub.fleet.is_hub(&self.key.cluster) {
            return Some(("spec.clusters", "never the hub itself".to_owned()));
        }
        let selector =
            clusters.selector.as_ref().and_then(|labels| ClusterSelector::of_labels(labels).ok());
        if let Some(selector) = selector.filter(|selector| !selector.matches(&cluster.labels)) {
            return Some(("spec.clusters.selector", selector.to_string()));
        }
        let placement = (self.key.namespace.clone(), clusters.placement_ref.as_ref()?.name.clone());
        let is_decided = self.hub.decisions.get(&placement)?.contains(&self.key.cluster);
        (!is_decided).then_some(("spec.clusters.placementRef.name", placement.1))
    }

    fn finding(&self, step: Step, code: Code, object: Object) -> CheckResult {
        CheckResult::new(step, code, object).about(self.key)
    }
}
