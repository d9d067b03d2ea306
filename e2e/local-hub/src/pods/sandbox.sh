# shellcheck shell=sh
# What the containers of one Pod share: a network with only the loopback device, and a host name.
#
#   sh sandbox.sh READY-FILE NAME ADDRESS...
#
# Runs in its own namespaces, and keeps them until it is killed: they, and everything in them, end with their last
# process, so nothing needs to be cleaned up.
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
