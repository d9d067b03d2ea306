#!/usr/bin/env bash
# Runs the ClusterProfile API conformance suite of SIG Multicluster against a hub. The suite reads one inventory
# namespace and writes nothing to the hub:
#
#   hack/conformance.sh --kubeconfig=hub.kubeconfig --namespace=app --cluster-manager=open-cluster-management
#
# All arguments go to the suite. It comes from the Go module sigs.k8s.io/cluster-inventory-api/conformance in the version
# $CLUSTER_INVENTORY_API_VERSION (v0.2.0, the first that is to have it), or from the checkout of cluster-inventory-api
# that $CLUSTER_INVENTORY_API_SOURCE names. report.yaml and report.html go to $CONFORMANCE_REPORTS (target/conformance).
set -euo pipefail

module=sigs.k8s.io/cluster-inventory-api
version="${CLUSTER_INVENTORY_API_VERSION:-v0.2.0}"
source="${CLUSTER_INVENTORY_API_SOURCE:-}"
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
reports="${CONFORMANCE_REPORTS:-$root/target/conformance}"

die() { printf 'conformance: %s\n' "$*" >&2; exit 1; }

command -v go >/dev/null || die "building the suite needs go, which is not installed"

# The suite runs in the directory of the reports, so relative paths must be resolved first.
arguments=()
while (($#)); do
  case "$1" in
    --kubeconfig=*) arguments+=("--kubeconfig=$(realpath -- "${1#*=}")") ;;
    --kubeconfig) arguments+=("--kubeconfig=$(realpath -- "${2:?--kubeconfig needs a file}")"); shift ;;
    *) arguments+=("$1") ;;
  esac
  shift
done

build="$(mktemp -d)"
trap 'chmod -R u+w "$build"; rm -rf "$build"' EXIT

if [[ -n "$source" ]]; then
  [[ -f "$source/conformance/go.mod" ]] ||
    die "$source has no conformance/go.mod: expected a checkout of cluster-inventory-api with the suite"
  (cd "$source/conformance" && go test -c -o "$build/conformance.test" .)
else
  cd "$build"
  cat >go.mod <<GO
module hub-addons/conformance
GO
  # The suite is a module beside the API's. Its go.mod replaces the API by the directory above, which applies only in a
  # checkout.
  if ! go get "$module@$version" "$module/conformance@$version" 2>errors; then
    cat errors >&2
    die "$module $version has no conformance suite, or cannot be downloaded (v0.1.3 is the latest release without" \
      "one): set CLUSTER_INVENTORY_API_VERSION to a release that has it, or CLUSTER_INVENTORY_API_SOURCE to a checkout"
  fi
  cat >conformance_test.go <<GO
package conformance_test

import (
	"testing"

	"$module/conformance"
)

func TestConformance(t *testing.T) { conformance.TestConformance(t) }
GO
  go mod tidy
  go test -c -o conformance.test .
fi

mkdir -p "$reports"
cd "$reports"
printf 'conformance: reports go to %s\n' "$reports" >&2
"$build/conformance.test" -test.v "${arguments[@]}"
