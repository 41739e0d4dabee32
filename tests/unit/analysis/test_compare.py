"""Two runs compared: equal runs are called equal, changed ones changed, and missing data is neither."""

from __future__ import annotations

import dataclasses
import itertools
import math

import pyarrow as pa
import pytest
from tests.unit.analysis.builders import Load, RunBuilder

from bathyscope.analysis.compare import compare, lost
from bathyscope.errors import AnalysisError, UsageError
from bathyscope.records import EnvironmentFact, to_table

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
    calls = [effect.call for a, b in itertools.combinations(runs, 2) for effect in compare(a, b, threshold=0.0).effects]
    assert len(calls) == 15 * len(DEPTHS)
    assert sum(call != "cannot tell" for call in calls) / len(calls) <= 0.05


@pytest.mark.parametrize(("factor", "iops", "other"), [(0.8, "slower", "slower"), (1.25, "faster", "faster")])
def test_a_change_is_found_on_every_metric(factor: float, iops: str, other: str) -> None:
    a, b = run(seed=1), run(seed=2, factor=factor, run_id="b")
    for metric, call in (("iops", iops), ("latency", other)):
        finding = compare(a, b, metric=metric)  # type: ignore[arg-type]
        assert {effect.call for effect in finding.effects} == {call}
    p99 = {e.step_key[-4:]: e for e in compare(a, b, metric="p99").effects}
    assert p99["qd32"].call == other
    assert p99["qd32"].a.relative_error == pytest.approx(1 / 128)
    assert p99["-qd1"].call == "cannot tell"
    sign = {"slower": -1, "faster": 1}[iops]
    effect = compare(a, b).effects[0].effect
    assert effect.value is not None
    assert effect.low is not None
    assert effect.high is not None
    assert effect.low <= effect.value <= effect.high
    assert math.copysign(1, effect.value) == sign


def test_a_certain_change_below_the_threshold_is_not_called() -> None:
    a, b = run(seed=1, noise=0.0005, repeats=5), run(seed=2, noise=0.0005, repeats=5, factor=0.97)
    assert {e.call for e in compare(a, b).effects} == {"cannot tell"}
    assert all("below the threshold" in (e.reason or "") for e in compare(a, b).effects)
    assert {e.call for e in compare(a, b, threshold=0.01).effects} == {"slower"}


def test_missing_and_refused_steps_are_never_equal() -> None:
    refused = Load(
        layer="rbd", queue_depth=4, iops=1200, status="refused", reason="not one I/O", op_rows=0, runtime_s=5
    )
    a = run(seed=1)
    b = run(seed=2, depths=(1, 2, 4, 8, 64), change={4: refused})
    finding = compare(a, b)
    by_key = {e.step_key: e for e in finding.effects}
    gone = by_key["rbd/hdd/randread-4K-qd4"]
    assert (gone.call, gone.b.value, gone.effect.value) == ("cannot tell", None, None)
    assert gone.reason == "no figure in B: not one I/O"
    assert ("rbd/hdd/randread-4K-qd16", "only in A") in finding.missing
    assert ("rbd/hdd/randread-4K-qd64", "only in B") in finding.missing
    assert set(lost(finding)) == {f"rbd/hdd/randread-4K-qd{d}" for d in (4, 16, 32)}
    assert lost(compare(a, run(seed=3))) == ()


def test_two_repeats_are_too_few_for_a_call() -> None:
    finding = compare(run(seed=1, repeats=2), run(seed=2, repeats=3, factor=0.5))
    assert {e.call for e in finding.effects} == {"cannot tell"}
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
        rows = [EnvironmentFact(run_id, "before", f"pool {pool}", "size", "2"),
                EnvironmentFact(run_id, "before", "host n1", "governor", governor),
                EnvironmentFact(run_id, "after", "host n1", "governor", "whatever")]  # fmt: skip
        return to_table(EnvironmentFact, rows)

    a["environment"] = facts("a", "bathy-aaaa-hdd", "performance")
    b["environment"] = facts("b", "bathy-bbbb-hdd", "powersave")
    assert compare(a, b).environment_changes == (("host n1", "governor", "performance", "powersave"),)


def test_equal_changes_of_many_osds_are_one_row() -> None:
    a, b = run(seed=1, run_id="a"), run(seed=2, run_id="b")
    for tables, run_id, version in ((a, "a", "16.2.15"), (b, "b", "20.2.4")):
        rows = [EnvironmentFact(run_id, "before", f"osd.{n}", "ceph_version_short", version) for n in range(1000)]
        rows.append(EnvironmentFact(run_id, "before", "host n1", "loadavg", run_id))
        tables["environment"] = to_table(EnvironmentFact, rows)
    changes = compare(a, b).environment_changes
    assert changes == (("osd.0 and 999 more", "ceph_version_short", "16.2.15", "20.2.4"),)


def test_a_run_compared_with_itself_has_no_effect() -> None:
    a = run(seed=1)
    finding = compare(a, a)
    assert all(e.effect.value == 0 and e.call == "cannot tell" for e in finding.effects)
    assert "none can be told apart" in finding.headline
    assert dataclasses.asdict(finding)["run_a"] == "a"
