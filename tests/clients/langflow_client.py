"""What Langflow does with its published CreateOS package, one function each; run by test_client_langflow.py with an interpreter that
has both. An assertion that fails or an exception is a failure. CREATEOS_* name the server; nothing is replaced."""

import asyncio
import json
import os
import sys
import urllib.request

from lfx.utils.sandbox import run_code_in_sandbox
from lfx.utils.sandbox.base import SandboxUnavailableError


def call(method, path, body=None):
    """The server itself, to arrange what a test needs and to see what is left."""
    request = urllib.request.Request(os.environ["CREATEOS_SANDBOX_BASE_URL"] + path, method=method,
                                     data=None if body is None else json.dumps(body).encode(),
                                     headers={"X-Api-Key": os.environ["CREATEOS_SANDBOX_API_KEY"], "Content-Type": "application/json"})
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=240) as answer:
        return json.load(answer)["data"]


def live():
    return [row for row in call("GET", "/v1/sandboxes?limit=500")["data"] if row["status"] not in ("destroyed", "failed")]


def settings():
    from lfx.services.deps import get_settings_service

    return get_settings_service().settings


def backend():
    result = run_code_in_sandbox("import sys, socket\nprint('out', 6 * 7)\nprint('err', file=sys.stderr)\n"
                                 "try:\n  socket.create_connection(('192.0.2.1', 9), 3)\nexcept OSError:\n  print('alone')",
                                 global_imports="math", env={"GIVEN": "yes"})
    assert (result.stdout, result.stderr, result.exit_code) == ("out 42\nalone\n", "err\n", 0), result
    result = run_code_in_sandbox("import os, platform; print(os.environ['GIVEN'], os.cpu_count(), platform.node())", env={"GIVEN": "yes"})
    given, _, node = result.stdout.split()
    assert given == "yes" and node != os.uname().nodename, result
    result = run_code_in_sandbox("1 / 0")
    assert result.exit_code == 1 and "ZeroDivisionError" in result.error_message(), result
    assert not live()


def backend_limits():
    """What was printed before the time ran out is there; memory is at least what was asked for."""
    settings().sandbox_timeout_seconds = 3
    result = run_code_in_sandbox("import time\nprint('before')\ntime.sleep(60)")
    assert result.stdout == "before\n" and result.exit_code == 137, result  # timeout --signal=KILL says 137
    settings().sandbox_timeout_seconds = 60
    result = run_code_in_sandbox("print(next(int(l.split()[1]) for l in open('/proc/meminfo') if l.startswith('MemTotal')))")
    assert int(result.stdout) > 3.5 * 1024 * 1024, result
    settings().sandbox_memory_mb = 6000
    result = run_code_in_sandbox("print(next(int(l.split()[1]) for l in open('/proc/meminfo') if l.startswith('MemTotal')))")
    assert int(result.stdout) > 6000 * 1024, result
    os.environ["CREATEOS_SANDBOX_SHAPE"] = "s-1vcpu-1gb"
    try:
        run_code_in_sandbox("print(1)")
        raise AssertionError("a shape that is too small was taken")
    except SandboxUnavailableError:
        pass
    assert not live()


def component(**fields):
    from langflow_sandbox_createos.components.createos.createos_sandbox import CreateOSSandboxComponent

    return CreateOSSandboxComponent(_id="CreateOSSandbox-abc12", **fields)


def component_throws_away():
    made = component(python_code="import os\nos.makedirs('/workspace/artifacts/d', exist_ok=True)\n"
                                 "open('/workspace/artifacts/d/t.txt', 'w').write('text')\n"
                                 "open('/workspace/artifacts/b.bin', 'wb').write(bytes(range(256)))\nprint('done')", collect_artifacts=True)
    data = made.run_sandbox().data
    assert data["result"] == "done" and data["exit_code"] == 0 and data["artifact_count"] == 2 and not data["reused_guest"], data
    files = {row["path"]: row for row in made.collected_files().to_dict("records")}
    assert files["d/t.txt"]["text"] == "text" and files["b.bin"]["size"] == 256, files
    assert component(command="exit 7").run_sandbox().data["error"] == "Exited with code 7"
    assert not live()


def component_reuses():
    """One guest over runs: 1, 2, 3; also after it was paused; adopted when another was faster; not with another policy."""
    from langflow_sandbox_createos._client import SandboxClient

    count = "n=$(cat /root/n 2>/dev/null || echo 0); echo $((n+1)) | tee /root/n"
    seen = []
    for number in (1, 2, 3):
        if number == 3:
            call("POST", f"/v1/sandboxes/{seen[0]}/pause", {})
        data = component(command=count, session_mode="flow").run_sandbox().data
        assert data["result"] == str(number) and data["reused_guest"] == (number > 1), data
        seen.append(data["sandbox_id"])
    assert len(set(seen)) == 1 and [row["status"] for row in live()] == ["running"], seen
    client = SandboxClient()
    client.set_ingress(seen[0], enabled=True)
    assert "<port>" in client.get(seen[0])["ingress_url_template"]
    client.set_ingress(seen[0], enabled=False)
    assert "ingress_url_template" not in client.get(seen[0])

    class Late(SandboxClient):
        """Has looked before the other one made it."""

        looked = False

        def find_by_name(self, name):
            if not self.looked:
                self.looked = True
                return None
            return super().find_by_name(name)

    late = Late()
    taken, created = component(session_mode="flow")._adopt_or_create(late)
    assert taken == seen[0] and not created
    late.close()
    call("PUT", f"/v1/sandboxes/{seen[0]}/egress", {"egress": ["*"]})
    try:
        component(command=count, session_mode="flow").run_sandbox()
        raise AssertionError("a guest with another policy was taken")
    except SandboxUnavailableError:
        pass
    client.destroy(seen[0])
    client.close()
    assert component(command=count, session_mode="flow").run_sandbox().data["result"] == "1"
    for row in live():
        call("DELETE", f"/v1/sandboxes/{row['id']}")


def executor():
    """A whole flow in a guest, on an image that has lfx."""
    from langflow_sandbox_createos.executor import CreateOSExecutor
    from lfx.components.input_output import ChatInput, ChatOutput
    from lfx.execution.types import RunComplete, StepResult, Unit
    from lfx.graph.graph.base import Graph

    chat = ChatInput(_id="chat_in").set(input_value="hello flow", should_store_message=False)
    answer = ChatOutput(_id="chat_out").set(input_value=chat.message_response, should_store_message=False)
    graph = Graph(chat, answer)

    async def run():
        return [item async for item in CreateOSExecutor().execute(Unit(graph=graph))]

    items = asyncio.run(run())
    steps = [item.payload for item in items if isinstance(item, StepResult)]
    assert isinstance(items[-1], RunComplete), items
    assert {step["event"].get("vertex_id") for step in steps if step["t"] == "step"} >= {"chat_in", "chat_out"}, steps
    assert "hello flow" in str(items[-1].outputs), items[-1]
    assert not live()


if __name__ == "__main__":
    globals()[sys.argv[1]]()
