#!/usr/bin/env python3
"""Writes the lock file of a recipe: every package that a requirement needs, with its version and the hash of its wheel.

usage: lock-wheels.py images/lfx-1.lock lfx==1.13.0        run by the very Python version that the image has, patch level included
"""

import json
import subprocess
import sys


def main():
    path, *requirements = sys.argv[1:]
    done = subprocess.run([sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--break-system-packages", "--quiet", "--only-binary=:all:",
                           "--report", "-", *requirements], check=True, capture_output=True, text=True)
    lines = []
    for package in json.loads(done.stdout)["install"]:
        name, version = package["metadata"]["name"].lower().replace("_", "-").replace(".", "-"), package["metadata"]["version"]
        lines.append(f"{name}=={version} --hash=sha256:{package['download_info']['archive_info']['hashes']['sha256']}\n")
    with open(path, "w") as file:
        file.write(f"# {' '.join(requirements)} and what it needs, for Python {sys.version_info.major}.{sys.version_info.minor}.\n")
        file.writelines(sorted(lines))


if __name__ == "__main__":
    main()
