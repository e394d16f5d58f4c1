"""kill -9 of command, shim and hypervisor at named and at random moments. The rounds are the rows of docs/states.md."""

import json
import os
import random
import re
import secrets
import signal
import subprocess
import time
from pathlib import Path

import pytest

from conftest import ROOT, IMAGE, Drupe, eventually, remember_home

RANDOM_ROUNDS = int(os.environ.get("DRUPE_CRASH_ROUNDS", "50"))
MARK = "acknowledged"


def rows():
    table = []
    for line in (ROOT / "docs" / "states.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if len(cells) == 5 and re.fullmatch(r"(engine|shim)\.\w+\.\w+", cells[1]):
            table.append(tuple(cells))
    assert len(table) > 40, "docs/states.md has lost its table"
    return table


def row_name(row):
    return "-".join(word.replace(" ", "_").replace("'", "") for word in row[:3])


class Fixture:
    """One home for the rounds, with the image of the shared one (hard links, no copy)."""

    def __init__(self, drupe):
        self.drupe = drupe
        self.home = drupe.home

    def sandbox(self, name):
        for entry in json.loads(self.drupe("ps", "-a", "--json").out):
            if entry["name"] == name:
                return entry
        return None

    def described(self, name):
        """"-", "running", "exited vm_lost": the words of the table."""
        entry = self.sandbox(name)
        if entry is None:
            return "-"
        return f"{entry['state']} {entry['cause']}" if entry["state"] == "exited" else entry["state"]

    def children(self, parent):
        return [entry for entry in json.loads(self.drupe("ps", "-a", "--json").out) if entry["parent"] == parent]

    def processes(self, directory):
        """Shims and hypervisors whose descriptors are in `directory`."""
        found = []
        for entry in os.listdir("/proc"):
            if not entry.isdigit():
                continue
            try:
                comm = Path(f"/proc/{entry}/comm").read_text().strip()
                if not comm.startswith(("drupe-shim", "qemu")):
                    continue
                for descriptor in Path(f"/proc/{entry}/fd").iterdir():
                    if os.readlink(descriptor).startswith(str(directory)):
                        found.append((int(entry), comm))
                        break
            except OSError:
                pass
        return found

    def kill(self, directory, what):
        for pid, comm in self.processes(directory):
            if comm.startswith(what):
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass


@pytest.fixture(scope="module")
def place(drupe):
    return Fixture(drupe)


def prepare(place, operation, name, env):
    """Brings a sandbox into the state that `operation` needs. `env` goes with the start of a shim that shall fail later."""
    if operation in ("create", "run"):
        return
    if operation == "start":
        place.drupe("create", "--name", name, IMAGE, "sleep", "infinity")
        return
    place.drupe("run", "-d", "--name", name, IMAGE, "sleep", "infinity", env=env)
    place.drupe("exec", name, "sh", "-c", f"echo {MARK} > /root/mark && sync")
    if operation in ("resume", "fork paused"):
        place.drupe("pause", name)
    if operation == "restart":
        place.drupe("stop", "-t", "1", name)


COMMANDS = {
    "create": lambda name: ("create", "--name", name, IMAGE, "sleep", "infinity"),
    "start": lambda name: ("start", name),
    "restart": lambda name: ("start", name),
    "run": lambda name: ("run", "--name", name, IMAGE, "true"),
    "pause": lambda name: ("pause", name),
    "resume": lambda name: ("resume", name),
    "fork": lambda name: ("fork", name),
    "fork paused": lambda name: ("fork", name),
    "stop": lambda name: ("stop", "-t", "1", name),
    "remove": lambda name: ("rm", "-f", name),
    "rename": lambda name: ("rename", name, f"{name}-new"),
}
# Moments that a shim passes which was started before the operation: it gets the failpoint when it starts.
OLDER_SHIM = {"pause", "stop", "remove"}


def settle(place, name, directory, expected):
    """Waits for what the table says; a sandbox that does not run has no processes then."""
    def settled():
        found = place.described(name)
        return found in expected and (found == "running" or directory is None or not place.processes(directory))

    deadline = time.monotonic() + 30
    while not settled():
        assert time.monotonic() < deadline, f"{place.described(name)!r}, not one of {sorted(expected)}; " \
            f"processes: {place.processes(directory) if directory else []}"
        time.sleep(0.05)


def present_name(place, name):
    """Its name after a rename that may have been interrupted."""
    return name if place.sandbox(name) or not place.sandbox(f"{name}-new") else f"{name}-new"


def check_aftermath(place, name, operation):
    """The acknowledged file is there, the name can be used, nothing half-made is left."""
    entry = place.sandbox(name)
    if entry is not None:
        wrote = operation not in ("create", "start", "run")
        if entry["state"] in ("created", "exited"):
            place.drupe("start", name, timeout=240)
        if entry["state"] == "paused":
            place.drupe("resume", name, timeout=240)
        result = place.drupe("exec", name, "cat", "/root/mark" if wrote else "/etc/hostname")
        if wrote:
            assert result.text == f"{MARK}\n"
        place.drupe("rm", "-f", name)
    place.drupe("create", "--name", name, IMAGE, "true")
    place.drupe("rm", "-f", name)
    place.drupe("prune", "--older-than", "24h", code=None)
    left = [path.name for path in (place.home / "tmp").iterdir()]
    assert not left, f"tmp/ still holds {left}"


def directory_of(place, name):
    link = place.home / "names" / name
    return place.home / "sandboxes" / os.readlink(link) if link.is_symlink() else None


def remove_family(place, name):
    entry = place.sandbox(name)
    if entry:
        for child in place.children(entry["id"]):
            place.drupe("rm", "-f", child["id"], code=None)
        place.drupe("rm", "-f", name, code=None)
    place.drupe("rm", "-f", f"{name}-new", code=None)


@pytest.mark.parametrize("row", rows(), ids=row_name)
def test_kill_at_a_named_moment(place, row):
    operation, moment, killed, expected, child = row
    name = f"crash-{secrets.token_hex(4)}"
    failpoint = {"DRUPE_FAILPOINT": moment + ("@hypervisor" if "hypervisor" in killed else "")}
    older = operation in OLDER_SHIM and moment.startswith("shim.") or "parent's" in killed
    try:
        prepare(place, operation, name, failpoint if older else {})
        entry = place.sandbox(name)
        place.drupe(*COMMANDS[operation](name), env={} if older else failpoint, code=None, timeout=240)
        directory = directory_of(place, name)
        name = present_name(place, name)
        settle(place, name, directory, expected.split(" or "))
        if entry and operation.startswith("fork"):
            def children():
                return [place.described(c["name"]) for c in place.children(entry["id"])] or ["-"]

            eventually(lambda: all(found in child.split(" or ") for found in children()), 30, f"'{child}' of the children")
            for c in place.children(entry["id"]):
                if c["state"] == "running":
                    assert place.drupe("exec", c["id"], "cat", "/root/mark").text == f"{MARK}\n"
                place.drupe("rm", "-f", c["id"])
        check_aftermath(place, name, operation)
    finally:
        remove_family(place, name)


def allowed_states(operation):
    """What any row of the operation, or its success, leaves."""
    states = {state for row in rows() if row[0] == operation for state in row[3].split(" or ")}
    success = {"create": "created", "start": "running", "restart": "running", "run": "-", "pause": "paused", "resume": "running",
               "fork": "running", "fork paused": "paused", "stop": "exited stopped", "remove": "-", "rename": "running"}
    # A kill of the machine loses it at any moment that it runs.
    return states | {success[operation], "exited vm_lost"} | ({"running"} if operation in ("pause", "stop", "remove", "fork") else set()) \
        | ({"exited stopped"} if operation == "stop" else set())


def victim(place, name, process, what):
    if what == "cli":
        process.kill()
        return
    directory = directory_of(place, name)
    if directory:
        place.kill(directory, "drupe-shim" if what == "shim" else "qemu")


@pytest.mark.parametrize("number", range(RANDOM_ROUNDS))
def test_kill_at_a_random_moment(place, number):
    choice = random.Random(f"crash {number}")
    operation = choice.choice([*COMMANDS, "pause", "resume", "fork"])
    what = choice.choice(["cli", "shim", "hypervisor"])
    delay = choice.uniform(0, 1.2)
    name = f"crash-{secrets.token_hex(4)}"
    try:
        prepare(place, operation, name, {})
        entry = place.sandbox(name)
        with place.drupe.popen(*COMMANDS[operation](name), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            time.sleep(delay)  # the moment is the point of the test
            victim(place, name, process, what)
            process.wait(240)
        directory = directory_of(place, name)
        final = present_name(place, name)
        settle(place, final, directory, allowed_states(operation) | ({"created"} if operation == "start" else set()))
        for child in place.children(entry["id"]) if entry else []:
            # One whose start was on its way gets there.
            eventually(lambda name=child["name"]: place.described(name) != "created", 60, "the child's start")
            place.drupe("rm", "-f", child["id"], code=None)
        check_aftermath(place, final, operation)
    finally:
        remove_family(place, name)


def test_exec_survives_the_loss_of_its_caller(place, new_box):
    """kill -9 of `drupe exec` ends its command and leaves the sandbox alone."""
    box = new_box()
    with place.drupe.popen("exec", box.name, "sleep", "1000", stdout=subprocess.DEVNULL) as process:
        eventually(lambda: b"sleep 1000" in box.sh("cat /proc/[0-9]*/cmdline | tr '\\0' ' '").out, what="the command's start")
        process.kill()
    eventually(lambda: b"sleep 1000" not in box.sh("cat /proc/[0-9]*/cmdline | tr '\\0' ' '").out, what="the command's end")
    assert box.state == "running"


@pytest.mark.parametrize("what", ["drupe-shim", "qemu"])
def test_exec_tells_of_the_loss_of_its_machine(place, new_box, what):
    box = new_box()
    directory = directory_of(place, box.name)
    with place.drupe.popen("exec", box.name, "sh", "-c", "echo begun; sleep 1000", stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"begun\n"
        place.kill(directory, what)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 125, err
    settle(place, box.name, directory, ["exited vm_lost"])
    assert not place.processes(directory)
