"""A layer: one file behind one interface. It says what it needs, how to load it, and how to read the answer.

To add a layer (CephFS, RGW, omap, krbd, rbd-nbd), add a file that defines a `Layer` and register it in
`layers/__init__.py`; nothing else changes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Protocol

from bathyscope.host import ProcessRequest
from bathyscope.records import Histogram, Interval, Result
from bathyscope.sources.base import RawAnswer
from bathyscope.spec import StepSpec, Target


@dataclasses.dataclass(frozen=True, slots=True)
class PoolNeed:
    """A pool of our own for one device class. `replicas` None: the cluster's default."""

    name: str
    device_class: str
    replicas: int | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class ImageNeed:
    """An RBD image of our own that must be fully written before it is read."""

    pool: str
    name: str
    size_bytes: int
    object_size_bytes: int


@dataclasses.dataclass(frozen=True, slots=True)
class ObjectsNeed:
    """Objects that a read step expects to find, written by a prefill request of the layer."""

    pool: str
    prefix: str
    total_bytes: int


@dataclasses.dataclass(frozen=True, slots=True)
class DiskNeed:
    """The working set of a disk that may be overwritten: the first `size_bytes` of it, written once a run."""

    path: str
    size_bytes: int


Need = PoolNeed | ImageNeed | ObjectsNeed | DiskNeed


@dataclasses.dataclass(frozen=True, slots=True)
class LayerContext:
    """What a layer may know: the target, the prefix of everything that is ours, and a scratch directory.

    `scratch` is inside `target.root` when that is set, and is the path as the tools see it.
    """

    target: Target
    prefix: str
    scratch: str


@dataclasses.dataclass(frozen=True, slots=True)
class LayerRows:
    """What the answers of one step say. The measured window is in ns since the epoch, None when it is not known."""

    results: tuple[Result, ...]
    intervals: tuple[Interval, ...]
    histograms: tuple[Histogram, ...]
    measured_start_ns: int | None = None
    measured_end_ns: int | None = None


class Layer(Protocol):
    """One layer of the ladder. All methods are pure."""

    name: str
    height: int
    needs_cluster: bool

    def check(self, step: StepSpec, context: LayerContext) -> str | None:
        """Return why the layer cannot run `step`, or None."""
        ...

    def needs(self, step: StepSpec, context: LayerContext) -> tuple[Need, ...]:
        """Return the pools, images and objects that must exist before `step`."""
        ...

    def prefill(self, need: Need, step: StepSpec, context: LayerContext) -> tuple[ProcessRequest, ...]:
        """Return the processes that write `need` in full; empty when there is nothing to write."""
        ...

    def plan(self, step: StepSpec, context: LayerContext) -> tuple[ProcessRequest, ...]:
        """Return the processes that make the load; all are started at the same moment."""
        ...

    def parse(self, run_id: str, step_index: int, step: StepSpec, answers: Sequence[RawAnswer]) -> LayerRows:
        """Return what the load processes reported. Raises ParseError."""
        ...
