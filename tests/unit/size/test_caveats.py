"""Doubts about curves of a sample: when they are raised, and that what they advise helps."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from bathyscope.analysis.sizing import SizeQuestion, build
from bathyscope.analysis.sizing.sample_caveats import caveats_of_sample
from bathyscope.records import CurvePoint, to_table
from bathyscope.records.blocks import CaveatView
from bathyscope.simulate.sampling import region_bytes
from bathyscope.simulate.trace import TraceFiles
from bathyscope.spec.size import SizeSpec

from .curves import curve_points
from .traces import Row, write_csv

KIB, MIB = 1 << 10, 1 << 20


def point(
    sampled_lines: int | None,
    request_bytes_p99: float = 0.0,
    line_bytes: int = 4096,
    window: str = "all",
    working_set_bytes: int = 1 << 40,
) -> CurvePoint:
    return CurvePoint(
        group_kind="all", group_name="all", window=window, policy="s3-fifo", admission="all", method="minisim",
        line_bytes=line_bytes, fetch_bytes=line_bytes, size_bytes=1 << 30, flash_bytes=1 << 30, read_requests=1000,
        write_requests=0, read_bytes=1 << 22, write_bytes=0, working_set_bytes=working_set_bytes, read_hit_ratio=0.5,
        read_hit_ratio_low=0.4, read_hit_ratio_high=0.6, read_byte_hit_ratio=0.5, write_hit_ratio=0.0,
        write_byte_hit_ratio=0.0,
        cold_read_ratio=0.1, cold_write_ratio=0.0, fetch_amplification=1.0, write_gap_ratio=None, flash_write_bytes=0.0,
        evicted_lines=0.0,
        write_budget_bytes_per_day=None, duration_s=86_400.0, sampled_lines=sampled_lines,
        sample_region_bytes=None if sampled_lines is None else region_bytes(request_bytes_p99, line_bytes),
    )  # fmt: skip


def doubts(rows: list[CurvePoint], request_bytes_p99: float) -> dict[str, CaveatView]:
    return {c.code: c for c in caveats_of_sample(rows, request_bytes_p99) if c.severity == "warning"}


def test_a_sample_of_many_regions_is_noted_only() -> None:
    (caveat,) = caveats_of_sample([point(131_072, 64 * KIB)], 64 * KIB)
    assert (caveat.code, caveat.severity) == ("sampled", "note")
    assert "rest on 131,072 lines in" in caveat.text


def test_the_fewest_and_the_most_lines_are_said_where_they_differ() -> None:
    caveat, *_ = caveats_of_sample([point(131_072), point(262_144)], 64 * KIB)
    assert "rest on 131,072 to 262,144 lines in" in caveat.text


def test_a_simulation_in_full_has_no_caveat() -> None:
    assert caveats_of_sample([point(None)], 64 * MIB) == []


@pytest.mark.parametrize(("sampled_lines", "is_few"), [(499 * 1024, True), (500 * 1024, False)])
def test_few_regions_make_the_band_doubtful(sampled_lines: int, is_few: bool) -> None:
    # Requests of up to 1 MiB make regions of 4 MiB: 1,024 lines of 4 KiB each.
    assert ("few_regions" in doubts([point(sampled_lines, MIB)], MIB)) == is_few


def test_the_samples_advised_are_enough() -> None:
    found = doubts([point(131_072, MIB), point(32_768, MIB, 65_536)], MIB)["few_regions"]
    assert found.text.startswith("1 curve of a sample may rest on as few as 128 regions")
    match = re.search(r"--samples (\d+) ", found.text)
    assert match
    assert int(match[1]) * 4096 >= 500 * region_bytes(MIB, 4096)
    assert "few_regions" not in doubts([point(int(match[1]), MIB), point(32_768, MIB, 65_536)], MIB)


@pytest.mark.parametrize(("request_bytes", "is_long"), [(2 * MIB, False), (2 * MIB + 4096, True)])
def test_requests_longer_than_half_a_region_are_doubtful(request_bytes: int, is_long: bool) -> None:
    found = doubts([point(131_072, request_bytes)], request_bytes)
    assert ("long_requests" in found) == is_long
    assert not is_long or "--exact shows" in found["long_requests"].text


def test_longer_lines_have_longer_regions() -> None:
    # Regions hold four lines at least: with lines of 2 MiB they are 8 MiB, and 3 MiB are less than half.
    assert "long_requests" not in doubts([point(16, 3 * MIB, 2 * MIB)], 3 * MIB)


def test_a_size_that_was_simulated_in_full_and_windows_raise_no_doubt() -> None:
    everything = point(1000, 3 * MIB, working_set_bytes=1000 * 4096)
    assert doubts([everything, point(10, 3 * MIB, window="0")], 3 * MIB) == {}


def test_the_doubts_are_those_of_what_was_simulated(tmp_path: Path) -> None:
    """Requests of 3 MiB: regions of 4 MiB, of which a sample of 131,072 lines of 4 KiB holds 128."""
    rows: list[Row] = [(step * 1000, "read", step % 200 * 4 * MIB, 3 * MIB, "v") for step in range(400)]
    trace = TraceFiles([write_csv(tmp_path / "long.csv", rows)])
    about_sample = {"sampled", "few_regions", "long_requests", "cut_requests"}

    def codes(**changes: Any) -> list[str]:
        asked = {"line_bytes": (4096,), "policies": ("lru",)} | changes
        points, summary = curve_points(trace, **asked)
        finding = build(to_table(CurvePoint, points), SizeQuestion(SizeSpec(**asked), summary))
        return [c.code for c in finding.caveats if c.code in about_sample]

    assert codes(samples=1024) == ["sampled", "few_regions", "long_requests"]
    assert codes(exact=True) == []


@pytest.mark.parametrize(("request_bytes", "is_told"), [(4 * KIB, False), (64 * KIB, True)])
def test_requests_over_the_end_of_a_region_are_told(request_bytes: int, is_told: bool) -> None:
    row = dataclasses.replace(point(131_072, request_bytes), read_requests=1000, read_bytes=1000 * request_bytes)
    found = {c.code: c.text for c in caveats_of_sample([row], request_bytes)}
    assert ("cut_requests" in found) == is_told
    # 60 of 256 KiB: a request of 64 KiB crosses the end of a region from 15 of 64 places of its first line.
    assert not is_told or "about 23%" in found["cut_requests"]
