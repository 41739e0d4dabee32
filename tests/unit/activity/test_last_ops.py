"""Views of single operations: the last ones, percentiles, and what a full history may not be used for."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.unit.activity.conftest import START_NS, Recording, S, rows_of
from tests.unit.activity.test_devices import io
from tests.unit.activity.test_image import ID, image, op, placed

from bathyscope import views
from bathyscope.analysis.activity.shape import Question
from bathyscope.commands.analyze import finding_of_view
from bathyscope.records import Collection
from bathyscope.records.blocks import Column
from bathyscope.views.cells import cell, marks
from bathyscope.window.recording import view_of

OTHER = f"rbd_data.ff.{3:016x}"


def burst(at_s: float = 10) -> Collection:
    return Collection(START_NS + round(at_s * S), "op_history", S, 3, 0, 1, True, None)


def test_the_last_operations_of_an_image_come_first(recording: Recording) -> None:
    recording.add(image(), *placed("a"), burst())
    recording.add(op(3, at_s=20, offset_bytes=8192), op(7, "write", at_s=30, osd=1), op(3, at_s=25, pool="7."))
    recording.add(op(3, at_s=40, object_name=OTHER), op(3, at_s=41, object_name="rbd_header." + ID))
    found = recording.view("ops", image="rbd/disk")
    assert rows_of(found, "at", "client", "object", "offset", "length", "took", "op", "OSD") == [
        (START_NS + 30 * S, "10.0.0.1", 7, 0, 4096, 1000, "write", "osd.1"),
        (START_NS + 25 * S, "10.0.0.1", 3, 0, 4096, 1000, "read", "osd.0"),
        (START_NS + 20 * S, "10.0.0.1", 3, 8192, 4096, 1000, "read", "osd.0"),
    ]
    assert found.sentence.startswith("The last 3 of 3 recorded operations of rbd/disk;")
    assert any("under way when its burst ended" in remark for remark in found.unseen)


@pytest.mark.parametrize(
    ("part", "numbers"),
    [
        ({"object_number": 3}, [3, 3]),
        ({"from_bytes": 4 * 4 << 20}, [24, 7]),
        ({"from_bytes": (7 * 4 << 20) + 1, "to_bytes": 24 * 4 << 20}, [7]),
        ({"osd": "osd.1"}, [7]),
        ({"client": "10.0.0.9"}, [24]),
    ],
)
def test_a_part_of_an_image_has_its_own_operations(
    recording: Recording, part: dict[str, Any], numbers: list[int]
) -> None:
    recording.add(image(), op(3, at_s=1), op(3, at_s=2), op(7, at_s=3, osd=1))
    recording.add(op(24, at_s=4, client_address="10.0.0.9"))
    recording.view("devices")
    question = Question(recording.run.id, "t", START_NS, START_NS + 60 * S, image="rbd/disk", **part)
    assert [number for (number,) in rows_of(view_of(recording.run, "ops", question), "object")] == numbers


@pytest.mark.parametrize("name", [OTHER, "a/b/c/d", "it's"])
def test_an_object_is_named_by_its_name(recording: Recording, name: str) -> None:
    recording.add(op(3, at_s=20), *(op(3, at_s=at_s, object_name=name) for at_s in (5, 6)))
    assert rows_of(recording.view("ops", image=name), "object name") == [(name,), (name,)]


def test_the_view_of_operations_is_bounded(recording: Recording) -> None:
    recording.add(*(op(3, at_s=number / 100) for number in range(1000)))
    found = recording.view("ops", image=ID)
    assert len(found.tables[0].rows) == 200
    assert found.sentence.startswith("The last 200 of 1,000 recorded operations")


def test_stages_are_shares_of_the_whole_and_a_bar(recording: Recording) -> None:
    stages = {"queue_ns": 100, "prepare_ns": None, "store_ns": 500, "replica_wait_ns": 300, "reply_ns": 100}
    recording.add(op(3, "write", **stages, slowest_peer=2, duration_ns=1000))
    found = recording.view("ops", image=ID)
    ((parts, replica),) = rows_of(found, "stages", "last replica")
    assert parts == (("queue", 0.1), ("prepare", 0.0), ("store", 0.5), ("replicas", 0.3), ("reply", 0.1))
    assert replica == "osd.2"
    column = next(column for column in found.tables[0].columns if column.heading == "stages")
    assert cell(column, parts) == "qssssssrrrre"
    assert marks([name for name, _ in parts]) == dict(zip((name for name, _ in parts), "qpsre", strict=True))


@pytest.mark.parametrize("shares", [(1.0,), (0.5, 0.5), (0.01, 0.98, 0.01), (1 / 3, 1 / 3, 1 / 3)])
def test_a_bar_is_as_long_as_any_other(shares: tuple[float, ...]) -> None:
    parts = tuple((f"{number}", share) for number, share in enumerate(shares))
    assert len(cell(Column("x", "x", "parts"), parts)) == 12


def test_percentiles_of_an_image_are_of_its_complete_samples(recording: Recording) -> None:
    recording.seen("image_counters")
    recording.add(io("disk", 5000, 100), image(), burst())
    recording.add(*(op(1, duration_ns=(number + 1) * 1000) for number in range(1000)))
    recording.add(*(op(1, "write", duration_ns=7000) for _ in range(20)))
    # The slowest of a full history, what began before it held everything, and what failed.
    slow = {"duration_ns": S}
    recording.add(*(op(1, complete_sample=False, **slow) for _ in range(500)))
    recording.add(*(op(1, complete_since_ns=START_NS + 60 * S, **slow) for _ in range(500)))
    recording.add(*(op(1, result=-2, **slow) for _ in range(500)))
    found = recording.view("devices")
    ((p50, p99, write_p50, write_p99, timed, reads),) = rows_of(
        found, "read p50", "read p99", "write p50", "write p99", "timed ops", "reads"
    )
    assert p50 == pytest.approx(500_000, rel=0.02)
    assert p99 == pytest.approx(990_000, rel=0.01)
    assert (write_p50, write_p99, timed) == (7000, None, 1020)
    # Counts are those of the counters, not of the bursts.
    assert reads == 5000
    assert any("p99 of 1,000" in remark for remark in found.unseen)
    assert any("only the slowest are there" in remark for remark in found.unseen)
    facts = dict(finding_of_view(recording.run, "image", image="rbd/disk").facts)
    assert facts["Write latency"] == "p50 7.00 µs, p99 cannot tell, of 20 timed writes"


@pytest.mark.parametrize(("count", "known"), [(999, False), (1000, True)])
def test_a_percentile_needs_ten_operations_beyond_it(recording: Recording, count: int, known: bool) -> None:
    recording.seen("image_counters")
    recording.add(io("disk", 1, 0), image(), *(op(1, duration_ns=1000 + number) for number in range(count)))
    assert (rows_of(recording.view("devices"), "read p99")[0][0] is not None) == known


def test_without_operations_no_percentile_is_spoken_of(recording: Recording) -> None:
    recording.seen("image_counters")
    recording.add(io("disk", 1, 0), image())
    found = recording.view("devices")
    assert rows_of(found, "read p99", "timed ops") == [(None, None)]
    assert not any("ercentile" in remark for remark in found.unseen)


def test_operations_of_a_full_history_are_shown_as_slow_and_counted_nowhere(recording: Recording) -> None:
    tail = {"complete_sample": False, "duration_ns": 90_000_000, "store_ns": 89_000_000}
    # Of osd.1 only the slowest were kept: that says nothing of its share.
    recording.add(*(op(number, osd=1, **tail) for number in range(30)))
    recording.add(*(op(number, osd=number % 2, duration_ns=60_000) for number in range(100)))
    found = recording.view("slow")
    assert rows_of(found, "took", "OSD")[0] == (90_000_000, "osd.1")
    assert found.sentence == (
        "The slowest of 130 operations took 90.0 ms, most of it store; half of the 100 that are a complete sample took "
        "less than 60.0 µs."
    )
    assert any(remark.startswith("30 operations are from op histories that were full") for remark in found.unseen)


def test_nothing_but_tails_has_no_median(recording: Recording) -> None:
    recording.add(*(op(number, complete_sample=False, duration_ns=5000) for number in range(30)))
    assert recording.view("slow").sentence == "The slowest of 30 operations took 5.00 µs, most of it queue."


def test_parts_are_lists_in_json_and_not_in_csv(recording: Recording, capsys: pytest.CaptureFixture[str]) -> None:
    recording.add(op(3))
    found = recording.view("ops", image=ID)
    views.render(found, "json")
    plain: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert plain["tables"][0]["rows"][0]["stages"][0] == ["queue", 0.25]
    views.render(found, "csv")
    header, row = capsys.readouterr().out.splitlines()[:2]
    assert "stages" not in header
    assert "queue_ns" in header
    assert len(row.split(",")) == len(header.split(","))
