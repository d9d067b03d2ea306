//! Gates, metrics, reasons, codes, labels and exit statuses.

#![cfg(test)]

use std::collections::BTreeSet;
use std::process::Command;

use clusterprofile_cli::Conclusion;
use hub_api::labels::{self, MANAGED_BY};
use hub_core::consumer_access;
use hub_core::consumer_role::CONSUMER_LABELS;
use hub_core::credential::account::CONDITION_SYNCED;
use hub_core::credential::report::{ANNOTATION_TOO_LONG, INVALID_NAMESPACE};
use hub_core::credential::state::State;
use hub_core::explain::{Code, Step};
use hub_core::finding::Reason;
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
fn every_feature_gate_is_listed_with_its_default() {
    let wrong = ["run", "--feature-gates=Unknown=true"];
    let output = Command::new(env!("CARGO_BIN_EXE_hub-addons")).args(wrong).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    let (_, known) = error.split_once("known gates: ").unwrap();
    // `Gate (default true), Gate (default false)`
    let words: Vec<_> =
        known.split(|c: char| !c.is_ascii_alphanumeric()).filter(|it| !it.is_empty()).collect();
    let known: BTreeSet<_> = words
        .windows(3)
        .filter(|window| window[1] == "default")
        .map(|window| format!("{} {}", window[0], window[2]))
        .collect();
    let listed: BTreeSet<_> = rows("Feature gates")
        .iter()
        .map(|row| format!("{} {}", quoted(&row[0])[0], quoted(&row[1])[0]))
        .collect();
    assert!(!known.is_empty());
    assert_eq!(listed, known);
}

#[test]
fn every_metric_is_listed() {
    // A family without a series is not exposed, so the names come from the source.
    lists_metrics("Metrics", include_str!("../../../hub-runtime/src/observe/metrics.rs"));
    lists_metrics("Metrics of the user server", include_str!("../../../user-server/src/metrics.rs"));
}

fn lists_metrics(heading: &str, source: &str) {
    let calls = source.split("registry.register(").skip(1);
    let registered = owned(calls.map(|rest| rest.split('"').nth(1).unwrap()));
    assert!(registered.len() > 5, "{registered:?}");
    let listed = names(heading);
    // The format adds these to counters and infos.
    let name = |listed: &String| {
        let name = listed.strip_prefix("hub_addons_").unwrap();
        name.trim_end_matches("_total").trim_end_matches("_info").to_owned()
    };
    assert_eq!(listed.iter().map(name).collect::<BTreeSet<_>>(), registered);
}

#[test]
fn every_reason_of_an_event_is_listed() {
    lists("Event reasons", &owned(Reason::ALL.iter().copied().map(Reason::as_str)));
}

#[test]
fn every_condition_and_its_reasons_are_listed() {
    lists("Conditions", &owned([CONTROL_PLANE_HEALTHY, JOINED, CONDITION_SYNCED]));
    // Neither is a state in which a copy is missing.
    let reported = State::all().filter(|state| !matches!(state, State::Synced | State::NotAsked));
    let reasons = reported.map(State::reason).chain([INVALID_NAMESPACE, ANNOTATION_TOO_LONG]);
    lists("Reasons of SyncedToClusterProfiles", &owned(reasons));
}

#[test]
fn every_step_and_code_of_explain_is_listed() {
    let steps: BTreeSet<_> = Step::ALL.iter().map(|step| format!("{step:?}")).collect();
    lists("Steps of explain", &steps);
    lists("Codes of explain", &owned(Code::all()));
}

#[test]
fn every_label_and_annotation_is_listed() {
    let source = include_str!("../../../hub-api/src/labels.rs");
    let values = source.split("pub const ").skip(1).map(|rest| rest.split('"').nth(1).unwrap());
    let is_key = |value: &&str| value.contains('/') || *value == labels::LOCAL_CLUSTER;
    let keys = values.filter(is_key).chain(CONSUMER_LABELS.map(|(key, _)| key));
    let keys = keys.chain([MANAGED_BY.0, consumer_access::COMPONENT.0, consumer_access::INSTALLATION]);
    let keys =
        keys.chain([CLEARED_NAMESPACES, consumer_access::PROFILE_LABELS, consumer_access::CLUSTER_SECRET.0]);
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
        "Exit statuses of hub-addons run, crds, cleanup, completion and version",
        &owned(run.map(|it| ends(hub_addons, it))),
    );
    let account = "--managed-serviceaccount=kueue";
    let calls = [&["--version"][..], &[account, "--cluster-name=berlin"], &["--no-such-flag"]];
    lists("Exit statuses of cp-creds", &owned(calls.map(|it| ends(plugin::cp_creds(), it))));

    let conclusions = [Conclusion::Fine, Conclusion::Problem, Conclusion::Unknown];
    let mut statuses = owned(conclusions.map(|it| it.exit_status().to_string()));
    statuses.insert(ends(hub_addons, &["list", "--kubeconfig=/nonexistent"]));
    lists("Exit statuses of list, explain, test and kubeconfig", &statuses);
    assert_eq!(names("Exit statuses of list, explain, test and kubeconfig").len(), 4);
}
