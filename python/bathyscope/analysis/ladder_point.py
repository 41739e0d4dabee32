"""One configuration over its repeats: medians, intervals, percentiles of merged histograms, verdict."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import numpy as np
import pyarrow as pa

from bathyscope.analysis import bootstrap, caveat_texts, latency
from bathyscope.analysis.account.hot_spot import hot_spot, pgs_seen
from bathyscope.analysis.account.merge import merged
from bathyscope.analysis.bootstrap import Estimate
from bathyscope.analysis.columns import table_of
from bathyscope.analysis.ladder_words import Layers, subject
from bathyscope.analysis.stages import PeerWait, StageFinding, stages
from bathyscope.analysis.step_figures import StepFigures, rate_iops_of
from bathyscope.analysis.verdict import Case, Cluster, CpuUse, verdict
from bathyscope.records import CLIENTS, Caveat, Step
from bathyscope.records.account import Account
from bathyscope.records.blocks import CaveatView, severity_order
from bathyscope.records.figure import Figure
from bathyscope.records.finding import DirectionFinding, NodeFinding, PointFinding, Verdict
from bathyscope.units import format_percent, format_rate, three_digits

F = TypeVar("F")
_RATE_MISSED = 0.03
_ARM_MIN = 0.01
# By how much rate × latency may miss the I/Os that the load generator was told to keep in flight.
_IN_FLIGHT_LIMIT = 0.2
_IN_FLIGHT_IOS_MIN = 100
_BASE_PATTERN = re.compile(r"^[a-z]+[0-9]*-[0-9]+[KMGT]?-qd[0-9]+")


@dataclasses.dataclass(frozen=True, slots=True)
class Repeat:
    """One step with its figures, its account, its operations inside the OSDs, and its caveats."""

    step: Step
    figures: StepFigures
    account: Account
    ops: pa.Table
    caveats: tuple[Caveat, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Point:
    """A point with the per-repeat values that contrasts between points need."""

    finding: PointFinding
    variant: str
    iops: tuple[float, ...]
    latency_ns_mean: tuple[float, ...]
    histogram: latency.LatencyHistogram


def variant_of(step_key: str) -> str:
    """Return "randread-4K-qd16-j4" of "rbd/ssd/randread-4K-qd16-j4@rados_bench"."""
    return step_key.rsplit("/", 1)[-1].split("@", 1)[0]


def base_pattern(variant: str) -> str:
    """Return a variant without what a configuration adds: "randread-4K-qd16" of "randread-4K-qd16-j4-cold"."""
    match = _BASE_PATTERN.match(variant)
    return match[0] if match else variant


def point(repeats: Sequence[Repeat], layers: Layers, cluster: Cluster, *, said: str | None = None) -> Point:
    """Return the point of all repeats of one configuration; at least one, of the same step_key.

    Refused and failed repeats do not enter any figure; when no repeat is left, every figure is None and the
    status and reason say why. `said` begins the verdict: what was measured, by default the load in words.
    """
    repeats = sorted(repeats, key=lambda r: r.step.repeat_index)
    good = [r for r in repeats if r.step.status == "done" and r.figures.io_count > 0]
    first = repeats[0].step
    numbers = [r.figures for r in good]
    histograms = [f.histogram for f in numbers]
    status, reason = _status(repeats, good)
    inside = _stages(good, first)
    iops = _iops(numbers)
    account = merged([r.account for r in good])
    if said is None:
        said = subject(first, layers, iops.value) if iops.value else reason
    finding = PointFinding(
        step_key=first.step_key,
        layer=first.layer,
        load_generator=first.load_generator,
        device_class=first.device_class,
        pattern=variant_of(first.step_key),
        op=first.op,
        block_size_bytes=first.block_size_bytes,
        queue_depth=first.queue_depth,
        jobs=first.jobs,
        status=status,
        reason=reason,
        repeats=len(good),
        iops=iops.figure("1/s"),
        bandwidth_bytes_per_s=_median(numbers, lambda f: f.bandwidth_bytes_per_s, "bytes/s"),
        latency_ns_mean=_median(numbers, lambda f: f.latency_ns_mean, "ns"),
        latency_ns_p50=latency.percentile(histograms, 0.5),
        latency_ns_p99=latency.percentile(histograms, 0.99),
        latency_ns_p999=latency.percentile(histograms, 0.999),
        write_amplification=_median(numbers, lambda f: f.write_amplification, "ratio"),
        read_from_cache_ratio=_share(numbers, lambda f: f.read_from_cache_ratio),
        osd_cpu_us_per_op=_median(numbers, lambda f: f.osd_cpu_us_per_op, "µs"),
        client_cpu_us_per_op=_median(numbers, lambda f: f.client_cpu_us_per_op, "µs"),
        device_utilization=_share(numbers, lambda f: f.device_utilization),
        steady=bool(good) and all(f.steady.steady for f in numbers),
        stages=inside.shares,
        stage_sample_count=inside.sample_count,
        stage_sample_complete=inside.complete,
        caveats=_caveats(repeats, good, histograms),
        on_cluster=first.osds is not None,
        tenant_iops=_median(numbers, lambda f: f.tenant_iops, "1/s"),
        tenant_wait_ns=_median(numbers, lambda f: f.tenant_wait_ns, "ns"),
        directions=_directions(numbers),
        nodes=_nodes(numbers),
        verdict=_verdict(
            first, good, account, peer_waits=inside.slowest_peers if inside.complete else (), said=said, cluster=cluster
        ),
        account=account,
    )
    return Point(
        finding,
        finding.pattern,
        tuple(f.iops for f in numbers),
        tuple(f.latency_ns_mean for f in numbers if f.latency_ns_mean is not None),
        latency.merge(histograms),
    )


def _status(repeats: Sequence[Repeat], good: Sequence[Repeat]) -> tuple[str, str | None]:
    if good:
        return "done", None
    status = "refused" if any(r.step.status == "refused" for r in repeats) else "failed"
    reasons = [r.step.reason for r in repeats if r.step.reason]
    return status, reasons[0] if reasons else "no I/O was completed"


def _iops(numbers: Sequence[StepFigures]) -> Estimate:
    if len(numbers) != 1:
        return bootstrap.median([f.iops for f in numbers])
    within, value = bootstrap.within_repeat(numbers[0].series_iops), numbers[0].iops
    if within.low is None or within.high is None:
        return Estimate(value, samples=1)
    return Estimate(value, min(within.low, value), max(within.high, value), 1)


def _directions(numbers: Sequence[StepFigures]) -> tuple[DirectionFinding, ...]:
    """Return reads and writes apart where every repeat has both."""
    names = [d.direction for d in numbers[0].directions] if numbers else []
    directions = []
    for name in names:
        same_direction = [d for f in numbers for d in f.directions if d.direction == name]
        if len(same_direction) != len(numbers):
            return ()
        histograms = [d.histogram for d in same_direction]
        directions.append(
            DirectionFinding(
                direction=name,
                iops=_median(same_direction, lambda d: d.iops, "1/s"),
                bandwidth_bytes_per_s=_median(same_direction, lambda d: d.bandwidth_bytes_per_s, "bytes/s"),
                latency_ns_mean=_median(same_direction, lambda d: d.latency_ns_mean, "ns"),
                latency_ns_p50=latency.percentile(histograms, 0.5),
                latency_ns_p99=latency.percentile(histograms, 0.99),
                latency_ns_p999=latency.percentile(histograms, 0.999),
            )
        )
    return tuple(directions)


def _nodes(numbers: Sequence[StepFigures]) -> tuple[NodeFinding, ...]:
    """Return the machines whose network was sampled, medians over the repeats."""
    names = dict.fromkeys(use.host for f in numbers for use in f.network)
    nodes = []
    for name in names:
        uses = [use for f in numbers for use in f.network if use.host == name]
        busy = [use.cpu_ratio for f in numbers for use in f.nodes if use.name == name]
        busy += [f.host_cpu_ratio for f in numbers if f.load_host == name and f.host_cpu_ratio is not None]
        nodes.append(
            NodeFinding(
                name,
                _middle(busy, "ratio"),
                _middle([use.receive_bytes_per_s for use in uses], "bytes/s"),
                _middle([use.transmit_bytes_per_s for use in uses], "bytes/s"),
                _middle([use.link_ratio for use in uses if use.link_ratio is not None], "ratio"),
            )
        )
    return tuple(nodes)


def _middle(values: Sequence[float], unit: str) -> Figure:
    """Return the median without an interval."""
    return Figure(float(np.median(values)) if values else None, unit, samples=len(values))


def _median(numbers: Sequence[F], read: Callable[[F], float | None], unit: str) -> Figure:
    values = [value for f in numbers if (value := read(f)) is not None]
    return bootstrap.median(values).figure(unit)


def _share(numbers: Sequence[StepFigures], read: Callable[[StepFigures], float | None]) -> Figure:
    """Return a median like `_median`, of what cannot leave 0 … 1; nor can its interval."""
    figure = _median(numbers, read, "ratio")
    if figure.low is None or figure.high is None or figure.value is None:
        return figure
    high = max(min(figure.high, 1.0), figure.value)
    return dataclasses.replace(figure, low=max(figure.low, 0.0), high=high)


def _stages(good: Sequence[Repeat], first: Step) -> StageFinding:
    tables = [r.ops for r in good if r.ops.num_rows]
    ops = pa.concat_tables(tables) if tables else table_of({}, "op")
    mixed = first.op == "randrw"
    reads = first.op in ("randread", "read")
    return stages(ops, reads=reads or mixed, writes=not reads or mixed)


def _verdict(
    first: Step,
    repeats: Sequence[Repeat],
    account: Account | None,
    *,
    peer_waits: tuple[PeerWait, ...],
    said: str | None,
    cluster: Cluster,
) -> Verdict:
    """Return the verdict; `said` is what was measured, or without a figure the reason why there is none."""
    if account is None and first.layer == CLIENTS:
        return Verdict("idle", f"{said}: cannot tell what limits them")
    if account is None:
        return Verdict("refused" if first.status == "refused" else "unknown", f"no verdict: {said}")
    numbers = [r.figures for r in repeats]
    ops = pa.concat_tables([r.ops for r in repeats]) if repeats else table_of({}, "op")
    cpu_us, cached = (
        _middle([value for f in numbers if (value := getattr(f, name)) is not None], "").value
        for name in ("osd_cpu_us_per_op", "read_from_cache_ratio")
    )
    rate_iops = rate_iops_of(first)
    return verdict(
        Case(
            subject=said or "",
            account=account,
            machines=_machines(numbers),
            osd_cpu_us_per_op=cpu_us,
            read_from_cache_ratio=cached,
            arm=_arm(numbers),
            hot_spot=hot_spot(ops),
            pgs_seen=pgs_seen(ops),
            peer_waits=peer_waits,
            cluster=cluster,
            ios=sum(f.io_count for f in numbers),
            is_recorded=first.layer == CLIENTS,
            rate_reached=rate_iops is not None and _reached(first, numbers, rate_iops),
            unseen=_unseen(first, numbers, account),
        )
    )


def _reached(first: Step, numbers: Sequence[StepFigures], rate_iops: int) -> bool:
    """Return whether a load did what it was asked for: so many I/Os a second in each direction, at random times."""
    asked = rate_iops * first.jobs * (2 if first.op == "randrw" else 1)
    ios = sum(f.io_count for f in numbers)
    done = ios / sum(f.runtime_s for f in numbers)
    return done >= asked * (1 - max(_RATE_MISSED, 3 / math.sqrt(max(1, ios))))


def _unseen(first: Step, numbers: Sequence[StepFigures], account: Account) -> tuple[str, ...]:
    """Return what of the OSDs may be at its ceiling and was not measured."""
    if first.osds is None:
        return ()
    devices = any(ceiling.resource == "device" for ceiling in account.ceilings)
    processors = all(f.all_osds_sampled or f.nodes for f in numbers)
    is_known = {"how near the OSDs' devices are to theirs": devices, "the processors of the OSDs' machines": processors}
    return tuple(words for words, known in is_known.items() if not known)


def _machines(numbers: Sequence[StepFigures]) -> tuple[CpuUse, ...]:
    """Return what the processors of each machine were used for, medians over the repeats."""
    uses: dict[str, list[CpuUse]] = {}
    for f in numbers:
        if f.host_processors:
            here = CpuUse(f.load_host, f.host_processors, f.osd_cores_here, f.client_cores, f.other_cores)
            uses.setdefault(f.load_host, []).append(here)
        for node in f.nodes:
            uses.setdefault(node.name, []).append(CpuUse(node.name, node.processors, node.osd_cores, None, None))

    def middle(host_uses: Sequence[CpuUse], name: str) -> float | None:
        return _middle([value for use in host_uses if (value := getattr(use, name)) is not None], "cores").value

    return tuple(
        CpuUse(
            host, host_uses[0].processors, *(middle(host_uses, name) for name in ("osds", "load_generator", "others"))
        )
        for host, host_uses in uses.items()
    )


def _arm(numbers: Sequence[StepFigures]) -> str:
    """Return what the busiest hard disk was busy with, where it is known and its arm had anything to do."""
    spent = [_shares_of_arm(f) for f in numbers]
    known = [shares for shares in spent if shares is not None]
    if not known or len(known) < len(spent):
        return ""
    seek, rotation, transfer = np.median(known, axis=0)
    if seek + rotation + transfer < _ARM_MIN:
        return ""
    busiest = " of the busiest" if max(len(f.devices) for f in numbers) > 1 else ""
    shares = f"{format_percent(seek)} seeking, {format_percent(rotation)} waiting for the sector"
    return f"; that time{busiest}: {shares}, {format_percent(transfer)} transferring"


def _shares_of_arm(figures: StepFigures) -> tuple[float, float, float] | None:
    """Return the shares of its busy time that the busiest device, if it is simulated, spent seeking and so on."""
    device = max(figures.devices, key=lambda d: d.utilization, default=None)
    if device is None or device.disk is None or device.disk.busy <= 0:
        return None
    disk = device.disk
    seek, rotation, transfer = (min(part / disk.busy, 1.0) for part in (disk.seek, disk.rotation, disk.transfer))
    return seek, rotation, transfer


def _caveats(
    repeats: Sequence[Repeat], good: Sequence[Repeat], histograms: Sequence[latency.LatencyHistogram]
) -> tuple[CaveatView, ...]:
    key = repeats[0].step.step_key
    texts_by_shape: dict[tuple[str, str, tuple[str, ...]], list[str]] = {}
    # A refused repeat is in no figure, so its caveats beside the figures would mislead; one row reports it.
    for repeat in good or repeats:
        for caveat in repeat.caveats:
            texts_by_shape.setdefault((caveat.code, caveat.severity, caveat_texts.shape(caveat.text)), []).append(
                caveat.text
            )
    views = []
    for (code, severity, _), texts in texts_by_shape.items():
        shown = len(good or repeats)
        suffix = f" (in {len(texts)} of {shown} repeats)" if shown > 1 and len(texts) < shown else ""
        views.append(CaveatView(code, severity, caveat_texts.ranged(texts) + suffix, (key,)))
    if good:
        views += [CaveatView(*row, (key,)) for row in _own(repeats, good, histograms)]
    return tuple(sorted(views, key=lambda view: (severity_order(view), view.code)))


def _in_flight(good: Sequence[Repeat]) -> Iterator[tuple[str, str, str]]:
    """Warn where Little's law does not close the account: the load was not what the plan says, or a figure is wrong.

    A load that keeps to a rate has as many I/Os in flight as it needs. Of clients that were looked at it is not known.
    """
    if (
        good[0].step.layer == CLIENTS
        or any(r.figures.io_count < _IN_FLIGHT_IOS_MIN for r in good)
        or rate_iops_of(good[0].step)
    ):
        return
    values = [r.account.in_flight.value for r in good if r.account.in_flight.value is not None]
    asked = good[0].account.concurrency
    if values and abs(float(np.median(values)) / asked - 1) > _IN_FLIGHT_LIMIT:
        in_flight = three_digits(float(np.median(values)))
        text = f"rate × latency gives {in_flight} I/Os in flight where the load generator was to keep {asked}"
        yield "in_flight", "warning", text


def _own(
    repeats: Sequence[Repeat], good: Sequence[Repeat], histograms: Sequence[latency.LatencyHistogram]
) -> Iterator[tuple[str, str, str]]:
    """Yield (code, severity, text) of what only the repeats together show."""
    left_out = [r.step for r in repeats if r not in good]
    if left_out:
        why = next((step.reason for step in left_out if step.reason), "no I/O")
        yield "repeats_left_out", "warning", f"{len(left_out)} of {len(repeats)} repeats are left out: {why}"
    if len(good) == 1 and good[0].step.layer != CLIENTS:
        text = "one repeat: the interval shows the variation within it, not that between repeats"
        yield "few_repeats", "warning", text
    elif 1 < len(good) < 5:
        text = f"{len(good)} repeats: the intervals rest on the assumption that repeats scatter normally"
        yield "few_repeats", "note", text
    yield from _in_flight(good)
    merged = latency.merge(histograms)
    if merged.io_count and not merged.has_tail(0.999):
        # Without the point's own count, so that equal caveats of many points become one row.
        names, factor = ("p99.9 is", 1000) if merged.has_tail(0.99) else ("p99 and p99.9 are", 100)
        needed = format_rate(latency.TAIL_COUNT_MIN * factor)
        text = f"{names} not given: {needed} I/Os are needed, so that ten lie beyond, and fewer were measured"
        yield "few_ios", "note", text
