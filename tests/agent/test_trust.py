"""Authorities of the host: where they go, and where nothing goes."""
import base64
import os
import struct

import pytest

import protocol as p

STORE = "/etc/ssl/certs/ca-certificates.crt"


def pem(number):
    body = base64.encodebytes(struct.pack("<I", number) * 60).decode()
    return f"-----BEGIN CERTIFICATE-----\n{body}-----END CERTIFICATE-----\n"


def bundle(*numbers):
    """Sixteen of them share a hash."""
    return struct.pack("<I", len(numbers)) + b"".join(
        p.text(f"{number:016x}") + p.text(f"{number // 16:08x}") + p.text(pem(number)) for number in numbers)


def read(vm, path):
    return vm.task(p.READ_FILE, path).stdout.decode()


def test_an_image_without_a_store_gets_one(own_vm):
    own_vm.task(p.TRUST, input=bundle(1, 2))
    text = read(own_vm, STORE)
    assert pem(1) in text and pem(2) in text
    assert own_vm.sh(f"ls -l {STORE}").stdout.startswith(b"-rw-r--r--")
    # Two with one hash get two links; the same again changes nothing.
    before = own_vm.sh("ls -l /etc/ssl/certs /usr/local/share/ca-certificates").stdout
    assert own_vm.sh("cat /etc/ssl/certs/00000000.0 /etc/ssl/certs/00000000.1").stdout.decode() == pem(1) + pem(2)
    own_vm.task(p.TRUST, input=bundle(1, 2))
    assert own_vm.sh("ls /etc/ssl/certs /usr/local/share/ca-certificates").stdout.split() == \
        own_vm.sh("ls /etc/ssl/certs /usr/local/share/ca-certificates").stdout.split()
    assert read(own_vm, STORE) == text
    assert len(before.splitlines()) == len(own_vm.sh("ls -l /etc/ssl/certs /usr/local/share/ca-certificates").stdout.splitlines())
    # What is trusted no more goes, and only that.
    own_vm.sh("echo mine > /usr/local/share/ca-certificates/mine.crt; ln -s mine.crt /etc/ssl/certs/12345678.0")
    own_vm.task(p.TRUST, input=bundle(2, 3))
    text = read(own_vm, STORE)
    assert pem(1) not in text and pem(2) in text and pem(3) in text
    listing = own_vm.sh("ls /etc/ssl/certs /usr/local/share/ca-certificates").stdout.decode()
    assert f"{1:016x}" not in listing and listing.count(f"drupe-host-{3:016x}") == 2
    assert "mine.crt" in listing and "12345678.0" in listing


def test_stores_of_other_distributions(own_vm):
    """Fedora's: links to one file, and a folder of the administrator's own; the image's authorities stay."""
    own_vm.sh("mkdir -p /etc/pki/tls/certs /etc/pki/ca-trust/extracted/pem /etc/pki/ca-trust/source/anchors /etc/ssl; rm -rf /etc/ssl/certs")
    own_vm.task(p.WRITE_FILE, "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", input=pem(9).encode())
    own_vm.sh("ln -s /etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem /etc/pki/tls/certs/ca-bundle.crt; ln -s ../pki/tls/certs /etc/ssl/certs")
    own_vm.task(p.TRUST, input=bundle(1, 9))
    for path in ("/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", "/etc/pki/tls/certs/ca-bundle.crt", STORE):
        text = read(own_vm, path)
        assert text.count(pem(9)) == 1 and text.count(pem(1)) == 1, path
    assert own_vm.sh("readlink /etc/pki/tls/certs/ca-bundle.crt").stdout == b"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem\n"
    anchors = own_vm.sh("cat /etc/pki/ca-trust/source/anchors/*").stdout.decode()
    assert anchors == pem(1)


@pytest.mark.parametrize("target", ["/root/victim", "/dev/zero", "/nowhere/at/all", STORE, "/proc/1/mem", "/root"])
def test_links_of_the_image(own_vm, target):
    """A link where the store belongs is replaced, or the store refused; what the link names is left as it was."""
    own_vm.sh("mkdir -p /etc/ssl/certs; echo precious > /root/victim")
    own_vm.sh(f"ln -s {target} {STORE}")
    try:
        own_vm.task(p.TRUST, input=bundle(1))
        replaced = True
    except p.AgentError as error:
        assert "--host-ca" in error.next_step, error
        replaced = False
    assert own_vm.sh("cat /root/victim").stdout == b"precious\n"
    assert replaced == (target in ("/root/victim", "/nowhere/at/all", STORE))
    if replaced:
        assert pem(1) in read(own_vm, STORE)
        assert own_vm.sh(f"test -h {STORE}; echo $?").stdout == b"1\n"


def test_a_bundle_is_checked(own_vm):
    good = bundle(1)
    bad_name = struct.pack("<I", 1) + p.text("../../../../root") + p.text("0badcafe") + p.text(pem(1))
    key = struct.pack("<I", 1) + p.text("0" * 16) + p.text("0badcafe") + p.text("-----BEGIN PRIVATE KEY-----\nAA==\n-----END PRIVATE KEY-----\n")
    for raw in (b"", good[:-1], good + b"x", bad_name, key, struct.pack("<I", 0xffffffff), os.urandom(100)):
        with pytest.raises(p.AgentError):
            own_vm.task(p.TRUST, input=raw)
    assert own_vm.sh("ls -d /etc/ssl 2>&1 || true").stdout != b"/etc/ssl\n"
    own_vm.task(p.TRUST, input=bundle(*range(1500)))
    assert own_vm.sh(f"grep -c BEGIN {STORE}").stdout == b"1500\n"
