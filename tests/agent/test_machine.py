"""The machine as a whole: freezing, epochs, repair, limits, misbehaviour, shutdown."""
import re
import signal
import struct
import time

import pytest

import protocol as p


def test_hello_and_ping(vm):
    version, agent, kernel, boot = vm.hello
    assert version == 1 and agent and kernel and re.fullmatch(r"[0-9a-f-]{36}", boot)
    assert vm.request(p.PING, b"x" * 1024) == b"x" * 1024
    with pytest.raises(p.AgentError, match="invalid_argument"):
        vm.request(p.PING, b"x" * 1025)
    with pytest.raises(p.AgentError, match="unsupported"):
        vm.request(200)
    with pytest.raises(p.AgentError, match="integrity"):
        vm.request(p.SET_UP, b"short")


def test_statistics_and_processes(vm):
    stats = p.Stats(vm.request(p.STATS))
    assert 0 < stats.memory_user < stats.memory_total and 0 < stats.disk_free < stats.disk_total
    assert abs(stats.realtime_ns - time.time_ns()) < 5_000_000_000
    stream = vm.exec("sleep", "1000", id="listed", user="app").opened()
    _, listed = p.processes(vm.request(p.PROCESSES))
    found = [one for one in listed if one["exec_id"] == "listed"]
    assert [(one["pid"], one["uid"], one["command"]) for one in found] == [(stream.pid, 1000, b"sleep 1000")]
    assert listed[0]["pid"] == 1
    stream.signal(signal.SIGKILL)


def test_set_up(vm):
    before = vm.sh("cat /proc/sys/kernel/random/boot_id /etc/machine-id").stdout
    vm.set_up(hostname="other", machine_id="f" * 32, realtime_ns=1_900_000_000 * 10**9)
    assert vm.sh("hostname; cat /etc/hostname; date +%Y; grep -c other /etc/hosts; cat /etc/machine-id").stdout == \
        b"other\nother\n2030\n1\n" + b"f" * 32 + b"\n"
    vm.set_up(new_identity=False)
    after = vm.sh("cat /proc/sys/kernel/random/boot_id /etc/machine-id").stdout
    assert after.split()[0] != before.split()[0] and after.split()[1] == b"f" * 32
    assert vm.sh("grep -c 'this sandbox' /etc/hosts").stdout == b"1\n"


def test_freeze_and_thaw_in_the_same_epoch(vm):
    stream = vm.exec("sh", "-c", "i=0; while :; do echo $i; i=$((i+1)); done", id="counter")
    stream.wait(lambda: stream.sizes[p.STDOUT] > 10000)
    vm.freeze()
    size = stream.sizes[p.STDOUT]
    time.sleep(0.3)
    assert stream.sizes[p.STDOUT] == size
    vm.mark(vm.epoch)
    assert vm.request(p.PING, b"frozen") == b"frozen"
    assert vm.run("true").facts.error.code == "invalid_state"
    time.sleep(0.2)
    assert stream.sizes[p.STDOUT] == size
    vm.request(p.THAW)
    stream.wait(lambda: stream.sizes[p.STDOUT] > size + 100000)
    stream.signal(signal.SIGKILL, tree=True)
    stream.finish()
    numbers = stream.stdout.split()[:-1]
    assert numbers == [b"%d" % i for i in range(len(numbers))]


def test_new_epoch_resets_streams_and_keeps_processes(vm):
    stream = vm.exec("sh", "-c", "while :; do echo tick; sleep 0.02; done", id="survivor").opened()
    pid = stream.pid
    watch = vm.open(p.file_open(p.WATCH, "/etc"))
    watch.wait(lambda: watch.sizes[p.STDOUT] > 0)
    vm.freeze()
    vm.thaw(epoch=vm.epoch + 1)
    again = vm.attach("survivor").opened()
    assert again.pid == pid
    again.wait(lambda: again.sizes[p.STDOUT] > 50)
    again.signal(signal.SIGKILL)
    assert again.finish().signal == 9


def test_freeze_many_times_under_writes(vm):
    writer = vm.exec("sh", "-c", "while :; do dd if=/dev/zero of=/busy bs=64k count=20 2>/dev/null; done")
    for i in range(10):
        vm.freeze(barrier=100 + i)
        vm.thaw()
    writer.signal(signal.SIGKILL, tree=True)
    writer.finish()


def test_failed_freeze_leaves_everything_running(vm):
    """A file system that the guest froze itself cannot be frozen again."""
    stream = vm.exec("sh", "-c", "while :; do echo tick; sleep 0.02; done")
    stream.wait(lambda: stream.sizes[p.STDOUT] > 20)
    ident = vm.post(p.FREEZE, struct.pack("<II", 55, 0))
    vm.send_bulk(p.BARRIER, 0, 55)
    with pytest.raises(p.AgentError, match="timeout"):
        vm.answer(ident)
    size = stream.sizes[p.STDOUT]
    stream.wait(lambda: stream.sizes[p.STDOUT] > size + 20)
    vm.freeze()
    vm.thaw()
    stream.signal(signal.SIGKILL)
    stream.finish()


def test_timeout_that_passes_while_frozen(vm):
    stream = vm.exec("sleep", "1000", timeout_ms=500).opened()
    vm.freeze()
    time.sleep(1)
    vm.thaw()
    assert stream.finish().timed_out


def test_hostile_frames_end_the_epoch_only(vm):
    vm.exec("sleep", "1000", id="steady").opened()
    vm.bulk.send(b"\xff" * 1000)
    vm.mark(vm.epoch + 1)
    assert vm.request(p.PING, b"x") == b"x"
    vm.control.send(p.frame(p.REQUEST, 0, 1, b"") + b"\xee" * 100)
    vm.mark(vm.epoch + 1)
    again = vm.attach("steady").opened()
    again.signal(signal.SIGKILL)
    assert again.finish().signal == 9


def test_stdin_beyond_credit_resets_the_stream_only(vm):
    stream = vm.exec("sleep", "1000", stdin=True).opened()
    for _ in range(6):
        vm.send_bulk(p.DATA, p.STDIN, stream.ident, b"x" * p.MAX_PAYLOAD)
    stream.wait(lambda: stream.reset is not None)
    assert vm.run("true").facts.exit_code == 0


def test_out_of_memory_is_a_fact(vm):
    done = vm.sh("dd if=/dev/zero of=/dev/shm/fill bs=1M count=200; dd if=/dev/zero of=/dev/null bs=400M count=1; echo $?; rm /dev/shm/fill",
                 timeout=180)
    assert done.facts.oom_killed and not done.facts.timed_out and done.facts.exit_code == 0
    assert done.stdout == b"137\n"
    assert vm.run("true").facts.oom_killed is False
    assert p.Stats(vm.request(p.STATS)).oom_kills >= 1


def test_fork_bomb_is_bounded(own_vm):
    bomb = own_vm.exec("sh", "-c", "f() { f | f & }; f; sleep 3", timeout_ms=20000)
    time.sleep(3)
    assert own_vm.request(p.PING, b"x", timeout=30) == b"x"
    assert p.Stats(own_vm.request(p.STATS)).processes <= 16384
    bomb.signal(signal.SIGKILL, tree=True)
    bomb.finish(120)
    deadline = time.monotonic() + 120
    while own_vm.run("true", timeout=120).facts.error is not None:
        assert time.monotonic() < deadline


def test_kill_of_init_does_nothing_and_reboot_ends_the_sandbox(own_vm):
    assert own_vm.sh("kill -9 1; kill -TERM 1; sleep 0.2; echo alive").stdout == b"alive\n"
    own_vm.exec("reboot", "-f")
    kind, text = own_vm.events.get(timeout=30)
    assert kind == 1 and "reboot" in text
    assert own_vm.run("true").facts.error.code == "invalid_state"
    own_vm.request(p.SHUTDOWN, struct.pack("<iI", 15, 1000))
    assert own_vm.wait_end(30) == 0


def test_kernel_panic_ends_the_machine(own_vm):
    own_vm.exec("sh", "-c", "echo c > /proc/sysrq-trigger")
    assert own_vm.wait_end(60) == 0
    assert "sysrq" in own_vm.console_tail().lower()


def test_shutdown_tells_main_and_waits(own_vm):
    main = own_vm.exec("sh", "-c", "trap 'echo bye; sleep 0.3; echo data > /kept; exit 5' TERM; echo up; while :; do sleep 0.05; done", id="main")
    main.wait(lambda: b"up" in main.stdout)
    own_vm.request(p.SHUTDOWN, struct.pack("<iI", 15, 20000))
    assert own_vm.wait_end(30) == 0
    assert main.facts.exit_code == 5 and b"bye" in main.stdout


def test_shutdown_kills_after_the_grace(own_vm):
    main = own_vm.exec("sh", "-c", "trap '' TERM; echo up; while :; do sleep 0.05; done", id="main")
    main.wait(lambda: b"up" in main.stdout)
    begin = time.monotonic()
    own_vm.request(p.SHUTDOWN, struct.pack("<iI", 15, 500))
    assert own_vm.wait_end(30) == 0
    assert 0.4 < time.monotonic() - begin < 25
    assert main.facts.signal == 9


def test_name_files_are_written_in_place(vm):
    """They are mounted files: nothing can be renamed over them, so uploads write into them."""
    vm.set_up(hostname="named")
    assert vm.sh("for f in hostname hosts machine-id; do grep -c \" /etc/$f \" /proc/mounts; done").stdout == b"1\n1\n1\n"
    assert vm.sh("echo 192.0.2.1 mine >> /etc/hosts; mv /etc/hosts /etc/other").facts.exit_code != 0
    vm.set_up(hostname="renamed")
    hosts = vm.sh("cat /etc/hosts").stdout
    assert hosts.count(b"192.0.2.1 mine\n") == 1 and b"\trenamed " in hosts and b"named\t" not in hosts
    longer = b"# " + b"x" * 5000 + b"\n" + hosts
    vm.task(p.WRITE_FILE, "/etc/hosts", input=longer)
    assert vm.sh("cat /etc/hosts").stdout == longer
    vm.task(p.WRITE_FILE, "/etc/hosts", input=hosts)
    assert vm.sh("cat /etc/hosts").stdout == hosts


def test_a_killed_tree_has_ended_when_its_end_is_told(vm):
    script = "i=0; while [ $i -lt 300 ]; do sleep 1000 & i=$((i+1)); done; wait"
    assert vm.run("sh", "-c", script, timeout_ms=3000).facts.timed_out
    assert vm.sh("ps | grep -c '[s]leep 1000'").stdout == b"0\n"
