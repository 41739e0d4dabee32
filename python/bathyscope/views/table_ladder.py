"""The ladder in a terminal: for each pattern its layers from the disk up, the loss between them, the verdict."""

from __future__ import annotations

import re
import textwrap

from rich.console import Console
from rich.text import Text

from bathyscope.records.finding import Figure, LadderFinding, PointFinding, RungGroup
from bathyscope.units import format_seconds
from bathyscope.views import figures, labels
from bathyscope.views.applies import applies
from bathyscope.views.footnotes import Footnotes
from bathyscope.views.refusal import is_shown, why_refused
from bathyscope.views.terminal import text

# (heading, width, field of PointFinding); "loss" comes from the group. 79 columns with one space between.
_COLUMNS = (
    ("IOPS", 10, "iops"),
    ("MiB/s", 6, "bandwidth_bytes_per_s"),
    ("mean", 6, "latency_ns_mean"),
    ("p50", 6, "latency_ns_p50"),
    ("p99", 6, "latency_ns_p99"),
    ("p99.9", 6, "latency_ns_p999"),
    ("loss", 5, "loss"),
    ("WA", 4, "write_amplification"),
    ("CPU/op", 6, "osd_cpu_us_per_op"),
    ("dev", 4, "device_utilization"),
)
_LAYER_WIDTH = 9
_WIDE_FROM = 120
# In a wide terminal the latencies and the bandwidth show their intervals, too.
_WITH_INTERVAL = frozenset({"bandwidth_bytes_per_s", "latency_ns_mean", "latency_ns_p50", "latency_ns_p99"})
_INTERVAL_WIDTH = 6

_LEGEND = (
    "± is the wider half of the 95 % interval over the repeats (none: too few repeats). loss: IOPS against the "
    "layer below. WA: bytes written to the devices for each byte that the client wrote. CPU/op: OSD processor "
    "time for each I/O. dev: use of the busiest device. n/a: not enough data. –: has no meaning there. "
    "[*] holds for every line."
)


def write(finding: LadderFinding, out: Console) -> None:
    """Print headline, groups with their verdicts, witnesses, footnotes and a legend."""
    width = min(out.width, 160)
    _print_title(finding, out, width)
    notes = Footnotes(finding)
    for group in finding.groups:
        out.print()
        _print_group(group, notes, out, width)
    if finding.witnesses:
        out.print()
        out.print(text("Second witness: the same step by another program", "bold"))
        for point in finding.witnesses:
            out.print(_point_line(point, None, notes, width, name=f"{labels.layer(point.layer)} {point.witness}"))
            out.print(text(f"  {labels.device_class(point.device_class)} {labels.pattern(point)}", "dim"))
    out.print()
    for note in notes.notes:
        style = {"refused": "red", "doubt": "yellow"}.get(note.caveat.severity, "")
        lead = "[*] " if note.everywhere else f"[{note.mark}] "
        _print_wrapped(lead, f"{note.caveat.severity}: {note.caveat.text} ({note.caveat.code})", out, width, style)
    out.print()
    _print_wrapped("", _LEGEND, out, width, "dim")


def _print_title(finding: LadderFinding, out: Console, width: int) -> None:
    duration = ""
    if finding.ended_ns is not None:
        duration = f", {format_seconds((finding.ended_ns - finding.started_ns) / 1e9)}"
    facts = f"run {finding.run_id} ({finding.plan_name}) on {finding.target}: {finding.status}{duration}"
    _print_wrapped("", facts, out, width, "dim")
    out.print()
    _print_wrapped("", finding.headline, out, width, "bold")


def _print_group(group: RungGroup, notes: Footnotes, out: Console, width: int) -> None:
    out.print(text(f"{labels.device_class(group.device_class)}  {labels.group_pattern(group)}", "bold cyan"))
    heading = " ".join([" " * _LAYER_WIDTH] + [f"{name:>{_width(name, w, f, width)}}" for name, w, f in _COLUMNS])
    out.print(text(heading, "dim"))
    losses = {loss.upper_layer: loss.ratio for loss in group.losses}
    for point in group.points:
        out.print(_point_line(point, losses.get(point.layer), notes, width))
    _print_wrapped("  → ", group.sentence, out, width, "green")


def _width(_name: str, narrow: int, field: str, total: int) -> int:
    wide = total >= _WIDE_FROM
    if field == "iops":
        return narrow
    return narrow + _INTERVAL_WIDTH if wide and field in _WITH_INTERVAL else narrow


def _point_line(point: PointFinding, loss: Figure | None, notes: Footnotes, width: int, name: str = "") -> Text:
    """Return one line, or for a refused point its reason over as many lines as it takes."""
    name = name or labels.layer(point.layer)
    marks = "".join(mark for mark, _ in notes.of(point))
    mark = f"[{marks}]" if marks else ""
    if not is_shown(point):
        lead = f"{name:<{_LAYER_WIDTH}} "
        reason = f"{point.status}: {why_refused(point)}"
        lines = textwrap.wrap(labels.clean(reason), width - 1 - len(lead)) or [""]
        return Text(f"\n{' ' * len(lead)}".join([lead + lines[0], *lines[1:]]), style="red")
    label = f"{name}{mark}"
    line = Text(f"{label:<{_LAYER_WIDTH}}")
    for heading, narrow, field in _COLUMNS:
        column = _width(heading, narrow, field, width)
        line.append(" ")
        cell = _cell(point, loss, field, wide=width >= _WIDE_FROM)
        # A layer's name with its footnotes may be longer than its column; what is spare elsewhere makes up for it.
        over = max(0, len(line.plain) - _start_of(field, width))
        line.append(f"{cell:>{max(column - over, len(cell))}}", style="bold" if field == "iops" else "")
    return line


def _start_of(field: str, width: int) -> int:
    position = _LAYER_WIDTH + 1
    for heading, narrow, other in _COLUMNS:
        if other == field:
            return position
        position += _width(heading, narrow, other, width) + 1
    return position


def _cell(point: PointFinding, loss: Figure | None, field: str, *, wide: bool) -> str:
    if field == "loss":
        return figures.NOT_APPLICABLE if loss is None else figures.change_text(loss.value)
    figure = figures.figure_of(point, field)
    if figure.value is None and not applies(field, point):
        return figures.NOT_APPLICABLE
    cell = figures.compact(figure.value, figure.unit)
    if field == "iops" or (wide and field in _WITH_INTERVAL):
        cell = f"{cell} {figures.plus_minus(figure)}".rstrip()
    return cell


def _print_wrapped(lead: str, sentence: str, out: Console, width: int, style: str = "") -> None:
    # A number stays with its unit: no line begins with "%" or "ms".
    kept = re.sub(r"(?<=\d) (?=[%µa-zA-Z]{1,3}\b|%)", "\N{NO-BREAK SPACE}", labels.clean(sentence))
    wrapped = textwrap.wrap(kept, max(20, width - 1 - len(lead))) or [""]
    lines = [line.replace("\N{NO-BREAK SPACE}", " ") for line in wrapped]
    for index, line in enumerate(lines):
        out.print(Text((lead if index == 0 else " " * len(lead)) + line, style=style), soft_wrap=True)
