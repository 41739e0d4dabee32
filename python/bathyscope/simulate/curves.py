"""Miss-ratio curves of traces in memory and of files: stack distances for LRU, simulation for other policies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from bathyscope import _core
from bathyscope.errors import AnalysisError, ParseError, UsageError
from bathyscope.simulate.arrays import Requests, chunks, one_key_array
from bathyscope.spec.curves import (
    DEFAULT_SAMPLES,
    CurveOptions,
    FilesOptions,
    Ops,
    ProfileOptions,
    SimulationOptions,
    Unit,
)
from bathyscope.spec.values import checked

Estimate = Literal["exact", "raw", "adjusted"]
Floats = npt.NDArray[np.float64]
Sizes = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True, eq=False)
class MissRatioCurve:
    """A miss-ratio curve. All arrays have one element for each size.

    `miss_ratio` is the estimate to use, `estimate` says which one it is: `exact`, `raw` (sampled misses over sampled
    references) or `adjusted` (sampled misses over the known number of references). Both are kept. `stderr` is the
    standard error of `miss_ratio` by the disagreement of eight replicates of the sample, 0 when exact and NaN where it
    is not estimated: for requests and bytes of a sample and for a miniature simulation. `cold_miss_ratio` is the part
    of compulsory (cold) misses, which no size avoids.
    """

    sizes_lines: Sizes
    sizes_bytes: Sizes
    miss_ratio: Floats
    miss_ratio_raw: Floats
    miss_ratio_adjusted: Floats
    stderr: Floats
    cold_miss_ratio: float
    estimate: Estimate
    policy: str
    unit: Unit
    ops: Ops
    line_bytes: int
    total: float

    @property
    def hit_ratio(self) -> Floats:
        """One minus the miss ratio, shape (sizes,)."""
        hit_ratio: Floats = 1.0 - self.miss_ratio
        return hit_ratio

    def band(self, sigmas: float = 2.0) -> tuple[Floats, Floats]:
        """Lower and upper bound of the miss ratio, `sigmas` standard errors away, within 0..1."""
        if isinstance(sigmas, bool) or not isinstance(sigmas, int | float) or not 0 <= sigmas < np.inf:
            raise UsageError(f"sigmas must be a number of at least 0 (got {sigmas!r})")
        spread = sigmas * self.stderr
        return np.clip(self.miss_ratio - spread, 0.0, 1.0), np.clip(self.miss_ratio + spread, 0.0, 1.0)


def _curve_of(core: Any, sizes: Sizes, line_bytes: int, policy: str, options: CurveOptions) -> MissRatioCurve:
    names = ("miss_ratio", "miss_ratio_raw", "miss_ratio_adjusted", "stderr", "cold_miss_ratio", "estimate", "total")
    return MissRatioCurve(
        sizes_lines=sizes,
        sizes_bytes=sizes * np.uint64(line_bytes),
        policy=policy,
        unit=options.unit,
        ops=options.ops,
        line_bytes=line_bytes,
        **{name: core[name] for name in names},
    )


class Profile:
    """The LRU stack distances of one stream: after one pass it answers for every cache size, unit and direction.

    Memory: exact, about 100 bytes a distinct line; sampled, a few MB whatever the trace.
    """

    def __init__(self, core: _core.Profile) -> None:
        self._core = core

    @property
    def line_bytes(self) -> int:
        """Bytes of a cache line."""
        return self._core.line_bytes

    @property
    def distinct_lines(self) -> float:
        """Distinct lines touched (the working set); an estimate unless exact."""
        return self._core.distinct_lines

    @property
    def rate(self) -> float:
        """Share of the lines that is sampled now, 1 when exact."""
        return self._core.rate

    @property
    def memory_bytes(self) -> int:
        """Bytes that the profile holds."""
        return self._core.memory_bytes

    @property
    def exact(self) -> bool:
        """Whether every line is tracked."""
        return self._core.exact

    def totals(self, ops: Ops = "all") -> dict[Unit, int]:
        """References to lines, requests and bytes seen, sampled or not."""
        lines, requests, byte_count = self._core.totals(checked(CurveOptions, ops=ops).ops)
        return {"lines": lines, "requests": requests, "bytes": byte_count}

    def add(self, trace: Any) -> None:
        """Add what follows in time. Raises `UsageError` when `trace` is not one of the forms of `bathyscope.mrc`."""
        for chunk in chunks(trace):
            try:
                if isinstance(chunk, Requests):
                    self._core.add_requests(*chunk)
                else:
                    self._core.add_keys(chunk)
            except ValueError as error:
                raise UsageError(str(error)) from error

    def join(self, later: Profile) -> None:
        """Join the profile of the piece of trace that follows in time; both must have been made `joinable`.

        Exact and fixed-rate profiles become what one pass gives; fixed-size ones an estimate of the same error.
        Raises `UsageError` when the two do not fit.
        """
        if not isinstance(later, Profile):
            raise UsageError(f"later must be a Profile (got a {type(later).__name__})")
        try:
            self._core.join(later._core)
        except ValueError as error:
            raise UsageError(str(error), hint="profile the pieces with joinable=True and the same options") from error

    def curve(
        self, sizes_bytes: npt.ArrayLike | None = None, *, unit: Unit = "lines", ops: Ops = "all"
    ) -> MissRatioCurve:
        """The LRU miss-ratio curve.

        `sizes_bytes`: cache sizes, shape (n,), rounded down to lines; without them 1..100 % of the working set.
        `unit`: what a miss counts by. A request hits when all its lines do, which a sample of single lines does not
        show: for requests profile exactly, or with `group_bytes` several times the length of the requests. A request
        that crosses the end of a group counts there by the share of its lines.
        Raises `UsageError` for requests of a sample of single lines, `AnalysisError` when nothing of the kind was
        profiled.
        """
        options = checked(CurveOptions, unit=unit, ops=ops)
        if unit == "requests" and not self.exact and self._core.group_bits == 0:
            raise UsageError(
                "a sample of single lines does not show whether whole requests hit",
                hint="profile with group_bytes, several times as long as the requests, or with samples=None",
            )
        if self.totals(ops)[unit] == 0:
            raise AnalysisError(
                f"no {unit} of ops {ops!r} were profiled", hint="line numbers have no requests, bytes or writes"
            )
        sizes = sizes_lines(sizes_bytes, self.line_bytes, self.distinct_lines)
        return _curve_of(self._core.curve(sizes, unit, ops), sizes, self.line_bytes, "lru", options)

    def fetch_amplification(self, sizes_bytes: npt.ArrayLike | None = None) -> Floats:
        """Bytes read from the backing for each byte that clients read, shape (n,), when misses fetch whole lines.

        Raises `AnalysisError` when no bytes were read; line numbers have none.
        """
        read_bytes = self.totals("read")["bytes"]
        if read_bytes == 0:
            raise AnalysisError("no bytes of reads were profiled", hint="line numbers have no bytes; give requests")
        amplification: Floats = self._fetched_bytes(sizes_bytes) / read_bytes
        return amplification

    def flash_write_bytes(self, sizes_bytes: npt.ArrayLike | None = None) -> Floats:
        """Bytes written to flash over the trace, shape (n,): lines filled by read misses and everything written.

        For LRU that admits all.
        """
        written: Floats = self._fetched_bytes(sizes_bytes) + float(self.totals("write")["bytes"])
        return written

    def _fetched_bytes(self, sizes_bytes: npt.ArrayLike | None) -> Floats:
        if self.totals("read")["lines"] == 0:
            return np.zeros(len(sizes_lines(sizes_bytes, self.line_bytes, self.distinct_lines)))
        misses = self.curve(sizes_bytes, unit="lines", ops="read")
        fetched: Floats = misses.miss_ratio * misses.total * self.line_bytes
        return fetched


@dataclass(frozen=True, slots=True)
class GroupProfile:
    """The profile of one group and line size. `group` is its number, `name` its name where the trace has names."""

    line_bytes: int
    group: int
    name: str | None
    profile: Profile


@dataclass(frozen=True, slots=True)
class TraceProfiles:
    """What one pass over trace files gave. `report` counts events, bad records (the first ten in words) and times."""

    profiles: tuple[GroupProfile, ...]
    report: dict[str, Any]


def profile_trace(trace: Any, options: ProfileOptions) -> Profile:
    """Profile a trace in memory. Several threads are used when it comes in one chunk. Raises UsageError."""
    given: dict[str, Any] = {
        **options.sampling(),
        "line_bytes": options.line_bytes,
        "group_bits": options.group_bits,
        "joinable": options.joinable,
    }
    pieces = list(chunks(trace))
    first = pieces[0] if pieces else np.empty(0, np.uint64)
    threads = options.threads if len(pieces) == 1 else 1
    try:
        if isinstance(first, Requests):
            core = _core.profile_requests(*first, threads=threads, **given)
        else:
            core = _core.profile_keys(first, threads=threads, **given)
    except ValueError as error:
        raise UsageError(str(error)) from error
    made = Profile(core)
    for chunk in pieces[1:]:
        made.add(chunk)
    return made


def profile_files(
    paths: Sequence[str], options: FilesOptions, progress: Callable[[int, int], None] | None
) -> TraceProfiles:
    """Stream trace files through profiles of every line size and group. Raises ParseError."""
    is_whole = options.group_by == "all"
    try:
        core = _core.ProfilePass(
            list(options.line_bytes),
            group_by=options.group_by,
            node_of_osd=options.node_of_osd,  # type: ignore[arg-type]
            group_bytes=options.group_bytes,
            whole=is_whole,
            **options.sampling(),
        )
        core.read_traces(
            list(paths),
            format=options.trace_format,
            threads=options.threads,
            skip_bad_records=options.skip_bad_records,
            progress=progress,
        )
    except (ValueError, OSError) as error:
        raise ParseError(str(error), hint="name the format, or skip bad records") from error
    report = dict(core.report())
    if is_whole:
        profiles = [GroupProfile(line, 0, None, Profile(profile)) for line, profile in core.take_whole_profiles()]
    else:
        taken = core.take_group_profiles()
        profiles = [GroupProfile(line, group, name, Profile(profile)) for line, group, name, profile in taken]
    return TraceProfiles(tuple(profiles), report)


def simulate_lines(trace: Any, sizes_bytes: npt.ArrayLike | None, options: SimulationOptions) -> MissRatioCurve:
    """Simulate a policy over line numbers. Raises UsageError, and AnalysisError for an empty trace."""
    keys, line = one_key_array(trace), options.line_bytes
    if len(keys) == 0:
        raise AnalysisError("the trace is empty")
    distinct = 0.0 if sizes_bytes is not None else _core.profile_keys(keys, max_lines=DEFAULT_SAMPLES).distinct_lines
    sizes = sizes_lines(sizes_bytes, line, distinct)
    if len(sizes) and int(sizes.max()) > _core.MAX_CACHE_LINES:
        raise UsageError(
            f"sizes_bytes must be at most 2^30 lines of {line} bytes (got {int(sizes.max()) * line})",
            hint="simulate larger lines, or use policy lru, which takes any size",
        )
    given = options.model_dump(include={"line_bytes", "rate", "min_lines", "salt", "threads"})
    core = _core.simulate_keys(keys, options.policy, sizes, **given)
    return _curve_of(core, sizes, line, options.policy, CurveOptions())


def sizes_lines(sizes_bytes: npt.ArrayLike | None, line_bytes: int, distinct_lines: float) -> Sizes:
    """Return cache sizes in lines, shape (n,); without `sizes_bytes` 1..100 % of the distinct lines."""
    if sizes_bytes is None:
        lines = np.round(np.arange(1, 101) * distinct_lines / 100.0)
        return np.maximum(lines, 1.0).astype(np.uint64)
    try:
        sizes = np.atleast_1d(np.asarray(sizes_bytes))
    except ValueError:
        sizes = np.empty((0, 0))
    if sizes.ndim != 1 or sizes.dtype.kind not in "uif" or not ((sizes >= line_bytes) & (sizes < 2**63)).all():
        raise UsageError(f"sizes_bytes must be a list of sizes of at least one line of {line_bytes} bytes")
    result: Sizes = (sizes // line_bytes).astype(np.uint64)
    return result
