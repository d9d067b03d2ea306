# The part of the demo that has the addons built and run: installed by the chart where the demo's own hub can have Pods,
# and as a process otherwise.
# shellcheck shell=bash
# shellcheck disable=SC2153,SC2154 # what this part does not set itself, hack/demo.sh does

# Set where the chart is installed; and where the programs are.
helm_installs='' programs=''
release=hub-addons
image=registry.example/hub-addons:demo

case $(uname -m) in
  arm64 | aarch64) arch=arm64 triple=aarch64-unknown-linux-musl ;;
  *) arch=amd64 triple=x86_64-unknown-linux-musl ;;
esac

# What is missing is built side by side: compilers and linkers wait for each other, and for downloads, within one build.
build() {
  local go=''
  if [ -z "$kubeconfig" ]; then
    say_what_is_built
    { hack/control-plane.sh && hack/helm.sh; } >"$work/go-programs" &
    go=$!
    pids[go]=$go
  fi
  build_addons
  [ -n "$go" ] || return 0
  wait "$go" || fail "the control plane or helm could not be built"
  unset "pids[go]"
  helm=$(hack/helm.sh)
}

# So that whoever waits knows for what.
say_what_is_built() {
  cat <<'TEXT'
What is not there yet is built from source, once, which takes on two cores about
  6 minutes   Kubernetes: etcd, kube-apiserver, kube-controller-manager and kubectl. Where KUBEBUILDER_ASSETS names a
              directory with them, or setup-envtest has installed them: half of that, or nothing
  3 minutes   the addons
  2 minutes   helm. Where HELM names it: nothing
and less together. On a cluster of yours (a kind cluster will do) nothing of it but the addons is needed: --kubeconfig.
TEXT
}

build_addons() {
  programs=$target
  if [ -n "$kubeconfig" ]; then
    cargo build --locked --package hub-addons
    return
  fi
  cargo build --locked --package local-hub
  if can_have_pods; then
    helm_installs=1 programs=${target%/debug}/$triple/quick
    hack/image.sh --profile quick --no-sbom --arch "$arch" --tag demo --output "$work/images" hub-addons
  else
    cargo build --locked --package hub-addons --package cp-creds
  fi
}

# Whether Pods can run here, and says what is missing.
can_have_pods() {
  local why=''
  if ! why=$("$target/local-hub" pods --can 2>&1); then
    why=${why#local-hub: }
  elif hack/image.sh --can; then
    return 0
  else
    why="No image can be built here: none of buildah, podman and docker is installed"
  fi
  printf '\n%s.\nSo the chart is not installed: the addons run as a process beside the hub, with all permissions.\n' "$why"
  return 1
}

# What the script cannot do when it is killed: local-hub ends with it, and this removes what is left.
tidy_up_after_a_kill() {
  (
    cat >/dev/null
    [ ! -e "$work/addons.pid" ] || kill "$(cat "$work/addons.pid")"
    # Somebody may still write there.
    until rm -rf "$work"; do sleep 0.2; done
  ) <"$work/alive" >/dev/null 2>&1 3>&- &
}

helm() {
  HELM_CACHE_HOME=$work/helm/cache HELM_CONFIG_HOME=$work/helm/config HELM_DATA_HOME=$work/helm/data "$helm" "$@"
}

# What the chart has to know of this hub, and who its applications are.
write_values() {
  cat >"$work/values.yaml" <<YAML
image: {registry: ${image%%/*}, tag: ${image##*:}}
computeBound: true # no other controller sets the condition Bound
accessProvider:
  source: static
  static:
    server: $proxy/{cluster}
    ca: {kind: configmap, namespace: argocd, name: $ca}
consumers:
  argocd: {namespace: argocd, serviceAccountName: application, managedServiceAccount: deployer, clusters: [berlin, lab]}
  kueue: {namespace: kueue, serviceAccountName: application, managedServiceAccount: deployer, clusters: [lab]}
YAML
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
  show_rights
}

# As a process, with all rights on the hub.
run_addons() {
  say "Running the addons"
  printf '$ hub-addons run --access-provider-source=static …   (its log is in %s)\n' "$work/addons.log"
  nohup "$programs/hub-addons" run --kubeconfig "$KUBECONFIG" --cluster-manager-name "$manager" "${compute_bound[@]}" \
    --feature-gates "$gates" --leader-election-namespace "${prefix}argocd" \
    --access-provider-source static \
    --access-provider-server "$proxy/{cluster}" \
    --access-provider-ca "configmap/${prefix}argocd/$ca/ca.crt" \
    --metrics-bind-address 127.0.0.1:0 --health-probe-bind-address 127.0.0.1:0 \
    </dev/null >"$work/addons.log" 2>&1 3>&- &
  pids[addons]=$!
  echo "${pids[addons]}" >"$work/addons.pid"
  if [ -z "$kubeconfig" ]; then
    write_values
    helm template "$release" charts/hub-addons --values "$work/values.yaml" --show-only templates/consumers.yaml |
      kubectl create -f -
  fi
}

# rules ARGUMENT...: what roles allow, without what else there is to say of them.
rules() { run kubectl describe "$@" | sed '/^Labels:/,/^PolicyRule:/ { /^PolicyRule:/!d }'; }

# account COMPONENT: what the API server calls it.
account() { echo "system:serviceaccount:$release:$release-$1"; }

# may COMPONENT VERB RESOURCE ARGUMENT...: shows the answer, be it yes or no.
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

# What the label on the accounts has changed.
show_credential_rights() {
  say "The syncer has received its permissions: tokens by name, copies in bound namespaces"
  rules clusterrole "$release-credentials-tokens"
  run kubectl get rolebindings --all-namespaces --field-selector "metadata.name=$release-credentials-copies"
}

# What the addons said last.
show_logs() {
  local log
  for log in "$work/addons.log" "${PODS_LOGS:-$work}"/"$release"/*/*.log; do
    [ -s "$log" ] || continue
    printf '\nThe last lines of %s:\n' "$log"
    tail -n 20 "$log"
  done
}

# For whoever keeps it running.
ways_to_look() {
  if [ -n "$helm_installs" ]; then
    echo "  $helm --namespace $release status $release"
    echo "  tail -f $PODS_LOGS/$release/*/$release.log"
  else
    echo "  tail -f $work/addons.log"
  fi
}
