#!/usr/bin/env bash
# Prints the path of cargo-mutants: the installed one, or one that is built once into the user's cache directory.
set -euo pipefail

version=27.1.0

if installed=$(command -v cargo-mutants); then
  echo "$installed"
  exit
fi
directory=${XDG_CACHE_HOME:-${HOME:?neither XDG_CACHE_HOME nor HOME is set}/.cache}/hub-addons/cargo-mutants/$version
if [ ! -x "$directory/bin/cargo-mutants" ]; then
  echo "cargo-mutants: building $version, once: some minutes on two cores" >&2
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  mkdir -p "$directory"
  CARGO_TARGET_DIR=$work CARGO_PROFILE_DEV_DEBUG=false cargo install --quiet --locked --debug \
    --root "$directory" "cargo-mutants@$version" >&2
fi
echo "$directory/bin/cargo-mutants"
