"""The RBD layer: fio over librbd, one image and one fio process for each job.

One image each, because clients of one image fight for its exclusive lock; one process each, because several
librbd jobs in one fio hung. The engine of fio 3.33 takes no `conf` option but honours CEPH_CONF; on a remote
`fio --server` the server's own environment counts, so it must be started with CEPH_CONF where the cluster's
configuration is not /etc/ceph/ceph.conf.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from bathyscope.errors import UsageError
from bathyscope.host import ProcessRequest
from bathyscope.layers import common
from bathyscope.layers.base import Layer
from bathyscope.layers.common import LayerContext
from bathyscope.layers.needs import ImageNeed, Need, pool_of
from bathyscope.load import LoadTables
from bathyscope.load.fio_command import Options
from bathyscope.records import RawAnswer
from bathyscope.records.finding import LayerView
from bathyscope.spec import StepSpec
from bathyscope.spec.step import DEFAULT_OBJECT_BYTES, DEFAULT_WORKING_SET_BYTES
from bathyscope.units import format_size_short


class RbdLayer(Layer):
    """fio with the rbd engine on images of our own, fully written before they are used."""

    view = LayerView(name="rbd", title="RBD", words="RBD", place=20, slot=2, shape="triangle-up", dash=(3, 2))
    load_generators: ClassVar[Mapping[str, str]] = {"fio": "rbd"}
    axes = frozenset({"images", "image_size", "object_size", "temperature"})

    def check(self, step: StepSpec, context: LayerContext) -> None:  # noqa: ARG002 - the seam's signature
        """Raise UsageError when the step cannot run."""
        image_bytes, object_bytes = _image_bytes(step), step.object_size_bytes or DEFAULT_OBJECT_BYTES
        image = format_size_short(image_bytes)
        if step.working_set_bytes and step.offset_bytes + step.working_set_bytes > image_bytes:
            asked = format_size_short(step.working_set_bytes)
            if step.offset_bytes:
                raise UsageError(f"an image of {image} is too small for working sets of {asked} apart from each other")
            raise UsageError(f"working_set must be at most image_size, {image} (got {asked})")
        if image_bytes % object_bytes != 0:
            raise UsageError(
                f"image_size must be a multiple of object_size, {format_size_short(object_bytes)} (got {image})"
            )
        if step.pattern.block_size_bytes > image_bytes:
            asked = format_size_short(step.pattern.block_size_bytes)
            raise UsageError(f"block_size must be at most image_size, {image} (got {asked})")

    def needs(self, step: StepSpec, context: LayerContext) -> tuple[Need, ...]:
        """Return the pool, and an image for each job. Steps with equal images share them."""
        return (pool_of(self.name, step, context), *self._images(step, context))

    def working_set_bytes(self, step: StepSpec, context: LayerContext) -> int | None:  # noqa: ARG002 - the seam
        """Return what the load may touch of all images."""
        return (step.working_set_bytes or _image_bytes(step)) * step.jobs

    def plan(self, step: StepSpec, context: LayerContext) -> tuple[ProcessRequest, ...]:
        """Return one fio for each image."""
        return tuple(
            common.load(step, job, context, self._engine(step, image, context))
            for job, image in enumerate(self._images(step, context))
        )

    def warm(self, step: StepSpec, context: LayerContext) -> dict[ProcessRequest, int]:
        """Return one fio for each image, with the bytes that it reads."""
        size_bytes = step.working_set_bytes or _image_bytes(step)
        engines = {image.name: self._engine(step, image, context) for image in self._images(step, context)}
        return {
            common.read(f"warm-{name}-{step.offset_bytes}", engine, size_bytes, context): size_bytes
            for name, engine in engines.items()
        }

    def _engine(self, step: StepSpec, image: ImageNeed, context: LayerContext) -> Options:
        """Return fio's options that lead to what a step may touch of an image."""
        engine = {"ioengine": self.load_generators[step.load_generator], **image.options(context)}
        if step.working_set_bytes is not None:
            engine["size"] = step.working_set_bytes
        if step.offset_bytes:
            engine["offset"] = step.offset_bytes
        return engine

    def parse(self, step_index: int, step: StepSpec, answers: Sequence[RawAnswer]) -> LoadTables:
        """Return the tables."""
        return common.fio_tables(step_index, step, answers)

    def _images(self, step: StepSpec, context: LayerContext) -> list[ImageNeed]:
        """Return the image of each job. Its name carries what it is, so that other sizes are other images."""
        pool, size_bytes = common.pool_name(self.name, step, context), _image_bytes(step)
        object_bytes = step.object_size_bytes or DEFAULT_OBJECT_BYTES
        name = common.own_name(f"image-{format_size_short(size_bytes)}-obj{format_size_short(object_bytes)}", context)
        return [
            ImageNeed(pool, f"{name}-{job}", size_bytes, object_bytes, client_cache=context.client_cache)
            for job in range(step.jobs)
        ]


def _image_bytes(step: StepSpec) -> int:
    return step.image_size_bytes or DEFAULT_WORKING_SET_BYTES


LAYER = RbdLayer()
