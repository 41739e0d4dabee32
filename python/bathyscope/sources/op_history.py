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

Histories that are asked for again and again overlap. An op is one row, however many of those that are parsed together
hold it. Those of a recording are bursts, which do not overlap (`recording.burst`): nothing is carried from one segment
to the next, which would be a megabyte for each OSD.

A burst of many OSDs is tens of MB of JSON: the Rust core reads it and holds the rules of the stages
(crates/bathy-trace/src/ceph/history.rs; benchmarks/op_history).
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bathyscope import _core, rbd_names  # noqa: TID251 - a burst is tens of MB of JSON
from bathyscope.fields import as_int, parsing
from bathyscope.host import CephRequest, Request
from bathyscope.records import Op, RawAnswer, Record, Tables, build_table
from bathyscope.sources.shape import Source, spread, tell
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

# Where a string stands, its quotes are escaped: this matches names of values only.
_DURATION = re.compile(rb',\s*"duration":\s*[-+0-9.eE]+')


class OpHistory:
    """`dump_historic_ops` of the OSDs that are asked, at most ASKED_MAX of them."""

    name = "op_history"
    records: tuple[type[Record], ...] = (Op,)
    period_s = 10.0
    timeout_s = _TIMEOUT_S
    differences = False

    def plan(self, scope: Scope) -> Sequence[Request]:
        """Return one request for each OSD."""
        return [tell(_DUMP, osd, "dump_historic_ops", self.timeout_s) for osd in asked(scope.asked_osds)]

    def parse(self, answers: Sequence[RawAnswer], scope: Scope) -> Tables:
        """Return the client ops of the histories, those of the scope's own pools when it names some."""
        our_pools = scope.own_pools
        pools = None if our_pools is None else [scope.pools[name] for name in our_pools if name in scope.pools]
        histories = _core.OpHistories(pools)
        for answer in answers:
            if answer.exit_code == 0 and answer.label.startswith(f"{_DUMP}-osd."):
                with parsing(answer.label):
                    osd = as_int(answer.label.removeprefix(f"{_DUMP}-osd."))
                    histories.add(osd, answer.stdout, answer.started_ns, scope.op_history_ops)
        return {Op: _table(*histories.columns())}


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


def _table(columns: Mapping[str, npt.NDArray[np.int64]], names: Mapping[str, list[str]]) -> pa.Table:
    """Return the core's columns as rows of Op; those of text are numbers of `names`."""
    arrays: dict[str, pa.Array[Any]] = {}
    for name, values in columns.items():
        numbers = pa.array(values, pa.int64(), mask=values == _core.NOT_KNOWN)
        arrays[name] = pa.array(names[name], pa.string()).take(numbers) if name in names else numbers
    return build_table(Op, {**arrays, **rbd_names.image_columns(arrays["object_name"])})
