"""A wrong plan is told by file, line, key and nearest valid name; a right one survives a round trip."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bathyscope.errors import BathyscopeError, PlanError, UsageError
from bathyscope.layers import traits
from bathyscope.spec.plan import Plan, expand
from bathyscope.spec.plan_file import dump_plan, parse_plan, preset_names, preset_text, read_plan_text

LAYERS = traits()


def parse(text: str, *overrides: str) -> Plan:
    return parse_plan(text, name="my.yaml", layers=LAYERS, overrides=overrides)


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("name: a\nlayers: [rbdd]\npatterns: [read-4K-qd1]\n", 2, ("layers", "rbdd", "did you mean 'rbd'?")),
        (
            "name: a\npatterns: [read-4K-qd1]\nload_generators:\n  rbd: rados_bench\n",
            3,
            ("load_generators", "the rbd layer has no load generator 'rados_bench'", "valid: fio"),
        ),
        ("name: a\nload_generators: {disk: rados_bench}\n", 2, ("'rados_bench'", "valid: fio, io_uring")),
        ("name: a\nload_generators: {rados: [fio, x]}\n", 2, ("'x'", "valid: fio, rados_bench")),
        ("name: a\n\nlayer: rbd\n", 3, ("layer", "no such key", "did you mean 'layers'?")),
        ("name: a\naxes:\n  op: randred\n", 3, ("axes.op", "randred", "did you mean 'randread'?")),
        ("name: a\naxes:\n  op: read\n  blocksize: 4K\n", 4, ("axes.blocksize", "did you mean 'block_size'?")),
        ("name: a\naxes: {op: read, block_size: 4Q, queue_depth: 1}\n", 2, ("block_size", "'4Q' is not a size")),
        ("name: a\npatterns:\n- read-4K-qd1\n- red-4K-qd1\n", 4, ("patterns.1", "red-4K-qd1")),
        ("name: a\npatterns:\n- randraed-4K-qd1\n", 3, ("patterns.0", "'randraed'", "did you mean 'randread'?")),
        ("name: a\npatterns:\n- {op: read, blok_size: 4K}\n", 3, ("blok_size",)),
        ("name: a\npatterns: [read-4K-qd1]\nrepeats: 0\n", 3, ("repeats", "greater than 0")),
        (
            "name: a\npatterns: [read-4K-qd1]\nlimits:\n  prolongs: 1\n",
            4,
            ("limits.prolongs", "did you mean 'prolong'?"),
        ),
        ("name: a\npatterns: [read-4K-qd1]\nruntime: soon\n", 3, ("runtime", "'soon' is not a duration")),
        ("name: a\nname: b\n", 2, ("not valid YAML",)),
        ("name: [\n", None, ("not valid YAML",)),
    ],
)
def test_a_wrong_plan_is_told_by_line_key_and_nearest_name(text: str, line: int | None, words: tuple[str, ...]) -> None:
    with pytest.raises(PlanError) as error:
        parse(text)
    told = f"{error.value.message} {error.value.hint}"
    assert told.startswith("my.yaml")
    if line is not None:
        assert error.value.line == line
        assert f"line {line}" in told
    for word in words:
        assert word in told


@pytest.mark.parametrize("text", ["", "- a\n", "42", "name: a\n", "a: &a [*a]\n"])
def test_what_is_no_plan_is_a_plan_error(text: str) -> None:
    with pytest.raises(PlanError):
        parse(text)


def test_every_preset_is_valid_expands_and_survives_a_round_trip() -> None:
    assert {"ladder", "quick", "demo", "smoke"} <= set(preset_names())
    for name in preset_names():
        plan = parse_plan(preset_text(name), name=name, layers=LAYERS)
        assert plan.name == name
        assert expand(plan, ("hdd", "ssd"), LAYERS)
        assert parse(dump_plan(plan)) == plan


def test_the_ladder_is_the_ladder() -> None:
    plan = parse(preset_text("ladder"))
    assert plan.repeats == 5
    assert plan.runtime == 10
    assert [p.name for p in plan.pattern_values()] == [
        *("randread-4K-qd1", "randread-4K-qd16", "randwrite-4K-qd1", "randwrite-4K-qd16"),
        *("read-64K-qd16", "write-64K-qd16"),
    ]
    assert len(expand(plan, ("hdd", "ssd"), LAYERS)) == 6 * 3 * 2 * 5


def test_an_unknown_preset_gets_the_nearest_name() -> None:
    with pytest.raises(UsageError) as error:
        preset_text("lader")
    assert "ladder" in (error.value.hint or "")


def test_set_replaces_axes_sections_and_keys() -> None:
    plan = parse(
        preset_text("ladder"), "queue_depth=1,32", "repeats=2", "limits.prolong=0", "image_size=64M", "layers=rbd"
    )
    assert {p.queue_depth for p in plan.pattern_values()} == {1, 32}
    # Patterns that differed in depth only are one pattern for each new depth, not two.
    assert len(plan.pattern_values()) == 8
    assert (plan.repeats, plan.limits.prolong, plan.layers, plan.axes.image_size) == (2, 0, ("rbd",), (64 << 20,))


@pytest.mark.parametrize(
    ("override", "word"),
    [
        ("queue_dept=1", "queue_depth"),
        ("limits.prolonged=1", "limits.prolong"),
        ("repeats", "KEY=VALUE"),
        ("jobs=", "KEY=VALUE"),
    ],
)
def test_a_wrong_override_is_told(override: str, word: str) -> None:
    with pytest.raises(PlanError) as error:
        parse(preset_text("ladder"), override)
    assert word in f"{error.value.message} {error.value.hint}"


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        read_plan_text(tmp_path / "none.yaml")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="not a text file"):
        read_plan_text(tmp_path / "binary.yaml")


@given(st.text(max_size=200))
def test_no_text_makes_the_reader_fail_otherwise(text: str) -> None:
    try:
        parse(text)
    except BathyscopeError as error:
        told = error.message
    else:
        return
    assert told


@pytest.mark.parametrize(
    ("override", "key"), [("repeats=0", "repeats"), ("runtime=soon", "runtime"), ("queue_depth=-1", "queue_depth")]
)
def test_what_is_wrong_in_an_override_is_not_blamed_on_a_line_of_the_file(override: str, key: str) -> None:
    with pytest.raises(PlanError) as error:
        parse("name: a\nlayers: [rbd]\npatterns: [read-4K-qd1]\nrepeats: 3\n", override)
    assert error.value.line is None
    assert error.value.message.startswith(f"my.yaml with {override}: ")
    assert key in error.value.message


def test_what_is_wrong_in_the_file_has_its_line_beside_an_override() -> None:
    with pytest.raises(PlanError) as error:
        parse("name: a\nlayers: [rbdd]\npatterns: [read-4K-qd1]\n", "repeats=3")
    assert error.value.line == 2
