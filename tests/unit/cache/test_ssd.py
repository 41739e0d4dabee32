"""`bathy cache detach|attach|resize`: what is told to the daemon, what is written down, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from bathyscope.cache.config import Places
from bathyscope.cache.metrics import exposition
from bathyscope.cache.reports import report
from bathyscope.errors import BathyscopeError, CacheDownError, CacheError, UsageError

from .daemons import FakeDaemon, serving, status
from .test_reports import snapshot

Bathy = Callable[..., Result]


def refused(result: Result, kind: type[BathyscopeError], words: str) -> None:
    assert isinstance(result.exception, kind), result.output
    assert words in result.exception.message
    assert result.exception.hint


@pytest.fixture
def fast(places: Places, tmp_path: Path) -> Places:
    """Return places with a cache `fast` in a file."""
    (tmp_path / "ssd.img").write_bytes(b"cache")
    places.add(places.new("fast", str(tmp_path / "ssd.img")))
    return places


@pytest.fixture
def daemon(fast: Places, tmp_path: Path) -> Iterator[FakeDaemon]:
    """Yield a daemon of `fast` that carries out every command."""
    done: dict[str, Any] = {
        "detach": {"is_content_kept": True},
        "attach": {"ssd": str(tmp_path / "ssd.img"), "found": "clean: all that was cached is cached"},
        "resize": {"capacity_bytes": 199 << 30},
    }
    with serving(fast.socket("fast"), **done) as serving_:
        yield serving_


def test_what_is_detached_stays_so_until_it_is_attached(bathy: Bathy, daemon: FakeDaemon, fast: Places) -> None:
    before = fast.config("fast").read_bytes()
    result = bathy("detach", "fast")
    assert result.exit_code == 0, result.exception
    assert "what it has is used again" in result.stderr
    assert json.loads(fast.config("fast").read_text())["cache"]["is_detached"] is True
    result = bathy("attach", "fast", "-o", "json")
    assert json.loads(result.stdout)[0]["found"] == "clean: all that was cached is cached"
    assert fast.config("fast").read_bytes() == before
    assert daemon.commands == [{"command": "detach"}, {"command": "attach"}]


def test_a_command_whose_answer_was_lost_is_written_down_when_it_was_carried_out(
    bathy: Bathy, daemon: FakeDaemon, fast: Places, tmp_path: Path
) -> None:
    daemon.answers["detach"] = ("the cache has no SSD: it is detached already", "bathy cache attach fast")
    daemon.answers["status"] = status(attachment={"state": "attached"})
    refused(bathy("detach", "fast"), CacheError, "detached already")
    daemon.answers["status"] = status(attachment={"state": "detached"})
    assert bathy("detach", "fast").exit_code == 0
    assert fast.load("fast").is_detached
    refused(bathy("detach", "fast"), CacheError, "detached already")
    daemon.answers["attach"] = ("the cache has its SSD", "detach it first")
    refused(bathy("attach", "fast"), CacheError, "has its SSD")
    other = tmp_path / "other.img"
    other.write_bytes(b"")
    ssd = fast.load("fast").ssd
    daemon.answers["status"] = status(attachment={"state": "attached"}, ssd=ssd)
    refused(bathy("attach", "fast", other), CacheError, "has its SSD")
    assert fast.load("fast").is_detached
    assert bathy("attach", "fast").exit_code == 0
    assert (fast.load("fast").is_detached, fast.load("fast").ssd) == (False, ssd)


def test_another_ssd_is_written_down_when_the_daemon_has_taken_it(
    bathy: Bathy, daemon: FakeDaemon, fast: Places, tmp_path: Path
) -> None:
    (tmp_path / "other.img").touch()
    daemon.answers["attach"] = ("it holds ext4", "name another device")
    refused(bathy("attach", "fast", tmp_path / "other.img"), CacheError, "it holds ext4")
    assert fast.load("fast").ssd == str(tmp_path / "ssd.img")
    daemon.answers["attach"] = {"ssd": str(tmp_path / "other.img"), "found": "new"}
    assert bathy("attach", "fast", tmp_path / "other.img", "--force").exit_code == 0
    assert fast.load("fast").ssd == str(tmp_path / "other.img")
    asked = {"command": "attach", "ssd": str(tmp_path / "other.img")}
    assert daemon.commands == [asked | {"force": False}, asked | {"force": True}]


def test_the_ssd_of_another_cache_is_not_attached(
    bathy: Bathy, daemon: FakeDaemon, fast: Places, tmp_path: Path
) -> None:
    (tmp_path / "two.img").touch()
    fast.add(fast.new("two", str(tmp_path / "two.img")))
    refused(bathy("attach", "fast", tmp_path / "two.img"), UsageError, "the SSD of the cache 'two'")
    refused(bathy("attach", "fast", tmp_path / "none"), UsageError, "does not exist")
    refused(bathy("attach", "fast", "--force"), UsageError, "--force is for another SSD")
    assert daemon.commands == []


def test_a_running_cache_gets_its_size_from_its_daemon(bathy: Bathy, daemon: FakeDaemon) -> None:
    result = bathy("resize", "fast", "--size", "200G")
    assert "takes 200 GiB" in result.stderr
    assert "room for 199 GiB" in result.stderr
    refused(bathy("resize", "fast", "--size", "0"), UsageError, "--size must be greater than 0 (got 0)")
    row = json.loads(bathy("resize", "fast", "--size", "200G", "-o", "json").stdout)[0]
    assert (row["size_bytes"], row["capacity_bytes"], row["is_running"]) == (200 << 30, 199 << 30, True)
    assert daemon.commands[0] == {"command": "resize", "size_bytes": 200 << 30}
    daemon.answers["resize"] = ("the SSD has 5 bytes", "name a size that the device has")
    refused(bathy("resize", "fast", "--size", "200G"), CacheError, "the SSD has 5 bytes")


def test_a_cache_that_is_stopped_gets_its_size_from_bathyd(
    bathy: Bathy, fast: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[str, ...]] = []

    def call(_host: object, *words: str) -> bytes:
        calls.append(words)
        return json.dumps({"is_cache": True, "capacity_bytes": 1 << 30}).encode()

    monkeypatch.setattr("bathyscope.cache.ssd.bathyd", call)
    assert bathy("resize", "fast", "--size", "1G").exit_code == 0
    assert calls == [("resize", str(fast.config("fast")), "--size", str(1 << 30))]
    assert bathy("detach", "fast").exit_code == 0
    refused(bathy("resize", "fast", "--size", "1G"), CacheError, "has no SSD")
    refused(bathy("detach", "fast"), CacheError, "detached already")
    assert bathy("attach", "fast").exit_code == 0
    refused(bathy("attach", "fast"), CacheError, "is not detached")
    assert len(calls) == 1


def test_another_ssd_needs_a_daemon_that_takes_it(bathy: Bathy, fast: Places, tmp_path: Path) -> None:
    (tmp_path / "other.img").touch()
    refused(bathy("attach", "fast", tmp_path / "other.img"), CacheDownError, "is not running")
    assert fast.load("fast").ssd == str(tmp_path / "ssd.img")


def test_what_becomes_of_the_ssd_is_reported() -> None:
    waiting = {"state": "waiting", "times_given_up": 3, "last_reason": "a flush did not end", "next_try_s": 20.5}
    failed = snapshot(status(attachment=waiting, problem="a flush did not end"))
    facts = dict(report("status", [(failed, None)]).facts)
    assert facts["fast SSD given up"] == "3 times since the start, the last time: a flush did not end"
    assert facts["fast is tried again"].startswith("in 20")
    text = exposition([failed], ["fast"])
    assert 'bathy_cache_ssd_state{cache="fast",state="waiting"} 1\n' in text
    assert 'bathy_cache_ssd_given_up_total{cache="fast"} 3\n' in text
    assert 'bathy_cache_ssd_next_try_seconds{cache="fast"} 20.5\n' in text
    detached = {"state": "detached", "times_given_up": 0, "last_reason": None, "next_try_s": None}
    finding = report("status", [(snapshot(status(attachment=detached)), None)])
    assert dict(finding.facts)["fast is detached"] == "nothing is cached; attach it: bathy cache attach fast"
    assert "Nothing is cached by: fast." in finding.sentence
