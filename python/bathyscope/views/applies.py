"""Which figure means something at which layer and for which operation; elsewhere a dash stands, not "n/a"."""

from __future__ import annotations

from bathyscope.records.finding import PointFinding

_ONLY_WRITES = frozenset({"write_amplification"})
_ONLY_READS_OF_A_CLUSTER = frozenset({"read_from_cache_ratio"})
_ONLY_A_CLUSTER = frozenset({"osd_cpu_us_per_op"})


def applies(name: str, point: PointFinding) -> bool:
    """Return whether the figure `name` of PointFinding has a meaning for the point."""
    if name in _ONLY_WRITES:
        return point.op in ("write", "randwrite", "randrw")
    if name in _ONLY_READS_OF_A_CLUSTER:
        return point.layer != "disk" and point.op in ("read", "randread", "randrw")
    return not (name in _ONLY_A_CLUSTER and point.layer == "disk")
