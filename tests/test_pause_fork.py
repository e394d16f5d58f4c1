"""Pause, resume, fork: memory, processes and disk go on; nothing that should differ is the same."""

import json
import subprocess
import time

import pytest

from conftest import Box, eventually

COUNTER = ("python3", "-c", "import time\nn=0\nwhile True:\n  n+=1; open('/tmp/n','w').write(str(n)); time.sleep(0.1)")


def fork(box, count=1):
    children = json.loads(box.drupe("fork", "--json", "-n", str(count), box.name, timeout=120).out)
    return [Box(box.drupe, child["name"]) for child in children]


@pytest.fixture
def children(drupe):
    made = []
    yield made
    for child in made:
        drupe("rm", "-f", child.name, code=None)


def test_pause_and_resume_continue_processes(new_box):
    one = new_box(command=COUNTER)
    eventually(lambda: one.sh("cat /tmp/n 2>/dev/null; true").text not in ("", "1"))
    one.sh("echo disk > /root/file")
    one.drupe("pause", one.name)
    assert one.state == "paused"
    one.drupe("resume", one.name)
    first = int(one.exec("cat", "/tmp/n").text)
    eventually(lambda: int(one.exec("cat", "/tmp/n").text or 0) > first)
    assert one.exec("cat", "/root/file").text == "disk\n"


# nibrun#410: the clock is the host's again.
def test_time_is_right_after_resume(new_box):
    one = new_box()
    one.drupe("pause", one.name)
    time.sleep(3)
    one.drupe("resume", one.name)
    for _ in range(3):
        before = time.time()
        inside = float(one.exec("date", "+%s.%N").text)
        assert before - 0.5 < inside < time.time() + 0.5


# mitos row 6, firecracker: memory that was saved by another hypervisor or on another processor
def test_foreign_memory_is_refused(drupe, new_box):
    one = new_box()
    one.sh("echo kept > /root/file; sync; echo lost > /dev/shm/file")
    one.drupe("pause", one.name)
    path = drupe.home / "sandboxes" / one.info()["record"]["id"] / "record.json"
    record = json.loads(path.read_text())
    record["state_key"] = "another-machine"
    path.write_text(json.dumps(record))
    refused = one.drupe("resume", one.name, code=1)
    assert "--cold" in refused.error, refused
    assert one.state == "paused"
    one.drupe("resume", "--cold", one.name)
    assert one.sh("cat /root/file; cat /dev/shm/file; true").text == "kept\n"


# The disk of every pause is consistent by itself, also under writes.
def test_disk_is_sound_after_pauses_under_writes(new_box):
    one = new_box()
    writer = ("i=0; while :; do i=$((i+1)); n=$((i%20)); head -c 200000 /dev/urandom > /root/f$n; "
              "sha256sum /root/f$n > /root/s$n; sync /root/f$n /root/s$n; echo $i > /root/count; done")
    one.exec("sh", "-c", writer, flags=("-d",))
    count = 0
    for _ in range(5):
        eventually(lambda: int(one.sh("cat /root/count 2>/dev/null || echo 0").text or 0) > count + 20, 120, "the writer's progress")
        count = int(one.sh("cat /root/count").text or count)
        one.drupe("pause", one.name)
        one.drupe("resume", one.name)
    one.drupe("pause", one.name)
    one.drupe("resume", "--cold", one.name)
    checked = one.exec("sh", "-c", "cat /root/s* | sha256sum -c 2>&1", code=None).text
    # One file may have been cut off between its bytes and its sum.
    assert checked.count(": OK") >= 19, checked
    assert "EXT4-fs error" not in one.sh("dmesg; true").text


# E2B#884, #736, agentuity#1189: every cycle keeps what was written.
def test_five_cycles(new_box):
    one = new_box()
    for number in range(5):
        one.sh(f"echo {number} >> /root/log; echo {number} >> /dev/shm/log")
        one.drupe("pause", one.name)
        one.drupe("resume", one.name)
    assert one.sh("cat /root/log /dev/shm/log").text == "0\n1\n2\n3\n4\n" * 2


# E2B/oc-uncaged#69
def test_exec_on_a_paused_sandbox_resumes_it_and_says_so(new_box):
    one = new_box()
    one.drupe("pause", one.name)
    result = one.exec("echo", "awake")
    assert result.out == b"awake\n"
    assert "paused" in result.error
    assert one.state == "running"


def test_paused_sandbox_uses_no_process(drupe, new_box):
    one = new_box()
    identity = one.info()["record"]["id"]
    pid = one.info()["live"]["hypervisor_pid"]
    one.drupe("pause", one.name)
    eventually(lambda: not __import__("os").path.exists(f"/proc/{pid}"), what="the hypervisor's end")
    assert identity in drupe("ps", "-q").text


def test_stop_remove_and_fork_of_paused(new_box, children):
    one = new_box()
    one.sh("echo x > /dev/shm/x")
    one.drupe("pause", one.name)
    children += fork(one)
    assert one.state == "paused"
    assert children[0].exec("cat", "/dev/shm/x").text == "x\n"
    one.drupe("rm", "-f", one.name)
    assert children[0].exec("cat", "/dev/shm/x").text == "x\n"


# mitos#596, fcvm#838: children see what was written; nothing leaks forward or back.
def test_nothing_is_shared(new_box, children):
    parent = new_box(command=COUNTER)
    parent.sh("echo before > /root/file; echo before > /dev/shm/file; sync")
    children += fork(parent, 3)
    for number, child in enumerate(children):
        assert child.sh("cat /root/file /dev/shm/file").text == "before\nbefore\n"
        child.sh(f"echo child{number} > /root/file; echo child{number} > /dev/shm/file")
    parent.sh("echo parent > /root/file")
    for number, child in enumerate(children):
        assert child.sh("cat /root/file /dev/shm/file").text == f"child{number}\n" * 2
    assert parent.sh("cat /root/file /dev/shm/file").text == "parent\nbefore\n"
    # The counter runs on in each.
    for one in (parent, *children):
        first = int(one.exec("cat", "/tmp/n").text or 0)
        eventually(lambda: int(one.exec("cat", "/tmp/n").text or 0) > first)


# forkd#1, mitos row 4
def test_children_differ(new_box, children):
    parent = new_box()
    children += fork(parent, 2)
    script = "hostname; cat /etc/machine-id /proc/sys/kernel/random/boot_id; ip link 2>/dev/null | grep ether || cat /sys/class/net/e*/address; head -c 16 /dev/urandom | od -An -tx1"
    seen = [one.sh(script).text.split("\n") for one in (parent, *children)]
    for row in zip(*seen):
        if row[0]:
            assert len(set(row)) == len(row), row


def test_fork_of_a_fork(new_box, children):
    one = new_box()
    for generation in range(4):
        one.sh(f"echo {generation} >> /root/generations")
        children += fork(one)
        one = children[-1]
    assert one.exec("cat", "/root/generations").text == "0\n1\n2\n3\n"


def test_fork_many_at_once(new_box, children):
    parent = new_box()
    children += fork(parent, 8)
    processes = [parent.drupe.popen("exec", child.name, "hostname", stdout=subprocess.PIPE) for child in children]
    names = {process.communicate(timeout=60)[0] for process in processes}
    assert len(names) == 8


# mitos row 8: a connection open at the fork lives in the parent.
def test_local_connection_survives_in_the_parent(new_box, children):
    script = ("import socket,time,os\ns=socket.socket();s.bind(('127.0.0.1',4000));s.listen()\nc=socket.create_connection(('127.0.0.1',4000))\n"
              "a,_=s.accept()\nn=0\nwhile True:\n  a.sendall(b'x');n+=len(c.recv(1));open('/tmp/n','w').write(str(n));time.sleep(0.1)")
    parent = new_box(command=("python3", "-c", script))
    eventually(lambda: parent.sh("cat /tmp/n 2>/dev/null; true").text)
    children += fork(parent)
    first = int(parent.exec("cat", "/tmp/n").text or 0)
    eventually(lambda: int(parent.exec("cat", "/tmp/n").text or 0) > first)


def test_pause_while_a_command_runs(drupe, new_box):
    """A command that is followed sees its stream end with a sentence; the process itself goes on after the resume."""
    one = new_box()
    with drupe.popen("exec", one.name, "sh", "-c", "echo up; sleep 3; echo done > /tmp/done; sleep 60", stdout=-1, stderr=-1) as process:
        assert process.stdout.readline() == b"up\n"
        one.drupe("pause", one.name)
        _, err = process.communicate(timeout=30)
        assert process.returncode == 125 and b"paused" in err
    one.drupe("resume", one.name)
    eventually(lambda: one.sh("cat /tmp/done 2>/dev/null; true").text == "done\n", what="the process after the resume")


def test_wrong_states(new_box):
    one = new_box()
    assert one.drupe("resume", one.name, code=1).error
    one.drupe("pause", one.name)
    assert one.drupe("pause", one.name, code=None).error
    one.drupe("rm", "-f", one.name)
    ended = new_box(command=("true",))
    ended.drupe("wait", ended.name)
    for command in ("pause", "fork"):
        assert ended.drupe(command, ended.name, code=1).error


def test_logs_go_on_after_a_resume(new_box):
    one = new_box(command=("sh", "-c", "i=0; while :; do i=$((i+1)); echo line $i; sleep 0.2; done"))
    time.sleep(1)
    one.drupe("pause", one.name)
    lines = one.drupe("logs", one.name).out.count(b"\n")
    one.drupe("resume", one.name)
    eventually(lambda: one.drupe("logs", one.name).out.count(b"\n") > lines + 3)


def test_bad_counts(box):
    for count in ("0", "-1", "x", "100000"):
        assert box.drupe("fork", "-n", count, box.name, code=125).error
