"""What limits every figure of a run: made of the tables from before it alone."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from bathyscope.analysis.environment_caveats import environment_caveats
from bathyscope.records import (
    Caveat,
    ClusterStatus,
    EnvironmentFact,
    HealthCheck,
    OsdLatency,
    Placement,
    Record,
    to_table,
)


def tables(*rows: Record) -> dict[str, pa.Table]:
    classes = {type(row) for row in rows}
    return {cls.TABLE: to_table(cls, [row for row in rows if type(row) is cls]) for cls in classes}


def by_code(rows: Sequence[Caveat]) -> dict[str, str]:
    assert all(row.step_index is None for row in rows)
    return {row.code: f"{row.severity}: {row.text}" for row in rows}


def latencies(*values_ms: float, at_ns: int = 1) -> list[OsdLatency]:
    return [OsdLatency(at_ns, osd, ms, ms) for osd, ms in enumerate(values_ms)]


def test_a_run_without_any_table_has_the_targets_caveats_only() -> None:
    assert environment_caveats({}) == []
    (caveat,) = environment_caveats({}, [("throttle_profile", "the disks are throttled")])
    assert (caveat.code, caveat.severity, caveat.source) == ("throttle_profile", "note", "target")


def test_the_cluster_before_the_run_is_described() -> None:
    found = tables(
        ClusterStatus(1, "HEALTH_WARN", 0, 8, 7, 0, 1, None, "2 5"),
        ClusterStatus(9, "HEALTH_ERR", 0, 8, 7, 0, 8, None, "1 2 3"),
        HealthCheck(1, "OSDMAP_FLAGS", "HEALTH_WARN", "noout flag(s) set"),
        HealthCheck(9, "OSD_FULL", "HEALTH_ERR", "later"),
        *(Placement(osd, "node1", "ssd", None, None, None, None, None, None) for osd in range(6)),
    )
    assert by_code(environment_caveats(found)) == {
        "health": "note: the cluster was in HEALTH_WARN before the run: OSDMAP_FLAGS: noout flag(s) set",
        "scrubbing": "warning: 1 placement groups were being scrubbed before the run",
        "osds_down": "warning: 2 of 6 OSDs were down before the run",
    }
    assert environment_caveats(tables(ClusterStatus(1, "HEALTH_OK", 0, 8, 8, 0, 0, None, None))) == []


def test_the_one_slow_osd_is_named() -> None:
    (caveat,) = environment_caveats(tables(*latencies(3, 90, 4), *latencies(3, 4, 4, at_ns=2)))
    assert caveat.code == "slow_osd"
    assert "osd.1 commits in 90 ms where the median OSD takes 4 ms" in caveat.text
    assert environment_caveats(tables(*latencies(3, 4, 5))) == []
    assert environment_caveats(tables(*latencies(3, 90))) == []


def test_the_governor_and_a_busy_machine_are_caveats() -> None:
    facts = {"governor": "powersave", "loadavg": "9.0 1 1 1/1 1", "cpu_count": "2"}
    found = tables(*(EnvironmentFact("before", "host node1", name, value) for name, value in facts.items()))
    assert set(by_code(environment_caveats(found))) == {"cpu_governor", "client_busy"}
    after = tables(*(EnvironmentFact("after", "host node1", name, value) for name, value in facts.items()))
    assert environment_caveats(after) == []
    facts |= {"governor": "performance", "loadavg": "?"}
    found = tables(*(EnvironmentFact("before", "host node1", name, value) for name, value in facts.items()))
    assert environment_caveats(found) == []
