"""Findings made by hand, close to what an emulated three-HDD, three-SSD cluster shows; hostile names included."""

from __future__ import annotations

import dataclasses
import functools
import math

from tests.unit.analysis.builders import LAYERS as LAYER_VIEWS

from bathyscope.records import CLIENTS, HERE
from bathyscope.records.account import Account, Ceiling, ForeignWork, LatencyPart, OsdShare, Prediction
from bathyscope.records.activity_finding import ActivityFinding
from bathyscope.records.blocks import CaveatView, Column, HeatMap, Table
from bathyscope.records.collect_finding import CollectFinding
from bathyscope.records.explain_finding import AccountFinding, AccountsFinding
from bathyscope.records.figure import Figure
from bathyscope.records.finding import (
    CommandView,
    CompareFinding,
    Difference,
    Distribution,
    DistributionPoint,
    Evidence,
    LadderFinding,
    NodeFinding,
    PointFinding,
    RungGroup,
    RungLoss,
    Series,
    SeriesPoint,
    StageShare,
    StepEffect,
    Verdict,
)
from bathyscope.records.recording_finding import DaemonAbsence, Gap, RecordingFinding, SourceRecording
from bathyscope.views import as_text

HOSTILE_HOST = "<img src=x onerror=alert(1)>\"'&host"
HOSTILE_POOL = "</script><script>alert('pool')</script>"
HOSTILE_ESCAPE = "evil\x1b[31mred\x1b[0m\u202egnp.exe"
HOSTILE_CSV = "=cmd|' /C calc'!A0"

PATTERNS = (
    ("randread", 4096, 1),
    ("randread", 4096, 16),
    ("randwrite", 4096, 1),
    ("randwrite", 4096, 16),
    ("read", 65536, 16),
    ("write", 65536, 16),
)
LAYERS = tuple(view.name for view in LAYER_VIEWS)
# IOPS at (disk, rados, rbd) for each pattern.
IOPS = {
    "hdd": ((232, 229, 224), (232, 668, 641), (232, 118, 104), (232, 184, 171), (2480, 5210, 4630), (2440, 880, 812)),
    "ssd": (
        (9870, 2910, 2140),
        (41300, 15800, 12100),
        (8120, 1240, 987),
        (29400, 4870, 3910),
        (7900, 6230, 5120),
        (6450, 1870, 1640),
    ),
}

LAB = CaveatView("lab_shared_cpu", "note", "All daemons and the load share 2 processors of one machine.")
PROFILE = CaveatView("throttle_profile", "note", "hdd is emulated: a loop device held at 232 IOPS and 180 MiB/s.")
UNSTEADY = CaveatView(
    "unsteady",
    "warning",
    "IOPS ranged over 31 % of the mean in the window (limit 20 %), prolonged twice.",
    ("rbd/ssd/randwrite-4K-qd16",),
)
CACHE = CaveatView(
    "cache_hits",
    "warning",
    "38 % of the reads were served by BlueStore's cache, not by the disk.",
    ("rados/hdd/read-64K-qd16",),
)


def figure(value: float | None, unit: str, spread: float = 0.01, samples: int = 3, error: float = 0.0) -> Figure:
    """Return a figure with a slightly lopsided interval of about ±spread."""
    if value is None:
        return Figure(None, unit)
    return Figure(value, unit, value * (1 - spread), value * (1 + spread * 0.8), error, samples)


def pattern_name(op: str, size: int, depth: int) -> str:
    return f"{op}-{size // 1024}K-qd{depth}"


def _stages(layer: str, op: str, mean_ns: float) -> tuple[StageShare, ...]:
    if layer == "disk":
        return ()
    reads = {"queue": 0.14, "prepare": 0.06, "store": 0.75, "reply": 0.05}
    writes = {"queue": 0.11, "prepare": 0.07, "store": 0.19, "replica_wait": 0.58, "reply": 0.05}
    shares = writes if "write" in op else reads
    return tuple(
        StageShare(name, share, share * mean_ns * 0.8, share * mean_ns * 0.7, share * mean_ns * 2.4)
        for name, share in shares.items()
    )


# CPU of all OSDs for one I/O; the OSDs of a machine have two cores, which the fastest loads nearly use up.
OSD_CPU_US, OSD_CORES = 180.0, 2.0
# Device I/Os on each of three OSDs for one I/O: reads go to one of them, writes to all, with metadata.
DEVICE_DEMAND = {"randread": 1 / 3, "read": 1 / 3, "randwrite": 1.2, "write": 2.4}
_SERVER = "node2"


def _cpu_us(iops: float) -> float:
    """Return the CPU time of the OSDs for one I/O: they become cheaper where the cores are full."""
    return min(OSD_CPU_US, 0.95 * OSD_CORES / iops * 1e6)


# How far the repeats of a layer are apart.
SPREAD = {"disk": 0.004, "rados": 0.015, "rbd": 0.03}


def account(  # noqa: PLR0917 - a configuration has as many parts
    device_class: str, layer: str, op: str, size: int, depth: int, iops: float
) -> Account | None:
    """Return the account of a load on three OSDs: Little's law closes, and the parts add up to the latency."""
    if layer == "disk":
        return None
    rate, latency_ns = figure(iops, "1/s", SPREAD[layer]), depth / iops * 1e9
    osds = (0, 1, 2) if device_class == "hdd" else (3, 4, 5)
    disk = IOPS[device_class][PATTERNS.index((op, size, depth))][0]
    medium, first, link = device_class.upper(), f"osd.{osds[0]}", "the link's speed"

    def ceiling(  # noqa: PLR0917 - a ceiling has as many parts
        resource: str,
        subject: str,
        words: str,
        host: str,
        demand: float,
        capacity: float | None,
        unit: str,
        source: str,
    ) -> Ceiling:
        most = None if capacity is None else capacity / demand
        reached = figure(None if most is None else iops / most, "ratio", 0.02)
        return Ceiling(
            resource, subject, words, host, Figure(demand, unit), figure(capacity, unit, 0.005), source,
            figure(most, "1/s", 0.01), reached, binding=resource != "kv_sync",
        )  # fmt: skip

    # The last OSD has a little less to do, so that its ceiling is a little higher.
    found = [
        ceiling(
            "device", f"osd.{osd}", f"osd.{osd}'s {medium} ({HOSTILE_HOST if osd == osds[2] else _SERVER})", _SERVER,
            DEVICE_DEMAND[op] * share, disk, "I/Os", "the disk layer of this run",
        )
        for osd, share in zip(osds, (1.0, 0.99, 0.97), strict=True)
    ]  # fmt: skip
    cpu = _cpu_us(iops) / 1e6
    found += [
        ceiling("host_cpu", _SERVER, f"the CPU of {_SERVER}", _SERVER, cpu, OSD_CORES, "s", "its processors"),
        ceiling("client_cpu", HERE, "the CPU of the load generator", HERE, 64e-6, 4.0, "s", "its processors"),
        ceiling("kv_sync", first, f"the kv-sync thread of {first}", _SERVER, 31e-6, 1.0, "s", "one thread"),
        ceiling("network", HERE, "the network of this machine", HERE, size + 512, 1.25e9, "bytes", link),
        ceiling("network", _SERVER, f"the network of {_SERVER}", _SERVER, size + 512, None, "bytes", link),
    ]  # fmt: skip
    found.sort(key=lambda one: -(one.reached.value or -1.0))
    writes = {"outside": 0.08, "queue": 0.11, "prepare": 0.04, "store": 0.07, "kv_sync": 0.11, "replica_wait": 0.59}
    reads = {"outside": 0.17, "queue": 0.11, "prepare": 0.06, "store": 0.66}
    parts = writes if "write" in op else reads
    return Account(
        concurrency=depth,
        iops=rate,
        latency_ns=figure(latency_ns, "ns", SPREAD[layer]),
        in_flight=figure(iops * latency_ns / 1e9, "I/Os", 0.004),
        ceilings=tuple(found),
        parts=tuple(
            LatencyPart(place, figure(share, "ratio", 0.03), figure(share * latency_ns, "ns", 0.03))
            for place, share in parts.items()
        ),
        osds=tuple(
            OsdShare(osd, _SERVER, Figure(share, "ratio"), Figure(busy, "ratio"), Figure(own * latency_ns, "ns"), 1 / 3)
            for osd, share, busy, own in zip(
                osds, (0.338, 0.334, 0.328), (0.41, 0.31, 0.28), (0.88, 0.66, 0.61), strict=True
            )
        ),
        foreign=(
            ForeignWork(
                "tenant", f"pool {HOSTILE_POOL}", "write", figure(51.5, "1/s", 0.1), figure(51.5 / iops, "ratio", 0.1),
                f"The pool {HOSTILE_POOL} wrote 51.5 times a second.",
            ),
            ForeignWork("scrub", "", "", Figure(2, "PGs"), Figure(None, "ratio"), "2 placement groups were scrubbed."),
        )
        if device_class == "hdd" and layer == "rados" and op == "randread"
        else (),
    )  # fmt: skip


def _verdict(device_class: str, layer: str, op: str, depth: int, found: Account | None) -> Verdict:
    if found is None:
        use = Evidence("device utilisation", Figure(0.99, "ratio", 0.98, 1.0))
        limit = "device" if device_class == "hdd" else "latency_bound"
        return Verdict(limit, f"The {device_class.upper()} is at 99 % of its limit.", (use,))
    first, *others = found.limits
    reached = first.reached.value or 0.0
    alternatives = tuple(Evidence(one.words, one.reached) for one in others if one.resource != first.resource)[:3]
    if reached >= 0.85:
        name = first.words[:1].upper() + first.words[1:]
        sentence = f"{name}: {100 * reached:.0f} % of the ceiling is reached."
        step = (
            "Measure with one more OSD."
            if first.resource == "device"
            else "Give the OSDs more cores and measure again."
        )
        evidence = (Evidence("ceiling", first.iops), Evidence("one I/O takes", first.demand))
        return Verdict(first.resource, sentence, evidence, first.subject, alternatives, step)
    if "write" in op:
        wait = Evidence("replica wait", Figure(0.59, "ratio", 0.58, 0.63))
        sentence = f"59 % of the latency is replica wait; {first.words} reaches {100 * reached:.0f} % of its ceiling."
        return Verdict("nearest", sentence, (wait,), "", alternatives, "Raise the queue depth to find the ceiling.")
    if depth == 1:
        return Verdict("latency_bound", "One I/O is in flight: the latency is the limit.", (), "", alternatives)
    sentence = f"Nearest limit: {first.words}, {100 * reached:.0f} % reached."
    return Verdict("nearest", sentence, (), "", alternatives, "Raise the queue depth to find the ceiling.")


def point(  # noqa: PLR0917 - a configuration has as many parts
    device_class: str, layer: str, op: str, size: int, depth: int, iops: float
) -> PointFinding:
    name = pattern_name(op, size, depth)
    key = f"{layer}/{device_class}/{name}"
    mean_ns = depth / iops * 1e9
    spread = SPREAD[layer]
    caveats = [c for c in (UNSTEADY, CACHE) if key in c.step_keys]
    write = "write" in op
    error = 1 / 128
    found = account(device_class, layer, op, size, depth, iops)
    return PointFinding(
        step_key=key,
        layer=layer,
        load_generator="fio",
        on_cluster=layer != "disk",
        device_class=device_class,
        pattern=name,
        op=op,
        block_size_bytes=size,
        queue_depth=depth,
        jobs=1,
        status="done",
        reason=None,
        repeats=3,
        iops=figure(iops, "1/s", spread),
        bandwidth_bytes_per_s=figure(iops * size, "bytes/s", spread),
        latency_ns_mean=figure(mean_ns, "ns", spread),
        latency_ns_p50=figure(mean_ns * 0.93, "ns", spread, error=error),
        latency_ns_p99=figure(mean_ns * 2.1, "ns", spread * 3, error=error),
        latency_ns_p999=figure(mean_ns * 3.6 if iops > 200 else None, "ns", spread * 6, error=error),
        write_amplification=figure((1.0 if layer == "disk" else 14.2) if write else None, "", 0.02),
        read_from_cache_ratio=figure(None if write or layer == "disk" else 0.02, "ratio"),
        osd_cpu_us_per_op=figure(None if layer == "disk" else _cpu_us(iops), "µs", 0.03),
        client_cpu_us_per_op=figure(22.0 if layer == "disk" else 64.0, "µs", 0.05),
        device_utilization=figure(0.99 if device_class == "hdd" else 0.41, "ratio", 0.01),
        steady=UNSTEADY not in caveats,
        stages=_stages(layer, op, mean_ns),
        stage_sample_count=0 if layer == "disk" else 4213,
        stage_sample_complete=iops < 1000,
        caveats=tuple(caveats),
        verdict=_verdict(device_class, layer, op, depth, found),
        account=found,
        nodes=() if layer == "disk" else _nodes(iops * size),
    )


def _nodes(rate: float) -> tuple[NodeFinding, ...]:
    """Return the client and a node: the client sends once, the node what it got and a copy."""
    return tuple(
        NodeFinding(
            name,
            Figure(0.34, "ratio"),
            Figure(rate * (name != "localhost"), "bytes/s"),
            Figure(rate, "bytes/s"),
            Figure(rate * 8 / 10e9 if name != "localhost" else None, "ratio"),
        )
        for name in ("localhost", HOSTILE_HOST)
    )


def _refuse(p: PointFinding, reason: str) -> PointFinding:
    caveat = CaveatView("thin_image", "refused", reason, (p.step_key,))
    return dataclasses.replace(p, status="refused", reason=reason, caveats=(caveat,))


def _loss(lower: PointFinding, upper: PointFinding) -> RungLoss:
    ratio, added = Figure(None, "ratio"), Figure(None, "ns")
    sentence = "No comparison: a point was refused."
    if "refused" not in (lower.status, upper.status):
        kept = upper.iops.value / lower.iops.value
        ratio = figure(kept, "ratio", 0.03)
        added = figure(upper.latency_ns_mean.value - lower.latency_ns_mean.value, "ns", 0.05)
        sentence = f"{upper.layer} reaches {100 * kept:.0f} % of {lower.layer}."
    return RungLoss(lower.layer, upper.layer, ratio, added, sentence)


def group(device_class: str, index: int) -> RungGroup:
    op, size, depth = PATTERNS[index]
    points = [
        point(device_class, layer, op, size, depth, iops)
        for layer, iops in zip(LAYERS, IOPS[device_class][index], strict=True)
    ]
    if device_class == "hdd" and op == "read":
        points[2] = _refuse(points[2], "the image is thin: 61 % of the reads never reached an OSD")
    losses = tuple(_loss(points[i], points[i + 1]) for i in range(2))
    sentence = points[-1].verdict.sentence if points[-1].status == "done" else points[1].verdict.sentence
    if device_class == "ssd" and op == "randread" and depth == 16:
        sentence = (
            "4K random reads reach 12.1k IOPS on RBD: the CPUs of the OSDs are the limit (157 µs per op, 1.9 of 2 "
            "cores busy); the SSDs are 41 % busy."
        )
    return RungGroup(device_class, pattern_name(op, size, depth), tuple(points), losses, sentence)


def _distribution(p: PointFinding) -> Distribution:
    mean = p.queue_depth / p.iops.value * 1e9
    count = int(p.iops.value * 30)
    quantiles = [0.0, 0.001, 0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99]
    quantiles += [q for q in (0.995, 0.998, 0.999, 0.9995, 0.9999, 0.99999) if count * (1 - q) >= 1]
    shape = [
        DistributionPoint(q, mean * 0.55 * (1 + 0.45 * (-math.log10(1 - q)) ** 1.15 + 0.5 * q**2)) for q in quantiles
    ]
    return Distribution(p.step_key, p.layer, p.device_class, p.pattern, count, tuple(shape))


def _wave(value: float, repeat: int, phase: float, amplitude: float) -> tuple[SeriesPoint, ...]:
    return tuple(
        SeriesPoint(
            float(t),
            value * (1 + amplitude * math.sin(t * 1.7 + phase + repeat) + amplitude * 0.6 * math.cos(t * 4.1 + repeat)),
        )
        for t in range(1, 11)
    )


def _series(p: PointFinding, index: int) -> list[Series]:
    mean = p.queue_depth / p.iops.value * 1e9
    osds = list(enumerate((0, 1, 2) if p.device_class == "hdd" else (3, 4, 5)))
    # (name, subject, unit, value, phase, amplitude)
    shown: list[tuple[str, str, str, float, float, float]] = [
        ("iops", "all clients", "1/s", p.iops.value, index, 0.03),
        ("latency_ns_mean", "all clients", "ns", mean, index + 1.5, 0.03),
    ]
    if p.layer == "disk":
        shown.append(("device_utilization", "disk loop7", "ratio", 0.95, 0, 0.02))
    else:
        shown += [("cpu_cores", f"osd.{osd}", "cores", 0.2 + 0.1 * n, osd, 0.08) for n, osd in osds]
        busy = "device_utilization"
        shown += [(busy, f"osd.{osd} ({HOSTILE_HOST})", "ratio", 0.6 + 0.15 * n, osd, 0.04) for n, osd in osds]
    shown.append(("cpu_cores", "client", "cores", 0.3, index, 0.1))
    return [
        Series(p.step_key, repeat, name, subject, unit, _wave(value, repeat, phase, amplitude))
        for repeat in range(3)
        for name, subject, unit, value, phase, amplitude in shown
    ]


def _command(p: PointFinding, repeat: int) -> CommandView:
    engine = "libaio" if p.layer == "disk" else p.layer
    argv = (
        "fio", "--name=step", "--thread", f"--ioengine={engine}", f"--rw={p.op}", f"--bs={p.block_size_bytes}",
        f"--iodepth={p.queue_depth}", "--runtime=10", "--time_based", "--ramp_time=2", "--output-format=json+",
        f"--pool={HOSTILE_POOL}",
    )  # fmt: skip
    return CommandView(p.step_key, repeat, "fio", argv, (("CEPH_CONF", "/etc/ceph/lab one.conf"),), 0, 12.4)


@functools.cache
def ladder() -> LadderFinding:
    """Return a ladder over 2 device classes × 6 patterns × 3 layers with refusals, warnings and hostile names."""
    groups = tuple(group(c, i) for c in ("hdd", "ssd") for i in range(len(PATTERNS)))
    points = [p for g in groups for p in g.points]
    cross_check = dataclasses.replace(
        point("ssd", "rados", "randwrite", 4096, 16, 4790),
        step_key="rados/ssd/randwrite-4K-qd16@rados_bench",
        load_generator="rados_bench",
    )
    long_host = "node-with-a-very-long-name-" + "x" * 90
    return LadderFinding(
        run_id="20260822-140305-a1b2c3",
        plan_name="ladder",
        target="lab demo",
        status="done",
        started_ns=1_787_407_385 * 10**9,
        ended_ns=1_787_407_385 * 10**9 + 312 * 10**9,
        headline=(
            "HDD: the disks are the limit (99 % busy). SSD: the CPUs of the OSDs are the limit: RBD reaches 12.1k of "
            "the disk's 41.3k random reads per second at QD 16."
        ),
        groups=groups,
        cross_checks=(cross_check,),
        distributions=tuple(_distribution(p) for p in points),
        series=tuple(s for i, p in enumerate(points) for s in _series(p, i)),
        caveats=(LAB, PROFILE, UNSTEADY, CACHE),
        environment=(
            ("cluster", "ceph_version", "16.2.15 pacific"),
            ("cluster", "fsid", "6e5d6c2a-5f0e-4c2e-9d7c-0e8a55b3b1aa"),
            ("cluster", "health", "HEALTH_OK"),
            (f"host {HOSTILE_HOST}", "governor", "performance"),
            (f"host {long_host}", "kernel", "6.1.0-28-amd64"),
            (f"pool {HOSTILE_POOL}", "size", "3"),
            ("osd.0", "bluestore_cache_size", "0"),
            ("osd.0", "osd_memory_target", "4294967296"),
            ("bathy", "fio_version", "fio-3.33"),
            ("bathy", "note", HOSTILE_ESCAPE),
        ),
        commands=tuple(_command(p, r) for p in points for r in range(3)),
        layers=LAYER_VIEWS,
    )


def prediction(change: str = "osd.cpu=2x") -> Prediction:
    """Return what the change would make of the fastest load: twice the cores, and the network is next."""
    return Prediction(
        change,
        Figure(21400, "1/s", 18900, 22800),
        Figure(16 / 21400 * 1e9, "ns"),
        Figure(21400 / 12100, "ratio", 18900 / 12100, 22800 / 12100),
        f"osd.3's SSD ({_SERVER})",
        "With twice the cores the OSDs' processors would be 84 % busy.",
        ("The CPU time of an I/O stays as it is.", "The load keeps 16 I/Os in flight."),
    )


def explained(step_key: str = "rbd/ssd/randread-4K-qd16", changes: tuple[str, ...] = ("osd.cpu=2x",)) -> AccountFinding:
    """Return the account of one load of the sample ladder, with what each change would bring."""
    finding = ladder()
    found = next(p for g in finding.groups for p in g.points if p.step_key == step_key)
    return AccountFinding(finding.run_id, finding.target, found, tuple(map(prediction, changes)))


def accounts() -> AccountsFinding:
    """Return the loads of the sample ladder."""
    finding = ladder()
    return AccountsFinding(finding.run_id, finding.target, finding.points, finding.caveats)


@functools.cache
def ladder_page() -> str:
    """Return the page of `ladder`: a page costs more than all that a test looks for in it."""
    return as_text(ladder(), "html")


def large_ladder(configurations: int, repeats: int = 3) -> LadderFinding:
    """Return a ladder with at least `configurations` × `repeats` steps, for size and speed."""
    base = ladder()
    groups, distributions, series, commands = [], [], [], []
    for copy in range(math.ceil(configurations / 36)):
        for g in base.groups:
            name = f"{g.pattern}-obj{copy + 1}M"
            points = tuple(
                dataclasses.replace(p, pattern=name, step_key=f"{p.layer}/{p.device_class}/{name}") for p in g.points
            )
            groups.append(dataclasses.replace(g, pattern=name, points=points))
            for p in points:
                measured = point(p.device_class, p.layer, p.op, p.block_size_bytes, p.queue_depth, 500)
                clean_point = dataclasses.replace(measured, step_key=p.step_key, pattern=name)
                distributions.append(_distribution(clean_point))
                series += _series(clean_point, copy)
                commands += [_command(clean_point, r) for r in range(repeats)]
    return dataclasses.replace(
        base, groups=tuple(groups), distributions=tuple(distributions), series=tuple(series), commands=tuple(commands)
    )


def effect(
    key: str, metric: str, values: tuple[float | None, float | None], ratio: tuple[float | None, ...], verdict: str
) -> StepEffect:
    """Return an effect; a verdict of several words is the reason why it is inconclusive."""
    a, b = (figure(value, "1/s" if metric == "iops" else "ns") for value in values)
    reason = None if verdict in ("faster", "slower") else verdict
    change = Figure(ratio[0], "ratio", *ratio[1:])
    return StepEffect(key, metric, a, b, change, "inconclusive" if reason else verdict, reason)


def compare() -> CompareFinding:
    """Return a comparison with every verdict, a missing step and a changed environment."""
    holds_zero = "the interval of the effect holds zero"
    return CompareFinding(
        run_a="20260822-140305-a1b2c3",
        run_b="20260823-091500-d4e5f6",
        effects=(
            effect("rbd/ssd/randread-4K-qd16", "iops", (12100, 14300), (0.182, 0.15, 0.21), "faster"),
            effect("rbd/ssd/randwrite-4K-qd1", "latency_ns_mean", (1.01e6, 1.31e6), (0.297, 0.25, 0.34), "slower"),
            effect("rbd/hdd/randread-4K-qd1", "iops", (224, 226), (0.009, -0.02, 0.03), holds_zero),
            effect("rbd/hdd/read-64K-qd16", "iops", (None, 4600), (None,), "refused in A: the image is thin"),
        ),
        missing=(("rados/hdd/write-64K-qd16", "only in A"),),
        differences=(
            Difference("plan", "plan", "client_cache", "False", "True", "refused"),
            Difference("pool", "pool bathy-*-rbd-hdd", "size", "3", "2", "warning"),
            Difference("environment", "cluster", "ceph_version", "16.2.15", "18.2.2", "note"),
        ),
        headline="1 faster, 1 slower, 2 inconclusive, 1 missing.",
    )


def rows() -> list[dict[str, object]]:
    """Return plain rows as `bathy runs` would print them, hostile names included."""
    names = ("run_id", "target", "status", "started_ns", "duration_s", "size_bytes", "complete", "steps")
    started_ns = 1_787_407_385 * 10**9
    return [
        dict(zip(names, values, strict=True))
        for values in (
            ("20260822-140305-a1b2c3", "lab demo", "done", started_ns, 312.0, 48_234_496, True, 36),
            ("20260823-091500-d4e5f6", HOSTILE_ESCAPE, HOSTILE_CSV, None, 4.21, 512, False, 0),
        )
    ]


def recording() -> RecordingFinding:
    """Return a recording of ten minutes in which an OSD restarted and one source was slowed down."""
    start_ns = 1_787_407_385 * 10**9

    def at(second: float) -> int:
        return start_ns + int(second * 1e9)

    gaps = (
        Gap(at(100), at(130), "osd.1: Connection refused"),
        Gap(at(300), at(420), "slowed down: a collection took 9 % of the period", 11),
    )
    return RecordingFinding(
        start_ns,
        at(600),
        (
            SourceRecording("cluster_status", 2 * 10**9, 300, 0, 0, 41e6, 112 * 10**6, 9_400_000, 0.0205),
            SourceRecording("op_history", 5 * 10**9, 112, 2, 3, 310e6, 2_400 * 10**6, 48_234_496, 0.058, gaps),
            SourceRecording("perf_counters", 10**9, 599, 0, 0, 12e6, 55 * 10**6, 310_000_000, 0.012),
        ),
        (DaemonAbsence("osd.1", at(101.5), at(128), True), DaemonAbsence(HOSTILE_ESCAPE, at(560), at(600), False)),
    )


def activity() -> ActivityFinding:
    """Return a view with every unit, a value that is not known, hostile names and prose."""
    columns = (
        Column("image", "image", help="name"),
        Column("reads", "reads", "count"),
        Column("iops", "IOPS", "1/s"),
        Column("share_ratio", "share", "ratio", rank=1),
        Column("to_peers_ratio", "to peers", "times", rank=2),
        Column("read_bytes", "read", "bytes", rank=2),
        Column("bandwidth_bytes_per_s", "bandwidth", "bytes/s", rank=3),
        Column("read_latency_ns", "read latency", "ns"),
        Column("lasted_s", "lasted", "s", rank=3),
        Column("last_access_ns", "last access", "time", rank=3),
        Column("never_known", "never known", rank=1),
        Column("stages", "stages", "parts", rank=1),
        Column("finding", "finding", prose=True),
    )
    at_ns = 1_787_407_385 * 10**9
    parts = (("queue", 0.25), ("store", 0.5), (HOSTILE_POOL, 0.25))
    rows = (
        ("rbd/vm-1", 1234567, 20576.1, 0.91, 3.456, 5 << 30, 85e6, 412_000.0, 60.0, at_ns, None, parts, "noisy"),
        (HOSTILE_ESCAPE, 12, 0.2, 0.00001, None, 0, 0.0, None, 1.5, None, None, None, ""),
        (HOSTILE_CSV, 0, 0.0, 0.0, 1.0, 1, 2.0, 3.0, 0.1, at_ns, None, (("queue", 1.0),), HOSTILE_POOL),
    )
    return ActivityFinding(
        "devices", "20260823-141500-abcdef", HOSTILE_HOST, at_ns, at_ns + 60 * 10**9,
        f"rbd/vm-1 does 91 % of the I/O of {HOSTILE_POOL}: 20.6k of 22.6k IOPS.", (("Size", "60.0 GiB"),),
        (Table("images", "images", columns, rows),), ("Clients are not told apart.",),
    )  # fmt: skip


def collected() -> CollectFinding:
    """Return a recording with what limited its clients, two views and a heat map."""
    view, went = activity(), recording()
    empty = dataclasses.replace(view, view="clients", sentence="No client is known.", facts=(), tables=(
        Table("clients", "clients", view.tables[0].columns, ()),
    ))  # fmt: skip
    heat = HeatMap(
        "images", "I/O of images over time", "image", "1/s", ("rbd/vm-1", HOSTILE_HOST), went.start_ns, 10**10,
        ((1.0, 2.5, None), (0.0, 100.0, 3.0)),
    )  # fmt: skip
    of_step = explained(changes=())
    load = dataclasses.replace(of_step, point=dataclasses.replace(of_step.point, layer=CLIENTS, step_key=CLIENTS))
    span = (went.start_ns, went.end_ns)
    return CollectFinding(view.run_id, view.target, *span, (view, empty), (heat,), went, load, "", "")
