"""What each OSD did for clients as their primary: from its own counters, else from its placement groups' statistics."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from bathyscope.analysis.activity import ops, words
from bathyscope.analysis.activity.shape import NOT_KNOWN, Question, seconds_of, seen, sums, trend
from bathyscope.analysis.columns import where
from bathyscope.analysis.window import overlaps, share

_COUNTERS = {
    "op_r": "read_count",
    "op_w": "write_count",
    # Operations that read and write, of which a clone's first write is one: they are writes to whoever waits.
    "op_rw": "write_count",
    "op_r_out_bytes": "read_bytes",
    "op_w_in_bytes": "write_bytes",
    "op_rw_in_bytes": "write_bytes",
    "op_r_latency": "read_latency_ns_sum",
    "op_w_latency": "write_latency_ns_sum",
    "op_rw_latency": "write_latency_ns_sum",
}
_COUNTERS_MISSING = (
    "Latencies of the OSDs are not known: their counters were not read, or not those of all. "
    "`ceph tell osd.N perf dump` needs the cap osd 'allow *' (`bathy caps collect --tell`)."
)


@dataclasses.dataclass
class OsdSum:
    """One OSD over the time that is asked for. Latencies are sums; None where they are not known."""

    osd: int
    host: str = ""
    device_class: str = ""
    read_count: int = 0
    write_count: int = 0
    read_bytes: int = 0
    write_bytes: int = 0
    read_latency_ns_sum: float | None = None
    write_latency_ns_sum: float | None = None
    pg_count: int | None = None
    trend: list[float | None] | None = None
    details: tuple[float | None, ...] = ops.detail_cells(None)

    @property
    def node(self) -> str:
        """The node that it is on, in words."""
        return self.host or NOT_KNOWN

    @property
    def ops(self) -> int:
        """Reads and writes together."""
        return self.read_count + self.write_count


def queries(question: Question, *, tails: bool = False) -> Mapping[str, str]:
    """Return what `read` needs; with `tails` the percentiles of single operations, too."""
    names = ", ".join(f"'{name}'" for name in _COUNTERS)
    counted = "section = 'osd' AND daemon LIKE 'osd.%' AND name IN ('op_r', 'op_w', 'op_rw')"
    return {
        "counters_trend": trend(question, "perf_counter", "daemon", "delta", counted),
        "groups_trend": trend(question, "pg_io", "'osd.' || osd AS daemon"),
        "counters": f"SELECT daemon, name, sum(delta * {share(question)}) AS delta FROM perf_counter "
        f"WHERE section = 'osd' AND daemon LIKE 'osd.%' AND name IN ({names}) AND {overlaps(question)} GROUP BY ALL",
        "asked": f"SELECT DISTINCT daemon FROM perf_counter WHERE section = 'osd' AND {overlaps(question)}",
        "groups": "SELECT osd, count(DISTINCT pg) AS pg_count, "
        f"{sums(question, 'read_count', 'write_count', 'read_bytes', 'write_bytes')} "
        f"FROM pg_io WHERE {overlaps(question)} GROUP BY osd",
        "placement": "SELECT DISTINCT osd, host, device_class FROM placement",
        # Of an imported log operations are all there is.
        "ops": ops.sums(question, "osd AS number", {"osd": "number"}, tails=tails)
        if question.of_ops
        else "SELECT NULL AS osd WHERE false",
        "ops_groups": "SELECT osd, count(DISTINCT pg) AS pg_count FROM op "
        f"WHERE {ops.moved(question) if question.of_ops else 'false'} GROUP BY osd",
        "counters_seen": seen(question, "perf_counters"),
        "groups_seen": seen(question, "pg_stats"),
        "uncounted": words.uncounted(question, "pg_stats"),
    }


def read(tables: Mapping[str, pa.Table]) -> tuple[list[OsdSum], float, bool]:
    """Return every OSD of the map in order, the seconds that were seen, and whether latencies are known."""
    osds = {row["osd"]: OsdSum(row["osd"], row["host"], row["device_class"]) for row in tables["placement"].to_pylist()}
    if tables["ops"].num_rows:
        _from_ops(osds, tables)
        return [osds[osd] for osd in sorted(osds)], seconds_of(tables["counters_seen"]), True
    groups = {row["osd"]: row for row in tables["groups"].to_pylist()}
    asked = {int(row["daemon"].removeprefix("osd.")) for row in tables["asked"].to_pylist()}
    for osd in (*groups, *asked):
        osds.setdefault(osd, OsdSum(osd))
    # Of one source for all OSDs: counters of some beside the groups of others would be compared with each other.
    counted = bool(asked) and asked >= {osd for osd, row in groups.items() if row["read_count"] + row["write_count"]}
    if counted:
        _from_counters(osds, tables["counters"].to_pylist())
    for osd, row in groups.items():
        osds[osd].pg_count = row["pg_count"]
        if not counted:
            for name in ("read_count", "write_count", "read_bytes", "write_bytes"):
                setattr(osds[osd], name, row[name])
    for row in tables["counters_trend" if counted else "groups_trend"].to_pylist():
        if (found := osds.get(int(row["daemon"].removeprefix("osd.")))) is not None:
            found.trend = row["trend"]
    span = tables["counters_seen" if counted else "groups_seen"]
    return [osds[osd] for osd in sorted(osds)], seconds_of(span), counted


def remarks(tables: Mapping[str, pa.Table], question: Question, *, has_counters: bool) -> tuple[str, ...]:
    """Return what is missing: above all where the OSDs' own counters are not known."""
    # A placement group's counters may be lost where those of its OSD are not.
    spans = where(tables["uncounted"], source=words.OSD_LOST) if has_counters else tables["uncounted"]
    lost, _ = words.not_counted(spans, question)
    return lost if has_counters else (_COUNTERS_MISSING, *lost)


def _from_ops(osds: dict[int, OsdSum], tables: Mapping[str, pa.Table]) -> None:
    groups = {row["osd"]: row["pg_count"] for row in tables["ops_groups"].to_pylist()}
    for row in tables["ops"].to_pylist():
        osd = osds.setdefault(row["osd"], OsdSum(row["osd"]))
        for name in words.COUNTED:
            setattr(osd, name, row[name])
        osd.pg_count, osd.details = groups.get(row["osd"]), ops.detail_cells(row)


def _from_counters(osds: Mapping[int, OsdSum], rows: Iterable[Mapping[str, Any]]) -> None:
    for osd in osds.values():
        osd.read_latency_ns_sum = osd.write_latency_ns_sum = 0.0
    for row in rows:
        osd = osds[int(row["daemon"].removeprefix("osd."))]
        field = _COUNTERS[row["name"]]
        # Ceph's averages are seconds.
        grown = row["delta"] * 1e9 if field.endswith("_ns_sum") else round(row["delta"])
        setattr(osd, field, getattr(osd, field) + grown)
