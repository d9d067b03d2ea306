//! Compares our types and CRDs with upstream's CRDs.
//!
//! `hack/upstream-crds.sh` gets those from upstream's Go modules.

#![cfg(test)]

mod compare;
mod samples;
mod upstream;

use std::fmt::Debug;

use hub_api::cluster_access::ClusterAccess;
use hub_api::cluster_profile::{AccessProvider, ProfileVersion, StoredProfile};
use hub_api::crds::{self, Flavour};
use hub_api::managed_cluster::ManagedCluster;
use hub_api::managed_cluster_addon::ManagedClusterAddOn;
use hub_api::managed_cluster_set::ManagedClusterSet;
use hub_api::managed_cluster_set_binding::ManagedClusterSetBinding;
use hub_api::managed_proxy_configuration::ManagedProxyConfiguration;
use hub_api::managed_service_account::ManagedServiceAccount;
use kube::{CustomResourceExt, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::upstream::{
    ACCOUNTS, ADDONS, BINDINGS, CLUSTERS, PROFILES_ATOMIC, PROFILES_MAP, PROFILES_V1ALPHA2,
    PROXIES, SETS, WORKS, schema_of,
};

/// Open Cluster Management's kinds.
const READ: [&str; 7] = [CLUSTERS, SETS, BINDINGS, ADDONS, PROXIES, ACCOUNTS, WORKS];

const PROFILES: [(&str, Flavour); 3] = [
    (PROFILES_MAP, Flavour::Map),
    (PROFILES_ATOMIC, Flavour::Atomic),
    (PROFILES_V1ALPHA2, Flavour::V1alpha2),
];

/// Every version of ClusterProfile in every file.
const SERVED: [(&str, ProfileVersion); 4] = [
    (PROFILES_MAP, ProfileVersion::V1alpha1),
    (PROFILES_ATOMIC, ProfileVersion::V1alpha1),
    (PROFILES_V1ALPHA2, ProfileVersion::V1alpha1),
    (PROFILES_V1ALPHA2, ProfileVersion::V1alpha2),
];

fn ours(name: &str) -> Value {
    let mut crds: Vec<Value> = serde_saphyr::from_multiple(crds::OCM).unwrap();
    crds.retain(|crd| crd["metadata"]["name"] == name);
    crds.pop().unwrap_or_else(|| panic!("no CRD {name}"))
}

/// Our CRD of ClusterProfile without the printer columns of v1alpha1, which upstream's lacks.
fn profiles(flavour: Flavour) -> Value {
    let mut crd: Value = serde_saphyr::from_str(crds::cluster_profile(flavour)).unwrap();
    crd["spec"]["versions"][0].as_object_mut().unwrap().remove("additionalPrinterColumns").unwrap();
    crd
}

fn assert_same(differences: &[String], what: &str) {
    assert!(differences.is_empty(), "{what} is not upstream's:\n  {}", differences.join("\n  "));
}

#[test]
fn the_cluster_profile_crd_is_upstreams_in_every_flavour() {
    for (file, flavour) in PROFILES {
        let upstream = upstream::crd_with_every_version(file);
        let ours = profiles(flavour);
        assert_eq!(ours["metadata"]["name"], upstream["metadata"]["name"]);
        assert_same(&compare::equal(&ours["spec"], &upstream["spec"]), file);
    }
}

/// [`compare::digest`] of `spec` in the CRD that `make manifests` renders on cluster-inventory-api's main branch for v0.2.0.
const V1ALPHA2_DIGEST: &str = "87aaf1dd04554c06f14bd0becea96086dc7f95a7adf43e17356fcde10f7325e2";

/// No release has that CRD, so the comparison of the two files is kept as a digest. Where the file is at hand, the test
/// above names the differences.
#[test]
fn the_crd_that_serves_v1alpha2_has_the_digest_of_upstreams() {
    let ours = profiles(Flavour::V1alpha2);
    assert_eq!(compare::digest(&ours["spec"]), V1ALPHA2_DIGEST, "ours");
    let upstream = upstream::crd_with_every_version(PROFILES_V1ALPHA2);
    assert_eq!(compare::digest(&upstream["spec"]), V1ALPHA2_DIGEST, "upstream's");
}

#[test]
fn the_crds_of_the_kinds_we_read_ask_for_no_more_than_upstreams_and_keep_the_rest() {
    for file in READ {
        let mut upstream = upstream::crd(file);
        let mut ours = ours(upstream["metadata"]["name"].as_str().unwrap());
        let mut differences = compare::subset(schema_of(&ours), schema_of(&upstream));
        // The names, the scope and everything else outside the schema must be identical.
        for crd in [&mut ours, &mut upstream] {
            crd["spec"]["versions"][0].as_object_mut().unwrap().remove("schema");
            // False is the default, and the only value that v1 of the CRD API allows.
            crd["spec"].as_object_mut().unwrap().remove("preserveUnknownFields");
        }
        differences.extend(compare::equal(&ours["spec"], &upstream["spec"]));
        assert_same(&differences, file);
    }
}

/// Every sample of an object that the schema of an upstream CRD's only version allows.
fn samples_of<K: CustomResourceExt>(crd: &Value) -> Vec<Value> {
    let resource = K::api_resource();
    let version = crd["spec"]["versions"][0]["name"].as_str().unwrap();
    let mut samples = samples::of(schema_of(crd));
    for sample in &mut samples {
        sample["apiVersion"] = json!(format!("{}/{version}", resource.group));
        sample["kind"] = json!(resource.kind);
        sample["metadata"] = json!({ "name": "a" });
    }
    samples
}

fn decode<K: DeserializeOwned>(sample: &Value) -> K {
    // From text, as it comes over the wire.
    serde_json::from_str(&sample.to_string())
        .unwrap_or_else(|error| panic!("{error}, decoding\n{sample:#}"))
}

fn assert_decodes<K>(crd: &Value)
where
    K: CustomResourceExt
        + Resource<DynamicType = ()>
        + DeserializeOwned
        + Serialize
        + Debug
        + PartialEq,
{
    let samples = samples_of::<K>(crd);
    assert!(samples.len() > 10, "{} samples", samples.len());
    for sample in samples {
        let object: K = decode(&sample);
        let written = serde_json::to_value(&object).unwrap();
        assert_eq!(decode::<K>(&written), object, "lost in a round trip:\n{sample:#}");
    }
}

#[test]
fn every_object_that_upstream_allows_decodes() {
    assert_decodes::<ManagedCluster>(&upstream::crd(CLUSTERS));
    assert_decodes::<ManagedClusterSet>(&upstream::crd(SETS));
    assert_decodes::<ManagedClusterSetBinding>(&upstream::crd(BINDINGS));
    assert_decodes::<ManagedClusterAddOn>(&upstream::crd(ADDONS));
    assert_decodes::<ManagedProxyConfiguration>(&upstream::crd(PROXIES));
    assert_decodes::<ManagedServiceAccount>(&upstream::crd(ACCOUNTS));
    for (file, version) in SERVED {
        for sample in samples::of(schema_of(&upstream::crd_in(file, version))) {
            for entry in sample["status"]["accessProviders"].as_array().into_iter().flatten() {
                let read: AccessProvider = decode(entry);
                let written = serde_json::to_value(&read).unwrap();
                assert_eq!(decode::<AccessProvider>(&written), read, "lost:\n{entry:#}");
            }
            let mut profile = sample;
            profile["metadata"] = json!({ "name": "a" });
            decode::<StoredProfile>(&profile);
        }
    }
}

/// A consumer gets the stanza of a kubeconfig file from an entry, so no field may be lost.
#[test]
fn an_access_provider_that_is_read_has_every_field_of_upstreams_schema() {
    for (file, version) in SERVED {
        let sample = samples::complete(schema_of(&upstream::crd_in(file, version)));
        let entry = &sample["status"]["accessProviders"][0];
        let written = serde_json::to_value(decode::<AccessProvider>(entry)).unwrap();
        assert_same(&compare::equal(&written, entry), "the written access provider");
    }
}

#[test]
fn a_cluster_access_that_is_read_has_every_field_of_its_schema() {
    let crd: Value = serde_saphyr::from_str(crds::CLUSTER_ACCESS).unwrap();
    let mut sample = samples::complete(schema_of(&crd));
    sample["apiVersion"] = json!("access.open-cluster-management.io/v1alpha1");
    sample["kind"] = json!("ClusterAccess");
    let written = serde_json::to_value(decode::<ClusterAccess>(&sample)).unwrap();
    assert_same(&compare::equal(&written, &sample), "the written ClusterAccess");
}
