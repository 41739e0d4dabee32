"""CSV: one flat row for each point, units in the column names, empty cells where nothing is known."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from typing import Any, TextIO

from bathyscope.records.finding import CompareFinding, Figure, LadderFinding, PointFinding, RungLoss
from bathyscope.views.refusal import FIGURES, without_refused
from bathyscope.views.rows import plain_rows

_PERCENTILES = ("latency_ns_p50", "latency_ns_p99", "latency_ns_p999")
_STAGES = ("queue", "prepare", "store", "replica_wait", "reply")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def write(finding: Any, stream: TextIO, *, columns: Sequence[str] | None = None) -> None:
    """Write a header and the rows. Text that a spreadsheet would run as a formula gets a leading apostrophe."""
    if isinstance(finding, LadderFinding):
        rows = ladder_rows(finding)
    elif isinstance(finding, CompareFinding):
        rows = compare_rows(finding)
    else:
        rows = plain_rows(finding, columns)
    names = list(rows[0]) if rows else list(columns or ())
    writer = csv.writer(stream, lineterminator="\n")
    if names:
        writer.writerow(names)
    writer.writerows([_cell(row[name]) for name in names] for row in rows)


def as_text(finding: Any) -> str:
    """Return what `write` writes."""
    buffer = io.StringIO()
    write(without_refused(finding), buffer)
    return buffer.getvalue()


def ladder_rows(finding: LadderFinding) -> list[dict[str, Any]]:
    """Return one flat row for each point of the ladder and each witness.

    A figure `x` fills the columns x, x_low and x_high (95 % interval); percentiles also x_relative_error, the
    bound of the histogram. loss_* compares with the next layer below.
    """
    rows = []
    for group in finding.groups:
        losses = {loss.upper_layer: loss for loss in group.losses}
        rows += [_point_row(finding.run_id, point, losses.get(point.layer)) for point in group.points]
    return rows + [_point_row(finding.run_id, point, None) for point in finding.witnesses]


def _point_row(run_id: str, point: PointFinding, loss: RungLoss | None) -> dict[str, Any]:
    row: dict[str, Any] = {
        "run_id": run_id,
        "step_key": point.step_key,
        "device_class": point.device_class,
        "pattern": point.pattern,
        "layer": point.layer,
        "witness": point.witness,
        "op": point.op,
        "block_size_bytes": point.block_size_bytes,
        "queue_depth": point.queue_depth,
        "jobs": point.jobs,
        "status": point.status,
        "reason": point.reason,
        "repeats": point.repeats,
        "steady": point.steady,
    }
    for name in FIGURES:
        row |= _figure(name, getattr(point, name), error=name in _PERCENTILES)
    empty = Figure(None, "")
    row["loss_below_layer"] = loss.lower_layer if loss else None
    row |= _figure("loss_iops_ratio", loss.ratio if loss else empty)
    row |= _figure("loss_latency_added_ns", loss.latency_added_ns if loss else empty)
    stages = {stage.stage: stage for stage in point.stages}
    for name in _STAGES:
        row[f"stage_{name}_share"] = stages[name].share if name in stages else None
    row["stage_sample_count"] = point.stage_sample_count
    row["verdict_limit"] = point.verdict.limit
    row["verdict"] = point.verdict.sentence
    row["caveats"] = "; ".join(f"{c.code}: {c.text}" for c in point.caveats)
    return row


def compare_rows(finding: CompareFinding) -> list[dict[str, Any]]:
    """Return one row for each step compared and each step that exists in one run only."""
    rows = []
    for effect in finding.effects:
        row: dict[str, Any] = {"run_a": finding.run_a, "run_b": finding.run_b, "step_key": effect.step_key}
        row |= {"metric": effect.metric, "call": effect.call, "reason": effect.reason}
        row |= _figure("effect_ratio", effect.effect) | _figure("a", effect.a) | _figure("b", effect.b)
        rows.append(row | {"unit": effect.a.unit or effect.b.unit})
    names = list(rows[0]) if rows else ["run_a", "run_b", "step_key", "metric", "call", "reason"]
    for step_key, side in finding.missing:
        known = {"run_a": finding.run_a, "run_b": finding.run_b, "step_key": step_key}
        rows.append(dict.fromkeys(names) | known | {"call": "missing", "reason": side})
    return rows


def _figure(name: str, figure: Figure, *, error: bool = False) -> dict[str, Any]:
    row: dict[str, Any] = {name: figure.value, f"{name}_low": figure.low, f"{name}_high": figure.high}
    if error:
        row[f"{name}_relative_error"] = figure.relative_error if figure.value is not None else None
    return row


def _cell(value: Any) -> Any:
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.10g}"
    if isinstance(value, int):
        return value
    text = "; ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    text = text.replace("\x00", "\ufffd")
    return f"'{text}" if text.startswith(_FORMULA) else text
