//! Permissions on a hub, effective when the call returns.

use std::time::Duration;

use k8s_openapi::api::authorization::v1::{SelfSubjectRulesReview, SelfSubjectRulesReviewSpec};
use k8s_openapi::api::rbac::v1::{PolicyRule, Subject};
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::json;

use crate::eventually::try_eventually;
use crate::ocm::Object;
use crate::{HubError, users};

/// The API server observes a binding through its own watch, some milliseconds after it is written.
const PATIENCE: Duration = Duration::from_mins(2);

const RBAC: &str = "rbac.authorization.k8s.io";

/// Who receives permissions.
pub(crate) struct Grantee {
    subject: Subject,
    /// A client with the grantee's permissions, to review them.
    client: Client,
}

impl Grantee {
    pub(crate) fn user(name: &str, client: Client) -> Self {
        let subject = Subject {
            api_group: Some(RBAC.to_owned()),
            kind: "User".to_owned(),
            name: name.to_owned(),
            namespace: None,
        };
        Self { subject, client }
    }

    pub(crate) fn service_account(namespace: &str, name: &str, client: Client) -> Self {
        let subject = Subject {
            api_group: None,
            kind: "ServiceAccount".to_owned(),
            name: name.to_owned(),
            namespace: Some(namespace.to_owned()),
        };
        Self { subject, client }
    }
}

/// Grants the permissions in `rules` in a namespace or in all, by a role and a binding named `name`.
pub(crate) async fn grant(
    harness: &Client,
    grantee: &Grantee,
    namespace: Option<&str>,
    name: &str,
    rules: &[PolicyRule],
) -> Result<(), HubError> {
    let role = match namespace {
        Some(_) => object("Role", "roles", namespace, name),
        None => object("ClusterRole", "clusterroles", None, name),
    };
    role.field("rules", json!(rules)).create(harness).await?;
    bind(harness, grantee, namespace, name, name, rules).await
}

/// Makes [`users::OCM`] a cluster admin.
pub(crate) async fn grant_everything(harness: &Client, ocm: Client) -> Result<(), HubError> {
    let ocm = Grantee::user(users::OCM, ocm);
    bind(harness, &ocm, None, "local-hub:ocm", "cluster-admin", &[everything()]).await
}

fn object(kind: &str, plural: &str, namespace: Option<&str>, name: &str) -> Object {
    Object::new((RBAC, "v1", kind), plural, namespace, name)
}

/// Every permission on objects.
#[must_use]
pub fn everything() -> PolicyRule {
    let any = || Some(vec!["*".to_owned()]);
    PolicyRule {
        api_groups: any(),
        resources: any(),
        verbs: vec!["*".to_owned()],
        ..PolicyRule::default()
    }
}

async fn bind(
    harness: &Client,
    grantee: &Grantee,
    namespace: Option<&str>,
    name: &str,
    role: &str,
    rules: &[PolicyRule],
) -> Result<(), HubError> {
    let (kind, binding) = match namespace {
        Some(_) => ("Role", object("RoleBinding", "rolebindings", namespace, name)),
        None => ("ClusterRole", object("ClusterRoleBinding", "clusterrolebindings", None, name)),
    };
    binding
        .field("roleRef", json!({ "apiGroup": RBAC, "kind": kind, "name": role }))
        .field("subjects", json!([grantee.subject]))
        .create(harness)
        .await?;
    in_force(grantee, namespace.unwrap_or("default"), name, rules).await
}

/// Waits until the server's own review contains the rules as written.
async fn in_force(
    grantee: &Grantee,
    namespace: &str,
    name: &str,
    rules: &[PolicyRule],
) -> Result<(), HubError> {
    let reviews: Api<SelfSubjectRulesReview> = Api::all(grantee.client.clone());
    let question = SelfSubjectRulesReview {
        spec: SelfSubjectRulesReviewSpec { namespace: Some(namespace.to_owned()) },
        ..SelfSubjectRulesReview::default()
    };
    let what =
        format!("{} {} has the permissions of {name}", grantee.subject.kind, grantee.subject.name);
    try_eventually(&what, PATIENCE, async || {
        let review = reviews.create(&PostParams::default(), &question).await?;
        Ok::<_, kube::Error>(rules.iter().all(|rule| is_in_force(rule, &review)))
    })
    .await?;
    Ok(())
}

/// Whether a rule is in a review, which lists resources and other URLs separately.
fn is_in_force(rule: &PolicyRule, review: &SelfSubjectRulesReview) -> bool {
    let Some(status) = &review.status else { return false };
    let same = |ours: &Option<Vec<String>>, theirs: &Option<Vec<String>>| {
        ours.as_deref().unwrap_or_default() == theirs.as_deref().unwrap_or_default()
    };
    let resources = rule.resources.as_ref().is_none_or(Vec::is_empty)
        || status.resource_rules.iter().any(|listed| {
            rule.verbs == listed.verbs
                && same(&rule.api_groups, &listed.api_groups)
                && same(&rule.resources, &listed.resources)
                && same(&rule.resource_names, &listed.resource_names)
        });
    let urls = rule.non_resource_urls.as_ref().is_none_or(Vec::is_empty)
        || status.non_resource_rules.iter().any(|listed| {
            rule.verbs == listed.verbs && same(&rule.non_resource_urls, &listed.non_resource_urls)
        });
    resources && urls
}
