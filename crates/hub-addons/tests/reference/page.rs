//! The tables of the page.

#![allow(clippy::unwrap_used, reason = "clippy takes only functions marked as tests for tests")]

use std::path::Path;

/// The cells of the rows below a heading, up to the next heading. The first two rows are the head of the table.
pub fn rows(heading: &str) -> Vec<Vec<String>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference.md");
    let page = std::fs::read_to_string(path).unwrap();
    let mut lines = page.lines().skip_while(|line| line.trim_start_matches('#').trim() != heading);
    assert!(lines.next().is_some(), "docs/reference.md has no heading {heading:?}");
    let table = lines.take_while(|line| !line.starts_with('#')).filter(|line| line.starts_with('|'));
    let cells = |line: &str| {
        let inner = line.trim().strip_prefix('|').unwrap().strip_suffix('|').unwrap();
        inner.split('|').map(|cell| cell.trim().to_owned()).collect()
    };
    table.map(cells).skip(2).collect()
}

/// The text between backticks in a cell.
pub fn quoted(cell: &str) -> Vec<String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}
