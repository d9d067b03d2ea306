//! Tables as kubectl prints them.

use std::fmt::Write as _;
use std::io::{self, Write};

/// Prints rows in columns. The last column is not padded.
///
/// # Errors
///
/// They cannot be written.
pub fn print(rows: &[Vec<String>], out: &mut impl Write) -> io::Result<()> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter()
            .filter_map(|row| row.get(column))
            .map(|cell| cell.chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            // Writing into a String cannot fail.
            let _ = write!(line, "{cell:width$}   ");
        }
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

/// A duration as kubectl shows it: in the largest unit that has one or two digits.
pub(crate) fn span(seconds: i64) -> String {
    const MINUTE: i64 = 60;
    const HOUR: i64 = 60 * MINUTE;
    const DAY: i64 = 24 * HOUR;
    match seconds {
        ..0 => format!("-{}", span(seconds.saturating_neg())),
        0..120 => format!("{seconds}s"),
        120..7200 => format!("{}m", seconds / MINUTE),
        7200..172_800 => format!("{}h", seconds / HOUR),
        _ => format!("{}d", seconds / DAY),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_shown_in_the_largest_unit_that_says_enough() {
        for (seconds, shown) in [
            (5, "5s"),
            (119, "119s"),
            (120, "2m"),
            (7199, "119m"),
            (7200, "2h"),
            (200_000, "2d"),
            (-61, "-61s"),
        ] {
            assert_eq!(span(seconds), shown);
        }
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [["NAME", "AGE"], ["berlin", "5d"]].map(|row| row.map(str::to_owned).to_vec());
        let mut text = Vec::new();
        print(&rows, &mut text).unwrap();
        assert_eq!(String::from_utf8(text).unwrap(), "NAME     AGE\nberlin   5d\n");
    }
}
