#!/usr/bin/env bash
# All the checks there are, or a part of them. What is not there to check with is skipped, and named; on a machine that
# nobody looks after (CI=true) it is installed.
set -euo pipefail

usage() {
  cat <<'EOF'
usage: hack/test.sh [PART]...

  fmt        the code is formatted
  clippy     no lint warns, no documentation link is broken
  unit       pure decisions, by tables and properties; no hub is started
  api        everything about the API, on real hubs on this machine (built on the first run, which takes minutes)
  chart      the Helm chart: linted, rendered, and at work on real hubs; its alerts and dashboard; the examples (helm
             and promtool are built on the first run)
  plugin     cp-creds as it is shipped: small, static, at home in an empty root; its time beside a Go peer's is printed
  image      the container images: reproducible, runnable, and listed whole in their SBOMs (two release builds: minutes)
  installed  what people install: the chart, in Pods, with the rights that it renders; asked what api asks of the chain
             and of each controller
  scripts    shell scripts are free of the usual mistakes; the demo runs from start to end
  deny       licences, bans and sources of dependencies (cargo-deny; its advisories need the internet)

Without a part: all of them, in this order. Beside them:

  installed-all  as installed, and everything that api asks of the controllers (a quarter of an hour)
EOF
}

cd "$(dirname "${BASH_SOURCE[0]}")/.."
log=$(mktemp)
trap 'rm -rf "$log" "$log".*' EXIT
skipped=()

say() { printf '\n== %s\n' "$*"; }
skip() { skipped+=("$1"); printf 'SKIPPED %s\n' "$1"; }
# cargo test, with its result lines kept for the count at the end.
cargo_test() { cargo test --locked "$@" 2>&1 | tee -a "$log"; }

check_fmt() {
  cargo fmt --all -- --check
  gofmt_diff=$(gofmt -l e2e)
  [ -z "$gofmt_diff" ] || { echo "not formatted: $gofmt_diff"; return 1; }
}

check_clippy() {
  cargo clippy --locked --workspace --all-targets -- --deny warnings
  RUSTDOCFLAGS="--deny warnings" cargo doc --locked --workspace --no-deps --document-private-items
}

check_unit() {
  cargo_test --workspace --exclude hub-addons --exclude local-hub
  cargo_test --package hub-addons --bins
  cargo_test --package local-hub --lib
}

check_api() {
  hack/control-plane.sh >/dev/null
  cargo_test --package local-hub --test '*'
  cargo_test --package hub-addons --test projector --test access --test credentials --test chain --test host
}

check_chart() {
  hack/control-plane.sh >/dev/null
  hack/go-program.sh promtool >/dev/null
  hack/test-chart.sh
  cargo_test --package hub-addons --test chart
}

check_plugin() {
  # Few runs, since nothing is decided by time, and a hub of its own.
  env -u KUBECONFIG RUNS=20 hack/measure-cp-creds.sh 2>&1 | tee -a "$log"
}

check_image() {
  # On a machine that nobody looks after, what is missing is installed.
  if hack/image.sh --can && hack/have.sh jq jq; then
    hack/check-image.sh
  else
    skip "the images: jq and one of buildah, podman and docker are needed"
  fi
}

# prepares what tests of the installed program need; fails, and says what, where they cannot run.
can_install() {
  local why
  hack/control-plane.sh >/dev/null
  if ! hack/image.sh --can; then
    skip "the program as it is installed: one of buildah, podman and docker is needed"
    return 1
  elif ! why=$(cargo run --locked --quiet --package local-hub -- pods --can 2>&1); then
    skip "the program as it is installed: $why"
    return 1
  fi
  hack/helm.sh >/dev/null
  hack/image.sh --no-sbom --arch native --output "$log.images"
}

# test_installed TEST [MODULE]...: of crates/hub-addons/tests.
test_installed() {
  local test=$1
  shift
  HUB_ADDONS_IMAGES=$log.images HUB_ADDONS_INSTALLED=1 cargo_test --package hub-addons --test "$test" -- "$@"
}

check_installed() {
  can_install || return 0
  test_installed pods
  test_installed projector grants:: status::
  test_installed access entry::
  test_installed credentials authority:: revocation::
  test_installed chain
}

check_installed-all() {
  can_install || return 0
  local test
  for test in pods projector access credentials chain; do test_installed "$test"; done
}

check_scripts() {
  if hack/have.sh shellcheck shellcheck; then
    shellcheck hack/*.sh hack/demo/*.sh .ci/run e2e/local-hub/src/*.sh e2e/local-hub/src/pods/*.sh
  else
    skip "shellcheck: it is not installed"
  fi
  hack/demo.sh >"$log.demo" 2>&1 || { cat "$log.demo"; return 1; }
  if grep -q '^So the chart is not installed' "$log.demo"; then
    skip "the demo's installation of the chart: $(grep -m 1 -B 1 '^So the chart' "$log.demo" | head -n 1)"
  fi
  echo "the demo runs"
}

check_deny() {
  if command -v cargo-deny >/dev/null; then
    cargo deny --locked check licenses bans sources
  else
    skip "cargo-deny: it is not installed"
  fi
}

parts=("$@")
[ ${#parts[@]} -gt 0 ] || parts=(fmt clippy unit api chart plugin image installed scripts deny)
for part in "${parts[@]}"; do
  case $part in
    fmt | clippy | unit | api | chart | plugin | image | installed | installed-all | scripts | deny) ;;
    -h | --help) usage; exit ;;
    *) usage >&2; exit 2 ;;
  esac
done
for part in "${parts[@]}"; do
  say "$part"
  "check_$part"
done

say "result"
# A test, or a measurement, that lacks what it compares with passes and says so.
while read -r line; do skipped+=("${line#SKIPPED, }"); done < <(grep -ah '^SKIPPED' "$log" | sort -u)
for what in "${skipped[@]}"; do echo "skipped: $what"; done
awk -v skipped=${#skipped[@]} '
  /^test result:/ { passed += $4; failed += $6; ignored += $8 }
  END { printf "%d passed, %d failed, %d skipped\n", passed, failed, ignored + skipped }' "$log"
