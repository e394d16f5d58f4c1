"""Boots one qemu with drupe-init and speaks to it as a shim would."""
import functools
import os
import queue
import shutil
import socket
import struct
import subprocess
import tempfile
import threading
import time

import protocol as p

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("DRUPE_BUILD", os.path.join(ROOT, "build"))
GUEST = os.environ.get("DRUPE_GUEST_DIR", os.path.join(BUILD, "guest"))
INIT = os.environ.get("DRUPE_INIT", os.path.join(BUILD, "bin", "drupe-init"))
DISK = os.environ.get("DRUPE_TEST_DISK", "")
QEMU = "qemu-system-x86_64"
DEADLINE = float(os.environ.get("DRUPE_TEST_DEADLINE", "60"))


def write_cpio(path, init, modules):
    """newc; see Documentation/driver-api/early-userspace/buffer-format.rst in the kernel."""
    def entry(out, name, mode, data=b"", rdev=(0, 0)):
        head = "070701" + "".join(f"{v:08X}" for v in (entry.ino, mode, 0, 0, 1, 0, len(data), 0, 0, *rdev, len(name) + 1, 0))
        entry.ino += 1
        raw = head.encode() + name.encode() + b"\0"
        out.write(raw + b"\0" * (-len(raw) % 4) + data + b"\0" * (-len(data) % 4))
    entry.ino = 1
    with open(path, "wb") as out:
        entry(out, "dev", 0o040755)
        entry(out, "dev/console", 0o020600, rdev=(5, 1))
        entry(out, "init", 0o100755, open(init, "rb").read())
        entry(out, "mods", 0o040755)
        for name in sorted(os.listdir(modules)):
            entry(out, "mods/" + name, 0o100644, open(os.path.join(modules, name), "rb").read())
        entry(out, "TRAILER!!!", 0)


def write_overlay(path, backing):
    """An empty qcow2 (version 3, 64 KiB clusters) over a raw file; docs/interop/qcow2.txt of qemu."""
    cluster, size, name = 1 << 16, os.stat(backing).st_size, backing.encode()
    extension = struct.pack(">II", 0xE2792ACA, 3) + b"raw" + b"\0" * 5 + struct.pack(">II", 0, 0)
    header = struct.pack(">IIQIIQIIQQIIQQQQII", 0x514649FB, 3, 104 + len(extension), len(name), 16, size, 0,
                         -(-size // (cluster * cluster // 8)), 3 * cluster, cluster, 1, 0, 0, 0, 0, 0, 4, 104)
    with open(path, "wb") as out:
        out.write(header + extension + name)
        out.seek(cluster)
        out.write(struct.pack(">Q", 2 * cluster))
        out.seek(2 * cluster)
        out.write(struct.pack(">4H", 1, 1, 1, 1))
        out.truncate(4 * cluster)


def make_disk(directory):
    """A disk with busybox and little else, some of it hostile: /dev and /proc are symbolic links, /tmp is missing."""
    tree = os.path.join(directory, "tree")
    for name in ("bin", "etc", "root", "sys", "real-dev", "home/app"):
        os.makedirs(os.path.join(tree, name))
    shutil.copy(shutil.which("busybox"), os.path.join(tree, "bin/busybox"))
    listed = subprocess.run(["busybox", "--list"], stdout=subprocess.PIPE, check=True).stdout.decode().split()
    for name in listed:
        if name != "busybox":
            os.symlink("busybox", os.path.join(tree, "bin", name))
    os.symlink("real-dev", os.path.join(tree, "dev"))
    os.symlink("/", os.path.join(tree, "proc"))
    os.symlink("/home/app/hosts-elsewhere", os.path.join(tree, "etc/hosts"))
    with open(os.path.join(tree, "etc/passwd"), "w") as out:
        out.write("root:x:0:0:root:/root:/bin/sh\napp:x:1000:1001::/home/app:/bin/sh\n")
    with open(os.path.join(tree, "etc/group"), "w") as out:
        out.write("root:x:0:\napp:x:1001:\nextra:x:27:app\ntty:x:5:\n")
    disk = os.path.join(directory, "disk.ext4")
    with open(disk, "wb") as out:
        out.truncate(1 << 30)
    subprocess.run(["mke2fs", "-q", "-t", "ext4", "-d", tree, "-E", "lazy_itable_init=1,root_owner=0:0", "-J", "size=8", disk],
                   check=True, env={**os.environ, "PATH": os.environ.get("PATH", "") + ":/sbin:/usr/sbin"})
    return disk


@functools.cache
def tsc_khz():
    """Counts the machine's time stamp counter for a tenth of a second, with the little C there is room for."""
    source = ("#include <stdio.h>\n#include <time.h>\n#include <x86intrin.h>\nint main(){struct timespec a,b;"
              "clock_gettime(CLOCK_MONOTONIC,&a);unsigned long long t=__rdtsc();double s;do{clock_gettime(CLOCK_MONOTONIC,&b);"
              "s=b.tv_sec-a.tv_sec+(b.tv_nsec-a.tv_nsec)/1e9;}while(s<0.1);printf(\"%.0f\",(__rdtsc()-t)/s/1000);}")
    with tempfile.TemporaryDirectory() as where:
        program = os.path.join(where, "tsc")
        subprocess.run(["cc", "-O1", "-x", "c", "-", "-o", program], input=source.encode(), check=True)
        return int(subprocess.run([program], stdout=subprocess.PIPE, check=True).stdout)


class Port:
    """One end of a virtio port: a reader thread, frames in a callback."""

    def __init__(self, path, on_frame):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(path)
        self.on_frame = on_frame
        self.pending = b""
        self.want = None
        self.marked = threading.Event()
        self.lock = threading.Lock()
        self.paused = threading.Event()
        self.paused.set()
        self.closed = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def send(self, raw):
        with self.lock:
            self.sock.sendall(raw)

    def expect(self, epoch):
        self.want = p.marker(epoch)
        self.marked.clear()

    def run(self):
        buffer = bytearray()
        while True:
            self.paused.wait()
            try:
                chunk = self.sock.recv(1 << 18)
            except OSError:
                chunk = b""
            if not chunk:
                self.closed.set()
                return
            buffer += chunk
            if self.want is not None:
                at = buffer.find(self.want)
                if at < 0:
                    continue
                del buffer[:at + 16]
                self.want = None
                self.marked.set()
            at = 0
            while len(buffer) - at >= 16:
                size, kind, channel, _, ident, _ = struct.unpack_from("<IBBHII", buffer, at)
                if len(buffer) - at < 16 + size:
                    break
                self.on_frame(kind, channel, ident, bytes(buffer[at + 16:at + 16 + size]))
                at += 16 + size
            del buffer[:at]


class Stream:
    def __init__(self, vm, ident):
        self.vm, self.ident = vm, ident
        self.out = {p.STDOUT: [], p.STDERR: []}
        self.sizes = {p.STDOUT: 0, p.STDERR: 0}
        self.unacked = {p.STDOUT: 0, p.STDERR: 0}
        self.eofs = set()
        self.auto_credit = True
        self.keep_data = True
        self.credit = p.INITIAL_CREDIT
        self.changed = threading.Condition()
        self.pid = None
        self.facts = None
        self.reset = None

    def on_frame(self, kind, channel, payload):
        with self.changed:
            if kind == p.OPENED:
                self.pid = p.Reader(payload).number("i")
            elif kind == p.DATA:
                assert channel not in self.eofs and self.pid is not None and self.facts is None
                self.sizes[channel] += len(payload)
                if self.keep_data:
                    self.out[channel].append(payload)
                self.unacked[channel] += len(payload)
                if self.auto_credit and self.unacked[channel] >= p.INITIAL_CREDIT // 2:
                    self.grant(channel)
            elif kind == p.EOF:
                self.eofs.add(channel)
            elif kind == p.CREDIT:
                assert channel == p.STDIN
                self.credit += p.Reader(payload).number("I")
            elif kind == p.EXIT:
                self.facts = p.Facts(payload)
            elif kind == p.RESET:
                self.reset = payload.decode()
            self.changed.notify_all()

    def grant(self, channel, size=None):
        size = self.unacked[channel] if size is None else size
        self.unacked[channel] -= size
        self.vm.send_bulk(p.CREDIT, channel, self.ident, struct.pack("<I", size))

    def wait(self, condition, timeout=DEADLINE):
        with self.changed:
            if not self.changed.wait_for(lambda: condition() or self.reset is not None, timeout):
                raise TimeoutError(f"stream {self.ident}: {self.facts} {self.sizes}\n{self.vm.console_tail()}")

    def opened(self, timeout=DEADLINE):
        self.wait(lambda: self.pid is not None or self.facts is not None, timeout)
        return self

    def write(self, raw, eof=False):
        raw = memoryview(raw)
        while raw:
            self.wait(lambda: self.credit > 0 or self.facts is not None)
            if self.facts is not None or self.reset is not None:
                return
            size = min(len(raw), self.credit, p.MAX_PAYLOAD)
            with self.changed:
                self.credit -= size
            self.vm.send_bulk(p.DATA, p.STDIN, self.ident, bytes(raw[:size]))
            raw = raw[size:]
        if eof:
            self.vm.send_bulk(p.EOF, p.STDIN, self.ident)

    def signal(self, number, tree=False):
        self.vm.send_bulk(p.SIGNAL, 0, self.ident, struct.pack("<iB", number, tree))

    def resize(self, rows, columns):
        self.vm.send_bulk(p.RESIZE, 0, self.ident, struct.pack("<HH", rows, columns))

    def send_reset(self):
        self.vm.send_bulk(p.RESET, 0, self.ident, b"test")

    def finish(self, timeout=DEADLINE):
        self.wait(lambda: self.facts is not None, timeout)
        if self.reset is not None:
            raise AssertionError("reset: " + self.reset)
        return self.facts

    @property
    def stdout(self):
        return b"".join(self.out[p.STDOUT])

    @property
    def stderr(self):
        return b"".join(self.out[p.STDERR])


class Vm:
    def __init__(self, memory=512, cpus=1, disk=None, extra=()):
        self.dir = tempfile.mkdtemp(prefix="drupe-agent-test-")
        self.process = None
        try:
            self.start(memory, cpus, disk or DISK, extra)
        except BaseException:
            self.close()
            raise

    def path(self, name):
        return os.path.join(self.dir, name)

    def start(self, memory, cpus, disk, extra):
        write_cpio(self.path("initramfs"), INIT, os.path.join(GUEST, "modules"))
        write_overlay(self.path("disk"), os.path.abspath(disk))
        khz = tsc_khz()
        append = f"console=ttyS0 panic=-1 reboot=t quiet tsc_early_khz={khz} tsc=reliable lpj={khz * 4} no_timer_check"
        command = [
            QEMU, "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none",
            "-M", "microvm,acpi=on,x-option-roms=off,pit=off,pic=off,rtc=off,isa-serial=on", "-accel", "tcg,tb-size=64",
            "-cpu", os.environ.get("DRUPE_TEST_CPU", "max,erms=off,fsrm=off"), "-m", str(memory), "-smp", str(cpus), "-global", "virtio-mmio.force-legacy=false",
            "-kernel", os.path.join(GUEST, "vmlinux"), "-initrd", self.path("initramfs"), "-append", append,
            "-serial", "file:" + self.path("console"), "-qmp", f"unix:{self.path('qmp')},server=on,wait=off",
            "-chardev", f"socket,id=c,path={self.path('control')},server=on,wait=off",
            "-chardev", f"socket,id=b,path={self.path('bulk')},server=on,wait=off",
            "-device", "virtio-serial-device", "-device", "virtserialport,chardev=c,name=drupe.control",
            "-device", "virtserialport,chardev=b,name=drupe.bulk",
            "-blockdev", f"driver=qcow2,node-name=root,file.driver=file,file.filename={self.path('disk')},cache.no-flush=on",
            "-device", "virtio-blk-device,drive=root", *extra]
        self.begun = time.monotonic()
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=open(self.path("qemu.log"), "wb"),
                                        stderr=subprocess.STDOUT)
        for name in ("control", "bulk"):
            while not os.path.exists(self.path(name)):
                assert self.process.poll() is None, open(self.path("qemu.log")).read()
                time.sleep(0.005)
        self.replies, self.streams, self.events, self.barriers = {}, {}, queue.Queue(), queue.Queue()
        self.next_id = 1
        self.control = Port(self.path("control"), self.on_control)
        self.bulk = Port(self.path("bulk"), self.on_bulk)
        self.epoch = 0
        self.mark(1)
        self.hello_time = None
        hello = p.Reader(self.request(p.HELLO))
        self.hello = (hello.number("I"), *(hello.text().decode() for _ in range(3)))
        self.hello_time = time.monotonic() - self.begun
        self.set_up()

    def set_up(self, **options):
        values = dict(realtime_ns=time.time_ns(), entropy=os.urandom(64), hostname="box", machine_id="0123456789abcdef" * 2)
        values.update(options)
        return self.request(p.SET_UP, p.set_up(**values))

    def mark(self, epoch):
        """A new or the same epoch on both ports."""
        if epoch != self.epoch:
            self.streams.clear()
        self.epoch = epoch
        for port in (self.control, self.bulk):
            port.expect(epoch)
            port.send(p.marker(epoch))
        for port in (self.control, self.bulk):
            if not port.marked.wait(DEADLINE):
                raise TimeoutError("no marker\n" + self.console_tail())

    def on_control(self, kind, channel, ident, payload):
        if kind == p.EVENT:
            self.events.put((struct.unpack_from("<H", payload)[0], payload[2:].decode()))
        else:
            assert kind == p.REPLY
            self.replies[ident].put(payload)

    def on_bulk(self, kind, channel, ident, payload):
        if kind == p.BARRIER:
            self.barriers.put(ident)
        elif ident in self.streams:
            self.streams[ident].on_frame(kind, channel, payload)

    def send_bulk(self, kind, channel, ident, payload=b""):
        self.bulk.send(p.frame(kind, channel, ident, payload))

    def post(self, kind, body=b""):
        ident, self.next_id = self.next_id, self.next_id + 1
        self.replies[ident] = queue.Queue()
        self.control.send(p.frame(p.REQUEST, 0, ident, struct.pack("<H", kind) + body))
        return ident

    def answer(self, ident, timeout=DEADLINE):
        try:
            payload = self.replies[ident].get(timeout=timeout)
        except queue.Empty:
            raise TimeoutError("no reply\n" + self.console_tail()) from None
        reader = p.Reader(payload)
        if reader.number("B"):
            raise p.read_error(reader)
        return reader.rest()

    def request(self, kind, body=b"", timeout=DEADLINE):
        return self.answer(self.post(kind, body), timeout)

    def open(self, encoded):
        ident, self.next_id = self.next_id, self.next_id + 1
        stream = self.streams[ident] = Stream(self, ident)
        first = p.MAX_PAYLOAD - 4
        raw = p.frame(p.OPEN, 0, ident, struct.pack("<I", len(encoded)) + encoded[:first])
        for at in range(first, len(encoded), p.MAX_PAYLOAD):
            raw += p.frame(p.DATA, p.STDIN, ident, encoded[at:at + p.MAX_PAYLOAD])
        self.bulk.send(raw)
        return stream

    def exec(self, *argv, id=None, input=None, **options):
        stream = self.open(p.exec_open(p.EXEC, id or f"e{self.next_id}", argv, stdin=input is not None or options.pop("stdin", False), **options))
        if input is not None:
            stream.write(input, eof=True)
        return stream

    def attach(self, exec_id):
        return self.open(p.exec_open(p.ATTACH, exec_id))

    def run(self, *argv, timeout=DEADLINE, **options):
        stream = self.exec(*argv, **options)
        stream.finish(timeout)
        return stream

    def sh(self, script, **options):
        return self.run("sh", "-c", script, **options)

    def task(self, kind, path="", input=None, timeout=DEADLINE, **options):
        """Runs a file operation to its end; raises what it reports."""
        stream = self.open(p.file_open(kind, path, **options))
        if input is not None:
            stream.write(input, eof=True)
        facts = stream.finish(timeout)
        if facts.error is not None:
            raise facts.error
        return stream

    def freeze(self, deadline_ms=5000, barrier=7):
        ident = self.post(p.FREEZE, struct.pack("<II", barrier, deadline_ms))
        self.send_bulk(p.BARRIER, 0, barrier)
        self.answer(ident)
        assert self.barriers.get(timeout=DEADLINE) == barrier

    def thaw(self, epoch=None):
        self.mark(epoch or self.epoch)
        self.request(p.THAW)

    def console_tail(self):
        with open(self.path("console"), "rb") as console:
            return console.read()[-4000:].decode(errors="replace")

    def wait_end(self, timeout=DEADLINE):
        return self.process.wait(timeout)

    def close(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.dir, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
