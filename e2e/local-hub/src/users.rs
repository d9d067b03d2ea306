//! The users of a hub: one per component, so that each has its own permissions and can be identified in the audit log.

use std::fmt;
use std::fmt::Write as _;

use crate::{HubError, random};

/// The user with all permissions, exempt from priority and fairness.
pub const ADMIN: &str = "admin";

/// The user of Open Cluster Management's own controllers: a cluster admin by a binding, not exempt from priority and
/// fairness.
pub const OCM: &str = "ocm";

/// Users of every hub, without permissions until they are granted.
const COMPONENTS: [&str; 5] = ["projector", "provisioner", "syncer", "addons", "consumer"];

/// The hub's own controllers.
pub(crate) const CONTROLLER_MANAGER: &str = "system:kube-controller-manager";

/// The user of this crate's own requests, which are not counted.
pub(crate) const HARNESS: &str = "local-hub:harness";

pub(crate) const MASTERS: &str = "system:masters";

#[derive(Clone)]
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) groups: Vec<String>,
    pub(crate) token: String,
}

impl fmt::Debug for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("User")
            .field("name", &self.name)
            .field("groups", &self.groups)
            .finish_non_exhaustive()
    }
}

/// The users of one hub.
#[derive(Clone, Debug)]
pub(crate) struct Users(Vec<User>);

impl Users {
    /// The default users and additional ones. The last groups of a user apply, except for the two users that a hub
    /// requires.
    pub(crate) fn new(asked_for: &[(String, Vec<String>)]) -> Result<Self, HubError> {
        let mut users = Self(Vec::new());
        users.set(ADMIN, &[MASTERS.to_owned()])?;
        users.set(OCM, &[])?;
        for name in COMPONENTS {
            users.set(name, &[])?;
        }
        for (name, groups) in asked_for {
            users.set(name, groups)?;
        }
        users.set(CONTROLLER_MANAGER, &[MASTERS.to_owned()])?;
        users.set(HARNESS, &[MASTERS.to_owned()])?;
        Ok(users)
    }

    fn set(&mut self, name: &str, groups: &[String]) -> Result<(), HubError> {
        // Names become file names and fields of a CSV file.
        let plain = |text: &str| {
            text.starts_with(|c: char| c.is_ascii_alphanumeric())
                && text.chars().all(|c| c.is_ascii_alphanumeric() || ".-_:".contains(c))
        };
        if let Some(odd) =
            std::iter::once(name).chain(groups.iter().map(String::as_str)).find(|text| !plain(text))
        {
            return Err(HubError::Failed(format!(
                "{odd:?} is not a valid user name: must have letters, digits and, inside the name, any of . - _ :"
            )));
        }
        self.0.retain(|user| user.name != name);
        self.0.push(User { name: name.to_owned(), groups: groups.to_vec(), token: random::hex()? });
        Ok(())
    }

    pub(crate) fn get(&self, name: &str) -> Result<&User, HubError> {
        self.0.iter().find(|user| user.name == name).ok_or_else(|| {
            let known = self.named().collect::<Vec<_>>().join(", ");
            HubError::Failed(format!(
                "the hub has no user {name:?}, only {known}; add users with HubBuilder::user"
            ))
        })
    }

    /// The names of all users except the hub's own.
    pub(crate) fn named(&self) -> impl Iterator<Item = &str> {
        self.0
            .iter()
            .map(|user| user.name.as_str())
            .filter(|name| ![CONTROLLER_MANAGER, HARNESS].contains(name))
    }

    /// The users who need a kubeconfig.
    pub(crate) fn with_files(&self) -> impl Iterator<Item = &User> {
        self.0.iter().filter(|user| user.name != HARNESS)
    }

    /// The contents of the API server's `--token-auth-file`.
    pub(crate) fn token_file(&self) -> String {
        self.0.iter().fold(String::new(), |mut csv, User { name, groups, token }| {
            // Writing to a string cannot fail.
            let _ = writeln!(csv, "{token},{name},{name},\"{}\"", groups.join(","));
            csv
        })
    }
}
