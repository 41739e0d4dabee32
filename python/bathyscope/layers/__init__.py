"""The layers of the ladder, from the disk up, and what a list of steps needs and starts."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
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
    "views",
]


_AT_ONCE = 4
T = TypeVar("T")


def discover() -> dict[str, Layer]:
    """Return every layer of this package by its name, from the disk up."""
    found: dict[str, Layer] = discovery.members(sys.modules[__name__], "LAYER")
    return dict(sorted(found.items(), key=lambda item: (item[1].view.place, item[0])))


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


def planned(steps: Sequence[StepSpec], context: LayerContext, *, prefill: bool) -> list[tuple[str, ProcessRequest]]:
    """Return (step key and repeat, process) for every process that `steps` start, fills before their first step."""
    found: list[tuple[str, ProcessRequest]] = []
    seen: set[Need] = set()
    for step in steps:
        layer = LAYERS[step.layer]
        new = [need for need in layer.needs(step, context) if prefill and need not in seen]
        seen.update(new)
        found += [("prefill", request) for need in new for request in need.fill(context)]
        found += [(f"{step.key}#{step.repeat_index}", request) for request in layer.plan(step, context)]
    return found
