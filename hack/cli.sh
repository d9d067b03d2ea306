#!/usr/bin/env bash
# Builds kubectl-clusterprofile for every platform, and packs it for krew.
set -euo pipefail

usage() {
  cat <<'USAGE'
usage: hack/cli.sh [OPTION]...

Builds kubectl-clusterprofile for linux, darwin (macOS) and windows on amd64 and arm64, and writes into a directory:

  kubectl-clusterprofile-VERSION-OS-ARCH.tar.gz  the program and the licence
  clusterprofile.yaml                            the manifest for krew, with the checksums of these archives

  --output DIR       the directory; by default cli/ in cargo's target directory
  --platform OS-ARCH only this platform; can be repeated
  --url URL          the repository that publishes the archives, instead of the placeholder https://hub-addons.example
  --profile NAME     cargo's profile; by default release
  --binaries DIR     pack DIR/OS-ARCH/kubectl-clusterprofile[.exe], instead of building
  --check            write no archive: only check that the programs can be built or, with --binaries, exist, and install
                     what building needs

Two runs on one commit give the same bytes, whatever the directory: programs contain no paths of the machine, and all
times are that of the commit, or $SOURCE_DATE_EPOCH.

The programs for Linux are static. Those for macOS and Windows link only libraries of the system. The script does not
need an SDK: zig has what Windows requires and macOS's libSystem, and the script declares the functions of two macOS
frameworks by which the program reads the trusted certificates. The programs for macOS have the ad-hoc signature of the
linker; they are not notarized.

The script needs rustup with Rust's targets, which it adds, and python3 on Linux. With pip it installs cargo-zigbuild and
zig, of the versions and checksums in hack/zigbuild.txt, once, into the user's cache. It uses no other cargo-zigbuild or
zig.
USAGE
}
readonly platforms=(linux-amd64 linux-arm64 darwin-amd64 darwin-arm64 windows-amd64 windows-arm64)

# shellcheck source=hack/once.sh
. "$(dirname "${BASH_SOURCE[0]}")/once.sh"
from=$PWD
path() { case $1 in /*) echo "$1" ;; *) echo "$from/$1" ;; esac; }
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD
output='' url=https://hub-addons.example profile=release binaries='' check='' chosen=()
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) usage; exit ;;
    --check) check=1; shift; continue ;;
    --output | --platform | --url | --profile | --binaries) [ $# -gt 1 ] || { usage >&2; exit 2; } ;;
    *) usage >&2; exit 2 ;;
  esac
  case $1 in
    --output) output=$(path "$2") ;;
    --platform) chosen+=("$2") ;;
    --url) url=${2%/} ;;
    --profile) profile=$2 ;;
    --binaries) binaries=$(path "$2") ;;
  esac
  shift 2
done
[ ${#chosen[@]} -gt 0 ] || chosen=("${platforms[@]}")

triple() {
  case $1 in
    linux-amd64) echo x86_64-unknown-linux-musl ;;
    linux-arm64) echo aarch64-unknown-linux-musl ;;
    darwin-amd64) echo x86_64-apple-darwin ;;
    darwin-arm64) echo aarch64-apple-darwin ;;
    windows-amd64) echo x86_64-pc-windows-gnu ;;
    windows-arm64) echo aarch64-pc-windows-gnullvm ;;
    *) die "no program is built for $1: choose from ${platforms[*]}" ;;
  esac
}
files_for() { program_for "$1"; echo LICENSE; }
program_for() { case $1 in windows-*) echo kubectl-clusterprofile.exe ;; *) echo kubectl-clusterprofile ;; esac; }
for platform in "${chosen[@]}"; do triple "$platform" >/dev/null; done

target=${CARGO_TARGET_DIR:-$root/target}
mkdir -p "$target"
target=$(cd "$target" && pwd)
[ -n "$output" ] || output=$target/cli
[ -n "$check" ] || mkdir -p "$output"
version=$(hack/version.sh)
epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# --- programs ----------------------------------------------------------------------------------------

# Sets zigbuild, the program cargo-zigbuild, and the zig that it uses. They link what is released, so only pip installs
# them, by their checksums; a change of these is another directory.
need_zigbuild() {
  local requirements=hack/zigbuild.txt directory packages
  directory=$cache/zigbuild/$(sha256sum "$requirements" | cut -c1-16)
  once "$directory" bin/cargo-zigbuild "cargo-zigbuild and zig" install_zigbuild "$requirements"
  packages=("$directory"/lib/python*/site-packages)
  zigbuild=$directory/bin/cargo-zigbuild
  export CARGO_ZIGBUILD_ZIG_PATH=${packages[0]}/ziglang/zig
}
install_zigbuild() {
  needs python3
  python3 -m venv "$work/venv" || die "python3 cannot create a virtual environment: its module venv may be missing"
  "$work/venv/bin/pip" install --quiet --no-deps --only-binary :all: --require-hashes --requirement "$1" --prefix "$2" ||
    die "cannot install cargo-zigbuild and zig as $1 has them"
}

# need_target PLATFORM: adds the Rust target of a platform.
need_target() {
  local triple
  triple=$(triple "$1")
  [ ! -d "$(rustc --print target-libdir --target "$triple")" ] || return 0
  command -v rustup >/dev/null || die "the Rust target $triple is not installed, and neither is rustup"
  rustup target add "$triple" >&2 || die "cannot add the Rust target $triple"
}

# declare_library FILE LIBRARY SYMBOL...: a library of macOS by what it exports, in the format of Apple's SDKs.
declare_library() {
  local file=$1 library=$2 symbols
  shift 2
  symbols=$(printf ', %s' "$@")
  mkdir -p "$(dirname "$file")"
  cat >"$file" <<EOF
--- !tapi-tbd
tbd-version: 4
targets: [ x86_64-macos, arm64-macos ]
install-name: '$library'
exports:
  - targets: [ x86_64-macos, arm64-macos ]
    symbols: [ ${symbols#, } ]
...
EOF
}

# The functions that the program calls, of Apple's public API. One that is missing here fails the link, by its name.
declare_macos() {
  local frameworks=System/Library/Frameworks
  declare_library "$1/$frameworks/Security.framework/Security.tbd" "/$frameworks/Security.framework/Versions/A/Security" \
    _SecCertificateCopySubjectSummary _SecCertificateCreateWithData _SecCopyErrorMessageString _SecPolicyCreateSSL \
    _SecTrustCreateWithCertificates _SecTrustEvaluateWithError _SecTrustSetAnchorCertificates \
    _SecTrustSetAnchorCertificatesOnly _SecTrustSetOCSPResponse _SecTrustSetVerifyDate
  declare_library "$1/$frameworks/CoreFoundation.framework/CoreFoundation.tbd" \
    "/$frameworks/CoreFoundation.framework/Versions/A/CoreFoundation" \
    _CFArrayCreate _CFDataCreate _CFDateCreate _CFErrorCopyDescription _CFErrorGetCode _CFRelease \
    _CFStringCreateWithBytes _CFStringGetBytes _CFStringGetCStringPtr _CFStringGetLength \
    _kCFAbsoluteTimeIntervalSince1970 _kCFAllocatorDefault _kCFTypeArrayCallBacks
  # Rust's standard library names it, and the program calls nothing of it.
  declare_library "$1/usr/lib/libiconv.tbd" /usr/lib/libiconv.2.dylib _iconv
  mkdir -p "$1/usr/include"
}

# build PLATFORM FILE
build() {
  local triple flags separator=$'\x1f' built
  triple=$(triple "$1")
  # If several prefixes match, the last one applies.
  flags=--remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=/cargo$separator
  flags+=--remap-path-prefix=$root=/src$separator--remap-path-prefix=$target=/target
  SDKROOT=$work/sdk HUB_ADDONS_VERSION=$version CARGO_TARGET_DIR=$target CARGO_ENCODED_RUSTFLAGS=$flags \
    "$zigbuild" zigbuild --locked --package kubectl-clusterprofile --profile "$profile" --target "$triple" >&2
  built=$target/$triple/$profile/$(program_for "$1")
  if grep -qaF -e "$root/" -e "${CARGO_HOME:-$HOME/.cargo}/" "$built"; then
    die "the program for $1 contains a path of this machine"
  fi
  install -D -m 0755 "$built" "$2"
}

if [ -z "$binaries" ]; then
  for platform in "${chosen[@]}"; do need_target "$platform"; done
  need_zigbuild
fi
need_program() { [ -f "$binaries/$1/$(program_for "$1")" ] || die "$binaries/$1/$(program_for "$1") does not exist"; }
if [ -n "$check" ]; then
  if [ -n "$binaries" ]; then
    for platform in "${chosen[@]}"; do need_program "$platform"; done
  fi
  exit
fi
if [ -z "$binaries" ]; then
  declare_macos "$work/sdk"
  binaries=$work/binaries
  for platform in "${chosen[@]}"; do
    say "building for $platform"
    build "$platform" "$binaries/$platform/$(program_for "$platform")"
  done
fi

# --- archives ----------------------------------------------------------------------------------------

for platform in "${chosen[@]}"; do
  program=$(program_for "$platform")
  need_program "$platform"
  mkdir -p "$work/$platform"
  install -m 0755 "$binaries/$platform/$program" "$work/$platform/"
  install -m 0644 LICENSE "$work/$platform/"
  mapfile -t files < <(files_for "$platform")
  tar --create --format=ustar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$epoch" \
    --directory "$work/$platform" "${files[@]}" | gzip --no-name --best \
    >"$output/kubectl-clusterprofile-$version-$platform.tar.gz"
done

# --- krew --------------------------------------------------------------------------------------------

{
  cat <<EOF
apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: clusterprofile
spec:
  version: v$version
  homepage: $url
  shortDescription: Show which clusters a namespace sees, and why not
  description: |
    Lists the ClusterProfiles that a namespace on an Open Cluster Management hub
    sees, and explains why it cannot see or reach a cluster: binding, set, profile,
    access provider, account, token, credential and permissions. Tests the way to
    a cluster hop by hop, prints a kubeconfig without any secret, and writes a
    report as one HTML file.
  caveats: |
    The commands test and kubeconfig use the exec plugin cp-creds:
    $url
  platforms:
EOF
  for platform in "${chosen[@]}"; do
    archive=kubectl-clusterprofile-$version-$platform.tar.gz
    cat <<EOF
    - selector:
        matchLabels:
          os: ${platform%-*}
          arch: ${platform#*-}
      uri: $url/releases/download/v$version/$archive
      sha256: $(sha256sum "$output/$archive" | cut -d' ' -f1)
      files:
$(files_for "$platform" | sed 's/.*/        - from: &\n          to: ./')
      bin: $(program_for "$platform")
EOF
  done
} >"$output/clusterprofile.yaml"
say "$output contains kubectl-clusterprofile $version for ${chosen[*]}"
