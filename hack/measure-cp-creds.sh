#!/usr/bin/env bash
# Measures cp-creds: size, peak memory and time, compared with a peer that uses client-go.
set -euo pipefail

usage() {
  cat <<'USAGE'
usage: hack/measure-cp-creds.sh [--no-peer] [--strict] [PEER [ARG]...]

Builds cp-creds as released (static, profile plugin) and runs it and a peer in turn, RUNS times each (100), against a
hub. The peer is e2e/plugin-peer, built here if go is installed, or PEER, another plugin's program; without ARGs it is
called like cp-creds.

Fails if cp-creds is larger than 3 MB, uses more than 6 MiB, is not static, or does not work in a root with only itself
and its kubeconfig; with --strict also if its wall time exceeds a quarter of the peer's. Checks that cannot run here are
reported as SKIPPED.

The hub is a local one with a single Secret; with KUBECONFIG set it is that one, which needs the Secret
cluster1-multikueue in the context's namespace.
USAGE
}

# Bytes, KiB, and percent of the peer's.
size_max=3000000
peak_max=$((6 << 10))
wall_max=25
call=(--managed-serviceaccount=multikueue)

strict='' with_peer=yes
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) usage; exit ;;
    --strict) strict=yes ;;
    --no-peer) with_peer='' ;;
    -*) usage >&2; exit 2 ;;
    *) break ;;
  esac
  shift
done
cd "$(dirname "${BASH_SOURCE[0]}")/.."
runs=${RUNS:-100}
built=${CARGO_TARGET_DIR:-target}
work=$(mktemp -d)
hub=
trap '[ -z "$hub" ] || kill "$hub"; rm -rf "$work"' EXIT
failures=0

die() { echo "$*" >&2; exit 1; }
fail() { failures=$((failures + 1)); echo "FAILED, $*"; }
# In the format that hack/test.sh counts.
skip() { echo "SKIPPED, $*"; }

# The path of the peer, and its arguments.
find_peer() {
  peer=()
  if [ $# -gt 0 ]; then
    peer=("$(command -v "$1")" "${@:2}") || die "program $1 does not exist"
    [ $# -gt 1 ] || peer+=("${call[@]}")
  elif [ -n "$with_peer" ] && command -v go >/dev/null; then
    (cd e2e/plugin-peer && GOWORK=off CGO_ENABLED=0 \
      go build -trimpath -buildvcs=false -ldflags "-s -w" -o "$work/plugin-peer" .)
    peer=("$work/plugin-peer" "${call[@]}")
  elif [ -n "$with_peer" ]; then
    skip "cp-creds beside its peer: go is not installed"
  fi
  [ -z "$strict" ] || [ ${#peer[@]} -gt 0 ] || die "--strict requires a peer"
}

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

# row NAME FILE PEAK WALL LEAST CPU
row() {
  awk -v name="$1" -v size="$(stat -L -c %s "$2")" -v peak="$3" -v wall="$4" -v least="$5" -v cpu="$6" 'BEGIN {
    printf "%-9s %6.2f MB  peak %6d KiB  wall %6.2f ms, at least %6.2f ms  CPU %6.2f ms\n",
      name, size / 1e6, peak, wall / 1e3, least / 1e3, cpu / 1e3 }'
}

measure() {
  local token programs=("$plugin" "${call[@]}") peak wall least cpu peer_peak peer_wall peer_least peer_cpu
  token=$(token_of "${programs[@]}")
  [ -n "$token" ] || die "cp-creds fails"
  if [ ${#peer[@]} -gt 0 ]; then
    [ "$(token_of "${peer[@]}")" = "$token" ] || die "the peer returns another token than cp-creds"
    programs+=(-- "${peer[@]}")
  fi
  "$built/release/examples/measure" "$runs" "${programs[@]}" >"$work/figures"
  {
    read -r peak wall least cpu
    read -r peer_peak peer_wall peer_least peer_cpu || true
  } <"$work/figures"
  echo "medians of $runs runs, with fork and exec; memory is the maximum"
  row cp-creds "$plugin" "$peak" "$wall" "$least" "$cpu"
  [ "$peak" -le $peak_max ] || fail "cp-creds uses $peak KiB of memory, more than $peak_max"
  [ -n "$peer_peak" ] || return 0
  row peer "${peer[0]}" "$peer_peak" "$peer_wall" "$peer_least" "$peer_cpu"
  echo "compared with the peer, cp-creds takes $((100 * wall / peer_wall)) % of the wall time," \
    "$((100 * cpu / peer_cpu)) % of the CPU time, $((100 * peak / peer_peak)) % of the memory"
  if [ -n "$strict" ] && [ $((100 * wall)) -gt $((wall_max * peer_wall)) ]; then
    fail "cp-creds takes more than $wall_max % of the peer's wall time"
  fi
}

check_file() {
  local size
  size=$(stat -c %s "$plugin")
  [ "$size" -le $size_max ] || fail "cp-creds has $size bytes, more than $size_max"
  if ! command -v readelf >/dev/null; then
    skip "whether cp-creds is static: readelf is not installed"
  elif readelf --wide --program-headers --dynamic "$plugin" | grep -E 'INTERP|NEEDED'; then
    fail "cp-creds is not static"
  else
    echo "cp-creds is static"
  fi
}

check_empty_root() {
  local root=$work/root enter=()
  # Without root, use a user namespace, and a path with sbin.
  [ "$(id -u)" = 0 ] || enter=(unshare --map-root-user)
  local PATH=$PATH:/usr/sbin:/sbin
  if ! "${enter[@]}" chroot / true 2>/dev/null; then
    skip "cp-creds in an empty root: chroot is not allowed here"
    return
  fi
  mkdir "$root"
  cp "$plugin" "$root/cp-creds"
  cp "$KUBECONFIG" "$root/kubeconfig"
  if KUBECONFIG=/kubeconfig "${enter[@]}" chroot "$root" /cp-creds "${call[@]}" >"$work/answer"; then
    echo "cp-creds works in a root with only itself and its kubeconfig"
  elif [ -z "$hub" ]; then
    skip "cp-creds in an empty root: the given kubeconfig may refer to other files"
  else
    fail "cp-creds fails in an empty root"
  fi
}

plugin=$(hack/program.sh cp-creds)
find_peer "$@"
# Optimized, as real hubs are: the hub's part of the handshake counts for the plugin's wall time.
cargo build --locked --quiet --release --package cp-creds --examples
unset KUBERNETES_SERVICE_HOST KUBERNETES_SERVICE_PORT
export KUBERNETES_EXEC_INFO='{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1",
  "spec":{"interactive":false,"cluster":{"server":"https://unused","config":{"clusterName":"cluster1"}}}}'
[ -n "${KUBECONFIG-}" ] || start_hub

check_file
measure
check_empty_root
[ $failures = 0 ]
