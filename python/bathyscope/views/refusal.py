"""What is refused is not printed: every renderer sees a finding through this."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

from bathyscope.records.finding import Figure, LadderFinding, PointFinding, RungGroup

T = TypeVar("T")

# A point with one of these statuses has a figure to show; every other status has only a reason.
SHOWN = frozenset({"done"})
FIGURES = tuple(f.name for f in dataclasses.fields(PointFinding) if f.type == "Figure")


def is_shown(point: PointFinding) -> bool:
    """Return whether the point's figures may be shown."""
    return point.status in SHOWN


def why_refused(point: PointFinding) -> str:
    """Return the reason that stands in place of a refused point's figures."""
    return point.reason or "no reason was recorded"


def without_refused(finding: T) -> T:
    """Return the finding with no figure, stage or distribution left on any point that was refused or failed."""
    if not isinstance(finding, LadderFinding):
        return finding
    refused = {p.step_key for g in finding.groups for p in g.points if not is_shown(p)}
    refused |= {p.step_key for p in finding.witnesses if not is_shown(p)}
    if not refused:
        return finding
    return dataclasses.replace(
        finding,
        groups=tuple(_group(group) for group in finding.groups),
        witnesses=tuple(_point(point) for point in finding.witnesses),
        distributions=tuple(d for d in finding.distributions if d.step_key not in refused),
    )


def _group(group: RungGroup) -> RungGroup:
    return dataclasses.replace(group, points=tuple(_point(point) for point in group.points))


def _point(point: PointFinding) -> PointFinding:
    if is_shown(point):
        return point
    blank: dict[str, Any] = {name: Figure(None, getattr(point, name).unit) for name in FIGURES}
    return dataclasses.replace(point, stages=(), **blank)
