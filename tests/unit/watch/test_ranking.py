"""Which images are asked for who has them open: the busiest, changed seldom, and none where nothing is known."""

from __future__ import annotations

import json
from collections.abc import Mapping

from tests.unit.recording.world import World, keeper_of

from bathyscope.recording.collect import as_collected
from bathyscope.recording.sinks import MemorySink
from bathyscope.records import RawAnswer
from bathyscope.sources import SOURCES, image_counters
from bathyscope.watch.ranking import IMAGES_MAX, BusiestSink

S = 1_000_000_000
COUNTERS = image_counters.SOURCE
ORDERS = ["write_ops", "read_ops", "write_bytes", "read_bytes", "write_latency", "read_latency"]


class Watch:
    """A sink that looks at counts every few seconds."""

    def __init__(self) -> None:
        self.keeper = keeper_of(World().host())
        self.kept = MemorySink()
        self.sink = BusiestSink(self.kept, self.keeper)
        self._totals: dict[str, int] = {}

    def look(self, at_s: float, did: Mapping[str, int], text: bytes | None = None) -> set[str]:
        """Take the counts of a moment, and return the images that are watched then."""
        for image, count in did.items():
            self._totals[image] = self._totals.get(image, 0) + count
        counters = [{f"0/{image}": [count] * 6} for image, count in self._totals.items()]
        said = {"counter_descriptors": ORDERS, "pool_descriptors": {"0": "rbd/ns"}, "counters": counters}
        stdout = json.dumps(said).encode() if text is None else text
        at_ns = round(at_s * S)
        answers = [
            RawAnswer(f"rbd_perf-{order}", ("ceph",), (), 0, stdout, b"", at_ns, at_ns + place)
            for place, order in enumerate(ORDERS)
        ]
        self.sink.take(COUNTERS, as_collected(COUNTERS.name, answers))
        return {image for _, _, image in self.keeper.scope.watched_images}


def test_the_busiest_of_the_last_interval_are_watched_and_everything_is_handed_on() -> None:
    watch = Watch()
    assert watch.look(0, dict.fromkeys(map(str, range(60)), 1)) == set()
    assert watch.look(5, {str(image): 1 + image for image in range(60)}) == set(map(str, range(28, 60)))
    assert watch.keeper.scope.watched_images[0][:2] == ("rbd", "ns")
    assert len(watch.kept.collected(COUNTERS.name)) == 2
    (request,) = SOURCES["watchers"].plan(watch.keeper.scope)
    assert request.label == "watchers-rbd"


def test_others_are_watched_after_a_minute_and_only_for_one_of_the_foremost() -> None:
    watch = Watch()
    images = {str(image): 100 for image in range(IMAGES_MAX)}
    watch.look(0, images)
    first = watch.look(5, images)
    assert first == set(images)
    before = watch.keeper.scope
    assert watch.look(10, {**images, "noisy": 900}) == first
    # Too far behind to be worth another segment.
    assert watch.look(70, {**images, "idle": 1}) == first
    assert watch.keeper.scope is before
    assert "noisy" in watch.look(75, {**images, "noisy": 900})


def test_while_there_is_room_whoever_comes_is_added_and_who_is_idle_stays() -> None:
    watch = Watch()
    watch.look(0, {"a": 1, "b": 1})
    assert watch.look(5, {"a": 1}) == {"a"}
    assert watch.look(80, {"b": 1}) == {"a", "b"}


def test_an_answer_that_is_not_understood_changes_nothing() -> None:
    watch = Watch()
    watch.look(0, {"a": 1})
    assert watch.look(5, {}, text=b"{}") == set()
