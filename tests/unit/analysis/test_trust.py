"""Steps that must be refused are refused, caveats are given, and a clean step passes without one."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.unit.analysis.builders import Load, RunBuilder

from bathyscope.analysis.step_figures import StepFigures
from bathyscope.analysis.trust import Judgement, StepContext, is_written, judge_step
from bathyscope.records import (
    SAME_MACHINE,
    ClusterStatus,
    DeviceSample,
    EnvironmentFact,
    ImageUsage,
    PerfCounter,
    PoolIo,
    PoolWait,
    ProcessSample,
    Record,
    Result,
    SimulatedDiskSample,
    Step,
    from_table,
    to_table,
)
from bathyscope.units import format_percent
from bathyscope.window.tables import of_steps

STEP_FIELDS = {field.name for field in dataclasses.fields(Step)}


def tables_of(load: Load, prefix: str = "") -> dict[str, pa.Table]:
    builder = RunBuilder(counter_prefix=prefix)
    builder.add_osds("hdd", 3)
    builder.add_step(load)
    return builder.tables()


def judged(tables: dict[str, pa.Table], **changes: Any) -> Judgement:
    """Judge the one step of `tables`; `changes` are of its row or of what is known beside it."""
    (step,) = from_table(Step, tables["step"])
    asked = {"runtime_s": 10.0, **changes}
    step = dataclasses.replace(step, **{k: v for k, v in asked.items() if k in STEP_FIELDS})
    beside = {"cache_bytes": 144 << 20, **{k: v for k, v in asked.items() if k not in STEP_FIELDS}}
    return judge_step(of_steps(tables)[step.step_index], StepContext(step, **beside))


def with_rows(
    tables: dict[str, pa.Table], record: type[Record], changes: Callable[[Any], dict[str, Any]]
) -> dict[str, pa.Table]:
    """Return the tables with the fields that `changes` gives for each row of `record`."""
    rows = [dataclasses.replace(row, **changes(row)) for row in from_table(record, tables[record.TABLE])]
    return {**tables, record.TABLE: to_table(record, rows)}


def judge(load: Load | None = None, prefix: str = "", **changes: Any) -> Judgement:
    return judged(tables_of(load or Load(), prefix), **changes)


def with_counter(load: Load, name: str, delta: float) -> dict[str, pa.Table]:
    """Return the tables of a step during which an OSD counted something else as well."""
    tables = tables_of(load)
    one = next(row for row in from_table(PerfCounter, tables["perf_counter"]) if row.section == "osd")
    more = to_table(PerfCounter, [dataclasses.replace(one, name=name, delta=delta)])
    return {**tables, "perf_counter": pa.concat_tables([tables["perf_counter"], more])}


def look(load: Load, **state: Any) -> ClusterStatus:
    """Return a look at the cluster in the middle of the step."""
    (step,) = from_table(Step, tables_of(load)["step"])
    clean = ClusterStatus(
        at_ns=(step.started_ns + step.ended_ns) // 2, health="HEALTH_OK", slow_op_count=0, pg_count=8, pg_clean_count=8,
        pg_unknown_count=0, pg_scrubbing_count=0, pg_not_clean=None, osds_down=None,
    )  # fmt: skip
    return dataclasses.replace(clean, **state)


def codes(judgement: Judgement, severity: str | None = None) -> set[str]:
    return {c.code for c in judgement.caveats if severity in (None, c.severity)}


@pytest.mark.parametrize("op", ["randread", "randwrite", "read", "write"])
@pytest.mark.parametrize("layer", ["disk", "rados", "rbd"])
def test_a_clean_step_of_every_layer_passes(layer: str, op: str) -> None:
    judgement = judge(Load(layer=layer, op=op))
    assert (judgement.status, judgement.reason, judgement.caveats) == ("done", None, ())


def test_no_io_fails() -> None:
    judgement = judge(Load(iops=0.0, op_rows=0))
    assert judgement.status == "failed"
    assert judgement.reason == "not one I/O was completed in the measured window"
    assert judged({"step": tables_of(Load())["step"]}).status == "failed"


def test_a_failed_load_fails_even_with_numbers() -> None:
    judgement = judge(failures=("fio ended with code 1: Input/output error",))
    assert judgement.status == "failed"
    assert judgement.reason == "fio ended with code 1: Input/output error"


def test_errors_are_refused() -> None:
    judgement = judge(Load(errors=3))
    assert judgement.status == "refused"
    assert "3 I/Os failed" in (judgement.reason or "")


@pytest.mark.parametrize(
    ("answered", "refused"), [(0.0, True), (0.03, True), (0.49, True), (0.51, False), (1.2, False)]
)
def test_reads_that_no_osd_answered_are_refused(answered: float, refused: bool) -> None:
    # The builder counts the ramp as well: 12 seconds for a measured window of 10.
    part = with_rows(
        tables_of(Load()),
        PerfCounter,
        lambda r: {"delta": r.delta / 1.2 * answered} if r.name == "op_r_out_bytes" else {},
    )
    judgement = judged(part)
    assert (judgement.status == "refused") is refused
    assert ("thin_image" in codes(judgement, "refused")) is refused


def test_an_image_known_to_be_thin_is_refused() -> None:
    assert judge(image_written=False).status == "refused"
    assert judge(Load(op="randwrite"), image_written=False).status == "done"


@pytest.mark.parametrize(("used", "written"), [((1000, 1000), True), ((1000, 100), False), ((), None)])
def test_every_image_must_be_written(used: tuple[int, ...], written: bool | None) -> None:
    usage = [ImageUsage(1, "p", f"image-{i}", 1000, size) for i, size in enumerate(used)]
    assert is_written(to_table(ImageUsage, usage)) is written


def test_placement_groups_that_were_not_clean_are_refused() -> None:
    looks = [look(Load()), look(Load(), pg_clean_count=5, pg_not_clean="3 PGs active+undersized+degraded")]
    tables = {**tables_of(Load()), "cluster_status": to_table(ClusterStatus, looks)}
    judgement = judged(tables)
    assert judgement.status == "refused"
    assert "3 PGs active+undersized+degraded" in (judgement.reason or "")


def test_a_cluster_that_was_degraded_before_the_step_is_no_reason() -> None:
    earlier = look(Load(), at_ns=1, pg_not_clean="3 PGs active+undersized+degraded")
    assert judged({**tables_of(Load()), "cluster_status": to_table(ClusterStatus, [earlier])}).status == "done"


@pytest.mark.parametrize(("operations", "severity"), [(500.0, "refused"), (1.0, "note")])
def test_recovery_seen_by_the_osds(operations: float, severity: str) -> None:
    assert codes(judged(with_counter(Load(), "recovery_ops", operations)), severity) == {"recovery"}


@pytest.mark.parametrize("prefix", ["", "bluestore_"])
def test_a_cold_step_with_warm_reads_is_refused_on_every_release(prefix: str) -> None:
    warm = Load(cache_ratio=0.4, temperature="cold")
    judgement = judge(warm, prefix)
    assert judgement.status == "refused"
    assert "40 % of its reads came from one" in (judgement.reason or "")
    assert judge(dataclasses.replace(warm, cache_ratio=0.02), prefix).status == "done"
    assert codes(judge(dataclasses.replace(warm, temperature="any"), prefix)) == {"cache_hits"}


def test_a_cache_below_bluestore_is_seen_by_the_devices() -> None:
    """BlueStore counts misses, yet its devices read nothing: the page cache answered."""
    silent = with_rows(tables_of(Load(cache_ratio=0.0)), DeviceSample, lambda _: {"read_bytes": 0})
    judgement = judged(silent, temperature="cold")
    assert codes(judgement, "refused") == {"not_cold"}


@pytest.mark.parametrize("severity", ["warning", "note"])
def test_mostly_cached_reads_get_a_warning_unless_warm_was_asked(severity: str) -> None:
    load = Load(cache_ratio=0.9, temperature="any" if severity == "warning" else "warm")
    assert codes(judge(load), severity) == {"cache_hits"}


def test_unknown_cache_share_is_said() -> None:
    tables = {k: v for k, v in tables_of(Load()).items() if k not in ("perf_counter", "device_sample")}
    assert codes(judged(tables)) == {"cache_unknown"}
    cold = judged(tables, temperature="cold")
    assert codes(cold, "warning") == {"cold_unchecked"}


def test_a_part_of_the_cluster_is_not_taken_for_the_whole() -> None:
    """Four OSDs under test, three sampled: what sums over all OSDs is unknown, what one device shows is not."""
    tables = tables_of(Load(op="randwrite"))
    whole = judged(tables).figures
    part = judged(tables, osds="0 1 2 3").figures
    assert whole.write_amplification == pytest.approx(2.5, rel=0.01)
    assert (part.write_amplification, part.osd_cpu_us_per_op) == (None, None)
    assert part.device_utilization == whole.device_utilization


def test_processor_time_beside_two_directions_counts_once() -> None:
    tables = tables_of(Load(client_thread_us_per_op=2500.0))
    rows = from_table(Result, tables["result"])
    both = to_table(Result, [*rows, dataclasses.replace(rows[0], direction="write")])
    busy = judged({**tables, "result": both}).figures.client_thread_busy
    assert busy == pytest.approx(0.58, abs=0.02)


def test_a_gauge_is_not_taken_for_a_difference() -> None:
    """Some releases declare the hit counters as plain values: then the devices are the only source."""
    gauge = {"kind": "gauge", "delta": None, "value": 1e12}
    tables = with_rows(tables_of(Load(cache_ratio=0.3)), PerfCounter, lambda r: gauge if "buffer_hit" in r.name else {})
    judgement = judged(tables)
    assert judgement.figures.read_from_cache_ratio == pytest.approx(0.3, abs=0.02)


def test_a_working_set_inside_the_caches_is_told_of_unless_the_reads_missed_them() -> None:
    cached = Load(cache_ratio=0.4)
    assert codes(judge(cached, cache_bytes=2 << 30)) == {"cache_hits", "small_working_set"}
    assert codes(judge(Load(cache_ratio=0.03), cache_bytes=2 << 30)) == set()
    assert codes(judge(Load(op="randwrite"), cache_bytes=2 << 30)) == set()
    unknown = {k: v for k, v in tables_of(Load()).items() if k not in ("perf_counter", "device_sample")}
    assert codes(judged(unknown, cache_bytes=2 << 30), "warning") == {"small_working_set"}


@pytest.mark.parametrize(("held", "fits"), [(400 << 20, True), (300 << 20, False)])
def test_what_the_caches_held_counts_more_than_what_they_may_hold(held: int, fits: bool) -> None:
    tables = tables_of(Load(cache_ratio=0.4))
    rows = [row for row in from_table(PerfCounter, tables["perf_counter"]) if row.name == "op_r"]
    levels = [
        dataclasses.replace(row, section="mempool", name="bluestore_cache_data_bytes", kind="gauge", delta=None,
                            value=float(level), at_ns=row.at_ns - earlier_ns)
        for row in rows for level, earlier_ns in ((9 << 30, 10**9), (held, 0))
    ]  # fmt: skip
    tables = {**tables, "perf_counter": pa.concat_tables([tables["perf_counter"], to_table(PerfCounter, levels)])}
    judgement = judged(tables, cache_bytes=2 << 30)
    assert codes(judgement, "warning") == ({"small_working_set"} if fits else set())
    if fits:
        (text,) = [caveat.text for caveat in judgement.caveats if caveat.severity == "warning"]
        assert text == "the working set of 1.00 GiB fits into the OSDs' caches, which held 1.17 GiB of data"


@pytest.mark.parametrize(("existing", "cached"), [(1.0, 0.02), (0.6, 0.02), (0.03, None)])
def test_reads_of_what_does_not_exist_come_from_no_cache(existing: float, cached: float | None) -> None:
    """A thin image: the OSDs answer without data and without a device."""
    tables = with_rows(
        tables_of(Load(temperature="cold")),
        DeviceSample,
        lambda r: {"read_bytes": round(r.read_bytes * existing)},
    )
    tables = with_rows(
        tables, PerfCounter, lambda r: {"delta": r.delta * existing} if r.name.endswith("_bytes") else {}
    )
    tables["perf_counter"] = tables["perf_counter"].filter(pc.not_equal(tables["perf_counter"]["section"], "bluestore"))
    judgement = judged(tables)
    found = judgement.figures.read_from_cache_ratio
    assert found == (None if cached is None else pytest.approx(cached, abs=0.02))
    assert codes(judgement) == (set() if cached is not None else {"thin_image"})


def test_a_thin_image_is_no_cache_either_where_the_osds_were_not_asked() -> None:
    silent = with_rows(tables_of(Load(temperature="cold")), DeviceSample, lambda _: {"read_bytes": 0})
    del silent["perf_counter"]
    assert codes(judged(silent, image_written=False)) == {"thin_image"}
    assert codes(judged(silent), "refused") == {"not_cold"}


@pytest.mark.parametrize(("layer", "status", "severity"), [("rbd", "refused", "refused"), ("disk", "done", "warning")])
def test_a_saturated_client(layer: str, status: str, severity: str) -> None:
    """231 IOPS at 4.2 ms of the generator's own thread each: 97 % of the one processor that it can use."""
    judgement = judge(Load(layer=layer, client_thread_us_per_op=4200.0))
    assert judgement.status == status
    assert codes(judgement, severity) == {"client_cpu"}


def test_load_processes_that_fill_the_machine() -> None:
    assert codes(judge(Load(client_us_per_op=8500.0)), "refused") == {"client_cpu"}


def test_a_full_machine_shared_with_osds_is_a_warning() -> None:
    busy = Load(osd_us_per_op=8500.0)
    assert codes(judge(busy, shared_host=True)) == {"shared_host_cpu"}
    assert codes(judge(busy, shared_host=False)) == set()


def test_other_processes_on_the_machine() -> None:
    tables = with_rows(
        tables_of(Load()), ProcessSample, lambda r: {"cpu_user_s": r.cpu_user_s + 1.2 * (r.process == "host")}
    )
    judgement = judged(tables)
    assert codes(judgement, "warning") == {"other_cpu"}
    assert "used 1.30 of its 2 processors" in judgement.caveats[0].text


@pytest.mark.parametrize(("share", "severity"), [(0.03, "note"), (0.12, "warning")])
def test_processors_that_waited_for_a_hypervisor(share: float, severity: str) -> None:
    def stolen(row: ProcessSample) -> dict[str, Any]:
        return {"cpu_steal_s": share * row.processors * row.duration_ns / 1e9 if row.process == "host" else None}

    judgement = judged(with_rows(tables_of(Load()), ProcessSample, stolen))
    assert codes(judgement, severity) == {"cpu_steal"}
    said = f"the processors of this machine waited for the hypervisor {format_percent(share)} of the time (steal)"
    assert any(caveat.text.startswith(said) for caveat in judgement.caveats)
    assert judgement.figures.host_steal_ratio == pytest.approx(share)


def test_a_client_that_has_what_the_hypervisor_left_is_the_limit() -> None:
    """Of two processors a fifth was away: 1.55 is almost all of the rest."""

    def busy(steal: float) -> Judgement:
        def changed(row: ProcessSample) -> dict[str, Any]:
            seconds = row.duration_ns / 1e9
            own = {"cpu_user_s": 1.55 * seconds, "cpu_system_s": 0.0} if row.process in ("client", "host") else {}
            return own | {"cpu_steal_s": steal * row.processors * seconds if row.process == "host" else None}

        return judged(with_rows(tables_of(Load()), ProcessSample, changed))

    assert "client_cpu" in codes(busy(0.2), "refused")
    assert "client_cpu" not in codes(busy(0.0), "refused")


def test_a_disk_of_another_class_was_not_loaded() -> None:
    """A lab has a spare disk of each class, and all of them have the role disk."""
    tables = tables_of(Load(layer="disk"))
    rows = from_table(DeviceSample, tables["device_sample"])
    idle = [
        dataclasses.replace(r, device="loop98", device_class="ssd", read_limit_ratio=0.0, read_bytes=0) for r in rows
    ]
    both = {**tables, "device_sample": to_table(DeviceSample, rows + idle)}
    found = judged(both).figures
    assert [device.device for device in found.devices] == ["loop99"]


@pytest.mark.parametrize(("share", "warned"), [(1.0, False), (0.95, False), (0.83, True), (0.0, True), (1.2, True)])
def test_a_disk_that_counts_other_bytes_than_the_load(share: float, warned: bool) -> None:
    tables = tables_of(Load(layer="disk"))
    judgement = judged(with_rows(tables, DeviceSample, lambda r: {"read_bytes": round(r.read_bytes * share)}))
    assert ("device_mismatch" in codes(judgement, "warning")) is warned


def test_daemons_on_nodes_that_only_exist_by_name() -> None:
    """A lab's daemons are sampled under the names of their nodes; the machine is one all the same."""
    tables = with_rows(
        tables_of(Load()), ProcessSample, lambda r: {"host": "node1"} if r.process.startswith("osd.") else {}
    )
    moved = judged(tables).figures
    assert moved.other_cores == pytest.approx(0.1, abs=0.01)
    assert moved.osd_cpu_us_per_op == pytest.approx(300, rel=0.02)


@pytest.mark.parametrize(("machine", "others", "nodes"), [("localhost", 0.1, 0), ("", 1.66, 1)])
def test_a_node_of_a_lab_has_the_processors_of_this_machine(machine: str, others: float, nodes: int) -> None:
    tables = with_rows(
        tables_of(Load(iops=5200.0)), ProcessSample, lambda r: {"host": "node1"} if r.process.startswith("osd.") else {}
    )
    rows = from_table(ProcessSample, tables["process_sample"])
    there = [dataclasses.replace(row, host="node1") for row in rows if row.process == "host"]
    tables["process_sample"] = to_table(ProcessSample, [*rows, *there])
    tables["environment"] = to_table(EnvironmentFact, [EnvironmentFact("before", "node node1", SAME_MACHINE, machine)])
    found = judged(tables).figures
    assert found.other_cores == pytest.approx(others, abs=0.05)
    assert len(found.nodes) == nodes
    assert found.all_osds_sampled


@pytest.mark.parametrize(("share", "warned"), [(1.0, False), (0.95, False), (0.8, True)])
def test_clients_that_ended_apart_are_not_added_up_without_a_word(share: float, warned: bool) -> None:
    """The longest client ran as long as before, the others made fewer I/Os in less time: the rates are the same."""
    tables = with_rows(tables_of(Load()), Result, lambda row: {"io_count": round(row.io_count * share)})
    judgement = judged(tables)
    assert codes(judgement, "warning") == ({"clients_apart"} if warned else set())
    assert judgement.figures.iops == judge(Load()).figures.iops
    if warned:
        assert "25 % above all I/Os over the longest time" in judgement.caveats[0].text


def test_repeats_that_end_when_they_are_precise_have_a_note() -> None:
    (caveat,) = judge(precision=0.05).caveats
    assert (caveat.code, caveat.severity) == ("stopped_when_precise", "note")
    # It holds of those, too, that were measured as often as the plan allows and are not precise.
    assert "while the interval of its IOPS was wider than 5.0 % of their median to a side: 95 %" in caveat.text


def test_unsteady_and_short_and_unknown_steadiness() -> None:
    assert codes(judge(Load(drift=0.4)), "warning") == {"unsteady"}
    assert codes(judge(Load(runtime_s=4))) == {"short", "steadiness_unknown"}
    assert codes(judge(Load(runtime_s=6), io_count_limited=True)) == set()


def test_a_full_op_history() -> None:
    assert codes(judge(Load(complete_sample=False)), "note") == {"stages_slowest_only"}


def test_load_of_others_is_seen() -> None:
    judgement = judged(with_counter(Load(op="randwrite"), "op_w", 5000.0))
    assert codes(judgement, "warning") == {"other_load"}
    assert codes(judgement, "note") == {"foreign_work"}


def with_tenant(load: Load, iops: float, *, size: int = 4096, own: bool = False) -> dict[str, pa.Table]:
    """Return the tables of a step beside which another pool did steady reads that were seen every second."""
    count = round(iops)
    tables = with_counter(load, "op_r", 12.0 * count)
    (step,) = from_table(Step, tables["step"])
    rows = [
        PoolIo(at_ns, 10**9, 2, "volumes", own, count, 0, count * size, 0)
        for at_ns in range(step.started_ns + 10**9, step.ended_ns + 1, 10**9)
    ]
    waits = [PoolWait(row.at_ns, 2, "volumes", own, 3, 2, 6_000_000, 5_000_000) for row in rows]
    return {**tables, "pool_io": to_table(PoolIo, rows), "pool_wait": to_table(PoolWait, waits)}


def test_other_tenants_are_a_caveat_above_2_percent_and_a_refusal_above_the_plans_limit() -> None:
    load = Load(op="randwrite")
    iops = judge(load).figures.iops
    few = judged(with_tenant(load, 0.01 * iops))
    assert codes(few) == set()
    assert few.figures.tenant_iops == pytest.approx(0.01 * iops, rel=0.2)
    assert few.figures.tenant_wait_ns == 3_000_000
    some = judged(with_tenant(load, 0.2 * iops), max_tenant_share=0.25)
    assert codes(some, "warning") == {"tenant_load"}
    (text,) = [caveat.text for caveat in some.caveats if caveat.severity == "warning"]
    assert text.startswith("others used the cluster during the step: the pool volumes did ")
    assert text.endswith(": 20 % of our load")
    many = judged(with_tenant(load, 0.3 * iops), max_tenant_share=0.25)
    assert (many.status, codes(many, "refused")) == ("refused", {"tenant_load"})
    assert (many.reason or "").endswith("the plan's limit is 25 % (limits.max_tenant_share)")
    # Few I/Os may move more bytes than ours.
    assert codes(judged(with_tenant(load, 0.02 * iops, size=1 << 20), max_tenant_share=2), "refused") == {"tenant_load"}
    own = with_tenant(load, 0.3 * iops, own=True)
    assert codes(judged({**own, "perf_counter": tables_of(load)["perf_counter"]}, max_tenant_share=0.25)) == set()


def test_what_other_pools_did_explains_operations_of_the_osds() -> None:
    tables = with_tenant(Load(op="randwrite"), 5000 / 12)
    assert codes(judged(tables, max_tenant_share=9), "warning") == {"tenant_load"}
    del tables["pool_io"]
    assert codes(judged(tables, max_tenant_share=9), "warning") == {"other_load"}


def test_a_device_that_osds_share_is_theirs_when_all_of_them_are_under_test() -> None:
    tables = tables_of(Load(op="randwrite"))
    shared = from_table(DeviceSample, tables["device_sample"])
    rows = [dataclasses.replace(row, device="vda", role="osd.0 osd.1 osd.2") for row in shared if row.role == "osd.0"]
    tables["device_sample"] = to_table(DeviceSample, rows)
    found = judged(tables).figures
    assert [use.device for use in found.devices] == ["vda"]
    assert found.write_amplification is not None
    part = judged(tables, osds="0 1").figures
    assert (part.devices, part.write_amplification) == ((), None)


def test_devices_of_block_db_count_in_sums_and_are_reported_apart() -> None:
    tables = tables_of(Load(op="randwrite"))
    rows = from_table(DeviceSample, tables["device_sample"])
    alone = judged(tables).figures

    def with_db(role: str, *, osds: str | None = None) -> StepFigures:
        more = [dataclasses.replace(row, device="nvme0n1", role=role) for row in rows if row.role == "osd.0"]
        return judged(
            {**tables, "device_sample": to_table(DeviceSample, rows + more)}, **({"osds": osds} if osds else {})
        ).figures

    shared = with_db("osd.0.db osd.1.db osd.2.db")
    assert [use.role for use in shared.devices] == ["osd.0", "osd.1", "osd.2"]
    assert [use.device for use in shared.bluefs_devices] == ["nvme0n1"]
    assert shared.device_utilization == alone.device_utilization
    assert alone.write_amplification is not None
    assert shared.write_amplification == pytest.approx(alone.write_amplification * 4 / 3, rel=0.05)
    # A device that serves OSDs which are not under test says nothing of those that are, and so the sum is not known.
    part = with_db("osd.0.db osd.1.db osd.2.db", osds="0 1")
    assert (len(part.devices), part.bluefs_devices, part.write_amplification) == (2, (), None)
    others = with_db("osd.2.db", osds="0 1")
    assert others.bluefs_devices == ()
    assert others.write_amplification is not None
    # Data and block.db on one disk.
    assert [use.device for use in with_db("osd.0 osd.0.db").bluefs_devices] == []


def test_a_sum_without_every_osd_under_test_is_no_total() -> None:
    tables = tables_of(Load(cache_ratio=0.9))
    rows = from_table(PerfCounter, tables["perf_counter"])
    tables["device_sample"] = tables["device_sample"].slice(0, 0)
    whole = judged(tables, temperature="cold")
    assert codes(whole, "refused") == {"not_cold"}
    assert whole.figures.read_from_cache_ratio == pytest.approx(0.9, abs=0.01)
    # Two of three did not answer: their third of the bytes is neither a thin image nor the ratio of all caches.
    rows = [row for row in rows if row.daemon == "osd.0"]
    part = judged({**tables, "perf_counter": to_table(PerfCounter, rows)}, temperature="cold")
    assert (part.figures.read_from_cache_ratio, codes(part, "refused")) == (None, set())
    # What is too much already for those that answered is at least so much.
    rows += [dataclasses.replace(rows[0], name=name, delta=5000.0) for name in ("recovery_ops", "op_w")]
    part = judged({**tables, "perf_counter": to_table(PerfCounter, rows)})
    assert part.reason == "the OSDs did at least 5000 recovery operations during the step"
    (other,) = [caveat.text for caveat in part.caveats if caveat.code == "other_load"]
    assert "unknown clients did at least 417 writes a second" in other


def test_other_device_classes_do_not_count() -> None:
    """Devices of OSDs that are not under test change no figure."""
    builder = RunBuilder()
    builder.add_osds("hdd", 3)
    builder.add_osds("ssd", 3)
    builder.add_step(Load())
    tables = builder.tables()
    devices = judged(tables).figures.devices
    assert {d.role for d in devices} == {"osd.0", "osd.1", "osd.2"}
    one = judged(tables, osds="1").figures
    assert [d.role for d in one.devices] == ["osd.1"]
    assert [name for name, _ in one.osd_cores] == ["osd.1"]


def test_every_caveat_is_one_sentence_with_a_figure() -> None:
    load = Load(drift=0.5, cache_ratio=0.9, complete_sample=False, osd_us_per_op=9000.0, errors=2)
    for caveat in judge(load, cache_bytes=4 << 30, shared_host=True).caveats:
        assert any(character.isdigit() for character in caveat.text), caveat
        assert "\n" not in caveat.text
        assert caveat.step_index == 0
        assert caveat.source == "trust"


def test_bursts_through_a_throttle_average_to_its_limit() -> None:
    """A throttle deals out its requests in slices: one interval has twice the limit, the next one nothing."""
    slices = itertools.cycle((0.0, 2.0))
    tables = tables_of(Load(layer="disk"))
    bursts = with_rows(tables, DeviceSample, lambda _: {"read_limit_ratio": next(slices)})
    figures = judged(bursts).figures
    assert figures.device_utilization == pytest.approx(1.0, abs=0.01)


def on_simulated_disk(load: Load, **changes: Any) -> dict[str, pa.Table]:
    """Return the tables of a step whose first device is a simulated disk, busy all the time with four requests."""
    unlimited = {"read_limit_ratio": None, "write_limit_ratio": None}
    tables = with_rows(tables_of(load), DeviceSample, lambda _: unlimited)
    (step,) = from_table(Step, tables["step"])
    device = next(row for row in from_table(DeviceSample, tables["device_sample"]) if row.role == "osd.0").device
    length_ns = step.ended_ns - step.started_ns
    sample = SimulatedDiskSample(
        at_ns=step.ended_ns, duration_ns=length_ns, disk="osd.0.hdd", drive="hdd-7200-4t", device=device,
        read_count=1000, write_count=0, flush_count=0, error_count=0, busy_ns=length_ns, queue_ns=4 * length_ns,
        seek_count=1000, seek_ns=length_ns // 2, rotation_ns=length_ns // 4, transfer_ns=length_ns // 100,
        media_read_bytes=0, media_write_bytes=0, erase_count=0, wear_ratio=0.0, reply_count=1000, lateness_ns=0,
        late_count=0, faults="",
    )  # fmt: skip
    return {
        **tables,
        SimulatedDiskSample.TABLE: to_table(SimulatedDiskSample, [dataclasses.replace(sample, **changes)]),
    }


def test_a_simulated_disk_tells_its_own_utilisation() -> None:
    judgement = judged(on_simulated_disk(Load()))
    (device,) = [d for d in judgement.figures.devices if d.role == "osd.0"]
    assert device.utilization == pytest.approx(1)
    assert device.disk is not None
    assert (device.disk.seek, device.disk.rotation, device.disk.queue_depth) == pytest.approx((0.5, 0.25, 4))
    assert codes(judgement) == set()


@pytest.mark.parametrize(("late", "severity"), [(0.01, None), (0.05, "note"), (0.2, "warning")])
def test_a_disk_that_answers_too_late_is_told_of(late: float, severity: str | None) -> None:
    (step,) = from_table(Step, tables_of(Load())["step"])
    judgement = judged(on_simulated_disk(Load(), lateness_ns=round(4 * (step.ended_ns - step.started_ns) * late)))
    assert codes(judgement, severity) == ({"simulated_disk_late"} if severity else set())


def test_faults_that_somebody_has_set_are_told_of() -> None:
    judgement = judged(on_simulated_disk(Load(), faults="slow=10x; eio=read"))
    (caveat,) = judgement.caveats
    assert (caveat.code, caveat.severity) == ("disk_faults", "warning")
    assert "osd.0: slow=10x, eio=read" in caveat.text
