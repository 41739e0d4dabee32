"""The benchmark of the live screen at a size that runs in a moment, so that it does not rot."""

from __future__ import annotations

import importlib
import sys


def test_every_view_is_drawn_from_the_answers_of_a_made_up_cluster() -> None:
    try:
        top = importlib.import_module("benchmarks.activity.top")
        found = top.main(osds=4, images=30, groups=6, looks=3, repeats=1, sizes=top.SIZES[:1])
        assert list(found["parse"]) == ["map", "mgr_counters", "perf_counters", "pg_stats"]
        for screen in found["screen"].values():
            assert {*top.ROOTS, "key s", "key end", "key pageup"} == set(screen)
        # Two of three looks have something before them to compare with; of the placement groups one of two.
        assert found["rows"]["image_io"] == 2 * 30
        assert found["rows"]["osd_io"] == 2 * 4 * len(top.POOLS)
        assert found["rows"]["pg_io"] == 4 * 6 // 3
        assert found["rows"]["perf_counter"] > 4 * 50
        view = top.World(top.Cluster(4, 30, 6))
        for _ in range(3):
            view.look()
        images = view.feed.view("devices", {}).tables[0]
        assert len(images.rows) == 30
    finally:
        for name in [name for name in sys.modules if name.startswith("benchmarks")]:
            sys.modules.pop(name)
