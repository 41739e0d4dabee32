"""What the verb is given: every option that can be wrong says so, with a hint."""

from __future__ import annotations

from pathlib import Path

import pytest

from bathyscope.commands import size_inputs as inputs
from bathyscope.errors import UsageError
from bathyscope.records import Image, PgIo, to_table
from bathyscope.records.size import TraceSummary
from bathyscope.simulate.trace import Nodes
from bathyscope.spec.size import Admission, SizeSpec, load_nodes
from bathyscope.spec.values import checked
from bathyscope.store import Workspace


def report(latencies: list[float]) -> TraceSummary:
    return TraceSummary(("t",), 10, latency_ns=tuple(latencies), latency_counts=(1.0,) * len(latencies))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("all", (None, None, None, False)),
        ("3-hit", (3, None, None, False)),
        ("bypass", (None, 1 << 20, None, False)),
        ("bypass:4M", (None, 4 << 20, None, False)),
        ("write-bypass", (None, 256 << 10, None, True)),
        ("budget:50G", (None, None, 50 << 30, False)),
        ("2-hit+bypass+budget:1G", (2, 1 << 20, 1 << 30, False)),
        ("2-hit+write-bypass:2M+budget:1G", (2, 2 << 20, 1 << 30, True)),
    ],
)
def test_admissions(text: str, expected: tuple[int | None, ...]) -> None:
    found = Admission.of(text)
    streams = found.stream_cutoff_bytes
    assert (found.n_hit, streams, found.write_budget_bytes_per_day, found.is_stream_of_writes) == expected
    assert found.name == text


@pytest.mark.parametrize(
    "text", ["", "none", "1-hit", "0-hit", "999-hit", "budget", "budget:0", "bypass:0", "all:1", "bypass+write-bypass"]
)
def test_admissions_that_cannot_be(text: str) -> None:
    with pytest.raises(UsageError, match="--admission"):
        checked(SizeSpec, admission=text)


@pytest.mark.parametrize(("text", "expected"), [("0.9", 0.9), ("90%", 0.9), ("1", 1.0), (" 0.5 ", 0.5)])
def test_ratios(text: str, expected: float) -> None:
    assert checked(SizeSpec, target_hit=text).target_hit == pytest.approx(expected)


@pytest.mark.parametrize("text", ["0", "90", "1.01", "nan", "inf", "-0.5", "", "x", "0%"])
def test_ratios_that_cannot_be(text: str) -> None:
    with pytest.raises(UsageError, match="--target-hit must be greater than 0 and at most 1"):
        checked(SizeSpec, target_hit=text)


@pytest.mark.parametrize(("text", "expected"), [("3y", 3.0), ("3", 3.0), ("18mo", 1.5), ("73d", 0.2), ("0", 0.0)])
def test_lives(text: str, expected: float) -> None:
    assert checked(SizeSpec, min_life_years=text).min_life_years == pytest.approx(expected)


@pytest.mark.parametrize("text", ["", "-1y", "y", "3w", "nan", "inf", "1e3y", "3 years"])
def test_lives_that_cannot_be(text: str) -> None:
    with pytest.raises(UsageError, match="--min-life must be a life of the flash"):
        checked(SizeSpec, min_life_years=text)


def test_nodes_from_yaml(tmp_path: Path) -> None:
    file = tmp_path / "nodes.yaml"
    file.write_text("node-a: [0, osd.2]\nnode-b: [1]\n")
    nodes = load_nodes(file)
    assert nodes == {"node-a": (0, 2), "node-b": (1,)}
    assert Nodes(nodes).node_of_osd == [0, 1, 0]


@pytest.mark.parametrize(
    "content", ["", "[]", "a: 1", "a: [x]", "a: [-1]", "a: [99999999999]", "a: [0", "\x00", "a: !!python/none [0]"]
)
def test_nodes_files_that_cannot_be(tmp_path: Path, content: str) -> None:
    file = tmp_path / "nodes.yaml"
    file.write_text(content)
    with pytest.raises(UsageError):
        load_nodes(file)


def test_an_osd_on_two_nodes_is_an_error() -> None:
    with pytest.raises(UsageError, match=r"osd\.1 stands on a and on b"):
        Nodes({"a": [0, 1], "b": [1]})


def test_latencies() -> None:
    assert inputs.latency_of("120us", "--hit-latency", report([]), None).mean_ns == pytest.approx(120_000)
    assert not inputs.latency_of("8ms", "--miss-latency", report([]), None).is_measured
    measured = inputs.latency_of("trace", "--miss-latency", report([1e6, 3e6]), None)
    assert (measured.mean_ns, measured.is_measured) == (2e6, True)
    assert inputs.latency_of_trace(report([])) is None


@pytest.mark.parametrize("text", ["trace", "0ms", "8", "fast", "", "no-such-run:rbd/hdd/x"])
def test_latencies_that_cannot_be(text: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        inputs.latency_of(text, "--miss-latency", report([]), tmp_path)


def test_a_question_survives_its_json() -> None:
    spec = checked(SizeSpec, line_bytes=["4K", "64K"], budget_bytes="400G", admission="2-hit+budget:50G", window_s="1h")
    assert SizeSpec.model_validate_json(spec.model_dump_json()) == spec


def test_what_a_recording_says_of_its_images_and_pools(tmp_path: Path) -> None:
    def image(at_ns: int, pool: str, name: str, image_id: str, object_bytes: int) -> Image:
        return Image(at_ns, pool, "", name, image_id, 1 << 30, object_bytes, object_bytes, 1, None, None)

    with Workspace(tmp_path).create_run(kind="collect", started_ns=1) as run:
        with run.begin_segment("one") as segment:
            rows = [image(2, "rbd", "new", "a", 1 << 20), image(1, "rbd", "old", "a", 1 << 20)]
            # Ids are those of a pool: which of two images an operation is of is not known.
            rows += [image(1, "rbd", "x", "b", 1 << 22), image(1, "other", "y", "b", 1 << 23)]
            segment.table(Image, to_table(Image, rows))
            segment.table(PgIo, to_table(PgIo, [PgIo(9, 5, "2.1f", "rbd", 0, "0", 1, 0, 0, 0)]))
            segment.commit()
        known = inputs._images_of_run(run)
    assert (known.object_bytes, known.names, known.pools) == ({"a": 1 << 20}, {"a": "rbd/new"}, {2: "rbd"})


def test_a_recording_without_operations_says_where_they_come_from(tmp_path: Path) -> None:
    run = Workspace(tmp_path).create_run(kind="collect", started_ns=1)
    run.close()
    with pytest.raises(UsageError, match="holds no operations") as raised:
        inputs.open_trace(checked(SizeSpec, traces=[run.id]), tmp_path)
    assert "bathy import osd-log" in str(raised.value.hint)
