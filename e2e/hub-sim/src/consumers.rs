//! The ClusterAccesses, the objects of their access, and the kinds of these objects.

use std::collections::BTreeSet;

use consumer_access::{AccessRules, AccessSettings, Consumers};
use hub_core::consumer_access::AccessKind;
use hub_core::protected::ProtectedNamespaces;
use serde_json::{Value, json};

use crate::grant::granted;
use crate::hub::HOME;
use crate::model::{Server, is_terminating, without_nulls};

/// What a ClusterAccess asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Consumer {
    pub namespace: &'static str,
    /// The name of its account; of an own identity, that of the user server's, which several share.
    pub account: &'static str,
    /// Whether its identity is its own.
    pub own: bool,
    /// Its ClusterRoles, each with the namespace on the cluster in which it is bound; empty for the whole cluster.
    pub roles: &'static [(&'static str, &'static str)],
    /// The MultiKueueConfigs that it asks for.
    pub kueue: &'static [KueueList],
    /// Whether it asks for cluster Secrets of Argo CD.
    pub argo_cd: bool,
    /// Whether it follows the decisions of a Placement.
    pub placed: bool,
}

/// A MultiKueueConfig that a consumer asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KueueList {
    pub name: &'static str,
    /// Whether it lists only the clusters with the label `env=prod`.
    pub prod: bool,
}

impl KueueList {
    /// Whether it lists a cluster, if that is granted.
    pub(crate) fn selects(&self, server: &Server, cluster: &str) -> bool {
        let found = server.object("managedclusters", "", cluster);
        !self.prod || found.is_some_and(|cluster| cluster["metadata"]["labels"]["env"] == "prod")
    }
}

/// The kinds that give an account permissions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Permissions {
    /// A ManifestWork.
    #[default]
    Work,
    ClusterPermission,
}

impl Permissions {
    /// The plural of the kind.
    #[must_use]
    pub fn plural(self) -> &'static str {
        match self {
            Self::Work => WORKS,
            Self::ClusterPermission => CLUSTER_PERMISSIONS,
        }
    }

    /// The plural of the other kind.
    #[must_use]
    pub fn other(self) -> &'static str {
        match self {
            Self::Work => CLUSTER_PERMISSIONS,
            Self::ClusterPermission => WORKS,
        }
    }
}

/// The account of the user server.
pub const USER_SERVER: &str = "user-server";
/// Every account that a consumer can have. The first two are names of accounts that tenants create, too.
pub const ALL_ACCOUNTS: [&str; 3] = ["c", "b-c", USER_SERVER];

const ALL_CLUSTERS: &[KueueList] = &[KueueList { name: KUEUE_CONFIG, prod: false }];
const PROD: KueueList = KueueList { name: "prod", prod: true };
const NOTHING: Consumer = Consumer {
    namespace: "team",
    account: "c",
    own: false,
    roles: &[],
    kueue: &[],
    argo_cd: false,
    placed: false,
};

/// What objects can ask for. The first two exist at the start.
pub const VARIANTS: [Consumer; 8] = [
    Consumer { roles: &[("view", "")], argo_cd: true, ..NOTHING },
    Consumer {
        namespace: "other",
        account: "b-c",
        roles: &[("view", ""), ("edit", "jobs")],
        kueue: ALL_CLUSTERS,
        ..NOTHING
    },
    Consumer {
        roles: &[("edit", "jobs")],
        kueue: &[KueueList { name: KUEUE_CONFIG, prod: false }, PROD],
        argo_cd: true,
        ..NOTHING
    },
    Consumer {
        namespace: "other",
        account: "b-c",
        roles: &[("view", "")],
        placed: true,
        ..NOTHING
    },
    Consumer {
        namespace: "other",
        roles: &[("edit", "jobs")],
        kueue: &[PROD],
        argo_cd: true,
        ..NOTHING
    },
    Consumer {
        account: USER_SERVER,
        own: true,
        roles: &[("view", ""), ("edit", "jobs")],
        kueue: ALL_CLUSTERS,
        ..NOTHING
    },
    Consumer {
        namespace: "other",
        account: USER_SERVER,
        own: true,
        roles: &[("edit", "jobs")],
        ..NOTHING
    },
    Consumer {
        namespace: "other",
        account: USER_SERVER,
        own: true,
        roles: &[("view", "")],
        placed: true,
        ..NOTHING
    },
];

/// The label of an object with its variant.
const VARIANT: &str = "variant";
/// The Placement that consumers follow, and the label of its decisions.
const PLACEMENT: (&str, &str) = ("cluster.open-cluster-management.io/placement", "gpus");

impl Consumer {
    /// Whether its Placement, if it has one, has decided for a cluster.
    fn selects(&self, server: &Server, cluster: &str) -> bool {
        let decisions = server.objects_of(DECISIONS).filter(|it| {
            let metadata = &it["metadata"];
            metadata["namespace"] == self.namespace
                && metadata["labels"][PLACEMENT.0] == PLACEMENT.1
        });
        let mut clusters = decisions
            .flat_map(|it| it["status"]["decisions"].as_array().cloned().unwrap_or_default());
        !self.placed || clusters.any(|decision| decision["clusterName"] == cluster)
    }

    /// Whether it has access to a cluster; `None` if a selector cannot be read.
    #[must_use]
    pub fn granted(&self, server: &Server, cluster: &str) -> Option<bool> {
        if self.selects(server, cluster) {
            granted(server, self.namespace, cluster)
        } else {
            Some(false)
        }
    }
}

/// The object of a variant, as a patch: its namespace, its name, and itself.
#[must_use]
pub fn object(index: usize) -> (&'static str, &'static str, Value) {
    let consumer = VARIANTS[index];
    let list = |list: &KueueList| {
        let selector = list.prod.then(|| json!({ "matchLabels": { "env": "prod" } }));
        without_nulls(&json!({ "name": list.name, "selector": selector }))
    };
    let roles = consumer.roles.iter().map(|(role, namespace)| match *namespace {
        "" => json!({ "clusterRole": role }),
        namespace => json!({ "clusterRole": role, "namespaces": [namespace] }),
    });
    let kueue = json!({ "configs": consumer.kueue.iter().map(list).collect::<Vec<_>>() });
    let spec = json!({
        "identity": if consumer.own { "Own" } else { "Copy" },
        "serviceAccountNames": ["app"],
        "rotation": (!consumer.own).then(|| json!({ "validity": VALIDITY })),
        "permissions": roles.collect::<Vec<_>>(),
        "clusters": { "placementRef": consumer.placed.then(|| json!({ "name": PLACEMENT.1 })) },
        "argoCD": consumer.argo_cd.then(|| json!({})),
        "multiKueue": (!consumer.kueue.is_empty()).then_some(kueue),
    });
    let labels = json!({ (VARIANT): index.to_string() });
    (
        consumer.namespace,
        consumer.account,
        json!({ "metadata": { "labels": labels }, "spec": spec }),
    )
}

/// The consumers of the objects that exist, each with what no older object has.
pub(crate) fn declared(server: &Server) -> Vec<Consumer> {
    let read = |object: &std::sync::Arc<Value>| {
        let metadata = &object["metadata"];
        let index: usize = metadata["labels"][VARIANT].as_str()?.parse().ok()?;
        let text = |field: &str| metadata[field].as_str().unwrap_or_default().to_owned();
        Some(([text("creationTimestamp"), text("namespace"), text("name")], *VARIANTS.get(index)?))
    };
    let objects = server.objects_of(ACCESSES).filter(|object| !is_terminating(object));
    let mut objects: Vec<_> = objects.filter_map(read).collect();
    objects.sort_by(|one, other| one.0.cmp(&other.0));
    let mut found: Vec<Consumer> = Vec::new();
    for (_, consumer) in objects {
        if consumer.own || found.iter().all(|it| it.account != consumer.account) {
            found.push(consumer);
        }
    }
    let kueue =
        found.iter().find(|consumer| !consumer.kueue.is_empty()).map(|consumer| consumer.namespace);
    let mut with_secrets = BTreeSet::new();
    for consumer in &mut found {
        if kueue != Some(consumer.namespace) {
            consumer.kueue = &[];
        }
        consumer.argo_cd = consumer.argo_cd && with_secrets.insert(consumer.namespace);
    }
    found
}

/// The plural of ClusterAccesses.
pub const ACCESSES: &str = "clusteraccesses";
/// The plural of PlacementDecisions.
pub const DECISIONS: &str = "placementdecisions";
/// The plural of accounts.
pub const ACCOUNTS: &str = "managedserviceaccounts";
/// The plural of ManifestWorks.
pub const WORKS: &str = "manifestworks";
/// The plural of ClusterPermissions.
pub const CLUSTER_PERMISSIONS: &str = "clusterpermissions";
/// The plural of MultiKueueClusters.
pub const KUEUE_CLUSTERS: &str = "multikueueclusters";
/// The plural of MultiKueueConfigs.
pub const KUEUE_CONFIGS: &str = "multikueueconfigs";
/// The plurals of the objects of the access of consumers.
pub const KINDS: [&str; 5] = [ACCOUNTS, WORKS, CLUSTER_PERMISSIONS, KUEUE_CLUSTERS, KUEUE_CONFIGS];

/// The MultiKueueConfig of most.
pub const KUEUE_CONFIG: &str = "clusters";
/// The declared validity of tokens.
pub const VALIDITY: &str = "24h0m0s";
/// The prefix of the Roles on the hub, in the namespaces of consumers, that list their copies.
pub const ROLE: &str = "hub-addons-cluster-access-";
/// The labels of every object of consumer access.
pub const MARKS: [(&str, &str); 3] = [
    ("app.kubernetes.io/managed-by", "hub-addons"),
    ("app.kubernetes.io/component", "consumer-access"),
    ("hub-addons/installation", HOME),
];

/// The name of the permissions of an account.
pub(crate) fn permissions_name(account: &str) -> String {
    format!("hub-addons-consumer-{account}")
}

/// The namespace and the name of an object of the access of an account to a cluster.
pub(crate) fn place(plural: &str, cluster: &str, account: &str) -> (String, String) {
    match plural {
        ACCOUNTS => (cluster.to_owned(), account.to_owned()),
        KUEUE_CLUSTERS => (String::new(), cluster.to_owned()),
        KUEUE_CONFIGS => (String::new(), KUEUE_CONFIG.to_owned()),
        _ => (cluster.to_owned(), permissions_name(account)),
    }
}

/// What objects may ask for.
#[must_use]
pub fn rules() -> AccessRules {
    let allowed_cluster_roles = ["view", "edit", "cluster-admin"].map(str::to_owned).into();
    AccessRules {
        user_server: Some(USER_SERVER.into()),
        allowed_cluster_roles,
        ..AccessRules::default()
    }
}

/// The settings of consumer access, with the kind of permissions.
pub(crate) fn settings(permissions: Permissions) -> AccessSettings {
    AccessSettings {
        consumers: Consumers::new(rules()),
        permissions: Some(match permissions {
            Permissions::Work => AccessKind::ManifestWork,
            Permissions::ClusterPermission => AccessKind::ClusterPermission,
        }),
        account_namespace: None,
        protected: ProtectedNamespaces::default(),
        installation: HOME.into(),
        provider: "open-cluster-management".to_owned(),
        own_provider: "open-cluster-management-own-identity".to_owned(),
    }
}

/// Creates the objects of the first two variants.
pub fn install_objects(server: &mut Server) {
    for index in 0..2 {
        let (namespace, name, object) = object(index);
        let request = server.creation(ACCESSES, namespace, name, &without_nulls(&object));
        server.handle(&request);
    }
}

/// The CRDs of PlacementDecisions, of ClusterPermission and of Kueue, with the fields and rules that consumer access
/// depends on.
#[must_use]
pub fn crds() -> [Value; 4] {
    let name = json!({ "type": "string", "minLength": 1, "maxLength": 256 });
    let any = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    let bindings = json!({ "type": "array", "items": any });
    let source = json!({ "type": "object", "properties": {
        "clusterProfileRef": { "type": "object", "required": ["name"], "properties": { "name": name } },
        "kubeConfig": any,
    } });
    let listed = json!({
        "type": "array", "items": name, "minItems": 1, "maxItems": 20, "x-kubernetes-list-type": "set",
    });
    let permission = ("rbac.open-cluster-management.io", "v1alpha1", "Namespaced");
    let kueue = ("kueue.x-k8s.io", "v1beta2", "Cluster");
    let placement = ("cluster.open-cluster-management.io", "v1beta1", "Namespaced");
    [
        crd(placement, (DECISIONS, "PlacementDecision"), &any),
        crd(
            permission,
            (CLUSTER_PERMISSIONS, "ClusterPermission"),
            &json!({ "type": "object", "properties": {
                "clusterRoleBindings": bindings, "roleBindings": bindings, "clusterRole": any,
                "clusterRoleBinding": any,
            } }),
        ),
        crd(
            kueue,
            (KUEUE_CLUSTERS, "MultiKueueCluster"),
            &json!({ "type": "object", "required": ["clusterSource"], "properties": { "clusterSource": source } }),
        ),
        crd(
            kueue,
            (KUEUE_CONFIGS, "MultiKueueConfig"),
            &json!({ "type": "object", "required": ["clusters"], "properties": { "clusters": listed } }),
        ),
    ]
}

fn crd(
    (group, version, scope): (&str, &str, &str),
    (plural, kind): (&str, &str),
    spec: &Value,
) -> Value {
    let status = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{plural}.{group}") },
        "spec": {
            "group": group, "scope": scope,
            "names": { "kind": kind, "listKind": format!("{kind}List"), "plural": plural, "singular": kind.to_lowercase() },
            "versions": [{
                "name": version, "served": true, "storage": true, "subresources": { "status": {} },
                "schema": { "openAPIV3Schema": {
                    "type": "object", "properties": { "spec": spec, "status": status },
                } },
            }],
        },
    })
}
