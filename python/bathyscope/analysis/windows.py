"""Joins samples with windows of time: what belongs to a bench step, an hour of a recording, an incident.

Three rules, by what a row is:

- A load generator's own answer names its step.
- An interval of devices, simulated disks, network interfaces or processes is cut to the window: what was counted is
  taken in proportion to the overlap, as if it had been spread evenly over the interval.
- Perf counters are read before a load and after it, so their intervals hold the ramp and the idle edges as well. They
  are taken whole, with their own length (`counted_s`), when they overlap the load.

The I/O of pools is taken whole, too: its counters are reported every few seconds. An op belongs to the window that
holds its moment, and so does a look at the operations in flight. Looks at the cluster are those in the window, the last
one before it and the first one after it: a look is a moment, and what it sees began earlier or goes on.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bathyscope.analysis.columns import Floats, Tables, by_step, floats, ints
from bathyscope.records import (
    RECORDS_BY_TABLE,
    CgroupSample,
    ClusterStatus,
    DeviceSample,
    EnvironmentFact,
    HealthCheck,
    NetworkSample,
    Op,
    OsdLatency,
    PerfCounter,
    PoolIo,
    PoolWait,
    ProcessSample,
    Record,
    SimulatedDiskSample,
    Step,
    schema_of,
)

# The OSDs keep a few seconds of operations, so only the end of a step is asked for: an older operation that is missing
# was not lost.
OP_WINDOW_NS = 2_500_000_000
LOOK_BEFORE_NS = 1_000_000_000

_CUT = (
    CgroupSample.TABLE, DeviceSample.TABLE, NetworkSample.TABLE, ProcessSample.TABLE, SimulatedDiskSample.TABLE,
)  # fmt: skip
_LOOKS = (ClusterStatus.TABLE, HealthCheck.TABLE, OsdLatency.TABLE)
_WHOLE = (PerfCounter.TABLE, PoolIo.TABLE)
_MOMENTS = (Op.TABLE, PoolWait.TABLE)


class Windows:
    """The tables of a run, sorted by time once, so that the window of each of many steps is a slice."""

    def __init__(self, tables: Tables) -> None:
        facts = tables.get(EnvironmentFact.TABLE)
        self._always = {} if facts is None else {EnvironmentFact.TABLE: facts}
        self._by_step = {name: by_step(t) for name, t in tables.items() if "step_index" in t.column_names}
        self._samples = {
            name: Samples(RECORDS_BY_TABLE[name], table)
            for name, table in tables.items()
            if name in (*_CUT, *_LOOKS, *_WHOLE, *_MOMENTS) and table.num_rows
        }

    def of_step(self, step: Step) -> dict[str, pa.Table]:
        """Return every table that has rows of the step; samples are cut to its window by the rules above.

        Facts hold for the whole run.
        """
        found = self._always | {
            name: steps[step.step_index] for name, steps in self._by_step.items() if step.step_index in steps
        }
        for name, samples in self._samples.items():
            if name == Op.TABLE:
                rows = _ops(samples, step)
            elif name in _LOOKS:
                rows = samples.around(step.started_ns, step.ended_ns)
            elif name == PoolWait.TABLE:
                rows = samples.events(step.measured_start_ns, step.measured_end_ns)
            elif name in _WHOLE:
                rows = samples.overlap(step.started_ns, step.ended_ns)[0]
            else:
                rows = samples.cut(step.measured_start_ns, step.measured_end_ns)
            if rows.num_rows:
                found[name] = rows
        return found


def _ops(samples: Samples, step: Step) -> pa.Table:
    """Return the ops of a step's last seconds (all of a short one).

    The sample is complete only where the history also reached back to the beginning of that window.
    """
    since_ns = max(step.measured_start_ns, step.measured_end_ns - OP_WINDOW_NS)
    ops = samples.events(since_ns, step.measured_end_ns)
    reached = pc.less_equal(ops.column("complete_since_ns"), pa.scalar(since_ns))
    complete = pc.and_(ops.column("complete_sample"), reached)
    return ops.set_column(ops.column_names.index("complete_sample"), "complete_sample", complete)


class Samples:
    """The rows of a sample in order of their time. `_longest_ns` bounds how far beyond a window an interval may end."""

    def __init__(self, record: type[Record], table: pa.Table) -> None:
        time, schema = str(record.TIME), schema_of(record)
        summed = [field.name for field in schema if (field.metadata or {}).get(b"roll_up") == b"sum"]
        self._summed = [name for name in summed if name != "duration_ns"]
        self._table = table.sort_by(time)
        self._at = ints(self._table, time)
        # An event has no length, not even an op: its time is its beginning.
        is_interval = "duration_ns" in schema.names and time == "at_ns"
        self._lengths = ints(self._table, "duration_ns") if is_interval else 0 * self._at
        self._longest_ns = int(self._lengths.max(initial=0))

    def events(self, start_ns: int, end_ns: int) -> pa.Table:
        """Return the rows whose moment lies in the window, both ends included."""
        low, high = np.searchsorted(self._at, start_ns, "left"), np.searchsorted(self._at, end_ns, "right")
        return self._table.slice(int(low), int(high - low))

    def around(self, start_ns: int, end_ns: int) -> pa.Table:
        """Return the looks inside a window, and the ones before and after it: what they saw was so at its edges.

        A look before counts when it is no older than a second; the one after is the first that was taken.
        """
        before = self._at[(self._at < start_ns) & (self._at >= start_ns - LOOK_BEFORE_NS)]
        after = self._at[self._at > end_ns]
        low = int(before.max()) if before.size else start_ns
        return self.events(low, int(after.min()) if after.size else end_ns)

    def overlap(self, start_ns: int, end_ns: int) -> tuple[pa.Table, Floats, Floats]:
        """Return the overlapping intervals, and where each begins and ends inside the window."""
        low = int(np.searchsorted(self._at, start_ns, "right"))
        high = int(np.searchsorted(self._at, end_ns + self._longest_ns, "left"))
        rows, at = self._table.slice(low, high - low), self._at[low:high]
        begin = at - self._lengths[low:high]
        inside = (begin < end_ns) & (at > begin)
        return rows.filter(pa.array(inside)), np.maximum(begin, start_ns)[inside], np.minimum(at, end_ns)[inside]

    def cut(self, start_ns: int, end_ns: int) -> pa.Table:
        """Return the intervals inside a window, those at its ends in proportion to the overlap.

        `at_ns` and `duration_ns` become those of the overlap; columns that add up become float64.
        """
        rows, begin, end = self.overlap(start_ns, end_ns)
        if rows.num_rows == 0:
            return rows
        share = (end - begin) / floats(rows, "duration_ns")
        columns: Mapping[str, Floats] = {
            **{name: floats(rows, name) * share for name in self._summed},
            "duration_ns": end - begin,
            "at_ns": end,
        }
        for name, values in columns.items():
            rows = rows.set_column(rows.column_names.index(name), name, pa.array(values))
        return rows


def counted_s(perf: pa.Table) -> float | None:
    """Return the time that the perf counters of a step span, the mean over the daemons; None when there are none."""
    if perf.num_rows == 0:
        return None
    spans = perf.group_by(["daemon", "at_ns"], use_threads=False).aggregate([("duration_ns", "max")])
    each = spans.group_by("daemon", use_threads=False).aggregate([("duration_ns_max", "sum")])
    return float(np.mean(floats(each, "duration_ns_max_sum"))) / 1e9
