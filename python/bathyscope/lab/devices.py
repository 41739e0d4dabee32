"""The devices of a lab: planned, made as files, served as simulated disks, attached, slowed down when all is up."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path

from bathyscope.host import outliving
from bathyscope.host.local import FOREIGN_VARIABLES
from bathyscope.host.process import ProcessIdentity
from bathyscope.lab import loop, requirements, simdisk, throttle
from bathyscope.lab.bringup import Bringup
from bathyscope.lab.layout import Layout
from bathyscope.lab.profile import SIMULATED_SENTENCE, THROTTLE_SENTENCE
from bathyscope.lab.spec import LabSpec, Use
from bathyscope.lab.state import LabDevice
from bathyscope.spec import DeviceLimit

_UNTHROTTLED = (
    "Devices are not slowed down (no root, no loop devices or no I/O control group): device classes differ in name "
    "only, and disk figures are this machine's."
)
_BUFFERED = "The file system beneath the lab has no direct I/O: device figures include this machine's page cache."


def plan(spec: LabSpec, layout: Layout) -> Iterator[LabDevice]:
    """Yield the devices of each OSD, and a spare one of each class, with which the disk layer is measured."""

    def device(osd_id: int | None, use: Use, device_class: str, node: str | None, name: str) -> LabDevice:
        backing = str(layout.devices / f"{name}.{device_class}")
        return LabDevice(
            osd_id=osd_id, use=use, device_class=device_class, node=node, backing=backing, uuid=str(uuid.uuid4())
        )

    for osd_id, osd_class, node in spec.osds():
        for use, device_class in spec.device_classes(osd_class).items():
            name = f"osd.{osd_id}" if use == "block" else f"osd.{osd_id}.{use}"
            yield device(osd_id, use, device_class, node, name)
    for group in spec.devices:
        yield device(None, "block", group.device_class, None, "spare")


def needed_bytes(spec: LabSpec, devices: Iterable[LabDevice]) -> int:
    """Return the disk space that the devices take at least."""
    sizes = [spec.size_bytes(device.use) for device in devices]
    # A sparse OSD needs about 0.3 GiB at first; a bench on it needs more.
    return sum(sizes if spec.preallocate else (min(size, 1 << 30) for size in sizes))


def make_files(bringup: Bringup) -> None:
    """Make what the devices consist of: files, served as simulated disks where a class is one."""
    spec, layout = bringup.spec, bringup.layout
    bringup.loops = spec.emulate and requirements.try_loop_device(layout.scratch / "loop-probe", bringup.journal)
    for device in bringup.record.devices:
        loop.create_file(Path(device.backing), spec.size_bytes(device.use), preallocate=spec.preallocate)
    if bringup.loops and simdisk.possible():
        _serve_disks(bringup)


def _serve_disks(bringup: Bringup) -> None:
    """Serve those devices that are simulated disks. Where FUSE is not permitted, all are left to the throttle."""
    layout, disks, devices = bringup.layout, [], []
    for device in bringup.record.devices:
        profile = bringup.spec.profiles[device.device_class]
        if profile.disk is None:
            devices.append(device)
            continue
        backing = Path(device.backing)
        disks.append(simdisk.Disk(profile.disk, bringup.spec.size_bytes(device.use), backing, profile.write_cache))
        devices.append(device.model_copy(update={"simulated": str(layout.disks / backing.name)}))
    if not disks:
        return
    bringup.progress(f"starting {len(disks)} simulated disks")
    bringup.journal.mount(layout.disks)
    started = outliving.start(
        simdisk.command(layout.disks, layout.disk_control, disks),
        log=layout.log / f"{simdisk.PROCESS}.out",
        announce=lambda identity: bringup.journal.process(simdisk.PROCESS, identity),
        without=FOREIGN_VARIABLES,
    )
    while not simdisk.answers(layout.disk_control):
        if started.child.poll() is not None:
            return
        bringup.tick("the simulated disks are not ready")
    bringup.children[simdisk.PROCESS] = started
    # Making and starting an OSD is not what is measured.
    simdisk.ask(layout.disk_control, op="timing", on=False)
    bringup.replace_devices(devices)


def attach(bringup: Bringup, device: LabDevice) -> LabDevice:
    """Make a block device of the file, where this machine can; return it as it is then."""
    if not bringup.loops:
        return device
    bringup.journal.loop(Path(device.file))
    path = loop.attach(Path(device.file))
    loop.set_rotational(path, rotational=bringup.spec.profiles[device.device_class].rotational)
    return device.model_copy(update={"device": path})


class Throttle:
    """The lab's control group; without one the lab goes on, unthrottled."""

    def __init__(self, bringup: Bringup) -> None:
        throttled = bringup.loops and any(device.simulated is None for device in bringup.record.devices)
        self.version = throttle.available() if throttled else None
        self.path: Path | None = None
        if self.version is None:
            return
        record = bringup.record
        path = throttle.group_path(throttle.group_name(record.name, record.fsid), self.version)
        bringup.journal.cgroup(path)
        with contextlib.suppress(OSError):
            throttle.create(path, self.version)
            self.path = path

    def join(self, identity: ProcessIdentity) -> None:
        """Put an OSD into the group, before it runs."""
        if self.path is not None:
            try:
                throttle.join(self.path, identity.pid)
            except OSError:
                # An OSD outside the group is unthrottled; then none may claim to be throttled.
                self.path = None

    def limit(self, bringup: Bringup) -> dict[str, DeviceLimit]:
        """Limit every device; return the limits by backing file. All or none: half a throttle is a wrong result."""
        limits: dict[str, DeviceLimit] = {}
        if self.path is None or self.version is None:
            return limits
        try:
            for device in bringup.record.devices:
                if device.device is not None and device.simulated is None:
                    limit = bringup.spec.profiles[device.device_class].limit
                    throttle.limit(self.path, self.version, loop.device_number(device.device), limit)
                    limits[device.backing] = limit
        except OSError:
            throttle.clear(self.path)
            self.path = None
            return {}
        return limits


def slow_down(bringup: Bringup, group: Throttle) -> None:
    """Make every device as slow as its profile, and write down what a reader of results must know of the devices."""
    limits = group.limit(bringup)
    devices = [device.model_copy(update={"limit": limits.get(device.backing)}) for device in bringup.record.devices]
    if any(device.simulated for device in devices):
        simdisk.ask(bringup.layout.disk_control, op="timing", on=True)
    caveats = [*bringup.record.caveats, *_emulation(bringup.spec, devices)]
    if any(device.device and not (device.simulated or loop.direct(device.device)) for device in devices):
        caveats.append(("buffered_devices", _BUFFERED))
    bringup.update(
        devices=tuple(devices),
        caveats=tuple(caveats),
        cgroup=str(group.path) if group.path else None,
        cgroup_version=group.version,
    )


def _emulation(spec: LabSpec, devices: Iterable[LabDevice]) -> Iterator[tuple[str, str]]:
    """Yield how the devices of each class are emulated."""
    by_way: dict[str, list[str]] = {"simulated": [], "throttled": [], "not": []}
    for name, device in {device.device_class: device for device in devices}.items():
        way = "simulated" if device.simulated else "throttled" if device.limit else "not"
        profile = spec.profiles[name]
        by_way[way].append(f"{name}: {profile.drive if device.simulated else profile.sentence()}")
    if by_way["simulated"]:
        yield "simulated_disks", f"{SIMULATED_SENTENCE} {'; '.join(by_way['simulated'])}."
    if by_way["throttled"]:
        yield "throttle_profile", f"{THROTTLE_SENTENCE} {'; '.join(by_way['throttled'])}."
    if by_way["not"]:
        yield "unthrottled", _UNTHROTTLED
