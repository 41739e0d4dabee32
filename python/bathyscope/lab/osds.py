"""The OSDs of a lab: their file systems, their place in the cluster, their processes."""

from __future__ import annotations

import concurrent.futures
from pathlib import Path

from bathyscope import interruption
from bathyscope.host import CephSession
from bathyscope.lab import devices
from bathyscope.lab.bringup import Bringup, command_all
from bathyscope.lab.state import LabDevice


def make(bringup: Bringup, monmap: Path, osd_id: int | None) -> list[LabDevice]:
    """Make the devices of an OSD, and on them its file systems; None: the spare devices. Return them as they are."""
    made = [devices.attach(bringup, device) for device in bringup.record.devices if device.osd_id == osd_id]
    if osd_id is None:
        return made
    layout = bringup.layout
    data = layout.data(f"osd.{osd_id}")
    data.mkdir(parents=True)
    for device in made:
        (data / ("block" if device.use == "block" else f"block.{device.use}")).symlink_to(device.path)
    (uuid,) = (device.uuid for device in made if device.use == "block")
    # Without -f it forks, and the child that does the work would outlive both its parent and this program.
    bringup.tools.run(
        *("ceph-osd", "--mkfs", "-f", "-i", str(osd_id), "-c", str(layout.conf), "--no-mon-config"),
        *("--osd-uuid", uuid, "--monmap", str(monmap)),
    )
    return made


def register(bringup: Bringup, session: CephSession) -> None:
    """Make the OSDs known, on their nodes and with their classes."""
    osds = [d for d in bringup.record.devices if d.osd_id is not None and d.use == "block"]
    command_all(session, [{"prefix": "osd new", "uuid": d.uuid, "id": d.osd_id} for d in osds])
    weight = bringup.spec.osd_size_bytes / (1 << 40)
    command_all(
        session,
        [
            {"prefix": "osd crush add", "id": d.osd_id, "weight": weight, "args": [f"host={d.node}", "root=default"]}
            for d in osds
        ],
    )
    for group in bringup.spec.devices:
        ids = [str(d.osd_id) for d in osds if d.device_class == group.device_class]
        command_all(session, [{"prefix": "osd crush set-device-class", "class": group.device_class, "ids": ids}])


def start(
    bringup: Bringup,
    session: CephSession,
    made: list[concurrent.futures.Future[list[LabDevice]]],
    group: devices.Throttle,
) -> None:
    """Start each OSD when it is made; return when all are up and in."""
    done: list[LabDevice] = []
    left = set(made)
    while left:
        ready, left = concurrent.futures.wait(left, interruption.SOON_S, concurrent.futures.FIRST_COMPLETED)
        for entry in [future.result() for future in ready]:
            done += entry
            if entry[0].osd_id is not None:
                bringup.start(f"osd.{entry[0].osd_id}", before=group.join)
        bringup.tick("the OSDs are not made", pause_s=0.0)
    bringup.replace_devices(done)
    bringup.progress("waiting for the OSDs")
    while True:
        stat = session.json("mon", "osd stat")
        if stat["num_up_osds"] == stat["num_in_osds"] == bringup.spec.osd_count:
            return
        bringup.tick(f"only {stat['num_up_osds']} of {bringup.spec.osd_count} OSDs are up")
