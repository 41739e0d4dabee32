"""The ladder: for programs a row for each point and each cross-check; for people its saturation curves and its nodes.

A figure `x` fills the columns x, x_low and x_high (95 % interval); percentiles also x_relative_error, the bound of the
histogram. loss_* compares with the next layer below. A mixed load has two rows more: `direction` says which of its
I/Os a row is of (total, read, write), so rows of one step must not be added up. `saturation` says where
a point lies on its saturation curve: before, near (the repeats cannot tell) or beyond the knee, or at it. ceiling_* are
of the resource that the load is nearest to.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bathyscope.records.blocks import Column, Section, Table, Text
from bathyscope.records.figure import Figure
from bathyscope.records.finding import (
    DirectionFinding,
    KneeFinding,
    LadderFinding,
    NodeFinding,
    PointFinding,
    RungLoss,
)
from bathyscope.views.csv import field_columns, figure_columns
from bathyscope.views.csv.blocks import flat
from bathyscope.views.findings import for_programs
from bathyscope.views.findings.accounts import ACCOUNT, account
from bathyscope.views.labels import STAGES, caveats, clean, device_class, group_pattern, layer, machine
from bathyscope.views.refusal import FIGURES, is_shown

# Of a large cluster, the machines with most traffic.
_NODES_MAX = 6
_SATURATION = (
    Column("load", "load"),
    Column("queue_depth", "depth", "count"),
    Column("iops", "IOPS", "1/s", figure="interval"),
    Column("latency_ns_mean", "mean latency", "ns", figure="interval"),
    Column("point", "point"),
)
_NODES = (
    Column("load", "load"),
    Column("layer", "layer"),
    Column("node", "node"),
    Column("cpu_ratio", "CPU busy", "ratio", figure="interval"),
    Column("receive_bytes_per_s", "network in, MiB/s", "bytes/s", figure="interval"),
    Column("transmit_bytes_per_s", "network out, MiB/s", "bytes/s", figure="interval"),
    Column("link_ratio", "of the link's speed", "ratio", figure="interval"),
)
_PERCENTILES = ("latency_ns_p50", "latency_ns_p99", "latency_ns_p999")


def sections(finding: LadderFinding) -> Iterator[Section]:
    """Yield the points with the cross-checks, the saturation curves and the nodes."""
    rows: list[dict[str, Any]] = []
    places = {point.step_key: _place(point.queue_depth, knee) for knee in finding.knees for point in knee.points}
    for group in finding.groups:
        losses = {loss.upper_layer: loss for loss in group.losses}
        for point in group.points:
            rows += _rows(finding, point, losses.get(point.layer), places.get(point.step_key))
    for point in finding.cross_checks:
        rows += _rows(finding, point, None, places.get(point.step_key))
    yield Section("points", "Points", (for_programs("points", rows),))
    curves = tuple(row for knee in finding.knees for row in _curve(knee))
    table = Table("saturation", "saturation", _SATURATION, curves, only="people", shown_max=None)
    said = (Text(knee.sentence, "", f"{_load(knee.device_class, clean(knee.pattern))}: ") for knee in finding.knees)
    yield Section("saturation", "Saturation", (table, *said))
    nodes = tuple(_nodes(finding))
    yield Section("nodes", "Nodes", (Table("nodes", "nodes", _NODES, nodes, only="people", shown_max=None),))


def _load(name: str, pattern: str) -> str:
    return f"{device_class(name)} {pattern}"


def _curve(knee: KneeFinding) -> Iterator[tuple[Any, ...]]:
    for p in knee.points:
        marks = [
            mark for mark, point in (("knee", knee.knee), ("most IOPS", knee.best)) if point.step_key == p.step_key
        ]
        load = _load(knee.device_class, clean(knee.pattern))
        yield load, p.queue_depth, p.iops, p.latency_ns_mean, ", ".join(marks)


def _nodes(finding: LadderFinding) -> Iterator[tuple[Any, ...]]:
    """Yield for each point the machines that carried most of its traffic."""
    for group in finding.groups:
        for point in filter(is_shown, group.points):
            about = (_load(group.device_class, group_pattern(group)), layer(finding, point.layer).title)
            for node in sorted(point.nodes, key=_traffic, reverse=True)[:_NODES_MAX]:
                rates = (node.receive_bytes_per_s, node.transmit_bytes_per_s)
                yield *about, machine(node.name), node.cpu_ratio, *rates, node.link_ratio


def _traffic(node: NodeFinding) -> float:
    return (node.receive_bytes_per_s.value or 0.0) + (node.transmit_bytes_per_s.value or 0.0)


def _place(queue_depth: int, knee: KneeFinding) -> str:
    """Return where a depth lies on a saturation curve."""
    if queue_depth == knee.knee.queue_depth:
        return "knee"
    low, high = knee.knee_range
    return "before the knee" if queue_depth < low else "beyond the knee" if queue_depth > high else "near the knee"


def _rows(
    finding: LadderFinding, point: PointFinding, loss: RungLoss | None, saturation: str | None
) -> list[dict[str, Any]]:
    """Return the row of a point, and for a mixed load those of its reads and its writes."""
    row = _row(finding, point, loss, saturation)
    return [row, *(row | _apart(direction) for direction in point.directions)]


def _apart(direction: DirectionFinding) -> dict[str, Any]:
    """Return the columns of one direction; what is only known of both together is empty."""
    found: dict[str, Any] = {"direction": direction.direction}
    for name in (*FIGURES, "loss_iops_ratio", "loss_latency_added_ns"):
        found |= figure_columns(name, getattr(direction, name, Figure(None, "")), error=name in _PERCENTILES)
    return found


def _row(finding: LadderFinding, point: PointFinding, loss: RungLoss | None, saturation: str | None) -> dict[str, Any]:
    row = {"run_id": finding.run_id} | field_columns(
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
    row["caveats"] = caveats(point.caveats, finding.caveats)
    return row
