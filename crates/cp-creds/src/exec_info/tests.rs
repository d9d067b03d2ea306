use proptest::collection::{hash_map, vec};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{ExecInfo, Result, V1, V1_BETA1};

/// The name, or the words of the error.
fn named(text: &str) -> Result<String, String> {
    let read = || -> Result<String> {
        let info = ExecInfo::parse(text)?;
        info.check_protected()?;
        info.cluster_name()
    };
    read().map_err(|error| error.to_string())
}

fn refused(text: &str) -> String {
    named(text).unwrap_err()
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
    assert!(refused(r#"{"kind":"ExecCredential"}"#).contains("has no apiVersion"));
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
    for (spec, words) in [
        ("null", "has no spec.cluster"),
        ("{}", "has no spec.cluster"),
        (r#"{"cluster":null}"#, "has no spec.cluster"),
        (r#"{"cluster":{}}"#, "has no clusterName"),
        (r#"{"cluster":{"config":null}}"#, "has no clusterName"),
        (r#"{"cluster":{"config":{}}}"#, "has no clusterName"),
        (r#"{"cluster":[]}"#, "spec.cluster of KUBERNETES_EXEC_INFO is not an object"),
        (
            r#"{"cluster":{"config":"{\"clusterName\":\"a\"}"}}"#,
            "spec.cluster.config of KUBERNETES_EXEC_INFO is not an object",
        ),
        (r#"{"cluster":{"config":{"clusterName":null}}}"#, "has no clusterName"),
        (
            r#"{"cluster":{"config":{"clusterName":7}}}"#,
            "spec.cluster.config.clusterName of KUBERNETES_EXEC_INFO is not a string",
        ),
        (
            r#"{"cluster":{"config":{"clusterName":" "}}}"#,
            "clusterName of KUBERNETES_EXEC_INFO is empty",
        ),
        (
            r#"{"cluster":{"config":{"clusterName":"a","clusterName":"b"}}}"#,
            "spec.cluster.config.clusterName of KUBERNETES_EXEC_INFO is set more than once",
        ),
        (
            r#"{"cluster":{"config":{"clusterName":"a","ClusterName":"b"}}}"#,
            "spec.cluster.config.clusterName of KUBERNETES_EXEC_INFO is set more than once",
        ),
        (
            r#"{"cluster":{"server":"https://a","server":"https://b"}}"#,
            "spec.cluster.server of KUBERNETES_EXEC_INFO is set more than once",
        ),
        (
            r#"{"cluster":{"config":{"clusterName":""}}}"#,
            "clusterName of KUBERNETES_EXEC_INFO is empty",
        ),
    ] {
        let error = refused(&with_spec(spec));
        assert!(error.contains(words), "{spec}: {error}");
    }
}

#[test]
fn a_client_may_pass_the_cluster_of_its_kubeconfig_or_leave_out_the_kind() {
    let exec = json!({ "name": "client.authentication.k8s.io/exec", "extension": { "clusterName": "c1" } });
    let other = json!({ "name": "other", "extension": { "clusterName": "eve" } });
    for (cluster, expected) in [
        (json!({ "extensions": [other, exec] }), "c1"),
        (json!({ "extensions": [exec], "config": { "clusterName": "c2" } }), "c2"),
        (json!({ "extensions": [other] }), "has no clusterName"),
        (
            json!({ "extensions": [{ "name": 7 }, exec] }),
            "name of KUBERNETES_EXEC_INFO is not a string",
        ),
        (json!({ "extensions": [7, null] }), "has no clusterName"),
        (json!({ "extensions": null }), "has no clusterName"),
    ] {
        let name = named(&with_spec(&json!({ "cluster": cluster }).to_string()));
        let is_expected = match &name {
            Ok(name) => name == expected,
            Err(error) => error.contains(expected),
        };
        assert!(is_expected, "{cluster}: {name:?}");
    }
    let text = r#"{"apiVersion":"client.authentication.k8s.io/v1","spec":{"cluster":{"config":{"clusterName":"c"}}}}"#;
    assert_eq!(named(text), Ok("c".to_owned()));
}

#[test]
fn a_token_is_for_the_expected_server_and_takes_no_detour() {
    let check = |cluster: Value| {
        let text = with_spec(&json!({ "cluster": cluster }).to_string());
        let checked = ExecInfo::parse(&text).unwrap().check_server("https://proxy:9092/c1");
        checked.map_err(|error| error.to_string())
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
        let error = check(json!({ "server": other })).unwrap_err();
        assert!(error.contains("expected https://proxy:9092/c1"), "{other}: {error}");
    }
    for (field, value) in [
        ("proxy-url", json!("https://eve")),
        ("tls-server-name", json!("eve")),
        ("insecure-skip-tls-verify", json!(true)),
    ] {
        let error = check(json!({ "server": server, field: value })).unwrap_err();
        assert!(error.contains(&format!("spec.cluster.{field} of")), "{error}");
    }
    for field in ["proxyUrl", "proxyURL", "tlsServerName", "skipTLSVerify", "insecureSkipTLSVerify"]
    {
        let cluster = json!({ "server": server, field: "eve" });
        let error = check(cluster).unwrap_err();
        assert!(error.contains("--server does not allow"), "{field}: {error}");
    }
    assert!(ExecInfo::parse(&with_spec("{}")).unwrap().check_server(server).is_err());
}

#[test]
fn a_token_is_never_for_a_server_that_the_caller_does_not_verify() {
    let check = |cluster: Value| {
        let text = with_spec(&json!({ "cluster": cluster }).to_string());
        let checked = ExecInfo::parse(&text).unwrap().check_protected();
        checked.map_err(|error| error.to_string())
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
        let error = check(cluster.clone()).unwrap_err();
        assert!(error.contains("leads the token to"), "{cluster}: {error}");
    }
}

#[test]
fn what_is_no_exec_credential_is_refused() {
    for text in ["", "null", "7", "[]", "{"] {
        assert!(refused(text).contains("is not a valid ExecCredential: line"), "{text}");
    }
    assert!(refused(&with_spec("7")).contains("spec of KUBERNETES_EXEC_INFO is not an object"));
    let text = r#"{"apiVersion":"client.authentication.k8s.io/v1","kind":"TokenReview"}"#;
    assert!(refused(text).contains("its kind is \"TokenReview\""));
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
        if let Err(line) = &read {
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
            if let Err(line) = named(&text) {
                prop_assert!(!line.contains(char::is_control) && line.chars().count() < 1000, "{}", line);
            }
        }
    }
}
