//! Which permission the syncer has where, and for how long.

#![cfg(test)]

use std::collections::BTreeSet;
use std::time::Duration;

use hub_core::access::Known;
use hub_core::protected::ProtectedNamespaces;
use hub_core::rights::{
    BindingAction, GRACE, Need, Needs, ObservedRoleBinding, ObservedTokensRole, PermissionSettings,
    TokensAction, plan_tokens, token_rules,
};
use hub_core::version::Version;
use k8s_openapi::api::rbac::v1::RoleBinding;
use proptest::prelude::*;

const MINUTE: Duration = Duration::from_mins(1);
/// A minute less than [`GRACE`].
const ALMOST_GRACE: Duration = Duration::from_mins(4);

fn settings() -> PermissionSettings {
    PermissionSettings {
        namespace: "addons".into(),
        service_account: "syncer".to_owned(),
        copies_role: "copies".to_owned(),
        tokens_role: "tokens".to_owned(),
        protected: ProtectedNamespaces::default(),
        require_namespaces: false,
        consumer_roles: Vec::new(),
    }
}

fn role() -> Known<String> {
    Known::Present("role-1".to_owned())
}

fn version() -> Version {
    Version { uid: "u1".to_owned(), resource_version: "7".to_owned() }
}

fn ours() -> RoleBinding {
    settings().binding(&"team".into(), "role-1")
}

fn observed(object: Option<RoleBinding>) -> ObservedRoleBinding {
    ObservedRoleBinding { version: version(), object }
}

fn plan(need: Need, role: &Known<String>, observed: Option<&ObservedRoleBinding>) -> BindingAction {
    settings().plan_binding(&"team".into(), need, role, observed)
}

#[test]
fn a_namespace_that_needs_the_permission_gets_it_once() {
    assert_eq!(plan(Need::Needed, &role(), None), BindingAction::Create(Box::new(ours())));
    assert_eq!(plan(Need::Needed, &role(), Some(&observed(Some(ours())))), BindingAction::Nothing);
}

#[test]
fn a_namespace_that_never_needed_the_permission_gets_none() {
    for role in [role(), Known::Absent, Known::Unknown] {
        assert_eq!(plan(Need::Never, &role, None), BindingAction::Nothing, "{role:?}");
    }
}

#[test]
fn an_unneeded_permission_is_withdrawn_after_its_grace() {
    let binding = observed(Some(ours()));
    let idle = |idle| plan(Need::Idle(idle), &role(), Some(&binding));
    assert_eq!(idle(Duration::ZERO), BindingAction::LookAgainAfter(GRACE));
    assert_eq!(idle(ALMOST_GRACE), BindingAction::LookAgainAfter(MINUTE));
    for over in [GRACE, GRACE + MINUTE] {
        assert_eq!(idle(over), BindingAction::Delete(version()));
        assert_eq!(plan(Need::Idle(over), &role(), Some(&observed(None))), BindingAction::Delete(version()));
        assert_eq!(plan(Need::Idle(over), &role(), None), BindingAction::Nothing);
    }
}

#[test]
fn a_role_binding_that_is_deleted_early_is_restored_while_it_is_needed_and_in_its_grace() {
    for need in [Need::Needed, Need::Idle(Duration::ZERO), Need::Idle(ALMOST_GRACE)] {
        assert_eq!(plan(need, &role(), None), BindingAction::Create(Box::new(ours())), "{need:?}");
    }
}

#[test]
fn a_role_binding_that_gives_something_else_is_deleted_whether_needed_or_not() {
    let mut other = ours();
    other.role_ref.name = "cluster-admin".to_owned();
    for need in [Need::Needed, Need::Idle(MINUTE), Need::Idle(GRACE), Need::Never] {
        let action = plan(need, &role(), Some(&observed(Some(other.clone()))));
        assert_eq!(action, BindingAction::Delete(version()), "{need:?}");
    }
}

#[test]
fn a_role_binding_that_cannot_be_read_is_kept_while_it_is_needed_and_in_its_grace() {
    assert_eq!(plan(Need::Needed, &role(), Some(&observed(None))), BindingAction::Nothing);
    let action = plan(Need::Idle(MINUTE), &role(), Some(&observed(None)));
    assert_eq!(action, BindingAction::LookAgainAfter(ALMOST_GRACE));
}

#[test]
fn without_knowledge_of_the_role_no_role_binding_is_created_or_deleted() {
    for need in [Need::Needed, Need::Idle(MINUTE), Need::Idle(GRACE), Need::Never] {
        for binding in [None, Some(observed(Some(ours()))), Some(observed(None))] {
            assert_eq!(plan(need, &Known::Unknown, binding.as_ref()), BindingAction::Nothing, "{need:?}");
        }
    }
    assert_eq!(plan(Need::Needed, &Known::Absent, None), BindingAction::MissingRole);
}

#[test]
fn the_grace_begins_when_the_need_ends_also_where_the_role_binding_is_missing_then() {
    let (mut needs, team) = (Needs::default(), "team".into());
    assert_eq!(needs.need(&team, true, true), Need::Needed);
    needs.advance(MINUTE, true);
    assert_eq!(needs.need(&team, false, false), Need::Idle(Duration::ZERO));
    needs.advance(MINUTE, true);
    assert_eq!(needs.need(&team, false, false), Need::Idle(MINUTE));
    needs.advance(GRACE, true);
    assert_eq!(needs.need(&team, false, false), Need::Never);
}

#[test]
fn a_role_binding_from_before_a_restart_has_its_whole_grace() {
    let (mut needs, team) = (Needs::default(), "team".into());
    needs.advance(GRACE, true);
    assert_eq!(needs.need(&team, false, true), Need::Idle(Duration::ZERO));
    needs.advance(GRACE, true);
    assert_eq!(needs.need(&team, false, true), Need::Idle(GRACE));
}

#[test]
fn the_grace_counts_only_while_the_syncer_runs() {
    let (mut needs, team) = (Needs::default(), "team".into());
    needs.need(&team, false, true);
    needs.advance(GRACE, false);
    assert_eq!(needs.need(&team, false, true), Need::Idle(Duration::ZERO));
    needs.advance(MINUTE, true);
    assert_eq!(needs.need(&team, false, true), Need::Idle(MINUTE));
}

#[test]
fn a_need_that_returns_restarts_the_grace() {
    let (mut needs, team) = (Needs::default(), "team".into());
    needs.need(&team, false, true);
    needs.advance(ALMOST_GRACE, true);
    assert_eq!(needs.need(&team, true, true), Need::Needed);
    needs.advance(GRACE, true);
    assert_eq!(needs.need(&team, false, true), Need::Idle(Duration::ZERO));
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
    assert_eq!(plan_tokens(&role, Some(&names)), TokensAction::Patch(version(), token_rules(&names)));
    let role = Known::Present(tokens_role(&["a", "b"]));
    assert_eq!(plan_tokens(&role, Some(&names)), TokensAction::Nothing);
}

#[test]
fn an_incomplete_list_of_accounts_removes_no_name() {
    assert_eq!(plan_tokens(&Known::Present(tokens_role(&["a"])), None), TokensAction::Nothing);
}

#[test]
fn a_role_that_cannot_be_read_is_not_missing() {
    for names in [None, Some(account_names(&[])), Some(account_names(&["a"]))] {
        assert_eq!(plan_tokens(&Known::Unknown, names.as_ref()), TokensAction::Nothing);
        assert_eq!(plan_tokens(&Known::Absent, names.as_ref()), TokensAction::MissingRole);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever users do to the RoleBinding, it exists whenever it is needed, and is finally deleted.
    #[test]
    fn the_plan_ends_where_the_need_says(
        steps in proptest::collection::vec((any::<bool>(), any::<bool>(), 0_u64..400, any::<bool>()), 1..20),
    ) {
        let (mut needs, team) = (Needs::default(), "team".into());
        let mut binding: Option<RoleBinding> = None;
        for (is_needed, deleted, passed, syncer_runs) in steps {
            if deleted {
                binding = None;
            }
            needs.advance(Duration::from_secs(passed), syncer_runs);
            let need = needs.need(&team, is_needed, binding.is_some());
            match plan(need, &role(), binding.clone().map(|object| observed(Some(object))).as_ref()) {
                BindingAction::Create(object) => binding = Some(*object),
                BindingAction::Delete(_) => binding = None,
                _ => {}
            }
            let idle_for_long = !matches!(need, Need::Needed) && !matches!(need, Need::Idle(idle) if idle < GRACE);
            prop_assert_eq!(binding.is_some(), !idle_for_long, "{:?}", need);
        }
    }
}
