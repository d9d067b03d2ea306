#!/usr/bin/env bash
# Prints the directory of the programs of a node, for tests and the demo, which run Pods: kubelet, kube-proxy,
# kube-scheduler, containerd with its shim and ctr, CoreDNS, the program that holds a Pod's namespaces, and the one that
# assembles images. Only that line goes to stdout. They are built from Go modules, once, into the user's cache directory,
# where later calls find them.
#
# usage: hack/node.sh              builds what is missing, and prints the directory
#        hack/node.sh --download   downloads what they are built from, and prints nothing
#        hack/node.sh --can        builds nothing; fails with the reason if this machine cannot run a node. With
#                                  CI=true it installs missing packages
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
from_modules=(containerd containerd-shim ctr)
say() { printf 'node: %s\n' "$*" >&2; }
die() { say "$@"; exit 1; }

# have COMMAND PACKAGE: also of a command that is a file.
have() { "$root/hack/have.sh" "$1" "$2" || die "$1 is not installed; on Debian it is in the package $2"; }

can() {
  local plugins=/opt/cni/bin
  # Also in a shell of root with the search path of a user.
  PATH=$PATH:/usr/sbin:/sbin
  [ "$(uname -s)" = Linux ] || die "this is not Linux"
  [ "$(id -u)" = 0 ] || die "a node needs root"
  [ -w /sys/fs/cgroup ] || [ -w /sys/fs/cgroup/memory ] || die "the cgroups in /sys/fs/cgroup cannot be written"
  # In a container with version 2, only a group without processes has others in it with controllers.
  if [ -e /sys/fs/cgroup/cgroup.type ] && ! grep -qw memory /sys/fs/cgroup/cgroup.subtree_control; then
    [ -z "$(cat /sys/fs/cgroup/cgroup.procs)" ] || die "the cgroup of this container has processes, move them to one in it"
  fi
  have go golang
  have ip iproute2
  have nft nftables
  have runc runc
  [ -x "$plugins/ptp" ] || plugins=/usr/lib/cni
  have "$plugins/ptp" containernetworking-plugins
  local refused
  refused=$(unshare --mount --net --pid --fork true 2>&1) || die "no namespaces can be created: $refused"
}

case ${1-} in
  --can) can; exit ;;
  --download | '') ;;
  *) sed -n '2,/^set/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
esac

pins() { for program in "${from_modules[@]}"; do "$root/hack/versions.sh" get "$program"; done; }
digest=$(cd "$root" && { cat hack/node.sh e2e/node/*.* e2e/node/*/*.go e2e/coredns/* deploy/images/*.*; pins; } |
  sha256sum | cut -c1-12)
version=$("$root/hack/versions.sh" get node | cut -d' ' -f2)
cache="${XDG_CACHE_HOME:-${HOME:?neither XDG_CACHE_HOME nor HOME is set}/.cache}/hub-addons/node"
target="$cache/$version-$digest"

if [ -d "$target" ]; then
  [ "${1-}" = --download ] || echo "$target"
  exit
fi
# What is cached is what is pinned.
unset CTR CONTAINERD CONTAINERD_SHIM
for tool in go flock; do
  command -v "$tool" >/dev/null || die "building a node needs $tool, which is not installed"
done

download() {
  local program module
  for program in "${from_modules[@]}"; do "$root/hack/go-program.sh" --download "$program"; done
  for module in e2e/node e2e/coredns deploy/images; do
    (cd "$root/$module" && "$root/hack/go-download.sh" packages ./...)
  done
}
download || die "cannot download what a node is built from"
[ "${1-}" != --download ] || exit 0

mkdir -p "$cache"
# go inherits the lock: if it outlives this script, the next caller still waits for it.
exec 9>"$target.lock"
flock 9
if [ ! -d "$target" ]; then
  say "building a node $version from source, once: about three minutes on two cores"
  work="$target.building"
  rm -rf "$work"
  trap 'rm -rf "$work"' EXIT
  mkdir "$work"
  build() {
    (cd "$root/$1" && GOWORK=off GOFLAGS='' CGO_ENABLED=0 go build -trimpath -buildvcs=false \
      -ldflags "-s -w -X k8s.io/component-base/version.gitVersion=$version" -o "$work/$2" "$3") >&2
  }
  build e2e/node node .
  build e2e/node sandbox ./sandbox
  build e2e/node streams ./streams
  build e2e/coredns coredns .
  build deploy/images image .
  for program in kubelet kube-proxy kube-scheduler; do ln -s node "$work/$program"; done
  for program in "${from_modules[@]}"; do ln -s "$("$root/hack/go-program.sh" "$program")" "$work/"; done
  mv "$work" "$target"
fi
echo "$target"
