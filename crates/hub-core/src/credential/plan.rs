//! One copy, from what is known to the one difference to write.

use hub_api::names::{AccountKey, Namespace, ProfileKey, SecretKey};
use hub_api::secret::Secret;

use crate::credential::account::{self, Account, Scope};
use crate::credential::copy::{ObservedCopy, Patch, Wanted};
use crate::credential::index::CredentialIndex;
use crate::credential::state::State;
use crate::fleet::Fleet;
use crate::grant::{self, Grant};
use crate::note::{Note, Reason};
use crate::version::Version;

/// What is left to do for one copy, and how things stand.
#[derive(Debug, Default, PartialEq)]
pub struct CopyPlan {
    /// The next write.
    pub action: CopyAction,
    /// How it stands with every account whose copy has this name.
    pub states: Vec<(AccountKey, State)>,
    /// The findings on the Secret.
    pub notes: Vec<Note>,
}

impl CopyPlan {
    /// The account whose copy is there, or about to be.
    #[must_use]
    pub fn synced(&self) -> Option<&AccountKey> {
        self.states.iter().find(|(_, state)| *state == State::Synced).map(|(account, _)| account)
    }
}

/// The next write. After it, the plan is made anew from what the API server answered.
#[derive(Debug, Default, PartialEq)]
pub enum CopyAction {
    /// Nothing differs, or nothing may be done.
    #[default]
    Nothing,
    /// Create this Secret.
    Create(Box<Secret>),
    /// Merge a patch into a Secret.
    Patch(Box<Patch>),
    /// Delete the Secret of exactly this version.
    Delete(Version),
}

/// How it stands with one account in one namespace, whatever stands at the place of its copy.
enum Standing<'a> {
    /// A copy should be there. One that is not there yet is made unless something stands against it.
    Offered(Wanted<'a>, Option<State>),
    /// It cannot be said: what is there stays as it is.
    Kept(State),
    /// There should be no copy.
    Refused(State),
}

impl Standing<'_> {
    /// How it stands where no copy of the account is.
    fn without_copy(&self, offered: State) -> State {
        match self {
            Self::Offered(_, obstacle) => obstacle.unwrap_or(offered),
            Self::Kept(state) | Self::Refused(state) => *state,
        }
    }
}

/// Plans what has to be written so that what is at `place` is the right copy, or none.
#[must_use]
pub fn plan(index: &CredentialIndex, fleet: &Fleet, place: &SecretKey) -> CopyPlan {
    if !index.knows_copies(&place.namespace) {
        return leave_unread(index, fleet, place);
    }
    let observed = index.copy(place);
    let ours = observed.filter(|observed| observed.is_ours);
    let holder = ours.and_then(|copy| copy.account(place));
    let mut candidates: Vec<AccountKey> = index.accounts_named(&place.name).collect();
    // An account that is gone, or of which nothing is known, has still to be judged.
    candidates.extend(holder.clone().filter(|holder| !candidates.contains(holder)));
    candidates.sort_by_cached_key(|key| seniority(index, key));
    let standings: Vec<_> =
        candidates.iter().map(|key| (key, standing(index, fleet, &place.namespace, key))).collect();
    match (observed, ours) {
        (None, _) => create(place, &standings),
        (Some(_), None) => leave_alone(&standings),
        (_, Some(copy)) => {
            let holder = find_holder(holder.as_ref(), &standings);
            keep_or_delete(copy, holder, &standings, index.knows_accounts())
        }
    }
}

/// An absence means nothing before all copies of a namespace are known.
fn leave_unread(index: &CredentialIndex, fleet: &Fleet, place: &SecretKey) -> CopyPlan {
    let state = |key| {
        let state = standing(index, fleet, &place.namespace, &key).without_copy(State::CopiesUnknown);
        (key, state)
    };
    CopyPlan { states: index.accounts_named(&place.name).map(state).collect(), ..CopyPlan::default() }
}

type Standings<'a> = [(&'a AccountKey, Standing<'a>)];

/// The older account goes first, where nothing else decides.
fn seniority(index: &CredentialIndex, key: &AccountKey) -> impl Ord + use<> {
    let created = index.account(key).and_then(|account| account.created);
    (created.is_none(), created, key.clone())
}

fn create(place: &SecretKey, standings: &Standings<'_>) -> CopyPlan {
    let mut plan = CopyPlan::default();
    let mut is_free = true;
    for (key, standing) in standings {
        let state = match standing {
            Standing::Offered(wanted, None) if is_free => {
                plan.action = CopyAction::Create(Box::new(wanted.create(place)));
                State::Synced
            }
            _ => standing.without_copy(State::NameTaken),
        };
        // Whose token is about to be known goes first as well.
        is_free &= !matches!(state, State::Synced | State::TokenUnknown);
        plan.states.push(((*key).clone(), state));
    }
    plan
}

fn leave_alone(standings: &Standings<'_>) -> CopyPlan {
    let mut plan = CopyPlan::default();
    for (key, standing) in standings {
        let state = standing.without_copy(State::ForeignSecret);
        if state == State::ForeignSecret {
            plan.notes.push(Note::new(
                Reason::ForeignSecret,
                format!(
                    "is not a copy that we made and is left alone; it stands where the token of \
                     ManagedServiceAccount {key} would be: delete or rename it"
                ),
            ));
        }
        plan.states.push(((*key).clone(), state));
    }
    plan
}

fn keep_or_delete(
    observed: &ObservedCopy,
    holder: Option<&(&AccountKey, Standing<'_>)>,
    standings: &Standings<'_>,
    all_accounts_known: bool,
) -> CopyPlan {
    let mut plan = CopyPlan::default();
    let wanted = match holder {
        // It stays under a profile that changes hands, and never moves to one that is another's.
        Some((_, Standing::Offered(wanted, Some(State::ForeignProfile)))) if !observed.hangs_on(wanted) => {
            plan.action = removal(observed);
            false
        }
        Some((_, Standing::Offered(wanted, obstacle))) => {
            plan.action = difference(observed, wanted, *obstacle);
            true
        }
        Some((_, Standing::Kept(_))) => true,
        // Whose it is may come to light with the accounts that are not known yet.
        None if !all_accounts_known => true,
        Some((_, Standing::Refused(_))) | None => {
            plan.action = removal(observed);
            false
        }
    };
    for (key, standing) in standings {
        let holds = holder.is_some_and(|(holder, _)| holder == key);
        let state = match standing {
            Standing::Offered(..) if observed.terminating => State::Terminating,
            Standing::Offered(it, obstacle) if holds && wanted => {
                obstacle.filter(|_| observed.must_be_replaced(it)).unwrap_or(State::Synced)
            }
            _ => standing.without_copy(State::NameTaken),
        };
        if state == State::NameTaken
            && let Some((holder, _)) = holder.filter(|_| wanted)
        {
            plan.notes.push(Note::new(
                Reason::CopyNameTaken,
                format!(
                    "holds the token of ManagedServiceAccount {holder}; that of {key} would have the same name and \
                     is not synced: rename one of the two"
                ),
            ));
        }
        plan.states.push(((*key).clone(), state));
    }
    if observed.terminating {
        let token = match plan.action {
            CopyAction::Nothing if observed.holds_data() && !wanted => {
                "and cannot be emptied: it is immutable"
            }
            CopyAction::Nothing if observed.holds_data() => "and keeps its token, which may be here",
            _ => "and is emptied",
        };
        let message = format!("is being deleted and held by a finalizer, {token}");
        plan.notes.push(Note::new(Reason::CopyTerminating, message));
    }
    plan
}

/// Whose copy it is. Where the copy itself does not say, the first of those that it could be.
fn find_holder<'a>(
    told: Option<&AccountKey>,
    standings: &'a Standings<'a>,
) -> Option<&'a (&'a AccountKey, Standing<'a>)> {
    standings.iter().find(|(key, standing)| match told {
        Some(told) => *key == told,
        None => !matches!(standing, Standing::Refused(_)),
    })
}

fn difference(observed: &ObservedCopy, wanted: &Wanted<'_>, obstacle: Option<State>) -> CopyAction {
    if observed.terminating || observed.is(wanted) {
        CopyAction::Nothing
    } else if !observed.must_be_replaced(wanted) {
        CopyAction::Patch(Box::new(wanted.patch(observed)))
    } else if obstacle.is_none() {
        CopyAction::Delete(observed.version.clone())
    } else {
        // What stands against a new copy would be met after the old one is gone.
        CopyAction::Nothing
    }
}

/// Takes a copy away. One that a finalizer holds is emptied at least: its token must not stay where it may not be.
fn removal(observed: &ObservedCopy) -> CopyAction {
    if !observed.terminating {
        CopyAction::Delete(observed.version.clone())
    } else if observed.can_be_emptied() {
        CopyAction::Patch(Box::new(Patch::empty(observed)))
    } else {
        CopyAction::Nothing
    }
}

/// What is clearly so is asked before what is not known: one "no" makes the rest immaterial.
fn standing<'a>(
    index: &'a CredentialIndex,
    fleet: &Fleet,
    namespace: &Namespace,
    key: &'a AccountKey,
) -> Standing<'a> {
    let account = index.account(key);
    if let Err(refusal) = asked(index, namespace, key, account) {
        return Standing::Refused(refusal);
    }
    let profile_key = ProfileKey { namespace: namespace.clone(), cluster: key.cluster.clone() };
    let grant = grant::decide(fleet, &profile_key);
    if grant == Grant::Refused {
        return Standing::Refused(State::NotGranted);
    }
    if let Some(Ok(said)) = account.map(|account| &account.state)
        && said.token_secret.as_deref().is_some_and(|name| name != key.account.as_str())
    {
        return Standing::Refused(State::TokenElsewhere);
    }
    let source = index.source(key);
    if source.is_none() && index.knows_sources(&key.account) {
        return Standing::Refused(State::NoToken);
    }
    if source.is_some_and(|source| source.is_foreign_to(account)) {
        return Standing::Refused(State::ForeignToken);
    }
    let Some(profile) = index.profile(&profile_key).filter(|profile| !profile.terminating) else {
        return Standing::Refused(State::NoProfile);
    };
    let Some(account) = account.filter(|account| account.state.is_ok()) else {
        return Standing::Kept(State::AccountUnknown);
    };
    let Some(source) = source else { return Standing::Kept(State::TokenUnknown) };
    let credential = match &source.credential {
        Err(unusable) => return Standing::Kept(State::UnusableToken(*unusable)),
        Ok(credential) => credential,
    };
    let is_foreign =
        profile.manager.as_deref().is_some_and(|manager| manager != index.settings.manager.as_str());
    let obstacle = match grant {
        Grant::Granted if is_foreign => Some(State::ForeignProfile),
        Grant::Granted => None,
        Grant::Refused | Grant::Unknown => Some(State::GrantUnknown),
    };
    let owner_version = index.profile_version();
    let (uid, owner) = (&account.uid, &profile.uid);
    Standing::Offered(Wanted { account: key, uid, owner, owner_version, credential }, obstacle)
}

/// Whether an account asks for a copy in a namespace, as far as is known.
fn asked(
    index: &CredentialIndex,
    namespace: &Namespace,
    key: &AccountKey,
    account: Option<&Account>,
) -> Result<(), State> {
    let Some(account) = account else {
        return if index.knows_accounts() { Err(State::NotAsked) } else { Ok(()) };
    };
    if !account.asks {
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
