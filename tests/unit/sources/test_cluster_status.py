"""Looks at a cluster: health, placement groups, latencies."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import pytest

from bathyscope.records import ClusterStatus, HealthCheck, OsdLatency, RawAnswer, Uncounted, from_table
from bathyscope.sources.cluster_status import SOURCE
from bathyscope.spec import Target
from bathyscope.spec.scope import Scope

Recorded = Callable[[str], list[RawAnswer]]
VERSIONS = ["16.2.15", "18.2.7", "20.2.4"]
S = 1_000_000_000
SCOPE = Scope(target=Target(name="t"))
LABELS = ("status", "health", "osd_perf")


def parse(answers: list[RawAnswer]) -> tuple[list[ClusterStatus], list[HealthCheck], list[OsdLatency]]:
    tables = SOURCE.parse(answers, SCOPE)
    return (
        from_table(ClusterStatus, tables[ClusterStatus]),
        from_table(HealthCheck, tables[HealthCheck]),
        from_table(OsdLatency, tables[OsdLatency]),
    )


def recorded_look(recorded: Recorded, version: str) -> list[RawAnswer]:
    by_label = {answer.label: answer for answer in recorded(f"environment/{version}/answers")}
    return [by_label[label] for label in LABELS]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_recorded_cluster_is_clean_and_its_osds_have_latencies(recorded: Recorded, version: str) -> None:
    look = recorded_look(recorded, version)
    (status,), checks, latencies = parse(look)
    assert status.at_ns == look[0].ended_ns
    assert status.health.startswith("HEALTH_")
    assert status.pg_count == status.pg_clean_count > 0
    assert (status.pg_unknown_count, status.pg_not_clean, status.osds_down, status.slow_op_count) == (0, None, None, 0)
    assert {check.code for check in checks} == set(look[1].json().get("checks", {}))
    assert all(check.message and check.severity == "HEALTH_WARN" for check in checks)
    assert sorted(row.osd for row in latencies) == [0, 1, 2]
    assert all(0 <= row.commit_latency_ms < 1000 for row in latencies)
    assert {row.at_ns for row in [*checks, *latencies]} == {status.at_ns}


def look_at(
    at_ns: int,
    states: dict[str, int],
    checks: dict[str, Any] | None = None,
    *,
    refused: tuple[str, ...] = (),
    osdmap: dict[str, Any] | None = None,
) -> list[RawAnswer]:
    pgs = [{"state_name": state, "count": count} for state, count in states.items()]
    values = {
        "status": {"pgmap": {"pgs_by_state": pgs}, "osdmap": osdmap or {}},
        "health": {"status": "HEALTH_WARN" if checks else "HEALTH_OK", "checks": checks or {}},
        "osd_perf": {"osd_perf_infos": [{"id": 4, "perf_stats": {"commit_latency_ms": 3, "apply_latency_ms": 5}}]},
    }
    return [
        RawAnswer(label, (), (), -110 if label in refused else 0, json.dumps(value).encode(), b"", at_ns, at_ns + index)
        for index, (label, value) in enumerate(values.items())
    ]


def check(message: str, *details: str) -> dict[str, Any]:
    return {
        "severity": "HEALTH_WARN",
        "summary": {"message": message},
        "detail": [{"message": detail} for detail in details],
    }


def test_states_of_placement_groups() -> None:
    states = {
        "active+clean": 5,
        "active+clean+scrubbing+deep": 2,
        "active+clean+remapped": 1,
        "active+undersized+degraded": 12,
        "unknown": 4,
        "peering": 3,
        "active": 6,
    }
    (status,), _, _ = parse(look_at(1, states))
    assert (status.pg_count, status.pg_clean_count, status.pg_unknown_count, status.pg_scrubbing_count) == (33, 8, 4, 2)
    assert status.pg_not_clean == "1 PGs active+clean+remapped, 12 PGs active+undersized+degraded, 3 PGs peering"
    assert parse(look_at(1, {}))[0][0].pg_count == 0


def test_groups_that_are_read_in_full_or_trimmed_of_snapshots() -> None:
    states = {
        "active+clean": 1,
        "active+clean+scrubbing": 2,
        "active+clean+scrubbing+deep": 4,
        "active+clean+scrubbing+deep+snaptrim_wait": 8,
        "active+clean+snaptrim": 16,
        "active+clean+snaptrim_wait": 32,
    }
    (status,), _, _ = parse(look_at(1, states))
    assert (status.pg_clean_count, status.pg_not_clean) == (63, None)
    assert (status.pg_scrubbing_count, status.pg_deep_scrubbing_count) == (14, 12)
    assert (status.pg_snap_trim_count, status.pg_snap_trim_wait_count) == (16, 40)


def test_slow_operations_and_osds_that_are_down() -> None:
    checks = {
        "SLOW_OPS": check("17 slow ops, oldest one blocked for 33 sec, osd.3 has slow ops"),
        "OSD_DOWN": check("2 osds down", "osd.12 (root=default,host=b) is down", "osd.3 (root=default,host=a) is down"),
    }
    (status,), rows, _ = parse(look_at(1, {"active+clean": 1}, checks))
    assert (status.health, status.slow_op_count, status.osds_down) == ("HEALTH_WARN", 17, "3 12")
    assert [(row.code, row.message) for row in rows] == [
        ("SLOW_OPS", "17 slow ops, oldest one blocked for 33 sec, osd.3 has slow ops"),
        ("OSD_DOWN", "2 osds down"),
    ]
    (status,), _, _ = parse(look_at(1, {}, {"SLOW_OPS": check("slow ops")}))
    assert status.slow_op_count == 1


def test_each_look_has_its_time_and_one_that_failed_in_part_its_rest() -> None:
    answers = [
        *look_at(10, {"active+clean": 1}),
        *look_at(20, {"active+clean": 1}, {"X": check("x")}, refused=("status",)),
        *look_at(30, {"active+clean": 1}, {"X": check("x")}, refused=("health",)),
        *look_at(40, {"active+clean": 1}, refused=LABELS),
        *look_at(50, {"active+clean": 2}, {"X": check("x")}, refused=("osd_perf",)),
    ]
    statuses, checks, latencies = parse(answers)
    assert [row.at_ns for row in statuses] == [10, 50]
    assert [row.at_ns for row in checks] == [20, 50]
    assert [(row.at_ns, row.osd, row.commit_latency_ms, row.apply_latency_ms) for row in latencies] == [
        (10, 4, 3, 5),
        (20, 4, 3, 5),
        (30, 4, 3, 5),
    ]
    assert parse([]) == ([], [], [])


def test_a_disk_is_no_cluster() -> None:
    assert [request.label for request in SOURCE.plan(SCOPE)] == list(LABELS)
    assert list(SOURCE.plan(Scope(target=Target(name="t", kind="disk")))) == []


def test_what_an_osd_may_have_lost_when_it_went_is_said_once() -> None:
    down = {"OSD_DOWN": check("1 osds down", "osd.2 (root=default,host=a) is down")}

    def look(at_s: int, changed_s: int, checks: dict[str, Any] | None = None) -> list[RawAnswer]:
        return look_at(at_s * S, {"active+clean": 8}, checks, osdmap={"osd_up_since": changed_s})

    # Up since long; down between two looks; the same; up again; and the same much later.
    looks = [look(1000, 900), look(1010, 1003, down), look(1020, 1003, down), look(1030, 1025), look(1200, 1025)]
    rows = from_table(Uncounted, SOURCE.parse([answer for each in looks for answer in each], SCOPE)[Uncounted])
    assert [row.at_ns for row in rows] == [1004 * S, 1026 * S]
    # It may have been gone, and not reported, for as long as others wait for it before the map says so.
    assert [row.at_ns - row.duration_ns for row in rows] == [973 * S, 995 * S]
    assert rows[0].reason.startswith("an OSD went down or came up (down then: osd.2)")
    assert rows[1].reason.startswith("an OSD went down or came up, ")
    # 14.2 does not say when.
    assert SOURCE.parse(look_at(S, {}, down), SCOPE)[Uncounted].num_rows == 0


@pytest.mark.parametrize("version", VERSIONS)
def test_recorded_statuses_say_when_an_osd_came_up(recorded: Recorded, version: str) -> None:
    look = recorded_look(recorded, version)
    changed_s = look[0].json()["osdmap"]["osd_up_since"]
    soon = [dataclasses.replace(answer, ended_ns=(changed_s + 5) * S) for answer in look]
    (row,) = from_table(Uncounted, SOURCE.parse(soon, SCOPE)[Uncounted])
    assert row.at_ns == (changed_s + 1) * S
