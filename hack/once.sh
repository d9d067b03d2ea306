# shellcheck shell=bash
# For scripts that print where something is which is built once, into the user's cache directory, where later calls find
# it: they source this file. Only what they print last goes to stdout.
say() { printf '%s: %s\n' "$(basename "$0" .sh)" "$*" >&2; }
die() { say "$@"; exit 1; }
needs() { local tool; for tool; do command -v "$tool" >/dev/null || die "$tool is not installed"; done; }

# shellcheck disable=SC2034 # for the scripts
cache=${XDG_CACHE_HOME:-${HOME:?neither XDG_CACHE_HOME nor HOME is set}/.cache}/hub-addons

# once DIRECTORY FILE WHAT COMMAND...: unless the directory has the file, runs the command with a further argument, an
# empty directory that then takes its place.
once() (
  directory=$1 file=$2 what=$3
  shift 3
  [ ! -e "$directory/$file" ] || exit 0
  needs flock
  mkdir -p "$(dirname "$directory")"
  # What is run inherits the lock: if it outlives this script, the next caller still waits for it.
  exec 9>"$directory.lock"
  flock --nonblock 9 || { say "another process is building ${what% (*}: waiting for it"; flock 9; }
  [ ! -e "$directory/$file" ] || exit 0
  say "building $what, once"
  start=$SECONDS building=$directory.building
  rm -rf "$building"
  trap 'rm -rf "$building"' EXIT
  mkdir "$building"
  "$@" "$building" >&2
  [ -e "$building/$file" ] || die "${what% (*} has no $file"
  rm -rf "$directory"
  mv "$building" "$directory"
  say "built ${what% (*} in $((SECONDS - start)) s: $directory"
)

# go_build DIRECTORY FLAGS OUTPUT PACKAGE: independent of a go.work above, and of the state of git.
go_build() {
  (cd "$1" && GOWORK=off GOFLAGS='' CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "-s -w$2" -o "$3" "$4")
}
