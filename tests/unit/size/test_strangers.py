"""Traces that nobody tunes a program for: empty, of one request, only writes, without time, hostile."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from .test_command import EXCERPT, Bathy, bathy  # noqa: F401 - the fixture
from .traces import LINE, Row, loop_and_scan, write_csv

HOSTILE = "\x1b[31mred\u202e<script>"


def test_one_request_cannot_tell(bathy: Bathy, tmp_path: Path) -> None:  # noqa: F811
    code, out, err = bathy(write_csv(tmp_path / "one.csv", [(5, "read", 4096, 4096, "a")]))
    assert (code, err) == (0, "")
    assert out.startswith("Inconclusive: the trace holds 1 requests, fewer than 1000.")
    assert "the trace has no time, or all of it at one moment" in " ".join(out.split())


def test_a_header_alone_is_an_error(bathy: Bathy, tmp_path: Path) -> None:  # noqa: F811
    code, out, err = bathy(write_csv(tmp_path / "none.csv", []))
    assert (code, out) == (2, "")
    assert "no reads and writes" in err


def test_writes_alone_have_no_hits_of_reads(bathy: Bathy, tmp_path: Path) -> None:  # noqa: F811
    rows: list[Row] = [(step * 1000, "write", step % 300 * LINE, LINE, "a") for step in range(5000)]
    path, page = write_csv(tmp_path / "w.csv", rows), tmp_path / "w.html"
    code, out, _ = bathy(path, "--miss-latency", "8ms", "--report", page)
    assert code == 0
    assert " ".join(out.split()).startswith("Not worth it: no request is a read; a write-through cache saves nothing")
    assert "Read hit ratio" not in out
    assert "too short" not in out
    assert "0.0%" not in out
    assert "NaN" not in page.read_text().split('id="charts-data"')[0]
    found = json.loads(bathy(path, "--output", "json")[1])
    assert {p["read_hit"]["value"] for c in found["curves"] for p in c["points"]} == {None}
    cells = list(csv.DictReader(io.StringIO(bathy(path, "--output", "csv")[1])))
    assert {row["read_hit_ratio"] for row in cells} == {""}
    assert all(float(row["write_hit_ratio"]) >= 0 for row in cells)


def test_a_trace_without_time_promises_nothing_per_day(bathy: Bathy, tmp_path: Path) -> None:  # noqa: F811
    lines = [f"read,{step % 300 * LINE},{LINE}" for step in range(5000)]
    path = tmp_path / "t.csv"
    path.write_text("\n".join(["op,offset_bytes,length_bytes", *lines]) + "\n")
    code, out, _ = bathy(path, "--min-life", "5y", "--line", "4K")
    assert code == 0
    assert out.startswith("Worth it")
    assert "no life of the flash follows" in " ".join(out.split())
    point = json.loads(bathy(path, "--line", "4K", "--output", "json")[1])["curves"][0]["points"][0]
    assert (point["purchase"]["life_years"], point["flash_write_bytes_per_day"]) == (None, None)


def test_hostile_names_do_not_reach_the_terminal(bathy: Bathy, tmp_path: Path) -> None:  # noqa: F811
    """The name of a volume, and the name of the file itself, also in what goes wrong."""
    rows: list[Row] = [
        (step * 1000, "read", step % 50 * LINE, LINE, f"=cmd|{HOSTILE}{step % 2}") for step in range(5000)
    ]
    path, page = write_csv(tmp_path / "evil\x1b[31m.csv", rows), tmp_path / "evil.html"
    given = [path, "--format", "csv", "--by", "image", "--line", "4K", "--budget", "100K"]
    code, out, _ = bathy(*given, "--report", page)
    assert code == 0
    assert "red" in out
    assert "\x1b" not in out
    assert "\u202e" not in out
    assert "<script>0" not in page.read_text()
    cells = list(csv.DictReader(io.StringIO(bathy(*given, "--output", "csv")[1])))
    assert not any(value.startswith("=") for row in cells for value in row.values())
    for wrong in (["--format", "vscsi1"], ["--by", "\x1b[31m"], ["--flash", "\x1b]0;t\x07"], ["--policy", "\x1b[2J"]):
        code, _, err = bathy(path, *wrong)
        assert code == 2
        assert "\x1b" not in err
        assert err.count("\n") <= 2


@pytest.mark.parametrize(
    ("name", "words"), [("/dev/null", "is not a plain file"), ("DIRECTORY", "is a directory, not a run")]
)
def test_what_is_no_plain_file(bathy: Bathy, tmp_path: Path, name: str, words: str) -> None:  # noqa: F811
    code, _, err = bathy(tmp_path if name == "DIRECTORY" else name)
    assert code == 2
    assert words in err


def test_a_small_cache_costs_a_whole_drive(bathy: Bathy) -> None:  # noqa: F811
    _, out, _ = bathy(EXCERPT, "--line", "64K")
    assert "(220.00 USD)" in out
    assert " 0.00" not in out


def test_line_sizes_share_the_size_of_a_budget(bathy: Bathy, tmp_path: Path) -> None:  # noqa: F811
    rows: list[Row] = [(step * 1000, "read", step * 7919 % 40_000 * LINE, LINE, "a") for step in range(20_000)]
    path = write_csv(tmp_path / "t.csv", rows)
    _, out, _ = bathy(path, "--line", "4K,64K", "--budget", "30M", "--output", "json")
    wanted = {c["wanted"]["size_bytes"] for c in json.loads(out)["curves"]}
    assert len(wanted) == 1
    assert all(c["wanted"]["flash_bytes"] <= 30 << 20 for c in json.loads(out)["curves"])
    _, out, _ = bathy(path, "--line", "4K,64K", "--budget", "30M")
    assert ">: the budget" in out


def test_a_page_or_run_that_cannot_be_written_does_not_take_the_answer_along(
    bathy: Bathy,  # noqa: F811
    tmp_path: Path,
) -> None:
    path, page = write_csv(tmp_path / "t.csv", loop_and_scan()), tmp_path / "size.html"
    code, out, err = bathy(path, "--line", "4K", "--report", "/proc/size.html")
    assert code == 2
    assert "/proc/size.html" in err
    assert "Read hit ratio" in out
    code, out, err = bathy(path, "--line", "4K", "--report", page, "--save", "--workspace", "/dev/null/nowhere")
    assert code == 2
    assert "/dev/null/nowhere" in err
    assert "Read hit ratio" in out
    assert page.stat().st_size > 10_000


def test_time_that_runs_backwards_is_told(bathy: Bathy, tmp_path: Path) -> None:  # noqa: F811
    rows: list[Row] = [
        ((step - 5 * (step % 20 == 0)) * 1000, "read", step % 100 * LINE, LINE, "a") for step in range(1, 2001)
    ]
    _, out, _ = bathy(write_csv(tmp_path / "t.csv", rows), "--line", "4K")
    assert "100 of 2,000 I/Os are earlier than the one before them" in " ".join(out.split())
    _, out, _ = bathy(write_csv(tmp_path / "u.csv", sorted(rows)), "--line", "4K")
    assert "earlier than the one before" not in out


def test_lines_of_less_than_a_kibibyte_have_their_unit(bathy: Bathy, tmp_path: Path) -> None:  # noqa: F811
    _, out, _ = bathy(write_csv(tmp_path / "t.csv", loop_and_scan()), "--line", "512")
    assert "(220.00 USD), 512 B lines (" in " ".join(out.split())
