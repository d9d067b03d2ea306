//! Hubs that are reset for the next test instead of being killed.
//!
//! Most of a small test's CPU time is the start of its API server. A hub whose test has ended is kept, and the next one
//! with the same configuration takes it: the keys that the test added to etcd are deleted, and the files that it added
//! to the hub's directory. The API server observes that like any deletion.
//!
//! That cannot undo everything, so a hub is killed as before if
//! - its API server or etcd was stopped, or the test failed;
//! - the test changed an object that the hub started with;
//! - the test added an object with effects of its own on the API server, such as an admission policy or a CRD, which
//!   last until the server has processed the deletion.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use k8s_openapi::api::rbac::v1::PolicyRule;

use crate::access::Access;
use crate::audit::{AuditLog, Journal};
use crate::etcd::Etcd;
use crate::grants::{self, Grantee};
use crate::supervisor::Supervised;
use crate::{CrdSet, Flavour, HubError, programs, random, users};

/// How many hubs are kept. Each needs the memory of an API server.
const KEPT: usize = 6;

/// To delete more keys takes longer than a start.
const MOST: usize = 1000;

/// What the API server writes at any time, and tests do not.
const OF_THE_API_SERVER: [&str; 4] =
    ["flowschemas", "masterleases", "peerserverleases", "prioritylevelconfigurations"];

/// What tests write, apart from custom resources, and the API server forgets when it is deleted.
const OF_TESTS: [&str; 10] = [
    "clusterrolebindings",
    "clusterroles",
    "configmaps",
    "events",
    "leases",
    "namespaces",
    "rolebindings",
    "roles",
    "secrets",
    "serviceaccounts",
];

static HUBS: Mutex<Vec<KeptHub>> = Mutex::new(Vec::new());

/// What two hubs must have in common to be interchangeable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Configuration {
    pub(crate) flavour: Flavour,
    pub(crate) crds: CrdSet,
    pub(crate) users: Vec<(String, Vec<String>)>,
}

/// What a hub had when it was ready.
#[derive(Debug)]
pub(crate) struct Initial {
    keys: BTreeMap<String, u64>,
    files: BTreeSet<OsString>,
}

impl Initial {
    pub(crate) async fn of(directory: &Path) -> Result<Self, HubError> {
        Ok(Self {
            keys: Etcd::connect(directory).await?.revisions().await?,
            files: files(directory)?,
        })
    }
}

/// A running hub without an owner.
#[derive(Debug)]
pub(crate) struct KeptHub {
    pub(crate) configuration: Configuration,
    pub(crate) initial: Initial,
    pub(crate) access: Access,
    pub(crate) directory: PathBuf,
    pub(crate) journal: Journal,
    /// Shared with the programs that run beside the hub.
    pub(crate) tenancy: Arc<()>,
    // Dropped in this order.
    pub(crate) api_server: Supervised,
    pub(crate) etcd: Supervised,
}

/// Keeps a hub, and kills the oldest one if there are too many.
pub(crate) fn keep(hub: KeptHub) {
    let mut hubs = HUBS.lock().unwrap_or_else(PoisonError::into_inner);
    hubs.push(hub);
    let oldest = (hubs.len() > KEPT).then(|| hubs.remove(0));
    drop(hubs);
    drop(oldest);
}

/// A hub as it would be after a start; `None` if there is none that can be reset.
pub(crate) async fn take(configuration: &Configuration) -> Option<KeptHub> {
    loop {
        let hub = {
            let mut hubs = HUBS.lock().unwrap_or_else(PoisonError::into_inner);
            let index = hubs.iter().position(|hub| hub.configuration == *configuration)?;
            hubs.remove(index)
        };
        // What cannot be reset is killed, whatever the reason is.
        if let Ok(Some(hub)) = hub.reset().await {
            return Some(hub);
        }
    }
}

impl KeptHub {
    async fn reset(mut self) -> Result<Option<Self>, HubError> {
        if Arc::strong_count(&self.tenancy) > 1 {
            return Ok(None);
        }
        let mut etcd = Etcd::connect(&self.directory).await?;
        let Some(added) = self.added(&etcd.revisions().await?) else { return Ok(None) };
        for key in &added {
            etcd.delete(key).await?;
        }
        self.wait_until_revoked(&mut etcd).await?;
        // Whoever wrote in the meantime would write to the next test's hub.
        if self.added(&etcd.revisions().await?).is_none_or(|added| !added.is_empty()) {
            return Ok(None);
        }

        for file in files(&self.directory)?.difference(&self.initial.files) {
            let path = self.directory.join(file);
            let removed = if path.is_dir() {
                std::fs::remove_dir_all(&path)
            } else {
                std::fs::remove_file(&path)
            };
            removed.map_err(|source| HubError::io(format!("remove {}", path.display()), source))?;
        }
        self.access.write_kubeconfigs(&self.directory)?;
        let mark = AuditLog::new(&self.journal, &self.access).mark().await?;
        self.journal = Journal::since(self.directory.join(programs::AUDIT_LOG), mark);
        Ok(Some(self))
    }

    /// The keys that the test added; `None` if deleting these does not undo what it did.
    fn added(&self, now: &BTreeMap<String, u64>) -> Option<Vec<String>> {
        let initial = &self.initial.keys;
        let changed = now.iter().filter(|(key, revision)| initial.get(*key) != Some(revision));
        let gone = initial.keys().filter(|key| !now.contains_key(*key));
        let mut added = Vec::new();
        for key in changed.map(|(key, _)| key).chain(gone) {
            match Writer::of(key) {
                Writer::ApiServer => {}
                Writer::Test if !initial.contains_key(key) && added.len() < MOST => {
                    added.push(key.clone());
                }
                Writer::Test | Writer::Configuration => return None,
            }
        }
        Some(added)
    }

    /// Waits until no permission of the last test is effective. The API server observes roles and bindings by four
    /// watches; after a new object of each kind, all earlier changes are effective, too.
    async fn wait_until_revoked(&self, etcd: &mut Etcd) -> Result<(), HubError> {
        let harness = self.access.harness()?;
        let grantee = Grantee::user(users::OCM, self.access.harness_as(users::OCM)?);
        // Never used before: an earlier one may still be effective.
        let name = format!("local-hub:reset-{}", random::hex()?);
        let rule = PolicyRule {
            api_groups: Some(vec!["local-hub".to_owned()]),
            resources: Some(vec![name.clone()]),
            verbs: vec!["get".to_owned()],
            ..PolicyRule::default()
        };
        grants::grant(&harness, &grantee, &name, vec![rule.clone()]).await?;
        grants::grant_in(&harness, &grantee, "default", &name, vec![rule]).await?;
        for kind in
            ["clusterrolebindings/", "clusterroles/", "rolebindings/default/", "roles/default/"]
        {
            etcd.delete(&format!("{kind}{name}")).await?;
        }
        Ok(())
    }
}

/// Who writes a key, as far as it matters here.
enum Writer {
    /// The API server itself, at any time.
    ApiServer,
    /// A test. Nothing else depends on the object.
    Test,
    /// A test, or the API server at its start. The API server or a controller derives something from the object.
    Configuration,
}

impl Writer {
    fn of(key: &str) -> Self {
        let (kind, name) = key.split_once('/').unwrap_or((key, ""));
        let is_lease_of_its_own = kind == "leases" && name.starts_with("kube-system/apiserver-");
        let is_custom = kind.contains('.') && !kind.ends_with(".k8s.io");
        if is_lease_of_its_own || OF_THE_API_SERVER.contains(&kind) {
            Self::ApiServer
        } else if is_custom || OF_TESTS.contains(&kind) {
            Self::Test
        } else {
            Self::Configuration
        }
    }
}

fn files(directory: &Path) -> Result<BTreeSet<OsString>, HubError> {
    std::fs::read_dir(directory)
        .and_then(|entries| entries.map(|entry| entry.map(|entry| entry.file_name())).collect())
        .map_err(|source| HubError::io(format!("list {}", directory.display()), source))
}
