//! One copy: from the index to the next write.

use hub_api::names::{AccountKey, Namespace, SecretKey};
use hub_api::secret::Secret;

use crate::action::Action;
use crate::credential::account::{self, Account};
use crate::credential::copy::{ObservedCopy, Patch, Wanted};
use crate::credential::index::{CreatedCopy, CredentialIndex, Refused};
use crate::credential::state::State;
use crate::effort;
use crate::finding::{Finding, Reason};
use crate::fleet::Fleet;
use crate::grant::{self, Grant};
use crate::own_identity;
use crate::priority::Priority;

/// The next write for one key, and the states of its accounts.
#[derive(Debug, Default, PartialEq)]
pub struct CopyPlan {
    pub action: CopyAction,
    /// The account whose token is in the Secret, or will be after the next write.
    pub holder: Option<AccountKey>,
    /// Whether the next write removes a token that must not be there.
    pub is_removal: bool,
    /// The state of every account whose copy has this name.
    pub states: Vec<(AccountKey, State)>,
    pub findings: Vec<Finding>,
}

impl CopyPlan {
    /// The finding on a Secret about an account in this state, if the Secret has the name of its copy and is another.
    fn conflict(&self, account: &AccountKey, state: State) -> Option<Finding> {
        let is_there = !self.is_removal && !matches!(self.action, CopyAction::Create(_));
        match (state, &self.holder) {
            (State::ForeignSecret, _) => Some(Finding::new(
                Reason::ForeignSecret,
                format!(
                    "is not changed, since the credential syncer did not create it, but has the name of the copy \
                     for ManagedServiceAccount {account}: delete it"
                ),
            )),
            (State::NameTaken, Some(holder)) if is_there => Some(Finding::new(
                Reason::CopyNameTaken,
                format!(
                    "contains the token of ManagedServiceAccount {holder}; the copy for {account} would have the same \
                     name and is not created: rename one of the two"
                ),
            )),
            _ => None,
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
    /// A copy should exist.
    Offered(Wanted<'a>),
    /// A copy that exists is kept up to date. A missing one is not created, for this reason.
    Maintained(Wanted<'a>, State),
    /// Unknown: a copy that exists is kept as it is.
    Kept(State),
    /// There should be no copy.
    Refused(State),
}

impl Eligibility<'_> {
    /// Whether a copy of the account may stay.
    fn keeps(&self, observed: &ObservedCopy) -> bool {
        match self {
            // A copy is never moved to a profile that is not ours.
            Self::Maintained(wanted, State::ForeignProfile) => observed.is_owned_by(wanted),
            Self::Offered(_) | Self::Maintained(..) | Self::Kept(_) => true,
            Self::Refused(_) => false,
        }
    }

    /// The state if the Secret with the key, if any, is not the account's copy.
    fn without_copy(&self, offered: State) -> State {
        match self {
            Self::Offered(_) => offered,
            Self::Maintained(_, state) | Self::Kept(state) | Self::Refused(state) => *state,
        }
    }
}

/// An account whose copy has the name of the Secret.
struct Claim<'a> {
    account: &'a AccountKey,
    eligibility: Eligibility<'a>,
}

/// The account whose token an observed Secret contains, or should, and whether the uid is that of a Secret that this
/// process created; from the strongest evidence to the weakest. Without any, the Secret is not ours.
///
/// 1. The uid of a Secret that this process created: it is ours, whatever its content.
/// 2. Label, annotations, name and type agree: another writer created it as a copy. It may be deleted, and never gets a
///    token (see [`ObservedCopy::must_be_replaced`]).
/// 3. The data is that of a token whose copy has this name: another writer removed the label of a copy.
/// 4. It is exactly as OCM's syncer creates a copy, for a profile that exists. As with 2, a tenant who imitates this
///    gains the deletion of its own Secret.
fn origin(
    index: &CredentialIndex,
    copy_key: &SecretKey,
    observed: &ObservedCopy,
) -> Option<(AccountKey, bool)> {
    match index.created(copy_key) {
        Some(created) if created.uid == observed.version.uid => {
            Some((created.account.clone(), true))
        }
        _ => Some((index.account_in(copy_key, observed)?, false)),
    }
}

/// Plans the next write that makes the Secret with this key the right copy, or removes it. `observed` is the Secret there
/// now.
#[must_use]
pub fn plan(
    index: &CredentialIndex,
    fleet: &Fleet,
    copy_key: &SecretKey,
    observed: Option<&ObservedCopy>,
) -> CopyPlan {
    effort::count(|spent| spent.plans += 1);
    let namespace = &copy_key.namespace;
    let is_unknown = !index.listed_copies.has(namespace) || index.permissions_unread;
    let origin = observed.and_then(|observed| origin(index, copy_key, observed));
    let unseen = index.created(copy_key).filter(|_| observed.is_none());
    let mut accounts: Vec<AccountKey> = index.accounts_named(&copy_key.name).collect();
    // An account that is gone, or does not opt in, must still be evaluated.
    let holder = origin.as_ref().map(|(account, _)| account);
    let holder = holder.or(unseen.map(|created| &created.account));
    let missing = holder.filter(|holder| !accounts.contains(holder)).cloned();
    accounts.extend(missing);
    accounts.sort_by_cached_key(|key| seniority(index, key));
    let claims: Vec<_> = accounts
        .iter()
        .map(|account| Claim {
            account,
            eligibility: eligibility(index, fleet, namespace, account),
        })
        .collect();
    let found = origin.as_ref().and_then(|(account, known)| {
        Some((claims.iter().find(|claim| claim.account == account)?, *known))
    });
    let Draft { mut plan, own, others } = match (observed, found) {
        (None, _) => create(copy_key, &claims, unseen),
        (Some(observed), Some((holder, known))) => Copy { observed, holder, known }.plan(),
        (Some(_), None) => {
            Draft { plan: CopyPlan::default(), own: None, others: State::ForeignSecret }
        }
    };
    let refused = index.refused(copy_key).filter(|_| plan.action != CopyAction::Nothing);
    let is_readable = !is_unknown && index.permits_copies(namespace);
    for Claim { account, eligibility } in claims {
        let is_holder = plan.holder.as_ref() == Some(account);
        let state = match own.filter(|_| is_holder) {
            // The API server refuses to delete a token, so it remains where it must not be.
            _ if is_holder && plan.is_removal && refused == Some(Refused::Delete) => {
                State::DeleteRefused
            }
            Some(_) if refused == Some(Refused::Write) => State::WriteRefused,
            // Nor could a process that starts now read it, since the permission has ended.
            Some(State::Synced) if !is_readable => eligibility.without_copy(State::CopiesUnknown),
            Some(own) => own,
            None => eligibility.without_copy(others),
        };
        plan.findings.extend(plan.conflict(account, state));
        plan.states.push((account.clone(), state));
    }
    // Before all copies of a namespace are known, only what must not be there is removed.
    if is_unknown && !plan.is_removal {
        plan = CopyPlan { states: plan.states, ..CopyPlan::default() };
    }
    plan
}

/// The priority of the write for a key, without its plan: a token that must not be there ends a grant.
#[must_use]
pub fn priority(index: &CredentialIndex, fleet: &Fleet, copy_key: &SecretKey) -> Priority {
    let namespace = &copy_key.namespace;
    let is_offered =
        |key| matches!(eligibility(index, fleet, namespace, &key), Eligibility::Offered(_));
    let is_refused =
        |key| matches!(eligibility(index, fleet, namespace, &key), Eligibility::Refused(_));
    let mut named = index.accounts_named(&copy_key.name);
    let is_removal = match (index.copy(copy_key), index.created(copy_key)) {
        (Some(observed), _) => origin(index, copy_key, observed).is_some_and(|(account, _)| {
            !eligibility(index, fleet, namespace, &account).keeps(observed)
        }),
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
    let is_settled =
        |key: &SecretKey| plan(index, fleet, key, index.copy(key)).action == CopyAction::Nothing;
    index.listed_copies.has(namespace)
        && index.receives_nothing(fleet, namespace)
        && index.known_keys(namespace, "").all(|key| is_settled(&key))
}

/// The older account takes precedence if nothing else decides.
fn seniority(index: &CredentialIndex, key: &AccountKey) -> impl Ord + use<> {
    let created =
        index.account(key).filter(|account| account.opts_in).and_then(|account| account.created);
    (created.is_none(), created, key.clone())
}

/// A plan without states, and what these follow from.
struct Draft {
    plan: CopyPlan,
    /// The state of the holder, if the Secret is its copy.
    own: Option<State>,
    /// The state of other accounts to which a copy is offered.
    others: State,
}

fn create(copy_key: &SecretKey, claims: &[Claim<'_>], unseen: Option<&CreatedCopy>) -> Draft {
    let mut plan = CopyPlan::default();
    let mut own = None;
    // An account whose token may become known takes precedence as well.
    let first = claims.iter().find(|claim| {
        matches!(
            claim.eligibility,
            Eligibility::Offered(_) | Eligibility::Kept(State::TokenUnknown)
        )
    });
    if let Some(Claim { account, eligibility: Eligibility::Offered(wanted) }) = first {
        plan.action = CopyAction::Create(Box::new(wanted.create(copy_key)));
        plan.holder = Some((*account).clone());
        own = Some(State::Synced);
    }
    // If a copy should exist, the create shows whether the last one is gone.
    let is_unwanted =
        claims.iter().all(|claim| matches!(claim.eligibility, Eligibility::Refused(_)));
    if let Some(created) = unseen.filter(|_| is_unwanted) {
        plan.action = CopyAction::DeleteByUid(created.uid.clone());
        plan.holder = Some(created.account.clone());
        plan.is_removal = true;
    }
    Draft { plan, own, others: State::NameTaken }
}

/// A Secret of ours.
struct Copy<'a> {
    observed: &'a ObservedCopy,
    /// The account whose token it contains, or should.
    holder: &'a Claim<'a>,
    /// Whether its uid is that of a Secret that this process created.
    known: bool,
}

impl Copy<'_> {
    fn plan(&self) -> Draft {
        let observed = self.observed;
        let is_kept = self.holder.eligibility.keeps(observed);
        let mut plan = CopyPlan {
            action: if is_kept { self.update() } else { self.removal() },
            holder: Some(self.holder.account.clone()),
            is_removal: !is_kept,
            ..CopyPlan::default()
        };
        if observed.terminating {
            let token = match plan.action {
                CopyAction::Nothing if observed.holds_data && !is_kept => {
                    "and cannot be emptied: it is immutable"
                }
                CopyAction::Nothing if observed.holds_data => {
                    "and keeps its token, which is granted"
                }
                _ => "and is emptied",
            };
            let message = format!("is being deleted, waits for a finalizer {token}");
            plan.findings.push(Finding::new(Reason::CopyTerminating, message));
        }
        let own = if is_kept { self.state() } else { None };
        let others = if observed.terminating { State::Terminating } else { State::NameTaken };
        Draft { plan, own, others }
    }

    /// The write that leads to a wanted copy.
    fn update(&self) -> CopyAction {
        let observed = self.observed;
        match &self.holder.eligibility {
            Eligibility::Offered(wanted) | Eligibility::Maintained(wanted, _)
                if !observed.terminating && !observed.is(wanted) =>
            {
                if !observed.must_be_replaced(wanted, self.known) {
                    CopyAction::Patch(observed.version.clone(), Box::new(wanted.patch()))
                } else if matches!(self.holder.eligibility, Eligibility::Maintained(..)) {
                    // No new copy would be created in its place.
                    CopyAction::Nothing
                } else {
                    self.delete()
                }
            }
            _ => CopyAction::Nothing,
        }
    }

    /// The write to an unwanted copy. If a finalizer delays its deletion, it is at least emptied, since its token must not
    /// stay.
    fn removal(&self) -> CopyAction {
        if !self.observed.terminating {
            self.delete()
        } else if self.observed.can_be_emptied() {
            CopyAction::Patch(self.observed.version.clone(), Box::default())
        } else {
            CopyAction::Nothing
        }
    }

    fn delete(&self) -> CopyAction {
        let version = &self.observed.version;
        if self.known {
            CopyAction::DeleteByUid(version.uid.clone())
        } else {
            CopyAction::Delete(version.clone())
        }
    }

    /// The state of a copy that is kept, if its token is known.
    fn state(&self) -> Option<State> {
        match &self.holder.eligibility {
            Eligibility::Kept(_) | Eligibility::Refused(_) => None,
            _ if self.observed.terminating => Some(State::Terminating),
            Eligibility::Maintained(wanted, obstacle)
                if self.observed.must_be_replaced(wanted, self.known) =>
            {
                Some(*obstacle)
            }
            Eligibility::Offered(_) | Eligibility::Maintained(..) => Some(State::Synced),
        }
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
    let account = index.account(key).filter(|_| index.knows_accounts);
    if let Err(refusal) = asked(index, namespace, key, account) {
        return Eligibility::Refused(refusal);
    }
    let profile_key = key.cluster.in_namespace(namespace);
    let grant = grant::decide(fleet, &profile_key);
    if grant == Grant::Refused {
        return Eligibility::Refused(State::NotGranted);
    }
    if index.settings.protected.protects(fleet, namespace) {
        return Eligibility::Refused(State::ProtectedNamespace);
    }
    if let Some(Ok(said)) = account.map(|account| &account.state)
        && said.token_secret.as_deref().is_some_and(|name| name != key.account.as_str())
    {
        return Eligibility::Refused(State::TokenElsewhere);
    }
    let source = index.source(key).filter(|_| index.listed_sources.has(&key.account));
    if source.is_none() && index.listed_sources.has(&key.account) {
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
    if profile.is_foreign_to(&index.settings.manager) {
        return Eligibility::Refused(State::ForeignProfile);
    }
    let Some(account) = account.filter(|account| account.state.is_ok()) else {
        return Eligibility::Kept(State::AccountUnknown);
    };
    let Some(source) = source else {
        let is_left_out = index.reach.is_left_out(key);
        return Eligibility::Kept(if is_left_out {
            State::TooManyNames
        } else {
            State::TokenUnknown
        });
    };
    let credential = match &source.credential {
        Err(unusable) => return Eligibility::Kept(State::UnusableToken(*unusable)),
        Ok(credential) => credential,
    };
    let owner_versions = index.served_versions;
    let (uid, owner) = (&account.version.uid, &profile.uid);
    let wanted = Wanted { account: key, uid, owner, owner_versions, credential };
    match grant {
        // The projector restores the label, or deletes the profile.
        Grant::Granted if profile.is_unmarked() => {
            Eligibility::Maintained(wanted, State::ForeignProfile)
        }
        Grant::Granted => Eligibility::Offered(wanted),
        // Not even an existing copy gets a new token.
        Grant::Refused | Grant::Unknown => Eligibility::Kept(State::GrantUnknown),
    }
}

/// Whether an account opts in to a namespace, as far as is known.
fn asked(
    index: &CredentialIndex,
    namespace: &Namespace,
    key: &AccountKey,
    account: Option<&Account>,
) -> Result<(), State> {
    let Some(account) = account else {
        return if index.knows_accounts { Err(State::NotAsked) } else { Ok(()) };
    };
    if !account.opts_in {
        return Err(State::NotAsked);
    }
    if own_identity::is_reserved(&key.account) {
        return Err(State::ReservedAccount);
    }
    if !account::can_have_copies(key) {
        return Err(State::NameTooLong);
    }
    let is_asked = account.scope.has(namespace, index.settings.require_namespaces);
    if is_asked { Ok(()) } else { Err(State::OutOfScope) }
}
