"""What drupe-net does as its control socket says."""
import os
import socket
import struct
import time

import net_control
import net_lab
import net_servers
import pytest
from test_net_egress import cut_off, get, refused

GOOD, OTHER = net_lab.SERVERS[:2]


def test_the_first_request_must_be_a_configuration(start):
    net = start("good.example", configure=False)
    with pytest.raises(net_control.NetError) as raised:
        net.control.set_policy(net_control.policy())
    assert raised.value.code == "invalid_state"
    assert net.configure(net_control.policy("good.example")) is not None
    with pytest.raises(net_control.NetError):
        net.configure(net_control.policy())


def test_a_policy_that_does_not_compile_changes_nothing(start):
    net = start("good.example")
    net.ask("good.example")
    with net.connect(GOOD, 80) as peer:
        assert get(peer, "good.example")
        with pytest.raises(net_control.NetError) as raised:
            net.control.set_policy(net_control.policy("fine.example", "ex ample.com"))
        assert raised.value.code == "invalid_argument"
        assert "column" in raised.value.message and "ex ample.com" in raised.value.message
        assert get(peer, "good.example")
    with pytest.raises(net_control.NetError) as raised:
        net.control.set_policy(b"rubbish")
    assert raised.value.code == "integrity"


def test_a_new_policy_ends_connections_before_it_is_answered(start):
    net = start(f"{OTHER}:7777", "good.example")
    net.ask("good.example")
    with net.connect(OTHER, 7777) as by_address, net.connect(GOOD, 80) as by_name:
        by_address.sendall(b"x")
        assert by_address.recv(1) == b"x"
        assert get(by_name, "good.example")
        net.control.set_policy(net_control.policy("good.example"))
        assert net.control.counters()["open_connections"] == 1
        assert cut_off(by_address)
        assert get(by_name, "good.example")
        refused(net.connect, OTHER, 7777)
        net.control.set_policy(net_control.policy("other.example"))
        assert net.control.counters()["open_connections"] == 0
        assert cut_off(by_name)
    assert any(line.get("detail") == "ended by a new policy" for line in net.log())


def test_a_hundred_policies_while_traffic_flows(start):
    """Between two policies that both allow a connection it goes on; one that neither allows never opens."""
    net = start("good.example:7777")
    net.ask("good.example")
    with net.connect(GOOD, 7777) as peer:
        for number in range(100):
            net.control.set_policy(net_control.policy("good.example:7777", f"extra{number}.example"))
            peer.sendall(b"x" * 1000)
            refused(net.connect, net_lab.SERVERS[2], 7777)
            size = 0
            while size < 1000:
                size += len(peer.recv(1000))


def test_the_log_is_paged(start):
    net = start("good.example")
    for number in range(30):
        net.ask(f"n{number}.evil.example")
    lines, last, lost = net.control.log(limit=10)
    assert len(lines) == 10 and last == 10 and lost == 0
    assert [line["seq"] for line in lines] == list(range(1, 11))
    rest, last, lost = net.control.log(after=last)
    assert len(rest) == 20 and lost == 0
    assert net.control.log(after=last) == ([], last, 0)
    # What an earlier process has counted means nothing here.
    assert len(net.control.log(after=5000)[0]) == 30


def test_counters(start):
    net = start(f"{GOOD}:7777")
    before = net.control.counters()
    with net.connect(GOOD, 7777) as peer:
        peer.sendall(bytes(5000))
        size = 0
        while size < 5000:
            size += len(peer.recv(5000))
        now = net.control.counters()
    assert now["bytes_out"] - before["bytes_out"] == 5000
    assert now["bytes_in"] - before["bytes_in"] == 5000
    assert now["open_connections"] == 1
    refused(net.connect, GOOD, 80)
    assert net.control.counters()["refused"] == before["refused"] + 1


def test_a_quota_ends_everything(start):
    net = start(f"{GOOD}:7777", quota=100_000, used=50_000)
    with net.connect(GOOD, 7777) as peer:
        peer.sendall(bytes(10_000))
        size = 0
        while size < 10_000:
            size += len(peer.recv(10_000))
        with pytest.raises(OSError):
            peer.sendall(bytes(200_000))
            while peer.recv(65536):
                pass
            raise ConnectionResetError  # an orderly end is an end as well
    refused(net.connect, GOOD, 7777)
    assert any(line["rule"].startswith("quota: 100000 bytes") and not line["allowed"] for line in net.log())
    net.control.set_policy(net_control.policy(f"{GOOD}:7777"), quota=10_000_000)
    net.connect(GOOD, 7777).close()


def test_connections_of_an_earlier_process_are_reset(start):
    first = start(f"{GOOD}:7777")
    peer = first.connect(GOOD, 7777)
    peer.sendall(b"x")
    assert peer.recv(1) == b"x"
    flows = first.control.flows()
    first.kill()
    second = start(f"{GOOD}:7777", flows=flows)
    with pytest.raises(ConnectionResetError):
        peer.recv(1)
    with second.connect(GOOD, 7777) as fresh:
        fresh.sendall(b"y")
        assert fresh.recv(1) == b"y"


@pytest.fixture
def ledger():
    made = net_control.Ledger()
    yield made
    made.close()


def test_a_killed_process_leaves_what_the_next_one_needs(start, ledger):
    """Connections that only wait are reset, whoever has begun them; what was used stays used; the log goes on."""
    rules = (f"{GOOD}:7777", f"{OTHER}:7777")
    first = start(*rules, quota=1_000_000, used=1000, ledger=ledger, publications=[(net_lab.HOST, 9200, 9200)])
    waiting = [first.connect(address, 7777) for address in (GOOD, OTHER)]
    ended = first.connect(GOOD, 7777)
    ended.close()
    for peer in waiting:
        peer.sendall(b"x" * 100)
        assert peer.recv(100, socket.MSG_WAITALL) == b"x" * 100
    with first.lab.listen("guest", net_lab.GUEST, 9200) as server:
        client = first.lab.connect("world", net_lab.HOST, 9200)
        served, _ = server.accept()
        refused(first.connect, net_lab.SERVERS[2], 7777)
        log = first.log()
        assert ledger.used() >= 1400
        first.kill()
        second = start(*rules, quota=1_000_000, used=ledger.used(), ledger=ledger)
        for peer in [*waiting, served]:
            with peer:
                peer.settimeout(20)
                with pytest.raises(ConnectionResetError):
                    peer.recv(1)
        # The poke of a connection that has ended must not look like a new one to who listens.
        server.settimeout(0.2)
        with pytest.raises(TimeoutError):
            server.accept()
        client.close()
    again = second.log()
    assert again[:len(log)] == log
    with second.connect(GOOD, 7777) as fresh:
        fresh.sendall(b"y")
        assert fresh.recv(1) == b"y"
    lines, last, lost = second.control.log(after=log[-1]["seq"])
    assert lost == 0 and lines and lines[0]["seq"] == log[-1]["seq"] + 1 and last == lines[-1]["seq"]


@pytest.mark.parametrize("byte", [b"\xff", b"\x04", b"\x06", b"\x01"])
def test_a_ledger_of_anything(start, ledger, byte):
    ledger.fill(byte)
    net = start(f"{GOOD}:7777", ledger=ledger)
    with net.connect(GOOD, 7777) as peer:
        peer.sendall(b"y")
        assert peer.recv(1) == b"y"
    assert net.log()


def test_other_memory_is_no_ledger(start):
    class Growing:
        fd = os.memfd_create("ledger", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)

    net = start("good.example", configure=False)
    with pytest.raises(net_control.NetError):
        net.configure(net_control.policy("good.example"), ledger=Growing)
    os.close(Growing.fd)


def test_an_address_that_was_known_before_a_save_stays_usable(start, internet):
    first = start("good.example:7777", "other.example:7777")
    assert first.ask("good.example")[1] == [GOOD]
    assert first.ask("other.example")[1] == [GOOD]
    saved = first.control.flows()
    first.kill()
    second = start("good.example:7777", flows=saved)
    internet.resolver.asked.clear()
    with second.connect(GOOD, 7777) as peer:
        peer.sendall(b"x" * 1000)
        assert peer.recv(1)
    assert internet.resolver.asked == []
    second.kill()
    # Whoever goes on has a policy of its own.
    third = start("fine.example:7777", flows=saved)
    refused(third.connect, GOOD, 7777)


@pytest.mark.parametrize("saved", [b"rubbish", b"DNET\x01\0\0\0\0\0\xff\xff\xff\xff"])
def test_what_was_saved_is_rubbish(start, saved):
    net = start(f"{GOOD}:7777", flows=saved)
    net.connect(GOOD, 7777).close()


def test_resolvers_are_replaced_and_the_policy_is_not(start, internet):
    net = start("good.example", resolvers=[f"{net_lab.RESOLVER}:5353"])
    assert net.ask("good.example")[0] == net_servers.SERVFAIL
    net.control.set_resolvers(net_lab.RESOLVER)
    assert net.ask("good.example")[1] == [GOOD]
    refused(net.connect, net_lab.RESOLVER, 53)
    with pytest.raises(net_control.NetError):
        net.control.set_resolvers("resolver.example")
    assert net.ask("good.example")[1] == [GOOD]


def test_a_question_under_way_goes_to_the_new_resolver(start, internet):
    """The host was suspended or has changed its network: the old resolver is silent."""
    net = start("good.example")
    internet.resolver.silent = True
    with net.lab.socket("guest", kind=socket.SOCK_DGRAM) as udp:
        udp.settimeout(20)
        udp.connect((net_lab.GATEWAY, 53))
        udp.send(net_servers.query("good.example"))
        while not internet.resolver.asked:
            time.sleep(0.01)
        second = net_servers.Resolver(net.lab, net_lab.SERVERS[5])
        second.zone["good.example"] = [GOOD]
        net.control.set_resolvers(net_lab.SERVERS[5])
        assert net_servers.addresses(udp.recv(4096)) == (0, [GOOD])
        assert second.asked


def test_published_ports_are_closed_at_once(start):
    net = start("good.example", publications=[(net_lab.HOST, 9201, 9201)])
    with net.lab.listen("guest", net_lab.GUEST, 9201) as server:
        client = net.lab.connect("world", net_lab.HOST, 9201)
        served, _ = server.accept()
    late = net.lab.connect("world", net_lab.HOST, 9201)  # nobody listens any more: it waits
    net.control.set_policy(net_control.policy(mode=net_control.NONE), unpublish=True)
    for peer in (client, served, late):
        with peer:
            peer.settimeout(20)
            assert cut_off(peer)
    with pytest.raises(ConnectionRefusedError):
        net.lab.connect("world", net_lab.HOST, 9201)


def test_a_new_address_of_the_host_is_closed(start, internet):
    net = start(spec=net_control.policy(mode=net_control.OPEN))
    address = net_lab.SERVERS[9]
    with internet.lab.inside("host"):
        net_lab._ip("addr", "add", f"{address}/32", "dev", "lo")
    try:
        listener = internet.lab.listen("host", address, 8081)
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline:
            try:
                net.connect(address, 8081).close()
            except ConnectionRefusedError:
                break
        refused(net.connect, address, 8081)
        listener.close()
    finally:
        with internet.lab.inside("host"):
            net_lab._ip("addr", "del", f"{address}/32", "dev", "lo")


def test_it_is_confined(start):
    net = start("good.example")
    status = dict(line.split(":\t", 1) for line in open(f"/proc/{net.process.pid}/status").read().splitlines() if ":\t" in line)
    assert status["NoNewPrivs"] == "1"
    assert status["CapEff"].strip("0") == "" and status["CapPrm"].strip("0") == ""
    assert status["Seccomp"] == "2"
    assert status["Threads"] == "1"
    assert os.stat(f"/proc/{net.process.pid}/fd").st_uid != os.getuid() or os.getuid() == 0
    assert not [line for line in net.ready if "Landlock" not in line], net.ready


def test_it_ends_with_its_control_socket_and_with_a_broken_record(start):
    net = start("good.example")
    assert net.close() == 0
    net.close = lambda: 0
    other = start("good.example")
    other.control.end.sendall(b"\xff\xff\xff\xff")
    assert other.process.wait(10) == 1
    other.bridge.close()
    other.link.close()
    other.close = lambda: 0


@pytest.mark.parametrize("raw", [b"", b"\x01", b"\x09\x00", b"\x01\x00", b"\x02\x00" + b"\xff" * 40])
def test_requests_that_mean_nothing_are_answered(start, raw):
    net = start("good.example")
    net.control.end.sendall(struct.pack("<II", 4 + len(raw), 77) + raw)
    with pytest.raises(net_control.NetError):
        net.control.answer(77)
    assert net.control.counters()


def test_ping_of_the_gateway(start):
    net = start("good.example")
    with net.lab.inside("guest"):
        try:
            icmp = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
        except PermissionError:
            pytest.skip("no raw sockets in this user namespace")
    with icmp:
        icmp.settimeout(5)
        # Echo request, identifier 1, sequence 1; the checksum of these eight bytes.
        icmp.sendto(b"\x08\x00\xf7\xfd\x00\x01\x00\x01", (net_lab.GATEWAY, 0))
        assert icmp.recv(100)[20:22] == b"\x00\x00"
