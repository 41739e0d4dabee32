"""What is compared runs in turns, and is compared turn by turn: so what else a machine does meets all sides alike."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from benchmarks.daemons import stolen_s, waited_for_processors_s

from bathyscope.analysis import bootstrap

Found = TypeVar("Found")


def in_turns(sides: Mapping[str, Callable[[], Found]], turns: int) -> dict[str, list[Found]]:
    """Measure each side once a turn and return what was found, turn by turn. Another side begins in each turn."""
    found: dict[str, list[Found]] = {name: [] for name in sides}
    names = list(sides)
    for turn in range(turns):
        # A side that always came second might always find a warmer machine.
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            found[name].append(sides[name]())
    return found


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> bootstrap.Estimate:
    """Return the median of the ratios of the turns with its 95 % interval."""
    return bootstrap.median([one / other for one, other in zip(ours, theirs, strict=True)])


def difference(ours: Sequence[float], theirs: Sequence[float]) -> bootstrap.Estimate:
    """Return the median of the differences of the turns with its 95 % interval."""
    return bootstrap.median([one - other for one, other in zip(ours, theirs, strict=True)])


def text(estimate: bootstrap.Estimate, digits: int = 3) -> str:
    """Return an estimate with its interval, if it has one."""
    if estimate.low is None or estimate.high is None:
        return f"{estimate.value:.{digits}f}"
    return f"{estimate.value:.{digits}f} ({estimate.low:.{digits}f} to {estimate.high:.{digits}f})"


@dataclasses.dataclass
class Busy:
    """How busy the machine was while a block ran, to be said beside each figure."""

    _waited_s: float
    _stolen_s: float
    _began_s: float

    def __str__(self) -> str:
        """Return the load average, how much of the time a task waited for a processor, and steal."""
        took_s = time.monotonic() - self._began_s
        waited = (waited_for_processors_s() - self._waited_s) / took_s
        stolen = (stolen_s() - self._stolen_s) / took_s / (os.cpu_count() or 1)
        return (
            f"load {os.getloadavg()[0]:.1f}, some task waited for a processor {waited:.0%} of the time, "
            f"the processors waited for the hypervisor {stolen:.1%} of the time"
        )


def busy() -> Busy:
    return Busy(waited_for_processors_s(), stolen_s(), time.monotonic())
