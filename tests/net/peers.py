"""The other side of a private network, as a test plays it: what shims and network processes of members say."""
import socket
import struct

import net_control
from net_control import text

SET_NETWORKS, PEER_LISTENER, PEER_CHANNEL = 6, 7, 8
OPEN, OPENED, REFUSED, CANCEL, END, DATAGRAM, UNHEARD, ECHO, ECHO_REPLY = range(1, 10)

NETWORK, OWN, PEER = "00000000000a", "000000000001", "000000000002"
OWN_ADDRESS, PEER_ADDRESS = "198.18.0.2", "198.18.0.3"


def networks(*wanted):
    """Of (id, name, [(sandbox, name, address, *aliases), ...])."""
    raw = struct.pack("<I", len(wanted))
    for ident, name, members in wanted:
        raw += text(ident) + text(name) + struct.pack("<I", len(members))
        for sandbox, called, address, *aliases in members:
            raw += text(sandbox) + text(called) + text(address) + struct.pack("<I", len(aliases)) + b"".join(map(text, aliases))
    return raw


BLUE = networks((NETWORK, "blue", [(OWN, "own", OWN_ADDRESS), (PEER, "peer", PEER_ADDRESS)]))
NONE = networks()


def peer_id(network=NETWORK, sandbox=OWN):
    return text(network) + text(sandbox)


def packet_pair():
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    one.settimeout(20)
    other.settimeout(20)
    return one, other


class Peer:
    """A member's end of a channel."""

    def __init__(self, end):
        self.end = end
        self.end.settimeout(20)

    def send(self, kind, form="", *values, payload=b"", fds=()):
        raw = struct.pack("<B" + form, kind, *values) + payload
        if fds:
            socket.send_fds(self.end, [raw], [one.fileno() for one in fds])
        else:
            self.end.send(raw)

    def receive(self):
        raw, fds, _, _ = socket.recv_fds(self.end, 70000, 4)
        if not raw:
            raise ConnectionError("drupe-net has closed the channel")
        return raw, [socket.socket(fileno=fd) for fd in fds]

    def expect_open(self):
        """Number, ports and stream of a connection that drupe-net's guest wants."""
        raw, fds = self.receive()
        kind, number, source, destination = struct.unpack("<BIHH", raw)
        assert kind == OPEN and len(fds) == 1
        fds[0].settimeout(20)
        return number, source, destination, fds[0]

    def open(self, number, source, destination):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        ours.settimeout(20)
        self.send(OPEN, "IHH", number, source, destination, fds=[theirs])
        theirs.close()
        return ours

    def is_closed(self):
        try:
            while True:
                self.receive()
        except ConnectionError:
            return True


class Member:
    """The shim and the other members of one drupe-net."""

    def __init__(self, net, listener_path):
        self.net, self.control = net, net.control
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listener.bind(listener_path)
        listener.listen(64)
        listener.setblocking(False)
        self.path = listener_path
        self.pass_one(PEER_LISTENER, b"", listener)
        listener.close()

    def pass_one(self, kind, body, fd):
        return self.control.call(kind, body, fd.fileno())

    def wanted(self):
        """The member that drupe-net asks for next."""
        kind, = struct.unpack_from("<H", raw := self.control.event())
        assert kind == 1
        reader = net_control.Reader(raw[2:])
        return reader.text().decode(), reader.text().decode()

    def grant(self, network=NETWORK, sandbox=PEER):
        ours, theirs = packet_pair()
        theirs.setblocking(False)
        self.pass_one(PEER_CHANNEL, peer_id(network, sandbox) + b"\x01", theirs)
        theirs.close()
        return Peer(ours)

    def refuse(self, network=NETWORK, sandbox=PEER):
        self.control.call(PEER_CHANNEL, peer_id(network, sandbox) + b"\x00")

    def dial(self, network=NETWORK, sandbox=PEER, hello=True):
        """As that member's own process that makes connections."""
        end = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        end.connect(self.path)
        peer = Peer(end)
        if hello:
            end.send(peer_id(network, sandbox))
        return peer

    def set_networks(self, raw):
        self.control.call(SET_NETWORKS, raw)
