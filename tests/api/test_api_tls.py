"""HTTPS: clients, previews, tunnels, new certificates, and what does not start."""

import contextlib
import http.client
import os
import re
import signal
import socket
import ssl
import subprocess
import tempfile
import warnings

import pytest

from druped import PROGRAM, Api, Druped, eventually, linked_home

DOMAIN = "sb.example.com"


def make_certificate(place, name):
    """A certificate of its own authority, for the loopback address and previews."""
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                    "-subj", f"/CN={name}", "-addext", f"subjectAltName=IP:127.0.0.1,DNS:api.example.com,DNS:*.{DOMAIN}",
                    "-keyout", place / f"{name}.key", "-out", place / f"{name}.pem"], check=True, capture_output=True)
    return place / f"{name}.pem", place / f"{name}.key"


class SecureApi(Api):
    def __init__(self, port, key, authority):
        super().__init__(port, key)
        self.context = ssl.create_default_context(cafile=authority)

    def connect(self):
        return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=240, context=self.context)

    def open(self, name="127.0.0.1"):
        link = socket.create_connection(("127.0.0.1", self.port), timeout=60)
        return self.context.wrap_socket(link, server_hostname=name)


class SecureDruped(Druped):
    """Its greeting names https."""

    def start(self):
        self.log = tempfile.NamedTemporaryFile(prefix="druped-", suffix=".log")
        self.process = subprocess.Popen([PROGRAM, "--port", "0", *self.flags], env=self.environment, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=self.log)
        self.greeting = os.read(self.process.stdout.fileno(), 65536).decode().splitlines()
        self.port = int(re.fullmatch(r"druped \S+ listens on https://127\.0\.0\.1:(\d+)", self.greeting[0])[1])


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("tls")


@pytest.fixture(scope="module")
def server(drupe, home, sandbox, place):
    certificate, key = make_certificate(place, "first")
    one = SecureDruped(linked_home(home, place / "home"), "--preview-domain", DOMAIN, "--tls-cert", str(certificate),
                       "--tls-key", str(key), "--public-url", "https://api.example.com:8443")
    try:
        yield one
        assert one.stop() == 0
    finally:
        if one.process.poll() is None:
            one.kill()


@pytest.fixture(scope="module")
def secure(server, place):
    return SecureApi(server.port, server.new_key(), place / "first.pem")


@pytest.fixture(scope="module")
def box(secure):
    view = secure.create(ingress_enabled=True)
    assert view["ingress_url_template"] == f"https://{view['id']}-<port>.{DOMAIN}:8443"
    yield view["id"]
    secure("DELETE", f"/v1/sandboxes/{view['id']}")


def test_calls(secure, box):
    body = os.urandom(3 << 20)
    assert secure.put(box, "/tmp/big", body).data["bytes"] == len(body)
    assert secure.fetch(box, "/tmp/big").body == body
    link, response = secure.stream("POST", f"/v1/sandboxes/{box}/exec?stream=true", {"cmd": "sh", "args": ["-c", "echo a; sleep 1; echo b"]})
    assert response.readline() == b'{"stdout":"a\\n"}\n' and response.read().endswith(b'{"exit_code":0}\n')
    link.close()
    # Several requests on one connection.
    link = secure.connect()
    assert [secure("GET", "/v1/whoami", connection=link).status for _ in range(3)] == [200] * 3
    link.close()


def test_protocols(secure):
    secure.context.set_alpn_protocols(["h2", "http/1.1"])
    with secure.open() as link:
        assert link.selected_alpn_protocol() == "http/1.1" and link.version() == "TLSv1.3"
    old = ssl.create_default_context()
    old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
    old.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.raises(ssl.SSLError), socket.create_connection(("127.0.0.1", secure.port)) as link:
        old.wrap_socket(link)


def test_what_is_no_tls_is_dropped(secure):
    for nonsense in (b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01\xff\xff" + b"x" * 100, os.urandom(300)):
        with socket.create_connection(("127.0.0.1", secure.port), timeout=60) as link:
            answer = b""
            with contextlib.suppress(OSError):  # It may be over before all of it has been sent.
                link.sendall(nonsense)
                link.shutdown(socket.SHUT_WR)
                while part := link.recv(4096):
                    answer += part
            assert b"HTTP/1.1 2" not in answer
    assert secure("GET", "/healthz").status == 200


def test_preview_and_tunnel(secure, box):
    secure("POST", f"/v1/sandboxes/{box}/processes", {"cmd": "python3", "args": ["-m", "http.server", "8000", "--directory", "/etc"]}).data
    secure.sh(box, "for i in $(seq 100); do (echo > /dev/tcp/127.0.0.1/8000) 2>/dev/null && exit 0; sleep 0.1; done; exit 1".join(["bash -c '", "'"]))
    name = f"{box}-8000.{DOMAIN}"
    with secure.open(name) as link:
        link.sendall(f"GET /hostname HTTP/1.1\r\nHost: {name}:8443\r\n\r\n".encode())
        assert b"200 OK" in b"".join(iter(lambda: link.recv(65536), b""))
    with secure.open() as link:
        link.sendall(f"POST /v1/sandboxes/{box}/tunnel/8000 HTTP/1.1\r\nHost: x\r\nX-Api-Key: {secure.key}\r\nConnection: Upgrade\r\n"
                     "Upgrade: tcp-tunnel\r\nContent-Length: 0\r\n\r\n".encode())
        head = b""
        while b"\r\n\r\n" not in head:
            head += link.recv(1)
        assert head.startswith(b"HTTP/1.1 101 ")
        link.sendall(b"GET /hostname HTTP/1.0\r\n\r\n")
        assert b"200 OK" in b"".join(iter(lambda: link.recv(65536), b""))


def test_a_new_certificate(server, secure, place):
    """At SIGHUP, and when the files change; a bad one changes nothing; what is open goes on."""
    kept = secure.connect()
    assert secure("GET", "/v1/whoami", connection=kept).status == 200

    def shown():
        return ssl.get_server_certificate(("127.0.0.1", server.port))

    first = shown()
    certificate, key = make_certificate(place, "second")
    (place / "first.pem").write_text("nonsense")
    server.process.send_signal(signal.SIGHUP)
    eventually(lambda: "stays" in open(server.log.name).read(), what="the complaint")
    assert shown() == first
    os.replace(key, place / "first.key")
    os.replace(certificate, place / "first.pem")
    eventually(lambda: shown() != first, what="the new certificate")
    assert secure("GET", "/v1/whoami", connection=kept).status == 200
    kept.close()
    secure.context.load_verify_locations(cafile=place / "first.pem")
    assert secure("GET", "/v1/whoami").status == 200


@pytest.mark.parametrize("flags, words", [
    (["--address", "0.0.0.0"], "insecure-public"), (["--address", "::"], "insecure-public"),
    (["--tls-cert", "/nothing.pem"], "need each other"), (["--tls-cert", "/nothing.pem", "--tls-key", "/nothing.key"], "/nothing.pem"),
    (["--public-url", "sandboxes.example.com"], "public_url"), (["--public-url", "https://example.com/path"], "public_url"),
])
def test_what_does_not_start(drupe, place, tmp_path, flags, words):
    done = subprocess.run([PROGRAM, "--port", "0", "--home", str(tmp_path / "home"), *flags], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and words in done.stderr, done


def test_a_key_that_is_not_the_certificates(drupe, place, tmp_path):
    certificate, _ = make_certificate(tmp_path, "one")
    _, key = make_certificate(tmp_path, "two")
    done = subprocess.run([PROGRAM, "--port", "0", "--home", str(tmp_path / "home"), "--tls-cert", certificate, "--tls-key", key],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "cannot be used" in done.stderr or "is not that of" in done.stderr, done
