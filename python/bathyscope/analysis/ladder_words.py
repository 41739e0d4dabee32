"""The ladder in sentences. Only words are made here; every figure comes from the points and losses."""

from __future__ import annotations

from collections.abc import Sequence

from bathyscope.records.finding import Figure, PointFinding, RungGroup, RungLoss
from bathyscope.units import format_duration_ns, format_percent, format_rate, format_size_short, three_digits

_LAYER_WORDS = {
    "disk": "the disk",
    "rados": "RADOS",
    "rbd": "RBD",
    "krbd": "krbd",
    "rbd_nbd": "rbd-nbd",
    "cephfs": "CephFS",
    "rgw": "RGW",
    "omap": "omap",
}
_OP_WORDS = {
    "randread": "random read",
    "randwrite": "random write",
    "read": "sequential read",
    "write": "sequential write",
    "randrw": "mixed random I/O",
}


def layer_words(layer: str) -> str:
    """Return a layer's name as it stands in a sentence."""
    return _LAYER_WORDS.get(layer, layer)


def load_words(point: PointFinding) -> str:
    """Return "4K random read at QD16"."""
    op = _OP_WORDS.get(point.op, point.op)
    jobs = f" × {point.jobs}" if point.jobs > 1 else ""
    return f"{format_size_short(point.block_size_bytes)} {op} at QD{point.queue_depth}{jobs}"


def loss_sentence(lower: PointFinding, upper: PointFinding, ratio: Figure, added: Figure, osd_count: int) -> str:
    """Return what a layer keeps of the one below it, with the interval, and what it adds to the latency."""
    name, below = layer_words(upper.layer), layer_words(lower.layer)
    if ratio.value is None:
        return f"{name} and {below} cannot be compared"
    spread = _spread(ratio)
    if lower.layer == "disk" and osd_count > 1:
        # One disk is below, several are in the cluster: "keeps" would compare unlike things.
        text = f"{name} over {osd_count} OSDs gives {three_digits(ratio.value)} × the IOPS of one disk{spread}"
    elif ratio.low is not None and ratio.high is not None and ratio.low <= 1 <= ratio.high:
        return f"{name} and {below} cannot be told apart: {three_digits(ratio.value)} ×{spread}"
    elif ratio.value < 1:
        text = f"{name} keeps {format_percent(ratio.value)} of the IOPS of {below}{spread}"
    else:
        text = f"{name} gives {three_digits(ratio.value)} × the IOPS of {below}{spread}"
    return text + _added(added)


def group_sentence(points: Sequence[PointFinding], losses: Sequence[RungLoss]) -> str:
    """Return one sentence on a pattern: its highest layer, what holds it back, and where most is lost."""
    measured = [p for p in points if p.iops.value is not None]
    if not measured:
        return f"{load_words(points[-1])}: no figure ({points[-1].reason})"
    top = measured[-1]
    text = f"{_capital(layer_words(top.layer))}, {_figure_words(top)}; {top.verdict.sentence}"
    worst = min((loss for loss in losses if _is_loss(loss)), key=lambda loss: loss.ratio.value or 1.0, default=None)
    if worst is not None and len(losses) > 1:
        text += f"; most is lost from {layer_words(worst.lower_layer)} to {layer_words(worst.upper_layer)}"
    refused = [p for p in points if p.status == "refused"]
    if refused:
        text += f"; {', '.join(layer_words(p.layer) for p in refused)} refused"
    return text


def headline(groups: Sequence[RungGroup]) -> str:
    """Return the run in one short sentence: the highest layer's deepest read and write on each device class."""
    parts = []
    for device_class in dict.fromkeys(group.device_class for group in groups):
        own = [_top(group) for group in groups if group.device_class == device_class]
        measured = [p for p in own if p is not None]
        chosen = [c for c in (_deepest(measured, reads=True), _deepest(measured, reads=False)) if c is not None]
        figures = " and ".join(f"{format_rate(p.iops.value or 0)} IOPS of {load_words(p)}" for p in chosen)
        if chosen:
            parts.append(f"{_capital(layer_words(chosen[0].layer))} on {device_class or 'all devices'}: {figures}")
    if not parts:
        return "No figure of this run can be shown; the caveats say why."
    return ". ".join(parts) + "."


def _top(group: RungGroup) -> PointFinding | None:
    measured = [p for p in group.points if p.iops.value is not None]
    return measured[-1] if measured else None


def _deepest(points: Sequence[PointFinding], *, reads: bool) -> PointFinding | None:
    fitting = [p for p in points if (p.op in ("randread", "read")) == reads]
    # Random before sequential, then the greatest depth: what a cluster is bought for.
    return max(fitting, key=lambda p: (p.op.startswith("rand"), p.queue_depth * p.jobs), default=None)


def _is_loss(loss: RungLoss) -> bool:
    return loss.ratio.value is not None and loss.ratio.value < 1 and (loss.ratio.high is None or loss.ratio.high < 1)


def _spread(figure: Figure) -> str:
    if figure.low is None or figure.high is None:
        return " (one repeat: no interval)"
    return f" ({three_digits(figure.low)}–{three_digits(figure.high)})"


def _added(added: Figure) -> str:
    if added.value is None or added.low is None or added.high is None or added.low <= 0 <= added.high:
        return ""
    more = "longer" if added.value > 0 else "less long"
    return f"; each I/O takes {format_duration_ns(abs(added.value))} {more}"


def _figure_words(point: PointFinding) -> str:
    return f"{load_words(point)}: {format_rate(point.iops.value or 0)} IOPS"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
