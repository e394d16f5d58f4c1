"""Many processes on one home at once, and many cycles one after the other: nothing fails, nothing grows."""

import json
import os
import secrets
import subprocess
import threading
import time

import pytest

import leftovers
from conftest import IMAGE

ROUNDS = int(os.environ.get("DRUPE_CHURN_ROUNDS", "4"))
CYCLES = int(os.environ.get("DRUPE_CHURN_CYCLES", "25"))


def worker(drupe, number, rounds, problems):
    """Creates, forks and removes under names of its own; every complaint is one too many."""
    try:
        for i in range(rounds):
            name = f"churn-{number}-{i}-{secrets.token_hex(3)}"
            drupe("run", "-d", "--name", name, IMAGE, "sleep", "infinity", timeout=300)
            drupe("exec", name, "sh", "-c", f"echo {name} > /root/mark", timeout=300)
            child = drupe("fork", name, timeout=300).text.split()[-1]
            assert drupe("exec", child, "cat", "/root/mark", timeout=300).text == f"{name}\n"
            drupe("rm", "-f", name, child, timeout=300)
    except BaseException as error:  # noqa: B902 - reported by the test
        problems.append(f"{number}: {error!r}")


# Eight processes creating, forking and removing at once: no error that is not about the user's own request.
def test_eight_processes_at_once(drupe):
    problems = []
    threads = [threading.Thread(target=worker, args=(drupe, number, ROUNDS, problems)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems
    assert not [name for name in drupe("ps", "-a").text.split() if name.startswith("churn-")]


# One name, many takers: exactly one gets it.
def test_one_name_for_eight(drupe):
    name = f"churn-{secrets.token_hex(4)}"
    processes = [drupe.popen("create", "--name", name, IMAGE, "true", stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(8)]
    outcomes = [(process.communicate(timeout=120), process.returncode) for process in processes]
    assert sorted(code for _, code in outcomes).count(0) == 1, outcomes
    for (_, err), code in outcomes:
        assert code == 0 or b"is taken" in err, err
    drupe("rm", name)


# Twenty commands on one paused sandbox resume it once.
def test_many_commands_on_a_paused_sandbox(new_box):
    box = new_box()
    box.drupe("pause", box.name)
    processes = [box.drupe.popen("exec", box.name, "echo", str(i), stdout=subprocess.PIPE, stderr=subprocess.PIPE) for i in range(20)]
    outcomes = [(process.communicate(timeout=240), process.returncode) for process in processes]
    for i, ((out, err), code) in enumerate(outcomes):
        assert (code, out) == (0, f"{i}\n".encode()), err


class Household:
    """What must not grow: processes, our descriptors in the kernel, memory, files."""

    def __init__(self, drupe):
        self.home = drupe.home
        self.processes = self.count_processes()
        self.files = self.count_files()
        self.kib = self.disk_kib()

    def count_processes(self):
        return len(leftovers.processes_of([str(self.home)]))

    def count_files(self):
        return {name: len(os.listdir(self.home / name)) for name in ("sandboxes", "names", "promised", "tmp", "locks", "bases", "kernels")}

    def disk_kib(self):
        seen = set()
        total = 0
        for root, _, files in os.walk(self.home):
            for file in files:
                try:
                    info = os.lstat(os.path.join(root, file))
                except OSError:
                    continue
                if info.st_ino not in seen:
                    seen.add(info.st_ino)
                    total += info.st_blocks // 2
        return total


# 300 cycles of create, exec, fork, remove leave processes, files and disk as they were.
def test_cycles_leave_nothing(drupe):
    drupe("prune", "--older-than", "24h", code=None)
    before = Household(drupe)
    for i in range(CYCLES):
        name = f"cycle-{i}-{secrets.token_hex(3)}"
        drupe("run", "-d", "--name", name, IMAGE, "sleep", "infinity")
        drupe("exec", name, "true")
        child = drupe("fork", name).text.split()[-1]
        drupe("rm", "-f", name, child)
    deadline = time.monotonic() + 20
    while before.count_processes() > before.processes and time.monotonic() < deadline:
        time.sleep(0.1)
    drupe("prune", "--older-than", "24h", code=None)
    after = Household(drupe)
    assert after.processes <= before.processes
    assert after.files == before.files
    assert after.kib - before.kib < 1024
    assert not json.loads(drupe("ps", "-a", "--json", "--filter", "name=cycle-*").out)
