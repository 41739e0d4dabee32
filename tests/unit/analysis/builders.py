# ruff: noqa: E501
"""Builds the tables of a run from a few numbers, as a bench on a lab would have written them.

`RunBuilder` makes rows step by step; `ladder_tables` is a whole ladder with the figures of a small lab (three
throttled HDDs, three SSDs, two cores). Everything is seeded: equal arguments give equal tables.

    from tests.unit.analysis.builders import ladder_finding, ladder_tables
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa

from bathyscope.analysis import ladder
from bathyscope.analysis.columns import Tables
from bathyscope.records import (
    RECORDS_BY_TABLE,
    Caveat,
    DeviceSample,
    EnvironmentFact,
    Histogram,
    Interval,
    Op,
    PerfCounter,
    Placement,
    ProcessSample,
    Record,
    Result,
    Run,
    Step,
    to_table,
)
from bathyscope.records.finding import CommandView, LadderFinding, LayerView
from bathyscope.units import format_size_short
from bathyscope.window.tables import of_steps

LAYERS = (
    LayerView("disk", "Disk", "the disk", 0, 0, "square", (1, 0)),
    LayerView("rados", "RADOS", "RADOS", 10, 1, "circle", (7, 2)),
    LayerView("rbd", "RBD", "RBD", 20, 2, "triangle-up", (3, 2)),
)
START_NS = 1_790_000_000_000_000_000
SECOND_NS = 1_000_000_000


def fio_bucket_ns(value_ns: np.ndarray) -> np.ndarray:
    """Return the middle of fio's bucket for each value: 64 buckets to a power of two, exact below 128 ns."""
    value = np.asarray(value_ns, dtype=np.int64)
    top = np.frexp(np.maximum(value, 1).astype(np.float64))[1] - 1
    shift = np.maximum(top - 6, 0)
    width = np.int64(1) << shift
    return np.where(shift == 0, value, (value >> shift) * width + (width >> 1))


@dataclasses.dataclass(frozen=True)
class Load:
    """What one step should look like. Times in seconds, rates per second, latency in ns."""

    layer: str = "rbd"
    device_class: str = "hdd"
    op: str = "randread"
    block_size_bytes: int = 4096
    queue_depth: int = 16
    jobs: int = 1
    suffix: str = ""
    load_generator: str = "fio"
    iops: float = 231.0
    noise: float = 0.01
    latency_spread: float = 0.35
    runtime_s: int = 10
    drift: float = 0.0
    errors: int = 0
    temperature: str = "any"
    cache_ratio: float = 0.02
    limit_ratio: float | None = 0.99
    busy_ratio: float = 0.6
    write_amplification: float = 2.5
    osd_us_per_op: float = 300.0
    client_us_per_op: float = 60.0
    client_thread_us_per_op: float = 25.0
    processors: int = 2
    replicas: int = 2
    stage_shares: tuple[float, float, float, float, float] = (0.1, 0.05, 0.6, 0.2, 0.05)
    op_rows: int = 200
    complete_sample: bool = True
    histogram: bool = True
    status: str = "done"
    reason: str | None = None

    @property
    def key(self) -> str:
        pattern = f"{self.op}-{format_size_short(self.block_size_bytes)}-qd{self.queue_depth}{self.suffix}"
        return f"{self.layer}/{self.device_class or 'all'}/{pattern}" + (
            "" if self.load_generator == "fio" else f"@{self.load_generator}"
        )

    @property
    def writes(self) -> bool:
        return self.op in ("randwrite", "write")


class RunBuilder:
    """Collects rows; `tables()` gives every record's table, as `RunDirectory.tables()` does."""

    def __init__(self, run_id: str = "20260921-133320-abc123", *, seed: int = 1, counter_prefix: str = "") -> None:
        self.run_id = run_id
        self.random = np.random.default_rng(seed)
        self.rows: dict[type[Record], list[Any]] = {record: [] for record in RECORDS_BY_TABLE.values()}
        self.counter_prefix = counter_prefix
        self.osds: dict[str, list[int]] = {}
        self._next_step = 0
        self._next_osd = 0

    def add_osds(self, device_class: str, count: int) -> None:
        for _ in range(count):
            number, self._next_osd = self._next_osd, self._next_osd + 1
            self.osds.setdefault(device_class, []).append(number)
            self.rows[Placement].append(
                Placement(number, f"node{number}", device_class, f"loop{number}", device_class == "hdd",
                          8 << 30, "bluestore", "16.2.15", 1000 + number)
            )  # fmt: skip

    def add_run(self, *, plan_name: str = "ladder", status: str = "done", ceph_version: str = "16.2.15") -> None:
        end = START_NS + 300 * SECOND_NS
        self.rows[Run].append(
            Run(self.run_id, "bench", plan_name, status, "lab demo", "0.1.0", START_NS, end, "f5a1", ceph_version, "fio-3.33",
                "bench1", "6.1.0", 2)
        )  # fmt: skip
        facts = [("cluster", "health", "HEALTH_OK"), ("host bench1", "governor", "performance"),
                 ("pool bathy-abc123-hdd", "size", "2"), ("osd.0", "osd_memory_target", "1073741824")]  # fmt: skip
        for moment in ("before", "after"):
            self.rows[EnvironmentFact] += [EnvironmentFact(moment, *fact) for fact in facts]

    def add_caveat(self, code: str, severity: str, text: str, step_index: int | None = None) -> None:
        self.rows[Caveat].append(Caveat(step_index, code, severity, text, "test"))

    def add_step(self, load: Load, repeat_index: int = 0) -> int:
        """Add all rows of one step and return its index. The repeat's own rate scatters by `load.noise`."""
        index, self._next_step = self._next_step, self._next_step + 1
        started = START_NS + index * (load.runtime_s + 3) * SECOND_NS
        measured = started + 2 * SECOND_NS
        rate = load.iops * float(np.exp(self.random.normal(0, load.noise)))
        self.rows[Step].append(
            Step(index, load.key, repeat_index, load.layer, load.load_generator, load.device_class, load.op,
                 load.block_size_bytes, load.queue_depth, load.jobs, None if load.layer == "disk" else 4 << 20, 1 << 30,
                 load.temperature, 2.0, float(load.runtime_s), started, measured + load.runtime_s * SECOND_NS, measured,
                 measured + load.runtime_s * SECOND_NS, self._osds_of(load), 0, load.status, load.reason)
        )  # fmt: skip
        self._add_load(index, load, rate)
        self._add_devices(load, rate, measured)
        self._add_processes(load, rate, measured)
        if load.layer != "disk":
            self._add_counters(load, rate, measured)
            self._add_ops(load, rate, measured)
        return index

    def _osds_of(self, load: Load) -> str | None:
        return None if load.layer == "disk" else " ".join(str(n) for n in self.osds.get(load.device_class, []))

    def tables(self) -> dict[str, pa.Table]:
        return {record.TABLE: to_table(record, rows) for record, rows in self.rows.items()}

    def _add_load(self, index: int, load: Load, rate: float) -> None:
        if load.op == "randrw":
            for direction, share in (("read", 0.7), ("write", 0.3)):
                self._add_direction(index, load, direction, rate * share, load.queue_depth * load.jobs / rate * 1e9)
            return
        mean_ns = load.queue_depth * load.jobs / rate * 1e9 if rate else 0.0
        self._add_direction(index, load, "write" if load.writes else "read", rate, mean_ns)

    def _add_direction(self, index: int, load: Load, direction: str, rate: float, mean_ns: float) -> None:
        count = round(rate * load.runtime_s)
        for job in range(load.jobs):
            own = count // load.jobs
            spread = load.latency_spread
            samples = np.exp(self.random.normal(np.log(max(mean_ns, 1)) - spread**2 / 2, spread, own))
            cpu = load.client_thread_us_per_op * own / 1e6
            self.rows[Result].append(
                Result(index, f"fio#{job}", direction, own, own * load.block_size_bytes, load.errors,
                       load.runtime_s * SECOND_NS, own / load.runtime_s, own * load.block_size_bytes / load.runtime_s,
                       float(samples.mean()) if own else None, float(samples.std()) if own else None,
                       float(samples.min()) if own else None, float(samples.max()) if own else None,
                       cpu * 0.4 if load.layer == "disk" else None, cpu * 0.6 if load.layer == "disk" else None, cpu)
            )  # fmt: skip
            if load.histogram and own:
                buckets, counts = np.unique(fio_bucket_ns(samples.astype(np.int64)), return_counts=True)
                for kind in ("clat", "lat"):
                    self.rows[Histogram] += [
                        Histogram(index, f"fio#{job}", direction, kind, int(b), int(c))
                        for b, c in zip(buckets, counts, strict=True)
                    ]
            for second in range(load.runtime_s):
                trend = 1 + load.drift * (second / max(1, load.runtime_s - 1) - 0.5)
                now = max(0.0, rate / load.jobs * trend * float(1 + self.random.normal(0, 0.03)))
                self.rows[Interval].append(
                    Interval(index, f"fio#{job}", direction, (second + 1) * SECOND_NS, SECOND_NS, now,
                             now * load.block_size_bytes, mean_ns / trend if rate else None)
                )  # fmt: skip

    def _add_devices(self, load: Load, rate: float, measured_ns: int) -> None:
        on_disk = load.layer == "disk"
        names = [("loop99", "disk")] if on_disk else [
            (f"loop{n}", f"osd.{n}") for n in self.osds.get(load.device_class, [])
        ]  # fmt: skip
        amplification = 1.0 if on_disk else load.write_amplification
        cached = 0.0 if on_disk else load.cache_ratio
        for device, role in names:
            share = rate * load.block_size_bytes / len(names)
            reads = 0 if load.writes else round(share * (1 - cached))
            writes = round(share * amplification) if load.writes else 0
            for second in range(-1, load.runtime_s):
                scatter = float(1 + self.random.normal(0, 0.01))
                limit = None if load.limit_ratio is None else load.limit_ratio * scatter
                self.rows[DeviceSample].append(
                    DeviceSample(measured_ns + (second + 1) * SECOND_NS, SECOND_NS, "localhost", device, role,
                                 load.device_class, reads // load.block_size_bytes,
                                 writes // load.block_size_bytes, reads, writes, min(1.0, load.busy_ratio * scatter),
                                 None if load.writes else limit, limit if load.writes else None)
                )  # fmt: skip

    def _add_processes(self, load: Load, rate: float, measured_ns: int) -> None:
        osds = [] if load.layer == "disk" else self.osds.get(load.device_class, [])
        client = rate * load.client_us_per_op / 1e6
        osd = rate * load.osd_us_per_op / 1e6
        rows = [(f"osd.{n}", osd / len(osds)) for n in osds]
        rows += [("client", client), ("host", min(load.processors, osd * bool(osds) + client + 0.1))]
        for name, cores in rows:
            for second in range(load.runtime_s):
                self.rows[ProcessSample].append(
                    ProcessSample(measured_ns + (second + 1) * SECOND_NS, SECOND_NS, "localhost", name, cores * 0.7,
                                  cores * 0.3, 300 << 20, load.processors)
                )  # fmt: skip

    def _add_counters(self, load: Load, rate: float, measured_ns: int) -> None:
        osds = self.osds.get(load.device_class, [])
        count = rate * (load.runtime_s + 2)
        size = load.block_size_bytes
        prefix = self.counter_prefix
        span = (measured_ns + load.runtime_s * SECOND_NS, (load.runtime_s + 2) * SECOND_NS)
        for n in osds:
            own = count / len(osds)
            reads = own * (0.0 if load.writes else 0.7 if load.op == "randrw" else 1.0)
            writes = own - reads
            values = {("osd", "op_w"): writes, ("osd", "op_w_in_bytes"): writes * size} if writes else {}
            values |= {
                ("osd", "op_r"): reads, ("osd", "op_r_out_bytes"): reads * size,
                ("bluestore", f"{prefix}buffer_hit_bytes"): reads * size * load.cache_ratio,
                ("bluestore", f"{prefix}buffer_miss_bytes"): reads * size * (1 - load.cache_ratio),
            } if reads else {}  # fmt: skip
            self.rows[PerfCounter] += [
                PerfCounter(*span, f"osd.{n}", section, name, "counter", float(round(value)), None, None)
                for (section, name), value in values.items()
            ]

    def _add_ops(self, load: Load, rate: float, measured_ns: int) -> None:
        osds = self.osds.get(load.device_class, [])
        mean_ns = load.queue_depth * load.jobs / rate * 1e9 * 0.9 if rate else 0.0
        for i in range(load.op_rows if osds else 0):
            scatter = float(np.exp(self.random.normal(0, 0.4)))
            parts = [round(mean_ns * share * scatter) for share in load.stage_shares]
            primary = osds[i % len(osds)]
            peer = osds[(i + 1) % len(osds)] if load.writes and load.replicas > 1 and len(osds) > 1 else None
            self.rows[Op].append(
                Op(primary, "client.4157", "127.0.0.1", 2, f"2.{i % 32:x}", f"rbd_data.1.{i:016x}",
                   "write" if load.writes else "read", 0, load.block_size_bytes, measured_ns + load.runtime_s * SECOND_NS - (load.op_rows - i) * 1_000_000, sum(parts),
                   parts[0], parts[1], parts[2], parts[3] if load.writes else 0, parts[4], peer, load.complete_sample, 0)
            )  # fmt: skip


def ladder_loads() -> list[Load]:
    """Return the points of the standard ladder with figures as a small lab shows them."""
    loads = []
    hdd = {"randread": (116.0, 232.0), "randwrite": (60.0, 86.0), "read": (0, 900.0), "write": (0, 420.0)}
    ssd = {"randread": (1600.0, 5200.0), "randwrite": (700.0, 2100.0), "read": (0, 3900.0), "write": (0, 1500.0)}
    keep = {"disk": 1.0, "rados": 0.92, "rbd": 0.8}
    for device_class, rates in (("hdd", hdd), ("ssd", ssd)):
        for op, (qd1, qd16) in rates.items():
            random_io = op.startswith("rand")
            for depth, rate in ((1, qd1), (16, qd16)) if random_io else ((16, qd16),):
                for layer, kept in keep.items():
                    writes = op.endswith("write")
                    # Replicas and the write-ahead log cost a cluster most of a disk's writes.
                    iops = rate * kept * (1.0 if layer == "disk" or not writes else 0.5)
                    loads.append(
                        Load(layer=layer, device_class=device_class, op=op, queue_depth=depth, iops=iops,
                             block_size_bytes=4096 if random_io else 65536,
                             limit_ratio=(0.99 if depth > 1 else 0.5) if device_class == "hdd" else 0.45,
                             osd_us_per_op=180.0 + 250.0 * writes,
                             stage_shares=(0.06, 0.04, 0.35, 0.5, 0.05) if writes else (0.1, 0.05, 0.8, 0.0, 0.05))
                    )  # fmt: skip
    return loads


@functools.cache
def ladder_tables(
    *, repeats: int = 3, seed: int = 1, run_id: str = "20260921-133320-abc123", factor: float = 1.0, op_rows: int = 60
) -> Mapping[str, pa.Table]:
    """Return the tables of a whole ladder run; `factor` makes everything faster (> 1) or slower."""
    builder = RunBuilder(run_id, seed=seed, counter_prefix="bluestore_")
    builder.add_run()
    builder.add_osds("hdd", 3)
    builder.add_osds("ssd", 3)
    builder.add_caveat(
        "throttle_profile", "note", "devices are loop devices throttled to the profile hdd-7200 and ssd-sata"
    )
    for repeat in range(repeats):
        for load in ladder_loads():
            builder.add_step(dataclasses.replace(load, iops=load.iops * factor, op_rows=op_rows), repeat)
    cross_check = Load(
        layer="rados", load_generator="rados_bench", op="randwrite", iops=39.0 * factor, histogram=False, op_rows=0
    )
    for repeat in range(repeats):
        builder.add_step(cross_check, repeat)
    index = builder.add_step(
        Load(layer="rbd", device_class="ssd", op="randread", queue_depth=32, iops=168_946.0, status="refused",
             reason="the OSDs returned 3 % of the 1.00 GiB that the client read: the rest was answered without them",
             limit_ratio=0.1, op_rows=0)
    )  # fmt: skip
    builder.add_caveat("thin_image", "refused", "the OSDs returned 3 % of the 1.00 GiB that the client read", index)
    builder.add_caveat("unsteady", "warning", "not steady: over 5 rounds the rate ranged by 31 % of its mean", 2)
    return MappingProxyType(builder.tables())


def ladder_of(tables: Tables, commands: Iterable[CommandView] = (), layers: Sequence[LayerView] = ()) -> LadderFinding:
    """Return the ladder of a run's tables."""
    return ladder.build(tables, of_steps(tables), commands, layers)


@functools.cache
def ladder_finding(**arguments: Any) -> LadderFinding:
    """Return the finding of `ladder_tables`, with two commands."""
    tables = ladder_tables(**arguments)
    argv = (
        "fio",
        "--name=randread-4K-qd16",
        "--ioengine=rbd",
        "--pool=bathy-abc123-hdd",
        "--rbdname=bathy-0",
        "--bs=4k",
    )
    commands = [
        CommandView("rbd/hdd/randread-4K-qd16", repeat, "fio#0", argv, (("CEPH_CONF", "/etc/ceph/ceph.conf"),), 0, 12.3)
        for repeat in range(2)
    ]
    return ladder_of(tables, commands, LAYERS)
