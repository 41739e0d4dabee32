"""How long `bathy top` takes from the answers of a large cluster to the drawn screen, and in how much memory.

The cluster is made up, what reads it is the program's own: answers of the manager's module, of its placement groups
and of every OSD's counters (the dump of a real OSD, going on at the pace at which it was recorded) are parsed by the
sources into a `LiveSink`, views are asked of a `LiveFeed`, and the screen runs without a terminal at 80x24 and 200x50.
"""

from __future__ import annotations

import asyncio
import json
import resource
import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from bathyscope.analysis.activity import VIEWS
from bathyscope.host.fake import EPOCH_NS, FakeHost
from bathyscope.recording.collect import as_collected
from bathyscope.recording.recorder import Recorder
from bathyscope.recording.scope import ScopeKeeper
from bathyscope.records import Image, Placement, RawAnswer, Record, Tables, to_table
from bathyscope.sources import SOURCES
from bathyscope.sources.shape import Source
from bathyscope.spec import Target
from bathyscope.spec.collect import CollectSpec
from bathyscope.spec.scope import Scope, ScopeOsd
from bathyscope.views.tui.rows import Rows
from bathyscope.views.tui.top import Top
from bathyscope.watch.feeds import LiveFeed, kept_s
from bathyscope.watch.live import LiveSink

PERIOD_S = 5.0
POOLS = {"vms": 1, "volumes": 2, "archive": 3}
FIXTURES = Path(__file__).parents[2] / "tests" / "fixtures" / "perf_dump" / "18.2.7"
# OSDs differ; so many different dumps make a cluster.
KINDS = 10
SIZES = ((80, 24), (200, 50))
ROOTS = ("devices", "clients", "osds", "nodes", "pools", "balance", "health")

Times = tuple[float, float]
"""Seconds that passed, and seconds of the processor."""


class Cluster:
    """A cluster of so many OSDs and images, whose counters all go on with each look."""

    def __init__(self, osds: int, images: int, groups: int) -> None:
        self.osds, self.images, self.groups = osds, images, groups
        dumps = (next((FIXTURES / each).glob("*.stdout")) for each in ("before", "after"))
        before, after = (json.loads(dump.read_text()) for dump in dumps)
        self._before, self._after = before, after

    def known(self) -> dict[type[Record], list[Any]]:
        """Return what does not change: where OSDs are, what images there are."""
        shape = {"object_size_bytes": 1 << 22, "stripe_unit_bytes": 1 << 22, "stripe_count": 1}
        names = list(POOLS)
        return {
            Placement: [
                Placement(osd, f"node{osd // 20}", "ssd", None, None, None, None, None, None, crush_weight=1.0)
                for osd in range(self.osds)
            ],
            Image: [
                Image(
                    EPOCH_NS, names[number % 3], "", f"vm-{number}-disk-0", f"{number:x}", 1 << 36, data_pool=None,
                    parent=None, **shape,
                )
                for number in range(self.images)
            ],
        }  # fmt: skip

    def module(self, look: int) -> bytes:
        """Return what the manager's module says: every image has a client of its own, every OSD all pools."""
        clock_s = look * PERIOD_S
        pools = list(POOLS.values())
        images = [
            [
                f"client.{number}", f"10.{number // 60_000}.{number // 250 % 240}.{number % 250}", pools[number % 3],
                "", pools[number % 3], f"{number:x}", clock_s + 9, *_totals(number, look),
            ]
            for number in range(self.images)
        ]  # fmt: skip
        osds = [[osd, pool, clock_s + 9, *_totals(osd, look)] for osd in range(self.osds) for pool in pools]
        queries = {
            "image_client": {"registered_age_s": clock_s + 9, "rows": images},
            "osd_pool": {"registered_age_s": clock_s + 9, "rows": osds},
        }
        said = {
            "version": 1,
            "instance": "a",
            "clock_s": clock_s + 10,
            "at_age_s": 0.5,
            "queries": queries,
            "dropped": 0,
        }
        return json.dumps(said).encode()

    def pg_dump(self, look: int) -> bytes:
        """Return `pg dump pgs`, as short as it is read."""
        pools = list(POOLS.values())
        return json.dumps({"pg_stats": [
            {
                "pgid": f"{pools[number % 3]}.{number // 3:x}", "state": "active+clean", "acting": [number % self.osds],
                "acting_primary": number % self.osds,
                "stat_sum": dict.fromkeys(("num_read", "num_write", "num_read_kb", "num_write_kb"), look * 100),
            }
            for number in range(self.osds * self.groups // 3)
        ]}).encode()  # fmt: skip

    def perf_dumps(self, look: int) -> Sequence[bytes]:
        """Return the counters of KINDS OSDs."""
        return [json.dumps(_gone_on(self._before, self._after, look + kind / KINDS)).encode() for kind in range(KINDS)]


def _totals(number: int, look: int) -> list[int]:
    reads, writes = look * (number % 97 + 1), look * (number % 89 + 1)
    return [writes, reads, writes * 4096, reads * 4096, writes * 2_000_000, reads * 900_000]


def _gone_on(before: Any, after: Any, steps: float) -> Any:
    """Return counters that have gone on by `steps` times what they did from `before` to `after`."""
    if isinstance(after, dict):
        return {key: _gone_on(before.get(key, value), value, steps) for key, value in after.items()}
    if isinstance(after, int | float) and isinstance(before, int | float):
        return type(after)(before + max(0, after - before) * steps)
    return after


class Known:
    """A source whose rows are there already."""

    differences = False
    period_s = timeout_s = 1.0

    def __init__(self, name: str, rows: dict[type[Record], list[Any]]) -> None:
        self.name, self.records = name, tuple(rows)
        self._tables: Tables = {record: to_table(record, found) for record, found in rows.items()}

    def plan(self, scope: Scope) -> Sequence[Any]:
        raise AssertionError

    def parse(self, answers: Sequence[RawAnswer], scope: Scope) -> Tables:
        return self._tables


class World:
    """The feed of a screen over the cluster, and what parsing its looks has cost."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.host = FakeHost()
        scope = Scope(
            target=Target(name="large"), pools=POOLS, mgr_modules=("bathyscope",),
            osds=tuple(ScopeOsd(osd=osd) for osd in range(cluster.osds)),
        )  # fmt: skip
        keeper = cast("ScopeKeeper", SimpleNamespace(scope=scope, narrow=lambda **_: None))
        spec = CollectSpec(duration_s=None, interval_s=PERIOD_S)
        self.sink = LiveSink(keeper, kept_s(spec))
        recorder = cast("Recorder", SimpleNamespace(failure=None))
        self.feed = LiveFeed(self.host, self.sink, keeper, recorder, spec, session=None)
        self.parsed: dict[str, list[Times]] = {}
        self._take(cast("Source", Known("map", cluster.known())), [("map", b"")])
        self._looks = 0

    def look(self) -> None:
        """Let a period pass, and take what every source answers then."""
        self._looks += 1
        self.host.clock.advance(PERIOD_S)
        self._take(SOURCES["mgr_counters"], [("mgr_counters", self.cluster.module(self._looks))])
        dumps = self.cluster.perf_dumps(self._looks)
        answers = [(f"perf_dump-osd.{osd}", dumps[osd % KINDS]) for osd in range(self.cluster.osds)]
        self._take(SOURCES["perf_counters"], answers)
        if self._looks % 2:
            self._take(SOURCES["pg_stats"], [("pg_dump", self.cluster.pg_dump(self._looks))])

    def _take(self, source: Source, said: Sequence[tuple[str, bytes]]) -> None:
        now_ns = self.host.now_ns()
        answers = [RawAnswer(label, ("ceph",), (), 0, text, b"", now_ns, now_ns) for label, text in said]
        self.sink.take(source, as_collected(source.name, answers))
        began = _now()
        self.sink.tend()
        self.parsed.setdefault(source.name, []).append(_since(began))


def _now() -> Times:
    return time.perf_counter(), time.process_time()


def _since(began: Times) -> Times:
    now = _now()
    return now[0] - began[0], now[1] - began[1]


def _medians(times: Mapping[str, Sequence[Times]]) -> dict[str, dict[str, float]]:
    return {
        name: {
            "wall_s": round(statistics.median(wall_s for wall_s, _ in found), 3),
            "cpu_s": round(statistics.median(cpu_s for _, cpu_s in found), 3),
        }
        for name, found in times.items()
    }


async def _screens(world: World, size: tuple[int, int], repeats: int) -> Mapping[str, Sequence[Times]]:
    """Return view or key → from the question to the drawn screen."""
    app = Top(world.feed, ROOTS, ROOTS[0], known=VIEWS)
    world.feed.period_s = 3600.0
    found: dict[str, list[Times]] = {}
    async with app.run_test(size=size) as pilot:
        for view in ROOTS:
            for _ in range(repeats):
                await app.workers.wait_for_complete()
                await pilot.pause()
                began = _now()
                app.refresh_view()
                await app.workers.wait_for_complete()
                await pilot.pause()
                found.setdefault(view, []).append(_since(began))
            if view == "devices":
                assert len(app.query_one(Rows).rows) == world.cluster.images
                for keys in ("s", "end", "pageup"):
                    began = _now()
                    await pilot.press(keys)
                    await pilot.pause()
                    found.setdefault(f"key {keys}", []).append(_since(began))
            await pilot.press("tab")
    return found


def main(
    *, osds: int, images: int, groups: int, looks: int, repeats: int, sizes: Sequence[tuple[int, int]] = SIZES
) -> dict[str, Any]:
    """Return seconds of parsing by source, of the screens by view, and the memory."""
    world = World(Cluster(osds, images, groups))
    for _ in range(looks):
        world.look()
    tables = world.sink.tables()
    return {
        "osds": osds,
        "images": images,
        "period_s": PERIOD_S,
        "parse": _medians(world.parsed),
        "screen": {f"{size[0]}x{size[1]}": _medians(asyncio.run(_screens(world, size, repeats))) for size in sizes},
        "rows": {name: table.num_rows for name, table in tables.items() if table.num_rows},
        "tables_mib": sum(table.nbytes for table in tables.values()) >> 20,
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10,
    }


__all__ = ["Cluster", "World", "main"]
