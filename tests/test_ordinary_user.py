"""The product as an ordinary user that the test makes: own home, no privilege, no group, no subordinate ids of ours."""

import json
import os
import pwd
import shutil
import subprocess
import urllib.request
from pathlib import Path

import pytest

from conftest import BINARY, IMAGE, ROOT, remember_home
from small_servers import Web, own_address

USER = "drupe-test-user"


@pytest.fixture(scope="module")
def user(drupe, tmp_path_factory):
    if os.geteuid() != 0:
        pytest.skip("making a user needs root")
    if any(entry.pw_name == USER for entry in pwd.getpwall()):
        subprocess.run(["userdel", "-r", USER], capture_output=True)
    home = f"/var/tmp/{USER}-{os.getpid()}"
    made = subprocess.run(["useradd", "-m", "-d", home, "-s", "/bin/bash", USER], capture_output=True, text=True)
    if made.returncode != 0:
        pytest.skip(f"useradd failed: {made.stderr.strip()}")
    remember_home(f"{home}/.local/share/drupe")
    # The tree may lie where only root can go: the user gets binaries and guest files of its own.
    programs = f"{home}/drupe"
    os.mkdir(programs)
    subprocess.run(["cp", "-a", ROOT / "build" / "bin", f"{programs}/bin"], check=True)
    os.mkdir(f"{programs}/guest")
    for name in ("vmlinux", "initramfs.cpio"):
        shutil.copy(ROOT / "build" / "guest" / name, f"{programs}/guest/{name}")
    share = f"{home}/.local/share/drupe"
    os.makedirs(share, mode=0o700)
    subprocess.run(["cp", "-a", "--sparse=always", drupe.home / "images", f"{share}/images"], check=True)
    subprocess.run(["chown", "-R", f"{USER}:{USER}", home], check=True)
    os.chmod(home, 0o700)

    def run(*args, code=0, timeout=240):
        entry = pwd.getpwnam(USER)
        environment = {"HOME": home, "USER": USER, "PATH": "/usr/bin:/bin:/usr/sbin:/sbin"}
        result = subprocess.run([f"{programs}/bin/drupe", *args], env=environment, user=entry.pw_uid, group=entry.pw_gid, extra_groups=[],
                                cwd=home, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout)
        assert code is None or result.returncode == code, result
        return result

    run.home = share
    yield run
    ids = run("ps", "-a", "-q", code=None).stdout.decode().split()
    if ids:
        run("rm", "-f", *ids, code=None)
    removed = subprocess.run(["userdel", "-r", USER], capture_output=True, text=True)
    shutil.rmtree(home, ignore_errors=True)
    assert removed.returncode in (0, 12), removed.stderr


def test_main_job(user):
    assert user("run", IMAGE, "python3", "-c", "print(6*7)").stdout == b"42\n"


def test_detached_life_pause_and_fork(user):
    user("run", "-d", "--name", "mine", IMAGE, "sleep", "infinity")
    user("exec", "mine", "sh", "-c", "echo x > /root/x")
    user("pause", "mine")
    child = user("fork", "mine").stdout.decode().strip()
    user("resume", "mine")
    assert user("exec", child, "cat", "/root/x").stdout == b"x\n"
    assert user("exec", "mine", "cat", "/root/x").stdout == b"x\n"
    user("rm", "-f", "mine", child)


def test_doctor(user):
    result = user("doctor")
    assert b"Sandboxes can run" in result.stdout


def test_nothing_of_the_user_runs_as_root_or_is_root_owned(user):
    user("run", "-d", "--name", "owned", IMAGE, "sleep", "infinity")
    for folder, _, files in os.walk(user.home):
        for name in files:
            assert os.lstat(os.path.join(folder, name)).st_uid == pwd.getpwnam(USER).pw_uid
    user("rm", "-f", "owned")


def test_network(user):
    """A server of the test's own by policy, a published port, and the host's authorities."""
    web = Web(own_address())
    try:
        fetch = f"import urllib.request as u; print(u.urlopen('http://{web.address}:{web.port}/', timeout=60).read().decode())"
        allowed = ("--allow", f"{web.address}:{web.port}", "--allow-private", web.address, "--host-ca")
        user("run", "-d", "--name", "net", *allowed, "-p", "18080:8000", IMAGE, "python3", "-m", "http.server", "8000")
        assert user("exec", "net", "python3", "-c", fetch).stdout == b"hello\n"
        closed = user("exec", "net", "python3", "-c", fetch.replace(f":{web.port}/", f":{web.port - 1}/"), code=1)
        assert b"refused" in closed.stderr
        # Accepted before the server in the guest listens; the answer comes when it does.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        assert b"Directory listing" in opener.open("http://127.0.0.1:18080/", timeout=60).read()
        entry = user("inspect", "net").stdout
        pid = json.loads(entry)[0]["live"]["network_pid"]
        status = Path(f"/proc/{pid}/status").read_text()
        assert f"Uid:\t{pwd.getpwnam(USER).pw_uid}\t" in status and "CapEff:\t0000000000000000" in status
    finally:
        user("rm", "-f", "net", code=None)
        web.shutdown()
        web.server_close()

