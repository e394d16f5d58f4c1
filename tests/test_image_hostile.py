"""Images that are wrong, registries that misbehave, and deaths in the middle: clear sentences, nothing half-made in the store."""

import base64
import gzip
import io
import json
import os
import signal
import subprocess
import tarfile
import threading
import time

import pytest

import oci
from conftest import BINARY, Drupe, remember_home
from hostile_registry import HostileRegistry


@pytest.fixture
def server():
    registry = HostileRegistry()
    yield registry
    registry.close()


@pytest.fixture
def store(tmp_path):
    if not BINARY.exists():
        pytest.skip("build/bin/drupe is not built; scripts/build.sh makes it")
    remember_home(tmp_path / "home")
    empty = tmp_path / "no-docker-config"
    empty.mkdir()
    return Drupe(tmp_path / "home", {"DOCKER_CONFIG": str(empty)})


def small_image(**options):
    return oci.Image([oci.layer([("etc", None), ("etc/hello", b"hello")])], {"Env": ["A=1", "A=2"], "Cmd": ["true"]}, **options)


def noise_image(size):
    return oci.Image([oci.layer([("noise", os.urandom(size))])], compress=lambda plain: gzip.compress(plain, 1))


def names(store):
    return {name for image in json.loads(store("images", "--json").out) for name in image["names"]}


def leftovers(store):
    images = store.home / "images"
    return [str(path.relative_to(images)) for folder in ("names", "disks", "tmp", "blobs") for path in (images / folder).glob("*")]


def refused(store, *command, words, **options):
    """Fails with a sentence that has all `words`, and leaves nothing in the store."""
    result = store(*command, code=1, **options)
    for word in words:
        assert word in result.error, result
    assert result.error.startswith("drupe: ") and result.error.count("\n") == 1, result
    assert leftovers(store) == []
    return result


def pull_refused(store, reference, *words):
    return refused(store, "pull", "-q", "--insecure", reference, words=words)


def test_pull_and_names(store, server):
    reference = server.add("team/app", "1", small_image())
    store("pull", "-q", "--insecure", reference)
    assert names(store) == {reference}
    info = json.loads(store("image", "inspect", reference).out)[0]
    # E2B infra#2706: of two values the last counts.
    assert info["config"]["Env"] == ["A=2"]
    store("tag", reference, "short")
    assert names(store) == {reference, "short:latest"}
    store("rmi", reference)
    assert names(store) == {"short:latest"}
    store("rmi", info["id"][:12])
    assert leftovers(store) == []


def test_unknown_image(store, server):
    pull_refused(store, f"{server.address}/none:1", "has no image 'none:1'")


def test_unreachable_registry(store):
    begun = time.monotonic()
    pull_refused(store, "127.0.0.1:1/none:1", "cannot be reached", "127.0.0.1:1")
    assert time.monotonic() - begun < 10


def test_plain_http_needs_consent(store, server):
    reference = server.add("app", "1", small_image())
    refused(store, "pull", "-q", reference, words=["TLS", "--insecure"])


@pytest.mark.parametrize("name", ["Upper/case", "a" * 65536, "https://example.com/x", "x:" + "t" * 200, "x@sha256:../../x", "a//b", "../x", "x:y:z", ""])
def test_names_that_are_none(store, name):
    result = store("pull", "-q", name, code=None)
    assert result.code in (1, 125) and len(result.err) < 1000, result


def test_wrong_layer(store, server):
    image = noise_image(100_000)
    layer = image.manifest["layers"][0]
    reference = server.add("app", "1", image)
    server.blobs[layer["digest"]] = os.urandom(layer["size"])
    pull_refused(store, reference, "digest")


def test_layer_longer_than_said(store, server):
    image = noise_image(100_000)
    reference = server.add("app", "1", image)
    server.blobs[image.manifest["layers"][0]["digest"]] += b"more"
    pull_refused(store, reference, "more than")


def test_wrong_config(store, server):
    image = small_image()
    reference = server.add("app", "1", image)
    size = image.manifest["config"]["size"]
    server.blobs[image.manifest["config"]["digest"]] = b"{" + b" " * (size - 2) + b"}"
    pull_refused(store, reference, "config", "digest")


def test_wrong_diff_id(store, server):
    image = small_image()
    other = small_image()
    other.config["rootfs"]["diff_ids"] = [oci.digest(b"other")]
    packed = json.dumps(other.config).encode()
    image.manifest["config"].update(digest=image.add(packed), size=len(packed))
    pull_refused(store, server.add("app", "1", image), "diff-id")


def test_media_type_that_lies(store, server):
    image = small_image(compress=lambda plain: plain)
    pull_refused(store, server.add("app", "1", image), "media type")


def test_fewer_layers_than_diff_ids(store, server):
    image = small_image()
    image.manifest["layers"] = []
    pull_refused(store, server.add("app", "1", image), "0 layers")


@pytest.mark.parametrize("change, word", [
    ({"manifests": []}, "at once"),  # CVE-2021-41190
    ({"schemaVersion": 1}, "old format"),
    ({"mediaType": "application/vnd.oci.image.index.v1+json"}, "media type"),
    ({"layers": "none"}, "manifest"),
    ({"layers": [{"digest": "sha256:../../../etc/passwd", "size": 1}]}, "digest"),  # microsandbox#712
    ({"layers": [{"digest": "sha256:" + "0" * 64, "size": -1, "mediaType": "application/vnd.oci.image.layer.v1.tar"}]}, "size"),
    ({"layers": [{"digest": "sha256:" + "0" * 64, "size": 1, "mediaType": "application/vnd.example"}]}, "cannot be read"),
    ({"layers": [{"digest": "sha256:" + "0" * 64, "size": 1 << 60, "mediaType": "application/vnd.oci.image.layer.v1.tar"}]}, "larger"),
    ({"config": {"digest": "sha256:" + "0" * 64, "size": 1, "mediaType": "application/vnd.example.helm"}}, "artifact"),
])
def test_manifests_that_are_wrong(store, server, change, word):
    image = small_image()
    image.manifest.update(change)
    image.manifest.setdefault("mediaType", "application/vnd.oci.image.manifest.v1+json")
    reference = server.add_manifest("app", "1", image.manifest_bytes, "application/vnd.oci.image.manifest.v1+json")
    pull_refused(store, reference, word)


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"null", b"\xff\xfe", b"[" * 100_000, b"{\"layers\":" * 50_000, b" " * (5 << 20)],
                         ids=["empty", "array", "open", "null", "not-utf8", "deep-array", "deep-object", "spaces"])
def test_manifests_that_are_none(store, server, body):
    pull_refused(store, server.add_manifest("app", "1", body, "application/vnd.oci.image.manifest.v1+json"))


def test_other_platform(store, server):
    image = small_image()
    index = {"schemaVersion": 2, "manifests": [{"mediaType": image.manifest["mediaType"], "digest": oci.digest(image.manifest_bytes),
                                                "size": len(image.manifest_bytes), "platform": {"os": "linux", "architecture": "s390x"}}]}
    server.add("app", "x", image)
    pull_refused(store, server.add_manifest("app", "1", json.dumps(index).encode(), "application/vnd.oci.image.index.v1+json"), "linux/s390x")


def test_manifest_of_another_digest(store, server):
    image = small_image()
    server.add("app", "1", image)
    wanted = "sha256:" + "1" * 64
    server.manifests[f"/v2/app/manifests/{wanted}"] = (image.manifest_bytes, image.manifest["mediaType"])
    pull_refused(store, f"{server.address}/app@{wanted}", "digest")


def test_truncated_layer(store, server):
    image = noise_image(3_000_000)
    reference = server.add("app", "1", image)
    layer = image.manifest["layers"][0]["digest"]
    server.blobs[layer] = server.blobs[layer][:1_000_000]
    pull_refused(store, reference, "sends only 1000000 of")


def test_connections_that_always_break(store, server):
    reference = server.add("app", "1", noise_image(3_000_000))
    server.cut_after = 10_000
    result = store("pull", "-q", "--insecure", reference, code=1)
    assert "broke too often" in result.error and "kept" in result.error, result
    assert [path for path in leftovers(store) if not path.startswith("blobs/")] == []
    server.cut_after = None
    store("pull", "-q", "--insecure", reference)


def test_broken_connections_are_continued(store, server):
    image = noise_image(3_000_000)
    reference = server.add("app", "1", image)
    server.cut_after, server.cuts = 1_000_000, 2
    store("pull", "-q", "--insecure", reference)
    ranges = [headers["Range"] for _, path, headers in server.requests if "Range" in headers]
    assert ranges == ["bytes=1000000-", "bytes=2000000-"]


def test_ranges_that_are_ignored(store, server):
    reference = server.add("app", "1", noise_image(3_000_000))
    server.cut_after, server.cuts, server.ranges = 1_000_000, 2, False
    store("pull", "-q", "--insecure", reference)


def test_bomb(store, server):
    zeros = oci.layer([("zeros", bytes(400 << 20))])
    pull_refused(store, server.add("app", "1", oci.Image([zeros], compress=lambda plain: gzip.compress(plain, 6))), "bomb")


def test_layer_that_is_no_tar(store, server):
    pull_refused(store, server.add("app", "1", oci.Image([os.urandom(10_000)])))


def test_cut_gzip(store, server):
    reference = server.add("app", "1", oci.Image([oci.layer([("a", os.urandom(10_000))])], compress=lambda plain: gzip.compress(plain)[:-2000]))
    pull_refused(store, reference, "cut short")


class TestLogin:
    def config(self, store, content):
        path = store.home.parent / "docker"
        path.mkdir()
        (path / "config.json").write_text(json.dumps(content))
        store.env["DOCKER_CONFIG"] = str(path)

    def auth(self, server, login="user:pass:word"):
        return {"auths": {server.address: {"auth": base64.b64encode(login.encode()).decode()}}}

    def test_token_for_everybody(self, store, server):
        server.token = "t0ken"
        store("pull", "-q", "--insecure", server.add("app", "1", small_image()))
        asked = [path for _, path, _ in server.requests if path.startswith("/token")]
        assert "service=loopback" in asked[0] and "scope=repository%3Ax%3Apull" in asked[0]

    def test_token_with_login(self, store, server):
        server.token, server.login = "t0ken", "user:pass:word"
        reference = server.add("app", "1", small_image())
        pull_refused(store, reference, "login is needed")
        self.config(store, self.auth(server))
        store("pull", "-q", "--insecure", reference)

    def test_basic(self, store, server):
        server.basic, server.login = True, "user:pass:word"
        reference = server.add("app", "1", small_image())
        self.config(store, self.auth(server))
        store("pull", "-q", "--insecure", reference)

    def test_wrong_login(self, store, server):
        server.basic, server.login = True, "user:other"
        reference = server.add("app", "1", small_image())
        self.config(store, self.auth(server))
        result = pull_refused(store, reference, "refuses the login")
        assert "pass:word" not in result.error

    def test_helper(self, store, server):
        server.basic, server.login = True, "user:other"
        reference = server.add("app", "1", small_image())
        self.config(store, {"credHelpers": {server.address: "example"}})
        pull_refused(store, reference, "docker-credential-example")

    def test_login_stays_with_its_registry(self, store, server):
        server.token, server.login = "t0ken", "user:pass:word"
        image = small_image()
        reference = server.add("app", "1", image)
        self.config(store, self.auth(server))
        other = HostileRegistry()
        try:
            other.blobs.update(image.blobs)
            server.redirect_blobs = lambda path: f"http://{other.address}{path}"
            store("pull", "-q", "--insecure", reference)
            assert other.requests
            assert all("Authorization" not in headers for _, _, headers in other.requests)
        finally:
            other.close()


@pytest.mark.parametrize("location", ["file:///etc/passwd", "gopher://127.0.0.1/", "http://user@127.0.0.1/", "http://[::1", ""])
def test_redirects_to_nowhere(store, server, location):
    server.redirect_blobs = lambda path: location
    pull_refused(store, server.add("app", "1", small_image()))


def test_redirects_without_end(store, server):
    server.redirect_blobs = lambda path: path
    pull_refused(store, server.add("app", "1", small_image()), "redirects")


# A registry on the public internet must not make this program talk to the machine's own network. Played in a network of
# its own, where a documentation address stands for a public one.
def test_public_registry_cannot_point_inside(store, tmp_path):
    script = tmp_path / "play.py"
    script.write_text(f"""
import subprocess, sys
sys.path.insert(0, {os.path.dirname(os.path.abspath(__file__))!r})
import oci
from hostile_registry import HostileRegistry
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
subprocess.run(["ip", "address", "add", "203.0.113.7/32", "dev", "lo"], check=True)
image = oci.Image([oci.layer([("a", b"a")])])
public, inside = HostileRegistry("203.0.113.7"), HostileRegistry("127.0.0.1")
reference = public.add("app", "1", image)
inside.blobs.update(image.blobs)
def pull():
    return subprocess.run([{str(BINARY)!r}, "pull", "-q", "--insecure", reference], capture_output=True, text=True)
public.redirect_blobs = lambda path: f"http://{{inside.address}}{{path}}"
blobs = pull()
public.redirect_blobs = lambda path: f"http://localhost:{{inside.address.split(':')[1]}}{{path}}"
by_name = pull()
public.redirect_blobs, public.token = None, "x"
manifest = f"/v2/app/manifests/1"
public.replace[manifest] = (401, {{"WWW_Authenticate": f'Bearer realm="http://{{inside.address}}/token"'}}, b"")
tokens = pull()
del public.replace[manifest]
public.token = None
print(blobs.stderr, by_name.stderr, tokens.stderr, len(inside.requests), pull().returncode)
public.close(); inside.close()
""")
    played = subprocess.run(["unshare", "--user", "--map-root-user", "--net", "python3", script], env=store.env, capture_output=True, text=True, timeout=120)
    if "unshare" in played.stderr or "RTNETLINK" in played.stderr:
        pytest.skip(f"no network namespace here: {played.stderr.strip()}")
    assert played.stdout.count("not on the public internet") == 3, played
    assert played.stdout.split()[-2:] == ["0", "0"], played


def test_interrupt_keeps_what_came(store, server):
    image = noise_image(3_000_000)
    reference = server.add("app", "1", image)
    server.cut_after, server.cuts, server.hold = 1_000_000, 1, threading.Event()
    process = store.popen("pull", "-q", "--insecure", reference, stdout=-1, stderr=-1)
    blob = store.home / "images" / "blobs" / image.manifest["layers"][0]["digest"].split(":")[1]
    deadline = time.monotonic() + 20
    while not (blob.exists() and blob.stat().st_size == 1_000_000):
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 130 and b"stopped" in err, err
    server.hold.set()
    assert [path for path in leftovers(store) if not path.startswith("blobs/")] == []
    store("pull", "-q", "--insecure", reference)
    assert [headers["Range"] for _, _, headers in server.requests if "Range" in headers] == ["bytes=1000000-"]
    assert not blob.exists()


def test_kill_at_any_moment(store, server):
    image = oci.Image([oci.layer([(f"{i}", os.urandom(2_000_000))]) for i in range(4)], compress=lambda plain: gzip.compress(plain, 1))
    reference = server.add("app", "1", image)
    begun = time.monotonic()
    store("pull", "-q", "--insecure", reference)
    whole = time.monotonic() - begun
    store("rmi", reference)
    for step in range(12):
        process = store.popen("pull", "-q", "--insecure", reference, stdout=-1, stderr=-1)
        time.sleep(whole * (step + 1) / 13)
        process.kill()
        process.communicate()
        known = names(store)
        assert known in (set(), {reference})
        if known:
            assert json.loads(store("image", "inspect", reference).out)[0]["size_bytes"] > 8_000_000
            store("rmi", reference)
    store("pull", "-q", "--insecure", reference)
    store("rmi", reference)
    assert leftovers(store) == []


def test_full_disk(store, tmp_path):
    archive = noise_image(80 << 20).layout(tmp_path / "a.tar", "big:1")
    script = f"mkdir -p {store.home} && mount -t tmpfs -o size=48m none {store.home} && {BINARY} load -q -i {archive}; echo $?; ls {store.home}/images/tmp {store.home}/images/disks; df {store.home} | tail -1"
    played = subprocess.run(["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script], env=store.env, capture_output=True, text=True, timeout=120)
    if "unshare" in played.stderr or "mount" in played.stderr:
        pytest.skip(f"no mount namespace here: {played.stderr.strip()}")
    assert played.stdout.splitlines()[0] == "1", played
    assert "No space left" in played.stderr or "full" in played.stderr, played
    assert int(played.stdout.split()[-4]) < 4096, played


class TestArchives:
    def write(self, path, entries):
        with tarfile.open(path, "w") as tar:
            for name, data in entries:
                info = tarfile.TarInfo(name)
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
        return path

    @pytest.mark.parametrize("content", [b"", b"not a tar", bytes(10240), os.urandom(5000), gzip.compress(b"x" * 5000), b"\x1f\x8b" + bytes(100), b"\x28\xb5\x2f\xfd" + bytes(100)])
    def test_no_archives(self, store, tmp_path, content):
        (tmp_path / "a.tar").write_bytes(content)
        refused(store, "load", "-q", "-i", tmp_path / "a.tar", words=[])
        refused(store, "load", "-q", words=[], input=content)

    def test_missing_file(self, store, tmp_path):
        refused(store, "load", "-q", "-i", tmp_path / "none.tar", words=["No such file"])

    def test_cut_archives(self, store, tmp_path):
        whole = small_image().layout(tmp_path / "a.tar", "cut:1").read_bytes()
        for size in range(0, len(whole) - 1024, 1500):
            (tmp_path / "cut.tar").write_bytes(whole[:size])
            if store("load", "-q", "-i", tmp_path / "cut.tar", code=None).code == 0:
                assert size > len(whole) - 10240  # Only the archive's own padding was cut.
                store("rmi", "cut:1")
        assert leftovers(store) == []

    @pytest.mark.parametrize("manifest", [
        [], {}, [{}], [{"Config": "../../../etc/passwd", "Layers": []}], [{"Config": "c", "Layers": ["/etc/passwd"], "RepoTags": ["a:1"]}],
        [{"Config": "c", "Layers": ["../../../../../etc/passwd"]}], [{"Config": "c", "Layers": [], "RepoTags": ["../x"]}], [{"Config": 7}], [None]])
    def test_wrong_saved_manifests(self, store, tmp_path, manifest):
        config = json.dumps(small_image().config).encode()
        archive = self.write(tmp_path / "a.tar", [("c", config), ("manifest.json", json.dumps(manifest).encode())])
        refused(store, "load", "-q", "-i", archive, words=[])

    def test_changed_blob(self, store, tmp_path):
        image = small_image()
        for key in list(image.blobs):
            wrong = small_image()
            wrong.blobs[key] = wrong.blobs[key][:-1] + bytes([wrong.blobs[key][-1] ^ 1])
            refused(store, "load", "-q", "-i", wrong.layout(tmp_path / "a.tar", "x:1"), words=[])

    def test_folder(self, store, tmp_path):
        small_image().layout(tmp_path / "a.tar", "folder:1")
        subprocess.run(["tar", "-xf", tmp_path / "a.tar", "-C", tmp_path], check=True)
        store("load", "-q", "-i", tmp_path)
        assert names(store) == {"folder:1"}

    def test_folder_with_links_out(self, store, tmp_path):
        folder = tmp_path / "layout"
        folder.mkdir()
        (folder / "index.json").symlink_to("/etc/passwd")
        refused(store, "load", "-q", "-i", folder, words=[])

    def test_plain_root_file_system(self, store, tmp_path):
        (tmp_path / "a.tar").write_bytes(oci.layer([("bin", None), ("bin/sh", b"x")]))
        refused(store, "load", "-q", "-i", tmp_path / "a.tar", words=["docker save"])


def test_many_processes_change_names(store, server):
    reference = server.add("app", "1", small_image())
    store("pull", "-q", "--insecure", reference)
    processes = [store.popen("tag", reference, f"name:{i}", stdout=-1, stderr=-1) for i in range(16)]
    assert [process.wait() for process in processes] == [0] * 16
    assert len(names(store)) == 17
    processes = [store.popen("rmi", f"name:{i}", stdout=-1, stderr=-1) for i in range(16)]
    assert [process.wait() for process in processes] == [0] * 16
    assert names(store) == {reference}
