"""Bytes, durations and rates: parse what people write, print what people read.

Sizes are binary (4K = 4096 bytes), as fio and Ceph mean them. Durations are held in seconds in
specs and in nanoseconds in records. Printing rounds to three significant digits, and never to
more precision than that: the interval beside a figure says the rest.
"""

from __future__ import annotations

import math
import re

from bathyscope.errors import UsageError

_SIZE = re.compile(r"^\s*([0-9]+(?:\.[0-9]+)?)\s*([kmgtpe]?)(?:i?b)?\s*$", re.IGNORECASE)
_DURATION = re.compile(r"^\s*([0-9]+(?:\.[0-9]+)?)\s*(ns|us|µs|ms|s|m|min|h|d)?\s*$", re.IGNORECASE)
_SIZE_POWER = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5, "e": 6}
_DURATION_SECONDS = {
    "ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0,
}  # fmt: skip


def parse_some_bytes(option: str, text: str, *, hint: str) -> int:
    """Return the size that an option gives, more than nothing. Raises UsageError."""
    size_bytes = parse_bytes(text)
    if size_bytes <= 0:
        raise UsageError(f"{option} must be greater than 0 (got {text})", hint=hint)
    return size_bytes


def parse_bytes(text: str | int) -> int:
    """Return the number of bytes that `text` ("4K", "1.5GiB", "512", 512) stands for; binary units.

    Raises UsageError when it is not a size or not a whole number of bytes.
    """
    if isinstance(text, int):
        return text
    match = _SIZE.match(text)
    if match is None:
        raise UsageError(f"'{text}' is not a size", hint="write a number with K, M, G or T: 4K, 64K, 1.5G")
    value = float(match[1]) * 1024 ** _SIZE_POWER[match[2].lower()]
    if value != int(value):
        raise UsageError(f"'{text}' is not a whole number of bytes ({value:g})", hint="write a whole number: 512, 4K")
    return int(value)


def parse_seconds(text: str | float) -> float:
    """Return the seconds that `text` ("10", "10s", "250ms", "2m") stands for; a bare number is seconds."""
    if isinstance(text, int | float):
        return float(text)
    match = _DURATION.match(text)
    if match is None:
        raise UsageError(f"'{text}' is not a duration", hint="write a number with ms, s, m or h: 500ms, 10s, 2m")
    return float(match[1]) * _DURATION_SECONDS[(match[2] or "s").lower()]


def format_size_short(size_bytes: int) -> str:
    """Return 4096 as "4K": exact, for names and keys; a size that is not a multiple of a unit stays in bytes."""
    for power, letter in ((4, "T"), (3, "G"), (2, "M"), (1, "K")):
        unit = 1024**power
        if size_bytes >= unit and size_bytes % unit == 0:
            return f"{size_bytes // unit}{letter}"
    return str(size_bytes)


def format_line_size(line_bytes: int) -> str:
    """Return a line size as it stands before "lines": "64K", "512 B"."""
    return format_size_short(line_bytes) if line_bytes >= 1024 else f"{line_bytes} B"


def format_bytes(size_bytes: float) -> str:
    """Return a size for reading: "1.50 GiB"."""
    return _scaled(size_bytes, 1024.0, ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"))


def format_bandwidth(bytes_per_s: float) -> str:
    """Return a bandwidth for reading: "152 MiB/s"."""
    return format_bytes(bytes_per_s) + "/s"


def format_bit_rate(bits_per_s: float) -> str:
    """Return the speed of a network link for reading: "10 Gbit/s"."""
    scaled, unit = next(((bits_per_s / 10**n, u) for n, u in ((9, "G"), (6, "M")) if bits_per_s >= 10**n), (0.0, ""))
    return f"{scaled:g} {unit}bit/s" if unit else f"{bits_per_s:g} bit/s"


def format_rate(per_s: float) -> str:
    """Return an operation rate for reading: "232", "14.2k", "1.31M"."""
    return _scaled(per_s, 1000.0, ("", "k", "M", "G"), separator="")


def format_duration_ns(duration_ns: float) -> str:
    """Return a latency for reading: "850 ns", "69.4 µs", "4.30 ms", "1.20 s"."""
    return _scaled(duration_ns, 1000.0, ("ns", "µs", "ms", "s"))


def format_seconds(duration_s: float) -> str:
    """Return a wall-clock duration for reading: "12 s", "3 min 20 s", "2 h 5 min"."""
    if duration_s < 60:
        return f"{duration_s:.0f} s" if duration_s >= 10 else f"{duration_s:.1f} s"
    minutes, seconds = divmod(round(duration_s), 60)
    if minutes < 60:
        return f"{minutes} min {seconds} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min"


def format_percent(ratio: float) -> str:
    """Return a ratio for reading as percent: "61 %", "0.4 %"."""
    percent = ratio * 100
    return f"{percent:.0f} %" if abs(percent) >= 10 else f"{percent:.1f} %"


def format_cost(value: float) -> str:
    """Return an amount of money for reading: "1,234.50"; a positive amount below a hundredth is "<0.01"."""
    return "<0.01" if 0 < value < 0.005 else f"{value:,.2f}"


def three_digits(value: float) -> str:
    """Return `value` with three significant digits and no exponent."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else str(value)
    # 0.9999 has the digits of 1: what it is rounded to counts.
    digits = max(0, 2 - int(f"{value:.2e}".partition("e")[2]))
    return f"{value:.{digits}f}"


def _scaled(value: float, step: float, units: tuple[str, ...], separator: str = " ") -> str:
    if not math.isfinite(value):
        return "–"
    index = 0
    # 999.5 would print as 1000; the next unit is due before that.
    while abs(value) >= step * 0.9995 and index < len(units) - 1:
        value /= step
        index += 1
    text = f"{value:.0f}" if index == 0 and value == int(value) else three_digits(value)
    return f"{text}{separator}{units[index]}".rstrip() if units[index] else text
