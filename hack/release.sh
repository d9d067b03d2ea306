#!/usr/bin/env bash
# Builds everything that a release publishes into one directory.
set -euo pipefail

usage() {
  cat <<'USAGE'
usage: hack/release.sh [OPTION]...

Builds everything that a release publishes into one directory:

  images/          an OCI archive for each image and architecture, and its SBOM (hack/image.sh)
  oci/             an OCI layout: for each image an index over its architectures, and the chart
  charts/          the packaged chart
  cli/             kubectl-clusterprofile for each system, and its manifest for krew (hack/cli.sh)
  SHA256SUMS       of the files of a release on GitHub, which has no directories: the chart, cli/ and the SBOMs
  *.sigstore.json  signatures of SHA256SUMS and of the chart, if cosign is installed and --key or --keyless is set

  --output DIR     the directory, which must not exist; by default release/VERSION in cargo's target directory
  --url URL        the repository of the publisher, such as https://github.com/OWNER/NAME, which replaces the placeholder
                   https://hub-addons.example in the chart
  --registry HOST  the registry that the images are pushed to; becomes the default of image.registry in the chart, as the
                   digest of hub-addons becomes that of image.digest
  --artifact-hub ID the chart's repository on Artifact Hub: adds artifacthub-repo.yml, by which it verifies the publisher
  --arch ARCH      amd64 or arm64, of images and of the programs in cli/; can be repeated. By default both; fails if one
                   cannot be built
  --key KEY        sign with this key of cosign (a file, or a KMS URI); the signature is recorded in Sigstore's public log
  --keyless        sign without a key: cosign asks for an identity
  --images DIR     use images that hack/image.sh has built, instead of building them
  --binaries DIR   use programs for cli/ that are built, like hack/cli.sh
  --profile NAME   like that of hack/image.sh

Nothing is pushed. To publish the layout:

  skopeo copy --all oci:DIR/oci:hub-addons-VERSION docker://registry.example/hub-addons:VERSION
  helm push DIR/charts/hub-addons-VERSION.tgz oci://registry.example/charts
USAGE
}
say() { printf 'release: %s\n' "$*" >&2; }
die() { say "$@"; exit 1; }

# Paths on the command line are relative to the caller's directory.
from=$PWD
path() { case $1 in /*) echo "$1" ;; *) echo "$from/$1" ;; esac; }
cd "$(dirname "${BASH_SOURCE[0]}")/.."
output='' url='' registry='' hub_id='' key='' keyless='' images='' arches=() options=() cli=()
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) usage; exit ;;
    --keyless) keyless=1; shift; continue ;;
    --output | --url | --registry | --artifact-hub | --arch | --key | --images | --binaries | --profile) [ $# -gt 1 ] || { usage >&2; exit 2; } ;;
    *) usage >&2; exit 2 ;;
  esac
  case $1 in
    --output) output=$(path "$2") ;;
    --url) url=${2%/} ;;
    --registry) registry=${2%/} ;;
    --artifact-hub) hub_id=$2 ;;
    --arch) arches+=("$2") ;;
    --key) key=$2 ;;
    --images) images=$(path "$2") ;;
    --binaries) cli+=(--binaries "$(path "$2")") ;;
    --profile) options+=(--profile "$2"); cli+=(--profile "$2") ;;
  esac
  shift 2
done
[ -z "$key" ] || [ -z "$keyless" ] || die "--key and --keyless: choose one"
if [ -n "$key$keyless" ] && ! command -v cosign >/dev/null; then die "cosign is not installed, but --key or --keyless requires it"; fi
[ ${#arches[@]} -gt 0 ] || arches=(amd64 arm64)
for os in linux darwin windows; do
  for arch in "${arches[@]}"; do cli+=(--platform "$os-$arch"); done
done
for tool in jq tar sha256sum; do command -v "$tool" >/dev/null || die "$tool is not installed"; done
version=$(hack/version.sh) base=$(hack/version.sh --base)
export HUB_ADDONS_VERSION=$version
[ -n "$output" ] || output=${CARGO_TARGET_DIR:-target}/release/$version
[ ! -e "$output" ] || die "$output exists"
# Building the images takes long: what the other steps need is checked first.
hack/cli.sh --check "${cli[@]}"
helm=$(hack/go-program.sh helm)
mkdir -p "$output/images" "$output/charts" "$output/oci/blobs/sha256"
output=$(cd "$output" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# --- images --------------------------------------------------------------------------------------------

if [ -n "$images" ]; then
  cp "$images"/*.oci.tar "$images"/*.cdx.json "$output/images/" 2>/dev/null || cp "$images"/*.oci.tar "$output/images/"
else
  for arch in "${arches[@]}"; do options+=(--arch "$arch"); done
  hack/image.sh --output "$output/images" --tag "$version" "${options[@]}"
fi

# --- the OCI layout: the images ------------------------------------------------------------------------

# add FILE: adds a file to the layout; prints its digest and size.
add() {
  local digest
  digest=$(sha256sum "$1" | cut -d' ' -f1)
  cp "$1" "$output/oci/blobs/sha256/$digest"
  echo "sha256:$digest $(stat -c %s "$1")"
}

# descriptor TYPE DIGEST SIZE [PLATFORM]
descriptor() {
  jq -nc --arg type "$1" --arg digest "$2" --argjson size "$3" --argjson platform "${4:-null}" \
    '{mediaType: $type, digest: $digest, size: $size} + if $platform then {platform: $platform} else {} end'
}

declare -A digest_of
readonly index=application/vnd.oci.image.index.v1+json manifest=application/vnd.oci.image.manifest.v1+json
: >"$work/index"
for image in hub-addons cp-creds; do
  manifests=()
  for arch in "${arches[@]}"; do
    archive=$output/images/$image-$arch.oci.tar
    [ -f "$archive" ] || die "$archive does not exist"
    rm -rf "$work/image"
    mkdir "$work/image"
    tar -xf "$archive" -C "$work/image"
    cp "$work/image/blobs/sha256/"* "$output/oci/blobs/sha256/"
    read -r digest size < <(jq -r '.manifests[0] | "\(.digest) \(.size)"' "$work/image/index.json")
    platform=$(jq -nc --arg arch "$arch" '{architecture: $arch, os: "linux"}')
    manifests+=("$(descriptor "$manifest" "$digest" "$size" "$platform")")
  done
  printf '%s\n' "${manifests[@]}" | jq -sc --arg type "$index" \
    '{schemaVersion: 2, mediaType: $type, manifests: .}' >"$work/$image.json"
  read -r digest size < <(add "$work/$image.json")
  descriptor "$index" "$digest" "$size" |
    jq -c --arg name "$image-$version" '.annotations = {"org.opencontainers.image.ref.name": $name}' >>"$work/index"
  digest_of[$image]=$digest
  say "$image: $digest, for ${arches[*]}"
done

# --- the chart -----------------------------------------------------------------------------------------

cp -r charts/hub-addons "$work/hub-addons"
# Placeholders in the source, and their values.
if [ -n "$url" ]; then
  at=v$version
  [ "$version" = "$base" ] || at=$(git rev-parse HEAD)
  grep -rl 'https://hub-addons\.example' "$work/hub-addons" | while read -r file; do
    sed -i "s#https://hub-addons\.example/\(blob\|raw\)/main/#$url/\1/$at/#g; s#https://hub-addons\.example#$url#g" "$file"
  done
  # The chart does not contain what its pages refer to.
  sed -i "s#](\.\./\.\./\([^)]*\.svg\))#]($url/raw/$at/\1)#g; s#](\.\./\.\./#]($url/blob/$at/#g; /^Without Helm/,\$d" \
    "$work"/hub-addons/*.md
  sed -i "s#--values charts/#--values $url/raw/$at/charts/#" "$work/hub-addons/values-acm.yaml"
fi
chart_version=$(awk '$1 == "version:" { print $2 }' "$work/hub-addons/Chart.yaml")${version#"$base"}
if [ -n "$registry" ]; then
  # The pages install from the source. This chart names its image by digest, and refuses a tag beside it.
  sed -i "/^export REGISTRY=.*hack/d; /install.md sets the variables/,+1d
    s#^\[Push\]([^)]*) the new images, upgrade#Upgrade#; s#^Reused values include.*the new one\. ##; s#image\.registry=\$REGISTRY,##; s#image\.tag=\$VERSION#image.tag=#
    s# charts/hub-addons --namespace# oci://$registry/charts/hub-addons --version $chart_version --namespace#" \
    "$work"/hub-addons/*.md "$work/hub-addons/values-acm.yaml"
  sed -i "s#hub-addons\.example/\(hub-addons\|cp-creds\):.*#$registry/\1:$version#" "$work/hub-addons/Chart.yaml"
  sed -i "s|^  registry: \"\"|  registry: \"$registry\"|" "$work/hub-addons/values.yaml"
fi
# What a tag refers to can change.
sed -i "s|^  digest: \"\"|  digest: \"${digest_of[hub-addons]}\"|" "$work/hub-addons/values.yaml"
"$helm" lint --strict --quiet "$work/hub-addons" >&2
"$helm" package "$work/hub-addons" --destination "$output/charts" --version "$chart_version" --app-version "$version" \
  >/dev/null
charts=("$output"/charts/*.tgz)
chart=${charts[0]}

# --- kubectl-clusterprofile ----------------------------------------------------------------------------

hack/cli.sh --output "$output/cli" ${url:+--url "$url"} "${cli[@]}"

# --- the OCI layout: the chart and its publisher ----------------------------------------------------------

# artifact NAME CONFIG-TYPE CONFIG LAYER-TYPE LAYER ANNOTATIONS: adds an artifact of one layer to the layout.
artifact() {
  local digest size config layer
  read -r digest size < <(add "$3")
  config=$(descriptor "$2" "$digest" "$size")
  read -r digest size < <(add "$5")
  layer=$(descriptor "$4" "$digest" "$size")
  jq -nc --arg type "$manifest" --argjson config "$config" --argjson layer "$layer" --argjson annotations "$6" \
    '{schemaVersion: 2, mediaType: $type, config: $config, layers: [$layer], annotations: $annotations}' \
    >"$work/artifact.json"
  read -r digest size < <(add "$work/artifact.json")
  descriptor "$manifest" "$digest" "$size" |
    jq -c --arg name "$1" '.annotations = {"org.opencontainers.image.ref.name": $name}' >>"$work/index"
}

# In the format of helm push.
jq -nc --arg version "$chart_version" '{name: "hub-addons", version: $version, apiVersion: "v2", type: "application"}' \
  >"$work/config.json"
artifact "chart-$chart_version" application/vnd.cncf.helm.config.v1+json "$work/config.json" \
  application/vnd.cncf.helm.chart.content.v1.tar+gzip "$chart" "$(jq -nc --arg version "$chart_version" \
  '{"org.opencontainers.image.title": "hub-addons", "org.opencontainers.image.version": $version}')"
if [ -n "$hub_id" ]; then
  echo "repositoryID: $hub_id" >"$work/artifacthub-repo.yml"
  : >"$work/empty"
  artifact artifact-hub application/vnd.cncf.artifacthub.config.v1+yaml "$work/empty" \
    application/vnd.cncf.artifacthub.repository-metadata.layer.v1.yaml "$work/artifacthub-repo.yml" \
    '{"org.opencontainers.image.title": "artifacthub-repo.yml"}'
fi
jq -sc --arg type "$index" '{schemaVersion: 2, mediaType: $type, manifests: .}' "$work/index" >"$output/oci/index.json"
echo '{"imageLayoutVersion":"1.0.0"}' >"$output/oci/oci-layout"

# --- checksums and signatures --------------------------------------------------------------------------

(cd "$output" && find charts cli images -type f ! -name '*.oci.tar' ! -name digests | LC_ALL=C sort | xargs sha256sum |
  sed 's#  .*/#  #' >SHA256SUMS)
if [ -n "$key$keyless" ]; then
  for file in "$output/SHA256SUMS" "$chart"; do
    cosign sign-blob --yes ${key:+--key "$key"} --bundle "$file.sigstore.json" "$file" >/dev/null
  done
else
  say "nothing is signed: install cosign and use --key or --keyless"
fi
say "$output contains the release $version, chart $chart_version"
