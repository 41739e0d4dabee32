"""Whether a configuration has been measured often enough."""

from __future__ import annotations

from collections.abc import Sequence

from bathyscope.analysis import bootstrap
from bathyscope.records import Step
from bathyscope.spec import StepSpec
from bathyscope.spec.plan import PRECISE_REPEATS_MIN


class Repeats:
    """The IOPS of the repeats so far. `precision`: the share of the median that their interval may reach; None: any.

    A configuration is measured in all phases as often, so that they can be compared round by round.
    """

    def __init__(self, precision: float | None, steps: Sequence[StepSpec]) -> None:
        self._precision = precision
        self._rates: dict[str, list[float]] = {step.key: [] for step in steps}
        self._about = {step.key: _without_phase(step) for step in steps}
        self._together: dict[StepSpec, list[str]] = {}
        for key, about in self._about.items():
            self._together.setdefault(about, []).append(key)
        self._decided: dict[tuple[StepSpec, int], bool] = {}

    def add(self, row: Step, iops: float) -> None:
        """A repeat has ended, in this process or before the run was resumed: its round is measured in all phases."""
        self._decided[self._about[row.step_key], row.repeat_index] = False
        if row.status == "done":
            self._rates[row.step_key].append(iops)

    def are_enough(self, step: StepSpec) -> bool:
        """Return whether a step need not be measured; it is decided once for all phases of a round."""
        if self._precision is None:
            return False
        about = _without_phase(step)
        if (about, step.repeat_index) not in self._decided:
            self._decided[about, step.repeat_index] = all(map(self._is_precise, self._together[about]))
        return self._decided[about, step.repeat_index]

    def _is_precise(self, key: str) -> bool:
        rates = self._rates[key]
        median = bootstrap.median(rates)
        if len(rates) < PRECISE_REPEATS_MIN or not median.value or median.low is None or median.high is None:
            return False
        reach = max(median.high - median.value, median.value - median.low)
        return reach <= (self._precision or 0.0) * median.value


def _without_phase(step: StepSpec) -> StepSpec:
    return step.model_copy(update={"phase": "", "repeat_index": 0})
