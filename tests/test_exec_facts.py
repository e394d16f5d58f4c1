"""How commands end: exit codes, signals, timeouts, memory, children that stay."""

import json
import time

import pytest


def exec_json(box, *command, flags=()):
    return json.loads(box.exec(*command, flags=("--json", *flags), code=None).out)


# inspect_ai self_check
@pytest.mark.parametrize("status", [0, 1, 70, 126, 127, 255])
def test_exit_codes(box, status):
    box.sh(f"exit {status}", code=status)


# pi#8992, e2b infra#90
@pytest.mark.parametrize("name,number", [("KILL", 9), ("TERM", 15), ("SEGV", 11)])
def test_signals(box, name, number):
    box.sh(f"kill -{name} $$", code=128 + number)
    report = exec_json(box, "sh", "-c", f"kill -{name} $$")
    assert (report["exit_code"], report["signal"]) == (None, number)


# inspect_ai self_check: a signal of its own is not a timeout.
def test_a_signal_with_a_timeout_set_is_no_timeout(box):
    report = exec_json(box, "sh", "-c", "kill -TERM $$", flags=("--timeout", "30"))
    assert (report["signal"], report["timed_out"]) == (15, False)


# microsandbox#466
def test_not_found_and_not_executable(box):
    missing = box.exec("no-such-program", code=127)
    assert "no-such-program" in missing.error
    refused = box.exec("/etc/passwd", code=126)
    assert "/etc/passwd" in refused.error


def test_missing_directory_and_user(box):
    directory = box.exec("true", flags=("-w", "/no/such/place"), code=None)
    assert directory.code in (125, 126, 127) and "/no/such/place" in directory.error
    user = box.exec("true", flags=("-u", "nosuchuser"), code=None)
    assert user.code in (125, 126, 127) and "nosuchuser" in user.error


# inspect_ai self_check
def test_users(box):
    assert box.exec("id", "-un", flags=("-u", "nobody")).text == "nobody\n"
    assert box.exec("id", "-u", flags=("-u", "12345")).text == "12345\n"
    assert box.sh("id -u; id -g", flags=("-u", "12345:54321")).text == "12345\n54321\n"


def test_workdir(box):
    assert box.exec("pwd", flags=("-w", "/usr/share")).text == "/usr/share\n"


# inspect_ai#1979
def test_timeout_keeps_output(box):
    result = box.sh("echo a; sleep 60", flags=("--timeout", "1"), code=124)
    assert result.out == b"a\n"
    assert result.seconds < 30


# inspect_ai self_check, microsandbox PR#1104: the children go too.
def test_timeout_kills_children(box):
    box.sh("sleep 4321 & setsid sleep 4321 & wait", flags=("--timeout", "1"), code=124)
    assert box.sh("pgrep -f 'sleep 432[1]'; true").text == ""


# minimal#1342, context-mode#848: a command returns when its leader exits; a child that holds the pipe lives on.
def test_background_child_lives_on(box):
    result = box.sh("(while :; do echo tick; echo tick >> /tmp/ticks; sleep 0.2; done) & echo started")
    assert result.out.startswith(b"started") or b"started" in result.out
    assert result.seconds < 20
    first = int(box.sh("wc -l < /tmp/ticks").text)
    time.sleep(2)
    assert int(box.sh("wc -l < /tmp/ticks").text) > first, "SIGPIPE or a full pipe stopped it"
    box.sh("pkill -f 'echo tic[k]'; rm /tmp/ticks", code=None)


# microsandbox#1201, opencomputer#194, openclaw#68691
def test_no_zombies(box):
    box.sh("for i in $(seq 100); do sh -c 'sleep 0.01 &'; done; sleep 1", timeout=240)
    assert box.sh("ps -eo stat | grep -c ^Z; true").text == "0\n"


# HF sandbox-server#21
def test_many_fast_commands(box):
    for number in range(20):
        assert box.exec("echo", str(number), flags=("--timeout", "3600")).text == f"{number}\n"


# OpenSandbox#496 is in test_guest_misbehaviour.py.
def test_memory_bomb_is_told_apart(new_box):
    bomb = new_box("--memory", "256m")
    report = exec_json(bomb, "python3", "-c", "x=[bytearray(1<<20) for _ in range(4096)]")
    assert report["oom_killed"] is True
    assert report["timed_out"] is False
    assert bomb.exec("echo", "alive").text == "alive\n"


# exec-sandbox, CubeSandbox#634: what is dangerous for a helper is only the command's.
def test_environment_is_only_the_commands(box):
    flags = []
    for entry in ("LD_PRELOAD=/nonexistent.so", "BASH_ENV=/tmp/x", "GCONV_PATH=/tmp", "NODE_OPTIONS=--x", "IFS=x"):
        flags += ["-e", entry]
    result = box.exec("env", flags=flags)
    assert "LD_PRELOAD=/nonexistent.so" in result.text
    assert box.exec("echo", "fine").out == b"fine\n"


# E2B infra#2706
def test_last_environment_entry_wins(box):
    assert box.sh("echo $A", flags=("-e", "A=1", "-e", "A=2")).text == "2\n"


# libkrun: an environment larger than a kernel command line.
def test_large_environment(box):
    flags = [part for i in range(200) for part in ("-e", f"V{i}={'x' * 1000}")]
    assert box.sh("env | wc -c", flags=flags, timeout=60).text.strip().isdigit()


# inspect_ai self_check: 1 MiB of arguments in strings of 64 KiB.
def test_a_mebibyte_of_arguments(box):
    strings = ["a" * 65000 for _ in range(16)]
    assert box.exec("sh", "-c", 'printf %s "$@" | wc -c', "sh", *strings).text.strip() == str(16 * 65000)


def test_several_shells_at_once(drupe, box):
    processes = [drupe.popen("exec", box.name, "sh", "-c", f"sleep 0.3; echo {i}; exit {i}", stdout=-1) for i in range(8)]
    for number, process in enumerate(processes):
        assert process.communicate(timeout=60)[0] == f"{number}\n".encode()
        assert process.returncode == number


def test_exec_detached(box):
    box.exec("sh", "-c", "sleep 0.5; echo done > /tmp/detached", flags=("-d",))
    for _ in range(100):
        if box.sh("cat /tmp/detached 2>/dev/null; true").text == "done\n":
            break
        time.sleep(0.1)
    else:
        pytest.fail("the detached command did not run")
    box.sh("rm /tmp/detached")
