"""One configuration over its repeats: medians, intervals, percentiles of merged histograms, verdict."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from bathyscope.analysis import bootstrap, latency, saturation
from bathyscope.analysis.bootstrap import Estimate
from bathyscope.analysis.columns import table_of
from bathyscope.analysis.stages import StageFinding, stages
from bathyscope.analysis.step_figures import StepFigures
from bathyscope.records import Caveat, Step
from bathyscope.records.finding import CaveatView, Figure, PointFinding, Verdict
from bathyscope.units import format_rate

_SEVERITIES = ("note", "doubt", "refused")
_BASE_PATTERN = re.compile(r"^[a-z]+[0-9]*-[0-9]+[KMGT]?-qd[0-9]+")


@dataclasses.dataclass(frozen=True, slots=True)
class Repeat:
    """One step with its figures, its operations inside the OSDs, and its caveats."""

    step: Step
    figures: StepFigures
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

    @property
    def base_pattern(self) -> str:
        """The pattern without what a configuration adds to it (-j4, -obj1M, -cold)."""
        return base_pattern(self.variant)


def variant_of(step_key: str) -> str:
    """Return "randread-4K-qd16-j4" of "rbd/ssd/randread-4K-qd16-j4@rados_bench"."""
    return step_key.rsplit("/", 1)[-1].split("@", 1)[0]


def base_pattern(variant: str) -> str:
    """Return "randread-4K-qd16" of "randread-4K-qd16-j4-cold"."""
    match = _BASE_PATTERN.match(variant)
    return match[0] if match else variant


def point(repeats: Sequence[Repeat]) -> Point:
    """Return the point of all repeats of one configuration; at least one, of the same step_key.

    Refused and failed repeats do not enter any figure; when no repeat is left, every figure is None and the
    status and reason say why.
    """
    repeats = sorted(repeats, key=lambda r: r.step.repeat_index)
    good = [r for r in repeats if r.step.status == "done" and r.figures.io_count > 0]
    first = repeats[0].step
    numbers = [r.figures for r in good]
    histograms = [f.histogram for f in numbers]
    status, reason = _status(repeats, good)
    inside = _stages(good, first)
    iops = _iops(numbers)
    finding = PointFinding(
        step_key=first.step_key,
        layer=first.layer,
        witness=first.witness,
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
        latency_ns_p50=_percentile(histograms, 0.5),
        latency_ns_p99=_percentile(histograms, 0.99),
        latency_ns_p999=_percentile(histograms, 0.999),
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
        verdict=_verdict(first, numbers, inside, reason),
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
    within = bootstrap.within_repeat(numbers[0].series_iops)
    value = numbers[0].iops
    if within.low is None or within.high is None:
        return Estimate(value, samples=1)
    return Estimate(value, min(within.low, value), max(within.high, value), 1)


def _median(numbers: Sequence[StepFigures], read: Callable[[StepFigures], float | None], unit: str) -> Figure:
    values = [value for f in numbers if (value := read(f)) is not None]
    return bootstrap.median(values).figure(unit)


def _share(numbers: Sequence[StepFigures], read: Callable[[StepFigures], float | None]) -> Figure:
    """Return a median like `_median`, of what cannot leave 0 … 1; nor can its interval."""
    figure = _median(numbers, read, "ratio")
    if figure.low is None or figure.high is None or figure.value is None:
        return figure
    high = max(min(figure.high, 1.0), figure.value)
    return dataclasses.replace(figure, low=max(figure.low, 0.0), high=high)


def _percentile(histograms: Sequence[latency.LatencyHistogram], quantile: float) -> Figure:
    return latency.percentile(histograms, quantile).figure("ns", latency.RELATIVE_ERROR)


def _stages(good: Sequence[Repeat], first: Step) -> StageFinding:
    tables = [r.ops for r in good if r.ops.num_rows]
    ops = pa.concat_tables(tables) if tables else table_of({}, "op")
    mixed = first.op == "randrw"
    reads = first.op in ("randread", "read")
    return stages(ops, reads=reads or mixed, writes=not reads or mixed)


def _middle(values: list[float]) -> float | None:
    return float(np.median(values)) if values else None


def _verdict(first: Step, numbers: Sequence[StepFigures], inside: StageFinding, reason: str | None) -> Verdict:
    if not numbers:
        return Verdict("unknown", f"no verdict: {reason}")

    def middle(read: Callable[[StepFigures], float | None]) -> float | None:
        return _middle([value for f in numbers if (value := read(f)) is not None])

    processors = middle(lambda f: f.host_processors)
    load = saturation.Load(
        layer=first.layer,
        device_class=first.device_class,
        op=first.op,
        concurrency=first.queue_depth * first.jobs,
        latency_ns_mean=middle(lambda f: f.latency_ns_mean),
        utilization_max=middle(lambda f: f.device_utilization),
        utilization_mean=middle(lambda f: float(np.mean([d.utilization for d in f.devices])) if f.devices else None),
        limited=any(d.limited for f in numbers for d in f.devices),
        device_count=max(len(f.devices) for f in numbers),
        osd_cpu_us_per_op=middle(lambda f: f.osd_cpu_us_per_op),
        osd_cores=middle(lambda f: sum(c for _, c in f.osd_cores) if f.osd_cores else None),
        client_cores=middle(lambda f: f.client_cores),
        client_thread_busy=middle(lambda f: f.client_thread_busy),
        host_cpu_ratio=middle(lambda f: f.host_cpu_ratio),
        host_processors=int(processors) if processors else None,
        other_cores=middle(lambda f: f.other_cores),
        read_from_cache_ratio=middle(lambda f: f.read_from_cache_ratio),
        stages=inside if inside.shares else None,
    )
    return saturation.verdict(load)


def _caveats(
    repeats: Sequence[Repeat], good: Sequence[Repeat], histograms: Sequence[latency.LatencyHistogram]
) -> tuple[CaveatView, ...]:
    key = repeats[0].step.step_key
    found: dict[tuple[str, str], list[str]] = {}
    # A refused repeat is in no figure, so its caveats beside the figures would mislead; one row tells of it.
    for repeat in good or repeats:
        for caveat in repeat.caveats:
            found.setdefault((caveat.code, caveat.severity), []).append(caveat.text)
    views = []
    for (code, severity), texts in found.items():
        shown = len(good or repeats)
        suffix = f" (in {len(texts)} of {shown} repeats)" if shown > 1 and len(texts) < shown else ""
        views.append(CaveatView(code, severity, texts[0] + suffix, (key,)))
    if good:
        views += [CaveatView(code, severity, text, (key,)) for code, severity, text in _own(repeats, good, histograms)]
    return tuple(
        sorted(views, key=lambda v: (-_SEVERITIES.index(v.severity) if v.severity in _SEVERITIES else 0, v.code))
    )


def _own(
    repeats: Sequence[Repeat], good: Sequence[Repeat], histograms: Sequence[latency.LatencyHistogram]
) -> list[tuple[str, str, str]]:
    """Return (code, severity, text) of what only the repeats together show."""
    rows = []
    left_out = Counter(r.step.status for r in repeats if r not in good)
    if left_out:
        why = next((r.step.reason for r in repeats if r not in good and r.step.reason), "no I/O")
        text = f"{sum(left_out.values())} of {len(repeats)} repeats are left out: {why}"
        rows.append(("repeats_left_out", "doubt", text))
    if len(good) == 1:
        text = "one repeat: the interval shows the variation within it, not that between repeats"
        rows.append(("few_repeats", "doubt", text))
    elif len(good) < 5:
        text = f"{len(good)} repeats: the intervals rest on the assumption that repeats scatter normally"
        rows.append(("few_repeats", "note", text))
    merged = latency.merge(histograms)
    if merged.io_count and not merged.has_tail(0.999):
        # Without the point's own count, so that equal caveats of many points become one row.
        names, factor = ("p99.9 is", 1000) if merged.has_tail(0.99) else ("p99 and p99.9 are", 100)
        needed = format_rate(latency.TAIL_COUNT_MIN * factor)
        text = f"{names} not given: {needed} I/Os are needed, so that ten lie beyond, and fewer were measured"
        rows.append(("few_ios", "note", text))
    return rows
