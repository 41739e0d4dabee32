"""A directory that is to become a source: who uses it, and the OSD that then starts after its cache."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
from pathlib import Path

from bathyscope import files
from bathyscope.cache.config import CacheConfig, Places, Source
from bathyscope.cache.daemon import UNIT_TEMPLATE, Daemon, unit
from bathyscope.errors import BathyscopeError, BusyError, CacheError, UsageError
from bathyscope.host import Host, ProcessRequest

_OSD = re.compile(r"/var/lib/ceph/osd/[^/]+-([0-9]+)")
# An OSD locks the first of them while it runs, bathyd all.
_LOCKED_NAMES = ("fsid", "block", "block.db", "block.wal")
_OWN_KIND = "fuse.bathyd"
_DROP_IN = """# Written by `bathy cache source create`, removed by `bathy cache source delete`.
[Unit]
Requires={unit}
After={unit}
"""


def osd_of(directory: str) -> int | None:
    """Return the number of the OSD whose data directory this is, as ceph-volume lays them out; None for others."""
    match = _OSD.fullmatch(directory)
    return None if match is None else int(match[1])


def checked_directory(text: str, configs: list[CacheConfig], host: Host) -> str:
    """Return the absolute path of a directory that can become a source. Raises UsageError, BusyError, CacheError."""
    path = Path(os.path.abspath(text))  # noqa: PTH100 - links are resolved below, and only above the directory itself
    try:
        path = path.parent.resolve(strict=True) / path.name
        if path.is_symlink():
            raise UsageError(f"{path} is a symbolic link", hint=f"name the directory itself: {path.resolve()}")
        if not path.is_dir():
            missing = "is no directory" if path.exists() else "does not exist"
            raise UsageError(f"{path} {missing}", hint="a source is a directory that exists")
    except OSError as error:
        raise UsageError(f"{text}: {error.strerror}", hint="a source is a directory that exists") from error
    for config in configs:
        for source in config.sources:
            other = Path(source.directory)
            if path == other:
                hint = f"bathy cache source delete {source.name} --cache {config.name}"
                raise UsageError(
                    f"{path} is the source '{source.name}' of the cache '{config.name}' already", hint=hint
                )
            if path.is_relative_to(other) or other.is_relative_to(path):
                hint = "a source must not lie within another one"
                raise UsageError(f"{path} overlaps {other}, the source '{source.name}'", hint=hint)
        for own in (config.ssd, str(config.rest.get("state", ""))):
            if own and Path(own).is_relative_to(path):
                hint = "choose a directory that does not hold the cache"
                raise UsageError(f"{own} of the cache '{config.name}' lies in {path}", hint=hint)
    _must_not_be_served(str(path), host)
    _must_be_idle(path)
    must_not_be_open(str(path))
    return str(path)


def must_not_be_dead(directory: str, cache: str, host: Host) -> None:
    """Raise CacheError for a directory whose daemon was killed: nobody reaches it until the mount is gone."""
    if _OWN_KIND in _mounts_on(directory, host):
        hint = f"bathy cache start {cache}, then stop it; or: umount -l {directory}"
        raise CacheError(f"{directory} still has the mount of a daemon that was killed", hint=hint)


def _must_not_be_served(directory: str, host: Host) -> None:
    """Raise BusyError for a directory that another bathyd serves, UsageError for another FUSE mount."""
    for kind in _mounts_on(directory, host):
        if kind == _OWN_KIND:
            raise BusyError(f"{directory} is served by another bathyd", hint="findmnt -t fuse.bathyd shows which")
        if kind.partition(".")[0] == "fuse":
            hint = "choose a directory, or the mount point of a local file system such as tmpfs, XFS or ext4"
            raise UsageError(f"{directory} is the mount point of a FUSE file system ({kind})", hint=hint)


def problem_of(daemon: Daemon) -> BathyscopeError | None:
    """Return what is wrong with a cache that is down: a dead mount, a configuration; None if nothing is."""
    try:
        for source in daemon.places.load(daemon.name).sources:
            must_not_be_dead(source.directory, daemon.name, daemon.host)
    except BathyscopeError as error:
        return error
    return None


def _mounts_on(directory: str, host: Host) -> list[str]:
    """Return the types of the file systems that are mounted on a directory. The directory itself is not asked."""
    found = []
    for line in host.read("/proc/self/mountinfo").decode("utf-8", "replace").splitlines():
        before, _, after = line.partition(" - ")
        point = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), before.split(" ")[4])
        if point == directory:
            found.append(after.partition(" ")[0])
    return found


def _must_be_idle(path: Path) -> None:
    """Raise BusyError while an OSD runs in the directory, CacheError where it cannot be known."""
    for name in _LOCKED_NAMES:
        try:
            # Not a device: it is not opened for writing without need.
            descriptor = os.open(path / name, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except PermissionError as error:
            raise CacheError(f"{path / name}: permission denied", hint="caches are root's: use sudo") from error
        except OSError:
            continue
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            osd = osd_of(str(path))
            hint = "stop the OSD first" + ("" if osd is None else f": systemctl stop ceph-osd@{osd}")
            raise BusyError(f"{path}: {name} is in use by another process", hint=hint) from None
        finally:
            os.close(descriptor)


def must_not_be_open(directory: str) -> None:
    """Raise BusyError while another process is in the directory: what it opened before the mount goes past the cache.

    Processes that may not be looked at are skipped, as are files opened by another path, such as a bind mount.
    """
    for process in Path("/proc").iterdir():
        if not process.name.isdecimal() or int(process.name) == os.getpid():
            continue
        if (opened := _opened_below(process, directory)) is not None:
            try:
                command = (process / "comm").read_text(encoding="utf-8", errors="replace").strip()
            except OSError:
                # It has ended meanwhile.
                continue
            hint = "close it there, or end what uses it; bathyd itself has open what others had open at a forced stop"
            raise BusyError(f"process {process.name} ({command}) has {opened} open", hint=hint)


def _opened_below(process: Path, directory: str) -> str | None:
    """Return a file or directory at or below `directory` that a process has open, mapped, or as its place."""
    links = [process / "cwd", process / "root"]
    for kind in ("fd", "map_files"):
        with contextlib.suppress(OSError):
            links += (process / kind).iterdir()
    for link in links:
        with contextlib.suppress(OSError):
            target = str(link.readlink())
            if target != directory and not target.startswith(directory + "/"):
                continue
            # The same path can be another file in the mounts of another process.
            if os.path.samestat(link.stat(), os.stat(target)):  # noqa: PTH116 - a text that the kernel gave
                return target
    return None


def drop_in(places: Places, directory: str) -> Path | None:
    """Return the file that makes the OSD of a directory wait for its cache; None for what is no OSD's directory."""
    osd = osd_of(directory)
    return None if osd is None else places.root / f"etc/systemd/system/ceph-osd@{osd}.service.d/bathyscope-cache.conf"


def write_drop_in(places: Places, host: Host, cache: str, directory: str) -> Path | None:
    """Make the OSD of a directory start after its cache, and return the file that says so. Raises CacheError.

    None for what is no OSD's directory, and where the cache's unit is not installed: the OSD could never start.
    """
    path = drop_in(places, directory)
    if path is None or not _is_unit_installed(places, cache):
        return None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write_file(path, _DROP_IN.format(unit=unit(cache)).encode(), mode=files.SHARED_FILE)
    except OSError as error:
        raise CacheError(f"{path}: {error.strerror}", hint="caches are root's: use sudo") from error
    _reload(places, host)
    return path


def _is_unit_installed(places: Places, cache: str) -> bool:
    directories = [
        places.root / place / "systemd/system" for place in ("etc", "run", "usr/local/lib", "usr/lib", "lib")
    ]
    return any((place / name).is_file() for place in directories for name in (UNIT_TEMPLATE, unit(cache)))


def remove_drop_in(places: Places, host: Host, directory: str) -> Path | None:
    """Undo `write_drop_in` and return the file that is gone; None when there was none."""
    path = drop_in(places, directory)
    if path is None or not path.exists():
        return None
    path.unlink()
    if not any(path.parent.iterdir()):
        path.parent.rmdir()
    _reload(places, host)
    return path


def _reload(places: Places, host: Host) -> None:
    if places.is_system and Path("/run/systemd/system").is_dir():
        host.run(ProcessRequest("systemctl daemon-reload", ("systemctl", "daemon-reload")))


def not_activated(config: CacheConfig, host: Host) -> list[Source]:
    """Return the OSDs whose directories ceph-volume has not filled yet, as it does when a machine starts."""
    osds = [source for source in config.sources if osd_of(source.directory) is not None]
    return [source for source in osds if not _is_activated(source.directory, host)]


def _is_activated(directory: str, host: Host) -> bool:
    # The mount of a daemon that was killed answers nothing; what is below it was served, so it is activated.
    return _OWN_KIND in _mounts_on(directory, host) or (Path(directory) / "whoami").exists()
