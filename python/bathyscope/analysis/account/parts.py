"""Where a client's latency is spent, from the sums of the OSDs' perf counters, scaled to the client's own latency.

What an OSD counts (src/osd/PrimaryLogPG.cc, log_op_stats; src/os/bluestore/BlueStore.cc, _txc_state_proc):

- `op_latency`: from the message's receipt to the reply; `op_process_latency`: the same from when a worker took it up,
  so the difference is the time in the queues. What is not in `op_latency` is outside of the OSDs.
- reads: `read_lat` is the object store's part.
- writes: `op_w_prepare_latency` ends when the transaction goes to the store and to the replicas. Then the primary waits
  for its own commit (`commit_lat`) and for the replicas', whichever is later. In its own commit, `state_kv_queued_lat`
  and `state_kv_commiting_lat` are spent waiting for the kv-sync thread.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pyarrow as pa

from bathyscope.analysis.account.sums import NO_SUM, Sums, averages
from bathyscope.analysis.counters import all_answered
from bathyscope.records.account import LatencyPart
from bathyscope.records.figure import Figure

PLACES = ("outside", "queue", "prepare", "store", "kv_sync", "replica_wait", "inside")
# An I/O of the client is one operation of an OSD, but for sequential I/Os that librbd joins: their latencies differ.
_OPS_PER_IO_MIN = 0.7
# More operations are other clients', or larger I/Os cut into several: the mean is not that of our I/Os. The ramp can be
# quicker than what is measured, and an image is opened.
_OPS_PER_IO_MAX, _OPS_MORE = 1.5, 100
Places = dict[str, float]


def latency_parts(
    perf: pa.Table,
    osds: Collection[int] | None,
    latency_ns: float | None,
    *,
    directions: Collection[str],
    ios: float,
    rest: str = "outside",
) -> tuple[LatencyPart, ...]:
    """Return the parts of the client's mean latency; none when an OSD did not answer or they are not known.

    `directions` are those of the load (read, write), `ios` its I/Os in the counters' intervals; `rest` is the place of
    what the counters do not explain.
    """
    if not osds or not latency_ns or not all_answered(perf, frozenset(osds), "osd"):
        return ()
    osd, store = averages(perf, "osd", osds), averages(perf, "bluestore", osds)
    spent: Places = dict.fromkeys(PLACES, 0.0)
    ops = 0.0
    for direction in directions:
        count, places = (_reads if direction == "read" else _writes)(osd, store, osds)
        ops += count
        for place, spent_ns in places.items():
            spent[place] += spent_ns
    if ops <= 0 or not _OPS_PER_IO_MIN * ios <= ops <= _OPS_PER_IO_MAX * ios + _OPS_MORE:
        return ()
    means = {place: max(0.0, spent_ns) / ops for place, spent_ns in spent.items()}
    inside = sum(means.values())
    # The counters hold the ramp as well, so their mean can be a little above the client's own.
    scale = min(1.0, latency_ns / inside) if inside > 0 else 1.0
    means = {place: mean * scale for place, mean in means.items()}
    means[rest] += max(0.0, latency_ns - inside)
    return tuple(
        LatencyPart(place, Figure(mean / latency_ns, "ratio"), Figure(mean, "ns"))
        for place, mean in means.items()
        if mean > 0
    )


def _total(sums: Mapping[tuple[int, str], Sums], name: str, osds: Collection[int]) -> Sums:
    counts, spent = zip(*(sums.get((osd, name), NO_SUM) for osd in osds), strict=True)
    return sum(counts), sum(spent)


def _reads(
    osd: Mapping[tuple[int, str], Sums], store: Mapping[tuple[int, str], Sums], osds: Collection[int]
) -> tuple[float, Places]:
    """Return the number of operations and the time that all of them spent in each place."""
    count, latency = _total(osd, "op_r_latency", osds)
    _, process = _total(osd, "op_r_process_latency", osds)
    read = min(_total(store, "read_lat", osds)[1], process)
    if not store:
        return count, {"queue": latency - process, "inside": process}
    return count, {"queue": latency - process, "prepare": process - read, "store": read}


def _writes(
    osd: Mapping[tuple[int, str], Sums], store: Mapping[tuple[int, str], Sums], osds: Collection[int]
) -> tuple[float, Places]:
    count, latency = _total(osd, "op_w_latency", osds)
    _, process = _total(osd, "op_w_process_latency", osds)
    prepare = min(_total(osd, "op_w_prepare_latency", osds)[1], process)
    wait = process - prepare
    if not store:
        return count, {"queue": latency - process, "prepare": prepare, "inside": wait}
    own = kv_sync = 0.0
    for number in osds:
        writes = osd.get((number, "op_w_latency"), NO_SUM)[0]
        commits, commit = store.get((number, "commit_lat"), NO_SUM)
        if not commits or not writes:
            continue
        own += writes * commit / commits
        states = (store.get((number, name), NO_SUM)[1] for name in ("state_kv_queued_lat", "state_kv_commiting_lat"))
        kv_sync += writes * min(sum(states), commit) / commits
    share = min(1.0, wait / own) if own > 0 else 0.0
    return count, {
        "queue": latency - process,
        "prepare": prepare,
        "kv_sync": kv_sync * share,
        "store": (own - kv_sync) * share,
        "replica_wait": wait - own * share,
    }
