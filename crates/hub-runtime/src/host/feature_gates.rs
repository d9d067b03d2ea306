//! Feature gates: `--feature-gates=A=true,B=false`, as Kubernetes writes them.

use std::collections::BTreeMap;

/// A known gate.
#[derive(Debug, Clone, Copy)]
pub struct FeatureGate {
    pub name: &'static str,
    /// Whether it is enabled by default.
    pub default: bool,
}

/// Why a list of gates is not valid. Each error lists the known gates.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GateError {
    /// An entry is not `name=value`.
    #[error("{entry:?} is not GATE=true or GATE=false; known gates: {known}")]
    Malformed {
        entry: String,
        /// The known gates.
        known: String,
    },
    #[error("unknown feature gate {name:?}; known gates: {known}")]
    Unknown {
        name: String,
        /// The known gates.
        known: String,
    },
    /// The value is neither true nor false.
    #[error("feature gate {name} must be true or false, got {value:?}; known gates: {known}")]
    Value {
        /// The gate.
        name: String,
        value: String,
        /// The known gates.
        known: String,
    },
}

/// Parses a list of gates; those that are not in it have their default. The last occurrence of a gate takes precedence.
pub fn parse(text: &str, gates: &[FeatureGate]) -> Result<BTreeMap<&'static str, bool>, GateError> {
    let known = || {
        let names = gates.iter().map(|gate| format!("{} (default {})", gate.name, gate.default));
        names.collect::<Vec<_>>().join(", ")
    };
    let mut enabled: BTreeMap<_, _> = gates.iter().map(|gate| (gate.name, gate.default)).collect();
    for entry in text.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
        let Some((name, value)) = entry.split_once('=') else {
            return Err(GateError::Malformed { entry: entry.to_owned(), known: known() });
        };
        let Some(state) = enabled.get_mut(name.trim()) else {
            return Err(GateError::Unknown { name: name.trim().to_owned(), known: known() });
        };
        *state = value.trim().parse().map_err(|_| GateError::Value {
            name: name.trim().to_owned(),
            value: value.trim().to_owned(),
            known: known(),
        })?;
    }
    Ok(enabled)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GATES: [FeatureGate; 2] =
        [FeatureGate { name: "Stable", default: true }, FeatureGate { name: "Young", default: false }];

    #[test]
    fn an_empty_list_means_the_defaults() {
        assert_eq!(parse("", &GATES).unwrap(), BTreeMap::from([("Stable", true), ("Young", false)]));
    }

    #[test]
    fn gates_are_switched_by_name() {
        let gates = parse("Young=true, Stable=false", &GATES).unwrap();
        assert_eq!(gates, BTreeMap::from([("Stable", false), ("Young", true)]));
    }

    #[test]
    fn a_mistake_is_an_error_that_lists_the_known_gates() {
        for bad in ["stable=true", "Stable", "Stable=yes", "Stable=", "=true"] {
            let error = parse(bad, &GATES).unwrap_err().to_string();
            assert!(error.contains("Stable (default true), Young (default false)"), "{bad}: {error}");
        }
    }
}
