"""Devices of a source: they are shown, asked for, and written down as bathyd names them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from bathyscope.cache.config import Places
from bathyscope.errors import BathyscopeError, CacheError, UsageError

from .daemons import serving, source, status

Bathy = Callable[..., Result]
CONFIGURED = {"path": "/dev/ceph-x/osd-block-y", "identity": {"size_bytes": 100 << 30, "uuid": "LVM-abc"}}
BLOCK = {
    "name": "block", "target": "/dev/ceph-x/osd-block-y", "is_block_device": True, "is": "LVM-abc",
    "configured": CONFIGURED, "problem": None,
}  # fmt: skip
GONE = {
    "name": "block.db", "target": "/dev/gone", "is_block_device": False, "is": None, "configured": None,
    "problem": "block.db: /dev/gone: No such file or directory",
}  # fmt: skip
CREATE = ("source", "create", "data")


@pytest.fixture
def data(places: Places, tmp_path: Path) -> Path:
    """Return a directory, beside a cache `fast` without sources."""
    places.add(places.new("fast", "/dev/sdz"))
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


def refused(result: Result, kind: type[BathyscopeError], words: str, hint: str) -> None:
    assert isinstance(result.exception, kind), result.output
    assert words in result.exception.message
    assert hint in str(result.exception.hint)


def test_devices_are_shown_and_written_down_when_that_is_confirmed(
    bathy: Bathy, places: Places, data: Path, found: dict[str, Any]
) -> None:
    found["devices"] = [BLOCK, GONE]
    words = (*CREATE, data, "--cache", "fast")
    refused(bathy(*words), UsageError, "nobody can be asked whether to serve this device", "--yes")
    assert places.load("fast").sources == ()
    result = bathy(*words, "--yes")
    assert result.exit_code == 0, result.exception
    assert f"{data}/block leads to /dev/ceph-x/osd-block-y, 100 GiB: LVM-abc" in result.stderr
    assert f"not served: {data}/block.db: /dev/gone: No such file" in result.stderr
    assert dict(places.find_source("data", "fast", print)[1].other) == {"devices": {"block": CONFIGURED}}


def test_what_is_encrypted_is_cached_only_when_that_is_said(
    bathy: Bathy, places: Places, data: Path, found: dict[str, Any]
) -> None:
    found["encrypted"] = "block is encrypted by dm-crypt (osd-key)"
    words = (*CREATE, data, "--cache", "fast")
    refused(bathy(*words), UsageError, "block is encrypted by dm-crypt (osd-key), and the cache", "--plaintext")
    assert places.load("fast").sources == ()
    assert bathy(*words, "--plaintext").exit_code == 0
    assert dict(places.find_source("data", "fast", print)[1].other) == {"devices": {}, "plaintext": True}
    assert bathy("source", "delete", "data").exit_code == 0
    assert bathy(*words, "--mode", "pass-through").exit_code == 0
    # What allows it can be said later, and is kept.
    refused(bathy("source", "set", "data", "--devices", "--mode", "read-only"), UsageError, "dm-crypt", "--plaintext")
    assert bathy("source", "set", "data", "--plaintext", "--mode", "read-only").exit_code == 0
    assert bathy("source", "set", "data", "--devices").exit_code == 0
    assert dict(places.find_source("data", "fast", print)[1].other)["plaintext"] is True


def test_a_directory_with_file_systems_below_is_no_source(
    bathy: Bathy, places: Places, data: Path, found: dict[str, Any]
) -> None:
    found["mounts_below"] = [f"{data}/sub (ext4)"]
    refused(bathy(*CREATE, data, "--cache", "fast"), CacheError, f"{data}/sub (ext4)", "unmount it")
    assert places.load("fast").sources == ()


def test_other_devices_are_taken_while_the_source_is_stopped(
    bathy: Bathy, places: Places, data: Path, found: dict[str, Any]
) -> None:
    assert bathy(*CREATE, data, "--cache", "fast").exit_code == 0
    found["devices"] = [BLOCK]
    with serving(places.socket("fast"), status=status(source("data"))):
        refused(
            bathy("source", "set", "data", "--devices", "--yes"),
            CacheError,
            "is served",
            "bathy cache source stop data",
        )
    assert dict(places.find_source("data", "fast", print)[1].other) == {"devices": {}}
    refused(bathy("source", "set", "data", "--devices"), UsageError, "nobody can be asked", "--yes")
    assert bathy("source", "set", "data", "--devices", "--yes").exit_code == 0
    assert dict(places.find_source("data", "fast", print)[1].other) == {"devices": {"block": CONFIGURED}}


def test_what_is_no_file_is_not_opened_to_look_whether_an_osd_runs(
    bathy: Bathy, data: Path, found: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "outside").touch()
    (data / "fsid").symlink_to(tmp_path / "outside")
    (data / "block").symlink_to("/dev/null")
    result = bathy(*CREATE, data, "--cache", "fast")
    assert result.exit_code == 0, result.exception
