//! The requests of every scenario, at the default size of the benchmark.

use std::io;
use std::path::Path;
use std::process::{Command, Output};

/// Runs the program, which prints the deviations of the counts and then fails, with the controllers beside it.
fn bench(arguments: &[&str]) -> io::Result<Output> {
    let bench = Path::new(env!("CARGO_BIN_EXE_hub-bench"));
    let controllers = bench.with_file_name("hub-addons");
    assert!(controllers.exists(), "{} is missing: build hub-addons first", controllers.display());
    Command::new(bench).args(arguments).output()
}

#[test]
fn no_scenario_costs_the_hub_more_than_the_api_requires() {
    let output = bench(&["--idle=3"]).unwrap();
    println!("{}", String::from_utf8_lossy(&output.stdout));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn the_controllers_start_twice_on_a_server_in_memory() {
    let output = bench(&["--in-memory", "--clusters=5"]).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
