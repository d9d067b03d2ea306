//! Text that shares its memory, however many objects contain it.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::HashSet;
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

/// A text that shares its memory with every equal one: a hub repeats the names of its clusters and namespaces, the keys
/// and values of labels, and the CA bundle of its proxy in thousands of objects. Not for secrets, which must be wiped.
/// Two pointers are followed to the text, so that each use of it takes one word: there are ten times as many uses.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct Text(Arc<Box<str>>);

/// The texts in use, and those that went out of use since unused texts were last removed.
static TEXTS: LazyLock<Mutex<Texts>> = LazyLock::new(Mutex::default);

/// The least growth in bytes before unused texts are removed again.
const LITTLE: usize = 1 << 20;

#[derive(Default)]
struct Texts {
    all: HashSet<Text>,
    /// Their size in bytes.
    size: usize,
    /// The size of those that remained when unused texts were last removed.
    used: usize,
}

impl Texts {
    fn get(&mut self, text: &str) -> Text {
        if let Some(known) = self.all.get(text) {
            return known.clone();
        }
        if self.size >= self.used + (self.used / 4).max(LITTLE) {
            self.forget_unused();
        }
        let new = Text(Arc::new(text.into()));
        self.size += size(&new);
        self.all.insert(new.clone());
        new
    }

    fn forget_unused(&mut self) {
        self.all.retain(|text| Arc::strong_count(&text.0) > 1);
        self.all.shrink_to(2 * self.all.len());
        self.size = self.all.iter().map(size).sum();
        self.used = self.size;
    }
}

/// The memory of a text in bytes, with its two counters, its pointer and its place in the table.
fn size(text: &Text) -> usize {
    text.len() + 2 * size_of::<usize>() + size_of::<Box<str>>() + size_of::<Text>()
}

impl Text {
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        TEXTS.lock().unwrap_or_else(PoisonError::into_inner).get(text)
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        text.as_str().into()
    }
}

impl Deref for Text {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl Ord for Text {
    /// Equal texts share their memory, so they need not be read: most keys that are compared have a part in common.
    fn cmp(&self, other: &Self) -> Ordering {
        if Arc::ptr_eq(&self.0, &other.0) { Ordering::Equal } else { self.0.cmp(&other.0) }
    }
}

impl PartialOrd for Text {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Borrow<str> for Text {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl PartialEq<str> for Text {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == other
    }
}

impl PartialEq<&str> for Text {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == *other
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_share_their_memory() {
        let (one, other) = (Text::from("cluster"), Text::from("cluster".to_owned()));
        assert_eq!(one, other);
        assert_eq!(one.as_ptr(), other.as_ptr());
    }

    #[test]
    fn texts_out_of_use_are_freed_whatever_their_size_and_others_stay_shared() {
        let mut texts = Texts::default();
        let kept = texts.get("kept");
        for length in [1, LITTLE / 4] {
            for number in 0..4 * LITTLE / (length + 64) {
                texts.get(&format!("{number}{}", "x".repeat(length)));
                assert!(
                    texts.size <= 2 * LITTLE + LITTLE / 2,
                    "{number} of {length}: {}",
                    texts.size
                );
            }
        }
        assert_eq!(kept.as_ptr(), texts.get("kept").as_ptr());
    }
}
