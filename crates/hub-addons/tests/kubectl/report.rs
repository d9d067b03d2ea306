//! `report` in a browser.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use local_hub::ocm;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::process::Command;

use super::plugin::{kubectl, run};
use crate::support::{Hub, world};

/// Whether Chromium is installed; with `CI=true` it is installed now.
async fn has_browser() -> bool {
    let have = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../hack/have.sh");
    let is_installed =
        Command::new(have).args(["chromium", "chromium"]).status().await.unwrap().success();
    if !is_installed {
        // Not with `eprintln!`: the test harness captures the output of passing tests.
        let _ =
            writeln!(io::stderr(), "SKIPPED, the report in a browser: Chromium is not installed");
    }
    is_installed
}

/// Runs headless Chromium on a file, and returns what it prints.
async fn browser(page: &Path, flag: &str) -> String {
    let profile = tempfile::tempdir().unwrap();
    let output = Command::new("chromium")
        .args([
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-background-networking",
        ])
        .args(["--disable-component-update", "--no-first-run", "--window-size=1000,620", flag])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(format!("file://{}", page.display()))
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The report of a hub, as a file and its content.
async fn report(hub: &Hub) -> (PathBuf, String) {
    let kubectl = kubectl(hub, &hub.kubeconfig_for("admin").unwrap());
    let report = run(&kubectl, &["report", "--output", "html"]).await.succeeded();
    let page = hub.directory().join("report.html");
    std::fs::write(&page, &report).unwrap();
    (page, report)
}

/// Clicks on the first cell with a problem, and puts into the title whether its reason was shown before and after.
const CLICK: &str = "<script>
    const cell = document.querySelector('details.problem'), reason = cell.querySelector('li')
    const before = reason.checkVisibility()
    cell.querySelector('summary').click()
    document.title = `${before}, then ${reason.checkVisibility()}`
</script></body>";

/// With `RECORD=1`, the picture in the documents is written again.
#[tokio::test]
async fn a_report_shows_every_grant_and_expiry_requests_nothing_and_has_no_markup_of_others() {
    if !has_browser().await {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let hub = Hub::plain().await;
    let objects = [
        ocm::namespace("team"),
        ocm::namespace("lab"),
        ocm::namespace("berlin"),
        ocm::cluster_set("prod"),
        ocm::cluster_set("spare"),
        ocm::bound("team", "prod"),
        ocm::bound("lab", "prod"),
        ocm::ManagedCluster::named("berlin").in_set("prod").into(),
        ocm::ManagedCluster::named("oslo").in_set("prod").into(),
        ocm::ManagedCluster::named("paris").into(),
    ];
    world::create(&hub.ocm, objects).await;
    let expired = "2026-01-02T03:04:05Z";
    let token = ocm::ServiceAccountToken::of("oslo", "app").expires(expired.parse().unwrap());
    token.create(&hub.ocm).await.unwrap();
    let key = rcgen::KeyPair::generate().unwrap();
    let mut authority = rcgen::CertificateParams::default();
    authority.not_after = rcgen::date_time_ymd(2191, 6, 7);
    let authority = STANDARD.encode(authority.self_signed(&key).unwrap().pem());
    let cluster = json!({ "server": "https://hub/oslo", "certificate-authority-data": authority });
    let provider = json!([{ "name": "open-cluster-management", "cluster": cluster }]);
    let ours = world::profile_of("open-cluster-management", "team", "oslo");
    ours.status("accessProviders", provider).create(&hub.ocm).await.unwrap();
    // Text of users who may write profiles, or Leases.
    let markup = format!("<img src=http://{address}/x><script>document.title='x'</script>");
    let theirs = world::profile_of("other", "lab", "berlin")
        .field("spec", json!({ "displayName": "berlin", "clusterManager": { "name": markup } }));
    theirs.create(&hub.ocm).await.unwrap();
    let spec = json!({ "holderIdentity": markup, "leaseDurationSeconds": 1, "renewTime": "2026-01-01T00:00:00.000000Z" });
    let lease = world::object("Lease", Some("team"), "hub-addons-profile-projector");
    lease.field("spec", spec).create(&hub.ocm).await.unwrap();

    let (page, report) = report(&hub).await;
    let shown = browser(&page, "--dump-dom").await;
    for expected in [
        "<title>Who reaches which cluster</title>",
        "<b>team/berlin: problem</b>",
        "<b>team/oslo: ",
        "<b>lab/oslo: problem</b>",
        "Clusters: paris",
        "ManagedClusterSets: spare",
        "&lt;img src=http://127.0.0.1",
        &format!("<td>oslo/app</td><td class=\"problem\">{expired}</td>"),
        "<td class=\"ok\">2191-06-07T00:00:00Z</td><td>in 1 ClusterProfile</td>",
    ] {
        assert!(shown.contains(expected), "{expected} is not in {shown}");
    }
    assert!(!shown.contains("<img") && !shown.contains("<script"), "{shown}");
    let connection = futures::poll!(std::pin::pin!(listener.accept()));
    assert!(connection.is_pending(), "the page has requested something");
    // The policy of the page allows no script.
    let clicked = report.replace("default-src 'none'; ", "").replace("</body>", CLICK);
    std::fs::write(&page, clicked).unwrap();
    let shown = browser(&page, "--dump-dom").await;
    assert!(shown.contains("<title>false, then true</title>"), "{shown}");
    if std::env::var_os("RECORD").is_some() {
        let escaped = markup.replace('<', "&lt;").replace('>', "&gt;");
        let opened = report.replace(&escaped, "somebody");
        let opened = opened.replacen(
            r#"class="problem" name="cell""#,
            r#"class="problem" name="cell" open"#,
            1,
        );
        std::fs::write(&page, opened).unwrap();
        let picture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/report.png");
        browser(&page, &format!("--screenshot={}", picture.display())).await;
    }
}
