"""The TypeScript client as its registry serves it, unmodified, against a druped with real sandboxes."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SCRIPT = HERE / "typescript_client.mjs"
PACKAGE, VERSION = "@nodeops-createos/sandbox", "0.7.1"


@pytest.fixture(scope="session")
def program():
    """The script in a folder with the client, which is made once and kept in build/."""
    if not shutil.which("npm"):
        pytest.skip("npm is not installed")
    place = HERE.parents[1] / "build" / "clients" / "typescript"
    manifest = place / "node_modules" / PACKAGE / "package.json"
    if not manifest.exists() or json.loads(manifest.read_text())["version"] != VERSION:
        place.mkdir(parents=True, exist_ok=True)
        (place / "package.json").write_text('{"private": true}')
        subprocess.run(["npm", "install", "--silent", "--no-audit", "--no-fund", "--save-exact", f"{PACKAGE}@{VERSION}"],
                       cwd=place, check=True, timeout=600)
    # Beside its packages, where Node looks for them.
    return shutil.copy(SCRIPT, place / "client.mjs")


@pytest.mark.parametrize("name", re.findall(r"^  async (\w+)\(\) \{", SCRIPT.read_text(), flags=re.M))
def test_typescript(druped, program, name):
    done = subprocess.run(["node", program, druped.url, druped.new_key(), name], capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
