//! Validates a synced Secret before its token is printed.
//!
//! The Secret's name is ambiguous: cluster `a` with `ManagedServiceAccount` `b-c` and cluster `a-b` with `c` share the
//! name `a-b-c`. So the syncer records cluster and account in annotations on the copy, and they must match the request.
//! A Secret without these annotations is accepted, since Open Cluster Management's own syncer writes none.
//!
//! Errors contain nothing of the Secret, including its metadata: an annotation may be a copy of the whole object.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, anyhow, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use object_names::LABEL_VALUE_MAX_LENGTH;
use serde::Deserialize;

use crate::names::SecretKey;
use crate::token::Token;

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

/// A valid token and its expiry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credential {
    pub token: Token,
    /// When it expires, if it says so.
    pub expiry: Option<Timestamp>,
}

/// Parses a Secret as the API server returned it, and extracts its token if it is the requested Secret.
pub fn read(json: &[u8], key: &SecretKey, now: Timestamp) -> Result<Credential> {
    // serde_json's message may quote the input, so only line and column are reported.
    let object: Object = serde_json::from_slice(json).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        anyhow!("the response is not a valid Secret: line {line}, column {column}")
    })?;
    check_record(object.metadata.unwrap_or_default(), key)?;
    let encoded = object.data.unwrap_or_default().remove(TOKEN_ENTRY).flatten();
    let encoded = encoded.with_context(|| format!("its data has no key {TOKEN_ENTRY}"))?;
    let decoded = STANDARD
        .decode(encoded)
        .map_err(|_| anyhow!("its key {TOKEN_ENTRY} is not valid base64"))?;
    let token = Token::from_bytes(decoded)
        .with_context(|| format!("its key {TOKEN_ENTRY} is not a valid bearer token"))?;
    let expiry = token.expiry();
    if let Some(at) = expiry {
        ensure!(
            at > now,
            "its token expired at {at}: check that the ManagedServiceAccount's rotation is enabled and its agent runs"
        );
    }
    Ok(Credential { token, expiry })
}

fn check_record(metadata: Metadata, key: &SecretKey) -> Result<()> {
    let is_other = |recorded: Option<&Option<String>>, wanted: &str| {
        recorded.is_some_and(|recorded| recorded.as_deref() != Some(wanted))
    };
    let Metadata { name, namespace, labels, annotations } = metadata;
    let (labels, annotations) = (labels.unwrap_or_default(), annotations.unwrap_or_default());
    ensure!(
        name.as_ref() == Some(&key.name) && namespace.as_deref() == Some(key.namespace.as_str()),
        "the response is a different object than requested"
    );
    ensure!(
        !is_other(annotations.get(CLUSTER_NAME_ANNOTATION), key.cluster.as_str()),
        "its annotation {CLUSTER_NAME_ANNOTATION} names another cluster, expected {}",
        key.cluster
    );
    ensure!(
        !is_other(annotations.get(MANAGED_SERVICE_ACCOUNT_ANNOTATION), key.account.as_str()),
        "its annotation {MANAGED_SERVICE_ACCOUNT_ANNOTATION} names another ManagedServiceAccount, expected {}",
        key.account
    );
    // The syncer decides how to shorten a long value; its annotations contain the full names.
    ensure!(
        key.name.len() > LABEL_VALUE_MAX_LENGTH
            || !is_other(labels.get(SYNCED_FROM_LABEL), &key.name),
        "its label {SYNCED_FROM_LABEL} is not {}",
        key.name
    );
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
    use anyhow::Result;
    use base64::Engine as _;
    use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
    use jiff::Timestamp;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::read;
    use crate::names::{AccountName, ClusterName, Namespace, SecretKey};

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

    fn judge(secret: &Value, key: &SecretKey) -> Result<String> {
        read(secret.to_string().as_bytes(), key, NOW)
            .map(|credential| credential.token.expose().to_owned())
    }

    fn refused(secret: &Value, key: &SecretKey) -> String {
        format!("{:#}", judge(secret, key).unwrap_err())
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
        assert!(refused(&copy, &key("a-b", "c")).ends_with("another cluster, expected a-b"));

        copy["metadata"]["annotations"]["authentication.open-cluster-management.io/cluster-name"] =
            json!("a-b");
        let line = refused(&copy, &key("a-b", "c"));
        assert!(line.ends_with("another ManagedServiceAccount, expected c"), "{line}");
    }

    #[test]
    fn a_record_that_is_empty_is_not_absent() {
        for nothing in [json!(""), json!(null)] {
            let mut copy = secret("a-b");
            copy["metadata"]["annotations"] =
                json!({"authentication.open-cluster-management.io/cluster-name": nothing});
            assert!(refused(&copy, &key("a", "b")).ends_with("another cluster, expected a"));
        }
    }

    #[test]
    fn a_label_that_was_not_shortened_must_match() {
        let label =
            json!({"authentication.open-cluster-management.io/synced-from": "something-else"});
        let mut short = secret("a-b");
        short["metadata"]["labels"] = label.clone();
        assert!(refused(&short, &key("a", "b")).ends_with("synced-from is not a-b"));

        let cluster = "a".repeat(62);
        let mut long = secret(&format!("{cluster}-b"));
        long["metadata"]["labels"] = label;
        assert!(judge(&long, &key(&cluster, "b")).is_ok());
    }

    #[test]
    fn another_object_is_refused() {
        let mut elsewhere = secret("a-b");
        elsewhere["metadata"]["namespace"] = json!("other");
        for (object, words) in [
            (secret("a-x"), "a different object"),
            (elsewhere, "a different object"),
            (json!({"kind": "Status", "code": 404}), "a different object"),
            (json!(7), "not a valid Secret"),
            (json!({"data": {"token": 7}}), "not a valid Secret"),
        ] {
            assert!(refused(&object, &key("a", "b")).contains(words), "{object}");
        }
    }

    #[test]
    fn a_secret_without_a_usable_token_is_refused() {
        let encoded = |bytes: &[u8]| json!({"token": STANDARD.encode(bytes)});
        for (data, words) in [
            (json!(null), "no key token"),
            (json!({}), "no key token"),
            (json!({"token": null}), "no key token"),
            (json!({"Token": "eA=="}), "no key token"),
            (json!({"token": ""}), "not a valid bearer token: it is empty"),
            (json!({"token": "%"}), "not valid base64"),
            (encoded(token(1_800_000_000).as_bytes()), "its token expired at 2027-01-15T08:00:00Z"),
        ] {
            let mut copy = secret("a-b");
            copy["data"] = data;
            assert!(refused(&copy, &key("a", "b")).contains(words), "{copy}");
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
                        let line = format!("{error:#} {error:?}");
                        prop_assert!(!leaks(&line, &held) && !leaks(&line, &base64), "{}", line);
                    }
                }
            }
        }
    }
}
