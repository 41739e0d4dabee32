"""What can become a source, and what is refused: by path, by file system, by who uses it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bathyscope.cache.config import Places, Source
from bathyscope.cache.directory import checked_directory, not_activated
from bathyscope.errors import BusyError, UsageError
from bathyscope.host.fake import FakeHost
from bathyscope.host.local import LocalHost

from .daemons import FakeDaemon
from .verbs import Bathy, refused

pytestmark = pytest.mark.usefixtures("found")


def test_directories_that_cannot_be_a_source_are_refused(bathy: Bathy, fast: Places, tmp_path: Path) -> None:
    for name in ("data/inner", "other"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("other")
    assert bathy("source", "create", "data", tmp_path / "data", "--cache", "fast").exit_code == 0
    for name, directory, problem in (
        ("data", "other", "has a source 'data' already"),
        ("more", "data", "is the source 'data'"),
        ("more", "data/inner", "overlaps"),
        ("more", ".", "overlaps"),
        ("more", "missing", "does not exist"),
        ("more", "missing/too", "No such file"),
        ("more", "file", "is not a directory"),
        ("more", "link", "is a symbolic link"),
        ("a/b", "other", "not a valid name of a source"),
    ):
        refused(bathy("source", "create", name, tmp_path / directory, "--cache", "fast"), UsageError, problem)
    refused(bathy("source", "create", "x", tmp_path / "other", "--cache", "none"), UsageError, "no cache 'none'")
    wrong = bathy("source", "create", "x", tmp_path / "other", "--cache", "fast", "--mode", "write-back")
    refused(wrong, UsageError, "--mode must be one of write-through")
    small = bathy("source", "create", "x", tmp_path / "other", "--cache", "fast", "--size", "63K")
    refused(small, UsageError, "at least 64.0 KiB")
    assert [one.name for one in fast.load("fast").sources] == ["data"]


def test_the_directory_of_the_cache_itself_is_no_source(fast: Places, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    config = fast.new("own", str(tmp_path / "disk/ssd.img"))
    with pytest.raises(UsageError, match=r"ssd.img of the cache 'own' lies in"):
        checked_directory(str(tmp_path / "disk"), [config], LocalHost())


def test_a_running_osd_is_named_with_the_command_that_stops_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "fsid").write_text("x")
    holder = (
        "import fcntl, sys; f = open(sys.argv[1], 'r+'); fcntl.lockf(f, fcntl.LOCK_EX); print(1, flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", holder, str(tmp_path / "fsid")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as osd:
        assert osd.stdout is not None
        osd.stdout.readline()
        monkeypatch.setattr("bathyscope.cache.directory.osd_of", lambda _: 3)
        with pytest.raises(BusyError, match="fsid is in use by another process") as caught:
            checked_directory(str(tmp_path), [], LocalHost())
        osd.communicate(b"\n")
    assert caught.value.hint == "stop the OSD first: systemctl stop ceph-osd@3"
    assert checked_directory(str(tmp_path), [], LocalHost()) == str(tmp_path)


@pytest.mark.parametrize("how", ["opened", "mapped", "worked in"])
def test_a_directory_that_a_process_is_in_is_no_source_and_is_not_started(
    bathy: Bathy, daemon: FakeDaemon, fast: Places, tmp_path: Path, how: str
) -> None:
    data = tmp_path / "data"
    (data / "inner").mkdir(parents=True)
    (data / "inner/file").write_bytes(b"x" * 4096)
    fast.save(fast.load("fast").with_source(Source("old", str(data))))
    holder = {
        "opened": "f = open('file')",
        "mapped": "import mmap; f = open('file'); m = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ); f.close()",
        "worked in": "",
    }[how] + "\nimport os\nif 'WORKED' not in os.environ: os.chdir('/')\nprint(1, flush=True); input()"
    environment = os.environ | ({"WORKED": "1"} if how == "worked in" else {})
    with subprocess.Popen(
        [sys.executable, "-P", "-c", holder], cwd=data / "inner", env=environment,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        process.stdout.readline()
        started = bathy("source", "start", "old")
        refused(started, BusyError, f"process {process.pid} (python")
        with pytest.raises(BusyError, match=f"has {data}/inner"):
            checked_directory(str(data), [], LocalHost())
        process.communicate(b"\n")
    assert daemon.commands == []
    assert bathy("source", "start", "old").exit_code == 0
    assert checked_directory(str(data), [], LocalHost()) == str(data)


def test_a_directory_that_another_bathyd_serves_is_busy(tmp_path: Path) -> None:
    (tmp_path / "a b").mkdir()
    mounts = f"36 35 0:44 / {tmp_path}/a\\040b rw shared:1 - fuse.bathyd bathyd rw\n"
    host = FakeHost(files={"/proc/self/mountinfo": mounts.encode()})
    with pytest.raises(BusyError, match="served by another bathyd"):
        checked_directory(str(tmp_path / "a b"), [], host)
    (tmp_path / "a").mkdir()
    assert checked_directory(str(tmp_path / "a"), [], host) == str(tmp_path / "a")


def test_a_directory_whose_mount_hangs_is_refused_without_a_touch(bathy: Bathy, fast: Places, hung: Path) -> None:
    refused(bathy("source", "create", "x", hung, "--cache", "fast"), BusyError, "served by another bathyd")
    # Relative to it, and with a trailing slash.
    refused(bathy("source", "create", "x", f"{hung.parent}/./{hung.name}/", "--cache", "fast"), BusyError, "bathyd")


def test_a_mount_point_can_be_a_source_unless_it_is_of_fuse(tmp_path: Path) -> None:
    def host(*kinds: str) -> FakeHost:
        mounts = [f"36 35 0:44 / {tmp_path} rw shared:1 - {kind} none rw\n" for kind in kinds]
        return FakeHost(files={"/proc/self/mountinfo": "".join(mounts).encode()})

    for kind in ("tmpfs", "xfs", "btrfs"):
        assert checked_directory(str(tmp_path), [], host(kind)) == str(tmp_path)
    for kind in ("fuse", "fuse.sshfs"):
        with pytest.raises(UsageError, match=rf"FUSE file system \({kind}\)"):
            checked_directory(str(tmp_path), [], host("tmpfs", kind))
    with pytest.raises(BusyError, match="served by another bathyd"):
        checked_directory(str(tmp_path), [], host("tmpfs", "fuse.bathyd"))


@pytest.mark.parametrize(
    ("name", "mounts", "problem"),
    [
        (b"\xff", b"", "is not valid UTF-8"),
        (b"d", b"36 35 0:44 / %s/d rw - nfs4 server:/x rw\n", "is on a network file system (nfs4"),
        (b"d", b"36 35 0:44 / / rw - ext4 x rw\n37 36 0:45 / %s rw - fuse.sshfs x rw\n", "is on a FUSE file system"),
        (b"d", b"36 35 0:44 / %s rw - proc proc rw\n", "is on a file system of the kernel (proc"),
    ],
)
def test_what_cannot_be_cached_becomes_no_source(  # noqa: PLR0917 - parameters and fixtures
    bathy: Bathy,
    fast: Places,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: bytes,
    mounts: bytes,
    problem: str,
) -> None:
    directory = os.fsdecode(os.fsencode(tmp_path) + b"/" + name)
    os.mkdir(directory)  # noqa: PTH102 - of bytes
    if mounts:
        monkeypatch.setattr(LocalHost, "read", lambda self, path: mounts.replace(b"%s", os.fsencode(tmp_path)))
    refused(bathy("source", "create", "data", directory, "--cache", "fast"), UsageError, problem)
    assert fast.load("fast").sources == ()


def test_an_osd_that_is_not_activated_yet_is_waited_for(places: Places, tmp_path: Path, monkeypatch: Any) -> None:
    config = places.new("fast", "/u").with_source(Source("a", str(tmp_path / "ceph-1"))).with_source(Source("b", "/b"))
    monkeypatch.setattr("bathyscope.cache.directory.osd_of", lambda path: 1 if "ceph-1" in path else None)
    mounts = f"36 35 0:44 / {tmp_path}/ceph-1 rw - tmpfs tmpfs rw\n"
    host = FakeHost(files={"/proc/self/mountinfo": mounts.encode()})
    assert not_activated(config, host) == [config.sources[0]]
    # The mount of a daemon that was killed, in which nothing can be looked up.
    mounts += f"37 36 0:45 / {tmp_path}/ceph-1 rw - fuse.bathyd bathyd rw\n"
    host.files["/proc/self/mountinfo"] = mounts.encode()
    assert not_activated(config, host) == []
    host.files["/proc/self/mountinfo"] = b""
    (tmp_path / "ceph-1").mkdir()
    (tmp_path / "ceph-1/whoami").write_text("1\n")
    assert not_activated(config, host) == []
    # ceph-volume makes the link to the device of BlueStore after all files.
    (tmp_path / "ceph-1/type").write_text("bluestore\n")
    assert not_activated(config, host) == [config.sources[0]]
    (tmp_path / "ceph-1/block").symlink_to("/dev/missing")
    assert not_activated(config, host) == []
