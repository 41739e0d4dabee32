"""The passes of `bathy size` without its verb: what tests of curves ask for, and the rows that they get."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bathyscope import simulate
from bathyscope.records import CurvePoint, from_table
from bathyscope.records.size import TraceSummary
from bathyscope.simulate.trace import BlockTrace
from bathyscope.spec.size import GRID, Admission, CurveKey, Pass, SizeSpec, WantedSizes
from bathyscope.spec.values import checked

Sizes = Mapping[CurveKey, Sequence[int]]


def curve_points(
    trace: BlockTrace, *, further: Sizes | None = None, tried: tuple[CurveKey, int, str] | None = None, **asked: Any
) -> tuple[list[CurvePoint], TraceSummary]:
    """Return the rows of the grid, of `further` sizes, and of a size `tried` with another admission."""
    spec = checked(SizeSpec, **asked)
    workload = simulate.profile(trace, spec)
    passes = [GRID]
    if further is not None:
        wanted = tuple(WantedSizes(key, tuple(sizes), spec.admission) for key, sizes in further.items())
        passes.append(Pass("target", wanted))
    if tried is not None:
        key, size, admission = tried
        passes.append(Pass("options", (WantedSizes(key, (size,), Admission.of(admission)),)))
    rows = [row for one in passes for row in from_table(CurvePoint, simulate.run(one, workload))]
    return rows, workload.summary


def whole(rows: list[CurvePoint], **wanted: object) -> list[CurvePoint]:
    """The points over the whole time with these values, by size."""
    found = [r for r in rows if r.window == "all" and all(getattr(r, name) == value for name, value in wanted.items())]
    return sorted(found, key=lambda row: row.size_bytes)
