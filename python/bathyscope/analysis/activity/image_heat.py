"""Where in an image the I/O was, over time: the image's length cut into rows of a picture."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from bathyscope.analysis.activity import ops
from bathyscope.analysis.activity.heat import bin_count, bin_ns
from bathyscope.analysis.activity.image_objects import ImageObjects, ids_of
from bathyscope.analysis.activity.shape import Question, seen, seen_bins, spread
from bathyscope.analysis.window import overlaps
from bathyscope.rbd_names import NUMBER_SQL
from bathyscope.records.blocks import HeatMap
from bathyscope.units import format_bytes

_ROWS_MOST = 64
# No image has as many objects; names come from outside.
_OBJECTS_MOST = 1 << 52


def queries(question: Question) -> Mapping[str, str]:
    """Return the operations of the question's image for each bin of time and zone of objects.

    Zones are whole objects, and no smaller than what was counted together.
    """
    ids = ids_of(str(question.image))
    place = f"(least(started_ns, {question.end_ns - 1}) - {question.start_ns}) // {bin_ns(question)}"
    zones = spread(question, "zone_io", bin_ns(question), f"image_id IN {ids}")
    return {
        "heat": "WITH objects AS ("
        f"SELECT {NUMBER_SQL} AS first_object, 1 AS object_count, false AS counted, {place} AS place, "
        f"CAST(count(*) AS DOUBLE) AS ops FROM op WHERE image_id IN {ids} AND {ops.moved(question)} GROUP BY ALL "
        "UNION ALL SELECT first_object, object_count, true, place, sum((read_count + write_count) * weight) "
        f"FROM {zones} GROUP BY ALL), "
        f"best AS (SELECT * FROM objects WHERE first_object < {_OBJECTS_MOST} "
        "AND counted = (SELECT bool_or(counted) FROM objects)), "
        "ends AS (SELECT greatest((SELECT max((size_bytes + object_size_bytes - 1) // object_size_bytes) FROM image "
        f"WHERE image_id IN {ids}), max(first_object + object_count)) AS objects, "
        "max(object_count) AS coarsest FROM best), "
        f"shape AS (SELECT objects, ((objects + {_ROWS_MOST - 1}) // {_ROWS_MOST} + coarsest - 1) "
        "// coarsest * coarsest AS width FROM ends) "
        "SELECT first_object // width AS zone, place, sum(ops) AS ops, any_value(width) AS width, "
        "any_value(objects) AS objects, bool_or(counted) AS counted FROM best, shape GROUP BY zone, place",
        "heat_seen": seen(question, "mgr_counters"),
    }


def top_images(question: Question, most: int) -> str:
    """Return the SELECT of the ids of the busiest images of which single objects or zones are counted."""
    operations = (
        f"SELECT nullif(image_id, '') AS image_id, count(*) AS n FROM op WHERE {ops.moved(question)} GROUP BY ALL"
    )
    zones = f"SELECT image_id, read_count + write_count AS n FROM zone_io WHERE {overlaps(question)}"
    return (
        f"SELECT image_id FROM ({operations if question.of_ops else zones}) WHERE image_id IS NOT NULL "
        f"GROUP BY image_id ORDER BY sum(n) DESC, image_id LIMIT {most}"
    )


def build(tables: Mapping[str, pa.Table], question: Question, image: ImageObjects) -> tuple[HeatMap, ...]:
    """Return the picture, if there is something to show."""
    cells = tables["heat"].to_pylist()
    if not cells:
        return ()
    bins = bin_count(question)
    width, objects = cells[0]["width"], cells[0]["objects"]
    if cells[0]["counted"]:
        share = seen_bins(tables["heat_seen"], question, bin_ns(question), bins)
    elif question.of_ops:
        share = np.ones(bins)
    else:
        # Between bursts nobody looked.
        share = np.where(np.isin(np.arange(bins), [cell["place"] for cell in cells]), 1.0, np.nan)
    values = np.where(np.isfinite(share), 0.0, np.full((-(-objects // width), bins), np.nan))
    for cell in cells:
        if 0 <= cell["place"] < bins:
            values[cell["zone"], cell["place"]] += cell["ops"] / (bin_ns(question) / 1e9 * share[cell["place"]])
    return (
        HeatMap(
            name="offsets",
            title=f"I/O of {image.name} by offset over time",
            kind="offset",
            unit="1/s",
            names=tuple(format_bytes(image.offset_of(zone * width)) for zone in range(len(values))),
            start_ns=question.start_ns,
            bin_ns=bin_ns(question),
            values=tuple(tuple(None if np.isnan(value) else float(value) for value in row) for row in values),
        ),
    )
