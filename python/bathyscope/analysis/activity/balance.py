"""Whether the load is spread as the OSDs' weights say, and whether an OSD is slower than its peers: two questions.

Load: the share of clients' operations that an OSD serves as their primary, against its share of the CRUSH weight of the
OSDs of its device class. Placement groups land on OSDs by chance, so shares differ though nothing is wrong, the more
the fewer groups do the work: a load on a few hot groups is as uneven as if there were only these (Kish's effective
sample size). An OSD stands out when so many groups, dealt out by weight, would hardly ever give one of that many OSDs
its share (the Chernoff bound of the binomial, which holds for few groups and small shares too).

Latency: what an OSD's own store takes for a write, and what a read takes in it, against the median of its peers, in
units of their spread (median absolute deviation; Leys et al., *Detecting outliers: Do not use standard deviation around
the mean, use absolute deviation around the median*, 2013). The time of a client's write is not compared: it holds the
wait for replicas, so that one slow OSD makes all primaries slow. An outlier must be one in each third of the time.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bathyscope.analysis.activity import ops, osd_sums
from bathyscope.analysis.activity.osd_sums import OsdSum
from bathyscope.analysis.activity.shape import Question, View, finding_of
from bathyscope.analysis.window import overlaps
from bathyscope.records.activity_finding import ActivityFinding
from bathyscope.records.blocks import Column, Table
from bathyscope.units import format_duration_ns, format_percent

_COLUMNS = (
    Column("osd", "OSD"),
    Column("host", "host", help="CRUSH host bucket", rank=1),
    Column("class", "class", help="CRUSH device class", rank=3),
    Column("share_ratio", "share", "ratio", "share of the class's operations that it served as their primary"),
    Column("weight_share_ratio", "by weight", "ratio", "its share of the class's CRUSH weight"),
    Column("store_write_ns", "store write", "ns", "mean time of a commit in its own store"),
    Column("store_read_ns", "store read", "ns", "mean time of a client's read in it"),
    Column(
        "to_peers_ratio", "to peers", "times", "the larger of its latencies, as a multiple of the median of its peers"
    ),
    Column("finding", "finding", help="what stands out", prose=True),
)

# Ceph 16 and 17+ name the commit of a transaction in BlueStore so; FileStore's journal is the last.
_WRITES = ("bluestore.txc_commit_lat", "bluestore.commit_lat", "filestore.journal_latency")
_READS = ("osd.op_r_latency",)
_THIRDS = 3
# Logs tell times in microseconds: what took less is 0 there.
_RESOLUTION_NS = 1000.0
# Peers with fewer samples in a third of the time have no mean. Of an OSD that is far slower fewer do.
_SAMPLES_LEAST = 20
_OUTLIER_SAMPLES_LEAST = 4
# How often latencies whose deviation is as large as their mean may be an outlier in one third by chance.
_LATENCY_CHANCE = 1e-3
_PEERS_LEAST = 2
# An OSD is slow when its mean is twice that of its peers, five of their deviations away, and not by microseconds.
_SLOW_RATIO = 2.0
_DEVIATIONS = 5.0
_APART_NS = 200_000.0
# MAD × this estimates the standard deviation of a normal distribution.
_MAD_TO_SIGMA = 1.4826
# How often chance may give some OSD of a class a share that is called uneven, and what is not worth a word.
_LOAD_CHANCE = 1e-3
_LOAD_APART = 0.1
_OPS_LEAST = 1000


@dataclasses.dataclass
class _Judged:
    """One OSD: its latencies of the whole time, its peers' multiple, and what stands out."""

    load: OsdSum
    share: float | None = None
    by_weight: float | None = None
    latency_ns: dict[str, float] = dataclasses.field(default_factory=dict)
    to_peers: float | None = None
    slow: str = ""
    uneven: str = ""
    # Whether it is known how many placement groups its load came from.
    is_comparable: bool = False


class Balance(View):
    """Load and latency of all OSDs against their peers."""

    name = "balance"
    help = "load against weights, and latency against peers: which OSD or node stands out"
    tables = ("balance",)

    def queries(self, question: Question) -> Mapping[str, str]:
        """Return the sums of each OSD, its weight, and its latencies in each third of the time."""
        names = ", ".join(f"'{name}'" for name in (*_WRITES, *_READS))
        return {
            **osd_sums.queries(question),
            "weights": "SELECT osd, arg_max(coalesce(crush_weight, 1) * coalesce(reweight, 1), osd) AS weight, "
            "arg_max(primary_affinity, osd) AS primary_affinity FROM placement GROUP BY osd",
            "group_ops": "SELECT osd, sum(ops) AS ops, sum(ops * ops) AS squares FROM (SELECT osd, pg, "
            f"CAST(sum(read_count + write_count) AS DOUBLE) AS ops FROM pg_io WHERE {overlaps(question)} "
            "GROUP BY osd, pg) GROUP BY osd",
            # Thirds of the time that was seen: an OSD that is slow answers late, and then the end is not known.
            "latencies": "WITH counted AS (SELECT *, at_ns - duration_ns // 2 AS middle_ns "
            f"FROM {ops.perf_counter(question, max(1, (question.end_ns - question.start_ns) // _THIRDS))} "
            f"WHERE section || '.' || name IN ({names}) "
            f"AND at_ns - duration_ns / 2 BETWEEN {question.start_ns} AND {question.end_ns}), "
            "span AS (SELECT min(at_ns - duration_ns) AS start_ns, max(at_ns) AS end_ns FROM counted) "
            "SELECT daemon, section || '.' || name AS name, "
            f"least({_THIRDS - 1}, (middle_ns - start_ns) * {_THIRDS} // greatest(end_ns - start_ns, 1)) AS third, "
            "sum(delta) AS delta, CAST(sum(count) AS BIGINT) AS count FROM counted, span GROUP BY ALL",
        }

    def build(self, tables: Mapping[str, pa.Table], question: Question) -> ActivityFinding:
        """Return a row for each OSD; the first sentence names who stands out, or that nobody does."""
        osds, _, has_counters = osd_sums.read(tables)
        weights = {row["osd"]: row for row in tables["weights"].to_pylist()}
        groups = {row["osd"]: (row["ops"], row["squares"]) for row in tables["group_ops"].to_pylist()}
        means = _means(tables["latencies"])
        judged = [_Judged(osd) for osd in osds]
        for peers in _by_class(judged):
            _judge_load(peers, weights, groups)
            for kind, thirds in means.items():
                _judge_latency(peers, kind, thirds)
        cells = tuple(
            (
                f"osd.{osd.load.osd}",
                osd.load.host,
                osd.load.device_class,
                osd.share,
                osd.by_weight,
                osd.latency_ns.get("write"),
                osd.latency_ns.get("read"),
                osd.to_peers,
                "; ".join(filter(None, (osd.slow, osd.uneven))),
            )
            for osd in judged
        )
        return finding_of(
            self,
            question,
            _sentence(judged),
            Table("balance", "balance", _COLUMNS, cells),
            unseen=osd_sums.remarks(tables, question, has_counters=has_counters),
        )


VIEW: View = Balance()

# OSD → (mean in ns, samples) in each third of the time, then of the whole.
_Thirds = dict[int, list[tuple[float, int]]]


def _means(latencies: pa.Table) -> dict[str, _Thirds]:
    """Return "write" and "read" → the means of each OSD; of several names for the same the first that was counted."""
    means: dict[str, _Thirds] = {}
    rows = latencies.to_pylist()
    for kind, names in (("write", _WRITES), ("read", _READS)):
        counted = {row["name"] for row in rows if row["count"]}
        name = next((name for name in names if name in counted), None)
        sums: dict[int, list[tuple[float, int]]] = {}
        for row in rows:
            if row["name"] == name and 0 <= row["third"] < _THIRDS:
                osd = int(row["daemon"].removeprefix("osd."))
                thirds = sums.setdefault(osd, [(0.0, 0)] * _THIRDS)
                thirds[row["third"]] = row["delta"] * 1e9, row["count"]
        means[kind] = {
            osd: [(total / count if count else math.nan, count) for total, count in (*thirds, _summed(thirds))]
            for osd, thirds in sums.items()
        }
    return means


def _summed(thirds: Sequence[tuple[float, int]]) -> tuple[float, int]:
    return sum(total for total, _ in thirds), sum(count for _, count in thirds)


def _by_class(judged: Iterable[_Judged]) -> list[list[_Judged]]:
    classes: dict[str, list[_Judged]] = {}
    for osd in judged:
        classes.setdefault(osd.load.device_class, []).append(osd)
    return list(classes.values())


def _judge_load(
    peers: Sequence[_Judged],
    weights: Mapping[int, Mapping[str, float | None]],
    groups: Mapping[int, tuple[float, float]],
) -> None:
    """Note each OSD's share, and whether it is one that chance would not give.

    `groups` has of each OSD the sum of its placement groups' operations, and that of their squares.
    """
    ops = sum(osd.load.ops for osd in peers)
    whole = sum(weights.get(osd.load.osd, {}).get("weight") or 0.0 for osd in peers)
    counted, squares = (sum(groups.get(osd.load.osd, (0.0, 0.0))[index] for osd in peers) for index in (0, 1))
    # As many groups of equal load would be as uneven as these.
    group_count = counted**2 / squares if squares else 0.0
    for judged in peers:
        about = weights.get(judged.load.osd, {})
        if not ops or not whole:
            continue
        judged.is_comparable = group_count > 0
        judged.share, judged.by_weight = judged.load.ops / ops, (about.get("weight") or 0.0) / whole
        is_apart = abs(judged.share - judged.by_weight) >= _LOAD_APART * judged.by_weight
        is_rare = group_count * _divergence(judged.share, judged.by_weight) > math.log(2 * len(peers) / _LOAD_CHANCE)
        if ops >= _OPS_LEAST and is_apart and is_rare:
            affinity = about.get("primary_affinity")
            why = f" (primary affinity {affinity:g})" if affinity is not None and affinity < 1 else ""
            share, by_weight = format_percent(judged.share), format_percent(judged.by_weight)
            judged.uneven = f"serves {share} of the operations, {by_weight} by its weight{why}"


def _divergence(share: float, expected: float) -> float:
    """Return the Kullback-Leibler divergence of two binomials: -ln of a chance is at least this for each draw."""
    parts = ((share, expected), (1 - share, 1 - expected))
    if any(seen > 0 and wanted <= 0 for seen, wanted in parts):
        return math.inf
    return sum(seen * math.log(seen / wanted) for seen, wanted in parts if seen > 0)


def _judge_latency(peers: Sequence[_Judged], kind: str, thirds: _Thirds) -> None:
    """Note an OSD's mean, its multiple of its peers' median, and whether it is an outlier in every third."""
    timed = [osd for osd in peers if osd.load.osd in thirds]
    means = np.array(
        [[mean if count >= _SAMPLES_LEAST else np.nan for mean, count in thirds[osd.load.osd]] for osd in timed]
    )
    for row, one in enumerate(timed):
        mine = thirds[one.load.osd]
        if not mine[-1][1]:
            continue
        one.latency_ns[kind] = mine[-1][0]
        others = np.delete(means, row, axis=0)
        whole = _ratio(mine[-1], others[:, -1])
        if whole is not None:
            one.to_peers = max(one.to_peers or 0.0, whole[0])
            ratios = (_ratio(mine[third], others[:, third]) for third in range(_THIRDS))
            if whole[1] and all(ratio is not None and ratio[1] for ratio in ratios):
                median = mine[-1][0] / whole[0]
                words = "commit in its store" if kind == "write" else "read"
                one.slow = one.slow or (
                    f"a {words} takes {format_duration_ns(mine[-1][0])}, that of its peers {format_duration_ns(median)}"
                )


def _ratio(mine: tuple[float, int], others: npt.NDArray[np.float64]) -> tuple[float, bool] | None:
    """Return the multiple of the others' median and whether that makes an outlier; None for too few samples.

    The mean of one of the others is NaN where it has too few.
    """
    peers = others[~np.isnan(others)]
    if mine[1] < _OUTLIER_SAMPLES_LEAST or len(peers) < _PEERS_LEAST:
        return None
    median = float(np.median(peers))
    sigma = _MAD_TO_SIGMA * float(np.median(np.abs(peers - median)))
    ratio = mine[0] / max(median, _RESOLUTION_NS)
    apart = mine[0] - median
    # The Chernoff bound of the mean of so many exponential latencies.
    is_rare = ratio > 1 and mine[1] * (ratio - 1 - math.log(ratio)) > -math.log(_LATENCY_CHANCE)
    return ratio, is_rare and ratio >= _SLOW_RATIO and apart >= max(_DEVIATIONS * sigma, _APART_NS)


def _sentence(judged: Sequence[_Judged]) -> str:
    slow = [osd for osd in judged if osd.slow]
    uneven = [osd for osd in judged if osd.uneven]
    parts = []
    if slow:
        host = _whole_node(slow, judged)
        worst = max(slow, key=lambda osd: osd.to_peers or 0.0)
        who = f"Node {host} is slow: of its OSDs osd.{worst.load.osd} most" if host else f"osd.{worst.load.osd} is slow"
        others = len(slow) - 1
        more = f", and {others} more" if others and not host else ""
        parts.append(f"{who}: {worst.slow}{more}.")
    if uneven:
        worst = max(uneven, key=lambda osd: abs((osd.share or 0.0) - (osd.by_weight or 0.0)))
        parts.append(f"The load is uneven: osd.{worst.load.osd} {worst.uneven}.")
    return " ".join(parts) or _all_clear(judged)


def _all_clear(judged: Sequence[_Judged]) -> str:
    """Return that nobody stands out, in what could be judged."""
    by_load = any(osd.is_comparable for osd in judged) and sum(osd.load.ops for osd in judged) >= _OPS_LEAST
    by_latency = any(osd.to_peers is not None for osd in judged)
    if by_latency and not by_load and not any(osd.by_weight is not None for osd in judged):
        return "No OSD stands out by its latency; their loads could not be compared, as no map says their weights."
    if by_load and by_latency:
        return "No OSD stands out: neither its load nor its latency is unlike its peers'."
    if by_load:
        return "No OSD stands out by its load; their latencies could not be compared."
    if by_latency:
        return "No OSD stands out by its latency; too little is known to compare their loads."
    return "No OSD could be compared with its peers: they did too little, or no source counted them."


def _whole_node(slow: Sequence[_Judged], judged: Sequence[_Judged]) -> str:
    """Return the node that all slow OSDs are of, when it has several and all of them are slow; else ""."""
    hosts = {osd.load.host for osd in slow}
    (host,) = hosts if len(hosts) == 1 else ("",)
    mine = [osd for osd in judged if osd.load.host == host and osd.latency_ns]
    return host if host and len(mine) > 1 and len(slow) == len(mine) else ""
