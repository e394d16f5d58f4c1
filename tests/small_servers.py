"""Servers of the tests' own on an address of this machine: a page, and a resolver that knows where it is."""

import socket
import socketserver
import struct
import threading

import pytest


def own_address():
    """An address of this machine that is not loopback; no packet is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
            return probe.getsockname()[0]
        except OSError:
            pytest.skip("this machine has no network at all")


class Web(socketserver.ThreadingMixIn, socketserver.TCPServer):
    allow_reuse_address = True
    daemon_threads = True

    class Handler(socketserver.BaseRequestHandler):
        def handle(self):
            head = b""
            while b"\r\n\r\n" not in head:
                part = self.request.recv(4096)
                if not part:
                    return
                head += part
            if head.startswith(b"GET /hold"):
                self.request.sendall(b"HTTP/1.0 200 OK\r\n\r\nheld\n")
                while self.request.recv(4096):
                    self.request.sendall(b"more\n")
                return
            self.request.sendall(b"HTTP/1.0 200 OK\r\n\r\nhello")

    def __init__(self, address):
        super().__init__((address, 0), self.Handler)
        self.address, self.port = address, self.server_address[1]
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Names(threading.Thread):
    """A resolver that knows *.drupe.test: every name there has the given address; others do not exist."""

    def __init__(self, address, at=("127.0.0.1", 0)):
        super().__init__(daemon=True)
        self.answer = socket.inet_aton(address)
        self.asked = []
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(at)
        self.port = self.socket.getsockname()[1]
        self.start()

    def run(self):
        while True:
            try:
                query, peer = self.socket.recvfrom(4096)
            except OSError:
                return
            end, labels = 12, []
            while query[end]:
                labels.append(query[end + 1:end + 1 + query[end]].decode().lower())
                end += 1 + query[end]
            name, kind = ".".join(labels), struct.unpack(">H", query[end + 1:end + 3])[0]
            self.asked.append(name)
            known = name.endswith("drupe.test")
            answers = 1 if known and kind == 1 else 0
            reply = query[:2] + struct.pack(">HHHHH", 0x8180 if known else 0x8183, 1, answers, 0, 0) + query[12:end + 5]
            if answers:
                reply += struct.pack(">HHHIH", 0xC00C, 1, 1, 300, 4) + self.answer
            self.socket.sendto(reply, peer)
