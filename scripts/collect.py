#!/usr/bin/env python3
"""Adds up test results: JUnit XML files of GoogleTest and pytest, and lines "PASS name", "FAIL name", "SKIP name: reason".

usage: collect.py DIRECTORY
Names what failed and what was skipped, and ends with the line "N passed, N failed[, N skipped]". Status 1 if anything failed or
nothing passed.
"""

import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path


def from_xml(path):
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        name = f"{path.stem}: {case.get('classname', '')}.{case.get('name', '')}"
        skipped = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            yield "FAIL", name, ""
        elif skipped is not None or case.get("status") == "notrun":
            reason = (skipped.get("message") if skipped is not None else "") or "no reason given"
            yield "SKIP", name, reason.strip().splitlines()[-1]
        else:
            yield "PASS", name, ""


def from_lines(path):
    for line in path.read_text(errors="replace").splitlines():
        word, _, rest = line.partition(" ")
        if word in ("PASS", "FAIL", "SKIP"):
            name, _, reason = rest.partition(": ")
            yield word, name, reason


def main():
    counts = {"PASS": 0, "FAIL": 0, "SKIP": 0}
    for path in sorted(Path(sys.argv[1]).iterdir()):
        try:
            results = list(from_xml(path) if path.suffix == ".xml" else from_lines(path))
        except ElementTree.ParseError as error:
            results = [("FAIL", f"{path.name} is not readable ({error})", "")]
        for word, name, reason in results:
            counts[word] += 1
            if word == "FAIL":
                print(f"FAILED  {name}")
            elif word == "SKIP":
                print(f"SKIPPED {name}: {reason}")
    line = f"{counts['PASS']} passed, {counts['FAIL']} failed"
    if counts["SKIP"]:
        line += f", {counts['SKIP']} skipped"
    print(line)
    return 1 if counts["FAIL"] or not counts["PASS"] else 0


if __name__ == "__main__":
    sys.exit(main())
