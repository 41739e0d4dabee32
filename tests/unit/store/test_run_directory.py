"""A run directory shows each step whole or not at all, whatever happens while it is written."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from bathyscope.errors import BusyError, FormatVersionError, StoreError, UsageError
from bathyscope.records import ALL_RECORDS, Caveat, EnvironmentFact, Result, Step, schema_of
from bathyscope.store import RunDirectory, Workspace, atomic, new_run_id
from bathyscope.store.info import FORMAT_VERSION

STARTED_NS = 1_790_000_000_000_000_000


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path / "space")


def make_run(workspace: Workspace, **arguments: Any) -> RunDirectory:
    defaults = {"plan_name": "quick", "plan_text": "layers: [disk]\n", "started_ns": STARTED_NS}
    return workspace.create_run(**{**defaults, **arguments})


def caveat(run_id: str, index: int | None, text: str = "three of four") -> Caveat:
    return Caveat(run_id, index, "unsteady", "doubt", text, "test")


def commit_step(run: RunDirectory, index: int) -> None:
    with run.begin_step(index) as writer:
        writer.raw("fio#0.stdout").write_bytes(b"verbatim\xff\x00")
        writer.commit({Caveat: [caveat(run.id, index)]})


def test_a_run_comes_back_as_it_was_written(workspace: Workspace) -> None:
    with make_run(workspace, target={"name": "lab demo"}, versions={"bathy": "0.1.0"}, step_count=2) as run:
        commit_step(run, 0)
        commit_step(run, 1)
        run.write_run_tables({EnvironmentFact: [EnvironmentFact(run.id, "before", "cluster", "health", "HEALTH_OK")]})
        run.update(status="done", ended_ns=STARTED_NS + 5)
        run_id = run.id
    again = workspace.open_run(run_id)
    assert (again.info.plan_text, again.info.status, again.info.ended_ns) == (
        "layers: [disk]\n",
        "done",
        STARTED_NS + 5,
    )
    assert list(again.finished_steps()) == [0, 1]
    assert (again.finished_steps()[1].raw_directory / "fio#0.stdout").read_bytes() == b"verbatim\xff\x00"
    tables = again.tables()
    assert set(tables) == {record.TABLE for record in ALL_RECORDS}
    assert tables["caveat"].column("step_index").to_pylist() == [0, 1]
    assert tables["environment"].num_rows == 1
    assert tables["result"].schema.equals(schema_of(Result))


def test_an_uncommitted_step_is_not_there(workspace: Workspace) -> None:
    run = make_run(workspace)
    with run.begin_step(0) as writer:
        writer.raw("a").write_text("x")
        assert run.finished_steps() == {}
    assert run.finished_steps() == {}
    assert [p.name for p in (run.path / "steps").iterdir()] == []
    with pytest.raises(StoreError):
        writer.commit({})


def test_a_finished_step_is_not_written_twice(workspace: Workspace) -> None:
    run = make_run(workspace)
    commit_step(run, 3)
    with pytest.raises(StoreError, match="exists already"):
        run.begin_step(3)


def test_final_tables_hold_everything_and_never_go_stale(workspace: Workspace) -> None:
    run = make_run(workspace)
    commit_step(run, 0)
    run.finalize()
    final = pq.read_table(run.path / "tables" / "caveat.parquet")
    assert final.num_rows == 1
    assert (final.schema.field("text").metadata or {})[b"help"]
    commit_step(run, 1)
    assert not (run.path / "tables").exists()
    assert run.tables()["caveat"].num_rows == 2
    run.finalize()
    assert run.tables()["caveat"].num_rows == 2
    run.write_run_tables({Caveat: [caveat(run.id, None)]}, part="after")
    assert run.tables()["caveat"].num_rows == 3


def test_a_part_replaces_its_table_and_parts_add_up(workspace: Workspace) -> None:
    run = make_run(workspace)
    for part, count in (("before", 3), ("before", 1), ("after", 2)):
        run.write_run_tables({Caveat: [caveat(run.id, None, str(i)) for i in range(count)]}, part=part)
    assert run.tables()["caveat"].num_rows == 3


@pytest.mark.parametrize("name", ["", "../x", "/etc/x", ".hidden", "a/../../b", "nul\0"])
def test_a_raw_name_cannot_leave_the_step(workspace: Workspace, name: str) -> None:
    with make_run(workspace).begin_step(0) as writer, pytest.raises(StoreError):
        writer.raw(name)


def test_a_full_disk_leaves_the_earlier_steps_and_nothing_half_written(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(workspace)
    commit_step(run, 0)
    before = run.info

    def no_space(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", no_space)
    with run.begin_step(1) as writer, pytest.raises(StoreError, match="No space left") as caught:
        writer.commit({Caveat: [caveat(run.id, 1)]})
    assert caught.value.hint is not None
    assert "space" in caught.value.hint
    for attempt in (lambda: run.update(status="done"), run.finalize):
        with pytest.raises(StoreError, match="No space left"):
            attempt()
    with pytest.raises(StoreError, match="No space left"):
        run.write_run_tables({Caveat: [caveat(run.id, None)]})
    monkeypatch.undo()
    again = RunDirectory(run.path)
    assert again.info == before
    assert list(again.finished_steps()) == [0]
    assert again.tables()["caveat"].num_rows == 1
    assert not [p for p in run.path.rglob("*") if p.name.startswith(".partial")]


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
def test_a_really_full_file_system(tmp_path: Path) -> None:
    mount = tmp_path / "small"
    mount.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "none", str(mount)], check=True, timeout=20)
    try:
        with make_run(Workspace(mount)) as run:
            commit_step(run, 0)
            rows = [caveat(run.id, 1, os.urandom(40).hex()) for _ in range(20_000)]
            with run.begin_step(1) as writer, pytest.raises(StoreError, match="No space left") as caught:
                writer.commit({Caveat: rows})
            assert caught.value.hint
            with pytest.raises(StoreError, match="No space left"), run.begin_step(1) as writer:
                writer.raw("big").write_bytes(bytes(1 << 20))
            # The failed steps gave their space back, so the run can go on.
            commit_step(run, 1)
            assert list(run.finished_steps()) == [0, 1]
            assert run.tables()["caveat"].num_rows == 2
    finally:
        subprocess.run(["umount", str(mount)], check=True, timeout=20)


def test_other_errors_inside_a_step_pass_through(workspace: Workspace) -> None:
    run = make_run(workspace)
    with pytest.raises(FileNotFoundError), run.begin_step(0):
        Path("/nonexistent/file").read_bytes()
    assert run.finished_steps() == {}


def test_a_workspace_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot make"):
        make_run(Workspace(tmp_path / "file" / "space"))


HOSTILE = [
    b"",
    b"{",
    b"[]",
    b"null",
    b"\xff\xfe",
    b"{}",
    b'{"format_version": true}',
    b'{"format_version": "1"}',
    b'{"format_version": 1}',
    b'{"format_version": 1, "id": "../../etc"}',
    b'{"format_version": 1, "id": "a", "status": "wonderful"}',
    b'{"format_version": 1, "id": "a", "target": []}',
    b'{"format_version": 1, "id": "a", "started_ns": "soon"}',
    b"[" * 200_000,
]


@pytest.mark.parametrize("content", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_run_json_is_an_error_with_a_hint(workspace: Workspace, content: bytes) -> None:
    with make_run(workspace) as run:
        path = run.path
    (path / "run.json").write_bytes(content)
    with pytest.raises(StoreError) as caught:
        RunDirectory(path)
    assert caught.value.hint
    # The list still shows the others, and this one with what is wrong.
    with make_run(workspace) as good:
        assert sorted((e.status, e.problem is None) for e in workspace.runs()) == [
            ("running", True),
            ("unreadable", False),
        ]
        assert good.path.exists()


def test_a_newer_format_is_told_apart_from_damage(workspace: Workspace) -> None:
    with make_run(workspace) as run:
        path = run.path
    text = (path / "run.json").read_text().replace(f'"format_version": {FORMAT_VERSION}', '"format_version": 99')
    (path / "run.json").write_text(text)
    with pytest.raises(FormatVersionError, match="newer") as caught:
        workspace.open_run(path.name)
    assert "upgrade" in (caught.value.hint or "")


def test_damaged_parquet_names_the_file(workspace: Workspace) -> None:
    run = make_run(workspace)
    commit_step(run, 0)
    (run.path / "steps/0/tables/caveat.parquet").write_bytes(b"PAR1 not really")
    with pytest.raises(StoreError, match=r"caveat\.parquet"):
        run.tables()


def test_columns_of_another_age(workspace: Workspace) -> None:
    """A nullable column that an older version did not write is empty; one that is needed is an error."""
    run = make_run(workspace)
    commit_step(run, 0)
    path = run.path / "steps/0/tables/caveat.parquet"
    table = pq.read_table(path)
    pq.write_table(table.drop_columns(["step_index"]).append_column("new", table.column("text")), path)
    assert run.tables()["caveat"].column("step_index").to_pylist() == [None]
    assert run.tables()["caveat"].column_names == schema_of(Caveat).names
    pq.write_table(table.drop_columns(["code"]), path)
    with pytest.raises(StoreError, match="code"):
        run.tables()


def test_references(workspace: Workspace) -> None:
    ids = ["20260101-000000-aaaaaa", "20260102-000000-aaaaaa", "20260102-000000-bbbbbb"]
    for i, run_id in enumerate(ids):
        make_run(workspace, run_id=run_id, started_ns=STARTED_NS - i).close()
    assert workspace.open_run("20260101").id == ids[0]
    assert workspace.open_run(ids[1]).id == ids[1]
    assert workspace.open_run("last").id == ids[0]  # by start, not by name
    assert workspace.open_run(workspace.runs_directory / ids[2]).id == ids[2]
    assert [e.id for e in workspace.runs()] == ids[::-1]
    with pytest.raises(UsageError, match="fits 2 runs"):
        workspace.open_run("20260102")
    for ref in ("", "2027", "../runs", "nothing", "/"):
        with pytest.raises(UsageError, match="no run"):
            workspace.open_run(ref)
    with pytest.raises(UsageError, match="no run"):
        Workspace(workspace.path / "other").open_run("last")


def test_ids_sort_by_time_and_do_not_repeat() -> None:
    first = {new_run_id(STARTED_NS) for _ in range(50)}
    assert len(first) == 50
    assert max(first) < new_run_id(STARTED_NS + 2_000_000_000)


def test_two_writers_in_one_workspace(workspace: Workspace) -> None:
    with make_run(workspace) as run:
        with pytest.raises(BusyError, match=str(os.getpid())) as caught:
            make_run(workspace)
        assert caught.value.hint
        with pytest.raises(BusyError):
            workspace.open_run(run.id, exclusive=True)
        with pytest.raises(BusyError):
            workspace.remove_run(run.id)
        assert workspace.open_run(run.id).status == "running"
        assert len(workspace.runs()) == 1
    assert workspace.open_run(run.id).status == "interrupted"
    with workspace.open_run(run.id, exclusive=True) as again:
        assert again.writable
    workspace.remove_run(run.id)
    assert workspace.runs() == []
    assert [p.name for p in workspace.runs_directory.iterdir()] == []


def test_reading_needs_no_lock_and_cannot_write(workspace: Workspace) -> None:
    with make_run(workspace) as run:
        reader = workspace.open_run(run.id)
        for attempt in (lambda: reader.begin_step(0), reader.finalize, lambda: reader.update(status="done")):
            with pytest.raises(StoreError, match="reading only"):
                attempt()


def test_update_refuses_what_is_not_a_field(workspace: Workspace) -> None:
    with make_run(workspace) as run:
        for change in ({"id": "x"}, {"format_version": 2}, {"colour": "red"}):
            with pytest.raises(StoreError):
                run.update(**change)


WRITER = """
import sys, time
from bathyscope.records import Caveat
from bathyscope.store import Workspace
run = Workspace(sys.argv[1]).create_run(plan_name="kill", plan_text="", started_ns=1)
print(run.id, flush=True)
index = 0
while True:
    with run.begin_step(index) as writer:
        writer.raw("raw").write_bytes(b"x" * 100_000)
        writer.commit({Caveat: [Caveat(run.id, index, "a", "note", "t", "s") for _ in range(50)]})
    run.finalize() if index % 3 == 2 else run.update(note=str(index))
    index += 1
"""


@pytest.mark.parametrize("delay_s", [0.003, 0.011, 0.029, 0.05, 0.083])
def test_kill_at_any_moment(workspace: Workspace, delay_s: float) -> None:
    """After kill -9 the lock is free, every visible step is whole, and the run goes on where it stood."""
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(workspace.path)], stdout=subprocess.PIPE, text=True)
    try:
        assert writer.stdout is not None
        run_id = writer.stdout.readline().strip()
        with pytest.raises(BusyError, match=str(writer.pid)):
            make_run(workspace)
        time.sleep(delay_s)
    finally:
        writer.send_signal(signal.SIGKILL)
        writer.wait(timeout=10)
        writer.stdout.close()
    assert workspace.open_run(run_id).status == "interrupted"
    with workspace.open_run(run_id, exclusive=True) as run:
        steps = run.finished_steps()
        assert list(steps) == list(range(len(steps)))
        assert run.tables()["caveat"].num_rows == 50 * len(steps)
        assert all(len(step.raw_directory.joinpath("raw").read_bytes()) == 100_000 for step in steps.values())
        assert not [p for p in run.path.rglob("*") if p.name.startswith((".partial", ".removed"))]
        commit_step(run, len(steps))
        run.finalize()
        assert run.tables()["caveat"].num_rows == 50 * len(steps) + 1


def test_a_step_reads_its_own_row(workspace: Workspace) -> None:
    run = make_run(workspace)
    commit_step(run, 0)
    with pytest.raises(StoreError, match="0 step rows"):
        run.finished_steps()[0].step()
    row = Step(run.id, 1, "disk/hdd/randread-4K-qd1", 0, "disk", "fio", "hdd", "randread", 4096, 1, 1, None, None,
               "any", 0.0, 1.0, 0, 1, 0, 0, "done", None)  # fmt: skip
    with run.begin_step(1) as writer:
        finished = writer.commit({Step: [row]})
    assert finished.step() == row


def test_write_file_keeps_the_old_content_when_it_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run.json"
    atomic.write_file(path, b"old")
    monkeypatch.setattr(Path, "replace", lambda self, target: (_ for _ in ()).throw(OSError(errno.EIO, "I/O error")))
    with pytest.raises(OSError, match="I/O error"):
        atomic.write_file(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
