"""What the module bathyscope of the manager counts → who did I/O between one look and the next.

The module (host/mgr_module.py) hands out running totals by key: client and image, OSD and pool, OSD and zone of an
image. A row is what a key counted between two consecutive good looks:

- A key that was there before counted the difference.
- A key that was not there before, or was made anew since (it was idle for ten minutes and forgotten), or has less than
  before, counted its whole total.
- After a restart of the module (another manager took over, a manager was started again) every key is new. What was
  counted between the last look and the end of the old module is lost.
- The first look makes no rows.

The OSDs report every mgr_stats_period, each at a moment of its own, and the module collects that as often. `at_ns` is
when it last did so: a row may lack the last period of some OSDs, which the next row has. A module that was not asked
for two minutes has removed its queries; an interval begins no earlier than they were registered again. From then on the
OSDs need some seconds to begin, above all with a manager that they have yet to find. `uncounted` has these spans.

Beyond 20,000 keys the module counts new ones together. Of images that is a row of the pool "(other)", without an image
and a client; of OSDs it is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from bathyscope.fields import as_dict, as_float, as_int, as_list, parsing
from bathyscope.host import Request, mgr_install
from bathyscope.records import ImageIo, OsdIo, RawAnswer, Record, Tables, Uncounted, ZoneIo
from bathyscope.sources.shape import Columns, Source, ask
from bathyscope.spec.scope import Scope

MODULE = mgr_install.MODULE
_COUNTERS = "mgr_counters"
_OTHER_POOL = "(other)"
_TOTALS = (
    *("write_count", "read_count", "write_bytes", "read_bytes"),
    *("write_latency_ns_sum", "read_latency_ns_sum"),
)
# Ages are rounded to milliseconds, on both sides.
_SAME_S = 0.01
_OBJECT_DIGITS = 16
# After they were asked to count.
_BEGIN_NS = 5_000_000_000
# The module forgets its queries when nobody has asked for two minutes.
_LAPSE_NS = 100_000_000_000
_NUMBER_MAX = 2**63 - 1

# Key → (when it was made on the module's clock, totals).
_Counted = dict[tuple[Any, ...], tuple[float, tuple[int, ...]]]


def may_count(scope: Scope) -> bool:
    """Return whether the module is enabled, and not known as one by which a tenant can end the manager."""
    version = scope.mgr_module_version
    return MODULE in scope.mgr_modules and (version is None or mgr_install.is_safe(version))


class _Look:
    """One answer of the module: times on this machine's clock, totals by query and key."""

    def __init__(self, answer: RawAnswer) -> None:
        said = as_dict(answer.json())
        clock_s = as_float(said["clock_s"])
        self.instance = str(said["instance"])
        self.at_ns = answer.ended_ns - _ns(said["at_age_s"])
        self.registered_ns: dict[str, int] = {}
        self.counted: dict[str, _Counted] = {}
        for name, query in as_dict(said["queries"]).items():
            self.registered_ns[name] = answer.ended_ns - _ns(as_dict(query)["registered_age_s"])
            self.counted[name] = {}
            for row in map(as_list, as_list(query["rows"])):
                totals = tuple(as_int(value) for value in row[-len(_TOTALS) :])
                *key, age_s = row[: -len(_TOTALS)]
                self.counted[name][tuple(key)] = clock_s - as_float(age_s), totals

    def uncounted(self, before: _Look | None) -> dict[str, Any] | None:
        """Return the span before this look in which the OSDs did not count for the module, or None."""
        asked_ns = min(self.registered_ns.values(), default=self.at_ns)
        lapsed = before is not None and asked_ns - before.at_ns > _LAPSE_NS
        if before is None or (before.instance == self.instance and not lapsed):
            began_ns, reason = asked_ns, "OSDs begin some seconds after they are asked to count"
            is_gap = asked_ns + _BEGIN_NS > self.at_ns
        elif before.instance != self.instance:
            began_ns, reason, is_gap = before.at_ns, "another manager took over, or it was started again", True
        else:
            began_ns, reason, is_gap = before.at_ns, "nobody had asked for two minutes", True
        ends_ns = asked_ns + _BEGIN_NS
        return {"at_ns": ends_ns, "duration_ns": ends_ns - began_ns, "reason": reason} if is_gap else None

    def since(self, before: _Look, name: str) -> Iterator[tuple[tuple[Any, ...], dict[str, int]]]:
        """Yield (key, what it counted) of a query since an earlier look."""
        counted_before = before.counted.get(name, {}) if before.instance == self.instance else {}
        for key, (made_s, totals) in self.counted[name].items():
            old_s, old = counted_before.get(key, (made_s, ()))
            if old and abs(made_s - old_s) < _SAME_S and all(a >= b for a, b in zip(totals, old, strict=True)):
                counted = [a - b for a, b in zip(totals, old, strict=True)]
            else:
                counted = list(totals)
            if any(counted):
                yield key, dict(zip(_TOTALS, counted, strict=True))


class MgrCounters:
    """`bathyscope counters` of the manager, where the module may be made to count."""

    name = "mgr_counters"
    records: tuple[type[Record], ...] = (ImageIo, OsdIo, ZoneIo, Uncounted)
    period_s = 5.0
    timeout_s = 10.0
    differences = True

    def plan(self, scope: Scope) -> Sequence[Request]:
        """Return the request, after the one to count the objects of the scope's images; none without the module.

        The module counts zones for a minute after it was last asked to. Where an image has more busy ones than it
        counts, it makes them larger by itself.
        """
        if not may_count(scope):
            return []
        counters = ask(_COUNTERS, "mgr", "bathyscope counters", self.timeout_s)
        if not scope.zoomed_images:
            return [counters]
        images = ",".join(scope.zoomed_images)
        return [
            ask("zoom", "mgr", "bathyscope zoom", self.timeout_s, images=images, digits=scope.zoom_digits),
            counters,
        ]

    def parse(self, answers: Sequence[RawAnswer], scope: Scope) -> Tables:
        """Return a row for each key that counted anything between two looks."""
        pools = {number: name for name, number in scope.pools.items()}
        tables = {name: Columns(record) for name, (record, _) in _QUERIES.items()}
        uncounted = Columns(Uncounted)
        before: _Look | None = None
        for answer in answers:
            if answer.label != _COUNTERS or answer.exit_code != 0:
                continue
            with parsing(_COUNTERS):
                look = _Look(answer)
                if span := look.uncounted(before):
                    uncounted.add(source=self.name, **span)
                for name, (_, about) in _QUERIES.items():
                    if before is not None and name in look.counted:
                        began_ns = max(before.at_ns, look.registered_ns[name])
                        for key, counted in look.since(before, name) if began_ns < look.at_ns else ():
                            if place := about(key, pools):
                                times = {"at_ns": look.at_ns, "duration_ns": look.at_ns - began_ns}
                                tables[name].add(**times, **place, **counted)
                before = look
        counted_tables = {record: tables[name].table() for name, (record, _) in _QUERIES.items()}
        return {**counted_tables, Uncounted: uncounted.table()}


SOURCE: Source = MgrCounters()


def _ns(age_s: Any) -> int:
    return round(as_float(age_s) * 1e9)


def _pool(number: Any, pools: dict[int, str]) -> str:
    return pools.get(as_int(number), str(as_int(number)))


def _image(key: tuple[Any, ...], pools: dict[int, str]) -> dict[str, Any]:
    client, address, data_pool, namespace, header_pool, image_id = key
    about = {"image": None, "image_id": image_id or None, "client_address": address or None}
    if not image_id:
        return {"pool": _OTHER_POOL, "namespace": "", "client": None, **about}
    pool = _pool(header_pool if as_int(header_pool) >= 0 else data_pool, pools)
    return {"pool": pool, "namespace": str(namespace), "client": str(client), **about}


def _osd(key: tuple[Any, ...], pools: dict[int, str]) -> dict[str, Any]:
    osd, pool = key
    return {"osd": as_int(osd), "pool": _pool(pool, pools)} if as_int(osd) >= 0 else {}


def _zone(key: tuple[Any, ...], pools: dict[int, str]) -> dict[str, Any]:
    pool, image_id, osd, digits = key
    object_count = 16 ** (_OBJECT_DIGITS - len(digits))
    first = int(digits, 16) * object_count
    if first > _NUMBER_MAX:
        # No image is that large: somebody gave an object such a name.
        return {}
    about = {"pool": _pool(pool, pools), "image_id": str(image_id), "osd": as_int(osd)}
    return {**about, "first_object": first, "object_count": object_count}


_About = Callable[[tuple[Any, ...], dict[int, str]], dict[str, Any]]
# Query of the module → the record of its rows, and what a key says of them.
_QUERIES: dict[str, tuple[type[Record], _About]] = {
    "image_client": (ImageIo, _image),
    "osd_pool": (OsdIo, _osd),
    "zones": (ZoneIo, _zone),
}
