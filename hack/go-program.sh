#!/usr/bin/env bash
# Prints the path of a Go program that tests need, built from its own module once into the user's cache directory, where
# later calls find it. Only that line goes to stdout:
#
#   helm="$(hack/go-program.sh helm)" && "$helm" version
#
# With --source, it prints the directory of the program's module, which also has the manifests of its release. The
# variable of a program's name, such as $HELM, names one to use instead.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=hack/once.sh
. "$root/hack/once.sh"
usage() {
  cat >&2 <<USAGE
usage: hack/go-program.sh [--source] PROGRAM

Programs (versions: hack/versions.txt): $(awk '$2 ~ "/cmd" { printf "%s ", $1 }' "$root/hack/versions.txt")
USAGE
  exit 2
}

source=''
[ "${1-}" != --source ] || { source=yes; shift; }
[ $# -eq 1 ] || usage
read -r package version pin < <("$root/hack/versions.sh" get "$1" 2>/dev/null) || usage
case ${package-} in */cmd*) ;; *) usage ;; esac
given=${1^^} given=${given//-/_} given=${!given-}
# Upstream's programs are built in their own modules, whose go.sum pins what they require. Where such a module has replace
# directives, a module of ours requires it.
module='' sum=''
case $pin in e2e/*) module=$root/$pin ;; *) sum=$pin ;; esac

# fetch: prints the directory of the program's module in Go's module cache, if the content is as expected.
fetch() {
  local path=${package%%/cmd*} download
  download=$("$root/hack/go-download.sh" module "$path@$version") || die "cannot download $path@$version"
  field() { awk -F'"' -v name="$1" '$2 == name { print $4 }' <<<"$download"; }
  [ -z "$sum" ] || [ "$(field Sum)" = "$sum" ] || die "$path@$version has the checksum $(field Sum), expected $sum"
  field Dir
}

[ -z "$source" ] || { fetch; exit; }
if [ -n "$given" ]; then
  command -v "$given" || die "program $given does not exist"
  exit
fi
directory="$cache/go-programs/$1-$version" file=${package##*/}
[ -z "$module" ] || directory+=-$(cat "$module/go.mod" "$module/go.sum" | sha256sum | cut -c1-12)
[ -x "$directory/$file" ] || needs go
build() {
  local sources=$module
  [ -n "$sources" ] || sources=$(fetch)
  (cd "$sources" && "$root/hack/go-download.sh" packages "$package") || exit 1
  go_build "$sources" '' "$1/" "$package"
}
once "$directory" "$file" "$1 $version (some minutes on two cores)" build
echo "$directory/$file"
