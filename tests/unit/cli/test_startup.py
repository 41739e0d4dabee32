"""Help, version and completion start at once: nothing that a verb needs is imported before the verb runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bathyscope import cli

HEAVY = (
    "altair", "duckdb", "jinja2", "numpy", "pyarrow", "pydantic", "ruamel", "scipy", "vl_convert",
    "bathyscope._core", "bathyscope.analysis", "bathyscope.bench", "bathyscope.lab", "bathyscope.records",
    "bathyscope.spec", "bathyscope.store", "bathyscope.views",
)  # fmt: skip
_SCRIPT = """
import atexit, sys
heavy = sys.argv.pop(1).split()
sys.argv[0] = "bathy"
atexit.register(lambda: print("imported:", *(m for m in heavy if m in sys.modules), file=sys.stderr))
from bathyscope import cli
cli.main()
"""


def loaded_heavy(*words: str, **variables: str) -> list[str]:
    """Run `bathy` with `words` and return which of HEAVY it has imported."""
    ended = subprocess.run(
        [sys.executable, "-c", _SCRIPT, " ".join(HEAVY), *words],
        capture_output=True, text=True, timeout=60, check=False, env={**os.environ, **variables},
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout
    return ended.stderr.rpartition("imported:")[2].split()


def test_the_check_itself_sees_what_is_imported(tmp_path: Path) -> None:
    assert "bathyscope.lab" in loaded_heavy("lab", "list", "--output", "json", XDG_STATE_HOME=str(tmp_path))


def test_version_and_the_list_of_verbs_import_nothing_heavy() -> None:
    assert loaded_heavy("--version") == []
    assert loaded_heavy("--help") == []


def test_the_verbs_are_found() -> None:
    assert {"bench", "compare", "demo", "lab", "report", "runs", "schema", "size"} <= set(cli.Verbs())


@pytest.mark.parametrize("verb", list(cli.Verbs()))
def test_help_of_a_verb_imports_nothing_heavy(verb: str) -> None:
    assert loaded_heavy(verb, "--help") == []


@pytest.mark.parametrize("words", [("bench", "run"), ("bench", "resume"), ("lab", "up"), ("lab", "down")])
def test_help_of_a_part_imports_nothing_heavy(words: tuple[str, ...]) -> None:
    assert loaded_heavy(*words, "--help") == []


def test_completion_imports_nothing_heavy() -> None:
    assert loaded_heavy(_BATHY_COMPLETE="complete_bash", COMP_WORDS="bathy ", COMP_CWORD="1") == []


@pytest.mark.parametrize("module", ["typer", "duckdb", "bathyscope.store.duck"])
def test_no_time_is_spent_on_cycles_at_the_end_where_nobody_minds(module: str) -> None:
    # What is registered first is called last.
    at_the_end = f"import atexit, gc, {module}; atexit.register(lambda: print(gc.get_freeze_count() > 10_000))"
    words = [sys.executable, "-c", f"{at_the_end}; from bathyscope import cli; cli.main()", "--version"]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout.splitlines()[1:] == [str(module != "duckdb")]
    assert ended.stderr == ""


def test_views_of_a_recording_need_no_scipy() -> None:
    script = "import sys; import bathyscope.analysis.activity; print('scipy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, check=True).stdout == b"False\n"
