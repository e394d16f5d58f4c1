"""What users of the published Python client do, one function each; run by test_client_python.py with the client's own
interpreter. An assertion that fails or an exception is a failure."""

import sys

import time

from createos import (APIError, Client, CreateSandboxRequest, ForkSandboxRequest, ManagedProcessCreateRequest, ManagedProcessSignal,
                      PTYSize, RunCommandRequest, TemplateCreateRequest, TemplateStatus)

SHAPE = "s-1vcpu-256mb"


def request(**fields):
    return CreateSandboxRequest(shape=SHAPE, **fields)


def run(sandbox, command, *arguments):
    return sandbox.run_command(RunCommandRequest(command=command, arguments=list(arguments))).result


def hello_world(client):
    assert client.health().up and client.readiness().ready
    before = client.who_am_i()
    assert before.user_id
    sandbox = client.create_sandbox(request())
    try:
        result = run(sandbox, "uname", "-a")
        assert result.exit_code == 0 and "Linux" in result.standard_output
        assert client.get_sandbox(sandbox.id).name == sandbox.name
        assert sandbox.id in [one.id for one in client.list_sandboxes()]
        assert client.who_am_i().stats.running >= 1
    finally:
        sandbox.destroy()
    sandbox.wait_until_destroyed()


def command_streaming(client):
    sandbox = client.create_sandbox(request())
    try:
        sandbox.files.upload("/tmp/script.py", b"import time\nfor i in range(3): print('result', i, flush=True)\nprint('\\u2028\\u0085')\n")
        with sandbox.stream_command(RunCommandRequest(command="python3", arguments=["/tmp/script.py"])) as stream:
            events = list(stream)
        text = "".join(event.data for event in events if event.type == "stdout")
        assert text == "result 0\nresult 1\nresult 2\n\u2028\u0085\n", text
        assert events[-1].type == "exit" and events[-1].exit_code == 0, events
    finally:
        sandbox.destroy()


def files_and_snapshots(client):
    base = client.create_sandbox(request())
    made = [base]
    try:
        base.files.upload("/root/seed.txt", b"seed")
        assert run(base, "cat", "/root/seed.txt").standard_output == "seed"
        base.pause()
        base.wait_until_paused()
        child = base.fork(ForkSandboxRequest(start_paused=True))
        made.append(child)
        child.wait_until_paused()
        child.resume()
        child.wait_until_running()
        assert run(child, "cat", "/root/seed.txt").standard_output == "seed"
        child.files.upload("/root/seed.txt", b"child")
        base.resume()
        base.wait_until_running()
        with base.files.download("/root/seed.txt") as stream:
            assert stream.read() == b"seed"
    finally:
        for one in made:
            one.destroy()


def managed_process(client):
    sandbox = client.create_sandbox(request())
    try:
        process = sandbox.processes.create(ManagedProcessCreateRequest(command="sh", arguments=["-c", "read x; echo got $x; echo err >&2; exit 4"]))
        assert process.state == "running" and process.process_id in [one.process_id for one in sandbox.processes.list()]
        assert sandbox.processes.input(process.process_id, "it\n") == 1
        with sandbox.processes.connect(process.process_id) as stream:
            events = list(stream)
        assert b"".join(event.data for event in events if event.stream == "stdout") == b"got it\n", events
        assert events[-1].type == "exit" and events[-1].exit_code == 4, events
        waited = sandbox.processes.wait(process.process_id)
        assert waited.leader_exited and waited.exit_code == 4
        terminal = sandbox.processes.create(ManagedProcessCreateRequest(command="cat", pty=PTYSize(rows=10, cols=20)))
        assert terminal.kind == "pty"
        sandbox.processes.resize(terminal.process_id, PTYSize(rows=20, cols=40))
        sandbox.processes.signal(terminal.process_id, ManagedProcessSignal.HANGUP)
        assert sandbox.processes.wait(terminal.process_id).signal == "SIGHUP"
        server = sandbox.processes.create(ManagedProcessCreateRequest(command="python3", arguments=["-m", "http.server", "8000"]))
        sandbox.wait_for_port(8000)
        assert sandbox.processes.delete(server.process_id).state == "exited"
    finally:
        sandbox.destroy()


def errors(client):
    try:
        client.get_sandbox("sb-00000000000000000000000000")
        raise AssertionError("a sandbox that is not there was found")
    except APIError as error:
        assert error.status_code == 404 and "not found" in str(error), error
    try:
        client.create_sandbox(CreateSandboxRequest(shape="nonsense"))
        raise AssertionError("a shape that is not there was accepted")
    except APIError as error:
        assert error.status_code == 400 and "choices" in str(error), error


def catalogue(client):
    assert "s-4vcpu-8gb" in [shape.id for shape in client.list_shapes()]
    assert "devbox:1" in client.list_root_file_systems().root_file_systems


def settings(client):
    sandbox = client.create_sandbox(request(environment_variables={"A": "1"}, egress_rules=["240.0.0.0/4"]))
    try:
        assert sandbox.egress().egress_rules == ["240.0.0.0/4"]
        assert sandbox.set_egress([]).egress_rules == []
        assert sandbox.egress().egress_rules == []
        sandbox.set_auto_pause(60)
        assert sandbox.refresh().data.auto_pause_after_seconds == 60
        sandbox.set_auto_pause(None)
        assert not sandbox.refresh().data.auto_pause_after_seconds
        assert sandbox.add_ssh_public_keys(["ssh-ed25519 AAAAC3Nza x"]) == 1
        assert sandbox.shell("echo $A").result.standard_output == "1\n"
        assert client.get_sandbox_by_ip(sandbox.ip_address).id == sandbox.id
    finally:
        sandbox.destroy()


def custom_template(client):
    dockerfile = "FROM nodeops/sandbox:debian\nRUN echo made > /etc/made\nENV MADE=yes\n"
    template = client.templates.create(TemplateCreateRequest(name=f"python-{time.time_ns()}", dockerfile=dockerfile))
    try:
        while template.status in (TemplateStatus.PENDING, TemplateStatus.BUILDING):
            time.sleep(0.5)
            template = client.templates.get(template.id)
        assert template.status == TemplateStatus.READY, client.templates.logs(template.id)
        assert template.base == "nodeops/sandbox:debian" and template.ext4_size_bytes > 0 and template.built_at
        assert "RUN echo made" in client.templates.logs(template.id)
        assert template.id in [one.id for one in client.templates.list()]
        sandbox = client.create_sandbox(request(rootfs=template.id))
        try:
            assert run(sandbox, "sh", "-c", "cat /etc/made; echo $MADE").standard_output == "made\nyes\n"
        finally:
            sandbox.destroy()
    finally:
        client.templates.delete(template.id)


def access_tokens(client):
    sandbox = client.create_sandbox(request())
    try:
        assert not sandbox.get_access_token().enabled
        first = sandbox.create_access_token()
        delegated = sandbox.with_access_token(first.token)
        assert run(delegated, "echo", "delegated").standard_output == "delegated\n"
        delegated.files.upload("/tmp/x", b"x")
        second = sandbox.rotate_access_token()
        assert run(sandbox.with_access_token(second.token), "true").exit_code == 0
        assert sandbox.get_access_token().token_hint[-4:] == second.token[-4:]
        for token, status in ((first.token, 401), (second.token, 403)):
            try:
                sandbox.with_access_token(token).pause()
                raise AssertionError("a token may do what it may not")
            except APIError as error:
                assert error.status_code == status, error
        assert not sandbox.disable_access_token().enabled
    finally:
        sandbox.destroy()


if __name__ == "__main__":
    with Client(base_url=sys.argv[1], api_key=sys.argv[2], timeout=240) as connected:
        globals()[sys.argv[3]](connected)
