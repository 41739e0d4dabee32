"""A plan expands to the steps that it names, each once, interleaved, in an order that never changes."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bathyscope.errors import PlanError
from bathyscope.layers import traits
from bathyscope.spec import StepSpec
from bathyscope.spec import plan as plans
from bathyscope.spec.plan import Axes, Plan, resolve_classes

CLASSES = ("hdd", "ssd")


def expand(plan: Plan, classes: tuple[str, ...]) -> list[StepSpec]:
    return plans.expand(plan, classes, traits())


def configurations(plan: Plan, classes: tuple[str, ...]) -> list[StepSpec]:
    return plans.configurations(plan, classes, traits())


def matrix(**changes: object) -> Plan:
    axes = {"op": ["randread", "randwrite"], "block_size": ["4K", "64K"], "queue_depth": [1, 16]}
    return Plan.model_validate({"name": "t", "layers": ["rbd"], "axes": axes, **changes})


def test_every_point_of_the_matrix_runs_once_in_each_repeat() -> None:
    steps = expand(matrix(repeats=3), CLASSES)
    expected = set(itertools.product(("randread", "randwrite"), (4096, 65536), (1, 16), CLASSES, range(3)))
    seen = [
        (s.pattern.op, s.pattern.block_size_bytes, s.pattern.queue_depth, s.device_class, s.repeat_index) for s in steps
    ]
    assert len(seen) == len(expected)
    assert set(seen) == expected


def test_repeats_are_interleaved_not_run_in_a_block() -> None:
    steps = expand(matrix(repeats=3), CLASSES)
    rounds = [[s.key for s in steps if s.repeat_index == r] for r in range(3)]
    assert [s.repeat_index for s in steps] == sorted(s.repeat_index for s in steps)
    assert rounds[0] == rounds[1] == rounds[2]


def test_shuffled_rounds_differ_hold_the_same_steps_and_repeat_with_the_seed() -> None:
    plan = matrix(repeats=3, order="shuffled", seed=7)
    first, second = expand(plan, CLASSES), expand(plan, CLASSES)
    assert first == second
    rounds = [[s.key for s in first if s.repeat_index == r] for r in range(3)]
    assert sorted(rounds[0]) == sorted(rounds[1])
    assert rounds[0] != rounds[1]
    assert [s.key for s in expand(matrix(repeats=3, order="shuffled", seed=8), CLASSES)] != [s.key for s in first]


def test_the_layers_of_one_pattern_run_next_to_each_other() -> None:
    plan = matrix(layers=["disk", "rados", "rbd"], repeats=1)
    steps = expand(plan, ("ssd",))
    assert [s.layer for s in steps[:3]] == ["disk", "rados", "rbd"]
    assert len({s.pattern for s in steps[:3]}) == 1


def test_images_are_the_jobs_of_rbd_and_nothing_to_a_disk() -> None:
    plan = Plan.model_validate(
        {"name": "t", "layers": ["disk", "rbd"], "patterns": ["randread-4K-qd1"], "axes": {"images": [1, 4]}}
    )
    steps = configurations(plan, ("ssd",))
    assert [(s.layer, s.jobs) for s in steps] == [("disk", 1), ("rbd", 1), ("rbd", 4)]


def test_rados_objects_are_as_large_as_the_image_unless_told_otherwise() -> None:
    base = {"name": "t", "layers": ["rados", "rbd"], "patterns": ["randread-4K-qd1"]}
    plan = Plan.model_validate({**base, "axes": {"image_size": "64M"}})
    assert [s.working_set_bytes for s in configurations(plan, ())] == [64 << 20, None]
    plan = Plan.model_validate({**base, "axes": {"image_size": "64M", "working_set": "32M"}})
    assert [s.working_set_bytes for s in configurations(plan, ())] == [32 << 20, 32 << 20]


def test_varied_sizes_are_part_of_the_key_so_that_no_two_configurations_share_one() -> None:
    plan = Plan.model_validate(
        {
            "name": "t",
            "layers": ["rbd"],
            "patterns": ["randread-4K-qd1"],
            "axes": {"image_size": ["64M", "1G"], "working_set": ["16M", "32M"], "temperature": ["any", "cold"]},
        }
    )
    keys = [s.key for s in configurations(plan, ("ssd",))]
    assert len(keys) == len(set(keys)) == 8
    assert "rbd/ssd/randread-4K-qd1-cold-img1G-ws16M" in keys


def test_images_of_several_sizes_have_rados_objects_of_as_many() -> None:
    base = {"name": "t", "layers": ["rados", "rbd"], "patterns": ["randread-4K-qd1"]}
    plan = Plan.model_validate({**base, "axes": {"image_size": ["64M", "1G"]}})
    assert [s.key for s in configurations(plan, ("ssd",))] == [
        f"{layer}/ssd/randread-4K-qd1-img{size}" for size in ("64M", "1G") for layer in ("rados", "rbd")
    ]


def test_the_first_load_generator_of_a_layer_is_its_default() -> None:
    own = {"x": plans.LayerTraits(load_generators=("elbencho", "fio"))}
    plan = Plan.model_validate({"name": "t", "layers": ["x"], "patterns": ["read-4K-qd1"]})
    assert [s.load_generator for s in plans.configurations(plan, (), own)] == ["elbencho"]


def test_device_classes_each_all_and_a_wrong_name() -> None:
    assert resolve_classes(matrix(), CLASSES) == CLASSES
    assert resolve_classes(matrix(), ()) == ("",)
    assert resolve_classes(matrix(device_classes="all"), CLASSES) == ("",)
    assert resolve_classes(matrix(device_classes=["ssd", "each"]), CLASSES) == ("ssd", "hdd")
    with pytest.raises(PlanError, match="nvme") as error:
        resolve_classes(matrix(device_classes=["nvme"]), CLASSES)
    assert "hdd, ssd" in (error.value.hint or "")


@given(
    st.sets(st.sampled_from(["randread", "randwrite", "read", "write", "randrw"]), min_size=1),
    st.sets(st.integers(9, 22), min_size=1, max_size=4),
    st.sets(st.integers(1, 256), min_size=1, max_size=4),
    st.integers(1, 4),
    st.sampled_from(["interleaved", "shuffled"]),
)
def test_the_number_of_steps_is_the_product_of_the_axes(
    ops: set[str], powers: set[int], depths: set[int], repeats: int, order: str
) -> None:
    axes = Axes.model_validate({"op": list(ops), "block_size": [1 << p for p in powers], "queue_depth": list(depths)})
    plan = Plan.model_validate({"name": "t", "layers": ["rbd"], "axes": axes, "repeats": repeats, "order": order})
    steps = expand(plan, CLASSES)
    assert len(steps) == len(ops) * len(powers) * len(depths) * 2 * repeats
    assert len({(s.key, s.repeat_index) for s in steps}) == len(steps)
