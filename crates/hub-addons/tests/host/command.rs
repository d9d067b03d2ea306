//! The command line of `hub-addons`, and its errors.

use crate::support::command::hub_addons;
use crate::support::{Addons, Hub, rights, shown};
use local_hub::{CrdSet, Flavour, LocalHub, ocm};

#[tokio::test]
async fn what_keeps_it_from_running_is_one_clear_line() {
    let directory = std::env::temp_dir().join(format!("hub-addons-{}", std::process::id()));
    std::fs::create_dir(&directory).unwrap();
    let file = |name: &str, text: &str| {
        let path = directory.join(name);
        std::fs::write(&path, text).unwrap();
        format!("--kubeconfig={}", path.display())
    };
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = format!("--health-probe-bind-address={}", taken.local_addr().unwrap());
    let contextless = "apiVersion: v1\nkind: Config\ncurrent-context: gone\nclusters: []\ncontexts: []\nusers: []\n";
    for (arguments, text) in [
        (
            vec!["--feature-gates=ClusterProfile=false,ClusterProfileAccessProvider=false,ClusterProfileCredSyncer=false".to_owned()],
            "every feature gate is disabled",
        ),
        (
            vec![
                "--feature-gates=ClusterProfileDirectAccessProvider=true".to_owned(),
                "--access-provider-name=open-cluster-management-direct".to_owned(),
            ],
            "the names must differ",
        ),
        (vec!["--kubeconfig=/nonexistent/kubeconfig".to_owned()], "/nonexistent/kubeconfig"),
        // Whatever the log level.
        (
            vec!["--kubeconfig=/nonexistent/kubeconfig".to_owned(), "--log-level=hub_runtime=debug".to_owned()],
            "/nonexistent/kubeconfig",
        ),
        (vec![format!("--kubeconfig={}", directory.display())], "cannot use the kubeconfig"),
        (vec![file("garbage", "{ this is: [no kubeconfig")], "cannot use the kubeconfig"),
        (vec![file("empty", "")], "cannot use the kubeconfig"),
        (vec![file("contextless", contextless)], "cannot use the kubeconfig"),
        (vec![], "set --kubeconfig to use another file"),
        (vec![taken.clone()], "cannot listen on 127.0.0.1:"),
    ] {
        let given: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let mut all = vec!["run", "--metrics-bind-address=0"];
        if !given.contains(&taken.as_str()) {
            all.push("--health-probe-bind-address=0");
        }
        all.extend(&given);
        let ended = hub_addons(&all, &[]).await;
        assert_eq!(ended.code, Some(1), "{given:?}: {ended:?}");
        assert_eq!(ended.stderr.lines().count(), 1, "{given:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(text), "{given:?}: {}", ended.stderr);
    }
    std::fs::remove_dir_all(&directory).unwrap();
}

#[tokio::test]
async fn white_space_around_a_variable_is_not_part_of_its_value() {
    let variables = [
        ("HUB_ADDONS_METRICS_BIND_ADDRESS", " 0"),
        ("HUB_ADDONS_HEALTH_PROBE_BIND_ADDRESS", "0\n"),
        ("HUB_ADDONS_LEADER_ELECT", "false\n"),
        ("HUB_ADDONS_CA_OVERLAP", " 1m "),
        ("HUB_ADDONS_KUBECONFIG", "/nonexistent/kubeconfig\n"),
    ];
    let ended = hub_addons(&["run"], &variables).await;
    assert!(
        ended.stderr.contains("cannot use the kubeconfig /nonexistent/kubeconfig: "),
        "{ended:?}"
    );
}

#[tokio::test]
async fn its_version_is_printed() {
    for arguments in [&["version"][..], &["--version"], &["run", "--version"]] {
        let ended = hub_addons(arguments, &[]).await;
        assert_eq!(ended.code, Some(0));
        assert!(ended.stdout.starts_with("hub-addons"), "{ended:?}");
        assert!(ended.stdout.trim_end().ends_with(env!("CARGO_PKG_VERSION")), "{ended:?}");
    }
}

#[tokio::test]
async fn the_crds_that_it_prints_make_a_hub_that_it_works_on() {
    let builder = || LocalHub::builder().crds(CrdSet::None).without_controller_manager();
    let hubs = LocalHub::start_many(Flavour::ALL.map(|_| builder())).await.unwrap();
    for (hub, lists) in hubs.into_iter().zip(Flavour::ALL.map(Flavour::as_str)) {
        let printed = hub_addons(&["crds", "--cluster-profile-lists", lists], &[]).await;
        assert_eq!(printed.code, Some(0), "{}", printed.stderr);
        let file = hub.directory().join("crds.yaml");
        std::fs::write(&file, printed.stdout).unwrap();
        let applied = hub.kubectl(&["apply", "--filename", file.to_str().unwrap()]).await.unwrap();
        assert!(applied.status.success(), "{}", String::from_utf8_lossy(&applied.stderr));
        let waited = hub
            .kubectl(&["wait", "--for=condition=Established", "crd", "--all", "--timeout=30s"])
            .await
            .unwrap();
        assert!(waited.status.success(), "{}", String::from_utf8_lossy(&waited.stderr));

        let hub = Hub::with_rights(hub, rights::projector()).await;
        // A hub without Open Cluster Management: no controller writes the condition Bound.
        let addons = hub.projector(&["--compute-bound"]).await;
        let cluster =
            ocm::ManagedCluster::named("alone").in_set("alone").claim("id.k8s.io", "alone");
        let objects = [
            ocm::namespace("alone"),
            ocm::cluster_set("alone"),
            ocm::binding("alone", "alone"),
            cluster.into(),
        ];
        crate::support::world::create(&hub.ocm, objects).await;
        let profile = shown::profile(&hub.ocm, ("alone", "alone"), "has properties", |profile| {
            profile["status"]["properties"].is_array()
        })
        .await;
        assert_eq!(shown::condition(&profile, "Joined")["status"], "True");
        // A binding without its set is not bound.
        crate::support::world::delete(&hub.ocm, &ocm::cluster_set("alone")).await;
        shown::sees(&hub.ocm, "alone", &[]).await;
        Addons::stop(addons).await;
    }
}
