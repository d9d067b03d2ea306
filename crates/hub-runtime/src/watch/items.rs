//! Extracts the items from the text of a list, one by one, as the text arrives.
//!
//! The API server sends a list as one JSON object. To decode that object as one value has two costs: one item that does
//! not decode fails all of them, and the whole text and all decoded items are in memory at the same time. This scanner
//! finds where each item begins and ends and leaves decoding to the caller, which avoids both, whatever the size of a
//! page. The rest of the list is decoded at the end of the text.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;
use serde::Deserialize;

use super::error::Malformed;

/// The field of a list with its items.
const ITEMS: &[u8] = b"items";

/// The nesting depth of items: inside the list and the array.
const ITEMS_DEPTH: usize = 2;

/// The capacity that the buffer keeps for the next item.
const KEPT: usize = 64 * 1024;

/// The scanner of one list.
#[derive(Default)]
pub(super) struct Items {
    /// The current nesting depth.
    depth: usize,
    in_string: bool,
    escaped: bool,
    /// Whether the array of items is open.
    array_open: bool,
    /// The last string at the level of the list's fields: before a `[`, it is the field's name.
    name: Vec<u8>,
    /// The text of the current item.
    item: Vec<u8>,
    /// The list without its items.
    envelope: Vec<u8>,
}

/// The metadata of a list. An object has its resourceVersion in the same place.
#[derive(Deserialize)]
pub(super) struct Envelope {
    pub(super) metadata: ListMeta,
}

impl Items {
    /// Scans more text, and passes on each complete item.
    pub(super) fn read(
        &mut self,
        text: &[u8],
        mut complete: impl FnMut(&[u8]) -> Result<(), Malformed>,
    ) -> Result<(), Malformed> {
        let mut rest = text;
        while let Some((&byte, after)) = rest.split_first() {
            if self.in_string && !self.escaped && self.depth >= ITEMS_DEPTH {
                let special = rest.iter().position(|byte| matches!(byte, b'"' | b'\\'));
                let (plain, from_special) = rest.split_at(special.unwrap_or(rest.len()));
                if !plain.is_empty() {
                    let buffer =
                        if self.is_in_item() { &mut self.item } else { &mut self.envelope };
                    buffer.extend_from_slice(plain);
                    rest = from_special;
                    continue;
                }
            }
            rest = after;
            if self.array_open && self.depth == ITEMS_DEPTH {
                match byte {
                    b'{' | b']' => {}
                    b',' | b' ' | b'\n' | b'\r' | b'\t' => continue,
                    _ => return Err(Malformed("an item of the list is not an object".to_owned())),
                }
            }
            let was_in_item = self.is_in_item();
            self.step(byte);
            match (was_in_item, self.is_in_item()) {
                (false, false) => self.envelope.push(byte),
                (_, true) => self.item.push(byte),
                (true, false) => {
                    self.item.push(byte);
                    complete(&self.item)?;
                    self.item.clear();
                    self.item.shrink_to(KEPT);
                }
            }
        }
        Ok(())
    }

    /// The list's own metadata, once its text is complete.
    pub(super) fn finish(self) -> Result<ListMeta, Malformed> {
        let envelope = serde_json::from_slice::<Envelope>(&self.envelope);
        envelope
            .map(|envelope| envelope.metadata)
            .map_err(|error| Malformed(format!("not a list: {error}")))
    }

    fn is_in_item(&self) -> bool {
        self.array_open && self.depth > ITEMS_DEPTH
    }

    fn step(&mut self, byte: u8) {
        if self.in_string {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = true,
                b'"' => self.in_string = false,
                // Only strings at the level of the list's fields get here byte by byte; `read` copies deeper ones.
                _ => self.name.push(byte),
            }
            return;
        }
        match byte {
            b'"' => {
                self.in_string = true;
                if self.depth == 1 {
                    self.name.clear();
                }
            }
            b'{' | b'[' => {
                self.array_open |= self.depth == 1 && byte == b'[' && self.name == ITEMS;
                self.depth += 1;
            }
            b'}' | b']' => {
                self.depth = self.depth.saturating_sub(1);
                self.array_open &= self.depth >= ITEMS_DEPTH;
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The items and the resourceVersion of a list whose text arrives in chunks of this size.
    fn read(text: &str, chunk: usize) -> Result<(Vec<String>, Option<String>), Malformed> {
        let (mut items, mut seen) = (Items::default(), Vec::new());
        for part in text.as_bytes().chunks(chunk) {
            items.read(part, |item| {
                seen.push(String::from_utf8(item.to_vec()).unwrap());
                Ok(())
            })?;
        }
        Ok((seen, items.finish()?.resource_version))
    }

    #[test]
    fn items_are_found_wherever_the_text_is_cut_and_whatever_they_contain() {
        let odd = r#"{"a":"]},{\"\\","b":"\ttext","items":[{"b":[]}],"é":{"items":[1, {}]}}"#;
        for list in [
            format!(r#"{{"kind":"L","metadata":{{"resourceVersion":"7"}},"items":[{odd},{{}}]}}"#),
            format!(
                r#"{{"apiVersion":"items","items": [ {odd} ,
{{}}
] ,"metadata":{{"resourceVersion":"7"}}}}"#
            ),
        ] {
            let list = list.replace("\\n", "\n");
            for chunk in [1, 2, 3, 7, 1000] {
                let (items, version) = read(&list, chunk).unwrap();
                assert_eq!(items, [odd, "{}"], "in chunks of {chunk}");
                assert_eq!(version.as_deref(), Some("7"));
            }
        }
    }

    #[test]
    fn a_list_without_items_is_a_list() {
        for items in ["[]", "null"] {
            let text = format!(r#"{{"items":{items},"metadata":{{"resourceVersion":"7"}}}}"#);
            assert_eq!(read(&text, 5).unwrap(), (Vec::new(), Some("7".to_owned())));
        }
    }

    #[test]
    fn items_of_another_field_are_not_the_lists() {
        let text = r#"{"metadata":{"items":[{}]},"other":[{}],"items":[]}"#;
        assert_eq!(read(text, 5).unwrap(), (Vec::new(), None));
    }

    #[test]
    fn a_text_that_is_cut_off_or_is_not_a_list_is_an_error() {
        for text in [
            "",
            "{",
            "[]",
            "null",
            r#"{"items":[{}"#,
            r#"{"items":[{}]"#,
            r#"{"items":[{}]}"#,
            r#"{"metadata":{},"items":[null]}"#,
            r#"{"metadata":{},"items":["{"]}"#,
        ] {
            assert!(read(text, 3).is_err(), "{text}");
        }
    }

    #[test]
    fn nesting_costs_no_stack() {
        let deep = format!("{}1{}", r#"{"a":"#.repeat(100_000), "}".repeat(100_000));
        let text = format!(r#"{{"items":[{deep}],"metadata":{{}}}}"#);
        assert_eq!(read(&text, 4096).unwrap().0, [deep]);
    }
}
