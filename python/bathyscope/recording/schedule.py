"""When a source is asked: pure decisions on values. Times are nanoseconds of a clock that never steps back."""

from __future__ import annotations

import dataclasses
import statistics
from typing import Self

BUDGET_RATIO = 0.05
_SLOWED_MAX = 256
_DOUBLINGS_MAX = 4
# Back-off stops here; a source with a longer period is tried again after its period.
_BACK_OFF_LIMIT_NS = 60_000_000_000
# How soon a source that had nothing to ask is looked at again; that costs next to nothing.
_EMPTY_NS = 5_000_000_000
_COSTS_KEPT = 8
_COSTS_NEEDED = 3
# A source is sped up again only when that leaves room to its budget: it must not swing.
_ROOM_RATIO = 0.7


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    """One source in the schedule.

    Collections lie on a grid of times, `interval_ns` apart, so that they do not drift. `due_ns` is the next one (None:
    only when asked for), `slot_ns` the one of the collection that is under way or was the last. `asked`: the collection
    under way was asked for, and serves for the times that pass meanwhile.
    """

    period_ns: int
    due_ns: int | None
    budget_ratio: float = BUDGET_RATIO
    slot_ns: int = 0
    running: bool = False
    asked: bool = False
    failures: int = 0
    slowed: int = 1
    costs_ns: tuple[int, ...] = ()

    @property
    def interval_ns(self) -> int:
        """Time between collections as it is now: the period, longer after failures or over the budget."""
        backed_off_ns = self.period_ns << min(self.failures, _DOUBLINGS_MAX)
        backed_off_ns = min(backed_off_ns, max(self.period_ns, _BACK_OFF_LIMIT_NS))
        return max(backed_off_ns, self.period_ns * self.slowed)

    @property
    def note(self) -> str | None:
        """Say that the source is slowed down, and why; None when it is not."""
        if self.slowed == 1:
            return None
        every_s, period_s = self.period_ns * self.slowed / 1e9, self.period_ns / 1e9
        return (
            f"slowed to every {every_s:g} s: every {period_s:g} s "
            f"it would take more than {100 * self.budget_ratio:g} % of the time"
        )

    def is_due(self, now_ns: int) -> bool:
        """Whether a collection is to begin now, or is missed."""
        return self.due_ns is not None and self.due_ns <= now_ns

    def late(self, now_ns: int) -> bool:
        """Whether more than the present time of the grid has passed: then collections were missed."""
        return self.due_ns is not None and now_ns - self.due_ns >= self.interval_ns

    def begin(self, now_ns: int) -> Self:
        """Return the entry with its due collection under way."""
        assert self.due_ns is not None  # noqa: S101 - only what is due begins
        slot_ns = self.due_ns + (now_ns - self.due_ns) // self.interval_ns * self.interval_ns
        return dataclasses.replace(self, running=True, slot_ns=slot_ns, due_ns=slot_ns + self.interval_ns)

    def begin_asked(self) -> Self:
        """Return the entry with a collection under way that was asked for by name."""
        return dataclasses.replace(self, running=True, asked=True)

    def skip(self, now_ns: int) -> Self:
        """Return the entry with its next time after now: a collection is still under way."""
        assert self.due_ns is not None  # noqa: S101 - only what is due is skipped
        passed = (now_ns - self.due_ns) // self.interval_ns + 1
        return dataclasses.replace(self, due_ns=self.due_ns + passed * self.interval_ns)

    def end(self, now_ns: int, cost_ns: int, *, failed: bool) -> Self:
        """Return the entry after its collection: backed off when it failed, slowed when it costs too much."""
        costs_ns = self.costs_ns if failed else (*self.costs_ns, cost_ns)[-_COSTS_KEPT:]
        after = dataclasses.replace(
            self,
            running=False,
            asked=False,
            failures=self.failures + 1 if failed else 0,
            costs_ns=costs_ns,
            slowed=self._slowed(costs_ns),
        )
        if self.due_ns is None or self.asked or after.interval_ns == self.interval_ns:
            return after
        # The pause counts from the end, so that a cluster that does not answer is not asked without a break.
        pause_ns = now_ns - self.slot_ns + after.interval_ns - self.period_ns
        return dataclasses.replace(after, due_ns=self.slot_ns + (pause_ns // self.period_ns + 1) * self.period_ns)

    def drop(self, now_ns: int) -> Self:
        """Return the entry with nothing under way: there was nothing to ask, which may change at any time."""
        return dataclasses.replace(self, running=False, asked=False).hasten(now_ns + _EMPTY_NS)

    def hasten(self, due_ns: int) -> Self:
        """Return the entry with a collection at `due_ns` at the latest, unless it is only asked for."""
        return self if self.due_ns is None else dataclasses.replace(self, due_ns=min(self.due_ns, due_ns))

    def _slowed(self, costs_ns: tuple[int, ...]) -> int:
        """Return how many periods apart collections must be, a power of two, for the cost to stay in the budget."""
        if len(costs_ns) < _COSTS_NEEDED:
            return self.slowed
        # The median: one collection that waited for a busy daemon is no reason.
        needed = statistics.median(costs_ns) / (self.period_ns * self.budget_ratio)
        slowed = self.slowed
        while slowed < min(needed, _SLOWED_MAX):
            slowed *= 2
        while slowed > 1 and needed <= slowed / 2 * _ROOM_RATIO:
            slowed //= 2
        return slowed
