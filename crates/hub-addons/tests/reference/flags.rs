//! The tables of flags are what `--help` prints: names, environment variables, defaults, and the first paragraph of each
//! text, to which the page adds markup. `RECORD=1` writes them.

#![cfg(test)]

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use super::page::{quoted, rows};
use super::plugin::{cp_creds, program};
use super::record::record;

/// A flag in the output of `--help`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Flag {
    name: String,
    variable: String,
    default: String,
    meaning: String,
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
        let is_flag = line.starts_with("  ") && line.len() - text.len() <= 6;
        let long = text.strip_prefix('-').filter(|_| is_flag).and_then(|text| {
            let text = text.strip_prefix('-').or_else(|| text.split_once(", --").map(|(_, long)| long))?;
            let end = text.find(|c: char| !c.is_ascii_lowercase() && c != '-');
            Some(text[..end.unwrap_or(text.len())].to_owned())
        });
        if let Some(name) = long {
            let name = format!("--{name}");
            flags.push(Flag {
                name,
                variable: String::new(),
                default: String::new(),
                meaning: String::new(),
            });
            continue;
        }
        let Some(flag) = flags.last_mut() else { continue };
        if flag.meaning.is_empty() {
            text.clone_into(&mut flag.meaning);
        }
        for (label, value) in [("[env: ", &mut flag.variable), ("[default: ", &mut flag.default)] {
            if let Some((_, rest)) = line.split_once(label) {
                rest.split([']', '=']).next().unwrap_or_default().clone_into(value);
            }
        }
    }
    flags.retain(|flag| flag.name != "--help" && flag.name != "--version");
    flags
}

/// A cell without markup and its full stop.
fn plain(cell: &str) -> String {
    let mut plain = String::new();
    let mut rest = cell;
    while let Some((before, link)) = rest.split_once('[') {
        let Some((text, after)) =
            link.split_once("](").and_then(|(text, link)| Some((text, link.split_once(')')?.1)))
        else {
            break;
        };
        plain.push_str(before);
        plain.push_str(text);
        rest = after;
    }
    plain.push_str(rest);
    plain.replace('`', "").trim_end_matches('.').to_owned()
}

/// The table below a heading lists exactly these flags, in this order.
fn compare(heading: &str, actual: &[Flag]) {
    let listed = rows(heading);
    let marked_up = |flag: &Flag| {
        let meaning = plain(&flag.meaning);
        let same = listed.iter().map(|row| &row[3]).find(|listed| plain(listed) == meaning);
        same.cloned().unwrap_or_else(|| format!("{meaning}."))
    };
    let code = |text: &str| if text.is_empty() { String::new() } else { format!("`{text}`") };
    let expected: Vec<Vec<String>> = actual
        .iter()
        .map(|flag| vec![code(&flag.name), code(&flag.variable), code(&flag.default), marked_up(flag)])
        .collect();
    if record(heading, &expected) {
        return;
    }
    for (expected, listed) in expected.iter().zip(&listed) {
        assert_eq!(expected, listed, "{heading}: run RECORD=1 cargo test --test reference");
    }
    assert_eq!(expected.len(), listed.len(), "{heading}: run RECORD=1 cargo test --test reference");
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
    let shared: Vec<_> = commands(&help(&kubectl_plugin, None))
        .into_iter()
        .map(|command| (flags_of(&kubectl_plugin, &command), flags_of(hub_addons, &command), command))
        .filter(|(of_plugin, of_hub_addons, _)| !of_plugin.is_empty() && !of_hub_addons.is_empty())
        .collect();
    let of_plugin = common(shared.iter().map(|(of_plugin, ..)| of_plugin));
    let of_hub_addons = common(shared.iter().map(|(_, of_hub_addons, _)| of_hub_addons));
    compare("Flags of kubectl clusterprofile", &of_plugin);
    compare("Flags of hub-addons for these commands", &of_hub_addons);
    for (with_plugin, with_hub_addons, command) in &shared {
        let own = without(with_plugin, &of_plugin);
        compare(&format!("Flags of {command}"), &own);
        let further = without(&without(with_hub_addons, &of_hub_addons), &own);
        if command == "explain" {
            compare("Further flags of hub-addons explain", &further);
        } else {
            assert_eq!(further, [], "{command}");
        }
        assert_eq!(without(&own, with_hub_addons), [], "{command}");
    }
    for command in commands(&help(hub_addons, None)) {
        let flags = flags_of(hub_addons, &command);
        if !flags.is_empty() && shared.iter().all(|(.., shared)| *shared != command) {
            compare(&format!("Flags of {command}"), &flags);
        }
    }
}

#[test]
fn every_flag_of_cp_creds_is_listed() {
    let actual: BTreeSet<_> = flags(&help(cp_creds(), None)).into_iter().map(|flag| flag.name).collect();
    assert!(!actual.is_empty());
    let listed = rows("Flags of cp-creds");
    assert_eq!(listed.iter().map(|row| quoted(&row[0])[0].clone()).collect::<BTreeSet<_>>(), actual);
}
