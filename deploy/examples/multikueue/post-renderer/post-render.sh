#!/bin/sh
# Adds cp-creds to what helm renders of Kueue: applies the component beside this directory to the standard input.
set -eu
component=$(cd "$(dirname "$(readlink -f "$0")")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/component"
cp "$component/kustomization.yaml" "$component/plugin.yaml" "$work/component"
cat >"$work/rendered.yaml"
printf 'resources: [rendered.yaml]\ncomponents: [component]\n' >"$work/kustomization.yaml"
kubectl kustomize "$work"
