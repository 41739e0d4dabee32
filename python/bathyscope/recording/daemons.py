"""Finds the OSDs of a cluster that run on this machine, whoever started them: for their processor time and devices."""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from bathyscope.errors import BathyscopeError
from bathyscope.fields import as_dict, as_int, as_list, parsing
from bathyscope.host import Host, ProcessRequest
from bathyscope.host.process import ProcessIdentity, identity_of
from bathyscope.records import RawAnswer
from bathyscope.sources.cluster_map import bluefs_devices, single_device
from bathyscope.sources.facts import latest
from bathyscope.sources.osd_process import is_of_cluster, only_ones, osd_of
from bathyscope.spec import DaemonTarget
from bathyscope.spec.scope import Scope

_LIST = ProcessRequest("osd-processes", ("pgrep", "-x", "ceph-osd"), timeout_s=5.0)
_HOST_NAME = "/proc/sys/kernel/hostname"


def local_daemons(host: Host, answers: Sequence[RawAnswer], scope: Scope) -> tuple[DaemonTarget, ...]:
    """Return the OSDs of the scope that are processes of this machine. `answers` are those of the cluster's map.

    A process named ceph-osd says in its command line which OSD it is.
    """
    with contextlib.suppress(BathyscopeError):
        metadata = _metadata(answers)
        processes = list(_processes(host)) if metadata and scope.fsid else []
        numbers = collections.Counter(osd for osd, _ in processes)
        classes = {osd.osd: osd.device_class for osd in scope.osds}
        return only_ones(
            DaemonTarget(
                name=f"osd.{osd}",
                pid=identity.pid,
                start_ticks=identity.start_ticks,
                device=single_device(metadata[osd]),
                device_class=classes.get(osd) or None,
                bluefs_devices=bluefs_devices(metadata[osd]),
            )
            for osd, identity in sorted(processes, key=lambda process: process[0])
            if osd in metadata
            and _is_of_cluster(host, identity.pid, str(scope.fsid), metadata[osd], alone=numbers[osd] == 1)
        )
    return ()


def _processes(host: Host) -> Iterator[tuple[int, ProcessIdentity]]:
    """Yield (number of the OSD, process) of every OSD on this machine, of whatever cluster."""
    for pid in host.run(_LIST).stdout.decode("ascii", "replace").split():
        osd = osd_of(_text(host.read, f"/proc/{pid}/cmdline").split("\0"))
        identity = identity_of(host, int(pid))
        if osd is not None and identity is not None:
            yield osd, identity


def _metadata(answers: Sequence[RawAnswer]) -> dict[int, dict[str, Any]]:
    answer = latest(answers).get("osd_metadata")
    if answer is None:
        return {}
    with parsing("osd metadata"):
        return {as_int(as_dict(row)["id"]): as_dict(row) for row in as_list(answer.json())}


def _is_of_cluster(host: Host, pid: int, fsid: str, about: Mapping[str, Any], *, alone: bool) -> bool:
    return is_of_cluster(
        fsid,
        [_text(host.read, f"/proc/{pid}/{name}") for name in ("cgroup", "cmdline")],
        _text(host.read_own, pid, f"{about.get('osd_data', '')}/ceph_fsid").strip(),
        machine=_text(host.read, _HOST_NAME).strip(),
        reported=str(about.get("hostname", "")),
        alone=alone,
    )


def _text(read: Callable[..., bytes], *place: int | str) -> str:
    """Return what `read` finds at a place, as text; empty when it cannot be read."""
    try:
        return read(*place).decode("utf-8", "replace")
    except OSError:
        return ""
