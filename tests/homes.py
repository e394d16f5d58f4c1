#!/usr/bin/env python3
"""Homes that share the images and base snapshots of another.

usage: homes.py SOURCE TARGET    makes the image devbox:1 and its base snapshot in SOURCE when they are missing, and TARGET over them
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

DRUPE = Path(os.environ.get("DRUPE_BINARY") or Path(__file__).resolve().parents[1] / "build" / "bin" / "drupe")
IMAGE = "devbox:1"


def prepare(home):
    """The default image, ready to start from."""
    def drupe(*args, check=True, timeout=300):
        return subprocess.run([DRUPE, *args], env={**os.environ, "DRUPE_HOME": str(home)}, check=check, timeout=timeout, stdin=subprocess.DEVNULL,
                              stdout=subprocess.DEVNULL).returncode == 0

    Path(home).mkdir(parents=True, exist_ok=True)
    if not drupe("image", "inspect", IMAGE, check=False):
        drupe("image", "build-debian", IMAGE, timeout=1500)
    drupe("warm", IMAGE)


def linked_home(source, target):
    """A home with the images and base snapshots of another, as hard links, and nothing that lives."""
    def left_out(directory, names):
        own = {"api", "sandboxes", "names", "tmp", "promised", "lock", "locks"}
        return own & set(names) if Path(directory) == Path(source) else set()

    shutil.copytree(source, target, copy_function=os.link, symlinks=True, ignore=left_out)
    os.chmod(target, 0o700)
    return target


if __name__ == "__main__":
    prepare(sys.argv[1])
    linked_home(sys.argv[1], sys.argv[2])
