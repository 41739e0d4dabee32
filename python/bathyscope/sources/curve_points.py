"""Two passes over a block trace give curve points: profiles say how large, the cache engine says how good.

The first pass measures working sets (stack distances, exact or of a fixed-size sample). The second runs the cache
engine itself, its policy, admission and line handling, at a grid of sizes for every group, line size and policy.
Small traces are simulated in full. Of large ones a miniature is simulated: whole regions are sampled, because a request
hits only when all of its lines do, which a sample of single lines cannot tell (see `curve_sample`); the disagreement of
eight parts of the sample gives the band.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from bathyscope import _core
from bathyscope.errors import AnalysisError, UsageError
from bathyscope.mrc import regions
from bathyscope.records import CurvePoint
from bathyscope.sources import curve_sample
from bathyscope.sources.block_trace import BlockTrace, TraceReport
from bathyscope.sources.curve_request import Admission, CurveRequest, check, check_time
from bathyscope.sources.flash_share import flash_lines, largest_size_lines
from bathyscope.units import format_seconds

DEFAULT_SAMPLES = 32_768
"""Lines that a profile tracks at most."""

LARGEST_GROUPS = 32
"""Groups with a curve of their own; the rest shares one cache, "(others)"."""

FRACTIONS = (1 / 128, 1 / 64, 1 / 32, 1 / 16, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
"""Sizes of the grid, of the working set."""

WINDOW_SECONDS = (60, 300, 600, 900, 1800, 3600, 6 * 3600, 86_400, 7 * 86_400)
"""Lengths that an automatic window may have: the shortest that makes at most 24."""

MOST_WINDOWS = 4096
"""What the engine counts apart; it would join the rest in the last."""

T95 = 2.364624251592785
"""Standard errors in half a 95 % band: Student's t with 7 degrees of freedom. The standard error is itself estimated,
from eight parts of a sample, so the quantile of the normal distribution would make bands too narrow."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Group:
    """A group and what the first pass knows of it: reads and writes as (requests, bytes), the rest by line size.

    `lines` are distinct lines, `accesses` references to lines, `written` those of writes.
    """

    kind: str
    name: str
    number: int | None
    others: bool
    reads: tuple[int, int]
    writes: tuple[int, int]
    lines: dict[int, float]
    accesses: dict[int, int]
    written: dict[int, int]
    exact: bool

    @property
    def working_set_bytes(self) -> float:
        return max(lines * line for line, lines in self.lines.items())


@dataclasses.dataclass(frozen=True, slots=True)
class _Engine:
    """One curve under way: its number in the pass and what it is of."""

    number: int
    group: _Group
    line_bytes: int
    policy: str
    windowed: bool


@dataclasses.dataclass(frozen=True, slots=True)
class _Job:
    """What every curve of one call shares."""

    trace: BlockTrace
    request: CurveRequest
    report: TraceReport
    window_ns: int


Progress = Callable[[str, int, int, int], None]
"""Called with the name of the pass, events, how far in the trace's extent, and the extent."""


CurveKey = tuple[str, str, int, str]
"""Group kind, group name, line size in bytes, policy."""

Refine = Callable[[Sequence[CurvePoint], TraceReport], dict[CurveKey, list[int]]]
"""Given the points so far, the further sizes in bytes that a curve should have."""


@dataclasses.dataclass(frozen=True, slots=True)
class Trial:
    """A size of a curve to simulate once more, with another admission."""

    key: CurveKey
    size_bytes: int
    admission: Admission


Try = Callable[[Sequence[CurvePoint]], Sequence[Trial]]
"""Given all points, what to try with another admission."""


def curve_points(
    trace: BlockTrace,
    request: CurveRequest,
    progress: Progress | None = None,
    refine: Refine | None = None,
    trials: Try | None = None,
) -> tuple[list[CurvePoint], TraceReport]:
    """Return the points of every curve, and what was found of the trace itself.

    `refine` may ask for further sizes once the grid is known, and `trials` for sizes with another admission once all
    sizes are; each costs a pass if it asks for any. Points of trials have the name of their own admission.

    Raises AnalysisError for a trace without reads and writes or with more lines than can be simulated, ParseError for
    one that cannot be read, UsageError for a line, fetch size or policy that cannot be.
    """
    check(request)

    def tell(name: str) -> Callable[[int, int], None] | None:
        return None if progress is None else lambda events, done: progress(name, events, done, trace.extent)

    samples = None if request.exact else (request.samples or DEFAULT_SAMPLES)
    first = trace.new_profile_pass(_profiled_bytes(request), max_lines=samples, salt=request.salt)
    trace.feed(first, threads=request.threads, progress=tell("profile"))
    report = trace.report(first)
    groups = _groups(trace, first)
    if not groups:
        raise AnalysisError("the trace holds no reads and writes", hint="is it in another format? --format names it")
    check_time(request, report.duration_s)
    job = _Job(trace, request, report, _window_ns(request, report))
    plan = _plan(groups, request)
    rows = _simulate([(job, key, *what) for key, what in plan.items()], tell("simulate"))
    if refine is not None:
        finer = [(key, _lines_of(sizes, key[2])) for key, sizes in refine(rows, report).items()]
        rows += _simulate([(job, key, plan[key][0], lines) for key, lines in finer if len(lines)], tell("refine"))
    if trials is not None:
        tried = [(trial, _lines_of([trial.size_bytes], trial.key[2])) for trial in trials(rows)]
        jobs = [
            (_with_admission(job, trial.admission), trial.key, plan[trial.key][0], lines)
            for trial, lines in tried
            if len(lines)
        ]
        rows += _simulate(jobs, tell("trials"))
    return rows, report


def _plan(groups: Sequence[_Group], request: CurveRequest) -> dict[CurveKey, tuple[_Group, npt.NDArray[np.uint64]]]:
    """Return the group and the sizes in lines of every curve."""
    return {
        (group.kind, group.name, line, policy): (
            group,
            size_grid(
                group.working_set_bytes,
                group.lines[line],
                line,
                max(request.line_bytes),
                [_size_for_flash(policy, flash, line, request) for flash in request.extra_flash_bytes],
            ),
        )
        for group in groups
        for line in request.line_bytes
        for policy in request.policies
    }


def _lines_of(sizes_bytes: Sequence[int], line_bytes: int) -> npt.NDArray[np.uint64]:
    sizes = np.unique(np.asarray(sizes_bytes, np.uint64) // np.uint64(line_bytes))
    return sizes[sizes > 0]


def _with_admission(job: _Job, admission: Admission) -> _Job:
    """Return the job with another admission, checked, and without windows."""
    request = dataclasses.replace(job.request, admission=admission)
    check(request)
    return dataclasses.replace(job, request=request, window_ns=0)


def _simulate(
    wanted: Sequence[tuple[_Job, CurveKey, _Group, npt.NDArray[np.uint64]]],
    progress: Callable[[int, int], None] | None,
) -> list[CurvePoint]:
    """Run one pass over all that is wanted; without any, none."""
    if not wanted:
        return []
    trace, threads = wanted[0][0].trace, wanted[0][0].request.threads
    second = trace.new_engine_pass()
    added = [(job, _add_engine(second, key, group, sizes, job)) for job, key, group, sizes in wanted]
    engines = [(job, engine) for job, engine in added if engine is not None]
    if not engines:
        return []
    try:
        trace.feed(second, threads=threads, progress=progress)
    except OverflowError as error:
        raise AnalysisError(str(error), hint="simulate larger lines, or a sample: leave out --exact") from error
    rows: list[CurvePoint] = []
    for job, engine in engines:
        rows.extend(_points(second, engine, job))
        if engine.windowed:
            rows.extend(_window_points(second, engine, job))
    return rows


def _size_for_flash(policy: str, flash_bytes: int, line_bytes: int, request: CurveRequest) -> int:
    """Return the size that needs at most so much flash: one for all line sizes unless that would waste some."""
    unit = max(request.line_bytes)
    unit = unit if flash_bytes >= 256 * unit else line_bytes
    return largest_size_lines(policy, flash_bytes // unit) * unit


def _profiled_bytes(request: CurveRequest) -> list[int]:
    """Return the line sizes, and the fetch size: how much of its units the writes cover is counted there."""
    return sorted({*request.line_bytes, *([] if request.fetch_bytes is None else [request.fetch_bytes])})


def _write_gap_ratio(group: _Group, line_bytes: int, request: CurveRequest) -> float | None:
    """Return the part of the fetch units touched by writes that the writes left unwritten."""
    unit = request.fetch_bytes or line_bytes
    touched_bytes = group.written[unit] * unit
    if touched_bytes == 0 or request.on_write == "invalidate":
        return None
    return 1.0 - group.writes[1] / touched_bytes


def _groups(trace: BlockTrace, first: _core.ProfilePass) -> list[_Group]:
    """Return the whole trace, and then its groups by reads; the smallest join in one."""
    whole = dict(first.take_whole_profiles())
    if not whole:
        return []
    groups = [_group("all", "all", None, [whole])]
    by_number: dict[int, dict[int, _core.Profile]] = {}
    names: dict[int, str] = {}
    for line, number, name, profile in first.take_group_profiles():
        by_number.setdefault(number, {})[line] = profile
        names[number] = trace.group_name(number, name)
    found = [_group(trace.by, names[number], number, [profiles]) for number, profiles in by_number.items()]
    found.sort(key=lambda g: (-g.reads[0], -g.writes[0], g.name))
    rest = found[LARGEST_GROUPS:]
    if len(rest) > 1:
        name = f"({len(rest)} others)"
        members = [by_number[g.number] for g in rest if g.number is not None]
        return [*groups, *found[:LARGEST_GROUPS], _group(trace.by, name, None, members, others=True)]
    return groups + found


def _group(
    kind: str,
    name: str,
    number: int | None,
    members: Sequence[dict[int, _core.Profile]],
    *,
    others: bool = False,
) -> _Group:
    def totals(ops: str, place: int) -> int:
        return sum(next(iter(profiles.values())).totals(ops)[place] for profiles in members)

    lines = list(members[0])
    return _Group(
        kind=kind,
        name=name,
        number=number,
        others=others,
        reads=(totals("read", 1), totals("read", 2)),
        writes=(totals("write", 1), totals("write", 2)),
        lines={line: sum(profiles[line].distinct_lines for profiles in members) for line in lines},
        accesses={line: sum(profiles[line].totals("all")[0] for profiles in members) for line in lines},
        written={line: sum(profiles[line].totals("write")[0] for profiles in members) for line in lines},
        exact=all(profile.exact for profiles in members for profile in profiles.values()),
    )


def _add_engine(
    second: _core.EnginePass,
    key: CurveKey,
    group: _Group,
    sizes: npt.NDArray[np.uint64],
    job: _Job,
) -> _Engine | None:
    """Add the engine of a curve; None when a sample can tell none of its sizes."""
    _, _, line, policy = key
    request, report, window_ns = job.request, job.report, job.window_ns
    origin_ns = report.time_ns_range[0] if report.time_ns_range else 0
    windowed = group.kind == "all" and window_ns > 0
    region = regions.region_bytes(report.request_bytes_p99, line)
    rate = _rate(group, line, policy, region, request)
    if rate is not None:
        sizes = _simulated_sizes(sizes, group.lines[line], request.samples)
        if len(sizes) == 0:
            return None
    try:
        number = second.add_engine(
            policy,
            line,
            sizes,
            group=group.number,
            others=group.others,
            rate=rate,
            min_lines=curve_sample.MINIATURE_LINES,
            salt=request.salt,
            fetch_bytes=request.fetch_bytes,
            small_in_ram=True,
            on_write=request.on_write,
            n_hit=request.admission.n_hit,
            stream_cutoff_bytes=request.admission.stream_cutoff_bytes,
            write_budget_bytes_per_day=request.admission.write_budget_bytes_per_day,
            windows=(origin_ns, window_ns) if windowed else None,
            sample_region_bytes=region,
        )
    except ValueError as error:
        raise UsageError(str(error)) from error
    return _Engine(number, group, line, policy, windowed)


def size_grid(
    working_set_bytes: float,
    distinct_lines: float,
    line_bytes: int,
    unit_bytes: int,
    extra_sizes_bytes: Sequence[int] = (),
) -> npt.NDArray[np.uint64]:
    """Return the sizes to simulate, in lines, shape (n,), increasing.

    `working_set_bytes` is that of the largest lines, so that the curves of all line sizes share their sizes; a curve
    ends at the first size that holds its own `distinct_lines`. Sizes are rounded up to multiples of `unit_bytes`, the
    largest line, and to six bits below their highest, so that they read well. `extra_sizes_bytes` are rounded down:
    they are budgets.
    """
    own = max(1, math.ceil(distinct_lines))
    sizes = {_rounded(fraction * working_set_bytes, unit_bytes) // line_bytes for fraction in FRACTIONS}
    ordered = sorted(sizes)
    enough = next((size for size in ordered if size >= own), own)
    kept = {size for size in ordered if size <= enough} | {enough}
    kept |= {size // line_bytes for size in extra_sizes_bytes if line_bytes <= size < enough * line_bytes}
    # Beyond the working set nothing changes, but a budget there is a size that was asked for.
    kept |= {size // line_bytes for size in extra_sizes_bytes if enough * line_bytes <= size <= (line_bytes << 30)}
    return np.asarray(sorted(kept), np.uint64)


def _rounded(size_bytes: float, unit_bytes: int) -> int:
    """Round up to a multiple of a 64th of the power of two below, and of `unit_bytes`."""
    whole = max(1, math.ceil(size_bytes))
    step = max(unit_bytes, (1 << (whole.bit_length() - 1)) // 64)
    return -(-whole // step) * step


def _simulated_sizes(
    sizes: npt.NDArray[np.uint64], distinct_lines: float, samples: int | None
) -> npt.NDArray[np.uint64]:
    """Return the sizes that a sample can tell; below the smallest nothing is claimed."""
    return sizes[sizes >= curve_sample.smallest_size_lines(distinct_lines, samples)]


def _rate(group: _Group, line_bytes: int, policy: str, region_bytes: int, request: CurveRequest) -> float | None:
    """Return the rate of the miniature, or None for a full simulation."""
    lines = group.lines[line_bytes]
    if request.exact:
        return None
    fast = group.accesses[line_bytes] * len(FRACTIONS) <= curve_sample.FULL_ACCESSES
    small = lines <= curve_sample.full_lines(line_bytes, request.fetch_bytes, policy)
    if request.samples is None and fast and small:
        return None
    rate = curve_sample.sample_lines(region_bytes, line_bytes, request.samples) / lines
    return None if rate >= 1.0 else rate


def _window_ns(request: CurveRequest, report: TraceReport) -> int:
    if report.duration_s <= 0:
        return 0
    if request.window_s is not None:
        if report.duration_s / request.window_s > MOST_WINDOWS:
            raise UsageError(
                f"windows of {request.window_s:g} s make more than {MOST_WINDOWS} of a trace of "
                f"{format_seconds(report.duration_s)}",
                hint=f"at least {math.ceil(report.duration_s / MOST_WINDOWS)}s",
            )
        return max(1, round(request.window_s * 1e9))
    seconds = next((s for s in WINDOW_SECONDS if report.duration_s / s <= 24), WINDOW_SECONDS[-1])
    return seconds * 10**9


def _ratio(part: npt.NDArray[np.float64], whole: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return np.clip(np.divide(part, whole, out=np.zeros_like(part), where=whole > 0), 0.0, 1.0)


def _points(second: _core.EnginePass, engine: _Engine, job: _Job) -> Iterator[CurvePoint]:
    request, report = job.request, job.report
    group, line, counts = engine.group, engine.line_bytes, second.results(engine.number)
    hit = _ratio(counts["read_requests_hit"], counts["read_requests"])
    # Unknown is not zero: without reads in the sample the band is everything.
    spread = np.where(np.isnan(counts["read_hit_stderr"]), 1.0, T95 * counts["read_hit_stderr"])
    if group.reads[0] == 0:
        spread = np.zeros_like(hit)
    most = int(np.argmax(counts["rate"]))
    cold = _ratio(counts["read_requests_cold"], counts["read_requests"])[most]
    cold_writes = _ratio(counts["write_requests_cold"], counts["write_requests"])[most]
    full = bool(np.all(counts["rate"] >= 1.0))
    distinct = counts["distinct_lines"][most]
    fetched = np.divide(
        counts["backing_read_bytes"], counts["read_bytes"], out=np.zeros_like(hit), where=counts["read_bytes"] > 0
    )
    for i in range(len(hit)):
        yield CurvePoint(
            group_kind=group.kind,
            group_name=group.name,
            window="all",
            policy=engine.policy,
            admission=request.admission.name,
            method="simulation" if full else "minisim",
            line_bytes=line,
            fetch_bytes=request.fetch_bytes or line,
            size_bytes=int(counts["size_lines"][i]) * line,
            flash_bytes=flash_lines(engine.policy, int(counts["size_lines"][i])) * line,
            read_requests=group.reads[0],
            write_requests=group.writes[0],
            read_bytes=group.reads[1],
            write_bytes=group.writes[1],
            working_set_bytes=round(float(distinct) * line),
            read_hit_ratio=float(hit[i]),
            read_hit_ratio_low=float(max(0.0, hit[i] - spread[i])),
            read_hit_ratio_high=float(min(1.0, hit[i] + spread[i])),
            read_byte_hit_ratio=float(_ratio(counts["read_bytes_hit"], counts["read_bytes"])[i]),
            write_hit_ratio=float(_ratio(counts["write_requests_hit"], counts["write_requests"])[i]),
            write_byte_hit_ratio=float(_ratio(counts["write_bytes_hit"], counts["write_bytes"])[i]),
            cold_read_ratio=float(cold),
            cold_write_ratio=float(cold_writes),
            fetch_amplification=float(fetched[i]) if group.reads[1] else None,
            write_gap_ratio=_write_gap_ratio(group, line, request),
            flash_write_bytes=float(counts["flash_write_bytes"][i]),
            write_budget_bytes_per_day=request.admission.write_budget_bytes_per_day,
            duration_s=report.duration_s,
            # A size that was simulated in full is exact beside others that were not; the curve is called by the rest.
            sampled_lines=None if full else int(counts["sampled_lines"][i]),
        )


def _window_points(second: _core.EnginePass, engine: _Engine, job: _Job) -> Iterator[CurvePoint]:
    request, report, window_ns = job.request, job.report, job.window_ns
    group, line = engine.group, engine.line_bytes
    totals, counts = second.results(engine.number), second.windows(engine.number)
    hit = _ratio(counts["read_requests_hit"], counts["read_requests"])
    cold = _ratio(counts["read_requests_cold"], counts["read_requests"])
    byte_hit = _ratio(counts["read_bytes_hit"], counts["read_bytes"])
    write_hit = _ratio(counts["write_requests_hit"], counts["write_requests"])
    write_byte_hit = _ratio(counts["write_bytes_hit"], counts["write_bytes"])
    cold_writes = _ratio(counts["write_requests_cold"], counts["write_requests"])
    full = bool(np.all(totals["rate"] >= 1.0))
    for i, w in np.ndindex(*hit.shape):
        read_requests, write_requests = float(counts["read_requests"][i, w]), float(counts["write_requests"][i, w])
        reads, written = float(counts["read_bytes"][i, w]), float(counts["write_bytes"][i, w])
        if read_requests + write_requests <= 0:
            continue
        known = totals["rate"][i] >= 1.0
        yield CurvePoint(
            group_kind=group.kind,
            group_name=group.name,
            window=str(w),
            policy=engine.policy,
            admission=request.admission.name,
            method="simulation" if full else "minisim",
            line_bytes=line,
            fetch_bytes=request.fetch_bytes or line,
            size_bytes=int(totals["size_lines"][i]) * line,
            flash_bytes=flash_lines(engine.policy, int(totals["size_lines"][i])) * line,
            read_requests=round(read_requests),
            write_requests=round(write_requests),
            read_bytes=round(reads),
            write_bytes=round(written),
            working_set_bytes=round(float(totals["distinct_lines"][i]) * line),
            read_hit_ratio=float(hit[i, w]),
            # The error of a window of a sample is not estimated.
            read_hit_ratio_low=float(hit[i, w]) if known else 0.0,
            read_hit_ratio_high=float(hit[i, w]) if known else 1.0,
            read_byte_hit_ratio=float(byte_hit[i, w]),
            write_hit_ratio=float(write_hit[i, w]),
            write_byte_hit_ratio=float(write_byte_hit[i, w]),
            cold_read_ratio=float(cold[i, w]),
            cold_write_ratio=float(cold_writes[i, w]),
            fetch_amplification=float(counts["backing_read_bytes"][i, w] / reads) if reads else None,
            # The first pass does not know windows.
            write_gap_ratio=None,
            flash_write_bytes=float(counts["flash_write_bytes"][i, w]),
            write_budget_bytes_per_day=request.admission.write_budget_bytes_per_day,
            duration_s=min(window_ns / 1e9, max(0.0, report.duration_s - w * window_ns / 1e9)),
            sampled_lines=None if full else int(totals["sampled_lines"][i]),
        )
