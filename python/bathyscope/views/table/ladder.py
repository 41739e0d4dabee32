"""The ladder in a terminal: for each pattern its layers from the disk up, the loss between them, the verdict."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Sequence
from typing import TextIO

from rich.console import Console
from rich.text import Text

from bathyscope.records.figure import Figure
from bathyscope.records.finding import DirectionFinding, LadderFinding, PointFinding, RungGroup
from bathyscope.units import format_seconds
from bathyscope.views import Options, figures, labels
from bathyscope.views.account_words import alternatives, has_accounts, nearest, spoken_of
from bathyscope.views.cells import shortened
from bathyscope.views.footnotes import Footnotes
from bathyscope.views.refusal import is_shown, why_refused
from bathyscope.views.table.terminal import console, print_wrapped, text

# (heading, width, field of PointFinding); "loss" comes from the group. 80 columns with "ceil" and a space between.
_COLUMNS = (
    ("IOPS", 9, "iops"),
    ("MiB/s", 5, "bandwidth_bytes_per_s"),
    ("mean", 6, "latency_ns_mean"),
    ("p50", 6, "latency_ns_p50"),
    ("p99", 6, "latency_ns_p99"),
    ("p99.9", 6, "latency_ns_p999"),
    ("loss", 5, "loss"),
    ("WA", 4, "write_amplification"),
    ("CPU/op", 6, "osd_cpu_us_per_op"),
    ("dev", 4, "device_utilization"),
)
# Where any load has an account. In a wide terminal the rest of the line is the ceiling's, and names its resource.
_CEILING_COLUMN = ("ceil", 4, "ceiling")
_CEILING_HEADING = "of ceiling"
_CEILING_WIDTH_MAX = 36
# In a wide terminal, where other tenants were seen.
_TENANT_COLUMNS = (("others", 6, "tenant_iops"), ("wait", 6, "tenant_wait_ns"))
_LAYER_WIDTH = 8
_WIDE_FROM = 120
# In a wide terminal the latencies and the bandwidth show their intervals, too.
_WITH_INTERVAL = frozenset({"bandwidth_bytes_per_s", "latency_ns_mean", "latency_ns_p50", "latency_ns_p99"})
_INTERVAL_WIDTH = 6

_LEGEND = (
    "±: the wider half of the 95 % confidence interval over the repeats (absent: too few repeats). loss: change of the "
    "IOPS from the layer below. WA: write amplification, bytes written to the devices per byte written by the client. "
    "CPU/op: OSD CPU time per I/O. dev: utilisation of the busiest device. n/a: not enough data. –: not applicable. "
    "[*]: applies to every line."
)
_CEILING_LEGEND = " {}: how much is reached of the IOPS at which the nearest resource has none left."
_TENANT_LEGEND = (
    " others: IOPS of all pools that are not ours. wait: how long their operations in flight had been in their OSD."
)
_KNEE_LEGEND = (
    "knee: the queue depth with the greatest ratio of IOPS to latency; beyond it an I/O waits longer for less."
)


def write(finding: LadderFinding, stream: TextIO, options: Options) -> None:
    """Print headline, groups with their verdicts, cross-checks, footnotes and a legend."""
    out = console(stream, options)
    width = min(out.width, 160)
    _print_title(finding, out, width)
    if finding.knees:
        out.print()
        for knee in finding.knees:
            print_wrapped(f"{labels.device_class(knee.device_class)}  ", knee.sentence, out, width, "green")
        print_wrapped("", _KNEE_LEGEND, out, width, "dim")
    notes, grid = Footnotes(finding), _Grid.of(finding, width)
    for group in finding.groups:
        out.print()
        _print_group(finding, group, notes, out, grid)
    if finding.cross_checks:
        out.print()
        out.print(text("Cross-check: the same load by another load generator", "bold"))
        for point in finding.cross_checks:
            name = f"{labels.layer(finding, point.layer).title} {point.load_generator}"
            out.print(_point_line(name, point, None, notes, grid))
            out.print(text(f"  {labels.device_class(point.device_class)} {labels.pattern(point)}", "dim"))
    out.print()
    for note in notes.notes:
        style = {"refused": "red", "warning": "yellow"}.get(note.caveat.severity, "")
        lead = "[*] " if note.everywhere else f"[{note.mark}] "
        print_wrapped(lead, f"{note.caveat.severity}: {note.caveat.text} ({note.caveat.code})", out, width, style)
    out.print()
    headings = {field: name for name, _, field in grid.columns}
    legend = _LEGEND + _TENANT_LEGEND * ("tenant_iops" in headings)
    if "ceiling" in headings:
        legend += _CEILING_LEGEND.format(headings["ceiling"])
    print_wrapped("", legend, out, width, "dim")


def _print_title(finding: LadderFinding, out: Console, width: int) -> None:
    duration = ""
    if finding.ended_ns is not None:
        duration = f", {format_seconds((finding.ended_ns - finding.started_ns) / 1e9)}"
    facts = f"run {finding.run_id} ({finding.plan_name}) on {finding.target}: {finding.status}{duration}"
    print_wrapped("", facts, out, width, "dim")
    out.print()
    print_wrapped("", finding.headline, out, width, "bold")
    if finding.tenants:
        print_wrapped("", finding.tenants, out, width)


def _print_group(finding: LadderFinding, group: RungGroup, notes: Footnotes, out: Console, grid: _Grid) -> None:
    out.print(text(f"{labels.device_class(group.device_class)}  {labels.group_pattern(group)}", "bold cyan"))
    heading = " ".join([" " * _LAYER_WIDTH] + [f"{name:{_side(name)}{column}}" for name, column, _ in grid.columns])
    out.print(text(heading.rstrip(), "dim"))
    losses = {loss.upper_layer: loss.ratio for loss in group.losses}
    for point in group.points:
        name = labels.layer(finding, point.layer).title
        out.print(_point_line(name, point, losses.get(point.layer), notes, grid))
        for direction in point.directions:
            out.print(_direction_line(direction, grid))
    print_wrapped("  → ", group.sentence, out, grid.width, "green")
    verdict = spoken_of(group)
    if verdict and verdict.next_step:
        print_wrapped("    next: ", verdict.next_step, out, grid.width)
    if verdict and (others := alternatives(verdict)):
        print_wrapped("    also considered: ", others, out, grid.width, "dim")


@dataclasses.dataclass(frozen=True, slots=True)
class _Grid:
    """How wide the table is, and its columns as (heading, width, field)."""

    width: int
    columns: tuple[tuple[str, int, str], ...]

    @classmethod
    def of(cls, finding: LadderFinding, width: int) -> _Grid:
        wide = width >= _WIDE_FROM
        columns = (*_COLUMNS, *(_TENANT_COLUMNS if wide and figures.has_tenants(finding) else ()))
        more = dict.fromkeys(_WITH_INTERVAL if wide else (), _INTERVAL_WIDTH)
        shown = [(name, narrow + more.get(field, 0), field) for name, narrow, field in columns]
        if has_accounts(finding):
            rest = width - _LAYER_WIDTH - sum(column + 1 for _, column, _ in shown) - 1
            room = (_CEILING_HEADING, min(rest, _CEILING_WIDTH_MAX), "ceiling")
            shown.append(room if wide and rest > len(_CEILING_HEADING) else _CEILING_COLUMN)
        return cls(width, tuple(shown))


def _point_line(name: str, point: PointFinding, loss: Figure | None, notes: Footnotes, grid: _Grid) -> Text:
    """Return one line, or for a refused point its reason over as many lines as it takes."""
    marks = "".join(mark for mark, _ in notes.of(point))
    mark = f"[{marks}]" if marks else ""
    if not is_shown(point):
        lead = f"{name:<{_LAYER_WIDTH}} "
        reason = f"{point.status}: {why_refused(point)}"
        lines = textwrap.wrap(labels.clean(reason), grid.width - 1 - len(lead)) or [""]
        return Text(f"\n{' ' * len(lead)}".join([lead + lines[0], *lines[1:]]), style="red")
    cells = [_cell(point, loss, field, column, grid) for _, column, field in grid.columns]
    return _line(labels.clean(f"{name}{mark}"), cells, grid)


def _direction_line(direction: DirectionFinding, grid: _Grid) -> Text:
    """Return the line of the reads or the writes of a mixed load, below the line of both together."""
    found: list[tuple[Figure | None, str]] = [(getattr(direction, field, None), field) for _, _, field in grid.columns]
    cells = [
        figures.NOT_APPLICABLE if figure is None else _figure_cell(figure, field, wide=grid.width >= _WIDE_FROM)
        for figure, field in found
    ]
    return _line(f"  {direction.direction}s", cells, grid)


def _line(label: str, cells: Sequence[str], grid: _Grid) -> Text:
    """Return a line; what is longer than its column takes the room that later columns can spare."""
    line = Text(f"{label:<{_LAYER_WIDTH}}")
    start = _LAYER_WIDTH + 1
    for cell, (name, column, field) in zip(cells, grid.columns, strict=True):
        line.append(" ")
        over = max(0, len(line.plain) - start)
        line.append(f"{cell:{_side(name)}{max(column - over, len(cell))}}", style="bold" if field == "iops" else "")
        start += column + 1
    line.rstrip()
    return line


def _side(name: str) -> str:
    """Return on which side of its column a cell stands: words on the left."""
    return "<" if name == _CEILING_HEADING else ">"


def _cell(point: PointFinding, loss: Figure | None, field: str, column: int, grid: _Grid) -> str:
    if field == "loss":
        return figures.NOT_APPLICABLE if loss is None else figures.change_text(loss.value)
    if field == "ceiling":
        return _ceiling_cell(point, column)
    figure = figures.figure_of(point, field)
    if figure.value is None and not figures.applies(field, point):
        return figures.NOT_APPLICABLE
    return _figure_cell(figure, field, wide=grid.width >= _WIDE_FROM)


def _ceiling_cell(point: PointFinding, column: int) -> str:
    ceiling = nearest(point)
    if ceiling is None:
        return figures.NOT_APPLICABLE
    cell = figures.compact(ceiling.reached.value, ceiling.reached.unit)
    room = column - _CEILING_COLUMN[1] - 1
    return cell if room <= 0 else f"{cell:>{_CEILING_COLUMN[1]}} {shortened(labels.clean(ceiling.words), room)}"


def _figure_cell(figure: Figure, field: str, *, wide: bool) -> str:
    cell = figures.compact(figure.value, figure.unit)
    if field == "iops" or (wide and field in _WITH_INTERVAL):
        cell = f"{cell} {figures.plus_minus(figure)}".rstrip()
    return cell
