"""Where more queue depth stops paying: the knee of a saturation curve.

The knee is the depth with the greatest ratio of throughput to latency, Kleinrock's "power" (Power and Deterministic
Rules of Thumb for Probabilistic Problems in Computer Communications, ICC 1979). A load that keeps N I/Os in flight has
latency N / IOPS (Little's law), so the power is IOPS² / N: k times the depth must bring at least √k times the IOPS.
Beyond the knee an I/O waits longer for a gain that is smaller than the wait.

Which depth that is follows from repeats that scatter; a depth belongs to the knee's range when the interval of its IOPS
over the knee's holds the ratio at which both have the same power.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from bathyscope.analysis import bootstrap
from bathyscope.analysis.ladder_point import Point
from bathyscope.analysis.ladder_words import Layers, knee_sentence
from bathyscope.records.finding import CurvePoint, KneeFinding

# Two depths have no bend between them.
DEPTHS_MIN = 3
_DEPTH = re.compile(r"-qd\d+")
# A load that is held at a rate does not saturate anything.
_HELD = re.compile(r"-rate\d+")


def curves(points: Iterable[Point]) -> list[list[Point]]:
    """Return the points that differ in nothing but the queue depth, each list in order of depth; measured ones only."""
    curves: dict[tuple[str, str, str, str], list[Point]] = {}
    for p in points:
        if p.finding.iops.value and not _HELD.search(p.variant):
            finding = p.finding
            key = (finding.layer, finding.load_generator, finding.device_class, _DEPTH.sub("", p.variant, count=1))
            curves.setdefault(key, []).append(p)
    return [sorted(curve, key=lambda p: p.finding.queue_depth) for curve in curves.values()]


def knees(points: Iterable[Point], layers: Layers) -> tuple[KneeFinding, ...]:
    """Return the knee of each curve of at least DEPTHS_MIN depths."""
    return tuple(_knee(curve, layers) for curve in curves(points) if len(curve) >= DEPTHS_MIN)


def beyond(points: Sequence[Point], knees: Sequence[KneeFinding]) -> frozenset[str]:
    """Return the step keys of points that are no result: more depth bought too little there.

    Those are the points beyond a knee. With two depths only, it is a deeper one that is not measurably faster.
    """
    keys = {p.step_key for knee in knees for p in knee.points if p.queue_depth > knee.knee.queue_depth}
    for curve in curves(points):
        if len(curve) == DEPTHS_MIN - 1:
            gain = bootstrap.ratio(curve[0].iops, curve[1].iops).estimate
            least = gain.value if gain.low is None else gain.low
            if least is not None and least <= 1:
                keys.add(curve[1].finding.step_key)
    return frozenset(keys)


def _knee(curve: Sequence[Point], layers: Layers) -> KneeFinding:
    knee = max(curve, key=lambda p: (p.finding.iops.value or 0.0) ** 2 / p.finding.queue_depth)
    best = max(curve, key=lambda p: p.finding.iops.value or 0.0)
    equal = [p.finding.queue_depth for p in curve if p is knee or _same_power(knee, p)]
    at, first = knee.finding, curve[0].finding
    shown = {p.finding.step_key: _curve_point(p) for p in curve}
    span, reached = (min(equal), max(equal)), knee is not curve[-1]
    points = tuple(shown.values())
    return KneeFinding(
        layer=at.layer,
        load_generator=at.load_generator,
        device_class=at.device_class,
        pattern=_DEPTH.sub("", curve[0].variant, count=1),
        points=points,
        knee=shown[at.step_key],
        best=shown[best.finding.step_key],
        knee_range=span,
        reached=reached,
        sentence=knee_sentence(first, points, shown[at.step_key], shown[best.finding.step_key], span, layers),
    )


def _same_power(knee: Point, other: Point) -> bool:
    """Return whether the repeats cannot tell that the other depth has less power than the knee."""
    ratio = bootstrap.ratio(knee.iops, other.iops).estimate
    even = (other.finding.queue_depth / knee.finding.queue_depth) ** 0.5
    return ratio.low is not None and ratio.high is not None and ratio.low <= even <= ratio.high


def _curve_point(point: Point) -> CurvePoint:
    finding = point.finding
    return CurvePoint(finding.step_key, finding.queue_depth, finding.jobs, finding.iops, finding.latency_ns_mean)
