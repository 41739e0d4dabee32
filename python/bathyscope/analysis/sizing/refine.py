"""Which sizes to simulate further, so that "the smallest size that meets the target" is not a step of the grid."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bathyscope.analysis.sizing.latency import LatencyDistribution
from bathyscope.records import CurvePoint

STEPS = 6
"""Sizes between the last that misses the target and the first that meets it."""


def needed_hit_ratio(
    target_hit: float | None,
    target_latency_ns: float | None,
    hit: LatencyDistribution | None,
    miss: LatencyDistribution | None,
) -> float | None:
    """Return the read hit ratio that meets the target; None without a target, or when it cannot be told."""
    if target_hit is not None:
        return target_hit
    if target_latency_ns is None or hit is None or miss is None or miss.mean_ns <= hit.mean_ns:
        return None
    return (miss.mean_ns - target_latency_ns) / (miss.mean_ns - hit.mean_ns)


def sizes_between(rows: Sequence[CurvePoint], needed: float) -> dict[tuple[str, str, int, str], list[int]]:
    """Return, for each curve of the whole trace that reaches `needed`, sizes in bytes within the step that does."""
    curves: dict[tuple[str, str, int, str], list[CurvePoint]] = {}
    for row in rows:
        if row.window == "all" and row.group_kind == "all":
            curves.setdefault((row.group_kind, row.group_name, row.line_bytes, row.policy), []).append(row)
    found = {}
    for key, points in curves.items():
        ordered = sorted(points, key=lambda row: row.size_bytes)
        reached = next((i for i, row in enumerate(ordered) if row.read_hit_ratio >= needed), None)
        if reached is None:
            continue
        high = ordered[reached].size_bytes
        low = ordered[reached - 1].size_bytes if reached else 0
        inner = np.linspace(low, high, STEPS + 2)[1:-1] // key[2] * key[2]
        known = {row.size_bytes for row in ordered}
        sizes = sorted({int(size) for size in inner if size >= key[2]} - known)
        if sizes:
            found[key] = sizes
    return found
