"""Hostile directories, journals, runs, locks, settings, queries and load servers: nothing of ours follows them.

The points are those of SECURITY.md. Another user's file is made with chown, which needs root; a file that others can
write is refused in the same place and needs no root.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from bathyscope import cli, files, lab
from bathyscope.bench import session
from bathyscope.bench.conductor import Watcher
from bathyscope.bench.resources import made_by
from bathyscope.errors import BathyscopeError, LabError, StoreError, UntrustedError, UsageError
from bathyscope.host import ProcessRequest
from bathyscope.host.fake import FakeCephSession, FakeHost
from bathyscope.host.local import LocalHost
from bathyscope.host.process import identity_of
from bathyscope.lab import journal as lab_journal
from bathyscope.lab import teardown
from bathyscope.lab.layout import Layout, labs_directory
from bathyscope.layers.needs import disk_options
from bathyscope.load.base import Place
from bathyscope.load.fio_command import command, log_paths
from bathyscope.recording.journal import Journal, journal_directory, journals
from bathyscope.records import Caveat
from bathyscope.spec import DiskTarget, FioClient, Target
from bathyscope.spec.plan_file import preset_text
from bathyscope.store import RunDirectory, Workspace, duck, step_name

ESCAPE = "\x1b]0;owned\x07\x9b31m"
RUN = "20260101-000000-abcdef"
TARGET = Target(name="c", conf="/etc/ceph/ceph.conf")

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")


@pytest.fixture(autouse=True)
def _state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("BATHY_WORKSPACE", str(tmp_path / "ws"))


def bathy(*words: str) -> Any:
    return CliRunner().invoke(cli.app, list(words))


def given_away(path: Path) -> None:
    os.chown(path, 12345, 12345, follow_symlinks=False)


def writable_by_others(path: Path) -> None:
    path.chmod(path.stat().st_mode | 0o020)


SPOILINGS = [writable_by_others, pytest.param(given_away, marks=as_root)]


def make_run(**facts: Any) -> RunDirectory:
    with Workspace().create_run(kind="bench", started_ns=1, **facts) as run:
        for index in range(2):
            with run.begin_segment(step_name(index)) as writer:
                writer.table(Caveat, [Caveat(index, "a", "note", "t", "s")])
                writer.commit()
    return run


def change_run(run: RunDirectory, **changes: Any) -> None:
    path = run.path / "run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


# --- one place for what is ours


def test_what_we_make_is_for_its_owner_only(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        run = make_run()
        files.write_file(run.path / "report.html", b"x")
        Journal.create(journal_directory(), RUN, "/x", TARGET, FakeHost()).will_change("pool", name="p")
        for place in (tmp_path / "ws", tmp_path / "state"):
            for path in (place, *place.rglob("*")):
                assert path.stat().st_mode & 0o077 == 0, path
    finally:
        os.umask(old)


@pytest.mark.parametrize("spoil", SPOILINGS)
def test_a_file_or_directory_of_others_is_refused_with_a_hint(spoil: Callable[[Path], None], tmp_path: Path) -> None:
    file, directory = tmp_path / "file", tmp_path / "directory"
    file.write_bytes(b"content")
    directory.mkdir()
    assert files.read_own(file) == b"content"
    assert files.own_directory(directory) == directory
    for path, look in ((file, files.read_own), (directory, files.own_directory)):
        spoil(path)
        with pytest.raises(UntrustedError) as caught:
            look(path)
        assert caught.value.hint


@as_root
def test_a_link_of_ours_leads_to_what_is_ours_and_a_link_of_others_nowhere(tmp_path: Path) -> None:
    link, directory = tmp_path / "link", tmp_path / "directory"
    directory.mkdir()
    link.symlink_to(directory)
    files.own_directory(link)
    given_away(link)
    with pytest.raises(UntrustedError, match="belongs to uid 12345"):
        files.own_directory(link)


@pytest.mark.parametrize("kind", ["symlink", "hard link", "pipe", "directory", "socket"])
def test_a_lock_follows_nothing_and_harms_nothing(kind: str, tmp_path: Path) -> None:
    victim, lock = tmp_path / "victim", tmp_path / "lock"
    victim.write_bytes(b"precious")
    match kind:
        case "symlink":
            lock.symlink_to(victim)
        case "hard link":
            os.link(victim, lock)
        case "pipe":
            os.mkfifo(lock)
        case "directory":
            lock.mkdir()
        case _:
            here = socket.socket(socket.AF_UNIX)
            here.bind(os.path.relpath(lock))
    with pytest.raises(UntrustedError), files.FileLock(lock, "it"):
        pass
    assert victim.read_bytes() == b"precious"


def test_state_files_follow_no_link(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    journal = Journal.create(journal_directory(), RUN, "/x", TARGET, FakeHost())
    victim.write_bytes(journal.path.read_bytes())
    journal.path.unlink()
    journal.path.symlink_to(victim)
    before = victim.read_bytes()
    with pytest.raises(UntrustedError):
        journal.will_change("pool", name="p")
    with pytest.raises(UntrustedError):
        Journal.load(journal.path)
    book = lab_journal.Journal(journal.path)
    with pytest.raises(UntrustedError):
        book.mount(Path("/m"))
    assert victim.read_bytes() == before


@pytest.mark.parametrize("spoil", SPOILINGS)
def test_workspaces_runs_journals_and_labs_of_others_are_refused(spoil: Callable[[Path], None], tmp_path: Path) -> None:
    run = make_run()
    assert bathy("runs", "show", run.id).exit_code == 0
    Journal.create(journal_directory(), RUN, "/x", TARGET, FakeHost())
    labs_directory().mkdir()
    for place, words in (
        (run.path / "run.json", ("runs", "show", run.id)),
        (run.path, ("report", run.id)),
        (run.path, ("bench", "resume", run.id)),
        (run.path, ("runs", "rm", "--yes", str(run.path))),
        (tmp_path / "ws/runs", ("runs", "list")),
        (tmp_path / "ws", ("runs", "list")),
        (journal_directory(), ("bench", "cleanup")),
        (labs_directory(), ("lab", "list")),
    ):
        mode = place.stat().st_mode & 0o777
        spoil(place)
        assert isinstance(bathy(*words).exception, UntrustedError), (place, words)
        os.chown(place, os.geteuid(), os.getegid())
        place.chmod(mode)
    assert run.path.exists()


# --- labs


def test_a_directory_that_is_no_lab_keeps_everything(tmp_path: Path) -> None:
    labs_directory().mkdir(parents=True)
    victim = tmp_path / "home"
    child = subprocess.Popen(["sleep", "60"])
    try:
        for name in ("run", "log", "data", "tmp", "bin", "devices"):
            (victim / name).mkdir(parents=True)
            (victim / name / "thesis").write_text("mine")
        book = lab_journal.Journal(victim / "journal.jsonl")
        own = identity_of(LocalHost(), child.pid)
        assert own is not None
        book.process("osd.0", own)
        (labs_directory() / "l").symlink_to(victim)
        before = sorted(victim.rglob("*"))
        with pytest.raises(LabError, match="no mark of the lab 'l'") as caught:
            lab.down("l")
        assert caught.value.hint
        # The mark of another lab is none.
        Layout(victim).mark("other").touch()
        with pytest.raises(LabError, match="no mark of the lab 'l'"):
            lab.down("l")
        Layout(victim).mark("other").unlink()
        assert sorted(victim.rglob("*")) == before
        assert child.poll() is None
    finally:
        child.kill()
        child.wait()


def test_a_kill_before_the_mark_leaves_a_lab_that_can_be_taken_down(tmp_path: Path) -> None:
    labs_directory().mkdir(parents=True)
    (labs_directory() / "a").mkdir()
    (tmp_path / "empty").mkdir()
    (labs_directory() / "b").symlink_to(tmp_path / "empty")
    assert lab.down_all() == ["a", "b"]
    assert lab.list_labs() == []
    # Which empty directory it is, nobody knows.
    assert (tmp_path / "empty").exists()


def test_of_a_journal_only_what_the_lab_can_have_made_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layout = Layout(labs_directory() / "l")
    layout.directory.mkdir(parents=True)
    layout.mark("l").touch()
    book = lab_journal.Journal(layout.journal)
    book.loop(Path("/var/lib/important.img"))
    book.cgroup(Path("/sys/fs/cgroup/blkio/system.slice"))
    book.cgroup(Path("/sys/fs/cgroup/blkio/bathyscope-l-x-01234567"))
    book.link("eth0")
    book.link("by-01234567-1/../eth0")
    book.directory(tmp_path)
    with layout.journal.open("a") as file:
        file.write('{"make":"helper","pid":-1,"start_ticks":1,"boot_id":"b"}\n')
        file.write('{"make":"process","name":"osd.0","pid":1e300,"start_ticks":1,"boot_id":"b"}\n')
        file.write('{"make":"process","name":"osd.0","pid":99999999999,"start_ticks":1,"boot_id":"b"}\n')
        file.write("[" * 100_000 + "\n")
    touched: list[object] = []
    throttle, loop, network = teardown.throttle, teardown.loop, teardown.network
    for module, name in ((throttle, "clear"), (throttle, "remove"), (loop, "detach"), (network, "remove")):
        monkeypatch.setattr(module, name, touched.append)
    lab.down("l")
    assert touched == []
    assert lab.list_labs() == []


# --- journals


def write_journal(name: str, run_id: str, **owner: object) -> Path:
    journal_directory().mkdir(parents=True, exist_ok=True)
    path = journal_directory() / f"{name}.jsonl"
    lines = [
        {"event": "run", "run_id": run_id, "run_path": "/x", "target": TARGET.model_dump(mode="json"), "fsid": None}
    ]
    if owner:
        lines.append({"event": "owner", "start_ticks": 1, "boot_id": "b", **owner})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_a_journal_with_a_path_for_an_id_removes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    victim = tmp_path / "todelete"
    victim.mkdir()
    (tmp_path / "tmp/bathy-x").mkdir(parents=True)
    for name, run_id in ((RUN, "x/../../todelete"), (RUN, "20260101-000000-aaaaaa"), ("x", "x"), ("-", "-")):
        path = write_journal(name, run_id)
        with pytest.raises(StoreError, match="its name does not say"):
            Journal.load(path)
        done = bathy("bench", "cleanup")
        assert isinstance(done.exception, BathyscopeError)
        assert victim.is_dir()
        # What cannot be read can be forgotten.
        assert bathy("bench", "cleanup", "--forget", name).exit_code == 0
        assert not path.exists()


@pytest.mark.parametrize("pid", [-1, 0, -(2**70), 2**22 + 1, 2**62])
def test_a_journal_whose_owner_can_be_no_process_is_cleaned(pid: int) -> None:
    path = write_journal(RUN, RUN, pid=pid)
    (journal,), damaged = journals(journal_directory()) if abs(pid) < 2**63 else ((None,), [path])
    if journal is not None:
        assert not journal.owner_alive(LocalHost())
        assert damaged == []
    bathy("bench", "cleanup", *(() if journal else ("--forget", RUN)))
    assert not path.exists()


@pytest.mark.parametrize("value", ["x", None, [], 1.5e300, float("inf")])
def test_a_journal_with_a_pid_that_is_no_number_is_damaged_and_can_be_forgotten(value: object) -> None:
    path = write_journal(RUN, RUN, pid=value)
    assert journals(journal_directory()) == ([], [path])
    assert isinstance(bathy("bench", "cleanup").exception, BathyscopeError)
    assert bathy("bench", "cleanup", "--forget", RUN).exit_code == 0
    assert not path.exists()


def test_only_names_that_the_run_can_have_made_are_removed() -> None:
    assert made_by(RUN, "bathy-abcdef-rbd-hdd")
    assert made_by(RUN, "bathy-abcdef-rbd-hdd-rule")
    for name in ("rbd", "bathy-", "bathy-abcde-rbd", "bathy-000000-rbd-hdd", "bathy-abcdef", "bathy-abcdef-/../x", ""):
        assert not made_by(RUN, name)


def test_a_journal_cannot_change_settings_that_no_run_changes() -> None:
    changes: list[tuple[str, dict[str, Any]]] = [
        ("osd_option", {"daemon": "osd.0", "option": "bluestore_fsck_on_mount", "value": "x"}),
        ("osd_option", {"daemon": "mon.a", "option": "osd_op_history_size", "value": "x"}),
        ("mon_option", {"daemon": "mon.a", "option": "auth_cluster_required", "value": "none"}),
        ("osd_flag", {"flag": "full"}),
        ("osd_flag", {}),
        ("pool", {"name": "customers"}),
        ("pool", {}),
    ]
    ceph = FakeCephSession()
    journal = Journal.create(journal_directory(), RUN, "/x", TARGET, FakeHost())
    for kind, details in changes:
        journal.will_change(kind, **details)
    from bathyscope.bench.cleanup import undo_all  # noqa: PLC0415 - beside the one test that uses it

    assert len(undo_all(FakeHost(), ceph, journal)) == len(changes)
    # It was looked at, and nothing was changed.
    assert {str(dict(request.command)["prefix"]) for request in ceph.requests} <= {"osd dump", "osd lspools"}


# --- runs


def test_a_run_whose_name_is_not_its_id_is_refused() -> None:
    run = make_run()
    change_run(run, id="20200101-000000-000000")
    assert isinstance(bathy("runs", "show", str(run.path)).exception, StoreError)
    for wrong in ("../../x", "20200101-000000-00000g", "", ESCAPE):
        change_run(run, id=wrong)
        assert isinstance(bathy("runs", "show", str(run.path)).exception, StoreError)
        assert bathy("runs", "list").exit_code == 0


def test_only_the_directory_of_a_run_is_deleted(tmp_path: Path) -> None:
    other = tmp_path / "project"
    other.mkdir()
    (other / "run.json").write_text("{}")
    assert isinstance(bathy("runs", "rm", "--yes", str(other)).exception, UsageError)
    assert other.exists()


def test_hostile_numbers_in_run_json_are_one_error() -> None:
    run = make_run()
    for field in ("started_ns", "ended_ns", "step_count"):
        change_run(
            run, **{"started_ns": 1, "ended_ns": 2, "step_count": 3, field: -1 if field == "step_count" else 10**30}
        )
        listed = bathy("runs", "list")
        assert (listed.exit_code, "cannot be read" in listed.stderr) == (0, True)


def test_going_on_with_a_run_that_overwrites_a_disk_asks_again(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.write_bytes(b"precious" * 512)
    target = {
        "name": "disk",
        "kind": "disk",
        "disks": {"": {"path": str(disk), "size_bytes": 4096, "destructive": True}},
    }
    text = preset_text("quick")
    run = make_run(target=target, spec_text=text)
    done = bathy("bench", "resume", run.id)
    assert isinstance(done.exception, UsageError)
    assert "consent" in done.exception.message
    assert f"bathy bench resume {run.id} --destroy-disk-content" in str(done.exception.hint)
    assert disk.read_bytes() == b"precious" * 512
    # With the consent it goes on, and finds that the plan has layers that need a cluster.
    with pytest.raises(UsageError, match="need a cluster"):
        session.resume(LocalHost(), Workspace(), run.id, Watcher(), destroy_disk_content=True)


def test_a_disk_named_beside_a_lab_asks_again_and_the_labs_own_do_not() -> None:
    run: Any = SimpleNamespace(id=RUN)
    own = DiskTarget(path="/dev/loop9", destructive=True)
    session._must_destroy_nothing(run, Target(name="l", kind="lab", disks={"hdd": own}))
    named = own.model_copy(update={"named": True})
    for target in (
        Target(name="l", kind="lab", disks={"hdd": own, "nvme": named}),
        Target(name="c", disks={"hdd": own}),
    ):
        with pytest.raises(UsageError, match="consent"):
            session._must_destroy_nothing(run, target)


# --- what lies in a run from elsewhere


@pytest.mark.parametrize("inner", ["segments", "segments/foreign"])
def test_no_link_in_a_run_leads_to_what_is_deleted(inner: str, tmp_path: Path) -> None:
    run, foreign = make_run(), tmp_path / "foreign"
    (foreign / ".removed-old").mkdir(parents=True, mode=0o700)
    (foreign / "caveat~1").mkdir(mode=0o700)
    (foreign / "caveat~2").mkdir(mode=0o700)
    foreign.chmod(0o700)
    before = sorted(foreign.rglob("*"))
    if inner == "segments":
        shutil.rmtree(run.path / inner)
    (run.path / inner).symlink_to(foreign)
    for words in (["runs", "reparse", run.id], ["runs", "raw", run.id], ["bench", "resume", run.id]):
        done = CliRunner().invoke(cli.app, words)
        assert isinstance(done.exception, UntrustedError), (words, done.output)
    assert sorted(foreign.rglob("*")) == before


@pytest.mark.parametrize("inner", ["segments/step-00000", "segments/step-00000/raw", "tables"])
def test_a_directory_that_others_can_write_is_not_read(inner: str) -> None:
    run = make_run()
    (run.path / inner).mkdir(exist_ok=True)
    (run.path / inner).chmod(0o777)
    with pytest.raises(UntrustedError, match="other users can write"):
        RunDirectory(run.path).files() if "raw" not in inner else run.segments()["step-00000"].raw_sources()


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero"), os.mkdir])
@pytest.mark.parametrize("inner", ["segments/step-00000/caveat.parquet", "tables/caveat.parquet"])
def test_a_table_that_is_no_file_is_not_waited_for(inner: str, make: Callable[[Path], None]) -> None:
    run = make_run()
    (run.path / inner).parent.mkdir(exist_ok=True, mode=0o700)
    (run.path / inner).unlink(missing_ok=True)
    make(run.path / inner)
    with pytest.raises(UntrustedError, match="is not a regular file"):
        duck.query([RunDirectory(run.path)], "SELECT * FROM caveat")
    with pytest.raises(UntrustedError, match="is not a regular file"):
        RunDirectory(run.path).table(Caveat)


# --- SQL and damaged tables


@pytest.mark.parametrize(
    "sql",
    [
        "EXPLAIN ANALYZE COPY (SELECT 1) TO '{place}'",
        "EXPLAIN /* ANALYZE */ ANALYZE /* x */ COPY (SELECT 1) TO '{place}'",
        "explain analyze COPY caveat TO '{place}'",
        "EXPLAIN (ANALYZE) COPY (SELECT 1) TO '{place}'",
        "EXPLAIN (ANALYZE, FORMAT json) SELECT 1; COPY (SELECT 1) TO '{place}'",
        "EXPLAIN ANALYZE SELECT 1; COPY (SELECT 1) TO '{place}'",
        "EXPLAIN ANALYZE CREATE TABLE x AS SELECT 1",
        "EXPLAIN ANALYZE INSERT INTO caveat SELECT * FROM caveat",
        "EXPLAIN",
        "EXPLAIN ANALYZE",
        "CALL enable_logging('QueryLog')",
        "SELECT * FROM enable_logging('QueryLog', storage := 'file', storage_path := '{place}')",
        "SELECT * FROM query('COPY (SELECT 1) TO ''{place}''')",
        "SELECT * FROM read_text('{secret}')",
        "EXPORT DATABASE '{place}'",
        "LOAD '{place}'",
    ],
)
def test_a_query_writes_nothing_and_reads_only_runs(sql: str, tmp_path: Path) -> None:
    run, secret = make_run(), tmp_path / "secret"
    secret.write_text("x")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    places = [tmp_path / "out", next(run.path.rglob("caveat.parquet"))]
    for place in places:
        with pytest.raises(UsageError):
            duck.query([run], sql.format(place=place, secret=secret))
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_select_can_be_explained() -> None:
    run = make_run()
    for sql in ("EXPLAIN SELECT * FROM caveat", "EXPLAIN ANALYZE -- ä\n FROM caveat", "/* ä */ EXPLAIN (SELECT 1)"):
        assert duck.query([run], sql).num_rows > 0


def test_what_does_not_fit_in_memory_goes_into_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run()
    run.path.joinpath("run.json").write_text(run.path.joinpath("run.json").read_text().replace("running", "done"))
    seen: list[str] = []
    connect = duck._connection
    monkeypatch.setattr(duck, "_connection", lambda memory, spill: seen.append(str(spill)) or connect(memory, spill))
    run = RunDirectory(run.path)
    assert duck.query([run], "SELECT 1 AS a").num_rows == 1
    assert duck.query([], "SELECT 1 AS a").num_rows == 1
    assert Path(seen[0]).parent == run.path
    assert seen[1] == "None"
    assert not Path(seen[0]).exists()


@pytest.mark.parametrize("damage", ["cut", "footer", "page", "empty", "text"])
def test_a_damaged_table_is_one_clear_error_and_the_other_runs_open(damage: str) -> None:
    good, bad = make_run(), make_run()
    file = next((bad.path / "segments").rglob("caveat.parquet"))
    content = bytearray(file.read_bytes())
    match damage:
        case "cut":
            content = content[: len(content) // 2]
        case "footer":
            content[-400:-8] = bytes(392)
        case "page":
            # The first column's pages lie after the magic number.
            content[4:120] = b"\xff" * 116
        case "empty":
            content = bytearray()
        case _:
            content = bytearray(b"no parquet")
    file.write_bytes(content)
    listed = bathy("runs", "list")
    assert listed.exit_code == 0
    done = bathy("runs", "sql", "SELECT * FROM caveat", "-o", "json")
    assert done.exit_code == 0, done.exception
    assert {row["run_id"] for row in json.loads(done.stdout)} == {good.id}
    assert f"{bad.id} is left out" in done.stderr
    alone = bathy("runs", "sql", "-r", bad.id, "SELECT * FROM caveat")
    assert isinstance(alone.exception, StoreError)
    assert str(file) in alone.exception.message
    # A query that does not name the table needs nothing of it.
    assert bathy("runs", "sql", "-r", bad.id, "SELECT * FROM step").exit_code == 0
    for words in (("report", bad.id), ("runs", "show", bad.id), ("runs", "rm", "--yes", bad.id)):
        result = bathy(*words)
        assert result.exception is None or isinstance(result.exception, BathyscopeError | SystemExit), words


def test_a_table_with_broken_bytes_gives_nothing_but_errors_of_ours() -> None:
    run = make_run()
    file = next((run.path / "segments").rglob("caveat.parquet"))
    whole, generator = file.read_bytes(), random.Random(3)
    for _ in range(60):
        content = bytearray(whole)
        for _ in range(generator.randrange(1, 4)):
            content[generator.randrange(len(content))] = generator.randrange(256)
        file.write_bytes(content)
        for ask in (lambda: duck.query([run], "SELECT * FROM caveat"), lambda: run.table(Caveat), run.compact):
            with contextlib.suppress(BathyscopeError):
                ask()


# --- terminals


def test_no_name_from_outside_steers_the_terminal(tmp_path: Path) -> None:
    run = make_run(
        name=ESCAPE, spec_text=f"a: {ESCAPE}\nb: 1", versions={"ceph": ESCAPE}, target={"name": ESCAPE},
        environment={ESCAPE: ESCAPE},
    )  # fmt: skip
    odd = make_run()
    change_run(odd, kind=ESCAPE)
    steering = set(map(chr, (*range(10), *range(11, 32), *range(127, 160))))
    for words in (
        ("runs", "list"),
        ("runs", "show", run.id),
        ("runs", "sql", f"SELECT '{ESCAPE}' AS \"{ESCAPE}\""),
        ("report", ESCAPE),
    ):
        for output in ("table", "csv", "json"):
            result = bathy(*words, *(("-o", output) if words[0] == "runs" else ()))
            if isinstance(result.exception, BathyscopeError):
                cli.print_error(result.exception)
            assert not steering & set(result.stdout + result.stderr), (words, output)
    assert "b: 1" in bathy("runs", "show", run.id).stdout


def test_progress_and_dry_run_are_clean(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    from bathyscope.commands.bench_progress import watching  # noqa: PLC0415 - loads the table's library
    from bathyscope.commands.talk import say, status_line  # noqa: PLC0415

    with watching() as watcher, status_line() as show:
        watcher.note(ESCAPE)
        show(ESCAPE)
        say(ESCAPE)
    disk = tmp_path / f"disk{ESCAPE}"
    disk.write_bytes(bytes(1 << 20))
    result = bathy(
        *("bench", "run", "--disk", str(disk), "--destroy-disk-content", "--layer", "disk", "--preset", "quick"),
        *("--conf", str(tmp_path / "none"), "--dry-run"),
    )
    assert result.exit_code == 0, result.exception
    captured = capfd.readouterr()
    for text in (captured.out, captured.err, result.stdout, result.stderr):
        assert "\x1b" not in text
        assert "\x9b" not in text
    assert "\\u001b" in result.stdout


# --- a hostile fio --server


def crc16(content: bytes) -> int:
    value = 0
    for byte in content:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (0xA001 if value & 1 else 0)
    return value


def message(version: int, opcode: int, payload: bytes) -> bytes:
    """A command of fio's protocol: version, opcode, flags, tag, length, two checksums, payload."""
    head = struct.pack("<HHIQI", version, opcode, 0, 1, len(payload))
    return head + struct.pack("<HH", crc16(head), crc16(payload)) + payload


class HostileServer(threading.Thread):
    """Answers a fio client's first command by asking for files (FIO_NET_CMD_SENDFILE), and keeps what it gets."""

    def __init__(self, *wanted: Path) -> None:
        super().__init__(daemon=True)
        self.wanted = wanted
        self.got = b""
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]

    def run(self) -> None:
        connection, _ = self.listener.accept()
        with connection:
            connection.settimeout(20)
            (version,) = struct.unpack("<H", connection.recv(2, socket.MSG_PEEK))
            for path in self.wanted:
                connection.sendall(message(version, 21, str(path).encode().ljust(256, b"\0")))
            try:
                while piece := connection.recv(65536):
                    self.got += piece
            except OSError:
                pass


@as_root
@pytest.mark.skipif(shutil.which("fio") is None, reason="no fio")
@pytest.mark.parametrize("confined", [True, False])
def test_a_hostile_fio_server_gets_no_file_of_ours(confined: bool, tmp_path: Path) -> None:
    keyring = Path("/root") / f".bathy-test-{os.getpid()}"
    keyring.write_text("AQBsecretkey==")
    keyring.chmod(0o600)
    server = HostileServer(keyring)
    server.start()
    try:
        request = command(
            "fio-0", {"ioengine": "null", "size": "1M", "write_iops_log": "fio-0"}, place=Place(),
            client=FioClient(host="127.0.0.1", port=server.port), scratch=str(tmp_path / "scratch"), timeout_s=6,
        )  # fmt: skip
        assert request.confined == str(tmp_path / "scratch")
        if not confined:
            # The same without the confinement: this server does get it.
            request = ProcessRequest(request.label, request.argv, stdin=request.stdin, timeout_s=6)
        LocalHost().run(request)
        server.join(30)
        assert len(server.got) > 100
        assert (b"AQBsecretkey==" in server.got) is not confined
    finally:
        keyring.unlink()
        server.listener.close()


def test_a_remote_client_names_its_logs_relative_to_its_own_directory() -> None:
    request = command(
        "fio-0", {"write_iops_log": "fio-0"}, place=Place(), client=FioClient(host="h", port=1), scratch="/tmp/s"
    )
    assert b"write_iops_log=fio-0\n" in (request.stdin or b"")
    assert log_paths(request)[0] == "/tmp/s/fio-0_iops.log.h"
    assert command("x", disk_options("/d"), place=Place(), scratch="/tmp/s").confined is None


_WHO = """
import os, resource, signal, sys
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(os.getcwd(), os.getuid(), os.getgid(), os.getgroups(), status["CapEff"].strip(), status["NoNewPrivs"].strip())
print(resource.getrlimit(resource.RLIMIT_FSIZE)[0], os.listdir("."))
open("log", "w").write("x")
try:
    open("../escaped", "w")
except OSError as error:
    print(error.strerror)
"""


@as_root
def test_a_confined_program_is_nobody_in_an_empty_directory_and_dies_with_us(tmp_path: Path) -> None:
    place = tmp_path / "scratch"
    place.mkdir()
    (place / "old").touch()
    python = "/usr/bin/python3"
    if not Path(python).exists():
        pytest.skip(f"no {python} that nobody can run")
    completed = LocalHost().run(ProcessRequest("who", (python, "-c", _WHO), confined=str(place)))
    lines = completed.stdout.decode().splitlines()
    assert completed.exit_code == 0, completed.stderr
    assert lines[0] == f"{place} 65534 65534 [] 0000000000000000 1"
    assert lines[1] == f"{1 << 30} []"
    assert lines[2] == "Permission denied"
    assert (place / "log").stat().st_uid == 65534
    code = (
        "import time\nfrom bathyscope.host.local import LocalHost\nfrom bathyscope.host import ProcessRequest\n"
        f"running = LocalHost().start(ProcessRequest('sleep', ('sleep', '60'), confined={str(place)!r}))\n"
        "time.sleep(1)\nprint(running.pid, flush=True)\ntime.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        handle = os.pidfd_open(pid)
        parent.kill()
    with socket.socket() as _:
        import select  # noqa: PLC0415 - waits for the end of a process that is not our child

        assert select.select([handle], [], [], 30)[0] == [handle]
    os.close(handle)
