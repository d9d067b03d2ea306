#!/usr/bin/env bash
# Prints the path of a Go program that tests need, built from its own module once into the user's cache directory, where
# later calls find it. Only that line goes to stdout:
#
#   helm="$(hack/go-program.sh helm)" && "$helm" version
#
# With --source, it prints the directory of the program's module, which also has the manifests of its release. With
# --download, it downloads what the program is built from, and prints nothing.
set -euo pipefail

usage() {
  cat >&2 <<'EOF'
usage: hack/go-program.sh [--source | --download] PROGRAM

  actionlint, argocd, cluster-proxy, cluster-proxy-agent, cluster-proxy-manager, containerd, containerd-shim, ctr, helm,
  helm3, krew, kube-router, kueue, managed-serviceaccount, promtool, proxy-agent, proxy-server, registration
  (versions: hack/versions.txt)
EOF
  exit 2
}
say() { printf 'go-program: %s\n' "$*" >&2; }
die() { say "$@"; exit 1; }

wanted=program
case ${1-} in
  --source | --download) wanted=${1#--}; shift ;;
esac
[ $# -eq 1 ] || usage
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
read -r package version pin < <("$root/hack/versions.sh" get "$1" 2>/dev/null) || usage
case ${package-} in */cmd*) ;; *) usage ;; esac
# A program of the name is used where the variable of its name names one, such as HELM.
given=${1^^} given=${given//-/_} given=${!given-}
# Upstream's programs are built in their own modules, whose go.sum pins what they require. Where such a module has replace
# directives, a module of ours requires it.
module='' sum=''
case $pin in e2e/*) module=$root/$pin ;; *) sum=$pin ;; esac

# fetch: prints the directory of the program's module in Go's module cache, if the content is as expected.
fetch() {
  local path=${package%%/cmd*} download
  download=$("$root/hack/go-download.sh" module "$path@$version") || die "cannot download $path@$version"
  field() { awk -F'"' -v name="$1" '$2 == name { print $4 }' <<<"$download"; }
  [ -z "$sum" ] || [ "$(field Sum)" = "$sum" ] || die "$path@$version has the checksum $(field Sum), expected $sum"
  field Dir
}

if [ "$wanted" = source ]; then
  fetch
  exit
fi
if [ -n "$given" ]; then
  command -v "$given" || die "program $given does not exist"
  exit
fi

cache="${XDG_CACHE_HOME:-${HOME:?neither XDG_CACHE_HOME nor HOME is set}/.cache}/hub-addons/go-programs"
directory="$cache/$1-$version"
[ -z "$module" ] || directory+=-$(cat "$module/go.mod" "$module/go.sum" | sha256sum | cut -c1-12)
program="$directory/${package##*/}"

# download: gets what the program is built from, and prints the directory in which it is built.
download() {
  local directory=$module
  [ -n "$directory" ] || directory=$(fetch)
  (cd "$directory" && "$root/hack/go-download.sh" packages "$package") || exit 1
  echo "$directory"
}

if [ "$wanted" = download ]; then
  [ -x "$program" ] || download >/dev/null
  exit
fi
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
  sources=$(download)
  (
    cd "$sources"
    GOWORK=off GOFLAGS='' CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "-s -w" -o "$work" "$package"
  ) >&2
  rm -rf "$directory"
  mv "$work" "$directory"
fi
echo "$program"
