"""kill -9 of the server: its sandboxes live on, and the next one finds them as they are."""

import base64
import json
import os
import secrets
import signal
import socket
import struct

import pytest

from druped import SHAPE, Druped, eventually, linked_home


@pytest.fixture
def own(drupe, tmp_path):
    """A server that the test may kill, on a home of its own with links of the image."""
    home = linked_home(drupe.home, tmp_path / "home")
    server = Druped(home)
    yield server
    if server.process.poll() is not None:
        server.start()
    server.kill()
    ids = drupe.__class__(home)("ps", "-a", "-q", code=None).text.split()
    if ids:
        drupe.__class__(home)("rm", "-f", *ids, code=None)


def test_sandboxes_in_all_states_survive_kill(own):
    api = own.api()
    running = api.create(name="running", envs={"A": "1"}, egress=["240.0.0.0/4"], auto_pause_after_seconds=3600)["id"]
    paused, destroyed, lost = (api.create(name=name)["id"] for name in ("paused", "destroyed", "lost"))
    api.sh(running, "i=0; (while :; do i=$((i+1)); echo $i > /root/count; sleep 0.2; done) >/dev/null 2>&1 &")
    process = api("POST", f"/v1/sandboxes/{running}/processes", {"cmd": "sh", "args": ["-c", "echo before; read x; echo after $x; read y"]}).data
    url = f"/v1/sandboxes/{running}/processes/{process['process_id']}"
    eventually(lambda: api("GET", url).data["output"]["newest_seq"] == 1)
    api("POST", f"/v1/sandboxes/{paused}/pause").data
    api("DELETE", f"/v1/sandboxes/{destroyed}").data
    before = {row["id"]: row for row in api("GET", "/v1/sandboxes").data["data"]}
    own.kill()
    shims = {json.loads((path / "record.json").read_text())["name"]: path for path in (own.home / "sandboxes").iterdir()}
    assert set(shims) == {running, paused, lost}
    kill_shim(shims[lost])

    own.start()
    after = {row["id"]: row for row in api("GET", "/v1/sandboxes").data["data"]}
    assert after[lost].pop("status") == "error" and before[lost].pop("status") == "running"
    assert after == before
    assert api.sh(running, "echo $A") == "1\n"
    count = int(api.sh(running, "cat /root/count"))
    eventually(lambda: int(api.sh(running, "cat /root/count") or 0) > count)
    api("POST", f"/v1/sandboxes/{paused}/resume").data
    assert api.exec(paused, "true")["exit_code"] == 0
    api("POST", "/v1/sandboxes", {"shape": SHAPE, "name": "running"}).fails(409)

    # A managed process goes on; what it wrote before is gone with the server, and that is said.
    assert api("GET", url).data["state"] == "running"
    api("POST", f"{url}/input", {"data_base64": base64.b64encode(b"x\n").decode()}).data
    link, response = api.stream("GET", f"{url}/connect?after=0")
    frame = next(frame for frame in map(json.loads, response) if frame["type"] != "heartbeat")
    link.close()
    # Numbers only grow, also over a restart.
    assert base64.b64decode(frame["data_base64"]) == b"after x\n" and frame["seq"] > 1
    link, response = api.stream("GET", f"{url}/connect?after=1")
    assert json.loads(response.readline())["error"] == "output offset expired"
    link.close()
    for one in (running, paused, lost):
        assert api("DELETE", f"/v1/sandboxes/{one}").data["status"] == "destroyed"
    assert not list((own.home / "sandboxes").iterdir())


def kill_shim(directory):
    """Kills whoever holds the sandbox's socket."""
    place = os.open(directory / "shim.sock", os.O_PATH)
    with socket.socket(socket.AF_UNIX) as link:
        link.connect(f"/proc/self/fd/{place}")
        pid, _, _ = struct.unpack("3i", link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    os.close(place)
    os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("moment", ["engine.create.placed", "engine.start.spawned", "engine.start.promised"])
def test_a_create_that_was_interrupted_leaves_nothing(own, moment):
    api = own.api()
    own.stop()
    own.environment["DRUPE_FAILPOINT"] = moment
    own.start()
    with pytest.raises(ConnectionError):
        api.create(name=f"half-{secrets.token_hex(3)}")
    own.process.wait(timeout=120)
    del own.environment["DRUPE_FAILPOINT"]
    own.start()
    assert [row["status"] for row in api("GET", "/v1/sandboxes").data["data"]] in ([], ["failed"])
    eventually(lambda: not list((own.home / "sandboxes").iterdir()), what="the end of what was begun")


def test_a_stop_lets_requests_end(own):
    api = own.api()
    sandbox = api.create()["id"]
    link, response = api.stream("POST", f"/v1/sandboxes/{sandbox}/exec?stream=true", {"cmd": "sh", "args": ["-c", "echo go; sleep 2; echo end"]})
    assert json.loads(response.readline()) == {"stdout": "go\n"}
    assert own.stop() == 0
    rest = [json.loads(line) for line in response]
    assert rest == [{"stdout": "end\n"}, {"exit_code": 0}]
    link.close()
    own.start()
    assert api.exec(sandbox, "true")["exit_code"] == 0
    api("DELETE", f"/v1/sandboxes/{sandbox}")
