"""Where a lab's files lie. One directory for each lab; everything that it writes is below it."""

from __future__ import annotations

import dataclasses
import os
import re
from pathlib import Path

from bathyscope.errors import UsageError

# sockaddr_un holds 108 bytes with the final zero; the longest socket name in a lab is
# run/ceph-client.bathy-xxxxxxxxxxxx.4194304.asok.
_SOCKET_PATH_MAX = 107
_LONGEST_SOCKET = "/run/ceph-client.bathy-0123456789ab.4194304.asok"
# Ceph expands $, cuts at # and ;, and splits CEPH_ARGS at blanks.
_PLAIN_PATH = re.compile(r"[\w./+@:=~-]+")


def labs_directory() -> Path:
    """Directory that has an entry for each lab of this user: $XDG_STATE_HOME/bathyscope/labs."""
    return _xdg("XDG_STATE_HOME", ".local/state") / "bathyscope" / "labs"


def roots_directory() -> Path:
    """Directory of the cached root file systems of other releases: $XDG_CACHE_HOME/bathyscope/roots."""
    return _xdg("XDG_CACHE_HOME", ".cache") / "bathyscope" / "roots"


def _xdg(variable: str, fallback: str) -> Path:
    value = os.environ.get(variable, "")
    # The XDG specification: a relative path is invalid and ignored.
    return Path(value) if value.startswith("/") else Path.home() / fallback


@dataclasses.dataclass(frozen=True, slots=True)
class Layout:
    """Paths inside one lab's directory."""

    directory: Path

    @property
    def record(self) -> Path:
        """lab.json: what the lab is."""
        return self.directory / "lab.json"

    @property
    def journal(self) -> Path:
        """journal.jsonl: what was made for it."""
        return self.directory / "journal.jsonl"

    @property
    def lock(self) -> Path:
        """Held by whoever changes the lab."""
        return self.directory / "lock"

    @property
    def conf(self) -> Path:
        """ceph.conf, valid for daemons and clients, inside and outside a root file system."""
        return self.directory / "ceph.conf"

    @property
    def lifted(self) -> Path:
        """Names the process that has lifted the throttle, while it is lifted."""
        return self.directory / "lifted.json"

    @property
    def run(self) -> Path:
        """Admin sockets."""
        return self.directory / "run"

    @property
    def log(self) -> Path:
        """Logs of the daemons."""
        return self.directory / "log"

    @property
    def keyrings(self) -> Path:
        """A keyring for each entity."""
        return self.directory / "keyrings"

    @property
    def devices(self) -> Path:
        """Backing files of the devices."""
        return self.directory / "devices"

    @property
    def scratch(self) -> Path:
        """Files that are needed only while the lab comes up."""
        return self.directory / "tmp"

    @property
    def crash(self) -> Path:
        """Crash reports of the daemons."""
        return self.directory / "crash"

    @property
    def bin(self) -> Path:
        """Wrappers of client programs, for a lab of another release."""
        return self.directory / "bin"

    @property
    def root(self) -> Path:
        """View of another release's root file system, with this directory visible inside."""
        return self.directory / "root"

    @property
    def admin_keyring(self) -> Path:
        """Keyring of client.admin."""
        return self.keyrings / "client.admin.keyring"

    def data(self, daemon: str) -> Path:
        """Data directory of a daemon ("osd.3")."""
        return self.directory / "data" / daemon

    def made(self) -> list[Path]:
        """Every directory that a lab has from its start on."""
        inside = (self.run, self.log, self.keyrings, self.devices, self.scratch, self.crash, self.bin)
        return [*inside, self.directory / "data"]

    def check(self) -> None:
        """Raise UsageError when ceph.conf or a Unix socket cannot hold paths below this directory."""
        if not _PLAIN_PATH.fullmatch(str(self.directory)):
            raise UsageError(
                f"the lab directory {str(self.directory)!r} has characters that mean something else in ceph.conf",
                hint="use letters, digits and . _ - + @ : = ~ in --directory",
            )
        excess = len(os.fsencode(str(self.directory))) + len(_LONGEST_SOCKET) - _SOCKET_PATH_MAX
        if excess > 0:
            raise UsageError(
                f"the lab directory {self.directory} is {excess} bytes too long for Unix sockets below it",
                hint="choose a shorter one with --directory, or a shorter XDG_STATE_HOME",
            )
