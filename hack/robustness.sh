#!/usr/bin/env bash
# Runs random schedules of users, tenants, agents, crashes and faults against the real controllers on a simulated API
# server, and prints the results. Each failure is printed with its seed and the smallest schedule that still fails.
#
# usage: hack/robustness.sh [--schedules N] [--seed S] [--threads N] [--show 1] [--known 1]
#
#   --schedules  number of schedules (default 10000)
#   --seed       first seed (default 0)
#   --threads    number of threads (default 2)
#   --show 1     print only the schedule of --seed, and its failures
#   --known 1    include the operations of known defects (SecretTenant in e2e/hub-sim/src/operation.rs)
#
# usage: hack/robustness.sh real [--seconds N] [--seed S]
#
# Runs the real program on a real API server instead: it is killed before and after each of its writes, its requests
# fail, the hub's programs are killed and stopped under load, and a tenant fills its namespace with large Secrets. Prints
# what was tried as a table, and fails with the first thing that did not converge.
#
#   --seconds  how long one request in ten fails, by default 600
#   --seed     of the faults and of the work meanwhile, by default 1
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
if [ "${1-}" = real ]; then
  shift
  while [ $# -gt 0 ]; do
    case $1 in
      --seconds) export BAD_DAYS_FAULT_SECONDS=$2 ;;
      --seed) export BAD_DAYS_SEED=$2 ;;
      *) sed -n '2,/^set/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
    esac
    shift 2
  done
  export BAD_DAYS_FAULT_SECONDS=${BAD_DAYS_FAULT_SECONDS:-600} BAD_DAYS_LARGE_SECRETS=1 RUST_TEST_THREADS=1
  log=$(mktemp)
  trap 'rm -f "$log"' EXIT
  run() { cargo test --locked --quiet --package hub-addons --test "$@" -- --nocapture >>"$log" 2>&1; }
  if ! { run bad_days && run credentials memory::; }; then
    cat "$log" >&2
    exit 1
  fi
  printf '| what happened | tried | result |\n|---|---|---|\n'
  grep -o '| .* |$' "$log"
  exit
fi
cargo run --locked --quiet --profile sim --package hub-sim -- "$@"
