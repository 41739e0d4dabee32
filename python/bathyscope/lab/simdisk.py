"""Simulated disks: one process serves those of a lab as files of a FUSE mount, and answers on a control socket.

Protocol and profiles are those of the crate `bathy-simdisk`. The files are made block devices by loop devices, so that
Ceph and the kernel see disks: rotating ones, with queues and counters.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bathyscope.errors import LabError
from bathyscope.fields import load_json
from bathyscope.host import SocketRequest
from bathyscope.host.local import LocalHost
from bathyscope.host.process import own_program

PROCESS = "simdisk"


def possible() -> bool:
    """Return whether this process may mount FUSE file systems, as far as can be known without trying."""
    return os.geteuid() == 0 and os.access("/dev/fuse", os.R_OK | os.W_OK)


@dataclasses.dataclass(frozen=True, slots=True)
class Disk:
    """One disk to serve: the drive that it is, and the file with its data, whose name is the disk's."""

    drive: str
    size_bytes: int
    backing: Path
    write_cache: bool | None = None

    def spec(self, seed: int) -> str:
        """Return the disk as the program takes it."""
        name, size = self.backing.name, self.size_bytes
        words = f"name={name},profile={self.drive},size={size},backing={self.backing},seed={seed}"
        return words if self.write_cache is None else f"{words},write-cache={'on' if self.write_cache else 'off'}"


def command(mount: Path, control: Path, disks: Sequence[Disk]) -> list[str]:
    """Return the program that serves `disks`, each as a file of its name in the mount."""
    words = [*own_program("bathyscope.simdisk", "--mount", str(mount), "--control", str(control))]
    for seed, disk in enumerate(disks, 1):
        words += ["--disk", disk.spec(seed)]
    return words


def ask(control: Path, **request: Any) -> dict[str, Any]:
    """Return the answer to a request ("op" and its arguments). Raises LabError when it is refused or nobody answers."""
    line = SocketRequest(PROCESS, str(control), json.dumps(request))
    try:
        answer: dict[str, Any] = load_json(LocalHost().exchange(line).line)
    except (OSError, ValueError) as error:
        hint = "bathy lab status shows what runs"
        raise LabError(f"the simulated disks do not answer ({error})", hint=hint) from error
    if not answer.pop("ok", False):
        raise LabError(f"the simulated disks refuse: {answer.get('error')}", hint=answer.get("hint"))
    return answer


def answers(control: Path) -> bool:
    """Return whether the disks are served: the control socket is the last thing that is made."""
    with contextlib.suppress(LabError):
        return control.exists() and bool(ask(control, op="stats"))
    return False
