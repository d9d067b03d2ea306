#!/usr/bin/env bash
# Builds one of our programs as it is released: static, and without a path of this machine. Prints its file.
#
# usage: hack/program.sh [--arch ARCH] [--profile NAME] PROGRAM
#        hack/program.sh --host
#
#   --arch ARCH      amd64 or arm64; by default that of this machine
#   --profile NAME   cargo's profile; by default release, and plugin for cp-creds
#   --host           build nothing; print the architecture of this machine: amd64, arm64, or none
#
# Needs rustup or the musl target of Rust, and a C compiler for the architecture. With CI=true it installs the compiler
# with apt-get; otherwise it prints what to install.
set -euo pipefail

usage() { sed -n '2,/^set/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; }
say() { printf 'program: %s\n' "$*" >&2; }
die() { say "$@"; exit 1; }

case $(uname -m) in
  x86_64) host=amd64 ;;
  aarch64 | arm64) host=arm64 ;;
  *) host=none ;;
esac

machine() { case $1 in amd64) echo x86_64 ;; arm64) echo aarch64 ;; *) die "no programs are built for $1" ;; esac; }

# compiler ARCH: Rust has its own musl, and the C code of ring and mimalloc needs only the headers of a C library, so any
# compiler for that architecture works.
compiler() {
  if [ "$1" = "$host" ]; then echo "${CC:-cc}"; else echo "$(machine "$1")-linux-gnu-gcc"; fi
}

arch=$host profile='' program=''
while [ $# -gt 0 ]; do
  case $1 in
    --arch) arch=${2-}; shift ;;
    --profile) profile=${2-}; shift ;;
    --host) echo "$host"; exit ;;
    -h | --help) usage; exit ;;
    -*) usage >&2; exit 2 ;;
    *) program=$1 ;;
  esac
  shift
done
[ -n "$program" ] || { usage >&2; exit 2; }
[ -n "$profile" ] || case $program in
  cp-creds) profile=plugin ;;
  *) profile=release ;;
esac
triple=$(machine "$arch")-unknown-linux-musl
compiler=$(compiler "$arch")
packages=("gcc-$(machine "$arch" | tr _ -)-linux-gnu" "libc6-dev-$arch-cross")
[ "$arch" != "$host" ] || packages=(gcc libc6-dev)

cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD
target=${CARGO_TARGET_DIR:-$root/target}
mkdir -p "$target"
target=$(cd "$target" && pwd)
command -v "$compiler" >/dev/null || hack/have.sh "$compiler" "${packages[@]}" ||
  die "the C compiler for $arch, $compiler, is not installed. On Debian: apt-get install ${packages[*]}"
if [ ! -d "$(rustc --print target-libdir --target "$triple")" ]; then
  command -v rustup >/dev/null || die "the Rust target $triple is not installed, and neither is rustup"
  rustup target add "$triple" >&2
fi

# Rust's own linker: it merges functions whose code is the same, a hundredth of the program, and is part of the toolchain.
lld=$(rustc --print sysroot)/lib/rustlib/$(rustc -vV | sed -n 's/^host: //p')/bin/gcc-ld
if [ ! -x "$lld/ld.lld" ]; then
  command -v ld.lld >/dev/null ||
    die "Rust's own linker, $lld/ld.lld, is missing, and there is no other lld: install a toolchain of rustup, or lld"
  say "links with $(command -v ld.lld): Rust's own linker, $lld/ld.lld, is missing. Size and digest are not those of a release"
fi

underscored=${triple//-/_} separator=$'\x1f'
# glibc's headers name functions that musl lacks for a newer standard of C, and in checks that some compilers default to.
variables=("CC_$underscored=$compiler" "CFLAGS_$underscored=-std=gnu11 -U_FORTIFY_SOURCE")
# mimalloc contains when it was compiled.
variables+=(SOURCE_DATE_EPOCH=0)
# The compiler for another architecture also links.
[ "$arch" = "$host" ] || variables+=("CARGO_TARGET_${underscored^^}_LINKER=$compiler")
# If several prefixes match, the last one applies.
flags=(
  "-Clink-arg=-B$lld"
  "-Clink-arg=-fuse-ld=lld"
  "-Clink-arg=-Wl,--icf=all"
  # A twentieth of the size of the relocations, which were 3.5 % of hub-addons; musl applies them since 1.2.4. Every lld
  # knows this option: before version 15, it ignores "-z pack-relative-relocs".
  "-Clink-arg=-Wl,--pack-dyn-relocs=relr"
  "--remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=/cargo"
  "--remap-path-prefix=$root=/src"
  "--remap-path-prefix=$target=/target"
)
variables+=("HUB_ADDONS_VERSION=$(hack/version.sh)")
variables+=("CARGO_ENCODED_RUSTFLAGS=$(IFS=$separator; echo "${flags[*]}")")
env CARGO_TARGET_DIR="$target" "${variables[@]}" \
  cargo build --locked --package "$program" --profile "$profile" --target "$triple" >&2
built=$target/$triple/$profile/$program
if grep -qaF -e "$root/" -e "${CARGO_HOME:-$HOME/.cargo}/" "$built"; then
  die "$program contains a path of this machine"
fi
# Each compiler and linker leaves its version in the program.
say "$program has $(stat -c %s "$built") bytes: $(grep -aoE '(rustc|clang) version [0-9.]+|GCC: \([^)]*\) [0-9.]+|LLD [0-9.]+' "$built" | sort -u | paste -sd, -)"
echo "$built"
