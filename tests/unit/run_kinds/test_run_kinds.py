"""Run kinds: what each shows, and that one more is one more file."""

from __future__ import annotations

import contextlib
import datetime
import io
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bathyscope import cli, run_kinds
from bathyscope.commands.report import finding_of
from bathyscope.discovery import members
from bathyscope.errors import AnalysisError, UsageError
from bathyscope.records import Caveat, Collection, CurvePoint, RawAnswer, schema_of, to_table
from bathyscope.run_kinds import KINDS, kind_of
from bathyscope.store import Workspace
from bathyscope.store.roll_up import roll_up

SECOND_NS = 10**9


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path)


def bathy(workspace: Workspace, *words: str) -> tuple[str, str]:
    """Run the command line in this process and return what it prints; its errors are raised."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        patch.setenv("BATHY_WORKSPACE", str(workspace.path))
        cli.app(list(words), standalone_mode=False)
    return out.getvalue(), err.getvalue()


def collection(at_s: int) -> Collection:
    return Collection(at_s * SECOND_NS, "proc", SECOND_NS // 10, 2, 0, 100, True, None)


def test_the_kinds() -> None:
    assert {"bench", "collect", "size"} <= set(KINDS)
    for kind in KINDS.values():
        assert "RUN" in kind.continue_hint("RUN")


def test_starting_loads_no_kind_s_work() -> None:
    heavy = "('pyarrow', 'scipy', 'altair', 'duckdb')"
    code = f"import sys, bathyscope.run_kinds; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


def test_an_unknown_kind_can_be_opened_and_listed_but_not_reported(workspace: Workspace) -> None:
    with workspace.create_run(kind="dream", started_ns=1) as run:
        pass
    assert [entry.kind for entry in workspace.runs()] == ["dream"]
    with pytest.raises(UsageError, match="kind 'dream'") as caught:
        kind_of(run)
    assert "bench" in (caught.value.hint or "")
    shown, _ = bathy(workspace, "runs", "show", "last")
    assert "dream" in shown


def test_a_sizing_without_its_question_says_how_it_is_reported(workspace: Workspace) -> None:
    with workspace.create_run(kind="size", started_ns=1, spec_text="bathy size a.vscsi") as run:
        run.update(status="done")
    with pytest.raises(AnalysisError, match="sizing") as caught:
        finding_of(run)
    assert "bathy size TRACE --report" in (caught.value.hint or "")
    assert "bench" not in caught.value.message + (caught.value.hint or "")


def curve_point(size_bytes: int, hit_ratio: float) -> CurvePoint:
    """Return a point of one curve; what is not given is 0, or as if it were exact."""
    plain: dict[str, Any] = {
        field.name: None if field.nullable else "all" if field.type == pa.string() else 0
        for field in schema_of(CurvePoint)
    }
    sizes = {"line_bytes": 4096, "fetch_bytes": 4096, "size_bytes": size_bytes, "flash_bytes": size_bytes}
    hits = {f"read_{name}": hit_ratio for name in ("hit_ratio", "hit_ratio_low", "hit_ratio_high", "byte_hit_ratio")}
    counts = {"read_requests": 1000, "read_bytes": 4096000, "working_set_bytes": 1 << 30, "policy": "lru"}
    return CurvePoint(**{**plain, **sizes, **hits, **counts, "method": "exact", "duration_s": 86400.0})


def test_a_sizing_is_answered_again_from_what_is_stored(workspace: Workspace) -> None:
    sizing = pytest.importorskip("bathyscope.analysis.sizing")
    spec = pytest.importorskip("bathyscope.spec.size")
    size = pytest.importorskip("bathyscope.records.size")
    question = sizing.SizeQuestion(spec.SizeSpec(traces=("a.vscsi",)), size.TraceSummary(("a.vscsi",), 1000))
    rows = to_table(CurvePoint, [curve_point(1 << 20, 0.25), curve_point(1 << 30, 0.75)])
    spec_text = question.spec.model_dump_json()
    with workspace.create_run(kind="size", started_ns=1, spec_text=spec_text) as run:
        with run.begin_segment("run") as writer:
            writer.context(question.as_context())
            writer.table(CurvePoint, rows)
            writer.commit()
        run.compact()
        run.update(status="done")
    assert finding_of(workspace.open_run(run.id)) == sizing.build(rows, question)


def test_a_recording_is_shown(workspace: Workspace) -> None:
    with workspace.create_run(kind="collect", started_ns=0, name="night") as run:
        with run.begin_segment("20260921T000000.000Z") as writer:
            writer.table(Collection, [collection(second) for second in range(10)])
            writer.raw("proc", [RawAnswer("proc", ("cat",), (), 0, b"", b"", 1, 2)])
            writer.commit()
        run.update(status="done")
    shown, _ = bathy(workspace, "runs", "show", "last", "-o", "json")
    facts = {row["name"]: row["value"] for row in json.loads(shown)}
    assert facts["source proc"].startswith("10 collections, 0 without success")
    assert facts["rows in collection"] == 10
    (source,) = finding_of(run).recording.sources
    assert (source.source, source.collection_count) == ("proc", 10)


def test_a_recording_of_ten_days_that_was_rolled_up_has_no_gap(workspace: Workspace) -> None:
    hour_s, hours = 3600, 240
    with workspace.create_run(kind="collect", started_ns=0, context={"periods_s": {"proc": 3600.0}}) as run:
        for hour in range(hours):
            moment = datetime.datetime.fromtimestamp(hour * hour_s, tz=datetime.UTC)
            with run.begin_segment(f"{moment:%Y%m%dT%H%M%S}.000Z") as writer:
                writer.table(Collection, [collection(hour * hour_s)])
                writer.commit()
            if hour % 24 == 23:
                roll_up(run, (hour + 1) * hour_s * SECOND_NS)
        run.update(status="done", ended_ns=hours * hour_s * SECOND_NS)
    assert 60 in {segment.facts.resolution_s for segment in run.segments().values()}
    (source,) = finding_of(run).recording.sources
    assert (source.collection_count, source.gaps) == (hours, ())


KIND_FILE = '''
"""A kind of this test."""

from bathyscope.errors import AnalysisError
from bathyscope.run_kinds.base import RunKind
from bathyscope.records import Caveat


def _finding(run):
    rows = run.table(Caveat).num_rows
    if not rows:
        raise AnalysisError("nothing was studied")
    return [{"run": run.id, "rows": rows}]


def _describe(run):
    return [("studied", run.info.context["what"])]


def _reparse(run):
    return f"{len(run.segments())} segments of a study"


KIND = RunKind("study_of_a_test", _finding, _describe, lambda run_id: f"study {run_id} again", _reparse)
'''


@pytest.fixture
def one_more(tmp_path: Path) -> Iterator[None]:
    directory = tmp_path / "more"
    directory.mkdir()
    (directory / "study_of_a_test.py").write_text(KIND_FILE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_kinds, "__path__", [*run_kinds.__path__, str(directory)])
        patch.setattr(run_kinds, "KINDS", members(run_kinds, "KIND"))
        yield
    sys.modules.pop("bathyscope.run_kinds.study_of_a_test")


@pytest.mark.usefixtures("one_more")
def test_one_more_kind_is_one_more_file(workspace: Workspace) -> None:
    with workspace.create_run(kind="study_of_a_test", started_ns=1, name="s", context={"what": "sea"}) as run:
        with pytest.raises(AnalysisError, match="nothing was studied"):
            finding_of(run)
        with run.begin_segment("run") as writer:
            writer.table(Caveat, [Caveat(None, "a", "note", "t", "s")])
            writer.commit()
        run_id = run.id
    listed, _ = bathy(workspace, "runs", "list", "-o", "json")
    assert [(row["kind"], row["status"]) for row in json.loads(listed)] == [("study_of_a_test", "interrupted")]
    shown, _ = bathy(workspace, "runs", "show", "last")
    assert "sea" in shown
    assert f"study {run_id} again" in shown
    assert finding_of(workspace.open_run("last")) == [{"run": run_id, "rows": 1}]
    assert bathy(workspace, "runs", "reparse", "last")[1] == "1 segments of a study\n"


@pytest.mark.usefixtures("one_more")
def test_an_interrupted_run_without_a_finding_says_how_it_goes_on(workspace: Workspace) -> None:
    with workspace.create_run(kind="study_of_a_test", started_ns=1) as run:
        pass
    with pytest.raises(AnalysisError) as caught:
        finding_of(run)
    assert caught.value.hint == f"study {run.id} again"
