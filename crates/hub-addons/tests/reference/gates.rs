//! The table of gates is what `run --help` prints.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use super::table::{code, compare, sentence};

fn help(program: &Path) -> String {
    let output =
        Command::new(program).args(["run", "--help"]).env("COLUMNS", "10000").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
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
    let described: BTreeSet<_> = gates
        .iter()
        .map(|gate| format!("{} (default {})", unquoted(&gate[0]), unquoted(&gate[1])))
        .collect();
    assert_eq!(described.iter().map(String::as_str).collect::<BTreeSet<_>>(), known);
}
