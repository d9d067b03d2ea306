//! The purpose of each permission of the chart. Each is removed in turn from its role on a hub, while the program runs
//! with its Deployments' arguments and ServiceAccounts: the API server refuses exactly the requests that need the
//! permission, one function is lost, and is restored with the permission. A permission without a lost function is
//! unnecessary.
//!
//! With `--nocapture` it prints the lost functions.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "clippy takes only functions marked as tests for tests"
)]

mod granter;
mod host;
mod projector;
mod provisioner;
pub mod right;
mod syncer;
mod trial;

use std::pin::Pin;

use right::Right;
use trial::{Installation, Trial};

/// A right, what is lost with it, and how that is seen.
type Line = (&'static str, &'static str, Scene);
type Scene = for<'t> fn(&'t mut Trial) -> Pin<Box<dyn Future<Output = ()> + 't>>;

/// Every process.
const HOST: &[Line] = &[
    ("get leases", "no replica leads, and nothing is done", |t| Box::pin(host::leads(t))),
    ("create leases", "no replica leads where none has before", |t| Box::pin(host::leads(t))),
    ("update leases", "no replica takes over from another", |t| Box::pin(host::leads(t))),
    ("create events", "no Event tells what is amiss", |t| Box::pin(host::tells(t))),
];

/// Every process that has to do with profiles.
const VERSIONS: &[Line] = &[
    ("list customresourcedefinitions", "a version of ClusterProfile other than v1alpha1 is not used", |t| {
        Box::pin(host::follows_versions(t))
    }),
    (
        "watch customresourcedefinitions",
        "a version of ClusterProfile that is served later is not used",
        |t| Box::pin(host::follows_versions(t)),
    ),
];

const PROJECTOR: &[Line] = &[
    ("list managedclusters", "no work begins", |t| Box::pin(host::begins(t, "managedclusters"))),
    ("watch managedclusters", "a cluster that joins has no profile", |t| {
        Box::pin(projector::follows_clusters(t))
    }),
    ("list managedclustersets", "no work begins", |t| Box::pin(host::begins(t, "managedclustersets"))),
    ("watch managedclustersets", "a set that is made later grants nothing", |t| {
        Box::pin(projector::follows_sets(t))
    }),
    ("list managedclustersetbindings", "no work begins", |t| {
        Box::pin(host::begins(t, "managedclustersetbindings"))
    }),
    ("watch managedclustersetbindings", "a namespace that is bound later sees nothing", |t| {
        Box::pin(projector::follows_bindings(t))
    }),
    ("list clusterprofiles", "no work begins", |t| Box::pin(host::begins(t, "clusterprofiles"))),
    ("watch clusterprofiles", "a profile that is changed by hand stays so", |t| {
        Box::pin(projector::follows_profiles(t))
    }),
    ("create clusterprofiles", "no profile is made", |t| Box::pin(projector::makes(t))),
    ("patch clusterprofiles", "no profile is mended", |t| Box::pin(projector::mends(t))),
    ("delete clusterprofiles", "the profile of a cluster that has left stays", |t| {
        Box::pin(projector::deletes(t))
    }),
    ("patch clusterprofiles/status", "a profile says nothing of its cluster", |t| {
        Box::pin(projector::describes(t))
    }),
];

/// The provisioner, in whatever process; of what the projector needs too, that stands there where it does.
const PROVISIONER: &[Line] = &[
    ("list clusterprofiles", "no work begins", |t| Box::pin(host::begins(t, "clusterprofiles"))),
    ("watch clusterprofiles", "a profile that is made later has no access provider", |t| {
        Box::pin(provisioner::follows_profiles(t))
    }),
    ("patch clusterprofiles/status", "no profile has an access provider", |t| {
        Box::pin(provisioner::publishes(t))
    }),
    ("list managedproxyconfigurations", "no new profile has an access provider", |t| {
        Box::pin(provisioner::knows(t, "managedproxyconfigurations"))
    }),
    ("watch managedproxyconfigurations", "the access provider stays when the proxy goes", |t| {
        Box::pin(provisioner::follows_configuration(t))
    }),
    ("list managedclusteraddons", "no new profile has an access provider", |t| {
        Box::pin(provisioner::knows(t, "managedclusteraddons"))
    }),
    ("watch managedclusteraddons", "a cluster that gets the addon later has no access provider", |t| {
        Box::pin(provisioner::follows_addons(t))
    }),
    ("list secrets", "no new profile has an access provider", |t| Box::pin(provisioner::knows(t, "secrets"))),
    ("watch secrets", "a trust anchor that is replaced is not published", |t| {
        Box::pin(provisioner::follows_anchors(t))
    }),
];

/// Trust anchors that are in a ConfigMap.
const CONFIG_MAP: &[Line] = &[
    ("list configmaps", "no new profile has an access provider", |t| {
        Box::pin(provisioner::knows(t, "configmaps"))
    }),
    ("watch configmaps", "a trust anchor that is replaced is not published", |t| {
        Box::pin(provisioner::follows_anchors(t))
    }),
];

const DIRECT: &[Line] = &[
    ("list managedclusters", "no work begins", |t| Box::pin(host::begins(t, "managedclusters"))),
    ("watch managedclusters", "a profile leads to where its cluster was", |t| {
        Box::pin(provisioner::follows_clusters(t))
    }),
];

const SYNCER: &[Line] = &[
    ("list managedclusters", "no work begins", |t| Box::pin(host::begins(t, "managedclusters"))),
    ("watch managedclusters", "a cluster that joins has no copies", |t| {
        Box::pin(syncer::follows_clusters(t))
    }),
    ("list managedclustersets", "no work begins", |t| Box::pin(host::begins(t, "managedclustersets"))),
    ("watch managedclustersets", "a set that is made later brings no copies", |t| {
        Box::pin(syncer::follows_sets(t))
    }),
    ("list managedclustersetbindings", "no work begins", |t| {
        Box::pin(host::begins(t, "managedclustersetbindings"))
    }),
    ("watch managedclustersetbindings", "a namespace that is bound later has no copies", |t| {
        Box::pin(syncer::follows_bindings(t))
    }),
    ("list clusterprofiles", "no work begins", |t| Box::pin(host::begins(t, "clusterprofiles"))),
    ("watch clusterprofiles", "a profile that is made later has no copies", |t| {
        Box::pin(syncer::follows_clusters(t))
    }),
    ("list managedserviceaccounts", "no token is copied", |t| Box::pin(syncer::knows_accounts(t))),
    ("watch managedserviceaccounts", "the token of an account that asks later is not copied", |t| {
        Box::pin(syncer::follows_accounts(t))
    }),
    ("patch managedserviceaccounts/status", "an account does not say where its token is missing", |t| {
        Box::pin(syncer::reports(t))
    }),
    ("create secrets", "no copy is made", |t| Box::pin(syncer::copies(t))),
    ("delete secrets", "a copy stays where its grant has ended", |t| Box::pin(syncer::revokes(t))),
    ("get secrets", "a copy that has lost its label stays without", |t| Box::pin(syncer::meets(t))),
    ("list secrets", "no token is copied", |t| Box::pin(syncer::knows_secrets(t))),
    ("patch secrets", "a token that is rotated is not copied", |t| Box::pin(syncer::renews(t))),
    ("watch secrets", "a copy that is changed by hand stays so", |t| Box::pin(syncer::follows_secrets(t))),
];

/// The syncer where it has rights to Secrets that it is given.
const GRANTED: &[Line] = &[
    ("list rolebindings", "no work begins", |t| Box::pin(host::begins(t, "rolebindings (copies)"))),
    ("watch rolebindings", "a namespace that is bound later has no copies", |t| {
        Box::pin(syncer::follows_grants(t))
    }),
];

/// Credential rights. Where they are beside a projector, that needs clusters, sets and bindings too and stands there
/// first.
const GRANTER: &[Line] = &[
    ("list managedclusters", "no work begins", |t| Box::pin(granter::begins(t, "managedclusters"))),
    ("watch managedclusters", "the syncer may not read the tokens of a cluster that joins", |t| {
        Box::pin(granter::follows_clusters(t))
    }),
    ("list managedclustersets", "no work begins", |t| Box::pin(granter::begins(t, "managedclustersets"))),
    ("watch managedclustersets", "a set that is made later brings no right to copies", |t| {
        Box::pin(granter::follows_sets(t))
    }),
    ("list managedclustersetbindings", "no work begins", |t| {
        Box::pin(granter::begins(t, "managedclustersetbindings"))
    }),
    ("watch managedclustersetbindings", "the syncer may touch no copies where a set is bound later", |t| {
        Box::pin(granter::follows_bindings(t))
    }),
    ("list managedserviceaccounts", "the syncer may read no token of another name", |t| {
        Box::pin(granter::knows_accounts(t))
    }),
    (
        "watch managedserviceaccounts",
        "the syncer may not read the tokens of an account that asks later",
        |t| Box::pin(granter::follows_accounts(t)),
    ),
    ("create rolebindings", "the syncer may touch no copies where a set is bound later", |t| {
        Box::pin(granter::grants(t))
    }),
    ("delete rolebindings", "a RoleBinding that gives something else is not made anew", |t| {
        Box::pin(granter::makes_anew(t))
    }),
    ("list rolebindings", "no work begins", |t| Box::pin(granter::begins(t, "rolebindings"))),
    ("watch rolebindings", "a RoleBinding that is changed by hand stays so", |t| {
        Box::pin(granter::follows_grants(t))
    }),
    ("bind clusterroles copies", "the syncer may touch no copies where a set is bound later", |t| {
        Box::pin(granter::grants(t))
    }),
    ("list clusterroles copies", "no work begins", |t| Box::pin(granter::begins(t, "clusterroles (copies)"))),
    ("watch clusterroles copies", "RoleBindings go with a role that is no more", |t| {
        Box::pin(granter::follows_copies_role(t))
    }),
    ("escalate clusterroles tokens", "the syncer may read no token of another name", |t| {
        Box::pin(granter::names(t))
    }),
    ("list clusterroles tokens", "no work begins", |t| Box::pin(granter::begins(t, "clusterroles"))),
    ("patch clusterroles tokens", "the syncer may read no token of another name", |t| {
        Box::pin(granter::names(t))
    }),
    ("list leases", "a permission that is no longer needed stays", |t| Box::pin(granter::withdraws(t))),
    ("watch leases", "a permission that is no longer needed stays", |t| Box::pin(granter::withdraws(t))),
    ("watch clusterroles tokens", "names that are taken out of the role by hand stay out", |t| {
        Box::pin(granter::follows_tokens_role(t))
    }),
];

/// Takes the rights of a component in turn, of which each has to have a line, and each line a right. Of lines for one
/// right the first counts.
#[allow(clippy::print_stdout, reason = "the table is the answer to whoever asks what a right is for")]
async fn each_is_missed(trial: &mut Trial, component: &'static str, rights: Vec<Right>, tables: &[&[Line]]) {
    let mut lines: Vec<Line> = Vec::new();
    for line in tables.iter().copied().flatten() {
        if !lines.iter().any(|known| known.0 == line.0) {
            lines.push(*line);
        }
    }
    let mut named: Vec<String> = rights.iter().map(Right::to_string).collect();
    let mut known: Vec<String> = lines.iter().map(|line| line.0.to_owned()).collect();
    named.sort();
    known.sort();
    assert_eq!(named, known, "what the chart renders for {component}, and what is known to be lost without");
    for (name, lost, scene) in lines {
        let right = rights.iter().find(|right| right.to_string() == name).unwrap();
        println!("{component}: {name:38} {lost}");
        trial.begin(component, right.clone());
        scene(trial).await;
        trial.end().await;
    }
}

#[tokio::test]
async fn each_permission_is_needed() {
    let mut trial = Trial::of(Installation {
        components: &["profiles", "credentials"],
        policies: &[
            "profiles",
            "profiles-rolebindings",
            "profiles-clusterroles",
            "credentials-secrets",
            "credentials-accounts",
        ],
        ..Installation::default()
    })
    .await;
    let rights = trial.rights_of("profiles");
    each_is_missed(&mut trial, "profiles", rights, &[HOST, VERSIONS, PROJECTOR, PROVISIONER, GRANTER]).await;
    let rights = trial.rights_of("credentials");
    each_is_missed(&mut trial, "credentials", rights, &[HOST, VERSIONS, SYNCER, GRANTED]).await;
}

#[tokio::test]
async fn each_permission_of_three_processes_and_for_all_secrets_is_needed() {
    let mut trial = Trial::of(Installation {
        values: &[
            "profiles.split=true",
            "credentials.secretAccess=cluster",
            "featureGates.clusterProfileDirectAccessProvider=true",
        ],
        components: &["projector", "access", "credentials"],
        policies: &["projector", "access", "credentials-secrets", "credentials-accounts"],
        direct: true,
        ..Installation::default()
    })
    .await;
    let rights = trial.rights_of("projector");
    each_is_missed(&mut trial, "projector", rights, &[HOST, VERSIONS, PROJECTOR]).await;
    let rights = trial.rights_of("access");
    each_is_missed(&mut trial, "access", rights, &[HOST, VERSIONS, PROVISIONER, DIRECT]).await;
    let rights = trial.rights_of("credentials");
    each_is_missed(&mut trial, "credentials", rights, &[HOST, VERSIONS, SYNCER]).await;
}

#[tokio::test]
async fn each_permission_beside_a_projector_of_open_cluster_management_is_needed() {
    let mut trial = Trial::of(Installation {
        values: &["featureGates.clusterProfile=false", "featureGates.clusterProfileAccessProvider=false"],
        components: &["rights"],
        policies: &["rights-rolebindings", "rights-clusterroles"],
        ..Installation::default()
    })
    .await;
    // The syncer's are the same as beside ours.
    let rights = trial.rights_of("rights");
    each_is_missed(&mut trial, "rights", rights, &[HOST, GRANTER]).await;
}

#[tokio::test]
async fn each_permission_for_a_config_map_is_needed() {
    let mut trial = Trial::of(Installation {
        values: &[
            "featureGates.clusterProfileCredSyncer=false",
            "accessProvider.source=static",
            "accessProvider.static.server=https://front.example/{cluster}",
            "accessProvider.static.ca.namespace=proxy",
            "accessProvider.static.ca.name=front",
        ],
        components: &["profiles"],
        policies: &["profiles"],
        from_config_map: true,
        ..Installation::default()
    })
    .await;
    // The others are the same as without.
    let rights = trial.rights_of("profiles").into_iter().filter(Right::is_of_anchors).collect();
    each_is_missed(&mut trial, "profiles", rights, &[CONFIG_MAP]).await;
}
