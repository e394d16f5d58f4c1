"""What a sandbox may reach: none, open, policy; published ports; changes while it runs; pause, resume and fork.

The servers are the test's own, on an address of this machine that is opened by name (--allow-private)."""

import json
import os
import socket
import subprocess
import urllib.request

import pytest

from conftest import BINARY, IMAGE, Box, Drupe, box_maker, eventually
from small_servers import Names, Web, own_address

pytestmark = pytest.mark.skipif(not BINARY.parent.joinpath("drupe-net").exists(), reason="build/bin/drupe-net is not built")

CONNECT = ("import socket,sys,time\nb=time.monotonic()\ntry:\n  s=socket.create_connection((sys.argv[1],int(sys.argv[2])),10)\n"
           "  s.sendall(b'GET / HTTP/1.0\\r\\nHost: '+sys.argv[3].encode()+b'\\r\\n\\r\\n')\n  d=b''\n"
           "  while True:\n    c=s.recv(4096)\n    if not c: break\n    d+=c\n  r='ok '+d.decode().split('\\n')[-1] if d else 'closed'\n"
           "except OSError as e:\n  r='failed %s'%(e.errno)\nprint(r,'%.3f'%(time.monotonic()-b))")


@pytest.fixture(scope="module")
def web():
    server = Web(own_address())
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def names(web):
    resolver = Names(web.address)
    os.environ["DRUPE_RESOLVERS"] = f"127.0.0.1:{resolver.port}"
    yield resolver
    del os.environ["DRUPE_RESOLVERS"]
    resolver.socket.close()


@pytest.fixture(scope="module")
def net_drupe(drupe, names):
    """Knows the test's resolver."""
    return Drupe(drupe.home)


@pytest.fixture
def net_box(net_drupe):
    yield from box_maker(net_drupe)


def connect(box, host, port, name=None):
    """("ok hello" | "failed ERRNO" | "closed", seconds)"""
    words = box.exec("python3", "-c", CONNECT, host, str(port), name or host).text.split()
    return " ".join(words[:-1]), float(words[-1])


def log(box):
    return [json.loads(line) for line in box.drupe("net", "log", "--json", box.name).text.splitlines()]


def test_none_fails_at_once(box, web):
    outcome, seconds = connect(box, web.address, web.port)
    assert outcome == "failed 101", outcome  # ENETUNREACH
    assert seconds < 1
    assert box.sh("test ! -e /etc/resolv.conf").code == 0
    assert box.info()["summary"]["network"]["mode"] == "none"
    assert box.info()["live"]["network_pid"] == 0


def test_open_reaches_what_is_opened(net_box, web):
    one = net_box("--net", "open", "--allow-private", web.address)
    assert connect(one, web.address, web.port)[0] == "ok hello"
    entries = log(one)
    assert any(entry["allowed"] and entry.get("address") == web.address and entry.get("port") == web.port for entry in entries), entries
    assert one.info()["summary"]["network"]["mode"] == "open"


def test_open_leaves_private_addresses_closed(net_box, web):
    one = net_box("--net", "open")
    for host in (web.address, "127.0.0.1", "169.254.169.254", "10.1.2.3"):
        outcome, seconds = connect(one, host, web.port)
        assert not outcome.startswith("ok"), (host, outcome)
        assert seconds < 3, (host, seconds)  # An emulated processor starts Python meanwhile.
    assert any(not entry["allowed"] and entry["rule"].startswith("closed") for entry in log(one))


def test_the_network_is_there_when_the_command_starts(net_drupe, web):
    result = net_drupe("run", "--net", "open", "--allow-private", web.address, IMAGE,
                       "python3", "-c", CONNECT, web.address, str(web.port), "x")
    assert result.text.startswith("ok hello"), result


def test_policy_by_name(net_box, web, names):
    one = net_box("--allow", f"good.drupe.test:{web.port}", "--allow-private", web.address)
    assert connect(one, "good.drupe.test", web.port)[0] == "ok hello"
    before = list(names.asked)
    outcome, _ = connect(one, "bad.drupe.test", web.port)
    assert outcome.startswith("failed"), outcome
    assert "bad.drupe.test" not in names.asked[len(before):]
    assert connect(one, web.address, web.port + 1)[0].startswith("failed")
    assert any(entry.get("name") == "bad.drupe.test" and not entry["allowed"] for entry in log(one))


def test_mistakes_are_told_before_anything_is_made(net_drupe):
    def refused(*flags):
        result = net_drupe("create", *flags, IMAGE, code=None)
        assert result.code == 125 and result.error.startswith("drupe: "), result
        return result.error

    assert "column" in refused("--allow", "exa mple.com")
    assert "@nonsense" in refused("--allow", "@nonsense")
    refused("--net", "none", "-p", "8080:80")
    refused("--net", "open", "-p", "80")
    refused("--net", "open", "--allow-private", "0.0.0.0/0")
    assert "bridge" in refused("--net", "bridge")


def test_set_is_in_force_when_it_returns(net_box, web):
    one = net_box("--net", "open", "--allow-private", web.address)
    script = ("import socket,sys\ns=socket.create_connection((sys.argv[1],int(sys.argv[2])))\ns.sendall(b'GET /hold HTTP/1.0\\r\\n\\r\\n')\n"
              "print(s.recv(100),flush=True)\ntry:\n  print('then',s.recv(100),flush=True)\nexcept OSError as e: print('reset',flush=True)")
    holder = one.drupe.popen("exec", one.name, "python3", "-c", script, web.address, str(web.port), stdout=subprocess.PIPE)
    try:
        assert b"200" in holder.stdout.readline()
        one.drupe("net", "set", "--net", "open", one.name)
        # What the old policy allowed and the new one does not is cut.
        assert holder.stdout.readline().startswith((b"reset", b"then b''"))
    finally:
        holder.kill()
        holder.wait()
    assert connect(one, web.address, web.port)[0].startswith("failed")
    one.drupe("net", "set", "--net", "open", "--allow-private", web.address, one.name)
    assert connect(one, web.address, web.port)[0] == "ok hello"
    assert web.address in one.drupe("net", "show", one.name).text


def test_a_network_can_be_given_and_taken(net_box, web):
    one = net_box()
    one.drupe("net", "set", "--net", "open", "--allow-private", web.address, one.name)
    assert connect(one, web.address, web.port)[0] == "ok hello"
    one.drupe("net", "set", "--net", "none", one.name)
    outcome, seconds = connect(one, web.address, web.port)
    assert outcome == "failed 101" and seconds < 1
    one.drupe("pause", one.name)
    one.drupe("net", "set", "--net", "open", "--allow-private", web.address, one.name)
    one.drupe("resume", one.name)
    assert connect(one, web.address, web.port)[0] == "ok hello"


def test_publish(net_box):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    one = net_box("--net", "policy", "-p", f"{port}:8000", command=("python3", "-m", "http.server", "8000", "--directory", "/etc"))

    def fetched():
        try:
            opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            return opener.open(f"http://127.0.0.1:{port}/hostname", timeout=5).read()
        except OSError:
            return None

    assert eventually(fetched, what="the published port").decode().strip() == one.exec("hostname").text.strip()
    assert socket.socket().connect_ex((own_address(), port)) != 0
    # A second sandbox cannot have the port.
    refused = one.drupe("run", "--net", "policy", "-p", f"{port}:8000", IMAGE, "true", code=None)
    assert refused.code == 125 and str(port) in refused.error, refused
    one.drupe("pause", one.name)
    one.drupe("resume", one.name)
    assert eventually(fetched, what="the published port after a resume")


HOLD = ("import socket,sys,time\ns=socket.create_connection((sys.argv[1],int(sys.argv[2])))\ns.sendall(b'GET /hold HTTP/1.0\\r\\n\\r\\n')\n"
        "s.recv(100)\nopen('/tmp/held','w').write('held')\nn=0\n"
        "try:\n  while True:\n    d=s.recv(100)\n    n+=1\n    open('/tmp/state','w').write('closed' if not d else 'alive')\n    if not d: break\n"
        "except OSError as e:\n  open('/tmp/state','w').write('reset')\n")


def test_a_resume_resets_connections_and_keeps_the_policy(net_box, web):
    one = net_box("--net", "open", "--allow-private", web.address, command=("sh", "-c", "sleep infinity"))
    one.exec("python3", "-c", HOLD, web.address, str(web.port), flags=("-d",))
    eventually(lambda: one.sh("cat /tmp/held 2>/dev/null; true").text == "held", 60)
    one.drupe("pause", one.name)
    one.drupe("resume", one.name)
    # A process that only reads is woken.
    eventually(lambda: one.sh("cat /tmp/state 2>/dev/null; true").text == "reset", what="the reset")
    assert connect(one, web.address, web.port)[0] == "ok hello"
    one.drupe("stop", one.name)
    one.drupe("start", one.name)
    assert connect(one, web.address, web.port)[0] == "ok hello"


def test_a_fork_resets_the_childs_connections_only(net_box, web):
    one = net_box("--net", "open", "--allow-private", web.address)
    one.exec("python3", "-c", HOLD, web.address, str(web.port), flags=("-d",))
    eventually(lambda: one.sh("cat /tmp/held 2>/dev/null; true").text == "held", 60)
    child_name = json.loads(one.drupe("fork", "--json", one.name, timeout=120).out)[0]["name"]
    net_box.names.append(child_name)
    child = Box(one.drupe, child_name)
    eventually(lambda: child.sh("cat /tmp/state 2>/dev/null; true").text == "reset", what="the reset in the child")
    assert one.sh("cat /tmp/state 2>/dev/null; true").text == ""
    for box in (one, child):
        assert connect(box, web.address, web.port)[0] == "ok hello"
    macs = {box.exec("cat", "/sys/class/net/eth0/address").text for box in (one, child)}
    assert len(macs) == 2
    addresses = {box.sh("cat /proc/net/fib_trie | grep -c 198.19.254.2").text for box in (one, child)}
    assert addresses != {"0\n"} and len(addresses) == 1


def test_a_killed_network_process_comes_back(net_box, web):
    """Whoever waits for bytes is told; the guest goes on; nothing that was counted or noted is lost."""
    one = net_box("--net", "open", "--allow-private", web.address, "--net-quota", "100m")
    one.exec("python3", "-c", HOLD, web.address, str(web.port), flags=("-d",))
    eventually(lambda: one.sh("cat /tmp/held 2>/dev/null; true").text == "held", 60)
    # A process of the guest's own tells a broken guest from a broken network.
    one.sh("(while :; do date +%s >/tmp/alive; sleep 1; done) >/dev/null 2>&1 &")
    entries = log(one)
    first = one.info()["live"]["network_pid"]
    os.kill(first, 9)
    eventually(lambda: one.sh("cat /tmp/state 2>/dev/null; true").text == "reset", what="the reset")
    before = one.sh("cat /tmp/alive").text
    eventually(lambda: one.sh("cat /tmp/alive").text != before, what="the guest's own work")
    assert one.info()["live"]["network_pid"] not in (0, first)
    assert log(one)[:len(entries)] == entries
    assert connect(one, web.address, web.port)[0] == "ok hello"
    assert log(one)[-1]["seq"] > entries[-1]["seq"]
    assert one.state == "running"


def test_a_killed_network_process_gives_no_quota_back(net_box, web):
    one = net_box("--net", "open", "--allow-private", web.address, "--net-quota", "1k")
    for _ in range(30):
        if not connect(one, web.address, web.port)[0].startswith("ok"):
            break
    first = one.info()["live"]["network_pid"]
    os.kill(first, 9)
    eventually(lambda: one.info()["live"]["network_pid"] not in (0, first), what="the new process")
    assert not connect(one, web.address, web.port)[0].startswith("ok")


CACHED = ("import socket,sys,time\na=socket.gethostbyname(sys.argv[1])\nopen('/tmp/known','w').write(a)\n"
          "while not __import__('os').path.exists('/tmp/go'): time.sleep(0.2)\n"
          "try:\n  s=socket.create_connection((a,int(sys.argv[2])),10)\n"
          "  s.sendall(b'GET / HTTP/1.0\\r\\nHost: '+sys.argv[1].encode()+b'\\r\\n\\r\\n')\n  r='ok' if s.recv(100) else 'closed'\n"
          "except OSError as e:\n  r='failed %s'%e.errno\nopen('/tmp/came','w').write(r)")


def test_an_address_that_a_program_knows_stays_usable_after_resume_and_fork(net_box, web, names):
    one = net_box("--allow", f"good.drupe.test:{web.port}", "--allow-private", web.address)
    one.exec("python3", "-c", CACHED, "good.drupe.test", str(web.port), flags=("-d",))
    eventually(lambda: one.sh("cat /tmp/known 2>/dev/null; true").text == web.address, 60)
    one.drupe("pause", one.name)
    one.drupe("resume", one.name)
    child_name = json.loads(one.drupe("fork", "--json", one.name, timeout=120).out)[0]["name"]
    net_box.names.append(child_name)
    child = Box(one.drupe, child_name)
    asked = len(names.asked)
    for box in (one, child):
        box.sh("touch /tmp/go")
        assert eventually(lambda box=box: box.sh("cat /tmp/came 2>/dev/null; true").text, 60) == "ok"
    assert len(names.asked) == asked


def test_taken_away_published_ports_refuse_at_once(net_box):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    one = net_box("--net", "policy", "-p", f"{port}:8000")  # where nobody listens
    with socket.create_connection(("127.0.0.1", port), 20) as waiting:
        one.drupe("net", "set", "--net", "none", one.name)
        try:
            assert waiting.recv(1) == b""
        except ConnectionResetError:
            pass
    with socket.socket() as late:
        assert late.connect_ex(("127.0.0.1", port)) == 111


class OtherResolvConf(Drupe):
    """Starts drupe, and with it what it starts, where /etc/resolv.conf is another file."""

    def __init__(self, home, file):
        super().__init__(home)
        self.file = file
        self.env.pop("DRUPE_RESOLVERS", None)

    def popen(self, *args, env=None, **options):
        options.setdefault("stdin", subprocess.DEVNULL)
        inside = 'mount --bind "$0" /etc/resolv.conf && exec "$@"'
        return subprocess.Popen(["unshare", "-m", "--propagation", "private", "sh", "-c", inside, str(self.file), BINARY, *args],
                                env={**self.env, **(env or {})}, **options)


def test_the_hosts_new_resolvers_are_used_by_what_runs(drupe, web, tmp_path):
    """After a suspend, or with a VPN: the sandbox keeps its policy and its process, and asks elsewhere."""
    try:
        resolver = Names(web.address, ("127.77.0.1", 53))
    except PermissionError:
        pytest.skip("no right to serve at port 53")
    if subprocess.run(["unshare", "-m", "true"]).returncode != 0:
        pytest.skip("no mount namespace here")
    file = tmp_path / "resolv.conf"
    file.write_text("nameserver 127.77.0.9\n")  # where nobody answers
    boxes = box_maker(OtherResolvConf(drupe.home, file))
    try:
        one = next(boxes)("--allow", f"good.drupe.test:{web.port}", "--allow-private", web.address)
        process = one.info()["live"]["network_pid"]
        assert connect(one, "good.drupe.test", web.port)[0].startswith("failed")
        file.write_text("nameserver 127.77.0.1\n")
        assert eventually(lambda: connect(one, "good.drupe.test", web.port)[0] == "ok hello", 60)
        assert connect(one, "127.77.0.1", 53)[0].startswith("failed")
        assert one.info()["live"]["network_pid"] == process
        # Whoever takes its place knows them, too.
        os.kill(process, 9)
        eventually(lambda: one.info()["live"]["network_pid"] not in (0, process), what="the new process")
        assert connect(one, "good.drupe.test", web.port)[0] == "ok hello"
    finally:
        boxes.close()
        resolver.socket.close()


def test_counters(net_box, web):
    one = net_box("--net", "open", "--allow-private", web.address)
    connect(one, web.address, web.port)
    sample = json.loads(one.drupe("stats", "--no-stream", "--json", one.name).out.splitlines()[-1])[0]
    assert sample["network"]["connections"] >= 1
    assert sample["network"]["bytes_in"] > 0 and sample["network"]["bytes_out"] > 0


def test_quota(net_box, web):
    one = net_box("--net", "open", "--allow-private", web.address, "--net-quota", "1k")
    for _ in range(30):
        outcome, _ = connect(one, web.address, web.port)
        if not outcome.startswith("ok"):
            break
    assert not outcome.startswith("ok")


def test_following_the_log(net_box, web):
    one = net_box("--net", "open", "--allow-private", web.address)
    follower = one.drupe.popen("net", "log", "-f", one.name, stdout=subprocess.PIPE)
    try:
        connect(one, web.address, web.port)
        line = follower.stdout.readline().decode()
        assert "allowed" in line and f"{web.address}:{web.port}" in line, line
        one.drupe("rm", "-f", one.name)
        assert follower.wait(timeout=20) == 0
    finally:
        follower.kill()
        follower.wait()


def test_none_has_no_log(box):
    assert "no network" in box.drupe("net", "log", box.name, code=1).error
