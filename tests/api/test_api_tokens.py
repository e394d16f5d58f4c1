"""Delegated tokens: they work in one sandbox and nowhere else."""

import contextlib
import hashlib
import secrets
import sqlite3

import pytest

from druped import Api


@pytest.fixture
def token(api, sandbox):
    made = api("POST", f"/v1/sandboxes/{sandbox}/access-token").data
    yield Api(api.port, made["token"])
    assert api("DELETE", f"/v1/sandboxes/{sandbox}/access-token").data == {"enabled": False}


def test_life_of_a_token(api, druped, new_sandbox):
    sandbox = new_sandbox()["id"]
    address = f"/v1/sandboxes/{sandbox}/access-token"
    assert api("GET", address).data == {"enabled": False}
    api("POST", address + "/rotate").fails(404)
    made = api("POST", address).data
    assert made["token"].startswith("skp_sb_") and made["enabled"] is True and "rotated_at" not in made
    data = api("POST", address).fails(409, "already_exists")
    assert made["token"] not in str(data)
    shown = api("GET", address).data
    assert shown["enabled"] and shown["created_at"] == made["created_at"] and "token" not in shown
    assert shown["token_hint"][:6] == made["token"][:6] and shown["token_hint"][-4:] == made["token"][-4:]
    first = Api(api.port, made["token"])
    assert first.sh(sandbox, "echo in") == "in\n"
    rotated = api("POST", address + "/rotate").data
    assert rotated["token"] != made["token"] and rotated["rotated_at"] and rotated["created_at"] == made["created_at"]
    assert "auth" in first("GET", f"/v1/sandboxes/{sandbox}").fails(401)
    second = Api(api.port, rotated["token"])
    assert second("GET", f"/v1/sandboxes/{sandbox}").data["id"] == sandbox
    stored = b"".join(path.read_bytes() for path in (druped.home / "api").glob("accounts.db*"))
    for text in (made["token"], rotated["token"]):
        assert text.encode() not in stored
    with contextlib.closing(sqlite3.connect(druped.home / "api" / "accounts.db")) as database:
        kept = database.execute("SELECT hash FROM tokens WHERE sandbox_id = ?", (sandbox,)).fetchall()
    assert kept == [(hashlib.sha256(rotated["token"].encode()).hexdigest(),)]
    for _ in range(2):
        assert api("DELETE", address).data == {"enabled": False}
    second("GET", f"/v1/sandboxes/{sandbox}").fails(401)
    third = Api(api.port, api("POST", address).data["token"])
    api("DELETE", f"/v1/sandboxes/{sandbox}")
    third("GET", f"/v1/sandboxes/{sandbox}").fails(401)
    api("POST", address + "/rotate").fails(409)


def test_what_a_token_may(token, sandbox):
    name = f"/tmp/token-{secrets.token_hex(4)}"
    assert token("GET", f"/v1/sandboxes/{sandbox}").data["status"] == "running"
    assert token.put(sandbox, name, b"x").data["bytes"] == 1
    assert token.fetch(sandbox, name).body == b"x"
    assert token.sh(sandbox, f"cat {name}") == "x"
    process = token("POST", f"/v1/sandboxes/{sandbox}/processes", {"cmd": "true"}).data["process_id"]
    assert token("GET", f"/v1/sandboxes/{sandbox}/processes/{process}/wait").data["exit_code"] == 0
    # Open addresses stay open.
    assert token("GET", "/v1/shapes").status == 200


def test_what_a_token_may_not(token, api, druped, sandbox):
    own = f"/v1/sandboxes/{sandbox}"
    for method, path, body in [
        ("GET", "/v1/whoami", None), ("GET", "/v1/sandboxes", None), ("POST", "/v1/sandboxes", {"shape": "s-1vcpu-256mb"}),
        ("PATCH", own, {"ingress_enabled": True}), ("DELETE", own, None), ("POST", own + "/pause", None), ("POST", own + "/resume", None),
        ("POST", own + "/fork", {}), ("GET", own + "/egress", None), ("PUT", own + "/egress", {"egress": []}),
        ("POST", own + "/resize", {"disk_mib": 20480}), ("POST", own + "/ssh-pubkeys", {"keys": ["ssh-ed25519 AAAA"]}),
        ("POST", own + "/access-token", None), ("POST", own + "/access-token/rotate", None), ("GET", own + "/access-token", None),
        ("DELETE", own + "/access-token", None), ("POST", own + "/networks", {"id": "n"}), ("GET", "/v1/networks", None),
        ("GET", "/v1/hosts", None), ("GET", "/v1/capabilities", None), ("GET", "/v1/nothing", None),
    ]:
        assert "delegated token" in token(method, path, body).fails(403, "permission_denied")["message"], (method, path)
    assert api.state(sandbox) == "running" and "ingress_url_template" not in api("GET", own).data


def test_a_token_is_for_one_sandbox(token, new_sandbox):
    other = new_sandbox()["id"]
    token("GET", f"/v1/sandboxes/{other}").fails(404, "not_found")
    token("POST", f"/v1/sandboxes/{other}/exec", {"cmd": "true"}).fails(404, "not_found")
    for wrong in ("skp_sb_", "skp_sb_" + "A" * 43):
        Api(token.port, wrong)("GET", f"/v1/sandboxes/{other}").fails(401)
