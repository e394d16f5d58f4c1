"""The product as a black box: build/bin/drupe, one home for all tests, sandboxes shared where a test does not change them."""

import os
import secrets
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

import homes

pytest_plugins = ["druped"]  # its fixtures, for tests/api and tests/clients

ROOT = Path(__file__).resolve().parents[1]
BINARY = Path(os.environ.get("DRUPE_BINARY") or ROOT / "build" / "bin" / "drupe")
IMAGE = homes.IMAGE
EMULATED = 4  # Time limits are for two busy cores without hardware virtualization.


class Result:
    """What a command did; out and err are bytes."""

    def __init__(self, args, code, out, err, seconds):
        self.args, self.code, self.out, self.err, self.seconds = args, code, out, err, seconds

    @property
    def text(self):
        return self.out.decode(errors="replace")

    @property
    def error(self):
        return self.err.decode(errors="replace")

    def __repr__(self):
        shown = " ".join(str(arg)[:200] for arg in self.args)
        return f"<{shown}: status {self.code}, {self.seconds:.1f} s,\n out {self.out[-2000:]!r}\n err {self.err[-2000:]!r}>"


class Drupe:
    """Runs drupe with a home of its own."""

    def __init__(self, home, env=None):
        self.home = Path(home)
        self.env = {**os.environ, "DRUPE_HOME": str(home), **(env or {})}

    def popen(self, *args, env=None, **options):
        options.setdefault("stdin", subprocess.DEVNULL)
        return subprocess.Popen([BINARY, *args], env={**self.env, **(env or {})}, **options)

    def __call__(self, *args, input=None, code=0, timeout=120, env=None, stdin=None):
        """Runs to the end. `code`: the status that is expected; None: any."""
        begun = time.monotonic()
        source = subprocess.PIPE if input is not None else (stdin or subprocess.DEVNULL)
        with self.popen(*args, env=env, stdin=source, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            try:
                out, err = process.communicate(input, timeout=timeout)
            except BaseException as error:
                process.kill()
                out, err = process.communicate()
                if isinstance(error, subprocess.TimeoutExpired):
                    pytest.fail(f"no end after {timeout} s: {args} {out[-500:]!r} {err[-500:]!r}")
                raise
        result = Result(args, process.returncode, out, err, time.monotonic() - begun)
        assert code is None or result.code == code, result
        return result


def remember_home(path):
    """Tells the script that runs the tests which homes to look at for leftovers."""
    listing = os.environ.get("DRUPE_TEST_HOMES")
    if listing:
        with open(listing, "a") as file:
            file.write(f"{path}\n")


def pytest_configure(config):
    # Ctrl-C and the script's SIGTERM both end in fixtures being torn down.
    signal.signal(signal.SIGTERM, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))


@pytest.fixture(scope="session")
def home():
    path = Path(os.environ.get("DRUPE_TEST_HOME") or ROOT / "build" / "test-home")
    path.mkdir(parents=True, exist_ok=True)
    remember_home(path)
    return path


@pytest.fixture(scope="session")
def drupe(home):
    """With the image devbox:1 and its base snapshot."""
    if not BINARY.exists():
        pytest.skip("build/bin/drupe is not built; scripts/build.sh makes it")
    homes.prepare(home)
    return Drupe(home)


@pytest.fixture
def empty_home(tmp_path):
    """A home without images."""
    path = tmp_path / "home"
    remember_home(path)
    command = Drupe(path)
    yield command
    remove_all(command)


def remove_all(command):
    if command.home.joinpath("sandboxes").is_dir():
        ids = command("ps", "-a", "-q", code=None).text.split()
        if ids:
            command("rm", "-f", *ids, code=None)


class Box:
    """A sandbox by its name."""

    def __init__(self, drupe, name):
        self.drupe, self.name = drupe, name

    def exec(self, *command, flags=(), **options):
        return self.drupe("exec", *flags, self.name, *command, **options)

    def sh(self, script, flags=(), **options):
        return self.exec("sh", "-c", script, flags=flags, **options)

    def info(self):
        import json

        return json.loads(self.drupe("inspect", self.name).out)[0]

    @property
    def state(self):
        return self.info()["summary"]["state"]


@pytest.fixture(scope="session")
def box(drupe):
    """A running sandbox for tests that leave it as it was."""
    name = f"shared-{secrets.token_hex(4)}"
    drupe("run", "-d", "--name", name, IMAGE, "sleep", "infinity")
    yield Box(drupe, name)
    drupe("rm", "-f", name, code=None)


def box_maker(drupe):
    """Of fixtures: a function that makes sandboxes, which are removed after the test."""
    names = []

    def make(*flags, command=("sleep", "infinity"), image=IMAGE):
        name = f"test-{secrets.token_hex(4)}"
        names.append(name)
        drupe("run", "-d", "--name", name, *flags, image, *command)
        return Box(drupe, name)

    make.names = names
    try:
        yield make
    finally:
        for name in names:
            drupe("rm", "-f", name, code=None)


@pytest.fixture
def new_box(drupe):
    """Makes sandboxes that go with the test: new_box(*flags, command=(...))."""
    yield from box_maker(drupe)


def eventually(condition, seconds=20, what="the condition"):
    """Waits for something that has no event to wait for."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.05)
    pytest.fail(f"{what} did not come within {seconds} s")


@pytest.fixture(scope="session")
def registry(tmp_path_factory):
    """Debian's docker-registry on loopback; yields its host:port."""
    import socket
    import urllib.request

    program = shutil.which("docker-registry")
    if not program:
        pytest.skip("docker-registry is not installed")
    root = tmp_path_factory.mktemp("registry")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    config = root / "config.yml"
    config.write_text(
        f"version: 0.1\nlog: {{level: error}}\nstorage: {{filesystem: {{rootdirectory: {root}/data}}, delete: {{enabled: true}}}}\n"
        f"http: {{addr: '127.0.0.1:{port}'}}\n")
    with open(root / "log", "wb") as log:
        process = subprocess.Popen([program, "serve", config], stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    try:
        def answers():
            try:
                return urllib.request.build_opener(urllib.request.ProxyHandler({})).open(f"http://127.0.0.1:{port}/v2/").status == 200
            except OSError:
                return False

        eventually(answers, what="the registry's answer")
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()
