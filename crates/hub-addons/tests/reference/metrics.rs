//! The tables of metrics: names and texts are those with which the programs register them.

#![cfg(test)]

use super::table::{code, compare, sentence};

/// A family without a series is not exposed, so the source is read.
#[test]
fn every_metric_is_listed() {
    compare("Metrics", &registered(include_str!("../../../hub-runtime/src/observe/metrics.rs")));
    compare("Metrics of the user server", &registered(include_str!("../../../user-server/src/metrics.rs")));
}

fn registered(source: &str) -> Vec<Vec<String>> {
    let row = |call: &str| {
        let parts: Vec<_> = call.splitn(5, '"').collect();
        let [_, name, _, help, metric] = parts[..] else { panic!("{call}") };
        // The format adds these to counters and infos.
        let suffix = match kind(source, metric) {
            kind if kind.contains("Counter") => "_total",
            kind if kind.contains("Info") => "_info",
            _ => "",
        };
        vec![code(&format!("hub_addons_{name}{suffix}")), sentence(&help.replace("\\\n", " "))]
    };
    let metrics: Vec<_> = source.split("registry.register(").skip(1).map(row).collect();
    assert!(metrics.len() > 5, "{metrics:?}");
    metrics
}

/// What is registered, as in `, Info::new(`, or the type of that field, as in `, self.queue_depth.clone())`.
fn kind<'a>(source: &'a str, metric: &'a str) -> &'a str {
    let metric = metric.trim_start_matches([',', ' ', '\n']).lines().next().unwrap();
    let Some(field) = metric.split('.').nth(1).filter(|_| metric.contains(".clone()")) else { return metric };
    let (_, declared) = source.split_once(&format!("    {field}: ")).unwrap();
    declared.lines().next().unwrap()
}
