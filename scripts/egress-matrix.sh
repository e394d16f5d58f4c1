#!/bin/bash
# Writes docs/egress-matrix.md: what each form of network rule lets through.
#
# usage: egress-matrix.sh
set -euo pipefail
cd "$(dirname "$0")/.."
cmake -S . -B build -G Ninja -DCMAKE_BUILD_TYPE=Release -DDRUPE_TESTS=ON > /dev/null
cmake --build build --target drupe-egress-matrix -- --quiet
page=$(mktemp)
trap 'rm -f "$page"' EXIT
build/bin/drupe-egress-matrix > "$page"
cat "$page" > docs/egress-matrix.md
