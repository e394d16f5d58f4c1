"""A registry on loopback that can be made to misbehave."""

import base64
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import oci


class HostileRegistry:
    """Serves images from memory. Everything that was asked is in `requests` as (method, path, headers)."""

    def __init__(self, address="127.0.0.1"):
        self.blobs, self.manifests, self.requests = {}, {}, []
        self.cut_after = None  # Bytes of a blob after which the connection is closed, the first `cuts` times.
        self.cuts = 10**9
        self.ranges = True
        self.token = None  # Bearer token that is wanted.
        self.login = None  # "user:password" that the token service or (with basic) the registry wants.
        self.basic = False
        self.redirect_blobs = None  # Function from path to Location.
        self.replace = {}  # Path -> (status, headers, body) instead of anything else.
        self.hold = None  # An event that blob answers wait for after their first bytes.
        registry = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def answer(self, status, body=b"", **headers):
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name.replace("_", "-"), value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_GET(self):
                registry.requests.append((self.command, self.path, dict(self.headers)))
                try:
                    registry.serve(self)
                except (BrokenPipeError, ConnectionResetError):
                    self.close_connection = True

        class Server(ThreadingHTTPServer):
            def handle_error(self, *_):
                """Clients that leave are what is played here."""

        self.server = Server((address, 0), Handler)
        self.server.daemon_threads = True
        self.address = f"{address}:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    def close(self):
        if self.hold:
            self.hold.set()
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()

    def add(self, repository, tag, image):
        self.blobs.update(image.blobs)
        self.add_manifest(repository, tag, image.manifest_bytes, image.manifest["mediaType"])
        return f"{self.address}/{repository}:{tag}"

    def add_manifest(self, repository, tag, data, media):
        for key in (tag, oci.digest(data)):
            self.manifests[f"/v2/{repository}/manifests/{key}"] = (data, media)
        return f"{self.address}/{repository}:{tag}"

    def serve(self, handler):
        path = handler.path
        if path in self.replace:
            status, headers, body = self.replace[path]
            return handler.answer(status, body, **headers)
        if path.startswith("/token"):
            return self.serve_token(handler)
        given = handler.headers.get("Authorization", "")
        if self.token and given != f"Bearer {self.token}":
            realm = f'Bearer realm="http://{self.address}/token",service="loopback",scope="repository:x:pull"'
            return handler.answer(401, WWW_Authenticate=realm)
        if self.basic and given != "Basic " + base64.b64encode(self.login.encode()).decode():
            return handler.answer(401, WWW_Authenticate='Basic realm="loopback"')
        if path in self.manifests:
            data, media = self.manifests[path]
            return handler.answer(200, data, Content_Type=media)
        if "/blobs/" in path:
            return self.serve_blob(handler)
        return handler.answer(404, b'{"errors":[{"code":"MANIFEST_UNKNOWN"}]}')

    def serve_token(self, handler):
        if self.login and handler.headers.get("Authorization") != "Basic " + base64.b64encode(self.login.encode()).decode():
            return handler.answer(401)
        return handler.answer(200, json.dumps({"token": self.token}).encode())

    def serve_blob(self, handler):
        data = self.blobs.get(handler.path.rsplit("/", 1)[1])
        if data is None:
            return handler.answer(404)
        if self.redirect_blobs:
            return handler.answer(307, Location=self.redirect_blobs(handler.path))
        begin = 0
        wanted = handler.headers.get("Range")
        if wanted and self.ranges:
            begin = int(wanted.removeprefix("bytes=").rstrip("-"))
            handler.send_response(206)
            handler.send_header("Content-Range", f"bytes {begin}-{len(data) - 1}/{len(data)}")
        else:
            handler.send_response(200)
        handler.send_header("Content-Length", str(len(data) - begin))
        handler.end_headers()
        rest = data[begin:]
        if self.cut_after is not None and len(rest) > self.cut_after and self.cuts > 0:
            self.cuts -= 1
            handler.wfile.write(rest[: self.cut_after])
            handler.wfile.flush()
            if self.hold:
                self.hold.wait()
            handler.close_connection = True
            return
        handler.wfile.write(rest)
