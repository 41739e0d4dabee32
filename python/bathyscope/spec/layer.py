"""What a plan must know of a layer: its load generators, and the axes of the matrix that apply to it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from bathyscope.spec.target import Model

Axis = Literal["images", "image_size", "object_size", "temperature"]


class LayerTraits(Model):
    """The traits of one layer. The axes that are not named here (op, jobs, working_set, …) apply to every layer."""

    load_generators: tuple[str, ...] = Field(default=("fio",), min_length=1, description="the first is the default")
    axes: frozenset[Axis] = frozenset()
    working_set_is_image: bool = Field(
        default=False, description="without a working set of its own the layer touches as much as an image holds"
    )
