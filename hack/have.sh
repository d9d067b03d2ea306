#!/usr/bin/env bash
# hack/have.sh COMMAND PACKAGE...: whether a command is installed. With CI=true, as root on Debian, it installs these
# packages; elsewhere that is left to the user.
set -euo pipefail
! command -v "$1" >/dev/null || exit 0
[ "${CI-}" = true ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || exit 1
command=$1
shift
# Packages are installed one call after the other.
exec 9<"${BASH_SOURCE[0]}"
flock 9
! command -v "$command" >/dev/null || exit 0
echo "installing $* for $command" >&2
{ apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@"; } >/dev/null
