"""The tables of `bathy size` in a terminal. A narrow one gets fewer columns: a number cut short is a wrong number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from bathyscope.records.size_finding import SizeCurve, SizeFinding, SizePoint
from bathyscope.units import format_bytes, format_line_size, format_rate, format_size_short
from bathyscope.views.labels import clean
from bathyscope.views.size_words import (
    best_text,
    columns_of,
    configuration,
    group_curves,
    hit_text,
    how,
    is_advised,
    main_split,
    percent,
    split_columns,
    split_gain,
)
from bathyscope.views.table.fitting import fits, fitting, table_with
from bathyscope.views.table.terminal import text

TABLE_ROWS = 14
GROUP_ROWS = 20
NAME_LENGTH = 24
MOST_COLUMNS = 7
# What is left out first where a terminal is narrow; JSON and CSV have all of it.
_OF_SIZES = ("drives", "left", "writes", "flash", "bytes", "fill", "flash/day", "fetch", "p99", "cost", "life")
_OF_GROUPS = ("working set", "at knee", "max hits", "reads", "for target")
_OF_SPLITS = ("marginal hit ratio/GiB", "hits/day", "DRAM")


def write_curves(finding: SizeFinding, curves: Sequence[SizeCurve], out: Console) -> None:
    """Print the read hit ratios: a row for each cache size, a column for each line size, in as many tables as fit."""
    first = curves[0]
    if not any(c.read_requests for c in curves):
        return
    _title(out, f"Read hit ratio by cache size and line size ({first.policy}, admission {clean(first.admission)})")
    start = 0
    while start < len(curves):
        for count in range(min(MOST_COLUMNS, len(curves) - start), 0, -1):
            table = _curve_table(finding, curves[start : start + count])
            if count == 1 or fits(table, out):
                out.print(table)
                start += count
                break
    target = "meets the target" if finding.budget_bytes is None else "the budget"
    legend = f"k: knee  >: {target}  *: advised  upper bound: no capacity limit"
    out.print(text(f"{legend}; {_methods(curves)}", "dim"))


def _curve_table(finding: SizeFinding, part: Sequence[SizeCurve]) -> Table:
    by_size = [{p.size_bytes: p for p in c.points} for c in part]
    marked = [p for c in part for p in (c.knee, c.wanted, c.points[-1]) if p is not None]
    kept = {finding.advice.size_bytes, *(p.size_bytes for p in marked)}
    # A size that only one curve has lies around that curve's target; the CSV has it.
    count = Counter(size for points in by_size for size in points)
    sizes = thinned(sorted(s for s in count if count[s] > 1 or s in kept or len(part) == 1), kept)
    table = table_with("cache", *(format_size_short(c.line_bytes) for c in part))
    for size in sizes:
        cells = [_hit_cell(finding, c, points.get(size)) for c, points in zip(part, by_size, strict=True)]
        table.add_row(text(format_bytes(size)), *cells)
    table.add_section()
    most = (None if c.cold_read_ratio is None else 1.0 - c.cold_read_ratio for c in part)
    table.add_row(text("upper bound"), *(text(percent(ratio)) for ratio in most))
    table.add_row(text("working set"), *(text(format_bytes(c.working_set_bytes)) for c in part))
    return table


def _methods(curves: Sequence[SizeCurve]) -> str:
    return "; ".join(dict.fromkeys(how(c) for c in curves)) if len({c.method for c in curves}) == 1 else "see the JSON"


def _hit_cell(finding: SizeFinding, curve: SizeCurve, point: SizePoint | None) -> Text:
    if point is None:
        return Text("")
    if is_advised(finding, curve, point):
        return text(f"{hit_text(point)}*", "bold green")
    mark = ">" if point is curve.wanted else "k" if point is curve.knee else " "
    return text(f"{hit_text(point)}{mark}", "bold" if mark != " " else "")


def thinned(sizes: Sequence[int], kept: Collection[int | None]) -> list[int]:
    """Return at most TABLE_ROWS of `sizes` and all of `kept` among them: spread evenly, ends included."""
    if len(sizes) <= TABLE_ROWS:
        return list(sizes)
    step = (len(sizes) - 1) / (TABLE_ROWS - 1)
    places = {round(i * step) for i in range(TABLE_ROWS)}
    return [size for place, size in enumerate(sizes) if place in places or size in kept]


def write_details(finding: SizeFinding, curve: SizeCurve, out: Console) -> None:
    """Print what follows from each size of the curve that the advice is about."""
    _title(out, f"{configuration(curve)}, by cache size ({how(curve)})")
    columns = columns_of(curve)
    kept = [p.size_bytes for p in (curve.knee, curve.wanted) if p is not None]
    sizes = set(thinned([p.size_bytes for p in curve.points], [*kept, finding.advice.size_bytes]))
    rows = [
        (
            "bold green" if is_advised(finding, curve, point) else "",
            [format_bytes(point.size_bytes), *(column.cell(point) for column in columns)],
        )
        for point in curve.points
        if point.size_bytes in sizes
    ]
    headings = ["cache", *(column.short for column in columns)]
    out.print(fitting(headings, rows, out, _OF_SIZES))
    words = (
        "reads, bytes, writes: hit ratios; left, disks: disk reads and disk time left; fetch: disk bytes per byte read"
    )
    out.print(text(words, "dim"))


def write_groups(finding: SizeFinding, main: SizeCurve | None, out: Console) -> None:
    """Print a row for each group at the advised line size: how much it reads and where its curve bends."""
    if main is None or finding.by == "all":
        return
    curves = group_curves(finding, main)
    _title(out, f"By {finding.by} ({format_line_size(main.line_bytes)} lines, {main.policy})")
    # The budget is for all groups together; one group alone does not get it.
    wanted = finding.budget_bytes is None and any(c.wanted or c.wanted_reason for c in curves)
    columns = [finding.by, "reads", "working set", "max hits", "knee", "at knee", *["for target"] * wanted]
    rows = []
    for curve in curves[:GROUP_ROWS]:
        cells = [
            clean(curve.group_name)[:NAME_LENGTH],
            format_rate(curve.read_requests),
            format_bytes(curve.working_set_bytes),
            best_text(curve),
            format_bytes(curve.knee.size_bytes) if curve.knee else "none",
            percent(curve.knee.read_hit.value) if curve.knee else "",
        ]
        if wanted:
            cells.append(format_bytes(curve.wanted.size_bytes) if curve.wanted else "none")
        rows.append(("", cells))
    out.print(fitting(columns, rows, out, _OF_GROUPS))
    if len(curves) > GROUP_ROWS:
        out.print(text(f"and {len(curves) - GROUP_ROWS} more; --output csv has them all", "dim"))


def write_split(finding: SizeFinding, main: SizeCurve | None, out: Console) -> None:
    """Print what each group gets of the budget."""
    one = main_split(finding)
    if one is None or main is None:
        return
    words = f"Best split of {format_bytes(one.budget_bytes)} of flash ({format_line_size(one.line_bytes)} lines)"
    _title(out, f"{words}: {split_gain(one)}")
    columns = split_columns(one)
    rows = [
        ("", [clean(share.group_name)[:NAME_LENGTH], *(column.cell(share) for column in columns)])
        for share in one.shares[:GROUP_ROWS]
    ]
    headings = [finding.by, *(column.short for column in columns)]
    out.print(fitting(headings, rows, out, _OF_SPLITS))


def _title(out: Console, words: str) -> None:
    out.print()
    out.print(text(words, "bold"))
