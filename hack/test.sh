#!/usr/bin/env bash
# usage: hack/test.sh [all | PART...]
#
# Runs checks. One whose tools are missing is skipped and named; with CI=true the tools are installed, and a check that
# cannot run fails. Without arguments, what shows in minutes whether a change is right; it needs Rust and Go:
#
#   fmt, clippy  the code is formatted; no lint warns, and no link in the documentation of the code is broken
#   unit         decisions, by tables and properties; no hub is started
#   schedules    1000 random schedules on a simulated API server
#   rules        the main rules of the projector, the provisioner and the syncer, and the policies of the chart, on a real
#                API server
#
# With "all", what has to pass before a change lands: fmt, clippy and unit, and then:
#
#   robustness   10 000 random schedules, and a crash at every write (an optimized build of the controllers)
#   api          everything about the API, on real hubs; the user server beside upstream's proxy server; the requests of
#                every scenario of the benchmark
#   chart        the Helm chart: linted, rendered, and on real hubs; its alerts and dashboard; the examples; krew
#   plugin       cp-creds as it is shipped: small, with little memory
#   image        the container images: runnable, complete in their SBOMs, and reproducible
#   attacks      the user server, as it is released, under all attacks of clients and clusters
#   installed    the chart in Pods on nodes, with the permissions that it renders
#   load         35 000 profiles with as many copies, within 100 MiB (the API server needs 8 GB)
#   scripts      shellcheck, the references in the documents, and the demo from start to end
#   deny         licences, bans, sources and advisories of dependencies
#
# Further parts: oldest (the rules and the chart on the oldest Kubernetes that is tested) and field (beside upstream's own
# programs, whose first build takes long).
# TEST_THREADS tests on hubs run at once (10); they mostly wait. CONTRIBUTING.md describes other variables.
set -euo pipefail

usage() { sed -n '2,/^set/s/^# \{0,1\}//p' "$0"; }
cd "$(dirname "${BASH_SOURCE[0]}")/.."
parts=("$@")
case ${1-} in
  '') parts=(fmt clippy unit schedules rules) ;;
  all) parts=(fmt clippy unit robustness api chart plugin image attacks installed load scripts deny) ;;
  -h | --help) usage; exit ;;
esac
work=$(mktemp -d)
export work
target=${CARGO_TARGET_DIR:-$PWD/target} threads=${TEST_THREADS:-10}
# One that is inherited would count from where it stands.
SECONDS=0
[ "${CI-}" != true ] || export CARGO_INCREMENTAL=0
touch "$work/log" "$work/skipped" "$work/took"

skip() {
  [ "${CI-}" != true ] || { echo "FAILED, with CI=true nothing is skipped: $1" >&2; exit 1; }
  echo "skipped: $1" | tee -a "$work/skipped"
}
# wants PART...: whether one of these runs.
wants() { local part; for part; do [[ " ${parts[*]} " != *" $part "* ]] || return 0; done; return 1; }

# Leaves no program running, however the script ends. Test programs do not stop their hubs on SIGTERM.
below() { local child; for child in $(pgrep -P "$1"); do below "$child"; echo "$child"; done; }
stop() {
  local status=$?
  trap '' EXIT INT TERM
  # shellcheck disable=SC2046 # words
  kill $(below $$) 2>/dev/null || true
  wait
  rm -rf "$work"
  exit "$status"
}
trap stop EXIT; trap 'exit 130' INT; trap 'exit 143' TERM

# The programs that the parts need. None takes time while nothing has changed.
check_programs() {
  local program programs=() on_hubs=(rules api chart field installed load scripts)
  cargo fetch --locked --quiet
  ! wants "${on_hubs[@]}" || hack/control-plane.sh
  ! wants oldest || KUBERNETES_VERSION=oldest hack/control-plane.sh
  ! wants "${on_hubs[@]}" oldest || programs+=(helm)
  ! wants chart || programs+=(helm3 promtool krew)
  ! wants scripts || programs+=(actionlint)
  ! wants installed || programs+=(kube-router)
  ! wants api || programs+=(proxy-server)
  ! wants field || programs+=(registration managed-serviceaccount kueue argocd cluster-proxy cluster-proxy-agent
    cluster-proxy-manager proxy-agent proxy-server)
  for program in "${programs[@]}"; do hack/go-program.sh "$program"; done
  if wants api field installed load scripts && hack/node.sh --can; then hack/node.sh; fi
}

can_build_images() { hack/image.sh --can && hack/have.sh jq jq; }
# Builds the images into $work/images, beside the tests on hubs, which mostly wait.
begin_images() {
  mkdir "$work/building" 2>/dev/null || return 0
  local build=(hack/image.sh --profile quick --no-sbom)
  ! wants image || build=(hack/check-image.sh)
  (
    nice "${build[@]}" --output "$work/images" >"$work/building/log" 2>&1 </dev/null && touch "$work/building/done"
    touch "$work/building/ended"
  ) &
}
images() {
  begin_images
  until [ -e "$work/building/ended" ]; do sleep 0.2; done
  [ -e "$work/building/done" ] || { cat "$work/building/log"; exit 1; }
}

# Always the whole workspace: the features of a dependency depend on the selected packages, and each other selection would
# rebuild the dependencies. The result lines are kept for the count at the end.
workspace_test() { cargo test --locked --workspace --features e2e "$@"; }
cargo_test() { RUST_TEST_THREADS=${RUST_TEST_THREADS:-$threads} workspace_test "$@" 2>&1 | tee -a "$work/log"; }

# tests_of DIRECTORY...: the names of packages' test programs.
tests_of() { git ls-files -- "${@/%//*.rs}" | grep -E '^[^/]+/([^/]+/)?tests/([^/]+|[^/]+/main)\.rs$' | sed -E 's#(/main)?\.rs$##; s#.*/##'; }

# run_tests NAME...: runs test programs, two at a time: towards its end, each waits for a few long tests.
run_tests() {
  cargo_test --no-run "${@/#/--test=}"
  export -f run_test workspace_test
  printf '%s\n' "$@" | RUST_TEST_THREADS=$(((threads + 1) / 2)) LOCAL_HUB_MAX=${LOCAL_HUB_MAX:-8} \
    xargs -I NAME -P 2 bash -c 'run_test NAME' | tee -a "$work/log"
}
run_test() { local status=0; workspace_test --test "$1" >"$work/$1.log" 2>&1 || status=1; cat "$work/$1.log"; return $status; }

check_fmt() { cargo fmt --all -- --check && gofmt -d deploy e2e | tee "$work/gofmt" && [ ! -s "$work/gofmt" ]; }
check_clippy() {
  cargo clippy --locked --workspace --features e2e --all-targets -- --deny warnings
  RUSTDOCFLAGS="--deny warnings --allow rustdoc::private-intra-doc-links" \
    cargo doc --locked --workspace --no-deps --document-private-items
}
check_unit() {
  local tests
  mapfile -t tests < <(tests_of crates | grep -vxFf <(tests_of crates/hub-addons))
  cargo_test --lib --bins --test=reference "${tests[@]/#/--test=}"
  cargo_test --doc
}

# simulation [OPTION]...: the tests that need no hub; with them, cargo builds the program.
simulation() {
  cargo test --locked --profile sim --package hub-sim --features e2e --test crashes --test moments --test schedules "$@"
}
check_schedules() { simulation --quiet --no-run && "$target/sim/hub-sim" --schedules 1000; }
check_robustness() { simulation 2>&1 | tee -a "$work/log" && "$target/sim/hub-sim"; }

# Each rule on one flavour of the CRD: the others, and what is not a rule, are in the parts api and chart.
check_rules() { rules --skip atomic --skip v1alpha2; }
rules() {
  cargo_test --test projector -- grants:: ownership:: "$@"
  cargo_test --test access -- entry:: sources:: "$@"
  cargo_test --test credentials -- authority:: revocation:: hostile:: "$@"
  cargo_test --test chain -- "$@"
  cargo_test --test chart -- policies:: "$@"
}

check_oldest() {
  export KUBERNETES_VERSION=oldest
  # The CRD with v1alpha2 requires 1.31, for CEL's format library; conditions of a Job, which a test of the uninstallation
  # writes, have other names there.
  rules --skip v1alpha2
  cargo_test --test chart -- install:: works:: consumers:: lacks_mutating --skip v1alpha2 --skip uninstall
}

check_api() {
  local elsewhere='attacks|credentials|limits|chart|field|permissions|pods|reference|crashes|moments|schedules'
  # shellcheck disable=SC2046 # words
  run_tests credentials limits $(tests_of e2e crates/hub-addons | grep -vxE "$elsewhere")
  # Of upstream's programs, this needs only the one that is built in little time.
  cargo_test --test field -- user_server::
}
check_field() {
  # Few at once: each has several hubs and programs.
  RUST_TEST_THREADS=4 cargo_test --test field
  # Where OCM's own controller decides which bindings are bound; without the tests that write its condition themselves.
  HUB_ADDONS_REGISTRATION=1 cargo_test --test projector -- grants::
  HUB_ADDONS_REGISTRATION=1 cargo_test --test credentials -- revocation:: --skip a_precondition_end
}
# Lints the chart with each supported helm, with the default values and with those that enable most.
lint_chart() {
  local version helm values
  for version in helm helm3; do
    helm=$(hack/go-program.sh "$version")
    for values in \
      crds.enabled=auto \
      consumerAccess.enabled=true,credentials.secretAccess=granted,featureGates.clusterProfileDirectAccessProvider=true \
      featureGates.clusterProfileCredSyncer=false,policies.enabled=false \
      featureGates.clusterProfile=false,featureGates.clusterProfileAccessProvider=false; do
      "$helm" lint --strict --quiet --set "$values" charts/hub-addons
    done
  done
}
check_chart() {
  lint_chart
  export LOCAL_HUB_AUDIT_LOGS=$work/audit-logs
  mkdir "$LOCAL_HUB_AUDIT_LOGS"
  cargo_test --test chart
  cargo_test --test permissions
}

check_plugin() { RUNS=20 hack/measure-cp-creds.sh 2>&1 | tee -a "$work/log"; }
check_image() { if can_build_images; then images; else skip "the images: jq, Go and a C compiler are needed"; fi; }
check_attacks() { cargo_test --test attacks; }
# can_install: prepares what tests of the installed program need; reports the reason if they cannot run here.
can_install() {
  local why
  workspace_test --no-run --quiet --test pods --test hubs || exit 1
  if why=$(hack/node.sh --can 2>&1); then images; else skip "tests in Pods: ${why#node: }" && return 1; fi
}

in_pods() { ! can_install || HUB_ADDONS_IMAGES=$work/images cargo_test --test pods -- "$@"; }
check_installed() { in_pods --skip memory::the_largest; }
check_load() { in_pods memory::the_largest; }

check_scripts() {
  if hack/have.sh shellcheck shellcheck; then
    shellcheck hack/*.sh hack/demo/*.sh .ci/run e2e/local-hub/src/*.sh e2e/local-hub/src/pods/*.sh
  else
    skip "shellcheck: it is not installed"
  fi
  hack/versions.sh --check
  "$(hack/go-program.sh actionlint)" .github/workflows/*.yml
  hack/check-docs.sh
  # With the programs of the images, if these are built.
  DEMO_IS_TESTED=$(! wants image || echo 1) demo "$work/demo"
  ! grep -q '^So the chart is not installed' "$work/demo" ||
    skip "the demo's installation of the chart: $(grep -m 1 -B 1 '^So the chart' "$work/demo" | head -n 1)"
  hack/demo/picture.sh "$work/demo" >/dev/null
}
demo() { { hack/demo.sh >"$1" 2>&1 && hack/demo/check.sh "$1"; } || { cat "$1"; return 1; }; }

check_deny() {
  local deny
  deny=$(hack/cargo-program.sh cargo-deny) || { skip "cargo-deny: it is not installed"; return; }
  "$deny" --locked check licenses bans sources
  # In CI as well: a machine without a way to the database can still test a change.
  timeout 120 "$deny" --locked fetch db >"$work/advisories" 2>&1 ||
    { echo "advisories are NOT checked: $(tail -n 1 "$work/advisories")"; return; }
  "$deny" --locked check --disable-fetch advisories
}

for part in "${parts[@]}"; do declare -F "check_$part" >/dev/null || { usage >&2; exit 2; }; done
! HUB_ADDONS_UPSTREAM_CRDS=$(hack/upstream-crds.sh) || export HUB_ADDONS_UPSTREAM_CRDS
failed=()
for part in programs "${parts[@]}"; do
  printf '\n== %s\n' "$part"
  begun=$SECONDS status=0
  ! [[ $part =~ ^(api|chart)$ ]] || ! wants image installed load || ! can_build_images || begin_images
  # A part that fails keeps no other from running. It is not run as a condition, which would switch errexit off in it, and
  # an interrupted `wait` runs the trap at once.
  (set -e; trap - EXIT; "check_$part") &
  wait $! || status=$?
  [ "$status" = 0 ] || failed+=("$part")
  printf '%3d min %02d s  %s\n' $(((SECONDS - begun) / 60)) $(((SECONDS - begun) % 60)) \
    "$part$([ "$status" = 0 ] || echo ': FAILED')" >>"$work/took"
done

printf '\n== result\n'
# A test or a measurement that cannot run passes and reports this.
while read -r line; do skip "${line#SKIPPED, }"; done < <(grep -aoh 'SKIPPED, .*' "$work/log" | sort -u) >/dev/null
cat "$work/took"
printf '%3d min %02d s  in all\n' $((SECONDS / 60)) $((SECONDS % 60))
cat "$work/skipped"
awk -v parts=${#failed[@]} -v skipped="$(wc -l <"$work/skipped")" '
  /^test result:/ { passed += $4; failed += $6; ignored += $8 }
  # A part may fail without a test that does.
  END { printf "%d passed, %d failed, %d skipped\n", passed, failed < parts ? parts : failed, ignored + skipped }' "$work/log"
[ ${#failed[@]} = 0 ] || { echo "FAILED: ${failed[*]}" >&2; exit 1; }
