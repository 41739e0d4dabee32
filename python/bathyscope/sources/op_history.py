"""The OSDs' op history → where the time of each client operation went.

The history keeps the `osd_op_history_size` *slowest* ops of the last `osd_op_history_duration` seconds, so it is a
sample without bias only while it is not full. Both options are raised for a step and restored after; that is a
change of the cluster, which the caller journals.

Only the `time` of an event is used. Its `duration` means time-to-next on 16.2, time-since-previous later, and both
underflow (4294967295.99) because the messenger's stamps are not in order. Events and their order:

    16.2   initiated throttled header_read all_read dispatched queued_for_pg reached_pg started
           "waiting for subops from 1,2" op_commit sub_op_commit_rec … commit_sent done
    20.2   the same names; op_commit and sub_op_commit_rec come in either order on all

A read has no commit. `osd_repop` entries are the replicas' side of somebody's write: they make no rows, but tell
which replica was slow, which the primary's own events do not name when there are several.
"""

from __future__ import annotations

import dataclasses
import datetime
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from bathyscope.errors import ParseError
from bathyscope.host import CephRequest
from bathyscope.records import Op
from bathyscope.sources.base import RawAnswer
from bathyscope.sources.fields import as_dict, as_float, as_int, as_list, parsing

OPTIONS = ("osd_op_history_size", "osd_op_history_duration")
_DUMP = "op_history-"
_GET = "op_history_option-"

_TIME = re.compile(r"(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:?\d\d)?")
_OP = re.compile(r"osd_op\((client\.\d+)\S*:(\d+) (\d+)\.([0-9a-f]+)(?:s\d+)? (.*)\)$", re.DOTALL)
_REPOP = re.compile(r"osd_repop\((\S+) ")
_OBJECT = re.compile(r"(-?\d+):[0-9a-f]+:([^:]*):([^:]*):(.*):(head|snapdir|[0-9a-f]+)$", re.DOTALL)
_EXTENT = re.compile(r"(\d+)~(\d+)")
_READS = ("read", "sparse-read", "sync_read")
_WRITES = ("write", "writefull", "writesame", "append", "zero", "truncate", "create", "delete")


def plan_get(osds: Iterable[int]) -> list[CephRequest]:
    """Return the requests for the present values of both options on each OSD."""
    return [
        _tell(f"{_GET}{option}-osd.{osd}", osd, ("prefix", "config get"), ("var", option))
        for osd in osds
        for option in OPTIONS
    ]


def parse_get(answers: Sequence[RawAnswer]) -> dict[int, dict[str, str]]:
    """Return osd → option → value as it was; OSDs that did not answer are left out. Raises ParseError."""
    values: dict[int, dict[str, str]] = {}
    for answer in answers:
        if answer.exit_code != 0 or not answer.label.startswith(_GET):
            continue
        option, _, osd = answer.label.removeprefix(_GET).rpartition("-osd.")
        value = answer.json()
        with parsing(answer.label):
            values.setdefault(as_int(osd), {})[option] = str(as_dict(value)[option])
    return values


def plan_set(osds: Iterable[int], size: int, duration_s: int) -> list[CephRequest]:
    """Return the requests that raise the history on each OSD. A change of the cluster: journal it first."""
    values = dict(zip(OPTIONS, (str(size), str(duration_s)), strict=True))
    return plan_restore(dict.fromkeys(osds, values))


def plan_restore(values: Mapping[int, Mapping[str, str]]) -> list[CephRequest]:
    """Return the requests that set the options of each OSD to the values that `parse_get` returned."""
    return [
        _tell(f"op_history_set-{option}-osd.{osd}", osd, ("prefix", "config set"), ("var", option), ("val", [value]))
        for osd, options in values.items()
        for option, value in options.items()
    ]


def plan_dump(osds: Iterable[int]) -> list[CephRequest]:
    """Return the requests for the histories of `osds`."""
    return [_tell(f"{_DUMP}osd.{osd}", osd, ("prefix", "dump_historic_ops")) for osd in osds]


def _tell(label: str, osd: int, *words: tuple[str, Any]) -> CephRequest:
    return CephRequest(label, f"osd.{osd}", (*words, ("format", "json")), timeout_s=30.0)


@dataclasses.dataclass(frozen=True, slots=True)
class _Entry:
    """One client op of one history: the description's parts, and its events in order of time."""

    osd: int
    match: re.Match[str]
    address: str | None
    events: list[tuple[int, str]]


def parse(
    run_id: str,
    step_index: int,
    answers: Sequence[RawAnswer],
    since_ns: int,
    until_ns: int,
    *,
    size_limit: int,
    pool_ids: frozenset[int] | None = None,
) -> list[Op]:
    """Return the client ops that began between `since_ns` and `until_ns` by the OSDs' clocks.

    `size_limit` is the history size that was set; a history with as many entries, or one that does not reach back
    to `since_ns`, is not a complete sample. `pool_ids` restricts to those pools: on a cluster with other users
    their objects are none of our business. Raises ParseError.
    """
    entries: list[tuple[_Entry, bool]] = []
    repops: dict[str, dict[int, int]] = {}
    for answer in answers:
        if answer.exit_code != 0 or not answer.label.startswith(_DUMP):
            continue
        value = answer.json()
        with parsing(answer.label):
            osd = as_int(answer.label.removeprefix(f"{_DUMP}osd."))
            ops = as_list(as_dict(value)["ops"])
            is_complete = len(ops) < size_limit and _reaches_back(as_dict(value), ops, answer) <= since_ns
            for entry in _entries(osd, ops, repops):
                pool = int(entry.match[3])
                if since_ns <= entry.events[0][0] <= until_ns and (pool_ids is None or pool in pool_ids):
                    entries.append((entry, is_complete))
    with parsing("op history"):
        return [_op(run_id, step_index, entry, repops, is_complete=complete) for entry, complete in entries]


def _reaches_back(value: dict[str, Any], ops: list[Any], answer: RawAnswer) -> int:
    """Return since when the history is whole, by the OSD's clock: its now less the configured duration."""
    duration_ns = as_int(value.get("duration", 0)) * 1_000_000_000
    if not ops:
        return answer.started_ns - duration_ns
    last = as_dict(ops[-1])
    now_ns = _time_ns(str(last["initiated_at"])) + as_int(as_float(last["age"]) * 1e9)
    return now_ns - duration_ns


def _entries(osd: int, ops: list[Any], repops: dict[str, dict[int, int]]) -> Iterator[_Entry]:
    """Yield the client ops; note how long each replica's part of a write took in `repops`."""
    for op in ops:
        description, data = str(op["description"]), op["type_data"]
        if description.startswith("osd_op("):
            match = _OP.match(description)
            events = _events(data)
            if match is not None and events:
                address = data.get("client_info", {}).get("client_addr")
                yield _Entry(osd, match, None if address is None else str(address).partition("/")[0], events)
        elif (repop := _REPOP.match(description)) is not None:
            events = _events(data)
            if events:
                sent = [at for at, name in events if name == "commit_sent"] or [events[-1][0]]
                repops.setdefault(repop[1], {})[osd] = sent[-1] - events[0][0]


def _events(data: Any) -> list[tuple[int, str]]:
    """Return the events in order of time; the messenger's stamps are not."""
    return sorted((_time_ns(str(event["time"])), str(event["event"])) for event in as_list(data["events"]))


# A second repeats thousands of times in a dump and is converted once: (text up to the point, offset) → epoch.
_SECONDS: dict[tuple[str, str], int] = {}
_SECONDS_MAX = 100_000


def _time_ns(text: str) -> int:
    """Return "2026-11-21T02:01:15.294531+0000" as ns since the epoch. Raises ValueError."""
    # The form of every release since 14, cut at fixed places: a dump holds a hundred thousand of them.
    seconds = _SECONDS.get((text[:20], text[26:]))
    if seconds is not None and text[20:26].isdigit():
        return seconds * 1_000_000_000 + int(text[20:26]) * 1000
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r:.40} is not a time")
    moment = datetime.datetime.fromisoformat(match[1] + (match[3] or ""))
    # Without an offset the OSD's time zone is not known; Ceph's own default is UTC.
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=datetime.UTC)
    seconds = int(moment.timestamp())
    if len(match[2] or "") == 6:
        if len(_SECONDS) >= _SECONDS_MAX:
            _SECONDS.clear()
        _SECONDS[text[:20], text[26:]] = seconds
    return seconds * 1_000_000_000 + int((match[2] or "0").ljust(9, "0"))


def _op(
    run_id: str, step_index: int, entry: _Entry, repops: Mapping[str, Mapping[int, int]], *, is_complete: bool
) -> Op:
    """Return the row of one client op."""
    match = entry.match
    object_name, kind, offset, length = _target(match[5])
    stages = _stages(entry.events, kind)
    return Op(
        run_id=run_id,
        step_index=step_index,
        osd=entry.osd,
        client=match[1],
        client_address=entry.address,
        pool_id=as_int(match[3]),
        pg=f"{match[3]}.{match[4]}",
        object_name=object_name,
        op=kind,
        offset_bytes=offset,
        length_bytes=length,
        started_ns=entry.events[0][0],
        duration_ns=entry.events[-1][0] - entry.events[0][0],
        queue_ns=stages.queue,
        prepare_ns=stages.prepare,
        store_ns=stages.store,
        replica_wait_ns=stages.replica_wait,
        reply_ns=stages.reply,
        slowest_peer=_slowest_peer(entry, stages, repops),
        complete_sample=is_complete,
    )


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


@dataclasses.dataclass(frozen=True, slots=True)
class _Stages:
    """Durations in ns; None where the events do not tell. `peers`: the replicas that were waited for."""

    queue: int | None
    prepare: int | None
    store: int | None
    replica_wait: int | None
    reply: int | None
    peers: tuple[int, ...] = ()


def _stages(events: Sequence[tuple[int, str]], kind: str) -> _Stages:
    """Cut the time of an op into stages that add up to its duration."""
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    peers: tuple[int, ...] = ()
    for at, name in events:
        word = name.split(" from ")[0]
        first.setdefault(word, at)
        last[word] = at
        if name.startswith("waiting for subops from "):
            peers = tuple(
                as_int(p) for p in name.removeprefix("waiting for subops from ").split(",") if p.strip().isdigit()
            )
    begin, end = events[0][0], events[-1][0]
    reached = first.get("reached_pg")
    if reached is None:
        return _Stages(None, None, None, None, None)
    # An op that had to wait for its object is queued and started again; all of that is preparation.
    sent = last.get("waiting for subops", last.get("started"))
    commit = last.get("op_commit")
    if sent is None or sent < reached:
        return _Stages(reached - begin, None, None, None, None)
    queue, prepare = reached - begin, sent - reached
    if commit is None:
        # A read is done when its reply is on its way; nothing marks the moment between the two.
        store = end - sent if kind != "write" else None
        return _Stages(queue, prepare, store, None, None)
    replicas = last.get("sub_op_commit_rec", commit)
    both = max(commit, replicas)
    return _Stages(queue, prepare, commit - sent, both - commit, end - both, peers)


def _slowest_peer(entry: _Entry, stages: _Stages, repops: Mapping[str, Mapping[int, int]]) -> int | None:
    """Return the replica that was waited for beyond the own commit, when it can be told.

    With one replica it is that one. With several, the histories of all of them must hold their part of this
    write; their durations are compared, not their times, because clocks of hosts differ.
    """
    if not stages.replica_wait or not stages.peers:
        return None
    if len(stages.peers) == 1:
        return stages.peers[0]
    match = entry.match
    reqid = entry.match[0].removeprefix("osd_op(").split(" ", 1)[0]
    parts = repops.get(reqid, repops.get(f"{match[1]}.0:{match[2]}", {}))
    if any(peer not in parts for peer in stages.peers):
        return None
    return max(stages.peers, key=lambda peer: parts[peer])


def raise_if_refused(answers: Sequence[RawAnswer]) -> None:
    """Raise ParseError when no OSD gave its history: the op tracker is off, or the caps do not allow it."""
    dumps = [answer for answer in answers if answer.label.startswith(_DUMP)]
    if dumps and all(answer.exit_code != 0 for answer in dumps):
        text = dumps[0].stderr.decode("utf-8", "replace").strip()
        raise ParseError(
            f"no OSD gave its op history: {text or dumps[0].exit_code}",
            hint="the OSDs need osd_enable_op_tracker=true, the client osd 'allow *'",
        )
