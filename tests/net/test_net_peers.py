"""Private networks at drupe-net: the other member, and the shim, are the test's own."""
import contextlib
import socket
import struct
import threading
import time

import net_control
import net_lab
import net_servers
import peers
import pytest
from peers import CANCEL, DATAGRAM, ECHO, ECHO_REPLY, END, OPEN, OPENED, OWN_ADDRESS, PEER_ADDRESS, REFUSED, UNHEARD


@pytest.fixture
def member(start, tmp_path):
    """A drupe-net that is a member of one network and may reach nothing else."""
    made = []

    def begin(raw=peers.BLUE, spec=None):
        net = start(spec=spec or net_control.policy(mode=net_control.NONE), networks=raw)
        made.append(peers.Member(net, str(tmp_path / f"peer{len(made)}.sock")))
        return made[-1]

    return begin


def connecting(member, port=80, address=PEER_ADDRESS):
    """A guest's socket that has begun to connect."""
    made = member.net.lab.socket("guest")
    made.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        made.connect((address, port))
    return made


def connected(member, channel, port=80):
    """A guest's socket and the other guest's end of the same connection."""
    guest = connecting(member, port)
    number, _, destination, stream = channel.expect_open()
    assert destination == port
    channel.send(OPENED, "I", number)
    finish(guest)
    return guest, stream, number


def finish(guest):
    """Waits for a connection; the error that it had."""
    guest.settimeout(20)
    import select
    assert select.select([], [guest], [], 20)[1]
    return guest.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)


@contextlib.contextmanager
def listening(member, port, kind=socket.SOCK_STREAM):
    made = member.net.lab.socket("guest", kind=kind)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind((net_lab.GUEST, port))
    if kind == socket.SOCK_STREAM:
        made.listen(600)
    with made:
        yield made


def test_a_connection_to_a_member(member):
    m = member()
    guest = connecting(m, 8080)
    assert m.wanted() == (peers.NETWORK, peers.PEER)
    channel = m.grant()
    number, source, destination, stream = channel.expect_open()
    assert destination == 8080 and source == guest.getsockname()[1]
    channel.send(OPENED, "I", number)
    assert finish(guest) == 0
    raw = b"x" * 3_000_000
    threading.Thread(target=guest.sendall, args=(raw,), daemon=True).start()
    got = b""
    while len(got) < len(raw):
        got += stream.recv(1 << 20)
    assert got == raw
    stream.sendall(b"answer")
    assert guest.recv(100) == b"answer"
    # An end is told before the stream ends.
    guest.shutdown(socket.SHUT_WR)
    assert channel.receive()[0] == struct.pack("<BIB", END, number, 1)
    assert stream.recv(1) == b""
    channel.send(END, "IB", number, 0)
    stream.close()
    assert guest.recv(1) == b""
    entry, = [one for one in m.net.log() if one.get("port") == 8080]
    assert entry["rule"] == "network blue" and entry["allowed"] and entry["address"] == PEER_ADDRESS
    assert entry["name"] == "peer"


def test_one_channel_serves_all_connections(member):
    m = member()
    guest = connecting(m)
    m.wanted()
    channel = m.grant()
    numbers, kept = set(), []
    for _ in range(20):
        number, _, _, stream = channel.expect_open()
        numbers.add(number)
        kept += [guest, stream]
        channel.send(OPENED, "I", number)
        assert finish(guest) == 0
        guest = connecting(m)
    assert len(numbers) == 20
    channel.expect_open()
    assert not m.control.events


@pytest.mark.parametrize("silent, error", [(0, 111), (1, 113)])
def test_a_member_that_refuses(member, silent, error):
    m = member()
    guest = connecting(m)
    m.wanted()
    channel = m.grant()
    number, *_ = channel.expect_open()
    channel.send(REFUSED, "IB", number, silent)
    assert finish(guest) == error


def test_a_member_that_does_not_run(member):
    m = member()
    guest = connecting(m)
    m.wanted()
    m.refuse()
    assert finish(guest) == 111
    # Those that follow at once are refused without a word to anybody,
    with pytest.raises(ConnectionRefusedError):
        m.net.connect(PEER_ADDRESS, 80)
    assert not m.control.events
    # and then it is asked for again: it may run by now.
    time.sleep(0.2)
    guest = connecting(m)
    m.wanted()
    m.grant().expect_open()


def test_what_is_no_channel(member):
    """Nobody but a shim could pass one; then the member is out of reach, and nothing worse."""
    m = member()
    guest = connecting(m)
    m.wanted()
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as other:
        m.pass_one(peers.PEER_CHANNEL, peers.peer_id(peers.NETWORK, peers.PEER) + b"\x01", other)
    assert finish(guest) == 111


def test_a_member_that_ends_meanwhile(member):
    m = member()
    guest = connecting(m)
    m.wanted()
    channel = m.grant()
    channel.expect_open()
    channel.end.close()
    assert finish(guest) == 111


def test_a_guest_that_does_not_wait(member):
    m = member()
    guest = connecting(m)
    m.wanted()
    channel = m.grant()
    number, *_ = channel.expect_open()
    # Linux forgets the socket without a word; a reset needs a process that ends with it.
    m.set_networks(peers.BLUE)
    m.set_networks(peers.NONE)
    assert finish(guest) in (111, 104)
    assert channel.is_closed()
    assert number


def test_a_stream_that_ends_without_a_word_was_cut(member):
    m = member()
    first = connecting(m)
    m.wanted()
    channel = m.grant()
    number, _, _, stream = channel.expect_open()
    channel.send(OPENED, "I", number)
    assert finish(first) == 0
    stream.sendall(b"half")
    stream.close()
    # What came before is delivered or lost, but the end is none.
    with pytest.raises(ConnectionResetError):
        while first.recv(10):
            pass
    # A guest's reset is none either.
    guest, stream, _ = connected(m, channel)
    guest.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    guest.close()
    assert stream.recv(1) == b""
    third, stream, _ = connected(m, channel)
    third.send(b"x")
    assert stream.recv(1) == b"x"  # and no END was sent for the second one before


def test_what_stands_survives_the_channel_and_ends_with_its_stream(member):
    m = member()
    guest = connecting(m)
    m.wanted()
    channel = m.grant()
    number, _, _, stream = channel.expect_open()
    channel.send(OPENED, "I", number)
    assert finish(guest) == 0
    stream.sendall(b"last words")
    channel.send(END, "IB", number, 0)
    channel.end.close()
    stream.close()
    assert guest.recv(100) == b"last words"
    assert guest.recv(100) == b""


def test_a_member_reaches_the_guest(member):
    m = member()
    with listening(m, 8080) as server:
        channel = m.dial()
        stream = channel.open(7, 40001, 8080)
        accepted, peer = server.accept()
        assert peer == (PEER_ADDRESS, 40001)
        assert channel.receive()[0] == struct.pack("<BI", OPENED, 7)
        stream.sendall(b"request")
        assert accepted.recv(100) == b"request"
        accepted.sendall(b"answer")
        assert stream.recv(100) == b"answer"
        channel.send(END, "IB", 7, 1)
        stream.shutdown(socket.SHUT_WR)
        assert accepted.recv(1) == b""
        accepted.close()
        assert channel.receive()[0] == struct.pack("<BIB", END, 7, 0)
        assert stream.recv(1) == b""
    channel.open(8, 40002, 8081)
    assert channel.receive()[0] == struct.pack("<BIB", REFUSED, 8, 0)
    rules = [(one["rule"], one["detail"], one["port"]) for one in m.net.log()]
    assert ("network blue", "tcp, incoming", 8080) in rules


def test_a_member_that_waits_no_more(member):
    m = member()
    with listening(m, 8080) as server:
        channel = m.dial()
        channel.open(7, 40001, 8080)
        accepted, _ = server.accept()
        accepted.settimeout(20)
        channel.send(CANCEL, "I", 7)
        with pytest.raises(ConnectionResetError):
            accepted.recv(1)


def test_datagrams(member):
    m = member()
    guest = m.net.lab.socket("guest", kind=socket.SOCK_DGRAM)
    guest.connect((PEER_ADDRESS, 5353))
    guest.send(b"one")
    m.wanted()
    channel = m.grant()
    port = guest.getsockname()[1]
    assert channel.receive()[0] == struct.pack("<BHH", DATAGRAM, port, 5353) + b"one"
    channel.send(DATAGRAM, "HH", 5353, port, payload=b"back")
    assert guest.recv(100) == b"back"
    with listening(m, 7000, socket.SOCK_DGRAM) as server:
        channel.send(DATAGRAM, "HH", 6000, 7000, payload=b"new")
        assert server.recvfrom(100) == (b"new", (PEER_ADDRESS, 6000))
        server.sendto(b"answer", (PEER_ADDRESS, 6000))
        assert channel.receive()[0] == struct.pack("<BHH", DATAGRAM, 7000, 6000) + b"answer"


def test_datagrams_to_a_member_that_does_not_run(member):
    m = member()
    guest = m.net.lab.socket("guest", kind=socket.SOCK_DGRAM)
    guest.connect((PEER_ADDRESS, 5353))
    guest.send(b"one")
    m.wanted()
    m.refuse()
    with pytest.raises(OSError) as raised:
        guest.recv(100)
    assert raised.value.errno == 111


def test_a_datagram_that_nobody_takes_is_told_to_its_sender(member):
    m = member()
    channel = m.dial()
    # Of the other guest, to a port where this one has nobody.
    channel.send(DATAGRAM, "HH", 6000, 7001, payload=b"new")
    assert channel.receive()[0] == struct.pack("<BHH", UNHEARD, 7001, 6000)
    # The other way round.
    guest = m.net.lab.socket("guest", kind=socket.SOCK_DGRAM)
    guest.connect((PEER_ADDRESS, 5353))
    port = guest.getsockname()[1]
    other = m.net.lab.socket("guest", kind=socket.SOCK_DGRAM)
    other.connect((PEER_ADDRESS, 5353))
    for one in (guest, other):
        one.send(b"one")
        assert channel.receive()[0][-3:] == b"one"
    channel.send(UNHEARD, "HH", 5354, port)  # of no flow
    channel.send(UNHEARD, "HH", 5353, port)
    guest.settimeout(20)
    with pytest.raises(ConnectionRefusedError):
        guest.recv(100)
    channel.send(DATAGRAM, "HH", 5353, other.getsockname()[1], payload=b"back")
    assert other.recv(100) == b"back"


def raw_icmp(member):
    with member.net.lab.inside("guest"):
        try:
            made = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
        except PermissionError:
            pytest.skip("no raw sockets in this user namespace")
    made.settimeout(20)
    return made


def icmp_from(icmp, address):
    """The next ICMP message of that address."""
    while True:
        raw, (source, _) = icmp.recvfrom(65536)
        if source == address:
            return raw[20:]


def checksum(raw):
    total = sum(struct.unpack(f">{len(raw) // 2}H", raw))
    total = (total >> 16) + (total & 0xFFFF)
    return ~(total + (total >> 16)) & 0xFFFF


def echo_request(body):
    return struct.pack(">BBH", 8, 0, checksum(struct.pack(">HH", 0x0800, 0) + body)) + body


def test_echo_between_members(member):
    m = member()
    body = struct.pack(">HH", 77, 1) + b"some data of an echo...."
    with raw_icmp(m) as icmp:
        icmp.sendto(echo_request(body), (PEER_ADDRESS, 0))
        m.wanted()
        channel = m.grant()
        assert channel.receive()[0] == bytes([ECHO]) + body
        channel.send(ECHO_REPLY, payload=body)
        assert icmp_from(icmp, PEER_ADDRESS) == struct.pack(">BBH", 0, 0, checksum(struct.pack(">HH", 0, 0) + body)) + body
        # The guest's own kernel answers.
        for large in (body, struct.pack(">HH", 5, 5) + bytes(1400)):
            channel.send(ECHO, payload=large)
            assert channel.receive()[0] == bytes([ECHO_REPLY]) + large
        before = m.net.control.counters()["dropped_frames"]
        channel.send(ECHO, payload=struct.pack(">HH", 5, 5) + bytes(3000))  # larger than the link carries
        channel.send(ECHO, payload=body)
        assert channel.receive()[0] == bytes([ECHO_REPLY]) + body
        assert m.net.control.counters()["dropped_frames"] == before
        # Another member's address is nobody's.
        icmp.sendto(echo_request(body), ("198.18.0.9", 0))
        assert icmp_from(icmp, "198.18.0.9")[:2] == b"\x03\x0d"
    assert any(line["detail"] == "icmp" and line["allowed"] for line in m.net.log())


def test_echo_to_a_member_that_does_not_run(member):
    m = member()
    with raw_icmp(m) as icmp:
        icmp.sendto(echo_request(struct.pack(">HHQ", 77, 1, 0)), (PEER_ADDRESS, 0))
        m.wanted()
        m.refuse()
        assert icmp_from(icmp, PEER_ADDRESS)[:2] == b"\x03\x01"  # host unreachable
        icmp.sendto(echo_request(struct.pack(">HHQ", 77, 2, 0)), (PEER_ADDRESS, 0))
        assert icmp_from(icmp, PEER_ADDRESS)[:2] == b"\x03\x01"


def test_names(member):
    m = member()
    for name in ("peer.drupe.internal", "peer.fc.local", "PEER.blue.fc.local", f"{peers.PEER}.drupe.internal"):
        assert m.net.ask(name) == (0, [PEER_ADDRESS]), name
    assert m.net.ask("own.fc.local") == (0, [OWN_ADDRESS])
    assert m.net.ask("peer.drupe.internal", net_servers.AAAA) == (0, [])
    assert m.net.ask("stranger.drupe.internal")[0] == 3
    m.set_networks(peers.networks((peers.NETWORK, "blue", [(peers.OWN, "own", OWN_ADDRESS),
                                                           (peers.PEER, "new", PEER_ADDRESS, "alias", "other.blue")])))
    assert m.net.ask("peer.drupe.internal")[0] == 3
    for name in ("new.drupe.internal", "alias.drupe.internal", "other.blue.fc.local"):
        assert m.net.ask(name) == (0, [PEER_ADDRESS]), name
    assert m.net.ask("alias.blue.drupe.internal")[0] == 3


def test_nobody_else_is_reached(member):
    m = member()
    for address in ("198.18.0.4", "198.18.1.2", "198.18.0.1", "198.18.0.255", net_lab.SERVERS[0]):
        with pytest.raises(ConnectionRefusedError):
            m.net.connect(address, 80)
    assert not m.control.events
    assert all(not one["allowed"] for one in m.net.log())


def test_a_membership_that_ends(member):
    m = member()
    guest = connecting(m)
    m.wanted()
    channel = m.grant()
    number, *_ = channel.expect_open()
    channel.send(OPENED, "I", number)
    assert finish(guest) == 0
    with listening(m, 8080) as server:
        incoming = channel.open(7, 40001, 8080)
        accepted, _ = server.accept()
        accepted.settimeout(20)
        assert channel.receive()[0] == struct.pack("<BI", OPENED, 7)
        # The other one leaves; this one stays.
        m.set_networks(peers.networks((peers.NETWORK, "blue", [(peers.OWN, "own", OWN_ADDRESS)])))
        for one in (guest, accepted):
            with pytest.raises(ConnectionResetError):
                one.recv(1)
        assert channel.is_closed() and incoming.recv(1) == b""
    with pytest.raises(ConnectionRefusedError):
        m.net.connect(PEER_ADDRESS, 80)
    # Nor is it let in again.
    assert m.dial().is_closed()


def test_strangers_are_turned_away(member):
    m = member()
    assert m.dial(sandbox="000000000009").is_closed()
    assert m.dial(network="00000000000b").is_closed()
    rude = m.dial(hello=False)
    rude.end.send(b"\xff" * 40)
    assert rude.is_closed()
    silent = [m.dial(hello=False) for _ in range(40)]
    assert sum(one.is_closed() for one in silent[32:]) == 8
    # Those that say nothing do not keep others out for good.
    for one in silent:
        one.end.close()
    for _ in range(5):
        m.control.counters()  # their ends have been seen
    with listening(m, 8080) as server:
        channel = m.dial()
        channel.open(1, 2, 8080)
        assert server.accept()[1] == (PEER_ADDRESS, 2)


@pytest.mark.parametrize("raw", [
    b"", b"\x00", b"\x09", struct.pack("<BIHH", OPEN, 1, 2, 3), struct.pack("<BIHH", OPEN, 1, 0, 3),
    struct.pack("<BI", OPENED, 1) + b"x", struct.pack("<BIB", END, 1, 2), struct.pack("<BHH", DATAGRAM, 0, 1)])
def test_a_member_that_breaks_the_format_loses_its_channel(member, raw):
    m = member()
    channel = m.dial()
    if raw:
        channel.end.send(raw)
    else:
        channel.end.shutdown(socket.SHUT_WR)
    assert channel.is_closed()
    assert m.control.counters()["open_connections"] == 0


def test_only_streams_are_taken(member):
    m = member()
    for made in (lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0], lambda: open("/dev/null", "rb"),
                 lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM)):
        channel = m.dial()
        with made() as fd:
            channel.send(OPEN, "IHH", 1, 2, 3, fds=[fd])
        assert channel.is_closed()


def test_a_shared_stream_cannot_stop_it(member):
    """Whoever holds the stream as well may make it block; nothing here waits for it."""
    m = member()
    with listening(m, 8080) as server:
        channel = m.dial()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        channel.send(OPEN, "IHH", 7, 2, 8080, fds=[theirs])
        accepted, _ = server.accept()
        channel.receive()
        theirs.setblocking(True)
        ours.sendall(b"x")
        assert accepted.recv(1) == b"x"
        assert m.control.counters()["open_connections"] == 1
        ours.sendall(b"y")
        assert accepted.recv(1) == b"y"


def test_a_member_has_no_more_than_its_share(member):
    m = member()
    with listening(m, 8080):
        channel = m.dial()
        streams, answers = [], []
        for number in range(420):
            streams.append(channel.open(number, 1000 + number, 8080))
            answers.append(channel.receive()[0][0])
        assert answers == [OPENED] * 384 + [REFUSED] * 36
        # It has ended them: there is room again.
        for one in streams:
            one.close()
        deadline = time.monotonic() + 20
        while m.control.counters()["open_connections"] > 0:
            assert time.monotonic() < deadline
        channel.open(1000, 999, 8080)
        assert channel.receive()[0] == struct.pack("<BI", OPENED, 1000)


def test_a_member_that_begins_many_flows_ends_its_own(member):
    m = member()
    with listening(m, 7000, socket.SOCK_DGRAM) as server:
        channel = m.dial()
        for port in range(1, 151):
            channel.send(DATAGRAM, "HH", port, 7000, payload=b"x")
            assert server.recvfrom(10)[1] == (PEER_ADDRESS, port)
        # An answer to a flow that is there still begins none.
        for port, flows in ((150, 0), (23, 0), (22, 1)):
            server.sendto(b"y", (PEER_ADDRESS, port))
            assert channel.receive()[0] == struct.pack("<BHH", DATAGRAM, 7000, port) + b"y"
            assert sum(one["detail"] == "udp" for one in m.net.log()) == flows, port


def test_the_policy_towards_the_world_stays(member):
    m = member(spec=net_control.policy("good.example"))
    assert m.net.ask("good.example")[1] == [net_lab.SERVERS[0]]
    assert m.net.tls(net_lab.SERVERS[0], "good.example")
    with pytest.raises(OSError):
        m.net.connect(net_lab.SERVERS[2], 443)
    guest = connecting(m)
    m.wanted()
    channel = m.grant()
    number, *_ = channel.expect_open()
    channel.send(OPENED, "I", number)
    assert finish(guest) == 0
    # A new policy has nothing to say about members.
    m.control.set_policy(net_control.policy(mode=net_control.NONE))
    guest.send(b"x")
    assert m.control.counters()["open_connections"] == 1
    # A quota has.
    m.control.set_policy(net_control.policy(mode=net_control.NONE), quota=1)
    with pytest.raises(ConnectionResetError):
        guest.recv(1)


def test_a_configuration_with_wrong_members_is_refused(start):
    net = start(configure=False)
    twice = peers.networks(("a", "x", [("1", "", "198.18.0.2"), ("2", "", "198.18.0.2")]))
    with pytest.raises(net_control.NetError):
        net.configure(net_control.policy(), networks=twice)


def test_connections_come_and_go_without_growth(member):
    m = member()
    with listening(m, 8080) as server:
        channel = m.dial()

        def once(number):
            stream = channel.open(number, 20000 + number % 20000, 8080)
            accepted, _ = server.accept()
            assert channel.receive()[0] == struct.pack("<BI", OPENED, number)
            accepted.close()
            assert channel.receive()[0] == struct.pack("<BIB", END, number, 0)
            channel.send(END, "IB", number, 1)
            stream.close()

        def descriptors():
            import os
            return len(os.listdir(f"/proc/{m.net.process.pid}/fd"))

        for number in range(50):
            once(number)
        before = descriptors()
        for number in range(50, 1000):
            once(number)
        deadline = time.monotonic() + 20
        while descriptors() > before + 4:
            assert time.monotonic() < deadline, descriptors()
