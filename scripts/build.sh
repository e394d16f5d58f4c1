#!/bin/bash
# Builds the release binaries (drupe, druped and their helpers) into build/bin and the guest's kernel and initramfs into build/guest.
#
# usage: build.sh [--tests]    --tests: the unit tests as well
set -euo pipefail
cd "$(dirname "$0")/.."

if [ "${1:-}" = --tests ]; then
  cmake -S . -B build -G Ninja -DCMAKE_BUILD_TYPE=Release -DDRUPE_TESTS=ON >/dev/null
elif [ ! -f build/build.ninja ]; then
  cmake -S . -B build -G Ninja -DCMAKE_BUILD_TYPE=Release -DDRUPE_TESTS=OFF >/dev/null
fi

# The kernel package downloads while the compiler works.
mkdir -p build/guest
scripts/guest.sh - > build/guest/fetch.log 2>&1 &
kernel=$!
trap 'kill "$kernel" 2>/dev/null || true' EXIT
cmake --build build -- --quiet
if ! wait "$kernel"; then
  cat build/guest/fetch.log >&2
  exit 1
fi
trap - EXIT
scripts/guest.sh build/bin/drupe-init
