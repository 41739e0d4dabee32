"""Two runs compared: equal runs are called equal, changed ones changed, and missing data is neither."""

from __future__ import annotations

import dataclasses
import itertools

import pyarrow as pa
import pytest
from tests.unit.analysis.builders import Load, RunBuilder

from bathyscope.analysis.compare import compare, lost
from bathyscope.analysis.differences import recorded_facts
from bathyscope.commands import compare as command
from bathyscope.errors import AnalysisError, UsageError
from bathyscope.records import EnvironmentFact, Placement, to_table
from bathyscope.records.finding import Difference

DEPTHS = (1, 2, 4, 8, 16, 32)


def run(
    *, seed: int, factor: float = 1.0, repeats: int = 3, noise: float = 0.02, depths: tuple[int, ...] = DEPTHS,
    change: dict[int, Load] | None = None, run_id: str = "a",
) -> dict[str, pa.Table]:  # fmt: skip
    """A run with one step per queue depth; devices, processes and ops do not matter to a comparison."""
    builder = RunBuilder(run_id, seed=seed)
    builder.add_run()
    for repeat in range(repeats):
        for depth in depths:
            load = Load(
                queue_depth=depth,
                iops=300.0 * depth * factor,
                noise=noise,
                runtime_s=5,
                op_rows=0,
                histogram=depth == 32,
            )
            builder.add_step((change or {}).get(depth, load), repeat)
    return builder.tables()


@pytest.mark.parametrize("repeats", [3, 5, 10])
def test_equal_runs_are_called_equal(repeats: int) -> None:
    """A/A: every pair of equal runs, without a threshold; at most one call in twenty is wrong."""
    runs = [run(seed=1000 + trial, repeats=repeats, noise=0.08) for trial in range(6)]
    calls = [
        effect.verdict for a, b in itertools.combinations(runs, 2) for effect in compare(a, b, threshold=0.0).effects
    ]
    assert len(calls) == 15 * len(DEPTHS)
    assert sum(call != "inconclusive" for call in calls) / len(calls) <= 0.05


@pytest.mark.parametrize(("factor", "verdict"), [(0.8, "slower"), (1.25, "faster")])
def test_a_change_is_found_on_every_metric(factor: float, verdict: str) -> None:
    a, b = run(seed=1), run(seed=2, factor=factor, run_id="b")
    for metric in ("iops", "latency"):
        assert {effect.verdict for effect in compare(a, b, metric=metric).effects} == {verdict}
    p99 = {e.step_key[-4:]: e for e in compare(a, b, metric="p99").effects}
    assert p99["qd32"].verdict == verdict
    assert p99["qd32"].a.relative_error == pytest.approx(1 / 128)
    assert p99["-qd1"].verdict == "inconclusive"
    effect = compare(a, b).effects[0].effect
    assert effect.low <= effect.value <= effect.high
    assert (effect.value > 0) == (verdict == "faster")


def test_a_certain_change_below_the_threshold_is_not_called() -> None:
    a, b = run(seed=1, noise=0.0005, repeats=5), run(seed=2, noise=0.0005, repeats=5, factor=0.97)
    assert {e.verdict for e in compare(a, b).effects} == {"inconclusive"}
    assert all("below the threshold" in (e.reason or "") for e in compare(a, b).effects)
    assert {e.verdict for e in compare(a, b, threshold=0.01).effects} == {"slower"}


def test_missing_and_refused_steps_are_never_equal() -> None:
    refused = Load(
        layer="rbd", queue_depth=4, iops=1200, status="refused", reason="not one I/O", op_rows=0, runtime_s=5
    )
    a = run(seed=1)
    b = run(seed=2, depths=(1, 2, 4, 8, 64), change={4: refused})
    finding = compare(a, b)
    by_key = {e.step_key: e for e in finding.effects}
    gone = by_key["rbd/hdd/randread-4K-qd4"]
    assert (gone.verdict, gone.b.value, gone.effect.value) == ("inconclusive", None, None)
    assert gone.reason == "no figure in B: not one I/O"
    assert ("rbd/hdd/randread-4K-qd16", "only in A") in finding.missing
    assert ("rbd/hdd/randread-4K-qd64", "only in B") in finding.missing
    assert set(lost(finding)) == {f"rbd/hdd/randread-4K-qd{d}" for d in (4, 16, 32)}
    assert lost(compare(a, run(seed=3))) == ()


def test_two_repeats_are_too_few_for_a_verdict() -> None:
    finding = compare(run(seed=1, repeats=2), run(seed=2, repeats=3, factor=0.5))
    assert {e.verdict for e in finding.effects} == {"inconclusive"}
    assert "at least 3" in (finding.effects[0].reason or "")


def test_different_working_sets_are_not_compared() -> None:
    a, b = run(seed=1), run(seed=2, factor=0.5)
    column = b["step"].schema.get_field_index("working_set_bytes")
    bigger = pa.array([2 << 30] * b["step"].num_rows, pa.int64())
    b["step"] = b["step"].set_column(column, b["step"].schema.field(column), bigger)
    assert "working sets differ: 1.00 GiB and 2.00 GiB" in (compare(a, b).effects[0].reason or "")


def test_runs_without_anything_in_common() -> None:
    with pytest.raises(AnalysisError, match="no step in common") as caught:
        compare(run(seed=1, depths=(1,)), run(seed=2, depths=(2,)))
    assert caught.value.hint
    with pytest.raises(AnalysisError, match="without finished steps"):
        compare(run(seed=1), {})
    with pytest.raises(UsageError):
        compare(run(seed=1), run(seed=1), metric="beauty")  # type: ignore[arg-type]
    with pytest.raises(UsageError):
        compare(run(seed=1), run(seed=1), threshold=5.0)


def test_the_environment_is_compared_without_our_own_names() -> None:
    a, b = run(seed=1, run_id="a"), run(seed=2, run_id="b")

    def facts(run_id: str, pool: str, governor: str) -> pa.Table:
        rows = [EnvironmentFact("before", f"pool {pool}", "size", "2"),
                EnvironmentFact("before", "host n1", "governor", governor),
                EnvironmentFact("after", "host n1", "governor", "whatever")]  # fmt: skip
        return to_table(EnvironmentFact, rows)

    a["environment"] = facts("a", "bathy-aaaa-hdd", "performance")
    b["environment"] = facts("b", "bathy-bbbb-hdd", "powersave")
    (found,) = compare(a, b).differences
    assert found == Difference("environment", "host n1", "governor", "performance", "powersave", "note")


def test_equal_changes_of_many_osds_are_one_row() -> None:
    a, b = run(seed=1, run_id="a"), run(seed=2, run_id="b")
    for tables, run_id, version in ((a, "a", "16.2.15"), (b, "b", "20.2.4")):
        rows = [EnvironmentFact("before", f"osd.{n}", "ceph_version_short", version) for n in range(1000)]
        rows.append(EnvironmentFact("before", "host n1", "loadavg", run_id))
        tables["environment"] = to_table(EnvironmentFact, rows)
    (found,) = compare(a, b).differences
    assert (found.subject, found.a, found.b) == ("osd.0 and 999 more", "16.2.15", "20.2.4")


def test_many_different_values_of_one_fact_are_summed_up() -> None:
    a, b = run(seed=1, run_id="a"), run(seed=2, run_id="b")
    for tables, other_device in ((a, 0), (b, 1)):
        rows = [Placement(n, "n1", "hdd", f"loop{2 * n + other_device}", True, 1 << 30, "bluestore", "16.2.15", n)
                for n in range(1000)]  # fmt: skip
        tables["placement"] = to_table(Placement, rows)
    (found,) = compare(a, b).differences
    assert (found.area, found.subject, found.name, found.severity) == ("layout", "osd.0 and 999 more", "device", "note")


def test_weights_of_osds_are_compared_but_not_how_many_groups_they_hold() -> None:
    def rows(**changes: float) -> pa.Table:
        return to_table(
            Placement, [Placement(0, "n1", "hdd", "loop0", True, 1 << 30, "bluestore", "16.2.15", 1, **changes)]
        )

    def found(a: pa.Table, b: pa.Table) -> list[tuple[str, str, str]]:
        tables = [{**run(seed=seed, repeats=1), "placement": rows} for seed, rows in enumerate((a, b))]
        return [(d.name, d.a, d.b) for d in compare(*tables).differences if d.area == "layout"]

    usual = {"primary_affinity": 1.0, "reweight": 1.0, "crush_weight": 0.5, "pg_count": 7}
    assert found(rows(**usual), rows(**{**usual, "pg_count": 9})) == []
    assert found(rows(**usual), rows(**{**usual, "primary_affinity": 0.0})) == [("primary_affinity", "1.0", "0.0")]


def placed(osds: int, hosts: int) -> pa.Table:
    rows = [Placement(n, f"n{n % hosts}", "hdd", "sda", True, 1 << 30, "bluestore", "16.2.15", n) for n in range(osds)]
    return to_table(Placement, rows)


PLAN = {"replicas": 3, "client_cache": False, "runtime": 10.0, "repeats": 3, "axes": {"image_size": [1 << 30]},
        "apart": False, "phases": []}  # fmt: skip
DB = {"use": "db", "device": "loop9", "limit": {"read_iops": 85_100.0}}
TARGET = {
    "daemons": [{"name": "osd.0", "pid": 17, "device_class": "hdd", "limit": {"read_iops": 232.0, "write_iops": None}}],
    "disks": {"hdd": {"path": "/dev/loop7", "size_bytes": 1 << 30, "limit": None}},
    "clients": [],
}


@pytest.mark.parametrize(
    ("plan", "target", "area", "name", "severity"),
    [
        ({"client_cache": True}, {}, "plan", "client_cache", "refused"),
        ({"replicas": 2}, {}, "plan", "replicas", "warning"),
        ({"runtime": 60.0}, {}, "plan", "runtime", "warning"),
        ({"axes": {"image_size": [2 << 30]}}, {}, "plan", "axes.image_size", "warning"),
        ({"apart": True}, {}, "plan", "apart", "warning"),
        ({"phases": [{"name": "off"}]}, {}, "plan", "phases", "warning"),
        ({"repeats": 5}, {}, "plan", "repeats", "note"),
        ({}, {"daemons": [{**TARGET["daemons"][0], "limit": {"read_iops": 500.0}}]}, "layout", "limit", "warning"),  # type: ignore[dict-item]
        ({}, {"daemons": [{**TARGET["daemons"][0], "bluefs_devices": [DB]}]}, "layout", "limit of block.db", "warning"),  # type: ignore[dict-item]
        ({}, {"disks": {"hdd": {"size_bytes": 2 << 30}}}, "layout", "size_bytes", "warning"),
        ({}, {"clients": [{"host": "a"}]}, "layout", "remote clients", "warning"),
    ],
)
def test_a_difference_of_plan_or_target_is_shown_and_weighed(
    plan: dict[str, object], target: dict[str, object], area: str, name: str, severity: str
) -> None:
    recorded = recorded_facts(PLAN, TARGET), recorded_facts({**PLAN, **plan}, {**TARGET, **target})
    finding = compare(run(seed=1), run(seed=2, factor=0.5), recorded=recorded)
    (found,) = finding.differences
    assert (found.area, found.name, found.severity) == (area, name, severity)
    verdicts = {effect.verdict for effect in finding.effects}
    assert verdicts == ({"inconclusive"} if severity == "refused" else {"slower"})
    assert (found.text in finding.headline) == (severity != "note")
    gated = [reason for reason in command.findings(finding, "slower") if found.text in reason]
    assert bool(gated) == (severity != "note")


def test_pids_and_names_of_this_machine_are_no_difference() -> None:
    moved = {**TARGET, "daemons": [{**TARGET["daemons"][0], "pid": 18, "name": "osd.1"}]}  # type: ignore[dict-item]
    assert recorded_facts(PLAN, TARGET) == recorded_facts(PLAN, moved)


@pytest.mark.parametrize(
    ("name", "other_value", "severity"),
    [("size", "2", "warning"), ("pg_num", "16", "warning"), ("compression_mode", "force", "warning")],
)
def test_a_difference_of_our_pools_is_a_warning(name: str, other_value: str, severity: str) -> None:
    a, b = run(seed=1, run_id="a"), run(seed=2, run_id="b")
    for tables, suffix, changed in ((a, "aaaa", {}), (b, "bbbb", {name: other_value})):
        facts = {"size": "3", "pg_num": "32", "crush_rule": suffix[0], **changed}
        # The number of a rule only names it.
        facts["crush_rule"] = "1" if suffix == "aaaa" else "7"
        rows = [EnvironmentFact("before", f"pool bathy-{suffix}-rbd-hdd", *fact) for fact in facts.items()]
        tables["environment"] = to_table(EnvironmentFact, rows)
    (found,) = compare(a, b).differences
    assert (found.area, found.name, found.b, found.severity) == ("pool", name, other_value, severity)


def test_another_layout_is_a_warning_and_an_osd_of_one_run_is_not_a_row_of_facts() -> None:
    a, b = run(seed=1), run(seed=2)
    a["placement"], b["placement"] = placed(3, 3), placed(6, 3)
    found = {one.name: one for one in compare(a, b).differences}
    assert set(found) == {"count", "numbers"}
    assert (found["count"].a, found["count"].b, found["count"].severity) == ("3", "6", "warning")
    b["placement"] = placed(3, 1)
    moved = [one for one in compare(a, b).differences if one.name in ("hosts", "host")]
    assert {(one.name, one.severity) for one in moved} == {("hosts", "warning"), ("host", "warning")}


@pytest.mark.parametrize(
    ("column", "value", "severity"),
    [("object_size_bytes", 1 << 20, "refused"), ("working_set_bytes", 2 << 30, "refused"),
     ("runtime_s", 60.0, "warning"), ("osds", "0 1 2 3", "warning"), ("jobs", 2, "refused")],
)  # fmt: skip
def test_every_field_of_a_step_is_compared(column: str, value: object, severity: str) -> None:
    a, b = run(seed=1), run(seed=2, factor=0.5)
    place = b["step"].schema.get_field_index(column)
    field = b["step"].schema.field(column)
    b["step"] = b["step"].set_column(place, field, pa.array([value] * b["step"].num_rows, field.type))
    finding = compare(a, b)
    (found,) = finding.differences
    assert (found.area, found.name, found.severity) == ("step", column, severity)
    assert found.subject == "rbd/hdd/randread-4K-qd1 and 5 more"
    assert {e.verdict for e in finding.effects} == ({"inconclusive"} if severity == "refused" else {"slower"})


def test_a_run_compared_with_itself_has_no_effect() -> None:
    a = run(seed=1)
    finding = compare(a, a)
    assert all(e.effect.value == 0 and e.verdict == "inconclusive" for e in finding.effects)
    assert "all inconclusive" in finding.headline
    assert "92 %" not in finding.headline
    assert dataclasses.asdict(finding)["run_a"] == "a"
