"""A table is read from what was opened and bounded: what its name leads to a moment later is not read."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from bathyscope import files
from bathyscope.errors import UntrustedError
from bathyscope.records import ProcessSample
from bathyscope.store import RunDirectory, Workspace, duck, step_name

SECOND_NS = 10**9
Read = Callable[[RunDirectory, Path, Path], pa.Table]


def sample(process: str) -> ProcessSample:
    return ProcessSample(SECOND_NS, SECOND_NS, "here", process, 0.1, 0.1, None, 2, None)


def a_run(workspace: Path, process: str) -> tuple[RunDirectory, Path]:
    with Workspace(workspace).create_run(kind="bench", started_ns=1) as run, run.begin_segment(step_name(0)) as writer:
        writer.table(ProcessSample, [sample(process)])
        segment = writer.commit()
    return RunDirectory(run.path), segment.path / "process_sample.parquet"


def rolled_up(_: RunDirectory, path: Path, spill: Path) -> pa.Table:
    with duck.rolled_up(ProcessSample, [path], 60, spill) as batches:
        return pa.Table.from_batches(list(batches))


READS: dict[str, Read] = {
    "table": lambda run, *_: run.table(ProcessSample),
    "tables": lambda run, *_: run.tables()["process_sample"],
    "segment": lambda run, *_: run.segments()[step_name(0)].table(ProcessSample),
    "query": lambda run, *_: duck.query([run], "SELECT process FROM process_sample"),
    "rolled up": rolled_up,
}


@pytest.mark.parametrize("name", READS)
def test_a_name_that_leads_elsewhere_after_the_nth_opening_leads_nowhere(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, foreign = a_run(tmp_path / "foreign", "secret")
    spill, opened = tmp_path / "spill", files.open_plain
    spill.mkdir()
    openings: list[Path] = []
    for swapped_after in range(1, 9):
        run, path = a_run(tmp_path / "ws", "osd.0")
        openings.clear()

        def then_swapped(file: Path, *flags: int, path: Path = path, after: int = swapped_after) -> int:
            descriptor = opened(file, *flags)
            openings.extend([file] if file == path else [])
            if len(openings) == after and file == path:
                path.unlink()
                path.symlink_to(foreign)
            return descriptor

        monkeypatch.setattr(files, "open_plain", then_swapped)
        # What was looked at, or nothing.
        with contextlib.suppress(UntrustedError):
            assert READS[name](run, path, spill)["process"].to_pylist() == ["osd.0"]
        monkeypatch.undo()
    # The last ones were swapped when all was read.
    assert len(openings) < 8
