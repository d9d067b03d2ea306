#!/usr/bin/env bash
# Prints the directory of upstream's CRDs, from upstream's Go modules: from Go's module cache, or downloaded once from
# the module proxy. Only that line goes to stdout:
#
#   export HUB_ADDONS_UPSTREAM_CRDS="$(hack/upstream-crds.sh)"
#
# ocm/                    the kinds of Open Cluster Management that the controllers read
# ocm-clusterprofile/     ClusterProfile as Open Cluster Management ships it: its lists are atomic
# cluster-inventory-api/  ClusterProfile as the SIG ships it: its lists are maps; and its PlacementDecision
#
# If $HUB_ADDONS_UPSTREAM_CRDS is set, it is that directory.
set -euo pipefail

# FILE NAME PATH: a file of the directory, and its source in the module that hack/versions.txt calls so.
files='
ocm/clusters.open-cluster-management.io_managedclusters.yaml                crds-ocm               cluster/v1/0000_00_clusters.open-cluster-management.io_managedclusters.crd.yaml
ocm/clusters.open-cluster-management.io_managedclustersets.yaml             crds-ocm               cluster/v1beta2/0000_00_clusters.open-cluster-management.io_managedclustersets.crd.yaml
ocm/clusters.open-cluster-management.io_managedclustersetbindings.yaml      crds-ocm               cluster/v1beta2/0000_01_clusters.open-cluster-management.io_managedclustersetbindings.crd.yaml
ocm/addon.open-cluster-management.io_managedclusteraddons.yaml              crds-ocm               addon/v1alpha1/0000_01_addon.open-cluster-management.io_managedclusteraddons.crd.yaml
ocm/authentication.open-cluster-management.io_managedserviceaccounts.yaml   managed-serviceaccount config/crd/bases/authentication.open-cluster-management.io_managedserviceaccounts.yaml
ocm/work.open-cluster-management.io_manifestworks.yaml                      crds-ocm               work/v1/0000_00_work.open-cluster-management.io_manifestworks.crd.yaml
ocm/proxy.open-cluster-management.io_managedproxyconfigurations.yaml        cluster-proxy          hack/crd/bases/proxy.open-cluster-management.io_managedproxyconfigurations.yaml
ocm-clusterprofile/multicluster.x-k8s.io_clusterprofiles.yaml               registration           manifests/cluster-manager/hub/crds/0000_00_multicluster.x-k8s.io_clusterprofiles.crd.yaml
cluster-inventory-api/multicluster.x-k8s.io_clusterprofiles.yaml            crds-inventory         config/crd/bases/multicluster.x-k8s.io_clusterprofiles.yaml
cluster-inventory-api/multicluster.x-k8s.io_placementdecisions.yaml         crds-inventory         config/crd/bases/multicluster.x-k8s.io_placementdecisions.yaml
'

hack=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=hack/once.sh
. "$hack/once.sh"

if [ -n "${HUB_ADDONS_UPSTREAM_CRDS-}" ]; then
  [ -d "$HUB_ADDONS_UPSTREAM_CRDS" ] || die "HUB_ADDONS_UPSTREAM_CRDS=$HUB_ADDONS_UPSTREAM_CRDS is not a directory"
  (cd "$HUB_ADDONS_UPSTREAM_CRDS" && pwd)
  exit
fi

copy() {
  local file name path module version dir
  while read -r file name path; do
    [ -n "$file" ] || continue
    read -r module version _ < <("$hack/versions.sh" get "$name")
    module=${module%%/cmd*}@$version
    dir=$("$hack/go-download.sh" module "$module" | awk -F'"' '$2 == "Dir" { print $4 }')
    [ -n "$dir" ] || die "cannot get $module"
    install -D -m 0644 "$dir/$path" "$1/$file"
  done <<<"$files"
}
target=$cache/upstream-crds/$(printf %s "$files" | cat - "$hack/versions.txt" | sha256sum | cut -c1-12)
[ -d "$target" ] || command -v go >/dev/null || die "go is not installed: install it, or set HUB_ADDONS_UPSTREAM_CRDS"
once "$target" ocm "the directory of upstream's CRDs" copy
echo "$target"
