# shellcheck shell=sh
# Runs one container: the first process of its own process namespace, in its own mount namespace.
#
#   sh container.sh ROOT ro|rw [SOURCE TARGET ro|rw]... -- COMMAND [ARGUMENT]...
#
# COMMAND runs with ROOT/proc mounted, as the first process of another process namespace, as in a Pod: signals that it
# does not handle have no effect on it. It does not replace this script, because it is not root: the kernel clears the
# parent-death signal of a process that changes its user. This script stays root; when it is killed, so is everything in
# its namespace.
set -eu
# The container's user needs access to directories that are created on the way to a mount.
umask 022

root=$1
mode=$2
shift 2

# Mount points are created first: nothing can be created below a read-only mount.
prepare() {
  if [ -d "$1" ]; then
    mkdir -p "$root$2"
  else
    mkdir -p "$(dirname "$root$2")"
    [ -e "$root$2" ] || : >"$root$2"
  fi
}

attach() {
  mount --bind "$1" "$root$2"
  [ "$3" = rw ] || mount -o remount,bind,ro "$root$2"
}

mkdir -p "$root/proc" "$root/dev"
mount --bind "$root" "$root"
mount -t tmpfs -o mode=0755 tmpfs "$root/dev"
for device in null zero full random urandom; do
  : >"$root/dev/$device"
  mount --bind "/dev/$device" "$root/dev/$device"
done

# Outer mounts come before inner ones.
while [ "$1" != -- ]; do
  prepare "$1" "$2"
  attach "$1" "$2" "$3"
  shift 3
done
shift
[ "$mode" = rw ] || mount -o remount,bind,ro "$root"

# Not exec: this process must stay. The shell in between reports how the command ended, which `unshare --fork` does not
# for a killed one; the shell's own messages about that are not the container's.
# shellcheck disable=SC2016 # for the inner shells
unshare --pid sh -c 'exec 3>&2 2>/dev/null; "$@" 2>&3 3>&-; exit $?' sh \
  sh -c 'mount -t proc proc "$0/proc" && exec "$@"' "$root" "$@"
exit
