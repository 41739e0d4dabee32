"""The OSDs' latency histograms → how many operations took how long, between one look and the next.

`perf histogram dump` counts the client operations of an OSD since it started by latency and size, for reads, for
writes, and for those that do both. Its axis of latency is called "usec" and is in nanoseconds (16.2 to 20.2). It has
32 buckets: the first is below 0 (a clock that went back), the next below 0.1 ms, from there each bound is twice the one
before, and the last has no upper bound. The sizes are added up here.

The latency is the one of `osd.op_r_latency`: from the receipt of the message to the reply, in the primary. So there are
percentiles of all clients together at any time, for some 20 KB a look and without a change of the cluster, in steps of
a factor of two and none below 0.1 ms. An op history tells single operations.

A restarted OSD counts from zero: that interval has no rows. One that did not answer for a while has one longer
interval.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from bathyscope.fields import as_dict, as_int, as_list, parsing
from bathyscope.host import Request
from bathyscope.records import OsdLatencyBucket, RawAnswer, Record, Tables
from bathyscope.sources.shape import Columns, Source, intervals, spread, tell
from bathyscope.spec.scope import Scope

# 200 answers are some 4 MB a look.
ASKED_MAX = 200
_DUMP = "osd_histograms"
# Reads that write are in a second histogram as well, by the bytes that they return.
_OPS = {
    "op_r_latency_out_bytes_histogram": "read",
    "op_w_latency_in_bytes_histogram": "write",
    "op_rw_latency_in_bytes_histogram": "read-modify-write",
}

# (operation, latency from, latency below or None) → operations
_Buckets = Counter[tuple[str, int, int | None]]


class OsdLatencyHistograms:
    """`perf histogram dump` of the OSDs that are asked, at most ASKED_MAX of them."""

    name = "osd_latency_histograms"
    records: tuple[type[Record], ...] = (OsdLatencyBucket,)
    period_s = 10.0
    timeout_s = 10.0
    differences = True

    def plan(self, scope: Scope) -> Sequence[Request]:
        """Return one request for each OSD."""
        osds = spread(scope.asked_osds, ASKED_MAX)
        return [tell(_DUMP, osd, "perf histogram dump", self.timeout_s, logger="osd") for osd in osds]

    def parse(self, answers: Sequence[RawAnswer], scope: Scope) -> Tables:  # noqa: ARG002 - the shape of a source
        """Return a row for each bucket to which an interval added operations."""
        columns = Columns(OsdLatencyBucket)
        for daemon, (start_ns, old), (at_ns, new) in intervals(answers, _DUMP):
            with parsing(f"histograms of {daemon}"):
                osd = as_int(daemon.removeprefix("osd."))
                earlier, later = _buckets(old), _buckets(new)
            if any(later[bucket] < count for bucket, count in earlier.items()):
                continue
            for (op, low_ns, high_ns), count in (later - earlier).items():
                columns.add(
                    at_ns=at_ns,
                    duration_ns=at_ns - start_ns,
                    osd=osd,
                    op=op,
                    latency_min_ns=low_ns,
                    latency_max_ns=high_ns,
                    op_count=count,
                )
        return {OsdLatencyBucket: columns.table()}


SOURCE: Source = OsdLatencyHistograms()


def _buckets(dump: dict[str, Any]) -> _Buckets:
    """Return what a dump counted, all sizes together. Raises ValueError and what reading foreign values does."""
    buckets: _Buckets = Counter()
    histograms = as_dict(dump.get("osd", {}))
    for name, op in _OPS.items():
        if name not in histograms:
            continue
        histogram = as_dict(histograms[name])
        axis = as_dict(as_list(histogram["axes"])[0])
        if not str(axis["name"]).startswith("Latency"):
            raise ValueError(f"the first axis of {name} is {axis['name']!r:.40}")
        for bounds, counts in zip(as_list(axis["ranges"]), as_list(histogram["values"]), strict=True):
            low_ns = max(0, as_int(as_dict(bounds).get("min", 0)))
            high_ns = as_int(bounds["max"]) + 1 if "max" in bounds else None
            buckets[op, low_ns, high_ns] += sum(as_int(count) for count in as_list(counts))
    return buckets
