#!/usr/bin/env bash
# Prints the directory of etcd, kube-apiserver, kube-controller-manager and kubectl, for the end-to-end tests, the demo
# and the benchmark. Only that line goes to stdout:
#
#   bin="$(hack/control-plane.sh)" && "$bin/kubectl" version --client
#
# If $KUBEBUILDER_ASSETS is set, it is that directory. Otherwise the programs are built from e2e/control-plane, once per
# content of that module, into the user's cache directory, where later calls find them.
#
# KUBERNETES_VERSION=v1.34.1 builds that version instead, and KUBERNETES_VERSION=oldest the oldest one that is tested
# (hack/versions.txt): from a module that is made of the requirements of that release, whose checksums Go verifies.
set -euo pipefail

programs=(etcd kube-apiserver kube-controller-manager kubectl)

say() { printf 'control-plane: %s\n' "$*" >&2; }
die() { say "$@"; exit 1; }

# The programs that are missing in directory $1.
missing_from() {
  local name
  for name in "${programs[@]}"; do
    [[ -x "$1/$name" ]] || printf '%s ' "$name"
  done
}

if [[ -n "${KUBEBUILDER_ASSETS:-}" ]]; then
  [[ -d "$KUBEBUILDER_ASSETS" ]] || die "KUBEBUILDER_ASSETS=$KUBEBUILDER_ASSETS is not a directory"
  missing="$(missing_from "$KUBEBUILDER_ASSETS")"
  [[ -z "$missing" ]] || die "KUBEBUILDER_ASSETS=$KUBEBUILDER_ASSETS lacks: ${missing% }." \
    "Add them, or unset KUBEBUILDER_ASSETS to build all four from source."
  (cd "$KUBEBUILDER_ASSETS" && pwd)
  exit
fi

hack="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
module="$(cd "$hack/../e2e/control-plane" && pwd)"
pinned() { "$hack/versions.sh" get "$1" | cut -d' ' -f2; }
version="${KUBERNETES_VERSION:-$(pinned kubernetes)}"
[[ "$version" != oldest ]] || version="$(pinned kubernetes-oldest)"
[[ "$version" =~ ^v1\.[0-9]+\.[0-9]+$ ]] ||
  die "KUBERNETES_VERSION=$version is not a version such as v1.36.3, and not 'oldest'"
cache="${XDG_CACHE_HOME:-${HOME:?neither XDG_CACHE_HOME nor HOME is set}/.cache}/hub-addons/control-plane"
is_pinned() { [[ "$version" == "$(pinned kubernetes)" ]]; }
if is_pinned; then
  digest="$(cd "$module" && cat go.mod go.sum main.go | sha256sum | cut -c1-12)"
else
  digest="$(cat "$module/main.go" "$hack/control-plane.sh" | sha256sum | cut -c1-12)"
fi

target="$cache/$version-$digest"
is_built() { [[ -d "$target" && -z "$(missing_from "$target")" ]]; }
if is_built; then
  echo "$target"
  exit
fi

for tool in go flock; do
  command -v "$tool" >/dev/null ||
    die "building the control plane needs $tool, which is not installed." \
      "Install it, or set KUBEBUILDER_ASSETS to a directory with: ${programs[*]}."
done

# Kubernetes requires its staging modules in version v0.0.0, and replaces them by directories that its module does not
# contain; and the same etcd for clients as for servers.
make_module() {
  local dir
  dir="$("$hack/go-download.sh" module "k8s.io/kubernetes@$version" | awk -F'"' '$2 == "Dir" { print $4 }')"
  [[ -n "$dir" ]] || die "cannot download Kubernetes $version"
  mkdir -p "$1"
  cp "$module/main.go" "$1/"
  {
    printf 'module control-plane\n\ngo %s\n\n' "$(awk '$1 == "go" { print $2 }' "$dir/go.mod")"
    printf 'require k8s.io/kubernetes %s\n' "$version"
    awk '$1 == "go.etcd.io/etcd/client/v3" { print "require go.etcd.io/etcd/server/v3 " $2; exit }' "$dir/go.mod"
    awk -v version="v0.${version#v1.}" \
      '$2 == "=>" && $3 ~ /^\.\/staging\// { print "replace", $1, "=>", $1, version }' "$dir/go.mod"
  } >"$1/go.mod"
  (cd "$1" && GOWORK=off GOFLAGS='' go mod tidy) >&2
}
made=
if ! is_pinned; then
  made="$(mktemp -d)"
  trap 'rm -rf "$made"' EXIT
  make_module "$made"
  module="$made"
fi

(cd "$module" && "$hack/go-download.sh" packages .) || die "cannot download Kubernetes $version"

mkdir -p "$cache"
exec 9>"$target.lock"
if ! flock --nonblock 9; then
  say "another process is building Kubernetes $version; waiting for it"
  flock 9
fi
if is_built; then
  echo "$target"
  exit
fi

# This script holds the lock, so any files here are left from a killed build. go inherits the lock: if it outlives this
# script, the next caller still waits for it.
work="$target.building"
rm -rf "$work" "$target"
mkdir "$work"

trap 'rm -rf "$work" ${made:+"$made"}' EXIT

say "building Kubernetes $version from source, once: about 4 minutes on two cores"
start=$SECONDS

# The build must not depend on a parent go.work or on the state of the git tree.
if ! (cd "$module" && GOWORK=off CGO_ENABLED=0 go build -trimpath -buildvcs=false \
  -ldflags "-s -w -X k8s.io/component-base/version.gitVersion=$version" -o "$work/control-plane" .) >"$work/log" 2>&1; then
  tail -n 20 "$work/log" >&2
  die "the build failed"
fi
for name in "${programs[@]}"; do ln -s control-plane "$work/$name"; done
rm "$work/log"
mv "$work" "$target"
say "built in $((SECONDS - start)) s: $target"
echo "$target"
