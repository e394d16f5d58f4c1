"""What an operator sees: metrics, the log, the audit log; and what nobody sees there."""

import json
import re
import secrets
from pathlib import Path

import pytest

from druped import SHAPE, Api, Druped, eventually, linked_home, raw

NUMBER = r"[0-9.eE+-]+|\+Inf"
LINE = re.compile(rf'[a-z_]+(\{{[a-z_]+="[^"\\\n]*"(,[a-z_]+="[^"\\\n]*")*\}})? ({NUMBER})')


@pytest.fixture(scope="module")
def admin(druped):
    return druped.api("admin")


def sample(text, start):
    """Sum of the samples whose lines begin so."""
    return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith(start))


def test_metrics(druped, admin, api, sandbox):
    before = admin("GET", "/metrics").body.decode()
    api.exec(sandbox, "true")
    api("GET", "/v1/sandboxes/sb-00000000000000000000000000").fails(404)
    other = api.create()["id"]
    api("DELETE", f"/v1/sandboxes/{other}")
    answer = admin("GET", "/metrics")
    assert answer.status == 200 and answer.headers["content-type"] == "text/plain; version=0.0.4"
    text = answer.body.decode()
    for line in text.splitlines():
        assert line.startswith(("# HELP ", "# TYPE ")) or LINE.fullmatch(line), line
    for start, more in [('druped_execs_total{kind="buffered"}', 1), ('druped_errors_total{code="not_found"}', 1),
                        ('druped_create_seconds_count{stage="total"}', 1),
                        ('druped_requests_total{method="POST",route="/v1/sandboxes/:id/exec",status="200"}', 1),
                        ('druped_request_seconds_count{method="POST",route="/v1/sandboxes"}', 1)]:
        assert sample(text, start) == sample(before, start) + more, start
    assert sample(text, 'druped_sandboxes{state="running"}') >= 1
    # Parts of a create are there, and no part is longer than the whole.
    stages = set(re.findall(r'druped_create_seconds_count\{stage="([^"]+)"\}', text))
    assert len(stages) > 2 and "total" in stages
    # No bytes of a client become a label.
    raw(druped.port, f'GET /nonsense"x HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-Api-Key: {admin.key}\r\n\r\n'.encode())
    assert "nonsense" not in admin("GET", "/metrics").body.decode()


def test_metrics_are_an_administrators(druped, api, admin):
    api("GET", "/metrics").fails(403)
    stranger = Api(druped.port, None)
    stranger("GET", "/metrics").fails(401)
    assert stranger("GET", "/metrics", headers={"Authorization": f"Bearer {admin.key}"}).status == 200
    stranger("GET", "/v1/whoami", headers={"Authorization": f"Bearer {admin.key}"}).fails(401)


def test_metrics_of_a_sandbox(api, sandbox):
    data = api("GET", f"/v1/sandboxes/{sandbox}/metrics").data
    assert data["id"] == sandbox and 0 < data["mem_used_mib"] < data["mem_total_mib"] <= 256
    assert 0 < data["disk_used_mib"] < data["disk_total_mib"] and data["cpu_pct"] >= 0 and data["sampled_at"].endswith("Z")


def audit(server):
    files = sorted((server.home / "api").glob("audit.log*"))
    return [json.loads(line) for path in files for line in path.read_text().splitlines()]


def test_requests_are_logged_and_changes_audited(druped, api):
    user = api("GET", "/v1/whoami").data["user_id"]
    sandbox = api.create()["id"]
    done = api("POST", f"/v1/sandboxes/{sandbox}/exec", {"cmd": "true"})
    request = done.headers["x-request-id"]
    refusal = api("POST", "/v1/sandboxes", {"shape": "none"})
    token = Api(druped.port, api("POST", f"/v1/sandboxes/{sandbox}/access-token").data["token"])
    denied = token("GET", "/v1/whoami")
    api("DELETE", f"/v1/sandboxes/{sandbox}")
    # A line is written after the answer.
    mine = eventually(lambda: (rows := [row for row in audit(druped) if row.get("user_id") == user])[-1:] and
                      rows[-1]["action"].startswith("DELETE") and rows, what="the audit of the destroy")
    assert [(row["action"], row["object"], row["status"]) for row in mine if row.get("object") == sandbox] == [
        ("POST /v1/sandboxes", sandbox, 200), ("POST /v1/sandboxes/:id/exec", sandbox, 200),
        ("POST /v1/sandboxes/:id/access-token", sandbox, 200), ("DELETE /v1/sandboxes/:id", sandbox, 200)]
    by_request = {row["request_id"]: row for row in mine}
    assert by_request[request]["client"] == "127.0.0.1" and by_request[request]["by"] == "key"
    assert by_request[refusal.headers["x-request-id"]]["status"] == 400
    assert by_request[denied.headers["x-request-id"]]["by"] == "token"
    assert not [row for row in mine if row["action"].startswith("GET") and row["status"] == 200]
    assert [row for row in audit(druped) if row.get("by") == "operator" and row["action"] == "key create"]
    for path in (druped.home / "api").glob("audit.log*"):
        assert path.stat().st_mode & 0o777 == 0o600
    (line,) = [line for line in Path(druped.log.name).read_text().splitlines() if f"request_id={request} " in line]
    assert "method=POST route=/v1/sandboxes/:id/exec status=200 " in line and f"object={sandbox}" in line


def test_structured_log_and_rotation(drupe, home, sandbox, tmp_path):
    """Also: nothing that a client sends can begin a line of its own."""
    (tmp_path / "druped.toml").write_text('[log]\nformat = "json"\naudit_mib = 1\n')
    server = Druped(linked_home(home, tmp_path / "home"), "--config", str(tmp_path / "druped.toml"))
    try:
        api = server.api()
        odd = "sb-%0A%7B%22level%22%3A%22error%22%7D%22%5C"
        request = api("DELETE", f"/v1/sandboxes/{odd}").headers["x-request-id"]
        full = server.home / "api" / "audit.log"
        kept = full.read_bytes()
        with full.open("ab") as file:
            file.write(b" " * (2**20 - 10 - len(kept)) + b"\n")
        server.kill()
        lines = [json.loads(line) for line in Path(server.log.name).read_text().splitlines()] if Path(server.log.name).exists() else []
        server.start()
        api.port = server.port
        api("DELETE", f"/v1/sandboxes/{odd}")
        eventually(lambda: (server.home / "api" / "audit.log.1").exists(), what="the second file")
        assert (server.home / "api" / "audit.log.1").read_bytes().startswith(kept)
        lines = eventually(lambda: [json.loads(line) for line in Path(server.log.name).read_text().splitlines()], what="a line")
        for line in lines:
            assert line["time"].endswith("Z") and line["name"] == "druped" and line["level"] in ("info", "warning", "error")
        assert [line for line in lines if line.get("event") == "request" and line["object"] == 'sb-\n{"level":"error"}"\\']
        assert request.startswith("req_")
        assert server.stop() == 0
    finally:
        if server.process.poll() is None:
            server.kill()


def test_secrets_are_nowhere(druped, api):
    """A canary in `envs`: in no log, argv, record that others read, error, audit, metric or listing."""
    canary = f"canary{secrets.token_hex(16)}"
    sandbox = api.create(envs={"TOKEN": canary})["id"]
    assert api.sh(sandbox, "echo $TOKEN") == canary + "\n"
    api("POST", f"/v1/sandboxes/{sandbox}/exec", {"cmd": "nothing-there", "env": {"OTHER": canary}})
    api("POST", f"/v1/sandboxes/{sandbox}/processes", {"cmd": "sleep", "args": ["60"], "env": {"OTHER": canary}})
    bad = [api("POST", "/v1/sandboxes", {"shape": SHAPE, "name": "Bad", "envs": {"TOKEN": canary}}),
           api("POST", "/v1/sandboxes", {"shape": SHAPE, "envs": {"A B": canary}}),
           api("POST", "/v1/sandboxes", {"shape": SHAPE, "envs": {"TOKEN": canary * 200}}),
           api("POST", f"/v1/sandboxes/{sandbox}/exec", {"cmd": "true", "env": {"A=B": canary}})]
    for answer in bad:
        assert answer.status == 400 and canary.encode() not in answer.body, answer
    seen = [api("GET", f"/v1/sandboxes/{sandbox}").body, api("GET", "/v1/sandboxes").body,
            api("GET", f"/v1/sandboxes/{sandbox}/processes").body, druped.api("admin")("GET", "/metrics").body]
    api("POST", f"/v1/sandboxes/{sandbox}/pause").data
    api("POST", f"/v1/sandboxes/{sandbox}/resume").data
    seen.append(Path(druped.log.name).read_bytes())
    seen += [path.read_bytes() for path in (druped.home / "api").glob("audit.log*")]
    for process in Path("/proc").glob("[0-9]*"):
        try:
            seen.append((process / "cmdline").read_bytes())
            if (process / "exe").readlink().name.startswith(("drupe", "qemu")):
                seen.append((process / "environ").read_bytes())
        except OSError:
            continue
    assert not [text[:200] for text in seen if canary.encode() in text]
    # Where it has to be kept, only the owner of the home reads it.
    def kept():
        return [path for place in ("api/*", "sandboxes/*/*") for path in druped.home.glob(place)
                if path.is_file() and path.stat().st_nlink == 1 and canary.encode() in path.read_bytes()]
    assert kept()
    for path in kept():
        assert path.stat().st_mode & 0o077 == 0, path
    api("DELETE", f"/v1/sandboxes/{sandbox}")
    assert not kept()
