#!/usr/bin/env bash
# Draws what the demo prints as an SVG of a terminal: which clusters the applications see, why, and a token that leaves
# with its grant. README.md shows the result, docs/demo.svg.
#
# usage: hack/demo.sh >FILE 2>&1; hack/demo/picture.sh FILE >docs/demo.svg
set -euo pipefail

awk '
  # As many lines of a part as a person reads, which is the first cluster of those that are explained.
  BEGIN { columns = 104; limit = 17 }
  # Without the paths and the name of the machine.
  {
    gsub(/\033\[[0-9;]*m/, "")
    gsub(/\/[^ ]*tmp\.[A-Za-z0-9]+\//, "")
    sub(/executable \/[^ ]*\//, "executable ")
    sub(/holderIdentity: [^_ ]*_/, "holderIdentity: demo_")
  }
  /^== / {
    part = ""
    if (/Which application sees which clusters/) part = "list"
    else if (/and why/ && !seen["why"]++) part = "why"
    else if (/The binding of argocd is deleted/) part = "end"
    if (part != "") { parts++; add($0) }
    next
  }
  part == "" || !NF { next }
  ++in_part[part] <= limit { add($0) }
  function add(text) {
    if (length(text) > columns) text = substr(text, 1, columns - 1) "…"
    line[++lines] = text
  }
  function escaped(text) {
    gsub(/&/, "\\&amp;", text); gsub(/</, "\\&lt;", text); gsub(/>/, "\\&gt;", text)
    return text
  }
  END {
    if (parts != 3) { print "picture: expected 3 parts of the demo, got " parts + 0 >"/dev/stderr"; exit 1 }
    width = columns * 7.83 + 32
    for (at = 1; at <= lines; at++) height += line[at] ~ /^== / && at > 1 ? 27 : 18
    printf "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" role=\"img\">\n", width, height + 58, width, height + 58
    print "<title>The demo of the hub addons in a terminal</title>"
    print "<style>text { font: 13px ui-monospace, Menlo, Consolas, monospace; fill: #d0d7de; white-space: pre }"
    print ".h { fill: #ffffff; font-weight: bold } .c { fill: #79c0ff } .ok { fill: #56d364 }</style>"
    printf "<rect width=\"100%%\" height=\"100%%\" rx=\"8\" fill=\"#0d1117\"/>\n"
    for (at = 0; at < 3; at++)
      printf "<circle cx=\"%d\" cy=\"18\" r=\"6\" fill=\"%s\"/>\n", 20 + 20 * at, substr("#ff5f56#ffbd2e#27c93f", 7 * at + 1, 7)
    y = 32
    for (at = 1; at <= lines; at++) {
      text = escaped(line[at])
      y += line[at] ~ /^== / && at > 1 ? 27 : 18
      class = text ~ /^== / ? " class=\"h\"" : text ~ /^\$ / ? " class=\"c\"" : ""
      sub(/^== /, "", text)
      sub(/✓/, "<tspan class=\"ok\">✓</tspan>", text)
      printf "<text x=\"16\" y=\"%d\" xml:space=\"preserve\"%s>%s</text>\n", y, class, text
    }
    print "</svg>"
  }' "$1"
