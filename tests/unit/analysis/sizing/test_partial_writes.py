"""Writes that cover fetch units in part: when that is said, and what to do about it."""

from __future__ import annotations

import pytest

from bathyscope.records.blocks import CaveatView

from .test_sizing import _curve, _found


def caveats(*gaps: tuple[int, int, float | None], writes: int = 50_000) -> list[CaveatView]:
    """The caveat of curves of (line, fetch, gap); the first hits most."""
    rows = [
        row
        for place, (line, fetch, gap) in enumerate(gaps)
        for row in _curve(
            [0.4, 0.8 - 0.1 * place, 0.81 - 0.1 * place],
            line_bytes=line, fetch_bytes=fetch, write_gap_ratio=gap, write_requests=writes,
        )
    ]  # fmt: skip
    return [c for c in _found(rows).caveats if c.code == "partial_writes"]


def test_writes_of_4k_into_64k_units() -> None:
    (found,) = caveats((65_536, 65_536, 0.94), (4096, 4096, 0.0))
    assert found.severity == "warning"
    assert "at least 94% of the units that writes touch (64K)" in found.text
    assert found.text.endswith("--line 64K --fetch 4K simulates units that writes fill")


def test_a_curve_that_the_advice_is_not_about_is_noted_only() -> None:
    (found,) = caveats((4096, 4096, 0.0), (65_536, 65_536, 0.94))
    assert found.severity == "note"


def test_several_line_sizes_are_one_caveat() -> None:
    (found,) = caveats((65_536, 65_536, 0.9), (16_384, 16_384, 0.7), (4096, 4096, 0.3))
    assert "at least 30% to 90% of the units that writes touch (4K, 16K, 64K)" in found.text


@pytest.mark.parametrize(
    ("line", "fetch", "words"),
    [
        (4096, 4096, "--line 4K --fetch 512 simulates the smallest units"),
        (65_536, 65_536, "--line 64K --fetch 1K simulates the smallest units"),
        (65_536, 1024, "units of 64K lines cannot be smaller; --line 16K shows more"),
        (512, 512, "units cannot be smaller"),
    ],
)
def test_without_an_aligned_size_the_smallest_units_are_proposed(line: int, fetch: int, words: str) -> None:
    (found,) = caveats((line, fetch, 0.5))
    assert found.text.endswith(words)


@pytest.mark.parametrize(("gap", "writes"), [(0.04, 50_000), (None, 50_000), (0.9, 5000), (0.9, 0)])
def test_what_does_not_decide_is_not_said(gap: float | None, writes: int) -> None:
    assert caveats((4096, 4096, gap), writes=writes) == []
