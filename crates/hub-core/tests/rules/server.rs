//! What follows from TLS handshakes with the published server: for replaced anchors, for the host, and for people.

use hub_core::access::{
    AccessIndex, AccessSource, AnchorReader, Overlap, OverlapEnd, Presented, PublishedServer,
    ServerState, Sighting,
};
use hub_core::effort;
use hub_core::endpoint::ServerAddress;
use hub_core::finding::Reason;
use hub_core::known::Known;
use hub_core::profile::ObservedProfile;
use hub_core::trust;
use jiff::Timestamp;
use serde_json::json;

use crate::access::{
    ECDSA, EXPIRED, NAME, RSA, anchors, bundle, home, key, of_cluster, published, ready, replaced,
};

const BOTH: [&str; 2] = ["cluster-proxy-addon-user.proxy", "cluster-proxy-addon-user.proxy.svc"];

fn presents(verified_by: &[&str], names: &[&str]) -> Sighting {
    let verified_by =
        verified_by.iter().flat_map(|pem| bundle(&[pem]).anchors().cloned().collect::<Vec<_>>());
    let verified_by: std::collections::BTreeSet<_> = verified_by.collect();
    Sighting::Presented(Presented {
        refused: verified_by.is_empty().then(|| "unknown issuer".to_owned()),
        verified_by,
        names: names.iter().map(|&name| name.to_owned()).collect(),
        expires: Timestamp::UNIX_EPOCH,
    })
}

fn unreachable() -> Sighting {
    Sighting::Unreachable("connection refused".to_owned())
}

/// Records a handshake with the server that is published now.
fn sees(index: &mut AccessIndex, sighting: &Sighting) -> bool {
    let server = index.server().unwrap();
    index.observe(&server, sighting)
}

fn state(index: &AccessIndex) -> ServerState {
    index.checked().unwrap().0
}

fn host(index: &AccessIndex) -> String {
    ServerAddress::of_url(&published(index, "c1").cluster.unwrap().server).unwrap().host
}

/// An index whose anchor RSA was replaced by ECDSA, and the identifier of the overlap.
fn overlapping() -> (AccessIndex, Overlap) {
    let mut index = ready(&[RSA]);
    let overlap = replaced(&mut index, &[ECDSA]);
    (index, overlap)
}

#[test]
fn a_check_is_in_order_if_a_current_anchor_verifies_a_certificate_that_names_the_host() {
    for (sighting, expected) in [
        (presents(&[ECDSA], &BOTH), ServerState::Ok),
        (presents(&[ECDSA, RSA], &BOTH), ServerState::Ok),
        (presents(&[RSA], &BOTH), ServerState::OldCertificate),
        (presents(&[ECDSA], &["another"]), ServerState::WrongName),
        (presents(&[], &BOTH), ServerState::Untrusted),
        (unreachable(), ServerState::Unreachable),
    ] {
        let (mut index, _) = overlapping();
        sees(&mut index, &sighting);
        assert_eq!(state(&index), expected, "{sighting:?}");
        let expires = index.checked().unwrap().1;
        assert_eq!(expires.is_some(), expected != ServerState::Unreachable, "{sighting:?}");
    }
}

#[test]
fn an_overlap_ends_in_time_unless_the_server_was_seen_with_the_old_certificate() {
    let (old, new) = (presents(&[RSA], &BOTH), presents(&[ECDSA], &BOTH));
    let one_of_two_replicas = [vec![new.clone(); 9], vec![old.clone()], vec![new.clone(); 9]];
    for (during, end) in [
        (vec![], OverlapEnd::Ended),
        (vec![unreachable(), unreachable()], OverlapEnd::Ended),
        (vec![presents(&[], &BOTH)], OverlapEnd::Ended),
        (vec![new.clone(); 9], OverlapEnd::Ended),
        (vec![old.clone()], OverlapEnd::Extended),
        (vec![old.clone(), unreachable()], OverlapEnd::Extended),
        (one_of_two_replicas.concat(), OverlapEnd::Extended),
        (vec![new.clone(); 10], OverlapEnd::Over),
    ] {
        let (mut index, overlap) = overlapping();
        for sighting in &during {
            sees(&mut index, sighting);
        }
        assert_eq!(index.end_overlap(overlap), end, "{during:?}");
        let kept: &[&str] = if end == OverlapEnd::Extended { &[RSA, ECDSA] } else { &[ECDSA] };
        assert_eq!(anchors(&index, "c1"), bundle(kept), "{during:?}");
        // An overlap in which the old certificate is not seen again ends.
        if end == OverlapEnd::Extended {
            assert_eq!(index.end_overlap(overlap), OverlapEnd::Ended, "{during:?}");
            assert_eq!(anchors(&index, "c1"), bundle(&[ECDSA]), "{during:?}");
        }
    }
}

#[test]
fn only_the_anchor_of_the_certificate_that_was_seen_stays() {
    let mut index = ready(&[RSA, EXPIRED]);
    let overlap = replaced(&mut index, &[ECDSA]);
    sees(&mut index, &presents(&[RSA], &BOTH));
    assert_eq!(index.end_overlap(overlap), OverlapEnd::Extended);
    assert_eq!(anchors(&index, "c1"), bundle(&[RSA, ECDSA]));

    // The same for anchors that were replaced while no provisioner ran.
    let mut index = ready(&[ECDSA]);
    index.inherit(&key("c1"), &bundle(&[RSA, EXPIRED]));
    sees(&mut index, &presents(&[RSA], &BOTH));
    assert_eq!(index.end_overlap(Overlap::INHERITED), OverlapEnd::Extended);
    assert_eq!(anchors(&index, "c1"), bundle(&[RSA, ECDSA]));
    assert_eq!(index.end_overlap(Overlap::INHERITED), OverlapEnd::Ended);
    assert_eq!(index.end_overlap(Overlap::INHERITED), OverlapEnd::Over);
    assert_eq!(anchors(&index, "c1"), bundle(&[ECDSA]));

    // Of each profile its own.
    let other = include_str!("certificates/namesake-root.crt");
    let mut index = ready(&[ECDSA]);
    for (cluster, published) in [("c1", &[RSA, other][..]), ("c2", &[other]), ("c3", &[RSA])] {
        index.set_addon(&cluster.into(), true);
        assert!(index.inherit(&key(cluster), &bundle(published)));
        assert!(!index.inherit(&key(cluster), &bundle(&[RSA, other])), "it has inherited");
        assert_eq!(anchors(&index, cluster), bundle(&[published, &[ECDSA]].concat()));
    }
    sees(&mut index, &presents(&[RSA], &BOTH));
    assert_eq!(index.end_overlap(Overlap::INHERITED), OverlapEnd::Extended);
    for (cluster, kept) in [("c1", &[RSA, ECDSA][..]), ("c2", &[ECDSA]), ("c3", &[RSA, ECDSA])] {
        assert_eq!(anchors(&index, cluster), bundle(kept), "{cluster}");
    }
}

#[test]
fn an_old_certificate_is_reported_after_the_overlap_with_what_to_restart() {
    let (mut index, overlap) = overlapping();
    sees(&mut index, &presents(&[RSA], &BOTH));
    assert_eq!(index.server_finding(), None, "a server may be late");
    index.end_overlap(overlap);
    let finding = index.server_finding().unwrap();
    assert_eq!(finding.reason, Reason::OldServerCertificate);
    let restart = "kubectl --namespace proxy rollout restart deployment cluster-proxy-addon-user";
    assert!(finding.message.contains(restart), "{finding:?}");
    // One of two replicas was restarted.
    for _ in 0..9 {
        sees(&mut index, &presents(&[ECDSA], &BOTH));
        assert_eq!(index.server_finding().as_ref(), Some(&finding));
        assert_eq!(state(&index), ServerState::OldCertificate);
    }
    sees(&mut index, &presents(&[ECDSA], &BOTH));
    assert_eq!((index.server_finding(), state(&index)), (None, ServerState::Ok));
}

#[test]
fn a_check_that_fails_twice_is_reported_until_one_succeeds() {
    let mut index = ready(&[RSA]);
    for (sighting, text) in [
        (unreachable(), "cluster-proxy-addon-user.proxy cannot be reached: connection refused"),
        (presents(&[], &BOTH), "no published trust anchor verifies: unknown issuer"),
        (presents(&[RSA], &[]), "does not name it: expected cluster-proxy-addon-user.proxy"),
    ] {
        sees(&mut index, &sighting);
        assert_eq!(index.server_finding(), None, "{sighting:?}");
        sees(&mut index, &sighting);
        let finding = index.server_finding().unwrap();
        assert_eq!(finding.reason, Reason::ServerCheckFailed);
        assert!(finding.message.contains(text), "{finding:?}");
        sees(&mut index, &presents(&[RSA], &BOTH));
        assert_eq!(index.server_finding(), None, "{sighting:?}");
    }
}

#[test]
fn a_handshake_with_another_server_or_by_other_anchors_changes_nothing() {
    let (mut index, overlap) = overlapping();
    let before = index.server().unwrap();
    index.set_anchors(index.place(), Ok(bundle(&[EXPIRED])));
    assert!(!index.observe(&before, &presents(&[RSA], &BOTH)));
    assert_eq!(index.checked(), None);
    assert_eq!(index.end_overlap(overlap), OverlapEnd::Ended);
    index.set_configuration(Known::Absent);
    assert_eq!(index.server(), None);
    let per_cluster = AccessSource::Static("https://{cluster}.example".parse().unwrap());
    let mut index = AccessIndex::new(NAME, per_cluster, true);
    index.set_anchors(index.place(), Ok(bundle(&[RSA])));
    assert_eq!(index.server(), None, "each cluster has a server of its own");
}

#[test]
fn the_published_host_is_one_that_the_serving_certificate_names() {
    let names =
        |names: &[&str]| Some(names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>());
    let [short, svc] = BOTH;
    let whole = "cluster-proxy-addon-user.proxy.svc.cluster.local";
    for (certificate, expected) in [
        (names(&BOTH), short),
        (names(&[svc, whole]), svc),
        (names(&["*.proxy.svc"]), svc),
        (names(&["proxy.example"]), short),
        (names(&[&format!("a.{svc}"), "cluster-proxy-addon-user"]), short),
        (None, short),
    ] {
        let mut index = ready(&[RSA]);
        index.set_serving_names(index.place(), certificate.clone());
        assert_eq!(host(&index), expected, "{certificate:?}");
        assert!(!index.set_serving_names(index.place(), certificate), "nothing new");
    }
}

#[test]
fn where_the_serving_certificate_is_not_read_a_handshake_shows_the_host() {
    // As the service CA of OpenShift issues it.
    let svc = presents(&[RSA], &["cluster-proxy-addon-user.proxy.svc"]);
    let mut index = ready(&[RSA]);
    assert_eq!(host(&index), "cluster-proxy-addon-user.proxy");
    assert!(sees(&mut index, &svc), "profiles change");
    assert_eq!(host(&index), "cluster-proxy-addon-user.proxy.svc");
    assert_eq!(state(&index), ServerState::Ok);
    assert!(!sees(&mut index, &svc) && !sees(&mut index, &unreachable()), "nothing new");
    assert_eq!(host(&index), "cluster-proxy-addon-user.proxy.svc");

    let ca = "configmap/proxy/openshift-service-ca.crt/service-ca.crt".parse().unwrap();
    let source = AccessSource::ClusterProxy { require_addon: false, ca: Some(ca) };
    let mut index = AccessIndex::new(NAME, source, true);
    index.set_configuration(home());
    index.set_anchors(index.place(), Ok(bundle(&[RSA])));
    assert_eq!(host(&index), "cluster-proxy-addon-user.proxy.svc", "without a handshake");

    // A restart keeps what a profile publishes until the server has been seen.
    let server = "https://cluster-proxy-addon-user.proxy.svc:9092/c1";
    let status = json!({ "accessProviders": [{ "name": NAME, "cluster": { "server": server } }] });
    let object = json!({ "spec": { "clusterManager": { "name": NAME } }, "status": status });
    let metadata = json!({ "labels": of_cluster("c1").labels.iter().collect::<std::collections::BTreeMap<_, _>>() });
    let observed = ObservedProfile::read(&serde_json::from_value(metadata).unwrap(), &object);
    let server_of = |index: &AccessIndex| match index.offer(&key("c1"), &observed) {
        hub_core::access::Offer::Publish(entry) => entry.cluster.unwrap().server,
        other => panic!("{other:?}"),
    };
    let mut index = ready(&[RSA]);
    assert_eq!(server_of(&index), server);
    sees(&mut index, &presents(&[RSA], &BOTH));
    assert_eq!(server_of(&index), "https://cluster-proxy-addon-user.proxy:9092/c1");

    // A server without a certificate of an anchor is not trusted, and the Secret shows more than a handshake.
    let mut index = ready(&[RSA]);
    assert!(!sees(&mut index, &presents(&[], &["cluster-proxy-addon-user.proxy.svc"])));
    assert_eq!(host(&index), "cluster-proxy-addon-user.proxy");
    index.set_serving_names(index.place(), Some(vec!["cluster-proxy-addon-user.proxy".to_owned()]));
    assert!(!sees(&mut index, &svc));
    assert_eq!(
        (host(&index), state(&index)),
        ("cluster-proxy-addon-user.proxy".to_owned(), ServerState::WrongName)
    );
    index.set_configuration(Known::Absent);
    index.set_configuration(home());
    index.set_anchors(index.place(), Ok(bundle(&[RSA])));
    assert_eq!(
        host(&index),
        "cluster-proxy-addon-user.proxy",
        "nothing is known about a proxy that has moved"
    );
}

#[test]
fn the_names_of_a_serving_certificate_are_those_of_the_first_one_in_the_text() {
    let leaf = include_str!("certificates/rsa-leaf.crt");
    let of = |text: &str| trust::serving_names(text.as_bytes());
    assert_eq!(of(&format!("{leaf}{RSA}")), Some(vec!["proxy.example".to_owned()]));
    for none in [RSA, &format!("{RSA}{leaf}"), "garbage", ""] {
        assert_eq!(of(none), None, "{none}");
    }
}

#[test]
fn anchors_that_many_profiles_publish_are_parsed_once() {
    let (mut reader, mut parses) = (AnchorReader::default(), 0);
    for number in 0..1000 {
        let pem = if number % 2 == 0 { RSA } else { ECDSA };
        let data = k8s_openapi::ByteString(pem.as_bytes().to_vec());
        let entry = json!({ "name": NAME, "cluster": {
            "server": format!("https://cluster-proxy-addon-user.proxy:9092/c{number}"), "certificate-authority-data": data,
        } });
        let object = json!({ "status": { "accessProviders": [entry] } });
        let observed = ObservedProfile::read(&serde_json::from_value(json!({})).unwrap(), &object);
        _ = effort::take();
        assert_eq!(reader.published(&observed, NAME), Some(&bundle(&[pem])));
        assert_eq!(reader.published(&observed, "another"), None);
        parses += effort::take().parses;
        let server = PublishedServer::of_profile(&observed, NAME).unwrap();
        assert_eq!((server.address.port, server.current), (9092, bundle(&[pem])));
    }
    assert_eq!(parses, 2);
}
