"""The hypervisor driver under a true KVM: its tests with real guests, run inside of the lab (lab.py)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("DRUPE_TEST_BUILD", ROOT / "build"))
TEST = BUILD / "bin" / "hypervisor_guest_test"
LAB_FAILED = 125
LAB_TIMEOUT = 124
# What the accelerator can make different. The machine below runs in software: each test takes minutes, not seconds.
CHOSEN = "*.RestoredMachines*:*.ClocksRun*:*.PauseAndResume*:*.ForksShare*:*.EverySave*"

# The guest's files come over a shared file system that is slow to read at random.
SCRIPT = """
set -e
mkdir /dev/shm/guest
cp -r "$1"/vmlinux "$1"/modules /dev/shm/guest/
export DRUPE_GUEST_DIR=/dev/shm/guest TMPDIR=/dev/shm DRUPE_TEST_ACCELERATOR=kvm
exec "$2" --gtest_filter="$3"
"""


def test_the_driver_works_with_kvm():
    if not TEST.exists():
        pytest.skip(f"{TEST} is not built")
    if os.geteuid() != 0:
        pytest.skip("the lab needs root")
    command = [sys.executable, ROOT / "tests/lab/lab.py", "--memory", "4096", "--limit", "1500", "--"]
    command += ["bash", "-c", SCRIPT, "lab", BUILD / "guest", TEST, CHOSEN]
    ran = subprocess.run(command, capture_output=True, text=True, errors="replace")
    if ran.returncode == LAB_FAILED:
        pytest.skip(f"the lab cannot start: {ran.stderr.strip()[-500:]}")
    if ran.returncode == LAB_TIMEOUT:
        pytest.skip(f"this machine is too slow for the lab: {ran.stdout[-500:]}")
    assert ran.returncode == 0, ran.stdout[-5000:] + ran.stderr[-2000:]
    assert "[  PASSED  ]" in ran.stdout, ran.stdout[-2000:]
