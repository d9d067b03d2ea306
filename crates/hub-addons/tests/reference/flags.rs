//! The flags are those that `--help` prints, with their environment variables and defaults.

#![cfg(test)]

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use super::page::{quoted, rows};
use super::plugin::{cp_creds, program};

/// A flag, its environment variable and its default.
type Flag = (String, String, String);

fn help(program: &Path, command: Option<&str>) -> String {
    let output = Command::new(program).args(command).arg("--help").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The flags in the output of `--help`.
fn flags(help: &str) -> BTreeSet<Flag> {
    let mut flags: Vec<Flag> = Vec::new();
    for line in help.lines() {
        let text = line.trim_start();
        // `-o, --output <OUTPUT>`; text is indented further.
        let is_flag = line.starts_with("  ") && line.len() - text.len() <= 6;
        let long = text.strip_prefix('-').filter(|_| is_flag).and_then(|text| {
            let text = text.strip_prefix('-').or_else(|| text.split_once(", --").map(|(_, long)| long))?;
            let end = text.find(|c: char| !c.is_ascii_lowercase() && c != '-');
            Some(text[..end.unwrap_or(text.len())].to_owned())
        });
        if let Some(name) = long {
            flags.push((format!("--{name}"), String::new(), String::new()));
        }
        let Some(flag) = flags.last_mut() else { continue };
        for (label, value) in [("[env: ", &mut flag.1), ("[default: ", &mut flag.2)] {
            if let Some((_, rest)) = line.split_once(label) {
                rest.split([']', '=']).next().unwrap_or_default().clone_into(value);
            }
        }
    }
    flags.retain(|(name, ..)| name != "--help" && name != "--version");
    flags.into_iter().collect()
}

/// The flags that the page lists below a heading.
fn listed(heading: &str) -> BTreeSet<Flag> {
    let cell = |row: &Vec<String>, column: usize| quoted(&row[column]).first().cloned().unwrap_or_default();
    rows(heading).iter().map(|row| (cell(row, 0), cell(row, 1), cell(row, 2))).collect()
}

fn compare(heading: &str, listed: &BTreeSet<Flag>, actual: &BTreeSet<Flag>) {
    let missing: Vec<_> = actual.difference(listed).collect();
    let invented: Vec<_> = listed.difference(actual).collect();
    assert!(
        missing.is_empty() && invented.is_empty(),
        "{heading}: missing {missing:#?}, not in --help {invented:#?}"
    );
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

#[test]
fn every_flag_of_every_command_is_listed_with_its_environment_variable_and_its_default() {
    let hub_addons = Path::new(env!("CARGO_BIN_EXE_hub-addons"));
    let kubectl_plugin = program("kubectl-clusterprofile");
    let of_plugin = listed("Flags of kubectl clusterprofile");
    let of_hub_addons = listed("Flags of hub-addons for these commands");
    let shared = commands(&help(&kubectl_plugin, None));
    for command in commands(&help(hub_addons, None)) {
        let actual = flags(&help(hub_addons, Some(&command)));
        if actual.is_empty() {
            continue;
        }
        let heading = format!("Flags of {command}");
        let mut expected = listed(&heading);
        if shared.contains(&command) {
            let mut expected = expected.clone();
            expected.extend(of_plugin.clone());
            compare(&heading, &expected, &flags(&help(&kubectl_plugin, Some(&command))));
        }
        if shared.contains(&command) {
            expected.extend(of_hub_addons.clone());
        }
        if command == "explain" {
            expected.extend(listed("Further flags of hub-addons explain"));
        }
        compare(&heading, &expected, &actual);
    }
}

#[test]
fn every_flag_of_cp_creds_is_listed() {
    let actual = flags(&help(cp_creds(), None));
    let names = |flags: BTreeSet<Flag>| flags.into_iter().map(|(name, ..)| name).collect::<BTreeSet<_>>();
    assert!(!actual.is_empty());
    assert_eq!(names(listed("Flags of cp-creds")), names(actual));
}
