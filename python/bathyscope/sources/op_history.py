"""The OSDs' op history → where the time of each client operation went.

The history keeps the `osd_op_history_size` *slowest* ops of the last `osd_op_history_duration` seconds, so it is a
sample without bias only while it is not full. A benchmark raises both options for a step and restores them after; that
is a change of the cluster, which the caller journals.

Only the `time` of an event is used. Its `duration` means time-to-next on 16.2, time-since-previous later, and both
underflow (4294967295.99) because the messenger's stamps are not in order. Events and their order:

    16.2   initiated throttled header_read all_read dispatched queued_for_pg reached_pg started
           "waiting for subops from 1,2" op_commit sub_op_commit_rec … commit_sent done
    20.2   the same names; op_commit and sub_op_commit_rec come in either order on all

A read has no commit. `osd_repop` entries are the replicas' side of a write: they make no rows, but show
which replica was slow, which the primary's own events do not name when there are several.

Histories that are asked for again and again overlap. An op is one row, however many of them hold it, in the order in
which they were given: so a segment of a recording, whose first answers are the last of the one before, leaves out what
these hold (`differences`).
"""

from __future__ import annotations

import dataclasses
import datetime
import re
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from bathyscope.fields import as_dict, as_float, as_int, as_list, parsing
from bathyscope.host import CephRequest, Request
from bathyscope.records import Op, RawAnswer, Record, Tables
from bathyscope.sources.shape import Columns, Source, spread, tell
from bathyscope.spec.scope import Scope

OPTIONS = ("osd_op_history_size", "osd_op_history_duration")
# A thousand operations of one OSD are some 1.2 MB of JSON; those of a thousand OSDs would be another load.
ASKED_MAX = 32
# As many OSDs keep what a plan says; of more, each keeps less: a step of a large cluster takes no more room.
FULL_OSDS_MAX = 3
_DUMP = "op_history"
_TIMEOUT_S = 30.0
# Ceph's own default.
_OPS_MIN = 20

_EPOCH, _MICROSECOND = datetime.datetime.fromtimestamp(0, tz=datetime.UTC), datetime.timedelta(microseconds=1)
_OP = re.compile(r"osd_op\(((client\.\d+)\S*:\d+) (\d+)\.([0-9a-f]+)(?:s\d+)? (.*)\)$", re.DOTALL)
_REPOP = re.compile(r"osd_repop\((\S+) ")
_OBJECT = re.compile(r"(-?\d+):[0-9a-f]+:([^:]*):([^:]*):(.*):(head|snapdir|[0-9a-f]+)$", re.DOTALL)
# Where a string stands, its quotes are escaped: this matches names of values only.
_DURATION = re.compile(rb',\s*"duration":\s*[-+0-9.eE]+')
_EXTENT = re.compile(r"(\d+)~(\d+)")
_READS = ("read", "sparse-read", "sync_read")
_WRITES = ("write", "writefull", "writesame", "append", "zero", "truncate", "create", "delete")

# The events of an op in order of time: (ns since the epoch, name)
Events = list[tuple[int, str]]


class OpHistory:
    """`dump_historic_ops` of the OSDs that are asked, at most ASKED_MAX of them."""

    name = "op_history"
    records: tuple[type[Record], ...] = (Op,)
    period_s = 10.0
    timeout_s = _TIMEOUT_S
    differences = True

    def plan(self, scope: Scope) -> Sequence[Request]:
        """Return one request for each OSD."""
        return [tell(_DUMP, osd, "dump_historic_ops", self.timeout_s) for osd in asked(scope.asked_osds)]

    def parse(self, answers: Sequence[RawAnswer], scope: Scope) -> Tables:
        """Return the client ops of the histories, those of the scope's own pools when it names some."""
        pools = None if scope.own_pools is None else {scope.pools.get(name) for name in scope.own_pools}
        ops = _Ops(pools)
        for answer in answers:
            if answer.exit_code == 0 and answer.label.startswith(f"{_DUMP}-osd."):
                with parsing(answer.label):
                    osd = as_int(answer.label.removeprefix(f"{_DUMP}-osd."))
                    ops.add_history(osd, as_dict(answer.json()), answer.started_ns, scope.op_history_ops)
        return {Op: ops.table()}


SOURCE: Source = OpHistory()


def asked(osds: Sequence[int]) -> list[int]:
    """Return the OSDs whose history is asked for: all of `osds`, or ASKED_MAX evenly from many."""
    return spread(osds, ASKED_MAX)


def ops_each(ops: int, osds: int) -> int:
    """Return how many ops each of `osds` OSDs keeps, where a plan asks for `ops` of each."""
    return max(_OPS_MIN, min(ops, ops * FULL_OSDS_MAX // max(1, osds)))


def compact(answer: RawAnswer) -> RawAnswer:
    """Return a history without the durations of its ops and events, which are more than half of it; others as they are.

    They are differences of the times, whose meaning changed between releases, and are not read (see above).
    """
    head, ops, rest = answer.stdout.partition(b'"ops"')
    if not answer.label.startswith(f"{_DUMP}-osd.") or not ops:
        return answer
    return dataclasses.replace(answer, stdout=head + ops + _DURATION.sub(b"", rest))


def resize(osds: Iterable[int], size: int, duration_s: int) -> list[CephRequest]:
    """Return the requests that set how much history each OSD keeps. A change of the cluster: journal it first."""
    values = dict(zip(OPTIONS, (str(size), str(duration_s)), strict=True))
    return [
        tell(f"set_{option}", osd, "config set", _TIMEOUT_S, var=option, val=[value])
        for osd in osds
        for option, value in values.items()
    ]


class _Ops:
    """The ops of any number of histories, as columns."""

    def __init__(self, pools: set[int | None] | None) -> None:
        self._pools = pools
        self._columns = Columns(Op)
        # (osd, request of the client, start) → row. A request that was sent again is another op.
        self._rows: dict[tuple[int, str, int], int] = {}
        # Request of a client → replica → how long its part took.
        self._parts: dict[str, dict[int, int]] = {}
        # (row, request of the client, its replicas): the slowest replica is known once all histories are read.
        self._waits: list[tuple[int, str, tuple[int, ...]]] = []

    def add_history(self, osd: int, history: dict[str, Any], asked_ns: int, size: int | None) -> None:
        """Add one answer. `size` is the one that was set; an OSD that refused it or was restarted says less."""
        ops = as_list(history["ops"])
        own_size = as_int(history.get("size", 0))
        is_complete = len(ops) < (own_size if size is None else min(own_size, size))
        since_ns = _complete_since_ns(history, ops, asked_ns)
        for op in ops:
            description, data = str(op["description"]), op["type_data"]
            if description.startswith("osd_op("):
                match = _OP.match(description)
                if match is not None and (self._pools is None or int(match[3]) in self._pools):
                    self._add(osd, match, data, is_complete=is_complete, since_ns=since_ns)
            elif (match := _REPOP.match(description)) is not None:
                events = _events(data)
                if events:
                    sent = [at for at, name in events if name == "commit_sent"] or [events[-1][0]]
                    self._parts.setdefault(match[1], {})[osd] = sent[-1] - events[0][0]

    def _add(self, osd: int, match: re.Match[str], data: Any, *, is_complete: bool, since_ns: int) -> None:
        """Add a client op, unless another history of the OSD held it."""
        events = _events(data)
        if not events:
            return
        columns, row = self._columns, len(self._rows)
        known = self._rows.setdefault((osd, match[1], events[0][0]), row)
        if known != row:
            if is_complete and not columns["complete_sample"][known]:
                columns["complete_sample"][known], columns["complete_since_ns"][known] = True, since_ns
            return
        object_name, kind, offset, length = _target(match[5])
        queue, prepare, store, replica_wait, reply, peers = _stages(events, kind)
        if replica_wait and len(peers) > 1:
            self._waits.append((row, match[1], peers))
        address = data.get("client_info", {}).get("client_addr")
        columns.add(
            osd=osd,
            client=match[2],
            client_address=None if address is None else str(address).partition("/")[0],
            pool_id=as_int(match[3]),
            pg=f"{match[3]}.{match[4]}",
            object_name=object_name,
            op=kind,
            offset_bytes=offset,
            length_bytes=length,
            started_ns=events[0][0],
            duration_ns=events[-1][0] - events[0][0],
            queue_ns=queue,
            prepare_ns=prepare,
            store_ns=store,
            replica_wait_ns=replica_wait,
            reply_ns=reply,
            slowest_peer=peers[0] if replica_wait and len(peers) == 1 else None,
            complete_sample=is_complete,
            complete_since_ns=since_ns,
        )

    def table(self) -> pa.Table:
        """Return the ops, with the replica that each was waited for beyond the own commit, where it is known.

        With one replica it is that one. With several, the histories of all of them must hold their part of this
        write; their durations are compared, not their times, because clocks of hosts differ.
        """
        for row, request, peers in self._waits:
            parts = self._parts.get(request, {})
            if all(peer in parts for peer in peers):
                self._columns["slowest_peer"][row] = max(peers, key=parts.__getitem__)
        return self._columns.table()


def _complete_since_ns(history: dict[str, Any], ops: list[Any], asked_ns: int) -> int:
    """Return since when the history is whole, by the OSD's clock: its now less the configured duration."""
    now_ns = asked_ns
    if ops:
        last = as_dict(ops[-1])
        now_ns = _time_ns(str(last["initiated_at"])) + as_int(as_float(last["age"]) * 1e9)
    return now_ns - as_int(history.get("duration", 0)) * 1_000_000_000


def _events(data: Any) -> Events:
    """Return the events in order of time; the messenger's stamps are not."""
    return sorted((_time_ns(str(event["time"])), str(event["event"])) for event in as_list(data["events"]))


def _time_ns(text: str) -> int:
    """Return "2026-11-21T02:01:15.294531+0000" as ns since the epoch. Raises ValueError."""
    moment = datetime.datetime.fromisoformat(text)
    # Without an offset the OSD's time zone is not known; Ceph's own default is UTC.
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=datetime.UTC)
    return (moment - _EPOCH) // _MICROSECOND * 1000


def _target(rest: str) -> tuple[str | None, str, int | None, int | None]:
    """Return (object name, kind, offset of the first extent, length of all) from the end of a description.

    `rest` is "4:6e9dfd41:::NAME:head [write 679936~4096,…] snapc 0=[] ondisk+write+… e28"; before it is decoded
    "4.6e9dfd41 (undecoded) ondisk+read+… e28". An object's name may hold spaces and brackets.
    """
    flags = rest.rpartition("] ")[2]
    kind = "write" if "+write" in flags else "read" if "+read" in flags else "other"
    # A name may hold ":a [", which looks like a snapshot; so the usual end is looked for first.
    head = rest.rfind(":head [")
    place = head + len(":head [") if head >= 0 else -1
    if place < 0:
        snapshot = re.search(r":(?:snapdir|[0-9a-f]+) \[", rest)
        if snapshot is None:
            return None, kind, None, None
        place = snapshot.end()
    named = _OBJECT.match(rest[: place - 2])
    listed = rest[place:].partition("]")[0]
    verbs = [part.split(" ", 1)[0] for part in listed.split(",")]
    if any(verb in _WRITES for verb in verbs):
        kind = "write"
    elif any(verb in _READS for verb in verbs):
        kind = "read"
    else:
        kind = "other"
    extents = [(as_int(extent[1]), as_int(extent[2])) for extent in _EXTENT.finditer(listed)]
    offset = extents[0][0] if extents else None
    return named[4] if named else None, kind, offset, sum(size for _, size in extents) if extents else None


def _stages(
    events: Events, kind: str
) -> tuple[int | None, int | None, int | None, int | None, int | None, tuple[int, ...]]:
    """Cut the time of an op into stages that add up to its duration; None where the events are missing.

    Returns (queue, prepare, store, replica wait, reply) in ns, and the replicas that were waited for.
    """
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    peers: tuple[int, ...] = ()
    for at, name in events:
        word = name.split(" from ")[0]
        first.setdefault(word, at)
        last[word] = at
        if name.startswith("waiting for subops from "):
            numbers = name.removeprefix("waiting for subops from ").split(",")
            peers = tuple(as_int(number) for number in numbers if number.strip().isdigit())
    begin, end = events[0][0], events[-1][0]
    reached = first.get("reached_pg")
    if reached is None:
        return None, None, None, None, None, ()
    # An op that had to wait for its object is queued and started again; all of that is preparation.
    sent = last.get("waiting for subops", last.get("started"))
    commit = last.get("op_commit")
    if sent is None or sent < reached:
        return reached - begin, None, None, None, None, ()
    queue, prepare = reached - begin, sent - reached
    if commit is None:
        # A read is done when its reply is on its way; nothing marks the moment between the two.
        return queue, prepare, end - sent if kind != "write" else None, None, None, ()
    both = max(commit, last.get("sub_op_commit_rec", commit))
    return queue, prepare, commit - sent, both - commit, end - both, peers
