"""A druped for tests: over the tests' home, on a port of its own, with real sandboxes."""

import http.client
import json
import os
import re
import secrets
import signal
import socket
import subprocess
import tempfile
import threading
import time
import urllib.parse
from pathlib import Path

import pytest

import homes
from conftest import remember_home

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = ROOT / "build" / "bin" / "druped"
SHAPE = "s-1vcpu-256mb"  # the least memory: base snapshots of it are small and quick to make
PATIENCE = 240  # seconds for one request; a shape's first use boots a guest under emulation


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self):
        assert self.headers.get("content-type", "").startswith("application/json"), self
        return json.loads(self.body)

    @property
    def data(self):
        """Of a success, whose status is always exactly 200."""
        assert self.status == 200, self
        assert self.json["status"] == "success", self
        return self.json["data"]

    def fails(self, status, code=None):
        """A refusal in the envelope; the object of strings."""
        assert self.status == status, self
        if status >= 500:
            assert self.json["status"] == "error" and isinstance(self.json["message"], str), self
            assert self.json["code"] == status, self
            return self.json
        assert self.json["status"] == "fail", self
        data = self.json["data"]
        assert data and all(isinstance(value, str) for value in data.values()), self
        assert code is None or data.get("code") == code, self
        return data

    def __repr__(self):
        return f"<{self.status} {self.headers} {self.body[:2000]!r}>"


class Api:
    """Calls with one key. One connection for each call, unless the caller keeps one."""

    def __init__(self, port, key):
        self.port, self.key = port, key

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)

    def headers(self, more=None):
        return {**({"X-Api-Key": self.key} if self.key else {}), **(more or {})}

    def __call__(self, method, path, body=None, headers=None, connection=None):
        if isinstance(body, (dict, list)):
            body = json.dumps(body).encode()
            headers = {"Content-Type": "application/json", **(headers or {})}
        link = connection or self.connect()
        try:
            link.request(method, path, body=body, headers=self.headers(headers))
            response = link.getresponse()
            return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
        finally:
            if connection is None:
                link.close()

    def create(self, **fields):
        return self("POST", "/v1/sandboxes", {"shape": SHAPE, **fields}).data

    def exec(self, sandbox, cmd, *args, **fields):
        return self("POST", f"/v1/sandboxes/{sandbox}/exec", {"cmd": cmd, "args": list(args), **fields}).data["result"]

    def sh(self, sandbox, script, **fields):
        result = self.exec(sandbox, "sh", "-c", script, **fields)
        assert result["exit_code"] == 0, result
        return result["stdout"]

    def put(self, sandbox, path, body, headers=None):
        return self("PUT", f"/v1/sandboxes/{sandbox}/files?path={urllib.parse.quote(path, safe='')}", body, headers)

    def fetch(self, sandbox, path):
        return self("GET", f"/v1/sandboxes/{sandbox}/files?path={urllib.parse.quote(path, safe='')}")

    def state(self, sandbox):
        return self("GET", f"/v1/sandboxes/{sandbox}").data["status"]

    def stream(self, method, path, body=None):
        """An answer that is read line by line: (connection, response)."""
        link = self.connect()
        link.request(method, path, body=None if body is None else json.dumps(body), headers=self.headers())
        response = link.getresponse()
        return link, response


class Druped:
    """The process. `api` has a key of an ordinary user of its own."""

    def __init__(self, home, *flags, accept=True):
        self.home = Path(home)
        self.flags = [*(["--accept-emulation"] if accept else []), *flags]
        self.environment = {**os.environ, "DRUPE_HOME": str(home)}
        self.process = None
        self.port = 0
        self.greeting = []
        self.start()

    def start(self):
        self.log = tempfile.NamedTemporaryFile(prefix="druped-", suffix=".log")
        self.process = subprocess.Popen([PROGRAM, "--port", str(self.port), *self.flags], env=self.environment,
                                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self.log)
        # Written at once, and so read at once.
        self.greeting = os.read(self.process.stdout.fileno(), 65536).decode().splitlines()
        first = self.greeting[0] if self.greeting else Path(self.log.name).read_text()[-2000:]
        found = re.fullmatch(r"druped \S+ listens on http://127\.0\.0\.1:(\d+)", first)
        assert found, first
        self.port = int(found[1])

    def command(self, *words, code=0):
        done = subprocess.run([PROGRAM, *words], env=self.environment, capture_output=True, text=True, timeout=60)
        assert code is None or done.returncode == code, (words, done)
        return done

    def new_key(self, user=None):
        return self.command("key", "create", "--user", user or f"user-{secrets.token_hex(6)}").stdout.strip()

    def api(self, user=None):
        return Api(self.port, self.new_key(user))

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.log.close()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(timeout=60)
        self.process.stdout.close()
        self.log.close()
        return status

    def memory_kib(self):
        text = Path(f"/proc/{self.process.pid}/smaps_rollup").read_text()
        return sum(int(line.split()[1]) for line in text.splitlines() if line.startswith(("Private_", "Shared_Dirty")))


def linked_home(source, target):
    """See homes.py; leftovers in it are looked for."""
    homes.linked_home(source, target)
    remember_home(target)
    return target


def run_druped(home):
    if not PROGRAM.exists():
        pytest.skip("build/bin/druped is not built; scripts/build.sh makes it")
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as config:
        # Templates are built in the machine that the tests have a base snapshot of.
        config.write("[templates]\nmemory_mib = 256\nvcpu = 1\n")
        config.flush()
        server = Druped(home, "--config", config.name)
        try:
            yield server
            assert server.stop() == 0
        finally:
            if server.process.poll() is None:
                server.kill()


def destroy_all(api):
    for row in api("GET", "/v1/sandboxes?limit=500").data["data"]:
        if row["status"] not in ("destroyed", "failed"):
            api("DELETE", f"/v1/sandboxes/{row['id']}")


@pytest.fixture(scope="session")
def druped(drupe, home):
    """One server for all tests, over the home that has the image devbox:1."""
    yield from run_druped(home)


@pytest.fixture(scope="session")
def api(druped):
    """A user of the tests' own; what they made goes with them."""
    user = druped.api()
    yield user
    destroy_all(user)


@pytest.fixture(scope="session")
def sandbox(api):
    """Id of a running sandbox for tests that leave it as it was."""
    return api.create(name=f"shared-{secrets.token_hex(4)}")["id"]


@pytest.fixture
def new_sandbox(api):
    """Makes sandboxes that go with the test: new_sandbox(**fields) gives the view."""
    made = []

    def make(**fields):
        view = api.create(**fields)
        made.append(view["id"])
        return view

    yield make
    for one in made:
        api("DELETE", f"/v1/sandboxes/{one}")


def eventually(condition, seconds=60, what="the condition"):
    """Waits for something that has no event to wait for."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.1)
    pytest.fail(f"{what} did not come within {seconds} s")


def raw(port, *parts, read_until_close=True, timeout=60):
    """What the server answers to bytes on a new connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=timeout) as link:
        for part in parts:
            link.sendall(part)
        out = b""
        while read_until_close or b"\r\n\r\n" not in out:
            piece = link.recv(65536)
            if not piece:
                break
            out += piece
        return out


def in_thread(call, *args, **keywords):
    """Runs the call beside the test: a function that waits for its value, or raises what it raised."""
    sandbox = {}

    def work():
        try:
            sandbox["value"] = call(*args, **keywords)
        except BaseException as error:
            sandbox["error"] = error

    thread = threading.Thread(target=work, daemon=True)
    thread.start()

    def result():
        thread.join(PATIENCE)
        assert not thread.is_alive()
        if "error" in sandbox:
            raise sandbox["error"]
        return sandbox["value"]

    return result
