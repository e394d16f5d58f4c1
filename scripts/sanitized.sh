#!/bin/bash
# Builds targets with clang and the address and undefined behaviour sanitizers into build/sanitize: unit tests and fuzz
# targets share its libraries.
#
# usage: sanitized.sh TARGET...    e.g. unit_tests fuzz_targets, or tar_decode_fuzz
# env: DRUPE_SANITIZE_LEVEL  optimization level (default: 0, which compiles in half the time of 1; long fuzzing wants 1)
set -euo pipefail
cd "$(dirname "$0")/.."
cmake -S . -B build/sanitize -G Ninja -DCMAKE_BUILD_TYPE=Release -DDRUPE_FUZZ=ON -DDRUPE_TESTS=ON \
  -DCMAKE_CXX_COMPILER=clang++-19 -DCMAKE_C_COMPILER=clang-19 -DDRUPE_SANITIZE=address,undefined,fuzzer-no-link \
  -DDRUPE_SANITIZE_LEVEL="${DRUPE_SANITIZE_LEVEL:-0}" > /dev/null
[ $# = 0 ] || cmake --build build/sanitize --target "$@" -- --quiet -k 0
