"""What the next start and `bathy bench cleanup` do with what dead runs left, on this cluster and on others."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bathyscope.bench import session
from bathyscope.bench.conductor import scratch_path
from bathyscope.errors import UsageError
from bathyscope.host.fake import FakeHost
from bathyscope.recording.journal import Journal, journal_directory
from bathyscope.spec import Target

TARGET = Target(name="c", conf="/etc/ceph/ceph.conf")
POOL = "bathy-abcdef-rbd-ssd"


@pytest.fixture(autouse=True)
def _state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


@pytest.fixture
def left(fake_cluster: Any, fake_host: FakeHost) -> Callable[..., Journal]:
    """Leave what a killed run leaves: a pool, its rule, and an option."""

    def leave(run_id: str = "20260101-000000-abcdef", target: Target = TARGET, fsid: str | None = "f-s-i-d") -> Journal:
        journal = Journal.create(journal_directory(), run_id, "/ws/x", target, fake_host, fsid=fsid)
        rule, pool = f"{POOL}-rule", POOL
        journal.will_change("crush_rule", name=rule)
        journal.will_change("pool", name=pool)
        journal.will_change("osd_option", daemon="osd.0", option="osd_op_history_size", value=None)
        journal.remember("prefilled it", value=True)
        fake_cluster.rules[rule] = {}
        fake_cluster.pools[pool] = {"rule": rule}
        fake_cluster.overrides["osd.0"] = {"osd_op_history_size": "1000"}
        journal.give_up()
        return Journal.load(journal.path)

    return leave


def clean(host: FakeHost, **words: Any) -> tuple[list[str], list[str], list[str]]:
    notes: list[str] = []
    done, failed = session.clean_abandoned(host, refresh=lambda target: target, note=notes.append, **words)
    return done, failed, notes


def test_cleanup_undoes_everything_and_a_second_one_has_nothing_to_do(
    fake_cluster: Any, fake_host: FakeHost, left: Any
) -> None:
    journal = left()
    done, failed, notes = clean(fake_host)
    assert (done, failed) == ([journal.run_id], [])
    assert any("nothing of it is left on the cluster" in note for note in notes)
    assert (fake_cluster.pools, fake_cluster.rules, fake_cluster.overrides["osd.0"]) == ({}, {}, {})
    assert not journal.path.exists()
    assert clean(fake_host)[:2] == ([], [])


def test_the_next_start_names_what_is_still_there_and_forgets_what_is_gone(
    fake_cluster: Any, fake_host: FakeHost, left: Any
) -> None:
    def tidy() -> list[str]:
        notes: list[str] = []
        session.tidy(fake_host, fake_cluster.session(), note=notes.append)
        return notes

    journal = left()
    assert f"has left the pool {POOL}, the CRUSH rule {POOL}-rule: " in tidy()[-1]
    # Somebody removed the pool by hand, then the rule.
    del fake_cluster.pools[POOL]
    (note,) = tidy()
    assert f"has left the CRUSH rule {POOL}-rule: " in note
    assert "the pool" not in note
    del fake_cluster.rules[f"{POOL}-rule"]
    assert tidy() == []
    assert not journal.path.exists()


def test_what_cannot_be_looked_at_is_neither_named_as_left_nor_forgotten(
    fake_cluster: Any, fake_host: FakeHost, left: Any
) -> None:
    journal, notes = left(), []
    fake_cluster.denied = {"osd lspools"}
    session.tidy(fake_host, fake_cluster.session(), note=notes.append)
    assert any("could not be tidied up" in note and "osd lspools" in note for note in notes)
    assert not any("has left the pool" in note for note in notes)
    assert [change.kind for change in Journal.load(journal.path).pending()] == ["crush_rule", "pool"]


def test_cleanup_says_removing_only_of_what_is_there(fake_cluster: Any, fake_host: FakeHost, left: Any) -> None:
    journal = left()
    fake_cluster.pools.clear()
    done, failed, notes = clean(fake_host)
    assert (done, failed) == ([journal.run_id], [])
    assert [note for note in notes if note.startswith("removing")] == [f"removing the CRUSH rule {POOL}-rule"]


def test_cleanup_of_named_runs_leaves_the_others(fake_host: FakeHost, left: Any) -> None:
    first, second = left("20260101-000000-aaaaaa"), left("20260102-000000-abcdef")
    assert clean(fake_host, only=["20260102"])[0] == [second.run_id]
    assert first.path.exists()


def test_forgetting_takes_the_name_of_one_run_with_changes(fake_host: FakeHost, left: Any) -> None:
    runs = [left(f"20260101-00000{number}-abcdef").run_id for number in range(2)]
    for name in ("2", "20260101-000000-aaaaaa", ""):
        with pytest.raises(UsageError, match="names"):
            clean(fake_host, only=[name], forget=True)
    assert len(list(journal_directory().glob("*"))) == 2
    assert clean(fake_host, only=runs[:1], forget=True)[0] == runs[:1]
    assert [path.stem for path in journal_directory().glob("*")] == runs[1:]


def test_a_living_run_is_left_alone(fake_cluster: Any, fake_host: FakeHost, left: Any) -> None:
    journal = left()
    fake_host.files["/proc/sys/kernel/random/boot_id"] = b"b\n"
    fake_host.files[f"/proc/{os.getpid()}/stat"] = f"{os.getpid()} (x) S {' '.join(['0'] * 18)} 7 0".encode()
    journal.take_over(fake_host)
    assert clean(fake_host)[:2] == ([], [])
    assert POOL in fake_cluster.pools


def test_the_same_name_leads_to_another_cluster_now(fake_cluster: Any, fake_host: FakeHost, left: Any) -> None:
    journal = left(fsid="another")
    done, failed, _ = clean(fake_host)
    assert done == []
    assert "--forget" in failed[0]
    assert POOL in fake_cluster.pools
    assert journal.path.exists()
    assert clean(fake_host, only=[journal.run_id], forget=True)[0] == [journal.run_id]
    assert not journal.path.exists()
    assert POOL in fake_cluster.pools


def test_nothing_is_left_on_a_lab_that_is_gone_or_was_made_anew(
    fake_cluster: Any, fake_host: FakeHost, left: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = left("20260101-000000-aaaaaa", Target(name="gone", kind="lab"))
    anew = left("20260102-000000-bbbbbb", Target(name="here", kind="lab"), "an-earlier-one")
    monkeypatch.setattr("bathyscope.lab.list_labs", lambda: ["here"])
    monkeypatch.setattr("bathyscope.lab.load", lambda _: SimpleNamespace(record=SimpleNamespace(fsid="f-s-i-d")))
    done, failed, notes = clean(fake_host)
    assert sorted(done) == [gone.run_id, anew.run_id]
    assert failed == []
    assert sum("which is gone" in note for note in notes) == 2
    # The cluster was not asked, so the note must not claim that its changes are undone.
    assert not any("nothing of it is left on the cluster" in note for note in notes)
    assert POOL in fake_cluster.pools
    assert not gone.path.exists()
    assert not anew.path.exists()


def test_a_cluster_that_does_not_answer_keeps_its_journal_and_is_named(
    fake_cluster: Any, fake_host: FakeHost, left: Any
) -> None:
    journal = left()
    fake_cluster.lost = True
    done, failed, _ = clean(fake_host)
    assert done == []
    assert journal.run_id in failed[0]
    assert len(Journal.load(journal.path).pending()) == 3


def test_a_damaged_journal_is_named_and_does_not_stop_the_others(fake_host: FakeHost, left: Any) -> None:
    journal = left()
    bad = journal_directory() / "bad.jsonl"
    bad.write_bytes(b"what?\n")
    done, failed, _ = clean(fake_host)
    assert done == [journal.run_id]
    assert str(bad) in failed[0]
    assert bad.exists()


def test_runs_killed_before_or_after_their_changes_leave_no_files(fake_host: FakeHost, left: Any) -> None:
    scratch = [Path(scratch_path(TARGET, run_id)) for run_id in ("20260101-000000-abcdef", "20260103-000000-cccccc")]
    for directory in scratch:
        (directory / "fio-0").mkdir(parents=True)
    left()
    early = Journal.create(journal_directory(), "20260103-000000-cccccc", "/ws/y", TARGET, fake_host)
    early.give_up()
    clean(fake_host)
    assert not early.path.exists()
    assert not any(directory.exists() for directory in scratch)


def test_the_next_start_restores_settings_and_keeps_pools_for_a_resume(
    fake_cluster: Any, fake_host: FakeHost, left: Any
) -> None:
    journal = left()
    notes: list[str] = []
    session.tidy(fake_host, fake_cluster.session(), note=notes.append)
    assert fake_cluster.overrides["osd.0"] == {}
    assert POOL in fake_cluster.pools
    again = Journal.load(journal.path)
    assert {change.kind for change in again.pending()} == {"pool", "crush_rule"}
    assert again.recall("prefilled it") is True
    # It is not ours now: who wants to resume it may do so while this process lives.
    assert not again.owner_alive(fake_host)
    assert any(f"bathy bench resume {journal.run_id}" in note for note in notes)


def test_the_next_start_does_not_touch_other_clusters(fake_cluster: Any, fake_host: FakeHost, left: Any) -> None:
    left(fsid="another")
    notes: list[str] = []
    session.tidy(fake_host, fake_cluster.session(), note=notes.append)
    assert fake_cluster.overrides["osd.0"] == {"osd_op_history_size": "1000"}
    assert any("bench cleanup" in note for note in notes)


def test_a_run_is_not_resumed_on_another_cluster() -> None:
    run: Any = SimpleNamespace(id="x", info=SimpleNamespace(versions={"fsid": "another"}))
    with pytest.raises(UsageError, match="was begun on the cluster another") as error:
        session._same_cluster(run, "f-s-i-d")
    assert "new one" in (error.value.hint or "")
    run.info.versions = {"fsid": "f-s-i-d"}
    assert session._same_cluster(run, "f-s-i-d") == "f-s-i-d"
    run.info.versions = {}
    assert session._same_cluster(run, "f-s-i-d") == "f-s-i-d"
    assert session._same_cluster(run, None) is None
