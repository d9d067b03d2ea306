#!/bin/sh
# Adds cp-creds to what helm renders of Kueue: applies the component beside this directory to the standard input. The image
# is $REGISTRY/cp-creds:$VERSION.
set -eu
component=$(cd "$(dirname "$(readlink -f "$0")")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/component"
cp "$component/kustomization.yaml" "$component/plugin.yaml" "$work/component"
cat >"$work/rendered.yaml"
cat >"$work/kustomization.yaml" <<YAML
resources: [rendered.yaml]
components: [component]
images: [{name: registry.example/cp-creds, newName: "$REGISTRY/cp-creds", newTag: "$VERSION"}]
YAML
kubectl kustomize "$work"
