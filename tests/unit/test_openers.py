"""What is opened to be read is opened in one place, `bathyscope.files`, which looks at it and bounds it.

Ruff's banned-api knows functions of modules, and not the methods of a Path: the syntax tree shows both.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import bathyscope

PACKAGE = Path(bathyscope.__file__).parent
OPENERS = {
    *("open", "fdopen", "FileIO", "read_text", "read_bytes", "copyfile", "copy2"),
    *("OSFile", "memory_map", "open_stream", "open_file", "dataset", "make_fragment"),
    *("ParquetFile", "ParquetDataset", "read_table", "read_schema", "read_metadata", "read_csv"),
    *("loadtxt", "genfromtxt", "fromfile", "memmap"),
}
# Files, and the directory of the labs.
EXEMPT = {
    "files.py": "the opener",
    "store/parquet_bounds.py": "the opener of Parquet tables",
    "store/tables.py": "Arrow reads by the names of descriptors that `parquet_bounds.opened` gives",
    "store/ordered_rows.py": "files in a temporary directory that it made itself",
    "cache/ssd.py": "devices and files that root names: asked for their size, never read",
    "host/local.py": "`LocalHost.read`, which has a limit and waits for no pipe; pipes that it made",
    "host/node_sampler.py": "runs on other machines without our package; has a limit and waits for no pipe",
    "host/load_runner.py": "runs on other machines without our package; reads what its fio wrote in its own directory",
    "host/ceph_bridge.py": "runs in the system's Python without our package; keyrings that the configuration names",
    "lab": "what a lab made in a directory of its own, packages that apt verified, and /sys",
    "cli.py": "/dev/null, when nobody reads what is printed",
}


def is_opener(call: ast.Call) -> bool:
    """Whether it opens what it may read: not our own resources, the kernel's files, a new file, what was opened."""
    function = call.func
    name = function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")
    whole = ast.unparse(function)
    if name not in OPENERS or whole == "webbrowser.open" or "resources.files(" in whole:
        return False
    if whole.startswith(("Path(f'/proc/", "Path(f'/sys/")):
        return False
    if any(isinstance(word, ast.Constant) and word.value in {"xb", "wb", "ab", "w"} for word in call.args):
        return False
    opened = ("files.open_plain(", "files.open_own(", "open_own(", "os.memfd_create(")
    return not (name == "fdopen" and ast.unparse(call.args[0]).startswith(opened))


def openers(path: Path) -> list[str]:
    nodes = ast.walk(ast.parse(path.read_text()))
    return [
        f"{path}:{node.lineno}: {ast.unparse(node)}" for node in nodes if isinstance(node, ast.Call) and is_opener(node)
    ]


def test_nothing_but_the_openers_opens_what_it_reads() -> None:
    left = {path: found for path in sorted(PACKAGE.rglob("*.py")) if (found := openers(path))}
    for name in EXEMPT:
        exempt = [path for path in left if path.is_relative_to(PACKAGE / name)]
        assert exempt, f"{name} needs no exemption"
        for path in exempt:
            del left[path]
    assert not left, left


@pytest.mark.parametrize(
    ("line", "is_seen"),
    [
        ("path.read_text()", True),
        ("open(path)", True),
        ("path.open('rb')", True),
        ("pq.ParquetFile(path)", True),
        ("ds.dataset(path)", True),
        ("os.fdopen(os.open(path, os.O_RDONLY))", True),
        ("path.open('xb')", False),
        ("os.fdopen(files.open_plain(path), 'rb')", False),
        ("resources.files('bathyscope').joinpath(name).read_text()", False),
        ("Path(f'/proc/{pid}/comm').read_text()", False),
    ],
)
def test_what_the_rule_sees(line: str, is_seen: bool, tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text(line + "\n")
    assert bool(openers(tmp_path / "module.py")) == is_seen
