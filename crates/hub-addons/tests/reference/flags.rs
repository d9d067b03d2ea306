//! The tables of flags and gates are what `run --help` prints: names, defaults, and the first sentence of each text with
//! the possible values.

#![cfg(test)]

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use super::table::{code, compare, sentence};

/// A flag in the output of `--help`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Flag {
    /// The short name, if there is one, and the long one.
    names: Vec<String>,
    variable: String,
    default: String,
    text: String,
    values: Vec<String>,
}

impl Flag {
    /// The first sentence, and the values that the flag takes if it does not describe each.
    fn meaning(&self) -> String {
        let (text, _) = self.text.split_once(". ").unwrap_or((&self.text, ""));
        let text = text.trim_end_matches('.');
        match &self.values[..] {
            [only] => format!("{text}: {}.", code(only)),
            [others @ .., last] if !self.values.iter().all(|value| text.contains(&code(value))) => {
                let others: Vec<_> = others.iter().map(|value| code(value)).collect();
                format!("{text}: {} or {}.", others.join(", "), code(last))
            }
            _ => sentence(text),
        }
    }

    /// It has no variable, or the one that its name leads to.
    fn variable_follows_from_the_name(&self) -> bool {
        let expected = self.names.last().map(|name| name[2..].replace('-', "_").to_uppercase());
        self.variable.is_empty() || expected.is_some_and(|name| self.variable == format!("HUB_ADDONS_{name}"))
    }
}

fn help(program: &Path) -> String {
    let output = Command::new(program).args(["run", "--help"]).env("COLUMNS", "10000").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The flags in the output of `--help`, in its order.
fn flags(help: &str) -> Vec<Flag> {
    let mut flags: Vec<Flag> = Vec::new();
    for line in help.lines() {
        let text = line.trim_start();
        // `-o, --output <OUTPUT>`; text is indented further.
        if text.starts_with('-') && line.len() - text.len() <= 6 {
            let names = text.split(", ").map(|name| {
                let end = name.find(|c: char| !c.is_ascii_alphabetic() && c != '-').unwrap_or(name.len());
                name[..end].to_owned()
            });
            flags.push(Flag { names: names.collect(), ..Flag::default() });
            continue;
        }
        let Some(flag) = flags.last_mut() else { continue };
        if flag.text.is_empty() {
            text.clone_into(&mut flag.text);
        }
        // `- json:  For programs`
        if let Some((value, _)) = text.strip_prefix("- ").and_then(|value| value.split_once(':')) {
            flag.values.push(value.to_owned());
        }
        for (label, value) in [("[env: ", &mut flag.variable), ("[default: ", &mut flag.default)] {
            if let Some((_, rest)) = line.split_once(label) {
                rest.split([']', '=']).next().unwrap_or_default().clone_into(value);
            }
        }
    }
    flags.retain(|flag| !flag.names.iter().any(|name| name == "--help" || name == "--version"));
    flags
}

/// The table below a heading lists exactly these flags, in this order.
fn compare_flags(heading: &str, actual: &[Flag]) {
    let row = |flag: &Flag| {
        assert!(flag.variable_follows_from_the_name(), "{flag:?}");
        let names: Vec<_> = flag.names.iter().map(|name| code(name)).collect();
        vec![names.join(", "), code(&flag.default), flag.meaning()]
    };
    compare(heading, &actual.iter().map(row).collect::<Vec<_>>());
}

#[test]
fn every_flag_of_run_is_listed_as_the_help_shows_it() {
    let hub_addons = Path::new(env!("CARGO_BIN_EXE_hub-addons"));
    compare_flags("Flags of run", &flags(&help(hub_addons)));
}

/// The help of `--feature-gates` has a paragraph for each: `NAME (default true): text`, or `(default false, alpha)`.
#[test]
fn every_feature_gate_is_listed_with_its_default() {
    let hub_addons = Path::new(env!("CARGO_BIN_EXE_hub-addons"));
    let help = help(hub_addons);
    let gates: Vec<_> = help
        .lines()
        .filter_map(|line| {
            let (name, rest) = line.trim().split_once(" (default ")?;
            let (default, text) = rest.split_once("): ")?;
            let (default, stage) = match default.strip_suffix(", alpha") {
                Some(default) => (default, " Alpha."),
                None => (default, ""),
            };
            Some(vec![code(name), code(default), sentence(text) + stage])
        })
        .collect();
    compare("Feature gates", &gates);

    let wrong = ["run", "--feature-gates=Unknown=true"];
    let output = Command::new(hub_addons).args(wrong).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    let (_, known) = error.split_once("known gates: ").unwrap();
    let known: BTreeSet<_> = known.lines().next().unwrap().split(", ").collect();
    let unquoted = |cell: &str| cell.replace('`', "");
    let described: BTreeSet<_> =
        gates.iter().map(|gate| format!("{} (default {})", unquoted(&gate[0]), unquoted(&gate[1]))).collect();
    assert_eq!(described.iter().map(String::as_str).collect::<BTreeSet<_>>(), known);
}
