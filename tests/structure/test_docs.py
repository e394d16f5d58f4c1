"""The documents say what is true of the tree."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_tests_named_by_the_documents_exist():
    missing = []
    for document in (ROOT / "docs").rglob("*.md"):
        for file, name in re.findall(r"`(test_\w+\.py)::(\w+)`", document.read_text()):
            candidates = list((ROOT / "tests").rglob(file))
            if not any(re.search(rf"^\s*(def|class) {name}\b", path.read_text(), flags=re.M) for path in candidates):
                missing.append(f"{document.name}: {file}::{name}")
    assert not missing, "\n".join(missing)


def test_links_between_documents_lead_somewhere():
    broken = []
    for document in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "src").glob("*/README.md")]:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", document.read_text()):
            if not (document.parent / target).exists():
                broken.append(f"{document.relative_to(ROOT)} -> {target}")
    assert not broken, "\n".join(broken)


def test_every_command_is_in_the_reference():
    table = (ROOT / "src" / "cli" / "main.cpp").read_text()
    commands = re.findall(r'Command\{"([a-z]+)", "', table)
    assert len(commands) > 25
    reference = (ROOT / "docs" / "cli.md").read_text()
    missing = [name for name in commands if f"\n### {name}\n" not in reference]
    assert not missing, missing
