"""--host-ca: the guest's clients trust what this host's clients trust. The authority, the server and the name are the test's own."""

import json

import ssl
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from conftest import BINARY, IMAGE, Drupe, box_maker
from small_servers import Names, own_address

pytestmark = pytest.mark.skipif(not BINARY.parent.joinpath("drupe-net").exists(), reason="build/bin/drupe-net is not built")

STORE = "/etc/ssl/certs/ca-certificates.crt"
NAME = "tls.drupe.test"
FETCH = "import sys, urllib.request as u; print(u.urlopen(sys.argv[1], timeout=60).read().decode(), end='')"
NODE = ("require('https').get(process.argv[1], r => { r.on('data', d => process.stdout.write(d)) })"
        ".on('error', e => { console.error(e.code); process.exit(1) })")


def openssl(*words):
    subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True)


def make_authority(where, name):
    openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "30", "-subj", f"/CN={name}",
            "-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign", "-keyout", where / f"{name}.key",
            "-out", where / f"{name}.pem")
    return where / f"{name}.pem"


def make_server_certificate(where, authority, name):
    """Key and certificate in one file."""
    extensions = where / "extensions"
    extensions.write_text(f"subjectAltName=DNS:{name}\nextendedKeyUsage=serverAuth\n")
    openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", f"/CN={name}", "-keyout", where / f"{name}.key",
            "-out", where / f"{name}.csr")
    openssl("x509", "-req", "-in", where / f"{name}.csr", "-CA", authority, "-CAkey", authority.with_suffix(".key"), "-CAcreateserial", "-days", "30",
            "-extfile", extensions, "-out", where / f"{name}.pem")
    both = where / f"{name}.both"
    both.write_bytes((where / f"{name}.key").read_bytes() + (where / f"{name}.pem").read_bytes())
    return both


class Page(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "5")
        self.end_headers()
        self.wfile.write(b"safe\n")

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return make_authority(tmp_path_factory.mktemp("ca"), "drupe-test-authority")


@pytest.fixture(scope="module")
def server(authority):
    """https://NAME:port of a server whose certificate the test's authority has signed."""
    httpd = ThreadingHTTPServer((own_address(), 0), Page)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(make_server_certificate(authority.parent, authority, NAME))
    httpd.socket = context.wrap_socket(httpd.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=httpd.serve_forever, daemon=True).start()
    yield httpd
    httpd.shutdown()
    httpd.server_close()


def environment(store):
    """Of a host that trusts what is in one file, and nothing else."""
    return {name: "" for name in ("SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "PIP_CERT",
                                  "npm_config_cafile")} | {"SSL_CERT_FILE": str(store), "PIP_CONFIG_FILE": "/dev/null",
                                                           "npm_config_userconfig": "/dev/null", "npm_config_globalconfig": "/dev/null"}


@pytest.fixture(scope="module")
def names(server):
    resolver = Names(server.server_address[0])
    yield resolver
    resolver.socket.close()


@pytest.fixture(scope="module")
def ca_drupe(drupe, authority, names):
    return Drupe(drupe.home, {**environment(authority), "DRUPE_RESOLVERS": f"127.0.0.1:{names.port}"})


@pytest.fixture
def ca_box(ca_drupe):
    yield from box_maker(ca_drupe)


@pytest.fixture
def flags(server):
    return ("--allow", f"{NAME}:{server.server_address[1]}", "--allow-private", server.server_address[0])


@pytest.fixture
def url(server):
    return f"https://{NAME}:{server.server_address[1]}/"


def clients():
    """Command lines that print "safe" when the server is trusted."""
    return {
        "curl": ("curl", "-sS", "--max-time", "60"),
        "python": ("python3", "-c", FETCH),
        "python without variables": ("env", "-u", "SSL_CERT_FILE", "python3", "-c", FETCH),
        "node": ("node", "-e", NODE),
        "pip's requests": ("python3", "-c", "import sys; from pip._vendor import requests; print(requests.get(sys.argv[1], timeout=60).text, end='')"),
    }


def test_clients_trust_what_the_host_trusts(ca_box, flags, url, server):
    box = ca_box("--host-ca", *flags)
    for name, command in clients().items():
        assert box.exec(*command, url).out == b"safe\n", name
    # By the link by hash alone.
    checked = box.sh(f"openssl s_client -connect {NAME}:{server.server_address[1]} -servername {NAME} -verify_return_error </dev/null 2>&1")
    assert b"Verify return code: 0 (ok)" in checked.out, checked
    # git gets as far as the answer, which is no repository's.
    git = box.exec("git", "ls-remote", url, code=128)
    assert b"certificate" not in git.err.lower(), git
    assert box.info()["summary"]["host_ca"] is True
    # Debian's own tool finds everything in its place and keeps it.
    box.exec("update-ca-certificates")
    assert box.exec("curl", "-sS", url).out == b"safe\n"
    assert box.sh(f"grep -c BEGIN {STORE}").text.strip() != "1", "the image's own authorities have gone"


def test_off_by_default(ca_box, flags, url, server):
    box = ca_box(*flags)
    assert box.info()["summary"]["host_ca"] is False
    for name, command in clients().items():
        result = box.exec(*command, url, code=None)
        assert result.code != 0 and b"safe" not in result.out, (name, result)
    assert box.sh("env | grep -E 'CERT|CA_BUNDLE' || true; ls -d /etc/ssl/certs/drupe* 2>/dev/null || true").out == b""


def test_every_first_command_has_them(ca_drupe, flags, url):
    """The main command, without an exec before it."""
    assert ca_drupe("run", "--host-ca", *flags, IMAGE, "curl", "-sS", url).out == b"safe\n"
    # A network is not needed to be given them.
    assert b"drupe-host-" in ca_drupe("run", "--host-ca", IMAGE, "ls", "/etc/ssl/certs").out


def test_the_users_variables_win(ca_drupe):
    shown = ca_drupe("run", "--host-ca", "-e", "SSL_CERT_FILE=/mine", IMAGE, "sh", "-c", "echo $SSL_CERT_FILE $REQUESTS_CA_BUNDLE")
    assert shown.text.split() == ["/mine", STORE]


def test_it_stays_over_pause_and_fork_and_a_boot_brings_it_up_to_date(ca_drupe, ca_box, authority, flags, url, tmp_path):
    box = ca_box("--host-ca", *flags)
    count = "ls /etc/ssl/certs/drupe-host-* | wc -l"
    assert box.sh(count).text.strip() == "1"
    ca_drupe("pause", box.name)
    ca_drupe("resume", box.name)
    assert box.exec("curl", "-sS", url).out == b"safe\n"
    child = ca_drupe("fork", box.name).text.strip()
    try:
        assert ca_drupe("exec", child, "curl", "-sS", url).out == b"safe\n"
        assert json.loads(ca_drupe("inspect", child).out)[0]["summary"]["host_ca"] is True
    finally:
        ca_drupe("rm", "-f", child)
    # The host trusts another authority now.
    other = make_authority(tmp_path, "drupe-other-authority")
    ca_drupe("stop", box.name)
    ca_drupe("start", box.name, env=environment(other))
    assert box.sh(count).text.strip() == "1"
    refused = box.exec("curl", "-sS", url, code=60)
    assert b"certificate" in refused.err
    assert box.sh(f"ls -l /etc/ssl/certs | grep -c -- '-> drupe-host-'").text.strip() == "1"


def test_mistakes_are_told(ca_drupe, tmp_path):
    before = ca_drupe("ps", "-a", "-q").text
    missing = ca_drupe("run", "--host-ca", IMAGE, "true", env={"SSL_CERT_FILE": str(tmp_path / "gone")}, code=125)
    assert "SSL_CERT_FILE" in missing.error and "--host-ca" in missing.error
    damaged = tmp_path / "damaged.pem"
    damaged.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    wrong = ca_drupe("create", "--host-ca", IMAGE, env={"SSL_CERT_FILE": str(damaged)}, code=125)
    assert str(damaged) in wrong.error
    assert ca_drupe("ps", "-a", "-q").text == before


def test_a_key_beside_the_certificate_stays_on_the_host(ca_drupe, authority, tmp_path):
    key = authority.with_suffix(".key").read_bytes()
    both = tmp_path / "both.pem"
    both.write_bytes(key + authority.read_bytes())
    line = key.splitlines()[1].decode()
    found = ca_drupe("run", "--host-ca", IMAGE, "grep", "-rlF", "--", line, "/etc/ssl", "/usr/local/share", env={"SSL_CERT_FILE": str(both)}, code=None)
    assert found.code == 1, found


def test_a_large_store(ca_drupe, authority, flags, url, tmp_path):
    """More than a stream's first credit and a frame; the one that counts is the last."""
    der = ssl.PEM_cert_to_DER_cert(authority.read_text())
    store = tmp_path / "large.pem"
    others = (der.replace(b"drupe-test-authority", b"drupe-test-%09d" % number) for number in range(1500))
    store.write_text("".join(map(ssl.DER_cert_to_PEM_cert, others)) + authority.read_text())
    assert store.stat().st_size > 3 * 256 * 1024
    script = f"grep -c BEGIN {STORE}; ls /usr/local/share/ca-certificates | wc -l; curl -sS {url}"
    shown = ca_drupe("run", "--host-ca", *flags, IMAGE, "sh", "-c", script, env={"SSL_CERT_FILE": str(store)}, timeout=300)
    bundle, files, page = shown.text.split()
    assert int(bundle) > 1501 and files == "1501" and page == "safe", shown


def test_a_bent_disk_does_not_keep_a_sandbox_from_starting(ca_drupe, ca_box, flags, url):
    """It is said, and what the guest had stays."""
    box = ca_box("--host-ca", *flags)
    box.sh(f"rm {STORE}; mkdir {STORE}")
    ca_drupe("stop", "-t", "0", box.name)
    started = ca_drupe("start", box.name)
    assert STORE in started.error and "host's certificate authorities" in started.error, started
    box.sh(f"rmdir {STORE}")
    ca_drupe("stop", "-t", "0", box.name)
    started = ca_drupe("start", box.name)
    assert STORE not in started.error
    assert box.exec("curl", "-sS", url).out == b"safe\n"
