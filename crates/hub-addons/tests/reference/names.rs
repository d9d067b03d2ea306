//! Names that are not those of an enum: conditions, labels, and exit statuses of programs.

use std::collections::BTreeSet;
use std::process::Command;

use hub_api::labels::{self, MANAGED_BY};
use hub_core::consumer_access;
use hub_core::consumer_role::CONSUMER_LABELS;
use hub_core::credential::account::CONDITION_SYNCED;
use hub_core::project::{CONTROL_PLANE_HEALTHY, JOINED};
use hub_core::rights::CLEARED_NAMESPACES;

use super::page::{quoted, rows};
use super::plugin;

fn owned(names: impl IntoIterator<Item = impl Into<String>>) -> BTreeSet<String> {
    names.into_iter().map(Into::into).collect()
}

/// The names in the first column below a heading, each of which is there once.
fn names(heading: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for name in rows(heading).iter().flat_map(|row| quoted(&row[0])) {
        assert!(names.insert(name.clone()), "{heading}: {name} is there twice");
    }
    names
}

/// The page lists exactly these names below a heading.
fn lists(heading: &str, expected: &BTreeSet<String>) {
    let listed = names(heading);
    let missing: Vec<_> = expected.difference(&listed).collect();
    let invented: Vec<_> = listed.difference(expected).collect();
    assert!(
        missing.is_empty() && invented.is_empty(),
        "{heading}: missing {missing:?}, not in the code {invented:?}"
    );
}

#[test]
fn every_condition_is_listed() {
    lists("Conditions", &owned([CONTROL_PLANE_HEALTHY, JOINED, CONDITION_SYNCED]));
}

#[test]
fn every_label_and_annotation_is_listed() {
    let source = include_str!("../../../hub-api/src/labels.rs");
    let values = source.split("pub const ").skip(1).map(|rest| rest.split('"').nth(1).unwrap());
    let is_key = |value: &&str| value.contains('/') || *value == labels::LOCAL_CLUSTER;
    let keys = values.filter(is_key).chain(CONSUMER_LABELS.map(|(key, _)| key));
    let keys =
        keys.chain([MANAGED_BY.0, consumer_access::COMPONENT.0, consumer_access::INSTALLATION]);
    let keys = keys.chain([
        CLEARED_NAMESPACES,
        consumer_access::PROFILE_LABELS,
        consumer_access::CLUSTER_SECRET.0,
    ]);
    lists("Labels and annotations", &owned(keys));
}

/// Programs are run to each status that can be had without a hub; those of commands on a hub are tested in `kubectl`.
#[test]
fn every_exit_status_is_listed() {
    let ends = |program: &std::path::Path, arguments: &[&str]| {
        let mut command = Command::new(program);
        command.args(arguments).env_remove("KUBECONFIG").env_remove("KUBERNETES_SERVICE_HOST");
        let output = command.env("HOME", "/nonexistent").output().unwrap();
        output.status.code().unwrap().to_string()
    };
    let hub_addons = std::path::Path::new(env!("CARGO_BIN_EXE_hub-addons"));
    let run = [&["version"][..], &["run", "--kubeconfig=/nonexistent"], &["run", "--no-such-flag"]];
    lists(
        "Exit statuses of hub-addons run, user-server, check, crds, cleanup and version",
        &owned(run.map(|it| ends(hub_addons, it))),
    );
    let account = "--managed-serviceaccount=kueue";
    let calls = [&["--version"][..], &[account, "--cluster-name=berlin"], &["--no-such-flag"]];
    lists("Exit statuses of cp-creds", &owned(calls.map(|it| ends(plugin::cp_creds(), it))));

    let heading = "Exit statuses of list, request, explain, report, test and kubeconfig";
    assert!(names(heading).contains(&ends(
        &plugin::program("kubectl-clusterprofile"),
        &["list", "--kubeconfig=/nonexistent"]
    )));
}
