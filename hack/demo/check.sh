#!/usr/bin/env bash
# Reads what the demo prints as a person would: no error, no problem, no heading with nothing below it, and tables with
# straight columns.
#
# usage: hack/demo/check.sh FILE
set -euo pipefail

awk -v red="\342\234\227" '
  function complain(what) { printf "%s:%d: %s: %s\n", FILENAME, NR, what, $0; bad = 1 }
  { gsub(/\033\[[0-9;]*m/, "") }
  # What the cluster and the hub have to refuse is a part of the demo.
  /error:/ && !/You must be logged in to the server/ { complain("an error") }
  index($0, red) { complain("a problem") }
  /^== / {
    if (heading != "" && empty && !announces) complain("nothing below the heading \"" heading "\" before this one")
    heading = $0
    # These headings announce what follows, or say it all.
    announces = /Building|Starting|Stopping/
    empty = 1
    next
  }
  NF { empty = 0 }
  # A table: after its line of headings, no value crosses the beginning of a column.
  /^NAMESPACE +CLUSTER +SET / {
    columns = 0
    for (at = 1; at <= length($0); at++)
      if (substr($0, at, 1) ~ /[A-Z]/ && (at == 1 || substr($0, at - 1, 1) !~ /[A-Z]/)) start[++columns] = at
    table = 1
    tables++
    next
  }
  table { if (NF != columns) table = 0 }
  table {
    for (column = 2; column <= columns; column++)
      if (substr($0, start[column], 1) == " " || substr($0, start[column] - 1, 1) != " ") { complain("columns that shift"); break }
  }
  END {
    if (tables < 2) { print FILENAME ": expected two tables, got " tables + 0; bad = 1 }
    exit bad
  }' "$1"
