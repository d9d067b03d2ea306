#!/usr/bin/env bash
# Prints the path of a program of cargo, built once: cargo-cyclonedx, cargo-deny or cargo-mutants. An installed cargo-deny
# or cargo-mutants is used instead; without one, cargo-deny is built with CI=true alone.
set -euo pipefail

# shellcheck source=hack/once.sh
. "$(dirname "${BASH_SOURCE[0]}")/once.sh"
options=()
case ${1-} in
  cargo-cyclonedx) version=0.5.9 ;;
  cargo-deny) version=0.20.2 options=(--no-default-features) ;;
  cargo-mutants) version=27.1.0 ;;
  *) sed -n '2,/^set/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
esac
# It writes what is released.
[ "$1" = cargo-cyclonedx ] || ! command -v "$1" || exit 0
[ "$1" != cargo-deny ] || [ "${CI-}" = true ] || [ -x "$cache/$1/$version/bin/$1" ] ||
  die "$1 is not installed: cargo install --locked $1@$version"

# Without optimization, in a third of the time: it reads little.
install() {
  CARGO_TARGET_DIR=$2/target CARGO_PROFILE_DEV_DEBUG=false cargo install --quiet --locked --debug "${options[@]}" \
    --root "$2" "$1"
  rm -rf "$2/target"
}
once "$cache/$1/$version" "bin/$1" "$1 $version (some minutes on two cores)" install "$1@$version"
echo "$cache/$1/$version/bin/$1"
