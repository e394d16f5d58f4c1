"""Files in and out: drupe cp, and what the sandbox sent that must not be believed."""

import hashlib
import io
import os
import stat
import subprocess
import tarfile

import pytest


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


# sandbox-sdk#730, smol#93: every byte survives both ways.
def test_round_trip_of_bytes(drupe, box, tmp_path):
    source = tmp_path / "bytes"
    source.write_bytes(bytes(range(256)) * 4096 + b"\xff\xfe\xc3\x28")
    drupe("cp", source, f"{box.name}:/tmp/bytes")
    assert box.exec("sha256sum", "/tmp/bytes").text.split()[0] == digest(source)
    drupe("cp", f"{box.name}:/tmp/bytes", tmp_path / "back")
    assert digest(tmp_path / "back") == digest(source)


# vercel sandbox#91, OpenSandbox#895: the mode is kept and the file is there at once.
def test_mode_is_kept_and_it_runs_at_once(drupe, box, tmp_path):
    script = tmp_path / "hello"
    script.write_text("#!/bin/sh\necho hello\n")
    script.chmod(0o755)
    for number in range(5):
        drupe("cp", script, f"{box.name}:/tmp/run{number}")
        assert box.exec(f"/tmp/run{number}").out == b"hello\n"


def test_times_links_and_holes_both_ways(drupe, box, tmp_path):
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "file with space").write_text("x")
    os.utime(tree / "file with space", (1_500_000_000, 1_500_000_000))
    os.symlink("../../etc/passwd", tree / "link")
    os.link(tree / "file with space", tree / "same")
    with open(tree / "sparse", "wb") as file:
        file.seek(200 << 20)
        file.write(b"end")
    drupe("cp", tree, f"{box.name}:/tmp/tree")
    listing = box.sh("cd /tmp/tree && stat -c '%n %Y %h' 'file with space' && readlink link && stat -c '%s %b' sparse").text.split("\n")
    assert listing[0] == "file with space 1500000000 2"
    assert listing[1] == "../../etc/passwd"
    size, blocks = map(int, listing[2].split())
    assert size == (200 << 20) + 3 and blocks * 512 < 1 << 20
    drupe("cp", f"{box.name}:/tmp/tree", tmp_path / "back")
    assert int((tmp_path / "back" / "file with space").stat().st_mtime) == 1_500_000_000
    assert os.readlink(tmp_path / "back" / "link") == "../../etc/passwd"
    assert (tmp_path / "back" / "same").stat().st_ino == (tmp_path / "back" / "file with space").stat().st_ino
    sparse = (tmp_path / "back" / "sparse").stat()
    assert sparse.st_size == (200 << 20) + 3 and sparse.st_blocks * 512 < 1 << 20


class TestDockersRules:
    """docker cp's table, both directions."""

    def test_file_to_new_name_into_folder_and_over_a_file(self, drupe, box, tmp_path):
        (tmp_path / "f").write_text("one")
        box.sh("rm -rf /tmp/rules; mkdir -p /tmp/rules/dir; echo old > /tmp/rules/old")
        drupe("cp", tmp_path / "f", f"{box.name}:/tmp/rules/new")
        drupe("cp", tmp_path / "f", f"{box.name}:/tmp/rules/dir")
        drupe("cp", tmp_path / "f", f"{box.name}:/tmp/rules/old")
        assert box.sh("cd /tmp/rules; cat new dir/f old").text == "oneoneone"
        assert "no folder" in drupe("cp", tmp_path / "f", f"{box.name}:/tmp/rules/missing/", code=1).error
        drupe("cp", tmp_path / "f", f"{box.name}:/tmp/rules/missing/deep", code=1)

    def test_folder_to_new_name_into_folder_and_contents(self, drupe, box, tmp_path):
        (tmp_path / "d").mkdir()
        (tmp_path / "d" / "x").write_text("x")
        box.sh("rm -rf /tmp/rules; mkdir -p /tmp/rules/there /tmp/rules/flat; touch /tmp/rules/file")
        drupe("cp", tmp_path / "d", f"{box.name}:/tmp/rules/new")
        drupe("cp", tmp_path / "d", f"{box.name}:/tmp/rules/there")
        drupe("cp", f"{tmp_path}/d/.", f"{box.name}:/tmp/rules/flat")
        assert box.sh("cd /tmp/rules; ls new there/d flat").text.split() == ["flat:", "x", "new:", "x", "there/d:", "x"]
        drupe("cp", tmp_path / "d", f"{box.name}:/tmp/rules/file", code=1)

    def test_out(self, drupe, box, tmp_path):
        box.sh("rm -rf /tmp/rules; mkdir -p /tmp/rules/d; echo x > /tmp/rules/d/x")
        (tmp_path / "there").mkdir()
        drupe("cp", f"{box.name}:/tmp/rules/d", tmp_path / "new")
        drupe("cp", f"{box.name}:/tmp/rules/d", tmp_path / "there")
        drupe("cp", f"{box.name}:/tmp/rules/d/.", tmp_path / "there")
        drupe("cp", f"{box.name}:tmp/rules/d/x", tmp_path / "file")
        assert (tmp_path / "new" / "x").read_text() == "x\n"
        assert (tmp_path / "there" / "d" / "x").read_text() == "x\n"
        assert (tmp_path / "there" / "x").read_text() == "x\n"
        assert (tmp_path / "file").read_text() == "x\n"

    def test_neither_or_both_sides_in_a_sandbox(self, drupe, box, tmp_path):
        assert drupe("cp", tmp_path, tmp_path, code=125).error
        assert drupe("cp", f"{box.name}:/a", f"{box.name}:/b", code=125).error


def test_tar_on_stdin_and_stdout(drupe, box):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        info = tarfile.TarInfo("in/file")
        info.size, info.mode, info.uid = 3, 0o640, 1234
        tar.addfile(info, io.BytesIO(b"abc"))
    box.sh("rm -rf /tmp/tar; mkdir /tmp/tar")
    drupe("cp", "-", f"{box.name}:/tmp/tar", input=buffer.getvalue())
    assert box.sh("cd /tmp/tar; cat in/file; stat -c ' %a' in/file").text == "abc 640\n"
    out = drupe("cp", f"{box.name}:/tmp/tar/in", "-").out
    with tarfile.open(fileobj=io.BytesIO(out)) as tar:
        assert [member.name for member in tar.getmembers()] == ["in", "in/file"]
        assert tar.extractfile("in/file").read() == b"abc"


def test_gnu_tar_reads_and_writes_the_same_streams(drupe, box, tmp_path):
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / ("long" * 40)).write_text("long")
    with open(tmp_path / "t" / "holes", "wb") as file:
        file.truncate(64 << 20)
    stream = subprocess.run(["tar", "--sparse", "-C", tmp_path, "-c", "t"], check=True, capture_output=True).stdout
    box.sh("rm -rf /tmp/gnu; mkdir /tmp/gnu")
    drupe("cp", "-", f"{box.name}:/tmp/gnu", input=stream)
    assert box.sh("cd /tmp/gnu/t; cat long*; stat -c ' %s' holes").text == "long 67108864\n"
    back = drupe("cp", f"{box.name}:/tmp/gnu/t", "-").out
    (tmp_path / "out").mkdir()
    subprocess.run(["tar", "-C", tmp_path / "out", "-x"], input=back, check=True)
    assert (tmp_path / "out" / "t" / ("long" * 40)).read_text() == "long"


# vercel: a missing file is an error of its own, not content.
def test_missing_source(drupe, box, tmp_path):
    result = drupe("cp", f"{box.name}:/no/such", tmp_path / "x", code=1)
    assert "/no/such" in result.error and not (tmp_path / "x").exists()
    drupe("cp", tmp_path / "nothing", f"{box.name}:/tmp/x", code=1)


# inspect_ai self_check: a nonsense name
def test_nonsense_name(drupe, box, tmp_path):
    assert "no" in drupe("cp", f"{box.name}:https:/en.wikipedia.org/wiki/x", tmp_path / "x", code=1).error.lower()


# exec-sandbox: names at and over the limit
def test_long_names(drupe, box, tmp_path):
    (tmp_path / "f").write_text("x")
    drupe("cp", tmp_path / "f", f"{box.name}:/tmp/{'n' * 255}")
    result = drupe("cp", tmp_path / "f", f"{box.name}:/tmp/{'n' * 256}", code=1)
    assert "too long" in result.error.lower()


# docker cp CVE-2018-15664, microsandbox GHSA-4vq3, kata 3dba12c: swapping a file for a link while it is copied out.
def test_links_of_the_sandbox_are_not_followed_on_this_side(drupe, box, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("host")
    target = tmp_path / "target"
    target.mkdir()
    os.symlink("../", target / "sub")
    box.sh("rm -rf /tmp/evil; mkdir -p /tmp/evil/sub; echo guest > /tmp/evil/sub/secret")
    result = drupe("cp", f"{box.name}:/tmp/evil/.", target, code=1)
    assert "refused" in result.error
    assert secret.read_text() == "host"
    # A link as the target's file is replaced, not written through.
    (tmp_path / "t2").mkdir()
    os.symlink("../secret", tmp_path / "t2" / "secret")
    drupe("cp", f"{box.name}:/tmp/evil/sub/secret", tmp_path / "t2")
    assert secret.read_text() == "host"
    assert (tmp_path / "t2" / "secret").read_text() == "guest\n"


def test_set_id_bits_and_devices_do_not_arrive(drupe, box, tmp_path):
    box.sh("rm -rf /tmp/bits; mkdir /tmp/bits; cp /bin/true /tmp/bits/su; chmod 6755 /tmp/bits/su; mknod /tmp/bits/null c 1 3")
    drupe("cp", f"{box.name}:/tmp/bits", tmp_path / "bits")
    assert stat.S_IMODE((tmp_path / "bits" / "su").stat().st_mode) == 0o755
    assert not (tmp_path / "bits" / "null").exists()


# boxlite#187: a link in the target path is resolved as the sandbox sees it, never here.
def test_links_in_the_sandbox_are_the_sandboxs(drupe, box, tmp_path):
    (tmp_path / "f").write_text("through")
    box.sh("rm -rf /tmp/real /tmp/alias; mkdir /tmp/real; ln -s /tmp/real /tmp/alias")
    drupe("cp", tmp_path / "f", f"{box.name}:/tmp/alias/f")
    assert box.exec("cat", "/tmp/real/f").text == "through"
    drupe("cp", f"{box.name}:/tmp/alias/f", tmp_path / "back")
    assert (tmp_path / "back").read_text() == "through"


# exec-sandbox: 1 TiB that is not there
def test_huge_sparse_file(drupe, box, tmp_path):
    box.sh("truncate -s 1T /tmp/huge")
    assert box.sh("stat -c '%s %b' /tmp/huge").text.split() == [str(1 << 40), "0"]
    drupe("cp", f"{box.name}:/tmp/huge", tmp_path / "huge", timeout=60)
    copied = (tmp_path / "huge").stat()
    assert copied.st_size == 1 << 40 and copied.st_blocks == 0
    box.exec("rm", "/tmp/huge")


# microsandbox#1133: a folder of many entries
def test_many_entries(drupe, box, tmp_path):
    box.sh("mkdir /tmp/many; cd /tmp/many; seq 5000 | xargs touch", timeout=120)
    drupe("cp", f"{box.name}:/tmp/many", tmp_path / "many", timeout=120)
    assert len(list((tmp_path / "many").iterdir())) == 5000
    box.exec("rm", "-r", "/tmp/many")


def test_interrupted_copy_leaves_the_sandbox_usable(drupe, box, tmp_path):
    with open(tmp_path / "big", "wb") as file:
        for _ in range(64):
            file.write(os.urandom(1 << 20))
    process = drupe.popen("cp", tmp_path / "big", f"{box.name}:/tmp/big")
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(timeout=0.5)
    process.kill()
    process.wait()
    assert box.exec("echo", "fine").out == b"fine\n"
    assert box.sh("rm -f /tmp/big*; ls /tmp | grep -c big; true").text.strip() == "0"


def test_a_mounted_file_is_copied_over(drupe, box, tmp_path):
    """/etc/hosts is a mount of its own in a sandbox: it takes a new content, never a new file."""
    for text in (b"127.0.0.1 localhost\n192.0.2.7 longer.example.com\n", b"127.0.0.1 localhost\n"):
        source = tmp_path / "hosts"
        source.write_bytes(text)
        drupe("cp", source, f"{box.name}:/etc/hosts")
        assert box.sh("cat /etc/hosts").out == text
        assert box.sh("grep -c ' /etc/hosts ' /proc/mounts").text == "1\n"
