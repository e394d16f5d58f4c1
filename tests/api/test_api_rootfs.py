"""GET /v1/rootfs and images that are prepared while the server answers: from a registry of the test's own."""

import socketserver
import threading

import pytest

from conftest import Drupe
from druped import SHAPE, Druped, eventually, in_thread, linked_home


class Silent(socketserver.BaseRequestHandler):
    """A registry that says nothing until it may, and then hangs up."""

    def handle(self):
        self.server.asked.set()
        self.server.may.wait(240)


class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False


@pytest.fixture
def registry():
    with Server(("127.0.0.1", 0), Silent) as server:
        server.server_port = server.server_address[1]
        server.asked, server.may = threading.Event(), threading.Event()
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.may.set()
        server.shutdown()


def states(api):
    return {entry["name"]: entry for entry in api("GET", "/v1/rootfs").data["entries"]}


def test_the_images_of_the_home_are_ready(api):
    data = api("GET", "/v1/rootfs").data
    assert data["default"] == "devbox:1" and "devbox:1" in data["rootfs"]
    found = states(api)
    assert found["devbox:1"]["state"] == "ready"
    for name in ("debian:12", "debian:13"):
        assert found[name]["state"] in ("ready", "not_prepared")
        if found[name]["state"] == "not_prepared":
            assert name not in data["rootfs"]
            message = api("POST", "/v1/sandboxes", {"shape": SHAPE, "rootfs": name}).fails(400)["message"]
            assert "has not been prepared here" in message


def test_a_create_waits_for_what_is_being_prepared(registry, tmp_path):
    name = f"127.0.0.1:{registry.server_port}/given/image:1"
    path = tmp_path / "druped.toml"
    path.write_text(f'default_rootfs = "{name}"\n[images]\nprepare = ["{name}"]\n')
    server = Druped(tmp_path / "home", "--config", str(path))
    try:
        user = server.api()
        assert user("GET", "/readyz").status == 200
        assert registry.asked.wait(60)
        assert states(user)[name]["state"] == "preparing"
        assert name in user("GET", "/v1/rootfs").data["rootfs"]
        answers = []
        waiting = threading.Thread(target=lambda: answers.append(user("POST", "/v1/sandboxes", {"shape": SHAPE})), daemon=True)
        waiting.start()
        assert not answers
        registry.may.set()
        waiting.join(120)
        # Nothing was made: clients may ask again.
        assert "could not be prepared" in answers[0].fails(503)["message"], answers
        assert eventually(lambda: states(user)[name]["state"] == "failed")
        assert states(user)[name]["description"]
        assert server.stop() == 0
    finally:
        if server.process.poll() is None:
            server.kill()


def test_a_create_goes_on_when_the_image_is_there(registry, druped, drupe, tmp_path):
    """Here the operator makes it by hand, meanwhile."""
    name = f"127.0.0.1:{registry.server_port}/given/image:1"
    path = tmp_path / "druped.toml"
    path.write_text(f'[images]\nprepare = ["{name}"]\n')
    home = linked_home(drupe.home, tmp_path / "home")
    server = Druped(home, "--config", str(path))
    try:
        user = server.api()
        assert registry.asked.wait(60)
        waiting = in_thread(user, "POST", "/v1/sandboxes", {"shape": SHAPE, "rootfs": name})
        Drupe(home)("tag", "devbox:1", name)
        registry.may.set()
        view = waiting().data
        assert view["status"] == "running" and view["rootfs"] == name
        assert user.sh(view["id"], "echo runs") == "runs\n"
        assert states(user)[name]["state"] == "ready"
        user("DELETE", f"/v1/sandboxes/{view['id']}")
        assert server.stop() == 0
    finally:
        if server.process.poll() is None:
            server.kill()


def test_the_server_ends_while_it_prepares(registry, tmp_path):
    path = tmp_path / "druped.toml"
    path.write_text(f'[images]\nprepare = ["127.0.0.1:{registry.server_port}/given/image:1"]\n')
    server = Druped(tmp_path / "home", "--config", str(path))
    assert registry.asked.wait(60)
    assert server.stop() == 0
