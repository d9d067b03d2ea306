#!/usr/bin/env bash
# Measures cp-creds: size, peak memory and time. Builds it as released (static, profile plugin) and runs it RUNS times
# (100) against a hub. Fails if it is larger than 3 MB or uses more than 6 MiB.
set -euo pipefail

# Bytes, and KiB.
size_max=3000000
peak_max=$((6 << 10))
call=(--managed-serviceaccount=multikueue)

cd "$(dirname "${BASH_SOURCE[0]}")/.."
runs=${RUNS:-100}
built=${CARGO_TARGET_DIR:-target}
work=$(mktemp -d)
hub=
trap '[ -z "$hub" ] || kill "$hub"; rm -rf "$work"' EXIT
failures=0

die() { echo "$*" >&2; exit 1; }
fail() { failures=$((failures + 1)); echo "FAILED, $*"; }

start_hub() {
  "$built/release/examples/one_secret_hub" "$work/kubeconfig" &
  hub=$!
  export KUBECONFIG=$work/kubeconfig
  unset NAMESPACE
  until [ -s "$KUBECONFIG" ]; do
    kill -0 "$hub"
    sleep 0.05
  done
}

# The token that a plugin returns.
token_of() { "$@" | sed -n 's/.*"token": *"\([^"]*\)".*/\1/p'; }

measure() {
  local peak wall least cpu
  [ -n "$(token_of "$plugin" "${call[@]}")" ] || die "cp-creds fails"
  read -r peak wall least cpu < <("$built/release/examples/measure" "$runs" "$plugin" "${call[@]}")
  echo "medians of $runs runs, with fork and exec; memory is the maximum"
  awk -v size="$size" -v peak="$peak" -v wall="$wall" -v least="$least" -v cpu="$cpu" 'BEGIN {
    printf "cp-creds %6.2f MB  peak %6d KiB  wall %6.2f ms, at least %6.2f ms  CPU %6.2f ms\n",
      size / 1e6, peak, wall / 1e3, least / 1e3, cpu / 1e3 }'
  [ "$peak" -le $peak_max ] || fail "cp-creds uses $peak KiB of memory, more than $peak_max"
}

plugin=$(hack/program.sh cp-creds)
# Optimized, as real hubs are: the hub's part of the handshake counts for the plugin's wall time.
cargo build --locked --quiet --release --package cp-creds --examples
unset KUBERNETES_SERVICE_HOST KUBERNETES_SERVICE_PORT
export KUBERNETES_EXEC_INFO='{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1",
  "spec":{"interactive":false,"cluster":{"server":"https://unused","config":{"clusterName":"cluster1"}}}}'
start_hub

size=$(stat -L -c %s "$plugin")
[ "$size" -le $size_max ] || fail "cp-creds has $size bytes, more than $size_max"
measure
[ $failures = 0 ]
