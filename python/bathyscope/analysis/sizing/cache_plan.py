"""From the curves of OSDs to a plan: which of them share the SSD of their node, and how."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from bathyscope.analysis.sizing.build import curves_of
from bathyscope.analysis.sizing.caveats import caveats_of_curves
from bathyscope.analysis.sizing.question import SizeQuestion
from bathyscope.analysis.sizing.sample_caveats import caveats_of_sample
from bathyscope.analysis.sizing.shares import split_of
from bathyscope.records import CurvePoint, Placement, from_table
from bathyscope.records.blocks import CaveatView
from bathyscope.records.cache_plan_finding import CacheMemory, CachePlan, PlannedCache, PlannedSource
from bathyscope.records.size_finding import SizeCurve, SizePoint

_UNSEEN = (
    "the records are of operations that clients sent to an OSD; what reaches its disk besides (copies of writes of "
    "other OSDs, BlueStore's own metadata) or does not reach it (what its cache in memory serves) is not in them, so "
    "the hit ratio of the running cache differs: compare it with `bathy cache stats`. Runs of writes are "
    "followed through the objects of an image here, on an OSD as far as they lie side by side"
)


def cache_plan(
    points: pa.Table,
    question: SizeQuestion,
    nodes: Mapping[str, Sequence[Placement]],
    memory: CacheMemory,
    *,
    run_id: str,
) -> CachePlan:
    """Return the best split of the budget of `question`, which each of `nodes` has, over the OSDs there.

    `points` are rows of records.CurvePoint by osd, of one line size, fetch size and policy. OSDs without a curve did no
    I/O and get nothing.
    """
    rows = from_table(CurvePoint, points)
    every_curve = curves_of(rows, question)
    curves = {curve.group_name: curve for curve in every_curve if curve.group_kind == "osd"}
    caches = [_cache(node, osds, curves, memory, question) for node, osds in sorted(nodes.items())]
    first = every_curve[0]
    return CachePlan(
        run_id=run_id,
        events=question.trace.events,
        duration_s=question.trace.duration_s,
        line_bytes=first.line_bytes,
        fetch_bytes=first.fetch_bytes,
        policy=first.policy,
        admission=first.admission,
        mode="write-through",
        caches=tuple(caches),
        caveats=tuple(_caveats(rows, [*curves.values()], question)),
    )


def _cache(
    node: str,
    osds: Sequence[Placement],
    curves: Mapping[str, SizeCurve],
    memory: CacheMemory,
    question: SizeQuestion,
) -> PlannedCache:
    flash_bytes = question.spec.budget_bytes or 0
    places = {f"osd.{placed.osd}": placed for placed in osds}
    of_node = {name: curves[name] for name in places if name in curves}
    reads = sum(curve.read_requests for curve in of_node.values())
    split = split_of([*of_node.values()], flash_bytes, question.trace.duration_s) if of_node else None
    shares = () if split is None else tuple(share for share in split.shares if share.flash_bytes)
    useful_bytes = sum(share.flash_bytes for share in shares)
    scale = flash_bytes / useful_bytes if useful_bytes else 1.0
    line_bytes = next((curve.line_bytes for curve in of_node.values()), 1)
    # The sources fill the small queue as they fill the flash.
    dram_ratio = memory.stage_bytes / flash_bytes if flash_bytes else 0.0
    planned = [
        PlannedSource(
            name=share.group_name.replace(".", "-"),
            osd=places[share.group_name].osd,
            directory=places[share.group_name].data_path or "",
            flash_bytes=share.flash_bytes * flash_bytes // useful_bytes // line_bytes * line_bytes,
            useful_bytes=share.flash_bytes,
            dram_bytes=round(share.flash_bytes * scale * dram_ratio),
            read_requests=of_node[share.group_name].read_requests,
            read_hit_ratio=share.read_hit_ratio,
            disk_time_left_ratio=_between(
                of_node[share.group_name], share.flash_bytes, lambda point: point.disk_time_left, at_zero=1.0
            ),
            flash_write_bytes_per_day=_between(
                of_node[share.group_name], share.flash_bytes, lambda point: point.flash_write_bytes_per_day
            ),
        )
        for share in shares
    ]
    # A share below one line holds nothing.
    sources = [source for source in planned if source.flash_bytes]
    return PlannedCache(
        node=node,
        flash_bytes=flash_bytes,
        useful_bytes=useful_bytes,
        dram_bytes=memory.stage_bytes if of_node else 0,
        # The cache has the whole SSD, whatever its sources may take of it.
        index_bytes=memory.index_bytes if of_node else 0,
        memory_bytes=memory.all_bytes if of_node else 0,
        memory_budget_bytes=memory.budget_bytes,
        files_max=memory.files_max,
        read_requests=reads,
        read_hit_ratio=split.hits / reads if split is not None and reads else None,
        read_hit_ratio_even=split.hits_even / reads if split is not None and reads else None,
        sources=tuple(sources),
        without=tuple(sorted({placed.osd for placed in osds} - {source.osd for source in sources})),
    )


def _between(
    curve: SizeCurve, flash_bytes: int, value: Callable[[SizePoint], float | None], *, at_zero: float | None = None
) -> float | None:
    """Return a value at a size, straight between the curve's points; None where the nearest ones do not know it."""
    value_at = {0: at_zero} | {point.flash_bytes: value(point) for point in curve.points}
    sizes = sorted(value_at)
    index = min(int(np.searchsorted(sizes, flash_bytes)), len(sizes) - 1)
    low, high = (value_at[sizes[i]] for i in (max(0, index - 1), index))
    if sizes[index] <= flash_bytes or low is None:
        # On a point, beyond the last one, or below the first one that is known.
        return high
    return None if high is None else float(np.interp(flash_bytes, sizes[index - 1 : index + 1], [low, high]))


def _caveats(rows: Sequence[CurvePoint], curves: Sequence[SizeCurve], question: SizeQuestion) -> Iterator[CaveatView]:
    yield from caveats_of_curves(curves, None, question)
    yield from caveats_of_sample(rows, question.trace.request_bytes_p99)
    yield CaveatView("only_client_operations", "note", _UNSEEN)
