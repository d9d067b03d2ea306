//! One copy: from the index to the next write.

use hub_api::names::{AccountKey, Namespace, ProfileKey, SecretKey};
use hub_api::secret::Secret;

use crate::action::Action;
use crate::credential::account::{self, Account, Scope};
use crate::credential::copy::{ObservedCopy, Patch, Wanted};
use crate::credential::index::{CreatedCopy, CredentialIndex, Refused};
use crate::credential::state::State;
use crate::finding::{Finding, Reason};
use crate::fleet::Fleet;
use crate::grant::{self, Grant};
use crate::priority::Priority;

/// The next write for one key, and the states of its accounts.
#[derive(Debug, Default, PartialEq)]
pub struct CopyPlan {
    pub action: CopyAction,
    /// The account whose token is in the Secret, or will be after the next write.
    pub holder: Option<AccountKey>,
    /// Whether a Secret is not changed because it is not ours.
    pub is_foreign: bool,
    /// Whether the next write removes a token that must not be there.
    pub is_removal: bool,
    /// The state of every account whose copy has this name.
    pub states: Vec<(AccountKey, State)>,
    pub findings: Vec<Finding>,
}

impl CopyPlan {
    /// The account whose copy exists, or is about to.
    #[must_use]
    pub fn synced(&self) -> Option<&AccountKey> {
        self.states.iter().find(|(_, state)| *state == State::Synced).map(|(account, _)| account)
    }

    /// Records that a token remains where it must not be, since the API server refuses to delete it.
    fn mark_undeletable(&mut self, account: &AccountKey, refused: Option<Refused>) {
        let states =
            self.states.iter_mut().filter(|(key, _)| refused == Some(Refused::Delete) && key == account);
        states.for_each(|(_, state)| *state = State::DeleteRefused);
    }

    /// Records that the copies of the namespace cannot be read, or not by a process that starts now since the permission
    /// has ended: then the state of a copy is unknown.
    fn mark_unpermitted(&mut self, eligibilities: &Eligibilities<'_>) {
        let synced = self.states.iter_mut().filter(|(_, state)| *state == State::Synced);
        for (account, state) in synced {
            let eligibility = eligibilities.iter().find(|(key, _)| *key == account);
            *state =
                eligibility.map_or(State::CopiesUnknown, |(_, it)| it.without_copy(State::CopiesUnknown));
        }
    }

    /// The kind of the next write, for recording its refusal.
    #[must_use]
    pub fn refused(&self) -> Refused {
        if self.is_removal { Refused::Delete } else { Refused::Write }
    }
}

/// The next write. A Secret that this process created is deleted by its uid: watches may not return it, because its
/// label was removed, or it may be gone. Any other Secret is deleted only in the version whose marks show that it is a
/// copy.
pub type CopyAction = Action<Box<Secret>, Box<Patch>>;

/// Whether one account should have a copy in one namespace, whichever Secret has the key of that copy.
enum Eligibility<'a> {
    /// A copy should exist. A missing one is created unless there is an obstacle.
    Offered(Wanted<'a>, Option<State>),
    /// Unknown: an existing copy is kept.
    Kept(State),
    /// There should be no copy.
    Refused(State),
}

impl Eligibility<'_> {
    /// Whether a copy of the account may stay.
    fn keeps(&self, observed: &ObservedCopy) -> bool {
        match self {
            // A copy is never moved to a profile that is not ours.
            Self::Offered(wanted, Some(State::ForeignProfile)) => observed.is_owned_by(wanted),
            Self::Offered(..) | Self::Kept(_) => true,
            Self::Refused(_) => false,
        }
    }

    /// The state if the Secret with the key, if any, is not the account's copy.
    fn without_copy(&self, offered: State) -> State {
        match self {
            Self::Offered(_, obstacle) => obstacle.unwrap_or(offered),
            Self::Kept(state) | Self::Refused(state) => *state,
        }
    }
}

/// The origin of an observed Secret.
struct Origin {
    /// The account whose token it contains, or should.
    account: AccountKey,
    /// Whether its uid is that of a Secret that this process created.
    known: bool,
}

impl Origin {
    /// Determines the origin, from the strongest evidence to the weakest. Without any, the Secret is not ours.
    ///
    /// 1. The uid of a Secret that this process created: it is ours, whatever its content.
    /// 2. Label, annotations, name and type agree: another writer created it as a copy. It may be deleted, and never
    ///    gets a token (see [`ObservedCopy::must_be_replaced`]).
    /// 3. The data is that of a token whose copy has this name: another writer removed the label of a copy.
    fn find(index: &CredentialIndex, copy_key: &SecretKey, observed: &ObservedCopy) -> Option<Self> {
        if let Some(created) = index.created(copy_key).filter(|created| created.uid == observed.version.uid) {
            return Some(Self { account: created.account.clone(), known: true });
        }
        let holds_token_of =
            |key: &AccountKey| index.credential(key).is_some_and(|credential| observed.holds(credential));
        let recorded = observed.record.as_ref().map(|record| record.account.clone());
        let account = recorded.or_else(|| index.accounts_named(&copy_key.name).find(holds_token_of))?;
        Some(Self { account, known: false })
    }
}

/// Plans the next write that makes the Secret with this key the right copy, or removes it.
#[must_use]
pub fn plan(index: &CredentialIndex, fleet: &Fleet, copy_key: &SecretKey) -> CopyPlan {
    let knows_copies = index.knows_copies(&copy_key.namespace);
    let observed = index.copy(copy_key);
    let origin = observed.and_then(|observed| Origin::find(index, copy_key, observed));
    let mut candidates: Vec<AccountKey> = index.accounts_named(&copy_key.name).collect();
    // An account that is gone, or about which nothing is known, must still be evaluated.
    let unseen = index.created(copy_key).filter(|_| observed.is_none());
    let holder = origin.as_ref().map(|origin| &origin.account).or(unseen.map(|created| &created.account));
    let missing = holder.filter(|holder| !candidates.contains(holder)).cloned();
    candidates.extend(missing);
    candidates.sort_by_cached_key(|key| seniority(index, key));
    let eligibilities: Vec<_> =
        candidates.iter().map(|key| (key, eligibility(index, fleet, &copy_key.namespace, key))).collect();
    let refused = index.refused(copy_key);
    let mut plan = match (observed, &origin) {
        (None, _) => create(copy_key, &eligibilities, unseen, refused),
        (Some(_), None) => leave_alone(&eligibilities),
        (Some(copy), Some(origin)) => keep_or_delete(copy, origin, &eligibilities, refused),
    };
    if !knows_copies || !index.permits_copies(&copy_key.namespace) {
        plan.mark_unpermitted(&eligibilities);
    }
    // Before all copies of a namespace are known, only what must not be there is removed.
    if !knows_copies && !plan.is_removal {
        plan = CopyPlan { states: plan.states, ..CopyPlan::default() };
    }
    plan
}

/// The priority of the write for a key, without its plan: a token that must not be there ends a grant.
#[must_use]
pub fn priority(index: &CredentialIndex, fleet: &Fleet, copy_key: &SecretKey) -> Priority {
    let namespace = &copy_key.namespace;
    let is_offered =
        |key| matches!(eligibility(index, fleet, namespace, &key), Eligibility::Offered(_, None));
    let is_refused = |key| matches!(eligibility(index, fleet, namespace, &key), Eligibility::Refused(_));
    let mut named = index.accounts_named(&copy_key.name);
    let is_removal = match (index.copy(copy_key), index.created(copy_key)) {
        (Some(observed), _) => Origin::find(index, copy_key, observed)
            .is_some_and(|origin| !eligibility(index, fleet, namespace, &origin.account).keeps(observed)),
        (None, _) if named.any(is_offered) => return Priority::Start,
        (None, Some(created)) => {
            index.accounts_named(&copy_key.name).chain([created.account.clone()]).all(is_refused)
        }
        (None, None) => false,
    };
    if is_removal { Priority::End } else { Priority::Update }
}

/// Whether nothing is left to delete in a namespace that receives no copies, so that the permission there is no longer
/// needed: all Secrets are known, and no write is planned for any of them.
#[must_use]
pub fn is_cleared(index: &CredentialIndex, fleet: &Fleet, namespace: &Namespace) -> bool {
    index.knows_copies(namespace)
        && index.receives_nothing(fleet, namespace)
        && index.known_keys(namespace).all(|key| plan(index, fleet, &key).action == CopyAction::Nothing)
}

type Eligibilities<'a> = [(&'a AccountKey, Eligibility<'a>)];

/// The older account takes precedence if nothing else decides.
fn seniority(index: &CredentialIndex, key: &AccountKey) -> impl Ord + use<> {
    let created = index.account(key).and_then(|account| account.created);
    (created.is_none(), created, key.clone())
}

fn create(
    copy_key: &SecretKey,
    eligibilities: &Eligibilities<'_>,
    unseen: Option<&CreatedCopy>,
    refused: Option<Refused>,
) -> CopyPlan {
    let mut plan = CopyPlan::default();
    let mut is_free = true;
    for (key, eligibility) in eligibilities {
        let state = match eligibility {
            Eligibility::Offered(wanted, None) if is_free => {
                plan.action = CopyAction::Create(Box::new(wanted.create(copy_key)));
                plan.holder = Some((*key).clone());
                if refused == Some(Refused::Write) { State::WriteRefused } else { State::Synced }
            }
            _ => eligibility.without_copy(State::NameTaken),
        };
        // An account whose token may become known takes precedence as well.
        is_free &= !matches!(state, State::Synced | State::WriteRefused | State::TokenUnknown);
        plan.states.push(((*key).clone(), state));
    }
    // If a copy should exist, the create shows whether the last one is gone.
    let is_unwanted =
        eligibilities.iter().all(|(_, eligibility)| matches!(eligibility, Eligibility::Refused(_)));
    if let Some(created) = unseen.filter(|_| is_unwanted) {
        plan.action = CopyAction::DeleteByUid(created.uid.clone());
        plan.is_removal = true;
        plan.mark_undeletable(&created.account, refused);
    }
    plan
}

fn leave_alone(eligibilities: &Eligibilities<'_>) -> CopyPlan {
    let mut plan = CopyPlan { is_foreign: true, ..CopyPlan::default() };
    for (key, eligibility) in eligibilities {
        let state = eligibility.without_copy(State::ForeignSecret);
        if state == State::ForeignSecret {
            plan.findings.push(Finding::new(
                Reason::ForeignSecret,
                format!(
                    "is not changed, since the credential syncer did not create it, but has the name of the copy \
                     for ManagedServiceAccount {key}: delete it"
                ),
            ));
        }
        plan.states.push(((*key).clone(), state));
    }
    plan
}

fn keep_or_delete(
    observed: &ObservedCopy,
    origin: &Origin,
    eligibilities: &Eligibilities<'_>,
    refused: Option<Refused>,
) -> CopyPlan {
    let delete = || {
        if origin.known {
            CopyAction::DeleteByUid(observed.version.uid.clone())
        } else {
            CopyAction::Delete(observed.version.clone())
        }
    };
    let mut plan = CopyPlan { holder: Some(origin.account.clone()), ..CopyPlan::default() };
    let holder = eligibilities.iter().find(|(key, _)| **key == origin.account);
    // The account of a copy is always among those whose eligibility is known.
    let wanted = holder.is_none_or(|(_, eligibility)| eligibility.keeps(observed));
    if !wanted {
        plan.action = removal(observed).unwrap_or_else(delete);
        plan.is_removal = true;
    } else if let Some((_, Eligibility::Offered(wanted, obstacle))) = holder {
        plan.action = difference(observed, wanted, origin.known, *obstacle).unwrap_or_else(delete);
    }
    let is_held_up = plan.action != CopyAction::Nothing && refused == Some(Refused::Write);
    for (key, eligibility) in eligibilities {
        let holds = holder.is_some_and(|(holder, _)| holder == key);
        let state = match eligibility {
            Eligibility::Offered(..) if observed.terminating => State::Terminating,
            Eligibility::Offered(..) if holds && wanted && is_held_up => State::WriteRefused,
            Eligibility::Offered(it, obstacle) if holds && wanted => {
                obstacle.filter(|_| observed.must_be_replaced(it, origin.known)).unwrap_or(State::Synced)
            }
            _ => eligibility.without_copy(State::NameTaken),
        };
        if state == State::NameTaken
            && let Some((holder, _)) = holder.filter(|_| wanted)
        {
            plan.findings.push(Finding::new(
                Reason::CopyNameTaken,
                format!(
                    "contains the token of ManagedServiceAccount {holder}; the copy for {key} would have the same name \
                     and is not created: rename one of the two"
                ),
            ));
        }
        plan.states.push(((*key).clone(), state));
    }
    if !wanted && plan.action != CopyAction::Nothing {
        plan.mark_undeletable(&origin.account, refused);
    }
    if observed.terminating {
        let token = match plan.action {
            CopyAction::Nothing if observed.holds_data && !wanted => "and cannot be emptied: it is immutable",
            CopyAction::Nothing if observed.holds_data => "and keeps its token, which is granted",
            _ => "and is emptied",
        };
        let message = format!("is being deleted, waits for a finalizer {token}");
        plan.findings.push(Finding::new(Reason::CopyTerminating, message));
    }
    plan
}

/// The write that leads to a wanted copy; `None` if the Secret must be deleted first.
fn difference(
    observed: &ObservedCopy,
    wanted: &Wanted<'_>,
    known: bool,
    obstacle: Option<State>,
) -> Option<CopyAction> {
    if observed.terminating || observed.is(wanted) {
        Some(CopyAction::Nothing)
    } else if !observed.must_be_replaced(wanted, known) {
        Some(CopyAction::Patch(observed.version.clone(), Box::new(wanted.patch())))
    } else {
        // The obstacle to a new copy would remain after the old one is deleted.
        obstacle.is_some().then_some(CopyAction::Nothing)
    }
}

/// The write to an unwanted copy that is being deleted already; `None` if it has yet to be deleted. If a finalizer
/// delays the deletion, the copy is at least emptied, since its token must not stay.
fn removal(observed: &ObservedCopy) -> Option<CopyAction> {
    if !observed.terminating {
        None
    } else if observed.can_be_emptied() {
        Some(CopyAction::Patch(observed.version.clone(), Box::default()))
    } else {
        Some(CopyAction::Nothing)
    }
}

/// Evaluates known facts before unknown ones: one refusal makes the rest irrelevant.
fn eligibility<'a>(
    index: &'a CredentialIndex,
    fleet: &Fleet,
    namespace: &Namespace,
    key: &'a AccountKey,
) -> Eligibility<'a> {
    // What was known of a kind that cannot be read does not count: see [`CredentialIndex`].
    let account = index.account(key).filter(|_| index.knows_accounts());
    if let Err(refusal) = asked(index, namespace, key, account) {
        return Eligibility::Refused(refusal);
    }
    let profile_key = ProfileKey { namespace: namespace.clone(), cluster: key.cluster.clone() };
    let grant = grant::decide(fleet, &profile_key);
    if grant == Grant::Refused {
        return Eligibility::Refused(State::NotGranted);
    }
    if index.settings.protected.protection(fleet, namespace).is_some() {
        return Eligibility::Refused(State::ProtectedNamespace);
    }
    if let Some(Ok(said)) = account.map(|account| &account.state)
        && said.token_secret.as_deref().is_some_and(|name| name != key.account.as_str())
    {
        return Eligibility::Refused(State::TokenElsewhere);
    }
    let source = index.source(key).filter(|_| index.knows_sources(&key.account));
    if source.is_none() && index.knows_sources(&key.account) {
        return Eligibility::Refused(State::NoToken);
    }
    if source.is_some_and(|source| source.is_foreign_to(account)) {
        return Eligibility::Refused(State::ForeignToken);
    }
    let cluster = fleet.cluster(&key.cluster).filter(|_| !index.settings.trust_restored);
    if let (Some(cluster), Some(account), Some(source)) = (cluster, account, source)
        && source.is_of_an_earlier(cluster, account)
    {
        return Eligibility::Refused(State::EarlierToken);
    }
    if index.profiles_unread {
        return Eligibility::Kept(State::ProfileUnknown);
    }
    let Some(profile) = index.profile(&profile_key).filter(|profile| !profile.terminating) else {
        return Eligibility::Refused(State::NoProfile);
    };
    let manager = index.settings.manager.as_str();
    if profile.managers().iter().flatten().any(|other| *other != manager) {
        return Eligibility::Refused(State::ForeignProfile);
    }
    let Some(account) = account.filter(|account| account.state.is_ok()) else {
        return Eligibility::Kept(State::AccountUnknown);
    };
    let Some(source) = source else {
        let is_left_out = index.reach.is_left_out(key);
        return Eligibility::Kept(if is_left_out { State::TooManyNames } else { State::TokenUnknown });
    };
    let credential = match &source.credential {
        Err(unusable) => return Eligibility::Kept(State::UnusableToken(*unusable)),
        Ok(credential) => credential,
    };
    let obstacle = match grant {
        // What is known is out of date, so not even an existing copy gets a new token.
        _ if !fleet.is_read() => return Eligibility::Kept(State::GrantUnknown),
        // The projector restores the label, or deletes the profile.
        Grant::Granted if profile.managers().contains(&None) => Some(State::ForeignProfile),
        Grant::Granted => None,
        Grant::Refused | Grant::Unknown => Some(State::GrantUnknown),
    };
    let owner_versions = index.served_versions;
    let (uid, owner) = (&account.version.uid, &profile.uid);
    Eligibility::Offered(Wanted { account: key, uid, owner, owner_versions, credential }, obstacle)
}

/// Whether an account opts in to a namespace, as far as is known.
fn asked(
    index: &CredentialIndex,
    namespace: &Namespace,
    key: &AccountKey,
    account: Option<&Account>,
) -> Result<(), State> {
    let Some(account) = account else {
        return if index.knows_accounts() { Err(State::NotAsked) } else { Ok(()) };
    };
    if !account.opts_in {
        return Err(State::NotAsked);
    }
    if !account::can_have_copies(key) {
        return Err(State::NameTooLong);
    }
    match &account.scope {
        Scope::EveryGrantedNamespace if !index.settings.require_namespaces => Ok(()),
        Scope::Only { namespaces, .. } if namespaces.contains(namespace) => Ok(()),
        _ => Err(State::OutOfScope),
    }
}
