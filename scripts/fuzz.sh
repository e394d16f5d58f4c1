#!/bin/bash
# Builds all fuzz targets with clang's libFuzzer and runs each for a while, two at a time.
#
# usage: fuzz.sh [--total SECONDS | --each SECONDS] [TARGET...]
#   --total  time for all targets together, building not counted; --each: for each one (default: 600)
# Prints one line "PASS name" or "FAIL name" per target; what made one fail is kept in build/fuzz-crashes.
set -euo pipefail
cd "$(dirname "$0")/.."
total=0 each=600
case ${1:-} in
  --total) total=$2; shift 2 ;;
  --each) each=$2; shift 2 ;;
esac
# Whoever fuzzes for long gets back what a better optimized build costs.
[ "$total" != 0 ] || export DRUPE_SANITIZE_LEVEL=1

scripts/sanitized.sh
all=$(ninja -C build/sanitize -t targets all | sed -n 's/^\([a-z0-9_]*_fuzz\): phony$/\1/p' | grep -v '^cmake_' | sort -u)
targets=("$@")
[ ${#targets[@]} -gt 0 ] || mapfile -t targets <<< "$all"
if [ -z "${targets[*]}" ]; then
  echo "fuzz.sh: no fuzz targets found" >&2
  exit 1
fi
scripts/sanitized.sh "${targets[@]}"
[ "$total" = 0 ] || each=$((total * 2 / ${#targets[@]}))
[ "$each" -ge 2 ] || each=2

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
one() {  # TARGET
  local target=$1 corpus
  mkdir -p "$work/$target" build/fuzz-crashes
  corpus=("$work/$target")
  [ ! -d "tests/corpus/$target" ] || corpus+=("tests/corpus/$target")
  if timeout -k 5 $((each + 60)) "build/sanitize/fuzz/$target" -max_total_time="$each" -timeout=10 -rss_limit_mb=2048 \
      -print_final_stats=0 -verbosity=0 -artifact_prefix="build/fuzz-crashes/$target-" "${corpus[@]}" \
      > "$work/$target.log" 2>&1; then
    echo "PASS $target"
  else
    tail -n 60 "$work/$target.log" >&2
    echo "FAIL $target"
    touch "$work/failed"
  fi
}
export -f one
export work each
printf '%s\n' "${targets[@]}" | xargs -P2 -I{} bash -c 'one {}'
[ ! -e "$work/failed" ]
