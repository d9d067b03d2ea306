#!/usr/bin/env bash
# The versions that the tests run (hack/versions.txt).
#
# usage: hack/versions.sh --check     fails if a go.mod requires another version than the file names; needs no network
#        hack/versions.sh get NAME    prints the line of NAME: package, version, checksum
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
pins() { grep -vE '^(#|$)' "$root/hack/versions.txt"; }

# The module of a package of Go: what is before its commands.
module() { echo "${1%%/cmd*}"; }

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
  *) sed -n '2,/^set/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; [[ ${1-} =~ ^(-h|--help)$ ]] || exit 2 ;;
esac
