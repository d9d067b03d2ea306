#!/usr/bin/env bash
# Builds the container images: hub-addons with both programs, cp-creds with only the plugin.
set -euo pipefail

usage() {
  cat <<'USAGE'
usage: hack/image.sh [OPTION]... [IMAGE]...

Builds the images hub-addons (both programs) and cp-creds (only the exec plugin, for an image volume or an
initContainer that runs `cp-creds install DIR`). An image contains only static programs, and runs as user 65532.

  --arch ARCH      amd64 or arm64, by default that of this machine; can be repeated
  --output DIR     the directory for archives, SBOMs and digests; by default images/ in cargo's target directory
  --tag TAG        by default the version (hack/version.sh)
  --profile NAME   cargo's profile for all programs, such as quick; by default release, and plugin for cp-creds
  --can            build nothing; the exit status is 0 if the images can be built here
  --no-sbom        create no SBOMs, which also avoids building cargo-cyclonedx

Files in DIR:

  IMAGE-ARCH.oci.tar  the image, as an OCI archive: for `podman load`, `skopeo copy oci-archive:…`
  IMAGE-ARCH.cdx.json its SBOM, in the format of CycloneDX
  digests             one line for each image: IMAGE ARCH DIGEST BYTES

Two builds of one commit have the same digest, whatever the directory: programs contain no paths of the machine, and all
times are that of the commit, or $SOURCE_DATE_EPOCH. The label "source" is $IMAGE_SOURCE, or the URL of git's origin.

The script needs rustup, a C compiler and Go, and no container engine: deploy/images assembles an image from its
programs.

  hack/image.sh                         both images
  hack/image.sh --arch amd64 cp-creds   one of them
USAGE
}

all_images=(hub-addons cp-creds)

say() { printf 'image: %s\n' "$*" >&2; }
die() { say "$@"; exit 1; }

arches=() images=() output='' tag='' profile='' can='' sbom=yes
while [ $# -gt 0 ]; do
  case $1 in
    --arch | --output | --tag | --profile) [ $# -gt 1 ] || die "$1 needs a value" ;;
  esac
  case $1 in
    --arch) arches+=("$2"); shift ;;
    --output) output=$2; shift ;;
    --tag) tag=$2; shift ;;
    --profile) profile=$2; shift ;;
    --can) can=yes ;;
    --no-sbom) sbom='' ;;
    -h | --help) usage; exit ;;
    hub-addons | cp-creds) images+=("$1") ;;
    *) usage >&2; exit 2 ;;
  esac
  shift
done
[ ${#images[@]} -gt 0 ] || images=("${all_images[@]}")

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
[ -z "$output" ] || { mkdir -p "$output" && output=$(cd "$output" && pwd); }
cd "$root"
target_dir=${CARGO_TARGET_DIR:-$root/target}
mkdir -p "$target_dir"
target_dir=$(cd "$target_dir" && pwd)
[ -n "$output" ] || output=$target_dir/images
mkdir -p "$output"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# --- what it takes -----------------------------------------------------------------------------------

can() {
  local tool
  for tool in cargo go cc; do
    command -v "$tool" >/dev/null || { say "$tool is not installed"; return 1; }
  done
}

host=$(hack/program.sh --host)

machine() { case $1 in amd64) echo x86_64 ;; arm64) echo aarch64 ;; *) die "images are not built for $1" ;; esac; }

[ ${#arches[@]} -gt 0 ] || arches=("$host")
for arch in "${arches[@]}"; do machine "$arch" >/dev/null; done

# --- programs ----------------------------------------------------------------------------------------

programs_of() { [ "$1" = cp-creds ] && echo cp-creds || echo "hub-addons cp-creds"; }

build_programs() {
  local arch program wanted built
  wanted=$(for image in "${images[@]}"; do programs_of "$image"; done | tr ' ' '\n' | sort -u)
  for arch in "${arches[@]}"; do
    mkdir -p "$work/$arch"
    for program in $wanted; do
      built=$(hack/program.sh --arch "$arch" ${profile:+--profile "$profile"} "$program")
      install -m 0755 "$built" "$work/$arch/"
    done
  done
}

# --- SBOMs -------------------------------------------------------------------------------------------

# The tool writes next to each Cargo.toml and records paths: it runs on a copy.
write_sboms() {
  local command image arch
  command=$(hack/cargo-program.sh cargo-cyclonedx)
  mkdir "$work/source"
  tar -c --exclude=./target --exclude=./.git . | tar -x -C "$work/source"
  for arch in "${arches[@]}"; do
    (cd "$work/source" && SOURCE_DATE_EPOCH=$epoch CARGO_TARGET_DIR=$target_dir "$command" cyclonedx --quiet \
      --format json --spec-version 1.5 --describe binaries --no-build-deps \
      --target "$(machine "$arch")-unknown-linux-musl")
    for image in "${images[@]}"; do
      # An image has the name of its program.
      sed "s|$work/source|/src|g" "$work/source/crates/$image/${image}_bin.cdx.json" >"$output/$image-$arch.cdx.json"
    done
  done
}

# --- images ------------------------------------------------------------------------------------------

describe() {
  case $1 in
    hub-addons) echo "Controllers that publish the clusters of an Open Cluster Management hub as ClusterProfiles" ;;
    cp-creds) echo "The exec credential plugin of ClusterProfiles, for an image volume or an initContainer" ;;
  esac
}

# The properties of an image, one NAME=VALUE per line.
facts() {
  echo "org.opencontainers.image.title=$1"
  echo "org.opencontainers.image.description=$(describe "$1")"
  echo "org.opencontainers.image.version=$version"
  echo "org.opencontainers.image.licenses=Apache-2.0"
  [ -z "$revision" ] || echo "org.opencontainers.image.revision=$revision"
  [ -z "$source" ] || echo "org.opencontainers.image.source=$source"
}

# assemble IMAGE ARCH
assemble() {
  local image=$1 arch=$2 fact program digest archive=$output/$1-$2.oci.tar options=() programs=()
  while read -r fact; do options+=(--fact "$fact"); done < <(facts "$image")
  for program in $(programs_of "$image"); do programs+=("$work/$arch/$program"); done
  digest=$("$work/assemble" --archive "$archive" --name "$image:$tag" --arch "$arch" --created "$epoch" "${options[@]}" \
    "${programs[@]}")
  echo "$image $arch $digest $(stat -c %s "$archive")" >>"$output/digests"
  say "$image for $arch: $digest"
}

if [ -n "$can" ]; then
  can
  exit
fi
version=$(hack/version.sh)
[ -n "$tag" ] || tag=$version
revision=$(git rev-parse HEAD 2>/dev/null || true)
[ -z "$revision" ] || [ -z "$(git status --porcelain)" ] || revision+=-dirty
epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
source=${IMAGE_SOURCE-$(git remote get-url origin 2>/dev/null | sed -nE 's#^https://([^/@]*@)?#https://#p' || true)}

can
(cd deploy/images && GOWORK=off GOFLAGS='' CGO_ENABLED=0 go build -trimpath -buildvcs=false -o "$work/assemble" .)
build_programs
[ -z "$sbom" ] || write_sboms
: >"$output/digests"
for arch in "${arches[@]}"; do
  for image in "${images[@]}"; do assemble "$image" "$arch"; done
done
say "the archives are in $output"
