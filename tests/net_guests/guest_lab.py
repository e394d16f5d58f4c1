"""Real guests in the small internet of tests/net: drupe runs in its namespace `host`, servers are in `world`.

The process moves into namespaces for good, so this folder's tests run in a pytest of their own. These are its fixtures; a conftest of this folder's own
would hide that of tests/."""
import os
import secrets
import shutil
import socket
import sys
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from functools import partial
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[1] / "net"))

import net_lab  # noqa: E402
import net_servers  # noqa: E402
from conftest import BINARY, IMAGE, Box, box_maker  # noqa: E402
from test_host_ca import environment  # noqa: E402
from test_registries import apt_reaches_its_mirror  # noqa: E402

GATEWAY, GATEWAY6 = "198.19.254.1", "fd64:7275:7065::1"
MTU = 65520  # of the guest's link


def _missing():
    if not BINARY.parent.joinpath("drupe-net").exists():
        return "build/bin/drupe-net is not built"
    if os.geteuid() != 0:
        return "network namespaces for more than one user id need root"
    for tool in ("ip", "openssl", "git"):
        if shutil.which(tool, path=os.environ["PATH"] + ":/usr/sbin:/sbin") is None:
            return f"the program {tool} is not there"
    return None


@pytest.fixture(scope="session")
def tools(drupe):
    """A stopped sandbox with dig and ping, which the image lacks; made before there is only the small internet. None: apt has no mirror here."""
    if _missing():
        yield None
        return
    name = f"tools-{secrets.token_hex(4)}"
    try:
        apt_reaches_its_mirror()
        drupe("run", "-d", "--name", name, "--allow", "@apt", "--host-ca", "-m", "1g", IMAGE, "sleep", "infinity")
        drupe("exec", name, "sh", "-c", "apt-get -q update && apt-get -q install -y --no-install-recommends bind9-dnsutils iputils-ping", timeout=1200)
        drupe("stop", "-t", "0", name)
    except pytest.skip.Exception:
        yield None
        return
    except BaseException:
        drupe("rm", "-f", name, code=None)
        raise
    yield name
    drupe("rm", "-f", name, code=None)


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


class Internet:
    """Names, web, TLS and echo servers; `folder` is what the servers at ports 8080 and 8443 of good.example show."""

    def __init__(self, lab, folder):
        self.lab, self.folder = lab, folder / "web"
        self.folder.mkdir()
        self.certificates = net_servers.Certificates(str(folder))
        self.resolver = net_servers.Resolver(lab, net_lab.RESOLVER)
        many = [f"203.0.113.{n}" for n in range(100, 160)]
        self.resolver.zone.update({"good.example": [net_lab.SERVERS[0]], "other.example": [net_lab.SERVERS[0]], "evil.example": [net_lab.SERVERS[2]],
                                   "many.example": many, "big.example": [net_lab.SERVERS[3]], "six.example": [net_lab.SERVER6]})
        self.many = many
        self.resolver.truncated.add("big.example")
        for address in net_lab.SERVERS[:4] + ([net_lab.SERVER6] if lab.ipv6 else []):
            net_servers.accept_loop(lab.listen("world", address, 443), self.certificates.serve)
            net_servers.accept_loop(lab.listen("world", address, 80), net_servers.http)
            net_servers.echo_server(lab.listen("world", address, 7777))
        for port in (8080, 8443):
            server = ThreadingHTTPServer((net_lab.SERVERS[0], port), partial(Quiet, directory=str(self.folder)))
            if port == 8443:
                server.socket = self.certificates.server.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
            threading.Thread(target=server.serve_forever, daemon=True).start()
        echo = lab.socket("world", kind=socket.SOCK_DGRAM)
        echo.bind((net_lab.SERVERS[0], 7777))
        echo.settimeout(None)

        def answer():
            while True:
                raw, peer = echo.recvfrom(65536)
                echo.sendto(raw, peer)

        threading.Thread(target=answer, daemon=True).start()


@pytest.fixture(scope="session")
def internet(tools, tmp_path_factory):
    if reason := _missing():
        pytest.skip(reason)
    try:
        lab = net_lab.Lab(user_namespace=False)
    except OSError as error:
        pytest.skip(f"no small internet can be made of namespaces and a tap device here: {error}")
    return Internet(lab, tmp_path_factory.mktemp("internet"))


@pytest.fixture(scope="session")
def lab_drupe(drupe, internet):
    """drupe on the small internet's host, which trusts its authority and asks its resolver."""
    class LabDrupe(type(drupe)):
        def popen(self, *args, **options):
            with internet.lab.inside("host"):
                return super().popen(*args, **options)

    return LabDrupe(drupe.home, {**environment(internet.certificates.authority), "DRUPE_RESOLVERS": net_lab.RESOLVER})


@pytest.fixture
def guest(lab_drupe):
    """Makes sandboxes that go with the test: guest(*flags)."""
    yield from box_maker(lab_drupe)


@pytest.fixture(scope="module")
def open_guest(lab_drupe):
    """One for tests that leave it as it was: it reaches all of the small internet and trusts its authority."""
    name = f"open-{secrets.token_hex(4)}"
    try:
        lab_drupe("run", "-d", "--name", name, "--net", "open", "--host-ca", IMAGE, "sleep", "infinity")
        yield Box(lab_drupe, name)
    finally:
        lab_drupe("rm", "-f", name, code=None)


@pytest.fixture(scope="module")
def tool_guest(lab_drupe, tools):
    """The one with dig and ping; it reaches good.example, big.example, many.example and six.example."""
    if tools is None:
        pytest.skip("dig and ping could not be installed: this host's apt does not reach its mirror")
    lab_drupe("net", "set", *[word for name in ("good", "big", "many", "six") for word in ("--allow", f"{name}.example")], tools)
    lab_drupe("start", tools)
    yield Box(lab_drupe, tools)
    lab_drupe("stop", "-t", "0", tools)
