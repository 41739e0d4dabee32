"""The verb from the command line: each output against its golden file, and each mistake with exit code 2."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import random
import re
import sys
import typing
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.unit.views import golden, pages

from bathyscope import cli, files
from bathyscope.records import CurvePoint, Histogram, Op, Result, Step, from_table
from bathyscope.run_kinds import kind_of
from bathyscope.spec.size import SizeSpec
from bathyscope.spec.values import checked
from bathyscope.store import Workspace
from bathyscope.views import as_text

from .test_curve_points import ops
from .traces import LINE, Row, loop_and_scan, write_csv

FIXTURES = Path(__file__).parents[2] / "fixtures" / "traces"
EXCERPT = FIXTURES / "cloudphysics_excerpt.vscsi"
MULTI = FIXTURES / "multi3.lirs"


class Bathy:
    """Runs `bathy size …` in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self._capsys, self._monkeypatch = capsys, monkeypatch

    def __call__(self, *arguments: object) -> tuple[int, str, str]:
        self._monkeypatch.setattr(sys, "argv", ["bathy", "size", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        captured = self._capsys.readouterr()
        return int(ended.value.code or 0), captured.out, captured.err


@pytest.fixture
def bathy(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Bathy:
    monkeypatch.setenv("BATHY_WORKSPACE", str(tmp_path / "runs"))
    return Bathy(capsys, monkeypatch)


@pytest.mark.parametrize("output", ["table", "json", "csv"])
def test_outputs(bathy: Bathy, output: str) -> None:
    code, out, err = bathy(
        MULTI, "--line", "4K,64K", "--policy", "s3-fifo,lru", "--miss-latency", "8ms", "--output", output,
        "--target-hit", "0.5",
    )  # fmt: skip
    assert (code, err) == (0, "")
    # The path is this machine's.
    out = out.replace(str(MULTI), "multi3.lirs")
    if output == "table":
        assert all(len(row) <= 80 for row in out.splitlines())
        assert "\x1b" not in out
    elif output == "json":
        assert json.loads(out)["finding"] == "SizeFinding"
    else:
        rows = list(csv.DictReader(io.StringIO(out)))
        assert {row["line_bytes"] for row in rows} == {"4096", "65536"}
        assert sum("advised" in row["mark"] for row in rows) <= 1
    golden.check(f"size.{'txt' if output == 'table' else output}", out)


def test_a_target_is_met_by_the_smallest_size_that_was_simulated(bathy: Bathy) -> None:
    code, out, _ = bathy(EXCERPT, "--line", "64K", "--target-hit", "0.3", "--output", "json")
    assert code == 0
    curve = json.loads(out)["curves"][0]
    hits = {p["size_bytes"]: p["read_hit"]["value"] for p in curve["points"]}
    wanted = curve["wanted"]["size_bytes"]
    assert hits[wanted] >= 0.3
    below = max(size for size in hits if size < wanted)
    assert hits[below] < 0.3
    # Without the third pass the grid alone would leave a gap of up to a factor of two.
    assert wanted <= 1.25 * below + 65_536


@pytest.mark.parametrize("request_lines", [1, 16, 256])
def test_a_scan_is_not_worth_it(bathy: Bathy, tmp_path: Path, request_lines: int) -> None:
    """Nothing returns; that large lines fetch the next requests along is read-ahead, and is called that."""
    step_bytes = LINE * request_lines
    rows: list[Row] = [(step * 1000, "read", step * step_bytes, step_bytes, "a") for step in range(5000)]
    code, out, _ = bathy(write_csv(tmp_path / "scan.csv", rows))
    assert code == 0
    words = " ".join(out.split())
    if request_lines < 64:
        assert words.startswith("Not worth it: hardly any data returns")
    else:
        assert words.startswith("Not worth it: with 4K lines no size hits more than 0.0% of reads: 100% touch data")


def test_a_fast_backing_is_not_worth_it(bathy: Bathy, tmp_path: Path) -> None:
    path = write_csv(tmp_path / "loop.csv", loop_and_scan(), latency_us=100)
    code, out, _ = bathy(path, "--hit-latency", "90us")
    assert code == 0
    assert "Not worth it: the backing device is nearly as fast as a hit" in " ".join(out.split())


def test_a_budget_is_split_to_where_it_hits(bathy: Bathy, tmp_path: Path) -> None:
    path = write_csv(tmp_path / "mixed.csv", loop_and_scan())
    code, out, _ = bathy(
        path, "--by", "image", "--budget", "400K", "--line", "4K", "--policy", "lru", "--output", "json"
    )
    assert code == 0
    (split,) = json.loads(out)["splits"]
    shares = {share["group_name"]: share for share in split["shares"]}
    assert shares["loop"]["flash_bytes"] == 400 << 10
    assert shares["loop"]["read_hit_ratio"] == pytest.approx(0.98)
    assert shares["scan"]["flash_bytes"] == 0
    table = bathy(path, "--by", "image", "--budget", "400K", "--line", "4K", "--policy", "lru")[1]
    assert "Best split of 400 KiB" in table
    assert all(len(row) <= 80 for row in table.splitlines())


def test_the_page_is_complete(bathy: Bathy, tmp_path: Path) -> None:
    page = tmp_path / "size.html"
    hostile = '</script><script>alert("x")</script>'
    rows = [(*row[:4], row[4] if row[4] == "loop" else hostile) for row in loop_and_scan()]
    path = write_csv(tmp_path / "mixed.csv", rows)
    code, _, err = bathy(path, "--by", "image", "--budget", "600K", "--line", "4K", "--windows", "2s", "--report", page)
    assert code == 0
    assert str(page) in err
    text = page.read_text()
    assert hostile not in text
    assert "default-src &#39;none&#39;" in text
    own = text.split('<script type="application/gzip" id="charts-data">')[0]
    assert not re.search(r"(src|href)=[\"']?(https?:)?//", own)
    charts = pages.unpacked(text, "charts-data")["charts"]
    for name in ("curves-0", "groups", "split", "stability"):
        assert charts[name]["rows"], name
        assert f'data-chart="{name}"' in text


def spans(seconds: float, first: str = "read") -> list[Row]:
    """35 MiB are read or written for the first time in a tenth of the time, and then read again and again."""
    rng, lines = random.Random(5), 35 * 256
    step_us = int(seconds * 1e6 / (10 * lines))
    places = [*range(lines), *(rng.randrange(lines) for _ in range(9 * lines))]
    ops = [first] * lines + ["read"] * (9 * lines)
    return [
        (step * step_us, op, place * LINE, LINE, "a") for step, (op, place) in enumerate(zip(ops, places, strict=True))
    ]


def test_filling_a_cache_is_not_daily_wear_whatever_the_span(bathy: Bathy, tmp_path: Path) -> None:
    found = []
    for seconds in (33 * 60, 20 * 3600, 3 * 86_400):
        path = write_csv(tmp_path / f"{seconds}.csv", spans(seconds))
        code, out, _ = bathy(path, "--line", "4K", "--policy", "lru", "--miss-latency", "8ms", "--output", "json")
        assert code == 0
        one = json.loads(out)
        # The whole working set: nothing is written after the fill.
        point = one["curves"][0]["points"][-1]
        assert point["flash_write_bytes_per_day"] == 0
        assert point["fill_bytes"] == pytest.approx(35 * (1 << 20), rel=0.02)
        found.append((one["advice"]["verdict"], one["advice"]["size_bytes"], one["advice"]["purchase"]["drive"]))
        assert "the flash would live 50 years and more" in one["advice"]["reasons"]
    assert len(set(found)) == 1
    assert found[0][0] == "worth it"


@pytest.mark.parametrize(("line", "admission"), [("4K", "all"), ("16K", "all"), ("64K", "all"), ("16K", "2-hit")])
def test_data_that_is_written_first_fills_the_cache_once_too(
    bathy: Bathy, tmp_path: Path, line: str, admission: str
) -> None:
    """A write of a part of a line does not make it valid, so that large lines are filled by the reads that follow."""
    for seconds in (33 * 60, 20 * 3600, 3 * 86_400):
        path = write_csv(tmp_path / f"{seconds}.csv", spans(seconds, "write"))
        flags = ["--line", line, "--policy", "lru", "--fetch", line, "--admission", admission, "--output", "json"]
        code, out, _ = bathy(path, *flags)
        assert code == 0
        point = json.loads(out)["curves"][0]["points"][-1]
        assert point["flash_write_bytes_per_day"] == pytest.approx(0, abs=1)
        assert point["fill_bytes"] == pytest.approx(35 * (1 << 20), rel=0.02)


def test_the_advice_names_a_drive_the_busiest_time_and_what_is_left_to_the_disks(bathy: Bathy, tmp_path: Path) -> None:
    path = write_csv(tmp_path / "loop.csv", spans(3 * 3600))
    code, out, _ = bathy(path, "--line", "4K,64K", "--backing", "hdd")
    words = " ".join(out.split())
    assert code == 0
    assert re.search(r"Worth it: .* of flash.* on one samsung-845dc-evo-240g \(220.00 USD\)", words)
    assert "In the busiest hour" in words
    assert "reads/s are left to the disks" in words
    assert "The busiest minute asks at most" in words
    assert "One samsung-845dc-evo-240g costs 220.00 USD (packaged estimate of" in words
    assert "prices are estimates" in words


def test_large_lines_cost_what_they_transfer(bathy: Bathy, tmp_path: Path) -> None:
    """Runs of neighbours on hard disks, and single blocks on flash: the line size follows the disk behind the cache."""
    rng = random.Random(7)
    hot = [rng.randrange(3000) * 16 for _ in range(1500)]
    rows: list[Row] = [
        (step * 50_000, "read", rng.choice(hot) * LINE, LINE, "a") for step in range(12_000)
    ]  # fmt: skip
    path = write_csv(tmp_path / "single.csv", rows)
    flags = ["--fetch", "4K", "--policy", "lru", "--admission", "all", "--line", "4K,64K", "--budget", "6M"]
    advice = json.loads(bathy(path, *flags, "--output", "json")[1])["advice"]
    # 64 KiB for each 4 KiB that is hot waste fifteen sixteenths of a budget.
    assert advice["line_bytes"] == 4096


@pytest.mark.parametrize(("backing", "words"), [("floppy", "--backing is not known (got floppy)")])
def test_a_backing_that_is_neither_profile_nor_run_is_refused(bathy: Bathy, backing: str, words: str) -> None:
    code, out, err = bathy(EXCERPT, "--backing", backing)
    assert (code, out) == (2, "")
    assert words in err
    assert "hdd, ssd, nvme" in err


def test_a_run_that_measured_the_disk_is_the_backing(bathy: Bathy, tmp_path: Path) -> None:
    run_id = make_run(tmp_path / "runs", disk=True)
    code, out, err = bathy(EXCERPT, "--line", "64K", "--backing", run_id)
    assert (code, err) == (0, "")
    # 10 ms for a random 4K read, of which 4096 / 200e6 s are transfer.
    assert f"(the disk of {run_id}: 100 random 4K reads/s a disk)" in " ".join(out.split())
    code, _, err = bathy(EXCERPT, "--backing", make_run(tmp_path / "runs"))
    assert (code, "measured no random reads of a disk" in err) == (2, True)


def make_run(workspace: Path, *, disk: bool = False) -> str:
    """A run with the operations of a loop and a scan, and a measured step; `disk` adds two steps of the disk layer."""
    step = {
        "step_index": 0, "step_key": "rbd/hdd/randread-4K-qd1", "repeat_index": 0, "layer": "rbd",
        "load_generator": "fio", "device_class": "hdd", "op": "randread",
    }  # fmt: skip
    defaults = {int: 1, float: 1.0, str: "", bool: True}
    hints = typing.get_type_hints(Step)
    rest = {n: defaults.get(hints[n]) for n in (f.name for f in dataclasses.fields(Step)) if n not in step}
    results: list[Result] = []
    with Workspace(workspace).create_run(kind="bench", name="p", spec_text="", started_ns=1) as run:
        with run.begin_segment("step-00000") as segment:
            histogram = [
                Histogram(0, "c", "read", "clat", 4_000_000, 90),
                Histogram(0, "c", "read", "clat", 40_000_000, 10),
            ]
            segment.table(Op, ops(loop_and_scan()))
            steps = [Step(**step, **rest)]  # type: ignore[arg-type]
            if disk:
                parts = (("randread", 4096, 1e7, 1e6), ("read", 1 << 20, 1e7, 200e6))
                for index, (op, size, latency_ns, rate) in enumerate(parts, start=1):
                    more = {"step_index": index, "layer": "disk", "op": op, "block_size_bytes": size, "status": "done"}
                    steps.append(dataclasses.replace(steps[0], **more))  # type: ignore[arg-type]
                    given = {"step_index": index, "direction": "read", "io_count": 1000, "client": "c"}
                    figures = {"latency_ns_mean": latency_ns, "bandwidth_bytes_per_s": rate}
                    known = {
                        f.name: defaults.get(typing.get_type_hints(Result)[f.name]) for f in dataclasses.fields(Result)
                    }
                    results.append(Result(**(known | given | figures)))  # type: ignore[arg-type]
            segment.table(Step, steps)
            segment.table(Result, results)
            segment.table(Histogram, histogram)
            segment.commit()
        return run.id


def test_a_run_is_sized_and_its_measured_latency_used(bathy: Bathy, tmp_path: Path) -> None:
    run_id = make_run(tmp_path / "runs")
    arguments = [run_id, "--line", "4K", "--by", "image", "--output", "json", "--hit-latency", "100us"]
    code, out, _ = bathy(*arguments, "--miss-latency", f"{run_id}:rbd/hdd/randread-4K-qd1", "--save")
    assert code == 0
    found = json.loads(out)
    assert found["events"] == 10_000
    assert {c["group_name"] for c in found["curves"]} == {"all", "loop", "scan"}
    point = found["curves"][0]["points"][-1]
    assert point["read_hit"]["value"] == pytest.approx(0.49, abs=0.02)
    assert point["latency_ns_p99"] == 40_000_000
    saved = Workspace(tmp_path / "runs").open_run("last")
    rows = from_table(CurvePoint, saved.table(CurvePoint))
    assert {row.group_name for row in rows} == {"all", "loop", "scan"}
    # What was saved answers again, without the trace.
    again = kind_of(saved).finding(saved)
    assert json.loads(as_text(again, "json")) == found
    code, _, err = bathy(run_id, "--miss-latency", f"{run_id}:nothing")
    assert (code, "rbd/hdd/randread-4K-qd1" in err) == (2, True)


def test_tables_of_operations_are_sized_like_the_trace_of_them(bathy: Bathy, tmp_path: Path) -> None:
    rows = loop_and_scan(20)
    halves = [tmp_path / "early.parquet", tmp_path / "late.parquet"]
    for path, part in zip(halves, (rows[: len(rows) // 2], rows[len(rows) // 2 :]), strict=True):
        pq.write_table(ops(part), path)
    same = write_csv(tmp_path / "t.csv", rows)
    found = [
        json.loads(bathy(*given, "--by", "image", "--line", "4K", "--output", "json")[1]) for given in (halves, [same])
    ]
    hits = [
        [
            (curve["group_name"], point["size_bytes"], point["read_hit"])
            for curve in one["curves"]
            for point in curve["points"]
        ]
        for one in found
    ]
    assert hits[0] == hits[1]
    assert len(hits[0]) > 10


@pytest.mark.parametrize("swapped_after", [1, 2, 3])
def test_a_table_whose_name_leads_elsewhere_meanwhile_is_not_read(
    swapped_after: int, bathy: Bathy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, foreign, opened = tmp_path / "ops.parquet", tmp_path / "foreign.parquet", files.open_plain
    rows = loop_and_scan(20)
    pq.write_table(ops(rows), path)
    pq.write_table(ops([(*row[:4], "secret") for row in rows]), foreign)
    openings: list[Path] = []

    def then_swapped(file: Path, *flags: int) -> int:
        descriptor = opened(file, *flags)
        openings.extend([file] if file == path else [])
        if len(openings) == swapped_after and not path.is_symlink():
            path.unlink()
            path.symlink_to(foreign)
        return descriptor

    monkeypatch.setattr(files, "open_plain", then_swapped)
    code, out, err = bathy(path, "--by", "image", "--line", "4K", "--output", "json")
    assert path.is_symlink()
    assert "secret" not in out
    assert (code, "scan" in out) == (0, True) or (code, "is not a regular file" in err) == (2, True)


def test_a_parquet_file_that_is_no_table_of_operations_is_refused(bathy: Bathy, tmp_path: Path) -> None:
    pq.write_table(pa.table({"offset_bytes": [1]}), tmp_path / "other.parquet")
    code, _, error = bathy(tmp_path / "other.parquet")
    assert (code, "no column" in error, "schema op" in error) == (2, True, True)
    (tmp_path / "hostile.parquet").write_bytes(b"PAR1 and no more")
    code, _, error = bathy(tmp_path / "hostile.parquet")
    assert (code, "Parquet" in error) == (2, True)


def test_the_price_file_is_printed_and_read_back(bathy: Bathy, tmp_path: Path) -> None:
    code, out, _ = bathy("--show-prices")
    assert code == 0
    prices = tmp_path / "prices.yaml"
    prices.write_text(out.replace("price: 220", "price: 2048"))
    flags = ["--flash", "samsung-845dc-evo-240g", "--line", "4K", "--output", "json"]
    code, out, _ = bathy(EXCERPT, "--prices", prices, *flags)
    assert code == 0
    assert json.loads(out)["curves"][0]["points"][0]["purchase"]["price"] == 2048


KNOWN_DRIVE = {
    "capacity_gb": "1", "drive_writes_per_day": "1", "warranty_years": "5", "read_latency_us": "100",
    "read_iops": "1", "write_iops": "1", "read_mb_per_s": "1", "write_mb_per_s": "1", "price": "1",
}  # fmt: skip


@pytest.mark.parametrize("value", ["-1", ".inf", ".nan", "cheap", "[]"])
@pytest.mark.parametrize("key", [*KNOWN_DRIVE, "total_tb_written"])
def test_a_price_file_with_a_senseless_number_is_refused(bathy: Bathy, tmp_path: Path, key: str, value: str) -> None:
    lines = "".join(f"    {name}: {number}\n" for name, number in (KNOWN_DRIVE | {key: value}).items())
    prices = tmp_path / "prices.yaml"
    prices.write_text(f"currency: EUR\nas_of: today\ndrives:\n  drive:\n{lines}")
    code, out, err = bathy(EXCERPT, "--prices", prices)
    assert (code, out) == (2, "")
    assert f"drives.drive.{key}" in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["/nowhere/trace"], "no trace file and no run"),
        (["TRACE", "/nowhere/trace"], "there is no trace /nowhere"),
        (["EMPTY"], ""),
        (["GARBAGE"], ""),
        (["TRUNCATED", "--format", "vscsi1"], ""),
        (["TRACE", "--format", "pcap"], "--format is not known (got pcap)"),
        (["TRACE", "--by", "rack"], "--by must be 'all', 'image'"),
        (["TRACE", "--by", "node"], "--nodes"),
        (["TRACE", "--line", "3000"], "power of two"),
        (["TRACE", "--line", ","], "--line is empty"),
        (["TRACE", "--line", "4X"], "--line must be a size"),
        (["TRACE", "--fetch", "1M"], "--fetch must be a power of two"),
        (["TRACE", "--policy", "magic"], "one of: lru"),
        (["TRACE", "--admission", "2hit"], "--admission must be made of known filters (got 2hit)"),
        (["TRACE", "--target-hit", "0.9", "--budget", "1G"], "exclude each other"),
        (["TRACE", "--target-hit", "90"], "--target-hit must be greater than 0 and at most 1 (got 90)"),
        (["TRACE", "--target-latency", "2ms"], "--miss-latency"),
        (["TRACE", "--budget", "0"], "--budget must be greater than 0 (got 0)"),
        (["TRACE", "--miss-latency", "trace"], "has no latencies"),
        (["TRACE", "--dwpd", "1", "--tbw", "1T"], "exclude each other"),
        (["TRACE", "--exact", "--samples", "5000"], "exclude each other"),
        (["TRACE", "--flash", "tape"], "one of: samsung"),
        (["TRACE", "--prices", "/nowhere.yaml"], "cannot be read"),
        (["TRACE", "--windows", "0s"], "--windows must be a duration greater than 0"),
        (["TRACE", "--windows", "-1s"], "--windows"),
        (["TRACE", "--windows", "99999999999999999999d"], "--windows"),
        (["TRACE", "--windows", "100us"], "no more than 4096 windows (got 0.0001s)"),
        (["TRACE", "--line", "0"], "--line must be greater than 0 (got 0)"),
        (["TRACE", "--line", "99999E"], "--line must be at most 1.00 EiB (got 99999E)"),
        (["TRACE", "--fetch", "-1"], "--fetch"),
        (["TRACE", "--budget", "99999999999999999999999E"], "--budget"),
        (["TRACE", "--tbw", "many"], "--tbw"),
        (["TRACE", "--tbw", "0"], "--tbw must be greater than 0 (got 0)"),
        (["TRACE", "--dwpd", "0"], "--dwpd must be a number greater than 0 (got 0.0)"),
        (["TRACE", "--dwpd", "-1"], "--dwpd must be a number greater than 0 (got -1.0)"),
        (["TRACE", "--dwpd", "nan"], "--dwpd must be a number greater than 0 (got nan)"),
        (["TRACE", "--dwpd", "inf"], "--dwpd must be a number greater than 0 (got inf)"),
        (["TRACE", "--admission", "budget:99999E"], "--admission"),
        (["TRACE", "--admission", "bypass:x"], "--admission"),
        (["TIMELESS", "--admission", "2-hit+budget:1G"], "--admission 2-hit+budget:1G: a budget per day needs"),
        (["TRACE", "--policy", ","], "--policy is empty"),
        (["TRACE", "--target-latency", "soon"], "--target-latency"),
        (["TRACE", "--target-latency", "0ms"], "--target-latency"),
        (["TRACE", "--hit-latency", "-1ms"], "--hit-latency"),
        (["TRACE", "--miss-latency", "0s"], "--miss-latency"),
        (
            ["TRACE", "--line", "4K", "--report", "/dev/null/size.html"],
            "--report /dev/null/size.html cannot be written",
        ),
        (["DIRECTORY"], "not a run"),
    ],
)
def test_mistakes_have_a_message_and_no_traceback(
    bathy: Bathy, tmp_path: Path, arguments: list[str], words: str
) -> None:
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "garbage.bin").write_bytes(bytes(range(256)) * 33)
    (tmp_path / "cut.vscsi").write_bytes(EXCERPT.read_bytes()[:1000])
    names = {
        "TRACE": EXCERPT,
        "EMPTY": tmp_path / "empty.csv",
        "GARBAGE": tmp_path / "garbage.bin",
        "TRUNCATED": tmp_path / "cut.vscsi",
        "DIRECTORY": tmp_path,
        "TIMELESS": MULTI,
    }
    code, out, err = bathy(*(str(names.get(argument, argument)) for argument in arguments))
    assert (code, out) == (2, "")
    assert err.startswith("bathy: ")
    assert words in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--threads", "0"), ("--threads", "-1"), ("--threads", "two"), ("--threads", "1.5"), ("--threads", "9999"),
        ("--samples", "-1"), ("--samples", "1023"), ("--samples", "many"), ("--samples", "1" * 30),
        ("--dwpd", "one"), ("--on-write", "back"), ("--output", "xml"), ("--nonsense", "1"),
    ],
)  # fmt: skip
def test_what_the_parser_of_options_refuses_is_named(bathy: Bathy, option: str, value: str) -> None:
    code, out, err = bathy(EXCERPT, option, value)
    assert (code, out) == (2, "")
    assert option in err
    assert "Traceback" not in err


def test_bad_records_stop_or_are_counted(bathy: Bathy, tmp_path: Path) -> None:
    path = write_csv(tmp_path / "t.csv", loop_and_scan())
    path.write_text(path.read_text() + "1,read,x,4096,loop\n")
    code, _, err = bathy(path)
    assert code == 2
    assert "--skip-bad-records" in err
    code, out, _ = bathy(path, "--skip-bad-records", "--line", "4K")
    assert code == 0
    assert "1 records could not be read" in out


def test_help_ends_with_examples(bathy: Bathy) -> None:
    code, out, _ = bathy("--help")
    assert code == 0
    assert out.index("Examples:") > out.index("--target-latency")
    assert "bathy size osd.*.log --by osd --budget 400G" in out


@pytest.mark.parametrize(("text", "value"), [("600T", 600 * 10**12), ("1TiB", 1 << 40), ("1.5TB", 15 * 10**11)])
def test_promised_bytes_are_decimal_as_on_data_sheets(text: str, value: int) -> None:
    assert checked(SizeSpec, total_bytes_written=text).total_bytes_written == value


def test_an_adaptive_fetch_size_fetches_more_for_slower_disks(bathy: Bathy) -> None:
    fetched = {}
    for backing in ("hdd", "ssd"):
        flags = ["--line", "64K", "--fetch", "adaptive", "--policy", "s3-fifo", "--admission", "all"]
        code, out, err = bathy(EXCERPT, *flags, "--backing", backing, "--output", "json")
        assert code == 0, err
        finding = json.loads(out)
        curve, advice = finding["curves"][0], finding["advice"]
        assert all((it["is_fetch_adaptive"], it["fetch_bytes"]) == (True, 4096) for it in (curve, advice))
        assert "64K lines of 4K units, adaptive fetch" in advice["sentence"]
        _, out, _ = bathy(EXCERPT, *flags, "--backing", backing, "--output", "csv")
        assert {row["is_fetch_adaptive"] for row in csv.DictReader(io.StringIO(out))} == {"true"}
        fetched[backing] = curve["points"][0]["fetch_amplification"]
    assert fetched["hdd"] > fetched["ssd"]
