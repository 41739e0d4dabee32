"""A sizing: the curves that `bathy size --save` kept, and the question that they answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bathyscope.errors import AnalysisError
from bathyscope.run_kinds.base import RunKind
from bathyscope.store import RunDirectory

if TYPE_CHECKING:
    from bathyscope.records.size_finding import SizeFinding


def _finding(run: RunDirectory) -> SizeFinding:
    segment = run.segments().get("run")
    if segment is None:
        raise _cannot_be_rebuilt(run)
    from bathyscope.analysis.sizing import SizeQuestion, build
    from bathyscope.records import CurvePoint

    try:
        question = SizeQuestion.of_context(run.info.spec_text, segment.context())
    except (KeyError, TypeError, ValueError) as error:
        raise _cannot_be_rebuilt(run) from error
    return build(segment.table(CurvePoint), question)


def _cannot_be_rebuilt(run: RunDirectory) -> AnalysisError:
    return AnalysisError(
        f"run {run.id} lacks the question of a sizing or its curves, so its answer cannot be shown again",
        hint="ask again, and write the report at once: bathy size TRACE --report FILE.html",
    )


def _describe(_run: RunDirectory) -> list[tuple[str, object]]:
    return []  # the spec, which `bathy runs show` prints for every run, says it all


def _continue_hint(run_id: str) -> str:
    return f"a sizing is made in one go: ask again with `bathy size`, and delete this one with `bathy runs rm {run_id}`"


KIND = RunKind("size", _finding, _describe, _continue_hint)
