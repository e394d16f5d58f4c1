"""Bad input and bad luck: a sentence with cause and next step, the right status, nothing half-made."""

import gzip
import json
import os
import socket
import tarfile
import threading

import pytest

import oci
from conftest import IMAGE


def refused(result, *words):
    """Our fault's status, one sentence of ours, no output."""
    assert result.code == 125, result
    assert result.out == b"", result
    assert result.error.startswith("drupe: "), result
    for word in words:
        assert word.lower() in result.error.lower(), result
    assert "terminate" not in result.error and "std::" not in result.error


@pytest.mark.parametrize("flags,words", [
    (("--memory", "1"), ("memory", "256")),
    (("--memory", "1t"), ("memory",)),
    (("--memory", "lots"), ("lots",)),
    (("--cpus", "999"), ("999",)),
    (("--cpus", "0"), ("cpu",)),
    (("--cpus", "-1"), ("-1",)),
    (("--timeout", "-1"), ("-1",)),            # E2B infra#3418
    (("--timeout", "0"), ("zero",)),
    (("--timeout", "1000000000000"), ("365",)),
    (("--disk", "1k"), ("disk",)),
    (("-e", "A;B=1"), ("A;B",)),               # spawn#1086, mastra#17279, crabbox#695
    (("-e", "FOO; touch /tmp/pwn=1"), ("FOO",)),
    (("-e", "=x"), ()),
    (("--env-file", "/no/such/file"), ("/no/such/file",)),
    (("--name", "../x"), ("../x",)),           # forkd#259
    (("--hostname", "a b"), ("a b",)),
    (("--label", "=x"), ("label",)),
    (("--pull", "sometimes"), ("sometimes",)),
    (("--require", "magic"), ("magic",)),
    (("--copy-in", "nonsense"), ("nonsense",)),
    (("--bogus",), ("--bogus", "--help")),
    (("-v", "/a:/b"), ("not offered",)),
    (("-p", "80:80"), ("--net",)),
    (("--net", "host"), ("host", "policy")),
    (("--network=bridge",), ("There is no network bridge", "drupe network create")),
    (("--privileged",), ()),
])
def test_flags(drupe, flags, words):
    refused(drupe("run", *flags, IMAGE, "true", code=None), *words)


def test_net_none_is_the_default(drupe):
    drupe("run", "--net", "none", IMAGE, "true")
    assert "none (default)" in drupe("run", "--help").text


def test_require_hardware_under_emulation(drupe):
    doctor = json.loads(drupe("doctor", "--json", code=None).out)
    result = drupe("run", "--require", "hardware", IMAGE, "true", code=None)
    if doctor["isolation"] == "hardware-virtualized":
        assert result.code == 0
    else:
        refused(result, "hardware")


def test_usage(drupe):
    refused(drupe("run", code=None), "image")
    refused(drupe("nonsense", code=None), "nonsense")
    refused(drupe("exec", "x", code=None), "command")
    assert drupe(code=None).code == 125


def test_unknown_image(empty_home, registry):
    refused(empty_home("run", "--insecure", f"{registry}/nobody/home:1", "true", code=None), "nobody/home")
    refused(empty_home("run", "--pull", "never", "absent:1", "true", code=None), "absent")


@pytest.mark.parametrize("name", ["UPPER:1", "a b", "", ":1", "x" * 300, "a@sha256:12", "../../etc", "-x", "a:b:c/d", "café"])
def test_names_of_images_that_cannot_be(empty_home, name):
    result = empty_home("pull", "--", name, code=None)
    assert result.code in (1, 125) and result.error.startswith("drupe: ")


def test_unreachable_registry(empty_home):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    result = empty_home("pull", "--insecure", f"127.0.0.1:{port}/x:1", code=1, timeout=120)
    assert f"127.0.0.1:{port}" in result.error


class Server:
    """A registry that lies: answers are looked up in `paths`."""

    def __init__(self, paths):
        import http.server

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                status, headers, body = paths.get(self.path.split("?")[0], (404, {}, b"{}"))
                self.send_response(status)
                for key, value in {"Content-Length": str(len(body)), **headers}.items():
                    self.send_header(key, value)
                self.end_headers()
                if self.command == "GET":
                    self.wfile.write(body)

            do_HEAD = do_GET

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


def paths_of(image, repository="x", tag="1"):
    media = {"Content-Type": image.manifest["mediaType"]}
    paths = {"/v2/": (200, {}, b"{}"), f"/v2/{repository}/manifests/{tag}": (200, media, image.manifest_bytes)}
    for key, data in image.blobs.items():
        paths[f"/v2/{repository}/blobs/{key}"] = (200, {}, data)
    return paths


def nothing_half_made(command):
    assert json.loads(command("images", "--json").out) == []
    left = [path for path in (command.home / "images").rglob("*") if path.is_file() and path.stat().st_size > 1 << 20]
    assert not left, left


@pytest.mark.parametrize("lie", ["wrong digest", "truncated layer", "wrong diff-id", "not a manifest", "bomb", "huge size"])
def test_registries_that_lie(empty_home, lie):
    image = oci.Image([oci.layer([("a", os.urandom(100_000))])])
    paths = paths_of(image)
    blob = image.manifest["layers"][0]["digest"]
    path = f"/v2/x/blobs/{blob}"
    if lie == "wrong digest":
        paths[path] = (200, {}, image.blobs[blob][:-1] + b"x")
    elif lie == "truncated layer":
        paths[path] = (200, {}, image.blobs[blob][:5000])
    elif lie == "not a manifest":
        paths["/v2/x/manifests/1"] = (200, {"Content-Type": "text/html"}, b"<html>" * 100)
    else:
        if lie == "wrong diff-id":
            image.config["rootfs"]["diff_ids"] = ["sha256:" + "0" * 64]
            packed = json.dumps(image.config).encode()
            image.manifest["config"].update(digest=image.add(packed), size=len(packed))
        elif lie == "huge size":
            image.manifest["layers"][0]["size"] = 1 << 62
        else:
            packed = gzip.compress(b"\0" * (200 << 20), 9)
            packed = gzip.compress(packed, 9) if False else packed
            image.manifest["layers"][0].update(digest=image.add(packed), size=len(packed))
        paths = paths_of(image)
    with Server(paths) as server:
        result = empty_home("pull", "--insecure", f"{server.address}/x:1", code=1, timeout=120)
    assert result.error.startswith("drupe: ")
    nothing_half_made(empty_home)


@pytest.mark.parametrize("entries", [
    [("../escape", b"x")], [("a/../../escape", b"x")], [("/abs", oci.special(tarfile.LNKTYPE, "../../etc/passwd"))],
    [("n" * 70000, b"x")], [("dir", oci.special(tarfile.SYMTYPE, "/")), ("dir/etc/x", b"x")],
    [("h", oci.special(tarfile.LNKTYPE, "nothing"))],
], ids=["dots", "inner dots", "hard link out", "long name", "link as parent", "hard link to nothing"])
def test_tricks_of_layers(empty_home, tmp_path, entries):
    """Refused with a sentence, or kept inside of the image; never on this machine's file system."""
    result = empty_home("load", oci.Image([oci.layer(entries)]).layout(tmp_path / "t.tar"), code=None)
    assert result.code in (0, 1)
    if result.code == 1:
        assert result.error.startswith("drupe: ")
        nothing_half_made(empty_home)
    for place in (tmp_path, tmp_path.parent, empty_home.home, empty_home.home / "images"):
        assert not (place / "escape").exists()


# microsandbox#712
def test_digest_as_a_path(empty_home, tmp_path):
    image = oci.Image([oci.layer([("a", b"x")])])
    image.manifest["layers"][0]["digest"] = "sha256:../../x"
    empty_home("load", image.layout(tmp_path / "t.tar"), code=1)
    nothing_half_made(empty_home)


def test_archive_that_is_none(empty_home, tmp_path):
    (tmp_path / "x").write_bytes(os.urandom(100_000))
    assert empty_home("load", tmp_path / "x", code=1).error.startswith("drupe: ")
    assert empty_home("load", tmp_path / "missing", code=1).error.startswith("drupe: ")
    assert empty_home("load", input=b"", code=1).error.startswith("drupe: ")


def test_one_string_over_the_guests_limit(drupe, box, tmp_path):
    """As an argument this machine's own kernel would refuse it first; a file of variables has no such limit."""
    (tmp_path / "env").write_text("LONG=" + "x" * 131072)
    refused(drupe("exec", "--env-file", tmp_path / "env", box.name, "true", code=None), "131071")
    (tmp_path / "env").write_text("LONG=" + "x" * (131072 - 6))
    assert drupe("exec", "--env-file", tmp_path / "env", box.name, "sh", "-c", "echo ${#LONG}").text == "131066\n"


def test_arguments_over_all_limits(drupe, box):
    result = drupe("exec", box.name, "echo", *["x" * 60000 for _ in range(34)], code=None)
    assert result.code == 125 and result.error.startswith("drupe: ")


def test_missing_guest_kernel(drupe, tmp_path):
    result = drupe("run", IMAGE, "true", code=None, env={"DRUPE_GUEST_DIR": str(tmp_path)})
    refused(result, "kernel")


def test_home_that_cannot_be(drupe, tmp_path):
    (tmp_path / "file").write_text("x")
    refused(drupe("run", IMAGE, "true", code=None, env={"DRUPE_HOME": str(tmp_path / "file")}))


def test_broken_record_is_a_sentence(drupe, new_box):
    one = new_box(command=("true",))
    drupe("wait", one.name)
    identity = one.info()["record"]["id"]
    record = drupe.home / "sandboxes" / identity / "record.json"
    good = record.read_bytes()
    try:
        for bad in (b"", b"{", good[: len(good) // 2], b"\xff" * 100, b"[" * 100_000, b"null"):
            record.write_bytes(bad)
            result = drupe("inspect", identity, code=None)
            assert result.code == 1 and result.error.startswith("drupe: "), result
            assert drupe("ps", "-a", code=None).code in (0, 1)
    finally:
        record.write_bytes(good)


def test_a_foreign_folder_is_no_home(drupe, tmp_path):
    (tmp_path / "thesis.txt").write_text("mine")
    tmp_path.chmod(0o755)
    ran = drupe("ps", env={"DRUPE_HOME": str(tmp_path)}, code=1)
    assert "holds other things already" in ran.error and "DRUPE_HOME" in ran.error
    assert [entry.name for entry in tmp_path.iterdir()] == ["thesis.txt"] and tmp_path.stat().st_mode & 0o777 == 0o755


def test_a_copy_without_a_path_is_refused(drupe, box, tmp_path):
    assert "path is missing" in drupe("cp", f"{box.name}:", tmp_path / "all", code=125).error
    assert not (tmp_path / "all").exists()
