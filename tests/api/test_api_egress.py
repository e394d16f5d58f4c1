"""What sandboxes of the API may reach: connects from the guest to servers of the test's own."""

import os
import secrets

import pytest

from druped import SHAPE, Druped, linked_home
from small_servers import Names, Web, own_address

CONNECT = ("import socket,sys\ntry:\n  s=socket.create_connection((sys.argv[1],int(sys.argv[2])),15)\n"
           "  s.sendall(b'GET / HTTP/1.0\\r\\nHost: '+sys.argv[1].encode()+b'\\r\\n\\r\\n')\n  d=s.recv(100)\n"
           "  print('reached' if d else 'refused')\nexcept OSError as e:\n  print('refused')")


@pytest.fixture(scope="module")
def world():
    """Two servers on an address of this machine, and a resolver for names of it."""
    address = own_address()
    first, second, names = Web(address), Web(address), Names(address)
    yield address, first.port, second.port, names
    first.shutdown()
    second.shutdown()
    names.socket.close()


@pytest.fixture(scope="module")
def opened(druped, drupe, world, tmp_path_factory):
    """A druped whose operator has opened this machine's address, on a home with the same image."""
    address, _, _, names = world
    place = tmp_path_factory.mktemp("egress")
    (place / "druped.toml").write_text(f'[egress]\nopen_ranges = ["{address}"]\n')
    home = linked_home(drupe.home, place / "home")  # the session's server holds its own
    os.environ["DRUPE_RESOLVERS"] = f"127.0.0.1:{names.port}"
    try:
        server = Druped(home, "--config", str(place / "druped.toml"))
    finally:
        del os.environ["DRUPE_RESOLVERS"]
    yield server
    server.stop()


@pytest.fixture
def guest(opened):
    user = opened.api()
    made = []

    def make(**fields):
        made.append(user.create(shape=SHAPE, **fields)["id"])
        return made[-1]

    make.api = user
    yield make
    for one in made:
        user("DELETE", f"/v1/sandboxes/{one}")


def reach(api, sandbox, host, port):
    return api.exec(sandbox, "python3", "-c", CONNECT, host, str(port))["stdout"].strip()


def test_nothing(guest, world):
    address, port, _, _ = world
    sandbox = guest(egress=["240.0.0.0/4"])
    assert reach(guest.api, sandbox, address, port) == "refused"
    assert reach(guest.api, sandbox, "api.drupe.test", port) == "refused"
    assert reach(guest.api, sandbox, "169.254.169.254", 80) == "refused"
    # Commands and files do not go over the network.
    assert guest.api.put(sandbox, "/root/x", b"x").status == 200 and guest.api.fetch(sandbox, "/root/x").body == b"x"


def test_one_name_and_port_and_nothing_else(guest, world):
    address, port, other, _ = world
    sandbox = guest(egress=[f"api.drupe.test:{port}"])
    assert reach(guest.api, sandbox, "api.drupe.test", port) == "reached"
    assert reach(guest.api, sandbox, "api.drupe.test", other) == "refused"
    assert reach(guest.api, sandbox, "www.drupe.test", port) == "refused"
    # The address alone is not the name.
    fresh = guest(egress=[f"api.drupe.test:{port}"])
    assert reach(guest.api, fresh, address, port) == "refused"


def test_addresses_and_changes_are_in_force_at_once(guest, world):
    address, port, other, _ = world
    sandbox = guest(egress=[f"{address}:{port}"])
    url = f"/v1/sandboxes/{sandbox}/egress"
    assert reach(guest.api, sandbox, address, port) == "reached"
    assert reach(guest.api, sandbox, address, other) == "refused"
    assert guest.api("PUT", url, {"egress": [f"{address}:{other}"]}).data == {"id": sandbox, "egress": [f"{address}:{other}"]}
    assert reach(guest.api, sandbox, address, port) == "refused"
    assert reach(guest.api, sandbox, address, other) == "reached"
    assert guest.api("GET", url).data["egress"] == [f"{address}:{other}"]
    guest.api("PUT", url, {"egress": ["nonsense rule"]}).fails(400)
    guest.api("PUT", url, {"egress": ["192.168.254.1"]}).fails(403)
    assert reach(guest.api, sandbox, address, other) == "reached"


def test_a_fork_has_its_own_rules_from_its_first_moment(guest, world):
    address, port, _, _ = world
    parent = guest(egress=[f"{address}:{port}"])
    assert reach(guest.api, parent, address, port) == "reached"
    guest.api("PUT", f"/v1/sandboxes/{parent}/files?path=/root/connect.py", CONNECT.encode())
    guest.api.sh(parent, f"(while :; do python3 /root/connect.py {address} {port} >> /root/log; done) >/dev/null 2>&1 &")
    guest.api("POST", f"/v1/sandboxes/{parent}/pause").data
    child = guest.api("POST", f"/v1/sandboxes/{parent}/fork", {"egress": ["240.0.0.0/4"]}).data
    same = guest.api("POST", f"/v1/sandboxes/{parent}/fork", {}).data
    try:
        assert child["egress"] == ["240.0.0.0/4"] and same["egress"] == [f"{address}:{port}"]
        assert reach(guest.api, child["id"], address, port) == "refused"
        assert reach(guest.api, same["id"], address, port) == "reached"
    finally:
        for one in (child, same):
            guest.api("DELETE", f"/v1/sandboxes/{one['id']}")


def test_everything_is_not_what_is_closed(api, sandbox, world):
    """Under the session's server nothing is opened."""
    address, port, _, _ = world
    assert api("GET", f"/v1/sandboxes/{sandbox}/egress").data["egress"] == ["*"]
    for host in (address, "169.254.169.254", "127.0.0.1"):
        assert reach(api, sandbox, host, port) == "refused"
    view = api("POST", "/v1/sandboxes", {"shape": SHAPE, "egress": [address], "name": f"x-{secrets.token_hex(4)}"})
    if view.status == 200:  # the address is a public one
        api("DELETE", f"/v1/sandboxes/{view.data['id']}")
    else:
        view.fails(403)


def test_the_operators_ceiling_binds_every_key(drupe, world, tmp_path):
    address, port, other, names = world
    config = tmp_path / "druped.toml"
    config.write_text(f'[egress]\nopen_ranges = ["{address}"]\nceiling = ["api.drupe.test:{port}"]\n')
    os.environ["DRUPE_RESOLVERS"] = f"127.0.0.1:{names.port}"
    try:
        server = Druped(linked_home(drupe.home, tmp_path / "home"), "--config", str(config))
    finally:
        del os.environ["DRUPE_RESOLVERS"]
    try:
        for user in (server.api(), server.api("ceiling-other")):
            sandbox = user.create(egress=[f"*.drupe.test:{port}", f"{address}:{other}"])["id"]
            assert reach(user, sandbox, "api.drupe.test", port) == "reached"
            assert reach(user, sandbox, "www.drupe.test", port) == "refused"
            assert reach(user, sandbox, address, other) == "refused"
            url = f"/v1/sandboxes/{sandbox}"
            user("PUT", f"{url}/egress", {"egress": ["*"]})
            assert reach(user, sandbox, "www.drupe.test", port) == "refused"
            user("POST", f"{url}/pause")
            child = user("POST", f"{url}/fork", {"egress": [f"{address}:{other}"]}).data["id"]
            assert reach(user, child, address, other) == "refused"
            for one in (sandbox, child):
                user("DELETE", f"/v1/sandboxes/{one}")
    finally:
        server.stop()
    config.write_text('[egress]\nceiling = ["not a rule"]\n')
    assert "ceiling" in server.command("config", "check", "--config", str(config), code=2).stderr
