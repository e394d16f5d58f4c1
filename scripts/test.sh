#!/bin/bash
# Runs every test: structure and lints, unit tests (release, then with ASan and UBSan), fuzz targets (5 minutes together),
# black-box tests over build/bin/drupe, the driver under KVM. Ends with the line "N passed, N failed[, N skipped]"; status 0 when none failed.
#
# usage: test.sh [STAGE...]    stages: lint unit agent net blackbox api sanitize fuzz lab (default: all, in this order)
# Stages wait for guests half of their time. So agent, net, lint and api run beside unit and blackbox, in a home of their own, and
# what sanitize and fuzz run is compiled at idle priority meanwhile.
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
beside_pid=
beside_home=
cleanup() {
  trap - EXIT INT TERM HUP
  if [ -n "$stage_pid" ]; then
    kill -TERM -- "-$stage_pid" 2>/dev/null
    wait "$stage_pid" 2>/dev/null
    kill -KILL -- "-$stage_pid" 2>/dev/null
  fi
  if [ -n "$beside_pid" ]; then  # It ends its own stage.
    kill -TERM "$beside_pid" 2>/dev/null
    wait "$beside_pid" 2>/dev/null
  fi
  if [ -n "$sanitized_pid" ]; then
    kill -TERM -- "-$sanitized_pid" 2>/dev/null
    wait "$sanitized_pid" 2>/dev/null
  fi
  for list in "$work/homes" "$work/homes-beside"; do
    "$python" tests/leftovers.py clean "$list"
  done
  rm -rf "$work" ${beside_home:+"$beside_home"}
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
nothing_left() {  # STAGE
  run "$python" tests/leftovers.py check "$DRUPE_TEST_HOMES"
  result "$1 leaves nothing behind" $?
}
stage_blackbox() {
  # Not by folder: the files of tests/agent have names of their own kind.
  pytests blackbox tests/test_*.py
  nothing_left blackbox
}
# druped over HTTP, and published clients of its API.
stage_api() {
  pytests api tests/api tests/clients
  nothing_left api
}
stage_lab() { pytests lab tests/lab; }

stage() {  # NAME
  local start=$SECONDS
  echo "== $1"
  "stage_$1"
  echo "== $1: $((SECONDS - start)) s"
}
in_list() { case " $2 " in *" $1 "*) ;; *) return 1 ;; esac; }
beside() {  # STAGE...: one after the other in the background; what they print comes when end_beside is called
  (
    end_own_stage() {
      [ -z "$stage_pid" ] || kill -TERM -- "-$stage_pid" 2>/dev/null
      wait
      [ -z "$stage_pid" ] || kill -KILL -- "-$stage_pid" 2>/dev/null
      exit 130
    }
    trap end_own_stage TERM INT HUP
    trap - EXIT
    export DRUPE_TEST_HOME=$beside_home/home DRUPE_TEST_HOMES=$work/homes-beside
    echo "$DRUPE_TEST_HOME" > "$DRUPE_TEST_HOMES"
    for name in "$@"; do stage "$name"; done
  ) > "$work/beside.log" 2>&1 < /dev/null &
  beside_pid=$!
}
end_beside() {
  [ -n "$beside_pid" ] || return
  wait "$beside_pid"
  beside_pid=
  cat "$work/beside.log"
}

begun=$SECONDS
step "build" scripts/build.sh --tests || stages=()
if in_list sanitize "${stages[*]}" || in_list fuzz "${stages[*]}"; then begin_sanitized; fi
first=() second=()
for name in "${stages[@]}"; do
  case $name in
    unit | blackbox) first+=("$name") ;;
    agent | net | lint | api) second+=("$name") ;;
  esac
done
if in_list blackbox "${stages[*]}" && [ ${#second[@]} -gt 0 ]; then
  start=$SECONDS
  echo "== image and base snapshot"
  # On the file system of the other home, whose image it links to.
  mkdir -p "$(dirname "$DRUPE_TEST_HOME")"
  beside_home=$(mktemp -d -p "$(dirname "$DRUPE_TEST_HOME")" drupe-beside.XXXXXX)
  step "image and base snapshot" "$python" tests/homes.py "$DRUPE_TEST_HOME" "$beside_home/home"
  echo "== image and base snapshot: $((SECONDS - start)) s"
  echo "== beside: ${second[*]}"
  beside "${second[@]}"
  for name in "${first[@]}"; do stage "$name"; done
  end_beside
else
  for name in "${first[@]}" "${second[@]}"; do stage "$name"; done
fi
for name in "${stages[@]}"; do
  case $name in sanitize | fuzz | lab) stage "$name" ;; esac
done
echo "== all: $((SECONDS - begun)) s"
"$python" scripts/collect.py "$results"
status=$?
cleanup
exit $status
