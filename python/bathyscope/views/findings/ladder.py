"""The ladder: for each pattern its layers from the disk up, the loss between them, the verdict; then its pictures.

Of its points people see some columns, programs all in one table. A figure `x` fills the columns x, x_low and x_high
(95 % interval); percentiles also x_relative_error, the bound of the histogram. loss_* compares with the next layer
below. A mixed load has two rows more: `direction` says which of its I/Os a row is of (total, read, write), so rows of
one step must not be added up. `saturation` says where a point lies on its saturation curve: before, near (the repeats
cannot tell) or beyond the knee, or at it. ceiling_* are of the resource that the load is nearest to.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bathyscope.records.blocks import Column, Legend, Section, Table, Text, Tone, units_of
from bathyscope.records.figure import Figure
from bathyscope.records.finding import (
    DirectionFinding,
    KneeFinding,
    LadderFinding,
    NodeFinding,
    PointFinding,
    RungGroup,
    RungLoss,
)
from bathyscope.records.ladder_blocks import Ceilings, Distributions, Rungs, StageBar, Stages, TimeSeries
from bathyscope.units import format_seconds
from bathyscope.views.account_words import nearest, pictured, spoken_of
from bathyscope.views.csv import field_columns
from bathyscope.views.figures import NOT_APPLICABLE, NOT_KNOWN
from bathyscope.views.findings.accounts import ACCOUNT, account
from bathyscope.views.footnotes import Footnotes
from bathyscope.views.labels import (
    STAGES,
    caveat_codes,
    clean,
    device_class,
    device_classes,
    group_pattern,
    layer,
    layers,
    machine,
    pattern,
)
from bathyscope.views.refusal import FIGURES, is_shown, why_refused

MEASURES = {
    "iops": "IOPS",
    "bandwidth_bytes_per_s": "Bandwidth",
    "latency_ns_mean": "Mean latency",
    "latency_ns_p99": "p99 latency",
}
"""What the rungs show: the key of a column of the points, and what it is."""
# Bandwidth over time is IOPS times the block size: a picture of its own would add nothing.
_OVER_TIME = {
    "iops": "IOPS", "latency_ns_mean": "Mean latency", "cpu_cores": "CPU (cores)",
    "device_utilization": "Device utilisation",
}  # fmt: skip
# Of a large cluster, the machines with most traffic.
_NODES_MAX = 6
_INTERVAL = "±: the wider half of the 95 % confidence interval over the repeats (absent: too few repeats)."
_EVERYWHERE = " [*]: applies to every line."
_SIGNS = (
    ("loss", "change of the IOPS from the layer below"),
    ("WA", "write amplification, bytes written to the devices per byte written by the client"),
    ("CPU/op", "OSD CPU time per I/O"),
    ("dev", "utilisation of the busiest device"),
    ("others", "IOPS of all pools that are not ours"),
    ("wait", "how long their operations in flight had been in their OSD"),
    ("ceil", "how much is reached of the IOPS at which the nearest resource has none left"),
    (NOT_KNOWN, "not enough data"),
    (NOT_APPLICABLE, "not applicable"),
)
_KNEE_LEGEND = (
    "knee: the queue depth with the greatest ratio of IOPS to latency; beyond it an I/O waits longer for less."
)


def _for_programs(*keys: str, figure: bool = False) -> tuple[Column, ...]:
    return tuple(
        Column(key, key, next(iter(units_of(key)), ""), figure="value" if figure else "", only="programs")
        for key in keys
    )


_TENANTS = (
    Column("tenant_iops", "others", "1/s", "Other pools' IOPS", rank=8, figure="value", width=6),
    Column("tenant_wait_ns", "wait", "ns", "Other pools' wait", rank=8, figure="value", width=6),
)
_STAGE_SHARES = tuple(f"stage_{stage}_share" for stage in STAGES)
# A heading is for narrow columns; `help` is the heading where there is room.
_POINTS = (
    Column("title", "", help="Layer", only="people", width=8),
    Column("refusal", "", prose=True, only="people"),
    *_for_programs(
        "run_id", "step_key", "device_class", "pattern", "layer", "load_generator", "op", "block_size_bytes",
        "queue_depth", "jobs", "status", "reason", "repeats", "steady", "direction", "saturation",
    ),
    Column("iops", "IOPS", "1/s", figure="interval", width=9),
    Column("bandwidth_bytes_per_s", "MiB/s", "bytes/s", "Bandwidth", rank=5, figure="roomy", width=5),
    Column("latency_ns_mean", "mean", "ns", "Mean", figure="roomy", width=6),
    Column("latency_ns_p50", "p50", "ns", rank=7, figure="roomy", width=6),
    Column("latency_ns_p99", "p99", "ns", figure="roomy", width=6),
    Column("latency_ns_p999", "p99.9", "ns", rank=2, figure="value", width=6),
    Column("loss", "loss", "change", "Loss", figure="value", only="people", width=5),
    Column("write_amplification", "WA", "", "Write amplification", figure="value", width=4),
    *_for_programs("read_from_cache_ratio", figure=True),
    Column("osd_cpu_us_per_op", "CPU/op", "", "OSD CPU per op", rank=6, figure="value", width=6),
    *_for_programs("client_cpu_us_per_op", figure=True),
    Column("device_utilization", "dev", "", "Device utilisation", rank=3, figure="value", width=4),
    *_TENANTS,
    *_for_programs("loss_below_layer"),
    *_for_programs("loss_iops_ratio", "loss_latency_added_ns", figure=True),
    *_for_programs(*_STAGE_SHARES, "stage_sample_count"),
    *(dataclasses.replace(column, only="programs") for column in ACCOUNT),
    *_for_programs("caveats"),
    Column("ceiling", "ceil", "", "Of ceiling", rank=4, figure="value", only="people", width=4),
    Column("ceiling_words", "nearest ceiling", rank=9, only="people", width=15),
)  # fmt: skip
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


def group_key(group: RungGroup) -> str:
    """Return what sections and pictures of a group are called."""
    return f"{group.device_class or 'all'}-{group.pattern}"


def sections(finding: LadderFinding) -> Iterator[Section]:
    """Yield the answer, each group with its verdict, the cross-checks, the pictures, the nodes and the caveats."""
    duration = ""
    if finding.ended_ns is not None:
        duration = f", {format_seconds((finding.ended_ns - finding.started_ns) / 1e9)}"
    about = f"run {finding.run_id} ({finding.plan_name}) on {finding.target}: {finding.status}{duration}"
    tenants = [Text(finding.tenants)] if finding.tenants else []
    yield Section("run", "Ladder", (Text(about, "dim"), Text(finding.headline, "strong"), *tenants))
    curves = tuple(row for knee in finding.knees for row in _curve(knee))
    table = Table("saturation", "saturation", _SATURATION, curves, only="page", shown_max=None)
    said = (Text(knee.sentence, "good", f"{_load(knee.device_class, clean(knee.pattern))}: ") for knee in finding.knees)
    yield Section("saturation", "Saturation", (table, *said, *[Text(_KNEE_LEGEND, "dim")] * bool(finding.knees)))
    rows = _Rows(finding)
    tables = {}
    for group in finding.groups:
        key, words = group_key(group), group_pattern(group)
        tables[key] = rows.table(words, group.points, group.losses)
        title, point = _load(group.device_class, words), spoken_of(group)
        if point is None:
            yield Section(f"group-{key}", title, (tables[key], Text(group.sentence)))
        else:
            verdict = dataclasses.replace(point.verdict, sentence=group.sentence)
            yield Section(f"group-{key}", title, (tables[key], verdict), point.step_key)
    for point in finding.cross_checks:
        words = f"Cross-check by {clean(point.load_generator)}: {_load(point.device_class, pattern(point))}"
        yield Section(f"cross_check-{point.step_key}", words, (rows.table(pattern(point), [point]),))
    yield from _pictures(finding, tables)
    nodes = tuple(_nodes(finding))
    yield Section("nodes", "Nodes", (Table("nodes", "nodes", _NODES, nodes, only="page", shown_max=None),))
    yield Section("caveats", "Caveats", tuple(rows.footnotes.notes))
    always = _INTERVAL + _EVERYWHERE * any(note.everywhere for note in rows.footnotes.notes)
    yield Section("legend", "", (Legend("points", always, _SIGNS),) * bool(finding.groups or finding.cross_checks))


def _pictures(finding: LadderFinding, tables: Mapping[str, Table]) -> Iterator[Section]:
    """Yield the sections that are pictures alone."""
    views = tuple(layers(finding))
    classes = {
        name: [group for group in finding.groups if group.device_class == name] for name in device_classes(finding)
    }
    yield Section(
        "rungs",
        "Ladder",
        tuple(
            Rungs(
                f"ladder-{name or 'all'}-{key}",
                f"{device_class(name)}: {measure} at each layer",
                key,
                measure,
                tuple(tables[group_key(group)] for group in groups),
                tuple(tables.values()),
                views,
            )
            for name, groups in classes.items()
            for key, measure in MEASURES.items()
        ),
    )
    stages = []
    for name, groups in classes.items():
        bars = tuple(
            StageBar(group_pattern(group), layer(finding, point.layer).title, point.stages, point.stage_sample_count)
            for group in groups
            for point in group.points
            if point.stages
        )
        if bars:
            title = f"{device_class(name)}: time inside the OSDs by stage"
            stages.append(Stages(f"stages-{name or 'all'}", title, bars))
    yield Section("stages", "Time inside the OSDs", tuple(stages))
    ceilings, latency = [], []
    for group in finding.groups:
        key, load = group_key(group), _load(group.device_class, group_pattern(group))
        if (point := pictured(group)) is not None and point.account is not None:
            view = layer(finding, point.layer)
            words = f"{load} on {view.words}: ceilings and latency"
            ceilings.append(Ceilings(f"ceilings-{key}", words, point.account, view, views))
        of_group = (group.device_class, group.pattern)
        if lines := tuple(d for d in finding.distributions if (d.device_class, d.pattern) == of_group):
            latency.append(Distributions(f"distribution-{key}", f"{load}: latency distribution", lines, views))
    yield Section("ceilings", "Ceilings", tuple(ceilings))
    yield Section("latency", "Latency distributions", tuple(latency))
    by_load: dict[tuple[str, str], list[Any]] = {}
    for each in finding.series:
        by_load.setdefault((each.step_key, each.name), []).append(each)
    measures = over_time(finding)
    yield Section(
        "time",
        "Over time",
        tuple(
            TimeSeries(
                f"series-{key}-{name}",
                f"{clean(key)}: {measures[name]}",
                name,
                tuple(by_load[key, name]),
                views,
            )
            for key in dict.fromkeys(each.step_key for each in finding.series)
            for name in measures
            if (key, name) in by_load
        ),
    )


def over_time(finding: LadderFinding) -> dict[str, str]:
    """Return the measures that are drawn over time with their titles: those of _OVER_TIME, then any others."""
    present = dict.fromkeys(each.name for each in finding.series if each.name != "bandwidth_bytes_per_s")
    titled = {name: title for name, title in _OVER_TIME.items() if name in present}
    return titled | {name: clean(name).replace("_", " ") for name in present if name not in titled}


class _Rows:
    """The rows of the points of a ladder, with the marks of their caveats."""

    def __init__(self, finding: LadderFinding) -> None:
        self.footnotes = Footnotes(finding)
        points = [point for group in finding.groups for point in group.points]
        # Only where other tenants were seen in any step they have columns.
        has_tenants = any(point.tenant_iops.value or point.tenant_wait_ns.value for point in points)
        hidden = () if has_tenants else _TENANTS
        self.columns = tuple(dataclasses.replace(c, only="programs") if c in hidden else c for c in _POINTS)
        self._finding = finding
        self._places = {
            point.step_key: _place(point.queue_depth, knee) for knee in finding.knees for point in knee.points
        }

    def table(self, title: str, points: Sequence[PointFinding], losses: Sequence[RungLoss] = ()) -> Table:
        """Return the rows of points, below that of a mixed load those of its reads and its writes."""
        by_layer = {loss.upper_layer: loss for loss in losses}
        rows, tones = [], list[Tone]()
        for point in points:
            name = layer(self._finding, point.layer).title
            row = self._row(point, by_layer.get(point.layer))
            marks = "".join(mark for mark, _ in self.footnotes.of(point))
            row["title"] = f"{name}[{marks}]" if marks else name
            rows += [row, *(row | _of_direction(direction) for direction in point.directions)]
            is_doubtful = any(caveat.severity == "warning" for caveat in point.caveats)
            tones.append("bad" if not is_shown(point) else "warning" if is_doubtful else "")
            tones += [""] * len(point.directions)
        cells = tuple(tuple(row[column.key] for column in self.columns) for row in rows)
        return Table("points", title, self.columns, cells, tuple(tones), shown_max=None)

    def _row(self, point: PointFinding, loss: RungLoss | None) -> dict[str, Any]:
        stages = {stage.stage: stage.share for stage in point.stages}
        ceiling = nearest(point)
        return {
            "refusal": "" if is_shown(point) else f"{point.status}: {why_refused(point)}",
            "run_id": self._finding.run_id,
            **field_columns(
                point, "step_key", "device_class", "pattern", "layer", "load_generator", "op", "block_size_bytes",
                "queue_depth", "jobs", "status", "reason", "repeats", "steady",
            ),
            "direction": "total" if point.op == "randrw" else "write" if point.op.endswith("write") else "read",
            "saturation": self._places.get(point.step_key),
            **{name: _figure(point, name) for name in FIGURES},
            "loss": loss and _less_one(loss.ratio),
            "loss_below_layer": loss and loss.lower_layer,
            "loss_iops_ratio": loss and loss.ratio,
            "loss_latency_added_ns": loss and loss.latency_added_ns,
            **{key: stages.get(stage) for key, stage in zip(_STAGE_SHARES, STAGES, strict=True)},
            "stage_sample_count": point.stage_sample_count,
            **dict(zip((column.key for column in ACCOUNT), account(point), strict=True)),
            "caveats": caveat_codes(point.step_key, point.caveats, self._finding.caveats),
            "ceiling": ceiling and ceiling.reached,
            "ceiling_words": ceiling and clean(ceiling.words),
        }  # fmt: skip


def _figure(point: PointFinding, name: str) -> Figure | None:
    """Return the figure `name` of a point; None where it has no meaning for the point's layer and operation."""
    figure: Figure = getattr(point, name)
    if name == "write_amplification":
        # A factor, not a share: 14.2, not 1420 %.
        figure, applies = dataclasses.replace(figure, unit=""), point.op in ("write", "randwrite", "randrw")
    else:
        applies = point.on_cluster or name not in ("osd_cpu_us_per_op", "tenant_iops", "tenant_wait_ns")
    return figure if applies or figure.value is not None else None


def _less_one(ratio: Figure) -> Figure:
    """Return a ratio as a change."""
    value, low, high = (None if each is None else each - 1 for each in (ratio.value, ratio.low, ratio.high))
    return Figure(value, "change", low, high)


def _of_direction(direction: DirectionFinding) -> dict[str, Any]:
    """Return the columns of one direction; what is only known of both together is empty."""
    names = (*FIGURES, "loss", "loss_iops_ratio", "loss_latency_added_ns", "ceiling", "ceiling_words")
    figures = {name: getattr(direction, name, None) for name in names}
    return {"title": f"  {direction.direction}s", "direction": direction.direction, **figures}


def _load(name: str, words: str) -> str:
    return f"{device_class(name)} {words}"


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
