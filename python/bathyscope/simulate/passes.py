"""Passes over a block trace: the first profiles it, the others run the cache engine at the sizes that are wanted.

The profile measures working sets (stack distances, exact or of a fixed-size sample). The engine is simulated with its
policy, admission and line handling, for every group, line size and policy. Small traces are simulated in full. Of
large ones a miniature is simulated (see `sampling`); the disagreement of eight parts of the sample gives the band.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bathyscope import _core
from bathyscope.errors import AnalysisError, UsageError
from bathyscope.records import CurvePoint, schema_of
from bathyscope.records.size import TraceSummary
from bathyscope.simulate import grid, points, sampling
from bathyscope.simulate.points import Group
from bathyscope.simulate.trace import UNKNOWN, BlockTrace, Progress
from bathyscope.spec.curves import DEFAULT_SAMPLES
from bathyscope.spec.size import CurveKey, Pass, SizeSpec, WantedSizes
from bathyscope.units import format_seconds

LARGEST_GROUPS = 32
"""Groups with a curve of their own; the rest shares one cache, "(others)"."""

MOST_PROFILED = 256
"""Groups that are profiled in the first pass, a few megabytes each. Of more, the largest are known after it, and
another pass profiles these and the rest together."""

_COLUMNS = {
    "image": ("image", "volume, image, disk, vm or device"),
    "osd": ("OSD", "osd"),
    "node": ("OSD", "osd, and --nodes the OSDs of each node"),
    "pool": ("pool", "pool or pool_name"),
}
MINUTE_S = 60

WINDOW_SECONDS = (60, 300, 600, 900, 1800, 3600, 6 * 3600, 86_400, 7 * 86_400)
"""Lengths that an automatic window may have: the shortest that makes at most 24."""


@dataclasses.dataclass(frozen=True, slots=True)
class Workload:
    """A trace that was profiled, and the question that it was profiled for."""

    trace: BlockTrace
    spec: SizeSpec
    summary: TraceSummary
    groups: tuple[Group, ...]


def profile(trace: BlockTrace, spec: SizeSpec, progress: Progress | None = None) -> Workload:
    """Return the trace with its groups and working sets.

    Raises AnalysisError for a trace without reads and writes, ParseError for one that cannot be read, and UsageError
    for a write budget or windows that do not fit the time of the trace.
    """
    samples = None if spec.exact else (spec.samples or DEFAULT_SAMPLES)
    # How much of their units the writes cover is counted, also of those of fetch sizes that may be tried.
    fetched = spec.line_bytes if spec.fetch_bytes is None else (spec.fetch_bytes,)
    units = {spec.unit_bytes(line, fetch) for line in spec.line_bytes for fetch in fetched if fetch <= line}
    sizes = sorted({*spec.line_bytes, *units})

    def profiled(**options: Any) -> _core.ProfilePass:
        core = _core.ProfilePass(
            sizes, group_by=trace.core_by, node_of_osd=trace.node_of_osd, max_lines=samples, salt=spec.salt, **options
        )
        trace.feed(core, threads=spec.threads, progress=progress)
        return core

    core = profiled(most_groups=MOST_PROFILED)
    if trace.refit(core):
        core = profiled(most_groups=MOST_PROFILED)
    numbers, reads, writes = core.group_requests()
    largest, rest = core, 0
    if len(numbers) > MOST_PROFILED:
        chosen = numbers[np.lexsort((numbers, -writes.astype(np.int64), -reads.astype(np.int64)))][:LARGEST_GROUPS]
        largest, rest = profiled(whole=False, chosen=set(chosen.tolist())), len(numbers) - len(chosen)
    workload = Workload(trace, spec, trace.summary(core), tuple(_groups(trace, core, largest, rest)))
    if not workload.groups:
        raise AnalysisError("the trace holds no reads and writes", hint="is it in another format? --format names it")
    _window_ns(workload)
    if spec.admission.write_budget_bytes_per_day is not None and workload.summary.duration_s <= 0:
        raise UsageError(
            f"--admission {spec.admission.name}: a budget per day needs a trace with times",
            hint="use another admission, 2-hit, or a trace with times",
        )
    return workload


def run(wanted: Pass, workload: Workload, progress: Progress | None = None) -> pa.Table:
    """Return the CurvePoint rows of one pass; none when a sample is too small for all of the sizes.

    Raises AnalysisError for a trace with more lines than can be simulated, ParseError for one that cannot be read.
    """
    trace = workload.trace
    core = _core.EnginePass(group_by=trace.core_by, node_of_osd=trace.node_of_osd)
    curves = [curve for curve in _curves(wanted, workload) if len(curve.sizes_lines)]
    for curve in curves:
        _add(core, curve, workload)
    tables = [schema_of(CurvePoint).empty_table()]
    if curves:
        try:
            trace.feed(core, threads=workload.spec.threads, progress=progress)
        except OverflowError as error:
            raise AnalysisError(str(error), hint="simulate larger lines, or a sample: leave out --exact") from error
    for number, curve in enumerate(curves):
        results = core.results(number)
        tables.append(points.of_trace(results, curve))
        if curve.window_ns:
            tables.append(points.of_windows(results, core.windows(number), curve, workload.summary.duration_s))
    return pa.concat_tables(tables)


def _curves(wanted: Pass, workload: Workload) -> Iterable[points.Curve]:
    spec, window_ns = workload.spec, _window_ns(workload)
    groups = {(group.kind, group.name): group for group in workload.groups}
    if wanted.name == "grid":
        for group in workload.groups:
            for line in spec.line_bytes:
                for policy in spec.policies:
                    key = CurveKey(group.kind, group.name, line, policy)
                    lines, largest = _budget_lines(policy, line, spec), max(spec.line_bytes)
                    size = None if lines is None else lines * line
                    sizes = grid.size_grid(group.working_set_bytes, group.lines[line], line, largest, size)
                    yield _curve(WantedSizes(key, (), spec.admission), group, sizes, workload, window_ns)
        return
    prefix = ""
    if wanted.name == "peak":
        prefix, window_ns = "peak ", _peak_window_ns(workload.summary.duration_s)
    for sizes_wanted in wanted.wanted:
        sizes = np.unique(np.asarray(sizes_wanted.sizes_bytes, np.uint64) // np.uint64(sizes_wanted.curve.line_bytes))
        group = groups[sizes_wanted.curve.group_kind, sizes_wanted.curve.group_name]
        yield _curve(sizes_wanted, group, sizes[sizes > 0], workload, window_ns, prefix)


def _curve(  # noqa: PLR0917 - one for each part of a curve
    asked: WantedSizes,
    group: Group,
    sizes: npt.NDArray[np.uint64],
    workload: Workload,
    window_ns: int,
    window_prefix: str = "",
) -> points.Curve:
    """Return what is simulated of a curve: of a sample, the sizes that it is large enough for."""
    spec, key = workload.spec, asked.curve
    fetch_bytes = asked.fetch_bytes or spec.fetch_bytes or key.line_bytes
    unit = spec.unit_bytes(key.line_bytes, fetch_bytes)
    region = sampling.region_bytes(workload.summary.request_bytes_p99, key.line_bytes)
    rate = _rate(group, key, unit, region, spec)
    if rate is not None:
        sizes = sizes[sizes >= sampling.smallest_size_lines(group.lines[key.line_bytes], spec.samples)]
    touched_bytes = group.written[unit] * unit
    return points.Curve(
        key=key,
        group=group,
        sizes_lines=sizes,
        admission=asked.admission,
        fetch_bytes=fetch_bytes,
        unit_bytes=unit,
        rate=rate,
        region_bytes=region,
        window_ns=window_ns if group.kind == "all" else 0,
        write_gap_ratio=None
        if touched_bytes == 0 or spec.on_write == "invalidate"
        else 1.0 - group.writes[1] / touched_bytes,
        duration_s=workload.summary.duration_s,
        window_prefix=window_prefix,
        memory_bytes=spec.memory_bytes,
        cache_lines=None if group.kind == "all" else _budget_lines(key.policy, key.line_bytes, spec),
    )


def _budget_lines(policy: str, line_bytes: int, spec: SizeSpec) -> int | None:
    """Return the lines of the cache that the budget allows, which groups share; None without a budget."""
    if spec.budget_bytes is None:
        return None
    largest, memory = max(spec.line_bytes), spec.memory_bytes
    return grid.size_for_flash(policy, spec.budget_bytes, line_bytes, largest, memory) // line_bytes


def _add(core: _core.EnginePass, curve: points.Curve, workload: Workload) -> None:
    spec, summary = workload.spec, workload.summary
    try:
        core.add_engine(
            curve.key.policy,
            curve.key.line_bytes,
            curve.sizes_lines,
            group=curve.group.number,
            others=curve.group.others,
            rate=curve.rate,
            salt=spec.salt,
            fetch_bytes=curve.fetch_bytes,
            unit_bytes=curve.unit_bytes,
            break_even_bytes=spec.break_even_bytes,
            on_write=spec.on_write,
            n_hit=curve.admission.n_hit,
            stream_cutoff_bytes=curve.admission.stream_cutoff_bytes,
            is_stream_of_writes=curve.admission.is_stream_of_writes,
            write_budget_bytes_per_day=curve.admission.write_budget_bytes_per_day,
            windows=((summary.time_ns_range or (0, 0))[0], curve.window_ns) if curve.window_ns else None,
            sample_region_bytes=curve.region_bytes,
            memory_bytes=curve.memory_bytes,
            cache_lines=curve.cache_lines,
        )
    except ValueError as error:
        raise UsageError(str(error)) from error


def _rate(group: Group, key: CurveKey, unit_bytes: int, region_bytes: int, spec: SizeSpec) -> float | None:
    """Return the rate of the miniature, or None for a full simulation."""
    lines = group.lines[key.line_bytes]
    if spec.exact:
        return None
    fast = group.accesses[key.line_bytes] * len(grid.FRACTIONS) <= sampling.FULL_ACCESSES
    small = lines <= sampling.full_lines(key.line_bytes, unit_bytes, key.policy)
    if spec.samples is None and fast and small:
        return None
    rate = sampling.sample_lines(region_bytes, key.line_bytes, spec.samples) / lines
    return None if rate >= 1.0 else rate


def _window_ns(workload: Workload) -> int:
    duration_s, window_s = workload.summary.duration_s, workload.spec.window_s
    if duration_s <= 0:
        return 0
    if window_s is None:
        seconds = next((s for s in WINDOW_SECONDS if duration_s / s <= 24), WINDOW_SECONDS[-1])
        return seconds * 10**9
    if duration_s / window_s > _core.MAX_WINDOWS:
        raise UsageError(
            f"--windows must be at least {math.ceil(duration_s / _core.MAX_WINDOWS)}s, a trace of "
            f"{format_seconds(duration_s)} has no more than {_core.MAX_WINDOWS} windows (got {window_s:g}s)"
        )
    return max(1, round(window_s * 1e9))


def _peak_window_ns(duration_s: float) -> int:
    """Return the length of the windows that show the busiest minute: more than one for a trace of days."""
    return math.ceil(duration_s / _core.MAX_WINDOWS / MINUTE_S) * MINUTE_S * 10**9


def _groups(trace: BlockTrace, core: _core.ProfilePass, largest: _core.ProfilePass, unprofiled: int) -> list[Group]:
    """Return the whole trace, and then its groups by reads; the smallest join in one.

    `largest` has the profiles of groups: of all, or of some and as one of those that are `unprofiled`.
    """
    whole = dict(core.take_whole_profiles())
    if not whole:
        return []
    by_number: dict[int, dict[int, _core.Profile]] = {}
    names: dict[int, str] = {}
    for line, number, name, profile in largest.take_group_profiles():
        by_number.setdefault(number, {})[line] = profile
        if number != _core.OTHERS:
            names[number] = trace.group_name(number, name)
    if set(by_number) == {UNKNOWN}:
        raise UsageError(
            f"--by {trace.by}: the trace does not say which {_COLUMNS[trace.by][0]} a request is of",
            hint=f"a CSV needs a column {_COLUMNS[trace.by][1]}; without --by one curve is of all",
        )
    groups = [_group(trace.by, name, number, [by_number[number]]) for number, name in names.items()]
    groups.sort(key=lambda g: (-g.reads[0], -g.writes[0], g.name))
    rest = groups[LARGEST_GROUPS:]
    if unprofiled or len(rest) > 1:
        members = [by_number[g.number] for g in rest if g.number is not None] or [by_number[_core.OTHERS]]
        groups[LARGEST_GROUPS:] = [_group(trace.by, f"({unprofiled or len(rest)} others)", None, members, others=True)]
    return [_group("all", "all", None, [whole]), *groups]


def _group(
    kind: str, name: str, number: int | None, members: Sequence[dict[int, _core.Profile]], *, others: bool = False
) -> Group:
    def totals(ops: str, index: int) -> int:
        return sum(next(iter(profiles.values())).totals(ops)[index] for profiles in members)

    lines = list(members[0])
    return Group(
        kind=kind,
        name=name,
        number=number,
        others=others,
        reads=(totals("read", 1), totals("read", 2)),
        writes=(totals("write", 1), totals("write", 2)),
        lines={line: sum(profiles[line].distinct_lines for profiles in members) for line in lines},
        accesses={line: sum(profiles[line].totals("all")[0] for profiles in members) for line in lines},
        written={line: sum(profiles[line].totals("write")[0] for profiles in members) for line in lines},
    )
