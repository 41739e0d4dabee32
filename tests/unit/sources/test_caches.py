"""What daemons of caches say of themselves: differences of answers of one run of a daemon."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import pytest

from bathyscope.errors import ParseError
from bathyscope.host import SocketRequest
from bathyscope.records import CacheSample, RawAnswer, from_table
from bathyscope.sources.caches import SOURCE
from bathyscope.spec import Target
from bathyscope.spec.scope import Scope

S = 1_000_000_000
SCOPE = Scope(target=Target(name="t", cache_sockets=("/run/a.sock", "/run/b.sock")))


def source(reads: int, hits: int, *, name: str = "osd-3", used_bytes: int | None = 77) -> dict[str, Any]:
    ops = {"requests": reads, "requests_hit": hits, "requests_partial": 0, "bytes": reads * 10, "bytes_hit": hits * 10}
    return {
        "name": name,
        "dir": f"/var/lib/ceph/osd/{name.replace('osd', 'ceph')}",
        "usage": {"capacity_bytes": 1000, "used_bytes": used_bytes, "files": 2},
        "stats": {"reads": ops, "writes": ops},
    }


def answered(at_s: int, *sources: dict[str, Any], pid: int = 1, socket: str = "a") -> RawAnswer:
    said = {"ok": True, "answer": {"pid": pid, "cache": {"name": "fast"}, "sources": list(sources)}}
    stdout = json.dumps(said).encode()
    return RawAnswer(f"caches-/run/{socket}.sock", ("status",), (), 0, stdout, b"", at_s * S - 5, at_s * S)


def samples(*answers: RawAnswer) -> list[CacheSample]:
    return from_table(CacheSample, SOURCE.parse(answers, SCOPE)[CacheSample])


def test_every_cache_is_asked() -> None:
    requests = SOURCE.plan(SCOPE)
    assert [one.path for one in requests if isinstance(one, SocketRequest)] == ["/run/a.sock", "/run/b.sock"]
    assert list(SOURCE.plan(Scope(target=Target(name="t")))) == []


def test_rows_are_what_grew_between_two_answers() -> None:
    (row,) = samples(answered(1, source(100, 50)), answered(3, source(140, 80)))
    assert (row.at_ns, row.duration_ns, row.cache, row.source, row.osd) == (3 * S, 2 * S, "fast", "osd-3", 3)
    assert (row.read_count, row.read_hit_count, row.read_bytes, row.read_hit_bytes) == (40, 30, 400, 300)
    assert (row.write_count, row.write_hit_count, row.write_bytes) == (40, 30, 400)
    assert (row.capacity_bytes, row.used_bytes, row.file_count) == (1000, 77, 2)


def test_rows_have_the_memory_of_the_daemon_and_its_budget() -> None:
    before, after = answered(1, source(1, 1)), answered(2, source(2, 2))
    (row,) = samples(before, after)
    assert (row.daemon_resident_bytes, row.daemon_memory_budget_bytes) == (None, None)
    said = json.loads(after.stdout)
    said["answer"]["cache"]["engine"] = {"memory": {"budget_bytes": 4 << 30}}
    files = (("/proc/7/status", b"Name:\tbathyd\nVmHWM:\t 60416 kB\nVmRSS:\t 54044 kB\n"),)
    (row,) = samples(before, dataclasses.replace(after, stdout=json.dumps(said).encode(), files=files))
    assert (row.daemon_resident_bytes, row.daemon_memory_budget_bytes) == (54044 << 10, 4 << 30)


def test_a_directory_that_is_stopped_and_serves_open_files_is_not_its_successor() -> None:
    stopped = source(999, 999) | {"is_served": False}
    (row,) = samples(answered(1, source(100, 50), stopped), answered(3, source(140, 80), stopped))
    assert row.read_count == 40


def test_a_restart_and_a_new_source_begin_anew() -> None:
    before, after = answered(1, source(100, 50)), answered(2, source(5, 5), pid=2)
    assert samples(before, after) == []
    assert samples(before, answered(2, source(5, 5))) == []
    (row,) = samples(after, answered(3, source(6, 5), source(9, 9, name="data", used_bytes=None), pid=2))
    assert (row.source, row.read_count) == ("osd-3", 1)


def test_caches_are_told_apart() -> None:
    found = samples(
        answered(1, source(1, 1)), answered(1, source(50, 0, name="data"), socket="b"),
        answered(2, source(3, 1)), answered(2, source(60, 0, name="data", used_bytes=None), socket="b"),
    )  # fmt: skip
    assert [(row.source, row.osd, row.read_count, row.used_bytes) for row in found] == [
        ("osd-3", 3, 2, 77),
        ("data", None, 10, None),
    ]


def test_answers_that_are_none() -> None:
    refused = RawAnswer("caches-/run/a.sock", ("status",), (), 0, b'{"ok": false, "error": "x"}', b"", 0, S)
    failed = RawAnswer("caches-/run/a.sock", ("status",), (), 1, b"", b"gone", 0, S)
    assert samples(refused, failed, answered(1, source(1, 1))) == []
    with pytest.raises(ParseError, match="caches"):
        samples(answered(1, source(1, 1)), answered(2, {"name": "osd-3", "stats": {}}))


def test_a_recorded_daemon(recorded: Callable[[str], list[RawAnswer]]) -> None:
    """100 reads of new blocks; then 50 of them again, and 7 writes to another directory, 6 to what was cached."""
    found = samples(*recorded("caches/0.1/an-osd-and-a-directory"))
    shown = [(row.source, row.osd, row.read_count, row.read_hit_count, row.write_count) for row in found]
    assert shown == [("osd-3", 3, 100, 0, 0), ("data", None, 0, 0, 0), ("osd-3", 3, 50, 50, 0), ("data", None, 0, 0, 7)]
    assert found[-1].write_bytes == 7 * 4096
    assert found[2].read_hit_bytes == 50 * 4096
    assert found[2].capacity_bytes == 48 << 20
    assert (found[2].file_count, found[3].file_count) == (1, 1)
