"""What each OSD did of a load, from the sums of its perf counters.

Sums miss no operation, unlike a history that overflows and then keeps the slowest. A write waits for its replicas, so a
slow OSD makes the writes of all primaries slow; the time of an OSD's own part of the work is therefore taken from the
writes that it does as a replica (`subop_w_latency`), and from reads, which no replica takes part in (`op_r_latency`).
Where no write has a replica, the primary's part is the whole (`op_w_latency`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from bathyscope.analysis.account.ceilings import KnownOsd
from bathyscope.analysis.account.sums import NO_SUM, Sums, averages
from bathyscope.analysis.counters import all_answered
from bathyscope.records.account import OsdShare
from bathyscope.records.figure import Figure

# An OSD stands out when its own part takes so many times as long as that of the median of the others.
SLOW_FACTOR = 3.0
_EACH_FACTOR = 2.0
_OPS_MIN = 10
_SUBOPS_MIN = 0.5
# Of the time that operations spend in OSDs: of many OSDs, one is always the slowest, and holds nobody back.
_HELD_MIN = 0.1


@dataclasses.dataclass(frozen=True, slots=True)
class Outlier:
    """An OSD that stands out, or a machine of which all OSDs do: the mean time of their own parts, the median of the
    others' means, and their share of all time. `name` is osd.3, or the machine's.
    """

    name: str
    host: str
    osds: tuple[int, ...]
    own_ns: float
    others_ns: float
    time_share: float


def osd_shares(
    perf: pa.Table, osds: Mapping[int, KnownOsd] | None, *, reads: bool, writes: bool
) -> tuple[OsdShare, ...]:
    """Return the OSDs under test by number; none when one of them did not answer.

    How long their own part took is given of those on hard disks or of those on flash, whichever have spent more time:
    the two cannot be compared.
    """
    if not osds or not all_answered(perf, frozenset(osds), "osd"):
        return ()
    sums = averages(perf, "osd", osds)
    served: dict[int, float] = dict.fromkeys(osds, 0.0)
    own_sums: dict[int, Sums] = dict.fromkeys(osds, NO_SUM)
    for name in _own_names(sums, reads=reads, writes=writes):
        own_sums = {osd: _plus(own_sums[osd], sums.get((osd, name), NO_SUM)) for osd in osds}
    for name in [name for name, wanted in (("op_r_latency", reads), ("op_w_latency", writes)) if wanted]:
        served = {osd: served[osd] + sums.get((osd, name), NO_SUM)[0] for osd in osds}
    spent_by_kind: dict[bool | None, float] = {}
    for osd, placed in osds.items():
        spent_by_kind[placed.rotational] = spent_by_kind.get(placed.rotational, 0.0) + own_sums[osd][1]
    kind = max(spent_by_kind, key=lambda each: spent_by_kind[each])
    ops, time_ns = sum(served.values()), sum(spent for _, spent in own_sums.values())
    even = _by_weight(osds)
    return tuple(
        OsdShare(
            osd,
            osds[osd].host,
            Figure(served[osd] / ops if ops else 0.0, "ratio", samples=round(served[osd])),
            Figure(own_sums[osd][1] / time_ns if time_ns else 0.0, "ratio"),
            Figure(
                own_sums[osd][1] / own_sums[osd][0] if own_sums[osd][0] and osds[osd].rotational == kind else None,
                "ns",
                samples=round(own_sums[osd][0]),
            ),
            even[osd],
        )
        for osd in sorted(osds)
    )


def _by_weight(osds: Mapping[int, KnownOsd]) -> dict[int, float]:
    """Return the share of the data, and so of random operations, that CRUSH gives each OSD by its weight."""
    weights = {osd: placed.weight for osd, placed in osds.items()}
    known = {osd: weight for osd, weight in weights.items() if weight is not None}
    total = sum(known.values())
    if len(known) < len(osds) or total <= 0:
        return dict.fromkeys(osds, 1 / len(osds))
    return {osd: weight / total for osd, weight in known.items()}


def slow_part(shares: Sequence[OsdShare]) -> Outlier | None:
    """Return what is slow: a machine with all of its OSDs, else one OSD, or None."""
    return slow_node(shares) or slow_osd(shares)


def slow_osd(shares: Sequence[OsdShare]) -> Outlier | None:
    """Return the OSD whose own part takes at least SLOW_FACTOR times as long as the median of the others, or None.

    It must also hold more of the time than even spreading would give it: an OSD that does little holds nobody back.
    """
    known = _known(shares)
    if len(known) < 2:
        return None
    slowest = max(known, key=_own_ns)
    return _outlier(f"osd.{slowest.osd}", [slowest], [share for share in known if share is not slowest])


def slow_node(shares: Sequence[OsdShare]) -> Outlier | None:
    """Return the machine whose OSDs together are as slow against those of the other machines, or None.

    Each of several must be slow: one slow OSD makes no slow machine.
    """
    by_host: dict[str, list[OsdShare]] = {}
    for share in _known(shares):
        by_host.setdefault(share.host, []).append(share)
    if len(by_host) < 2:
        return None
    host, of_host = max(by_host.items(), key=lambda pair: min(map(_own_ns, pair[1])))
    others = [share for name, same in by_host.items() if name != host for share in same]
    outlier = _outlier(host, of_host, others) if len(of_host) > 1 else None
    return outlier if outlier and min(map(_own_ns, of_host)) >= _EACH_FACTOR * outlier.others_ns else None


def _outlier(name: str, of_host: Sequence[OsdShare], others: Sequence[OsdShare]) -> Outlier | None:
    own_ns = float(
        np.average([_own_ns(share) for share in of_host], weights=[share.own_ns.samples for share in of_host])
    )
    others_ns = float(np.median([_own_ns(share) for share in others]))
    held = sum(share.in_flight_share.value or 0.0 for share in of_host)
    if own_ns < SLOW_FACTOR * others_ns or held <= max(_HELD_MIN, sum(share.expected_share for share in of_host)):
        return None
    return Outlier(name, of_host[0].host, tuple(share.osd for share in of_host), own_ns, others_ns, held)


def _known(shares: Sequence[OsdShare]) -> list[OsdShare]:
    return [share for share in shares if share.own_ns.value and share.own_ns.samples >= _OPS_MIN]


def _own_ns(share: OsdShare) -> float:
    return share.own_ns.value or 0.0


def _own_names(sums: Mapping[tuple[int, str], Sums], *, reads: bool, writes: bool) -> list[str]:
    written, copied = (
        sum(count for (_, name), (count, _) in sums.items() if name == wanted)
        for wanted in ("op_w_latency", "subop_w_latency")
    )
    # A pool of others with replicas has sub-operations as well.
    has_replicas = copied >= max(_OPS_MIN, _SUBOPS_MIN * written)
    of_writes = "subop_w_latency" if has_replicas else "op_w_latency"
    return [name for name, wanted in (("op_r_latency", reads), (of_writes, writes)) if wanted]


def _plus(left: Sums, right: Sums) -> Sums:
    return left[0] + right[0], left[1] + right[1]
