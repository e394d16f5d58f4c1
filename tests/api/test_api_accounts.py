"""Keys, users, and what strangers see."""

import os
import secrets

from druped import Api, Druped, SHAPE, raw


def test_open_routes_need_no_key_and_forgive_a_wrong_one(druped):
    for key in (None, "skp_wrong"):
        stranger = Api(druped.port, key)
        assert stranger("GET", "/healthz").data == {"up": True}
        assert stranger("GET", "/readyz").data == {"ready": True}
        shapes = stranger("GET", "/v1/shapes?limit=500&offset=0").data
        assert shapes["pagination"] == {"total": len(shapes["data"]), "limit": 500, "offset": 0, "count": len(shapes["data"])}
        assert {"s-1vcpu-1gb", "s-2vcpu-4gb", "s-4vcpu-8gb"} <= {shape["id"] for shape in shapes["data"]}
        assert "devbox:1" in stranger("GET", "/v1/rootfs").data["rootfs"]


def test_wrong_keys(druped, api):
    for key in (None, "", "skp_wrong", api.key + "x", api.key[:-1]):
        assert "auth" in Api(druped.port, key)("GET", "/v1/whoami").fails(401)
    assert api("GET", "/v1/whoami").data["user_id"].startswith("usr_")
    # White space around a key is not part of it.
    assert Api(druped.port, f" {api.key} ")("GET", "/v1/whoami").status == 200
    assert Api(druped.port, None)("GET", "/v1/whoami", headers={"Authorization": f"Bearer {api.key}"}).status == 401


def test_two_keys_are_none(druped, api):
    lines = f"GET /v1/whoami HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-Api-Key: {api.key}\r\nX-Api-Key: other\r\n\r\n"
    assert raw(druped.port, lines.encode()).startswith(b"HTTP/1.1 401 ")


def test_a_revoked_key_is_refused_at_once(druped):
    user = f"user-{secrets.token_hex(6)}"
    first, second = druped.api(user), druped.api(user)
    assert first("GET", "/v1/whoami").data == second("GET", "/v1/whoami").data
    listing = druped.command("key", "list").stdout
    (line,) = [line for line in listing.splitlines() if first.key[-4:] in line and user in line and first.key[:8] in line]
    assert first.key not in listing
    druped.command("key", "revoke", line.split()[0])
    first("GET", "/v1/whoami").fails(401)
    assert second("GET", "/v1/whoami").status == 200
    assert druped.command("key", "revoke", line.split()[0], code=None).returncode != 0


def test_keys_are_stored_hashed(druped, api):
    stored = b"".join(path.read_bytes() for path in (druped.home / "api").glob("accounts.db*"))
    assert api.key.encode() not in stored
    for path in (druped.home / "api").glob("accounts.db*"):
        assert path.stat().st_mode & 0o777 == 0o600, path


def test_what_is_not_yours_is_not_there(druped, api, sandbox):
    other = druped.api()
    for method, path, body in [
        ("GET", "", None), ("PATCH", "", {"ingress_enabled": True}), ("DELETE", "", None), ("POST", "/pause", None),
        ("POST", "/resume", None), ("POST", "/fork", {}), ("POST", "/exec", {"cmd": "true"}),
        ("POST", "/exec?stream=true", {"cmd": "true"}), ("PUT", "/files?path=/tmp/x", b"x"), ("GET", "/files?path=/etc/passwd", None),
        ("GET", "/egress", None), ("PUT", "/egress", {"egress": []}), ("POST", "/ssh-pubkeys", {"keys": ["ssh-ed25519 AAAA"]}),
        ("GET", "/disks", None), ("GET", "/computer/screen", None), ("GET", "/shell-ws", None),
    ]:
        data = other(method, f"/v1/sandboxes/{sandbox}{path}", body).fails(404)
        assert data["message"] == "sandbox not found", (method, path)
    assert other("GET", "/v1/sandboxes").data["data"] == []
    assert api.state(sandbox) == "running"


def test_first_start_prints_a_key_once(tmp_path):
    home = tmp_path / "home"
    server = Druped(home)
    try:
        (line,) = [line for line in server.greeting if line.strip().startswith("skp_")]
        assert Api(server.port, line.strip())("GET", "/v1/whoami").data["stats"] == {
            "running": 0, "paused": 0, "other": 0, "total": 0}
        assert Api(server.port, line.strip())("GET", "/v1/hosts").data["data"][0]["status"] == "active"
        assert os.stat(home).st_mode & 0o777 == 0o700
        # A second server would work on the same sandboxes.
        assert "Another druped" in server.command("--port", "0", code=1).stderr
        assert server.stop() == 0
        server.start()
        assert len(server.greeting) == 1
    finally:
        server.kill()


def test_emulation_is_refused_unless_accepted(druped, home, drupe, tmp_path):
    quiet = Druped(tmp_path / "home", accept=False)
    try:
        user = quiet.api()
        capabilities = user("GET", "/v1/capabilities").data
        answer = user("POST", "/v1/sandboxes", {"shape": SHAPE})
        if capabilities["isolation"] == "emulated":
            assert "accept_emulation" in answer.fails(403)["message"]
            assert capabilities["creates"] is False
        else:
            answer.fails(400)  # this home has no image
    finally:
        quiet.kill()
    assert druped.api()("GET", "/v1/capabilities").data["creates"] is True


def test_configuration(tmp_path, druped):
    path = tmp_path / "druped.toml"
    path.write_text('port = 0\naccept_emulation = true\nregion = "here"\n[egress]\nopen_ranges = ["10.1.0.0/16"]\n')
    assert "good" in druped.command("config", "check", "--config", str(path)).stdout
    for text, what in [("ports = 1\n", ":1: ports is not known"), ("\nport = 70000\n", ":2: port must be"), ("port = \n", ":1:"),
                       ('accept_emulation = "yes"\n', "true or false"), ("[egress]\nopen = 1\n", "egress.open is not known")]:
        path.write_text(text)
        assert what in druped.command("config", "check", "--config", str(path), code=2).stderr
    assert "--insecure-public" in druped.command("config", "check", "--address", "0.0.0.0", code=2).stderr
    assert "--insecure-public" in druped.command("--address", "0.0.0.0", "--port", "0", code=2).stderr
    assert "no flag" in druped.command("--nonsense", code=2).stderr
