//! Rights for a hub's users, in force when the call returns.

use std::time::Duration;

use k8s_openapi::api::authorization::v1::{SelfSubjectRulesReview, SelfSubjectRulesReviewSpec};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, RoleRef, Subject};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::PostParams;
use kube::{Api, Client};

use crate::eventually::try_eventually;
use crate::{HubError, users};

/// The API server learns of a binding through a watch of its own, some milliseconds after it is written.
const PATIENCE: Duration = Duration::from_secs(30);

/// Gives a user the rights of `rules` everywhere, by a `ClusterRole` and a binding called `name`.
pub(crate) async fn grant(
    harness: &Client,
    user: (&str, &Client),
    name: &str,
    rules: Vec<PolicyRule>,
) -> Result<(), HubError> {
    let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    let role = ClusterRole { metadata, rules: Some(rules.clone()), aggregation_rule: None };
    Api::all(harness.clone())
        .create(&PostParams::default(), &role)
        .await
        .map_err(HubError::api(format!("create ClusterRole {name}")))?;
    bind(harness, user, name, name, &rules).await
}

/// Makes [`users::OCM`] a cluster admin.
pub(crate) async fn grant_everything(harness: &Client, ocm: &Client) -> Result<(), HubError> {
    let any = || Some(vec!["*".to_owned()]);
    let everything = PolicyRule {
        api_groups: any(),
        resources: any(),
        verbs: vec!["*".to_owned()],
        ..PolicyRule::default()
    };
    bind(harness, (users::OCM, ocm), "local-hub:ocm", "cluster-admin", &[everything]).await
}

async fn bind(
    harness: &Client,
    (user, as_user): (&str, &Client),
    name: &str,
    role: &str,
    rules: &[PolicyRule],
) -> Result<(), HubError> {
    let rbac = || "rbac.authorization.k8s.io".to_owned();
    let binding = ClusterRoleBinding {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        role_ref: RoleRef { api_group: rbac(), kind: "ClusterRole".to_owned(), name: role.to_owned() },
        subjects: Some(vec![Subject {
            api_group: Some(rbac()),
            kind: "User".to_owned(),
            name: user.to_owned(),
            namespace: None,
        }]),
    };
    Api::all(harness.clone())
        .create(&PostParams::default(), &binding)
        .await
        .map_err(HubError::api(format!("create ClusterRoleBinding {name}")))?;

    // The server's own view of what the user may do, as the rules were written.
    let reviews: Api<SelfSubjectRulesReview> = Api::all(as_user.clone());
    let question = SelfSubjectRulesReview {
        spec: SelfSubjectRulesReviewSpec { namespace: Some("default".to_owned()) },
        ..SelfSubjectRulesReview::default()
    };
    try_eventually(&format!("{user} has the rights of {name}"), PATIENCE, async || {
        let review = reviews.create(&PostParams::default(), &question).await?;
        Ok::<_, kube::Error>(rules.iter().all(|rule| is_in_force(rule, &review)))
    })
    .await?;
    Ok(())
}

/// Whether a rule is among those that a review lists. It lists resources and other URLs apart.
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
