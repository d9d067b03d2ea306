//! The tables of metrics: names and texts are those with which the programs register them.

use super::table::{code, compare, sentence};

/// A family without a series is not exposed, so the source is read.
#[test]
fn every_metric_is_listed() {
    let controllers = [
        include_str!("../../../hub-runtime/src/observe/metrics.rs"),
        include_str!("../../../access-provisioner/src/metrics.rs"),
        include_str!("../../../credential-syncer/src/metrics.rs"),
    ];
    let mut rows = vec![vec![code("hub_addons_build_info"), sentence("Version of the program")]];
    rows.extend(controllers.into_iter().flat_map(registered));
    compare("Metrics", &rows);
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
    assert!(calls.len() > 3, "{calls:?}");
    // What is computed for each scrape.
    let collected = source.split("encode_descriptor( \"").skip(1).map(|call| {
        let [name, _, help, _] = call.splitn(4, '"').collect::<Vec<_>>()[..] else {
            panic!("{call}")
        };
        vec![code(&format!("hub_addons_{name}")), sentence(help)]
    });
    calls.windows(2).map(row).chain(collected).collect()
}
