"""The process that waits to become the next command."""
import signal
import struct
import time

import protocol as p

# Ends when a child waits and says its pid.
WAITING = "until at=$(grep -ls drupe-ready /proc/[0-9]*/comm); do sleep 0.02; done; at=${at#/proc/}; echo ${at%/comm}"


def waiting(vm):
    done = vm.sh(WAITING)
    assert done.facts.exit_code == 0, done.facts
    return int(done.stdout)


def through_it(vm, *argv, **options):
    """Runs a command that must be the child that waits."""
    pid = waiting(vm)
    done = vm.run(*argv, **options)
    assert done.pid == pid, (done.pid, pid, done.facts)
    return done


def test_commands_in_a_row_are_processes_of_their_own(vm):
    seen = [through_it(vm, "sh", "-c", "echo $$; cat /proc/self/cgroup; cut -d' ' -f6 /proc/self/stat") for _ in range(3)]
    pids = [int(one.stdout.split()[0]) for one in seen]
    assert pids == [one.pid for one in seen] and len(set(pids)) == 3
    first, second = vm.exec("sh", "-c", "cat /proc/self/cgroup; sleep 1000"), vm.exec("sh", "-c", "cat /proc/self/cgroup; sleep 1000")
    for one in (first, second):
        one.wait(lambda: b"\n" in one.stdout)
    assert first.stdout != second.stdout
    for one in (first, second):
        one.signal(signal.SIGKILL, tree=True)
        assert one.finish().signal == 9


def test_one_is_made_while_a_command_runs_on(vm):
    stream = vm.exec("sh", "-c", WAITING + "; sleep 1000")
    stream.wait(lambda: b"\n" in stream.stdout)
    pid = int(stream.stdout)
    assert vm.sh("exit 3").pid == pid
    stream.signal(signal.SIGKILL, tree=True)
    stream.finish()


def test_the_command_gets_what_it_would_get_otherwise(vm):
    vm.set_up(env=["FROM_IMAGE=1", "OVER=image"], new_identity=False)
    env = through_it(vm, "env", env=["OVER=request", b"BYTES=\xff"]).stdout.split(b"\n")
    assert {b"FROM_IMAGE=1", b"OVER=request", b"BYTES=\xff", b"HOME=/root", b"HOSTNAME=box"} <= set(env)
    assert through_it(vm, "pwd", cwd="etc").stdout == b"/etc\n"
    vm.set_up(cwd="/made/for/it", new_identity=False)
    assert through_it(vm, "pwd").stdout == b"/made/for/it\n"
    vm.set_up(new_identity=False)
    assert through_it(vm, "pwd").stdout == b"/\n"
    assert through_it(vm, "id", user="app").stdout == b"uid=1000(app) gid=1001(app) groups=27(extra)\n"
    assert through_it(vm, "echo", b"\xff\xfe").stdout == b"\xff\xfe\n"
    assert through_it(vm, "ls", "/proc/self/fd").stdout.split() == [b"0", b"1", b"2", b"3"]
    state = "umask; ulimit -n; ulimit -Hn; cat /proc/self/comm; cat /proc/self/oom_score_adj; grep -E 'Cap|Sig|NoNew|Thr' /proc/self/status; " \
            "readlink /proc/self/ns/*; tr '\\0' ' ' < /proc/self/cmdline; stat -Lc %u:%g:%a /proc/self"
    mine = through_it(vm, "sh", "-c", state).stdout
    assert mine == vm.sh(state, limits=[(7, 1 << 20, 1 << 20)]).stdout


def test_stdin_or_none(vm):
    assert through_it(vm, "readlink", "/proc/self/fd/0").stdout == b"/dev/null\n"
    assert through_it(vm, "cat").stdout == b""
    assert through_it(vm, "wc", "-c", input=b"x" * 1000000).stdout == b"1000000\n"
    assert through_it(vm, "cat", input=b"").stdout == b""


def test_codes_of_commands_that_do_not_start(vm):
    for argv, options, code in ((["missing-program"], {}, 127), (["/etc"], {}, 126), (["pwd"], {"cwd": "/missing"}, 126),
                                (["id"], {"user": "nobody-here"}, 126), (["env"], {"env": ["NOTHING"]}, 126)):
        waiting(vm)
        facts = vm.run(*argv, **options).facts
        assert (facts.exit_code, facts.signal) == (code, 0) and facts.error is not None, (argv, facts)


def test_what_it_cannot_become_starts_without_it(vm):
    pid = waiting(vm)
    long = vm.run("sh", "-c", "echo ${#0} $#", "x" * 100000, *["y" * 1000] * 200)
    assert long.stdout == b"100000 200\n" and long.pid != pid
    assert vm.run("true", tty=True).pid != pid
    assert vm.run("true", limits=[(7, 64, 128)]).pid != pid
    assert vm.run("true").pid == pid
    pid = waiting(vm)
    just = vm.run("sh", "-c", "echo ${#0}", "x" * 60000)
    assert just.stdout == b"60000\n" and just.pid == pid


def test_killed_with_everything_else(vm):
    for _ in range(5):
        waiting(vm)
        assert vm.sh("kill -9 -1", limits=[(7, 64, 128)]).facts.exit_code == 0
        assert vm.run("cat", input=b"kept").stdout == b"kept"
        pid = waiting(vm)
        assert vm.sh(f"kill -9 {pid}").facts.signal == 9  # the command itself is that process
        assert vm.sh("echo on").stdout == b"on\n"


def stopped(vm):
    """A child that waits and does not see its order."""
    stream = vm.exec("sh", "-c", WAITING + "; kill -STOP ${at%/comm}")
    assert stream.finish().exit_code == 0
    return int(stream.stdout)


def test_one_that_dies_with_its_order_costs_nothing(vm):
    pid = stopped(vm)
    stream = vm.exec("sh", "-c", "echo $$; cat; echo end >&2; exit 5", stdin=True, timeout_ms=50000)
    stream.write(b"x" * 100000, eof=True)
    vm.sh(f"kill -9 {pid}", tty=True)
    facts = stream.finish()
    assert (facts.exit_code, facts.signal, facts.error, stream.stderr) == (5, 0, None, b"end\n")
    assert stream.stdout == b"%d\n" % stream.pid + b"x" * 100000 and stream.pid != pid


def test_one_that_was_stopped_goes_on(vm):
    pid = stopped(vm)
    done = vm.run("cat", input=b"late")
    assert done.stdout == b"late" and done.pid == pid


def test_signals_and_timeouts_before_the_order_is_taken(vm):
    stopped(vm)
    stream = vm.exec("sleep", "1000")
    stream.signal(signal.SIGKILL)
    assert (stream.finish().signal, stream.facts.exit_code) == (9, -1)
    stopped(vm)
    late = vm.run("sleep", "1000", timeout_ms=200)
    assert late.facts.timed_out and late.facts.signal == 9
    stopped(vm)
    stream = vm.exec("sleep", "1000", id="gone", keep=False)
    stream.send_reset()
    assert vm.attach("gone").finish().signal == 9


def test_tree_attach_and_timeout_of_its_command(vm):
    pid = waiting(vm)
    stream = vm.exec("sh", "-c", "sleep 1000 & setsid sleep 1001 & echo up; wait", id="tree", keep=True)
    stream.wait(lambda: b"up" in stream.stdout)
    assert stream.pid == pid
    stream.send_reset()
    again = vm.attach("tree").opened()
    assert again.pid == pid
    again.signal(signal.SIGKILL, tree=True)
    assert again.finish().signal == 9
    deadline = time.monotonic() + 20
    while [one for one in p.processes(vm.request(p.PROCESSES))[1] if b"sleep 100" in one["command"]]:
        assert time.monotonic() < deadline
    late = through_it(vm, "sh", "-c", "echo a; sleep 1000", timeout_ms=700)
    assert late.facts.timed_out and late.stdout == b"a\n" and 600_000_000 < late.facts.wall_ns < 60_000_000_000


def test_facts_count_from_the_use(vm):
    pid = waiting(vm)
    time.sleep(2)
    done = vm.run("true")
    assert done.pid == pid and done.facts.wall_ns < 2_000_000_000 and done.facts.cpu_ns < 2_000_000_000


def test_out_of_memory_of_its_command_is_a_fact(vm):
    fill = "dd if=/dev/zero of=/dev/shm/fill bs=1M count=200 2>/dev/null; dd if=/dev/zero of=/dev/null bs=400M count=1; echo $?; rm /dev/shm/fill"
    done = through_it(vm, "sh", "-c", fill, timeout=180)
    assert done.facts.oom_killed and done.stdout == b"137\n"
    assert through_it(vm, "true").facts.oom_killed is False


def test_nobody_is_told_of_it(vm):
    waiting(vm)
    before = p.Stats(vm.request(p.STATS)).processes
    listed = [one["command"] for one in p.processes(vm.request(p.PROCESSES))[1]]
    assert not [one for one in listed if b"ready" in one] and listed.count(b"/init") == 1
    sleeper = vm.exec("sleep", "1000").opened()
    assert p.Stats(vm.request(p.STATS)).processes == before + 1
    sleeper.signal(signal.SIGKILL)
    sleeper.finish()


def test_the_user_sees_its_name_and_may_not_look_into_it(vm):
    shown = vm.sh(WAITING + "; ps -o pid,comm | grep drupe-ready; wc -c < /proc/${at%/comm}/cmdline; ls /proc/${at%/comm}/fd | wc -l; "
                            "su app -c \"ls /proc/${at%/comm}/fd\" 2>&1 | grep -c denied; grep CapEff /proc/${at%/comm}/status").stdout
    pid, line, arguments, descriptors, refused, rights = shown.decode().strip().split("\n")
    assert line.split() == [pid, "drupe-ready"] and (arguments, descriptors, refused) == ("0", "5", "1")
    assert rights.split()[1] == "000001c4be7cffff"


def test_it_is_saved_with_the_machine(vm):
    pid = waiting(vm)
    for _ in range(3):
        vm.freeze()
        vm.thaw(epoch=vm.epoch + 1)
    assert vm.run("true").pid == pid
    # Without one, and with one on its way.
    vm.freeze()
    vm.thaw()
    assert vm.sh("echo on").stdout == b"on\n"
    pid = waiting(vm)
    vm.sh(f"kill -9 {pid}", limits=[(7, 64, 128)])
    vm.freeze()
    vm.thaw()
    assert waiting(vm) != pid


def test_sync_leaves_one_ready(vm):
    for _ in range(3):
        assert vm.run("true").facts.exit_code == 0
        vm.request(p.SYNC)
        vm.freeze()
        vm.thaw()
    vm.request(p.SYNC)
    listed = vm.sh("grep -ls drupe-ready /proc/[0-9]*/comm | wc -l", limits=[(7, 64, 128)])
    assert listed.stdout == b"1\n"


def test_a_new_root_is_the_next_commands_root(own_vm):
    vm = own_vm
    assert vm.sh("mkdir /n && cp -a /bin /n && touch /n/marker && " + WAITING + " > /dev/null; mount --bind /n /").facts.exit_code == 0
    seen = vm.run("ls", "/")
    assert b"marker" in seen.stdout.split(), (seen.stdout, seen.facts)
    assert vm.run("pwd").stdout == b"/\n"


def test_shutdown_does_not_wait_for_it(own_vm):
    waiting(own_vm)
    begin = time.monotonic()
    own_vm.request(p.SHUTDOWN, struct.pack("<iI", 15, 20000))
    assert own_vm.wait_end(30) == 0
    assert time.monotonic() - begin < 15
    assert "could not be made read-only" not in own_vm.console_tail()
