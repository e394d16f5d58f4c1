"""Templates: builds in real sandboxes, over a druped of their own (its operator has set limits). One build serves most tests."""

import json
import threading

import pytest

from druped import SHAPE, Druped, eventually, linked_home
from test_api_egress import world  # noqa: F401  two servers on an address of this machine

PROBE = """\
import socket, sys
for port in sys.argv[2:]:
    try:
        socket.create_connection((sys.argv[1], int(port)), 15)
        print(port, "reached")
    except OSError:
        print(port, "refused")
"""
DOCKERFILE = """\
# comment
ARG VERSION=7
FROM hosted/name:debian AS one
ARG VERSION
ENV GREETING="hello $VERSION" \\
    PATH=/opt/bin:$PATH
WORKDIR /srv/app
COPY --chmod=755 <<'greet' /opt/bin/greet
#!/bin/sh
echo "$GREETING from $(id -un)"
greet
COPY <<'probe' probe.py
{probe}probe
RUN greet > said && echo "argument $VERSION" && printf 'no newline'
RUN <<EOF
echo first >> steps
echo second >> steps
python3 probe.py {address} {allowed} {closed}
EOF
RUN head -c 50000000 /dev/urandom > /root/large && sync && rm /root/large && useradd -m worker
LABEL made.by=test
USER worker
RUN id -un > /tmp/user
"""
SETTINGS = """
[egress]
open_ranges = ["{address}"]
[limits]
templates = 3
[templates]
memory_mib = 256
vcpu = 1
egress = ["{address}:{allowed}"]
timeout_seconds = 300
registries = []
base_images = {{ "hosted/name:debian" = "devbox:1" }}
"""


@pytest.fixture(scope="module")
def operated(druped, drupe, world, tmp_path_factory):  # noqa: F811
    """A druped that lets builds reach one of the two servers and nothing else."""
    address, allowed, _, _ = world
    place = tmp_path_factory.mktemp("templates")
    (place / "druped.toml").write_text(SETTINGS.format(address=address, allowed=allowed))
    server = Druped(linked_home(drupe.home, place / "home"), "--config", str(place / "druped.toml"))
    yield server
    server.stop()


@pytest.fixture(scope="module")
def user(operated):
    return operated.api()


def follow(api, template, lines):
    link, response = api.stream("GET", f"/v1/templates/{template}/logs?follow=true")
    assert response.status == 200 and response.getheader("content-type").startswith("application/x-ndjson")
    for line in response:
        if line.strip():
            lines.append(json.loads(line))
    link.close()


def image_id(operated, row):
    """Of the image in the home, which nobody is told."""
    (link,) = [path for path in (operated.home / "images" / "names").iterdir() if row["id"][4:] in path.name]
    return link.readlink().name


@pytest.fixture(scope="module")
def built(user, world):  # noqa: F811
    """A ready template, what it was made of, and what its log said while it grew."""
    address, allowed, closed, _ = world
    text = DOCKERFILE.format(probe=PROBE, address=address, allowed=allowed, closed=closed)
    row = user("POST", "/v1/templates", {"name": "app", "dockerfile": text}).data
    assert row["status"] == "pending" and row["base"] == "hosted/name:debian" and row["ext4_size_bytes"] == 0
    assert row["id"].startswith("tpl_") and row["created_at"].endswith("Z") and "dockerfile" not in row
    user("POST", "/v1/sandboxes", {"shape": SHAPE, "rootfs": "app"}).fails(409)  # not ready yet
    lines = []
    reader = threading.Thread(target=follow, args=(user, "app", lines), daemon=True)
    reader.start()
    reader.join(300)
    assert not reader.is_alive()
    return text, user("GET", f"/v1/templates/{row['id']}?include=dockerfile").data, lines


def test_its_life_and_log(user, built, world):  # noqa: F811
    text, row, lines = built
    _, allowed, closed, _ = world
    assert row["status"] == "ready", (row, lines)
    assert row["dockerfile"] == text and row["ext4_size_bytes"] > 10**8 and row["built_at"] >= row["created_at"]
    assert lines[-1] == {"final": True, "status": "ready"}
    assert all(set(line) == {"ts", "line"} and not line["line"].endswith("\n") for line in lines[:-1])
    said = [line["line"] for line in lines[:-1]]
    assert "argument 7" in said and "no newline" in said, said
    # The operator's rules for builds.
    assert f"{allowed} reached" in said and f"{closed} refused" in said, said
    plain = user("GET", "/v1/templates/app/logs?limit=100")
    assert plain.status == 200 and plain.headers["content-type"].startswith("text/plain")
    assert plain.body.decode().splitlines() == said
    again = []
    follow(user, "app", again)
    assert again == lines
    user("GET", "/v1/templates/app/logs?attempt=2").fails(404)
    page = user("GET", "/v1/templates?limit=200").data
    assert page["pagination"]["total"] == len(page["data"]) and "app" in [one["name"] for one in page["data"]]


def test_sandboxes_are_made_of_it(user, built):
    _, row, _ = built
    made = [user.create(rootfs=name) for name in ("app", row["id"])]
    try:
        for view, rootfs in zip(made, ("app", row["id"]), strict=True):
            assert view["rootfs"] == rootfs and view["status"] == "running"
            assert user.sh(view["id"], "pwd; id -un; cat said steps /tmp/user; greet; command -v greet; ls /root 2>&1 | tail -n 1") == (
                "/srv/app\nworker\nhello 7 from root\nfirst\nsecond\nworker\nhello 7 from worker\n/opt/bin/greet\n"
                "ls: cannot open directory '/root': Permission denied\n")
            assert user.sh(view["id"], "hostname").strip() != "build"
        # Each has its own disk.
        user.sh(made[0]["id"], "touch /tmp/mine")
        assert user.exec(made[1]["id"], "test", "-e", "/tmp/mine")["exit_code"] == 1
    finally:
        for view in made:
            user("DELETE", f"/v1/sandboxes/{view['id']}")


def test_it_belongs_to_its_user(operated, user, built):
    _, row, _ = built
    other = operated.api()
    for method, path in [("GET", ""), ("DELETE", ""), ("GET", "/logs"), ("GET", "/logs?follow=true")]:
        for name in ("app", row["id"]):
            assert "not found" in other(method, f"/v1/templates/{name}{path}").fails(404)["message"]
    assert other("GET", "/v1/templates").data["data"] == []
    image = image_id(operated, row)
    for name in ["app", row["id"], f"templates.drupe.internal/{row['id'][4:]}:1", image, image[:8], f"sha256:{image}"]:
        other("POST", "/v1/sandboxes", {"shape": SHAPE, "rootfs": name}).fails(400)
        other("POST", "/v1/templates", {"name": "stolen", "dockerfile": f"FROM {name}\n"}).fails(400)
    rootfs = other("GET", "/v1/rootfs").data
    assert "devbox:1" in rootfs["rootfs"] and "templates." not in json.dumps(rootfs)
    states = {entry["name"]: entry["state"] for entry in rootfs["entries"]}
    assert states["devbox:1"] == "ready" and {"debian:12", "debian:13", "lfx:1"} <= set(states), states


def test_refusals(user, built):
    def refused(dockerfile, what, name="bad", status=400):
        data = user("POST", "/v1/templates", {"name": name, "dockerfile": dockerfile}).fails(status)
        assert what in data["message"], data

    refused("FROM devbox:1\nCOPY a b\n", "line 2: COPY is not supported")
    refused("FROM devbox:1\nRUN x\nFROM devbox:1\n", "line 3")
    refused("RUN x\n", "line 1")
    refused("FROM devbox:1\nENV X\n", "line 2")
    refused("FROM nothing:1\n", "may not be fetched")
    refused("FROM devbox:1\n" + "#" * 65536, "64 KiB")
    refused("FROM devbox:1\n", "name must be", name="Bad Name")
    refused("FROM devbox:1\n", "already exists", name="app", status=409)
    user("POST", "/v1/templates", {"name": "x"}).fails(400)
    user("POST", "/v1/templates", {"dockerfile": "FROM devbox:1"}).fails(400)
    user("GET", "/v1/templates/nothing").fails(404)
    user("POST", "/v1/sandboxes", {"shape": SHAPE, "rootfs": "nothing:1"}).fails(400)


def test_failure_deletion_and_bound(user, built):
    """A build that fails says where; its name can be used again. One that is deleted ends, with its sandbox."""
    row = user("POST", "/v1/templates", {"name": "broken", "dockerfile": "FROM devbox:1\nRUN echo before; exit 3\n"}).data
    lines = []
    follow(user, row["id"], lines)
    assert lines[-1] == {"final": True, "status": "failed"}
    assert "before" in [line.get("line") for line in lines]
    found = user("GET", "/v1/templates/broken").data
    assert found["status"] == "failed" and found["error"] == "line 2: the command ended with status 3", found
    user("POST", "/v1/sandboxes", {"shape": SHAPE, "rootfs": "broken"}).fails(409)
    second = user("POST", "/v1/templates", {"name": "broken", "dockerfile": "FROM devbox:1\nRUN echo begun; sleep 1000\n"}).data
    assert second["id"] != row["id"]
    user("POST", "/v1/templates", {"name": "third", "dockerfile": "FROM devbox:1\nRUN echo begun; sleep 1000\n"})
    assert "not allowed" in user("POST", "/v1/templates", {"name": "fourth", "dockerfile": "FROM devbox:1\n"}).fails(403)["message"]
    lines = []
    reader = threading.Thread(target=follow, args=(user, second["id"], lines), daemon=True)
    reader.start()
    eventually(lambda: any(line.get("line") == "begun" for line in lines), seconds=120)
    assert user("DELETE", f"/v1/templates/{second['id']}").data == {"ok": True}
    reader.join(60)
    assert not reader.is_alive() and lines[-1] == {"final": True, "status": "cancelled"}, lines
    user("GET", f"/v1/templates/{second['id']}").fails(404)


def test_restart_during_a_build(operated, user, built):
    """What was being built has failed, and its sandbox is gone; what was ready is."""
    if not any(row["name"] == "third" for row in user("GET", "/v1/templates").data["data"]):
        user("POST", "/v1/templates", {"name": "third", "dockerfile": "FROM devbox:1\nRUN echo begun; sleep 1000\n"})
    eventually(lambda: b"begun\n" in user("GET", "/v1/templates/third/logs").body.splitlines(True), seconds=120)
    operated.kill()
    operated.start()
    row = user("GET", "/v1/templates/third").data
    assert row["status"] == "failed" and "ended during the build" in row["error"]
    assert not [path for path in (operated.home / "sandboxes").iterdir() if row["id"] in (path / "record.json").read_text()]
    assert not [path for path in (operated.home / "images" / "names").iterdir() if row["id"][4:] in path.name]
    assert user("GET", "/v1/templates/app").data["status"] == "ready"
    view = user.create(rootfs="app")
    assert user.sh(view["id"], "cat steps") == "first\nsecond\n"
    # It lives on when its template goes, with all that was kept of it.
    image = image_id(operated, user("GET", "/v1/templates/app").data)

    def bases():
        return [path for path in (operated.home / "bases").iterdir() if image in (path / "manifest.json").read_text()]

    assert bases()
    assert user("DELETE", "/v1/templates/app").data == {"ok": True}
    assert not bases() and not (operated.home / "images" / "disks" / image).exists()
    assert user.sh(view["id"], "cat steps") == "first\nsecond\n"
    user("DELETE", f"/v1/sandboxes/{view['id']}")
    assert "not found" in user("POST", "/v1/sandboxes", {"shape": SHAPE, "rootfs": "app"}).fails(404)["message"]
