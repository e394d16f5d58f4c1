"""Rules of the tree that a compiler does not check: which folder may use which, sizes, calls that are easy to get wrong."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "src"

# Folder -> folders whose headers it may include (besides its own). docs/architecture.md has the picture.
MAY_USE = {
    "base": set(),
    "protocol": {"base"},
    "agent": {"base", "protocol"},
    "net": {"base", "protocol"},
    "image": {"base"},
    "hypervisor": {"base"},
    "shim": {"base", "protocol", "hypervisor"},
    "engine": {"base", "protocol", "net", "image", "hypervisor", "shim"},
    "cli": {"base", "protocol", "image", "hypervisor", "shim", "engine"},
    "api": {"base", "protocol", "net", "image", "hypervisor", "shim", "engine"},
}

# Calls that open descriptors without O_CLOEXEC, start shells or fork with threads around; the files named may use them.
FORBIDDEN_CALLS = {
    r"(?<![\w.:>])(?:::)?(?:fopen|freopen|tmpfile|mktemp|tmpnam|tempnam)\s*\(": {"hypervisor/qemu/testing/"},
    r"(?<![\w.:>])(?:::|std::)?(?:system|popen)\s*\(": set(),
    r"(?<![\w.:>])(?:::)?(?:strcpy|strcat|sprintf|vsprintf|gets)\s*\(": set(),
    r"(?<![\w.:>])(?:::)?v?fork\s*\(\s*\)": {"base/confine", "agent/", "hypervisor/kvm_probe.cpp", "hypervisor/qemu/testing/"},
    r"\busing namespace std\b": set(),
}

MAX_LINES = 800


def tracked(*patterns):
    names = subprocess.run(
        ["git", "ls-files", "-z", "--", *patterns], cwd=ROOT, check=True, capture_output=True
    ).stdout.split(b"\0")
    return [ROOT / name.decode() for name in names if name and (ROOT / name.decode()).exists()]


def sources():
    return tracked("src/*.h", "src/*.cpp", "src/*.c")


def without_comments(text):
    text = re.sub(r"/\*.*?\*/", lambda match: "\n" * match.group().count("\n"), text, flags=re.S)
    text = re.sub(r'"(?:\\.|[^"\\\n])*"', '""', text)
    return re.sub(r"//[^\n]*", "", text)


def test_folders_use_only_what_is_below_them():
    wrong = []
    for path in sources():
        folder = path.relative_to(SRC).parts[0]
        assert folder in MAY_USE, f"src/{folder} is not in the picture"
        for target in re.findall(r'^#include "([a-z_]+)/', path.read_text(), flags=re.M):
            if target in MAY_USE and target != folder and target not in MAY_USE[folder]:
                wrong.append(f"{path.relative_to(ROOT)} includes {target}/")
    assert not wrong, "\n".join(wrong)


def test_the_picture_has_no_cycle():
    done = set()

    def visit(folder, trail):
        assert folder not in trail, " -> ".join([*trail, folder])
        if folder not in done:
            for used in MAY_USE[folder]:
                visit(used, [*trail, folder])
            done.add(folder)

    for folder in MAY_USE:
        visit(folder, [])


def test_files_are_small():
    long = [
        f"{path.relative_to(ROOT)}: {count} lines"
        for path in [*sources(), *tracked("tests/*.py", "scripts/*", "bench/*")]
        if (count := path.read_text().count("\n")) > MAX_LINES
    ]
    assert not long, "\n".join(long)


def test_calls_that_are_easy_to_get_wrong():
    found = []
    for path in sources():
        name = str(path.relative_to(SRC))
        if name.endswith("_test.cpp"):
            continue
        text = without_comments(path.read_text())
        for pattern, allowed in FORBIDDEN_CALLS.items():
            if any(name.startswith(prefix) for prefix in allowed):
                continue
            for match in re.finditer(pattern, text):
                line = text.count("\n", 0, match.start()) + 1
                found.append(f"{name}:{line}: {match.group().strip()}")
    assert not found, "\n".join(found)


def test_descriptors_are_opened_close_on_exec():
    found = []
    for path in sources():
        # The agent's own stdin, stdout and stderr are opened there.
        if str(path.relative_to(SRC)) == "agent/boot.cpp":
            continue
        text = without_comments(path.read_text())
        for match in re.finditer(r"(?<![\w.:>])(?:::)?(?:open|openat|socket|accept4|pipe2|eventfd|epoll_create1|memfd_create|"
                                 r"timerfd_create|signalfd|inotify_init1|dup3)\s*\(", text):
            call = call_text(text, match.end())
            # A descriptor passed through a variable of flags is looked at by a reviewer; a literal list is looked at here.
            if "CLOEXEC" not in call and re.search(r"\b[A-Z]+_[A-Z]+\b", call) and "O_PATH" not in call and "flags" not in call:
                line = text.count("\n", 0, match.start()) + 1
                found.append(f"{path.relative_to(SRC)}:{line}: {match.group()}{call}")
    assert not found, "\n".join(found)


def call_text(text, start):
    depth, end = 1, start
    while depth and end < len(text):
        depth += {"(": 1, ")": -1}.get(text[end], 0)
        end += 1
    return text[start:end]


def test_heavy_headers_stay_out_of_headers():
    """A header that includes one is for .cpp files only: no other header includes it, and so it stays within its folder."""
    heavy = re.compile(r"#include <(nlohmann/|boost/|toml|curl/|ext2fs/|openssl/|zstd|zlib|seccomp|iostream|regex)")
    headers = {str(path.relative_to(SRC)): path.read_text() for path in sources() if path.suffix == ".h"}
    carriers = [name for name, text in headers.items() if heavy.search(text)]
    wrong = [f"{name} includes {carrier}" for carrier in carriers for name, text in headers.items() if f'#include "{carrier}"' in text]
    wrong += [f"{path.relative_to(SRC)} includes {carrier}" for carrier in carriers for path in sources()
              if not str(path.relative_to(SRC)).startswith(carrier.split("/")[0] + "/") and f'#include "{carrier}"' in path.read_text()]
    assert not wrong, "\n".join(wrong)


def test_every_folder_says_what_lives_there():
    folders = {path.relative_to(SRC).parts[0] for path in sources()}
    missing = [folder for folder in folders if not (SRC / folder / "README.md").exists()]
    assert not missing, missing


def test_headers_begin_with_what_they_are_for():
    wrong = []
    for path in sources():
        if path.suffix == ".h":
            text = path.read_text()
            if not text.startswith("//") or "#pragma once" not in text:
                wrong.append(str(path.relative_to(ROOT)))
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("folder", sorted(MAY_USE))
def test_headers_compile_alone(folder, tmp_path):
    headers = [path for path in sources() if path.suffix == ".h" and path.relative_to(SRC).parts[0] == folder]
    if not headers:
        pytest.skip(f"src/{folder} has no headers")
    for header in headers:
        (tmp_path / (str(header.relative_to(SRC)).replace("/", "_") + ".cpp")).write_text(
            f'#include "{header.relative_to(SRC)}"\n#include "{header.relative_to(SRC)}"\n')
    result = subprocess.run(
        "printf '%s\\0' *.cpp | xargs -0 -n1 -P2 g++ -std=c++23 -fsyntax-only -Wall -Wextra "
        f"-DDRUPE_VERSION='\"0\"' -I{SRC}",
        shell=True, cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
