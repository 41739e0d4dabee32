"""Findings: what analysis concludes and views show. Views never compute: every figure is already here.

A finding is a frozen dataclass of plain values, so that one finding has many renderers. `as_plain`
turns any of them into dictionaries and lists for JSON.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar

from bathyscope.records.account import Account
from bathyscope.records.blocks import CaveatView, Table
from bathyscope.records.figure import Figure

COLUMN_FIELDS = ("key", "heading", "unit", "help")
"""What JSON says of a column: the rest is for screens."""
_NO_RATE, _NO_TIME = Figure(None, "1/s"), Figure(None, "ns")
FORMAT_VERSION = 1
"""Of the JSON of all findings: it grows by one when a key goes or gets another meaning, not when one is added."""


@dataclasses.dataclass(frozen=True, slots=True)
class Evidence:
    """One measured fact behind a verdict: "OSD CPU per op", 180, "µs"."""

    name: str
    figure: Figure


@dataclasses.dataclass(frozen=True, slots=True)
class Verdict:
    """One sentence about what limits a point, with the evidence for it.

    `limit` is a stable name: refused, load_rate, image_limit, device, osd_cpu, client_cpu, network, host_cpu,
    other_processes, in_flight (a throttle), hot_pg, slow_node, slow_osd, uneven, tenant, scrub, recovery, snap_trim,
    latency_bound, cache, kv_sync, outside, nearest (none is reached), unknown. `subject` is what the sentence names:
    osd.0, node2, a pool; empty where nothing has a name.
    `alternatives` are the other causes that were considered, with their figures; `next_step` is one thing to do or to
    measure.
    """

    limit: str
    sentence: str
    evidence: tuple[Evidence, ...] = ()
    subject: str = ""
    alternatives: tuple[Evidence, ...] = ()
    next_step: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class StageShare:
    """Share of the ops' time in one stage inside the OSDs: queue, prepare, store, replica_wait, reply."""

    stage: str
    share: float
    latency_ns_mean: float
    latency_ns_p50: float
    latency_ns_p99: float


@dataclasses.dataclass(frozen=True, slots=True)
class NodeFinding:
    """One machine: its processors, where OSDs under test run on it, and its network in and out.

    `link_ratio` is the share of the speed of its busiest link; not known where no card reports a speed.
    """

    name: str
    cpu_ratio: Figure
    receive_bytes_per_s: Figure
    transmit_bytes_per_s: Figure
    link_ratio: Figure


@dataclasses.dataclass(frozen=True, slots=True)
class DirectionFinding:
    """The reads or the writes of a mixed load (`direction` is read or write), apart from the other ones."""

    direction: str
    iops: Figure
    bandwidth_bytes_per_s: Figure
    latency_ns_mean: Figure
    latency_ns_p50: Figure
    latency_ns_p99: Figure
    latency_ns_p999: Figure


@dataclasses.dataclass(frozen=True, slots=True)
class PointFinding:
    """One configuration (step_key) over all its repeats: one cell of the ladder.

    `on_cluster`: the load went through OSDs; a disk has none. `tenant_iops`: I/O of all pools that are not ours;
    `tenant_wait_ns`: how long their operations in flight had been in their OSD. `directions`: reads and writes of
    a mixed load apart; the point's own figures are of both together. `nodes`: the machines whose network was sampled.
    `account`: demands, ceilings and where the latency is; None without a figure.
    """

    step_key: str
    layer: str
    load_generator: str
    device_class: str
    pattern: str
    op: str
    block_size_bytes: int
    queue_depth: int
    jobs: int
    status: str
    reason: str | None
    repeats: int
    iops: Figure
    bandwidth_bytes_per_s: Figure
    latency_ns_mean: Figure
    latency_ns_p50: Figure
    latency_ns_p99: Figure
    latency_ns_p999: Figure
    write_amplification: Figure
    read_from_cache_ratio: Figure
    osd_cpu_us_per_op: Figure
    client_cpu_us_per_op: Figure
    device_utilization: Figure
    steady: bool
    stages: tuple[StageShare, ...]
    stage_sample_count: int
    stage_sample_complete: bool
    caveats: tuple[CaveatView, ...]
    verdict: Verdict
    on_cluster: bool = True
    tenant_iops: Figure = _NO_RATE
    tenant_wait_ns: Figure = _NO_TIME
    directions: tuple[DirectionFinding, ...] = ()
    nodes: tuple[NodeFinding, ...] = ()
    account: Account | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class RungLoss:
    """What is lost from one layer to the one above it, for one pattern on one device class.

    `ratio` is above/below in IOPS (1 = nothing lost); `latency_added_ns` the difference of mean latencies.
    """

    lower_layer: str
    upper_layer: str
    ratio: Figure
    latency_added_ns: Figure
    sentence: str


@dataclasses.dataclass(frozen=True, slots=True)
class RungGroup:
    """One pattern on one device class: its layers from the disk up, and the losses between them."""

    device_class: str
    pattern: str
    points: tuple[PointFinding, ...]
    losses: tuple[RungLoss, ...]
    sentence: str


@dataclasses.dataclass(frozen=True, slots=True)
class CurvePoint:
    """One queue depth of a saturation curve."""

    step_key: str
    queue_depth: int
    jobs: int
    iops: Figure
    latency_ns_mean: Figure


@dataclasses.dataclass(frozen=True, slots=True)
class KneeFinding:
    """The saturation curve of one load: where more queue depth begins to buy more latency than IOPS.

    `knee` has the greatest ratio of IOPS to latency; `knee_range` are the least and the greatest depth that the repeats
    cannot tell apart from it. `best` has the most IOPS. `reached` is False when the knee is the deepest point measured.
    """

    layer: str
    load_generator: str
    device_class: str
    pattern: str
    points: tuple[CurvePoint, ...]
    knee: CurvePoint
    best: CurvePoint
    knee_range: tuple[int, int]
    reached: bool
    sentence: str


@dataclasses.dataclass(frozen=True, slots=True)
class SeriesPoint:
    """One point of a time series: seconds since the start of the measured window, and a value."""

    t_s: float
    value: float


@dataclasses.dataclass(frozen=True, slots=True)
class Series:
    """A time series of one step: IOPS, bandwidth, CPU of a daemon, utilisation of a device, …"""

    step_key: str
    repeat_index: int
    name: str
    subject: str
    unit: str
    points: tuple[SeriesPoint, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class DistributionPoint:
    """One point of a latency distribution: `quantile` of the I/Os ended within `latency_ns`."""

    quantile: float
    latency_ns: float


@dataclasses.dataclass(frozen=True, slots=True)
class Distribution:
    """The merged latency distribution of one configuration (all repeats, all clients), thinned for drawing."""

    step_key: str
    layer: str
    device_class: str
    pattern: str
    io_count: int
    points: tuple[DistributionPoint, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class CommandView:
    """A command exactly as it ran."""

    step_key: str
    repeat_index: int
    label: str
    argv: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]
    exit_code: int
    duration_s: float


@dataclasses.dataclass(frozen=True, slots=True)
class LayerView:
    """What views show of a layer wherever it stands.

    `title` heads a row, `words` stand in a sentence, `place` is the rung on the ladder from the disk up. `slot` is the
    colour's place in the palette, `shape` and `dash` are Vega's, so that colour is never the only sign.
    """

    name: str
    title: str
    words: str
    place: int
    slot: int
    shape: str
    dash: tuple[int, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class LadderFinding:
    """Everything that a ladder view or a report shows of one run."""

    NAME: ClassVar[str] = "ladder"

    run_id: str
    plan_name: str
    target: str
    status: str
    started_ns: int
    ended_ns: int | None
    headline: str
    groups: tuple[RungGroup, ...]
    cross_checks: tuple[PointFinding, ...]
    distributions: tuple[Distribution, ...]
    series: tuple[Series, ...]
    caveats: tuple[CaveatView, ...]
    environment: tuple[tuple[str, str, str], ...]
    commands: tuple[CommandView, ...]
    layers: tuple[LayerView, ...] = ()
    tenants: str = ""
    """What the run cost the cluster's other tenants, as sentences; empty when nobody looked."""
    knees: tuple[KneeFinding, ...] = ()

    @property
    def points(self) -> tuple[PointFinding, ...]:
        """All points, in the order of the ladder; cross-checks come last."""
        return (*(point for group in self.groups for point in group.points), *self.cross_checks)


@dataclasses.dataclass(frozen=True, slots=True)
class StepEffect:
    """One configuration compared between two runs: B relative to A.

    `effect` is the ratio B/A − 1 with its interval, on `metric` (iops or latency). `verdict` is faster, slower
    or inconclusive; `reason` says why it is inconclusive.
    """

    step_key: str
    metric: str
    a: Figure
    b: Figure
    effect: Figure
    verdict: str
    reason: str | None


@dataclasses.dataclass(frozen=True, slots=True)
class Difference:
    """Something that is not the same in two runs.

    `area` is step, plan, pool, layout or environment. `severity` is refused (the figures are of different things),
    warning (the difference itself can make a step faster or slower) or note.
    """

    area: str
    subject: str
    name: str
    a: str
    b: str
    severity: str

    @property
    def text(self) -> str:
        """The difference in words: "pool rbd size: 3 → 2"."""
        return f"{self.subject} {self.name}: {self.a} → {self.b}"


@dataclasses.dataclass(frozen=True, slots=True)
class CompareFinding:
    """Two runs compared step by step. `missing` steps exist in one run only and never count as equal.

    `differences` are all between the two runs besides their figures, the most severe first.
    """

    NAME: ClassVar[str] = "compare"

    run_a: str
    run_b: str
    effects: tuple[StepEffect, ...]
    missing: tuple[tuple[str, str], ...]
    differences: tuple[Difference, ...]
    headline: str


def as_plain(value: Any) -> Any:
    """Return a finding as dictionaries, lists and scalars; NaN and infinities become None (JSON has neither).

    A row of a table is a dictionary by the keys of its columns.
    """
    if isinstance(value, Table):
        keys = [column.key for column in value.columns]
        rows = [dict(zip(keys, as_plain(row), strict=True)) for row in value.rows]
        columns = [{name: getattr(column, name) for name in COLUMN_FIELDS} for column in value.columns]
        return {"key": value.key, "title": value.title, "columns": columns, "rows": rows}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: as_plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {key: as_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
