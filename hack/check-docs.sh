#!/usr/bin/env bash
# Checks references in documents: links lead to existing files and headings, and every named test, metric and source
# file exists.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

failed=''
complain() { printf 'check-docs: %s\n' "$*" >&2; failed=1; }

# anchors FILE: the anchors of its headings, as GitHub generates them.
anchors() {
  grep -E '^#+ ' "$1" | sed -E 's/^#+ +//' | tr '[:upper:]' '[:lower:]' | sed -E 's/[^a-z0-9 _-]//g; s/ /-/g'
}

# quoted FILE PATTERN: text between backticks that matches as a whole.
quoted() { grep -oE "\`$2\`" "$1" | tr -d '`' | sort -u || true; }

mapfile -t documents < <(git ls-files '*.md')
for document in "${documents[@]}"; do
  while read -r link; do
    file=${link%%#*} anchor=''
    [ "$link" = "$file" ] || anchor=${link#*#}
    target=$document
    [ -z "$file" ] || target=$(dirname "$document")/$file
    if [ ! -e "$target" ]; then
      complain "$document links to $link, which does not exist"
    elif [ -n "$anchor" ] && ! anchors "$target" | grep -qxF -- "$anchor"; then
      complain "$document links to $link, and $target has no such heading"
    fi
  done < <(grep -oE '\]\([^) ]+\)' "$document" | sed -E 's/^\]\(//; s/\)$//' | grep -vE '^https?:' || true)

  while read -r metric; do
    # Counters and infos have a suffix that the program does not contain.
    name=${metric#hub_addons_} name=${name%_total} name=${name%_info}
    git grep -qE "\"$name\"" -- 'crates/**/metrics.rs' || complain "$document names the metric $metric"
  done < <(quoted "$document" 'hub_addons_[a-z_]+')
done

functions=$(git grep -hoE 'fn [a-z0-9_]+' -- '*.rs' | sort -u)
for document in ARCHITECTURE.md SECURITY.md docs/dev/*.md; do
  while read -r name; do
    grep -qxF "fn $name" <<<"$functions" || complain "$document names $name, which is not a test"
  done < <(quoted "$document" '[a-z0-9]+(_[a-z0-9]+){4,}' | grep -v '^hub_addons_')

  # Paths may be relative to any directory.
  while read -r path; do
    [ -n "$(git ls-files -- ":(glob)**/$path")" ] || complain "$document names $path"
  done < <(quoted "$document" '[a-z0-9-]+/[a-zA-Z0-9_./*-]+\.(rs|sh|md|yaml|txt|toml)')
done

[ -z "$failed" ]
