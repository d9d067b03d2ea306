# The part of the demo that builds and runs the addons: installed by the chart on a node of the demo's own if one can run
# here, and as a process otherwise.
# shellcheck shell=bash
# shellcheck disable=SC2034,SC2153,SC2154 # other parts set what this one uses, and use what it sets

# Set if the chart is installed; and the programs.
helm_installs='' hub_addons='' cp_creds='' clusterprofile=''
release=hub-addons
image=registry.example/hub-addons:demo

arch=$(hack/program.sh --host)

# Missing programs are built concurrently: within one build, compilers and linkers wait for each other and for
# downloads.
build() {
  can_have_pods && helm_installs=1
  say_what_is_built
  {
    hack/control-plane.sh && hack/go-program.sh helm && { [ -z "$helm_installs" ] || hack/node.sh; }
  } >"$work/go-programs" &
  pids[go]=$!
  build_addons
  wait "${pids[go]}" || fail "building the control plane, helm or the node failed"
  unset "pids[go]"
  helm=$(hack/go-program.sh helm)
}

# Tells the user what takes so long.
say_what_is_built() {
  cat <<'TEXT'
Missing programs are built from source, once: Kubernetes (unless KUBEBUILDER_ASSETS names a directory with it), helm
(unless HELM names it), a node and the addons. That takes 11 minutes on an idle machine with two cores, or 20 beside other
work.
TEXT
}

# In a test, programs as the other tests have built them: with other features or another profile, Cargo compiles the
# dependencies again.
build_addons() {
  local profile=(--profile quick)
  hub_addons=$target/hub-addons cp_creds=$target/cp-creds clusterprofile=$target/kubectl-clusterprofile
  if [ -n "${DEMO_IS_TESTED-}" ]; then
    profile=()
    cargo test --locked --workspace --features e2e --no-run --test hubs
  else
    cargo build --locked --package local-hub
  fi
  if [ -n "$helm_installs" ]; then
    hack/image.sh "${profile[@]}" --no-sbom --arch "$arch" --tag demo --output "$work/images" hub-addons
    hub_addons=$(hack/program.sh "${profile[@]}" hub-addons)
    cp_creds=$(hack/program.sh "${profile[@]}" cp-creds)
    cargo build --locked --package kubectl-clusterprofile
  else
    cargo build --locked --package hub-addons --package cp-creds --package kubectl-clusterprofile
  fi
}

# Whether Pods can run here; reports what is missing.
can_have_pods() {
  local why
  ! why=$(hack/node.sh --can 2>&1) || return 0
  printf '\nNo node can run here: %s.\n' "${why#node: }"
  printf 'So this demo does not show the image, the chart with its permissions and policies, or Pods: the addons run as a\n'
  printf 'process beside the hub, with all permissions.\n'
  return 1
}

# What the script cannot do after SIGKILL: local-hub ends with it, and this removes the rest.
tidy_up_after_a_kill() {
  (
    cat >/dev/null
    [ ! -e "$work/addons.pid" ] || kill "$(cat "$work/addons.pid")"
    # A program may still write there.
    until rm -rf "$work"; do sleep 0.2; done
  ) <"$work/alive" >/dev/null 2>&1 3>&- &
}

helm() {
  HELM_CACHE_HOME=$work/helm/cache HELM_CONFIG_HOME=$work/helm/config HELM_DATA_HOME=$work/helm/data "$helm" "$@"
}

# The values that describe this hub and its applications.
write_values() {
  cat >"$work/values.yaml" <<YAML
image: {registry: ${image%%/*}, tag: ${image##*:}}
computeBound: true # no other controller sets the condition Bound
accessProvider:
  static:
    server: $USER_SERVER_URL/{cluster}
    ca: configmap/argocd/user-server/ca.crt
YAML
}

# may_read NAMESPACE COPY...: permits the application of a namespace to read these copies, and nothing else.
may_read() {
  local copies=("${@:2}")
  run kubectl create role application --namespace "$1" --verb get --resource secrets "${copies[@]/#/--resource-name=}"
  kubectl create rolebinding application --namespace "$1" --role application --serviceaccount "$1:application"
}

applications_may_read() {
  may_read argocd berlin-deployer lab-deployer
  may_read kueue lab-deployer
}

install_addons() {
  say "Installing the chart, in a namespace that accepts only restricted Pods"
  write_values
  run cat "$work/values.yaml"
  kubectl create -f - <<YAML
apiVersion: v1
kind: Namespace
metadata: {name: $release, labels: {pod-security.kubernetes.io/enforce: restricted}}
YAML
  start addons pods --image "$image=$work/images/hub-addons-$arch.oci.tar" --ready-file "$work/pods"
  until_ready addons "$work/pods"
  # shellcheck source=/dev/null
  . "$work/pods"
  run helm install "$release" charts/hub-addons --namespace "$release" --values "$work/values.yaml"
  local component
  for component in profiles credentials; do
    run kubectl --namespace "$release" rollout status --timeout 60s "deployment/$release-$component"
  done
  run kubectl --namespace "$release" get deployments,pods
  applications_may_read
  show_rights
}

# As a process, with all permissions on the hub.
run_addons() {
  say "Running the addons"
  printf '$ hub-addons run --access-provider-server=… …   (its log is in %s)\n' "$work/addons.log"
  nohup "$hub_addons" run --kubeconfig "$KUBECONFIG" --compute-bound --leader-election-namespace argocd \
    --access-provider-server "$USER_SERVER_URL/{cluster}" --access-provider-ca configmap/argocd/user-server/ca.crt \
    --metrics-bind-address 127.0.0.1:0 --health-probe-bind-address 127.0.0.1:0 \
    </dev/null >"$work/addons.log" 2>&1 3>&- &
  pids[addons]=$!
  echo "${pids[addons]}" >"$work/addons.pid"
  applications_may_read
}

# rules ARGUMENT...: the rules of roles, without their other fields.
rules() { run kubectl describe "$@" | sed '/^Labels:/,/^PolicyRule:/ { /^PolicyRule:/!d }'; }

# account COMPONENT: the user name of its ServiceAccount.
account() { echo "system:serviceaccount:$release:$release-$1"; }

# may COMPONENT VERB RESOURCE ARGUMENT...: prints whether it is allowed.
may() {
  local component=$1
  shift
  run kubectl auth can-i "$@" --as "$(account "$component")" || true
}

show_rights() {
  say "The permissions: two Deployments, because they need different trust"
  local selector=app.kubernetes.io/instance=$release
  run kubectl get clusterroles,roles --all-namespaces --selector "$selector"
  rules clusterrole "$release-profiles" "$release-credentials"
  may profiles list secrets --all-namespaces
  may credentials list secrets --all-namespaces
  say "… and whatever RBAC permits, policies pin what they write"
  run kubectl get validatingadmissionpolicies --selector "$selector"
}

# The effect of the label on the accounts.
show_credential_rights() {
  say "The syncer has received its permissions: tokens by name, copies in bound namespaces"
  rules clusterrole "$release-credentials-tokens"
  run kubectl get rolebindings --all-namespaces --field-selector "metadata.name=$release-credentials-copies"
}

# The last log lines of the addons.
show_logs() {
  local log
  for log in "$work/addons.log" "${PODS_LOGS:-$work}"/"$release"/*/*/*.log; do
    [ -s "$log" ] || continue
    printf '\nThe last lines of %s:\n' "$log"
    tail -n 20 "$log"
  done
}

# For users of --keep.
ways_to_look() {
  if [ -n "$helm_installs" ]; then
    echo "  $helm --namespace $release status $release"
    echo "  kubectl --namespace $release logs --follow --prefix --selector app.kubernetes.io/instance=$release"
  else
    echo "  tail -f $work/addons.log"
  fi
}
