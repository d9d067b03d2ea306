//! Our types and CRDs against upstream's own CRDs.
//!
//! `hack/upstream-crds.sh` gets those from upstream's Go modules. Where it cannot (there is no Go, and no network) the
//! tests say on stderr that they were skipped; with `CI=true` they fail.

#![cfg(test)]

mod compare;
mod samples;
mod upstream;
mod validate;

use std::fmt::Debug;

use hub_api::cluster_profile::ClusterProfile;
use hub_api::crds::{self, ListFlavour};
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
    ACCOUNTS, ADDONS, BINDINGS, CLUSTERS, PROFILES_ATOMIC, PROFILES_MAP, PROXIES, SETS, schema_of,
};

/// The kinds that we only read.
const READ: [&str; 6] = [CLUSTERS, SETS, BINDINGS, ADDONS, PROXIES, ACCOUNTS];

const PROFILES: [(&str, ListFlavour); 2] =
    [(PROFILES_MAP, ListFlavour::Map), (PROFILES_ATOMIC, ListFlavour::Atomic)];

fn ours(name: &str) -> Value {
    let crd = crds::all().into_iter().find(|crd| crd.metadata.name.as_deref() == Some(name));
    serde_json::to_value(crd.unwrap_or_else(|| panic!("no CRD {name}"))).unwrap()
}

fn assert_same(differences: &[String], what: &str) {
    assert!(differences.is_empty(), "{what} is not upstream's:\n  {}", differences.join("\n  "));
}

#[test]
fn the_cluster_profile_crd_is_upstreams_in_both_flavours() {
    for (file, flavour) in PROFILES {
        let Some(upstream) = upstream::crd(file) else { return };
        let ours = serde_json::to_value(crds::cluster_profile(flavour)).unwrap();
        assert_eq!(ours["metadata"]["name"], upstream["metadata"]["name"]);
        assert_same(&compare::equal(&ours["spec"], &upstream["spec"]), file);
    }
}

#[test]
fn the_crds_of_the_kinds_we_read_ask_for_no_more_than_upstreams_and_keep_the_rest() {
    for file in READ {
        let Some(mut upstream) = upstream::crd(file) else { return };
        let mut ours = ours(upstream["metadata"]["name"].as_str().unwrap());
        let mut differences = compare::subset(schema_of(&ours), schema_of(&upstream));
        // The names, the scope and what else surrounds the schema is upstream's to the letter.
        for crd in [&mut ours, &mut upstream] {
            crd["spec"]["versions"][0].as_object_mut().unwrap().remove("schema");
            // False is the default, and what v1 of the CRD API insists on.
            crd["spec"].as_object_mut().unwrap().remove("preserveUnknownFields");
        }
        differences.extend(compare::equal(&ours["spec"], &upstream["spec"]));
        assert_same(&differences, file);
    }
}

/// Every sample of an object that the upstream schema allows.
fn samples_of<K: CustomResourceExt>(file: &str) -> Vec<Value> {
    let Some(crd) = upstream::crd(file) else { return Vec::new() };
    let resource = K::api_resource();
    let mut samples = samples::of(schema_of(&crd));
    for sample in &mut samples {
        sample["apiVersion"] = json!(resource.api_version);
        sample["kind"] = json!(resource.kind);
        sample["metadata"] = json!({ "name": "a" });
    }
    samples
}

fn decode<K: DeserializeOwned>(sample: &Value) -> K {
    // From text, as it comes over the wire.
    serde_json::from_str(&sample.to_string()).unwrap_or_else(|error| panic!("{error}, decoding\n{sample:#}"))
}

fn assert_decodes<K>(file: &str)
where
    K: CustomResourceExt + Resource<DynamicType = ()> + DeserializeOwned + Serialize + Debug + PartialEq,
{
    for sample in samples_of::<K>(file) {
        let object: K = decode(&sample);
        let written = serde_json::to_value(&object).unwrap();
        assert_eq!(decode::<K>(&written), object, "lost on the way out and in again:\n{sample:#}");
    }
}

#[test]
fn every_object_that_upstream_allows_decodes() {
    assert_decodes::<ManagedCluster>(CLUSTERS);
    assert_decodes::<ManagedClusterSet>(SETS);
    assert_decodes::<ManagedClusterSetBinding>(BINDINGS);
    assert_decodes::<ManagedClusterAddOn>(ADDONS);
    assert_decodes::<ManagedProxyConfiguration>(PROXIES);
    assert_decodes::<ManagedServiceAccount>(ACCOUNTS);
    for (file, _) in PROFILES {
        assert_decodes::<ClusterProfile>(file);
    }
}

#[test]
fn a_profile_that_we_write_passes_upstreams_schema() {
    for (file, _) in PROFILES {
        let Some(crd) = upstream::crd(file) else { return };
        for sample in samples_of::<ClusterProfile>(file) {
            let written = serde_json::to_value(decode::<ClusterProfile>(&sample)).unwrap();
            let faults = validate::faults(&written, schema_of(&crd));
            assert!(faults.is_empty(), "{file}:\n  {}\n{written:#}", faults.join("\n  "));
        }
    }
}

/// Entries of other writers go back into an atomic list as they came, so no field may fall by the way.
#[test]
fn a_profile_that_we_read_and_write_back_keeps_every_field_of_upstreams_schema() {
    for (file, _) in PROFILES {
        let Some(crd) = upstream::crd(file) else { return };
        let mut sample = samples::complete(schema_of(&crd));
        sample["apiVersion"] = json!("multicluster.x-k8s.io/v1alpha1");
        sample["kind"] = json!("ClusterProfile");
        let written = serde_json::to_value(decode::<ClusterProfile>(&sample)).unwrap();
        assert_same(&compare::equal(&written, &sample), "the written profile");
    }
}

/// The samples are only worth something when they are many and the schema's checks hold for them.
#[test]
fn the_samples_are_valid() {
    for file in READ.into_iter().chain([PROFILES_MAP, PROFILES_ATOMIC]) {
        let Some(crd) = upstream::crd(file) else { return };
        let samples = samples::of(schema_of(&crd));
        assert!(samples.len() > 10, "{file}: {} samples", samples.len());
        for sample in samples.iter().filter(|sample| !samples::has_unknown_fields(sample)) {
            let faults = validate::faults_as_sent(sample, schema_of(&crd));
            assert!(faults.is_empty(), "{file}:\n  {}\n{sample:#}", faults.join("\n  "));
        }
    }
}
