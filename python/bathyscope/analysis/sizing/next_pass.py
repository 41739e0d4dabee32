"""What to simulate next, so that the answer is the best of all configurations and not of a few sizes of some.

The grid comes first. Then other policies, fetch sizes and admissions than those asked for are tried at the size that
is best so far; sizes are searched within the step of a curve that meets what is wanted; the advised curve gets points
until its neighbours differ by little; and the busiest minute is looked at.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from bathyscope.analysis.sizing.build import curves_of
from bathyscope.analysis.sizing.choice import Choice, choose, has_target, meets, whole_curves
from bathyscope.analysis.sizing.demand import PREFIX
from bathyscope.analysis.sizing.question import SizeQuestion
from bathyscope.analysis.sizing.wear import option_bytes
from bathyscope.records import CurvePoint, from_table
from bathyscope.records.size_finding import SizeCurve, SizePoint
from bathyscope.spec import limits
from bathyscope.spec.size import ADMISSION_OF_BATHYD, GRID, Admission, CurveKey, Pass, PassName, WantedSizes

STEPS = 6
"""Sizes between the last that misses what is wanted and the first that meets it."""
CONTENDERS = 6
"""Curves that are searched for a smaller size at once."""
NOT_FAR = 1.5
"""Disk time of another line size, of the least so far, up to which its configurations are tried too."""
SPREAD = 0.02
"""Points of hit ratio that neighbours on the advised curve may differ by."""
NARROWEST = 1.01
"""Sizes closer than this are not told apart: between them lies a cliff."""

Wanted = tuple[WantedSizes, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class _State:
    """What is known so far. `peaked` are the points whose busiest minute is."""

    curves: Sequence[SizeCurve]
    question: SizeQuestion
    peaked: frozenset[tuple[object, ...]]


def next_pass(rows: pa.Table, question: SizeQuestion, done: Pass | None) -> Pass | None:
    """Return the pass that the answer needs after `done`, with CurvePoint `rows` of all passes so far; None: enough."""
    if done is None:
        return GRID
    points = from_table(CurvePoint, rows)
    peaked = frozenset(
        (row.line_bytes, row.fetch_bytes, row.policy, row.admission, row.size_bytes)
        for row in points
        if row.window.startswith(PREFIX)
    )
    state = _State(curves_of(points, question), question, peaked)
    is_later = done.name == "grid"
    for name, rounds, sizes_of in _STAGES:
        is_later = is_later or name == done.name
        round_index = done.round_index + 1 if name == done.name else 0
        if is_later and round_index < rounds and (wanted := sizes_of(state)):
            return Pass(name, wanted, round_index)
    return None


def _options(state: _State) -> Wanted:
    """Return the best sizes so far in configurations that differ in one thing from the best."""
    best = choose(state.curves, state.question.spec)
    if best is None or not state.question.spec.vary:
        return ()
    simulated = {_configuration(curve) for curve in whole_curves(state.curves)}
    sizes_by_configuration: dict[tuple[int, int, str, str], set[int]] = {}
    for start in _starts(best, state):
        for configuration in _neighbours(start, state.question):
            if configuration not in simulated:
                line, _, policy, _ = configuration
                # Policies divide a size into flash and DRAM differently; the flash is what is bought.
                is_same = policy == best.curve.policy
                points = (best.point, best.most or best.point)
                sizes = {(p.size_bytes if is_same else p.flash_bytes) // line * line for p in points} - {0}
                sizes_by_configuration.setdefault(configuration, set()).update(sizes)
    return tuple(
        WantedSizes(CurveKey("all", "all", line, policy), tuple(sorted(sizes)), Admission.of(admission), fetch)
        for (line, fetch, policy, admission), sizes in sizes_by_configuration.items()
        if sizes
    )


def _starts(best: Choice, state: _State) -> list[Choice]:
    """Return the best size so far, and the best of each other line size when its disk time is not far from it.

    What is best in one line size may be a step away from being the best of all.
    """
    choices = [best]
    for line in {curve.line_bytes for curve in state.curves} - {best.curve.line_bytes}:
        options = [
            Choice(curve, point, point.disk_time_left)
            for curve in whole_curves(state.curves)
            for point in curve.points
            if curve.line_bytes == line and point.disk_time_left is not None
            if point.flash_bytes <= NARROWEST * best.point.flash_bytes
        ]
        nearest = min(options, key=lambda one: one.disk_time, default=None)
        if nearest is not None and nearest.disk_time <= NOT_FAR * (best.point.disk_time_left or 0.0):
            choices.append(nearest)
    return choices


def _configuration(curve: SizeCurve) -> tuple[int, int, str, str]:
    return curve.line_bytes, curve.fetch_bytes, curve.policy, curve.admission


def _neighbours(best: Choice, question: SizeQuestion) -> Iterator[tuple[int, int, str, str]]:
    """Yield configurations that differ from the best in its line size, or in something that may vary."""
    spec, (line, fetch, policy, admission) = question.spec, _configuration(best.curve)
    for other in spec.line_bytes:
        whole = fetch == line and spec.fetch_bytes is None
        if other != line and (whole or other // limits.MAX_FETCH_UNITS <= fetch <= other):
            yield other, other if whole else fetch, policy, admission
    if "fetch" in spec.vary:
        yield from (
            (line, other, policy, admission)
            for other in spec.line_bytes
            if line // limits.MAX_FETCH_UNITS <= other <= line and other != fetch
        )
    if "policy" in spec.vary:
        yield from ((line, fetch, other, admission) for other in limits.policy_names() if other != policy)
    if "admission" in spec.vary:
        yield from ((line, fetch, policy, other) for other in _admissions(best) if other != admission)


def _admissions(best: Choice) -> list[str]:
    """Return admissions worth a try: those that write less, one of them as much as a single drive bears."""
    admissions, purchase = ["all", "2-hit"], best.point.purchase
    if best.curve.write_requests:
        admissions.append(ADMISSION_OF_BATHYD)
    per_day = best.point.flash_write_bytes_per_day
    if purchase is not None and purchase.count > 1 and per_day and (purchase.endurance_share or 0.0) > 0.5:
        bearable = per_day / (purchase.count * (purchase.endurance_share or 1.0))
        admissions += [f"budget:{budget}" for budget in [option_bytes(bearable)] if budget]
    return admissions


def _search(state: _State) -> Wanted:
    """Return sizes within the step of each curve whose end meets what is wanted, if it may be the smallest of all."""
    best = choose(state.curves, state.question.spec)
    if best is None:
        return ()
    enough = _enough(best, state.question)
    steps = []
    for curve in whole_curves(state.curves):
        met = next((i for i, point in enumerate(curve.points) if enough(point)), None)
        if met is None:
            continue
        low = curve.points[met - 1] if met else None
        if low is not None and low.flash_bytes * NARROWEST >= best.point.flash_bytes:
            continue
        steps.append((low.flash_bytes if low else 0, curve.points[met].flash_bytes, curve, met))
    # The search is for the smallest; curves that begin lowest may hold it.
    wanted = (
        _wanted(curve, _between(curve, met)) for *_, curve, met in sorted(steps, key=lambda s: s[:2])[:CONTENDERS]
    )
    return tuple(sizes_wanted for sizes_wanted in wanted if sizes_wanted.sizes_bytes)


def _enough(best: Choice, question: SizeQuestion) -> Callable[[SizePoint], bool]:
    if has_target(question.spec):
        return lambda point: meets(point, question.spec) and (point.disk_time_left or 0.0) < 1.0
    return lambda point: point.disk_time_left is not None and point.disk_time_left <= best.disk_time


def _between(curve: SizeCurve, met: int) -> list[float]:
    low = curve.points[met - 1].size_bytes if met else 0
    high = curve.points[met].size_bytes
    if low and high < NARROWEST * low:
        return []
    return [float(size) for size in np.linspace(low, high, STEPS + 2)[1:-1]]


def _wanted(curve: SizeCurve, sizes_bytes: Sequence[float]) -> WantedSizes:
    """Return sizes of a curve in whole lines, without those that it has."""
    line = curve.line_bytes
    key = CurveKey(curve.group_kind, curve.group_name, line, curve.policy)
    sizes = {int(size) // line * line for size in sizes_bytes} - {p.size_bytes for p in curve.points} - {0}
    return WantedSizes(key, tuple(sorted(sizes)), Admission.of(curve.admission), curve.fetch_bytes)


def _detail(state: _State) -> Wanted:
    """Return sizes of the advised curve between its knee and its end, wherever neighbours differ by `SPREAD`."""
    best = choose(state.curves, state.question.spec)
    if best is None:
        return ()
    main = best.curve
    # A configuration that was tried at single sizes gets those that the others of its line size have.
    same = [c for c in whole_curves(state.curves) if c.line_bytes == main.line_bytes]
    sizes = [float(p.size_bytes) for p in same[0].points if main is not same[0]]
    knee = 0 if main.knee is None else main.points.index(main.knee)
    for a, b in itertools.pairwise(main.points[knee:]):
        rise = abs((b.read_hit.value or 0.0) - (a.read_hit.value or 0.0))
        if rise >= SPREAD and b.size_bytes > NARROWEST * a.size_bytes:
            count = min(STEPS, math.ceil(rise / SPREAD))
            sizes += np.linspace(a.size_bytes, b.size_bytes, count + 2)[1:-1].tolist()
    wanted = _wanted(main, sizes)
    return (wanted,) if wanted.sizes_bytes else ()


def _peak(state: _State) -> Wanted:
    """Return the advised size, when its busiest minute is not known."""
    best = choose(state.curves, state.question.spec)
    if best is None or state.question.trace.duration_s <= 0:
        return ()
    if (*_configuration(best.curve), best.point.size_bytes) in state.peaked:
        return ()
    return (dataclasses.replace(_wanted(best.curve, ()), sizes_bytes=(best.point.size_bytes,)),)


_STAGES: tuple[tuple[PassName, int, Callable[[_State], Wanted]], ...] = (
    ("options", 4, _options),
    ("target", 3, _search),
    ("detail", 4, _detail),
    ("peak", 3, _peak),
)
"""The passes after the grid, how often each may be repeated, and the sizes that it takes; none: it is not needed."""
