"""What the cache engine counted, as CurvePoint rows: of the whole trace, and of windows of time."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bathyscope.records import CurvePoint, build_table
from bathyscope.simulate.grid import flash_lines
from bathyscope.spec.size import Admission, CurveKey

T95 = 2.364624251592785
"""Standard errors in half a 95 % band: Student's t with 7 degrees of freedom. The standard error is itself estimated,
from eight parts of a sample, so the quantile of the normal distribution would make bands too narrow."""

Floats = npt.NDArray[np.float64]
Counts = dict[str, Floats]


@dataclasses.dataclass(frozen=True, slots=True)
class Group:
    """A group and what the profile knows of it: reads and writes as (requests, bytes), the rest by line size.

    `lines` are distinct lines, `accesses` references to lines, `written` those of writes.
    """

    kind: str
    name: str
    number: int | None
    others: bool
    reads: tuple[int, int]
    writes: tuple[int, int]
    lines: dict[int, float]
    accesses: dict[int, int]
    written: dict[int, int]

    @property
    def working_set_bytes(self) -> float:
        """The largest of all line sizes."""
        return max(lines * line for line, lines in self.lines.items())


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """A curve under simulation: what it is of, and at which sizes.

    `rate` None simulates every request. `window_ns` 0 counts no windows; `window_prefix` stands before their numbers.
    `memory_bytes` is what the cache may take, None what bathyd takes by default. With `cache_lines` the sizes are
    shares of a cache of so many lines, and of its small queue in memory.
    """

    key: CurveKey
    group: Group
    sizes_lines: npt.NDArray[np.uint64]
    admission: Admission
    fetch_bytes: int
    unit_bytes: int
    rate: float | None
    region_bytes: int
    window_ns: int
    write_gap_ratio: float | None
    duration_s: float
    window_prefix: str = ""
    memory_bytes: int | None = None
    cache_lines: int | None = None


def _ratio(part: Floats, whole: Floats) -> Floats:
    return np.clip(np.divide(part, whole, out=np.zeros_like(part), where=whole > 0), 0.0, 1.0)


def _common(results: Counts, curve: Curve, places: npt.NDArray[np.intp]) -> dict[str, Any]:
    """Return the columns that the rows of windows share with those of the trace; `places` are the sizes of the rows."""
    sizes = results["size_lines"].astype(np.int64)
    policy, line_bytes = curve.key.policy, curve.key.line_bytes
    memory_bytes, cache_lines = curve.memory_bytes, curve.cache_lines
    on_flash = [flash_lines(policy, int(size), line_bytes, memory_bytes, cache_lines) for size in sizes]
    flash = np.asarray(on_flash, np.int64)
    # A size that was simulated in full is exact beside others that were not; the curve is called by the rest.
    full = bool(np.all(results["rate"] >= 1.0))
    return dataclasses.asdict(curve.key) | {
        "admission": curve.admission.name,
        "write_budget_bytes_per_day": curve.admission.write_budget_bytes_per_day,
        "method": "simulation" if full else "minisim",
        "fetch_bytes": curve.fetch_bytes,
        "size_bytes": sizes[places] * curve.key.line_bytes,
        "flash_bytes": flash[places] * curve.key.line_bytes,
        "sampled_lines": None if full else results["sampled_lines"].astype(np.int64)[places],
        "sample_region_bytes": None if full else curve.region_bytes,
    }


def _hit_ratios(counts: Counts) -> dict[str, Floats]:
    """Return the ratios that are counted alike over the whole trace and in a window."""
    return {
        "read_byte_hit_ratio": _ratio(counts["read_bytes_hit"], counts["read_bytes"]),
        "write_hit_ratio": _ratio(counts["write_requests_hit"], counts["write_requests"]),
        "write_byte_hit_ratio": _ratio(counts["write_bytes_hit"], counts["write_bytes"]),
        "cold_read_ratio": _ratio(counts["read_requests_cold"], counts["read_requests"]),
        "cold_write_ratio": _ratio(counts["write_requests_cold"], counts["write_requests"]),
        "flash_write_bytes": counts["flash_write_bytes"],
        "evicted_lines": counts["evictions"],
    }


def of_trace(results: Counts, curve: Curve) -> pa.Table:
    """Return a row for each size, over the whole trace."""
    hit = _ratio(results["read_requests_hit"], results["read_requests"])
    # Unknown is not zero: without reads in the sample the band is everything.
    spread = np.where(np.isnan(results["read_hit_stderr"]), 1.0, T95 * results["read_hit_stderr"])
    if curve.group.reads[0] == 0:
        spread = np.zeros_like(hit)
    # What is the same for all sizes is known best from the largest sample.
    best = int(np.argmax(results["rate"]))
    ratios = _hit_ratios(results)
    columns = _common(results, curve, np.arange(len(hit))) | ratios | {
        "window": "all",
        "read_requests": curve.group.reads[0],
        "write_requests": curve.group.writes[0],
        "read_bytes": curve.group.reads[1],
        "write_bytes": curve.group.writes[1],
        "working_set_bytes": round(float(results["distinct_lines"][best]) * curve.key.line_bytes),
        "read_hit_ratio": hit,
        "read_hit_ratio_low": np.maximum(0.0, hit - spread),
        "read_hit_ratio_high": np.minimum(1.0, hit + spread),
        "cold_read_ratio": float(ratios["cold_read_ratio"][best]),
        "cold_write_ratio": float(ratios["cold_write_ratio"][best]),
        "fetch_amplification": _fetched(results) if curve.group.reads[1] else None,
        "write_gap_ratio": curve.write_gap_ratio,
        "duration_s": curve.duration_s,
    }  # fmt: skip
    return build_table(CurvePoint, columns)


def _fetched(counts: Counts) -> Floats:
    reads = counts["read_bytes"]
    return np.divide(counts["backing_read_bytes"], reads, out=np.zeros_like(reads), where=reads > 0)


def of_windows(results: Counts, windows: Counts, curve: Curve, trace_s: float) -> pa.Table:
    """Return a row for each size and each window that holds requests."""
    size, window = np.nonzero(windows["read_requests"] + windows["write_requests"] > 0)
    counts = {name: values[size, window] for name, values in windows.items()}
    hit = _ratio(counts["read_requests_hit"], counts["read_requests"])
    full = results["rate"][size] >= 1.0
    window_s = curve.window_ns / 1e9
    fetched = pa.array(_fetched(counts), mask=counts["read_bytes"] <= 0)
    names = ("read_requests", "write_requests", "read_bytes", "write_bytes")
    whole = {name: np.rint(counts[name]).astype(np.int64) for name in names}
    columns = _common(results, curve, size) | _hit_ratios(counts) | whole | {
        "window": [f"{curve.window_prefix}{number}" for number in window],
        "working_set_bytes": np.rint(results["distinct_lines"] * curve.key.line_bytes).astype(np.int64)[size],
        "read_hit_ratio": hit,
        # The error of a window of a sample is not estimated.
        "read_hit_ratio_low": np.where(full, hit, 0.0),
        "read_hit_ratio_high": np.where(full, hit, 1.0),
        "fetch_amplification": fetched,
        # The profile does not know windows.
        "write_gap_ratio": None,
        "duration_s": np.clip(trace_s - window * window_s, 0.0, window_s),
    }  # fmt: skip
    return build_table(CurvePoint, columns)
