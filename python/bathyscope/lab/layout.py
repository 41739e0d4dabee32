"""Where a lab's files lie. One directory for each lab; everything that it writes is below it."""

from __future__ import annotations

import dataclasses
import os
import re
from pathlib import Path

from bathyscope.errors import UsageError
from bathyscope.files import cache_directory, state_directory

# sockaddr_un holds 108 bytes with the final zero; the longest socket name in a lab is
# run/ceph-client.bathy-xxxxxxxxxxxx.4194304.asok.
_SOCKET_PATH_MAX = 107
_LONGEST_SOCKET = "/run/ceph-client.bathy-0123456789ab.4194304.asok"
# Ceph expands $, cuts at # and ;, and splits CEPH_ARGS at blanks.
_PLAIN_PATH = re.compile(r"[\w./+@:=~-]+")


def labs_directory() -> Path:
    """Return the directory that has an entry for each lab of this user."""
    return state_directory() / "labs"


def roots_directory() -> Path:
    """Return the directory of the cached root file systems of other releases."""
    return cache_directory() / "roots"


class _Inside:
    """A path of this name inside the lab's directory."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, layout: Layout, _owner: type[Layout]) -> Path:
        return layout.directory / self._name


@dataclasses.dataclass(frozen=True, slots=True)
class Layout:
    """Paths inside one lab's directory."""

    directory: Path

    record = _Inside("lab.json")  # what the lab is
    journal = _Inside("journal.jsonl")  # what was made for it
    lock = _Inside("lock")  # held by whoever changes the lab
    conf = _Inside("ceph.conf")  # valid for daemons and clients, inside and outside a root file system
    unthrottled = _Inside("unthrottled.json")  # names the process that has made the devices quick, while they are
    run = _Inside("run")  # admin sockets
    log = _Inside("log")  # logs of the daemons
    keyrings = _Inside("keyrings")  # a keyring for each entity
    devices = _Inside("devices")  # files with the devices' data
    disks = _Inside("disks")  # mount of the simulated disks, a file for each
    caches = _Inside("caches")  # root of `cache.config.Places`, and the SSDs: each cache is named as its OSD
    scratch = _Inside("tmp")  # needed only while the lab comes up
    crash = _Inside("crash")  # crash reports of the daemons
    bin = _Inside("bin")  # wrappers of client programs, for a lab of another release
    mgr_modules = _Inside("mgr-modules")  # links to the manager's modules, so that one can be added for this lab alone
    ssh = _Inside("ssh")  # keys and configurations with which the nodes are reached
    root = _Inside("root")  # view of another release's root file system, with this directory visible inside

    def mark(self, name: str) -> Path:
        """Empty file by whose name the directory is known as the lab `name`: made first, removed last."""
        return self.directory / f".bathyscope-lab-{name}"

    def ssd(self, osd: str) -> Path:
        """File in place of the SSD of the cache of an OSD ("osd.3")."""
        return self.caches / f"{osd}.ssd"

    @property
    def disk_control(self) -> Path:
        """Control socket of the simulated disks."""
        return self.run / "simdisk.sock"

    def guest_agent(self, guest: str) -> Path:
        """Socket of the agent in a guest ("vm1")."""
        return self.run / f"{guest}.sock"

    @property
    def ssh_config(self) -> Path:
        """Configuration of ssh for the nodes."""
        return self.ssh / "config"

    @property
    def admin_keyring(self) -> Path:
        """Keyring of client.admin."""
        return self.keyrings / "client.admin.keyring"

    @property
    def s3_user(self) -> Path:
        """The user of the object gateway with its keys, as radosgw-admin reported it."""
        return self.keyrings / "s3-user.json"

    def data(self, daemon: str) -> Path:
        """Data directory of a daemon ("osd.3")."""
        return self.directory / "data" / daemon

    def made(self) -> list[Path]:
        """Every directory that a lab has from its start on."""
        inside = (
            self.run,
            self.log,
            self.keyrings,
            self.devices,
            self.disks,
            self.caches,
            self.scratch,
            self.crash,
            self.bin,
            self.mgr_modules,
            self.ssh,
        )
        return [*inside, self.directory / "data"]

    def check(self) -> None:
        """Raise UsageError when ceph.conf or a Unix socket cannot hold paths below this directory."""
        if not _PLAIN_PATH.fullmatch(str(self.directory)):
            raise UsageError(
                f"the lab directory {str(self.directory)!r} has characters with another meaning in ceph.conf",
                hint="use letters, digits and . _ - + @ : = ~ in --directory",
            )
        excess = len(os.fsencode(str(self.directory))) + len(_LONGEST_SOCKET) - _SOCKET_PATH_MAX
        if excess > 0:
            raise UsageError(
                f"the lab directory {self.directory} is {excess} bytes too long for Unix sockets below it",
                hint="choose a shorter one with --directory, or a shorter XDG_STATE_HOME",
            )
