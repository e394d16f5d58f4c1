"""Ports of the host that lead into the guest."""
import socket
import threading
import time

import net_control
import net_lab
import net_servers
import pytest

HOST = net_lab.HOST
PORT, INSIDE = 18080, 8080


def dial(net, port=PORT):
    return net.lab.connect("host", HOST, port)


def test_a_published_port_reaches_the_guest(start):
    net = start("good.example", publications=[(HOST, PORT, INSIDE)])
    listener = net.lab.listen("guest", net_lab.GUEST, INSIDE)
    net_servers.echo_server(listener)
    for raw in (b"a", b"b" * 100_000):
        with dial(net) as peer:
            threading.Thread(target=peer.sendall, args=(raw,), daemon=True).start()
            back = b""
            while len(back) < len(raw):
                back += peer.recv(65536)
            assert back == raw
            peer.shutdown(socket.SHUT_WR)
            assert peer.recv(10) == b""
    listener.close()


def test_bytes_are_not_held_back(start):
    """What a server of events writes arrives as it is written."""
    net = start("good.example", publications=[(HOST, PORT, INSIDE + 1)])
    listener = net.lab.listen("guest", net_lab.GUEST, INSIDE + 1)
    with dial(net) as peer:
        server, _ = listener.accept()
        for number in range(50):
            begun = time.monotonic()
            server.sendall(b"data: %d\n\n" % number)
            assert peer.recv(100) == b"data: %d\n\n" % number
            assert time.monotonic() - begun < 0.1
        server.close()
    listener.close()


@pytest.mark.parametrize("clients", [1, 40])
def test_a_server_that_starts_late(start, clients):
    net = start("good.example", publications=[(HOST, PORT, INSIDE + 2)])
    peers = [dial(net) for _ in range(clients)]
    for peer in peers:
        peer.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    time.sleep(1.5)  # the server is late
    listener = net.lab.listen("guest", net_lab.GUEST, INSIDE + 2)
    begun = time.monotonic()
    first, _ = listener.accept()
    assert first.recv(3) == b"GET"
    assert time.monotonic() - begun < 0.1
    others = [listener.accept()[0] for _ in range(clients - 1)]
    assert time.monotonic() - begun < 0.5
    for server in [first, *others]:
        server.sendall(b"hello")
    for peer in peers:
        assert peer.recv(10) == b"hello"
        peer.close()
    listener.close()


def test_a_port_in_use_is_told(start):
    holder = start("good.example", publications=[(HOST, PORT, INSIDE)])
    net = start("good.example", configure=False)
    with pytest.raises(net_control.NetError) as raised:
        net.configure(net_control.policy(), publications=[(HOST, PORT, INSIDE)])
    assert str(PORT) in raised.value.message and raised.value.errno == 98
    assert raised.value.code == "already_exists"
    assert holder.process.poll() is None


def test_waiting_connections_are_bounded(start):
    net = start("good.example", publications=[(HOST, PORT, 9)])
    peers, gone = [], 0
    for _ in range(120):
        try:
            peers.append(dial(net))
        except ConnectionResetError:
            gone += 1
    time.sleep(0.5)
    for peer in peers:
        peer.setblocking(False)
        try:
            peer.recv(1)
            gone += 1
        except BlockingIOError:
            pass
        except ConnectionResetError:
            gone += 1
        peer.close()
    assert 120 - 66 <= gone < 120


def test_mode_none_leaves_publications(start):
    net = start(spec=net_control.policy(mode=net_control.NONE), publications=[(HOST, PORT, INSIDE + 3)])
    listener = net.lab.listen("guest", net_lab.GUEST, INSIDE + 3)
    with dial(net) as peer:
        server, _ = listener.accept()
        server.sendall(b"x")
        assert peer.recv(1) == b"x"
        server.close()
    listener.close()
