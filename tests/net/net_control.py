"""What drupe-net is told over its control socket, and what it answers. Written independently of src/net/control."""
import fcntl
import json
import os
import socket
import struct

CONFIGURE, SET_POLICY, READ_LOG, COUNTERS, FLOWS = range(1, 6)
SET_RESOLVERS = 9
NONE, OPEN, POLICY = range(3)
ERROR_CODES = ["invalid_argument", "not_found", "already_exists", "invalid_state", "permission_denied", "limit_exceeded",
               "timeout", "unsupported", "unavailable", "integrity", "memory_incompatible", "vm_lost", "busy",
               "cancelled", "host_error", "guest_error"]


class NetError(Exception):
    def __init__(self, code, message, errno):
        super().__init__(f"{code}: {message} ({errno})")
        self.code, self.message, self.errno = code, message, errno


def text(value):
    raw = value if isinstance(value, bytes) else value.encode()
    return struct.pack("<I", len(raw)) + raw


def texts(values):
    return struct.pack("<I", len(values)) + b"".join(text(value) for value in values)


def rules(mode, allow=(), deny=(), allow_private=()):
    def with_origin(values):
        return struct.pack("<I", len(values)) + b"".join(text(value) + text("") for value in values)

    return bytes([mode]) + with_origin(allow) + with_origin(deny) + texts(allow_private)


def policy(*allow, mode=POLICY, deny=(), allow_private=()):
    return b"\x01" + rules(mode, allow, deny, allow_private) + b"\x00"


class Reader:
    def __init__(self, raw):
        self.raw, self.at = raw, 0

    def number(self, form):
        value, = struct.unpack_from("<" + form, self.raw, self.at)
        self.at += struct.calcsize("<" + form)
        return value

    def text(self):
        size = self.number("I")
        self.at += size
        return self.raw[self.at - size:self.at]

    def texts(self):
        return [self.text() for _ in range(self.number("I"))]


class Control:
    """One end of the control socket; requests may overlap."""

    def __init__(self, end):
        self.end = end
        self.end.settimeout(30)
        self.next_id = 1
        self.answers = {}
        self.events = []

    def send(self, kind, body=b"", fd=None):
        ident, self.next_id = self.next_id, self.next_id + 1
        payload = struct.pack("<IH", ident, kind) + body
        record = struct.pack("<I", len(payload)) + payload
        # A descriptor goes with the first bytes.
        sent = socket.send_fds(self.end, [record], [fd]) if fd is not None else 0
        self.end.sendall(record[sent:])
        return ident

    def _exactly(self, size):
        raw = b""
        while len(raw) < size:
            part = self.end.recv(size - len(raw))
            if not part:
                raise ConnectionError("drupe-net closed its control socket")
            raw += part
        return raw

    def _record(self):
        size, = struct.unpack("<I", self._exactly(4))
        record = self._exactly(size)
        ident, = struct.unpack_from("<I", record)
        if ident == 0:
            self.events.append(record[4:])
        else:
            self.answers[ident] = record[4:]

    def event(self):
        """What it says unasked next."""
        while not self.events:
            self._record()
        return self.events.pop(0)

    def answer(self, ident):
        while ident not in self.answers:
            self._record()
        raw = self.answers.pop(ident)
        if raw[0] == 0:
            return raw[1:]
        reader = Reader(raw[1:])
        code, message, _, errno = reader.number("B"), reader.text().decode(), reader.text(), reader.number("i")
        raise NetError(ERROR_CODES[code], message, errno)

    def call(self, kind, body=b"", fd=None):
        return self.answer(self.send(kind, body, fd))

    def set_policy(self, spec, quota=0, unpublish=False):
        self.call(SET_POLICY, text(spec) + struct.pack("<Q?", quota, unpublish))

    def set_resolvers(self, *resolvers):
        self.call(SET_RESOLVERS, texts(resolvers))

    def log(self, after=0, limit=1000):
        reader = Reader(self.call(READ_LOG, struct.pack("<QI", after, limit)))
        lines = [json.loads(line) for line in reader.texts()]
        return lines, reader.number("Q"), reader.number("Q")

    def counters(self):
        names = ["bytes_out", "bytes_in", "connections", "refused", "open_connections", "dropped_frames"]
        reader = Reader(self.call(COUNTERS))
        return {name: reader.number("Q") for name in names}

    def flows(self):
        return self.call(FLOWS)


def configuration(mac, spec, *, mtu=1500, guest_v4="10.118.0.2", gateway_v4="10.118.0.1", guest_v6="", gateway_v6="",
                  resolvers=(), search=(), publications=(), quota=0, used=0, flows=b"", ledger=False,
                  networks=b"\0\0\0\0"):
    raw = mac + struct.pack("<I", mtu) + text(guest_v4) + text(gateway_v4) + text(guest_v6) + text(gateway_v6)
    raw += texts(resolvers) + texts(search) + text(spec) + struct.pack("<I", len(publications))
    for address, host_port, guest_port in publications:
        raw += text(address) + struct.pack("<HH", host_port, guest_port)
    return raw + struct.pack("<QQ", quota, used) + text(flows) + bytes([ledger]) + networks


FLOW, ENTRY = 40, 1016
FLOWS_AT, ENTRIES_AT = 16, 16 + 2048 * FLOW


class Ledger:
    """The memory that drupe-net leaves for its successor (src/protocol/net_ledger.h)."""

    def __init__(self):
        self.fd = os.memfd_create("ledger", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.fd, ENTRIES_AT + 1024 * ENTRY)
        os.pwrite(self.fd, struct.pack("<II", 0x474C4644, 1), 0)
        fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)

    def used(self):
        return struct.unpack("<Q", os.pread(self.fd, 8, 8))[0]

    def fill(self, byte):
        os.pwrite(self.fd, byte * (1024 * ENTRY + 2048 * FLOW), FLOWS_AT)

    def close(self):
        os.close(self.fd)


def pair():
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
