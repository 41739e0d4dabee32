"""Perf counters of the OSDs, before and after a step → what each counted during it.

`perf schema` tells counters from gauges and is asked once a run; without it the few rules below decide. Names and
sections differ between releases (16.2 has 31 sections, 20.2 others), so nothing is required to exist. A daemon
whose counters went backwards was restarted in between: its differences mean nothing and it yields no rows;
`restarted` names it, so that the step can say so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from bathyscope.host import CephRequest
from bathyscope.records import PerfCounter
from bathyscope.sources.base import RawAnswer
from bathyscope.sources.fields import as_dict, as_float, as_int, parsing

_DUMP = "perf_dump-"
_SCHEMA = "perf_schema-"

# Bits of the schema's `type` (ceph: enum perfcounter_type_d).
_U64, _LONGRUNAVG, _COUNTER, _HISTOGRAM = 2, 4, 8, 16

# Without a schema: sections and names that hold a state, not a count.
_GAUGE_SECTIONS = ("mempool", "bluestore-pricache", "cct")
_GAUGE_PREFIXES = (
    *(
        "numpg",
        "stat_bytes",
        "loadavg",
        "heartbeat_",
        "onodes",
        "num_",
        "log_bytes",
        "map_epoch",
        "db_",
        "wal_",
        "slow_",
    ),
    *("bluestore_allocated", "bluestore_stored", "bluestore_compressed", "bluestore_fragmentation", "bluestore_blobs"),
    *(
        "bluestore_onodes",
        "bluestore_pinned",
        "allocated",
        "stored",
        "buffers",
        "buffer_bytes",
        "bluestore_extents",
        "bluestore_buffers",
        "bluestore_buffer_bytes",
    ),
)
_GAUGE_SUFFIXES = ("_wip", "_total_bytes", "_used_bytes", "_buffers", "alloc_unit", "onode_blobs", "onode_extents")

# The schemas up to 20.2 call these counters, but they go down: open connections, and mClock's queue lengths.
_MISTAKEN_SUFFIXES = ("msgr_active_connections", "_queue_len")

# section → name → kind
Schema = Mapping[str, Mapping[str, str]]


def plan(osds: Iterable[int]) -> list[CephRequest]:
    """Return the requests for the counters of `osds`."""
    return [CephRequest(f"{_DUMP}osd.{i}", f"osd.{i}", (("prefix", "perf dump"), ("format", "json"))) for i in osds]


def plan_schema(osds: Sequence[int]) -> list[CephRequest]:
    """Return the request that tells counters from gauges; one OSD speaks for all of its release."""
    words = (("prefix", "perf schema"), ("format", "json"))
    return [CephRequest(f"{_SCHEMA}osd.{osd}", f"osd.{osd}", words) for osd in osds[:1]]


def parse_schema(answers: Sequence[RawAnswer]) -> Schema:
    """Return the kinds of the counters; empty when no OSD answered. Raises ParseError."""
    kinds: dict[str, dict[str, str]] = {}
    for answer in answers:
        if answer.exit_code != 0:
            continue
        value = answer.json()
        with parsing(answer.label):
            for section, entries in as_dict(value).items():
                for name, entry in as_dict(entries).items():
                    kinds.setdefault(section, {})[name] = _kind_of_type(as_int(as_dict(entry)["type"]))
    return kinds


def _kind_of_type(bits: int) -> str:
    if bits & _HISTOGRAM:
        return "histogram"
    if bits & _LONGRUNAVG:
        return "average"
    # A time without the counter bit is a running total as well (msgr_running_total_time).
    return "gauge" if bits & _U64 and not bits & _COUNTER else "counter"


def parse(
    run_id: str,
    step_index: int,
    before: Sequence[RawAnswer],
    after: Sequence[RawAnswer],
    schema: Schema | None = None,
) -> list[PerfCounter]:
    """Return a row for each counter that changed, and for each gauge that is not zero. Raises ParseError."""
    old, rows = _dumps(before), []
    for daemon, dump in _dumps(after).items():
        if daemon not in old or _went_back(old[daemon], dump):
            continue
        with parsing(f"perf dump of {daemon}"):
            for section, name, value in _counters(dump):
                kind = _kind(section, name, value, schema or {})
                earlier = as_dict(old[daemon].get(section, {})).get(name)
                difference = _difference(kind, earlier, value)
                if difference is not None:
                    rows.append(PerfCounter(run_id, step_index, daemon, section, name, kind, *difference))
    return rows


def restarted(before: Sequence[RawAnswer], after: Sequence[RawAnswer]) -> list[str]:
    """Return the daemons whose counters went backwards, or that no longer answer. Raises ParseError."""
    old, new = _dumps(before), _dumps(after)
    return sorted(daemon for daemon in old if daemon not in new or _went_back(old[daemon], new[daemon]))


def _dumps(answers: Sequence[RawAnswer]) -> dict[str, dict[str, Any]]:
    """Return the dump of each daemon that answered."""
    dumps = {}
    for answer in answers:
        if answer.exit_code == 0 and answer.label.startswith(_DUMP):
            value = answer.json()
            with parsing(answer.label):
                dumps[answer.label.removeprefix(_DUMP)] = as_dict(value)
    return dumps


def _went_back(old: dict[str, Any], new: dict[str, Any]) -> bool:
    """Whether the messenger or the OSD has counted less than before: the surest sign of a restart."""
    pairs = (("AsyncMessenger::Worker-0", "msgr_recv_messages"), ("osd", "op"))
    with parsing("perf dump"):
        for section, name in pairs:
            earlier, later = as_dict(old.get(section, {})).get(name), as_dict(new.get(section, {})).get(name)
            if isinstance(earlier, int | float) and isinstance(later, int | float) and later < earlier:
                return True
    return False


def _counters(dump: dict[str, Any]) -> Iterator[tuple[str, str, Any]]:
    for section, entries in dump.items():
        for name, value in as_dict(entries).items():
            yield section, name, value


def _kind(section: str, name: str, value: Any, schema: Schema) -> str:
    """Return the kind by the schema, else by the shape and the name."""
    known = schema.get(section, {}).get(name)
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


def _difference(kind: str, earlier: Any, value: Any) -> tuple[float, int | None] | None:
    """Return (delta, count) for a row, or None when there is nothing to say."""
    if kind == "histogram" or (kind == "average") != isinstance(value, dict):
        return None
    if kind == "gauge":
        level = as_float(value)
        return (level, None) if level != 0 else None
    if kind == "average":
        start = as_dict(earlier) if earlier is not None else {"avgcount": 0, "sum": 0}
        count = as_int(value["avgcount"]) - as_int(start["avgcount"])
        return (as_float(value["sum"]) - as_float(start["sum"]), count) if count != 0 else None
    delta = as_float(value) - as_float(earlier if earlier is not None else 0)
    return (delta, None) if delta != 0 else None
