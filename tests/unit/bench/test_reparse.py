"""Runs recorded on labs of three Ceph releases, parsed and judged again from what is kept beside their tables.

tests/golden/reparse-<release>.txt holds what the run itself wrote when it was recorded.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.unit.store.killing import leftovers, run_until
from tests.unit.store.test_commands import bathy
from tests.unit.views import golden

from bathyscope.errors import BathyscopeError, StoreError
from bathyscope.host.local import LocalHost
from bathyscope.records import Caveat, Run, Step, from_table
from bathyscope.run_kinds import KINDS, kind_of
from bathyscope.store import RunDirectory, Segment, SegmentWriter, Workspace

FIXTURES = Path(__file__).parents[2] / "fixtures" / "runs"
RELEASES = ("pacific", "reef", "tentacle")


def recorded(release: str, workspace: Path) -> RunDirectory:
    """Put a recorded run, which has no table, into a workspace and return it, open for reading."""
    source = FIXTURES / release
    assert not list(source.rglob("*.parquet"))
    return RunDirectory(
        shutil.copytree(source, workspace / "runs" / json.loads((source / "run.json").read_text())["id"])
    )


def reparse(run: RunDirectory) -> RunDirectory:
    """Do what `bathy runs reparse` does."""
    with Workspace(run.path.parents[1]).open_run(run.id, exclusive=True) as found:
        kind = kind_of(found)
        assert kind.reparse is not None
        kind.reparse(found)
    return RunDirectory(run.path)


@pytest.fixture(params=RELEASES)
def run(request: pytest.FixtureRequest, tmp_path: Path) -> RunDirectory:
    """A recorded run of each release, without tables."""
    return recorded(request.param, tmp_path)


@pytest.fixture(scope="module")
def parsed_once(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    return reparse(recorded("tentacle", tmp_path_factory.mktemp("once")))


@pytest.fixture
def parsed(parsed_once: RunDirectory, tmp_path: Path) -> RunDirectory:
    """The run that was interrupted and resumed, with tables."""
    return RunDirectory(shutil.copytree(parsed_once.path, tmp_path / "runs" / parsed_once.id))


def drop_tables(run: RunDirectory) -> None:
    for file in run.path.rglob("*.parquet"):
        file.unlink()
    shutil.rmtree(run.path / "tables", ignore_errors=True)


def summary(run: RunDirectory) -> str:
    """Return what a run says: a digest of every table, and statuses, caveats and verdicts in words."""
    (row,) = from_table(Run, run.table(Run))
    finding = KINDS["bench"].finding(run)
    steps, caveats = from_table(Step, run.table(Step)), from_table(Caveat, run.table(Caveat))
    lines = [
        f"run {row.run_id} {row.status}: {row.ceph_version}, {row.fio_version}, bathyscope {row.bathy_version}",
        *(
            f"table {name}: {table.num_rows} rows, {digest(table)}"
            for name, table in sorted(run.tables().items())
            if table.num_rows
        ),
        *(f"step {s.step_index} {s.step_key} #{s.repeat_index}: {s.status} {s.reason or ''}".rstrip() for s in steps),
        *(f"caveat {c.step_index} {c.severity} {c.code}: {c.text}" for c in caveats),
        f"headline: {finding.headline}",
        *(f"verdict {group.device_class} {group.pattern}: {group.sentence}" for group in finding.groups),
    ]
    return "".join(f"{line}\n" for line in lines)


def digest(table: pa.Table) -> str:
    """Return a digest of the rows in any order; the last digits of a float differ between machines."""
    rows = sorted(
        "|".join(f"{value:.12g}" if isinstance(value, float) else repr(value) for value in row.values())
        for row in table.to_pylist()
    )
    names = "|".join(table.column_names)
    return hashlib.sha256("\n".join([names, *rows]).encode()).hexdigest()[:16]


# --- the same tables and the same verdicts


def test_a_recorded_run_gives_the_tables_and_verdicts_that_it_gave(run: RunDirectory) -> None:
    release = str(run.info.target["name"]).rpartition("-")[2]
    before = run.info
    again = reparse(run)
    assert again.info == before
    golden.check(f"reparse-{release}.txt", summary(again))
    assert leftovers(again.path) == []


def test_parsed_twice_is_parsed_once(parsed: RunDirectory) -> None:
    tables, finding = parsed.tables(), KINDS["bench"].finding(parsed)
    twice = reparse(parsed)
    assert twice.tables() == tables
    drop_tables(twice)
    assert not twice.tables()["step"].num_rows
    thrice = reparse(twice)
    assert thrice.tables() == tables
    assert KINDS["bench"].finding(thrice).headline == finding.headline
    assert leftovers(thrice.path) == []


def test_a_run_that_was_resumed_is_judged_by_the_start_of_each_step(parsed: RunDirectory) -> None:
    segments = parsed.segments()
    assert [segment.context()["start"] for segment in parsed.step_segments().values()] == ["start-1"] * 2 + [
        "start-2"
    ] * 4
    pids = [
        {daemon["name"]: daemon["pid"] for daemon in segments[name].context()["target"]["daemons"]}
        for name in ("start-1", "start-2")
    ]
    assert pids[0]["osd.0"] != pids[1]["osd.0"]
    # Of the OSDs before their restart and after it.
    samples = parsed.tables()["process_sample"].to_pylist()
    for step in from_table(Step, parsed.table(Step)):
        seen = {row["process"] for row in samples if step.started_ns < row["at_ns"] <= step.ended_ns}
        assert {"osd.0", "osd.1"} <= seen


# --- nothing but raw answers


class Watch:
    """Keeps what the program opens, lists and starts while it is on. An audit hook cannot be taken away again."""

    EVENTS = ("open", "os.listdir", "os.scandir", "subprocess.Popen", "os.exec", "os.posix_spawn", "socket.connect")

    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []
        self.on = False
        sys.addaudithook(self.hook)

    def hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.on and event in self.EVENTS and not isinstance(arguments[0], int):
            self.seen.append((event, str(Path(str(arguments[0] or ".")).absolute())))

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        self.on = True
        try:
            yield
        finally:
            self.on = False


# What is imported on the way is there before: a run was parsed.
@pytest.mark.usefixtures("parsed_once")
def test_nothing_but_the_run_is_read(run: RunDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:

    def forbidden(*words: Any, **options: Any) -> Any:
        raise AssertionError("parsing again looked at this machine")

    watch = Watch()
    with monkeypatch.context() as patch:
        for owner, names in (
            (os, ("sysconf", "uname", "getloadavg", "cpu_count")),
            (time, ("time", "time_ns", "sleep")),
            (LocalHost, ("run", "read", "now_ns", "monotonic_ns", "sleep")),
        ):
            for name in names:
                patch.setattr(owner, name, forbidden)
        # Directories are deleted by names relative to an open one.
        patch.chdir(run.path)
        with watch.watching():
            reparse(run)
    assert watch.seen
    assert {(event, path) for event, path in watch.seen if not path.startswith(f"{tmp_path}/")} == set()


# --- trouble on the way


def contents(directory: Path) -> dict[str, bytes]:
    return {str(file.relative_to(directory)): file.read_bytes() for file in directory.rglob("*") if file.is_file()}


def test_a_kill_leaves_a_readable_run(parsed: RunDirectory) -> None:
    tables = parsed.tables()
    call = 0
    # Each time a bit later, until one gets to its end; every one begins with what the killed one before has left.
    while not run_until(lambda: reparse(parsed), call):
        killed = RunDirectory(parsed.path)
        assert killed.status == "done"
        assert killed.tables() == tables
        call += 4
    assert call > 10
    assert leftovers(reparse(parsed).path) == []


def test_a_full_disk_leaves_a_readable_run(parsed: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = parsed.tables()
    commit, count = SegmentWriter.commit, 0

    def full(self: SegmentWriter) -> Segment:
        nonlocal count
        count += 1
        if count == 5:
            self.discard()
            raise StoreError("no space left")
        return commit(self)

    monkeypatch.setattr(SegmentWriter, "commit", full)
    with pytest.raises(StoreError, match="no space left"):
        reparse(parsed)
    assert RunDirectory(parsed.path).tables() == tables


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def lose_scope(path: Path) -> None:
    path.write_text(
        json.dumps({name: value for name, value in json.loads(path.read_text()).items() if name != "scope"})
    )


@pytest.mark.parametrize(
    ("segment", "file", "damage"),
    [
        ("step-00003", "raw/load.zst", flip),
        ("step-00005", "raw/perf_counters.zst", cut),
        ("step-00005", "raw/collections.zst", cut),
        ("start-2", "raw/cluster_map.zst", flip),
        ("end", "raw/machine.zst", cut),
        ("start-1", "context.json", lose_scope),
        ("step-00004", "context.json", lose_scope),
    ],
)
def test_damage_is_named_and_everything_else_stays(
    parsed: RunDirectory, segment: str, file: str, damage: Callable[[Path], None]
) -> None:
    path = parsed.segments()[segment].path / file
    damage(path)
    before = contents(parsed.path)
    with pytest.raises(BathyscopeError) as caught:
        reparse(parsed)
    assert str(path if file.endswith(".zst") else path.parent) in caught.value.message
    assert "\n" not in caught.value.message
    assert contents(parsed.path) == before


def test_a_source_that_this_version_does_not_know_is_a_caveat(parsed: RunDirectory) -> None:
    caveats = from_table(Caveat, parsed.table(Caveat))
    for segment, source in (("start-1", "machine"), ("step-00003", "proc")):
        raw = parsed.segments()[segment].path / "raw"
        shutil.copyfile(raw / f"{source}.zst", raw / "sonar.zst")
    new = [caveat for caveat in from_table(Caveat, reparse(parsed).table(Caveat)) if caveat not in caveats]
    text = "sonar: this version of bathyscope has no source named 'sonar'; its answers are not read"
    assert [(caveat.step_index, caveat.severity, caveat.text) for caveat in new] == [
        (None, "note", text),
        (3, "note", text),
    ]


def test_a_layer_that_this_version_does_not_know_is_one_error_and_everything_stays(tmp_path: Path) -> None:
    run = recorded("reef", tmp_path)
    context = run.segments()["step-00002"].path / "context.json"
    context.write_text(context.read_text().replace('"layer": "rbd"', '"layer": "tape"'))
    before = contents(run.path)
    done = bathy(tmp_path, "runs", "reparse", "last")
    assert done.returncode == 2
    assert "step-00002 is a step of the layer 'tape', which this version of bathyscope does not know" in done.stderr
    assert "\nhint: it knows disk, rados, rbd; " in done.stderr
    assert contents(run.path) | {"lock": b""} == before | {"lock": b""}


# --- the command line


def test_the_verb(tmp_path: Path) -> None:
    run = recorded("reef", tmp_path)
    done = bathy(tmp_path, "runs", "reparse", "last")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "6 steps were parsed and judged again; 0 got another status\n"
    assert len(from_table(Step, run.table(Step))) == 6


def test_the_verb_says_how_many_verdicts_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reparse(recorded("reef", tmp_path))
    monkeypatch.setattr("bathyscope.analysis.trust.CLIENT_HOST_LIMIT", 0.0)
    done = bathy(tmp_path, "runs", "reparse", "last")
    assert done.stderr == "6 steps were parsed and judged again; 6 got another status\n"


def test_runs_that_cannot_be_parsed_again(tmp_path: Path) -> None:
    done = bathy(tmp_path, "runs", "reparse", "last")
    assert (done.returncode, done.stderr.splitlines()[0]) == (2, f"bathy: there is no run in {tmp_path}")
    workspace = Workspace(tmp_path)
    with workspace.create_run(kind="size", started_ns=1) as size:
        size.update(status="done")
    done = bathy(tmp_path, "runs", "reparse", size.id)
    assert done.returncode == 2
    assert "a run of the kind size keeps no raw answers" in done.stderr
    done = bathy(tmp_path, "runs", "reparse", "nonsense")
    assert (done.returncode, done.stderr.splitlines()[0]) == (2, f"bathy: there is no run 'nonsense' in {tmp_path}")
    with workspace.create_run(kind="bench", started_ns=2) as under_way:
        done = bathy(tmp_path, "runs", "reparse", under_way.id)
        assert done.returncode != 0
        assert len(done.stderr.splitlines()) <= 2
        assert "in use" in done.stderr


def test_damage_ends_the_verb_with_one_error(tmp_path: Path) -> None:
    run = recorded("reef", tmp_path)
    cut(run.path / "segments" / "step-00001" / "raw" / "load.zst")
    done = bathy(tmp_path, "runs", "reparse", "last")
    assert done.returncode != 0
    assert [line.partition(":")[0] for line in done.stderr.splitlines()] == ["bathy", "hint"]
