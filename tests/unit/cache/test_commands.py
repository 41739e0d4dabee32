"""The verbs: what they write and tell the daemon, and that nothing is left after an error."""

from __future__ import annotations

import csv
import fcntl
import json
import os
import socket
import stat
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bathyscope.cache import daemon as daemons
from bathyscope.cache.config import Places, Source
from bathyscope.cache.osd_units import write_drop_in
from bathyscope.errors import BathyscopeError, CacheDownError, CacheError, ParseError, UsageError
from bathyscope.host import ProcessRequest
from bathyscope.host.fake import FakeAnswer, FakeHost
from bathyscope.host.local import LocalHost
from bathyscope.host.process import NOBODY, is_alive

from .daemons import FakeDaemon, serving, source, status
from .verbs import Bathy, install_unit, refused

pytestmark = pytest.mark.usefixtures("found")


@pytest.fixture
def bathyd(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """Return the calls of a bathyd that makes every cache and says that it has 1 GiB."""
    calls: list[tuple[str, ...]] = []

    def call(_host: object, *words: str) -> bytes:
        calls.append(words)
        return json.dumps({"is_cache": True, "capacity_bytes": 1 << 30}).encode()

    monkeypatch.setattr("bathyscope.cache.ssd.bathyd", call)
    return calls


def test_a_cache_in_a_new_file_reserves_its_space(
    bathy: Bathy, places: Places, tmp_path: Path, bathyd: list[tuple[str, ...]]
) -> None:
    result = bathy("create", "fast", tmp_path / "ssd.img", "--size", "4M")
    assert result.exit_code == 0, result.exception
    found = (tmp_path / "ssd.img").stat()
    assert (found.st_size, stat.S_IMODE(found.st_mode)) == (4 << 20, 0o600)
    assert found.st_blocks * 512 >= 4 << 20
    assert bathyd == [("create", str(places.config("fast")))]
    assert "the cache 'fast' of 1.00 GiB with 64K lines is on" in result.stderr
    assert places.load("fast").ssd == str(tmp_path / "ssd.img")


def test_force_and_size_are_bathyds_to_judge(
    bathy: Bathy, places: Places, tmp_path: Path, bathyd: list[tuple[str, ...]]
) -> None:
    (tmp_path / "ssd.img").write_bytes(b"data")
    assert bathy("create", "fast", tmp_path / "ssd.img", "--force", "--size", "8M").exit_code == 0
    assert bathyd[0] == ("create", str(places.config("fast")), "--force", "--size", str(8 << 20))
    assert (tmp_path / "ssd.img").read_bytes() == b"data"


def test_how_a_cache_works_is_written_down_as_bathyd_reads_it(
    bathy: Bathy, places: Places, tmp_path: Path, bathyd: list[tuple[str, ...]]
) -> None:
    def written(name: str, *words: str) -> dict[str, Any]:
        result = bathy("create", name, tmp_path / f"{name}.img", "--size", "4M", *words)
        assert result.exit_code == 0, result.exception
        return {key: value for key, value in places.load(name).rest["cache"].items() if key not in ("name", "ssd")}

    assert written("plain") == {}
    assert written("all", "--fetch", "adaptive", "--admission", "all") == {
        "fetch": "adaptive", "admission": {"is_stream_of_writes": False},
    }  # fmt: skip
    assert written("large", "--line-size", "256K", "--fetch", "256K") == {"line_bytes": 256 << 10, "fetch": 256 << 10}
    assert written("small", "--line-size", "16K") == {"line_bytes": 16 << 10}
    listed = {row["name"]: row["line"] for row in json.loads(bathy("list", "-o", "json").stdout)}
    assert listed == {"plain": "64K", "all": "64K", "large": "256K", "small": "16K"}
    assert written("other", "--policy", "lru", "--fetch", "16K", "--admission", "2-hit+write-bypass:4M") == {
        "policy": "lru", "fetch": 16 << 10,
        "admission": {"n_hit": 2, "stream_cutoff_bytes": 4 << 20, "is_stream_of_writes": True},
    }  # fmt: skip
    assert written("roomy", "--memory", "8G") == {"memory_bytes": 8 << 30}


def test_a_cache_that_bathyd_refuses_leaves_nothing(
    bathy: Bathy, places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> bytes:
        raise CacheError("it is too small", hint="at least 64 MiB")

    monkeypatch.setattr("bathyscope.cache.ssd.bathyd", refuse)
    refused(bathy("create", "fast", tmp_path / "ssd.img", "--size", "4M"), CacheError, "too small")
    assert not (tmp_path / "ssd.img").exists()
    assert places.names() == []
    assert not places.state("fast").exists()


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("fast", "missing.img"), "does not exist"),
        (("fast", "no/dir.img", "--size", "4M"), "does not exist"),
        (("fast", "."), "is neither a block device nor a file"),
        (("a/b", "ssd.img", "--size", "4M"), "not a valid name of a cache"),
        (("fast", "/dev/nothing", "--size", "4M"), "the device /dev/nothing does not exist"),
        (("fast", "ssd.img", "--size", "0"), "--size must be greater than 0 (got 0)"),
        (("fast", "ssd.img", "--size", "4M", "--fetch", "all"), "--fetch must be adaptive or a size (got all)"),
        (("fast", "ssd.img", "--size", "4M", "--fetch", "12K"), "--fetch must be a power of two from 4K to 256K"),
        (("fast", "ssd.img", "--size", "4M", "--fetch", "128K"), "--fetch must be at most 64K, the size of a line"),
        (("fast", "ssd.img", "--size", "4M", "--line-size", "32K"), "--line-size must be one of 16K, 64K, 256K"),
        (("fast", "ssd.img", "--size", "4M", "--policy", "arc"), "--policy is not known"),
        (("fast", "ssd.img", "--size", "4M", "--memory", "0"), "--memory must be greater than 0"),
        (("fast", "ssd.img", "--size", "4M", "--admission", "1-hit"), "--admission must be made of known filters"),
    ],
)
def test_what_cannot_be_a_cache_is_refused(
    bathy: Bathy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], problem: str
) -> None:
    monkeypatch.chdir(tmp_path)
    refused(bathy("create", *words), UsageError, problem)
    assert json.loads(bathy("list", "-o", "json").stdout) == []


def test_an_ssd_serves_one_cache(bathy: Bathy, tmp_path: Path, bathyd: list[tuple[str, ...]]) -> None:
    assert bathy("create", "one", tmp_path / "ssd.img", "--size", "4M").exit_code == 0
    (tmp_path / "link").symlink_to("ssd.img")
    refused(bathy("create", "two", tmp_path / "link"), UsageError, "the SSD of the cache 'one'")
    assert (tmp_path / "ssd.img").exists()


def test_a_source_is_written_down_and_served_at_once(
    bathy: Bathy, daemon: FakeDaemon, fast: Places, tmp_path: Path
) -> None:
    (tmp_path / "data").mkdir()
    result = bathy("source", "create", "data", tmp_path / "data", "--cache", "fast", "--size", "95G")
    assert result.exit_code == 0, result.exception
    made = Source("data", str(tmp_path / "data"), "write-through", 95 << 30, (("devices", {}),))
    assert fast.load("fast").sources == (made,)
    assert daemon.commands == [{"command": "start_source", "source": made.document()}]


def test_a_source_that_the_daemon_refuses_is_not_kept(
    bathy: Bathy, daemon: FakeDaemon, fast: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data").mkdir()
    install_unit(fast)
    daemon.answers["start_source"] = ("fsid is in use by another process", "stop the OSD first")
    monkeypatch.setattr("bathyscope.cache.osd_units.osd_of", lambda _: 7)
    result = bathy("source", "create", "data", tmp_path / "data", "--cache", "fast")
    assert refused(result, CacheError, "fsid is in use").hint == "stop the OSD first"
    assert len(daemon.commands) == 1
    assert fast.load("fast").sources == ()
    assert not (tmp_path / "etc/systemd/system/ceph-osd@7.service.d").exists()


def test_a_source_of_a_cache_that_is_stopped_waits(bathy: Bathy, fast: Places, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    result = bathy("source", "create", "data", tmp_path / "data", "--cache", "fast")
    assert result.exit_code == 0
    assert "bathy cache start fast" in result.stderr
    assert len(fast.load("fast").sources) == 1


def test_the_sources_of_a_plan_are_made_with_their_shares(
    bathy: Bathy, daemon: FakeDaemon, fast: Places, tmp_path: Path
) -> None:
    for name in ("ceph-1", "ceph-2"):
        (tmp_path / name).mkdir()
    planned = [
        {"name": f"osd.{osd}", "osd": osd, "directory": str(tmp_path / f"ceph-{osd}"), "flash_bytes": osd << 30}
        for osd in (1, 2)
    ]
    plan = {"mode": "write-through", "caches": [{"node": "n1", "sources": planned}, {"node": "n2", "sources": []}]}
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    words = ("source", "create", "--from-plan", tmp_path / "plan.json", "--cache", "fast")
    refused(bathy(*words), UsageError, "the plan is for 2 nodes")
    refused(bathy(*words, "--size", "5G"), UsageError, "a plan names sources")
    twice = [planned[0], planned[1] | {"directory": planned[0]["directory"]}]
    (tmp_path / "twice.json").write_text(json.dumps({"mode": "read-only", "caches": [{"node": "n", "sources": twice}]}))
    result = bathy("source", "create", "--from-plan", tmp_path / "twice.json", "--cache", "fast")
    refused(result, UsageError, "is the source 'osd.1'")
    assert fast.load("fast").sources == ()
    assert bathy(*words, "--node", "n1").exit_code == 0
    made = fast.load("fast").sources
    assert [(one.name, one.size_bytes, one.mode) for one in made] == [
        ("osd.1", 1 << 30, "write-through"), ("osd.2", 2 << 30, "write-through"),
    ]  # fmt: skip
    assert [one["source"]["name"] for one in daemon.commands] == ["osd.1", "osd.2"]


def test_a_plan_with_a_directory_that_is_not_there_makes_no_source(bathy: Bathy, fast: Places, tmp_path: Path) -> None:
    (tmp_path / "ceph-1").mkdir()
    planned = [
        {"name": f"osd.{osd}", "osd": osd, "directory": str(tmp_path / f"ceph-{osd}"), "flash_bytes": 1 << 30}
        for osd in (1, 2)
    ]
    plan = {"mode": "write-through", "caches": [{"node": "n1", "sources": planned}]}
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    result = bathy("source", "create", "--from-plan", tmp_path / "plan.json", "--cache", "fast")
    refused(result, UsageError, "does not exist")
    assert fast.load("fast").sources == ()


@pytest.mark.parametrize(
    ("settings", "others"),
    [
        ((), None),
        (("--policy", "s3-fifo", "--fetch", "adaptive", "--admission", "write-bypass:256K"), None),
        (("--policy", "lru"), "--policy"),
        (("--fetch", "16K", "--admission", "2-hit"), "--fetch, --admission"),
        (("--line-size", "256K"), "--line-size"),
    ],
)
def test_a_plan_for_a_cache_that_works_otherwise_is_noted(
    bathy: Bathy, tmp_path: Path, bathyd: list[tuple[str, ...]], settings: tuple[str, ...], others: str | None
) -> None:
    (tmp_path / "ceph-1").mkdir()
    sources = [{"name": "osd.1", "osd": 1, "directory": str(tmp_path / "ceph-1"), "flash_bytes": 1 << 30}]
    plan = {"policy": "s3-fifo", "admission": "write-bypass", "mode": "write-through"}
    (tmp_path / "plan.json").write_text(json.dumps(plan | {"caches": [{"node": "n1", "sources": sources}]}))
    assert bathy("create", "fast", tmp_path / "ssd.img", "--size", "4M", *settings).exit_code == 0
    result = bathy("source", "create", "--from-plan", tmp_path / "plan.json", "--cache", "fast")
    assert result.exit_code == 0
    assert ("than the plan simulated (64K lines, s3-fifo, write-bypass, adaptive fetch)" in result.stderr) == (
        others is not None
    )
    assert others is None or f"the cache 'fast' has other {others} than" in result.stderr


def test_a_source_with_open_files_is_kept_unless_forced(bathy: Bathy, daemon: FakeDaemon, fast: Places) -> None:
    fast.save(fast.load("fast").with_source(Source("a", "/srv/a")))
    daemon.answers["status"] = status(source("a"))

    def stop_source(request: dict[str, Any]) -> Any:
        return {} if request.get("force") else ("files are open", "close them")

    daemon.answers["stop_source"] = stop_source
    refused(bathy("source", "delete", "a"), CacheError, "files are open")
    assert len(fast.load("fast").sources) == 1
    assert bathy("source", "delete", "a", "--force").exit_code == 0
    assert fast.load("fast").sources == ()


def test_mode_and_share_are_changed_in_the_file_and_in_the_daemon(
    bathy: Bathy, daemon: FakeDaemon, fast: Places
) -> None:
    fast.save(fast.load("fast").with_source(Source("a", "/srv/a", size_bytes=5)))
    daemon.answers["status"] = status(source("a"))
    assert bathy("source", "set", "a", "--mode", "read-only", "--size", "none").exit_code == 0
    assert fast.load("fast").sources == (Source("a", "/srv/a", "read-only", None),)
    assert daemon.commands == [
        {"command": "set_mode", "name": "a", "mode": "read-only"},
        {"command": "set_size", "name": "a", "size_bytes": None},
    ]
    refused(bathy("source", "set", "a"), UsageError, "nothing to change")


def test_a_source_that_is_stopped_is_changed_in_the_file_alone(bathy: Bathy, daemon: FakeDaemon, fast: Places) -> None:
    fast.save(fast.load("fast").with_source(Source("a", "/srv/a")))
    assert bathy("source", "set", "a", "--mode", "read-only").exit_code == 0
    assert fast.load("fast").sources == (Source("a", "/srv/a", "read-only"),)
    assert daemon.commands == []


def test_a_share_above_the_ssd_is_said(bathy: Bathy, places: Places, tmp_path: Path) -> None:
    (tmp_path / "ssd.img").write_bytes(bytes(1 << 20))
    places.add(places.new("fast", str(tmp_path / "ssd.img")))
    (tmp_path / "data").mkdir()
    words = ("source", "create", "data", tmp_path / "data", "--cache", "fast")
    assert "--size 2.00 MiB is more than" in bathy(*words, "--size", "2M").stderr
    assert "is more than" not in bathy("source", "set", "data", "--size", "1M").stderr


def test_a_broken_configuration_of_another_cache_is_no_hindrance(
    bathy: Bathy, fast: Places, tmp_path: Path, bathyd: list[tuple[str, ...]]
) -> None:
    fast.add(fast.new("broken", "/dev/sdy"))
    fast.config("broken").write_text("{")
    (tmp_path / "data").mkdir()
    for words in (
        ("create", "more", tmp_path / "ssd.img", "--size", "4M"),
        ("source", "create", "data", tmp_path / "data", "--cache", "fast"),
        ("source", "set", "data", "--mode", "read-only"),
        ("source", "list"),
        ("source", "delete", "data"),
    ):
        result = bathy(*words)
        assert result.exit_code == 0, result.exception
        assert "the cache 'broken' is left out" in result.stderr
    own = bathy("source", "create", "data", tmp_path / "data", "--cache", "broken")
    assert isinstance(own.exception, ParseError)


def test_lists_show_what_runs(bathy: Bathy, daemon: FakeDaemon, fast: Places) -> None:
    fast.add(fast.new("other", "/dev/sdy"))
    fast.save(fast.load("fast").with_source(Source("a", "/srv/a")).with_source(Source("b", "/srv/b")))
    daemon.answers["status"] = status(source("a"))
    caches = json.loads(bathy("list", "-o", "json").stdout)
    assert [(row["name"], row["state"], row["sources"]) for row in caches] == [
        ("fast", "running", 2),
        ("other", "stopped", 0),
    ]
    sources = json.loads(bathy("source", "list", "-o", "json").stdout)
    assert [(row["source"], row["served"]) for row in sources] == [("a", True), ("b", False)]


def test_a_configuration_that_is_broken_does_not_hide_the_others(bathy: Bathy, fast: Places) -> None:
    fast.add(fast.new("broken", "/dev/sdy"))
    fast.config("broken").write_text("{")
    rows = {row["name"]: row["state"] for row in json.loads(bathy("list", "-o", "json").stdout)}
    assert rows["fast"] == "stopped"
    assert rows["broken"].startswith("unusable: the configuration of the cache 'broken'")


def test_a_cache_that_runs_is_not_deleted(bathy: Bathy, daemon: FakeDaemon, fast: Places) -> None:
    refused(bathy("delete", "fast", "--yes"), CacheError, "is running")
    assert fast.names() == ["fast"]


def test_a_cache_is_deleted_when_that_is_confirmed(bathy: Bathy, fast: Places) -> None:
    refused(bathy("delete", "fast"), UsageError, "nobody can be asked")
    assert fast.names() == ["fast"]
    assert bathy("delete", "fast", "--yes").exit_code == 0
    assert fast.names() == []
    assert not fast.state("fast").exists()


def test_a_damaged_configuration_names_its_line_and_is_deleted(bathy: Bathy, fast: Places) -> None:
    install_unit(fast)
    path = write_drop_in(fast, FakeHost(), "fast", "/var/lib/ceph/osd/ceph-12", lambda _: None, notices_changes=True)
    (fast.state("fast") / "session.json").write_text(
        '{"is_in_use": false, "sources": {"/var/lib/ceph/osd/ceph-12": []}}'
    )
    fast.config("fast").write_text('{\n "sources": [\n  oops\n')
    error = bathy("stop", "fast").exception
    assert isinstance(error, ParseError)
    assert "the configuration of the cache 'fast' has an unexpected form" in error.message
    assert "line 3" in error.message
    document = fast.new("fast", "/dev/sdz").with_source(Source("a", "/a")).rest | {
        "sources": [{"dir": "/a", "mode": "read-only"}, {"mode": "read-only"}]
    }
    fast.config("fast").write_text(json.dumps(document, indent=1))
    lines = fast.config("fast").read_text().splitlines()
    line = len(lines) - lines[::-1].index("  {")
    result = bathy("delete", "fast", "--yes")
    assert result.exit_code == 0, result.exception
    assert f"line {line}: source 2" in result.stderr
    assert fast.names() == []
    assert path is not None
    assert not path.exists()


@pytest.mark.parametrize("report", ["io", "usage", "iops", "stats", "files", "objects", "curve"])
def test_a_report_of_a_cache_that_does_not_run_says_what_starts_it(bathy: Bathy, fast: Places, report: str) -> None:
    for words in ((report, "fast"), (report,)):
        error = refused(bathy(*words), CacheDownError, "'fast' is not running")
        assert error.hint == "start it: bathy cache start fast"
    refused(bathy(report, "other"), UsageError, "no cache 'other'")


def test_the_status_has_a_row_for_every_configured_cache_and_source(
    bathy: Bathy, daemon: FakeDaemon, fast: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    def shown(*words: str) -> tuple[int, dict[str, str], dict[str, tuple[str, str | None]]]:
        result = bathy("status", *words, "-o", "json")
        caches, sources = (table["rows"] for table in json.loads(result.stdout)["tables"])
        states = {row["cache"]: row["state"] for row in caches}
        return result.exit_code, states, {row["source"]: (row["served"], row["problem"]) for row in sources}

    daemon.answers["status"] = status(source("a"))
    fast.save(fast.load("fast").with_source(Source("a", "/srv/a")))
    assert shown() == (0, {"fast": "running"}, {"a": ("yes", None)})
    # One that was stopped, one that was killed, one whose configuration is damaged.
    for name in ("stopped", "killed", "damaged"):
        fast.add(fast.new(name, f"/dev/{name}").with_source(Source(f"of-{name}", f"/srv/{name}")))
    fast.config("damaged").write_text("{")
    mounts = b"37 36 0:45 / /srv/killed rw - fuse.bathyd bathyd rw\n"
    monkeypatch.setattr(LocalHost, "read", lambda self, path: mounts)
    code, states, sources = shown()
    assert (code, states) == (
        1, {"damaged": "unusable", "fast": "running", "killed": "killed", "stopped": "stopped"},
    )  # fmt: skip
    assert {name: served for name, (served, _) in sources.items()} == {
        "a": "yes",
        "of-killed": "no",
        "of-stopped": "no",
    }
    assert "mount of a daemon that was killed" in str(sources["of-killed"][1])
    assert shown("fast")[0] == 0
    assert shown("killed")[:2] == (1, {"killed": "killed"})
    # A source that is configured and not served is a finding as well.
    fast.save(fast.load("fast").with_source(Source("b", "/srv/b")))
    assert shown("fast")[0] == 1
    assert shown("fast", "--source", "a")[0] == 0
    assert shown("fast", "--source", "b")[2]["b"] == ("no", "stopped; serve it: bathy cache source start b")
    # So is one that is served, but for a device of it that is not.
    daemon.answers["status"] = status(source("a"), source("b", problem="block leads elsewhere"))
    assert shown("fast") == (1, {"fast": "running"}, {"a": ("yes", None), "b": ("yes", "block leads elsewhere")})
    assert shown("fast", "--source", "b")[0] == 1
    assert shown("fast", "--source", "a")[0] == 0
    refused(bathy("status", "none"), UsageError, "no cache 'none'")


@pytest.mark.parametrize("problem", ["others can write it", "damaged"])
def test_a_cache_that_runs_and_cannot_be_started_again_is_a_finding(
    bathy: Bathy, daemon: FakeDaemon, fast: Places, problem: str
) -> None:
    fast.save(fast.load("fast").with_source(Source("ceph0", "/srv/a")))
    assert bathy("status", "fast").exit_code == 0
    if problem == "damaged":
        fast.config("fast").write_text("{")
    else:
        fast.config("fast").chmod(0o666)
    hint = f"correct {fast.config('fast')}" if problem == "damaged" else f"chmod go-w {fast.config('fast')}"
    for words in ((), ("fast",), ("fast", "--source", "ceph0")):
        result = bathy("status", *words, "-o", "json")
        assert result.exit_code == 1, result.exception
        document = json.loads(result.stdout)
        (fact,) = (value for name, value in document["facts"] if name == "fast cannot be started again")
        assert hint in fact
        assert document["sentence"] == "Sources: 1, served: 1. Cannot be started again: fast."
    # It serves all the same: its figures can be asked for by name.
    assert bathy("io", "fast").exit_code == 0
    (row,) = json.loads(bathy("list", "-o", "json").stdout)
    assert row["state"].startswith("running, cannot be started again: ")


def test_a_source_that_is_not_understood_has_a_row_and_hides_no_other(
    bathy: Bathy, daemon: FakeDaemon, fast: Places
) -> None:
    daemon.answers["status"] = status(source("a"))
    for name in ("fast", "stopped"):
        if name == "stopped":
            fast.add(fast.new(name, "/dev/stopped"))
        entries = [
            {"name": "a", "dir": "/srv/a", "mode": "read-only"},
            {"dir": "/srv/b", "mode": "x", "size_bytes": "?"},
            7,
        ]
        fast.config(name).write_text(json.dumps(fast.load(name).rest | {"sources": entries}))

    def problems(cache: str, *words: str) -> tuple[int, dict[str, str | None]]:
        result = bathy("status", cache, *words, "-o", "json")
        rows = json.loads(result.stdout)["tables"][1]["rows"]
        return result.exit_code, {row["source"]: row["problem"] for row in rows}

    code, found = problems("fast")
    assert (code, list(found)) == (1, ["a", "b", "source-3"])
    assert "line 1: source 2" in str(found["b"])
    assert "line 1: source 3" in str(found["source-3"])
    assert problems("fast", "--source", "a") == (0, {"a": None})
    code, found = problems("stopped")
    assert (code, list(found)) == (1, ["a", "b", "source-3"])
    assert "line 1: source 2" in str(found["b"])
    states = {row["name"]: (row["state"], row["sources"]) for row in json.loads(bathy("list", "-o", "json").stdout)}
    assert states == {"fast": ("running", 3), "stopped": ("stopped", 3)}


@pytest.mark.parametrize("report", ["io", "usage", "iops", "stats"])
def test_reports_of_all_caches_name_the_ones_that_are_down(
    bathy: Bathy, daemon: FakeDaemon, fast: Places, report: str
) -> None:
    fast.add(fast.new("other", "/dev/sdy"))
    result = bathy(report, "-o", "json")
    assert "The cache 'other' is not running; start it: bathy cache start other." in json.loads(result.stdout)["unseen"]
    refused(bathy(report, "--source", "none"), UsageError, "no source 'none' is served")


def test_each_table_of_a_report_is_printed_as_csv_by_its_key(bathy: Bathy, daemon: FakeDaemon) -> None:
    sources, ssd = (bathy("io", "-o", "csv", *words).stdout.splitlines()[0] for words in ((), ("--table", "ssd")))
    assert sources.startswith("source,cache,cache_read_bytes,")
    assert ssd.startswith("cache,ssd_write_bytes,")
    assert bathy("stats", "-o", "csv", "--table", "requests").stdout.startswith("source,cache,pending,")
    for words in ((), ("--watch",)):
        wrong = bathy("io", "-o", "csv", "--table", "x", *words)
        refused(wrong, UsageError, "--table must be one of sources, ssd (got 'x')")


@pytest.mark.parametrize(
    "words", [("--table", "ssd"), ("--table", "ssd", "-o", "json"), ("-o", "json", "--table", "ssd")]
)
def test_a_table_of_what_is_not_csv_is_refused_before_a_daemon_is_asked(bathy: Bathy, words: tuple[str, ...]) -> None:
    refused(bathy("io", "no-such-cache", *words), UsageError, "--table is for --output csv (got --output ")


def test_a_watch_shows_intervals_and_survives_a_restart_of_the_daemon(
    bathy: Bathy, daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter([(100.0, 7), (102.0, 7), (1.0, 8)])

    def turn(*_: object) -> None:
        try:
            uptime_s, pid = next(answers)
        except StopIteration:
            # As a user ends it.
            raise KeyboardInterrupt from None
        daemon.answers["status"] = status(uptime_s=uptime_s, pid=pid)

    turn()
    monkeypatch.setattr(LocalHost, "sleep", turn)
    result = bathy("io", "--watch", "-o", "csv")
    assert result.exit_code == 130, result.exception
    heading, first, second = result.stdout.splitlines()
    assert heading.startswith("ended_ns,source,cache,cache_read_bytes_per_s")
    assert first.split(",")[3] == "0"
    assert float(second.split(",")[3]) == 30 * (1 << 20)


@pytest.mark.parametrize("report", ["files", "objects", "curve"])
def test_a_watched_list_is_printed_again_and_survives_a_daemon_that_does_not_answer(
    bathy: Bathy, daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch, report: str
) -> None:
    name = "rbd\\udata.1074b0dc51.0000000000000007__head_2BDD3ADD__2"

    def known(reads: int) -> dict[str, Any]:
        one = {"path": f"/current/2.5_head/{name}", "reads": {"requests": reads}, "writes": {"requests": 0}}
        points = [{"size_bytes": reads << 30, "hit_ratio": 0.5, "size_ratio": 1}]
        return {
            "sources": [{"directory": "/d", "name": "a", "files": [one], "curve": None}],
            "curve": {"points": points, "requests": 9, "sampled": 9},
        }

    answers = iter([known(7), ("the table is gone", "look at the SSD"), known(9)])

    def turn(*_: object) -> None:
        try:
            daemon.answers["files"] = daemon.answers["curve"] = next(answers)
        except StopIteration:
            raise KeyboardInterrupt from None

    turn()
    monkeypatch.setattr(LocalHost, "sleep", turn)
    result = bathy(report, "--watch", "-o", "csv")
    assert result.exit_code == 130, result.exception
    rows = list(csv.DictReader(result.stdout.splitlines()))
    column, factor = ("size_bytes", 1 << 30) if report == "curve" else ("reads", 1)
    assert [int(row[column]) for row in rows] == [7 * factor, 9 * factor]
    assert all(row["ended_ns"] for row in rows)
    assert "the table is gone; look at the SSD." in result.stderr


def curve_of_ceph0() -> dict[str, Any]:
    """Return an answer with one size."""
    points = [{"size_bytes": 1 << 30, "hit_ratio": 0.5, "size_ratio": 1}]
    of_source = {"name": "ceph0", "curve": {"points": points, "requests": 9, "sampled": 9}}
    return {"curve": None, "reason": "none", "sources": [of_source]}


def test_the_curve_of_a_source_asks_its_cache_alone(bathy: Bathy, daemon: FakeDaemon, fast: Places) -> None:
    daemon.answers["curve"] = curve_of_ceph0()
    fast.add(fast.new("other", "/dev/sdy"))
    with serving(fast.socket("other"), status=status(source("ceph1"))) as other:
        rows = list(csv.DictReader(bathy("curve", "--source", "ceph0", "-o", "csv").stdout.splitlines()))
        assert [(row["cache"], row["source"], row["hit_ratio"]) for row in rows] == [("fast", "ceph0", "0.5")]
        assert all(asked["query"] == "status" for asked in other.asked)


def test_a_watched_curve_of_a_source_that_ends_and_comes_back_goes_on(
    bathy: Bathy, daemon: FakeDaemon, fast: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon.answers["curve"] = curve_of_ceph0()
    answers = iter([status(source("ceph1")), status()])

    def turn(*_: object) -> None:
        try:
            daemon.answers["status"] = next(answers)
        except StopIteration:
            raise KeyboardInterrupt from None

    monkeypatch.setattr(LocalHost, "sleep", turn)
    result = bathy("curve", "--source", "ceph0", "--watch", "-o", "csv")
    assert result.exit_code == 130, result.exception
    assert len(list(csv.DictReader(result.stdout.splitlines()))) == 2
    assert "No source 'ceph0' is served; one of ceph1" in result.stderr


def test_the_objects_of_a_recording_are_not_watched(bathy: Bathy, daemon: FakeDaemon) -> None:
    refused(bathy("objects", "--recording", "last", "--watch"), UsageError, "--watch is not for the objects")


@pytest.mark.parametrize("interval", ["0s", "500ms", "2m", "x"])
def test_an_interval_out_of_bounds_is_refused(bathy: Bathy, daemon: FakeDaemon, interval: str) -> None:
    assert isinstance(bathy("io", "--watch", "--interval", interval).exception, UsageError)


def test_an_osd_that_is_waited_for_in_vain_keeps_no_other_from_its_cache(
    bathy: Bathy, fast: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    became: list[str] = []
    monkeypatch.setattr(os, "execv", lambda path, argv: became.append(path))
    missing = Source("gone", "/var/lib/ceph/osd/ceph-9")
    monkeypatch.setattr("bathyscope.cache.directory.not_activated", lambda config, host: [missing])
    monkeypatch.setattr("bathyscope.commands.cache._ACTIVATION_LIMIT_S", -1.0)
    result = bathy("run", "fast")
    assert result.exit_code == 0, result.exception
    assert "ceph-9: ceph-volume has not activated" in result.stderr
    assert result.stderr.rstrip().endswith("bathy cache source delete gone --cache fast")
    assert len(became) == 1


def test_run_becomes_the_daemon(bathy: Bathy, fast: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    became: list[tuple[str, tuple[str, ...]]] = []
    monkeypatch.setattr(os, "execv", lambda path, argv: became.append((path, argv)))
    assert bathy("run", "fast").exit_code == 0
    assert became == [(sys.executable, daemons.command(fast.config("fast")))]


def test_a_source_that_is_not_understood_keeps_no_cache_from_running(
    bathy: Bathy, fast: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    became: list[str] = []
    monkeypatch.setattr(os, "execv", lambda path, argv: became.append(path))
    document = fast.load("fast").rest | {"sources": [{"dir": "/a", "mode": "read-only", "size_bytes": "x"}]}
    fast.config("fast").write_text(json.dumps(document, indent=1))
    result = bathy("run", "fast")
    assert result.exit_code == 0, result.exception
    assert "not served: " in result.stderr
    assert "source 1" in result.stderr
    assert len(became) == 1


def test_bathyd_imports_nothing_from_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bathyscope").mkdir()
    (tmp_path / "bathyscope/__init__.py").write_text("print('planted')")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CacheError) as caught:
        daemons.bathyd(LocalHost(), "create", "missing.json")
    assert "planted" not in caught.value.message
    assert "missing.json" in caught.value.message


def test_two_changes_do_not_meet(fast: Places) -> None:
    with fast.changing():
        descriptor = os.open(fast.configs, os.O_RDONLY | os.O_DIRECTORY)
        with pytest.raises(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(descriptor)


_STAND_IN = """
import json, os, pathlib, signal, socketserver, sys
socket, mode = pathlib.Path(sys.argv[1]), sys.argv[2]
if mode == "refuses":
    print("bathyd: /srv/a: fsid is in use by another process", file=sys.stderr)
    print("hint: stop the OSD first", file=sys.stderr)
    sys.exit(2)
class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        for _ in self.rfile:
            answer = {"uptime_s": 1, "sources": [], "pid": os.getpid()}
            self.wfile.write(json.dumps({"ok": True, "answer": answer}).encode() + b"\\n")
server = socketserver.ThreadingUnixStreamServer(str(socket), Handler)
left = 2 if mode == "slow" else 1
def stop(*_):
    global left
    left -= 1
    if left == 0:
        socket.unlink()
        sys.exit(0)
signal.signal(signal.SIGTERM, stop)
server.serve_forever()
"""


@pytest.fixture
def stand_in(fast: Places, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], daemons.Daemon]:
    """Return a function that gives `fast` a program in bathyd's place."""

    def make(mode: str) -> daemons.Daemon:
        argv = (sys.executable, "-c", _STAND_IN, str(fast.socket("fast")), mode)
        monkeypatch.setattr(daemons, "command", lambda _config: argv)
        return daemons.Daemon(LocalHost(), fast, "fast")

    return make


def test_a_daemon_is_started_in_the_background_and_only_it_is_stopped(stand_in: Any) -> None:
    daemon, notes = stand_in("serves"), []
    daemon.start(notes.append)
    assert daemon.is_up()
    with pytest.raises(CacheError, match="running already"):
        daemon.start(notes.append)
    daemon.stop(notes.append)
    assert not daemon.is_up()
    assert notes == ["starting", "stopping"]
    with pytest.raises(CacheDownError):
        daemon.stop(notes.append)


def test_of_two_starts_at_once_one_serves_and_is_remembered(stand_in: Any) -> None:
    daemon, said = stand_in("serves"), []

    def start() -> None:
        try:
            daemon.start(lambda _: None)
        except CacheError as error:
            said.append(error.message)

    threads = [threading.Thread(target=start) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    try:
        assert said == ["the cache 'fast' is running already"]
        assert daemon.started().pid == daemon.status()["pid"]
    finally:
        daemon.stop(lambda _: None)


def test_a_daemon_that_hangs_delays_no_other_and_is_named(
    bathy: Bathy, daemon: FakeDaemon, fast: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daemons, "QUERY_TIMEOUT_S", 0.2)
    fast.add(fast.new("hung", "/dev/sdy"))
    with socket.socket(socket.AF_UNIX) as hung:
        hung.bind(str(fast.socket("hung")))
        hung.listen()
        report = json.loads(bathy("io", "-o", "json").stdout)
        assert any("the cache 'hung' does not answer" in remark for remark in report["unseen"])
        assert len(report["tables"][0]["rows"]) == 1
        metrics = bathy("metrics").stdout
        assert 'bathy_cache_up{cache="fast"} 1' in metrics
        assert 'bathy_cache_up{cache="hung"} 0' in metrics
        rows = {row["name"]: row["state"] for row in json.loads(bathy("list", "-o", "json").stdout)}
        assert rows["fast"] == "running"
        assert "does not answer" in rows["hung"]


def test_a_daemon_without_a_curve_has_all_its_other_metrics(bathy: Bathy, daemon: FakeDaemon) -> None:
    daemon.answers["curve"] = ("the table is gone", "look at the SSD")
    result = bathy("metrics")
    assert result.exit_code == 0
    assert 'bathy_cache_evictions_total{cache="fast"} 3' in result.stdout
    assert "curve_hit_ratio{" not in result.stdout
    assert "the table is gone; look at the SSD." in result.stderr


def test_what_the_daemon_says_when_it_refuses_is_the_error(stand_in: Any) -> None:
    with pytest.raises(CacheError, match="fsid is in use by another process") as caught:
        stand_in("refuses").start(lambda _: None)
    assert caught.value.hint == "stop the OSD first"


def test_a_start_that_is_interrupted_leaves_no_daemon(stand_in: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(LocalHost, "sleep", interrupt)
    daemon = stand_in("serves")
    with pytest.raises(KeyboardInterrupt):
        daemon.start(lambda _: None)
    assert daemon.started() != NOBODY
    assert not is_alive(LocalHost(), daemon.started())


def test_open_files_are_waited_for_unless_forced(stand_in: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemons, "STOP_LIMIT_S", 0.3)
    daemon = stand_in("slow")
    daemon.start(lambda _: None)
    with pytest.raises(CacheError, match="still serves files that are open") as caught:
        daemon.stop(lambda _: None)
    assert "--force" in str(caught.value.hint)
    assert daemon.is_up()
    monkeypatch.setattr(daemons, "STOP_LIMIT_S", 10.0)
    daemon.stop(lambda _: None, force=True)
    assert not daemon.is_up()


def test_a_daemon_that_bathy_did_not_start_is_not_stopped(daemon: FakeDaemon, fast: Places) -> None:
    with pytest.raises(CacheError, match=r"was not started by bathy \(process 7\)"):
        daemons.Daemon(LocalHost(), fast, "fast").stop(lambda _: None)


def test_systemd_starts_and_stops_where_it_knows_the_unit(fast: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemons.Daemon, "is_supervised", lambda _self: True)
    fails: set[str] = set()

    def systemctl(request: ProcessRequest) -> FakeAnswer:
        return FakeAnswer(exit_code=1, stderr=b"Job failed.\n") if request.argv[1] in fails else FakeAnswer()

    host = FakeHost(programs={"systemctl": systemctl})
    daemon = daemons.Daemon(host, fast, "fast")
    daemon.start(lambda _: None)
    daemon.stop(lambda _: None)
    asked = [request.argv[1:] for request in host.requests]
    assert asked == [(verb, "bathyd@fast.service") for verb in ("reset-failed", "start", "is-active", "stop")]
    # A unit that never failed has nothing to be reset.
    fails = {"reset-failed"}
    daemon.start(lambda _: None)
    fails = {"start"}
    with pytest.raises(CacheError, match=r"cannot start bathyd@fast.service: Job failed\.") as caught:
        daemon.start(lambda _: None)
    assert caught.value.hint == "journalctl -u bathyd@fast.service -n 20"
    # A cache that was started without systemd is not systemd's to stop.
    fails = {"is-active"}
    with pytest.raises(CacheDownError):
        daemon.stop(lambda _: None)


def test_caches_below_another_root_are_not_systemds(fast: Places) -> None:
    host = FakeHost(programs={"systemctl": FakeAnswer()})
    assert not daemons.Daemon(host, fast, "fast").is_supervised()
    assert host.requests == []


@pytest.mark.parametrize("said", [b"", b"nonsense\n", b"[]\n", b'{"ok": 1\n', b'{"ok": true, "answer": 3}\n', b"{}\n"])
def test_an_answer_that_is_none_is_an_error_of_ours(fast: Places, said: bytes) -> None:
    host = FakeHost(sockets={str(fast.socket("fast")): lambda _line: said})
    with pytest.raises(BathyscopeError):
        daemons.Daemon(host, fast, "fast").status()
