"""What a guest reaches and what not, with Linux's own network stack as the guest."""
import errno
import socket
import ssl
import struct
import time

import net_control
import net_lab
import net_servers
import pytest

GOOD, DEEP, EVIL = net_lab.SERVERS[:3]
AT_ONCE = 0.1  # seconds


def refused(call, *args, errors=(errno.ECONNREFUSED,)):
    """Runs what must be refused at once."""
    begun = time.monotonic()
    with pytest.raises(OSError) as raised:
        call(*args)
    took = time.monotonic() - begun
    assert raised.value.errno in errors, raised.value
    assert took < AT_ONCE, took


def cut_off(peer):
    """True when the connection was reset or ended."""
    try:
        return peer.recv(1000) == b""
    except ConnectionResetError:
        return True


def test_an_allowed_name_reaches_its_server(start):
    net = start("good.example")
    assert net.ask("good.example") == (net_servers.NOERROR, [GOOD])
    assert net.tls(GOOD, "good.example") == "good.example ping"


def test_other_names_are_refused_at_once_and_never_leave(start, internet):
    net = start("good.example", "*.sub.example")
    begun = time.monotonic()
    for kind in (net_servers.A, net_servers.AAAA, net_servers.TXT):
        for name in ("evil.example", "data.data.evil.example", "good.example.evil.example", "sub.example"):
            assert net.ask(name, kind) == (net_servers.REFUSED, [])
    assert time.monotonic() - begun < 12 * AT_ONCE
    assert internet.resolver.asked == []
    assert net.ask("deep.sub.example")[1] == [DEEP]
    refusals = [line for line in net.log() if line["name"] == "evil.example"]
    assert refusals and not any(line["allowed"] for line in refusals)


def test_a_bare_address_is_refused(start):
    net = start("good.example")
    for port in (80, 443, 7777, 53, 853):
        refused(net.connect, EVIL, port)
    # Even that of an allowed name, before the guest has asked for it.
    refused(net.connect, GOOD, 443)
    net.ask("good.example")
    net.connect(GOOD, 443).close()
    entry = next(line for line in net.log() if line.get("address") == EVIL and line.get("port") == 443)
    assert not entry["allowed"] and entry["rule"] == "no rule"


def test_another_server_name_on_an_allowed_address_is_refused(start):
    net = start("good.example")
    net.ask("good.example")
    with pytest.raises((OSError, ssl.SSLError)):
        net.tls(GOOD, "evil.example")
    assert net.tls(GOOD, "good.example") == "good.example ping"
    lines = net.log()
    assert any(line["name"] == "evil.example" and not line["allowed"] and line["kind"] == "request" for line in lines), lines


def test_two_names_on_one_address_are_told_apart(start):
    net = start("good.example")
    # The other name leads to the same server and is not allowed.
    assert net.ask("other.example") == (net_servers.REFUSED, [])
    net.ask("good.example")
    with pytest.raises((OSError, ssl.SSLError)):
        net.tls(GOOD, "other.example")
    assert net.tls(GOOD, "good.example").startswith("good.example")


def get(peer, host):
    peer.sendall(f"GET / HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    head, rest = net_servers.read_head(peer)
    size = int(head.split(b"Content-Length: ")[1].split(b"\r\n")[0])
    while len(rest) < size:
        rest += peer.recv(1000)
    return rest


def test_every_http_request_of_a_connection_is_read(start):
    net = start("good.example")
    net.ask("good.example")
    with net.connect(GOOD, 80) as peer:
        assert get(peer, "good.example") == b"host good.example"
        assert get(peer, "good.example") == b"host good.example"
        peer.sendall(b"GET / HTTP/1.1\r\nHost: other.example\r\n\r\n")
        assert cut_off(peer)


def test_websocket_through_the_host_check(start):
    net = start("good.example")
    net.ask("good.example")
    with net.connect(GOOD, 80) as peer:
        peer.sendall(b"GET / HTTP/1.1\r\nHost: good.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                     b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n")
        head, _ = net_servers.read_head(peer)
        assert head.startswith(b"HTTP/1.1 101")
        for size in (1, 1000, 100000):
            raw = bytes(range(256)) * (size // 256 + 1)
            peer.sendall(raw)
            back = b""
            while len(back) < len(raw):
                back += peer.recv(65536)
            assert back == raw


def test_a_server_that_speaks_first(start):
    net = start("good.example:25")
    net.ask("good.example")
    with net.connect(GOOD, 25) as peer:
        assert peer.recv(100) == b"220 ready\r\n"
        peer.sendall(b"EHLO me\r\n")
        assert peer.recv(100) == b"250 hello\r\n"


@pytest.mark.parametrize("mode", [net_control.OPEN, net_control.POLICY])
def test_closed_addresses(start, mode):
    net = start(spec=net_control.policy("*", mode=net_control.POLICY) if mode == net_control.POLICY
                else net_control.policy(mode=mode))
    for address in net_lab.CLOSED + ["127.0.0.1", net_lab.HOST, "192.168.1.1"]:
        if address != "127.0.0.1":  # the guest's own
            refused(net.connect, address, 80)
    for port in (1, 22, 80, 443):
        refused(net.connect, net_lab.GATEWAY, port)
    assert get(net.connect(EVIL, 80), "evil.example") == b"host evil.example"
    rule = next(line["rule"] for line in net.log() if line.get("address") == "169.254.169.254")
    assert rule.startswith("closed: ")


def test_answers_that_lead_to_closed_addresses_are_dropped(start):
    net = start("rebind.example")
    assert net.ask("rebind.example")[1] == []
    refused(net.connect, "10.77.0.1", 80)


def test_a_private_range_that_was_opened(start):
    net = start(spec=net_control.policy("10.77.0.0/16", allow_private=["10.77.0.0/16"]))
    assert get(net.connect("10.77.0.1", 80), "anything") == b"host anything"
    refused(net.connect, "169.254.169.254", 80)


def test_mode_none(start, internet):
    net = start(spec=net_control.policy(mode=net_control.NONE))
    assert net.ask("good.example") == (net_servers.REFUSED, [])
    refused(net.connect, GOOD, 80)
    assert internet.resolver.asked == []


def test_ipv6_follows_the_policy(start, internet):
    if not internet.lab.ipv6:
        pytest.skip("this kernel has no IPv6")
    net = start("six.example")
    refused(net.connect, net_lab.SERVER6, 443)
    assert net.ask("six.example", net_servers.AAAA) == (net_servers.NOERROR, [net_lab.SERVER6])
    with net.connect(net_lab.SERVER6, 80) as peer:
        assert get(peer, "six.example") == b"host six.example"
    for address in ("::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1"):
        refused(net.connect, address, 80, errors=(errno.ECONNREFUSED, errno.ENETUNREACH, errno.EHOSTUNREACH))


def test_dns_over_tcp_and_truncated_answers(start, internet):
    net = start("good.example", "big.example")
    assert net.ask("big.example")[1] == [net_lab.SERVERS[3]]
    assert ("big.example", net_servers.A, "tcp") in internet.resolver.asked
    with net.connect(net_lab.GATEWAY, 53) as peer:
        questions = [net_servers.query(name, ident=ident) for ident, name in enumerate(["good.example", "evil.example"])]
        peer.sendall(b"".join(struct.pack(">H", len(one)) + one for one in questions))
        peer.shutdown(socket.SHUT_WR)
        raw = b""
        while part := peer.recv(4096):
            raw += part
    found = {}
    while raw:
        size, = struct.unpack(">H", raw[:2])
        found[raw[3]] = net_servers.addresses(raw[2:2 + size])
        raw = raw[2 + size:]
    assert found == {0: (net_servers.NOERROR, [GOOD]), 1: (net_servers.REFUSED, [])}


def test_a_resolver_that_is_silent_or_gone(start, internet):
    net = start("good.example")
    internet.resolver.silent = True
    begun = time.monotonic()
    assert net.ask("good.example")[0] == net_servers.SERVFAIL
    assert 4 < time.monotonic() - begun < 5
    internet.resolver.silent = False
    assert net.ask("good.example")[1] == [GOOD]


def test_a_second_resolver_takes_over(start):
    net = start("good.example", resolvers=[f"{net_lab.RESOLVER}:5353", net_lab.RESOLVER])
    begun = time.monotonic()
    assert net.ask("good.example")[1] == [GOOD]
    assert time.monotonic() - begun < 1


def test_resolvers_elsewhere_follow_the_policy(start):
    net = start("good.example")
    with net.lab.socket("guest", kind=socket.SOCK_DGRAM) as udp:
        udp.connect((net_lab.RESOLVER, 53))
        udp.send(net_servers.query("good.example"))
        with pytest.raises(OSError):
            udp.recv(1000)


def test_udp_by_rule(start):
    net = start(f"{GOOD}:7777")
    with net.lab.socket("guest", kind=socket.SOCK_DGRAM) as udp:
        udp.connect((GOOD, 7777))
        udp.send(b"ping")
        assert udp.recv(100) == b"ping"
        net.control.set_policy(net_control.policy("good.example"))
        udp.send(b"ping")
        udp.settimeout(2)
        with pytest.raises(OSError):
            udp.recv(100)


def test_half_close_both_ways(start):
    net = start(f"{GOOD}:7777")
    with net.connect(GOOD, 7777) as peer:
        raw = bytes(300000)
        peer.sendall(raw[:1000])
        assert peer.recv(2000)
        peer.shutdown(socket.SHUT_WR)
        assert peer.recv(100) == b""


def test_a_connection_that_the_world_refuses(start):
    net = start(f"{GOOD}:9999")
    refused(net.connect, GOOD, 9999)


def test_a_thousand_connections(start):
    net = start(f"{GOOD}:7777", "deep.sub.example")
    net.ask("deep.sub.example")
    peers = [net.connect(GOOD, 7777) for _ in range(1000)]
    try:
        # Memory is short now, and still a long beginning is held until it is judged.
        with net.connect(DEEP, 80) as late:
            filler = "".join(f"X-Filler-{number}: {'x' * 1000}\r\n" for number in range(28))
            late.sendall(f"GET / HTTP/1.1\r\n{filler}".encode())
            late.sendall(b"Host: deep.sub.example\r\n\r\n")
            assert net_servers.read_head(late)[1] == b"host deep.sub.example"
        assert net.control.counters()["open_connections"] in (1000, 1001)  # the late one may still be ending
        for number, peer in enumerate(peers):
            peer.sendall(b"%d" % number)
        for number, peer in enumerate(peers):
            assert peer.recv(100) == b"%d" % number
    finally:
        for peer in peers:
            peer.close()
    deadline = time.monotonic() + 20
    while net.control.counters()["open_connections"] and time.monotonic() < deadline:
        time.sleep(0.05)
    assert net.control.counters()["open_connections"] == 0


def test_many_half_closed_connections_are_freed(start):
    net = start(f"{GOOD}:7777")
    for _ in range(3):
        peers = [net.connect(GOOD, 7777) for _ in range(300)]
        for peer in peers:
            peer.shutdown(socket.SHUT_WR)
        for peer in peers:
            assert peer.recv(10) == b""
            peer.close()
    assert net.connect(GOOD, 7777)
