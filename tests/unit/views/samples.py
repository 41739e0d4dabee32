"""Findings made by hand, close to what an emulated three-HDD, three-SSD cluster shows; hostile names included."""

from __future__ import annotations

import dataclasses
import math

from bathyscope.records.finding import (
    CaveatView,
    CommandView,
    CompareFinding,
    Distribution,
    DistributionPoint,
    Evidence,
    Figure,
    LadderFinding,
    PointFinding,
    RungGroup,
    RungLoss,
    Series,
    SeriesPoint,
    StageShare,
    StepEffect,
    Verdict,
)

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
LAYERS = ("disk", "rados", "rbd")
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
    "doubt",
    "IOPS ranged over 31 % of the mean in the window (limit 20 %), prolonged twice.",
    ("rbd/ssd/randwrite-4K-qd16",),
)
CACHE = CaveatView(
    "cache_hits",
    "doubt",
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
    shares = (
        {"queue": 0.11, "prepare": 0.07, "store": 0.19, "replica_wait": 0.58, "reply": 0.05}
        if "write" in op
        else {"queue": 0.14, "prepare": 0.06, "store": 0.75, "reply": 0.05}
    )
    return tuple(
        StageShare(name, share, share * mean_ns * 0.8, share * mean_ns * 0.7, share * mean_ns * 2.4)
        for name, share in shares.items()
    )


def _verdict(device_class: str, layer: str, op: str, depth: int) -> Verdict:
    if device_class == "hdd" and layer == "disk":
        return Verdict(
            "device",
            "The HDD is at 99 % of its limit.",
            (Evidence("device utilisation", Figure(0.99, "ratio", 0.98, 1.0)),),
        )
    if "write" in op and layer != "disk":
        return Verdict(
            "replica_wait",
            "61 % of the latency is waiting for replicas.",
            (
                Evidence("replica wait", Figure(0.61, "ratio", 0.58, 0.63)),
                Evidence("slowest peer", Figure(2, "", None, None)),
            ),
        )
    if depth == 1:
        return Verdict("latency_bound", "One I/O in flight: the latency is the limit.", ())
    return Verdict(
        "osd_cpu",
        "The OSDs use 1.9 of 2 cores, 180 µs for each op.",
        (
            Evidence("OSD CPU per op", Figure(180, "µs", 176, 185)),
            Evidence("cores busy", Figure(1.9, "cores", 1.8, 1.95)),
        ),
    )


def point(  # noqa: PLR0917 - a configuration has as many parts
    device_class: str, layer: str, op: str, size: int, depth: int, iops: float
) -> PointFinding:
    name = pattern_name(op, size, depth)
    key = f"{layer}/{device_class}/{name}"
    mean_ns = depth / iops * 1e9
    spread = {"disk": 0.004, "rados": 0.015, "rbd": 0.03}[layer]
    caveats = [c for c in (UNSTEADY, CACHE) if key in c.step_keys]
    write = "write" in op
    error = 1 / 128
    return PointFinding(
        step_key=key,
        layer=layer,
        witness="fio",
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
        osd_cpu_us_per_op=figure(None if layer == "disk" else 180.0, "µs", 0.03),
        client_cpu_us_per_op=figure(22.0 if layer == "disk" else 64.0, "µs", 0.05),
        device_utilization=figure(0.99 if device_class == "hdd" else 0.41, "ratio", 0.01),
        steady=UNSTEADY not in caveats,
        stages=_stages(layer, op, mean_ns),
        stage_sample_count=0 if layer == "disk" else 4213,
        stage_sample_complete=iops < 1000,
        caveats=tuple(caveats),
        verdict=_verdict(device_class, layer, op, depth),
    )


def _refuse(p: PointFinding, reason: str) -> PointFinding:
    caveat = CaveatView("thin_image", "refused", reason, (p.step_key,))
    return dataclasses.replace(p, status="refused", reason=reason, caveats=(caveat,))


def _loss(lower: PointFinding, upper: PointFinding) -> RungLoss:
    if "refused" in (lower.status, upper.status):
        return RungLoss(
            lower.layer, upper.layer, Figure(None, "ratio"), Figure(None, "ns"), "Cannot tell: a point was refused."
        )
    assert lower.iops.value is not None
    assert upper.iops.value is not None
    assert lower.latency_ns_mean.value is not None
    assert upper.latency_ns_mean.value is not None
    ratio = upper.iops.value / lower.iops.value
    added = upper.latency_ns_mean.value - lower.latency_ns_mean.value
    return RungLoss(
        lower.layer,
        upper.layer,
        figure(ratio, "ratio", 0.03),
        figure(added, "ns", 0.05),
        f"{upper.layer} reaches {100 * ratio:.0f} % of {lower.layer}.",
    )


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
            "RADOS reaches 38 % of the disk and RBD 77 % of RADOS: the OSDs' processors are the limit "
            "(180 µs for each op, 1.9 of 2 cores busy), the SSDs are at 41 %."
        )
    return RungGroup(device_class, pattern_name(op, size, depth), tuple(points), losses, sentence)


def _distribution(p: PointFinding) -> Distribution:
    assert p.iops.value is not None
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
    assert p.iops.value is not None
    out = []
    mean = p.queue_depth / p.iops.value * 1e9
    for repeat in range(3):
        out += [
            Series(p.step_key, repeat, "iops", "all clients", "1/s", _wave(p.iops.value, repeat, index, 0.03)),
            Series(p.step_key, repeat, "latency_ns_mean", "all clients", "ns", _wave(mean, repeat, index + 1.5, 0.03)),
        ]
        osds = (0, 1, 2) if p.device_class == "hdd" else (3, 4, 5)
        if p.layer != "disk":
            out += [
                Series(p.step_key, repeat, "cpu_cores", f"osd.{osd}", "cores", _wave(0.2 + 0.1 * n, repeat, osd, 0.08))
                for n, osd in enumerate(osds)
            ]
            out += [
                Series(
                    p.step_key,
                    repeat,
                    "device_utilization",
                    f"osd.{osd} ({HOSTILE_HOST})",
                    "ratio",
                    _wave(0.6 + 0.15 * n, repeat, osd, 0.04),
                )
                for n, osd in enumerate(osds)
            ]
        else:
            out.append(
                Series(p.step_key, repeat, "device_utilization", "disk loop7", "ratio", _wave(0.95, repeat, 0, 0.02))
            )
        out.append(Series(p.step_key, repeat, "cpu_cores", "client", "cores", _wave(0.3, repeat, index, 0.1)))
    return out


def _command(p: PointFinding, repeat: int) -> CommandView:
    argv = (
        "fio",
        "--name=step",
        "--thread",
        f"--ioengine={'libaio' if p.layer == 'disk' else p.layer}",
        f"--rw={p.op}",
    )
    argv += (
        f"--bs={p.block_size_bytes}",
        f"--iodepth={p.queue_depth}",
        "--runtime=10",
        "--time_based",
        "--ramp_time=2",
    )
    argv += ("--output-format=json+", f"--pool={HOSTILE_POOL}")
    return CommandView(p.step_key, repeat, "fio", argv, (("CEPH_CONF", "/etc/ceph/lab one.conf"),), 0, 12.4)


def ladder() -> LadderFinding:
    """Return a ladder over 2 device classes × 6 patterns × 3 layers with refusals, doubts and hostile names."""
    groups = tuple(group(c, i) for c in ("hdd", "ssd") for i in range(len(PATTERNS)))
    points = [p for g in groups for p in g.points]
    witness = dataclasses.replace(
        point("ssd", "rados", "randwrite", 4096, 16, 4790),
        step_key="rados/ssd/randwrite-4K-qd16@rados_bench",
        witness="rados_bench",
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
            "HDD is held back by its disks; SSD by the OSDs' processors: at QD 16, RBD delivers 12.1k random reads "
            "a second of the 41.3k that the disk can do."
        ),
        groups=groups,
        witnesses=(witness,),
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
    )


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
                clean_point = dataclasses.replace(
                    point(p.device_class, p.layer, p.op, p.block_size_bytes, p.queue_depth, 500),
                    step_key=p.step_key,
                    pattern=name,
                )
                distributions.append(_distribution(clean_point))
                series += _series(clean_point, copy)
                commands += [_command(clean_point, r) for r in range(repeats)]
    return dataclasses.replace(
        base, groups=tuple(groups), distributions=tuple(distributions), series=tuple(series), commands=tuple(commands)
    )


def compare() -> CompareFinding:
    """Return a comparison with every call, a missing step and a changed environment."""
    return CompareFinding(
        run_a="20260822-140305-a1b2c3",
        run_b="20260823-091500-d4e5f6",
        effects=(
            StepEffect(
                "rbd/ssd/randread-4K-qd16",
                "iops",
                figure(12100, "1/s"),
                figure(14300, "1/s"),
                Figure(0.182, "ratio", 0.15, 0.21),
                "faster",
                None,
            ),
            StepEffect(
                "rbd/ssd/randwrite-4K-qd1",
                "latency_ns_mean",
                figure(1.01e6, "ns"),
                figure(1.31e6, "ns"),
                Figure(0.297, "ratio", 0.25, 0.34),
                "slower",
                None,
            ),
            StepEffect(
                "rbd/hdd/randread-4K-qd1",
                "iops",
                figure(224, "1/s"),
                figure(226, "1/s"),
                Figure(0.009, "ratio", -0.02, 0.03),
                "cannot tell",
                "the interval of the effect holds zero",
            ),
            StepEffect(
                "rbd/hdd/read-64K-qd16",
                "iops",
                Figure(None, "1/s"),
                figure(4600, "1/s"),
                Figure(None, "ratio"),
                "cannot tell",
                "refused in A: the image is thin",
            ),
        ),
        missing=(("rados/hdd/write-64K-qd16", "only in A"),),
        environment_changes=(("cluster", "ceph_version", "16.2.15", "18.2.2"),),
        headline="1 faster, 1 slower, 2 cannot be told, 1 missing.",
    )


def rows() -> list[dict[str, object]]:
    """Return plain rows as `bathy runs` would print them, hostile names included."""
    return [
        {
            "run_id": "20260822-140305-a1b2c3",
            "target": "lab demo",
            "status": "done",
            "started_ns": 1_787_407_385 * 10**9,
            "duration_s": 312.0,
            "size_bytes": 48_234_496,
            "complete": True,
            "steps": 36,
        },
        {
            "run_id": "20260823-091500-d4e5f6",
            "target": HOSTILE_ESCAPE,
            "status": HOSTILE_CSV,
            "started_ns": None,
            "duration_s": 4.21,
            "size_bytes": 512,
            "complete": False,
            "steps": 0,
        },
    ]
