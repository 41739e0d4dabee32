"""Simulated hard disks, measured by fio, against arithmetic on their figures.

    python -m benchmarks.simdisk.physics [--profile hdd-7200-4t] [--scale 1.0]

The arithmetic is written here a second time, from the figures that the program states, and shares no code with the
model. Prints for each case what is expected, what fio measured, what the model reports for the same requests, and by
how much the replies were late. Exits with 1 if a measurement is outside its tolerance. When more than a hundredth of
the replies were late, or tasks waited for processors for more than a twentieth of the time, the machine was busy: then
fio's figure is not judged, only the model's.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from benchmarks.daemons import SimulatedDisks, fio, simulated_disks, waited_for_processors_s
from scipy.optimize import brentq

SIZE_BYTES = 100 << 30
LATE_SHARE_MAX = 0.01
PRESSURE_MAX = 0.05
FLUSHED = "name=flushed,profile={profile},size=100G,write-cache=off"


@dataclasses.dataclass(frozen=True)
class Case:
    """One comparison. All figures of a case have the same unit."""

    name: str
    unit: str
    expected: float
    measured: float
    model: float
    tolerance: float
    late_share: float
    lateness_us: float
    pressure: float

    @property
    def off(self) -> float:
        return self.measured / self.expected - 1

    @property
    def model_off(self) -> float:
        return self.model / self.expected - 1

    @property
    def judged(self) -> bool:
        return self.late_share <= LATE_SHARE_MAX and self.pressure <= PRESSURE_MAX

    @property
    def passed(self) -> bool:
        return abs(self.model_off) <= self.tolerance and (abs(self.off) <= self.tolerance or not self.judged)


def seek_curve(figures: Mapping[str, float]) -> Callable[[np.ndarray], np.ndarray]:
    """Return the time in ms over the share of the stroke: a root, then a line of the same slope."""
    track, average, full = (figures[f"seek_{name}_ms"] for name in ("track", "average", "full_stroke"))
    distances = (np.arange(200_000) + 0.5) / 200_000

    def curve(knee: float, distance: np.ndarray) -> np.ndarray:
        root = (full - track) * 2 * math.sqrt(knee) / (knee + 1)
        line = root * math.sqrt(knee) + root / (2 * math.sqrt(knee)) * (distance - knee)
        moving = track + np.where(distance <= knee, root * np.sqrt(distance), line)
        return np.where(distance > 0, moving, 0.0)

    def excess(knee: float) -> float:
        return float(np.mean(2 * (1 - distances) * curve(knee, distances)) - average)

    knee = brentq(excess, 1e-6, 1.0)
    return lambda distance: curve(knee, distance)


def rates(figures: Mapping[str, float]) -> np.ndarray:
    return np.linspace(figures["outer_bytes_per_s"], figures["inner_bytes_per_s"], int(figures["zones"]))


def middle_of_zone(figures: Mapping[str, float], share: float) -> tuple[float, float]:
    """Return where in the capacity the zone that is `share` of the way in has its middle, and its rate."""
    zone_rates = rates(figures)
    index = round(share * (len(zone_rates) - 1))
    ends = np.cumsum(zone_rates) / zone_rates.sum()
    return float(ends[index] - zone_rates[index] / zone_rates.sum() / 2), float(zone_rates[index])


def random_read_ms(figures: Mapping[str, float], share: float, length: int = 4096) -> float:
    """Return mean seek + half a turn + transfer + command overhead in the first `share` of the capacity."""
    zone_rates = rates(figures)
    ends = np.concatenate([[0.0], np.cumsum(zone_rates) / zone_rates.sum()])
    places = share * (np.arange(2000) + 0.5) / 2000
    # Zones have the same width on the platter, and bytes in proportion to their rates.
    strokes = np.interp(places, ends, np.linspace(0, 1, len(ends)))
    seek_ms = float(np.mean(seek_curve(figures)(np.abs(strokes[:, None] - strokes[None, :]))))
    turn_ms = figures["revolution_ns"] / 1e6
    pass_ms = turn_ms + figures["track_switch_ns"] / 1e6
    zone_of = np.clip(np.searchsorted(ends, places, side="right") - 1, 0, len(zone_rates) - 1)
    # A track passes in one turn, and holds what the sustained rate makes of a turn and a switch.
    transfer_ms = float(np.mean(length / (zone_rates[zone_of] * pass_ms / 1e3) * turn_ms))
    return seek_ms + turn_ms / 2 + transfer_ms + figures["command_overhead_ns"] / 1e6


@dataclasses.dataclass(frozen=True)
class Load:
    """A fio job on a disk and the growth of the disk's counters during it."""

    job: Any
    before: Any
    after: Any
    pressure: float

    def grown(self, *path: str) -> float:
        before, after = self.before, self.after
        for key in path:
            before, after = before[key], after[key]
        return float(after - before)

    def model_mean_ms(self, op: str) -> float:
        return self.grown(op, "service", "sum_ns") / self.grown(op, "service", "count") / 1e6

    def case(self, name: str, unit: str, *, expected: float, measured: float, model: float, tolerance: float) -> Case:
        count = self.grown("lateness", "count")
        late_share, lateness_ns = self.grown("late_ops") / count, self.grown("lateness", "sum_ns") / count
        return Case(name, unit, expected, measured, model, tolerance, late_share, lateness_ns / 1e3, self.pressure)


def load(disks: SimulatedDisks, disk: str, seconds: float, *options: str) -> Load:
    before, waited_s, began_s = disks.stats(disk), waited_for_processors_s(), time.monotonic()
    # By default fio would draw the same places in every run.
    job = fio(disks.path(disk), "--randrepeat=0", "--norandommap", *options, seconds=seconds)
    pressure = (waited_for_processors_s() - waited_s) / (time.monotonic() - began_s)
    return Load(job, before, disks.stats(disk), pressure)


def random_reads(
    disks: SimulatedDisks, figures: Mapping[str, float], share: float, seconds: float, tolerance: float
) -> Case:
    size = int(SIZE_BYTES * share) >> 12 << 12
    it = load(disks, "disk", seconds, "--rw=randread", "--bs=4k", "--ioengine=psync", f"--size={size}")
    measured_ms = it.job["read"]["lat_ns"]["mean"] / 1e6
    name = f"random 4K reads in {share:.0%}"
    expected, model = random_read_ms(figures, share), it.model_mean_ms("read")
    return it.case(name, "ms", expected=expected, measured=measured_ms, model=model, tolerance=tolerance)


def sequential_reads(disks: SimulatedDisks, figures: Mapping[str, float], share: float, seconds: float) -> Case:
    place, rate = middle_of_zone(figures, share)
    offset = int(SIZE_BYTES * place) >> 20 << 20
    it = load(
        disks, "disk", seconds, "--rw=read", "--bs=256k", "--ioengine=libaio", "--iodepth=4", f"--offset={offset}",
        f"--size={SIZE_BYTES - offset}",
    )  # fmt: skip
    measured = it.job["read"]["bw_bytes"] / 1e6
    # Of the model: what passed under the head in the time that the arm was busy.
    model = it.grown("work", "media_read_bytes") / it.grown("work", "mechanism_busy_ns") * 1e3
    name = f"sequential reads at {place:.0%}"
    return it.case(name, "MB/s", expected=rate / 1e6, measured=measured, model=model, tolerance=0.02)


def flushed_writes(disks: SimulatedDisks, figures: Mapping[str, float], seconds: float) -> Case:
    it = load(disks, "flushed", seconds, "--rw=write", "--bs=4k", "--ioengine=psync", "--fsync=1", "--size=1G")
    measured = it.job["write"]["iops"]
    # Without the time that the host took: it falls into the revolution, which begins with the write before.
    model = it.grown("write", "count") / ((it.grown("busy_ns") + _idle_ns(it)) / 1e9)
    expected = 1e9 / figures["revolution_ns"]
    name = "write + fsync, no write cache"
    return it.case(name, "1/s", expected=expected, measured=measured, model=model, tolerance=0.03)


def _idle_ns(it: Load) -> float:
    return it.job["job_runtime"] * 1e6 - it.grown("busy_ns")


def deep_queue(disks: SimulatedDisks, figures: Mapping[str, float], seconds: float) -> Case:
    it = load(
        disks, "disk", seconds, "--rw=randread", "--bs=4k", "--ioengine=libaio", "--iodepth=32", f"--size={SIZE_BYTES}"
    )
    alone = 1e3 / random_read_ms(figures, 1.0)
    model = it.grown("queue_ns") / it.grown("busy_ns") / (it.model_mean_ms("read") / 1e3)
    # Published gains are 2 to 3 times.
    measured = it.job["read"]["iops"] / alone
    name = "depth 32 over depth 1"
    return it.case(name, "times", expected=2.5, measured=measured, model=model / alone, tolerance=0.2)


def run(profile: str, scale: float = 1.0) -> list[Case]:
    """Measure all cases; `scale` stretches their durations. Short ones have the tolerance of their few requests."""
    disk = f"name=disk,profile={profile},size=100G"
    with simulated_disks(disk, FLUSHED.format(profile=profile)) as disks:
        known = disks.command(op="profiles")["profiles"]
        figures = next(it for it in known if it["name"] == profile)
        seconds = 40 * scale
        # Four standard errors of the mean; a random access varies by about 0.3 of its mean.
        noise = 4 * 0.3 / math.sqrt(seconds * 1e3 / random_read_ms(figures, 1.0))
        cases = [
            random_reads(disks, figures, 1.0, seconds, max(0.02, noise)),
            random_reads(disks, figures, 0.1, seconds, max(0.03, noise)),
            *(sequential_reads(disks, figures, share, max(1.0, 6 * scale)) for share in (0.0, 0.5, 1.0)),
            flushed_writes(disks, figures, max(1.0, 10 * scale)),
            deep_queue(disks, figures, max(2.0, 20 * scale)),
        ]
    for case in cases:
        show(case)
    return cases


def show(case: Case) -> None:
    verdict = "ok" if case.passed else "OUTSIDE"
    print(
        f"{case.name:30} expected {case.expected:8.3f} {case.unit:5}  fio {case.measured:8.3f} ({case.off:+.2%})"
        f"  model {case.model:8.3f} ({case.model_off:+.2%})  tolerance {case.tolerance:.1%}"
        f"  late by {case.lateness_us:.0f} µs, {case.late_share:.2%} late, pressure {case.pressure:.0%}  {verdict}"
        f"{'' if case.judged else ' (fio not judged: the machine was busy)'}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile", default="hdd-7200-4t")
    parser.add_argument("--scale", type=float, default=1.0)
    options = parser.parse_args()
    sys.exit(0 if all(case.passed for case in run(options.profile, options.scale)) else 1)


if __name__ == "__main__":
    main()
