"""The journal is written before a change, survives a kill in the middle of a line, and knows its owner."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bathyscope.errors import BusyError, StoreError
from bathyscope.host.fake import FakeHost
from bathyscope.recording.journal import Journal, journal_directory, journals
from bathyscope.spec import Target

TARGET = Target(name="lab", conf="/etc/ceph/ceph.conf")
RUN = "20260101-000000-abcdef"
BOOT_ID = "/proc/sys/kernel/random/boot_id"


def stat(pid: int, start_ticks: int) -> bytes:
    fields = ["S", *["0"] * 18, str(start_ticks), *["0"] * 20]
    return f"{pid} (python) {' '.join(fields)}\n".encode()


def host(boot_id: str = "boot-a", **others: bytes) -> FakeHost:
    files: dict = {f"/proc/{os.getpid()}/stat": stat(os.getpid(), 77), BOOT_ID: f"{boot_id}\n".encode()}
    return FakeHost(files={**files, **{f"/proc/{pid.lstrip('p')}/stat": text for pid, text in others.items()}})


def made(directory: Path, on: FakeHost | None = None) -> Journal:
    return Journal.create(directory, RUN, "/ws/runs/x", TARGET, on or host())


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    journal = made(tmp_path)
    pool = journal.will_change("pool", name="bathy-abcdef-rbd")
    rule = journal.will_change("crush_rule", name="bathy-abcdef-rbd-rule")
    journal.remember("prefilled x", value=True)
    journal.undone(pool)
    again = Journal.load(journal.path)
    assert (again.run_id, again.target) == (RUN, TARGET)
    assert [(c.number, c.kind, c.details) for c in again.pending()] == [(rule.number, "crush_rule", rule.details)]
    assert again.recall("prefilled x") is True
    assert again.owner_alive(host())


def test_a_change_is_on_disk_before_it_is_made(tmp_path: Path) -> None:
    journal = made(tmp_path)
    journal.will_change("pool", name="bathy-x")
    last = json.loads(journal.path.read_bytes().splitlines()[-1])
    assert (last["event"], last["kind"], last["details"]) == ("change", "pool", {"name": "bathy-x"})


def test_the_same_pending_change_is_written_once_but_again_after_it_was_undone(tmp_path: Path) -> None:
    journal = made(tmp_path)
    first = journal.will_change("pool", name="a")
    assert journal.will_change("pool", name="a") == first
    journal.undone(first)
    second = journal.will_change("pool", name="a")
    assert second.number != first.number
    assert journal.pending() == [second]


@settings(deadline=None)  # every line is flushed to the device, which takes what it takes
@given(st.integers(1, 200), st.binary(max_size=30).filter(lambda b: b"\n" not in b))
def test_a_kill_at_any_byte_loses_at_most_the_change_that_was_never_made(cut: int, tail: bytes) -> None:
    import tempfile  # noqa: PLC0415 - hypothesis repeats the body, so the directory is made here

    with tempfile.TemporaryDirectory() as directory:
        journal = made(Path(directory))
        journal.will_change("pool", name="a")
        whole = journal.path.read_bytes()
        journal.will_change("pool", name="b")
        line = journal.path.read_bytes()[len(whole) :]
        journal.path.write_bytes(whole + line[: min(cut, len(line) - 1)] + (tail if cut > len(line) else b""))
        again = Journal.load(journal.path)
        assert [c.details["name"] for c in again.pending()] == ["a"]
        # Going on cuts the torn tail off, or the next line would be lost in it.
        again.take_over(host())
        again.will_change("pool", name="c")
        assert [c.details["name"] for c in Journal.load(journal.path).pending()] == ["a", "c"]


def test_a_living_owner_keeps_the_journal_a_dead_one_a_reused_pid_or_a_reboot_does_not(tmp_path: Path) -> None:
    journal = made(tmp_path)
    text = journal.path.read_text().replace(f'"pid":{os.getpid()}', '"pid":4242')
    journal.path.write_text(text)
    other = Journal.load(journal.path)
    alive, reused, dead = host(p4242=stat(4242, 77)), host(p4242=stat(4242, 78)), host()
    assert other.owner_alive(alive)
    with pytest.raises(BusyError, match="4242"):
        other.take_over(alive)
    assert not other.owner_alive(reused)
    assert not other.owner_alive(host("boot-b", p4242=stat(4242, 77)))
    assert not other.owner_alive(dead)
    other.take_over(dead)
    assert Journal.load(journal.path).owner_alive(dead)


def test_close_removes_the_journal_only_when_nothing_is_pending(tmp_path: Path) -> None:
    journal = made(tmp_path)
    change = journal.will_change("pool", name="a")
    journal.close()
    assert journal.path.exists()
    journal.undone(change)
    journal.close()
    assert not journal.path.exists()


@pytest.mark.parametrize(
    "content",
    [b"", b"{}\n", b"[1]\n", b'{"event":"owner","pid":1,"start_ticks":1}\n', b'{"event":"run"}\n', b"\xff\n"],
)
def test_a_damaged_journal_is_reported_and_listed_but_does_not_stop_the_others(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "bad.jsonl").write_bytes(content)
    with pytest.raises(StoreError, match=r"bad\.jsonl"):
        Journal.load(tmp_path / "bad.jsonl")
    made(tmp_path)
    found, damaged = journals(tmp_path)
    assert ([journal.run_id for journal in found], damaged) == ([RUN], [tmp_path / "bad.jsonl"])


def test_without_a_place_to_write_nothing_may_be_changed(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError) as error:
        made(tmp_path / "file" / "journal")
    assert "XDG_STATE_HOME" in (error.value.hint or "")


def test_where_journals_lie(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/s")
    assert journal_directory() == Path("/s/bathyscope/journal")


def test_a_journal_of_months_is_no_longer_than_its_changes_of_now(tmp_path: Path) -> None:
    journal = made(tmp_path)
    idle = journal.path.stat().st_size
    for burst in range(200):
        changes = journal.will_change_all("osd_option", [{"daemon": f"osd.{osd}", "burst": burst} for osd in range(8)])
        assert len(Journal.load(journal.path).pending()) == 8
        journal.undone(*changes)
        assert journal.path.stat().st_size == idle
    assert Journal.load(journal.path).pending() == []
    # What was remembered in between is kept.
    (change,) = journal.will_change_all("osd_option", [{"daemon": "osd.0"}])
    journal.remember("prefilled x", value=True)
    journal.undone(change)
    again = Journal.load(journal.path)
    assert (again.pending(), again.recall("prefilled x")) == ([], True)
