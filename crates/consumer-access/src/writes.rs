//! The writer of all objects. Each has a key of its own, so that what delays one delays no other; the plan of an object
//! of an account is for all of its objects, and says which is written next.

use std::collections::BTreeMap;
use std::sync::Arc;

use hub_api::names::{AccountKey, ProfileKey};
use hub_core::action::Action;
use hub_core::consumer_access::{
    AccessKey, AccessKind, AccessSettings, FoundObject, ObservedAccess,
};
use hub_core::finding::{Finding, Reason};
use hub_core::fleet::Fleet;
use hub_core::grant::Grant;
use hub_core::version::Version;
use hub_runtime::queue::Outcome;
use hub_runtime::queue::work::Work;
use hub_runtime::reconciler::{Objects, Planned, Read};
use hub_runtime::write::error::WriteError;
use hub_runtime::write::execute::Target;
use hub_runtime::written::Left;
use kube::api::DynamicObject;
use serde_json::Value;

use crate::state::State;
use crate::store::Store;
use crate::watch_name::{Scope, WatchName};
use crate::watches::observed;

impl Objects for Store {
    type Key = AccessKey;
    type Create = Value;
    type Patch = Value;
    /// The findings on the object; `None` while another one is written first.
    type Plan = Option<Vec<Finding>>;

    const WORKERS: usize = 12;

    fn work(&self) -> &Arc<Work<AccessKey>> {
        &self.work
    }

    fn target(&self, key: &AccessKey) -> Target {
        let kind = key.api();
        Target::of::<DynamicObject>(kind.plural, &kind.resource(), key.namespace(), &key.name())
    }

    fn known(&self, key: &AccessKey) -> Option<Version> {
        self.version(key)
    }

    fn plan(&self, key: &AccessKey, read: Option<&Read>) -> Planned<Self> {
        if let AccessKey::ClusterAccess(name) = key {
            return self.plan_status(name, read.is_some());
        }
        let (fleet, settings) = (self.fleet.read(), self.settings());
        let mut state = self.state.lock();
        // An object that was just read replaces the cached one.
        let read = read.map(|read| {
            let object = serde_json::from_str(read.object.as_deref()?).ok()?;
            Some(state.found(&settings, key, observed(key, Ok(object))))
        });
        let found = |of: &AccessKey| match &read {
            Some(read) if of == key => read.as_ref(),
            _ => state.objects.get(of),
        };
        match key {
            AccessKey::Access(kind, account) => {
                let (planned, is_settled) =
                    self.plan_access(&fleet, &settings, &state, *kind, account, found);
                if settings.consumers.is_shared(&account.account) {
                    let names = settings.sharing(&fleet, account);
                    state.known.share(&account.cluster, &names, is_settled);
                }
                planned
            }
            key => {
                let planned = plan_integration(&fleet, &settings, &state, key, found);
                if let AccessKey::MultiKueueConfig(config) = key {
                    state.known.select(config, &settings.selected(&fleet, config));
                }
                planned
            }
        }
    }

    fn settled(&self, key: &AccessKey, findings: Option<Vec<Finding>>) -> Outcome {
        let mut state = self.state.lock();
        if !self.is_unseen(&state, key) {
            state.passed.remove(key);
        }
        drop(state);
        if let Some(findings) = findings {
            self.report(key, findings);
        }
        Outcome::Done
    }

    fn wrote(&self, key: &AccessKey, _: &Self::Plan, verb: &str, left: &Left) {
        let mut state = self.state.lock();
        state.passed.remove(key);
        let is_recognized = match left {
            Left::Exists(version) if verb == "create" => state.created(key, &version.uid),
            Left::Gone(uid) => {
                state.deleted(key, uid);
                false
            }
            Left::Exists(_) | Left::Read(_) => false,
        };
        drop(state);
        if let AccessKey::Access(_, account) = key
            && is_recognized
        {
            self.account_changed(&self.fleet.read(), account);
        }
        if verb == "delete" {
            // The watch may never have shown it.
            match key {
                AccessKey::Access(_, account) => {
                    self.follow(Scope::Account(account.account.clone()));
                }
                AccessKey::ClusterSecret(ProfileKey { namespace, .. }) => {
                    self.secrets_may_have_ended(namespace);
                }
                _ => {}
            }
            self.blocked(key, "delete");
        }
    }

    fn blocked(&self, key: &AccessKey, verb: &'static str) {
        if let AccessKey::Access(kind, account) = key
            && self.state.lock().passed.insert(key.clone(), verb) != Some(verb)
        {
            self.queue_access(&self.fleet.read(), account, Some(*kind));
        }
    }

    fn refused(&self, key: &AccessKey, findings: &Self::Plan, error: &WriteError) {
        let mut findings = findings.clone().unwrap_or_default();
        findings.push(Finding::new(Reason::WriteRefused, error.to_string()));
        self.report(key, findings);
    }
}

impl Store {
    /// Plans the next write to the objects of an account, for the key of one of them. Nothing is planned until the list
    /// of accounts is complete, and while it is out of date, unless the grant of an account that is known has ended: an
    /// account is deleted before its permissions. Permissions that cannot be listed delay only their own creation and
    /// that of their accounts. Returns also whether nothing is left to write for the account, and nothing is in doubt.
    fn plan_access<'a>(
        &self,
        fleet: &Fleet,
        settings: &AccessSettings,
        state: &State,
        kind: AccessKind,
        account: &AccountKey,
        found: impl Fn(&AccessKey) -> Option<&'a FoundObject>,
    ) -> (Planned<Self>, bool) {
        let account_key = AccessKind::Account.of(account);
        let watched = settings.permission_kinds().iter().copied().chain([AccessKind::Account]);
        let unlisted = watched
            .filter(|kind| !state.is_listed(&WatchName::of(*kind, &account.account)))
            .collect();
        let observed = ObservedAccess {
            objects: by_kind(account, |key| found(key).cloned()),
            created: by_kind(account, |key| state.created.get(key).cloned()),
            unlisted,
            agent_namespace: state.agent_namespace(&account.cluster),
            passed: by_kind(account, |key| state.passed.get(key).copied())
                .into_iter()
                .filter(|(of, _)| *of != kind)
                .collect(),
        };
        let has_ended = || {
            state.objects.contains_key(&account_key)
                && settings.grant(fleet, account) == Grant::Refused
        };
        if observed.unlisted.contains(&AccessKind::Account) && !has_ended() {
            return (Planned::Unknown, false);
        }
        let mut plan = settings.plan(fleet, account, &observed);
        let findings = plan.findings.remove(&kind).unwrap_or_default();
        let planned = match plan.write {
            // The cached account is older than the hub: the watch queues its permissions again.
            Some((of, action))
                if of == kind
                    && of != AccessKind::Account
                    && action.verb() != Some("delete")
                    && self.is_unseen(state, &account_key) =>
            {
                Planned::Unknown
            }
            Some((of, action)) if of == kind => Planned::Write(action, Some(findings)),
            Some(_) => Planned::Write(Action::Nothing, None),
            None => Planned::Write(Action::Nothing, Some(findings)),
        };
        (planned, plan.is_settled)
    }
}

/// What there is of each object of an account.
fn by_kind<T>(
    account: &AccountKey,
    get: impl Fn(&AccessKey) -> Option<T>,
) -> BTreeMap<AccessKind, T> {
    AccessKind::ALL.into_iter().filter_map(|kind| Some((kind, get(&kind.of(account))?))).collect()
}

/// Plans the next write to an object by which an application finds its clusters. Nothing is planned until what it depends
/// on is listed, and while that is out of date, unless the grant has ended.
fn plan_integration<'a>(
    fleet: &Fleet,
    settings: &AccessSettings,
    state: &State,
    key: &AccessKey,
    found: impl Fn(&AccessKey) -> Option<&'a FoundObject>,
) -> Planned<Store> {
    let watches = match key {
        AccessKey::ClusterSecret(ProfileKey { namespace, .. }) => {
            let consumer = settings.consumers.argo_cd(namespace);
            let provider =
                consumer.map(|consumer| settings.provider_of(consumer)).unwrap_or_default();
            [
                WatchName::Secrets(namespace.clone()),
                WatchName::Profiles(namespace.clone(), provider.to_owned()),
            ]
        }
        _ => WatchName::KUEUE,
    };
    let is_refused = settings.grant_of(fleet, key) == Grant::Refused;
    // The watch may have ended before it has shown what was being created.
    let created = match key {
        AccessKey::ClusterSecret(_) if is_refused => state.created.get(key),
        _ => None,
    };
    let has_ended = || is_refused && (state.is_ours(key) || created.is_some());
    if !watches.iter().all(|watch| state.is_listed(watch)) && !has_ended() {
        return Planned::Unknown;
    }
    let mut plan = match key {
        AccessKey::ClusterSecret(profile) => settings.plan_cluster_secret(
            fleet,
            profile,
            found(key),
            state.published.get(profile),
            state.rival(profile),
        ),
        key => settings.plan_kueue(fleet, key, &found),
    };
    if let Some(uid) = created
        && found(key).is_none()
    {
        plan.action = Action::DeleteByUid(uid.clone());
    }
    Planned::Write(plan.action, Some(plan.findings))
}
