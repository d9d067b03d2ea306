//! The names in a path on the API server.
//!
//! A cluster name comes from the writer of the ClusterProfile and becomes part of the URL of a request with our
//! credentials. So names are validated first: text that is not a DNS name (`..`, a slash, a percent sign, empty text)
//! never becomes part of a path.

use std::fmt;

use anyhow::{Result, ensure};
use object_names::{
    DNS_LABEL_MAX_LENGTH, DNS_SUBDOMAIN_MAX_LENGTH, is_dns_label, is_dns_subdomain,
};

/// How many characters of a rejected name an error quotes.
const EXCERPT_LENGTH: usize = 64;

macro_rules! name_type {
    ($(#[$doc:meta])* $name:ident, $what:literal, $check:ident, $max_length:expr, $dot:literal) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $name(String);

        impl $name {
            /// Validates a name.
            pub fn parse(text: &str) -> Result<Self> {
                ensure!(!text.is_empty(), "the {} is empty", $what);
                ensure!(
                    $check(text),
                    "the {} {} is not a valid DNS name: it must be at most {} lowercase letters, digits, '-'{}, with a \
                     letter or digit at both ends",
                    $what,
                    excerpt(text),
                    $max_length,
                    $dot
                );
                Ok(Self(text.to_owned()))
            }

            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

name_type! {
    /// The name of a ManagedCluster.
    ClusterName, "cluster name", is_dns_subdomain, DNS_SUBDOMAIN_MAX_LENGTH, " and '.'"
}
name_type! {
    /// The name of a `ManagedServiceAccount`.
    AccountName, "ManagedServiceAccount name", is_dns_subdomain, DNS_SUBDOMAIN_MAX_LENGTH, " and '.'"
}
name_type! {
    /// The name of a namespace on the hub.
    Namespace, "namespace", is_dns_label, DNS_LABEL_MAX_LENGTH, ""
}

/// The synced Secret of a cluster and account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretKey {
    /// The namespace of the Secret, which is the consumer's.
    pub(crate) namespace: Namespace,
    /// The cluster that the token is for.
    pub(crate) cluster: ClusterName,
    /// The `ManagedServiceAccount` of the token.
    pub(crate) account: AccountName,
    /// The name of the Secret, `<cluster>-<account>`.
    pub(crate) name: String,
}

impl SecretKey {
    /// The Secret with the token of `account` on `cluster`, synced to `namespace`.
    pub fn new(namespace: Namespace, cluster: ClusterName, account: AccountName) -> Result<Self> {
        let name = format!("{cluster}-{account}");
        ensure!(
            name.len() <= DNS_SUBDOMAIN_MAX_LENGTH,
            "cluster {cluster} and ManagedServiceAccount {account} make a Secret name of more than 253 bytes"
        );
        Ok(Self { namespace, cluster, account, name })
    }

    /// The path of the Secret on the API server. DNS names need no escaping.
    #[must_use]
    pub fn path(&self) -> String {
        format!("/api/v1/namespaces/{}/secrets/{}", self.namespace, self.name)
    }
}

impl fmt::Display for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// The beginning of foreign text: quoted, on one line, and short.
#[must_use]
pub fn excerpt(text: &str) -> String {
    match text.char_indices().nth(EXCERPT_LENGTH) {
        Some((end, _)) => format!("{:?}…", &text[..end]),
        None => format!("{text:?}"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{AccountName, ClusterName, Namespace, Result, SecretKey};

    fn key(namespace: &str, cluster: &str, account: &str) -> Result<SecretKey> {
        SecretKey::new(
            Namespace::parse(namespace)?,
            ClusterName::parse(cluster)?,
            AccountName::parse(account)?,
        )
    }

    #[test]
    fn the_secret_is_named_after_cluster_and_account() {
        let key = key("kueue-system", "cluster1", "multikueue").unwrap();
        assert_eq!(key.to_string(), "kueue-system/cluster1-multikueue");
        assert_eq!(key.path(), "/api/v1/namespaces/kueue-system/secrets/cluster1-multikueue");
    }

    #[test]
    fn names_that_are_too_long_together_are_refused() {
        assert!(key("ns", &"c".repeat(126), &"m".repeat(126)).is_ok());
        let error = key("ns", &"c".repeat(127), &"m".repeat(126)).unwrap_err();
        assert!(error.to_string().contains("more than 253 bytes"), "{error}");
    }

    #[test]
    fn a_refused_name_is_repeated_on_one_line_and_not_at_length() {
        let error =
            ClusterName::parse(&format!("a\nb{}", "x".repeat(10_000))).unwrap_err().to_string();
        assert!(!error.contains('\n') && error.len() < 300, "{error}");
    }

    proptest! {
        #[test]
        fn a_path_has_the_segments_we_gave_it(namespace in any::<String>(), cluster in "\\PC{0,12}|[a-z.%/-]{0,12}") {
            if let Ok(key) = key(&namespace, &cluster, "m") {
                let path = key.path();
                prop_assert_eq!(path.split('/').count(), 7);
                prop_assert!(path.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"/-.".contains(&byte)));
                prop_assert!(!path.contains(".."));
            }
        }
    }
}
