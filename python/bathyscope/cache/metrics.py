"""Counters of caches as Prometheus text (exposition format 0.0.4): base units, totals, histograms of latencies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bathyscope.cache.curves import Curve
from bathyscope.cache.snapshots import Snapshot, Span, latency_buckets, latency_total_ns, spans

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_Labels = tuple[tuple[str, str], ...]

# Name without its beginning, type, help, and (path in the daemon's status, labels) of each series.
_OF_SOURCES: tuple[tuple[str, str, str, tuple[tuple[str, _Labels], ...]], ...] = (
    ("request_bytes_total", "counter", "Bytes that applications read and wrote.",
     (("stats.reads.bytes", (("op", "read"),)), ("stats.writes.bytes", (("op", "write"),)))),
    ("read_bytes_total", "counter",
     "Bytes read, by where they came from; from the source whole units, and what was fetched ahead.",
     (("io.cache_read_bytes", (("device", "cache"),)), ("io.source_read_bytes", (("device", "source"),)))),
    ("compared_bytes_total", "counter", "Bytes read from the source besides, to compare them with what the cache has.",
     (("io.compared_bytes", ()),)),
    ("write_bytes_total", "counter", "Bytes written, by where they went.",
     (("io.cache_write_bytes", (("device", "cache"),)), ("io.source_write_bytes", (("device", "source"),)))),
    ("requests_total", "counter", "Requests of applications.",
     (("stats.reads.requests", (("op", "read"),)), ("stats.writes.requests", (("op", "write"),)))),
    ("request_hits_total", "counter", "Requests that were in the cache as a whole.",
     (("stats.reads.requests_hit", (("op", "read"),)), ("stats.writes.requests_hit", (("op", "write"),)))),
    ("request_partial_hits_total", "counter", "Requests that were in the cache in part.",
     (("stats.reads.requests_partial", (("op", "read"),)), ("stats.writes.requests_partial", (("op", "write"),)))),
    ("bypassed_requests_total", "counter", "Requests that went past the cache.",
     (("stats.bypassed.stream", (("reason", "stream"),)), ("stats.bypassed.error", (("reason", "error"),)))),
    ("attribute_requests_total", "counter", "Requests for attributes and names that reached the daemon.",
     (("stats.attribute_reads.misses", (("op", "read"),)), ("stats.attribute_writes.misses", (("op", "write"),)))),
    ("link_requests_total", "counter", "Requests for symbolic links that reached the daemon.",
     (("stats.links.misses", ()),)),
    ("source_lines_entered_total", "counter", "Lines (segments) that entered the cache.",
     (("stats.segments_cached", ()),)),
    ("source_lines_left_total", "counter", "Lines (segments) that left the cache.",
     (("stats.segments_uncached", ()),)),
    ("source_lines", "gauge", "Lines (segments) that are cached.", (("stats.segments_present", ()),)),
    ("pending_requests", "gauge", "Requests under way.", (("stats.pending", ()),)),
    ("source_used_bytes", "gauge", "Bytes of the source in the cache.", (("usage.used_bytes", ()),)),
    ("source_cached_bytes", "gauge", "Valid bytes in the lines of the source.", (("usage.cached_bytes", ()),)),
    ("source_used_bytes_max", "gauge", "The most that the source has used.", (("usage.used_bytes_max", ()),)),
    ("source_capacity_bytes", "gauge", "What the source may use.", (("usage.capacity_bytes", ()),)),
    ("source_residence_seconds_mean", "gauge", "Mean time from entering to leaving, of sampled lines since the start.",
     (("usage.residence_s_mean", ()),)),
    ("source_fetch_bytes_max", "gauge", "The most that a miss fetches at the moment.", (("fetch.bytes_max", ()),)),
    ("source_files", "gauge", "Files of which something is cached.", (("usage.files", ()),)),
)  # fmt: skip
_OF_CACHES: tuple[tuple[str, str, str, str], ...] = (
    ("uptime_seconds", "gauge", "Time since the start of the daemon.", "uptime_s"),
    ("capacity_bytes", "gauge", "Room on the SSD.", "cache.engine.capacity_bytes"),
    ("used_bytes", "gauge", "Bytes in use on the SSD.", "cache.engine.used_bytes"),
    ("memory_bytes", "gauge", "Memory of the engine.", "cache.engine.memory_bytes"),
    ("memory_budget_bytes", "gauge", "Memory that the daemon may take.", "cache.engine.memory.budget_bytes"),
    ("resident_bytes", "gauge", "Resident memory of the daemon.", "process.resident_bytes"),
    ("resident_bytes_max", "gauge", "Most resident memory since its start.", "process.resident_bytes_max"),
    ("ssd_read_bytes_total", "counter", "Bytes read from the SSD.", "cache.engine.ssd_read_bytes"),
    ("ssd_write_bytes_total", "counter", "Bytes written to the SSD.", "cache.engine.ssd_write_bytes"),
    (
        "fetched_ahead_bytes_total",
        "counter",
        "Bytes read from sources that nobody asked for.",
        "cache.engine.fetched_ahead_bytes",
    ),
    ("evictions_total", "counter", "Lines that gave way to others.", "cache.engine.evictions"),
    (
        "lines_refused_total",
        "counter",
        "Times that admission, its source's size or lines in use kept a line out, or the write budget its change.",
        "cache.engine.refused",
    ),
    (
        "file_evictions_total",
        "counter",
        "Files that gave way to others in the full file table.",
        "cache.engine.file_table.evictions",
    ),
    (
        "file_evicted_lines_total",
        "counter",
        "Lines that left with these files.",
        "cache.engine.file_table.evicted_lines",
    ),
    ("file_table_files", "gauge", "Files of which something can be cached.", "cache.engine.file_table.files"),
    ("file_table_files_max", "gauge", "Files that the file table has room for.", "cache.engine.file_table.files_max"),
    ("ssd_errors_total", "counter", "Requests that the SSD failed.", "cache.engine.ssd_errors"),
    (
        "uncompared_bytes",
        "gauge",
        "Bytes of files that others may have changed and that are not compared with the cache yet.",
        "cache.engine.uncompared_bytes",
    ),
    (
        "files_without_room",
        "gauge",
        "Open files that the cache's file table has no room for.",
        "cache.engine.files_without_room",
    ),
    (
        "ssd_given_up_total",
        "counter",
        "Times that the SSD was left because it failed.",
        "cache.attachment.times_given_up",
    ),
    ("ssd_next_try_seconds", "gauge", "Time until an SSD that failed is tried again.", "cache.attachment.next_try_s"),
    ("checksum_mismatches_total", "counter", "Units of the SSD with a wrong checksum.", "cache.engine.mismatches"),
)
_SSD_STATES = ("attached", "detached", "waiting")
_DURATION = "request_duration_seconds"


def exposition(snapshots: Sequence[Snapshot], names: Sequence[str], curves: Sequence[Curve] = ()) -> str:
    """Return the metrics of the caches `names`; `snapshots` are of those that answer. The unknown has no series."""
    caches, sources = spans([(snapshot, None) for snapshot in snapshots])
    lines = [*_lines(caches, sources, names), *_served(snapshots), *_curves(curves)]
    return "".join(f"{line}\n" for line in lines)


def _lines(caches: Sequence[Span], sources: Sequence[Span], names: Sequence[str]) -> Iterator[str]:
    up = {span.name for span in caches}
    yield from _head("up", "gauge", "Whether the daemon of the cache answers.")
    for name in names:
        yield _sample("up", (("cache", name),), 1 if name in up else 0)
    for name, kind, text, path in _OF_CACHES:
        yield from _head(name, kind, text)
        for span in caches:
            if (value := span.gauge(path)) is not None:
                yield _sample(name, (("cache", span.name),), value)
    yield from _ssd_states(caches)
    for name, kind, text, series in _OF_SOURCES:
        yield from _head(name, kind, text)
        for span in sources:
            for path, labels in series:
                if (value := span.gauge(path)) is not None:
                    yield _sample(name, (*_own(span), *labels), value)
    yield from _head(_DURATION, "histogram", "Latency of requests as applications wait for them, in seconds.")
    for span in sources:
        for device in ("cache", "source"):
            for op in ("read", "write"):
                yield from _histogram(span, f"iops.{device}.{op}s", (*_own(span), ("device", device), ("op", op)))


def _served(snapshots: Sequence[Snapshot]) -> Iterator[str]:
    yield from _head("source_served", "gauge", "Whether the source is served; 0: it could not be, see the status.")
    for snapshot in snapshots:
        served = dict.fromkeys(snapshot.sources(), 1)
        failed = {name: 0 for name, entry in snapshot.stopped() if entry.get("problem")}
        for name, value in (failed | served).items():
            yield _sample("source_served", (("cache", snapshot.cache), ("source", name)), value)


def _curves(curves: Sequence[Curve]) -> Iterator[str]:
    hits = "Estimated read hit ratio that an LRU cache of size_ratio times the present size would have had"
    sampled = "Reads of lines that the hit ratios are estimated from"
    for prefix, whose, is_of_source in (("curve", "", False), ("source_curve", ", for the source alone", True)):
        of_these = [curve for curve in curves if (curve.source is not None) == is_of_source]
        yield from _head(f"{prefix}_hit_ratio", "gauge", f"{hits}{whose}.")
        for of_curve in of_these:
            for point in of_curve.points:
                if point.hit_ratio is not None:
                    size = ("size_ratio", f"{point.size_ratio:.4g}")
                    yield _sample(f"{prefix}_hit_ratio", (*_whose(of_curve), size), point.hit_ratio)
        yield from _head(f"{prefix}_sampled_reads", "gauge", f"{sampled}{whose}.")
        for of_curve in of_these:
            yield _sample(f"{prefix}_sampled_reads", _whose(of_curve), of_curve.sampled)


def _whose(curve: Curve) -> _Labels:
    cache = ("cache", curve.cache)
    return (cache,) if curve.source is None else (cache, ("source", curve.source))


def _ssd_states(caches: Sequence[Span]) -> Iterator[str]:
    yield from _head("ssd_state", "gauge", "1 for the state of the SSD; one that failed is waiting for its next try.")
    for span in caches:
        if (state := span.text("cache.attachment.state")) is not None:
            for one in _SSD_STATES:
                yield _sample("ssd_state", (("cache", span.name), ("state", one)), int(state == one))


def _own(span: Span) -> _Labels:
    return (("cache", span.cache), ("source", span.name))


def _histogram(span: Span, path: str, labels: _Labels) -> Iterator[str]:
    """Yield a histogram; none where the daemon does not measure these latencies."""
    requests, total_ns = span.gauge(f"{path}.requests"), latency_total_ns(span.now, path)
    if requests is None or total_ns is None:
        return
    for upper_ns, count in latency_buckets(span.now, path):
        yield _sample(f"{_DURATION}_bucket", (*labels, ("le", f"{upper_ns / 1e9:.12g}")), count)
    yield _sample(f"{_DURATION}_bucket", (*labels, ("le", "+Inf")), requests)
    yield _sample(f"{_DURATION}_sum", labels, total_ns / 1e9)
    yield _sample(f"{_DURATION}_count", labels, requests)


def _head(name: str, kind: str, text: str) -> Iterator[str]:
    yield f"# HELP bathy_cache_{name} {text}"
    yield f"# TYPE bathy_cache_{name} {kind}"


def _sample(name: str, labels: _Labels, value: float) -> str:
    inside = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels)
    return f"bathy_cache_{name}{{{inside}}} {int(value) if float(value).is_integer() else repr(float(value))}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
