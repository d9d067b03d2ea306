//! The report: tables.

use std::fmt::Write as _;

use crate::counts::Counter;
use crate::measurement::Measurement;
use crate::size::Size;

/// The whole report as tables in Markdown.
pub fn text(size: Size, measurements: &[Measurement]) -> String {
    let mut text = format!(
        "{} clusters in {} namespaces with {} accounts and {} claims each, {} sets, {} consumers: {} profiles\n\n",
        size.clusters,
        size.namespaces,
        size.accounts,
        size.claims,
        size.sets,
        size.consumers,
        size.profiles()
    );
    let mut costs = vec![COSTS.map(str::to_owned).to_vec()];
    costs.extend(measurements.iter().map(cost));
    text += &table(&costs);
    text += "\nRequests of the controllers:\n\n";
    let mut requests = vec![vec!["scenario".to_owned(), "requests".to_owned()]];
    requests.extend(measurements.iter().map(|measurement| {
        let counts =
            measurement.requests.iter().map(|(request, count)| format!("{count} {request}"));
        vec![measurement.scenario.clone(), counts.collect::<Vec<_>>().join(", ")]
    }));
    text += &table(&requests);
    text
}

/// One line for each count that is not the limit.
pub fn deviations(measurements: &[Measurement]) -> Vec<String> {
    let of = |measurement: &Measurement| {
        let name = measurement.scenario.clone();
        measurement
            .limit
            .deviations(&measurement.counts)
            .into_iter()
            .map(move |line| format!("{name}: {line}"))
    };
    measurements.iter().flat_map(of).collect()
}

const COSTS: [&str; 12] = [
    "scenario",
    "writes",
    "limit",
    "GETs",
    "409",
    "429",
    "no-op",
    "CPU s",
    "peak MiB",
    "resident MiB",
    "s",
    "s to next",
];

fn cost(measurement: &Measurement) -> Vec<String> {
    let count = |counter| measurement.counts.get(counter).to_string();
    let usage = measurement.usage;
    vec![
        measurement.scenario.clone(),
        measurement.counts.writes().to_string(),
        measurement.limit.writes().to_string(),
        count(Counter::Gets),
        count(Counter::Conflicts),
        count(Counter::Throttled),
        count(Counter::NoOpWrites),
        format!("{:.2}", measurement.cpu_seconds),
        mib(usage.peak_kib),
        mib(usage.resident_kib),
        format!("{:.1}", measurement.seconds),
        format!("{:.1}", measurement.seconds_to_next),
    ]
}

fn mib(kib: u64) -> String {
    format!("{}.{}", kib >> 10, ((kib & 1023) * 10) >> 10)
}

/// A table in Markdown, whose columns are aligned.
fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| {
        rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for (number, row) in rows.iter().enumerate() {
        for (cell, width) in row.iter().zip(&widths) {
            // Writing to a string cannot fail.
            let _ = write!(text, "| {cell:width$} ");
        }
        text += "|\n";
        if number == 0 {
            text.extend(widths.iter().map(|width| format!("|{}", "-".repeat(width + 2))));
            text += "|\n";
        }
    }
    text
}
