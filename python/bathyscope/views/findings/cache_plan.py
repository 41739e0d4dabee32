"""The plan of `bathy cache plan`: a table for each node, then what limits it."""

from __future__ import annotations

from collections.abc import Iterator

from bathyscope.records.blocks import Column, Section, Table, Text, severity_order
from bathyscope.records.cache_plan_finding import CachePlan, PlannedCache
from bathyscope.units import format_bytes, format_rate, format_seconds, format_size_short
from bathyscope.views.figures import value_text
from bathyscope.views.findings import rows_of

_COLUMNS = (
    Column("node", "node", only="programs"),
    Column("name", "source"),
    Column("osd", "OSD", only="programs"),
    Column("directory", "directory", only="programs"),
    Column("flash_bytes", "flash", "bytes"),
    Column("useful_bytes", "useful", "bytes", "flash beyond which this run shows no more hits", rank=1),
    Column("dram_bytes", "DRAM", "bytes", rank=3),
    Column("read_requests", "reads", "count", rank=2),
    Column("read_hit_ratio", "hit ratio", "fine ratio"),
    Column("disk_time_left_ratio", "disk time", "fine ratio", "what reads keep of it"),
    Column("flash_write_bytes_per_day", "flash/day", "bytes", "what a warm cache writes", rank=4),
)
_LEGEND = "useful: flash beyond which this run shows no more hits; disk time: what reads keep of it; flash/day: written"
_NAMES_SHOWN = 10


def sections(finding: CachePlan) -> Iterator[Section]:
    """Yield the configuration, a section for each node, and the caveats."""
    over = f" over {format_seconds(finding.duration_s)}" if finding.duration_s > 0 else ""
    shape = f"{format_size_short(finding.line_bytes)} lines of {format_size_short(finding.fetch_bytes)} units"
    yield Section(
        "plan",
        "",
        (
            Text(f"run {finding.run_id}: {finding.events:,} I/Os{over}", "dim"),
            Text(f"{finding.policy}, {shape}, adaptive fetch, {finding.admission}, {finding.mode}", "dim"),
        ),
    )
    for cache in finding.caches:
        count = "1 OSD" if len(cache.sources) == 1 else f"{len(cache.sources)} OSDs"
        yield Section(cache.node, f"{cache.node}: {format_bytes(cache.flash_bytes)} for {count}", tuple(_blocks(cache)))
    yield Section("caveats", "", (Text(_LEGEND, "dim"), *sorted(finding.caveats, key=severity_order)))


def _blocks(cache: PlannedCache) -> Iterator[object]:
    rows = tuple((cache.node, *row) for row in rows_of(_COLUMNS[1:], cache.sources))
    yield Table("sources", "sources", _COLUMNS, rows, shown_max=None)
    if not cache.sources:
        yield Text("no read of these OSDs would hit in so much flash: none is worth a cache by this run")
        return
    hits, even = (value_text(ratio, "fine ratio") for ratio in (cache.read_hit_ratio, cache.read_hit_ratio_even))
    yield Text(
        f"{hits} of the node's {format_rate(cache.read_requests)} reads would hit "
        f"({even} with an even split); memory: {format_bytes(cache.dram_bytes)} for the "
        f"small queue and up to {format_bytes(cache.index_bytes)} for the index, {format_bytes(cache.memory_bytes)} "
        f"with the daemon's own (it may take {format_bytes(cache.memory_budget_bytes)})"
    )
    yield Text(f"{cache.files_max:,} files can be cached at once, and a file takes a line of flash at least", "dim")
    if cache.without:
        names = ", ".join(f"osd.{osd}" for osd in cache.without[:_NAMES_SHOWN])
        more = f" and {len(cache.without) - _NAMES_SHOWN} more" if len(cache.without) > _NAMES_SHOWN else ""
        why = "no read there would hit, or the flash brings more elsewhere"
        yield Text(f"without a cache: {names}{more} ({why})", "dim")
