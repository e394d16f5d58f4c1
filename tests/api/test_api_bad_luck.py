"""Clients that are slow, silent or many, and operations that cross each other."""

import contextlib
import re
import resource
import secrets
import select
import socket
import sqlite3
import subprocess
import time
from pathlib import Path

import pytest

from druped import PROGRAM, ROOT, SHAPE, Api, eventually, in_thread


@contextlib.contextmanager
def connections(port, count):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, count + 512)), hard))
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60)) for _ in range(count)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_thousand_idle_connections(druped, api):
    """Kept alive after a request each; they cost little, delay nobody, and serve again."""
    request = f"GET /v1/whoami HTTP/1.1\r\nHost: x\r\nX-Api-Key: {api.key}\r\n\r\n".encode()

    def serve(link):
        link.sendall(request)
        answer = b""
        while not answer.endswith(b"}}}"):
            answer += link.recv(4096)
        assert answer.startswith(b"HTTP/1.1 200 OK\r\n")

    serve_first = druped.memory_kib()
    with connections(druped.port, 1000) as links:
        for link in links:
            serve(link)
        # Memory that a thousand requests at once would need is not kept for connections that wait.
        assert druped.memory_kib() - serve_first < 32_000
        assert api("GET", "/v1/whoami").status == 200
        for link in links[::50]:
            serve(link)


def test_slow_and_half_open_clients_are_left(druped, api):
    """A head that does not come to its end is given up, whatever comes of it; others are served meanwhile."""
    with connections(druped.port, 300) as links:
        for link in links:
            link.sendall(b"GET /healthz HTTP/1.1\r\nX-Slow: ")
        waiting = {link.fileno(): link for link in links}
        deadline = time.monotonic() + 40
        while waiting and time.monotonic() < deadline:
            assert api("GET", "/healthz").status == 200
            for link in list(waiting.values())[:20]:
                with contextlib.suppress(OSError):
                    link.send(b"x")
            for fd in select.select(list(waiting), [], [], 1)[0]:
                with contextlib.suppress(ConnectionResetError):
                    assert waiting[fd].recv(4096) == b""
                del waiting[fd]
        assert not waiting, f"{len(waiting)} are still open"


def test_destroy_during_create(api):
    name = f"crossed-{secrets.token_hex(4)}"
    create = in_thread(api, "POST", "/v1/sandboxes", {"shape": SHAPE, "name": name})

    def row():
        rows = [row for row in api("GET", "/v1/sandboxes").data["data"] if row["name"] == name]
        return rows and rows[0]

    found = eventually(row, what="the row")
    ended = [in_thread(api, "DELETE", f"/v1/sandboxes/{found['id']}") for _ in range(2)]
    assert all(answer().data["status"] == "destroyed" for answer in ended)
    assert create().status == 200
    assert api.state(found["id"]) == "destroyed"
    again = api.create(name=name)
    assert api("DELETE", f"/v1/sandboxes/{again['id']}").data["status"] == "destroyed"


STEPS = re.findall(r'R"sql\((.*?)\)sql"', (ROOT / "src/api/store/migrations.cpp").read_text(), flags=re.S)


def snapshot(path):
    with contextlib.closing(sqlite3.connect(path)) as database:
        version = database.execute("PRAGMA user_version").fetchone()[0]
        return version, {table: database.execute(f"SELECT * FROM {table}").fetchall() for table in ("users", "keys", "sandboxes")}


@pytest.mark.parametrize("version", range(len(STEPS)))
def test_the_store_of_every_earlier_version_is_taken_over(drupe, tmp_path, version):
    home = tmp_path / "home"
    for place in (home, home / "api"):
        place.mkdir(mode=0o700)
    (home / "VERSION").write_bytes((drupe.home / "VERSION").read_bytes())
    path = home / "api" / "accounts.db"
    with contextlib.closing(sqlite3.connect(path)) as database:
        for step in STEPS[:version]:
            database.executescript(step)
        database.execute(f"PRAGMA user_version = {version}")
        if version > 0:
            database.execute("INSERT INTO users VALUES ('usr_1', 'alice', 0)")
            database.execute("INSERT INTO keys VALUES ('key_1', 'usr_1', 'hash', 'skp_ab...cd', 5, NULL)")
            database.execute("INSERT INTO sandboxes (id, engine_id, owner, name, phase, shape, rootfs, vcpu, mem_mib, disk_mib, envs, ssh_pubkeys, "
                             "ingress, created_ns) VALUES ('sb-1', 'e', 'usr_1', 'n', 'destroyed', 's', 'r', 1, 256, 10, '{}', '[]', 0, 7)")
        database.commit()
    path.chmod(0o600)
    before = snapshot(path)[1] if version > 0 else {"users": [], "keys": [], "sandboxes": []}
    for _ in range(2):
        done = subprocess.run([PROGRAM, "--home", home, "key", "list"], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0 and ("alice" in done.stdout) == (version > 0), done
        assert snapshot(path) == (len(STEPS), before)


def test_a_later_store_is_refused_and_left_alone(drupe, tmp_path):
    home = tmp_path / "home"
    subprocess.run([PROGRAM, "--home", home, "key", "list"], check=True, capture_output=True, timeout=60)
    path = home / "api" / "accounts.db"
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute(f"PRAGMA user_version = {len(STEPS) + 1}")
        database.commit()
    before = snapshot(path)
    done = subprocess.run([PROGRAM, "--home", home, "key", "list"], capture_output=True, text=True, timeout=60)
    assert done.returncode != 0 and "later version" in done.stderr
    assert snapshot(path) == before
