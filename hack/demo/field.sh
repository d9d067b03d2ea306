# The part of the demo with --field: Open Cluster Management's own programs instead of their stand-ins.
# shellcheck shell=bash
# shellcheck disable=SC2034,SC2153,SC2154 # hack/demo.sh sets the variables that this part does not, and reads some

# What local-hub field runs.
field_programs=(cluster-proxy cluster-proxy-agent cluster-proxy-manager proxy-agent proxy-server managed-serviceaccount)
# The user of cluster-proxy's agents.
field_user="cluster-proxy-agent=open-cluster-management:cluster-proxy"

build_field() {
  local program
  for program in "${field_programs[@]}"; do
    hack/go-program.sh "$program" || return 1
  done
}

# Upstream's CRDs, which have the defaults and the fields that its programs need.
upstream_crds() {
  local directory file
  directory=$(hack/upstream-crds.sh)
  for file in "$directory"/ocm/*.yaml; do
    printf -- '---\n'
    cat "$file"
  done
}

# Starts the node that also runs the Pods of the addons.
start_field() {
  local cluster arguments=()
  for cluster in "${real_clusters[@]}"; do
    until_ready "$cluster" "$work/$cluster/ready"
    arguments+=(--cluster "$cluster=$work/$cluster")
  done
  say "Starting cluster-proxy on the hub, and its agent and that of managed-serviceaccount on ${real_clusters[*]}"
  start addons field --hub "$work/hub" "${arguments[@]}" --image "$1" --ready-file "$work/pods"
}

say_what_is_real() {
  say "What is real, and what this demo plays"
  cat <<TEXT
  real    the API servers of the hub, ${real_clusters[0]} and ${real_clusters[1]}
  real    cluster-proxy: its chart, manager, proxy server and user server; on ${real_clusters[0]} and ${real_clusters[1]}
          its proxy agent, addon agent and service proxy
  real    the agent of managed-serviceaccount on ${real_clusters[0]} and ${real_clusters[1]}
  real    the nodes: kubelet, containerd, kube-proxy, kube-scheduler and CoreDNS, as processes on this machine
  played  paris and tokyo, which are objects on the hub only
  played  OCM's registration: the demo writes the state of clusters; the projector computes whether bindings are bound
  played  OCM's addon manager, registration agent and work agent: local-hub enables cluster-proxy's addon, requests its
          certificates, and applies on the clusters what its manager deploys
TEXT
}

# The agent has reported a token of the account.
agent_reports() {
  run kubectl wait managedserviceaccount --namespace "$1" deployer --for condition=TokenReported --timeout 60s
}

# The agent has replaced a token that its cluster refuses, which it notices at a change of the ManagedServiceAccount.
# API servers accept a token for some seconds after its account is gone.
agent_replaces() {
  echo 'The agent replaces the token as soon as the cluster refuses it …'
  until_works agent_has_replaced "$1"
}
agent_has_replaced() {
  kubectl annotate managedserviceaccount --overwrite --namespace "$1" deployer "example.com/changed=$SECONDS"
  sleep 0.5
  is_rotated
}
