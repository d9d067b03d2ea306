#!/usr/bin/env bash
# Runs random schedules of users, tenants, agents, crashes and faults against the real controllers on a simulated API
# server, and prints the results. Each failure is printed with its seed and the smallest schedule that still fails.
#
# usage: hack/robustness.sh [--schedules N] [--seed S] [--threads N] [--show 1] [--known 1]
#
#   --schedules  how many schedules, by default 10000
#   --seed       the first seed, by default 0
#   --threads    how many run at the same time, by default 2
#   --show 1     only the schedule of --seed, and what it breaks
#   --known 1    with the operations that meet known defects (SecretTenant in e2e/hub-sim/src/operation.rs)
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
cargo run --locked --quiet --profile sim --package hub-sim -- "$@"
