#!/usr/bin/env python3
"""Writes docs/cli.md from what the commands say about themselves; --check only says whether it is up to date.

usage: cli-reference.py [--check] [PROGRAM]    default: build/bin/drupe
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CHECK = "--check" in sys.argv[1:]
PROGRAMS = [word for word in sys.argv[1:] if word != "--check"]
DRUPE = PROGRAMS[0] if PROGRAMS else ROOT / "build" / "bin" / "drupe"

SUBCOMMANDS = {
    "image": [["image", "inspect"], ["image", "build-debian"]],
    "net": [["net", "set"], ["net", "show"], ["net", "log"]],
}

INTRODUCTION = """# Commands

Made by `scripts/cli-reference.py` from `drupe COMMAND --help`.

* A sandbox is named by its id, its name, or a prefix of the id that only it has.
* Every command has `-q`/`--quiet` (no progress, no notes) and `--help`; listings have `--json`.
* Sizes: `512m`, `2g` (powers of 1024). Memory without a unit is in MiB when it is below 1048576, else in bytes. Durations: `30`, `500ms`, `5m`, `1h30m`, `7d`.
* Exit status: 125 for wrong usage and for faults of Drupe's own. `run`, `exec`, `attach` and `start -a` otherwise return the command's: its
  exit code, 128 + signal, 124 after `--timeout`, 126 when it could not be executed, 127 when it was not found. `run` also returns 125 when
  the machine was lost. All other commands return 1 when they fail; after Ctrl-C 130.
* Ctrl-C goes to the command; a second Ctrl-C (or SIGTERM) kills it; a third leaves at once. With `-t`, SIGTERM leaves at once.
* Environment: `DRUPE_HOME` (default: `$XDG_DATA_HOME/drupe`, else `~/.local/share/drupe`), `DRUPE_GUEST_DIR` (kernel and initramfs),
  `DRUPE_QEMU` (the hypervisor's program), `DRUPE_RESOLVERS` (name servers for sandboxes instead of those of `/etc/resolv.conf`:
  `address[:port]`, a comma between them), `DRUPE_DEBUG=1` (helpers log more).

## `--json` of run and exec

One object: `exit_code` and `signal` (number or null), `timed_out`, `oom_killed`, `vm_lost`, `truncated`, `isolation`
(`hardware-virtualized` or `emulated`), `stdout` and `stderr` (text; null with `stdout_base64`, `stderr_base64` beside it where the bytes are not
UTF-8; of more than 10 MiB the end is kept and `truncated` is true), `error` (null, or `code`, `message`, `next_step`), `timings` (milliseconds by
stage).
"""


def main():
    text = INTRODUCTION
    for line in subprocess.run([DRUPE, "--help"], check=True, capture_output=True, text=True).stdout.splitlines():
        if re.fullmatch(r"[A-Z][A-Za-z ]*:", line):
            text += f"\n## {line[:-1]}\n"
        elif match := re.match(r"  ([a-z]+) ", line):
            name = match.group(1)
            for words in ([name], *SUBCOMMANDS.get(name, [])):
                said = subprocess.run([DRUPE, *words, "--help"], check=True, capture_output=True, text=True).stdout
                text += f"\n### {' '.join(words)}\n\n```\n{said.rstrip()}\n```\n"
    page = ROOT / "docs" / "cli.md"
    if not CHECK:
        page.write_text(text)
    elif page.read_text() != text:
        sys.exit(f"{page.relative_to(ROOT)} is not what the commands say: run scripts/cli-reference.py")


if __name__ == "__main__":
    main()
