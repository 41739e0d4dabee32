"""The units of OSDs behind caches, ceph-osd@N: the drop-in that makes one start after its cache, and starting it.

A drop-in is bathyscope-cache.conf in /etc/systemd/system/ceph-osd@N.service.d. `source create` writes it, a start and a
release of the cache renew one of an earlier version, `source delete` removes it.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from bathyscope import files
from bathyscope.cache.config import Places
from bathyscope.cache.daemon import UNIT_TEMPLATE, unit
from bathyscope.errors import CacheError, EnvironmentError_
from bathyscope.fields import last_line
from bathyscope.host import Host, ProcessRequest

_OSD = re.compile(r"/var/lib/ceph/osd/[^/]+-([0-9]+)")
# Without its cache an OSD uses the plain directory, and is stopped and restarted with the cache. A cache that cannot
# notice what was written past it is required instead. Each restart of the cache is a start of its OSD as well: these
# must not reach the limit of ceph-osd@.service, which would leave the OSD down.
_DROP_IN = """# Written by `bathy cache source create`, removed by `bathy cache source delete`.
[Unit]
{needs}={unit}
After={unit}
PartOf={unit}
StartLimitIntervalSec=0
"""
_SYSTEMD_LIMIT_S = 60.0


def osd_of(directory: str) -> int | None:
    """Return the number of the OSD whose data directory this is, as ceph-volume lays them out; None for others."""
    match = _OSD.fullmatch(directory)
    return None if match is None else int(match[1])


def start_osd(osd: int, host: Host) -> None:
    """Start the unit of an OSD, also if it failed too often. Raises CacheError."""
    for words in (("reset-failed",), ("start", "--no-block")):
        problem, _ = _systemctl(host, *words, f"ceph-osd@{osd}.service")
    if problem is not None:
        raise CacheError(f"ceph-osd@{osd}: {problem}", hint=f"systemctl status ceph-osd@{osd}")


def drop_in(places: Places, directory: str) -> Path | None:
    """Return the file that makes the OSD of a directory wait for its cache; None for what is no OSD's directory."""
    osd = osd_of(directory)
    return None if osd is None else places.root / f"etc/systemd/system/ceph-osd@{osd}.service.d/bathyscope-cache.conf"


def write_drop_in(
    places: Places, host: Host, cache: str, directory: str, note: Callable[[str], None], *, notices_changes: bool
) -> Path | None:
    """Make the OSD of a directory start after its cache, and return the file that says so. Raises CacheError.

    None for what is no OSD's directory, and where the cache's unit is not installed: the OSD could never start. A file
    that says so already is left as it is. `note` is told when systemd does not take the file.
    """
    path = drop_in(places, directory)
    if path is None or not _is_unit_installed(places, cache):
        return None
    if _write(path, cache, notices_changes=notices_changes) or _must_reload(places, host, [directory]):
        _reload(places, host, [path], note)
    return path


def renew_drop_ins(
    places: Places,
    host: Host,
    cache: str,
    directories: Sequence[str],
    note: Callable[[str], None],
    *,
    notices_changes: bool,
) -> list[CacheError]:
    """Write the files of OSDs as this version does, where there is one and it says something else.

    What keeps one from being written keeps no other, and is returned. systemd reads its units once for all of them.
    """
    failures: list[CacheError] = []
    written, present = False, dict[str, Path]()
    for directory in directories if _is_unit_installed(places, cache) else ():
        path = drop_in(places, directory)
        if path is None or not os.path.lexists(path):
            continue
        try:
            written |= _write(path, cache, notices_changes=notices_changes)
            present[directory] = path
        except CacheError as error:
            failures.append(error)
    if written or _must_reload(places, host, [*present]):
        _reload(places, host, [*present.values()], note)
    return failures


def _write(path: Path, cache: str, *, notices_changes: bool) -> bool:
    """Return whether a file had to be written, because it was not there or said something else. Raises CacheError."""
    content = _DROP_IN.format(unit=unit(cache), needs="Wants" if notices_changes else "Requires").encode()
    with contextlib.suppress(OSError):
        if files.read_bounded(path) == content:
            return False
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write_file(path, content, mode=files.SHARED_FILE)
    except OSError as error:
        hint = "caches are root's: use sudo" if isinstance(error, PermissionError) else "look at the file system"
        raise CacheError(f"{path}: {error.strerror}", hint=hint) from error
    return True


def remove_drop_in(places: Places, host: Host, directory: str, note: Callable[[str], None]) -> Path | None:
    """Undo `write_drop_in` and return the file that is gone; None when there was none. Raises CacheError."""
    path = drop_in(places, directory)
    if path is None or not path.exists():
        return None
    try:
        path.unlink()
        if not any(path.parent.iterdir()):
            path.parent.rmdir()
    except OSError as error:
        hint = f"remove it yourself: rm {path} && systemctl daemon-reload"
        raise CacheError(f"{path}: {error.strerror}", hint=hint) from error
    _reload(places, host, [path], note)
    return path


def _is_unit_installed(places: Places, cache: str) -> bool:
    directories = [places.root / name / "systemd/system" for name in ("etc", "run", "usr/local/lib", "usr/lib", "lib")]
    return any((directory / name).is_file() for directory in directories for name in (UNIT_TEMPLATE, unit(cache)))


def _must_reload(places: Places, host: Host, directories: Sequence[str]) -> bool:
    """Return whether systemd knows the units of these OSDs as they were before a reload that failed or was left out."""
    units = [f"ceph-osd@{osd}.service" for osd in map(osd_of, directories) if osd is not None]
    if not units or not places.are_systemds:
        return False
    problem, said = _systemctl(host, "show", "--property=NeedDaemonReload", "--value", *units)
    return problem is None and b"yes" in said.split()


def _reload(places: Places, host: Host, paths: Sequence[Path], note: Callable[[str], None]) -> None:
    """Make systemd read its units again. A failure is only noted: who is called to undo something has more to undo."""
    if not places.are_systemds:
        return
    problem, _ = _systemctl(host, "daemon-reload")
    if problem is not None:
        changed = ", ".join(map(str, paths))
        note(f"systemd does not know of the change of {changed} yet ({problem}): run systemctl daemon-reload")


def _systemctl(host: Host, *words: str) -> tuple[str | None, bytes]:
    """Return what kept systemd from an answer, or None, and the answer."""
    try:
        done = host.run(ProcessRequest(f"systemctl {words[0]}", ("systemctl", *words), timeout_s=_SYSTEMD_LIMIT_S))
    except (EnvironmentError_, OSError) as error:
        return str(error), b""
    if done.exit_code == 0:
        return None, done.stdout
    return "no answer" if done.timed_out else last_line(done.stderr), b""
