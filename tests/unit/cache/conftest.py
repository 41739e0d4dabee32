from __future__ import annotations

import contextlib
import ctypes
import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from bathyscope.cache.config import Places
from bathyscope.cli import app
from bathyscope.lab import simdisk

from .daemons import FakeDaemon, serving


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Places:
    """Return places below a directory of this test, which the verbs use as well."""
    monkeypatch.setenv("BATHY_CACHE_ROOT", str(tmp_path))
    monkeypatch.delenv("NO_COLOR", raising=False)
    return Places(tmp_path)


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return what bathyd finds in every directory: nothing, until a test changes it."""
    found: dict[str, Any] = {"devices": [], "encrypted": None, "mounts_below": []}
    monkeypatch.setattr("bathyscope.cache.devices.bathyd", lambda *_words: json.dumps(found).encode())
    return found


@pytest.fixture
def bathy(places: Places) -> Callable[..., Result]:
    """Return a function that runs `bathy cache …`; an error of ours is the result's exception."""

    def run(*words: str) -> Result:
        return CliRunner().invoke(app, ["cache", *map(str, words)])

    return run


@pytest.fixture
def fast(places: Places) -> Places:
    """Return places with a cache `fast` without sources."""
    places.add(places.new("fast", "/dev/sdz"))
    return places


@pytest.fixture
def daemon(fast: Places) -> Iterator[FakeDaemon]:
    """Yield a daemon of `fast` that carries out every command."""
    done: dict[str, Any] = {key: {} for key in ("start_source", "stop_source", "set_mode", "set_size")}
    with serving(fast.socket("fast"), **done) as serving_:
        yield serving_


@contextlib.contextmanager
def _fuse_mount(directory: Path, user: int) -> Iterator[int]:
    """Mount a bathyd of `user` that answers nothing, and yield its device: closing that is the end of the daemon."""
    if not simdisk.possible():
        pytest.skip("FUSE needs root and /dev/fuse")
    libc = ctypes.CDLL(None, use_errno=True)
    directory.mkdir()
    device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    try:
        options = f"fd={device},rootmode=40000,user_id={user},group_id={user}".encode()
        if libc.mount(b"bathyd", os.fsencode(directory), b"fuse.bathyd", 0, options) != 0:
            pytest.skip(f"cannot mount: {os.strerror(ctypes.get_errno())}")
        yield device
    finally:
        # Who still waits is given an error.
        with contextlib.suppress(OSError):
            os.close(device)
        subprocess.run(["umount", "--lazy", directory], check=False, capture_output=True)


@pytest.fixture
def hung(tmp_path: Path) -> Iterator[Path]:
    """Yield a directory with the mount of a bathyd that answers nothing: whoever touches it waits in the kernel."""
    with _fuse_mount(tmp_path / "hung", 0):
        yield tmp_path / "hung"


@pytest.fixture
def dead(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """Yield a directory with the mount of a bathyd that was killed, which this user made."""
    (tmp_path / "way").mkdir()
    with _fuse_mount(tmp_path / "way" / "dead", request.param) as device:
        os.close(device)
        yield tmp_path / "way" / "dead"
