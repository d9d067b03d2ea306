#!/usr/bin/env bash
# Verifies the images: builds them, in two directories if the inputs have changed, and inspects the results.
set -euo pipefail

usage() {
  cat <<'USAGE'
usage: hack/check-image.sh [--output DIR] [IMAGE.SH-OPTION]...

Fails if

  - two builds in two directories have different digests or SBOMs
  - an image contains anything but its programs, or runs as root
  - a program does not run in its image's own root file system, or cp-creds does not install itself there
  - hub-addons, in its release profile, has more than 12 MB
  - an SBOM lacks a crate that is linked into its program, with the version in Cargo.lock

It builds for this machine's architecture, and requires jq and what hack/image.sh requires. With --output, the images
are kept in DIR.

The second build is skipped if two builds by the same recipe were the same before: the same hack/image.sh,
hack/program.sh, deploy/images, profiles, compilers, and crates that are linked or run at build time. Their digest is in
deploy/images/reproducible; a comparison that succeeds writes it there: commit it.
USAGE
}

output=
case ${1-} in
  -h | --help) usage; exit ;;
  --output) mkdir -p "$2" && output=$(cd "$2" && pwd); shift 2 ;;
esac

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
target_dir=${CARGO_TARGET_DIR:-$root/target}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
one=${output:-$work/one}

die() { echo "FAILED, $*" >&2; exit 1; }

arch=$(hack/program.sh --host)
[ "$arch" != none ] || die "images are not built for $(uname -m)"
triple=$(uname -m | sed s/arm64/aarch64/)-unknown-linux-musl

hack/have.sh jq jq || die "jq is not installed. On Debian: apt-get install jq"

# --- two builds --------------------------------------------------------------------------------------

# Before the record changes the tree.
version=$(hack/version.sh)
record=deploy/images/reproducible

# linked PROGRAM EDGES: the crates in a program's dependency graph, one per line, without paths.
linked() {
  CARGO_TARGET_DIR=$target_dir cargo tree --locked --package "$1" --target "$triple" --edges "$2" --prefix none \
    --format '{p} {f}' | sed 's| (/[^)]*)||; s/ (\*)$//' | sort -u
}

# Prints a digest of what determines whether two builds of one source are the same.
recipe() {
  {
    printf '%s\n' "$@" "$arch"
    rustc --version --verbose
    "${CC:-cc}" --version
    go version
    cat rust-toolchain.toml hack/image.sh hack/program.sh deploy/images/{main.go,go.mod,go.sum}
    sed -n '/^\[profile/,$p' Cargo.toml
    linked hub-addons normal,build
    linked cp-creds normal,build
  } | sha256sum | cut -c1-32
}

hack/image.sh --arch "$arch" --output "$one" "$@"
recipe=$(recipe "$@")
if [ "$(cat "$record" 2>/dev/null)" = "$recipe" ]; then
  echo "two builds by this recipe were the same before"
else
  mkdir "$work/elsewhere"
  tar -c --exclude=./target . | tar -x -C "$work/elsewhere"
  CARGO_TARGET_DIR="$work/elsewhere/target" "$work/elsewhere/hack/image.sh" --arch "$arch" --output "$work/two" "$@"
  rm -rf "$work/elsewhere"
  for file in digests "hub-addons-$arch.cdx.json" "cp-creds-$arch.cdx.json"; do
    cmp "$one/$file" "$work/two/$file" || die "two builds differ"
  done
  echo "$recipe" >"$record"
  echo "two builds are the same; commit $record"
fi

# --- what is in them ---------------------------------------------------------------------------------

# unpack IMAGE: extracts it into $work/IMAGE/root, by the manifest in the archive's index; its configuration beside it.
unpack() {
  local layout=$work/$1/layout manifest layer
  mkdir -p "$layout" "$work/$1/root"
  tar -x -f "$one/$1-$arch.oci.tar" -C "$layout"
  blob() { echo "$layout/blobs/${1/://}"; }
  expect "the number of images in the archive" "$(jq '.manifests | length' "$layout/index.json")" 1
  manifest=$(blob "$(jq -er '.manifests[0].digest' "$layout/index.json")")
  jq -e . "$(blob "$(jq -er .config.digest "$manifest")")" >"$work/$1/config.json"
  for layer in $(jq -er '.layers[].digest' "$manifest"); do
    tar -x -f "$(blob "$layer")" -C "$work/$1/root"
  done
}

# run IMAGE COMMAND...: runs in the image's root, as its user.
run() {
  local image=$1 user
  shift
  user=$(jq -er .config.User "$work/$image/config.json")
  if [ "$(id -u)" = 0 ]; then
    env -i "$(command -v chroot)" --userspec="$user" "$work/$image/root" "$@"
  else
    env -i "$(command -v unshare)" --user --map-user="${user%:*}" --map-group="${user#*:}" --root="$work/$image/root" "$@"
  fi
}

expect() { [ "$2" = "$3" ] || die "$1: $2 is not $3"; }

for image in hub-addons cp-creds; do
  unpack "$image"
  config=$work/$image/config.json
  expect "the user of $image" "$(jq -r .config.User "$config")" 65532:65532
  expect "the entrypoint of $image" "$(jq -c .config.Entrypoint "$config")" "[\"/$image\"]"
  expect "the architecture of $image" "$(jq -r .architecture "$config")" "$arch"
  # As an arbitrary user.
  chmod 755 "$work" "$work/$image" "$work/$image/root"
done
holds() { find "$work/$1/root" -mindepth 1 -printf '%P\n' | sort; }
expect "the contents of hub-addons" "$(holds hub-addons)" $'cp-creds\nhub-addons'
expect "the contents of cp-creds" "$(holds cp-creds)" cp-creds

expect "the version of hub-addons" "$(run hub-addons /hub-addons --version)" "hub-addons $version"
for image in hub-addons cp-creds; do
  expect "the version of cp-creds in $image" "$(run "$image" /cp-creds --version)" "cp-creds $version"
  mkdir -m 777 "$work/$image/root/plugins"
  run "$image" /cp-creds install /plugins
  cmp "$work/$image/root/cp-creds" "$work/$image/root/plugins/cp-creds" ||
    die "cp-creds of $image did not install itself"
done
size=$(stat -c %s "$work/hub-addons/root/hub-addons")
case " $* " in
  *' --profile '*) ;;
  *) [ "$size" -le 12000000 ] || die "hub-addons has $size bytes, more than 12 MB" ;;
esac
echo "the images contain only their programs, which run; hub-addons has $size bytes"

# --- SBOMs -------------------------------------------------------------------------------------------

for image in hub-addons cp-creds; do
  sbom=$one/$image-$arch.cdx.json
  expect "the subject of the SBOM" "$(jq -er '.bomFormat + " " + .metadata.component.name' "$sbom")" "CycloneDX $image"
  jq -er '.components[] | .name + " " + .version' "$sbom" | sort -u >"$work/named"
  # The first line is the program itself, followed by what is linked into it. "(*)" marks a crate that was already
  # listed, "(proc-macro)" one that runs in the compiler.
  CARGO_TARGET_DIR=$target_dir cargo tree --locked --package "$image" --target "$triple" --edges normal,no-proc-macro \
    --prefix none --format '{p}' | sed -n '2,$ { s/ v/ /; s/ (.*//; p }' | sort -u >"$work/linked"
  missing=$(comm -13 "$work/named" "$work/linked")
  [ -z "$missing" ] || die "the SBOM of $image lacks: $missing"
  [ -s "$work/linked" ] || die "nothing is linked into $image"
  if grep -qF -e "$work" -e "$root" "$sbom"; then die "the SBOM of $image contains a path of this machine"; fi
  echo "the SBOM of $image lists all $(wc -l <"$work/linked") linked crates"
done
