//! Judges changes of the objects of the access of consumers.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{Monitor, judge_account};
use crate::consumers::{
    ACCOUNTS, ALL_ACCOUNTS, CLUSTER_PERMISSIONS, KINDS, KUEUE_CLUSTERS, KUEUE_CONFIGS, MARKS,
    WORKS, permissions_name,
};
use crate::hub::{ASK_LABEL, CONDITION_SYNCED, SCOPE_ANNOTATION};
use crate::model::{Change, Server, is_terminating, name_of, uid_of};

/// Whether an object has the labels by which processes recognize their own.
#[must_use]
pub fn is_marked(object: &Value) -> bool {
    MARKS.iter().all(|(mark, value)| object["metadata"]["labels"][*mark] == *value)
}

impl Monitor {
    /// Whether a process has created an object, and it still has our labels.
    fn is_ours(&self, object: &Value) -> bool {
        self.made.contains_key(uid_of(object)) && is_marked(object)
    }

    /// The uids of the objects of consumers that processes have created and that have lost their marks.
    #[must_use]
    pub fn unmarked(&self, server: &Server) -> BTreeSet<String> {
        let objects = KINDS.iter().flat_map(|kind| server.objects_of(kind));
        let unmarked =
            objects.filter(|object| !is_marked(object)).map(|object| uid_of(object).to_owned());
        unmarked.filter(|uid| self.made.contains_key(uid)).collect()
    }

    /// Of these, a restore has brought some back with their marks. To a process that has first seen them without, they
    /// belong to another owner until it restarts.
    pub fn marked_again(&mut self, unmarked: &BTreeSet<String>, server: &Server) {
        let objects = KINDS.iter().flat_map(|kind| server.objects_of(kind));
        let marked =
            objects.filter(|object| is_marked(object)).map(|object| uid_of(object).to_owned());
        self.disputed.extend(marked.filter(|uid| unmarked.contains(uid)));
    }

    pub(super) fn judge_access(
        &mut self,
        server: &Server,
        plural: &str,
        change: &Change,
    ) -> Result<(), String> {
        if let (Some(before), Some(after)) = (change.before.as_deref(), change.after.as_deref())
            && self.two_leaders
            && self.made.contains_key(uid_of(before))
            && !is_marked(before)
            && is_marked(after)
        {
            self.disputed.insert(uid_of(before).to_owned());
        }
        match (change.before.as_deref(), change.after.as_deref()) {
            (Some(before), after) if !self.made.contains_key(uid_of(before)) => match plural {
                ACCOUNTS => judge_account(Some(before), after),
                _ => Err("an object of another owner is changed or deleted".to_owned()),
            },
            (None, Some(after)) => self.judge_created(plural, after),
            (Some(before), Some(after)) if is_terminating(before) == is_terminating(after) => {
                if kept(before) == kept(after) {
                    Ok(())
                } else {
                    Err("parts of an object that are not ours are changed".to_owned())
                }
            }
            (Some(before), _) => self.judge_deleted(server, plural, before),
            (None, None) => Ok(()),
        }
    }

    fn judge_created(&mut self, plural: &str, object: &Value) -> Result<(), String> {
        if !is_marked(object) {
            return Err("an object without the labels of our objects is created".to_owned());
        }
        match plural {
            KUEUE_CLUSTERS | KUEUE_CONFIGS => {
                self.count("consumers: objects of Kueue created");
                return Ok(());
            }
            ACCOUNTS => self.count("consumers: accounts created"),
            _ => self.count("consumers: permissions created"),
        }
        let owner = object["metadata"]["ownerReferences"][0]["uid"].as_str().unwrap_or_default();
        let is_it = |account: &&str| match plural {
            ACCOUNTS => *account == name_of(object),
            _ => permissions_name(account) == name_of(object),
        };
        if !ALL_ACCOUNTS.iter().any(is_it) {
            Err("an object of no consumer is created".to_owned())
        } else if plural != ACCOUNTS && !self.made.contains_key(owner) {
            Err("permissions are bound to an account of another owner".to_owned())
        } else {
            Ok(())
        }
    }

    /// Permissions end after their account, or when permissions of another kind have replaced them. If the API server
    /// does not delete an account, they end alone.
    fn judge_deleted(
        &mut self,
        server: &Server,
        plural: &str,
        object: &Value,
    ) -> Result<(), String> {
        match plural {
            ACCOUNTS => self.count("consumers: accounts deleted"),
            WORKS | CLUSTER_PERMISSIONS => self.count("consumers: permissions deleted"),
            _ => return Ok(()),
        }
        if plural == ACCOUNTS || self.is_account_refused || self.two_leaders || self.is_rewound {
            return Ok(());
        }
        let owner = &object["metadata"]["ownerReferences"][0];
        let cluster = object["metadata"]["namespace"].as_str().unwrap_or_default();
        let account = server.object(ACCOUNTS, cluster, owner["name"].as_str().unwrap_or_default());
        let stands = account.is_some_and(|account| {
            owner["uid"] == uid_of(account) && self.is_ours(account) && !is_terminating(account)
        });
        let other = if plural == WORKS { CLUSTER_PERMISSIONS } else { WORKS };
        let successor = server.object(other, cluster, name_of(object));
        // Others can end with their CRD while the request is on its way, and the CRD can return.
        let may_have_ended = self.removed_crds.contains(other);
        if stands && !may_have_ended && !successor.is_some_and(|it| self.is_ours(it)) {
            return Err(
                "permissions are deleted before their account, or before others exist".to_owned()
            );
        }
        Ok(())
    }
}

/// The parts of an object that do not belong to consumer access.
fn kept(object: &Value) -> impl PartialEq + use<> {
    let metadata = &object["metadata"];
    let without = |field: &str, ours: &[&str]| {
        let all = metadata[field].as_object().into_iter().flatten();
        let others = all.filter(|(key, _)| !ours.contains(&key.as_str()));
        others.map(|(key, value)| (key.clone(), value.clone())).collect::<BTreeMap<_, _>>()
    };
    let mut status = object["status"].as_object().cloned().unwrap_or_default();
    if let Some(conditions) = status.get_mut("conditions").and_then(Value::as_array_mut) {
        conditions.retain(|condition| condition["type"] != CONDITION_SYNCED);
    }
    status.retain(|_, value| value.as_array().is_none_or(|list| !list.is_empty()));
    let [first, second, third] = MARKS.map(|(mark, _)| mark);
    (
        without("labels", &[first, second, third, ASK_LABEL]),
        without("annotations", &[SCOPE_ANNOTATION]),
        metadata["finalizers"].clone(),
        status,
    )
}
