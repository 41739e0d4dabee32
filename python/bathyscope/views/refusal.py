"""What is refused is not printed: every renderer sees a finding through `without_refused`."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

from bathyscope.records.collect_finding import CollectFinding
from bathyscope.records.explain_finding import AccountFinding, AccountsFinding
from bathyscope.records.figure import Figure
from bathyscope.records.finding import LadderFinding, PointFinding
from bathyscope.records.report_finding import ReportFinding

T = TypeVar("T")

FIGURES = tuple(f.name for f in dataclasses.fields(PointFinding) if f.type == "Figure")


def is_shown(point: PointFinding) -> bool:
    """Return whether the point's figures may be shown; every status but "done" has only a reason."""
    return point.status == "done"


def why_refused(point: PointFinding) -> str:
    """Return the reason that stands in place of a refused point's figures."""
    return point.reason or "no reason was recorded"


def without_refused(finding: T) -> T:
    """Return the finding with no figure, stage or distribution left on any point that was refused or failed."""
    changes: dict[str, Any] = {}
    match finding:
        case AccountFinding():
            changes = {"point": _point(finding.point)}
        case AccountsFinding():
            changes = {"points": tuple(map(_point, finding.points))}
        case CollectFinding():
            changes = {"load": without_refused(finding.load)}
        case ReportFinding():
            changes = {name: without_refused(getattr(finding, name)) for name in ("bench", "recording")}
        case LadderFinding():
            refused = {p.step_key for p in finding.points if not is_shown(p)}
            changes = {
                "groups": tuple(dataclasses.replace(g, points=tuple(map(_point, g.points))) for g in finding.groups),
                "cross_checks": tuple(map(_point, finding.cross_checks)),
                "distributions": tuple(d for d in finding.distributions if d.step_key not in refused),
            }
    return dataclasses.replace(finding, **changes) if changes else finding  # type: ignore[type-var]


def _point(point: PointFinding) -> PointFinding:
    if is_shown(point):
        return point
    blank: dict[str, Any] = {name: Figure(None, getattr(point, name).unit) for name in FIGURES}
    verdict = dataclasses.replace(point.verdict, evidence=(), alternatives=())
    return dataclasses.replace(point, stages=(), directions=(), account=None, verdict=verdict, **blank)
