#!/bin/bash
# From a fresh clone on Debian 12 to a Python program in a virtual machine of its own.
#
# Installs what is missing of scripts/packages.list (only this needs root), builds build/bin/drupe and build/bin/druped, makes the guest's
# kernel, builds the image devbox:1 and runs the main job. Safe to run again; finished steps are skipped quickly.
set -euo pipefail
cd "$(dirname "$0")/.."
drupe=build/bin/drupe
export PATH=$PATH:/usr/sbin:/sbin

begun=$SECONDS
step() {  # TEXT COMMAND...: says what happens and how long it took
  local text=$1 start=$SECONDS
  shift
  echo "== $text"
  "$@" || { echo "quickstart.sh: this step failed: $text" >&2; exit 1; }
  echo "   $((SECONDS - start)) s"
}

# On a machine without npm Debian's package of it, from apt's own mirror, says where npm fetches from; it is not installed.
debian_npm_registry() {
  local folder definitions=./usr/share/nodejs/npm/lib/utils/config/definitions.js
  folder=$(mktemp -d) || return
  (cd "$folder" && apt-get download -q npm >/dev/null 2>&1 && dpkg-deb --fsys-tarfile npm_*.deb | tar -xO "$definitions") |
    sed -n "/^define('registry', {/,/default:/s/.*default: *'\([^']*\)'.*/\1/p"
  rm -rf "$folder"
}

image() {
  if "$drupe" image inspect devbox:1 >/dev/null 2>&1; then
    echo "   devbox:1 is there already"
  else
    if [ -z "${DRUPE_NPM_REGISTRY:-}" ] && ! command -v npm >/dev/null; then
      DRUPE_NPM_REGISTRY=$(debian_npm_registry)
      export DRUPE_NPM_REGISTRY
    fi
    "$drupe" image build-debian devbox:1
  fi
}

main_job() {
  local start end output
  start=$(date +%s%N)
  output=$("$drupe" run devbox:1 -- python3 -c 'print(6*7)') || return 1
  end=$(date +%s%N)
  echo "   \$ drupe run devbox:1 python3 -c 'print(6*7)'"
  echo "   $output"
  echo "   ($(((end - start) / 1000000)) ms from process start to exit)"
  [ "$output" = 42 ]
}

step "1/6 Debian packages" scripts/packages.sh run
step "2/6 Release binaries in build/bin, kernel and initramfs in build/guest" scripts/build.sh
step "3/6 What this machine can do" "$drupe" doctor
step "4/6 The image devbox:1, from Debian packages" image
step "5/6 Base snapshot of devbox:1, so that later sandboxes need no boot" "$drupe" warm devbox:1
step "6/6 The main job" main_job
echo "== Ready after $((SECONDS - begun)) s. Next: $drupe run -it devbox:1 bash"
