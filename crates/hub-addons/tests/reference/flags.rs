//! The tables of flags are what `--help` prints: names, defaults, and the first sentence of each text with the possible
//! values.

#![cfg(test)]

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use super::plugin::{cp_creds, program};
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

fn help(program: &Path, command: Option<&str>) -> String {
    let output = Command::new(program).args(command).arg("--help").env("COLUMNS", "10000").output().unwrap();
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

/// The subcommands in the output of `--help`.
fn commands(help: &str) -> BTreeSet<String> {
    let (_, list) = help.split_once("Commands:\n").unwrap();
    let names = list.lines().take_while(|line| !line.is_empty()).filter_map(|line| {
        let name = line.strip_prefix("  ")?.split(' ').next()?;
        (!name.is_empty() && name != "help").then(|| name.to_owned())
    });
    names.collect()
}

/// The flags that all of these commands have.
fn common<'a>(mut all: impl Iterator<Item = &'a Vec<Flag>>) -> Vec<Flag> {
    let first = all.next().unwrap().clone();
    all.fold(first, |common, flags| common.into_iter().filter(|flag| flags.contains(flag)).collect())
}

fn without(flags: &[Flag], others: &[Flag]) -> Vec<Flag> {
    flags.iter().filter(|flag| !others.contains(flag)).cloned().collect()
}

#[test]
fn every_flag_of_every_command_is_listed_as_the_help_shows_it() {
    let hub_addons = Path::new(env!("CARGO_BIN_EXE_hub-addons"));
    let kubectl_plugin = program("kubectl-clusterprofile");
    let flags_of = |program: &Path, command: &str| flags(&help(program, Some(command)));
    let of_plugin: Vec<_> = commands(&help(&kubectl_plugin, None))
        .into_iter()
        .map(|command| (flags_of(&kubectl_plugin, &command), command))
        .filter(|(flags, _)| !flags.is_empty())
        .collect();
    let shared = common(of_plugin.iter().map(|(flags, _)| flags));
    compare_flags("Flags of kubectl clusterprofile", &shared);
    for (flags, command) in &of_plugin {
        let own = without(flags, &shared);
        if !own.is_empty() {
            compare_flags(&format!("Flags of {command}"), &own);
        }
    }
    for command in commands(&help(hub_addons, None)) {
        let flags = flags_of(hub_addons, &command);
        if !flags.is_empty() {
            compare_flags(&format!("Flags of {command}"), &flags);
        }
    }
}

#[test]
fn every_flag_of_cp_creds_is_listed_as_the_help_shows_it() {
    let help = help(cp_creds(), None);
    let (_, list) = help.split_once("\nflags:\n").unwrap();
    let mut flags: Vec<Vec<String>> = Vec::new();
    for line in list.lines().take_while(|line| !line.is_empty()) {
        // `--timeout=DURATION   the timeout`, or the text is on the next lines.
        if let Some(flag) = line.strip_prefix("  --") {
            let (name, text) = flag.split_once("  ").unwrap_or((flag, ""));
            let name = name.split('=').next().unwrap_or_default();
            flags.push(vec![format!("`--{name}`"), text.to_owned()]);
        } else if let Some(flag) = flags.last_mut() {
            flag[1].push_str(line);
        }
    }
    flags.retain(|flag| flag[0] != "`--version, --help`");
    for flag in &mut flags {
        flag[1] = sentence(&flag[1]);
    }
    compare("Flags of cp-creds", &flags);
}

/// The help of `--feature-gates` has a paragraph for each: `NAME (default true): text`, or `(default false, alpha)`.
#[test]
fn every_feature_gate_is_listed_with_its_default() {
    let hub_addons = Path::new(env!("CARGO_BIN_EXE_hub-addons"));
    let help = help(hub_addons, Some("run"));
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
