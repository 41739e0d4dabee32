"""What is captured around a step, on scripted OSDs."""

from __future__ import annotations

import itertools

import pytest

from bathyscope.bench.capture import HISTORY, PERF_AFTER, StepCapture
from bathyscope.host.fake import FakeCephSession, FakeHost
from bathyscope.spec import Target
from bathyscope.spec.plan import Capture


@pytest.mark.parametrize(
    ("served", "asked_later"),
    [([5_000, 6_000], False), ([5_000, 90], True), ([5_000, 0], False), ([0, 0], False)],
)
def test_slow_osds_get_the_time_to_file_their_last_ops(served: list[int], asked_later: bool) -> None:
    """An OSD whose ops have long gaps between them files the last one up to 256 ms after it was done."""
    session = FakeCephSession()
    counts = {f"osd.{osd}": itertools.count(1_000, step) for osd, step in enumerate(served) if step}
    session.answers = {
        "perf dump": lambda request: {"osd": {"op": next(counts.get(request.daemon, itertools.repeat(7)))}},
        "dump_historic_ops": {"ops": [], "size": 1000, "duration": 4},
    }
    host = FakeHost(ceph=session)
    capture = StepCapture(host, session, Target(name="c"), Capture(processes=False), [0, 1])
    capture.begin()
    host.sleep(2.0)
    ended_s = host.monotonic_ns() / 1e9
    captured = capture.end()
    assert len(captured.raw[PERF_AFTER]) == len(captured.raw[HISTORY]) == 2
    assert captured.counted_s == pytest.approx(2.0)
    assert (host.monotonic_ns() / 1e9 - ended_s > 0.256) == asked_later


def test_without_counters_every_osd_gets_that_time() -> None:
    session = FakeCephSession({"dump_historic_ops": {"ops": []}})
    host = FakeHost(ceph=session)
    capture = StepCapture(host, session, Target(name="c"), Capture(processes=False, perf_counters=False), [0])
    capture.begin()
    capture.end()
    assert host.monotonic_ns() > 256_000_000
