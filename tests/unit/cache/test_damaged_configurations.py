"""A configuration of which not all is understood: what is understood is changed, stopped and released all the same."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bathyscope import files
from bathyscope.cache.config import Places, Source
from bathyscope.errors import CacheDownError, ParseError, UsageError

from .daemons import FakeDaemon, serving, source, status
from .verbs import Bathy, programs_run, refused

pytestmark = pytest.mark.usefixtures("found")
UNREAD = {"name": "odd", "dir": "/srv/odd", "mode": "read-only", "size_bytes": "much", "of": "a later version"}


@pytest.fixture
def half(fast: Places) -> Places:
    """Return places with a cache `fast` that has an entry that is not understood before one that is."""
    config = fast.load("fast").with_source(Source("data", "/srv/data"))
    fast.save(config)
    document = json.loads(config.content())
    files.write_file(fast.config("fast"), json.dumps(document | {"sources": [UNREAD, *document["sources"]]}).encode())
    return fast


@pytest.fixture
def running(half: Places) -> Iterator[FakeDaemon]:
    """Yield a daemon of `fast` that serves both, since it was started before one was damaged."""
    done: dict[str, Any] = {
        key: {} for key in ("start_source", "stop_source", "set_mode", "set_size", "detach", "attach", "resize")
    }
    with serving(half.socket("fast"), **done) as daemon:
        daemon.answers["status"] = status(source("data"), source("odd"))
        yield daemon


def sources(places: Places) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(places.config("fast").read_text())["sources"]
    return found


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (("source", "start", "data"), "start_source"),
        (("source", "stop", "data"), "stop_source"),
        (("source", "stop", "odd"), "stop_source"),
        (("source", "set", "data", "--mode", "read-only"), "set_mode"),
        (("source", "set", "data", "--cache", "fast", "--size", "2G"), "set_size"),
        (("source", "delete", "data"), "stop_source"),
        (("detach", "fast"), "detach"),
        (("attach", "fast"), "attach"),
        (("resize", "fast", "--size", "2G"), "resize"),
    ],
)
def test_an_entry_that_is_not_understood_keeps_nobody_from_the_others_and_stays_as_it_is(
    bathy: Bathy, running: FakeDaemon, half: Places, words: tuple[str, ...], command: str
) -> None:
    result = bathy(*words)
    assert result.exit_code == 0, result.exception
    assert [sent["command"] for sent in running.commands] == [command]
    assert "line 1: source 1" in result.stderr
    assert UNREAD in sources(half)
    assert len(sources(half)) == (1 if "delete" in words else 2)


def test_a_source_is_added_beside_an_entry_that_is_not_understood(
    bathy: Bathy, running: FakeDaemon, half: Places, tmp_path: Path
) -> None:
    (tmp_path / "more").mkdir()
    result = bathy("source", "create", "more", tmp_path / "more", "--cache", "fast")
    assert result.exit_code == 0, result.exception
    assert [entry["name"] for entry in sources(half)] == ["odd", "data", "more"]
    assert sources(half)[0] == UNREAD
    # Neither its name nor its directory is given twice.
    refused(bathy("source", "create", "odd", tmp_path, "--cache", "fast"), UsageError, "has a source 'odd' already")
    refused(bathy("source", "create", "b", "/srv", "--cache", "fast"), UsageError, "overlaps /srv/odd")


def test_an_entry_that_is_not_understood_is_listed_named_and_deleted(
    bathy: Bathy, running: FakeDaemon, half: Places
) -> None:
    rows = json.loads(bathy("source", "list", "-o", "json").stdout)
    assert {row["source"]: (row["served"], row["mode"]) for row in rows} == {
        "odd": (True, None), "data": (True, "write-through"),
    }  # fmt: skip
    for words in (("start", "odd"), ("set", "odd", "--mode", "read-only")):
        error = refused(bathy("source", *words), UsageError, "the source 'odd' of the cache 'fast' is not understood")
        assert str(half.config("fast")) in str(error.hint)
    result = bathy("source", "delete", "odd")
    assert result.exit_code == 0, result.exception
    assert [entry["name"] for entry in sources(half)] == ["data"]
    assert running.commands == [{"command": "stop_source", "name": "odd"}]


def test_what_is_understood_goes_before_what_is_not_of_the_same_name(bathy: Bathy, half: Places) -> None:
    document = json.loads(half.config("fast").read_text())
    document["sources"][0]["name"] = "data"
    files.write_file(half.config("fast"), json.dumps(document).encode())
    for left in ([UNREAD | {"name": "data"}], []):
        result = bathy("source", "delete", "data", "--cache", "fast")
        assert result.exit_code == 0, result.exception
        assert sources(half) == left


def test_the_directory_of_another_source_keeps_its_drop_in(bathy: Bathy, half: Places) -> None:
    osd = "/var/lib/ceph/osd/ceph-12"
    document = json.loads(half.config("fast").read_text())
    document["sources"][0]["dir"] = osd
    files.write_file(half.config("fast"), json.dumps(document).encode())
    half.add(half.new("other", "/dev/sdy").with_source(Source("osd", osd)))
    drop_in = half.root / "etc/systemd/system/ceph-osd@12.service.d/bathyscope-cache.conf"
    drop_in.parent.mkdir(parents=True)
    drop_in.touch()
    assert bathy("source", "delete", "odd").exit_code == 0
    assert drop_in.exists()
    assert bathy("source", "delete", "osd").exit_code == 0
    assert not drop_in.exists()


@pytest.mark.parametrize("problem", ["damaged", "in part", "others can write it", "gone"])
def test_a_cache_that_runs_is_stopped_whatever_became_of_its_configuration(
    bathy: Bathy, running: FakeDaemon, half: Places, monkeypatch: pytest.MonkeyPatch, problem: str
) -> None:
    ended: list[str] = []
    monkeypatch.setattr("bathyscope.cache.daemon.Daemon.stop", lambda daemon, *_, **__: ended.append(daemon.name))
    if problem == "damaged":
        half.config("fast").write_text("{")
    elif problem == "others can write it":
        half.config("fast").chmod(0o666)
    elif problem == "gone":
        half.config("fast").unlink()
    result = bathy("stop", "fast")
    assert result.exit_code == 0, result.exception
    assert ended == ["fast"]
    assert "the cache 'fast' is stopped" in result.stderr
    if problem != "gone":
        assert str(half.config("fast")) in result.stderr or "configuration of the cache 'fast'" in result.stderr


def test_a_cache_that_does_not_run_says_so_or_what_keeps_it_from_its_start(bathy: Bathy, half: Places) -> None:
    refused(bathy("stop", "fast"), CacheDownError, "the cache 'fast' is not running")
    half.config("fast").write_text("{")
    refused(bathy("stop", "fast"), ParseError, "the configuration of the cache 'fast'")
    half.config("fast").unlink()
    refused(bathy("stop", "fast"), UsageError, "there is no cache 'fast'")


@pytest.mark.parametrize("directory", ["/var/lib/ceph/osd/ceph-12", "/var/lib/ceph/osd/ceph-l2", None])
def test_osds_of_entries_that_are_not_understood_start_at_a_release(
    bathy: Bathy, half: Places, monkeypatch: pytest.MonkeyPatch, directory: str | None
) -> None:
    calls = programs_run(monkeypatch)
    document = json.loads(half.config("fast").read_text())
    document["sources"] = [
        {"name": "osd", "mode": "read-only", "size_bytes": "much"} | ({} if directory is None else {"dir": directory}),
        {"name": "theirs", "mode": "read-only", "size_bytes": "much", "dir": "/var/lib/ceph/osd/ceph-14"},
        {"name": "kept", "mode": "pass-through", "dir": "/var/lib/ceph/osd/ceph-13"},
    ]
    files.write_file(half.config("fast"), json.dumps(document).encode())
    # What the daemon has served, by its own notes; one of them is another cache's now.
    session = {"sources": {f"/var/lib/ceph/osd/ceph-{osd}": [] for osd in (12, 14)}}
    files.write_file(half.state("fast") / "session.json", json.dumps(session).encode())
    half.add(half.new("other", "/dev/sdy").with_source(Source("osd", "/var/lib/ceph/osd/ceph-14")))
    result = bathy("release", "fast", "--start-osds")
    assert result.exit_code == 0, result.exception
    started = sorted(words[-1] for words in calls if "start" in words)
    assert started == ["ceph-osd@12.service", "ceph-osd@13.service"]
