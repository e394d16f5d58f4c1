"""Images: pulled from a real registry on loopback, loaded from archives, run as their config says."""

import json
import os
import subprocess
import tarfile

import pytest

import oci
from conftest import IMAGE, Drupe, remember_home, remove_all


@pytest.fixture(scope="module")
def base():
    layer = oci.busybox_layer()
    if layer is None:
        pytest.skip("busybox-static is not installed")
    return layer


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """A home for small images."""
    path = tmp_path_factory.mktemp("images") / "home"
    remember_home(path)
    command = Drupe(path)
    yield command
    remove_all(command)


def names(drupe):
    return {name for image in json.loads(drupe("images", "--json").out) for name in image["names"]}


def test_pull_run_tag_inspect_remove(images, registry, base):
    pushed = oci.Registry(registry).push("app", "1", oci.Image([base], {"Cmd": ["echo", "from cmd"], "Env": ["PATH=/bin", "A=image"]}))
    reference = f"{registry}/app:1"
    images("pull", "--insecure", reference, timeout=60)
    assert reference in names(images)
    info = json.loads(images("image", "inspect", reference).out)[0]
    assert info["digest"] == pushed
    assert info["config"]["Cmd"] == ["echo", "from cmd"]
    assert images("run", reference, timeout=120).text == "from cmd\n"
    assert images("run", "-e", "A=flag", reference, "sh", "-c", "echo $A").text == "flag\n"
    images("tag", reference, "local/name:2")
    images("rmi", reference)
    assert images("run", "local/name:2").text == "from cmd\n"
    assert "Deleted" in images("rmi", "local/name:2").text
    images("run", "--pull", "never", "local/name:2", code=125)


def test_pull_by_digest(images, registry, base):
    pushed = oci.Registry(registry).push("bydigest", "1", oci.Image([base], {"Env": ["PATH=/bin"]}))
    images("pull", "--insecure", f"{registry}/bydigest@{pushed}")
    images("pull", "--insecure", f"{registry}/bydigest@sha256:{'0' * 64}", code=1)


def test_first_use_pulls(images, registry, base):
    oci.Registry(registry).push("first", "use", oci.Image([base], {"Env": ["PATH=/bin"]}))
    assert images("run", "--insecure", f"{registry}/first:use", "echo", "pulled").text == "pulled\n"


# Config is honoured as Docker does it.
def test_entrypoint_cmd_user_workdir(images, tmp_path, base):
    image = oci.Image([base], {"Entrypoint": ["echo", "entry"], "Cmd": ["cmd"], "WorkingDir": "/etc", "User": "app", "Env": ["PATH=/bin"]})
    images("load", image.layout(tmp_path / "a.tar", "config:1"))
    assert images("run", "config:1").text == "entry cmd\n"
    assert images("run", "config:1", "other").text == "entry other\n"
    assert images("run", "--entrypoint", "", "config:1", "sh", "-c", "pwd; id -u").text == "/etc\n1000\n"
    assert images("run", "--entrypoint", "pwd", "config:1").text == "/etc\n"


# hypeman#94, smolvm#397, microsandbox#356, go-microvm#38: whiteouts, links, replacements over layers.
def test_layers_on_layers(images, tmp_path, base):
    second = oci.layer([("data", None), ("data/a", b"2"), ("data/gone", b"2"), ("link", oci.special(tarfile.SYMTYPE, "data/a")),
                        ("opaque", None), ("opaque/old", b"x"), ("env", oci.special(tarfile.SYMTYPE, "bin/env"))])
    third = oci.layer([("data/.wh.gone", b""), ("data/.wh.a", b""), ("opaque/.wh..wh..opq", b""), ("opaque/new", b"y"), ("env", b"a file now")])
    fourth = oci.layer([("data/a", b"4"), ("data/hard", oci.special(tarfile.LNKTYPE, "data/a"))])
    images("load", oci.Image([base, second, third, fourth], {"Env": ["PATH=/bin"]}).layout(tmp_path / "l.tar", "layers:1"))
    script = "cat /data/a /link /data/hard; echo; ls /data /opaque; cat /env; test -L /env || echo plain"
    assert images("run", "layers:1", "sh", "-c", script).text == "444\n/data:\na\nhard\n\n/opaque:\nnew\na file nowplain\n"


# Only what the guest sees may be hit by tricks of an image; nothing of the host is.
def test_image_with_links_in_the_agents_places(images, tmp_path, base):
    evil = oci.layer([("dev", oci.special(tarfile.SYMTYPE, "/etc")), ("etc/resolv.conf", oci.special(tarfile.SYMTYPE, "/proc/1/environ"))])
    images("load", oci.Image([base, evil], {"Env": ["PATH=/bin"]}).layout(tmp_path / "e.tar", "evil:1"))
    assert images("run", "evil:1", "echo", "runs").text == "runs\n"


@pytest.mark.parametrize("program", ["gzip", "zstd"])
def test_docker_save_archives(images, tmp_path, base, program):
    image = oci.Image([base], {"Env": ["PATH=/bin"], "Cmd": ["echo", "saved"]}, compress=lambda plain: plain)
    layer_name = next(iter(image.blobs)).split(":")[1]
    config = json.dumps(image.config).encode()
    archive = tmp_path / "save.tar"
    import io

    with tarfile.open(archive, "w") as tar:
        for name, data in ((f"{layer_name}/layer.tar", base), ("config.json", config),
                           ("manifest.json", json.dumps([{"Config": "config.json", "RepoTags": [f"saved:{program}"],
                                                          "Layers": [f"{layer_name}/layer.tar"]}]).encode())):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    packed = subprocess.run([program, "-c", archive], check=True, capture_output=True).stdout
    images("load", input=packed)
    assert images("run", f"saved:{program}").text == "saved\n"


# wsl-ui#104: the right platform of an index.
def test_index_of_platforms(images, registry, base):
    target = oci.Registry(registry)
    right = oci.Image([base], {"Env": ["PATH=/bin"], "Cmd": ["echo", "amd64"]})
    wrong = oci.Image([oci.layer([("wrong", b"")])])
    manifests = []
    for image, architecture in ((wrong, "arm64"), (right, "amd64")):
        pushed = target.push("multi", architecture, image)
        manifests.append({"mediaType": image.manifest["mediaType"], "digest": pushed, "size": len(image.manifest_bytes),
                          "platform": {"os": "linux", "architecture": architecture}})
    media = "application/vnd.oci.image.index.v1+json"
    target.push_manifest("multi", "1", json.dumps({"schemaVersion": 2, "mediaType": media, "manifests": manifests}).encode(), media)
    images("pull", "--insecure", f"{registry}/multi:1")
    assert images("run", f"{registry}/multi:1").text == "amd64\n"


def test_skopeo_made_and_we_read(images, registry, base, tmp_path):
    if not __import__("shutil").which("skopeo"):
        pytest.skip("skopeo is not installed")
    oci.Image([base], {"Env": ["PATH=/bin"], "Cmd": ["echo", "skopeo"]}).layout(tmp_path / "s.tar", "1")
    subprocess.run(["skopeo", "copy", "-q", "--insecure-policy", f"oci-archive:{tmp_path}/s.tar:1", f"docker-archive:{tmp_path}/d.tar:skopeo:1"], check=True)
    images("load", tmp_path / "d.tar")
    assert images("run", "skopeo:1").text == "skopeo\n"


def test_twenty_pulls_at_once_are_one(images, registry, base):
    big = oci.layer([("big", os.urandom(8 << 20))])
    oci.Registry(registry).push("many", "1", oci.Image([base, big], {"Env": ["PATH=/bin"]}))
    processes = [images.popen("pull", "-q", "--insecure", f"{registry}/many:1", stdout=-1, stderr=-1) for _ in range(20)]
    for process in processes:
        assert process.communicate(timeout=120)[1] == b""
        assert process.returncode == 0


class TestDevbox:
    """The default image has what its list promises."""

    @pytest.mark.parametrize("command", [
        "python3 -c 'import numpy, pandas; print(pandas.DataFrame({\"a\": [1]}).sum().a)'",
        "python3 -c 'import ensurepip' && python3 -m venv --without-pip /tmp/venv && /tmp/venv/bin/python -c 'print(1)'",
        "pip --version", "node -e 'console.log(6*7)'", "npm --version", "git --version", "curl --version",
        "test -e /etc/ssl/certs/ca-certificates.crt", "echo 'int main(){return 0;}' | gcc -x c - -o /tmp/a && /tmp/a",
        "make --version", "sudo -n true", "test -x /usr/sbin/sshd", "ps aux", "tar --version && gzip --version"])
    def test_has(self, box, command):
        box.sh(command, timeout=120)

    def test_nothing_of_the_host(self, box):
        assert box.sh("test ! -e /etc/resolv.conf && stat -c %a /etc/hostname").text == "644\n"

    def test_unbuffered(self, box):
        assert box.sh("echo $PYTHONUNBUFFERED").text == "1\n"


def test_images_table(drupe):
    lines = drupe("images").text.splitlines()
    assert lines[0].split() == ["NAME", "ID", "CREATED", "SIZE"]
    assert any(line.startswith(IMAGE) for line in lines)
