"""Managed processes: they run on without their client, and their output can be read again."""

import base64
import json
import time

import pytest

from druped import eventually


def start(api, sandbox, script=None, **fields):
    body = {"cmd": "sh", "args": ["-c", script], **fields} if script is not None else fields
    return api("POST", f"/v1/sandboxes/{sandbox}/processes", body).data


def path(sandbox, process, rest=""):
    return f"/v1/sandboxes/{sandbox}/processes/{process['process_id']}{rest}"


def connect(api, sandbox, process, after=0):
    link, response = api.stream("GET", path(sandbox, process, f"/connect?after={after}"))
    assert response.status == 200 and response.getheader("content-type") == "application/x-ndjson"
    for line in response:
        assert line.isascii()
        frame = json.loads(line)
        if frame["type"] != "heartbeat":
            yield frame
    link.close()


def text(frames, stream="stdout"):
    return b"".join(base64.b64decode(frame["data_base64"]) for frame in frames if frame.get("stream") == stream)


def write(api, sandbox, process, bytes_):
    return api("POST", path(sandbox, process, "/input"), {"data_base64": base64.b64encode(bytes_).decode()})


def test_output_can_be_read_again_from_any_place(api, sandbox):
    process = start(api, sandbox, "echo a; read x; echo b; echo c >&2; exit 3")
    assert process["state"] == "running" and process["kind"] == "process" and process["pid"] > 0
    assert process["output"].keys() == {"oldest_seq", "newest_seq", "bytes"}
    reader = connect(api, sandbox, process)
    first = next(reader)
    assert (first["seq"], first["stream"], text([first])) == (1, "stdout", b"a\n")
    assert write(api, sandbox, process, b"\n").data == {"input_seq": 1}
    rest = list(reader)
    assert rest[-1] == {"type": "exit", "exit_code": 3}
    assert text(rest) == b"b\n" and text(rest, "stderr") == b"c\n"
    assert [frame["seq"] for frame in rest[:-1]] == [2, 3]
    again = list(connect(api, sandbox, process))
    assert again == [first, *rest] and list(connect(api, sandbox, process, 1)) == rest
    ended = api("GET", path(sandbox, process)).data
    assert (ended["state"], ended["exit_code"], ended["leader_exited"], ended["tree_exited"]) == ("exited", 3, True, True)
    assert ended["output"]["newest_seq"] == 3 and ended["finished_at"].endswith("Z")
    listed = api("GET", f"/v1/sandboxes/{sandbox}/processes").data["processes"]
    assert ended in listed
    assert list(connect(api, sandbox, process, ended["output"]["newest_seq"])) == [{"type": "exit", "exit_code": 3}]


def test_several_readers(api, sandbox):
    process = start(api, sandbox, "read x; echo $x")
    readers = [connect(api, sandbox, process) for _ in range(3)]
    write(api, sandbox, process, b"hello\n")
    assert [text(list(reader)) for reader in readers] == [b"hello\n"] * 3


def test_old_output_is_dropped_and_that_is_said(api, sandbox):
    process = start(api, sandbox, "head -c 3000000 /dev/zero")
    api("GET", path(sandbox, process, "/wait"))
    view = api("GET", path(sandbox, process)).data["output"]
    assert view["bytes"] <= 1 << 20 and view["oldest_seq"] > 1
    frames = list(connect(api, sandbox, process, 1))
    assert frames == [{"type": "error", "error": "output offset expired", "oldest_available_seq": view["oldest_seq"]}]
    kept = list(connect(api, sandbox, process, view["oldest_seq"] - 1))
    assert len(text(kept)) == view["bytes"] and kept[-1]["type"] == "exit"
    assert text(list(connect(api, sandbox, process))) == text(kept)


def test_end_kills_the_tree(api, sandbox):
    process = start(api, sandbox, "trap '' TERM; sleep 54321 & sleep 54321; sleep 54321")
    eventually(lambda: api.exec(sandbox, "pgrep", "-fxc", "sleep 54321")["stdout"] == "2\n", what="its children")
    ended = api("DELETE", path(sandbox, process, "?grace_ms=300")).data
    assert ended["state"] == "exited" and ended["signal"] == "SIGKILL" and "exit_code" not in ended
    eventually(lambda: api.exec(sandbox, "pgrep", "-fx", "sleep 54321")["exit_code"] == 1, what="the end of its children")
    assert list(connect(api, sandbox, process))[-1] == {"type": "exit", "signal": "SIGKILL"}
    assert api("DELETE", path(sandbox, process)).data["state"] == "exited"
    gentle = start(api, sandbox, "trap 'exit 7' TERM; while :; do sleep 0.1; done")
    eventually(lambda: api.exec(sandbox, "pgrep", "-fx", "sleep 0.1")["exit_code"] == 0, what="the trap")
    assert api("DELETE", path(sandbox, gentle, "?grace_ms=30000")).data["exit_code"] == 7


def test_wait(api, sandbox):
    process = start(api, sandbox, "read x; sleep 3 & exit 5")
    api("GET", path(sandbox, process, "/wait?scope=&timeout_ms=100")).fails(408)
    api("GET", path(sandbox, process, "/wait?scope=forest")).fails(400)
    write(api, sandbox, process, b"\n")
    assert api("GET", path(sandbox, process, "/wait?scope=leader")).data["exit_code"] == 5
    assert api("GET", path(sandbox, process, "/wait?scope=tree&timeout_ms=120000")).data["tree_exited"] is True


def test_stdin(api, sandbox):
    process = start(api, sandbox, "wc -c")
    content = bytes(range(256)) * 4000
    for i in range(3):
        assert write(api, sandbox, process, content).data == {"input_seq": i + 1}
    for _ in range(2):
        assert api("POST", path(sandbox, process, "/stdin/close"), b"null").data == {"ok": True}
    write(api, sandbox, process, b"x").fails(409)
    assert text(list(connect(api, sandbox, process))).strip() == b"3072000"
    write(api, sandbox, process, b"x").fails(409)
    api("POST", path(sandbox, process, "/input"), {"data_base64": "!"}).fails(400)


def test_signal(api, sandbox):
    process = start(api, sandbox, "trap 'echo got; exit 0' USR1; echo ready; while :; do sleep 0.1; done")
    reader = connect(api, sandbox, process)
    assert text([next(reader)]) == b"ready\n"
    api("POST", path(sandbox, process, "/signal"), {"signal": "SIGSTOP"}).fails(400)
    assert api("POST", path(sandbox, process, "/signal"), {"signal": "SIGUSR1"}).data == {"ok": True}
    assert b"got\n" in text(list(reader))
    api("POST", path(sandbox, process, "/resize"), {"rows": 1, "cols": 1}).fails(400)


def test_terminal(api, sandbox):
    process = start(api, sandbox, pty={"rows": 30, "cols": 100}, cwd="/tmp")
    assert process["kind"] == "pty"
    reader = connect(api, sandbox, process)
    got = b""

    def until(words):
        nonlocal got
        while words not in got:
            frame = next(reader)
            assert frame["stream"] == "pty"
            got += base64.b64decode(frame["data_base64"])
        got = b""

    write(api, sandbox, process, b"echo size=$(stty size) in=$PWD term=$TERM\n")
    until(b"size=30 100 in=/tmp term=xterm-256color\r\n")
    assert api("POST", path(sandbox, process, "/resize"), {"rows": 10, "cols": 20}).data == {"ok": True}
    write(api, sandbox, process, b"echo size=$(stty size)\n")
    until(b"size=10 20\r\n")
    api("POST", path(sandbox, process, "/stdin/close")).fails(409)
    write(api, sandbox, process, b"exit 9\n")
    assert list(reader)[-1] == {"type": "exit", "exit_code": 9}


@pytest.mark.parametrize("body", [{}, {"cmd": ""}, {"cmd": "no-such-program"}, {"cmd": 1}, {"cmd": "true", "pty": 1},
                                  {"cmd": "true", "env": {"A=B": "c"}}, {"cmd": "true", "pty": {"rows": -1}}])
def test_what_cannot_start(api, sandbox, body):
    before = api("GET", f"/v1/sandboxes/{sandbox}/processes").data
    api("POST", f"/v1/sandboxes/{sandbox}/processes", body).fails(400)
    assert api("GET", f"/v1/sandboxes/{sandbox}/processes").data == before


def test_missing_and_foreign_processes(druped, api, sandbox):
    process = start(api, sandbox, "true")
    other = druped.api()
    for method, rest, body in [("GET", "", None), ("DELETE", "", None), ("GET", "/connect", None), ("GET", "/wait", None),
                               ("POST", "/input", {"data_base64": ""}), ("POST", "/stdin/close", None),
                               ("POST", "/resize", {"rows": 1, "cols": 1}), ("POST", "/signal", {"signal": "SIGTERM"})]:
        assert other(method, path(sandbox, process, rest), body).fails(404)["message"] == "sandbox not found"
        missing = api(method, path(sandbox, {"process_id": "proc_none"}, rest), body).fails(404)
        assert missing["message"] == "process not found"


def test_they_survive_a_pause(api, new_sandbox):
    sandbox = new_sandbox(envs={"COLOUR": "green"})["id"]
    process = start(api, sandbox, "echo $COLOUR; read x; echo $x; read y; echo $y")
    reader = connect(api, sandbox, process)
    assert text([next(reader)]) == b"green\n"
    api("POST", f"/v1/sandboxes/{sandbox}/pause").data
    api("GET", path(sandbox, process)).fails(409)
    api("POST", f"/v1/sandboxes/{sandbox}/resume").data
    write(api, sandbox, process, b"one\n")
    assert text(list(connect_until(api, sandbox, process, b"one\n"))) == b"green\none\n"
    write(api, sandbox, process, b"two\n")
    assert text(list(connect(api, sandbox, process))) == b"green\none\ntwo\n"


def connect_until(api, sandbox, process, words):
    got = b""
    for frame in connect(api, sandbox, process):
        got += base64.b64decode(frame.get("data_base64", ""))
        yield frame
        if got.endswith(words):
            return


def test_heartbeat(api, sandbox):
    process = start(api, sandbox, "read x")
    link, response = api.stream("GET", path(sandbox, process, "/connect"))
    begun = time.monotonic()
    assert json.loads(response.readline()) == {"type": "heartbeat"}
    assert time.monotonic() - begun > 2
    link.close()
    api("DELETE", path(sandbox, process))
