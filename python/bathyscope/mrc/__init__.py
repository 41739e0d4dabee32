"""Miss-ratio curves: how often a cache of each size would miss.

    import bathyscope.mrc as mrc

    curve = mrc.mrc(line_numbers)                       # LRU, 32 Ki sampled lines, sizes 1..100 % of the working set
    curve = mrc.mrc(line_numbers, samples=None)         # LRU, exact
    curve = mrc.mrc(line_numbers, policy="s3-fifo")     # miniature simulation of the policy that ships
    profile = mrc.profile(requests_table)               # one pass, then curves by unit and direction
    many = mrc.profile_traces(["osd.0.log"], line_bytes=[4096, 65536], group_by="image")

A *trace* is one of

* line numbers: a one-dimensional NumPy array or Arrow array or chunked array of integers;
* requests: an Arrow table, record batch or mapping of arrays with `offset_bytes` (uint64 or int64) and `length_bytes`
  (uint32) and, if there are any, `op` (uint8: 0 read, 1 write, others are left out) and `volume` (uint32).

Arrays of 64-bit line numbers and of the column types named above are read in place, without a copy; other integer
types are converted chunk by chunk.

Sources: exact distances after Mattson et al. (IBM Systems Journal, 1970); sampling after Waldspurger et al. (SHARDS,
FAST 2015), with samples stratified over neighbouring lines (Owen, 1995); joining after Niu et al. (PARDA, IPDPS 2012);
miniature simulation after Waldspurger et al. (USENIX ATC 2017).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bathyscope import _core
from bathyscope.errors import AnalysisError, ParseError, UsageError
from bathyscope.mrc import options, regions
from bathyscope.mrc.arrays import Requests, chunks, one_key_array, request_bytes_p99
from bathyscope.mrc.options import Sizes, sizes_lines

Unit = Literal["lines", "requests", "bytes"]
Ops = Literal["all", "read", "write"]
Estimate = Literal["exact", "raw", "adjusted"]
Floats = npt.NDArray[np.float64]
GroupBy = Literal["all", "image", "osd", "pool", "node"]

DEFAULT_SAMPLES = 32_768
"""Sampled lines of a curve: mean absolute error at most 0.003 on the traces that it was checked with."""

MIN_MINIATURE_LINES = 500
"""Smallest miniature cache: smaller ones err by several points."""


@dataclass(frozen=True, slots=True, eq=False)
class MissRatioCurve:
    """A miss-ratio curve. All arrays have one element for each size.

    `miss_ratio` is the estimate to use, `estimate` says which one it is: `exact`, `raw` (sampled misses over sampled
    references) or `adjusted` (sampled misses over the known number of references). Both are kept. `stderr` is the
    standard error of `miss_ratio` by the disagreement of eight sub-samples, 0 when exact and NaN where it is not
    estimated: for requests and bytes of a sample and for a miniature simulation. `cold_miss_ratio` is the part of first
    touches, which no size avoids.
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
        spread = options.number("sigmas", sigmas) * self.stderr
        return np.clip(self.miss_ratio - spread, 0.0, 1.0), np.clip(self.miss_ratio + spread, 0.0, 1.0)

    def to_arrow(self) -> pa.Table:
        """One row a size: size_bytes, miss_ratio, miss_ratio_raw, miss_ratio_adjusted, stderr."""
        return pa.table(
            {
                "size_bytes": self.sizes_bytes,
                "miss_ratio": self.miss_ratio,
                "miss_ratio_raw": self.miss_ratio_raw,
                "miss_ratio_adjusted": self.miss_ratio_adjusted,
                "stderr": self.stderr,
            }
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
        lines, requests, byte_count = self._core.totals(options.one_of("ops", ops, get_args(Ops)))
        return {"lines": lines, "requests": requests, "bytes": byte_count}

    def add(self, trace: Any) -> None:
        """Add what follows in time. Raises `UsageError` when `trace` is not one of the forms of this module."""
        for chunk in chunks(trace):
            try:
                if isinstance(chunk, Requests):
                    self._core.add_requests(*chunk.columns())
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
            raise UsageError(f"later is a {type(later).__name__}; it must be a Profile")
        try:
            self._core.join(later._core)
        except ValueError as error:
            raise UsageError(str(error), hint="profile the pieces with joinable=True and the same options") from error

    def curve(
        self, sizes_bytes: npt.ArrayLike | None = None, *, unit: Unit = "lines", ops: Ops = "all"
    ) -> MissRatioCurve:
        """The LRU miss-ratio curve.

        `sizes_bytes`: cache sizes, shape (n,), rounded down to lines; without them 1..100 % of the working set.
        `unit`: what a miss counts by. A request hits when all its lines do, which a sample of single lines cannot tell:
        for requests profile exactly, or with `group_bytes` several times the length of the requests. A request that
        the end of a group cuts counts there by the share of its lines.
        Raises `UsageError` for requests of a sample of single lines, `AnalysisError` when nothing of the kind was
        profiled.
        """
        options.one_of("unit", unit, get_args(Unit))
        if unit == "requests" and not self.exact and self._core.group_bits == 0:
            raise UsageError(
                "a sample of single lines cannot tell whether whole requests hit",
                hint="profile with group_bytes, several times as long as the requests, or with samples=None",
            )
        total = self.totals(ops)[unit]
        if total == 0:
            raise AnalysisError(
                f"no {unit} of ops {ops!r} were profiled", hint="line numbers have no requests, bytes or writes"
            )
        sizes = self._sizes(sizes_bytes)
        curve = self._core.curve(sizes, unit, ops)
        return MissRatioCurve(
            sizes_lines=sizes,
            sizes_bytes=sizes * np.uint64(self.line_bytes),
            miss_ratio=curve["miss_ratio"],
            miss_ratio_raw=curve["miss_ratio_raw"],
            miss_ratio_adjusted=curve["miss_ratio_adjusted"],
            stderr=curve["stderr"],
            cold_miss_ratio=curve["cold_miss_ratio"],
            estimate=curve["estimate"],
            policy="lru",
            unit=unit,
            ops=ops,
            line_bytes=self.line_bytes,
            total=curve["total"],
        )

    def fetch_amplification(self, sizes_bytes: npt.ArrayLike | None = None) -> Floats:
        """Bytes read from the backing for each byte that clients read, shape (n,), when misses fetch whole lines.

        Raises `AnalysisError` when no bytes were read; line numbers have none.
        """
        read_bytes = self.totals("read")["bytes"]
        if read_bytes == 0:
            raise AnalysisError("no bytes of reads were profiled", hint="line numbers have no bytes; give requests")
        misses = self.curve(sizes_bytes, unit="lines", ops="read")
        fetched = misses.miss_ratio * misses.total * self.line_bytes
        amplification: Floats = fetched / read_bytes
        return amplification

    def flash_write_bytes(self, sizes_bytes: npt.ArrayLike | None = None) -> Floats:
        """Bytes written to flash over the trace, shape (n,): lines filled by read misses and everything written.

        For LRU that admits all.
        """
        written = float(self.totals("write")["bytes"])
        if self.totals("read")["lines"] == 0:
            return np.full(len(self._sizes(sizes_bytes)), written)
        misses = self.curve(sizes_bytes, unit="lines", ops="read")
        filled: Floats = misses.miss_ratio * misses.total * self.line_bytes + written
        return filled

    def _sizes(self, sizes_bytes: npt.ArrayLike | None) -> Sizes:
        return sizes_lines(sizes_bytes, self.line_bytes, self.distinct_lines)


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


def mrc(
    trace: Any,
    *,
    policy: str = "lru",
    line_bytes: int = 4096,
    sizes_bytes: npt.ArrayLike | None = None,
    samples: int | None = DEFAULT_SAMPLES,
    unit: Unit = "lines",
    ops: Ops = "all",
    salt: int = 0,
    threads: int = 1,
) -> MissRatioCurve:
    """The miss-ratio curve of a policy over a trace in memory.

    `sizes_bytes`: cache sizes, shape (n,); without them 1..100 % of the working set. `samples`: lines to sample, `None`
    for exact LRU or a full simulation. For `unit` "requests" whole regions of the trace are sampled, at least 131,072
    lines: see `bathyscope.mrc.regions` for the error. LRU comes from one pass of stack distances; other policies from a
    simulation of the policy itself, over lines of any direction (`unit` "lines", `ops` "all").
    Raises `UsageError` for a trace, policy or option that cannot be, `AnalysisError` for an empty trace.
    """
    options.policy_of(policy)
    options.one_of("unit", unit, get_args(Unit))
    options.one_of("ops", ops, get_args(Ops))
    if policy == "lru":
        region = None
        if unit == "requests" and samples is not None:
            region = regions.region_bytes(request_bytes_p99(trace), options.line_of(line_bytes))
            least = options.LEAST_GROUPS * region // line_bytes
            samples = max(options.samples_of(samples) or 0, regions.MOST_SAMPLES, least)
        made = profile(trace, line_bytes=line_bytes, samples=samples, salt=salt, group_bytes=region, threads=threads)
        return made.curve(sizes_bytes, unit=unit, ops=ops)
    if unit != "lines" or ops != "all":
        raise UsageError(f"a simulation of {policy} counts lines of all ops", hint="use unit='lines' and ops='all'")
    rate = None
    if samples is not None:
        distinct = profile(trace, line_bytes=line_bytes, samples=samples, salt=salt, threads=threads).distinct_lines
        rate = min(1.0, samples / max(distinct, 1.0))
    return simulate(
        trace, policy, line_bytes=line_bytes, sizes_bytes=sizes_bytes, rate=rate, salt=salt, threads=threads
    )


def profile(
    trace: Any,
    *,
    line_bytes: int = 4096,
    samples: int | None = DEFAULT_SAMPLES,
    rate: float | None = None,
    salt: int = 0,
    group_bytes: int | None = None,
    threads: int = 1,
    joinable: bool = False,
) -> Profile:
    """Profile a trace in memory.

    `samples`: lines that are tracked at most, `None` for all. `rate`: a fixed share of the lines instead, in (0, 1].
    `salt`: selects the sample. `group_bytes`: sample neighbouring lines together in groups of this size, which curves
    by requests need, and of which `samples` must hold 64; for lines and bytes the default, samples spread evenly over
    neighbours, is more accurate on every trace that was measured. `threads`: used when the trace comes in one chunk;
    the result is that of one thread.
    Raises `UsageError`.
    """
    line_bytes = options.line_of(line_bytes)
    given: dict[str, Any] = {
        "line_bytes": line_bytes,
        **_sampling(samples, rate),
        "salt": options.salt_of(salt),
        "group_bits": options.group_bits_of(group_bytes, line_bytes),
        "joinable": options.flag("joinable", joinable),
    }
    options.check_groups(given["max_lines"], group_bytes, line_bytes)
    threads = options.threads_of(threads)
    pieces = list(chunks(trace))
    first = pieces[0] if pieces else np.empty(0, np.uint64)
    workers = threads if len(pieces) == 1 else 1
    try:
        if isinstance(first, Requests):
            core = _core.profile_requests(*first.columns(), threads=workers, **given)
        else:
            core = _core.profile_keys(first, threads=workers, **given)
    except ValueError as error:
        raise UsageError(str(error)) from error
    made = Profile(core)
    for chunk in pieces[1:]:
        made.add(chunk)
    return made


def profile_traces(
    paths: Sequence[str | Path],
    *,
    line_bytes: Sequence[int] = (4096, 16_384, 65_536, 262_144),
    group_by: GroupBy = "all",
    node_of_osd: Sequence[int] | None = None,
    trace_format: str | None = None,
    samples: int | None = DEFAULT_SAMPLES,
    rate: float | None = None,
    salt: int = 0,
    group_bytes: int | None = None,
    threads: int = 1,
    skip_bad_records: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> TraceProfiles:
    """Stream trace files, in the order given, once through profiles of every line size and group.

    Memory is bounded by `samples` for each profile, whatever the length of the trace. `node_of_osd[i]` is the node of
    OSD i, for `group_by="node"`. `progress(events, bytes_read)` is called about ten times a second; what it raises ends
    the pass. `trace_format`: a name of `trace_formats()`, otherwise the content tells it. `group_bytes`: as for
    `profile`, and the same for every line size.
    Raises `ParseError` at a bad record (unless skipped) or an unknown format, `UsageError` for an option or file that
    cannot be.
    """
    files = _files("paths", paths)
    if trace_format is not None:
        options.one_of("trace_format", trace_format, trace_formats())
    options.one_of("group_by", group_by, get_args(GroupBy))
    if group_by == "node" and node_of_osd is None:
        raise UsageError("grouping by node needs the node of each OSD", hint="pass node_of_osd")
    if progress is not None and not callable(progress):
        raise UsageError(f"progress is a {type(progress).__name__}; it must be a function of events and bytes")
    lines = options.lines_of(line_bytes)
    given: dict[str, Any] = {
        "line_bytes": lines,
        "format": trace_format,
        "group_by": group_by,
        "node_of_osd": options.nodes_of(node_of_osd),
        **_sampling(samples, rate),
        "salt": options.salt_of(salt),
        "group_bytes": group_bytes,
        "threads": options.threads_of(threads),
        "skip_bad_records": options.flag("skip_bad_records", skip_bad_records),
        "progress": progress,
    }
    # The smallest lines make the largest groups.
    options.check_groups(given["max_lines"], group_bytes, min(lines))
    try:
        done = _core.profile_traces(files, **given)
    except (ValueError, OSError) as error:
        raise ParseError(str(error), hint="name the format, or skip bad records") from error
    report = dict(done.report())
    found = tuple(GroupProfile(line, group, name, Profile(core)) for line, group, name, core in done.take_profiles())
    return TraceProfiles(found, report)


def simulate(
    trace: Any,
    policy: str,
    *,
    line_bytes: int = 4096,
    sizes_bytes: npt.ArrayLike | None = None,
    rate: float | None = None,
    min_lines: int = MIN_MINIATURE_LINES,
    salt: int = 0,
    threads: int = 1,
) -> MissRatioCurve:
    """Simulate a policy of `policy_names()` over line numbers at several sizes; the code is that of the cache itself.

    `rate`: `None` simulates every reference; a number in (0, 1] simulates miniature caches over that share of the
    lines, raised for small sizes so that each has `min_lines` (at least 500). Sizes are spread over `threads`.
    Raises `UsageError`, and `AnalysisError` for an empty trace.
    """
    options.policy_of(policy)
    line_bytes = options.line_of(line_bytes)
    given: dict[str, Any] = {
        "rate": options.rate_of(rate),
        "min_lines": options.whole_number("min_lines", min_lines, 1, options.LARGEST_CACHE_LINES),
        "salt": options.salt_of(salt),
        "threads": options.threads_of(threads),
    }
    keys = one_key_array(trace)
    if len(keys) == 0:
        raise AnalysisError("the trace is empty")
    if sizes_bytes is None:
        distinct = _core.profile_keys(keys, max_lines=DEFAULT_SAMPLES).distinct_lines
        sizes = sizes_lines(None, line_bytes, distinct)
    else:
        sizes = sizes_lines(sizes_bytes, line_bytes, 0.0)
    options.simulated_sizes(sizes, line_bytes)
    try:
        curve = _core.simulate_keys(keys, policy, sizes, **given)
    except ValueError as error:
        raise UsageError(str(error)) from error
    unknown = 0.0 if curve["estimate"] == "exact" else np.nan
    return MissRatioCurve(
        sizes_lines=sizes,
        sizes_bytes=sizes * np.uint64(line_bytes),
        miss_ratio=curve["miss_ratio"],
        miss_ratio_raw=curve["miss_ratio_raw"],
        miss_ratio_adjusted=curve["miss_ratio_adjusted"],
        stderr=np.full(len(sizes), unknown),
        cold_miss_ratio=curve["cold_miss_ratio"],
        estimate=curve["estimate"],
        policy=policy,
        unit="lines",
        ops="all",
        line_bytes=line_bytes,
        total=curve["total"],
    )


def policy_names() -> list[str]:
    """The names of the eviction policies."""
    return _core.policy_names()


def trace_formats() -> list[str]:
    """The names of the trace formats that `profile_traces` reads."""
    return _core.trace_formats()


def _sampling(samples: int | None, rate: float | None) -> dict[str, Any]:
    """Return the two options of the core, of which one at most is set; a rate goes before a number of samples."""
    known_samples, known_rate = options.samples_of(samples), options.rate_of(rate)
    return {"rate": known_rate, "max_lines": None if known_rate is not None else known_samples}


def _files(name: str, paths: Any) -> list[str]:
    """Return paths of files as text. Raises UsageError for what is no list of them, and for what is no file."""
    if isinstance(paths, Path):
        raise UsageError(f"{name} is one path; it must be a list of them")
    files = []
    for path in options.listed(name, paths):
        if not isinstance(path, str | PathLike) or not Path(path).is_file():
            raise UsageError(f"{name}: no trace file {path}")
        files.append(str(path))
    return files


class _CallableModule(ModuleType):
    """Lets `bathyscope.mrc(trace)` mean `bathyscope.mrc.mrc(trace)`."""

    def __call__(self, trace: Any, **options: Any) -> MissRatioCurve:
        return mrc(trace, **options)


sys.modules[__name__].__class__ = _CallableModule
