#!/usr/bin/env bash
# Shows the whole from nothing: a hub, a fleet, the installed chart, the profiles in every bound namespace, and the
# credentials with which applications reach their clusters.
#
# Needs the toolchains of Rust and Go, and for the chart what a node needs (--help). Missing programs are built (the control
# plane once, which takes minutes), and everything that the script starts ends with it.
set -euo pipefail

usage() {
  cat <<'EOF'
Shows hub-addons at work, installed by its chart: two applications, each bound to a set of clusters, see their
clusters as ClusterProfiles; then clusters move, and what the applications see follows. Two of the clusters are real
API servers: the applications reach them through a proxy, with tokens that the hub copies for them until their binding
is deleted.

usage: hack/demo.sh [--keep]

  --keep  leave the hub and the addons running, and print how to explore them

The demo installs the chart with helm, uses an image that hack/image.sh builds, and runs the Pods on a node on this
machine. This needs Linux, root, permission to create namespaces and cgroups, and runc, nftables, iproute2
and the CNI plugins. If one of these is missing, the demo says which, and runs the addons as a process. Cgroups of version
2 were not tried. As root with the toolchains of a user:

  sudo env PATH="$PATH" HOME="$HOME" hack/demo.sh

To install the chart on your cluster, build the image, push it to a registry that the cluster can pull from, and run:

  helm install hub-addons charts/hub-addons --namespace hub-addons --create-namespace \
    --set image.registry=registry.example --set image.digest=sha256:...
EOF
}

keep=''
case ${1-} in
  '') ;;
  --keep) keep=1 ;;
  -h | --help) usage; exit ;;
  *) usage >&2; exit 2 ;;
esac

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
work=$(mktemp -d)
declare -A pids=()

say() { printf '\n\033[1m== %s\033[0m\n' "$*"; }
run() { printf '\n$ %s\n' "$*"; "$@"; }
fail() { printf 'demo: %s\n' "$*" >&2; exit 1; }

cleanup() {
  status=$?
  trap - EXIT
  if [ -n "$keep" ] && [ "$status" -eq 0 ]; then
    exit 0
  fi
  if [ "$status" -ne 0 ]; then
    show_logs >&2
  fi
  if [ -n "${pids[go]-}" ]; then
    # The build scripts, which stop what they run.
    pkill -P "${pids[go]}" 2>/dev/null || true
  fi
  if [ ${#pids[@]} -gt 0 ]; then
    kill "${pids[@]}" 2>/dev/null || true
    wait "${pids[@]}" 2>/dev/null || true
  fi
  rm -rf "$work"
  exit "$status"
}

# start NAME ARGUMENT...: runs local-hub in the background.
start() {
  local name=$1
  shift
  if [ -n "$keep" ]; then
    nohup "$target/local-hub" "$@" </dev/null >"$work/$name.log" 2>&1 &
  else
    # Stops when this script ends, even by SIGKILL: the pipe then has no writer left.
    "$target/local-hub" "$@" --until-stdin-closes <"$work/alive" 3>&- >"$work/$name.log" 2>&1 &
  fi
  pids[$name]=$!
}

# until_ready NAME FILE: waits until the program with this name has written its file.
until_ready() {
  until [ -e "$2" ]; do
    kill -0 "${pids[$1]}" 2>/dev/null || { cat "$work/$1.log" >&2; fail "$1 did not start"; }
    sleep 0.2
  done
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# --- the hub -----------------------------------------------------------------------------------------

cd "$root"
# shellcheck source=hack/demo/addons.sh
. hack/demo/addons.sh
# shellcheck source=hack/demo/credentials.sh
. hack/demo/credentials.sh
target=${CARGO_TARGET_DIR:-$root/target}/debug
say "Building"
build

mkfifo "$work/alive"
exec 3<>"$work/alive"
[ -n "$keep" ] || tidy_up_after_a_kill

say "Starting a hub, two clusters, and a proxy to them"
start hub up --dir "$work/hub" --no-crds --workloads
start_clusters
start_user_server
until_ready hub "$work/hub/ready"
# shellcheck source=/dev/null
. "$work/hub/ready"
PATH=$PATH:$LOCAL_HUB_BIN

say "Installing the CRDs that the hub lacks"
"$hub_addons" crds >"$work/all-crds.yaml"
# The chart installs the CRD of ClusterProfile, and never those of Open Cluster Management.
if [ -n "$helm_installs" ]; then theirs=clusterprofiles; else theirs='none of them'; fi
awk -v RS='---\n' -v not="name: $theirs" 'NF && index($0, not) == 0 { printf "---\n%s", $0 }' "$work/all-crds.yaml" >"$work/crds.yaml"
kubectl create -f "$work/crds.yaml"
kubectl wait --for=condition=Established --timeout=30s -f "$work/crds.yaml" >/dev/null

# --- the fleet ---------------------------------------------------------------------------------------

# cluster NAME LABEL=VALUE...: a cluster that has joined and is available.
cluster() {
  local name=$1
  shift
  kubectl create -f - >/dev/null <<EOF
apiVersion: cluster.open-cluster-management.io/v1
kind: ManagedCluster
metadata: {name: $name}
spec: {hubAcceptsClient: true}
EOF
  [ $# -eq 0 ] || kubectl label managedcluster "$name" "$@" >/dev/null
  condition "$name" True ManagedClusterAvailable "Managed cluster is available"
}

# condition CLUSTER STATUS REASON MESSAGE: writes what OCM's agents and controllers would report.
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

# bind_set NAMESPACE SET: grants the set's clusters to the namespace.
bind_set() {
  kubectl create -f - <<EOF
apiVersion: cluster.open-cluster-management.io/v1beta2
kind: ManagedClusterSetBinding
metadata: {name: $2, namespace: $1}
spec: {clusterSet: $2}
EOF
}

say "Creating a fleet of four clusters, two sets, and two applications that are bound to them"
set_label=cluster.open-cluster-management.io/clusterset
cluster berlin "$set_label=prod"
cluster paris "$set_label=prod" accelerator=gpu
cluster tokyo "$set_label=prod"
cluster lab accelerator=gpu
kubectl create -f - <<EOF
apiVersion: v1
kind: Namespace
metadata: {name: argocd}
---
apiVersion: v1
kind: Namespace
metadata: {name: kueue}
---
apiVersion: cluster.open-cluster-management.io/v1beta2
kind: ManagedClusterSet
metadata: {name: prod}
---
apiVersion: cluster.open-cluster-management.io/v1beta2
kind: ManagedClusterSet
metadata: {name: gpu}
spec:
  clusterSelector:
    selectorType: LabelSelector
    labelSelector: {matchLabels: {accelerator: gpu}}
EOF
bind_set argocd prod
bind_set kueue gpu
kubectl create configmap --namespace argocd user-server --from-literal "ca.crt=$USER_SERVER_CA"

# --- the addons --------------------------------------------------------------------------------------

if [ -n "$helm_installs" ]; then
  install_addons
else
  run_addons
fi

# until_seen NAMESPACE/CLUSTER...: waits until the two applications see exactly these, each with an access provider.
until_seen() {
  local wanted seen
  wanted=$(printf '%s\n' "$@" | sort)
  for _ in $(seq 100); do
    kill -0 "${pids[addons]}" 2>/dev/null || fail "the addons have exited"
    seen=$(kubectl get clusterprofiles --all-namespaces -l x-k8s.io/cluster-manager=open-cluster-management \
      -o jsonpath='{range .items[?(@.status.accessProviders)]}{.metadata.namespace}/{.metadata.name}{"\n"}{end}' |
      grep -E '^(argocd|kueue)/' | sort || true)
    [ "$seen" != "$wanted" ] || return 0
    sleep 0.2
  done
  fail "the applications should see: ${wanted//$'\n'/ }; they see: ${seen//$'\n'/ }"
}

show_profiles() {
  kubectl get clusterprofiles --all-namespaces -l x-k8s.io/cluster-manager=open-cluster-management -o custom-columns='NAMESPACE:.metadata.namespace,CLUSTER:.metadata.name,SET:.metadata.labels.multicluster\.x-k8s\.io/clusterset,HEALTHY:.status.conditions[?(@.type=="ControlPlaneHealthy")].status,VERSION:.status.version.kubernetes,SERVER:.status.accessProviders[0].cluster.server'
}

# why NAMESPACE: every step, of which none is a problem here. explain gets the flags of the controllers.
why() {
  local settings=(--compute-bound "--access-provider-server=$USER_SERVER_URL/{cluster}")
  printf '\n$ kubectl clusterprofile explain --all %s\n' "$1"
  "$clusterprofile" explain --kubeconfig "$KUBECONFIG" --all "$1" -- "${settings[@]}" ||
    fail "explain has found a problem or has failed: its exit status is $?"
}

until_seen argocd/berlin argocd/paris argocd/tokyo kueue/lab kueue/paris

say "Which application sees which clusters"
show_profiles
say "… and why"
why kueue
say "What an application sees of one of them"
run kubectl get clusterprofile --namespace argocd berlin -o yaml

say "Clusters move: lab joins prod, paris loses its GPUs, tokyo stops reporting"
run kubectl label managedcluster lab "$set_label=prod"
run kubectl label managedcluster paris accelerator-
condition tokyo Unknown ManagedClusterLeaseUpdateStopped "Registration agent stopped updating its lease"
until_seen argocd/berlin argocd/lab argocd/paris argocd/tokyo kueue/lab
kubectl wait clusterprofile --namespace argocd tokyo --timeout=20s \
  --for='jsonpath={.status.conditions[?(@.type=="ControlPlaneHealthy")].status}=Unknown' >/dev/null

say "What the applications see now"
show_profiles
say "… and why"
why argocd

show_credentials

if [ -n "$keep" ]; then
  cat <<EOF

The hub, its clusters and the addons keep running. To explore them:

  export KUBECONFIG=$KUBECONFIG PATH=\$PATH:$LOCAL_HUB_BIN
  kubectl get clusterprofiles --all-namespaces
  kubectl label managedcluster tokyo $set_label-
  $clusterprofile explain -- --compute-bound
  kubectl --kubeconfig $work/argocd-berlin.kubeconfig get namespaces
$(ways_to_look)

To stop them: kill ${pids[*]}; rm -r $work
EOF
else
  say "Done. Stopping everything that the demo started"
fi
