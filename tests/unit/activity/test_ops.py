"""Views of an imported log: all of them from single operations, held against a plain count of the same operations."""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from tests.unit.activity.conftest import START_NS, Recording, S, rows_of
from tests.unit.activity.test_image import op

from bathyscope.analysis.activity import VIEWS
from bathyscope.commands.analyze import analyze, finding_of_view
from bathyscope.errors import StoreError, UsageError
from bathyscope.osd_log import OsdLogs
from bathyscope.records import Image, ImageIo, Op, PerfCounter, Placement, ZoneIo
from bathyscope.records.activity_finding import ActivityFinding
from bathyscope.run_kinds import KINDS
from bathyscope.store import RunDirectory, Workspace
from bathyscope.window.recording import load_of, question_of

RECORDED = Path(__file__).parents[2] / "fixtures" / "osd_log" / "16.2.15"
LOGS = [RECORDED / "debug_osd" / "ceph-osd.2.log", RECORDED / "debug_ms" / "ceph-osd.2.log"]
MIB = 1 << 20


@pytest.fixture(scope="module", params=LOGS, ids=lambda path: path.parent.name)
def imported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[RunDirectory, pa.Table]:
    table = pa.concat_tables(OsdLogs([request.param]).tables())
    context = {"imported_from": [str(request.param)]}
    workspace = Workspace(tmp_path_factory.mktemp("runs"))
    with workspace.create_run(kind="collect", started_ns=1, context=context) as run:
        with run.begin_segment("import-00000") as segment:
            segment.table(Op, table)
            segment.commit()
        run.update(status="done", ended_ns=2)
    return workspace.open_run("last"), table


def good(table: pa.Table) -> list[dict[str, object]]:
    return [row for row in table.to_pylist() if (row["result"] or 0) >= 0]


def counted(rows: list[dict[str, object]], key: str) -> dict[object, tuple[int, int, int]]:
    """Return reads, writes and attribute operations by a column."""
    found = Counter((row[key], row["op"]) for row in rows)
    keys = dict.fromkeys(row[key] for row in rows)
    return {one: (found[one, "read"], found[one, "write"], found[one, "other"]) for one in keys}


@pytest.mark.parametrize(
    ("view", "name", "key"), [("osds", "OSD", "osd"), ("clients", "client", None), ("pools", "pool", "pool_id")]
)
def test_counts_are_those_of_the_log(
    imported: tuple[RunDirectory, pa.Table], view: str, name: str, key: str | None
) -> None:
    run, table = imported
    rows = [{**row, "who": row["client_address"] or row["client"]} for row in good(table)]
    wanted = counted(rows, key or "who")
    shown = {"osds": "osd.{}", "pools": "pool {}"}.get(view, "{}")
    found = rows_of(finding_of_view(run, view), name, "reads", "writes", "attribute ops")
    assert {row[0]: row[1:] for row in found} == {shown.format(one): counts for one, counts in wanted.items()}


def test_images_bytes_latencies_and_failures_are_those_of_the_log(imported: tuple[RunDirectory, pa.Table]) -> None:
    run, table = imported
    finding = finding_of_view(run, "devices")
    found = rows_of(finding, "reads", "writes", "read", "written", "failed")
    sums = [sum(column) for column in zip(*found, strict=True)]
    rows = good(table)
    reads, writes = ([row for row in rows if row["op"] == kind] for kind in ("read", "write"))
    sizes = [sum(row["length_bytes"] or 0 for row in some) for some in (reads, writes)]  # type: ignore[misc]
    assert sums == [len(reads), len(writes), *sizes, table.num_rows - len(rows)]
    (mean,) = {
        round(latency)
        for name, latency in rows_of(finding_of_view(run, "osds"), "OSD", "write latency")
        if name == "osd.2"
    }
    assert mean == round(sum(row["duration_ns"] for row in writes) / len(writes))  # type: ignore[misc]
    assert any("imported logs" in remark for remark in finding.unseen)


def test_every_view_is_of_the_operations(imported: tuple[RunDirectory, pa.Table]) -> None:
    run, table = imported
    names = [row["object_name"] for row in good(table) if row["op"] != "other"]
    (image, _), *_ = Counter(
        str(name).split(".")[-2] for name in names if str(name).startswith("rbd_data.")
    ).most_common(1)
    for name, view in VIEWS.items():
        finding = finding_of_view(run, name, image=image if view.of_image else None)
        assert finding.tables[0].rows or name in {"timeline", "health", "caches"}, name
        assert "no source answered" not in finding.sentence, name
    objects = rows_of(finding_of_view(run, "objects", image=image), "reads", "writes")
    assert sum(map(sum, objects)) == sum(f".{image}." in str(name) for name in names)
    heats = {heat.name: heat for heat in KINDS["collect"].finding(run).heat_maps}
    assert {"images", "osds", "latency", "offsets-0"} <= set(heats)


def test_of_a_few_operations_it_cannot_be_told_what_limits_the_clients(imported: tuple[RunDirectory, pa.Table]) -> None:
    run, table = imported
    point = load_of(run, question_of(run))
    seconds = (max(table["started_ns"].to_pylist()) - min(table["started_ns"].to_pylist())) / 1e9
    counted = sum(row["op"] in ("read", "write") for row in good(table))
    assert point.iops.value == pytest.approx(counted / seconds, rel=0.05)
    assert point.verdict.limit == "idle"
    assert "cannot tell what limits them" in point.verdict.sentence


def of_ops(recording: Recording) -> Recording:
    recording.run.update(context={"imported_from": ["ceph-osd.3.log"]})
    return recording


def test_percentiles_are_within_a_bucket_and_apart_by_kind(recording: Recording) -> None:
    of_ops(recording).add(*(op(0, duration_ns=number * 1000) for number in range(1, 1001)))
    recording.add(*(op(0, "write", duration_ns=5_000_000) for _ in range(10)))
    recording.add(*(op(0, duration_ns=10**10, result=-2) for _ in range(90)))
    for view in ("osds", "clients", "pools", "devices"):
        finding = recording.view(view) if not recording.run.segments() else finding_of_view(recording.run, view)
        ((read, write, failed),) = rows_of(finding, "read p99", "write p99", "failed")
        assert 990_000 <= read <= 990_000 * 1.02, view
        # Of ten writes the 99th percentile would be the accident of one.
        assert (write, failed) == (None, 90), view


def test_objects_that_are_no_images_are_one_row_and_a_data_pool_is_that_of_the_header(recording: Recording) -> None:
    of_ops(recording).add(op(0, pool="9."), op(1, pool="9."), op(0, "write"))
    recording.add(*(op(0, object_name=f"10000000001.{number:08x}") for number in range(3)))
    found = recording.view("devices")
    assert rows_of(found, "image", "reads", "writes") == [
        ("pool 2/(other objects)", 3, 0),
        ("pool 9/(id 10ab)", 2, 0),
        ("pool 2/(id 10ab)", 0, 1),
    ]
    assert rows_of(finding_of_view(recording.run, "clients"), "images") == [(2,)]


def test_nodes_are_known_where_a_map_is(recording: Recording) -> None:
    placed = [Placement(osd, host, "ssd", None, None, None, None, None, None) for osd, host in enumerate("ab")]
    of_ops(recording).add(*placed, op(0), op(1, osd=1), op(2, osd=1))
    assert rows_of(recording.view("nodes"), "node", "reads") == [("a", 1), ("b", 2)]


def test_counters_win_over_the_sample_of_a_burst(recording: Recording) -> None:
    recording.seen("mgr_counters")
    recording.seen("perf_counters")
    counts = {"read_bytes": 0, "write_bytes": 0, "read_latency_ns_sum": 0, "write_latency_ns_sum": 0}
    recording.add(
        *(op(0, at_s=at_s) for at_s in range(5)),
        ImageIo(
            START_NS + 30 * S, 5 * S, "rbd", "", None, "10ab", "client.7", "10.0.0.1", read_count=70, write_count=0,
            **counts,
        ),
        PerfCounter(START_NS + 30 * S, 5 * S, "osd.0", "osd", "op_r", "counter", 70, None, None),
    )  # fmt: skip
    for view in ("devices", "clients", "osds"):
        finding = recording.view(view) if not recording.run.segments() else finding_of_view(recording.run, view)
        assert rows_of(finding, "reads", "attribute ops") == [(70, None)], view
        assert not any("imported" in remark for remark in finding.unseen)


def test_shifts_of_load_and_latency_are_seen_in_operations(recording: Recording) -> None:
    """One client does ten times as much from the 30th second on, and osd.1 becomes slow then."""
    rows = []
    for at_s, osd in itertools.product(range(60), range(3)):
        rows += [
            op(number, osd=osd, at_s=at_s + number / 100, client_address="10.0.0.9" if number else "10.0.0.1",
               duration_ns=9_000_000 if at_s >= 30 and osd == 1 else 1_000_000)
            for number in range(10 if at_s >= 30 else 1)
        ]  # fmt: skip
    of_ops(recording).add(*rows)
    found = recording.view("timeline")
    shifts = {what: words for what, words in rows_of(found, "what", "moved with it")}  # noqa: C416
    assert "client 10.0.0.9" in shifts["reads"]
    assert shifts["the latency of reads"].startswith("osd.1 (")


def image(size_bytes: int) -> Image:
    return Image(START_NS, "rbd", "", "disk", "10ab", size_bytes, 4 * MIB, 4 * MIB, 1, None, None)


def offsets(found: ActivityFinding) -> dict[str, tuple[float | None, ...]]:
    """Return the rows of the picture of an image that have something."""
    (heat,) = found.heat_maps
    assert heat.name == "offsets"
    return {name: values for name, values in zip(heat.names, heat.values, strict=True) if any(values)}


def test_a_picture_of_an_image_has_its_operations_by_offset_and_time(recording: Recording) -> None:
    recording.run.update(context={"imported_from": ["ceph-osd.3.log"]})
    recording.add(image(256 * 4 * MIB), *(op(5, at_s=0) for _ in range(6)), op(255, at_s=30), op(0, at_s=59.9))
    found = recording.view("image", image="rbd/disk")
    (heat,) = found.heat_maps
    # 256 objects in 64 rows; 59.9 s in bins of half a second.
    assert (len(heat.names), heat.names[:3], heat.title) == (
        64,
        ("0 B", "16.0 MiB", "32.0 MiB"),
        "I/O of rbd/disk by offset over time",
    )
    rows = offsets(found)
    width_s = heat.bin_ns / 1e9
    assert {
        name: [(place, value * width_s) for place, value in enumerate(values) if value] for name, values in rows.items()
    } == {
        "0 B": [(len(heat.values[0]) - 1, pytest.approx(1))],
        "16.0 MiB": [(0, pytest.approx(6))],
        "1008 MiB": [(int(30 / width_s), pytest.approx(1))],
    }


def test_a_picture_of_zones_is_no_finer_than_they_are_and_does_not_add_operations(recording: Recording) -> None:
    counts = {"read_bytes": 0, "write_bytes": 0, "read_latency_ns_sum": 0, "write_latency_ns_sum": 0}
    recording.seen("mgr_counters", 20, 60)
    recording.add(image(1024 * 4 * MIB), op(0, at_s=25))
    recording.add(ZoneIo(START_NS + 30 * S, 10 * S, "rbd", "10ab", 0, 256, 256, 500, 0, **counts))
    found = recording.view("image", image="rbd/disk")
    ((name, values),) = offsets(found).items()
    assert (name, len(found.heat_maps[0].names)) == ("1.00 GiB", 4)
    assert values == (None, None, None, None, 50.0, 50.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


def test_a_hostile_number_of_an_object_is_none(recording: Recording) -> None:
    of_ops(recording).add(
        op(0), *(op(0, object_name=f"rbd_data.10ab.{tail}") for tail in ("f" * 16, "zz" * 8, "7" + "f" * 15))
    )
    assert recording.view("image", image="10ab").heat_maps[0].names == ("0 B",)


def test_a_view_is_written_as_a_page_or_a_picture(recording: Recording, tmp_path: Path) -> None:
    of_ops(recording).add(op(0), op(9, at_s=20))
    recording.view("image", image="10ab")
    begins = {"png": b"\x89PNG", "svg": b"<svg", "html": b"<!DOCTYPE html>"}
    for suffix, begin in begins.items():
        target = tmp_path / f"image.{suffix}"
        analyze(str(recording.run.path), "10ab", view="image", output="json", report=target)
        assert target.read_bytes().startswith(begin)
    for view, name, said in (("slow", "slow.png", "has no picture"), ("devices", "devices.pdf", "must end in .html")):
        with pytest.raises(UsageError, match=said):
            analyze(str(recording.run.path), view=view, report=tmp_path / name)


@pytest.mark.parametrize(
    ("context", "hint"), [({"imported_from": ["ceph-osd.3.log"]}, "import osd-log"), ({}, "bathy runs reparse")]
)
def test_operations_without_images_are_refused_with_a_hint(
    recording: Recording, context: dict[str, list[str]], hint: str
) -> None:
    recording.run.update(context=context)
    recording.add(op(0), dataclasses.replace(op(1), image_id=None))
    with pytest.raises(StoreError, match="made by an earlier bathyscope") as caught:
        recording.view("devices")
    assert hint in str(caught.value.hint)
