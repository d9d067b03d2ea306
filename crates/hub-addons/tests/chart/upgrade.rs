//! The upgrade from the last packaged chart to this one: permissions and objects stay.
//!
//! `released` holds that package; a release replaces it (`hack/release.sh`).

use std::path::{Path, PathBuf};

use futures::future::join_all;
use local_hub::ocm;
use serde_json::{Value, json};

use crate::support::chart::{
    NAMESPACE, RELEASE, chart, helm, helm3, run, start_all, start_with, upgrade_arguments,
};
use crate::support::command::Ended;
use crate::support::credentials::{copied, copy, profile, token};
use crate::support::shown::sees;
use crate::support::world::{self, get};
use crate::support::{Hub, rights, stop_all};

const HOME: &str = "open-cluster-management-addon";

/// The last chart that was packaged.
fn released() -> PathBuf {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/chart/released");
    let packages: Vec<PathBuf> =
        std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    let [package] = &packages[..] else { panic!("one package, and not {packages:?}") };
    package.clone()
}

async fn helm_does(program: &Path, hub: &Hub, chart: &Path, more: &[&str]) -> Ended {
    let arguments = upgrade_arguments(chart).into_iter();
    let arguments: Vec<_> = arguments.chain(more.iter().map(ToString::to_string)).collect();
    run(program, Some(&hub.hub), &arguments).await
}

#[tokio::test]
async fn an_upgrade_from_the_last_package_takes_nothing_away() {
    for program in [helm(), helm3()] {
        let hub = Hub::plain().await;
        world::ensure_namespace(&hub.ocm, HOME).await;
        world::grant(&hub.ocm, "team", &["c1"]).await;
        let app = token("c1", "app");
        app.create(&hub.ocm).await.unwrap();
        let set = ["--set=propagateLabels={region}", "--set=image.tag=0.0.9-dev.g1"];
        helm_does(program, &hub, &released(), &set).await.succeeded();
        // That package does not name the Leases of these programs, and has other flags for the roles of the syncer.
        let subject = format!("--credential-rights-subject={NAMESPACE}/{RELEASE}-credentials");
        let mut running = Vec::new();
        for component in ["profiles", "credentials"] {
            let account = format!("{RELEASE}-{component}");
            hub.grant_service_account(NAMESPACE, &account, rights::host()).await.unwrap();
            running.push(start_with(&hub, component, &[&subject]).await);
        }
        sees(&hub.ocm, "team", &["c1"]).await;
        copied(&hub.ocm, "team", &app).await;
        stop_all(running).await;

        let tokens = world::object("ClusterRole", None, "hub-addons-credentials-tokens");
        let rules = async || get(&hub.ocm, &tokens).await.unwrap()["rules"].clone();
        let versions = async || {
            let objects = [profile("team", "c1"), copy("team", &app)];
            let shown = join_all(objects.iter().map(|object| get(&hub.ocm, object))).await;
            let version = |it: Option<Value>| it.unwrap()["metadata"]["resourceVersion"].clone();
            shown.into_iter().map(version).collect::<Vec<_>>()
        };
        let before = (rules().await, versions().await);
        assert_eq!(before.0[0]["resourceNames"], json!(["app"]));
        // The tag is kept, with a warning, until the upgrade sets it.
        let new = format!("{}-dev.g2", env!("CARGO_PKG_VERSION"));
        for (tag, more) in [("0.0.9-dev.g1", None), (&*new, Some(format!("--set=image.tag={new}")))]
        {
            let flags: Vec<_> =
                ["--reset-then-reuse-values"].into_iter().chain(more.as_deref()).collect();
            let notes = helm_does(program, &hub, &chart(), &flags).await.succeeded();
            let image = format!("Image: registry.example.com/hub-addons:{tag}\n");
            assert!(notes.contains(&image), "{notes}");
            assert_eq!(notes.contains("WARNING: image.tag="), more.is_none(), "{notes}");
        }
        assert_eq!((rules().await, versions().await), before);

        // It keeps its settings, and writes nothing.
        let running = start_all(&hub, &["profiles", "credentials"]).await;
        let other = token("c1", "other");
        other.create(&hub.ocm).await.unwrap();
        copied(&hub.ocm, "team", &other).await;
        assert_eq!(versions().await, before.1);
        stop_all(running).await;
        let values = ["get", "values", RELEASE, "--namespace", NAMESPACE, "--output=json"];
        let values = run(program, Some(&hub.hub), &values).await.succeeded();
        let values: Value = serde_json::from_str(&values).unwrap();
        let image = json!({ "registry": "registry.example.com", "tag": new });
        assert_eq!(values, json!({ "image": image, "propagateLabels": ["region"] }));
    }
}

#[tokio::test]
async fn values_that_are_reused_without_new_ones_are_refused_with_the_flag_to_use() {
    let hub = Hub::plain().await;
    world::create(&hub.ocm, [ocm::namespace(HOME)]).await;
    for (program, flags) in [(helm(), &["--reset-values"][..]), (helm3(), &[])] {
        helm_does(program, &hub, &released(), flags).await.succeeded();
        let ended = helm_does(program, &hub, &chart(), &["--reuse-values"]).await;
        assert_ne!(ended.code, Some(0), "{}", ended.stdout);
        assert!(ended.stderr.contains("--reset-then-reuse-values in place of"), "{}", ended.stderr);
    }
}
