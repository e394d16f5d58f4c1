#!/bin/bash
# Installs the Debian packages of the given groups (scripts/packages.list) that are missing. Quick when none is. A line with a third
# word names a command: where that is there, it came from somewhere else than Debian's package, which may not be installable beside it.
#
# usage: packages.sh GROUP...
set -euo pipefail
export LC_ALL=C
here=$(cd "$(dirname "$0")" && pwd)

missing=()
for group in "$@"; do
  while read -r name command; do
    [ -z "$command" ] || ! command -v "$command" > /dev/null || continue
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$name" 2>/dev/null)" = installed ] || missing+=("$name")
  done < <(sed -n "s/^$group //p" "$here/packages.list")
done
[ ${#missing[@]} -gt 0 ] || exit 0

echo "packages.sh: installing ${missing[*]}" >&2
as_root=()
if [ "$(id -u)" != 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "packages.sh: root is needed to install packages. As root, run:" >&2
    echo "  apt-get update && apt-get install --no-install-recommends ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi
"${as_root[@]}" apt-get update -q >&2
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
  apt-get install -q -y --no-install-recommends "${missing[@]}" >&2
