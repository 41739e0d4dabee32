"""The RADOS layer: fio over librados on prefilled objects, and `rados bench` as a cross-check.

The objects are those that an image of the same size would have, fully written, for reads and for writes: so the
step from RADOS to RBD compares the same accesses to the same objects. fio's engine counts a read of an object
that does not exist as a full read without an error, hence `touch_objects=0` and the prefill; whether bytes really
left the OSDs is known from their counter op_r_out_bytes.

fio's engine needs `conf=`: without a readable file it ends with a segmentation fault.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar

from bathyscope.errors import UsageError
from bathyscope.host import ProcessRequest
from bathyscope.layers import common
from bathyscope.layers.base import Layer
from bathyscope.layers.common import LayerContext
from bathyscope.layers.needs import Need, ObjectsNeed, pool_of
from bathyscope.load import LoadTables, rados_bench
from bathyscope.load.base import joined
from bathyscope.records import RawAnswer
from bathyscope.records.finding import LayerView
from bathyscope.spec import StepSpec
from bathyscope.spec.step import DEFAULT_OBJECT_BYTES, DEFAULT_WORKING_SET_BYTES
from bathyscope.units import format_size_short

_BENCH = "rados_bench"

# `rados bench` reads with the block size that it wrote with; beyond this many writes the preparation would take
# longer than the measurement.
_BENCH_READS_MAX = 16384


class RadosLayer(Layer):
    """fio with the rados engine, or rados bench, in a pool of our own."""

    view = LayerView(name="rados", title="RADOS", words="RADOS", place=10, slot=1, shape="circle", dash=(7, 2))
    load_generators: ClassVar[Mapping[str, str]] = {"fio": "rados", _BENCH: ""}
    axes = frozenset({"object_size", "temperature"})
    working_set_is_image = True

    def check(self, step: StepSpec, context: LayerContext) -> None:
        """Raise UsageError when the step cannot run."""
        if step.pattern.block_size_bytes > _object_bytes(step):
            raise UsageError(
                f"block_size must be at most object_size, {format_size_short(_object_bytes(step))} "
                f"(got {format_size_short(step.pattern.block_size_bytes)})"
            )
        if step.load_generator != _BENCH:
            return
        if step.pattern.op == "randrw":
            raise UsageError("rados bench does not mix reads and writes", hint="use the load generator fio for randrw")
        if context.target.pool is not None:
            raise UsageError(
                "rados bench cannot be used in the operator's pool: its objects do not say whose they are",
                hint="leave out --pool, or use fio",
            )
        if context.target.clients or context.target.client_host:
            raise UsageError(
                "rados bench runs on this machine only", hint="leave out --fio-server and --client-host, or use fio"
            )
        if step.pattern.reads and _share_bytes(step) // step.pattern.block_size_bytes > _BENCH_READS_MAX:
            raise UsageError(f"rados bench would need more than {_BENCH_READS_MAX} writes before it can read this way")

    def needs(self, step: StepSpec, context: LayerContext) -> tuple[Need, ...]:
        """Return the pool and the objects of each job; rados bench writes its own and needs them for reads only."""
        pool = pool_of(self.name, step, context)
        return (pool,) if _writes_its_own(step) else (pool, *self._objects(step, context))

    def working_set_bytes(self, step: StepSpec, context: LayerContext) -> int | None:  # noqa: ARG002 - the seam
        """Return the bytes of all jobs' objects."""
        return _share_bytes(step) * step.jobs

    def left_bytes(self, step: StepSpec, context: LayerContext) -> int:  # noqa: ARG002 - the seam
        """Return what a rados bench that writes leaves in the pool."""
        return _share_bytes(step) * step.jobs if _writes_its_own(step) else 0

    def plan(self, step: StepSpec, context: LayerContext) -> tuple[ProcessRequest, ...]:
        """Return one process for each job."""
        requests = []
        for job, objects in enumerate(self._objects(step, context)):
            if step.load_generator == _BENCH:
                requests.append(_bench(step, job, objects, context))
                continue
            engine = {
                "ioengine": self.load_generators[step.load_generator],
                **objects.options(context),
                "file_service_type": "random" if step.pattern.op.startswith("rand") else "sequential",
                "touch_objects": 0,
            }
            requests.append(common.load(step, job, context, engine))
        return tuple(requests)

    def parse(self, step_index: int, step: StepSpec, answers: Sequence[RawAnswer]) -> LoadTables:
        """Return the tables; rados bench has no histograms."""
        if step.load_generator != _BENCH:
            return common.fio_tables(step_index, step, answers)
        parts = []
        for answer in answers:
            rados_bench.check(answer)
            parts.append(rados_bench.parse(answer, step_index=step_index, client=common.client_name(answer)))
        return joined(parts)

    def _objects(self, step: StepSpec, context: LayerContext) -> list[ObjectsNeed]:
        """Return the objects of each job; sizes are in their names, so that steps with equal objects share them."""
        share, object_bytes = _share_bytes(step), _object_bytes(step)
        size = f"{format_size_short(share)}-obj{format_size_short(object_bytes)}"
        block_bytes = step.pattern.block_size_bytes if step.load_generator == _BENCH else None
        if block_bytes is not None:
            size = f"bench-{size}-bs{format_size_short(block_bytes)}"
        pool = common.pool_name(self.name, step, context)
        return [
            ObjectsNeed(pool, common.own_name(f"objects-{size}-{job}", context), share, object_bytes, block_bytes)
            for job in range(step.jobs)
        ]


def _writes_its_own(step: StepSpec) -> bool:
    return step.load_generator == _BENCH and not step.pattern.reads


def _object_bytes(step: StepSpec) -> int:
    return step.object_size_bytes or DEFAULT_OBJECT_BYTES


def _share_bytes(step: StepSpec) -> int:
    """Return the bytes of one job's objects: its share of the working set in whole objects."""
    share = (step.working_set_bytes or DEFAULT_WORKING_SET_BYTES) // step.jobs
    return max(1, share // _object_bytes(step)) * _object_bytes(step)


def _bench(step: StepSpec, job: int, objects: ObjectsNeed, context: LayerContext) -> ProcessRequest:
    """Return the rados bench of one job. A write must not disturb what a read step relies on: it has its own name."""
    mode = "write" if step.pattern.writes else "rand" if step.pattern.op == "randread" else "seq"
    return objects.bench(
        f"{_BENCH}-{job}",
        mode,
        context,
        block_bytes=step.pattern.block_size_bytes,
        seconds=max(1, math.ceil(step.runtime_s)),
        queue_depth=step.pattern.queue_depth,
        run_name=f"{objects.prefix}-w{step.repeat_index}" if mode == "write" else None,
    )


LAYER = RadosLayer()
