#!/usr/bin/env bash
# Measures cp-creds: size, peak memory and time.
set -euo pipefail

usage() {
  cat <<'USAGE'
usage: hack/measure-cp-creds.sh

Builds cp-creds as released (static, profile plugin) and runs it RUNS times (100) against a hub. Fails if cp-creds is
larger than 3 MB, uses more than 6 MiB, is not static, or does not work in a root with only itself and its kubeconfig.
Checks that cannot run here are reported as SKIPPED.

The hub is a local one with a single Secret; with KUBECONFIG set it is that one, which needs the Secret
cluster1-multikueue in the context's namespace.
USAGE
}

# Bytes, and KiB.
size_max=3000000
peak_max=$((6 << 10))
call=(--managed-serviceaccount=multikueue)

case ${1-} in
  '') ;;
  -h | --help) usage; exit ;;
  *) usage >&2; exit 2 ;;
esac
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
  awk -v size="$(stat -L -c %s "$plugin")" -v peak="$peak" -v wall="$wall" -v least="$least" -v cpu="$cpu" 'BEGIN {
    printf "cp-creds %6.2f MB  peak %6d KiB  wall %6.2f ms, at least %6.2f ms  CPU %6.2f ms\n",
      size / 1e6, peak, wall / 1e3, least / 1e3, cpu / 1e3 }'
  [ "$peak" -le $peak_max ] || fail "cp-creds uses $peak KiB of memory, more than $peak_max"
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
