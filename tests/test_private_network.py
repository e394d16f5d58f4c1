"""Private networks between sandboxes, with real guests: who reaches whom, and what becomes of it while members pause,
resume, fork, are renamed, join, leave and are killed."""

import json
import os
import secrets
import signal
import subprocess

import pytest

from conftest import BINARY, IMAGE, Box, box_maker, eventually
from test_network import connect, log, names, net_box, net_drupe, web  # noqa: F401

pytestmark = pytest.mark.skipif(not BINARY.parent.joinpath("drupe-net").exists(), reason="build/bin/drupe-net is not built")

PORT = 8000
# Says who asks, so that source addresses can be looked at; /hold keeps the connection open.
SERVE = f"""
import http.server, socketserver, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers()
        self.wfile.write(('%s from %s' % (sys.argv[1], self.client_address[0])).encode())
        if self.path == '/hold':
            self.wfile.flush(); self.rfile.read(1)
    def log_message(self, *words): pass
class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    request_queue_size = 512
print('ready', flush=True)
Server(('0.0.0.0', {PORT}), Handler).serve_forever()
"""
AT_ONCE = 10  # Seconds; a refusal that does not come is a time-out of the client's own, after 60.


@pytest.fixture
def network(drupe):
    """Makes networks that go with the test."""
    made = []

    def make():
        name = f"net-{secrets.token_hex(4)}"
        made.append(name)
        assert drupe("network", "create", name).text == f"{name}\n"
        return name

    yield make
    for name in made:
        drupe("network", "rm", "--force", name, code=None)


@pytest.fixture
def boxes(new_box, network):
    """new_box() behind network(), so that the networks are removed when nobody is in them any more."""
    return new_box


def serve(box, word):
    box.exec("python3", "-c", SERVE, word, flags=("-d",))
    eventually(lambda: box.sh(f"ss -ltn 2>/dev/null | grep -q :{PORT} || python3 -c 'import socket; "
                              f"socket.create_connection((\"127.0.0.1\", {PORT}))'", code=None).code == 0,
               60, "the server in the guest")


GET = """
import sys, time, socket, urllib.request
begun = time.monotonic()
try:
    out = 'ok ' + urllib.request.urlopen('http://%s:%s/' % tuple(sys.argv[1:3]), timeout=60).read().decode()
except OSError as error:
    reason = getattr(error, 'reason', error)
    out = 'failed %s' % ('name' if isinstance(reason, socket.gaierror) else reason.errno or reason)
print('%.3f' % (time.monotonic() - begun), out)
"""


def get(box, host, port=PORT):
    """("ok ..." | "failed ERRNO", seconds)"""
    seconds, outcome = box.exec("python3", "-c", GET, host, str(port)).text.strip().split(" ", 1)
    return outcome, float(seconds)


def refused(box, host, *errnos):
    outcome, seconds = get(box, host)
    assert outcome in {f"failed {errno}" for errno in errnos or (111,)}, outcome
    assert seconds < AT_ONCE
    return outcome


def listing(drupe, name):
    return next(one for one in json.loads(drupe("network", "ls", "--json").out) if one["name"] == name)


def address(box, name):
    return next(one["address"] for one in box.info()["networks"] if one["name"] == name)


def test_members_reach_each_other(drupe, network, boxes):
    blue = network()
    one, two = boxes("--network", blue), boxes("--network", blue)
    serve(two, "two")
    own = address(one, blue)
    ident = two.info()["summary"]["id"]
    for host in (address(two, blue), f"{two.name}.drupe.internal", f"{two.name}.fc.local", f"{two.name}.{blue}.fc.local",
                 f"{ident}.drupe.internal", f"{ident}.fc.local"):
        assert get(one, host)[0] == f"ok two from {own}", host
    # The other way, itself, and names that mean nobody.
    refused(two, f"{one.name}.drupe.internal")
    assert get(two, f"{two.name}.drupe.internal")[0] == f"ok two from {address(two, blue)}"
    for host in ("stranger.drupe.internal", two.name):
        assert get(one, host)[0] == "failed name"
    members = {member["name"]: member for member in listing(drupe, blue)["members"]}
    assert members[two.name] == {"sandbox": ident, "name": two.name, "address": address(two, blue), "state": "running"}
    assert two.name in drupe("network", "ls").text
    # Both sides say so in their logs, and by which rule.
    sent = [entry for entry in log(one) if entry["kind"] == "connection"]
    assert all(entry["rule"] == f"network {blue}" for entry in sent) and sent
    assert any(entry["name"] == two.name and entry["port"] == PORT for entry in sent)
    got = [entry for entry in log(two) if entry.get("detail") == "tcp, incoming"]
    assert got and all(entry["name"] in (one.name, two.name) and entry["rule"] == f"network {blue}" for entry in got)
    assert f"(network {blue})" in drupe("net", "log", one.name).text


def test_much_passes_both_ways(network, boxes):
    blue = network()
    one, two = boxes("--network", blue), boxes("--network", blue)
    two.exec("python3", "-c", f"""
import socket, hashlib
server = socket.create_server(('0.0.0.0', {PORT}))
print('ready', flush=True)
peer, _ = server.accept()
total = b''
while part := peer.recv(1 << 20): total += part
peer.sendall(hashlib.sha256(total).digest() + total)
""", flags=("-d",))
    digest = eventually(lambda: one.exec("python3", "-c", f"""
import hashlib, os, socket
peer = socket.create_connection(('{two.name}.drupe.internal', {PORT}))
raw = os.urandom(8 << 20)
peer.sendall(raw); peer.shutdown(socket.SHUT_WR)
back = b''
while part := peer.recv(1 << 20): back += part
print(back == hashlib.sha256(raw).digest() + raw)
""", code=None).text.strip(), 60)
    assert digest == "True"


def test_datagrams(network, boxes):
    blue = network()
    one, two = boxes("--network", blue), boxes("--network", blue)
    two.exec("python3", "-c", f"""
import socket
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(('0.0.0.0', {PORT}))
while True:
    raw, peer = server.recvfrom(2000)
    server.sendto(raw + b' from ' + peer[0].encode(), peer)
""", flags=("-d",))
    outcome = one.exec("python3", "-c", f"""
import socket, time
client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
client.connect(('{address(two, blue)}', {PORT}))
client.settimeout(0.5)
for _ in range(60):
    try:
        client.send(b'hello'); print(client.recv(2000).decode()); break
    except (TimeoutError, ConnectionRefusedError): pass
""").text.strip()
    assert outcome == f"hello from {address(one, blue)}"


def test_nobody_else_is_reached(drupe, network, boxes, box):
    blue, red = network(), network()
    one, two, other = boxes("--network", blue), boxes("--network", red), boxes("--net", "open")
    for target in (one, two):
        serve(target, "x")
    refused(one, address(two, red))
    refused(two, address(one, blue))
    refused(other, address(one, blue), 111, 113)
    refused(box, address(one, blue), 101)
    assert get(two, f"{one.name}.drupe.internal")[0] == "failed name"
    # What every guest calls itself is itself.
    assert get(one, "198.19.254.2")[0].startswith("ok")
    # An address of the network that nobody has.
    refused(one, address(one, blue).rsplit(".", 1)[0] + ".200")


def test_a_sandbox_in_two_networks(network, boxes):
    blue, red = network(), network()
    both, one, two = boxes("--network", blue, "--network", red), boxes("--network", blue), boxes("--network", red)
    serve(both, "both")
    assert get(one, f"{both.name}.drupe.internal")[0] == f"ok both from {address(one, blue)}"
    assert get(two, f"{both.name}.drupe.internal")[0] == f"ok both from {address(two, red)}"
    # It joins them for itself, not for others.
    refused(one, address(both, red))


def test_the_policy_to_the_world_stays(network, net_box, web):  # noqa: F811
    blue = network()
    open_one = net_box("--network", blue, "--allow-private", web.address, "--allow", f"{web.address}:{web.port}")
    none = net_box("--network", blue)
    serve(open_one, "open")
    assert connect(open_one, web.address, web.port)[0] == "ok hello"
    outcome, seconds = connect(none, web.address, web.port)
    assert outcome.startswith("failed") and seconds < AT_ONCE
    assert get(none, f"{open_one.name}.drupe.internal")[0].startswith("ok open")
    assert get(none, "allowed.drupe.test")[0] == "failed name"
    # And the other way round: what is said of the world does not touch the network.
    none.drupe("net", "set", "--net", "none", open_one.name)
    assert connect(open_one, web.address, web.port)[0].startswith("failed")
    assert get(none, f"{open_one.name}.drupe.internal")[0].startswith("ok open")


def hold(client, host):
    """A connection that stays open; the process prints when it has begun and how it ended."""
    process = client.drupe.popen("exec", client.name, "python3", "-c", f"""
import socket
peer = socket.create_connection(('{host}', {PORT}), 60)
peer.settimeout(None)
peer.sendall(b'GET /hold HTTP/1.0\\r\\n\\r\\n')
peer.recv(1); print('held', flush=True)
try:
    while peer.recv(1000): pass
    print('ended')
except OSError as error:
    print('failed', error.errno)
""", stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"held\n"
    return process


def end_of(process):
    try:
        return process.communicate(timeout=60)[0].decode().strip()
    finally:
        process.kill()
        process.communicate()


def test_joining_and_leaving_while_running(drupe, network, boxes):
    blue = network()
    one, two = boxes("--network", blue), boxes()
    serve(two, "two")
    assert two.info()["networks"] == []
    assert drupe("network", "connect", blue, two.name).text == f"{two.name}\n"
    assert get(one, f"{two.name}.drupe.internal")[0] == f"ok two from {address(one, blue)}"
    refused(two, f"{one.name}.fc.local")
    drupe("network", "connect", blue, two.name)  # once more changes nothing
    held = hold(one, f"{two.name}.drupe.internal")
    there = address(two, blue)
    drupe("network", "disconnect", blue, two.name)
    assert end_of(held) == "failed 104"
    refused(one, there)
    assert get(one, f"{two.name}.drupe.internal")[0] == "failed name"
    # The one that leaves learns it as well.
    drupe("network", "connect", blue, two.name)
    serve(one, "one")
    held = hold(two, f"{one.name}.drupe.internal")
    drupe("network", "disconnect", blue, two.name)
    assert end_of(held) == "failed 104"
    # It has no network at all again.
    refused(two, address(one, blue), 101)
    assert two.info()["live"]["network_pid"] == 0
    assert "not in the network" in drupe("network", "disconnect", blue, two.name, code=1).error


def test_removal_is_refused_while_there_are_members(drupe, network, boxes):
    blue = network()
    one, two = boxes("--network", blue), boxes("--network", blue)
    error = drupe("network", "rm", blue, code=1).error
    assert one.name in error and two.name in error and "disconnect" in error
    serve(two, "two")
    held = hold(one, f"{two.name}.drupe.internal")
    drupe("rm", "-f", two.name)
    assert end_of(held) in ("failed 104", "ended")
    error = drupe("network", "rm", blue, code=1).error
    assert one.name in error and two.name not in error
    drupe("network", "rm", "--force", blue)
    assert one.info()["networks"] == [] and one.state == "running"
    assert "no network" in drupe("network", "rm", blue, code=1).error
    # Members that are gone are no members.
    red = network()
    three = boxes("--network", red)
    drupe("rm", "-f", three.name)
    drupe("network", "rm", red)


def test_pause_and_resume(drupe, network, boxes):
    blue = network()
    one, two = boxes("--network", blue), boxes("--network", blue)
    serve(two, "two")
    there = address(two, blue)
    held = hold(one, there)
    drupe("pause", two.name)
    assert end_of(held) == "failed 104"
    refused(one, there)
    assert get(one, f"{two.name}.drupe.internal")[0] == "failed 111"
    drupe("resume", two.name)
    assert address(two, blue) == there
    assert get(one, there)[0].startswith("ok two")
    # What happens meanwhile is there when it goes on.
    drupe("pause", two.name)
    three = boxes("--network", blue)
    drupe("network", "disconnect", blue, one.name)
    drupe("resume", two.name)
    refused(one, there, 101)
    assert get(three, there)[0] == f"ok two from {address(three, blue)}"
    # Stopped and started: the same member.
    drupe("stop", "-t", "0", two.name)
    refused(three, there)
    drupe("start", two.name)
    assert address(two, blue) == there
    serve(two, "again")
    assert get(three, there)[0].startswith("ok again")


def test_a_fork_is_a_member_of_its_own(drupe, network, boxes):
    blue = network()
    parent, other = boxes("--network", blue), boxes("--network", blue)
    serve(parent, "served")
    serve(other, "other")
    held = hold(other, f"{parent.name}.drupe.internal")
    child = Box(drupe, f"test-{secrets.token_hex(4)}")
    boxes.names.append(child.name)
    drupe("fork", "--name", child.name, parent.name)
    assert len({address(one, blue) for one in (parent, child, other)}) == 3
    # Both serve what they served, each at its own address, and know each other's names at once.
    for client, server in ((other, parent), (other, child), (parent, child), (child, parent)):
        assert get(client, f"{server.name}.drupe.internal")[0] == f"ok served from {address(client, blue)}"
    assert get(child, f"{other.name}.fc.local")[0] == f"ok other from {address(child, blue)}"
    # The parent's connection goes on.
    assert held.poll() is None
    parent.drupe("pause", parent.name)
    assert end_of(held) == "failed 104"


def test_connections_of_a_fork_are_reset(drupe, network, boxes):
    blue = network()
    parent, other = boxes("--network", blue), boxes("--network", blue)
    serve(other, "other")
    parent.exec("python3", "-c", f"""
import socket
peer = socket.create_connection(('{other.name}.drupe.internal', {PORT}), 60)
peer.settimeout(None)
peer.sendall(b'GET /hold HTTP/1.0\\r\\n\\r\\n')
peer.recv(1)
open('/tmp/held', 'w').close()
try:
    while peer.recv(1000): pass
    outcome = 'ended'
except OSError as error:
    outcome = 'failed %s' % error.errno
open('/tmp/outcome', 'w').write(outcome)
""", flags=("-d",))
    eventually(lambda: parent.sh("test -e /tmp/held", code=None).code == 0, 60)
    child = Box(drupe, f"test-{secrets.token_hex(4)}")
    boxes.names.append(child.name)
    drupe("fork", "--name", child.name, parent.name)
    assert eventually(lambda: child.sh("cat /tmp/outcome", code=None).text, 60) == "failed 104"
    assert parent.sh("test ! -e /tmp/outcome").code == 0


def test_another_name(drupe, network, boxes):
    blue = network()
    one, two = boxes("--network", blue), boxes("--network", blue)
    serve(two, "two")
    before, after = two.name, f"test-{secrets.token_hex(4)}"
    boxes.names.append(after)
    drupe("rename", before, after)
    assert get(one, f"{after}.drupe.internal")[0].startswith("ok two")
    assert get(one, f"{before}.drupe.internal")[0] == "failed name"


@pytest.mark.parametrize("whose", ["client", "server"])
def test_a_killed_network_process_comes_back(network, boxes, whose):
    blue = network()
    one, two = boxes("--network", blue), boxes("--network", blue)
    serve(two, "two")
    held = hold(one, f"{two.name}.drupe.internal")
    victim = one if whose == "client" else two
    pid = victim.info()["live"]["network_pid"]
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: victim.info()["live"]["network_pid"] not in (0, pid), 30, "another network process")
    assert eventually(lambda: get(one, f"{two.name}.drupe.internal")[0].startswith("ok two"), 30)
    if whose == "server":
        assert end_of(held) == "failed 104"
    else:
        # Its own guest learns it when it sends; the other side has learnt it.
        held.kill()
        held.communicate()


def test_a_killed_member_is_gone_at_once(network, boxes):
    blue = network()
    one, two = boxes("--network", blue), boxes("--network", blue)
    serve(two, "two")
    there = address(two, blue)
    held = hold(one, there)
    os.kill(two.info()["live"]["hypervisor_pid"], signal.SIGKILL)
    assert end_of(held) == "failed 104"
    refused(one, there)


def test_many_memberships_and_connections_leave_nothing(drupe, network, boxes):
    blue = network()
    one, two = boxes("--network", blue), boxes("--network", blue)
    serve(two, "two")

    def descriptors(box):
        return len(os.listdir(f"/proc/{box.info()['live']['network_pid']}/fd"))

    def shim_descriptors(box):
        status = open(f"/proc/{box.info()['live']['network_pid']}/status").read()
        parent = next(line.split()[1] for line in status.splitlines() if line.startswith("PPid:"))
        return len(os.listdir(f"/proc/{parent}/fd"))

    def many(count):
        one.exec("python3", "-c", f"""
import socket
for _ in range({count}):
    with socket.create_connection(('{two.name}.drupe.internal', {PORT}), 60) as peer:
        peer.sendall(b'GET / HTTP/1.0\\r\\n\\r\\n')
        while peer.recv(1000): pass
""", timeout=300)

    many(20)
    before = [descriptors(box) for box in (one, two)]
    shims = [shim_descriptors(box) for box in (one, two)]
    many(1000)
    eventually(lambda: all(descriptors(box) <= old + 4 for box, old in zip((one, two), before)), 30,
               "as few descriptors as before")
    for _ in range(10):
        drupe("network", "disconnect", blue, two.name)
        drupe("network", "connect", blue, two.name)
        assert get(one, f"{two.name}.drupe.internal")[0].startswith("ok two")
    eventually(lambda: all(descriptors(box) <= old + 4 for box, old in zip((one, two), before)), 30,
               "as few descriptors as before")
    assert [shim_descriptors(box) for box in (one, two)] <= [old + 2 for old in shims]


def test_mistakes(drupe, network, boxes):
    blue = network()
    assert "already" in drupe("network", "create", blue.upper(), code=1).error
    for bad in ("", "a b", "x.y", "none", "-a", "ü"):
        assert drupe("network", "create", "--", bad, code=None).code != 0
    assert "drupe network" in drupe("run", "--network", "no-such-net", IMAGE, "true", code=None).error
    one = boxes()
    assert "There is no network no-such-net" in drupe("network", "connect", "no-such-net", one.name, code=1).error
    assert "no-such-sandbox" in drupe("network", "connect", blue, "no-such-sandbox", code=1).error
    assert json.loads(drupe("network", "create", "--json", f"{blue}-2").out)["members"] == []
    drupe("network", "rm", f"{blue}-2")


@pytest.mark.parametrize("command, member_afterwards", [("connect", True), ("disconnect", False), ("rm", False)])
def test_a_killed_change_is_told_by_the_next_command(drupe, network, boxes, command, member_afterwards):
    blue = network()
    one, two = boxes("--network", blue), boxes("--network", blue)
    serve(two, "two")
    name = f"{two.name}.drupe.internal"
    if command == "connect":
        drupe("network", "disconnect", blue, one.name)
    else:
        assert get(one, name)[0].startswith("ok two")
        held = hold(one, name)
    words = ("network", "rm", "--force", blue) if command == "rm" else ("network", command, blue, one.name)
    killed = drupe(*words, env={"DRUPE_FAILPOINT": "engine.network.written"}, code=None)
    assert killed.code == -signal.SIGKILL
    # The record says it; whoever takes the lock next, or looks, tells the members.
    members = {member["name"] for member in listing(drupe, blue)["members"]}
    assert (one.name in members) == member_afterwards
    if member_afterwards:
        assert get(one, name)[0].startswith("ok two")
    else:
        assert end_of(held) == "failed 104"
        assert one.info()["networks"] == []


def test_a_killed_creation_leaves_no_member(drupe, network):
    blue = network()
    name = f"test-{secrets.token_hex(4)}"
    killed = drupe("create", "--network", blue, "--name", name, IMAGE, "true",
                   env={"DRUPE_FAILPOINT": "engine.create.joined"}, code=None)
    assert killed.code == -signal.SIGKILL
    assert listing(drupe, blue)["members"] == []
    drupe("network", "rm", blue)
    drupe("network", "create", blue, env={"DRUPE_FAILPOINT": "engine.network.directory"}, code=None)
    assert blue not in drupe("network", "ls").text
    drupe("network", "create", blue)
    drupe("prune")
    assert listing(drupe, blue)["members"] == []


def test_aliases(drupe, network, boxes):
    name = network()
    web, asks = boxes(), boxes()
    serve(web, "hello")
    drupe("network", "connect", name, asks.name)
    drupe("network", "connect", "--alias", "web", "--alias", "web.blue", name, web.name)
    for alias in ("web.drupe.internal", "web.blue.fc.local", f"{web.name}.drupe.internal"):
        assert get(asks, alias)[0].startswith("ok hello"), alias
    drupe("network", "connect", "--alias", "other", name, web.name)
    assert get(asks, "other.drupe.internal")[0].startswith("ok hello")
    assert not get(asks, "web.drupe.internal")[0].startswith("ok")
    failed = drupe("network", "connect", "--alias", "no name", name, web.name, code=1)
    assert "no host name" in failed.error
