"""What must be refused is refused, what must be known is said, and a clean step passes without a word."""

from __future__ import annotations

import dataclasses
from typing import Any

import pyarrow as pa
import pytest
from tests.unit.analysis.builders import Load, RunBuilder

from bathyscope.analysis.trust import Judgement, StepContext, judge_step, target_caveats
from bathyscope.records import DeviceSample, Op, PerfCounter, ProcessSample, Result, from_table, to_table

CONTEXT = StepContext(
    run_id="20260921-133320-abc123", step_index=0, layer="rbd", op="randread", runtime_s=10.0, ramp_s=2.0,
    device_class="hdd", working_set_bytes=1 << 30, osds=frozenset({0, 1, 2}), cache_bytes=144 << 20,
)  # fmt: skip


def tables_of(load: Load, prefix: str = "") -> dict[str, pa.Table]:
    builder = RunBuilder(counter_prefix=prefix)
    builder.add_osds("hdd", 3)
    builder.add_step(load)
    return builder.tables()


def judge(load: Load | None = None, prefix: str = "", **context: Any) -> Judgement:
    load = load or Load()
    base = dataclasses.replace(CONTEXT, layer=load.layer, op=load.op, temperature=load.temperature)
    return judge_step(tables_of(load, prefix), dataclasses.replace(base, **context))


def codes(judgement: Judgement, severity: str | None = None) -> set[str]:
    return {c.code for c in judgement.caveats if severity in (None, c.severity)}


def test_a_clean_step_has_no_caveat() -> None:
    judgement = judge()
    assert (judgement.status, judgement.reason, judgement.caveats) == ("done", None, ())


@pytest.mark.parametrize("op", ["randread", "randwrite", "read", "write"])
@pytest.mark.parametrize("layer", ["disk", "rados", "rbd"])
def test_a_clean_step_of_every_layer_passes(layer: str, op: str) -> None:
    assert judge(Load(layer=layer, op=op)).caveats == ()


def test_no_io_fails() -> None:
    judgement = judge(Load(iops=0.0, op_rows=0))
    assert judgement.status == "failed"
    assert judgement.reason == "not one I/O was completed in the measured window"
    assert judge_step({}, CONTEXT).status == "failed"


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
    tables = tables_of(Load())
    rows = []
    for row in from_table(PerfCounter, tables["perf_counter"]):
        # The builder counts the ramp as well: 12 seconds for a measured window of 10.
        delta = row.delta / 1.2 * answered if row.name == "op_r_out_bytes" else row.delta
        rows.append(dataclasses.replace(row, delta=delta))
    judgement = judge_step({**tables, "perf_counter": to_table(PerfCounter, rows)}, CONTEXT)
    assert (judgement.status == "refused") is refused
    assert ("thin_image" in codes(judgement, "refused")) is refused


def test_an_image_known_to_be_thin_is_refused() -> None:
    assert judge(image_written=False).status == "refused"
    assert judge(Load(op="randwrite"), image_written=False).status == "done"


def test_degraded_placement_groups_are_refused() -> None:
    judgement = judge(degraded="3 placement groups degraded after 4 s")
    assert judgement.status == "refused"
    assert "3 placement groups degraded" in (judgement.reason or "")


@pytest.mark.parametrize(("operations", "severity"), [(500.0, "refused"), (1.0, "note")])
def test_recovery_seen_by_the_osds(operations: float, severity: str) -> None:
    tables = tables_of(Load())
    more = [PerfCounter(CONTEXT.run_id, 0, "osd.1", "osd", "recovery_ops", "counter", operations, None)]
    tables["perf_counter"] = pa.concat_tables([tables["perf_counter"], to_table(PerfCounter, more)])
    assert codes(judge_step(tables, CONTEXT), severity) == {"recovery"}


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
    builder = RunBuilder()
    builder.add_osds("hdd", 3)
    builder.add_step(Load(cache_ratio=0.0))
    tables = builder.tables()
    column = tables["device_sample"].schema.get_field_index("read_bytes")
    nothing = pa.array([0] * tables["device_sample"].num_rows, pa.int64())
    field = tables["device_sample"].schema.field(column)
    tables["device_sample"] = tables["device_sample"].set_column(column, field, nothing)
    judgement = judge_step(tables, dataclasses.replace(CONTEXT, temperature="cold"))
    assert codes(judgement, "refused") == {"not_cold"}


@pytest.mark.parametrize("severity", ["doubt", "note"])
def test_mostly_cached_reads_are_doubted_unless_warm_was_asked(severity: str) -> None:
    load = Load(cache_ratio=0.9, temperature="any" if severity == "doubt" else "warm")
    assert codes(judge(load), severity) == {"cache_hits"}


def test_unknown_cache_share_is_said() -> None:
    tables = {k: v for k, v in tables_of(Load()).items() if k not in ("perf_counter", "device_sample")}
    assert codes(judge_step(tables, CONTEXT)) == {"cache_unknown"}
    cold = judge_step(tables, dataclasses.replace(CONTEXT, temperature="cold"))
    assert codes(cold, "doubt") == {"cold_unchecked"}


def test_a_part_of_the_cluster_is_not_taken_for_the_whole() -> None:
    """Four OSDs under test, three sampled: what sums over all OSDs is unknown, what one device shows is not."""
    tables = tables_of(Load(op="randwrite"))
    whole = judge_step(tables, dataclasses.replace(CONTEXT, op="randwrite")).figures
    part = judge_step(tables, dataclasses.replace(CONTEXT, op="randwrite", osds=frozenset(range(4)))).figures
    assert whole.write_amplification == pytest.approx(2.5, rel=0.01)
    assert (part.write_amplification, part.osd_cpu_us_per_op) == (None, None)
    assert part.device_utilization == whole.device_utilization


def test_processor_time_beside_two_directions_counts_once() -> None:
    tables = tables_of(Load(client_thread_us_per_op=2500.0))
    rows = from_table(Result, tables["result"])
    both = to_table(Result, [*rows, dataclasses.replace(rows[0], direction="write")])
    busy = judge_step({**tables, "result": both}, CONTEXT).figures.client_thread_busy
    assert busy == pytest.approx(0.58, abs=0.02)


def test_a_gauge_is_not_taken_for_a_difference() -> None:
    """Some releases declare the hit counters as plain values: then the devices are the only witness."""
    tables = tables_of(Load(cache_ratio=0.3))
    rows = [
        dataclasses.replace(r, kind="gauge", delta=1e12) if "buffer_hit" in r.name else r
        for r in from_table(PerfCounter, tables["perf_counter"])
    ]
    judgement = judge_step({**tables, "perf_counter": to_table(PerfCounter, rows)}, CONTEXT)
    assert judgement.figures.read_from_cache_ratio == pytest.approx(0.3, abs=0.02)


def test_a_working_set_inside_the_caches() -> None:
    assert codes(judge(cache_bytes=2 << 30), "doubt") == {"small_working_set"}
    assert codes(judge(Load(op="randwrite"), cache_bytes=2 << 30)) == set()


@pytest.mark.parametrize(("layer", "status", "severity"), [("rbd", "refused", "refused"), ("disk", "done", "doubt")])
def test_a_saturated_client(layer: str, status: str, severity: str) -> None:
    """231 IOPS at 4.2 ms of the generator's own thread each: 97 % of the one processor that it can use."""
    judgement = judge(Load(layer=layer, client_thread_us_per_op=4200.0))
    assert judgement.status == status
    assert codes(judgement, severity) == {"client_cpu"}


def test_load_processes_that_fill_the_machine() -> None:
    assert codes(judge(Load(client_us_per_op=8500.0)), "refused") == {"client_cpu"}


def test_a_full_machine_shared_with_osds_is_a_doubt() -> None:
    busy = Load(osd_us_per_op=8500.0)
    assert codes(judge(busy, shared_host=True)) == {"shared_host_cpu"}
    assert codes(judge(busy, shared_host=False)) == set()


def test_strangers_on_the_machine() -> None:
    tables = tables_of(Load())
    rows = [
        dataclasses.replace(row, cpu_user_s=row.cpu_user_s + 1.2) if row.process == "host" else row
        for row in from_table(ProcessSample, tables["process_sample"])
    ]
    judgement = judge_step({**tables, "process_sample": to_table(ProcessSample, rows)}, CONTEXT)
    assert codes(judgement, "doubt") == {"other_cpu"}
    assert "used 1.30 of its 2 processors" in judgement.caveats[0].text


def test_a_disk_of_another_class_was_not_loaded() -> None:
    """A lab has a spare disk of each class, and all of them have the role disk."""
    tables = tables_of(Load(layer="disk"))
    rows = from_table(DeviceSample, tables["device_sample"])
    idle = [dataclasses.replace(r, device="loop98", device_class="ssd", limit_ratio=0.0, read_bytes=0) for r in rows]
    both = {**tables, "device_sample": to_table(DeviceSample, rows + idle)}
    found = judge_step(both, dataclasses.replace(CONTEXT, layer="disk")).figures
    assert [device.device for device in found.devices] == ["loop99"]


@pytest.mark.parametrize(("share", "doubted"), [(1.0, False), (0.95, False), (0.83, True), (0.0, True), (1.2, True)])
def test_a_disk_that_counts_other_bytes_than_the_load(share: float, doubted: bool) -> None:
    tables = tables_of(Load(layer="disk"))
    rows = [
        dataclasses.replace(row, read_bytes=round(row.read_bytes * share))
        for row in from_table(DeviceSample, tables["device_sample"])
    ]
    judgement = judge_step(
        {**tables, "device_sample": to_table(DeviceSample, rows)}, dataclasses.replace(CONTEXT, layer="disk")
    )
    assert ("device_mismatch" in codes(judgement, "doubt")) is doubted


def test_daemons_on_nodes_that_only_exist_by_name() -> None:
    """A lab's daemons are sampled under the names of their nodes; the machine is one all the same."""
    tables = tables_of(Load())
    rows = [
        dataclasses.replace(row, host="node1") if row.process.startswith("osd.") else row
        for row in from_table(ProcessSample, tables["process_sample"])
    ]
    moved = judge_step({**tables, "process_sample": to_table(ProcessSample, rows)}, CONTEXT).figures
    assert moved.other_cores == pytest.approx(0.1, abs=0.01)
    assert moved.osd_cpu_us_per_op == pytest.approx(300, rel=0.02)


def test_unsteady_and_short_and_unknown_steadiness() -> None:
    assert codes(judge(Load(drift=0.4)), "doubt") == {"unsteady"}
    assert codes(judge(Load(runtime_s=4))) == {"short", "steadiness_unknown"}
    assert codes(judge(Load(runtime_s=6), io_count_limited=True)) == set()


def test_a_full_op_history() -> None:
    judgement = judge(Load(complete_sample=False))
    assert codes(judgement, "note") == {"stages_slowest_only"}
    assert from_table(Op, tables_of(Load())["op"])[0].complete_sample


def test_load_of_others_is_seen() -> None:
    tables = tables_of(Load(op="randwrite"))
    foreign = [PerfCounter(CONTEXT.run_id, 0, "osd.2", "osd", "op_w", "counter", 5000.0, None)]
    tables["perf_counter"] = pa.concat_tables([tables["perf_counter"], to_table(PerfCounter, foreign)])
    assert codes(judge_step(tables, dataclasses.replace(CONTEXT, op="randwrite"))) == {"other_load"}


def test_other_device_classes_do_not_count() -> None:
    """Devices of OSDs that are not under test change no figure."""
    builder = RunBuilder()
    builder.add_osds("hdd", 3)
    builder.add_osds("ssd", 3)
    builder.add_step(Load())
    tables = builder.tables()
    devices = judge_step(tables, CONTEXT).figures.devices
    assert {d.role for d in devices} == {"osd.0", "osd.1", "osd.2"}
    one = judge_step(tables, dataclasses.replace(CONTEXT, osds=frozenset({1}))).figures
    assert [d.role for d in one.devices] == ["osd.1"]
    assert [name for name, _ in one.osd_cores] == ["osd.1"]


def test_every_caveat_is_one_sentence_with_a_figure() -> None:
    load = Load(drift=0.5, cache_ratio=0.9, complete_sample=False, osd_us_per_op=9000.0, errors=2)
    for caveat in judge(load, cache_bytes=4 << 30, shared_host=True).caveats:
        assert any(character.isdigit() for character in caveat.text), caveat
        assert "\n" not in caveat.text
        assert caveat.step_index == 0
        assert caveat.source == "trust"


def test_target_caveats_hold_for_the_whole_run() -> None:
    rows = target_caveats("r", (("throttle_profile", "devices are throttled"),))
    assert [(r.step_index, r.severity, r.code) for r in rows] == [(None, "note", "throttle_profile")]
