"""A lab for the time of one verb: brought up at its start, taken down at its end, whatever ends it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from bathyscope.commands.talk import say
from bathyscope.errors import BathyscopeError
from bathyscope.units import format_seconds

if TYPE_CHECKING:
    from bathyscope.lab import LabSpec, LabState


@contextlib.contextmanager
def own_lab(spec: LabSpec) -> Iterator[LabState]:
    """Yield a lab that nobody else uses. The lab of a verb that was killed, of the same name, is taken down first."""
    from bathyscope import lab as labs

    if spec.name in labs.list_labs():
        say(f"taking down the lab '{spec.name}' of an earlier start")
        labs.down(spec.name)
    began = time.monotonic()
    say(f"starting a real Ceph: {', '.join(f'{g.count} {g.device_class}' for g in spec.devices)} OSDs")
    try:
        state = labs.up(spec, lambda text: say(f"  {text}"))
        say(f"the cluster is up after {format_seconds(time.monotonic() - began)}")
        yield state
    finally:
        # `up` takes an unfinished lab down itself.
        if spec.name in labs.list_labs():
            say("taking the cluster down")
            try:
                labs.down(spec.name)
            except BathyscopeError as error:
                say(f"the lab could not be taken down: {error.message}; try: bathy lab down --name {spec.name}")
