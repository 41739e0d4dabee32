"""Time series and latency distributions of a run, thinned to what a page can show."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bathyscope.analysis import latency, steady_state
from bathyscope.analysis.columns import Floats, Tables, floats, strings, table_of, where
from bathyscope.analysis.ladder_point import Point
from bathyscope.records import Step
from bathyscope.records.finding import Distribution, DistributionPoint, Series, SeriesPoint

# A cluster of a thousand OSDs has a thousand lines; the busiest few tell what there is to see.
SUBJECTS_MAX = 6


def distribution(point: Point) -> Distribution | None:
    """Return the latency distribution of one configuration, None when it has no histogram."""
    quantiles, latencies = latency.thinned(point.histogram)
    if quantiles.size == 0:
        return None
    points = tuple(DistributionPoint(float(q), float(v)) for q, v in zip(quantiles, latencies, strict=True))
    finding = point.finding
    return Distribution(
        finding.step_key, finding.layer, finding.device_class, finding.pattern, point.histogram.io_count, points
    )


def series_of(step: Step, tables: Tables) -> Iterator[Series]:
    """Yield the time series of one step from its own tables: load, then devices, then processes."""
    interval = table_of(tables, "interval")
    seconds, iops = steady_state.rate_series(interval)
    if seconds.size:
        yield _series(step, ("iops", step.layer, "1/s"), seconds, iops)
        _, bandwidth = steady_state.rate_series(interval, "bandwidth_bytes_per_s")
        yield _series(step, ("bandwidth_bytes_per_s", step.layer, "bytes/s"), seconds, bandwidth)
        known = interval.filter(pc.is_valid(interval.column("latency_ns_mean")))
        weighted = known.append_column("waiting", pc.multiply(known.column("iops"), known.column("latency_ns_mean")))
        at, waiting = steady_state.rate_series(weighted, "waiting")
        if at.size == seconds.size:
            mean = np.divide(waiting, iops, out=np.full_like(waiting, np.nan), where=iops > 0)
            yield _series(step, ("latency_ns_mean", step.layer, "ns"), seconds, mean)
    devices = table_of(tables, "device_sample")
    if devices.num_rows:
        devices = devices.filter(pc.not_equal(devices.column("role"), pa.scalar("other")))
        use = pc.coalesce(devices.column("limit_ratio"), devices.column("busy_ratio"))
        yield from _busiest(step, devices.append_column("ratio", use), "role", "ratio", "device_utilization")
    process = table_of(tables, "process_sample")
    if process.num_rows:
        spent = pc.add(process.column("cpu_user_s"), process.column("cpu_system_s"))
        length = pc.divide(process.column("duration_ns").cast(pa.float64()), 1e9)
        process = process.append_column("cores", pc.divide(spent, length))
        yield from _busiest(step, process, "process", "cores", "cpu_cores")


def _busiest(step: Step, rows: pa.Table, subject: str, unit: str, name: str) -> Iterator[Series]:
    """Yield the series of the busiest subjects; the column that holds the values is named after their unit."""
    if rows.num_rows == 0:
        return
    means = rows.group_by(subject).aggregate([(unit, "mean")])
    order = np.argsort(-np.nan_to_num(floats(means, f"{unit}_mean")), kind="stable")
    names = strings(means, subject)
    always = [n for n in ("client", "host", "disk") if n in names]
    chosen = always + [names[i] for i in order if names[i] not in always][:SUBJECTS_MAX]
    for one in chosen:
        own = where(rows, **{subject: one}).sort_by("offset_ns")
        seconds, values = floats(own, "offset_ns") / 1e9, floats(own, unit)
        inside = seconds > 0
        yield _series(step, (name, one, unit), seconds[inside], values[inside])


def _series(step: Step, label: tuple[str, str, str], seconds: Floats, values: Floats) -> Series:
    """Return a series; `label` is (name, subject, unit)."""
    points = tuple(SeriesPoint(float(t), float(v)) for t, v in zip(seconds, values, strict=True) if np.isfinite(v))
    return Series(step.step_key, step.repeat_index, *label, points)
