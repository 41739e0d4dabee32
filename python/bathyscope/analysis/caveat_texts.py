"""Caveats that say the same of several steps with other figures: one sentence with ranges.

A caveat's figures are in its words, as they are printed. Sentences that differ in nothing but figures become one, in
which every figure that differs is a range: "12–40 % of the reads came from a cache". Numbers inside a name (osd.3,
node2, 16.2.15, 4K) are no figures: they say what a sentence is about.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_FACTORS = {
    **{unit: (unit, 1.0) for unit in ("", "%")},
    **{f"{letter}B{per}": (f"B{per}", 1024.0**power) for per in ("", "/s")
       for power, letter in enumerate(("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"))},
    **{unit: ("s", factor) for unit, factor in (("ns", 1e-9), ("µs", 1e-6), ("ms", 1e-3), ("s", 1.0))},
}  # fmt: skip
_LETTERS = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9}
_UNIT = "|".join(sorted((unit for unit in _FACTORS if unit), key=len, reverse=True))
_ONE = rf"\d+(?:,\d{{3}})*(?:\.\d+)?[kMG]?(?: (?:{_UNIT})(?![\w/]))?"
_FIGURE = re.compile(rf"(?<![\w.,:/-]){_ONE}(?:–{_ONE})?(?![\w/-]|[.,:]\d)")
_PART = re.compile(rf"([\d.,]+)([kMG]?)(?: ({_UNIT}))?")


def shape(text: str) -> tuple[str, ...]:
    """Return what a sentence says without its figures; two sentences of one shape differ in figures alone."""
    return (*_FIGURE.split(text), *(_unit(figure) for figure in _FIGURE.findall(text)))


def ranged(texts: Iterable[str]) -> str:
    """Return sentences of one shape as one, with a range for each figure that differs. At least one is given."""
    texts = list(texts)
    between = _FIGURE.split(texts[0])
    columns = zip(*(_FIGURE.findall(text) for text in texts), strict=True)
    figures = [*map(_range, columns), ""]
    return "".join(part for pair in zip(between, figures, strict=True) for part in pair)


def most_common(texts: Iterable[str]) -> list[str]:
    """Return those of some sentences that have the most frequent shape."""
    shapes: dict[tuple[str, ...], list[str]] = {}
    for text in texts:
        shapes.setdefault(shape(text), []).append(text)
    return max(shapes.values(), key=len)


def _range(figures: Sequence[str]) -> str:
    """Return the range of figures, each a number or a range itself, in words; of equal ones the first."""
    if len(set(figures)) == 1:
        return figures[0]
    # The end of a range has the unit, also for its beginning: "12–40 %".
    parts = [
        (number, letter, unit or _PART.findall(f)[-1][2]) for f in figures for number, letter, unit in _PART.findall(f)
    ]
    low, high = (pick(parts, key=_value) for pick in (min, max))
    if _value(low) == _value(high):
        return _words(*low)
    return f"{_words(*low, bare=low[2] == high[2])}–{_words(*high)}"


def _value(part: tuple[str, str, str]) -> float:
    number, letter, unit = part
    return float(number.replace(",", "")) * _LETTERS[letter] * _FACTORS[unit][1]


def _words(number: str, letter: str, unit: str, *, bare: bool = False) -> str:
    return f"{number}{letter}" + ("" if bare or not unit else f" {unit}")


def _unit(figure: str) -> str:
    return _FACTORS[_PART.findall(figure)[-1][2]][0]
