//! The chart's monitoring: alerts that fire exactly when they should, and panels, over series that the program exposes.

mod promql;
mod promtool;
mod rendered;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use crate::support::credentials::{copied, token};
use crate::support::{Addons, Hub, SOON, chart, rights, world};
use hub_runtime::observe::metrics::Metrics;
use local_hub::eventually;
use promql::{Expression, Series};
use promtool::promtool;
use rendered::{Alert, alerts, alerts_of};
use serde_json::{Value, json};
use user_server::UserServerMetrics;

const ALERTS: &str = "monitoring.prometheusRule.enabled=true";
/// Every gate is on.
const ALL: &[&str] = &[ALERTS, "featureGates.clusterProfileDirectAccessProvider=true"];
/// The same, consumer access, and the user server.
const WITH_CONSUMER: &[&str] = &[
    ALERTS,
    "featureGates.clusterProfileDirectAccessProvider=true",
    "consumerAccess.enabled=true",
    "userServer.enabled=true",
];
/// What the metrics of the user server alone begin with.
const OF_USER_SERVER: &str = "hub_addons_user_server_";
/// Labels that scraping gives a series.
const GIVEN: [&str; 3] = ["namespace", "job", "pod"];

fn rules(alerts: &[Value]) -> String {
    json!({ "groups": alerts }).to_string()
}

/// The jobs in whose series an alert looks.
fn looks(alert: &Alert) -> Vec<String> {
    let selectors = Expression::parse(alert.expression()).selectors;
    selectors.iter().flat_map(|it| it.values_of("job")).cloned().collect()
}

/// Every way to choose gates, as values, and how many there are on.
fn gates() -> impl Iterator<Item = BTreeMap<&'static str, bool>> {
    const GATES: [&str; 4] = [
        "clusterProfile",
        "clusterProfileAccessProvider",
        "clusterProfileCredSyncer",
        "clusterProfileDirectAccessProvider",
    ];
    (1..1 << GATES.len()).map(|bits| {
        GATES.into_iter().enumerate().map(|(index, gate)| (gate, bits >> index & 1 == 1)).collect()
    })
}

#[tokio::test]
async fn the_rules_are_what_prometheus_takes() {
    for values in [ALL, WITH_CONSUMER, &[ALERTS, "credentials.secretAccess=cluster"]] {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("rules.yaml");
        fs::write(&file, rules(&rendered::groups(values).await)).unwrap();
        promtool(&["check", "rules", "--lint=all", "--lint-fatal", file.to_str().unwrap()]).await;
    }
}

#[tokio::test]
async fn each_alert_fires_when_it_should_and_not_otherwise() {
    let played = include_str!("monitoring/alerts.yaml");
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("rules.yaml"), rules(&rendered::groups(WITH_CONSUMER).await))
        .unwrap();
    let tests = directory.path().join("alerts.yaml");
    fs::write(&tests, played).unwrap();
    promtool(&["test", "rules", tests.to_str().unwrap()]).await;

    // The test of an alert has its name.
    let played: Value = serde_saphyr::from_str(played).unwrap();
    for alert in alerts(WITH_CONSUMER).await.iter().map(Alert::name).collect::<BTreeSet<_>>() {
        let tests = played["tests"].as_array().unwrap().iter();
        let tests =
            tests.filter(|test| test["name"].as_str().unwrap().split(',').next() == Some(&alert));
        let expectations = tests.flat_map(|test| test["promql_expr_test"].as_array().unwrap());
        let fires = format!("ALERTS{{alertname=\"{alert}\",alertstate=\"firing\"}}");
        let expectations: Vec<_> = expectations.filter(|it| it["expr"] == fires.as_str()).collect();
        let has = |fires: bool| expectations.iter().any(|it| it["exp_samples"].is_array() == fires);
        assert!(has(true), "nothing shows that {alert} fires");
        assert!(has(false), "nothing shows that {alert} is silent");
    }
}

#[tokio::test]
async fn an_alert_is_there_with_the_gate_that_it_is_about_and_looks_where_it_runs() {
    let owners = [
        ("HubAddonsProfileBlocked", "clusterProfile", "profiles"),
        ("HubAddonsTrustAnchorExpiry", "clusterProfileAccessProvider", "profiles"),
        ("HubAddonsServerCheck", "clusterProfileAccessProvider", "profiles"),
        ("HubAddonsServerCertificateExpiry", "clusterProfileAccessProvider", "profiles"),
        ("HubAddonsAccessProviderUnknown", "clusterProfileAccessProvider", "profiles"),
        ("HubAddonsEndpointRefused", "clusterProfileDirectAccessProvider", "profiles"),
        ("HubAddonsTokenExpiry", "clusterProfileCredSyncer", "credentials"),
        ("HubAddonsTokenExpired", "clusterProfileCredSyncer", "credentials"),
        ("HubAddonsSyncLag", "clusterProfileCredSyncer", "credentials"),
        ("HubAddonsCredentialsWithheld", "clusterProfileCredSyncer", "credentials"),
    ];
    let known = alerts(ALL).await.iter().map(Alert::name).collect::<BTreeSet<_>>();
    let of_all = |alert: &&String| !owners.iter().any(|(owned, _, _)| owned == alert);
    let of_all: BTreeSet<_> = known.iter().filter(of_all).collect();
    assert_eq!(
        known.len(),
        of_all.len() + owners.len(),
        "an alert that is listed here is not rendered"
    );
    for gates in gates() {
        let mut values: Vec<_> =
            gates.iter().map(|(gate, is_on)| format!("featureGates.{gate}={is_on}")).collect();
        values.push(ALERTS.to_owned());
        let values: Vec<_> = values.iter().map(String::as_str).collect();
        let all = chart::render(&values).await;
        let (rendered, jobs) = (alerts_of(&all), rendered::jobs(&all));
        let names: BTreeSet<_> = rendered.iter().map(Alert::name).collect();
        for (alert, gate, component) in owners {
            assert_eq!(names.contains(alert), gates[gate], "{alert} with {values:?}");
            for alert in rendered.iter().filter(|it| it.name() == alert) {
                let job = format!("hub-addons-{component}");
                for selector in Expression::parse(alert.expression()).selectors {
                    assert_eq!(selector.values_of("job"), [job.as_str()], "{}", alert.name());
                }
            }
        }
        assert!(of_all.iter().all(|alert| names.contains(*alert)), "{names:?} with {values:?}");
        // There are no alerts about what does not run, and every running component is covered.
        let looks: BTreeSet<_> = rendered.iter().flat_map(looks).collect();
        assert_eq!(looks, jobs, "with {values:?}");
    }
}

#[tokio::test]
async fn alerts_about_applications_are_there_with_consumer_access_and_look_where_its_controllers_run()
 {
    let without = alerts(ALL).await.iter().map(Alert::name).collect::<BTreeSet<_>>();
    let with = alerts(WITH_CONSUMER).await;
    let added: BTreeMap<_, _> = with
        .iter()
        .filter(|it| !without.contains(&it.name()))
        .map(|it| (it.name(), looks(it)))
        .collect();
    let of =
        |alert: &str, component: &str| (alert.to_owned(), vec![format!("hub-addons-{component}")]);
    let expected = [
        of("HubAddonsConsumerRole", "profiles"),
        of("HubAddonsForeignAccount", "consumers"),
        of("HubAddonsMultiKueueConfigFull", "consumers"),
        of("HubAddonsPermissionsNotApplied", "consumers"),
        of("HubAddonsUserServerRefuses", "user-server"),
    ];
    assert_eq!(added, expected.into());
}

#[tokio::test]
async fn without_leader_election_there_is_no_alert_for_a_missing_leader() {
    let names = |alerts: Vec<Alert>| alerts.iter().map(Alert::name).collect::<BTreeSet<_>>();
    let with = names(alerts(ALL).await);
    let without = names(alerts(&[ALL, &["leaderElection=false", "replicaCount=1"]].concat()).await);
    assert_eq!(with.difference(&without).collect::<Vec<_>>(), ["HubAddonsNoLeader"]);
}

#[tokio::test]
async fn each_alert_says_what_to_do_here_and_in_the_runbook() {
    let runbook = fs::read_to_string(chart::chart().join("RUNBOOK.md")).unwrap();
    let headings: BTreeSet<_> =
        runbook.lines().filter_map(|line| line.strip_prefix("### ")).collect();
    let alerts = alerts(WITH_CONSUMER).await;
    for alert in &alerts {
        let annotation =
            |name: &str| alert.0["annotations"][name].as_str().unwrap_or_default().to_owned();
        assert!(annotation("summary").len() > 10, "{}", alert.name());
        assert!(annotation("description").len() > 60, "{}", alert.name());
        // Labels in its texts must remain after the aggregation.
        let groups = Expression::parse(alert.expression()).groups;
        let words = annotation("summary") + &annotation("description");
        for shown in words.split("$labels.").skip(1) {
            let label: String = shown.chars().take_while(char::is_ascii_alphanumeric).collect();
            assert!(groups.contains(&label), "{} has no {label}", alert.name());
        }
        let severity = alert.0["labels"]["severity"].as_str().unwrap();
        assert!(["critical", "warning"].contains(&severity), "{}", alert.name());
    }
    let names: BTreeSet<_> = alerts.iter().map(Alert::name).collect();
    assert_eq!(headings, names.iter().map(String::as_str).collect());
}

#[tokio::test]
async fn alerts_and_panels_are_about_series_that_the_program_has() {
    let mut expressions: Vec<_> = alerts(WITH_CONSUMER)
        .await
        .iter()
        .map(|alert| Expression::parse(alert.expression()))
        .collect();
    expressions.extend(
        rendered::panels(&rendered::dashboard().await).iter().map(|text| Expression::parse(text)),
    );
    let of_user_server =
        |it: &Expression| it.own_metrics().any(|name| name.starts_with(OF_USER_SERVER));
    expressions.retain(|expression| !of_user_server(expression));
    let wanted: BTreeSet<_> = expressions.iter().flat_map(Expression::own_metrics).collect();
    assert!(wanted.len() > 12, "{wanted:?}");

    // Without the provisioner's permissions, so that watches fail; and with work to do.
    let rules = [rights::projector(), rights::syncer()].concat();
    let hub = Hub::of(rules).await;
    let gates = "--feature-gates=ClusterProfileDirectAccessProvider=true";
    let addons = Addons::start(&hub, &[gates]).await;
    world::grant(&hub.ocm, "team", &["one"]).await;
    let token = token("one", "app");
    token.create(&hub.ocm).await.unwrap();
    copied(&hub.ocm, "team", &token).await;
    let series = eventually("the program has every metric that is named", SOON, async || {
        let series = Series::parse(&addons.metrics().await);
        let missing: Vec<_> = wanted.iter().filter(|name| series.of(name).is_empty()).collect();
        if missing.is_empty() { Ok(Some(series)) } else { Err(format!("{missing:?}")) }
    })
    .await;

    for expression in &expressions {
        let mut labels: BTreeSet<_> = GIVEN.map(str::to_owned).into();
        for selector in &expression.selectors {
            let known = series.of(&selector.metric);
            labels.extend(known.iter().flat_map(|labels| labels.keys().cloned()));
            for matcher in &selector.matchers {
                let is_ours = selector.is_own() && !GIVEN.contains(&matcher.label.as_str());
                for value in matcher.values.iter().filter(|_| is_ours) {
                    let is_there =
                        known.iter().any(|labels| labels.get(&matcher.label) == Some(value));
                    assert!(is_there, "{} never has {}={value}", selector.metric, matcher.label);
                }
            }
        }
        for label in &expression.groups {
            assert!(labels.contains(label), "nothing in {} has the label {label}", expression.text);
        }
    }
    addons.stop().await;
}

#[tokio::test]
async fn alerts_and_panels_about_the_user_server_are_about_series_that_it_has() {
    let (metrics, _) = Metrics::with("0", UserServerMetrics::register);
    let series = Series::parse(&metrics.text());
    let alerts = alerts(WITH_CONSUMER).await;
    let alerts = alerts.iter().map(|alert| alert.expression().to_owned());
    let panels = rendered::panels(&rendered::dashboard().await);
    let selectors: Vec<_> = alerts
        .chain(panels)
        .flat_map(|text| Expression::parse(&text).selectors)
        .filter(|selector| selector.metric.starts_with(OF_USER_SERVER))
        .collect();
    assert!(selectors.len() > 5);
    for selector in selectors {
        let known = series.of(&selector.metric);
        // A histogram without an observation has no series.
        let is_there = !known.is_empty() || selector.metric.ends_with("_bucket");
        assert!(is_there, "there is no {}", selector.metric);
        for reason in selector.values_of("reason") {
            let has = known.iter().any(|labels| labels.get("reason") == Some(reason));
            assert!(has, "{} never has the reason {reason}", selector.metric);
        }
    }
}

#[tokio::test]
async fn every_query_of_the_dashboard_is_promql() {
    let dashboard = rendered::dashboard().await;
    let picture = fs::read_to_string(chart::repository().join("docs/dashboard.svg")).unwrap();
    for panel in dashboard["panels"].as_array().unwrap() {
        let title = format!(">{}</text>", panel["title"].as_str().unwrap());
        assert!(
            picture.contains(&title),
            "{title} is not in the picture: hack/demo/dashboard.py draws it"
        );
    }
    let versions = fs::read_to_string(chart::repository().join("hack/versions.txt")).unwrap();
    assert!(versions.contains("\nprometheus "), "which draws it");
    let panels = rendered::panels(&dashboard);
    let records: Vec<_> = panels
        .iter()
        .enumerate()
        .map(|(index, text)| {
            let text = text.replace("$__rate_interval", "5m");
            json!({ "record": format!("panel:{index}"), "expr": text })
        })
        .collect();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("panels.yaml");
    fs::write(&file, rules(&[json!({ "name": "panels", "rules": records })])).unwrap();
    promtool(&["check", "rules", file.to_str().unwrap()]).await;
}

#[tokio::test]
async fn the_monitor_scrapes_every_component_under_the_job_that_alerts_ask_for() {
    let monitored = [
        "monitoring.serviceMonitor.enabled=true",
        "monitoring.serviceMonitor.labels.team=platform",
    ];
    let all = chart::render(&[monitored[0], monitored[1], "consumerAccess.enabled=true"]).await;
    let of_kind =
        |kind: &str| all.iter().filter(|it| it["kind"] == kind).cloned().collect::<Vec<_>>();
    let monitors = of_kind("ServiceMonitor");
    let [monitor] = &monitors[..] else { panic!("{monitors:?}") };
    assert_eq!(monitor["metadata"]["labels"]["team"], "platform");
    let endpoint = &monitor["spec"]["endpoints"][0];
    assert_eq!(endpoint["port"], "metrics");
    let relabeling = &endpoint["relabelings"][0];
    assert_eq!(
        relabeling["sourceLabels"],
        json!(["__meta_kubernetes_pod_label_app_kubernetes_io_component"])
    );

    let selected = |labels: &Value| {
        let wanted = monitor["spec"]["selector"]["matchLabels"].as_object().unwrap();
        wanted.iter().all(|(key, value)| labels[key] == *value)
    };
    let (services, deployments) = (of_kind("Service"), of_kind("Deployment"));
    assert_eq!(deployments.len(), 3);
    for deployment in &deployments {
        let pod = &deployment["spec"]["template"];
        let labels = &pod["metadata"]["labels"];
        let component = labels["app.kubernetes.io/component"].as_str().unwrap();
        let job = relabeling["replacement"].as_str().unwrap().replace("$1", component);
        assert_eq!(deployment["metadata"]["name"], job.as_str());
        let ports = pod["spec"]["containers"][0]["ports"].as_array().unwrap();
        assert!(ports.iter().any(|port| port["name"] == "metrics"));
        let service =
            services.iter().find(|service| service["metadata"]["name"] == job.as_str()).unwrap();
        assert_eq!(service["spec"]["ports"][0]["name"], "metrics");
        assert!(selected(&service["metadata"]["labels"]));
    }
}
