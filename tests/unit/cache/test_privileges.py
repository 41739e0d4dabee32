"""Without root: each verb says what it may not, with a hint, and writes nothing."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from bathyscope.cache import ssd
from bathyscope.cache.config import Places
from bathyscope.cache.daemon import Daemon
from bathyscope.cache.directory import checked_directory
from bathyscope.errors import BathyscopeError
from bathyscope.host.local import LocalHost

from .daemons import serving

_NOBODY = 65534

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory of root that anybody may look into, with a short path for sockets."""
    with tempfile.TemporaryDirectory(prefix="bathy-") as made:
        Path(made).chmod(0o755)
        yield Path(made)


@contextlib.contextmanager
def refused(place: Path) -> Iterator[None]:
    """Do something as nobody, which must be refused with a hint and leave the directory as it is."""
    before = sorted(place.rglob("*"))
    os.seteuid(_NOBODY)
    try:
        with pytest.raises(BathyscopeError, match="ermission denied") as error:
            yield
    finally:
        os.seteuid(0)
    assert error.value.hint
    assert sorted(place.rglob("*")) == before


def test_a_cache_is_not_made(place: Path) -> None:
    places = Places(place)
    with refused(place), places.changing():
        pass
    with refused(place):
        places.add(places.new("fast", "/dev/sdz"))
    with refused(place):
        ssd.create(LocalHost(), place / "fast.json", place / "ssd.img", 4 << 20, force=False)


def test_a_cache_of_root_is_neither_read_nor_asked(place: Path) -> None:
    places = Places(place)
    places.add(places.new("fast", "/dev/sdz"))
    with refused(place):
        places.load("fast")
    with serving(places.socket("fast")):
        places.socket("fast").chmod(0o600)
        with refused(place):
            Daemon(LocalHost(), places, "fast").status()


def test_a_directory_of_an_osd_becomes_no_source(place: Path) -> None:
    osd = place / "ceph-0"
    osd.mkdir(mode=0o755)
    (osd / "fsid").touch(mode=0o600)
    with refused(place):
        checked_directory(str(osd), [], LocalHost())
