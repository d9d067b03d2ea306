//! `explain`: the steps from an application to its clusters, with the problems first and each problem once.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::{self, Write};

use anstyle::{AnsiColor, Style};
use hub_api::names::{AccountName, ClusterName, Namespace};
use hub_core::explain::{self, CheckResult, Explanation, Object, Question, Status, Step};
use hub_core::finding::first_of;
use object_names::visible;

use crate::args::ExplainArgs;
use crate::hub::Hub;
use crate::read::Reading;
use crate::{CommandError, Conclusion};

/// The maximum number of namespaces and clusters that a line lists.
const NAMED: usize = 3;

/// Explains the namespaces and clusters in the arguments.
pub async fn explain(
    hub: &Hub,
    args: &ExplainArgs,
    out: &mut impl Write,
) -> Result<Conclusion, CommandError> {
    let question = question(hub, args)?;
    let observed = Reading::new(hub, &question).observe(&args.controllers).await?;
    let mut explanation = explain::explain(&observed, &question);
    if let Some(format) = args.output {
        format.print(&explanation, out)?;
    } else {
        explanation.findings.iter_mut().for_each(show);
        if question.all {
            every_step(&explanation, out)?;
        } else {
            problems(&explanation, out)?;
        }
    }
    Ok(match explanation.mark() {
        Status::Info | Status::Ok => Conclusion::Fine,
        Status::Problem => Conclusion::Problem,
        Status::Unknown => Conclusion::Unknown,
    })
}

/// Replaces what a terminal would act on: agents and tenants write into objects. JSON and YAML escape it without a
/// loss.
fn show(finding: &mut CheckResult) {
    for text in [&mut finding.message, &mut finding.value].into_iter().chain(&mut finding.fix) {
        *text = visible(text);
    }
}

fn question(hub: &Hub, args: &ExplainArgs) -> Result<Question, CommandError> {
    let (namespace, cluster) = args.place.named(hub)?;
    let clusters = args.managed_cluster.iter().chain(&cluster);
    let clusters: Vec<_> = clusters.map(|it| ClusterName::from(it.as_str())).collect();
    // For one cluster in one namespace, prints every step.
    let is_one = namespace.is_some() && clusters.len() == 1;
    Ok(Question {
        namespaces: namespace.iter().map(|it| Namespace::from(it.as_str())).collect(),
        clusters,
        account: args.account.as_deref().map(AccountName::from),
        all: args.all || is_one,
    })
}

/// The character of a mark, and its style on a terminal with colours.
pub(crate) fn shown(mark: Status) -> String {
    let colour = match mark {
        Status::Info => AnsiColor::Cyan,
        Status::Ok => AnsiColor::Green,
        Status::Unknown => AnsiColor::Yellow,
        Status::Problem => AnsiColor::Red,
    };
    let style = Style::new().fg_color(Some(colour.into()));
    format!("{style}{}{style:#}", mark.character())
}

fn fact(finding: &CheckResult) -> String {
    let object = visible(&finding.object.to_string());
    match (finding.field.as_str(), finding.value.as_str()) {
        ("", _) => object,
        (field, "") => format!("{object} {field}"),
        (field, value) => format!("{object} {field}: {value}"),
    }
}

/// Every step, under its namespace and cluster.
fn every_step(explanation: &Explanation, out: &mut impl Write) -> io::Result<()> {
    let bold = Style::new().bold();
    let mut before = None;
    for finding in &explanation.findings {
        let about = (&finding.namespace, &finding.cluster);
        if before != Some(about) {
            let heading = place(finding).unwrap_or_else(|| "hub".to_owned());
            writeln!(out, "{bold}{heading}{bold:#}")?;
            before = Some(about);
        }
        let step = format!("{}{}", finding.step.title(), account(finding));
        writeln!(out, "  {} {step:24} {}", shown(finding.mark), finding.message)?;
        writeln!(out, "      {}", fact(finding))?;
        fix(finding, out)?;
    }
    Ok(())
}

fn fix(finding: &CheckResult, out: &mut impl Write) -> io::Result<()> {
    let dim = Style::new().dimmed();
    match &finding.fix {
        Some(command) => writeln!(out, "      {dim}${dim:#} {command}"),
        None => Ok(()),
    }
}

/// Problems and unknown steps; equal ones are one entry for all their clusters.
fn problems(explanation: &Explanation, out: &mut impl Write) -> io::Result<()> {
    type Key<'a> = (Step, Reverse<Status>, &'a str, Option<&'a Object>);
    let mut groups: BTreeMap<Key<'_>, Vec<&CheckResult>> = BTreeMap::new();
    for finding in &explanation.findings {
        // Findings about the hub as a whole are about different objects.
        let object = (finding.step == Step::Controllers).then_some(&finding.object);
        let key = (finding.step, Reverse(finding.mark), finding.code.as_str(), object);
        groups.entry(key).or_default().push(finding);
    }
    for findings in groups.values() {
        let Some(first) = findings.first() else { continue };
        writeln!(out, "{} {:24} {}", shown(first.mark), first.step.title(), first.message)?;
        if place(first).is_some() {
            writeln!(out, "      {}", places(findings))?;
        }
        writeln!(out, "      {}", fact(first))?;
        fix(first, out)?;
    }
    let summary = &explanation.summary;
    let unknown = match summary.unknown {
        0 => String::new(),
        unknown => format!(", {unknown} with steps that cannot be read"),
    };
    writeln!(
        out,
        "{} in {}: {} in order, {} with problems{unknown}",
        counted(summary.pairs, "cluster"),
        counted(summary.namespaces, "namespace"),
        summary.ok,
        summary.problem
    )
}

pub(crate) fn counted(number: usize, what: &str) -> String {
    let ending = if number == 1 { "" } else { "s" };
    format!("{number} {what}{ending}")
}

/// The namespace and the cluster of a finding, as far as it is about these.
fn place(finding: &CheckResult) -> Option<String> {
    let namespace = finding.namespace.clone()?;
    Some(finding.cluster.iter().fold(namespace, |namespace, it| format!("{namespace}/{it}")))
}

fn account(finding: &CheckResult) -> String {
    finding.account.as_ref().map(|account| format!(" ({})", visible(account))).unwrap_or_default()
}

/// The namespaces and clusters of findings: the first few by name, and the number of the others.
fn places(findings: &[&CheckResult]) -> String {
    let name = |finding: &&CheckResult| place(finding).unwrap_or_default() + &account(finding);
    let mut names: Vec<String> = findings.iter().map(name).collect();
    names.dedup();
    first_of(&names, NAMED)
}
