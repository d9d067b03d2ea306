//! The rendered objects.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::support::chart::render;

/// An alert, as its rule is written.
pub struct Alert(pub Value);

impl Alert {
    pub fn name(&self) -> String {
        self.0["alert"].as_str().unwrap().to_owned()
    }

    pub fn expression(&self) -> &str {
        self.0["expr"].as_str().unwrap()
    }
}

/// The groups of alerts.
pub async fn groups(values: &[&str]) -> Vec<Value> {
    groups_of(&render(values).await)
}

fn groups_of(objects: &[Value]) -> Vec<Value> {
    let rules: Vec<_> =
        objects.iter().filter(|object| object["kind"] == "PrometheusRule").collect();
    let [rules] = rules[..] else { panic!("not one PrometheusRule: {rules:?}") };
    rules["spec"]["groups"].as_array().unwrap().clone()
}

pub async fn alerts(values: &[&str]) -> Vec<Alert> {
    alerts_of(&render(values).await)
}

pub fn alerts_of(objects: &[Value]) -> Vec<Alert> {
    let groups = groups_of(objects);
    groups.iter().flat_map(|group| group["rules"].as_array().unwrap()).cloned().map(Alert).collect()
}

/// The jobs of the components' metrics.
pub fn jobs(objects: &[Value]) -> BTreeSet<String> {
    let deployments = objects.iter().filter(|object| object["kind"] == "Deployment");
    deployments
        .map(|deployment| deployment["metadata"]["name"].as_str().unwrap().to_owned())
        .collect()
}

pub async fn dashboard() -> Value {
    let objects = render(&["monitoring.dashboard.enabled=true"]).await;
    let map = objects.iter().find(|object| object["kind"] == "ConfigMap").unwrap();
    assert_eq!(
        map["metadata"]["labels"]["grafana_dashboard"], "1",
        "by which Grafana's sidecar finds it"
    );
    serde_json::from_str(map["data"]["hub-addons.json"].as_str().unwrap()).unwrap()
}

/// The expressions of the panels.
pub fn panels(dashboard: &Value) -> Vec<String> {
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.filter_map(|panel| panel["targets"].as_array()).flatten();
    targets.map(|target| target["expr"].as_str().unwrap().to_owned()).collect()
}
