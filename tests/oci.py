"""Makes OCI images by hand: layers, configs, manifests, layouts, and pushes to a registry. Every part can be made wrong."""

import gzip
import hashlib
import io
import json
import tarfile
import urllib.request


def digest(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


def layer(entries):
    """A tar of (name, content or TarInfo) pairs; content None is a folder."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, content in entries:
            if isinstance(content, tarfile.TarInfo):
                content.name = name
                tar.addfile(content)
                continue
            info = tarfile.TarInfo(name)
            info.mode = 0o755
            if content is None:
                info.type = tarfile.DIRTYPE
                tar.addfile(info)
            else:
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def special(kind, link="", major=0, minor=0):
    info = tarfile.TarInfo()
    info.type, info.linkname, info.devmajor, info.devminor, info.mode = kind, link, major, minor, 0o777
    return info


class Image:
    """Blobs by digest, and the digest of the manifest."""

    def __init__(self, layers, config=None, compress=gzip.compress, media="application/vnd.oci.image.layer.v1.tar+gzip"):
        self.blobs = {}
        descriptors = []
        for plain in layers:
            packed = compress(plain)
            descriptors.append({"mediaType": media, "digest": self.add(packed), "size": len(packed)})
        self.config = {"architecture": "amd64", "os": "linux", "config": config or {},
                       "rootfs": {"type": "layers", "diff_ids": [digest(plain) for plain in layers]}}
        packed = json.dumps(self.config).encode()
        self.manifest = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
                         "config": {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": self.add(packed), "size": len(packed)},
                         "layers": descriptors}

    def add(self, data):
        self.blobs[digest(data)] = data
        return digest(data)

    @property
    def manifest_bytes(self):
        return json.dumps(self.manifest).encode()

    def layout(self, path, name="test:1"):
        """Writes an OCI layout tar to `path`."""
        blobs = {**self.blobs, digest(self.manifest_bytes): self.manifest_bytes}
        index = {"schemaVersion": 2, "manifests": [
            {"mediaType": self.manifest["mediaType"], "digest": digest(self.manifest_bytes), "size": len(self.manifest_bytes),
             "annotations": {"org.opencontainers.image.ref.name": name, "io.containerd.image.name": name}}]}
        with tarfile.open(path, "w") as tar:
            def put(entry, data):
                info = tarfile.TarInfo(entry)
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
            put("oci-layout", b'{"imageLayoutVersion": "1.0.0"}')
            put("index.json", json.dumps(index).encode())
            for key, data in blobs.items():
                put("blobs/" + key.replace(":", "/"), data)
        return path


class Registry:
    """Pushes to a real registry on loopback."""

    def __init__(self, address):
        self.base = f"http://{address}/v2"
        self.opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def request(self, method, url, data=None, headers=None):
        return self.opener.open(urllib.request.Request(url, data=data, method=method, headers=headers or {}))

    def push_blob(self, repository, data):
        answer = self.request("POST", f"{self.base}/{repository}/blobs/uploads/", b"")
        location = answer.headers["Location"]
        separator = "&" if "?" in location else "?"
        self.request("PUT", f"{location}{separator}digest={digest(data)}", data, {"Content-Type": "application/octet-stream"})

    def push(self, repository, tag, image):
        for data in image.blobs.values():
            self.push_blob(repository, data)
        return self.push_manifest(repository, tag, image.manifest_bytes, image.manifest["mediaType"])

    def push_manifest(self, repository, tag, data, media):
        self.request("PUT", f"{self.base}/{repository}/manifests/{tag}", data, {"Content-Type": media})
        return digest(data)


def busybox_layer():
    """A root file system of one static program; None where Debian's busybox-static is not installed."""
    from pathlib import Path

    program = Path("/bin/busybox")
    # A dynamic program names its loader right behind the headers.
    if not program.exists() or b"ld-linux" in program.read_bytes()[:4096]:
        return None
    entries = [(name, None) for name in ("bin", "etc", "tmp", "proc", "sys", "dev", "root")]
    entries.append(("bin/busybox", program.read_bytes()))
    for tool in ("sh", "cat", "echo", "ls", "env", "pwd", "id", "sleep", "test", "readlink", "stat", "true", "sha256sum"):
        entries.append((f"bin/{tool}", special(tarfile.SYMTYPE, "busybox")))
    entries.append(("etc/passwd", b"root:x:0:0:root:/root:/bin/sh\napp:x:1000:1000::/tmp:/bin/sh\n"))
    entries.append(("etc/group", b"root:x:0:\napp:x:1000:\n"))
    return layer(entries)
