"""Langflow's runtime with its CreateOS package, both as their registry serves them, unmodified, against a druped with real sandboxes:
the backend, the component, the executor."""

import os
import subprocess
import venv
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SCRIPT = HERE / "langflow_client.py"
PACKAGES = ["langflow-sandbox-createos==0.2.0", "lfx==1.13.0"]
IMAGE = "lfx:1"


@pytest.fixture(scope="session")
def python(home):
    """An interpreter with Langflow's runtime: 600 MB, made once, kept with the tests' home."""
    place = home / "clients" / "-".join(PACKAGES).replace("==", "-")
    program = place / "bin" / "python"
    if not (place / "complete").exists():
        venv.create(place, with_pip=True, clear=True)
        subprocess.run([program, "-m", "pip", "install", "--quiet", "--no-input", *PACKAGES], check=True, timeout=1200)
        (place / "complete").touch()
    return program


@pytest.fixture(scope="session")
def shapes(druped, drupe):
    """The shapes that Langflow asks for have been started once: its calls wait for a minute only."""
    api = druped.api()
    for shape in ("s-2vcpu-4gb", "s-4vcpu-8gb"):
        made = api("POST", "/v1/sandboxes", {"shape": shape}).data
        assert made["mem_mib"] >= 4096
        api("DELETE", f"/v1/sandboxes/{made['id']}")


@pytest.fixture(scope="session")
def lfx_image(druped, drupe):
    """The image whose guests have lfx, and its base snapshot."""
    if drupe("image", "inspect", IMAGE, code=None).code != 0:
        built = drupe("image", "build-debian", IMAGE, timeout=1500, code=None)
        if built.code != 0:
            pytest.skip(f"{IMAGE} cannot be made here: {built.error[-300:]}")
    api = druped.api()
    made = api("POST", "/v1/sandboxes", {"shape": "s-4vcpu-8gb", "rootfs": IMAGE}).data
    api("DELETE", f"/v1/sandboxes/{made['id']}")
    return IMAGE


def run(druped, python, name, tmp_path, **more):
    key = druped.new_key()
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("CREATEOS_", "LANGFLOW_"))},
        "CREATEOS_SANDBOX_BASE_URL": druped.url, "CREATEOS_SANDBOX_API_KEY": key,
        "LANGFLOW_SANDBOX_BACKEND": "createos", "LANGFLOW_SANDBOX_BACKEND_PLUGINS": "createos",
        # Of the hosted service: its guests reach the metadata service. Ours reach nothing.
        "LANGFLOW_SANDBOX_CREATEOS_ACCEPT_EGRESS_EXCEPTIONS": "true",
        "LANGFLOW_SANDBOX_TIMEOUT_SECONDS": "60", "LANGFLOW_CONFIG_DIR": str(tmp_path), "LANGFLOW_LOG_LEVEL": "CRITICAL", **more}
    done = subprocess.run([python, SCRIPT, name], capture_output=True, text=True, timeout=900, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", ["backend", "backend_limits", "component_throws_away", "component_reuses"])
def test_langflow(druped, python, shapes, name, tmp_path):
    run(druped, python, name, tmp_path)


def test_langflow_executor(druped, python, lfx_image, tmp_path):
    run(druped, python, "executor", tmp_path, CREATEOS_EXECUTOR_ROOTFS=lfx_image)
