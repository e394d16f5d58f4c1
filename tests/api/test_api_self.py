"""What a sandbox asks of its own life, from inside."""

import pytest

from druped import eventually

PAUSE = """
import http.client
link = http.client.HTTPConnection("127.0.0.1", 1029, timeout=30)
link.request("POST", "/self/%s?reason=" + "x" * 300)
print(link.getresponse().status, flush=True)
"""


@pytest.fixture
def ready(api, new_sandbox):
    def make(**fields):
        sandbox = new_sandbox(**fields)["id"]
        eventually(lambda: api.exec(sandbox, "bash", "-c", "echo > /dev/tcp/127.0.0.1/1029")["exit_code"] == 0, what="the server inside")
        return sandbox
    return make


def paused(api, sandbox):
    eventually(lambda: api.state(sandbox) == "paused", what="the pause")


def test_self_pause_and_resume(api, ready):
    sandbox = ready()
    api.put(sandbox, "/tmp/ask.py", (PAUSE % "pause").encode())
    # The answer was sent before everything stood still, and the caller goes on afterwards.
    api.sh(sandbox, "(python3 /tmp/ask.py > /tmp/answer; echo on >> /tmp/answer) >/dev/null 2>&1 &")
    paused(api, sandbox)
    for _ in range(2):
        api("POST", f"/v1/sandboxes/{sandbox}/resume").data
        eventually(lambda: api.fetch(sandbox, "/tmp/answer").body == b"202\non\n", what="the caller's end")
        # It works again after each resume, by the FIFO as well.
        eventually(lambda: api.exec(sandbox, "bash", "-c", "echo > /dev/tcp/127.0.0.1/1029")["exit_code"] == 0, what="the server inside")
        api.sh(sandbox, "(sleep 0.2; printf park > /run/self) >/dev/null 2>&1 &")
        paused(api, sandbox)


@pytest.mark.parametrize("script", ["python3 /tmp/ask.py", "echo retire > /run/self"])
def test_self_delete(api, druped, ready, script):
    sandbox = ready(name="goes", envs={"A": "1"})
    api.put(sandbox, "/tmp/ask.py", (PAUSE % "delete").encode())
    api.sh(sandbox, f"(sleep 0.2; {script}) >/dev/null 2>&1 &")
    eventually(lambda: api.state(sandbox) == "destroyed", what="the end")
    assert "destroyed_at" in api("GET", f"/v1/sandboxes/{sandbox}").data
    assert api("DELETE", f"/v1/sandboxes/{sandbox}").data["status"] == "destroyed"
    ready(name="goes")


def test_a_fork_asks_for_itself(api, ready):
    sandbox = ready()
    api("POST", f"/v1/sandboxes/{sandbox}/pause").data
    child = api("POST", f"/v1/sandboxes/{sandbox}/fork", {}).data["id"]
    eventually(lambda: api.exec(child, "bash", "-c", "echo > /dev/tcp/127.0.0.1/1029")["exit_code"] == 0, what="the server inside")
    api.sh(child, "(sleep 0.2; echo park > /run/self) >/dev/null 2>&1 &")
    paused(api, child)
    assert api.state(sandbox) == "paused"
    api("DELETE", f"/v1/sandboxes/{child}")


def test_what_is_no_wish(api, ready):
    sandbox = ready()
    script = r"""
say() { exec 3<>/dev/tcp/127.0.0.1/1029; printf "$1" >&3; head -n1 <&3; exec 3>&-; }
say 'GET /self/pause HTTP/1.1\r\n\r\n'; say 'POST /self/other HTTP/1.1\r\n\r\n'; say 'nonsense\r\n\r\n'
head -c 9000 /dev/zero | tr '\0' x > /tmp/long; exec 3<>/dev/tcp/127.0.0.1/1029; cat /tmp/long >&3; head -n1 <&3; exec 3>&-
echo nonsense > /run/self; head -c 100000 /dev/zero | tr '\0' y > /run/self; echo > /run/self
"""
    out = api.sh(sandbox, f"bash -c {chr(39)}{script.replace(chr(39), chr(39) + chr(92) + chr(39) + chr(39))}{chr(39)}")
    assert [line.split()[1] for line in out.splitlines()] == ["405", "404", "400", "400"], out
    assert api.state(sandbox) == "running"
    # Only from inside its own loopback.
    assert api.sh(sandbox, "cat /proc/net/tcp | grep -c '0100007F:0405 00000000:0000 0A'").strip() == "1"
