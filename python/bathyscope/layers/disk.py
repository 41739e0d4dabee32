"""The disk layer: a file or block device, asynchronous direct I/O, in the disk's own control group.

What it measures and what it does not: writes are direct, not flushed, so a device with a volatile cache may acknowledge
them from there; Ceph flushes each commit. A device that anything has in use is not written to. The layer always
runs on this machine, with this machine's fio.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import ClassVar

from bathyscope.errors import UsageError
from bathyscope.host import ProcessRequest
from bathyscope.layers import common
from bathyscope.layers.base import Layer
from bathyscope.layers.common import LayerContext
from bathyscope.layers.needs import DiskNeed, Need, disk_options
from bathyscope.load import LoadTables, Place
from bathyscope.records import RawAnswer
from bathyscope.records.finding import LayerView
from bathyscope.spec import DiskTarget, StepSpec
from bathyscope.spec.step import DEFAULT_WORKING_SET_BYTES
from bathyscope.units import format_bytes

_ALIGN_BYTES = 1 << 20


class DiskLayer(Layer):
    """fio on the target's disk of the step's device class."""

    view = LayerView(name="disk", title="Disk", words="the disk", place=0, slot=0, shape="square", dash=(1, 0))
    load_generators: ClassVar[Mapping[str, str]] = {"fio": "libaio", "io_uring": "io_uring"}
    needs_cluster = False

    def check(self, step: StepSpec, context: LayerContext) -> None:
        """Raise UsageError for a disk that is not there, too small, or not ours to overwrite."""
        disk = self.disk(step, context)
        if disk is None:
            classes = ", ".join(sorted(name or "all" for name in context.target.disks)) or "none"
            raise UsageError(
                f"no disk is named for the device class '{step.device_class}' (named: {classes})",
                hint=f"name one: --disk {f'{step.device_class}=' if step.device_class else ''}PATH; "
                "or leave the disk layer out: --layer rados,rbd",
            )
        if step.pattern.writes and not disk.destructive:
            raise UsageError(
                f"the plan writes to {disk.path}, and its content may not be overwritten",
                hint="if what is on it may be lost: --destroy-disk-content; else leave the writes out of the plan",
            )
        if disk.size_bytes is not None and disk.size_bytes < step.jobs * step.pattern.block_size_bytes:
            raise UsageError(f"{disk.path} is smaller than one block for each job")
        if step.working_set_bytes and disk.size_bytes and step.working_set_bytes > disk.size_bytes:
            asked, size = format_bytes(step.working_set_bytes), format_bytes(disk.size_bytes)
            raise UsageError(f"the working set of {asked} is larger than {disk.path} ({size})")

    def disk(self, step: StepSpec, context: LayerContext) -> DiskTarget | None:
        """Return the target's disk of the step's device class."""
        return context.target.disks.get(step.device_class)

    def needs(self, step: StepSpec, context: LayerContext) -> tuple[Need, ...]:
        """Return the disk's working set: what was never written is answered without the medium."""
        disk, size_bytes = self.disk(step, context), self.working_set_bytes(step, context)
        if disk is None or size_bytes is None or not disk.destructive:
            return ()
        return (DiskNeed(path=disk.path, size_bytes=size_bytes),)

    def working_set_bytes(self, step: StepSpec, context: LayerContext) -> int | None:
        """Return the bytes that the load may touch; None: all of a device whose size is not known."""
        disk = self.disk(step, context)
        if step.working_set_bytes is not None or disk is None or disk.size_bytes is None:
            return step.working_set_bytes
        # In whole pages of the device: a prefill must not be cut into tiny blocks by an odd size.
        return max(_ALIGN_BYTES, min(DEFAULT_WORKING_SET_BYTES, disk.size_bytes) // _ALIGN_BYTES * _ALIGN_BYTES)

    def plan(self, step: StepSpec, context: LayerContext) -> tuple[ProcessRequest, ...]:
        """Return one fio per job; several share the working set out between them."""
        disk = self.disk(step, context)
        if disk is None:
            return ()
        # The disk's fio is this machine's, so it sees the scratch directory from outside of the target's root.
        outside = dataclasses.replace(context, scratch=context.target.outside(context.scratch))
        size_bytes = self.working_set_bytes(step, context)
        requests = []
        for job in range(step.jobs):
            engine = {"ioengine": self.load_generators[step.load_generator], **disk_options(disk.path)}
            if size_bytes is not None:
                share = size_bytes // step.jobs // step.pattern.block_size_bytes * step.pattern.block_size_bytes
                engine |= {"offset": job * share, "size": share} if step.jobs > 1 else {"size": size_bytes}
            request = common.load(step, job, outside, engine, place=Place(cgroup=disk.cgroup))
            exclusive = (disk.path,) if step.pattern.writes else ()
            requests.append(dataclasses.replace(request, exclusive=exclusive))
        return tuple(requests)

    def parse(self, step_index: int, step: StepSpec, answers: Sequence[RawAnswer]) -> LoadTables:
        """Return the tables. The job's thread does all the work, so its CPU is reported."""
        return common.fio_tables(step_index, step, answers, own_cpu=True)


LAYER = DiskLayer()
