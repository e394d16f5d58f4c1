"""The warm pool: creates of its image and shape are claimed from it, and are like any other."""

import pytest

from druped import SHAPE, Druped, eventually, linked_home

CONFIG = f"""
[pool]
image = "devbox:1"
shape = "{SHAPE}"
size = 2
"""


@pytest.fixture(scope="module")
def pooled(drupe, home, sandbox, tmp_path_factory):
    place = tmp_path_factory.mktemp("druped")
    (place / "druped.toml").write_text(CONFIG)
    server = Druped(linked_home(home, place / "home"), "--config", str(place / "druped.toml"))
    try:
        yield server
        assert server.stop() == 0
        assert not list((server.home / "sandboxes").glob("*")), "what waited is left"
    finally:
        if server.process.poll() is None:
            server.kill()


def counted(admin, start):
    text = admin("GET", "/metrics").body.decode()
    return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith(start))


def test_a_create_is_claimed(pooled):
    api, admin = pooled.api(), pooled.api("admin")
    capabilities = eventually(lambda: (c := api("GET", "/v1/capabilities").data)["pool"]["ready"] == 2 and c, what="the pool")
    assert capabilities["pool"] == {"image": "devbox:1", "shape": SHAPE, "ready": 2}
    assert api("GET", "/v1/whoami").data["stats"]["total"] == 0, "what waits is nobody's"
    sandbox = api.create(name="claimed", envs={"A": "1"}, egress=["240.0.0.0/4"], auto_pause_after_seconds=3600)["id"]
    assert counted(admin, 'druped_pool_sandboxes{how="claimed"}') == 1
    assert api.sh(sandbox, "hostname; echo $A; df -m / | tail -n 1 | awk '{ print ($2 > 9000) }'") == "claimed\n1\n1\n"
    assert api.exec(sandbox, "bash", "-c", "echo > /dev/tcp/1.1.1.1/80")["exit_code"] != 0
    # It lives as others do: over a pause, and after the server.
    api("POST", f"/v1/sandboxes/{sandbox}/pause").data
    assert api("POST", f"/v1/sandboxes/{sandbox}/resume").data["status"] == "running"
    assert api.sh(sandbox, "echo $A") == "1\n"
    pooled.kill()
    pooled.start()
    api.port = admin.port = pooled.port
    assert api.sh(sandbox, "hostname") == "claimed\n"
    eventually(lambda: api("GET", "/v1/capabilities").data["pool"]["ready"] == 2, what="the pool after a restart")
    api("DELETE", f"/v1/sandboxes/{sandbox}")


def test_what_the_pool_does_not_keep_is_made(pooled):
    api, admin = pooled.api(), pooled.api("admin")
    eventually(lambda: api("GET", "/v1/capabilities").data["pool"]["ready"] == 2, what="the pool")
    before = counted(admin, 'druped_pool_sandboxes{how="claimed"}')
    other = api.create(disk_mib=12288)["id"]
    assert counted(admin, 'druped_pool_sandboxes{how="claimed"}') == before
    assert api.sh(other, "df -m / | tail -n 1 | awk '{ print ($2 > 11000) }'") == "1\n"
    api("DELETE", f"/v1/sandboxes/{other}")


def test_more_creates_than_are_ready(pooled):
    api = pooled.api()
    made = [api.create()["id"] for _ in range(4)]
    assert [api.sh(one, "echo in") for one in made] == ["in\n"] * 4
    for one in made:
        api("DELETE", f"/v1/sandboxes/{one}")
