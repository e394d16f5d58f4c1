"""Clients that people use, in a guest: dig, openssl, curl, git, ping, and published ports from the host."""
import base64
import hashlib
import os
import secrets
import socket
import struct
import subprocess
import threading

import pytest

from conftest import IMAGE, eventually
from guest_lab import GATEWAY, GATEWAY6, MTU, guest, internet, lab_drupe, open_guest, tool_guest, tools  # noqa: F401, I001
import net_lab
import net_servers

SIZE = 32 << 20


def dig(box, *words):
    return box.exec("dig", "+time=20", "+tries=1", *words, timeout=240).text


def test_dig(tool_guest, internet):
    assert dig(tool_guest, "+short", "good.example").split() == [net_lab.SERVERS[0]]
    over_tcp = dig(tool_guest, "+tcp", "good.example")
    assert "status: NOERROR" in over_tcp and f"SERVER: {GATEWAY}#53" in over_tcp and "(TCP)" in over_tcp


def test_dig_with_sixty_records(tool_guest, internet):
    assert sorted(dig(tool_guest, "+short", "many.example").split()) == sorted(internet.many)
    # Without EDNS it does not fit into a datagram, and dig goes on over TCP by itself.
    plain = dig(tool_guest, "+noedns", "many.example")
    assert "Truncated, retrying in TCP mode" in plain and plain.count("\tA\t") == 60
    assert "flags: qr tc" in dig(tool_guest, "+noedns", "+ignore", "many.example")


def test_dig_of_an_answer_that_the_resolver_truncates(tool_guest, internet):
    internet.resolver.asked.clear()
    assert dig(tool_guest, "+short", "big.example").split() == [net_lab.SERVERS[3]]
    assert ("big.example", net_servers.A, "tcp") in internet.resolver.asked


def test_dig_of_a_refused_name(tool_guest, internet):
    internet.resolver.asked.clear()
    assert "status: REFUSED" in dig(tool_guest, "evil.example")
    assert "status: REFUSED" in dig(tool_guest, "+tcp", "evil.example")
    assert not [name for name, _, _ in internet.resolver.asked if name == "evil.example"]


def test_ping_of_the_gateway_and_mtu(tool_guest, internet):
    for gateway in (GATEWAY, *([GATEWAY6] if internet.lab.ipv6 else [])):
        assert "3 received" in tool_guest.exec("ping", "-c", "3", "-i", "0.2", "-W", "20", gateway).text
    assert "1 received" in tool_guest.exec("ping", "-c", "1", "-W", "20", "-M", "do", "-s", str(MTU - 28), GATEWAY).text
    assert b"too long" in tool_guest.exec("ping", "-c", "1", "-M", "do", "-s", str(MTU - 27), GATEWAY, code=1).err.lower()


def s_client(box, address, *words):
    return box.sh(f"echo ping | timeout 60 openssl s_client -connect {address}:443 -verify_return_error -ign_eof {' '.join(words)} 2>&1", code=None).text


def test_openssl_with_and_without_a_server_name(guest, open_guest):
    address = net_lab.SERVERS[0]
    shown = s_client(open_guest, address, "-servername good.example -verify_hostname good.example")
    assert "Verify return code: 0 (ok)" in shown and "good.example ping" in shown, shown
    shown = s_client(open_guest, address, "-noservername")
    assert "- ping" in shown, shown
    # By name: the address was asked for, but a hello that names nothing, or another name, goes no further.
    strict = guest("--allow", "good.example", "--host-ca")
    assert strict.sh("getent ahostsv4 good.example").text.split()[0] == address
    assert "good.example ping" in s_client(strict, address, "-servername good.example")
    for words in ("-noservername", "-servername other.example"):
        shown = s_client(strict, address, words)
        assert "ping" not in shown and "BEGIN CERTIFICATE" not in shown, shown


def test_curl_with_the_small_internets_authority(open_guest):
    assert open_guest.exec("curl", "-sS", "https://good.example:8443/").code == 0
    assert open_guest.exec("curl", "-sS", "http://good.example/").out == b"host good.example"


def test_git_clone(guest, internet):
    work = internet.folder.parent / "work"
    env = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}
    for name in ("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"):
        env[name] = "test@good.example"

    def git(*words):
        subprocess.run(["git", *map(str, words)], check=True, capture_output=True, env=env)

    git("init", "-q", "-b", "main", work)
    (work / "file").write_bytes(bytes(range(256)) * 4096)
    git("-C", work, "add", ".")
    git("-C", work, "commit", "-qm", "one")
    git("clone", "-q", "--bare", work, internet.folder / "project.git")
    git("-C", internet.folder / "project.git", "update-server-info")
    box = guest("--allow", "good.example:8080", "--allow", "good.example:8443", "--host-ca")
    want = hashlib.sha256((work / "file").read_bytes()).hexdigest()
    for number, url in enumerate(("http://good.example:8080/project.git", "https://good.example:8443/project.git")):
        box.exec("git", "clone", "-q", url, f"/clone{number}", timeout=240)
        assert box.exec("sha256sum", f"/clone{number}/file").text.split()[0] == want


def python(box, code, *words, **options):
    return box.exec("python3", "-c", code, *map(str, words), timeout=240, **options)


def test_a_server_that_stops_reading(open_guest, internet):
    """The guest's sender stands still, nothing is lost, and all arrives when the server reads on."""
    listener = internet.lab.listen("world", net_lab.SERVERS[1], 9001)
    code = ("import select, socket, sys\ns = socket.create_connection((sys.argv[1], 9001), 60)\ns.setblocking(False)\n"
            "b = bytes(range(256)) * 1024\nn = 0\nsize = int(sys.argv[2])\n"
            "while n < size and select.select([], [s], [], 3)[1]: n += s.send(b[n % 256:][:size - n])\n"
            "print(n, flush=True)\ns.setblocking(True)\n"
            "while n < size: n += s.send(b[n % 256:][:size - n])\ns.shutdown(socket.SHUT_WR)\nprint(s.recv(100).decode())")
    with open_guest.drupe.popen("exec", open_guest.name, "python3", "-c", code, net_lab.SERVERS[1], str(SIZE), stdout=subprocess.PIPE) as process:
        peer, _ = listener.accept()
        peer.settimeout(120)
        stuck = int(process.stdout.readline())
        assert 0 < stuck < SIZE
        digest, got = hashlib.sha256(), 0
        while raw := peer.recv(1 << 20):
            digest.update(raw)
            got += len(raw)
        peer.sendall(b"thanks")  # its direction is still open
        peer.close()
        assert process.stdout.read() == b"thanks\n"
    listener.close()
    assert got == SIZE and digest.digest() == hashlib.sha256(bytes(range(256)) * (SIZE // 256)).digest()


def test_a_guest_that_stops_reading(open_guest, internet):
    listener = internet.lab.listen("world", net_lab.SERVERS[1], 9002)
    sent = []

    def serve():
        peer, _ = listener.accept()
        peer.settimeout(120)
        data = memoryview(bytes(range(256)) * (SIZE // 256))
        while len(data):
            done = peer.send(data[:1 << 16])
            sent.append(done)
            data = data[done:]
        peer.close()

    thread = threading.Thread(target=serve)
    thread.start()
    code = ("import hashlib, socket, sys\ns = socket.create_connection((sys.argv[1], 9002), 60)\nprint('there', flush=True)\nsys.stdin.readline()\n"
            "d = hashlib.sha256()\nwhile True:\n  b = s.recv(1 << 16)\n  if not b: break\n  d.update(b)\nprint(d.hexdigest())")
    with open_guest.drupe.popen("exec", "-i", open_guest.name, "python3", "-c", code, net_lab.SERVERS[1], stdout=subprocess.PIPE,
                                stdin=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"there\n"
        # Stands still: nothing more is taken for two seconds.
        before = -1
        while before != len(sent):
            before = len(sent)
            thread.join(2)
        assert sum(sent) < SIZE
        out, _ = process.communicate(b"\n", timeout=240)
    thread.join(60)
    listener.close()
    assert out.decode().strip() == hashlib.sha256(bytes(range(256)) * (SIZE // 256)).hexdigest()


def test_resets_both_ways(open_guest, internet):
    listener = internet.lab.listen("world", net_lab.SERVERS[1], 9003)
    linger = struct.pack("ii", 1, 0)
    code = ("import socket, struct, sys\ns = socket.create_connection((sys.argv[1], 9003), 60)\ns.sendall(b'x')\n"
            "try: s.recv(1)\nexcept ConnectionResetError: print('reset')\n"
            "s = socket.create_connection((sys.argv[1], 9003), 60)\ns.sendall(b'y')\ns.recv(1)\n"
            "s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))\ns.close()")
    with open_guest.drupe.popen("exec", open_guest.name, "python3", "-c", code, net_lab.SERVERS[1], stdout=subprocess.PIPE) as process:
        peer, _ = listener.accept()
        assert peer.recv(1) == b"x"
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        peer.close()
        peer, _ = listener.accept()
        peer.settimeout(60)
        assert peer.recv(1) == b"y"
        peer.sendall(b"z")
        with pytest.raises(ConnectionResetError):
            peer.recv(1)
        peer.close()
        assert process.stdout.read() == b"reset\n"
    listener.close()


def test_three_hundred_half_open_connections_are_freed(guest, internet):
    """To an address that never answers; the network process gives everything back when the guest asks no more."""
    box = guest("--net", "open")
    entry = box.info()["live"]["network_pid"]

    def descriptors():
        return len(os.listdir(f"/proc/{entry}/fd"))

    before = descriptors()
    code = ("import errno, socket, sys\nall = []\nfor _ in range(300):\n  s = socket.socket(); s.setblocking(False)\n"
            "  assert s.connect_ex(('203.0.113.200', 9)) == errno.EINPROGRESS; all.append(s)\nprint('open', flush=True)\nsys.stdin.readline()")
    with box.drupe.popen("exec", "-i", box.name, "python3", "-c", code, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"open\n"
        eventually(lambda: descriptors() >= before + 300, 60, "300 connections")
        # Others are made meanwhile.
        assert box.exec("curl", "-sS", "http://good.example/").out == b"host good.example"
        process.communicate(b"\n", timeout=120)
    eventually(lambda: descriptors() <= before, 60, "the end of 300 connections")
    assert box.exec("curl", "-sS", "http://good.example/").out == b"host good.example"


def test_datagrams_of_a_full_frame(open_guest):
    code = ("import errno, socket, sys\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.settimeout(60)\ns.connect((sys.argv[1], 7777))\n"
            "s.setsockopt(0, 10, 2)\n"  # IP_MTU_DISCOVER, IP_PMTUDISC_DO
            "most = int(sys.argv[2])\n"
            "for n in (1, 1472, 1473, most):\n  s.send(b'd' * n); print(len(s.recv(65536)))\n"
            "try: s.send(b'd' * (most + 1))\nexcept OSError as e: print(errno.errorcode[e.errno])")
    assert python(open_guest, code, net_lab.SERVERS[0], str(MTU - 28)).text.split() == ["1", "1472", "1473", str(MTU - 28), "EMSGSIZE"]


def test_ipv6(guest, open_guest, internet):
    if not internet.lab.ipv6:
        pytest.skip("this kernel has no IPv6 in namespaces")
    assert open_guest.exec("curl", "-sS6", "http://six.example/").out == b"host six.example"
    assert open_guest.exec("curl", "-sS", f"http://[{net_lab.SERVER6}]/").out == f"host [{net_lab.SERVER6}]".encode()
    strict = guest("--allow", "six.example")
    assert strict.exec("curl", "-sS6", "http://six.example/").out == b"host six.example"
    assert strict.exec("curl", "-sS", "-H", "Host: evil.example", "http://six.example/", code=None).code != 0
    assert strict.exec("curl", "-sS", "http://good.example/", code=6).code == 6  # it is not even asked for


SERVER = """
import base64, hashlib, socket, struct, threading
gate = threading.Semaphore(0)

def exactly(c, n, held):
    while len(held) < n: held += c.recv(65536)
    return bytes(held[:n]), held[n:]

def websocket(c, head):
    key = [l.split(b':', 1)[1].strip() for l in head.split(b'\\r\\n') if l.lower().startswith(b'sec-websocket-key:')][0]
    accept = base64.b64encode(hashlib.sha1(key + b'258EAFA5-E914-47DA-95CA-C5AB0DC85B11').digest())
    c.sendall(b'HTTP/1.1 101 Switching Protocols\\r\\nUpgrade: websocket\\r\\nConnection: Upgrade\\r\\nSec-WebSocket-Accept: ' + accept + b'\\r\\n\\r\\n')
    held = b''
    while True:
        (first, second), held = exactly(c, 2, held)
        size = second & 127
        if size == 126:
            raw, held = exactly(c, 2, held)
            size = struct.unpack('>H', raw)[0]
        mask, held = exactly(c, 4, held)
        body, held = exactly(c, size, held)
        body = bytes(b ^ mask[i % 4] for i, b in enumerate(body))
        c.sendall(bytes([first]) + (bytes([size]) if size < 126 else b'\\x7e' + struct.pack('>H', size)) + body)
        if first & 15 == 8: return

def serve(c):
    head = b''
    while b'\\r\\n\\r\\n' not in head: head += c.recv(4096)
    if b'GET /events' in head:
        c.sendall(b'HTTP/1.1 200 OK\\r\\nContent-Type: text/event-stream\\r\\n\\r\\n')
        for n in range(1000):
            gate.acquire()
            c.sendall(b'data: %d\\n\\n' % n)
    elif b'GET /next' in head:
        gate.release()
        c.sendall(b'HTTP/1.1 204 No Content\\r\\n\\r\\n')
    else: websocket(c, head)
    c.close()

s = socket.create_server(('0.0.0.0', 8000))
while True: threading.Thread(target=serve, args=(s.accept()[0],), daemon=True).start()
"""


@pytest.fixture(scope="module")
def published(lab_drupe, internet):
    """A function that connects to a server in a guest by a port of the host; the server starts after the first connection."""
    name = f"published-{secrets.token_hex(4)}"

    def connect():
        peer = internet.lab.connect("host", "127.0.0.1", 18000)
        peer.settimeout(120)
        return peer

    try:
        lab_drupe("run", "-d", "--name", name, "--net", "policy", "-p", "18000:8000", IMAGE, "sleep", "infinity")
        connect.early = connect()
        connect.early.sendall(b"GET /next HTTP/1.1\r\nHost: x\r\n\r\n")
        with lab_drupe.popen("exec", name, "python3", "-c", SERVER) as process:
            yield connect
            process.terminate()
    finally:
        lab_drupe("rm", "-f", name, code=None)


def read_until(peer, mark):
    held = b""
    while mark not in held:
        part = peer.recv(1)
        assert part, held
        held += part
    return held


def test_a_connection_that_comes_before_the_server_listens(published):
    assert published.early.recv(1000).startswith(b"HTTP/1.1 204")
    published.early.close()


def test_server_sent_events_through_a_published_port(published):
    """Each event arrives before the next one is let go."""
    events = published()
    events.sendall(b"GET /events HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\n\r\n")
    assert b"text/event-stream" in read_until(events, b"\r\n\r\n")
    assert read_until(events, b"\n\n") == b"data: 0\n\n"  # the one that the early connection let go
    for number in range(1, 10):
        with published() as other:
            other.sendall(b"GET /next HTTP/1.1\r\nHost: x\r\n\r\n")
            assert other.recv(100).startswith(b"HTTP/1.1 204")
        assert read_until(events, b"\n\n") == b"data: %d\n\n" % number
    events.close()


def test_websocket_through_a_published_port(published):
    peer = published()
    key = base64.b64encode(os.urandom(16))
    peer.sendall(b"GET /socket HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
                 b"Sec-WebSocket-Key: " + key + b"\r\n\r\n")
    head = read_until(peer, b"\r\n\r\n")
    assert base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest()) in head

    def frame(kind, body):
        mask = os.urandom(4)
        size = bytes([0x80 | len(body)]) if len(body) < 126 else b"\xfe" + struct.pack(">H", len(body))
        return bytes([0x80 | kind]) + size + mask + bytes(byte ^ mask[at % 4] for at, byte in enumerate(body))

    for kind, body in ((1, b"text"), (2, bytes(range(256)) * 100), (9, b"are you there"), (8, struct.pack(">H", 1000))):
        peer.sendall(frame(kind, body))
        head = 2 if len(body) < 126 else 4
        got = b""
        while len(got) < head + len(body):
            got += peer.recv(65536)
        assert got[0] == 0x80 | kind and got[head:] == body
    assert peer.recv(1) == b""
    peer.close()
