#!/usr/bin/env bash
# Lints the chart strictly with each helm that people use, with the default values and with those that switch most on.
# Everything else about it is in crates/hub-addons/tests/chart.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

chart=charts/hub-addons
for version in "" 3; do
  helm=$(hack/helm.sh "$version")
  for values in \
    crds.enabled=auto \
    credentials.secretAccess=cluster,profiles.split=true,featureGates.clusterProfileDirectAccessProvider=true \
    featureGates.clusterProfileCredSyncer=false,policies.enabled=false \
    featureGates.clusterProfile=false,featureGates.clusterProfileAccessProvider=false; do
    "$helm" lint --strict --quiet --set "$values" "$chart"
  done
  echo "$("$helm" version --template '{{ .Version }}'): nothing to complain of"
done
