import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import net_control  # noqa: E402
import net_lab  # noqa: E402
import net_servers  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ.get("DRUPE_NET_BINARY") or ROOT / "build" / "bin" / "drupe-net")


def _missing():
    if not PROGRAM.exists():
        return f"drupe-net is not there: {PROGRAM}"
    for tool in ("ip", "openssl"):
        if shutil.which(tool, path=os.environ["PATH"] + ":/usr/sbin:/sbin") is None:
            return f"the program {tool} is not there"
    if not os.path.exists("/dev/net/tun"):
        return "there is no /dev/net/tun"
    return None


class Internet:
    """The lab with its servers; `resolver.zone` may be changed by tests."""

    def __init__(self, lab, folder):
        self.lab = lab
        self.certificates = net_servers.Certificates(folder)
        self.resolver = net_servers.Resolver(lab, net_lab.RESOLVER)
        self.zone = {"good.example": [net_lab.SERVERS[0]], "other.example": [net_lab.SERVERS[0]],
                     "deep.sub.example": [net_lab.SERVERS[1]], "evil.example": [net_lab.SERVERS[2]],
                     "rebind.example": ["10.77.0.1", "127.0.0.1", "169.254.169.254", net_lab.HOST],
                     "big.example": [net_lab.SERVERS[3]], "six.example": [net_lab.SERVER6]}
        self.resolver.zone.update(self.zone)
        self.resolver.truncated.add("big.example")
        for address in net_lab.SERVERS[:4] + net_lab.CLOSED + ([net_lab.SERVER6] if lab.ipv6 else []):
            net_servers.accept_loop(lab.listen("world", address, 443), self.certificates.serve)
            net_servers.accept_loop(lab.listen("world", address, 80), net_servers.http)
            net_servers.echo_server(lab.listen("world", address, 7777, 1024))
            net_servers.accept_loop(lab.listen("world", address, 25), net_servers.mail)
        net_servers.accept_loop(lab.listen("host", "127.0.0.1", 80), net_servers.http)
        net_servers.accept_loop(lab.listen("host", net_lab.HOST, 80), net_servers.http)
        echo = lab.socket("world", kind=socket.SOCK_DGRAM)
        echo.bind((net_lab.SERVERS[0], 7777))
        echo.settimeout(None)

        def answer():
            while True:
                raw, peer = echo.recvfrom(65536)
                echo.sendto(raw, peer)

        threading.Thread(target=answer, daemon=True).start()


class Net:
    """One drupe-net and the guest behind it."""

    def __init__(self, internet, spec, configure=True, **options):
        self.internet, self.lab = internet, internet.lab
        own, theirs = net_control.pair()
        link, their_link = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.stderr = tempfile.TemporaryFile()
        # High numbers, so that neither is in the other's place.
        high = [os.dup2(end.fileno(), number) for number, end in ((203, theirs), (204, their_link))]
        with self.lab.inside("host"):
            self.process = subprocess.Popen(
                ["/bin/bash", "-c", f"exec '{PROGRAM}' 3<&203 4<&204 203<&- 204<&-"], pass_fds=high, stderr=self.stderr)
        for number in high:
            os.close(number)
        theirs.close()
        their_link.close()
        self.control = net_control.Control(own)
        self.link = link
        self.bridge = net_lab.Bridge(self.lab.tap, link)
        if configure:
            try:
                self.ready = self.configure(spec, **options)
            except BaseException:
                self.close()  # nobody else has it yet
                raise

    def kill(self):
        """Ends it as a crash does; the guest's side stays as it is."""
        self.process.kill()
        self.process.wait()
        self.bridge.close()
        self.link.close()
        self.close = lambda: 0  # as the test wanted it

    def configure(self, spec, ledger=None, **options):
        options.setdefault("resolvers", [net_lab.RESOLVER])
        if self.lab.ipv6:
            options = {"guest_v6": net_lab.GUEST6, "gateway_v6": net_lab.GATEWAY6, **options}
        raw = net_control.configuration(bytes.fromhex(net_lab.MAC.replace(":", "")), spec, ledger=ledger is not None, **options)
        answer = self.control.call(net_control.CONFIGURE, raw, ledger.fd if ledger else None)
        return net_control.Reader(answer).texts()

    def ask(self, name, kind=net_servers.A, timeout=20):
        """Return code and addresses that the guest is told."""
        with self.lab.socket("guest", kind=socket.SOCK_DGRAM) as udp:
            udp.settimeout(timeout)
            udp.connect((net_lab.GATEWAY, 53))
            udp.send(net_servers.query(name, kind))
            return net_servers.addresses(udp.recv(4096))

    def connect(self, address, port):
        return self.lab.connect("guest", address, port)

    def tls(self, address, name, port=443):
        """What the server said to a client that named `name`."""
        context = self.internet.certificates.client
        with self.connect(address, port) as raw, context.wrap_socket(raw, server_hostname=name) as secure:
            secure.sendall(b"ping")
            return secure.recv(1000).decode()

    def log(self):
        return self.control.log()[0]

    def errors(self):
        self.stderr.seek(0)
        return self.stderr.read().decode()

    def close(self):
        self.control.end.close()
        try:
            status = self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            status = self.process.wait()
        self.bridge.close()
        self.link.close()
        return status


@pytest.fixture(scope="session")
def internet(tmp_path_factory):
    reason = _missing()
    if reason:
        pytest.skip(reason)
    folder = str(tmp_path_factory.mktemp("tls"))
    try:
        lab = net_lab.Lab()
    except OSError as error:
        pytest.skip(f"no small internet can be made of namespaces and a tap device here: {error}")
    return Internet(lab, folder)


@pytest.fixture
def start(internet):
    """Starts drupe-net with a policy; ends what a test has started and checks that it ended well."""
    internet.resolver.silent = False
    internet.resolver.asked.clear()
    made = []

    def begin(*allow, spec=None, **options):
        made.append(Net(internet, spec or net_control.policy(*allow), **options))
        return made[-1]

    yield begin
    failed = [net.errors() for net in made if net.close() != 0]
    assert not failed, failed
