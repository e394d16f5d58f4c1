"""What a user may have, and for how long: quotas, retention, auto-pause."""

import secrets

import pytest

from druped import SHAPE, Druped, eventually, in_thread, linked_home

CONFIG = """
[limits]
least_auto_pause_seconds = 2
retention_seconds = 300
[quota]
sandboxes = 3
"""


def started(tmp_path_factory, home, text):
    place = tmp_path_factory.mktemp("druped")
    (place / "druped.toml").write_text(text)
    return Druped(linked_home(home, place / "home"), "--config", str(place / "druped.toml"))


@pytest.fixture(scope="module")
def bounded(drupe, home, druped, sandbox, tmp_path_factory):
    """A server with bounds of its own; `sandbox` has made the base snapshot that it links."""
    server = started(tmp_path_factory, home, CONFIG)
    try:
        yield server
        assert server.stop() == 0
    finally:
        if server.process.poll() is None:
            server.kill()


def user_with(server, **quota):
    name = f"user-{secrets.token_hex(6)}"
    api = server.api(name)
    if quota:
        server.command("quota", "set", name, *[f"{part}={value}" for part, value in quota.items()])
    return name, api


def refused(api, **fields):
    return api("POST", "/v1/sandboxes", {"shape": SHAPE, **fields}).fails(403)["message"]


def test_the_quota_is_asked_before_anything_is_made(bounded):
    name, api = user_with(bounded, sandboxes=1, disk_mib=0)
    first = api.create()["id"]
    assert "the quota is 1 sandboxes" in refused(api)
    assert api("GET", "/v1/whoami").data["stats"]["total"] == 1
    # In force at once, without a restart.
    assert bounded.command("quota", "set", name, "sandboxes=2").stdout == "sandboxes=2 vcpu=- mem_mib=- disk_mib=0\n"
    second = api.create()["id"]
    assert "the quota is 2 sandboxes" in refused(api)
    # Somebody else's do not count, nor do those that have ended.
    _, other = user_with(bounded)
    theirs = other.create()["id"]
    api("DELETE", f"/v1/sandboxes/{second}")
    third = api.create()["id"]
    # A paused one counts, and so does a fork.
    api("POST", f"/v1/sandboxes/{third}/pause").data
    assert "sandboxes" in api("POST", f"/v1/sandboxes/{third}/fork", {}).fails(403)["message"]
    for owner, one in ((api, first), (api, third), (other, theirs)):
        owner("DELETE", f"/v1/sandboxes/{one}")


def test_creates_at_once_do_not_pass_the_quota_together(bounded):
    _, api = user_with(bounded, sandboxes=1)
    answers = [wait() for wait in [in_thread(api, "POST", "/v1/sandboxes", {"shape": SHAPE}) for _ in range(4)]]
    assert sorted(answer.status for answer in answers) == [200, 403, 403, 403]
    (made,) = [answer.data["id"] for answer in answers if answer.status == 200]
    api("DELETE", f"/v1/sandboxes/{made}")


def test_memory_counts_while_it_runs(bounded):
    _, api = user_with(bounded, mem_mib=256, vcpu=1, disk_mib=20480)
    first = api.create(disk_mib=10240)["id"]
    assert "vCPUs" in refused(api, disk_mib=10240)
    api("POST", f"/v1/sandboxes/{first}/pause").data
    second = api.create(disk_mib=8192)["id"]
    assert "vCPUs" in api("POST", f"/v1/sandboxes/{first}/resume").fails(403)["message"]
    assert api.state(first) == "paused"
    assert "MiB of disk" in api("POST", f"/v1/sandboxes/{second}/resize", {"disk_mib": 10241}).fails(403)["message"]
    assert api("POST", f"/v1/sandboxes/{second}/resize", {"disk_mib": 10240}).data["disk_mib"] == 10240
    api("DELETE", f"/v1/sandboxes/{second}")
    assert api("POST", f"/v1/sandboxes/{first}/resume").data["status"] == "running"
    api("DELETE", f"/v1/sandboxes/{first}")


@pytest.mark.parametrize("words", [["set"], ["show"], ["set", "nobody", "vcpu=1"], ["set", "admin", "vcpu=x"], ["set", "admin", "vcpu=-1"],
                                   ["set", "admin", "vcpus=1"], ["set", "admin", "vcpu"], ["drop", "admin"]])
def test_wrong_quota_commands(bounded, words):
    done = bounded.command("quota", *words, code=None)
    assert done.returncode != 0 and "quota" in done.stderr or "no user" in done.stderr


def test_an_idle_sandbox_is_paused_and_a_busy_one_is_not(bounded):
    _, api = user_with(bounded)
    api("POST", "/v1/sandboxes", {"shape": SHAPE, "auto_pause_after_seconds": 1}).fails(400)
    idle = api.create(auto_pause_after_seconds=2)["id"]
    busy = api.create(auto_pause_after_seconds=2)["id"]
    command = in_thread(api.exec, busy, "sh", "-c", "sleep 8; echo done")
    eventually(lambda: api.state(idle) == "paused", what="the pause")
    assert "paused_at" in api("GET", f"/v1/sandboxes/{idle}").data
    assert api.state(busy) == "running"
    assert command()["stdout"] == "done\n"
    assert api("POST", f"/v1/sandboxes/{idle}/resume").data["status"] == "running"
    assert "auto_pause_after_seconds" not in api("PATCH", f"/v1/sandboxes/{idle}", {"disable_auto_pause": True}).data
    eventually(lambda: api.state(busy) == "paused", what="the pause after the command")
    assert api.state(idle) == "running"
    for one in (idle, busy):
        api("DELETE", f"/v1/sandboxes/{one}")


def test_time_runs_out_also_over_a_restart(drupe, home, sandbox, tmp_path_factory):
    server = started(tmp_path_factory, home, "[limits]\npaused_ttl_seconds = 4\nmax_lifetime_seconds = 14\nleast_auto_pause_seconds = 1\n")
    try:
        api = server.api()
        old = api.create(name="old")["id"]
        slept = api.create(name="slept")["id"]
        woken = api.create(name="woken")["id"]
        for one in (slept, woken):
            api("POST", f"/v1/sandboxes/{one}/pause").data
        server.kill()
        server.start()
        api.port = server.port
        assert api("POST", f"/v1/sandboxes/{woken}/resume").data["status"] == "running"
        eventually(lambda: api.state(slept) == "destroyed", what="the end of the paused one")
        assert api.state(woken) == "running" and api.state(old) == "running"
        eventually(lambda: api.state(old) == "destroyed", what="the end of the old one")
        eventually(lambda: api.state(woken) == "destroyed", what="the end of the woken one")
        assert not list((server.home / "sandboxes").glob("*")), "directories are left"
        assert server.stop() == 0
    finally:
        if server.process.poll() is None:
            server.kill()
