"""What a run will take, write and change, before it begins. Pure: the same values that a run carries out are counted.

How fast a cluster is, the run is to find out. So the time of filling and the bytes of write loads rest on assumed rates
of each device class, which the prediction names; steps, pools, PGs, what is filled and what is changed do not.
While a run goes on, `Pace` corrects the time left by the steps that are done.
"""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Iterator, Sequence

from bathyscope.bench import phases
from bathyscope.bench.settings import Switch
from bathyscope.host import CephRequest, ProcessRequest
from bathyscope.lab import LabSpec
from bathyscope.layers import (
    LAYERS,
    Action,
    LayerContext,
    MakeContext,
    Need,
    batches,
    needs_of,
    planned,
    under_test,
    warming,
)
from bathyscope.layers.needs import REMOVALS
from bathyscope.records.prediction_finding import Cost, PlannedChange, PlannedCommand, PlannedPool, PredictionFinding
from bathyscope.sources.cluster_map import up_osds
from bathyscope.spec import StepSpec
from bathyscope.spec.plan import PRECISE_REPEATS_MIN, Phase, Plan
from bathyscope.spec.scope import Scope
from bathyscope.units import format_bandwidth, format_bytes, format_seconds

_THIS_MACHINE = "this machine"

# Around each load: programs connect, counters and histories are read, the step is judged and kept.
OVERHEAD_S = 1.5
OVERHEAD_WORST_S = 10.0
# Pools until their placement groups are clean, looks at the cluster, removal at the end.
AROUND_S = 10.0
AROUND_WORST_S = 400.0
# A lab comes up and is taken down.
LAB_S = (20.0, 300.0)


@dataclasses.dataclass(frozen=True, slots=True)
class _Rates:
    writes_per_s: float
    bytes_per_s: float


# What a device of a class is taken to write before anything is measured, and one load process whatever it writes to.
_ASSUMED = {"hdd": _Rates(100, 50 << 20), "ssd": _Rates(5_000, 200 << 20), "nvme": _Rates(10_000, 400 << 20)}
_ASSUMED_ELSE = "ssd"
_CLIENT = _Rates(20_000, 500 << 20)


class Pace:
    """The time left: what the steps that are left should take, times what those that are done took beyond theirs.

    `entering_s` is what leads to each phase of a round; that of the first step that is left has been entered.
    """

    def __init__(self, steps: Sequence[StepSpec], entering_s: float) -> None:
        self._left = list(steps)
        self._entering_s = entering_s
        self._expected_s = self._took_s = 0.0

    def ended(self, took_s: float) -> None:
        """The first step that is left has ended."""
        self._expected_s += step_s(self._left.pop(0))
        self._took_s += took_s

    def skipped(self) -> None:
        """The first step that is left is not wanted any more."""
        self._left.pop(0)

    @property
    def left_s(self) -> float:
        """The seconds until the last step ends."""
        between_s = self._entering_s * max(0, len(_blocks(self._left)) - 1)
        return between_s + sum(map(step_s, self._left)) * (self._took_s / self._expected_s if self._expected_s else 1.0)


def pace(plan: Plan, steps: Sequence[StepSpec], scope: Scope, context: LayerContext) -> Pace:
    """Return the pace of `steps`."""
    between_s = sum(change.count * change.expected_s for change in _between(plan, steps, scope, context))
    return Pace(steps, between_s / max(1, len(_blocks(steps))))


def _blocks(steps: Sequence[StepSpec]) -> list[tuple[int, str]]:
    """Return the rounds of phases (repeat, phase) that `steps` enter, in their order."""
    return list(dict.fromkeys((step.repeat_index, step.phase) for step in steps if step.phase))


def step_s(step: StepSpec) -> float:
    """Return what a step takes when it is not prolonged."""
    return step.ramp_s + step.runtime_s + OVERHEAD_S


def cost(
    plan: Plan, steps: Sequence[StepSpec], empty: Sequence[Need], scope: Scope, context: LayerContext, *, replicas: int
) -> Cost:
    """Return what `steps` take and write; `empty` are needs that are not filled yet, `replicas` those of our pools."""
    empty = empty if plan.prefill else ()
    certain = [step for step in steps if step.repeat_index < _repeats_min(plan)]
    user = {need: step for step in reversed(steps) for need in LAYERS[step.layer].needs(step, context)}
    copies = {step.layer: replicas if LAYERS[step.layer].needs_cluster else 1 for step in steps}
    rates = {(step.layer, step.device_class): _rates(step, scope, copies[step.layer]) for step in steps}
    fill_s, stored_bytes, load_bytes = 0.0, 0, 0.0
    for need in empty:
        step = user[need]
        fill_s += need.fill_bytes / rates[step.layer, step.device_class].bytes_per_s
        stored_bytes += need.fill_bytes * copies[step.layer]
    for step in steps:
        load_bytes += _written_bytes(step, rates[step.layer, step.device_class]) * copies[step.layer]
    fills = [request for need in empty for request in need.fill(context)]
    limits_s = [max(request.timeout_s or 0.0 for request in batch) for batch in batches(fills)]
    attempts = 1 + plan.limits.prolong
    on_cluster = any(LAYERS[layer].needs_cluster for layer in copies)
    around_s = fill_s + (AROUND_S + plan.limits.baseline) * on_cluster
    changes = _between(plan, steps, scope, context)
    return Cost(
        step_count_min=len(certain),
        step_count=len(steps),
        expected_min_s=around_s + _expected_s(certain, _between(plan, certain, scope, context)),
        expected_s=around_s + _expected_s(steps, changes),
        worst_s=sum(step.ramp_s + attempts * (step.runtime_s + OVERHEAD_WORST_S) for step in steps)
        + sum(limits_s)
        + sum(change.count * change.worst_s for change in changes)
        + (AROUND_WORST_S + plan.limits.baseline) * on_cluster,
        fill_bytes=sum(need.fill_bytes for need in empty),
        stored_bytes=stored_bytes,
        load_bytes=round(load_bytes),
        assumptions=(*map(_assumption, _classes(steps, scope)), *_of_restarts(changes)),
    )


def _repeats_min(plan: Plan) -> int:
    """Return how often each configuration is measured for certain."""
    return plan.repeats if plan.precision is None else min(PRECISE_REPEATS_MIN, plan.repeats)


def _expected_s(steps: Sequence[StepSpec], changes: Sequence[PlannedChange]) -> float:
    return sum(map(step_s, steps)) + sum(change.count * change.expected_s for change in changes)


def _between(plan: Plan, steps: Sequence[StepSpec], scope: Scope, context: LayerContext) -> list[PlannedChange]:
    """Return what leads from phase to phase of `steps`."""
    phase_by_name = {phase.name: phase for phase in plan.phases}
    warm_s = {phase.name: _warming_s(phase, steps, scope, context) for phase in plan.phases if phase.warm}
    osds = [f"osd.{osd}" for osd in under_test(scope, steps)]
    return phases.planned([phase_by_name[name] for _, name in _blocks(steps)], osds, warm_s, context.target)


def _warming_s(phase: Phase, steps: Sequence[StepSpec], scope: Scope, context: LayerContext) -> tuple[float, float]:
    """Return how long reading in full what a phase reads takes, and when it is given up."""
    reading = [step for step in steps if step.phase == phase.name and step.pattern.reads]
    requests = warming(reading, context)
    rate = min((_rates(step, scope, replicas=1).bytes_per_s for step in reading), default=1.0)
    limits_s = (max(request.timeout_s or 0.0 for request in batch) for batch in batches(list(requests)))
    return sum(requests.values()) / rate, sum(limits_s)


def sentence(cost: Cost) -> str:
    """Return the cost in one line, for the beginning of a run."""
    steps, time = f"{cost.step_count} steps", format_seconds(cost.expected_s)
    if cost.step_count_min < cost.step_count:
        steps, time = f"{cost.step_count_min} to {steps}", f"{format_seconds(cost.expected_min_s)} to {time}"
    text = f"{steps}, about {time}, at worst {format_seconds(cost.worst_s)}"
    if cost.fill_bytes:
        text += f"; {format_bytes(cost.fill_bytes)} are written first"
    if cost.stored_bytes != cost.fill_bytes:
        text += f" ({format_bytes(cost.stored_bytes)} with replicas)"
    return text


def predict(
    plan: Plan,
    steps: Sequence[StepSpec],
    scope: Scope,
    context: LayerContext,
    make: MakeContext | None,
    *,
    replicas: int = 1,
    switches: Sequence[Switch] = (),
    history: Sequence[CephRequest] = (),
) -> PredictionFinding:
    """Return what a run of `steps` on the cluster of `scope` would take and change.

    `make` is None where no cluster is used; `replicas` are those of the run's pools. `switches` are the settings that
    the run would switch, `history` the commands that enlarge the OSDs' op history. Raises ClusterError when the cluster
    cannot hold what the steps need.
    """
    needs = needs_of(steps, context)
    actions = [action for need in needs for action in need.make(make)] if make is not None else []
    between = _between(plan, steps, scope, context)
    for_labs = phases.for_labs(plan) if scope.target.kind == "lab" else ""
    warm = [phase.name for phase in plan.phases if phase.warm]
    created = [action.creates[0] for action in actions if action.creates is not None]
    pools = tuple(_pools(actions, replicas))
    return PredictionFinding(
        plan_name=plan.name,
        target=scope.target.name,
        configuration_count=len({step.key for step in steps}),
        repeats_min=_repeats_min(plan),
        repeats=plan.repeats,
        prolong_max=plan.limits.prolong,
        cost=cost(plan, steps, needs, scope, context, replicas=replicas),
        pools=pools,
        pg_count=sum(pool.pg_count for pool in pools),
        rule_count=created.count("crush_rule"),
        image_count=sum(len(need.images) for need in needs),
        changes=(
            *(PlannedChange(*_of_action(action), _removal(action)) for action in actions),
            *(
                PlannedChange(*_words(switch.request), "; ".join(_words(back)[1] for back in switch.back))
                for switch in switches
            ),
            *_history(history, again=any(change.expected_s for change in between)),
            *between,
            *_of_the_machine(plan, steps, context),
        ),
        commands=tuple(_command(*each) for each in planned(steps, context, prefill=plan.prefill, warm=warm)),
        notes=(f"{for_labs}. {phases.ELSEWHERE}.",) if for_labs else (),
    )


def on_lab_of_its_own(spec: LabSpec, finding: PredictionFinding) -> PredictionFinding:
    """Return what a run takes and changes with the lab that is brought up for it."""
    osds = ", ".join(f"{group.count} {group.device_class}" for group in spec.devices)
    made = PlannedChange(_THIS_MACHINE, f"the lab {spec.name} comes up: {osds} OSDs", "it is taken down", 1, *LAB_S)
    cost = dataclasses.replace(
        finding.cost,
        expected_min_s=finding.cost.expected_min_s + made.expected_s,
        expected_s=finding.cost.expected_s + made.expected_s,
        worst_s=finding.cost.worst_s + made.worst_s,
        assumptions=(*finding.cost.assumptions, f"a lab comes up in {format_seconds(LAB_S[0])}"),
    )
    return dataclasses.replace(finding, cost=cost, changes=(made, *finding.changes))


# --- what is assumed


def _classes(steps: Sequence[StepSpec], scope: Scope) -> list[str]:
    """Return the device classes that `steps` load, each once; a step on all OSDs loads those of every class."""
    named = [step.device_class for step in steps if step.device_class or not LAYERS[step.layer].needs_cluster]
    every = [osd.device_class for osd in scope.osds] if any(not step.device_class for step in steps) else []
    return sorted({*named, *every})


def _assumed(device_class: str) -> _Rates:
    return _ASSUMED.get(device_class, _ASSUMED[_ASSUMED_ELSE])


def _assumption(device_class: str) -> str:
    rates, name = _assumed(device_class), f"of class {device_class}" if device_class else "without a class"
    moved = format_bandwidth(rates.bytes_per_s)
    return f"a device {name} reads and writes {moved}, or writes {rates.writes_per_s:,.0f} random blocks/s"


def _of_restarts(changes: Sequence[PlannedChange]) -> Iterator[str]:
    if phases.RESTART_S[0] in {change.expected_s for change in changes}:
        yield f"the OSDs of a lab start again in {format_seconds(phases.RESTART_S[0])}"


def _rates(step: StepSpec, scope: Scope, replicas: int) -> _Rates:
    """Return what the devices of a step are taken to write for one client, all replicas written."""
    osds = up_osds(scope, step.device_class) if LAYERS[step.layer].needs_cluster else []
    each = [_assumed(osd.device_class) for osd in osds] or [_assumed(step.device_class)]
    return _Rates(
        min(_CLIENT.writes_per_s, sum(rates.writes_per_s for rates in each) / replicas),
        min(_CLIENT.bytes_per_s, sum(rates.bytes_per_s for rates in each) / replicas),
    )


def _written_bytes(step: StepSpec, rates: _Rates) -> float:
    """Return what the load of a step writes at these rates, one copy; its own limits hold as well."""
    pattern = step.pattern
    if not pattern.writes:
        return 0.0
    share = 1 - pattern.read_percent / 100 if pattern.op == "randrw" else 1.0
    per_s = rates.bytes_per_s
    if pattern.op.startswith("rand"):
        per_s = min(per_s, rates.writes_per_s * pattern.block_size_bytes)
    if step.rate_iops is not None:
        per_s = min(per_s, step.rate_iops * step.jobs * pattern.block_size_bytes)
    written = per_s * (step.ramp_s + step.runtime_s)
    if step.io_count_limit is not None:
        written = min(written, step.io_count_limit * step.jobs * pattern.block_size_bytes)
    return written * share


# --- what is changed, in words


def _words(request: CephRequest | ProcessRequest) -> tuple[str, str]:
    """Return who is asked and what for, as the request itself has it."""
    if isinstance(request, ProcessRequest):
        return _THIS_MACHINE, shlex.join(request.argv)
    words = dict(request.command)
    prefix = str(words.pop("prefix"))
    words.pop("format", None)
    values = {name: ",".join(map(str, value)) if isinstance(value, list) else value for name, value in words.items()}
    return request.daemon, " ".join([prefix, *(f"{name}={value}" for name, value in values.items())])


def _of_action(action: Action) -> tuple[str, str]:
    """Return who is asked and what for; what no request makes is made by writing it."""
    if action.request is not None:
        return _words(action.request)
    kind, name = action.creates or ("", "")
    return f"pool {action.details.get('pool', '')}", f"{REMOVALS[kind].words} {name}, made by writing"


def _removal(action: Action) -> str:
    if action.creates is None:
        return ""
    kind, name = action.creates
    removal = REMOVALS[kind]
    text = _words(removal.request({"name": name, **action.details}))[1]
    # The monitors forbid it by default; then they are allowed it for that moment.
    return text if removal.option is None else f"{text}, with {removal.option} switched on where it is off"


def _pools(actions: Sequence[Action], replicas: int) -> Iterator[PlannedPool]:
    """Yield the pools that `actions` make, each with the rule that stands before it."""
    rules: dict[str, dict[str, object]] = {}
    for action in actions:
        words = dict(action.request.command) if isinstance(action.request, CephRequest) else {}
        kind = action.creates[0] if action.creates is not None else ""
        if kind == "crush_rule":
            rules[str(words["name"])] = words
        elif kind == "pool":
            rule = rules.get(str(words.get("rule")), {})
            yield PlannedPool(
                name=str(words["pool"]),
                device_class=str(rule.get("class", "")),
                replicas=replicas,
                pg_count=int(words["pg_num"]),
                failure_domain=str(rule.get("type", "")),
            )


def _history(requests: Sequence[CephRequest], *, again: bool) -> Iterator[PlannedChange]:
    """Yield one change for each option: a thousand OSDs are one line. `again`: after each start of the OSDs."""
    daemons: dict[str, list[str]] = {}
    for request in requests:
        daemons.setdefault(_words(request)[1], []).append(request.daemon)
    for words, asked in daemons.items():
        where = asked[0] if len(asked) == 1 else f"{asked[0]} and {len(asked) - 1} more"
        often = "; again after each start" if again else ""
        yield PlannedChange(where, f"{words}{often}", "the run-time value that was there before, or none")


def _of_the_machine(plan: Plan, steps: Sequence[StepSpec], context: LayerContext) -> Iterator[PlannedChange]:
    """Yield what is changed on this machine: disks that are overwritten, caches that are dropped, a lab's disks."""
    overwritten: dict[str, int | None] = {}
    for step in steps:
        layer = LAYERS[step.layer]
        disk, size_bytes = layer.disk(step, context), layer.working_set_bytes(step, context)
        if disk is not None and disk.destructive:
            most = overwritten.get(disk.path, 0)
            overwritten[disk.path] = None if most is None or size_bytes is None else max(most, size_bytes)
    for path, total in overwritten.items():
        part = "all of it" if total is None else f"its first {format_bytes(total)}"
        yield PlannedChange(_THIS_MACHINE, f"{path}: {part} is overwritten", "nothing: what was there is lost")
    if any(step.temperature == "cold" for step in steps):
        yield PlannedChange("OSDs under test, this machine", "caches are dropped before each cold step", "")
    if context.target.kind == "lab" and (plan.prefill or any(phase.warm for phase in plan.phases)):
        words = "the lab's disks take no time while things are written or read in full"
        yield PlannedChange(_THIS_MACHINE, words, "they take their time as before")


def _command(key: str, request: ProcessRequest) -> PlannedCommand:
    return PlannedCommand(
        step_key=key,
        repeat_index=int(key.partition("#")[2] or 0),
        argv=request.argv,
        environment=request.environment,
        root=request.root or "",
        cgroup=request.cgroup or "",
    )
