"""When load or latency shifted, and what moved with it."""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.unit.see.conftest import START_NS, Recording, S, rows_of

from bathyscope.records import ImageIo, PerfCounter


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


def test_an_empty_recording_has_no_shift(recording: Recording) -> None:
    assert recording.view("timeline").tables[0].rows == ()
