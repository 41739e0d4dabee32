"""Joins samples with windows of time, in SQL: what belongs to a bench step, an hour of a recording, the last seconds.

What a row is says how it belongs to a window (the store carries the SQL out, `bathyscope.window` says over what):

- An interval of devices, processes, images and so on is cut to the window: what was counted is taken in proportion to
  the overlap, as if it had been spread evenly over the interval (`overlaps`, `share`).
- Perf counters around a bench step are read before its load and after it, so their interval holds the ramp and the
  idle edges as well. They are taken whole, with their own length (`counted_s`), when they overlap the load. The I/O of
  pools is taken whole, too: its counters are reported every few seconds.
- A moment belongs to the window that holds it: an op, a look at the operations in flight.
- Looks at the cluster are those in the window, the last one before it and the first one after it: what a look sees
  began earlier or goes on.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa

from bathyscope.analysis.columns import floats, ints
from bathyscope.records import (
    RECORDS_BY_TABLE,
    ClusterStatus,
    Collection,
    HealthCheck,
    Op,
    OsdLatency,
    PerfCounter,
    PoolIo,
    Record,
    Step,
    schema_of,
)
from bathyscope.records.roll_up import joined

# The OSDs keep a few seconds of operations, so only the end of a step is asked for: an older operation that is missing
# was not lost.
OP_WINDOW_NS = 2_500_000_000
LOOK_BEFORE_NS = 1_000_000_000
# The column of `queries` that says to which of the windows a row belongs. No record has a column of such a name.
WINDOW = "#window"

WHOLE = (PerfCounter.TABLE, PoolIo.TABLE)
"""What is not cut to the window of a bench step."""
_LOOKS = (ClusterStatus.TABLE, HealthCheck.TABLE, OsdLatency.TABLE)


class Span(Protocol):
    """A part of time: ns since the Unix epoch, or SQL for them."""

    @property
    def start_ns(self) -> int | str:
        """Where it begins."""

    @property
    def end_ns(self) -> int | str:
        """Where it ends."""


def overlaps(span: Span) -> str:
    """Return the SQL condition for intervals that reach into a span; `share` weighs them."""
    return f"at_ns > {span.start_ns} AND at_ns - duration_ns < {span.end_ns} AND duration_ns > 0"


def share(span: Span) -> str:
    """Return the SQL for the share of an interval that lies in a span; below 0 if it does not reach into it.

    What was counted is multiplied by this: the product of an hour in ns and its operations is beyond 64 bits.
    """
    return f"((least(at_ns, {span.end_ns}) - greatest(at_ns - duration_ns, {span.start_ns})) / duration_ns)"


@dataclasses.dataclass(frozen=True, slots=True)
class Window:
    """A window: what is counted from `start_ns` to `end_ns`, of a load that was there from `began_ns` to `ended_ns`.

    Of single operations those that began from `ops_since_ns` on are taken.
    """

    start_ns: int
    end_ns: int
    began_ns: int
    ended_ns: int
    ops_since_ns: int


def of_time(start_ns: int, end_ns: int) -> Window:
    """Return a window of time in which whatever was there went on."""
    return Window(start_ns, end_ns, start_ns, end_ns, start_ns)


def of_step(step: Step) -> Window:
    """Return the window of a bench step: its measured time, without the ramp."""
    return Window(
        step.measured_start_ns,
        step.measured_end_ns,
        step.started_ns,
        step.ended_ns,
        max(step.measured_start_ns, step.measured_end_ns - OP_WINDOW_NS),
    )


@dataclasses.dataclass(frozen=True, slots=True)
class SqlSpan:
    """A part of time by the SQL of its bounds, for spans that a query itself makes."""

    start_ns: str
    end_ns: str


_MEASURED, _LOADED = SqlSpan("w.start_ns", "w.end_ns"), SqlSpan("w.began_ns", "w.ended_ns")


def queries(tables: Iterable[str], windows: Sequence[Window]) -> Mapping[str, str]:
    """Return, of those of `tables` that are samples, the SELECT of their rows in each window, in order of their time.

    A row stands once for each window that it belongs to; the column WINDOW has the window's number, from 0.
    """
    # What asking cost is no sample of the cluster.
    records = [record for name in tables if (record := RECORDS_BY_TABLE[name]) is not Collection]
    selects = {}
    for record in [record for record in records if record.TIME is not None and windows]:
        # Rows of one moment stay in the order in which they were read: the same run gives the same figures.
        rows = f'(SELECT *, row_number() OVER () AS "#row" FROM "{record.TABLE}")'
        selects[record.TABLE] = (
            f'SELECT * EXCLUDE ("#row") FROM ({_inside(record, rows, windows, WHOLE)}) '
            f'ORDER BY "{WINDOW}", {record.TIME}, "#row"'
        )
    return selects


def joined_in(record: type[Record], window: Window, condition: str = "true") -> str:
    """Return the SELECT of what a sample says of all of a window, cut to it: one row for each key."""
    rows = f'(SELECT * FROM "{record.TABLE}" WHERE {condition})'
    return joined(schema_of(record), f"({_inside(record, rows, [window], ())})")


def rows_in(record: type[Record], window: Window) -> str:
    """Return the SELECT of the rows of a sample in a window, in no order."""
    return f'SELECT * EXCLUDE ("{WINDOW}") FROM ({_inside(record, record.TABLE, [window], ())})'


def _inside(record: type[Record], rows: str, windows: Sequence[Window], whole: Container[str]) -> str:
    """Return the SELECT of `rows` of a record in each of some windows; intervals of the tables `whole` are not cut."""
    values = ", ".join(str((number, *dataclasses.astuple(each))) for number, each in enumerate(windows))
    fields = ", ".join(field.name for field in dataclasses.fields(Window))
    listed = f'(VALUES {values}) AS w("{WINDOW}", {fields})'
    name, time, schema, replaced = record.TABLE, str(record.TIME), schema_of(record), ""
    if name in _LOOKS:
        # The nearest looks before and after each window.
        looks = f"(SELECT DISTINCT {time} AS look_ns FROM {rows})"
        listed = (
            f"(SELECT w.*, CASE WHEN before.look_ns >= w.began_ns - {LOOK_BEFORE_NS} THEN before.look_ns END "
            f"AS first_ns, after.look_ns AS last_ns FROM {listed} "
            f"ASOF LEFT JOIN {looks} AS before ON w.began_ns > before.look_ns "
            f"ASOF LEFT JOIN {looks} AS after ON w.ended_ns < after.look_ns) AS w"
        )
        condition = f"t.{time} BETWEEN coalesce(w.first_ns, w.began_ns) AND coalesce(w.last_ns, w.ended_ns)"
    elif name in whole:
        condition = overlaps(_LOADED)
    elif record is Op:
        condition = f"t.{time} BETWEEN w.ops_since_ns AND w.end_ns"
        # The sample is complete only where the history also reached back to the beginning of the window.
        replaced = "complete_sample AND complete_since_ns <= w.ops_since_ns AS complete_sample"
    elif "duration_ns" in schema.names and time == "at_ns":
        condition = overlaps(_MEASURED)
        begins, ends = "greatest(at_ns - duration_ns, w.start_ns)", "least(at_ns, w.end_ns)"
        summed = [field.name for field in schema if (field.metadata or {}).get(b"roll_up") == b"sum"]
        parts = [f'"{column}" * {share(_MEASURED)} AS "{column}"' for column in summed if column != "duration_ns"]
        replaced = ", ".join([*parts, f"{ends} - {begins} AS duration_ns", f"{ends} AS at_ns"])
    else:
        condition = f"t.{time} BETWEEN w.start_ns AND w.end_ns"
    columns = f"t.* REPLACE ({replaced})" if replaced else "t.*"
    return f'SELECT w."{WINDOW}", {columns} FROM {listed} JOIN {rows} AS t ON {condition}'


def by_window(table: pa.Table) -> dict[int, pa.Table]:
    """Return the rows of each window that has any, by its number, of what a SELECT of `queries` gave."""
    if not table.num_rows:
        return {}
    numbers = ints(table, WINDOW)
    rows = table.drop_columns([WINDOW])
    windows, starts = np.unique(numbers, return_index=True)
    ends = np.append(starts[1:], len(numbers))
    return {int(n): rows.slice(int(a), int(b - a)) for n, a, b in zip(windows, starts, ends, strict=True)}


def counted_s(perf: pa.Table) -> float | None:
    """Return the time that the perf counters of a step span, the mean over the daemons; None when there are none."""
    if perf.num_rows == 0:
        return None
    spans = perf.group_by(["daemon", "at_ns"], use_threads=False).aggregate([("duration_ns", "max")])
    each = spans.group_by("daemon", use_threads=False).aggregate([("duration_ns_max", "sum")])
    return float(np.mean(floats(each, "duration_ns_max_sum"))) / 1e9
