#!/usr/bin/env bash
# Prints the directory of etcd, kube-apiserver, kube-controller-manager and kubectl, for the end-to-end tests, the demo
# and the benchmark. Only that line goes to stdout:
#
#   bin="$(hack/control-plane.sh)" && "$bin/kubectl" version --client
#
# If $KUBEBUILDER_ASSETS is set, it is that directory. Otherwise the programs are built from e2e/kubernetes, once per
# content of that module, into the user's cache directory, where later calls find them.
#
# KUBERNETES_VERSION=v1.34.1 builds that version instead, and KUBERNETES_VERSION=oldest the oldest one that is tested
# (hack/versions.txt): from a module that is made of the requirements of that release, whose checksums Go verifies.
set -euo pipefail

programs=(etcd kube-apiserver kube-controller-manager kubectl)

hack="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
# shellcheck source=hack/once.sh
. "$hack/once.sh"

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

module="$(cd "$hack/../e2e/kubernetes" && pwd)"
pinned() { "$hack/versions.sh" get "$1" | cut -d' ' -f2; }
version="${KUBERNETES_VERSION:-$(pinned kubernetes)}"
[[ "$version" != oldest ]] || version="$(pinned kubernetes-oldest)"
[[ "$version" =~ ^v1\.[0-9]+\.[0-9]+$ ]] ||
  die "KUBERNETES_VERSION=$version is not a version such as v1.36.3, and not 'oldest'"

# Kubernetes requires its staging modules in version v0.0.0, and replaces them by directories that its module does not
# contain; and the same etcd for clients as for servers.
make_module() {
  local dir
  dir="$("$hack/go-download.sh" module "k8s.io/kubernetes@$version" | awk -F'"' '$2 == "Dir" { print $4 }')"
  [[ -n "$dir" ]] || die "cannot download Kubernetes $version"
  mkdir "$1"
  cp -r "$module/control-plane" "$1/"
  {
    printf 'module control-plane\n\ngo %s\n\n' "$(awk '$1 == "go" { print $2 }' "$dir/go.mod")"
    printf 'require k8s.io/kubernetes %s\n' "$version"
    awk '$1 == "go.etcd.io/etcd/client/v3" { print "require go.etcd.io/etcd/server/v3 " $2; exit }' "$dir/go.mod"
    awk -v version="v0.${version#v1.}" \
      '$2 == "=>" && $3 ~ /^\.\/staging\// { print "replace", $1, "=>", $1, version }' "$dir/go.mod"
  } >"$1/go.mod"
  (cd "$1" && GOWORK=off GOFLAGS='' go mod tidy)
}
build() {
  local name
  if ! is_pinned; then
    make_module "$1/module"
    module="$1/module"
  fi
  (cd "$module" && "$hack/go-download.sh" packages ./control-plane) || die "cannot download Kubernetes $version"
  go_build "$module" " -X k8s.io/component-base/version.gitVersion=$version" "$1/control-plane" ./control-plane
  for name in "${programs[@]}"; do ln -s control-plane "$1/$name"; done
  rm -rf "$1/module"
}

is_pinned() { [[ "$version" == "$(pinned kubernetes)" ]]; }
if is_pinned; then
  digest="$(cd "$module" && cat go.mod go.sum control-plane/main.go | sha256sum | cut -c1-12)"
else
  digest="$({ cat "$module/control-plane/main.go"; declare -f make_module build; } | sha256sum | cut -c1-12)"
fi
target="$cache/control-plane/$version-$digest"
if [[ -n "$(missing_from "$target")" ]] && ! command -v go >/dev/null; then
  die "building the control plane needs go, which is not installed." \
    "Install it, or set KUBEBUILDER_ASSETS to a directory with: ${programs[*]}."
fi
once "$target" kubectl "Kubernetes $version (about 4 minutes on two cores)" build
echo "$target"
