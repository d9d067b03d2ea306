//! What is explained agrees with what the controllers plan.

use std::collections::BTreeMap;

use hub_api::names::{AccountKey, Namespace};
use hub_core::access::{AccessIndex, AccessSource, Offer, Withheld};
use hub_core::credential::index::CredentialIndex;
use hub_core::credential::plan::{CopyAction, plan as plan_copy};
use hub_core::credential::state::State;
use hub_core::explain::observed::{Observed, ShownProfile};
use hub_core::explain::{Explanation, Question, Status, Step, explain};
use hub_core::grant::{Grant, decide};
use hub_core::known::Known;
use hub_core::profile::{ProfileAction, plan};
use hub_core::project::ProjectionSettings;
use hub_core::trust::{TrustBundle, TrustError};
use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::json;

use super::scene::{RSA, Scene, access_without, cluster_proxy, home, now, one};
use crate::support::api::{observe, projection_of};
use crate::support::arbitrary::{hub, keys, pasts};
use crate::support::arbitrary_credentials::{
    Hub as HubWithCredentials, accounts, hub as hub_with_credentials, secret_keys,
};
use crate::support::credential::{names, secret_key};
use crate::support::{cases, key};

/// The worst mark of these steps. Every code is one that scripts can know.
fn marks_of(explanation: &Explanation, steps: &[Step]) -> Status {
    const PAGE: &str = include_str!("../../../../../docs/reference.md");
    let (_, codes) = PAGE.split_once("\n## Codes of explain\n").unwrap();
    for finding in &explanation.findings {
        let row = format!("\n| `{}` |", finding.code.as_str());
        assert!(codes.contains(&row), "{finding:?}");
    }
    let findings = explanation.findings.iter().filter(|finding| steps.contains(&finding.step));
    findings.map(|finding| finding.mark).max().unwrap_or(Status::Ok)
}

/// What is observed of a hub of which everything is known.
fn observed(arbitrary: &HubWithCredentials) -> Observed {
    let world = arbitrary.world();
    let access = access_without(true, Known::Unknown);
    let settings = ProjectionSettings::default();
    let mut hub = Observed::new(Timestamp::UNIX_EPOCH, settings, world.fleet, access, world.index);
    (hub.knows_clusters, hub.knows_sets) = (true, true);
    hub.bindings_of.set(None, true);
    hub.profiles_of.set(None, true);
    let profiles =
        arbitrary.objects.iter().flatten().filter(|object| object["kind"] == "ClusterProfile");
    for profile in profiles {
        let (namespace, name) = names(profile);
        let observed = ShownProfile { observed: observe(profile), last_writer: None };
        hub.profiles.insert(key(namespace, name), observed);
    }
    hub
}

proptest! {
    #![proptest_config(cases(96))]

    /// Binding, set and profile are in order exactly where the cluster is granted and the projector has nothing to do
    /// and nothing to report.
    #[test]
    fn what_is_said_of_profiles_agrees_with_the_projector((arbitrary, pasts) in (hub(1..=1), pasts())) {
        let fleet = arbitrary.fleet();
        let objects: BTreeMap<_, _> =
            pasts.iter().map(|(key, past)| (key.clone(), past.profile(&arbitrary, &fleet, key))).collect();
        let source = AccessSource::Static("https://proxy/{cluster}".parse().unwrap());
        let access = AccessIndex::new("ours", source, true);
        let settings = arbitrary.settings.clone();
        let mut hub = Observed::new(now(), settings, arbitrary.fleet(), access, CredentialIndex::default());
        (hub.knows_clusters, hub.knows_sets) = (true, true);
        hub.bindings_of.set(None, true);
        hub.profiles_of.set(None, true);
        for (key, object) in &objects {
            if let Some(object) = object {
                let metadata = serde_json::from_value(object["metadata"].clone()).unwrap();
                hub.apply_profile(key.clone(), &metadata, object);
            }
        }
        for key in keys() {
            let question = one(key.namespace.as_str(), key.cluster.as_str());
            let explanation = explain(&hub, &question);
            let plan = projection_of(&fleet, &key, &arbitrary.settings, objects[&key].as_ref());
            let is_settled = plan.action == ProfileAction::Nothing
                && plan.findings.is_empty()
                && hub.member_ids.finding(&key).is_none()
                && objects[&key].is_some()
                && decide(&fleet, &key) == Grant::Granted;
            let steps = [Step::Binding, Step::ClusterSet, Step::Profile];
            let mark = marks_of(&explanation, &steps);
            prop_assert_eq!(mark == Status::Ok, is_settled, "{} {:#?} {:?}", key, explanation, plan);
        }
    }

    /// The access provider is in order exactly where there is one and the provisioner has nothing to write.
    #[test]
    fn what_is_said_of_access_agrees_with_the_provisioner(
        addon in any::<bool>(), listed in any::<bool>(), copy_key in 0..3_usize, readable in any::<bool>(),
        published in 0..4,
    ) {
        let mut scene = Scene::in_order();
        let provider = |server: &str| json!([{ "name": "open-cluster-management", "cluster": { "server": server } }]);
        scene.profile = match published {
            0 => json!({}),
            1 => json!({ "status": { "accessProviders": null } }),
            2 => json!({ "status": { "accessProviders": provider("https://elsewhere/c1") } }),
            _ => json!({ "status": { "accessProviders": [{ "name": "eks", "cluster": { "server": "https://eks" } }] } }),
        };
        let mut hub = scene.observed();
        let mut access = cluster_proxy();
        let configurations: [Known<Namespace>; 3] = [home(), Known::Absent, Known::Unknown];
        access.set_configuration(configurations[copy_key].clone());
        access.set_addon(&"c1".into(), addon);
        if listed {
            access.set_addons_read(true);
        }
        let anchors = TrustBundle::from_published(RSA.as_bytes()).unwrap();
        access.set_anchors(access.place(), if readable { Ok(anchors) } else { Err(TrustError::NoCertificate) });
        hub.access = access;

        let pair = key("team", "c1");
        let observed = &hub.profiles[&pair].observed;
        let offer = hub.access.offer(&pair, observed);
        let entry = observed.access_provider("open-cluster-management");
        let desired = offer.clone().into_desired("open-cluster-management");
        let plan = plan(&pair, &hub.settings.manager, Some(observed), [desired]);
        // Where there is no cluster-proxy, what is published comes from a static source.
        let is_static = offer == Offer::Withdraw(Withheld::NoConfiguration);
        let is_settled = entry.is_some() && (is_static || plan.action == ProfileAction::Nothing);
        let explanation = explain(&hub, &one("team", "c1"));
        let mark = marks_of(&explanation, &[Step::AccessProvider]);
        prop_assert_eq!(mark == Status::Ok, is_settled, "{:?} {:#?}", offer, explanation);
    }

    /// A copy that the syncer removes is a problem of its cluster and namespace, also for the hub as a whole.
    #[test]
    fn a_copy_that_the_syncer_removes_is_always_a_problem(
        arbitrary in hub_with_credentials().prop_filter("every account is known", |hub| hub.accounts_listed),
    ) {
        let hub = observed(&arbitrary);
        let whole = explain(&hub, &Question::default());
        for key in secret_keys() {
            let record = hub.credentials.copy(&key).and_then(|copy| copy.record.as_ref());
            let Some(AccountKey { cluster, .. }) = record.map(|record| &record.account) else { continue };
            if !plan_copy(&hub.credentials, &hub.fleet, &key, hub.credentials.copy(&key)).is_removal {
                continue;
            }
            let is_about = |of: &Option<String>, name: &str| of.as_deref().is_none_or(|of| of == name);
            let single = explain(&hub, &one(key.namespace.as_str(), cluster.as_str()));
            for explanation in [&whole, &single] {
                let is_said = explanation.findings.iter().any(|it| {
                    it.mark == Status::Problem
                        && is_about(&it.namespace, key.namespace.as_str())
                        && is_about(&it.cluster, cluster.as_str())
                });
                prop_assert!(is_said, "{} {:#?}", key, explanation);
            }
        }
    }

    /// Account, token and copy are in order exactly where the copy is synced and the syncer has nothing to write.
    #[test]
    fn what_is_said_of_credentials_agrees_with_the_syncer(
        arbitrary in hub_with_credentials().prop_filter("every account is known", |hub| hub.accounts_listed),
    ) {
        let hub = observed(&arbitrary);
        for account in accounts() {
            for namespace in ["blues", "reds"] {
                let pair = key(namespace, account.cluster.as_str());
                if decide(&hub.fleet, &pair) == Grant::Refused || !hub.profiles.contains_key(&pair) {
                    continue;
                }
                let copy_key = secret_key(namespace, &account.copy_name());
                let plan = plan_copy(&hub.credentials, &hub.fleet, &copy_key, hub.credentials.copy(&copy_key));
                let state = plan.states.iter().find(|(key, _)| *key == account).map(|(_, state)| *state);
                let is_settled = state == Some(State::Synced) && plan.action == CopyAction::Nothing;
                let AccountKey { cluster, account } = &account;
                let question = Question { account: Some(account.clone()), ..one(namespace, cluster.as_str()) };
                let explanation = explain(&hub, &question);
                let mark = marks_of(&explanation, &[Step::Account, Step::Token, Step::Credential]);
                prop_assert_eq!(
                    mark == Status::Ok, is_settled, "{} {} {:?} {:?} {:#?}", pair, account, state, plan, explanation
                );
            }
        }
    }
}
