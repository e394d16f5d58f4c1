"""What clients put on the wire, byte by byte: HTTP/2 prefaces, upgrade offers, bodies with and without lengths."""

import json
import re
import socket

import pytest

from druped import Api, raw

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"


def request(api, method, path, *headers, body=b"", close=True):
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", f"X-Api-Key: {api.key}", *headers]
    if close:
        lines.append("Connection: close")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def status(answer):
    return int(answer.split(b" ", 2)[1])


def test_http2_preface_is_refused_and_closed(druped):
    answer = raw(druped.port, PREFACE)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"connection: close" in answer.lower() and b"content-length: 0" in answer.lower()
    # Its client repeats the request over HTTP/1.1, and does so for each request.
    for _ in range(200):
        assert raw(druped.port, PREFACE).startswith(b"HTTP/1.1 400 ")
    assert Api(druped.port, None)("GET", "/healthz").data == {"up": True}


def test_http2_preface_in_pieces(druped):
    assert raw(druped.port, PREFACE[:10], PREFACE[10:]).startswith(b"HTTP/1.1 400 ")


def test_h2c_offer_is_ignored(druped, api):
    answer = raw(druped.port, request(api, "GET", "/v1/whoami", "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c",
                                      "HTTP2-Settings: AAEAAEAAAAIAAAAAAAMAAAAAAAQBAAAAAAUAAEAAAAYABgAA",
                                      "Content-Length: 0", close=False), read_until_close=False)
    assert status(answer) == 200


@pytest.mark.parametrize("headers, body", [
    ([], b""),
    (["Content-Length: 0"], b""),
    (["Content-Length: 0", "Content-Type: application/json"], b""),
    (["Content-Length: 4", "Content-Type: application/json"], b"null"),
    (["Content-Length: 2"], b"{}"),
    (["Transfer-Encoding: chunked"], b"2\r\n{}\r\n0\r\n\r\n"),
    (["Transfer-Encoding: chunked"], b"0\r\n\r\n"),
])
def test_posts_without_a_body(druped, api, sandbox, headers, body):
    # Resuming what runs is a conflict: the request was understood.
    assert status(raw(druped.port, request(api, "POST", f"/v1/sandboxes/{sandbox}/resume", *headers, body=body))) == 409


def test_keep_alive_and_pipelining(druped, api):
    one = request(api, "GET", "/v1/whoami", close=False)
    answer = raw(druped.port, one + one + request(api, "GET", "/healthz"))
    assert answer.count(b"HTTP/1.1 200 OK") == 3
    link = api.connect()
    for _ in range(50):
        assert api("GET", "/v1/whoami", connection=link).status == 200
    link.close()


def test_body_that_nobody_reads_does_not_become_a_request(druped, api):
    poison = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
    first = request(api, "POST", "/v1/nothing", f"Content-Length: {len(poison)}", body=poison, close=False)
    answer = raw(druped.port, first + request(api, "GET", "/v1/whoami"))
    assert re.findall(rb"HTTP/1.1 (\d+)", answer) == [b"404", b"200"]


def test_expect_continue(druped, api, sandbox):
    body = b"x" * 10
    with socket.create_connection(("127.0.0.1", druped.port), timeout=60) as link:
        link.sendall(request(api, "PUT", f"/v1/sandboxes/{sandbox}/files?path=/tmp/expected", "Expect: 100-continue",
                             f"Content-Length: {len(body)}"))
        assert link.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        link.sendall(body)
        assert link.recv(65536).startswith(b"HTTP/1.1 200 OK")


def test_every_byte_of_a_segment_may_be_encoded(api, sandbox):
    everything = "".join(f"%{byte:02X}" for byte in sandbox.encode())
    assert api("GET", f"/v1/sandboxes/{everything}").data["id"] == sandbox
    assert api("GET", f"/%76%31/sandboxes/{sandbox}").data["id"] == sandbox
    api("GET", "/v1/sandboxes/..%2F..%2Fetc").fails(404)
    api("GET", "/v1/sandboxes/%00").fails(404)


def test_query_is_a_form(api, sandbox):
    assert api.put(sandbox, "/tmp/a b+c%", b"content").data == {"bytes": 7, "path": "/tmp/a b+c%"}
    assert api("GET", f"/v1/sandboxes/{sandbox}/files?path=%2Ftmp%2Fa+b%2Bc%25").body == b"content"


def test_unknown_fields_and_parameters_are_ignored(api, sandbox):
    answer = api("POST", f"/v1/sandboxes/{sandbox}/exec?cache=no&x", {"cmd": "true", "nonsense": [1, {"a": None}], "env": None})
    assert answer.data["result"]["exit_code"] == 0


@pytest.mark.parametrize("bytes_", [
    b"nonsense\r\n\r\n",
    b"GET / HTTP/1.1\nHost: x\n\n",
    b"GET /v1/whoami HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"GET /v1/whoami HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n",
    b"GET /v1/whoami HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
    b"GET /v1/whoami HTTP/1.1\r\nHost : x\r\n\r\n",
    b"GET /%zz HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /v1/whoami HTTP/3.7\r\nHost: x\r\n\r\n",
    b"CONNECT example.com:443 HTTP/1.1\r\nHost: x\r\n\r\n",
])
def test_malformed_requests_are_refused_and_closed(druped, bytes_):
    assert raw(druped.port, bytes_).startswith(b"HTTP/1.1 400 ")


def test_a_head_that_is_too_long(druped):
    answer = raw(druped.port, b"GET / HTTP/1.1\r\nX: " + b"y" * 100_000)
    assert status(answer) == 431


def test_malformed_chunks(druped, api, sandbox):
    answer = raw(druped.port, request(api, "POST", f"/v1/sandboxes/{sandbox}/exec", "Transfer-Encoding: chunked", body=b"zz\r\n{}\r\n"))
    assert status(answer) == 400


@pytest.mark.parametrize("path", ["/v1/whoami/", "//v1/whoami", "/v1/sandboxes/", "/v1/%2e%2e/whoami", "/", "/v1"])
def test_other_spellings_are_not_found_and_never_redirected(druped, api, path):
    assert api("GET", path).fails(404)
    # A stranger learns nothing, not even that.
    assert Api(druped.port, None)("GET", path).fails(401)


def test_answers_carry_a_request_id_and_are_not_stored(api):
    first, second = api("GET", "/v1/whoami"), api("GET", "/v1/nothing")
    assert first.headers["x-request-id"] != second.headers["x-request-id"]
    assert first.headers["cache-control"] == second.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("body", [b"{", b"[]", b'"text"', b'{"cmd":1}', b'{"cmd":"a","cmd":"b"}', b"\xff", b'{"cmd":"\xc3\x28"}',
                                  b'{"cmd":"true","args":' + b"[" * 10_000 + b"]" * 10_000 + b"}", b'{"cmd":"true","args":"x"}'])
def test_bad_json(api, sandbox, body):
    api("POST", f"/v1/sandboxes/{sandbox}/exec", body).fails(400, "invalid_argument")


def test_json_is_ascii(api, sandbox):
    wide = "é\u0085\u2028\u2029\U0001F600"
    answer = api("POST", f"/v1/sandboxes/{sandbox}/exec", {"cmd": "printf", "args": ["%s", wide]})
    assert answer.body.isascii()
    assert json.loads(answer.body)["data"]["result"]["stdout"] == wide
