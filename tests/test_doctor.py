"""drupe doctor: what this machine can do, in plain words."""

import json
import subprocess


def test_text_and_status(drupe):
    result = drupe("doctor")
    assert "Sandboxes can run on this machine" in result.text


def test_json(drupe):
    report = json.loads(drupe("doctor", "--json").out)
    assert report["can_run"] is True
    assert report["isolation"] in ("hardware-virtualized", "emulated")
    assert report["host_confinement"] in ("full", "partial", "weak")
    assert bool(report["host_confinement_missing"]) == (report["host_confinement"] != "full")
    topics = {item["topic"] for item in report["items"]}
    assert {"hypervisor", "kvm", "kernel", "memory", "disk"} <= topics, topics


def test_kvm_that_is_there_and_does_not_help_is_named(drupe):
    report = json.loads(drupe("doctor", "--json").out)
    kvm = next(item for item in report["items"] if item["topic"] == "kvm")
    if report["accelerator"] == "tcg":
        assert len(kvm["text"]) > 20, kvm


def test_missing_hypervisor(drupe):
    result = drupe("doctor", code=1, env={"DRUPE_QEMU": "/no/such/qemu"})
    assert "No sandbox can run" in result.text
    assert "qemu" in result.text


def test_missing_kernel(drupe, tmp_path):
    result = drupe("doctor", code=1, env={"DRUPE_GUEST_DIR": str(tmp_path)})
    assert "kernel" in result.text and "to mend it" in result.text


def test_every_problem_has_a_command_that_mends_it(drupe, tmp_path):
    report = json.loads(drupe("doctor", "--json", code=None, env={"DRUPE_GUEST_DIR": str(tmp_path), "DRUPE_QEMU": "/no/such"}).out)
    for item in report["items"]:
        if item["level"] == "problem":
            assert item["mend"], item


def test_startup_cost(drupe):
    subprocess.run([drupe.popen("version").args[0], "version"], capture_output=True)
    seconds = sorted(drupe("version").seconds for _ in range(20))
    assert seconds[10] < 0.030, seconds
