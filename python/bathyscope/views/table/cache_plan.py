"""The plan of `bathy cache plan`, for people: a table for each node, then what to do and what limits it."""

from __future__ import annotations

from typing import TextIO

from rich.console import Console

from bathyscope.records.cache_plan_finding import CachePlan, PlannedCache, PlannedSource
from bathyscope.units import format_bytes, format_rate, format_seconds, format_size_short
from bathyscope.views import Options
from bathyscope.views.labels import clean
from bathyscope.views.size_words import known, percent
from bathyscope.views.table.terminal import console, new_table, text

_HEADINGS = ("source", "flash", "useful", "DRAM", "reads", "hit ratio", "disk time", "flash/day")


def write(finding: CachePlan, stream: TextIO, options: Options) -> None:
    """Print a table for each node and the caveats."""
    out = console(stream, options)
    over = f" over {format_seconds(finding.duration_s)}" if finding.duration_s > 0 else ""
    out.print(text(f"run {finding.run_id}: {finding.events:,} I/Os{over}", "dim"))
    shape = f"{format_size_short(finding.line_bytes)} lines of {format_size_short(finding.fetch_bytes)} units"
    out.print(text(f"{finding.policy}, {shape}, adaptive fetch, {clean(finding.admission)}, {finding.mode}", "dim"))
    for cache in finding.caches:
        _cache(cache, out)
    out.print()
    words = (
        "useful: flash beyond which this run shows no more hits; disk time: what reads keep of it; flash/day: written"
    )
    out.print(text(words, "dim"))
    for caveat in sorted(finding.caveats, key=lambda c: c.rank):
        out.print(text(f"{caveat.severity}: {caveat.text}", "yellow" if caveat.severity == "warning" else "dim"))


def _cache(cache: PlannedCache, out: Console) -> None:
    out.print()
    out.print(text(f"{cache.node}: {format_bytes(cache.flash_bytes)} for {_count(len(cache.sources))}", "bold"))
    if not cache.sources:
        out.print(text("no read of these OSDs would hit in so much flash: none is worth a cache by this run"))
        return
    table = new_table()
    for heading in _HEADINGS:
        table.add_column(text(heading), justify="left" if heading == "source" else "right")
    for source in cache.sources:
        table.add_row(*(text(cell) for cell in _cells(source)))
    out.print(table)
    even = cache.read_hit_ratio_even
    out.print(
        text(
            f"{percent(cache.read_hit_ratio)} of the node's {format_rate(cache.read_requests)} reads would hit "
            f"({percent(even)} with an even split); memory: {format_bytes(cache.dram_bytes)} for the small queue and "
            f"up to {format_bytes(cache.index_bytes)} for the index, {format_bytes(cache.memory_bytes)} with the "
            f"daemon's own (it may take {format_bytes(cache.memory_budget_bytes)})"
        )
    )
    files = f"{cache.files_max:,} files can be cached at once, and a file takes a line of flash at least"
    out.print(text(files, "dim"))
    if cache.without:
        names = ", ".join(f"osd.{osd}" for osd in cache.without[:10])
        more = f" and {len(cache.without) - 10} more" if len(cache.without) > 10 else ""
        why = "no read there would hit, or the flash brings more elsewhere"
        out.print(text(f"without a cache: {names}{more} ({why})", "dim"))


def _cells(source: PlannedSource) -> list[str]:
    return [
        clean(source.name),
        format_bytes(source.flash_bytes),
        format_bytes(source.useful_bytes),
        format_bytes(source.dram_bytes),
        format_rate(source.read_requests),
        percent(source.read_hit_ratio),
        percent(source.disk_time_left_ratio),
        known(source.flash_write_bytes_per_day, format_bytes),
    ]


def _count(sources: int) -> str:
    return "1 OSD" if sources == 1 else f"{sources} OSDs"
