#!/usr/bin/env bash
# Prints the path of helm, built once from its Go module; with the argument 3, of helm 3. $HELM, or $HELM3, names one to
# use instead.
#
#   helm="$(hack/helm.sh)" && "$helm" version
set -euo pipefail
exec "$(dirname "${BASH_SOURCE[0]}")/go-program.sh" "helm${1-}"
