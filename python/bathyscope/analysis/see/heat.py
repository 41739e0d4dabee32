"""Who did how much when: images and OSDs over time, as the colours of a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from bathyscope.analysis.see.images import IMAGES, Images
from bathyscope.analysis.see.shape import Question, within
from bathyscope.records.activity_finding import Unit
from bathyscope.records.collect_finding import HeatMap

_BINS_MOST = 120
_BIN_LEAST_NS = 5_000_000_000
# More rows than these are too thin to be told apart; the busiest are kept.
_IMAGES_MOST = 30
_OSDS_MOST = 60


def _bin_ns(question: Question) -> int:
    return max(_BIN_LEAST_NS, -(-(question.end_ns - question.start_ns) // _BINS_MOST))


def queries(question: Question) -> Mapping[str, str]:
    """Return the operations of images, and the operations and latencies of OSDs, bin by bin."""
    place = f"(at_ns - duration_ns // 2 - {question.start_ns}) // {_bin_ns(question)}"
    timed = "('op_r_latency', 'op_w_latency', 'op_rw_latency')"
    return {
        "images": f"SELECT {place} AS place, pool, namespace, image, image_id, "
        "CAST(sum(read_count + write_count) AS DOUBLE) AS ops "
        f"FROM image_io WHERE {within(question)} GROUP BY ALL",
        "known": IMAGES,
        "osds": f"SELECT {place} AS place, daemon, sum(delta) AS seconds, CAST(sum(count) AS DOUBLE) AS ops "
        f"FROM perf_counter WHERE section = 'osd' AND name IN {timed} AND {within(question)} GROUP BY ALL",
        "groups": f"SELECT {place} AS place, 'osd.' || osd AS daemon, "
        "CAST(sum(read_count + write_count) AS DOUBLE) AS ops "
        f"FROM pg_io WHERE {within(question)} GROUP BY ALL",
    }


def build(tables: Mapping[str, pa.Table], question: Question) -> tuple[HeatMap, ...]:
    """Return the pictures that have something to show."""
    known = Images(tables["known"])
    images = [(known.name(row), row["place"], row["ops"]) for row in tables["images"].to_pylist()]
    osds = tables["osds"].to_pylist()
    counted = [(row["daemon"], row["place"], row["ops"]) for row in osds or tables["groups"].to_pylist()]
    slow = [(row["daemon"], row["place"], row["seconds"] / row["ops"] * 1e9) for row in osds if row["ops"]]
    seconds = _bin_ns(question) / 1e9
    found = (
        _heat(images, question, _IMAGES_MOST, seconds, name="images", title="I/O of images over time", kind="image"),
        _heat(counted, question, _OSDS_MOST, seconds, name="osds", title="I/O of OSDs over time", kind="OSD"),
        _heat(slow, question, _OSDS_MOST, None, name="latency", title="Latency of OSDs over time", kind="OSD"),
    )
    return tuple(heat for heat in found if heat is not None)


def _heat(
    cells: Sequence[tuple[str, int, float]], question: Question, most: int, rate_s: float | None, **about: str
) -> HeatMap | None:
    """Return the picture of (name, bin, value); `rate_s` makes rates of counts, in which nothing counted is 0."""
    bins = max(1, -(-(question.end_ns - question.start_ns) // _bin_ns(question)))
    rows: dict[str, np.ndarray[tuple[int], np.dtype[np.float64]]] = {}
    for row, place, value in cells:
        if 0 <= place < bins:
            rows.setdefault(row, np.full(bins, np.nan if rate_s is None else 0.0))[place] = value / (rate_s or 1.0)
    if not rows:
        return None
    names = sorted(rows, key=lambda row: -float(np.nansum(rows[row])))[:most]
    if about["kind"] == "OSD":
        names.sort(key=lambda row: int(row.removeprefix("osd.")))
    values = tuple(tuple(None if np.isnan(value) else float(value) for value in rows[row]) for row in names)
    unit: Unit = "ns" if rate_s is None else "1/s"
    return HeatMap(
        names=tuple(names), unit=unit, start_ns=question.start_ns, bin_ns=_bin_ns(question), values=values, **about
    )
