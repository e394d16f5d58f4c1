"""The shell over an upgraded connection, and SSH keys in guests."""

import re
import select
import shutil
import socket
import struct
import subprocess

import pytest

from druped import Api, eventually

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ9nVd0Qb0Ck1CTv0D6Hk5BzpVQe6m0pU2qj1xkz3Q0Q one@example.com"
OTHER = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ9nVd0Qb0Ck1CTv0D6Hk5BzpVQe6m0pU2qj1xkz3Q1Q two@example.com"


def upgraded(api, path, key=None):
    link = socket.create_connection(("127.0.0.1", api.port), timeout=60)
    link.sendall(f"POST {path} HTTP/1.1\r\nHost: x\r\nX-Api-Key: {key or api.key}\r\nConnection: Upgrade\r\nUpgrade: tcp-tunnel\r\n"
                 "Content-Length: 0\r\n\r\n".encode())
    head = b""
    while b"\r\n\r\n" not in head:
        part = link.recv(1)
        assert part, head
        head += part
    return link, head


class Shell:
    def __init__(self, api, sandbox, key=None):
        self.link, self.head = upgraded(api, f"/v1/sandboxes/{sandbox}/shell", key)
        assert self.head.startswith(b"HTTP/1.1 101 "), self.head
        self.seen = b""

    def frame(self, kind, payload):
        self.link.sendall(struct.pack(">BI", kind, len(payload)) + payload)

    def say(self, text):
        self.frame(0, text.encode())

    def resize(self, rows, columns):
        self.frame(1, struct.pack(">HH", rows, columns))

    def until(self, pattern):
        while not re.search(pattern, self.seen):
            part = self.link.recv(65536)
            assert part, (pattern, self.seen)
            self.seen += part
        return self.seen

    def rest(self):
        while part := self.link.recv(65536):
            self.seen += part
        return self.seen


def test_shell(api, sandbox):
    shell = Shell(api, sandbox)
    shell.resize(33, 77)
    shell.say("stty size; tty; id -u; echo $HOME; case $- in *i*) echo inter''active;; esac\n")
    shell.until(rb"[\r\n]33 77\r\n/dev/\S+\r\n0\r\n/root\r\ninteractive\r\n")
    # A new size reaches the program that runs.
    shell.say("sh -c 'trap \"stty size; echo win\"\"ch\" WINCH; echo rea\"\"dy; while :; do sleep 0.1; done'\n")
    shell.until(rb"[\r\n]ready\r\n")
    shell.resize(11, 22)
    shell.until(rb"11 22\r\nwinch\r\n")
    shell.say("\x03")
    # One byte at a time, frames cut anywhere.
    for byte in struct.pack(">BI", 0, 14) + b"echo o''ne; ex":
        shell.link.sendall(bytes([byte]))
    shell.say("it\n")
    assert re.search(rb"[\r\n]one\r\n", shell.rest())


def test_shell_is_the_end_of_its_commands(api, sandbox):
    shell = Shell(api, sandbox)
    shell.say("sleep 4321 & sleep 4321; echo never\n")
    eventually(lambda: api.exec(sandbox, "pgrep", "-fc", "sleep 4321")["stdout"].strip() not in ("", "0"), what="the command")
    # A reset, not an orderly end.
    shell.link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    shell.link.close()
    eventually(lambda: api.exec(sandbox, "pgrep", "-fx", "sleep 4321")["stdout"] == "", what="the end of the command")


def test_shell_half_close(api, sandbox):
    """What a client still has to read comes, and the shell sees the end of its input."""
    shell = Shell(api, sandbox)
    shell.say("sleep 1; echo la''te\n")
    shell.link.shutdown(socket.SHUT_WR)
    assert re.search(rb"[\r\n]late\r\n", shell.rest())


def test_shell_holds_back_for_a_slow_reader(api, druped, sandbox):
    shell = Shell(api, sandbox)
    before = druped.memory_kib()
    shell.say("head -c 100000000 /dev/zero | tr '\\\\0' x; echo\n")
    select.select([shell.link], [], [], 30)
    api.exec(sandbox, "sleep", "2")
    assert druped.memory_kib() - before < 20_000
    shell.link.close()


@pytest.mark.parametrize("frames", [b"\x02\x00\x00\x00\x00", b"\x01\x00\x00\x00\x05abcde", b"\x00\xff\xff\xff\xff"])
def test_what_is_no_frame_ends_the_shell(api, sandbox, frames):
    shell = Shell(api, sandbox)
    shell.link.sendall(frames)
    shell.rest()


def test_refused_shells(api, druped, sandbox, new_sandbox):
    for key, path, status in [("skp_wrong", sandbox, 401), (None, "sb-00000000000000000000000000", 404), (druped.new_key(), sandbox, 404)]:
        link, head = upgraded(api, f"/v1/sandboxes/{path}/shell", key)
        assert head.startswith(f"HTTP/1.1 {status} ".encode())
        assert b'"status":"fail"' in b"".join(iter(lambda: link.recv(4096), b"")), "and closed"
    paused = new_sandbox()["id"]
    api("POST", f"/v1/sandboxes/{paused}/pause").data
    _, head = upgraded(api, f"/v1/sandboxes/{paused}/shell")
    assert head.startswith(b"HTTP/1.1 409 ")
    api("POST", f"/v1/sandboxes/{sandbox}/shell").fails(400)
    token = api("POST", f"/v1/sandboxes/{sandbox}/access-token").data["token"]
    shell = Shell(api, sandbox, token)
    shell.say("exit\n")
    shell.rest()
    api("DELETE", f"/v1/sandboxes/{sandbox}/access-token")


def keys_in(api, sandbox):
    return api.fetch(sandbox, "/root/.ssh/authorized_keys").body.decode().splitlines()


def test_keys_come_into_the_guest(api, new_sandbox):
    view = new_sandbox(ssh_pubkeys=[KEY])
    sandbox = view["id"]
    assert view["ssh_pubkeys"] == [KEY] and keys_in(api, sandbox) == [KEY]
    assert api.sh(sandbox, "stat -c '%a %u' /root/.ssh /root/.ssh/authorized_keys") == "700 0\n600 0\n"
    # What the guest itself has written stays.
    api.sh(sandbox, "echo '# own' >> /root/.ssh/authorized_keys")
    assert api("POST", f"/v1/sandboxes/{sandbox}/ssh-pubkeys", {"keys": [KEY, OTHER]}).data == {"count": 2}
    assert keys_in(api, sandbox) == [KEY, "# own", OTHER]
    third = OTHER.replace("two@", "three@")
    api("POST", f"/v1/sandboxes/{sandbox}/pause").data
    assert api("POST", f"/v1/sandboxes/{sandbox}/ssh-pubkeys", {"keys": [third]}).data == {"count": 3}
    child = api("POST", f"/v1/sandboxes/{sandbox}/fork", {"ssh_pubkeys": [OTHER]}).data["id"]
    assert keys_in(api, child) == ["# own", OTHER], "the child has its own keys, and none of its parent's"
    api("DELETE", f"/v1/sandboxes/{child}")
    api("POST", f"/v1/sandboxes/{sandbox}/resume").data
    assert keys_in(api, sandbox) == [KEY, "# own", OTHER, third]
    api("POST", f"/v1/sandboxes/{sandbox}/ssh-pubkeys", {"keys": ["nonsense"]}).fails(400)


@pytest.mark.skipif(not shutil.which("ssh"), reason="no ssh client here")
def test_ssh_through_a_tunnel(api, new_sandbox, tmp_path):
    """As a CI plugin does it: key at create, sshd in the guest, SSH through /tunnel/22."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "test@example.com", "-f", tmp_path / "key"], check=True)
    sandbox = new_sandbox(ssh_pubkeys=[(tmp_path / "key.pub").read_text().strip()])["id"]
    api.sh(sandbox, "mkdir -p /run/sshd && (ls /etc/ssh/ssh_host_ed25519_key || ssh-keygen -A) >/dev/null 2>&1; /usr/sbin/sshd")
    proxy = tmp_path / "proxy.py"
    proxy.write_text(f"""
import socket, sys, threading
link = socket.create_connection(("127.0.0.1", {api.port}))
link.sendall(b"POST /v1/sandboxes/{sandbox}/tunnel/22 HTTP/1.1\\r\\nHost: x\\r\\nX-Api-Key: {api.key}\\r\\nConnection: Upgrade\\r\\nUpgrade: tcp-tunnel\\r\\nContent-Length: 0\\r\\n\\r\\n")
head = b""
while b"\\r\\n\\r\\n" not in head: head += link.recv(1)
assert b" 101 " in head, head
def up():
    while part := sys.stdin.buffer.read1(65536): link.sendall(part)
    link.shutdown(socket.SHUT_WR)
threading.Thread(target=up, daemon=True).start()
while part := link.recv(65536): sys.stdout.buffer.write(part); sys.stdout.buffer.flush()
""")
    done = subprocess.run(["ssh", "-F", "none", "-i", tmp_path / "key", "-o", f"ProxyCommand=python3 {proxy}", "-o", "StrictHostKeyChecking=no",
                           "-o", f"UserKnownHostsFile={tmp_path}/known", "-o", "BatchMode=yes", "-o", "ConnectTimeout=60", "root@sandbox",
                           "echo in; cat; exit 3"], input=b"through\n", capture_output=True, timeout=120)
    assert done.returncode == 3 and done.stdout == b"in\nthrough\n", done
