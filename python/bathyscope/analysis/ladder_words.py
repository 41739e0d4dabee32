"""The ladder in sentences. Only words are made here; every figure comes from the points and losses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bathyscope.records import Step
from bathyscope.records.figure import Figure
from bathyscope.records.finding import CurvePoint, KneeFinding, LayerView, PointFinding, RungGroup, RungLoss
from bathyscope.units import format_duration_ns, format_percent, format_rate, format_size_short, three_digits

_OP_WORDS = {
    "randread": "random read",
    "randwrite": "random write",
    "read": "sequential read",
    "write": "sequential write",
    "randrw": "mixed random I/O",
}
_OPS_WORDS = {**{op: f"{words}s" for op, words in _OP_WORDS.items()}, "randrw": "mixed random I/Os"}
Layers = Mapping[str, LayerView]


def layer_words(layer: str, layers: Layers) -> str:
    """Return a layer's name as it stands in a sentence; one that is not known stays as it is."""
    return layers[layer].words if layer in layers else layer


def _depth(queue_depth: int, jobs: int) -> str:
    return f"QD{queue_depth} × {jobs}" if jobs > 1 else f"QD{queue_depth}"


def subject(step: Step, layers: Layers, iops: float) -> str:
    """Return the beginning of a verdict: "4K random reads on RBD at QD16 reach 231 IOPS"."""
    size, ops = format_size_short(step.block_size_bytes), _OPS_WORDS.get(step.op, step.op)
    where = f"on {layer_words(step.layer, layers)} at {_depth(step.queue_depth, step.jobs)}"
    return f"{size} {ops} {where} reach {format_rate(iops)} IOPS"


def loss_sentence(
    rungs: tuple[PointFinding, PointFinding], figures: tuple[Figure, Figure], osd_count: int, layers: Layers
) -> str:
    """Return what a layer keeps of the one below it, with the interval, and what it adds to the latency.

    `rungs` are the lower and the upper one, `figures` the ratio of their IOPS and the latency added. `osd_count` is 0
    where both rungs stand on the same devices; else one device is below and as many OSDs above.
    """
    (lower, upper), (ratio, added) = rungs, figures
    name, below = layer_words(upper.layer, layers), layer_words(lower.layer, layers)
    if ratio.value is None:
        return f"{name} and {below} cannot be compared"
    spread = _spread(ratio)
    if osd_count > 1:
        # One disk is below, several are in the cluster: "keeps" would compare unlike things.
        text = f"{name} over {osd_count} OSDs gives {three_digits(ratio.value)} × the IOPS of one disk{spread}"
    elif ratio.low is not None and ratio.high is not None and ratio.low <= 1 <= ratio.high:
        return f"{name} and {below} do not differ measurably: {three_digits(ratio.value)} ×{spread}"
    elif ratio.value < 1:
        text = f"{name} keeps {format_percent(ratio.value)} of the IOPS of {below}{spread}"
    else:
        text = f"{name} gives {three_digits(ratio.value)} × the IOPS of {below}{spread}"
    return text + _added(added)


def group_sentence(
    points: Sequence[PointFinding], losses: Sequence[RungLoss], layers: Layers, knees: Sequence[KneeFinding] = ()
) -> str:
    """Return the verdict on a pattern's highest layer, whether it is beyond a knee, and where most is lost below it."""
    measured = _measured(points)
    if not measured:
        last = points[-1]
        load = f"{format_size_short(last.block_size_bytes)} {_OP_WORDS.get(last.op, last.op)}"
        return f"{load} at {_depth(last.queue_depth, last.jobs)}: no figure ({last.reason})"
    text = measured[-1].verdict.sentence
    for knee in knees:
        of_curve = measured[-1].step_key in {p.step_key for p in knee.points}
        if of_curve and measured[-1].queue_depth > knee.knee_range[1]:
            text += f". This is beyond the knee at {_at(knee.knee)}"
    worst = min((loss for loss in losses if _is_loss(loss)), key=lambda loss: loss.ratio.value or 1.0, default=None)
    if worst is not None and len(losses) > 1:
        lower, upper = layer_words(worst.lower_layer, layers), layer_words(worst.upper_layer, layers)
        text += f". Most is lost from {lower} to {upper}"
    refused = [layer_words(p.layer, layers) for p in points if p.status == "refused"]
    if refused:
        text += f". Refused: {', '.join(refused)}"
    return f"{text}."


def knee_sentence(  # noqa: PLR0917 - the parts of one sentence
    load: PointFinding,
    points: Sequence[CurvePoint],
    knee: CurvePoint,
    best: CurvePoint,
    span: tuple[int, int],
    layers: Layers,
) -> str:
    """Return where the knee of a saturation curve lies and which point has the most IOPS, both with their figures.

    `load` is any point of the curve, `points` are all in order of depth, `span` the depths that may be the knee too.
    """
    size, ops = format_size_short(load.block_size_bytes), _OPS_WORDS.get(load.op, load.op)
    first, last = points[0], points[-1]
    where = f"{size} {ops} on {layer_words(load.layer, layers)}, {_at(first)} to {_at(last)}"
    if knee is last:
        text = f"the knee is not reached at {_at(knee)}, the greatest depth measured: {_reached(knee)}"
    else:
        below = "at or below" if knee is first else "at"
        text = f"the knee is {below} {_at(knee)} with {_reached(knee)}"
    if span[0] != span[1]:
        text += f"; the repeats leave it open from QD{span[0]} to QD{span[1]}"
    if best is not knee:
        text += f". The most IOPS are at {_at(best)}: {_reached(best)}"
    elif knee is not last:
        text += ". No other depth has more IOPS"
    return f"{where}: {text}."


def _at(point: CurvePoint) -> str:
    return _depth(point.queue_depth, point.jobs)


def _reached(point: CurvePoint) -> str:
    """Return "231 IOPS (225–240), 69.0 ms each"."""
    text = f"{format_rate(point.iops.value or 0)} IOPS{_rate_spread(point.iops)}"
    mean = point.latency_ns_mean.value
    return text if mean is None else f"{text}, {format_duration_ns(mean)} each"


def headline(
    groups: Sequence[RungGroup],
    layers: Layers,
    knees: Sequence[KneeFinding] = (),
    beyond: frozenset[str] = frozenset(),
) -> str:
    """Return the run in few lines: the highest layer's deepest random read and write on each device class.

    Points `beyond` a knee are no result; where the depths show a knee, the knee is. A mixed load stands for random
    writes that were not measured; its reads and writes stand apart.
    """
    bends = {knee.knee.step_key: knee for knee in knees}
    parts: dict[str, dict[str, list[str]]] = {}
    for device_class in dict.fromkeys(group.device_class for group in groups):
        tops = [_measured(group.points)[-1:] for group in groups if group.device_class == device_class]
        points = [point for top in tops for point in top if point.step_key not in beyond]
        name = device_class.upper() if device_class in ("hdd", "ssd", "nvme") else device_class or "all devices"
        for reads in (True, False):
            fitting = [p for p in points if (p.op in ("randread", "read")) == reads]
            if fitting:
                point = max(fitting, key=_rank)
                words = _pattern_words(point, layers) + _knee_words(bends.get(point.step_key))
                figures = parts.setdefault(words, {}).setdefault(name, [])
                spread = _rate_spread(point.iops) if point.step_key in bends else ""
                figures.append(_directions(point, "read" if reads else "write", spread))
    if not parts:
        return "No figure of this run can be shown; the caveats say why."
    # One clause for each pattern; figures of one device class stand together.
    clauses = (
        ", ".join(f"{name} {' and '.join(names)}" for name, names in by_class.items()) for by_class in parts.values()
    )
    return " ".join(f"{pattern}: {clause} IOPS." for pattern, clause in zip(parts, clauses, strict=True))


def _knee_words(knee: KneeFinding | None) -> str:
    if knee is None:
        return ""
    if not knee.reached:
        return ", knee not reached"
    low, high = knee.knee_range
    return ", the knee" if low == high else f", the knee (open from QD{low} to QD{high})"


def _directions(point: PointFinding, direction: str, spread: str) -> str:
    """Return the figure of a point with its direction: "231 read"; of a mixed load both: "162 read and 69 write"."""
    if point.op != "randrw":
        return f"{format_rate(point.iops.value or 0)}{spread} {direction}"
    apart = [
        f"{format_rate(direction.iops.value)} {direction.direction}"
        for direction in point.directions
        if direction.iops.value is not None
    ]
    return " + ".join(apart) or f"{format_rate(point.iops.value or 0)} total"


def _pattern_words(point: PointFinding, layers: Layers) -> str:
    """Return what the read and the write of a pattern share: "RBD, 4K random I/O at QD16"."""
    kind = "mixed random" if point.op == "randrw" else "random" if point.op.startswith("rand") else "sequential"
    name, size = layer_words(point.layer, layers), format_size_short(point.block_size_bytes)
    return f"{name[:1].upper()}{name[1:]}, {size} {kind} I/O at {_depth(point.queue_depth, point.jobs)}"


def _measured(points: Sequence[PointFinding]) -> list[PointFinding]:
    return [p for p in points if p.iops.value is not None]


def _rank(point: PointFinding) -> tuple[bool, bool, int]:
    """Random before sequential, writes before a mix, then the greatest depth: what a cluster is bought for."""
    return point.op.startswith("rand"), point.op != "randrw", point.queue_depth * point.jobs


def _is_loss(loss: RungLoss) -> bool:
    return loss.ratio.value is not None and loss.ratio.value < 1 and (loss.ratio.high is None or loss.ratio.high < 1)


def _spread(figure: Figure) -> str:
    if figure.low is None or figure.high is None:
        return " (one repeat: no interval)"
    return f" ({three_digits(figure.low)}–{three_digits(figure.high)})"


def _rate_spread(figure: Figure) -> str:
    if figure.low is None or figure.high is None:
        return ""
    return f" ({format_rate(figure.low)}–{format_rate(figure.high)})"


def _added(added: Figure) -> str:
    if added.value is None or added.low is None or added.high is None or added.low <= 0 <= added.high:
        return ""
    more = "longer" if added.value > 0 else "less long"
    return f"; each I/O takes {format_duration_ns(abs(added.value))} {more}"
