//! Tables of the page that are generated.

use std::sync::{Mutex, PoisonError};

use super::page::{path, rows, table};

/// Tests write the page at the same time.
static PAGE: Mutex<()> = Mutex::new(());

/// The table below a heading has these rows, in this order; the page can add links and backticks. With `RECORD=1`,
/// writes them instead, with the markup of texts that stay the same.
pub fn compare(heading: &str, generated: &[Vec<String>]) {
    let _guard = PAGE.lock().unwrap_or_else(PoisonError::into_inner);
    let listed = rows(heading);
    let marked_up = |cell: &String| {
        let same = listed.iter().flatten().find(|listed| plain(listed) == plain(cell));
        same.unwrap_or(cell).clone()
    };
    let expected: Vec<Vec<String>> =
        generated.iter().map(|row| row.iter().map(marked_up).collect()).collect();
    if std::env::var_os("RECORD").is_some() {
        record(heading, &expected);
        return;
    }
    let differ = expected.iter().zip(&listed).find(|(expected, listed)| expected != listed);
    let advice = "run RECORD=1 cargo test -p hub-addons --features e2e --test reference";
    assert_eq!(differ, None, "{heading}: {advice}");
    assert_eq!(expected.len(), listed.len(), "{heading}: {advice}");
}

/// A cell without backticks and the targets of links.
fn plain(cell: &str) -> String {
    let mut plain = String::new();
    let mut rest = cell;
    while let Some((before, link)) = rest.split_once('[') {
        let Some((text, after)) =
            link.split_once("](").and_then(|(text, link)| Some((text, link.split_once(')')?.1)))
        else {
            break;
        };
        plain.push_str(before);
        plain.push_str(text);
        rest = after;
    }
    plain.push_str(rest);
    plain.replace('`', "")
}

/// Replaces the rows below a heading.
fn record(heading: &str, rows: &[Vec<String>]) {
    let page = std::fs::read_to_string(path()).unwrap();
    let lines: Vec<_> = page.lines().collect();
    let (first, count) = table(&lines, heading);
    let cell = |cell: &String| if cell.is_empty() { " ".to_owned() } else { format!(" {cell} ") };
    let rows =
        rows.iter().map(|row| format!("|{}|", row.iter().map(cell).collect::<Vec<_>>().join("|")));
    let rows: Vec<_> = rows.collect();
    let head = lines[..first + 2].iter().copied();
    let written =
        head.chain(rows.iter().map(String::as_str)).chain(lines[first + count..].iter().copied());
    // Other tests read the page meanwhile.
    let next = path().with_extension("new");
    std::fs::write(&next, written.collect::<Vec<_>>().join("\n") + "\n").unwrap();
    std::fs::rename(next, path()).unwrap();
}

/// A name as a cell; none if it is empty.
pub fn code(name: &str) -> String {
    if name.is_empty() { String::new() } else { format!("`{name}`") }
}

/// A text as a cell: in one line, with a capital, if it begins with a word, and with a full stop.
pub fn sentence(text: &str) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let is_word =
        text.split(' ').next().is_some_and(|first| first.chars().all(|c| c.is_ascii_alphabetic()));
    let end = if text.ends_with('.') { "" } else { "." };
    match text.chars().next().filter(|_| is_word) {
        Some(first) => format!("{}{}{end}", first.to_ascii_uppercase(), &text[1..]),
        None => format!("{text}{end}"),
    }
}
