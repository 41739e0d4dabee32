"""What every pool of the cluster does, and how long its operations wait: whom a load shares the cluster with.

`df detail` counts the reads and writes of each pool since the pool was made. The manager sums them up from the
statistics that the OSDs send for their placement groups, so one answer holds some hundred bytes for each pool, however
many placement groups there are. An OSD sends its statistics every `mgr_stats_period` (5 s), the manager passes them to
the monitors every `mgr_tick_period` (2 s): each counter is a staircase that is some seconds late, and only a rate over
several periods is exact. `analysis.tenants` makes rates of it. Operations that fail are not counted.

`dump_ops_in_flight` names every operation that an OSD works on at that moment, with its pool and its age. It is the
only place where Ceph says how long the operations of *one* pool wait, at once and for every kind of client: `osd perf`
and the perf counters join all clients in one mean, most of which is the load's own. It needs the cap `osd 'allow *'`.
It does not see the network, the client, or messages that wait in the OSD's throttle before they become operations
(osd_client_message_cap, osd_client_message_size_cap); with osd_enable_op_tracker off it sees nothing. Operations
shorter than the pause between two looks are a sample, in which long ones are met more often. The age of an operation
is less than its latency will be: on average half of it where all are equal, all of it where they are exponential.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from bathyscope.fields import as_dict, as_float, as_int, as_list, parsing
from bathyscope.host import Request
from bathyscope.records import PoolIo, PoolWait, RawAnswer, Record, Tables
from bathyscope.sources.shape import Columns, Source, ask, spread, tell
from bathyscope.spec.scope import Scope

_DF, _IN_FLIGHT = "df", "ops_in_flight"
# An operation is some 2 KB of JSON, and a loaded OSD has tens of them.
_ASKED_MAX = 32
# An OSD that hangs must not keep the answers of the others: those of its peers show what it does to its clients.
_OSD_TIMEOUT_S = 1.5
# The primary's side of a client's operation: osd_op(client.4157.0:22968 2.1f …). Replicas hold osd_repop(…).
_OP = re.compile(r"osd_op\(\S+ (\d+)\.")
_COUNTERS = ("rd", "wr", "rd_bytes", "wr_bytes")

# What a pool has counted since it was made: reads, writes, bytes read, bytes written.
_Counted = tuple[int, ...]


class PoolsOfTenants:
    """`df detail`, and `dump_ops_in_flight` of the OSDs that are asked, at most _ASKED_MAX of them."""

    name = "tenants"
    records: tuple[type[Record], ...] = (PoolIo, PoolWait)
    period_s = 1.0
    timeout_s = 5.0
    differences = True

    def plan(self, scope: Scope) -> Sequence[Request]:
        """Return the requests of one look."""
        if scope.target.kind == "disk":
            return []
        osds = spread(scope.asked_osds, _ASKED_MAX)
        return [
            ask(_DF, "mon", "df", self.timeout_s, detail="detail"),
            *(tell(_IN_FLIGHT, osd, "dump_ops_in_flight", _OSD_TIMEOUT_S) for osd in osds),
        ]

    def parse(self, answers: Sequence[RawAnswer], scope: Scope) -> Tables:
        """Return the I/O between consecutive looks, and the operations in flight at each look that an OSD answered."""
        our_pools = frozenset(scope.own_pools or ())
        now = {number: name for name, number in scope.pools.items()}
        names = dict(now)
        counted: list[tuple[int, dict[int, _Counted]]] = []
        waits = Columns(PoolWait)
        for look in _looks(answers):
            at_ns = look[0].ended_ns
            for answer in look:
                if answer.label == _DF and answer.exit_code == 0:
                    with parsing("df detail"):
                        pools = as_list(as_dict(answer.json())["pools"])
                        now = {as_int(pool["id"]): str(pool["name"]) for pool in pools}
                        names |= now
                        counted.append((at_ns, {as_int(pool["id"]): _counted(as_dict(pool)) for pool in pools}))
            _add_waits(waits, look, at_ns, now, our_pools)
        return {PoolIo: _io(counted, names, our_pools), PoolWait: waits.table()}


SOURCE: Source = PoolsOfTenants()


def _looks(answers: Sequence[RawAnswer]) -> Iterator[list[RawAnswer]]:
    """Yield the answers of each look: it begins with that of `df`."""
    look: list[RawAnswer] = []
    for answer in answers:
        if answer.label == _DF and look:
            yield look
            look = []
        look.append(answer)
    if look:
        yield look


def _counted(pool: Mapping[str, Any]) -> _Counted:
    stats = as_dict(pool["stats"])
    return tuple(as_int(stats[name]) for name in _COUNTERS)


def _io(
    counted: Sequence[tuple[int, dict[int, _Counted]]], names: Mapping[int, str], our_pools: frozenset[str]
) -> pa.Table:
    """Return a row for each interval and pool, of the pools that did I/O in any of them.

    After a failover the manager's sums begin at 0 and come back as the OSDs report: what is below the greatest value
    so far is not new.
    """
    most: dict[int, _Counted] = {}
    grown: dict[int, list[tuple[int, int, _Counted]]] = defaultdict(list)
    last_ns = None
    for at_ns, pools in counted:
        for pool, now in pools.items():
            before = most.get(pool, now)
            if pool in most and last_ns is not None and at_ns > last_ns:
                growth = tuple(max(0, new - old) for new, old in zip(now, before, strict=True))
                grown[pool].append((at_ns, at_ns - last_ns, growth))
            most[pool] = tuple(map(max, now, before))
        last_ns = at_ns
    columns = Columns(PoolIo)
    for pool, intervals in grown.items():
        name = names[pool]
        if name not in our_pools and not any(any(growth) for _, _, growth in intervals):
            continue
        for at_ns, duration_ns, (reads, writes, read_bytes, write_bytes) in intervals:
            columns.add(
                at_ns=at_ns,
                duration_ns=duration_ns,
                pool_id=pool,
                pool=name,
                own=name in our_pools,
                read_count=reads,
                write_count=writes,
                read_bytes=read_bytes,
                write_bytes=write_bytes,
            )
    return columns.table()


def _age_ns(age: Any) -> int:
    """Return an age in ns. Of an operation that began a moment after the OSD read its clock it is just below 2³² s."""
    seconds = as_float(age)
    return 0 if seconds >= 2**31 else round(seconds * 1e9)


def _add_waits(
    columns: Columns, look: Sequence[RawAnswer], at_ns: int, names: Mapping[int, str], own: frozenset[str]
) -> None:
    """Add a row for each of our own pools and each pool with operations in flight; none when no OSD answered."""
    ages_ns: dict[int, list[int]] = {pool: [] for pool in names}
    osd_count = 0
    for answer in look:
        if answer.exit_code != 0 or not answer.label.startswith(f"{_IN_FLIGHT}-"):
            continue
        with parsing(answer.label):
            ops = as_list(as_dict(answer.json())["ops"])
            osd_count += 1
            for op in ops:
                match = _OP.match(str(op["description"]))
                if match is not None:
                    ages_ns.setdefault(int(match[1]), []).append(_age_ns(op["age"]))
    for pool, ages in ages_ns.items() if osd_count else ():
        # What is in flight in a pool that is not there (any more) is nobody's: it may have been ours.
        name = names.get(pool)
        if name is None or (not ages and name not in own):
            continue
        columns.add(
            at_ns=at_ns,
            pool_id=pool,
            pool=name,
            own=name in own,
            osd_count=osd_count,
            op_count=len(ages),
            wait_ns_sum=sum(ages),
            wait_ns_max=max(ages, default=0),
        )
