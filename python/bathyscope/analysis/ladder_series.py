"""Time series and latency distributions of a run, thinned to what a page can show."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bathyscope.analysis import latency, steady_state
from bathyscope.analysis.columns import Floats, Tables, floats, strings, table_of, where
from bathyscope.analysis.ladder_point import Point
from bathyscope.analysis.quotas import with_limits
from bathyscope.records import Step
from bathyscope.records.finding import Distribution, DistributionPoint, Series, SeriesPoint

# A cluster of a thousand OSDs has a thousand lines; the busiest few show what there is to see.
SUBJECTS_MAX = 6
# More points than a chart of a report has pixels for would only make the page heavy, and a page of a thousand steps has
# thousands of charts. Fewer than POINTS_MIN do not show a course any more.
POINTS_MAX, POINTS_MIN = 60, 20
POINTS_OF_A_RUN = 120_000
# Usual number of series of a step: rate, bandwidth and latency, and the devices and processes of a few OSDs.
_SERIES_OF_A_STEP = 12


def detail(configurations: int, repeats: int) -> tuple[int, int]:
    """Return how many repeats have series, and how many points a series has: all that a page can carry.

    A small run has them whole. The first repeats stand for the others where there are too many.
    """
    per_repeat = max(1, configurations) * _SERIES_OF_A_STEP
    shown = max(1, min(repeats, POINTS_OF_A_RUN // (per_repeat * POINTS_MIN)))
    return shown, max(POINTS_MIN // 2, min(POINTS_MAX, POINTS_OF_A_RUN // (per_repeat * shown)))


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


def series_of(step: Step, tables: Tables, points_max: int = POINTS_MAX) -> Iterator[Series]:
    """Yield the time series of one step from its own tables: load, then devices, then processes."""
    interval = table_of(tables, "interval")
    seconds, iops = _thinned(interval, "iops", points_max)
    if seconds.size:
        yield _series(step, ("iops", step.layer, "1/s"), seconds, iops)
        _, bandwidth = _thinned(interval, "bandwidth_bytes_per_s", points_max)
        yield _series(step, ("bandwidth_bytes_per_s", step.layer, "bytes/s"), seconds, bandwidth)
        known = interval.filter(pc.is_valid(interval.column("latency_ns_mean")))
        weighted = known.append_column("waiting", pc.multiply(known.column("iops"), known.column("latency_ns_mean")))
        at, waiting = _thinned(weighted, "waiting", points_max)
        if at.size == seconds.size:
            mean = np.divide(waiting, iops, out=np.full_like(waiting, np.nan), where=iops > 0)
            yield _series(step, ("latency_ns_mean", step.layer, "ns"), seconds, mean)
    devices = table_of(tables, "device_sample")
    if devices.num_rows:
        devices = devices.filter(pc.not_equal(devices.column("role"), pa.scalar("other")))
        devices = with_limits(devices, table_of(tables, "cgroup_sample"))
        limits = [devices.column(name) for name in ("read_limit_ratio", "write_limit_ratio")]
        use = pc.coalesce(pc.max_element_wise(*limits), devices.column("busy_ratio"))
        with_use = devices.append_column("ratio", use)
        yield from _of_top_subjects(step, with_use, ("role", "ratio", "device_utilization"), points_max)
    process = table_of(tables, "process_sample")
    if process.num_rows:
        spent = pc.add(process.column("cpu_user_s"), process.column("cpu_system_s"))
        length = pc.divide(process.column("duration_ns").cast(pa.float64()), 1e9)
        process = process.append_column("cores", pc.divide(spent, length))
        yield from _of_top_subjects(step, process, ("process", "cores", "cpu_cores"), points_max)


def _thinned(interval: pa.Table, column: str, points_max: int) -> tuple[Floats, Floats]:
    """Return `rate_series` with neighbours joined to their mean, so that at most `points_max` are left."""
    seconds, values = steady_state.rate_series(interval, column)
    if seconds.size <= points_max:
        return seconds, values
    size = math.ceil(seconds.size / points_max)
    starts = np.arange(0, seconds.size, size)
    ends = np.minimum(starts + size, seconds.size)
    return seconds[ends - 1], np.add.reduceat(values, starts) / (ends - starts)


def _of_top_subjects(step: Step, rows: pa.Table, about: tuple[str, str, str], points_max: int) -> Iterator[Series]:
    """Yield the series of the busiest subjects; `about` is (column of the subjects, of the values, name).

    The column that holds the values is named after their unit.
    """
    if rows.num_rows == 0:
        return
    column, unit, name = about
    means = rows.group_by(column, use_threads=False).aggregate([(unit, "mean")])
    order = np.argsort(-np.nan_to_num(floats(means, f"{unit}_mean")), kind="stable")
    names = strings(means, column)
    always = [n for n in ("client", "host", "disk") if n in names]
    chosen = always + [names[i] for i in order if names[i] not in always][:SUBJECTS_MAX]
    for subject in chosen:
        seconds, values = _joined(step, where(rows, **{column: subject}), unit, points_max)
        yield _series(step, (name, subject, unit), seconds, values)


def _joined(step: Step, samples: pa.Table, column: str, points_max: int) -> tuple[Floats, Floats]:
    """Return (seconds since the start of the window, mean) of samples joined to `points_max` equal pieces at most."""
    # Nanoseconds since the epoch do not fit a float: the difference is taken first.
    end = np.asarray(samples.column("at_ns").to_numpy() - step.measured_start_ns) / 1e9
    length, value = floats(samples, "duration_ns") / 1e9, floats(samples, column)
    window_s = (step.measured_end_ns - step.measured_start_ns) / 1e9
    piece = max(window_s / points_max, float(np.median(length)))
    piece_index = np.floor((end - length / 2) / piece).astype(np.int64)
    counted = np.isfinite(value) & (piece_index >= 0)
    weights = np.bincount(piece_index[counted], weights=length[counted])
    sums = np.bincount(piece_index[counted], weights=(value * length)[counted])
    filled = weights > 0
    seconds: Floats = (np.flatnonzero(filled) + 1).astype(np.float64) * piece
    return seconds, sums[filled] / weights[filled]


def _series(step: Step, label: tuple[str, str, str], seconds: Floats, values: Floats) -> Series:
    """Return a series; `label` is (name, subject, unit)."""
    points = tuple(SeriesPoint(float(t), float(v)) for t, v in zip(seconds, values, strict=True) if np.isfinite(v))
    return Series(step.step_key, step.repeat_index, *label, points)
