#!/usr/bin/env bash
# Runs random schedules of users, tenants, agents, crashes and faults against the real controllers on a simulated API
# server, and prints the results. Each failure is printed with its seed and the smallest schedule that still fails.
#
# usage: hack/robustness.sh [--schedules N] [--seed S] [--threads N] [--show 1]
#
#   --schedules  number of schedules (default 10000); with 5000 or more, every kind of operation and fault must occur
#   --seed       first seed (default 0)
#   --threads    number of threads (default 2)
#   --show 1     print only the schedule of --seed, its requests and its failures
#
# Then it prints how many crashes at a write were tried (e2e/hub-sim/tests/crashes.rs), and how many requests were compared
# with a real API server (tests/validation).
#
# usage: hack/robustness.sh fuzz [--seconds N]
#
# Has libFuzzer invent what a proxy server sends to the user server, guided by the coverage of the code that reads it
# (e2e/fuzz; default 300 seconds). Needs a C++ compiler. What it has learned stays in target/fuzz/corpus.
#
# usage: hack/robustness.sh mutants [controllers] [OPTION]...
#
# Changes the code of hub-core, hub-process and hub-runtime in one place after another, and prints each change that no test of its
# crate notices; or the code of the controllers' crates, and each change that neither their tests nor the simulation
# notice. Each of the two takes a day; options of cargo-mutants limit them, such as --re Election, --in-diff FILE,
# --file crates/hub-runtime/src/host/lease.rs or, without "controllers", --package hub-core. The results are in
# target/mutants.out.
set -euo pipefail

usage() { sed -n '2,/^set/s/^# \{0,1\}//p' "$PWD/hack/robustness.sh"; }

cd "$(dirname "${BASH_SOURCE[0]}")/.."
case ${1-} in -h | --help) usage; exit ;; esac
if [ "${1-}" = mutants ]; then
  shift
  mutants=$(hack/cargo-program.sh cargo-mutants)
  mkdir -p target
  # Most of a mutant's build and tests is the same as before.
  export CARGO_INCREMENTAL=1
  if [ "${1-}" = controllers ]; then
    shift
    for crate in access-provisioner consumer-access credential-rights credential-syncer profile-projector; do
      set -- --package "$crate" --test-package "$crate" "$@"
    done
    # Its run without a mutant would be without the simulation.
    exec "$mutants" mutants --output target --config .cargo/mutants-controllers.toml --test-package hub-sim \
      --baseline skip --timeout 300 "$@"
  fi
  case " $* " in *' --package'[\ =]* | *' -p '*) ;; *) set -- --package hub-core --package hub-process --package hub-runtime "$@" ;; esac
  # A mutant that 32 cases do not notice is rare.
  export PROPTEST_CASES=${PROPTEST_CASES:-32}
  exec "$mutants" mutants --output target "$@"
fi
if [ "${1-}" = fuzz ]; then
  shift
  seconds=300
  [ "${1-}" != --seconds ] || seconds=$2
  passes='-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4'
  passes+=' -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table'
  passes+=' -Cllvm-args=-sanitizer-coverage-trace-compares'
  # For a target, so that build scripts are not instrumented.
  host=$(rustc --version --verbose | sed -n 's/^host: //p')
  mkdir -p target/fuzz/corpus
  RUSTFLAGS=$passes cargo build --locked --release --manifest-path e2e/fuzz/Cargo.toml --target "$host" \
    --target-dir target/fuzz
  exec "target/fuzz/$host/release/packets" target/fuzz/corpus -artifact_prefix=target/fuzz/ \
    "-max_total_time=$seconds" -max_len=4096 -timeout=10 -print_final_stats=1
fi
# As hack/test.sh builds them: with other features Cargo compiles the dependencies again.
simulation() { cargo test --locked --quiet --profile sim --package hub-sim --features e2e --test crashes "$@"; }
simulation --no-run
"${CARGO_TARGET_DIR:-target}/sim/hub-sim" "$@"
case " $* " in *' --show '*) exit ;; esac
{
  simulation -- --nocapture
  cargo test --locked --quiet --workspace --features e2e --test validation -- --nocapture
} | grep -oE '([0-9]+ (crashes|sequences|graphs) .*|lists, continue tokens .*)'
