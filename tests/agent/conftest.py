import os
import sys

import pytest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import agent_vm  # noqa: E402


def _missing():
    for what, path in (("drupe-init", agent_vm.INIT), ("a guest kernel", os.path.join(agent_vm.GUEST, "vmlinux"))):
        if not os.path.exists(path):
            return f"{what} is not there: {path}"
    return None


@pytest.fixture(scope="session")
def disk(tmp_path_factory):
    """DRUPE_TEST_DISK, or a small tree around a static busybox."""
    if agent_vm.DISK:
        return agent_vm.DISK
    return agent_vm.make_disk(str(tmp_path_factory.mktemp("disk")))


@pytest.fixture(scope="module")
def vm(disk):
    reason = _missing()
    if reason:
        pytest.skip(reason)
    with agent_vm.Vm(disk=disk) as machine:
        yield machine


@pytest.fixture
def own_vm(disk):
    """A machine for tests that end or bend it."""
    reason = _missing()
    if reason:
        pytest.skip(reason)
    with agent_vm.Vm(disk=disk) as machine:
        yield machine
