"""Private networks through the API: members find each other by name, and nobody else does."""

import secrets

import pytest

from druped import eventually

SERVE = ("import http.server,sys\nclass H(http.server.BaseHTTPRequestHandler):\n  def do_GET(self):\n"
         "    self.send_response(200); self.end_headers(); self.wfile.write(sys.argv[1].encode())\n  def log_message(self,*w): pass\n"
         "http.server.ThreadingHTTPServer(('0.0.0.0',8000),H).serve_forever()")
GET = ("import sys,urllib.request\ntry: print(urllib.request.urlopen('http://%s:8000/'%sys.argv[1],timeout=30).read().decode())\n"
       "except OSError as e: print('refused')")
NOTHING = ["240.0.0.0/4"]


@pytest.fixture
def network(api):
    """Makes networks that go with the test, after its sandboxes."""
    made = []

    def make():
        made.append(api("POST", "/v1/networks", {"name": f"net-{secrets.token_hex(4)}"}).data)
        return made[-1]

    yield make
    for one in made:
        api("DELETE", f"/v1/networks/{one['id']}")


@pytest.fixture
def boxes(network, new_sandbox):
    """new_sandbox() behind network(), so that networks are removed when nobody is in them any more."""
    return new_sandbox


def serve(api, sandbox, word):
    api("POST", f"/v1/sandboxes/{sandbox}/processes", {"cmd": "python3", "args": ["-c", SERVE, word]})
    eventually(lambda: get(api, sandbox, "127.0.0.1") == word, what="the server in the guest")


def get(api, sandbox, name):
    return api.exec(sandbox, "python3", "-c", GET, name)["stdout"].strip()


def test_a_network_and_its_object(api, druped, network):
    one = network()
    assert one["member_count"] == 0 and one["members"] == [] and one["created_at"].endswith("Z")
    listed = api("GET", "/v1/networks?limit=200").data
    assert one["id"] in [row["id"] for row in listed["data"]] and listed["pagination"]["limit"] == 200
    assert api("GET", f"/v1/networks/{one['name']}").data["id"] == one["id"]
    api("POST", "/v1/networks", {"name": one["name"]}).fails(409)
    for bad in ({}, {"name": ""}, {"name": "Not a name"}, {"name": "x" * 64}):
        api("POST", "/v1/networks", bad).fails(400)
    other = druped.api("networks-other")
    other("GET", f"/v1/networks/{one['id']}").fails(404)
    other("DELETE", f"/v1/networks/{one['id']}").fails(404)
    same = other("POST", "/v1/networks", {"name": one["name"]}).data  # names are each user's own
    assert same["id"] != one["id"]
    assert other("DELETE", f"/v1/networks/{same['name']}").data == {"ok": True}
    api("POST", "/v1/sandboxes", {"shape": "s-1vcpu-256mb", "networks": [{"id": "net-nothing"}]}).fails(404)


def test_members_find_each_other_by_name_and_nobody_else(api, network, boxes):
    one = network()
    web = boxes(name=f"web-{secrets.token_hex(3)}", networks=[{"id": one["name"]}], egress=NOTHING)
    asks = boxes(name=f"asks-{secrets.token_hex(3)}", networks=[{"id": one["id"]}], egress=NOTHING)
    outside = boxes(egress=NOTHING)
    serve(api, web["id"], "hello")
    seen = api("GET", f"/v1/networks/{one['id']}").data
    members = {member["sandbox_id"]: member for member in seen["members"]}
    assert seen["member_count"] == 2 and set(members) == {web["id"], asks["id"]}
    assert members[web["id"]]["status"] == "running" and members[web["id"]]["name"] == web["name"]
    for name in (f"{web['name']}.fc.local", f"{web['name']}.{one['name']}.fc.local", f"{web['id']}.fc.local",
                 members[web["id"]]["ip"]):
        assert get(api, asks["id"], name) == "hello", name
        assert get(api, outside["id"], name) == "refused", name
    api("DELETE", f"/v1/networks/{one['id']}").fails(409)


def test_attach_and_detach_while_running(api, network, boxes):
    one = network()
    web, asks = boxes(egress=NOTHING), boxes(egress=NOTHING)
    serve(api, web["id"], "hello")
    for sandbox in (web, asks, asks):  # again changes nothing
        assert api("POST", f"/v1/sandboxes/{sandbox['id']}/networks", {"id": one["name"]}).data == {"ok": True}
    name = f"{web['name']}.fc.local"
    assert get(api, asks["id"], name) == "hello"
    assert api("DELETE", f"/v1/sandboxes/{asks['id']}/networks/{one['id']}").data == {"ok": True}
    assert get(api, asks["id"], name) == "refused"
    api("DELETE", f"/v1/sandboxes/{asks['id']}/networks/{one['id']}").fails(404)
    api("POST", f"/v1/sandboxes/{asks['id']}/networks", {"id": "net-nothing"}).fails(404)


def test_a_forks_child_has_a_name_of_its_own(api, network, boxes):
    one = network()
    web = boxes(networks=[{"id": one["id"]}], egress=NOTHING)
    asks = boxes(networks=[{"id": one["id"]}], egress=NOTHING)
    serve(api, web["id"], "hello")
    api("POST", f"/v1/sandboxes/{web['id']}/pause")
    child = api("POST", f"/v1/sandboxes/{web['id']}/fork", {}).data
    try:
        assert get(api, asks["id"], f"{child['name']}.fc.local") == "hello"
        assert get(api, asks["id"], f"{web['name']}.fc.local") == "refused"  # it is paused
        members = {row["sandbox_id"]: row for row in api("GET", f"/v1/networks/{one['id']}").data["members"]}
        assert members[web["id"]]["status"] == "paused" and members[child["id"]]["status"] == "running"
        assert members[web["id"]]["ip"] != members[child["id"]]["ip"]
    finally:
        api("DELETE", f"/v1/sandboxes/{child['id']}")


def test_destroying_a_member_takes_it_out(api, network, boxes):
    one = network()
    gone = boxes(networks=[{"id": one["id"]}])
    api("DELETE", f"/v1/sandboxes/{gone['id']}")
    assert api("GET", f"/v1/networks/{one['id']}").data["member_count"] == 0
    assert api("DELETE", f"/v1/networks/{one['id']}").data == {"ok": True}
    api("GET", f"/v1/networks/{one['id']}").fails(404)
