"""The tables of `bathy size` in a terminal: none is cut, for a number that is cut off is a wrong number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from bathyscope.records.size_finding import SizeCurve, SizeFinding, SizePoint
from bathyscope.units import (
    format_bytes,
    format_cost,
    format_duration_ns,
    format_line_size,
    format_rate,
    format_size_short,
)
from bathyscope.views.labels import clean
from bathyscope.views.size_words import hit_text, how, is_advised, life_text, main_split, percent, split_gain
from bathyscope.views.terminal import text

TABLE_ROWS = 14
GROUP_ROWS = 20
NAME_LENGTH = 24
MOST_COLUMNS = 7
# What is left out first where a terminal is narrow; JSON and CSV have all of it.
_OF_SIZES = ("writes", "flash", "bytes", "flash/day", "fetch", "p99", "cost", "life")
_OF_GROUPS = ("working set", "hits", "best", "reads", "target at")
_OF_SPLITS = ("hits per GiB more", "hits/day", "and memory")


def write_curves(finding: SizeFinding, curves: Sequence[SizeCurve], out: Console) -> None:
    """Print the read hit ratios: a row for each cache size, a column for each line size, in as many tables as fit."""
    first = curves[0]
    if not any(c.read_requests for c in curves):
        return
    _title(out, f"Reads that hit, by cache size and line size ({first.policy}, admission {clean(first.admission)})")
    start = 0
    while start < len(curves):
        for count in range(min(MOST_COLUMNS, len(curves) - start), 0, -1):
            table = _curve_table(finding, curves[start : start + count])
            if count == 1 or _fits(table, out):
                out.print(table)
                start += count
                break
    target = "meets the target" if finding.budget_bytes is None else "the budget"
    legend = f"k: knee  >: {target}  *: advised  at most: not read for the first time"
    out.print(text(f"{legend}; {_methods(curves)}", "dim"))


def _curve_table(finding: SizeFinding, part: Sequence[SizeCurve]) -> Table:
    by_size = [{p.size_bytes: p for p in c.points} for c in part]
    kept = {p.size_bytes for c in part for p in (c.knee, c.wanted, c.points[-1]) if p is not None}
    if finding.advice.size_bytes is not None:
        kept.add(finding.advice.size_bytes)
    # Sizes that only one curve has lie around its target; they are in the CSV.
    count = Counter(size for points in by_size for size in points)
    sizes = thinned(sorted(s for s in count if count[s] > 1 or s in kept or len(part) == 1), kept)
    table = _new_table("cache", *(format_size_short(c.line_bytes) for c in part))
    for size in sizes:
        cells = [_hit_cell(finding, c, points.get(size)) for c, points in zip(part, by_size, strict=True)]
        table.add_row(text(format_bytes(size)), *cells)
    table.add_section()
    most = (None if c.cold_read_ratio is None else 1.0 - c.cold_read_ratio for c in part)
    table.add_row(text("at most"), *(text(percent(ratio)) for ratio in most))
    table.add_row(text("working set"), *(text(format_bytes(c.working_set_bytes)) for c in part))
    return table


def _methods(curves: Sequence[SizeCurve]) -> str:
    return "; ".join(dict.fromkeys(how(c) for c in curves)) if len({c.method for c in curves}) == 1 else "see the JSON"


def _hit_cell(finding: SizeFinding, curve: SizeCurve, point: SizePoint | None) -> Text:
    if point is None:
        return Text("")
    mark = "*" if is_advised(finding, curve, point) else ">" if point is curve.wanted else "k"
    shown = mark if mark != "k" or point is curve.knee else " "
    return text(f"{hit_text(point)}{shown}", "bold green" if shown == "*" else "bold" if shown != " " else "")


def thinned(sizes: Sequence[int], kept: Iterable[int | None]) -> list[int]:
    """Return at most TABLE_ROWS of `sizes` and all of `kept` among them: spread evenly, ends included."""
    wanted = {size for size in kept if size is not None}
    if len(sizes) <= TABLE_ROWS:
        return list(sizes)
    step = (len(sizes) - 1) / (TABLE_ROWS - 1)
    places = {round(i * step) for i in range(TABLE_ROWS)}
    return [size for place, size in enumerate(sizes) if place in places or size in wanted]


def write_details(finding: SizeFinding, curve: SizeCurve, out: Console) -> None:
    """Print what follows from each size of the curve that the advice is about."""
    _title(out, f"What {format_line_size(curve.line_bytes)} lines cost and bring ({curve.policy}, {how(curve)})")
    with_memory = any(p.memory_bytes for p in curve.points)
    columns = ["cache", *["flash"] * with_memory, "reads", "bytes", "writes", "fetch", "flash/day", "life"]
    with_latency = any(p.latency_ns_mean is not None for p in curve.points)
    with_p99 = any(p.latency_ns_p99 is not None for p in curve.points)
    with_cost = any(p.cost is not None for p in curve.points)
    columns += ["mean"] * with_latency + ["p99"] * with_p99 + ["cost"] * with_cost
    kept = [p.size_bytes for p in (curve.knee, curve.wanted) if p is not None]
    sizes = set(thinned([p.size_bytes for p in curve.points], [*kept, finding.advice.size_bytes]))
    rows: list[tuple[str, list[str]]] = []
    for point in curve.points:
        if point.size_bytes not in sizes:
            continue
        fetch = "n/a" if point.fetch_amplification is None else f"{point.fetch_amplification:.2f}"
        cells = [
            format_bytes(point.size_bytes),
            *[format_bytes(point.flash_bytes)] * with_memory,
            percent(point.read_hit.value),
            percent(point.read_byte_hit),
            percent(point.write_hit),
            fetch,
            "n/a" if point.flash_write_bytes_per_day is None else format_bytes(point.flash_write_bytes_per_day),
            life_text(point.life_years),
        ]
        cells += ["n/a" if point.latency_ns_mean is None else format_duration_ns(point.latency_ns_mean)] * with_latency
        cells += ["n/a" if point.latency_ns_p99 is None else format_duration_ns(point.latency_ns_p99)] * with_p99
        cells += ["n/a" if point.cost is None else format_cost(point.cost)] * with_cost
        rows.append(("bold green" if is_advised(finding, curve, point) else "", cells))
    out.print(fitting(columns, rows, out, _OF_SIZES))
    out.print(text("reads, bytes, writes: share that hits; fetch: bytes read from the disks per byte read", "dim"))


def write_groups(finding: SizeFinding, main: SizeCurve | None, out: Console) -> None:
    """Print a row for each group at the advised line size: how much it reads and where its curve bends."""
    if main is None or finding.by == "all":
        return
    curves = [
        c for c in finding.curves
        if c.group_kind != "all" and c.line_bytes == main.line_bytes and c.policy == main.policy
    ]  # fmt: skip
    _title(out, f"By {finding.by} ({format_line_size(main.line_bytes)} lines, {main.policy})")
    # A budget is for all groups together; what one would do with all of it is no answer.
    wanted = finding.budget_bytes is None and any(c.wanted or c.wanted_reason for c in curves)
    columns = [finding.by, "reads", "working set", "best", "knee", "hits", *["target at"] * wanted]
    rows = []
    for curve in curves[:GROUP_ROWS]:
        best = max((p.read_hit.value or 0.0 for p in curve.points), default=None)
        cells = [
            clean(curve.group_name)[:NAME_LENGTH],
            format_rate(curve.read_requests),
            format_bytes(curve.working_set_bytes),
            percent(best) if curve.read_requests else "n/a",
            format_bytes(curve.knee.size_bytes) if curve.knee else "none",
            percent(curve.knee.read_hit.value) if curve.knee else "",
        ]
        if wanted:
            cells.append(format_bytes(curve.wanted.size_bytes) if curve.wanted else "no size")
        rows.append(("", cells))
    out.print(fitting(columns, rows, out, _OF_GROUPS))
    if len(curves) > GROUP_ROWS:
        out.print(text(f"and {len(curves) - GROUP_ROWS} more; --output csv has them all", "dim"))


def write_split(finding: SizeFinding, main: SizeCurve | None, out: Console) -> None:
    """Print what each group gets of the budget."""
    one = main_split(finding)
    if one is None or main is None:
        return
    words = f"The best split of {format_bytes(one.budget_bytes)} of flash ({format_line_size(one.line_bytes)} lines)"
    _title(out, f"{words}: {split_gain(one)}")
    with_memory = any(share.memory_bytes for share in one.shares)
    columns = [finding.by, "gets", *["and memory"] * with_memory, "hits", "hits/day", "hits per GiB more"]
    rows = [
        (
            "",
            [
                clean(share.group_name)[:NAME_LENGTH],
                format_bytes(share.flash_bytes) if share.flash_bytes else "nothing",
                *[format_bytes(share.memory_bytes)] * with_memory,
                percent(share.read_hit_ratio),
                "n/a" if share.hits_per_day is None else format_rate(share.hits_per_day),
                format_rate(share.marginal_hits_per_gib),
            ],
        )
        for share in one.shares[:GROUP_ROWS]
    ]
    out.print(fitting(columns, rows, out, _OF_SPLITS))


def fitting(
    columns: Sequence[str], rows: Sequence[tuple[str, Sequence[str]]], out: Console, dispensable: Sequence[str]
) -> Table:
    """Return a table of as many columns as fit whole: without the first of `dispensable`, then the second, …

    Where that is not enough, the names in the first column are shortened, never a number.
    """
    shown = list(columns)
    for left_out in ("", *dispensable):
        shown = [name for name in shown if name != left_out]
        table = _table_of(shown, columns, rows)
        if _fits(table, out):
            return table
    excess = _width(table, out) - out.width
    longest = max((len(cells[0]) for _, cells in rows), default=0)
    length = max(1, max(longest, len(columns[0])) - excess)
    short = [(style, [_shortened(cells[0], length), *cells[1:]]) for style, cells in rows]
    return _table_of(shown, columns, short, first=_shortened(columns[0], length))


def _table_of(
    shown: Sequence[str], columns: Sequence[str], rows: Sequence[tuple[str, Sequence[str]]], first: str | None = None
) -> Table:
    places = [columns.index(name) for name in shown]
    table = _new_table(*([*shown] if first is None else [first, *shown[1:]]))
    for style, cells in rows:
        table.add_row(*(text(cells[place], style) for place in places))
    return table


def _shortened(name: str, length: int) -> str:
    return name if len(name) <= length else name[: length - 1] + "…"


def _new_table(*columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold", padding=(0, 1))
    for place, name in enumerate(columns):
        table.add_column(text(name), justify="left" if place == 0 else "right", no_wrap=True)
    return table


def _width(table: Table, out: Console) -> int:
    return Measurement.get(out, out.options.update(max_width=10_000), table).maximum


def _fits(table: Table, out: Console) -> bool:
    return _width(table, out) <= out.width


def _title(out: Console, words: str) -> None:
    out.print()
    out.print(text(words, "bold"))
