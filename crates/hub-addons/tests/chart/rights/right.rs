//! One verb on one resource in a role of the chart: removed from the role on the hub, and restored.

use std::fmt;

use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule, Role};
use kube::api::{ListParams, PostParams};
use kube::{Api, Client};
use local_hub::{AuditRequest, eventually, ocm};
use serde_json::json;

use crate::support::chart::{self, NAMESPACE, RELEASE};
use crate::support::proxy::TEAM;
use crate::support::{SOON, world};

const RBAC: &str = "rbac.authorization.k8s.io";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Right {
    /// The role's namespace, if it is not a ClusterRole.
    namespace: Option<String>,
    role: String,
    group: String,
    pub resource: String,
    pub verb: String,
    /// The name to which it is limited, if any.
    pub name: Option<String>,
}

impl fmt::Display for Right {
    /// As in the tables of this test. The role that may be granted is a part of it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)?;
        match self.name.as_ref().and_then(|name| name.rsplit_once('-')) {
            Some((_, last)) if self.resource == "clusterroles" => write!(f, " {last}"),
            _ => Ok(()),
        }
    }
}

impl Right {
    /// Whether it belongs to a component.
    pub fn is_of(&self, component: &str) -> bool {
        let rest = self.role.strip_prefix(&format!("{RELEASE}-{component}"));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    }

    /// Whether it is for the trust anchors of the proxy.
    pub fn is_of_anchors(&self) -> bool {
        self.role.ends_with("-trust-anchors")
    }

    /// The request that RBAC refuses without it: permissions to grant roles are checked when they are granted.
    pub fn asked(&self) -> (&str, &str) {
        match &*self.verb {
            "bind" => ("create", "rolebindings"),
            "escalate" => ("patch", "clusterroles"),
            verb => (verb, &self.resource),
        }
    }

    /// Whether a request requires it.
    pub fn is_asked_by(&self, request: &AuditRequest) -> bool {
        let hands_out = ["bind", "escalate"].contains(&&*self.verb);
        (&*request.verb, &*request.target()) == self.asked()
            && request.group == self.group
            // Tokens are requested in all namespaces, by a role that others write.
            && !(self.role.ends_with("-copies") && request.namespace.is_empty())
            && (hands_out || self.name.as_ref().is_none_or(|name| *name == request.name))
            && self.namespace.as_ref().is_none_or(|namespace| *namespace == request.namespace)
    }

    fn rule(&self) -> PolicyRule {
        PolicyRule {
            api_groups: Some(vec![self.group.clone()]),
            resources: Some(vec![self.resource.clone()]),
            resource_names: self.name.clone().map(|name| vec![name]),
            verbs: vec![self.verb.clone()],
            ..PolicyRule::default()
        }
    }

    fn role(&self) -> ocm::Object {
        let (kind, plural) = match self.namespace {
            Some(_) => ("Role", "roles"),
            None => ("ClusterRole", "clusterroles"),
        };
        ocm::Object::new((RBAC, "v1", kind), plural, self.namespace.as_deref(), &self.role)
    }

    /// Waits until the API server allows a component to use it, or no longer does.
    async fn in_force(&self, client: &Client, component: &str, wanted: bool) {
        let (resource, subresource) = match self.resource.split_once('/') {
            Some((resource, subresource)) => (resource, Some(subresource.to_owned())),
            None => (&*self.resource, None),
        };
        let attributes = ResourceAttributes {
            group: Some(self.group.clone()),
            name: self.name.clone(),
            // The role for copies is bound where a set is.
            namespace: Some(self.namespace.clone().unwrap_or_else(|| TEAM.to_owned())),
            resource: Some(resource.to_owned()),
            subresource,
            verb: Some(self.verb.clone()),
            ..ResourceAttributes::default()
        };
        let groups = ["system:serviceaccounts", &format!("system:serviceaccounts:{NAMESPACE}")];
        let question = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: Some(chart::user(component)),
                groups: Some(groups.map(str::to_owned).into()),
                resource_attributes: Some(attributes),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        };
        let reviews: Api<SubjectAccessReview> = Api::all(client.clone());
        let what = format!("{component} {} {self}", if wanted { "may" } else { "may not" });
        eventually(&what, SOON, async || {
            let answer = reviews.create(&PostParams::default(), &question).await?;
            Ok::<_, kube::Error>(answer.status.is_some_and(|status| status.allowed == wanted))
        })
        .await;
    }
}

/// All rendered permissions. Call it before credential rights run, which grant more.
pub async fn rendered(client: &Client) -> Vec<Right> {
    let ours = ListParams::default().labels(&format!("app.kubernetes.io/instance={RELEASE}"));
    let everywhere = Api::<ClusterRole>::all(client.clone()).list(&ours).await.unwrap();
    let somewhere = Api::<Role>::all(client.clone()).list(&ours).await.unwrap();
    let everywhere = everywhere.into_iter().map(|role| (role.metadata, role.rules));
    let somewhere = somewhere.into_iter().map(|role| (role.metadata, role.rules));
    let mut rights = Vec::new();
    for (metadata, rules) in everywhere.chain(somewhere) {
        let role = metadata.name.unwrap();
        for rule in rules.into_iter().flatten() {
            let names = rule.resource_names.unwrap_or_default();
            let names: Vec<_> =
                if names.is_empty() { vec![None] } else { names.into_iter().map(Some).collect() };
            for group in rule.api_groups.iter().flatten() {
                for resource in rule.resources.iter().flatten() {
                    for verb in &rule.verbs {
                        rights.extend(names.iter().map(|name| Right {
                            namespace: metadata.namespace.clone(),
                            role: role.clone(),
                            group: group.clone(),
                            resource: resource.clone(),
                            verb: verb.clone(),
                            name: name.clone(),
                        }));
                    }
                }
            }
        }
    }
    rights
}

/// Restores all rendered permissions of a role except one, and waits until the component has lost it.
pub async fn take(client: &Client, all: &[Right], right: &Right, component: &str) {
    write(client, all, right, |one| one != right).await;
    right.in_force(client, component, false).await;
}

/// Restores all rendered permissions of a role.
pub async fn give(client: &Client, all: &[Right], right: &Right, component: &str) {
    write(client, all, right, |_| true).await;
    right.in_force(client, component, true).await;
}

async fn write(client: &Client, all: &[Right], right: &Right, keep: impl Fn(&Right) -> bool) {
    let same_role = |one: &&Right| (&one.namespace, &one.role) == (&right.namespace, &right.role);
    let kept = all.iter().filter(same_role).filter(|one| keep(one));
    let rules: Vec<_> = kept.map(Right::rule).collect();
    world::merge(client, &right.role(), &json!({ "rules": rules })).await;
}
