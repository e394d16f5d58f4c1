"""/openapi.json: every route is in it, and what it says is kept under generated requests."""

import re
import subprocess
import venv

import pytest

from druped import ROOT, Api

# The generator of an older date: a later one has dropped what this schemathesis uses.
PACKAGES = ("schemathesis==4.0.26", "hypothesis==6.139.3")
# Left out: what waits or streams for as long as it is asked to, and what is not offered (501, 503).
LEFT_OUT = r"(connect|wait|/tunnel/|/shell|/files/tar|/computer/|/devices|/disks|/timeseries)"


def test_every_route_is_in_the_document(druped):
    stranger = Api(druped.port, None)
    answer = stranger("GET", "/openapi.json")
    assert answer.status == 200
    paths = answer.json["paths"]
    assert answer.json["openapi"] == "3.1.0"
    known = {f"{method.upper()} {path}" for path, operations in paths.items() for method in operations}
    routes = set()
    for file in (ROOT / "src/api/routes").glob("*.cpp"):
        for method, pattern in re.findall(r'\{"([A-Z]+)", "(/[^"]*)", \w+', file.read_text()):
            routes.add(f"{method} " + re.sub(r":(\w+)", r"{\1}", pattern))
    assert len(routes) > 50 and not routes - known, routes - known
    # What a route takes is there for those that take something.
    create = paths["/v1/sandboxes"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert create["required"] == ["shape"] and create["properties"]["envs"]["additionalProperties"] == {"type": "string"}
    assert paths["/healthz"]["get"]["security"] == []


@pytest.fixture(scope="session")
def schemathesis():
    """Made once, kept in build/."""
    place = ROOT / "build" / "clients" / "schemathesis"
    program = place / "bin" / "schemathesis"
    if subprocess.run([program, "--version"], capture_output=True).returncode if program.exists() else True:
        venv.create(place, with_pip=True, clear=True)
        subprocess.run([place / "bin" / "python", "-m", "pip", "install", "--quiet", "--no-input", *PACKAGES], check=True, timeout=900)
    return program


def test_generated_requests(druped, schemathesis, tmp_path):
    """No 500, no answer of another form, no key, and no route that forgets to ask for one."""
    api = druped.api()
    done = subprocess.run(
        [schemathesis, "run", f"{druped.url}/openapi.json", "--header", f"X-Api-Key: {api.key}", "--max-examples", "5", "--seed", "1",
         "--phases", "examples,coverage,fuzzing", "--exclude-path-regex", LEFT_OUT, "--no-color", "--generation-database", "none",
         "--checks", "status_code_conformance,content_type_conformance,response_schema_conformance,not_a_server_error",
         "--exclude-method", "DELETE", "--request-timeout", "60"],
        cwd=tmp_path, capture_output=True, text=True, timeout=500)
    for row in api("GET", "/v1/sandboxes?limit=500").data["data"]:
        api("DELETE", f"/v1/sandboxes/{row['id']}")
    assert done.returncode == 0, (done.stdout + done.stderr)[:9000]
    assert druped.process.poll() is None
