"""The wire protocol of docs/protocol.md, as far as the agent's tests need it. Written independently of src/protocol."""
import struct

REQUEST, REPLY, EVENT, OPEN, OPENED, DATA, EOF, CREDIT, SIGNAL, RESIZE, EXIT, RESET, BARRIER = range(1, 14)
STDIN, STDOUT, STDERR = range(3)
PING, HELLO, SET_UP, SYNC, FREEZE, THAW, GROW_ROOT, STATS, PROCESSES, SIGNAL_EXEC, SHUTDOWN, SET_HOST = range(1, 13)
EXEC, ATTACH, READ_FILE, WRITE_FILE, TAR_IN, TAR_OUT, WALK, STAT, MKDIR, REMOVE, RENAME, CHMOD, CHOWN, SYMLINK, LIST, \
    WATCH, TUNNEL, TRUST = range(1, 19)
ENTRY, CONTENT, CONTENT_END, PROBLEM, CHANGE = range(1, 6)
INITIAL_CREDIT = 256 * 1024
MAX_PAYLOAD = 65536 - 16
ERROR_CODES = ["invalid_argument", "not_found", "already_exists", "invalid_state", "permission_denied", "limit_exceeded",
               "timeout", "unsupported", "unavailable", "integrity", "memory_incompatible", "vm_lost", "busy",
               "cancelled", "host_error", "guest_error"]


def marker(epoch):
    return b"\x93DRUPE\r\n" + struct.pack("<Q", epoch)


def frame(kind, channel, ident, payload=b""):
    return struct.pack("<IBBHII", len(payload), kind, channel, 0, ident, 0) + payload


def text(value):
    raw = value if isinstance(value, bytes) else value.encode()
    return struct.pack("<I", len(raw)) + raw


def texts(values):
    return struct.pack("<I", len(values)) + b"".join(text(v) for v in values)


class Reader:
    def __init__(self, raw):
        self.raw = raw
        self.at = 0

    def number(self, form):
        value, = struct.unpack_from("<" + form, self.raw, self.at)
        self.at += struct.calcsize("<" + form)
        return value

    def text(self):
        size = self.number("I")
        value = self.raw[self.at:self.at + size]
        assert len(value) == size
        self.at += size
        return value

    def rest(self):
        return self.raw[self.at:]


class AgentError(Exception):
    def __init__(self, code, message, next_step, errno):
        super().__init__(f"{code}: {message} {next_step} ({errno})")
        self.code, self.message, self.next_step, self.errno = code, message, next_step, errno


def read_error(reader):
    code = ERROR_CODES[reader.number("B")]
    message, step = reader.text().decode(), reader.text().decode()
    return AgentError(code, message, step, reader.number("i"))


def set_up(realtime_ns, entropy, hostname, machine_id, mac=b"", new_identity=True, env=(), user="", cwd=""):
    return (struct.pack("<Q", realtime_ns) + text(entropy) + text(hostname) + text(machine_id) + text(mac) +
            struct.pack("<B", new_identity) + texts(env) + text(user) + text(cwd))


def exec_open(kind, exec_id, argv=(), env=(), cwd="", user="", tty=False, rows=24, columns=80, stdin=False, keep=False,
              timeout_ms=0, limits=()):
    raw = struct.pack("<B", kind) + text(exec_id) + texts(argv) + texts(env) + text(cwd) + text(user)
    raw += struct.pack("<BHHBBQI", tty, rows, columns, stdin, keep, timeout_ms, len(limits))
    return raw + b"".join(struct.pack("<iQQ", *limit) for limit in limits)


def file_open(kind, path="", target="", offset=0, length=0, mode=0, uid=-1, gid=-1, no_follow=False, recursive=False,
              parents=False, append=False, exclusive=False, ranged=False, ignore=(), contents=False, port=0, user=""):
    return (struct.pack("<B", kind) + text(path) + text(target) + struct.pack("<QQIqq", offset, length, mode, uid, gid) +
            struct.pack("<6B", no_follow, recursive, parents, append, exclusive, ranged) + texts(ignore) +
            struct.pack("<BH", contents, port) + text(user))


class Facts:
    def __init__(self, raw):
        r = Reader(raw)
        self.exit_code, self.signal = r.number("i"), r.number("i")
        self.timed_out, self.oom_killed, self.truncated = (bool(r.number("B")) for _ in range(3))
        self.wall_ns, self.cpu_ns = r.number("Q"), r.number("Q")
        self.error = read_error(r) if r.number("B") else None
        self.result = r.text()
        assert not r.rest()

    def __repr__(self):
        return str(self.__dict__)


class Stat:
    def __init__(self, raw):
        r = Reader(raw)
        self.name, self.type = r.text(), chr(r.number("B"))
        self.size, self.allocated = r.number("Q"), r.number("Q")
        self.mode, self.uid, self.gid = r.number("I"), r.number("I"), r.number("I")
        self.mtime_ns, self.link_target, self.inode = r.number("q"), r.text(), r.number("Q")

    def __repr__(self):
        return str(self.__dict__)


class Stats:
    NAMES = "memory_total memory_available memory_user cpu_user_ns disk_total disk_free".split()

    def __init__(self, raw):
        r = Reader(raw)
        for name in self.NAMES:
            setattr(self, name, r.number("Q"))
        self.processes = r.number("I")
        self.oom_kills, self.uptime_ns, self.realtime_ns = r.number("Q"), r.number("Q"), r.number("Q")


def processes(raw):
    r = Reader(raw)
    truncated, count = r.number("B"), r.number("I")
    out = []
    for _ in range(count):
        one = dict(pid=r.number("i"), parent=r.number("i"), uid=r.number("I"), state=chr(r.number("B")),
                   cpu_ns=r.number("Q"), rss=r.number("Q"))
        one["command"], one["exec_id"] = r.text(), r.text().decode()
        out.append(one)
    return bool(truncated), out


def records(raw):
    at = 0
    while at < len(raw):
        size, kind = struct.unpack_from("<IB", raw, at)
        yield kind, raw[at + 5:at + 4 + size]
        at += 4 + size
