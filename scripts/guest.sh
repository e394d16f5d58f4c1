#!/bin/bash
# Makes the guest's kernel and initramfs: Debian's cloud kernel, fetched but not installed, and drupe-init.
#
# usage: guest.sh [INIT [OUTDIR]]
#   INIT    static program that becomes /init (drupe-init). "-" or absent: only kernel and modules are made.
#   OUTDIR  default: build/guest beside this script's folder. Afterwards it holds
#             vmlinux          uncompressed ELF with a PVH note
#             modules/*.ko     uncompressed; modules/order lists their names in load order, one a line
#             initramfs.cpio   /init, /mods/*.ko, /mods/order; the same input gives the same bytes
#             kernel.version   package name and version
# env: DRUPE_KERNEL_DEB  a linux-image-*-cloud-amd64 package file to use instead of fetching one
# Works as an ordinary user. Needs: apt, dpkg-deb, lz4, cpio, xz. Does nothing when nothing has changed.
set -euo pipefail
export LC_ALL=C

here=$(cd "$(dirname "$0")" && pwd)
init=${1:--}
out=${2:-$here/../build/guest}
# Load order: each module after those it depends on. ext4 and PVH are built into the kernel.
modules=(virtio_ring virtio virtio_mmio virtio_blk failover net_failover virtio_net virtio_console
         fuse overlay)

die() { echo "guest.sh: $*" >&2; exit 1; }
for tool in dpkg-deb lz4 cpio; do
  command -v "$tool" >/dev/null || die "$tool is missing; install it: apt-get install dpkg lz4 cpio"
done
[ "$init" = - ] || [ -x "$init" ] || die "$init is not an executable file; build drupe-init first"
mkdir -p "$out"
out=$(cd "$out" && pwd)
work=$(mktemp -d "$out/.work.XXXXXX")
trap 'rm -rf "$work"' EXIT

# The newest cloud kernel the package lists know, as "package version".
kernel_package() {
  local name version
  name=$(apt-cache depends linux-image-cloud-amd64 2>/dev/null |
         sed -n 's/.*Depends: \(linux-image-[0-9][^ ]*-cloud-amd64\).*/\1/p' | head -n 1)
  [ -n "$name" ] || die "apt knows no linux-image-cloud-amd64; run: apt-get update"
  version=$(apt-cache show "$name" | sed -n 's/^Version: //p' | head -n 1)
  echo "$name $version"
}

fetch_kernel() {  # the package file's path
  if [ -n "${DRUPE_KERNEL_DEB:-}" ]; then realpath "$DRUPE_KERNEL_DEB"; return; fi
  # apt would download as a user of its own, who may not be able to write here.
  (cd "$work" && apt-get -o APT::Sandbox::User=root download -q "${1%% *}" >&2) || die "apt-get download ${1%% *} failed"
  echo "$work"/linux-image-*.deb
}

extract_vmlinux() {  # vmlinuz vmlinux
  local offset
  # The payload is an LZ4 legacy stream; its magic may also occur by chance, so each hit is tried.
  for offset in $(grep -abo -P '\x02\x21\x4c\x18' "$1" | cut -d: -f1); do
    # lz4 complains about what follows the stream in the file; what counts is that an ELF file came out.
    tail -c +$((offset + 1)) "$1" | lz4 -dcq > "$2" 2>/dev/null || true
    [ "$(head -c 4 "$2" | od -An -tx1 | tr -d ' \n')" = 7f454c46 ] && return
  done
  die "no LZ4-compressed ELF kernel found in $1"
}

make_kernel() {  # deb
  local name found
  mkdir "$work/root" "$work/modules"
  dpkg-deb -x "$1" "$work/root"
  extract_vmlinux "$(echo "$work"/root/boot/vmlinuz-*)" "$work/vmlinux"
  for name in "${modules[@]}"; do
    # Files are named with - or _, module names always with _.
    found=$(find "$work/root" -name "${name//_/?}.ko" -o -name "${name//_/?}.ko.xz" | head -n 1)
    [ -n "$found" ] || die "the kernel package has no module $name"
    case $found in
      *.xz) xz -dc "$found" > "$work/modules/$name.ko" ;;
      *) cp "$found" "$work/modules/$name.ko" ;;
    esac
    echo "$name" >> "$work/modules/order"
  done
  rm -rf "$out/modules"
  mv "$work/vmlinux" "$out/vmlinux"
  mv "$work/modules" "$out/modules"
}

make_initramfs() {
  local root=$work/initramfs
  mkdir -p "$root/dev" "$root/proc" "$root/sys" "$root/mods"
  install -m 755 "$init" "$root/init"
  install -m 644 "$out"/modules/* "$root/mods/"
  find "$root" -exec touch -h -d @0 {} +
  chmod 755 "$root" "$root"/*/
  (cd "$root" && find . | sort | cpio -o -H newc --quiet --reproducible -R 0:0) > "$work/initramfs.cpio"
  mv "$work/initramfs.cpio" "$out/initramfs.cpio"
}

# Asking apt takes seconds; its answer holds as long as its lists are the same.
lists=$(stat -c %Y /var/lib/apt/lists /var/lib/dpkg/status 2>/dev/null | tr '\n' ' ')
if [ -n "${DRUPE_KERNEL_DEB:-}" ]; then
  package="file $(sha256sum "$DRUPE_KERNEL_DEB" | cut -c1-16)"
elif [ "$(head -n 1 "$out/.apt.stamp" 2>/dev/null)" = "$lists" ]; then
  package=$(tail -n +2 "$out/.apt.stamp")
else
  package=$(kernel_package)
  printf '%s\n%s\n' "$lists" "$package" > "$out/.apt.stamp"
fi
kernel_stamp="$package ${modules[*]}"
if [ "$(cat "$out/.kernel.stamp" 2>/dev/null)" != "$kernel_stamp" ] || [ ! -s "$out/vmlinux" ]; then
  echo "guest.sh: fetching and unpacking $package" >&2
  rm -f "$out/.kernel.stamp" "$out/.init.stamp"
  deb=$(fetch_kernel "$package")
  make_kernel "$deb"
  echo "$package" > "$out/kernel.version"
  echo "$kernel_stamp" > "$out/.kernel.stamp"
fi
[ "$init" != - ] || exit 0
init_stamp="$(sha256sum < "$init") $kernel_stamp"
if [ "$(cat "$out/.init.stamp" 2>/dev/null)" != "$init_stamp" ] || [ ! -s "$out/initramfs.cpio" ]; then
  rm -f "$out/.init.stamp"
  make_initramfs
  echo "$init_stamp" > "$out/.init.stamp"
  echo "guest.sh: made $out/initramfs.cpio ($(stat -c %s "$out/initramfs.cpio") bytes)" >&2
fi
