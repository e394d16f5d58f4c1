"""Ours beside the API: looking at files, searching them, whole trees, several forks at once."""

import io
import json
import tarfile

import pytest

from druped import Api


@pytest.fixture(scope="module")
def tree(api, sandbox):
    api.sh(sandbox, "mkdir -p /tmp/tree/src/deep && cd /tmp/tree && printf 'one\\nTwo needle\\n' > src/a.py && printf 'Needle\\0x' > src/deep/b.bin && "
                    "printf 'no end needle' > src/deep/c.py && ln -s src/a.py link && touch 'odd name\n' && head -c 3000000 /dev/zero > zeros")
    return "/tmp/tree"


def ask(api, sandbox, what, **query):
    from urllib.parse import urlencode
    return api("GET", f"/v1/sandboxes/{sandbox}/files/{what}?{urlencode(query)}")


def lines(answer):
    assert answer.status == 200 and answer.headers["content-type"] == "application/x-ndjson", answer
    parsed = [json.loads(line) for line in answer.body.splitlines()]
    assert parsed[-1]["end"] is True
    return parsed[:-1]


def test_stat(api, sandbox, tree):
    data = ask(api, sandbox, "stat", path=f"{tree}/zeros").data
    assert data["type"] == "file" and data["size"] == 3_000_000 and data["mode"] == 0o644 and data["mtime"].endswith("Z")
    api.sh(sandbox, "truncate -s 1T /tmp/sparse")
    sparse = ask(api, sandbox, "stat", path="/tmp/sparse").data
    assert sparse["size"] == 2**40 and sparse["allocated"] == 0
    ask(api, sandbox, "stat", path="/nothing").fails(404)
    ask(api, sandbox, "stat", path="relative").fails(400)


def test_list(api, sandbox, tree):
    assert sorted(entry["name"] for entry in lines(ask(api, sandbox, "list", path=tree))) == ["link", "odd name\n", "src", "zeros"]
    deep = lines(ask(api, sandbox, "list", path=tree, recursive="true", glob="*.py"))
    assert sorted(entry["name"] for entry in deep) == ["src/a.py", "src/deep/c.py"]
    assert [entry["name"] for entry in lines(ask(api, sandbox, "list", path=tree, recursive="true", glob="src/*/*.py"))] == ["src/deep/c.py"]
    ask(api, sandbox, "list", path="/nothing").fails(404)
    ask(api, sandbox, "list", path=tree, glob="x" * 300).fails(400)


def test_grep(api, sandbox, tree):
    found = lines(ask(api, sandbox, "grep", path=tree, text="needle"))
    assert sorted(map(str, found)) == sorted(map(str, [{"name": "src/a.py", "line": 2, "text": "Two needle"},
                                                      {"name": "src/deep/c.py", "line": 1, "text": "no end needle"}]))
    assert [one["name"] for one in lines(ask(api, sandbox, "grep", path=tree, text="TWO", ignore_case="true", glob="*.py"))] == ["src/a.py"]
    api.sh(sandbox, "mkdir -p /tmp/many && yes needle | head -n 5000 > /tmp/many/f")
    answer = ask(api, sandbox, "grep", path="/tmp/many", text="needle")
    assert json.loads(answer.body.splitlines()[-1]) == {"end": True, "truncated": True} and len(lines(answer)) == 1000
    ask(api, sandbox, "grep", path=tree).fails(400)


def test_trees_both_ways(api, sandbox, tree):
    answer = ask(api, sandbox, "tar", path=tree)
    assert answer.status == 200 and answer.headers["content-type"] == "application/x-tar"
    with tarfile.open(fileobj=io.BytesIO(answer.body)) as tar:
        assert {member.name for member in tar} >= {"tree/src/a.py", "tree/link", "tree/odd name\n"}
    done = api("PUT", f"/v1/sandboxes/{sandbox}/files/tar?path=/tmp/copy/of", answer.body).data
    assert done == {"bytes": len(answer.body), "path": "/tmp/copy/of"}
    assert api.sh(sandbox, "diff -r --no-dereference /tmp/tree /tmp/copy/of/tree && echo same") == "same\n"
    api("PUT", f"/v1/sandboxes/{sandbox}/files/tar?path=/tmp/copy", b"nonsense" * 200).fails(400)
    ask(api, sandbox, "tar", path="/nothing").fails(404)


def test_output_is_never_cut_silently(api, sandbox):
    result = api.exec(sandbox, "sh", "-c", "head -c 17000000 /dev/zero | tr '\\0' x; exit 3")
    assert len(result["stdout"]) == 16 << 20 and result["exit_code"] == 3 and result["truncated"] is True
    assert "16 MiB" in result["error"]
    assert "error" not in api.exec(sandbox, "sh", "-c", "head -c 1000000 /dev/zero | tr '\\0' x")


def test_several_forks_of_a_running_sandbox(api, new_sandbox):
    sandbox = new_sandbox(name="many", envs={"A": "1"})["id"]
    api.sh(sandbox, "(i=0; while :; do i=$((i+1)); echo $i > /tmp/count; sleep 0.1; done) >/dev/null 2>&1 & echo seed > /root/seed")
    children = api("POST", f"/v1/sandboxes/{sandbox}/forks", {"count": 3, "egress": ["240.0.0.0/4"]}).data["sandboxes"]
    try:
        assert len({child["id"] for child in children} | {sandbox}) == 4 and len({child["name"] for child in children}) == 3
        assert api.state(sandbox) == "running"
        for number, child in enumerate(children):
            assert child["status"] == "running" and child["forked_from"] == sandbox and child["egress"] == ["240.0.0.0/4"]
            assert api.sh(child["id"], f"cat /root/seed; echo {number} > /root/seed; test -s /tmp/count && echo $A") == "seed\n1\n"
        assert [api.sh(child["id"], "cat /root/seed") for child in children] == ["0\n", "1\n", "2\n"]
        assert api.sh(sandbox, "cat /root/seed") == "seed\n"
    finally:
        for child in children:
            api("DELETE", f"/v1/sandboxes/{child['id']}")
    for count in (0, 65, "2", -1):
        api("POST", f"/v1/sandboxes/{sandbox}/forks", {"count": count}).fails(400)
    # The call of the API itself is as it was.
    api("POST", f"/v1/sandboxes/{sandbox}/fork", {}).fails(409)
