"""A layer: one file that says what it is, what it needs, how to load it, and how to read the answer.

To add a layer (CephFS, RGW, omap, krbd, rbd-nbd), add a file with a `LAYER`. Plans, dry runs, the checks before a run,
the preparation, the ladder and the report then know it.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from typing import ClassVar

from bathyscope.errors import UsageError
from bathyscope.host import ProcessRequest
from bathyscope.layers.common import LayerContext
from bathyscope.layers.needs import Need
from bathyscope.load import LoadTables
from bathyscope.records import RawAnswer
from bathyscope.records.finding import LayerView
from bathyscope.spec import DiskTarget, StepSpec
from bathyscope.spec.layer import Axis, LayerTraits


class Layer(abc.ABC):
    """One layer of the ladder. Its traits are declared here and nowhere else; all methods are pure.

    `load_generators`: name in a plan → fio's I/O engine, empty for another program; the default first. `axes` are
    those of a plan that not every layer has. `working_set_is_image`: without a working set of its own it touches as
    much as an image holds, so that it compares with the layer of the images. `needs_cluster`: its load and its tools
    are those of the target's cluster; without it, this machine's.
    """

    view: ClassVar[LayerView]
    load_generators: ClassVar[Mapping[str, str]]
    axes: ClassVar[frozenset[Axis]] = frozenset()
    working_set_is_image: ClassVar[bool] = False
    needs_cluster: ClassVar[bool] = True

    @property
    def name(self) -> str:
        """The name that plans and records use."""
        return self.view.name

    @property
    def traits(self) -> LayerTraits:
        """What a plan must know of it."""
        return LayerTraits(
            load_generators=tuple(self.load_generators),
            axes=self.axes,
            working_set_is_image=self.working_set_is_image,
        )

    def check(self, step: StepSpec, context: LayerContext) -> None:  # noqa: B027 - most steps can be run
        """Raise UsageError when the layer cannot run `step` on this target."""

    def disk(self, step: StepSpec, context: LayerContext) -> DiskTarget | None:  # noqa: ARG002 - for subclasses
        """Return the disk of the target that the load touches itself; None: it goes through the cluster."""
        return None

    def needs(self, step: StepSpec, context: LayerContext) -> tuple[Need, ...]:  # noqa: ARG002 - for subclasses
        """Return what must exist before `step`, in the order in which it is made."""
        return ()

    def working_set_bytes(self, step: StepSpec, context: LayerContext) -> int | None:  # noqa: ARG002 - for subclasses
        """Return the bytes that the load of `step` can touch, all jobs together; None when that is not known."""
        return step.working_set_bytes

    def left_bytes(self, step: StepSpec, context: LayerContext) -> int:  # noqa: ARG002 - for subclasses
        """Return the bytes that the load itself leaves on the cluster beside the step's needs, one copy."""
        return 0

    def warm(self, step: StepSpec, context: LayerContext) -> dict[ProcessRequest, int]:  # noqa: ARG002 - for subclasses
        """Return the processes that read once in full what `step` reads, with the bytes that each reads.

        Raises UsageError when the layer has none.
        """
        raise UsageError(f"the {self.name} layer cannot warm caches", hint="leave it out: --layer rbd")

    @abc.abstractmethod
    def plan(self, step: StepSpec, context: LayerContext) -> tuple[ProcessRequest, ...]:
        """Return the processes that make the load; all are started at the same moment."""

    @abc.abstractmethod
    def parse(self, step_index: int, step: StepSpec, answers: Sequence[RawAnswer]) -> LoadTables:
        """Return what the load processes reported. Raises ParseError, ToolError."""
