//! The requests of every scenario, at the default size of the benchmark.

use std::path::Path;
use std::process::Command;

/// What the program prints, which fails if a count deviates.
fn bench(arguments: &[&str]) {
    let bench = Path::new(env!("CARGO_BIN_EXE_hub-bench"));
    let controllers = bench.with_file_name("hub-addons");
    assert!(controllers.exists(), "{} is missing: build hub-addons first", controllers.display());
    let output = Command::new(bench).args(arguments).output().unwrap();
    let (table, progress) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    println!("{table}");
    assert!(output.status.success(), "{progress}");
}

#[test]
fn no_scenario_costs_the_hub_more_than_the_api_requires() {
    bench(&["--idle=3"]);
}

#[test]
fn the_controllers_start_twice_on_a_server_in_memory() {
    bench(&["--in-memory", "--clusters=5"]);
}
