"""Perf counters of the OSDs → what each counted between one look and the next.

`perf schema` says which are counters and which are gauges (the scope has it, `kinds`); without it the few rules below
decide. Names and sections differ between releases (16.2 has 31 sections, 20.2 others), so nothing is required to exist.
A daemon whose counters went backwards was restarted in between: that interval yields no rows, and `restarted` names the
daemon. One that did not answer for a while has one longer interval.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bathyscope.fields import as_dict, as_float, as_int, parsing
from bathyscope.host import Request
from bathyscope.records import PerfCounter, RawAnswer, Record, Tables
from bathyscope.sources.shape import Columns, Source, intervals, tell
from bathyscope.spec.scope import Scope

_DUMP = "perf_dump"

# Bits of the schema's `type` (ceph: enum perfcounter_type_d).
_U64, _LONGRUNAVG, _COUNTER, _HISTOGRAM = 2, 4, 8, 16

# Without a schema: sections and names that hold a state, not a count.
_GAUGE_SECTIONS = ("mempool", "bluestore-pricache", "cct")
_GAUGE_PREFIXES = (
    *("numpg", "stat_bytes", "loadavg", "heartbeat_", "onodes", "num_", "log_bytes", "map_epoch"),
    *("db_", "wal_", "slow_"),
    *("bluestore_allocated", "bluestore_stored", "bluestore_compressed", "bluestore_fragmentation", "bluestore_blobs"),
    *("bluestore_onodes", "bluestore_pinned", "bluestore_extents", "bluestore_buffers", "bluestore_buffer_bytes"),
    *("allocated", "stored", "buffers", "buffer_bytes"),
)
_GAUGE_SUFFIXES = ("_wip", "_total_bytes", "_used_bytes", "_buffers", "alloc_unit", "onode_blobs", "onode_extents")

# The schemas up to 20.2 call these counters, but they go down: open connections, and mClock's queue lengths.
_MISTAKEN_SUFFIXES = ("msgr_active_connections", "_queue_len")

Dump = Mapping[str, Any]


class PerfCounters:
    """`perf dump` of the OSDs that are asked."""

    name = "perf_counters"
    records: tuple[type[Record], ...] = (PerfCounter,)
    period_s = 1.0
    timeout_s = 10.0
    differences = True

    def plan(self, scope: Scope) -> Sequence[Request]:
        """Return one request for each OSD."""
        return [tell(_DUMP, osd, "perf dump", self.timeout_s) for osd in scope.asked_osds]

    def parse(self, answers: Sequence[RawAnswer], scope: Scope) -> Tables:
        """Return a row for each counter that changed in an interval, and for each gauge that is or was not zero."""
        columns = Columns(PerfCounter)
        kinds = _Kinds(scope.counter_kinds)
        for daemon, (start_ns, old), (at_ns, new) in intervals(answers, _DUMP):
            if not _went_back(old, new):
                with parsing(f"perf dump of {daemon}"):
                    chosen = {name: new[name] for name in scope.counter_sections or new if name in new}
                    _add(columns, kinds, old, chosen, daemon=daemon, at_ns=at_ns, duration_ns=at_ns - start_ns)
        return {PerfCounter: columns.table()}


SOURCE: Source = PerfCounters()


def kinds(schema: Any) -> dict[str, dict[str, str]]:
    """Return section → counter → kind of what `perf schema` answered. Raises TypeError, KeyError, ValueError."""
    return {
        section: {name: _kind_of_type(as_int(as_dict(entry)["type"])) for name, entry in as_dict(entries).items()}
        for section, entries in as_dict(schema).items()
    }


def restarted(answers: Sequence[RawAnswer]) -> list[str]:
    """Return the daemons whose counters went backwards at some time. Raises ParseError."""
    return sorted({daemon for daemon, (_, old), (_, new) in intervals(answers, _DUMP) if _went_back(old, new)})


def _went_back(old: Dump, new: Dump) -> bool:
    """Whether anything that only grows while a daemon lives is less than before: it was restarted.

    All averages are looked at: which of the messenger's workers serves a connection is chance, so that a single one of
    its counters can be ahead of the old daemon's within seconds.
    """
    with parsing("perf dump"):
        earlier = as_dict(old.get("osd", {})).get("op")
        if isinstance(earlier, int) and as_int(as_dict(new.get("osd", {})).get("op", earlier)) < earlier:
            return True
        return any(
            isinstance(value, dict)
            and isinstance(before := as_dict(old.get(section, {})).get(name), dict)
            and value.get("avgcount", 0) < before.get("avgcount", 0)
            for section, entries in new.items()
            for name, value in as_dict(entries).items()
        )


def _add(columns: Columns, kinds: _Kinds, old: Dump, new: Dump, **about: Any) -> None:
    """Add the rows of one daemon's interval."""
    for section, entries in new.items():
        earlier = as_dict(old.get(section, {}))
        for name, value in as_dict(entries).items():
            before = earlier.get(name)
            # Most counters of a thousand OSDs rest, and gauges that are zero.
            if before is not None and value == before and (not value or kinds.of(section, name, value) != "gauge"):
                continue
            kind = kinds.of(section, name, value)
            if kind == "histogram" or (kind == "average") != isinstance(value, dict):
                continue
            level = delta = count = None
            if kind == "gauge":
                level = as_float(value)
                # Also when it has become zero: else a roll-up's last value would be the one before.
                changed = level != 0 or as_float(earlier.get(name, 0)) != 0
            elif kind == "average":
                start = as_dict(earlier.get(name, {"avgcount": 0, "sum": 0}))
                count = as_int(value["avgcount"]) - as_int(start["avgcount"])
                delta = as_float(value["sum"]) - as_float(start["sum"])
                changed = count != 0
            else:
                delta = as_float(value) - as_float(earlier.get(name, 0))
                changed = delta != 0
            if changed:
                columns.add(**about, section=section, name=name, kind=kind, delta=delta, count=count, value=level)


class _Kinds:
    """The kind of each counter: by the schema, else by the shape and the name. Each is looked up once."""

    def __init__(self, schema: Mapping[str, Mapping[str, str]]) -> None:
        self._schema = schema
        self._known: dict[tuple[str, str, bool], str] = {}

    def of(self, section: str, name: str, value: Any) -> str:
        key = section, name, isinstance(value, dict)
        if key not in self._known:
            self._known[key] = _kind(section, name, value, self._schema.get(section, {}).get(name))
        return self._known[key]


def _kind_of_type(bits: int) -> str:
    if bits & _HISTOGRAM:
        return "histogram"
    if bits & _LONGRUNAVG:
        return "average"
    # A time without the counter bit is a running total as well (msgr_running_total_time).
    return "gauge" if bits & _U64 and not bits & _COUNTER else "counter"


def _kind(section: str, name: str, value: Any, known: str | None) -> str:
    if known == "counter" and name.endswith(_MISTAKEN_SUFFIXES):
        return "gauge"
    if known is not None:
        return known
    if isinstance(value, dict):
        return "average" if "avgcount" in value else "histogram"
    if section.startswith(_GAUGE_SECTIONS) or (section.startswith("throttle-") and name in ("val", "max")):
        return "gauge"
    suffixes = (*_GAUGE_SUFFIXES, *_MISTAKEN_SUFFIXES)
    return "gauge" if name.startswith(_GAUGE_PREFIXES) or name.endswith(suffixes) else "counter"
