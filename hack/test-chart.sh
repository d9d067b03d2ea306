#!/usr/bin/env bash
# Lints the chart strictly with each supported helm version, with the default values and with those that enable most.
# crates/hub-addons/tests/chart checks everything else.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

chart=charts/hub-addons
for version in helm helm3; do
  helm=$(hack/go-program.sh "$version")
  for values in \
    crds.enabled=auto \
    consumerAccess.enabled=true,credentials.secretAccess=granted,featureGates.clusterProfileDirectAccessProvider=true \
    featureGates.clusterProfileCredSyncer=false,policies.enabled=false \
    featureGates.clusterProfile=false,featureGates.clusterProfileAccessProvider=false; do
    "$helm" lint --strict --quiet --set "$values" "$chart"
  done
  echo "$("$helm" version --template '{{ .Version }}'): no problems"
done
