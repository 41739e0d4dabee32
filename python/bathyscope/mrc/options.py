"""Options of the Python API, checked before the compiled core sees them: every mistake names its argument."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from bathyscope import _core
from bathyscope.errors import UsageError

Sizes = npt.NDArray[np.uint64]

MOST_THREADS = 1024
LARGEST_LINE_BYTES = 1 << 30
LARGEST_CACHE_LINES = 1 << 30
"""Lines of the largest cache that a simulation takes."""

LEAST_GROUPS = 64
"""Groups that a sample of groups must have room for: its error is judged by eight parts, of eight groups at least."""

U32 = 2**32 - 1
U64 = 2**64 - 1


def whole_number(name: str, value: Any, least: int, most: int) -> int:
    """Return `value` as an int. Raises UsageError when it is no whole number from `least` to `most`."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer) or not least <= value <= most:
        raise UsageError(f"{name} is {_shown(value)}; it must be a whole number from {least} to {_limit(most)}")
    return int(value)


def number(name: str, value: Any, least: float = 0.0) -> float:
    """Return `value` as a float. Raises UsageError when it is no finite number of at least `least`."""
    if not _is_number(value) or not math.isfinite(value) or value < least:
        raise UsageError(f"{name} is {_shown(value)}; it must be a number of at least {least:g}")
    return float(value)


def flag(name: str, value: Any) -> bool:
    """Return `value` as a bool. Raises UsageError when it is none."""
    if not isinstance(value, bool | np.bool_):
        raise UsageError(f"{name} is {_shown(value)}; it must be True or False")
    return bool(value)


def one_of(name: str, value: Any, known: Sequence[str]) -> str:
    """Return `value`. Raises UsageError when it is none of the `known` names."""
    if not isinstance(value, str) or value not in known:
        raise UsageError(f"{name} is {_shown(value)}", hint="there are: " + " ".join(known))
    return value


def threads_of(value: Any) -> int:
    """Return a number of threads."""
    return whole_number("threads", value, 1, MOST_THREADS)


def salt_of(value: Any) -> int:
    """Return what selects a sample."""
    return whole_number("salt", value, 0, U64)


def samples_of(value: Any) -> int | None:
    """Return a number of sampled lines, None for all."""
    return None if value is None else whole_number("samples", value, 1, 1 << 48)


def rate_of(value: Any) -> float | None:
    """Return a sampling rate in (0, 1], None for none."""
    if value is None:
        return None
    if not _is_number(value) or not 0.0 < value <= 1.0:
        raise UsageError(f"rate is {_shown(value)}; it must lie in (0, 1]")
    return float(value)


def line_of(value: Any) -> int:
    """Return a line size in bytes."""
    size = whole_number("line_bytes", value, 512, LARGEST_LINE_BYTES)
    if size & (size - 1):
        raise UsageError(f"line_bytes is {size}; it must be a power of two from 512 to 2^30")
    return size


def lines_of(value: Any) -> list[int]:
    """Return line sizes in bytes, at least one."""
    return [line_of(size) for size in listed("line_bytes", value)]


def listed(name: str, value: Any) -> list[Any]:
    """Return a sequence as a list. Raises UsageError when it is none, is text, or is empty."""
    if isinstance(value, str | bytes) or not hasattr(value, "__iter__"):
        raise UsageError(f"{name} is {_shown(value)}; it must be a list")
    found = list(value)
    if not found:
        raise UsageError(f"{name} is empty; give at least one")
    return found


def group_bits_of(group_bytes: Any, line_bytes: int) -> int:
    """Return the lines that are sampled together, as a power of two."""
    if group_bytes is None:
        return 0
    # The core takes 32 bits for groups and for the strata of a sample, 8 of which are the strata's.
    size = whole_number("group_bytes", group_bytes, 1, line_bytes << 24)
    return max(0, (size // line_bytes).bit_length() - 1)


def check_groups(samples: int | None, group_bytes: int | None, line_bytes: int) -> None:
    """Raise UsageError when `samples` lines are fewer than a sample of groups of `group_bytes` needs."""
    bits = group_bits_of(group_bytes, line_bytes)
    least = LEAST_GROUPS << bits
    if bits > 0 and samples is not None and samples < least:
        raise UsageError(
            f"samples is {samples}, fewer than {LEAST_GROUPS} groups of group_bytes {group_bytes}",
            hint=f"samples={least} or more, or a smaller group_bytes",
        )


def nodes_of(node_of_osd: Any) -> list[int] | None:
    """Return the node of each OSD."""
    if node_of_osd is None:
        return None
    return [whole_number("node_of_osd", node, 0, U32) for node in listed("node_of_osd", node_of_osd)]


def policy_of(value: Any) -> str:
    """Return the name of an eviction policy."""
    return one_of("policy", value, _core.policy_names())


def sizes_lines(sizes_bytes: npt.ArrayLike | None, line_bytes: int, distinct_lines: float) -> Sizes:
    """Return cache sizes in lines, shape (n,); without `sizes_bytes` 1..100 % of the distinct lines."""
    if sizes_bytes is None:
        lines = np.round(np.arange(1, 101) * distinct_lines / 100.0)
        return np.maximum(lines, 1.0).astype(np.uint64)
    hint = f"a line has {line_bytes} bytes"
    try:
        sizes = np.atleast_1d(np.asarray(sizes_bytes))
    except ValueError as error:
        raise UsageError("sizes_bytes is not a list of sizes of at least one line", hint=hint) from error
    if sizes.ndim != 1 or sizes.dtype.kind not in "uif" or not ((sizes >= line_bytes) & (sizes < 2**63)).all():
        raise UsageError("sizes_bytes is not a list of sizes of at least one line", hint=hint)
    result: Sizes = (sizes // line_bytes).astype(np.uint64)
    return result


def simulated_sizes(sizes: Sizes, line_bytes: int) -> Sizes:
    """Return `sizes`. Raises UsageError when one is larger than a simulation takes."""
    if len(sizes) and int(sizes.max()) > LARGEST_CACHE_LINES:
        raise UsageError(
            f"sizes_bytes has {int(sizes.max()) * line_bytes} bytes, more than 2^30 lines of {line_bytes}",
            hint="simulate larger lines, or use policy lru, which takes any size",
        )
    return sizes


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:59] + "…"


def _limit(most: int) -> str:
    """Return a limit as people write it: 2^64 - 1 in place of twenty digits."""
    if most < 1 << 20:
        return str(most)
    power = most.bit_length()
    return f"2^{power} - 1" if most == (1 << power) - 1 else f"2^{power - 1}" if most == 1 << (power - 1) else str(most)
