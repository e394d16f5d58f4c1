"""pip, npm and apt in a guest, from where this host's own clients are configured to fetch: presets and --host-ca together.

What this host cannot reach itself is skipped, with what its client said."""

import os
import shutil
import subprocess

import pytest

from conftest import BINARY, box_maker

pytestmark = pytest.mark.skipif(not BINARY.parent.joinpath("drupe-net").exists(), reason="build/bin/drupe-net is not built")

PIP_PACKAGE, NPM_PACKAGE = "iniconfig", "is-number"  # small, pure, without dependencies


def host_does(*command, where=None, timeout=120):
    """Skips unless the same works on this host."""
    if shutil.which(command[0]) is None:
        pytest.skip(f"this host has no {command[0]}")
    try:
        done = subprocess.run(command, cwd=where, capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        pytest.skip(f"this host's {command[0]} does not reach its registry within {timeout} s")
    if done.returncode != 0:
        pytest.skip(f"this host's {command[0]} does not reach its registry: {(done.stderr or done.stdout)[-300:]}")


@pytest.fixture
def guest(drupe):
    yield from box_maker(drupe)


def refused(box):
    """Names and addresses that the guest asked for and was refused."""
    return [line for line in box.drupe("net", "log", box.name).text.splitlines() if "refused" in line or "denied" in line]


def test_pip_install(guest, tmp_path):
    host_does("pip", "download", "--no-deps", "--no-cache-dir", "-d", str(tmp_path), PIP_PACKAGE)
    box = guest("--allow", "@pip", "--host-ca")
    box.exec("pip", "install", "--no-cache-dir", "--disable-pip-version-check", PIP_PACKAGE, timeout=400)
    assert box.exec("python3", "-c", f"import {PIP_PACKAGE}; print({PIP_PACKAGE}.__name__)").text.strip() == PIP_PACKAGE
    # A virtual environment has a pip of its own.
    box.sh(f"python3 -m venv /venv && /venv/bin/pip install --no-cache-dir {PIP_PACKAGE}", timeout=600)


def test_npm_install(guest, tmp_path):
    host_does("npm", "pack", "--silent", NPM_PACKAGE, where=tmp_path)
    box = guest("--allow", "@npm", "--host-ca", "-m", "1g")
    registry = subprocess.run(["npm", "config", "get", "registry"], capture_output=True, text=True).stdout.strip()
    box.sh(f"mkdir /p && cd /p && npm init -y >/dev/null && npm install --no-audit --no-fund --registry '{registry}' {NPM_PACKAGE}", timeout=600)
    assert box.sh(f"cd /p && node -p \"require('{NPM_PACKAGE}')(5)\"").text.strip() == "true"


def apt_reaches_its_mirror():
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        pytest.skip("asking apt whether it reaches its mirror needs root and apt")
    # Into a directory that is nobody's, so that the host's own lists stay as they are.
    import tempfile

    with tempfile.TemporaryDirectory() as lists:
        os.mkdir(f"{lists}/partial")
        os.chmod(lists, 0o755)
        host_does("apt-get", "-q", "-o", f"Dir::State::Lists={lists}", "-o", "APT::Sandbox::User=root", "-o", "APT::Update::Error-Mode=any",
                  "-o", "Acquire::Languages=none", "update", timeout=300)


def test_apt_update_and_install(guest):
    apt_reaches_its_mirror()
    box = guest("--allow", "@apt", "--host-ca", "-m", "1g")
    box.sh("apt-get -q -o APT::Update::Error-Mode=any update && apt-get -q install -y --no-install-recommends iputils-ping", timeout=1200)
    assert b"1 received" in box.exec("ping", "-c", "1", "-W", "20", "198.19.254.1").out
