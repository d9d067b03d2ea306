#!/usr/bin/env bash
# hack/have.sh COMMAND PACKAGE...: whether a command is there. On a machine that nobody looks after (CI=true, root,
# Debian) these packages are installed; elsewhere that is for people to decide.
set -euo pipefail
! command -v "$1" >/dev/null || exit 0
[ "${CI-}" = true ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || exit 1
command=$1
shift
echo "installing $* for $command" >&2
{ apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@"; } >/dev/null
