# The part of the demo about credentials, on the local hub: two real clusters, and an application that reaches them with
# only its profiles and one permission.
# shellcheck shell=bash
# shellcheck disable=SC2154 # hack/demo.sh sets the variables that this part does not

real_clusters=(berlin lab)
sync=authentication.open-cluster-management.io/sync-to-clusterprofile
synced_from=authentication.open-cluster-management.io/synced-from

# Starts the API servers of the real clusters. The demo needs nothing else of them.
start_clusters() {
  local cluster
  for cluster in "${real_clusters[@]}"; do
    start "$cluster" up --dir "$work/$cluster" --no-crds --no-controller-manager
  done
}

# Starts a stand-in for cluster-proxy's user server, in front of the real clusters.
start_user_server() {
  local cluster arguments=()
  for cluster in "${real_clusters[@]}"; do
    until_ready "$cluster" "$work/$cluster/ready"
    arguments+=(--cluster "$cluster=$work/$cluster/admin.kubeconfig")
  done
  start user-server user-server --ready-file "$work/user-server" "${arguments[@]}"
  until_ready user-server "$work/user-server"
  # shellcheck source=/dev/null
  . "$work/user-server"
}

agents=open-cluster-management-agent-addon
on() { run kubectl --kubeconfig "$work/$1/admin.kubeconfig" "${@:2}"; }

# What the managed-serviceaccount addon does for each cluster, and what the cluster's administrator does.
report_tokens() {
  local cluster
  for cluster in "${real_clusters[@]}"; do
    kubectl create namespace "$cluster" >/dev/null
    on "$cluster" create namespace "only-in-$cluster"
    kubectl create -f - <<YAML
apiVersion: authentication.open-cluster-management.io/v1beta1
kind: ManagedServiceAccount
metadata: {name: deployer, namespace: $cluster}
spec: {rotation: {}}
YAML
    report_token "$cluster"
    on "$cluster" create clusterrole deployer --verb=get,list,watch --resource=namespaces
    on "$cluster" create clusterrolebinding deployer --clusterrole deployer --serviceaccount "$agents:deployer"
  done
}

report_token() {
  run "$target/local-hub" report-token --hub "$KUBECONFIG" --managed "$work/$1/admin.kubeconfig" --cluster "$1" --msa deployer
}

# application NAMESPACE: creates an account and its kubeconfig for the hub, which it would not need in a Pod. Its only
# permission is to read its copies.
application() {
  local namespace=$1 file=$work/$1.kubeconfig
  run kubectl create serviceaccount --namespace "$namespace" application
  rules role --namespace "$namespace" application
  {
    kubectl config view --raw --minify --flatten >"$file"
    kubectl config --kubeconfig "$file" set-credentials application \
      --token "$(kubectl create token --namespace "$namespace" application)"
    kubectl config --kubeconfig "$file" set-context --current --user application --namespace "$namespace"
    kubectl config --kubeconfig "$file" unset users.admin
  } >/dev/null
}

# kubeconfig NAMESPACE CLUSTER: writes a kubeconfig for a cluster from the application's profile and the plugin.
kubeconfig() {
  "$clusterprofile" kubeconfig "$1/$2" --account deployer --plugin "$cp_creds" --hub-kubeconfig "$work/$1.kubeconfig" \
    >"$work/$1-$2.kubeconfig"
}

# as APPLICATION CLUSTER ARGUMENT...: runs kubectl as the application.
as() {
  local file=$work/$1-$2.kubeconfig
  shift 2
  run kubectl --kubeconfig "$file" "$@"
}

# refused COMMAND...: must fail; prints one line of its message.
refused() {
  if "$@" 2>"$work/refusal"; then fail "this should have been refused: $*"; fi
  # kubectl reads discovery first, and complains each time.
  grep -v ' memcache\.go' "$work/refusal" | uniq
}

# until_works COMMAND..., until_fails COMMAND...: retries silently.
until_works() { retry "this did not succeed in time" "$@"; }
until_fails() { retry "this did not fail in time" not "$@"; }
not() { if "$@"; then return 1; fi; }
retry() {
  local complaint=$1
  shift
  for _ in $(seq 100); do
    if "$@" >/dev/null 2>&1; then return; fi
    sleep 0.1
  done
  fail "$complaint: $*"
}

# deleted RESOURCE: when the hub last deleted one in namespace argocd, from its audit log.
deleted() {
  grep '"verb":"delete"' "$work/hub/audit.log" | grep "\"resource\":\"$1\",\"namespace\":\"argocd\"" |
    sed -n '$s/.*"stageTimestamp":"\([^"]*\)".*/\1/p'
}

# A part of the application's token for berlin, enough to recognize it.
fingerprint() { kubectl get secret --namespace argocd berlin-deployer -o 'jsonpath={.data.token}' | sha256sum; }
is_rotated() { ! fingerprint | cmp --silent "$work/old" -; }

show_credentials() {
  local cluster
  # In a Pod, cp-creds would take the hub of the Pod.
  unset KUBERNETES_SERVICE_HOST
  say "Two of the clusters are real, and each reports the token of an account"
  report_tokens
  say "A label makes the syncer copy the tokens to the namespaces that see the clusters"
  for cluster in "${real_clusters[@]}"; do
    run kubectl label managedserviceaccount --namespace "$cluster" deployer "$sync=true"
  done
  until_works kubectl get secrets --namespace argocd berlin-deployer lab-deployer
  until_works kubectl get secret --namespace kueue lab-deployer
  run kubectl get secrets --all-namespaces --selector "$synced_from"
  [ -z "$helm_installs" ] || show_credential_rights

  say "The applications may read their copies, and nothing else on the hub"
  application argocd
  application kueue
  until_works kubectl --kubeconfig "$work/argocd.kubeconfig" get secrets berlin-deployer lab-deployer
  until_works kubectl --kubeconfig "$work/kueue.kubeconfig" get secret lab-deployer

  say "A kubeconfig made of a profile and cp-creds"
  kubeconfig argocd berlin
  kubeconfig argocd lab
  kubeconfig kueue lab
  printf '\n$ cat %s\n' "$work/argocd-berlin.kubeconfig"
  sed 's|^\( *[A-Za-z0-9+/]\{20\}\)[A-Za-z0-9+/=]*$|\1…|' "$work/argocd-berlin.kubeconfig"

  say "With it, the application lists the namespaces of each cluster"
  as argocd berlin get namespaces
  as argocd lab get namespaces
  say "… but the cluster and the hub refuse everything else"
  refused as argocd berlin get secrets --namespace kube-system
  refused run kubectl --kubeconfig "$work/argocd.kubeconfig" get secrets
  refused run kubectl --kubeconfig "$work/argocd.kubeconfig" get secret --namespace berlin deployer

  say "A token is rotated: the account on berlin is recreated, which invalidates its old token"
  fingerprint >"$work/old"
  on berlin delete serviceaccount --namespace "$agents" deployer
  report_token berlin
  until_works is_rotated
  as argocd berlin get namespaces

  say "The binding of argocd is deleted, and its copies with it"
  run kubectl delete managedclustersetbinding --namespace argocd prod
  until_fails kubectl --kubeconfig "$work/argocd-berlin.kubeconfig" get namespaces
  until_fails kubectl --kubeconfig "$work/argocd-lab.kubeconfig" get namespaces
  refused as argocd berlin get namespaces
  printf '\nAccording to the audit log of the hub, the binding was deleted at %s\n%43s the last copy at %s\n' \
    "$(deleted managedclustersetbindings)" '' "$(deleted secrets)"
  say "… while kueue, whose binding exists, still reaches its cluster"
  as kueue lab get namespaces

  say "After the namespace is bound again, the kubeconfig of argocd works as before"
  bind_set argocd prod
  until_works kubectl --kubeconfig "$work/argocd-berlin.kubeconfig" get namespaces
  as argocd berlin get namespaces
}
