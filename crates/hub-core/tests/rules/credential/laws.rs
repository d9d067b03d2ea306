//! Laws for the copies of every hub, whatever its history.

use std::collections::{BTreeMap, BTreeSet};

use hub_api::labels::{
    SYNC_TO_CLUSTER_PROFILE, SYNC_TO_NAMESPACES, SYNCED_ACCOUNT, SYNCED_CLUSTER,
};
use hub_api::names::{AccountKey, SecretKey};
use hub_core::credential::plan::{CopyAction, priority};
use hub_core::grant::{Grant, decide};
use hub_core::priority::Priority;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

use crate::support::arbitrary_credentials::{Hub, accounts, hub, objects, secret_keys};
use crate::support::credential::{World, account_key, base64};
use crate::support::{cases, key, with};

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

/// The account that a Secret records.
fn recorded(secret: &Value) -> AccountKey {
    let annotations = &secret["metadata"]["annotations"];
    account_key(text(annotations, SYNCED_CLUSTER), text(annotations, SYNCED_ACCOUNT))
}

/// Whether a Secret has all metadata of a copy. Without, its record counts for nothing: anybody may have written it.
fn is_marked(secret: &Value) -> bool {
    let metadata = &secret["metadata"];
    let name = text(metadata, "name");
    recorded(secret).copy_name() == name
        && metadata["labels"]["authentication.open-cluster-management.io/synced-from"] == name
}

/// Whether a Secret is ours, by its content: all metadata of a copy, the data of a token whose copy has its name, or
/// exactly the form of a copy of OCM's syncer.
fn is_ours(hub: &Hub, secret: &Value) -> bool {
    let name = text(&secret["metadata"], "name");
    let holds_token_of = |account: &AccountKey| {
        let (cluster, account) = (account.cluster.as_str(), account.account.as_str());
        hub.find("Secret", cluster, account).is_some_and(|token| {
            let mut data = token["data"].clone();
            data.as_object_mut().is_some_and(|data| {
                data.retain(|key, _| key == "token" || key == "ca.crt");
                data["token"].as_str().is_some_and(|token| !token.is_empty())
            }) && secret["data"] == data
        })
    };
    let mut named = accounts().filter(|account| account.copy_name() == name);
    let is_it = |account: AccountKey| holds_token_of(&account);
    secret["type"] == "Opaque" && (is_marked(secret) || named.any(is_it)) || is_of_ocm(hub, secret)
}

/// Whether OCM's syncer creates copies in exactly this form, for a profile that is there.
fn is_of_ocm(hub: &Hub, secret: &Value) -> bool {
    let metadata = &secret["metadata"];
    let namespace = text(metadata, "namespace");
    let Some([owner]) = metadata["ownerReferences"].as_array().map(Vec::as_slice) else {
        return false;
    };
    let Some(profile) = hub.find("ClusterProfile", namespace, text(owner, "name")) else {
        return false;
    };
    let manager = profile["metadata"]["labels"]["x-k8s.io/cluster-manager"].as_str();
    let expected = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": {
            "namespace": namespace, "name": metadata["name"], "uid": metadata["uid"],
            "resourceVersion": metadata["resourceVersion"],
            "labels": { "authentication.open-cluster-management.io/synced-from": metadata["name"] },
            "ownerReferences": [{
                "apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ClusterProfile", "controller": true,
                "name": owner["name"], "uid": profile["metadata"]["uid"],
            }],
        },
        "data": { "token": secret["data"]["token"], "ca.crt": secret["data"]["ca.crt"] },
    });
    let unmanaged = json!({ "metadata": { "managedFields": null } });
    manager.is_none_or(|manager| manager == "open-cluster-management")
        && secret["data"]["token"].is_string()
        && secret["data"]["ca.crt"].is_string()
        && with(secret.clone(), &unmanaged) == expected
}

fn is_terminating(secret: &Value) -> bool {
    !secret["metadata"]["deletionTimestamp"].is_null()
}

/// A hub, and the expected state of a copy there, computed from the hub's objects.
struct Judge<'a> {
    hub: &'a Hub,
    world: &'a World,
}

impl Judge<'_> {
    fn account(&self, key: &AccountKey) -> Option<&Value> {
        self.hub.find("ManagedServiceAccount", key.cluster.as_str(), key.account.as_str())
    }

    fn token(&self, key: &AccountKey) -> Option<&Value> {
        self.hub.find("Secret", key.cluster.as_str(), key.account.as_str())
    }

    fn profile(&self, key: &SecretKey, account: &AccountKey) -> Option<&Value> {
        self.hub.find("ClusterProfile", key.namespace.as_str(), account.cluster.as_str())
    }

    fn grant(&self, copy_key: &SecretKey, account: &AccountKey) -> Grant {
        decide(&self.world.fleet, &key(copy_key.namespace.as_str(), account.cluster.as_str()))
    }

    /// Whether nothing says clearly that the account must not have a copy there.
    fn may_be(&self, key: &SecretKey, account: &AccountKey) -> bool {
        let metadata = |object: Option<&Value>| object.map(|object| object["metadata"].clone());
        let asks = metadata(self.account(account)).map_or(!self.hub.accounts_listed, |metadata| {
            let namespaces = metadata["annotations"][SYNC_TO_NAMESPACES].as_str();
            metadata["labels"][SYNC_TO_CLUSTER_PROFILE] == "true"
                && metadata["deletionTimestamp"].is_null()
                && namespaces.map_or(!self.hub.require_namespaces, |namespaces| {
                    namespaces.split(',').any(|namespace| namespace == key.namespace.as_str())
                })
        });
        let own_name = |account: &Value| match account["status"]["tokenSecretRef"]["name"].as_str()
        {
            Some(name) => name == account["metadata"]["name"],
            None => true,
        };
        // Before the list is complete, or when it is out of date, not even a token that is known counts.
        let has_token = !self.hub.sources_listed
            || self.token(account).is_some_and(|token| {
                let uid = self.account(account).map(|account| &account["metadata"]["uid"]);
                let owner = &token["metadata"]["ownerReferences"][0]["uid"];
                let is_agents =
                    token["type"] == "Opaque" && token["metadata"]["labels"] != json!({});
                let readable = !token["data"].is_string();
                !readable || is_agents && uid.is_none_or(|uid| uid == owner)
            });
        let profile = metadata(self.profile(key, account));
        asks && has_token
            && self.grant(key, account) != Grant::Refused
            && self.account(account).is_none_or(own_name)
            && profile.is_some_and(|profile| {
                let manager = &profile["labels"]["x-k8s.io/cluster-manager"];
                profile["deletionTimestamp"].is_null()
                    && (manager.is_null() || manager == "open-cluster-management")
            })
    }

    /// Whether the account and its token can be read, so that at most the grant is unknown.
    fn is_readable(&self, account: &AccountKey) -> bool {
        self.hub.accounts_listed
            && self.hub.sources_listed
            && self.account(account).is_some_and(|account| !account["status"].is_string())
            && self.token(account).is_some_and(|token| {
                token["data"]["token"].as_str().is_some_and(|token| !token.is_empty())
            })
    }

    /// Whether a new copy could be created there.
    fn could_be_made(&self, key: &SecretKey, account: &AccountKey) -> bool {
        let manager = |profile: &Value| {
            let manager = &profile["metadata"]["labels"]["x-k8s.io/cluster-manager"];
            manager == "open-cluster-management"
        };
        self.grant(key, account) == Grant::Granted
            && self.profile(key, account).is_some_and(manager)
    }

    /// What is wrong with a copy as the one of this account.
    fn faults(&self, key: &SecretKey, secret: &Value, account: &AccountKey) -> Vec<&'static str> {
        let (metadata, none) = (&secret["metadata"], Value::Null);
        let token = self.token(account).map_or(&none, |token| &token["data"]);
        let mut data = json!({ "token": token["token"], "ca.crt": token["ca.crt"] });
        data.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        let owners = json!([{
            "apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ClusterProfile", "controller": true,
            "name": account.cluster.as_str(),
            "uid": self.profile(key, account).map_or(&none, |profile| &profile["metadata"]["uid"]),
        }]);
        let uid = self.account(account).map_or(&none, |account| &account["metadata"]["uid"]);
        let annotations = &metadata["annotations"];
        [
            ("data", secret["data"] == data),
            ("type", secret["type"] == "Opaque"),
            ("record", recorded(secret) == *account),
            (
                "uid",
                annotations["authentication.open-cluster-management.io/managed-serviceaccount-uid"]
                    == *uid,
            ),
            ("owner", metadata["ownerReferences"] == owners),
            (
                "label",
                metadata["labels"]["authentication.open-cluster-management.io/synced-from"]
                    == *key.name,
            ),
        ]
        .into_iter()
        .filter_map(|(what, right)| (!right).then_some(what))
        .collect()
    }
}

/// The objects that a hub had are replaced by those of another.
fn make_known(world: &mut World, before: &[Option<Value>], after: &[Option<Value>]) {
    for (before, after) in before.iter().zip(after) {
        match (before, after) {
            (_, Some(object)) => drop(world.arrive(object)),
            (Some(gone), None) => drop(world.leave(gone)),
            (None, None) => {}
        }
    }
}

/// The Secrets, without what an API server gives them.
fn contents(world: &World) -> BTreeMap<SecretKey, Value> {
    let server = json!({ "metadata": { "uid": null, "resourceVersion": null } });
    world.secrets.iter().map(|(key, secret)| (key.clone(), with(secret.clone(), &server))).collect()
}

proptest! {
    #![proptest_config(cases(96))]

    /// Settling asserts that the writes come to an end, and that each of them makes a difference and is valid.
    #[test]
    fn after_what_is_planned_is_written_nothing_is_left_to_do(hub in hub()) {
        let mut world = hub.world();
        world.settle();
        for key in secret_keys() {
            prop_assert_eq!(world.plan(&key).action, CopyAction::Nothing, "{}", key);
        }
    }

    #[test]
    fn a_secret_that_is_not_ours_keeps_every_byte(hub in hub()) {
        let mut world = hub.world();
        let before = world.secrets.clone();
        world.settle();
        for (key, secret) in before.iter().filter(|(_, secret)| !is_ours(&hub, secret)) {
            prop_assert_eq!(world.secret(key), secret);
        }
    }

    /// The final Secret is a complete copy of a permitted account, or unchanged if the desired state is unknown.
    #[test]
    fn what_is_ours_is_right_or_as_it_was_where_something_is_not_known(hub in hub()) {
        let mut world = hub.world();
        let before = world.secrets.clone();
        world.settle();
        let judge = Judge { hub: &hub, world: &world };
        for (key, secret) in world.secrets.iter().filter(|(_, secret)| is_ours(&hub, secret)) {
            let is_recorded = is_marked(secret);
            let holders: Vec<_> = if is_recorded {
                vec![recorded(secret)]
            } else {
                accounts().filter(|account| account.copy_name() == *key.name).collect()
            };
            let may_be = holders.iter().any(|account| judge.may_be(key, account));
            if is_terminating(secret) {
                let empty = secret["data"].is_null() || secret["immutable"] == true;
                prop_assert!(empty || may_be || !hub.accounts_listed, "{key} is full: {secret}");
                continue;
            }
            prop_assert!(may_be || !hub.accounts_listed, "{key} may not be there: {secret}");
            let right = holders.iter().any(|account| {
                judge.may_be(key, account) && judge.faults(key, secret, account).is_empty()
            });
            let doubtful = (!is_recorded && !hub.accounts_listed) || holders.iter().any(|account| {
                !judge.is_readable(account) || !judge.could_be_made(key, account)
            });
            let as_it_was = before.get(key) == Some(secret);
            prop_assert!(right || as_it_was && doubtful, "{key}: {secret}");
        }
    }

    #[test]
    fn a_copy_that_should_be_there_is_there(hub in hub()) {
        let mut world = hub.world();
        world.settle();
        let judge = Judge { hub: &hub, world: &world };
        for key in secret_keys() {
            let named = || accounts().filter(|account| account.copy_name() == *key.name);
            let wanted = named().find(|account| {
                judge.may_be(&key, account)
                    && judge.is_readable(account)
                    && judge.could_be_made(&key, account)
            });
            // An older account of the same copy name keeps the key while its token may still be listed.
            let waits = named().any(|account| judge.may_be(&key, &account) && judge.token(&account).is_none());
            prop_assert!(wanted.is_none() || waits || world.secrets.contains_key(&key), "{key} of {wanted:?}");
        }
    }

    /// Versions arrive late, repeatedly and in another order; the final state counts.
    #[test]
    fn where_no_copy_was_the_copies_depend_only_on_what_is_there(
        hub in hub(), earlier in objects(), order in Just((0..33).collect::<Vec<usize>>()).prop_shuffle(),
    ) {
        let mut straight = hub.knowing(hub.objects.iter().flatten());
        prop_assert_eq!(order.len(), hub.objects.len());
        let mut lived = hub.knowing(earlier.iter().rev().flatten());
        for index in order {
            match (&hub.objects[index], &earlier[index]) {
                (Some(object), _) => drop(lived.arrive(object)),
                (None, Some(gone)) => drop(lived.leave(gone)),
                (None, None) => {}
            }
        }
        straight.settle();
        lived.settle();
        prop_assert_eq!(&straight.secrets, &lived.secrets);
    }

    /// The lists of a start come in any order, and each of them one by one.
    #[test]
    fn what_is_planned_and_reported_does_not_depend_on_the_order_of_the_first_lists(
        hub in hub(), order in Just((0..Hub::PARTS).collect::<Vec<_>>()).prop_shuffle(),
    ) {
        let hub = Hub { accounts_listed: true, ..hub };
        let straight: Vec<_> = (0..Hub::PARTS).collect();
        let (one, other) = (hub.known_in(&straight), hub.known_in(&order));
        for key in secret_keys() {
            prop_assert_eq!(one.plan(&key), other.plan(&key), "{}", key);
        }
        for account in accounts() {
            prop_assert_eq!(one.report(&account), other.report(&account), "{}", account);
        }
    }

    /// An account is created or deleted; the copies of other clusters do not change, unless they share its name.
    #[test]
    fn an_account_matters_to_no_other_cluster_but_by_a_shared_name(
        hub in hub(), account in select(accounts().collect::<Vec<_>>()),
    ) {
        let mut without = hub.clone();
        for object in &mut without.objects {
            let is_its = |object: &Value| {
                matches!(object["kind"].as_str(), Some("ManagedServiceAccount" | "Secret"))
                    && crate::support::credential::names(object) == (account.cluster.as_str(), account.account.as_str())
            };
            object.take_if(|object| is_its(object));
        }
        let (mut with_it, mut without_it) = (hub.world(), without.world());
        with_it.settle();
        without_it.settle();
        let others = |world: &World| {
            let mut contents = contents(world);
            contents.retain(|key, _| *key.name != account.copy_name());
            contents
        };
        prop_assert_eq!(others(&with_it), others(&without_it));
    }

    /// A settled world changes into another one, which starts with the remaining Secrets.
    #[test]
    fn a_hub_that_changed_ends_as_safe_as_one_that_began_so(hub in hub(), next in objects()) {
        let mut world = hub.world();
        world.settle();
        make_known(&mut world, &hub.objects, &next);
        world.settle();
        let hub = Hub { objects: next, ..hub };
        let judge = Judge { hub: &hub, world: &world };
        for (key, secret) in &world.secrets {
            if !is_ours(&hub, secret) || is_terminating(secret) || !hub.accounts_listed {
                continue;
            }
            let may_be = accounts()
                .filter(|account| account.copy_name() == *key.name)
                .any(|account| judge.may_be(key, &account));
            prop_assert!(may_be, "{key}: {secret}");
        }
    }

    #[test]
    fn what_removes_a_token_goes_first_and_what_creates_a_copy_goes_next(hub in hub(), next in objects()) {
        let mut world = hub.world();
        for objects in [&hub.objects, &next] {
            for key in secret_keys() {
                let (plan, priority) = (world.plan(&key), priority(&world.index, &world.fleet, &key));
                prop_assert_eq!(plan.is_removal, priority == Priority::End, "{}: {:?}", key, plan);
                let creates = matches!(plan.action, CopyAction::Create(_));
                prop_assert!(!creates || priority == Priority::Start, "{}: {:?}", key, plan);
            }
            world.settle();
            make_known(&mut world, objects, &next);
        }
    }

    #[test]
    fn nothing_that_is_planned_or_known_shows_a_token(hub in hub(), at in any::<Index>()) {
        let world = hub.world();
        let keys = secret_keys();
        let plan = world.plan(at.get(&keys));
        let reports: Vec<_> = accounts().map(|account| world.report(&account)).collect();
        let shown = format!("{plan:?} {reports:?} {:?}", world.index);
        for secret in ["token-of-", "rotated-", "mallory's", "ca-of-"] {
            // Three bytes encode to four letters, so base64 begins with this, whatever follows.
            let whole = secret.len() / 3 * 3;
            let bytes = format!("{:?}", secret.as_bytes());
            for form in [secret, &base64(&secret[..whole]), bytes.trim_matches(['[', ']'])] {
                prop_assert!(!shown.contains(form), "{form} in {shown}");
            }
        }
    }
}

/// The laws are meaningful only if the generated hubs have these properties.
#[test]
fn generated_hubs_have_every_state_every_action_and_every_finding() {
    let mut runner = TestRunner::deterministic();
    let mut seen = BTreeSet::new();
    let mut shared = 0;
    for _ in 0..200 {
        let hub = hub().new_tree(&mut runner).unwrap().current();
        let world = hub.world();
        for key in secret_keys() {
            let plan = world.plan(&key);
            seen.insert(match plan.action {
                CopyAction::Nothing => "nothing",
                CopyAction::Create(_) => "create",
                CopyAction::Patch(..) | CopyAction::PatchStatus(..) => "patch",
                CopyAction::Delete(_) | CopyAction::DeleteByUid(_) => "delete",
            });
            seen.extend(plan.findings.iter().map(|note| note.reason.into_str()));
            seen.extend(plan.states.iter().map(|(_, state)| state.as_str()));
            shared += usize::from(plan.states.len() > 1);
        }
    }
    let expected = "CopyNameTaken CopyTerminating ForeignSecret account_unknown create delete foreign_profile \
        foreign_secret foreign_token grant_unknown name_taken no_profile no_token not_asked not_granted nothing \
        out_of_scope patch synced terminating token_elsewhere token_unknown unusable_token";
    assert_eq!(seen.into_iter().collect::<Vec<_>>().join(" "), expected);
    assert!(shared > 200, "{shared} shared names");
}
