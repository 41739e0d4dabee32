"""The finding of a dry run: what a benchmark would take, write and change, and every command that it would start."""

from __future__ import annotations

import dataclasses
from typing import ClassVar


@dataclasses.dataclass(frozen=True, slots=True)
class Cost:
    """What a number of steps takes and writes.

    `step_count_min` and `expected_min_s`: when every configuration is precise as early as it can be. `expected_s` rests
    on `assumptions`. `worst_s` has every step prolonged as often as the plan allows and every preparation at the limit
    at which it is given up; a load that hangs is not in it. `fill_bytes` is written before the loads, one copy;
    `stored_bytes` is the same with its replicas. `load_bytes` is what the write loads write, with replicas, when no
    step is prolonged and the assumed rates are reached.
    """

    step_count_min: int
    step_count: int
    expected_min_s: float
    expected_s: float
    worst_s: float
    fill_bytes: int
    stored_bytes: int
    load_bytes: int
    assumptions: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class PlannedPool:
    """A pool that the run would make."""

    name: str
    device_class: str
    replicas: int
    pg_count: int
    failure_domain: str


@dataclasses.dataclass(frozen=True, slots=True)
class PlannedChange:
    """A change: by whom (mon, osd.3, this machine), how, and how it goes back; "" where it goes with its pool.

    It is made `count` times, or less often where configurations are precise before; each takes `expected_s`, which is 0
    where it is no matter, and at most `worst_s`.
    """

    where: str
    change: str
    undone_by: str
    count: int = 1
    expected_s: float = 0.0
    worst_s: float = 0.0


@dataclasses.dataclass(frozen=True, slots=True)
class PlannedCommand:
    """A process as it would be started. `step_key` names the step that it loads, or is prefill, or warm-PHASE."""

    step_key: str
    repeat_index: int
    argv: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]
    root: str
    cgroup: str


@dataclasses.dataclass(frozen=True, slots=True)
class PredictionFinding:
    """What a run of a plan on a target would take and change. The run's random suffix is 000000.

    `refusal`: why the checks before the first change would refuse the run, with a hint, or ""; `notes`: what they say
    besides.
    """

    NAME: ClassVar[str] = "prediction"

    plan_name: str
    target: str
    configuration_count: int
    repeats_min: int
    repeats: int
    prolong_max: int
    cost: Cost
    pools: tuple[PlannedPool, ...]
    pg_count: int
    rule_count: int
    image_count: int
    changes: tuple[PlannedChange, ...]
    commands: tuple[PlannedCommand, ...]
    refusal: str = ""
    refusal_hint: str = ""
    notes: tuple[str, ...] = ()
