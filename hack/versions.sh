#!/usr/bin/env bash
# Prints the versions that the tests run (hack/versions.txt), and the newest that the Go module proxy lists.
#
# usage: hack/versions.sh             a table: name, pinned version, newest version
#        hack/versions.sh --check     fails if a go.mod requires another version than the file names; needs no network
#        hack/versions.sh get NAME    prints the line of NAME: package, version, checksum
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
pins() { grep -vE '^(#|$)' "$root/hack/versions.txt"; }

# The module of a package of Go: what is before its commands.
module() { echo "${1%%/cmd*}"; }

# newest MODULE: its latest release; "not listed" where the proxy lists none.
newest() {
  local listed
  listed=$(cd / && GOWORK=off GOFLAGS='' timeout 60 go list -m -versions "$1" 2>/dev/null | tr ' ' '\n' |
    grep -E '^v[0-9]+\.[0-9]+\.[0-9]+$' | sort --version-sort | tail -n 1) || true
  echo "${listed:-not listed}"
}

case ${1-} in
  get)
    pins | awk -v name="${2-}" '$1 == name { print $2, $3, $4; found = 1 } END { exit !found }' ||
      { echo "versions: hack/versions.txt has no ${2-}" >&2; exit 1; }
    ;;
  --check)
    status=0
    while read -r name package version sum; do
      [ -d "$root/$sum" ] || continue
      required=$(awk -v path="$(module "$package")" '{ sub("^require ", "") } $1 == path { print $2; exit }' "$root/$sum/go.mod")
      [ "$required" = "$version" ] ||
        { echo "versions: $sum/go.mod requires $name ${required:-in no version}, hack/versions.txt names $version" >&2; status=1; }
    done < <(pins)
    exit "$status"
    ;;
  '')
    printf '%-24s%-12s%s\n' NAME PINNED NEWEST
    pins | while read -r name package version _; do
      printf '%-24s%-12s%s\n' "$name" "$version" "$(newest "$(module "$package")")"
    done
    ;;
  *) sed -n '2,/^set/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; [ "$1" = --help ] || [ "$1" = -h ] || exit 2 ;;
esac
