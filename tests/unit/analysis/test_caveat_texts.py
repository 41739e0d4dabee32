"""Figures in caveats of several steps become ranges, and what is only a name does not."""

from __future__ import annotations

import itertools

import pytest

from bathyscope.analysis.caveat_texts import ranged, shape

DIFFERENT = [
    "osd.1 (node2) was busy",
    "osd.3 (node2) was busy",
    "osd.3 (node3) was busy",
    "16.2.15 was asked for 3 %",
    "16.2.16 was asked for 3 %",
    "blocks of 4K at 3 %",
    "blocks of 8K at 3 %",
    "3 % at qd16",
    "3 % at qd8",
    "the pool a did 3 reads a second",
    "the pool b did 3 reads a second",
    "it took 3 ms",
    "it took 3 MiB",
    "it took 3",
]


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["5.9 % of the reads", "14 % of the reads", "6.1 % of the reads"], "5.9–14 % of the reads"),
        (["used 1.06 of its 2 processors", "used 0.709 of its 2 processors"], "used 0.709–1.06 of its 2 processors"),
        (["by 39 % (limit 20 %), by 34 %", "by 36 % (limit 20 %), by 6.6 %"], "by 36–39 % (limit 20 %), by 6.6–34 %"),
        (["did 850 IOPS and 512 KiB/s", "did 1.2k IOPS and 1.50 MiB/s"], "did 850–1.2k IOPS and 512 KiB/s–1.50 MiB/s"),
        (["waited 900 µs", "waited 1.20 s", "waited 3.00 ms"], "waited 900 µs–1.20 s"),
        (["12–40 % of 4", "5.0 % of 4", "7.0–50 % of 4"], "5.0–50 % of 4"),
        (["512 KiB–1.50 MiB", "2.00 MiB"], "512 KiB–2.00 MiB"),
        (["1,234 of 9, then", "999 of 9, then"], "999–1,234 of 9, then"),
        (["osd.1 took 3.0 s", "osd.1 took 4.0 s"], "osd.1 took 3.0–4.0 s"),
        (["3 of 5", "3 of 5"], "3 of 5"),
        (["no figure"], "no figure"),
        (["1000 s", "1.00k s"], "1000 s"),
    ],
)
def test_a_figure_that_differs_is_a_range(texts: list[str], expected: str) -> None:
    assert len(set(map(shape, texts))) == 1
    assert ranged(texts) == expected
    assert ranged(reversed(texts)) in (expected, texts[-1])


def test_names_and_units_of_another_kind_are_no_figures() -> None:
    for one, other in itertools.combinations(DIFFERENT, 2):
        assert shape(one) != shape(other), (one, other)
