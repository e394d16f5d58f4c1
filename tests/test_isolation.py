"""A hypervisor process that has been taken over, played by a program in its place, with its uid and its confinement, cannot
reach another sandbox, a base snapshot or this machine's files."""

import json
import os
import stat
import textwrap

import pytest

from conftest import BINARY, IMAGE, eventually


@pytest.fixture(scope="module")
def taken_over(tmp_path_factory):
    """A static program that tries what a taken-over hypervisor would, and writes what worked to its inherited stderr."""
    import subprocess

    folder = tmp_path_factory.mktemp("taken")
    source = folder / "taken.c"
    source.write_text((os.path.dirname(__file__) and open(os.path.join(os.path.dirname(__file__), "isolation", "taken_over.c")).read()))
    program = folder / "qemu-system-x86_64"
    built = subprocess.run(["gcc", "-O1", "-static", "-o", program, source], capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    folder.chmod(0o755)
    return program


def test_taken_over_hypervisor_reaches_nothing(drupe, new_box, taken_over, tmp_path):
    victim = new_box()
    victim.sh("echo secret-of-the-victim > /root/secret; sync")
    info = victim.info()
    sandbox = drupe.home / "sandboxes" / info["record"]["id"]
    bases = next((drupe.home / "bases").iterdir())
    targets = {
        "record": sandbox / "record.json", "socket": sandbox / "shim.sock", "base-ram": bases / "ram", "base-state": bases / "state",
        "home": drupe.home / "VERSION", "passwd": "/etc/shadow",
    }
    disks = [path for path in sandbox.iterdir() if path.suffix == ".qcow2"]
    assert disks
    targets["disk"] = disks[0]
    before = {name: os.stat(path).st_mtime_ns for name, path in targets.items() if name not in ("socket",)}
    # The environment does not reach a confined helper, so the program is told by a file beside it where to look.
    plan = taken_over.parent / "plan"
    plan.write_text("\n".join([f"pid {info['live']['hypervisor_pid']}", *(f"file {name} {path}" for name, path in targets.items())]) + "\n")
    result = drupe("run", "--name", "attacker", IMAGE, "true", code=None, timeout=180,
                   env={"DRUPE_QEMU": str(taken_over), "DRUPE_DEBUG": "1"})
    assert result.code == 125, result
    lines = [line for line in (result.err + result.out).decode(errors="replace").replace("\\x0a", "\n").split("\n") if "TAKEN" in line]
    assert any("TAKEN began" in line for line in lines), f"the program did not run: {result}"
    assert any("TAKEN ended" in line for line in lines), lines
    reached = [line for line in lines if "TAKEN reached" in line]
    assert not reached, reached
    for name, stamp in before.items():
        assert os.stat(targets[name]).st_mtime_ns == stamp, name
    assert victim.exec("cat", "/root/secret").text == "secret-of-the-victim\n"
    drupe("rm", "-f", "attacker", code=None)


def test_confinement_of_running_helpers(drupe, box):
    """What doctor says is true of the processes themselves."""
    report = json.loads(drupe("doctor", "--json").out)
    pid = box.info()["live"]["hypervisor_pid"]
    status = dict(line.split(":\t", 1) for line in open(f"/proc/{pid}/status").read().splitlines() if ":\t" in line)
    assert status["NoNewPrivs"] == "1"
    assert int(status["CapEff"], 16) == 0
    if not any("seccomp" in missing for missing in report["host_confinement_missing"]):
        assert status["Seccomp"] == "2"
    shim = int(status["PPid"])
    shim_status = dict(line.split(":\t", 1) for line in open(f"/proc/{shim}/status").read().splitlines() if ":\t" in line)
    assert shim_status["NoNewPrivs"] == "1"
    assert shim_status["Seccomp"] == "2"


def test_files_of_a_sandbox_are_private(drupe, box):
    sandbox = drupe.home / "sandboxes" / box.info()["record"]["id"]
    assert stat.S_IMODE(sandbox.stat().st_mode) == 0o700
    assert stat.S_IMODE(drupe.home.stat().st_mode) & 0o077 == 0
    for path in sandbox.iterdir():
        if path.is_file() and path.stat().st_nlink == 1:
            assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


# OpenSandbox#815: secrets are in no argv, log or error.
def test_secrets_appear_nowhere(drupe, new_box):
    secret = "s3cr3t-" + os.urandom(8).hex()
    one = new_box("-e", f"TOKEN={secret}")
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            command = open(f"/proc/{pid}/cmdline", "rb").read()
        except OSError:
            continue
        assert secret.encode() not in command, pid
    assert secret not in drupe("ps", "-a", "--json").text + drupe("logs", one.name).text
    failed = drupe("exec", "-e", f"TOKEN={secret}", one.name, "no-such-program", code=127)
    assert secret not in failed.error


def test_nothing_of_the_host_is_in_sight(box):
    seen = box.sh("cat /proc/cmdline; ls /; mount; hostname; env").text
    for word in (os.uname().nodename, str(os.path.expanduser("~")) if os.path.expanduser("~") != "/root" else "\0"):
        assert word not in seen
    kernel = (BINARY.parent.parent / "guest" / "kernel.version").read_text()  # "linux-image-RELEASE VERSION"
    assert kernel.startswith(f"linux-image-{box.exec('uname', '-r').text.strip()} ")
    assert "eth" not in box.sh("ls /sys/class/net; ip addr 2>/dev/null | grep 'inet ' | grep -v 127.0.0.1; true").text.replace("eth0", "")


def test_loopback_works_and_nothing_else_is_reachable(box):
    script = textwrap.dedent("""
        import socket
        s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen()
        c = socket.create_connection(s.getsockname()); print('loopback')
        for host in ('192.0.2.1', '10.0.2.2', '169.254.169.254', '8.8.8.8'):
            try:
                socket.create_connection((host, 80), timeout=2); print('reached', host)
            except OSError: pass
        """)
    assert box.exec("python3", "-c", script, timeout=60).text == "loopback\n"
