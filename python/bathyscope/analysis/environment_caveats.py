"""What limits the use of every figure of a run: the state of the cluster, of this machine and of the target before it.

Pure functions of the tables of the segment before the run, so that a run that is parsed again has the same caveats.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Iterator, Sequence

from bathyscope.analysis.columns import Tables, table_of
from bathyscope.records import Caveat, ClusterStatus, EnvironmentFact, HealthCheck, OsdLatency, from_table

SLOW_OSD_FACTOR = 3.0
SLOW_OSD_MS = 10.0
_NOTED_CHECKS_MAX = 6


def environment_caveats(tables: Tables, target: Iterable[tuple[str, str]] = ()) -> list[Caveat]:
    """Return the caveats of the whole run.

    `tables`: cluster_status, health_check, osd_latency, placement and environment, from before the run; a missing one
    says nothing. `target`: (code, sentence) that hold for every result on the target.
    """
    return [
        *(Caveat(None, code, "note", text, "target") for code, text in target),
        *_host_caveats(from_table(EnvironmentFact, table_of(tables, "environment"))),
        *_cluster_caveats(tables),
        *_slow_osd(from_table(OsdLatency, table_of(tables, "osd_latency"))),
    ]


def _caveat(code: str, severity: str, text: str) -> Caveat:
    return Caveat(None, code, severity, text, "preflight")


def _cluster_caveats(tables: Tables) -> Iterator[Caveat]:
    """Yield what the first look at the cluster says."""
    looks = from_table(ClusterStatus, table_of(tables, "cluster_status"))
    first = min(looks, key=lambda look: look.at_ns, default=None)
    if first is None:
        return
    if first.health != "HEALTH_OK":
        checks = [c for c in from_table(HealthCheck, table_of(tables, "health_check")) if c.at_ns == first.at_ns]
        texts = "; ".join(f"{check.code}: {check.message}" for check in checks[:_NOTED_CHECKS_MAX])
        yield _caveat("health", "note", f"the cluster was in {first.health} before the run: {texts}")
    if first.pg_scrubbing_count:
        text = f"{first.pg_scrubbing_count} placement groups were being scrubbed before the run"
        yield _caveat("scrubbing", "warning", text)
    if first.osds_down:
        down, total = len(first.osds_down.split()), table_of(tables, "placement").num_rows
        count = f"{down} of {total}" if total else str(down)
        yield _caveat("osds_down", "warning", f"{count} OSDs were down before the run")


def _slow_osd(rows: Sequence[OsdLatency]) -> Iterator[Caveat]:
    """Yield the OSD whose commit latency stands out from the others', if one does."""
    first_ns = min((row.at_ns for row in rows), default=None)
    latencies = {row.osd: row.commit_latency_ms for row in rows if row.at_ns == first_ns}
    if len(latencies) < 3:
        return
    osd = max(latencies, key=latencies.__getitem__)
    median = statistics.median(latencies.values())
    if latencies[osd] >= SLOW_OSD_MS and latencies[osd] >= SLOW_OSD_FACTOR * max(median, 1.0):
        text = (
            f"osd.{osd} commits in {latencies[osd]:.0f} ms where the median OSD takes {median:.0f} ms: "
            "check its device before you trust a comparison"
        )
        yield _caveat("slow_osd", "warning", text)


def _host_caveats(facts: Sequence[EnvironmentFact]) -> Iterator[Caveat]:
    """Yield what this machine, the load's client, says of itself."""
    values = {fact.name: fact.value for fact in facts if fact.moment == "before" and fact.subject.startswith("host ")}
    governor = values.get("governor", "performance")
    if governor != "performance":
        text = f"this machine's CPU governor is '{governor}': latencies at low queue depth are higher than necessary"
        yield _caveat("cpu_governor", "note", text)
    # "0.52 0.58 0.59 1/389 12345"
    load, processors = re.match(r"[0-9]+(\.[0-9]+)?", values.get("loadavg", "")), values.get("cpu_count", "")
    if load and processors.isdigit() and float(load[0]) > int(processors):
        text = f"this machine's load average was {float(load[0]):.1f} on {processors} processors before the run"
        yield _caveat("client_busy", "warning", text)
