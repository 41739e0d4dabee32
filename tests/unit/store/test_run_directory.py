"""A run directory shows each segment whole or not at all, whatever happens while it is written."""

from __future__ import annotations

import dataclasses
import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.unit.store.killing import leftovers, no_space, run_until

from bathyscope import files
from bathyscope.errors import BusyError, FormatVersionError, StoreError, UsageError
from bathyscope.records import (
    RECORDS_BY_TABLE,
    Caveat,
    EnvironmentFact,
    Op,
    RawAnswer,
    Result,
    Run,
    build_table,
    to_table,
)
from bathyscope.store import RunDirectory, SegmentWriter, Workspace, new_run_id, step_name
from bathyscope.store.tables import stored_schema

STARTED_NS = 1_790_000_000_000_000_000


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path / "space")


def make_run(workspace: Workspace, **arguments: Any) -> RunDirectory:
    defaults = {"kind": "bench", "name": "quick", "spec_text": "layers: [disk]\n", "started_ns": STARTED_NS}
    return workspace.create_run(**{**defaults, **arguments})


def caveat(index: int | None, text: str = "three of four") -> Caveat:
    return Caveat(index, "unsteady", "warning", text, "test")


ANSWER = RawAnswer("fio#0", ("fio", "-"), (("A", "b"),), 0, b"verbatim\xff\x00", b"", 1, 2, (("log", b"1, 2"),))


def commit_step(run: RunDirectory, index: int) -> None:
    with run.begin_segment(step_name(index)) as writer:
        writer.raw("load", [ANSWER])
        writer.context({"step": index})
        writer.table(Caveat, [caveat(index)])
        writer.commit()


def commit_rows(run: RunDirectory, name: str, count: int) -> None:
    with run.replace_segment(name) as writer:
        writer.table(Caveat, [caveat(None, str(i)) for i in range(count)])
        writer.commit()


def commit_rows_to(writer: SegmentWriter, rows: list[Caveat]) -> None:
    writer.table(Caveat, rows)
    writer.commit()


def test_a_run_comes_back_as_it_was_written(workspace: Workspace) -> None:
    with make_run(workspace, target={"name": "lab demo"}, versions={"bathy": "0.1.0"}, context={"a": [1]}) as run:
        commit_step(run, 1)
        commit_step(run, 0)
        with run.begin_segment("before") as writer:
            writer.table(EnvironmentFact, [EnvironmentFact("before", "cluster", "health", "HEALTH_OK")])
            writer.commit()
        run.update(status="done", ended_ns=STARTED_NS + 5)
        run_id = run.id
    again = workspace.open_run(run_id)
    info = again.info
    assert (info.kind, info.name, info.spec_text) == ("bench", "quick", "layers: [disk]\n")
    assert (info.status, info.ended_ns, info.context) == ("done", STARTED_NS + 5, {"a": [1]})
    assert list(again.step_segments()) == [0, 1]
    assert list(again.segments()) == ["before", "step-00000", "step-00001"]
    segment = again.step_segments()[1]
    assert (segment.raw_sources(), segment.raw("load"), segment.raw("none")) == (["load"], [ANSWER], [])
    assert segment.context() == {"step": 1}
    assert segment.table(Caveat).num_rows == 1
    tables = again.tables()
    assert set(tables) == set(RECORDS_BY_TABLE)
    assert tables["caveat"].column("step_index").to_pylist() == [0, 1]
    assert tables["environment"].num_rows == 1
    assert tables["result"].schema.equals(stored_schema(Result), check_metadata=True)
    assert tables["caveat"].schema.equals(stored_schema(Caveat), check_metadata=True)
    assert again.row_counts() == {"caveat": 2, "environment": 1}


def test_every_row_says_its_run(workspace: Workspace) -> None:
    run = make_run(workspace)
    commit_step(run, 0)
    table = run.table(Caveat)
    assert table.column_names[0] == "run_id"
    assert table.column("run_id").to_pylist() == [run.id]
    # A table that was read from a run can be written to another, and is then that run's.
    with make_run(Workspace(workspace.path / "other")) as other, other.begin_segment("run") as writer:
        writer.table(Caveat, table)
        writer.commit()
        assert other.table(Caveat).column("run_id").to_pylist() == [other.id]
    assert stored_schema(Run).names.count("run_id") == 1


def test_an_uncommitted_segment_is_not_there(workspace: Workspace) -> None:
    run = make_run(workspace)
    with run.begin_segment("step-00000") as writer:
        writer.raw("load", [ANSWER])
        writer.table(Caveat, [caveat(0)])
        assert run.segments() == {}
    with pytest.raises(FileNotFoundError), run.begin_segment("run"):
        Path("/nonexistent/file").read_bytes()
    assert run.segments() == {}
    assert [p.name for p in (run.path / "segments").iterdir()] == []
    with pytest.raises(StoreError):
        writer.commit()


def test_a_finished_segment_is_not_written_twice(workspace: Workspace) -> None:
    run = make_run(workspace)
    commit_step(run, 3)
    with pytest.raises(StoreError, match="exists already"):
        run.begin_segment(step_name(3))


def test_a_replaced_segment_keeps_its_raw_answers_and_context(workspace: Workspace) -> None:
    run = make_run(workspace)
    commit_step(run, 0)
    with run.replace_segment(step_name(0)) as writer:
        writer.table(Caveat, [caveat(0, "a"), caveat(0, "b")])
        assert run.table(Caveat).num_rows == 1
        writer.commit()
    for _ in range(2):
        segment = run.step_segments()[0]
        assert (segment.raw("load"), segment.context()) == ([ANSWER], {"step": 0})
        assert run.table(Caveat).column("text").to_pylist() == ["a", "b"]
        assert run.row_counts() == {"caveat": 2}
        run.sweep()
        assert len(list((run.path / "segments").iterdir())) == 1
    with run.replace_segment(step_name(0), keep_raw=False) as writer:
        writer.context({"step": "new"})
        writer.commit()
    segment = run.step_segments()[0]
    assert (segment.raw_sources(), segment.context(), run.table(Caveat).num_rows) == ([], {"step": "new"}, 0)


def test_a_segment_can_replace_several(workspace: Workspace) -> None:
    run = make_run(workspace)
    for index in range(4):
        commit_step(run, index)
    old = list(run.segments().values())
    with run.begin_segment("joined", replaces=old[:2]) as writer:
        writer.table(Caveat, [caveat(None)])
        writer.commit()
    assert list(run.segments()) == ["joined", "step-00002", "step-00003"]
    # What replaces the joined one also replaces what still lies there of those before.
    with run.begin_segment("again", replaces=[run.segments()["joined"]]) as writer:
        writer.commit()
    assert list(run.segments()) == ["again", "step-00002", "step-00003"]
    files.remove_directory(run.path / "segments" / "joined")
    assert list(run.segments()) == ["again", "step-00002", "step-00003"]
    run.sweep()
    assert sorted(p.name for p in (run.path / "segments").iterdir()) == ["again", "step-00002", "step-00003"]


def test_joined_tables_hold_everything_and_never_go_stale(workspace: Workspace) -> None:
    run = make_run(workspace)
    commit_step(run, 0)
    run.compact()
    final = pq.read_table(run.path / "tables" / "caveat.parquet")
    assert final.num_rows == 1
    assert (final.schema.field("text").metadata or {})[b"help"]
    commit_step(run, 1)
    assert not (run.path / "tables").exists()
    assert run.tables()["caveat"].num_rows == 2
    run.compact()
    assert run.tables()["caveat"].num_rows == 2
    commit_rows(run, "after", 1)
    assert run.tables()["caveat"].num_rows == 3


def test_rows_may_come_in_parts_and_as_tables(workspace: Workspace) -> None:
    run = make_run(workspace)
    with run.begin_segment("run") as writer:
        for part in range(3):
            writer.table(Caveat, to_table(Caveat, [caveat(part)]))
        writer.table(Result, [])
        writer.commit()
    assert run.table(Caveat).column("step_index").to_pylist() == [0, 1, 2]
    assert sorted(run.files()) == ["caveat"]


def test_a_table_of_another_shape_is_refused(workspace: Workspace) -> None:
    table = to_table(Caveat, [caveat(0)])
    empty = pa.nulls(1, pa.string())
    with make_run(workspace).begin_segment("run") as writer:
        for wrong, said in (
            (table.append_column("colour", table.column("text")), "colour"),
            (table.drop_columns(["code"]), "columns of caveat"),
            (table.set_column(1, table.schema.field("code").with_nullable(True), empty), "'code' with null"),
            (table.set_column(0, "step_index", [["one"]]), "columns of caveat"),
        ):
            with pytest.raises(StoreError, match=said):
                writer.table(Caveat, wrong)


@pytest.mark.parametrize("name", ["", "..", "../x", "/etc/x", ".hidden", "a/../../b", "nul\0", "a~2", "a b", "x" * 101])
def test_a_name_cannot_leave_its_place(workspace: Workspace, name: str) -> None:
    run = make_run(workspace)
    for begin in (run.begin_segment, run.replace_segment):
        with pytest.raises(StoreError):
            begin(name)
    with run.begin_segment("run") as writer, pytest.raises(StoreError):
        writer.raw(name, [])
    assert [p.name for p in (run.path / "segments").iterdir()] == []


def commit_ops(run: RunDirectory, parts: int) -> None:
    """Write segments of 100 seconds with an op each second."""
    plain = {"osd": 1, "client": "c", "op": "read", "duration_ns": 10, "complete_sample": True, "complete_since_ns": 0}
    for part in range(parts):
        with run.begin_segment(f"part-{part}") as writer:
            times_ns = [(100 * part + second) * 10**9 for second in range(100)]
            writer.table(Op, build_table(Op, {**plain, "started_ns": times_ns}))
            writer.commit()


def test_a_window_of_time(workspace: Workspace) -> None:
    run = make_run(workspace)
    commit_ops(run, 5)
    for _ in range(2):
        window = run.table(Op, start_ns=150 * 10**9, end_ns=202 * 10**9, columns=["started_ns", "run_id"])
        assert window.column("started_ns").to_pylist() == [second * 10**9 for second in range(150, 202)]
        assert window.column_names == ["started_ns", "run_id"]
        assert run.table(Op, start_ns=498 * 10**9).num_rows == 2
        assert run.table(Op, end_ns=1).num_rows == 1
        assert run.table(Op, end_ns=0).num_rows == 0
        run.compact()
    with pytest.raises(ValueError, match="no time"):
        run.table(Caveat, start_ns=1)


def test_files_outside_of_a_window_are_not_opened(workspace: Workspace) -> None:
    run = make_run(workspace)
    commit_ops(run, 3)
    (run.path / "segments" / "part-0" / "op.parquet").write_bytes(b"not read")
    assert run.table(Op, start_ns=110 * 10**9).num_rows == 190
    with pytest.raises(StoreError, match="part-0"):
        run.table(Op)


def test_a_table_that_no_record_describes(workspace: Workspace) -> None:
    """Rows of a record of somebody's own source stay readable where that source is not installed."""
    run = make_run(workspace)
    for number in range(2):
        commit_step(run, number)
        rows = pa.table({"run_id": [run.id], "answer": [number]})
        pq.write_table(rows, run.path / "segments" / step_name(number) / "somebody_s_own.parquet")
    for _ in range(2):
        assert run.tables()["somebody_s_own"].column("answer").to_pylist() == [0, 1]
        run.compact()


def test_a_full_disk_leaves_the_earlier_segments_and_nothing_half_written(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(workspace)
    commit_step(run, 0)
    before = run.info

    monkeypatch.setattr(os, "fsync", no_space)
    with run.begin_segment(step_name(1)) as writer:
        writer.table(Caveat, [caveat(1)])
        with pytest.raises(StoreError, match="No space left") as caught:
            writer.commit()
    assert caught.value.hint is not None
    assert "space" in caught.value.hint
    for attempt in (lambda: run.update(status="done"), run.compact, lambda: commit_rows(run, step_name(0), 1)):
        with pytest.raises(StoreError, match="No space left"):
            attempt()
    monkeypatch.undo()
    again = RunDirectory(run.path)
    assert again.info == before
    assert list(again.step_segments()) == [0]
    assert again.tables()["caveat"].num_rows == 1
    assert not leftovers(run.path)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
def test_a_really_full_file_system(tmp_path: Path) -> None:
    mount = tmp_path / "small"
    mount.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k,mode=0700", "none", str(mount)], check=True, timeout=20)
    try:
        with make_run(Workspace(mount)) as run:
            commit_step(run, 0)
            rows = [caveat(1, os.urandom(40).hex()) for _ in range(20_000)]
            with run.begin_segment(step_name(1)) as writer, pytest.raises(StoreError, match="No space left") as caught:
                commit_rows_to(writer, rows)
            assert caught.value.hint
            big = dataclasses.replace(ANSWER, stdout=os.urandom(1 << 20))
            with pytest.raises(StoreError, match="No space left"), run.begin_segment(step_name(1)) as writer:
                writer.raw("load", [big])
            # The failed segments gave their space back, so the run can go on.
            commit_step(run, 1)
            assert list(run.step_segments()) == [0, 1]
            assert run.tables()["caveat"].num_rows == 2
    finally:
        subprocess.run(["umount", "--lazy", str(mount)], check=True, timeout=20)


def test_a_table_whose_footer_cannot_be_written_leaves_no_file_open(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_writer: pq.ParquetWriter) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with make_run(workspace) as run, monkeypatch.context() as patch:
        patch.setattr(pq.ParquetWriter, "close", full)
        # What the error holds is not freed before the end.
        with pytest.raises(StoreError, match="No space left"), run.begin_segment(step_name(0)) as writer:
            commit_rows_to(writer, [caveat(0)])
        assert open_files(run.path / "segments") == []


def open_files(directory: Path) -> list[Path]:
    """Return the files below `directory` that this process has open."""
    links = [link for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    paths = [Path(str(link.readlink()).removesuffix(" (deleted)")) for link in links]
    return [path for path in paths if path.is_relative_to(directory)]


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
    b'{"format_version": 2}',
    b'{"format_version": 2, "id": "../../etc", "kind": "bench"}',
    b'{"format_version": 2, "id": "a"}',
    b'{"format_version": 2, "id": "a", "kind": "../x"}',
    b'{"format_version": 2, "id": "a", "kind": "bench", "status": "wonderful"}',
    b'{"format_version": 2, "id": "a", "kind": "bench", "target": []}',
    b'{"format_version": 2, "id": "a", "kind": "bench", "started_ns": "soon"}',
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


@pytest.mark.parametrize(
    ("version", "said", "hint"), [(1, r"earlier bathyscope \(format 1", "run it again"), (99, "newer", "upgrade")]
)
def test_another_format_is_told_apart_from_damage(workspace: Workspace, version: int, said: str, hint: str) -> None:
    with make_run(workspace) as run:
        path = run.path
    (path / "run.json").write_text(f'{{"format_version": {version}, "id": "a", "plan_name": "quick"}}')
    with pytest.raises(FormatVersionError, match=said) as caught:
        workspace.open_run(path.name)
    assert hint in (caught.value.hint or "")
    workspace.remove_run(path.name)
    assert workspace.runs() == []


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"replaces": "x"}', b'{"rows": {"a": "b"}}', b"[" * 200_000])
def test_a_hostile_segment_json_is_an_error_with_a_hint(workspace: Workspace, content: bytes) -> None:
    run = make_run(workspace)
    commit_step(run, 0)
    (run.path / "segments/step-00000/segment.json").write_bytes(content)
    with pytest.raises(StoreError, match=r"segment\.json") as caught:
        run.tables()
    assert caught.value.hint


def test_what_is_no_segment_is_left_alone(workspace: Workspace) -> None:
    run = make_run(workspace)
    commit_step(run, 0)
    for name in ("lost+found!", "a~0", "a~x", ".hidden"):
        (run.path / "segments" / name).mkdir()
    (run.path / "segments" / "file").write_text("")
    assert list(run.segments()) == ["step-00000"]
    run.sweep()
    assert (run.path / "segments" / "lost+found!").exists()


def test_damaged_parquet_names_the_file(workspace: Workspace) -> None:
    run = make_run(workspace)
    commit_step(run, 0)
    (run.path / "segments/step-00000/caveat.parquet").write_bytes(b"PAR1 not really")
    with pytest.raises(StoreError, match=r"caveat\.parquet"):
        run.tables()


def test_columns_of_another_age(workspace: Workspace) -> None:
    """A nullable column that an older version did not write is empty; one that is needed is an error."""
    run = make_run(workspace)
    commit_step(run, 0)
    path = run.path / "segments/step-00000/caveat.parquet"
    table = pq.read_table(path)
    pq.write_table(table.drop_columns(["step_index"]).append_column("new", table.column("text")), path)
    assert run.tables()["caveat"].column("step_index").to_pylist() == [None]
    assert run.tables()["caveat"].column_names == stored_schema(Caveat).names
    pq.write_table(table.drop_columns(["code"]), path)
    with pytest.raises(StoreError, match="code"):
        run.tables()
    pq.write_table(table.set_column(1, "step_index", [["one"]]), path)
    with pytest.raises(StoreError, match="string in the column step_index"):
        run.tables()


def test_references(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = ["20260101-000000-aaaaaa", "20260102-000000-aaaaaa", "20260102-000000-bbbbbb"]
    for i, run_id in enumerate(ids):
        monkeypatch.setattr("bathyscope.store.workspace.new_run_id", lambda _, made=run_id: made)
        make_run(workspace, started_ns=STARTED_NS - i).close()
    assert workspace.open_run("20260101").id == ids[0]
    assert workspace.open_run(ids[1]).id == ids[1]
    assert workspace.open_run("last").id == ids[0]  # by start, not by name
    assert workspace.open_run(workspace.runs_directory / ids[2]).id == ids[2]
    assert [e.id for e in workspace.runs()] == ids[::-1]
    with pytest.raises(UsageError, match="2 runs begin with"):
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
        again.must_be_writable()
    workspace.remove_run(run.id)
    assert workspace.runs() == []
    assert [p.name for p in workspace.runs_directory.iterdir()] == []


def test_reading_needs_no_lock_and_cannot_write(workspace: Workspace) -> None:
    with make_run(workspace) as run:
        reader = workspace.open_run(run.id)
        for attempt in (
            lambda: reader.begin_segment("run"),
            lambda: reader.replace_segment("run"),
            reader.compact,
            reader.sweep,
            lambda: reader.update(status="done"),
        ):
            with pytest.raises(StoreError, match="reading only"):
                attempt()


def test_update_refuses_what_is_not_a_field(workspace: Workspace) -> None:
    with make_run(workspace) as run:
        for change in ({"id": "x"}, {"format_version": 1}, {"colour": "red"}):
            with pytest.raises(StoreError):
                run.update(**change)


WRITER = """
import sys
from bathyscope.records import Caveat, RawAnswer
from bathyscope.store import Workspace, step_name
run = Workspace(sys.argv[1]).create_run(kind="bench", started_ns=1)
print(run.id, flush=True)
index = 0
while True:
    with run.begin_segment(step_name(index)) as writer:
        writer.raw("load", [RawAnswer("a", (), (), 0, b"x" * 100_000, b"", 1, 2)])
        writer.table(Caveat, [Caveat(index, "a", "note", "t", "s") for _ in range(50)])
        writer.commit()
    with run.replace_segment(step_name(index // 2)) as writer:
        writer.table(Caveat, [Caveat(index, "a", "note", "t", "s") for _ in range(50)])
        writer.commit()
    run.compact() if index % 3 == 2 else run.update(name=str(index))
    index += 1
"""


@pytest.mark.parametrize("delay_s", [0.05, 0.1, 0.15, 0.19, 0.23, 0.31])
def test_kill_at_any_moment(workspace: Workspace, delay_s: float) -> None:
    """After kill -9 the lock is free, every visible segment is whole, and the run goes on where it stood."""
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
    reader = workspace.open_run(run_id)
    assert reader.status == "interrupted"
    assert reader.table(Caveat).num_rows == 50 * len(reader.step_segments())
    with workspace.open_run(run_id, exclusive=True) as run:
        steps = run.step_segments()
        assert list(steps) == list(range(len(steps)))
        assert run.tables()["caveat"].num_rows == 50 * len(steps)
        assert all(len(step.raw("load")[0].stdout) == 100_000 for step in steps.values())
        assert not leftovers(run.path)
        assert len(list((run.path / "segments").iterdir())) == len(steps)
        commit_step(run, len(steps))
        run.compact()
        assert run.tables()["caveat"].num_rows == 50 * len(steps) + 1


def test_a_replacement_killed_before_each_rename(workspace: Workspace) -> None:
    with make_run(workspace) as run:
        commit_step(run, 0)
        run.compact()
        seen = set()
        for call in range(10):
            done = run_until(lambda: commit_rows(run, step_name(0), 3), call)
            reader = workspace.open_run(run.id)
            seen.add(reader.table(Caveat).num_rows)
            assert reader.step_segments()[0].raw("load") == [ANSWER]
            run.sweep()
            assert not leftovers(run.path)
            if done:
                break
        assert seen == {1, 3}
        assert done


def test_write_file_keeps_the_old_content_when_it_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run.json"
    files.write_file(path, b"old")
    monkeypatch.setattr(Path, "replace", lambda self, target: (_ for _ in ()).throw(OSError(errno.EIO, "I/O error")))
    with pytest.raises(OSError, match="I/O error"):
        files.write_file(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
