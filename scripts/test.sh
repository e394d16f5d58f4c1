#!/bin/bash
# Runs every test: structure and lints, unit tests (release, then with ASan and UBSan), fuzz targets (5 minutes together),
# black-box tests over build/bin/drupe, the driver under KVM. Ends with the line "N passed, N failed[, N skipped]"; status 0 when none failed.
#
# usage: test.sh [STAGE...]    stages: lint unit agent net blackbox api sanitize fuzz lab (default: all, in this order)
# What the stages sanitize and fuzz run is compiled at idle priority beside the stages before them, which wait for guests half of
# their time.
# env:   DRUPE_TEST_HOME  home of the black-box tests; keeps the image devbox:1 between runs (default: build/test-home)
#        DRUPE_FUZZ_TOTAL seconds for all fuzz targets together (default: 240)
# Everything temporary lives in one directory that is removed at the end, also after Ctrl-C; sandboxes are removed as well.
set -uo pipefail
cd "$(dirname "$0")/.."
export PATH=$PATH:/usr/sbin:/sbin LC_ALL=C.UTF-8
# A python3 of somebody's own may come first in PATH and not have pytest.
python=python3
"$python" -c "import pytest" 2>/dev/null || python=/usr/bin/python3
stages=("$@")
[ ${#stages[@]} -gt 0 ] || stages=(lint unit agent net blackbox api sanitize fuzz lab)

mkdir -p build
work=$(mktemp -d /tmp/drupe-test.XXXXXX)
results=$work/results
mkdir "$results" "$work/tmp"
export TMPDIR=$work/tmp DRUPE_TEST_HOME=${DRUPE_TEST_HOME:-$PWD/build/test-home}

# Sandboxes of every home the tests have used; each home's path is a line of this file.
export DRUPE_TEST_HOMES=$work/homes
echo "$DRUPE_TEST_HOME" > "$DRUPE_TEST_HOMES"
stage_pid=
sanitized_pid=
cleanup() {
  trap - EXIT INT TERM HUP
  if [ -n "$stage_pid" ]; then
    kill -TERM -- "-$stage_pid" 2>/dev/null
    wait "$stage_pid" 2>/dev/null
    kill -KILL -- "-$stage_pid" 2>/dev/null
  fi
  if [ -n "$sanitized_pid" ]; then
    kill -TERM -- "-$sanitized_pid" 2>/dev/null
    wait "$sanitized_pid" 2>/dev/null
  fi
  "$python" tests/leftovers.py clean "$DRUPE_TEST_HOMES"
  rm -rf "$work"
}
trap 'cleanup; exit 130' INT TERM HUP
trap cleanup EXIT

run() {  # Runs a stage's command in a process group of its own, so that Ctrl-C ends all of it.
  set -m
  "$@" < /dev/null &
  stage_pid=$!
  set +m
  wait "$stage_pid"
  local status=$?
  stage_pid=
  return $status
}
result() {  # NAME STATUS: one result line for a step that is no test framework
  if [ "$2" = 0 ]; then echo "PASS $1"; else echo "FAIL $1"; fi >> "$results/steps"
}
step() {  # NAME COMMAND...
  local name=$1 status
  shift
  run "$@"
  status=$?
  result "$name" $status
  return $status
}

gtests() {  # BUILD_DIR PREFIX [CTEST_FILTER...]: every program that ctest knows
  local build=$1 prefix=$2 programs
  shift 2
  mkdir -p "$work/$prefix"
  # ctest names programs; GoogleTest writes one XML file for each.
  run env GTEST_OUTPUT="xml:$work/$prefix/" DRUPE_GUEST_DIR="$PWD/build/guest" \
    ctest --test-dir "$build" -j2 --timeout 600 --no-tests=error --output-on-failure "$@" \
    > "$work/$prefix.log" 2>&1 || cat "$work/$prefix.log"
  programs=$(ctest --test-dir "$build" -N "$@" | sed -n 's/^ *Test *#[0-9]*: //p')
  for name in $programs; do
    if [ -s "$work/$prefix/$name.xml" ]; then
      mv "$work/$prefix/$name.xml" "$results/$prefix-$name.xml"
    else  # It died before it could write.
      echo "FAIL $prefix-$name" >> "$results/steps"
    fi
  done
}

pytests() {  # NAME PATH...
  local name=$1
  shift
  run "$python" -m pytest -q --tb=short --durations=12 -p no:cacheprovider --junitxml="$results/$name.xml" "$@"
}

stage_lint() {
  step "lint" scripts/lint.sh
  pytests structure tests/structure
}
stage_unit() { gtests build unit; }
begin_sanitized() {  # Compiles for the stages sanitize and fuzz, in a process group of its own.
  set -m
  chrt -i 0 scripts/sanitized.sh unit_tests fuzz_targets > "$work/sanitized.log" 2>&1 < /dev/null &
  sanitized_pid=$!
  set +m
}
end_sanitized() {  # Its status; once.
  [ -n "$sanitized_pid" ] || return "$sanitized_status"
  # Nobody else wants the processors any more.
  pgrep -g "$sanitized_pid" | xargs -r -n1 chrt -a -o -p 0 2> /dev/null
  wait "$sanitized_pid"
  sanitized_status=$?
  sanitized_pid=
  [ "$sanitized_status" = 0 ] || cat "$work/sanitized.log"
  return "$sanitized_status"
}
stage_sanitize() {
  end_sanitized
  local status=$?
  result "build with ASan and UBSan" $status
  [ $status = 0 ] || return
  # Programs that boot guests spend their time in qemu, which has no sanitizer; they run in the unit stage.
  UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 gtests build/sanitize sanitize -E guest_test
}
stage_fuzz() {
  end_sanitized
  run scripts/fuzz.sh --total "${DRUPE_FUZZ_TOTAL:-240}" > "$results/fuzz"
  cat "$results/fuzz"
}
stage_agent() { pytests agent tests/agent; }
# A pytest of its own: it moves into namespaces.
stage_net() {
  pytests net tests/net
  pytests net_guests tests/net_guests
}
stage_blackbox() {
  # Not by folder: the files of tests/agent have names of their own kind.
  pytests blackbox tests/test_*.py
  run "$python" tests/leftovers.py check "$DRUPE_TEST_HOMES"
  result "nothing is left behind" $?
}
# druped over HTTP, and published clients of its API.
stage_api() {
  pytests api tests/api tests/clients
  run "$python" tests/leftovers.py check "$DRUPE_TEST_HOMES"
  result "nothing of druped is left behind" $?
}
stage_lab() { pytests lab tests/lab; }

begun=$SECONDS
step "build" scripts/build.sh --tests || stages=()
case " ${stages[*]} " in *" sanitize "* | *" fuzz "*) begin_sanitized ;; esac
for stage in "${stages[@]}"; do
  start=$SECONDS
  echo "== $stage"
  "stage_$stage"
  echo "== $stage: $((SECONDS - start)) s"
done
echo "== all: $((SECONDS - begun)) s"
"$python" scripts/collect.py "$results"
status=$?
cleanup
exit $status
