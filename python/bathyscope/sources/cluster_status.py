"""The cluster's health, its placement groups and its OSDs' latencies, look by look: three small commands.

An OSD that goes down takes with it what it counted since its last report, whoever asked for the counts. The status says
when an OSD went down or came up for the last time (from 15 on), and not which: `uncounted` has it with those that are
down then, as far as the health, which is asked beside the status, knows them already.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bathyscope.fields import as_dict, as_float, as_int, as_list, parsing
from bathyscope.host import Request
from bathyscope.records import ClusterStatus, HealthCheck, OsdLatency, RawAnswer, Record, Tables, Uncounted
from bathyscope.sources.shape import Columns, Source, ask
from bathyscope.spec.scope import Scope

STATUS, HEALTH, PERF = "status", "health", "osd_perf"
_NOT_CLEAN = ("degraded", "recover", "backfill", "undersized", "remapped", "peering", "stale", "down", "incomplete")
_OSD = re.compile(r"osd\.(\d+) ")
# OSDs report every 5 s. One whose machine is gone is marked down when others have missed it for 20 s by default
# (`osd_heartbeat_grace`), one that was killed within a second or two. The map has whole seconds.
_LOST_NS, _WHOLE_NS = 30_000_000_000, 1_000_000_000
# The look after a change comes that late at most.
_NEWS_NS = 65_000_000_000


class StatusOfCluster:
    """`status`, `health detail` and `osd perf`, asked side by side: one look at the cluster."""

    name = "cluster_status"
    records: tuple[type[Record], ...] = (ClusterStatus, HealthCheck, OsdLatency, Uncounted)
    period_s = 2.0
    timeout_s = 10.0
    differences = False

    def plan(self, scope: Scope) -> Sequence[Request]:
        """Return the requests of one look."""
        if scope.target.kind == "disk":
            return []
        return [
            ask(STATUS, "mon", "status", self.timeout_s),
            ask(HEALTH, "mon", "health", self.timeout_s, detail="detail"),
            ask(PERF, "mgr", "osd perf", self.timeout_s),
        ]

    def parse(self, answers: Sequence[RawAnswer], scope: Scope) -> Tables:  # noqa: ARG002 - the shape of a source
        """Return the rows of every look, all at the time of its first answer.

        A look whose status or health was not answered has no row in the table of the status.
        """
        status_rows, checks, latencies = Columns(ClusterStatus), Columns(HealthCheck), Columns(OsdLatency)
        uncounted = Columns(Uncounted)
        changed_ns = 0
        for at_ns, values in _looks(answers):
            with parsing("the cluster's status"):
                raised = as_dict(values[HEALTH].get("checks", {})) if HEALTH in values else {}
                if STATUS in values and HEALTH in values:
                    status_rows.add(at_ns=at_ns, **_status(values[STATUS], values[HEALTH], raised))
                    before_ns, changed_ns = changed_ns, _changed_ns(values[STATUS])
                    if changed_ns > max(before_ns, at_ns - _NEWS_NS):
                        uncounted.add(source=self.name, **_lost(changed_ns, _osds_down(raised)))
                for code, check in raised.items():
                    severity = str(as_dict(check).get("severity", ""))
                    checks.add(at_ns=at_ns, code=code, severity=severity, message=_message(check))
                for osd, commit_ms, apply_ms in latency_rows(values.get(PERF, {})):
                    latencies.add(at_ns=at_ns, osd=osd, commit_latency_ms=commit_ms, apply_latency_ms=apply_ms)
        return {
            ClusterStatus: status_rows.table(),
            HealthCheck: checks.table(),
            OsdLatency: latencies.table(),
            Uncounted: uncounted.table(),
        }


SOURCE: Source = StatusOfCluster()


def state_counts(status: Any) -> dict[str, int]:
    """Return state → number of placement groups, from `status`. Raises KeyError, TypeError, ValueError."""
    states = as_list(as_dict(as_dict(status).get("pgmap", {})).get("pgs_by_state", []))
    return {str(as_dict(state)["state_name"]): as_int(state["count"]) for state in states}


def latency_rows(perf: Any) -> Iterator[tuple[int, float, float]]:
    """Yield (osd, commit latency, apply latency) in ms from `osd perf`. Raises KeyError, TypeError, ValueError."""
    # Nested in "osdstats" since 15, flat before.
    infos = as_dict(as_dict(perf).get("osdstats", perf)).get("osd_perf_infos", [])
    for info in as_list(infos):
        stats = as_dict(as_dict(info)["perf_stats"])
        yield as_int(info["id"]), as_float(stats["commit_latency_ms"]), as_float(stats["apply_latency_ms"])


def _looks(answers: Sequence[RawAnswer]) -> Iterator[tuple[int, dict[str, dict[str, Any]]]]:
    """Yield (time, label → value of the good answers) of each look: it begins with the question for the status."""
    look: dict[str, dict[str, Any]] = {}
    at_ns = None
    for answer in answers:
        if answer.label not in (STATUS, HEALTH, PERF):
            continue
        if at_ns is None or answer.label == STATUS or answer.label in look:
            if at_ns is not None:
                yield at_ns, look
            at_ns, look = answer.ended_ns, {}
        if answer.exit_code == 0:
            with parsing(answer.label):
                look[answer.label] = as_dict(answer.json())
    if at_ns is not None:
        yield at_ns, look


def _status(status: Mapping[str, Any], health: Mapping[str, Any], checks: Mapping[str, Any]) -> dict[str, Any]:
    states = state_counts(status)
    # A state is several words: active+clean+scrubbing+deep.
    groups = [(frozenset(state.split("+")), count) for state, count in states.items()]

    def having(*words: str) -> int:
        return sum(count for named, count in groups if named.issuperset(words))

    return {
        "health": str(health.get("status", "HEALTH_UNKNOWN")),
        "slow_op_count": _slow_ops(checks),
        "pg_count": sum(states.values()),
        "pg_clean_count": having("active", "clean"),
        "pg_unknown_count": having("unknown"),
        "pg_scrubbing_count": having("scrubbing"),
        "pg_deep_scrubbing_count": having("scrubbing", "deep"),
        "pg_snap_trim_count": having("snaptrim"),
        "pg_snap_trim_wait_count": having("snaptrim_wait"),
        "pg_not_clean": _not_clean(states),
        "osds_down": _osds_down(checks),
    }


def _changed_ns(status: Mapping[str, Any]) -> int:
    """Return when an OSD went down or came up for the last time; 0 where it is not said."""
    return as_int(as_dict(status.get("osdmap", {})).get("osd_up_since", 0)) * 10**9


def _lost(changed_ns: int, down: str | None) -> dict[str, Any]:
    """Return the span in which an OSD may have counted what it never reported."""
    then = f" (down then: {', '.join(f'osd.{osd}' for osd in down.split())})" if down else ""
    reason = f"an OSD went down or came up{then}, and what an OSD counts after its last report is lost when it goes"
    return {"at_ns": changed_ns + _WHOLE_NS, "duration_ns": _LOST_NS + _WHOLE_NS, "reason": reason}


def _slow_ops(checks: Mapping[str, Any]) -> int:
    """Return the number that the message begins with: "12 slow ops, oldest one blocked for 33 sec, osd.3 has …"."""
    if "SLOW_OPS" not in checks:
        return 0
    first = _message(checks["SLOW_OPS"]).split(" ", 1)[0]
    return as_int(first) if first.isdigit() else 1


def _not_clean(states: Mapping[str, int]) -> str | None:
    """Return the states that put data or service at risk, with their counts; None when there is none.

    Scrubbing does not, nor "unknown": that the manager has only not heard of them yet is counted on its own.
    """
    bad = {
        state: count
        for state, count in states.items()
        if state != "unknown" and ("active" not in state or any(word in state for word in _NOT_CLEAN))
    }
    return ", ".join(f"{count} PGs {state}" for state, count in sorted(bad.items())) or None


def _osds_down(checks: Mapping[str, Any]) -> str | None:
    """Return the numbers in the details of OSD_DOWN: "osd.3 (root=default,host=node1) is down"."""
    details = as_list(as_dict(checks.get("OSD_DOWN", {})).get("detail", []))
    numbers = {as_int(match[1]) for detail in details if (match := _OSD.match(str(as_dict(detail).get("message", ""))))}
    return " ".join(map(str, sorted(numbers))) or None


def _message(check: Any) -> str:
    return str(as_dict(as_dict(check).get("summary", {})).get("message", ""))
