//! Which names, label keys and label values an API server accepts, and how text of others is shown.
//!
//! The rules for names and labels are those of `k8s.io/apimachinery/pkg/util/validation`
//! (<https://github.com/kubernetes/apimachinery/blob/master/pkg/util/validation/validation.go>), by which every API
//! server validates objects. All lengths are in bytes.

mod terminal;

pub use crate::terminal::{is_hidden, visible};

/// Longest DNS-1123 label, such as the name of a namespace (`DNS1123LabelMaxLength`).
pub const DNS_LABEL_MAX_LENGTH: usize = 63;

/// Longest DNS-1123 subdomain, such as the name of a Secret (`DNS1123SubdomainMaxLength`).
pub const DNS_SUBDOMAIN_MAX_LENGTH: usize = 253;

/// Longest value of a label (`LabelValueMaxLength`).
pub const LABEL_VALUE_MAX_LENGTH: usize = 63;

/// Longest name part of a label key (`qualifiedNameMaxLength`).
const LABEL_KEY_NAME_MAX_LENGTH: usize = 63;

/// Whether `text` is a DNS-1123 label: at most [`DNS_LABEL_MAX_LENGTH`] bytes of `[a-z0-9-]` that begin and end with a
/// letter or digit (`IsDNS1123Label`).
#[must_use]
pub fn is_dns_label(text: &str) -> bool {
    text.len() <= DNS_LABEL_MAX_LENGTH && has_the_form_of_a_dns_label(text)
}

/// Whether `text` is a DNS-1123 subdomain: at most [`DNS_SUBDOMAIN_MAX_LENGTH`] bytes, in parts that have the form of a
/// DNS-1123 label and are separated by dots (`IsDNS1123Subdomain`).
///
/// Unlike in DNS (RFC 1035, section 2.3.4), a part may be longer than 63 bytes: `dns1123SubdomainFmt` does not limit
/// it.
#[must_use]
pub fn is_dns_subdomain(text: &str) -> bool {
    text.len() <= DNS_SUBDOMAIN_MAX_LENGTH && text.split('.').all(has_the_form_of_a_dns_label)
}

/// Whether `text` is a label value: empty, or at most [`LABEL_VALUE_MAX_LENGTH`] bytes of `[A-Za-z0-9_.-]` that begin
/// and end with a letter or digit (`IsValidLabelValue`).
#[must_use]
pub fn is_label_value(text: &str) -> bool {
    text.is_empty()
        || (text.len() <= LABEL_VALUE_MAX_LENGTH && has_the_form_of_a_qualified_name(text))
}

/// Whether `text` is a label key: a name of at most 63 bytes, with an optional DNS-1123 subdomain and a slash before it
/// (`IsQualifiedName`).
#[must_use]
pub fn is_label_key(text: &str) -> bool {
    let is_name = |name: &str| {
        name.len() <= LABEL_KEY_NAME_MAX_LENGTH && has_the_form_of_a_qualified_name(name)
    };
    match text.split_once('/') {
        Some((prefix, name)) => is_dns_subdomain(prefix) && is_name(name),
        None => is_name(text),
    }
}

/// `dns1123LabelFmt`.
fn has_the_form_of_a_dns_label(text: &str) -> bool {
    is_made_of(text, |byte| byte.is_ascii_lowercase() || byte.is_ascii_digit(), b"-")
}

/// `qualifiedNameFmt`.
fn has_the_form_of_a_qualified_name(text: &str) -> bool {
    is_made_of(text, |byte| byte.is_ascii_alphanumeric(), b"-_.")
}

/// Whether `text` begins and ends with a byte that `is_edge` accepts, and has only such bytes and `inner` ones between.
fn is_made_of(text: &str, is_edge: impl Fn(u8) -> bool, inner: &[u8]) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(|byte| is_edge(*byte))
        && bytes.last().is_some_and(|byte| is_edge(*byte))
        && bytes.iter().all(|byte| is_edge(*byte) || inner.contains(byte))
}

#[cfg(test)]
mod tests {
    use super::{is_dns_label, is_dns_subdomain, is_label_key, is_label_value};

    #[test]
    fn a_dns_subdomain_has_at_most_253_bytes_in_parts_of_lowercase_letters_digits_and_dashes() {
        for good in ["a", "0", "a-b.c1", &"x".repeat(253)] {
            assert!(is_dns_subdomain(good), "{good:?}");
        }
        for bad in [
            "",
            ".",
            "a.",
            ".a",
            "a..b",
            "A",
            "a_b",
            "-a",
            "a-",
            "a.-b",
            "../a",
            "ä",
            &"x".repeat(254),
        ] {
            assert!(!is_dns_subdomain(bad), "{bad:?}");
        }
    }

    #[test]
    fn a_dns_label_has_at_most_63_bytes_and_no_dot() {
        for good in ["a", "0", "a-b", &"x".repeat(63)] {
            assert!(is_dns_label(good), "{good:?}");
        }
        for bad in ["", "a.b", "A", "a_b", "-a", "a-", &"x".repeat(64)] {
            assert!(!is_dns_label(bad), "{bad:?}");
        }
    }

    #[test]
    fn a_label_value_is_empty_or_has_at_most_63_bytes_with_a_letter_or_digit_at_both_ends() {
        for good in ["", "a", "A-b_c.9", &"x".repeat(63)] {
            assert!(is_label_value(good), "{good:?}");
        }
        for bad in ["-a", "a-", "a b", "ä", ".", &"x".repeat(64)] {
            assert!(!is_label_value(bad), "{bad:?}");
        }
    }

    #[test]
    fn a_label_key_is_a_name_with_an_optional_dns_subdomain_before_it() {
        for good in ["a", "A", "example.com/a_b", "x-k8s.io/cluster-manager"] {
            assert!(is_label_key(good), "{good:?}");
        }
        for bad in ["", "/a", "a/", "a/b/c", "Example.com/a", "a..b/c", &"x".repeat(64)] {
            assert!(!is_label_key(bad), "{bad:?}");
        }
    }
}
