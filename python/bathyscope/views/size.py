"""What `bathy size` found, as a table, JSON or CSV: the advice first, then the curves that it rests on."""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import PurePath
from typing import Any, TextIO

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from bathyscope.errors import UsageError
from bathyscope.records.size_finding import SizeCurve, SizeFinding, SizePoint, Split
from bathyscope.units import format_bytes, format_duration_ns, format_rate, format_seconds, format_size_short
from bathyscope.views import csv, json
from bathyscope.views.labels import SEVERITY_ORDER, clean
from bathyscope.views.terminal import console, text

TABLE_ROWS = 14
GROUP_ROWS = 20
_CALL_STYLES = {
    "worth it": "bold green",
    "wears out": "bold yellow",
    "not worth it": "bold yellow",
    "cannot tell": "bold yellow",
}
_BARS = "▁▂▃▄▅▆▇█"
_NOT_JUDGED = "·"


def write(
    finding: SizeFinding,
    output: str = "table",
    stream: TextIO | None = None,
    *,
    colour: bool | None = None,
    width: int | None = None,
) -> None:
    """Write `finding` to `stream` (default: stdout) as `output`: table, json or csv. Raises UsageError."""
    stream = sys.stdout if stream is None else stream
    match output:
        case "table":
            write_table(finding, console(stream, colour=colour, width=width))
        case "json":
            json.write(finding, stream)
        case "csv":
            csv.write(point_rows(finding), stream)
        case _:
            raise UsageError(f"'{output}' is not an output", hint="use table, json or csv")


def point_rows(finding: SizeFinding) -> list[dict[str, Any]]:
    """Return one flat row for each point of each curve; `mark` says which are the knee and the wanted size."""
    rows = []
    for curve in finding.curves:
        for point in curve.points:
            marks = [name for name, p in (("knee", curve.knee), ("wanted", curve.wanted)) if p is point]
            marks += ["advised"] if is_advised(finding, curve, point) else []
            rows.append(
                {
                    "group_kind": curve.group_kind,
                    "group_name": curve.group_name,
                    "line_bytes": curve.line_bytes,
                    "fetch_bytes": curve.fetch_bytes,
                    "policy": curve.policy,
                    "admission": curve.admission,
                    "method": curve.method,
                    "size_bytes": point.size_bytes,
                    "flash_bytes": point.flash_bytes,
                    "memory_bytes": point.memory_bytes,
                    "read_hit_ratio": point.read_hit.value,
                    "read_hit_ratio_low": point.read_hit.low,
                    "read_hit_ratio_high": point.read_hit.high,
                    "read_byte_hit_ratio": point.read_byte_hit,
                    "write_hit_ratio": point.write_hit,
                    "backing_reads_left": point.backing_reads_left,
                    "cold_read_ratio": curve.cold_read_ratio,
                    "write_gap_ratio": curve.write_gap_ratio,
                    "fetch_amplification": point.fetch_amplification,
                    "flash_write_bytes_per_day": point.flash_write_bytes_per_day,
                    "life_years": point.life_years,
                    "latency_ns_mean": point.latency_ns_mean,
                    "latency_ns_p99": point.latency_ns_p99,
                    "cost": point.cost,
                    "read_requests": curve.read_requests,
                    "write_requests": curve.write_requests,
                    "working_set_bytes": curve.working_set_bytes,
                    "sampled_lines": curve.sampled_lines,
                    "mark": " ".join(marks),
                }
            )
    return rows


def is_advised(finding: SizeFinding, curve: SizeCurve, point: SizePoint) -> bool:
    """Return whether the advice is about this point."""
    main = main_curve(finding)
    return main is curve and finding.advice.size_bytes == point.size_bytes


def main_curve(finding: SizeFinding) -> SizeCurve | None:
    """Return the curve that the advice is about: that of the whole trace with its line size, else the first."""
    whole = [c for c in finding.curves if c.group_kind == "all"]
    advised = [
        c for c in whole
        if (c.line_bytes, c.policy) == (finding.advice.line_bytes, finding.advice.policy)
    ]  # fmt: skip
    return next(iter(advised or whole), None)


def write_table(finding: SizeFinding, out: Console) -> None:
    """Print the answer for people, within 80 columns."""
    out.print(text(finding.advice.sentence, _CALL_STYLES.get(finding.advice.call, "bold")))
    for reason in finding.advice.further_reasons:
        out.print(Padding(text(f"- {reason}"), (0, 0, 0, 2), expand=False))
    out.print(text(trace_line(finding), "dim"))
    main = main_curve(finding)
    for policy in dict.fromkeys(c.policy for c in finding.curves if c.group_kind == "all"):
        curves = [c for c in finding.curves if c.group_kind == "all" and c.policy == policy]
        _curves(finding, curves, out)
    if main is not None and main.points:
        _details(finding, main, out)
    _groups(finding, main, out)
    _splits(finding, main, out)
    _stability(finding, out)
    out.print(text(finding.latency_sentence))
    if finding.cost_sentence:
        out.print(text(finding.cost_sentence))
    order = {name: place for place, name in enumerate(SEVERITY_ORDER)}
    for caveat in sorted(finding.caveats, key=lambda c: order.get(c.severity, 9)):
        out.print(text(f"{caveat.severity}: {caveat.text}", "yellow" if caveat.severity == "doubt" else "dim"))


def trace_line(finding: SizeFinding) -> str:
    """Return what the answer rests on, in one line."""
    names = [clean(PurePath(source).name) for source in finding.sources]
    name = names[0] if len(names) == 1 else f"{len(names)} traces"
    parts = [f"{finding.events:,} I/Os"]
    if finding.duration_s > 0:
        parts[0] += f" over {format_seconds(finding.duration_s)}"
    whole = next((c for c in finding.curves if c.group_kind == "all"), None)
    if whole is not None:
        parts.append(f"{whole.read_requests:,} reads of {format_bytes(whole.read_bytes)}")
        parts.append(f"{whole.write_requests:,} writes of {format_bytes(whole.write_bytes)}")
    return f"{name}: {', '.join(parts)}"


def how(curve: SizeCurve) -> str:
    """Return how a curve was found, in words."""
    words = {
        "simulation": "simulated in full",
        "exact": "exact",
        "shards": "sampled",
        "minisim": "simulated on a sample",
    }
    method = words.get(curve.method, curve.method)
    return method if curve.sampled_lines is None else f"{method}, {curve.sampled_lines:,} lines"


def percent(ratio: float | None) -> str:
    """Return a hit ratio with one digit after the point: "50.9%"."""
    return "n/a" if ratio is None or not math.isfinite(ratio) else f"{100 * ratio:.1f}%"


def hit_text(point: SizePoint) -> str:
    """Return the hit ratio with half its band when it has one: "50.9% ±1.2"."""
    figure = point.read_hit
    if figure.value is None or figure.low is None or figure.high is None or figure.high - figure.low < 0.0005:
        return percent(figure.value)
    return f"{percent(figure.value)} ±{50 * (figure.high - figure.low):.1f}"


def _new_table(*columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold", padding=(0, 1))
    for place, name in enumerate(columns):
        table.add_column(text(name), justify="left" if place == 0 else "right", no_wrap=True)
    return table


# What is left out first where a terminal is narrow: a number that is cut off is a wrong number.
_DISPENSABLE = ("writes", "flash", "bytes", "flash/day", "fetch", "p99", "cost", "life")


def _fitting(columns: Sequence[str], rows: Sequence[tuple[str, Sequence[str]]], out: Console) -> Table:
    """Return a table of as many columns as fit whole; JSON and CSV have all of them."""
    shown = list(columns)
    for dispensable in ("", *_DISPENSABLE):
        shown = [name for name in shown if name != dispensable]
        places = [columns.index(name) for name in shown]
        table = _new_table(*shown)
        for style, cells in rows:
            table.add_row(*(text(cells[place], style) for place in places))
        if Measurement.get(out, out.options.update(max_width=10_000), table).maximum <= out.width:
            break
    return table


def _title(out: Console, words: str) -> None:
    out.print()
    out.print(text(words, "bold"))


def _curves(finding: SizeFinding, curves: Sequence[SizeCurve], out: Console) -> None:
    """Print the read hit ratios: a row for each cache size, a column for each line size."""
    first = curves[0]
    _title(out, f"Reads that hit, by cache size and line size ({first.policy}, admission {clean(first.admission)})")
    sampled = any(c.sampled_lines is not None for c in curves)
    per_table = 4 if sampled else 7
    for start in range(0, len(curves), per_table):
        part = curves[start : start + per_table]
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
        table.add_row(text("at most"), *(text(percent(1.0 - c.cold_read_ratio)) for c in part))
        table.add_row(text("working set"), *(text(format_bytes(c.working_set_bytes)) for c in part))
        out.print(table)
    out.print(
        text(
            f"k: knee  >: meets the target  *: advised  at most: not read for the first time; {_methods(curves)}", "dim"
        )
    )


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


def _details(finding: SizeFinding, curve: SizeCurve, out: Console) -> None:
    """Print what follows from each size of the curve that the advice is about."""
    _title(out, f"What {format_size_short(curve.line_bytes)} lines cost and bring ({curve.policy}, {how(curve)})")
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
            percent(point.write_hit) if curve.write_requests else "n/a",
            fetch,
            "n/a" if point.flash_write_bytes_per_day is None else format_bytes(point.flash_write_bytes_per_day),
            life_text(point.life_years),
        ]
        cells += ["n/a" if point.latency_ns_mean is None else format_duration_ns(point.latency_ns_mean)] * with_latency
        cells += ["n/a" if point.latency_ns_p99 is None else format_duration_ns(point.latency_ns_p99)] * with_p99
        cells += ["n/a" if point.cost is None else f"{point.cost:,.2f}"] * with_cost
        rows.append(("bold green" if is_advised(finding, curve, point) else "", cells))
    out.print(_fitting(columns, rows, out))
    out.print(text("reads, bytes, writes: share that hits; fetch: bytes read from the disks per byte read", "dim"))


def life_text(years: float | None) -> str:
    """Return the life of the flash: "4.2 y", "50 y+" where it is longer than anyone asks."""
    if years is None:
        return "n/a"
    if years < 1:
        return f"{years * 365:.0f} d" if years * 365 >= 1 else "<1 d"
    return "50 y+" if years >= 50 else f"{years:.1f} y"


def _groups(finding: SizeFinding, main: SizeCurve | None, out: Console) -> None:
    """Print a row for each group at the advised line size: how much it reads and where its curve bends."""
    if main is None or finding.by == "all":
        return
    curves = [
        c for c in finding.curves
        if c.group_kind != "all" and c.line_bytes == main.line_bytes and c.policy == main.policy
    ]  # fmt: skip
    _title(out, f"By {finding.by} ({format_size_short(main.line_bytes)} lines, {main.policy})")
    wanted = any(c.wanted or c.wanted_reason for c in curves)
    table = _new_table(finding.by, "reads", "working set", "best", "knee", "hits", *(["target at"] if wanted else []))
    for curve in curves[:GROUP_ROWS]:
        best = max((p.read_hit.value or 0.0 for p in curve.points), default=None)
        cells = [
            clean(curve.group_name)[:24],
            format_rate(curve.read_requests),
            format_bytes(curve.working_set_bytes),
            percent(best) if curve.read_requests else "n/a",
            format_bytes(curve.knee.size_bytes) if curve.knee else "none",
            percent(curve.knee.read_hit.value) if curve.knee else "",
        ]
        if wanted:
            cells.append(format_bytes(curve.wanted.size_bytes) if curve.wanted else "no size")
        table.add_row(*(text(cell) for cell in cells))
    out.print(table)
    if len(curves) > GROUP_ROWS:
        out.print(text(f"and {len(curves) - GROUP_ROWS} more; --output csv has them all", "dim"))


def main_split(finding: SizeFinding) -> Split | None:
    """Return the split at the advised line size and policy, else the one with the most hits."""
    main = main_curve(finding)
    if main is not None:
        for one in finding.splits:
            if (one.line_bytes, one.policy) == (main.line_bytes, main.policy):
                return one
    return max(finding.splits, key=lambda one: one.hits, default=None)


def _splits(finding: SizeFinding, main: SizeCurve | None, out: Console) -> None:
    one = main_split(finding)
    if one is None or main is None:
        return
    words = f"The best split of {format_bytes(one.budget_bytes)} ({format_size_short(one.line_bytes)} lines)"
    _title(out, f"{words}: {split_gain(one)}")
    table = _new_table(finding.by, "gets", "hits", "hits/day", "hits per GiB more")
    for share in one.shares[:GROUP_ROWS]:
        table.add_row(
            text(clean(share.group_name)[:24]),
            text(format_bytes(share.flash_bytes) if share.flash_bytes else "nothing"),
            text(percent(share.read_hit_ratio)),
            text("n/a" if share.hits_per_day is None else format_rate(share.hits_per_day)),
            text(format_rate(share.marginal_hits_per_gib)),
        )
    out.print(table)


def split_gain(one: Split) -> str:
    """Return what the split is worth against an even one."""
    if one.hits_even <= 0:
        return f"{format_rate(one.hits)} hits"
    return f"{100 * (one.hits / one.hits_even - 1):+.1f}% hits against an even one"


def _stability(finding: SizeFinding, out: Console) -> None:
    out.print()
    out.print(text(finding.stability_sentence))
    if len(finding.stability) > 1:
        shown = finding.stability[-60:]
        bars = "".join(_BARS[min(7, int(8 * w.read_hit_ratio))] if w.judged else _NOT_JUDGED for w in shown)
        out.print(text(f"hits by window, 0 to 100%: {bars}", "dim"))
        if not all(w.judged for w in shown):
            out.print(text(f"{_NOT_JUDGED}: not counted, the cold first window and those of few reads", "dim"))
