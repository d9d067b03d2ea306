# shellcheck shell=sh
# Runs one program of a hub, and outlives the hub's owner just long enough to clean up.
#
#   sh supervisor.sh HUB-DIRECTORY LOG-FILE PROGRAM [ARGUMENT]...
#
# Standard input is a pipe whose other end only the hub's owner holds. The kernel closes it when the owner ends in any
# way: returning, panicking, or by SIGKILL. Then the program is killed and the hub's directory removed. Until then the
# owner may write the name of a signal for the program (STOP, CONT, KILL), and once the program has ended `leave`, to
# end this script and keep the directory. Standard output reports to the owner: `started PID`, `sent SIGNAL`, `exited
# STATUS`.

# remove_cgroups NAME: the cgroups of this name and what is in them.
remove_cgroups() {
  [ -n "$1" ] || return
  for _ in $(seq 600); do
    find /sys/fs/cgroup -depth -type d \( -path "*/$1" -o -path "*/$1/*" \) -exec rmdir {} + 2>/dev/null && break
    sleep 0.1
  done
}

# A function, so that the shell reads the whole file before it runs anything: an edit or a checkout under a running hub
# has no effect on it.
supervise() {
  dir=$1
  log=$2
  shift 2

  # The directory will contain credentials. It is created here, so that a process to remove it always exists.
  umask 077
  mkdir -p "$dir" && cd "$dir" || exit 1

  exec 3<&0 2>>"$log"
  "$@" </dev/null >>"$log" 3<&- &
  program=$!

  # From here on only the pipe ends this script: not ^C, and not an owner who no longer reads. After the program has
  # started, since it would inherit the ignored signals.
  trap '' HUP INT PIPE TERM

  echo "started $program"
  {
    while read -r signal; do
      kill -s "$signal" "$program" && echo "sent $signal"
    done
    kill -s KILL "$program"
  } <&3 &
  listener=$!

  # Shells report killed jobs, which do not belong into the program's log.
  wait "$program" 2>/dev/null
  status=$?
  # The program's process ID may be reused now: it must not be signalled any more.
  kill -s KILL "$listener"
  wait "$listener" 2>/dev/null
  echo "exited $status"

  while read -r word; do
    [ "$word" != leave ] || exit 0
  done <&3

  # A node's processes end after its first one, and then its cgroups can be removed.
  [ ! -e cgroup ] || remove_cgroups "$(cat cgroup)"

  # Every program's supervisor does this after its own program has ended, so no program writes when the last one does.
  cd /
  rm -rf "$dir"
  exit
}

supervise "$@"
