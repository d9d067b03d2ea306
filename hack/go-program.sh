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

  actionlint, argocd, cluster-proxy, cluster-proxy-agent, cluster-proxy-manager, helm, helm3, krew, kueue, managed-serviceaccount,
  promtool, proxy-agent, proxy-server, registration
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
module='' sum=''
case $1 in
  actionlint)
    package=github.com/rhysd/actionlint/cmd/actionlint version=v1.7.12 given=${ACTIONLINT-}
    sum=h1:vQ4GeJN86C0QH+gTUQcs8McmK62OLT3kmakPMtEWYnY=
    ;;
  helm)
    package=helm.sh/helm/v4/cmd/helm version=v4.3.1 given=${HELM-}
    sum=h1:UndCoLe9UPmNoL7IvWzaUXveL7T5t/ijoorEmgJdI9g=
    ;;
  helm3)
    package=helm.sh/helm/v3/cmd/helm version=v3.22.0 given=${HELM3-}
    sum=h1:n1if5iQgHYsujPAcO5oonH/KiSNUmqmUF0iGVjSF3AU=
    ;;
  krew)
    package=sigs.k8s.io/krew/cmd/krew version=v0.5.0 given=${KREW-}
    sum=h1:60yffZy8Mkif5ty13uLxxr5wzu8eY860AkeyaFyp4PY=
    ;;
  # Upstream's programs, with which the suite is used. Built in their own modules, whose go.sum pins what they require;
  # the checksum of the module itself is that of Go's checksum database.
  argocd)
    package=github.com/argoproj/argo-cd/v3/cmd version=v3.2.0 given=${ARGOCD-}
    sum=h1:m2eGAV+nXQGgzZbH5SyJD5laaPW27mzWXBrgisUHY/0=
    ;;
  cluster-proxy)
    package=open-cluster-management.io/cluster-proxy/cmd/cluster-proxy version=v0.10.0 given=${CLUSTER_PROXY-}
    sum=h1:vo8QW4m8IpIkVLX6xkGZVSYc71EVZYpMdgPBkGQb6/w=
    ;;
  cluster-proxy-agent)
    package=open-cluster-management.io/cluster-proxy/cmd/addon-agent version=v0.10.0 given=${CLUSTER_PROXY_AGENT-}
    sum=h1:vo8QW4m8IpIkVLX6xkGZVSYc71EVZYpMdgPBkGQb6/w=
    ;;
  cluster-proxy-manager)
    package=open-cluster-management.io/cluster-proxy/cmd/addon-manager version=v0.10.0 given=${CLUSTER_PROXY_MANAGER-}
    sum=h1:vo8QW4m8IpIkVLX6xkGZVSYc71EVZYpMdgPBkGQb6/w=
    ;;
  kueue)
    package=sigs.k8s.io/kueue/cmd/kueue version=v0.19.0 given=${KUEUE-}
    sum=h1:5yCu85qsJhvUVVxE0Csw546DDBcRwUXpBEOmEFlws34=
    ;;
  managed-serviceaccount)
    package=open-cluster-management.io/managed-serviceaccount/cmd version=v0.10.0 given=${MANAGED_SERVICEACCOUNT-}
    sum=h1:OBJ1EA8aaf0q8a7tBIHZT+5KdFECRKiDvoq/jqSHf1k=
    ;;
  registration)
    package=open-cluster-management.io/ocm/cmd/registration version=v1.2.1 given=${REGISTRATION-}
    sum=h1:JC1mrIkaNjJ+AmLjiQ/sIhUE6Uzb3JVXFlFbaZF5+VY=
    ;;
  # Its own module has replace directives, which go install does not allow; our module requires it and has none.
  promtool) package=github.com/prometheus/prometheus/cmd/promtool module=$root/e2e/promtool given=${PROMTOOL-} ;;
  # The same.
  proxy-agent) package=sigs.k8s.io/apiserver-network-proxy/cmd/agent module=$root/e2e/field given=${PROXY_AGENT-} ;;
  proxy-server) package=sigs.k8s.io/apiserver-network-proxy/cmd/server module=$root/e2e/field given=${PROXY_SERVER-} ;;
  *) usage ;;
esac
[ -z "$module" ] || version=$(awk -v path="${package%%/cmd*}" '$1 == path { print $2; exit }' "$module/go.mod")

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
