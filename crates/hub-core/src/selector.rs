//! Which clusters a ManagedClusterSet selects.
//!
//! The rules are those of OCM's `BuildClusterSelector` and of apimachinery's `LabelSelectorAsSelector`, which it uses:
//! what those reject is rejected here, because guessing would grant clusters that no one granted.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use hub_api::labels;
use hub_api::managed_cluster_set::ManagedClusterSelector;
use hub_api::names::{is_label_key, is_label_value};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

/// `spec.clusterSelector.selectorType` of sets that clusters join by a label.
pub const EXCLUSIVE: &str = "ExclusiveClusterSetLabel";

/// `spec.clusterSelector.selectorType` of sets that select by any labels.
pub const LABEL_SELECTOR: &str = "LabelSelector";

/// A parsed selector of a set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClusterSelector {
    /// The clusters whose label [`labels::EXCLUSIVE_CLUSTER_SET`] names the set.
    Exclusive,
    /// The clusters that match every requirement; without requirements, every cluster.
    Labels(Vec<Requirement>),
    /// No cluster: type `LabelSelector` without a selector.
    Nothing,
}

/// A requirement on a cluster's labels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirement {
    key: String,
    test: Test,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Test {
    In(BTreeSet<String>),
    NotIn(BTreeSet<String>),
    Exists,
    DoesNotExist,
}

/// Why a selector is not valid. The text is for its author.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    #[error("selectorType {0:?} is not known: must be {EXCLUSIVE} or {LABEL_SELECTOR}")]
    UnknownType(String),
    #[error("operator {operator:?} of key {key:?} is not known: must be In, NotIn, Exists or DoesNotExist")]
    UnknownOperator { key: String, operator: String },
    #[error("{0:?} is not a valid label key")]
    InvalidKey(String),
    #[error("{value:?} of key {key:?} is not a valid label value")]
    InvalidValue { key: String, value: String },
    /// `In` or `NotIn` without values.
    #[error("operator {operator} of key {key:?} requires at least one value")]
    MissingValues { key: String, operator: &'static str },
    /// `Exists` or `DoesNotExist` with values.
    #[error("operator {operator} of key {key:?} must not have values")]
    UnexpectedValues { key: String, operator: &'static str },
}

impl ClusterSelector {
    /// Parses a set's `spec.clusterSelector`.
    pub fn parse(selector: &ManagedClusterSelector) -> Result<Self, SelectorError> {
        match selector.selector_type.as_deref().unwrap_or_default() {
            "" | EXCLUSIVE => Ok(Self::Exclusive),
            LABEL_SELECTOR => selector.label_selector.as_ref().map_or(Ok(Self::Nothing), Self::of_labels),
            other => Err(SelectorError::UnknownType(other.to_owned())),
        }
    }

    /// Parses a label selector.
    pub fn of_labels(labels: &LabelSelector) -> Result<Self, SelectorError> {
        let equalities = labels.match_labels.iter().flatten();
        let equalities =
            equalities.map(|(key, value)| Requirement::new(key, Test::In(BTreeSet::from([value.clone()]))));
        let expressions = labels.match_expressions.iter().flatten().map(Requirement::from_expression);
        Ok(Self::Labels(equalities.chain(expressions).collect::<Result<_, _>>()?))
    }

    /// Whether the set named `set` selects a cluster with these labels.
    #[must_use]
    pub fn picks(&self, set: &str, cluster_labels: &BTreeMap<String, String>) -> bool {
        match self {
            Self::Exclusive => {
                cluster_labels.get(labels::EXCLUSIVE_CLUSTER_SET).is_some_and(|value| value == set)
            }
            Self::Labels(_) | Self::Nothing => self.matches(cluster_labels),
        }
    }

    /// Whether a label selector selects a cluster with these labels. An exclusive set selects by its name
    /// ([`Self::picks`]), so the result for it is false.
    #[must_use]
    pub fn matches(&self, cluster_labels: &BTreeMap<String, String>) -> bool {
        match self {
            Self::Labels(requirements) => {
                requirements.iter().all(|requirement| requirement.is_met_by(cluster_labels))
            }
            Self::Exclusive | Self::Nothing => false,
        }
    }

    /// The keys of the labels that it reads.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        let (exclusive, requirements) = match self {
            Self::Exclusive => (Some(labels::EXCLUSIVE_CLUSTER_SET), &[][..]),
            Self::Labels(requirements) => (None, requirements.as_slice()),
            Self::Nothing => (None, &[][..]),
        };
        exclusive.into_iter().chain(requirements.iter().map(|requirement| requirement.key.as_str()))
    }

    /// The changes to a cluster's labels after which the set named `set` picks it, as arguments of `kubectl label`;
    /// empty if no label makes the set pick the cluster.
    #[must_use]
    pub fn labels_to_join(&self, set: &str, cluster_labels: &BTreeMap<String, String>) -> Vec<String> {
        match self {
            Self::Exclusive => vec![format!("{}={set}", labels::EXCLUSIVE_CLUSTER_SET)],
            Self::Labels(requirements) => {
                let unmet = requirements.iter().filter(|requirement| !requirement.is_met_by(cluster_labels));
                unmet.map(Requirement::label_to_meet).collect()
            }
            Self::Nothing => Vec::new(),
        }
    }
}

/// In the syntax of `kubectl get --selector`.
impl fmt::Display for ClusterSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exclusive => f.write_str(EXCLUSIVE),
            Self::Nothing => f.write_str("LabelSelector without a labelSelector"),
            Self::Labels(requirements) if requirements.is_empty() => f.write_str("every cluster"),
            Self::Labels(requirements) => {
                let texts: Vec<_> = requirements.iter().map(ToString::to_string).collect();
                f.write_str(&texts.join(","))
            }
        }
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = &self.key;
        let joined =
            |values: &BTreeSet<String>| values.iter().map(String::as_str).collect::<Vec<_>>().join(",");
        match &self.test {
            Test::In(values) if values.len() == 1 => write!(f, "{key}={}", joined(values)),
            Test::In(values) => write!(f, "{key} in ({})", joined(values)),
            Test::NotIn(values) => write!(f, "{key} notin ({})", joined(values)),
            Test::Exists => f.write_str(key),
            Test::DoesNotExist => write!(f, "!{key}"),
        }
    }
}

impl Requirement {
    /// The argument of `kubectl label` that makes a cluster meet the requirement.
    fn label_to_meet(&self) -> String {
        let key = &self.key;
        match &self.test {
            Test::In(values) => format!("{key}={}", values.first().map_or("", String::as_str)),
            Test::Exists => format!("{key}=VALUE"),
            Test::NotIn(_) | Test::DoesNotExist => format!("{key}-"),
        }
    }

    fn new(key: &str, test: Test) -> Result<Self, SelectorError> {
        if !is_label_key(key) {
            return Err(SelectorError::InvalidKey(key.to_owned()));
        }
        if let Test::In(values) | Test::NotIn(values) = &test
            && let Some(value) = values.iter().find(|value| !is_label_value(value))
        {
            return Err(SelectorError::InvalidValue { key: key.to_owned(), value: value.clone() });
        }
        Ok(Self { key: key.to_owned(), test })
    }

    fn from_expression(expression: &LabelSelectorRequirement) -> Result<Self, SelectorError> {
        let key = &expression.key;
        let values: BTreeSet<String> = expression.values.iter().flatten().cloned().collect();
        let some_values = |operator| {
            if values.is_empty() {
                Err(SelectorError::MissingValues { key: key.clone(), operator })
            } else {
                Ok(values.clone())
            }
        };
        let no_values = |operator| {
            if values.is_empty() {
                Ok(())
            } else {
                Err(SelectorError::UnexpectedValues { key: key.clone(), operator })
            }
        };
        let test = match expression.operator.as_str() {
            "In" => Test::In(some_values("In")?),
            "NotIn" => Test::NotIn(some_values("NotIn")?),
            "Exists" => no_values("Exists").map(|()| Test::Exists)?,
            "DoesNotExist" => no_values("DoesNotExist").map(|()| Test::DoesNotExist)?,
            other => {
                return Err(SelectorError::UnknownOperator { key: key.clone(), operator: other.to_owned() });
            }
        };
        Self::new(key, test)
    }

    fn is_met_by(&self, cluster_labels: &BTreeMap<String, String>) -> bool {
        let value = cluster_labels.get(&self.key);
        match &self.test {
            Test::In(values) => value.is_some_and(|value| values.contains(value)),
            // As everywhere in Kubernetes, an absent label is not in any list of values.
            Test::NotIn(values) => value.is_none_or(|value| !values.contains(value)),
            Test::Exists => value.is_some(),
            Test::DoesNotExist => value.is_none(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use hub_api::managed_cluster_set::ManagedClusterSelector;
    use serde_json::{Value, json};

    use super::{ClusterSelector, SelectorError};

    fn parse(selector: Value) -> Result<ClusterSelector, SelectorError> {
        let selector: ManagedClusterSelector = serde_json::from_value(selector).unwrap();
        ClusterSelector::parse(&selector)
    }

    fn by_labels(selector: &Value) -> Result<ClusterSelector, SelectorError> {
        parse(json!({"selectorType": "LabelSelector", "labelSelector": selector}))
    }

    fn cluster(labels: &[(&str, &str)]) -> BTreeMap<String, String> {
        labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn an_exclusive_set_picks_the_clusters_whose_label_names_it() {
        let member = cluster(&[("cluster.open-cluster-management.io/clusterset", "prod")]);
        for selector in
            [json!({}), json!({"selectorType": ""}), json!({"selectorType": "ExclusiveClusterSetLabel"})]
        {
            let selector = parse(selector).unwrap();
            assert!(selector.picks("prod", &member));
            assert!(!selector.picks("dev", &member));
            assert!(!selector.picks("prod", &cluster(&[])));
        }
    }

    #[test]
    fn an_exclusive_set_does_not_look_at_a_label_selector_beside_it() {
        let selector = parse(json!({"selectorType": "ExclusiveClusterSetLabel", "labelSelector": {}}));
        assert_eq!(selector, Ok(ClusterSelector::Exclusive));
    }

    #[test]
    fn no_label_selector_picks_nothing_and_an_empty_one_everything() {
        let none = parse(json!({"selectorType": "LabelSelector"})).unwrap();
        let empty = by_labels(&json!({})).unwrap();
        for labels in [cluster(&[]), cluster(&[("a", "b")])] {
            assert!(!none.picks("set", &labels));
            assert!(empty.picks("set", &labels));
        }
    }

    #[test]
    fn requirements_are_joined_by_and_and_operators_mean_what_they_mean_elsewhere() {
        let in_or_not = |selector: Value, labels: &[(&str, &str)]| {
            by_labels(&selector).unwrap().picks("set", &cluster(labels))
        };
        let expression = |operator: &str, values: &[&str]| json!({"matchExpressions": [{"key": "env", "operator": operator, "values": values}]});
        for (selector, labels, picked) in [
            (json!({"matchLabels": {"env": "prod"}}), vec![("env", "prod")], true),
            (json!({"matchLabels": {"env": "prod"}}), vec![("env", "dev")], false),
            (json!({"matchLabels": {"env": ""}}), vec![("env", "")], true),
            (json!({"matchLabels": {"env": ""}}), vec![], false),
            (json!({"matchLabels": {"env": "prod", "region": "eu"}}), vec![("env", "prod")], false),
            (expression("In", &["dev", "prod"]), vec![("env", "dev")], true),
            (expression("In", &["dev"]), vec![], false),
            (expression("NotIn", &["dev"]), vec![], true),
            (expression("NotIn", &["dev"]), vec![("env", "dev")], false),
            (expression("Exists", &[]), vec![("env", "x")], true),
            (expression("Exists", &[]), vec![], false),
            (expression("DoesNotExist", &[]), vec![], true),
            (expression("DoesNotExist", &[]), vec![("env", "x")], false),
        ] {
            assert_eq!(in_or_not(selector.clone(), &labels), picked, "{selector} {labels:?}");
        }
    }

    #[test]
    fn the_labels_to_join_a_set_are_those_that_a_cluster_lacks() {
        let joining = |selector: Value, labels: &[(&str, &str)]| {
            by_labels(&selector).unwrap().labels_to_join("set", &cluster(labels)).join(" ")
        };
        let env = |operator: &str, values: &[&str]| json!({"matchExpressions": [{"key": "env", "operator": operator, "values": values}]});
        for (selector, labels, expected) in [
            (json!({"matchLabels": {"env": "prod", "region": "eu"}}), vec![("env", "prod")], "region=eu"),
            (env("In", &["b", "a"]), vec![("env", "c")], "env=a"),
            (env("NotIn", &["dev"]), vec![("env", "dev")], "env-"),
            (env("Exists", &[]), vec![], "env=VALUE"),
            (env("DoesNotExist", &[]), vec![("env", "x")], "env-"),
        ] {
            assert_eq!(joining(selector.clone(), &labels), expected, "{selector}");
        }
        let exclusive = parse(json!({})).unwrap().labels_to_join("prod", &cluster(&[]));
        assert_eq!(exclusive, ["cluster.open-cluster-management.io/clusterset=prod"]);
        assert!(ClusterSelector::Nothing.labels_to_join("prod", &cluster(&[])).is_empty());
    }

    #[test]
    fn a_selector_is_shown_as_kubectl_takes_it() {
        let shown = |selector: Value| by_labels(&selector).unwrap().to_string();
        let expression =
            |operator: &str, values: &[&str]| json!({"key": "env", "operator": operator, "values": values});
        let all = json!({"matchLabels": {"region": "eu"}, "matchExpressions": [
            expression("In", &["b", "a"]), expression("NotIn", &["c"]), expression("Exists", &[]),
            expression("DoesNotExist", &[]),
        ]});
        assert_eq!(shown(all), "region=eu,env in (a,b),env notin (c),env,!env");
        assert_eq!(shown(json!({})), "every cluster");
    }

    #[test]
    fn a_selector_that_kubernetes_would_refuse_is_an_error() {
        let expression = |key: &str, operator: &str, values: &[&str]| {
            by_labels(&json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]}))
                .unwrap_err()
                .to_string()
        };
        assert!(parse(json!({"selectorType": "Regex"})).unwrap_err().to_string().contains("\"Regex\""));
        assert!(expression("env", "Like", &["x"]).contains("\"Like\""));
        assert!(expression("a b", "Exists", &[]).contains("not a valid label key"));
        assert!(expression("env", "In", &["not valid"]).contains("not a valid label value"));
        assert!(expression("env", "In", &[]).contains("at least one value"));
        assert!(expression("env", "NotIn", &[]).contains("at least one value"));
        assert!(expression("env", "Exists", &["x"]).contains("must not have values"));
        assert!(expression("env", "DoesNotExist", &["x"]).contains("must not have values"));
        assert!(by_labels(&json!({"matchLabels": {"env": "no/slash"}})).is_err());
    }
}
