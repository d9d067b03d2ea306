//! The command line of `hub-addons`, and its errors.

use crate::support::command::{hub_addons, succeeded};
use crate::support::{Addons, Hub, rights, shown, world};
use local_hub::{CrdSet, Flavour, LocalHub, ocm};

#[tokio::test]
async fn what_keeps_it_from_running_is_one_clear_line() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        format!("--kubeconfig={}", path.display())
    };
    let contextless = "apiVersion: v1\nkind: Config\ncurrent-context: gone\nclusters: []\ncontexts: []\nusers: []\n";
    let unusable = [
        format!("--kubeconfig={}", directory.path().display()),
        file("garbage", "{ this is: [no kubeconfig"),
        file("empty", ""),
        file("contextless", contextless),
    ];
    let missing = "--kubeconfig=/nonexistent/kubeconfig";
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = format!("--health-probe-bind-address={}", taken.local_addr().unwrap());
    let gates = "--feature-gates=ClusterProfile=false,ClusterProfileAccessProvider=false,ClusterProfileCredSyncer=false";
    let direct = "--feature-gates=ClusterProfileDirectAccessProvider=true";
    let mut cases = vec![
        (vec![gates], "every feature gate is disabled"),
        (
            vec![direct, "--access-provider-name=open-cluster-management-direct"],
            "the names must differ",
        ),
        (vec![missing], "/nonexistent/kubeconfig"),
        // Whatever the log level.
        (vec![missing, "--log-level=hub_runtime=debug"], "/nonexistent/kubeconfig"),
        (vec![], "set --kubeconfig to use another file"),
        (vec![&taken], "cannot listen on 127.0.0.1:"),
    ];
    cases.extend(unusable.iter().map(|file| (vec![&**file], "cannot use the kubeconfig")));
    for (arguments, text) in cases {
        let mut all = vec!["run", "--metrics-bind-address=0"];
        if arguments != [&*taken] {
            all.push("--health-probe-bind-address=0");
        }
        all.extend(&arguments);
        let ended = hub_addons(&all, &[]).await;
        assert_eq!(ended.code, Some(1), "{arguments:?}: {ended:?}");
        assert_eq!(ended.stderr.lines().count(), 1, "{arguments:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(text), "{arguments:?}: {}", ended.stderr);
    }
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
        let printed =
            hub_addons(&["crds", "--cluster-profile-lists", lists], &[]).await.succeeded();
        let file = hub.directory().join("crds.yaml");
        std::fs::write(&file, printed).unwrap();
        succeeded(hub.kubectl(&["apply", "--filename", file.to_str().unwrap()]).await.unwrap());
        let wait = ["wait", "--for=condition=Established", "crd", "--all", "--timeout=30s"];
        succeeded(hub.kubectl(&wait).await.unwrap());

        let hub = Hub::with_rights(hub, rights::projector()).await;
        // A hub without Open Cluster Management: no controller writes the condition Bound.
        let addons = hub.projector(&["--compute-bound"]).await;
        let cluster = ocm::ManagedCluster::named("alone").in_set("alone");
        let (set, binding) = (ocm::cluster_set("alone"), ocm::binding("alone", "alone"));
        world::create(&hub.ocm, [ocm::namespace("alone"), set.clone(), binding]).await;
        cluster.claim("id.k8s.io", "alone").create(&hub.ocm).await.unwrap();
        let profile = shown::profile(&hub.ocm, ("alone", "alone"), "has properties", |profile| {
            profile["status"]["properties"].is_array()
        })
        .await;
        assert_eq!(shown::condition(&profile, "Joined")["status"], "True");
        // A binding without its set is not bound.
        world::delete(&hub.ocm, &set).await;
        shown::sees(&hub.ocm, "alone", &[]).await;
        Addons::stop(addons).await;
    }
}
