"""`bathy import osd-log`: logs recorded from a real cluster, and every mistake with exit code 2."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from bathyscope import cli
from bathyscope.commands import import_
from bathyscope.osd_log import OsdLogs
from bathyscope.records import Op, schema_of
from bathyscope.store import Workspace

RECORDED = Path(__file__).parents[2] / "fixtures" / "osd_log" / "16.2.15"
STATS = RECORDED / "debug_osd" / "ceph-osd.2.log"
MESSAGES = RECORDED / "debug_ms" / "ceph-osd.2.log"
BOTH = RECORDED / "both" / "ceph-osd.2.log"

_STATS_LINE = re.compile(
    r"osd\.(\d+) pg_epoch.* log_op_stats osd_op\((client\.\d+)\.\d+:(\d+) (\d+)\.([0-9a-f]+)(?:s\d)? (.*)\) v8 inb \d+ "
    r"outb \d+ lat ([\d.]+)"
)
_REQUEST = re.compile(r"<== (client\.\d+) (\S+) \d+ ==== osd_op\(client\.\d+\.\d+:(\d+) ")
_REPLY = re.compile(
    r"--> (\S+) -- osd_op_reply\((\d+) (nothing here \d|a name with \[brackets\] and spaces|\S+) \[(.*)\] v\d+'"
    r"\d+ uv\d+ ondisk = (-?\d+)"
)


_OBJECT = re.compile(r"(-?\d+):[0-9a-f]+:([^:]*):([^:]*):(.*):(head|snapdir|[0-9a-f]+)$", re.DOTALL)
_READS = ("read", "sparse-read", "sync_read")
_WRITES = ("write", "writefull", "writesame", "append", "zero", "truncate", "create", "delete")


def target_of(rest: str) -> tuple[str | None, str, int | None]:
    """Return (object name, kind, offset of the first extent) from the end of an operation's description.

    The plain rules, to hold the reader against: "2:d447dd18:::NAME:head [read 4096~512,…] snapc 0=[] …".
    """
    place = rest.rfind(":head [") + len(":head [")
    named = _OBJECT.match(rest[: place - 2])
    listed = rest[place:].partition("]")[0]
    verbs = [part.split(" ", 1)[0] for part in listed.split(",")]
    kind = "write" if any(v in _WRITES for v in verbs) else "read" if any(v in _READS for v in verbs) else "other"
    extent = re.search(r"(\d+)~(\d+)", listed)
    return named[4] if named else None, kind, int(extent[1]) if extent else None


def operations(*paths: Path, **options: Any) -> pa.Table:
    return pa.concat_tables(OsdLogs(paths, **options).tables())


class Bathy:
    """Runs `bathy import osd-log …` in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self._capsys, self._monkeypatch = capsys, monkeypatch

    def __call__(self, *arguments: object) -> tuple[int, str, str]:
        self._monkeypatch.setattr(sys, "argv", ["bathy", "import", "osd-log", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        captured = self._capsys.readouterr()
        return int(ended.value.code or 0), captured.out, captured.err


@pytest.fixture
def bathy(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Bathy:
    monkeypatch.setenv("BATHY_WORKSPACE", str(tmp_path / "runs"))
    return Bathy(capsys, monkeypatch)


def test_statistics_agree_with_regular_expressions_and_with_the_op_history() -> None:
    """The kind and the extents of an operation are those that `sources.op_history` reads of the same description."""
    lines = _STATS_LINE.findall(STATS.read_text())
    rows = operations(STATS).to_pylist()
    assert len(rows) == len(lines) > 0
    for row, (osd, client, _tid, pool, seed, rest, lat) in zip(rows, lines, strict=True):
        name, kind, offset = target_of(rest)
        assert (row["osd"], row["client"], row["pg"]) == (int(osd), client, f"{pool}.{seed}")
        assert (row["object_name"], row["op"], row["offset_bytes"]) == (name, kind, offset)
        assert row["duration_ns"] == round(float(lat) * 1e9)
        assert row["result"] is None


def test_messages_agree_with_regular_expressions() -> None:
    text = MESSAGES.read_text()
    clients = {(address, tid): client for client, address, tid in _REQUEST.findall(text)}
    replies = [reply for reply in _REPLY.findall(text) if reply[:2] in clients]
    rows = operations(MESSAGES).to_pylist()
    assert [(row["client"], row["object_name"], row["result"], row["client_address"]) for row in rows] == [
        (clients[address, tid], name, int(result), address.partition("/")[0])
        for address, tid, name, _ops, result in replies
    ]
    assert {row["osd"] for row in rows} == {2}
    assert all(0 <= row["duration_ns"] < 60 * 10**9 for row in rows)
    assert {"read", "write", "other"} == {row["op"] for row in rows}
    assert any(row["result"] < 0 for row in rows)


def test_an_operation_in_both_forms_counts_once() -> None:
    text = BOTH.read_text()
    by_stats = {(client, tid) for _, client, tid, *_ in _STATS_LINE.findall(text)}
    clients = {(address, tid): client for client, address, tid in _REQUEST.findall(text)}
    by_reply = {(clients[reply[:2]], reply[1]) for reply in _REPLY.findall(text) if reply[:2] in clients}
    logs = OsdLogs([BOTH])
    table = pa.concat_tables(logs.tables())
    assert len(by_stats & by_reply) > 10
    assert table.num_rows == len(by_stats | by_reply)
    assert logs.report.ops_of_stats == len(by_stats)
    # What failed is in no log_op_stats line.
    assert all(result < 0 for result in table["result"].drop_null().to_pylist())
    # The statistics know the client, the request its address.
    assert table["client_address"].null_count < table.num_rows


def test_the_logs_hold_the_shapes_that_are_hard() -> None:
    rows = operations(STATS).to_pylist() + operations(MESSAGES).to_pylist() + operations(BOTH).to_pylist()
    names = [row["object_name"] for row in rows]
    assert any(" " in name for name in names)
    assert any(re.fullmatch(r"rbd_data\.\d+\.[0-9a-f]+\.[0-9a-f]{16}", name) for name in names)
    text = STATS.read_text() + MESSAGES.read_text() + BOTH.read_text()
    for shape in ("[fadvise_", "set-alloc-hint", "sparse-read", "writefull", "call rbd.", ":ns1:", "= -2 ("):
        assert shape in text, shape


def test_the_verb_makes_a_run_and_shows_the_busiest(bathy: Bathy) -> None:
    code, out, err = bathy(STATS, "--output", "json", "--top", "1000")
    assert code == 0, err
    assert "log_op_stats lines (debug_osd 15)" in err
    rows = json.loads(out)
    table = operations(STATS)
    assert sum(row["count"] for row in rows) == table.num_rows
    assert [row["count"] for row in rows] == sorted((row["count"] for row in rows), reverse=True)
    images = Counter(
        re.findall(r"rbd_data\.(?:\d+\.)?([0-9a-f]+)\.[0-9a-f]{16}", " ".join(table["object_name"].to_pylist()))
    )
    counted: Counter[str] = Counter()
    for row in rows:
        counted[row["image_id"]] += row["count"]
    assert {image: counted[image] for image in images} == images
    for row in rows:
        chosen = table.filter(
            (pc.field("op") == row["op"])
            & pc.match_substring(pc.field("object_name"), f".{row['image_id']}." if row["image_id"] else "")
        )
        assert row["p99_ns"] <= pc.max(chosen["duration_ns"]).as_py()
    run = Workspace().open_run("last")
    assert (run.info.kind, run.status) == ("collect", "done")
    assert run.info.context["imported_from"] == [str(STATS)]
    stored = run.table(Op)
    assert stored.drop_columns(["run_id"]).equals(table.cast(schema_of(Op)), check_metadata=False)


@pytest.mark.parametrize("output", ["table", "csv"])
def test_outputs(bathy: Bathy, output: str) -> None:
    code, out, err = bathy(MESSAGES, "--output", output)
    assert code == 0, err
    assert "debug_ms 1" in err
    if output == "csv":
        rows = list(csv.DictReader(io.StringIO(out)))
        assert sum(int(row["failed"]) for row in rows) > 0
    else:
        assert "image" in out


def test_p99_is_that_of_the_operations_within_a_bucket(bathy: Bathy, tmp_path: Path) -> None:
    line = next(
        line for line in STATS.read_text().splitlines(keepends=True) if "[write " in line and "log_op_stats" in line
    )
    log = tmp_path / "osd.txt"
    log.write_text("".join(re.sub(r"lat [\d.]+", f"lat 0.{number:06d}", line) for number in range(1, 1001)))
    code, out, _ = bathy(log, "--output", "json")
    (row,) = json.loads(out)
    assert code == 0
    assert row["count"] == 1000
    assert row["mean_ns"] == 500_500
    assert 990_000 <= row["p99_ns"] <= 990_000 * 1.01


def test_segments_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_, "SEGMENT_OPS", 20)
    table = operations(MESSAGES)
    with Workspace(tmp_path).create_run(kind="collect", started_ns=1) as run:
        import_._write(run, (table.slice(start, 15) for start in range(0, table.num_rows, 15)))
        assert [segment.facts.rows["op"] for segment in run.segments().values()] == [30, 30, 15]
        assert run.table(Op)["started_ns"].equals(table["started_ns"])


def test_a_rotated_set_is_one_log(bathy: Bathy, tmp_path: Path) -> None:
    lines = MESSAGES.read_text().splitlines(keepends=True)
    half = len(lines) // 2
    older, newer = tmp_path / "ceph-osd.2.log.1.gz", tmp_path / "ceph-osd.2.log"
    older.write_bytes(gzip.compress("".join(lines[:half]).encode()))
    newer.write_text("".join(lines[half:]))
    code, _, err = bathy(newer, older)
    assert code == 0, err
    run = Workspace().open_run("last")
    assert sorted(run.table(Op)["started_ns"].to_pylist()) == sorted(operations(MESSAGES)["started_ns"].to_pylist())


def test_a_span_of_time(bathy: Bathy) -> None:
    table = operations(STATS)
    middle_ns = sorted(table["started_ns"].to_pylist())[table.num_rows // 2] // 1000 * 1000
    early, late = operations(STATS, until_ns=middle_ns), operations(STATS, since_ns=middle_ns)
    assert early.num_rows + late.num_rows == table.num_rows
    assert min(early.num_rows, late.num_rows) > 0
    code, _, err = bathy(STATS, "--since", "2100-01-01")
    assert code == 2
    assert "began before --since" in err


def test_mistakes(bathy: Bathy, tmp_path: Path) -> None:
    other, quiet, unnamed = tmp_path / "trace.csv", tmp_path / "quiet.log", tmp_path / "messages.txt"
    other.write_text("time_ns,offset_bytes\n1,0\n")
    quiet.write_text("2026-11-21T01:02:03.500+0000 7f5445fe36c0  1 osd.7 22 tick\n")
    unnamed.write_text(MESSAGES.read_text())
    for words, reason, hint in [
        ([tmp_path / "none"], "there is no log file", None),
        ([other], "not a trace in the osd-log format", "ceph-osd.3.log"),
        ([quiet], "no operations of clients", "debug_ms 1"),
        ([unnamed], "do not name its OSD", "--osd N"),
        ([STATS, STATS], "given twice", "count twice"),
        ([STATS, "--since", "yesterday"], "--since must be a time", "2026-"),
    ]:
        code, out, err = bathy(*words)
        assert (code, out) == (2, ""), err
        assert reason in err
        assert hint is None or hint in err
    assert Workspace().runs() == []
    assert bathy(unnamed, "--osd", "5")[0] == 0
    assert set(Workspace().open_run("last").table(Op)["osd"].to_pylist()) == {5}


def test_the_run_can_be_shown_and_sized(
    bathy: Bathy, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert bathy(STATS)[0] == 0
    for words in (["runs", "show", "last"], ["size", "last", "--output", "json"]):
        monkeypatch.setattr(sys, "argv", ["bathy", *words])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        assert not ended.value.code, capsys.readouterr().err
    assert "op" in capsys.readouterr().out


def test_journald_and_cut_lines(tmp_path: Path) -> None:
    text = "".join(
        f"Nov 21 02:10:12 node1 ceph-osd[42]: debug {line}" for line in STATS.read_text().splitlines(keepends=True)
    )
    log = tmp_path / "journal.txt"
    log.write_text(text + text.splitlines()[-1][:-3])
    assert operations(log).equals(operations(STATS))
