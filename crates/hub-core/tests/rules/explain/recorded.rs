//! The whole output of `explain` for scene after scene, as `recorded.txt` has it: codes, facts, messages and commands.
//!
//! After a change of the output, `RECORD=1 cargo test -p hub-core --test rules explain::recorded` writes the file; read
//! its diff.

mod access;
mod credentials;
mod grants;
mod hub;
mod orphans;
mod requested;

use std::fmt::Write as _;
use std::path::Path;

use hub_api::names::{ClusterName, Namespace};
use hub_core::explain::{CheckResult, Explanation, Question, Status, explain};

use super::scene::{Scene, one};

/// A scene with its name, and what is asked.
type Recorded = (&'static str, Scene, Question);

/// `c1` in `team`, without what is in order.
fn pair() -> Question {
    Question { all: false, ..one("team", "c1") }
}

/// A whole namespace.
fn namespace(name: &str) -> Question {
    Question { namespaces: vec![name.into()], ..Question::default() }
}

/// The same scene, asked about the pair, the namespace and the hub.
fn thrice(name: &'static str, scene: fn() -> Scene) -> [Recorded; 3] {
    [pair(), namespace("team"), Question::default()].map(|question| (name, scene(), question))
}

/// What is asked, as people write it.
fn asked(question: &Question) -> String {
    let names = |names: Vec<&str>| names.join(",");
    let namespaces = names(question.namespaces.iter().map(Namespace::as_str).collect());
    let clusters = names(question.clusters.iter().map(ClusterName::as_str).collect());
    let mut text = [namespaces, clusters]
        .into_iter()
        .filter(|it| !it.is_empty())
        .collect::<Vec<_>>()
        .join("/");
    if let Some(account) = &question.account {
        write!(text, " --account {account}").unwrap();
    }
    if question.all {
        text += " --all";
    }
    if text.is_empty() { "the hub".to_owned() } else { text }
}

fn finding_text(finding: &CheckResult) -> String {
    let mark = match finding.mark {
        Status::Info => "info",
        Status::Ok => "ok",
        Status::Unknown => "unknown",
        Status::Problem => "problem",
    };
    let about = [&finding.namespace, &finding.cluster, &finding.account].into_iter().flatten();
    let about = about.map(String::as_str).collect::<Vec<_>>().join(" ");
    let CheckResult { step, code, object, field, value, message, fix, .. } = finding;
    let mut text = format!("{mark} {step:?} {} [{about}]\n", code.as_str());
    let fact = format!("    {object} | {field} | {value}");
    writeln!(text, "{}\n    {message}", fact.trim_end_matches([' ', '|'])).unwrap();
    if let Some(fix) = fix {
        writeln!(text, "    $ {fix}").unwrap();
    }
    text
}

/// The explanation, without the findings that have been recorded as those of a hub in order.
fn text(explanation: &Explanation, in_order: &[CheckResult]) -> String {
    let summary = &explanation.summary;
    let mut text = format!(
        "{} namespaces, {} pairs: {} ok, {} unknown, {} problem\n",
        summary.namespaces, summary.pairs, summary.ok, summary.unknown, summary.problem
    );
    let findings = explanation.findings.iter().filter(|finding| !in_order.contains(finding));
    text.extend(findings.map(finding_text));
    text
}

#[test]
fn every_scene_is_explained_as_recorded() {
    let pairs = [hub::pairs(), access::pairs(), credentials::pairs()].into_iter().flatten();
    let pairs = pairs.map(|(name, scene)| (name, scene, pair())).collect();
    let scenes = [
        hub::scenes(),
        pairs,
        grants::scenes(),
        access::scenes(),
        credentials::scenes(),
        orphans::scenes(),
        requested::scenes(),
    ];
    let (mut now, mut before) = (String::new(), String::new());
    let mut in_order = Vec::new();
    for (name, scene, question) in scenes.into_iter().flatten() {
        let heading = format!("# {name}: {}\n", asked(&question));
        assert!(!now.contains(&heading), "two scenes have the heading {heading}");
        now += &heading;
        let explanation = explain(&scene.observed(), &question);
        let text = text(&explanation, &in_order);
        now += if text == before { "as before\n" } else { &text };
        now.push('\n');
        before = text;
        if in_order.is_empty() {
            in_order = explanation.findings;
        }
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/rules/explain/recorded.txt");
    if std::env::var_os("RECORD").is_some() {
        std::fs::write(&file, &now).unwrap();
    }
    let recorded = std::fs::read_to_string(&file).unwrap();
    for (now, recorded) in now.split("\n\n").zip(recorded.split("\n\n")) {
        assert_eq!(now, recorded);
    }
    assert_eq!(now.len(), recorded.len(), "a scene is not recorded, or is gone");
}
