"""OSDs start after their caches: the drop-ins, by which verb they are written, renewed and removed."""

from __future__ import annotations

import dataclasses
import errno
import os
from pathlib import Path
from typing import Any

import pytest

from bathyscope.cache.config import Places, Source
from bathyscope.cache.osd_units import drop_in, remove_drop_in, renew_drop_ins, write_drop_in
from bathyscope.errors import CacheError
from bathyscope.host import Completed, ProcessRequest
from bathyscope.host.fake import FakeAnswer, FakeHost
from bathyscope.host.local import LocalHost

from .daemons import FakeDaemon, source, status
from .verbs import Bathy, install_unit, refused

pytestmark = pytest.mark.usefixtures("found")
OSD = "/var/lib/ceph/osd/ceph-12"
EARLIER = "[Unit]\nRequires=bathyd@fast.service\nAfter=bathyd@fast.service\n"


def nobody(_: str) -> None:
    """Hear what is noted, and say nothing."""


def test_an_osd_does_not_wait_for_a_unit_that_is_not_there(
    bathy: Bathy, daemon: FakeDaemon, fast: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bathyscope.cache.osd_units.osd_of", lambda _: 12)
    (tmp_path / "data").mkdir()
    result = bathy("source", "create", "data", tmp_path / "data", "--cache", "fast")
    assert result.exit_code == 0, result.exception
    assert "systemd does not know bathyd@.service" in result.stderr
    assert not (tmp_path / "etc/systemd").exists()


def test_an_osd_starts_after_its_cache(places: Places, tmp_path: Path) -> None:
    install_unit(places)
    path = write_drop_in(places, FakeHost(), "fast", OSD, nobody, notices_changes=True)
    assert path == tmp_path / "etc/systemd/system/ceph-osd@12.service.d/bathyscope-cache.conf"
    lines = path.read_text().splitlines()
    # Without a limit of starts: those that its cache brings about must not leave the OSD down.
    after = ["After=bathyd@fast.service", "PartOf=bathyd@fast.service", "StartLimitIntervalSec=0"]
    # Without the cache it uses the plain directory, unless the cache would not notice that.
    assert lines[1:] == ["[Unit]", "Wants=bathyd@fast.service", *after]
    write_drop_in(places, FakeHost(), "fast", OSD, nobody, notices_changes=False)
    assert path.read_text().splitlines()[1:] == ["[Unit]", "Requires=bathyd@fast.service", *after]
    assert drop_in(places, "/srv/data") is None
    assert drop_in(places, "/var/lib/ceph/osd/ceph-12/current") is None


def test_a_source_that_goes_takes_its_drop_in_with_it(bathy: Bathy, daemon: FakeDaemon, fast: Places) -> None:
    install_unit(fast)
    fast.save(fast.load("fast").with_source(Source("ceph12", OSD)))
    path = write_drop_in(fast, FakeHost(), "fast", OSD, nobody, notices_changes=True)
    assert path is not None
    daemon.answers["status"] = status(source("ceph12"))
    result = bathy("source", "delete", "ceph12")
    assert result.exit_code == 0, result.exception
    assert f"removed: {path}" in result.stderr
    assert not path.parent.exists()
    assert fast.load("fast").sources == ()
    assert daemon.commands == [{"command": "stop_source", "name": "ceph12"}]


@pytest.fixture
def systemctl(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """Return the calls of a systemd that serves the places of a test; programs of ours are run."""
    calls: list[tuple[str, ...]] = []

    def run(_: LocalHost, request: ProcessRequest) -> Completed:
        calls.append(request.argv[1:])
        return Completed(request, 0, b"", b"", 0, 0)

    monkeypatch.setattr(Places, "are_systemds", True, raising=False)
    monkeypatch.setattr(LocalHost, "run", run)
    return calls


@pytest.mark.parametrize("verb", ["run", "release"])
def test_an_earlier_drop_in_is_renewed_by_a_start_and_by_a_release_of_the_cache(
    bathy: Bathy, fast: Places, monkeypatch: pytest.MonkeyPatch, systemctl: list[tuple[str, ...]], verb: str
) -> None:
    monkeypatch.setattr(os, "execv", lambda *_: None)
    monkeypatch.setattr("bathyscope.cache.directory.not_activated", lambda *_: [])
    install_unit(fast)
    for osd in (12, 13):
        fast.save(fast.load("fast").with_source(Source(f"ceph{osd}", f"/var/lib/ceph/osd/ceph-{osd}")))
    path, missing = (drop_in(fast, f"/var/lib/ceph/osd/ceph-{osd}") for osd in (12, 13))
    assert path is not None
    assert missing is not None
    path.parent.mkdir(parents=True)
    path.write_text(EARLIER)
    assert bathy(verb, "fast").exit_code == 0
    assert "Wants=bathyd@fast.service\nAfter=" in path.read_text()
    assert "StartLimitIntervalSec=0" in path.read_text()
    assert systemctl.count(("daemon-reload",)) == 1
    # Once: systemd does not read its units anew at each start. What an operator has removed is not made again.
    assert bathy(verb, "fast").exit_code == 0
    assert systemctl.count(("daemon-reload",)) == 1
    assert not missing.parent.exists()


@pytest.mark.parametrize("verb", ["start or release", "source create"])
def test_a_reload_of_systemd_that_failed_is_made_good_by_the_next_verb(
    places: Places, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    """systemd is one that refuses a reload once, and says then that it must be reloaded."""
    monkeypatch.setattr(Places, "are_systemds", True)
    install_unit(places)
    is_refusing, reloads, known = [True], list[str](), list[str]()
    path = drop_in(places, OSD)
    assert path is not None

    def systemctl(request: ProcessRequest) -> FakeAnswer:
        content = path.read_text()
        if request.argv[1] == "show":
            assert request.argv[-1] == "ceph-osd@12.service"
            return FakeAnswer(stdout=b"no\n" if known[-1:] == [content] else b"yes\n")
        reloads.append(request.argv[1])
        if is_refusing[0]:
            return FakeAnswer(exit_code=1, stderr=b"Refusing to reload, not enough space available on /run/systemd\n")
        known.append(content)
        return FakeAnswer()

    host, said = FakeHost(programs={"systemctl": systemctl}), list[str]()
    write_drop_in(places, host, "fast", OSD, said.append, notices_changes=True)
    assert len(said) == 1
    assert "run systemctl daemon-reload" in said[0]
    is_refusing[0] = False

    def again() -> None:
        if verb == "source create":
            write_drop_in(places, host, "fast", OSD, said.append, notices_changes=True)
        else:
            assert renew_drop_ins(places, host, "fast", [OSD], said.append, notices_changes=True) == []

    again()
    assert known == [path.read_text()]
    assert reloads == ["daemon-reload"] * 2
    # Once: systemd does not read its units anew at each start.
    again()
    assert reloads == ["daemon-reload"] * 2
    assert len(said) == 1


def test_a_start_lets_osds_require_a_cache_that_would_not_notice_changes(
    bathy: Bathy, fast: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "execv", lambda *_: None)
    monkeypatch.setattr("bathyscope.cache.directory.not_activated", lambda *_: [])
    install_unit(fast)
    config = fast.load("fast").with_source(Source("ceph12", OSD))
    cache = config.rest["cache"] | {"after_unclean": "verify"}
    fast.save(dataclasses.replace(config, rest=config.rest | {"cache": cache}))
    path = write_drop_in(fast, FakeHost(), "fast", OSD, nobody, notices_changes=True)
    assert path is not None
    assert bathy("run", "fast").exit_code == 0
    assert "Requires=bathyd@fast.service" in path.read_text()


def test_a_drop_in_that_cannot_be_renewed_keeps_no_cache_from_its_start(
    bathy: Bathy, fast: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    became: list[str] = []
    monkeypatch.setattr(os, "execv", lambda path, _argv: became.append(path))
    monkeypatch.setattr("bathyscope.cache.directory.not_activated", lambda *_: [])
    install_unit(fast)
    fast.save(fast.load("fast").with_source(Source("ceph12", OSD)))
    path = drop_in(fast, OSD)
    assert path is not None
    # In place of the file: it can be neither read nor replaced.
    (path / "inner").mkdir(parents=True)
    result = bathy("run", "fast")
    assert result.exit_code == 0, result.exception
    assert str(path) in result.stderr
    assert len(became) == 1


def test_what_systemd_does_not_take_is_said_with_the_command_and_raises_nothing(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Places, "are_systemds", True)
    install_unit(places)
    refusing = FakeHost(programs={"systemctl": FakeAnswer(exit_code=1, stderr=b"Access denied\n")})
    hanging = FakeHost(programs={"systemctl": FakeAnswer(duration_s=1e6)})

    def forbidden(_: ProcessRequest) -> FakeAnswer:
        raise OSError(errno.EPERM, "Operation not permitted")

    unable = FakeHost(programs={"systemctl": forbidden})
    for host, why in (
        (refusing, "Access denied"), (hanging, "no answer"), (FakeHost(), "is not installed"),
        (unable, "Operation not permitted"),
    ):  # fmt: skip
        said: list[str] = []
        path = write_drop_in(places, host, "fast", OSD, said.append, notices_changes=True)
        assert remove_drop_in(places, host, OSD, said.append) == path
        assert len(said) == 2
        assert all(why in text and text.endswith("run systemctl daemon-reload") for text in said)


@pytest.mark.parametrize("failing", ["systemd", "the file"])
def test_a_source_that_the_daemon_refuses_is_not_kept_whatever_else_fails(  # noqa: PLR0917 - fixtures
    bathy: Bathy, daemon: FakeDaemon, fast: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    def run(_: LocalHost, request: ProcessRequest) -> Completed:
        return Completed(request, 1, b"", b"Access denied\n", 0, 0)

    def remove(*_: Any) -> None:
        raise CacheError("the drop-in: read-only file system")

    (tmp_path / "data").mkdir()
    install_unit(fast)
    daemon.answers["start_source"] = ("fsid is in use by another process", "stop the OSD first")
    monkeypatch.setattr("bathyscope.cache.osd_units.osd_of", lambda _: 7)
    if failing == "systemd":
        monkeypatch.setattr(Places, "are_systemds", True)
        monkeypatch.setattr(LocalHost, "run", run)
    else:
        monkeypatch.setattr("bathyscope.cache.osd_units.remove_drop_in", remove)
    result = bathy("source", "create", "data", tmp_path / "data", "--cache", "fast")
    refused(result, CacheError, "fsid is in use")
    assert ("Access denied" if failing == "systemd" else "read-only file system") in result.stderr
    assert fast.load("fast").sources == ()
