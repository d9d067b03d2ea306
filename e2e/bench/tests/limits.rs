//! The requests of every scenario, at the default size of the benchmark.

use std::path::Path;
use std::process::Command;

/// The counts are asserted by the program, which prints the deviations.
#[test]
fn no_scenario_costs_the_hub_more_than_the_api_requires() {
    let bench = Path::new(env!("CARGO_BIN_EXE_hub-bench"));
    let controllers = bench.with_file_name("hub-addons");
    assert!(controllers.exists(), "{} is missing: build hub-addons first", controllers.display());
    let output = Command::new(bench).args(["--idle=3"]).output().unwrap();
    let (table, progress) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    println!("{table}");
    assert!(output.status.success(), "{progress}");
}
