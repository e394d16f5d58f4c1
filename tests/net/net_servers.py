"""Servers of the small internet, and the guest's clients."""
import os
import selectors
import socket
import ssl
import struct
import subprocess
import threading

NAMES = ["good.example", "other.example", "deep.sub.example", "evil.example", "late.example"]


def accept_loop(listener, handler):
    def serve(peer):
        with peer:
            try:
                handler(peer)
            except (OSError, ssl.SSLError):
                pass  # a client that was cut off, as tests want it

    def run():
        while True:
            try:
                peer, _ = listener.accept()
            except TimeoutError:
                continue
            except OSError:
                return
            peer.settimeout(30)
            threading.Thread(target=serve, args=(peer,), daemon=True).start()

    threading.Thread(target=run, daemon=True).start()


def echo_server(listener):
    """Echoes on any number of connections, and ends its direction when the client has."""
    poll = selectors.DefaultSelector()
    listener.setblocking(False)
    poll.register(listener, selectors.EVENT_READ)

    def run():
        while True:
            for key, _ in poll.select():
                if key.fileobj is listener:
                    peer, _ = listener.accept()
                    poll.register(peer, selectors.EVENT_READ)
                    continue
                try:
                    raw = key.fileobj.recv(65536)
                    key.fileobj.setblocking(True)
                    key.fileobj.sendall(raw)
                    key.fileobj.setblocking(False)
                except OSError:
                    raw = b""
                if not raw:
                    poll.unregister(key.fileobj)
                    key.fileobj.close()

    threading.Thread(target=run, daemon=True).start()


def read_head(peer, held=b""):
    while b"\r\n\r\n" not in held:
        part = peer.recv(65536)
        if not part:
            return None, held
        held += part
    head, _, rest = held.partition(b"\r\n\r\n")
    return head, rest


def http(peer):
    """Says which Host each request named; upgrades to an echo."""
    rest = b""
    while True:
        head, rest = read_head(peer, rest)
        if head is None:
            return
        lines = head.split(b"\r\n")
        host = next(line[5:].strip() for line in lines if line.lower().startswith(b"host:"))
        if b"upgrade: websocket" in head.lower():
            peer.sendall(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n" + rest)
            while raw := peer.recv(65536):
                peer.sendall(raw)
            return
        body = b"host " + host
        peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))


def mail(peer):
    """A protocol in which the server speaks first."""
    peer.sendall(b"220 ready\r\n")
    if peer.recv(1000).startswith(b"EHLO"):
        peer.sendall(b"250 hello\r\n")


class Certificates:
    """An authority of its own, and one certificate for all names."""

    def __init__(self, folder):
        self.authority = os.path.join(folder, "ca.pem")
        own = {name: os.path.join(folder, name) for name in ("ca.key", "key", "csr", "cert", "san")}
        with open(own["san"], "w") as file:
            file.write("subjectAltName=" + ",".join(f"DNS:{name}" for name in NAMES))

        def openssl(*words):
            subprocess.run(["openssl", *words], check=True, capture_output=True)

        curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        openssl("req", "-x509", *curve, "-keyout", own["ca.key"], "-out", self.authority, "-subj", "/CN=test", "-days", "30")
        openssl("req", *curve, "-keyout", own["key"], "-out", own["csr"], "-subj", "/CN=server")
        openssl("x509", "-req", "-in", own["csr"], "-CA", self.authority, "-CAkey", own["ca.key"], "-CAcreateserial",
                "-out", own["cert"], "-days", "30", "-extfile", own["san"])
        self.server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.server.load_cert_chain(own["cert"], own["key"])

        def remember(connection, name, _):
            connection.said = name

        self.server.sni_callback = remember
        self.client = ssl.create_default_context(cafile=self.authority)

    def serve(self, peer):
        with self.server.wrap_socket(peer, server_side=True) as secure:
            raw = secure.recv(1000)
            secure.sendall(f"{secure.said or '-'} ".encode() + raw)


A, NS, TXT, AAAA, HTTPS = 1, 2, 16, 28, 65
NOERROR, SERVFAIL, NXDOMAIN, REFUSED = 0, 2, 3, 5


def encode_name(name):
    return b"".join(bytes([len(part)]) + part.encode() for part in name.split(".") if part) + b"\0"


def query(name, kind=A, ident=0x1234):
    return struct.pack(">HHHHHH", ident, 0x0100, 1, 0, 0, 0) + encode_name(name) + struct.pack(">HH", kind, 1)


def read_question(raw):
    at, parts = 12, []
    while raw[at]:
        parts.append(raw[at + 1:at + 1 + raw[at]].decode())
        at += 1 + raw[at]
    return ".".join(parts), struct.unpack(">H", raw[at + 1:at + 3])[0], at + 5


def addresses(raw):
    """Return code and addresses of an answer."""
    rcode, count = raw[3] & 15, struct.unpack(">H", raw[6:8])[0]
    _, _, at = read_question(raw)
    found = []
    for _ in range(count):
        while raw[at] and raw[at] < 0xC0:
            at += 1 + raw[at]
        at += 2 if raw[at] >= 0xC0 else 1
        kind, _, _, size = struct.unpack(">HHIH", raw[at:at + 10])
        data = raw[at + 10:at + 10 + size]
        if kind in (A, AAAA):
            found.append(socket.inet_ntop(socket.AF_INET if kind == A else socket.AF_INET6, data))
        at += 10 + size
    return rcode, found


class Resolver:
    """Answers from `zone`: name -> addresses. Counts what it was asked; names of `truncated` are whole over TCP only."""

    def __init__(self, lab, address):
        self.zone, self.truncated, self.asked = {}, set(), []
        self.silent = False
        udp = lab.socket("world", kind=socket.SOCK_DGRAM)
        udp.bind((address, 53))
        udp.settimeout(None)
        threading.Thread(target=self._udp, args=(udp,), daemon=True).start()
        accept_loop(lab.listen("world", address, 53), self._tcp)

    def _answer(self, raw, transport):
        name, kind, end = read_question(raw)
        name = name.lower()
        self.asked.append((name, kind, transport))
        values = self.zone.get(name)
        flags = 0x8180 | (0 if values is not None else NXDOMAIN)
        records = b""
        count = 0
        if name in self.truncated and transport == "udp":
            flags |= 0x0200
        else:
            for value in values or []:
                if (":" in value) != (kind == AAAA) or kind not in (A, AAAA):
                    continue
                data = socket.inet_pton(socket.AF_INET6 if ":" in value else socket.AF_INET, value)
                records += struct.pack(">HHHIH", 0xC00C, kind, 1, 60, len(data)) + data
                count += 1
        return raw[:2] + struct.pack(">HHHHH", flags, 1, count, 0, 0) + raw[12:end] + records

    def _udp(self, udp):
        while True:
            raw, peer = udp.recvfrom(4096)
            answer = self._answer(raw, "udp")
            if not self.silent:
                udp.sendto(answer, peer)

    def _tcp(self, peer):
        while head := peer.recv(2):
            raw = peer.recv(struct.unpack(">H", head)[0])
            answer = self._answer(raw, "tcp")
            peer.sendall(struct.pack(">H", len(answer)) + answer)
