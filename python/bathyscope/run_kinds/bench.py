"""A benchmark: steps that are finished one by one, shown as a ladder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bathyscope.run_kinds.base import RunKind
from bathyscope.store import RunDirectory

if TYPE_CHECKING:
    from bathyscope.records.finding import LadderFinding


def ladder_of(run: RunDirectory) -> LadderFinding:
    """Return the loads of a run that has steps, with what limits each. Raises AnalysisError, StoreError, ParseError."""
    from bathyscope import layers
    from bathyscope.analysis import ladder
    from bathyscope.bench.run_records import commands_of
    from bathyscope.window.tables import of_steps

    tables = run.tables()
    return ladder.build(tables, of_steps(tables), commands_of(run), layers.views())


def describe(run: RunDirectory) -> list[tuple[str, object]]:
    """Return how far a run is."""
    return [("steps finished", len(run.step_segments())), ("steps planned", run.info.step_count)]


def continue_hint(run_id: str) -> str:
    """Return how a run goes on."""
    return f"resume it with `bathy bench resume {run_id}`"


def reparse(run: RunDirectory) -> str:
    """Make the records of a run again, and say what became of them."""
    from bathyscope.bench import run_records

    changed = run_records.reparse(run)
    return f"{len(run.step_segments())} steps were parsed and judged again; {changed} got another status"


KIND = RunKind("bench", ladder_of, describe, continue_hint, reparse, ladder_of)
