//! The status of a profile in little memory.

use std::hash::{Hash, Hasher};
use std::iter;

use hub_api::text::Text;

/// Strings of at least this length in bytes are shared: the CA bundle of a proxy is in the status of every profile.
const LONG: usize = 128;

/// A status as JSON text, which takes a tenth of the memory of the parsed tree. The text is shared, since the profiles
/// of a cluster have the same status in every namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StatusText {
    /// The text without its long strings.
    text: Text,
    /// The long strings, escaped as in the text, each with the byte offset at which it was cut out.
    long: Box<[(usize, Text)]>,
}

/// By the address: equal texts share their memory.
impl Hash for StatusText {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text.as_ptr().hash(state);
    }
}

impl From<&str> for StatusText {
    fn from(whole: &str) -> Self {
        // The parts between unescaped quotation marks are alternately outside of strings and inside.
        let parts = || split_at_quotes(whole).enumerate();
        let is_long = |number: usize, part: &str| number % 2 == 1 && part.len() >= LONG;
        let cut = parts().filter(|(number, part)| is_long(*number, part));
        let cut: usize = cut.map(|(_, part)| part.len()).sum();
        let (mut text, mut long) = (String::with_capacity(whole.len() - cut), Vec::new());
        for (number, part) in parts() {
            if number > 0 {
                text.push('"');
            }
            if is_long(number, part) {
                long.push((text.len(), Text::from(part)));
            } else {
                text.push_str(part);
            }
        }
        Self { text: text.into(), long: long.into() }
    }
}

impl StatusText {
    /// The text with empty strings in place of the long ones, which costs nothing.
    pub(crate) fn outline(&self) -> &str {
        &self.text
    }

    /// The whole text.
    pub(crate) fn whole(&self) -> String {
        let long: usize = self.long.iter().map(|(_, long)| long.len()).sum();
        let mut whole = String::with_capacity(self.text.len() + long);
        let mut rest = 0;
        for (position, long) in &self.long {
            whole.push_str(&self.text[rest..*position]);
            whole.push_str(long);
            rest = *position;
        }
        whole.push_str(&self.text[rest..]);
        whole
    }
}

/// Splits a JSON text at its unescaped quotation marks.
fn split_at_quotes(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    iter::from_fn(move || {
        let text = rest?;
        let is_escaped = |at: &usize| {
            text[..*at].bytes().rev().take_while(|byte| *byte == b'\\').count() % 2 == 1
        };
        let end = text.match_indices('"').map(|(at, _)| at).find(|at| !is_escaped(at));
        rest = end.map(|end| &text[end + 1..]);
        Some(&text[..end.unwrap_or(text.len())])
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn read(status: &Value) -> StatusText {
        status.to_string().as_str().into()
    }

    #[test]
    fn a_long_string_is_in_memory_once() {
        let status = |name: &str| json!({ "name": name, "ca": "x".repeat(LONG), "short": "y".repeat(LONG - 1) });
        let (one, other) = (read(&status("one")), read(&status("other")));
        assert_eq!((one.long.len(), other.long.len()), (1, 1));
        assert_eq!(one.long[0].1.as_ptr(), other.long[0].1.as_ptr());
        assert_eq!(one.whole(), status("one").to_string());
    }

    proptest! {
        #[test]
        fn every_status_is_read_as_it_was(
            texts in prop::collection::vec("([\"\\\\a\u{e9}\n]|[a-z]{40}){0,12}", 0..6), number in any::<i64>(),
        ) {
            let status = json!({ "texts": texts, "number": number, "by": { texts.concat(): null } });
            prop_assert_eq!(read(&status).whole(), status.to_string());
        }
    }
}
