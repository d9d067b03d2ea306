#!/usr/bin/env bash
# Runs the checks for a change, all checks, or some of them. A check whose tools are missing is skipped and named; with
# CI=true the tools are installed, and a check that cannot run fails.
set -euo pipefail

usage() {
  cat <<'EOF'
usage: hack/test.sh [all | PART...]

Without arguments, what shows in minutes whether a change is right; it needs Rust and Go:

  fmt        the code is formatted
  clippy     no lint warns, and no link in the documentation of the code is broken
  unit       decisions, by tables and properties; no hub is started
  schedules  1000 random schedules on a simulated API server
  rules      the main rules of each controller, from the grant to the token in an application, and the policies of the
             chart, on a real API server (built on the first run, which takes minutes) with one flavour of the CRD

With "all", what has to pass before a change lands: fmt, clippy and unit, and then:

  robustness 10 000 random schedules on a simulated API server, a crash at every write, and all states of a tiny scope
             (an optimized build of the controllers: minutes)
  api        everything about the API, on real hubs on this machine (built on the first run, which takes minutes); the
             user server beside upstream's proxy server, when that freezes and when clusters attack through it; the
             requests of every scenario of the benchmark
  chart      the Helm chart: linted, rendered, and running on real hubs; its alerts and dashboard; the examples; krew
             installs the archives of kubectl clusterprofile (helm, promtool and krew are built on the first run)
  plugin     cp-creds as it is shipped: small, static, running in an empty root; its time and that of a Go peer are
             printed
  image      the container images: runnable, complete in their SBOMs, and reproducible (release builds: minutes; the
             second one only if the recipe has changed since the last comparison)
  installed  what people install: the chart, in Pods, with the permissions that it renders; some tests of api for each
             controller and for the whole chain
  cluster    what can be tested in Pods of any cluster with nodes: here a hub with two nodes, see HUB_ADDONS_CLUSTER
  load       35 000 profiles with as many copies, within the chart's limits of memory (the API server needs 8 GB)
  scripts    shellcheck, the references in the documents, and the demo from start to end
  deny       licences, bans, sources and advisories of dependencies (cargo-deny); it reports if the database of
             advisories cannot be reached

At the end, the script prints how long each took. Further parts:

  installed-all  like installed, with all tests of the controllers (a quarter of an hour)
  oldest         the rules, on the flavours of the CRD with v1alpha1, and the chart, on the oldest Kubernetes that is
                 tested (built on the first run, which takes minutes)
  field          next to upstream's own programs: OCM's registration controller, managed-serviceaccount, cluster-proxy
                 with its tunnel, Kueue, multicluster-runtime and Argo CD (each is built on the first run, which takes
                 minutes)

Programs that take long to build are built in parallel with the parts that do not need them.

  TEST_THREADS             how many tests on hubs run at once (10); they mostly wait
  HUB_ADDONS_CLUSTER       the kubeconfig of a cluster with nodes, such as one of kind (not tried): the part cluster uses
                           it, one test after the other. Nothing else may use it meanwhile: each test removes what was
                           added since its start. It needs image volumes (Kubernetes 1.35, containerd 2.1), and the
                           current context all permissions. What only hubs of this repository have is named in the
                           result
  HUB_ADDONS_CLUSTER_LOAD  a command that brings an image to its nodes. It is run with an OCI archive as its last argument,
                           as in HUB_ADDONS_CLUSTER_LOAD="kind load image-archive"
EOF
}

parts=("$@")
case ${1-} in
  '') parts=(fmt clippy unit schedules rules) ;;
  all) parts=(fmt clippy unit robustness api chart plugin image installed cluster load scripts deny) ;;
esac
for part in "${parts[@]}"; do
  case $part in
    fmt | clippy | unit | schedules | rules | robustness | api | field | chart | plugin | image | installed | installed-all | cluster | load | oldest | scripts | deny) ;;
    -h | --help) usage; exit ;;
    *) usage >&2; exit 2 ;;
  esac
done

# Only one part uses it.
their_cluster=${HUB_ADDONS_CLUSTER:+$(realpath -- "$HUB_ADDONS_CLUSTER")}
unset HUB_ADDONS_CLUSTER
if [ -n "$their_cluster" ] && [ ! -r "$their_cluster" ]; then
  echo "test: HUB_ADDONS_CLUSTER must be a kubeconfig; $their_cluster cannot be read" >&2
  exit 2
fi
if [ -n "$their_cluster" ] && [ -z "${HUB_ADDONS_CLUSTER_LOAD-}" ]; then
  echo "test: HUB_ADDONS_CLUSTER_LOAD must be a command that brings an image to the nodes of HUB_ADDONS_CLUSTER" >&2
  exit 2
fi

cd "$(dirname "${BASH_SOURCE[0]}")/.."
work=$(mktemp -d)
log=$work/log
# One that is inherited would count from where it stands.
SECONDS=0
: >"$log"
target=${CARGO_TARGET_DIR:-$PWD/target}
threads=${TEST_THREADS:-10}
if [ "${CI-}" = true ]; then
  # The directory is reused, so that nothing is built twice.
  export CARGO_INCREMENTAL=0
fi

# What happens is recorded in files: each part runs in a shell of its own, and so does what runs beside the parts.
: >"$work/took"
: >"$work/skipped"
say() { printf '\n== %s\n' "$*"; }
took() { printf '%s|%s\n' "$1" "$2" >>"$work/took"; }
skip() {
  if [ "${CI-}" = true ]; then
    printf 'FAILED, with CI=true nothing is skipped: %s\n' "$1" >&2
    exit 1
  fi
  printf '%s\n' "$1" >>"$work/skipped"
  printf 'SKIPPED %s\n' "$1"
}

# wants PART...: whether one of these runs.
wants() {
  local part wanted
  for part in "${parts[@]}"; do
    for wanted; do [ "$part" != "$wanted" ] || return 0; done
  done
  return 1
}

needs_hub() { wants rules oldest api chart field installed installed-all cluster load scripts; }
needs_helm() { wants rules oldest chart field installed installed-all cluster load scripts; }
# needs_node: whether a node of this machine is used. The part cluster does not, with the cluster of a user.
needs_node() { wants api field installed installed-all load scripts || { wants cluster && [ -z "$their_cluster" ]; }; }

# --- what runs beside the parts ----------------------------------------------------------------------

# begin NAME COMMAND...: runs once, in the background, with what time others leave. Beside a compiler with a low
# priority, which is not interrupted for a process that wakes up, tests that mostly wait take twice as long.
begin() {
  local name=$1
  shift
  mkdir "$work/$name.begun" 2>/dev/null || return 0
  (
    begun=$SECONDS
    trap 'echo "$? $((SECONDS - begun))" >"$work/$name.new"; mv "$work/$name.new" "$work/$name.ended"' EXIT
    chrt --idle --pid 0 "$BASHPID" 2>/dev/null || renice -n 19 -p "$BASHPID" >/dev/null
    "$@"
  ) >"$work/$name.out" 2>"$work/$name.err" </dev/null &
  echo "$!" >"$work/$name.pid"
}

# has_begun NAME: whether that runs, or has run.
has_begun() { [ -d "$work/$1.begun" ]; }

# need NAME: waits until that has finished, if it has begun.
need() {
  local name=$1 status seconds
  has_begun "$name" || return 0
  # Several parts may wait for it, and only the shell that began it could use `wait`.
  until [ -e "$work/$name.ended" ]; do sleep 0.2; done
  read -r status seconds <"$work/$name.ended"
  if [ "$status" != 0 ]; then
    cat "$work/$name.out" "$work/$name.err" >&2
    echo "FAILED: $name" >&2
    exit 1
  fi
  if mkdir "$work/$name.counted" 2>/dev/null; then took "beside: $name" "$seconds"; fi
}

# processes_below PID: all that it has started, directly or not.
processes_below() {
  local child
  for child in $(pgrep -P "$1" || true); do
    processes_below "$child"
    echo "$child"
  done
}

# Leaves no program running, however the script ends: neither what runs beside the parts nor the hubs of a test.
stop() {
  local status=$? pid file pids=()
  trap - EXIT
  trap '' INT TERM
  for pid in $$ $(cat "$work"/*.pid 2>/dev/null); do
    mapfile -t -O "${#pids[@]}" pids < <(processes_below "$pid")
    [ "$pid" = $$ ] || pids+=("$pid")
  done
  # Test programs do not stop their hubs on SIGTERM, so these are named one by one.
  [ ${#pids[@]} -eq 0 ] || kill -TERM "${pids[@]}" 2>/dev/null || true
  for file in "$work"/*.pid; do [ ! -e "$file" ] || wait "$(cat "$file")" 2>/dev/null || true; done
  rm -rf "$work"
  exit "$status"
}
trap stop EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

go_programs() {
  # It waits for the other build.
  hack/control-plane.sh
  ! needs_helm || hack/helm.sh
  ! wants scripts || hack/go-program.sh actionlint
  ! wants installed installed-all || hack/go-program.sh kube-router
  if wants chart; then
    hack/helm.sh 3
    hack/go-program.sh promtool
    hack/go-program.sh krew
  fi
}

# It waits for the other build.
proxy_server() { hack/control-plane.sh && hack/go-program.sh proxy-server; }

# Upstream's, one after the other.
field_programs() {
  local program
  for program in registration managed-serviceaccount kueue argocd \
    cluster-proxy cluster-proxy-agent cluster-proxy-manager proxy-agent proxy-server; do
    hack/go-program.sh "$program"
  done
}

check_images() { hack/check-image.sh --output "$work/images"; }

# For tests of what is installed, where the images themselves are not checked.
quick_images() { hack/image.sh --profile quick --no-sbom --arch native --output "$work/images"; }

# --- cargo -------------------------------------------------------------------------------------------

# Always the whole workspace, whatever is selected: the features of a dependency depend on the selected packages, and
# each other selection would rebuild the dependencies. The result lines are kept for the count at the end.
cargo_test() { workspace_test "$@" 2>&1 | tee -a "$log"; }

workspace_test() { cargo test --locked --workspace --features e2e "$@"; }

# tests_of DIRECTORY...: the names of packages' test programs.
tests_of() {
  local directory file
  for directory; do
    for file in "$directory"/tests/*.rs "$directory"/tests/*/main.rs; do
      [ -e "$file" ] || continue
      file=${file%/main.rs}
      basename "$file" .rs
    done
  done
}

# run_tests NAME...: runs test programs, two at a time: towards its end, each waits for a few long tests. The output of a
# program is printed when it ends.
run_tests() {
  local name options=() status=0
  for name; do options+=(--test "$name"); done
  cargo_test --no-run "${options[@]}"
  export -f run_test workspace_test
  export work
  # shellcheck disable=SC2016 # the argument of the inner shell
  RUST_TEST_THREADS=$(((threads + 1) / 2)) LOCAL_HUB_MAX=${LOCAL_HUB_MAX:-8} \
    xargs -n 1 -P $((threads > 1 ? 2 : 1)) bash -c 'run_test "$1"' run_test <<<"$*" || status=1
  for name; do cat "$work/$name.log" >>"$log"; done
  return "$status"
}

run_test() {
  local status=0
  workspace_test --test "$1" >"$work/$1.log" 2>&1 || status=1
  cat "$work/$1.log"
  return "$status"
}

# --- the parts ---------------------------------------------------------------------------------------

check_fmt() {
  cargo fmt --all -- --check
  gofmt_diff=$(gofmt -l deploy e2e)
  [ -z "$gofmt_diff" ] || { echo "not formatted: $gofmt_diff"; return 1; }
}

check_clippy() {
  cargo clippy --locked --workspace --features e2e --all-targets -- --deny warnings
  RUSTDOCFLAGS="--deny warnings --allow rustdoc::private-intra-doc-links" cargo doc --locked --workspace --no-deps --document-private-items
}

check_unit() {
  local crate crates=() options=() name
  for crate in crates/*; do
    [ "$crate" = crates/hub-addons ] || crates+=("$crate")
  done
  for name in reference $(tests_of "${crates[@]}"); do options+=(--test "$name"); done
  cargo_test --lib --bins "${options[@]}"
  cargo_test --doc
}

check_schedules() {
  need simulation
  "$target/sim/hub-sim" --schedules 1000
}

# Each rule on one flavour of the CRD: the others, and what is not a rule, are in the parts api and chart.
check_rules() {
  need control-plane
  need go-programs
  rules --skip atomic --skip v1alpha2
}

# rules [OPTION]...: the tests that state the rules, with options of the test programs.
rules() {
  RUST_TEST_THREADS=$threads cargo_test --test projector -- grants:: status:: ownership:: "$@"
  RUST_TEST_THREADS=$threads cargo_test --test access -- entry:: sources:: "$@"
  RUST_TEST_THREADS=$threads cargo_test --test credentials -- authority:: revocation:: names:: source:: "$@"
  RUST_TEST_THREADS=$threads cargo_test --test chain -- "$@"
  RUST_TEST_THREADS=$threads cargo_test --test chart -- policies:: "$@"
}

check_oldest() {
  need oldest-control-plane
  need go-programs
  export KUBERNETES_VERSION=oldest
  # The CRD with v1alpha2 requires 1.31, for CEL's format library; the test of the uninstallation writes the status of a
  # Job, which has other conditions there.
  rules --skip v1alpha2
  RUST_TEST_THREADS=$threads cargo_test --test chart -- install:: works:: consumers:: lacks_mutating --skip v1alpha2 --skip uninstall
}

# Where one can run.
node() { ! hack/node.sh --can || hack/node.sh; }

oldest_control_plane() { KUBERNETES_VERSION=oldest hack/control-plane.sh; }

simulation() { simulation_test --quiet --no-run; }

# Its tests that need no hub, and with them the program.
simulation_test() {
  cargo test --locked --profile sim --package hub-sim --features e2e \
    --test crashes --test moments --test schedules --test tiny_scope "$@"
}

check_robustness() {
  need simulation
  "$target/sim/hub-sim"
  simulation_test 2>&1 | tee -a "$log"
}

check_api() {
  need control-plane
  need node
  # The longest first; one test after the other is what takes long in `limits`.
  # shellcheck disable=SC2046 # words
  run_tests credentials limits $(tests_of e2e/bench e2e/local-hub e2e/hub-sim crates/hub-addons |
    grep -vxE 'credentials|limits|chart|field|permissions|pods|reference|crashes|moments|schedules|tiny_scope')
  # Of upstream's programs, this needs only the one that is built in little time.
  need proxy-server
  cargo_test --test field -- hostile_clusters::
}

# Not in the ordinary run: its programs take many minutes to build.
check_field() {
  need go-programs
  need field-programs
  need node
  # Few at once: each has several hubs and programs.
  RUST_TEST_THREADS=4 cargo_test --test field
  # The rules of grants, where OCM's own controller decides which bindings are bound; without the tests that write its
  # condition themselves.
  local by_hand=(
    --skip only_a_binding_that_is_bound_grants
    --skip a_binding_grants_when_it_is_bound_and_not_before
    --skip if_a_precondition_ended_before
    --skip in_which_a_precondition_ended
  )
  export HUB_ADDONS_REGISTRATION=1
  RUST_TEST_THREADS=$threads cargo_test --test projector -- grants:: "${by_hand[@]}"
  RUST_TEST_THREADS=$threads cargo_test --test credentials -- authority:: revocation:: "${by_hand[@]}" \
    --skip a_copy_is_deleted_when_a_precondition_ends
  unset HUB_ADDONS_REGISTRATION
  if hack/demo.sh --field >"$work/demo-field" 2>&1; then
    echo "the demo runs with upstream's programs"
  elif grep -q '^demo: --field runs' "$work/demo-field"; then
    skip "the demo with upstream's programs: $(sed -n 's/^demo: //p' "$work/demo-field")"
  else
    cat "$work/demo-field"
    return 1
  fi
}

check_chart() {
  need go-programs
  hack/test-chart.sh
  export LOCAL_HUB_AUDIT_LOGS=$work/audit-logs
  mkdir -p "$LOCAL_HUB_AUDIT_LOGS"
  RUST_TEST_THREADS=$threads cargo_test --test chart
  cargo_test --test permissions
}

check_plugin() {
  # Few runs, since nothing depends on time, and a hub of its own.
  env -u KUBECONFIG RUNS=20 hack/measure-cp-creds.sh 2>&1 | tee -a "$log"
}

# can_build_images: whether this machine can; reports what is missing.
can_build_images() {
  hack/image.sh --can && hack/have.sh jq jq
}

check_image() {
  # With CI=true, what is missing is installed.
  if can_build_images; then
    begin image check_images
    need image
    cat "$work/image.out"
  else
    skip "the images: jq, Go and a C compiler are needed"
  fi
}

# can_install WHAT: prepares what tests of the installed program need; reports the reason if they cannot run here.
can_install() {
  local why
  need go-programs
  # Cargo builds the programs of a package with its tests, and local-hub is one of hubs.
  workspace_test --no-run --quiet --test pods --test hubs
  if ! why=$(hack/node.sh --can 2>&1); then
    skip "$1: ${why#node: }; hack/test.sh cluster can use a cluster with nodes, by HUB_ADDONS_CLUSTER"
    return 1
  fi
  need node
  images
}

# images: waits for the images, which are in $work/images.
images() {
  if has_begun image; then
    need image
  else
    begin images quick_images
    need images
  fi
}

# The test of the chart's limits, which takes long.
load=memory::the_largest

# test_installed TEST [MODULE]...: of crates/hub-addons/tests.
test_installed() {
  local test=$1
  shift
  RUST_TEST_THREADS=$threads HUB_ADDONS_IMAGES=$work/images HUB_ADDONS_INSTALLED=1 cargo_test --test "$test" -- "$@"
}

check_installed() {
  can_install "the program as it is installed" || return 0
  test_installed pods --skip "$load"
  test_installed projector grants:: status::
  test_installed access entry::
  test_installed credentials authority:: revocation::
  test_installed chain
}

check_installed-all() {
  can_install "the program as it is installed" || return 0
  local test
  test_installed pods --skip "$load"
  for test in projector access credentials consumers chain; do test_installed "$test"; done
}

check_load() {
  can_install "the chart's limits of memory under load" || return 0
  test_installed pods "$load"
}

check_cluster() {
  if [ -n "$their_cluster" ]; then
    need go-programs
    images
    HUB_ADDONS_CLUSTER=$their_cluster test_on_cluster
    return
  fi
  can_install "what can be tested in Pods of any cluster" || return 0
  # Nothing that is known about it helps: the tests get its kubeconfig, and a command that loads images.
  cat >"$work/load" <<'EOF'
set -eu
for socket in $PODS_CONTAINERDS; do "$PODS_CTR" --address "$socket" --namespace k8s.io images import "$1"; done
EOF
  (
    mkfifo "$work/cluster-alive"
    serve() { "$target/debug/local-hub" "$@" --until-stdin-closes <"$work/cluster-alive" >>"$work/cluster.log" 2>&1 3>&- & }
    serve up --dir "$work/cluster" --no-crds --workloads
    exec 3>"$work/cluster-alive"
    await() { until [ -e "$1" ]; do kill -0 $! || { cat "$work/cluster.log"; exit 1; }; sleep 0.2; done; }
    await "$work/cluster/ready"
    # shellcheck source=/dev/null
    . "$work/cluster/ready"
    serve pods --nodes 2 --ready-file "$work/nodes"
    await "$work/nodes"
    # shellcheck source=/dev/null
    . "$work/nodes"
    PODS_CTR=$(hack/node.sh)/ctr
    export PODS_CTR
    objects() { "$LOCAL_HUB_BIN/kubectl" get --output name \
      customresourcedefinitions,namespaces,clusterroles,clusterrolebindings,validatingadmissionpolicies; }
    objects >"$work/objects"
    HUB_ADDONS_CLUSTER=$KUBECONFIG HUB_ADDONS_CLUSTER_LOAD="sh $work/load" test_on_cluster 3>&-
    diff "$work/objects" <(objects)
  )
}

test_on_cluster() { HUB_ADDONS_IMAGES=$work/images cargo_test --test pods; }

check_scripts() {
  local is_tested=
  if hack/have.sh shellcheck shellcheck; then
    shellcheck hack/*.sh hack/demo/*.sh .ci/run e2e/local-hub/src/*.sh e2e/local-hub/src/pods/*.sh
  else
    skip "shellcheck: it is not installed"
  fi
  need go-programs
  need node
  hack/versions.sh --check
  "$(hack/go-program.sh actionlint)" .github/workflows/*.yml
  hack/check-docs.sh
  # With the programs of the images, if these are built.
  ! wants image || is_tested=1
  DEMO_IS_TESTED=$is_tested hack/demo.sh >"$work/demo" 2>&1 || { cat "$work/demo"; return 1; }
  if grep -q '^So the chart is not installed' "$work/demo"; then
    skip "the demo's installation of the chart: $(grep -m 1 -B 1 '^So the chart' "$work/demo" | head -n 1)"
  fi
  hack/demo/check.sh "$work/demo"
  hack/demo/picture.sh "$work/demo" >/dev/null
  # On the cluster of a user, too: a plain one, without Open Cluster Management.
  (
    mkfifo "$work/alive"
    "$target/debug/local-hub" up --dir "$work/plain" --no-crds --workloads --until-stdin-closes <"$work/alive" >"$work/plain.log" 2>&1 &
    exec 3>"$work/alive"
    until [ -e "$work/plain/ready" ]; do kill -0 $! || { cat "$work/plain.log"; exit 1; }; sleep 0.2; done
    # shellcheck source=/dev/null
    . "$work/plain/ready"
    PATH=$PATH:$LOCAL_HUB_BIN
    DEMO_IS_TESTED=1 hack/demo.sh --kubeconfig "$KUBECONFIG" --yes >"$work/demo-plain" 2>&1 3>&- || { cat "$work/demo-plain"; exit 1; }
  )
  hack/demo/check.sh "$work/demo-plain"
  echo "the demo runs, on its own hub and on a plain one"
}

check_deny() {
  local deny
  need deny
  if deny=$(hack/cargo-deny.sh); then
    "$deny" --locked check licenses bans sources
    # In CI as well: a machine without a way to the database can still test a change.
    if timeout 120 "$deny" --locked fetch db >"$work/advisories" 2>&1; then
      "$deny" --locked check --disable-fetch advisories
    else
      printf 'advisories are NOT checked: the database cannot be reached: %s\n' "$(tail -n 1 "$work/advisories")"
    fi
  else
    skip "cargo-deny: it is not installed"
  fi
}

# Downloads go first, and not beside the tests: at a low priority, a TLS handshake times out.
say "downloads"
downloads() {
  cargo fetch --locked --quiet
  ! needs_hub || hack/control-plane.sh --download
  ! wants oldest || KUBERNETES_VERSION=oldest hack/control-plane.sh --download
  ! needs_node || hack/node.sh --download
  local program
  for program in $(! needs_helm || echo helm) \
    $(! wants chart || echo helm3 promtool krew) $(! wants scripts || echo actionlint) \
    $(! wants installed installed-all || echo kube-router) $(! wants api || echo proxy-server); do
    hack/go-program.sh --download "$program"
  done
}
begun=$SECONDS
failed=()
# As a command of its own, so that errexit holds in it. The parts that need what is missing say so; the others run.
set +e
(
  set -e
  trap - EXIT
  downloads
)
status=$?
set -e
[ "$status" = 0 ] || failed+=(downloads)
took "downloads$([ "$status" = 0 ] || echo ": FAILED")" $((SECONDS - begun))

# The longest first: these take minutes if nothing is built yet, and no time otherwise.
! needs_hub || begin control-plane hack/control-plane.sh
! needs_helm || begin go-programs go_programs
! needs_node || begin node node
! wants api || begin proxy-server proxy_server
! wants field || begin field-programs field_programs
! wants oldest || begin oldest-control-plane oldest_control_plane
! wants schedules robustness || begin simulation simulation
! wants deny || [ "${CI-}" != true ] || begin deny hack/cargo-deny.sh
if needs_hub && HUB_ADDONS_UPSTREAM_CRDS=$(hack/upstream-crds.sh); then
  export HUB_ADDONS_UPSTREAM_CRDS
fi

for part in "${parts[@]}"; do
  say "$part"
  case $part in
    api | chart)
      # Tests on hubs mostly wait; run them now.
      if wants image installed installed-all cluster load && can_build_images; then
        if wants image; then begin image check_images; else begin images quick_images; fi
      fi
      ;;
  esac
  begun=$SECONDS
  # A part that fails keeps no other from running. It is not run as a condition, which would switch errexit off in it.
  set +e
  (
    set -e
    trap - EXIT
    "check_$part"
  ) &
  # An interrupted `wait` runs the trap at once.
  wait $!
  status=$?
  set -e
  if [ "$status" = 0 ]; then
    took "$part" $((SECONDS - begun))
  else
    took "$part: FAILED" $((SECONDS - begun))
    failed+=("$part")
  fi
done

say "result"
# A test or a measurement without its peer passes and reports this.
while read -r line; do skip "${line#SKIPPED, }"; done < <(grep -aoh 'SKIPPED, .*' "$log" | sort -u)
while IFS='|' read -r what seconds; do
  printf '%3d min %02d s  %s\n' $((seconds / 60)) $((seconds % 60)) "$what"
done <"$work/took"
printf '%3d min %02d s  in all\n' $((SECONDS / 60)) $((SECONDS % 60))
sed 's/^/skipped: /' "$work/skipped"
sed -n 's/.*ONLY ON OWN HUBS, /not tested in the part cluster: /p' "$log" | sort -u
awk -v parts=${#failed[@]} -v skipped="$(wc -l <"$work/skipped")" '
  /^test result:/ { passed += $4; failed += $6; ignored += $8 }
  # A part may fail without a test that does.
  END {
    if (failed < parts) failed = parts
    printf "%d passed, %d failed, %d skipped\n", passed, failed, ignored + skipped
  }' "$log"
if [ ${#failed[@]} -gt 0 ]; then
  echo "FAILED: ${failed[*]}" >&2
  exit 1
fi
