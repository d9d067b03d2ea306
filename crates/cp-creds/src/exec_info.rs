//! The caller's request: `KUBERNETES_EXEC_INFO`, an `ExecCredential` without status.
//!
//! client-go sets it for every plugin, with the cluster if `provideClusterInfo: true` is configured; the cluster's
//! `config` is the extension `client.authentication.k8s.io/exec` of the ClusterProfile's access provider
//! (<https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins>).

use std::fmt;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::names::excerpt;
use crate::server_url::ServerUrl;

/// The variable that client-go sets.
pub const VARIABLE: &str = "KUBERNETES_EXEC_INFO";

/// The only kind.
pub const KIND: &str = "ExecCredential";

/// The version since Kubernetes 1.22.
pub const V1: &str = "client.authentication.k8s.io/v1";

/// The version that Argo CD and older programs request.
pub const V1_BETA1: &str = "client.authentication.k8s.io/v1beta1";

const SERVER: &str = "spec.cluster.server";

const UNVERIFIED: &str = "insecure-skip-tls-verify";

/// The extension of a kubeconfig's cluster that client-go passes as `config`.
const EXTENSION: &str = "client.authentication.k8s.io/exec";

/// The caller's request.
#[derive(Debug)]
pub struct ExecInfo<'a> {
    /// The version that the response must have.
    pub version: &'static str,
    /// The server to which the caller sends the token; only compared, never contacted.
    cluster: Option<Fields<'a>>,
}

impl<'a> ExecInfo<'a> {
    /// Parses the variable's value.
    pub fn parse(text: &'a str) -> Result<Self> {
        // serde_json's message may quote the input, so only line and column are reported.
        let object: Fields<'_> = serde_json::from_str(text).map_err(|error| {
            let (line, column) = (error.line(), error.column());
            anyhow!("{VARIABLE} is not a valid ExecCredential: line {line}, column {column}")
        })?;
        // Some clients leave it out; the version says enough.
        if let Some(kind) = object.text("kind")?.filter(|kind| !["", KIND].contains(&&**kind)) {
            bail!("{VARIABLE} is not an ExecCredential: its kind is {}", excerpt(&kind));
        }
        let requested = object.text("apiVersion")?.filter(|version| !version.is_empty());
        let requested = requested
            .with_context(|| format!("{VARIABLE} has no apiVersion: the client has to set it"))?;
        let version = [V1, V1_BETA1].into_iter().find(|version| *version == requested);
        let version = version.with_context(|| {
            let requested = excerpt(&requested);
            format!("{VARIABLE} requests apiVersion {requested}; supported are {V1} and {V1_BETA1}")
        })?;
        let spec = object.object("spec")?;
        let cluster = spec.map(|spec| spec.object("spec.cluster")).transpose()?.flatten();
        Ok(Self { version, cluster })
    }

    /// Checks that the caller verifies the server to which it sends the token, as far as the request names one: the
    /// token could be read on its way.
    pub fn check_protected(&self) -> Result<()> {
        let Some(cluster) = &self.cluster else { return Ok(()) };
        let server = cluster.text(SERVER)?.unwrap_or_default();
        // client-go also accepts a host without a scheme, and then uses https if there is a CA.
        let leads_to = if server.get(..7).is_some_and(|it| it.eq_ignore_ascii_case("http://")) {
            "an http URL"
        } else if detours(cluster)?.contains(&UNVERIFIED) {
            "a server without verification (insecure-skip-tls-verify)"
        } else {
            return Ok(());
        };
        bail!(
            "spec.cluster of {VARIABLE} leads the token to {leads_to}: the server must be an https URL that is verified"
        );
    }

    /// Checks that the caller sends the token to this server, directly and under its own name: a writer of the
    /// ClusterProfile's access provider could redirect it.
    pub fn check_server(&self, expected: &str) -> Result<()> {
        let cluster = self.cluster()?;
        let server = cluster.text(SERVER)?.unwrap_or_default();
        let parsed = (ServerUrl::parse(&server), ServerUrl::parse(expected));
        ensure!(
            matches!(&parsed, (Ok(server), Ok(expected)) if server.is_equivalent(expected)),
            "{SERVER} of {VARIABLE} is {}, expected {expected} (--server)",
            excerpt(&server)
        );
        // The caller would send the token through a proxy, or verify another name.
        if let Some(field) = detours(cluster)?.first() {
            bail!("spec.cluster.{field} of {VARIABLE} is set, which --server does not allow");
        }
        Ok(())
    }

    /// The cluster of the request. Some clients pass the cluster of the kubeconfig, in which the config is one of the
    /// extensions.
    pub fn cluster_name(&self) -> Result<String> {
        let cluster = self.cluster()?;
        let config = match cluster.object("spec.cluster.config")? {
            Some(config) => Some(config),
            None => cluster.extension("spec.cluster.extensions")?,
        };
        let name = config.map(|config| config.text("spec.cluster.config.clusterName"));
        let name = name.transpose()?.flatten().with_context(|| {
            format!(
                "no cluster: spec.cluster.config of {VARIABLE} has no clusterName: the client does not pass it, or the \
                 access provider of the ClusterProfile lacks the extension {EXTENSION}"
            )
        })?;
        ensure!(!name.is_empty(), "spec.cluster.config.clusterName of {VARIABLE} is empty");
        Ok(name)
    }

    fn cluster(&self) -> Result<&Fields<'a>> {
        self.cluster.as_ref().with_context(|| {
            format!(
                "no cluster: {VARIABLE} has no spec.cluster: set provideClusterInfo: true in the execConfig, or \
                 --cluster-name"
            )
        })
    }
}

/// The fields of a cluster that lead the token elsewhere.
fn detours(cluster: &Fields<'_>) -> Result<Vec<&'static str>> {
    let mut detours = Vec::new();
    for (field, aliases) in [
        ("proxy-url", &["proxyUrl"][..]),
        ("tls-server-name", &["tlsServerName"]),
        (UNVERIFIED, &["insecureSkipTlsVerify", "skipTLSVerify"]),
    ] {
        for name in [&[field], aliases].concat() {
            if cluster.get(name)?.is_some_and(|value| !["false", r#""""#].contains(&value.get())) {
                detours.push(field);
            }
        }
    }
    Ok(detours)
}

/// The fields of an object. A field is named by its path. As in Go, the case of its name does not matter.
#[derive(Debug)]
struct Fields<'a>(Vec<(String, &'a RawValue)>);

impl<'a> Fields<'a> {
    /// The value of a field, which is not null.
    fn get(&self, path: &'static str) -> Result<Option<&'a RawValue>> {
        let name = path.rsplit('.').next().unwrap_or(path);
        let mut values = self.0.iter().filter(|(field, _)| field.eq_ignore_ascii_case(name));
        let value = values.next().map(|(_, value)| *value);
        ensure!(values.next().is_none(), "{path} of {VARIABLE} is set more than once");
        Ok(value.filter(|value| value.get() != "null"))
    }

    /// A text, without white space around it.
    fn text(&self, path: &'static str) -> Result<Option<String>> {
        let text = self.parsed::<String>(path, "a string")?;
        Ok(text.map(|text| text.trim().to_owned()))
    }

    fn object(&self, path: &'static str) -> Result<Option<Fields<'a>>> {
        self.parsed(path, "an object")
    }

    /// The [`EXTENSION`] in a list of named ones.
    fn extension(&self, path: &'static str) -> Result<Option<Fields<'a>>> {
        let extensions: Vec<&RawValue> = self.parsed(path, "a list")?.unwrap_or_default();
        for extension in extensions
            .into_iter()
            .filter_map(|it| serde_json::from_str::<Fields<'_>>(it.get()).ok())
        {
            if extension.text("name")?.is_some_and(|name| name == EXTENSION) {
                return extension.object("extension");
            }
        }
        Ok(None)
    }

    fn parsed<T: Deserialize<'a>>(
        &self,
        path: &'static str,
        kind: &'static str,
    ) -> Result<Option<T>> {
        let parsed = self.get(path)?.map(|value| serde_json::from_str(value.get())).transpose();
        parsed.map_err(|_| {
            anyhow!("{path} of {VARIABLE} is not {kind}: the client has to pass JSON as it is")
        })
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Fields<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs;

        impl<'de> Visitor<'de> for Pairs {
            type Value = Vec<(String, &'de RawValue)>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(pairs)
            }
        }

        deserializer.deserialize_map(Pairs).map(Self)
    }
}

#[cfg(test)]
mod tests;
