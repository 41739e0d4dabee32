"""The answer of `bathy size`: the advice first, then the curves that it rests on, their sizes, groups and the split.

CSV has a row for each point of each curve by default; its column `mark` says which are the knee, the wanted and the
advised size.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from bathyscope.records.blocks import Bars, Column, Facts, Line, LinePoint, Lines, Section, Table, Text, Tone
from bathyscope.records.size_finding import SizeCurve, SizeFinding, SizePoint, Split
from bathyscope.units import (
    format_bytes,
    format_cost,
    format_line_size,
    format_rate,
    format_seconds,
    format_size_short,
)
from bathyscope.views.cells import fine_ratio, value_cell
from bathyscope.views.csv import field_columns, figure_columns
from bathyscope.views.findings import caveats_section, for_programs
from bathyscope.views.labels import clean

_TABLE_ROWS = 14
_GROUP_ROWS = 20
_GROUPS_DRAWN, _SHARES_DRAWN = 7, 24
_WINDOWS_SHOWN = 60
_BARS = "▁▂▃▄▅▆▇█"
_NOT_JUDGED = "·"
_METHODS = {
    "simulation": "simulated in full",
    "exact": "exact",
    "shards": "sampled",
    "minisim": "simulated on a sample",
}
# What is left out first where a terminal is narrow has the highest rank.
_SIZES = (
    Column("size_bytes", "cache", "bytes"),
    Column("flash_bytes", "flash", "bytes", "the part of the cache on flash; the rest is in DRAM", rank=8),
    Column("read_hit_ratio", "reads", "fine ratio", "share of the reads whose lines are all cached", figure="interval"),
    Column("read_byte_hit_ratio", "bytes", "fine ratio", "share of the bytes read that is cached", rank=7),
    Column("write_hit_ratio", "writes", "fine ratio", "share of the writes whose lines are cached", rank=9),
    Column("backing_reads_ratio", "left", "fine ratio", "reads that reach the disks", rank=10),
    Column("disk_time_ratio", "disks", "fine ratio", "time that reads keep the disks busy, of that without the cache"),
    Column("fetch_ratio", "fetch", "times", "bytes read from the disks for each byte that clients read", rank=4),
    Column("flash_write_bytes_per_day", "flash/day", "bytes", "what a warm cache writes", rank=5),
    Column("fill_bytes", "fill", "bytes", "written once, to fill the cache", rank=6),
    Column("life", "life", "amount", "until the writes use up the endurance of the drives", rank=1),
    Column("latency_ns_mean", "mean", "ns", "latencies of hits and misses, mixed by the hit ratio"),
    Column("latency_ns_p99", "p99", "ns", "of hits and misses, mixed by the hit ratio", rank=3),
    Column("drives", "drives", rank=11),
    Column("cost", "cost", "amount", "of the drives that hold the cache, bear its writes and meet its peak", rank=2),
)
_READING = (
    ("reads", "share of the reads whose lines are all cached: only these spare a disk"),
    ("bytes", "share of the bytes read that is cached, of reads that hit in part as well"),
    ("fetch", "disk bytes for each byte read. Large lines fetch neighbours: they hit more, and above 1× read more"),
    (
        "left, disks",
        "reads that reach the disks, and their time there (positioning, transfer), of that without the cache",
    ),
    ("knee", "the size after which a further GiB brings clearly less: farthest above the straight line to the end"),
    ("upper bound", "what compulsory (cold) misses leave: no size avoids these; a longer trace has fewer of them"),
    ("flash/day, life", "what a warm cache writes, and the time until that wears the flash out; fill is written once"),
    (
        "mean, p99",
        "latencies of hits and misses, mixed by the hit ratio; fewer misses shorten queues, so true ones are lower",
    ),
    ("split", "of a budget: flash goes to the steepest piece of any group's curve first, until it is used up"),
)
_GROUPS = (
    Column("read_requests", "reads", "count", rank=2),
    Column("working_set_bytes", "working set", "bytes", rank=5),
    Column("max_hit_ratio", "max hits", "fine ratio", rank=3),
    Column("knee_bytes", "knee", "bytes", "the size after which a further GiB brings clearly less"),
    Column("knee_hit_ratio", "at knee", "fine ratio", rank=4),
    Column("wanted_bytes", "for target", "bytes", rank=1),
)
_SHARES = (
    Column("flash_bytes", "flash", "bytes"),
    Column("dram_bytes", "DRAM", "bytes", rank=1),
    Column("read_hit_ratio", "hit ratio", "fine ratio"),
    Column("hits_per_day", "hits/day", "1/day", rank=2),
    Column("marginal_hit_ratio_per_gib", "marginal hit ratio/GiB", "fine ratio", rank=3),
)


def tables_by(by: str, *, has_budget: bool) -> tuple[str, ...]:
    """Return the keys of the tables of an answer: without groups there are none of them, without a budget no split."""
    return ("points",) if by == "all" else ("points", "groups", "split") if has_budget else ("points", "groups")


def sections(finding: SizeFinding) -> Iterator[Section]:
    """Yield the advice, the curves, the sizes, the groups, the split, the stability and the caveats."""
    advice, main = finding.advice, _main_curve(finding)
    reasons = (Text(reason, "", "- ") for reason in advice.further_reasons)
    rows = [_row(finding, curve, point) for curve in (*finding.curves, *finding.trials) for point in curve.points]
    answer = (Text(advice.sentence, "strong"), *reasons, Text(_trace_line(finding), "dim"))
    yield Section("size", f"Flash for {_source_name(finding)}", (*answer, for_programs("points", rows)))
    whole = [curve for curve in finding.curves if curve.group_kind == "all"]
    for number, policy in enumerate(dict.fromkeys(curve.policy for curve in whole)):
        yield _hits(finding, [curve for curve in whole if curve.policy == policy], f"curves-{number}")
    if main is not None and main.points:
        policies = [curve for curve in whole if curve.line_bytes == main.line_bytes and curve.points]
        if len(policies) > 1:
            title = f"Policies at {format_line_size(main.line_bytes)} lines"
            yield Section("policies", title, (_lines(finding, policies, "policies", title),))
        yield _sizes(finding, main)
    if main is not None and finding.by != "all":
        yield _groups(finding, main)
        if (split := _main_split(finding, main)) is not None and split.shares:
            yield _split(finding, split)
    yield Section("stability", "Stability over time", tuple(_stability(finding)))
    said = (*finding.demand_sentences, finding.latency_sentence, finding.cost_sentence)
    yield Section("cost", "Demand, latency and cost", tuple(Text(sentence) for sentence in said if sentence))
    yield caveats_section(finding.caveats)
    yield Section("reading", "How to read", (Facts(_READING),))


def _row(finding: SizeFinding, curve: SizeCurve, point: SizePoint) -> dict[str, Any]:
    marks = [name for name, p in (("knee", curve.knee), ("wanted", curve.wanted)) if p is point]
    marks += ["advised"] if _is_advised(finding, curve, point) else []
    return {
        **field_columns(
            curve, "group_kind", "group_name", "line_bytes", "unit_bytes", "fetch_bytes", "is_fetch_adaptive", "policy",
            "admission", "method",
        ),
        **field_columns(point, "size_bytes", "flash_bytes", "dram_bytes"),
        **figure_columns("read_hit_ratio", point.read_hit),
        "read_byte_hit_ratio": point.read_byte_hit,
        "write_hit_ratio": point.write_hit,
        "write_byte_hit_ratio": point.write_byte_hit,
        "backing_reads_left": point.backing_reads_left,
        **field_columns(curve, "cold_read_ratio", "cold_write_ratio", "write_gap_ratio"),
        **field_columns(
            point, "fetch_amplification", "disk_time_left", "fill_bytes", "flash_write_bytes_per_day", "life_years",
            "latency_ns_mean", "latency_ns_p99", "cost",
        ),
        "drive": point.purchase and point.purchase.drive,
        "drive_count": point.purchase and point.purchase.count,
        **field_columns(curve, "read_requests", "write_requests", "working_set_bytes", "sampled_lines"),
        "mark": " ".join(marks),
    }  # fmt: skip


def _hits(finding: SizeFinding, curves: Sequence[SizeCurve], key: str) -> Section:
    """Return the read hit ratios of a policy: a row for each cache size, a column for each line size."""
    first = curves[0]
    title = f"Read hit ratio by cache size and line size ({first.policy}, admission {clean(first.admission)})"
    if not any(curve.read_requests for curve in curves):
        return Section(key, title, ())
    by_size = [{point.size_bytes: point for point in curve.points} for curve in curves]
    marked = [
        point for curve in curves for point in (curve.knee, curve.wanted, *curve.points[-1:]) if point is not None
    ]
    kept = {finding.advice.size_bytes, *(point.size_bytes for point in marked)}
    # A size that only one curve has lies around that curve's target; the CSV has it.
    count = Counter(size for points in by_size for size in points)
    sizes = _thinned(sorted(size for size in count if count[size] > 1 or size in kept or len(curves) == 1), kept)
    rows: list[tuple[str, ...]] = [
        (
            format_bytes(size),
            *(_hit_cell(finding, curve, points.get(size)) for curve, points in zip(curves, by_size, strict=True)),
        )
        for size in sizes
    ]
    most = (None if curve.cold_read_ratio is None else 1.0 - curve.cold_read_ratio for curve in curves)
    rows.append(("upper bound", *(value_cell(ratio, "fine ratio") for ratio in most)))
    rows.append(("working set", *(format_bytes(curve.working_set_bytes) for curve in curves)))
    columns = [
        Column(f"line_{number}", format_size_short(curve.line_bytes), "amount") for number, curve in enumerate(curves)
    ]
    table = Table(key, "hit ratios", (Column("cache", "cache"), *columns), tuple(rows), only="people", shown_max=None)
    target = "meets the target" if finding.budget_bytes is None else "the budget"
    methods = (
        "; ".join(dict.fromkeys(map(_how, curves))) if len({curve.method for curve in curves}) == 1 else "see the JSON"
    )
    legend = f"k: knee  >: {target}  *: advised  upper bound: no capacity limit; {methods}"
    drawn = [curve for curve in curves if curve.points]
    return Section(key, title, (_lines(finding, drawn, key, first.policy), table, Text(legend, "dim")))


def _hit_cell(finding: SizeFinding, curve: SizeCurve, point: SizePoint | None) -> str:
    if point is None:
        return ""
    mark = ">" if point is curve.wanted else "k" if point is curve.knee else " "
    return fine_ratio(point.read_hit) + ("*" if _is_advised(finding, curve, point) else mark)


def _thinned(sizes: Sequence[int], kept: Collection[int | None]) -> list[int]:
    """Return at most _TABLE_ROWS of `sizes` and all of `kept` among them: spread evenly, ends included."""
    if len(sizes) <= _TABLE_ROWS:
        return list(sizes)
    step = (len(sizes) - 1) / (_TABLE_ROWS - 1)
    places = {round(i * step) for i in range(_TABLE_ROWS)}
    return [size for index, size in enumerate(sizes) if index in places or size in kept]


def _sizes(finding: SizeFinding, curve: SizeCurve) -> Section:
    """Return what follows from each size of the curve that the advice is about."""
    kept = [point.size_bytes for point in (curve.knee, curve.wanted) if point is not None]
    sizes = set(_thinned([point.size_bytes for point in curve.points], [*kept, finding.advice.size_bytes]))
    points = [point for point in curve.points if point.size_bytes in sizes]
    rows = [_size(point) for point in points]
    # Flash only where it is not the whole size.
    left_out = () if any(point.dram_bytes for point in points) else ("flash_bytes",)
    columns = [c for c in _SIZES if c.key not in left_out and any(row[c.key] is not None for row in rows)]
    tones: tuple[Tone, ...] = tuple("good" if _is_advised(finding, curve, point) else "" for point in points)
    table = _table("sizes", columns, rows, tones=tones, only="people", shown_max=None)
    latencies = tuple(
        Line(
            name,
            tuple(LinePoint(p.size_bytes, getattr(p, field)) for p in curve.points if getattr(p, field) is not None),
        )
        for name, field in (("mean", "latency_ns_mean"), ("p99", "latency_ns_p99"))
    )
    drawn = Lines("latency", "Expected read latency", "cache size", "bytes", "read latency", "ns", latencies)
    title = f"{_configuration(curve)}, by cache size ({_how(curve)})"
    return Section("sizes", title, (drawn, table))


def _size(point: SizePoint) -> dict[str, Any]:
    purchase = point.purchase
    return {
        **field_columns(point, "size_bytes", "flash_bytes", "flash_write_bytes_per_day", "fill_bytes"),
        **field_columns(point, "latency_ns_mean", "latency_ns_p99"),
        "read_hit_ratio": point.read_hit,
        "read_byte_hit_ratio": point.read_byte_hit,
        "write_hit_ratio": point.write_hit,
        "backing_reads_ratio": point.backing_reads_left,
        "disk_time_ratio": point.disk_time_left,
        "fetch_ratio": point.fetch_amplification,
        "life": None if point.life_years is None else _life(point.life_years),
        "drives": purchase and f"{purchase.count} {purchase.drive}",
        "cost": None if point.cost is None else format_cost(point.cost),
    }


def _table(key: str, columns: Sequence[Column], rows: Sequence[Mapping[str, Any]], **more: Any) -> Table:
    return Table(key, key, tuple(columns), tuple(tuple(row[column.key] for column in columns) for row in rows), **more)


def _groups(finding: SizeFinding, main: SizeCurve) -> Section:
    """Return a row for each group at the advised line size: how much it reads and where its curve bends."""
    curves = _group_curves(finding, main)
    rows = [
        {
            "group": curve.group_name,
            **field_columns(curve, "read_requests", "working_set_bytes"),
            "max_hit_ratio": max(p.read_hit.value or 0.0 for p in curve.points) if curve.read_requests else None,
            "knee_bytes": curve.knee and curve.knee.size_bytes,
            "knee_hit_ratio": curve.knee and curve.knee.read_hit.value,
            # The budget is for all groups together; one group alone does not get it.
            "wanted_bytes": curve.wanted.size_bytes if curve.wanted and finding.budget_bytes is None else None,
        }
        for curve in curves
    ]
    table = _table("groups", (Column("group", finding.by), *_GROUPS), rows, shown_max=_GROUP_ROWS)
    title = f"By {finding.by} ({format_line_size(main.line_bytes)} lines, {main.policy})"
    drawn = [curve for curve in curves if curve.points][:_GROUPS_DRAWN]
    return Section("groups", title, (_lines(finding, drawn, "groups", f"By {finding.by}"), table))


def _split(finding: SizeFinding, split: Split) -> Section:
    """Return what each group gets of the budget."""
    has_memory = any(share.dram_bytes for share in split.shares)
    rows = [
        {"group": share.group_name, **field_columns(share, *(column.key for column in _SHARES))}
        | ({} if has_memory else {"dram_bytes": None})
        for share in split.shares
    ]
    table = _table("split", (Column("group", finding.by), *_SHARES), rows, shown_max=_GROUP_ROWS)
    gain = f"{format_rate(split.hits)} hits"
    if split.hits_even > 0:
        gain = f"{100 * (split.hits / split.hits_even - 1):+.1f}% hits over an even split"
    words = f"Best split of {format_bytes(split.budget_bytes)} of flash ({format_line_size(split.line_bytes)} lines)"
    picture = Bars("split", f"Split of {format_bytes(split.budget_bytes)}", table, ("flash_bytes",), "read_hit_ratio")
    return Section("split", f"{words}: {gain}", (picture, table))


def _stability(finding: SizeFinding) -> Iterator[object]:
    windows = finding.stability
    if sum(window.read_hit_ratio is not None for window in windows) > 1:
        lines = tuple(
            Line(
                name,
                tuple(
                    LinePoint(number, window.read_hit_ratio)
                    for number, window in enumerate(windows, start=1)
                    if window.read_hit_ratio is not None and window.judged is judged
                ),
            )
            for name, judged in (("counted", True), ("not counted", False))
        )
        yield Lines("stability", "Read hit ratio over time", "window", "", "read hit ratio", "ratio", lines)
    yield Text(finding.stability_sentence)
    if len(windows) > 1:
        shown = windows[-_WINDOWS_SHOWN:]
        bars = "".join(
            _NOT_JUDGED if w.read_hit_ratio is None or not w.judged else _BARS[min(7, int(8 * w.read_hit_ratio))]
            for w in shown
        )
        yield Text(f"read hit ratio by window, 0 to 100%: {bars}", "dim")
        if not all(w.judged for w in shown):
            yield Text(f"{_NOT_JUDGED}: not counted (the first window is cold; others have few reads)", "dim")


def _lines(finding: SizeFinding, curves: Sequence[SizeCurve], name: str, title: str) -> Lines:
    """Return the hit ratio of reads over cache size: a line with its 95 % band for each of `curves`."""
    target = "target met" if finding.budget_bytes is None else "budget"
    lines = []
    for curve in curves:
        points = []
        for point in curve.points:
            marks = [("advised", _is_advised(finding, curve, point)), (target, point is curve.wanted)]
            mark = next((mark for mark, holds in [*marks, ("knee", point is curve.knee)] if holds), "")
            hit = point.read_hit
            points.append(LinePoint(point.size_bytes, hit.value or 0.0, hit.low, hit.high, mark))
        lines.append(Line(_line_name(curve, curves), tuple(points)))
    return Lines(name, title, "cache size", "bytes", "read hit ratio", "ratio", tuple(lines))


def _line_name(curve: SizeCurve, shown: Sequence[SizeCurve]) -> str:
    parts = []
    if len({c.group_name for c in shown}) > 1:
        parts.append(clean(curve.group_name)[:30])
    if len({c.line_bytes for c in shown}) > 1:
        parts.append(f"{format_line_size(curve.line_bytes)} lines")
    if len({c.policy for c in shown}) > 1:
        parts.append(curve.policy)
    return ", ".join(parts) or f"{format_line_size(curve.line_bytes)} lines"


def _main_curve(finding: SizeFinding) -> SizeCurve | None:
    """Return the curve of the whole trace that the advice is about, else the first."""
    advice = finding.advice
    advised = (advice.line_bytes, advice.fetch_bytes, advice.policy, advice.admission)
    whole = [c for c in (*finding.curves, *finding.trials) if c.group_kind == "all"]
    of_advice = [c for c in whole if (c.line_bytes, c.fetch_bytes, c.policy, c.admission) == advised]
    return next(iter(of_advice or whole), None)


def _is_advised(finding: SizeFinding, curve: SizeCurve, point: SizePoint) -> bool:
    return finding.advice.size_bytes == point.size_bytes and _main_curve(finding) is curve


def _group_curves(finding: SizeFinding, main: SizeCurve) -> list[SizeCurve]:
    """Return the curves of the groups with the line size of `main`, and its policy where groups have it."""
    same = [c for c in finding.curves if c.group_kind != "all" and c.line_bytes == main.line_bytes]
    policies = [c.policy for c in same]
    policy = main.policy if main.policy in policies else next(iter(policies), None)
    return [c for c in same if c.policy == policy]


def _main_split(finding: SizeFinding, main: SizeCurve) -> Split | None:
    """Return the split at the advised line size and policy, else the one with the most hits."""
    same = (split for split in finding.splits if (split.line_bytes, split.policy) == (main.line_bytes, main.policy))
    return next(same, None) or max(finding.splits, key=lambda split: split.hits, default=None)


def _configuration(curve: SizeCurve) -> str:
    """Return the configuration of a curve: "64K lines fetched by 4K, lru, 2-hit"."""
    admission = "" if curve.admission == "all" else f", {curve.admission}"
    return f"{format_line_size(curve.line_bytes)} lines{curve.fetch_words}, {curve.policy}{admission}"


def _source_name(finding: SizeFinding) -> str:
    """Return the name of the trace without its directory, or how many traces there are."""
    names = finding.sources
    return clean(names[0].rstrip("/").rpartition("/")[2]) if len(names) == 1 else f"{len(names)} traces"


def _trace_line(finding: SizeFinding) -> str:
    """Return the traces and their I/Os in one line."""
    parts = [f"{finding.events:,} I/Os"]
    if finding.duration_s > 0:
        parts[0] += f" over {format_seconds(finding.duration_s)}"
    whole = next((c for c in finding.curves if c.group_kind == "all"), None)
    if whole is not None:
        parts.append(f"{whole.read_requests:,} reads of {format_bytes(whole.read_bytes)}")
        parts.append(f"{whole.write_requests:,} writes of {format_bytes(whole.write_bytes)}")
    return f"{_source_name(finding)}: {', '.join(parts)}"


def _how(curve: SizeCurve) -> str:
    """Return how a curve was found, in words."""
    method = _METHODS.get(curve.method, curve.method)
    return method if curve.sampled_lines is None else f"{method}, {curve.sampled_lines:,} lines"


def _life(years: float) -> str:
    """Return the life of the flash: "4.2 y", "50 y+" from 50 years on."""
    if years < 1:
        return f"{years * 365:.0f} d" if years * 365 >= 1 else "<1 d"
    return "50 y+" if years >= 50 else f"{years:.1f} y"
