//! The tables of the page.

use std::path::PathBuf;

/// Where it is.
pub fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference.md")
}

/// The lines of the table below a heading, from its head to its last row: where they begin, and how many they are.
pub fn table(page: &[&str], heading: &str) -> (usize, usize) {
    let is_heading =
        |line: &&str| line.starts_with('#') && line.trim_start_matches('#').trim() == heading;
    let below = page.iter().position(is_heading).map(|at| at + 1);
    let below = below.unwrap_or_else(|| panic!("docs/reference.md has no heading {heading:?}"));
    let section = page[below..].iter().take_while(|line| !line.starts_with('#'));
    let first = below + section.take_while(|line| !line.starts_with('|')).count();
    (first, page[first..].iter().take_while(|line| line.starts_with('|')).count())
}

/// The cells of the rows below a heading, up to the next heading. The first two lines of a table are its head.
pub fn rows(heading: &str) -> Vec<Vec<String>> {
    let page = std::fs::read_to_string(path()).unwrap();
    let lines: Vec<_> = page.lines().collect();
    let (first, count) = table(&lines, heading);
    let cells = |line: &&str| {
        let inner = line.trim().strip_prefix('|').unwrap().strip_suffix('|').unwrap();
        inner.split('|').map(|cell| cell.trim().to_owned()).collect()
    };
    lines[first..first + count].iter().skip(2).map(cells).collect()
}

/// The text between backticks in a cell.
pub fn quoted(cell: &str) -> Vec<String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}
