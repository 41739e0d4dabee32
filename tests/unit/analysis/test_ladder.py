"""The ladder gives back the figures that the tables were built from, and holds together as a whole."""

from __future__ import annotations

import dataclasses
import json
import re

import pyarrow as pa
import pytest
from tests.unit.analysis.builders import Load, RunBuilder, ladder_finding, ladder_of, ladder_tables

from bathyscope.analysis.ladder_point import base_pattern, variant_of
from bathyscope.analysis.ladder_words import headline
from bathyscope.errors import AnalysisError
from bathyscope.records.figure import Figure
from bathyscope.records.finding import LadderFinding, PointFinding, as_plain


@pytest.fixture(scope="module")
def finding() -> LadderFinding:
    return ladder_finding()


def points_of(finding: LadderFinding) -> list[PointFinding]:
    return [p for group in finding.groups for p in group.points]


def point(finding: LadderFinding, key: str) -> PointFinding:
    return next(p for p in points_of(finding) if p.step_key == key)


def test_groups_climb_from_the_disk(finding: LadderFinding) -> None:
    assert [g.device_class for g in finding.groups].count("hdd") == 6
    for group in finding.groups[:12]:
        assert [p.layer for p in group.points] == ["disk", "rados", "rbd"]
        assert [(loss.lower_layer, loss.upper_layer) for loss in group.losses] == [("disk", "rados"), ("rados", "rbd")]
        assert {p.pattern for p in group.points} == {group.pattern}


def test_figures_are_those_that_went_in(finding: LadderFinding) -> None:
    read = point(finding, "rbd/hdd/randread-4K-qd16")
    assert read.iops.value == pytest.approx(232 * 0.8, rel=0.03)
    assert read.bandwidth_bytes_per_s.value == pytest.approx(232 * 0.8 * 4096, rel=0.03)
    assert read.latency_ns_mean.value == pytest.approx(16 / (232 * 0.8) * 1e9, rel=0.03)
    assert read.read_from_cache_ratio.value == pytest.approx(0.02, abs=0.002)
    assert read.osd_cpu_us_per_op.value == pytest.approx(180, rel=0.02)
    assert read.client_cpu_us_per_op.value == pytest.approx(60, rel=0.02)
    assert read.device_utilization.value == pytest.approx(0.99, abs=0.01)
    assert read.write_amplification.value is None
    assert read.steady
    assert read.verdict.limit == "device"
    write = point(finding, "rbd/hdd/randwrite-4K-qd16")
    assert write.write_amplification.value == pytest.approx(2.5, rel=0.02)
    assert write.read_from_cache_ratio.value is None
    assert {s.stage: round(s.share, 2) for s in write.stages}["replica_wait"] == 0.5
    assert point(finding, "disk/hdd/randwrite-4K-qd16").write_amplification.value == pytest.approx(1, rel=0.02)
    assert point(finding, "disk/hdd/randwrite-4K-qd16").osd_cpu_us_per_op.value is None


def test_losses_have_the_ratio_that_went_in(finding: LadderFinding) -> None:
    group = next(g for g in finding.groups if (g.device_class, g.pattern) == ("ssd", "randread-4K-qd16"))
    disk, rbd = group.losses
    assert disk.ratio.value == pytest.approx(0.92, rel=0.03)
    assert rbd.ratio.value == pytest.approx(0.8 / 0.92, rel=0.03)
    for loss in group.losses:
        assert loss.ratio.low <= loss.ratio.value <= loss.ratio.high
    assert "over 3 OSDs" in disk.sentence
    assert "RBD keeps 8" in rbd.sentence


def test_percentiles_are_ordered_and_carry_the_bound(finding: LadderFinding) -> None:
    for p in points_of(finding):
        ordered = [f.value for f in (p.latency_ns_p50, p.latency_ns_p99, p.latency_ns_p999) if f.value is not None]
        assert ordered == sorted(ordered)
        assert p.latency_ns_p99.relative_error == pytest.approx(1 / 128)
    slow = point(finding, "rbd/hdd/randread-4K-qd16")
    assert slow.latency_ns_p999.value is None
    assert any(c.code == "few_ios" for c in slow.caveats)
    assert point(finding, "rbd/ssd/randread-4K-qd16").latency_ns_p999.value is not None


def test_a_refused_point_shows_no_number(finding: LadderFinding) -> None:
    refused = point(finding, "rbd/ssd/randread-4K-qd32")
    assert refused.status == "refused"
    assert "OSDs returned 3 %" in (refused.reason or "")
    values = [getattr(refused, field.name) for field in dataclasses.fields(refused)]
    figures = [value for value in values if isinstance(value, Figure)]
    assert len(figures) >= 10
    assert all(f.value is None for f in figures)
    assert "168" not in json.dumps(as_plain(refused))
    assert refused.verdict.limit == "refused"
    assert refused.account is None


def test_cross_checks_stand_apart_and_disagreement_is_said(finding: LadderFinding) -> None:
    assert [w.load_generator for w in finding.cross_checks] == ["rados_bench"]
    assert finding.cross_checks[0].latency_ns_p99.value is None
    assert "cross_check_disagrees" not in {c.code for c in finding.caveats}
    builder = RunBuilder()
    builder.add_osds("hdd", 3)
    for repeat in range(3):
        builder.add_step(Load(layer="rados", iops=230), repeat)
        builder.add_step(Load(layer="rados", iops=120, load_generator="rados_bench"), repeat)
    warning = next(c for c in ladder_of(builder.tables()).caveats if c.code == "cross_check_disagrees")
    assert warning.step_keys == ("rados/hdd/randread-4K-qd16",)
    assert "0.5" in warning.text


def test_caveats_are_joined_over_steps(finding: LadderFinding) -> None:
    few = [c for c in finding.caveats if c.code == "few_repeats" and c.severity == "note"]
    assert len(few) == 1
    assert len(few[0].step_keys) == 37
    whole = [c for c in finding.caveats if not c.step_keys]
    assert [c.code for c in whole] == ["throttle_profile"]
    order = ["refused", "warning", "note"]
    severities = [caveat.severity for caveat in finding.caveats]
    assert severities == sorted(severities, key=order.index)


def test_one_repeat_says_what_its_interval_is() -> None:
    p = points_of(ladder_finding(repeats=1))[0]
    assert p.iops.low is not None
    assert p.iops.samples == 1
    assert p.latency_ns_mean.low is None
    assert any(c.code == "few_repeats" and c.severity == "warning" and "within it" in c.text for c in p.caveats)
    loss = ladder_finding(repeats=1).groups[0].losses[0]
    assert loss.ratio.low is None
    assert "no interval" in loss.sentence


def test_some_repeats_refused() -> None:
    builder = RunBuilder()
    builder.add_osds("hdd", 3)
    builder.add_step(Load(iops=230), 0)
    builder.add_step(Load(iops=9000, status="refused", reason="a thin image"), 1)
    builder.add_step(Load(iops=232), 2)
    p = points_of(ladder_of(builder.tables()))[0]
    assert (p.status, p.repeats) == ("done", 2)
    assert p.iops.value == pytest.approx(231, rel=0.03)
    left_out = next(c for c in p.caveats if c.code == "repeats_left_out")
    assert left_out.text == "1 of 3 repeats are left out: a thin image"


def test_variants_join_the_plain_disk() -> None:
    builder = RunBuilder()
    builder.add_osds("hdd", 3)
    for suffix in ("", "-j4", "-obj1M"):
        builder.add_step(Load(suffix=suffix, jobs=4 if suffix == "-j4" else 1))
    builder.add_step(Load(layer="disk"))
    groups = ladder_of(builder.tables()).groups
    assert {g.pattern: [p.step_key for p in g.points] for g in groups} == {
        "randread-4K-qd16": ["disk/hdd/randread-4K-qd16", "rbd/hdd/randread-4K-qd16"],
        "randread-4K-qd16-j4": ["disk/hdd/randread-4K-qd16", "rbd/hdd/randread-4K-qd16-j4"],
        "randread-4K-qd16-obj1M": ["disk/hdd/randread-4K-qd16", "rbd/hdd/randread-4K-qd16-obj1M"],
    }


@pytest.mark.parametrize(
    ("key", "variant", "base"),
    [
        ("rbd/ssd/randread-4K-qd16", "randread-4K-qd16", "randread-4K-qd16"),
        ("rbd/ssd/randrw70-512-qd1-j4-cold@rados_bench", "randrw70-512-qd1-j4-cold", "randrw70-512-qd1"),
        ("strange", "strange", "strange"),
    ],
)
def test_keys(key: str, variant: str, base: str) -> None:
    assert variant_of(key) == variant
    assert base_pattern(variant) == base


def test_series_and_distributions(finding: LadderFinding) -> None:
    names = {s.name for s in finding.series}
    assert names == {"iops", "bandwidth_bytes_per_s", "latency_ns_mean", "device_utilization", "cpu_cores"}
    for s in finding.series:
        assert [p.t_s for p in s.points] == sorted(p.t_s for p in s.points)
        assert all(p.t_s > 0 for p in s.points)
    for d in finding.distributions:
        assert d.points[-1].quantile <= 1
        assert [p.latency_ns for p in d.points] == sorted(p.latency_ns for p in d.points)
    assert len({d.step_key for d in finding.distributions}) == len(finding.distributions) == 36


def test_environment_and_commands(finding: LadderFinding) -> None:
    assert ("cluster", "ceph_version", "16.2.15") in finding.environment
    assert ("host bench1", "governor", "performance") in finding.environment
    assert len(finding.environment) == len(set(finding.environment))
    assert finding.commands[0].argv[0] == "fio"


def test_the_headline_names_every_device_class(finding: LadderFinding) -> None:
    assert finding.headline.startswith("RBD, 4K random I/O at QD16: HDD ")
    assert ", SSD " in finding.headline
    assert len(finding.headline) <= 160, "a headline fits two lines of a terminal"
    assert all(g.sentence for g in finding.groups)


def test_the_headline_of_a_mixed_load_is_a_total_and_gives_way_to_random_writes(finding: LadderFinding) -> None:
    layers = {layer.name: layer for layer in finding.layers}
    reads, writes = (
        next(g for g in finding.groups if (g.device_class, g.pattern) == ("ssd", pattern))
        for pattern in ("randread-4K-qd16", "randwrite-4K-qd16")
    )
    rungs = tuple(dataclasses.replace(p, op="randrw", queue_depth=64) for p in writes.points)
    mixed = dataclasses.replace(writes, points=rungs)
    text = headline([reads, mixed], layers)
    assert re.fullmatch(
        r"RBD, 4K random I/O at QD16: SSD \S+ read IOPS\. RBD, 4K mixed random I/O at QD64: SSD \S+ total IOPS\.", text
    )
    assert headline([reads, mixed, writes], layers) == headline([reads, writes], layers)


def test_the_finding_is_plain_json(finding: LadderFinding) -> None:
    assert json.loads(json.dumps(as_plain(finding), allow_nan=False))["run_id"] == finding.run_id


def test_a_run_without_steps_or_of_two_runs() -> None:
    with pytest.raises(AnalysisError) as caught:
        ladder_of({})
    assert caught.value.hint
    a, b = ladder_tables(repeats=1), ladder_tables(repeats=1, run_id="other")
    with pytest.raises(AnalysisError, match="not of 2"):
        ladder_of({name: pa.concat_tables([a[name], b[name]]) for name in a})


def test_nothing_but_failures() -> None:
    builder = RunBuilder()
    builder.add_step(Load(iops=0, status="failed", reason="fio ended with code 1", op_rows=0))
    finding = ladder_of(builder.tables())
    assert finding.headline == "No figure of this run can be shown; the caveats say why."
    assert finding.groups[0].points[0].reason == "fio ended with code 1"


def test_a_cluster_of_200_osds() -> None:
    builder = RunBuilder()
    builder.add_osds("ssd", 200)
    for step in range(24):
        builder.add_step(Load(device_class="ssd", queue_depth=step // 3 + 1, iops=4000, op_rows=200), step % 3)
    finding = ladder_of(builder.tables())
    assert len(finding.groups) == 8


def repeated(*texts: tuple[str, ...]) -> LadderFinding:
    """Return a run of one configuration, each repeat of which has caveats of one code with these texts."""
    builder = RunBuilder()
    builder.add_osds("hdd", 3)
    for repeat, own in enumerate(texts):
        index = builder.add_step(Load(op_rows=0), repeat)
        for text in own:
            builder.add_caveat("cache_hits", "note", text, index)
    return ladder_of(builder.tables())


def test_a_caveat_of_several_repeats_has_the_range_of_its_figures() -> None:
    finding = repeated(("12 % of osd.1's reads",), ("40 % of osd.1's reads",), ("9.0 % of osd.1's reads",))
    (only,) = [c.text for c in points_of(finding)[0].caveats if c.code == "cache_hits"]
    assert only == "9.0–40 % of osd.1's reads"


def test_a_caveat_of_some_repeats_has_only_their_figures_and_other_words_are_another_caveat() -> None:
    finding = repeated(("12 % of osd.1's reads", "3.0 % of osd.2's reads"), (), ("14 % of osd.1's reads",))
    texts = {c.text for c in points_of(finding)[0].caveats if c.code == "cache_hits"}
    assert texts == {
        "12–14 % of osd.1's reads (in 2 of 3 repeats)", "3.0 % of osd.2's reads (in 1 of 3 repeats)"
    }  # fmt: skip


def test_caveats_of_several_configurations_have_the_range_of_their_figures() -> None:
    builder = RunBuilder()
    builder.add_osds("hdd", 3)
    texts = {1: "12 % of osd.1's reads", 2: "40 % of osd.1's reads", 4: "40 % of osd.2's reads"}
    for depth, text in texts.items():
        for repeat in range(2):
            index = builder.add_step(Load(queue_depth=depth, op_rows=0), repeat)
            if depth != 2 or repeat == 0:
                builder.add_caveat("cache_hits", "note", text, index)
    (joined,) = [c for c in ladder_of(builder.tables()).caveats if c.code == "cache_hits"]
    assert joined.text == "12–40 % of osd.1's reads (not in all repeats) (in 2 of 3 cases; other words in the rest)"
    assert len(joined.step_keys) == 3


def test_the_account_of_a_point_closes_and_names_its_ceiling(finding: LadderFinding) -> None:
    read = point(finding, "rbd/hdd/randread-4K-qd16")
    account = read.account
    assert account is not None
    assert account.in_flight.value == pytest.approx(16, rel=0.03)
    assert [one.reached.value for one in account.ceilings] == sorted(
        (one.reached.value for one in account.ceilings), key=lambda value: -(value or 0)
    )
    first = account.limits[0]
    assert (first.resource, first.source) == ("device", "its throttle")
    assert first.iops.value == pytest.approx((read.iops.value or 0) / 0.99, rel=0.02)
    assert "in_flight" not in {caveat.code for caveat in read.caveats}


def test_what_flash_can_do_is_known_from_the_disk_layer_of_the_run() -> None:
    def device_of(*loads: Load) -> tuple[float | None, str] | None:
        run = RunBuilder()
        run.add_run()
        run.add_osds("ssd", 3)
        for load in loads:
            run.add_step(load)
        found = point(ladder_of(run.tables()), "rbd/ssd/randread-4K-qd16").account
        assert found is not None
        return next(((one.reached.value, one.source) for one in found.ceilings if one.resource == "device"), None)

    rbd = Load(device_class="ssd", iops=3000.0, limit_ratio=None)
    assert device_of(rbd) is None
    disk = Load(layer="disk", device_class="ssd", iops=20000.0, limit_ratio=None)
    slower = dataclasses.replace(disk, iops=5000.0, suffix="-j2")
    held_back = dataclasses.replace(disk, iops=500.0, suffix="-rate500")
    shallow = dataclasses.replace(disk, iops=900.0, queue_depth=1)
    assert device_of(held_back, rbd) is None
    assert device_of(shallow, rbd) is None
    other = dataclasses.replace(disk, iops=500.0, op="randwrite")
    found = device_of(disk, slower, other, rbd)
    assert found is not None
    # A third of the reads is on each OSD's device; the most that one disk gave counts.
    assert found == (pytest.approx(1000 / 20000, rel=0.05), "the disk layer of this run")


def test_a_load_that_does_not_keep_its_ios_in_flight_is_said() -> None:
    run = RunBuilder()
    run.add_run()
    run.add_osds("ssd", 3)
    run.add_step(Load(device_class="ssd", iops=500.0))
    tables = run.tables()
    result = tables["result"]
    halved = pa.array([(value or 0) / 2 for value in result.column("latency_ns_mean").to_pylist()])
    tables["result"] = result.set_column(result.column_names.index("latency_ns_mean"), "latency_ns_mean", halved)
    (group,) = ladder_of(tables).groups
    (caveat,) = [caveat for caveat in group.points[0].caveats if caveat.code == "in_flight"]
    assert re.fullmatch(
        r"rate × latency gives [78]\.\d\d I/Os in flight where the load generator was to keep 16", caveat.text
    )
