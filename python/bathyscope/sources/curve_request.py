"""What curves are asked for, and what cannot be asked for."""

from __future__ import annotations

import dataclasses

from bathyscope import _core
from bathyscope.errors import UsageError
from bathyscope.mrc import options

WRITE_MODES = ("allocate", "update", "invalidate")
LARGEST_LINE_BYTES = 1 << 24
LARGEST_SIZE_BYTES = 1 << 60
LONGEST_WINDOW_S = 100 * 365 * 86_400.0
MOST_UNITS = 64
"""Fetch units in a line."""


@dataclasses.dataclass(frozen=True, slots=True)
class Admission:
    """What may enter the cache. `name` goes into the records."""

    name: str = "all"
    n_hit: int | None = None
    stream_cutoff_bytes: int | None = None
    write_budget_bytes_per_day: int | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class CurveRequest:
    """What to simulate. Sizes with `extra_flash_bytes` of flash join the grid; `window_s` None chooses; `samples` None
    decides by size.
    """

    line_bytes: tuple[int, ...] = (4096, 16_384, 65_536, 262_144)
    policies: tuple[str, ...] = ("s3-fifo",)
    admission: Admission = dataclasses.field(default_factory=Admission)
    on_write: str = "allocate"
    fetch_bytes: int | None = None
    exact: bool = False
    samples: int | None = None
    extra_flash_bytes: tuple[int, ...] = ()
    window_s: float | None = None
    threads: int = 1
    salt: int = 0


def check(request: CurveRequest) -> None:
    """Raise UsageError, with the name of the field, for a request that cannot be simulated."""
    for line in options.listed("line_bytes", request.line_bytes):
        _check_line(line, request.fetch_bytes)
    for policy in options.listed("policies", request.policies):
        if policy not in _core.policy_names():
            raise UsageError(f"there is no policy '{policy}'", hint="there are: " + " ".join(_core.policy_names()))
    options.one_of("on_write", request.on_write, WRITE_MODES)
    options.flag("exact", request.exact)
    options.samples_of(request.samples)
    options.threads_of(request.threads)
    options.salt_of(request.salt)
    for size in request.extra_flash_bytes:
        options.whole_number("extra_flash_bytes", size, 1, LARGEST_SIZE_BYTES)
    window = request.window_s
    if window is not None and not 1e-9 <= options.number("window_s", window) <= LONGEST_WINDOW_S:
        raise UsageError(f"window_s is {window}; it must lie between a nanosecond and a hundred years")
    admission = request.admission
    if admission.n_hit is not None:
        options.whole_number("n_hit", admission.n_hit, 2, 255)
    for name in ("stream_cutoff_bytes", "write_budget_bytes_per_day"):
        value = getattr(admission, name)
        if value is not None:
            options.whole_number(name, value, 1, LARGEST_SIZE_BYTES)


def check_time(request: CurveRequest, duration_s: float) -> None:
    """Raise UsageError for a write budget a day on a trace that has no time, where no day can be told."""
    if request.admission.write_budget_bytes_per_day is not None and duration_s <= 0:
        raise UsageError(
            f"--admission {request.admission.name}: a budget is of a day, and the trace has no time to tell one",
            hint="use another admission, 2-hit, or a trace with times",
        )


def _check_line(line: int, fetch: int | None) -> None:
    whole = options.whole_number("line_bytes", line, 1, options.U64)
    if not 512 <= whole <= LARGEST_LINE_BYTES or whole & (whole - 1):
        raise UsageError(f"a line of {line} bytes cannot be", hint="a power of two from 512 to 16M: 4K, 16K, 64K")
    if fetch is None:
        return
    unit = options.whole_number("fetch_bytes", fetch, 1, options.U64)
    if unit & (unit - 1) or not max(512, whole // MOST_UNITS) <= unit <= whole:
        raise UsageError(
            f"a fetch size of {fetch} bytes does not fit lines of {line}",
            hint="a power of two, at least 512 and a 64th of the line, at most the line",
        )
