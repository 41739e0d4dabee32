"""Traces that others made: columns by other names, objects of other sizes, lengths that cannot be, many images."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.unit.size.test_command import EXCERPT, Bathy

from bathyscope.simulate import passes
from bathyscope.store.ordered_rows import OrderedRows

from .test_command import bathy as bathy  # noqa: PLC0414 - a fixture
from .test_curve_points import ops
from .traces import LINE, Row, loop_and_scan, write_csv

# One read of each of two objects of 8 MiB, behind the first 4 MiB: with objects of 4 MiB each is a place in the next.
LARGE_OBJECTS: list[Row] = [
    (time, "read", (time % 4) * (4 << 20) + (time // 4 % 50) * LINE, LINE, "1037b7d03b94") for time in range(1000)
]


def points(text: str) -> list[tuple[int, object, object]]:
    curve = json.loads(text)["curves"][0]
    return [(point["size_bytes"], point["read_hit"], point["flash_write_bytes_per_day"]) for point in curve["points"]]


def caveats(text: str) -> dict[str, str]:
    return {caveat["code"]: caveat["text"] for caveat in json.loads(text)["caveats"]}


@pytest.mark.parametrize("name", ["volume", "image", "disk", "vm", "device", "Image"])
def test_a_column_of_images_has_several_names_and_columns_are_reported(bathy: Bathy, tmp_path: Path, name: str) -> None:
    trace = write_csv(tmp_path / "t.csv", loop_and_scan(5), latency_us=100)
    text = trace.read_text().replace("volume", name, 1).replace("time_us", "time_us,queue", 1)
    head, *rows = text.splitlines()
    trace.write_text("\n".join([head, *(row.replace(",", ",7,", 1) for row in rows)]) + "\n")
    code, out, _ = bathy(trace, "--by", "image", "--line", "4K", "--output", "json")
    assert code == 0
    assert {curve["group_name"] for curve in json.loads(out)["curves"]} == {"all", "loop", "scan"}
    used = f"time_us, op, offset_bytes, length_bytes, {name}, latency_us"
    assert caveats(out)["columns"] == f"columns used: {used}; ignored: queue"


def test_two_columns_of_images_are_refused(bathy: Bathy, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("vm,disk,offset_bytes\na,sda,0\n")
    code, _, error = bathy(tmp_path / "t.csv", "--format", "csv")
    assert (code, "more than one column for the volume: vm, disk" in error) == (2, True)


@pytest.mark.parametrize("by", ["image", "osd", "pool", "node"])
def test_grouping_by_what_the_trace_does_not_say_is_an_error(bathy: Bathy, tmp_path: Path, by: str) -> None:
    (tmp_path / "t.csv").write_text("op,offset_bytes\nread,0\nread,4096\nread,0\n")
    (tmp_path / "nodes.yaml").write_text("a: [0]\n")
    nodes = ("--nodes", tmp_path / "nodes.yaml") if by == "node" else ()
    code, _, error = bathy(tmp_path / "t.csv", "--by", by, *nodes)
    assert (code, f"--by {by}: the trace does not say" in error, "hint: a CSV needs a column" in error) == (
        2,
        True,
        True,
    )


@pytest.mark.parametrize(
    ("length", "reason"),
    [("0", "the length is 0"), ("268435457", "256 MiB"), ("4294967296", "256 MiB"), ("9999999999999", "256 MiB")],
)
def test_a_length_that_cannot_be_is_a_bad_record(bathy: Bathy, tmp_path: Path, length: str, reason: str) -> None:
    rows = ["op,offset_bytes,length_bytes", "read,0,4096", f"write,0,{length}", "read,0,268435456", "read,0,4096"]
    (tmp_path / "t.csv").write_text("\n".join(rows) + "\n")
    code, _, error = bathy(tmp_path / "t.csv")
    assert (code, "line 3" in error, reason in error) == (2, True, True)
    code, out, _ = bathy(tmp_path / "t.csv", "--skip-bad-records", "--line", "64K", "--output", "json")
    assert (code, caveats(out)["skipped_records"]) == (0, "1 records could not be read")
    assert reason in caveats(out)["first_bad_record"]


def test_what_a_small_file_means_bounds_the_work(bathy: Bathy, tmp_path: Path) -> None:
    rows = [f"read,{place << 32},4294967296" for place in range(3000)]
    (tmp_path / "t.csv").write_text("\n".join(["op,offset_bytes,length_bytes", "read,0,4096", *rows]) + "\n")
    code, out, _ = bathy(tmp_path / "t.csv", "--skip-bad-records", "--line", "4K", "--output", "json")
    assert (code, caveats(out)["skipped_records"]) == (0, "3000 records could not be read")


def test_an_error_quotes_a_binary_file_in_printable_ascii(bathy: Bathy, tmp_path: Path) -> None:
    (tmp_path / "b.bin").write_bytes(bytes(range(256)) * 40)
    for name in ("msr", "spc", "alibaba", "csv", "blkparse", "osd-log", "op-history", "fio-v2"):
        for file in (EXCERPT, tmp_path / "b.bin"):
            code, out, error = bathy(file, "--format", name)
            assert (code, out) == (2, "")
            assert all(" " <= character <= "~" for line in error.splitlines() for character in line), (name, error)
            assert max(map(len, error.splitlines())) < 600


def test_a_directory_is_no_trace_and_says_so(bathy: Bathy, tmp_path: Path) -> None:
    code, _, error = bathy(tmp_path)
    assert (code, "is a directory, not a run" in error) == (2, True)
    code, _, error = bathy(EXCERPT, tmp_path)
    assert (code, "is a directory" in error) == (2, True)


def test_objects_of_eight_mebibytes_do_not_lie_over_each_other(bathy: Bathy, tmp_path: Path) -> None:
    pq.write_table(ops(LARGE_OBJECTS, object_bytes=8 << 20), tmp_path / "ops.parquet")
    same = write_csv(tmp_path / "t.csv", LARGE_OBJECTS)
    options = ("--line", "4K", "--output", "json")
    table, csv = (bathy(path, *options)[1] for path in (tmp_path / "ops.parquet", same))
    assert points(table) == points(csv)
    assert "8 MiB" in caveats(table)["object_size"] or "8M" in caveats(table)["object_size"]
    given = bathy(tmp_path / "ops.parquet", "--object-size", "8M", *options)[1]
    assert points(given) == points(csv)
    assert "object_size" not in caveats(given)
    code, _, error = bathy(tmp_path / "ops.parquet", "--object-size", "4M", *options)
    assert (code, "--object-size must be at least" in error) == (2, True)


def test_objects_of_eight_mebibytes_in_a_log(bathy: Bathy, tmp_path: Path) -> None:
    lines = []
    for time, _, offset, length, image in LARGE_OBJECTS:
        name = f"rbd_data.{image}.{offset >> 23:016x}"
        lines.append(
            f"2026-11-21T01:{time // 60:02}:{time % 60:02}.500+0000 7f1 15 osd.7 pg_epoch: 22 pg[2.b( v 22'2407] "
            f"log_op_stats osd_op(client.4499.0:717 2.b 2:d7ad1e24:::{name}:head [read {offset % (8 << 20)}~{length}] "
            "snapc 0=[] ondisk+read+known_if_redirected e22) v8 inb 0 outb 4096 lat 0.000598"
        )
    (tmp_path / "ceph-osd.7.log").write_text("\n".join(lines) + "\n")
    same = write_csv(tmp_path / "t.csv", LARGE_OBJECTS)
    options = ("--line", "4K", "--output", "json")
    log, csv = (bathy(path, *options)[1] for path in (tmp_path / "ceph-osd.7.log", same))
    hits = [[point["read_hit"] for point in json.loads(text)["curves"][0]["points"]] for text in (log, csv)]
    assert hits[0] == hits[1]
    assert "object_size" in caveats(log)
    code, _, error = bathy(tmp_path / "ceph-osd.7.log", "--object-size", "4M", *options)
    assert (code, "--object-size must be at least" in error) == (2, True)


def test_more_groups_than_are_profiled_are_counted_and_the_rest_is_one(
    bathy: Bathy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The images with most reads come last.
    rows: list[Row] = [
        (1, "read", line * LINE, LINE, f"image-{image}")
        for image in range(300)
        for _ in range(2)
        for line in range(1 + image // 10)
    ]
    write_csv(tmp_path / "many.csv", rows)
    found = {}
    for most in (passes.MOST_PROFILED, 1000):
        monkeypatch.setattr(passes, "MOST_PROFILED", most)
        code, out, _ = bathy(tmp_path / "many.csv", "--by", "image", "--line", "4K", "--output", "json")
        assert code == 0
        curves = json.loads(out)["curves"]
        found[most] = {
            curve["group_name"]: (curve["read_requests"], [point["read_hit"] for point in curve["points"]])
            for curve in curves
        }
    few, all_ = found.values()
    assert few == all_
    assert "(268 others)" in few
    assert sum(reads for name, (reads, _) in few.items() if name != "all") == len(rows)


def test_another_salt_takes_another_sample(bathy: Bathy) -> None:
    options = (EXCERPT, "--line", "4K", "--samples", "1024", "--output", "json")
    found = [points(bathy(*options, "--salt", salt)[1]) for salt in (0, 1, 1)]
    assert found[0] != found[1]
    assert found[1] == found[2]
    code, _, error = bathy(EXCERPT, "--salt", "-1")
    assert (code, "--salt must be a whole number" in error) == (2, True)


@pytest.mark.parametrize("shuffled", [False, True])
def test_rows_are_kept_in_order_on_disk_and_equal_ones_as_they_came(shuffled: bool) -> None:
    rows = 300_000
    at = np.sort(np.random.default_rng(2).integers(0, 1000, rows))
    if shuffled:
        at = np.random.default_rng(3).permutation(at)
    table = pa.table({"at": at.astype(np.uint64), "place": np.arange(rows)})
    ordered = OrderedRows(table.to_batches(50_000), table.schema, "at")
    for _ in range(2):
        found = pa.Table.from_batches(list(ordered))
        expected = np.argsort(at, kind="stable")
        assert np.array_equal(found.column("place").to_numpy(), expected)
    assert list(OrderedRows([], table.schema, "at")) == []
