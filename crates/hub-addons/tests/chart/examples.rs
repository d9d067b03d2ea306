//! `deploy/examples`: the programs accept them, their names match, and on a real hub they produce the copies that an
//! application's plugin requests.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use crate::guides::{called, patch_in};
use crate::support::chart::{Attempt, helm, install_arguments, judged, repository, run, start_all};
use crate::support::credentials::{copied, name_of};
use crate::support::examples::{CLUSTERS, directory, documents};
use crate::support::kueue::install_kueue;
use crate::support::shown::sees;
use crate::support::{Hub, SOON, stop_all, world};
use cp_creds::cli::Source;
use hub_core::access::DEFAULT_PROVIDER;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::ListParams;
use local_hub::ocm::ServiceAccountToken;
use local_hub::{eventually, ocm};
use serde_json::Value;

/// The examples, each with the namespace of its application and the account that it uses.
const EXAMPLES: [(&str, &str, &str); 2] =
    [("multikueue", "kueue-system", "multikueue"), ("argocd", "argocd", "argocd")];

/// The names of an example's files.
fn files(example: &str) -> BTreeSet<String> {
    let entries = fs::read_dir(directory(example)).unwrap().map(Result::unwrap);
    let files = entries.filter(|entry| entry.file_type().unwrap().is_file());
    files.map(|entry| entry.file_name().into_string().unwrap()).collect()
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap()
}

#[test]
fn the_plugin_is_called_as_it_takes_it_and_from_where_it_is() {
    let configuration = &documents("multikueue", "configuration.yaml")[0];
    let providers = documents("argocd", "providers.yaml").remove(0);
    let providers: Value =
        serde_json::from_str(providers["data"]["providers.json"].as_str().unwrap()).unwrap();
    let lists = [
        &configuration["multiKueue"]["clusterProfile"]["accessProviders"],
        &providers["providers"],
    ];
    for ((example, namespace, account), list) in EXAMPLES.into_iter().zip(lists) {
        let [provider] = &list.as_array().unwrap()[..] else { panic!("{list}") };
        assert_eq!(provider["name"], DEFAULT_PROVIDER);
        let source = called(&provider["execConfig"], None);
        let Source::Synced { account: named, namespace: set } = source else { panic!("{list}") };
        assert_eq!(named, account);
        assert!(set.is_none_or(|it| it == namespace));
        let patches = files(example).into_iter().filter(|file| file.starts_with("plugin"));
        let patches: Vec<_> = patches.flat_map(|file| documents(example, &file)).collect();
        assert!(!patches.is_empty());
        patches.iter().for_each(patch_in);
    }
}

/// A client that passes no cluster, and so needs `--cluster-name`, passes no server either.
#[test]
fn every_call_of_the_plugin_in_a_document_binds_the_token_to_its_server() {
    let mut files =
        vec![repository().join("README.md"), repository().join("crates/cp-creds/src/help.txt")];
    for directory in ["docs", "deploy/examples/argocd", "deploy/examples/multikueue"] {
        let entries = fs::read_dir(repository().join(directory)).unwrap();
        let is_text =
            |path: &PathBuf| path.is_file() && path.extension().is_none_or(|it| it != "png");
        files.extend(entries.map(|entry| entry.unwrap().path()).filter(is_text));
    }
    let mut calls = 0;
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let (_, text) = text
            .split_once("MultiKueue (")
            .filter(|_| file.ends_with("help.txt"))
            .unwrap_or(("", &text));
        for (at, _) in text.match_indices("--managed-serviceaccount=") {
            let call = text[at..].chars().take(260).collect::<String>();
            calls += 1;
            let is_bound =
                ["--server=https://", "--cluster-name="].iter().any(|flag| call.contains(flag));
            assert!(is_bound, "{}: {call}", file.display());
        }
    }
    assert!(calls >= 9, "{calls}");
}

#[test]
fn the_cluster_profile_controller_reads_the_file_of_providers() {
    let providers = &documents("argocd", "providers.yaml")[0];
    let controller = &documents("argocd", "controller-values.yaml")[0]["controller"];
    let (volume, mount) = (&controller["extraVolumes"][0], &controller["extraVolumeMounts"][0]);
    assert_eq!(volume["configMap"]["name"], name(providers));
    assert_eq!(volume["name"], mount["name"]);
    let (file, _) = providers["data"].as_object().unwrap().iter().next().unwrap();
    let path = format!("{}/{file}", mount["mountPath"].as_str().unwrap());
    assert_eq!(controller["clusterProfileProvidersFile"], path.as_str());
}

#[tokio::test]
async fn on_a_hub_the_examples_lead_to_the_copies_that_applications_may_read() {
    let hub = Hub::plain().await;
    install_kueue(&hub).await;
    for (_, namespace, _) in EXAMPLES {
        let restricted =
            ocm::namespace(namespace).label("pod-security.kubernetes.io/enforce", "restricted");
        // No controller creates it here, and Pods need it.
        let account = world::object("ServiceAccount", Some(namespace), "default");
        world::create(&hub.ocm, [restricted, account]).await;
    }
    for cluster in CLUSTERS {
        let managed =
            EXAMPLES.iter().fold(ocm::ManagedCluster::named(cluster), |managed, (example, ..)| {
                managed.label(example, "true")
            });
        managed.create(&hub.ocm).await.unwrap();
        world::create(&hub.ocm, [ocm::namespace(cluster)]).await;
    }
    let kubectl = hub.kubectl_with(&hub.kubeconfig_for("admin").unwrap()).unwrap();
    for (example, namespace, account) in EXAMPLES {
        let values = directory(example).join("values.yaml").display().to_string();
        // No controller sets the condition Bound here.
        let more = ["--values", &values, "--set=computeBound=true"].map(str::to_owned);
        let arguments = [install_arguments(&[]), more.into()].concat();
        run(helm(), Some(&hub.hub), &arguments).await.succeeded();
        for file in ["grant.yaml", "access.yaml", "cluster-role.yaml"] {
            // Kueue has no AdmissionChecks here.
            let objects =
                documents(example, file).into_iter().filter(|it| it["kind"] != "AdmissionCheck");
            for (index, object) in objects.enumerate() {
                let path = hub.directory().join(format!("{example}-{index}-{file}"));
                fs::write(&path, object.to_string()).unwrap();
                let arguments = ["apply", "--server-side", "--validate=strict", "--filename"];
                let arguments = [&arguments[..], &[path.to_str().unwrap()]].concat();
                eventually(&format!("{} is applied", path.display()), SOON, async || {
                    let output = kubectl.run(&arguments).await.unwrap();
                    if output.status.success() {
                        Ok(())
                    } else {
                        Err(String::from_utf8_lossy(&output.stderr).into_owned())
                    }
                })
                .await;
            }
        }
        for file in files(example).into_iter().filter(|file| file.starts_with("plugin")) {
            let mut pod = documents(example, &file)[0]["spec"]["template"]["spec"].take();
            pod["containers"] = pod["initContainers"].clone();
            pod["containers"][0]["name"] = "application".into();
            let pod = world::object("Pod", Some(namespace), "patched").field("spec", pod);
            judged(&hub.ocm, vec![(Attempt::Create(pod), "")]).await;
        }
        let running = start_all(&hub, &["profiles", "credentials", "consumers"]).await;
        sees(&hub.ocm, namespace, &CLUSTERS).await;
        let tokens = CLUSTERS.map(|cluster| ServiceAccountToken::of(cluster, account));
        for token in &tokens {
            let report =
                async || token.report(&hub.ocm).await.map_err(|error| format!("{error:?}"));
            eventually("the agent reports the token of the account", SOON, report).await;
            copied(&hub.ocm, namespace, token).await;
        }
        let access = &documents(example, "access.yaml")[0]["spec"];
        for account in access["serviceAccountNames"].as_array().unwrap() {
            let user = format!("system:serviceaccount:{namespace}:{}", account.as_str().unwrap());
            let secrets: Api<Secret> =
                Api::namespaced(hub.client_like(&user, &[]).await.unwrap(), namespace);
            for token in &tokens {
                let copy = name_of(token);
                eventually(&format!("{user} reads {copy}"), SOON, async || {
                    secrets.get(&copy).await.map(drop).map_err(|error| error.to_string())
                })
                .await;
            }
            assert!(
                secrets.list(&ListParams::default()).await.is_err(),
                "{user} may read only those"
            );
        }
        stop_all(running).await;
    }
}
