# shellcheck shell=sh
# Runs one container: the first process of a process namespace of its own, in a mount namespace of its own.
#
#   sh container.sh ROOT ro|rw [SOURCE TARGET ro|rw]... -- COMMAND [ARGUMENT]...
#
# COMMAND is run with ROOT/proc mounted, as the first process of one more process namespace, as it would be in a pod:
# signals that it does not handle have no effect on it. It does not take this script's place because it is not root:
# the kernel forgets who is to be killed with his parent when he becomes somebody else. This script stays root; when it
# is killed, everything in its namespace is.
set -eu
# What is made on the way to a mount, a container's user has to pass.
umask 022

root=$1
mode=$2
shift 2

# Where to mount. All of it first: below a mount that is read-only there is nothing to be made.
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

# Outer mounts come before those inside them.
while [ "$1" != -- ]; do
  prepare "$1" "$2"
  attach "$1" "$2" "$3"
  shift 3
done
shift
[ "$mode" = rw ] || mount -o remount,bind,ro "$root"

# Not exec: this process has to stay. The shell in between tells how the command ended, which `unshare --fork` does not
# of one that was killed; what the shell itself has to say of that is not the container's.
# shellcheck disable=SC2016 # for the inner shells
unshare --pid sh -c 'exec 3>&2 2>/dev/null; "$@" 2>&3 3>&-; exit $?' sh \
  sh -c 'mount -t proc proc "$0/proc" && exec "$@"' "$root" "$@"
exit
