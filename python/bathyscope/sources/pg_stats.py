"""What every placement group did between one look and the next: `pg dump pgs`, which costs the OSDs nothing.

The OSDs send the statistics of their placement groups to the manager anyway, every `mgr_stats_period` (5 s): each
counter is a staircase that is up to as much late. Reads and writes are counted where they were done, also those that an
erasure-coded pool serves; operations that fail are not. Of a message that does several things each counts: a write to a
clone asks first whether its object is there (a read), and when it copies the object before, it is two writes.

A group's counters are those of its objects, not of a daemon:
they outlive restarts and move with the group. When a group is split, its children get a share of what it has counted:
of a family only the sum says what is new, and it is put down to the parent; so it is when groups are merged. After a
failover the manager knows nothing of a group until its primary reports ("unknown"); what it had counted before is not
new then.

An OSD that fails takes with it what it had not yet stored of the counters: reads above all, which store nothing. Where
a counter of a group is smaller than before, how far it went on is not known; the others count, and it is said
(`Uncounted`).

An answer has some 2.5 kB for each group. It is read group by group, so that of a large cluster only one is in memory.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Any

from bathyscope.errors import ParseError
from bathyscope.fields import as_dict, as_int, as_list, load_json, parsing
from bathyscope.host import Request
from bathyscope.records import PgIo, RawAnswer, Record, Tables, Uncounted
from bathyscope.sources.shape import Columns, Source, ask
from bathyscope.spec.scope import Scope

_DUMP = "pg_dump"
_COUNTERS = ("num_read", "num_write", "num_read_kb", "num_write_kb")
# Decoded at a time, and what is always there ahead: many times a group, as an object takes forty times its text.
_PIECE_BYTES = 2 << 20
_GROUP_BYTES = 1 << 20
_FIRST = re.compile(rb'\{\s*"pgid"')
_NEXT = re.compile(r"\s*([],])\s*")

# What a group has counted since it was made: reads, writes, KiB read, KiB written.
_Counted = tuple[int, ...]


class PgStats:
    """`pg dump pgs`: one look at all placement groups."""

    name = "pg_stats"
    records: tuple[type[Record], ...] = (PgIo, Uncounted)
    period_s = 10.0
    timeout_s = 60.0
    differences = True

    def plan(self, scope: Scope) -> Sequence[Request]:
        """Return the one request."""
        if scope.target.kind == "disk":
            return []
        return [ask(_DUMP, "mgr", "pg dump", self.timeout_s, dumpcontents=["pgs"])]

    def parse(self, answers: Sequence[RawAnswer], scope: Scope) -> Tables:
        """Return a row for each group that counted something between two looks."""
        columns, uncounted = Columns(PgIo), Columns(Uncounted)
        names = {number: name for name, number in scope.pools.items()}
        # Group → its counters when it was last known, and when that was.
        last: dict[str, tuple[int, _Counted]] = {}
        listed: set[str] = set()
        # Children of a split that are listed and not yet known.
        unborn: set[str] = set()
        for answer in answers:
            if answer.label != _DUMP or answer.exit_code != 0:
                continue
            at_ns = answer.ended_ns
            totals: dict[str, tuple[_Counted, dict[str, Any]]] = {}
            now_listed = set()
            for group in groups(answer):
                with parsing(_DUMP):
                    now_listed.add(str(group["pgid"]))
                    if "unknown" not in str(group["state"]):
                        totals[str(group["pgid"])] = _counted(group), _about(group, names)
            # Only what the look before did not list at all is new: one that was unknown then has counted before.
            unborn = (unborn | (now_listed - listed if listed else set())) & now_listed
            born = _families(totals.keys() & unborn, last)
            unborn -= totals.keys()
            # Their parents' counters are smaller by theirs: the family waits for them.
            waiting = _families(unborn, last).keys()
            gone = _families(last.keys() - now_listed, totals)
            # When the groups were looked at before whose counters are smaller now.
            smaller_ns: list[int] = []
            for pg, (now, about) in totals.items():
                if pg in waiting:
                    continue
                before_ns, before = last.get(pg, (0, now))
                after = [now, *(totals[child][0] for child in born.get(pg, ()))]
                earlier = [before, *(last[child][1] for child in gone.get(pg, ()))]
                grown = tuple(a - b for a, b in zip(_sum(after), _sum(earlier), strict=True))
                if not at_ns > before_ns > 0:
                    continue
                if min(grown) < 0:
                    smaller_ns.append(before_ns)
                if max(grown) > 0:
                    columns.add(at_ns=at_ns, duration_ns=at_ns - before_ns, pg=pg, **about, **_values(grown))
            if smaller_ns:
                what = "a placement group" if len(smaller_ns) == 1 else f"{len(smaller_ns)} placement groups"
                uncounted.add(
                    at_ns=at_ns,
                    duration_ns=at_ns - min(smaller_ns),
                    source=self.name,
                    reason=f"counters of {what} are smaller than before, as after a failure of the OSD; what they lost "
                    "is not known",
                )
            last = {pg: entry for pg, entry in last.items() if pg in now_listed}
            last |= {pg: (at_ns, now) for pg, (now, _) in totals.items() if pg not in waiting}
            listed = now_listed
        return {PgIo: columns.table(), Uncounted: uncounted.table()}


SOURCE: Source = PgStats()


def _about(group: dict[str, Any], names: dict[int, str]) -> dict[str, Any]:
    pool = as_int(str(group["pgid"]).partition(".")[0])
    return {
        "pool": names.get(pool, str(pool)),
        "osd": as_int(group["acting_primary"]),
        "acting": " ".join(map(str, acting(group))),
    }


def acting(group: dict[str, Any]) -> list[int]:
    """Return the OSDs that hold a group, the primary first. Raises what reading foreign values raises."""
    primary = as_int(group["acting_primary"])
    others = [osd for osd in map(as_int, as_list(group["acting"])) if osd != primary and osd < _NO_OSD]
    return [primary, *others]


def _values(grown: _Counted) -> dict[str, int]:
    reads, writes, read_kib, write_kib = (max(0, each) for each in grown)
    return {
        "read_count": reads,
        "write_count": writes,
        "read_bytes": read_kib * 1024,
        "write_bytes": write_kib * 1024,
    }


def _sum(counted: Sequence[_Counted]) -> _Counted:
    return tuple(map(sum, zip(*counted, strict=True)))


def _families(children: Iterable[str], parents: Container[str]) -> dict[str, list[str]]:
    """Return parent → its children, of those that have one."""
    families: dict[str, list[str]] = {}
    for child in children:
        if (parent := _parent(child, parents)) is not None:
            families.setdefault(parent, []).append(child)
    return families


def _parent(pg: str, parents: Container[str]) -> str | None:
    """Return the group that a new one was split from: its number without the highest bits; None for a new pool's."""
    pool, _, number = pg.partition(".")
    seed = int(number, 16)
    while seed:
        seed ^= 1 << (seed.bit_length() - 1)
        if (parent := f"{pool}.{seed:x}") in parents:
            return parent
    return None


# CRUSH's word for a place that no OSD has.
_NO_OSD = 0x7FFFFFFF


def _counted(group: dict[str, Any]) -> _Counted:
    stats = as_dict(group["stat_sum"])
    return tuple(as_int(stats[name]) for name in _COUNTERS)


def groups(answer: RawAnswer) -> Iterator[dict[str, Any]]:
    """Yield the groups of an answer: a list (14.2), or an object that holds it. Raises ParseError."""
    first = _FIRST.search(answer.stdout)
    if first is None:
        # No group at all is an answer; anything else is none.
        with parsing(_DUMP):
            value = load_json(answer.stdout)
            as_list(value if isinstance(value, list) else as_dict(value)["pg_stats"])
        return
    decoder, characters = json.JSONDecoder(), codecs.getincrementaldecoder("utf-8")("replace")
    text, at, read = "", 0, first.start()
    while True:
        if len(text) - at < _GROUP_BYTES and read < len(answer.stdout):
            text, at = text[at:] + characters.decode(answer.stdout[read : read + _PIECE_BYTES]), 0
            read += _PIECE_BYTES
        with parsing(_DUMP):
            group, at = decoder.raw_decode(text, at)
            yield as_dict(group)
        after = _NEXT.match(text, at)
        if after is None:
            raise ParseError(f"{_DUMP} is cut off")
        if after[1] == "]":
            return
        at = after.end()
