"""Sandboxes through the API: create, look, change, pause, fork, destroy."""

import re
import secrets

import pytest

from druped import SHAPE, eventually

CREATED = {"id": str, "status": str, "name": str, "ip": str, "shape": str, "rootfs": str, "vcpu": int, "mem_mib": int,
           "disk_mib": int, "spawn_ms": float, "egress": list, "bandwidth_quota_bytes": int, "created_at": str,
           "region": str, "ingress_enabled": bool, "running_at": str}


def nulls(value):
    if isinstance(value, dict):
        return any(nulls(one) for one in value.values())
    return value is None or (isinstance(value, list) and any(nulls(one) for one in value))


def test_create_answers_with_everything_and_is_usable_at_once(api, new_sandbox):
    name = f"full-{secrets.token_hex(4)}"
    view = new_sandbox(name=name, rootfs="devbox:1", egress=["240.0.0.0/4"], envs={"COLOUR": "green", "EMPTY": ""},
                   auto_pause_after_seconds=180, ingress_enabled=False, disk_mib=10240, host_id="h", node_selector={},
                   region="local", networks=[], disks=[], bandwidth_quota_bytes=0, nonsense=None)
    for field, kind in CREATED.items():
        assert type(view[field]) is kind, (field, view)
    assert not nulls(view)
    assert re.fullmatch(r"sb-[0-9a-hjkmnp-tv-z]{26}", view["id"])
    assert view["name"] == name and view["status"] == "running" and view["egress"] == ["240.0.0.0/4"]
    assert view["auto_pause_after_seconds"] == 180 and view["envs"] == ["COLOUR", "EMPTY"]
    assert api.sh(view["id"], "echo $COLOUR; hostname; id -u; echo $HOME") == f"green\n{name}\n0\n/root\n"
    row = api("GET", f"/v1/sandboxes/{view['id']}").data
    assert not nulls(row) and row["egress"] == ["240.0.0.0/4"] and row["status"] == "running"
    assert api("GET", f"/v1/sandboxes/by-ip/{view['ip']}").status in (200, 409)
    rows = api("GET", "/v1/sandboxes?limit=500&offset=0&status=running").data
    assert [one for one in rows["data"] if one["id"] == view["id"]] == [row]


@pytest.mark.parametrize("fields, status, words", [
    ({"shape": None}, 400, "shape"), ({"shape": "s-9vcpu"}, 400, "choices: [s-"), ({"rootfs": "nothing:9"}, 400, "rootfs"),
    ({"name": "Upper"}, 400, "name"), ({"name": "x" * 64}, 400, "name"), ({"name": "-x"}, 400, "name"), ({"name": "a/b"}, 400, "name"),
    ({"auto_pause_after_seconds": 59}, 400, "between 60 and 86400"), ({"auto_pause_after_seconds": 86401}, 400, "between"),
    ({"auto_pause_after_seconds": -1}, 400, "between"), ({"auto_pause_after_seconds": 10**12}, 400, "between"),
    ({"auto_pause_after_seconds": 60.5}, 400, "integer"), ({"disk_mib": "10"}, 400, "integer"), ({"disk_mib": 2**22}, 403, "disk_mib"),
    ({"egress": ["http://example.com"]}, 400, "egress"), ({"egress": ["@pip"]}, 400, "egress"), ({"egress": "*"}, 400, "egress"),
    ({"egress": [None]}, 400, "egress"), ({"egress": ["10.0.0.1"]}, 403, "10.0.0.1"), ({"egress": ["169.254.169.254:80"]}, 403, "egress"),
    ({"egress": ["127.0.0.1:22"]}, 403, "egress"), ({"envs": {"A B": "x"}}, 400, "envs"), ({"envs": {"FOO; touch /tmp/pwn": "x"}}, 400, "envs"),
    ({"envs": {"A": 1}}, 400, "envs"), ({"envs": {"A": "x" * 4097}}, 400, "envs.A"), ({"envs": {f"A{i}": "" for i in range(65)}}, 400, "64"),
    ({"ssh_pubkeys": ["nonsense"]}, 400, "ssh_pubkeys"), ({"region": "mars"}, 400, "region"), ({"bandwidth_quota_bytes": 5}, 400, "bandwidth"),
    ({"disks": [{"disk_id": "d", "mount_path": "/d"}]}, 503, "disks API not configured"), ({"networks": [{"id": "n"}]}, 404, "network not found"),
])
def test_bad_creates(api, fields, status, words):
    before = api("GET", "/v1/whoami").data["stats"]["total"]
    data = api("POST", "/v1/sandboxes", {"shape": SHAPE, **fields}).fails(status)
    assert words in data["message"], data
    assert api("GET", "/v1/whoami").data["stats"]["total"] == before


def test_names_are_unique_while_they_live(api, druped, new_sandbox):
    name = f"one-{secrets.token_hex(4)}"
    first = new_sandbox(name=name)
    data = api("POST", "/v1/sandboxes", {"shape": SHAPE, "name": name}).fails(409)
    assert name in data["message"]
    stranger = druped.api()
    theirs = stranger.create(name=name)
    assert stranger("DELETE", f"/v1/sandboxes/{theirs['id']}").data["status"] == "destroyed"
    assert api("DELETE", f"/v1/sandboxes/{first['id']}").data == {"id": first["id"], "status": "destroyed"}
    assert new_sandbox(name=name)["id"] != first["id"]


def test_destroy_is_idempotent_and_the_row_stays_a_while(api, new_sandbox):
    sandbox = new_sandbox()["id"]
    for _ in range(2):
        assert api("DELETE", f"/v1/sandboxes/{sandbox}").data == {"id": sandbox, "status": "destroyed"}
    assert api.state(sandbox) == "destroyed"
    assert "destroyed_at" in api("GET", f"/v1/sandboxes/{sandbox}").data
    api("POST", f"/v1/sandboxes/{sandbox}/exec", {"cmd": "true"}).fails(409)
    api("DELETE", "/v1/sandboxes/sb-00000000000000000000000000").fails(404)


def test_pages(api, new_sandbox):
    made = [new_sandbox()["id"] for _ in range(3)]
    seen = []
    while True:
        page = api("GET", f"/v1/sandboxes?limit=2&offset={len(seen)}").data
        assert page["pagination"]["count"] == len(page["data"]) and page["pagination"]["limit"] == 2
        seen += [row["id"] for row in page["data"]]
        if not page["data"] or len(seen) >= page["pagination"]["total"]:
            break
    assert len(set(seen)) == len(seen)
    assert [one for one in seen if one in made] == made[::-1]
    assert api("GET", "/v1/sandboxes?limit=0").data["pagination"]["limit"] == 50
    assert api("GET", "/v1/sandboxes?limit=9999").data["pagination"]["limit"] == 500
    for query in ("limit=x", "offset=-1", "status=nonsense"):
        api("GET", f"/v1/sandboxes?{query}").fails(400)


def test_pause_resume_and_fork_keep_memory(api, new_sandbox):
    sandbox = new_sandbox(name=f"base-{secrets.token_hex(4)}", envs={"A": "1"}, auto_pause_after_seconds=3600)["id"]
    path = f"/v1/sandboxes/{sandbox}"
    api.sh(sandbox, "i=0; (while :; do i=$((i+1)); echo $i > /root/count; sleep 0.2; done) >/dev/null 2>&1 & echo seed > /root/seed")
    api("POST", f"{path}/fork", {}).fails(409)
    paused = api("POST", f"{path}/pause").data
    assert paused["status"] == "paused" and "paused_at" in paused
    assert "paused" in api("POST", f"{path}/exec", {"cmd": "true"}).fails(409)["message"]
    assert api.fetch(sandbox, "/root/seed").fails(409)["message"] == "sandbox is paused; resume it before accessing files"
    api.put(sandbox, "/root/seed", b"x").fails(409)
    api("POST", f"{path}/pause").fails(409)

    child = api("POST", f"{path}/fork", {"start_paused": True}).data
    assert child["status"] == "paused" and child["forked_from"] == sandbox and child["envs"] == ["A"]
    assert "auto_pause_after_seconds" not in child
    other = api("POST", f"{path}/fork", {"envs": {"B": "2"}, "egress": []}).data
    try:
        assert other["status"] == "running" and other["envs"] == ["B"]
        assert api.sh(other["id"], "echo $A-$B; cat /root/seed") == "-2\nseed\n"
        assert api("POST", f"/v1/sandboxes/{child['id']}/resume").data["status"] == "running"
        assert api("POST", f"{path}/resume").data["status"] == "running"
        api("POST", f"{path}/resume").fails(409)
        api.sh(child["id"], "echo child >> /root/seed")
        assert api.sh(sandbox, "cat /root/seed") == "seed\n"
        before = int(api.sh(sandbox, "cat /root/count"))
        eventually(lambda: int(api.sh(sandbox, "cat /root/count") or 0) > before, what="the loop's next step")
        assert len({api("GET", f"/v1/sandboxes/{one}").data["name"] for one in (sandbox, child["id"], other["id"])}) == 3
    finally:
        for one in (child["id"], other["id"]):
            api("DELETE", f"/v1/sandboxes/{one}")


def test_patch(api, new_sandbox):
    sandbox = new_sandbox()["id"]
    path = f"/v1/sandboxes/{sandbox}"
    assert api("PATCH", path, {"auto_pause_after_seconds": 60, "disable_auto_pause": False}).data["auto_pause_after_seconds"] == 60
    api("PATCH", path, {"auto_pause_after_seconds": 59}).fails(400)
    assert "auto_pause_after_seconds" not in api("PATCH", path, {"disable_auto_pause": True}).data
    assert api("PATCH", path, {}).data["status"] == "running"


def test_a_disk_grows_while_it_runs(api, new_sandbox):
    sandbox = new_sandbox(disk_mib=10240)["id"]
    path = f"/v1/sandboxes/{sandbox}/resize"
    size = int(api.sh(sandbox, "df --output=size -BM / | tail -1").strip(" M\n"))
    assert api("POST", path, {"disk_mib": 12288}).data == {"id": sandbox, "disk_mib": 12288}
    assert int(api.sh(sandbox, "df --output=size -BM / | tail -1").strip(" M\n")) > size + 1500
    assert api("GET", f"/v1/sandboxes/{sandbox}").data["disk_mib"] == 12288
    for wrong in (12288, 1024, 0, -5, "20000", 2**30, None):
        api("POST", path, {"disk_mib": wrong}).fails(400)


def test_bandwidth_is_counted_and_not_metered(api, new_sandbox):
    sandbox = new_sandbox()["id"]
    path = f"/v1/sandboxes/{sandbox}/bandwidth"
    view = api("GET", path).data
    assert {key: view[key] for key in ("id", "quota_bytes", "remaining_bytes", "capped")} == {
        "id": sandbox, "quota_bytes": -1, "remaining_bytes": -1, "capped": False}
    assert view["used_bytes"] >= view["ingress_bytes"] >= 0
    for body in ({"add_bytes": 1 << 30}, {"gib": 0.5}, {"gib": 1}):
        assert api("POST", f"{path}/recharge", body).data["quota_bytes"] == -1
    for body in ({}, {"add_bytes": 0}, {"add_bytes": -1}, {"gib": 0}):
        api("POST", f"{path}/recharge", body).fails(400)


def test_ssh_keys_are_counted_once(api, new_sandbox):
    sandbox = new_sandbox(ssh_pubkeys=["ssh-ed25519 AAAAC3Nza one"])["id"]
    answer = api("POST", f"/v1/sandboxes/{sandbox}/ssh-pubkeys", {"keys": ["ssh-ed25519 AAAAC3Nza one", "ssh-rsa AAAAB3Nza two"]})
    assert answer.data == {"count": 2}
    api("POST", f"/v1/sandboxes/{sandbox}/ssh-pubkeys", {"keys": ["nonsense"]}).fails(400)


def test_what_is_not_offered_says_so(api, sandbox):
    for path in ("/v1/disks", f"/v1/sandboxes/{sandbox}/disks"):
        assert api("GET", path).fails(503)["message"] == "disks API not configured"
    answer = api("GET", f"/v1/sandboxes/{sandbox}/computer/screen").fails(501)
    assert answer["data"]["code"] == "desktop_tools_unavailable"
    api("POST", "/v1/devices", {"name": "x"}).fails(501)
    api("GET", "/v1/metrics/timeseries").fails(501)
    api("TRACE", "/v1/whoami").fails(405)
