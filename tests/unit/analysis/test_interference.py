"""Work that is not the load's is found, in its direction, and no figure that would hold much of it is given."""

from __future__ import annotations

import dataclasses
from typing import Any

import pyarrow as pa
import pytest
from tests.unit.analysis.builders import Load, RunBuilder

from bathyscope.analysis.interference import UNKNOWN_CLIENTS, in_cpu, in_writes, own_figures
from bathyscope.analysis.step_figures import StepFigures
from bathyscope.analysis.trust import StepContext, judge_step
from bathyscope.records import ClusterStatus, PerfCounter, PoolIo, ProcessSample, Record, Step, from_table, to_table
from bathyscope.records.account import ForeignWork
from bathyscope.window.tables import of_steps

Tables = dict[str, pa.Table]


def tables_of(load: Load, *more: Record) -> Tables:
    """Return the tables of a step of three OSDs, with more rows."""
    builder = RunBuilder()
    builder.add_osds("hdd", 3)
    builder.add_step(load)
    for row in more:
        builder.rows[type(row)].append(row)
    return builder.tables()


def step_of(tables: Tables) -> Step:
    (step,) = from_table(Step, tables["step"])
    return step


def found(tables: Tables) -> StepFigures:
    return own_figures(step_of(tables), of_steps(tables)[step_of(tables).step_index])


STEP = step_of(tables_of(Load()))
SPAN = STEP.ended_ns, 12 * 10**9


def counted(osd: int = 0, **values: float) -> list[PerfCounter]:
    """Return what an OSD counted beside our load, over the 12 s of the counters."""
    return [PerfCounter(*SPAN, f"osd.{osd}", "osd", name, "counter", n, None, None) for name, n in values.items()]


def pool(*, reads: int = 0, writes: int = 0, size: int = 4096, name: str = "volumes") -> list[PoolIo]:
    """Return the statistics of a pool with steady rates, seen every second."""
    times = range(STEP.started_ns + 10**9, STEP.ended_ns + 1, 10**9)
    return [PoolIo(t, 10**9, 2, name, False, reads, writes, reads * size, writes * size) for t in times]


def look(second: int, **state: Any) -> ClusterStatus:
    clean = ClusterStatus(STEP.started_ns + second * 10**9, "HEALTH_OK", 0, 64, 64, 0, 0, None, None, 0, 0, 0)
    return dataclasses.replace(clean, **state)


def shares(figures: StepFigures) -> dict[tuple[str, str], float]:
    return {(w.subject, w.direction): w.share.value or 0.0 for w in figures.foreign if w.kind == "tenant"}


def only(figures: StepFigures, kind: str) -> ForeignWork:
    (work,) = [work for work in figures.foreign if work.kind == kind]
    return work


# --- tenants


@pytest.mark.parametrize(
    "load", [Load(), Load(op="randwrite"), Load(op="write"), Load(op="randrw"), Load(layer="disk")]
)
def test_a_load_alone_has_no_work_of_others(load: Load) -> None:
    tables = tables_of(load, look(1), look(5))
    figures = found(tables)
    assert figures.foreign == ()
    if load.layer != "disk":
        assert figures.osd_cpu_us_per_op == pytest.approx(300, rel=0.05)


def test_writes_during_a_pure_read_step_are_of_others_although_no_pool_is_known_to_write() -> None:
    late = pool(name="volumes")
    figures = found(tables_of(Load(), *late, *counted(op_w=2371.0, op_w_in_bytes=2371.0 * 4096)))
    work = only(figures, "tenant")
    assert (work.subject, work.direction) == (UNKNOWN_CLIENTS, "write")
    assert work.rate.value == pytest.approx(2371 / 12)
    assert work.share.value == pytest.approx(2371 / 12 / figures.iops)
    assert work.sentence == "unknown clients did 198 writes a second (790 KiB/s) as the OSDs count: 85 % of our load"


def test_what_opening_an_image_asks_is_ours() -> None:
    assert found(tables_of(Load(op="randwrite"), *counted(op_r=11.0, op_rw=2.0, op_r_out_bytes=4096.0))).foreign == ()


@pytest.mark.parametrize(("factor", "seen"), [(1.1, False), (1.5, True)])
def test_more_of_our_own_direction_than_we_did(factor: float, seen: bool) -> None:
    """Nothing is known of the rate in the ramp, so the counters may be somewhat ahead of it."""
    extra = (factor - 1) * 231 * 12
    figures = found(tables_of(Load(op="randwrite"), *counted(op_w=extra)))
    assert bool(shares(figures)) is seen


def test_few_large_writes_are_seen_by_their_bytes() -> None:
    figures = found(tables_of(Load(op="randwrite"), *counted(op_w=24.0, op_w_in_bytes=24.0 * (4 << 20))))
    assert shares(figures) == {(UNKNOWN_CLIENTS, "write"): pytest.approx(8 * 2**20 / (figures.iops * 4096), rel=0.05)}


def test_pools_are_named_in_their_directions_and_explain_what_the_osds_count() -> None:
    more = [*pool(reads=10, writes=40, name="backup"), *pool(writes=5), *counted(op_r=120.0, op_w=540.0)]
    figures = found(tables_of(Load(), *more))
    assert shares(figures) == {
        ("backup", "write"): pytest.approx(40 / figures.iops),
        ("backup", "read"): pytest.approx(10 / figures.iops),
        ("volumes", "write"): pytest.approx(5 / figures.iops),
    }
    assert figures.foreign[0].sentence == "the pool backup did 40.0 writes a second (160 KiB/s): 17 % of our load"


def test_a_pool_on_other_osds_is_no_work_for_those_under_test() -> None:
    figures = found(tables_of(Load(), *pool(writes=200)))
    work = only(figures, "tenant")
    assert (work.rate.value, work.share.value) == (pytest.approx(200), 0.0)
    assert work.sentence == "the pool volumes did 200 writes a second (800 KiB/s) on other OSDs"
    assert in_cpu(figures) == ()
    # Without the counters of all OSDs under test nobody knows where.
    tables = tables_of(Load(), *pool(writes=200))
    rows = [row for row in from_table(PerfCounter, tables["perf_counter"]) if row.daemon != "osd.2"]
    assert shares(found({**tables, "perf_counter": to_table(PerfCounter, rows)}))["volumes", "write"] > 0.8


def test_sequential_operations_that_librbd_joined_leave_room_for_a_pool() -> None:
    tables = tables_of(Load(op="write"), *pool(writes=100))
    assert shares(found(tables))["volumes", "write"] == pytest.approx(100 / 231, rel=0.1)


# --- the cluster's own work, and the machine's


def test_scrubbing_is_counted_in_placement_groups_and_looks() -> None:
    deep = look(3, pg_scrubbing_count=3, pg_deep_scrubbing_count=2)
    work = only(found(tables_of(Load(), look(1), deep, look(5, pg_scrubbing_count=1), look(7))), "scrub")
    assert (work.subject, work.direction, work.rate.value, work.share.value) == ("deep scrub", "read", 1.0, None)
    assert work.sentence == "deep scrub of 3 placement groups at once, seen in 2 of 4 looks at the cluster"
    shallow = only(found(tables_of(Load(), look(3, pg_scrubbing_count=1, pg_deep_scrubbing_count=None))), "scrub")
    assert shallow.sentence == "scrub of 1 placement group at once, seen in 1 of 1 looks at the cluster"


def test_what_osds_of_tentacle_read_to_scrub_is_a_share_of_our_bytes() -> None:
    figures = found(tables_of(Load(), *counted(scrub_replicated_read_bytes=120e6, scrub_ec_read_bytes=0.0)))
    work = only(figures, "scrub")
    assert work.share.value == pytest.approx(10e6 / figures.bandwidth_bytes_per_s)
    assert work.sentence == "the OSDs read 9.54 MiB/s to scrub"


def test_snapshot_trimming() -> None:
    states = [look(1), look(3, pg_snap_trim_count=2, pg_snap_trim_wait_count=5), look(5, pg_snap_trim_wait_count=1)]
    work = only(found(tables_of(Load(), *states)), "snap_trim")
    assert work.rate.value == pytest.approx(2 / 3)
    assert work.sentence == (
        "deleted snapshots were trimmed from 2 placement groups at once, seen in 1 of 3 looks at the cluster"
    )
    assert found(tables_of(Load(), states[2])).foreign == ()


def test_recovery_by_states_and_by_operations() -> None:
    states = look(3, pg_not_clean="12 PGs active+undersized+degraded, 3 PGs peering")
    by_state, by_count = found(tables_of(Load(), states, *counted(recovery_ops=120.0))).foreign
    assert (by_state.rate.value, by_state.share.value) == (15.0, None)
    assert (by_count.rate.value, by_count.share.value) == (10.0, pytest.approx(120 / 2310, rel=0.05))
    # A recovery operation moves a whole object.
    (moved,) = found(tables_of(Load(), *counted(recovery_ops=2.0, recovery_bytes=8e6))).foreign
    assert moved.share.value == pytest.approx(8e6 / (2310 * 4096), rel=0.05)


@pytest.mark.parametrize(("share", "seen"), [(None, False), (0.01, False), (0.1, True)])
def test_processors_that_waited_for_a_hypervisor(share: float | None, seen: bool) -> None:
    tables = tables_of(Load())
    rows = [
        dataclasses.replace(row, cpu_steal_s=share * row.processors * row.duration_ns / 1e9)
        if share is not None and row.process == "host"
        else row
        for row in from_table(ProcessSample, tables["process_sample"])
    ]
    figures = found({**tables, "process_sample": to_table(ProcessSample, rows)})
    expected = [("steal", 0.2, 0.1)] if seen else []
    assert [(w.kind, *map(pytest.approx, (w.rate.value, w.share.value))) for w in figures.foreign] == expected
    assert figures.host_steal_ratio == (None if share is None else pytest.approx(share))
    assert figures.osd_cpu_us_per_op is not None


@pytest.mark.parametrize(("cores", "seen"), [(0.3, False), (0.5, True)])
def test_other_processes_of_the_machine(cores: float, seen: bool) -> None:
    tables = tables_of(Load())
    rows = [
        dataclasses.replace(row, cpu_user_s=row.cpu_user_s + cores * (row.process == "host"))
        for row in from_table(ProcessSample, tables["process_sample"])
    ]
    figures = found({**tables, "process_sample": to_table(ProcessSample, rows)})
    assert [(w.kind, w.rate.unit) for w in figures.foreign] == ([("processes", "cores")] if seen else [])
    # The processor time of each OSD is known all the same.
    assert figures.osd_cpu_us_per_op is not None


# --- what must not be in our figures

NOTHING = (False, False)
BOTH = (True, True)
CPU = (False, True)


@pytest.mark.parametrize(
    ("more", "hidden"),
    [
        ([], NOTHING),
        (pool(writes=4) + counted(op_w=48.0), NOTHING),
        (pool(writes=40) + counted(op_w=480.0), BOTH),
        (pool(writes=3) + pool(writes=3, name="b") + counted(op_w=72.0), BOTH),
        (counted(op_w=5000.0), BOTH),
        (pool(reads=40) + counted(op_r=480.0), CPU),
        (pool(writes=40, name="elsewhere") + pool(reads=1), BOTH),
        ([look(3, pg_scrubbing_count=2, pg_deep_scrubbing_count=1)], CPU),
        ([look(3, pg_snap_trim_count=1)], BOTH),
        (counted(recovery_ops=1.0), NOTHING),
        (counted(recovery_ops=1.0, recovery_bytes=4e6), BOTH),
    ],
)  # fmt: skip
def test_a_figure_that_would_hold_much_work_of_others_is_not_given(more: list[Any], hidden: tuple[bool, bool]) -> None:
    tables = tables_of(Load(op="randwrite"), *more)
    if any(isinstance(row, PoolIo) and row.pool == "elsewhere" for row in more):
        del tables["perf_counter"]
    figures = found(tables)
    assert (figures.write_amplification is None, figures.osd_cpu_us_per_op is None) == hidden
    assert (bool(in_writes(figures)), bool(in_cpu(figures))) == hidden
    judgement = judge_step(of_steps(tables)[step_of(tables).step_index], StepContext(step_of(tables)))
    texts = [caveat.text for caveat in judgement.caveats if caveat.code == "foreign_work"]
    names = {
        NOTHING: [],
        CPU: ["OSD processor time per I/O"],
        BOTH: ["write amplification and OSD processor time per I/O"],
    }
    if judgement.status == "done":
        assert [text.split(": ", 1)[1].split(" (")[0] for text in texts] == names[hidden]
    else:
        # A refused step has no figure that a note could explain.
        assert hidden == BOTH


def test_of_few_writes_a_small_tenant_is_a_large_part() -> None:
    """Three in ten I/Os are ours and write: what is 1 % of the load is 4 % of its writes."""
    figures = found(tables_of(Load(op="randrw"), *pool(writes=3), *counted(op_w=36.0)))
    assert shares(figures)["volumes", "write"] == pytest.approx(3 / 231, rel=0.05)
    assert (bool(in_writes(figures)), bool(in_cpu(figures))) == (True, False)


def test_one_scrub_among_many_osds_is_small() -> None:
    builder = RunBuilder()
    builder.add_osds("hdd", 60)
    builder.add_step(Load())
    builder.rows[ClusterStatus] += [look(3, pg_scrubbing_count=1)]
    figures = found(builder.tables())
    assert only(figures, "scrub")
    assert figures.osd_cpu_us_per_op is not None


def test_a_write_beside_reads_counts_at_each_of_its_osds() -> None:
    written = {"op_w": 2371.0, "op_w_in_bytes": 2371.0 * 4096, "subop_w": 2 * 2371.0}
    reads = found(tables_of(Load(), *counted(**written)))
    work = only(reads, "tenant")
    assert work.share.value == pytest.approx(3 * 2371 / 12 / reads.iops)
    assert ", each at 3.00 OSDs as the OSDs count: " in work.sentence
