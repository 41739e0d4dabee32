"""Whether an OSD's own limit on what is in flight held clients back, from the counters of its throttles.

A messenger that finds a throttle full tries again a millisecond later, and each try is counted (`get_or_fail_fail`);
who waits for one is counted by `wait` (src/common/Throttle.cc). So the share is of tries, not of messages. A message
that is held back has not been received yet: its wait is in none of the OSD's latencies.
"""

from __future__ import annotations

import pyarrow as pa

from bathyscope.analysis.columns import floats, strings, where
from bathyscope.records.account import Throttle
from bathyscope.records.figure import Figure

HELD_LIMIT = 0.05
# Section of the throttle → the option that sets it.
_OPTIONS = {
    "throttle-osd_client_messages": "osd_client_message_cap",
    "throttle-osd_client_bytes": "osd_client_message_size_cap",
    "throttle-bluestore_throttle_bytes": "bluestore_throttle_bytes",
    "throttle-bluestore_throttle_deferred_bytes": "bluestore_throttle_deferred_bytes",
}


def throttles(perf: pa.Table, osds: frozenset[int] | None) -> tuple[Throttle, ...]:
    """Return the throttles that held at least HELD_LIMIT of their requests back, the worst first."""
    rows = where(perf, section=list(_OPTIONS)) if perf.num_rows else perf
    if rows.num_rows == 0 or not osds:
        return ()
    grouped = rows.group_by(["daemon", "section", "name"], use_threads=False).aggregate(
        [("delta", "sum"), ("count", "sum")]
    )
    grown: dict[tuple[str, str], dict[str, float]] = {}
    columns = zip(
        *(strings(grouped, name) for name in ("daemon", "section", "name")),
        floats(grouped, "delta_sum").tolist(),
        floats(grouped, "count_sum").tolist(),
        strict=True,
    )
    for daemon, section, name, delta, count in columns:
        grown.setdefault((daemon, section), {})[name] = count if name == "wait" else delta
    held = []
    for (daemon, section), counts in grown.items():
        got = counts.get("get", 0.0)
        refused = counts.get("get_or_fail_fail", 0.0) + counts.get("wait", 0.0)
        share = refused / (got + refused) if refused > 0 else 0.0
        if share >= HELD_LIMIT and daemon in {f"osd.{osd}" for osd in osds}:
            held.append(Throttle(daemon, _OPTIONS[section], Figure(share, "ratio", samples=round(got + refused))))
    return tuple(sorted(held, key=lambda one: -(one.held_share.value or 0.0)))
