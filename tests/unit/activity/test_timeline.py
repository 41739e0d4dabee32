"""When load or latency shifted, and what moved with it."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest
from tests.unit.activity.conftest import START_NS, Recording, S, rows_of

from bathyscope.analysis.activity import timeline
from bathyscope.records import ClusterStatus, ImageIo, PerfCounter, PgIo
from bathyscope.run_kinds import KINDS


def image(name: str, at_s: float, reads: int, *, client: str = "10.0.0.1") -> ImageIo:
    return ImageIo(
        START_NS + round(at_s * S), 5 * S, "rbd", "", name, None, f"client.{client[-1]}", client, reads, 0, 0, 0, 0, 0
    )


def counters(osd: int, at_s: float, reads: float, latency_ms: float) -> list[PerfCounter]:
    at_ns, daemon = START_NS + round(at_s * S), f"osd.{osd}"
    return [
        PerfCounter(at_ns, 5 * S, daemon, "osd", "op_r", "counter", reads, None, None),
        PerfCounter(at_ns, 5 * S, daemon, "osd", "op_r_latency", "average", reads * latency_ms / 1e3, int(reads), None),
    ]


def fill(recording: Recording, quiet: Callable[[float], int], noisy: Callable[[float], int], slow: float = 1.0) -> None:
    """Ten minutes of two images on three OSDs; from the fifth minute on osd.1 is `slow` times as slow."""
    chance = random.Random(3)
    for step in range(120):
        at_s = 5.0 * (step + 1)
        both = quiet(at_s) + noisy(at_s)
        for osd in range(3):
            latency = chance.uniform(0.9, 1.1) * (slow if osd == 1 and at_s > 300 else 1.0)
            recording.add(*counters(osd, at_s, round(both / 3 * chance.uniform(0.95, 1.05)), latency))
        recording.add(image("quiet", at_s, quiet(at_s)), image("noisy", at_s, noisy(at_s), client="10.0.0.2"))
    recording.ends_s = 600
    recording.seen("perf_counters", 0, 600)


def test_a_shift_of_load_is_found_when_it_was_with_the_image_and_client_that_made_it(recording: Recording) -> None:
    fill(recording, lambda _: 500, lambda at_s: 3000 if 200 < at_s <= 400 else 100)
    found = recording.view("timeline")
    shifts = rows_of(found, "after", "what", "before", "then", "moved with it")
    assert [(after, what) for after, what, *_ in shifts] == [("3 min 20 s", "reads"), ("6 min 40 s", "reads")]
    first, second = (words for *_, words in shifts)
    assert first.startswith("image rbd/noisy (+580/s, ")
    assert "client 10.0.0.2 (+580/s" in first
    assert second.startswith("image rbd/noisy (-580/s, ")
    assert " reads went from " in found.sentence


def test_a_slow_osd_moves_with_the_latency(recording: Recording) -> None:
    fill(recording, lambda _: 500, lambda _: 500, slow=8.0)
    found = recording.view("timeline")
    ((after, what, words),) = rows_of(found, "after", "what", "moved with it")
    assert (after, what) == ("5 min 0 s", "the latency of reads")
    assert words.startswith("osd.1 (")


def test_a_load_that_only_varies_has_no_shift(recording: Recording) -> None:
    chance = random.Random(5)
    fill(recording, lambda _: round(chance.gauss(500, 60)), lambda _: round(chance.gauss(500, 60)))
    found = recording.view("timeline")
    assert found.tables[0].rows == ()
    assert found.sentence.startswith("Nothing changed")


def test_a_moment_is_no_shift(recording: Recording) -> None:
    fill(recording, lambda _: 500, lambda at_s: 20_000 if at_s == 300 else 100)
    assert recording.view("timeline").tables[0].rows == ()


def test_an_empty_recording_has_no_shift_and_says_that_it_cannot_tell(recording: Recording) -> None:
    found = recording.view("timeline")
    assert found.tables[0].rows == ()
    assert found.sentence.startswith("Too little was seen")


def test_intervals_longer_than_a_bin_and_a_gap_are_no_shifts(recording: Recording) -> None:
    """Statistics every 10 s in bins of 5 s, and one interval of two minutes in the middle, all of the same load."""
    for at_s in [*range(10, 200, 10), *range(310, 610, 10)]:
        length_s = 120 if at_s == 310 else 10
        recording.add(PgIo(START_NS + at_s * S, length_s * S, "2.0", "rbd", 0, "0", 1000 * length_s, 0, 0, 0))
    recording.ends_s = 600
    recording.seen("pg_stats", 0, 600)
    assert recording.view("timeline").tables[0].rows == ()
    (heat,) = KINDS["collect"].finding(recording.run).heat_maps
    assert set(heat.values[0]) == {1000.0}


def test_what_was_not_looked_at_is_not_zero_in_a_heat_map(recording: Recording) -> None:
    recording.seen("image_counters", 20, 60)
    for at_s in (25, 30, 35):
        recording.add(image("a", at_s, 50))
    recording.view("devices")
    (heat,) = KINDS["collect"].finding(recording.run).heat_maps
    assert heat.values == ((None, None, None, None, 10.0, 10.0, 10.0, 0.0, 0.0, 0.0, 0.0, 0.0),)


@pytest.mark.parametrize("bins", [20, 24, 60])
def test_a_step_of_a_steady_latency_is_found_as_one_of_a_load_is(bins: int) -> None:
    chance = np.random.default_rng(5)
    level = np.where(np.arange(bins) < bins // 2, 2e6, 3e6) * np.exp(chance.normal(0, 0.005, bins))
    for series in ("reads latency", "reads"):
        (shift,) = timeline._shifts(series, level)
        assert shift.place == bins // 2, series


def test_noise_of_few_and_of_many_bins_is_no_shift() -> None:
    """Latencies that vary by a third from bin to bin: of 400 series at most two have a shift."""
    chance = np.random.default_rng(11)
    found = 0
    for count in (8, 15, 60, 240):
        for _ in range(100):
            found += bool(list(timeline._shifts("reads latency", 1e6 * np.exp(chance.normal(0, 0.3, count)))))
    assert found <= 2


def test_a_scrub_that_begins_with_a_rise_of_latency_is_named(recording: Recording) -> None:
    fill(recording, lambda _: 500, lambda _: 500)
    # From the fifth minute on all OSDs are slow, and two placement groups are scrubbed.
    for at_s in range(305, 605, 5):
        for osd in range(3):
            recording.add(*counters(osd, at_s, 1, 2000.0))
    for at_s in range(5, 605, 10):
        scrubs = 2 if at_s > 300 else 0
        recording.add(ClusterStatus(START_NS + at_s * S, "HEALTH_OK", 0, 64, 64, 0, scrubs, None, None, scrubs))
    found = recording.view("timeline")
    assert "and with it deep scrubs (up to 2 placement groups at a time)" in found.sentence


def test_the_end_of_a_recording_in_the_midst_of_a_bin_is_no_shift(recording: Recording) -> None:
    for step in range(9):
        length_s = 5 if step < 8 else 3
        at_s = 5 * step + length_s
        recording.add(
            PerfCounter(
                START_NS + at_s * S, length_s * S, "osd.0", "osd", "op_r", "counter", 100 * length_s, None, None
            )
        )
    recording.ends_s = 45
    recording.seen("perf_counters", 0, 43)
    assert recording.view("timeline").tables[0].rows == ()
