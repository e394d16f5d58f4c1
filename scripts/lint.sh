#!/bin/bash
# Static checks: formatting, structure of the tree, shell syntax, and clang-tidy on the code that reads hostile bytes.
#
# usage: lint.sh [--all]    --all: clang-tidy on every source file (some ten minutes on two cores)
# Needs a configured build directory (build/compile_commands.json).
set -uo pipefail
cd "$(dirname "$0")/.."
failed=0
report() {  # NAME COMMAND...
  local name=$1 output
  shift
  if output=$("$@" 2>&1); then
    echo "lint.sh: $name: ok"
  else
    echo "$output"
    echo "lint.sh: $name: FAILED"
    failed=1
  fi
}

shell_syntax() { git ls-files -z -- '*.sh' .ci/run | xargs -0 -r -n 1 bash -n; }

# Files whose code parses what a guest, an image or the network sent (some ten seconds each).
hostile='^src/(protocol/|base/tar_decode|image/(manifest|reference|auth)|shim/record_json|api/(http/(exchange|message|url|server)|json)|net/(stack/(ip|transport|neighbours|icmp|flow_table)|dns/(message|framing|filter)|inspect/(tls|client_hello|http)|policy/(rule|spec|name|address)))'
[ "${1:-}" != --all ] || hostile='^src/'
tidy() {
  git ls-files -- 'src/*.cpp' | grep -E "$hostile" | grep -vE '_(test|fuzz)\.cpp$' |
    xargs -r -P2 -n 2 clang-tidy-19 -p build --quiet --extra-arg=-Wno-unknown-warning-option --extra-arg=-Wno-ignored-gch --warnings-as-errors='*' 2>/dev/null
}

# What the commands say about themselves and the page made of it, as long as the program is built.
reference() { [ ! -x build/bin/drupe ] || scripts/cli-reference.py --check; }

report "formatting (scripts/format.sh mends it)" scripts/format.sh --check
report "shell syntax" shell_syntax
report "docs/cli.md (scripts/cli-reference.py makes it)" reference
report "clang-tidy" tidy
exit $failed
