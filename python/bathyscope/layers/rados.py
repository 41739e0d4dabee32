"""The RADOS layer: fio over librados on prefilled objects, and `rados bench` as a second witness.

The objects are those that an image of the same size would have, fully written, for reads and for writes: so the
step from RADOS to RBD compares the same accesses to the same objects. fio's engine counts a read of an object
that does not exist as a full read without an error, hence `touch_objects=0` and the prefill; whether bytes really
left the OSDs is told by their counter op_r_out_bytes.

fio's engine needs `conf=`: without a readable file it ends with a segmentation fault.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from bathyscope.host import ProcessRequest
from bathyscope.layers import common
from bathyscope.layers.base import LayerContext, LayerRows, Need, ObjectsNeed, PoolNeed
from bathyscope.records import Interval, Result
from bathyscope.sources import rados_bench
from bathyscope.sources.base import RawAnswer
from bathyscope.spec import StepSpec
from bathyscope.units import format_size_short

DEFAULT_CONF = "/etc/ceph/ceph.conf"

# `rados bench` reads with the block size that it wrote with; beyond this many writes the preparation would take
# longer than the measurement.
_WITNESS_READS_MAX = 16384
_WITNESS_PREFILL_S = 3600


class RadosLayer:
    """fio with the rados engine, or rados bench, in a pool of our own."""

    name = "rados"
    height = 10
    needs_cluster = True

    def check(self, step: StepSpec, context: LayerContext) -> str | None:
        """Return why the step cannot run."""
        if step.witness not in ("fio", "rados_bench"):
            return f"the rados layer has no witness '{step.witness}'; it has fio and rados_bench"
        if step.pattern.block_size_bytes > _object_bytes(step):
            return "the block is larger than the object"
        return None if step.witness == "fio" else _check_witness(step, context)

    def needs(self, step: StepSpec, context: LayerContext) -> tuple[Need, ...]:
        """Return the pool and the objects of each job; the witness writes its own and needs them for reads only."""
        pool = common.pool_name(self.name, step, context)
        need = PoolNeed(name=pool, device_class=step.device_class)
        if step.witness == "rados_bench" and not step.pattern.reads:
            return (need,)
        share = _share_bytes(step)
        objects = [ObjectsNeed(pool=pool, prefix=_prefix(step, job), total_bytes=share) for job in range(step.jobs)]
        return (need, *objects)

    def prefill(self, need: Need, step: StepSpec, context: LayerContext) -> tuple[ProcessRequest, ...]:
        """Return the process that writes a job's objects in full."""
        if not isinstance(need, ObjectsNeed):
            return ()
        label = f"prefill-{need.prefix}"
        if step.witness == "rados_bench":
            return (_witness(step, label, "write", need.prefix, context, seconds=_WITNESS_PREFILL_S),)
        engine = {**_engine(step, need.prefix, context), "file_service_type": "sequential"}
        place, piece = common.cluster_place(context), _object_bytes(step)
        return (common.prefill(label, engine, need.total_bytes, place=place, piece_bytes=piece),)

    def plan(self, step: StepSpec, context: LayerContext) -> tuple[ProcessRequest, ...]:
        """Return one process for each job."""
        requests = []
        for job in range(step.jobs):
            if step.witness == "rados_bench":
                mode = "write" if step.pattern.writes else "rand" if step.pattern.op == "randread" else "seq"
                seconds = max(1, math.ceil(step.runtime_s))
                label, name = f"rados_bench-{job}", _prefix(step, job)
                # A write must not disturb what a read step relies on; the metadata goes by the run name.
                name = f"{name}-w{step.repeat_index}" if mode == "write" else name
                requests.append(_witness(step, label, mode, name, context, seconds=seconds))
                continue
            engine = _engine(step, _prefix(step, job), context)
            engine["file_service_type"] = "random" if step.pattern.op.startswith("rand") else "sequential"
            engine["touch_objects"] = 0
            place, client = common.cluster_place(context), common.fio_client(job, context)
            requests.append(common.load(step, job, context, engine, place=place, client=client))
        return tuple(requests)

    def parse(self, run_id: str, step_index: int, step: StepSpec, answers: Sequence[RawAnswer]) -> LayerRows:
        """Return the rows; the witness has no histograms."""
        if step.witness != "rados_bench":
            return common.fio_rows(run_id, step_index, step, answers)
        results: list[Result] = []
        intervals: list[Interval] = []
        for answer in answers:
            rados_bench.check(answer)
            result, rows = rados_bench.parse(run_id, step_index, answer, client=common.client_name(answer))
            results.append(result)
            intervals += rows
        start_ns = min((answer.started_ns for answer in answers), default=None)
        end_ns = max((answer.ended_ns for answer in answers), default=None)
        return LayerRows(tuple(results), tuple(intervals), (), measured_start_ns=start_ns, measured_end_ns=end_ns)


def _check_witness(step: StepSpec, context: LayerContext) -> str | None:
    """Return why rados bench cannot run the step."""
    if step.pattern.op == "randrw":
        return "rados bench does not mix reads and writes"
    if context.target.clients:
        return "rados bench has no remote clients"
    if step.pattern.reads and _share_bytes(step) // step.pattern.block_size_bytes > _WITNESS_READS_MAX:
        return f"rados bench would need more than {_WITNESS_READS_MAX} writes before it can read this way"
    return None


def _object_bytes(step: StepSpec) -> int:
    return step.object_size_bytes or common.DEFAULT_OBJECT_BYTES


def _share_bytes(step: StepSpec) -> int:
    """Return the bytes of one job's objects: its share of the working set in whole objects."""
    share = (step.working_set_bytes or common.DEFAULT_WORKING_SET_BYTES) // step.jobs
    return max(1, share // _object_bytes(step)) * _object_bytes(step)


def _prefix(step: StepSpec, job: int) -> str:
    """Return the name of a job's objects; it carries what they are, so that steps with equal ones share them."""
    size = f"{format_size_short(_share_bytes(step))}-obj{format_size_short(_object_bytes(step))}"
    if step.witness == "rados_bench":
        # What it reads has the block size that it was written with.
        size = f"bench-{size}-bs{format_size_short(step.pattern.block_size_bytes)}"
    return f"objects-{size}-{job}"


def _engine(step: StepSpec, prefix: str, context: LayerContext) -> dict[str, str | int | float | None]:
    return {
        "ioengine": "rados",
        "conf": context.target.conf or DEFAULT_CONF,
        "clientname": common.client_id(context),
        "pool": common.pool_name("rados", step, context),
        "filename_format": f"{prefix}.$filenum",
        "nrfiles": _share_bytes(step) // _object_bytes(step),
        "size": _share_bytes(step),
    }


def _witness(
    step: StepSpec, label: str, mode: str, run_name: str, context: LayerContext, *, seconds: int
) -> ProcessRequest:
    target = context.target
    access = ["-n", target.client]
    if target.conf is not None:
        access += ["-c", target.conf]
    if target.keyring is not None:
        access += ["--keyring", target.keyring]
    return rados_bench.command(
        label,
        mode,
        access=tuple(access),
        pool=common.pool_name("rados", step, context),
        seconds=seconds,
        queue_depth=step.pattern.queue_depth,
        block_size_bytes=step.pattern.block_size_bytes,
        object_size_bytes=_object_bytes(step),
        run_name=run_name,
        output=f"{context.scratch}/{label}.json",
        place=common.cluster_place(context),
        objects_max=_share_bytes(step) // _object_bytes(step),
    )
