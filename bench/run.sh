#!/bin/sh
# Runs the benchmark: bench/run.sh [--build DIR] [FLAGS OF drupe-bench] [ROW...]
# Builds what is missing in DIR (default: build), makes the guest files and the image once, and passes everything else on.
# Without --home the results' home is DIR/bench-home, which keeps the image between runs.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
build=$root/build
home=
image=devbox:1
if [ "${1:-}" = --build ]; then
  build=$2
  shift 2
fi
previous=
for word in "$@"; do
  [ "$previous" = --home ] && home=$word
  [ "$previous" = --image ] && image=$word
  previous=$word
done
[ -f "$build/build.ninja" ] || cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release >/dev/null
ninja -C "$build" -j"$(nproc)" drupe drupe-shim drupe_ram drupe_agent drupe-net drupe-bench >/dev/null
if [ -z "${DRUPE_GUEST_DIR:-}" ] && [ ! -f "$build/guest/initramfs.cpio" ]; then
  "$root/scripts/guest.sh" "$build/bin/drupe-init" "$build/guest"
fi
if [ -z "$home" ]; then
  home=$build/bench-home
  mkdir -p "$home"
  set -- --home "$home" "$@"
fi
if ! DRUPE_HOME=$home "$build/bin/drupe" image inspect "$image" >/dev/null 2>&1; then
  echo "The image $image is made first."
  DRUPE_HOME=$home "$build/bin/drupe" image build-debian "$image"
fi
exec "$build/bench/drupe-bench" "$@"
