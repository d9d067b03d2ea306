# shellcheck shell=sh
# What the containers of one pod share: a network with nothing in it but the loopback device, and a host name.
#
#   sh sandbox.sh READY-FILE NAME ADDRESS...
#
# Runs in namespaces of its own, and holds them until it is killed: they, and all that is in them, end with their last
# process, so that there is nothing to be cleaned up.
set -eu

ready=$1
name=$2
shift 2

echo "$name" >/proc/sys/kernel/hostname
ip link set lo up
for address in "$@"; do
  ip address add "$address/32" dev lo
done

: >"$ready"
exec sleep infinity
