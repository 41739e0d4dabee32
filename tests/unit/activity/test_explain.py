"""`bathy explain` of a recording: what limited the clients of a cluster, in all of it or in a part."""

from __future__ import annotations

import csv
import html
import json
import re
from pathlib import Path
from typing import Any

import pytest
import typer
from tests.unit.activity.conftest import START_NS, Recording, S
from tests.unit.views.pages import unpacked
from typer.testing import CliRunner

from bathyscope.commands import explain
from bathyscope.commands.report import finding_of
from bathyscope.errors import AnalysisError, UsageError
from bathyscope.records import DeviceSample, PerfCounter, Placement
from bathyscope.views import as_text

LOAD = ("point", "predictions")
OSD = ("bluestore", "16.2.15", None, 1.0, 1.0, 1.0)


def counted(at_s: int, reads: int, latency_s: float, *, busy: float = 0.2) -> list[Any]:
    """Return what an OSD on a hard disk did in the ten seconds before, and its disk."""
    at_ns, length = START_NS + at_s * S, 10 * S
    rows: list[Any] = [
        PerfCounter(at_ns, length, "osd.0", "osd", name, "counter", float(grown), None, None)
        for name, grown in (("op_r", reads), ("op_r_out_bytes", reads * 4096))
    ]
    rows += [
        PerfCounter(at_ns, length, "osd.0", section, name, "average", reads * latency_s, reads, None)
        for section, name in (("osd", "op_r_latency"), ("osd", "op_r_process_latency"), ("bluestore", "read_lat"))
    ]
    disk = (reads, 0, reads * 4096, 0, busy, None, None)
    return [*rows, DeviceSample(at_ns, length, "node1", "sda", "osd.0", "hdd", *disk)]


@pytest.fixture
def explained(recording: Recording, tmp_path: Path) -> Any:
    """Write a recording of a minute whose second half is at the disk's limit; return what the verb says of it."""
    recording.run.update(target={"name": "t", "caveats": [["lab_shared_cpu", "A lab on one machine."]]})
    recording.add(Placement(0, "node1", "hdd", "sda", True, 1 << 40, *OSD))
    for at_s in range(0, 70, 10):
        recording.seen("perf_counters", at_s, at_s)
        if at_s:
            recording.add(
                *counted(at_s, *((500, 0.004) if at_s <= 30 else (1500, 0.05)), busy=0.2 if at_s <= 30 else 0.97)
            )
    recording.view("osds")
    app = typer.Typer()
    explain.register(app)

    def verb(*words: str) -> Any:
        done = CliRunner().invoke(app, [recording.run.id, "-w", str(tmp_path), *words])
        if done.exception is not None:
            raise done.exception
        return done.stdout

    return verb


def test_the_table_says_what_limited_the_clients(explained: Any) -> None:
    said = explained()
    assert "what clients did in run" in said
    assert "Clients did 100 IOPS" in said
    assert "osd.0's HDD (node1)" in said
    assert "Little's law" not in said


def test_a_table_that_it_never_has_is_refused_before_the_recording_is_read(
    explained: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bathyscope.window.recording.load_of", lambda *_: pytest.fail("the recording was read"))
    with pytest.raises(UsageError, match="--table must be one of loads, ceilings, "):
        explained("-o", "csv", "--table", "x")


def test_a_part_of_the_time_has_a_verdict_of_its_own(explained: Any) -> None:
    first, second = (
        json.loads(explained(*words, "-o", "json"))["point"] for words in (("--until", "30s"), ("--since", "30s"))
    )
    assert first["verdict"]["limit"] == "unknown"
    assert "not known: the processors of the OSDs' machines" in first["verdict"]["sentence"]
    assert (second["verdict"]["limit"], second["verdict"]["subject"]) == ("device", "osd.0")
    assert second["iops"]["value"] == pytest.approx(150)
    assert second["account"]["in_flight"]["value"] == pytest.approx(7.5)


def head_of(page: str) -> str:
    """Return what the page of a report says first."""
    (head,) = re.findall("<h1>(.*?)</h1>", page)
    return html.unescape(head)


def test_the_report_begins_with_what_explain_says(explained: Any, recording: Recording) -> None:
    said = json.loads(explained("-o", "json"))
    page = as_text(finding_of(recording.run), "html")
    assert unpacked(page, "finding-data")["load"] == {name: said[name] for name in ("run_id", "target", *LOAD)}
    assert head_of(page) == said["point"]["verdict"]["sentence"]
    text = html.unescape(re.sub(r"<[^>]*>", " ", page))
    assert all(evidence["name"] in text for evidence in said["point"]["verdict"]["evidence"])
    caveats = [caveat["text"] for caveat in said["point"]["caveats"]]
    assert "A lab on one machine." in caveats
    assert all(caveat in text for caveat in caveats)
    assert next(csv.reader(as_text(finding_of(recording.run), "csv").splitlines()))[0] == "image"


@pytest.mark.parametrize(
    ("reads", "words"),
    [
        (3, "cannot tell what limits them: 3 I/Os are too few to say (at least 100)"),
        (1, "cannot tell what limits them: 1 I/O is too few to say (at least 100)"),
        (0, "Clients did no I/O: cannot tell what limits them"),
        (None, "Cannot tell what limits the clients: nobody counted what clients did in this time"),
    ],
)
def test_the_report_of_too_little_cannot_tell(recording: Recording, reads: int | None, words: str) -> None:
    recording.add(Placement(0, "node1", "hdd", "sda", True, 1 << 40, *OSD))
    for at_s in (0, 10) if reads is not None else ():
        recording.seen("perf_counters", at_s, at_s)
        if at_s:
            recording.add(*counted(at_s, reads, 0.004, busy=0.0))
    recording.view("osds")
    assert head_of(as_text(finding_of(recording.run), "html")).endswith(words)


@pytest.mark.parametrize("ended_s", [0, 60])
def test_explain_and_the_report_say_the_same_of_an_empty_recording(
    recording: Recording, tmp_path: Path, ended_s: int
) -> None:
    recording.run.update(status="done", ended_ns=START_NS + ended_s * S)
    app = typer.Typer()
    explain.register(app)
    error = CliRunner().invoke(app, [recording.run.id, "-w", str(tmp_path)]).exception
    assert isinstance(error, AnalysisError)
    page = as_text(finding_of(recording.run), "html")
    assert head_of(page) == f"Cannot tell what limits the clients: {error.message}"
    text = html.unescape(re.sub(r"<[^>]*>", "", page))
    assert f"Next: {error.hint}".replace("`", "") in text


def test_csv_has_the_ceilings(explained: Any) -> None:
    rows = list(csv.DictReader(explained("-o", "csv", "--table", "ceilings").splitlines()))
    assert ("device", "osd.0") in {(row["resource"], row["subject"]) for row in rows}


def test_what_a_change_would_bring(explained: Any) -> None:
    said = explained("--since", "30s", "--what-if", "disk=2x")
    assert "disk=2x assumes: " in said


def test_what_is_not_there_is_refused(explained: Any) -> None:
    with pytest.raises(UsageError, match="it has no steps"):
        explained("rbd/ssd/randread-4K-qd16")
    with pytest.raises(UsageError, match="--since must be before --until"):
        explained("--since", "40s", "--until", "30s")
    with pytest.raises(AnalysisError, match="no I/O of the image rbd/a was counted"):
        explained("--image", "rbd/a")
    with pytest.raises(AnalysisError, match="no I/O of the pool rbd was counted"):
        explained("--pool", "rbd")


def test_nothing_is_predicted_where_the_cluster_did_not_limit_its_clients(explained: Any, recording: Recording) -> None:
    with pytest.raises(UsageError, match="the cluster did not limit its clients"):
        explained("--until", "1s", "--what-if", "disk=2x")
