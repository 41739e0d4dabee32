"""The ladder: of its tables the one for programs, a row for each point of the ladder and each cross-check.

A figure `x` fills the columns x, x_low and x_high (95 % interval); percentiles also x_relative_error, the bound of the
histogram. loss_* compares with the next layer below. A mixed load has two rows more: `direction` says which of its
I/Os a row is of (total, read, write), so rows of one step must not be added up. `saturation` says where
a point lies on its saturation curve: before, near (the repeats cannot tell) or beyond the knee, or at it. ceiling_* are
of the resource that the load is nearest to.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bathyscope.records.blocks import Section
from bathyscope.records.figure import Figure
from bathyscope.records.finding import DirectionFinding, KneeFinding, LadderFinding, PointFinding, RungLoss
from bathyscope.views.csv import field_columns, figure_columns
from bathyscope.views.csv.blocks import flat
from bathyscope.views.findings import for_programs
from bathyscope.views.findings.accounts import ACCOUNT, account
from bathyscope.views.labels import STAGES
from bathyscope.views.refusal import FIGURES

_PERCENTILES = ("latency_ns_p50", "latency_ns_p99", "latency_ns_p999")


def sections(finding: LadderFinding) -> Iterator[Section]:
    """Yield the points and cross-checks."""
    rows: list[dict[str, Any]] = []
    places = {point.step_key: _place(point.queue_depth, knee) for knee in finding.knees for point in knee.points}
    for group in finding.groups:
        losses = {loss.upper_layer: loss for loss in group.losses}
        for point in group.points:
            rows += _rows(finding.run_id, point, losses.get(point.layer), places.get(point.step_key))
    for point in finding.cross_checks:
        rows += _rows(finding.run_id, point, None, places.get(point.step_key))
    yield Section("points", "Points", (for_programs("points", rows),))


def _place(queue_depth: int, knee: KneeFinding) -> str:
    """Return where a depth lies on a saturation curve."""
    if queue_depth == knee.knee.queue_depth:
        return "knee"
    low, high = knee.knee_range
    return "before the knee" if queue_depth < low else "beyond the knee" if queue_depth > high else "near the knee"


def _rows(run_id: str, point: PointFinding, loss: RungLoss | None, saturation: str | None) -> list[dict[str, Any]]:
    """Return the row of a point, and for a mixed load those of its reads and its writes."""
    row = _row(run_id, point, loss, saturation)
    return [row, *(row | _apart(direction) for direction in point.directions)]


def _apart(direction: DirectionFinding) -> dict[str, Any]:
    """Return the columns of one direction; what is only known of both together is empty."""
    found: dict[str, Any] = {"direction": direction.direction}
    for name in (*FIGURES, "loss_iops_ratio", "loss_latency_added_ns"):
        found |= figure_columns(name, getattr(direction, name, Figure(None, "")), error=name in _PERCENTILES)
    return found


def _row(run_id: str, point: PointFinding, loss: RungLoss | None, saturation: str | None) -> dict[str, Any]:
    row = {"run_id": run_id} | field_columns(
        point, "step_key", "device_class", "pattern", "layer", "load_generator", "op", "block_size_bytes",
        "queue_depth", "jobs", "status", "reason", "repeats", "steady",
    )  # fmt: skip
    row["direction"] = "total" if point.op == "randrw" else "write" if point.op.endswith("write") else "read"
    row["saturation"] = saturation
    for name in FIGURES:
        row |= figure_columns(name, getattr(point, name), error=name in _PERCENTILES)
    empty = Figure(None, "")
    row["loss_below_layer"] = loss.lower_layer if loss else None
    row |= figure_columns("loss_iops_ratio", loss.ratio if loss else empty)
    row |= figure_columns("loss_latency_added_ns", loss.latency_added_ns if loss else empty)
    stages = {stage.stage: stage for stage in point.stages}
    for name in STAGES:
        row[f"stage_{name}_share"] = stages[name].share if name in stages else None
    row["stage_sample_count"] = point.stage_sample_count
    row |= flat(ACCOUNT, account(point))
    row["caveats"] = "; ".join(f"{c.code}: {c.text}" for c in point.caveats)
    return row
