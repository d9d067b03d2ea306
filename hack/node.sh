#!/usr/bin/env bash
# Prints the directory of the programs of a node, for tests and the demo, which run Pods: kubelet, kube-proxy,
# kube-scheduler, containerd with its shim and ctr, CoreDNS, the program that holds a Pod's namespaces, and the one that
# assembles images. Only that line goes to stdout. They are built from Go modules, once, into the user's cache directory,
# where later calls find them.
#
# usage: hack/node.sh              builds what is missing, and prints the directory
#        hack/node.sh --can        builds nothing; fails with the reason if this machine cannot run a node. With
#                                  CI=true it installs missing packages
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
from_modules=(containerd containerd-shim ctr)
# shellcheck source=hack/once.sh
. "$root/hack/once.sh"

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
  '') ;;
  *) sed -n '2,/^set/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
esac

# What is cached is what is pinned.
unset CTR CONTAINERD CONTAINERD_SHIM
version=$("$root/hack/versions.sh" get kubernetes | cut -d' ' -f2)
build() {
  local program module
  for module in e2e/kubernetes e2e/coredns deploy/images; do
    (cd "$root/$module" && "$root/hack/go-download.sh" packages ./...)
  done
  for program in node sandbox streams; do
    go_build "$root/e2e/kubernetes" " -X k8s.io/component-base/version.gitVersion=$version" "$1/$program" "./$program"
  done
  go_build "$root/e2e/coredns" '' "$1/coredns" .
  go_build "$root/deploy/images" '' "$1/image" .
  for program in kubelet kube-proxy kube-scheduler; do ln -s node "$1/$program"; done
  for program in "${from_modules[@]}"; do ln -s "$("$root/hack/go-program.sh" "$program")" "$1/"; done
}

pins() { for program in "${from_modules[@]}"; do "$root/hack/versions.sh" get "$program"; done; }
digest=$(cd "$root" && { declare -f build; cat e2e/kubernetes/*.* e2e/kubernetes/*/*.go e2e/coredns/* deploy/images/*.*; pins; } |
  sha256sum | cut -c1-12)
target=$cache/node/$version-$digest
[ -d "$target" ] || needs go
once "$target" kubelet "a node $version (about three minutes on two cores)" build
echo "$target"
