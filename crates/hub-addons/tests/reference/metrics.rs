//! The tables of metrics: names and texts are those with which the programs register them.

use super::table::{code, compare, sentence};

/// A family without a series is not exposed, so the source is read.
#[test]
fn every_metric_is_listed() {
    let process = registered(include_str!("../../../hub-runtime/src/observe/metrics.rs"));
    let build = vec![code("hub_addons_build_info"), sentence("Version of the program")];
    compare("Metrics", &[vec![build], process].concat());
    compare(
        "Metrics of the user server",
        &registered(include_str!("../../../user-server/src/metrics.rs")),
    );
}

/// Reads registrations such as `writes: metric(registry, "writes", "Writes that were sent")`.
fn registered(source: &str) -> Vec<Vec<String>> {
    let words: Vec<_> = source.split_whitespace().collect();
    let source = words.join(" ").replace("( registry,", "(registry,").replace("\\ ", "");
    let calls: Vec<_> = source.split("(registry, \"").collect();
    let row = |pair: &[&str]| {
        let field = pair[0].rsplit(' ').nth(1).unwrap();
        let [name, _, help, _] = pair[1].splitn(4, '"').collect::<Vec<_>>()[..] else {
            panic!("{field}")
        };
        let declared =
            source.split_once(&format!(" {field} ")).unwrap().1.split(": ").next().unwrap();
        // The format adds it to counters.
        let suffix = if declared.contains("Counter") { "_total" } else { "" };
        vec![code(&format!("hub_addons_{name}{suffix}")), sentence(help)]
    };
    assert!(calls.len() > 5, "{calls:?}");
    calls.windows(2).map(row).collect()
}
