"""The reports of caches: answers of their daemons in, findings out. No clock, no socket, no file.

A report is a set of tables, and a column says how its value is taken from what was counted between two answers. Without
an earlier answer that is everything since the daemon's start; with one, counts become rates.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Literal

from bathyscope.cache.snapshots import BUCKET_FACTOR, RUNNING, Snapshot, Span, is_continued, is_served, spans
from bathyscope.records.activity_finding import ActivityFinding
from bathyscope.records.blocks import Column, Table, Unit
from bathyscope.units import format_bytes, format_percent, format_seconds, format_size_short

Name = Literal["status", "io", "usage", "iops", "stats"]

_Take = Callable[[Span], Any]
_RATES: dict[Unit, Unit] = {"bytes": "bytes/s", "count": "1/s"}


@dataclasses.dataclass(frozen=True, slots=True)
class _Value:
    """A column of a report. A counter becomes a rate when an interval is shown."""

    key: str
    heading: str
    unit: Unit
    take: _Take
    rank: int = 0
    is_counter: bool = False
    is_prose: bool = False

    def column(self, *, is_interval: bool) -> Column:
        key, unit = self.key, self.unit
        if is_interval and self.is_counter:
            key, unit = f"{key}_per_s", _RATES.get(unit, unit)
        return Column(key, self.heading, unit, rank=self.rank, prose=self.is_prose)

    def of(self, span: Span, *, is_interval: bool) -> Any:
        value = self.take(span)
        if value is None or not self.is_counter:
            return _whole(value) if self.unit == "count" else value
        if is_interval:
            return value / span.seconds if span.seconds > 0 else None
        return _whole(value)


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _gauge(key: str, heading: str, unit: Unit, path: str, rank: int = 0) -> _Value:
    return _Value(key, heading, unit, lambda span: span.gauge(path), rank)


def _text(key: str, heading: str, path: str, rank: int = 0) -> _Value:
    return _Value(key, heading, "", lambda span: span.text(path), rank)


def _counter(key: str, heading: str, unit: Unit, path: str, rank: int = 0) -> _Value:
    return _Value(key, heading, unit, lambda span: span.count(path), rank, is_counter=True)


def _less(key: str, heading: str, unit: Unit, path: str, *others: str, rank: int = 0) -> _Value:
    """Return the column of a counter without what other counters have of it."""

    def take(span: Span) -> float | None:
        values = [span.count(name) for name in (path, *others)]
        known = [value for value in values if value is not None]
        return known[0] - sum(known[1:]) if len(known) == len(values) else None

    return _Value(key, heading, unit, take, rank, is_counter=True)


def _share(key: str, heading: str, part: str, whole: str, rank: int = 0) -> _Value:
    def take(span: Span) -> float | None:
        return _ratio(span.count(part), span.count(whole))

    return _Value(key, heading, "ratio", take, rank)


def _ratio(part: float | None, whole: float | None) -> float | None:
    return None if part is None or not whole else part / whole


def _ops(kind: str) -> tuple[_Value, ...]:
    """Return the columns of reads or of writes: a request that was in the cache in part is no hit and no miss."""
    path, name = f"stats.{kind}s", kind.capitalize()
    return (
        _counter(f"{kind}_requests", f"{name} requests", "count", f"{path}.requests", rank=1),
        _counter(f"{kind}_hits", f"{name} hits", "count", f"{path}.requests_hit"),
        _counter(f"{kind}_partial", f"{name} partial", "count", f"{path}.requests_partial"),
        _less(
            f"{kind}_misses",
            f"{name} misses",
            "count",
            f"{path}.requests",
            f"{path}.requests_hit",
            f"{path}.requests_partial",
        ),
        _counter(f"{kind}_bytes", f"{name} bytes", "bytes", f"{path}.bytes", rank=2),
        _share(f"{kind}_byte_hit_ratio", f"{name} byte hit %", f"{path}.bytes_hit", f"{path}.bytes"),
    )


def _latencies(op: str) -> tuple[_Value, ...]:
    def path(span: Span) -> str:
        return f"{span.name}.{op}s"

    def mean(span: Span) -> float | None:
        return span.mean_ns(path(span))

    def percentile(name: str, share: float) -> _Take:
        return lambda span: span.percentile_ns(path(span), name, share)

    return (
        _Value(f"{op}_mean_ns", f"{op} mean", "ns", mean, rank=2 if op == "write" else 0),
        _Value(f"{op}_p50_ns", f"{op} p50", "ns", percentile("p50", 0.5), rank=5),
        _Value(f"{op}_p99_ns", f"{op} p99", "ns", percentile("p99", 0.99), rank=3 if op == "write" else 0),
        _Value(f"{op}_p999_ns", f"{op} p99.9", "ns", percentile("p999", 0.999), rank=6),
        _Value(
            f"{op}_max_ns",
            f"{op} max",
            "ns",
            lambda s: None if s.before else s.gauge(f"{path(s)}.latency_ns_max"),
            rank=7,
        ),
    )


def _of_device(key: str, heading: str, unit: Unit, path: str, rank: int = 0) -> _Value:
    return _Value(key, heading, unit, lambda span: span.count(f"{span.name}.{path}"), rank, is_counter=True)


def _throughput(key: str, heading: str, path: str) -> _Value:
    # Of an interval the bytes themselves are the throughput.
    return _Value(key, heading, "bytes/s", lambda s: None if s.before else s.rate(f"{s.name}.{path}"), rank=4)


_DIRECTORY = _text("directory", "Directory", "dir", rank=8)

_IO = (
    _counter("cache_read_bytes", "Cache read", "bytes", "io.cache_read_bytes"),
    _counter("cache_write_bytes", "Cache write", "bytes", "io.cache_write_bytes"),
    _counter("source_read_bytes", "Source read", "bytes", "io.source_read_bytes"),
    _counter("source_write_bytes", "Source write", "bytes", "io.source_write_bytes"),
    _counter("compared_bytes", "Compared", "bytes", "io.compared_bytes", rank=2),
    _share("byte_hit_ratio", "Byte hit %", "stats.reads.bytes_hit", "stats.reads.bytes", rank=1),
    _DIRECTORY,
)
_SSD = (
    _counter("ssd_write_bytes", "All", "bytes", "cache.engine.ssd_write_bytes"),
    _counter("data_bytes", "Data", "bytes", "cache.engine.ssd_writes.data_bytes"),
    _counter("line_table_bytes", "Line table", "bytes", "cache.engine.ssd_writes.line_table_bytes"),
    _counter("file_table_bytes", "File table", "bytes", "cache.engine.ssd_writes.file_table_bytes"),
    _counter("intent_bytes", "Intent", "bytes", "cache.engine.ssd_writes.intent_bytes"),
    _counter("state_bytes", "State", "bytes", "cache.engine.ssd_writes.state_bytes", rank=1),
    _counter("superblock_bytes", "Superblocks", "bytes", "cache.engine.ssd_writes.superblock_bytes", rank=1),
)
_USAGE = (
    _gauge("capacity_bytes", "Capacity", "bytes", "usage.capacity_bytes"),
    _gauge("usage_bytes", "Usage", "bytes", "usage.used_bytes"),
    _Value(
        "use_ratio", "Use %", "ratio", lambda s: _ratio(s.gauge("usage.used_bytes"), s.gauge("usage.capacity_bytes"))
    ),
    _gauge("max_usage_bytes", "Max usage", "bytes", "usage.used_bytes_max"),
    _gauge("files", "Files", "count", "usage.files"),
    _gauge("data_bytes", "Data", "bytes", "usage.cached_bytes", rank=1),
    _DIRECTORY,
)
_IOPS = (
    _of_device("reads", "Reads", "count", "reads.requests"),
    _of_device("writes", "Writes", "count", "writes.requests"),
    _of_device("read_data_bytes", "Read data", "bytes", "reads.bytes", rank=1),
    _of_device("write_data_bytes", "Write data", "bytes", "writes.bytes", rank=1),
    _throughput("read_rate_bytes_per_s", "Read rate", "reads.bytes"),
    _throughput("write_rate_bytes_per_s", "Write rate", "writes.bytes"),
    *_latencies("read"),
    *_latencies("write"),
)
_STATS: tuple[tuple[str, str, tuple[_Value, ...]], ...] = (
    (
        "files",
        "Files and segments (cache lines)",
        (
            _gauge("files_in_cache", "Files in cache", "count", "stats.files"),
            _gauge("segments_cached", "Segments cached", "count", "stats.segments_cached"),
            _gauge("segments_present", "Segments present", "count", "stats.segments_present"),
            _gauge("segments_uncached", "Segments uncached", "count", "stats.segments_uncached"),
        ),
    ),
    ("room", "Room", _USAGE[:4]),
    ("reads", "Reads", _ops("read")),
    ("writes", "Writes", _ops("write")),
    (
        "attributes",
        "Attributes and links",
        (
            _counter("attr_read_hits", "Attr read hits", "count", "stats.attribute_reads.hits"),
            _counter("attr_read_misses", "Attr read misses", "count", "stats.attribute_reads.misses"),
            _counter("attr_write_hits", "Attr write hits", "count", "stats.attribute_writes.hits"),
            _counter("attr_write_misses", "Attr write misses", "count", "stats.attribute_writes.misses"),
            _gauge("links_cached", "Links cached", "count", "stats.links.cached", rank=1),
            _counter("link_hits", "Link hits", "count", "stats.links.hits", rank=1),
            _counter("link_misses", "Link misses", "count", "stats.links.misses", rank=1),
        ),
    ),
    (
        "requests",
        "Requests under way and past the cache",
        (
            _gauge("pending", "Pending", "count", "stats.pending"),
            _counter("bypassed_stream", "Bypassed stream", "count", "stats.bypassed.stream"),
            _counter("bypassed_error", "Bypassed error", "count", "stats.bypassed.error"),
            _Value("uptime_s", "Uptime", "s", lambda span: span.uptime_s),
        ),
    ),
)


def _admission(span: Span) -> str | None:
    """Return what may enter a cache, as `bathy cache create --admission` takes it."""
    if span.text("cache.admission") is None:
        return None
    n_hit, cutoff_bytes, budget_bytes = (
        span.gauge(f"cache.admission.{name}") for name in ("n_hit", "stream_cutoff_bytes", "write_budget_bytes_per_day")
    )
    bypass = "write-bypass" if span.text("cache.admission.is_stream_of_writes") == str(True) else "bypass"
    parts = [
        f"{n_hit:.0f}-hit" if n_hit else "",
        f"{bypass}:{format_size_short(int(cutoff_bytes))}" if cutoff_bytes else "",
        f"budget:{format_size_short(int(budget_bytes))}" if budget_bytes else "",
    ]
    return "+".join(filter(None, parts)) or "all"


_STATUS = (
    _text("mode", "Mode", "mode"),
    _gauge("share_bytes", "Share", "bytes", "size_bytes", rank=2),
    *_USAGE[1:3],
    _share("byte_hit_ratio", "Byte hit %", "stats.reads.bytes_hit", "stats.reads.bytes"),
    _Value("served", "Served", "", lambda span: "yes" if is_served(span.now) else "no"),
    _Value("problem", "Problem", "", lambda span: span.text("problem"), is_prose=True),
    _gauge("open_files", "Open files", "count", "in_use.open_files", rank=3),
    _gauge("fetch_bytes", "Fetch", "bytes", "fetch.bytes_max", rank=4),
    _text("transport", "Transport", "transport", rank=5),
    _DIRECTORY,
)
_CACHES = (
    _Value("state", "State", "", lambda span: span.text("state") or RUNNING),
    _gauge("capacity_bytes", "Capacity", "bytes", "cache.engine.capacity_bytes"),
    _gauge("usage_bytes", "Usage", "bytes", "cache.engine.used_bytes"),
    _gauge("resident_bytes", "Resident", "bytes", "process.resident_bytes"),
    _gauge("memory_budget_bytes", "Memory budget", "bytes", "cache.engine.memory.budget_bytes", rank=1),
    _counter("ssd_read_bytes", "SSD read", "bytes", "cache.engine.ssd_read_bytes"),
    _counter("ssd_write_bytes", "SSD write", "bytes", "cache.engine.ssd_write_bytes"),
    _counter("evictions", "Evictions", "count", "cache.engine.evictions", rank=1),
    _counter("files_evicted", "Files evicted", "count", "cache.engine.file_table.evictions", rank=1),
    _counter("ssd_errors", "SSD errors", "count", "cache.engine.ssd_errors", rank=2),
    _gauge("peak_resident_bytes", "Peak resident", "bytes", "process.resident_bytes_max", rank=2),
    _gauge("memory_bytes", "Memory", "bytes", "cache.engine.memory_bytes", rank=2),
    _counter("mismatches", "Mismatches", "count", "cache.engine.mismatches", rank=3),
    _text("policy", "Policy", "cache.engine.policy", rank=4),
    _Value("admission", "Admission", "", _admission, rank=5),
    _gauge("line_bytes", "Line", "bytes", "cache.engine.line_bytes", rank=6),
    _gauge("stage_bytes", "In-memory stage", "bytes", "cache.engine.stage_bytes", rank=7),
    _text("ssd", "SSD", "cache.ssd", rank=8),
)

_NO_PROCESS = (
    "Resident memory of '{name}' is not known: its process is not seen from here. If this is a container, run bathy "
    "outside of it."
)
_NO_FIGURES = "The daemon reports no figures of its sources."
_UNSEEN: dict[Name, tuple[str, ...]] = {
    "status": (),
    "io": (
        "Cache write counts copies to the SSD and memory; it is no part of what applications wait for.",
        "Source read counts what was read from the directory: whole units, so it can be more than was asked for.",
        "Compared counts what was read from the directory besides, to compare it with what the cache has.",
    ),
    "usage": (
        "A source without a share of its own has the capacity of the whole cache, which all such sources share.",
        "Usage counts whole lines: a file takes one line at least, however small it is. Data is what is valid in them.",
    ),
    "iops": (
        "Cache: reads that the cache answered alone, and copies to it where they are measured.",
        "Source: all other reads, and writes, as the application waits for them.",
    ),
    "stats": ("A request that was in the cache in part is counted as partial, not as hit or miss.",),
}


def report(
    name: Name,
    snapshots: Sequence[tuple[Snapshot, Snapshot | None]],
    *,
    source: str | None = None,
    remarks: Sequence[str] = (),
    as_one_table: bool = False,
) -> ActivityFinding:
    """Return a report of (later, earlier answer) of several caches; the earlier one is None for all since the start.

    An earlier answer of another run of the daemon is not used, and a remark says so. `as_one_table` is for CSV:
    the cache's name is in each row, and of several tables with the same rows the first has the columns of all.
    """
    said = [*remarks]
    usable: list[tuple[Snapshot, Snapshot | None]] = []
    is_interval = any(before is not None for _, before in snapshots)
    for now, before in snapshots:
        if before is not None and now.state != RUNNING:
            before = None  # noqa: PLW2901 - nothing is counted
        elif before is not None and not is_continued(now, before):
            said.append(
                f"The daemon of '{now.cache}' was started anew {format_seconds(now.uptime_s)} ago: "
                "its counters began at 0 then, and are shown from there."
            )
            before = None  # noqa: PLW2901 - not of this run of the daemon
        usable.append((now, before))
    caches, sources = spans(usable)
    stopped = [
        Span(snapshot.cache, of, snapshot.uptime_s, snapshot.uptime_s, entry)
        for snapshot, _ in usable
        for of, entry in snapshot.stopped()
    ]
    if name == "status":
        sources += stopped
    elif stopped:
        said.append(f"Not shown: {len(stopped)} sources that are not served: bathy cache status.")
    if name == "status":
        said += [_NO_PROCESS.format(name=span.name) for span in caches if _has_no_process(span)]
    sources = [span for span in sources if source in (None, span.name)]
    tables = _tables(name, caches, sources, is_interval=is_interval, is_named=as_one_table)
    if as_one_table and name == "stats":
        tables = (_joined(tables), *tables)
    if is_interval and name == "iops":
        said.append(
            f"Percentiles of an interval are upper bounds: the true ones are at most {BUCKET_FACTOR} times lower."
        )
    end_ns = max(now.at_ns for now, _ in usable)
    seconds = max(span.seconds for span in caches)
    return ActivityFinding(
        view=f"cache {name}",
        run_id="",
        target=_target(caches),
        start_ns=end_ns - round(seconds * 1e9),
        end_ns=end_ns,
        sentence=_SENTENCES[name](caches, sources),
        facts=_facts(caches) if name == "status" else (),
        tables=tables,
        unseen=(*said, *_UNSEEN[name]),
    )


def _target(caches: Sequence[Span]) -> str:
    names = ", ".join(span.name for span in caches)
    return f"cache {names}" if len(caches) == 1 else f"caches {names}"


def _tables(
    name: Name, caches: Sequence[Span], sources: Sequence[Span], *, is_interval: bool, is_named: bool
) -> tuple[Table, ...]:
    def made(key: str, title: str, first: Sequence[_Value], values: Sequence[_Value], rows: Sequence[Span]) -> Table:
        every = (*first, *values)
        columns = tuple(value.column(is_interval=is_interval) for value in every)
        cells = tuple(tuple(value.of(span, is_interval=is_interval) for value in every) for span in rows)
        return Table(key, title, columns, cells)

    own = _Value("source", "Source", "", lambda span: span.name)
    # With one cache its name stands above the table, if the table has one.
    cache = [_Value("cache", "Cache", "", lambda span: span.cache, rank=1)] if is_named or len(caches) > 1 else []
    match name:
        case "status":
            first = [_Value("cache", "Cache", "", lambda span: span.name)]
            return made("caches", "Caches", first, _CACHES, caches), made(
                "sources", "Sources", [own, *cache], _STATUS, sources
            )
        case "io":
            first = [_Value("cache", "Cache", "", lambda span: span.name)]
            return (
                made("sources", "Bytes by where they came from and went to", [own, *cache], _IO, sources),
                made("ssd", "Bytes written to the SSD", first, _SSD, caches),
            )
        case "usage":
            return (made("usage", "Usage", [own, *cache], _USAGE, sources),)
        case "iops":
            return (_by_device(sources, cache, is_interval=is_interval),)
        case "stats":
            return tuple(made(key, title, [own, *cache], values, sources) for key, title, values in _STATS)


def _by_device(sources: Sequence[Span], cache: Sequence[_Value], *, is_interval: bool) -> Table:
    """Return the table of two rows for each source: what its cache did, and what the directory below did."""
    first = [
        Column("source", "Source"),
        *(value.column(is_interval=is_interval) for value in cache),
        Column("device", "Device"),
    ]
    columns = [value.column(is_interval=is_interval) for value in (*_IOPS, _DIRECTORY)]
    rows = []
    for span in sources:
        before = None if span.before is None else span.before.get("iops") or {}
        device = Span(span.cache, "", span.seconds, span.uptime_s, span.now.get("iops") or {}, before)
        for place in ("cache", "source"):
            one = dataclasses.replace(device, name=place)
            values = [value.of(one, is_interval=is_interval) for value in _IOPS]
            rows.append((span.name, *(value.take(span) for value in cache), place, *values, span.text("dir")))
    return Table("devices", "Operations by device", (*first, *columns), tuple(rows))


def _joined(tables: Sequence[Table]) -> Table:
    """Return one table of several that have the same rows: the first table, then what others have besides it."""
    columns, rows = list(tables[0].columns), [list(row) for row in tables[0].rows]
    for table in tables[1:]:
        places = [index for index, column in enumerate(table.columns) if column not in columns]
        columns += [table.columns[index] for index in places]
        for row, more in zip(rows, table.rows, strict=True):
            row += [more[index] for index in places]
    return Table("statistics", "Statistics", tuple(columns), tuple(tuple(row) for row in rows))


def _facts(caches: Sequence[Span]) -> tuple[tuple[str, str], ...]:
    facts = []
    for span in caches:
        facts.append((f"{span.name} on", span.text("cache.ssd") or "no SSD"))
        facts += [
            (f"{span.name} {word}", text) for word in ("found", "problem") if (text := span.text(f"cache.{word}"))
        ]
        if text := span.text("configuration_problem"):
            facts.append((f"{span.name} cannot be started again", text))
        facts += _attachment(span)
        engine = (span.now.get("cache") or {}).get("engine") or {}
        if span.text("cache.attachment.state") in {None, "attached"} and engine.get("is_bypassed"):
            facts.append((f"{span.name} is bypassed", "requests go past it to the sources"))
        facts += [*_devices(span), *_memory(span)]
        if uncompared_bytes := engine.get("uncompared_bytes"):
            text = f"{format_bytes(uncompared_bytes)} to go; others may have changed them, so reads go past it"
            facts.append((f"{span.name} is compared with its files", text))
        if without_room := engine.get("files_without_room"):
            text = f"{without_room:,} open files are not cached: its file table is full of other open files"
            facts.append((f"{span.name} is too small", text))
        facts += _file_table(span)
    return tuple(facts)


def _file_table(span: Span) -> list[tuple[str, str]]:
    """Return what a full file table costs: files that left it for others, with their lines."""
    evictions, lines, room = (
        span.gauge(f"cache.engine.file_table.{name}") for name in ("evictions", "evicted_lines", "files_max")
    )
    if not evictions or room is None:
        return []
    text = f"it has room for {room:,.0f} files; {evictions:,.0f} files gave way to others, with {lines or 0:,.0f} lines"
    return [(f"{span.name} file table is full", text)]


def _memory(span: Span) -> list[tuple[str, str]]:
    """Return that the daemon has more memory than it may take, if so: its budget is planned, and not enforced."""
    resident, budget = span.gauge("process.resident_bytes"), span.gauge("cache.engine.memory.budget_bytes")
    if resident is None or budget is None or resident <= budget:
        return []
    text = f"{format_bytes(resident)} are resident, and its budget is {format_bytes(budget)}"
    return [(f"{span.name} has more memory than its budget", text)]


def _devices(span: Span) -> list[tuple[str, str]]:
    """Return the devices whose cached lines were not believed at the start, and why."""
    words = {"compared": "all cached lines are compared with it before they are used", "dropped": "all were dropped"}
    return [
        (f"{span.name} may be stale on {device['device']}", f"{words[device['at_start']]}: {device['reason']}")
        for source in span.now.get("sources") or []
        for device in source.get("devices_at_start") or []
        if device.get("at_start") in words
    ]


def _attachment(span: Span) -> list[tuple[str, str]]:
    """Return what became of the SSD: whether it is there, and how often it was given up."""
    facts = []
    if span.text("cache.attachment.state") == "detached":
        facts.append((f"{span.name} is detached", f"nothing is cached; attach it: bathy cache attach {span.name}"))
    if (next_try_s := span.gauge("cache.attachment.next_try_s")) is not None:
        facts.append((f"{span.name} is tried again", f"in {format_seconds(next_try_s)}"))
    if times := span.gauge("cache.attachment.times_given_up"):
        reason = span.text("cache.attachment.last_reason") or "unknown"
        facts.append((f"{span.name} SSD given up", f"{times:.0f} times since the start, the last time: {reason}"))
    return facts


def _total(sources: Sequence[Span], path: str) -> float | None:
    """Return the sum over all sources that know it; None where none does."""
    known = [value for span in sources if (value := span.count(path)) is not None]
    return sum(known) if known else None


def _io_sentence(_caches: Sequence[Span], sources: Sequence[Span]) -> str:
    hit, read = _total(sources, "stats.reads.bytes_hit"), _total(sources, "stats.reads.bytes")
    if hit is None or read is None:
        return _NO_FIGURES
    if read == 0:
        return "Nothing was read."
    return f"{format_percent(hit / read)} of {format_bytes(read)} read came from the cache."


def _usage_sentence(_caches: Sequence[Span], sources: Sequence[Span]) -> str:
    # Of the later answer alone.
    now = [dataclasses.replace(span, before=None) for span in sources]
    files, used, data = (_total(now, f"usage.{name}") for name in ("files", "used_bytes", "cached_bytes"))
    if files is None or used is None:
        return _NO_FIGURES
    held = "" if data is None else f", which hold {format_bytes(data)} of data"
    return f"Cached: lines of {format_bytes(used)} of {files:,.0f} files{held}."


def _iops_sentence(_caches: Sequence[Span], sources: Sequence[Span]) -> str:
    cache, source = _total(sources, "iops.cache.reads.requests"), _total(sources, "iops.source.reads.requests")
    return _hits(cache, None if cache is None or source is None else cache + source)


def _stats_sentence(_caches: Sequence[Span], sources: Sequence[Span]) -> str:
    return _hits(_total(sources, "stats.reads.requests_hit"), _total(sources, "stats.reads.requests"))


def _hits(hits: float | None, every: float | None) -> str:
    if hits is None or every is None:
        return _NO_FIGURES
    return (
        f"The cache answered {format_percent(hits / every)} of {every:,.0f} reads." if every else "There were no reads."
    )


def _has_no_process(span: Span) -> bool:
    return (span.text("state") or RUNNING) == RUNNING and span.gauge("process.resident_bytes") is None


def _caches_nothing(span: Span) -> bool:
    is_attached = span.text("cache.attachment.state") in {None, "attached"}
    return not is_attached or bool(span.text("cache.problem")) or span.text("cache.engine") is None


def _status_sentence(caches: Sequence[Span], sources: Sequence[Span]) -> str:
    down = [span.name for span in caches if (span.text("state") or RUNNING) != RUNNING]
    bad = [span.name for span in caches if _caches_nothing(span) and span.name not in down]
    unusable = [span.name for span in caches if span.text("configuration_problem")]
    trouble = f" Not running: {', '.join(down)}." if down else ""
    trouble += f" Cannot be started again: {', '.join(unusable)}." if unusable else ""
    trouble += f" Nothing is cached by: {', '.join(bad)}." if bad else ""
    served = sum(is_served(span.now) for span in sources)
    return f"Sources: {len(sources)}, served: {served}.{trouble}"


_SENTENCES: dict[Name, Callable[[Sequence[Span], Sequence[Span]], str]] = {
    "status": _status_sentence,
    "io": _io_sentence,
    "usage": _usage_sentence,
    "iops": _iops_sentence,
    "stats": _stats_sentence,
}


def with_time(finding: ActivityFinding) -> ActivityFinding:
    """Return a report whose rows begin with the end of the interval, for rows of many intervals in one file."""
    time = Column("ended_ns", "Ended", "time")
    tables = tuple(
        Table(table.key, table.title, (time, *table.columns), tuple((finding.end_ns, *row) for row in table.rows))
        for table in finding.tables
    )
    return dataclasses.replace(finding, tables=tables)
