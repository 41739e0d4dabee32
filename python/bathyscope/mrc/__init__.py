"""Miss-ratio curves: how often a cache of each size would miss.

    import bathyscope.mrc as mrc

    curve = mrc.mrc(line_numbers)                       # LRU, 32 Ki sampled lines, sizes 1..100 % of the working set
    curve = mrc.mrc(line_numbers, samples=None)         # LRU, exact
    curve = mrc.mrc(line_numbers, policy="s3-fifo")     # miniature simulation of the policy
    profile = mrc.profile(requests_table)               # one pass, then curves by unit and direction
    many = mrc.profile_traces(["osd.0.log"], line_bytes=[4096, 65536], group_by="image")

A *trace* is one of

* line numbers: a one-dimensional NumPy array or Arrow array or chunked array of integers;
* requests: an Arrow table, record batch or mapping of arrays with `offset_bytes` (uint64 or int64) and `length_bytes`
  (uint32) and, if there are any, `op` (uint8: 0 read, 1 write, others are left out) and `volume` (uint32).

Arrays of 64-bit line numbers and of the column types named above are read in place, without a copy; other integer
types are converted chunk by chunk.

Sources: exact distances after Mattson et al. (IBM Systems Journal, 1970); sampling after Waldspurger et al. (SHARDS,
FAST 2015), with samples spread evenly over neighbouring lines; joining after Niu et al. (PARDA, IPDPS 2012);
miniature simulation after Waldspurger et al. (USENIX ATC 2017).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy.typing as npt

from bathyscope.errors import UsageError
from bathyscope.simulate import sampling
from bathyscope.simulate.arrays import request_bytes_p99
from bathyscope.simulate.curves import (
    GroupProfile,
    MissRatioCurve,
    Profile,
    TraceProfiles,
    profile_files,
    profile_trace,
    simulate_lines,
)
from bathyscope.spec import limits
from bathyscope.spec.curves import (
    DEFAULT_SAMPLES,
    LEAST_GROUPS,
    CurveOptions,
    FilesOptions,
    Ops,
    ProfileOptions,
    SimulationOptions,
    Unit,
)
from bathyscope.spec.size import By
from bathyscope.spec.values import checked

__all__ = [
    "DEFAULT_SAMPLES",
    "GroupProfile",
    "MissRatioCurve",
    "Profile",
    "TraceProfiles",
    "mrc",
    "policy_names",
    "profile",
    "profile_traces",
    "simulate",
    "trace_formats",
]

policy_names = limits.policy_names
"""The names of the eviction policies."""

trace_formats = limits.trace_formats
"""The names of the trace formats that `profile_traces` reads."""


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
    lines: see `bathyscope.simulate.sampling` for the error. LRU comes from one pass of stack distances; other policies
    from a simulation of the policy itself, over lines of any direction (`unit` "lines", `ops` "all").
    Raises `UsageError` for a trace, policy or option that is not supported, `AnalysisError` for an empty trace.
    """
    counted = checked(CurveOptions, unit=unit, ops=ops)
    profiled = checked(ProfileOptions, line_bytes=line_bytes, samples=samples, salt=salt, threads=threads)
    simulated = checked(SimulationOptions, policy=policy, line_bytes=line_bytes, salt=salt, threads=threads)
    if policy == "lru":
        if unit == "requests" and profiled.samples is not None:
            region = sampling.region_bytes(request_bytes_p99(trace), profiled.line_bytes)
            least = LEAST_GROUPS * region // profiled.line_bytes
            enough = max(profiled.samples, sampling.MOST_SAMPLES, least)
            profiled = profiled.model_copy(update={"samples": enough, "group_bytes": region})
        return profile_trace(trace, profiled).curve(sizes_bytes, unit=unit, ops=ops)
    if counted != CurveOptions():
        raise UsageError(f"a simulation of {policy} counts lines of all ops", hint="use unit='lines' and ops='all'")
    if profiled.samples is not None:
        distinct = profile_trace(trace, profiled).distinct_lines
        simulated = simulated.model_copy(update={"rate": min(1.0, profiled.samples / max(distinct, 1.0))})
    return simulate_lines(trace, sizes_bytes, simulated)


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
    given = {"line_bytes": line_bytes, "samples": samples, "rate": rate, "salt": salt, "group_bytes": group_bytes}
    return profile_trace(trace, checked(ProfileOptions, **given, threads=threads, joinable=joinable))


def profile_traces(
    paths: Sequence[str | Path],
    *,
    line_bytes: Sequence[int] = (4096, 16_384, 65_536, 262_144),
    group_by: By = "all",
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
    the pass. `trace_format`: a name of `trace_formats()`, by default it is known by the content. `group_bytes`: as for
    `profile`, and the same for every line size.
    Raises `ParseError` at a bad record (unless skipped) or an unknown format, `UsageError` for an option or file that
    is not supported.
    """
    if progress is not None and not callable(progress):
        raise UsageError(f"progress must be a function of events and bytes (got a {type(progress).__name__})")
    options = checked(
        FilesOptions,
        line_bytes=line_bytes, group_by=group_by, node_of_osd=node_of_osd, trace_format=trace_format, samples=samples,
        rate=rate, salt=salt, group_bytes=group_bytes, threads=threads, skip_bad_records=skip_bad_records,
    )  # fmt: skip
    return profile_files(_files(paths), options, progress)


def simulate(
    trace: Any,
    policy: str,
    *,
    line_bytes: int = 4096,
    sizes_bytes: npt.ArrayLike | None = None,
    rate: float | None = None,
    min_lines: int = limits.MIN_MINIATURE_LINES,
    salt: int = 0,
    threads: int = 1,
) -> MissRatioCurve:
    """Simulate a policy of `policy_names()` over line numbers at several sizes, with the options of `bathy size`.

    `rate`: `None` simulates every reference; a number in (0, 1] simulates miniature caches over that share of the
    lines, raised for small sizes so that each has `min_lines` (at least 500). Sizes are spread over `threads`.
    Raises `UsageError`, and `AnalysisError` for an empty trace.
    """
    options = checked(
        SimulationOptions,
        policy=policy, line_bytes=line_bytes, rate=rate, min_lines=min_lines, salt=salt, threads=threads,
    )  # fmt: skip
    return simulate_lines(trace, sizes_bytes, options)


def _files(paths: Any) -> list[str]:
    """Return paths of files as text. Raises UsageError for what is no list of them, and for what is no file."""
    if isinstance(paths, str | bytes | Path) or not hasattr(paths, "__iter__") or not list(paths):
        raise UsageError(f"paths must be a list of at least one file (got {paths!r})")
    missing = [path for path in paths if not isinstance(path, str | PathLike) or not Path(path).is_file()]
    if missing:
        raise UsageError(f"paths must be trace files (got {missing[0]!r})")
    return [str(path) for path in paths]


class _CallableModule(ModuleType):
    """Lets `bathyscope.mrc(trace)` mean `bathyscope.mrc.mrc(trace)`."""

    def __call__(self, trace: Any, **options: Any) -> MissRatioCurve:
        return mrc(trace, **options)


sys.modules[__name__].__class__ = _CallableModule
