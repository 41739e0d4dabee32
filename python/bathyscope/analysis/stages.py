"""Where the time of operations goes inside the OSDs, from their op history."""

from __future__ import annotations

import dataclasses

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bathyscope.analysis.columns import floats
from bathyscope.records.finding import StageShare

STAGES = ("queue", "prepare", "store", "replica_wait", "reply")


@dataclasses.dataclass(frozen=True, slots=True)
class PeerWait:
    """A replica OSD that others waited for: its share of the time of all waits, and how many it ended."""

    osd: int
    wait_share: float
    wait_count: int


@dataclasses.dataclass(frozen=True, slots=True)
class StageFinding:
    """The stages of the client operations of one or more steps. `complete`: no op was dropped from a history."""

    shares: tuple[StageShare, ...]
    sample_count: int
    complete: bool
    slowest_peers: tuple[PeerWait, ...]

    def share(self, stage: str) -> float:
        """Return a stage's share of the ops' time, 0 when there are no ops."""
        return next((s.share for s in self.shares if s.stage == stage), 0.0)


NO_STAGES = StageFinding((), 0, complete=False, slowest_peers=())


def stages(ops: pa.Table, *, reads: bool = True, writes: bool = True) -> StageFinding:
    """Return the stages of the reads and/or writes in an `op` table.

    A stage's share is its time summed over the ops, divided by the time of all stages: long ops count as
    much as they last. Percentiles are of the ops themselves, not of histograms. An op without any stage
    time (a history that lacks events) is left out.
    """
    kinds = [name for name, wanted in (("read", reads), ("write", writes)) if wanted]
    if ops.num_rows:
        ops = ops.filter(pc.is_in(ops.column("op"), value_set=pa.array(kinds)))
    if ops.num_rows == 0:
        return NO_STAGES
    times = {stage: floats(ops, f"{stage}_ns") for stage in STAGES}
    known = np.any([np.isfinite(t) for t in times.values()], axis=0)
    times = {stage: np.nan_to_num(t[known]) for stage, t in times.items()}
    everything = float(sum(t.sum() for t in times.values()))
    complete = bool(pc.all(ops.column("complete_sample")).as_py())
    if everything <= 0:
        return StageFinding((), int(known.sum()), complete=complete, slowest_peers=())
    shares = []
    for stage in STAGES:
        time = times[stage]
        middle, tail = np.quantile(time, [0.5, 0.99])
        shares.append(StageShare(stage, float(time.sum()) / everything, float(time.mean()), float(middle), float(tail)))
    return StageFinding(tuple(shares), int(known.sum()), complete=complete, slowest_peers=_slowest_peers(ops))


def _slowest_peers(ops: pa.Table) -> tuple[PeerWait, ...]:
    """Return the replica OSDs by the time that others waited for them, the slowest first."""
    waits = ops.filter(pc.is_valid(ops.column("slowest_peer")))
    if waits.num_rows == 0:
        return ()
    grouped = waits.group_by("slowest_peer", use_threads=False).aggregate(
        [("replica_wait_ns", "sum"), ("replica_wait_ns", "count")]
    )
    peers, sums, counts = (
        floats(grouped, name) for name in ("slowest_peer", "replica_wait_ns_sum", "replica_wait_ns_count")
    )
    everything = float(np.nansum(sums))
    peer_waits = [
        PeerWait(int(peer), float(s / everything) if everything > 0 else 0.0, int(n))
        for peer, s, n in zip(peers, sums, counts, strict=True)
        if n > 0
    ]
    return tuple(sorted(peer_waits, key=lambda p: (-p.wait_share, p.osd)))
