#!/usr/bin/env bash
# What cp-creds costs its caller: size, peak memory and time, beside a peer's if one is given.
set -euo pipefail

usage() {
  cat <<'USAGE'
usage: hack/measure-cp-creds.sh [PEER [ARG]...]

Builds cp-creds as it is shipped (static, profile plugin) and runs it RUNS times (100) against a hub. PEER is another
plugin's program; without ARGs it is called as cp-creds is.

The hub is one of a single Secret, started here; with KUBECONFIG set it is that one, which needs the Secret
cluster1-multikueue in the context's namespace. cp-creds runs in an empty root once, if that is allowed here.
USAGE
}

case ${1-} in -h | --help) usage; exit ;; esac
cd "$(dirname "${BASH_SOURCE[0]}")/.."
runs=${RUNS:-100}
work=$(mktemp -d)
hub=
trap '[ -z "$hub" ] || kill "$hub"; rm -rf "$work"' EXIT

# musl first: smaller, and its resolver needs nothing but /etc/resolv.conf. ring's C code asks nothing of a C library, so
# the host's compiler does.
arch=$(uname -m)
if rustup target list --installed | grep -qx "$arch-unknown-linux-musl"; then
  target=$arch-unknown-linux-musl
  export "CC_${arch}_unknown_linux_musl=${CC:-cc}"
else
  target=$arch-unknown-linux-gnu
  export RUSTFLAGS="-C target-feature=+crt-static"
fi
cargo build --locked --package cp-creds --profile plugin --target "$target"
plugin=${CARGO_TARGET_DIR:-target}/$target/plugin/cp-creds
unset RUSTFLAGS

if [ -z "${KUBECONFIG-}" ]; then
  cargo build --locked --quiet --package cp-creds --example one_secret_hub
  "${CARGO_TARGET_DIR:-target}/debug/examples/one_secret_hub" "$work/kubeconfig" &
  hub=$!
  export KUBECONFIG=$work/kubeconfig
  until [ -s "$KUBECONFIG" ]; do
    kill -0 "$hub"
    sleep 0.05
  done
fi
export KUBERNETES_EXEC_INFO='{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1",
  "spec":{"interactive":false,"cluster":{"server":"https://unused","config":{"clusterName":"cluster1"}}}}'
unset KUBERNETES_SERVICE_HOST KUBERNETES_SERVICE_PORT

# measure NAME PROGRAM [ARG]...
measure() {
  local name=$1 began ended i peak=unknown
  shift
  "$@" >"$work/answer" || { echo "$name does not answer" >&2; return 1; }
  began=${EPOCHREALTIME/./}
  for ((i = 0; i < runs; i++)); do "$@" >"$work/answer"; done
  ended=${EPOCHREALTIME/./}
  if [ -x /usr/bin/time ]; then
    for ((i = 0; i < 10; i++)); do /usr/bin/time -a -o "$work/peak.$name" -f %M "$@" >"$work/answer"; done
    peak=$(sort -n "$work/peak.$name" | tail -1)
  fi
  awk -v name="$name" -v size="$(stat -L -c %s "$1")" -v peak="$peak" -v us="$((ended - began))" -v runs="$runs" 'BEGIN {
    printf "%-10s %6.2f MB  peak %s KiB  wall %.2f ms (mean of %d, with fork and exec)\n", name, size / 1e6, peak, us / runs / 1e3, runs }'
}

echo "cp-creds built for $target"
measure cp-creds "$plugin" --managed-serviceaccount=multikueue
if [ $# -gt 0 ]; then
  peer=$(command -v "$1")
  shift
  [ $# -gt 0 ] || set -- --managed-serviceaccount=multikueue
  measure peer "$peer" "$@"
fi

root=$work/root
mkdir "$root"
cp "$plugin" "$KUBECONFIG" "$root"
if KUBECONFIG=/$(basename "$KUBECONFIG") chroot "$root" /cp-creds --managed-serviceaccount=multikueue >"$work/answer"; then
  echo "cp-creds answers in a root that holds nothing but itself and its kubeconfig"
else
  echo "SKIPPED cp-creds in an empty root: chroot is not allowed, or the kubeconfig names other files"
fi
