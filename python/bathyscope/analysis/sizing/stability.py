"""Would another hour have given another answer? The hit ratio of each window at the recommended size."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from bathyscope.analysis.sizing.choice import Choice
from bathyscope.analysis.sizing.question import SizeQuestion
from bathyscope.records import CurvePoint
from bathyscope.records.size_finding import SizeCurve, StabilityWindow
from bathyscope.units import format_bytes

# Windows whose hit ratios differ by more than this (points of hit ratio) make the answer unstable.
LARGEST_SPREAD = 0.10
# Fewer reads than this in a window say nothing about it.
LEAST_READS = 100


def judge_windows(
    rows: Iterable[CurvePoint], whole: SizeCurve | None, choice: Choice | None, question: SizeQuestion
) -> tuple[tuple[StabilityWindow, ...], str, bool | None]:
    """Return the windows, one sentence, and whether the answer is stable (None: not known).

    `whole` is the curve that the answer is about, `choice` the size that is advised; without one the windows are those
    of the knee, or of the largest size. The first window is cold and is left out of the verdict.
    """
    if whole is None:
        return (), "The stability is not known: there is no curve of the whole trace.", None
    if question.trace.duration_s <= 0:
        return (), "The stability is not known: the trace has no time, so it has no windows.", None
    size = (whole.knee or whole.points[-1] if choice is None else choice.point).size_bytes
    key = ("all", whole.line_bytes, whole.fetch_bytes, whole.policy, whole.admission)
    by_window: dict[str, list[CurvePoint]] = {}
    for row in rows:
        own_key = (row.group_kind, row.line_bytes, row.fetch_bytes, row.policy, row.admission)
        if row.window.isdecimal() and own_key == key:
            by_window.setdefault(row.window, []).append(row)
    windows: list[StabilityWindow] = []
    for name, of_window in sorted(by_window.items(), key=lambda item: (len(item[0]), item[0])):
        mine = sorted(of_window, key=lambda row: row.size_bytes)
        hit = float(np.interp(size, [r.size_bytes for r in mine], [r.read_hit_ratio for r in mine]))
        reads = mine[0].read_requests
        known = hit if reads > 0 else None
        windows.append(StabilityWindow(name, size, reads, known, bool(windows) and reads >= LEAST_READS))
    judged = [w.read_hit_ratio for w in windows if w.judged and w.read_hit_ratio is not None]
    if len(judged) < 2:
        why = f"fewer than two windows after the first hold {LEAST_READS} reads"
        return tuple(windows), f"The stability is not known: {why}.", None
    stable = max(judged) - min(judged) <= LARGEST_SPREAD
    word = "stable" if stable else "not stable"
    sentence = (
        f"The answer is {word}: over {len(judged)} windows the hit ratio at {format_bytes(size)} "
        f"runs from {min(judged):.1%} to {max(judged):.1%}."
    )
    return tuple(windows), sentence, stable
