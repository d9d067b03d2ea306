//! Feature gates: `--feature-gates=A=true,B=false`, as Kubernetes writes them.

use std::collections::BTreeMap;

/// A known gate.
#[derive(Debug, Clone, Copy)]
pub struct FeatureGate {
    pub name: &'static str,
    /// Whether it is enabled by default.
    pub default: bool,
}

/// Why a list of gates is not valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{problem}; known gates: {known}")]
pub struct GateError {
    problem: String,
    known: String,
}

/// Parses a list of gates; those that are not in it have their default. The last occurrence of a gate takes precedence.
pub fn parse(text: &str, gates: &[FeatureGate]) -> Result<BTreeMap<&'static str, bool>, GateError> {
    let error = |problem| {
        let known = gates.iter().map(|gate| format!("{} (default {})", gate.name, gate.default));
        GateError { problem, known: known.collect::<Vec<_>>().join(", ") }
    };
    let mut enabled: BTreeMap<_, _> = gates.iter().map(|gate| (gate.name, gate.default)).collect();
    for entry in text.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
        let Some((name, value)) = entry.split_once('=') else {
            return Err(error(format!("{entry:?} is not GATE=true or GATE=false")));
        };
        let (name, value) = (name.trim(), value.trim());
        let Some(state) = enabled.get_mut(name) else {
            return Err(error(format!("unknown feature gate {name:?}")));
        };
        let invalid = || error(format!("feature gate {name} must be true or false, got {value:?}"));
        *state = value.parse().map_err(|_| invalid())?;
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
