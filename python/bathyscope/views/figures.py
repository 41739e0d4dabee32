"""A figure with its uncertainty as text, in as few characters as stay honest."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from bathyscope.records.figure import Figure
from bathyscope.units import (
    format_bandwidth,
    format_bytes,
    format_duration_ns,
    format_percent,
    format_rate,
    format_seconds,
    three_digits,
)
from bathyscope.views import labels

NOT_KNOWN = "n/a"
NOT_APPLICABLE = "–"


FORMATS: dict[str, Callable[[Any], str]] = {
    "count": "{:,}".format,
    "ns": format_duration_ns,
    "us": lambda value: format_duration_ns(value * 1000),
    "µs": lambda value: format_duration_ns(value * 1000),
    # Below a second it is the time of an I/O, not of a run.
    "s": lambda value: format_duration_ns(value * 1e9) if 0 < abs(value) < 1 else format_seconds(value),
    "bytes": format_bytes,
    "bytes/s": format_bandwidth,
    "ratio": format_percent,
    "fine ratio": lambda value: f"{100 * value:.1f}%",
    "times": lambda value: f"{three_digits(value)}×",
    "change": lambda value: change_text(1 + value),
    "time": labels.time_utc,
    "%": lambda value: format_percent(value / 100),
    "1/s": format_rate,
    "1/day": format_rate,
}
"""How a value is read, by its unit; one that is not here is a number beside its unit, or text."""


def value_text(value: float | None, unit: str) -> str:
    """Return a value in its unit for reading: "4.30 ms", "152 MiB/s", "99 %"; "n/a" when there is none."""
    if value is None or not math.isfinite(value):
        return NOT_KNOWN
    if unit in FORMATS:
        return FORMATS[unit](value)
    number = format_rate(value) if abs(value) >= 1000 else trimmed(value)
    return number if unit in ("", "1") else f"{number} {unit}"


def trimmed(value: float) -> str:
    """Return a plain number: whole numbers without decimals, others with three significant digits."""
    return str(int(value)) if value == int(value) and abs(value) < 1000 else three_digits(value)


def range_text(figure: Figure) -> str:
    """Return the 95 % interval for reading: "4.28–4.33 ms"; empty when there is none.

    The unit is written once when both ends share it.
    """
    if figure.value is None or figure.low is None or figure.high is None:
        return ""
    low, high = value_text(figure.low, figure.unit), value_text(figure.high, figure.unit)
    if low == high:
        return f"±{_relative(figure)}"
    number, _, unit = low.partition(" ")
    if unit and high.endswith(f" {unit}"):
        low = number
    return f"{low}–{high}"


def plus_minus(figure: Figure) -> str:
    """Return the interval as the wider half of it: "±1" for a small count, "±2%" else; empty without one."""
    if figure.value is None or figure.low is None or figure.high is None:
        return ""
    half = max(figure.high - figure.value, figure.value - figure.low)
    if half > abs(figure.value):
        # An interval wider than its figure says only that the figure is not known; its digits say nothing.
        return "±>100%"
    if figure.unit == "1/s" and abs(figure.value) < 1000:
        return f"±{half:.0f}" if half >= 1 or half == 0 else f"±{half:.1g}"
    return f"±{_relative(figure)}"


def _relative(figure: Figure) -> str:
    if not figure.value or figure.low is None or figure.high is None:
        return "0%"
    percent = 100 * max(figure.high - figure.value, figure.value - figure.low) / abs(figure.value)
    if percent > 100:
        return ">100%"
    return f"{percent:.0f}%" if percent >= 1 or percent == 0 else f"{max(percent, 0.1):.1f}%"


def compact(value: float | None, unit: str) -> str:
    """Return a value for a narrow column: "4.30ms", "0.91", "61%"; bandwidth in MiB/s without the unit."""
    if value is None or not math.isfinite(value):
        return NOT_KNOWN
    if unit == "bytes/s":
        mebibytes = value / 2**20
        return f"{mebibytes:.0f}" if mebibytes >= 1000 else three_digits(mebibytes)
    text = value_text(value, unit)
    return text.replace(" ", "") if unit in FORMATS else text


def change_text(ratio: float | None) -> str:
    """Return a ratio as a signed change: 0.96 → "−4.0%", 1.2 → "+20%"; "n/a" when it is not known."""
    if ratio is None or not math.isfinite(ratio):
        return NOT_KNOWN
    percent = 100 * (ratio - 1)
    if abs(percent) < 0.05:
        return "0%"
    digits = 0 if abs(percent) >= 10 else 1
    return f"{'−' if percent < 0 else '+'}{abs(percent):.{digits}f}%"
