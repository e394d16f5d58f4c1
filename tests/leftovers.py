#!/usr/bin/env python3
"""Finds (check) or removes (clean) what tests have left behind: sandboxes, and processes of the given homes.

usage: leftovers.py check|clean FILE    FILE lists homes, one a line
A process belongs to a home when its command line, its environment or an open descriptor names it.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

DRUPE = Path(__file__).resolve().parents[1] / "build" / "bin" / "drupe"


def mentions(pid, home):
    base = Path("/proc") / pid
    needle = os.fsencode(home)
    for name in ("cmdline", "environ"):
        try:
            if needle in (base / name).read_bytes():
                return True
        except OSError:
            pass
    try:
        for descriptor in (base / "fd").iterdir():
            if os.readlink(descriptor).startswith(home + "/"):
                return True
    except OSError:
        pass
    return False


def processes_of(homes):
    own = {os.getpid(), os.getppid()}
    found = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) in own:
            continue
        try:
            name = Path(f"/proc/{entry}/comm").read_text().strip()
        except OSError:
            continue
        if name.startswith(("drupe", "qemu", "docker-registry")) and any(mentions(entry, home) for home in homes):
            found[int(entry)] = name
    return found


def mounts_of(homes):
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return [line.split()[4] for line in lines if any(line.split()[4].startswith(home) for home in homes)]


def main():
    mode, listing = sys.argv[1], Path(sys.argv[2])
    homes = sorted(set(listing.read_text().split())) if listing.exists() else []
    for home in homes if mode == "clean" else []:
        sandboxes = Path(home) / "sandboxes"
        if DRUPE.exists() and sandboxes.is_dir():
            names = [entry.name for entry in sandboxes.iterdir() if not entry.name.startswith(".")]
            if names:
                subprocess.run([DRUPE, "rm", "-f", *names], env={**os.environ, "DRUPE_HOME": home}, timeout=120, check=False,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    # What ends by itself gets a moment for it.
    deadline = time.monotonic() + 5
    while (left := processes_of(homes)) and time.monotonic() < deadline:
        time.sleep(0.1)
    problems = [f"process {pid} ({name})" for pid, name in left.items()]
    problems += [f"mount {path}" for path in mounts_of(homes)]
    for home in homes:
        sandboxes = Path(home) / "sandboxes"
        if sandboxes.is_dir():
            problems += [f"sandbox directory {entry}" for entry in sandboxes.iterdir()]
    for problem in problems:
        print(f"leftovers.py: {problem} is left", file=sys.stderr)
    if mode == "clean":
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        for home in homes:
            shutil.rmtree(Path(home) / "sandboxes", ignore_errors=True)
        return 0
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
