#!/usr/bin/env bash
# Downloads Go modules, and retries: in a build, one download that fails ends the whole build.
#
# usage: hack/go-download.sh module MODULE@VERSION    prints the JSON of `go mod download`
#        hack/go-download.sh packages [PACKAGE]...    what these packages of the module in this directory are built from
set -euo pipefail

say() { printf 'go-download: %s\n' "$*" >&2; }

what=${1-} wanted=("${@:2}")
output=$(mktemp)
trap 'rm -f "$output"' EXIT
download() {
  case $what in
    # Outside every module of this repository, none of which requires it.
    module) (cd / && GOWORK=off GOFLAGS='' go mod download -json "${wanted[@]}") ;;
    packages) GOWORK=off GOFLAGS='' CGO_ENABLED=0 go list -deps "${wanted[@]}" ;;
    *) sed -n '2,/^set/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
  esac
}

for attempt in 1 2 3 4 5; do
  if errors=$(download 2>&1 >"$output"); then
    [ "$what" = packages ] || cat "$output"
    exit
  fi
  # `go mod download -json` reports an error in its output.
  [ -n "$errors" ] || errors=$(sed -n 's/^\t"Error": "\(.*\)",\{0,1\}$/\1/p' "$output")
  say "cannot download ${wanted[*]:-the modules of $PWD} (attempt $attempt of 5): $(tail -n 3 <<<"$errors")"
  # What the proxy does not have, it will not have in a minute.
  ! grep -qE 'checksum mismatch|unknown revision|: 4(0[0-9]|10) ' <<<"$errors" || break
  [ "$attempt" = 5 ] || sleep $((attempt * 3))
done
exit 1
