//! Which clusters a ManagedClusterSet selects.
//!
//! The rules are those of OCM's `BuildClusterSelector` and of apimachinery's `LabelSelectorAsSelector`, which it uses:
//! what those reject is rejected here, because guessing would grant clusters that no one granted.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use hub_api::labels;
use hub_api::managed_cluster_set::ManagedClusterSelector;
use hub_api::names::{is_label_key, is_label_value};
use hub_api::{Expression, SelectorExt as _};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use crate::effort;

/// `spec.clusterSelector.selectorType` of sets that clusters join by a label.
pub const EXCLUSIVE: &str = "ExclusiveClusterSetLabel";

/// `spec.clusterSelector.selectorType` of sets that select by any labels.
pub const LABEL_SELECTOR: &str = "LabelSelector";

/// A parsed selector of a set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClusterSelector {
    /// The clusters whose label [`labels::EXCLUSIVE_CLUSTER_SET`] names the set.
    Exclusive,
    /// The clusters that match every expression; without expressions, every cluster.
    Labels(Vec<Expression>),
    /// No cluster: type `LabelSelector` without a selector.
    Nothing,
}

/// Why a selector is not valid. The text is for its author.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    #[error("selectorType {0:?} is not known: must be {EXCLUSIVE} or {LABEL_SELECTOR}")]
    UnknownType(String),
    #[error(
        "operator {operator:?} of key {key:?} is not known: must be In, NotIn, Exists or DoesNotExist"
    )]
    UnknownOperator { key: String, operator: String },
    #[error("{0:?} is not a valid label key")]
    InvalidKey(String),
    #[error("{value:?} of key {key:?} is not a valid label value")]
    InvalidValue { key: String, value: String },
    /// `In` or `NotIn` without values.
    #[error("operator {operator} of key {key:?} requires at least one value")]
    MissingValues { key: String, operator: String },
    /// `Exists` or `DoesNotExist` with values.
    #[error("operator {operator} of key {key:?} must not have values")]
    UnexpectedValues { key: String, operator: String },
}

impl ClusterSelector {
    /// Parses a set's `spec.clusterSelector`.
    pub fn parse(selector: &ManagedClusterSelector) -> Result<Self, SelectorError> {
        match selector.selector_type.as_deref().unwrap_or_default() {
            "" | EXCLUSIVE => Ok(Self::Exclusive),
            LABEL_SELECTOR => {
                selector.label_selector.as_ref().map_or(Ok(Self::Nothing), Self::of_labels)
            }
            other => Err(SelectorError::UnknownType(other.to_owned())),
        }
    }

    /// Parses a label selector.
    pub fn of_labels(labels: &LabelSelector) -> Result<Self, SelectorError> {
        let equalities = labels.match_labels.iter().flatten();
        let equalities =
            equalities.map(|(key, value)| expression(key, "In", [value.clone()].into()));
        let expressions = labels.match_expressions.iter().flatten().map(|it| {
            let values = it.values.iter().flatten().cloned().collect();
            expression(&it.key, &it.operator, values)
        });
        Ok(Self::Labels(equalities.chain(expressions).collect::<Result<_, _>>()?))
    }

    /// Whether the set named `set` selects a cluster with these labels.
    #[must_use]
    pub fn picks(&self, set: &str, cluster_labels: &BTreeMap<String, String>) -> bool {
        effort::count(|spent| spent.matches += 1);
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
            Self::Labels(expressions) => expressions.iter().all(|it| it.matches(cluster_labels)),
            Self::Exclusive | Self::Nothing => false,
        }
    }

    /// The keys of the labels that it reads.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        let (exclusive, expressions) = match self {
            Self::Exclusive => (Some(labels::EXCLUSIVE_CLUSTER_SET), &[][..]),
            Self::Labels(expressions) => (None, expressions.as_slice()),
            Self::Nothing => (None, &[][..]),
        };
        exclusive.into_iter().chain(expressions.iter().map(key_of))
    }

    /// The changes to a cluster's labels after which the set named `set` picks it, as arguments of `kubectl label`;
    /// empty if no label makes the set pick the cluster.
    pub(crate) fn labels_to_join(
        &self,
        set: &str,
        cluster_labels: &BTreeMap<String, String>,
    ) -> Vec<String> {
        match self {
            Self::Exclusive => vec![format!("{}={set}", labels::EXCLUSIVE_CLUSTER_SET)],
            Self::Labels(expressions) => expressions
                .iter()
                .filter(|it| !it.matches(cluster_labels))
                .map(label_to_match)
                .collect(),
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
            Self::Labels(expressions) if expressions.is_empty() => f.write_str("every cluster"),
            Self::Labels(expressions) => {
                let texts: Vec<_> = expressions.iter().map(ToString::to_string).collect();
                f.write_str(&texts.join(","))
            }
        }
    }
}

/// Parses an expression of a label selector.
fn expression(
    key: &str,
    operator: &str,
    values: BTreeSet<String>,
) -> Result<Expression, SelectorError> {
    let (key, operator) = (key.to_owned(), operator.to_owned());
    // An unknown operator, or one that does not take these values, is reported first.
    let checked = if !is_label_key(&key) {
        Err(SelectorError::InvalidKey(key.clone()))
    } else if let Some(value) = values.iter().find(|value| !is_label_value(value)) {
        Err(SelectorError::InvalidValue { key: key.clone(), value: value.clone() })
    } else {
        Ok(())
    };
    let parsed = match (operator.as_str(), values.first()) {
        ("In", Some(value)) if values.len() == 1 => Expression::Equal(key, value.clone()),
        ("In", Some(_)) => Expression::In(key, values),
        ("NotIn", Some(_)) => Expression::NotIn(key, values),
        ("Exists", None) => Expression::Exists(key),
        ("DoesNotExist", None) => Expression::DoesNotExist(key),
        ("In" | "NotIn", None) => return Err(SelectorError::MissingValues { key, operator }),
        ("Exists" | "DoesNotExist", Some(_)) => {
            return Err(SelectorError::UnexpectedValues { key, operator });
        }
        _ => return Err(SelectorError::UnknownOperator { key, operator }),
    };
    checked.map(|()| parsed)
}

fn key_of(expression: &Expression) -> &str {
    let (Expression::In(key, _)
    | Expression::NotIn(key, _)
    | Expression::Equal(key, _)
    | Expression::NotEqual(key, _)
    | Expression::Exists(key)
    | Expression::DoesNotExist(key)) = expression;
    key
}

/// The argument of `kubectl label` that makes a cluster match an expression.
fn label_to_match(expression: &Expression) -> String {
    match expression {
        Expression::In(key, values) => {
            format!("{key}={}", values.first().map_or("", String::as_str))
        }
        Expression::Equal(key, value) => format!("{key}={value}"),
        Expression::Exists(key) => format!("{key}=VALUE"),
        _ => format!("{}-", key_of(expression)),
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
    fn an_exclusive_set_does_not_look_at_a_label_selector_beside_it() {
        let selector =
            parse(json!({"selectorType": "ExclusiveClusterSetLabel", "labelSelector": {}}));
        assert_eq!(selector, Ok(ClusterSelector::Exclusive));
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
            (
                json!({"matchLabels": {"env": "prod", "region": "eu"}}),
                vec![("env", "prod")],
                "region=eu",
            ),
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
        let expression = |operator: &str, values: &[&str]| json!({"key": "env", "operator": operator, "values": values});
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
        assert!(
            parse(json!({"selectorType": "Regex"})).unwrap_err().to_string().contains("\"Regex\"")
        );
        assert!(expression("env", "Like", &["x"]).contains("\"Like\""));
        assert!(expression("a b", "Exists", &[]).contains("not a valid label key"));
        assert!(expression("env", "In", &["not valid"]).contains("not a valid label value"));
        assert!(expression("env", "In", &[]).contains("at least one value"));
        assert!(expression("env", "NotIn", &[]).contains("at least one value"));
        assert!(expression("env", "Exists", &["x"]).contains("must not have values"));
        assert!(expression("env", "DoesNotExist", &["x"]).contains("must not have values"));
        assert!(by_labels(&json!({"matchLabels": {"env": "no/slash"}})).is_err());
        assert!(by_labels(&json!({"matchLabels": {"-": "x"}})).is_err());
    }
}
