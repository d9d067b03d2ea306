#!/usr/bin/env bash
# Prints the version of what is built from this tree: that of Cargo.toml where its tag is, and elsewhere with the commit
# and the changes since. So a build never has the name of another one, whose image a node may have already.
#
# usage: hack/version.sh [--base]
#
#   --base  only the version of Cargo.toml
#
# $HUB_ADDONS_VERSION replaces it, so that what a build writes into the tree does not change the version of the rest.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
version=$(awk -F'"' '/^\[workspace.package\]/ { here = 1 } here && /^version/ { print $2; exit }' Cargo.toml)
tags=$(git tag --points-at HEAD 2>/dev/null || true)
commit=$(git rev-parse --short=12 HEAD 2>/dev/null || true)
changes() { git status --porcelain --untracked-files=all && git diff HEAD; }
if [ "${1-}" = --base ]; then
  echo "$version"
elif [ -n "${HUB_ADDONS_VERSION-}" ]; then
  echo "$HUB_ADDONS_VERSION"
elif grep -qxF "v$version" <<<"$tags" && [ -z "$(changes)" ]; then
  echo "$version"
else
  version+=-dev${commit:+.g$commit}
  [ -z "$commit" ] || [ -z "$(changes)" ] || version+=.d$(changes | sha256sum | cut -c1-8)
  echo "$version"
fi
