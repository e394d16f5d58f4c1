#!/bin/bash
# Makes a small ext4 disk around the static busybox, for tests that boot a guest of their own.
#
# usage: busybox-disk.sh FILE
set -euo pipefail
export PATH=$PATH:/usr/sbin:/sbin LC_ALL=C
[ $# = 1 ] || { echo "usage: busybox-disk.sh FILE" >&2; exit 2; }
busybox=$(command -v busybox) || { echo "busybox is missing; install it: apt-get install busybox-static" >&2; exit 1; }

work=$(mktemp -d "$1.XXXXXX")
trap 'rm -rf "$work"' EXIT
tree=$work/tree
mkdir -p "$tree"/{bin,etc,root,tmp,dev,proc,sys}
cp "$busybox" "$tree/bin/busybox"
for applet in $("$busybox" --list); do
  [ "$applet" = busybox ] || ln -s busybox "$tree/bin/$applet"
done
echo root:x:0:0:root:/root:/bin/sh > "$tree/etc/passwd"
truncate -s 1G "$work/disk"
mke2fs -q -t ext4 -d "$tree" -E lazy_itable_init=1,root_owner=0:0 -J size=8 "$work/disk"
mv "$work/disk" "$1"
