//! Which permissions the syncer has, in which namespaces, and for how long.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use hub_api::names::Namespace;
use hub_core::credential::index::Listed;
use hub_core::known::Known;
use hub_core::rights::{
    CLEARED_NAMESPACES, COMPONENT, EVERYWHERE, GRACE, MissingRole, Needs, ObservedRole,
    RightsAction, cleared_by, cleared_namespaces, gives_copies, plan_tokens, token_rules,
};
use hub_core::version::Version;
use k8s_openapi::api::rbac::v1::{RoleBinding, Subject};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use proptest::prelude::*;

use crate::support::{cases, settings_of_permissions as settings};

const MINUTE: Duration = Duration::from_mins(1);
/// A minute less than [`GRACE`].
const ALMOST_GRACE: Duration = Duration::from_mins(4);

fn role() -> Known<String> {
    Known::Present("role-1".to_owned())
}

fn version() -> Version {
    Version { uid: "u1".into(), resource_version: "7".into() }
}

fn ours() -> RoleBinding {
    settings().binding(&"team".into(), "role-1")
}

fn observed(object: Option<RoleBinding>) -> ObservedRole {
    let unread = || ObservedRole::of_metadata(&ours().metadata);
    let mut observed = object.map_or_else(unread, ObservedRole::from);
    observed.version = version();
    observed
}

fn plan(has: bool, role: &Known<String>, observed: Option<&ObservedRole>) -> RightsAction {
    try_plan(has, role, observed).unwrap()
}

fn try_plan(
    has: bool,
    role: &Known<String>,
    observed: Option<&ObservedRole>,
) -> Result<RightsAction, MissingRole> {
    settings().plan_binding(&"team".into(), has, role, observed)
}

/// The state of one namespace.
#[derive(Default)]
struct Team(Needs);

impl Team {
    fn has(&mut self, is_needed: bool, exists: bool) -> bool {
        self.0.has(&"team".into(), is_needed, exists)
    }

    /// The syncer has run for this long, and has nothing left to delete. Returns whether the grace period is then over.
    fn advance(&mut self, ran: Duration) -> bool {
        !self.0.advance(ran, &Listed::Of(["team".into()].into())).is_empty()
    }

    /// The syncer has run for this long, and cannot delete something, or does not know.
    fn advance_uncleared(&mut self, ran: Duration) {
        assert_eq!(self.0.advance(ran, &Listed::Of(BTreeSet::new())), []);
    }
}

#[test]
fn the_role_binding_has_the_name_of_its_role_and_the_namespace_of_the_copies() {
    let metadata = ours().metadata;
    assert_eq!(metadata.name, Some(settings().copies_role));
    assert_eq!(metadata.namespace.as_deref(), Some("team"));
}

#[test]
fn a_role_binding_counts_only_with_our_role_labels_and_owner() {
    let gives = |edit: fn(&mut RoleBinding)| {
        let mut binding = ours();
        edit(&mut binding);
        gives_copies(&binding, &settings().copies_role)
    };
    assert!(gives(|_| {}));
    assert!(!gives(|it| it.role_ref.name = "another".to_owned()));
    assert!(!gives(|it| it.role_ref.kind = "Role".to_owned()));
    assert!(!gives(|it| it.metadata.labels = None));
    assert!(!gives(|it| it.metadata.owner_references = None));
}

#[test]
fn a_role_binding_exists_where_the_namespace_has_the_permission_and_is_replaced_if_it_gives_something_else()
 {
    let unread = || Some(observed(None));
    let edited = |edit: fn(&mut RoleBinding)| {
        let mut binding = ours();
        edit(&mut binding);
        Some(observed(Some(binding)))
    };
    let right = || edited(|_| {});
    let other = || edited(|it| it.role_ref.name = "cluster-admin".to_owned());
    let of_no_group =
        || edited(|it| it.subjects.as_mut().unwrap()[0].api_group = Some(String::new()));
    let of_a_group =
        || edited(|it| it.subjects.as_mut().unwrap()[0].api_group = Some("rbac".to_owned()));
    let of_two = || edited(|it| it.subjects.as_mut().unwrap().push(Subject::default()));
    let nothing = || Ok(RightsAction::Nothing);
    let deleted = || Ok(RightsAction::DeleteByUid(version().uid));
    for (has, role, binding, expected) in [
        (true, role(), None, Ok(RightsAction::Create(Box::new(ours())))),
        (true, role(), right(), nothing()),
        (true, role(), of_no_group(), nothing()),
        (true, role(), of_a_group(), deleted()),
        (true, role(), other(), deleted()),
        (true, role(), edited(|it| it.metadata.owner_references = None), deleted()),
        (true, role(), edited(|it| it.subjects = None), deleted()),
        (true, role(), of_two(), deleted()),
        // The role was recreated, and the garbage collector deletes what the old one owned.
        (true, Known::Present("role-2".to_owned()), right(), deleted()),
        // What cannot be read is kept, and without knowledge of the role nothing is created or replaced.
        (true, role(), unread(), nothing()),
        (true, Known::Unknown, None, nothing()),
        (true, Known::Unknown, other(), nothing()),
        (true, Known::Unknown, unread(), nothing()),
        (true, Known::Absent, None, Err(MissingRole)),
        (false, Known::Absent, None, nothing()),
        (false, Known::Unknown, None, nothing()),
        (false, Known::Unknown, right(), deleted()),
        (false, Known::Unknown, unread(), deleted()),
        (false, role(), right(), deleted()),
        (false, role(), unread(), deleted()),
        (false, role(), other(), deleted()),
    ] {
        let action = try_plan(has, &role, binding.as_ref());
        assert_eq!(action, expected, "{has}, {role:?}, {binding:?}");
    }
}

#[test]
fn a_permission_that_is_no_longer_needed_is_withdrawn_when_the_syncer_has_run_for_its_grace() {
    let mut team = Team::default();
    assert!(team.has(true, true));
    assert!(team.has(false, true));
    assert!(!team.advance(MINUTE), "what the syncer ran before the end of the need does not count");
    assert!(!team.advance(ALMOST_GRACE));
    assert!(team.has(false, true));
    assert!(team.advance(MINUTE));
    assert!(!team.has(false, true));
    assert!(!team.has(false, true), "until the RoleBinding is deleted");
    assert!(!team.advance(MINUTE), "its end is said once");
    assert!(!team.has(false, false), "and it is forgotten with the RoleBinding");
    assert!(!team.advance(GRACE));
    assert!(team.has(false, true), "another RoleBinding has a grace period of its own");
}

#[test]
fn no_time_passes_for_a_permission_while_the_syncer_has_something_left_to_delete() {
    let mut team = Team::default();
    assert!(team.has(true, true));
    assert!(team.has(false, true));
    for _ in 0..10 {
        team.advance_uncleared(GRACE);
        assert!(team.has(false, true));
        assert!(!team.advance(MINUTE), "the time before does not count");
        assert!(!team.advance(ALMOST_GRACE), "and an interruption starts the grace period anew");
    }
    assert!(team.advance(MINUTE));
    // Without the permission, the syncer says nothing about the namespace.
    team.advance_uncleared(MINUTE);
    assert!(!team.has(false, true));
}

#[test]
fn a_namespace_that_is_gone_gets_no_role_binding_unless_it_needs_one() {
    let mut team = Team::default();
    assert!(team.has(true, true));
    assert!(!team.0.end(&"team".into()), "a set is bound in a new namespace of that name");
    assert!(team.has(true, false));
    assert!(team.has(false, false), "it may have been deleted by hand");
    assert!(team.0.end(&"team".into()));
    assert!(!team.has(false, false));
}

#[test]
fn a_role_binding_of_another_owner_is_replaced_where_the_permission_is_needed_and_kept_elsewhere() {
    let mut unlabelled = ours();
    unlabelled.metadata.labels = None;
    for foreign in
        [ObservedRole::of_metadata(&unlabelled.metadata), ObservedRole::from(unlabelled.clone())]
    {
        assert!(!foreign.is_of(COMPONENT));
        let deleted = RightsAction::DeleteByUid(foreign.version.uid.clone());
        assert_eq!(plan(true, &role(), Some(&foreign)), deleted);
        for role in [role(), Known::Absent] {
            assert_eq!(plan(false, &role, Some(&foreign)), RightsAction::Nothing);
        }
    }
    assert!(ObservedRole::of_metadata(&ours().metadata).is_of(COMPONENT));
}

#[test]
fn the_annotation_of_the_lease_names_what_is_cleared() {
    let lease = |value: Option<String>| ObjectMeta {
        annotations: value.map(|value| BTreeMap::from([(CLEARED_NAMESPACES.to_owned(), value)])),
        ..ObjectMeta::default()
    };
    for names in [&[][..], &["a"], &["a", "b-c"]] {
        let names: BTreeSet<_> = names.iter().map(|name| Namespace::from(*name)).collect();
        let written = cleared_namespaces(names.iter().cloned());
        assert_eq!(cleared_by(&lease(written)), Listed::Of(names));
    }
    let many = (0..10_000).map(|index| Namespace::from(format!("{index:063}").as_str()));
    let value = cleared_namespaces(many).unwrap();
    assert!(value.len() < 64 * 1024, "{}", value.len());
    assert!(matches!(cleared_by(&lease(Some(value))), Listed::Of(names) if names.len() == 500));
    assert_eq!(cleared_by(&lease(Some(EVERYWHERE.to_owned()))), Listed::All);
}

fn tokens_role(names: &[&str]) -> ObservedRole {
    let mut role = observed(None);
    role.rules = token_rules(&account_names(names));
    role
}

fn account_names(names: &[&str]) -> BTreeSet<hub_api::names::AccountName> {
    names.iter().map(|name| (*name).into()).collect()
}

#[test]
fn tokens_are_named_each_and_no_account_means_no_permission_and_not_every_permission() {
    let rules = token_rules(&account_names(&["b", "a"]));
    assert_eq!(rules[0].resource_names, Some(vec!["a".to_owned(), "b".to_owned()]));
    assert_eq!(rules[0].verbs, ["list", "watch"]);
    assert_eq!(token_rules(&account_names(&[])), []);
}

#[test]
fn the_role_names_the_accounts_that_ask_and_an_incomplete_list_removes_no_name() {
    let of = |names: &[&str]| Known::Present(tokens_role(names));
    let (unlisted, none, both) = (None, Some(account_names(&[])), Some(account_names(&["a", "b"])));
    let rules = token_rules(&account_names(&["a", "b"]));
    for (role, asking, expected) in [
        (of(&["a", "gone"]), &both, Ok(RightsAction::Patch(version(), rules))),
        (of(&["a", "b"]), &both, Ok(RightsAction::Nothing)),
        (of(&["a"]), &unlisted, Ok(RightsAction::Nothing)),
        // A role that cannot be read is not missing.
        (Known::Unknown, &unlisted, Ok(RightsAction::Nothing)),
        (Known::Unknown, &none, Ok(RightsAction::Nothing)),
        (Known::Unknown, &both, Ok(RightsAction::Nothing)),
        (Known::Absent, &unlisted, Err(MissingRole)),
        (Known::Absent, &none, Err(MissingRole)),
        (Known::Absent, &both, Err(MissingRole)),
    ] {
        assert_eq!(plan_tokens(&role, asking.as_ref()), expected, "{role:?}, {asking:?}");
    }
}

proptest! {
    #![proptest_config(cases(256))]

    /// Whatever users do to the RoleBinding, the syncer has it until the syncer has run for the grace period since the
    /// end of the need, and no longer.
    #[test]
    fn the_plan_ends_where_the_need_says(
        is_left_by_an_earlier_process in any::<bool>(),
        steps in proptest::collection::vec((any::<bool>(), any::<bool>(), 0_u64..400, any::<bool>()), 1..20),
    ) {
        let mut team = Team::default();
        let mut binding = is_left_by_an_earlier_process.then(ours);
        // How long the syncer has run since the last observation of the need, counted from its first renewal.
        let (mut idle, mut has_ended, mut is_known) = (None, false, false);
        for (is_needed, deleted, ran, renews) in steps {
            if renews {
                team.advance(Duration::from_secs(ran));
                if has_ended {
                    idle = Some(idle.map_or(0, |idle: u64| idle + ran));
                }
            }
            if deleted {
                binding = None;
            }
            let exists = binding.is_some();
            if is_needed {
                (idle, has_ended, is_known) = (None, false, true);
            } else if is_known || exists {
                (has_ended, is_known) = (true, true);
            }
            let has = team.has(is_needed, exists);
            prop_assert_eq!(has, is_known && idle.is_none_or(|idle| idle < GRACE.as_secs()), "{:?}", idle);
            match plan(has, &role(), binding.clone().map(|object| observed(Some(object))).as_ref()) {
                RightsAction::Create(object) => binding = Some(*object),
                RightsAction::DeleteByUid(_) => binding = None,
                _ => {}
            }
            prop_assert_eq!(binding.is_some(), has);
            if !has && !exists {
                (idle, has_ended, is_known) = (None, false, false);
            }
        }
    }
}
