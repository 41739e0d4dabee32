"""The RBD layer: fio over librbd, one image and one fio process for each job.

One image each, because clients of one image fight for its exclusive lock; one process each, because several
librbd jobs in one fio hung. The engine of fio 3.33 takes no `conf` option but honours CEPH_CONF; on a remote
`fio --server` the server's own environment counts, so it must be started with CEPH_CONF where the cluster's
configuration is not /etc/ceph/ceph.conf.
"""

from __future__ import annotations

from collections.abc import Sequence

from bathyscope.host import ProcessRequest
from bathyscope.layers import common
from bathyscope.layers.base import ImageNeed, LayerContext, LayerRows, Need, PoolNeed
from bathyscope.sources.base import RawAnswer
from bathyscope.spec import StepSpec
from bathyscope.units import format_size_short


class RbdLayer:
    """fio with the rbd engine on images of our own, fully written before they are used."""

    name = "rbd"
    height = 20
    needs_cluster = True

    def check(self, step: StepSpec, context: LayerContext) -> str | None:  # noqa: ARG002 - the seam's signature
        """Return why the step cannot run."""
        if step.witness != "fio":
            return f"the rbd layer has no witness '{step.witness}'"
        if (step.working_set_bytes or 0) > _image_bytes(step):
            return "the working set is larger than the image"
        if _image_bytes(step) % (step.object_size_bytes or common.DEFAULT_OBJECT_BYTES) != 0:
            return "the image is not a whole number of objects"
        if step.pattern.block_size_bytes > _image_bytes(step):
            return "the block is larger than the image"
        return None

    def needs(self, step: StepSpec, context: LayerContext) -> tuple[Need, ...]:
        """Return the pool, and an image for each job. Steps with equal images share them."""
        pool = common.pool_name(self.name, step, context)
        images = [_image(step, job, pool) for job in range(step.jobs)]
        return (PoolNeed(name=pool, device_class=step.device_class), *images)

    def prefill(self, need: Need, step: StepSpec, context: LayerContext) -> tuple[ProcessRequest, ...]:  # noqa: ARG002
        """Return the process that writes an image from its start to its end; it runs on this machine."""
        if not isinstance(need, ImageNeed):
            return ()
        engine = _engine(need, context)
        place = common.cluster_place(context)
        return (common.prefill(f"prefill-{need.name}", engine, need.size_bytes, place=place),)

    def plan(self, step: StepSpec, context: LayerContext) -> tuple[ProcessRequest, ...]:
        """Return one fio for each image."""
        pool = common.pool_name(self.name, step, context)
        requests = []
        for job in range(step.jobs):
            engine = _engine(_image(step, job, pool), context)
            if step.working_set_bytes is not None:
                engine["size"] = step.working_set_bytes
            place, client = common.cluster_place(context), common.fio_client(job, context)
            requests.append(common.load(step, job, context, engine, place=place, client=client))
        return tuple(requests)

    def parse(self, run_id: str, step_index: int, step: StepSpec, answers: Sequence[RawAnswer]) -> LayerRows:
        """Return the rows."""
        return common.fio_rows(run_id, step_index, step, answers)


def _image_bytes(step: StepSpec) -> int:
    return step.image_size_bytes or common.DEFAULT_WORKING_SET_BYTES


def _image(step: StepSpec, job: int, pool: str) -> ImageNeed:
    """Return the image of a job. Its name carries what it is, so that other sizes are other images."""
    size_bytes, object_bytes = _image_bytes(step), step.object_size_bytes or common.DEFAULT_OBJECT_BYTES
    name = f"image-{format_size_short(size_bytes)}-obj{format_size_short(object_bytes)}-{job}"
    return ImageNeed(pool=pool, name=name, size_bytes=size_bytes, object_size_bytes=object_bytes)


def _engine(image: ImageNeed, context: LayerContext) -> dict[str, str | int | float | None]:
    return {"ioengine": "rbd", "clientname": common.client_id(context), "pool": image.pool, "rbdname": image.name}
