"""How much of a trace is simulated, and that the memory for it is bounded whatever the trace."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bathyscope import _core
from bathyscope.mrc import regions
from bathyscope.records import CurvePoint
from bathyscope.sources import curve_sample
from bathyscope.sources.block_trace import TraceFiles, TraceReport
from bathyscope.sources.curve_points import Admission, CurveRequest, curve_points

from .traces import LINE


class Watched(TraceFiles):
    """Keeps its second passes, to ask what they hold."""

    def __init__(self, path: Path) -> None:
        super().__init__([path], trace_format="raw-u32")
        self.passes: list[_core.EnginePass] = []

    def new_engine_pass(self) -> _core.EnginePass:
        self.passes.append(super().new_engine_pass())
        return self.passes[-1]


@pytest.fixture(scope="module")
def many_lines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two million references to as many lines, and a tenth as many to a hot set."""
    rng = np.random.default_rng(3)
    blocks = rng.permutation(np.concatenate([rng.permutation(2_000_000), rng.integers(0, 20_000, 200_000)]))
    path = tmp_path_factory.mktemp("trace") / "many.trace"
    blocks.astype("<u4").tofile(path)
    return path


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"policies": ("lru",), "admission": Admission("bypass", stream_cutoff_bytes=1 << 20)},
        {"policies": ("lirs",), "admission": Admission("2-hit", n_hit=2)},
        {"line_bytes": (65_536,), "fetch_bytes": 1024},
        {"extra_flash_bytes": (LINE, 1 << 20)},
    ],
)
def test_a_curve_takes_at_most_32_mb_for_ten_sizes(many_lines: Path, changes: dict[str, object]) -> None:
    trace = Watched(many_lines)
    asked = {"line_bytes": (LINE,)} | changes

    def refine(_rows: list[CurvePoint], _found: TraceReport) -> dict[tuple[str, str, int, str], list[int]]:
        return {("all", "all", request.line_bytes[0], request.policies[0]): [request.line_bytes[0], 1 << 21]}

    request = CurveRequest(**asked)  # type: ignore[arg-type]
    rows, _ = curve_points(trace, request, refine=refine)
    points = [row for row in rows if row.window == "all"]
    assert len(points) >= 10
    for second in trace.passes:
        assert second.memory_bytes() < 3.2e6 * len(points)
    if request.line_bytes == (LINE,):
        assert {point.method for point in points} == {"minisim"}
        assert max(point.sampled_lines or 0 for point in points) < 1.1 * regions.MOST_SAMPLES


def test_without_sampling_the_same_trace_takes_more(many_lines: Path) -> None:
    trace = Watched(many_lines)
    rows, _ = curve_points(trace, CurveRequest(line_bytes=(LINE,), policies=("lru",), exact=True))
    assert trace.passes[0].memory_bytes() > 3.2e6 * len(rows)


def test_regions_are_several_times_as_long_as_requests_and_lines() -> None:
    assert regions.region_bytes(0.0) == regions.region_bytes(4096, LINE) == 65_536
    assert regions.region_bytes(69_000, LINE) == 262_144
    assert regions.region_bytes(300_000, LINE) == 1 << 20
    assert regions.region_bytes(1e9, LINE) == 1 << 22
    assert regions.region_bytes(4096, 1 << 20) == 1 << 22


def test_samples_are_bounded_unless_more_is_asked_for() -> None:
    assert curve_sample.sample_lines(65_536, LINE, None) == 65_536
    assert curve_sample.sample_lines(1 << 20, 1 << 18, None) == curve_sample.LEAST_SAMPLES
    assert curve_sample.sample_lines(1 << 22, LINE, None) == regions.MOST_SAMPLES
    assert curve_sample.sample_lines(1 << 22, LINE, 1_000_000) == 1_000_000
    assert curve_sample.smallest_size_lines(1e9, None) * regions.MOST_SAMPLES >= 500 * 1e9
    assert curve_sample.full_lines(65_536, 1024, "lirs") < curve_sample.full_lines(65_536, None, "s3-fifo")
