//! The consumers that the processes declare, the objects of their access, and the kinds of these objects.

use consumer_access::AccessSettings;
use hub_core::consumer_role::ConsumerRole;
use hub_core::protected::ProtectedNamespaces;
use serde_json::{Value, json};

use crate::hub::{HOME, NAMESPACES, path};
use crate::model::{Request, Server};

/// The application in a namespace, and what it gets on each cluster that is granted to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Consumer {
    pub namespace: &'static str,
    /// The name of its account; of an own identity, that of the user server's, which several share.
    pub account: &'static str,
    /// Its name, if its identity is its own.
    pub own: Option<&'static str>,
    /// The kind of the object with its permissions.
    pub permissions: Permissions,
    /// Its ClusterRoles, each with the namespace on the cluster in which it is bound; empty for the whole cluster.
    pub roles: &'static [(&'static str, &'static str)],
    /// The MultiKueueConfigs that it declares.
    pub kueue: &'static [KueueList],
    /// Whether it asks for cluster Secrets of Argo CD.
    pub argo_cd: bool,
}

/// A MultiKueueConfig that a consumer declares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KueueList {
    pub name: &'static str,
    /// Whether it lists only the clusters with the label `env=prod`.
    pub prod: bool,
}

impl KueueList {
    /// Whether it lists a cluster, if that is granted.
    #[must_use]
    pub fn selects(&self, server: &Server, cluster: &str) -> bool {
        let found = server.object("managedclusters", "", cluster);
        !self.prod || found.is_some_and(|cluster| cluster["metadata"]["labels"]["env"] == "prod")
    }
}

/// The kinds that give an account permissions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permissions {
    /// A ManifestWork.
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

/// The declarations that processes can have, one after the other. Each has the names of accounts that tenants create, too.
pub const DECLARATIONS: [&[Consumer]; 4] = [
    &[
        Consumer {
            namespace: "team",
            account: "c",
            own: None,
            permissions: Permissions::Work,
            roles: &[("view", "")],
            kueue: &[],
            argo_cd: true,
        },
        Consumer {
            namespace: "other",
            account: "b-c",
            own: None,
            permissions: Permissions::ClusterPermission,
            roles: &[("view", ""), ("edit", "jobs")],
            kueue: &[KueueList { name: KUEUE_CONFIG, prod: false }],
            argo_cd: false,
        },
    ],
    &[
        Consumer {
            namespace: "team",
            account: "c",
            own: None,
            permissions: Permissions::ClusterPermission,
            roles: &[("edit", "jobs")],
            kueue: &[KueueList { name: KUEUE_CONFIG, prod: false }, KueueList { name: "prod", prod: true }],
            argo_cd: false,
        },
        Consumer {
            namespace: "other",
            account: "b-c",
            own: None,
            permissions: Permissions::Work,
            roles: &[("view", "")],
            kueue: &[],
            argo_cd: true,
        },
    ],
    &[Consumer {
        namespace: "other",
        account: "c",
        own: None,
        permissions: Permissions::Work,
        roles: &[("edit", "jobs")],
        kueue: &[KueueList { name: KUEUE_CONFIG, prod: true }],
        argo_cd: true,
    }],
    &[
        Consumer {
            namespace: "team",
            account: "c",
            own: Some("one"),
            permissions: Permissions::Work,
            roles: &[("view", ""), ("edit", "jobs")],
            kueue: &[KueueList { name: KUEUE_CONFIG, prod: false }],
            argo_cd: false,
        },
        Consumer {
            namespace: "other",
            account: "c",
            own: Some("two"),
            permissions: Permissions::Work,
            roles: &[("edit", "jobs")],
            kueue: &[],
            argo_cd: false,
        },
    ],
];

impl Consumer {
    /// The user that its ServiceAccount is on a cluster.
    #[must_use]
    pub fn user(&self) -> String {
        format!("cluster:hub:system:serviceaccount:{}:app", self.namespace)
    }
}

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
/// The objects of the access of consumers, by plural and kind.
pub const KINDS: [(&str, &str); 5] = [
    (ACCOUNTS, "ManagedServiceAccount"),
    (WORKS, "ManifestWork"),
    (CLUSTER_PERMISSIONS, "ClusterPermission"),
    (KUEUE_CLUSTERS, "MultiKueueCluster"),
    (KUEUE_CONFIGS, "MultiKueueConfig"),
];

/// The MultiKueueConfig that every declaration has.
pub const KUEUE_CONFIG: &str = "clusters";
/// The declared validity of tokens.
pub const VALIDITY: &str = "24h0m0s";
/// The Role on the hub, in the namespace of a consumer, that lists its copies.
pub const ROLE: &str = "consumer";
/// The labels of these Roles.
const ROLE_LABELS: [(&str, &str); 2] =
    [("app.kubernetes.io/part-of", "hub-addons"), ("app.kubernetes.io/component", "consumer")];
/// The labels of every object of consumer access.
pub const MARKS: [(&str, &str); 3] = [
    ("app.kubernetes.io/managed-by", "hub-addons"),
    ("app.kubernetes.io/component", "consumer-access"),
    ("hub-addons/installation", HOME),
];

/// The name of the permissions of an account.
#[must_use]
pub fn permissions_name(account: &str) -> String {
    format!("hub-addons-consumer-{account}")
}

/// The namespace and the name of an object of the access of an account to a cluster.
#[must_use]
pub fn place(plural: &str, cluster: &str, account: &str) -> (String, String) {
    match plural {
        ACCOUNTS => (cluster.to_owned(), account.to_owned()),
        KUEUE_CLUSTERS => (String::new(), cluster.to_owned()),
        KUEUE_CONFIGS => (String::new(), KUEUE_CONFIG.to_owned()),
        _ => (cluster.to_owned(), permissions_name(account)),
    }
}

/// The settings of consumer access.
#[must_use]
pub fn settings(declared: &[Consumer]) -> Option<AccessSettings> {
    let list = |list: &KueueList| {
        let selector = list.prod.then(|| json!({ "matchLabels": { "env": "prod" } }));
        json!({ "name": list.name, "clusterSelector": selector })
    };
    let consumer = |consumer: &Consumer| {
        let roles = consumer.roles.iter().map(|(role, namespace)| match *namespace {
            "" => json!({ "name": role }),
            namespace => json!({ "name": role, "namespaces": [namespace] }),
        });
        let own = consumer.own.map(|_| json!(["app"]));
        json!({
            "namespace": consumer.namespace, "managedServiceAccount": consumer.account,
            "identity": if own.is_some() { "own" } else { "account" },
            "name": consumer.own, "serviceAccounts": own,
            "clusterRoles": roles.collect::<Vec<_>>(),
            "rotation": consumer.own.is_none().then(|| json!({ "validity": VALIDITY })),
            "permissions": match consumer.permissions {
                Permissions::Work => "ManifestWork",
                Permissions::ClusterPermission => "ClusterPermission",
            },
            "argoCD": consumer.argo_cd.then(|| json!({})),
            "multiKueueConfigs": consumer.kueue.iter().map(list).collect::<Vec<_>>(),
        })
    };
    let consumers = declared.iter().map(consumer).collect::<Value>();
    Some(AccessSettings {
        consumers: consumers.to_string().parse().ok()?,
        account_namespace: None,
        protected: ProtectedNamespaces::default(),
        installation: HOME.into(),
        includes_local_cluster: false,
        hub_openshift_id: None,
        provider: "open-cluster-management".to_owned(),
        own_provider: "open-cluster-management-own-identity".to_owned(),
        withdraws: false,
    })
}

/// The Roles on the hub that follow the grants of consumers.
#[must_use]
pub fn roles(declared: &[Consumer]) -> Vec<ConsumerRole> {
    let role = |consumer: &Consumer| ConsumerRole {
        namespace: consumer.namespace.into(),
        name: ROLE.to_owned(),
        account: consumer.account.into(),
    };
    declared.iter().filter(|consumer| consumer.own.is_none()).map(role).collect()
}

/// Creates the Roles of consumers, as the chart does.
pub fn install_roles(server: &mut Server) {
    for namespace in NAMESPACES {
        let labels: serde_json::Map<_, _> =
            ROLE_LABELS.iter().map(|(key, value)| ((*key).to_owned(), Value::from(*value))).collect();
        let role = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
            "metadata": { "name": ROLE, "labels": labels }, "rules": [],
        });
        server.handle(&Request::new("POST", &path("roles", namespace, "")).with(&role));
    }
}

/// The CRDs of ClusterPermission and of Kueue, with the fields and rules that consumer access depends on.
#[must_use]
pub fn crds() -> [Value; 3] {
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
    [
        crd(
            permission,
            KINDS[2],
            &json!({ "type": "object", "properties": { "clusterRoleBindings": bindings, "roleBindings": bindings } }),
        ),
        crd(
            kueue,
            KINDS[3],
            &json!({ "type": "object", "required": ["clusterSource"], "properties": { "clusterSource": source } }),
        ),
        crd(
            kueue,
            KINDS[4],
            &json!({ "type": "object", "required": ["clusters"], "properties": { "clusters": listed } }),
        ),
    ]
}

fn crd((group, version, scope): (&str, &str, &str), (plural, kind): (&str, &str), spec: &Value) -> Value {
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
