"""The core and the tests of the crates are compiled from one set of libraries."""

from __future__ import annotations

import subprocess
from pathlib import Path


def features(*selection: str) -> set[str]:
    """Return each crate of a selection with its version and its features."""
    words = ("cargo", "tree", "--locked", "--prefix=none", "--format={p} {f}", *selection)
    listed = subprocess.run(words, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=True).stdout
    return {line.removesuffix(" (*)") for line in listed.splitlines()}


def test_nothing_below_the_core_is_compiled_once_more_for_the_tests() -> None:
    # With other features cargo compiles a crate anew, and all that use it.
    assert features("--package=bathy-py", "--edges=normal,build") <= features("--workspace")
