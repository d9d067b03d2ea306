#!/usr/bin/env bash
# Counts what controllers cost a hub: starts a hub, creates a fleet, runs the controllers through a cold start and
# further scenarios, and prints a table. Fails if a count deviates from the least that the API allows
# (docs/dev/benchmarks.md).
#
# usage: hack/bench.sh [--debug] [OPTION]...
#        hack/bench.sh --vary SIZE=NUMBER [OPTION]...   with this size, and with it doubled three times: what a cold
#                                                       start, a restart, heartbeats, lost clusters, versions and
#                                                       labels cost
#
#   --debug   programs without optimization: for counts, not for time and memory
#   OPTION    of hub-bench: --clusters N, --namespaces B, --accounts M, --scenarios LIST, and others that hack/bench.sh
#             --debug --help lists
#
# To measure other controllers on the same hub, for example only a projector:
#
#   hack/bench.sh --run 'PROGRAM --kubeconfig={kubeconfig}' --without access,credentials
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
target=${CARGO_TARGET_DIR:-target}
# The API server of a large fleet keeps much in memory, so it collects garbage as it does in production.
export GOGC=${GOGC:-100}
case ${1-} in -h | --help) sed -n '2,/^set/s/^# \{0,1\}//p' hack/bench.sh; exit ;; esac
if [ "${1-}" = --vary ]; then
  size=${2%=*} number=${2#*=}
  shift 2
  for factor in 1 2 4 8; do
    hack/bench.sh "--$size=$((number * factor))" --scenarios restart,heartbeats,losses,versions,labels "$@"
  done
  exit
fi
if [ "${1-}" = --debug ]; then
  shift
  # Built as hack/test.sh builds it, with the whole workspace: with other features Cargo compiles the dependencies again.
  cargo test --locked --quiet --workspace --features e2e --no-run --test limits --test projector >&2
  exec "$target/debug/hub-bench" "$@"
fi
cargo build --locked --quiet --release --package hub-bench
# The controllers as they are released.
case " $* " in *" --run"* | *" --program"*) ;; *) set -- --program "$(hack/program.sh hub-addons)" "$@" ;; esac
exec "$target/release/hub-bench" "$@"
