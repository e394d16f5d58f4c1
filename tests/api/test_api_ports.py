"""Ports of sandboxes: preview addresses and tunnels."""

import base64
import hashlib
import http.client
import os
import socket

import pytest

from druped import PATIENCE, eventually, raw

SERVER = r"""
import http.server, socketserver, threading, time
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        if self.path == "/events":
            self.send_response(200); self.send_header("Content-Type", "text/event-stream"); self.end_headers()
            for i in range(3):
                self.wfile.write(b"data: %d\n\n" % i); self.wfile.flush(); time.sleep(0.3)
            self.close_connection = True
            return
        if self.headers.get("Upgrade", "").lower() == "websocket":
            self.wfile.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
            while line := self.rfile.readline():
                self.wfile.write(b"echo " + line)
            self.close_connection = True
            return
        self.answer(b"".join(b"%s=%s;" % (k.lower().encode(), v.encode()) for k, v in self.headers.items()))
    def do_POST(self):
        self.answer(self.rfile.read(int(self.headers["Content-Length"])))
    def answer(self, body):
        self.send_response(200); self.send_header("Content-Length", str(len(body))); self.end_headers(); self.wfile.write(body)
    def log_message(self, *a): pass
class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
Server(("0.0.0.0", 8080), Handler).serve_forever()
"""


@pytest.fixture(scope="module")
def served(api):
    """A sandbox with its ingress on and a server in it."""
    view = api.create(ingress_enabled=True)
    api.put(view["id"], "/root/server.py", SERVER.encode())
    api("POST", f"/v1/sandboxes/{view['id']}/processes", {"cmd": "python3", "args": ["/root/server.py"]}).data
    yield view
    api("DELETE", f"/v1/sandboxes/{view['id']}")


def host_of(view, port):
    template = view["ingress_url_template"]
    assert template.startswith("http://") and template.count("<port>") == 1
    return template.removeprefix("http://").replace("<port>", str(port))


def visit(api, host, method="GET", path="/", body=None, headers=None):
    link = http.client.HTTPConnection("127.0.0.1", api.port, timeout=PATIENCE)
    link.request(method, path, body=body, headers={"Host": host, **(headers or {})})
    response = link.getresponse()
    try:
        return response.status, response.read()
    finally:
        link.close()


def listening(api, served):
    host = host_of(served, 8080)
    eventually(lambda: visit(api, host)[0] == 200, what="the server in the sandbox")
    return host


def test_preview(api, served):
    host = listening(api, served)
    assert served["id"] in host and host.endswith(f".sb.localhost:{api.port}")
    status, body = visit(api, host, headers={"X-Api-Key": api.key, "X-Own": "kept"})
    assert status == 200
    assert b"host=localhost:8080;" in body and b"x-own=kept;" in body and api.key.encode() not in body
    content = os.urandom(3_000_000)
    assert visit(api, host, "POST", "/", content) == (200, content)
    assert visit(api, host.upper())[0] == 200


def test_preview_streams(api, served):
    host = listening(api, served)
    link = http.client.HTTPConnection("127.0.0.1", api.port, timeout=PATIENCE)
    link.request("GET", "/events", headers={"Host": host})
    response = link.getresponse()
    assert response.readline() == b"data: 0\n"  # before the rest is written
    assert response.read().endswith(b"data: 2\n\n")
    link.close()


def test_preview_upgrades(api, served):
    host = listening(api, served)
    key = base64.b64encode(hashlib.sha1(b"x").digest()[:16]).decode()
    with socket.create_connection(("127.0.0.1", api.port), timeout=PATIENCE) as link:
        link.sendall(f"GET /ws HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: {key}\r\n\r\n".encode())
        stream = link.makefile("rb")
        assert b" 101 " in stream.readline()
        while stream.readline() != b"\r\n":
            pass
        for word in (b"one\n", b"two\n"):
            link.sendall(word)
            assert stream.readline() == b"echo " + word


def test_preview_only_leads_where_it_may(api, served, new_sandbox):
    listening(api, served)
    assert visit(api, host_of(served, 9))[0] == 502
    host = host_of(served, 8080)
    for wrong in (host.replace("8080", "0", 1), host.replace("8080", "x", 1), host.replace("8080", "99999", 1), host.replace("sb-", "sc-", 1),
                  f"x.sb.localhost:{api.port}", host.replace(served["id"], "sb-" + "0" * 26)):
        assert visit(api, wrong)[0] == 404, wrong
    # No route of the API has such a name.
    assert visit(api, f"x.sb.localhost:{api.port}", path="/v1/whoami", headers={"X-Api-Key": api.key})[0] == 404
    closed = new_sandbox()
    assert "ingress_url_template" not in closed
    assert visit(api, host.replace(served["id"], closed["id"]))[0] == 404
    opened = api("PATCH", f"/v1/sandboxes/{closed['id']}", {"ingress_enabled": True}).data
    assert visit(api, host_of(opened, 8080))[0] == 502
    api("POST", f"/v1/sandboxes/{closed['id']}/pause").data
    assert visit(api, host_of(opened, 8080))[0] == 502
    assert "ingress_url_template" not in api("PATCH", f"/v1/sandboxes/{closed['id']}", {"ingress_enabled": False}).data
    assert visit(api, host_of(opened, 8080))[0] == 404


def upgrade(api, sandbox, port, key=None):
    return (f"POST /v1/sandboxes/{sandbox}/tunnel/{port} HTTP/1.1\r\nHost: x\r\nX-Api-Key: {key or api.key}\r\nConnection: Upgrade\r\n"
            "Upgrade: tcp-tunnel\r\nContent-Length: 0\r\n\r\n").encode()


def test_tunnel_with_half_close(api, sandbox):
    script = ("import socket\ns=socket.create_server(('127.0.0.1',7001))\nc,_=s.accept()\nd=b''\n"
              "while p:=c.recv(65536): d+=p\nc.sendall(b'%d bytes' % len(d))\nc.close()")
    api("POST", f"/v1/sandboxes/{sandbox}/processes", {"cmd": "python3", "args": ["-c", script]}).data
    eventually(lambda: api.exec(sandbox, "sh", "-c", "grep -q :1B59 /proc/net/tcp")["exit_code"] == 0, what="the listener")
    with socket.create_connection(("127.0.0.1", api.port), timeout=PATIENCE) as link:
        # What is sent together with the request belongs to the tunnel.
        link.sendall(upgrade(api, sandbox, 7001) + b"early")
        head = b""
        while b"\r\n\r\n" not in head:
            head += link.recv(1)
        assert head.startswith(b"HTTP/1.1 101 ") and b"tcp-tunnel" in head
        link.sendall(b"x" * 1_000_000)
        link.shutdown(socket.SHUT_WR)
        answer = b""
        while piece := link.recv(1000):
            answer += piece
        assert answer == b"1000005 bytes"


def test_refused_tunnels_are_closed(api, sandbox):
    for port, key, status in [("7002", "skp_wrong", 401), ("0", None, 400), ("x", None, 400), ("70000", None, 400)]:
        answer = raw(api.port, upgrade(api, sandbox, port, key))  # returns at the connection's end
        assert answer.startswith(f"HTTP/1.1 {status} ".encode()), answer
    assert raw(api.port, upgrade(api, "sb-" + "0" * 26, "22")).startswith(b"HTTP/1.1 404 ")
    api("POST", f"/v1/sandboxes/{sandbox}/tunnel/22").fails(400)
    assert b"SSH" not in raw(api.port, upgrade(api, sandbox, "9"))  # nobody listens: it ends at once
