"""The Python client as its registry serves it, unmodified, against a druped with real sandboxes."""

import re
import subprocess
import venv
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SCRIPT = HERE / "python_client.py"
PACKAGE = "createos-sandbox==0.1.3"


@pytest.fixture(scope="session")
def python():
    """An interpreter with the client; made once, kept in build/."""
    place = HERE.parents[1] / "build" / "clients" / "python"
    program = place / "bin" / "python"
    if subprocess.run([program, "-c", "import createos"], capture_output=True).returncode if program.exists() else True:
        venv.create(place, with_pip=True, clear=True)
        subprocess.run([program, "-m", "pip", "install", "--quiet", "--no-input", PACKAGE], check=True, timeout=600)
    return program


@pytest.mark.parametrize("name", re.findall(r"^def (\w+)\(client\):", SCRIPT.read_text(), flags=re.M))
def test_python(druped, python, name):
    key = druped.new_key()
    done = subprocess.run([python, SCRIPT, druped.url, key, name], capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
