"""drupe run: what a person at a shell meets first."""

import base64
import json
import os
import pty
import secrets
import select
import signal
import subprocess
import time

import pytest

from conftest import IMAGE, eventually


def run_json(drupe, *args, **options):
    return json.loads(drupe("run", "--json", *args, code=None, **options).out)


def test_main_job(drupe):
    result = drupe("run", IMAGE, "python3", "-c", "print(6*7)")
    assert (result.out, result.err) == (b"42\n", b"")


def test_two_dashes_before_the_command(drupe):
    assert drupe("run", IMAGE, "--", "echo", "--", "-x").out == b"-- -x\n"


# CubeSandbox#362: stdout is the program's, byte for byte, the status does not leak into it.
def test_output_without_newline(drupe):
    result = drupe("run", IMAGE, "sh", "-c", "printf hello; printf world >&2; exit 3", code=3)
    assert (result.out, result.err) == (b"hello", b"world")


def test_sandbox_is_gone_after_a_foreground_run(drupe):
    drupe("run", "--name", "once-only", IMAGE, "true")
    eventually(lambda: drupe("inspect", "once-only", code=None).code == 1, what="removal")


def test_keep(drupe):
    drupe("run", "--keep", "--name", "kept-one", IMAGE, "sh", "-c", "echo kept > /root/file; exit 5", code=5)
    try:
        eventually(lambda: '"exited"' in drupe("ps", "-a", "--json").text, what="the end")
        assert drupe("wait", "kept-one").text == "5\n"
        assert drupe("start", "kept-one", code=None).code == 0
    finally:
        drupe("rm", "-f", "kept-one", code=None)


def test_environment_workdir_user_hostname(drupe, tmp_path):
    env_file = tmp_path / "env"
    env_file.write_text("# comment\nFROM_FILE=a b\nFROM_HERE\nOVERRIDDEN=file\n\n")
    script = 'echo "$FROM_FILE|$FROM_HERE|$OVERRIDDEN|$PWD|$(id -un)|$(hostname)|$EMPTY|"'
    result = drupe("run", "--env-file", env_file, "-e", "OVERRIDDEN=flag", "-e", "EMPTY=", "-w", "/var", "-u", "nobody", "--hostname", "thumper",
                   IMAGE, "sh", "-c", script, env={"FROM_HERE": "here"})
    assert result.text == "a b|here|flag|/var|nobody|thumper||\n"


def test_image_environment_is_kept(drupe):
    assert drupe("run", IMAGE, "sh", "-c", "echo $PYTHONUNBUFFERED").text == "1\n"


def test_entrypoint(drupe):
    assert drupe("run", "--entrypoint", "echo", IMAGE, "from", "entrypoint").text == "from entrypoint\n"


def test_json_object(drupe):
    report = run_json(drupe, IMAGE, "sh", "-c", "echo out; echo err >&2; exit 4")
    assert report["exit_code"] == 4
    assert report["signal"] is None
    assert (report["stdout"], report["stderr"]) == ("out\n", "err\n")
    for key in ("timed_out", "oom_killed", "vm_lost", "truncated"):
        assert report[key] is False, key
    assert report["isolation"] in ("hardware-virtualized", "emulated")
    assert report["timings"]["total"] > 0


def test_json_bytes_that_are_not_text(drupe):
    report = run_json(drupe, IMAGE, "printf", r"\377\376\303\050")
    assert report["stdout"] is None
    assert base64.b64decode(report["stdout_base64"]) == b"\xff\xfe\xc3\x28"


# inspect_ai#2828: the end is kept, and that something is missing is said.
def test_json_long_output_is_cut_and_says_so(drupe):
    report = run_json(drupe, IMAGE, "sh", "-c", "head -c 30000000 /dev/zero | tr '\\0' x; echo end")
    assert report["truncated"] is True
    assert len(report["stdout"]) == 10 * 1024 * 1024
    assert report["stdout"].endswith("xend\n")


# microsandbox#1549, OpenShell#828: stdin that nobody asked to forward is not waited for.
def test_run_does_not_read_stdin_without_i(drupe):
    sleeper = subprocess.Popen(["sleep", "1000"], stdout=subprocess.PIPE)
    try:
        assert drupe("run", IMAGE, "echo", "hi", stdin=sleeper.stdout, timeout=60).out == b"hi\n"
    finally:
        sleeper.kill()
        sleeper.wait()


def test_stdin_is_empty_without_i(drupe):
    assert drupe("run", IMAGE, "cat", input=b"not for you").out == b""


# inspect_k8s#244, gondolin#42, inspect_ai self_check.
def test_fifty_mib_of_stdin(drupe):
    assert drupe("run", "-i", IMAGE, "wc", "-c", input=b"x" * (50 << 20), timeout=240).out.strip() == b"52428800"


def test_stdin_to_a_command_that_does_not_read(drupe):
    assert drupe("run", "-i", IMAGE, "sh", "-c", "exit 6", input=b"y" * (1 << 20), code=6).code == 6


# inspect_ai#1979, #4108: a timeout keeps what was written before.
def test_timeout_keeps_output_and_kills_the_tree(drupe):
    result = drupe("run", "--timeout", "2", IMAGE, "sh", "-c", "echo a; sleep 60 & sleep 60", code=124, timeout=60)
    assert result.out == b"a\n"
    assert "timeout" in result.error


# ianvs#820: killed by our timeout is a timeout, not a lack of memory, also when it took SIGKILL.
def test_timeout_of_a_process_that_ignores_sigterm(drupe):
    report = run_json(drupe, "--timeout", "2", IMAGE, "sh", "-c", "trap '' TERM INT; echo a; while :; do sleep 1; done", timeout=60)
    assert (report["timed_out"], report["oom_killed"], report["stdout"]) == (True, False, "a\n")


def test_copy_in_and_out(drupe, tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "data").write_bytes(bytes(range(256)))
    drupe("run", "--copy-in", f"{tmp_path}/in:/work", "--copy-out", f"/work/result:{tmp_path}/result", IMAGE,
          "sh", "-c", "cat /work/data /work/data > /work/result")
    assert (tmp_path / "result").read_bytes() == bytes(range(256)) * 2


def test_ctrl_c_goes_to_the_command(drupe):
    # Not one long sleep: Python runs a handler after a sleep that the signal has come just before.
    script = ("import signal,time\nsignal.signal(signal.SIGINT, lambda *a: (print('caught', flush=True), exit(9)))\nprint('ready', flush=True)\n"
              "while True: time.sleep(0.1)")
    process = drupe.popen("run", IMAGE, "python3", "-c", script, stdout=subprocess.PIPE)
    try:
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=30)[0] == b"caught\n"
        assert process.returncode == 9
    finally:
        process.kill()


# OpenSandbox#793: SIGTERM is told to the command; the second one kills it.
def test_second_sigterm_kills(drupe):
    process = drupe.popen("run", IMAGE, "sh", "-c", "trap 'echo no' TERM; echo ready; while :; do sleep 0.1; done", stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGTERM)
    assert process.stdout.readline() == b"no\n"
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert process.returncode == 128 + signal.SIGKILL


def test_closed_stdout_ends_the_command(drupe):
    process = drupe.popen("run", IMAGE, "yes", stdout=subprocess.PIPE)
    assert process.stdout.read(4) == b"y\ny\n"
    process.stdout.close()
    assert process.wait(timeout=30) == 128 + signal.SIGPIPE


# E2B infra#2639: a reader that does not read holds the program back; memory stays flat.
def test_slow_reader_holds_the_guest_back(drupe):
    process = drupe.popen("run", IMAGE, "yes", stdout=subprocess.PIPE)
    try:
        process.stdout.read(2)
        time.sleep(5)
        status = open(f"/proc/{process.pid}/status").read()
        resident = int(status.split("VmRSS:")[1].split()[0])
        assert resident < 64 * 1024, f"{resident} KiB"
    finally:
        process.stdout.close()
        process.wait(timeout=30)


class Terminal:
    """drupe on a pseudo-terminal."""

    def __init__(self, drupe, *args, rows=30, columns=100):
        self.master, slave = pty.openpty()
        self.resize(rows, columns)
        self.process = drupe.popen(*args, stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
                                   preexec_fn=lambda: __import__("fcntl").ioctl(0, __import__("termios").TIOCSCTTY, 0))
        os.close(slave)
        self.seen = b""

    def resize(self, rows, columns):
        import fcntl
        import struct
        import termios

        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def until(self, wanted, seconds=40):
        deadline = time.monotonic() + seconds
        while wanted not in self.seen:
            left = deadline - time.monotonic()
            assert left > 0, self.seen
            if select.select([self.master], [], [], left)[0]:
                try:
                    data = os.read(self.master, 65536)
                except OSError:
                    data = b""
                assert data, self.seen
                self.seen += data
        before, _, self.seen = self.seen.partition(wanted)
        return before

    def type(self, data):
        os.write(self.master, data)

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.master)


@pytest.fixture
def terminal(drupe):
    opened = []

    def make(*args, **options):
        opened.append(Terminal(drupe, *args, **options))
        return opened[-1]

    yield make
    for one in opened:
        one.close()


# docker sbx-releases#63, OpenShell#543: a real size, a resize that arrives, a controlling terminal.
def test_terminal_size_resize_and_ctrl_c(terminal):
    screen = terminal("run", "-it", IMAGE, "bash", "--norc", "-i")
    screen.type(b"PS1='$ '; stty size; tty; echo rea''dy\n")
    assert b"30 100" in screen.until(b"ready\r\n")
    screen.resize(40, 120)
    screen.process.send_signal(signal.SIGWINCH)
    screen.type(b"sleep 0.5; stty size; echo aga''in\n")
    assert b"40 120" in screen.until(b"again\r\n")
    screen.type(b"echo sta''rt; sleep 100\n")
    screen.until(b"start\r\n")
    time.sleep(0.5)
    screen.type(b"\x03")
    screen.type(b"echo sta''tus $?\n")
    screen.until(b"status 130\r\n")
    screen.type(b"exit 7\n")
    assert screen.process.wait(timeout=30) == 7


# microsandbox#1230: characters split over writes.
def test_terminal_emoji_in_single_bytes(terminal):
    script = r"import sys,time" + "\nfor b in '😀é'.encode(): sys.stdout.buffer.write(bytes([b])); sys.stdout.buffer.flush(); time.sleep(0.01)\nprint('done')"
    screen = terminal("run", "-it", IMAGE, "python3", "-c", script)
    assert "😀é".encode() in screen.until(b"done")


def test_terminal_settings_are_given_back(drupe, terminal):
    import termios

    screen = terminal("run", "-it", IMAGE, "sh", "-c", "echo ready; sleep 100")
    before = termios.tcgetattr(screen.master)
    screen.until(b"ready")
    assert not termios.tcgetattr(screen.master)[3] & termios.ICANON
    screen.process.send_signal(signal.SIGTERM)
    screen.process.wait(timeout=30)
    assert termios.tcgetattr(screen.master)[3] == before[3] | termios.ICANON | termios.ECHO


def test_terminal_without_terminal_on_this_side(drupe):
    assert b"/dev/pts/" in drupe("run", "-t", IMAGE, "tty").out


def test_quiet_and_help(drupe):
    assert drupe("run", "--help").text.startswith("Usage: drupe run")
    assert drupe("--help").text
    assert drupe("run", "-q", IMAGE, "true").err == b""


def test_version(drupe):
    assert drupe("version").text.startswith("drupe ")
    assert json.loads(drupe("version", "--json").out)["version"]


def test_name_is_free_when_run_has_ended(drupe):
    name = f"same-{secrets.token_hex(4)}"
    for number in range(8):
        assert drupe("run", "--name", name, IMAGE, "echo", str(number)).text == f"{number}\n"
        assert name not in drupe("ps", "-a").text


def test_kept_sandbox_has_ended_when_run_has(drupe):
    name = f"kept-{secrets.token_hex(4)}"
    for _ in range(3):
        drupe("run", "--keep", "--name", name, IMAGE, "true")
        assert json.loads(drupe("inspect", name).out)[0]["record"]["state"] == "exited"
        drupe("rm", name)


def test_failed_copy_out_keeps_the_outcome(drupe, tmp_path):
    told = drupe("run", "--json", "--copy-out", f"/nothing:{tmp_path}/x", IMAGE, "sh", "-c", "echo out; exit 3", code=3)
    facts = json.loads(told.out)
    assert (facts["exit_code"], facts["stdout"], facts["error"]["code"]) == (3, "out\n", "not_found"), facts
    assert "/nothing" in told.error
    assert drupe("run", "--copy-out", f"/nothing:{tmp_path}/x", IMAGE, "true", code=125).out == b""


def test_copies_that_cannot_be_are_refused_before_the_run(drupe, tmp_path):
    target = f"{tmp_path}/missing/folder/x"
    refused = drupe("run", "--copy-out", f"/etc/passwd:{target}", IMAGE, "sh", "-c", "echo ran", code=125)
    assert refused.out == b"" and "missing/folder" in refused.error
    refused = drupe("run", "--copy-in", f"{tmp_path}/none:/x", IMAGE, "sh", "-c", "echo ran", code=125)
    assert refused.out == b"" and "none" in refused.error


# A shell that changes the terminal's mode loses the first end-of-file character.
def test_terminal_whose_input_ends(drupe, box):
    assert "6" in drupe("exec", "-it", box.name, "bash", input=b"echo $((2*3))\n", timeout=60).text
    drupe("exec", "-it", box.name, "bash", input=b"", code=None, timeout=60)


def test_unknown_image_names_its_recipe(drupe, tmp_path):
    from conftest import Drupe, remember_home

    empty = Drupe(tmp_path / "home")
    remember_home(empty.home)
    refused = empty("run", "--pull", "missing", "devbox:1", "true", code=125)
    assert "devbox:1" in refused.error and "image build-debian devbox:1" in refused.error


def test_a_detached_command_that_cannot_start_is_told(drupe):
    """docker run -d says it as well; the sandbox stays, ended, until it is removed."""
    try:
        ran = drupe("run", "-d", "--name", "never-started", IMAGE, "no-such-program", code=127)
        assert ran.out == b"" and "was not found" in ran.error
    finally:
        drupe("rm", "-f", "never-started")
    assert drupe("run", "-d", "--rm", IMAGE, "/etc/hostname", code=126).out == b""


def test_ending_a_client_with_a_terminal_ends_it(drupe):
    """A shell at a terminal ignores SIGTERM: the signal ends the client and with it the sandbox."""
    main, worker = pty.openpty()
    client = drupe.popen("run", "-it", "--name", "ended-by-term", IMAGE, "sh", "-c", "trap '' TERM; echo up; cat",
                         stdin=worker, stdout=worker, stderr=worker)
    os.close(worker)
    seen = b""
    while b"up" not in seen:
        seen += os.read(main, 1024)
    client.terminate()
    assert client.wait(timeout=60) == 128 + signal.SIGTERM
    os.close(main)
    assert "ended-by-term" not in drupe("ps", "-a").text
