#!/usr/bin/env bash
# Prints the path of a Go program that tests need, built from its own module once into the user's cache directory, where
# later calls find it. Only that line goes to stdout:
#
#   helm="$(hack/go-program.sh helm)" && "$helm" version
set -euo pipefail

usage() { echo "usage: hack/go-program.sh helm | helm3 | promtool" >&2; exit 2; }
say() { printf 'go-program: %s\n' "$*" >&2; }
die() { say "$@"; exit 1; }

[ $# -eq 1 ] || usage
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
module=
case $1 in
  helm) package=helm.sh/helm/v4/cmd/helm version=v4.3.1 given=${HELM-} ;;
  helm3) package=helm.sh/helm/v3/cmd/helm version=v3.22.0 given=${HELM3-} ;;
  # Its own module has replace directives, which go install does not allow; our module requires it and has none.
  promtool) package=github.com/prometheus/prometheus/cmd/promtool module=$root/e2e/promtool given=${PROMTOOL-} ;;
  *) usage ;;
esac
if [ -n "$given" ]; then
  command -v "$given" || die "program $given does not exist"
  exit
fi

[ -z "$module" ] || version=$(awk -v path="${package%/cmd/*}" '$1 == path { print $2; exit }' "$module/go.mod")
cache="${XDG_CACHE_HOME:-${HOME:?neither XDG_CACHE_HOME nor HOME is set}/.cache}/hub-addons/go-programs"
directory="$cache/$1-$version"
program="$directory/${package##*/}"
if [ ! -x "$program" ]; then
  for tool in go flock; do
    command -v "$tool" >/dev/null || die "building $1 needs $tool, which is not installed"
  done
  mkdir -p "$cache"
  # go inherits the lock: if it outlives this script, the next caller still waits for it.
  exec 9>"$directory.lock"
  flock 9
fi
if [ ! -x "$program" ]; then
  say "building $1 $version from source, once: some minutes on two cores"
  work="$directory.building"
  rm -rf "$work"
  trap 'rm -rf "$work"' EXIT
  mkdir "$work"
  (
    export GOBIN="$work" GOWORK=off GOFLAGS='' CGO_ENABLED=0
    if [ -n "$module" ]; then
      cd "$module"
      go build -trimpath -buildvcs=false -ldflags "-s -w" -o "$work" "$package"
    else
      go install -trimpath -ldflags "-s -w" "$package@$version"
    fi
  ) >&2
  rm -rf "$directory"
  mv "$work" "$directory"
fi
echo "$program"
