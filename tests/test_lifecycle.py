"""Detached life: create, start, stop, ps, logs, kill, wait, rm, rename, prune."""

import json
import signal
import subprocess
import time

import pytest

from conftest import IMAGE, eventually


def listed(drupe, *flags):
    return {entry["name"]: entry for entry in json.loads(drupe("ps", "-a", "--json", *flags).out)}


def ready(box):
    eventually(lambda: b"ready" in box.drupe("logs", box.name).out, what="the main command's first word")


def test_create_start_wait_logs_remove(drupe, new_box):
    name = "life-one"
    new_box.names.append(name)
    identity = drupe("create", "--name", name, IMAGE, "sh", "-c", "echo out; echo err >&2; exit 3").text.strip()
    assert len(identity) == 12
    assert listed(drupe)[name]["state"] == "created"
    drupe("start", name)
    assert drupe("wait", name).text == "3\n"
    logs = drupe("logs", name)
    assert (logs.out, logs.err) == (b"out\n", b"err\n")
    entry = listed(drupe)[name]
    assert (entry["state"], entry["exit_code"], entry["cause"]) == ("exited", 3, "finished")
    drupe("rm", name)
    assert name not in listed(drupe)
    drupe("inspect", name, code=1)


def test_ids_names_and_prefixes(drupe, box):
    identity = box.info()["record"]["id"]
    for word in (identity, identity[:6], box.name):
        assert drupe("exec", word, "echo", "x").out == b"x\n"
    assert "no-such-thing" in drupe("exec", "no-such-thing", "true", code=125).error


def test_stop_and_start_keep_the_disk(new_box):
    one = new_box()
    one.sh("echo kept > /root/file")
    one.drupe("stop", "-t", "2", one.name)
    assert one.state == "exited"
    one.drupe("start", one.name)
    assert one.exec("cat", "/root/file").text == "kept\n"


# microsandbox#705, #746: written, then stopped at once.
def test_write_and_stop_at_once(new_box):
    one = new_box()
    one.sh("head -c 5000000 /dev/urandom > /root/data; sha256sum /root/data > /root/sum")
    one.drupe("stop", "-t", "1", one.name)
    one.drupe("start", one.name)
    assert "OK" in one.sh("sha256sum -c /root/sum").text


# OpenSandbox#793: TERM first, then KILL after the grace.
def test_stop_tells_the_main_command(new_box):
    polite = new_box(command=("sh", "-c", "trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.1; done"))
    ready(polite)
    polite.drupe("stop", polite.name)
    assert b"bye" in polite.drupe("logs", polite.name).out
    deaf = new_box(command=("sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.1; done"))
    ready(deaf)
    result = deaf.drupe("stop", "-t", "1", deaf.name)
    assert result.seconds < 20


def test_kill(new_box):
    one = new_box(command=("sh", "-c", "trap 'echo usr1; exit 4' USR1; echo ready; while :; do sleep 0.1; done"))
    ready(one)
    one.drupe("kill", "-s", "USR1", one.name)
    assert one.drupe("wait", one.name).text == "4\n"
    two = new_box()
    two.drupe("kill", two.name)
    assert two.drupe("wait", two.name).text == "137\n"


def test_restart(new_box):
    one = new_box(command=("sh", "-c", "echo started; sleep infinity"))
    eventually(lambda: b"started" in one.drupe("logs", one.name).out)
    one.drupe("restart", "-t", "1", one.name)
    eventually(lambda: one.drupe("logs", one.name).out.count(b"started") == 2)


def test_logs_follow_to_the_end(drupe, new_box):
    one = new_box(command=("sh", "-c", "for i in 1 2 3 4 5; do echo line $i; sleep 0.5; done"))
    with drupe.popen("logs", "-f", one.name, stdout=subprocess.PIPE) as process:
        out, _ = process.communicate(timeout=60)
    assert out == b"".join(b"line %d\n" % i for i in range(1, 6))
    assert one.drupe("logs", "--tail", "2", one.name).out == b"line 4\nline 5\n"
    stamped = one.drupe("logs", "-t", "-n", "1", one.name).text
    assert stamped.endswith("Z line 5\n") and stamped.startswith("20")


# microsandbox#1007, vm0#21527: a log has an end.
def test_logs_are_bounded_and_survive_stop(drupe, new_box):
    one = new_box(command=("sh", "-c", "yes aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa | head -c 14000000; echo; echo end; sleep infinity"))
    eventually(lambda: one.drupe("logs", "--tail", "1", one.name).out == b"end\n", seconds=90)
    size = len(one.drupe("logs", one.name).out)
    assert 4 << 20 < size <= 10 << 20
    one.drupe("stop", "-t", "1", one.name)
    assert len(one.drupe("logs", one.name).out) == size


def test_rename(drupe, new_box):
    one = new_box()
    other = new_box()
    new_box.names.append("renamed-one")
    drupe("rename", one.name, "renamed-one")
    assert drupe("exec", "renamed-one", "echo", "x").out == b"x\n"
    drupe("exec", one.name, "true", code=125)
    assert "renamed-one" in drupe("rename", other.name, "renamed-one", code=1).error


def test_name_that_is_taken(drupe, box):
    assert box.name in drupe("create", "--name", box.name, IMAGE, code=125).error


# forkd#259: names that would be paths
@pytest.mark.parametrize("name", ["../x", "a/b", ".", "..", "-x", "ä", "a" * 200, "a b", ""])
def test_names_that_cannot_be(drupe, box, name):
    assert drupe("rename", box.name, "--", name, code=None).code in (1, 125)


def test_rm_of_a_running_one_needs_force(drupe, new_box):
    one = new_box()
    assert "-f" in drupe("rm", one.name, code=1).error
    drupe("rm", "-f", one.name)
    drupe("inspect", one.name, code=1)


# sandbox-sdk 0.9.1: two removals at once
def test_two_removals_at_once(drupe, new_box):
    one = new_box()
    processes = [drupe.popen("rm", "-f", one.name, stdout=-1, stderr=-1) for _ in range(4)]
    outcomes = [(process.communicate(timeout=60), process.returncode) for process in processes]
    assert 0 in [code for _, code in outcomes]
    for (_, err), code in outcomes:
        assert code == 0 or b"no sandbox" in err.lower() or b"there is no" in err.lower() or b"being removed" in err.lower(), err
    drupe("inspect", one.name, code=1)


def test_prune(drupe, new_box):
    ended = new_box(command=("true",))
    drupe("wait", ended.name)
    keeps = new_box(command=("true",))
    drupe("wait", keeps.name)
    running = new_box()
    assert drupe("prune", "--older-than", "1h", "--name", "test-*").text == ""
    would = drupe("prune", "--dry-run")
    assert ended.name in would.text and keeps.name in would.text and running.name not in would.text
    assert b"Would remove" in would.err and b"base snapshots" in would.err
    assert {ended.name, keeps.name} <= set(listed(drupe))
    assert drupe("prune", "--name", ended.name).text == f"{ended.name}\n"
    names = listed(drupe)
    assert ended.name not in names and keeps.name in names and running.name in names


def test_ps_table_filters_and_json(drupe, box):
    table = drupe("ps").text
    assert table.splitlines()[0].split() == ["SANDBOX", "NAME", "IMAGE", "COMMAND", "CREATED", "STATE"]
    assert box.name in table and "Running" in table
    assert drupe("ps", "-q", "--filter", f"name={box.name}").text.strip() == box.info()["record"]["id"]
    created = json.loads(drupe("ps", "-a", "--json", "--filter", "state=created").out)
    assert all(one["state"] == "created" for one in created)
    assert box.name not in [one["name"] for one in created]


def test_labels(drupe, new_box):
    one = new_box("--label", "team=red", "-l", "flag")
    assert drupe("ps", "-q", "--filter", "label=team=red").text.strip() == one.info()["record"]["id"]
    assert drupe("ps", "-q", "--filter", "label=team=blue").text == ""
    assert listed(drupe)[one.name]["labels"] == {"team": "red", "flag": ""}


def test_stats(drupe, box):
    entry = json.loads(drupe("stats", "--no-stream", "--json", box.name).out)[0]
    assert entry["memory_total_bytes"] > 200 << 20
    assert entry["processes"] >= 1
    assert entry["host"]["hypervisor_private_bytes"] > 0
    assert box.name in drupe("stats", "--no-stream").text


def test_top(drupe, box):
    assert "sleep infinity" in drupe("top", box.name).text


def test_detached_with_rm_goes_by_itself(drupe, new_box):
    one = new_box("--rm", command=("true",))
    eventually(lambda: one.name not in listed(drupe), what="removal")


def test_sandbox_ends_with_its_main_command(new_box):
    one = new_box(command=("sleep", "1"))
    assert one.drupe("wait", one.name).text == "0\n"


def test_start_attached(drupe, new_box):
    name = "attach-me"
    new_box.names.append(name)
    drupe("create", "--name", name, IMAGE, "sh", "-c", "echo first; exit 6")
    result = drupe("start", "-a", name, code=6)
    assert result.out == b"first\n"


def test_foreground_sandbox_ends_with_its_creator(drupe):
    process = drupe.popen("run", "--name", "owned-one", IMAGE, "sh", "-c", "echo up; sleep 1000", stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"up\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    eventually(lambda: "owned-one" not in {e["name"] for e in json.loads(drupe("ps", "--json").out)}, what="the end")
    eventually(lambda: drupe("inspect", "owned-one", code=None).code == 1, what="removal")


# smolvm#40: two runs of one image share nothing.
def test_second_run_is_clean(drupe):
    drupe("run", IMAGE, "sh", "-c", "touch /root/left-over")
    drupe("run", IMAGE, "sh", "-c", "! test -e /root/left-over")


def test_time_is_right(drupe, box):
    for clock in (drupe("run", IMAGE, "date", "+%s").text, box.exec("date", "+%s").text):
        assert abs(int(clock) - time.time()) < 10


def test_disk_size(new_box):
    small = new_box()
    large = new_box("--disk", "12g")
    size = "df --output=size -B1M / | tail -n 1"
    assert 7000 < int(small.sh(size).text) < 8300
    assert 11000 < int(large.sh(size).text) < 12400


# boxlite#1152
def test_writing_more_than_a_gibibyte(new_box):
    one = new_box()
    one.sh("head -c 1600000000 /dev/zero > /root/big && stat -c %s /root/big && rm /root/big", timeout=240)


def test_cpus_and_memory(new_box):
    one = new_box("--cpus", "2", "--memory", "1g")
    assert one.exec("nproc").text == "2\n"
    assert 900_000 < int(one.sh("grep MemTotal /proc/meminfo").text.split()[1]) < 1_100_000


def test_sandbox_has_ended_when_who_followed_it_has(drupe, new_box):
    one = new_box(command=("sh", "-c", "exit 4"))
    drupe("wait", one.name)
    for _ in range(3):
        drupe("start", "-a", one.name, code=4)
        assert one.state == "exited"


def test_detached_command_that_cannot_start(drupe, new_box):
    one = new_box()
    refused = drupe("exec", "-d", one.name, "no-such-program", code=127)
    assert "no-such-program" in refused.error


def test_more_memory_than_was_asked_for_is_told(drupe):
    made = drupe("create", "--memory", "300m", "--name", "stepped", IMAGE)
    try:
        assert b"steps of 256 MiB" in made.err and b"512 MiB" in made.err
        assert json.loads(drupe("inspect", "stepped").out)[0]["summary"]["memory_mib"] == 512
    finally:
        drupe("rm", "stepped")
