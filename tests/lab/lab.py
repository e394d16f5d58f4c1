#!/usr/bin/env python3
"""Runs a command in a machine that has a true /dev/kvm, on any host.

QEMU's software emulation implements AMD's SVM, so a guest started with it (level 1) has a working /dev/kvm with nested
paging, and machines started there (level 2) see real hardware-virtualization semantics. Level 1 sees this host's root
read-only through virtiofs, with a tmpfs over it: any program of the host runs there, and what it writes vanishes,
except below the one shared directory.

usage: lab.py [--memory MIB] [--cpus N] [--share DIR] [--limit SECONDS] -- COMMAND [ARG...]
Output goes to stdout and the command's exit status is returned; 124 after the time limit, 125 when the lab cannot
start (the reason is on stderr). Needs root, qemu-system-x86_64 with its virtiofsd, busybox-static, cpio, dpkg, apt.
"""
import argparse
import ctypes
import mmap
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import time

LAB_FAILED = 125
VIRTIOFSD = "/usr/lib/qemu/virtiofsd"
# Load order; a module the kernel has built in or lacks is skipped, and its absence shows when its device is missing.
MODULES = ("virtio_ring virtio virtio_mmio virtio_console fuse virtiofs overlay irqbypass kvm kvm-amd tun loop").split()

INIT = r"""#!/bin/busybox sh
export PATH=/bin
busybox mkdir -p /proc /sys /dev /lower /upper /root
busybox mount -t proc proc /proc
busybox mount -t sysfs sysfs /sys
busybox mount -t devtmpfs dev /dev
for module in $(busybox cat /modules/order); do busybox insmod /modules/$module.ko 2>/dev/null; done
for port in /sys/class/virtio-ports/*; do
  case $(busybox cat $port/name) in
    lab.output) output=/dev/${port##*/} ;;
    lab.status) status=/dev/${port##*/} ;;
  esac
done
busybox mount -t virtiofs -o ro host /lower || { echo "mounting the host failed" > $status; busybox poweroff -f; }
busybox mount -t tmpfs -o size=80% tmpfs /upper
busybox mkdir -p /upper/files /upper/work
busybox mount -t overlay -o lowerdir=/lower,upperdir=/upper/files,workdir=/upper/work overlay /root
for word in $(busybox cat /proc/cmdline); do
  case $word in
    lab.run=*) command=${word#*=} ;;
    lab.share=*) share=${word#*=} ;;
  esac
done
[ -z "$share" ] || { busybox mkdir -p /root$share; busybox mount -t virtiofs share /root$share; }
busybox mount -t devtmpfs dev /root/dev
busybox mkdir -p /root/dev/shm /root/dev/pts
busybox mount -t tmpfs tmpfs /root/dev/shm
busybox mount -t devpts devpts /root/dev/pts
busybox mount -t proc proc /root/proc
busybox mount -t sysfs sysfs /root/sys
busybox mount -t tmpfs tmpfs /root/run
busybox ip link set lo up
busybox cp /bin/busybox /root/run/busybox
busybox cp /lower$command /root/run/command
busybox cat > /root/run/init <<END
#!/run/busybox sh
/bin/bash /run/command > $output 2>&1 < /dev/null
echo "exit \$?" > $status
/run/busybox sync
/run/busybox poweroff -f
END
busybox chmod 755 /root/run/init
busybox umount /proc
exec busybox switch_root /root /run/init
"""


class LabError(Exception):
    """The lab itself cannot start; the text says why."""


def need(condition, reason):
    if not condition:
        raise LabError(reason)


def tsc_khz():
    """The host's time stamp frequency, which software emulation passes through to the guest."""
    code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(bytes.fromhex("0f31" "48c1e220" "4809d0" "c3"))  # rdtsc; shl rdx,32; or rax,rdx; ret
    rdtsc = ctypes.CFUNCTYPE(ctypes.c_uint64)(ctypes.addressof(ctypes.c_char.from_buffer(code)))
    samples = []
    for _ in range(5):
        ticks, start = rdtsc(), time.monotonic_ns()
        time.sleep(0.02)
        samples.append((rdtsc() - ticks) * 1e6 / (time.monotonic_ns() - start))
    return round(sorted(samples)[2] / 1000) * 1000


def fetch_kernel(cache):
    """Debian's cloud kernel with all its modules; unpacked once into the cache."""
    unpacked = cache / "kernel"
    if not unpacked.exists():
        depends = subprocess.run(
            ["apt-cache", "depends", "linux-image-cloud-amd64"], capture_output=True, text=True, check=False
        ).stdout
        names = [line.split()[-1] for line in depends.splitlines() if "Depends: linux-image-" in line]
        need(names, "apt knows no linux-image-cloud-amd64; run: apt-get update")
        fresh = pathlib.Path(tempfile.mkdtemp(dir=cache))
        done = subprocess.run(["apt-get", "download", "-q", names[0]], cwd=fresh, capture_output=True, text=True, check=False)
        need(done.returncode == 0, f"fetching {names[0]} failed: {done.stderr.strip()}")
        subprocess.run(["dpkg-deb", "-x", next(fresh.glob("*.deb")), fresh / "root"], check=True)
        (fresh / "root").rename(unpacked)
        shutil.rmtree(fresh)
    return unpacked


def make_initramfs(cache, kernel):
    made = cache / "initramfs.cpio"
    if made.exists() and made.stat().st_mtime > pathlib.Path(__file__).stat().st_mtime:
        return made
    tree = pathlib.Path(tempfile.mkdtemp(dir=cache))
    for folder in ("bin", "modules"):
        (tree / folder).mkdir()
    shutil.copy(shutil.which("busybox"), tree / "bin/busybox")
    order = []
    for name in MODULES:
        found = [p for p in kernel.rglob("*.ko") if p.stem.replace("-", "_") == name.replace("-", "_")]
        if found:
            shutil.copy(found[0], tree / "modules" / f"{name}.ko")
            order.append(name)
    (tree / "modules/order").write_text("\n".join(order))
    (tree / "init").write_text(INIT)
    (tree / "init").chmod(0o755)
    names = "\n".join(str(p.relative_to(tree)) for p in tree.rglob("*")).encode()
    archive = subprocess.run(["cpio", "-o", "-H", "newc", "--quiet"], cwd=tree, input=names, capture_output=True, check=True)
    temporary = cache / f"initramfs.{os.getpid()}"
    temporary.write_bytes(archive.stdout)
    temporary.rename(made)
    shutil.rmtree(tree)
    return made


def share_directory(run, tag, source, cache_mode, processes):
    """Starts a virtiofsd for `source`; returns the qemu arguments that attach it."""
    socket = run / f"{tag}.sock"
    process = subprocess.Popen(
        [VIRTIOFSD, f"--socket-path={socket}", "-o", f"source={source}", "-o", f"cache={cache_mode}", "-o", "sandbox=chroot"],
        stdout=subprocess.DEVNULL, stderr=(run / f"{tag}.log").open("wb"),
    )
    processes.append(process)
    while not socket.exists():
        need(process.poll() is None, f"virtiofsd for {source} ended: {(run / f'{tag}.log').read_text()[-300:]}")
        time.sleep(0.01)  # virtiofsd tells readiness in no other way than by the socket's existence
    return ["-chardev", f"socket,id={tag},path={socket}", "-device", f"vhost-user-fs-device,chardev={tag},tag={tag}"]


def run_command(arguments, cache, run, processes):
    kernel = fetch_kernel(cache)
    initramfs = make_initramfs(cache, kernel)
    script = run / "command"
    script.write_text(f"export DRUPE_LAB=1 HOME=/root PATH={shlex.quote(os.environ['PATH'])}\ncd /\nexec {shlex.join(arguments.command)}\n")
    devices = share_directory(run, "host", "/", "always", processes)
    words = f"lab.run={script}"
    if arguments.share:
        devices += share_directory(run, "share", arguments.share, "auto", processes)
        words += f" lab.share={arguments.share}"
    status = run / "status"
    qemu = subprocess.Popen(
        ["qemu-system-x86_64", "-M", "microvm,memory-backend=ram", "-global", "virtio-mmio.force-legacy=false",
         "-accel", "tcg", "-cpu", "max,+svm", "-m", str(arguments.memory), "-smp", str(arguments.cpus),
         "-object", f"memory-backend-memfd,id=ram,size={arguments.memory}M,share=on",
         "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-serial", f"file:{run}/console",
         "-device", "virtio-serial-device,max_ports=4",
         # Not stdio: at the end of its input it counts as closed, and then the guest's writes block.
         "-chardev", "file,id=output,path=/dev/stdout,append=on", "-device", "virtserialport,chardev=output,name=lab.output",
         "-chardev", f"file,id=status,path={status}", "-device", "virtserialport,chardev=status,name=lab.status",
         *devices, "-kernel", next((kernel / "boot").glob("vmlinuz-*")), "-initrd", initramfs,
         "-append", "console=ttyS0 quiet panic=-1 reboot=t mitigations=off "
                    f"tsc_early_khz={tsc_khz()} tsc=reliable lpj=4000000 no_timer_check {words}"],
        stdin=subprocess.DEVNULL,
    )
    processes.append(qemu)
    expired = threading.Timer(arguments.limit, qemu.kill)
    expired.start()
    qemu.wait()
    in_time = expired.is_alive()
    expired.cancel()
    said = status.read_text().split() if status.exists() else []
    if said[:1] == ["exit"]:
        return int(said[1])
    if not in_time:
        return 124
    raise LabError(f"level 1 ended early: {' '.join(said)}\n{(run / 'console').read_text(errors='replace')[-800:]}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--memory", type=int, default=3072)
    parser.add_argument("--cpus", type=int, default=1)
    parser.add_argument("--share", type=os.path.realpath)
    parser.add_argument("--limit", type=float, default=900)
    parser.add_argument("command", nargs="+")
    arguments = parser.parse_args()
    cache = pathlib.Path(os.environ.get("DRUPE_LAB_CACHE", pathlib.Path(__file__).resolve().parents[2] / "build/lab"))
    cache.mkdir(parents=True, exist_ok=True)
    run = pathlib.Path(tempfile.mkdtemp(prefix="run.", dir=cache))
    processes = []
    try:
        need(os.geteuid() == 0, "root is needed to share the host's root directory")
        for program in ("qemu-system-x86_64", "busybox", "cpio", "dpkg-deb", VIRTIOFSD):
            need(shutil.which(program), f"{program} is missing; install: qemu-system-x86 busybox-static cpio dpkg")
        return run_command(arguments, cache, run, processes)
    except LabError as error:
        print(f"lab.py: {error}", file=sys.stderr)
        return LAB_FAILED
    finally:
        for process in reversed(processes):
            if process.poll() is None:
                process.kill()
            process.wait()
        shutil.rmtree(run, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
