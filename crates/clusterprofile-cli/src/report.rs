//! `report`: one HTML file that shows which namespace reaches which cluster.
//!
//! It has no script and names no other file, and its policy allows neither. maud escapes every text: agents and tenants
//! write into objects.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;

use hub_api::names::{ClusterName, Namespace};
use hub_core::access::AnchorReader;
use hub_core::credential::index::Listed;
use hub_core::explain::observed::Observed;
use hub_core::explain::{self, CheckResult, Explanation, Question, Status, Step};
use hub_core::grant;
use hub_core::trust::TrustBundle;
use jiff::Timestamp;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use object_names::visible;

use crate::args::ReportArgs;
use crate::explain::counted;
use crate::hub::Hub;
use crate::read::Reading;
use crate::{CommandError, Conclusion};

const STYLE: &str = include_str!("report.css");

/// How the file may load what: nothing but its own style.
const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

/// Reports on the hub, or on the namespace of the option.
pub(crate) async fn report(
    hub: &Hub,
    args: &ReportArgs,
    out: &mut impl Write,
) -> Result<Conclusion, CommandError> {
    let namespaces = hub.named.iter().map(|it| Namespace::from(it.as_str())).collect();
    let question = Question { namespaces, all: true, ..Question::default() };
    let observed = Reading::new(hub, &question).observe(&args.controllers).await?;
    let explanation = explain::explain(&observed, &question);
    writeln!(out, "{}", page(&observed, &explanation).into_string())?;
    Ok(Conclusion::Fine)
}

/// The findings of each namespace and cluster.
type Pairs<'a> = BTreeMap<(&'a str, &'a str), Vec<&'a CheckResult>>;

fn page(hub: &Observed, explanation: &Explanation) -> Markup {
    let mut pairs = Pairs::new();
    let mut others = Vec::new();
    for finding in &explanation.findings {
        match (finding.namespace.as_deref(), finding.cluster.as_deref()) {
            (Some(namespace), Some(cluster)) => {
                pairs.entry((namespace, cluster)).or_default().push(finding);
            }
            _ if finding.mark > Status::Ok => others.push(finding),
            _ => {}
        }
    }
    let summary = &explanation.summary;
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="viewport" content="width=device-width";
                title { "Who reaches which cluster" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { "Who reaches which cluster" }
                p {
                    (format!("{:.0}", hub.now)) ": " (summary.pairs) " grants of clusters to "
                    (counted(summary.namespaces, "namespace")) "; " (summary.ok) " in order, " (summary.problem)
                    " with problems, " (summary.unknown) " with steps that cannot be read. A click on a cell shows the reason."
                }
                @if !others.is_empty() {
                    h2 { "The hub and its namespaces" }
                    (steps(&others))
                }
                (matrix(&pairs))
                h2 { "Granted to nobody" }
                (granted_to_nobody(hub))
                h2 { "Tokens" }
                (tokens(hub))
                h2 { "Published trust anchors" }
                (anchors(hub))
            }
        }
    }
}

fn matrix(pairs: &Pairs<'_>) -> Markup {
    let namespaces: BTreeSet<_> = pairs.keys().map(|(namespace, _)| *namespace).collect();
    let clusters: BTreeSet<_> = pairs.keys().map(|(_, cluster)| *cluster).collect();
    html! {
        div.scroll { table.matrix {
            thead { tr {
                th {}
                @for namespace in &namespaces { th scope="col" { span { (visible(namespace)) } } }
            } }
            tbody {
                @for cluster in &clusters {
                    tr {
                        th scope="row" { (visible(cluster)) }
                        @for namespace in &namespaces {
                            td { @if let Some(findings) = pairs.get(&(*namespace, *cluster)) {
                                (cell(namespace, cluster, findings))
                            } }
                        }
                    }
                }
            }
        } }
    }
}

fn cell(namespace: &str, cluster: &str, findings: &[&CheckResult]) -> Markup {
    let mark = findings.iter().map(|finding| finding.mark).fold(Status::Ok, Status::max);
    let is_told = |finding: &&&CheckResult| {
        finding.mark > Status::Ok || mark == Status::Ok && finding.step == Step::Token
    };
    let told: Vec<_> = findings.iter().filter(is_told).copied().collect();
    html! {
        details class=(mark.into_str()) name="cell" {
            summary aria-label=(word(mark)) { (mark.character()) }
            div { b { (visible(namespace)) "/" (visible(cluster)) ": " (word(mark)) } (steps(&told)) }
        }
    }
}

fn steps(findings: &[&CheckResult]) -> Markup {
    html! { ul { @for finding in findings {
        li class=(finding.mark.into_str()) {
            b { (finding.step.title()) @if let Some(account) = &finding.account { " (" (visible(account)) ")" } }
            " " (visible(&finding.message))
            br;
            small {
                (visible(&finding.object.to_string())) " " (visible(&finding.field)) " " (visible(&finding.value))
            }
            @if let Some(fix) = &finding.fix { pre { (visible(fix)) } }
        }
    } } }
}

fn granted_to_nobody(hub: &Observed) -> Markup {
    let is_read = hub.knows_clusters && hub.knows_sets && matches!(hub.bindings_of, Listed::All);
    if !is_read {
        return html! { p { "Not every cluster, set and binding could be read." } };
    }
    let is_nowhere = |cluster: &&ClusterName| !grant::is_anywhere(&hub.fleet, cluster);
    let clusters: Vec<_> = hub.fleet.cluster_names().filter(is_nowhere).collect();
    let namespaces: Vec<_> = hub.fleet.namespaces().collect();
    let is_bound =
        |set| namespaces.iter().any(|it| hub.fleet.bindings_in(it).any(|(name, _)| name == set));
    let sets: Vec<_> = hub.fleet.set_names().filter(|set| !is_bound(*set)).collect();
    html! {
        p { "Clusters: " (list(clusters.iter().map(|name| name.as_str()))) }
        p { "ManagedClusterSets: " (list(sets.iter().map(|name| name.as_str()))) }
    }
}

fn list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<_> = names.map(visible).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

fn tokens(hub: &Observed) -> Markup {
    let mut tokens: Vec<_> =
        hub.credentials.accounts().map(|key| (hub.credentials.expiry(&key), key)).collect();
    tokens.sort_unstable();
    html! { details open[tokens.len() <= 20] {
        summary { (counted(tokens.len(), "ManagedServiceAccount")) ", by the time when their tokens expire" }
        table { @for (expires, account) in &tokens {
            tr { td { (visible(&account.to_string())) } (expiry(hub, *expires)) }
        } }
    } }
}

fn expiry(hub: &Observed, expires: Option<Timestamp>) -> Markup {
    let Some(expires) = expires else { return html! { td { "unknown" } } };
    let mark = if expires <= hub.now { Status::Problem } else { Status::Ok };
    html! { td class=(mark.into_str()) { (format!("{expires:.0}")) } }
}

fn anchors(hub: &Observed) -> Markup {
    let mut reader = AnchorReader::default();
    let mut profiles: BTreeMap<Timestamp, usize> = BTreeMap::new();
    for profile in hub.profiles.values() {
        let published = reader.published(&profile.observed, hub.access.provider());
        for anchor in published.into_iter().flat_map(TrustBundle::anchors) {
            *profiles.entry(anchor.not_after).or_default() += 1;
        }
    }
    if profiles.is_empty() {
        return html! { p { "none" } };
    }
    html! { table { @for (expires, count) in &profiles {
        tr { (expiry(hub, Some(*expires))) td { "in " (counted(*count, "ClusterProfile")) } }
    } } }
}

fn word(mark: Status) -> &'static str {
    match mark {
        Status::Info | Status::Ok => "in order",
        Status::Unknown => "cannot be read",
        Status::Problem => "problem",
    }
}

#[cfg(test)]
mod tests {
    use hub_core::access::{AccessIndex, AccessSource};
    use hub_core::credential::index::{CredentialIndex, SyncSettings};
    use hub_core::explain::{Code, Object, Summary};
    use hub_core::fleet::{BoundSource, Fleet};
    use hub_core::project::ProjectionSettings;

    use super::*;

    /// A hub of which nothing could be read.
    fn hub() -> Observed {
        let source = AccessSource::ClusterProxy { require_addon: true, ca: None };
        Observed::new(
            Timestamp::UNIX_EPOCH,
            ProjectionSettings::default(),
            Fleet::new(BoundSource::Status),
            AccessIndex::new("provider", source, true),
            CredentialIndex::new(SyncSettings::default()),
        )
    }

    fn finding(namespace: &str, cluster: &str, mark: Status, message: &str) -> CheckResult {
        CheckResult {
            namespace: Some(namespace.to_owned()),
            cluster: Some(cluster.to_owned()),
            account: Some(message.to_owned()),
            step: Step::Token,
            code: Code::TokenExpired,
            mark,
            object: Object::namespaced("Secret", message, message),
            field: message.to_owned(),
            value: message.to_owned(),
            message: message.to_owned(),
            fix: Some(message.to_owned()),
        }
    }

    fn rendered(findings: Vec<CheckResult>) -> String {
        page(&hub(), &Explanation { summary: Summary::default(), findings }).into_string()
    }

    #[test]
    fn text_of_others_does_not_become_markup() {
        let hostile =
            "</style></pre><script>x</script><img src=x onerror=x>'\"\u{202e}\u{1b}[2J&lt;";
        for mark in [Status::Ok, Status::Unknown, Status::Problem] {
            let clean = rendered(vec![finding("a", "b", mark, "text")]);
            let page = rendered(vec![finding(hostile, hostile, mark, hostile)]);
            let tags = |page: &str| page.matches('<').count();
            assert_eq!(tags(&page), tags(&clean), "{page}");
            assert!(!page.contains(['\u{202e}', '\u{1b}']), "{page}");
        }
    }

    #[test]
    fn a_cell_of_two_hundred_clusters_and_fifty_namespaces_shows_only_what_is_wrong() {
        let mut findings = Vec::new();
        for cluster in 0..200 {
            for namespace in 0..50 {
                let mark =
                    if (cluster + namespace) % 7 == 0 { Status::Problem } else { Status::Ok };
                let (namespace, cluster) =
                    (format!("team-{namespace}"), format!("cluster-{cluster}"));
                findings.push(finding(&namespace, &cluster, mark, "the token is reported"));
                findings.push(CheckResult {
                    step: Step::Profile,
                    ..finding(&namespace, &cluster, Status::Ok, "order")
                });
            }
        }
        let problems = findings.iter().filter(|finding| finding.mark == Status::Problem).count();
        let page = rendered(findings);
        assert_eq!(page.matches("<details class=\"problem\"").count(), problems);
        assert_eq!(page.matches("<details class=").count(), 10_000);
        assert!(!page.contains(">profile<") && page.len() < 8 << 20, "{} bytes", page.len());
    }
}
