//! Which permissions the syncer has, in which namespaces, and for how long.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use hub_api::names::Namespace;
use hub_core::access::Known;
use hub_core::rights::{
    BindingAction, CLEARED_NAMESPACES, Cleared, EVERYWHERE, GRACE, MissingRole, Needs,
    ObservedRoleBinding, ObservedTokensRole, RulesAction, cleared_namespaces, plan_tokens,
    token_rules,
};
use hub_core::version::Version;
use k8s_openapi::api::rbac::v1::RoleBinding;
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

fn observed(object: Option<RoleBinding>) -> ObservedRoleBinding {
    ObservedRoleBinding { version: version(), is_ours: true, object }
}

fn plan(has: bool, role: &Known<String>, observed: Option<&ObservedRoleBinding>) -> BindingAction {
    try_plan(has, role, observed).unwrap()
}

fn try_plan(
    has: bool,
    role: &Known<String>,
    observed: Option<&ObservedRoleBinding>,
) -> Result<BindingAction, MissingRole> {
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
        !self.0.advance(ran, &Cleared::In(["team".into()].into())).is_empty()
    }

    /// The syncer has run for this long, and cannot delete something, or does not know.
    fn advance_uncleared(&mut self, ran: Duration) {
        assert_eq!(self.0.advance(ran, &Cleared::In(BTreeSet::new())), []);
    }
}

#[test]
fn a_namespace_that_has_the_permission_gets_its_role_binding_once() {
    assert_eq!(plan(true, &role(), None), BindingAction::Create(Box::new(ours())));
    assert_eq!(plan(true, &role(), Some(&observed(Some(ours())))), BindingAction::Nothing);
}

#[test]
fn the_role_binding_has_the_name_of_its_role_and_the_namespace_of_the_copies() {
    let metadata = ours().metadata;
    assert_eq!(metadata.name, Some(settings().copies_role));
    assert_eq!(metadata.namespace.as_deref(), Some("team"));
}

#[test]
fn the_api_group_of_the_subject_is_empty_or_the_role_binding_is_replaced() {
    for (group, action) in [
        ("", BindingAction::Nothing),
        ("rbac.authorization.k8s.io", BindingAction::DeleteByUid(version().uid)),
    ] {
        let mut binding = ours();
        binding.subjects.as_mut().unwrap()[0].api_group = Some(group.to_owned());
        assert_eq!(plan(true, &role(), Some(&observed(Some(binding)))), action, "{group:?}");
    }
}

#[test]
fn a_namespace_that_never_needed_the_permission_gets_none() {
    assert!(!Team::default().has(false, false));
    for role in [role(), Known::Absent, Known::Unknown] {
        assert_eq!(plan(false, &role, None), BindingAction::Nothing, "{role:?}");
    }
}

#[test]
fn a_role_binding_without_a_permission_is_deleted() {
    for binding in [Some(ours()), None] {
        for role in [role(), Known::Unknown] {
            let action = plan(false, &role, Some(&observed(binding.clone())));
            assert_eq!(action, BindingAction::DeleteByUid(version().uid));
        }
    }
}

#[test]
fn a_role_binding_that_gives_something_else_is_deleted_whether_needed_or_not() {
    let mut other = ours();
    other.role_ref.name = "cluster-admin".to_owned();
    for has in [true, false] {
        let action = plan(has, &role(), Some(&observed(Some(other.clone()))));
        assert_eq!(action, BindingAction::DeleteByUid(version().uid), "{has}");
    }
}

#[test]
fn a_role_binding_that_cannot_be_read_is_kept_while_the_namespace_has_the_permission() {
    assert_eq!(plan(true, &role(), Some(&observed(None))), BindingAction::Nothing);
}

#[test]
fn without_knowledge_of_the_role_no_role_binding_is_created_or_replaced() {
    let mut other = ours();
    other.role_ref.name = "cluster-admin".to_owned();
    for binding in [None, Some(observed(Some(other))), Some(observed(None))] {
        assert_eq!(plan(true, &Known::Unknown, binding.as_ref()), BindingAction::Nothing);
    }
    assert_eq!(try_plan(true, &Known::Absent, None), Err(MissingRole));
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
    for object in [Some(unlabelled.clone()), None] {
        let foreign = ObservedRoleBinding::read(&unlabelled.metadata, object);
        assert!(!foreign.is_ours);
        assert_eq!(
            plan(true, &role(), Some(&foreign)),
            BindingAction::DeleteByUid(foreign.version.uid.clone())
        );
        for role in [role(), Known::Absent] {
            assert_eq!(plan(false, &role, Some(&foreign)), BindingAction::Nothing);
        }
    }
    assert!(ObservedRoleBinding::read(&ours().metadata, None).is_ours);
}

#[test]
fn the_annotation_of_the_lease_names_what_is_cleared() {
    let lease = |value: Option<String>| ObjectMeta {
        annotations: value.map(|value| BTreeMap::from([(CLEARED_NAMESPACES.to_owned(), value)])),
        ..ObjectMeta::default()
    };
    for names in [&[][..], &["a"], &["a", "b-c"]] {
        let names: BTreeSet<_> = names.iter().map(|name| Namespace::from(*name)).collect();
        assert_eq!(
            Cleared::read(&lease(cleared_namespaces(names.iter().cloned()))),
            Cleared::In(names)
        );
    }
    let many = (0..10_000).map(|index| Namespace::from(format!("{index:063}").as_str()));
    let value = cleared_namespaces(many).unwrap();
    assert!(value.len() < 64 * 1024, "{}", value.len());
    assert!(matches!(Cleared::read(&lease(Some(value))), Cleared::In(names) if names.len() == 500));
    assert_eq!(Cleared::read(&lease(Some(EVERYWHERE.to_owned()))), Cleared::Everywhere);
}

fn tokens_role(names: &[&str]) -> ObservedTokensRole {
    ObservedTokensRole { version: version(), rules: token_rules(&account_names(names)) }
}

fn account_names(names: &[&str]) -> BTreeSet<hub_api::names::AccountName> {
    names.iter().map(|name| (*name).into()).collect()
}

#[test]
fn the_role_names_the_accounts_that_ask_and_no_others() {
    let role = Known::Present(tokens_role(&["a", "gone"]));
    let names = account_names(&["a", "b"]);
    assert_eq!(
        plan_tokens(&role, Some(&names)),
        Ok(RulesAction::Patch(version(), token_rules(&names)))
    );
    let role = Known::Present(tokens_role(&["a", "b"]));
    assert_eq!(plan_tokens(&role, Some(&names)), Ok(RulesAction::Nothing));
}

#[test]
fn an_incomplete_list_of_accounts_removes_no_name() {
    assert_eq!(plan_tokens(&Known::Present(tokens_role(&["a"])), None), Ok(RulesAction::Nothing));
}

#[test]
fn a_role_that_cannot_be_read_is_not_missing() {
    for names in [None, Some(account_names(&[])), Some(account_names(&["a"]))] {
        assert_eq!(plan_tokens(&Known::Unknown, names.as_ref()), Ok(RulesAction::Nothing));
        assert_eq!(plan_tokens(&Known::Absent, names.as_ref()), Err(MissingRole));
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
                BindingAction::Create(object) => binding = Some(*object),
                BindingAction::DeleteByUid(_) => binding = None,
                _ => {}
            }
            prop_assert_eq!(binding.is_some(), has);
            if !has && !exists {
                (idle, has_ended, is_known) = (None, false, false);
            }
        }
    }
}
