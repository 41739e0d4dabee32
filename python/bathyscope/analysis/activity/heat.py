"""Who did how much when: images and OSDs over time, as the colours of a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from bathyscope.analysis.activity import ops, words
from bathyscope.analysis.activity.images import IMAGES, Images
from bathyscope.analysis.activity.shape import Question, seen, seen_bins, spread
from bathyscope.records.blocks import HeatMap, Unit

_BINS_MOST = 120
_BIN_LEAST_NS = 5_000_000_000
# Single operations have their own times, counters those of their collections.
_BIN_LEAST_OF_OPS_NS = 250_000_000
# More rows than these are too thin to be told apart; the busiest are kept.
_IMAGES_MOST = 30
_OSDS_MOST = 60


def bin_ns(question: Question) -> int:
    """Return the length of a bin of time in the pictures of a question."""
    least_ns = _BIN_LEAST_OF_OPS_NS if question.of_ops else _BIN_LEAST_NS
    return max(least_ns, -(-(question.end_ns - question.start_ns) // _BINS_MOST))


def bin_count(question: Question) -> int:
    """Return how many bins the time has; the last may be cut off."""
    return max(1, -(-(question.end_ns - question.start_ns) // bin_ns(question)))


def queries(question: Question) -> Mapping[str, str]:
    """Return the operations of images, and the operations and latencies of OSDs, bin by bin."""
    length_ns = bin_ns(question)
    timed = spread(
        question,
        ops.perf_counter(question, length_ns),
        length_ns,
        "section = 'osd' AND name IN ('op_r_latency', 'op_w_latency', 'op_rw_latency')",
    )
    return {
        "images": "SELECT * FROM (SELECT *, sum(ops) OVER (PARTITION BY pool, namespace, image, image_id) AS total "
        "FROM ("
        "SELECT place, pool, namespace, image, image_id, sum((read_count + write_count) * weight) AS ops "
        f"FROM {spread(question, ops.image_io(question, length_ns), length_ns)} GROUP BY ALL)) "
        # An image may be known by its id at first and by its name then.
        f"QUALIFY dense_rank() OVER (ORDER BY total DESC) <= {2 * _IMAGES_MOST}",
        "known": IMAGES,
        "osds": "SELECT place, daemon, sum(delta * weight) AS seconds, sum(count * weight) AS ops "
        f"FROM {timed} GROUP BY ALL",
        "groups": "SELECT place, 'osd.' || osd AS daemon, sum((read_count + write_count) * weight) AS ops "
        f"FROM {spread(question, 'pg_io', length_ns)} GROUP BY ALL",
        "images_seen": seen(question, *words.IMAGE_SOURCES),
        "counters_seen": seen(question, "perf_counters"),
        "groups_seen": seen(question, "pg_stats"),
    }


def build(tables: Mapping[str, pa.Table], question: Question) -> tuple[HeatMap, ...]:
    """Return the pictures that have something to show."""
    image_names = Images(tables["known"])
    images = [(image_names.name(row), row["place"], row["ops"]) for row in tables["images"].to_pylist()]
    osds = tables["osds"].to_pylist()
    counted = [(row["daemon"], row["place"], row["ops"]) for row in osds or tables["groups"].to_pylist()]
    slow = [(row["daemon"], row["place"], row["seconds"] / row["ops"] * 1e9) for row in osds if row["ops"]]
    span = {
        "images": tables["images_seen"],
        "osds": tables["counters_seen" if osds else "groups_seen"],
        "latency": tables["counters_seen"],
    }
    maps = (
        _heat(
            images, question, span["images"], _IMAGES_MOST, name="images", title="I/O of images over time", kind="image"
        ),
        _heat(counted, question, span["osds"], _OSDS_MOST, name="osds", title="I/O of OSDs over time", kind="OSD"),
        _heat(
            slow, question, span["latency"], _OSDS_MOST, name="latency", title="Latency of OSDs over time", kind="OSD"
        ),
    )
    return tuple(heat for heat in maps if heat is not None)


def _heat(
    cells: Sequence[tuple[str, int, float]], question: Question, span: pa.Table, most: int, **about: str
) -> HeatMap | None:
    """Return the picture of (name, bin, value): latencies, or counts, which become rates.

    Where the source was looking, nothing counted is 0; of the rest nothing is known.
    """
    is_rate = about["name"] != "latency"
    bins, length_ns = bin_count(question), bin_ns(question)
    share = seen_bins(span, question, length_ns, bins)
    looked_at = np.isfinite(share)
    rows: dict[str, np.ndarray[tuple[int], np.dtype[np.float64]]] = {}
    for row, bin_index, value in cells:
        if 0 <= bin_index < bins and looked_at[bin_index]:
            line = rows.setdefault(row, np.where(looked_at & is_rate, 0.0, np.nan))
            line[bin_index] = (0.0 if np.isnan(line[bin_index]) else line[bin_index]) + value / (
                length_ns / 1e9 * share[bin_index] if is_rate else 1.0
            )
    if not rows:
        return None
    names = sorted(rows, key=lambda row: -float(np.nansum(rows[row])))[:most]
    if about["kind"] == "OSD":
        names.sort(key=lambda row: int(row.removeprefix("osd.")))
    values = tuple(tuple(None if np.isnan(value) else float(value) for value in rows[row]) for row in names)
    unit: Unit = "1/s" if is_rate else "ns"
    return HeatMap(names=tuple(names), unit=unit, start_ns=question.start_ns, bin_ns=length_ns, values=values, **about)
