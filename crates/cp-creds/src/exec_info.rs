//! The caller's request: `KUBERNETES_EXEC_INFO`, an `ExecCredential` without status.
//!
//! client-go sets it for every plugin, with the cluster if `provideClusterInfo: true` is configured; the cluster's
//! `config` is the extension `client.authentication.k8s.io/exec` of the ClusterProfile's access provider
//! (<https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins>).

use std::fmt;

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

/// Why the caller's request is rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExecInfoError {
    /// It is not a JSON object.
    #[error("KUBERNETES_EXEC_INFO is not a valid ExecCredential: line {line}, column {column}")]
    Malformed { line: usize, column: usize },
    /// It has another kind.
    #[error("KUBERNETES_EXEC_INFO is not an ExecCredential: its kind is {0}")]
    OtherKind(String),
    #[error("KUBERNETES_EXEC_INFO has no apiVersion: the client has to set it")]
    NoVersion,
    /// It requests an unknown version.
    #[error(
        "KUBERNETES_EXEC_INFO requests apiVersion {0}; supported are client.authentication.k8s.io/v1 and \
         client.authentication.k8s.io/v1beta1"
    )]
    UnknownVersion(String),
    /// The variable is not set: the caller is not a client.
    #[error("no cluster: set KUBERNETES_EXEC_INFO or --cluster-name")]
    NotCalledAsPlugin,
    /// The request has no cluster.
    #[error(
        "no cluster: KUBERNETES_EXEC_INFO has no spec.cluster: set provideClusterInfo: true in the execConfig, or \
         --cluster-name"
    )]
    NoCluster,
    /// The cluster lacks the extension.
    #[error(
        "no cluster: spec.cluster.config of KUBERNETES_EXEC_INFO has no clusterName: the client does not pass it, or the \
         access provider of the ClusterProfile lacks the extension client.authentication.k8s.io/exec"
    )]
    NoClusterName,
    /// A field is not of its type.
    #[error("{0} of KUBERNETES_EXEC_INFO is not {1}: the client has to pass JSON as it is")]
    OtherType(&'static str, &'static str),
    /// A field is not unique, whatever the case of its name.
    #[error("{0} of KUBERNETES_EXEC_INFO is set more than once")]
    Ambiguous(&'static str),
    /// The caller would send the token to another server than expected.
    #[error(
        "spec.cluster.server of KUBERNETES_EXEC_INFO is {server}, expected {expected} (--server)"
    )]
    OtherServer { server: String, expected: String },
    /// The token could be read on its way.
    #[error(
        "spec.cluster of KUBERNETES_EXEC_INFO leads the token to {0}: the server must be an https URL that is verified"
    )]
    NotProtected(&'static str),
    /// The caller would send the token through a proxy, or verify another name.
    #[error("spec.cluster.{0} of KUBERNETES_EXEC_INFO is set, which --server does not allow")]
    Detour(&'static str),
    #[error("spec.cluster.config.clusterName of KUBERNETES_EXEC_INFO is empty")]
    EmptyClusterName,
}

/// The caller's request.
#[derive(Clone, Debug)]
pub struct ExecInfo {
    /// The version that the response must have.
    pub version: &'static str,
    cluster: Option<ExecCluster>,
}

impl ExecInfo {
    /// Parses the variable's value.
    pub fn parse(text: &str) -> Result<Self, ExecInfoError> {
        // serde_json's message may quote the input, so only line and column are reported.
        let object: Fields<'_> = serde_json::from_str(text).map_err(|error| {
            ExecInfoError::Malformed { line: error.line(), column: error.column() }
        })?;
        // Some clients leave it out; the version says enough.
        if let Some(kind) = object.text("kind")?.filter(|kind| !["", KIND].contains(&&**kind)) {
            return Err(ExecInfoError::OtherKind(excerpt(&kind)));
        }
        let requested = object.text("apiVersion")?.filter(|version| !version.is_empty());
        let requested = requested.ok_or(ExecInfoError::NoVersion)?;
        let version = [V1, V1_BETA1].into_iter().find(|version| *version == requested);
        let version = version.ok_or_else(|| ExecInfoError::UnknownVersion(excerpt(&requested)))?;
        let spec = object.object("spec")?;
        let cluster = spec.map(|spec| spec.object("spec.cluster")).transpose()?.flatten();
        Ok(Self { version, cluster: cluster.as_ref().map(ExecCluster::read).transpose()? })
    }

    /// Checks that the caller verifies the server to which it sends the token, as far as the request names one.
    pub fn check_protected(&self) -> Result<(), ExecInfoError> {
        let Some(cluster) = &self.cluster else { return Ok(()) };
        // client-go also accepts a host without a scheme, and then uses https if there is a CA.
        if cluster.server.get(..7).is_some_and(|scheme| scheme.eq_ignore_ascii_case("http://")) {
            return Err(ExecInfoError::NotProtected("an http URL"));
        }
        if cluster.detours.contains(&UNVERIFIED) {
            return Err(ExecInfoError::NotProtected(
                "a server without verification (insecure-skip-tls-verify)",
            ));
        }
        Ok(())
    }

    /// Checks that the caller sends the token to this server, directly and under its own name: a writer of the
    /// ClusterProfile's access provider could redirect it.
    pub fn check_server(&self, expected: &str) -> Result<(), ExecInfoError> {
        let cluster = self.cluster.as_ref().ok_or(ExecInfoError::NoCluster)?;
        let server = &*cluster.server;
        let parsed = (ServerUrl::parse(server), ServerUrl::parse(expected));
        if !matches!(&parsed, (Ok(server), Ok(expected)) if server.is_equivalent(expected)) {
            let (server, expected) = (excerpt(server), expected.to_owned());
            return Err(ExecInfoError::OtherServer { server, expected });
        }
        cluster.detours.first().map_or(Ok(()), |field| Err(ExecInfoError::Detour(field)))
    }

    /// The cluster of the request.
    pub fn cluster_name(&self) -> Result<&str, ExecInfoError> {
        let cluster = self.cluster.as_ref().ok_or(ExecInfoError::NoCluster)?;
        cluster.name.as_deref().map_err(Clone::clone)
    }
}

/// The server to which the caller sends the token; only compared, never contacted.
#[derive(Clone, Debug)]
struct ExecCluster {
    server: String,
    /// The fields that lead the token elsewhere.
    detours: Vec<&'static str>,
    name: Result<String, ExecInfoError>,
}

const UNVERIFIED: &str = "insecure-skip-tls-verify";

impl ExecCluster {
    fn read(fields: &Fields<'_>) -> Result<Self, ExecInfoError> {
        let mut detours = Vec::new();
        for (field, aliases) in [
            ("proxy-url", &["proxyUrl"][..]),
            ("tls-server-name", &["tlsServerName"]),
            (UNVERIFIED, &["insecureSkipTlsVerify", "skipTLSVerify"]),
        ] {
            for name in [&[field], aliases].concat() {
                if fields.get(name)?.is_some_and(|value| !["false", r#""""#].contains(&value.get()))
                {
                    detours.push(field);
                }
            }
        }
        let server = fields.text("spec.cluster.server")?.unwrap_or_default();
        Ok(Self { server, detours, name: Self::name(fields) })
    }

    /// Some clients pass the cluster of the kubeconfig, in which the config is one of the extensions.
    fn name(fields: &Fields<'_>) -> Result<String, ExecInfoError> {
        let config = match fields.object("spec.cluster.config")? {
            Some(config) => Some(config),
            None => fields.extension("spec.cluster.extensions")?,
        };
        let name =
            config.ok_or(ExecInfoError::NoClusterName)?.text("spec.cluster.config.clusterName")?;
        let name = name.ok_or(ExecInfoError::NoClusterName)?;
        if name.is_empty() { Err(ExecInfoError::EmptyClusterName) } else { Ok(name) }
    }
}

/// The fields of an object. A field is named by its path. As in Go, the case of its name does not matter.
struct Fields<'a>(Vec<(String, &'a RawValue)>);

impl<'a> Fields<'a> {
    /// The value of a field, which is not null.
    fn get(&self, path: &'static str) -> Result<Option<&'a RawValue>, ExecInfoError> {
        let name = path.rsplit('.').next().unwrap_or(path);
        let mut values = self.0.iter().filter(|(field, _)| field.eq_ignore_ascii_case(name));
        let value = values.next().map(|(_, value)| *value);
        if values.next().is_some() {
            return Err(ExecInfoError::Ambiguous(path));
        }
        Ok(value.filter(|value| value.get() != "null"))
    }

    /// A text, without white space around it.
    fn text(&self, path: &'static str) -> Result<Option<String>, ExecInfoError> {
        let text = self.parsed::<String>(path, "a string")?;
        Ok(text.map(|text| text.trim().to_owned()))
    }

    fn object(&self, path: &'static str) -> Result<Option<Fields<'a>>, ExecInfoError> {
        self.parsed(path, "an object")
    }

    /// The extension that client-go passes as `config`, of a list of named extensions.
    fn extension(&self, path: &'static str) -> Result<Option<Fields<'a>>, ExecInfoError> {
        let extensions: Vec<&RawValue> = self.parsed(path, "a list")?.unwrap_or_default();
        for extension in extensions
            .into_iter()
            .filter_map(|it| serde_json::from_str::<Fields<'_>>(it.get()).ok())
        {
            if extension
                .text("name")?
                .is_some_and(|name| name == "client.authentication.k8s.io/exec")
            {
                return extension.object("extension");
            }
        }
        Ok(None)
    }

    fn parsed<T: Deserialize<'a>>(
        &self,
        path: &'static str,
        kind: &'static str,
    ) -> Result<Option<T>, ExecInfoError> {
        let parsed = self.get(path)?.map(|value| serde_json::from_str(value.get())).transpose();
        parsed.map_err(|_| ExecInfoError::OtherType(path, kind))
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
mod tests {
    use proptest::collection::{hash_map, vec};
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::{ExecInfo, ExecInfoError, V1, V1_BETA1};

    fn named(text: &str) -> Result<String, ExecInfoError> {
        ExecInfo::parse(text)?.cluster_name().map(str::to_owned)
    }

    fn with_spec(spec: &str) -> String {
        format!(
            r#"{{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","spec":{spec}}}"#
        )
    }

    #[test]
    fn both_versions_are_known_and_no_other() {
        for (version, known) in [
            ("client.authentication.k8s.io/v1", Some(V1)),
            (" client.authentication.k8s.io/v1 ", Some(V1)),
            ("client.authentication.k8s.io/v1beta1", Some(V1_BETA1)),
            ("client.authentication.k8s.io/v1alpha1", None),
            ("client.authentication.k8s.io/v2", None),
            ("v1", None),
            ("", None),
        ] {
            let text = format!(
                r#"{{"apiVersion":"{version}","kind":"ExecCredential","spec":{{"interactive":false}}}}"#
            );
            assert_eq!(ExecInfo::parse(&text).ok().map(|info| info.version), known, "{version}");
        }
        assert_eq!(named(r#"{"kind":"ExecCredential"}"#), Err(ExecInfoError::NoVersion));
    }

    #[test]
    fn the_cluster_is_in_the_config_of_the_extension() {
        let spec = r#"{"interactive":false,"cluster":{"server":"https://proxy:9092/cluster1",
            "certificate-authority-data":"LS0t","config":{"clusterName":"cluster1","more":[1]}}}"#;
        assert_eq!(named(&with_spec(spec)), Ok("cluster1".to_owned()));
        // Go reads the names of fields without their case.
        let spec = r#"{"Cluster":{"Config":{"ClusterName":" cluster1 ","more":1,"More":2}}}"#;
        assert_eq!(named(&with_spec(spec)), Ok("cluster1".to_owned()));
    }

    #[test]
    fn each_way_to_leave_the_cluster_out_has_its_own_answer() {
        for (spec, error) in [
            ("null", ExecInfoError::NoCluster),
            ("{}", ExecInfoError::NoCluster),
            (r#"{"cluster":null}"#, ExecInfoError::NoCluster),
            (r#"{"cluster":{}}"#, ExecInfoError::NoClusterName),
            (r#"{"cluster":{"config":null}}"#, ExecInfoError::NoClusterName),
            (r#"{"cluster":{"config":{}}}"#, ExecInfoError::NoClusterName),
            (r#"{"cluster":[]}"#, ExecInfoError::OtherType("spec.cluster", "an object")),
            (
                r#"{"cluster":{"config":"{\"clusterName\":\"a\"}"}}"#,
                ExecInfoError::OtherType("spec.cluster.config", "an object"),
            ),
            (r#"{"cluster":{"config":{"clusterName":null}}}"#, ExecInfoError::NoClusterName),
            (
                r#"{"cluster":{"config":{"clusterName":7}}}"#,
                ExecInfoError::OtherType("spec.cluster.config.clusterName", "a string"),
            ),
            (r#"{"cluster":{"config":{"clusterName":" "}}}"#, ExecInfoError::EmptyClusterName),
            (
                r#"{"cluster":{"config":{"clusterName":"a","clusterName":"b"}}}"#,
                ExecInfoError::Ambiguous("spec.cluster.config.clusterName"),
            ),
            (
                r#"{"cluster":{"config":{"clusterName":"a","ClusterName":"b"}}}"#,
                ExecInfoError::Ambiguous("spec.cluster.config.clusterName"),
            ),
            (
                r#"{"cluster":{"server":"https://a","server":"https://b"}}"#,
                ExecInfoError::Ambiguous("spec.cluster.server"),
            ),
            (r#"{"cluster":{"config":{"clusterName":""}}}"#, ExecInfoError::EmptyClusterName),
        ] {
            assert_eq!(named(&with_spec(spec)), Err(error), "{spec}");
        }
    }

    #[test]
    fn a_client_may_pass_the_cluster_of_its_kubeconfig_or_leave_out_the_kind() {
        let exec = json!({ "name": "client.authentication.k8s.io/exec", "extension": { "clusterName": "c1" } });
        let other = json!({ "name": "other", "extension": { "clusterName": "eve" } });
        for (cluster, expected) in [
            (json!({ "extensions": [other, exec] }), Ok("c1".to_owned())),
            (
                json!({ "extensions": [exec], "config": { "clusterName": "c2" } }),
                Ok("c2".to_owned()),
            ),
            (json!({ "extensions": [other] }), Err(ExecInfoError::NoClusterName)),
            (
                json!({ "extensions": [{ "name": 7 }, exec] }),
                Err(ExecInfoError::OtherType("name", "a string")),
            ),
            (json!({ "extensions": [7, null] }), Err(ExecInfoError::NoClusterName)),
            (json!({ "extensions": null }), Err(ExecInfoError::NoClusterName)),
        ] {
            assert_eq!(
                named(&with_spec(&json!({ "cluster": cluster }).to_string())),
                expected,
                "{cluster}"
            );
        }
        let text = r#"{"apiVersion":"client.authentication.k8s.io/v1","spec":{"cluster":{"config":{"clusterName":"c"}}}}"#;
        assert_eq!(named(text), Ok("c".to_owned()));
    }

    #[test]
    fn a_token_is_for_the_expected_server_and_takes_no_detour() {
        let check = |cluster: Value| {
            let text = with_spec(&json!({ "cluster": cluster }).to_string());
            ExecInfo::parse(&text).unwrap().check_server("https://proxy:9092/c1")
        };
        let server = "https://proxy:9092/c1";
        for cluster in [
            json!({ "server": server }),
            json!({ "server": "https://proxy:9092/c1/" }),
            json!({ "server": "HTTPS://Proxy:9092/%631" }),
            json!({ "server": " https://proxy:9092/c1\n" }),
            json!({ "server": server, "proxy-url": null, "tls-server-name": "", "insecure-skip-tls-verify": false }),
        ] {
            assert_eq!(check(cluster.clone()), Ok(()), "{cluster}");
        }
        for other in [
            json!("https://proxy:9092/c10"),
            json!("https://eve/c1"),
            json!("http://proxy:9092/c1"),
            json!(null),
        ] {
            assert!(
                matches!(check(json!({ "server": other })), Err(ExecInfoError::OtherServer { .. })),
                "{other}"
            );
        }
        for (field, value) in [
            ("proxy-url", json!("https://eve")),
            ("tls-server-name", json!("eve")),
            ("insecure-skip-tls-verify", json!(true)),
        ] {
            assert_eq!(
                check(json!({ "server": server, field: value })),
                Err(ExecInfoError::Detour(field))
            );
        }
        for field in
            ["proxyUrl", "proxyURL", "tlsServerName", "skipTLSVerify", "insecureSkipTLSVerify"]
        {
            let cluster = json!({ "server": server, field: "eve" });
            assert!(matches!(check(cluster), Err(ExecInfoError::Detour(_))), "{field}");
        }
        assert_eq!(
            ExecInfo::parse(&with_spec("{}")).unwrap().check_server(server),
            Err(ExecInfoError::NoCluster)
        );
    }

    #[test]
    fn a_token_is_never_for_a_server_that_the_caller_does_not_verify() {
        let check = |cluster: Value| {
            let text = with_spec(&json!({ "cluster": cluster }).to_string());
            ExecInfo::parse(&text).unwrap().check_protected()
        };
        for cluster in [
            json!(null),
            json!({}),
            json!({ "server": "https://proxy:9092/c1" }),
            json!({ "server": "https://c1", "proxy-url": "http://proxy", "tls-server-name": "c1" }),
            json!({ "server": "https://c1", "insecure-skip-tls-verify": false }),
        ] {
            assert_eq!(check(cluster.clone()), Ok(()), "{cluster}");
        }
        for cluster in [
            json!({ "server": "http://proxy:9092/c1" }),
            json!({ "server": "HTTP://proxy:9092/c1" }),
            json!({ "server": "https://c1", "insecure-skip-tls-verify": true }),
        ] {
            assert!(
                matches!(check(cluster.clone()), Err(ExecInfoError::NotProtected(_))),
                "{cluster}"
            );
        }
    }

    #[test]
    fn what_is_no_exec_credential_is_refused() {
        for text in ["", "null", "7", "[]", "{"] {
            assert!(
                matches!(ExecInfo::parse(text), Err(ExecInfoError::Malformed { .. })),
                "{text}"
            );
        }
        assert_eq!(named(&with_spec("7")), Err(ExecInfoError::OtherType("spec", "an object")));
        let text = r#"{"apiVersion":"client.authentication.k8s.io/v1","kind":"TokenReview"}"#;
        assert!(matches!(ExecInfo::parse(text), Err(ExecInfoError::OtherKind(_))));
    }

    /// Arbitrary JSON, with the fields that are read in expected and unexpected places.
    fn any_json() -> impl Strategy<Value = Value> {
        let scalar = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            any::<String>().prop_map(Value::from),
        ];
        let leaf = prop_oneof![4 => scalar.clone(), 1 => vec(scalar, 0..4).prop_map(Value::from)];
        leaf.prop_recursive(4, 32, 4, |inner| {
            hash_map("cluster|config|clusterName|\\PC{0,3}", inner, 0..4)
                .prop_map(|fields| fields.into_iter().collect())
        })
    }

    proptest! {
        #[test]
        fn a_cluster_is_named_by_text_in_its_place_and_by_nothing_else(inside in any_json(), depth in 0..4_usize) {
            let path = ["cluster", "config", "clusterName"];
            let spec = path[..depth].iter().rev().fold(inside, |inside, field| json!({*field: inside}));
            let written = path.iter().try_fold(&spec, |object, field| object.get(field));
            let written = written.and_then(Value::as_str).map(str::trim).filter(|name| !name.is_empty());
            let written = written.map(str::to_owned);
            let read = named(&with_spec(&spec.to_string()));
            if let Err(error) = &read {
                let line = error.to_string();
                prop_assert!(!line.contains(char::is_control) && line.len() < 400, "{}", line);
            }
            prop_assert_eq!(read.ok(), written);
        }

        #[test]
        fn no_text_makes_it_panic_or_speak_at_length(text in any::<String>(), inside in any::<String>()) {
            let inside = serde_json::Value::from(inside);
            let texts = [
                text,
                with_spec(&format!(r#"{{"cluster":{{"config":{{"clusterName":{inside}}}}}}}"#)),
                format!(r#"{{"apiVersion":{inside},"kind":"ExecCredential"}}"#),
                format!(r#"{{"apiVersion":7,"kind":{inside}}}"#),
            ];
            for text in texts {
                if let Err(error) = named(&text) {
                    let line = error.to_string();
                    prop_assert!(!line.contains(char::is_control) && line.chars().count() < 1000, "{}", line);
                }
            }
        }
    }
}
