//! The upgrade from the last packaged chart to this one: permissions and objects stay.
//!
//! `released` holds that package; a release replaces it (`hack/release.sh`).

use std::path::PathBuf;

use futures::future::join_all;
use local_hub::ocm::{self, ManagedCluster};
use serde_json::{Value, json};

use crate::support::chart::{
    NAMESPACE, REGISTRY, RELEASE, chart, helm, helm3, run, start_all, start_with,
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

async fn helm_does(
    program: &std::path::Path,
    hub: &Hub,
    chart: &std::path::Path,
    arguments: &[&str],
) -> Ended {
    let chart = chart.display().to_string();
    let namespace = format!("--namespace={NAMESPACE}");
    let fixed =
        ["upgrade", RELEASE, &chart, "--install", "--create-namespace", &namespace, REGISTRY];
    run(program, Some(&hub.hub), &[&fixed, arguments].concat()).await
}

#[tokio::test]
async fn an_upgrade_from_the_last_package_takes_nothing_away() {
    for program in [helm(), helm3()] {
        let hub = Hub::plain().await;
        let objects = [ocm::namespace(HOME), ocm::namespace("team"), ocm::cluster_set("s")];
        world::create(&hub.ocm, objects).await;
        world::create(&hub.ocm, [ocm::bound("team", "s")]).await;
        ManagedCluster::named("c1").in_set("s").create(&hub.ocm).await.unwrap();
        let app = token("c1", "app");
        app.create(&hub.ocm).await.unwrap();
        let set = ["--set=propagateLabels={region}", "--set=image.tag=0.0.9-dev.g1"];
        let ended = helm_does(program, &hub, &released(), &set).await;
        assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
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
            let ended = helm_does(program, &hub, &chart(), &flags).await;
            assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
            let notes = ended.stdout;
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
        let values = run(program, Some(&hub.hub), &values).await.stdout;
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
        let ended = helm_does(program, &hub, &released(), flags).await;
        assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
        let ended = helm_does(program, &hub, &chart(), &["--reuse-values"]).await;
        assert_ne!(ended.code, Some(0), "{}", ended.stdout);
        assert!(ended.stderr.contains("--reset-then-reuse-values in place of"), "{}", ended.stderr);
    }
}
