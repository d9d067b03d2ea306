//! What happens on a hub: one operation of somebody, or one thing that goes wrong.

use std::time::Duration;

use fastrand::Rng;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::certificates::CERTIFICATES;
use crate::hub::{
    ACCOUNTS, ASK_LABEL, Actor, CLUSTERS, COPY_ANNOTATIONS, COPY_LABEL, EXCLUSIVE_LABEL, MANAGER,
    MANAGER_LABEL, NAMESPACES, PROXIES, SCOPE_ANNOTATION, SETS, TOKEN_LABEL, condition, path, selector,
};
use crate::model::{Refusal, Request, uid_of};
use crate::world::{CrashPoint, Fault, World};

/// An index into one of the lists of [`crate::hub`].
pub type Index = u8;

/// One thing that happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is what its name says, about the objects whose indexes it holds")]
pub enum Operation {
    // People and Open Cluster Management.
    CreateCluster(Index),
    /// Open Cluster Management holds a cluster by a finalizer while it leaves.
    LeaveCluster(Index),
    RemoveCluster(Index),
    MoveCluster(Index, Option<Index>),
    LabelCluster(Index, bool),
    Health(Index, u8),
    CreateSet(Index),
    DeleteSet(Index),
    Select(Index, u8),
    Bind(Index, Index),
    Unbind(Index, Index),
    Bound(Index, Index, bool),
    EndNamespace(Index),
    CreateNamespace(Index),
    // cluster-proxy.
    Configure(Option<Index>),
    Addon(Index, bool),
    Serve(Index, Option<u8>),
    // Agents and accounts.
    CreateAccount(Index, Index),
    DeleteAccount(Index, Index),
    Ask(Index, Index, bool),
    Scope(Index, Index, u8),
    Report(Index, Index, u8),
    Unreport(Index, Index),
    // Tenants, and controllers of others.
    Profile(Index, Index, ProfileTenant),
    Secret(Index, Index, Index, SecretTenant),
    // What goes wrong.
    Start(u8),
    Crash(u8),
    CrashAtWrite(u8, u8, bool),
    Disconnect,
    Compact,
    Stall(u8),
    Lag(u8),
    Fail(Fault, u8),
    Refuse(Index, bool),
    RemoveCrd(u8),
    RestoreCrds,
    Collect,
    Wait(u16),
}

/// What a tenant does to a profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is what its name says")]
pub enum ProfileTenant {
    Delete,
    Strip,
    Rename,
    Annotate,
    WipeStatus,
    Hold,
    Release,
    CreateOurs,
    CreateForeign,
    AddProvider,
    RemoveProvider,
    AddCondition,
    DisguiseProvider,
}

/// What a tenant does to a Secret where a copy belongs.
///
/// The last three meet defects that are known, and are not among the random operations unless these are asked for:
///
/// - a Secret of somebody else that stays where a copy belongs: each minute, when the create is tried again, the account's
///   condition is taken away and comes back three seconds later, with a new Event;
/// - a copy that is disowned outlives its grant, and a Secret that is forged is taken for a copy, because managedFields,
///   labels and annotations decide whose a Secret is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is what its name says")]
pub enum SecretTenant {
    Delete,
    Edit,
    Unlabel,
    Hold,
    Release,
    CreateForeign,
    /// Takes every trace of the syncer from a copy.
    Disown,
    /// Makes a Secret that says of itself that it is a copy.
    Forge,
}

impl Operation {
    /// Whether the operation is a crash or a fault: without them, what is due is due soon.
    #[must_use]
    pub fn is_fault(self) -> bool {
        matches!(
            self,
            Self::Start(_)
                | Self::Crash(_)
                | Self::CrashAtWrite(..)
                | Self::Disconnect
                | Self::Compact
                | Self::Stall(_)
                | Self::Lag(_)
                | Self::Fail(..)
                | Self::Refuse(..)
                | Self::RemoveCrd(_)
        )
    }

    /// One at random. Setting a hub up is more likely than taking it down. With `known`, it may be one that a defect
    /// which is known makes fail: see [`SecretTenant`].
    #[must_use]
    pub fn random(rng: &mut Rng, faults: bool, known: bool) -> Self {
        let cluster = rng.u8(..3);
        let (set, namespace, account) = (rng.u8(..2), rng.u8(..2), rng.u8(..2));
        match rng.u8(..if faults { 118 } else { 94 }) {
            0..6 => Self::CreateCluster(cluster),
            6..8 => Self::LeaveCluster(cluster),
            8..10 => Self::RemoveCluster(cluster),
            10..16 => Self::MoveCluster(cluster, (rng.u8(..4) > 0).then_some(set)),
            16..18 => Self::LabelCluster(cluster, rng.bool()),
            18..21 => Self::Health(cluster, rng.u8(..)),
            21..23 => Self::CreateSet(set),
            23 => Self::DeleteSet(set),
            24..27 => Self::Select(set, rng.u8(..12)),
            27..31 => Self::Bind(namespace, set),
            31..33 => Self::Unbind(namespace, set),
            33..35 => Self::Bound(namespace, set, rng.u8(..3) > 0),
            35 => Self::EndNamespace(namespace),
            36..38 => Self::CreateNamespace(namespace),
            38..40 => Self::Configure((rng.u8(..4) > 0).then(|| rng.u8(..2))),
            40..42 => Self::Addon(cluster, rng.u8(..3) > 0),
            42..45 => Self::Serve(rng.u8(..2), (rng.u8(..5) > 0).then(|| rng.u8(..))),
            45..50 => Self::CreateAccount(cluster, account),
            50..52 => Self::DeleteAccount(cluster, account),
            52..54 => Self::Ask(cluster, account, rng.u8(..3) > 0),
            54..56 => Self::Scope(cluster, account, rng.u8(..)),
            56..63 => Self::Report(cluster, account, rng.u8(..)),
            63..65 => Self::Unreport(cluster, account),
            65..73 => Self::Profile(namespace, cluster, ProfileTenant::random(rng)),
            73..80 => Self::Secret(namespace, cluster, account, SecretTenant::random(rng, known)),
            80..84 => Self::Collect,
            84..94 => Self::Wait(rng.u16(..4000)),
            94..98 => Self::Start(rng.u8(..2)),
            98..100 => Self::Crash(rng.u8(..2)),
            100..105 => Self::CrashAtWrite(rng.u8(..2), rng.u8(..4), rng.bool()),
            105..107 => Self::Disconnect,
            107 => Self::Compact,
            108 => Self::Stall(rng.u8(1..40)),
            109..111 => Self::Lag(rng.u8(..40)),
            111..115 => Self::Fail(Fault::ALL[rng.usize(..6)], rng.u8(1..6)),
            115 => Self::Refuse(namespace, rng.bool()),
            116 => Self::RemoveCrd(rng.u8(..2)),
            _ => Self::RestoreCrds,
        }
    }
}

impl ProfileTenant {
    fn random(rng: &mut Rng) -> Self {
        use ProfileTenant as P;
        let all = [
            P::Delete,
            P::Delete,
            P::Strip,
            P::Rename,
            P::Annotate,
            P::WipeStatus,
            P::Hold,
            P::Release,
            P::CreateOurs,
            P::CreateForeign,
            P::AddProvider,
            P::RemoveProvider,
            P::AddCondition,
            P::DisguiseProvider,
        ];
        all[rng.usize(..all.len())]
    }
}

impl SecretTenant {
    fn random(rng: &mut Rng, known: bool) -> Self {
        use SecretTenant as S;
        let all =
            [S::Delete, S::Edit, S::Unlabel, S::Hold, S::Release, S::CreateForeign, S::Disown, S::Forge];
        all[rng.usize(..if known { 8 } else { 5 })]
    }
}

/// The CRDs that can disappear.
const MORTAL: [&str; 2] = ["clusterprofiles", "managedserviceaccounts"];

/// Everybody who is no process of ours.
pub struct Others {
    world: World,
    ocm: Actor,
    agent: Actor,
    tenant: Actor,
    other: Actor,
}

impl Others {
    /// Those of a world.
    #[must_use]
    pub fn new(world: &World) -> Self {
        Self {
            world: world.clone(),
            ocm: Actor::new(world, "registration-controller"),
            agent: Actor::new(world, "managed-serviceaccount-agent"),
            tenant: Actor::new(world, "kubectl-edit"),
            other: Actor::new(world, "another-provider"),
        }
    }

    /// Does what is not about a process of ours.
    pub fn perform(&self, operation: Operation) {
        use Operation as O;
        match operation {
            O::CreateCluster(..)
            | O::LeaveCluster(..)
            | O::RemoveCluster(..)
            | O::MoveCluster(..)
            | O::LabelCluster(..)
            | O::Health(..) => self.cluster(operation),
            O::CreateSet(..)
            | O::DeleteSet(..)
            | O::Select(..)
            | O::Bind(..)
            | O::Unbind(..)
            | O::Bound(..)
            | O::EndNamespace(..)
            | O::CreateNamespace(..) => self.grant(operation),
            O::Configure(..) | O::Addon(..) | O::Serve(..) => self.proxy(operation),
            O::CreateAccount(..)
            | O::DeleteAccount(..)
            | O::Ask(..)
            | O::Scope(..)
            | O::Report(..)
            | O::Unreport(..) => self.account(operation),
            O::Profile(namespace, cluster, what) => {
                self.profile(at(&NAMESPACES, namespace), at(&CLUSTERS, cluster), what);
            }
            O::Secret(namespace, cluster, account, what) => {
                self.secret(at(&NAMESPACES, namespace), at(&CLUSTERS, cluster), at(&ACCOUNTS, account), what);
            }
            _ => self.fault(operation),
        }
    }

    fn cluster(&self, operation: Operation) {
        use Operation as O;
        let kind = "managedclusters";
        match operation {
            O::CreateCluster(cluster) => {
                let body = json!({
                    "metadata": { "labels": { "env": "prod" }, "finalizers": ["cluster.open-cluster-management.io/api-resource-cleanup"] },
                    "spec": { "hubAcceptsClient": true },
                    "status": health(0),
                });
                self.ocm.create(kind, "ManagedCluster", "", at(&CLUSTERS, cluster), &body);
            }
            O::LeaveCluster(cluster) => {
                self.tenant.delete(kind, "", at(&CLUSTERS, cluster));
            }
            O::RemoveCluster(cluster) => {
                let name = at(&CLUSTERS, cluster);
                self.tenant.delete(kind, "", name);
                self.ocm.patch(kind, "", name, &json!({ "metadata": { "finalizers": null } }));
            }
            O::MoveCluster(cluster, set) => {
                let set = set.map(|set| at(&SETS, set));
                let patch = json!({ "metadata": { "labels": { EXCLUSIVE_LABEL: set } } });
                self.tenant.patch(kind, "", at(&CLUSTERS, cluster), &patch);
            }
            O::LabelCluster(cluster, prod) => {
                let env = prod.then_some("prod");
                let patch = json!({ "metadata": { "labels": { "env": env } } });
                self.tenant.patch(kind, "", at(&CLUSTERS, cluster), &patch);
            }
            O::Health(cluster, variant) => {
                self.ocm.patch_status(kind, "", at(&CLUSTERS, cluster), &health(variant));
            }
            _ => {}
        }
    }

    fn grant(&self, operation: Operation) {
        use Operation as O;
        let (sets, bindings) = ("managedclustersets", "managedclustersetbindings");
        match operation {
            O::CreateSet(set) => {
                self.tenant.create(
                    sets,
                    "ManagedClusterSet",
                    "",
                    at(&SETS, set),
                    &json!({ "spec": selector(0) }),
                );
            }
            O::DeleteSet(set) => {
                self.tenant.delete(sets, "", at(&SETS, set));
            }
            O::Select(set, variant) => {
                // The first variant is the most likely one.
                let variant = if variant > 6 { 0 } else { variant };
                let mut spec = selector(variant);
                if spec["clusterSelector"].get("labelSelector").is_none() {
                    spec["clusterSelector"]["labelSelector"] = Value::Null;
                } else {
                    for field in ["matchLabels", "matchExpressions"] {
                        if spec["clusterSelector"]["labelSelector"].get(field).is_none() {
                            spec["clusterSelector"]["labelSelector"][field] = Value::Null;
                        }
                    }
                }
                self.tenant.patch(sets, "", at(&SETS, set), &json!({ "spec": spec }));
            }
            O::Bind(namespace, set) => {
                let set = at(&SETS, set);
                let body = json!({
                    "spec": { "clusterSet": set },
                    "status": { "conditions": [condition("Bound", "True", "ClusterSetBound")] },
                });
                self.tenant.create(
                    bindings,
                    "ManagedClusterSetBinding",
                    at(&NAMESPACES, namespace),
                    set,
                    &body,
                );
            }
            O::Unbind(namespace, set) => {
                self.tenant.delete(bindings, at(&NAMESPACES, namespace), at(&SETS, set));
            }
            O::Bound(namespace, set, bound) => {
                let bound = if bound { "True" } else { "False" };
                let status = json!({ "conditions": [condition("Bound", bound, "Simulated")] });
                self.ocm.patch_status(bindings, at(&NAMESPACES, namespace), at(&SETS, set), &status);
            }
            O::EndNamespace(namespace) => {
                self.tenant.delete("namespaces", "", at(&NAMESPACES, namespace));
            }
            O::CreateNamespace(namespace) => {
                self.tenant.create("namespaces", "Namespace", "", at(&NAMESPACES, namespace), &json!({}));
            }
            _ => {}
        }
    }

    fn proxy(&self, operation: Operation) {
        use Operation as O;
        match operation {
            O::Configure(place) => {
                let kind = "managedproxyconfigurations";
                let Some(place) = place else {
                    self.ocm.delete(kind, "", "cluster-proxy");
                    return;
                };
                let spec = json!({
                    "authentication": { "signer": { "type": "SelfSigned" } },
                    "proxyServer": { "namespace": at(&PROXIES, place), "image": "server" },
                    "proxyAgent": { "image": "agent" },
                });
                let body = json!({ "spec": spec });
                self.ocm.create(kind, "ManagedProxyConfiguration", "", "cluster-proxy", &body);
                self.ocm.patch(kind, "", "cluster-proxy", &body);
            }
            O::Addon(cluster, there) => {
                let (kind, namespace) = ("managedclusteraddons", at(&CLUSTERS, cluster));
                if there {
                    self.ocm.create(
                        kind,
                        "ManagedClusterAddOn",
                        namespace,
                        "cluster-proxy",
                        &json!({ "spec": {} }),
                    );
                } else {
                    self.ocm.delete(kind, namespace, "cluster-proxy");
                }
            }
            O::Serve(place, variant) => {
                let (namespace, name) = (at(&PROXIES, place), "cluster-proxy-user-serving-cert");
                let Some(variant) = variant else {
                    self.ocm.delete("secrets", namespace, name);
                    return;
                };
                let certificate = CERTIFICATES[usize::from(variant) % CERTIFICATES.len()];
                let body = json!({ "stringData": { "tls.crt": certificate } });
                self.ocm.create("secrets", "Secret", namespace, name, &body);
                self.ocm.patch("secrets", namespace, name, &body);
            }
            _ => {}
        }
    }

    fn account(&self, operation: Operation) {
        use Operation as O;
        let kind = "managedserviceaccounts";
        match operation {
            O::CreateAccount(cluster, account) => {
                let body = json!({
                    "metadata": { "labels": { ASK_LABEL: "true" } },
                    "spec": { "rotation": { "enabled": true, "validity": "24h0m0s" } },
                });
                let (cluster, account) = (at(&CLUSTERS, cluster), at(&ACCOUNTS, account));
                self.tenant.create(kind, "ManagedServiceAccount", cluster, account, &body);
            }
            O::DeleteAccount(cluster, account) => {
                self.tenant.delete(kind, at(&CLUSTERS, cluster), at(&ACCOUNTS, account));
            }
            O::Ask(cluster, account, asks) => {
                let patch = json!({ "metadata": { "labels": { ASK_LABEL: asks.then_some("true") } } });
                self.tenant.patch(kind, at(&CLUSTERS, cluster), at(&ACCOUNTS, account), &patch);
            }
            O::Scope(cluster, account, variant) => {
                let scope = [None, Some("team"), Some("other"), Some("team,other"), Some("")]
                    [usize::from(variant) % 5];
                let patch = json!({ "metadata": { "annotations": { SCOPE_ANNOTATION: scope } } });
                self.tenant.patch(kind, at(&CLUSTERS, cluster), at(&ACCOUNTS, account), &patch);
            }
            O::Report(cluster, account, variant) => {
                let (cluster, account) = (at(&CLUSTERS, cluster), at(&ACCOUNTS, account));
                let Some(owner) = self.agent.get(kind, cluster, account) else { return };
                let body = json!({
                    "metadata": {
                        "labels": { TOKEN_LABEL: "true" },
                        "ownerReferences": [{
                            "apiVersion": "authentication.open-cluster-management.io/v1beta1",
                            "kind": "ManagedServiceAccount", "name": account, "uid": uid_of(&owner),
                        }],
                    },
                    "type": "Opaque",
                    "stringData": { "token": format!("token-{cluster}-{account}-{}", variant % 4), "ca.crt": "authority" },
                });
                self.agent.create("secrets", "Secret", cluster, account, &body);
                self.agent.patch("secrets", cluster, account, &body);
            }
            O::Unreport(cluster, account) => {
                self.agent.delete("secrets", at(&CLUSTERS, cluster), at(&ACCOUNTS, account));
            }
            _ => {}
        }
    }

    fn profile(&self, namespace: &str, cluster: &str, what: ProfileTenant) {
        use ProfileTenant as P;
        let kind = "clusterprofiles";
        let of = |manager: &str| json!({ "metadata": { "labels": { MANAGER_LABEL: manager } }, "spec": { "clusterManager": { "name": manager } } });
        let patch = |patch: Value| self.tenant.patch(kind, namespace, cluster, &patch);
        let entry = |name: &str| json!({ "name": name, "cluster": { "server": "https://elsewhere:443" } });
        match what {
            P::Delete => self.tenant.delete(kind, namespace, cluster),
            P::Strip => patch(json!({ "metadata": { "labels": null } })),
            P::Rename => patch(json!({ "spec": { "displayName": "renamed" } })),
            P::Annotate => {
                patch(json!({ "metadata": { "annotations": { "note": "x" }, "labels": { "mine": "y" } } }));
            }
            P::Hold => patch(json!({ "metadata": { "finalizers": ["example.com/hold"] } })),
            P::Release => patch(json!({ "metadata": { "finalizers": null } })),
            P::CreateOurs => {
                self.tenant.create(kind, "ClusterProfile", namespace, cluster, &of(MANAGER));
            }
            P::CreateForeign => {
                self.tenant.create(kind, "ClusterProfile", namespace, cluster, &of("someone"));
            }
            P::WipeStatus => {
                let status = json!({ "version": null, "properties": null, "conditions": null, "accessProviders": null });
                self.tenant.patch_status(kind, namespace, cluster, &status);
            }
            P::AddProvider | P::RemoveProvider | P::AddCondition | P::DisguiseProvider => {
                let Some(profile) = self.other.get(kind, namespace, cluster) else { return };
                let list = |field: &str| profile["status"][field].as_array().cloned().unwrap_or_default();
                let with = |field: &str, key: &str, name: &str, more: Option<Value>| {
                    let mut list = list(field);
                    list.retain(|entry| entry[key] != name);
                    list.extend(more);
                    list
                };
                let status = match what {
                    P::AddProvider => {
                        json!({ "accessProviders": with("accessProviders", "name", "another", Some(entry("another"))) })
                    }
                    P::RemoveProvider => {
                        json!({ "accessProviders": with("accessProviders", "name", "another", None) })
                    }
                    P::DisguiseProvider => {
                        json!({ "accessProviders": with("accessProviders", "name", MANAGER, Some(entry(MANAGER))) })
                    }
                    _ => {
                        json!({ "conditions": with("conditions", "type", "Theirs", Some(condition("Theirs", "True", "Because"))) })
                    }
                };
                self.other.patch_status(kind, namespace, cluster, &status);
            }
        }
    }

    fn secret(&self, namespace: &str, cluster: &str, account: &str, what: SecretTenant) {
        use SecretTenant as S;
        let (kind, name) = ("secrets", format!("{cluster}-{account}"));
        let patch = |patch: Value| self.tenant.patch(kind, namespace, &name, &patch);
        match what {
            S::Delete => self.tenant.delete(kind, namespace, &name),
            S::Edit => patch(json!({ "data": { "token": "ZWRpdGVk", "more": "eA==" } })),
            S::Unlabel => patch(json!({ "metadata": { "labels": { COPY_LABEL: null } } })),
            S::Hold => patch(json!({ "metadata": { "finalizers": ["example.com/hold"] } })),
            S::Release => patch(json!({ "metadata": { "finalizers": null } })),
            S::CreateForeign => {
                let body = json!({ "stringData": { "password": "mine" } });
                self.tenant.create(kind, "Secret", namespace, &name, &body);
            }
            S::Disown => {
                let blank = json!({ "metadata": { "labels": null, "annotations": null, "ownerReferences": null, "managedFields": [{}] } });
                patch(blank);
            }
            S::Forge => {
                let [by_cluster, by_account, by_uid] = COPY_ANNOTATIONS;
                let body = json!({
                    "apiVersion": "v1", "kind": "Secret",
                    "metadata": {
                        "name": name,
                        "labels": { COPY_LABEL: name },
                        "annotations": { by_cluster: cluster, by_account: account, by_uid: "x", "replicate": "everywhere" },
                    },
                    "stringData": { "mine": "x" },
                });
                let mut request = Request::new("POST", &path(kind, namespace, "")).with(&body);
                request.query.insert("fieldManager".to_owned(), "hub-addons-credential-syncer".to_owned());
                self.tenant.send(&request);
            }
        }
    }

    fn fault(&self, operation: Operation) {
        use Operation as O;
        match operation {
            O::Disconnect => self.world.disconnect(),
            O::Compact => {
                self.world.change(crate::model::Server::compact);
                self.world.disconnect();
            }
            O::Stall(seconds) => {
                let until = Instant::now() + Duration::from_secs(seconds.into());
                self.world.lock().network.stalled_until = Some(until);
            }
            O::Lag(tenths) => self.world.lock().network.lag = Duration::from_millis(u64::from(tenths) * 100),
            O::Fail(fault, count) => self.world.lock().network.failing = Some((count.into(), fault)),
            O::Refuse(namespace, refused) => self.world.change(|server| {
                server.refusals.clear();
                if refused {
                    server.refusals.push(Refusal {
                        plural: "secrets".to_owned(),
                        namespace: at(&NAMESPACES, namespace).to_owned(),
                        why: "exceeded quota: secrets, requested: secrets=1, used: secrets=5, limited: secrets=5".to_owned(),
                    });
                }
            }),
            O::RemoveCrd(index) => self.world.change(|server| server.remove_crd(MORTAL[usize::from(index) % MORTAL.len()])),
            O::RestoreCrds => self.restore_crds(),
            O::Collect => self.world.change(|server| {
                server.collect();
            }),
            _ => {}
        }
    }

    /// Ends whatever is wrong: nothing is refused, lost or late any more, and every kind is served.
    pub fn end_faults(&self) {
        {
            let mut state = self.world.lock();
            state.network.failing = None;
            state.network.lag = Duration::ZERO;
            state.network.stalled_until = None;
            state.network.forbidden.clear();
            state.server.refusals.clear();
        }
        self.restore_crds();
    }

    fn restore_crds(&self) {
        self.world.change(|server| {
            for plural in MORTAL {
                server.restore_crd(plural);
            }
        });
    }
}

/// When a process dies, from an operation.
#[must_use]
pub fn crash_point(after: u8, committed: bool) -> CrashPoint {
    CrashPoint { after: after.into(), committed }
}

fn at<T: Copy>(list: &[T], index: Index) -> T {
    list[usize::from(index) % list.len()]
}

/// What a cluster's agent says of it.
fn health(variant: u8) -> Value {
    let available = ["True", "False", "Unknown"][usize::from(variant) % 3];
    let version = ["v1.35.0", "v1.36.3"][usize::from(variant / 3) % 2];
    let claims = match variant / 6 % 4 {
        0 => json!([]),
        1 => json!([{ "name": "id", "value": "1" }]),
        2 => json!([{ "name": "id", "value": "2" }, { "name": "region", "value": "eu" }]),
        _ => {
            json!([{ "name": "id", "value": "1" }, { "name": "id", "value": "2" }, { "name": "x", "value": "" }])
        }
    };
    json!({
        "version": { "kubernetes": version },
        "clusterClaims": claims,
        "conditions": [
            condition("ManagedClusterConditionAvailable", available, "ManagedClusterAvailable"),
            condition("ManagedClusterJoined", "True", "ManagedClusterJoined"),
        ],
    })
}
