#!/bin/bash
# Formats the C++ sources in place; with --check only says which files are not formatted.
set -euo pipefail
cd "$(dirname "$0")/.."
mode=(-i)
[ "${1:-}" != --check ] || mode=(--dry-run --Werror)
git ls-files -z -- '*.cpp' '*.h' '*.c' | xargs -0 -r -P2 -n 20 clang-format-19 "${mode[@]}"
