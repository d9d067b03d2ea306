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
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
cargo run --locked --quiet --profile sim --package hub-sim -- "$@"
