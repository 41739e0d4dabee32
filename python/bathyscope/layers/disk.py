"""The disk layer: a file or block device, asynchronous direct I/O, in the disk's own control group.

What it says and does not say: writes are direct, not flushed, so a device with a volatile cache may acknowledge
them from there; Ceph flushes each commit. A device that anything has in use is not written to. The layer always
runs on this machine, with this machine's fio.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from bathyscope.host import ProcessRequest
from bathyscope.layers import common
from bathyscope.layers.base import DiskNeed, LayerContext, LayerRows, Need
from bathyscope.sources.base import RawAnswer
from bathyscope.sources.fio_command import Place
from bathyscope.spec import DiskTarget, StepSpec
from bathyscope.units import format_bytes

# witness → engine
_ENGINES = {"fio": "libaio", "io_uring": "io_uring"}

_ALIGN_BYTES = 1 << 20


class DiskLayer:
    """fio on the target's disk of the step's device class."""

    name = "disk"
    height = 0
    needs_cluster = False

    def check(self, step: StepSpec, context: LayerContext) -> str | None:
        """Return why the step cannot run: no such disk, too small, or not ours to overwrite."""
        disk = _disk(step, context)
        if disk is None:
            known = ", ".join(sorted(name or "all" for name in context.target.disks)) or "none"
            return f"the target names no disk for device class '{step.device_class}' (it has: {known})"
        if step.witness not in _ENGINES:
            return f"the disk layer has no witness '{step.witness}'; it has {', '.join(_ENGINES)}"
        if step.pattern.writes and not disk.destructive:
            return f"{disk.path} is not marked destructive: its content may not be overwritten"
        if disk.size_bytes is not None and disk.size_bytes < step.jobs * step.pattern.block_size_bytes:
            return f"{disk.path} is smaller than one block for each job"
        if step.working_set_bytes and disk.size_bytes and step.working_set_bytes > disk.size_bytes:
            asked, size = format_bytes(step.working_set_bytes), format_bytes(disk.size_bytes)
            return f"the working set of {asked} is larger than {disk.path} ({size})"
        return None

    def needs(self, step: StepSpec, context: LayerContext) -> tuple[Need, ...]:
        """Return the disk's working set: what was never written is answered without the medium."""
        disk = _disk(step, context)
        size_bytes = _working_set(step, disk) if disk is not None else None
        if disk is None or size_bytes is None or not disk.destructive:
            return ()
        return (DiskNeed(path=disk.path, size_bytes=size_bytes),)

    def prefill(self, need: Need, step: StepSpec, context: LayerContext) -> tuple[ProcessRequest, ...]:
        """Return the process that writes the working set once."""
        disk = _disk(step, context)
        if not isinstance(need, DiskNeed) or disk is None:
            return ()
        engine = {**_engine("libaio", disk), "size": need.size_bytes}
        # Outside of the disk's control group: writing it full is no part of the measurement.
        request = common.prefill("prefill-disk", engine, need.size_bytes, place=Place())
        return (dataclasses.replace(request, exclusive=(disk.path,)),)

    def plan(self, step: StepSpec, context: LayerContext) -> tuple[ProcessRequest, ...]:
        """Return one fio per job; several share the working set out between them."""
        disk = _disk(step, context)
        if disk is None:
            return ()
        # The disk's fio is this machine's, so it sees the scratch directory from outside of the target's root.
        scratch = (context.target.root or "") + context.scratch
        size_bytes = _working_set(step, disk)
        requests = []
        for job in range(step.jobs):
            engine = _engine(_ENGINES[step.witness], disk)
            if size_bytes is not None:
                share = size_bytes // step.jobs // step.pattern.block_size_bytes * step.pattern.block_size_bytes
                engine |= {"offset": job * share, "size": share} if step.jobs > 1 else {"size": size_bytes}
            place = Place(cgroup=disk.cgroup)
            request = common.load(step, job, context, engine, place=place, scratch=scratch)
            exclusive = (disk.path,) if step.pattern.writes else ()
            requests.append(dataclasses.replace(request, exclusive=exclusive))
        return tuple(requests)

    def parse(self, run_id: str, step_index: int, step: StepSpec, answers: Sequence[RawAnswer]) -> LayerRows:
        """Return the rows. With libaio the job's thread does all the work, so its CPU is reported."""
        return common.fio_rows(run_id, step_index, step, answers, own_cpu=True)


def _disk(step: StepSpec, context: LayerContext) -> DiskTarget | None:
    return context.target.disks.get(step.device_class)


def _working_set(step: StepSpec, disk: DiskTarget) -> int | None:
    """Return the bytes that the load may touch; None: all of a device whose size is not known."""
    if step.working_set_bytes is not None:
        return step.working_set_bytes
    if disk.size_bytes is None:
        return None
    # In whole pages of the device: a prefill must not be cut into tiny blocks by an odd size.
    return max(_ALIGN_BYTES, min(common.DEFAULT_WORKING_SET_BYTES, disk.size_bytes) // _ALIGN_BYTES * _ALIGN_BYTES)


def _engine(name: str, disk: DiskTarget) -> dict[str, str | int | float | None]:
    """Return the engine's options. A path that vanished must not be made anew as a file of that name."""
    return {
        "ioengine": name,
        # fio separates several files by colons.
        "filename": disk.path.replace("\\", "\\\\").replace(":", "\\:"),
        "direct": 1,
        "allow_file_create": 0,
        "fallocate": "none",
    }
