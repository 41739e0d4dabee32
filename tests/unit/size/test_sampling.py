"""How much of a trace is simulated, and that the memory for it is bounded whatever the trace."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bathyscope import _core
from bathyscope.simulate import sampling
from bathyscope.simulate.trace import CorePass, Progress, TraceFiles
from bathyscope.spec.size import CurveKey

from .curves import curve_points
from .traces import LINE


class Watched(TraceFiles):
    """Keeps its second passes, to ask what they hold."""

    def __init__(self, path: Path) -> None:
        super().__init__([path], trace_format="raw-u32")
        self.passes: list[_core.EnginePass] = []

    def feed(self, into: CorePass, *, threads: int, progress: Progress | None) -> None:
        super().feed(into, threads=threads, progress=progress)
        if isinstance(into, _core.EnginePass):
            self.passes.append(into)


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
        {"policies": ("lru",), "admission": "bypass"},
        {"policies": ("lirs",), "admission": "2-hit"},
        {"line_bytes": (65_536,), "fetch_bytes": 1024},
        {"budget_bytes": 1 << 20},
    ],
)
def test_a_curve_takes_at_most_32_mb_for_ten_sizes(many_lines: Path, changes: dict[str, object]) -> None:
    trace = Watched(many_lines)
    asked = {"line_bytes": (LINE,), "policies": ("s3-fifo",)} | changes
    (line,), (policy,) = asked["line_bytes"], asked["policies"]  # type: ignore[misc]
    rows, _ = curve_points(trace, further={CurveKey("all", "all", line, policy): [line, 1 << 21]}, **asked)
    points = [row for row in rows if row.window == "all"]
    assert len(points) >= 10
    for second in trace.passes:
        assert second.memory_bytes() < 3.2e6 * len(points)
    if line == LINE:
        assert {point.method for point in points} == {"minisim"}
        assert max(point.sampled_lines or 0 for point in points) < 1.1 * sampling.MOST_SAMPLES


def test_without_sampling_the_same_trace_takes_more(many_lines: Path) -> None:
    trace = Watched(many_lines)
    rows, _ = curve_points(trace, line_bytes=(LINE,), policies=("lru",), exact=True)
    assert trace.passes[0].memory_bytes() > 3.2e6 * len(rows)


def test_regions_are_several_times_as_long_as_requests_and_lines() -> None:
    assert sampling.region_bytes(0.0) == sampling.region_bytes(4096, LINE) == 65_536
    assert sampling.region_bytes(69_000, LINE) == 262_144
    assert sampling.region_bytes(300_000, LINE) == 1 << 20
    assert sampling.region_bytes(1e9, LINE) == 1 << 22
    assert sampling.region_bytes(4096, 1 << 20) == 1 << 22


def test_samples_are_bounded_unless_more_is_asked_for() -> None:
    assert sampling.sample_lines(65_536, LINE, None) == 65_536
    assert sampling.sample_lines(1 << 20, 1 << 18, None) == sampling.LEAST_SAMPLES
    assert sampling.sample_lines(1 << 22, LINE, None) == sampling.MOST_SAMPLES
    assert sampling.sample_lines(1 << 22, LINE, 1_000_000) == 1_000_000
    assert sampling.smallest_size_lines(1e9, None) * sampling.MOST_SAMPLES >= 500 * 1e9
    assert sampling.full_lines(65_536, 1024, "lirs") < sampling.full_lines(65_536, 65_536, "s3-fifo")
