"""A load as a closed queueing network: the resources of its account, and what changes do to them.

Processors stand twice in an account: as those that an OSD or the load generator may use, and as those of the machine.
An OSD without a quota waits at its machine, so its own time is a delay there. The kv-sync thread and the op workers are
held while the processor or the disk works for them: of their time, what these explain follows these, and only the rest
is a resource of its own.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from scipy import special

from bathyscope.analysis.columns import Floats
from bathyscope.analysis.queueing import Network, harmonic, seidmann
from bathyscope.errors import UsageError
from bathyscope.records import HERE
from bathyscope.records.account import Account, Ceiling
from bathyscope.records.figure import Figure
from bathyscope.records.finding import PointFinding

MACHINE = ("host_cpu",)
DEVICES = ("device", "bluefs_device")
THREADS = ("kv_sync", "op_workers")
CLIENT = ("client_cpu", "client_thread")
# Ceph's default (osd_pool_default_size).
_REPLICAS = 3
# What an OSD or a load generator needs without I/O: heartbeats, statistics, answers to who samples it. Measured: 0.02
# to 0.03 core of an OSD, 0.01 to 0.02 of a load generator.
_IDLE_CORES = 0.04
# Of the mean of its kind: what does less has done too little to say what it can do.
_IDLE_SHARE = 0.1
# A primary does what a replica does and serves the client besides.
_PRIMARY_CPU = 2.0
# How much more processor time than on a busy processor an I/O takes on an idle one. Measured with 4 KiB reads at depths
# of 1 to 64: 2.3 to 2.9 times more; with writes 4.6; where a throttle lets I/Os through in bursts, no more.
_CPU_FALL_MAX = 4.6
_SEED = 20260822
_SAMPLES = 64
_NORMAL_95 = 1.96


class Samples:
    """Draws figures within their intervals: a Latin hypercube, always the same one. Row 0 has the figures' values."""

    def __init__(self) -> None:
        self._generator = np.random.default_rng(_SEED)
        self.rows = _SAMPLES + 1

    def of(self, figure: Figure) -> Floats:
        """Return samples of a positive figure, log-normal with its interval as the middle 95 %; shape (rows,)."""
        share = self.share()[1:]
        value = figure.value or 0.0
        samples = np.full(self.rows, value)
        if value > 0 and figure.low and figure.high and figure.high > figure.low:
            half = np.log(figure.high / figure.low) / 2
            samples[1:] = value * np.exp(special.ndtri(share) * half / _NORMAL_95)
        return samples

    def share(self) -> Floats:
        """Return samples between 0 and 1, a half in row 0."""
        strata = (self._generator.permutation(_SAMPLES) + self._generator.random(_SAMPLES)) / _SAMPLES
        return np.append(0.5, strata)


@dataclasses.dataclass(frozen=True, slots=True)
class Resource:
    """One resource: `demand` per I/O and `capacity` a second in the unit of its ceiling, shape (rows,) each.

    `osd` is −1 for what is no OSD's. Of a thread, `demand` is what disk and processor of its OSD do not explain, `held`
    the share of their time that it is held for them. `idle` is what a process needs of a quota without any I/O; it is
    in neither.
    """

    kind: str
    words: str
    host: str
    osd: int
    demand: Floats
    capacity: Floats
    unit: str = ""
    held: Floats | None = None
    idle: Floats | float = 0.0


@dataclasses.dataclass(frozen=True, slots=True)
class LoadModel:
    """A load and what it asks of each resource.

    `rate` is the measured one, `account` what it was made from. `primaries` are the shares of the operations by OSD,
    `even` what even spreading would give; `writes` is the share of writes, `replica_wait` the factor on what a write
    waits for replicas beyond the resources that are known. `journal`: how little the device I/Os of the journal follow
    the number of transactions (1: not at all), as those that wait for each other commit together. `cpu_fall`: see
    `at_rate`.
    """

    account: Account
    customers: int
    rate: Floats
    resources: tuple[Resource, ...]
    osds: tuple[int, ...]
    primaries: Floats
    even: Floats
    writes: float
    replicas: int
    journal: Floats
    cpu_fall: Floats
    replica_wait: float = 1.0

    def having(self, *kinds: str) -> tuple[Resource, ...]:
        """Return the resources of these kinds."""
        return tuple(resource for resource in self.resources if resource.kind in kinds)

    def changed(self, kinds: Sequence[str], change: Callable[[Resource], Resource]) -> LoadModel:
        """Return the model with the resources of these kinds changed."""
        new = tuple(change(resource) if resource.kind in kinds else resource for resource in self.resources)
        return dataclasses.replace(self, resources=new)

    def processors(self, host: str) -> Floats | None:
        """Return the processors of a machine, None where they were not sampled."""
        return next((resource.capacity for resource in self.having(*MACHINE) if resource.host == host), None)

    def is_shared(self, resource: Resource) -> bool:
        """Return whether a process may use all processors of its machine, so that it waits where all others do."""
        processors = self.processors(resource.host)
        return processors is not None and bool(resource.capacity[0] >= 0.999 * processors[0])

    def asks_the_same(self, other: LoadModel) -> bool:
        """Return whether a change to the other made no difference to it."""
        if (self.customers, len(self.resources)) != (other.customers, len(other.resources)):
            return False
        pairs = zip(self.resources, other.resources, strict=True)
        return all(np.array_equal(self.seconds(new), other.seconds(old)) for new, old in pairs)

    def hardware_s(self, osd: int) -> Floats:
        """Return the seconds per I/O in which disk and processor of an OSD work."""
        seconds = np.zeros(self.resources[0].demand.shape)
        for resource in self.having("osd_cpu", *DEVICES):
            if resource.osd == osd:
                seconds = seconds + resource.demand / (
                    np.minimum(resource.capacity, 1.0) if resource.kind == "osd_cpu" else resource.capacity
                )
        return seconds

    def seconds(self, resource: Resource) -> Floats:
        """Return the time of the resource per I/O, one over its ceiling."""
        busy = resource.demand / resource.capacity
        if resource.held is None:
            return np.asarray(busy)
        return np.asarray(busy + resource.held * self.hardware_s(resource.osd) / resource.capacity)

    @property
    def nearest(self) -> Resource:
        """The resource with the lowest ceiling."""
        return max(self.resources, key=lambda resource: float(self.seconds(resource)[0]))

    def network(self, scale: Floats, *, delay_s: Floats, unmeasured_s: Floats, threads_queue: bool) -> Network:
        """Return it as a network, with times beyond those of the resources: without queueing, and queueing in the OSDs.

        `scale` is a factor on all demands. `threads_queue` is whether the own time of threads is a queue or a delay.
        """
        parts: list[tuple[Floats, bool, int]] = [(delay_s, False, -1)]
        number = {osd: index for index, osd in enumerate(self.osds)}
        client = max(self.having(*CLIENT), key=lambda resource: float(self.seconds(resource)[0]), default=None)
        for resource in self.resources:
            branch = number.get(resource.osd, -1)
            if resource.kind in CLIENT and resource is not client:
                continue
            queued, alone = resource.demand / resource.capacity, np.zeros_like(resource.demand)
            if resource.kind in ("osd_cpu", "client_cpu"):
                queued, alone = seidmann(resource.demand, resource.capacity)
                queued = np.zeros_like(queued) if self.is_shared(resource) else queued
            parts += [(queued * scale, resource.kind not in THREADS or threads_queue, branch)]
            parts += [(alone * scale, False, branch)] if alone.any() else []
        if unmeasured_s.any():
            of_osds = [(unmeasured_s * share, True, index) for index, share in enumerate(self.primaries)]
            parts += of_osds or [(unmeasured_s, True, -1)]
        demand, queues, branches = zip(*parts, strict=True)
        return Network(
            np.stack(demand, axis=1), np.array(queues), np.array(branches), self.primaries, self.replicas, self.writes
        )


def model_of(point: PointFinding, replicas: int | None, samples: Samples) -> LoadModel:
    """Return the model of a measured point; UsageError where it has no account or no resource in it."""
    account = point.account
    if account is None or not account.iops.value or account.concurrency < 1:
        hint = "ask about a step that has a figure; `bathy bench show RUN` lists them"
        raise UsageError(f"{point.step_key} has no account of its load", hint=hint)
    ceilings = [ceiling for ceiling in account.ceilings if ceiling.demand.value and ceiling.capacity.value]
    limited = {(ceiling.resource, ceiling.subject) for ceiling in ceilings}
    ceilings += [ceiling for ceiling in _processes(point) if (ceiling.resource, ceiling.subject) not in limited]
    if not ceilings:
        hint = "sample devices and processors: capture.processes and capture.devices of the plan"
        raise UsageError(f"{point.step_key}: no resource of the load was sampled", hint=hint)
    rate = samples.of(account.iops)
    resources = _on_machines([_resource(ceiling, rate, samples) for ceiling in ceilings])
    others = {_load_host(account): account.other_cores.value or 0.0}
    resources = [_shared_with(resource, others.get(resource.host, 0.0), rate, samples) for resource in resources]
    shares = np.array([share.op_share.value or 0.0 for share in account.osds])
    even = np.array([share.expected_share for share in account.osds])
    if shares.sum() <= 0:
        shares = even
    model = LoadModel(
        account,
        account.concurrency,
        rate,
        tuple(resource for resource in resources if resource.kind not in THREADS),
        tuple(share.osd for share in account.osds),
        shares / max(float(shares.sum()), 1e-300),
        even / max(float(even.sum()), 1e-300),
        writes_of(point),
        min(replicas or _REPLICAS, max(1, len(account.osds))),
        0.5 + 0.5 * samples.share(),
        _CPU_FALL_MAX * samples.share(),
    )
    threads = tuple(_thread(resource, model) for resource in resources if resource.kind in THREADS)
    return dataclasses.replace(model, resources=model.resources + threads)


def writes_of(point: PointFinding) -> float:
    """Return the share of writes in a load."""
    rates = {direction.direction: direction.iops.value or 0.0 for direction in point.directions}
    if sum(rates.values()) > 0:
        return rates.get("write", 0.0) / sum(rates.values())
    return 0.0 if point.op.endswith("read") else 1.0


def _resource(ceiling: Ceiling, rate: Floats, samples: Samples) -> Resource:
    capacity = samples.of(ceiling.capacity)
    # How much is used is measured, what one I/O needs follows from it and the rate.
    is_known = ceiling.reached.value is not None
    demand = samples.of(ceiling.reached) * capacity / rate if is_known else samples.of(ceiling.demand)
    if is_known and ceiling.resource in ("osd_cpu", "client_cpu"):
        idle = np.minimum(_IDLE_CORES * samples.share(), 0.5 * rate * demand)
        demand, capacity = demand - idle / rate, capacity - idle
    else:
        idle = np.zeros_like(rate)
    # A resource that gave more than its capacity has more.
    capacity = np.maximum(capacity, rate * demand)
    number = re.fullmatch(r"osd\.(\d+)(?:\.\w+)?", ceiling.subject)
    osd = int(number[1]) if number else -1
    return Resource(
        ceiling.resource, ceiling.words, ceiling.host, osd, demand, capacity, ceiling.demand.unit, idle=idle
    )


def _on_machines(resources: Sequence[Resource]) -> list[Resource]:
    """Return the resources, with OSDs on hosts in name only (a lab without nodes) on the one machine that there is."""
    machines = {resource.host for resource in resources if resource.kind in MACHINE}
    if len(machines) != 1:
        return list(resources)
    (only,) = machines
    return [
        dataclasses.replace(resource, host=only) if resource.kind == "osd_cpu" else resource for resource in resources
    ]


def _shared_with(resource: Resource, cores: float, rate: Floats, samples: Samples) -> Resource:
    """Return a machine's processors without the time of processes that are not the load's.

    Whether these give way when the load wants more is not known: the samples go from not at all to all of it.
    """
    if resource.kind not in MACHINE or cores <= 0:
        return resource
    taken = np.minimum(cores, 0.95 * resource.capacity)
    own = np.maximum(resource.demand - taken / rate, 0.02 * resource.demand)
    capacity = np.maximum(resource.capacity - taken * samples.share(), rate * own)
    return dataclasses.replace(resource, demand=own, capacity=capacity)


def _thread(thread: Resource, model: LoadModel) -> Resource:
    hardware = model.hardware_s(thread.osd) if model.resources else np.zeros_like(thread.demand)
    # Op workers also wait for disk and processor, one each; kv-sync is the only one that waits for its own.
    waits = thread.kind == "op_workers"
    explained = np.where(hardware > 0, thread.demand, 0.0) if waits else np.minimum(thread.demand, hardware)
    held = np.divide(explained, hardware, out=np.zeros_like(hardware), where=hardware > 0)
    return dataclasses.replace(thread, demand=thread.demand - explained, held=held)


def _processes(point: PointFinding) -> Iterable[Ceiling]:
    """Yield the processor time of OSDs and load generator where no ceiling of theirs has it: nothing limits them."""
    account = point.account
    if account is None:
        return
    machines = {ceiling.host: ceiling for ceiling in account.ceilings if ceiling.resource in MACHINE}
    load_host = _load_host(account)
    only = next(iter(machines.values())) if len(machines) == 1 else None
    if point.osd_cpu_us_per_op.value:
        for share in account.osds:
            if (machine := machines.get(share.host, only)) is not None:
                demand = _without_idle(_part(point.osd_cpu_us_per_op, share.expected_share / 1e6), account)
                yield _process("osd_cpu", f"osd.{share.osd}", f"the CPU of osd.{share.osd}", demand, machine)
    if point.client_cpu_us_per_op.value and load_host in machines:
        demand = _without_idle(_part(point.client_cpu_us_per_op, 1e-6), account)
        yield _process("client_cpu", "", "the load generator's CPU", demand, machines[load_host])


def _process(kind: str, subject: str, words: str, demand: Figure, machine: Ceiling) -> Ceiling:
    unknown = Figure(None, "")
    return Ceiling(
        kind, subject, words, machine.host, demand, machine.capacity, machine.source, iops=unknown, reached=unknown
    )


def _load_host(account: Account) -> str:
    """Return the machine that makes the load."""
    return next((ceiling.host for ceiling in account.ceilings if ceiling.resource in CLIENT), HERE)


def _without_idle(demand: Figure, account: Account) -> Figure:
    """Return the processor time of an I/O without what the process needs anyway; of little time, half is left."""
    idle = _IDLE_CORES / 2 / (account.iops.value or 1.0)
    less = min(idle, 0.5 * (demand.value or 0.0))
    low, high = (None if end is None else max(end - less, 0.0) for end in (demand.low, demand.high))
    return dataclasses.replace(demand, value=(demand.value or 0.0) - less, low=low, high=high)


def _part(figure: Figure, factor: float) -> Figure:
    low, high = (None if end is None else end * factor for end in (figure.low, figure.high))
    return Figure((figure.value or 0.0) * factor, "s", low, high)


def scaled(resource: Resource, *, demand: float = 1.0, capacity: float = 1.0) -> Resource:
    """Return a resource with its demand and its capacity multiplied."""
    return dataclasses.replace(resource, demand=resource.demand * demand, capacity=resource.capacity * capacity)


def processors_changed(model: LoadModel, kinds: Sequence[str], change: Callable[[Resource], Resource]) -> LoadModel:
    """Return the model with the processor time of processes changed, there and at their machines."""
    new = model.changed(kinds, change)
    pairs = zip(model.resources, new.resources, strict=True)
    saved = [
        (old.host, old.demand - resource.demand) for old, resource in pairs if old.kind in ("osd_cpu", "client_cpu")
    ]

    def machine(resource: Resource) -> Resource:
        less = sum((amount for host, amount in saved if host == resource.host), np.zeros_like(resource.demand))
        return dataclasses.replace(resource, demand=np.maximum(resource.demand - less, resource.demand * 0.01))

    return new.changed(MACHINE, machine)


def at_rate(model: LoadModel, measured: LoadModel, rate: Floats) -> LoadModel:
    """Return a model with the processor time that an I/O takes at another rate than the measured one.

    The busier a machine is, the less of it an I/O takes: threads find more to do each time that they wake up. With U
    for the use of its processors, the time is taken as proportional to 1 + cpu_fall × (1 − U); never to more than was
    measured. Of what a quota does to it nothing is known.
    """

    def use(of: LoadModel, host: str, at: Floats) -> Floats:
        machine = next(resource for resource in of.having(*MACHINE) if resource.host == host)
        return np.asarray(1 + model.cpu_fall * (1 - np.minimum(at * of.seconds(machine), 1.0)))

    hosts = {resource.host for resource in measured.having(*MACHINE)} & {
        resource.host for resource in model.having(*MACHINE)
    }
    fall = {host: np.minimum(use(model, host, rate) / use(measured, host, measured.rate), 1.0) for host in hosts}
    quotas = any(not model.is_shared(resource) for resource in model.having("client_cpu"))

    def change(resource: Resource) -> Resource:
        follows = not quotas if resource.kind == "client_thread" else model.is_shared(resource)
        if resource.host not in fall or not follows:
            return resource
        return dataclasses.replace(resource, demand=resource.demand * fall[resource.host])

    return processors_changed(model, ("osd_cpu", *CLIENT), change)


def quicker_processors(model: LoadModel, kinds: Sequence[str], factor: float) -> LoadModel:
    """Return the model with `factor` times the processors: a greater quota, else less time per I/O.

    A quota can give no more than the machine has.
    """

    def change(resource: Resource) -> Resource:
        if resource.kind == "client_thread" and any(
            not model.is_shared(client) for client in model.having("client_cpu")
        ):
            return resource
        if resource.kind == "client_thread" or model.is_shared(resource):
            return scaled(resource, demand=1 / factor)
        processors = model.processors(resource.host)
        more = (resource.capacity + resource.idle) * factor - resource.idle
        return dataclasses.replace(resource, capacity=more if processors is None else np.minimum(more, processors))

    return processors_changed(model, kinds, change)


def spread_evenly(model: LoadModel) -> LoadModel:
    """Return the model with the operations and the data evenly over the OSDs, as their weights are.

    All work of one kind is spread. Where it is not known of each OSD, an OSD's own follows its share of the operations.
    """
    expected = dict(zip(model.osds, model.even, strict=True))
    primary_share = dict(zip(model.osds, model.primaries, strict=True))
    resources: list[Resource] = [resource for resource in model.resources if resource.osd not in expected]
    for kind in dict.fromkeys(resource.kind for resource in model.resources if resource.osd in expected):
        same = [resource for resource in model.having(kind) if resource.osd in expected]
        if {resource.osd for resource in same} >= {osd for osd, share in primary_share.items() if share > 0}:
            total = np.sum([resource.demand for resource in same], axis=0)
            same = _with_capacities(same, total / len(same))
            spread = {resource.osd: resource for resource in same}
            idle = [
                dataclasses.replace(same[0], osd=osd, words=_of_osd(same[0], osd))
                for osd in expected
                if osd not in spread
            ]
            resources += [
                dataclasses.replace(resource, demand=total * expected[resource.osd]) for resource in [*same, *idle]
            ]
        else:
            resources += [
                scaled(resource, demand=expected[resource.osd] / primary_share[resource.osd])
                for resource in same
                if primary_share[resource.osd] > 0
            ]
    return dataclasses.replace(model, resources=tuple(resources), primaries=model.even)


def _with_capacities(same: Sequence[Resource], mean: Floats) -> list[Resource]:
    """Return the resources; the few I/Os of one that hardly did any do not say what it can do: it is as the others."""
    idle = [bool(resource.demand[0] < _IDLE_SHARE * mean[0]) for resource in same]
    usual = np.median([resource.capacity for resource, is_idle in zip(same, idle, strict=True) if not is_idle], axis=0)
    return [
        dataclasses.replace(resource, capacity=usual) if is_idle else resource
        for resource, is_idle in zip(same, idle, strict=True)
    ]


def with_replicas(model: LoadModel, count: int) -> LoadModel:
    """Return the model with `count` replicas of what is written; reads are from one of them either way."""
    old, new = model.replicas, min(count, max(1, len(model.osds)))

    def factor(weight: Callable[[int], float]) -> float:
        reads = 1 - model.writes
        return (reads + model.writes * weight(new)) / (reads + model.writes * weight(old))

    work = factor(float)
    of_cpu = factor(lambda copies: (_PRIMARY_CPU + copies - 1) / _PRIMARY_CPU)
    osd_hosts = {
        resource.host for resource in model.resources if resource.osd >= 0 and resource.kind in ("osd_cpu", "device")
    }
    model = processors_changed(model, ("osd_cpu",), lambda resource: scaled(resource, demand=of_cpu))
    model = model.changed(DEVICES, lambda resource: _with_journal(resource, model, work))
    model = model.changed(THREADS, lambda resource: scaled(resource, demand=work))
    model = model.changed(
        ("network",), lambda resource: scaled(resource, demand=work) if resource.host in osd_hosts else resource
    )
    # The wait beyond a primary's own commit: none with one copy, and H_r − 1 times a copy's mean with r.
    kept = (harmonic(new) - 1) / (harmonic(old) - 1) if old > 1 else 1.0
    kept = kept if model.writes > 0 else 1.0
    return dataclasses.replace(model, replicas=new, replica_wait=model.replica_wait * kept)


def _with_journal(device: Resource, model: LoadModel, work: float) -> Resource:
    """Return a device with `work` times the transactions, each with an I/O of its own; the rest is the journal's."""
    if device.unit != "I/Os" or model.customers == 1:
        return scaled(device, demand=work)
    total = np.sum([resource.demand for resource in model.having(device.kind)], axis=0)
    data = np.minimum(1.0, (1 + model.writes * (model.replicas - 1)) / total)
    journal = (1 - data) * (work + (1 - work) * model.journal)
    return dataclasses.replace(device, demand=device.demand * (data * work + journal))


def with_osds(model: LoadModel, count: int) -> LoadModel:
    """Return the model with new OSDs, each like the mean of the old ones; the old ones stay as uneven as they are."""
    old, less = len(model.osds), len(model.osds) / count
    added = tuple(range(max(model.osds) + 1, max(model.osds) + 1 + count - old))
    osd_hosts = {resource.host for resource in model.resources if resource.osd >= 0}
    model = processors_changed(model, ("osd_cpu",), lambda resource: scaled(resource, demand=less))
    model = model.changed((*DEVICES, *THREADS), lambda resource: scaled(resource, demand=less))
    model = model.changed(
        ("network",), lambda resource: scaled(resource, demand=less) if resource.host in osd_hosts else resource
    )
    new: list[Resource] = []
    for kind in dict.fromkeys(resource.kind for resource in model.resources if resource.osd >= 0):
        same = [resource for resource in model.having(kind) if resource.osd >= 0]
        if len(same) < old:
            continue
        demand, capacity = (
            np.mean([getattr(resource, name) for resource in same], axis=0) for name in ("demand", "capacity")
        )
        like = dataclasses.replace(same[0], host="", demand=demand, capacity=capacity)
        new += [dataclasses.replace(like, osd=osd, words=_of_osd(like, osd)) for osd in added]
    shares = [np.append(spread * less, np.full(len(added), 1 / count)) for spread in (model.primaries, model.even)]
    return dataclasses.replace(
        model, resources=(*model.resources, *new), osds=model.osds + added, primaries=shares[0], even=shares[1]
    )


def _of_osd(like: Resource, osd: int) -> str:
    """Return the words of a resource of another OSD: of an OSD that did nothing, or that is new."""
    return like.words.replace(f"osd.{like.osd}", f"osd.{osd}")
