"""The layers of the ladder, from the disk up, and what a list of steps needs and starts."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Collection, Iterable, Sequence
from typing import TypeVar

from bathyscope import discovery
from bathyscope.host import ProcessRequest
from bathyscope.layers.base import Layer
from bathyscope.layers.common import LayerContext
from bathyscope.layers.needs import Action, MakeContext, Need
from bathyscope.load import LoadTables
from bathyscope.records.finding import LayerView
from bathyscope.spec import StepSpec
from bathyscope.spec.layer import LayerTraits
from bathyscope.spec.scope import Scope

__all__ = [
    "LAYERS",
    "Action",
    "Layer",
    "LayerContext",
    "LoadTables",
    "MakeContext",
    "Need",
    "batches",
    "discover",
    "needs_of",
    "planned",
    "traits",
    "under_test",
    "views",
    "warming",
]


_AT_ONCE = 4
T = TypeVar("T")


def discover() -> dict[str, Layer]:
    """Return every layer of this package by its name, from the disk up."""
    layers: dict[str, Layer] = discovery.members(sys.modules[__name__], "LAYER")
    return dict(sorted(layers.items(), key=lambda item: (item[1].view.place, item[0])))


LAYERS = discover()


def traits() -> dict[str, LayerTraits]:
    """Return what plans must know of the layers, by name."""
    return {name: layer.traits for name, layer in LAYERS.items()}


def views() -> tuple[LayerView, ...]:
    """Return what views show of the layers, from the disk up: findings carry them."""
    return tuple(layer.view for layer in LAYERS.values())


def needs_of(steps: Iterable[StepSpec], context: LayerContext) -> tuple[Need, ...]:
    """Return what `steps` need, each need once, in the order of the steps."""
    return tuple(dict.fromkeys(need for step in steps for need in LAYERS[step.layer].needs(step, context)))


def batches(jobs: Sequence[T]) -> list[Sequence[T]]:
    """Return processes that write or read things in full, in batches of those that run side by side."""
    return [jobs[first : first + _AT_ONCE] for first in range(0, len(jobs), _AT_ONCE)]


def under_test(scope: Scope, steps: Iterable[StepSpec]) -> tuple[int, ...]:
    """Return the OSDs under test by any of `steps`."""
    classes = {step.device_class for step in steps if LAYERS[step.layer].needs_cluster}
    return tuple(osd.osd for osd in scope.osds if osd.up and classes & {"", osd.device_class})


def warming(steps: Iterable[StepSpec], context: LayerContext) -> dict[ProcessRequest, int]:
    """Return the processes that read once in full what `steps` read, with the bytes that each reads."""
    reading = (step for step in steps if step.pattern.reads)
    return {
        request: size_bytes
        for step in reading
        for request, size_bytes in LAYERS[step.layer].warm(step, context).items()
    }


def planned(
    steps: Sequence[StepSpec], context: LayerContext, *, prefill: bool, warm: Collection[str]
) -> list[tuple[str, ProcessRequest]]:
    """Return (what it is for, process) for every process that `steps` start, in their order.

    It is for `prefill`, for the warming of a phase among `warm`, or for a step; the last two with the repeat.
    """
    fills = [need.fill(context) for need in needs_of(steps, context)] if prefill else []
    processes = [("prefill", request) for requests in fills for request in requests]
    for (repeat, phase), group in itertools.groupby(steps, lambda step: (step.repeat_index, step.phase)):
        block = list(group)
        if phase in warm:
            processes += [(f"warm-{phase}#{repeat}", request) for request in warming(block, context)]
        for step in block:
            requests = LAYERS[step.layer].plan(step, context)
            processes += [(f"{step.key}#{step.repeat_index}", request) for request in requests]
    return processes
