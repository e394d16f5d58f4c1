"""Commands: exit facts, output, stdin, terminals, users, limits."""
import os
import re
import signal
import time

import pytest

import protocol as p


def test_exit_code_and_output_are_exact(vm):
    done = vm.sh(r"printf 'a\n\nb\n\n\nc\n'; printf 'err' >&2; exit 70")
    assert (done.facts.exit_code, done.facts.signal) == (70, 0)
    assert done.stdout == b"a\n\nb\n\n\nc\n"
    assert done.stderr == b"err"
    assert vm.sh("printf hello").stdout == b"hello"


def test_bytes_are_bytes(vm):
    assert vm.run("printf", r"\303\050\377\000\342\200\250").stdout == b"\xc3\x28\xff\x00\xe2\x80\xa8"
    assert vm.run("echo", b"\xff\xfe").stdout == b"\xff\xfe\n"


def test_one_long_line(vm):
    done = vm.sh("head -c 70000 /dev/zero | tr '\\0' x")
    assert done.stdout == b"x" * 70000


def test_killed_by_its_own_signal(vm):
    assert vm.sh("kill -9 $$").facts.signal == 9
    done = vm.sh("kill -TERM $$", timeout_ms=30000)
    assert (done.facts.signal, done.facts.timed_out) == (15, False)


def test_timeout_keeps_output_and_kills_the_tree(vm):
    done = vm.sh("echo a; sleep 1000 & sleep 1001", timeout_ms=1500, id="late")
    assert done.facts.timed_out and done.facts.signal == 9 and not done.facts.oom_killed
    assert done.stdout == b"a\n"
    # They have been killed, and are perhaps still on their way out.
    limit = time.monotonic() + 20
    while [one for one in p.processes(vm.request(p.PROCESSES))[1] if b"sleep 100" in one["command"]]:
        assert time.monotonic() < limit
        time.sleep(0.05)


def test_background_child_does_not_hold_the_command_and_lives_on(vm):
    begin = time.monotonic()
    done = vm.sh("(while :; do echo tick; sleep 0.05; done) & echo hi; echo $! > /bg.pid")
    assert done.facts.exit_code == 0 and b"hi\n" in done.stdout
    assert time.monotonic() - begin < 20
    alive = vm.sh("sleep 1; kill -0 $(cat /bg.pid) && echo alive; kill -9 $(cat /bg.pid)")
    assert alive.stdout == b"alive\n"


def test_nothing_of_the_output_is_lost_at_the_end(vm):
    for _ in range(5):
        assert vm.sh("head -c 200000 /dev/zero; exit 5").sizes[p.STDOUT] == 200000


def test_background_flood_does_not_prolong_the_command(vm):
    done = vm.sh("yes > /dev/fd/1 & sleep 0.2; exit 3")
    assert done.facts.exit_code == 3
    vm.sh("killall yes")


def test_stdin(vm):
    assert vm.run("wc", "-c", input=b"x" * (8 << 20)).stdout == b"%d\n" % (8 << 20)
    raw = b"$HOME `whoami` 'q' \"q\" \\ \x00\n"
    assert vm.run("cat", input=raw).stdout == raw
    assert vm.run("cat", input=b"").stdout == b""
    assert vm.run("cat").stdout == b""  # no stdin is /dev/null


def test_stdin_to_a_slow_and_to_no_reader(vm):
    assert vm.sh("sleep 0.5; wc -c", input=b"x" * 300000).stdout == b"300000\n"
    assert vm.sh("exec <&-; sleep 0.2; echo done", input=b"x" * 1000000).stdout == b"done\n"


def test_both_outputs_at_once(vm):
    done = vm.sh("head -c 300000 /dev/zero >&2; head -c 300000 /dev/zero")
    assert (done.sizes[p.STDOUT], done.sizes[p.STDERR]) == (300000, 300000)


def test_output_that_nobody_takes_holds_the_command_up(vm):
    stream = vm.exec("sh", "-c", "yes; true")
    stream.auto_credit = False
    stream.wait(lambda: stream.sizes[p.STDOUT] == p.INITIAL_CREDIT)
    time.sleep(0.3)
    assert stream.sizes[p.STDOUT] == p.INITIAL_CREDIT
    stream.auto_credit = True
    stream.grant(p.STDOUT)
    stream.wait(lambda: stream.sizes[p.STDOUT] > 2 * p.INITIAL_CREDIT)
    stream.signal(signal.SIGKILL, tree=True)
    assert stream.finish().exit_code in (-1, 0)


def test_not_found_and_not_executable(vm):
    missing = vm.run("no-such-program").facts
    assert missing.exit_code == 127 and missing.error.code == "not_found" and missing.error.errno == 2
    assert vm.run("/no/such/program").facts.exit_code == 127
    denied = vm.run("/etc/passwd").facts
    assert denied.exit_code == 126 and denied.error.code == "permission_denied"
    assert vm.run("/etc").facts.exit_code == 126
    vm.task(p.WRITE_FILE, "/garbage", input=b"\x00\x01garbage", mode=0o755)
    garbage = vm.run("/garbage").facts
    assert garbage.exit_code == 126 and "interpreter" in garbage.error.next_step


def test_arguments_of_a_mebibyte(vm):
    assert vm.run("sh", "-c", 'echo $# ${#16}', "x", *["a" * 65000] * 16).stdout == b"16 65000\n"
    too_long = vm.run("echo", "a" * 200000).facts
    assert too_long.exit_code == 126 and too_long.error.code == "limit_exceeded"


def test_environment(vm):
    vm.set_up(env=["FROM_IMAGE=1", "OVER=image"])
    out = vm.run("env", env=["OVER=request", b"BYTES=\xff", "LD_PRELOAD=/nowhere"]).stdout.split(b"\n")
    vm.set_up()
    assert {b"FROM_IMAGE=1", b"OVER=request", b"BYTES=\xff", b"HOME=/root", b"HOSTNAME=box"} <= set(out)
    assert any(one.startswith(b"PATH=/usr/local/sbin:") for one in out)
    assert vm.run("env", env=["NOTHING"]).facts.error.code == "invalid_argument"
    assert vm.run("env", env=["=x"]).facts.error.code == "invalid_argument"


def test_working_directory(vm):
    assert vm.run("pwd").stdout == b"/\n"
    assert vm.run("pwd", cwd="/etc").stdout == b"/etc\n"
    assert vm.run("pwd", cwd="etc").stdout == b"/etc\n"
    missing = vm.run("pwd", cwd="/missing").facts
    assert missing.exit_code == 126 and "/missing" in missing.error.message
    vm.set_up(cwd="/made/by/default")
    assert vm.run("pwd").stdout == b"/made/by/default\n"
    vm.set_up()


def test_users(vm):
    assert vm.run("id", user="app").stdout == b"uid=1000(app) gid=1001(app) groups=27(extra)\n"
    assert b"uid=4711 gid=0" in vm.run("id", user="4711").stdout
    assert b"gid=27(extra)" in vm.run("id", user="app:extra").stdout
    assert vm.sh("echo $HOME", user="1000").stdout == b"/home/app\n"
    for spec in ("nobody-here", "0x0", "1000:", "root:nope"):
        refused = vm.run("id", user=spec).facts
        assert refused.error.code == "not_found" and refused.exit_code == 126, spec


def test_capabilities_are_the_documented_ones(vm):
    root = vm.sh("grep Cap /proc/self/status").stdout.decode()
    assert re.findall(r"CapEff:\s+(\w+)", root) == ["000001c4be7cffff"]
    assert re.findall(r"CapBnd:\s+(\w+)", root) == ["000001c4be7cffff"]
    app = vm.sh("grep Cap /proc/self/status; grep NoNewPrivs /proc/self/status", user="app").stdout.decode()
    assert re.findall(r"CapEff:\s+(\w+)", app) == ["0000000000000000"]
    assert re.findall(r"NoNewPrivs:\s+(\w+)", app) == ["0"]


def test_no_descriptor_leaks(vm):
    assert vm.sh("ls /proc/self/fd").stdout.split() == [b"0", b"1", b"2", b"3"]  # 3 is ls reading the directory
    assert vm.run("pwd", cwd="/proc/self/fd/9").facts.exit_code == 126


def test_resource_limits(vm):
    assert vm.sh("ulimit -n", limits=[(7, 64, 128)]).stdout == b"64\n"
    assert vm.run("true", limits=[(99, 1, 1)]).facts.error.code == "invalid_argument"


def test_terminal(vm):
    stream = vm.exec("sh", "-c", "stty size; trap 'stty size; exit 9' WINCH; echo ready; while :; do sleep 0.05; done",
                     tty=True, rows=33, columns=101)
    stream.wait(lambda: b"ready" in stream.stdout)
    stream.resize(44, 55)
    assert stream.finish().exit_code == 9
    assert stream.stdout.replace(b"\r", b"") == b"33 101\nready\n44 55\n"


def test_terminal_interrupt_and_end(vm):
    stream = vm.exec("sh", "-c", "trap 'echo caught; exit 4' INT; echo ready; while :; do sleep 0.05; done", tty=True)
    stream.wait(lambda: b"ready" in stream.stdout)
    stream.write(b"\x03")
    assert stream.finish().exit_code == 4 and b"caught" in stream.stdout
    stream = vm.exec("cat", tty=True, stdin=True)
    stream.write("é😀\n".encode()[:3])
    stream.write("é😀\n".encode()[3:], eof=True)
    assert stream.finish().exit_code == 0
    assert stream.stdout.count("é😀".encode()) == 2


def test_signals(vm):
    stream = vm.exec("sh", "-c", "trap 'echo got; exit 3' USR1; echo ready; while :; do sleep 0.05; done", id="signalled")
    stream.wait(lambda: b"ready" in stream.stdout)
    vm.request(p.SIGNAL_EXEC, p.text("signalled") + b"\x0a\0\0\0\0")
    assert stream.finish().exit_code == 3
    with pytest.raises(p.AgentError, match="not_found"):
        vm.request(p.SIGNAL_EXEC, p.text("signalled") + b"\x0a\0\0\0\0")
    tree = vm.exec("sh", "-c", "sleep 1000 & sleep 1000 & echo ready; wait")
    tree.wait(lambda: b"ready" in tree.stdout)
    tree.signal(signal.SIGTERM, tree=True)
    tree.finish()
    deadline = time.monotonic() + 20
    while [one for one in p.processes(vm.request(p.PROCESSES))[1] if b"sleep 1000" in one["command"]]:
        assert time.monotonic() < deadline


def test_reset_kills_unless_kept(vm):
    for keep in (False, True):
        stream = vm.exec("sh", "-c", "echo ready; sleep 1000", id=f"reset-{keep}", keep=keep)
        stream.wait(lambda: b"ready" in stream.stdout)
        stream.send_reset()
        if keep:
            again = vm.attach(f"reset-{keep}").opened()
            assert again.pid == stream.pid and again.facts is None
            again.signal(signal.SIGKILL)
            assert again.finish().signal == 9
        else:
            assert vm.attach(f"reset-{keep}").finish().signal == 9


def test_attach_gets_the_ring(vm):
    stream = vm.exec("sh", "-c", "read x; head -c 100000 /dev/zero | tr '\\0' a; echo end; exit 6", id="ring", keep=True, stdin=True)
    stream.opened()
    stream.write(b"go\n")
    stream.send_reset()
    again = vm.attach("ring")
    facts = again.finish()
    assert facts.exit_code == 6
    assert again.stdout.endswith(b"a\nend\n") or again.stdout.endswith(b"aend\n")
    assert facts.truncated == (len(again.stdout) < 100004)
    assert vm.attach("ring").finish().error.code == "not_found"


def test_ids_are_unique_while_running(vm):
    first = vm.exec("sleep", "1000", id="unique").opened()
    assert vm.run("true", id="unique").facts.error.code == "already_exists"
    assert vm.run("true", id="not/valid").facts.error.code == "invalid_argument"
    first.signal(signal.SIGKILL)
    first.finish()


def test_many_commands_at_once(vm):
    streams = [vm.exec("sh", "-c", f"head -c 50000 /dev/zero; exit {i}") for i in range(30)]
    assert [one.finish().exit_code for one in streams] == list(range(30))
    assert {one.sizes[p.STDOUT] for one in streams} == {50000}


def test_orphans_are_reaped(vm):
    vm.sh("i=0; while [ $i -lt 200 ]; do (true &); i=$((i+1)); done", timeout=120)
    assert b"Z" not in vm.sh("ps -o stat").stdout


def test_hostile_root_of_the_image(vm):
    """Of conftest's disk: /dev and /proc are links there, /tmp is missing, /etc/hosts is a link."""
    if os.environ.get("DRUPE_TEST_DISK"):
        pytest.skip("the disk is not the hostile one")
    assert vm.sh("[ -c /dev/null ] && [ ! -L /dev ] && [ ! -L /proc ] && [ -d /tmp ] && echo good").stdout == b"good\n"
    assert vm.sh("ls /real-dev | wc -l; [ -e /home/app/hosts-elsewhere ] || echo untouched").stdout == b"0\nuntouched\n"
    assert b"box" in vm.sh("cat /etc/hosts").stdout
    assert vm.sh("stat -c %a /tmp").stdout == b"1777\n"
