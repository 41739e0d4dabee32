"""Quotas and limits of control groups over a window, on tables with a few rows."""

from __future__ import annotations

import dataclasses
from typing import Any

import pyarrow as pa
import pytest
from tests.unit.analysis.builders import Load
from tests.unit.analysis.test_trust import tables_of

from bathyscope.analysis.ladder_series import series_of
from bathyscope.analysis.quotas import QuotaUse, quota_uses, with_limits
from bathyscope.analysis.step_figures import figures
from bathyscope.records import (
    HERE,
    CgroupSample,
    DeviceSample,
    ProcessSample,
    Step,
    from_table,
    schema_of,
    to_table,
)
from bathyscope.window.tables import of_steps

SECOND = 10**9


def sample(at: int, process: str = "osd.0", **values: Any) -> CgroupSample:
    """Return a second without any limit, but for the given values."""
    row: dict[str, Any] = dict.fromkeys(schema_of(CgroupSample).names)
    row |= {"at_ns": at * SECOND, "duration_ns": SECOND, "host": HERE, "process": process, "device": "sda"}
    return CgroupSample(**(row | values))


def used(at: int, process: str, cores: float, host: str = HERE) -> ProcessSample:
    return ProcessSample(at * SECOND, SECOND, host, process, cores * 0.7, cores * 0.3, 1, 2)


def quotas(cgroups: list[CgroupSample], processes: list[ProcessSample]) -> tuple[QuotaUse, ...]:
    return quota_uses(to_table(CgroupSample, cgroups), to_table(ProcessSample, processes))


def test_a_quota_its_use_and_how_often_it_was_used_up() -> None:
    rows = [
        sample(at, cpu_quota_cores=0.5, cpu_throttled_s=0.25, cpu_period_count=10, cpu_throttled_period_count=throttled)
        for at, throttled in ((1, 10), (2, 5))
    ]
    rows += [sample(at, "osd.1") for at in (1, 2)]
    processes = [used(1, "osd.0", 0.5), used(2, "osd.0", 0.3), used(1, "osd.0", 7.0, "node2"), used(1, "osd.1", 1.0)]
    assert quotas(rows, processes) == (
        QuotaUse(HERE, "osd.0", 0.5, pytest.approx(0.8), pytest.approx(0.75), pytest.approx(0.25)),
    )


def test_a_quota_that_was_changed_is_its_mean_and_what_is_not_known_is_none() -> None:
    rows = [sample(1, cpu_quota_cores=1.0), sample(2, cpu_quota_cores=3.0, duration_ns=3 * SECOND)]
    assert quotas(rows, []) == (QuotaUse(HERE, "osd.0", 2.5, None, None, None),)
    assert quotas([sample(1)], []) == ()
    assert quotas([], []) == ()


def test_throttled_time_counts_over_the_intervals_that_know_it() -> None:
    rows = [sample(1, cpu_quota_cores=1.0), sample(2, cpu_quota_cores=1.0, cpu_throttled_s=0.5)]
    (use,) = quotas(rows, [])
    assert use.throttled_cores == 0.5


def test_each_machine_has_its_own_clients() -> None:
    rows = [
        sample(1, "client", host=host, device="", cpu_quota_cores=cores) for host, cores in (("b", 1.0), ("a", 2.0))
    ]
    found = quotas(rows, [used(1, "client", 1.0, "a"), used(1, "client", 1.0, "b")])
    assert [(use.host, use.quota_cores, use.used_ratio) for use in found] == [("a", 2.0, 0.5), ("b", 1.0, 1.0)]


def device(at: float, **values: Any) -> DeviceSample:
    """Return a fifth of a second in which 10 requests of 4 KiB were written."""
    row = DeviceSample(
        round(at * SECOND), SECOND // 5, HERE, "sda", "osd.0", "hdd", 0, 10, 0, 10 * 4096, 0.5, None, None
    )
    return dataclasses.replace(row, **values)


def shares(devices: list[DeviceSample], cgroups: list[CgroupSample]) -> list[tuple[float | None, float | None]]:
    found = with_limits(to_table(DeviceSample, devices), to_table(CgroupSample, cgroups))
    assert found.schema.names == schema_of(DeviceSample).names
    return [(row.read_limit_ratio, row.write_limit_ratio) for row in from_table(DeviceSample, found)]


def test_requests_that_the_group_counted_are_its_share_of_the_limit() -> None:
    """98 requests were merged into 50; the limit of 100 holds for those before."""
    limited = sample(1, write_iops_limit=100.0, write_request_count=98, read_request_count=0)
    assert shares([device(0.4), device(0.8)], [limited]) == [(None, 0.98)] * 2


def test_without_a_count_completed_requests_are_compared_with_the_limit() -> None:
    assert shares([device(0.4)], [sample(1, write_iops_limit=100.0)]) == [(None, 0.5)]


def test_a_limit_of_bytes_counts_where_it_is_nearer() -> None:
    slow = sample(1, write_iops_limit=100.0, write_request_count=50, write_bytes_per_s_limit=50 * 4096 / 0.9)
    assert shares([device(0.4)], [slow]) == [(None, pytest.approx(0.9))]
    # Two OSDs on one device, each in a group: whose bytes they are is not known.
    other = dataclasses.replace(slow, process="osd.1", write_request_count=60)
    assert shares([device(0.4)], [slow, other]) == [(None, 0.6)]


def test_a_group_replaces_the_limit_of_the_lab_and_only_in_its_direction() -> None:
    row = device(0.4, read_limit_ratio=0.1, write_limit_ratio=0.2)
    limited = sample(1, write_iops_limit=50.0, write_request_count=49)
    assert shares([row], [limited]) == [(0.1, 0.98)]
    assert shares([row], [sample(1)]) == [(0.1, 0.2)]
    assert shares([row], []) == [(0.1, 0.2)]
    elsewhere = [dataclasses.replace(limited, host="node2"), dataclasses.replace(limited, device="sdb")]
    assert shares([row], elsewhere) == [(0.1, 0.2)]


def test_a_row_has_the_share_of_its_own_interval_or_of_the_nearest() -> None:
    rows = [sample(at, write_iops_limit=100.0, write_request_count=count) for at, count in ((2, 20), (3, 90))]
    # The first and the last are outside of both.
    devices = [device(at) for at in (0.5, 1.5, 2.0, 2.2, 3.0, 3.2)]
    assert [share for _, share in shares(devices, rows)] == [0.2, 0.2, 0.2, 0.9, 0.9, 0.9]


def limited_tables(load: Load, **values: Any) -> tuple[Step, dict[str, pa.Table]]:
    """Return a step and its tables, without limits of a lab, and with a control group of osd.0 that has `values`."""
    tables = tables_of(load)
    rows = from_table(DeviceSample, tables["device_sample"])
    rows = [dataclasses.replace(row, read_limit_ratio=None, write_limit_ratio=None) for row in rows]
    groups = [
        dataclasses.replace(sample(1, device=row.device, **values), at_ns=row.at_ns)
        for row in rows
        if row.role == "osd.0"
    ]
    (step,) = from_table(Step, tables["step"])
    tables |= {"device_sample": to_table(DeviceSample, rows), "cgroup_sample": to_table(CgroupSample, groups)}
    return step, of_steps(tables)[step.step_index]


def test_a_device_that_any_control_group_limits_is_used_by_the_share_of_its_limit() -> None:
    step, tables = limited_tables(Load(busy_ratio=0.3), read_iops_limit=200.0, read_request_count=190)
    found = {use.role: use for use in figures(step, tables).devices}
    assert found["osd.0"].limited
    assert found["osd.0"].utilization == pytest.approx(0.95)
    others = [use for role, use in found.items() if role != "osd.0"]
    assert others
    assert all(not use.limited and use.utilization < 0.4 for use in others)
    (series,) = (s for s in series_of(step, tables) if s.name == "device_utilization" and s.subject == "osd.0")
    assert {round(point.value, 6) for point in series.points} == {0.95}
