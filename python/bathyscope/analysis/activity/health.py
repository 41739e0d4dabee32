"""What the cluster says of itself: its health, and each check that it raised."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from bathyscope.analysis.activity.shape import Question, View, finding_of, history_start_ns
from bathyscope.records.activity_finding import ActivityFinding
from bathyscope.records.blocks import Column, Table

_COLUMNS = (
    Column("check", "check", help="code of the health check"),
    Column("now", "now", help="yes: the last look at the cluster found it"),
    Column("severity", "severity", help="HEALTH_WARN or HEALTH_ERR", rank=1),
    Column("first_seen_ns", "first seen", "time", rank=2),
    Column("last_seen_ns", "last seen", "time", rank=3),
    Column("message", "message", help="what the cluster says of it"),
)
_NOT_LOOKED = "The cluster's health is not known: `status` and `health detail` were not answered in this time."
# What puts data or service at risk is said first.
_FIRST = (
    "OSD_DOWN",
    "OSD_HOST_DOWN",
    "PG_AVAILABILITY",
    "PG_DAMAGED",
    "SLOW_OPS",
    "PG_DEGRADED",
    "MGR_DOWN",
    "MON_DOWN",
)


class Health(View):
    """The health checks of the time that is asked for."""

    name = "health"
    help = "what the cluster says of itself: its health, and every check that it raised"
    tables = ("health_checks",)

    def queries(self, question: Question) -> Mapping[str, str]:
        """Return the last state, and when each check was raised."""
        inside = f"at_ns BETWEEN {history_start_ns(question)} AND {question.end_ns}"
        return {
            "status": "SELECT max(at_ns) AS at_ns, arg_max(health, at_ns) AS health "
            f"FROM cluster_status WHERE {inside}",
            "checks": "SELECT code, arg_max(severity, at_ns) AS severity, arg_max(message, at_ns) AS message, "
            f"min(at_ns) AS first_ns, max(at_ns) AS last_ns FROM health_check WHERE {inside} GROUP BY code",
        }

    def build(self, tables: Mapping[str, pa.Table], question: Question) -> ActivityFinding:
        """Return a row for each check, those that still hold first."""
        (status,) = tables["status"].to_pylist()
        looked_ns = status["at_ns"]
        rows = tables["checks"].to_pylist() if looked_ns is not None else []
        rows.sort(key=lambda row: (row["last_ns"] < looked_ns, row["code"] not in _FIRST, row["code"]))
        cells = tuple(
            (
                row["code"],
                "yes" if row["last_ns"] >= looked_ns else "no",
                row["severity"],
                row["first_ns"],
                row["last_ns"],
                row["message"],
            )
            for row in rows
        )
        messages = [row["message"] for row in rows if row["last_ns"] >= looked_ns]
        sentence = "The cluster's health is not known."
        if looked_ns is not None:
            sentence = f"{': '.join(filter(None, (status['health'], '; '.join(messages))))}."
        return finding_of(
            self,
            question,
            sentence,
            Table("health_checks", "health checks", _COLUMNS, cells),
            unseen=() if looked_ns is not None else (_NOT_LOOKED,),
        )


VIEW: View = Health()
