"""What a change would make of a measured load's rate: `osd.cpu=2x`, `disk=nvme`, `even`, `size=2`, `qd=32`, `osds=12`.

The account gives what one I/O asks of every resource, and so a closed queueing network (`load_model`, `queueing`). Its
rate is not quite the measured one, as latency has parts that no resource explains. They are made good first, so that
the network has exactly the measured rate; then the change is made, and it is solved again.

What cannot be known from one load is where these parts belong. So it is done in three ways, and the interval holds all:

- fixed: they are delays, which no change shortens;
- nearer: resources give a little less than their ceilings (one counts as reached from 85 % on); the rest are delays;
- unmeasured: as nearer, but the rest are waits for something in the OSDs that nobody measures and that has a limit too.

The value is the first where at most 70 % of the nearest resource is used, the second where it is reached (what is used
up is what I/Os wait for), and between them else. Then comes the model's own error, 15 % of the rate: Lazowska et al.
(1984, chapter 1) find rates within 5 to 10 % and latencies within 10 to 30 %, the pairs of runs of benchmarks/verdicts
rates within 20 %. No value is above a ceiling.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping

import numpy as np

from bathyscope.analysis.account.ceilings import AT_CEILING
from bathyscope.analysis.columns import Floats
from bathyscope.analysis.load_model import (
    CLIENT,
    DEVICES,
    MACHINE,
    THREADS,
    LoadModel,
    Resource,
    Samples,
    at_rate,
    model_of,
    quicker_processors,
    scaled,
    spread_evenly,
    with_osds,
    with_replicas,
)
from bathyscope.analysis.queueing import Network, bisect, is_faster, solve
from bathyscope.errors import UsageError
from bathyscope.records.account import Account, Prediction
from bathyscope.records.figure import Figure
from bathyscope.records.finding import LadderFinding, PointFinding
from bathyscope.units import format_percent, format_rate, three_digits

_AMPLE = 0.7
_MODEL_ERROR = 0.15
_SAME = 0.05
# The processor time of an I/O follows from the rate that follows from it; each round halves the distance.
_ROUNDS = 6
_GRAMMAR = (
    "osd.cpu=2x, client.cpu=2x, network=2x, disk=2x, disk=nvme, even, size=2, qd=32, osds=12; several with commas"
)
_CLASSES = {"hdd": "HDDs", "ssd": "SSDs", "nvme": "NVMe drives"}
# Where the latency is spent that resources outside of the OSDs, and inside of them, make longer.
_OUTSIDE = ("outside",)
_UNTOUCHED_BY_OSD = ("outside", "prepare")


@dataclasses.dataclass(frozen=True, slots=True)
class _Change:
    """One change as it is understood: the model after it, its words after "With …", what it takes for granted."""

    model: LoadModel
    words: str
    assumption: str


@dataclasses.dataclass(frozen=True, slots=True)
class _Asked:
    """What a change is asked of."""

    point: PointFinding
    disk_iops: Mapping[str, float]
    replicas: int | None


@dataclasses.dataclass(frozen=True, slots=True)
class _Fit:
    """What gives a model the measured rate: a factor on all demands, a delay, and a wait in the OSDs."""

    scale: Floats
    delay_s: Floats
    unmeasured_s: Floats
    threads_queue: bool

    def network(self, model: LoadModel, replica_share: float) -> Network:
        # Of the time beyond the resources, the part that a write waits for its replicas changes with their number.
        kept = 1 - replica_share * (1 - model.replica_wait)
        return model.network(
            self.scale,
            delay_s=self.delay_s * kept,
            unmeasured_s=self.unmeasured_s * kept,
            threads_queue=self.threads_queue,
        )


def predict(
    point: PointFinding, change: str, *, disk_iops: Mapping[str, float] | None = None, replicas: int | None = None
) -> Prediction:
    """Return what `change` would make of the rate of a point.

    `disk_iops` are the IOPS of one disk of each class for this pattern, as the disk layer of the run measured them;
    `replicas` is the size of the pool. Raises UsageError for a change that is not understood, or of what is not known.
    """
    if point.verdict.limit == "load_rate":
        hint = "ask about a step without a rate"
        raise UsageError(f"{point.step_key} keeps to a rate of its own, which no change makes higher", hint=hint)
    measured = model_of(point, replicas, Samples())
    account = measured.account
    asked = _Asked(point, disk_iops or {}, replicas)
    model, words, assumptions = measured, [], []
    for text in _parts(change):
        changed = _changed(model, text, asked)
        model = changed.model
        words.append(changed.words)
        assumptions.append(changed.assumption)
    rates = _rates(measured, model)
    new = _value(measured, rates)
    same = model.asks_the_same(measured)
    iops = account.iops if same else _figure(new, rates, "1/s")
    ratios = [rate / measured.rate for rate in rates]
    ratio = Figure(1.0, "ratio", 1.0, 1.0) if same else _figure(new / float(measured.rate[0]), ratios, "ratio")
    nearest = model.nearest
    used = new * float(model.seconds(nearest)[0])
    return Prediction(
        change,
        iops,
        _latency(account, iops, model.customers),
        ratio,
        nearest.words,
        _sentence(" and ".join(words), iops, ratio, nearest.words, used),
        tuple(assumptions) + _common(measured, grows=bool(ratio.value and ratio.value > 1 + _SAME)),
    )


def predict_in_run(
    ladder: LadderFinding, point: PointFinding, change: str, *, replicas: int | None = None
) -> Prediction:
    """Return what `change` would make of a point of a run, with what the run knows of other disks and of its pools.

    `replicas` is the size of the pool where that is known better: a pool of the operator's is one of many.
    """
    disks = {
        disk.device_class: disk.iops.value
        for disk in ladder.points
        if not disk.on_cluster and _load(disk) == _load(point) and disk.iops.value
    }
    return predict(point, change, disk_iops=disks, replicas=replicas or _replicas(ladder))


def _replicas(ladder: LadderFinding) -> int | None:
    """Return the size of the run's own pools, else of all pools of the cluster; None where they are not alike.

    Chunks of an erasure-coded pool are no replicas.
    """
    facts = [fact for fact in ladder.environment if fact[0].startswith("pool ")]
    facts = [fact for fact in facts if fact[0].startswith("pool bathy-")] or facts
    sizes = {value for _, name, value in facts if name == "size"}
    coded = any(value for _, name, value in facts if name == "erasure_code_profile")
    return int(next(iter(sizes))) if len(sizes) == 1 and not coded else None


def _load(point: PointFinding) -> tuple[str, int, int]:
    return point.op, point.block_size_bytes, point.queue_depth


def _rates(measured: LoadModel, model: LoadModel) -> list[Floats]:
    """Return the new rate of each sample: with the rest of the latency fixed, nearer, unmeasured."""
    shares = {part.place: part.share.value or 0.0 for part in measured.account.parts}
    replica_share = shares.get("replica_wait", 0.0)
    # More I/Os in flight commit in larger batches, so that a thread's own time for each of them falls.
    deeper = model.customers > measured.customers
    rates = []
    for fit in _fits(measured, shares):
        new = _rate(fit, measured, model, replica_share, deeper=deeper)
        for _ in range(_ROUNDS if (new > measured.rate * (1 + _SAME)).any() else 0):
            then = _rate(fit, measured, at_rate(model, measured, new), replica_share, deeper=deeper)
            new = np.sqrt(new * then)
        rates.append(new)
    return rates


def _rate(fit: _Fit, measured: LoadModel, model: LoadModel, replica_share: float, *, deeper: bool) -> Floats:
    """Return the rate of a model with the rest of the latency as it was fitted, below all ceilings."""
    new = solve(fit.network(model, replica_share), model.customers)
    for resource in model.resources:
        if resource.kind not in THREADS:
            new = np.minimum(new, 1 / np.maximum(model.seconds(resource), 1e-300))
        elif fit.threads_queue or not deeper:
            new = np.minimum(new, 1 / np.maximum(_thread_s(measured, model, resource, own=fit.threads_queue), 1e-300))
    return new


def _thread_s(measured: LoadModel, model: LoadModel, thread: Resource, *, own: bool) -> Floats:
    """Return the time of a thread per I/O; where the part that is its `own` is not, all of it follows the hardware."""
    after, before = model.hardware_s(thread.osd), measured.hardware_s(thread.osd)
    if own or not before.any():
        return model.seconds(thread)
    quicker = np.divide(after, before, out=np.ones_like(after), where=before > 0)
    held = thread.held if thread.held is not None else np.zeros_like(after)
    return np.asarray((thread.demand * np.minimum(quicker, 1.0) + held * after) / thread.capacity)


def _fits(model: LoadModel, shares: Mapping[str, float]) -> list[_Fit]:
    """Return the three ways to give the model the measured rate."""
    latency = model.customers / model.rate
    zero = np.zeros_like(latency)

    def fitted(most_delay: Floats, *, threads_queue: bool) -> _Fit:
        fit = _Fit(np.ones_like(latency), zero, zero, threads_queue)
        fit = _delayed(model, fit, most_delay)
        fit = _slowed(model, fit, np.full_like(latency, 1 / AT_CEILING))
        return _delayed(model, fit, latency)

    nearer = fitted(zero, threads_queue=False)
    outside = nearer.delay_s * min(1.0, sum(shares.get(place, 0.0) for place in _OUTSIDE))
    # With threads as queues the demands alone can be slower than measured: then a smaller factor is right.
    queues = dataclasses.replace(nearer, delay_s=outside, threads_queue=True)
    queues = _slowed(model, queues, nearer.scale)
    rest = _most_that(model, latency * max(1, len(model.osds)), lambda s: dataclasses.replace(queues, unmeasured_s=s))
    unmeasured = dataclasses.replace(queues, unmeasured_s=rest)
    return [fitted(_most_delay(model, shares), threads_queue=True), nearer, unmeasured]


def _delayed(model: LoadModel, fit: _Fit, most: Floats) -> _Fit:
    """Return the fit with as much more delay as the rate allows, at most `most`."""
    more = _most_that(model, most, lambda delay: dataclasses.replace(fit, delay_s=fit.delay_s + delay))
    return dataclasses.replace(fit, delay_s=fit.delay_s + more)


def _slowed(model: LoadModel, fit: _Fit, most: Floats) -> _Fit:
    """Return the fit with the greatest factor on all demands that the rate allows, at most `most`."""
    return dataclasses.replace(fit, scale=_most_that(model, most, lambda scale: dataclasses.replace(fit, scale=scale)))


def _most_that(model: LoadModel, most: Floats, fit_with: Callable[[Floats], _Fit]) -> Floats:
    """Return the greatest amount, up to `most`, with which the model is not slower than was measured."""
    return bisect(lambda amount: is_faster(fit_with(amount).network(model, 0.0), model.customers, model.rate), most)


def _most_delay(model: LoadModel, shares: Mapping[str, float]) -> Floats:
    """Return the most time that can be a delay: where a resource is reached, the time spent at its place is a wait."""
    latency, nearest = model.customers / model.rate, model.nearest
    if not shares or model.seconds(nearest)[0] * model.rate[0] < AT_CEILING or nearest.kind in (*MACHINE, "network"):
        return latency
    outside = min(1.0, sum(shares.get(place, 0.0) for place in (_OUTSIDE if nearest.osd < 0 else _UNTOUCHED_BY_OSD)))
    return latency * (outside if nearest.osd >= 0 else 1 - outside)


def _value(measured: LoadModel, rates: list[Floats]) -> float:
    fixed, nearer = float(rates[0][0]), float(rates[1][0])
    used = float((measured.rate * measured.seconds(measured.nearest))[0])
    weight = min(1.0, max(0.0, (used - _AMPLE) / (AT_CEILING - _AMPLE)))
    return float(np.exp((1 - weight) * np.log(fixed) + weight * np.log(nearer)))


def _figure(value: float, ways: list[Floats], unit: str) -> Figure:
    """Return the value with the interval that holds the middle 95 % of each way's samples and the model's error."""
    low = min(min(float(way[0]), float(np.quantile(way[1:], 0.025))) for way in ways) * (1 - _MODEL_ERROR)
    high = max(max(float(way[0]), float(np.quantile(way[1:], 0.975))) for way in ways) * (1 + _MODEL_ERROR)
    return Figure(value, unit, min(low, value), max(high, value))


def _latency(account: Account, iops: Figure, customers: int) -> Figure:
    """Return the latency by Little's law; what an I/O spends outside of the measured latency stays the same part."""
    measured = account.latency_ns.value
    if not measured or not account.iops.value:
        return Figure(None, "ns")
    inside = measured / (account.concurrency / account.iops.value)
    value, low, high = (
        None if rate is None else inside * customers / rate for rate in (iops.value, iops.high, iops.low)
    )
    return Figure(value, "ns", low, high)


# -- changes


def _parts(change: str) -> list[str]:
    parts = [part.strip().lower() for part in change.split(",")]
    names = [part.partition("=")[0] for part in parts]
    if not all(parts):
        raise UsageError(f"'{change}' is not a change", hint=f"write {_GRAMMAR}")
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UsageError(f"'{change}' has {twice} twice", hint="name each change once: osd.cpu=4x")
    return parts


def _changed(model: LoadModel, text: str, asked: _Asked) -> _Change:
    name, sign, value = text.partition("=")
    if name not in _CHANGES or (name == "even") == bool(sign):
        raise UsageError(f"'{text}' is not a change", hint=f"write {_GRAMMAR}")
    return _CHANGES[name](model, value, asked)


def _factor(name: str, value: str) -> float:
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)x", value)
    factor = float(match[1]) if match else 0.0
    if not 0.01 <= factor <= 1000:
        raise UsageError(f"'{name}={value}' is not a factor", hint=f"write {name}=2x, from 0.01x to 1000x")
    return factor


def _count(name: str, value: str, most: int) -> int:
    if not re.fullmatch(r"[0-9]{1,7}", value) or not 1 <= int(value) <= most:
        raise UsageError(f"'{name}={value}' is not a number", hint=f"write {name}=N with N from 1 to {most}")
    return int(value)


def _times(factor: float) -> str:
    return {2.0: "twice", 0.5: "half"}.get(factor, f"{factor:g} ×")


def _known(model: LoadModel, kinds: tuple[str, ...], what: str, asked: _Asked, hint: str) -> None:
    if not model.having(*kinds):
        raise UsageError(f"the run did not sample {what} of {asked.point.step_key}", hint=hint)


def _osd_cpu(model: LoadModel, value: str, asked: _Asked) -> _Change:
    factor = _factor("osd.cpu", value)
    _known(model, ("osd_cpu",), "OSD CPU", asked, "run with capture.processes, on the OSDs' machines or with --ssh")
    assumption = "OSD CPU: a quota becomes that much larger; without one, the OSDs' processor time per I/O shorter"
    new = quicker_processors(model, ("osd_cpu",), factor)
    return _Change(new, f"{_times(factor)} the OSD CPU", assumption)


def _client_cpu(model: LoadModel, value: str, asked: _Asked) -> _Change:
    factor = _factor("client.cpu", value)
    _known(model, CLIENT, "the CPU of the load generator", asked, "run with capture.processes")
    assumption = "load generator: a quota becomes that much larger; without one, its processor time per I/O shorter"
    new = quicker_processors(model, CLIENT, factor)
    return _Change(new, f"{_times(factor)} the load generator's CPU", assumption)


def _network(model: LoadModel, value: str, asked: _Asked) -> _Change:
    factor = _factor("network", value)
    hint = "links that report no speed (virtual ones) have no known limit"
    _known(model, ("network",), "a network link with a known speed for the load", asked, hint)
    new = model.changed(("network",), lambda resource: scaled(resource, capacity=factor))
    return _Change(new, f"{_times(factor)} the network speed", "network: every link is that much faster")


def _disk(model: LoadModel, value: str, asked: _Asked) -> _Change:
    hint = "measure what they can do in the same run: bathy bench run with the disk layer (--layer disk,…)"
    if value in _CLASSES:
        return _disk_class(model, value, asked, hint)
    factor = _factor("disk", value)
    _known(model, DEVICES, "what the disks can do, for the load", asked, hint)
    new = model.changed(DEVICES, lambda resource: scaled(resource, capacity=factor))
    words = {2.0: "disks twice as fast", 0.5: "disks half as fast"}.get(factor, f"disks {factor:g} × as fast")
    return _Change(new, words, "disks: each does that many more I/Os a second")


def _disk_class(model: LoadModel, name: str, asked: _Asked, hint: str) -> _Change:
    old, iops = asked.point.device_class, asked.disk_iops
    _known(model, ("device",), "what the disks can do, for the load", asked, hint)
    if not iops.get(name):
        given = f"bathy bench run --disk {name}=PATH, with the disk layer and the same pattern"
        raise UsageError(
            f"the run did not measure a disk of class {name} with this pattern", hint=f"measure one: {given}"
        )

    def change(resource: Resource) -> Resource:
        words = resource.words.replace(old.upper(), name.upper())
        if resource.unit == "I/Os":
            return dataclasses.replace(resource, words=words, capacity=np.full_like(resource.capacity, iops[name]))
        if not iops.get(old):
            raise UsageError(f"the run did not measure a disk of class {old} with this pattern", hint=hint)
        return dataclasses.replace(scaled(resource, capacity=iops[name] / iops[old]), words=words)

    words = f"{_CLASSES[name]} instead of {_CLASSES.get(old, 'the disks')}"
    assumption = (
        f"disks: {format_rate(iops[name])} IOPS each, as one of class {name} in this run; as many device I/Os per I/O"
    )
    return _Change(model.changed(("device",), change), words, assumption)


def _even(model: LoadModel, _value: str, asked: _Asked) -> _Change:
    if not model.osds:
        hint = "run with capture.perf_counters; a disk or a cluster with an OSD that did not answer has no shares"
        raise UsageError(f"the OSDs' shares of {asked.point.step_key} are not known", hint=hint)
    assumption = (
        "even: each OSD has the share of operations and of data that its weight gives it, and they cost the same"
    )
    return _Change(spread_evenly(model), "operations spread evenly over the OSDs", assumption)


def _size(model: LoadModel, value: str, asked: _Asked) -> _Change:
    count = _count("size", value, 10)
    if asked.replicas is None and model.writes > 0:
        hint = "erasure-coded pools and pools whose size is not known cannot be asked about"
        raise UsageError(f"the number of replicas under {asked.point.step_key} is not known", hint=hint)
    if count > max(1, len(model.osds)):
        hint = f"write size=N with N up to {max(1, len(model.osds))}"
        raise UsageError(f"'size={value}' is more than the load's {len(model.osds)} OSDs", hint=hint)
    words = f"{count} {'replica' if count == 1 else 'replicas'}"
    if asked.replicas is not None and asked.replicas != count:
        words += f" instead of {asked.replicas}"
    assumption = (
        "size: data writes, kv-sync and network of the OSDs go with the number of copies, the journal's writes do not; "
        "a primary needs twice the CPU of a replica; the wait for replicas shortens as the longest of fewer times does"
    )
    return _Change(with_replicas(model, count), words, assumption)


def _qd(model: LoadModel, value: str, asked: _Asked) -> _Change:
    depth = _count("qd", value, 65536)
    jobs = max(1, model.customers // max(1, asked.point.queue_depth))
    words = f"queue depth {depth} instead of {asked.point.queue_depth}"
    assumption = (
        "qd: an I/O asks the same of each resource at any depth; in truth, deeper queues commit in larger batches"
    )
    return _Change(dataclasses.replace(model, customers=depth * jobs), words, assumption)


def _osds(model: LoadModel, value: str, asked: _Asked) -> _Change:
    count, old = _count("osds", value, 10000), len(model.osds)
    if not old or not any(resource.osd >= 0 for resource in model.resources):
        hint = "run with capture.perf_counters, capture.devices and capture.processes"
        raise UsageError(f"the OSDs' shares of {asked.point.step_key} are not known", hint=hint)
    if count < old:
        raise UsageError(
            f"'osds={value}' is fewer than the {old} OSDs of the load", hint=f"write osds=N with N above {old}"
        )
    assumption = "osds: the new ones are like the mean of the old ones, on machines of their own"
    return _Change(with_osds(model, count), f"{count} OSDs instead of {old}", assumption)


_CHANGES: dict[str, Callable[[LoadModel, str, _Asked], _Change]] = {
    "osd.cpu": _osd_cpu,
    "client.cpu": _client_cpu,
    "network": _network,
    "disk": _disk,
    "even": _even,
    "size": _size,
    "qd": _qd,
    "osds": _osds,
}


# -- words


def _sentence(words: str, iops: Figure, ratio: Figure, nearest: str, used: float) -> str:
    value, low, high = iops.value or 0.0, iops.low, iops.high
    spread = f" ({format_rate(low)}–{format_rate(high)})" if low is not None and high is not None else ""
    times = ratio.value or 0.0
    share = format_percent(min(used, 1.0))
    if abs(times - 1) < _SAME:
        holds = f"{nearest} still holds it ({share} of its ceiling)"
        if used < AT_CEILING:
            holds = f"latency holds it, not a resource; the nearest is {nearest} with {share} of its ceiling"
        return f"With {words}: {format_rate(value)} IOPS{spread}, about as many as now: {holds}"
    then = (
        f"{nearest} is the limit"
        if used >= AT_CEILING
        else f"no resource is at its limit, the nearest is {nearest} ({share})"
    )
    return f"With {words}: {format_rate(value)} IOPS{spread}, {three_digits(times)} × as many; then {then}"


def _common(model: LoadModel, *, grows: bool) -> tuple[str, ...]:
    account = model.account
    assumptions = [f"closed loop: {account.concurrency} I/Os in flight, each sent when one ends"]
    if grows and any(model.is_shared(resource) for resource in model.having("osd_cpu", "client_cpu")):
        assumptions.append("processors without a quota: the busier they are, the less of their time an I/O takes")
    if account.iops.low is None:
        assumptions.append("one repeat: the interval has the model's uncertainty only")
    if model.writes > 0 and model.osds:
        assumptions.append(
            f"a write is at {model.replicas} OSDs at once" if model.replicas > 1 else "a write is at one OSD"
        )
    return tuple(assumptions)
