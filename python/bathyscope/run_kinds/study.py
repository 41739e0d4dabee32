"""A study: a benchmark in phases, of which something was expected."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bathyscope.errors import UsageError
from bathyscope.run_kinds import bench
from bathyscope.run_kinds.base import RunKind
from bathyscope.store import RunDirectory

if TYPE_CHECKING:
    from bathyscope.records.finding import LadderFinding
    from bathyscope.records.study_finding import StudyFinding
    from bathyscope.studies import Study


def study_of(run: RunDirectory) -> Study:
    """Return the study that a run is of. Raises UsageError when this version of bathyscope has no such study."""
    from bathyscope.studies import STUDIES

    study = STUDIES.get(run.info.name)
    if study is None:
        raise UsageError(
            f"run {run.id} is of the study '{run.info.name}', which this version of bathyscope does not know",
            hint=f"it knows {', '.join(STUDIES)}",
        )
    return study


def _must_be_a_plan(run: RunDirectory) -> None:
    """Raise UsageError for a run of before studies were plans: what it holds are parameters, in JSON."""
    if run.info.spec_text.startswith("{"):
        raise UsageError(
            f"run {run.id} was recorded by a version before phases; its tables cannot be read",
            hint=f"carry the study out again: bathy study {run.info.name}",
        )


def _finding(run: RunDirectory) -> StudyFinding:
    from bathyscope.analysis.study import build
    from bathyscope.spec import Target
    from bathyscope.window.tables import of_steps

    _must_be_a_plan(run)
    target, design = Target.model_validate(run.info.target), study_of(run).design
    tables = run.tables()
    is_judged = target.disk_control is not None
    return build(tables, of_steps(tables), design, run.id, is_judged=is_judged)


def _reparse(run: RunDirectory) -> str:
    _must_be_a_plan(run)
    return bench.reparse(run)


def _loads(run: RunDirectory) -> LadderFinding:
    _must_be_a_plan(run)
    return bench.ladder_of(run)


KIND = RunKind("study", _finding, bench.describe, bench.continue_hint, _reparse, _loads)
