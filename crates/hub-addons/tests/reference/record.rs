//! Writes tables into the page.

#![cfg(test)]

use super::page::{path, table};

/// With `RECORD=1`, replaces the rows below a heading; returns whether it did.
pub fn record(heading: &str, rows: &[Vec<String>]) -> bool {
    if std::env::var_os("RECORD").is_none() {
        return false;
    }
    let page = std::fs::read_to_string(path()).unwrap();
    let lines: Vec<_> = page.lines().collect();
    let (first, count) = table(&lines, heading);
    let cell = |cell: &String| if cell.is_empty() { " ".to_owned() } else { format!(" {cell} ") };
    let rows = rows.iter().map(|row| format!("|{}|", row.iter().map(cell).collect::<Vec<_>>().join("|")));
    let rows: Vec<_> = rows.collect();
    let head = lines[..first + 2].iter().copied();
    let written = head.chain(rows.iter().map(String::as_str)).chain(lines[first + count..].iter().copied());
    std::fs::write(path(), written.collect::<Vec<_>>().join("\n") + "\n").unwrap();
    true
}
