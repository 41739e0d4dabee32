"""A study: an experiment in phases, each step of which is finished by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bathyscope.errors import UsageError
from bathyscope.kinds.base import RunKind
from bathyscope.store import RunDirectory

if TYPE_CHECKING:
    from bathyscope.records.study_finding import StudyFinding
    from bathyscope.studies import Study


def study_of(run: RunDirectory) -> Study:
    """Return the study that a run is of. Raises UsageError when this version of bathyscope has no such study."""
    from bathyscope.studies import STUDIES

    found = STUDIES.get(run.info.name)
    if found is None:
        raise UsageError(
            f"run {run.id} is of the study '{run.info.name}', which this version of bathyscope does not know",
            hint=f"it knows {', '.join(STUDIES)}",
        )
    return found


def _finding(run: RunDirectory) -> StudyFinding:
    from bathyscope.analysis.study import build
    from bathyscope.spec import Target

    target = Target.model_validate(run.info.target)
    design = study_of(run).design
    return build(run.tables(), design, run.id, target.caveats, is_judged=target.disk_control is not None)


def _describe(run: RunDirectory) -> list[tuple[str, object]]:
    return [("steps finished", len(run.step_segments()))]


def _continue_hint(run_id: str) -> str:
    return f"a study is made in one go: carry it out again, and delete this run with `bathy runs rm {run_id}`"


def _reparse(run: RunDirectory) -> str:
    from bathyscope.studies.base import parse_step

    steps = run.step_segments()
    parsed = {index: parse_step(segment, index) for index, segment in steps.items()}
    for index, tables in parsed.items():
        with run.replace_segment(steps[index].name) as writer:
            for record, table in tables.items():
                writer.table(record, table)
            writer.commit()
    run.compact()
    return f"{len(steps)} steps were parsed again"


KIND = RunKind("study", _finding, _describe, _continue_hint, _reparse)
