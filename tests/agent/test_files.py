"""File operations, trees, watch, tunnel."""
import hashlib
import io
import os
import tarfile
import time

import pytest

import protocol as p


def stat(vm, path, **options):
    return p.Stat(vm.task(p.STAT, path, **options).facts.result)


def test_bytes_come_back(vm):
    raw = bytes(range(256)) + b"\xff\xfe"
    done = p.Stat(vm.task(p.WRITE_FILE, "/f/with space/x", input=raw, parents=True, mode=0o751).facts.result)
    assert (done.size, done.mode, done.uid) == (len(raw), 0o751, 0)
    assert vm.task(p.READ_FILE, "/f/with space/x").stdout == raw
    assert vm.task(p.READ_FILE, "/f/with space/x", offset=1, length=3).stdout == raw[1:4]
    assert vm.task(p.READ_FILE, "/f/with space/x", offset=10000).stdout == b""
    vm.task(p.WRITE_FILE, "/f/empty", input=b"")
    assert vm.task(p.READ_FILE, "/f/empty").stdout == b""
    vm.task(p.WRITE_FILE, b"/f/\xff\xfe", input=b"x")
    assert b"/f/\xff\xfe" in vm.sh("printf '%s\\n' /f/*").stdout.split(b"\n")


def test_large_files(vm):
    raw = os.urandom(1 << 20) * 30
    vm.task(p.WRITE_FILE, "/f/large", input=raw, parents=True)
    assert vm.sh("sha256sum < /f/large").stdout.split()[0].decode() == hashlib.sha256(raw).hexdigest()
    assert hashlib.sha256(vm.task(p.READ_FILE, "/f/large").stdout).digest() == hashlib.sha256(raw).digest()
    vm.sh("rm /f/large")


def test_append_and_ranges(vm):
    vm.task(p.WRITE_FILE, "/f/a", input=b"0123456789", parents=True)
    vm.task(p.WRITE_FILE, "/f/a", input=b"ab", append=True)
    vm.task(p.WRITE_FILE, "/f/a", input=b"XY", ranged=True, offset=2)
    assert vm.task(p.READ_FILE, "/f/a").stdout == b"01XY456789ab"


def test_uploaded_program_runs_at_once_and_replaced_while_it_runs(vm):
    script = b"#!/bin/sh\necho one; sleep 0.5; echo two\n"
    vm.task(p.WRITE_FILE, "/f/run", input=script, mode=0o755, parents=True)
    running = vm.exec("/f/run")
    running.wait(lambda: b"one" in running.stdout)
    vm.task(p.WRITE_FILE, "/f/run", input=b"#!/bin/sh\necho new\n")
    assert running.finish().exit_code == 0 and running.stdout == b"one\ntwo\n"
    assert vm.run("/f/run").stdout == b"new\n"


def test_an_interrupted_upload_leaves_nothing(vm):
    vm.task(p.WRITE_FILE, "/f/up/kept", input=b"old", parents=True)
    stream = vm.open(p.file_open(p.WRITE_FILE, "/f/up/kept")).opened()
    stream.write(b"x" * 300000)
    stream.send_reset()
    deadline = time.monotonic() + 20
    while p.Stats(vm.request(p.STATS)).processes > 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    assert vm.sh("ls -A /f/up").stdout == b"kept\n"
    assert vm.task(p.READ_FILE, "/f/up/kept").stdout == b"old"


@pytest.mark.parametrize("kind,path,options,code,errno", [
    (p.READ_FILE, "https:/en.wikipedia.org/wiki", {}, "not_found", 2),
    (p.READ_FILE, "/etc", {}, "invalid_argument", 21),
    (p.READ_FILE, "/etc/passwd/x", {}, "invalid_argument", 20),
    (p.READ_FILE, "/dev/null", {}, "invalid_argument", 0),
    (p.READ_FILE, "/etc/secret", {"user": "app"}, "permission_denied", 13),
    (p.WRITE_FILE, "/etc", {"input": b""}, "invalid_argument", 21),
    (p.WRITE_FILE, "/" + "n" * 256, {"input": b""}, "invalid_argument", 36),
    (p.WRITE_FILE, "/no/parent", {"input": b""}, "not_found", 2),
    (p.WRITE_FILE, "/etc/passwd", {"input": b"", "exclusive": True}, "already_exists", 17),
    (p.WRITE_FILE, "/etc/new", {"input": b"", "user": "app"}, "permission_denied", 13),
    (p.STAT, "/" + "d/" * 2500, {}, "invalid_argument", 36),
    (p.MKDIR, "/etc", {}, "already_exists", 17),
    (p.REMOVE, "/", {"recursive": True}, "invalid_argument", 0),
    (p.REMOVE, "/etc/..", {"recursive": True}, "invalid_argument", 0),
    (p.REMOVE, "/etc/.", {"recursive": True}, "invalid_argument", 0),
    (p.REMOVE, "/nothing", {}, "not_found", 2),
    (p.REMOVE, "/etc", {}, "invalid_argument", 39),
    (p.RENAME, "/etc/passwd", {"target": "/etc/group", "exclusive": True}, "already_exists", 17),
    (p.LIST, "/etc/passwd", {}, "invalid_argument", 20),
    (p.TAR_IN, "/nothing", {"input": b""}, "not_found", 2),
    (p.STAT, "", {}, "invalid_argument", 0),
])
def test_errors_are_typed(vm, kind, path, options, code, errno):
    vm.sh("echo s > /etc/secret; chmod 600 /etc/secret")
    with pytest.raises(p.AgentError) as caught:
        vm.task(kind, path, **options)
    assert (caught.value.code, caught.value.errno) == (code, errno)


def test_name_of_255_bytes(vm):
    vm.task(p.WRITE_FILE, "/f/" + "n" * 255, input=b"x", parents=True)
    assert stat(vm, "/f/" + "n" * 255).size == 1


def test_links_are_followed_at_the_end(vm):
    vm.task(p.MKDIR, "/f/l/real", parents=True)
    vm.task(p.SYMLINK, "/f/l/link", target="real/file")
    vm.task(p.WRITE_FILE, "/f/l/link", input=b"through")
    assert vm.task(p.READ_FILE, "/f/l/real/file").stdout == b"through"
    assert stat(vm, "/f/l/link", no_follow=True).link_target == b"real/file"
    with pytest.raises(p.AgentError) as caught:
        vm.task(p.WRITE_FILE, "/f/l/link", input=b"x", no_follow=True)
    assert caught.value.errno == 40
    vm.task(p.SYMLINK, "/f/l/loop", target="loop")
    with pytest.raises(p.AgentError) as caught:
        vm.task(p.WRITE_FILE, "/f/l/loop", input=b"x")
    assert caught.value.errno == 40


def test_special_files_are_written_in_place(vm):
    vm.task(p.WRITE_FILE, "/dev/null", input=b"gone")
    vm.task(p.WRITE_FILE, "/proc/sys/kernel/domainname", input=b"example")
    assert vm.task(p.READ_FILE, "/proc/sys/kernel/domainname").stdout == b"example\n"


def test_sparse_files_report_both_sizes(vm):
    vm.sh("mkdir -p /f; truncate -s 100G /f/holes")
    found = stat(vm, "/f/holes")
    assert found.size == 100 << 30 and found.allocated == 0


def test_modes_owners_and_trees(vm):
    vm.sh("mkdir -p /f/t/a/b; touch /f/t/a/b/c; ln -s /etc/passwd /f/t/out")
    vm.task(p.CHMOD, "/f/t", mode=0o700, recursive=True)
    vm.task(p.CHOWN, "/f/t", uid=1000, gid=1001, recursive=True)
    assert vm.sh("stat -c '%a %u %g' /f/t/a/b/c /etc/passwd").stdout == b"700 1000 1001\n644 0 0\n"
    vm.task(p.RENAME, "/f/t", target="/f/new/t2", parents=True)
    vm.task(p.REMOVE, "/f/new", recursive=True)
    assert vm.sh("ls /f/new 2>/dev/null; wc -l < /etc/passwd").stdout == b"2\n"


def test_list_and_walk(vm):
    vm.sh("mkdir -p /w/src/deep /w/build; echo hello > /w/src/a.c; echo obj > /w/src/a.o; echo x > /w/build/y; ln -s a.c /w/src/l; "
          "chmod 000 /w/src/a.o; mkfifo /w/src/pipe")
    names = {p.Stat(body).name: p.Stat(body).type for kind, body in p.records(vm.task(p.LIST, "/w/src").stdout)}
    assert names == {b"deep": "d", b"a.c": "f", b"a.o": "f", b"l": "l", b"pipe": "p"}
    seen, contents = [], {}
    for kind, body in p.records(vm.task(p.WALK, "/w", ignore=["build/", "*.o"], contents=True, length=3).stdout):
        if kind == p.ENTRY:
            seen.append(p.Stat(body).name)
        elif kind == p.CONTENT:
            contents[seen[-1]] = body
        else:
            assert kind == p.CONTENT_END and body == b"\x01"
    assert sorted(seen) == [b"src", b"src/a.c", b"src/deep", b"src/l", b"src/pipe"]
    assert contents == {b"src/a.c": b"hel"}
    assert not [body for kind, body in p.records(vm.task(p.WALK, "/", ignore=["w", "f", "bin"]).stdout)
                if kind == p.ENTRY and p.Stat(body).name.startswith(b"proc/")]


def test_a_directory_of_many_entries(vm):
    vm.sh("mkdir /many; cd /many; seq 20000 | xargs touch", timeout=120)
    assert len(list(p.records(vm.task(p.LIST, "/many").stdout))) == 20000
    vm.task(p.REMOVE, "/many", recursive=True)


def test_trees_as_tar(vm):
    vm.sh("mkdir -p /t/in/d; cd /t/in; echo one > d/one; ln d/one two; ln -s d/one three; mkfifo p; chmod 4751 d/one; "
          "truncate -s 10M sparse; echo end >> sparse; touch -d '2001-02-03 04:05:06' d/one d; chown 1000:1001 two; mkdir " + "n" * 200)
    raw = vm.task(p.TAR_OUT, "/t/in").stdout
    listed = {one.name: one for one in tarfile.open(fileobj=io.BytesIO(raw))}
    assert listed["in/d"].isdir() and listed["in/three"].linkname == "d/one" and listed["in/" + "n" * 200].isdir()
    assert listed["in/sparse"].issparse() and listed["in/sparse"].size == (10 << 20) + 4
    assert len(raw) < 1 << 20
    vm.task(p.MKDIR, "/t/back")
    vm.task(p.TAR_IN, "/t/back", input=raw)
    facts = "cd %s; find . ! -name sparse | sort | xargs stat -c '%%n %%a %%u %%g %%h %%F %%Y'; stat -c '%%s %%b' sparse; md5sum sparse"
    assert vm.sh(facts % "/t/back/in").stdout == vm.sh(facts % "/t/in").stdout


def hostile(entries):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, kind, link in entries:
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, link
            archive.addfile(info)
    return out.getvalue()


@pytest.mark.parametrize("entries", [
    [("../evil", tarfile.REGTYPE, "")],
    [("a/../../evil", tarfile.REGTYPE, "")],
    [("out", tarfile.SYMTYPE, "/"), ("out/evil", tarfile.REGTYPE, "")],
    [("out", tarfile.SYMTYPE, "../.."), ("out/evil", tarfile.REGTYPE, "")],
    [("hard", tarfile.LNKTYPE, "../../etc/passwd")],
    [("up", tarfile.SYMTYPE, "../../etc"), ("hard", tarfile.LNKTYPE, "up/passwd")],
])
def test_archives_stay_where_they_are_unpacked(vm, entries):
    vm.sh("rm -rf /x; mkdir -p /x/y")
    with pytest.raises(p.AgentError):
        vm.task(p.TAR_IN, "/x/y", input=hostile(entries))
    assert vm.sh("ls -A /x; ls /evil 2>/dev/null").stdout == b"y\n"


def test_archive_with_absolute_names_and_damage(vm):
    vm.sh("rm -rf /x; mkdir -p /x/y")
    vm.task(p.TAR_IN, "/x/y", input=hostile([("/abs", tarfile.REGTYPE, "")]))
    assert vm.sh("ls /x/y").stdout == b"abs\n"
    with pytest.raises(p.AgentError, match="integrity"):
        vm.task(p.TAR_IN, "/x/y", input=b"garbage" * 100)


def test_watch(vm):
    vm.sh("mkdir -p /watch/sub")
    stream = vm.open(p.file_open(p.WATCH, "/watch", recursive=True))
    stream.wait(lambda: stream.sizes[p.STDOUT] > 0)
    vm.sh("echo x > /watch/sub/f; mv /watch/sub/f /watch/g; rm /watch/g")
    stream.wait(lambda: b"g" in stream.stdout[-30:] and stream.stdout.count(b"d\0") >= 1)
    kinds = [(chr(body[0]), body[10:]) for kind, body in p.records(stream.stdout) if kind == p.CHANGE]
    assert ("c", b"sub/f") in kinds and ("m", b"sub/f") in kinds
    assert ("f", b"sub/f") in kinds and ("t", b"g") in kinds and ("d", b"g") in kinds
    stream.send_reset()


def test_tunnel(vm):
    server = vm.exec("nc", "-l", "-p", "4321", "-e", "cat").opened()
    deadline = time.monotonic() + 30
    while b":10E1" not in vm.sh("cat /proc/net/tcp /proc/net/tcp6").stdout and time.monotonic() < deadline:
        time.sleep(0.05)
    raw = os.urandom(1 << 20)
    tunnel = vm.open(p.file_open(p.TUNNEL, port=4321))
    tunnel.write(raw, eof=True)
    assert tunnel.finish().error is None
    assert tunnel.stdout == raw
    server.finish()
    with pytest.raises(p.AgentError, match="unavailable"):
        vm.task(p.TUNNEL, port=4321)
