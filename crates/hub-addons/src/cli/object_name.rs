//! Objects that the command line names.

use std::fmt;
use std::str::FromStr;

use hub_api::names::{is_dns_label, is_dns_subdomain};

/// A namespaced object on the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectName {
    pub namespace: String,
    pub name: String,
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl FromStr for ObjectName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once('/') {
            Some((namespace, name)) if is_dns_label(namespace) && is_dns_subdomain(name) => {
                Ok(Self { namespace: namespace.to_owned(), name: name.to_owned() })
            }
            _ => Err(format!("expected NAMESPACE/NAME, got {text:?}")),
        }
    }
}
