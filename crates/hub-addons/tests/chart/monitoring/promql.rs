//! A parser for the part of `PromQL`, and of exposed metrics, that identifies series. promtool checks whether an
//! expression is valid.

use std::collections::{BTreeMap, BTreeSet};

/// Metrics that are not the program's: Prometheus's own, and the kubelet's.
const FOREIGN: [&str; 2] = ["up", "container_memory_working_set_bytes"];

/// `metric{label="value"}`
#[derive(Debug)]
pub struct Selector {
    pub metric: String,
    pub matchers: Vec<Matcher>,
}

/// `label="value"` or `label=~"(one|another)"`, or their negation.
#[derive(Debug)]
pub struct Matcher {
    pub label: String,
    pub values: Vec<String>,
}

impl Selector {
    /// Whether the program exposes the metric.
    pub fn is_own(&self) -> bool {
        !FOREIGN.contains(&self.metric.as_str())
    }

    /// All values of a label.
    pub fn values_of(&self, label: &str) -> &[String] {
        self.matchers
            .iter()
            .find(|matcher| matcher.label == label)
            .map_or(&[], |matcher| &matcher.values)
    }
}

/// The selectors of an expression, and the labels by which it aggregates.
#[derive(Debug)]
pub struct Expression {
    pub text: String,
    pub selectors: Vec<Selector>,
    pub groups: BTreeSet<String>,
}

impl Expression {
    pub fn parse(text: &str) -> Self {
        let parts: Vec<_> = text.split('{').collect();
        let selectors = parts.windows(2).map(|pair| {
            let is_name = |char: char| char.is_ascii_alphanumeric() || char == '_';
            let before = pair[0].trim_end_matches(is_name);
            let (matchers, _) = pair[1].split_once('}').unwrap();
            Selector {
                metric: pair[0][before.len()..].to_owned(),
                matchers: matchers.split(',').map(Matcher::parse).collect(),
            }
        });
        let selectors: Vec<_> = selectors.collect();
        let own = text.matches("hub_addons_").count();
        assert_eq!(
            own,
            selectors.iter().filter(|it| it.is_own()).count(),
            "without a selector: {text}"
        );
        let groups =
            text.split("by (").skip(1).flat_map(|rest| rest.split(')').next().unwrap().split(", "));
        let groups = groups.map(str::to_owned).collect();
        Self { text: text.to_owned(), selectors, groups }
    }

    /// The program's metrics in it.
    pub fn own_metrics(&self) -> impl Iterator<Item = String> {
        self.selectors
            .iter()
            .filter(|selector| selector.is_own())
            .map(|selector| selector.metric.clone())
    }
}

impl Matcher {
    fn parse(text: &str) -> Self {
        let (left, value) = text.split_once('"').unwrap();
        let (label, value) = (left.trim_end_matches(['=', '!', '~']), value.trim_end_matches('"'));
        let values = match (left.ends_with('~'), value.split_once('(')) {
            (false, _) => vec![value.to_owned()],
            (true, None) => value.split('|').map(str::to_owned).collect(),
            (true, Some((before, rest))) => {
                let choice = rest.strip_suffix(')').unwrap();
                choice.split('|').map(|value| format!("{before}{value}")).collect()
            }
        };
        Self { label: label.to_owned(), values }
    }
}

/// The metrics of a program: the labels of each series, by metric.
#[derive(Debug)]
pub struct Series(BTreeMap<String, Vec<BTreeMap<String, String>>>);

impl Series {
    pub fn parse(exposed: &str) -> Self {
        let mut series: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for line in exposed.lines().filter(|line| !line.starts_with('#')) {
            let (name, _) = line.rsplit_once(' ').unwrap();
            let (metric, labels) = name.split_once('{').unwrap_or((name, "}"));
            let labels = labels.strip_suffix('}').unwrap().split(',').filter_map(|label| {
                let (label, value) = label.split_once('=')?;
                Some((label.to_owned(), value.trim_matches('"').to_owned()))
            });
            series.entry(metric.to_owned()).or_default().push(labels.collect());
        }
        Self(series)
    }

    /// The series of a metric.
    pub fn of(&self, metric: &str) -> &[BTreeMap<String, String>] {
        self.0.get(metric).map_or(&[], Vec::as_slice)
    }
}
