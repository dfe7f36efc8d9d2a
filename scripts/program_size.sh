#!/usr/bin/env bash
# Prints the size of the program, and compares it with the one that docs/building.md states.
#
#   cargo build --release --bin tidemill && scripts/program_size.sh [PROGRAM]
#
# Exit code 1: the sizes differ by more than 5 %; put the printed one into the last row of the table there.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
program=${1:-${CARGO_TARGET_DIR:-$root/target}/release/tidemill}
page=$root/docs/building.md

[ -f "$program" ] || { echo "$program: there is no such program; build it with cargo build --release --bin tidemill" >&2; exit 2; }
bytes=$(wc -c < "$program")
size=$(( (bytes + 500000) / 1000000 ))
# the last row of the table of the first build; its last cell is the size in MB
stated=$(awk '/^## The first build/ { inside = 1; next } /^## / { inside = 0 } inside && /^\|/ { row = $0 }
  END { n = split(row, cells, "|"); gsub(/[^0-9]/, "", cells[n - 1]); print cells[n - 1] }' "$page")
[ -n "$stated" ] || { echo "$page: the table of the first build has no size" >&2; exit 2; }
echo "$size MB; docs/building.md says $stated MB"
difference=$(( size > stated ? size - stated : stated - size ))
if [ $(( difference * 20 )) -gt "$stated" ]; then
  echo "the page is not true any more: write $size into the last row of the table" >&2
  exit 1
fi
