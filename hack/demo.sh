#!/usr/bin/env bash
# The main job, from nothing: a hub, a fleet, and the right profiles in every bound namespace.
#
# Needs the toolchains of Rust and Go and nothing else. What is missing is built (the control plane once, which
# takes minutes), and what was started ends with the script.
set -euo pipefail

usage() {
  cat <<'EOF'
Shows hub-addons at work: two applications, each bound to a set of clusters, see their clusters as
ClusterProfiles; then clusters move, and what the applications see follows.

usage: hack/demo.sh [--keep]
       hack/demo.sh --kubeconfig FILE [--yes]

  --keep             leave the hub and the addons running, and say how to look around
  --kubeconfig FILE  use this cluster instead of a hub of the demo's own. Everything the demo makes there
                     begins with demo- and is deleted at the end; but while it runs, profiles of the cluster
                     manager "hub-addons-demo" appear in every namespace that is bound to a set.
  --yes              do not ask before using that cluster
EOF
}

keep='' kubeconfig='' yes=''
while [ $# -gt 0 ]; do
  case $1 in
    --keep) keep=1 ;;
    --yes) yes=1 ;;
    --kubeconfig) kubeconfig=${2:?--kubeconfig needs a file}; shift ;;
    --kubeconfig=*) kubeconfig=${1#*=} ;;
    -h | --help) usage; exit ;;
    *) usage >&2; exit 2 ;;
  esac
  shift
done
if [ -n "$keep" ] && [ -n "$kubeconfig" ]; then
  echo "demo: --keep is about the demo's own hub; a cluster of yours stays anyway" >&2
  exit 2
fi

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
work=$(mktemp -d)
addons_pid='' hub_pid='' in_cluster='' made_crds=()
prefix='' manager=open-cluster-management compute_bound=(--compute-bound)

say() { printf '\n\033[1m== %s\033[0m\n' "$*"; }
run() { printf '\n$ %s\n' "$*"; "$@"; }
fail() { printf 'demo: %s\n' "$*" >&2; exit 1; }

cleanup() {
  status=$?
  trap - EXIT
  if [ -n "$keep" ] && [ "$status" -eq 0 ]; then
    exit 0
  fi
  if [ "$status" -ne 0 ] && [ -s "$work/addons.log" ]; then
    printf '\nThe last lines of the addons:\n' >&2
    tail -n 20 "$work/addons.log" >&2
  fi
  if [ -n "$addons_pid" ]; then
    kill "$addons_pid" 2>/dev/null || true
    wait "$addons_pid" 2>/dev/null || true
  fi
  if [ -n "$in_cluster" ]; then
    remove_from_cluster
  elif [ -n "$hub_pid" ]; then
    exec 3>&-
    kill "$hub_pid" 2>/dev/null || true
    wait "$hub_pid" 2>/dev/null || true
  fi
  rm -rf "$work"
  exit "$status"
}

# What the demo has made in a cluster that is not its own.
remove_from_cluster() {
  say "Cleaning up"
  remove clusterprofiles --all-namespaces --selector "x-k8s.io/cluster-manager=$manager"
  remove namespaces "${prefix}argocd" "${prefix}kueue"
  remove managedclustersets "${prefix}prod" "${prefix}gpu"
  remove managedclusters "${prefix}berlin" "${prefix}paris" "${prefix}tokyo" "${prefix}lab"
  for crd in "${made_crds[@]}"; do
    remove crd "$crd"
  done
}

remove() {
  kubectl delete --ignore-not-found --timeout=60s "$@" || echo "demo: could not delete: $*" >&2
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# --- the hub -----------------------------------------------------------------------------------------

say "Building"
cd "$root"
cargo build --locked --package hub-addons --package local-hub
[ -n "$kubeconfig" ] || hack/control-plane.sh >/dev/null
target=${CARGO_TARGET_DIR:-$root/target}/debug
hub_addons=$target/hub-addons

if [ -n "$kubeconfig" ]; then
  [ -r "$kubeconfig" ] || fail "cannot read $kubeconfig"
  KUBECONFIG=$(cd "$(dirname "$kubeconfig")" && pwd)/$(basename "$kubeconfig")
  export KUBECONFIG
  if ! command -v kubectl >/dev/null; then
    bin=$(hack/control-plane.sh)
    PATH=$PATH:$bin
  fi
  prefix=demo- manager=hub-addons-demo
  if [ -z "$yes" ]; then
    [ -t 0 ] || fail "this would write to the cluster of $kubeconfig: say --yes"
    printf '\nThe demo will write to %s.\nGo on? [y/N] ' "$(kubectl config view --minify -o jsonpath='{.clusters[0].cluster.server}')"
    read -r answer
    [ "$answer" = y ] || fail "nothing was done"
  fi
  in_cluster=1
else
  say "Starting a hub"
  if [ -n "$keep" ]; then
    nohup "$target/local-hub" up --dir "$work/hub" --no-crds </dev/null >"$work/hub.log" 2>&1 &
  else
    # Ends with whatever ends this script, SIGKILL included: then the pipe closes.
    exec 3> >(exec "$target/local-hub" up --dir "$work/hub" --no-crds --until-stdin-closes >"$work/hub.log" 2>&1)
  fi
  hub_pid=$!
  until [ -e "$work/hub/ready" ]; do
    kill -0 "$hub_pid" 2>/dev/null || { cat "$work/hub.log" >&2; fail "the hub did not start"; }
    sleep 0.2
  done
  # shellcheck source=/dev/null
  . "$work/hub/ready"
  PATH=$PATH:$LOCAL_HUB_BIN
fi

say "Installing the CRDs that the hub does not have"
"$hub_addons" crds >"$work/crds.yaml"
for crd in $(kubectl create --dry-run=client -o name -f "$work/crds.yaml"); do
  crd=${crd##*/}
  kubectl get crd "$crd" >/dev/null 2>&1 || made_crds+=("$crd")
done
# Create and not apply: what is there is somebody's, and stays as it is.
kubectl create -f "$work/crds.yaml" 2>&1 | grep -v AlreadyExists || true
kubectl wait --for=condition=Established --timeout=30s -f "$work/crds.yaml" >/dev/null

# --- the fleet ---------------------------------------------------------------------------------------

# cluster NAME LABEL=VALUE...: a cluster that has joined and is available.
cluster() {
  local name=$prefix$1
  shift
  kubectl create -f - >/dev/null <<EOF
apiVersion: cluster.open-cluster-management.io/v1
kind: ManagedCluster
metadata: {name: $name, labels: {fleet: ${prefix}demo}}
EOF
  [ $# -eq 0 ] || kubectl label managedcluster "$name" "$@" >/dev/null
  condition "$name" True ManagedClusterAvailable "Managed cluster is available"
}

# condition CLUSTER STATUS REASON MESSAGE: what OCM's agents and controllers would report.
condition() {
  local now
  now=$(date -u +%Y-%m-%dT%H:%M:%SZ)
  kubectl patch managedcluster "$1" --subresource=status --type=merge -p "{\"status\": {
    \"version\": {\"kubernetes\": \"v1.36.3\"},
    \"clusterClaims\": [{\"name\": \"id.k8s.io\", \"value\": \"$1\"}],
    \"conditions\": [
      {\"type\": \"ManagedClusterJoined\", \"status\": \"True\", \"reason\": \"ManagedClusterJoined\",
       \"message\": \"Managed cluster joined\", \"lastTransitionTime\": \"$now\"},
      {\"type\": \"ManagedClusterConditionAvailable\", \"status\": \"$2\", \"reason\": \"$3\",
       \"message\": \"$4\", \"lastTransitionTime\": \"$now\"}]}}" >/dev/null
}

say "A fleet of four clusters, two sets, and two applications that are bound to them"
set_label=cluster.open-cluster-management.io/clusterset
cluster berlin "$set_label=${prefix}prod"
cluster paris "$set_label=${prefix}prod" accelerator=gpu
cluster tokyo "$set_label=${prefix}prod"
cluster lab accelerator=gpu
kubectl create -f - <<EOF
apiVersion: v1
kind: Namespace
metadata: {name: ${prefix}argocd}
---
apiVersion: v1
kind: Namespace
metadata: {name: ${prefix}kueue}
---
apiVersion: cluster.open-cluster-management.io/v1beta2
kind: ManagedClusterSet
metadata: {name: ${prefix}prod}
---
apiVersion: cluster.open-cluster-management.io/v1beta2
kind: ManagedClusterSet
metadata: {name: ${prefix}gpu}
spec:
  clusterSelector:
    selectorType: LabelSelector
    labelSelector: {matchLabels: {accelerator: gpu, fleet: ${prefix}demo}}
---
apiVersion: cluster.open-cluster-management.io/v1beta2
kind: ManagedClusterSetBinding
metadata: {name: ${prefix}prod, namespace: ${prefix}argocd}
spec: {clusterSet: ${prefix}prod}
---
apiVersion: cluster.open-cluster-management.io/v1beta2
kind: ManagedClusterSetBinding
metadata: {name: ${prefix}gpu, namespace: ${prefix}kueue}
spec: {clusterSet: ${prefix}gpu}
EOF
# Every namespace has the CA of the hub itself: a stand-in for the certificate of a cluster proxy.
kubectl wait --for=create configmap/kube-root-ca.crt --namespace "${prefix}argocd" --timeout=30s >/dev/null
if [ -n "$kubeconfig" ] &&
  kubectl wait --for=condition=Bound managedclustersetbinding --namespace "${prefix}argocd" "${prefix}prod" --timeout=10s >/dev/null 2>&1; then
  compute_bound=() # this hub has somebody who says what is bound
fi

# --- the addons --------------------------------------------------------------------------------------

say "Running the addons"
printf '$ hub-addons run --access-provider-source=static …   (its log is in %s)\n' "$work/addons.log"
nohup "$hub_addons" run --kubeconfig "$KUBECONFIG" --cluster-manager-name "$manager" "${compute_bound[@]}" \
  --leader-election-namespace "${prefix}argocd" \
  --access-provider-source static \
  --access-provider-server "https://proxy.example:9092/{cluster}" \
  --access-provider-ca "configmap/${prefix}argocd/kube-root-ca.crt/ca.crt" \
  --metrics-bind-address 127.0.0.1:0 --health-probe-bind-address 127.0.0.1:0 \
  </dev/null >"$work/addons.log" 2>&1 3>&- &
addons_pid=$!

# until_seen NAMESPACE/CLUSTER...: waits until the two applications see exactly these, each with an access
# provider.
until_seen() {
  local wanted seen
  wanted=$(printf '%s\n' "$@" | sort)
  for _ in $(seq 100); do
    kill -0 "$addons_pid" 2>/dev/null || fail "the addons have ended"
    seen=$(kubectl get clusterprofiles --all-namespaces -l "x-k8s.io/cluster-manager=$manager" \
      -o jsonpath='{range .items[?(@.status.accessProviders)]}{.metadata.namespace}/{.metadata.name}{"\n"}{end}' |
      grep -E "^${prefix}(argocd|kueue)/" | sort || true)
    [ "$seen" != "$wanted" ] || return 0
    sleep 0.2
  done
  fail "the applications should see: ${wanted//$'\n'/ }; they see: ${seen//$'\n'/ }"
}

show_profiles() {
  kubectl get clusterprofiles --all-namespaces -l "x-k8s.io/cluster-manager=$manager" -o custom-columns='NAMESPACE:.metadata.namespace,CLUSTER:.metadata.name,SET:.metadata.labels.multicluster\.x-k8s\.io/clusterset,HEALTHY:.status.conditions[?(@.type=="ControlPlaneHealthy")].status,VERSION:.status.version.kubernetes,SERVER:.status.accessProviders[0].cluster.server'
}

why() {
  "$hub_addons" explain --kubeconfig "$KUBECONFIG" "${compute_bound[@]}" \
    --namespace "${prefix}argocd" --namespace "${prefix}kueue"
}

a=${prefix}argocd/$prefix k=${prefix}kueue/$prefix
until_seen "${a}berlin" "${a}paris" "${a}tokyo" "${k}lab" "${k}paris"

say "Who sees which cluster"
show_profiles | tee "$work/before"
say "… and why"
why
say "What an application gets to know of one of them"
run kubectl get clusterprofile --namespace "${prefix}argocd" "${prefix}berlin" -o yaml

say "Clusters move: lab joins ${prefix}prod, paris loses its GPUs, tokyo falls silent"
run kubectl label managedcluster "${prefix}lab" "$set_label=${prefix}prod"
run kubectl label managedcluster "${prefix}paris" accelerator-
condition "${prefix}tokyo" Unknown ManagedClusterLeaseUpdateStopped "Registration agent stopped updating its lease"
until_seen "${a}berlin" "${a}lab" "${a}paris" "${a}tokyo" "${k}lab"
kubectl wait clusterprofile --namespace "${prefix}argocd" "${prefix}tokyo" --timeout=20s \
  --for='jsonpath={.status.conditions[?(@.type=="ControlPlaneHealthy")].status}=Unknown' >/dev/null

say "The difference"
show_profiles >"$work/after"
diff --ignore-space-change -U 100 "$work/before" "$work/after" | tail -n +4 || true
say "… and why"
why

if [ -n "$keep" ]; then
  cat <<EOF

The hub and the addons go on running. To look around:

  export KUBECONFIG=$KUBECONFIG PATH=\$PATH:$LOCAL_HUB_BIN
  kubectl get clusterprofiles --all-namespaces
  kubectl label managedcluster tokyo $set_label-
  $hub_addons explain --compute-bound
  tail -f $work/addons.log

To end it: kill $addons_pid $hub_pid; rm -r $work
EOF
else
  say "Done: everything that was started ends now"
fi
