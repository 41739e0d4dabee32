"""The advice of `bathy size` against brute force: every configuration, simulated in full, on real and synthetic traces.

The advice searches: it simulates some hundred caches. Brute force simulates all of some thousands: each line size,
fetch size, policy and admission at many sizes. The advice must leave the disks at most `NEAR` times the time of the
best configuration at its cost, and no configuration may be cheaper and better by more than `DOMINATED`.
"""

from __future__ import annotations

import argparse
import dataclasses
import gzip
import lzma
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bathyscope import _core, simulate
from bathyscope.analysis.sizing import SizeQuestion, next_pass
from bathyscope.analysis.sizing.build import curves_of
from bathyscope.analysis.sizing.choice import Choice, choose, whole_curves
from bathyscope.records import CurvePoint, from_table, schema_of
from bathyscope.records.size_finding import SizeCurve, SizePoint
from bathyscope.simulate.grid import size_for_flash
from bathyscope.simulate.trace import TraceFiles
from bathyscope.spec import limits
from bathyscope.spec.size import ADMISSION_OF_BATHYD, Admission, CurveKey, Pass, SizeSpec, WantedSizes
from bathyscope.spec.values import checked
from bathyscope.units import format_bytes

NEAR = 1.05
"""Disk time that the advice may leave, of that of the best configuration at its cost."""
DOMINATED = 1.02
"""A configuration dominates when it is cheaper by more than this and leaves the disks less time by more than this."""
LINES = (4096, 16_384, 65_536, 262_144)
ADMISSIONS = ("all", "2-hit", ADMISSION_OF_BATHYD)
SHARES = tuple(np.geomspace(1 / 64, 1.05, 12))
"""Sizes of brute force, of the working set of the largest lines."""
BUDGETS = (0.1, 0.3)
"""Flash at hand, of the working set of the largest lines."""
BACKINGS = ("hdd", "ssd")
"""Disks behind the cache: on the first a positioning costs more than all that is fetched, on the second it does not."""
BLOCK = 4096

Ints = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True, slots=True)
class Space:
    """The configurations of brute force."""

    line_bytes: tuple[int, ...] = LINES
    policies: tuple[str, ...] = ()
    admissions: tuple[str, ...] = ADMISSIONS
    shares: tuple[float, ...] = SHARES


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """The advice on one trace and question, beside the best of brute force.

    `near` is the disk time left by the advice over the least at its cost. `dominated` is 1 when no configuration is
    cheaper and better, else by how much the best of those is, in the lesser of flash and disk time.
    """

    name: str
    advised: Choice | None
    near: float
    dominated: float
    simulated: int
    brute: int
    best: str = ""

    @property
    def ok(self) -> bool:
        """Whether the advice is good enough."""
        return self.near <= NEAR and self.dominated <= DOMINATED


def write_csv(path: Path, write: npt.NDArray[np.bool_], block: Ints, blocks: Ints, step_us: int = 20_000) -> Path:
    """Write requests in blocks of 4 KiB as a trace, one every `step_us`."""
    ops = np.where(write, "write", "read")
    rows = zip(range(0, len(block) * step_us, step_us), ops, block * BLOCK, blocks * BLOCK, strict=True)
    lines = (f"{at},{op},{offset},{length},v" for at, op, offset, length in rows)
    path.write_text("time_us,op,offset_bytes,length_bytes,volume\n" + "\n".join(lines) + "\n")
    return path


def synthetic(number: int, requests: int) -> tuple[npt.NDArray[np.bool_], Ints, Ints]:
    """Return requests of a mixture that `number` seeds: hot spots, loops, scans, runs, strides, drift, writes."""
    rng = np.random.default_rng(1000 + number)
    parts = rng.dirichlet(np.ones(4) * 0.7)
    kind = rng.choice(4, requests, p=parts)
    universe = int(rng.choice([2_000, 8_000, 30_000]))
    blocks = np.full(requests, int(rng.choice([1, 1, 2, 4, 16])), np.int64)
    exponent = rng.uniform(0.6, 1.3)
    weights = np.arange(1, universe + 1) ** -exponent
    ranks = rng.choice(universe, requests, p=weights / weights.sum())
    # Hot blocks lie scattered, together, or far apart.
    spread = int(rng.choice([1, 1, 7, 64]))
    place = rng.permutation(universe)[ranks] if rng.random() < 0.5 else ranks
    drift = (np.arange(requests) * rng.choice([0, 0, universe // 4]) // requests).astype(np.int64)
    block = (place.astype(np.int64) + drift) * spread
    loop = int(rng.integers(200, universe))
    step = int(rng.choice([1, 1, 8, 64]))
    counter = np.cumsum(kind == 1) * blocks
    block = np.where(kind == 1, 10_000_000 + counter % loop * step, block)
    block = np.where(kind == 2, 20_000_000 + np.cumsum(kind == 2) * blocks, block)
    run = np.cumsum(kind == 3)
    start = rng.integers(0, max(2, universe // 64), requests // 16 + 1) * 64
    block = np.where(kind == 3, 30_000_000 + start[run // 16] + run % 16 * blocks, block)
    return rng.random(requests) < rng.choice([0.0, 0.1, 0.5]), block.astype(np.int64), blocks


def real_traces(directory: Path, scratch: Path, most: int) -> Iterator[tuple[str, Path]]:
    """Yield the traces at hand, in forms that the product reads; of very long ones the start."""
    for path in sorted((directory / "lirs").glob("*.trace.gz")):
        plain = scratch / f"{path.name.removesuffix('.trace.gz')}.lirs"
        plain.write_bytes(gzip.decompress(path.read_bytes()))
        yield f"lirs/{plain.stem}", plain
    if (path := directory / "cloudPhysicsIO.vscsi").exists():
        yield "cloudPhysicsIO", path
    if (path := directory / "w106.trace.xz").exists():
        keys = np.frombuffer(lzma.decompress(path.read_bytes()), "<u4")[:most].astype(np.int64)
        none = np.zeros(len(keys), bool)
        yield "w106", write_csv(scratch / "w106.csv", none, keys, np.ones(len(keys), np.int64), 115_000)


def advised(trace: Path, threads: int, **asked: Any) -> tuple[simulate.Workload, SizeQuestion, pa.Table]:
    """Return what the verb's loop simulated, without its latencies: the disk time decides."""
    spec = checked(
        SizeSpec, line_bytes=LINES, vary=("fetch", "policy", "admission"), exact=True, threads=threads, **asked
    )
    workload = simulate.profile(TraceFiles([trace]), spec)
    question = SizeQuestion(spec, workload.summary)
    rows, done = schema_of(CurvePoint).empty_table(), None
    while (wanted := next_pass(rows, question, done)) is not None:
        rows = pa.concat_tables([rows, simulate.run(wanted, workload)])
        done = wanted
    return workload, question, rows


def brute_force(workload: simulate.Workload, space: Space, budgets_bytes: Sequence[int] = ()) -> pa.Table:
    """Return every configuration of the space, simulated in full at every size and at the largest for each budget."""
    working_set = workload.groups[0].working_set_bytes
    wanted = []
    for line in space.line_bytes:
        sizes = {max(1, round(share * working_set / line)) * line for share in space.shares}
        for policy in space.policies or limits.policy_names():
            key = CurveKey("all", "all", line, policy)
            fitting = {size_for_flash(policy, budget, line, line) for budget in budgets_bytes if budget >= line}
            wanted += [
                WantedSizes(key, tuple(sorted(sizes | fitting)), Admission.of(name), fetch)
                for fetch in space.line_bytes
                if line // limits.MAX_FETCH_UNITS <= fetch <= line
                for name in space.admissions
            ]
    return simulate.run(Pass("options", tuple(wanted)), workload)


def judge(name: str, question: SizeQuestion, rows: pa.Table, brute: pa.Table) -> Outcome:
    """Return how the advice stands among all configurations."""
    found = choose(curves_of(from_table(CurvePoint, rows), question), question.spec)
    everything = curves_of(from_table(CurvePoint, pa.concat_tables([rows, brute])), question)
    pairs = [
        (curve, point) for curve in whole_curves(everything) for point in curve.points
        if point.purchase is not None and point.disk_time_left is not None
        and (question.spec.budget_bytes is None or point.flash_bytes <= question.spec.budget_bytes)
    ]  # fmt: skip
    points = [point for _, point in pairs]
    simulated, count = (len({*_points(table)}) for table in (rows, brute))
    if found is None:
        # Nothing was advised: nothing may spare the disks anything.
        near = 1.0 if all(_left(point) >= 1.0 for point in points) else float("inf")
        return Outcome(name, None, near, 1.0, simulated, count)
    mine = found.point
    has_budget = question.spec.budget_bytes is not None
    pairs = [(curve, p) for curve, p in pairs if has_budget or _price(p) <= _price(mine)]
    affordable = [point for _, point in pairs]
    best_curve, best_point = min(pairs, key=lambda pair: _left(pair[1]))
    best = _left(best_point)
    near = _left(mine) / best if best > 0 else 1.0 if _left(mine) <= 0 else float("inf")
    better = (_advantage(mine, p) for p in affordable)
    words = "" if near <= NEAR else f"; best: {_words(best_curve, best_point)}"
    return Outcome(name, found, near, max(1.0, *better), simulated, count, words)


def _points(table: pa.Table) -> Iterator[tuple[object, ...]]:
    for row in from_table(CurvePoint, table):
        if row.window == "all":
            yield row.line_bytes, row.fetch_bytes, row.policy, row.admission, row.size_bytes


def _left(point: SizePoint) -> float:
    return 1.0 if point.disk_time_left is None else point.disk_time_left


def _price(point: SizePoint) -> float:
    return 0.0 if point.purchase is None else point.purchase.price


def _advantage(mine: SizePoint, other: SizePoint) -> float:
    """Return by how much the other is both cheaper and better."""
    cheaper = mine.flash_bytes / max(1, other.flash_bytes)
    better = _left(mine) / _left(other) if _left(other) > 0 else float("inf")
    return min(cheaper, better)


def compare(name: str, trace: Path, space: Space, threads: int, budgets: Sequence[float] = BUDGETS) -> list[Outcome]:
    """Return the outcomes on one trace, on each backing: without a target, and with budgets of these shares."""
    spec = checked(SizeSpec, line_bytes=LINES, exact=True, threads=threads)
    workload = simulate.profile(TraceFiles([trace]), spec)
    given = {share: int(share * workload.groups[0].working_set_bytes) for share in budgets}
    given = {share: budget for share, budget in given.items() if budget >= 2 * max(LINES)}
    brute = brute_force(workload, space, list(given.values()))
    found = []
    for backing in BACKINGS:
        for share, budget in ((0.0, None), *given.items()):
            _, question, rows = advised(trace, threads, backing=backing, budget_bytes=budget)
            label = f"{name}, {backing}" + (f", {share:.0%}" if budget else "")
            found.append(judge(label, question, rows, brute))
    return found


def show(one: Outcome) -> str:
    """Return an outcome as a line."""
    words = "nothing advised"
    if one.advised is not None:
        words = _words(one.advised.curve, one.advised.point) + one.best
    return (
        f"{one.name:28} {one.near:7.3f} {one.dominated:7.3f} {one.simulated:5} of {one.brute:5}  "
        f"{'ok' if one.ok else 'MISSED'}  {words}"
    )


def _words(curve: SizeCurve, point: SizePoint) -> str:
    return (
        f"{format_bytes(point.flash_bytes):>8} {curve.line_bytes >> 10:>4}K/{curve.fetch_bytes >> 10}K "
        f"{curve.policy} {curve.admission}: {_left(point):.4f} left"
    )


def run(cases: Iterable[tuple[str, Path]], space: Space, threads: int, say: Callable[[str], None] = print) -> bool:
    """Print the outcomes; True when all are good enough."""
    say(f"{'trace':28} {'near':>7} {'domin.':>7}  caches simulated")
    all_ok = True
    for name, path in cases:
        started = time.perf_counter()
        for one in compare(name, path, space, threads):
            all_ok &= one.ok
            say(show(one))
        say(f"{'':28} {time.perf_counter() - started:.0f} s")
    return all_ok


def cases(directory: Path | None, scratch: Path, count: int, requests: int, most: int) -> Iterator[tuple[str, Path]]:
    """Yield the synthetic traces and the real ones."""
    for number in range(count):
        yield f"synthetic {number}", write_csv(scratch / f"synthetic-{number}.csv", *synthetic(number, requests))
    if directory is not None:
        yield from real_traces(directory, scratch, most)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--synthetic", type=int, default=20)
    parser.add_argument("--requests", type=int, default=20_000, help="of a synthetic trace")
    parser.add_argument("--most", type=int, default=400_000, help="references of w106 that are taken")
    parser.add_argument("--coarse", action="store_true", help="every third size of brute force, for long traces")
    parser.add_argument("--only", help="traces whose name holds this")
    parser.add_argument("--threads", type=int, default=min(2, os.cpu_count() or 1))
    options = parser.parse_args()
    if _core.DEBUG_BUILD:
        print("warning: the core is a debug build; this takes long", file=sys.stderr)
    given = os.environ.get("BATHY_TRACES")
    if given is None:
        print("BATHY_TRACES is not set: synthetic traces only", file=sys.stderr)
    with tempfile.TemporaryDirectory() as scratch:
        found = cases(Path(given) if given else None, Path(scratch), options.synthetic, options.requests, options.most)
        chosen = (case for case in found if options.only is None or options.only in case[0])
        space = Space(shares=SHARES[::3]) if options.coarse else Space()
        return 0 if run(chosen, space, options.threads, lambda line: print(line, flush=True)) else 1


if __name__ == "__main__":
    sys.exit(main())
