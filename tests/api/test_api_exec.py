"""Commands and files through the API."""

import json
import os
import socket
import time

import pytest

from druped import eventually, in_thread


def frames(api, sandbox, cmd, *args, **fields):
    link, response = api.stream("POST", f"/v1/sandboxes/{sandbox}/exec?stream=true", {"cmd": cmd, "args": list(args), **fields})
    assert response.status == 200, response.read()
    assert response.getheader("content-type") == "application/x-ndjson"
    yield from (line for line in response)
    link.close()


def test_exit_codes(api, sandbox):
    path = f"/v1/sandboxes/{sandbox}/exec"
    answer = api("POST", path, {"cmd": "sh", "args": ["-c", "echo out; echo err >&2; exit 42"]}).data
    assert answer["result"] == {"stdout": "out\n", "stderr": "err\n", "exit_code": 42}
    assert isinstance(answer["exec_ms"], float)
    missing = api.exec(sandbox, "no-such-program")
    assert missing["exit_code"] == 127 and "no-such-program" in missing["error"]
    refused = api.exec(sandbox, "/etc/passwd")
    assert refused["exit_code"] == 126 and refused["error"]
    assert api.exec(sandbox, "sh", "-c", "kill -9 $$")["exit_code"] == 137
    assert api.exec(sandbox, "timeout", "--signal=KILL", "1", "sleep", "5")["exit_code"] == 137
    for body in ({}, {"cmd": ""}, {"cmd": "true", "env": {"A=B": "x"}}, {"cmd": "a\0b"}):
        api("POST", path, body).fails(400)


def test_stdin_and_env(api, sandbox):
    assert api.exec(sandbox, "cat", stdin="héllo\n")["stdout"] == "héllo\n"
    assert api.exec(sandbox, "wc", "-c", stdin="x" * 5_000_000)["stdout"].strip() == "5000000"
    assert api.exec(sandbox, "cat", stdin="")["stdout"] == ""
    assert api.exec(sandbox, "cat")["stdout"] == ""
    assert api.exec(sandbox, "sh", "-c", "echo $GIVEN", env={"GIVEN": "now"}, stream=False)["stdout"] == "now\n"


def test_output_that_is_not_text(api, sandbox):
    assert api.exec(sandbox, "printf", r"a\377b")["stdout"] == "a\ufffdb"


def test_ours_beside_it(api, sandbox):
    plain = api.exec(sandbox, "true")
    assert set(plain) == {"stdout", "stderr", "exit_code"}
    detailed = api.exec(sandbox, "sh", "-c", "echo before; sleep 60", cwd="/tmp", timeout_ms=1500, details=True)
    assert detailed["timed_out"] is True and detailed["stdout"] == "before\n"
    assert api.exec(sandbox, "pwd", cwd="/tmp")["stdout"] == "/tmp\n"


def test_long_output_is_cut_and_says_so(api, sandbox):
    result = api.exec(sandbox, "head", "-c", str(20 << 20), "/dev/zero", details=True)
    assert len(result["stdout"]) == 16 << 20 and result["truncated"] is True


def test_background_child_without_redirect(api, sandbox):
    begun = time.monotonic()
    assert api.exec(sandbox, "sh", "-c", "sleep 1000 & echo $!")["exit_code"] == 0
    assert time.monotonic() - begun < 60
    api.exec(sandbox, "pkill", "-f", "sleep 1000")


def test_stream(api, sandbox):
    lines = list(frames(api, sandbox, "printf", "%s", "a\u2028b\u2029c\u0085d\U0001F600"))
    assert all(line.isascii() and line.endswith(b"\n") for line in lines)
    got = [json.loads(line) for line in lines]
    assert "".join(frame.get("stdout", "") for frame in got) == "a\u2028b\u2029c\u0085d\U0001F600"
    assert got[-1] == {"exit_code": 0} and sum("exit_code" in frame for frame in got) == 1
    assert [json.loads(line) for line in frames(api, sandbox, "no-such-program")][-1] == {"exit_code": 127}
    assert "error" in json.loads(next(frames(api, sandbox, "no-such-program")))


def test_stream_is_live_and_beats(api, sandbox):
    lines = frames(api, sandbox, "sh", "-c", "echo first; read x < /tmp/gate; echo $x")
    api.exec(sandbox, "sh", "-c", "rm -f /tmp/gate; mkfifo /tmp/gate")
    lines = frames(api, sandbox, "sh", "-c", "echo first; read x < /tmp/gate; echo $x")
    assert json.loads(next(lines)) == {"stdout": "first\n"}  # before the command ends
    assert json.loads(next(lines)) == {"hb": True}
    api.exec(sandbox, "sh", "-c", "echo second > /tmp/gate")
    rest = [json.loads(line) for line in lines]
    assert [frame for frame in rest if frame != {"hb": True}] == [{"stdout": "second\n"}, {"exit_code": 0}]


def test_stream_lines_are_short_and_characters_whole(api, sandbox):
    script = "import sys; sys.stdout.buffer.write('\u00e9\U0001F600\\0'.encode()*300000)"
    lines = list(frames(api, sandbox, "python3", "-c", script))
    assert max(map(len, lines)) <= 64 << 10
    assert "".join(json.loads(line).get("stdout", "") for line in lines) == "\u00e9\U0001F600\0" * 300000


@pytest.mark.parametrize("query", ["", "?stream=true"])
def test_a_client_that_leaves_ends_its_command(api, sandbox, query):
    mark = f"7{os.urandom(3).hex()}".replace("a", "1").translate(str.maketrans("bcdef", "23456"))
    link = socket.create_connection(("127.0.0.1", api.port), timeout=60)
    body = json.dumps({"cmd": "sh", "args": ["-c", f"sleep {mark} & wait"]}).encode()
    link.sendall(f"POST /v1/sandboxes/{sandbox}/exec{query} HTTP/1.1\r\nHost: x\r\nX-Api-Key: {api.key}\r\n"
                 f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
    eventually(lambda: api.exec(sandbox, "pgrep", "-fx", f"sleep {mark}")["exit_code"] == 0, 60, "the command")
    link.close()
    eventually(lambda: api.exec(sandbox, "pgrep", "-fx", f"sleep {mark}")["exit_code"] == 1, 60, "its end")


def test_a_client_that_stops_reading_costs_no_memory(druped, api, sandbox):
    link, response = api.stream("POST", f"/v1/sandboxes/{sandbox}/exec?stream=true", {"cmd": "sh", "args": ["-c", "echo $$ > /tmp/yes; exec yes"]})
    response.readline()
    before = druped.memory_kib()
    ticks = f"cut -d' ' -f14,15 /proc/$(cat /tmp/yes)/stat"

    def stands_still():
        first = api.sh(sandbox, ticks)
        time.sleep(0.5)
        return api.sh(sandbox, ticks) == first

    eventually(stands_still, 60, "the command held back")
    assert druped.memory_kib() < before + 8192
    link.close()
    eventually(lambda: api.exec(sandbox, "pgrep", "-x", "yes")["exit_code"] == 1, 60, "the command's end")


def test_many_at_once(api, sandbox):
    waiting = [in_thread(api.exec, sandbox, "sh", "-c", f"sleep 1; echo {i}") for i in range(20)]
    assert [wait()["stdout"] for wait in waiting] == [f"{i}\n" for i in range(20)]


def test_files(api, sandbox):
    content = bytes(range(256)) * 100
    assert api.put(sandbox, "/workspace/a/b/c.bin", content).data == {"bytes": len(content), "path": "/workspace/a/b/c.bin"}
    answer = api.fetch(sandbox, "/workspace/a/b/c.bin")
    assert answer.body == content and answer.headers["content-length"] == str(len(content))
    assert answer.headers["content-type"] == "application/octet-stream"
    assert api.sh(sandbox, "stat -c '%u %a' /workspace/a/b/c.bin") == "0 644\n"
    api.sh(sandbox, "chmod 755 /workspace/a/b/c.bin")
    assert api.put(sandbox, "/workspace/a/b/c.bin", b"").data["bytes"] == 0
    assert api.sh(sandbox, "stat -c '%s %a' /workspace/a/b/c.bin") == "0 755\n"
    assert api.fetch(sandbox, "/workspace/a/b/c.bin").body == b""
    assert b"processor" in api.fetch(sandbox, "/proc/cpuinfo").body
    assert "not found" in api.fetch(sandbox, "/nothing").fails(404)["message"]
    for path in ("/tmp", "relative", "", "/tmp/", "/tmp/" + "x" * 256, "/" + "x/" * 2100, "/tmp/a\0b", "/etc/passwd/x"):
        api.put(sandbox, path, b"x").fails(400)
    for path in ("/tmp", "relative", "", "/dev/null"):
        api.fetch(sandbox, path).fails(400)
    api.put(sandbox, "/dev/full", b"x").fails(409, "no_space")


def test_chunked_upload_with_flat_memory(druped, api, sandbox):
    size, part = 100 << 20, b"0123456789abcdef" * 4096
    api.put(sandbox, "/root/warm", part)
    before = druped.memory_kib()
    most = 0

    def pieces():
        nonlocal most
        for i in range(size // len(part)):
            if i % 200 == 0:
                most = max(most, druped.memory_kib())
            yield part

    answer = api.put(sandbox, "/root/large", pieces())
    assert answer.data["bytes"] == size
    assert most < before + 16384
    link, response = api.stream("GET", f"/v1/sandboxes/{sandbox}/files?path=/root/large")
    got = 0
    while piece := response.read(1 << 20):
        assert piece[:16] == part[:16]
        got += len(piece)
    link.close()
    assert got == size
    api.sh(sandbox, "rm /root/large")


@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_an_upload_that_is_cut_leaves_no_file(api, sandbox, framing):
    path = f"/root/cut-{framing}"
    size = 4 << 20
    head = f"PUT /v1/sandboxes/{sandbox}/files?path={path} HTTP/1.1\r\nHost: x\r\nX-Api-Key: {api.key}\r\n"
    sent = b"x" * (size * 6 // 10)
    if framing == "length":
        head += f"Content-Length: {size}\r\n\r\n"
    else:
        head += "Transfer-Encoding: chunked\r\n\r\n"
        sent = f"{size:x}\r\n".encode() + sent
    with socket.create_connection(("127.0.0.1", api.port), timeout=60) as link:
        link.sendall(head.encode() + sent)
        eventually(lambda: api.sh(sandbox, "ls -A /root"), what="the sandbox's answer")
    api.fetch(sandbox, path).fails(404)
    eventually(lambda: "cut" not in api.sh(sandbox, "ls -A /root"), 30, "the end of what was begun")


def test_an_upload_that_is_too_large(druped, api, sandbox):
    head = f"PUT /v1/sandboxes/{sandbox}/files?path=/root/huge HTTP/1.1\r\nHost: x\r\nX-Api-Key: {api.key}\r\n"
    with socket.create_connection(("127.0.0.1", api.port), timeout=60) as link:
        link.sendall(f"{head}Content-Length: {(500 << 20) + 1}\r\n\r\n".encode())
        assert link.recv(65536).startswith(b"HTTP/1.1 413 ")
    api.fetch(sandbox, "/root/huge").fails(404)
