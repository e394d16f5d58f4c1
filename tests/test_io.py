"""Bytes in and out: exact, of any kind, of any amount."""

import os
import subprocess

from conftest import IMAGE


# OpenSandbox#902
def test_blank_lines(box):
    assert box.sh(r"printf 'a\n\nb\n\n\nc\n'").out == b"a\n\nb\n\n\nc\n"


# OpenSandbox#1444
def test_line_separators_of_unicode(box):
    assert box.sh(r"printf '\342\200\250x\302\205y'").out == "\u2028x\u0085y".encode()


# inspect_ai self_check: text made inside the guest.
def test_utf8_from_octal_escapes(box):
    assert box.exec("printf", r"caf\303\251 \360\237\230\200").out == "café 😀".encode()


# strands#1968
def test_one_long_line(box):
    assert box.sh("head -c 70000 /dev/zero | tr '\\0' q").out == b"q" * 70000


# sandlock#149
def test_much_on_stderr_while_stdout_is_open(box):
    result = box.sh("head -c 3000000 /dev/zero >&2; echo end")
    assert (result.out, len(result.err)) == (b"end\n", 3000000)


# microsandbox PR#706
def test_slow_reader_in_the_guest_gets_all(box):
    assert box.sh("sleep 1; wc -c", flags=("-i",), input=b"z" * (3 << 20)).text.strip() == str(3 << 20)


# inspect_ai self_check
def test_stdin_bytes_verbatim(box):
    for data in (b"", b"\0\1\2\0", b"$HOME `whoami` 'q' \"q\" \\", bytes(range(256)) * 100):
        assert box.exec("cat", flags=("-i",), input=data).out == data


# sandbox-sdk#602, daytona#4230
def test_heredoc(box):
    assert box.sh("cat > /tmp/h <<'EOF'\nline $x\nEOF\ncat /tmp/h; rm /tmp/h").out == b"line $x\n"
    assert box.exec("echo", "next").out == b"next\n"


def test_arguments_that_are_not_utf8(box):
    assert box.exec("printf", "%s", b"\xff\xfe\xc3\x28 '\"$").out == b"\xff\xfe\xc3\x28 '\"$"


def test_a_gibibyte_of_output(drupe, box, tmp_path):
    size = 1 << 30
    with drupe.popen("exec", box.name, "head", "-c", str(size), "/dev/zero", stdout=subprocess.PIPE) as process:
        total = 0
        peak = 0
        while chunk := process.stdout.read(1 << 20):
            total += len(chunk)
            # Not at its end, where the program may have gone.
            if total < size and total % (128 << 20) < (1 << 20):
                status = open(f"/proc/{process.pid}/status").read()
                peak = max(peak, int(status.split("VmRSS:")[1].split()[0]))
    assert (total, process.returncode) == (size, 0)
    assert 0 < peak < 64 * 1024, f"{peak} KiB"


def test_output_to_a_file_that_is_appended_to(drupe, box, tmp_path):
    target = tmp_path / "log"
    target.write_bytes(b"before\n")
    fd = os.open(target, os.O_WRONLY | os.O_APPEND)
    with drupe.popen("exec", box.name, "echo", "after", stdout=fd) as process:
        process.wait(timeout=60)
    os.close(fd)
    assert target.read_bytes() == b"before\nafter\n"


def test_full_disk_on_this_side_is_told(drupe, box):
    with open("/dev/full", "wb") as full:
        with drupe.popen("exec", box.name, "echo", "x", stdout=full) as process:
            assert process.wait(timeout=60) != 0


def test_stdin_from_a_file(drupe, box, tmp_path):
    source = tmp_path / "in"
    source.write_bytes(os.urandom(5 << 20))
    with open(source, "rb") as file:
        assert box.exec("cat", flags=("-i",), stdin=file).out == source.read_bytes()
