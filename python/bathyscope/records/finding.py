"""Findings: what analysis concludes and views show. Views never compute: every figure is already here.

A finding is a frozen dataclass of plain values, so that one finding has many renderers. `as_plain`
turns any of them into dictionaries and lists for JSON.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any


@dataclasses.dataclass(frozen=True, slots=True)
class Figure:
    """A number with its uncertainty.

    `value` is None when it cannot be told. `low`..`high` is the 95 % interval (None: no interval can be
    given); `relative_error` is the bound of the instrument (a histogram's bucket width), apart from the
    interval; `samples` is the number of repeats or intervals that it rests on.
    """

    value: float | None
    unit: str
    low: float | None = None
    high: float | None = None
    relative_error: float = 0.0
    samples: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class CaveatView:
    """A caveat as shown beside a number; equal caveats of several steps are one row with a count."""

    code: str
    severity: str
    text: str
    step_keys: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Evidence:
    """One measured fact behind a verdict: "OSD CPU per op", 180, "µs"."""

    name: str
    figure: Figure


@dataclasses.dataclass(frozen=True, slots=True)
class Verdict:
    """One sentence about what holds a point back, with the evidence for it.

    `limit` is a stable name: device, osd_cpu, host_cpu, client_cpu, replica_wait, queue, latency_bound,
    cache, unknown.
    """

    limit: str
    sentence: str
    evidence: tuple[Evidence, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class StageShare:
    """Share of the ops' time in one stage inside the OSDs: queue, prepare, store, replica_wait, reply."""

    stage: str
    share: float
    latency_ns_mean: float
    latency_ns_p50: float
    latency_ns_p99: float


@dataclasses.dataclass(frozen=True, slots=True)
class PointFinding:
    """One configuration (step_key) over all its repeats: one cell of the ladder."""

    step_key: str
    layer: str
    witness: str
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
class LadderFinding:
    """Everything that a ladder view or a report shows of one run."""

    run_id: str
    plan_name: str
    target: str
    status: str
    started_ns: int
    ended_ns: int | None
    headline: str
    groups: tuple[RungGroup, ...]
    witnesses: tuple[PointFinding, ...]
    distributions: tuple[Distribution, ...]
    series: tuple[Series, ...]
    caveats: tuple[CaveatView, ...]
    environment: tuple[tuple[str, str, str], ...]
    commands: tuple[CommandView, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class StepEffect:
    """One configuration compared between two runs: B relative to A.

    `effect` is the ratio B/A − 1 with its interval, on `metric` (iops or latency). `call` is faster, slower
    or cannot tell; `reason` says why it cannot be told.
    """

    step_key: str
    metric: str
    a: Figure
    b: Figure
    effect: Figure
    call: str
    reason: str | None


@dataclasses.dataclass(frozen=True, slots=True)
class CompareFinding:
    """Two runs compared step by step. `missing` steps exist in one run only and never count as equal."""

    run_a: str
    run_b: str
    effects: tuple[StepEffect, ...]
    missing: tuple[tuple[str, str], ...]
    environment_changes: tuple[tuple[str, str, str, str], ...]
    headline: str


def as_plain(value: Any) -> Any:
    """Return a finding as dictionaries, lists and scalars; NaN and infinities become None (JSON has neither)."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: as_plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {key: as_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
