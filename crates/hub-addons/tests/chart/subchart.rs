//! The chart as one that another chart depends on.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use crate::support::chart::{NAMESPACE, RELEASE, chart, helm, helm3, run};

/// The objects that a chart renders, with these values.
async fn rendered(helm: &Path, chart: &Path, values: &[&str]) -> Result<BTreeSet<String>, String> {
    let chart = chart.to_str().unwrap();
    let fixed = ["template", RELEASE, chart, "--namespace", NAMESPACE, "--kube-version=1.36.3"];
    let values: Vec<_> = values.iter().map(|value| format!("--set={value}")).collect();
    let ended = run(
        helm,
        None,
        &fixed.into_iter().chain(values.iter().map(String::as_str)).collect::<Vec<_>>(),
    )
    .await;
    if ended.code != Some(0) {
        return Err(ended.stderr);
    }
    let objects: Vec<Value> = serde_saphyr::from_multiple(&ended.stdout).unwrap();
    Ok(objects.iter().filter(|object| !object.is_null()).map(Value::to_string).collect())
}

#[tokio::test]
async fn a_chart_switches_this_one_by_a_condition_and_hands_its_globals_to_it() {
    let parent = tempfile::tempdir().unwrap();
    let depends = "apiVersion: v2\nname: platform\nversion: 1.0.0\ndependencies:\n- name: hub-addons\n  \
                   version: '*'\n  condition: hub-addons.enabled\n";
    std::fs::write(parent.path().join("Chart.yaml"), depends).unwrap();
    std::fs::create_dir(parent.path().join("charts")).unwrap();
    std::os::unix::fs::symlink(chart(), parent.path().join("charts/hub-addons")).unwrap();
    for helm in [helm(), helm3()] {
        let off = rendered(helm, parent.path(), &["hub-addons.enabled=false"]).await;
        assert_eq!(off, Ok(BTreeSet::new()));

        // `enabled` and `tags` are the parent's alone, and a global wins where the chart has no value of its own.
        let on =
            ["hub-addons.enabled=true", "hub-addons.consumerAccess.enabled=true", "global.other=1"];
        let own = [
            "image.registry=registry.example",
            "imagePullSecrets[0].name=pull",
            "consumerAccess.enabled=true",
        ];
        let own = rendered(helm, &chart(), &own).await.unwrap();
        let registry = "global.imageRegistry=registry.example";
        let of_the_chart = [
            "global.imageRegistry=other.example",
            "global.imagePullSecrets={other}",
            "hub-addons.image.registry=registry.example",
            "hub-addons.imagePullSecrets[0].name=pull",
        ];
        let unset = ["hub-addons.enabled=null", "hub-addons.tags.platform=true"];
        for given in [
            &[registry, "global.imagePullSecrets[0].name=pull"][..],
            &[&[registry, "global.imagePullSecrets={pull}"][..], &unset].concat(),
            &[registry, "global.imagePullSecrets={pull}"],
            &of_the_chart,
        ] {
            let below = rendered(helm, parent.path(), &[&on[..], given].concat()).await.unwrap();
            assert_eq!(below, own);
        }

        let misspelt =
            ["hub-addons.enabled=true", "hub-addons.featureGates.clusterProfil=true", registry];
        let refusal = rendered(helm, parent.path(), &misspelt).await.unwrap_err();
        assert!(refusal.contains("no such gate"), "{refusal}");
    }
}
