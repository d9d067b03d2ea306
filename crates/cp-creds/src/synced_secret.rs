//! Validates a synced Secret before its token is printed.
//!
//! The Secret's name is ambiguous: cluster `a` with `ManagedServiceAccount` `b-c` and cluster `a-b` with `c` share the
//! name `a-b-c`. So the syncer records cluster and account in annotations on the copy, and they must match the request.
//! A Secret without these annotations is accepted, since Open Cluster Management's own syncer writes none.
//!
//! Errors contain nothing of the Secret, including its metadata: an annotation may be a copy of the whole object.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use object_names::LABEL_VALUE_MAX_LENGTH;
use serde::Deserialize;

use crate::names::SecretKey;
use crate::token::{InvalidToken, Token};

/// Annotation: the ManagedCluster whose token this is.
pub const CLUSTER_NAME_ANNOTATION: &str = "authentication.open-cluster-management.io/cluster-name";

/// Annotation: the `ManagedServiceAccount` whose token this is.
pub const MANAGED_SERVICE_ACCOUNT_ANNOTATION: &str =
    "authentication.open-cluster-management.io/managed-serviceaccount";

/// Label: `<cluster>-<account>`, the name of the Secret; shortened with a hash if it exceeds the length of a label
/// value.
pub const SYNCED_FROM_LABEL: &str = "authentication.open-cluster-management.io/synced-from";

/// The key of the token in the Secret's data.
const TOKEN_ENTRY: &str = "token";

/// Why a Secret is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    /// The response is not a Secret in JSON.
    #[error("the response is not a valid Secret: line {line}, column {column}")]
    Malformed { line: usize, column: usize },
    /// The response is another object than requested.
    #[error("the response is a different object than requested")]
    OtherObject,
    /// It is the copy for another cluster.
    #[error("its annotation {CLUSTER_NAME_ANNOTATION} names another cluster, expected {0}")]
    OtherCluster(String),
    /// It is the copy for another `ManagedServiceAccount`.
    #[error(
        "its annotation {MANAGED_SERVICE_ACCOUNT_ANNOTATION} names another ManagedServiceAccount, expected {0}"
    )]
    OtherAccount(String),
    /// It is labelled as a copy of something else.
    #[error("its label {SYNCED_FROM_LABEL} is not {0}")]
    OtherSource(String),
    #[error("its data has no key {TOKEN_ENTRY}")]
    NoToken,
    #[error("its key {TOKEN_ENTRY} is not valid base64")]
    NotBase64,
    /// Its token is not valid.
    #[error("its key {TOKEN_ENTRY} is not a valid bearer token: {0}")]
    NotAToken(InvalidToken),
    #[error(
        "its token expired at {0}: check that the ManagedServiceAccount's rotation is enabled and its agent runs"
    )]
    Expired(Timestamp),
}

/// A valid token and its expiry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credential {
    pub token: Token,
    /// When it expires, if it says so.
    pub expiry: Option<Timestamp>,
}

/// Parses a Secret as the API server returned it, and extracts its token if it is the requested Secret.
pub fn read(json: &[u8], key: &SecretKey, now: Timestamp) -> Result<Credential, SecretError> {
    // serde_json's message may quote the input, so only line and column are reported.
    let object: Object = serde_json::from_slice(json)
        .map_err(|error| SecretError::Malformed { line: error.line(), column: error.column() })?;
    check_record(object.metadata.unwrap_or_default(), key)?;
    let encoded = object
        .data
        .unwrap_or_default()
        .remove(TOKEN_ENTRY)
        .flatten()
        .ok_or(SecretError::NoToken)?;
    let decoded = STANDARD.decode(encoded).map_err(|_| SecretError::NotBase64)?;
    let token = Token::from_bytes(decoded).map_err(SecretError::NotAToken)?;
    let expiry = token.expiry();
    match expiry {
        Some(at) if at <= now => Err(SecretError::Expired(at)),
        _ => Ok(Credential { token, expiry }),
    }
}

fn check_record(metadata: Metadata, key: &SecretKey) -> Result<(), SecretError> {
    let is_other = |recorded: Option<&Option<String>>, wanted: &str| {
        recorded.is_some_and(|recorded| recorded.as_deref() != Some(wanted))
    };
    let Metadata { name, namespace, labels, annotations } = metadata;
    let (labels, annotations) = (labels.unwrap_or_default(), annotations.unwrap_or_default());
    if name.as_ref() != Some(&key.name) || namespace.as_deref() != Some(key.namespace.as_str()) {
        return Err(SecretError::OtherObject);
    }
    if is_other(annotations.get(CLUSTER_NAME_ANNOTATION), key.cluster.as_str()) {
        return Err(SecretError::OtherCluster(key.cluster.to_string()));
    }
    if is_other(annotations.get(MANAGED_SERVICE_ACCOUNT_ANNOTATION), key.account.as_str()) {
        return Err(SecretError::OtherAccount(key.account.to_string()));
    }
    // The syncer decides how to shorten a long value; its annotations contain the full names.
    if key.name.len() <= LABEL_VALUE_MAX_LENGTH
        && is_other(labels.get(SYNCED_FROM_LABEL), &key.name)
    {
        return Err(SecretError::OtherSource(key.name.clone()));
    }
    Ok(())
}

#[derive(Deserialize)]
struct Object {
    metadata: Option<Metadata>,
    data: Option<BTreeMap<String, Option<String>>>,
}

#[derive(Default, Deserialize)]
struct Metadata {
    name: Option<String>,
    namespace: Option<String>,
    labels: Option<BTreeMap<String, Option<String>>>,
    annotations: Option<BTreeMap<String, Option<String>>>,
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
    use jiff::Timestamp;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::{SecretError, read};
    use crate::names::{AccountName, ClusterName, Namespace, SecretKey};
    use crate::token::InvalidToken;

    const NOW: Timestamp = Timestamp::constant(1_800_000_000, 0);

    fn key(cluster: &str, account: &str) -> SecretKey {
        SecretKey::new(
            Namespace::parse("ns").unwrap(),
            ClusterName::parse(cluster).unwrap(),
            AccountName::parse(account).unwrap(),
        )
        .unwrap()
    }

    fn token(expiry: i64) -> String {
        format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(format!(r#"{{"exp":{expiry}}}"#)))
    }

    fn secret(name: &str) -> Value {
        json!({
            "kind": "Secret", "apiVersion": "v1", "type": "Opaque",
            "metadata": {"name": name, "namespace": "ns"},
            "data": {"token": STANDARD.encode(token(1_800_000_001)), "ca.crt": "eA=="},
        })
    }

    fn judge(secret: &Value, key: &SecretKey) -> Result<String, SecretError> {
        read(secret.to_string().as_bytes(), key, NOW)
            .map(|credential| credential.token.expose().to_owned())
    }

    #[test]
    fn a_secret_without_record_is_taken_as_upstream_writes_it() {
        let credential =
            read(secret("a-b-c").to_string().as_bytes(), &key("a", "b-c"), NOW).unwrap();
        assert_eq!(credential.token.expose(), token(1_800_000_001));
        assert_eq!(credential.expiry, Some(Timestamp::constant(1_800_000_001, 0)));
    }

    #[test]
    fn the_copy_of_a_namesake_is_refused() {
        let mut copy = secret("a-b-c");
        copy["metadata"]["labels"] =
            json!({"authentication.open-cluster-management.io/synced-from": "a-b-c"});
        copy["metadata"]["annotations"] = json!({
            "authentication.open-cluster-management.io/cluster-name": "a",
            "authentication.open-cluster-management.io/managed-serviceaccount": "b-c",
        });
        assert!(judge(&copy, &key("a", "b-c")).is_ok());
        assert_eq!(
            judge(&copy, &key("a-b", "c")),
            Err(SecretError::OtherCluster("a-b".to_owned()))
        );

        copy["metadata"]["annotations"]["authentication.open-cluster-management.io/cluster-name"] =
            json!("a-b");
        assert_eq!(judge(&copy, &key("a-b", "c")), Err(SecretError::OtherAccount("c".to_owned())));
    }

    #[test]
    fn a_record_that_is_empty_is_not_absent() {
        for nothing in [json!(""), json!(null)] {
            let mut copy = secret("a-b");
            copy["metadata"]["annotations"] =
                json!({"authentication.open-cluster-management.io/cluster-name": nothing});
            assert_eq!(
                judge(&copy, &key("a", "b")),
                Err(SecretError::OtherCluster("a".to_owned()))
            );
        }
    }

    #[test]
    fn a_label_that_was_not_shortened_must_match() {
        let label =
            json!({"authentication.open-cluster-management.io/synced-from": "something-else"});
        let mut short = secret("a-b");
        short["metadata"]["labels"] = label.clone();
        assert_eq!(judge(&short, &key("a", "b")), Err(SecretError::OtherSource("a-b".to_owned())));

        let cluster = "a".repeat(62);
        let mut long = secret(&format!("{cluster}-b"));
        long["metadata"]["labels"] = label;
        assert!(judge(&long, &key(&cluster, "b")).is_ok());
    }

    #[test]
    fn another_object_is_refused() {
        assert_eq!(judge(&secret("a-x"), &key("a", "b")), Err(SecretError::OtherObject));
        let mut elsewhere = secret("a-b");
        elsewhere["metadata"]["namespace"] = json!("other");
        assert_eq!(judge(&elsewhere, &key("a", "b")), Err(SecretError::OtherObject));
        assert_eq!(
            judge(&json!({"kind": "Status", "code": 404}), &key("a", "b")),
            Err(SecretError::OtherObject)
        );
        assert!(matches!(judge(&json!(7), &key("a", "b")), Err(SecretError::Malformed { .. })));
        assert!(matches!(
            judge(&json!({"data": {"token": 7}}), &key("a", "b")),
            Err(SecretError::Malformed { .. })
        ));
    }

    #[test]
    fn a_secret_without_a_usable_token_is_refused() {
        let encoded = |bytes: &[u8]| json!({"token": STANDARD.encode(bytes)});
        for (data, error) in [
            (json!(null), SecretError::NoToken),
            (json!({}), SecretError::NoToken),
            (json!({"token": null}), SecretError::NoToken),
            (json!({"Token": "eA=="}), SecretError::NoToken),
            (json!({"token": ""}), SecretError::NotAToken(InvalidToken::Empty)),
            (json!({"token": "%"}), SecretError::NotBase64),
            (encoded(token(1_800_000_000).as_bytes()), SecretError::Expired(NOW)),
        ] {
            let mut copy = secret("a-b");
            copy["data"] = data;
            assert_eq!(judge(&copy, &key("a", "b")), Err(error), "{copy}");
        }
    }

    /// Whether a part of `secret`, too long to be a coincidence, is in `line`.
    fn leaks(line: &str, secret: &str) -> bool {
        let characters: Vec<char> = secret.chars().collect();
        characters.windows(9).any(|window| line.contains(&window.iter().collect::<String>()))
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in any::<Vec<u8>>()) {
            let _ = read(&bytes, &key("a", "b"), NOW);
        }

        #[test]
        fn a_token_is_handed_out_as_it_is_or_not_at_all(
            token in prop_oneof![any::<Vec<u8>>(), "[!-~]{1,30}[ -~\\x00-\\x1f]{0,1}".prop_map(String::into_bytes)],
        ) {
            let mut copy = secret("a-b");
            copy["data"]["token"] = json!(STANDARD.encode(&token));
            let could_be_sent = !token.is_empty() && token.iter().all(u8::is_ascii_graphic);
            let read = judge(&copy, &key("a", "b")).ok().map(String::into_bytes);
            prop_assert_eq!(read, could_be_sent.then_some(token));
        }

        #[test]
        fn no_error_repeats_the_data_of_the_secret(
            // Uppercase letters: no message of ours contains as many in a row.
            held in "[A-Z]{24,40}[\\x00-\\x20]{0,2}",
            place in 0..8_usize,
        ) {
            let base64 = STANDARD.encode(&held);
            let mut copy = secret("a-b");
            match place {
                0 => copy["data"]["token"] = json!(base64),
                1 => copy["data"]["token"] = json!(held),
                2 => copy["data"] = json!(held),
                3 => copy["data"]["token"] = json!([held]),
                4 => copy["metadata"]["annotations"] =
                    json!({"authentication.open-cluster-management.io/cluster-name": held}),
                5 => copy["metadata"]["labels"] =
                    json!({"authentication.open-cluster-management.io/synced-from": held}),
                6 => copy["metadata"]["name"] = json!(held),
                _ => copy = json!(held),
            }
            for text in [copy.to_string(), format!("{copy}}}"), copy.to_string().replace('}', "")] {
                match read(text.as_bytes(), &key("a", "b"), NOW) {
                    Ok(credential) => {
                        let shown = format!("{credential:?}");
                        prop_assert!(!leaks(&shown, &held), "{}", shown);
                    }
                    Err(error) => {
                        let line = format!("{error} {error:?}");
                        prop_assert!(!leaks(&line, &held) && !leaks(&line, &base64), "{}", line);
                    }
                }
            }
        }
    }
}
