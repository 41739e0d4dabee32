"""What holds a point back: one sentence, its evidence, and "cannot tell" when nothing measured is at its limit.

The order of the questions is the order of certainty. A throttled device at its limit is a fact; a busy device
is one only where a single I/O occupies it (a disk that seeks), because flash serves many I/Os at once and is
"busy" with the first. Processor time is a limit when a machine or the load's own thread has none left. What
remains is a chain of waits: with one I/O in flight there is no limit, only latency, and the largest stage of
it is named.
"""

from __future__ import annotations

import dataclasses

from bathyscope.analysis.stages import StageFinding
from bathyscope.records.finding import Evidence, Figure, Verdict
from bathyscope.units import format_duration_ns, format_percent, three_digits

DEVICE_LIMIT = 0.9
DEVICE_BUSY = 0.95
CPU_LIMIT = 0.9
CLIENT_THREAD_LIMIT = 0.95
CACHE_LIMIT = 0.5
STAGE_LIMIT = 0.5
OSD_CPU_SHARE = 0.4

_STAGE_WORDS = {
    "queue": "waiting in the OSD's queue",
    "prepare": "waiting for the placement group",
    "store": "in the OSD's own store",
    "replica_wait": "waiting for replicas",
    "reply": "in the reply",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Load:
    """What a verdict is judged from: medians over the repeats. None is unknown. CPU is in cores."""

    layer: str
    device_class: str
    op: str
    concurrency: int
    latency_ns_mean: float | None = None
    utilization_max: float | None = None
    utilization_mean: float | None = None
    limited: bool = False
    device_count: int = 0
    osd_cpu_us_per_op: float | None = None
    osd_cores: float | None = None
    client_cores: float | None = None
    client_thread_busy: float | None = None
    host_cpu_ratio: float | None = None
    host_processors: int | None = None
    other_cores: float | None = None
    read_from_cache_ratio: float | None = None
    stages: StageFinding | None = None


def verdict(load: Load) -> Verdict:
    """Return what holds the point back, in one sentence with its evidence."""
    evidence = _evidence(load)
    for question in (_device, _client, _cpu, _cache, _stage, _latency):
        answer = question(load)
        if answer is not None:
            limit, sentence = answer
            return Verdict(limit, sentence, evidence)
    return Verdict("unknown", f"cannot tell: {_nearest(load)}", evidence)


def _device(load: Load) -> tuple[str, str] | None:
    use = load.utilization_max
    if use is None:
        return None
    name = (load.device_class or "device").upper() if load.device_class in ("hdd", "ssd") else "device"
    uneven = load.device_count > 1 and load.utilization_mean is not None and use - load.utilization_mean > 0.03
    several = f", the mean of {load.device_count} at {format_percent(load.utilization_mean or 0)}" if uneven else ""
    if load.limited:
        if use >= DEVICE_LIMIT:
            return "device", f"{name} at {format_percent(min(use, 1.0))} of its limit{several}"
        return None
    if use >= DEVICE_LIMIT and load.device_class == "hdd" and load.concurrency > 1:
        return "device", f"{name} at {format_percent(min(use, 1.0))} utilisation{several}"
    host_free = load.host_cpu_ratio is None or load.host_cpu_ratio < CPU_LIMIT
    if use >= DEVICE_BUSY and load.concurrency > 1 and host_free:
        busy = f"{name} busy {format_percent(min(use, 1.0))} of the time{several}"
        return "device", busy + "; a device that serves many I/Os at once can have reserve even so"
    return None


def _client(load: Load) -> tuple[str, str] | None:
    busy = load.client_thread_busy
    if busy is not None and busy >= CLIENT_THREAD_LIMIT:
        who = f"the load generator's own thread uses {format_percent(busy)} of a processor"
    elif (
        load.client_cores is not None and load.host_processors and load.client_cores >= CPU_LIMIT * load.host_processors
    ):
        who = f"the load processes use {three_digits(load.client_cores)} of {load.host_processors} processors"
    else:
        return None
    return "client_cpu", f"{who}: the client is the limit"


def _cpu(load: Load) -> tuple[str, str] | None:
    if load.host_cpu_ratio is None or load.host_cpu_ratio < CPU_LIMIT:
        return None
    processors = load.host_processors or 1
    osd, client = load.osd_cores, load.client_cores or 0.0
    other = load.other_cores or 0.0
    if (
        osd is not None
        and load.osd_cpu_us_per_op is not None
        and osd >= max(client, other)
        and osd >= processors * OSD_CPU_SHARE
    ):
        return (
            "osd_cpu",
            f"OSD CPU: {three_digits(load.osd_cpu_us_per_op)} µs per op, {three_digits(osd)} of {processors} cores",
        )
    parts = [f"OSDs {three_digits(osd)}"] if osd is not None else []
    parts += [f"load {three_digits(client)}"] if load.client_cores is not None else []
    parts += [f"other processes {three_digits(other)}"] if load.other_cores is not None else []
    cores = f" ({', '.join(parts)} of {processors} cores)" if parts else ""
    return "host_cpu", f"the machine's processors are {format_percent(min(load.host_cpu_ratio, 1.0))} busy{cores}"


def _cache(load: Load) -> tuple[str, str] | None:
    ratio = load.read_from_cache_ratio
    if ratio is None or ratio < CACHE_LIMIT:
        return None
    return "cache", f"{format_percent(ratio)} of the reads came from a cache: this is not the speed of the devices"


def _stage(load: Load) -> tuple[str, str] | None:
    if load.stages is None or load.concurrency <= 1:
        return None
    for stage in ("replica_wait", "queue"):
        share = load.stages.share(stage)
        if share >= STAGE_LIMIT:
            of = f"{_STAGE_WORDS[stage]} is {format_percent(share)} of the time inside the OSDs"
            return stage, of + (_slowest(load.stages) if stage == "replica_wait" else "")
    return None


def _latency(load: Load) -> tuple[str, str] | None:
    if load.concurrency > 1 or load.latency_ns_mean is None:
        return None
    text = f"one I/O at a time, {format_duration_ns(load.latency_ns_mean)} each: latency sets the rate"
    largest = load.stages.largest if load.stages else None
    if largest is not None and largest.share > 0:
        text += f"; {format_percent(largest.share)} of the time inside the OSDs is {_STAGE_WORDS[largest.stage]}"
    return "latency_bound", text


def _slowest(stages: StageFinding) -> str:
    if not stages.slowest_peers or len(stages.slowest_peers) < 2:
        return ""
    first = stages.slowest_peers[0]
    # Only a peer that stands out is worth a name: twice its fair share of the waiting.
    if first.wait_share < 2 / len(stages.slowest_peers) and first.wait_share < 0.75:
        return ""
    return f"; osd.{first.osd} is waited for in {format_percent(first.wait_share)} of it"


def _nearest(load: Load) -> str:
    """Return the sentence of an unknown limit: what was measured, so that the reader sees how far from full."""
    parts = []
    if load.utilization_max is not None:
        parts.append(f"the busiest device is at {format_percent(load.utilization_max)}")
    if load.host_cpu_ratio is not None:
        parts.append(f"the processors at {format_percent(load.host_cpu_ratio)}")
    largest = load.stages.largest if load.stages else None
    if largest is not None:
        parts.append(f"{format_percent(largest.share)} of the time inside the OSDs is {_STAGE_WORDS[largest.stage]}")
    if not parts:
        return "neither devices nor processors were measured"
    return "nothing measured is at its limit; " + ", ".join(parts)


def _evidence(load: Load) -> tuple[Evidence, ...]:
    rows: list[tuple[str, float | None, str]] = [
        (
            "busiest device, share of its limit" if load.limited else "busiest device, busy",
            load.utilization_max,
            "ratio",
        ),
        ("devices under test, mean", load.utilization_mean if load.device_count > 1 else None, "ratio"),
        ("reads from cache", load.read_from_cache_ratio, "ratio"),
        ("OSD CPU per op", load.osd_cpu_us_per_op, "µs"),
        ("OSD CPU", load.osd_cores, "cores"),
        ("load generator CPU", load.client_cores, "cores"),
        ("load generator's busiest thread", load.client_thread_busy, "ratio"),
        ("other processes' CPU", load.other_cores, "cores"),
        ("processors busy", load.host_cpu_ratio, "ratio"),
        ("processors", float(load.host_processors) if load.host_processors else None, "cores"),
    ]
    found = [Evidence(name, Figure(value, unit)) for name, value, unit in rows if value is not None]
    if load.stages is not None:
        found += [
            Evidence(f"OSD time {_STAGE_WORDS[s.stage]}", Figure(s.share, "ratio", samples=load.stages.sample_count))
            for s in load.stages.shares
        ]
        found += [
            Evidence(f"replica waits ended by osd.{p.osd}", Figure(p.wait_share, "ratio", samples=p.wait_count))
            for p in load.stages.slowest_peers[:3]
        ]
    return tuple(found)
