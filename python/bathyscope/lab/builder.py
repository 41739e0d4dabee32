"""Making and starting the parts of a lab, in the order in which they need each other.

What takes time runs side by side: the monitor and the OSDs are made at once, the manager starts as soon as the
monitor answers, and an OSD starts as soon as it is made and known to the monitor. All keys are made beforehand and
imported by the monitor's own mkfs; the cluster is commanded over one persistent session.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import time
import uuid
from collections.abc import Callable, Iterable

from bathyscope import interruption
from bathyscope.errors import EnvironmentError_
from bathyscope.files import FileLock
from bathyscope.host import Host
from bathyscope.lab import (
    devices,
    guest_bringup,
    guests,
    mgr,
    monitor,
    network,
    nodes,
    osds,
    pools,
    ports,
    releases,
    requirements,
)
from bathyscope.lab.bringup import UP_TIMEOUT_S, Bringup
from bathyscope.lab.conf import AIO_DEPTH
from bathyscope.lab.layout import Layout
from bathyscope.lab.spec import LabSpec
from bathyscope.lab.state import LabRecord, write_record

Progress = Callable[[str], None]

_SHARED_CPU = "All daemons and the load share this machine's CPUs; CPU-bound figures are lower than on real nodes."
_NAMES_ONLY = "Nodes are names only: all daemons share this machine's network and processes"


def prepare(
    spec: LabSpec,
    layout: Layout,
    progress: Progress,
    host: Host,
    *,
    choice_lock: Callable[[], FileLock],
    others: Callable[[], Iterable[LabRecord]],
) -> Bringup:
    """Check the machine, get the release, and write lab.json: every device is listed before it is made.

    Ports and network are chosen under `choice_lock`, beside those of `others`. Raises EnvironmentError_, LabError.
    """
    major, root = releases.find(spec, progress)
    machine = guests.prepare(progress) if spec.vms else None
    # Building a root file system takes minutes on a busy machine; the time is for the daemons.
    deadline = time.monotonic() + UP_TIMEOUT_S
    planned = tuple(devices.plan(spec, layout))
    _check_space(layout, devices.needed_bytes(spec, planned))
    # BlueFS opens the device with the data a second time.
    opened = [2 if device.use == "block" else 1 for device in planned if device.osd_id is not None]
    requirements.require_aio(sum(opened) * AIO_DEPTH)
    obstacle = nodes.obstacle() if spec.nodes else None
    caveats = [("lab_shared_cpu", _SHARED_CPU)]
    if obstacle is not None:
        caveats.append(("nodes_in_name_only", f"{_NAMES_ONLY} ({obstacle})."))
    with choice_lock():
        labs = list(others())
        networked = spec.nodes and obstacle is None
        record = LabRecord(
            name=spec.name,
            directory=str(layout.directory),
            created_ns=time.time_ns(),
            status="starting",
            spec=spec,
            fsid=str(uuid.uuid4()),
            ports=ports.choose(3 if spec.rgw else 2, {port for lab in labs for port in lab.ports}),
            network=network.choose({lab.network for lab in labs}, network.routed()) if networked else None,
            release=requirements.release_name(major),
            root=str(layout.root) if root else None,
            devices=planned,
            caveats=tuple(caveats),
            accelerator=machine.accelerator if machine else None,
        )
        write_record(layout, record)
    return Bringup(
        layout, record, major=major, root=root, machine=machine, host=host, progress=progress, deadline=deadline
    )


def build(bringup: Bringup) -> None:
    """Bring everything up; leaves lab.json with status `running`. Raises LabError."""
    layout = bringup.layout
    for directory in layout.made():
        directory.mkdir(mode=0o700)
    if bringup.root is not None:
        releases.mount_view(bringup.root, layout, bringup.journal)
        releases.write_wrappers(layout)
    devices.make_files(bringup)
    nodes.make(bringup)
    group = devices.Throttle(bringup)
    with (
        interruption.held(),
        concurrent.futures.ThreadPoolExecutor(max_workers=16, thread_name_prefix="bathy-lab") as pool,
    ):
        bringup.progress("making keys and maps")
        monmap = monitor.configure(bringup, pool)
        bringup.progress(f"making the monitor and {bringup.spec.osd_count} OSDs")
        ids = dict.fromkeys(device.osd_id for device in bringup.record.devices)
        made = [pool.submit(osds.make, bringup, monmap, osd_id) for osd_id in ids]
        try:
            monitor.make(bringup, monmap)
            with contextlib.closing(monitor.session(bringup)) as session:
                mgr.make(bringup)
                osds.register(bringup, session)
                osds.start(bringup, session, made, group)
                pools.make(bringup, session)
                guest_bringup.start(bringup, session)
                pools.wait_clean(bringup, session)
                guest_bringup.wait(bringup)
        except BaseException:
            # Nothing may be made once the clean-up begins; leaving the pool waits for what is under way.
            bringup.tools.cancel()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    devices.slow_down(bringup, group)
    bringup.update(status="running")


def _check_space(layout: Layout, needed: int) -> None:
    status = os.statvfs(layout.directory)
    free = status.f_bavail * status.f_frsize
    if free < needed:
        raise EnvironmentError_(
            f"{layout.directory} has {free >> 30} GiB free, the OSDs need {needed >> 30} GiB",
            hint="choose another place with --directory, or fewer devices",
        )
