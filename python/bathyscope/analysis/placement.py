"""What the map of the cluster says of its OSDs, as an account and a verdict need it."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pyarrow as pa

from bathyscope.analysis.account.ceilings import KnownOsd
from bathyscope.analysis.columns import floats, ints, strings
from bathyscope.analysis.verdict import Cluster


def known_osds(placement: pa.Table) -> Mapping[int, KnownOsd]:
    """Return what is known of each OSD of the map."""
    weights = floats(placement, "crush_weight") * floats(placement, "reweight")
    columns = zip(
        ints(placement, "osd").tolist(),
        strings(placement, "host"),
        placement.column("rotational").to_pylist(),
        weights.tolist(),
        strict=True,
    )
    return {osd: KnownOsd(host, turns, None if math.isnan(weight) else weight) for osd, host, turns, weight in columns}


def cluster_of(placement: pa.Table) -> Cluster:
    """Return how many OSDs there are, and the primary affinities that are not 1."""
    osds = ints(placement, "osd").tolist()
    affinities = zip(osds, floats(placement, "primary_affinity").tolist(), strict=True)
    return Cluster(len(osds), {osd: value for osd, value in affinities if value < 1})
