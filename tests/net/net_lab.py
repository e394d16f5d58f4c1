"""A small internet: three network namespaces in a user namespace of this process.

world   servers at documentation addresses (open by policy), and some at addresses that must stay closed
host    drupe-net runs here; one link to world, default route
guest   Linux's own network stack behind a tap device, whose frames drupe-net gets as from a virtual machine

enter() changes the process for good, so tests of this folder run in a pytest of their own."""
import contextlib
import ctypes
import fcntl
import os
import select
import socket
import struct
import subprocess
import threading

LIBC = ctypes.CDLL(None, use_errno=True)
CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 2, 0x1000
MAC = "02:00:00:00:00:05"
GUEST, GATEWAY = "10.118.0.2", "10.118.0.1"
GUEST6, GATEWAY6 = "fd5d:1::2", "fd5d:1::1"
HOST, RESOLVER = "198.51.100.2", "198.51.100.1"
SERVERS = [f"203.0.113.{n}" for n in range(10, 20)]
SERVER6 = "2001:db8:2::10"
CLOSED = ["10.77.0.1", "169.254.169.254", "100.64.0.1"]


def _check(result, what):
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")


def _ip(*words, fds=()):
    subprocess.run(["ip", *words], check=True, pass_fds=fds, capture_output=True, env={"PATH": "/usr/sbin:/sbin:/usr/bin:/bin"})


def _namespace():
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)


class Lab:
    def __init__(self, user_namespace=True):
        """Without a user namespace only for root; programs that leave the root account need the other ids."""
        if user_namespace:
            self._enter_user_namespace()
        _check(LIBC.unshare(CLONE_NEWNET), "no network namespace")
        self.spaces = {"world": _namespace()}
        for name in ("host", "guest"):
            _check(LIBC.unshare(CLONE_NEWNET), "no second network namespace")
            self.spaces[name] = _namespace()
        self._link_world_and_host()
        self._make_guest()
        LIBC.setns(self.spaces["world"], CLONE_NEWNET)

    @staticmethod
    def _enter_user_namespace():
        uid, gid = os.getuid(), os.getgid()
        _check(LIBC.unshare(CLONE_NEWUSER), "no user namespace")
        for name, line in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(line)

    @contextlib.contextmanager
    def inside(self, name):
        """The calling thread is in that namespace meanwhile; sockets stay where they were made."""
        before = _namespace()
        _check(LIBC.setns(self.spaces[name], CLONE_NEWNET), "setns")
        try:
            yield
        finally:
            _check(LIBC.setns(before, CLONE_NEWNET), "setns")
            os.close(before)

    def _link_world_and_host(self):
        host = self.spaces["host"]
        with self.inside("world"):
            _ip("link", "set", "lo", "up")
            _ip("link", "add", "w0", "type", "veth", "peer", "name", "h0")
            _ip("link", "set", "h0", "netns", f"/proc/self/fd/{host}", fds=(host,))
            _ip("addr", "add", f"{RESOLVER}/24", "dev", "w0")
            for address in SERVERS + CLOSED:
                _ip("addr", "add", f"{address}/32", "dev", "w0")
            _ip("link", "set", "w0", "up")
        with self.inside("host"):
            _ip("link", "set", "lo", "up")
            _ip("addr", "add", f"{HOST}/24", "dev", "h0")
            _ip("link", "set", "h0", "up")
            _ip("route", "add", "default", "via", RESOLVER)
        self.ipv6 = True
        try:
            with self.inside("world"):
                _ip("addr", "add", "2001:db8:1::1/64", "dev", "w0", "nodad")
                _ip("addr", "add", f"{SERVER6}/128", "dev", "w0", "nodad")
            with self.inside("host"):
                _ip("addr", "add", "2001:db8:1::2/64", "dev", "h0", "nodad")
                _ip("route", "add", "default", "via", "2001:db8:1::1")
        except subprocess.CalledProcessError:
            self.ipv6 = False

    def _make_guest(self):
        with self.inside("guest"):
            self.tap = os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
            fcntl.ioctl(self.tap, TUNSETIFF, struct.pack("16sH", b"g0", IFF_TAP | IFF_NO_PI))
            _ip("link", "set", "lo", "up")
            _ip("link", "set", "g0", "address", MAC)
            _ip("addr", "add", f"{GUEST}/24", "dev", "g0")
            _ip("link", "set", "g0", "up")
            _ip("route", "add", "default", "via", GATEWAY)
            with contextlib.suppress(subprocess.CalledProcessError):
                _ip("addr", "add", f"{GUEST6}/64", "dev", "g0", "nodad")
                _ip("route", "add", "default", "via", GATEWAY6)

    def socket(self, where, family=socket.AF_INET, kind=socket.SOCK_STREAM):
        with self.inside(where):
            made = socket.socket(family, kind)
        made.settimeout(20)
        return made

    def connect(self, where, address, port):
        """A connected stream socket, or the error of connect()."""
        made = self.socket(where, socket.AF_INET6 if ":" in address else socket.AF_INET)
        try:
            made.connect((address, port))
        except OSError:
            made.close()
            raise
        return made

    def listen(self, where, address, port, backlog=128):
        made = self.socket(where, socket.AF_INET6 if ":" in address else socket.AF_INET)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((address, port))
        made.listen(backlog)
        return made


class Bridge:
    """Carries frames between the guest's device and drupe-net until it is closed."""

    def __init__(self, tap, link):
        self.tap, self.link = tap, link
        self.link.setblocking(False)
        self.wake_read, self.wake_write = os.pipe()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self):
        while True:
            ready, _, _ = select.select([self.tap, self.link, self.wake_read], [], [])
            if self.wake_read in ready:
                return
            try:
                if self.tap in ready:
                    self._from_tap()
                if self.link in ready:
                    self._to_tap()
            except (ConnectionError, OSError):
                # drupe-net is gone; frames of the guest lead nowhere.
                select.select([self.wake_read], [], [])
                return

    def _from_tap(self):
        for _ in range(64):
            try:
                frame = os.read(self.tap, 2048)
            except BlockingIOError:
                return
            while True:
                try:
                    self.link.send(frame)
                    break
                except BlockingIOError:
                    select.select([], [self.link], [], 1)

    def _to_tap(self):
        for _ in range(64):
            try:
                frame = self.link.recv(2048)
            except BlockingIOError:
                return
            if not frame:
                raise ConnectionError
            os.write(self.tap, frame)

    def close(self):
        os.write(self.wake_write, b"x")
        self.thread.join()
        os.close(self.wake_read)
        os.close(self.wake_write)
