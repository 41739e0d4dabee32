"""Would another hour have given another answer? The hit ratio of each window at the recommended size."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from bathyscope.analysis.sizing.choice import ANY, Floor, choose
from bathyscope.records import CurvePoint, from_table
from bathyscope.records.size_finding import SizeCurve, StabilityWindow
from bathyscope.units import format_bytes

# Windows whose hit ratios differ by more than this (points of hit ratio) make the answer unstable.
LARGEST_SPREAD = 0.10
# Fewer reads than this in a window say nothing about it.
LEAST_READS = 100


def judge_windows(
    points: pa.Table, whole: SizeCurve | None, floor: Floor = ANY, *, has_time: bool
) -> tuple[tuple[StabilityWindow, ...], str, bool | None]:
    """Return the windows, one sentence, and whether the answer is stable (None: cannot tell).

    `whole` is the curve that the advice is about. The first window is cold and is left out of the verdict.
    """
    if whole is None:
        return (), "Cannot tell whether the answer is stable: there is no curve of the whole trace.", None
    if not has_time:
        return (), "Cannot tell whether the answer is stable: the trace has no time, so it has no windows.", None
    size = choose(whole, floor).point.size_bytes
    rows = [
        row
        for row in from_table(CurvePoint, points)
        if row.window != "all"
        and (row.group_kind, row.line_bytes, row.policy, row.admission)
        == ("all", whole.line_bytes, whole.policy, whole.admission)
    ]
    windows: list[StabilityWindow] = []
    for name in sorted({row.window for row in rows}, key=lambda text: (len(text), text)):
        mine = sorted((r for r in rows if r.window == name), key=lambda r: r.size_bytes)
        hit = float(np.interp(size, [r.size_bytes for r in mine], [r.read_hit_ratio for r in mine]))
        reads = mine[0].read_requests
        known = hit if reads > 0 else None
        windows.append(StabilityWindow(name, size, reads, known, bool(windows) and reads >= LEAST_READS))
    judged = [w.read_hit_ratio for w in windows if w.judged and w.read_hit_ratio is not None]
    if len(judged) < 2:
        why = f"fewer than two windows after the first hold {LEAST_READS} reads"
        return tuple(windows), f"Cannot tell whether the answer is stable: {why}.", None
    stable = max(judged) - min(judged) <= LARGEST_SPREAD
    word = "stable" if stable else "not stable"
    sentence = (
        f"The answer is {word}: over {len(judged)} windows the hit ratio at {format_bytes(size)} "
        f"runs from {min(judged):.1%} to {max(judged):.1%}."
    )
    return tuple(windows), sentence, stable
