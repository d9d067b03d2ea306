//! JSON and YAML as the commands print them. Text of others in it contains nothing that a terminal acts on.

use std::fmt::Write as _;
use std::io::{self, Write};

use object_names::{is_hidden, visible};
use serde::Serialize;

use crate::args::Output;

impl Output {
    /// Prints a value in this format; JSON with spaces and line ends for people.
    pub(crate) fn print(self, value: &impl Serialize, out: &mut impl Write) -> io::Result<()> {
        if self == Self::Json {
            return writeln!(out, "{}", escaped(&serde_json::to_string_pretty(value)?));
        }
        let text = serde_saphyr::to_string(value).map_err(io::Error::other)?;
        text.lines().try_for_each(|line| writeln!(out, "{}", visible(line)))
    }
}

/// JSON without characters that a terminal acts on. `serde_json` escapes some of them; the others are in strings, too.
fn escaped(json: &str) -> String {
    let mut text = String::new();
    for character in json.chars() {
        if is_hidden(character) && character != '\n' {
            for unit in character.encode_utf16(&mut [0; 2]) {
                // Writing into a String cannot fail.
                let _ = write!(text, "\\u{unit:04x}");
            }
        } else {
            text.push(character);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn json_is_the_same_and_yaml_is_readable_without_what_a_terminal_acts_on() {
        let value =
            json!({ "a": "x\n\u{1b}[2J\u{9b}31m\u{202e}y\u{e0041}", "b": ["\u{e9}\u{2713}"] });
        let printed = |format: Output| {
            let mut text = Vec::new();
            format.print(&value, &mut text).unwrap();
            String::from_utf8(text).unwrap()
        };
        let text = printed(Output::Json);
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
        assert!(!text.replace('\n', "").contains(is_hidden), "{text}");
        let text = printed(Output::Yaml);
        assert!(
            !text.replace('\n', "").contains(is_hidden) && text.contains("\u{e9}\u{2713}"),
            "{text}"
        );
    }
}
