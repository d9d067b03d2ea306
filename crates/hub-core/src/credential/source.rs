//! What decisions read of the Secret into which an agent reports a token.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hub_api::labels;
use hub_api::secret::{Secret, SecretBytes, TYPE_OPAQUE};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{FieldsV1, ObjectMeta};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use crate::credential::account::Account;
use crate::fleet::ObservedCluster;
use crate::version::Uid;

/// Longest `metadata.uid` that is stored, in bytes: the API server's are UUIDs, and an annotation may be long.
pub(super) const UID_MAX_LENGTH: usize = 512;

/// The key of the token.
pub const TOKEN: &str = "token";
/// The key of the CA certificates of the managed cluster's API server.
pub const CA: &str = "ca.crt";

/// The keys of a copy.
pub const ENTRIES: [&str; 2] = [CA, TOKEN];

/// The maximum size of the data that is copied for one account, in bytes. A token is sent in a header, which API
/// servers limit, and the memory for every account must be bounded.
pub const CREDENTIAL_MAX_LENGTH: usize = 64 * 1024;

/// How many owners of a source are read; an agent writes one.
const OWNERS_MAX: usize = 8;

/// The Secret that has the name and the namespace of a ManagedServiceAccount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenSource {
    /// The uids in its ownerReferences.
    pub owners: Box<[Uid]>,
    /// When its data was last written, as far as the API server has recorded it.
    pub reported: Option<Timestamp>,
    /// Whether it has the agent's label and the agent's Secret type.
    pub is_agents: bool,
    /// Its credential, or why it has none.
    pub credential: Result<Arc<Credential>, Unusable>,
}

/// The data that is copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credential {
    pub token: SecretBytes,
    /// The CA certificates, as the agent wrote them. Accounts of one cluster usually have the same, and
    /// [share](Self::share_ca) it.
    ca: Option<Arc<SecretBytes>>,
    /// The fingerprint of a copy with exactly this data.
    pub digest: Fingerprint,
    /// When the token expires, if it is a JWT with that claim.
    pub expires: Option<Timestamp>,
}

/// Why a source is not copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, thiserror::Error)]
pub enum Unusable {
    #[default]
    #[error("it has no key {TOKEN}")]
    NoToken,
    #[error("its key {TOKEN} is empty")]
    EmptyToken,
    /// It contains characters that no HTTP header allows, so it is not the token that the agent received.
    #[error("its key {TOKEN} contains bytes other than printable ASCII, such as a line end")]
    NotPrintable,
    /// Token and certificates together exceed [`CREDENTIAL_MAX_LENGTH`].
    #[error("its keys {TOKEN} and {CA} exceed {CREDENTIAL_MAX_LENGTH} bytes")]
    TooLong,
    /// The Secret does not match its schema.
    #[error("it is not a valid Secret")]
    Unreadable,
}

impl TokenSource {
    #[must_use]
    pub fn read(secret: &Secret) -> Self {
        let metadata = &secret.metadata;
        let owners = metadata.owner_references.iter().flatten().map(|owner| &owner.uid);
        let owners = owners.filter(|uid| uid.len() <= UID_MAX_LENGTH).take(OWNERS_MAX);
        Self {
            owners: owners.map(|uid| uid.as_str().into()).collect(),
            reported: reported(metadata),
            is_agents: labels::has(metadata, (labels::IS_MANAGED_SERVICE_ACCOUNT, labels::TRUE))
                && secret.type_.as_deref() == Some(TYPE_OPAQUE),
            credential: Credential::read(secret).map(Arc::new),
        }
    }

    /// A Secret that cannot be read.
    #[must_use]
    pub fn unreadable() -> Self {
        Self {
            owners: Box::default(),
            reported: None,
            is_agents: true,
            credential: Err(Unusable::Unreadable),
        }
    }

    /// Whether it was written before this ManagedCluster was created, and so by the agent of an earlier cluster of the
    /// same name. Times have a resolution of seconds, within which two events have no order; an account that is not
    /// older than the cluster cannot have an older token.
    #[must_use]
    pub fn is_of_an_earlier(&self, cluster: &ObservedCluster, account: &Account) -> bool {
        let is_earlier = |time: Option<Timestamp>| {
            cluster
                .created
                .zip(time)
                .is_some_and(|(created, time)| time.as_second() < created.as_second())
        };
        is_earlier(self.reported) && is_earlier(account.created)
    }

    /// Whether it is known that the account's agent did not create it. Without an account, only the label and the type
    /// are compared; an account that cannot be read has its uid in its metadata. A Secret that cannot be read is never
    /// foreign.
    pub(crate) fn is_foreign_to(&self, account: Option<&Account>) -> bool {
        let is_anothers = |account: &Account| !self.owners.contains(&account.version.uid);
        let is_readable = !matches!(self.credential, Err(Unusable::Unreadable));
        is_readable && (!self.is_agents || account.is_some_and(is_anothers))
    }
}

/// When the data of a Secret was last written: rotation rewrites the Secret, so its creation time is not enough.
///
/// A writer of the Secret can forge managedFields, but could write the token itself. The agent's own
/// `lastRefreshTimestamp` uses the clock of the managed cluster, which may be wrong by any amount.
fn reported(metadata: &ObjectMeta) -> Option<Timestamp> {
    let writes_data = |fields: &Option<FieldsV1>| {
        fields.as_ref().is_some_and(|fields| fields.0.get("f:data").is_some())
    };
    let written =
        metadata.managed_fields.iter().flatten().filter(|entry| writes_data(&entry.fields_v1));
    let times = written.filter_map(|entry| entry.time.as_ref()).chain(&metadata.creation_timestamp);
    times.map(|time| time.0).max()
}

impl Credential {
    fn read(secret: &Secret) -> Result<Self, Unusable> {
        let entry =
            |key| secret.entries().find(|(name, _)| *name == key).map(|(_, bytes)| bytes.clone());
        let (token, ca) = (entry(TOKEN).ok_or(Unusable::NoToken)?, entry(CA));
        let length = token.expose().len() + ca.as_ref().map_or(0, |ca| ca.expose().len());
        match token.expose() {
            [] => return Err(Unusable::EmptyToken),
            _ if length > CREDENTIAL_MAX_LENGTH => return Err(Unusable::TooLong),
            bytes if !bytes.iter().all(u8::is_ascii_graphic) => return Err(Unusable::NotPrintable),
            _ => {}
        }
        let entries = ca.iter().map(|ca| (CA, ca)).chain([(TOKEN, &token)]);
        let (digest, expires) = (Fingerprint::of(entries), expiry(token.expose()));
        Ok(Self { token, ca: ca.map(Arc::new), digest, expires })
    }

    /// Keeps the CA of another credential in place of its own, if they are the same; returns whether they are.
    pub(super) fn share_ca(&mut self, other: &Self) -> bool {
        let is_same = self.ca == other.ca;
        if is_same {
            self.ca.clone_from(&other.ca);
        }
        is_same
    }

    /// The data of its copies.
    pub fn entries(&self) -> impl Iterator<Item = (&str, &SecretBytes)> {
        self.ca.iter().map(|ca| (CA, &**ca)).chain([(TOKEN, &self.token)])
    }
}

/// The SHA-256 of a Secret's data: enough to detect a difference, without the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// The fingerprint of these entries, which are sorted by key.
    #[must_use]
    pub fn of<'a>(entries: impl Iterator<Item = (&'a str, &'a SecretBytes)>) -> Self {
        let mut hash = Sha256::new();
        for (key, bytes) in entries {
            for part in [key.as_bytes(), bytes.expose()] {
                // Each with its length, so that different lists never have the same input.
                hash.update(part.len().to_be_bytes());
                hash.update(part);
            }
        }
        Self(hash.finalize().into())
    }
}

/// The claims of a token that are read (RFC 7519, section 4.1.4).
#[derive(Deserialize)]
struct Claims {
    exp: f64,
}

/// When a token expires, for the metric. The signature is not verified, since the key is the managed cluster's.
fn expiry(token: &[u8]) -> Option<Timestamp> {
    let claims = token.split(|byte| *byte == b'.').nth(1)?;
    let claims: Claims = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).ok()?).ok()?;
    #[expect(
        clippy::cast_possible_truncation,
        reason = "what is out of range is no time and refused below"
    )]
    Timestamp::from_second(claims.exp as i64).ok()
}

#[cfg(test)]
mod tests {
    use hub_api::names::AccountKey;
    use hub_api::secret::Secret;
    use serde_json::json;

    use super::*;
    use crate::credential::index::CredentialIndex;

    fn read(data: &serde_json::Value) -> Result<Arc<Credential>, Unusable> {
        let secret = json!({ "metadata": {}, "type": "Opaque", "data": data });
        TokenSource::read(&serde_json::from_value::<Secret>(secret).unwrap()).credential
    }

    fn base64(bytes: &[u8]) -> String {
        base64::engine::general_purpose::STANDARD.encode(bytes)
    }

    #[test]
    fn what_is_no_bearer_token_is_no_credential() {
        for (data, why) in [
            (json!(null), Unusable::NoToken),
            (json!({ "ca.crt": "YQ==" }), Unusable::NoToken),
            (json!({ "token": "" }), Unusable::EmptyToken),
            (json!({ "token": base64(b"abc\n") }), Unusable::NotPrintable),
            (json!({ "token": base64(&[0xff, 0xfe]) }), Unusable::NotPrintable),
            (json!({ "token": base64(&vec![b'a'; CREDENTIAL_MAX_LENGTH + 1]) }), Unusable::TooLong),
            (
                json!({ "token": "YQ==", "ca.crt": base64(&vec![0; CREDENTIAL_MAX_LENGTH]) }),
                Unusable::TooLong,
            ),
        ] {
            assert_eq!(read(&data).unwrap_err(), why);
        }
    }

    #[test]
    fn only_token_and_certificates_are_copied() {
        let credential =
            read(&json!({ "token": "YQ==", "ca.crt": base64(&[0, 0xff]), "x": "eA==" })).unwrap();
        let keys: Vec<_> = credential.entries().map(|(key, _)| key).collect();
        assert_eq!(keys, [CA, TOKEN]);
        assert_eq!(credential.digest, Fingerprint::of(credential.entries()));
    }

    #[test]
    fn accounts_of_a_cluster_share_its_ca_in_memory_also_while_it_changes() {
        let mut index = CredentialIndex::default();
        let key = |account: &str| AccountKey { cluster: "c1".into(), account: account.into() };
        for (account, ca) in [("a", "old"), ("c", "old"), ("c", "new"), ("b", "new")] {
            let data = json!({ "token": base64(b"x"), "ca.crt": base64(ca.as_bytes()) });
            let source = TokenSource { credential: read(&data), ..TokenSource::unreadable() };
            index.set_source(&key(account), Some(source));
        }
        let ca = |account: &str| index.credential(&key(account)).unwrap().ca.clone().unwrap();
        assert!(Arc::ptr_eq(&ca("b"), &ca("c")));
        assert_eq!((ca("a").expose(), ca("b").expose()), (&b"old"[..], &b"new"[..]));
    }

    #[test]
    fn the_end_of_a_token_is_its_claim() {
        let token = |claims: &str| json!({ "token": base64(format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(claims)).as_bytes()) });
        let expires =
            |claims: &str| read(&token(claims)).unwrap().expires.map(Timestamp::as_second);
        assert_eq!(expires(r#"{"exp":1800000000}"#), Some(1_800_000_000));
        assert_eq!(expires(r#"{"exp":1800000000.5,"iss":"x"}"#), Some(1_800_000_000));
        for none in [r#"{"exp":"soon"}"#, r#"{"exp":1e300}"#, "{}", "no json"] {
            assert_eq!(expires(none), None, "{none}");
        }
        assert_eq!(read(&json!({ "token": "YQ==" })).unwrap().expires, None);
    }

    #[test]
    fn nothing_that_is_read_is_shown() {
        let shown = format!(
            "{:?}",
            read(&json!({ "token": base64(b"sEcReT"), "ca.crt": base64(b"sEcReT") }))
        );
        assert!(!shown.contains("sEcReT") && !shown.contains(&base64(b"sEcReT")), "{shown}");
    }
}
