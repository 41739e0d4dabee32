"""A directory that is to become a source, is one, or was one: what it lies on, who uses it, what is mounted over it."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from bathyscope import files
from bathyscope.cache.config import CacheConfig, Source
from bathyscope.cache.daemon import Daemon
from bathyscope.cache.osd_units import osd_of
from bathyscope.errors import BathyscopeError, BusyError, CacheError, UntrustedError, UsageError
from bathyscope.fields import last_line
from bathyscope.host import Completed, Host, ProcessRequest, Running

# An OSD locks the first of them while it runs, bathyd all.
_LOCKED_NAMES = ("fsid", "block", "block.db", "block.wal")
_OWN_KIND = "fuse.bathyd"
# What the kernel says of a mount without a daemon.
_DEAD = frozenset({errno.ENOTCONN, errno.ECONNABORTED, errno.ECANCELED})
# Of <sys/mount.h>.
_MNT_DETACH = 2


def checked_directory(text: str, configs: list[CacheConfig], host: Host) -> str:
    """Return the absolute path of a directory that can become a source. Raises UsageError, BusyError, CacheError."""
    try:
        text.encode()
    except UnicodeEncodeError:
        hint = "rename the directory, or mount it (mount --bind) on one whose path is UTF-8"
        raise UsageError(f"{os.fsencode(text)!r} is not valid UTF-8: no path of a source", hint=hint) from None
    path = Path(os.path.abspath(text))  # noqa: PTH100 - links are resolved below, and only above the directory itself
    with _existing(text):
        path = path.parent.resolve(strict=True) / path.name
    for config in configs:
        for source in config.entries:
            if not source.directory:
                # Of an entry that is not understood.
                continue
            other = Path(source.directory)
            if path == other:
                hint = f"bathy cache source delete {source.name} --cache {config.name}"
                raise UsageError(
                    f"{path} is the source '{source.name}' of the cache '{config.name}' already", hint=hint
                )
            if path.is_relative_to(other) or other.is_relative_to(path):
                hint = "a source must not lie within another one"
                raise UsageError(f"{path} overlaps {other}, the source '{source.name}'", hint=hint)
        for reserved in (config.ssd, str(config.rest.get("state", ""))):
            if reserved and Path(reserved).is_relative_to(path):
                hint = "choose a directory that does not hold the cache"
                raise UsageError(f"{reserved} of the cache '{config.name}' lies in {path}", hint=hint)
    # What is mounted is known without a touch of the directory, which may hang.
    _must_not_be_served(str(path), host)
    _must_be_local(str(path), host)
    with _existing(text):
        if path.is_symlink():
            raise UsageError(f"{path} is a symbolic link", hint=f"name the directory itself: {path.resolve()}")
        if not path.is_dir():
            missing = "is not a directory" if path.exists() else "does not exist"
            raise UsageError(f"{path} {missing}", hint="a source is a directory that exists")
    _must_be_idle(path)
    must_not_be_open(str(path))
    return str(path)


@contextlib.contextmanager
def _existing(directory: str) -> Iterator[None]:
    """Say of what the system refuses that the directory must exist. Raises UsageError."""
    try:
        yield
    except OSError as error:
        raise UsageError(f"{directory}: {error.strerror}", hint="a source is a directory that exists") from error


def must_not_be_dead(directory: str, cache: str, host: Host) -> None:
    """Raise CacheError for a directory whose daemon was killed: nobody reaches it until the mount is gone."""
    if _OWN_KIND in _mounts_on(directory, host):
        hint = f"bathy cache start {cache}, then stop it; or: umount -l {directory}"
        raise CacheError(f"{directory} still has the mount of a daemon that was killed", hint=hint)


# Of the kernel: what is below are no files that keep their bytes.
_KERNEL_KINDS = frozenset({
    "autofs", "binfmt_misc", "bpf", "cgroup", "cgroup2", "configfs", "debugfs", "devpts", "devtmpfs", "efivarfs",
    "fusectl", "mqueue", "nsfs", "proc", "rpc_pipefs", "securityfs", "selinuxfs", "sysfs", "tracefs",
})  # fmt: skip
# Of servers: others may change files without being seen here.
_NETWORK_KINDS = frozenset({
    "9p", "afs", "beegfs", "ceph", "cifs", "coda", "gfs2", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4",
    "ocfs2", "orangefs", "smb3", "smbfs", "vboxsf", "virtiofs",
})  # fmt: skip


def _must_be_local(directory: str, host: Host) -> None:
    """Raise UsageError for a directory whose file system cannot be cached."""
    kind, point = "", ""
    for mounted_kind, at in _mounts(host):
        if Path(directory).is_relative_to(at) and len(at) >= len(point):
            kind, point = mounted_kind, at
    what = (
        "a file system of the kernel" if kind in _KERNEL_KINDS
        else "a network file system" if kind in _NETWORK_KINDS
        else "a FUSE file system" if kind.partition(".")[0] in {"fuse", "fuseblk"}
        else None
    )  # fmt: skip
    if what is not None:
        hint = "choose a directory on a local file system, such as XFS, ext4 or tmpfs"
        raise UsageError(f"{directory} is on {what} ({kind}, mounted on {point})", hint=hint)


def release(directories: Sequence[str], cache: str, host: Host) -> dict[str, BathyscopeError]:
    """Take the mounts of a daemon that was killed from its directories, and return what keeps one from being plain.

    Nobody is kept out of the directories any more. The next start sees that the mounts are gone, and believes of what
    was being written nothing that it has not compared. All are asked at once: those of a daemon that hangs all hang.
    """
    failures: dict[str, BathyscopeError] = {}
    # Mounts may lie over each other.
    while mounted := [path for path in directories if path not in failures and _OWN_KIND in _mounts_on(path, host)]:
        asked: dict[str, Running] = {}
        for one in mounted:
            try:
                asked[one] = host.start(ProcessRequest("detach", (sys.executable, "-I", "-S", "-c", _DETACH_DEAD, one)))
            except BathyscopeError as error:
                failures[one] = error
        deadline_ns = host.monotonic_ns() + _ANSWER_LIMIT_S * 1e9
        for one, answer in asked.items():
            try:
                _must_be_dead(one, cache, answer.wait(max(0.0, (deadline_ns - host.monotonic_ns()) / 1e9)))
            except BathyscopeError as error:
                failures[one] = error
    return failures


# Asks and detaches by one descriptor: whoever can rename a directory on the way can lead the path elsewhere in between.
# Root made the mounts of bathyd; `fusermount` gives those of others the type that they ask for. A process of its own
# does it: a process cannot end while a thread of it waits in the kernel for a daemon that hangs.
_DETACH_DEAD = f"""import ctypes, os, sys
root = os.open(sys.argv[1], os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW)
with open(f"/proc/self/fdinfo/{{root}}") as about:
    number = next(line.split()[1] for line in about if line.startswith("mnt_id:"))
with open("/proc/self/mountinfo", errors="surrogateescape") as mounts:
    mount = next(line for line in mounts if line.split(" ")[0] == number).rstrip().partition(" - ")[2].split(" ")
is_there = os.readlink(f"/proc/self/fd/{{root}}") == sys.argv[1]
if not is_there or mount[0] != "{_OWN_KIND}" or "user_id=0" not in mount[-1].split(","):
    sys.exit("another mount than that of bathyd is there")
try:
    os.statvfs(root)
except OSError as error:
    if error.errno in {sorted(_DEAD)}:
        if ctypes.CDLL(None, use_errno=True).umount2(f"/proc/self/fd/{{root}}".encode(), {_MNT_DETACH}) != 0:
            sys.exit(os.strerror(ctypes.get_errno()))
    sys.exit(error.errno)
"""
_ANSWER_LIMIT_S = 10.0


def _must_be_dead(directory: str, cache: str, done: Completed | None) -> None:
    """Raise BusyError for a mount that a daemon serves, CacheError for one whose daemon hangs, or of another error."""
    if done is None:
        hint = f"end that daemon, or give it up: umount --force {directory}; then: bathy cache release {cache}"
        raise CacheError(f"{directory}: its daemon does not answer within {_ANSWER_LIMIT_S:.0f} s", hint=hint)
    if done.exit_code == 0:
        raise BusyError(f"{directory} is served by a daemon", hint=f"stop it: bathy cache stop {cache}")
    if done.exit_code not in _DEAD:
        why = last_line(done.stderr) if done.stderr else os.strerror(abs(done.exit_code))
        raise CacheError(f"{directory}: {why}", hint="look at the file system")


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
        # bathyd serves the others of a source that it does not understand.
        for source in daemon.places.load(daemon.name).sources:
            must_not_be_dead(source.directory, daemon.name, daemon.host)
    except BathyscopeError as error:
        return error
    return None


def _mounts_on(directory: str, host: Host) -> list[str]:
    """Return the types of the file systems that are mounted on a directory. The directory itself is not asked."""
    return [kind for kind, point in _mounts(host) if point == directory]


def _mounts(host: Host) -> Iterator[tuple[str, str]]:
    """Return type and mount point of all file systems, the lowest one first."""
    for line in host.read("/proc/self/mountinfo").decode("utf-8", "replace").splitlines():
        before, _, after = line.partition(" - ")
        point = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), before.split(" ")[4])
        yield after.partition(" ")[0], point


def _must_be_idle(path: Path) -> None:
    """Raise BusyError while an OSD runs in the directory, CacheError where it cannot be known."""
    for name in _LOCKED_NAMES:
        try:
            # Anybody who can write to the directory could have made it.
            descriptor = files.open_plain(path / name, os.O_RDWR)
        except PermissionError as error:
            raise CacheError(f"{path / name}: permission denied", hint="caches are root's: use sudo") from error
        except (OSError, UntrustedError):
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
                command = Path(f"/proc/{process.name}/comm").read_text(encoding="utf-8", errors="replace").strip()
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


def not_activated(config: CacheConfig, host: Host) -> list[Source]:
    """Return the OSDs whose directories ceph-volume has not filled yet, as it does when a machine starts."""
    osds = [source for source in config.sources if osd_of(source.directory) is not None]
    return [source for source in osds if not _is_activated(source.directory, host)]


def _is_activated(directory: str, host: Host) -> bool:
    # The mount of a daemon that was killed answers nothing; what is below it was served, so it is activated.
    if _OWN_KIND in _mounts_on(directory, host):
        return True
    # ceph-volume makes the link to the device of BlueStore last. The device need not be there.
    path = Path(directory)
    is_waiting_for_link = _is_bluestore(path) and not os.path.lexists(path / "block")
    return os.path.lexists(path / "whoami") and not is_waiting_for_link


def _is_bluestore(directory: Path) -> bool:
    with contextlib.suppress(OSError, BathyscopeError), os.fdopen(files.open_plain(directory / "type"), "rb") as file:
        return file.read(64).strip() == b"bluestore"
    return False
