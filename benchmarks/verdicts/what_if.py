"""Predictions against what came of it: pairs of runs that differ in one resource, which is changed for real.

    python benchmarks/verdicts/what_if.py [--pair NAME…] [--runtime 5] [--repeats 3] [--keep DIR] [--output table|json]
    python benchmarks/verdicts/what_if.py --judge DIR

Of the first run of a pair the rate of the second is predicted, as `bathy explain RUN STEP --what-if CHANGE` does, and
held against the measured one. Exit code 1 unless every prediction is within 20 % of it and its interval holds it.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bed import LABS, Bed, LabGroup, running
from cases import R16, W16, Case
from injectors import (
    Injector,
    UnsupportedError,
    client_quota,
    cpu_group,
    each,
    group_of,
    nothing,
    primary_affinity,
    slow_device,
    together,
)
from runner import run_case
from truth import Expect

from bathyscope.analysis.what_if import predict_in_run
from bathyscope.errors import BathyscopeError
from bathyscope.lab import throttle
from bathyscope.records.account import Prediction
from bathyscope.records.finding import LadderFinding, PointFinding
from bathyscope.run_kinds import kind_of
from bathyscope.spec import Target
from bathyscope.store import RunDirectory, Workspace
from bathyscope.units import format_rate

WITHIN = 0.20
PREFIX = "what-if-"
OSDS = ("osd.0", "osd.1", "osd.2")
R2 = "randread-4K-qd2"
CLASSES = LabGroup("classes", ("hdd=3", "ssd=3"))


@dataclasses.dataclass(frozen=True, slots=True)
class Side:
    """One run of a pair: what is injected, the load, the copies in its pool, and what differs from the common plan."""

    inject: Injector
    pattern: str = R16
    copies: int = 3
    plan: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    device_class: str = "ssd"


class PoolBed(Bed):
    """A lab whose loads all use one pool: bathy's own has other primaries in each run, and so other shares by OSD."""

    POOL, GROUPS = "pairs", 128

    @property
    def target(self) -> Target:
        return super().target.model_copy(update={"pool": self.POOL})

    def make(self) -> None:
        self.make_pool(self.POOL, self.GROUPS)
        self.run("rbd", "pool", "init", self.POOL)
        self.settle()

    def copies(self, count: int) -> None:
        """Set the size of the pool."""
        self.run("ceph", "osd", "pool", "set", self.POOL, "size", str(count), "--yes-i-really-mean-it")
        self.settle()


@dataclasses.dataclass(frozen=True, slots=True)
class Pair:
    """The run that is measured, the change, and the run where the change was made."""

    name: str
    change: str
    before: Side
    after: Side
    lab: LabGroup = LABS["ssd"]

    @property
    def sides(self) -> tuple[Side, ...]:
        """The runs that it takes: where the sides differ in the class of the disks only, one run has both."""
        alike = dataclasses.replace(self.after, device_class=self.before.device_class) == self.before
        return (self.before,) if alike else (self.before, self.after)


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """The rates of both runs, and what was predicted of the second."""

    pair: str
    change: str
    before: float
    predicted: float
    low: float
    high: float
    measured: float
    sentence: str

    @property
    def error(self) -> float:
        return self.predicted / self.measured - 1

    @property
    def ok(self) -> bool:
        return abs(self.error) <= WITHIN and self.low <= self.measured <= self.high


def osd_quotas(cores: float) -> Injector:
    """Give every OSD a processor quota of its own."""
    return each(lambda osd: _quota(cores, osd), *OSDS)


def _quota(cores: float, osd: str) -> Injector:
    @contextlib.contextmanager
    def inject(bed: Bed) -> Iterator[None]:
        pid = bed.pid(osd)
        before = group_of(pid)
        with cpu_group(osd, cores) as group:
            throttle.join(group, pid)
            try:
                yield
            finally:
                throttle.join(before, pid)

    return inject


def slow_devices(iops: int) -> Injector:
    """Limit every OSD's device."""
    return each(lambda osd: slow_device(osd, read_iops=iops, write_iops=iops), *OSDS)


def _pairs() -> Iterator[Pair]:
    yield Pair("osd-cpu-reads", "osd.cpu=2x", Side(osd_quotas(0.1)), Side(osd_quotas(0.2)))
    yield Pair("osd-cpu-writes", "osd.cpu=2x", Side(osd_quotas(0.15), W16), Side(osd_quotas(0.3), W16))
    yield Pair("disk-reads", "disk=2x", Side(slow_devices(200)), Side(slow_devices(400)))
    yield Pair("disk-writes", "disk=2x", Side(slow_devices(200), W16), Side(slow_devices(400), W16))
    yield Pair("client", "client.cpu=2x", Side(client_quota(0.05)), Side(client_quota(0.1)))
    disks = slow_devices(200)
    yield Pair("depth", "qd=16", Side(disks, R2), Side(disks, R16))
    uneven = together(disks, primary_affinity("osd.0", 0.0))
    yield Pair("even", "even", Side(uneven), Side(disks))
    # Last: new copies of the data take their time.
    yield Pair("size-2", "size=2", Side(disks, W16), Side(disks, W16, copies=2))
    yield Pair("size-1", "size=1", Side(disks, W16, copies=2), Side(disks, W16, copies=1))
    # The disk layer says what a disk of the other class can do.
    both = {"layers": ["disk", "rbd"], "device_classes": ["hdd", "ssd"]}
    hdd, ssd = (Side(nothing, plan=both, device_class=name) for name in ("hdd", "ssd"))
    yield Pair("hdd-to-ssd", "disk=ssd", hdd, ssd, CLASSES)


PAIRS = {pair.name: pair for pair in _pairs()}


def measured(run: RunDirectory, side: Side) -> tuple[LadderFinding, PointFinding]:
    """Return what `bathy` found in a run, and the load of the pair in it."""
    ladder = kind_of(run).finding(run)
    if run.status != "done" or not isinstance(ladder, LadderFinding):
        raise RuntimeError(f"run {run.info.id} is {run.status}")
    for group in ladder.groups:
        for point in group.points:
            # A pool of its own stands on all classes of the lab.
            if point.layer == "rbd" and point.device_class in {side.device_class, ""} and point.iops.value:
                return ladder, point
    raise RuntimeError(f"run {run.info.id} has no figure of {side.pattern} on RBD")


def run_pair(bed: Bed, pair: Pair, options: argparse.Namespace, workspace: Path) -> Outcome:
    """Run both sides of a pair and hold the prediction against the second."""
    runs = []
    for side in pair.sides:
        # Many objects are spread as the placement groups are.
        plan = {"repeats": options.repeats, "axes": {"object_size": ["256K"]}, **side.plan}
        loads = {side.pattern: Expect(frozenset(), "")}
        case = Case(f"{PREFIX}{pair.name}", pair.lab.name, side.inject, loads, plan=plan)
        if isinstance(bed, PoolBed):
            bed.copies(side.copies)
        runs.append(run_case(bed, case, workspace, options.runtime))
    return judge(pair, runs)


def judge_all(pairs: Sequence[Pair], directory: Path) -> Iterator[Outcome | str]:
    """Yield what is predicted now from the newest runs of each pair in a workspace, without a cluster."""
    workspace = Workspace(directory)
    runs = [workspace.open_run(entry.id) for entry in workspace.runs()]
    for pair in pairs:
        own = [run for run in runs if run.info.name == f"{PREFIX}{pair.name}" and run.status == "done"]
        own.sort(key=lambda run: run.info.started_ns)
        yield judge(pair, own[-len(pair.sides) :]) if len(own) >= len(pair.sides) else pair.name


def judge(pair: Pair, runs: Sequence[RunDirectory]) -> Outcome:
    (ladder, point), (_, after) = measured(runs[0], pair.before), measured(runs[-1], pair.after)
    found = predict_in_run(ladder, point, pair.change, replicas=pair.before.copies)
    return outcome(pair, point, after, found)


def outcome(pair: Pair, before: PointFinding, after: PointFinding, found: Prediction) -> Outcome:
    rates = (before.iops.value, found.iops.value, found.iops.low, found.iops.high, after.iops.value)
    now, predicted, low, high, then = (float(rate or "nan") for rate in rates)
    return Outcome(pair.name, pair.change, now, predicted, low, high, then, found.sentence)


def outcomes(pairs: Sequence[Pair], options: argparse.Namespace, workspace: Path) -> Iterator[Outcome | str]:
    """Yield what came of each pair, lab by lab; of one that could not be run, its name."""
    for group in (LABS["ssd"], CLASSES):
        own = [pair for pair in pairs if pair.lab is group]
        with contextlib.ExitStack() as stack:
            bed = stack.enter_context(running(group)) if own else None
            if bed is not None and group is not CLASSES:
                bed = PoolBed(bed.name)
                bed.make()
            for pair in own:
                assert bed is not None
                print(f"{time.strftime('%H:%M:%S')} {pair.name}", file=sys.stderr)
                try:
                    yield run_pair(bed, pair, options, workspace)
                except UnsupportedError as error:
                    print(f"  skipped: {error}", file=sys.stderr)
                except (BathyscopeError, OSError, RuntimeError, TimeoutError) as error:
                    print(f"  failed: {type(error).__name__}: {error}", file=sys.stderr)
                    yield pair.name


def line(one: Outcome) -> str:
    """Return an outcome as a row of the table."""
    spread = f"{format_rate(one.low)}–{format_rate(one.high)}"
    return (
        f"{one.pair:16}{one.change:16}{format_rate(one.before):>8}{format_rate(one.predicted):>11}{spread:>16}"
        f"{format_rate(one.measured):>10}{one.error:>+8.0%}  {'ok' if one.ok else 'MISSED'}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pair", nargs="+", default=list(PAIRS), choices=list(PAIRS), metavar="NAME")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--runtime", type=float, default=5.0, help="seconds of a load")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="workspace in which the runs are kept")
    parser.add_argument("--judge", type=Path, metavar="DIR", help="predict from the runs kept there; runs nothing")
    parser.add_argument("--output", choices=("table", "json"), default="table")
    options = parser.parse_args()
    if options.judge is None and os.geteuid() != 0:
        parser.error("control groups and loop devices need root")
    ok = True
    with contextlib.ExitStack() as stack:
        keep = options.keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bathy-")))
        if options.output == "table":
            print(f"{'pair':16}{'change':16}{'before':>8}{'predicted':>11}{'interval':>16}{'measured':>10}{'error':>8}")
        pairs = [PAIRS[name] for name in options.pair]
        found = outcomes(pairs, options, keep) if options.judge is None else judge_all(pairs, options.judge)
        for one in found:
            ok &= isinstance(one, Outcome) and one.ok
            if isinstance(one, str):
                print(f"{one}: no runs", file=sys.stderr)
                continue
            shown = json.dumps({**dataclasses.asdict(one), "ok": one.ok}) if options.output == "json" else line(one)
            print(shown, flush=True)
            print(f"  {one.sentence}", file=sys.stderr)
    sys.exit(0 if ok else 1)


if __name__ == "__main__":
    main()
