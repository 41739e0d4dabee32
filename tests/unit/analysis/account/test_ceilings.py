"""Ceilings follow from use by the utilization law; what says nothing of a limit is none."""

from __future__ import annotations

import dataclasses
from typing import Any

import pyarrow as pa
import pytest
from tests.unit.analysis.builders import SECOND_NS, Load, RunBuilder

from bathyscope.analysis.account.ceilings import BUSY_TIME, DISK_LAYER, QUOTA, THROTTLE, KnownOsd, step_ceilings
from bathyscope.analysis.account.disk_layer import DiskRate
from bathyscope.analysis.network import NetworkUse
from bathyscope.analysis.quotas import QuotaUse
from bathyscope.analysis.simulated_disks import DiskTime
from bathyscope.analysis.step_figures import DeviceUse, NodeUse, StepFigures, figures
from bathyscope.records import PerfCounter, Step, from_table, to_table
from bathyscope.records.account import Ceiling
from bathyscope.window.tables import of_steps

OSDS = {osd: KnownOsd(f"node{osd + 1}", rotational=osd == 2) for osd in range(3)}


@pytest.fixture(scope="module")
def step_and_figures() -> tuple[Step, StepFigures]:
    run = RunBuilder()
    run.add_run()
    run.add_osds("ssd", 3)
    run.add_step(Load(device_class="ssd", iops=500.0))
    tables = run.tables()
    (step,) = from_table(Step, tables["step"])
    return step, figures(step, of_steps(tables)[step.step_index])


def found(
    step_and_figures: tuple[Step, StepFigures],
    *,
    disk: DiskRate | None = None,
    perf: pa.Table | None = None,
    **changes: Any,
) -> list[Ceiling]:
    """Return the ceilings of a load of 500 IOPS that uses nothing but what `changes` say."""
    step, known = step_and_figures
    nothing: dict[str, Any] = {
        "devices": (), "bluefs_devices": (), "nodes": (), "network": (), "quotas": (), "host_cpu_ratio": None,
        "client_thread_busy": None, "iops": 500.0,
    }  # fmt: skip
    of_step = {name: changes.pop(name) for name in ("device_class", "queue_depth") if name in changes}
    step = dataclasses.replace(step, **of_step)
    used = dataclasses.replace(known, **{**nothing, **changes})
    return list(step_ceilings(step, used, to_table(PerfCounter, []) if perf is None else perf, OSDS, disk))


def device(use: float, *, limited: bool, disk: DiskTime | None = None) -> DeviceUse:
    return DeviceUse("localhost", "loop0", "osd.0", use, limited, 1e6, 0.0, 160.0, 40.0, disk)


def test_a_throttle(step_and_figures: tuple[Step, StepFigures]) -> None:
    (one,) = found(step_and_figures, devices=(device(0.8, limited=True),))
    assert (one.resource, one.subject, one.words, one.source) == ("device", "osd.0", "osd.0's SSD", THROTTLE)
    assert (one.demand.value, one.demand.unit) == (0.4, "I/Os")
    assert (one.capacity.value, one.capacity.unit) == (250.0, "I/Os")
    assert (one.iops.value, one.reached.value, one.binding) == (625.0, 0.8, True)
    # Ceiling = capacity over demand.
    assert one.capacity.value / one.demand.value == one.iops.value


def test_busy_flash_has_a_ceiling_only_where_the_disk_was_measured(
    step_and_figures: tuple[Step, StepFigures],
) -> None:
    busy = (device(0.99, limited=False),)
    assert found(step_and_figures, devices=busy) == []
    (one,) = found(step_and_figures, devices=busy, disk=DiskRate(1000.0, 100e6))
    assert (one.source, one.reached.value, one.iops.value) == (DISK_LAYER, 0.2, 2500.0)
    # By bytes, where they are nearer.
    (one,) = found(step_and_figures, devices=busy, disk=DiskRate(1000.0, 2e6))
    assert one.reached.value == 0.5
    # A device that did more than the disk has a capacity that nobody measured.
    assert found(step_and_figures, devices=busy, disk=DiskRate(100.0, 100e6)) == []


def test_a_hard_disk_is_used_while_its_arm_is(step_and_figures: tuple[Step, StepFigures]) -> None:
    (one,) = found(step_and_figures, devices=(device(0.9, limited=False),), device_class="hdd")
    assert (one.source, one.reached.value, one.binding) == (BUSY_TIME, 0.9, True)
    simulated = device(0.9, limited=False, disk=DiskTime(0.9, 0.4, 0.45, 0.05, 4.0, 0.0, ()))
    (one,) = found(step_and_figures, devices=(simulated,), device_class="")
    assert one.source == BUSY_TIME
    # With one I/O in flight it is busy all the time, and nothing follows.
    (one,) = found(step_and_figures, devices=(device(0.9, limited=False),), device_class="hdd", queue_depth=1)
    assert not one.binding


def test_processors_threads_and_links_the_nearest_first(step_and_figures: tuple[Step, StepFigures]) -> None:
    ceilings = found(
        step_and_figures,
        host_cpu_ratio=0.5,
        host_processors=2,
        nodes=(NodeUse("node2", 0.75, 8, 5.0),),
        client_thread_busy=0.25,
        network=(NetworkUse("node2", 1e9, 1e8, 0.8, 0.0), NetworkUse("backup", 1e9, 1e8, 0.99, 0.0)),
    )
    assert [(one.resource, one.subject, one.reached.value) for one in ceilings] == [
        ("network", "node2", 0.8),
        ("host_cpu", "node2", 0.75),
        ("host_cpu", "localhost", 0.5),
        ("client_thread", "localhost", 0.25),
    ]
    assert [one.demand.unit for one in ceilings] == ["bytes", "s", "s", "s"]
    assert ceilings[1].capacity.value == 8
    assert ceilings[1].demand.value == pytest.approx(6 / 500)


def test_what_a_hypervisor_does_not_give_is_no_capacity(step_and_figures: tuple[Step, StepFigures]) -> None:
    here, node = found(
        step_and_figures,
        host_cpu_ratio=0.72,
        host_steal_ratio=0.25,
        host_processors=2,
        nodes=(NodeUse("node2", 0.45, 8, 5.0, steal_ratio=0.5),),
        client_thread_busy=None,
    )
    assert [(one.subject, one.capacity.value) for one in (here, node)] == [("localhost", 1.5), ("node2", 4.0)]
    assert (here.reached.value, node.reached.value) == (pytest.approx(0.96), pytest.approx(0.9))


def test_quotas_of_the_load_and_of_osds_under_test(step_and_figures: tuple[Step, StepFigures]) -> None:
    quotas = (
        QuotaUse("localhost", "client", 0.1, 0.93, 0.9, 0.4),
        QuotaUse("node2", "osd.1", 0.5, 0.4, 0.6, 0.1),
        QuotaUse("node2", "osd.9", 0.5, 0.99, 0.9, 0.4),
        QuotaUse("node2", "osd.2", 0.5, None, None, None),
    )
    client, osd = found(step_and_figures, quotas=quotas)
    assert (client.resource, client.words, client.source) == ("client_cpu", "the CPU of the load generator", QUOTA)
    assert client.iops.value == pytest.approx(500 / 0.93)
    assert (osd.resource, osd.subject, osd.words) == ("osd_cpu", "osd.1", "the CPU of osd.1 (node2)")
    # It was held back in more of its periods than it used of its quota.
    assert osd.reached.value == pytest.approx(0.6)


def test_threads_are_told_and_hold_nothing_back(step_and_figures: tuple[Step, StepFigures]) -> None:
    """A worker is busy while a read is done; an OSD on a rotating device has 5 of them, else 16."""
    step, _ = step_and_figures
    load_s, at_ns = (step.ended_ns - step.started_ns) / SECOND_NS, step.ended_ns
    spent = {("bluestore", "kv_sync_lat"): (0.2, 0.6, 0.3), ("osd", "op_r_process_latency"): (4.0, 1.0, 3.0)}
    perf = to_table(
        PerfCounter,
        [
            PerfCounter(at_ns, SECOND_NS, f"osd.{osd}", section, name, "average", share * load_s, 100, None)
            for (section, name), shares in spent.items()
            for osd, share in enumerate(shares)
        ],
    )
    threads = found(step_and_figures, perf=perf)
    assert [one.binding for one in threads] == [False] * 6
    kv_sync = max((one for one in threads if one.resource == "kv_sync"), key=lambda one: one.reached.value or 0)
    assert (kv_sync.subject, kv_sync.host) == ("osd.1", "node2")
    assert kv_sync.reached.value == pytest.approx(0.6)
    workers = max((one for one in threads if one.resource == "op_workers"), key=lambda one: one.reached.value or 0)
    assert (workers.subject, workers.capacity.value) == ("osd.2", 5)
    assert workers.reached.value == pytest.approx(3 / 5)


def test_no_rate_no_ceilings(step_and_figures: tuple[Step, StepFigures]) -> None:
    assert found(step_and_figures, devices=(device(0.8, limited=True),), iops=0.0) == []
